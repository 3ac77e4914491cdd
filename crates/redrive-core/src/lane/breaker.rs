//! When the service behind is down, stop pushing records into it.
//!
//! Without this, an outage sends the whole topic through the retry topics and burns every record's attempts. A breaker that is
//! open lets one record at a time through, as a probe, until one succeeds. What fails meanwhile stays in its place and is not
//! counted.

use std::time::Duration;

use crate::time::Timestamp;

/// How a run ended, as far as a breaker looks at it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// It succeeded, or ended in a way that says nothing about the service.
    Fine,
    /// It failed.
    Failed {
        /// Whether trying again could help.
        retryable: bool,
    },
}

/// Which failures count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Counted {
    /// Those where trying again could help: the others are the record's own fault.
    #[default]
    Retryable,
    /// All.
    Any,
}

/// A breaker of one flow in one process.
#[derive(Clone, Debug)]
pub struct Breaker {
    share: f64,
    window: Duration,
    minimum: u32,
    counted: Counted,
    probe_every: Duration,
    state: State,
    buckets: [Bucket; BUCKETS],
}

const BUCKETS: usize = 10;

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    /// Which stretch of time it is for.
    stretch: i64,
    runs: u32,
    failures: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open { probe_at: Timestamp, is_probing: bool },
}

impl Breaker {
    /// Opens when this share of the runs fails, from 0 to 1.
    ///
    /// # Defaults
    ///
    /// Over a window of 30 s with at least 20 runs, retryable failures alone, and a probe every 5 s.
    pub fn new(share: f64) -> Self {
        Self {
            share: if share > 0.0 { share.min(1.0) } else { 1.0 },
            window: Duration::from_secs(30),
            minimum: 20,
            counted: Counted::default(),
            probe_every: Duration::from_secs(5),
            state: State::Closed,
            buckets: [Bucket::default(); BUCKETS],
        }
    }

    /// Looks at the runs of this time.
    #[must_use]
    pub fn with_window(mut self, window: Duration) -> Self {
        self.window = window.max(Duration::from_millis(BUCKETS as u64));
        self
    }

    /// Says nothing about fewer runs than this.
    #[must_use]
    pub fn with_minimum(mut self, runs: u32) -> Self {
        self.minimum = runs.max(1);
        self
    }

    /// Counts these failures.
    #[must_use]
    pub fn with_counted(mut self, counted: Counted) -> Self {
        self.counted = counted;
        self
    }

    /// Probes so often while it is open.
    #[must_use]
    pub fn with_probe_every(mut self, wait: Duration) -> Self {
        self.probe_every = wait.max(Duration::from_millis(1));
        self
    }

    /// Whether it holds records back.
    pub fn is_open(&self) -> bool {
        self.state != State::Closed
    }

    /// Whether a record may start, and if it is a probe.
    pub(super) fn may_start(&self, now: Timestamp) -> bool {
        match self.state {
            State::Closed => true,
            // After a clock that went back, a probe is not far off for ever.
            State::Open { probe_at, is_probing } => {
                !is_probing && (probe_at <= now || probe_at > now.after(self.probe_every))
            }
        }
    }

    pub(super) fn started(&mut self) {
        if let State::Open { is_probing, .. } = &mut self.state {
            *is_probing = true;
        }
    }

    /// When the next probe may start, if it may not now.
    pub(super) fn next_probe(&self, now: Timestamp) -> Option<Timestamp> {
        match self.state {
            State::Open { probe_at, is_probing: false } if probe_at > now => {
                Some(probe_at.min(now.after(self.probe_every)))
            }
            _ => None,
        }
    }

    /// Counts a run. Returns whether the record is to stay in its place.
    pub(super) fn finished(&mut self, ran: Ran, now: Timestamp) -> bool {
        let failed = match (ran, self.counted) {
            (Ran::Fine, _) => false,
            (Ran::Failed { retryable }, Counted::Retryable) => retryable,
            (Ran::Failed { .. }, Counted::Any) => true,
        };
        match (self.state, failed) {
            (State::Open { .. }, true) => {
                self.state =
                    State::Open { probe_at: now.after(self.probe_every), is_probing: false };
                true
            }
            (State::Open { .. }, false) => {
                self.state = State::Closed;
                self.buckets = [Bucket::default(); BUCKETS];
                false
            }
            (State::Closed, _) => {
                self.count(failed, now);
                if self.is_too_much(now) {
                    self.state =
                        State::Open { probe_at: now.after(self.probe_every), is_probing: false };
                }
                failed && self.is_open()
            }
        }
    }

    /// A run whose end nobody will hear of.
    pub(super) fn forgotten(&mut self, now: Timestamp) {
        if let State::Open { probe_at, is_probing: true } = self.state {
            self.state = State::Open {
                probe_at: probe_at.min(now.after(self.probe_every)),
                is_probing: false,
            };
        }
    }

    fn stretch(&self, now: Timestamp) -> i64 {
        let length = i64::try_from(self.window.as_millis()).unwrap_or(i64::MAX) / BUCKETS as i64;
        now.as_millis().div_euclid(length.max(1))
    }

    fn count(&mut self, failed: bool, now: Timestamp) {
        let stretch = self.stretch(now);
        let index = usize::try_from(stretch.rem_euclid(BUCKETS as i64)).unwrap_or(0);
        let bucket = &mut self.buckets[index];
        if bucket.stretch != stretch {
            *bucket = Bucket { stretch, ..Bucket::default() };
        }
        bucket.runs = bucket.runs.saturating_add(1);
        bucket.failures = bucket.failures.saturating_add(u32::from(failed));
    }

    fn is_too_much(&self, now: Timestamp) -> bool {
        let newest = self.stretch(now);
        let oldest = newest - BUCKETS as i64;
        let recent = self.buckets.iter().filter(|it| it.stretch > oldest && it.stretch <= newest);
        let (runs, failures) = recent.fold((0u32, 0u32), |(runs, failures), it| {
            (runs.saturating_add(it.runs), failures.saturating_add(it.failures))
        });
        runs >= self.minimum && f64::from(failures) >= self.share * f64::from(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: Ran = Ran::Failed { retryable: true };

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn open() -> Breaker {
        let mut breaker = Breaker::new(0.5).with_minimum(4);
        for _ in 0..4 {
            breaker.finished(FAILED, at(1000));
        }
        assert!(breaker.is_open());
        breaker
    }

    #[test]
    fn it_opens_at_the_share_and_not_before_the_minimum() {
        let mut breaker = Breaker::new(0.5).with_minimum(10);
        for _ in 0..5 {
            assert!(!breaker.finished(Ran::Fine, at(0)));
        }
        for _ in 0..4 {
            assert!(!breaker.finished(FAILED, at(0)));
        }
        assert!(!breaker.is_open());
        // The one that opens it stays in its place, too.
        assert!(breaker.finished(FAILED, at(0)));
        assert!(breaker.is_open());
    }

    #[test]
    fn what_is_older_than_the_window_does_not_count() {
        let mut breaker = Breaker::new(0.5).with_minimum(4).with_window(Duration::from_secs(10));
        for _ in 0..3 {
            breaker.finished(FAILED, at(0));
        }
        breaker.finished(FAILED, at(20_000));
        assert!(!breaker.is_open());
    }

    #[test]
    fn failures_that_are_the_records_own_fault_count_only_where_asked() {
        let own_fault = Ran::Failed { retryable: false };
        for (counted, opens) in [(Counted::Retryable, false), (Counted::Any, true)] {
            let mut breaker = Breaker::new(0.5).with_minimum(4).with_counted(counted);
            for _ in 0..8 {
                breaker.finished(own_fault, at(0));
            }
            assert_eq!(breaker.is_open(), opens, "{counted:?}");
        }
    }

    #[test]
    fn open_it_lets_one_probe_through_at_a_time_until_one_succeeds() {
        let mut breaker = open();
        assert!(!breaker.may_start(at(5999)));
        assert_eq!(breaker.next_probe(at(5999)), Some(at(6000)));
        assert!(breaker.may_start(at(6000)));
        breaker.started();
        assert!(!breaker.may_start(at(60_000)));
        assert!(breaker.finished(FAILED, at(6100)), "a failed probe stays in its place");
        assert!(!breaker.may_start(at(6100)) && breaker.may_start(at(11_100)));
        breaker.started();
        assert!(!breaker.finished(Ran::Fine, at(11_200)));
        assert!(!breaker.is_open() && breaker.may_start(at(11_200)));
    }

    #[test]
    fn a_probe_that_nobody_hears_of_makes_room_for_another() {
        let mut breaker = open();
        breaker.started();
        breaker.forgotten(at(7000));
        assert!(breaker.may_start(at(7000)));
    }

    #[test]
    fn a_clock_that_went_back_does_not_hold_it_open_for_ever() {
        let breaker = open();
        assert!(breaker.may_start(at(-1_000_000)));
    }
}
