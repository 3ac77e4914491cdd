//! The last few events in words, the newest first.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Style};

use super::panels::frame;
use super::pen::Pen;
use super::{BAD, DIM, GONE, GOOD, tier};
use crate::board::{Board, News, Tone};

/// Draws them in a frame.
pub(crate) fn draw(board: &Board, area: Rect, buffer: &mut Buffer) {
    let inner = frame("what happens, the newest first", area, buffer);
    lines(board, &mut Pen::new(inner, buffer));
}

/// Draws as many as there is room for.
pub(crate) fn lines(board: &Board, pen: &mut Pen<'_>) {
    for (y, news) in (0..pen.height()).zip(board.news()) {
        line(news, y, pen);
    }
}

fn line(news: &News, y: u16, pen: &mut Pen<'_>) {
    let x = pen.text(1, y, &format!("{:>5.1} ", news.at as f64 / 1000.0), DIM);
    let x = pen.text(x, y, "● ", style(news.tone));
    let x = pen.text(x, y, &news.who, Style::new());
    pen.text(x + 1, y, &news.what, style(news.tone));
}

fn style(tone: Tone) -> Style {
    match tone {
        Tone::Good => GOOD,
        Tone::Retry(index) => tier(index),
        Tone::Bad => BAD,
        Tone::Dropped => GONE,
        Tone::Service => Style::new().fg(Color::Yellow),
    }
}
