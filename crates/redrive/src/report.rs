//! How a consumer is, in numbers: what metrics, a status page and `redrive status` are made of.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use redrive_core::{Reason, Timestamp};

use crate::clock;
use crate::engine::FlowState;
use crate::engine::census::LaneCensus;
use crate::engine::plan::Role;
use crate::kafka::group::Pulse;
use crate::numbers::{ByPolicy, Histogram};

/// How a consumer is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct State {
    /// Whether all its groups were assigned their partitions, be it none.
    pub is_joined: bool,
    /// Whether it was told to end, or has ended.
    pub is_ending: bool,
    /// How many partitions it has.
    pub partitions: u64,
    /// How many more it was assigned and cannot read yet.
    pub unread: u64,
    /// How its flows are. None before the brokers are there.
    pub flows: Vec<FlowStatus>,
}

impl State {
    /// Whether all is well: joined, not about to end, all partitions read, nothing stopped, and nothing held because it could not be
    /// published.
    pub fn is_ready(&self) -> bool {
        let is_well = |it: &FlowStatus| it.stopped.is_none() && it.unpublished == 0;
        self.is_joined && !self.is_ending && self.unread == 0 && self.flows.iter().all(is_well)
    }

    /// Everything that is not well, in words.
    pub fn troubles(&self) -> Vec<String> {
        let mut troubles = Vec::new();
        if self.is_ending {
            troubles.push("it is ending, or has ended".to_owned());
        }
        if self.flows.is_empty() {
            troubles.push("the brokers have not answered yet".to_owned());
        } else if !self.is_joined {
            troubles.push("no partitions were assigned yet".to_owned());
        }
        match self.unread {
            0 => {}
            1 => troubles.push("a partition that it was assigned cannot be read yet".to_owned()),
            count => {
                troubles
                    .push(format!("{count} partitions that it was assigned cannot be read yet"));
            }
        }
        for flow in &self.flows {
            let topic = &flow.topic;
            if let Some(reason) = &flow.stopped {
                troubles.push(format!("the flow of {topic} has stopped: {reason}"));
            }
            match flow.unpublished {
                0 => {}
                1 => troubles.push(format!("a record of {topic} cannot be published and is held")),
                count => {
                    troubles.push(format!(
                        "{count} records of {topic} cannot be published and are held"
                    ));
                }
            }
        }
        troubles
    }
}

/// How a flow is. Counts are since it was started, in this process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FlowStatus {
    /// Its source topic.
    pub topic: String,
    /// How many runs were started.
    pub runs: u64,
    /// How many succeeded.
    pub succeeded: u64,
    /// How many failed.
    pub failed: u64,
    /// How many failed in the last minute.
    pub failed_last_minute: u64,
    /// How many records were sent to retry topics.
    pub retried: u64,
    /// How many were sent to the dead-letter topic.
    pub dead_lettered: u64,
    /// How many were dropped.
    pub dropped: u64,
    /// How many records of other groups were passed over.
    pub foreign: u64,
    /// How many records wait or are ready.
    pub waiting: u64,
    /// How many run.
    pub running: u64,
    /// How many are held because they could not be published.
    pub unpublished: u64,
    /// How many entities have something pending, where their events run in order: what runs, what is retried, and what waits behind.
    pub pending_entities: u64,
    /// How many records wait behind others of their entity.
    pub followers: u64,
    /// How many entities are closed: a record of theirs is in the dead-letter topic, and those behind it follow.
    pub closed_entities: u64,
    /// Whether it was told to pause.
    pub is_paused: bool,
    /// Whether a breaker holds records back.
    pub is_breaker_open: bool,
    /// Why it stopped, if it did.
    pub stopped: Option<String>,
}

impl FlowStatus {
    pub(crate) fn of(topic: &str, state: &FlowState) -> Self {
        let numbers = &state.numbers;
        let order = *state.entities.lock();
        Self {
            topic: topic.to_owned(),
            runs: numbers.runs.get(),
            succeeded: numbers.succeeded.get(),
            failed: numbers.failed.get(),
            failed_last_minute: numbers.failed_lately.get(),
            retried: numbers.retried.get(),
            dead_lettered: numbers.dead_letters.sum(),
            dropped: numbers.dropped.sum(),
            foreign: numbers.foreign.get(),
            waiting: state.held.load(Ordering::Relaxed),
            running: state.running.load(Ordering::Relaxed),
            unpublished: state.unpublished.load(Ordering::Relaxed),
            pending_entities: order.entities as u64,
            followers: order.pending.saturating_sub(order.entities) as u64,
            closed_entities: order.closed as u64,
            is_paused: state.is_paused.load(Ordering::Relaxed),
            is_breaker_open: state.is_open.load(Ordering::Relaxed),
            stopped: state.stopped.lock().clone(),
        }
    }
}

/// Everything that is counted.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Report {
    /// How the consumer is.
    pub state: State,
    /// The groups that it is a member of.
    pub groups: Vec<GroupReport>,
    /// Its flows, in the order of `state.flows`.
    pub flows: Vec<FlowReport>,
}

/// A member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupReport {
    /// The group.
    pub group: String,
    /// Whether it was assigned anything yet, be it nothing.
    pub is_joined: bool,
    /// How many partitions it has.
    pub partitions: u64,
    /// How often partitions were assigned or taken away.
    pub rebalances: u64,
    /// Whether the thread that polls stands still.
    pub stands_still: bool,
}

impl From<&Pulse> for GroupReport {
    fn from(pulse: &Pulse) -> Self {
        Self {
            group: pulse.group.clone(),
            is_joined: pulse.is_joined.load(Ordering::Acquire),
            partitions: pulse.partitions.load(Ordering::Relaxed),
            rebalances: pulse.rebalances.load(Ordering::Relaxed),
            stands_still: pulse.stands_still(),
        }
    }
}

/// The numbers of a flow, since it was started in this process.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FlowReport {
    /// Its source topic.
    pub topic: String,
    /// How many runs may be under way at the same time.
    pub concurrency: u64,
    /// Whether it has a breaker.
    pub has_breaker: bool,
    /// Runs in place after the first one.
    pub in_memory_retries: Vec<Retried>,
    /// Publishes to retry topics.
    pub retries: Vec<Retried>,
    /// Dead letters, by why there was no more retry. All reasons are there.
    pub dead_letters: Vec<(Reason, u64)>,
    /// Dropped records, by why there was no more retry. All reasons are there.
    pub dropped: Vec<(Reason, u64)>,
    /// Records that were moved on when they were due.
    pub relayed: u64,
    /// Records that went to the end of their topic before retention could delete them.
    pub reappended: u64,
    /// Copies that were settled unrun, since a former owner published them too late.
    pub void: u64,
    /// Copies that were settled unrun, since there was another one of the same record.
    pub superseded: u64,
    /// How often the flow stopped.
    pub stops: u64,
    /// Records that were gone from a log before they were settled.
    pub lost: u64,
    /// Headers that could not be read.
    pub unreadable: u64,
    /// Commits that were accepted.
    pub commits: u64,
    /// Commits that were not.
    pub commit_failures: u64,
    /// Publishes that failed. Each is tried again.
    pub publish_failures: u64,
    /// Blocks that were sent to the state topic.
    pub state_blocks: u64,
    /// Blocks that it did not take.
    pub state_block_failures: u64,
    /// How long runs took.
    pub run_time: Histogram,
    /// How late retried records ran, beyond their due time.
    pub lateness: Histogram,
    /// Its partitions that this member has, as they were a moment ago.
    pub partitions: Vec<PartitionReport>,
}

/// How often something was retried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Retried {
    /// The topic: where it is published to, or where it runs again.
    pub topic: Arc<str>,
    /// What that topic is to the flow: `source`, the number of the tier from 0, or `retry`.
    pub tier: String,
    /// The policy's identifier; `other` where there are too many.
    pub policy: Arc<str>,
    /// How often.
    pub count: u64,
}

/// A partition of one of a flow's topics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionReport {
    /// The topic.
    pub topic: Arc<str>,
    /// What it is to the flow: `source`, the number of the tier from 0, or `retry`.
    pub tier: String,
    /// The partition.
    pub partition: i32,
    /// The group that reads it.
    pub group: String,
    /// Up to where it was read.
    pub position: i64,
    /// The offset below which everything is settled.
    pub commit_point: i64,
    /// The offset behind the last record, where it is known.
    pub end: Option<i64>,
    /// How many records wait for their time.
    pub waiting: u64,
    /// How many could run and have no slot.
    pub ready: u64,
    /// How long ago the oldest record that is not settled was appended.
    pub oldest: Option<Duration>,
    /// For how long the record has been due that waits longest for its turn.
    pub overdue: Option<Duration>,
}

impl PartitionReport {
    /// How many records were not read yet.
    pub fn unread(&self) -> Option<u64> {
        self.end.map(|end| u64::try_from(end - self.position).unwrap_or(0))
    }

    /// How many offsets lie between the commit point and the end: what outside tools call lag.
    pub fn uncommitted(&self) -> Option<u64> {
        self.end.map(|end| u64::try_from(end - self.commit_point).unwrap_or(0))
    }
}

/// What the numbers of a flow are about.
#[derive(Clone)]
pub(crate) struct Outline {
    pub(crate) topic: Arc<str>,
    pub(crate) roles: Arc<[(Arc<str>, Role)]>,
    pub(crate) concurrency: u32,
    pub(crate) has_breaker: bool,
}

impl Outline {
    fn tier(&self, topic: &str) -> String {
        let role = self.roles.iter().find(|it| *it.0 == *topic).map(|it| it.1);
        role.map_or_else(|| "none".to_owned(), tier)
    }

    fn retried(&self, counts: &ByPolicy) -> Vec<Retried> {
        let all = counts.all().into_iter();
        all.map(|(topic, policy, count)| Retried { tier: self.tier(&topic), topic, policy, count })
            .collect()
    }

    pub(crate) fn report(&self, state: &FlowState, groups: &[Arc<Pulse>]) -> FlowReport {
        let (numbers, now) = (&state.numbers, clock::now());
        let lanes = state.census.lock().clone();
        FlowReport {
            topic: self.topic.to_string(),
            concurrency: u64::from(self.concurrency),
            has_breaker: self.has_breaker,
            in_memory_retries: self.retried(&numbers.in_memory),
            retries: self.retried(&numbers.delayed),
            dead_letters: numbers.dead_letters.all(),
            dropped: numbers.dropped.all(),
            relayed: numbers.relayed.get(),
            reappended: numbers.reappended.get(),
            void: numbers.void.get(),
            superseded: numbers.superseded.get(),
            stops: numbers.stops.get(),
            lost: numbers.lost.get(),
            unreadable: numbers.unreadable.get(),
            commits: numbers.commits.get(),
            commit_failures: numbers.commit_failures.get(),
            publish_failures: numbers.publish_failures.get(),
            state_blocks: numbers.state_blocks.get(),
            state_block_failures: numbers.state_block_failures.get(),
            run_time: numbers.run_time.read(),
            lateness: numbers.lateness.read(),
            partitions: lanes.into_iter().map(|it| partition(it, groups, now)).collect(),
        }
    }
}

fn tier(role: Role) -> String {
    match role {
        Role::Source => "source".to_owned(),
        Role::Tier(index) => index.to_string(),
        Role::Retry => "retry".to_owned(),
    }
}

fn partition(lane: LaneCensus, groups: &[Arc<Pulse>], now: Timestamp) -> PartitionReport {
    let (group, counted) = (groups.get(lane.group), lane.counted);
    let end = group.and_then(|it| it.ends.get(&lane.topic, lane.key.partition));
    PartitionReport {
        tier: tier(lane.role),
        partition: lane.key.partition,
        group: group.map(|it| it.group.clone()).unwrap_or_default(),
        position: counted.position,
        commit_point: counted.commit_point,
        // What is known of the end may be older than what was read.
        end: end.map(|it| it.max(counted.position)),
        waiting: counted.waiting as u64,
        ready: (counted.ready + lane.backlog) as u64,
        oldest: lane.oldest.map(|it| now.since(it)),
        overdue: counted.first_due.filter(|it| *it <= now).map(|it| now.since(it)),
        topic: lane.topic,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well() -> State {
        let flow = FlowStatus::of("orders", &FlowState::default());
        State { is_joined: true, is_ending: false, partitions: 0, unread: 0, flows: vec![flow] }
    }

    #[test]
    fn a_member_without_partitions_is_ready() {
        assert!(well().is_ready() && well().troubles().is_empty());
    }

    #[test]
    fn whatever_is_not_well_is_told() {
        let mut state = well();
        state.flows[0].unpublished = 3;
        state.flows[0].stopped = Some("no database".to_owned());
        assert!(!state.is_ready());
        assert_eq!(
            state.troubles(),
            [
                "the flow of orders has stopped: no database",
                "3 records of orders cannot be published and are held"
            ]
        );
        assert_eq!(State::default().troubles(), ["the brokers have not answered yet"]);
        let ending = State { is_ending: true, ..well() };
        assert!(!ending.is_ready());
        assert_eq!(ending.troubles(), ["it is ending, or has ended"]);
        let unread = State { unread: 2, ..well() };
        assert!(!unread.is_ready());
        assert_eq!(unread.troubles(), ["2 partitions that it was assigned cannot be read yet"]);
        let unjoined = State { is_joined: false, ..well() };
        assert!(!unjoined.is_ready());
        assert_eq!(unjoined.troubles(), ["no partitions were assigned yet"]);
    }
}
