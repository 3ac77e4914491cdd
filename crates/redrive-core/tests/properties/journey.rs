//! Carries a record from failure to failure through a flow, as a consumer would, and writes down
//! what was decided each time.

use std::time::Duration;

use redrive_core::{
    Action, Delivery, Draw, Failure, Flow, InPlace, Incident, Reason, RecordView, RetryState, Then,
    Timestamp,
};

/// One failed run and what was decided about it.
#[derive(Clone, Debug)]
pub struct Decision {
    pub failure: Failure,
    pub now: Timestamp,
    /// What the record's headers said.
    pub before: RetryState<'static>,
    /// Runs in place before this one.
    pub in_place: u32,
    pub outcome: Outcome,
    pub after: RetryState<'static>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    RunAgain { wait: Duration },
    Publish { topic: String, due: Timestamp, delay: Duration },
    End { then: Then, reason: Reason },
}

impl From<Action<'_>> for Outcome {
    fn from(action: Action<'_>) -> Self {
        match action {
            Action::RunAgain { wait, .. } => Outcome::RunAgain { wait },
            Action::Publish { topic, due, delay } => {
                Outcome::Publish { topic: topic.to_string(), due, delay }
            }
            Action::DeadLetter { reason, .. } => Outcome::End { then: Then::DeadLetter, reason },
            Action::Drop { reason } => Outcome::End { then: Then::Drop, reason },
            Action::Stop { exit, reason } => Outcome::End { then: Then::Stop { exit }, reason },
            other => unreachable!("an action that this journey does not know: {other:?}"),
        }
    }
}

/// When the next failure of a list is taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Each {
    Run,
    Delivery,
}

/// A record that fails for ever: the failures come in turn, `each` run or delivery the next one,
/// and the last one repeats. It is due and run at once, and `draw` says what is drawn.
pub fn travel(
    flow: &Flow,
    failures: &[Failure],
    each: Each,
    start: Timestamp,
    draw: impl Fn(u64) -> Draw,
) -> Vec<Decision> {
    let mut failing = failures.iter().cloned();
    let mut failure = failing.next().unwrap_or_default();
    let mut decisions = Vec::new();
    let mut state = RetryState::default();
    let mut in_place = InPlace::default();
    let mut now = start;
    for turn in 0.. {
        let delivery = Delivery { record: RecordView::default(), state: &state, in_place };
        let verdict = flow.decide(&delivery, &Incident::from(&failure), now, draw(turn));
        if let Action::RunAgain { in_place: next, .. } = verdict.action {
            in_place = next;
        }
        let after = owned(verdict.state);
        let outcome = Outcome::from(verdict.action);
        decisions.push(Decision {
            failure: failure.clone(),
            now,
            before: state.clone(),
            in_place: delivery.in_place.runs,
            outcome: outcome.clone(),
            after: after.clone(),
        });
        let next_delivery = match outcome {
            Outcome::RunAgain { wait } => {
                now = now.after(wait);
                false
            }
            Outcome::Publish { due, .. } => {
                (state, in_place, now) = (after, InPlace::default(), due);
                true
            }
            Outcome::End { .. } => break,
        };
        if next_delivery || each == Each::Run {
            failure = failing.next().unwrap_or(failure);
        }
    }
    decisions
}

pub fn owned(state: RetryState<'_>) -> RetryState<'static> {
    let policy = state.policy.map(|id| id.into_owned().into());
    RetryState {
        policy,
        overall: state.overall,
        policy_attempts: state.policy_attempts,
        tier: state.tier,
        tier_attempts: state.tier_attempts,
        first_failed_at: state.first_failed_at,
    }
}
