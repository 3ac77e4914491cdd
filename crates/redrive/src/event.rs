//! What happens, told once: to the log, and to whoever listens.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::offsets::MapError;
use redrive_core::{Reason, Timestamp};

use crate::config::format_duration;
use crate::embedded::KEPT;
use crate::journal::Journal;
use crate::numbers::Numbers;

/// A record's place: topic, partition and offset.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spot {
    /// The topic.
    pub topic: Arc<str>,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic, self.partition, self.offset)
    }
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Event {
    /// A partition was assigned to this member.
    Assigned {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// Where it goes on.
        position: i64,
    },
    /// A partition went to another member, or the process ends.
    Revoked {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// Whether it was gone before anything could be committed.
        is_lost: bool,
    },
    /// This member has taken over a partition whose entities' events run in order: it knows all that is pending, and the group
    /// has accepted that. From now on its records run.
    TakenOver {
        /// The source topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// The number of this owner: each has a higher one than those before it.
        epoch: u64,
        /// How many entities have something pending.
        pending: u64,
        /// How many entities are closed.
        closed: u64,
    },
    /// A run failed and the record is run again in place.
    RunsAgain {
        /// The record.
        spot: Spot,
        /// What went wrong.
        error: String,
        /// How long it waits.
        wait: Duration,
        /// How that was found.
        by: DelayBy,
        /// Which run in place this will be, from 1.
        run: u32,
        /// How many there may be.
        runs: Option<u32>,
        /// The policy, by its identifier.
        policy: Option<String>,
    },
    /// A handler holds a record: it stays in its place uncounted, and is run again.
    Held {
        /// The record.
        spot: Spot,
        /// What went wrong.
        error: String,
        /// How long it waits.
        wait: Duration,
    },
    /// A run failed and the record is published to a retry topic.
    Retries {
        /// The record.
        spot: Spot,
        /// What went wrong.
        error: String,
        /// The retry topic.
        to: Arc<str>,
        /// How often it was published with this time.
        overall: u32,
        /// When it is due there.
        due: Timestamp,
        /// How long that is from now.
        delay: Duration,
        /// How that was found.
        by: DelayBy,
        /// The policy, by its identifier.
        policy: Option<String>,
        /// How often it was published under that policy, with this time.
        policy_attempts: u32,
        /// Which of the flow's retry topics that is, from 0.
        tier: u32,
        /// How often it was published there, with this time.
        tier_attempts: u32,
        /// How often it may be, where there is a cap.
        tier_cap: Option<u32>,
        /// Whether it was in another retry topic before, whose attempts are spent.
        is_moved: bool,
    },
    /// A record goes to the dead-letter topic.
    DeadLettered {
        /// The record.
        spot: Spot,
        /// What went wrong, if it was run.
        error: Option<String>,
        /// Why.
        reason: Reason,
        /// The dead-letter topic.
        to: Arc<str>,
        /// The policy, by its identifier, if one decided.
        policy: Option<String>,
        /// How often it was published because of failures.
        overall: u32,
    },
    /// A record was dropped.
    Dropped {
        /// The record.
        spot: Spot,
        /// What went wrong.
        error: String,
        /// Why.
        reason: Reason,
        /// The policy, by its identifier, if one decided.
        policy: Option<String>,
        /// How often it was published because of failures.
        overall: u32,
    },
    /// The flow stopped: a policy or a handler asked for it.
    Stopped {
        /// The record.
        spot: Spot,
        /// What went wrong.
        error: String,
    },
    /// The brokers are there, and the flows are run.
    Started {
        /// The group.
        group: Arc<str>,
        /// How many flows there are.
        flows: usize,
    },
    /// Everything has ended.
    Ended,
    /// The flow was told to pause.
    Paused,
    /// The flow was told to go on.
    Resumed,
    /// Too many runs fail: records are held back, but for a probe now and then.
    BreakerOpened,
    /// A probe has succeeded: records run again.
    BreakerClosed,
    /// All that could not be published is published.
    Recovered,
    /// A record was due so late that retention could have deleted it first, and goes to the end of its topic.
    Reappended(Spot),
    /// A record of an entity goes to the dead-letter topic, and those behind it follow, until an operator opens the entity again.
    EntityClosed {
        /// The entity's name, where it is known.
        entity: Option<Arc<str>>,
        /// Where the record was produced.
        head: Spot,
        /// Why it is dead-lettered.
        reason: String,
    },
    /// An entity is open again: its records run.
    EntityOpened {
        /// The entity's name, where it is known, else its hash.
        entity: Option<Arc<str>>,
        /// The source topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
    },
    /// What a member published when the partition was another one's already does not count: it is settled unrun.
    Void {
        /// The source topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// How many records.
        copies: u64,
    },
    /// The state topic did not take that an entity is closed or open, and is tried again.
    MarkFailed {
        /// The record that the others of its entity follow.
        spot: Spot,
        /// The state topic.
        to: Arc<str>,
        /// What Kafka said.
        error: String,
    },
    /// A record did not reach its next stop, and is held until it does.
    PublishFailed {
        /// The record.
        spot: Spot,
        /// Where it should go.
        to: Arc<str>,
        /// What Kafka said.
        error: String,
    },
    /// A record is too large for its next stop, with or without what Redrive added to it.
    TooLarge {
        /// The record.
        spot: Spot,
        /// Where it should go.
        to: Arc<str>,
    },
    /// A commit was not accepted. It is tried again.
    CommitFailed {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// What Kafka said.
        error: String,
    },
    /// The map of the last commit is not used: what is settled above the commit point may run again.
    MapRefused {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// Why.
        error: MapError,
    },
    /// The map could not say all: what is settled from here on would run again after a restart.
    MapCut(Spot),
    /// Records that were not settled are gone from the log.
    Lost {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// Which.
        offsets: Range<i64>,
    },
    /// A record on a retry topic belongs to another group, and is passed over.
    Foreign(Spot),
    /// A header could not be read.
    Unreadable {
        /// The record.
        spot: Spot,
        /// Which.
        header: &'static str,
    },
    /// The log ends before what the group committed: the topic was made anew, or the brokers lost records. It is read from its
    /// beginning.
    Truncated {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// Where the group was.
        position: i64,
        /// Where the log ends.
        end: i64,
    },
    /// A partition cannot be read, or not be looked at.
    Unread {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// What Kafka said.
        error: String,
    },
    /// A retry topic that no flow names still has records of the group.
    LeftBehind {
        /// The topic.
        topic: Arc<str>,
        /// How many, at the most.
        records: i64,
    },
    /// A topic is not as it should be.
    TopicDiffers {
        /// The topic.
        topic: Arc<str>,
        /// What differs, what comes of it, and what to do about it.
        difference: String,
    },
    /// The brokers make topics by themselves that somebody asks for.
    AutoCreates,
    /// The broker is within this process.
    Embedded {
        /// Where it listens.
        address: Arc<str>,
    },
    /// The embedded broker has dropped dead letters to make room.
    Overflowed {
        /// The topic.
        topic: Arc<str>,
        /// The partition.
        partition: i32,
        /// The first offset that is still there.
        start: i64,
    },
    /// A transaction came to nothing, and what was in it is tried again.
    TransactionAborted {
        /// The consumer group.
        group: Arc<str>,
        /// What Kafka said.
        error: String,
    },
    /// A client of Kafka has trouble.
    Client {
        /// What sort.
        error: String,
        /// All about it.
        reason: String,
    },
}

/// How the time until the next run was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DelayBy {
    /// The policy's backoff.
    Backoff,
    /// The retry topic's own delay.
    Tier,
    /// The failure said when: a `Retry-After`.
    RetryAfter,
    /// The handler asked for a time.
    Handler,
}

impl DelayBy {
    /// The word in a log.
    pub const fn as_str(self) -> &'static str {
        match self {
            DelayBy::Backoff => "backoff",
            DelayBy::Tier => "tier",
            DelayBy::RetryAfter => "retry-after",
            DelayBy::Handler => "handler",
        }
    }
}

impl fmt::Display for DelayBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For those who look closely.
    Debug,
    /// The usual course.
    Info,
    /// Worth a look.
    Warning,
    /// Somebody must act.
    Error,
}

impl Event {
    /// How much it matters.
    pub fn level(&self) -> Level {
        match self {
            Event::RunsAgain { .. } | Event::Foreign(_) | Event::Reappended(_) => Level::Debug,
            Event::Assigned { .. }
            | Event::TakenOver { .. }
            | Event::Started { .. }
            | Event::Ended
            | Event::Paused
            | Event::Resumed
            | Event::BreakerClosed
            | Event::EntityOpened { .. }
            | Event::Embedded { .. }
            | Event::Recovered => Level::Info,
            Event::Revoked { is_lost, .. } => {
                if *is_lost {
                    Level::Warning
                } else {
                    Level::Info
                }
            }
            Event::Retries { .. }
            | Event::Dropped { .. }
            | Event::CommitFailed { .. }
            | Event::MapRefused { .. }
            | Event::MapCut(_)
            | Event::Unreadable { .. }
            | Event::LeftBehind { .. }
            | Event::TopicDiffers { .. }
            | Event::AutoCreates
            | Event::Unread { .. }
            | Event::TransactionAborted { .. }
            | Event::Held { .. }
            | Event::BreakerOpened
            | Event::Void { .. }
            | Event::Client { .. } => Level::Warning,
            Event::DeadLettered { .. }
            | Event::Stopped { .. }
            | Event::PublishFailed { .. }
            | Event::EntityClosed { .. }
            | Event::MarkFailed { .. }
            | Event::TooLarge { .. }
            | Event::Lost { .. }
            | Event::Overflowed { .. }
            | Event::Truncated { .. } => Level::Error,
        }
    }

    /// Its name, in a log and for those who count.
    pub fn name(&self) -> &'static str {
        match self {
            Event::Assigned { .. } => "assigned",
            Event::TakenOver { .. } => "taken_over",
            Event::Revoked { .. } => "revoked",
            Event::RunsAgain { .. } => "runs_again",
            Event::Held { .. } => "held",
            Event::Retries { .. } => "retries",
            Event::DeadLettered { .. } => "dead_lettered",
            Event::Dropped { .. } => "dropped",
            Event::Stopped { .. } => "stopped",
            Event::Started { .. } => "started",
            Event::Ended => "ended",
            Event::Paused => "paused",
            Event::Resumed => "resumed",
            Event::BreakerOpened => "breaker_opened",
            Event::BreakerClosed => "breaker_closed",
            Event::Recovered => "recovered",
            Event::Reappended(_) => "reappended",
            Event::EntityClosed { .. } => "entity_closed",
            Event::EntityOpened { .. } => "entity_opened",
            Event::Void { .. } => "void",
            Event::MarkFailed { .. } => "mark_failed",
            Event::PublishFailed { .. } => "publish_failed",
            Event::TooLarge { .. } => "too_large",
            Event::CommitFailed { .. } => "commit_failed",
            Event::MapRefused { .. } => "map_refused",
            Event::MapCut(_) => "map_cut",
            Event::Lost { .. } => "lost",
            Event::Foreign(_) => "foreign",
            Event::Unreadable { .. } => "unreadable",
            Event::Truncated { .. } => "truncated",
            Event::Unread { .. } => "unread",
            Event::LeftBehind { .. } => "left_behind",
            Event::TopicDiffers { .. } => "topic_differs",
            Event::AutoCreates => "auto_creates",
            Event::Embedded { .. } => "embedded",
            Event::Overflowed { .. } => "overflowed",
            Event::TransactionAborted { .. } => "transaction_aborted",
            Event::Client { .. } => "client",
        }
    }

    /// Whether each one is written to the log, however many there are.
    pub fn is_loud(&self) -> bool {
        match self {
            Event::Stopped { .. }
            | Event::Lost { .. }
            | Event::Truncated { .. }
            | Event::MapRefused { .. }
            | Event::LeftBehind { .. }
            | Event::TopicDiffers { .. }
            | Event::AutoCreates
            | Event::Embedded { .. }
            | Event::Overflowed { .. }
            | Event::Started { .. }
            | Event::Ended
            | Event::Paused
            | Event::Resumed => true,
            Event::Revoked { is_lost, .. } => *is_lost,
            _ => false,
        }
    }

    /// What is known about it, each fact by itself.
    pub fn facts(&self) -> Facts<'_> {
        let none = Facts::default();
        match self {
            Event::Assigned { topic, partition, position } => {
                Facts { offset: Some(*position), ..at(topic, *partition) }
            }
            Event::Revoked { topic, partition, .. } | Event::TakenOver { topic, partition, .. } => {
                at(topic, *partition)
            }
            Event::RunsAgain { spot, error, wait, by, run, runs, policy } => Facts {
                error: Some(error),
                delay: Some(*wait),
                by: Some(*by),
                attempt: Some(*run),
                attempts: *runs,
                policy: policy.as_deref(),
                ..on(spot)
            },
            Event::Held { spot, error, wait } => {
                Facts { error: Some(error), delay: Some(*wait), ..on(spot) }
            }
            Event::Retries {
                spot,
                error,
                to,
                overall,
                due,
                delay,
                by,
                policy,
                policy_attempts,
                tier,
                tier_attempts,
                tier_cap,
                is_moved: _,
            } => Facts {
                error: Some(error),
                to: Some(to),
                total: Some(*overall),
                due: Some(*due),
                delay: Some(*delay),
                by: Some(*by),
                policy: policy.as_deref(),
                policy_attempts: Some(*policy_attempts),
                tier: Some(*tier),
                attempt: Some(*tier_attempts),
                attempts: *tier_cap,
                ..on(spot)
            },
            Event::DeadLettered { spot, error, reason, to, policy, overall } => Facts {
                error: error.as_deref(),
                reason: Some(*reason),
                to: Some(to),
                policy: policy.as_deref(),
                total: Some(*overall),
                ..on(spot)
            },
            Event::Dropped { spot, error, reason, policy, overall } => Facts {
                error: Some(error),
                reason: Some(*reason),
                policy: policy.as_deref(),
                total: Some(*overall),
                ..on(spot)
            },
            Event::Stopped { spot, error } => Facts { error: Some(error), ..on(spot) },
            Event::PublishFailed { spot, to, error } => {
                Facts { to: Some(to), error: Some(error), ..on(spot) }
            }
            Event::MarkFailed { spot, to, error } => {
                Facts { to: Some(to), error: Some(error), ..on(spot) }
            }
            Event::EntityClosed { entity, head, reason: _ } => {
                Facts { entity: entity.as_deref(), ..on(head) }
            }
            Event::EntityOpened { entity, topic, partition } => {
                Facts { entity: entity.as_deref(), ..at(topic, *partition) }
            }
            Event::Void { topic, partition, copies } => {
                Facts { count: Some(*copies), ..at(topic, *partition) }
            }
            Event::TooLarge { spot, to } => Facts { to: Some(to), ..on(spot) },
            Event::MapCut(spot) | Event::Foreign(spot) | Event::Reappended(spot) => on(spot),
            Event::Unreadable { spot, header } => Facts { header: Some(header), ..on(spot) },
            Event::CommitFailed { topic, partition, error }
            | Event::Unread { topic, partition, error } => {
                Facts { error: Some(error), ..at(topic, *partition) }
            }
            Event::MapRefused { topic, partition, .. } => at(topic, *partition),
            Event::Lost { topic, partition, offsets } => Facts {
                offset: Some(offsets.start),
                count: u64::try_from(offsets.end - offsets.start).ok(),
                ..at(topic, *partition)
            },
            Event::Truncated { topic, partition, position, .. } => {
                Facts { offset: Some(*position), ..at(topic, *partition) }
            }
            Event::LeftBehind { topic, records } => {
                Facts { topic: Some(topic), count: u64::try_from(*records).ok(), ..none }
            }
            Event::TopicDiffers { topic, .. } => Facts { topic: Some(topic), ..none },
            Event::TransactionAborted { error, .. } | Event::Client { error, .. } => {
                Facts { error: Some(error), ..none }
            }
            Event::Overflowed { topic, partition, start } => {
                Facts { offset: Some(*start), ..at(topic, *partition) }
            }
            Event::AutoCreates
            | Event::Embedded { .. }
            | Event::Started { .. }
            | Event::Ended
            | Event::Paused
            | Event::Resumed
            | Event::BreakerOpened
            | Event::BreakerClosed
            | Event::Recovered => none,
        }
    }
}

fn at(topic: &str, partition: i32) -> Facts<'_> {
    Facts { topic: Some(topic), partition: Some(partition), ..Facts::default() }
}

fn on(spot: &Spot) -> Facts<'_> {
    Facts { offset: Some(spot.offset), ..at(&spot.topic, spot.partition) }
}

/// What is known about an event, each fact by itself: the fields of a line in the log.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Facts<'a> {
    /// The topic.
    pub topic: Option<&'a str>,
    /// The partition.
    pub partition: Option<i32>,
    /// The offset.
    pub offset: Option<i64>,
    /// What went wrong.
    pub error: Option<&'a str>,
    /// Where the record goes.
    pub to: Option<&'a str>,
    /// Which retry topic that is, from 0.
    pub tier: Option<u32>,
    /// The attempt in that topic, or the run in place.
    pub attempt: Option<u32>,
    /// How many of those there may be.
    pub attempts: Option<u32>,
    /// How often it was published because of failures, all in all.
    pub total: Option<u32>,
    /// The policy, by its identifier.
    pub policy: Option<&'a str>,
    /// How often it was published under that policy.
    pub policy_attempts: Option<u32>,
    /// How long it waits.
    pub delay: Option<Duration>,
    /// How that was found.
    pub by: Option<DelayBy>,
    /// When it is due.
    pub due: Option<Timestamp>,
    /// Why its retries ended.
    pub reason: Option<Reason>,
    /// The header that could not be read.
    pub header: Option<&'a str>,
    /// The entity, by its name.
    pub entity: Option<&'a str>,
    /// How many records.
    pub count: Option<u64>,
}

/// "attempt 2/3", or "attempt 2" where there is no cap.
struct Attempt(u32, Option<u32>);

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "attempt {}", self.0)?;
        self.1.iter().try_for_each(|cap| write!(f, "/{cap}"))
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Assigned { topic, partition, position } => {
                write!(f, "{topic}/{partition} is assigned, from offset {position} on")
            }
            Event::TakenOver { topic, partition, epoch, pending, closed } => write!(
                f,
                "{topic}/{partition} is taken over in epoch {epoch}: {pending} entities have something pending, {closed} are closed"
            ),
            Event::Revoked { topic, partition, is_lost: false } => {
                write!(f, "{topic}/{partition} is given back")
            }
            Event::Revoked { topic, partition, is_lost: true } => {
                write!(
                    f,
                    "{topic}/{partition} is lost: what was not committed runs again elsewhere"
                )
            }
            Event::Held { spot, error, wait } => {
                write!(f, "{spot} is held and runs again in {}: {error}", format_duration(*wait))
            }
            Event::RunsAgain { spot, error, wait, by, run, runs, .. } => {
                let (attempt, wait) = (Attempt(*run, *runs), format_duration(*wait));
                write!(
                    f,
                    "{spot} failed and runs again in {wait} ({attempt} in place, by {by}): {error}"
                )
            }
            Event::Retries {
                spot,
                error,
                to,
                overall,
                delay,
                by,
                tier_attempts,
                tier_cap,
                is_moved,
                ..
            } => {
                let (attempt, delay) =
                    (Attempt(*tier_attempts, *tier_cap), format_duration(*delay));
                match (*is_moved, *tier_attempts) {
                    (true, _) => {
                        write!(
                            f,
                            "{spot} failed, its attempts there are spent, and it moves on to {to}"
                        )
                    }
                    (false, 2..) => {
                        write!(f, "{spot} failed and goes to the same topic {to} again")
                    }
                    (false, _) => write!(f, "{spot} failed and goes to {to}"),
                }?;
                write!(
                    f,
                    " ({attempt} in this topic, total {overall}), due in {delay} by {by}: {error}"
                )
            }
            Event::DeadLettered { spot, error, reason, to, overall, .. } => {
                match reason {
                    Reason::Attempts => {
                        write!(
                            f,
                            "all attempts of {spot} are spent (total {overall}), and it goes to the dead-letter topic {to}"
                        )
                    }
                    _ => write!(
                        f,
                        "{spot} goes to the dead-letter topic {to} ({reason}, total {overall})"
                    ),
                }?;
                error.iter().try_for_each(|it| write!(f, ": {it}"))
            }
            Event::Dropped { spot, error, reason, .. } => {
                write!(f, "{spot} is dropped ({reason}): {error}")
            }
            Event::Stopped { spot, error } => write!(f, "stopped at {spot}: {error}"),
            Event::Started { group, flows } => {
                let plural = if *flows == 1 { "" } else { "s" };
                write!(f, "the group {group} runs {flows} flow{plural}")
            }
            Event::Ended => f.write_str("everything has ended"),
            Event::Paused => f.write_str("paused: no more records are taken"),
            Event::Resumed => f.write_str("resumed"),
            Event::BreakerOpened => f.write_str(
                "too many runs fail: records are held back, but for a probe now and then",
            ),
            Event::BreakerClosed => f.write_str("a probe has succeeded: records run again"),
            Event::Recovered => f.write_str("all that could not be published is published"),
            Event::Reappended(spot) => {
                write!(f, "{spot} goes to the end of its topic, before retention deletes it")
            }
            Event::EntityClosed { entity, head, reason } => {
                let entity = entity.as_deref().unwrap_or("without a name");
                write!(
                    f,
                    "the entity {entity} is closed: {head} goes to the dead-letter topic ({reason}), and those behind it follow until somebody opens it again"
                )
            }
            Event::EntityOpened { entity, topic, partition } => {
                let entity = entity.as_deref().unwrap_or("without a name");
                write!(f, "the entity {entity} of {topic}/{partition} is open again")
            }
            Event::Void { topic, partition, copies } => {
                let (records, count) =
                    if *copies == 1 { ("copy", "does") } else { ("copies", "do") };
                write!(
                    f,
                    "{copies} {records} that a former owner of {topic}/{partition} published too late {count} not count"
                )
            }
            Event::MarkFailed { spot, to, error } => write!(
                f,
                "{to} did not take that the entity of {spot} is closed or open, and it is held: {error}"
            ),
            Event::PublishFailed { spot, to, error } => {
                write!(f, "{spot} could not be published to {to} and is held: {error}")
            }
            Event::TooLarge { spot, to } => write!(f, "{spot} is too large for {to}"),
            Event::CommitFailed { topic, partition, error } => {
                write!(f, "progress of {topic}/{partition} was not committed: {error}")
            }
            Event::MapRefused { topic, partition, error } => {
                write!(f, "settled records of {topic}/{partition} may run again: {error}")
            }
            Event::MapCut(spot) => {
                write!(f, "what is settled from {spot} on would run again after a restart")
            }
            Event::Lost { topic, partition, offsets } => {
                let (first, last) = (offsets.start, offsets.end - 1);
                write!(
                    f,
                    "{topic}/{partition} lost offsets {first} to {last} before they were settled"
                )
            }
            Event::Foreign(spot) => write!(f, "{spot} belongs to another group"),
            Event::Unreadable { spot, header } => {
                write!(f, "the header {header} of {spot} cannot be read")
            }
            Event::Truncated { topic, partition, position, end } => write!(
                f,
                "{topic}/{partition} ends at {end}, before the group's position {position}: it is read from its beginning"
            ),
            Event::Unread { topic, partition, error } => {
                write!(f, "{topic}/{partition} cannot be read: {error}")
            }
            Event::LeftBehind { topic, records } => write!(
                f,
                "{topic} is named by no flow, but still has up to {records} unsettled records: name it in `draining` to finish them"
            ),
            Event::TopicDiffers { topic, difference } => write!(f, "{topic}: {difference}"),
            Event::AutoCreates => f.write_str(
                "the brokers make topics by themselves, so that a producer with a typo makes one with the wrong settings: set `auto.create.topics.enable=false`",
            ),
            Event::Embedded { address } => write!(
                f,
                "the embedded broker listens at {address}: all that is in it ends with this process, and a partition keeps {KEPT}"
            ),
            Event::Overflowed { topic, partition, start } => write!(
                f,
                "the embedded broker keeps {KEPT} of a partition and has dropped all of {topic}/{partition} before offset {start}: use Apache Kafka where they matter"
            ),
            Event::TransactionAborted { group, error } => {
                write!(f, "a transaction of {group} was aborted and is tried again: {error}")
            }
            Event::Client { error, reason } => write!(f, "{error}: {reason}"),
        }
    }
}

/// Whoever wants to know.
type Listener = dyn Fn(&Event) + Send + Sync;

/// Where events go: to the log, to a flow's numbers, and to whoever listens.
#[derive(Clone, Default)]
pub(crate) struct Events {
    listener: Option<Arc<Listener>>,
    journal: Arc<Journal>,
    /// The flow that they are about, by its source topic, and what counts them.
    flow: Option<(Arc<str>, Arc<Numbers>)>,
}

impl Events {
    pub(crate) fn to(listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self { listener: Some(Arc::new(listener)), ..Self::default() }
    }

    /// The same, for the events of a flow.
    pub(crate) fn of_flow(&self, topic: &Arc<str>, numbers: &Arc<Numbers>) -> Self {
        Self { flow: Some((Arc::clone(topic), Arc::clone(numbers))), ..self.clone() }
    }

    /// What writes the log.
    pub(crate) fn journal(&self) -> &Arc<Journal> {
        &self.journal
    }

    pub(crate) fn tell(&self, event: &Event) {
        if let Some((_, numbers)) = &self.flow {
            numbers.count(event);
        }
        self.journal.write(event, self.flow.as_ref().map(|it| &*it.0));
        if let Some(listener) = &self.listener {
            listener(event);
        }
    }
}
