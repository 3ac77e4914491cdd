//! What happens, told once: to the log, and to whoever listens.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::offsets::MapError;
use redrive_core::{Reason, Timestamp};

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
    /// A run failed and the record is run again in place.
    RunsAgain {
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
    },
    /// A record goes to the dead-letter topic.
    DeadLettered {
        /// The record.
        spot: Spot,
        /// What went wrong, if it was run.
        error: Option<String>,
        /// Why.
        reason: Reason,
    },
    /// A record was dropped.
    Dropped {
        /// The record.
        spot: Spot,
        /// What went wrong.
        error: String,
        /// Why.
        reason: Reason,
    },
    /// The flow stopped: a policy or a handler asked for it.
    Stopped {
        /// The record.
        spot: Spot,
        /// What went wrong.
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
            Event::RunsAgain { .. } | Event::Foreign(_) => Level::Debug,
            Event::Assigned { .. } | Event::Retries { .. } => Level::Info,
            Event::Revoked { is_lost, .. } => {
                if *is_lost {
                    Level::Warning
                } else {
                    Level::Info
                }
            }
            Event::Dropped { .. }
            | Event::DeadLettered { .. }
            | Event::CommitFailed { .. }
            | Event::MapRefused { .. }
            | Event::MapCut(_)
            | Event::Unreadable { .. }
            | Event::LeftBehind { .. }
            | Event::TopicDiffers { .. }
            | Event::AutoCreates
            | Event::Unread { .. }
            | Event::TransactionAborted { .. }
            | Event::Client { .. } => Level::Warning,
            Event::Stopped { .. }
            | Event::PublishFailed { .. }
            | Event::TooLarge { .. }
            | Event::Lost { .. }
            | Event::Truncated { .. } => Level::Error,
        }
    }
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Event::Assigned { topic, partition, position } => {
                write!(f, "{topic}/{partition} is assigned, from offset {position} on")
            }
            Event::Revoked { topic, partition, is_lost: false } => {
                write!(f, "{topic}/{partition} is given back")
            }
            Event::Revoked { topic, partition, is_lost: true } => {
                write!(
                    f,
                    "{topic}/{partition} is lost: what was not committed runs again elsewhere"
                )
            }
            Event::RunsAgain { spot, error, wait } => {
                write!(f, "{spot} failed and runs again in {wait:?}: {error}")
            }
            Event::Retries { spot, error, to, overall, due } => {
                let due = due.as_millis();
                write!(f, "{spot} failed and goes to {to}, retry {overall}, due {due}: {error}")
            }
            Event::DeadLettered { spot, error, reason } => {
                write!(f, "{spot} goes to the dead-letter topic ({reason})")?;
                error.iter().try_for_each(|it| write!(f, ": {it}"))
            }
            Event::Dropped { spot, error, reason } => {
                write!(f, "{spot} is dropped ({reason}): {error}")
            }
            Event::Stopped { spot, error } => write!(f, "stopped at {spot}: {error}"),
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
            Event::TransactionAborted { group, error } => {
                write!(f, "a transaction of {group} was aborted and is tried again: {error}")
            }
            Event::Client { error, reason } => write!(f, "{error}: {reason}"),
        }
    }
}

/// Whoever wants to know.
type Listener = dyn Fn(&Event) + Send + Sync;

/// Where events go.
#[derive(Clone, Default)]
pub(crate) struct Events(Option<Arc<Listener>>);

impl Events {
    pub(crate) fn to(listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(listener)))
    }

    pub(crate) fn tell(&self, event: &Event) {
        match event.level() {
            Level::Debug => tracing::debug!("{event}"),
            Level::Info => tracing::info!("{event}"),
            Level::Warning => tracing::warn!("{event}"),
            Level::Error => tracing::error!("{event}"),
        }
        if let Some(listener) = &self.0 {
            listener(event);
        }
    }
}
