//! What happens to a record that fails every time.
//!
//! The plan asks [`Flow::decide`] itself, delivery after delivery, with the longest and the
//! shortest delays that could be drawn. So it cannot tell anything else than what will happen.

use std::time::Duration;

use crate::backoff::Draw;
use crate::failure::Failure;
use crate::flow::Flow;
use crate::rule::RecordView;
use crate::state::RetryState;
use crate::time::Timestamp;
use crate::verdict::{Action, Delivery, InPlace, Incident, Reason};

/// A span of time of which only the bounds are known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The least it can be.
    pub min: Duration,
    /// The most it can be.
    pub max: Duration,
}

impl Span {
    /// Goes on by a wait. What waits is due at a whole millisecond, rounded up.
    fn add(&mut self, other: Span) {
        self.min = rounded_up(self.min.saturating_add(other.min));
        self.max = rounded_up(self.max.saturating_add(other.max));
    }
}

/// One delivery of the record, or one move by a relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The topic it is taken from.
    pub from: String,
    /// The identifier that was resolved, none where the failure's class decided.
    pub policy: Option<String>,
    /// How often the handler is called; 0 for a relay.
    pub runs: u32,
    /// What happens after that.
    pub then: StepEnd,
    /// Where it goes.
    pub to: Option<String>,
    /// Publishes to that tier with this one.
    pub attempt_in_tier: Option<u32>,
    /// Publishes under that policy with this one.
    pub policy_attempt: u32,
    /// Publishes overall with this one.
    pub overall_attempt: u32,
    /// The wait before the next delivery.
    pub delay: Span,
    /// All waits so far, those in place included.
    pub elapsed: Span,
}

/// What happens at the end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepEnd {
    /// It is published to a tier.
    Publish,
    /// It is moved to where it runs next.
    Relay,
    /// It is dead-lettered.
    DeadLetter(Reason),
    /// It is dropped.
    Drop(Reason),
    /// The flow stops.
    Stop(Reason),
}

/// The way of `record` through the flow when each delivery fails: the first with the first
/// failure, the next with the next one, and the last failure repeats. No failure at all means a
/// retryable one that nothing is known of.
pub fn plan(flow: &Flow, record: RecordView<'_>, failures: &[Failure]) -> Vec<Step> {
    let nothing_known = Failure::default();
    let last = failures.last().unwrap_or(&nothing_known);
    let mut failures = failures.iter();
    let mut state = RetryState::default();
    let mut from = flow.source().to_string();
    let mut elapsed = Span::default();
    let mut steps = Vec::new();
    loop {
        let failure = failures.next().unwrap_or(last);
        let (step, next) = deliver(flow, record, &state, failure, from, &mut elapsed);
        let tier = step.to.clone();
        let moved = step.then == StepEnd::Publish;
        steps.push(step);
        let (Some(tier), true) = (tier, moved) else {
            return steps;
        };
        state = next;
        from = match flow.strategy().relay_target(flow.source()) {
            Some(target) => {
                steps.push(relay(tier, target, &state, elapsed));
                target.to_string()
            }
            None => tier,
        };
    }
}

/// One delivery with all its runs.
fn deliver(
    flow: &Flow,
    record: RecordView<'_>,
    state: &RetryState<'_>,
    failure: &Failure,
    from: String,
    elapsed: &mut Span,
) -> (Step, RetryState<'static>) {
    let incident = Incident::from(failure);
    let mut in_place = InPlace::default();
    loop {
        let mut delivery = Delivery { record, state, in_place };
        let longest = flow.decide(&delivery, &incident, at(elapsed.max), Draw::Highest);
        delivery.in_place.failed_at = delivery.in_place.failed_at.map(|_| at(elapsed.min));
        // The longest waits decide the way. Where the shortest would take another, for a
        // `Retry-After` that lies between them, only the longest are known.
        let shortest = flow.decide(&delivery, &incident, at(elapsed.min), Draw::Lowest);
        let (then, to, delay) = match longest.action {
            Action::RunAgain { wait, in_place: next } => {
                let min = match shortest.action {
                    Action::RunAgain { wait, .. } => wait,
                    _ => wait,
                };
                elapsed.add(Span { min, max: wait });
                in_place = next;
                continue;
            }
            Action::Publish { topic, delay, .. } => {
                let min = match shortest.action {
                    Action::Publish { delay, .. } => delay,
                    _ => delay,
                };
                (StepEnd::Publish, Some(topic), Span { min, max: delay })
            }
            Action::DeadLetter { topic, reason } => {
                (StepEnd::DeadLetter(reason), Some(topic), Span::default())
            }
            Action::Drop { reason } => (StepEnd::Drop(reason), None, Span::default()),
            Action::Stop { reason, .. } => (StepEnd::Stop(reason), None, Span::default()),
        };
        elapsed.add(delay);
        let next = longest.state;
        let published = then == StepEnd::Publish;
        let step = Step {
            from,
            policy: next.policy.as_deref().map(str::to_owned),
            runs: in_place.runs.saturating_add(1),
            then,
            to: to.map(|topic| topic.to_string()),
            attempt_in_tier: published.then_some(next.tier_attempts),
            policy_attempt: next.policy_attempts,
            overall_attempt: next.overall,
            delay,
            elapsed: *elapsed,
        };
        let next = RetryState {
            policy: next.policy.map(|id| id.into_owned().into()),
            ..RetryState { policy: None, ..next }
        };
        return (step, next);
    }
}

fn relay(tier: String, target: &str, state: &RetryState<'_>, elapsed: Span) -> Step {
    Step {
        from: tier,
        policy: state.policy.as_deref().map(str::to_owned),
        runs: 0,
        then: StepEnd::Relay,
        to: Some(target.to_owned()),
        attempt_in_tier: None,
        policy_attempt: state.policy_attempts,
        overall_attempt: state.overall,
        delay: Span::default(),
        elapsed,
    }
}

/// To a whole millisecond.
fn rounded_up(time: Duration) -> Duration {
    const MILLI: u32 = 1_000_000;
    let missing = time.subsec_nanos().next_multiple_of(MILLI) - time.subsec_nanos();
    time.saturating_add(Duration::from_nanos(missing.into()))
}

fn at(elapsed: Duration) -> Timestamp {
    Timestamp::default().after(elapsed)
}
