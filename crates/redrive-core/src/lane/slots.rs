//! How many records run at the same time, and whose turn it is.
//!
//! Slots belong to a flow in one process; all its lanes share them. When a million retries are due at once, fresh
//! records still get their share, and the other way round.

use super::breaker::{Breaker, Ran};
use crate::time::Timestamp;

/// What a slot is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A record of the source topic.
    Fresh,
    /// A record that was retried before.
    Retry,
}

/// The slots of one flow in one process.
#[derive(Clone, Debug)]
pub struct Slots {
    total: usize,
    /// How many slots the other class leaves alone while this one wants them.
    reserved: [usize; 2],
    running: [usize; 2],
    wanting: [usize; 2],
    /// With a single slot the classes take turns.
    last: Class,
    /// How many records may start before somebody else's turn.
    granted: usize,
    rate: Option<Rate>,
    breaker: Option<Breaker>,
}

impl Slots {
    /// So many slots, half of them reserved for fresh records.
    pub fn new(total: usize) -> Self {
        let total = total.max(1);
        let half = total / 2;
        Self {
            total,
            reserved: [half, total - half],
            running: [0; 2],
            wanting: [0; 2],
            last: Class::Retry,
            granted: usize::MAX,
            rate: None,
            breaker: None,
        }
    }

    /// Reserves this share of the slots for fresh records, from 0 to 1.
    #[must_use]
    pub fn with_fresh_share(mut self, share: f64) -> Self {
        let wanted = (share.clamp(0.0, 1.0) * self.total as f64).round();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and the total"
        )]
        let fresh = (wanted as usize)
            .clamp(usize::from(self.total > 1), self.total - usize::from(self.total > 1));
        self.reserved = [fresh, self.total - fresh];
        self
    }

    /// Starts at most so many retries a second.
    #[must_use]
    pub fn with_retry_rate(mut self, per_second: u32) -> Self {
        self.rate = Some(Rate::new(per_second));
        self
    }

    /// Holds records back while the service behind is down.
    #[must_use]
    pub fn with_breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// Whether a breaker holds records back.
    pub fn is_open(&self) -> bool {
        self.breaker.as_ref().is_some_and(Breaker::is_open)
    }

    /// How many slots there are.
    pub fn total(&self) -> usize {
        self.total
    }

    /// How many records run.
    pub fn running(&self) -> usize {
        self.running[0] + self.running[1]
    }

    /// Tells how the number of records that want a slot has changed.
    pub(super) fn want(&mut self, class: Class, before: usize, after: usize) {
        let wanting = &mut self.wanting[index(class)];
        *wanting = (*wanting + after).saturating_sub(before);
    }

    /// Lets lanes start at most so many records from now on. Whoever drives several lanes shares the slots out by this, so that
    /// one that always has something ready does not take them all.
    pub fn grant(&mut self, starts: usize) {
        self.granted = starts;
    }

    /// Takes a slot, if it is this class's turn.
    pub(super) fn take(&mut self, class: Class, now: Timestamp) -> bool {
        if self.granted == 0 || self.running() >= self.total || !self.is_turn(class) {
            return false;
        }
        if self.breaker.as_ref().is_some_and(|it| !it.may_start(now)) {
            return false;
        }
        if class == Class::Retry && !self.rate.as_mut().is_none_or(|rate| rate.take(now)) {
            return false;
        }
        self.granted = self.granted.saturating_sub(1);
        self.running[index(class)] += 1;
        self.last = class;
        if let Some(breaker) = &mut self.breaker {
            breaker.started();
        }
        true
    }

    /// Gives a slot back after a run. Returns whether the record is to stay in its place.
    pub(super) fn finish(&mut self, class: Class, ran: Ran, now: Timestamp) -> bool {
        self.give_back(class);
        self.breaker.as_mut().is_some_and(|it| it.finished(ran, now))
    }

    /// Gives slots back after runs that succeeded.
    pub(super) fn succeed(&mut self, class: Class, runs: usize, now: Timestamp) {
        let running = &mut self.running[index(class)];
        *running = running.saturating_sub(runs);
        if let Some(breaker) = &mut self.breaker {
            for _ in 0..runs {
                breaker.finished(Ran::Fine, now);
            }
        }
    }

    /// Gives a slot back after a run whose end nobody will hear of.
    pub(super) fn forget(&mut self, class: Class, now: Timestamp) {
        self.give_back(class);
        if let Some(breaker) = &mut self.breaker {
            breaker.forgotten(now);
        }
    }

    fn give_back(&mut self, class: Class) {
        let running = &mut self.running[index(class)];
        *running = running.saturating_sub(1);
    }

    /// When the rate allows the next retry, or the breaker the next probe, if it does not now.
    pub(super) fn next_allowed(&self, now: Timestamp) -> Option<Timestamp> {
        let probe = self.breaker.as_ref().and_then(|it| it.next_probe(now));
        probe.or_else(|| self.rate.as_ref().and_then(|rate| rate.next(now)))
    }

    fn is_turn(&self, class: Class) -> bool {
        let other = match class {
            Class::Fresh => Class::Retry,
            Class::Retry => Class::Fresh,
        };
        if self.wanting[index(other)] == 0 {
            return true;
        }
        if self.total == 1 {
            return self.last != class;
        }
        self.running[index(class)] < self.reserved[index(class)].max(1)
            || self.running[index(class)] + self.reserved[index(other)] < self.total
    }
}

fn index(class: Class) -> usize {
    match class {
        Class::Fresh => 0,
        Class::Retry => 1,
    }
}

/// So many a second, a tenth of a second's worth at once.
#[derive(Clone, Debug)]
struct Rate {
    per_second: u32,
    /// When the bucket is empty again, in microseconds.
    empty_at: i64,
}

impl Rate {
    const BURST_MICROS: i64 = 100_000;

    fn new(per_second: u32) -> Self {
        Self { per_second: per_second.max(1), empty_at: i64::MIN }
    }

    fn cost(&self) -> i64 {
        1_000_000 / i64::from(self.per_second)
    }

    fn take(&mut self, now: Timestamp) -> bool {
        let now = now.as_millis().saturating_mul(1000);
        // After a clock that went back, the bucket is not full for ever.
        let empty_at =
            self.empty_at.clamp(now, now.saturating_add(Self::BURST_MICROS + self.cost()));
        let is_allowed = empty_at <= now.saturating_add(Self::BURST_MICROS);
        self.empty_at = if is_allowed { empty_at.saturating_add(self.cost()) } else { empty_at };
        is_allowed
    }

    fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let at = self.empty_at.saturating_sub(Self::BURST_MICROS);
        let at = Timestamp::from_millis(at.div_euclid(1000).saturating_add(1));
        (at > now).then_some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    /// Takes slots for `class` until there are no more.
    fn fill(slots: &mut Slots, class: Class) -> usize {
        std::iter::from_fn(|| slots.take(class, at(0)).then_some(())).count()
    }

    #[test]
    fn no_more_start_than_were_granted() {
        let mut slots = Slots::new(10);
        slots.grant(3);
        assert_eq!(fill(&mut slots, Class::Fresh), 3);
        slots.grant(usize::MAX);
        assert_eq!(fill(&mut slots, Class::Fresh), 7);
    }

    #[test]
    fn retries_leave_half_of_the_slots_to_fresh_records() {
        let mut slots = Slots::new(10);
        slots.want(Class::Fresh, 0, 1);
        slots.want(Class::Retry, 0, 1_000_000);
        assert_eq!(fill(&mut slots, Class::Retry), 5);
        assert_eq!(fill(&mut slots, Class::Fresh), 5);
    }

    #[test]
    fn what_nobody_else_wants_is_free_for_all() {
        let mut slots = Slots::new(10);
        slots.want(Class::Retry, 0, 50);
        assert_eq!(fill(&mut slots, Class::Retry), 10);
        // Fresh records come: each slot that is given back is theirs, up to their share.
        slots.want(Class::Fresh, 0, 50);
        slots.give_back(Class::Retry);
        assert!(!slots.take(Class::Retry, at(0)));
        assert!(slots.take(Class::Fresh, at(0)));
    }

    #[test]
    fn a_single_slot_is_taken_in_turns() {
        let mut slots = Slots::new(1);
        slots.want(Class::Fresh, 0, 9);
        slots.want(Class::Retry, 0, 9);
        for _ in 0..3 {
            assert!(!slots.take(Class::Retry, at(0)) && slots.take(Class::Fresh, at(0)));
            slots.give_back(Class::Fresh);
            assert!(!slots.take(Class::Fresh, at(0)) && slots.take(Class::Retry, at(0)));
            slots.give_back(Class::Retry);
        }
    }

    #[test]
    fn the_share_of_fresh_records_can_be_set_but_starves_nobody() {
        for (share, fresh) in [(0.0, 1), (0.2, 2), (1.0, 9)] {
            let mut slots = Slots::new(10).with_fresh_share(share);
            slots.want(Class::Fresh, 0, 50);
            slots.want(Class::Retry, 0, 50);
            assert_eq!(fill(&mut slots, Class::Fresh), fresh, "{share}");
            assert_eq!(fill(&mut slots, Class::Retry), 10 - fresh, "{share}");
        }
    }

    #[test]
    fn a_rate_spreads_retries_and_leaves_fresh_records_alone() {
        let mut slots = Slots::new(1_000_000).with_retry_rate(100);
        let mut started = 0;
        for millis in 0..1000 {
            while slots.take(Class::Retry, at(millis)) {
                started += 1;
            }
            assert!(slots.take(Class::Fresh, at(millis)));
        }
        assert!((100..=112).contains(&started), "{started}");
        let next = slots.next_allowed(at(999)).unwrap();
        assert!(next > at(999) && slots.take(Class::Retry, next));
    }

    #[test]
    fn a_clock_that_went_back_does_not_stop_retries_for_long() {
        let mut slots = Slots::new(1_000).with_retry_rate(10);
        while slots.take(Class::Retry, at(10_000_000)) {}
        assert!((0..=200).any(|millis| slots.take(Class::Retry, at(millis))));
    }
}
