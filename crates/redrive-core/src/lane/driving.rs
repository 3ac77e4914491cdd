//! What a driver asks a lane, and tells it beside what happens to records.

use super::{Active, Hop, InPlace, Lane, Next, Payload, Phase, Run, Slots, Stage};
use crate::mutation::{self, Mutation};
use crate::time::Timestamp;

/// Metadata is not made shorter than this: a map that says nothing has to fit.
const LEAST_METADATA_CHARS: usize = 64;

/// How a lane is, for those who look at it from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// How many records wait for their time. Folded ones are not counted.
    pub waiting: usize,
    /// How many could run and have no slot.
    pub ready: usize,
    /// When the first of the records that were not started was or is due, where it has a due time.
    pub first_due: Option<Timestamp>,
    /// Up to where everything was read.
    pub position: i64,
    /// The offset below which everything is settled.
    pub commit_point: i64,
}

impl<P: Payload, H: Clone> Lane<P, H> {
    /// How it is. That takes a moment: it is for a few times a second, not for every record.
    pub fn census(&self) -> Census {
        let first = [self.near.first(), self.ready.first_due(), self.waiting.first()];
        let first = first.into_iter().flatten().min().map(|it| it.0);
        Census {
            waiting: self.waiting.len() + self.near.len(),
            ready: self.ready.len(),
            first_due: first.filter(|it| *it > Timestamp::default()),
            position: self.position(),
            commit_point: self.commit_point(),
        }
    }

    /// When a record that is under way was due.
    pub fn due(&self, offset: i64) -> Option<Timestamp> {
        self.active.get(offset).map(|it| it.item.due)
    }

    /// The next record that is to run. That is cheaper than asking for all that is to be done.
    #[inline]
    pub fn next_run(&mut self) -> Option<Run<P>> {
        self.runs.pop_front()
    }

    /// How many records could run and have no slot, those whose wait in place is over included.
    pub fn ready(&self) -> usize {
        if self.phase != Phase::Open {
            return 0;
        }
        let overdue = self.timers.range(..=(self.looked_at, i64::MAX)).count();
        self.ready.len() + overdue
    }

    /// A record that runs, or whose run is over and which is not settled, with its runs in place.
    pub fn active(&self, offset: i64) -> Option<(&P, InPlace)> {
        self.active.get(offset).map(|it| (&it.item.payload, it.in_place))
    }

    /// Where a record is being published to.
    pub fn publishing(&self, offset: i64) -> Option<&Hop<H>> {
        match &self.active.get(offset)?.stage {
            Stage::Publishing(hop) | Stage::Failed(hop) | Stage::Sent(hop) => Some(hop),
            Stage::Running | Stage::Judged | Stage::Waiting | Stage::Stopped => None,
        }
    }

    /// A record's next stop will never take it, so that it is to go elsewhere.
    pub fn redirected(&mut self, offset: i64, next: Next<H>, now: Timestamp, slots: &mut Slots) {
        let is_publishing =
            |it: &&mut Active<P, H>| matches!(it.stage, Stage::Publishing(_) | Stage::Failed(_));
        if self.is_closed() {
            return;
        }
        if let Some(active) = self.active.get_mut(offset).filter(is_publishing) {
            active.stage = Stage::Judged;
            self.judged(offset, next, now, slots);
        }
    }

    /// A record did not reach its next stop, and nothing is wrong with that: it is published again at once.
    pub fn publish_again(&mut self, offset: i64, now: Timestamp, slots: &mut Slots) {
        if !self.is_closed()
            && let Some(Stage::Publishing(hop)) = self.active.get(offset).map(|it| &it.stage)
        {
            let hop = hop.clone();
            self.publish(offset, hop);
            self.turn(now, slots);
        }
    }

    /// The lane is to run nothing more until it is told to go on, though it did not ask for that itself.
    pub fn halt(&mut self, now: Timestamp, slots: &mut Slots) {
        if self.phase == Phase::Open {
            self.phase = Phase::Halted;
            self.turn(now, slots);
        }
    }

    /// Sets how many bytes of payloads are kept for waiting records from now on. What does not fit any more is dropped, the
    /// farthest first, and read again before its time. What is ready stays.
    pub fn set_byte_budget(&mut self, bytes: usize, now: Timestamp, slots: &mut Slots) {
        let is_same = self.config.byte_budget == bytes || mutation::is(Mutation::KeepBudget);
        if self.is_closed() || is_same {
            return;
        }
        self.config.byte_budget = bytes;
        self.trim_parked();
        self.waiting.set_byte_budget(bytes);
        // The first stays in any case: something must be able to run.
        while self.near.len() > 1
            && self.near_bytes() > self.near_budget()
            && let Some((key, item)) = self.near.pop_last()
        {
            self.wait(key, item);
        }
        self.make_way();
        self.turn(now, slots);
    }

    /// The broker takes less metadata than was thought.
    pub fn shorten_metadata(&mut self) {
        self.config.metadata_chars = (self.config.metadata_chars / 2).max(LEAST_METADATA_CHARS);
    }
}
