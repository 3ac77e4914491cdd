//! Chance, from a seed.

/// SplitMix64: small, and the same everywhere.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From `low` up to, but not including, `high`.
    pub fn range(&mut self, low: i64, high: i64) -> i64 {
        low.saturating_add_unsigned(self.next() % (high - low).max(1).unsigned_abs())
    }

    /// An index below `length`.
    pub fn below(&mut self, length: usize) -> usize {
        let length = u64::try_from(length.max(1)).unwrap_or(u64::MAX);
        usize::try_from(self.next() % length).unwrap_or(0)
    }

    /// A small number from `low` up to, but not including, `high`.
    pub fn small(&mut self, low: u32, high: u32) -> u32 {
        u32::try_from(self.range(low.into(), high.into())).unwrap_or(low)
    }

    /// Once in `times`.
    pub fn one_in(&mut self, times: u64) -> bool {
        self.next().is_multiple_of(times.max(1))
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }
}
