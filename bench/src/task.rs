//! What a record says of itself, and what handlers do with it: the same in every engine, in Rust and in Java (`jvm/Task.java`).
//!
//! A value begins with the record's number. What becomes of it follows from that number and the turn's flags alone.

use std::time::Duration;

use clap::Args;

/// The bytes at the beginning of a value that are the record's number, the highest first.
const NUMBER: usize = 8;

/// What handlers do.
#[derive(Args, Clone, Debug, PartialEq, Eq)]
pub(crate) struct Task {
    /// How many of a hundred records fail their first run.
    #[arg(long, default_value_t = 0, hide = true)]
    pub(crate) percent: u64,
    /// How long a record that failed waits, at least.
    #[arg(long, default_value_t = 1000, hide = true)]
    pub(crate) delay: u64,
    /// How long it waits at most; each has its own delay in between.
    #[arg(long, default_value_t = 1000, hide = true)]
    pub(crate) delay_max: u64,
    /// Whether what fails goes on failing.
    #[arg(long, action = clap::ArgAction::Set, default_value_t = false, hide = true)]
    pub(crate) hopeless: bool,
    /// How many milliseconds a run takes.
    #[arg(long, default_value_t = 0, hide = true)]
    pub(crate) takes: u64,
    /// The record whose run never ends.
    #[arg(long, hide = true)]
    pub(crate) stuck: Option<u64>,
}

/// # Defaults
///
/// Nothing fails, and what would fail would wait for a second.
impl Default for Task {
    fn default() -> Self {
        let (percent, hopeless, takes, stuck) = (0, false, 0, None);
        Self { percent, delay: 1000, delay_max: 1000, hopeless, takes, stuck }
    }
}

impl Task {
    pub(crate) fn fails(&self, number: u64, attempt: u32) -> bool {
        (attempt == 0 || self.hopeless) && self.percent > 0 && mix(number) % 100 < self.percent
    }

    pub(crate) fn delay(&self, number: u64) -> Duration {
        let range = self.delay_max.saturating_sub(self.delay) + 1;
        Duration::from_millis(self.delay + mix(number ^ 0x5555_5555) % range)
    }

    /// Whether each record has a delay of its own.
    pub(crate) fn is_mixed(&self) -> bool {
        self.delay_max > self.delay
    }

    /// Whether nothing but this run is to come.
    pub(crate) fn is_end(&self, number: u64, attempt: u32) -> bool {
        attempt > 0 || !self.fails(number, attempt)
    }
}

/// Spreads numbers evenly.
fn mix(number: u64) -> u64 {
    number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 33
}

/// A value of this size, at least as long as its number.
pub(crate) fn value(number: u64, size: usize, into: &mut Vec<u8>) {
    into.clear();
    into.extend_from_slice(&number.to_be_bytes());
    into.resize(size.max(NUMBER), b'x');
}

/// The number of the record with this value.
pub(crate) fn number(value: Option<&[u8]>) -> Option<u64> {
    let bytes = value?.first_chunk::<NUMBER>()?;
    Some(u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_records_fails_once() {
        let task = Task { percent: 10, ..Task::default() };
        let failing = (0..100_000).filter(|it| task.fails(*it, 0)).count();
        assert!((9_500..10_500).contains(&failing), "{failing}");
        assert!((0..1000).all(|it| !task.fails(it, 1)));
    }

    #[test]
    fn delays_are_spread_between_their_bounds() {
        let task = Task { delay: 1000, delay_max: 30_000, ..Task::default() };
        let delays: Vec<_> = (0..10_000).map(|it| task.delay(it).as_millis()).collect();
        assert!(delays.iter().all(|it| (1000..=30_000).contains(it)));
        let mean = delays.iter().sum::<u128>() / 10_000;
        assert!((14_500..16_500).contains(&mean), "{mean}");
    }

    #[test]
    fn a_value_carries_its_number() {
        let mut bytes = Vec::new();
        value(77, 100, &mut bytes);
        assert_eq!((bytes.len(), number(Some(&bytes))), (100, Some(77)));
        assert_eq!(number(Some(b"short")), None);
    }
}
