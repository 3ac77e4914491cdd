//! The state topic: what does not fit the metadata of a commit, and entities that are closed.
//!
//! A block is immutable under a key of its own: topic, partition, and what it speaks of with its hash. It is written before
//! the commit that names it; one that no commit names is ignored, and deleted when somebody comes across it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message as _;
use rdkafka::types::RDKafkaErrorCode;
use redrive_core::Timestamp;
use redrive_core::lane::Marker;
use redrive_core::offsets::{Block, BlockId};

use super::client::{Properties, Told};
use super::markers::{self, Note};
use super::offsets;
use super::publish::{At, Body, Outgoing, Publisher, Receipt, Unpublished};
use crate::engine::inbox::{Inbox, Letter};
use crate::pack::Pack;

/// The blocks of one partition.
pub(crate) type Blocks = BTreeMap<BlockId, Vec<u8>>;

/// What the topic says of partitions.
#[derive(Default)]
pub(crate) struct Said {
    /// Their blocks.
    pub(crate) blocks: BTreeMap<(String, i32), Blocks>,
    /// The markers of lanes, each with its offset, by the partition of the source topic.
    pub(crate) markers: BTreeMap<(String, i32), BTreeMap<Marker, i64>>,
}

/// How long the topic may take to be read.
pub(super) const LIMIT: Duration = Duration::from_secs(20);
/// How soon it is looked again whether a transaction has ended.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

pub(crate) struct StateTopic {
    topic: Arc<str>,
    group: String,
    properties: Properties,
    told: Told,
    consumer: Mutex<Option<BaseConsumer<Told>>>,
}

impl StateTopic {
    pub(crate) fn new(topic: Arc<str>, group: &str, properties: Properties, told: Told) -> Self {
        Self { topic, group: group.to_owned(), properties, told, consumer: Mutex::default() }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.topic
    }

    /// What it says of these partitions: all their blocks, and markers up to this end of theirs. A topic that is not there says
    /// nothing.
    ///
    /// What comes behind the end is not for whoever takes over: it may be from somebody who has taken over since.
    pub(crate) fn read(&self, partitions: &[(&str, i32)], markers_end: i64) -> KafkaResult<Said> {
        let mut said = Said::default();
        let is_meant = |topic: &str, partition| partitions.contains(&(topic, partition));
        self.scan(markers_end, |key, value, offset| {
            if let Some((topic, partition, id)) = read_key(key)
                && is_meant(topic, partition)
            {
                let blocks = said.blocks.entry((topic.to_owned(), partition)).or_default();
                match value {
                    Some(bytes) => _ = blocks.insert(id, bytes.to_vec()),
                    None => _ = blocks.remove(&id),
                }
            } else if let Some((topic, partition, marker)) = markers::read_key(key)
                && is_meant(topic, partition)
                && offset < markers_end
            {
                let markers = said.markers.entry((topic.to_owned(), partition)).or_default();
                match value {
                    Some(_) => _ = markers.insert(marker, offset),
                    None => _ = markers.remove(&marker),
                }
            }
        })?;
        Ok(said)
    }

    /// The markers of all lanes, with what they tell.
    pub(crate) fn closed(&self) -> KafkaResult<BTreeMap<(String, i32, Marker), Note>> {
        let mut closed = BTreeMap::new();
        self.scan(0, |key, value, _| {
            if let Some((topic, partition, marker)) = markers::read_key(key) {
                let key = (topic.to_owned(), partition, marker);
                match value {
                    Some(value) => _ = closed.insert(key, Note::read(value)),
                    None => _ = closed.remove(&key),
                }
            }
        })?;
        Ok(closed)
    }

    /// Shows everything that is in it: keys, values and offsets. What was there of markers at this end may be in a transaction still,
    /// whose end is waited for.
    fn scan(
        &self,
        markers_end: i64,
        show: impl FnMut(&str, Option<&[u8]>, i64),
    ) -> KafkaResult<()> {
        let mut held = self.consumer.lock();
        let consumer = match held.take() {
            Some(consumer) => consumer,
            None => self.properties.reader(&self.group).create_with_context(self.told.clone())?,
        };
        self.scan_with(&consumer, markers_end, show)?;
        // One that failed may never find its brokers again (`lifeline.rs`).
        *held = Some(consumer);
        Ok(())
    }

    fn scan_with(
        &self,
        consumer: &BaseConsumer<Told>,
        markers_end: i64,
        mut show: impl FnMut(&str, Option<&[u8]>, i64),
    ) -> KafkaResult<()> {
        let until = Instant::now() + LIMIT;
        let late = || KafkaError::MessageConsumption(RDKafkaErrorCode::OperationTimedOut);
        let mut open = self.bounds(consumer)?;
        while open.get(&markers::PARTITION).map_or(0, |it| it.1) < markers_end {
            if Instant::now() > until {
                return Err(late());
            }
            thread::sleep(LOOK_AGAIN);
            open = self.bounds(consumer)?;
        }
        open.retain(|_, (start, end)| start < end);
        if open.is_empty() {
            return Ok(());
        }
        let from = open.iter().map(|(partition, bounds)| (&*self.topic, *partition, bounds.0));
        consumer.assign(&offsets::at_offsets(from))?;
        while !open.is_empty() {
            if Instant::now() > until {
                return Err(late());
            }
            match consumer.poll(Duration::from_millis(100)) {
                None => {}
                Some(Err(KafkaError::PartitionEOF(partition))) => _ = open.remove(&partition),
                Some(Err(error)) => return Err(error),
                Some(Ok(message)) => {
                    if let Some(key) = message.key().and_then(|it| std::str::from_utf8(it).ok()) {
                        show(key, message.payload(), message.offset());
                    }
                }
            }
        }
        consumer.unassign()
    }

    /// Where each partition begins and ends.
    fn bounds(&self, consumer: &BaseConsumer<Told>) -> KafkaResult<BTreeMap<i32, (i64, i64)>> {
        let metadata = consumer.fetch_metadata(Some(&self.topic), Duration::from_secs(10))?;
        let partitions: Vec<_> = metadata
            .topics()
            .iter()
            .filter(|it| it.name() == &*self.topic && it.error().is_none())
            .flat_map(|it| it.partitions())
            .map(|it| (&*self.topic, it.id()))
            .collect();
        let marks = offsets::watermarks(consumer, &partitions, Duration::from_secs(10));
        partitions.iter().zip(marks).map(|(it, marks)| Ok((it.1, marks?))).collect()
    }

    /// Puts a block into the topic. What becomes of it is told to the lane.
    pub(crate) fn store(
        &self,
        publisher: &Publisher,
        at: (&str, i32),
        block: &Block,
        lane: u64,
        inbox: &Arc<Inbox>,
    ) {
        let receipt = Arc::new(Stored { inbox: Arc::clone(inbox), id: block.id });
        let outgoing = self.outgoing(write_key(at, block.id), Some(block.bytes.to_vec()), None);
        if publisher.publish(None, outgoing, receipt, (lane, 0)).is_err() {
            inbox.send(Letter::Stored { lane, id: block.id, is_stored: false });
        }
    }

    /// Deletes a block. If that fails, the next one that comes across it does it again.
    pub(crate) fn delete(&self, publisher: &Publisher, at: (&str, i32), id: BlockId) {
        let outgoing = self.outgoing(write_key(at, id), None, None);
        _ = publisher.publish(None, outgoing, Arc::new(Deleted), (0, 0));
    }

    pub(super) fn outgoing(
        &self,
        key: String,
        value: Option<Vec<u8>>,
        partition: Option<i32>,
    ) -> Arc<Outgoing> {
        let key = Some(key.into_bytes());
        Arc::new(Outgoing {
            topic: Arc::clone(&self.topic),
            partition,
            tier: None,
            needed_at: Timestamp::default(),
            is_alone: false,
            headers: Pack::default(),
            body: Some(Body { key, value }),
        })
    }
}

struct Stored {
    inbox: Arc<Inbox>,
    id: BlockId,
}

impl Receipt for Stored {
    fn published(&self, (lane, _): (u64, i64), result: Result<At, Unpublished>) {
        self.inbox.send(Letter::Stored { lane, id: self.id, is_stored: result.is_ok() });
    }
}

struct Deleted;

impl Receipt for Deleted {
    fn published(&self, _: (u64, i64), _: Result<At, Unpublished>) {}
}

fn write_key((topic, partition): (&str, i32), id: BlockId) -> String {
    format!("map/{topic}/{partition}/{:x}/{:016x}", id.stretch, id.hash)
}

fn read_key(key: &str) -> Option<(&str, i32, BlockId)> {
    let mut parts = key.strip_prefix("map/")?.split('/');
    let (topic, partition) = (parts.next()?, parts.next()?.parse().ok()?);
    let mut number = || u64::from_str_radix(parts.next()?, 16).ok();
    let id = BlockId { stretch: number()?, hash: number()? };
    parts.next().is_none().then_some((topic, partition, id))
}

#[cfg(test)]
mod tests {
    use redrive_core::Timestamp;
    use redrive_core::lane::{EntityId, Identity};

    use super::*;
    use crate::embedded::Broker;
    use crate::event::Events;

    /// A member that slept while it took over found markers there of the one that had taken over meanwhile, and deleted them.
    #[test]
    fn markers_behind_the_end_that_was_noted_are_not_for_whoever_takes_over() {
        let broker = Broker::start().unwrap();
        broker.make_topic("g.redrive", 1).unwrap();
        let (properties, told) = (broker.properties().on_embedded(), Told::new(Events::default()));
        let publisher = Publisher::new(&properties, told.clone()).unwrap();
        let topic = StateTopic::new("g.redrive".into(), "g", properties, told);
        let marker = |epoch| {
            let head = Identity { origin: 7, redriven: 0 };
            Marker { entity: EntityId::of(b"a"), head, epoch: Some(epoch) }
        };
        let write = |epoch, note: Option<&Note>| {
            let at = ("orders", 0);
            topic.write_marker(&publisher, at, marker(epoch), note, Arc::new(Deleted), 0);
            publisher.flush(Duration::from_secs(10)).unwrap();
        };
        let note = Note::new(Some(b"a"), Timestamp::default());
        write(1, Some(&note));
        write(2, Some(&note));
        write(1, None);
        let read = |end| {
            let said = topic.read(&[("orders", 0), ("orders.retry", 0)], end).unwrap();
            let markers = said.markers.get(&("orders".to_owned(), 0)).cloned().unwrap_or_default();
            markers.into_iter().map(|(it, offset)| (it.epoch, offset)).collect::<Vec<_>>()
        };
        assert_eq!(read(0), []);
        assert_eq!(read(1), [(Some(1), 0)]);
        assert_eq!(read(2), [(Some(1), 0), (Some(2), 1)]);
        assert_eq!(read(3), [(Some(2), 1)]);
        let closed = topic.closed().unwrap();
        assert_eq!(closed.into_keys().map(|it| it.2).collect::<Vec<_>>(), [marker(2)]);
    }

    #[test]
    fn keys_come_back() {
        let id = BlockId { stretch: 77, hash: u64::MAX };
        let key = write_key(("orders.retry-1_x", 12), id);
        assert_eq!(read_key(&key), Some(("orders.retry-1_x", 12, id)));
        for other in
            ["", "map/", "map/orders/1/2", "map/orders/x/1/1", "map/orders/1/1/1/1", "close/a"]
        {
            assert_eq!(read_key(other), None, "{other}");
        }
    }
}
