//! Where a group begins that has committed nothing yet for a topic, if not at the earliest record.
//!
//! It must be told apart from a partition that was added to a topic later, whose first records are to be read. So the member
//! that has partition 0 fixes where all partitions begin, in one commit, before anything is read; the others wait for that.
//! A partition without a commit beside one that has some is a new one. And what came in while nobody was there is read,
//! since a restart goes on from the commit.

use std::collections::BTreeMap;
use std::time::Duration;

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use redrive_core::Timestamp;

use super::offsets;
use crate::config::Start;

/// What is known of partitions of a topic that nothing is committed for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// They are read from the earliest record: they are new, or that is what was asked for.
    Earliest,
    /// Here, as was just said. Those that are not named are new, and read from the earliest record.
    At(BTreeMap<i32, i64>),
    /// The group begins now, and another member says where.
    NotYet,
}

/// Where these partitions of a topic begin.
pub(crate) fn begin<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    owned: &[i32],
    start: Start,
    limit: Duration,
) -> KafkaResult<Begin> {
    if start == Start::Earliest {
        return Ok(Begin::Earliest);
    }
    let metadata = consumer.fetch_metadata(Some(topic), limit)?;
    let own = metadata.topics().iter().find(|it| it.name() == topic);
    let all: Vec<_> =
        own.iter().flat_map(|it| it.partitions()).map(|it| (topic, it.id())).collect();
    if owned.iter().any(|it| !all.contains(&(topic, *it))) {
        // The broker that was asked is behind.
        return Err(KafkaError::MetadataFetch(RDKafkaErrorCode::UnknownPartition));
    }
    let committed = offsets::committed(consumer, &all, limit)?;
    if committed.iter().any(|it| it.offset.is_some()) {
        // Another member may have said so just now, for these, too. Those that still have none are new.
        let known = committed.into_iter().filter_map(|it| Some((it.partition, it.offset?)));
        return Ok(Begin::At(known.collect()));
    }
    if !owned.contains(&0) {
        return Ok(Begin::NotYet);
    }
    let mut ends = BTreeMap::new();
    for (at, marks) in all.iter().zip(offsets::watermarks(consumer, &all, limit)) {
        ends.insert(at.1, marks?.1);
    }
    let positions = match start {
        Start::At(time) => at_time(consumer, topic, ends, time, limit)?,
        Start::Earliest | Start::Latest => ends,
    };
    let list = positions.iter().map(|(partition, offset)| (topic, *partition, *offset));
    consumer.commit(&offsets::at_offsets(list), CommitMode::Sync)?;
    Ok(Begin::At(positions))
}

/// The first record of each partition that is not before this time; where there is none, the end.
fn at_time<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    ends: BTreeMap<i32, i64>,
    time: Timestamp,
    limit: Duration,
) -> KafkaResult<BTreeMap<i32, i64>> {
    let mut times = TopicPartitionList::new();
    for partition in ends.keys() {
        times.add_partition_offset(topic, *partition, Offset::Offset(time.as_millis()))?;
    }
    let found = consumer.offsets_for_times(times, limit)?;
    let mut positions = ends;
    for entry in found.elements() {
        entry.error()?;
        if let (Offset::Offset(offset), Some(position)) =
            (entry.offset(), positions.get_mut(&entry.partition()))
        {
            *position = offset;
        }
    }
    Ok(positions)
}
