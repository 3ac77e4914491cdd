//! What Kafka knows of partitions: what a group committed, and where logs begin and end.

#![expect(unsafe_code, reason = "the rdkafka crate panics on metadata that is not UTF-8")]

use std::ffi::{CStr, CString};
use std::ptr;
use std::slice;
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::bindings as sys;
use rdkafka::client::{Client, ClientContext};
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};
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

/// How many partitions a topic has. One that is not there has none.
pub(crate) fn partitions<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    limit: Duration,
) -> KafkaResult<i32> {
    let metadata = consumer.fetch_metadata(Some(topic), limit)?;
    let found = metadata.topics().iter().find(|it| it.name() == topic);
    Ok(found.map_or(0, |it| i32::try_from(it.partitions().len()).unwrap_or(i32::MAX)))
}

/// How many watermarks are asked for at the same time.
const AT_ONCE: usize = 8;

/// How long a leader is given to learn that it is one.
const AGAIN: Duration = Duration::from_millis(50);

/// What the consumer's group committed for these partitions, in their order.
pub(crate) fn committed<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    partitions: &[(&str, i32)],
    limit: Duration,
) -> KafkaResult<Vec<Committed>> {
    let list = consumer.committed_offsets(listed(partitions.iter().copied()), limit)?;
    for entry in list.elements() {
        entry.error()?;
    }
    Ok(entries(&list))
}

/// Everything that a group has committed, for whichever topics.
pub(crate) fn all_committed<C: ClientContext>(
    client: &Client<C>,
    group: &str,
    limit: Duration,
) -> KafkaResult<Vec<Committed>> {
    let Ok(group) = CString::new(group) else {
        return Ok(Vec::new());
    };
    let millis = i32::try_from(limit.as_millis()).unwrap_or(i32::MAX);
    // SAFETY: what is made is destroyed here; the result belongs to the event, and is read before that goes.
    unsafe {
        let queue = sys::rd_kafka_queue_new(client.native_ptr());
        let mut request = sys::rd_kafka_ListConsumerGroupOffsets_new(group.as_ptr(), ptr::null());
        sys::rd_kafka_ListConsumerGroupOffsets(
            client.native_ptr(),
            &raw mut request,
            1,
            ptr::null(),
            queue,
        );
        let event = sys::rd_kafka_queue_poll(queue, millis);
        let mut found = Vec::new();
        let mut code = RDKafkaRespErr::RD_KAFKA_RESP_ERR__TIMED_OUT;
        if !event.is_null() {
            code = sys::rd_kafka_event_error(event);
            let result = sys::rd_kafka_event_ListConsumerGroupOffsets_result(event);
            if !result.is_null() {
                let mut count = 0;
                let groups =
                    sys::rd_kafka_ListConsumerGroupOffsets_result_groups(result, &raw mut count);
                for index in 0..count {
                    let error = sys::rd_kafka_group_result_error(*groups.add(index));
                    if !error.is_null() {
                        code = sys::rd_kafka_error_code(error);
                    }
                    let list = sys::rd_kafka_group_result_partitions(*groups.add(index));
                    if !list.is_null() {
                        found.extend(raw_entries(&*list));
                    }
                }
            }
            sys::rd_kafka_event_destroy(event);
        }
        sys::rd_kafka_ListConsumerGroupOffsets_destroy(request);
        sys::rd_kafka_queue_destroy(queue);
        match code {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(found),
            code => Err(KafkaError::OffsetFetch(code.into())),
        }
    }
}

/// The entries of a list, with their metadata as it is.
fn entries(list: &TopicPartitionList) -> Vec<Committed> {
    // SAFETY: the list is alive and not changed.
    unsafe { raw_entries(&*list.ptr()) }
}

/// # Safety
///
/// The list is librdkafka's: it says how many entries there are and how long the metadata is, and ends each topic with a
/// zero.
unsafe fn raw_entries(raw: &sys::rd_kafka_topic_partition_list_t) -> Vec<Committed> {
    // SAFETY: the caller's promise.
    unsafe {
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
            part.iter().map(|it| marks(consumer, *it, limit)).collect()
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

/// The same of one partition. A leader that moves, or has just been told that it leads, is asked again.
pub(crate) fn marks<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    at: (&str, i32),
    limit: Duration,
) -> KafkaResult<(i64, i64)> {
    use RDKafkaErrorCode as Code;
    let until = Instant::now() + limit;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let answer = consumer.fetch_watermarks(at.0, at.1, left);
        let code = answer.as_ref().err().and_then(KafkaError::rdkafka_error_code);
        let moves = matches!(code, Some(Code::NotLeaderForPartition | Code::LeaderNotAvailable));
        if !moves || left < AGAIN {
            return answer;
        }
        thread::sleep(AGAIN);
    }
}

/// How long that may take at the most.
pub(crate) fn watermarks_take(partitions: usize, limit: Duration) -> Duration {
    limit.saturating_mul(u32::try_from(partitions.div_ceil(AT_ONCE)).unwrap_or(u32::MAX))
}

/// The offset behind the last record of a partition, as far as the consumer knows by what it fetched last. Nobody is asked.
pub(crate) fn known_end<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    topic: &str,
    partition: i32,
) -> Option<i64> {
    let topic = CString::new(topic).ok()?;
    let (mut low, mut high) = (-1, -1);
    // SAFETY: the client is alive, the name is a C string, and both numbers are ours.
    let error = unsafe {
        sys::rd_kafka_get_watermark_offsets(
            consumer.client().native_ptr(),
            topic.as_ptr(),
            partition,
            &raw mut low,
            &raw mut high,
        )
    };
    let is_known = error == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR && high >= 0;
    is_known.then_some(high)
}

/// A list of partitions.
pub(crate) fn listed<'a>(
    partitions: impl IntoIterator<Item = (&'a str, i32)>,
) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    for (topic, partition) in partitions {
        list.add_partition(topic, partition);
    }
    list
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
