//! Reading partitions from here to there, for those who only look.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;

use crate::RunError;
use crate::consumer::not_started;
use crate::engine::inbox::{Inbox, Letter, Letters};
use crate::event::Spot;
use crate::kafka::client::{Properties, Told};
use crate::kafka::message::{Message, WholeMessage};
use crate::kafka::offsets::{self, Committed};
use crate::kafka::reread::{Request, Rereader};

/// How long the brokers may take for an answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How many offsets are asked for at once, and how long that may take.
const PIECE: i64 = 50_000;
const PIECE_LIMIT: Duration = Duration::from_secs(30);

/// Reads what it is told to, and commits nothing.
pub(super) struct Reader {
    /// Sees all that is there, committed or not.
    consumer: BaseConsumer<Told>,
    rereader: Rereader,
    inbox: Arc<Inbox>,
}

impl Reader {
    pub(super) fn new(properties: &Properties, group: &str, told: Told) -> Result<Self, RunError> {
        let mut config = properties.reader(group);
        config.set("isolation.level", "read_uncommitted");
        let consumer = config.create_with_context(told.clone())?;
        let (rereader, thread) = Rereader::start(properties, group, told)?;
        thread.map_err(not_started)?;
        Ok(Self { consumer, rereader, inbox: Arc::default() })
    }

    /// The id of the cluster.
    pub(super) fn cluster(&self) -> Option<String> {
        self.consumer.client().fetch_cluster_id(ANSWER)
    }

    /// How many partitions a topic has. One that is not there has none.
    pub(super) fn partitions(&self, topic: &str) -> KafkaResult<i32> {
        offsets::partitions(&self.consumer, topic, ANSWER)
    }

    /// What the group committed for these partitions.
    pub(super) fn committed(&self, partitions: &[(&str, i32)]) -> KafkaResult<Vec<Committed>> {
        offsets::committed(&self.consumer, partitions, ANSWER)
    }

    /// The first offset of each partition and the one behind the last, in their order.
    pub(super) fn bounds(&self, partitions: &[(&str, i32)]) -> KafkaResult<Vec<(i64, i64)>> {
        offsets::watermarks(&self.consumer, partitions, ANSWER).into_iter().collect()
    }

    /// Shows the messages of a range.
    pub(super) fn read(
        &self,
        topic: &Arc<str>,
        partition: i32,
        range: Range<i64>,
        mut show: impl FnMut(Vec<Message>),
    ) -> Result<(), RunError> {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start.saturating_add(PIECE));
            self.rereader.ask(Request {
                lane: 0,
                ticket: 0,
                topic: Arc::clone(topic),
                partition,
                ranges: std::iter::once(start..end).collect(),
                inbox: Arc::clone(&self.inbox),
            });
            if !self.take_in(&mut show) {
                return Err(RunError::Fatal(format!(
                    "{topic}/{partition} could not be read from {start} to {end}"
                )));
            }
            start = end;
        }
        Ok(())
    }

    /// Shows what was asked for. False if it could not be read.
    fn take_in(&self, show: &mut impl FnMut(Vec<Message>)) -> bool {
        let (until, mut letters) = (Instant::now() + PIECE_LIMIT, Letters::default());
        while Instant::now() < until {
            self.inbox.take(until, &mut letters);
            for letter in letters.others.drain(..) {
                if let Letter::Reread { mut messages, end, .. } = letter {
                    messages.retain(|it| it.error().is_none());
                    show(messages);
                    if let Some(is_read) = end {
                        return is_read;
                    }
                }
            }
        }
        false
    }

    /// Counts the dead letters of topics that follow these.
    pub(super) fn count(
        self,
        heads: BTreeMap<Arc<str>, BTreeMap<Spot, u64>>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<BTreeMap<Spot, u64>, RunError> {
        let mut ranges = Vec::new();
        for topic in heads.keys() {
            for partition in 0..self.partitions(topic)? {
                let bounds = self.bounds(&[(topic, partition)])?;
                ranges.extend(bounds.iter().map(|it| (Arc::clone(topic), partition, it.0..it.1)));
            }
        }
        let all = ranges.iter().map(|it| length(&it.2)).sum();
        let mut read = 0;
        let mut counted: BTreeMap<_, _> = heads.into_values().flatten().collect();
        for (topic, partition, range) in ranges {
            self.read(&topic, partition, range, |messages| {
                read += messages.len() as u64;
                progress(read, all);
                for message in messages {
                    let message = WholeMessage::new(message);
                    let follows = message.headers().find(|it| it.0 == b"redrive-follows");
                    if let Some(head) = follows.and_then(|it| spot(it.1?))
                        && let Some(count) = counted.get_mut(&head)
                    {
                        *count += 1;
                    }
                }
            })?;
        }
        Ok(counted)
    }
}

pub(super) fn length(range: &Range<i64>) -> u64 {
    u64::try_from(range.end.saturating_sub(range.start)).unwrap_or(0)
}

/// `topic/partition/offset`.
fn spot(text: &[u8]) -> Option<Spot> {
    let mut parts = std::str::from_utf8(text).ok()?.split('/');
    let (topic, partition, offset) = (parts.next()?, parts.next()?, parts.next()?);
    let end = parts.next();
    let spot = Spot {
        topic: topic.into(),
        partition: partition.parse().ok()?,
        offset: offset.parse().ok()?,
    };
    end.is_none().then_some(spot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_as_it_is_written() {
        let head = Spot { topic: "orders.v2".into(), partition: 3, offset: 17 };
        assert_eq!(spot(head.to_string().as_bytes()), Some(head));
        for other in ["", "orders", "orders/3", "orders/3/x", "orders/3/17/1", "orders/-/17"] {
            assert_eq!(spot(other.as_bytes()), None, "{other}");
        }
        assert_eq!(spot(b"\xFF/1/2"), None);
    }
}
