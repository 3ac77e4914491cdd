//! Whatever the flow and the failures are, the decisions keep to docs/policies.md.

use std::time::Duration;

use proptest::prelude::*;
use redrive_core::{
    Backoff, Delayed, Delivery, Draw, Failure, Flow, InPlace, Incident, MAX_DELAY, On, Policy,
    Reason, RecordView, RetryState, Rule, Rules, Strategy as Layout, Then, Tier, Timestamp,
};

use crate::arbitrary::{
    any_duration, any_state, failure, failure_that_may_ask_to_wait, failures, flow, impatient_flow,
    likely_state, now, ranked_on,
};
use crate::journey::{Decision, Each, Outcome, owned, travel};
use crate::oracle::{Expected, expected};

fn policy_for<'a>(flow: &'a Flow, failure: &Failure) -> Option<&'a Policy> {
    let default = || failure.is_retryable().then(|| flow.default_policy());
    flow.rules().find(&RecordView::default(), failure).or_else(default)
}

fn has_custom_delay(policy: &Policy) -> bool {
    let backoff = policy.delayed.as_ref().and_then(|it| it.backoff.as_ref());
    matches!(backoff, Some(Backoff::Custom(_)))
}

/// Each failed run of a record that takes the next failure every time.
fn journey(flow: &Flow, failures: &[Failure], start: Timestamp, seed: u64) -> Vec<Decision> {
    travel(flow, failures, Each::Run, start, |turn| Draw::Seed(seed ^ turn))
}

fn publishes(decisions: &[Decision]) -> impl Iterator<Item = &Decision> {
    decisions.iter().filter(|it| matches!(it.outcome, Outcome::Publish { .. }))
}

proptest! {
    #[test]
    fn a_record_that_always_fails_ends_within_the_overall_cap(
        flow in flow(),
        failures in prop::collection::vec(failure_that_may_ask_to_wait(), 1..6),
        start in now(),
        seed: u64,
    ) {
        let decisions = journey(&flow, &failures, start, seed);
        let published = publishes(&decisions).count();
        prop_assert!(published <= flow.max_overall_attempts() as usize);
        let last = decisions.last().unwrap();
        let ended = matches!(last.outcome, Outcome::End { .. });
        prop_assert!(ended);
        prop_assert_eq!(last.after.overall as usize, published);
    }

    #[test]
    fn every_decision_agrees_with_the_counting_rules(
        flow in flow(), failures in failures(), start in now(), seed: u64,
    ) {
        for decision in journey(&flow, &failures, start, seed) {
            let Some(policy) = policy_for(&flow, &decision.failure) else {
                let at_once = Outcome::End { then: Then::DeadLetter, reason: Reason::NotRetryable };
                prop_assert_eq!(decision.outcome, at_once);
                continue;
            };
            if has_custom_delay(policy) {
                // It sees the failure, which the oracle's nominal delay does not.
                continue;
            }
            let id = policy.id.resolve(&decision.failure);
            let actual = match &decision.outcome {
                Outcome::RunAgain { .. } => Expected::RunAgain,
                Outcome::Publish { topic, .. } => {
                    let after = &decision.after;
                    let tier = after.tier.unwrap();
                    prop_assert_eq!(topic, &*flow.strategy().tiers()[tier as usize].topic);
                    Expected::Publish {
                        policy_attempts: after.policy_attempts,
                        overall: after.overall,
                        tier,
                        tier_attempts: after.tier_attempts,
                    }
                }
                Outcome::End { then, .. } => {
                    prop_assert_eq!(then, &policy.then);
                    Expected::End
                }
            };
            prop_assert_eq!(actual, expected(&flow, policy, &id, &decision), "{:?}", decision);
            prop_assert_eq!(decision.after.policy.as_deref(), Some(&*id));
        }
    }

    #[test]
    fn counts_stay_below_every_cap(
        flow in flow(), failures in failures(), start in now(), seed: u64,
    ) {
        for decision in publishes(&journey(&flow, &failures, start, seed)) {
            let policy = policy_for(&flow, &decision.failure).unwrap();
            let delayed = policy.delayed.as_ref().unwrap();
            let after = &decision.after;
            prop_assert!(after.overall <= flow.max_overall_attempts());
            prop_assert!(after.policy_attempts <= delayed.attempts.unwrap_or(u32::MAX));
            let tier = &flow.strategy().tiers()[after.tier.unwrap() as usize];
            if delayed.backoff.is_none() {
                prop_assert!(after.tier_attempts <= tier.attempts.unwrap_or(u32::MAX));
            }
        }
    }

    #[test]
    fn a_policy_without_a_backoff_never_walks_backwards(
        flow in flow(), failures in failures(), start in now(), seed: u64,
    ) {
        for decision in publishes(&journey(&flow, &failures, start, seed)) {
            let policy = policy_for(&flow, &decision.failure).unwrap();
            if policy.delayed.as_ref().unwrap().backoff.is_none() {
                prop_assert!(decision.after.tier >= decision.before.tier);
                let skipped = decision.after.tier.unwrap_or(0) - decision.before.tier.unwrap_or(0);
                prop_assert!(skipped <= 1, "a tier was left out");
            }
        }
    }

    #[test]
    fn runs_in_place_happen_only_when_the_identifier_changes(
        flow in flow(), failures in failures(), start in now(), seed: u64,
    ) {
        for decision in journey(&flow, &failures, start, seed) {
            if matches!(decision.outcome, Outcome::RunAgain { .. }) {
                let policy = policy_for(&flow, &decision.failure).unwrap();
                let in_memory = policy.in_memory.as_ref().unwrap();
                prop_assert_ne!(&decision.before.policy, &decision.after.policy);
                prop_assert!(decision.in_place < in_memory.attempts);
                prop_assert_eq!(decision.after.overall, decision.before.overall);
                prop_assert_eq!(decision.after.tier_attempts, decision.before.tier_attempts);
            }
        }
    }

    #[test]
    fn a_record_is_never_due_before_its_delay_is_over(
        flow in flow(),
        failures in prop::collection::vec(failure_that_may_ask_to_wait(), 1..6),
        start in now(),
        seed: u64,
    ) {
        for decision in journey(&flow, &failures, start, seed) {
            if let Outcome::Publish { due, delay, .. } = decision.outcome {
                prop_assert!(due.since(decision.now) >= delay);
                prop_assert!(due.since(decision.now) < delay + Duration::from_millis(1));
            }
        }
    }

    #[test]
    fn the_first_failure_is_remembered_all_the_way(
        flow in flow(), failures in failures(), start in now(), seed: u64,
    ) {
        for decision in journey(&flow, &failures, start, seed) {
            prop_assert_eq!(decision.after.first_failed_at, Some(start));
        }
    }

    #[test]
    fn nothing_is_published_to_be_due_after_the_cap_on_time(
        flow in impatient_flow(),
        failures in prop::collection::vec(failure_that_may_ask_to_wait(), 1..6),
        start in now(),
        seed: u64,
    ) {
        let max = flow.max_elapsed().unwrap();
        let decisions = journey(&flow, &failures, start, seed);
        for decision in publishes(&decisions) {
            let Outcome::Publish { due, .. } = decision.outcome else { continue };
            prop_assert!(due.since(start) <= max);
        }
    }

    #[test]
    fn the_cap_on_time_is_the_reason_only_where_the_record_would_be_published_without_it(
        flow in flow(), failures in failures(), start in now(), seed: u64, max in 0..100_000u64,
    ) {
        let impatient = flow.clone().with_max_elapsed(Duration::from_millis(max));
        let patient = journey(&flow, &failures, start, seed);
        let capped = journey(&impatient, &failures, start, seed);
        for (patient, capped) in patient.iter().zip(&capped) {
            let elapsed = matches!(capped.outcome, Outcome::End { reason: Reason::Elapsed, .. });
            if elapsed {
                let Outcome::Publish { due, .. } = patient.outcome else {
                    return Err(TestCaseError::fail("it would not have been published"));
                };
                prop_assert!(due.since(start) > Duration::from_millis(max));
            } else {
                prop_assert_eq!(&patient.outcome, &capped.outcome);
            }
        }
    }

    #[test]
    fn the_same_input_gives_the_same_verdict(
        flow in flow(), failures in failures(), start in now(), seed: u64,
    ) {
        let outcomes = |decisions: Vec<Decision>| -> Vec<_> {
            decisions.into_iter().map(|it| (it.outcome, it.after)).collect()
        };
        let once = outcomes(journey(&flow, &failures, start, seed));
        prop_assert_eq!(once, outcomes(journey(&flow.clone(), &failures, start, seed)));
    }

    #[test]
    fn hostile_states_times_and_delays_never_panic_and_never_count_beyond_the_caps(
        flow in flow(),
        tier_delay in any_duration(),
        wait in any_duration(),
        state in any_state(),
        failure in failure(),
        (now, runs, draw) in (any::<i64>(), any::<u32>(), any::<u64>()),
    ) {
        let tiers = vec![Tier::new("tier.0", tier_delay), Tier::new("tier.1", wait)];
        let flow = flow.with_strategy(Layout::Tiers(tiers)).with_max_elapsed(wait);
        let failure = failure.with_retry_after(wait);
        let in_place = InPlace { runs, failed_at: None };
        let delivery = Delivery { record: RecordView::default(), state: &state, in_place };
        let now = Timestamp::from_millis(now);
        let verdict = flow.decide(&delivery, &Incident::from(&failure), now, Draw::Seed(draw));
        let after = owned(verdict.state);
        if let Outcome::Publish { .. } = Outcome::from(verdict.action) {
            prop_assert!(after.overall <= flow.max_overall_attempts());
            prop_assert_eq!(after.overall, state.overall + 1);
        }
    }

    #[test]
    fn a_state_without_a_policy_counts_for_whichever_policy_is_resolved(
        flow in flow(),
        state in likely_state().prop_filter("was published", |it| it.overall > 0),
        failure in failure(),
        now in now(),
        seed: u64,
    ) {
        let flow = flow.with_rules(Rules::default());
        let failure = failure.with_retryable(true);
        let id = flow.default_policy().id.resolve(&failure).into_owned();
        let named = RetryState { policy: Some(id.into()), ..state.clone() };
        let nameless = RetryState { policy: None, ..state };
        let record = RecordView::default();
        let verdict = |state| {
            let delivery = Delivery { record, state, in_place: InPlace::default() };
            flow.decide(&delivery, &Incident::from(&failure), now, Draw::Seed(seed))
        };
        prop_assert_eq!(verdict(&named), verdict(&nameless));
    }

    #[test]
    fn the_most_specific_rule_wins_and_within_one_kind_the_first(
        ons in prop::collection::vec(ranked_on(), 0..6), failure in failure(),
    ) {
        let record = RecordView::default();
        let rule = |at: usize, on: &On| Rule::new(on.clone(), Policy::named(&*at.to_string()));
        let rules: Rules = ons.iter().enumerate().map(|(at, (_, on))| rule(at, on)).collect();
        let found = rules.find(&record, &failure).map(|it| it.id.resolve(&failure).into_owned());
        let alone = |on: &On| Rules::default().with(rule(0, on));
        let matching = ons.iter().enumerate().filter(|(_, (_, on))| {
            alone(on).find(&record, &failure).is_some()
        });
        let best = matching.min_by_key(|(at, (rank, _))| (*rank, *at)).map(|(at, _)| at.to_string());
        prop_assert_eq!(found, best);
    }
}

/// docs/policies.md: "the hop would be due within `max_elapsed` of the first failure", the bound included.
#[test]
fn a_hop_that_is_due_just_at_the_cap_on_time_is_made() {
    let second = Duration::from_secs(1);
    let delayed = Delayed::default().with_backoff(Backoff::Fixed(second));
    let flow = Flow::new("source")
        .with_strategy(Layout::Single(Tier::endless("tier.0")))
        .with_default(Policy::named("A").with_delayed(delayed));
    for (max, expected) in [(3 * second, 3), (3 * second - Duration::from_millis(1), 2)] {
        let flow = flow.clone().with_max_elapsed(max);
        let decisions = journey(&flow, &[Failure::default()], Timestamp::default(), 1);
        assert_eq!(publishes(&decisions).count(), expected);
        let end = Outcome::End { then: Then::DeadLetter, reason: Reason::Elapsed };
        assert_eq!(decisions.last().unwrap().outcome, end);
    }
}

/// docs/policies.md: a record stays in a tier while its count there is below the tier's attempts. None is
/// below 0, so such a tier is passed by.
#[test]
fn a_tier_without_attempts_takes_no_record() {
    let flow = Flow::new("source")
        .with_strategy(Layout::Tiers(vec![
            Tier::new("tier.0", Duration::from_secs(1)).with_attempts(0),
            Tier::new("tier.1", Duration::from_secs(2)),
        ]))
        .with_default(Policy::named("A").with_delayed(Delayed::default()));
    let decisions = journey(&flow, &[Failure::default()], Timestamp::default(), 1);
    let tiers: Vec<_> = publishes(&decisions).map(|it| it.after.tier).collect();
    assert_eq!(tiers, [Some(1)]);
}

/// A tier's delay that is longer than any delay may be is cut, and the verdict says so.
#[test]
fn the_delay_of_a_verdict_is_the_time_until_it_is_due() {
    let flow = Flow::new("source")
        .with_strategy(Layout::Tiers(vec![Tier::new("tier.0", Duration::MAX)]))
        .with_default(Policy::named("A").with_delayed(Delayed::default()));
    let now = Timestamp::from_millis(1_700_000_000_000);
    let decisions = journey(&flow, &[Failure::default()], now, 1);
    let Outcome::Publish { due, delay, .. } = decisions[0].outcome else {
        panic!("{:?}", decisions[0])
    };
    assert_eq!((due.since(now), delay), (MAX_DELAY, MAX_DELAY));
}
