//! The dialect `x`: a count, a time to run and the last error, in `x-` headers.

use super::number::{self, Field};
use super::{Due, Found, HeaderBlock, Input, MAX_MESSAGE_BYTES, MAX_NAME_BYTES, Stamp, Stop};
use crate::state::RetryState;

const ATTEMPT: &str = "x-retry-attempt";
const PROCESS_AFTER: &str = "x-process-after";
const ORIGINAL_TOPIC: &str = "x-original-topic";
const FIRST_ATTEMPT: &str = "x-first-attempt-timestamp";
const ERROR_TYPE: &str = "x-last-error-type";
const ERROR_MESSAGE: &str = "x-last-error-message";
const STATUS: &str = "x-api-status-code";
const RESPONSE: &str = "x-api-response";

pub(super) const NAMES: [&str; 4] = [ATTEMPT, PROCESS_AFTER, ORIGINAL_TOPIC, FIRST_ATTEMPT];
pub(super) const NAMES_OF_FAILURE: [&str; 4] = [ERROR_TYPE, ERROR_MESSAGE, STATUS, RESPONSE];

pub(super) fn read<'a>(input: &Input<'_, 'a>) -> Option<Found<'a>> {
    let attempt = Field::read(input.headers, ATTEMPT, number::count);
    let process_after = Field::read(input.headers, PROCESS_AFTER, number::seconds);
    if attempt.is_absent() && process_after.is_absent() {
        return None;
    }
    let overall = attempt.get().unwrap_or(0);
    let first = Field::read(input.headers, FIRST_ATTEMPT, number::seconds);
    Some(Found {
        state: RetryState {
            overall,
            policy_attempts: overall,
            tier_attempts: overall,
            first_failed_at: first.get(),
            ..RetryState::default()
        },
        due: Due::from_field(process_after, PROCESS_AFTER),
        topic: number::text(input.headers, ORIGINAL_TOPIC),
        unreadable: (attempt == Field::Unreadable).then_some(ATTEMPT),
        ..Found::default()
    })
}

pub(super) fn write(block: &mut HeaderBlock<'_>, stamp: &Stamp<'_>) {
    block.display(ATTEMPT, stamp.state.overall);
    if let Stop::Tier { due, .. } = stamp.stop {
        block.display(PROCESS_AFTER, number::to_seconds(due));
    }
    block.text(ORIGINAL_TOPIC, stamp.origin.topic);
    if let Some(first) = stamp.state.first_failed_at {
        block.display(FIRST_ATTEMPT, first.as_millis().div_euclid(1000));
    }
    if let Some(failed) = &stamp.failure {
        let failure = failed.failure;
        block.text_cut(ERROR_TYPE, failure.error_type.as_deref(), MAX_NAME_BYTES);
        block.text_cut(ERROR_MESSAGE, failure.message.as_deref(), MAX_MESSAGE_BYTES);
        if let Some(status) = failure.status {
            block.display(STATUS, status);
        }
        block.text_cut(RESPONSE, failure.response.as_deref(), MAX_MESSAGE_BYTES);
    }
}
