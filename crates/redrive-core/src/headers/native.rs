//! Redrive's own headers: plain text, replaced at each hop and never piled up.

use std::borrow::Cow;
use std::fmt;

use super::name::Name;
use super::number::{self, Field};
use super::{
    Dialect, Due, Header, HeaderBlock, MAX_DETAIL_BYTES, MAX_MESSAGE_BYTES, MAX_NAME_BYTES, Owner,
    Reading, Stamp, Stop,
};
use crate::policy::Identifier;
use crate::state::{Origin, RetryState};

/// The version of the format.
pub const VERSION: &str = "1";

/// Whether Redrive itself writes a header of this name.
pub(super) fn is_native(name: &str) -> bool {
    Name::of(name.as_bytes()).is_some()
}

/// Whether the hop has its own word for this header.
pub(super) fn is_replaced(name: &str, stamp: &Stamp<'_>) -> bool {
    Name::of(name.as_bytes()).is_some_and(|it| stamp.failure.is_some() || !it.is_of_failure())
}

/// Reads Redrive's own headers, if the record has any that say where it stands.
pub(super) fn read<'a>(headers: &[Header<'a>], group: &str) -> Option<Reading<'a>> {
    let mut raw = Raw::default();
    let mut found = false;
    for header in headers {
        if let Some(name) = Name::of(header.name.as_bytes()) {
            found |= raw.take(name, header.value);
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
    fn take(&mut self, name: Name, value: Option<&'a [u8]>) -> bool {
        match name {
            Name::Version => self.version.add(value.and_then(number::whole)),
            // A header without a value names nobody.
            Name::Group => self.group = value.or(self.group),
            Name::OriginTopic => {
                self.topic.add_same(value.and_then(|it| std::str::from_utf8(it).ok()))
            }
            Name::OriginPartition => self.partition.add_same(value.and_then(number::whole)),
            Name::OriginOffset => self.offset.add_same(value.and_then(number::whole)),
            Name::OriginTimestamp => self.timestamp.add(value.and_then(number::millis)),
            Name::Due => self.due.add(value.and_then(number::millis)),
            Name::Overall => self.overall.add(value.and_then(number::count)),
            Name::Policy => self.policy = self.text(Name::Policy.as_str(), value),
            Name::PolicyAttempts => self.policy_attempts.add(value.and_then(number::count)),
            Name::Tier => self.tier.add(value.and_then(number::count)),
            Name::TierAttempts => self.tier_attempts.add(value.and_then(number::count)),
            Name::Hop => self.hop.add(value.and_then(number::count)),
            Name::Epoch => self.epoch.add(value.and_then(number::whole)),
            Name::Redriven => self.redriven.add(value.and_then(number::count)),
            Name::FirstFailedAt => self.first_failed_at.add(value.and_then(number::millis)),
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
            _ if !known_version => Due::Unreadable(Name::Version.as_str()),
            Field::Absent => Due::Now,
            Field::Is(time) => Due::At(time),
            Field::Unreadable => Due::Unreadable(Name::Due.as_str()),
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
            (Name::OriginTopic, self.topic == Field::Unreadable),
            (Name::OriginPartition, self.partition == Field::Unreadable),
            (Name::OriginOffset, self.offset == Field::Unreadable),
            (Name::OriginTimestamp, self.timestamp == Field::Unreadable),
            (Name::Overall, self.overall == Field::Unreadable),
            (Name::PolicyAttempts, self.policy_attempts == Field::Unreadable),
            (Name::Tier, self.tier == Field::Unreadable),
            (Name::TierAttempts, self.tier_attempts == Field::Unreadable),
            (Name::Hop, self.hop == Field::Unreadable),
            (Name::Epoch, self.epoch == Field::Unreadable),
            (Name::Redriven, self.redriven == Field::Unreadable),
            (Name::FirstFailedAt, self.first_failed_at == Field::Unreadable),
        ];
        let number = spoilt.iter().find(|(_, is_spoilt)| *is_spoilt).map(|(name, _)| name.as_str());
        self.unreadable_text.or(number)
    }
}

pub(super) fn write(block: &mut HeaderBlock<'_>, stamp: &Stamp<'_>) {
    let state = stamp.state;
    block.text(Name::Version, VERSION);
    block.text(Name::Group, stamp.group);
    block.text(Name::OriginTopic, stamp.origin.topic);
    block.number(Name::OriginPartition, stamp.origin.partition);
    block.number(Name::OriginOffset, stamp.origin.offset);
    if let Some(timestamp) = stamp.produced_at() {
        block.number(Name::OriginTimestamp, timestamp.as_millis());
    }
    if let Stop::Tier { due, .. } = stamp.stop {
        block.number(Name::Due, due.as_millis());
    }
    block.number(Name::Overall, state.overall);
    block.text_cut(Name::Policy, state.policy.as_deref(), Identifier::MAX_BYTES);
    if state.policy.is_some() || state.policy_attempts > 0 {
        block.number(Name::PolicyAttempts, state.policy_attempts);
    }
    if let Some(tier) = state.tier {
        block.number(Name::Tier, tier);
        block.number(Name::TierAttempts, state.tier_attempts);
    }
    block.number(Name::Hop, stamp.hop);
    if let (Some(epoch), Stop::Tier { .. }) = (stamp.epoch, stamp.stop) {
        block.number(Name::Epoch, epoch);
    }
    if stamp.redriven > 0 {
        block.number(Name::Redriven, stamp.redriven);
    }
    if let Some(first) = state.first_failed_at {
        block.number(Name::FirstFailedAt, first.as_millis());
    }
    if let Some(failed) = &stamp.failure {
        block.number(Name::FailedAt, failed.at.as_millis());
        let failure = failed.failure;
        let name = failure.error_type.as_deref().or(failure.kind.as_ref().map(|it| it.as_str()));
        block.text_cut(Name::Error, name, MAX_NAME_BYTES);
        block.text_cut(Name::ErrorMessage, failure.message.as_deref(), MAX_MESSAGE_BYTES);
        block.text_cut(Name::ErrorDetail, failure.detail.as_deref(), MAX_DETAIL_BYTES);
        if let Some(status) = failure.status {
            block.number(Name::Status, status);
        }
        block.text_cut(Name::Response, failure.response.as_deref(), MAX_MESSAGE_BYTES);
    }
    if let Stop::DeadLetter { reason, follows } = stamp.stop {
        block.text(Name::Reason, reason.as_str());
        if let Some(head) = follows {
            block.display(Name::Follows, Place(head));
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
