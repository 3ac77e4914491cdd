//! What an ordered lane does with the records of one of its partitions: whose turn has not come is parked.
//!
//! A parked record is unsettled, but neither waits for its time nor runs. Of a retry topic only so many payloads are kept as fit
//! the budget; the others are read again when it is their turn. Of a source topic all are kept, and the topic is paused
//! when there are too many.

use std::collections::BTreeSet;
use std::ops::Range;

use super::by_offset::ByOffset;
use super::waiting::Key;
use super::{Action, Active, Fate, Hop, Item, Lane, LaneKind, Payload, Phase, Slots, Stage};
use crate::mutation::{self, Mutation};
use crate::offsets::Fence;
use crate::time::Timestamp;

/// The payloads of parked records.
#[derive(Debug)]
pub(super) struct Parked<P> {
    kept: ByOffset<Item<P>>,
    bytes: usize,
}

impl<P: Payload> Parked<P> {
    pub(super) fn new() -> Self {
        Self { kept: ByOffset::new(), bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    fn insert(&mut self, mut item: Item<P>) {
        item.payload = item.payload.kept();
        self.bytes += item.bytes;
        self.kept.insert(item.offset, item);
    }

    pub(super) fn take(&mut self, offset: i64) -> Option<Item<P>> {
        let item = self.kept.remove(offset)?;
        self.bytes -= item.bytes;
        Some(item)
    }

    /// Drops payloads until they fit, those that came last first.
    fn keep_within(&mut self, bytes: usize) {
        if self.bytes <= bytes {
            return;
        }
        let mut offsets: Vec<_> = self.kept.iter().map(|it| it.0).collect();
        offsets.sort_unstable();
        while self.bytes > bytes
            && let Some(last) = offsets.pop()
        {
            self.take(last);
        }
    }
}

/// A record that is over: its payload, and where it was published to, if it was.
#[derive(Debug)]
pub(super) enum Ended<P, H> {
    /// It ran or was published.
    Over { offset: i64, payload: P, hop: Option<Hop<H>> },
    /// The log does not have it any more.
    Gone { offset: i64 },
}

impl<P: Payload, H: Clone> Lane<P, H> {
    /// Nothing runs and nothing is committed until [`Lane::open`].
    pub(super) fn rebuilding(mut self) -> Self {
        self.phase = Phase::Rebuilding;
        self.ends = Some(Vec::new());
        self.is_paused = self.config.kind == LaneKind::Source;
        self
    }

    pub(super) fn open(&mut self) {
        if self.phase == Phase::Rebuilding {
            self.phase = Phase::Open;
        }
    }

    pub(super) fn fence(&self) -> Option<Fence> {
        self.progress.fence()
    }

    pub(super) fn set_fence(&mut self, fence: Fence) {
        self.progress.set_fence(fence);
    }

    /// Takes a record in that was read. Returns whether it is still to be run.
    pub(super) fn see(&mut self, item: &Item<P>) -> bool {
        self.is_dirty = true;
        self.progress.saw(item.offset, item.dated())
    }

    /// Settles a record that is neither waiting nor under way.
    pub(super) fn settle_parked(&mut self, offset: i64, dated: Option<Timestamp>) {
        self.parked.take(offset);
        self.progress.settle(offset, dated);
        self.is_dirty = true;
    }

    /// Lets a record stand aside.
    pub(super) fn park(&mut self, item: Item<P>) {
        self.progress.keep_open(item.offset);
        let is_source = self.config.kind == LaneKind::Source;
        if is_source || self.parked.bytes + item.bytes <= self.config.byte_budget / 2 {
            self.parked.insert(item);
        }
    }

    /// Drops what the budget has no room for any more.
    pub(super) fn trim_parked(&mut self) {
        if self.config.kind != LaneKind::Source {
            self.parked.keep_within(self.config.byte_budget / 2);
        }
    }

    /// It is the turn of a parked record.
    pub(super) fn unpark(&mut self, key: Key, fate: Fate, now: Timestamp, slots: &mut Slots) {
        match self.parked.take(key.1) {
            Some(mut item) => {
                item.fate = fate;
                self.admit(item, now, slots);
            }
            None => self.wait(key, None),
        }
    }

    /// Takes the turn away from a record again. Not one that is under way.
    pub(super) fn withdraw(&mut self, key: Key) -> bool {
        if self.active.get(key.1).is_some() {
            return false;
        }
        let item = match self.near.withdraw(key) {
            Some(item) => item,
            None => match self.ready.withdraw(key.1) {
                Some(item) => Some(item),
                None => self.waiting.withdraw(key),
            },
        };
        self.progress.keep_open(key.1);
        if let Some(item) = item {
            self.park(item);
        }
        true
    }

    /// Whether the source is held back by records that stand aside.
    pub(super) fn is_crowded(&self) -> bool {
        let is_theirs = self.parked.len() > self.config.ready_limit / 2
            || self.parked.bytes() > self.config.byte_budget / 2;
        self.is_paused && is_theirs && self.phase == Phase::Open
    }

    pub(super) fn is_committing(&self) -> bool {
        self.committing.is_some()
    }

    /// Whether a commit was built, all its blocks are stored, and it was not sent yet.
    pub(super) fn has_commit_to_send(&self) -> bool {
        self.committing.as_ref().is_some_and(|it| {
            !it.is_sent && (it.missing.is_empty() || mutation::is(Mutation::CommitBeforeBlocks))
        })
    }

    /// Runs nothing more until it is told to go on.
    pub(super) fn stop(&mut self) {
        if self.phase == Phase::Open {
            self.phase = Phase::Halted;
        }
    }

    /// What is to be committed.
    pub(super) fn send_commit(&mut self) -> Option<(i64, String)> {
        let committing = self.committing.as_mut()?;
        committing.is_sent = true;
        Some((committing.offset, committing.metadata.clone()))
    }

    /// Whether it is time to commit.
    pub(super) fn wants_commit(&self, now: Timestamp) -> bool {
        match self.phase {
            Phase::Draining(_) => self.is_dirty,
            _ => now >= self.last_commit.after(self.commit_interval()) || now < self.last_commit,
        }
    }

    /// Whether something is under way that may still end.
    pub(super) fn is_under_way(&self) -> bool {
        let ends = |it: &Active<P, H>| !matches!(it.stage, Stage::Waiting | Stage::Stopped);
        !self.plain.is_empty() || self.active.values().any(ends)
    }

    /// When the first is to be woken of what the ordered lane has folded away.
    pub(super) fn set_folded(&mut self, folded: Option<Key>) {
        self.folded = folded;
    }

    /// Forgets a record that stands aside. It stays unsettled.
    pub(super) fn fold_parked(&mut self, offset: i64) {
        self.progress.keep_open(offset);
        self.parked.take(offset);
        self.progress.fold(offset);
    }

    /// Whether a record waits, and its time is not near.
    pub(super) fn is_far(&self, key: Key, ready: &BTreeSet<i64>) -> bool {
        self.active.get(key.1).is_none() && !self.near.contains(key) && !ready.contains(&key.1)
    }

    /// Forgets records that wait. They stay unsettled, and the mark does not pass them.
    pub(super) fn fold_waiting(&mut self, keys: &BTreeSet<Key>) {
        self.waiting.forget(keys);
        keys.iter().for_each(|key| self.progress.fold(key.1));
    }

    /// Takes a record up again that was folded away. Returns whether it was.
    pub(super) fn unfold(&mut self, offset: i64) -> bool {
        self.progress.unfold(offset)
    }

    /// Asks for records that were folded away. Returns the ticket.
    pub(super) fn ask_for(&mut self, range: Range<i64>) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.actions.push_back(Action::Fetch { ticket, ranges: vec![range] });
        ticket
    }

    /// A record is over, and nobody but an ordered lane wants to know.
    pub(super) fn end(&mut self, offset: i64) {
        let Some(ends) = &mut self.ends else {
            return self.active.discard(offset);
        };
        if let Some(active) = self.active.remove(offset) {
            let hop = match active.stage {
                Stage::Publishing(hop) | Stage::Sent(hop) => Some(hop),
                _ => None,
            };
            let Item { offset, payload, .. } = active.item;
            ends.push(Ended::Over { offset, payload, hop });
        }
    }
}
