//! The picture of the flow: from the source topic to the service, and from there to success, a retry topic or an end.

use std::time::Duration;

use ratatui::style::{Modifier, Style};

use super::pen::Pen;
use super::{BAD, BOLD, DIM, GONE, GOOD, tier};
use crate::board::{Board, Way, seconds};
use crate::orders;

/// How many rows there are beside the charts.
pub(crate) const AROUND: u16 = 6;

/// Where things stand, from left to right.
struct Columns {
    source: u16,
    way: u16,
    service: u16,
    trunk: u16,
    branch: u16,
    stop: u16,
    chart: u16,
    chart_width: u16,
}

impl Columns {
    fn of(width: u16) -> Self {
        let (way, branch) = if width < 72 { (6, 4) } else { (10 + (width - 72) / 10, 7) };
        let source = 1;
        let service = source + 7 + way + 1;
        let trunk = service + 3;
        let stop = trunk + 1 + branch + 1;
        let chart = stop + 9;
        let chart_width = width.saturating_sub(chart + 9).max(1);
        Self { source, way, service, trunk, branch, stop, chart, chart_width }
    }
}

/// Draws it, with charts of so many rows.
pub(crate) fn draw(board: &Board, now: i64, height: u16, pen: &mut Pen<'_>) {
    let columns = Columns::of(pen.width());
    top(board, now, &columns, pen);
    let longest = board.scene.tiers.iter().map(|it| it.1).max().unwrap_or_default();
    let within = longest.max(orders::LONGEST_TOLD);
    axis(&columns, within, pen);
    let tiers = board.scene.tiers.len();
    let due: Vec<_> =
        (0..tiers).map(|it| board.due(it, usize::from(columns.chart_width), within, now)).collect();
    let peak = due.iter().flatten().copied().max().unwrap_or(0).max(8);
    let mut y = 3;
    for (index, due) in due.iter().enumerate() {
        let foot = y + height - 1;
        (y..foot).for_each(|y| _ = pen.text(columns.trunk, y, "│", DIM));
        waiting(board, now, index, foot, &columns, pen);
        for (column, count) in (0..).zip(due).filter(|it| *it.1 > 0) {
            let level = (*count * 8 * u32::from(height)).div_ceil(peak);
            pen.rise(columns.chart + column, foot, height, level as usize, tier(index));
        }
        y += height;
    }
    let letters = End { way: Way::DeadLetter, name: "✖ dead letters", style: BAD };
    letters.draw(board.dead_letters(), board, now, ("├", y), &columns, pen);
    let dropped = End { way: Way::Dropped, name: "∅ dropped", style: GONE };
    dropped.draw(board.dropped, board, now, ("╰", y + 1), &columns, pen);
}

fn top(board: &Board, now: i64, columns: &Columns, pen: &mut Pen<'_>) {
    pen.text(columns.source, 0, "orders", BOLD);
    let dots = board.dots(Way::In, now);
    pen.way(columns.source + 7, 0, columns.way, dots, Style::new());
    let style = if board.is_down { BAD } else { GOOD };
    let x = pen.text(columns.service, 0, "service", style.add_modifier(Modifier::BOLD));
    let x = pen.way(x + 1, 0, columns.way, board.dots(Way::Done, now), GOOD);
    pen.text(x + 1, 0, "✔ handled", GOOD);
    pen.right(1, 0, &board.done.to_string(), GOOD.add_modifier(Modifier::BOLD));
    pen.text(columns.source, 1, &format!("{} produced", board.produced), DIM);
    let x = pen.text(columns.trunk, 1, "│", DIM);
    if board.is_down {
        pen.text(x + 1, 1, "is down, and refuses connections", BAD);
    }
}

/// Times below which the charts of what waits stand.
fn axis(columns: &Columns, within: Duration, pen: &mut Pen<'_>) {
    pen.text(columns.trunk, 2, "│", DIM);
    pen.text(columns.stop, 2, "due in", DIM);
    pen.text(columns.chart, 2, "now", DIM);
    let ticks = if columns.chart_width < 32 { 2 } else { 4 };
    for tick in 1..=ticks {
        let label = seconds(within * u32::from(tick) / u32::from(ticks));
        let width = u16::try_from(label.chars().count()).unwrap_or(0);
        let x = columns.chart + columns.chart_width * tick / ticks;
        pen.text(x.saturating_sub(width), 2, &label, DIM);
    }
    pen.right(1, 2, "waiting", DIM);
}

/// A retry topic.
fn waiting(board: &Board, now: i64, index: usize, y: u16, columns: &Columns, pen: &mut Pen<'_>) {
    let style = tier(index);
    let x = pen.text(columns.trunk, y, "├", DIM);
    pen.way(x, y, columns.branch, board.dots(Way::Tier(index), now), style);
    pen.text(columns.stop, y, &format!("retry {}", index + 1), style);
    let is_going = board.dots(Way::Back(index), now).any(|it| it < 0.4);
    let arrow = if is_going { style.add_modifier(Modifier::BOLD) } else { DIM };
    pen.text(columns.chart - 1, y, "◀", arrow);
    let waiting = board.waiting(index, now);
    let style = if waiting > 0 { style.add_modifier(Modifier::BOLD) } else { DIM };
    pen.right(1, y, &waiting.to_string(), style);
}

/// Where records stay.
struct End {
    way: Way,
    name: &'static str,
    style: Style,
}

impl End {
    fn draw(
        &self,
        count: u32,
        board: &Board,
        now: i64,
        (corner, y): (&str, u16),
        columns: &Columns,
        pen: &mut Pen<'_>,
    ) {
        let x = pen.text(columns.trunk, y, corner, DIM);
        pen.way(x, y, columns.branch, board.dots(self.way, now), self.style);
        pen.text(columns.stop, y, self.name, self.style);
        let style = if count > 0 { self.style.add_modifier(Modifier::BOLD) } else { DIM };
        pen.right(1, y, &count.to_string(), style);
    }
}
