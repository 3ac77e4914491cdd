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

    pub(super) fn bytes(&mut self, name: impl Into<&'static str>, value: &[u8]) {
        self.buffer.extend_from_slice(value);
        self.close(name);
    }

    pub(super) fn text(&mut self, name: impl Into<&'static str>, value: &str) {
        self.bytes(name, value.as_bytes());
    }

    /// Writes `value` if there is one, at most `max` bytes of it.
    pub(super) fn text_cut(
        &mut self,
        name: impl Into<&'static str>,
        value: Option<&str>,
        max: usize,
    ) {
        if let Some(value) = value {
            self.text(name, cut(value, max));
        }
    }

    pub(super) fn display(&mut self, name: impl Into<&'static str>, value: impl Display) {
        // Writing to a Vec does not fail.
        let _ = write!(self.buffer, "{value}");
        self.close(name);
    }

    /// The same for a whole number, of which a hop has a dozen: formatting takes three times as long.
    pub(super) fn number(&mut self, name: impl Into<&'static str>, value: impl Into<i128>) {
        let value = value.into();
        let Ok(mut rest) = u64::try_from(value) else {
            return self.display(name, value);
        };
        let mut digits = [0; 20];
        let mut begin = digits.len();
        loop {
            begin -= 1;
            // A digit is less than ten.
            digits[begin] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        self.bytes(name, &digits[begin..]);
    }

    fn close(&mut self, name: impl Into<&'static str>) {
        let name = name.into();
        self.slots.push(Slot::Written { name, end: self.buffer.len() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_they_are_formatted() {
        let numbers = [
            0,
            1,
            9,
            10,
            99,
            100,
            1_700_000_000_123,
            i128::from(u64::MAX),
            -1,
            i128::from(i64::MIN),
        ];
        let mut block = HeaderBlock::with_room_for(numbers.len());
        numbers.iter().for_each(|it| block.number("n", *it));
        let texts = numbers.map(|it| it.to_string().into_bytes());
        assert!(block.iter().map(|it| it.value.unwrap()).eq(texts.iter().map(Vec::as_slice)));
    }
}
