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

/// A hash that is the same everywhere, of eight bytes at a time. No two texts that differ in one word only have the same.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| {
        let mixed = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        mixed ^ (mixed >> 32)
    };
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain([&last]).map(|it| u64::from_le_bytes(*it));
    let hash = words.fold(bytes.len() as u64, mix);
    mix(mix(hash, 0), 0)
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

    /// What is in a range of a set, counted from `base`, in the shortest of the forms there are. Returns false if that
    /// takes more than `max_bytes`.
    pub(super) fn runs(
        &mut self,
        base: i64,
        runs: &Runs,
        range: Range<i64>,
        max_bytes: usize,
    ) -> bool {
        let Some(range) = runs.bounds(range) else {
            self.byte(EMPTY);
            return true;
        };
        let words = (range.start >> 6)..((range.end - 1) >> 6) + 1;
        let bitmap_bytes = words.end.abs_diff(words.start).saturating_mul(8);
        let bitmap_bytes = usize::try_from(bitmap_bytes).unwrap_or(usize::MAX);
        if let Some((count, list)) = list(base, runs, &range, bitmap_bytes.min(max_bytes)) {
            self.byte(LIST);
            self.number(count);
            self.bytes(&list);
        } else if bitmap_bytes <= max_bytes {
            self.byte(BITMAP);
            self.number(words.start.abs_diff(base >> 6));
            self.number(words.end.abs_diff(words.start));
            for word in runs.words(range) {
                self.bytes(&word.to_le_bytes());
            }
        } else {
            return false;
        }
        true
    }
}

/// How many runs there are, and where each begins behind the last and how long it is, in at most `max_bytes`.
fn list(base: i64, runs: &Runs, range: &Range<i64>, max_bytes: usize) -> Option<(u64, Vec<u8>)> {
    // Each takes two bytes at least. To count them is quick.
    let mut most = max_bytes / 2;
    for (_, count) in runs.starts(range.clone()) {
        most = most.checked_sub(count)?;
    }
    let mut list = Writer::default();
    let (mut count, mut last) = (0, base);
    for run in runs.within(range.clone()) {
        list.distance(last, run.start);
        list.distance(run.start, run.end);
        last = run.end;
        count += 1;
        if list.0.len() > max_bytes {
            return None;
        }
    }
    Some((count, list.0))
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

    /// Reads offsets of a range, and takes them into a set, or out of it where they are in it.
    pub(super) fn runs(&mut self, range: Range<i64>, runs: &mut Runs) -> Option<()> {
        match self.byte()? {
            EMPTY => {}
            LIST => {
                let mut last = range.start;
                for index in 0..self.number()? {
                    let start = self.distance(last)?;
                    let end = self.distance(start)?;
                    // Runs have a length, and do not touch the one before.
                    if end == start || end > range.end || (index > 0 && start == last) {
                        return None;
                    }
                    runs.toggle_range(start..end);
                    last = end;
                }
            }
            BITMAP => {
                let first = (range.start >> 6).checked_add_unsigned(self.number()?)?;
                for index in 0..self.number()? {
                    let at = first.checked_add_unsigned(index)?;
                    let word = u64::from_le_bytes(self.bytes(8)?.try_into().ok()?);
                    let start = at.checked_mul(64)?;
                    let end = start.checked_add(64 - i64::from(word.leading_zeros()))?;
                    if word != 0 && end > range.end {
                        return None;
                    }
                    runs.toggle_word(at, word);
                }
            }
            _ => return None,
        }
        Some(())
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
        fn sets_come_back(
            offsets in proptest::collection::btree_set(0..3000i64, 0..800),
            base in 0..200i64,
            end in 200..3000i64,
        ) {
            let mut runs: Runs = offsets.into_iter().collect();
            let mut writer = Writer::default();
            prop_assert!(writer.runs(base, &runs, base..end, usize::MAX));
            let (mut reader, mut read) = (Reader(&writer.0), Runs::new());
            prop_assert_eq!(reader.runs(base..end, &mut read), Some(()));
            prop_assert!(reader.0.is_empty());
            runs.remove_range(i64::MIN..base);
            runs.remove_range(end..i64::MAX);
            prop_assert_eq!(&read, &runs);
            // Once more, and it is gone.
            prop_assert_eq!(Reader(&writer.0).runs(base..end, &mut read), Some(()));
            prop_assert!(read.is_empty());
            prop_assert!(!Writer::default().runs(base, &runs, base..end, 0) || runs.is_empty());
        }

        #[test]
        fn any_bytes_are_read_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60), base in any::<i64>()) {
            let _ = Reader(&bytes).runs(base..i64::MAX, &mut Runs::new());
        }
    }
}
