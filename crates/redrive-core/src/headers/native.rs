//! Redrive's own headers: plain text, replaced at each hop and never piled up.

use std::borrow::Cow;
use std::fmt;

use super::number::{self, Field};
use super::{
    Dialect, Due, Header, HeaderBlock, MAX_DETAIL_BYTES, MAX_MESSAGE_BYTES, MAX_NAME_BYTES, Owner,
    Reading, Stamp, Stop,
};
use crate::policy::Identifier;
use crate::state::{Origin, RetryState};

/// The version of the format.
pub const VERSION: &str = "1";

const PREFIX: &str = "redrive-";

const VERSION_NAME: &str = "redrive-version";
const GROUP: &str = "redrive-group";
const ORIGIN_TOPIC: &str = "redrive-origin-topic";
const ORIGIN_PARTITION: &str = "redrive-origin-partition";
const ORIGIN_OFFSET: &str = "redrive-origin-offset";
const ORIGIN_TIMESTAMP: &str = "redrive-origin-timestamp";
const DUE: &str = "redrive-due";
const OVERALL: &str = "redrive-overall-attempts";
const POLICY: &str = "redrive-policy";
const POLICY_ATTEMPTS: &str = "redrive-policy-attempts";
const TIER: &str = "redrive-tier";
const TIER_ATTEMPTS: &str = "redrive-tier-attempts";
const HOP: &str = "redrive-hop";
const EPOCH: &str = "redrive-epoch";
const REDRIVEN: &str = "redrive-redriven";
const FIRST_FAILED_AT: &str = "redrive-first-failed-at";
const FAILED_AT: &str = "redrive-failed-at";
const ERROR: &str = "redrive-error";
const ERROR_MESSAGE: &str = "redrive-error-message";
const ERROR_DETAIL: &str = "redrive-error-detail";
const STATUS: &str = "redrive-status";
const RESPONSE: &str = "redrive-response";
const REASON: &str = "redrive-reason";
const FOLLOWS: &str = "redrive-follows";

/// What a hop always says anew.
const ALWAYS: [&str; 18] = [
    VERSION_NAME,
    GROUP,
    ORIGIN_TOPIC,
    ORIGIN_PARTITION,
    ORIGIN_OFFSET,
    ORIGIN_TIMESTAMP,
    DUE,
    OVERALL,
    POLICY,
    POLICY_ATTEMPTS,
    TIER,
    TIER_ATTEMPTS,
    HOP,
    EPOCH,
    REDRIVEN,
    FIRST_FAILED_AT,
    REASON,
    FOLLOWS,
];

/// What a hop says anew if a failure caused it.
const OF_FAILURE: [&str; 6] = [FAILED_AT, ERROR, ERROR_MESSAGE, ERROR_DETAIL, STATUS, RESPONSE];

/// Whether Redrive itself writes a header of this name.
pub(super) fn is_native(name: &str) -> bool {
    ALWAYS.contains(&name) || OF_FAILURE.contains(&name)
}

/// Whether the hop has its own word for this header.
pub(super) fn is_replaced(name: &str, stamp: &Stamp<'_>) -> bool {
    name.starts_with(PREFIX)
        && (ALWAYS.contains(&name) || (stamp.failure.is_some() && OF_FAILURE.contains(&name)))
}

/// Reads Redrive's own headers, if the record has any that say where it stands.
pub(super) fn read<'a>(headers: &[Header<'a>], group: &str) -> Option<Reading<'a>> {
    let mut raw = Raw::default();
    let mut found = false;
    for header in headers {
        if header.name.starts_with(PREFIX) {
            found |= raw.take(*header);
        }
    }
    found.then(|| raw.into_reading(group))
}

/// The headers as they stand, each read on its own.
struct Raw<'a> {
    version: Field<u32>,
    group: Option<&'a [u8]>,
    topic: Field<&'a str>,
    partition: Field<i32>,
    offset: Field<i64>,
    timestamp: Field<crate::Timestamp>,
    due: Field<crate::Timestamp>,
    overall: Field<u32>,
    policy: Option<&'a str>,
    policy_attempts: Field<u32>,
    tier: Field<u32>,
    tier_attempts: Field<u32>,
    hop: Field<u32>,
    epoch: Field<u64>,
    redriven: Field<u32>,
    first_failed_at: Field<crate::Timestamp>,
    unreadable_text: Option<&'static str>,
}

impl Default for Raw<'_> {
    fn default() -> Self {
        Self {
            version: Field::Absent,
            group: None,
            topic: Field::Absent,
            partition: Field::Absent,
            offset: Field::Absent,
            timestamp: Field::Absent,
            due: Field::Absent,
            overall: Field::Absent,
            policy: None,
            policy_attempts: Field::Absent,
            tier: Field::Absent,
            tier_attempts: Field::Absent,
            hop: Field::Absent,
            epoch: Field::Absent,
            redriven: Field::Absent,
            first_failed_at: Field::Absent,
            unreadable_text: None,
        }
    }
}

impl<'a> Raw<'a> {
    /// Whether the header is one that says where the record stands.
    fn take(&mut self, header: Header<'a>) -> bool {
        let value = header.value;
        match header.name {
            VERSION_NAME => self.version.add(value.and_then(number::whole)),
            // A header without a value names nobody.
            GROUP => self.group = value.or(self.group),
            ORIGIN_TOPIC => self.topic.add_same(value.and_then(|it| std::str::from_utf8(it).ok())),
            ORIGIN_PARTITION => self.partition.add_same(value.and_then(number::whole)),
            ORIGIN_OFFSET => self.offset.add_same(value.and_then(number::whole)),
            ORIGIN_TIMESTAMP => self.timestamp.add(value.and_then(number::millis)),
            DUE => self.due.add(value.and_then(number::millis)),
            OVERALL => self.overall.add(value.and_then(number::count)),
            POLICY => self.policy = self.text(POLICY, value),
            POLICY_ATTEMPTS => self.policy_attempts.add(value.and_then(number::count)),
            TIER => self.tier.add(value.and_then(number::count)),
            TIER_ATTEMPTS => self.tier_attempts.add(value.and_then(number::count)),
            HOP => self.hop.add(value.and_then(number::count)),
            EPOCH => self.epoch.add(value.and_then(number::whole)),
            REDRIVEN => self.redriven.add(value.and_then(number::count)),
            FIRST_FAILED_AT => self.first_failed_at.add(value.and_then(number::millis)),
            _ => return false,
        }
        true
    }

    fn text(&mut self, name: &'static str, value: Option<&'a [u8]>) -> Option<&'a str> {
        let text = value.and_then(|bytes| std::str::from_utf8(bytes).ok());
        if text.is_none() {
            self.unreadable_text = Some(name);
        }
        text
    }

    fn into_reading(self, group: &str) -> Reading<'a> {
        let owner = match self.group {
            Some(named) if named != group.as_bytes() => Owner::AnotherGroup,
            _ => Owner::Us,
        };
        // A newer format may say when the record is due in a way that is not known here.
        let known_version = match self.version {
            Field::Absent => true,
            Field::Is(version) => version == 1,
            Field::Unreadable => false,
        };
        let due = match self.due {
            _ if !known_version => Due::Unreadable(VERSION_NAME),
            Field::Absent => Due::Now,
            Field::Is(time) => Due::At(time),
            Field::Unreadable => Due::Unreadable(DUE),
        };
        let origin = match (self.topic.get(), self.partition.get(), self.offset.get()) {
            (Some(topic), Some(partition), Some(offset)) => {
                Some(Origin { topic, partition, offset })
            }
            _ => None,
        };
        Reading {
            due,
            is_dated: matches!(due, Due::At(_)),
            origin,
            produced_at: self.timestamp.get(),
            owner,
            unreadable: self.unreadable(due),
            state: RetryState {
                overall: self.overall.get().unwrap_or(0),
                policy: self.policy.map(Identifier::cut).map(Cow::Borrowed),
                policy_attempts: self.policy_attempts.get().unwrap_or(0),
                tier: self.tier.get(),
                tier_attempts: self.tier_attempts.get().unwrap_or(0),
                first_failed_at: self.first_failed_at.get(),
            },
            hop: self.hop.get().unwrap_or(0),
            epoch: self.epoch.get(),
            redriven: self.redriven.get().unwrap_or(0),
            format: Some(Dialect::Native),
        }
    }

    /// The first header that could not be read.
    fn unreadable(&self, due: Due) -> Option<&'static str> {
        if let Due::Unreadable(name) = due {
            return Some(name);
        }
        let spoilt = [
            (ORIGIN_TOPIC, self.topic == Field::Unreadable),
            (ORIGIN_PARTITION, self.partition == Field::Unreadable),
            (ORIGIN_OFFSET, self.offset == Field::Unreadable),
            (ORIGIN_TIMESTAMP, self.timestamp == Field::Unreadable),
            (OVERALL, self.overall == Field::Unreadable),
            (POLICY_ATTEMPTS, self.policy_attempts == Field::Unreadable),
            (TIER, self.tier == Field::Unreadable),
            (TIER_ATTEMPTS, self.tier_attempts == Field::Unreadable),
            (HOP, self.hop == Field::Unreadable),
            (EPOCH, self.epoch == Field::Unreadable),
            (REDRIVEN, self.redriven == Field::Unreadable),
            (FIRST_FAILED_AT, self.first_failed_at == Field::Unreadable),
        ];
        let number = spoilt.iter().find(|(_, is_spoilt)| *is_spoilt).map(|(name, _)| *name);
        self.unreadable_text.or(number)
    }
}

pub(super) fn write(block: &mut HeaderBlock<'_>, stamp: &Stamp<'_>) {
    let state = stamp.state;
    block.text(VERSION_NAME, VERSION);
    block.text(GROUP, stamp.group);
    block.text(ORIGIN_TOPIC, stamp.origin.topic);
    block.display(ORIGIN_PARTITION, stamp.origin.partition);
    block.display(ORIGIN_OFFSET, stamp.origin.offset);
    if let Some(timestamp) = stamp.produced_at() {
        block.display(ORIGIN_TIMESTAMP, timestamp);
    }
    if let Stop::Tier { due, .. } = stamp.stop {
        block.display(DUE, due);
    }
    block.display(OVERALL, state.overall);
    block.text_cut(POLICY, state.policy.as_deref(), Identifier::MAX_BYTES);
    if state.policy.is_some() || state.policy_attempts > 0 {
        block.display(POLICY_ATTEMPTS, state.policy_attempts);
    }
    if let Some(tier) = state.tier {
        block.display(TIER, tier);
        block.display(TIER_ATTEMPTS, state.tier_attempts);
    }
    block.display(HOP, stamp.hop);
    if let (Some(epoch), Stop::Tier { .. }) = (stamp.epoch, stamp.stop) {
        block.display(EPOCH, epoch);
    }
    if stamp.redriven > 0 {
        block.display(REDRIVEN, stamp.redriven);
    }
    if let Some(first) = state.first_failed_at {
        block.display(FIRST_FAILED_AT, first);
    }
    if let Some(failed) = &stamp.failure {
        block.display(FAILED_AT, failed.at);
        let failure = failed.failure;
        let name = failure.error_type.as_deref().or(failure.kind.as_ref().map(|it| it.as_str()));
        block.text_cut(ERROR, name, MAX_NAME_BYTES);
        block.text_cut(ERROR_MESSAGE, failure.message.as_deref(), MAX_MESSAGE_BYTES);
        block.text_cut(ERROR_DETAIL, failure.detail.as_deref(), MAX_DETAIL_BYTES);
        if let Some(status) = failure.status {
            block.display(STATUS, status);
        }
        block.text_cut(RESPONSE, failure.response.as_deref(), MAX_MESSAGE_BYTES);
    }
    if let Stop::DeadLetter { reason, follows } = stamp.stop {
        block.text(REASON, reason.as_str());
        if let Some(head) = follows {
            block.display(FOLLOWS, Place(head));
        }
    }
}

/// `topic/partition/offset`: a topic's name has no slash in it.
struct Place<'a>(Origin<'a>);

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.0.topic, self.0.partition, self.0.offset)
    }
}
