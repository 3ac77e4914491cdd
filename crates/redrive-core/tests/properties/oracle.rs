//! docs/policies.md, "Counting", "In-memory runs" and "Where to", said once more in the plainest way,
//! without time: for failures that ask for nothing, in flows without a cap on time.

use redrive_core::{Flow, Policy};

use crate::journey::Decision;

#[derive(Debug, PartialEq)]
pub enum Expected {
    RunAgain,
    Publish { policy_attempts: u32, overall: u32, tier: u32, tier_attempts: u32 },
    End,
}

/// What is to come of the failed run that the decision is about.
pub fn expected(flow: &Flow, policy: &Policy, id: &str, decision: &Decision) -> Expected {
    let state = &decision.before;
    let same = state.policy.as_deref() == Some(id);
    let in_memory = policy.in_memory.as_ref().map_or(0, |it| it.attempts);
    if !same && decision.in_place < in_memory {
        return Expected::RunAgain;
    }
    let Some(delayed) = &policy.delayed else { return Expected::End };
    let p = if same { state.policy_attempts } else { 0 };
    let o = state.overall;
    if p >= delayed.attempts.unwrap_or(u32::MAX) || o >= flow.max_overall_attempts() {
        return Expected::End;
    }
    let tier = match &delayed.backoff {
        Some(backoff) => fitting(flow, backoff.nominal(p)),
        None => walked(flow, state.tier, state.tier_attempts),
    };
    let Some(tier) = tier else { return Expected::End };
    let tier_attempts = if state.tier == Some(tier) { state.tier_attempts + 1 } else { 1 };
    Expected::Publish { policy_attempts: p + 1, overall: o + 1, tier, tier_attempts }
}

/// The first tier that is long enough, else the longest.
fn fitting(flow: &Flow, delay: std::time::Duration) -> Option<u32> {
    let tiers = flow.strategy().tiers();
    let long_enough = tiers.iter().position(|it| it.delay.is_none_or(|it| it >= delay));
    let longest = tiers.iter().map(|it| it.delay).max()?;
    let at = long_enough.or_else(|| tiers.iter().position(|it| it.delay == longest))?;
    u32::try_from(at).ok()
}

/// The tier the record is in while it has attempts left, else the next.
fn walked(flow: &Flow, at: Option<u32>, taken: u32) -> Option<u32> {
    let tiers = flow.strategy().tiers();
    let next = match at {
        None => 0,
        Some(at) if tiers[at as usize].attempts.is_none_or(|it| taken < it) => at,
        Some(at) => at + 1,
    };
    (usize::try_from(next).ok()? < tiers.len()).then_some(next)
}
