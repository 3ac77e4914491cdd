//! A lane of either kind, as the world drives it: one partition, or all that belong together.

use std::collections::BTreeMap;
use std::rc::Rc;

use redrive_core::Timestamp;
use redrive_core::lane::{
    Action, Item, Lane, Marker, Next, OrderedAction, OrderedLane, Payload, Ranked, Slots,
};
use redrive_core::offsets::BlockId;

use super::{Hops, Record};

pub(super) type Act = Action<Rc<Record>, Hops>;

/// A record in a lane, which does not have it any more while it runs.
pub(super) struct Load(Option<Rc<Record>>);

impl Payload for Load {
    fn lend(&mut self) -> Self {
        Self(self.0.take())
    }

    fn share(&mut self) -> Self {
        Self(self.0.clone())
    }

    fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |it| it.bytes)
    }
}

impl Load {
    #[expect(clippy::expect_used, reason = "no seed may come here")]
    fn record(self) -> Rc<Record> {
        self.0.expect("a lane asks for something with a record that it has lent")
    }
}

/// A lane that a member drives.
pub(super) enum Driven {
    Plain(Box<Lane<Load, Hops>>),
    Ordered(Box<OrderedLane<Load, Hops>>),
}

/// What it asks for.
pub(super) enum Asked {
    Part { part: usize, action: Act },
    Commit(Vec<(i64, String)>),
    Mark(Marker),
    Unmark(Marker),
    FindEnd,
    Drained,
}

macro_rules! either {
    ($self:ident, $part:ident, $name:ident($($argument:expr),*)) => {
        match $self {
            Driven::Plain(lane) => lane.$name($($argument),*),
            Driven::Ordered(lane) => lane.$name($part, $($argument),*),
        }
    };
}

macro_rules! both {
    ($self:ident, $name:ident($($argument:expr),*)) => {
        match $self {
            Driven::Plain(lane) => lane.$name($($argument),*),
            Driven::Ordered(lane) => lane.$name($($argument),*),
        }
    };
}

impl Driven {
    pub(super) fn position(&self, part: usize) -> i64 {
        either!(self, part, position())
    }

    pub(super) fn commit_point(&self, part: usize) -> i64 {
        either!(self, part, commit_point())
    }

    pub(super) fn fetched_all(
        &mut self,
        part: usize,
        items: Vec<Item<Ranked<Rc<Record>>>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        match self {
            Driven::Plain(lane) => lane.fetched_all(items.into_iter().map(plain), now, slots),
            Driven::Ordered(lane) => {
                lane.fetched_all(part, items.into_iter().map(ranked), now, slots)
            }
        }
    }

    pub(super) fn fetched(
        &mut self,
        part: usize,
        item: Item<Ranked<Rc<Record>>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        match self {
            Driven::Plain(lane) => lane.fetched(plain(item), now, slots),
            Driven::Ordered(lane) => lane.fetched_all(part, [ranked(item)], now, slots),
        }
    }

    pub(super) fn refetched(
        &mut self,
        part: usize,
        item: Item<Ranked<Rc<Record>>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        match self {
            Driven::Plain(lane) => lane.refetched(plain(item), now, slots),
            Driven::Ordered(lane) => lane.refetched(part, ranked(item), now, slots),
        }
    }

    pub(super) fn passed(&mut self, part: usize, end: i64, now: Timestamp, slots: &mut Slots) {
        either!(self, part, passed(end, now, slots));
    }

    pub(super) fn refetch_done(&mut self, part: usize, it: u64, now: Timestamp, slots: &mut Slots) {
        either!(self, part, refetch_done(it, now, slots));
    }

    pub(super) fn refetch_failed(
        &mut self,
        part: usize,
        ticket: u64,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        either!(self, part, refetch_failed(ticket, now, slots));
    }

    pub(super) fn succeeded(&mut self, part: usize, it: i64, now: Timestamp, slots: &mut Slots) {
        either!(self, part, succeeded_all(Some(it..it + 1), now, slots));
    }

    pub(super) fn failed(
        &mut self,
        part: usize,
        (offset, record): (i64, Rc<Record>),
        retryable: bool,
        now: Timestamp,
        slots: &mut Slots,
    ) -> bool {
        either!(self, part, given_back(offset, Load(Some(record))));
        either!(self, part, failed(offset, retryable, now, slots))
    }

    pub(super) fn judged(
        &mut self,
        part: usize,
        offset: i64,
        next: Next<Hops>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        either!(self, part, judged(offset, next, now, slots));
    }

    pub(super) fn published(
        &mut self,
        part: usize,
        offset: i64,
        below: i64,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        match self {
            Driven::Plain(lane) => lane.published(offset, now, slots),
            Driven::Ordered(lane) => lane.published(part, offset, below, now, slots),
        }
    }

    pub(super) fn publish_failed(
        &mut self,
        part: usize,
        offset: i64,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        either!(self, part, publish_failed(offset, now, slots));
    }

    pub(super) fn stored(&mut self, part: usize, id: BlockId, now: Timestamp, slots: &mut Slots) {
        either!(self, part, stored(id, now, slots));
    }

    pub(super) fn store_failed(
        &mut self,
        part: usize,
        id: BlockId,
        now: Timestamp,
        slots: &mut Slots,
    ) -> bool {
        either!(self, part, store_failed(id, now, slots))
    }

    pub(super) fn committed(&mut self, now: Timestamp, slots: &mut Slots) {
        both!(self, committed(now, slots));
    }

    pub(super) fn commit_failed(&mut self, now: Timestamp, slots: &mut Slots) {
        both!(self, commit_failed(now, slots));
    }

    pub(super) fn close_transaction(
        &mut self,
        sent: &BTreeMap<usize, Vec<i64>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        match self {
            Driven::Plain(lane) => {
                let sent: Vec<_> = sent.values().flatten().copied().collect();
                lane.close_transaction(&sent, now, slots);
            }
            Driven::Ordered(lane) => lane.close_transaction(sent, now, slots),
        }
    }

    pub(super) fn set_byte_budget(
        &mut self,
        part: usize,
        bytes: usize,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        either!(self, part, set_byte_budget(bytes, now, slots));
    }

    pub(super) fn tick(&mut self, now: Timestamp, slots: &mut Slots) {
        both!(self, tick(now, slots));
    }

    pub(super) fn resume(&mut self, now: Timestamp, slots: &mut Slots) {
        both!(self, resume(now, slots));
    }

    pub(super) fn drain(&mut self, until: Timestamp, now: Timestamp, slots: &mut Slots) {
        both!(self, drain(until, now, slots));
    }

    pub(super) fn lose(&mut self, now: Timestamp, slots: &mut Slots) {
        both!(self, lose(now, slots));
    }

    pub(super) fn next_wakeup(&self, now: Timestamp, slots: &Slots) -> Option<Timestamp> {
        both!(self, next_wakeup(now, slots))
    }

    pub(super) fn held(&self) -> (usize, usize) {
        both!(self, held())
    }

    /// How many records of a plain lane are ready.
    pub(super) fn ready(&self) -> Option<usize> {
        match self {
            Driven::Plain(lane) => Some(lane.census().ready),
            Driven::Ordered(_) => None,
        }
    }

    pub(super) fn is_folded(&self) -> bool {
        both!(self, is_folded())
    }

    pub(super) fn ordered(&mut self) -> Option<&mut OrderedLane<Load, Hops>> {
        match self {
            Driven::Plain(_) => None,
            Driven::Ordered(lane) => Some(lane),
        }
    }

    /// What is to be done next. A plain lane's only part is the one that its partition is.
    pub(super) fn next_action(&mut self, own: usize) -> Option<Asked> {
        Some(match self {
            Driven::Plain(lane) => match lane.next_action()? {
                Action::Commit { offset, metadata } => Asked::Commit(vec![(offset, metadata)]),
                Action::Drained => Asked::Drained,
                action => Asked::Part { part: own, action: with_records(action, |it| it)? },
            },
            Driven::Ordered(lane) => match lane.next_action()? {
                OrderedAction::Part { part, action } => {
                    Asked::Part { part, action: with_records(action, |it| it.payload)? }
                }
                OrderedAction::Commit { parts } => Asked::Commit(parts),
                OrderedAction::Mark { marker, .. } => Asked::Mark(marker),
                OrderedAction::Unmark(marker) => Asked::Unmark(marker),
                OrderedAction::FindEnd => Asked::FindEnd,
                OrderedAction::Drained => Asked::Drained,
            },
        })
    }
}

fn ranked(item: Item<Ranked<Rc<Record>>>) -> Item<Ranked<Load>> {
    item.map(|it| Ranked { rank: it.rank, payload: Load(Some(it.payload)) })
}

fn plain(item: Item<Ranked<Rc<Record>>>) -> Item<Load> {
    item.map(|it| Load(Some(it.payload)))
}

/// An action of a partition with its record. Commits and drains are not among them.
fn with_records<P>(action: Action<P, Hops>, load: impl FnOnce(P) -> Load) -> Option<Act> {
    Some(match action {
        Action::Run { offset, payload, in_place } => {
            Action::Run { offset, payload: load(payload).record(), in_place }
        }
        Action::Publish { offset, payload, hop } => {
            Action::Publish { offset, payload: load(payload).record(), hop }
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
