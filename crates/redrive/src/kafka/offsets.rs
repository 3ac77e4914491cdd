//! What Kafka knows of partitions: what a group committed, and where logs begin and end.

#![expect(unsafe_code, reason = "the rdkafka crate panics on metadata that is not UTF-8")]

use std::ffi::CStr;
use std::slice;
use std::thread;
use std::time::Duration;

use rdkafka::bindings as sys;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::KafkaResult;
use rdkafka::{Offset, TopicPartitionList};

/// What a group committed for a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Committed {
    pub(crate) topic: String,
    pub(crate) partition: i32,
    pub(crate) offset: Option<i64>,
    /// As it is: anybody may have written it.
    pub(crate) metadata: Vec<u8>,
}

/// How many watermarks are asked for at the same time.
const AT_ONCE: usize = 8;

/// What the consumer's group committed for these partitions, in their order.
pub(crate) fn committed<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: &[(&str, i32)],
    limit: Duration,
) -> KafkaResult<Vec<Committed>> {
    let mut list = TopicPartitionList::new();
    for (topic, partition) in partitions {
        list.add_partition(topic, *partition);
    }
    let list = consumer.committed_offsets(list, limit)?;
    for entry in list.elements() {
        entry.error()?;
    }
    Ok(entries(&list))
}

/// The entries of a list, with their metadata as it is.
fn entries(list: &TopicPartitionList) -> Vec<Committed> {
    // SAFETY: the list is alive and not changed; librdkafka says how many entries there are, how long the metadata is, and
    // ends each topic with a zero.
    unsafe {
        let raw = &*list.ptr();
        let count = usize::try_from(raw.cnt).unwrap_or(0);
        if raw.elems.is_null() || count == 0 {
            return Vec::new();
        }
        let entries = slice::from_raw_parts(raw.elems, count);
        let bytes = |it: &sys::rd_kafka_topic_partition_t| {
            if it.metadata.is_null() || it.metadata_size == 0 {
                Vec::new()
            } else {
                slice::from_raw_parts(it.metadata.cast::<u8>(), it.metadata_size).to_vec()
            }
        };
        let committed = |it: &sys::rd_kafka_topic_partition_t| Committed {
            topic: CStr::from_ptr(it.topic).to_string_lossy().into_owned(),
            partition: it.partition,
            offset: (it.offset >= 0).then_some(it.offset),
            metadata: bytes(it),
        };
        entries.iter().map(committed).collect()
    }
}

/// The first offset of each partition and the one behind the last, in their order.
pub(crate) fn watermarks<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: &[(&str, i32)],
    limit: Duration,
) -> Vec<KafkaResult<(i64, i64)>> {
    let size = partitions.len().div_ceil(AT_ONCE).max(1);
    thread::scope(|scope| {
        let ask = |part: &[(&str, i32)]| -> Vec<_> {
            part.iter().map(|it| consumer.fetch_watermarks(it.0, it.1, limit)).collect()
        };
        let mut parts = partitions.chunks(size);
        let first = parts.next().unwrap_or_default();
        let others: Vec<_> = parts.map(|part| scope.spawn(move || ask(part))).collect();
        let mut found = ask(first);
        for other in others {
            found.extend(other.join().unwrap_or_default());
        }
        found
    })
}

/// A list of partitions with where to read them from.
pub(crate) fn at_offsets<'a>(
    partitions: impl IntoIterator<Item = (&'a str, i32, i64)>,
) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (topic, partition, offset) in partitions {
        // Offsets of records are never special ones.
        _ = list.add_partition(topic, partition).set_offset(Offset::Offset(offset));
    }
    list
}
