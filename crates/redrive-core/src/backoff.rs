//! How long to wait before a retry.
//!
//! A backoff is a pure function: the delay before a retry follows from how many retries went
//! before it and from a seed, with no history kept anywhere. So a record that comes back after a
//! restart, on another machine, waits just as it would have waited here.
//!
//! Delays go from zero to [`MAX_DELAY`] in whole microseconds; no attempt number and no setting
//! overflows. A due time that follows from one is rounded up to a millisecond.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::failure::Failure;
use crate::time::{MAX_DELAY, Timestamp, bounded};

/// Where in its random range a delay is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draw {
    /// At random, decided by the seed and the attempt alone.
    Seed(u64),
    /// The shortest delay that could be drawn.
    Lowest,
    /// The longest delay that could be drawn.
    Highest,
}

impl Draw {
    /// A number from 0 to 1 for the retry after `retried` earlier ones.
    fn unit(self, retried: u32) -> f64 {
        match self {
            Draw::Lowest => 0.0,
            Draw::Highest => 1.0,
            Draw::Seed(seed) => {
                let bits = mix(seed ^ mix(u64::from(retried)));
                // The 53 bits that a double holds exactly.
                (bits >> 11) as f64 / (1u64 << 53) as f64
            }
        }
    }
}

/// The finaliser of SplitMix64: every input bit moves about half of the output bits.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// How long to wait before each retry.
///
/// ```
/// use std::time::Duration;
/// use redrive_core::{Backoff, Draw, Exponential};
///
/// let backoff = Backoff::from(Exponential::new(Duration::from_secs(5)).with_jitter(0.1));
/// assert_eq!(backoff.nominal(0), Duration::from_secs(5));
/// assert_eq!(backoff.nominal(1), Duration::from_secs(10));
/// assert_eq!(backoff.delay(1, Draw::Highest), Duration::from_secs(11));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Backoff {
    /// The same delay each time.
    Fixed(Duration),
    /// `initial × n`.
    Linear(Linear),
    /// `base × multiplier^(n−1)`, then jitter, then the maximum, then the minimum.
    Exponential(Exponential),
    /// `min(initial × 2^(n−1) + random(0, initial), max)`.
    ExponentialRandom(ExponentialRandom),
    /// Anything between two bounds.
    Random(Random),
    /// One delay after the other; the last one repeats. An empty list waits not at all.
    List(Arc<[Duration]>),
    /// The user's own function.
    Custom(Custom),
}

impl Backoff {
    /// The delay before a retry that `retried` others went before: 0 for the first one.
    ///
    /// A [`Custom`] backoff sees an empty failure at the Unix epoch here; decisions give it the
    /// real ones.
    pub fn delay(&self, retried: u32, draw: Draw) -> Duration {
        self.delay_of(retried, draw, &Failure::default(), Timestamp::default())
    }

    pub(crate) fn delay_of(
        &self,
        retried: u32,
        draw: Draw,
        failure: &Failure,
        now: Timestamp,
    ) -> Duration {
        match self {
            Backoff::Exponential(it) => it.delay(retried, it.jitter_factor(retried, draw)),
            Backoff::ExponentialRandom(it) => {
                let random = to_f64(it.initial) * draw.unit(retried);
                from_f64(it.grown(retried) + random).min(bounded(it.max))
            }
            Backoff::Random(it) => {
                let (min, max) = (bounded(it.min), bounded(it.max));
                bounded(min + (max - min).mul_f64(draw.unit(retried))).min(max)
            }
            Backoff::Fixed(_) | Backoff::Linear(_) | Backoff::List(_) | Backoff::Custom(_) => {
                self.nominal_of(retried, failure, now)
            }
        }
    }

    /// The delay within its bounds, before jitter or randomness: what a topic is chosen by.
    /// Of [`Random`] it is the lower bound.
    pub fn nominal(&self, retried: u32) -> Duration {
        self.nominal_of(retried, &Failure::default(), Timestamp::default())
    }

    pub(crate) fn nominal_of(&self, retried: u32, failure: &Failure, now: Timestamp) -> Duration {
        match self {
            Backoff::Fixed(delay) => bounded(*delay),
            Backoff::Linear(it) => {
                from_f64(to_f64(it.initial) * (f64::from(retried) + 1.0)).min(bounded(it.max))
            }
            Backoff::Exponential(it) => it.delay(retried, 1.0),
            Backoff::ExponentialRandom(it) => from_f64(it.grown(retried)).min(bounded(it.max)),
            Backoff::Random(it) => bounded(it.min),
            Backoff::List(delays) => {
                let last = delays.len().saturating_sub(1);
                let index = usize::try_from(retried).unwrap_or(last).min(last);
                delays.get(index).copied().map_or(Duration::ZERO, bounded)
            }
            Backoff::Custom(Custom(function)) => bounded(function(retried, failure, now)),
        }
    }

    /// The least delay that was set, if one was.
    pub fn min(&self) -> Option<Duration> {
        match self {
            Backoff::Exponential(it) => it.min,
            Backoff::Random(it) => Some(it.min),
            _ => None,
        }
    }

    /// The greatest delay that was set, if one was.
    pub fn max(&self) -> Option<Duration> {
        match self {
            Backoff::Linear(it) => (it.max < MAX_DELAY).then_some(it.max),
            Backoff::Exponential(it) => it.max,
            Backoff::ExponentialRandom(it) => Some(it.max),
            Backoff::Random(it) => Some(it.max),
            _ => None,
        }
    }

    /// One delay after the other; the last one repeats.
    pub fn list(delays: impl Into<Arc<[Duration]>>) -> Self {
        Backoff::List(delays.into())
    }

    /// The user's own function of the retries so far, the failure and the time.
    pub fn custom(
        function: impl Fn(u32, &Failure, Timestamp) -> Duration + Send + Sync + 'static,
    ) -> Self {
        Backoff::Custom(Custom(Arc::new(function)))
    }
}

/// A delay that grows by the same amount each time: `initial × n`.
///
/// # Defaults
///
/// No maximum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    initial: Duration,
    max: Duration,
}

impl Linear {
    /// Starts at `initial`.
    pub const fn new(initial: Duration) -> Self {
        Self { initial, max: MAX_DELAY }
    }

    /// Never waits longer than `max`.
    #[must_use]
    pub const fn with_max(mut self, max: Duration) -> Self {
        self.max = max;
        self
    }
}

/// A delay that is multiplied each time: `base × multiplier^(n−1)`, then jitter, then the
/// maximum, then the minimum.
///
/// # Defaults
///
/// Multiplier 2, no jitter, no bounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exponential {
    base: Duration,
    multiplier: f64,
    jitter: f64,
    min: Option<Duration>,
    max: Option<Duration>,
}

impl Exponential {
    /// Starts at `base`.
    pub const fn new(base: Duration) -> Self {
        Self { base, multiplier: 2.0, jitter: 0.0, min: None, max: None }
    }

    /// Multiplies by this each time. What is not a number above 0 counts as 1.
    #[must_use]
    pub fn with_multiplier(mut self, multiplier: f64) -> Self {
        self.multiplier = if multiplier > 0.0 { multiplier } else { 1.0 };
        self
    }

    /// Spreads each delay by ± this share of it, from 0 to 1.
    #[must_use]
    pub fn with_jitter(mut self, share: f64) -> Self {
        self.jitter = if share > 0.0 { share.min(1.0) } else { 0.0 };
        self
    }

    /// Never waits less than `min`, whatever the maximum says.
    #[must_use]
    pub const fn with_min(mut self, min: Duration) -> Self {
        self.min = Some(min);
        self
    }

    /// Never waits longer than `max`.
    #[must_use]
    pub const fn with_max(mut self, max: Duration) -> Self {
        self.max = Some(max);
        self
    }

    fn jitter_factor(&self, retried: u32, draw: Draw) -> f64 {
        1.0 - self.jitter + 2.0 * self.jitter * draw.unit(retried)
    }

    fn delay(&self, retried: u32, jitter_factor: f64) -> Duration {
        let grown = to_f64(self.base) * self.multiplier.powf(f64::from(retried));
        let delay = from_f64(grown * jitter_factor);
        let delay = self.max.map_or(delay, |max| delay.min(bounded(max)));
        self.min.map_or(delay, |min| delay.max(bounded(min)))
    }
}

/// A delay that doubles each time, with up to one `initial` added at random:
/// `min(initial × 2^(n−1) + random(0, initial), max)`.
///
/// # Defaults
///
/// From 1 second to 5 minutes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExponentialRandom {
    initial: Duration,
    max: Duration,
}

impl ExponentialRandom {
    /// Starts at `initial`.
    pub const fn new(initial: Duration) -> Self {
        Self { initial, max: Duration::from_mins(5) }
    }

    /// Never waits longer than `max`.
    #[must_use]
    pub const fn with_max(mut self, max: Duration) -> Self {
        self.max = max;
        self
    }

    fn grown(&self, retried: u32) -> f64 {
        to_f64(self.initial) * 2f64.powf(f64::from(retried))
    }
}

impl Default for ExponentialRandom {
    fn default() -> Self {
        Self::new(Duration::from_secs(1))
    }
}

/// Any delay between two bounds, each as likely as the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Random {
    min: Duration,
    max: Duration,
}

impl Random {
    /// Between `min` and `max`. Bounds in the wrong order are put right.
    pub fn between(min: Duration, max: Duration) -> Self {
        Self { min: min.min(max), max: min.max(max) }
    }
}

/// The user's own function of the retries so far, the failure and the time.
#[derive(Clone)]
pub struct Custom(Arc<CustomFn>);

type CustomFn = dyn Fn(u32, &Failure, Timestamp) -> Duration + Send + Sync;

impl fmt::Debug for Custom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Custom(..)")
    }
}

impl From<Linear> for Backoff {
    fn from(it: Linear) -> Self {
        Backoff::Linear(it)
    }
}

impl From<Exponential> for Backoff {
    fn from(it: Exponential) -> Self {
        Backoff::Exponential(it)
    }
}

impl From<ExponentialRandom> for Backoff {
    fn from(it: ExponentialRandom) -> Self {
        Backoff::ExponentialRandom(it)
    }
}

impl From<Random> for Backoff {
    fn from(it: Random) -> Self {
        Backoff::Random(it)
    }
}

/// In milliseconds, which a double holds to the microsecond over the whole range.
#[expect(
    clippy::cast_precision_loss,
    reason = "at most 3.2e16 microseconds: one is lost at the far end"
)]
fn to_f64(duration: Duration) -> f64 {
    bounded(duration).as_micros() as f64 / 1000.0
}

/// So many milliseconds, to the microsecond, from zero to [`MAX_DELAY`]. Infinity is the latter, and what is not a
/// number is zero.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and turns what is not a number into zero"
)]
fn from_f64(millis: f64) -> Duration {
    Duration::from_micros((millis * 1000.0).round() as u64).min(MAX_DELAY)
}
