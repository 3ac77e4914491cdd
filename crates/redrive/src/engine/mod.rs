//! A flow's engine: the thread that drives its lanes.
//!
//! It never waits for anything but its inbox: handlers run on tokio, the producer, the committer and the second consumer
//! answer by letter. Being a thread of its own, it wakes within a fraction of a millisecond of a due time.

pub(crate) mod census;
mod entity;
pub(crate) mod envelope;
pub(crate) mod horizon;
pub(crate) mod inbox;
pub(crate) mod incoming;
mod judge;
pub(crate) mod load;
pub(crate) mod machine;
mod order;
mod outbox;
pub(crate) mod plan;
mod quick;
mod run;
mod share;
pub(crate) mod trace;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::types::RDKafkaErrorCode;
use redrive_core::lane::{
    Action, Event as Told, Fate, Hop, Item, Next, OrderedCensus, Ranked, Run, Slots,
};
use redrive_core::offsets::BlockId;
use redrive_core::{Draw, Failure, Reason, Timestamp};
use tokio::runtime::Handle;

use crate::clock;
use crate::event::{Event, Events, Spot};
use crate::handler::Outcome;
use crate::kafka::commit::{self, Commits, Refusal};
use crate::kafka::publish::{self, Outgoing, Publisher, Unpublished};
use crate::kafka::queue::Queue;
use crate::kafka::reread::{self, Rereader};
use crate::kafka::state::StateTopic;
use crate::kafka::tails::Tails;
use crate::kafka::transaction;
use crate::numbers::Numbers;
use crate::record::Record;
use census::{Ages, LaneCensus, Rhythm};
use horizon::Horizon;
use inbox::{Inbox, LaneKey, Latch, Letter, Letters, Published, Ran, Read};
use incoming::{Incoming, New};
pub(crate) use judge::Partitions;
use judge::{Judge, alone, describe, spot};
use load::Load;
use machine::{Driver, Machine, Wholes};
use outbox::{Outbox, Parcel};
use plan::{FlowPlan, Role, Taken};
use quick::Quick;
pub(crate) use run::AnyHandler;
use run::{Runner, Start, Starts};
use trace::Tracer;

/// What an engine works with.
pub(crate) struct Tools {
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) state_topic: Arc<StateTopic>,
    /// Where there are ordered lanes: who knows where logs end.
    pub(crate) tails: Option<Arc<Tails>>,
    pub(crate) rereader: Rereader,
    pub(crate) groups: Vec<GroupLink>,
    pub(crate) partitions: Arc<dyn Partitions + Send + Sync>,
    pub(crate) events: Events,
    pub(crate) runtime: Handle,
    pub(crate) handler: Arc<dyn AnyHandler>,
    pub(crate) tracer: Option<Tracer>,
    /// How many bytes of waiting records all lanes keep together.
    pub(crate) payload_budget: usize,
}

impl Tools {
    /// The queue of a group, while that is there.
    fn queue(&self, group: usize) -> Option<Arc<Queue>> {
        self.groups.get(group)?.queue.upgrade()
    }
}

/// What an engine needs of a group.
pub(crate) struct GroupLink {
    pub(crate) commits: Arc<Commits>,
    pub(crate) queue: Weak<Queue>,
    /// Where hops and commits are one transaction, whoever makes it.
    pub(crate) transactions: bool,
}

/// What others see of a flow.
#[derive(Default)]
pub(crate) struct FlowState {
    pub(crate) numbers: Arc<Numbers>,
    /// Records that wait or are ready, and records that run.
    pub(crate) held: AtomicU64,
    pub(crate) running: AtomicU64,
    pub(crate) is_paused: AtomicBool,
    /// Whether a breaker holds records back.
    pub(crate) is_open: AtomicBool,
    /// Publishes that failed and were not made good yet.
    pub(crate) unpublished: AtomicU64,
    /// Why it stopped.
    pub(crate) stopped: Mutex<Option<String>>,
    /// Whether the process is to end because of it.
    pub(crate) wants_exit: AtomicBool,
    /// How its lanes were, a moment ago.
    pub(crate) census: Mutex<Vec<LaneCensus>>,
    /// How its entities were, where their events run in order.
    pub(crate) entities: Mutex<OrderedCensus>,
}

/// A lane, and what the engine knows of it.
struct Held {
    key: LaneKey,
    group: usize,
    machine: Machine,
    /// What was read while the lane wanted nothing.
    backlog: VecDeque<Incoming>,
    /// How far everything was read, when the backlog is taken.
    read_until: Option<i64>,
    /// Whether the lane wants nothing for now.
    is_held_back: bool,
    /// Whether its messages stay with librdkafka.
    is_cut_off: bool,
    wakeup: Option<Timestamp>,
    latch: Option<Latch>,
    /// By which its commit is known, and whether a transaction waits for that.
    ticket: u64,
    is_closing: bool,
    troubles: Troubles,
    ages: Ages,
    /// How whoever reads for it knows what will be kept, where records wait.
    horizon: Option<Arc<Horizon>>,
}

/// Records of a lane that did not reach their next stop.
#[derive(Default)]
struct Troubles {
    /// Those that are too large for it, and how often something smaller was tried.
    too_large: BTreeMap<i64, u8>,
    /// Those that could not be published.
    unpublished: BTreeSet<i64>,
}

impl Troubles {
    /// A record is no longer one that could not be published. Returns whether it was the last of the flow's.
    fn make_good(&mut self, offset: i64, state: &FlowState) -> bool {
        self.too_large.remove(&offset);
        self.unpublished.remove(&offset) && state.unpublished.fetch_sub(1, Ordering::Relaxed) == 1
    }
}

pub(crate) struct Engine {
    plan: Arc<FlowPlan>,
    tools: Tools,
    inbox: Arc<Inbox>,
    runner: Arc<Runner>,
    state: Arc<FlowState>,
    slots: Slots,
    lanes: BTreeMap<u64, Held>,
    wholes: Wholes,
    wakeups: BTreeSet<(Timestamp, u64)>,
    /// Lanes that something happened to.
    touched: BTreeSet<u64>,
    /// Lanes with something ready, and the one that got slots last.
    wanting: BTreeSet<u64>,
    served: u64,
    starts: Starts,
    outbox: Outbox,
    draws: u64,
    is_halted: bool,
    /// Whether lanes came or went since the budget was shared.
    is_to_share: bool,
    rhythm: Rhythm,
}

/// After so many pieces of work look at the clock: each takes some microseconds.
const GLANCE: usize = 128;

/// Without anything to do, look at the clock this often.
const IDLE: Duration = Duration::from_secs(1);

impl Engine {
    pub(crate) fn new(
        plan: Arc<FlowPlan>,
        tools: Tools,
        inbox: Arc<Inbox>,
        slots: Slots,
        state: Arc<FlowState>,
    ) -> Self {
        let workers = tools.runtime.metrics().num_workers().max(1);
        let runner = Arc::new(Runner {
            runtime: tools.runtime.clone(),
            handler: Arc::clone(&tools.handler),
            plan: Arc::clone(&plan),
            inbox: Arc::clone(&inbox),
            numbers: Arc::clone(&state.numbers),
            tracer: tools.tracer.clone(),
            workers,
            quick: Arc::new(Quick::new(workers)),
            // Slow, until it is known better.
            pace: AtomicU64::new(u64::MAX),
            waits: AtomicBool::new(true),
        });
        // Different in every process, so that members do not retry in step.
        let draws = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0);
        Self {
            plan,
            tools,
            inbox,
            runner,
            state,
            slots,
            lanes: BTreeMap::new(),
            wholes: Wholes::new(),
            wakeups: BTreeSet::new(),
            touched: BTreeSet::new(),
            wanting: BTreeSet::new(),
            served: 0,
            starts: Starts::default(),
            outbox: Outbox::default(),
            draws,
            is_halted: false,
            is_to_share: false,
            rhythm: Rhythm::default(),
        }
    }

    /// Drives the lanes until it is told to end.
    pub(crate) fn run(mut self) {
        let mut letters = Letters::default();
        loop {
            let wait = self.wakeups.first().map_or(IDLE, |it| clock::until(it.0).min(IDLE));
            let others = [self.outbox.wait(), self.runner.look()];
            let wait = others.into_iter().flatten().fold(wait, Duration::min);
            self.inbox.take(Instant::now() + wait, &mut letters);
            let Some(now) = self.open_letters(&mut letters, clock::now()) else {
                return;
            };
            self.wake(now);
            self.settle_down(now);
        }
    }

    /// Reads all letters. Returns the time, which goes on meanwhile, unless it is to end.
    fn open_letters(&mut self, letters: &mut Letters, mut now: Timestamp) -> Option<Timestamp> {
        let mut goes_on = true;
        for letter in letters.others.drain(..) {
            goes_on &= self.open_letter(letter, now);
        }
        // Before new lanes are given what was read for them.
        self.share_budget(now);
        self.done(&letters.done, now);
        letters.done.clear();
        for (count, ran) in (1..).zip(letters.ran.drain(..)) {
            self.ran(ran, now);
            now = self.glance(count, now);
        }
        for (count, published) in (1..).zip(letters.published.drain(..)) {
            self.published(published, now);
            now = self.glance(count, now);
        }
        for read in letters.read.drain(..) {
            self.read(read, now);
            now = self.glance(GLANCE, now);
        }
        goes_on.then_some(now)
    }

    /// In the midst of much work, now and then: what is due starts before the rest is done. Fresh records wait for the end of it, since they
    /// would start in small chunks otherwise. Returns the time.
    fn glance(&mut self, count: usize, now: Timestamp) -> Timestamp {
        if !count.is_multiple_of(GLANCE) {
            return now;
        }
        let now = clock::now();
        if self.wakeups.first().is_some_and(|it| it.0 <= now) {
            let others = std::mem::take(&mut self.touched);
            self.wake(now);
            // Those that got too few slots are looked at once more, where slots are shared.
            let woken: Vec<_> = self.touched.iter().copied().collect();
            self.perform_touched(now);
            self.start();
            self.touched.extend(others.into_iter().chain(woken));
        }
        now
    }

    fn open_letter(&mut self, letter: Letter, now: Timestamp) -> bool {
        match letter {
            Letter::Open { lane, key, group, machine } => {
                self.lanes.insert(lane, Held::new(key, group, Machine::Plain(machine)));
                self.is_to_share = true;
                if self.is_halted {
                    self.feed(lane, |machine, slots| machine.halt(now, slots));
                }
                self.touched.insert(lane);
            }
            Letter::OpenWhole { parts, group, machine } => {
                self.open_whole(parts, group, machine, now);
            }
            Letter::Drain { lanes, limit, latch } => {
                self.outbox.hurry();
                for lane in lanes {
                    match self.lanes.get_mut(&lane) {
                        Some(held) => {
                            held.latch = Some(latch.clone());
                            let until = now.after(limit);
                            self.feed(lane, |machine, slots| machine.drain(until, now, slots));
                        }
                        None => latch.count_down(),
                    }
                }
            }
            Letter::Lose { lanes } => {
                for lane in lanes {
                    self.feed(lane, |machine, slots| machine.lose(now, slots));
                    self.remove(lane);
                }
            }
            Letter::Close { group, ticket, lanes } => {
                let (parts, plain): (Vec<_>, Vec<_>) =
                    lanes.into_iter().partition(|it| self.is_part(it.0));
                for (lane, sent) in plain {
                    self.close(group, ticket, lane, &sent, now);
                }
                self.close_wholes(group, ticket, parts, now);
            }
            Letter::Committed { lane, ticket, result } => {
                if self.lanes.get(&lane).is_some_and(|it| it.ticket == ticket) {
                    self.committed(lane, result, now);
                }
            }
            Letter::Reread { lane, ticket, messages, end } => {
                let role = self.role(lane);
                for message in messages.into_iter().filter(|it| it.error().is_none()) {
                    // Its neighbours were not asked for, and are not to be kept with it.
                    let Taken { item, copy, .. } = self.plan.item(role, message, |_| true);
                    let item = item.map(Record::into_kept);
                    let plan = Arc::clone(&self.plan);
                    self.feed(lane, |machine, slots| match machine {
                        Driver::Plain(lane) => lane.refetched(item.map(Load::Shared), now, slots),
                        Driver::Part(whole, part) => {
                            let item = loaded(plan.ranked(item, copy));
                            whole.refetched(*part, item, now, slots);
                        }
                    });
                }
                if let Some(is_read) = end {
                    self.feed(lane, |machine, slots| {
                        machine.refetch_ended(ticket, is_read, now, slots);
                    });
                }
            }
            Letter::Stored { lane, id, is_stored: true } => {
                self.feed(lane, |machine, slots| machine.stored(id, now, slots));
            }
            Letter::Stored { lane, id, is_stored: false } => self.not_stored(lane, id, now),
            Letter::Marked { lane, marker, is_there, result } => {
                self.marked(lane, marker, is_there, result, now);
            }
            Letter::Marker { lane, marker, offset, name } => {
                self.marker(lane, marker, offset, name, now);
            }
            Letter::MarkerDeleted { lane, marker, offset, end } => {
                self.marker_deleted(lane, marker, (offset, end), now);
            }
            Letter::SourceEnds { lane, end } => self.source_ends(lane, end, now),
            Letter::Resume => {
                // It is user code, and this thread is not to end with it.
                _ = catch_unwind(AssertUnwindSafe(|| self.tools.handler.resumed()));
                self.set_stopped(None);
                self.go_on(now);
                self.tools.events.tell(&Event::Resumed);
            }
            Letter::Pause(is_paused) => {
                let was_paused = self.state.is_paused.swap(is_paused, Ordering::Relaxed);
                if is_paused && !was_paused {
                    self.tools.events.tell(&Event::Paused);
                }
                if is_paused { self.halt(now) } else { self.go_on(now) }
            }
            Letter::End => return false,
        }
        true
    }

    fn set_stopped(&self, reason: Option<String>) {
        *self.state.stopped.lock() = reason;
    }

    /// The flow stops, until somebody lets it go on.
    fn stop(&mut self, reason: String, now: Timestamp) {
        self.set_stopped(Some(reason));
        self.halt(now);
    }

    /// All lanes stop taking records.
    fn halt(&mut self, now: Timestamp) {
        self.is_halted = true;
        let lanes: Vec<_> = self.lanes.keys().copied().collect();
        for lane in lanes {
            self.feed(lane, |machine, slots| machine.halt(now, slots));
        }
    }

    /// They go on, unless something else holds them.
    fn go_on(&mut self, now: Timestamp) {
        let is_stopped = self.state.stopped.lock().is_some();
        if is_stopped || self.state.is_paused.load(Ordering::Relaxed) {
            return;
        }
        self.is_halted = false;
        let lanes: Vec<_> = self.lanes.keys().copied().collect();
        for lane in lanes {
            self.feed(lane, |machine, slots| machine.resume(now, slots));
        }
    }

    fn role(&self, lane: u64) -> Role {
        let stop = self.lanes.get(&lane).and_then(|it| self.plan.stops.get(it.key.stop));
        stop.map_or(Role::Source, |it| it.role)
    }

    fn topic(&self, key: LaneKey) -> Arc<str> {
        self.plan.stops.get(key.stop).map_or_else(|| "".into(), |it| Arc::clone(&it.topic))
    }

    /// Gives a lane something.
    fn feed(&mut self, lane: u64, input: impl FnOnce(&mut Driver<'_>, &mut Slots)) {
        self.grant(lane);
        if let Some(held) = self.lanes.get_mut(&lane)
            && let Some(mut machine) = held.machine.driver(&mut self.wholes)
        {
            input(&mut machine, &mut self.slots);
            self.touched.insert(lane);
        }
    }

    /// Lets a lane start its share of what can be started: slots that are free belong to all lanes with something ready.
    fn grant(&mut self, lane: u64) {
        let lane = match self.lanes.get(&lane) {
            Some(held) if !self.wholes.is_empty() => held.machine.home(lane),
            _ => lane,
        };
        let others = self.wanting.len() - usize::from(self.wanting.contains(&lane));
        let starts = if others == 0 {
            usize::MAX
        } else {
            (self.slots.total() - self.slots.running()) / (others + 1)
        };
        self.slots.grant(starts);
    }

    fn remove(&mut self, lane: u64) {
        self.tell_dropped(lane);
        self.wholes.remove(&lane);
        self.wanting.remove(&lane);
        if let Some(held) = self.lanes.remove(&lane) {
            self.is_to_share = true;
            self.wakeups.extract_if(.., |it| it.1 == lane).for_each(drop);
            let unpublished = held.troubles.unpublished.len() as u64;
            self.state.unpublished.fetch_sub(unpublished, Ordering::Relaxed);
            if let Some(latch) = held.latch {
                latch.count_down();
            }
        }
    }

    // ----- what happened

    fn read(&mut self, read: Read, now: Timestamp) {
        let Read { lane, messages, until, horizon } = read;
        let Some(held) = self.lanes.get_mut(&lane) else {
            return;
        };
        held.ages.read(&messages);
        held.horizon = horizon.or(held.horizon.take());
        if held.is_cut_off {
            held.backlog.extend(messages);
            held.read_until = until.or(held.read_until);
            return;
        }
        self.take_in(lane, messages, until, now);
    }

    /// The lane takes what was read, and is told how far that is everything.
    fn take_in(&mut self, lane: u64, messages: Vec<Incoming>, until: Option<i64>, now: Timestamp) {
        let role = self.role(lane);
        self.grant(lane);
        let Some(held) = self.lanes.get_mut(&lane) else {
            return;
        };
        let Some(mut machine) = held.machine.driver(&mut self.wholes) else {
            return;
        };
        let (plan, events) = (&self.plan, &self.tools.events);
        let is_looked_at = matches!(machine, Driver::Part(..));
        let messages = AskedAhead { messages: messages.into_iter(), is_looked_at };
        let taken = |incoming: Incoming| {
            let taken = match incoming {
                Incoming::New(new) => plan.item(role, new.message, |_| false),
                Incoming::Taken(taken) => *taken,
                Incoming::Error(message) => {
                    let error = message.error().map(|it| it.to_string()).unwrap_or_default();
                    events.tell(&Event::Unread {
                        topic: message.topic().into(),
                        partition: message.partition(),
                        error: format!("{error}: {}", message.error_text()),
                    });
                    return None;
                }
            };
            let spot = || spot(&taken.item.payload);
            if taken.item.fate == Fate::Settle {
                events.tell(&Event::Foreign(spot()));
            } else if let Some(header) = taken.unreadable {
                events.tell(&Event::Unreadable { spot: spot(), header });
            }
            Some(taken)
        };
        match &mut machine {
            Driver::Plain(lane) => {
                let items = messages.filter_map(|incoming| match incoming {
                    Incoming::New(New { message, offset, bytes }) => {
                        Some(FlowPlan::new_item((offset, bytes), Load::Fresh(message)))
                    }
                    other => Some(taken(other)?.item.map(Load::Shared)),
                });
                lane.fetched_all(items, now, &mut self.slots);
            }
            Driver::Part(whole, part) => {
                let items = messages.filter_map(|incoming| {
                    let Taken { item, copy, .. } = taken(incoming)?;
                    Some(loaded(plan.ranked(item, copy)))
                });
                whole.fetched_all(*part, items, now, &mut self.slots);
            }
        }
        if let Some(until) = until {
            machine.passed(until, now, &mut self.slots);
        }
        if let Some((horizon, until)) = held.horizon.as_ref().zip(machine.horizon()) {
            horizon.set(until);
        }
        self.touched.insert(lane);
    }

    /// Runs have succeeded: those of a lane that come one after the other are settled together.
    fn done(&mut self, done: &[(u64, Range<i64>)], now: Timestamp) {
        let count: i64 = done.iter().map(|(_, run)| run.end - run.start).sum();
        self.state.numbers.succeeded.add(count.unsigned_abs());
        for together in done.chunk_by(|one, next| one.0 == next.0) {
            if let Some((lane, _)) = together.first() {
                let runs = together.iter().map(|it| it.1.clone());
                self.feed(*lane, |machine, slots| machine.succeeded_all(runs, now, slots));
            }
        }
    }

    fn ran(&mut self, ran: Ran, now: Timestamp) {
        let Ran { lane, offset, outcome, record } = ran;
        let (failure, asked) = match outcome {
            Outcome::Done => return self.done(&[(lane, offset..offset + 1)], now),
            Outcome::Failed(failure) => (failure, None),
            Outcome::Asked(failure, asked) => (failure, Some(asked)),
            Outcome::Held(failure, wait) => {
                return self.hold(lane, (offset, record), &failure, wait, now);
            }
        };
        self.state.numbers.run_failed();
        let role = self.role(lane);
        let Some(held) = self.lanes.get_mut(&lane) else {
            return;
        };
        self.touched.insert(lane);
        let Some(mut machine) = held.machine.driver(&mut self.wholes) else {
            return;
        };
        machine.given_back(offset, record);
        // What the handler asked for is no word on the service behind it.
        let is_retryable = failure.is_retryable() && asked.is_none();
        if !machine.failed(offset, is_retryable, now, &mut self.slots) {
            return;
        }
        let Some((record, in_place)) = machine.active(offset) else {
            return;
        };
        self.draws = self.draws.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let order = machine.whole();
        let judge = Judge { plan: &self.plan, partitions: &*self.tools.partitions, now, order };
        let draw = Draw::Seed(self.draws);
        let judged = judge.failed(role, record, in_place, &failure, asked, draw);
        self.tools.events.tell(&judged.event);
        let is_stop = judged.next == Next::Stop;
        machine.judged(offset, judged.next, now, &mut self.slots);
        if is_stop {
            self.stop(judged.event.to_string(), now);
            self.state.wants_exit.fetch_or(judged.exit, Ordering::Release);
        }
    }

    /// The lane commits what is in a transaction, with the transaction.
    fn close(&mut self, group: usize, ticket: u64, lane: u64, sent: &[i64], now: Timestamp) {
        let Some(held) = self.lanes.get_mut(&lane) else {
            if let Some(link) = self.tools.groups.get(group) {
                link.commits.refuse(ticket);
            }
            return;
        };
        (held.ticket, held.is_closing) = (ticket, true);
        for offset in sent {
            if held.troubles.make_good(*offset, &self.state) {
                self.tools.events.tell(&Event::Recovered);
            }
        }
        self.feed(lane, |machine, slots| {
            if let Driver::Plain(lane) = machine {
                lane.close_transaction(sent, now, slots);
            }
        });
    }

    fn not_stored(&mut self, lane: u64, id: BlockId, now: Timestamp) {
        self.state.numbers.state_block_failures.add(1);
        let Some(held) = self.lanes.get_mut(&lane) else {
            return;
        };
        self.touched.insert(lane);
        let machine = held.machine.driver(&mut self.wholes);
        if !machine.is_some_and(|mut it| it.store_failed(id, now, &mut self.slots)) {
            return;
        }
        // It is known by the lane that commits.
        let home = held.machine.home(lane);
        let Some(held) = self.lanes.get_mut(&home) else {
            return;
        };
        if std::mem::take(&mut held.is_closing)
            && let Some(link) = self.tools.groups.get(held.group)
        {
            link.commits.refuse(held.ticket);
        }
        // Whatever comes of that transaction, this lane knows already.
        held.ticket = 0;
        let key = held.key;
        let error = "the state topic did not take a block".to_owned();
        let (topic, partition) = (self.topic(key), key.partition);
        self.tools.events.tell(&Event::CommitFailed { topic, partition, error });
    }

    /// A record stays in its place, and nothing is counted.
    fn hold(
        &mut self,
        lane: u64,
        (offset, record): (i64, Record),
        failure: &Failure,
        wait: Duration,
        now: Timestamp,
    ) {
        let Some(held) = self.lanes.get_mut(&lane) else {
            return;
        };
        self.touched.insert(lane);
        let Some(mut machine) = held.machine.driver(&mut self.wholes) else {
            return;
        };
        machine.given_back(offset, record);
        if !machine.failed(offset, false, now, &mut self.slots) {
            return;
        }
        let Some((record, in_place)) = machine.active(offset) else {
            return;
        };
        let (spot, error) = (spot(record), describe(failure));
        self.tools.events.tell(&Event::Held { spot, error, wait });
        machine.judged(offset, Next::RunAgain { wait, in_place }, now, &mut self.slots);
    }

    fn published(&mut self, published: Published, now: Timestamp) {
        let Published { lane, offset, result } = published;
        let Some(held) = self.lanes.get_mut(&lane) else {
            return;
        };
        self.touched.insert(lane);
        match result {
            Ok(at) => {
                if held.troubles.make_good(offset, &self.state) {
                    self.tools.events.tell(&Event::Recovered);
                }
                let Some(mut machine) = held.machine.driver(&mut self.wholes) else {
                    return;
                };
                // A broker that got it twice does not say where it is.
                if at < 0
                    && let Some(to) = machine.target(offset)
                {
                    return self.find(lane, offset, to);
                }
                machine.published(offset, at, now, &mut self.slots);
            }
            Err(Unpublished::Refused(error)) => self.not_published(lane, offset, error, now),
            Err(Unpublished::Aborted) => {
                self.feed(lane, |machine, slots| machine.publish_again(offset, now, slots));
            }
        }
    }

    /// A record is held until its next stop takes it. One that is too large for it, even by itself, is made smaller, then dead-lettered,
    /// and if nothing takes it the flow stops.
    fn not_published(&mut self, lane: u64, offset: i64, error: RDKafkaErrorCode, now: Timestamp) {
        let role = self.role(lane);
        let Some(held) = self.lanes.get_mut(&lane) else {
            return;
        };
        let Some(mut machine) = held.machine.driver(&mut self.wholes) else {
            return;
        };
        let Some((record, _)) = machine.active(offset) else {
            return;
        };
        let (record, hop) = (record.clone(), machine.publishing(offset).cloned());
        let order = machine.whole();
        let judge = Judge { plan: &self.plan, partitions: &*self.tools.partitions, now, order };
        let outgoing = hop.map(|hop| judge.hop(role, &record, hop));
        let to = outgoing.as_ref().map_or_else(|| "".into(), |it| Arc::clone(&it.topic));
        let is_too_large = publish::is_too_large(error);
        // That is said of a whole batch, whichever of its records are too large.
        if is_too_large && let Some(outgoing) = outgoing.as_ref().filter(|it| !it.is_alone) {
            let next = Next::Publish(Arc::new(alone(outgoing)));
            machine.redirected(offset, next, now, &mut self.slots);
            return;
        }
        if error != RDKafkaErrorCode::QueueFull {
            if held.troubles.unpublished.insert(offset) {
                self.state.unpublished.fetch_add(1, Ordering::Relaxed);
            }
            let (spot, to) = (spot(&record), Arc::clone(&to));
            let error = error.to_string();
            self.tools.events.tell(&if is_too_large {
                Event::TooLarge { spot, to }
            } else {
                Event::PublishFailed { spot, to, error }
            });
        }
        if !is_too_large {
            machine.publish_failed(offset, now, &mut self.slots);
            return;
        }
        let tried = held.troubles.too_large.entry(offset).or_default();
        *tried = tried.saturating_add(1);
        let next = match (*tried, outgoing) {
            (1, Some(outgoing)) => Next::Publish(Arc::new(judge.trimmed(&outgoing))),
            (2, Some(outgoing)) => {
                let letter = judge.too_large(role, &record, &outgoing);
                self.tools.events.tell(&judge.dead_lettered(role, &record, Reason::TooLarge));
                Next::Publish(Arc::new(letter))
            }
            _ => Next::Stop,
        };
        let is_stop = next == Next::Stop;
        if is_stop {
            // When the flow goes on the record begins anew, and may well succeed.
            held.troubles.make_good(offset, &self.state);
        }
        machine.redirected(offset, next, now, &mut self.slots);
        if is_stop {
            let reason =
                format!("{} is too large for {to}, and nothing else takes it", spot(&record));
            let event = Event::Stopped { spot: spot(&record), error: reason.clone() };
            self.tools.events.tell(&event);
            self.stop(reason, now);
        }
    }

    fn committed(&mut self, lane: u64, result: Result<(), Refusal>, now: Timestamp) {
        let Some(held) = self.lanes.get_mut(&lane) else {
            return;
        };
        self.touched.insert(lane);
        let Some(mut machine) = held.machine.driver(&mut self.wholes) else {
            return;
        };
        match result {
            Ok(()) => {
                self.state.numbers.commits.add(1);
                machine.committed(now, &mut self.slots);
            }
            Err(refusal) => {
                if matches!(refusal, Refusal::TooLong) {
                    machine.shorten_metadata();
                }
                machine.commit_failed(now, &mut self.slots);
                let (key, error) = (
                    held.key,
                    match refusal {
                        Refusal::NotNow => None,
                        Refusal::TooLong => {
                            Some("the metadata is too long for the broker".to_owned())
                        }
                        Refusal::Failed(error) => Some(error),
                    },
                );
                if let Some(error) = error {
                    let (topic, partition) = (self.topic(key), key.partition);
                    self.tools.events.tell(&Event::CommitFailed { topic, partition, error });
                }
            }
        }
    }

    /// Looks at lanes whose time has come.
    fn wake(&mut self, now: Timestamp) {
        while let Some((at, lane)) = self.wakeups.first().copied().filter(|it| it.0 <= now) {
            self.wakeups.remove(&(at, lane));
            self.grant(lane);
            if let Some(held) = self.lanes.get_mut(&lane) {
                held.wakeup = None;
                if let Some(mut machine) = held.machine.driver(&mut self.wholes) {
                    machine.tick(now, &mut self.slots);
                }
                self.touched.insert(lane);
            }
        }
        // The clock went back: what was to be woken is looked at again.
        if self.wakeups.first().is_some_and(|it| it.0 > now.after(2 * IDLE)) {
            self.touched.extend(self.lanes.keys());
        }
    }

    // ----- what is to be done

    /// Carries out what the lanes ask for, until they ask for no more.
    fn settle_down(&mut self, mut now: Timestamp) {
        loop {
            // First what is due: sending many takes a while.
            self.start_ready(now);
            now = self.send_parcels(now);
            if self.touched.is_empty() {
                break;
            }
        }
        let wholes = &mut self.wholes;
        let lanes = self.lanes.values_mut();
        let held: usize = lanes.filter_map(|it| Some(it.machine.driver(wholes)?.held())).sum();
        self.state.held.store(held as u64, Ordering::Relaxed);
        self.state.running.store(self.slots.running() as u64, Ordering::Relaxed);
        self.look_at_breaker();
        if self.rhythm.is_time() {
            self.take_census();
        }
    }

    /// Carries out what the lanes ask for, but sends nothing yet.
    fn start_ready(&mut self, now: Timestamp) {
        while !self.touched.is_empty() {
            self.perform_touched(now);
            self.share_slots(now);
        }
        self.start();
    }

    fn perform_touched(&mut self, now: Timestamp) {
        for lane in std::mem::take(&mut self.touched) {
            self.perform(lane, now);
        }
    }

    fn start(&mut self) {
        self.state.numbers.runs.add(self.starts.len() as u64);
        self.runner.start(&mut self.starts);
    }

    /// Sends what is to go now. What belonged to a lane that is gone is its next owner's business. Returns the time.
    fn send_parcels(&mut self, mut now: Timestamp) -> Timestamp {
        for (count, parcel) in (1..).zip(self.outbox.take()) {
            now = self.glance(count, now);
            let Parcel { lane, offset, record, outgoing } = parcel;
            if !self.lanes.contains_key(&lane) {
                continue;
            }
            let receipt = Arc::clone(&self.inbox);
            let sent =
                self.tools.publisher.publish(Some(record), outgoing, receipt, (lane, offset));
            if let Err(error) = sent {
                self.touched.insert(lane);
                self.not_published(lane, offset, error, now);
            }
        }
        now
    }

    fn look_at_breaker(&mut self) {
        let is_open = self.slots.is_open();
        if self.state.is_open.load(Ordering::Relaxed) != is_open {
            self.state.is_open.store(is_open, Ordering::Relaxed);
            let event = if is_open { Event::BreakerOpened } else { Event::BreakerClosed };
            self.tools.events.tell(&event);
        }
    }

    /// Lets others see how the lanes are.
    fn take_census(&mut self) {
        self.take_order_census();
        let (plan, wholes) = (&self.plan, &mut self.wholes);
        let all = self.lanes.values_mut().filter_map(|held| {
            let stop = plan.stops.get(held.key.stop)?;
            let counted = held.machine.driver(wholes)?.census();
            let backlog = held.backlog.len();
            let read = counted.position + i64::from(backlog > 0);
            Some(LaneCensus {
                topic: Arc::clone(&stop.topic),
                key: held.key,
                role: stop.role,
                group: held.group,
                backlog,
                oldest: held.ages.of(counted.commit_point, read),
                counted,
            })
        });
        let all = all.collect();
        *self.state.census.lock() = all;
    }

    /// Slots that are free go to lanes with something ready, to each in turn.
    fn share_slots(&mut self, now: Timestamp) {
        let served = self.served;
        let (before, after): (Vec<u64>, Vec<u64>) =
            self.wanting.iter().partition(|it| **it <= served);
        for lane in after.into_iter().chain(before) {
            let free = self.slots.total() - self.slots.running();
            if free == 0 {
                return;
            }
            self.slots.grant((free / self.wanting.len().max(1)).max(1));
            let running = self.slots.running();
            if let Some(held) = self.lanes.get_mut(&lane)
                && let Some(mut machine) = held.machine.driver(&mut self.wholes)
            {
                machine.tick(now, &mut self.slots);
            }
            if self.slots.running() > running {
                self.served = lane;
                self.touched.insert(lane);
            }
        }
    }

    fn perform(&mut self, lane: u64, now: Timestamp) {
        let role = self.role(lane);
        while let Some(held) = self.lanes.get_mut(&lane) {
            let machine = match &mut held.machine {
                Machine::Plain(machine) => machine,
                Machine::Part { whole, .. } => {
                    let whole = *whole;
                    return self.perform_whole(whole, now);
                }
            };
            // Nearly all that a lane asks for.
            while let Some(Run { offset, payload, in_place }) = machine.next_run() {
                if role != Role::Source && in_place.runs == 0 {
                    note_lateness(&self.state.numbers, machine.due(offset), now);
                }
                let (partition, load) = (held.key.partition, payload);
                self.starts.push(Start { lane, role, partition, offset, load, in_place });
            }
            match machine.next_action() {
                Some(action) => self.carry_out(lane, role, action, now),
                None if held.is_unfed() => self.take_backlog(lane, now),
                None => break,
            }
        }
        self.note_wakeup(lane, now);
    }

    fn note_wakeup(&mut self, lane: u64, now: Timestamp) {
        if let Some(held) = self.lanes.get_mut(&lane)
            && let Some(machine) = held.machine.driver(&mut self.wholes)
        {
            if machine.ready() > 0 {
                self.wanting.insert(lane);
            } else {
                self.wanting.remove(&lane);
            }
            let wakeup = machine.next_wakeup(now, &self.slots);
            if wakeup != held.wakeup {
                if let Some(old) = held.wakeup {
                    self.wakeups.remove(&(old, lane));
                }
                held.wakeup = wakeup;
                self.wakeups.extend(wakeup.map(|it| (it, lane)));
            }
        }
    }

    /// Does what a lane asks for, but for running its records.
    fn carry_out(
        &mut self,
        lane: u64,
        role: Role,
        action: Action<Load, Arc<Outgoing>>,
        now: Timestamp,
    ) {
        let Some(held) = self.lanes.get_mut(&lane) else {
            return;
        };
        let (key, group) = (held.key, held.group);
        let at = |topic: &Arc<str>| (Arc::clone(topic), key.partition);
        let topic = self.plan.stops.get(key.stop).map(|it| &it.topic);
        let Some(topic) = topic else {
            return;
        };
        match action {
            Action::Run { .. } => {}
            Action::Publish { offset, payload, hop } => {
                let Some(payload) = payload.into_record() else {
                    return;
                };
                let machine = held.machine.driver(&mut self.wholes);
                let order = machine.as_ref().and_then(|it| it.whole());
                let judge =
                    Judge { plan: &self.plan, partitions: &*self.tools.partitions, now, order };
                match hop {
                    Hop::DeadLetter(reason) => {
                        self.tools.events.tell(&judge.dead_lettered(role, &payload, reason));
                    }
                    Hop::Reappend => self.tools.events.tell(&Event::Reappended(spot(&payload))),
                    Hop::Relay => self.state.numbers.relayed.add(1),
                    Hop::Verdict(_) | Hop::Follow => {}
                }
                let outgoing = judge.hop(role, &payload, hop);
                if let Some(link) = self.tools.groups.get(group).filter(|it| it.transactions) {
                    let whole = self.wholes.get_mut(&held.machine.home(lane));
                    let mark = whole.and_then(|it| it.mark.take());
                    let hop = transaction::Hop { lane, offset, record: payload, outgoing, mark };
                    return link.commits.hop(hop);
                }
                let is_urgent = held.latch.is_some() || self.plan.is_ordered;
                let parcel = Parcel { lane, offset, record: payload, outgoing };
                self.outbox.put(parcel, is_urgent, now);
            }
            Action::Fetch { ticket, ranges } => self.tools.rereader.ask(reread::Request {
                lane,
                ticket,
                topic: Arc::clone(topic),
                partition: key.partition,
                ranges,
                inbox: Arc::clone(&self.inbox),
            }),
            Action::Store(block) => {
                self.state.numbers.state_blocks.add(1);
                self.tools.state_topic.store(
                    &self.tools.publisher,
                    (topic, key.partition),
                    &block,
                    lane,
                    &self.inbox,
                );
            }
            Action::Delete(id) => {
                self.tools.state_topic.delete(&self.tools.publisher, (topic, key.partition), id);
            }
            Action::Commit { offset, metadata } => {
                if !std::mem::take(&mut held.is_closing) {
                    held.ticket = commit::ticket();
                }
                if let Some(link) = self.tools.groups.get(group) {
                    let ticket = held.ticket;
                    link.commits.request([commit::Request { lane, ticket, offset, metadata }]);
                }
            }
            Action::Pause => {
                held.is_held_back = true;
                held.is_cut_off = true;
                if let Some(queue) = self.tools.queue(group) {
                    queue.hold_back(topic, key.partition);
                }
            }
            Action::Resume => held.is_held_back = false,
            Action::Halted { .. } => {}
            Action::Drained => self.remove(lane),
            Action::Tell(told) => {
                let (topic, partition) = at(topic);
                self.tools.events.tell(&match told {
                    Told::MapRefused(error) => Event::MapRefused { topic, partition, error },
                    Told::Lost(offsets) => Event::Lost { topic, partition, offsets },
                    Told::MapCut(offset) => Event::MapCut(Spot { topic, partition, offset }),
                    other => Event::Client {
                        error: format!("{topic}/{partition}"),
                        reason: format!("{other:?}"),
                    },
                });
            }
        }
    }

    /// The lane takes what was read while it wanted nothing. Only when all of that is taken more may come.
    fn take_backlog(&mut self, lane: u64, now: Timestamp) {
        const PIECE: usize = 500;
        let Some(held) = self.lanes.get_mut(&lane) else {
            return;
        };
        let size = held.backlog.len().min(PIECE);
        let piece: Vec<_> = held.backlog.drain(..size).collect();
        let until = if held.backlog.is_empty() { held.read_until.take() } else { None };
        if held.backlog.is_empty() {
            held.is_cut_off = false;
            let (key, group) = (held.key, held.group);
            let topic = self.topic(key);
            if let Some(queue) = self.tools.queue(group) {
                queue.forward(&topic, key.partition);
            }
        }
        self.take_in(lane, piece, until, now);
    }
}

/// A record that has a rank, as its lane takes it.
fn loaded(item: Item<Ranked<Record>>) -> Item<Ranked<Load>> {
    item.map(|it| Ranked { rank: it.rank, payload: Load::Shared(it.payload) })
}

/// Notes how late a retried record is started.
fn note_lateness(numbers: &Numbers, due: Option<Timestamp>, now: Timestamp) {
    if let Some(due) = due.filter(|it| *it > Timestamp::default()) {
        numbers.lateness.note(1, now.since(due));
    }
}

/// Messages, each of which is asked for some time before its turn comes, where it is looked at: another core has written them.
struct AskedAhead {
    messages: std::vec::IntoIter<Incoming>,
    /// Whether new ones are more than handed on.
    is_looked_at: bool,
}

impl Iterator for AskedAhead {
    type Item = Incoming;

    #[inline]
    fn next(&mut self) -> Option<Incoming> {
        const AHEAD: usize = 8;
        if let Some(message) = self.messages.as_slice().get(AHEAD) {
            message.prefetch(self.is_looked_at);
        }
        self.messages.next()
    }
}

impl Held {
    fn new(key: LaneKey, group: usize, machine: Machine) -> Self {
        Self {
            key,
            group,
            machine,
            backlog: VecDeque::new(),
            read_until: None,
            is_held_back: false,
            is_cut_off: false,
            wakeup: None,
            latch: None,
            ticket: 0,
            is_closing: false,
            troubles: Troubles::default(),
            ages: Ages::default(),
            horizon: None,
        }
    }

    /// Whether it wants more, and there is more.
    fn is_unfed(&self) -> bool {
        self.is_cut_off && !self.is_held_back
    }
}
