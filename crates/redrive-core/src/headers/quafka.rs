//! The dialect `quafka`: counts by policy, the origin, the last exception and a delay in seconds,
//! all as text, with times as ISO 8601.

use std::borrow::Cow;
use std::fmt;
use std::time::Duration;

use super::iso8601::{self, Iso8601};
use super::number::{self, Field};
use super::{Due, Found, HeaderBlock, Input, MAX_DETAIL_BYTES, MAX_MESSAGE_BYTES, Stamp, Stop};
use crate::policy::Identifier;
use crate::state::{Origin, RetryState};

const ATTEMPTS: &str = "X-RetryAttempts";
const OVERALL: &str = "X-OverallRetryAttempts";
const POLICY: &str = "X-RetryPolicyIdentifier";
const ORIGINAL_TOPIC: &str = "X-OriginalTopic";
const ORIGINAL_PARTITION: &str = "X-OriginalPartition";
const ORIGINAL_OFFSET: &str = "X-OriginalOffset";
const ORIGINAL_PUBLISHED_AT: &str = "X-OriginalPublishedAt";
const FROM: &str = "X-FromTopicPartitionOffset";
const EXCEPTION: &str = "X-Exception";
const EXCEPTION_DETAIL: &str = "X-ExceptionDetail";
const EXCEPTION_AT: &str = "X-ExceptionAt";
const PUBLISHED_AT: &str = "X-PublishedAt";
const FORWARDING_TOPIC: &str = "X-ForwardingTopic";
const DELAY_SECONDS: &str = "X-DelaySeconds";
const DELAY_STRATEGY: &str = "X-DelayStrategy";
const DELAY_PUBLISHED_AT: &str = "X-DelayPublishedAt";

pub(super) const NAMES: [&str; 13] = [
    ATTEMPTS,
    OVERALL,
    POLICY,
    ORIGINAL_TOPIC,
    ORIGINAL_PARTITION,
    ORIGINAL_OFFSET,
    ORIGINAL_PUBLISHED_AT,
    FROM,
    PUBLISHED_AT,
    FORWARDING_TOPIC,
    DELAY_SECONDS,
    DELAY_STRATEGY,
    DELAY_PUBLISHED_AT,
];

pub(super) const NAMES_OF_FAILURE: [&str; 3] = [EXCEPTION, EXCEPTION_DETAIL, EXCEPTION_AT];

/// The strategy whose readers wait until a point in time, so that a restart does not begin the
/// wait again.
const UNTIL_TARGET_TIME: &str = "UNTIL_TARGET_TIME";
/// What Quafka reads where there is no identifier.
const NO_POLICY: &str = "N/A";

pub(super) fn read<'a>(input: &Input<'_, 'a>) -> Option<Found<'a>> {
    let headers = input.headers;
    let attempts = Field::read(headers, ATTEMPTS, number::count);
    let overall = Field::read(headers, OVERALL, number::count);
    let seconds = Field::read(headers, DELAY_SECONDS, number::whole::<u64>);
    if attempts.is_absent() && overall.is_absent() && seconds.is_absent() {
        return None;
    }
    let policy = number::text(headers, POLICY).filter(|it| !it.trim().is_empty());
    let overall_count = overall.get().or(attempts.get()).unwrap_or(0);
    Some(Found {
        state: RetryState {
            overall: overall_count,
            policy: policy.filter(|it| *it != NO_POLICY).map(Identifier::cut).map(Cow::Borrowed),
            policy_attempts: attempts.get().unwrap_or(overall_count),
            tier_attempts: attempts.get().unwrap_or(overall_count),
            ..RetryState::default()
        },
        due: due(input, seconds),
        topic: number::text(headers, ORIGINAL_TOPIC),
        origin: origin(input),
        produced_at: Field::read(headers, ORIGINAL_PUBLISHED_AT, iso8601::parse).get(),
        unreadable: [(ATTEMPTS, attempts), (OVERALL, overall)]
            .iter()
            .find(|it| it.1 == Field::Unreadable)
            .map(|it| it.0),
    })
}

/// The delay counts from when it was written, else from when the record was.
fn due(input: &Input<'_, '_>, seconds: Field<u64>) -> Due {
    let seconds = match seconds {
        Field::Absent | Field::Is(0) => return Due::Now,
        Field::Is(seconds) => seconds,
        Field::Unreadable => return Due::Unreadable(DELAY_SECONDS),
    };
    let written_at = match Field::read(input.headers, DELAY_PUBLISHED_AT, iso8601::parse) {
        Field::Is(time) => time,
        // A record without a timestamp of its own has -1.
        Field::Absent if input.context.timestamp.as_millis() >= 0 => input.context.timestamp,
        Field::Absent => return Due::Unreadable(DELAY_SECONDS),
        Field::Unreadable => return Due::Unreadable(DELAY_PUBLISHED_AT),
    };
    let delay = Duration::from_secs(seconds);
    if delay > crate::MAX_DELAY {
        return Due::Unreadable(DELAY_SECONDS);
    }
    Due::At(written_at.after(delay))
}

fn origin<'a>(input: &Input<'_, 'a>) -> Option<Origin<'a>> {
    let headers = input.headers;
    Some(Origin {
        topic: number::same_text(headers, ORIGINAL_TOPIC)?,
        partition: Field::read_same(headers, ORIGINAL_PARTITION, number::whole).get()?,
        offset: Field::read_same(headers, ORIGINAL_OFFSET, number::whole).get()?,
    })
}

pub(super) fn write(block: &mut HeaderBlock<'_>, stamp: &Stamp<'_>) {
    let state = stamp.state;
    if state.overall > 0 {
        block.text_cut(POLICY, state.policy.as_deref(), Identifier::MAX_BYTES);
        block.display(ATTEMPTS, state.policy_attempts);
        block.display(OVERALL, state.overall);
    }
    block.text(ORIGINAL_TOPIC, stamp.origin.topic);
    block.display(ORIGINAL_PARTITION, stamp.origin.partition);
    block.display(ORIGINAL_OFFSET, stamp.origin.offset);
    if let Some(timestamp) = stamp.produced_at() {
        block.display(ORIGINAL_PUBLISHED_AT, Iso8601(timestamp));
    }
    block.display(FROM, From(stamp.from));
    if let Some(failed) = &stamp.failure {
        let failure = failed.failure;
        let short = failure.message.as_deref().or(failure.error_type.as_deref());
        let whole = failure.detail.as_deref().or(short);
        block.text_cut(EXCEPTION, whole, MAX_DETAIL_BYTES);
        block.text_cut(EXCEPTION_DETAIL, short, MAX_MESSAGE_BYTES);
        block.display(EXCEPTION_AT, Iso8601(failed.at));
    }
    block.display(PUBLISHED_AT, Iso8601(stamp.now));
    if let Stop::Tier { due, forward_to, .. } = stamp.stop {
        if let Some(topic) = forward_to {
            block.text(FORWARDING_TOPIC, topic);
        }
        let delay = due.since(stamp.now);
        if !delay.is_zero() {
            block.display(DELAY_SECONDS, delay.as_millis().div_ceil(1000));
            block.text(DELAY_STRATEGY, UNTIL_TARGET_TIME);
            block.display(DELAY_PUBLISHED_AT, Iso8601(stamp.now));
        }
    }
}

/// `orders [3] @42`.
struct From<'a>((&'a str, i32, i64));

impl fmt::Display for From<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (topic, partition, offset) = self.0;
        write!(f, "{topic} [{partition}] @{offset}")
    }
}
