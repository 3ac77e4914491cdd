//! What came of the runs, how late retries are, and why records are dead.

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::widgets::{Block, BorderType, Widget};

use super::pen::Pen;
use super::{BAD, BOLD, DIM, GOOD};
use crate::board::Board;

/// A frame with a title. Gives what is inside.
pub(crate) fn frame(title: &str, area: Rect, buffer: &mut Buffer) -> Rect {
    let block = Block::bordered().border_type(BorderType::Rounded).border_style(DIM);
    let block = block.title(format!(" {title} "));
    let inner = block.inner(area);
    block.render(area, buffer);
    inner
}

/// Draws all three beside each other.
pub(crate) fn draw(board: &Board, area: Rect, buffer: &mut Buffer) {
    let columns = [Constraint::Fill(5), Constraint::Fill(3), Constraint::Fill(4)];
    let [left, middle, right] = Layout::horizontal(columns).areas(area);
    let inner = frame("what came of the runs", left, buffer);
    answers(board, &mut Pen::new(inner, buffer));
    let inner = frame("late by", middle, buffer);
    lateness(board, &mut Pen::new(inner, buffer));
    let inner = frame("dead letters, by reason", right, buffer);
    letters(board, &mut Pen::new(inner, buffer));
}

/// The one line that has room on a small screen.
pub(crate) fn line(board: &Board, pen: &mut Pen<'_>) {
    let late = board.lateness().map_or_else(
        || "no retry yet".to_owned(),
        |it| format!("late by {} (p50), {} (p99), {} at most", it[0], it[1], it[2]),
    );
    pen.text(1, 0, &late, DIM);
}

fn style_of(answer: &str) -> Style {
    if answer == "200" { GOOD } else { Style::new() }
}

/// A line for each, in two columns where there are more than lines.
fn answers(board: &Board, pen: &mut Pen<'_>) {
    let rows = pen.height().max(1);
    let is_split = board.answers.len() > usize::from(rows) && pen.width() >= 24;
    let width = if is_split { pen.width() / 2 } else { pen.width() };
    // The statuses first, then what has none; on the left they need less room.
    let first = if is_split { width.saturating_sub(4) } else { width };
    for (index, (name, count)) in (0u16..).zip(&board.answers) {
        let (column, row) = (index / rows, index % rows);
        let (x, end) = if column == 0 { (1, first - 1) } else { (first + 1, pen.width() - 1) };
        if column > 1 || (column == 1 && !is_split) {
            break;
        }
        let count = count.to_string();
        pen.text(x, row, name, style_of(name));
        let at = end.saturating_sub(u16::try_from(count.len()).unwrap_or(0));
        pen.text(at, row, &count, style_of(name).patch(BOLD));
    }
}

fn lateness(board: &Board, pen: &mut Pen<'_>) {
    let Some(late) = board.lateness() else {
        pen.text(1, 0, "no retry yet", DIM);
        return;
    };
    for (y, (name, late)) in (0..).zip(["p50", "p99", "max"].iter().zip(&late)) {
        pen.text(1, y, name, DIM);
        pen.right(1, y, late, BOLD);
    }
}

fn letters(board: &Board, pen: &mut Pen<'_>) {
    if board.letters.is_empty() {
        pen.text(1, 0, "none yet", DIM);
    }
    let most = board.letters.values().copied().max().unwrap_or(0).max(1);
    for (y, (reason, count)) in (0..).zip(&board.letters) {
        pen.text(1, y, reason, Style::new());
        let bar = pen.width().saturating_sub(15 + 6);
        if bar > 0 {
            let filled = bar * u16::try_from(*count * 100 / most).unwrap_or(100) / 100;
            (0..filled.max(1)).for_each(|it| _ = pen.text(15 + it, y, "▪", BAD));
        }
        pen.right(1, y, &count.to_string(), BAD.patch(BOLD));
    }
}
