//! The lane: one partition's records, from being read to being settled.
//!
//! A lane is fed with what happens ([`Lane::fetched`], [`Lane::succeeded`], [`Lane::published`] …) and asked for what is to
//! be done ([`Lane::next_action`]) and for when to come back ([`Lane::next_wakeup`]). It does nothing itself: it knows no
//! Kafka, no clock and no handler. The runtime carries its actions out; the simulation does the same with a cluster that
//! loses acknowledgements, deposes owners and turns clocks back.
//!
//! ```text
//!            fetched                  due                 slot free
//!   (log) ───────────► waiting ─────────────► ready ─────────────────► running
//!                        │  ▲ read again        ▲                        │ finished
//!                        ▼  │ before its time   │ in-place wait over     ▼
//!                       folded                  └──────────────── done? publish? again?
//!                                                                        │
//!                              settled ◄──── published ◄──── publishing ◄┘
//! ```
//!
//! Lanes of a source topic run records as they come and ask for a pause when too many are ready. Lanes of a retry topic let
//! records wait for their due time and never pause because records wait. Lanes of a delay topic do the same, but their run
//! is a publish to the target: a relay.

mod breaker;
mod by_offset;
mod closed;
mod driving;
mod entities;
mod entity;
mod epochs;
mod filter;
mod folds;
mod near;
mod ordered;
mod parking;
mod payload;
mod piece;
mod plain;
mod ready;
mod slots;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::time::Duration;

pub use breaker::{Breaker, Counted};
pub use closed::Marker;
pub use driving::Census;
pub use entities::Part;
pub use entity::{EntityId, Identity, Rank, Ranked};
pub use ordered::{OnDeadLetter, OrderedAction, OrderedCensus, OrderedConfig, OrderedLane, Routed};
pub use payload::Payload;
pub use slots::{Class, Slots};

use crate::mutation::{self, Mutation};
use crate::offsets::{Block, BlockId, MapError, Mark, Progress, Runs, SettledMap};
use crate::time::Timestamp;
use crate::verdict::{InPlace, Reason};
use breaker::Ran;
use by_offset::ByOffset;
use near::Near;
use parking::{Ended, Parked};
use piece::Piece;
use plain::Plain;
use ready::Ready;
use waiting::Waiting;

/// A record on its way through a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item<P> {
    /// Its offset.
    pub offset: i64,
    /// From when on it may run. The time of the Unix epoch for a record that is due at once.
    pub due: Timestamp,
    /// Whether that time stands in the record's own native header, so that a map may speak of it.
    pub is_dated: bool,
    /// Which of the records that are due goes first: the lowest.
    pub priority: u8,
    /// When it was appended to the log.
    pub appended_at: Timestamp,
    /// What it is there for.
    pub fate: Fate,
    /// How much memory its payload takes.
    pub bytes: usize,
    /// The record itself.
    pub payload: P,
}

/// What a record is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// To be run, or relayed.
    Run,
    /// To be dead-lettered unrun.
    DeadLetter(Reason),
    /// Nothing: it is another group's.
    Settle,
    /// To be published unrun to the first retry topic, behind others of its entity.
    Follow,
    /// To be published unrun to the tail of its own topic, before retention deletes it.
    Reappend,
}

impl<P> Item<P> {
    /// The same record with another payload.
    pub fn map<Q>(self, payload: impl FnOnce(P) -> Q) -> Item<Q> {
        let Self { offset, due, is_dated, priority, appended_at, fate, bytes, payload: old } = self;
        let payload = payload(old);
        Item { offset, due, is_dated, priority, appended_at, fate, bytes, payload }
    }

    fn mark(&self) -> Option<Mark> {
        self.dated().map(|due| Mark { due, offset: self.offset })
    }

    fn dated(&self) -> Option<Timestamp> {
        self.is_dated.then_some(self.due)
    }
}

/// What a lane is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneKind {
    /// Runs the records of a source topic.
    Source,
    /// Runs the records of a retry topic when they are due.
    Retry,
    /// Moves the records of a delay topic when they are due.
    Relay,
}

/// What runs in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Nothing.
    #[default]
    None,
    /// One record after the other; one that is retried over a topic loses its place.
    Partition,
    /// The records of one entity, one after the other: the lane is a part of an [`OrderedLane`].
    Entity,
}

/// How a lane is set up.
#[derive(Clone, Debug)]
pub struct LaneConfig {
    /// What it is for.
    pub kind: LaneKind,
    /// What runs in order.
    pub order: Order,
    /// The cluster, by its id.
    pub cluster: String,
    /// How many waiting records have an entry of their own.
    pub index_limit: usize,
    /// How many bytes of payloads are kept for waiting records, with what it takes to keep them, until
    /// [`Lane::set_byte_budget`] says otherwise.
    pub byte_budget: usize,
    /// How many records are ready at the most, and how many relays and dead letters are under way.
    pub ready_limit: usize,
    /// How long before its time a record is read again.
    pub lead: Duration,
    /// How often progress is committed.
    pub commit_every: Duration,
    /// How often progress is committed where there is none, so that it does not expire.
    pub commit_idle_every: Duration,
    /// How many characters of metadata a commit may have.
    pub metadata_chars: usize,
    /// How long the topic keeps records, if not for ever.
    pub retention: Option<Duration>,
}

impl LaneConfig {
    /// The usual settings.
    pub fn new(kind: LaneKind, cluster: impl Into<String>) -> Self {
        Self {
            kind,
            order: Order::None,
            cluster: cluster.into(),
            index_limit: 1_000_000,
            byte_budget: 64 << 20,
            ready_limit: 1024,
            lead: Duration::from_secs(2),
            commit_every: Duration::from_secs(1),
            commit_idle_every: Duration::from_hours(1),
            metadata_chars: 4096,
            retention: None,
        }
    }
}

/// What the verdict on a failed run asks for. `H` is whatever the driver needs to publish the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next<H> {
    /// It is dropped: settle it.
    Settle,
    /// Run it again in place.
    RunAgain {
        /// How long to wait first.
        wait: Duration,
        /// The runs in place with this one.
        in_place: InPlace,
    },
    /// Publish it to its next stop.
    Publish(H),
    /// Halt the lane. The record stays where it is.
    Stop,
}

/// Where a record is published to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hop<H> {
    /// Where the verdict said.
    Verdict(H),
    /// The dead-letter topic, unrun.
    DeadLetter(Reason),
    /// The relay's target.
    Relay,
    /// The tail of its own topic, unchanged, before retention deletes it.
    Reappend,
    /// The first retry topic, unrun and due at once, since others of its entity come before it.
    Follow,
}

/// A record that is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run<P> {
    /// Which.
    pub offset: i64,
    /// The record.
    pub payload: P,
    /// Runs in place so far.
    pub in_place: InPlace,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<P, H> {
    /// Run the record.
    Run {
        /// Which.
        offset: i64,
        /// The record.
        payload: P,
        /// Runs in place so far.
        in_place: InPlace,
    },
    /// Publish the record, and tell whether it worked.
    Publish {
        /// Which.
        offset: i64,
        /// The record.
        payload: P,
        /// Where to.
        hop: Hop<H>,
    },
    /// Read these offsets again, and tell when that is done. They are in order.
    Fetch {
        /// By which the lane knows what it asked for.
        ticket: u64,
        /// Which.
        ranges: Vec<Range<i64>>,
    },
    /// Put a block into the state topic, and tell when it is there.
    Store(Block),
    /// Delete a block of the state topic.
    Delete(BlockId),
    /// Commit, and tell whether it worked.
    Commit {
        /// The commit point.
        offset: i64,
        /// The map.
        metadata: String,
    },
    /// Read no more for now.
    Pause,
    /// Read on.
    Resume,
    /// The lane halted: nothing more runs until it is told to go on.
    Halted {
        /// Which record stopped it.
        offset: i64,
    },
    /// Nothing is under way any more, and what is settled is committed: the partition may go.
    Drained,
    /// Something that people should know.
    Tell(Event),
}

/// Something that people should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The map of the last commit is not used: what is settled above the commit point may run again.
    MapRefused(MapError),
    /// Records that were not settled are gone from the log.
    Lost(Range<i64>),
    /// The map could not say all: what is settled from here on would run again after a restart.
    MapCut(i64),
}

/// What a partition looks like when it is assigned.
#[derive(Clone, Copy, Debug)]
pub struct Assigned<'a> {
    /// The group's committed offset, if there is one.
    pub committed: Option<i64>,
    /// The metadata of that commit.
    pub metadata: &'a str,
    /// The first offset that the log still has.
    pub log_start: i64,
    /// The offset behind the last one.
    pub log_end: i64,
    /// Where to begin without a commit.
    pub start: i64,
}

/// One partition's records, from being read to being settled.
#[derive(Debug)]
pub struct Lane<P, H> {
    config: LaneConfig,
    progress: Progress,
    waiting: Waiting<P>,
    near: Near<P>,
    ready: Ready<P>,
    active: ByOffset<Active<P, H>>,
    /// Those that run and of which nothing but the offset is kept.
    plain: Plain,
    /// When an active record is to be looked at again.
    timers: BTreeSet<(Timestamp, i64)>,
    /// What was asked for, by ticket.
    asked: BTreeMap<u64, Asked>,
    next_ticket: u64,
    refetch_at: Option<Timestamp>,
    committing: Option<Committing>,
    /// The records that are settled with the commit, in one transaction.
    sent: Vec<i64>,
    last_commit: Timestamp,
    /// When the clock was last looked at.
    looked_at: Timestamp,
    is_dirty: bool,
    phase: Phase,
    is_paused: bool,
    wanted: usize,
    /// What is to run. Nearly everything that is to be done is that, and an action of another kind is larger.
    runs: VecDeque<Run<P>>,
    actions: VecDeque<Action<P, H>>,
    /// Records of an ordered lane whose turn has not come.
    parked: Parked<P>,
    /// What an ordered lane has folded away: the first that is to be woken.
    folded: Option<waiting::Key>,
    /// What is over, for an ordered lane.
    ends: Option<Vec<Ended<P, H>>>,
}

#[derive(Debug)]
struct Active<P, H> {
    item: Item<P>,
    in_place: InPlace,
    /// How often it could not be published.
    failures: u32,
    stage: Stage<H>,
}

#[derive(Debug)]
enum Stage<H> {
    /// In its handler.
    Running,
    /// Failed: a verdict is on its way.
    Judged,
    /// Waiting for a run in place.
    Waiting,
    /// On its way to its next stop.
    Publishing(Hop<H>),
    /// To be published again after a failure.
    Failed(Hop<H>),
    /// In a transaction that is about to end.
    Sent(Hop<H>),
    /// It asked to stop: it stays, until the lane goes on.
    Stopped,
}

impl<H> Stage<H> {
    fn is_running(&self) -> bool {
        matches!(self, Stage::Running)
    }
}

/// What a ticket stands for.
#[derive(Debug)]
struct Asked {
    keys: Vec<waiting::Key>,
    scan: Option<Range<i64>>,
}

#[derive(Debug)]
struct Committing {
    offset: i64,
    metadata: String,
    names: Vec<BlockId>,
    /// Blocks that are not stored yet.
    missing: BTreeSet<BlockId>,
    is_sent: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// An ordered lane reads what is pending before anything runs.
    Rebuilding,
    Open,
    Halted,
    /// Until then, what is under way may end.
    Draining(Timestamp),
    Closed,
}

/// Timers look at the clock at least this often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The first and the longest wait after a publish that failed.
const PUBLISH_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// How many requests for records that are near are under way: one that is read, and one that comes next.
const MOST_REQUESTS: usize = 2;

/// How many times its budget all payloads of a lane may take: once for those that wait, the rest for those that are near or ready. To read one of
/// those again costs more than it takes to keep, and where a whole service fails for a moment they are all that fails within seconds.
const SHARES: usize = 4;

/// Records that are near have at least this much memory: one at a time would be late.
const LEAST_BYTES: usize = 4 << 10;

impl<P: Payload, H: Clone> Lane<P, H> {
    /// A lane for a partition that was just assigned.
    ///
    /// # Errors
    ///
    /// The map is of a newer version: to go on would run records twice.
    pub fn assigned(
        config: LaneConfig,
        partition: &Assigned<'_>,
        now: Timestamp,
        stored: impl IntoIterator<Item = BlockId>,
        block: impl Fn(BlockId) -> Option<Vec<u8>>,
    ) -> Result<Self, MapError> {
        let mut actions = VecDeque::new();
        let commit_point = partition.committed.unwrap_or(partition.start);
        let map = match partition.committed {
            None => Err(MapError::Empty),
            Some(offset) => SettledMap::read(
                partition.metadata,
                &config.cluster,
                offset,
                partition.log_end,
                block,
            ),
        };
        let map = match map {
            Ok(map) if !mutation::is(Mutation::IgnoreMap) => map,
            Ok(map) => SettledMap::starting_at(map.commit_point),
            Err(error @ MapError::NewerVersion(_)) => return Err(error),
            Err(error) => {
                if error != MapError::Empty {
                    actions.push_back(Action::Tell(Event::MapRefused(error)));
                }
                SettledMap::starting_at(commit_point)
            }
        };
        let mut progress = Progress::resume(map, stored);
        if partition.log_start > commit_point && partition.committed.is_some() {
            actions.push_back(Action::Tell(Event::Lost(commit_point..partition.log_start)));
        }
        progress.pass(partition.log_start);
        let mut waiting = Waiting::new(config.index_limit, config.byte_budget);
        waiting.make_way(now.after(config.lead), config.byte_budget.saturating_mul(SHARES));
        Ok(Self {
            progress,
            waiting,
            near: Near::new(),
            ready: Ready::new(),
            active: ByOffset::new(),
            plain: Plain::new(),
            timers: BTreeSet::new(),
            asked: BTreeMap::new(),
            next_ticket: 0,
            refetch_at: None,
            committing: None,
            sent: Vec::new(),
            last_commit: now,
            looked_at: now,
            is_dirty: false,
            phase: Phase::Open,
            is_paused: false,
            wanted: 0,
            runs: VecDeque::new(),
            actions,
            parked: Parked::new(),
            folded: None,
            ends: None,
            config,
        })
    }

    /// Where to read from.
    pub fn position(&self) -> i64 {
        self.progress.position()
    }

    /// The offset below which everything is settled.
    pub fn commit_point(&self) -> i64 {
        self.progress.commit_point()
    }

    /// How many records wait or are ready, and how many bytes their payloads take in memory.
    pub fn held(&self) -> (usize, usize) {
        let records = self.waiting.len() + self.near.len() + self.ready.len();
        (records, self.waiting.bytes() + self.near_bytes() + self.parked.bytes())
    }

    /// Records that are due later than this are not kept as things are, but read again when their time is near.
    pub fn horizon(&self) -> Timestamp {
        self.waiting.horizon()
    }

    /// Whether records are folded away.
    pub fn is_folded(&self) -> bool {
        !self.progress.folded().is_empty()
    }

    /// A record was read.
    pub fn fetched(&mut self, item: Item<P>, now: Timestamp, slots: &mut Slots) {
        if !self.is_closed() {
            self.place(item, now, slots);
            self.turn(now, slots);
        }
    }

    /// Records were read, in this order. That is cheaper than one after the other.
    pub fn fetched_all(
        &mut self,
        items: impl IntoIterator<Item = Item<P>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        if !self.is_closed() {
            items.into_iter().for_each(|item| self.place(item, now, slots));
            self.turn(now, slots);
        }
    }

    /// Everything below `offset` was read: there is nothing more of it.
    pub fn passed(&mut self, offset: i64, now: Timestamp, slots: &mut Slots) {
        if !self.is_closed() && offset > self.progress.position() {
            self.progress.pass(offset);
            self.is_dirty = true;
            self.turn(now, slots);
        }
    }

    /// A record was read again.
    pub fn refetched(&mut self, item: Item<P>, now: Timestamp, slots: &mut Slots) {
        if self.is_closed() {
            return;
        }
        let key = (self.wake(&item), item.offset);
        self.waiting.came(item.offset);
        if let Some(item) = self.near.came(key, item)
            && self.waiting.is_scanned(key)
            && self.progress.unfold(item.offset)
        {
            self.wait(key, Some(item));
        }
        self.turn(now, slots);
    }

    /// Offsets that were asked for were read to their end. What was not among them is gone.
    pub fn refetch_done(&mut self, ticket: u64, now: Timestamp, slots: &mut Slots) {
        let Some(asked) = self.asked.remove(&ticket).filter(|_| !self.is_closed()) else {
            return;
        };
        for (wake, offset) in self.near.read(ticket, asked.keys) {
            self.progress.settle(offset, Some(wake));
            self.is_dirty = true;
            self.lost(offset..offset + 1);
            if let Some(ends) = &mut self.ends {
                ends.push(Ended::Gone { offset });
            }
        }
        if let Some(scan) = asked.scan {
            let piece = self.waiting.scanned(&scan, true);
            piece.into_iter().for_each(|it| self.lose_missing(&it));
        }
        self.turn(now, slots);
    }

    /// Tells what was folded away and was not found.
    fn lose_missing(&mut self, piece: &Piece) {
        for gone in piece.missing(self.progress.folded()).iter() {
            self.progress.lose_folded(gone.clone());
            self.is_dirty = true;
            self.lost(gone);
        }
    }

    fn lost(&mut self, offsets: Range<i64>) {
        self.actions.push_back(Action::Tell(Event::Lost(offsets)));
    }

    /// Offsets that were asked for could not be read.
    pub fn refetch_failed(&mut self, ticket: u64, now: Timestamp, slots: &mut Slots) {
        let Some(asked) = self.asked.remove(&ticket).filter(|_| !self.is_closed()) else {
            return;
        };
        self.near.ask_again(ticket, asked.keys);
        if let Some(scan) = asked.scan {
            self.waiting.scanned(&scan, false);
        }
        self.refetch_at = Some(now.after(LOOK_EVERY));
        self.turn(now, slots);
    }

    /// A run has succeeded.
    pub fn succeeded(&mut self, offset: i64, now: Timestamp, slots: &mut Slots) {
        self.succeeded_all(Some(offset..offset + 1), now, slots);
    }

    /// Runs of neighbours have succeeded. That is cheaper than one after the other.
    pub fn succeeded_all(
        &mut self,
        runs: impl IntoIterator<Item = Range<i64>>,
        now: Timestamp,
        slots: &mut Slots,
    ) {
        let mut has_any = false;
        for run in runs {
            let left = plain::length(&run) - self.settle_plain(run.clone(), now, slots);
            has_any |= left < plain::length(&run);
            if left > 0 {
                for offset in run {
                    if self.ended(offset, Ran::Fine, now, slots) {
                        self.settle(offset);
                        has_any = true;
                    }
                }
            }
        }
        if has_any {
            self.turn(now, slots);
        }
    }

    /// Settles those of neighbours that are plain. Returns how many.
    fn settle_plain(&mut self, run: Range<i64>, now: Timestamp, slots: &mut Slots) -> usize {
        let mut settled = 0;
        if plain::length(&run) == 1 {
            settled = usize::from(self.plain.remove(run.start));
            if settled > 0 {
                self.progress.settle(run.start, None);
            }
        } else {
            for part in self.plain.take(run) {
                settled += plain::length(&part);
                self.progress.settle_range(part);
            }
        }
        if settled > 0 {
            self.is_dirty = true;
            if !mutation::is(Mutation::KeepSlots) {
                slots.succeed(class(self.config.kind), settled, now);
            }
        }
        settled
    }

    /// A run has failed. Returns whether a verdict is wanted, which [`Lane::judged`] takes. It is not where the partition is
    /// gone, and where a breaker says that it was nobody's fault: then the record stays in its place.
    pub fn failed(
        &mut self,
        offset: i64,
        retryable: bool,
        now: Timestamp,
        slots: &mut Slots,
    ) -> bool {
        let is_wanted = self.ended(offset, Ran::Failed { retryable }, now, slots);
        if is_wanted && let Some(active) = self.active.get_mut(offset) {
            active.stage = Stage::Judged;
        }
        is_wanted
    }

    /// The run's slot is given back. Returns whether the record is still here.
    fn ended(&mut self, offset: i64, ran: Ran, now: Timestamp, slots: &mut Slots) -> bool {
        if !self.active.get(offset).is_some_and(|it| it.stage.is_running()) {
            return false;
        }
        let stays =
            !mutation::is(Mutation::KeepSlots) && slots.finish(class(self.config.kind), ran, now);
        if stays && self.phase == Phase::Open {
            if let Some(active) = self.active.remove(offset) {
                self.ready.insert(active.item);
            }
            self.turn(now, slots);
            return false;
        }
        true
    }

    /// The verdict on a run that failed.
    pub fn judged(&mut self, offset: i64, next: Next<H>, now: Timestamp, slots: &mut Slots) {
        let is_judged = |it: &&mut Active<P, H>| matches!(it.stage, Stage::Judged);
        let Some(active) = self.active.get_mut(offset).filter(is_judged) else {
            return;
        };
        match next {
            Next::Settle => self.settle(offset),
            Next::RunAgain { wait, in_place } => {
                active.in_place = in_place;
                active.stage = Stage::Waiting;
                // Also where the clock went back since it was due.
                self.timers.insert((now.after(wait).max(active.item.due), offset));
            }
            Next::Publish(hop) => {
                self.publish(offset, Hop::Verdict(hop));
                if mutation::is(Mutation::SettleBeforePublished) {
                    self.settle(offset);
                }
            }
            Next::Stop => {
                active.stage = Stage::Stopped;
                if self.phase == Phase::Open {
                    self.phase = Phase::Halted;
                    self.actions.push_back(Action::Halted { offset });
                }
            }
        }
        self.turn(now, slots);
    }

    /// A record has reached its next stop.
    pub fn published(&mut self, offset: i64, now: Timestamp, slots: &mut Slots) {
        let is_publishing = |it: &Active<P, H>| matches!(it.stage, Stage::Publishing(_));
        if !self.is_closed() && self.active.get(offset).is_some_and(is_publishing) {
            self.settle(offset);
            self.turn(now, slots);
        }
    }

    /// A record did not reach its next stop. It is tried again for as long as it takes.
    pub fn publish_failed(&mut self, offset: i64, now: Timestamp, slots: &mut Slots) {
        let Some(active) = self.active.get_mut(offset).filter(|_| self.phase != Phase::Closed)
        else {
            return;
        };
        if mutation::is(Mutation::IgnorePublishFailure) {
            return self.published(offset, now, slots);
        }
        if let Stage::Publishing(hop) = &active.stage {
            active.stage = Stage::Failed(hop.clone());
            let (first, longest) = PUBLISH_AGAIN;
            let wait = first.saturating_mul(1 << active.failures.min(16)).min(longest);
            active.failures = active.failures.saturating_add(1);
            self.timers.insert((now.after(wait), offset));
            self.turn(now, slots);
        }
    }

    /// A block is in the state topic.
    pub fn stored(&mut self, id: BlockId, now: Timestamp, slots: &mut Slots) {
        self.progress.stored(id);
        if let Some(committing) = &mut self.committing {
            committing.missing.remove(&id);
        }
        self.turn(now, slots);
    }

    /// A block could not be stored. Returns whether the commit in the making needs it, and so fails.
    pub fn store_failed(&mut self, id: BlockId, now: Timestamp, slots: &mut Slots) -> bool {
        let is_needed = self.committing.as_ref().is_some_and(|it| it.missing.contains(&id));
        if is_needed {
            self.commit_failed(now, slots);
        }
        is_needed
    }

    /// A commit was accepted.
    pub fn committed(&mut self, now: Timestamp, slots: &mut Slots) {
        if let Some(committing) = self.committing.take_if(|it| it.is_sent) {
            let obsolete = self.progress.committed(&committing.names);
            for offset in std::mem::take(&mut self.sent) {
                self.end(offset);
            }
            self.actions.extend(obsolete.into_iter().map(Action::Delete));
            self.turn(now, slots);
        }
    }

    /// A commit was not accepted. It is built anew from what is true then; records that were part of
    /// its transaction are published again.
    pub fn commit_failed(&mut self, now: Timestamp, slots: &mut Slots) {
        if self.drop_commit() {
            self.is_dirty = true;
            self.last_commit = now;
            if !mutation::is(Mutation::KeepAborted) {
                self.progress.take_back();
            }
            let has_time = !matches!(self.phase, Phase::Draining(until) if now >= until);
            for offset in std::mem::take(&mut self.sent) {
                let stage = self.active.get(offset).map(|it| &it.stage);
                if let Some(Stage::Sent(hop)) = stage.filter(|_| has_time) {
                    let hop = hop.clone();
                    self.publish(offset, hop);
                }
            }
            // Without time there is no other try.
            self.is_dirty = has_time;
            self.turn(now, slots);
        }
    }

    /// A transaction is about to end that these records' hops are in. A commit is built which says that they are settled, and
    /// is to be part of it: [`Lane::committed`] settles them, [`Lane::commit_failed`] has them published again. What was to
    /// be committed before is not.
    pub fn close_transaction(&mut self, sent: &[i64], now: Timestamp, slots: &mut Slots) {
        if self.is_closed() {
            return;
        }
        for offset in sent {
            let Some(active) = self.active.get_mut(*offset) else {
                continue;
            };
            if let Stage::Publishing(hop) = &active.stage {
                active.stage = Stage::Sent(hop.clone());
                self.progress.settle_for_now(*offset, active.item.dated());
                self.sent.push(*offset);
            }
        }
        if !mutation::is(Mutation::CommitWithoutHops) || self.committing.is_none() {
            self.drop_commit();
            self.build_commit(now);
        }
        self.turn(now, slots);
    }

    /// What was to be committed is not, though nobody may have heard of it yet. Returns whether there was something.
    fn drop_commit(&mut self) -> bool {
        self.actions.retain(|it| !matches!(it, Action::Commit { .. }));
        self.committing.take().is_some()
    }

    /// The clock is looked at.
    pub fn tick(&mut self, now: Timestamp, slots: &mut Slots) {
        self.turn(now, slots);
    }

    /// A lane that halted goes on.
    pub fn resume(&mut self, now: Timestamp, slots: &mut Slots) {
        if self.phase == Phase::Halted {
            self.phase = Phase::Open;
            for active in self.take_active(|stage| matches!(stage, Stage::Stopped)) {
                self.ready.insert(active.item);
            }
            self.turn(now, slots);
        }
    }

    /// The partition goes to somebody else, or the process ends: what is under way may end until then.
    pub fn drain(&mut self, until: Timestamp, now: Timestamp, slots: &mut Slots) {
        if matches!(self.phase, Phase::Rebuilding | Phase::Open | Phase::Halted) {
            self.phase = Phase::Draining(until);
            if mutation::is(Mutation::DropWaits) {
                self.take_active(|stage| matches!(stage, Stage::Waiting));
            }
            self.turn(now, slots);
        }
    }

    /// The partition is gone already: nothing may be committed any more, and results do not count.
    pub fn lose(&mut self, now: Timestamp, slots: &mut Slots) {
        self.close(now, slots);
        self.runs.clear();
        self.actions.clear();
    }

    /// What is to be done next.
    pub fn next_action(&mut self) -> Option<Action<P, H>> {
        match self.next_run() {
            Some(Run { offset, payload, in_place }) => {
                Some(Action::Run { offset, payload, in_place })
            }
            None => self.actions.pop_front(),
        }
    }

    /// When to come back with [`Lane::tick`], if nothing happens before. It is later than `now`.
    pub fn next_wakeup(&self, now: Timestamp, slots: &Slots) -> Option<Timestamp> {
        if self.phase == Phase::Closed {
            return None;
        }
        // What was due at the last look and could not be done waits for something else to happen, and
        // must not hide what is due after it.
        let near = self.near.first_after(self.looked_at);
        let far = self.waiting.first().map(|key| key.0.before(self.config.lead));
        let timer = self.timers.range((self.looked_at, i64::MAX)..).next().map(|it| it.0);
        let commit =
            self.committing.is_none().then(|| self.last_commit.after(self.commit_interval()));
        let drained = match self.phase {
            Phase::Draining(until) => Some(until),
            _ => None,
        };
        let rate = if self.ready.is_empty() { None } else { slots.next_allowed(now) };
        let all = [near, far, timer, commit, drained, rate, self.refetch_at];
        let first = all.into_iter().flatten().filter(|it| *it > self.looked_at).min();
        let look = now.after(LOOK_EVERY);
        let soonest = Timestamp::from_millis(now.as_millis().saturating_add(1));
        Some(first.map_or(look, |it| it.min(look)).max(soonest))
    }

    fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// When a record is to be woken: when it is due, or before retention could delete it.
    fn wake(&self, item: &Item<P>) -> Timestamp {
        let retention = self.config.retention.filter(|_| !mutation::is(Mutation::NeverReappend));
        match retention {
            Some(retention) if item.due > item.appended_at.after(retention / 4 * 3) => {
                item.due.min(item.appended_at.after(retention / 2))
            }
            _ => item.due,
        }
    }

    /// Finds a place for a record that was read.
    fn place(&mut self, item: Item<P>, now: Timestamp, slots: &mut Slots) {
        self.is_dirty = true;
        if self.progress.saw(item.offset, item.dated()) {
            self.admit(item, now, slots);
        }
    }

    /// Finds a place for a record that is to be run.
    #[inline]
    fn admit(&mut self, item: Item<P>, now: Timestamp, slots: &mut Slots) {
        match (item.fate, self.config.kind) {
            (Fate::Settle, _) => {
                self.progress.settle(item.offset, item.dated());
            }
            (Fate::DeadLetter(_) | Fate::Follow | Fate::Reappend, _) | (_, LaneKind::Source)
                if item.due <= now =>
            {
                // Nearly every record starts here: there is room, and nobody whose turn it is before.
                let is_first = self.phase == Phase::Open
                    && self.ready.is_empty()
                    && self.timers.first().is_none_or(|it| it.0 > now);
                if is_first && self.takes(item.fate, now, slots) {
                    self.begin(item);
                } else {
                    self.ready.insert(item);
                }
            }
            (Fate::Run | Fate::DeadLetter(_) | Fate::Follow | Fate::Reappend, _) => {
                self.wait((self.wake(&item), item.offset), Some(item))
            }
        }
    }

    fn wait(&mut self, key: waiting::Key, item: Option<Item<P>>) {
        for offset in self.waiting.insert(key, item) {
            self.progress.fold(offset);
        }
    }

    /// Takes all records out that are in such a stage.
    fn take_active(&mut self, is_meant: impl Fn(&Stage<H>) -> bool) -> Vec<Active<P, H>> {
        let meant = self.active.iter().filter(|it| is_meant(&it.1.stage));
        let offsets: Vec<_> = meant.map(|it| it.0).collect();
        offsets.into_iter().filter_map(|it| self.active.remove(it)).collect()
    }

    fn settle(&mut self, offset: i64) {
        if let Some(active) = self.active.get(offset) {
            self.progress.settle(offset, active.item.dated());
            self.is_dirty = true;
            self.end(offset);
        }
    }

    fn publish(&mut self, offset: i64, hop: Hop<H>) {
        if let Some(active) = self.active.get_mut(offset) {
            active.stage = Stage::Publishing(hop.clone());
            let payload = active.item.payload.share();
            self.actions.push_back(Action::Publish { offset, payload, hop });
        }
    }

    /// Does everything that can be done now.
    fn turn(&mut self, now: Timestamp, slots: &mut Slots) {
        if self.is_closed() {
            return;
        }
        self.looked_at = now;
        if !self.timers.is_empty() {
            self.run_timers(now, slots);
        }
        if self.phase == Phase::Open {
            if !(self.near.is_empty() && self.waiting.is_empty()) {
                self.promote(now);
            }
            self.start(now, slots);
        }
        self.tell_wanted(slots);
        self.flow_control(slots);
        if self.near.has_to_ask() || !self.waiting.is_empty() {
            self.ask_for_fetches(now);
        }
        self.commit(now);
        self.finish_draining(now, slots);
    }

    fn run_timers(&mut self, now: Timestamp, slots: &mut Slots) {
        let due: Vec<_> = self.timers.range(..=(now, i64::MAX)).copied().collect();
        for timer in due {
            let offset = timer.1;
            let Some(active) = self.active.get_mut(offset) else {
                self.timers.remove(&timer);
                continue;
            };
            match &active.stage {
                Stage::Failed(hop) => {
                    let hop = hop.clone();
                    self.timers.remove(&timer);
                    self.publish(offset, hop);
                }
                // Without a slot, and while the lane is halted, it keeps its place among those that are due.
                Stage::Waiting => {
                    if self.phase == Phase::Open && slots.take(class(self.config.kind), now) {
                        self.timers.remove(&timer);
                        active.stage = Stage::Running;
                        let (payload, in_place) = (active.item.payload.lend(), active.in_place);
                        self.runs.push_back(Run { offset, payload, in_place });
                    }
                }
                Stage::Running
                | Stage::Judged
                | Stage::Publishing(_)
                | Stage::Sent(_)
                | Stage::Stopped => {
                    self.timers.remove(&timer);
                }
            }
        }
    }

    /// Moves records whose time is near out of the waiting ones, and those that are due to the ready ones.
    fn promote(&mut self, now: Timestamp) {
        let horizon = now.after(self.config.lead);
        while let Some(first) = self.waiting.peek(horizon) {
            // Where there is no room, one that is to be woken sooner takes the place of the last.
            let is_full = !self.has_room();
            if is_full && self.near.last().is_none_or(|last| last < first) {
                break;
            }
            if let Some((key, item)) = self.waiting.pop() {
                self.near.insert(key, item);
            }
            if is_full && let Some((key, item)) = self.near.pop_last() {
                self.wait(key, item);
            }
        }
        self.make_way();
        let until = if mutation::is(Mutation::RunEarly) { horizon } else { now };
        for key in self.near.due(until) {
            let Some(item) = self.near.take(key) else {
                continue;
            };
            let is_early = mutation::is(Mutation::RunEarly)
                && item.due <= now.after(Duration::from_millis(50));
            if item.due <= now || is_early {
                self.ready.insert(item);
            } else {
                self.reappend(item);
            }
        }
    }

    /// Whether one more record may be near or ready. What is still to be read again counts with its usual size.
    fn has_room(&self) -> bool {
        let awaited = self.near.awaited().saturating_mul(self.waiting.usual_bytes());
        let bytes = self.near_bytes().saturating_add(awaited);
        mutation::is(Mutation::UnboundedReady)
            || (self.near.len() + self.ready.len() < self.config.ready_limit
                && (bytes == 0 || bytes < self.near_budget()))
    }

    /// How many bytes of payloads may be in memory for records that are near or ready. One of them may be of any size.
    fn near_budget(&self) -> usize {
        self.all_bytes().max(LEAST_BYTES).saturating_sub(self.parked.bytes())
    }

    /// What is kept for later makes way for what is near.
    fn make_way(&mut self) {
        let sooner = self.near_bytes().saturating_add(self.parked.bytes());
        let until = self.looked_at.after(self.config.lead);
        self.waiting.make_way(until, self.all_bytes().saturating_sub(sooner));
    }

    /// How many bytes of payloads are in memory for records that are near or ready.
    fn near_bytes(&self) -> usize {
        self.near.bytes() + self.ready.bytes()
    }

    /// How many bytes of payloads may be in memory.
    fn all_bytes(&self) -> usize {
        self.config.byte_budget.saturating_mul(SHARES)
    }

    fn reappend(&mut self, item: Item<P>) {
        let offset = item.offset;
        let stage = Stage::Running;
        self.active
            .insert(offset, Active { item, in_place: InPlace::default(), failures: 0, stage });
        self.publish(offset, Hop::Reappend);
    }

    fn start(&mut self, now: Timestamp, slots: &mut Slots) {
        let looks = !mutation::is(Mutation::RunEarly) && !mutation::is(Mutation::TrustTheClock);
        while let Some(first) = self.ready.first() {
            // The clock may have gone back since it was due.
            let is_early = first.due > now && looks;
            if !is_early && !self.takes(first.fate, now, slots) {
                return;
            }
            let Some(item) = self.ready.pop() else {
                return;
            };
            if is_early {
                self.near.insert((self.wake(&item), item.offset), Some(item));
            } else {
                self.begin(item);
            }
        }
    }

    /// Whether one more record may be under way. A slot is taken if it is to run.
    fn takes(&self, fate: Fate, now: Timestamp, slots: &mut Slots) -> bool {
        let busy = self.active.len() + self.plain.len();
        let is_free = match self.config.order {
            Order::None | Order::Entity => busy < self.config.ready_limit.max(1) * 4,
            Order::Partition => busy == 0,
        };
        is_free && (self.hop(fate).is_some() || slots.take(class(self.config.kind), now))
    }

    /// Where a record goes to without a run.
    fn hop(&self, fate: Fate) -> Option<Hop<H>> {
        match (fate, self.config.kind) {
            (Fate::DeadLetter(reason), _) => Some(Hop::DeadLetter(reason)),
            (Fate::Follow, _) => Some(Hop::Follow),
            (Fate::Reappend, _) => Some(Hop::Reappend),
            (_, LaneKind::Relay) => Some(Hop::Relay),
            (_, LaneKind::Source | LaneKind::Retry) => None,
        }
    }

    fn begin(&mut self, mut item: Item<P>) {
        let (offset, in_place) = (item.offset, InPlace::default());
        if self.is_plain(&item) {
            self.keep_offset(offset);
            return self.runs.push_back(Run { offset, payload: item.payload, in_place });
        }
        let hop = self.hop(item.fate);
        if hop.is_none() {
            let payload = item.payload.lend();
            self.runs.push_back(Run { offset, payload, in_place });
        }
        let active = Active { item, in_place, failures: 0, stage: Stage::Running };
        self.active.insert(offset, active);
        if let Some(hop) = hop {
            self.publish(offset, hop);
        }
    }

    fn tell_wanted(&mut self, slots: &mut Slots) {
        let wanted = if self.phase == Phase::Open && self.config.kind != LaneKind::Relay {
            self.ready.len()
        } else {
            0
        };
        slots.want(class(self.config.kind), self.wanted, wanted);
        self.wanted = wanted;
    }

    /// A source is paused when more is ready than can run soon, and while a breaker is open.
    fn flow_control(&mut self, slots: &Slots) {
        if self.config.kind != LaneKind::Source || self.phase == Phase::Rebuilding {
            return;
        }
        let (held, bytes) =
            (self.ready.len() + self.parked.len(), self.ready.bytes() + self.parked.bytes());
        // Something must be there to probe with.
        let is_held_back = slots.is_open() && !self.ready.is_empty();
        // Without a budget there is one at a time.
        let is_large = bytes >= self.config.byte_budget.max(1);
        let is_full = is_held_back || held >= self.config.ready_limit || is_large;
        let is_low = !is_held_back
            && held <= self.config.ready_limit / 2
            && bytes <= self.config.byte_budget / 2;
        if is_full && !self.is_paused {
            self.is_paused = true;
            self.actions.push_back(Action::Pause);
        } else if is_low && self.is_paused {
            self.is_paused = false;
            self.actions.push_back(Action::Resume);
        }
    }

    fn ask_for_fetches(&mut self, now: Timestamp) {
        if self.phase != Phase::Open || self.refetch_at.is_some_and(|at| now < at) {
            return;
        }
        self.refetch_at = None;
        let ticket = self.next_ticket;
        // What comes while enough is asked for is asked for together: a request costs as much as reading a thousand records.
        let asked = self.asked.values().filter(|it| !it.keys.is_empty()).count();
        let keys = if asked < MOST_REQUESTS { self.near.ask(ticket) } else { Vec::new() };
        let offsets: Runs = keys.iter().map(|key| key.1).collect();
        let scan = self.waiting.next_scan(now.after(self.config.lead * 4));
        let mut ranges: Vec<_> = offsets.iter().chain(scan.clone()).collect();
        if !ranges.is_empty() {
            ranges.sort_by_key(|it| it.start);
            self.next_ticket += 1;
            self.asked.insert(ticket, Asked { keys, scan });
            self.actions.push_back(Action::Fetch { ticket, ranges });
        }
    }

    fn commit_interval(&self) -> Duration {
        if self.is_dirty { self.config.commit_every } else { self.config.commit_idle_every }
    }

    fn commit(&mut self, now: Timestamp) {
        // An ordered lane commits all its partitions at once.
        if self.config.order == Order::Entity {
            return;
        }
        if self.committing.is_none() {
            let is_time = match self.phase {
                Phase::Draining(_) => self.is_dirty,
                _ => {
                    now >= self.last_commit.after(self.commit_interval()) || now < self.last_commit
                }
            };
            if is_time {
                self.build_commit(now);
            }
        }
        if let Some(committing) = self.committing.as_mut().filter(|it| {
            !it.is_sent && (it.missing.is_empty() || mutation::is(Mutation::CommitBeforeBlocks))
        }) {
            committing.is_sent = true;
            let (offset, metadata) = (committing.offset, committing.metadata.clone());
            self.actions.push_back(Action::Commit { offset, metadata });
        }
    }

    fn build_commit(&mut self, now: Timestamp) {
        if let Some(mark) = self.mark(now) {
            let running = self.active.values().filter(|_| !mutation::is(Mutation::ForgetRunning));
            let running = running.filter_map(|it| it.item.mark());
            self.progress.advance(mark, running);
        }
        let commit = self.progress.commit(&self.config.cluster, self.config.metadata_chars);
        if commit.high < self.progress.position() {
            self.actions.push_back(Action::Tell(Event::MapCut(commit.high)));
        }
        let missing = commit.to_store.iter().map(|it| it.id).collect();
        self.actions.extend(commit.to_store.into_iter().map(Action::Store));
        self.committing = Some(Committing {
            offset: commit.offset,
            metadata: commit.metadata,
            names: commit.names,
            missing,
            is_sent: false,
        });
        self.is_dirty = false;
        self.last_commit = now;
    }

    /// The first place in due order where something is not settled and not running, and no later than now: records that
    /// come are due after now.
    fn mark(&self, now: Timestamp) -> Option<Mark> {
        if self.config.kind == LaneKind::Source {
            return None;
        }
        let first = [
            self.near.first(),
            self.ready.first_due(),
            self.waiting.first(),
            self.folded,
            Some((now, 0)),
        ];
        let first = first.into_iter().flatten().min();
        first.map(|(due, offset)| Mark { due, offset })
    }

    fn finish_draining(&mut self, now: Timestamp, slots: &mut Slots) {
        let Phase::Draining(until) = self.phase else {
            return;
        };
        if self.config.order == Order::Entity {
            return;
        }
        // A wait in place ends here; the record stays unsettled and comes again.
        let is_over = now >= until || !self.is_under_way();
        if is_over && !self.is_dirty && self.committing.is_none() {
            self.close(now, slots);
            self.actions.push_back(Action::Drained);
        }
    }

    fn close(&mut self, now: Timestamp, slots: &mut Slots) {
        self.phase = Phase::Closed;
        slots.want(class(self.config.kind), self.wanted, 0);
        self.wanted = 0;
        let running = self.active.values().filter(|it| it.stage.is_running()).count();
        for _ in 0..running + self.plain.len() {
            slots.forget(class(self.config.kind), now);
        }
        self.active.clear();
        self.plain.clear();
        self.committing = None;
        self.sent.clear();
    }
}

fn class(kind: LaneKind) -> Class {
    match kind {
        LaneKind::Source => Class::Fresh,
        LaneKind::Retry | LaneKind::Relay => Class::Retry,
    }
}
