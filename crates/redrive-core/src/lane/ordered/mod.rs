//! The ordered lane: partition *i* of a source topic with partition *i* of each of its tiers, and the events of each entity
//! in their order.
//!
//! It has one [`Lane`] for each of its partitions, its *parts*, and decides whose turn it is: while an entity has something
//! pending, its later records stand aside, and of those that are pending the one that was produced first runs. What is
//! pending is not shared state. It is read off the tiers when the lane is assigned, before the source is read, and kept in
//! memory afterwards.
//!
//! # What a driver does
//!
//! 1. **When the source's partition is assigned**, and in this order: fetch the committed offsets of all parts; note the end of the state topic and read it up to
//!    there: blocks, and the lane's [`Marker`]s; note the end of each tier (of all that is there, committed or not), and when these are known the end of the source: what the
//!    owner before has sent to a tier is then below it. Then [`OrderedLane::assigned`].
//! 2. **Read** the tiers from [`OrderedLane::position`], and tell of every record ([`OrderedLane::fetched_all`]) and of offsets that hold none
//!    ([`OrderedLane::passed`]). The source stays paused until the lane asks for [`Action::Resume`] of part 0: by then everything below the noted
//!    ends was read, and the lane's epoch is committed.
//! 3. **Carry actions out** ([`OrderedLane::next_action`]). A hop to a tier goes to the lane's own partition number, with the record's hop number plus one and
//!    [`OrderedLane::epoch`] in its headers, re-appends too. When it is acknowledged, [`OrderedLane::published`] is told the offset behind
//!    it. Markers, and their deletion, are told of by [`OrderedLane::marked`] and [`OrderedLane::unmarked`].
//! 4. **Commit** all parts of [`OrderedAction::Commit`] in one request, which is accepted as a whole or not at all.
//! 5. **Follow the state topic**: what comes there is told by [`OrderedLane::marker`] and [`OrderedLane::marker_deleted`].
//! 6. **Look where the source ends** when [`OrderedAction::FindEnd`] asks for it, and tell it by [`OrderedLane::source_ends`].

mod records;
mod room;
mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use super::closed::{Closed, Marker};
use super::entities::{Copy, Entities, Part, Sent, State};
use super::entity::{EntityId, Identity, Rank, Ranked};
use super::epochs::Epochs;
use super::folds::Folds;
use super::{
    Action, Assigned, Fate, Item, LOOK_EVERY, Lane, LaneConfig, LaneKind, Next, Order,
    PUBLISH_AGAIN, Payload, Phase, Run, Slots,
};
use crate::mutation::{self, Mutation};
use crate::offsets::{BlockId, MapError};
use crate::time::Timestamp;
use crate::verdict::Reason;

/// What becomes of an entity when one of its records is dead-lettered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDeadLetter {
    /// Those behind it are dead-lettered as well, until an operator opens the entity again.
    #[default]
    Hold,
    /// Those behind it run.
    Release,
}

/// How an ordered lane is set up.
#[derive(Clone, Debug)]
pub struct OrderedConfig {
    /// How each of its parts is. The index limit is for all of them together.
    pub lane: LaneConfig,
    /// What becomes of an entity when one of its records is dead-lettered.
    pub on_dead_letter: OnDeadLetter,
    /// Whether hops and commits are one transaction. Then there are no epochs: what a deposed owner publishes is aborted.
    pub is_exactly_once: bool,
}

/// A hop knows where it goes.
pub trait Routed {
    /// Which of the lane's tiers it goes to, from 0. None: the dead-letter topic.
    fn tier(&self) -> Option<usize>;
}

impl<T: Routed + ?Sized> Routed for Arc<T> {
    fn tier(&self) -> Option<usize> {
        (**self).tier()
    }
}

impl<T: Routed + ?Sized> Routed for Rc<T> {
    fn tier(&self) -> Option<usize> {
        (**self).tier()
    }
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderedAction<P, H> {
    /// With one of the parts. There are no [`Action::Commit`] and [`Action::Drained`] among them.
    Part {
        /// Which.
        part: Part,
        /// What.
        action: Action<Ranked<P>, H>,
    },
    /// Commit all parts in one request, and tell whether it worked.
    Commit {
        /// Commit point and map of each part, in order.
        parts: Vec<(i64, String)>,
    },
    /// Put a marker into the state topic, and tell whether it worked. With exactly-once it is a part of the transaction
    /// that the entity's dead letter, which comes next, is in, and there is nothing to tell.
    Mark {
        /// Which.
        marker: Marker,
        /// The record that is to be dead-lettered.
        payload: P,
    },
    /// Delete a marker of the state topic, and tell whether it worked.
    Unmark(Marker),
    /// Tell where the source ends, as it is after this, for as long as it takes.
    FindEnd,
    /// Nothing is under way any more, and what is settled is committed: the lane may go.
    Drained,
}

/// How an ordered lane is, for those who look at it from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OrderedCensus {
    /// How many entities have something pending.
    pub entities: usize,
    /// How many entities are closed.
    pub closed: usize,
    /// How many records of entities are pending. Folded ones are not counted.
    pub pending: usize,
    /// How many copies were void so far.
    pub void: u64,
    /// How many copies were superseded by others so far.
    pub superseded: u64,
}

/// A lane whose entities' events run in order.
#[derive(Debug)]
pub struct OrderedLane<P, H> {
    config: OrderedConfig,
    lanes: Vec<Lane<Ranked<P>, H>>,
    entities: Entities,
    folds: Folds,
    closed: Closed,
    epochs: Epochs,
    stage: Stage,
    /// Where each part ended when the lane was assigned. The source's end may have been asked for again since.
    ends: Vec<i64>,
    /// Up to which origin it is known whether the source goes as far, and up to which that was asked for.
    probed: i64,
    probing: Option<i64>,
    /// Records on their way to a tier.
    hops: BTreeMap<(EntityId, Identity), Hopping>,
    /// Those of them whose tier is still to be read up to an offset.
    landing: BTreeSet<(Part, i64, EntityId, Identity)>,
    /// Copies that were found while an older one was under way, each until that one has ended. Were they settled before, an owner
    /// after this one could find the older one alone.
    newer: BTreeMap<(EntityId, Identity), Copy>,
    /// Entities that wait for the source to be read past an offset.
    behind_source: BTreeSet<(i64, EntityId)>,
    /// Closed entities to be opened once the first tier is read up to an offset, and where their markers were deleted.
    opening: BTreeSet<(i64, Marker, i64)>,
    /// Where markers were deleted that are not known to be there yet.
    deleted: BTreeMap<Marker, i64>,
    /// Dead letters that wait for their entity's marker.
    marking: BTreeMap<Marker, (Part, Action<Ranked<P>, H>)>,
    /// Markers that were read before the lane was open, each with its offset.
    markers: Vec<(Marker, i64)>,
    /// Markers that are being deleted.
    unmarking: BTreeSet<Marker>,
    /// What could not be written to the state topic, and when to try again.
    again: Vec<OrderedAction<P, H>>,
    again_at: Option<Timestamp>,
    /// When to ask again for what was folded away and could not be read.
    scan_at: Option<Timestamp>,
    /// When to look again for heads that take long, while the source is held back.
    relieve_at: Option<Timestamp>,
    /// With more records than this it is tried again to fold some away.
    full_at: usize,
    /// When parked records are to be appended again.
    aging: BTreeSet<(Timestamp, EntityId, Identity)>,
    /// Entities to be looked at.
    touched: Vec<EntityId>,
    /// The offset behind the hop that was acknowledged last.
    below: i64,
    void: u64,
    superseded: u64,
    actions: VecDeque<OrderedAction<P, H>>,
    /// Whether parts have something new to do.
    is_stirred: bool,
    /// Whether the lane's epoch was to be committed already, and that failed.
    has_claimed: bool,
    is_halted: bool,
}

/// A record on its way to a tier.
#[derive(Clone, Copy, Debug)]
struct Hopping {
    to: Part,
    hop: u32,
    /// Once it is acknowledged: below which offset it is.
    below: Option<i64>,
    /// The copy that was read.
    copy: Option<Copy>,
}

/// Where a lane is with taking over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The tiers are being read.
    Rebuilding,
    /// Its epoch is being committed.
    Claiming,
    Open,
    Closed,
}

impl<P: Payload, H: Clone + Routed> OrderedLane<P, H> {
    /// A lane that was just assigned: the source's partition first, then the tiers'. The source is not to be read yet.
    /// [`OrderedLane::tick`] comes first, since there may be nothing to read.
    ///
    /// # Errors
    ///
    /// A map is of a newer version: to go on would run records twice.
    pub fn assigned(
        config: OrderedConfig,
        parts: &[Assigned<'_>],
        state_end: i64,
        markers: impl IntoIterator<Item = (Marker, i64)>,
        now: Timestamp,
        stored: impl Fn(Part) -> Vec<BlockId>,
        block: impl Fn(Part, BlockId) -> Option<Vec<u8>>,
    ) -> Result<Self, MapError> {
        let mut lanes = Vec::with_capacity(parts.len());
        for (part, assigned) in parts.iter().enumerate() {
            let kind = if part == 0 { LaneKind::Source } else { LaneKind::Retry };
            // What is folded away is decided here.
            let lane = LaneConfig {
                kind,
                order: Order::Entity,
                index_limit: usize::MAX,
                ..config.lane.clone()
            };
            let block = |id| block(part, id);
            lanes.push(Lane::assigned(lane, assigned, now, stored(part), block)?.rebuilding());
        }
        let ends: Vec<_> = parts.iter().map(|it| it.log_end).collect();
        let fences = lanes.iter().map(Lane::fence).collect();
        let noted = ends.iter().skip(1).copied();
        let epochs = Epochs::new(fences, [state_end].into_iter().chain(noted).collect());
        let mut lane = Self {
            config,
            lanes,
            entities: Entities::default(),
            folds: Folds::default(),
            closed: Closed::default(),
            epochs,
            stage: Stage::Rebuilding,
            ends,
            probed: -1,
            probing: None,
            hops: BTreeMap::new(),
            landing: BTreeSet::new(),
            newer: BTreeMap::new(),
            behind_source: BTreeSet::new(),
            opening: BTreeSet::new(),
            deleted: BTreeMap::new(),
            marking: BTreeMap::new(),
            markers: Vec::new(),
            unmarking: BTreeSet::new(),
            again: Vec::new(),
            again_at: None,
            scan_at: None,
            relieve_at: None,
            full_at: 0,
            aging: BTreeSet::new(),
            touched: Vec::new(),
            below: 0,
            void: 0,
            superseded: 0,
            actions: VecDeque::new(),
            is_stirred: false,
            has_claimed: false,
            is_halted: false,
        };
        let pause = OrderedAction::Part { part: 0, action: Action::Pause };
        lane.actions.push_back(pause);
        for (marker, offset) in markers {
            lane.take_marker(marker, offset);
        }
        Ok(lane)
    }

    /// The broker takes less metadata than was thought.
    pub fn shorten_metadata(&mut self) {
        self.lanes.iter_mut().for_each(Lane::shorten_metadata);
    }

    /// Sets how many bytes of payloads are kept for a part's waiting records from now on, as [`Lane::set_byte_budget`] does.
    pub fn set_byte_budget(&mut self, part: Part, bytes: usize, now: Timestamp, slots: &mut Slots) {
        self.feed(part, now, slots, |lane, slots| lane.set_byte_budget(bytes, now, slots));
    }

    /// How many records could run and have no slot.
    pub fn ready(&self) -> usize {
        self.lanes.iter().map(Lane::ready).sum()
    }

    /// The epoch that hops to a tier are to carry.
    pub fn epoch(&self) -> Option<u64> {
        self.epochs.own().filter(|_| !self.config.is_exactly_once)
    }

    /// Where a part is to be read from.
    pub fn position(&self, part: Part) -> i64 {
        self.lanes.get(part).map_or(0, Lane::position)
    }

    /// The offset below which everything in a part is settled.
    pub fn commit_point(&self, part: Part) -> i64 {
        self.lanes.get(part).map_or(0, Lane::commit_point)
    }

    /// Whether everything pending was read and the lane's epoch is committed, so that records run.
    pub fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// The record that the others of a closed entity follow.
    pub fn head(&self, entity: EntityId) -> Option<Identity> {
        self.closed.head(entity)
    }

    /// The record that one follows which goes to the dead-letter topic unrun ([`Reason::Follower`]). Its entity may have been opened
    /// since.
    pub fn follows(&self, rank: &Rank) -> Option<Identity> {
        match self.entities.pending(rank.entity, rank.identity)?.state {
            State::Sent(Sent::Dead(head)) => Some(head),
            _ => None,
        }
    }

    /// The entities that are closed, each with its head.
    pub fn closed(&self) -> impl Iterator<Item = (EntityId, Identity)> {
        self.closed.iter()
    }

    /// How many records an entity has pending, and the first of them.
    pub fn pending(&self, entity: EntityId) -> Option<(usize, Identity)> {
        let entity = self.entities.get(entity)?;
        entity.first().map(|it| (entity.len(), it.0))
    }

    /// Everything that is pending of entities: whose it is, which event, and where its copy stands. By entity, and then in the order in
    /// which they run. What is folded away is not among it.
    pub fn all_pending(&self) -> impl Iterator<Item = (EntityId, Identity, Part, i64)> {
        let mut all: Vec<_> = self.entities.iter().collect();
        all.sort_unstable_by_key(|it| it.0);
        all.into_iter().flat_map(|(id, entity)| {
            entity.iter().map(move |(it, pending)| (id, it, pending.copy.part, pending.copy.offset))
        })
    }

    /// How it is.
    pub fn census(&self) -> OrderedCensus {
        OrderedCensus {
            entities: self.entities.len(),
            closed: self.closed.len(),
            pending: self.entities.records(),
            void: self.void,
            superseded: self.superseded,
        }
    }

    /// How many records wait, are ready or stand aside, and how many bytes their payloads take in memory.
    pub fn held(&self) -> (usize, usize) {
        let bytes = self.lanes.iter().map(|it| it.held().1).sum();
        let waiting: usize = self.lanes.iter().map(|it| it.held().0).sum();
        (waiting.max(self.entities.records()), bytes)
    }

    /// Whether records are folded away.
    pub fn is_folded(&self) -> bool {
        !self.folds.is_empty()
    }

    /// One of its parts, to be looked at.
    pub fn part(&self, part: Part) -> Option<&Lane<Ranked<P>, H>> {
        self.lanes.get(part)
    }

    /// Records of a part were read, in this order.
    pub fn fetched_all(
        &mut self,
        part: Part,
        items: impl IntoIterator<Item = Item<Ranked<P>>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        if self.is_closed() || part >= self.lanes.len() {
            return;
        }
        for item in items {
            self.take_in(part, item, now, slots);
        }
        self.read_on(part);
        self.make_room(now);
        self.turn(Some(part), now, slots);
    }

    /// Everything of a part below `offset` was read: there is nothing more of it.
    pub fn passed(&mut self, part: Part, offset: i64, now: Timestamp, slots: &mut Slots) {
        if let Some(lane) = self.lane(part) {
            lane.passed(offset, now, slots);
            self.read_on(part);
            self.turn(None, now, slots);
        }
    }

    /// A record was read again.
    pub fn refetched(
        &mut self,
        part: Part,
        mut item: Item<Ranked<P>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        if self.folds.came(part, item.offset) && self.lanes[part].unfold(item.offset) {
            self.file(part, item, true, now, slots);
            return self.turn(None, now, slots);
        }
        if let Some(rank) = item.payload.rank
            && let Some(pending) = self.entities.pending(rank.entity, rank.identity)
            && let State::Sent(sent) = pending.state
            && (pending.copy.part, pending.copy.offset) == (part, item.offset)
        {
            item.fate = fate_of(sent);
        }
        self.feed(part, now, slots, |lane, slots| lane.refetched(item, now, slots));
    }

    /// Offsets that were asked for were read to their end. What was not among them is gone.
    pub fn refetch_done(&mut self, part: Part, ticket: u64, now: Timestamp, slots: &mut Slots) {
        if let Some(piece) = self.folds.read(part, ticket, true, now) {
            self.lanes[part].lose_missing(&piece);
            return self.turn(None, now, slots);
        }
        self.feed(part, now, slots, |lane, slots| lane.refetch_done(ticket, now, slots));
    }

    /// Offsets that were asked for could not be read.
    pub fn refetch_failed(&mut self, part: Part, ticket: u64, now: Timestamp, slots: &mut Slots) {
        if self.folds.read(part, ticket, false, now).is_some() {
            self.scan_at = Some(now.after(LOOK_EVERY));
            return self.turn(None, now, slots);
        }
        self.feed(part, now, slots, |lane, slots| lane.refetch_failed(ticket, now, slots));
    }

    /// Runs have succeeded.
    pub fn succeeded_all(
        &mut self,
        part: Part,
        runs: impl IntoIterator<Item = Range<i64>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        self.feed(part, now, slots, |lane, slots| lane.succeeded_all(runs, now, slots));
    }

    /// The payload of a run that did not succeed comes back, before anything is told of that run.
    pub fn given_back(&mut self, part: Part, offset: i64, payload: P) {
        if let Some(lane) = self.lane(part)
            && let Some((Ranked { rank, .. }, _)) = lane.active(offset)
        {
            let rank = *rank;
            lane.given_back(offset, Ranked { rank, payload });
        }
    }

    /// A run has failed. Returns whether a verdict is wanted, which [`OrderedLane::judged`] takes before the lane is told anything else.
    pub fn failed(
        &mut self,
        part: Part,
        offset: i64,
        retryable: bool,
        now: Timestamp,
        slots: &mut Slots,
    ) -> bool {
        let is_wanted =
            self.lane(part).is_some_and(|lane| lane.failed(offset, retryable, now, slots));
        // Nothing comes between a failure and its verdict: a lane whose time to drain is over would be gone before it.
        if !is_wanted {
            self.turn(None, now, slots);
        }
        is_wanted
    }

    /// The verdict on a run that failed.
    pub fn judged(
        &mut self,
        part: Part,
        offset: i64,
        next: Next<H>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        self.feed(part, now, slots, |lane, slots| lane.judged(offset, next, now, slots));
    }

    /// A record has reached its next stop, where it is below this offset. A broker that does not tell the offset is asked for the
    /// end of the partition. Of a dead letter it does not matter.
    pub fn published(
        &mut self,
        part: Part,
        offset: i64,
        below: i64,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        self.below = below;
        self.feed(part, now, slots, |lane, slots| lane.published(offset, now, slots));
        self.below = 0;
    }

    /// A record did not reach its next stop. It is tried again for as long as it takes.
    pub fn publish_failed(&mut self, part: Part, offset: i64, now: Timestamp, slots: &mut Slots) {
        self.feed(part, now, slots, |lane, slots| lane.publish_failed(offset, now, slots));
    }

    /// A record did not reach its next stop, and nothing is wrong with that: it is published again at once.
    pub fn publish_again(&mut self, part: Part, offset: i64, now: Timestamp, slots: &mut Slots) {
        self.feed(part, now, slots, |lane, slots| lane.publish_again(offset, now, slots));
    }

    /// A record's next stop will never take it, so that it is to go elsewhere.
    pub fn redirected(
        &mut self,
        part: Part,
        offset: i64,
        next: Next<H>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        // It is not on its way to where it was to go.
        if let Some((payload, _)) = self.part(part).and_then(|it| it.active(offset))
            && let Some(rank) = payload.rank
        {
            let key = (rank.entity, rank.identity);
            let copy = self.hops.remove(&key).and_then(|it| it.copy);
            self.newer.extend(copy.map(|it| (key, it)));
        }
        self.feed(part, now, slots, |lane, slots| lane.redirected(offset, next, now, slots));
    }

    /// A block is in the state topic.
    pub fn stored(&mut self, part: Part, id: BlockId, now: Timestamp, slots: &mut Slots) {
        self.feed(part, now, slots, |lane, slots| lane.stored(id, now, slots));
    }

    /// A block could not be stored. Returns whether the commit in the making needs it, and so fails.
    pub fn store_failed(
        &mut self,
        part: Part,
        id: BlockId,
        now: Timestamp,
        slots: &mut Slots,
    ) -> bool {
        let is_needed = self.lane(part).is_some_and(|lane| lane.store_failed(id, now, slots));
        if is_needed {
            self.commit_failed(now, slots);
        }
        is_needed
    }

    /// A commit was accepted.
    pub fn committed(&mut self, now: Timestamp, slots: &mut Slots) {
        if self.is_closed() {
            return;
        }
        self.lanes.iter_mut().for_each(|lane| lane.committed(now, slots));
        if self.stage == Stage::Claiming {
            self.open();
        }
        self.turn(None, now, slots);
    }

    /// A commit was not accepted. It is built anew from what is true then.
    pub fn commit_failed(&mut self, now: Timestamp, slots: &mut Slots) {
        if !self.is_closed() {
            self.drop_commit();
            self.lanes.iter_mut().for_each(|lane| lane.commit_failed(now, slots));
            self.turn(None, now, slots);
        }
    }

    /// A transaction is about to end that these records' hops are in, by part. A commit is built which says that they are
    /// settled, and is to be part of it.
    pub fn close_transaction(
        &mut self,
        sent: &BTreeMap<Part, Vec<i64>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        if self.is_closed() || self.stage != Stage::Open {
            return;
        }
        self.drop_commit();
        for (part, lane) in self.lanes.iter_mut().enumerate() {
            lane.close_transaction(sent.get(&part).map_or(&[], Vec::as_slice), now, slots);
        }
        self.turn(None, now, slots);
    }

    /// A marker is in the state topic, at this offset if the broker has told it.
    pub fn marked(
        &mut self,
        marker: Marker,
        offset: Option<i64>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        if let Some((part, action)) = self.marking.remove(&marker).filter(|_| !self.is_closed()) {
            self.close(marker, offset.unwrap_or(i64::MIN));
            self.actions.push_back(OrderedAction::Part { part, action });
            self.turn(None, now, slots);
        }
    }

    /// A marker is deleted.
    pub fn unmarked(&mut self, marker: Marker, now: Timestamp, slots: &mut Slots) {
        if self.unmarking.remove(&marker) && !self.is_closed() {
            self.closed.open(marker, i64::MAX);
            self.touch(marker.entity);
            self.turn(None, now, slots);
        }
    }

    /// A marker could not be written. It is tried again for as long as it takes.
    pub fn mark_failed(&mut self, marker: Marker, now: Timestamp) {
        if let Some((_, Action::Publish { payload, .. })) = self.marking.get_mut(&marker) {
            let payload = payload.payload.share();
            self.try_again(OrderedAction::Mark { marker, payload }, now);
        }
    }

    /// A marker could not be deleted. It is tried again for as long as it takes.
    pub fn unmark_failed(&mut self, marker: Marker, now: Timestamp) {
        if self.unmarking.contains(&marker) {
            self.try_again(OrderedAction::Unmark(marker), now);
        }
    }

    fn try_again(&mut self, action: OrderedAction<P, H>, now: Timestamp) {
        if !self.is_closed() {
            self.again.push(action);
            self.again_at.get_or_insert(now.after(PUBLISH_AGAIN.0));
        }
    }

    /// A marker of this lane was read in the state topic, at this offset.
    pub fn marker(&mut self, marker: Marker, offset: i64, now: Timestamp, slots: &mut Slots) {
        match self.stage {
            Stage::Closed => {}
            // It is this owner's own, or that of one that comes after it.
            _ if self.config.is_exactly_once => {}
            // Until its own epoch is committed it cannot tell who comes before and who comes after.
            Stage::Rebuilding | Stage::Claiming => self.markers.push((marker, offset)),
            Stage::Open => {
                self.take_marker(marker, offset);
                self.turn(None, now, slots);
            }
        }
    }

    /// The deletion of a marker of this lane was read in the state topic, at this offset. An operator who sends an entity's records back
    /// deletes its markers when all of them are there, so that the lane has to read the first tier up to the end that
    /// it has after that.
    pub fn marker_deleted(
        &mut self,
        marker: Marker,
        offset: i64,
        first_tier_end: i64,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        if !self.is_closed() {
            let below = if mutation::is(Mutation::OpenAtOnce) { 0 } else { first_tier_end };
            // An operator may be faster than the acknowledgement.
            let is_on_its_way = self.marking.contains_key(&marker)
                || (self.config.is_exactly_once
                    && self.entities.pending(marker.entity, marker.head).is_some());
            if is_on_its_way {
                self.deleted.insert(marker, offset);
            }
            self.opening.insert((below, marker, offset));
            self.open_entities();
            self.turn(None, now, slots);
        }
    }

    /// The source ends here, as it is since it was asked for.
    pub fn source_ends(&mut self, end: i64, now: Timestamp, slots: &mut Slots) {
        if let Some(origin) = self.probing.take().filter(|_| !self.is_closed()) {
            self.probed = self.probed.max(origin);
            self.ends[0] = self.ends[0].max(end);
            self.read_source_on();
            self.find_end();
            self.turn(None, now, slots);
        }
    }

    fn take_marker(&mut self, marker: Marker, offset: i64) {
        let epoch = marker.epoch;
        // What this owner wrote it knows; and one that comes after it has other reasons.
        if epoch.is_some() && self.epochs.own().is_some_and(|own| epoch >= Some(own)) {
            return;
        }
        if !self.epochs.is_void(0, offset, epoch) {
            self.closed.close(marker, offset);
        } else if !mutation::is(Mutation::KeepVoidMarkers) {
            self.unmark(marker);
        }
    }

    /// Opens entities once everything is read that an operator sent back before.
    fn open_entities(&mut self) {
        let position = self.lanes.get(1).map_or(i64::MAX, Lane::position);
        while let Some((below, marker, deleted_at)) = self.opening.first().copied()
            && below <= position
        {
            self.opening.pop_first();
            self.closed.open(marker, deleted_at);
            self.touch(marker.entity);
            if self.folds.may_have(marker.entity) {
                self.folds.seek();
            }
        }
    }

    /// Closes an entity, unless its marker was deleted already.
    fn close(&mut self, marker: Marker, offset: i64) {
        if self.deleted.remove(&marker).is_none_or(|deleted_at| deleted_at < offset) {
            self.closed.close(marker, offset);
        }
    }

    fn unmark(&mut self, marker: Marker) {
        if self.unmarking.insert(marker) {
            self.actions.push_back(OrderedAction::Unmark(marker));
        }
    }

    /// The clock is looked at.
    pub fn tick(&mut self, now: Timestamp, slots: &mut Slots) {
        if self.is_closed() {
            return;
        }
        if self.again_at.is_some_and(|at| at <= now || at > now.after(PUBLISH_AGAIN.0)) {
            self.again_at = None;
            self.actions.extend(std::mem::take(&mut self.again));
        }
        self.lanes.iter_mut().for_each(|lane| lane.tick(now, slots));
        self.turn(None, now, slots);
    }

    /// The lane is to run nothing more until it is told to go on.
    pub fn halt(&mut self, now: Timestamp, slots: &mut Slots) {
        self.is_halted = true;
        self.lanes.iter_mut().for_each(|lane| lane.halt(now, slots));
        self.turn(None, now, slots);
    }

    /// A lane that halted goes on.
    pub fn resume(&mut self, now: Timestamp, slots: &mut Slots) {
        self.is_halted = false;
        self.lanes.iter_mut().for_each(|lane| lane.resume(now, slots));
        self.turn(None, now, slots);
    }

    /// The lane goes to somebody else, or the process ends: what is under way may end until then.
    pub fn drain(&mut self, until: Timestamp, now: Timestamp, slots: &mut Slots) {
        if self.is_closed() {
            return;
        }
        if self.stage == Stage::Open {
            self.lanes.iter_mut().for_each(|lane| lane.drain(until, now, slots));
            self.turn(None, now, slots);
        } else {
            // It has not begun, and has nothing to say.
            self.lose(now, slots);
            self.actions.push_back(OrderedAction::Drained);
        }
    }

    /// The lane is gone already: nothing may be committed any more, and results do not count.
    pub fn lose(&mut self, now: Timestamp, slots: &mut Slots) {
        self.lanes.iter_mut().for_each(|lane| lane.lose(now, slots));
        self.actions.clear();
        self.stage = Stage::Closed;
    }

    /// What is to be done next.
    pub fn next_action(&mut self) -> Option<OrderedAction<P, H>> {
        for part in 0..self.lanes.len() {
            let run = self.lane(part).and_then(Lane::next_run);
            if let Some(Run { offset, payload, in_place }) = run {
                let action = Action::Run { offset, payload, in_place };
                return Some(OrderedAction::Part { part, action });
            }
        }
        self.actions.pop_front()
    }

    /// What of the source is to run next. [`OrderedLane::next_action`] gives the same, as one action among others.
    pub fn next_source_run(&mut self) -> Option<Run<Ranked<P>>> {
        self.lane(0)?.next_run()
    }

    /// When to come back with [`OrderedLane::tick`], if nothing happens before. It is later than `now`.
    pub fn next_wakeup(&self, now: Timestamp, slots: &Slots) -> Option<Timestamp> {
        if self.is_closed() {
            return None;
        }
        let parts = self.lanes.iter().filter_map(|it| it.next_wakeup(now, slots));
        let aging = self.aging.first().map(|it| it.0);
        let folds = self.folds.wake(self.config.lane.lead * 4).filter(|it| *it > now);
        let soonest = Timestamp::from_millis(now.as_millis().saturating_add(1));
        parts
            .chain(self.again_at)
            .chain(aging)
            .chain(folds)
            .chain(self.scan_at)
            .chain(self.relieve_at)
            .min()
            .map(|it| it.max(soonest))
    }

    fn is_closed(&self) -> bool {
        self.stage == Stage::Closed
    }

    fn lane(&mut self, part: Part) -> Option<&mut Lane<Ranked<P>, H>> {
        if self.stage == Stage::Closed { None } else { self.lanes.get_mut(part) }
    }

    fn feed(
        &mut self,
        part: Part,
        now: Timestamp,
        slots: &mut Slots,
        input: impl FnOnce(&mut Lane<Ranked<P>, H>, &mut Slots),
    ) {
        if let Some(lane) = self.lane(part) {
            input(lane, slots);
            self.turn(None, now, slots);
        }
    }

    fn turn(&mut self, stirred: Option<Part>, now: Timestamp, slots: &mut Slots) {
        if self.is_closed() {
            return;
        }
        if let Some(part) = stirred {
            self.lanes[part].tick(now, slots);
        }
        if self.stage == Stage::Open {
            self.append_again(now, slots);
        }
        loop {
            for part in 0..self.lanes.len() {
                let ends = self.lanes[part].ends.as_mut().map(std::mem::take).unwrap_or_default();
                for ended in ends {
                    self.ended(part, ended);
                }
                while let Some(action) = self.lanes[part].actions.pop_front() {
                    self.route(part, action);
                }
            }
            if self.stage == Stage::Open {
                self.relieve(now, slots);
            }
            if self.stage != Stage::Open || (self.touched.is_empty() && !self.is_stirred) {
                break;
            }
            let mut touched = std::mem::take(&mut self.touched);
            for id in touched.drain(..) {
                self.schedule(id, now, slots);
            }
            // Its memory is used again.
            touched.append(&mut self.touched);
            self.touched = touched;
            if std::mem::take(&mut self.is_stirred) {
                self.lanes.iter_mut().for_each(|lane| lane.tick(now, slots));
            }
        }
        self.rebuild();
        self.scan(now);
        self.commit(now);
        self.finish_draining(now, slots);
    }

    /// Once everything below the noted ends is read, the lane is claimed.
    fn rebuild(&mut self) {
        let is_read =
            || self.lanes.iter().zip(&self.ends).skip(1).all(|it| it.0.position() >= *it.1);
        if self.stage != Stage::Rebuilding || !(is_read() || mutation::is(Mutation::SkipRebuild)) {
            return;
        }
        if self.config.is_exactly_once {
            return self.open();
        }
        // The next owner cannot tell any more that they are void.
        if !self.unmarking.is_empty() {
            return;
        }
        self.epochs.claim();
        for (part, lane) in self.lanes.iter_mut().enumerate() {
            if let Some(fence) = self.epochs.fence(part) {
                lane.set_fence(fence);
            }
        }
        self.stage = Stage::Claiming;
    }

    fn open(&mut self) {
        self.stage = Stage::Open;
        self.lanes.iter_mut().for_each(Lane::open);
        if self.is_halted {
            self.lanes.iter_mut().for_each(Lane::stop);
        }
        self.is_stirred = true;
        for (marker, offset) in std::mem::take(&mut self.markers) {
            self.take_marker(marker, offset);
        }
        self.touched.extend(self.entities.iter().map(|it| it.0));
    }

    /// What was to be committed is not, though nobody may have heard of it yet.
    fn drop_commit(&mut self) {
        self.actions.retain(|it| !matches!(it, OrderedAction::Commit { .. }));
    }

    fn commit(&mut self, now: Timestamp) {
        let is_built = self.lanes.iter().any(Lane::is_committing);
        let is_time = match self.stage {
            Stage::Rebuilding | Stage::Closed => false,
            Stage::Claiming | Stage::Open => self.lanes.iter().any(|it| it.wants_commit(now)),
        };
        let is_first = self.stage == Stage::Claiming && !self.has_claimed;
        if !is_built && (is_time || is_first) {
            self.has_claimed = true;
            for part in 0..self.lanes.len() {
                self.lanes[part].build_commit(now);
                while let Some(action) = self.lanes[part].actions.pop_front() {
                    self.route(part, action);
                }
            }
        }
        let is_ready = self.lanes.iter().all(|it| it.has_commit_to_send());
        if is_ready {
            let parts = self.lanes.iter_mut().filter_map(Lane::send_commit).collect();
            self.actions.push_back(OrderedAction::Commit { parts });
        }
    }

    fn finish_draining(&mut self, now: Timestamp, slots: &mut Slots) {
        let Some(Phase::Draining(until)) = self.lanes.first().map(|it| it.phase) else {
            return;
        };
        let is_over = now >= until || !self.lanes.iter().any(Lane::is_under_way);
        let is_said = self.lanes.iter().all(|it| !it.is_dirty && !it.is_committing());
        if is_over && is_said {
            self.lanes.iter_mut().for_each(|lane| lane.lose(now, slots));
            self.stage = Stage::Closed;
            self.actions.push_back(OrderedAction::Drained);
        }
    }
}

fn place(part: Part, offset: i64, rank: Option<Rank>) -> Option<(EntityId, Identity)> {
    match rank {
        Some(rank) => Some((rank.entity, rank.identity)),
        None if part == 0 => None,
        None => Some((EntityId::of_place(part, offset), Identity::FIRST)),
    }
}

fn fate_of(sent: Sent) -> Fate {
    match sent {
        Sent::Behind => Fate::Follow,
        Sent::Dead(_) => Fate::DeadLetter(Reason::Follower),
        Sent::Again => Fate::Reappend,
    }
}
