//! The picture of the screen in the README, drawn by the screen itself.

mod made_up;

use std::fmt::Write;

use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier};

pub(crate) use made_up::board;

use crate::screen;

/// How large the terminal is.
const SIZE: (u16, u16) = (100, 30);
/// A cell, in pixels.
const CELL: (f64, f64) = (8.4, 18.0);
/// The window's frame, in pixels: around, and above.
const FRAME: (f64, f64) = (14.0, 38.0);

const BACKGROUND: &str = "#16181d";
const TEXT: &str = "#d7dae0";

/// The screen in the middle of a made-up demo, as an SVG. It is the same every time.
pub fn picture() -> String {
    let (board, now) = board(5_900);
    let area = Rect::new(0, 0, SIZE.0, SIZE.1);
    let mut buffer = Buffer::empty(area);
    screen::draw(&board, now, area, &mut buffer);
    svg(&buffer)
}

fn svg(buffer: &Buffer) -> String {
    let (columns, rows) = (f64::from(buffer.area.width), f64::from(buffer.area.height));
    let width = columns * CELL.0 + 2.0 * FRAME.0;
    let height = rows * CELL.1 + FRAME.0 + FRAME.1;
    let mut svg = String::new();
    let _ = write!(
        svg,
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0} {height:.0}" width="{width:.0}" role="img" aria-label="redrive demo in a terminal">
<rect width="100%" height="100%" rx="10" fill="{BACKGROUND}"/>
<g fill="#4b505b"><circle cx="22" cy="20" r="6"/><circle cx="42" cy="20" r="6"/><circle cx="62" cy="20" r="6"/></g>
<g font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="14" fill="{TEXT}" xml:space="preserve">
"##
    );
    for row in 0..buffer.area.height {
        let mut column = 0;
        while column < buffer.area.width {
            column = run(buffer, column, row, &mut svg);
        }
    }
    svg.push_str("</g>\n</svg>\n");
    svg
}

fn cell(buffer: &Buffer, column: u16, row: u16) -> Option<&Cell> {
    buffer.cell((buffer.area.x + column, buffer.area.y + row))
}

/// Whether a cell shows nothing at all.
fn is_empty(cell: &Cell) -> bool {
    cell.symbol() == " " && !cell.modifier.contains(Modifier::REVERSED)
}

/// The part of a cell that a block fills, from the bottom left: its width and its height. None if it is text.
fn filled(symbol: &str) -> Option<(f64, f64)> {
    let eighths =
        |all: &str, it: char| all.chars().position(|at| at == it).map(|it| (it + 1) as f64 / 8.0);
    let symbol = symbol.chars().next()?;
    let (wide, high) = (eighths("▏▎▍▌▋▊▉█", symbol), eighths("▁▂▃▄▅▆▇█", symbol));
    wide.map(|it| (it, 1.0)).or(high.map(|it| (1.0, it)))
}

/// Draws neighbours that look the same. Gives the column behind them.
fn run(buffer: &Buffer, start: u16, row: u16, svg: &mut String) -> u16 {
    let Some(first) = cell(buffer, start, row).filter(|it| !is_empty(it)) else {
        return start + 1;
    };
    let look = |it: &Cell| (it.fg, it.modifier, filled(it.symbol()));
    let mut text = String::new();
    let mut end = start;
    while let Some(next) = cell(buffer, end, row)
        && look(next) == look(first)
        && (!is_empty(next) || !text.ends_with("  "))
    {
        text.push_str(next.symbol());
        end += 1;
    }
    let is_reversed = first.modifier.contains(Modifier::REVERSED);
    let text = if is_reversed { text.as_str() } else { text.trim_end() };
    let length = text.chars().count() as f64 * CELL.0;
    let (x, y) = (FRAME.0 + f64::from(start) * CELL.0, FRAME.1 + f64::from(row) * CELL.1);
    let fill = colour(first.fg);
    let faint = if first.modifier.contains(Modifier::DIM) { r#" opacity="0.55""# } else { "" };
    // Blocks are drawn, since fonts differ in how they fill a cell.
    if let Some((wide, high)) = filled(first.symbol()) {
        let (width, height) = (length - CELL.0 * (1.0 - wide), CELL.1 * high);
        rectangle(svg, (x, y + CELL.1 - height), (width, height), fill);
        return end;
    }
    if is_reversed {
        rectangle(svg, (x, y), (length, CELL.1), fill);
    }
    let fill = if is_reversed { BACKGROUND } else { fill };
    let weight =
        if first.modifier.contains(Modifier::BOLD) { r#" font-weight="bold""# } else { "" };
    let baseline = y + 13.5;
    let text = escaped(text);
    // Each run is as wide as its cells, whatever the font.
    let _ = writeln!(
        svg,
        r#"<text x="{x:.1}" y="{baseline:.1}" textLength="{length:.1}" lengthAdjust="spacingAndGlyphs" fill="{fill}"{weight}{faint}>{text}</text>"#
    );
    end
}

fn rectangle(svg: &mut String, (x, y): (f64, f64), (width, height): (f64, f64), fill: &str) {
    let _ = writeln!(
        svg,
        r#"<rect x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}" fill="{fill}"/>"#
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The terminal's colours, as the picture has them.
fn colour(colour: Color) -> &'static str {
    match colour {
        Color::Green => "#7ec97e",
        Color::Red => "#f0716c",
        Color::Yellow => "#e5c07b",
        Color::Cyan => "#56c8d8",
        Color::Blue => "#6fa8ff",
        Color::Magenta => "#c68af0",
        Color::Gray => "#9aa0ab",
        _ => TEXT,
    }
}
