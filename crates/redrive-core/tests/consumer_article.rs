//! The seed article "Consumer retry logic in Event-Driven architecture": which failures are worth
//! another try, and what becomes of the others.

use std::time::Duration;

use redrive_core::{
    Action, Backoff, Delayed, Delivery, Draw, Exponential, Failure, Flow, InMemory, InPlace,
    Incident, Kind, Linear, On, Policy, Reason, RecordView, RetryState, Rule, Rules, Step, StepEnd,
    Strategy, Then, Tier, Timestamp, plan,
};

const SECOND: Duration = Duration::from_secs(1);

fn flow() -> Flow {
    Flow::new("orders").with_strategy(Strategy::Single(Tier::endless("orders.retry")))
}

fn steps(flow: &Flow, failure: Failure) -> Vec<Step> {
    plan(flow, RecordView::default(), &[failure])
}

/// "Retrayable": network errors, unavailability, rate limits, connectivity, optimistic locks.
#[test]
fn temporary_trouble_is_published_to_the_retry_topic() {
    let kinds = [
        Kind::NETWORK,
        Kind::CONNECT,
        Kind::TIMEOUT,
        Kind::UNAVAILABLE,
        Kind::RATE_LIMIT,
        Kind::CONFLICT,
    ];
    let statuses = [408, 425, 429, 500, 502, 503, 504];
    let failures = kinds.map(Failure::of_kind).into_iter().chain(statuses.map(Failure::of_status));
    for failure in failures {
        let first = &steps(&flow(), failure.clone())[0];
        assert_eq!(first.to.as_deref(), Some("orders.retry"), "{failure:?}");
    }
}

/// "Non-Retrayable": validation, authentication and authorization, bad requests (4xx), business
/// errors; and a value that cannot be decoded stays so.
#[test]
fn lasting_trouble_is_dead_lettered_after_one_run() {
    let kinds = [Kind::VALIDATION, Kind::AUTH, Kind::BUSINESS, Kind::DECODE];
    let statuses = [400, 401, 403, 404, 409, 422, 499];
    let failures = kinds.map(Failure::of_kind).into_iter().chain(statuses.map(Failure::of_status));
    for failure in failures {
        let steps = steps(&flow(), failure.clone());
        assert_eq!(steps.len(), 1, "{failure:?}");
        assert_eq!(steps[0].then, StepEnd::DeadLetter(Reason::NotRetryable), "{failure:?}");
        assert_eq!((steps[0].runs, steps[0].policy.as_deref()), (1, None), "{failure:?}");
    }
}

/// "Retrayable", "defining a maximum retry count".
#[test]
fn a_maximum_count_limits_the_retries() {
    let flow = flow().with_default(Policy::default().with_delayed(Delayed::attempts(4)));
    let steps = steps(&flow, Failure::of_kind(Kind::NETWORK));
    assert_eq!(steps.iter().filter(|step| step.then == StepEnd::Publish).count(), 4);
    assert_eq!(steps[4].then, StepEnd::DeadLetter(Reason::Attempts));
}

/// "Retrayable", "an incremental or exponential backoff strategy".
#[test]
fn a_backoff_is_incremental_or_exponential() {
    let incremental = Backoff::from(Linear::new(SECOND));
    let exponential = Backoff::from(Exponential::new(SECOND));
    assert_eq!([0, 1, 2, 3].map(|n| incremental.nominal(n).as_secs()), [1, 2, 3, 4]);
    assert_eq!([0, 1, 2, 3].map(|n| exponential.nominal(n).as_secs()), [1, 2, 4, 8]);
    let bounded = Backoff::from(Linear::new(SECOND).with_max(2 * SECOND));
    assert_eq!(bounded.nominal(7), 2 * SECOND);
}

/// "Retrayable", "adding jitter to retry intervals to prevent synchronized retries".
#[test]
fn jitter_keeps_records_from_coming_back_together() {
    let backoff = Backoff::from(Exponential::new(60 * SECOND).with_jitter(0.2));
    let mut delays: Vec<_> = (0..100).map(|seed| backoff.delay(0, Draw::Seed(seed))).collect();
    delays.sort_unstable();
    delays.dedup();
    assert!(delays.len() > 90, "100 records share {} delays", delays.len());
}

/// "Retry options", "Stop processing": all event processing halts, or the process is restarted.
#[test]
fn a_policy_may_stop_the_whole_flow() {
    for exit in [false, true] {
        let stop = Policy::named("Ledger").then(Then::Stop { exit });
        let rules = Rules::default().with(Rule::new(On::error("LedgerBroken"), stop));
        let flow = flow().with_rules(rules);
        let state = RetryState::default();
        let delivery =
            Delivery { record: RecordView::default(), state: &state, in_place: InPlace::default() };
        let failure = Failure::of_type("ledger::LedgerBroken");
        let verdict =
            flow.decide(&delivery, &Incident::from(&failure), Timestamp::default(), Draw::Seed(0));
        assert_eq!(verdict.action, Action::Stop { exit, reason: Reason::Policy });
    }
}

/// "Retry logic", for retryable exceptions, 1: two or three tries in memory, a short time apart.
#[test]
fn the_first_delivery_tries_three_times_more_in_place() {
    let steps = steps(&flow(), Failure::of_kind(Kind::NETWORK));
    assert_eq!(steps[0].runs, 4);
    let in_place = steps[0].elapsed.max - steps[0].delay.max;
    assert_eq!(in_place, 3 * Duration::from_millis(100));
}

/// "Retry logic", for retryable exceptions, 2 to 4: the counter in the record rises with every
/// publish, and beyond 10 the record goes to the dead-letter topic.
#[test]
fn after_ten_publishes_a_record_is_dead_lettered() {
    let steps = steps(&flow(), Failure::of_kind(Kind::NETWORK));
    let counts: Vec<_> = steps.iter().map(|step| step.overall_attempt).collect();
    assert_eq!(counts, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10]);
    assert_eq!(steps[10].then, StepEnd::DeadLetter(Reason::Overall));
    assert_eq!(steps[10].to.as_deref(), Some("orders.dlt"));
    assert!(steps[1..].iter().all(|step| step.runs == 1), "in memory only on the first delivery");
}

/// "Example: RabbitMQ Delayed Message Plugin": `x-delay: 5000` is a delay in milliseconds.
#[test]
fn a_fixed_delay_of_five_seconds_is_five_seconds() {
    let delayed = Delayed::attempts(1).with_backoff(Backoff::Fixed(Duration::from_millis(5_000)));
    let steps = steps(
        &flow().with_default(Policy::default().with_delayed(delayed)),
        Failure::of_kind(Kind::UNAVAILABLE),
    );
    assert_eq!((steps[0].delay.min, steps[0].delay.max), (5 * SECOND, 5 * SECOND));
}

/// "Example: Kafka Delayed Messages": intermediate topics hold records until they are due, then
/// they are moved to the topic where they are processed.
#[test]
fn records_wait_in_intermediate_topics_and_are_moved_when_due() {
    let flow = Flow::new("orders")
        .with_strategy(Strategy::DelayThenRetry {
            delays: vec![Tier::new("orders.delay.10s", 10 * SECOND)],
            retry: "orders.retry".into(),
        })
        .with_default(
            Policy::default()
                .with_in_memory(InMemory::attempts(2))
                .with_delayed(Delayed::default()),
        );
    let steps = steps(&flow, Failure::of_kind(Kind::NETWORK));
    let way: Vec<_> = steps.iter().map(|it| (it.from.as_str(), it.to.as_deref())).collect();
    assert_eq!(
        way,
        [
            ("orders", Some("orders.delay.10s")),
            ("orders.delay.10s", Some("orders.retry")),
            ("orders.retry", Some("orders.dlt")),
        ]
    );
    assert_eq!([0, 1, 2].map(|at: usize| steps[at].runs), [3, 0, 1]);
}
