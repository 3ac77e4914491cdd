//! The screen: the board, drawn into a buffer of any size.

mod flow;
mod news;
mod panels;
mod pen;

use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};

use crate::board::{Board, Phase};
use pen::Pen;

/// Below that only the numbers are told.
const LEAST: (u16, u16) = (48, 13);
/// From that on news stand beside the flow.
const WIDE: u16 = 132;

pub(crate) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(crate) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(crate) const GOOD: Style = Style::new().fg(Color::Green);
pub(crate) const BAD: Style = Style::new().fg(Color::Red);
pub(crate) const GONE: Style = Style::new().fg(Color::Gray);

/// The colour of a retry topic.
pub(crate) fn tier(index: usize) -> Style {
    let colours = [Color::Cyan, Color::Blue, Color::Magenta];
    Style::new().fg(colours.get(index).copied().unwrap_or(Color::Cyan))
}

/// Draws everything.
pub(crate) fn draw(board: &Board, now: i64, area: Rect, buffer: &mut Buffer) {
    if area.width < LEAST.0 || area.height < LEAST.1 {
        return numbers(board, now, &mut Pen::new(area, buffer));
    }
    let is_small = area.width < 72 || area.height < 22;
    let head = if is_small { 1 } else { 2 };
    let rows = [Constraint::Length(head), Constraint::Fill(1), Constraint::Length(1)];
    let [top, body, bottom] = Layout::vertical(rows).areas(area);
    header(board, now, &mut Pen::new(top, buffer));
    footer(board, &mut Pen::new(bottom, buffer));
    if is_small {
        small(board, now, body, buffer);
    } else if area.width >= WIDE {
        wide(board, now, body, buffer);
    } else {
        usual(board, now, body, buffer);
    }
}

/// Flow, panels and news, one below the other; the more room there is, the taller the charts of what waits.
fn usual(board: &Board, now: i64, area: Rect, buffer: &mut Buffer) {
    let more = area.height.saturating_sub(21);
    let (panels, news) = (5 + more / 8, 7 + more / 3);
    let chart = (area.height.saturating_sub(flow::AROUND + panels + news) / 3).max(1);
    let rows = [flow::AROUND + 3 * chart, panels].map(Constraint::Length);
    let [top, middle, bottom] =
        Layout::vertical([rows[0], rows[1], Constraint::Fill(1)]).areas(area);
    flow::draw(board, now, chart, &mut Pen::new(top, buffer));
    panels::draw(board, middle, buffer);
    news::draw(board, bottom, buffer);
}

fn wide(board: &Board, now: i64, area: Rect, buffer: &mut Buffer) {
    let columns = [Constraint::Fill(11), Constraint::Fill(9)];
    let [left, right] = Layout::horizontal(columns).spacing(1).areas(area);
    let panels = (area.height / 4).clamp(5, 11);
    let chart = (left.height.saturating_sub(flow::AROUND + panels) / 3).max(1);
    let rows = [Constraint::Length(flow::AROUND + 3 * chart), Constraint::Fill(1)];
    let [top, bottom] = Layout::vertical(rows).areas(left);
    flow::draw(board, now, chart, &mut Pen::new(top, buffer));
    panels::draw(board, bottom, buffer);
    news::draw(board, right, buffer);
}

/// No frames, and one line for all panels.
fn small(board: &Board, now: i64, area: Rect, buffer: &mut Buffer) {
    let rows = [Constraint::Length(flow::AROUND + 2), Constraint::Length(1), Constraint::Fill(1)];
    let [top, middle, bottom] = Layout::vertical(rows).areas(area);
    flow::draw(board, now, 1, &mut Pen::new(top, buffer));
    panels::line(board, &mut Pen::new(middle, buffer));
    news::lines(board, &mut Pen::new(bottom, buffer));
}

fn header(board: &Board, now: i64, pen: &mut Pen<'_>) {
    let x = pen.text(0, 0, " redrive demo ", BOLD.add_modifier(Modifier::REVERSED));
    let what = match pen.width() {
        ..72 => format!(" {} orders, a flaky service", board.records()),
        _ => format!(" {} orders, and a service that is flaky on purpose", board.records()),
    };
    pen.text(x, 0, &what, Style::new());
    pen.right(1, 0, &format!("{:.1} s", board.elapsed(now).as_secs_f64()), BOLD);
    let place = format!(" {}, metrics at {}", board.scene.broker, board.scene.metrics);
    pen.text(0, 1, &place, DIM);
}

fn footer(board: &Board, pen: &mut Pen<'_>) {
    let (ended, all) = (board.ended(), board.records().max(1));
    let words = match board.phase {
        Phase::Starting => "the consumer joins its group …".to_owned(),
        Phase::Ending => "ending: what is under way may finish …".to_owned(),
        Phase::Proving => "reading all topics again, to prove it …".to_owned(),
        Phase::Producing | Phase::Finishing => {
            format!("{ended} of {all} have come to their end")
        }
    };
    let hint = " Ctrl-C ends it ";
    let words_width = u16::try_from(words.chars().count()).unwrap_or(u16::MAX);
    let room = pen.width().saturating_sub(words_width + 5);
    let hint_width = u16::try_from(hint.chars().count()).unwrap_or(u16::MAX);
    let has_hint = room > hint_width + 10;
    let bar = if has_hint { room - hint_width } else { room };
    let x = pen.bar(1, 0, bar, ended as f64 / all as f64, GOOD);
    let x = pen.text(x + 2, 0, &words, BOLD);
    if has_hint {
        pen.text(x + 1, 0, hint, DIM);
    }
}

/// For terminals where nothing else has room.
fn numbers(board: &Board, now: i64, pen: &mut Pen<'_>) {
    let waiting: usize = (0..board.scene.tiers.len()).map(|it| board.waiting(it, now)).sum();
    let lines = [
        ("orders", board.records(), Style::new()),
        ("handled", board.done as usize, GOOD),
        ("waiting", waiting, tier(0)),
        ("dead letters", board.dead_letters() as usize, BAD),
        ("dropped", board.dropped as usize, GONE),
    ];
    for (y, (name, count, style)) in (0..).zip(lines) {
        let x = pen.text(0, y, &format!("{count:>7} "), style.add_modifier(Modifier::BOLD));
        pen.text(x, y, name, Style::new());
    }
}

/// Takes all colours out.
pub(crate) fn bleach(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        cell.fg = Color::Reset;
        cell.bg = Color::Reset;
    }
}

#[cfg(test)]
mod tests;
