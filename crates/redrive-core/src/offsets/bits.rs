//! A chunk of 256 offsets, a bit each.

use std::ops::Range;

/// How many offsets a chunk has, as a shift.
pub(super) const CHUNK_SHIFT: u32 = 8;
const CHUNK: u32 = 1 << CHUNK_SHIFT;
pub(super) const WORDS: usize = CHUNK as usize / 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bits([u64; WORDS]);

impl Bits {
    pub(super) const NONE: Self = Self([0; WORDS]);
    pub(super) const ALL: Self = Self([u64::MAX; WORDS]);

    /// Those from `first` to `last`.
    pub(super) fn between(first: u8, last: u8) -> Self {
        let mut bits = Self::NONE;
        for (at, word) in (0..).step_by(64).zip(&mut bits.0) {
            let (first, last) = (u32::from(first).max(at), u32::from(last).min(at + 63));
            if first <= last {
                *word = u64::MAX >> (63 - (last - first)) << (first - at);
            }
        }
        bits
    }

    pub(super) fn has(&self, bit: u8) -> bool {
        self.0[usize::from(bit / 64)] >> (bit % 64) & 1 == 1
    }

    /// Adds one; false if it was there.
    pub(super) fn set(&mut self, bit: u8) -> bool {
        let (word, mask) = (&mut self.0[usize::from(bit / 64)], 1 << (bit % 64));
        let is_new = *word & mask == 0;
        *word |= mask;
        is_new
    }

    /// Takes one out; false if it was not there.
    pub(super) fn clear(&mut self, bit: u8) -> bool {
        self.clear_and_look(bit).0
    }

    /// Takes one out, and looks whether any is left. All words are looked at only where that one's is empty: to read them
    /// together right after one was written makes the processor wait.
    pub(super) fn clear_and_look(&mut self, bit: u8) -> (bool, bool) {
        let (word, mask) = (&mut self.0[usize::from(bit / 64)], 1 << (bit % 64));
        let (was_there, left) = (*word & mask != 0, *word & !mask);
        *word = left;
        (was_there, left == 0 && self.is_empty())
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] | other.0[at]))
    }

    pub(super) fn without(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] & !other.0[at]))
    }

    pub(super) fn xor(self, other: Self) -> Self {
        Self(std::array::from_fn(|at| self.0[at] ^ other.0[at]))
    }

    /// One of its words of 64.
    pub(super) fn of_word(at: usize, word: u64) -> Self {
        Self(std::array::from_fn(|it| if it == at { word } else { 0 }))
    }

    pub(super) fn words(self) -> [u64; WORDS] {
        self.0
    }

    /// How many runs begin here, if the offset before it is in the set or is not.
    pub(super) fn starts(self, is_joined: bool) -> usize {
        let (mut count, mut before) = (0, u64::from(is_joined));
        for word in self.0 {
            count += (word & !(word << 1 | before)).count_ones();
            before = word >> 63;
        }
        count as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    pub(super) fn is_full(&self) -> bool {
        *self == Self::ALL
    }

    /// The first run that begins at or after `from`, or goes on there.
    pub(super) fn run_from(&self, from: u32) -> Option<Range<u32>> {
        let start = self.next(from, 0);
        (start < CHUNK).then(|| start..self.next(start, u64::MAX))
    }

    /// The next bit that is set, or with all bits flipped, the next that is not.
    fn next(&self, from: u32, flipped: u64) -> u32 {
        for (at, word) in (0..CHUNK).step_by(64).zip(self.0).skip((from / 64) as usize) {
            let left = (word ^ flipped) & (u64::MAX << from.saturating_sub(at));
            if left != 0 {
                return at + left.trailing_zeros();
            }
        }
        CHUNK
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_range_has_what_is_between_its_ends(first: u8, last: u8, bit: u8) {
            prop_assert_eq!(Bits::between(first, last).has(bit), (first..=last).contains(&bit));
        }

        #[test]
        fn runs_cover_what_is_set(set in proptest::collection::btree_set(any::<u8>(), 0..256)) {
            let mut bits = Bits::NONE;
            for bit in &set {
                prop_assert!(bits.set(*bit) && !bits.set(*bit));
            }
            let (mut found, mut from) = (Vec::new(), 0);
            while let Some(run) = bits.run_from(from) {
                from = run.end;
                found.extend(run);
            }
            prop_assert_eq!(found, set.iter().map(|it| u32::from(*it)).collect::<Vec<_>>());
        }
    }
}
