//! Committing: a thread that waits for the broker, so that nobody else has to.
//!
//! A member may commit any partition, whether it owns it or not: the broker only looks at the generation. So what is not
//! ours any more is forgotten here before it is given back, and a commit that is under way is waited for.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::group::Member;
use super::transaction::Hop;
use crate::engine::inbox::{Inbox, Letter};

/// Why a commit was not accepted.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// The metadata is too long for this broker.
    TooLong,
    /// A rebalance is under way, or the partition went to somebody else: nobody need know.
    NotNow,
    /// Something else.
    Failed(String),
}

/// No commit takes that long, unless the brokers are out of reach.
const LONG: Duration = Duration::from_secs(5);

/// Tickets are numbered through the whole process.
static TICKETS: AtomicU64 = AtomicU64::new(1);

/// By which somebody knows what became of a commit.
pub(crate) fn ticket() -> u64 {
    TICKETS.fetch_add(1, Ordering::Relaxed)
}

/// What is to be committed for a partition.
pub(crate) struct Request {
    pub(crate) lane: u64,
    pub(crate) ticket: u64,
    pub(crate) offset: i64,
    pub(crate) metadata: String,
}

/// The commits of one group in this process.
#[derive(Default)]
pub(crate) struct Commits {
    state: Mutex<State>,
    pub(super) changed: Condvar,
}

#[derive(Default)]
pub(super) struct State {
    /// The partitions that are ours, by lane.
    pub(super) owned: BTreeMap<u64, Owned>,
    pub(super) requests: Vec<Request>,
    /// Hops that are to be part of a transaction.
    pub(super) hops: Vec<Hop>,
    /// A transaction that one of its lanes will not commit.
    pub(super) refused: Option<u64>,
    pub(super) is_committing: bool,
    /// How many commits were begun.
    pub(super) begun: u64,
    pub(super) is_over: bool,
}

impl State {
    /// From now on a commit is under way.
    pub(super) fn begin(&mut self) {
        self.is_committing = true;
        self.begun += 1;
    }
}

#[derive(Clone)]
pub(super) struct Owned {
    pub(super) topic: Arc<str>,
    pub(super) partition: i32,
    pub(super) inbox: Arc<Inbox>,
    /// The lanes that are committed together with it, itself among them. None where it stands alone.
    pub(super) parts: Arc<[u64]>,
}

impl Commits {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// From now on commits for this lane are made.
    pub(crate) fn own(&self, lane: u64, topic: Arc<str>, partition: i32, inbox: Arc<Inbox>) {
        let parts = Arc::default();
        self.lock().owned.insert(lane, Owned { topic, partition, inbox, parts });
    }

    /// From now on commits for these lanes are made, together.
    pub(super) fn own_together(&self, lanes: Vec<(u64, Arc<str>, i32, Arc<Inbox>)>) {
        let parts: Arc<[u64]> = lanes.iter().map(|it| it.0).collect();
        let owned = lanes.into_iter().map(|(lane, topic, partition, inbox)| {
            (lane, Owned { topic, partition, inbox, parts: Arc::clone(&parts) })
        });
        self.lock().owned.extend(owned);
    }

    /// From now on none are. One that is under way is waited for, and if that takes long, something is done about it.
    pub(crate) fn forget(&self, lanes: &[u64], hurry: impl Fn()) {
        let mut state = self.lock();
        state.owned.retain(|it, _| !lanes.contains(it));
        // Those that begin from now on know nothing of these lanes.
        let begun = state.begun;
        while state.is_committing && state.begun == begun {
            if self.changed.wait_for(&mut state, LONG).timed_out() {
                MutexGuard::unlocked(&mut state, &hurry);
            }
        }
    }

    /// Asks for a commit: of one partition, or of several with the same ticket that are committed together or not at all. What
    /// becomes of it is told to the inbox of the first one's lane.
    pub(crate) fn request(&self, requests: impl IntoIterator<Item = Request>) {
        self.lock().requests.extend(requests);
        self.changed.notify_all();
    }

    /// Lets a record be published in a transaction. What becomes of it is told to the lane's inbox.
    pub(crate) fn hop(&self, hop: Hop) {
        self.lock().hops.push(hop);
        self.changed.notify_all();
    }

    /// A lane will not commit what is in a transaction.
    pub(crate) fn refuse(&self, ticket: u64) {
        self.lock().refused = Some(ticket);
        self.changed.notify_all();
    }

    /// No more commits are made.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    /// Commits what is asked for, until the end.
    pub(crate) fn run(&self, consumer: &BaseConsumer<Member>) {
        loop {
            let mut state = self.lock();
            while state.requests.is_empty() && !state.is_over {
                self.changed.wait(&mut state);
            }
            if state.is_over {
                return;
            }
            self.commit_requests(state, consumer);
        }
    }

    /// Commits what is asked for, as far as it is ours.
    pub(super) fn commit_requests(
        &self,
        mut state: MutexGuard<'_, State>,
        consumer: &BaseConsumer<Member>,
    ) {
        let requests = std::mem::take(&mut state.requests);
        let owned: Vec<_> = requests
            .into_iter()
            .filter_map(|it| Some((state.owned.get(&it.lane)?.clone(), it)))
            .collect();
        state.begin();
        drop(state);
        commit(consumer, &owned);
        self.lock().is_committing = false;
        self.changed.notify_all();
    }
}

/// Commits in one request. The broker does not say whose metadata was too long, so that they are then tried one by one, but for
/// those that belong together.
fn commit(consumer: &BaseConsumer<Member>, requests: &[(Owned, Request)]) {
    let list = list(requests);
    if list.count() == 0 {
        return;
    }
    let result = consumer.commit(&list, CommitMode::Sync).map_err(|error| refusal(&error));
    let together = || requests.chunk_by(|one, next| one.1.ticket == next.1.ticket);
    if matches!(result, Err(Refusal::TooLong)) && together().nth(1).is_some() {
        return together().for_each(|it| commit(consumer, it));
    }
    for (owned, request) in together().filter_map(<[_]>::first) {
        let result = result.clone();
        let (lane, ticket) = (request.lane, request.ticket);
        owned.inbox.send(Letter::Committed { lane, ticket, result });
    }
}

/// Offsets with their metadata, as Kafka's client takes them.
pub(super) fn list(requests: &[(Owned, Request)]) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (owned, request) in requests {
        let mut entry = list.add_partition(&owned.topic, owned.partition);
        // An offset of a record is never one of the special ones.
        _ = entry.set_offset(Offset::Offset(request.offset));
        entry.set_metadata(request.metadata.as_str());
    }
    list
}

pub(super) fn refusal(error: &KafkaError) -> Refusal {
    use RDKafkaErrorCode as Code;
    match error.rdkafka_error_code() {
        Some(Code::OffsetMetadataTooLarge) => Refusal::TooLong,
        Some(
            Code::RebalanceInProgress
            | Code::IllegalGeneration
            | Code::UnknownMemberId
            | Code::StaleMemberEpoch
            | Code::FencedMemberEpoch
            | Code::FencedInstanceId,
        ) => Refusal::NotNow,
        _ => Refusal::Failed(error.to_string()),
    }
}
