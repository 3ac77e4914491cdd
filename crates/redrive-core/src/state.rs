//! What a record carries with it from hop to hop.

use std::borrow::Cow;

use crate::time::Timestamp;

/// How often a record was retried, under which policy and in which tier.
///
/// All of it is read from the record's headers and written to them again: there is no other store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetryState<'a> {
    /// Publishes because of a failure, all in all.
    pub overall: u32,
    /// The identifier of the policy that caused the last one. None where the counts come from a
    /// format that knows no policies: then they count for whichever policy is resolved.
    pub policy: Option<Cow<'a, str>>,
    /// Publishes under that identifier, since it last changed.
    pub policy_attempts: u32,
    /// The tier that the record was last published to, from 0.
    pub tier: Option<u32>,
    /// Publishes to that tier, since it last changed.
    pub tier_attempts: u32,
    /// When the record failed for the first time.
    pub first_failed_at: Option<Timestamp>,
}

impl RetryState<'_> {
    /// Whether the last publish was under this identifier.
    pub fn is_under(&self, identifier: &str) -> bool {
        match &self.policy {
            Some(policy) => policy == identifier,
            None => self.overall > 0,
        }
    }

    /// Publishes under this identifier since it last changed.
    pub fn attempts_under(&self, identifier: &str) -> u32 {
        if self.is_under(identifier) { self.policy_attempts } else { 0 }
    }
}

/// Where a record was produced: its identity, together with the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin<'a> {
    /// The source topic.
    pub topic: &'a str,
    /// The partition of it.
    pub partition: i32,
    /// The offset there.
    pub offset: i64,
}
