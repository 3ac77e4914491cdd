//! Bytes as text, and numbers as bytes.
//!
//! Commit metadata is a string. Seven bits a character hold on every broker, whether it counts characters or
//! bytes.

use std::ops::Range;

use super::runs::Runs;

/// Seven bits a character.
pub(super) fn to_text(bytes: &[u8]) -> String {
    let mut text = String::with_capacity((bytes.len() * 8).div_ceil(7));
    let (mut bits, mut held) = (0u32, 0u32);
    for byte in bytes {
        bits = (bits << 8) | u32::from(*byte);
        held += 8;
        while held >= 7 {
            held -= 7;
            push_seven(&mut text, bits >> held);
        }
        bits &= (1 << held) - 1;
    }
    if held > 0 {
        push_seven(&mut text, bits << (7 - held));
    }
    text
}

fn push_seven(text: &mut String, bits: u32) {
    if let Ok(byte) = u8::try_from(bits & 0x7F) {
        text.push(char::from(byte));
    }
}

/// How many bytes fit in so many characters.
pub(super) const fn bytes_in(characters: usize) -> usize {
    characters * 7 / 8
}

pub(super) fn from_text(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(bytes_in(text.len()));
    let (mut bits, mut held) = (0u32, 0u32);
    for byte in text.bytes() {
        if byte > 0x7F {
            return None;
        }
        bits = (bits << 7) | u32::from(byte);
        held += 7;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held).ok()?);
            bits &= (1 << held) - 1;
        }
    }
    // What is left over is padding.
    (bits == 0 && held < 7).then_some(bytes)
}

/// A hash that is the same everywhere: FNV-1a.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    })
}

/// Writes numbers, small ones in few bytes.
#[derive(Default)]
pub(super) struct Writer(pub(super) Vec<u8>);

impl Writer {
    pub(super) fn byte(&mut self, byte: u8) {
        self.0.push(byte);
    }

    pub(super) fn number(&mut self, mut number: u64) {
        loop {
            let [low, ..] = number.to_le_bytes();
            number >>= 7;
            if number == 0 {
                self.0.push(low & 0x7F);
                return;
            }
            self.0.push(low | 0x80);
        }
    }

    /// The distance from `base`, which is not above `offset`.
    pub(super) fn distance(&mut self, base: i64, offset: i64) {
        self.number(offset.abs_diff(base));
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    /// A set of offsets from `base` on, in the shortest of the forms there are. With more runs than
    /// `max_bytes` could hold it is nothing.
    pub(super) fn runs(
        &mut self,
        base: i64,
        runs: impl Iterator<Item = Range<i64>>,
        max_bytes: usize,
    ) -> bool {
        let mut list = Writer::default();
        let mut ranges: Vec<Range<i64>> = Vec::new();
        let mut last = base;
        for run in runs {
            list.distance(last, run.start);
            list.distance(run.start, run.end);
            last = run.end;
            ranges.push(run);
            // A bitmap holds at most four runs a byte.
            if ranges.len() > max_bytes * 4 {
                return false;
            }
        }
        let (Some(first), Some(end)) =
            (ranges.first().map(|it| it.start), ranges.last().map(|it| it.end))
        else {
            self.byte(EMPTY);
            return true;
        };
        let bitmap_bytes = usize::try_from(end.abs_diff(first).div_ceil(8)).unwrap_or(usize::MAX);
        let as_bitmap = bitmap_bytes < list.0.len();
        if (if as_bitmap { bitmap_bytes } else { list.0.len() }) > max_bytes {
            return false;
        }
        if as_bitmap {
            self.byte(BITMAP);
            self.distance(base, first);
            self.number(bitmap_bytes as u64);
            let mut bitmap = vec![0u8; bitmap_bytes];
            for offset in ranges.into_iter().flatten() {
                let bit = offset.abs_diff(first);
                if let Some(byte) = usize::try_from(bit / 8).ok().and_then(|at| bitmap.get_mut(at))
                {
                    *byte |= 1 << (bit % 8);
                }
            }
            self.bytes(&bitmap);
        } else {
            self.byte(LIST);
            self.number(ranges.len() as u64);
            self.bytes(&list.0);
        }
        true
    }
}

const EMPTY: u8 = 0;
const LIST: u8 = 1;
const BITMAP: u8 = 2;

/// Reads what [`Writer`] wrote, and nothing that it could not have written.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    pub(super) fn number(&mut self) -> Option<u64> {
        let mut number = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7F);
            if (part << shift) >> shift != part {
                return None;
            }
            number |= part << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }

    pub(super) fn distance(&mut self, base: i64) -> Option<i64> {
        base.checked_add_unsigned(self.number()?)
    }

    pub(super) fn bytes(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    pub(super) fn runs(&mut self, base: i64) -> Option<Runs> {
        let mut runs = Runs::new();
        match self.byte()? {
            EMPTY => {}
            LIST => {
                let mut last = base;
                for index in 0..self.number()? {
                    let start = self.distance(last)?;
                    let end = self.distance(start)?;
                    // Runs have a length, and do not touch the one before.
                    if end == start || (index > 0 && start == last) {
                        return None;
                    }
                    runs.insert_range(start..end);
                    last = end;
                }
            }
            BITMAP => {
                let first = self.distance(base)?;
                let length = usize::try_from(self.number()?).ok()?;
                let bits = self.bytes(length)?.iter().enumerate().flat_map(|(at, byte)| {
                    (0..8)
                        .filter(move |bit| byte & (1 << bit) != 0)
                        .map(move |bit| at as u64 * 8 + bit)
                });
                for bit in bits {
                    runs.insert(first.checked_add_unsigned(bit).filter(|it| *it < i64::MAX)?);
                }
            }
            _ => return None,
        }
        Some(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bytes_come_back_from_text(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let text = to_text(&bytes);
            prop_assert!(text.is_ascii());
            prop_assert_eq!(text.len(), (bytes.len() * 8).div_ceil(7));
            prop_assert_eq!(from_text(&text), Some(bytes));
        }

        #[test]
        fn any_text_is_read_without_panic(text in any::<String>()) {
            let _ = from_text(&text);
        }

        #[test]
        fn numbers_come_back(number in any::<u64>()) {
            let mut writer = Writer::default();
            writer.number(number);
            prop_assert_eq!(Reader(&writer.0).number(), Some(number));
        }

        #[test]
        fn sets_come_back(offsets in proptest::collection::btree_set(0..5000i64, 0..400), base in 0..1i64) {
            let runs: Runs = offsets.into_iter().collect();
            let mut writer = Writer::default();
            prop_assert!(writer.runs(base, runs.iter(), 10_000));
            let mut reader = Reader(&writer.0);
            prop_assert_eq!(reader.runs(base), Some(runs));
            prop_assert!(reader.0.is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), base in any::<i64>()) {
            let _ = Reader(&bytes).runs(base);
        }
    }
}
