//! Hops and commits as one: where exactly-once is asked for, a hop is there when, and only when, its record's offset is
//! committed.
//!
//! One thread per group has a transaction open while there are hops, and ends it after a tenth of a second, or sooner: everything is
//! delivered, the lanes are told which of their records are in it, each builds a commit that counts those as settled, and the
//! group looks at the offsets before all of it is there at once. The group refuses the offsets of a member that it has
//! deposed, so that nothing of its transaction is ever seen. After an abort the lanes publish again; what ran stays run.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::producer::Producer;
use rdkafka::types::RDKafkaErrorCode;

use super::client::{Properties, Told};
use super::commit::{self, Commits, Owned, Refusal, Request};
use super::group::{Member, Pulse};
use super::offsets;
use super::publish::{self, At, Outgoing, Publisher, Receipt, Unpublished};
use crate::engine::inbox::{Inbox, Letter};
use crate::event::{Event, Events};
use crate::record::Record;

/// How long a transaction is open, and how many hops it has at the most.
const EVERY: Duration = Duration::from_millis(100);
const MOST: usize = 30_000;
/// How many bytes at the most, so that a slow line has them delivered before the transaction's time is up. After each failure it is half as many.
const MOST_BYTES: usize = 32 << 20;
/// A lane with so many in it has nearly as many under way as it may have ([`LaneConfig::ready_limit`], four times), so that it goes on only when the transaction
/// has ended: that is done once nothing else has come for a while.
///
/// [`LaneConfig::ready_limit`]: redrive_core::lane::LaneConfig::ready_limit
const MANY: usize = 3000;
const QUIET: Duration = Duration::from_millis(5);
/// How long the brokers may take for an answer, and the lanes for theirs.
const ANSWER: Duration = Duration::from_secs(10);
/// How long after one report another one comes that belongs to it.
const TOGETHER: Duration = Duration::from_millis(50);
/// The first and the longest wait after an abort.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// A record that is to be published in a transaction.
pub(crate) struct Hop {
    pub(crate) lane: u64,
    pub(crate) offset: i64,
    pub(crate) record: Record,
    pub(crate) outgoing: Arc<Outgoing>,
    /// What is written to the state topic together with it.
    pub(crate) mark: Option<Arc<Outgoing>>,
}

impl Hop {
    fn bytes(&self) -> usize {
        let mark = self.mark.as_ref().map_or(0, |it| it.bytes(None));
        self.outgoing.bytes(Some(&self.record)) + mark
    }
}

/// How many of these go into a transaction that has room for so many, and for so many bytes. What would be more than that by itself goes, too; what is to be alone
/// does not.
fn fitting<'a>(hops: impl IntoIterator<Item = &'a Hop>, (count, mut bytes): Room) -> usize {
    let fits = |it: &&Hop| {
        let has_room = bytes > 0;
        bytes = bytes.saturating_sub(it.bytes());
        has_room && !it.outgoing.is_alone
    };
    hops.into_iter().take(count).take_while(fits).count()
}

/// A lane and an offset of it.
type Ticket = (u64, i64);

/// What became of the hops of a transaction.
#[derive(Default)]
struct Deliveries {
    told: Mutex<Reports>,
    changed: Condvar,
}

#[derive(Default)]
struct Reports {
    all: Vec<(Ticket, Result<At, Unpublished>)>,
    is_refused: bool,
}

impl Receipt for Deliveries {
    fn published(&self, ticket: Ticket, result: Result<At, Unpublished>) {
        let mut told = self.told.lock();
        told.is_refused |= result.is_err();
        told.all.push((ticket, result));
        self.changed.notify_one();
    }
}

impl Deliveries {
    /// Whether nothing of it is to be any more.
    fn is_refused(&self) -> bool {
        self.told.lock().is_refused
    }

    /// Waits until so many are told of. Once one was refused nothing more is sent, so that only those are waited for which are told with it.
    fn wait(&self, count: usize) -> Vec<(Ticket, Result<At, Unpublished>)> {
        let until = Instant::now() + 2 * ANSWER;
        let mut told = self.told.lock();
        while told.all.len() < count {
            let left = until.saturating_duration_since(Instant::now());
            let patience = if told.is_refused { TOGETHER.min(left) } else { left };
            if self.changed.wait_for(&mut told, patience).timed_out() {
                break;
            }
        }
        std::mem::take(&mut told.all)
    }
}

/// A transaction that has begun.
struct Open {
    publisher: Publisher,
    deliveries: Arc<Deliveries>,
    filled: Filled,
    /// How many records of the state topic are in it.
    marks: usize,
}

/// For how many hops and bytes there is room.
type Room = (usize, usize);

/// How much a transaction has room for after so many failures: a line may be so slow that a full one never comes through.
fn room(failures: u32) -> Room {
    (MOST, MOST_BYTES >> failures.min(8))
}

/// What a transaction has in it, and until when it is open for more.
struct Filled {
    /// Hops by their lanes, and how many those are.
    sent: BTreeMap<u64, Vec<i64>>,
    count: usize,
    /// What else it has room for.
    room: Room,
    /// Whether nothing else may come into it.
    is_full: bool,
    /// Whether a lane waits for its end.
    is_awaited: bool,
    since: Instant,
    /// When hops came last.
    last: Instant,
}

impl Filled {
    fn new(now: Instant, room: Room) -> Self {
        Self {
            sent: BTreeMap::new(),
            count: 0,
            room,
            is_full: false,
            is_awaited: false,
            since: now,
            last: now,
        }
    }

    fn add(&mut self, (lane, offset): Ticket, bytes: usize) {
        let sent = self.sent.entry(lane).or_default();
        sent.push(offset);
        self.is_awaited |= sent.len() >= MANY;
        self.count += 1;
        let (hops, left) = self.room;
        self.room = (hops.saturating_sub(1), left.saturating_sub(bytes));
        self.is_full |= self.room.0 == 0 || self.room.1 == 0;
    }

    /// When it is to end: while more hops are there to come, or if none is.
    fn until(&self, is_more: bool) -> Instant {
        let end = self.since + EVERY;
        match self.is_awaited && !is_more {
            _ if self.is_full => self.since,
            true => end.min(self.last + QUIET),
            false => end,
        }
    }
}

/// Nobody's: what is in a transaction beside its hops.
const MARK: Ticket = (0, 0);

/// How a transaction ended.
enum End {
    Committed,
    /// Nothing of it is there: because of Kafka, or because a lane did not want it.
    Aborted(Option<KafkaError>),
    /// Nobody knows.
    Unknown,
}

enum Work {
    Send(Vec<Hop>),
    Close,
}

/// Makes a group's transactions.
pub(super) struct Transactor {
    pub(super) commits: Arc<Commits>,
    pub(super) consumer: Arc<BaseConsumer<Member>>,
    pub(super) pulse: Arc<Pulse>,
    pub(super) properties: Properties,
    pub(super) told: Told,
    pub(super) events: Events,
    pub(super) group: Arc<str>,
    /// Which of the process's groups it is.
    pub(super) index: usize,
}

/// What it remembers from one transaction to the next.
#[derive(Default)]
struct Memory {
    name: String,
    idle: Option<Publisher>,
    open: Option<Open>,
    failures: u32,
    not_before: Option<Instant>,
}

impl Transactor {
    /// Makes transactions until the end.
    pub(super) fn run(&self) {
        let name = self.properties.transactional_id(&self.group);
        let mut memory = Memory { name, ..Memory::default() };
        while let Some(work) = self.next_work(&memory) {
            match work {
                Work::Send(hops) => self.send(&mut memory, hops),
                Work::Close => self.close(&mut memory),
            }
        }
        if let Some(open) = memory.open {
            _ = open.publisher.producer().abort_transaction(ANSWER);
        }
    }

    fn is_ending(&self) -> bool {
        self.pulse.is_stopping.load(Ordering::Acquire) || self.commits.lock().is_over
    }

    fn next_work(&self, memory: &Memory) -> Option<Work> {
        let mut state = self.commits.lock();
        loop {
            if state.is_over {
                return None;
            }
            let until = match &memory.open {
                Some(open) => {
                    let until = open.filled.until(!state.hops.is_empty());
                    if until <= Instant::now() || open.deliveries.is_refused() {
                        return Some(Work::Close);
                    }
                    Some(until)
                }
                // Progress without hops needs no transaction.
                None if !state.requests.is_empty() => {
                    self.commits.commit_requests(state, &self.consumer);
                    state = self.commits.lock();
                    continue;
                }
                None => memory.not_before.filter(|it| *it > Instant::now()),
            };
            let may_send = memory.not_before.is_none_or(|it| it <= Instant::now());
            if may_send && !state.hops.is_empty() {
                let open = memory.open.as_ref();
                let room = open.map_or_else(|| room(memory.failures), |it| it.filled.room);
                let count = match fitting(&state.hops, room) {
                    // One that goes by itself has a transaction of its own.
                    0 if memory.open.is_some() => return Some(Work::Close),
                    0 => 1,
                    together => together,
                };
                return Some(Work::Send(state.hops.drain(..count).collect()));
            }
            let wait = until.map_or(ANSWER, |it| it.saturating_duration_since(Instant::now()));
            self.commits.changed.wait_for(&mut state, wait.max(Duration::from_micros(100)));
        }
    }

    /// Sends hops on their way, those whose lanes are still ours.
    fn send(&self, memory: &mut Memory, hops: Vec<Hop>) {
        let owned = self.commits.lock().owned.clone();
        let hops: Vec<_> = hops.into_iter().filter(|it| owned.contains_key(&it.lane)).collect();
        let tell = |ticket: Ticket, error| {
            if let Some(owned) = owned.get(&ticket.0) {
                owned.inbox.published(ticket, Err(error));
            }
        };
        let open = match self.begin(memory) {
            Ok(open) => open,
            Err(error) => {
                let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail);
                let refused = Unpublished::Refused(code);
                hops.iter().for_each(|it| tell((it.lane, it.offset), refused));
                return self.back_off(memory, &error);
            }
        };
        for hop in hops {
            let bytes = hop.bytes();
            let Hop { lane, offset, record, outgoing, mark } = hop;
            open.filled.is_full |= outgoing.is_alone;
            let receipt = Arc::clone(&open.deliveries) as Arc<dyn Receipt>;
            let its = Arc::clone(&receipt);
            if let Err(code) = open.publisher.publish(Some(record), outgoing, its, (lane, offset)) {
                // After another was refused, librdkafka takes nothing more.
                let is_other = code == RDKafkaErrorCode::State && open.deliveries.is_refused();
                let error =
                    if is_other { Unpublished::Aborted } else { Unpublished::Refused(code) };
                tell((lane, offset), error);
                continue;
            }
            open.filled.add((lane, offset), bytes);
            if let Some(mark) = mark {
                open.marks += 1;
                if let Err(code) = open.publisher.publish(None, mark, receipt, MARK) {
                    // Without it nothing of this is to be.
                    open.deliveries.published(MARK, Err(Unpublished::Refused(code)));
                }
            }
        }
        open.filled.last = Instant::now();
    }

    /// The open transaction, or a new one.
    fn begin<'a>(&self, memory: &'a mut Memory) -> KafkaResult<&'a mut Open> {
        let open = match memory.open.take() {
            Some(open) => open,
            None => {
                let publisher = match memory.idle.take() {
                    Some(publisher) => publisher,
                    None => self.new_publisher(&memory.name)?,
                };
                publisher.producer().begin_transaction()?;
                let filled = Filled::new(Instant::now(), room(memory.failures));
                Open { publisher, deliveries: Arc::default(), filled, marks: 0 }
            }
        };
        Ok(memory.open.insert(open))
    }

    fn new_publisher(&self, name: &str) -> KafkaResult<Publisher> {
        Publisher::transactional(&self.properties, self.told.apart(), name, ANSWER)
    }

    /// After something went wrong, the next transaction waits.
    fn back_off(&self, memory: &mut Memory, error: &KafkaError) {
        let wait = AGAIN.0.saturating_mul(1 << memory.failures.min(8)).min(AGAIN.1);
        memory.failures += 1;
        memory.not_before = Some(Instant::now() + wait);
        if !matches!(commit::refusal(error), Refusal::NotNow) {
            let (group, error) = (Arc::clone(&self.group), error.to_string());
            self.events.tell(&Event::TransactionAborted { group, error });
        }
    }

    /// Ends the transaction that is open.
    fn close(&self, memory: &mut Memory) {
        let Some(Open { publisher, deliveries, filled, marks }) = memory.open.take() else {
            return;
        };
        let (sent, count) = (filled.sent, filled.count + marks);
        let mut told = deliveries.wait(count);
        let refused = refusal(&mut told);
        let mut lanes = sent.clone();
        let owned = self.own(&mut lanes);
        let (Some(owned), None, true) = (&owned, refused, told.len() >= count) else {
            self.abort(memory, publisher);
            self.give_back(&sent, &told);
            let late = (told.len() < count).then_some((MARK, RDKafkaErrorCode::MessageTimedOut));
            // A hop that is too large goes otherwise the next time, or elsewhere.
            let is_moved = |it: &(Ticket, _)| it.0 != MARK && publish::is_too_large(it.1);
            if let Some((_, code)) = refused.or(late).filter(|it| !is_moved(it)) {
                self.back_off(memory, &KafkaError::MessageProduction(code));
            }
            return self.release();
        };
        let ticket = commit::ticket();
        for (inbox, lanes) in by_inbox(owned, lanes) {
            inbox.send(Letter::Close { group: self.index, ticket, lanes });
        }
        let requests = self.answers(ticket, owned);
        let end = match &requests {
            None => End::Aborted(None),
            Some(requests) => self.commit(&publisher, requests),
        };
        let result = match end {
            End::Committed => {
                memory.idle = Some(publisher);
                Ok(())
            }
            End::Aborted(error) => {
                self.abort(memory, publisher);
                Err(error)
            }
            End::Unknown => {
                // Who comes after it waits for its end.
                drop(publisher);
                match self.find_out(memory, requests.as_deref().unwrap_or_default()) {
                    Some(true) => Ok(()),
                    Some(false) => {
                        memory.failures += 1;
                        Err(None)
                    }
                    None => return self.release(),
                }
            }
        };
        let length = |lane: &u64| {
            let request = requests.iter().flatten().find(|it| it.1.lane == *lane);
            request.map(|it| it.1.metadata.len())
        };
        let longest = owned.keys().filter_map(length).max();
        for (lane, owned) in owned {
            let is_longest = owned.parts.iter().chain([lane]).any(|it| length(it) == longest);
            let result = result.as_ref().copied().map_err(|error| {
                match error.as_ref().map(commit::refusal) {
                    Some(Refusal::TooLong) if is_longest => Refusal::TooLong,
                    _ => Refusal::NotNow,
                }
            });
            owned.inbox.send(Letter::Committed { lane: *lane, ticket, result });
        }
        match result {
            Ok(()) => (memory.failures, memory.not_before) = (0, None),
            Err(Some(error)) => self.back_off(memory, &error),
            Err(None) => {}
        }
        self.release();
    }

    /// The lanes of a transaction, with those that are committed together with them, if all are still ours. They stay so until
    /// they are released.
    fn own(&self, lanes: &mut BTreeMap<u64, Vec<i64>>) -> Option<BTreeMap<u64, Owned>> {
        let mut state = self.commits.lock();
        state.begin();
        state.refused = None;
        let others = lanes.keys().filter_map(|it| state.owned.get(it)).map(|it| &it.parts);
        let others: Vec<_> = others.flat_map(|it| it.iter().copied()).collect();
        for lane in others {
            lanes.entry(lane).or_default();
        }
        lanes.keys().map(|it| Some((*it, state.owned.get(it)?.clone()))).collect()
    }

    fn release(&self) {
        self.commits.lock().is_committing = false;
        self.commits.changed.notify_all();
    }

    /// What each of the lanes commits, or nothing if one of them does not.
    fn answers(&self, ticket: u64, owned: &BTreeMap<u64, Owned>) -> Option<Vec<(Owned, Request)>> {
        let until = Instant::now() + ANSWER;
        let mut answers = Vec::new();
        let mut state = self.commits.lock();
        loop {
            // What these lanes wanted to commit before does not count any more.
            let mine = state.requests.extract_if(.., |it| owned.contains_key(&it.lane));
            let mine = mine.filter(|it| it.ticket == ticket);
            answers.extend(mine.filter_map(|it| Some((owned.get(&it.lane)?.clone(), it))));
            if answers.len() == owned.len() {
                return Some(answers);
            }
            let wait = until.saturating_duration_since(Instant::now());
            if state.refused == Some(ticket) || state.is_over || wait.is_zero() {
                return None;
            }
            self.commits.changed.wait_for(&mut state, wait);
        }
    }

    fn commit(&self, publisher: &Publisher, requests: &[(Owned, Request)]) -> End {
        let Some(group) = self.consumer.group_metadata() else {
            return End::Aborted(None);
        };
        let list = commit::list(requests);
        let producer = publisher.producer();
        if let Err(error) = producer.send_offsets_to_transaction(&list, &group, ANSWER) {
            return End::Aborted(Some(error));
        }
        loop {
            match producer.commit_transaction(ANSWER) {
                Ok(()) => return End::Committed,
                // Also one that says that it has to be aborted: it may be that only the answer was lost.
                Err(KafkaError::Transaction(error))
                    if error.is_retriable() && !self.is_ending() => {}
                Err(_) => return End::Unknown,
            }
        }
    }

    /// Finds out whether a transaction was committed: its offsets are there, or are not. None if that cannot be found out.
    fn find_out(&self, memory: &mut Memory, requests: &[(Owned, Request)]) -> Option<bool> {
        let names: Vec<_> = requests.iter().map(|it| (&*it.0.topic, it.0.partition)).collect();
        loop {
            let found = self.new_publisher(&memory.name).and_then(|publisher| {
                memory.idle = Some(publisher);
                offsets::committed(&self.consumer, &names, ANSWER)
            });
            match found {
                Ok(found) => {
                    return Some(requests.iter().all(|(owned, request)| {
                        found.iter().any(|it| {
                            it.topic == *owned.topic
                                && it.partition == owned.partition
                                && it.offset == Some(request.offset)
                                && it.metadata == request.metadata.as_bytes()
                        })
                    }));
                }
                Err(error) if self.is_ending() => {
                    let reason =
                        format!("nobody knows whether a transaction was committed: {error}");
                    _ = self.pulse.fatal.set(reason);
                    return None;
                }
                Err(_) => std::thread::sleep(AGAIN.0),
            }
        }
    }

    /// Takes back everything. A producer that cannot do that is of no more use: the next one will.
    fn abort(&self, memory: &mut Memory, publisher: Publisher) {
        if publisher.producer().abort_transaction(ANSWER).is_ok() {
            memory.idle = Some(publisher);
        }
    }

    /// Tells the lanes that their records were not published.
    fn give_back(
        &self,
        sent: &BTreeMap<u64, Vec<i64>>,
        told: &[(Ticket, Result<At, Unpublished>)],
    ) {
        let told: BTreeMap<_, _> = told.iter().copied().collect();
        let state = self.commits.lock();
        for (lane, offsets) in sent {
            let Some(owned) = state.owned.get(lane) else {
                continue;
            };
            for ticket in offsets.iter().map(|it| (*lane, *it)) {
                let error = told.get(&ticket).copied().and_then(Result::err);
                owned.inbox.published(ticket, Err(error.unwrap_or(Unpublished::Aborted)));
            }
        }
    }
}

/// What was refused first of a transaction. Others that were not even sent because of that are free of it.
fn refusal(told: &mut [(Ticket, Result<At, Unpublished>)]) -> Option<(Ticket, RDKafkaErrorCode)> {
    use RDKafkaErrorCode::{PurgeInflight, PurgeQueue};
    let is_unsent = |code: RDKafkaErrorCode| matches!(code, PurgeInflight | PurgeQueue);
    let refused = |it: &(Ticket, Result<At, Unpublished>)| match it.1 {
        Err(Unpublished::Refused(code)) => Some((it.0, code)),
        _ => None,
    };
    let Some(first) = told.iter().filter_map(refused).find(|it| !is_unsent(it.1)) else {
        return told.iter().find_map(refused);
    };
    for it in told.iter_mut() {
        if refused(it).is_some_and(|it| is_unsent(it.1)) {
            it.1 = Err(Unpublished::Aborted);
        }
    }
    Some(first)
}

/// A lane and offsets of it.
type LaneOffsets = (u64, Vec<i64>);

/// Lanes with their offsets, together with those that have the same inbox.
fn by_inbox(
    owned: &BTreeMap<u64, Owned>,
    lanes: BTreeMap<u64, Vec<i64>>,
) -> Vec<(Arc<Inbox>, Vec<LaneOffsets>)> {
    let mut inboxes: Vec<(Arc<Inbox>, Vec<LaneOffsets>)> = Vec::new();
    for (lane, offsets) in lanes {
        let Some(owned) = owned.get(&lane) else {
            continue;
        };
        match inboxes.iter_mut().find(|it| Arc::ptr_eq(&it.0, &owned.inbox)) {
            Some(inbox) => inbox.1.push((lane, offsets)),
            None => inboxes.push((Arc::clone(&owned.inbox), vec![(lane, offsets)])),
        }
    }
    inboxes
}

#[cfg(test)]
mod tests {
    use redrive_core::Timestamp;
    use redrive_core::lane::{LaneConfig, LaneKind};

    use super::super::publish::Body;
    use super::*;
    use crate::pack::Pack;

    #[test]
    fn a_transaction_ends_when_lanes_wait_for_it_and_nothing_more_comes() {
        let since = Instant::now();
        let mut filled = Filled::new(since, room(0));
        let (many, most) = (MANY as i64, MOST as i64);
        // Two lanes, neither of which waits.
        (0..many / 2).for_each(|it| [0, 1].into_iter().for_each(|lane| filled.add((lane, it), 1)));
        assert_eq!(filled.until(false), since + EVERY);
        (many / 2..many).for_each(|it| filled.add((0, it), 1));
        filled.last = since + Duration::from_millis(20);
        assert_eq!(filled.until(false), filled.last + QUIET);
        assert_eq!(filled.until(true), since + EVERY);
        // However late something came, it is not open for longer.
        filled.last = since + EVERY;
        assert_eq!(filled.until(false), since + EVERY);
        (0..most).for_each(|it| filled.add((9, it), 1));
        assert_eq!((filled.until(true), filled.until(false)), (since, since));
        let mut filled = Filled::new(since, room(0));
        filled.add((0, 0), MOST_BYTES);
        assert_eq!(filled.until(true), since);
        let mut filled = Filled::new(since, room(1));
        filled.add((0, 0), MOST_BYTES / 2);
        assert_eq!(filled.until(true), since);
    }

    #[test]
    fn no_more_goes_into_a_transaction_than_it_has_room_for() {
        let hop = |size, is_alone| {
            let value = Some(vec![0; size]);
            let outgoing = Outgoing {
                topic: "t".into(),
                partition: None,
                tier: None,
                needed_at: Timestamp::from_millis(0),
                is_alone,
                headers: Pack::default(),
                body: Some(Body { key: None, value }),
            };
            let record = Record::made_up("t", 0, 0);
            Hop { lane: 0, offset: 0, record, outgoing: Arc::new(outgoing), mark: None }
        };
        let hops: Vec<_> = (0..100).map(|_| hop(1 << 20, false)).collect();
        assert_eq!(fitting(&hops, room(0)), 32);
        assert_eq!(fitting(&hops, room(3)), 4);
        assert_eq!(fitting(&hops, (7, MOST_BYTES)), 7);
        // One that is larger than all room there is has to go, too.
        assert_eq!(fitting(&[hop(1 << 20, false)], room(u32::MAX)), 1);
        assert_eq!(fitting(&hops, (1, 0)), 0);
        assert_eq!(fitting(&[hop(1, false), hop(1, true), hop(1, false)], room(0)), 1);
    }

    #[test]
    fn a_lane_that_waits_has_many_in_a_transaction() {
        let lane = LaneConfig::new(LaneKind::Source, "");
        // So many may be under way.
        let most = 4 * lane.ready_limit;
        assert!((most / 2..most).contains(&MANY), "{most}");
    }

    #[test]
    fn what_was_not_sent_because_of_another_is_not_refused() {
        use RDKafkaErrorCode::{MessageSizeTooLarge, PurgeQueue};
        use Unpublished::{Aborted, Refused};
        let unsent = || ((1, 1), Err(Refused(PurgeQueue)));
        let mut told = [((1, 0), Ok(7)), unsent(), ((1, 2), Err(Refused(MessageSizeTooLarge)))];
        assert_eq!(refusal(&mut told), Some(((1, 2), MessageSizeTooLarge)));
        assert_eq!((told[0].1, told[1].1), (Ok(7), Err(Aborted)));
        // Where there is no other, as with a topic that nobody may write to, it is.
        let mut told = [unsent()];
        assert_eq!(refusal(&mut told), Some(((1, 1), PurgeQueue)));
        assert_eq!(told, [unsent()]);
        assert_eq!(refusal(&mut [((1, 0), Ok(7))]), None);
    }
}
