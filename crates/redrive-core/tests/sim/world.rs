//! Members that drive the real lane against the cluster, and everything that goes wrong on the way.

#[path = "driven.rs"]
mod driven;
#[path = "order.rs"]
mod order;
#[path = "transactions.rs"]
mod transactions;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use redrive_core::headers::{self, Dialect, Due, Failed, Owner, Place, ReadContext, Reading, Stop};
use redrive_core::lane::{
    Action, Assigned, Breaker, EntityId, Event as Told, Fate, Hop, Item, Lane, LaneConfig,
    LaneKind, Marker, Next, Order, Ranked, Slots,
};
use redrive_core::offsets::{Block, BlockId};
use redrive_core::{
    Backoff, Delayed, Delivery, Draw, Exponential, Failure, Flow, InMemory, InPlace, Incident,
    Origin, Policy, Random, Reason, RecordView, Strategy, Tier, Timestamp,
};

use crate::book::Start;
use crate::cluster::{Cluster, Committed, Partition, Record};
use crate::ledger::Ledger;
use crate::rng::Rng;
use driven::{Act, Asked, Driven};
use order::{Noting, Ordering};
use transactions::{Queued, Transaction};

const GROUP: &str = "billing";
const CLUSTER: &str = "sim";
const MEMBERS: usize = 3;
const PARTITIONS: usize = 2;
/// Where the members' clocks stand when all begins.
const EPOCH: i64 = 1_700_000_000_000;
/// How late a record may be while nothing goes wrong: two rebalances in a row, each with a drain of up to half a second, blocks to
/// store and a commit, and clocks that differ by up to 0.4 s. One alone makes up to a second.
const LATEST: Duration = Duration::from_secs(2);
/// Records that are near have this much memory in any case.
const NEAR_BYTES: usize = 4 << 10;
/// How many times its budget a lane may have in memory.
const SHARES: usize = 4;
/// How long retry topics keep records, where they do not for ever.
const RETENTION: Duration = Duration::from_secs(30);

type Hops = Rc<Outgoing>;

/// A record on its way to its next stop.
#[derive(Debug, PartialEq, Eq)]
struct Outgoing {
    /// None is the dead-letter topic.
    to: Option<Partition>,
    headers: Vec<(String, Vec<u8>)>,
}

/// Which lane of which life of which member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Token {
    member: usize,
    at: Partition,
    generation: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Landing {
    /// It arrives, and the member is told.
    Fine,
    /// It arrives, but the member is told that it did not.
    AckLost,
    /// It does not arrive.
    Failed,
}

/// One lane's part of a commit.
#[derive(Debug)]
struct Commit {
    token: Token,
    /// Commit point and metadata of each of the lane's partitions.
    parts: Vec<(i64, String)>,
    /// How many of the lane's settled records it speaks of.
    covered: usize,
    /// Partitions whose maps could not say all, and from where on.
    cuts: BTreeMap<Partition, i64>,
}

#[derive(Debug)]
enum Event {
    Produce,
    Deliver(Token),
    Ran { token: Token, offset: i64, record: Rc<Record>, in_place: InPlace },
    PublishLands { token: Token, offset: i64, id: u64, out: Hops, landing: Landing },
    Refetched { token: Token, ticket: u64, ranges: Vec<Range<i64>>, fine: bool },
    StoreLands { token: Token, block: Block, landing: Landing },
    SendCommits(usize),
    CommitsLand(Vec<(Commit, Landing)>),
    BeginTransaction,
    EndTransaction { at: Partition, first: i64 },
    CloseTransaction { member: usize, number: u64 },
    TransactionEnds { member: usize, number: u64 },
    TransactionTimesOut(BTreeMap<Partition, i64>),
    Wake(Token),
    GoOn(Token),
    Noticed(Token),
    Crash,
    Start(usize),
    Detected,
    Rebalance,
    Jump,
    Retain,
    Note(Box<Noting>),
    FollowState(Token),
    FindEnd(Token),
    EndTold { token: Token, end: i64 },
    MarkLands { token: Token, marker: Marker, is_there: bool, landing: Landing },
    MarkTold { token: Token, marker: Marker, is_there: bool, offset: Option<i64>, is_fine: bool },
    Budget,
    Operate,
    Redrive { lane: usize, entity: EntityId },
}

struct MemberLane {
    lane: Driven,
    generation: u64,
    is_paused: bool,
    delivering: BTreeSet<Partition>,
    wake_at: Option<i64>,
    running: BTreeMap<(Partition, i64), u64>,
    /// Records that were settled since the last commit that was accepted.
    settled: Vec<u64>,
    /// Whom the partition goes to when it is drained.
    drains_to: Option<usize>,
    /// How many of the settled records the commit in the making speaks of, and which of its maps are cut.
    covering: Option<usize>,
    cuts: BTreeMap<Partition, i64>,
    /// How much its partitions were told to keep, where that is not what they began with.
    budgets: BTreeMap<Partition, usize>,
    /// How far it has read the state topic.
    state_position: usize,
    /// The markers that it saw being deleted there, and the end that the first tier had then.
    opened: BTreeMap<Marker, i64>,
    /// How many copies were void and superseded so far.
    dropped: (u64, u64),
}

impl MemberLane {
    fn new(lane: Driven, generation: u64) -> Self {
        Self {
            lane,
            generation,
            is_paused: false,
            delivering: BTreeSet::new(),
            wake_at: None,
            running: BTreeMap::new(),
            settled: Vec::new(),
            drains_to: None,
            covering: None,
            cuts: BTreeMap::new(),
            budgets: BTreeMap::new(),
            state_position: 0,
            opened: BTreeMap::new(),
            dropped: (0, 0),
        }
    }

    /// Of an ordered lane the source alone is paused.
    fn is_pausable(&self, at: Partition) -> bool {
        matches!(self.lane, Driven::Plain(_)) || at.0 == 0
    }
}

struct Member {
    is_alive: bool,
    skew: i64,
    slots: Slots,
    lanes: BTreeMap<Partition, MemberLane>,
    /// What the next commit request has.
    to_commit: Vec<Commit>,
    /// Where hops and commits are one: what is published, and what comes too late for that.
    transaction: Option<Transaction>,
    queued: Vec<Queued>,
    queued_markers: Vec<(Token, Marker)>,
}

/// What must have happened in a run of some length: a path that is never taken is a hole in the simulation.
pub const RARE: [&str; 35] = [
    "aborted transaction",
    "block",
    "changed budget",
    "changed config",
    "clock jump",
    "crash",
    "deleted block",
    "deleted marker",
    "deposed at once",
    "deposed unnoticed",
    "failed commit",
    "failed refetch",
    "folded",
    "follower",
    "follower dead-lettered",
    "held back by a breaker",
    "held back by a transaction",
    "late marker",
    "late publish",
    "lost acknowledgement",
    "marker",
    "own aborted transaction",
    "own transaction",
    "partly accepted commit",
    "pause",
    "re-append",
    "rebalance",
    "redriven entity",
    "refetch",
    "refused commit",
    "relay",
    "released entity",
    "stop",
    "superseded copy",
    "void copy",
];
/// In so many seeds.
pub const ENOUGH_SEEDS: u64 = 500;

/// How often each rare thing happened.
pub type Stats = BTreeMap<&'static str, u64>;

pub struct World {
    rng: Rng,
    time: i64,
    events: BTreeMap<(i64, u64), Event>,
    sequence: u64,
    cluster: Cluster,
    flow: Flow,
    lane_config: LaneConfig,
    members: Vec<Member>,
    pub ledger: Ledger,
    pub stats: Stats,
    to_produce: u64,
    faults_until: i64,
    /// How hostile this world is: once in so many.
    fault_rate: u64,
    orphans: BTreeSet<Partition>,
    fresh_slots: Slots,
    has_outage: bool,
    /// Nothing goes wrong and slots are free: then nothing is late, either.
    is_roomy: bool,
    /// Hops and commits are one transaction.
    is_exactly_once: bool,
    transactions: u64,
    /// Whether members own whole lanes, and what that takes.
    ordering: Option<Ordering>,
    /// By which budgets change, where they do.
    budgets: Option<Rng>,
}

impl World {
    pub fn new(seed: u64) -> Self {
        // Not drawn from the same sequence, so that other worlds stay what they were.
        let is_exactly_once = Rng::new(seed ^ 0x5EED).one_in(4);
        let mut budgets = Rng::new(seed ^ 0xB0D9E7);
        let budgets = budgets.one_in(3).then_some(budgets);
        let mut rng = Rng::new(seed);
        let retention = rng.one_in(4).then_some(RETENTION);
        let flow = flow(&mut rng, retention.is_some());
        let is_relayed = matches!(flow.strategy(), Strategy::DelayThenRetry { .. });
        let ordering = Ordering::of(seed, retention.is_some()).filter(|_| !is_relayed);
        let order = if rng.one_in(5) { Order::Partition } else { Order::None };
        // Who owns a lane has to fit as well.
        let more_chars = if ordering.is_some() { 8 } else { 0 };
        let lane_config = LaneConfig {
            order,
            index_limit: *rng.pick(&[8, 20, 1000]),
            byte_budget: *rng.pick(&[0, 1500, 1 << 20]),
            ready_limit: *rng.pick(&[3, 16, 200]),
            lead: Duration::from_millis(*rng.pick(&[0, 50, 2000])),
            commit_every: Duration::from_millis(*rng.pick(&[50, 1000])),
            metadata_chars: *rng.pick(&[40, 42, 4096]) + more_chars,
            retention,
            ..LaneConfig::new(LaneKind::Source, CLUSTER)
        };
        let slots = Slots::new(*rng.pick(&[1usize, 3, 20]));
        let has_rate = rng.one_in(5);
        let slots = if has_rate { slots.with_retry_rate(50) } else { slots };
        let has_outage = rng.one_in(3);
        let breaker = Breaker::new(0.5)
            .with_minimum(3)
            .with_window(Duration::from_secs(2))
            .with_probe_every(Duration::from_millis(300));
        let slots = if has_outage { slots.with_breaker(breaker) } else { slots };
        let fault_rate = *rng.pick(&[20, 60, 1_000_000_000]);
        let is_roomy = fault_rate > 1_000_000
            && !has_outage
            && slots.total() == 20
            && !has_rate
            && lane_config.order == Order::None;
        let members = (0..MEMBERS).map(|_| Member {
            is_alive: true,
            skew: EPOCH,
            slots: slots.clone(),
            lanes: BTreeMap::new(),
            to_commit: Vec::new(),
            transaction: None,
            queued: Vec::new(),
            queued_markers: Vec::new(),
        });
        let mut world = World {
            members: members.collect(),
            time: 0,
            events: BTreeMap::new(),
            sequence: 0,
            cluster: Cluster::default(),
            ledger: Ledger::default(),
            stats: Stats::new(),
            to_produce: 200,
            faults_until: 30_000,
            orphans: BTreeSet::new(),
            fresh_slots: slots,
            has_outage,
            is_roomy: is_roomy && !is_exactly_once && ordering.is_none(),
            is_exactly_once,
            transactions: 0,
            ordering,
            budgets,
            flow,
            lane_config,
            fault_rate,
            rng,
        };
        for member in 0..MEMBERS {
            world.members[member].skew += world.rng.range(-200, 200);
        }
        for at in world.partitions() {
            world.cluster.logs.entry(at).or_default();
        }
        for at in world.homes() {
            let member = world.rng.below(MEMBERS);
            world.assign(member, at);
        }
        world.after(0, Event::Produce);
        if fault_rate < 1_000_000 {
            world.after(500, Event::Crash);
            world.after(800, Event::Jump);
        }
        world.after(300, Event::Rebalance);
        world.after(400, Event::BeginTransaction);
        world.after(1000, Event::Retain);
        if world.budgets.is_some() {
            world.after(100, Event::Budget);
        }
        if world.ordering.is_some() {
            world.after(1500, Event::Operate);
        }
        world
    }

    fn partitions(&self) -> Vec<Partition> {
        let relayed = matches!(self.flow.strategy(), Strategy::DelayThenRetry { .. });
        let topics = 1 + self.flow.strategy().tiers().len() + usize::from(relayed);
        (0..topics).flat_map(|topic| (0..PARTITIONS).map(move |it| (topic, it))).collect()
    }

    /// Runs until nothing is left to do. Fails where a promise is broken.
    pub fn run(&mut self) -> Result<(), String> {
        let mut steps = 0u64;
        while let Some((key, event)) = self.events.pop_first() {
            self.time = key.0;
            self.handle(event);
            if let Some(broken) = self.ledger.broken.take() {
                return Err(format!("at {} ms: {broken}", self.time));
            }
            steps += 1;
            if steps > 400_000 {
                return Err(format!(
                    "no end after {steps} steps, at {} ms: {}",
                    self.time,
                    self.ledger.open()
                ));
            }
            if self.time > self.faults_until
                && self.to_produce == 0
                && self.ledger.is_complete()
                && self.is_idle()
            {
                self.stats.entry("steps").and_modify(|it| *it += steps).or_insert(steps);
                return Ok(());
            }
        }
        Err("everything came to a halt".to_owned())
    }

    /// Whether nothing is pending anywhere.
    fn is_idle(&self) -> bool {
        let settled = |home: &Partition, lane: &MemberLane| {
            let is_settled =
                |at: &Partition| lane.lane.commit_point(at.0) >= self.cluster.logs[at].end;
            self.parts(*home).iter().all(is_settled) && lane.drains_to.is_none()
        };
        let owned: usize =
            self.members.iter().filter(|it| it.is_alive).map(|it| it.lanes.len()).sum();
        owned == self.homes().len()
            && self.members.iter().all(|it| it.lanes.iter().all(|(at, lane)| settled(at, lane)))
    }

    fn count(&mut self, what: &'static str) {
        *self.stats.entry(what).or_default() += 1;
    }

    fn after(&mut self, delay: i64, event: Event) {
        self.sequence += 1;
        self.events.insert((self.time + delay.max(0), self.sequence), event);
    }

    fn is_calm(&self) -> bool {
        self.time > self.faults_until
    }

    fn fault(&mut self) -> bool {
        !self.is_calm() && self.rng.one_in(self.fault_rate)
    }

    /// Whether the service behind the handlers is down: for a few seconds, in some worlds.
    fn is_down(&self) -> bool {
        self.has_outage && (8_000..12_000).contains(&self.time)
    }

    fn clock(&self, member: usize) -> Timestamp {
        Timestamp::from_millis(self.time + self.members[member].skew)
    }

    fn kind(&self, at: Partition) -> LaneKind {
        let tiers = self.flow.strategy().tiers().len();
        match self.flow.strategy() {
            _ if at.0 == 0 => LaneKind::Source,
            Strategy::DelayThenRetry { .. } if at.0 <= tiers => LaneKind::Relay,
            _ => LaneKind::Retry,
        }
    }

    // ----- membership

    fn assign(&mut self, member: usize, at: Partition) {
        self.orphans.remove(&at);
        // It may still have the lane of a life in which it was deposed.
        if let Some(old) = self.members[member].lanes.get(&at).map(|it| it.generation) {
            self.lose(Token { member, at, generation: old });
        }
        self.cluster.generation += 1;
        let generation = self.cluster.generation;
        self.cluster.owners.insert(at, (member, generation));
        if self.ordering.is_some() {
            return self.take_over(member, at, generation);
        }
        let committed = self.cluster.offsets.get(&at).cloned();
        self.forgive_cut(at, committed.as_ref());
        let log = &self.cluster.logs[&at];
        let metadata = committed.as_ref().map(|it| it.metadata.clone()).unwrap_or_default();
        let assigned = Assigned {
            committed: committed.map(|it| it.offset),
            metadata: &metadata,
            log_start: log.start,
            log_end: log.end,
            start: log.start,
        };
        let config = LaneConfig { kind: self.kind(at), ..self.lane_config.clone() };
        let blocks = &self.cluster.blocks;
        let stored: Vec<BlockId> = blocks.keys().filter(|it| it.0 == at).map(|it| it.1).collect();
        let now = self.clock(member);
        let lane =
            Lane::assigned(config, &assigned, now, stored, |id| blocks.get(&(at, id)).cloned());
        let lane = match lane {
            Ok(lane) => lane,
            Err(error) => {
                self.ledger.broken = Some(format!("a map of our own is refused: {error}"));
                return;
            }
        };
        let lane = MemberLane::new(Driven::Plain(Box::new(lane)), generation);
        self.members[member].lanes.insert(at, lane);
        self.deliver_soon(at);
        self.perform(Token { member, at, generation });
    }

    /// The lane, if it is still the one that is meant.
    fn lane(&mut self, token: Token) -> Option<(&mut MemberLane, &mut Slots)> {
        let home = self.home(token.at);
        let member = &mut self.members[token.member];
        let lane = member.lanes.get_mut(&home).filter(|it| it.generation == token.generation)?;
        Some((lane, &mut member.slots))
    }

    /// Gives the lane something, and carries out what it asks for.
    fn feed(&mut self, token: Token, input: impl FnOnce(&mut Driven, Timestamp, &mut Slots)) {
        let now = self.clock(token.member);
        if let Some((lane, slots)) = self.lane(token) {
            input(&mut lane.lane, now, slots);
            self.perform(token);
        }
    }

    fn deliver_soon(&mut self, at: Partition) {
        let home = self.home(at);
        let Some((member, generation)) = self.cluster.owners.get(&home).copied() else {
            return;
        };
        self.deliver_to(Token { member, at, generation });
        // Who was deposed and has not noticed reads on.
        for other in 0..MEMBERS {
            if other == member || self.ordering.is_none() {
                continue;
            }
            if let Some(generation) = self.members[other].lanes.get(&home).map(|it| it.generation) {
                self.deliver_to(Token { member: other, at, generation });
            }
        }
    }

    fn deliver_to(&mut self, token: Token) {
        let delay = self.rng.range(1, 20);
        if let Some((lane, _)) = self.lane(token)
            && !lane.delivering.contains(&token.at)
            && !(lane.is_paused && lane.is_pausable(token.at))
        {
            lane.delivering.insert(token.at);
            self.after(delay, Event::Deliver(token));
        }
    }

    /// Whoever has the partition's lane is not its owner any more; what it did since its last commit may be done again.
    fn forgive(&mut self, member: usize, at: Partition) {
        if let Some(lane) = self.members[member].lanes.get(&at) {
            self.ledger.may_run_again(lane.running.values().chain(&lane.settled).copied());
        }
    }

    /// A lane goes on from a map that was cut: what is settled beyond may come again.
    fn forgive_cut(&mut self, at: Partition, committed: Option<&Committed>) {
        if let Some(high) = committed.and_then(|it| it.cut) {
            self.count("went on from a cut map");
            let log = &self.cluster.logs[&at];
            let again = log.records.range(high..).map(|it| it.1.id);
            self.ledger.may_run_again(again);
            self.ledger.cut(at, high);
        }
    }

    fn crash(&mut self, member: usize) {
        self.count("crash");
        let lanes: Vec<_> =
            self.members[member].lanes.iter().map(|(at, lane)| (*at, lane.generation)).collect();
        for (at, generation) in lanes {
            self.forgive(member, at);
            if self.cluster.is_owner(at, member, generation) {
                self.orphans.insert(at);
            }
        }
        // It may not have begun with some of its lanes.
        for (at, owner) in &self.cluster.owners {
            if owner.0 == member {
                self.orphans.insert(*at);
            }
        }
        self.members[member].lanes.clear();
        self.members[member].to_commit.clear();
        self.orphan_transaction(member);
        self.members[member].is_alive = false;
        self.members[member].slots = self.fresh_slots.clone();
        let (back, noticed) = (self.rng.range(10, 3000), self.rng.range(10, 2000));
        self.after(back, Event::Start(member));
        self.after(noticed, Event::Detected);
    }

    fn give_orphans_a_home(&mut self) {
        let alive: Vec<_> = (0..MEMBERS).filter(|it| self.members[*it].is_alive).collect();
        if alive.is_empty() {
            return;
        }
        for at in std::mem::take(&mut self.orphans) {
            let member = *self.rng.pick(&alive);
            self.assign(member, at);
        }
    }

    fn rebalance(&mut self) {
        let alive: Vec<_> = (0..MEMBERS).filter(|it| self.members[*it].is_alive).collect();
        let at = *self.rng.pick(&self.homes());
        let Some((owner, generation)) = self.cluster.owners.get(&at).copied() else {
            return;
        };
        let others: Vec<_> = alive.into_iter().filter(|it| *it != owner).collect();
        if others.is_empty() || self.orphans.contains(&at) {
            return;
        }
        let to = *self.rng.pick(&others);
        let token = Token { member: owner, at, generation };
        if self.ordering.is_some() && self.lane(token).is_none() {
            self.count("deposed at once");
            return self.assign(to, at);
        }
        let is_draining = self.lane(token).is_none_or(|(lane, _)| lane.drains_to.is_some());
        if is_draining || self.members[to].lanes.contains_key(&at) {
            return;
        }
        if self.fault() || (!self.is_calm() && self.fault_rate < 1000 && self.rng.one_in(3)) {
            // A member that does not notice that it was deposed goes on for a while.
            self.count("deposed unnoticed");
            self.forgive(owner, at);
            let noticed = self.rng.range(1, 3000);
            self.after(noticed, Event::Noticed(token));
            self.assign(to, at);
        } else {
            self.count("rebalance");
            let limit = Duration::from_millis(self.rng.range(1, 500).unsigned_abs());
            if let Some((lane, _)) = self.lane(token) {
                lane.drains_to = Some(to);
            }
            self.feed(token, |lane, now, slots| lane.drain(now.after(limit), now, slots));
        }
    }

    // ----- events

    fn handle(&mut self, event: Event) {
        match event {
            Event::Produce => self.produce(),
            Event::Deliver(token) => self.deliver(token),
            Event::Ran { token, offset, record, in_place } => {
                self.ran(token, offset, &record, in_place)
            }
            Event::PublishLands { token, offset, id, out, landing } => {
                self.publish_lands(token, offset, id, &out, landing)
            }
            Event::Refetched { token, ticket, ranges, fine } => {
                self.refetched(token, ticket, &ranges, fine)
            }
            Event::StoreLands { token, block, landing } => {
                if landing != Landing::Failed {
                    self.cluster.blocks.insert((token.at, block.id), block.bytes);
                }
                let (mut is_failed, is_awaited) = (false, self.is_awaited(token));
                // A lane that drains builds the next commit at once, which speaks of more.
                let failing = self.lane(token).filter(|_| landing != Landing::Fine);
                let covering = failing.and_then(|it| it.0.covering.take());
                self.feed(token, |lane, now, slots| match landing {
                    Landing::Fine => lane.stored(token.at.0, block.id, now, slots),
                    _ => is_failed = lane.store_failed(token.at.0, block.id, now, slots),
                });
                if let Some((lane, _)) = self.lane(token)
                    && !is_failed
                {
                    lane.covering = covering.or(lane.covering);
                }
                if is_failed && is_awaited {
                    self.abort(token.member);
                }
            }
            Event::SendCommits(member) => self.send_commits(member),
            Event::CommitsLand(commits) => {
                for (commit, landing) in commits {
                    self.commit_lands(commit, landing);
                }
            }
            Event::BeginTransaction => {
                if !self.is_calm() {
                    self.begin_transaction();
                    let next = self.rng.range(500, 6000);
                    self.after(next, Event::BeginTransaction);
                }
            }
            Event::EndTransaction { at, first } => self.end_transaction(at, first),
            Event::CloseTransaction { member, number } => self.close_transaction(member, number),
            Event::TransactionEnds { member, number } => self.transaction_ends(member, number),
            Event::TransactionTimesOut(begins) => self.transaction_times_out(&begins),
            Event::Wake(token) => {
                let time = self.time;
                if let Some((lane, _)) = self.lane(token)
                    && lane.wake_at.is_some_and(|it| it <= time)
                {
                    lane.wake_at = None;
                    self.feed(token, |lane, now, slots| lane.tick(now, slots));
                }
            }
            Event::GoOn(token) => self.feed(token, |lane, now, slots| lane.resume(now, slots)),
            Event::Noticed(token) => self.lose(token),
            Event::Crash => {
                let member = self.rng.below(MEMBERS);
                if !self.is_calm() {
                    if self.members[member].is_alive {
                        self.crash(member);
                    }
                    let next = self.rng.range(500, 6000);
                    self.after(next, Event::Crash);
                }
            }
            Event::Start(member) => {
                self.members[member].is_alive = true;
                self.change_config();
                self.give_orphans_a_home();
            }
            Event::Detected => self.give_orphans_a_home(),
            Event::Rebalance => {
                self.rebalance();
                if !self.is_calm() {
                    let next = self.rng.range(100, 4000);
                    self.after(next, Event::Rebalance);
                }
            }
            Event::Retain => {
                if let Some(retention) = self.lane_config.retention {
                    let oldest = self.time + EPOCH
                        - i64::try_from(retention.as_millis()).unwrap_or(i64::MAX);
                    for at in self.partitions().into_iter().filter(|it| it.0 > 0) {
                        self.cluster.retain(at, oldest, self.time + EPOCH);
                    }
                    self.after(1000, Event::Retain);
                }
            }
            Event::Note(noting) => self.note(*noting),
            Event::FollowState(token) => self.follow_state(token),
            Event::FindEnd(token) => self.look_where_it_ends(token),
            Event::EndTold { token, end } => self.feed(token, |lane, now, slots| {
                if let Some(lane) = lane.ordered() {
                    lane.source_ends(end, now, slots);
                }
            }),
            Event::MarkLands { token, marker, is_there, landing } => {
                self.mark_lands(token, marker, is_there, landing)
            }
            Event::MarkTold { token, marker, is_there, offset, is_fine } => {
                self.mark_told(token, marker, is_there, offset, is_fine)
            }
            Event::Budget => self.change_budget(),
            Event::Operate => self.operate(),
            Event::Redrive { lane, entity } => self.redrive(lane, entity),
            Event::Jump => {
                if !self.is_calm() {
                    self.count("clock jump");
                    let member = self.rng.below(MEMBERS);
                    self.members[member].skew = EPOCH + self.rng.range(-3000, 3000);
                    let next = self.rng.range(500, 5000);
                    self.after(next, Event::Jump);
                }
            }
        }
    }

    /// Delays, attempts and policies change between two starts; topics stay.
    fn change_config(&mut self) {
        let is_long = self.lane_config.retention.is_some();
        let next = flow(&mut self.rng, is_long);
        let is_same_shape =
            std::mem::discriminant(next.strategy()) == std::mem::discriminant(self.flow.strategy());
        if is_same_shape {
            self.count("changed config");
            self.flow = next;
        }
    }

    /// One of a member's lanes may keep more or less than before, whatever it is doing.
    fn change_budget(&mut self) {
        let (all, calm) = (self.partitions(), self.is_calm());
        let Some(rng) = &mut self.budgets else {
            return;
        };
        let (member, at) = (rng.below(MEMBERS), *rng.pick(&all));
        let bytes = *rng.pick(&[0, 1, 400, 1500, 4000, 1 << 20]);
        let next = rng.range(1, 300);
        if !calm {
            self.after(next, Event::Budget);
        }
        let home = self.home(at);
        let Some(lane) = self.members[member].lanes.get_mut(&home) else {
            return;
        };
        let before = lane.budgets.insert(at, bytes).unwrap_or(self.lane_config.byte_budget);
        // What is ready stays, though the clock may have gone back since, and the first that is near is of any size.
        let ready = lane.lane.ready().filter(|_| before != bytes);
        let token = Token { member, at, generation: lane.generation };
        self.count("changed budget");
        self.feed(token, |lane, now, slots| lane.set_byte_budget(at.0, bytes, now, slots));
        if let Some((lane, _)) = self.lane(token)
            && let Some(ready) = ready
            && lane.lane.held().1 > (SHARES * bytes).max(NEAR_BYTES) + 400 * (ready + 1)
        {
            let held = lane.lane.held().1;
            self.ledger.broken = Some(format!("{held} bytes are kept where {bytes} may be"));
        }
    }

    fn lose(&mut self, token: Token) {
        let now = self.clock(token.member);
        if let Some((lane, slots)) = self.lane(token) {
            lane.lane.lose(now, slots);
            let home = self.home(token.at);
            self.members[token.member].lanes.remove(&home);
            self.leave_transaction(token);
            self.poke(token.member);
        }
    }

    /// The member's other lanes may use slots that were given back.
    fn poke(&mut self, member: usize) {
        let lanes: Vec<_> =
            self.members[member].lanes.iter().map(|(at, lane)| (*at, lane.generation)).collect();
        for (at, generation) in lanes {
            self.feed(Token { member, at, generation }, |lane, now, slots| lane.tick(now, slots));
        }
    }

    fn produce(&mut self) {
        for _ in 0..self.rng.range(1, 20).unsigned_abs().min(self.to_produce) {
            self.to_produce -= 1;
            let id = self.ledger.produce();
            let at = (0, self.rng.below(PARTITIONS));
            self.append_fresh(at, id, vec![("trace".to_owned(), id.to_string().into_bytes())]);
            self.deliver_soon(at);
        }
        if self.to_produce > 0 {
            let next = self.rng.range(1, 1500);
            self.after(next, Event::Produce);
        }
    }

    /// Appends a record to a source topic. In an ordered world most belong to an entity.
    fn append_fresh(&mut self, at: Partition, id: u64, mut headers: Vec<(String, Vec<u8>)>) -> i64 {
        let now = self.time + EPOCH;
        headers.extend(self.ordering.iter_mut().flat_map(Ordering::headers));
        let offset = self.cluster.append(at, id, headers, now, &mut self.rng);
        if let Some(entity) = order::entity(&self.cluster.logs[&at].records[&offset]) {
            self.ledger.order.produce(at.1, entity, offset, id);
        }
        offset
    }

    /// Another producer writes within a transaction: to a source topic what is to be run, elsewhere only a marker.
    fn begin_transaction(&mut self) {
        let at = *self.rng.pick(&self.partitions());
        let records = if at.0 == 0 { self.to_produce.min(3) } else { 0 };
        self.to_produce -= records;
        let offsets: Vec<_> = (0..records)
            .map(|_| {
                let id = self.ledger.produce();
                self.append_fresh(at, id, Vec::new())
            })
            .collect();
        let log = self.cluster.logs.entry(at).or_default();
        let first = offsets.first().copied().unwrap_or(log.end);
        log.end = log.end.max(first + 1);
        log.open.insert(first, offsets);
        let length = self.rng.range(1, 3000);
        self.after(length, Event::EndTransaction { at, first });
    }

    fn end_transaction(&mut self, at: Partition, first: i64) {
        let (commits, now) = (!self.rng.one_in(3), self.time);
        let aborted = self.cluster.end_transaction(at, first, commits, now);
        if !commits {
            self.count("aborted transaction");
        }
        for record in aborted {
            self.ledger.aborted(record.id);
        }
        self.deliver_soon(at);
    }

    fn deliver(&mut self, token: Token) {
        let batch = 1 + self.rng.below(30);
        let Some((lane, _)) = self.lane(token) else {
            return;
        };
        lane.delivering.remove(&token.at);
        if (lane.is_paused && lane.is_pausable(token.at)) || lane.drains_to.is_some() {
            return;
        }
        let part = token.at.0;
        let position = lane.lane.position(part);
        let log = &self.cluster.logs[&token.at];
        let end = log.stable();
        let is_held_back = position == end && end < log.end;
        let readable = log.records.range(position..end.max(position));
        let records: Vec<_> = readable.take(batch).map(|it| (*it.0, it.1.clone())).collect();
        if is_held_back {
            self.count("held back by a transaction");
        }
        if records.is_empty() && position < end {
            self.feed(token, |lane, now, slots| lane.passed(part, end, now, slots));
        }
        let items: Vec<_> =
            records.iter().map(|(offset, record)| self.item(token.at, *offset, record)).collect();
        if batch.is_multiple_of(2) {
            self.feed(token, |lane, now, slots| lane.fetched_all(part, items, now, slots));
        } else {
            for item in items {
                self.feed(token, |lane, now, slots| lane.fetched(part, item, now, slots));
            }
        }
        if self.lane(token).is_some_and(|(lane, _)| lane.lane.position(part) < end) {
            self.deliver_to(token);
        }
    }

    fn read<'a>(&self, at: Partition, record: &'a Record) -> Reading<'a> {
        let place = match (at.0, self.flow.strategy().tiers().get(at.0.wrapping_sub(1))) {
            (0, _) => Place::Source,
            (tier, Some(it)) => {
                Place::Tier { index: u32::try_from(tier - 1).unwrap_or(0), delay: it.delay }
            }
            (_, None) => Place::Retry,
        };
        let timestamp = Timestamp::from_millis(record.appended_at);
        let context = ReadContext { group: GROUP, place, dialect: Dialect::Native, timestamp };
        headers::read(&record.headers(), None, &context)
    }

    fn item(&self, at: Partition, offset: i64, record: &Rc<Record>) -> Item<Ranked<Rc<Record>>> {
        let reading = self.read(at, record);
        let (due, is_dated, fate) = match (reading.due, reading.owner) {
            (_, Owner::AnotherGroup) => (Timestamp::default(), false, Fate::Settle),
            (Due::Now, _) => (Timestamp::default(), false, Fate::Run),
            (Due::At(due), _) => (due, true, Fate::Run),
            (Due::Unreadable(_), _) => {
                (Timestamp::default(), false, Fate::DeadLetter(Reason::Header))
            }
        };
        Item {
            offset,
            due,
            is_dated,
            priority: 0,
            appended_at: Timestamp::from_millis(record.appended_at),
            fate,
            bytes: record.bytes,
            payload: Ranked { rank: self.rank(at, offset, record), payload: record.clone() },
        }
    }

    fn ran(&mut self, token: Token, offset: i64, record: &Rc<Record>, in_place: InPlace) {
        // A handler's success is a fact, whoever hears of it.
        let succeeded = !self.is_down() && self.ledger.succeeds(record.id, &mut self.rng);
        if succeeded {
            self.ledger.done(record.id);
        }
        if let Some(entity) = order::entity(record) {
            self.ledger.order.ran(token.generation, token.at.1, entity);
        }
        let part = token.at.0;
        if self.lane(token).is_none() {
            return;
        }
        if let Some((lane, _)) = self.lane(token) {
            lane.running.remove(&(token.at, offset));
        }
        if succeeded {
            if let Some((lane, _)) = self.lane(token) {
                lane.settled.push(record.id);
            }
            self.feed(token, |lane, now, slots| lane.succeeded(part, offset, now, slots));
            return self.poke(token.member);
        }
        let retryable = self.is_down();
        let mut is_wanted = false;
        self.feed(token, |lane, now, slots| {
            let given_back = (offset, record.clone());
            is_wanted = lane.failed(part, given_back, retryable, now, slots)
        });
        if is_wanted {
            let next = self.decide(token, offset, record, in_place);
            if let Some((lane, _)) = self.lane(token)
                && next == Next::Settle
            {
                lane.settled.push(record.id);
            }
            self.feed(token, |lane, now, slots| lane.judged(part, offset, next, now, slots));
        } else {
            self.count("held back by a breaker");
        }
        self.poke(token.member);
    }

    /// What the real decision says, with the real headers.
    fn decide(
        &mut self,
        token: Token,
        offset: i64,
        record: &Rc<Record>,
        in_place: InPlace,
    ) -> Next<Hops> {
        let now = self.clock(token.member);
        let failure = self.ledger.failure(record.id, &mut self.rng);
        let reading = self.read(token.at, record);
        let headers = record.headers();
        let view = RecordView { topic: "orders", headers: &headers, ..RecordView::default() };
        let delivery = Delivery { record: view, state: &reading.state, in_place };
        if self.fault() {
            self.count("stop");
            return Next::Stop;
        }
        let draw = Draw::Seed(self.rng.next());
        let verdict = self.flow.decide(&delivery, &Incident::from(&failure), now, draw);
        let (to, stop) = match verdict.action {
            redrive_core::Action::RunAgain { wait, in_place } => {
                return Next::RunAgain { wait, in_place };
            }
            redrive_core::Action::Publish { topic, due, .. } => {
                let tiers = self.flow.strategy().tiers();
                let tier = tiers.iter().position(|it| it.topic == *topic).unwrap_or(0);
                (
                    Some((tier + 1, token.at.1)),
                    Stop::Tier { due, delay: tiers[tier].delay, forward_to: None },
                )
            }
            redrive_core::Action::DeadLetter { reason, .. } => {
                (None, Stop::DeadLetter { reason, follows: None })
            }
            redrive_core::Action::Drop { .. } => {
                self.ledger.dropped(record.id);
                return Next::Settle;
            }
            redrive_core::Action::Stop { .. } => {
                self.count("stop");
                return Next::Stop;
            }
            _ => return Next::Settle,
        };
        if verdict.state.overall > self.flow.max_overall_attempts() {
            self.ledger.broken =
                Some(format!("record {} was published {} times", record.id, verdict.state.overall));
        }
        let failed = Some(Failed { failure: &failure, at: now });
        let out = self.stamped(token, offset, record, &reading, &verdict.state, to, stop, failed);
        Next::Publish(out)
    }

    fn publish_lands(&mut self, token: Token, offset: i64, id: u64, out: &Hops, landing: Landing) {
        let mut below = 0;
        let is_owner = self.owns(token);
        if landing != Landing::Failed {
            let now = self.time + EPOCH;
            match out.to {
                Some(at) => {
                    let headers = out.headers.clone();
                    below = 1 + self.cluster.append(at, id, headers, now, &mut self.rng);
                    self.copy_lands(at, below - 1, is_owner);
                    self.deliver_soon(at);
                }
                None => {
                    self.ledger.dead_lettered(id);
                    self.dead_letter_lands(token, offset, id, out);
                }
            }
            if self.lane(token).is_none() || !is_owner {
                self.count("late publish");
                self.ledger.may_run_again([id]);
            }
        }
        if landing == Landing::AckLost {
            self.count("lost acknowledgement");
            self.ledger.may_run_again([id]);
        }
        if landing == Landing::Fine
            && let Some((lane, _)) = self.lane(token)
        {
            lane.running.remove(&(token.at, offset));
            lane.settled.push(id);
        }
        self.feed(token, |lane, now, slots| match landing {
            Landing::Fine => lane.published(token.at.0, offset, below, now, slots),
            _ => lane.publish_failed(token.at.0, offset, now, slots),
        });
        self.poke(token.member);
    }

    fn refetched(&mut self, token: Token, ticket: u64, ranges: &[Range<i64>], fine: bool) {
        if !fine {
            self.count("failed refetch");
            // Some of it may have come before it failed.
            if let Some(range) = ranges.first().cloned() {
                self.refetch(token, range.start..range.start + (range.end - range.start + 1) / 2);
            }
            self.feed(token, |lane, now, slots| {
                lane.refetch_failed(token.at.0, ticket, now, slots)
            });
            return;
        }
        self.count("refetch");
        for range in ranges {
            self.refetch(token, range.clone());
        }
        self.feed(token, |lane, now, slots| lane.refetch_done(token.at.0, ticket, now, slots));
    }

    fn refetch(&mut self, token: Token, range: Range<i64>) {
        let log = &self.cluster.logs[&token.at];
        let records: Vec<_> = log.records.range(range).map(|it| (*it.0, it.1.clone())).collect();
        for (offset, record) in records {
            let item = self.item(token.at, offset, &record);
            self.feed(token, |lane, now, slots| lane.refetched(token.at.0, item, now, slots));
        }
    }

    /// What a member's lanes want to commit goes in one request, of which some parts may be accepted and others not.
    fn send_commits(&mut self, member: usize) {
        let commits = std::mem::take(&mut self.members[member].to_commit);
        let is_partly = commits.len() > 1 && self.fault();
        let (delay, whole) = (self.rng.range(1, 30), self.landing());
        let mut parts = Vec::new();
        for commit in commits {
            let part = if self.rng.one_in(2) { Landing::Fine } else { Landing::Failed };
            if self.lane(commit.token).is_some() {
                parts.push((commit, if is_partly { part } else { whole }));
            }
        }
        if parts.windows(2).any(|pair| pair[0].1 != pair[1].1) {
            self.count("partly accepted commit");
        }
        self.after(delay, Event::CommitsLand(parts));
    }

    fn commit_lands(&mut self, commit: Commit, landing: Landing) {
        let Commit { token, parts, covered, cuts } = commit;
        if !self.owns(token) {
            self.count("refused commit");
            self.lose(token);
            return;
        }
        if landing != Landing::Failed {
            self.keep_offsets(token, parts, &cuts);
        }
        if let Some((lane, _)) = self.lane(token)
            && landing == Landing::Fine
        {
            lane.settled.drain(..covered);
        }
        if landing != Landing::Fine {
            self.count("failed commit");
        }
        self.feed(token, |lane, now, slots| match landing {
            Landing::Fine => lane.committed(now, slots),
            _ => lane.commit_failed(now, slots),
        });
    }

    fn keep_offsets(
        &mut self,
        token: Token,
        parts: Vec<(i64, String)>,
        cuts: &BTreeMap<Partition, i64>,
    ) {
        for (at, (offset, metadata)) in self.parts(self.home(token.at)).into_iter().zip(parts) {
            let cut = cuts.get(&at).copied();
            self.cluster.offsets.insert(at, Committed { offset, metadata, cut });
        }
    }

    // ----- actions

    fn landing(&mut self) -> Landing {
        match (self.fault(), self.rng.one_in(2)) {
            (false, _) => Landing::Fine,
            (true, true) => Landing::AckLost,
            (true, false) => Landing::Failed,
        }
    }

    fn perform(&mut self, token: Token) {
        loop {
            let now = self.clock(token.member);
            let Some((lane, slots)) = self.lane(token) else {
                return;
            };
            let Some(asked) = lane.lane.next_action(token.at.0) else {
                let wake = lane.lane.next_wakeup(now, slots);
                self.wake_at(token, wake, now);
                break;
            };
            match asked {
                Asked::Part { part, action } => {
                    self.carry_out(Token { at: (part, token.at.1), ..token }, action);
                }
                Asked::Commit(parts) => self.commit(token, parts),
                Asked::Mark(marker) => self.mark(token, marker, true),
                Asked::Unmark(marker) => self.mark(token, marker, false),
                Asked::FindEnd => self.find_end(token),
                Asked::Drained => self.drained(token),
            }
        }
        self.count_dropped(token);
        let slots = self.fresh_slots.total();
        let limits = &self.lane_config;
        let (index, ready, budget) = (limits.index_limit, limits.ready_limit, limits.byte_budget);
        if self.lane(token).is_some_and(|(lane, _)| lane.lane.is_folded()) {
            self.count("folded");
        }
        let home = self.home(token.at);
        let (is_source, all) = (home.0 == 0, self.parts(home));
        let parts = all.len();
        if let Some((lane, _)) = self.lane(token) {
            let (records, bytes) = lane.lane.held();
            // A source's batch that is on its way when it is paused still comes.
            // What a breaker sends back to its place comes on top.
            let slack = if is_source { 40 } else { 2 } + slots;
            let slack = slack * parts;
            let told = |at| lane.budgets.get(at).copied().unwrap_or(budget);
            let budget: usize = all.iter().map(told).sum();
            // Those that stopped the lane come back when it goes on, up to what may be under way.
            let ready = ready * 5;
            if records > index + ready + slack || bytes > SHARES * budget + 400 * (slack + ready) {
                self.ledger.broken =
                    Some(format!("{records} records and {bytes} bytes are in memory"));
            }
        }
    }

    fn wake_at(&mut self, token: Token, wake: Option<Timestamp>, now: Timestamp) {
        let Some(wake) = wake else {
            return;
        };
        if wake <= now {
            self.ledger.broken = Some("a lane wants to be woken at once, for ever".to_owned());
        }
        let at = self.time + (wake.as_millis() - now.as_millis());
        if let Some((lane, _)) = self.lane(token)
            && lane.wake_at.is_none_or(|it| at < it)
        {
            lane.wake_at = Some(at);
            let delay = at - self.time;
            self.after(delay, Event::Wake(token));
        }
    }

    fn commit(&mut self, token: Token, parts: Vec<(i64, String)>) {
        let (covered, cuts) = self.lane(token).map_or_else(Default::default, |(lane, _)| {
            let covered = lane.covering.take().unwrap_or(lane.settled.len());
            (covered, std::mem::take(&mut lane.cuts))
        });
        let commit = Commit { token: self.whole(token), parts, covered, cuts };
        if self.is_exactly_once {
            return self.commit_in_transaction(commit);
        }
        let to_commit = &mut self.members[token.member].to_commit;
        to_commit.push(commit);
        if to_commit.len() == 1 {
            let delay = self.rng.range(0, 10);
            self.after(delay, Event::SendCommits(token.member));
        }
    }

    fn carry_out(&mut self, token: Token, action: Act) {
        match action {
            Action::Run { offset, payload, in_place } => {
                let due = self.item(token.at, offset, &payload).due;
                let clock = self.clock(token.member);
                if self.owns(token)
                    && let Some(rank) = self.rank(token.at, offset, &payload)
                {
                    let (generation, lane, id) = (token.generation, token.at.1, payload.id);
                    let position = self.lane(token).map_or(0, |it| it.0.lane.position(1));
                    self.ledger.start(Start { generation, lane, id, rank, position });
                }
                if !self.owns(token) {
                    // A member that was deposed without noticing it.
                    self.ledger.may_run_again([payload.id]);
                } else if self.is_exactly_once {
                    self.ledger.is_first(token.at, offset);
                }
                let late = clock.since(due.max(self.released_at(token.member, payload.id)));
                if self.is_roomy && late > LATEST && self.ledger.is_first_start(payload.id, due) {
                    self.ledger.broken = Some(format!("record {} runs {late:?} late", payload.id));
                }
                self.ledger.run(payload.id, due, clock);
                let time = if self.rng.one_in(40) {
                    self.rng.range(100, 3000)
                } else {
                    self.rng.range(1, 30)
                };
                if let Some((lane, _)) = self.lane(token) {
                    lane.running.insert((token.at, offset), payload.id);
                }
                self.after(time, Event::Ran { token, offset, record: payload, in_place });
            }
            Action::Publish { offset, payload, hop } => {
                let out = match hop {
                    Hop::Verdict(out) => out,
                    Hop::DeadLetter(reason) if self.ordering.is_some() => {
                        // Once it is on its way it stays so.
                        let is_new = self
                            .lane(token)
                            .is_some_and(|it| !it.0.running.contains_key(&(token.at, offset)));
                        if reason == Reason::Follower && is_new {
                            self.check_follower(token, offset, &payload);
                        }
                        let follows = self.follows(token, offset, &payload);
                        let topic = "orders";
                        let follows = follows.map(|it| Origin {
                            topic,
                            partition: partition(token.at),
                            offset: it.origin,
                        });
                        let stop = Stop::DeadLetter { reason, follows };
                        self.unrun(token, offset, &payload, None, stop)
                    }
                    Hop::DeadLetter(_) => Rc::new(Outgoing { to: None, headers: Vec::new() }),
                    Hop::Follow => {
                        self.count("follower");
                        let due = self.clock(token.member);
                        let stop = Stop::Tier { due, delay: None, forward_to: None };
                        self.unrun(token, offset, &payload, Some((1, token.at.1)), stop)
                    }
                    Hop::Reappend if self.ordering.is_some() => {
                        self.count("re-append");
                        let due = self.item(token.at, offset, &payload).due;
                        let stop = Stop::Tier { due, delay: None, forward_to: None };
                        self.unrun(token, offset, &payload, Some(token.at), stop)
                    }
                    Hop::Relay => {
                        self.count("relay");
                        let retry = self.flow.strategy().tiers().len() + 1;
                        let to = Some((retry, token.at.1));
                        Rc::new(Outgoing { to, headers: payload.headers.clone() })
                    }
                    Hop::Reappend => {
                        self.count("re-append");
                        Rc::new(Outgoing { to: Some(token.at), headers: payload.headers.clone() })
                    }
                };
                if let Some((lane, _)) = self.lane(token) {
                    lane.running.insert((token.at, offset), payload.id);
                }
                if self.is_exactly_once {
                    return self.publish_in_transaction((token, offset, payload.id, out));
                }
                let (delay, landing) = (self.late(), self.landing());
                self.after(
                    delay,
                    Event::PublishLands { token, offset, id: payload.id, out, landing },
                );
            }
            Action::Fetch { ticket, ranges } => {
                let is_sorted = ranges.windows(2).all(|pair| pair[0].start <= pair[1].start);
                if !is_sorted || ranges.iter().any(Range::is_empty) {
                    self.ledger.broken =
                        Some(format!("these offsets cannot be asked for: {ranges:?}"));
                }
                let (delay, fine) = (self.rng.range(1, 30), !self.fault());
                self.after(delay, Event::Refetched { token, ticket, ranges, fine });
            }
            Action::Store(block) => {
                self.count("block");
                if let Some((lane, _)) = self.lane(token) {
                    lane.covering.get_or_insert(lane.settled.len());
                }
                let (delay, landing) = (self.rng.range(1, 300), self.landing());
                self.after(delay, Event::StoreLands { token, block, landing });
            }
            Action::Delete(id) => {
                self.count("deleted block");
                self.cluster.blocks.remove(&(token.at, id));
            }
            Action::Pause | Action::Resume => {
                let is_paused = action == Action::Pause;
                self.count(if is_paused { "pause" } else { "resume" });
                if let Some((lane, _)) = self.lane(token) {
                    lane.is_paused = is_paused;
                }
                if !is_paused {
                    self.deliver_soon(token.at);
                }
            }
            Action::Halted { .. } => {
                let delay = self.rng.range(10, 2000);
                self.after(delay, Event::GoOn(token));
            }
            Action::Commit { .. } | Action::Drained => {}
            Action::Tell(told) => match told {
                Told::MapCut(high) => {
                    self.count("map cut");
                    if let Some((lane, _)) = self.lane(token) {
                        lane.cuts.insert(token.at, high);
                    }
                }
                Told::Lost(offsets) => self.lost(token, offsets),
                other => self.ledger.broken = Some(format!("{other:?}")),
            },
        }
    }

    /// When a record could be read that a transaction had held back, here or before it was relayed, by the member's clock.
    fn released_at(&self, member: usize, id: u64) -> Timestamp {
        let released = self.cluster.released.get(&id);
        let skew = self.members[member].skew;
        released.map_or(Timestamp::default(), |it| Timestamp::from_millis(it + skew))
    }

    /// Records are told to be gone. They must be, and what is more: what was deleted before its time, or soon after it, should
    /// have been appended again. It may have been settled since the last commit; else it has no end.
    fn lost(&mut self, token: Token, offsets: Range<i64>) {
        self.count("deleted above the commit point");
        let log = &self.cluster.logs[&token.at];
        if let Some((offset, _)) = log.records.range(offsets.clone()).next() {
            self.ledger.broken = Some(format!("{offset} is told to be lost, but is there"));
        }
        let late = i64::try_from(LATEST.as_millis()).unwrap_or(0);
        let deleted: Vec<_> =
            log.deleted.range(offsets).map(|it| (*it.0, it.1.0.clone(), it.1.1)).collect();
        for (offset, record, deleted_at) in deleted {
            let due = self.item(token.at, offset, &record).due.as_millis();
            if due + late <= deleted_at {
                self.ledger.left_too_long(record.id);
            }
        }
    }

    fn drained(&mut self, token: Token) {
        let Some((lane, _)) = self.lane(token) else {
            return;
        };
        let to = lane.drains_to;
        // What is still running will not be heard of.
        let unheard: Vec<_> = lane.running.values().chain(&lane.settled).copied().collect();
        self.ledger.may_run_again(unheard);
        let home = self.home(token.at);
        self.members[token.member].lanes.remove(&home);
        self.leave_transaction(token);
        match to.filter(|it| self.members[*it].is_alive) {
            Some(to) => self.assign(to, home),
            None => {
                self.orphans.insert(home);
                self.give_orphans_a_home();
            }
        }
        self.poke(token.member);
    }
}

fn partition(at: Partition) -> i32 {
    i32::try_from(at.1).unwrap_or(0)
}

/// A flow with topics and policies by chance. Where topics do not keep records for ever, delays are long.
fn flow(rng: &mut Rng, is_long: bool) -> Flow {
    let longest = if is_long { 60_000 } else { 9000 };
    let millis =
        |rng: &mut Rng, low, high| Duration::from_millis(rng.range(low, high).unsigned_abs());
    let (first, second) = (millis(rng, 1, 500), millis(rng, 100, longest));
    let attempts = rng.small(1, 3);
    let tiers = vec![
        Tier::new("orders.retry.1", first).with_attempts(attempts),
        Tier::new("orders.retry.2", second),
    ];
    let strategy = match rng.range(0, 4) {
        0 => Strategy::Tiers(tiers),
        1 => Strategy::DelayThenRetry { delays: tiers, retry: "orders.retry".into() },
        _ => Strategy::Single(Tier::endless("orders.retry")),
    };
    let backoff = match rng.range(0, 3) {
        0 => None,
        1 => Some(Backoff::from(Random::between(millis(rng, 0, 50), millis(rng, 100, longest)))),
        _ => Some(Backoff::from(Exponential::new(millis(rng, 1, 300)).with_jitter(0.5))),
    };
    let delayed = Delayed { attempts: Some(rng.small(1, 5)), backoff };
    let mut policy = Policy::default().with_delayed(delayed);
    if rng.one_in(2) {
        policy = policy.with_in_memory(
            InMemory::attempts(rng.small(1, 3)).with_backoff(Backoff::Fixed(millis(rng, 0, 300))),
        );
    }
    if rng.one_in(6) {
        policy = policy.then(redrive_core::Then::Drop);
    }
    Flow::new("orders").with_strategy(strategy).with_default(policy)
}

/// A failure of a kind that changes now and then, so that identifiers do.
pub fn failure(rng: &mut Rng) -> Failure {
    match rng.range(0, 8) {
        0 => Failure::of_type("shop::Timeout"),
        1 => Failure::of_status(404),
        _ => Failure::of_status(503),
    }
}
