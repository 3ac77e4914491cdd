//! Writes into a part of a buffer, and never beside it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};

use super::DIM;

/// Eighths of a block, from the bottom.
const RISING: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];
/// Eighths of a block, from the left.
const GROWING: [&str; 9] = [" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉", "█"];

pub(crate) struct Pen<'a> {
    area: Rect,
    buffer: &'a mut Buffer,
}

impl<'a> Pen<'a> {
    pub(crate) fn new(area: Rect, buffer: &'a mut Buffer) -> Self {
        Self { area: area.intersection(buffer.area), buffer }
    }

    pub(crate) fn width(&self) -> u16 {
        self.area.width
    }

    pub(crate) fn height(&self) -> u16 {
        self.area.height
    }

    /// Writes what has room. Gives the column behind it.
    pub(crate) fn text(&mut self, x: u16, y: u16, text: &str, style: Style) -> u16 {
        if x >= self.area.width || y >= self.area.height {
            return x;
        }
        let room = usize::from(self.area.width - x);
        let at = (self.area.x + x, self.area.y + y);
        let (end, _) = self.buffer.set_stringn(at.0, at.1, text, room, style);
        end - self.area.x
    }

    /// Writes text that ends so many columns before the right edge.
    pub(crate) fn right(&mut self, margin: u16, y: u16, text: &str, style: Style) {
        let width = u16::try_from(text.chars().count()).unwrap_or(u16::MAX);
        let x = self.area.width.saturating_sub(margin.saturating_add(width));
        self.text(x, y, text, style);
    }

    /// A bar that is filled up to a share, on a line. Gives the column behind it.
    pub(crate) fn bar(&mut self, x: u16, y: u16, width: u16, share: f64, style: Style) -> u16 {
        (0..width).for_each(|it| _ = self.text(x + it, y, "─", DIM));
        self.block(x, y, width, share, bright(style));
        x + width
    }

    /// A block that is so wide as this share of the width, and to be seen at all.
    pub(crate) fn block(&mut self, x: u16, y: u16, width: u16, share: f64, style: Style) {
        let filled = eighths(share.clamp(0.0, 1.0) * f64::from(width) * 8.0);
        let filled = if share > 0.0 { filled.max(1) } else { 0 };
        for column in 0..width {
            let part = filled.saturating_sub(usize::from(column) * 8).min(8);
            if let (Some(block), true) = (GROWING.get(part), part > 0) {
                self.text(x + column, y, block, style);
            }
        }
    }

    /// A column of a chart that rises from `y` upwards: so many eighths of a cell, within so many cells.
    pub(crate) fn rise(&mut self, x: u16, y: u16, height: u16, level: usize, style: Style) {
        for row in 0..height {
            let part = level.saturating_sub(usize::from(row) * 8).min(8);
            if let (Some(block), true, Some(y)) = (RISING.get(part), part > 0, y.checked_sub(row)) {
                self.text(x, y, block, style);
            }
        }
    }

    /// A way to the right, with dots on it that have come so far.
    pub(crate) fn way(
        &mut self,
        x: u16,
        y: u16,
        width: u16,
        dots: impl Iterator<Item = f64>,
        style: Style,
    ) -> u16 {
        for column in 0..width {
            let is_end = column + 1 == width;
            self.text(x + column, y, if is_end { "▶" } else { "─" }, DIM);
        }
        for share in dots {
            let step = eighths(share * f64::from(width.saturating_sub(1)));
            let step = u16::try_from(step).unwrap_or(u16::MAX).min(width.saturating_sub(2));
            self.text(x + step, y, "●", bright(style));
        }
        x + width
    }
}

/// Over what was dim before.
fn bright(style: Style) -> Style {
    style.remove_modifier(Modifier::DIM)
}

/// Rounded down.
fn eighths(number: f64) -> usize {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a terminal's width"
    )]
    let whole = number.max(0.0) as usize;
    whole
}
