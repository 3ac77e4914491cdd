//! The dialect `spring`: what Spring Kafka's retryable topics write, in big-endian bytes.
//!
//! Spring adds a value of each `retry_topic-` header at each hop and reads the last; the highest is
//! the last there, too.

use super::number::{self, Field};
use super::{
    Due, Found, HeaderBlock, Input, MAX_DETAIL_BYTES, MAX_MESSAGE_BYTES, MAX_NAME_BYTES, Stamp,
    Stop,
};
use crate::state::{Origin, RetryState};
use crate::time::Timestamp;

const ATTEMPTS: &str = "retry_topic-attempts";
const BACKOFF: &str = "retry_topic-backoff-timestamp";
const ORIGINAL_TIMESTAMP: &str = "retry_topic-original-timestamp";

/// The group has one name for both sets.
const GROUP: &str = "kafka_dlt-original-consumer-group";

/// Names of the original record and of the last exception, one set for the retry topics and one
/// more for the dead-letter topic.
struct Names {
    topic: &'static str,
    partition: &'static str,
    offset: &'static str,
    timestamp: &'static str,
    timestamp_type: &'static str,
    error: &'static str,
    message: &'static str,
    detail: &'static str,
    cause: &'static str,
    key_error: &'static str,
    key_message: &'static str,
    key_detail: &'static str,
}

const RETRY: Names = Names {
    topic: "kafka_original-topic",
    partition: "kafka_original-partition",
    offset: "kafka_original-offset",
    timestamp: "kafka_original-timestamp",
    timestamp_type: "kafka_original-timestamp-type",
    error: "kafka_exception-fqcn",
    message: "kafka_exception-message",
    detail: "kafka_exception-stacktrace",
    cause: "kafka_exception-cause-fqcn",
    key_error: "kafka_key-exception-fqcn",
    key_message: "kafka_key-exception-message",
    key_detail: "kafka_key-exception-stacktrace",
};

const DEAD_LETTER: Names = Names {
    topic: "kafka_dlt-original-topic",
    partition: "kafka_dlt-original-partition",
    offset: "kafka_dlt-original-offset",
    timestamp: "kafka_dlt-original-timestamp",
    timestamp_type: "kafka_dlt-original-timestamp-type",
    error: "kafka_dlt-exception-fqcn",
    message: "kafka_dlt-exception-message",
    detail: "kafka_dlt-exception-stacktrace",
    cause: "kafka_dlt-exception-cause-fqcn",
    key_error: "kafka_dlt-key-exception-fqcn",
    key_message: "kafka_dlt-key-exception-message",
    key_detail: "kafka_dlt-key-exception-stacktrace",
};

pub(super) const NAMES: [&str; 14] = [
    ATTEMPTS,
    BACKOFF,
    ORIGINAL_TIMESTAMP,
    GROUP,
    RETRY.topic,
    RETRY.partition,
    RETRY.offset,
    RETRY.timestamp,
    RETRY.timestamp_type,
    DEAD_LETTER.topic,
    DEAD_LETTER.partition,
    DEAD_LETTER.offset,
    DEAD_LETTER.timestamp,
    DEAD_LETTER.timestamp_type,
];

/// The cause and what is about keys are Spring's own: they go with the failure that they are about.
pub(super) const NAMES_OF_FAILURE: [&str; 14] = [
    RETRY.error,
    RETRY.message,
    RETRY.detail,
    RETRY.cause,
    RETRY.key_error,
    RETRY.key_message,
    RETRY.key_detail,
    DEAD_LETTER.error,
    DEAD_LETTER.message,
    DEAD_LETTER.detail,
    DEAD_LETTER.cause,
    DEAD_LETTER.key_error,
    DEAD_LETTER.key_message,
    DEAD_LETTER.key_detail,
];

pub(super) fn read<'a>(input: &Input<'_, 'a>) -> Option<Found<'a>> {
    let deliveries = Field::read(input.headers, ATTEMPTS, deliveries);
    let backoff = Field::read(input.headers, BACKOFF, number::big_endian_time);
    if deliveries.is_absent() && backoff.is_absent() {
        return None;
    }
    let overall = deliveries.get().map_or(0, |it| it - 1);
    Some(Found {
        state: RetryState {
            overall,
            policy_attempts: overall,
            tier_attempts: overall,
            ..RetryState::default()
        },
        due: Due::from_field(backoff, BACKOFF),
        topic: number::text(input.headers, RETRY.topic),
        origin: origin(input),
        produced_at: produced_at(input),
        unreadable: (deliveries == Field::Unreadable).then_some(ATTEMPTS),
    })
}

/// The number of the delivery that the topic is to make: 2 on the first retry. Four bytes, or one
/// from old writers.
fn deliveries(bytes: &[u8]) -> Option<u32> {
    let number = match *bytes {
        [byte] => u32::from(byte),
        [a, b, c, d] => u32::from_be_bytes([a, b, c, d]),
        _ => return None,
    };
    (1..=i32::MAX.unsigned_abs()).contains(&number).then_some(number)
}

fn origin<'a>(input: &Input<'_, 'a>) -> Option<Origin<'a>> {
    let headers = input.headers;
    let number = |name, bytes: usize| {
        Field::read_same(headers, name, |it| {
            (it.len() == bytes).then(|| number::big_endian(it)).flatten().filter(|it| *it >= 0)
        })
    };
    Some(Origin {
        topic: number::same_text(headers, RETRY.topic)?,
        partition: i32::try_from(number(RETRY.partition, 4).get()?).ok()?,
        offset: number(RETRY.offset, 8).get()?,
    })
}

fn produced_at(input: &Input<'_, '_>) -> Option<Timestamp> {
    let read = |name| Field::read(input.headers, name, number::big_endian_time).get();
    read(ORIGINAL_TIMESTAMP).or_else(|| read(RETRY.timestamp))
}

pub(super) fn write(block: &mut HeaderBlock<'_>, stamp: &Stamp<'_>) {
    let deliveries = stamp.state.overall.saturating_add(1).min(i32::MAX.unsigned_abs());
    block.bytes(ATTEMPTS, &deliveries.to_be_bytes());
    let backoff = match stamp.stop {
        Stop::Tier { due, .. } => due,
        Stop::DeadLetter { .. } => stamp.now,
    };
    number::to_big_endian(backoff.as_millis(), |bytes| block.bytes(BACKOFF, bytes));
    if let Some(timestamp) = stamp.produced_at() {
        let millis = timestamp.as_millis();
        number::to_big_endian(millis, |bytes| block.bytes(ORIGINAL_TIMESTAMP, bytes));
    }
    block.text(GROUP, stamp.group);
    write_set(block, stamp, &RETRY);
    if matches!(stamp.stop, Stop::DeadLetter { .. }) {
        write_set(block, stamp, &DEAD_LETTER);
    }
}

fn write_set(block: &mut HeaderBlock<'_>, stamp: &Stamp<'_>, names: &Names) {
    let origin = stamp.origin;
    block.text(names.topic, origin.topic);
    block.bytes(names.partition, &origin.partition.to_be_bytes());
    block.bytes(names.offset, &origin.offset.to_be_bytes());
    if let Some(timestamp) = stamp.produced_at() {
        block.bytes(names.timestamp, &timestamp.as_millis().to_be_bytes());
        block.text(names.timestamp_type, "CreateTime");
    }
    if let Some(failed) = &stamp.failure {
        let failure = failed.failure;
        block.text_cut(names.error, failure.error_type.as_deref(), MAX_NAME_BYTES);
        block.text_cut(names.message, failure.message.as_deref(), MAX_MESSAGE_BYTES);
        block.text_cut(names.detail, failure.detail.as_deref(), MAX_DETAIL_BYTES);
    }
}
