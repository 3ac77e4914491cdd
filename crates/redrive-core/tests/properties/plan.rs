//! A plan tells what will happen, whatever is drawn.

use std::time::Duration;

use proptest::prelude::*;
use redrive_core::{
    Delayed, Draw, Exponential, Failure, Flow, InMemory, Policy, Random, Reason, RecordView, Span,
    Step, StepEnd, Strategy as Layout, Then, Tier, Timestamp, plan,
};

use crate::arbitrary::{failures, flow, impatient_flow};
use crate::journey::{Decision, Each, Outcome, travel};

/// The same record for real: one failure for each delivery, from the epoch on, as plans have it.
fn happened(flow: &Flow, failures: &[Failure], seed: u64) -> Vec<Decision> {
    travel(flow, failures, Each::Delivery, Timestamp::default(), |turn| Draw::Seed(seed ^ turn))
}

fn planned(flow: &Flow, failures: &[Failure]) -> Vec<Step> {
    plan(flow, RecordView::default(), failures)
}

/// The steps in which a handler runs.
fn deliveries(steps: &[Step]) -> impl Iterator<Item = &Step> {
    steps.iter().filter(|step| step.then != StepEnd::Relay)
}

fn within(span: Span, actual: Duration) -> bool {
    (span.min..=span.max).contains(&actual)
}

fn publishes(decisions: &[Decision]) -> usize {
    decisions.iter().filter(|it| matches!(it.outcome, Outcome::Publish { .. })).count()
}

fn end_of(step: &Step) -> Option<(Then, Reason)> {
    match step.then {
        StepEnd::DeadLetter(reason) => Some((Then::DeadLetter, reason)),
        StepEnd::Drop(reason) => Some((Then::Drop, reason)),
        StepEnd::Stop(reason) => Some((Then::Stop { exit: false }, reason)),
        StepEnd::Publish | StepEnd::Relay => None,
    }
}

proptest! {
    #[test]
    fn what_happens_is_what_was_planned(
        flow in flow(), failures in failures(), seed: u64,
    ) {
        let steps = planned(&flow, &failures);
        let decisions = happened(&flow, &failures, seed);
        let mut settled = decisions.iter().filter(|it| !matches!(it.outcome, Outcome::RunAgain { .. }));
        for step in deliveries(&steps) {
            let decision = settled.next().unwrap();
            prop_assert_eq!(step.runs, decision.in_place + 1);
            prop_assert_eq!(&step.policy.as_deref(), &decision.after.policy.as_deref());
            prop_assert_eq!(step.policy_attempt, decision.after.policy_attempts);
            prop_assert_eq!(step.overall_attempt, decision.after.overall);
            match &decision.outcome {
                Outcome::Publish { topic, due, delay } => {
                    prop_assert_eq!(step.to.as_ref(), Some(topic));
                    prop_assert_eq!(step.attempt_in_tier, Some(decision.after.tier_attempts));
                    prop_assert!(within(step.delay, *delay), "{:?} {:?}", step, delay);
                    let elapsed = due.since(Timestamp::default());
                    prop_assert!(within(step.elapsed, elapsed), "{:?} {:?}", step, elapsed);
                }
                Outcome::End { then, reason } => {
                    let then = match then {
                        Then::Stop { .. } => Then::Stop { exit: false },
                        other => *other,
                    };
                    prop_assert_eq!(end_of(step), Some((then, *reason)));
                }
                Outcome::RunAgain { .. } => unreachable!("left out above"),
            }
        }
        prop_assert!(settled.next().is_none());
    }

    #[test]
    fn steps_lead_from_one_topic_to_the_next(flow in flow(), failures in failures()) {
        let steps = planned(&flow, &failures);
        prop_assert_eq!(steps[0].from.as_str(), &**flow.source());
        for pair in steps.windows(2) {
            prop_assert_eq!(pair[0].to.as_deref(), Some(pair[1].from.as_str()));
            prop_assert!(matches!(pair[0].then, StepEnd::Publish | StepEnd::Relay));
        }
        let last = steps.last().unwrap();
        prop_assert_eq!(last.to.is_some(), matches!(last.then, StepEnd::DeadLetter(_)));
    }

    #[test]
    fn a_relay_follows_every_publish_where_topics_only_hold_records(
        flow in flow(), failures in failures(),
    ) {
        let steps = planned(&flow, &failures);
        let relayed = flow.strategy().relay_target(flow.source()).is_some();
        for pair in steps.windows(2).filter(|pair| pair[0].then == StepEnd::Publish) {
            prop_assert_eq!(pair[1].then == StepEnd::Relay, relayed);
            if relayed {
                prop_assert_eq!((pair[1].runs, pair[1].delay), (0, Span::default()));
                prop_assert_eq!(pair[1].elapsed, pair[0].elapsed);
                prop_assert_eq!(pair[1].overall_attempt, pair[0].overall_attempt);
            }
        }
    }

    #[test]
    fn waits_add_up_and_bounds_are_in_order(flow in flow(), failures in failures()) {
        let mut so_far = Span::default();
        for step in planned(&flow, &failures) {
            prop_assert!(step.delay.min <= step.delay.max);
            prop_assert!(step.elapsed.min <= step.elapsed.max);
            prop_assert!(step.elapsed.min >= so_far.min + step.delay.min);
            prop_assert!(step.elapsed.max >= so_far.max + step.delay.max);
            so_far = step.elapsed;
        }
    }

    #[test]
    fn with_a_cap_on_time_a_plan_promises_only_what_every_draw_keeps(
        flow in impatient_flow(), failures in failures(), seed: u64,
    ) {
        let steps = planned(&flow, &failures);
        let promised = steps.iter().filter(|step| step.then == StepEnd::Publish).count();
        prop_assert!(publishes(&happened(&flow, &failures, seed)) >= promised);
        let published = steps.iter().filter(|step| step.then == StepEnd::Publish);
        let max = flow.max_elapsed().unwrap();
        prop_assert!(published.into_iter().all(|step| step.elapsed.max <= max));
    }

    #[test]
    fn the_last_failure_repeats(flow in flow(), failures in failures()) {
        let longer = [failures.clone(), vec![failures.last().unwrap().clone(); 40]].concat();
        prop_assert_eq!(planned(&flow, &failures), planned(&flow, &longer));
    }
}

/// Each due time is rounded up to a millisecond, so that parts of one add up to whole ones.
#[test]
fn waits_of_less_than_a_millisecond_take_one_each() {
    let backoff = Exponential::new(Duration::from_millis(1)).with_multiplier(0.1);
    let policy = Policy::named("A").with_delayed(Delayed::attempts(3).with_backoff(backoff));
    let flow = Flow::new("source")
        .with_strategy(Layout::Single(Tier::endless("retry")))
        .with_default(policy);
    let elapsed = |millis| {
        let time = Duration::from_millis(millis);
        Span { min: time, max: time }
    };
    let steps = planned(&flow, &[]);
    let found: Vec<_> = steps.iter().map(|it| it.elapsed).collect();
    assert_eq!(found, [1, 2, 3, 3].map(elapsed));
}

/// A wait in place that is drawn may be shorter or longer than the `Retry-After`: the plan's
/// bounds hold either way.
#[test]
fn bounds_are_in_order_where_a_retry_after_lies_within_a_random_wait_in_place() {
    let [second, minute] = [Duration::from_secs(1), Duration::from_mins(1)];
    let in_place = Random::between(Duration::ZERO, 2 * second);
    let backoff = Exponential::new(minute).with_min(minute);
    let policy = Policy::named("A")
        .with_in_memory(InMemory::attempts(1).with_backoff(in_place))
        .with_delayed(Delayed::attempts(1).with_backoff(backoff));
    let flow = Flow::new("source")
        .with_strategy(Layout::Single(Tier::endless("retry")))
        .with_default(policy);
    let failures = [Failure::of_status(503).with_retry_after(second)];
    for step in planned(&flow, &failures) {
        assert!(step.elapsed.min <= step.elapsed.max, "{step:?}");
    }
}
