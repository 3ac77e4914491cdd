//! The seed document "New Retry Policy Configuration": one retry topic after the other, each with
//! its own delay and attempts.

use std::time::Duration;

use redrive_core::{
    Action, Delayed, Delivery, Draw, Failure, Flow, InPlace, Incident, Policy, Reason, RecordView,
    RetryState, Span, Step, StepEnd, Strategy, Tier, Timestamp, plan,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

/// What the document's configurations mean: the tiers' own walk for every retryable failure.
fn flow(tiers: Vec<Tier>) -> Flow {
    Flow::new("orders")
        .with_dead_letter("orders.error")
        .with_strategy(Strategy::Tiers(tiers))
        .with_default(Policy::default().with_delayed(Delayed::default()))
}

fn example_flow() -> Flow {
    flow(vec![
        Tier::new("orders.retry.immediate", 30 * SECOND).with_attempts(3),
        Tier::new("orders.retry.short", 5 * MINUTE).with_attempts(2),
        Tier::new("orders.retry.long", HOUR).with_attempts(1),
    ])
}

fn steps(flow: &Flow) -> Vec<Step> {
    plan(flow, RecordView::default(), &[])
}

/// Topic, attempt in it and delay of every publish.
fn retries(steps: &[Step]) -> Vec<(&str, u32, Duration)> {
    let published = steps.iter().filter(|step| step.then == StepEnd::Publish);
    published
        .map(|step| {
            assert_eq!(step.delay.min, step.delay.max, "a tier's delay is exact");
            (step.to.as_deref().unwrap_or(""), step.attempt_in_tier.unwrap_or(0), step.delay.min)
        })
        .collect()
}

/// "Example Flow", and "Total retry attempts: 6 (3 + 2 + 1)".
#[test]
fn the_example_makes_its_six_retries_in_order_and_then_the_error_topic() {
    let steps = steps(&example_flow());
    assert_eq!(
        retries(&steps),
        [
            ("orders.retry.immediate", 1, 30 * SECOND),
            ("orders.retry.immediate", 2, 30 * SECOND),
            ("orders.retry.immediate", 3, 30 * SECOND),
            ("orders.retry.short", 1, 5 * MINUTE),
            ("orders.retry.short", 2, 5 * MINUTE),
            ("orders.retry.long", 1, HOUR),
        ]
    );
    let last = steps.last().unwrap();
    assert_eq!(steps.len(), 7);
    assert_eq!(last.from, "orders.retry.long");
    assert_eq!(last.then, StepEnd::DeadLetter(Reason::Attempts));
    assert_eq!(last.to.as_deref(), Some("orders.error"));
    assert_eq!(last.overall_attempt, 6);
}

/// "Example Flow": 3 × 30 s + 2 × 5 min + 1 h of waiting, and one run for each delivery.
#[test]
fn the_example_waits_as_long_as_its_tiers_say() {
    let steps = steps(&example_flow());
    let total = 90 * SECOND + 10 * MINUTE + HOUR;
    assert_eq!(steps.last().unwrap().elapsed, Span { min: total, max: total });
    assert!(steps.iter().all(|step| step.runs == 1), "no run in place");
}

/// "Retry Flow", step 3 and 4: stay while attempts are left in the topic, then take the next.
#[test]
fn a_record_stays_in_its_topic_until_the_attempts_there_are_spent() {
    let flow = example_flow();
    let failure = Failure::default();
    let stop_after = |tier, tier_attempts| {
        let state = RetryState {
            overall: 1,
            tier: Some(tier),
            tier_attempts,
            policy: Some("default".into()),
            policy_attempts: 1,
            ..RetryState::default()
        };
        let delivery =
            Delivery { record: RecordView::default(), state: &state, in_place: InPlace::default() };
        let now = Timestamp::from_millis(1_700_000_000_000);
        let verdict = flow.decide(&delivery, &Incident::from(&failure), now, Draw::Seed(7));
        match verdict.action {
            Action::Publish { topic, .. } => topic.to_string(),
            Action::DeadLetter { topic, .. } => topic.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(stop_after(0, 1), "orders.retry.immediate");
    assert_eq!(stop_after(0, 2), "orders.retry.immediate");
    assert_eq!(stop_after(0, 3), "orders.retry.short");
    assert_eq!(stop_after(1, 1), "orders.retry.short");
    assert_eq!(stop_after(1, 2), "orders.retry.long");
    assert_eq!(stop_after(2, 1), "orders.error");
}

/// "Logging": "attempt 2/3 in this topic, total attempts: 2", then "moving to next retry topic
/// (total attempts: 4)", then "exhausted across all topics (total: 6)".
#[test]
fn counts_stand_as_in_the_documents_log_lines() {
    let steps = steps(&example_flow());
    assert_eq!((steps[1].attempt_in_tier, steps[1].overall_attempt), (Some(2), 2));
    assert_eq!((steps[3].attempt_in_tier, steps[3].overall_attempt), (Some(1), 4));
    assert_eq!((steps[6].attempt_in_tier, steps[6].overall_attempt), (None, 6));
}

/// "Configuration Properties": `RetryAttempts` is 1 where it is left out.
#[test]
fn a_topic_takes_a_record_once_by_default() {
    let steps = steps(&flow(vec![
        Tier::new("orders.retry.1", 25 * MINUTE),
        Tier::new("orders.retry.2", 25 * MINUTE),
    ]));
    assert_eq!(
        retries(&steps),
        [("orders.retry.1", 1, 25 * MINUTE), ("orders.retry.2", 1, 25 * MINUTE)]
    );
}

/// "Delay Format": 2 hours 30 minutes is a delay like any other.
#[test]
fn a_delay_of_hours_and_minutes_is_kept_exactly() {
    let delay = 2 * HOUR + 30 * MINUTE;
    let steps = steps(&flow(vec![Tier::new("orders.retry", delay)]));
    assert_eq!(retries(&steps), [("orders.retry", 1, Duration::from_secs(9_000))]);
}

/// "Backward Compatibility" and "Migration Guide": the old format's delay and attempts make that
/// many topics of one attempt each.
#[test]
fn the_old_format_makes_one_topic_for_each_attempt() {
    for delay in [Duration::from_millis(2_000), Duration::from_millis(5_000)] {
        let topics = ["orders.retry.1", "orders.retry.2", "orders.retry.3"];
        let steps = steps(&flow(topics.map(|topic| Tier::new(topic, delay)).to_vec()));
        assert_eq!(retries(&steps), topics.map(|topic| (topic, 1, delay)));
        assert_eq!(steps.last().unwrap().to.as_deref(), Some("orders.error"));
    }
}

/// "Best Practices", 1 to 3: short, then longer, then long delays.
#[test]
fn the_recommended_delays_are_taken_in_turn() {
    let steps = steps(&flow(vec![
        Tier::new("orders.retry.immediate", 10 * SECOND).with_attempts(3),
        Tier::new("orders.retry.medium", 5 * MINUTE).with_attempts(2),
        Tier::new("orders.retry.final", HOUR).with_attempts(1),
    ]));
    let delays: Vec<_> = retries(&steps).iter().map(|it| it.2).collect();
    let [quick, medium, last] = [10 * SECOND, 5 * MINUTE, HOUR];
    assert_eq!(delays, [quick, quick, quick, medium, medium, last]);
}

/// "Quick Retry Strategy".
#[test]
fn the_quick_strategy_retries_five_times_in_five_seconds_each() {
    let steps = steps(&flow(vec![Tier::new("orders.retry.fast", 5 * SECOND).with_attempts(5)]));
    let expected = [1, 2, 3, 4, 5].map(|attempt| ("orders.retry.fast", attempt, 5 * SECOND));
    assert_eq!(retries(&steps), expected);
    assert_eq!(steps[5].to.as_deref(), Some("orders.error"));
}

/// "Gradual Backoff Strategy": 3 + 2 + 2 + 1.
#[test]
fn the_gradual_strategy_makes_eight_retries() {
    let steps = steps(&flow(vec![
        Tier::new("orders.retry.immediate", 30 * SECOND).with_attempts(3),
        Tier::new("orders.retry.short", 5 * MINUTE).with_attempts(2),
        Tier::new("orders.retry.medium", 30 * MINUTE).with_attempts(2),
        Tier::new("orders.retry.long", 2 * HOUR).with_attempts(1),
    ]));
    assert_eq!(
        retries(&steps)[3..],
        [
            ("orders.retry.short", 1, 5 * MINUTE),
            ("orders.retry.short", 2, 5 * MINUTE),
            ("orders.retry.medium", 1, 30 * MINUTE),
            ("orders.retry.medium", 2, 30 * MINUTE),
            ("orders.retry.long", 1, 2 * HOUR),
        ]
    );
}

/// "Aggressive Retry Strategy": 10 + 3 retries, more than the least overall cap of 10.
#[test]
fn the_aggressive_strategy_makes_all_of_its_thirteen_retries() {
    let steps = steps(&flow(vec![
        Tier::new("orders.retry.burst", SECOND).with_attempts(10),
        Tier::new("orders.retry.final", 10 * MINUTE).with_attempts(3),
    ]));
    let retries = retries(&steps);
    assert_eq!(retries.len(), 13);
    assert_eq!(retries[9], ("orders.retry.burst", 10, SECOND));
    assert_eq!(retries[10], ("orders.retry.final", 1, 10 * MINUTE));
    assert_eq!(steps[13].to.as_deref(), Some("orders.error"));
}

/// "Retry Flow", step 1: only a retryable result is retried.
#[test]
fn what_is_not_retryable_goes_to_the_error_topic_at_once() {
    let failures = [Failure::default().with_retryable(false)];
    let steps = plan(&example_flow(), RecordView::default(), &failures);
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].then, StepEnd::DeadLetter(Reason::NotRetryable));
    assert_eq!(steps[0].to.as_deref(), Some("orders.error"));
}
