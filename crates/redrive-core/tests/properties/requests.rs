//! What a handler or the other side asks for.

use std::time::Duration;

use proptest::prelude::*;
use redrive_core::{
    Action, Ask, Backoff, Delayed, Delivery, Draw, Exponential, Failure, Flow, Identifier,
    InMemory, InPlace, Incident, On, Policy, Reason, RecordView, RetryState, Rule, Rules,
    Strategy as Layout, Then, Tier, Timestamp,
};

use crate::arbitrary::{duration, failure, flow, likely_state, now};
use crate::journey::Outcome;

fn decide(flow: &Flow, state: &RetryState<'_>, incident: Incident<'_>, now: Timestamp) -> Outcome {
    let delivery = Delivery { record: RecordView::default(), state, in_place: InPlace::default() };
    flow.decide(&delivery, &incident, now, Draw::Seed(11)).action.into()
}

fn asking(failure: &Failure, asked: Ask) -> Incident<'_> {
    Incident { failure, asked: Some(asked), provided: None }
}

fn single(policy: Policy) -> Flow {
    Flow::new("source").with_strategy(Layout::Single(Tier::endless("retry"))).with_default(policy)
}

fn delay_of(outcome: &Outcome) -> Option<Duration> {
    match outcome {
        Outcome::Publish { delay, .. } => Some(*delay),
        _ => None,
    }
}

proptest! {
    #[test]
    fn an_end_that_the_handler_asks_for_comes_before_every_policy(
        flow in flow(), state in likely_state(), failure in failure(), now in now(), exit: bool,
    ) {
        for (asked, then) in [
            (Ask::DeadLetter, Then::DeadLetter),
            (Ask::Drop, Then::Drop),
            (Ask::Stop { exit }, Then::Stop { exit }),
        ] {
            let outcome = decide(&flow, &state, asking(&failure, asked), now);
            prop_assert_eq!(outcome, Outcome::End { then, reason: Reason::Handler });
        }
    }

    #[test]
    fn a_retry_that_the_handler_asks_for_is_due_at_that_time(
        failure in failure(), now in now(), wait in duration(), in_memory in 0..3u32,
    ) {
        let policy = Policy::named("A")
            .with_in_memory(InMemory::attempts(in_memory))
            .with_delayed(Delayed::attempts(3));
        let at = now.after(wait);
        let asked = asking(&failure, Ask::RetryAt(at));
        let outcome = decide(&single(policy), &RetryState::default(), asked, now);
        prop_assert_eq!(outcome, Outcome::Publish { topic: "retry".into(), due: at, delay: wait });
    }

    #[test]
    fn a_retry_asked_for_is_never_early_and_never_beyond_the_caps(
        flow in flow(),
        state in likely_state(),
        failure in failure(),
        now in now(),
        later in -100_000..100_000_000_000i64,
    ) {
        let at = Timestamp::from_millis(now.as_millis() + later);
        match decide(&flow, &state, asking(&failure, Ask::RetryAt(at)), now) {
            Outcome::Publish { due, .. } => {
                prop_assert_eq!(due, at.max(now));
                prop_assert!(state.overall < flow.max_overall_attempts());
            }
            Outcome::RunAgain { wait } => {
                prop_assert!(now.after(wait) >= at);
            }
            Outcome::End { reason, .. } => {
                prop_assert!(reason != Reason::NotRetryable && reason != Reason::Handler);
            }
        }
    }

    #[test]
    fn a_retry_after_is_kept_within_the_policys_bounds(
        asked in duration(), min in duration(), more in duration(), now in now(),
    ) {
        let max = min + more;
        let backoff = Exponential::new(Duration::from_secs(7)).with_min(min).with_max(max);
        let policy = Policy::named("A").with_delayed(Delayed::default().with_backoff(backoff));
        let failure = Failure::of_status(429).with_retry_after(asked);
        let outcome =
            decide(&single(policy), &RetryState::default(), Incident::from(&failure), now);
        prop_assert_eq!(delay_of(&outcome), Some(asked.clamp(min, max)));
    }

    #[test]
    fn a_retry_after_is_kept_within_the_flows_bound_where_the_policy_has_none(
        asked in duration(), bound in duration(), own in prop::option::of(duration()), now in now(),
    ) {
        let delayed = Delayed { attempts: None, backoff: own.map(Backoff::Fixed) };
        let flow = single(Policy::named("A").with_delayed(delayed));
        let failure = Failure::of_status(429).with_retry_after(asked);
        let fresh = RetryState::default();
        let usual = decide(&flow, &fresh, Incident::from(&failure), now);
        prop_assert_eq!(delay_of(&usual), Some(asked.min(Duration::from_hours(1))));
        let flow = flow.with_retry_after_max(bound);
        let bounded = decide(&flow, &fresh, Incident::from(&failure), now);
        prop_assert_eq!(delay_of(&bounded), Some(asked.min(bound)));
    }

    #[test]
    fn a_retry_after_longer_than_the_next_wait_in_place_skips_to_the_delayed_part(
        asked in 0..60_000u64, wait in 0..60_000u64, now in now(),
    ) {
        let [asked, wait] = [asked, wait].map(Duration::from_millis);
        let policy = Policy::named("A")
            .with_in_memory(InMemory::attempts(3).with_backoff(Backoff::Fixed(wait)))
            .with_delayed(Delayed::default());
        let failure = Failure::of_status(429).with_retry_after(asked);
        let outcome =
            decide(&single(policy), &RetryState::default(), Incident::from(&failure), now);
        if asked > wait {
            prop_assert_eq!(delay_of(&outcome), Some(asked));
        } else {
            let Outcome::RunAgain { wait: actual } = outcome else {
                return Err(TestCaseError::fail(format!("{outcome:?}")));
            };
            prop_assert!(asked <= actual && actual <= wait);
        }
    }

    #[test]
    fn a_retry_after_picks_the_tier_that_is_long_enough(
        asked in 0..4_000u64, now in now(),
    ) {
        let delays = [30, 300, 3_600].map(Duration::from_secs);
        let tiers = delays.map(|delay| Tier::new(format!("{}", delay.as_secs()), delay));
        let backoff = Backoff::Fixed(Duration::from_secs(1));
        let flow = Flow::new("source")
            .with_strategy(Layout::Tiers(tiers.to_vec()))
            .with_retry_after_max(Duration::from_hours(24))
            .with_default(Policy::named("A").with_delayed(Delayed::default().with_backoff(backoff)));
        let asked = Duration::from_secs(asked);
        let failure = Failure::of_status(503).with_retry_after(asked);
        let outcome = decide(&flow, &RetryState::default(), Incident::from(&failure), now);
        let fitting = delays.iter().find(|it| **it >= asked).unwrap_or(&delays[2]);
        let topic = fitting.as_secs().to_string();
        prop_assert_eq!(outcome, Outcome::Publish { topic, due: now.after(asked), delay: asked });
    }

    #[test]
    fn a_retry_after_of_a_walking_policy_changes_the_delay_and_not_the_topic(
        asked in duration(), now in now(),
    ) {
        let tiers = vec![
            Tier::new("first", Duration::from_secs(30)),
            Tier::new("second", Duration::from_mins(5)),
        ];
        let flow = Flow::new("source")
            .with_strategy(Layout::Tiers(tiers))
            .with_default(Policy::named("A").with_delayed(Delayed::default()));
        let failure = Failure::of_status(503).with_retry_after(asked);
        let outcome = decide(&flow, &RetryState::default(), Incident::from(&failure), now);
        let delay = asked.min(Duration::from_hours(1));
        let expected = Outcome::Publish { topic: "first".into(), due: now.after(delay), delay };
        prop_assert_eq!(outcome, expected);
    }
}

/// docs/policies.md, "Which policy": what the handler asks for comes before the failure's class.
#[test]
fn a_retry_asked_for_overrules_a_class_that_is_not_retryable() {
    let flow = single(Policy::built_in());
    let failure = Failure::of_status(404);
    let now = Timestamp::from_millis(1_700_000_000_000);
    let at = now.after(Duration::from_mins(2));
    let fresh = RetryState::default();
    let delivery =
        Delivery { record: RecordView::default(), state: &fresh, in_place: InPlace::default() };
    let incident = asking(&failure, Ask::RetryAt(at));
    let verdict = flow.decide(&delivery, &incident, now, Draw::Seed(1));
    assert!(matches!(verdict.action, Action::Publish { due, .. } if due == at));
    assert_eq!((verdict.state.overall, verdict.state.policy_attempts), (1, 1));
}

/// A service that knows better than the rules: the rule does not retry, so the default does.
#[test]
fn a_retry_without_a_time_overrules_a_policy_that_does_not_retry() {
    let refuses = Rule::new(On::statuses(400..=499), Policy::named("ClientError"));
    let tries = Policy::named("Default").with_delayed(Delayed::attempts(2));
    let flow = single(tries).with_rules(Rules::from(vec![refuses]));
    let (failure, now) = (Failure::of_status(404), Timestamp::from_millis(1_000_000));
    let fresh = RetryState::default();
    let outcome = decide(&flow, &fresh, Incident::from(&failure), now);
    assert_eq!(outcome, Outcome::End { then: Then::DeadLetter, reason: Reason::Policy });
    assert!(delay_of(&decide(&flow, &fresh, asking(&failure, Ask::Retry), now)).is_some());
    // The caps hold all the same.
    let spent = RetryState {
        overall: 2,
        policy: Some("Default".into()),
        policy_attempts: 2,
        ..RetryState::default()
    };
    let outcome = decide(&flow, &spent, asking(&failure, Ask::Retry), now);
    assert_eq!(outcome, Outcome::End { then: Then::DeadLetter, reason: Reason::Attempts });
}

/// A policy that retries keeps its own count and delay.
#[test]
fn a_retry_without_a_time_goes_by_the_policy_that_was_found() {
    let wait = Duration::from_secs(7);
    let limit = Policy::named("RateLimit")
        .with_delayed(Delayed::attempts(3).with_backoff(Backoff::Fixed(wait)));
    let flow = single(Policy::named("Default"))
        .with_rules(Rules::from(vec![Rule::new(On::status(429), limit)]));
    let (failure, now) = (Failure::of_status(429), Timestamp::from_millis(1_000_000));
    let outcome = decide(&flow, &RetryState::default(), asking(&failure, Ask::Retry), now);
    assert_eq!(delay_of(&outcome), Some(wait));
}

proptest! {
    #[test]
    fn a_last_chance_is_one_after_which_the_same_policy_ends(
        flow in flow(), state in likely_state(), now in now(), runs in 0..4u32,
    ) {
        let policy = Policy { id: "Only".into(), ..flow.default_policy().clone() };
        let flow = flow.with_rules(Rules::default()).with_default(policy);
        let known = (state.overall > 0).then_some("Only".into());
        let state = RetryState { policy: known, ..state };
        let in_place = InPlace { runs, failed_at: None };
        let delivery = Delivery { record: RecordView::default(), state: &state, in_place };
        let failure = Failure::default();
        let verdict = flow.decide(&delivery, &Incident::from(&failure), now, Draw::Lowest);
        let ends = matches!(Outcome::from(verdict.action), Outcome::End { .. });
        prop_assert_eq!(flow.is_last_chance(&delivery, now), ends);
    }
}

/// What a name was made from is not known any more, but which policy made it is.
#[test]
fn a_last_chance_is_found_by_the_name_that_a_template_made() {
    let server_error = Policy {
        id: Identifier::parse("ServerError-{status}").unwrap(),
        ..Policy::default().with_delayed(Delayed::attempts(2))
    };
    let endless = Policy::named("Default").with_delayed(Delayed::default());
    let flow = single(endless)
        .with_rules(Rules::from(vec![Rule::new(On::statuses(500..=599), server_error)]));
    let now = Timestamp::from_millis(1_000_000);
    let is_last = |policy: &'static str, attempts| {
        let state = RetryState {
            overall: attempts,
            policy: Some(policy.into()),
            policy_attempts: attempts,
            ..RetryState::default()
        };
        let in_place = InPlace::default();
        let delivery = Delivery { record: RecordView::default(), state: &state, in_place };
        flow.is_last_chance(&delivery, now)
    };
    assert!(!is_last("ServerError-503", 1));
    assert!(is_last("ServerError-503", 2));
    assert!(!is_last("Default", 2));
    assert!(!is_last("of an earlier config", 2));
    assert!(is_last("Default", 10), "the cap on all of them");
}
