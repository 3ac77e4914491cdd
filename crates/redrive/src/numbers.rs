//! Numbers of a flow: counted where things happen, and read by whoever wants to.
//!
//! A record that succeeds costs a plain atomic or two. Everything that needs a lock or a name is counted when an [`Event`] is
//! told, which a success never does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redrive_core::Reason;

use crate::event::Event;

/// How many policies of a flow are told apart in numbers: identifiers come from error types, and there may be any number.
const POLICIES: usize = 64;
/// What the others are counted under.
const OTHER: &str = "other";

/// A number that only grows.
#[derive(Debug, Default)]
pub(crate) struct Count(AtomicU64);

impl Count {
    pub(crate) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The numbers of a flow.
pub(crate) struct Numbers {
    pub(crate) runs: Count,
    pub(crate) succeeded: Count,
    pub(crate) failed: Count,
    pub(crate) retried: Count,
    pub(crate) relayed: Count,
    pub(crate) foreign: Count,
    pub(crate) reappended: Count,
    pub(crate) void: Count,
    pub(crate) superseded: Count,
    pub(crate) stops: Count,
    pub(crate) lost: Count,
    pub(crate) unreadable: Count,
    pub(crate) commits: Count,
    pub(crate) commit_failures: Count,
    pub(crate) publish_failures: Count,
    pub(crate) too_large: Count,
    pub(crate) state_blocks: Count,
    pub(crate) state_block_failures: Count,
    pub(crate) dead_letters: ByReason,
    pub(crate) dropped: ByReason,
    pub(crate) in_memory: ByPolicy,
    pub(crate) delayed: ByPolicy,
    pub(crate) run_time: Times,
    pub(crate) lateness: Times,
    pub(crate) failed_lately: LastMinute,
}

impl Default for Numbers {
    fn default() -> Self {
        Self {
            runs: Count::default(),
            succeeded: Count::default(),
            failed: Count::default(),
            retried: Count::default(),
            relayed: Count::default(),
            foreign: Count::default(),
            reappended: Count::default(),
            void: Count::default(),
            superseded: Count::default(),
            stops: Count::default(),
            lost: Count::default(),
            unreadable: Count::default(),
            commits: Count::default(),
            commit_failures: Count::default(),
            publish_failures: Count::default(),
            too_large: Count::default(),
            state_blocks: Count::default(),
            state_block_failures: Count::default(),
            dead_letters: ByReason::default(),
            dropped: ByReason::default(),
            in_memory: ByPolicy::default(),
            delayed: ByPolicy::default(),
            run_time: Times::new(RUN_TIMES),
            lateness: Times::new(LATENESS),
            failed_lately: LastMinute::default(),
        }
    }
}

impl Numbers {
    /// Counts what happened.
    pub(crate) fn count(&self, event: &Event) {
        match event {
            Event::RunsAgain { spot, policy, .. } => {
                self.in_memory.add(&spot.topic, policy.as_deref());
            }
            Event::Retries { to, policy, .. } => {
                self.retried.add(1);
                self.delayed.add(to, policy.as_deref());
            }
            Event::DeadLettered { reason, .. } => self.dead_letters.add(*reason),
            Event::Dropped { reason, .. } => self.dropped.add(*reason),
            Event::Stopped { .. } => self.stops.add(1),
            Event::PublishFailed { .. } => self.publish_failures.add(1),
            Event::TooLarge { .. } => {
                self.publish_failures.add(1);
                self.too_large.add(1);
            }
            Event::CommitFailed { .. } => self.commit_failures.add(1),
            Event::Lost { offsets, .. } => {
                self.lost.add(u64::try_from(offsets.end - offsets.start).unwrap_or(0));
            }
            Event::Foreign(_) => self.foreign.add(1),
            Event::Unreadable { .. } => self.unreadable.add(1),
            Event::Reappended(_) => self.reappended.add(1),
            Event::Void { copies, .. } => self.void.add(*copies),
            _ => {}
        }
    }

    /// A run failed.
    pub(crate) fn run_failed(&self) {
        self.failed.add(1);
        self.failed_lately.add(1, seconds());
    }
}

/// Counts by why retries ended.
#[derive(Default)]
pub(crate) struct ByReason([Count; Reason::ALL.len()]);

impl ByReason {
    fn add(&self, reason: Reason) {
        let index = Reason::ALL.iter().position(|it| *it == reason);
        if let Some(count) = index.and_then(|it| self.0.get(it)) {
            count.add(1);
        }
    }

    pub(crate) fn all(&self) -> Vec<(Reason, u64)> {
        Reason::ALL.iter().copied().zip(self.0.iter().map(Count::get)).collect()
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(Count::get).sum()
    }
}

/// Counts by topic and policy.
#[derive(Default)]
pub(crate) struct ByPolicy(Mutex<Policies>);

#[derive(Default)]
struct Policies {
    names: BTreeSet<Arc<str>>,
    counts: BTreeMap<(Arc<str>, Arc<str>), u64>,
}

impl ByPolicy {
    fn add(&self, topic: &Arc<str>, policy: Option<&str>) {
        let mut policies = self.0.lock();
        let policy = policies.name(policy.unwrap_or("none"));
        *policies.counts.entry((Arc::clone(topic), policy)).or_default() += 1;
    }

    pub(crate) fn all(&self) -> Vec<(Arc<str>, Arc<str>, u64)> {
        let policies = self.0.lock();
        let counts = policies.counts.iter();
        counts.map(|((topic, policy), it)| (Arc::clone(topic), Arc::clone(policy), *it)).collect()
    }
}

impl Policies {
    fn name(&mut self, policy: &str) -> Arc<str> {
        if let Some(name) = self.names.get(policy) {
            return Arc::clone(name);
        }
        if self.names.len() >= POLICIES {
            return OTHER.into();
        }
        let name: Arc<str> = policy.into();
        self.names.insert(Arc::clone(&name));
        name
    }
}

/// The bounds of how long runs take, in microseconds.
const RUN_TIMES: &[u64] = &[
    100,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];
/// The bounds of how late retries run, in microseconds.
const LATENESS: &[u64] = &[
    1_000,
    2_000,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    250_000,
    500_000,
    1_000_000,
    5_000_000,
    15_000_000,
    60_000_000,
    300_000_000,
    3_600_000_000,
];

/// How long things take, in buckets.
pub(crate) struct Times {
    bounds: &'static [u64],
    /// One more than there are bounds.
    counts: Box<[AtomicU64]>,
    sum_micros: AtomicU64,
}

impl Times {
    fn new(bounds: &'static [u64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, counts, sum_micros: AtomicU64::new(0) }
    }

    /// So many took so long, each.
    pub(crate) fn note(&self, count: u64, each: Duration) {
        let micros = u64::try_from(each.as_nanos().div_ceil(1000)).unwrap_or(u64::MAX);
        let index = self.bounds.partition_point(|bound| *bound < micros);
        if let Some(bucket) = self.counts.get(index) {
            bucket.fetch_add(count, Ordering::Relaxed);
        }
        self.sum_micros.fetch_add(micros.saturating_mul(count), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Histogram {
        Histogram {
            bounds: self.bounds.iter().copied().map(Duration::from_micros).collect(),
            counts: self.counts.iter().map(|it| it.load(Ordering::Relaxed)).collect(),
            sum: Duration::from_micros(self.sum_micros.load(Ordering::Relaxed)),
        }
    }
}

/// How long things took: how many up to each bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Histogram {
    /// The bounds, rising.
    pub bounds: Vec<Duration>,
    /// How many were up to each bound and above the one before, and last how many were above all.
    pub counts: Vec<u64>,
    /// All of them together.
    pub sum: Duration,
}

impl Histogram {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Seconds since something in this process first asked, by a clock that never jumps.
fn seconds() -> u64 {
    monotonic().as_secs()
}

/// Time since something in this process first asked, by a clock that never jumps and stands still while the machine sleeps.
pub(crate) fn monotonic() -> Duration {
    use std::sync::OnceLock;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// How many there were in the last minute, by the second.
pub(crate) struct LastMinute(Mutex<[(u64, u64); 60]>);

impl Default for LastMinute {
    fn default() -> Self {
        Self(Mutex::new([(0, 0); 60]))
    }
}

impl LastMinute {
    fn add(&self, count: u64, second: u64) {
        let mut buckets = self.0.lock();
        let index = usize::try_from(second % 60).unwrap_or(0);
        if let Some(bucket) = buckets.get_mut(index) {
            if bucket.0 != second {
                *bucket = (second, 0);
            }
            bucket.1 += count;
        }
    }

    fn at(&self, second: u64) -> u64 {
        let buckets = self.0.lock();
        buckets.iter().filter(|it| it.0 + 60 > second).map(|it| it.1).sum()
    }

    pub(crate) fn get(&self) -> u64 {
        self.at(seconds())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_beyond_the_limit_are_counted_together() {
        let (counts, topic) = (ByPolicy::default(), Arc::<str>::from("orders.retry"));
        for number in 0..10 * POLICIES {
            counts.add(&topic, Some(&format!("Error{number}")));
        }
        counts.add(&topic, Some("Error0"));
        let all = counts.all();
        assert_eq!(all.len(), POLICIES + 1);
        let of = |name: &str| all.iter().find(|it| *it.1 == *name).map(|it| it.2);
        assert_eq!((of("Error0"), of(OTHER)), (Some(2), Some(9 * POLICIES as u64)));
    }

    #[test]
    fn a_bound_belongs_to_its_own_bucket() {
        let times = Times::new(&[1_000, 2_000]);
        times.note(1, Duration::from_millis(1));
        times.note(2, Duration::from_micros(1_001));
        times.note(3, Duration::from_secs(9));
        let read = times.read();
        assert_eq!((read.counts.as_slice(), read.count()), (&[1, 2, 3][..], 6));
        assert_eq!(read.sum, Duration::from_micros(1_000 + 2 * 1_001 + 27_000_000));
    }

    #[test]
    fn the_last_minute_forgets() {
        let minute = LastMinute::default();
        minute.add(5, 100);
        minute.add(2, 130);
        assert_eq!((minute.at(130), minute.at(159), minute.at(160), minute.at(190)), (7, 7, 2, 0));
        minute.add(1, 190);
        assert_eq!(minute.at(190), 1, "a bucket is used again");
    }
}
