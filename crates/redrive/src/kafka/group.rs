//! A member of a consumer group: a thread that polls, and never waits for anything else.
//!
//! What it reads goes to the engines in batches. When partitions are assigned it looks up how far they are and makes their
//! lanes; when they are taken away it lets the lanes drain, within a limit, before it gives them back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use rdkafka::bindings as sys;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext, RebalanceProtocol};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};
use rdkafka::{Offset, TopicPartitionList};
use redrive_core::lane::{Lane, LaneConfig};

use super::begin::{self, Begin};
use super::client::{self, Properties, Told};
use super::commit::Commits;
use super::ends::Ends;
use super::lifeline::{Lifeline, Tethered};
use super::message::Message;
use super::offsets;
use super::queue::Queue;
use super::state::{self, StateTopic};
use super::transaction::Transactor;
pub(crate) use super::whole::{Joined, Ordered};
use crate::clock;
use crate::config::Start;
use crate::engine::horizon::Horizon;
use crate::engine::inbox::{Inbox, LaneKey, Latch, Letter, Read};
use crate::engine::incoming::Incoming;
use crate::engine::plan::{FlowPlan, Role};
use crate::event::{Event, Events};
use crate::numbers::monotonic;

/// How long the brokers may take to answer when partitions are assigned.
pub(super) const ANSWER: Duration = Duration::from_secs(10);
/// How long a read waits for records, and so how soon a rebalance is noticed.
const WAIT: Duration = Duration::from_millis(20);
/// How often partitions are tried again that could not be opened.
const OPEN_AGAIN: Duration = Duration::from_secs(1);
/// How long lanes may take beyond their limit to say that they have ended.
const GRACE: Duration = Duration::from_secs(1);
/// How long a member may go without a poll before it is said to stand still, beside what is known to take long.
const STILL: Duration = Duration::from_secs(30);
/// How long a commit that is under way may take.
const COMMIT: Duration = Duration::from_secs(60);
/// How long a consumer may take to be closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(10);
/// How often lanes are told how far everything was read, behind the last record too.
const PASS_EVERY: Duration = Duration::from_millis(500);

/// Lanes are numbered through the whole process, so that nobody mistakes one for another.
pub(super) static LANES: AtomicU64 = AtomicU64::new(1);

/// A topic and a partition of it.
pub(super) type Partition = (Arc<str>, i32);

/// A topic that a group reads, and whose it is.
#[derive(Clone)]
pub(crate) struct Subscribed {
    pub(crate) topic: Arc<str>,
    pub(crate) plan: Arc<FlowPlan>,
    /// Which of the flow's topics.
    pub(crate) stop: usize,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) lanes: LaneConfig,
    /// Where its partitions do not stand alone.
    pub(crate) joined: Option<Joined>,
    /// Where the group begins, if it has committed nothing.
    pub(crate) start: Start,
    /// What is told of its partitions.
    pub(crate) events: Events,
}

impl Subscribed {
    /// What its records are to their flow, where they were tried before.
    fn retried(&self) -> Option<Retried> {
        let role = self.plan.stops.get(self.stop)?.role;
        if self.plan.is_new(role) {
            return None;
        }
        Some(Retried { plan: Arc::clone(&self.plan), role, horizon: Arc::new(Horizon::new()) })
    }
}

/// How a member is set up.
pub(crate) struct GroupPlan {
    /// Which of the process's groups it is.
    pub(crate) index: usize,
    pub(crate) group: String,
    /// The group that read its topics before they got one of their own.
    pub(crate) predecessor: Option<String>,
    pub(crate) topics: Vec<Subscribed>,
    pub(crate) revoke_limit: Duration,
    pub(crate) shutdown_limit: Duration,
    /// Whether hops and commits are one transaction.
    pub(crate) is_exactly_once: bool,
    /// What lanes of several partitions need.
    pub(crate) ordered: Option<Ordered>,
}

/// What others see of a member.
#[derive(Default)]
pub(crate) struct Pulse {
    /// The group.
    pub(crate) group: String,
    /// Until when it need not poll again, in milliseconds of a clock that never jumps.
    alive_until: AtomicU64,
    /// How often partitions were assigned or taken away.
    pub(crate) rebalances: AtomicU64,
    /// Where the logs of its partitions end.
    pub(crate) ends: Ends,
    /// Whether it was assigned anything yet, be it nothing.
    pub(crate) is_joined: AtomicBool,
    /// How many partitions it has, and how many that could not be opened yet.
    pub(crate) partitions: AtomicU64,
    pub(crate) unread: AtomicU64,
    pub(crate) is_stopping: AtomicBool,
    /// Why it can go on no more.
    pub(crate) fatal: OnceLock<String>,
    /// Whether the group has cast it out for good: nothing that it commits will be accepted.
    pub(crate) is_cast_out: AtomicBool,
}

impl Pulse {
    /// It polls.
    fn beat(&self) {
        self.may_take(Duration::ZERO);
    }

    /// What it does next may take so long, and it does not stand still for that.
    pub(super) fn may_take(&self, limit: Duration) {
        let until = u64::try_from((monotonic() + limit + STILL).as_millis()).unwrap_or(u64::MAX);
        self.alive_until.store(until, Ordering::Relaxed);
    }

    /// Whether the thread that polls stands still, for a time that nothing explains.
    pub(crate) fn stands_still(&self) -> bool {
        let now = u64::try_from(monotonic().as_millis()).unwrap_or(u64::MAX);
        !self.is_stopping.load(Ordering::Acquire) && self.alive_until.load(Ordering::Relaxed) < now
    }
}

/// The member, as librdkafka calls it back.
pub(crate) struct Member {
    pub(super) plan: GroupPlan,
    told: Told,
    events: Events,
    pub(super) state_topic: Arc<StateTopic>,
    pub(super) commits: Arc<Commits>,
    pub(super) pulse: Arc<Pulse>,
    queue: Mutex<Option<Arc<Queue>>>,
    held: Mutex<Held>,
    /// Changes with every rebalance.
    generation: AtomicU64,
}

#[derive(Default)]
struct Held {
    lanes: BTreeMap<Partition, HeldLane>,
    /// Assigned, but their offsets are not known yet. Of those that belong together the source's alone.
    unopened: BTreeSet<Partition>,
}

#[derive(Clone)]
pub(super) struct HeldLane {
    pub(super) number: u64,
    pub(super) position: i64,
    pub(super) inbox: Arc<Inbox>,
}

impl ClientContext for Member {
    fn error(&self, error: KafkaError, reason: &str) {
        self.told.error(error, reason);
    }

    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        self.told.log(level, fac, message);
    }
}

impl Tethered for Member {
    fn lifeline(&self) -> &Lifeline {
        self.told.lifeline()
    }
}

impl ConsumerContext for Member {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        error: RDKafkaRespErr,
        list: &mut TopicPartitionList,
    ) {
        self.generation.fetch_add(1, Ordering::Relaxed);
        self.pulse.rebalances.fetch_add(1, Ordering::Relaxed);
        let partitions = self.known(list);
        match error {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS => {
                self.assign(consumer, partitions);
            }
            _ => self.revoke(consumer, &partitions),
        }
        self.count(&self.held());
        self.pulse.is_joined.store(true, Ordering::Release);
    }
}

/// Where partitions are read from.
fn list<'a>(lanes: impl IntoIterator<Item = (&'a Partition, &'a HeldLane)>) -> TopicPartitionList {
    let lanes = lanes.into_iter();
    offsets::at_offsets(lanes.map(|((topic, partition), it)| (&**topic, *partition, it.position)))
}

impl Member {
    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }

    pub(crate) fn queue(&self) -> Option<Arc<Queue>> {
        self.queue.lock().clone()
    }

    pub(super) fn subscribed(&self, topic: &str) -> Option<&Subscribed> {
        self.plan.topics.iter().find(|it| *it.topic == *topic)
    }

    /// Tells what happened to a partition of this topic.
    pub(super) fn tell(&self, topic: &str, event: &Event) {
        self.subscribed(topic).map_or(&self.events, |it| &it.events).tell(event);
    }

    fn known(&self, list: &TopicPartitionList) -> Vec<Partition> {
        let elements = list.elements();
        let known = elements.iter().filter_map(|it| {
            Some((Arc::clone(&self.subscribed(it.topic())?.topic), it.partition()))
        });
        known.collect()
    }

    fn count(&self, held: &Held) {
        self.pulse.partitions.store(held.lanes.len() as u64, Ordering::Relaxed);
        self.pulse.unread.store(held.unopened.len() as u64, Ordering::Relaxed);
    }

    fn is_incremental(consumer: &BaseConsumer<Self>) -> bool {
        matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative)
    }

    fn assign(&self, consumer: &BaseConsumer<Self>, partitions: Vec<Partition>) {
        self.held().unopened.extend(partitions);
        self.open(consumer, true);
    }

    /// Makes lanes for what was assigned and could not be opened yet, and reads it. A rebalance must be answered, with
    /// nothing if need be.
    fn open(&self, consumer: &BaseConsumer<Self>, is_answer: bool) {
        let wanted: Vec<_> = self.held().unopened.iter().cloned().collect();
        let (joined, plain): (Vec<_>, Vec<_>) =
            wanted.into_iter().partition(|it| self.is_joined(it));
        let found = [
            (self.look_up(consumer, &plain), plain.first()),
            (self.look_up_wholes(consumer, &joined), joined.first()),
        ];
        let mut opened = Vec::new();
        for (result, first) in found {
            match (result, first) {
                (Ok(lanes), _) => opened.extend(lanes),
                (Err(error), Some((topic, partition))) => {
                    let (topic, partition) = (Arc::clone(topic), *partition);
                    let (whose, error) = (Arc::clone(&topic), error.to_string());
                    self.tell(&whose, &Event::Unread { topic, partition, error });
                }
                (Err(_), None) => {}
            }
        }
        if opened.is_empty() && !is_answer {
            return;
        }
        let is_incremental = Self::is_incremental(consumer);
        if let Some(queue) = self.queue() {
            for (at, _) in opened.iter().filter(|it| !self.is_joined(&it.0)) {
                queue.forward(&at.0, at.1);
            }
        }
        let mut held = self.held();
        for (at, lane) in &opened {
            held.unopened.remove(at);
            held.lanes.insert(at.clone(), lane.clone());
        }
        let lanes = held.lanes.clone();
        self.count(&held);
        drop(held);
        let result = if is_incremental {
            consumer.incremental_assign(&list(opened.iter().map(|it| (&it.0, &it.1))))
        } else {
            // All that is ours is read on from where it was opened; records that come again are known.
            let assigned = consumer.assign(&list(&lanes));
            assigned.and_then(|()| self.forward_again(consumer, lanes.keys()))
        };
        if let Err(error) = result {
            self.events.tell(&Event::Client {
                error: "partitions could not be assigned".to_owned(),
                reason: error.to_string(),
            });
        }
    }

    /// Makes lanes for partitions that were assigned.
    fn look_up(
        &self,
        consumer: &BaseConsumer<Self>,
        wanted: &[Partition],
    ) -> KafkaResult<Vec<(Partition, HeldLane)>> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let names: Vec<_> = wanted.iter().map(|it| (&*it.0, it.1)).collect();
        self.pulse
            .may_take(ANSWER + offsets::watermarks_take(names.len(), ANSWER) + state::LIMIT * 2);
        let committed = self.begin(consumer, offsets::committed(consumer, &names, ANSWER)?)?;
        let watermarks = offsets::watermarks(consumer, &names, ANSWER);
        let blocks = self.state_topic.read(&names, 0)?.blocks;
        let mut opened = Vec::new();
        for (at, marks) in wanted.iter().zip(watermarks) {
            let found = committed.iter().find(|it| it.topic == *at.0 && it.partition == at.1);
            let (Some(subscribed), Some(found)) = (self.subscribed(&at.0), found) else {
                continue;
            };
            match marks {
                Ok(marks) => {
                    let blocks = blocks.get(&(at.0.to_string(), at.1));
                    opened.extend(
                        self.make_lane(at, subscribed, found, marks, blocks)
                            .map(|it| (at.clone(), it)),
                    );
                }
                Err(error) => {
                    let (topic, partition) = (Arc::clone(&at.0), at.1);
                    let error = error.to_string();
                    subscribed.events.tell(&Event::Unread { topic, partition, error });
                }
            }
        }
        Ok(opened)
    }

    /// Fills in where partitions begin that the group has committed nothing for. Those that another member has to say that of
    /// are left out.
    pub(super) fn begin(
        &self,
        consumer: &BaseConsumer<Self>,
        mut committed: Vec<offsets::Committed>,
    ) -> KafkaResult<Vec<offsets::Committed>> {
        if committed.iter().all(|it| it.offset.is_some()) {
            return Ok(committed);
        }
        if let Some(group) = &self.plan.predecessor {
            self.take_over(consumer, group, &mut committed);
        }
        for subscribed in self.plan.topics.iter().filter(|it| it.start != Start::Earliest) {
            let is_new =
                |it: &offsets::Committed| it.offset.is_none() && it.topic == *subscribed.topic;
            let owned: Vec<_> =
                committed.iter().filter(|it| is_new(it)).map(|it| it.partition).collect();
            if owned.is_empty() {
                continue;
            }
            match begin::begin(consumer, &subscribed.topic, &owned, subscribed.start, ANSWER)? {
                Begin::Earliest => {}
                Begin::NotYet => committed.retain(|it| !is_new(it)),
                Begin::At(positions) => {
                    for it in committed.iter_mut().filter(|it| is_new(it)) {
                        it.offset = positions.get(&it.partition).copied();
                    }
                }
            }
        }
        Ok(committed)
    }

    /// Goes on where another group was that read these partitions before, so that what is settled does not run again. Without a
    /// word on that nothing is begun.
    fn take_over(
        &self,
        consumer: &BaseConsumer<Self>,
        group: &str,
        committed: &mut Vec<offsets::Committed>,
    ) {
        let before = match offsets::all_committed(consumer.client(), group, ANSWER) {
            Ok(before) => before,
            Err(error) => {
                if let Some(it) = committed.iter().find(|it| it.offset.is_none()) {
                    self.events.tell(&Event::Unread {
                        topic: it.topic.as_str().into(),
                        partition: it.partition,
                        error: format!(
                            "it is not known whether the group {group} has read it before, whose offsets must be allowed to be looked at: {error}"
                        ),
                    });
                }
                committed.retain(|it| it.offset.is_some());
                return;
            }
        };
        for it in committed.iter_mut().filter(|it| it.offset.is_none()) {
            let is_it = |other: &&offsets::Committed| {
                other.topic == it.topic && other.partition == it.partition
            };
            if let Some(other) = before.iter().find(is_it) {
                *it = other.clone();
            }
        }
    }

    fn make_lane(
        &self,
        at: &Partition,
        subscribed: &Subscribed,
        committed: &offsets::Committed,
        bounds: (i64, i64),
        blocks: Option<&state::Blocks>,
    ) -> Option<HeldLane> {
        let no_blocks = state::Blocks::new();
        let blocks = blocks.unwrap_or(&no_blocks);
        let assigned = self.assigned(at, subscribed, committed, bounds);
        let made = Lane::assigned(
            subscribed.lanes.clone(),
            &assigned,
            clock::now(),
            blocks.keys().copied(),
            |id| blocks.get(&id).cloned(),
        );
        let machine = match made {
            Ok(machine) => Box::new(machine),
            Err(error) => {
                _ = self.pulse.fatal.set(format!("{}/{}: {error}", at.0, at.1));
                return None;
            }
        };
        let lane = HeldLane {
            number: LANES.fetch_add(1, Ordering::Relaxed),
            position: machine.position(),
            inbox: Arc::clone(&subscribed.inbox),
        };
        let key = LaneKey { stop: subscribed.stop, partition: at.1 };
        self.commits.own(lane.number, Arc::clone(&at.0), at.1, Arc::clone(&lane.inbox));
        lane.inbox.send(Letter::Open { lane: lane.number, key, group: self.plan.index, machine });
        subscribed.events.tell(&Event::Assigned {
            topic: Arc::clone(&at.0),
            partition: at.1,
            position: lane.position,
        });
        Some(lane)
    }

    /// A partition's position is not in the log. Deleted records are told of, and it is read on behind them, from the offset that
    /// is given back; a log that ends before the position is another one.
    ///
    /// # Errors
    ///
    /// Nobody says where the log begins, and it has to be tried again.
    fn recover(
        &self,
        consumer: &BaseConsumer<Self>,
        at: &Partition,
        next: Option<i64>,
    ) -> KafkaResult<Option<i64>> {
        let Some(lane) = self.held().lanes.get(at).cloned() else {
            return Ok(None);
        };
        let (topic, partition) = (Arc::clone(&at.0), at.1);
        self.pulse.may_take(ANSWER);
        let marks = consumer.fetch_watermarks(&topic, partition, ANSWER)?;
        let next = next.unwrap_or(lane.position);
        if next > marks.1 {
            let home = self.home(at);
            let mut held = self.held();
            let gone = held.take(&self.parts(&home));
            held.unopened.insert(home);
            self.count(&held);
            drop(held);
            let numbers: Vec<_> = gone.iter().map(|it| it.1.number).collect();
            self.forget(&numbers);
            for (topic, partition) in gone.iter().map(|it| &it.0) {
                self.pulse.ends.forget(topic, *partition);
            }
            lane.inbox.send(Letter::Lose { lanes: numbers });
            self.generation.fetch_add(1, Ordering::Relaxed);
            if Self::is_incremental(consumer) {
                let gone = gone.iter().map(|it| (&*it.0.0, it.0.1));
                _ = consumer.incremental_unassign(&offsets::listed(gone));
            }
            self.open(consumer, false);
            return Ok(None);
        }
        if next < marks.0 {
            let offsets = next..marks.0;
            self.tell(&at.0, &Event::Lost { topic: Arc::clone(&topic), partition, offsets });
            lane.inbox.read(Read::until(lane.number, marks.0));
        }
        let position = next.max(marks.0);
        self.read_from(consumer, at, position)?;
        Ok(Some(position))
    }

    /// Reads a partition from here. librdkafka gives up on one whose position is not in the log, and then takes no seek for it and
    /// does not even say so: it has to be assigned anew.
    fn read_from(
        &self,
        consumer: &BaseConsumer<Self>,
        at: &Partition,
        position: i64,
    ) -> KafkaResult<()> {
        let mut held = self.held();
        if let Some(lane) = held.lanes.get_mut(at) {
            lane.position = position;
        }
        let lanes = held.lanes.clone();
        drop(held);
        if Self::is_incremental(consumer) {
            let own = offsets::at_offsets([(&*at.0, at.1, position)]);
            consumer.incremental_unassign(&own)?;
            consumer.incremental_assign(&own)?;
            self.forward_again(consumer, [at])
        } else {
            consumer.assign(&list(&lanes))?;
            self.forward_again(consumer, lanes.keys())
        }
    }

    /// Lets the messages of partitions that were assigned anew come to our queue again.
    fn forward_again<'a>(
        &self,
        consumer: &BaseConsumer<Self>,
        partitions: impl IntoIterator<Item = &'a Partition>,
    ) -> KafkaResult<()> {
        // Whoever answers this has stopped them, and has forgotten where messages should go.
        drop(consumer.assignment()?);
        if let Some(queue) = self.queue() {
            for (topic, partition) in partitions {
                queue.forward_again(topic, *partition);
            }
        }
        Ok(())
    }

    fn revoke(&self, consumer: &BaseConsumer<Self>, partitions: &[Partition]) {
        let is_lost = consumer.assignment_lost() || self.pulse.is_cast_out.load(Ordering::Relaxed);
        let partitions: Vec<_> = partitions.iter().flat_map(|it| self.parts(it)).collect();
        let taken = self.held().take(&partitions);
        let gone: Vec<_> = taken.iter().map(|it| it.1.clone()).collect();
        let numbers: Vec<_> = gone.iter().map(|it| it.number).collect();
        self.pulse.may_take(COMMIT);
        if is_lost {
            self.forget(&numbers);
        } else {
            let is_stopping = self.pulse.is_stopping.load(Ordering::Acquire);
            let limit = if is_stopping { self.plan.shutdown_limit } else { self.plan.revoke_limit };
            let latch = Latch::of(gone.len());
            self.pulse.may_take(limit + GRACE + COMMIT);
            each_inbox(&gone, |inbox, lanes| {
                inbox.send(Letter::Drain { lanes, limit, latch: latch.clone() });
            });
            latch.wait(limit + GRACE);
            self.forget(&numbers);
        }
        each_inbox(&gone, |inbox, lanes| inbox.send(Letter::Lose { lanes }));
        let result = if Self::is_incremental(consumer) {
            // What was never opened was never assigned to the consumer either, which would refuse all of it.
            let gone = taken.iter().map(|it| (&*it.0.0, it.0.1));
            consumer.incremental_unassign(&offsets::listed(gone))
        } else {
            consumer.unassign()
        };
        if let Err(error) = result {
            self.events.tell(&Event::Client {
                error: "partitions could not be given back".to_owned(),
                reason: error.to_string(),
            });
        }
        for (topic, partition) in partitions {
            self.pulse.ends.forget(&topic, partition);
            let whose = Arc::clone(&topic);
            self.tell(&whose, &Event::Revoked { topic, partition, is_lost });
        }
    }
}

impl Held {
    /// Takes partitions out, and those lanes that were opened.
    fn take(&mut self, partitions: &[Partition]) -> Vec<(Partition, HeldLane)> {
        let taken = partitions.iter().filter_map(|at| {
            self.unopened.remove(at);
            self.lanes.remove_entry(at)
        });
        taken.collect()
    }
}

/// Metadata of a commit. What is not even text is nobody's map.
pub(crate) fn text_of(metadata: &[u8]) -> &str {
    std::str::from_utf8(metadata).unwrap_or("\u{FFFD}")
}

/// Calls with each inbox and the lanes that are in it.
fn each_inbox(lanes: &[HeldLane], mut call: impl FnMut(&Inbox, Vec<u64>)) {
    let mut done: Vec<*const Inbox> = Vec::new();
    for lane in lanes {
        let inbox = Arc::as_ptr(&lane.inbox);
        if !done.contains(&inbox) {
            done.push(inbox);
            let own = lanes.iter().filter(|it| Arc::as_ptr(&it.inbox) == inbox);
            call(&lane.inbox, own.map(|it| it.number).collect());
        }
    }
}

/// A group's consumer in this process, and its threads.
pub(crate) struct Group {
    consumer: Arc<BaseConsumer<Member>>,
    pub(crate) commits: Arc<Commits>,
    pub(crate) pulse: Arc<Pulse>,
    properties: Properties,
}

impl Group {
    #[expect(unsafe_code, reason = "the queue must not outlive the client")]
    pub(crate) fn new(
        plan: GroupPlan,
        properties: &Properties,
        told: Told,
        events: Events,
        state_topic: Arc<StateTopic>,
    ) -> KafkaResult<Self> {
        let (commits, pulse) = (
            Arc::<Commits>::default(),
            Arc::new(Pulse { group: plan.group.clone(), ..Pulse::default() }),
        );
        pulse.beat();
        let config = properties.member(&plan.group);
        let member = Member {
            plan,
            told,
            events,
            state_topic,
            commits: Arc::clone(&commits),
            pulse: Arc::clone(&pulse),
            queue: Mutex::default(),
            held: Mutex::default(),
            generation: AtomicU64::new(0),
        };
        let consumer = client::connected(&config, member)?;
        // SAFETY: `run` takes the queue out and waits for its messages before it lets the consumer go.
        let queue = unsafe { Queue::new(consumer.client().native_ptr()) };
        *consumer.context().queue.lock() = queue.map(Arc::new);
        Ok(Self { consumer: Arc::new(consumer), commits, pulse, properties: properties.clone() })
    }

    /// The queue that it is read from.
    pub(crate) fn queue(&self) -> Option<Arc<Queue>> {
        self.consumer.context().queue()
    }

    /// Polls until it is told to stop, and leaves the group.
    pub(crate) fn run(self) {
        let Group { consumer, commits, pulse, properties } = self;
        let member = consumer.context();
        let Some(queue) = member.queue() else {
            _ = pulse.fatal.set("librdkafka could not make a queue".to_owned());
            return;
        };
        let committer = {
            let (consumer, commits) = (Arc::clone(&consumer), Arc::clone(&commits));
            let thread = thread::Builder::new().name("redrive-commit".to_owned());
            if member.plan.is_exactly_once {
                let transactor = Transactor {
                    commits,
                    pulse: Arc::clone(&pulse),
                    properties,
                    told: member.told.clone(),
                    events: member.events.clone(),
                    group: member.plan.group.as_str().into(),
                    index: member.plan.index,
                    consumer,
                };
                thread.spawn(move || transactor.run())
            } else {
                thread.spawn(move || commits.run(&consumer))
            }
        };
        for topic in member.beside_subscription() {
            // Else the first record of a topic that nobody subscribes to comes seconds late. Without an answer it just does.
            _ = offsets::partitions(&consumer, topic, ANSWER);
        }
        let topics = member.subscription();
        let subscribed = match (committer.as_ref(), consumer.subscribe(&topics)) {
            (Err(error), _) => Err(error.to_string()),
            (_, Err(error)) => Err(error.to_string()),
            (Ok(_), Ok(())) => Ok(()),
        };
        if let Err(error) = subscribed {
            _ = pulse.fatal.set(error);
        } else {
            poll(&consumer, &queue, &pulse);
        }
        commits.end();
        if let Ok(committer) = committer {
            _ = committer.join();
        }
        end(consumer, queue);
    }
}

fn poll(consumer: &BaseConsumer<Member>, queue: &Queue, pulse: &Pulse) {
    let member = consumer.context();
    let mut router = Router::default();
    let mut messages = Vec::new();
    let (mut opened_at, mut passed_at) = (Instant::now(), Instant::now());
    let mut is_leaving = None;
    loop {
        pulse.beat();
        let stray = serve(consumer);
        // What comes behind records that have strayed is not read before them.
        if !router.recover(member, consumer, stray) && router.has_room() {
            queue.read(WAIT, &mut messages);
            router.route(member, messages.drain(..));
        }
        if passed_at.elapsed() >= PASS_EVERY {
            passed_at = Instant::now();
            router.pass(member, consumer);
            for (topic, partition) in member.held().lanes.keys() {
                if let Some(end) = offsets::known_end(consumer, topic, *partition) {
                    pulse.ends.note(topic, *partition, end);
                }
            }
        }
        if opened_at.elapsed() >= OPEN_AGAIN {
            opened_at = Instant::now();
            router.unreadable.append(&mut router.again);
            member.lifeline().pull();
            if !member.held().unopened.is_empty() {
                member.open(consumer, false);
                member.generation.fetch_add(1, Ordering::Relaxed);
            }
        }
        let is_stopping = pulse.is_stopping.load(Ordering::Acquire) || pulse.fatal.get().is_some();
        match is_leaving {
            // Nobody takes away what is not ours any more.
            None if pulse.is_cast_out.load(Ordering::Relaxed) => {
                let gone: Vec<_> = std::mem::take(&mut member.held().lanes).into_values().collect();
                let numbers: Vec<_> = gone.iter().map(|it| it.number).collect();
                member.forget(&numbers);
                each_inbox(&gone, |inbox, lanes| inbox.send(Letter::Lose { lanes }));
                return;
            }
            None if is_stopping => {
                consumer.unsubscribe();
                is_leaving = Some(Instant::now());
            }
            Some(since) => {
                // Where nothing was ever assigned, nothing is taken away either; and what was never opened need not be waited for.
                let is_over = member.held().lanes.is_empty();
                if is_over || since.elapsed() > member.plan.shutdown_limit + 2 * GRACE {
                    return;
                }
            }
            None => {}
        }
    }
}

/// Lets librdkafka call back, and tells of errors. Gives the first record of each partition that came here and not to our
/// queue: between the moment when a partition was assigned anew and the moment when it was forwarded again, some may.
fn serve(consumer: &BaseConsumer<Member>) -> BTreeMap<Partition, i64> {
    let member = consumer.context();
    let mut stray = BTreeMap::new();
    while let Some(result) = consumer.poll(Duration::ZERO) {
        let error = match result {
            Ok(message) => {
                use rdkafka::Message as _;
                if let Some(subscribed) = member.subscribed(message.topic()) {
                    let at = (Arc::clone(&subscribed.topic), message.partition());
                    stray.entry(at).or_insert(message.offset());
                }
                continue;
            }
            Err(error) => error,
        };
        if let KafkaError::MessageConsumptionFatal(code) = &error {
            member.pulse.is_cast_out.store(true, Ordering::Relaxed);
            let group = &member.plan.group;
            _ = member.pulse.fatal.set(format!("the member of {group} cannot go on: {code}"));
        }
        member.events.tell(&Event::Client {
            error: "the consumer has trouble".to_owned(),
            reason: error.to_string(),
        });
    }
    stray
}

/// Brings messages to their engines.
#[derive(Default)]
struct Router {
    generation: u64,
    /// By the topic's object, which costs nothing to look at.
    lanes: BTreeMap<(usize, i32), Option<Target>>,
    /// Behind the last record of each partition that was read.
    next: BTreeMap<Partition, i64>,
    /// An engine that is behind.
    full: Option<Arc<Inbox>>,
    /// Partitions whose position is not there, and those of them that are looked at again later.
    unreadable: BTreeSet<Partition>,
    again: BTreeSet<Partition>,
}

struct Target {
    at: Partition,
    lane: u64,
    inbox: Arc<Inbox>,
    retried: Option<Retried>,
}

/// Where records were tried before: what they are to their flow, and how many of them their lane keeps.
struct Retried {
    plan: Arc<FlowPlan>,
    role: Role,
    horizon: Arc<Horizon>,
}

impl Router {
    /// Lets partitions be read on that cannot be read, and again from records that have strayed. Says whether there were any.
    fn recover(
        &mut self,
        member: &Member,
        consumer: &BaseConsumer<Member>,
        stray: BTreeMap<Partition, i64>,
    ) -> bool {
        self.unreadable.extend(stray.keys().cloned());
        self.next.extend(stray);
        let unreadable = std::mem::take(&mut self.unreadable);
        let is_any = !unreadable.is_empty();
        for at in unreadable {
            match member.recover(consumer, &at, self.next.get(&at).copied()) {
                Ok(Some(next)) => _ = self.next.insert(at, next),
                Ok(None) => {}
                Err(error) => {
                    let (topic, partition, error) = (Arc::clone(&at.0), at.1, error.to_string());
                    member.tell(&at.0, &Event::Unread { topic, partition, error });
                    self.again.insert(at);
                }
            }
        }
        is_any
    }

    fn route(&mut self, member: &Member, messages: impl Iterator<Item = Message>) {
        let generation = member.generation.load(Ordering::Relaxed);
        if self.generation != generation {
            self.generation = generation;
            self.lanes.clear();
            let held = member.held();
            self.next.retain(|at, _| held.lanes.contains_key(at));
            self.again.retain(|at| held.lanes.contains_key(at));
        }
        let mut batch: Vec<Message> = Vec::new();
        let mut batch_at = (0, 0);
        for message in messages {
            let at = (message.topic_object().addr(), message.partition());
            if at != batch_at && !batch.is_empty() {
                self.send(member, batch_at, std::mem::take(&mut batch));
            }
            batch_at = at;
            batch.push(message);
        }
        if !batch.is_empty() {
            self.send(member, batch_at, batch);
        }
    }

    fn send(&mut self, member: &Member, at: (usize, i32), messages: Vec<Message>) {
        let target = self.lanes.entry(at).or_insert_with(|| {
            let topic = messages.first().map(|it| it.topic()).unwrap_or_default();
            let subscribed = member.subscribed(topic)?;
            let at = (Arc::clone(&subscribed.topic), at.1);
            let held = member.held();
            let lane = held.lanes.get(&at)?;
            let (lane, inbox) = (lane.number, Arc::clone(&lane.inbox));
            Some(Target { at, lane, inbox, retried: subscribed.retried() })
        });
        let Some(target) = target else {
            return;
        };
        // It is read again from where that went wrong.
        if self.again.contains(&target.at) {
            return;
        }
        use RDKafkaErrorCode as Code;
        let is_unreadable = |it: &Message| {
            matches!(it.error(), Some(Code::AutoOffsetReset | Code::OffsetOutOfRange))
        };
        if messages.iter().any(is_unreadable) {
            self.unreadable.insert(target.at.clone());
        }
        if let Some(last) = messages.iter().rfind(|it| it.error().is_none()) {
            self.next.insert(target.at.clone(), last.offset() + 1);
        }
        let (messages, horizon) = match &target.retried {
            Some(Retried { plan, role, horizon }) => {
                let (now, until) = (clock::now(), horizon.get());
                let is_kept = |due| due > now && due <= until;
                let taken = |it| Incoming::taken(it, plan, *role, is_kept);
                (messages.into_iter().map(taken).collect(), Some(Arc::clone(horizon)))
            }
            None => (messages.into_iter().map(Incoming::new).collect(), None),
        };
        if !target.inbox.read(Read { lane: target.lane, messages, until: None, horizon }) {
            self.full = Some(Arc::clone(&target.inbox));
        }
    }

    /// Whether engines can take more, if need be after waiting for the one that is behind.
    fn has_room(&mut self) -> bool {
        self.full = self.full.take().filter(|it| !it.wait_for_room(WAIT));
        self.full.is_none()
    }

    /// Tells lanes how far everything was read: behind the last record there may be markers of transactions.
    fn pass(&mut self, member: &Member, consumer: &BaseConsumer<Member>) {
        let Ok(positions) = consumer.position() else {
            return;
        };
        for entry in positions.elements() {
            let Offset::Offset(position) = entry.offset() else {
                continue;
            };
            let Some(subscribed) = member.subscribed(entry.topic()) else {
                continue;
            };
            let at = (Arc::clone(&subscribed.topic), entry.partition());
            let held = member.held();
            let Some(lane) = held.lanes.get(&at) else {
                continue;
            };
            let next = self.next.get(&at).copied().unwrap_or(lane.position);
            if next < position && !self.again.contains(&at) {
                lane.inbox.read(Read::until(lane.number, position));
                self.next.insert(at, position);
            }
        }
    }
}

/// Lets the consumer go when none of its messages is alive any more. One that a handler never lets go of keeps it for ever.
fn end(consumer: Arc<BaseConsumer<Member>>, queue: Arc<Queue>) {
    consumer.context().queue.lock().take();
    let until = Instant::now() + Duration::from_secs(2);
    while (queue.alive() > 0 || Arc::strong_count(&queue) > 1 || Arc::strong_count(&consumer) > 1)
        && Instant::now() < until
    {
        thread::sleep(Duration::from_millis(1));
    }
    if queue.alive() == 0 && Arc::strong_count(&queue) == 1 {
        // A rebalance that is told of when the group is already left is never answered by librdkafka, and whoever asks it something
        // then waits for ever. So the process does not wait for that.
        let (ended, has_ended) = mpsc::channel();
        let close = move || {
            drop(queue);
            drop(consumer);
            _ = ended.send(());
        };
        if thread::Builder::new().name("redrive-close".to_owned()).spawn(close).is_ok() {
            _ = has_ended.recv_timeout(CLOSED_WITHIN);
        }
    } else {
        leave(&consumer);
        std::mem::forget(queue);
        std::mem::forget(consumer);
    }
}

/// Leaves the group, though the consumer stays.
#[expect(unsafe_code, reason = "the rdkafka crate closes a consumer only when it is dropped")]
fn leave(consumer: &BaseConsumer<Member>) {
    // SAFETY: the client is alive, and a consumer that is closed may still be looked at.
    unsafe { sys::rd_kafka_consumer_close(consumer.client().native_ptr()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_stands_still_when_its_time_is_over_unless_it_ends() {
        let pulse = Pulse::default();
        pulse.beat();
        assert!(!pulse.stands_still());
        pulse.alive_until.store(0, Ordering::Relaxed);
        while monotonic() < Duration::from_millis(2) {
            thread::yield_now();
        }
        assert!(pulse.stands_still());
        pulse.is_stopping.store(true, Ordering::Release);
        assert!(!pulse.stands_still());
    }

    #[test]
    fn what_takes_long_by_design_is_no_standing_still() {
        let pulse = Pulse::default();
        pulse.may_take(Duration::from_secs(60));
        let until = pulse.alive_until.load(Ordering::Relaxed);
        assert!(u128::from(until) >= (monotonic() + Duration::from_secs(60)).as_millis());
        // And it counts from then on as before.
        pulse.beat();
        assert!(pulse.alive_until.load(Ordering::Relaxed) < until);
    }
}
