//! Headers of an outgoing record, with few allocations.

use std::fmt::Display;
use std::io::Write;

use super::Header;
use crate::text::cut;

/// The headers of an outgoing record: foreign ones are borrowed, written ones share one buffer.
#[derive(Clone, Debug, Default)]
pub struct HeaderBlock<'a> {
    slots: Vec<Slot<'a>>,
    buffer: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum Slot<'a> {
    Kept(Header<'a>),
    /// Starts in the buffer where the written one before it ended.
    Written {
        name: &'static str,
        end: usize,
    },
}

impl<'a> HeaderBlock<'a> {
    pub(super) fn with_room_for(headers: usize) -> Self {
        Self { slots: Vec::with_capacity(headers), buffer: Vec::with_capacity(512) }
    }

    /// The headers in order.
    pub fn iter(&self) -> impl Iterator<Item = Header<'_>> {
        let mut start = 0;
        self.slots.iter().map(move |slot| match *slot {
            Slot::Kept(header) => header,
            Slot::Written { name, end } => {
                let value = self.buffer.get(start..end);
                start = end;
                Header { name, value }
            }
        })
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(super) fn keep(&mut self, header: Header<'a>) {
        self.slots.push(Slot::Kept(header));
    }

    pub(super) fn bytes(&mut self, name: &'static str, value: &[u8]) {
        self.buffer.extend_from_slice(value);
        self.close(name);
    }

    pub(super) fn text(&mut self, name: &'static str, value: &str) {
        self.bytes(name, value.as_bytes());
    }

    /// Writes `value` if there is one, at most `max` bytes of it.
    pub(super) fn text_cut(&mut self, name: &'static str, value: Option<&str>, max: usize) {
        if let Some(value) = value {
            self.text(name, cut(value, max));
        }
    }

    pub(super) fn display(&mut self, name: &'static str, value: impl Display) {
        // Writing to a Vec does not fail.
        let _ = write!(self.buffer, "{value}");
        self.close(name);
    }

    fn close(&mut self, name: &'static str) {
        self.slots.push(Slot::Written { name, end: self.buffer.len() });
    }
}
