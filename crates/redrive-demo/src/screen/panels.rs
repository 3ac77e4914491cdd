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
        |it| format!("late by {} (p50), {} (p99)", it[0], it[1]),
    );
    let reasons: Vec<_> = board.letters.iter().map(|it| format!("{} {}", it.0, it.1)).collect();
    let reasons =
        if reasons.is_empty() { String::new() } else { format!("; {}", reasons.join(", ")) };
    pen.text(1, 0, &format!("{late}{reasons}"), DIM);
}

fn style_of(answer: &str) -> Style {
    if answer == "200" { GOOD } else { Style::new() }
}

/// A line with a bar for each, or where there is no room for that, one after the other.
fn answers(board: &Board, pen: &mut Pen<'_>) {
    let most = board.answers.values().copied().max().unwrap_or(1);
    if board.answers.len() <= usize::from(pen.height()) && pen.width() >= 28 {
        for (y, (name, count)) in (0..).zip(&board.answers) {
            pen.text(1, y, name, style_of(name));
            let bar = pen.width().saturating_sub(11 + 8);
            pen.block(11, y, bar, f64::from(*count) / f64::from(most), style_of(name));
            pen.right(1, y, &count.to_string(), style_of(name).patch(BOLD));
        }
        return;
    }
    let (mut x, mut y) = (1, 0);
    for (name, count) in &board.answers {
        let count = count.to_string();
        let width = u16::try_from(name.len() + 1 + count.len()).unwrap_or(u16::MAX);
        if x > 1 && x + width >= pen.width() {
            (x, y) = (1, y + 1);
        }
        x = pen.text(x, y, name, DIM.patch(style_of(name))) + 1;
        x = pen.text(x, y, &count, style_of(name).patch(BOLD)) + 2;
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
        pen.block(15, y, bar, f64::from(*count) / f64::from(most), BAD);
        pen.right(1, y, &count.to_string(), BAD.patch(BOLD));
    }
}
