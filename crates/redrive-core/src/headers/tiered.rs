//! The dialect `tiered`: the index of a retry topic, counts, and the time of the last retry.
//!
//! A reader waits from that time for as long as the tier's delay. So where a policy brought a delay
//! of its own, the time is written such that the sum is when the record is due.

use super::iso8601::{self, Iso8601};
use super::number::{self, Field};
use super::{Due, Found, HeaderBlock, Input, Place, Stamp, Stop};
use crate::state::RetryState;

const INDEX: &str = "retry-topic-index";
const ATTEMPTS_IN_TOPIC: &str = "retry-attempts-in-topic";
const TOTAL: &str = "retry-total-attempts";
const TIMESTAMP: &str = "retry-timestamp";

pub(super) const NAMES: [&str; 4] = [INDEX, ATTEMPTS_IN_TOPIC, TOTAL, TIMESTAMP];

pub(super) fn read<'a>(input: &Input<'_, 'a>) -> Option<Found<'a>> {
    let index = Field::read(input.headers, INDEX, number::count);
    let in_topic = Field::read(input.headers, ATTEMPTS_IN_TOPIC, number::count);
    let total = Field::read(input.headers, TOTAL, number::count);
    let time = Field::read(input.headers, TIMESTAMP, iso8601::parse);
    if index.is_absent() && in_topic.is_absent() && total.is_absent() && time.is_absent() {
        return None;
    }
    let due = match (time, input.context.place) {
        (Field::Is(time), Place::Tier { delay: Some(delay), .. }) => Due::At(time.after(delay)),
        // Without the time of the last retry the record's own has to do.
        (Field::Absent, Place::Tier { delay: Some(delay), .. }) => {
            Due::At(input.context.timestamp.after(delay))
        }
        (time, _) => Due::from_field(time, TIMESTAMP),
    };
    let overall = total.get().or(in_topic.get()).unwrap_or(0);
    let unreadable = [(INDEX, index), (ATTEMPTS_IN_TOPIC, in_topic), (TOTAL, total)];
    Some(Found {
        state: RetryState {
            overall,
            policy_attempts: overall,
            tier: index.get(),
            tier_attempts: in_topic.get().unwrap_or(0),
            ..RetryState::default()
        },
        due,
        unreadable: unreadable.iter().find(|it| it.1 == Field::Unreadable).map(|it| it.0),
        ..Found::default()
    })
}

pub(super) fn write(block: &mut HeaderBlock<'_>, stamp: &Stamp<'_>) {
    block.display(INDEX, stamp.state.tier.unwrap_or(0));
    block.display(ATTEMPTS_IN_TOPIC, stamp.state.tier_attempts);
    block.display(TOTAL, stamp.state.overall);
    let time = match stamp.stop {
        Stop::Tier { due, delay, .. } => due.before(delay.unwrap_or_default()),
        Stop::DeadLetter { .. } => stamp.now,
    };
    block.display(TIMESTAMP, Iso8601(time));
}
