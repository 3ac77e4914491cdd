//! What decides for a partition: a lane of its own, or one that it shares with all partitions that belong together.
//!
//! Everything else of a partition, such as what was read of it and is not taken yet, is its own in either case. So only
//! the calls differ, and for records that come in batches once for a batch.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use redrive_core::lane::{Action, Census, Hop, Lane, Next, OrderedLane, Part, Ranked, Slots};
use redrive_core::offsets::BlockId;
use redrive_core::{InPlace, Timestamp};

use super::load::Load;
use super::order::Told;
use crate::kafka::publish::Outgoing;
use crate::record::Record;

pub(crate) type OwnLane = Lane<Load, Arc<Outgoing>>;
pub(crate) type OwnWhole = OrderedLane<Load, Arc<Outgoing>>;

/// What decides for a partition.
pub(super) enum Machine {
    Plain(Box<OwnLane>),
    /// It is one of several: of which, by the number of the source's lane, and which one.
    Part {
        whole: u64,
        part: Part,
    },
}

/// Partitions that belong together.
pub(super) struct Whole {
    pub(super) machine: Box<OwnWhole>,
    /// Their lanes, the source's first.
    pub(super) parts: Vec<u64>,
    /// A marker that is to be written in the transaction of the dead letter that comes next.
    pub(super) mark: Option<Arc<Outgoing>>,
    /// What was told of its entities so far.
    pub(super) told: Told,
}

/// By the number of the source's lane.
pub(super) type Wholes = BTreeMap<u64, Whole>;

impl Machine {
    /// What decides for it, to be told something. None for a part of what is gone.
    pub(super) fn driver<'a>(&'a mut self, wholes: &'a mut Wholes) -> Option<Driver<'a>> {
        match self {
            Machine::Plain(lane) => Some(Driver::Plain(lane)),
            Machine::Part { whole, part } => {
                let whole = wholes.get_mut(whole)?;
                Some(Driver::Part(&mut whole.machine, *part))
            }
        }
    }

    /// The lane by whose number it is asked for what is to be done.
    pub(super) fn home(&self, own: u64) -> u64 {
        match self {
            Machine::Plain(_) => own,
            Machine::Part { whole, .. } => *whole,
        }
    }
}

/// What decides for a partition, while something is told to it.
pub(super) enum Driver<'a> {
    Plain(&'a mut OwnLane),
    Part(&'a mut OwnWhole, Part),
}

macro_rules! either {
    ($self:ident, $name:ident($($argument:expr),*)) => {
        match $self {
            Driver::Plain(lane) => lane.$name($($argument),*),
            Driver::Part(whole, part) => whole.$name(*part, $($argument),*),
        }
    };
}

/// For all parts at once: the source's part passes it on.
macro_rules! once {
    ($self:ident, $name:ident($($argument:expr),*)) => {
        match $self {
            Driver::Plain(lane) => lane.$name($($argument),*),
            Driver::Part(whole, 0) => whole.$name($($argument),*),
            Driver::Part(..) => {}
        }
    };
}

impl Driver<'_> {
    /// The lane of this very partition.
    fn look<T>(
        &self,
        plain: impl FnOnce(&OwnLane) -> T,
        part: impl FnOnce(&Lane<Ranked<Load>, Arc<Outgoing>>) -> T,
    ) -> Option<T> {
        match self {
            Driver::Plain(lane) => Some(plain(lane)),
            Driver::Part(whole, it) => whole.part(*it).map(part),
        }
    }

    /// What it belongs to.
    pub(super) fn whole(&self) -> Option<&OwnWhole> {
        match self {
            Driver::Plain(_) => None,
            Driver::Part(whole, _) => Some(whole),
        }
    }

    pub(super) fn passed(&mut self, offset: i64, now: Timestamp, slots: &mut Slots) {
        either!(self, passed(offset, now, slots));
    }

    pub(super) fn refetch_ended(
        &mut self,
        ticket: u64,
        is_read: bool,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        if is_read {
            either!(self, refetch_done(ticket, now, slots));
        } else {
            either!(self, refetch_failed(ticket, now, slots));
        }
    }

    pub(super) fn succeeded_all(
        &mut self,
        runs: impl IntoIterator<Item = Range<i64>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        either!(self, succeeded_all(runs, now, slots));
    }

    /// The record of a run that did not succeed.
    pub(super) fn given_back(&mut self, offset: i64, record: Record) {
        either!(self, given_back(offset, Load::Shared(record)));
    }

    pub(super) fn failed(
        &mut self,
        offset: i64,
        retryable: bool,
        now: Timestamp,
        slots: &mut Slots,
    ) -> bool {
        either!(self, failed(offset, retryable, now, slots))
    }

    pub(super) fn judged(
        &mut self,
        offset: i64,
        next: Next<Arc<Outgoing>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        either!(self, judged(offset, next, now, slots));
    }

    /// A record has reached its next stop, at this offset.
    pub(super) fn published(&mut self, offset: i64, at: i64, now: Timestamp, slots: &mut Slots) {
        match self {
            Driver::Plain(lane) => lane.published(offset, now, slots),
            Driver::Part(whole, part) => {
                whole.published(*part, offset, at.saturating_add(1), now, slots);
            }
        }
    }

    pub(super) fn publish_failed(&mut self, offset: i64, now: Timestamp, slots: &mut Slots) {
        either!(self, publish_failed(offset, now, slots));
    }

    pub(super) fn publish_again(&mut self, offset: i64, now: Timestamp, slots: &mut Slots) {
        either!(self, publish_again(offset, now, slots));
    }

    pub(super) fn redirected(
        &mut self,
        offset: i64,
        next: Next<Arc<Outgoing>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        either!(self, redirected(offset, next, now, slots));
    }

    pub(super) fn stored(&mut self, id: BlockId, now: Timestamp, slots: &mut Slots) {
        either!(self, stored(id, now, slots));
    }

    pub(super) fn store_failed(&mut self, id: BlockId, now: Timestamp, slots: &mut Slots) -> bool {
        either!(self, store_failed(id, now, slots))
    }

    pub(super) fn committed(&mut self, now: Timestamp, slots: &mut Slots) {
        once!(self, committed(now, slots));
    }

    pub(super) fn commit_failed(&mut self, now: Timestamp, slots: &mut Slots) {
        once!(self, commit_failed(now, slots));
    }

    pub(super) fn shorten_metadata(&mut self) {
        once!(self, shorten_metadata());
    }

    pub(super) fn set_byte_budget(&mut self, bytes: usize, now: Timestamp, slots: &mut Slots) {
        either!(self, set_byte_budget(bytes, now, slots));
    }

    pub(super) fn tick(&mut self, now: Timestamp, slots: &mut Slots) {
        once!(self, tick(now, slots));
    }

    pub(super) fn halt(&mut self, now: Timestamp, slots: &mut Slots) {
        once!(self, halt(now, slots));
    }

    pub(super) fn resume(&mut self, now: Timestamp, slots: &mut Slots) {
        once!(self, resume(now, slots));
    }

    pub(super) fn drain(&mut self, until: Timestamp, now: Timestamp, slots: &mut Slots) {
        once!(self, drain(until, now, slots));
    }

    pub(super) fn lose(&mut self, now: Timestamp, slots: &mut Slots) {
        once!(self, lose(now, slots));
    }

    pub(super) fn next_wakeup(&self, now: Timestamp, slots: &Slots) -> Option<Timestamp> {
        match self {
            Driver::Plain(lane) => lane.next_wakeup(now, slots),
            Driver::Part(whole, 0) => whole.next_wakeup(now, slots),
            Driver::Part(..) => None,
        }
    }

    /// How many records could run and have no slot.
    pub(super) fn ready(&self) -> usize {
        match self {
            Driver::Plain(lane) => lane.ready(),
            Driver::Part(whole, 0) => whole.ready(),
            Driver::Part(..) => 0,
        }
    }

    /// How many records wait, are ready or stand aside.
    pub(super) fn held(&self) -> usize {
        match self {
            Driver::Plain(lane) => lane.held().0,
            Driver::Part(whole, 0) => whole.held().0,
            Driver::Part(..) => 0,
        }
    }

    /// Until when it keeps what waits.
    pub(super) fn horizon(&self) -> Option<Timestamp> {
        self.look(Lane::horizon, Lane::horizon)
    }

    pub(super) fn census(&self) -> Census {
        self.look(Lane::census, Lane::census).unwrap_or_default()
    }

    /// A record whose run is over and which is not settled, with its runs in place.
    pub(super) fn active(&self, offset: i64) -> Option<(&Record, InPlace)> {
        let (load, in_place) = match self {
            Driver::Plain(lane) => lane.active(offset)?,
            Driver::Part(whole, part) => {
                let (ranked, in_place) = whole.part(*part)?.active(offset)?;
                (&ranked.payload, in_place)
            }
        };
        Some((load.record()?, in_place))
    }

    /// When a record that is under way was due.
    pub(super) fn due(&self, offset: i64) -> Option<Timestamp> {
        self.look(|it| it.due(offset), |it| it.due(offset)).flatten()
    }

    /// Where a record is being published to.
    pub(super) fn publishing(&self, offset: i64) -> Option<&Hop<Arc<Outgoing>>> {
        match self {
            Driver::Plain(lane) => lane.publishing(offset),
            Driver::Part(whole, part) => whole.part(*part)?.publishing(offset),
        }
    }

    /// Which part a record goes to that is being published. None for a lane without parts, and for dead letters.
    pub(super) fn target(&self, offset: i64) -> Option<Part> {
        let Driver::Part(_, part) = self else {
            return None;
        };
        match self.publishing(offset)? {
            Hop::Verdict(it) => it.tier.map(|it| it + 1),
            Hop::Follow => Some(1),
            Hop::Reappend => Some(*part),
            Hop::DeadLetter(_) | Hop::Relay => None,
        }
    }
}

/// What a part asks for, without ranks. Commits and drains are not among it.
pub(super) fn unranked(
    action: Action<Ranked<Load>, Arc<Outgoing>>,
) -> Option<Action<Load, Arc<Outgoing>>> {
    Some(match action {
        Action::Run { offset, payload, in_place } => {
            Action::Run { offset, payload: payload.payload, in_place }
        }
        Action::Publish { offset, payload, hop } => {
            Action::Publish { offset, payload: payload.payload, hop }
        }
        Action::Fetch { ticket, ranges } => Action::Fetch { ticket, ranges },
        Action::Store(block) => Action::Store(block),
        Action::Delete(id) => Action::Delete(id),
        Action::Pause => Action::Pause,
        Action::Resume => Action::Resume,
        Action::Halted { offset } => Action::Halted { offset },
        Action::Tell(event) => Action::Tell(event),
        Action::Commit { .. } | Action::Drained => return None,
    })
}
