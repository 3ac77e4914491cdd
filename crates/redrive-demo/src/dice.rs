//! Chance that a seed repeats: SplitMix64.

/// Draws numbers from a seed.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to a number, without it.
    pub(crate) fn below(&mut self, end: u32) -> u32 {
        let drawn = (self.next() >> 32) * u64::from(end);
        u32::try_from(drawn >> 32).unwrap_or(0)
    }

    /// Whether something happens that does so with this probability.
    pub(crate) fn falls(&mut self, probability: f64) -> bool {
        f64::from(self.below(1_000_000)) < probability * 1e6
    }

    /// One of these.
    pub(crate) fn pick<T: Copy>(&mut self, all: &[T; 16]) -> T {
        all[self.below(16) as usize & 15]
    }
}
