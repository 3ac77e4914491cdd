//! Points in time and lengths of time, in whole milliseconds.
//!
//! Kafka counts in milliseconds, and so does every due time that Redrive writes. The clock itself
//! is never asked here: whoever calls core brings the time along.

use std::fmt;
use std::time::Duration;

/// The longest delay there is: 1,000 years. Longer ones are cut to it, so that a due time that
/// Redrive writes can always be read again.
pub const MAX_DELAY: Duration = Duration::from_millis(MAX_DELAY_MS);
const MAX_DELAY_MS: u64 = 1_000 * 36_525 * 864_000;

/// The latest time that counts as readable: the last millisecond of the year 9999.
pub const MAX_TIMESTAMP: Timestamp = Timestamp(253_402_300_799_999);

/// A point in time, in milliseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The point that is `millis` milliseconds after the Unix epoch.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the Unix epoch.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// The whole second at or after this point.
    pub const fn as_secs_rounded_up(self) -> i64 {
        let secs = self.0.div_euclid(1000);
        if self.0.rem_euclid(1000) == 0 { secs } else { secs + 1 }
    }

    /// This point moved on by `delay`, rounded up to a millisecond and never past
    /// [`MAX_TIMESTAMP`].
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self(self.0.saturating_add_unsigned(millis(delay))).min(MAX_TIMESTAMP)
    }

    /// This point moved back by `delay`.
    #[must_use]
    pub fn before(self, delay: Duration) -> Self {
        Self(self.0.saturating_sub_unsigned(millis(delay)))
    }

    /// The time from `earlier` to here, zero where the clock went backwards.
    pub fn since(self, earlier: Timestamp) -> Duration {
        let gap = i128::from(self.0) - i128::from(earlier.0);
        Duration::from_millis(u64::try_from(gap).unwrap_or(0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// `duration` in whole milliseconds, rounded up and cut to [`MAX_DELAY`].
fn millis(duration: Duration) -> u64 {
    // In 64 bits: this is on the way of every record.
    let fraction = u64::from(duration.subsec_nanos().div_ceil(1_000_000));
    duration.as_secs().saturating_mul(1000).saturating_add(fraction).min(MAX_DELAY_MS)
}

/// `duration` rounded up to whole microseconds and cut to [`MAX_DELAY`].
pub(crate) fn bounded(duration: Duration) -> Duration {
    let micros = duration.min(MAX_DELAY).as_nanos().div_ceil(1000);
    Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX)).min(MAX_DELAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_on_rounds_up_and_saturates() {
        let start = Timestamp::from_millis(10);
        assert_eq!(start.after(Duration::from_micros(1)).as_millis(), 11);
        assert_eq!(start.after(Duration::MAX).as_millis(), 10 + 31_557_600_000_000);
        assert_eq!(Timestamp::from_millis(i64::MAX).after(MAX_DELAY), MAX_TIMESTAMP);
    }

    #[test]
    fn a_clock_that_went_back_gives_no_time() {
        let late = Timestamp::from_millis(i64::MAX);
        let early = Timestamp::from_millis(i64::MIN);
        assert_eq!(early.since(late), Duration::ZERO);
        assert_eq!(late.since(early), Duration::from_millis(u64::MAX));
    }

    #[test]
    fn seconds_are_rounded_up() {
        for (millis, secs) in [(0, 0), (1, 1), (1000, 1), (1001, 2), (-1, 0)] {
            assert_eq!(Timestamp::from_millis(millis).as_secs_rounded_up(), secs);
        }
    }
}
