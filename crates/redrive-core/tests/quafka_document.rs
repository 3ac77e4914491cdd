//! The seed document "Retry Mechanisms in Quafka": policies by exception, runs in memory and over
//! topics, two-level counting, and four ways to lay out the topics.

use std::time::Duration;

use redrive_core::{
    Action, Backoff, Delayed, Delivery, Draw, ExponentialRandom, Failure, Flow, Identifier,
    InMemory, InPlace, Incident, Kind, Linear, On, Policy, Reason, RecordView, RetryState, Rule,
    Rules, Span, Step, StepEnd, Strategy, Tier, Timestamp, plan,
};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const HOUR: Duration = Duration::from_hours(1);

fn single(topic: &str) -> Strategy {
    Strategy::Single(Tier::endless(format!("{topic}.retry")))
}

fn tiers(stem: &str, delays: &[(&str, Duration)]) -> Vec<Tier> {
    delays.iter().map(|(name, delay)| Tier::new(format!("{stem}.{name}"), *delay)).collect()
}

/// `NonBlockingRetryConfig.exponentialRandomBackoff`.
fn exponential_random(attempts: u32, initial: Duration, max: Duration) -> Delayed {
    Delayed::attempts(attempts).with_backoff(ExponentialRandom::new(initial).with_max(max))
}

/// `InMemoryRetryConfig.basic`.
fn in_memory(attempts: u32, delay: Duration) -> InMemory {
    InMemory::attempts(attempts).with_backoff(Backoff::Fixed(delay))
}

fn on_error(name: &str, policy: Policy) -> Rule {
    Rule::new(On::error(name), policy)
}

fn steps(flow: &Flow, failures: &[Failure]) -> Vec<Step> {
    plan(flow, RecordView::default(), failures)
}

fn thrown(name: &'static str) -> Vec<Failure> {
    vec![Failure::of_type(name)]
}

/// The topics that a record is published to when it fails.
fn published(steps: &[Step]) -> Vec<&str> {
    let hops = steps.iter().filter(|step| step.then == StepEnd::Publish);
    hops.filter_map(|step| step.to.as_deref()).collect()
}

fn shortest_delays(steps: &[Step]) -> Vec<Duration> {
    let hops = steps.iter().filter(|step| step.then == StepEnd::Publish);
    hops.map(|step| step.delay.min).collect()
}

fn end(steps: &[Step]) -> Option<(StepEnd, Option<&str>)> {
    steps.last().map(|step| (step.then, step.to.as_deref()))
}

fn dead_letter(reason: Reason, topic: &str) -> Option<(StepEnd, Option<&str>)> {
    Some((StepEnd::DeadLetter(reason), Some(topic)))
}

/// The identifier of the policy that decides about the first failure of a record.
fn decided_by(flow: &Flow, failure: &Failure, provided: Option<&Policy>) -> Option<String> {
    let state = RetryState::default();
    let delivery =
        Delivery { record: RecordView::default(), state: &state, in_place: InPlace::default() };
    let incident = Incident { failure, asked: None, provided };
    let verdict = flow.decide(&delivery, &incident, Timestamp::default(), Draw::Seed(1));
    verdict.state.policy.map(|id| id.into_owned())
}

mod core_concepts {
    use super::*;

    /// "In-Memory Retry": fails, then three times 100 ms and a retry, then success or DLT.
    #[test]
    fn in_memory_retries_run_three_times_more_and_end_in_the_dead_letter_topic() {
        let policy = Policy::named("QuickRetry").with_in_memory(in_memory(3, 100 * MS));
        let flow = Flow::new("orders").with_strategy(single("orders")).with_default(policy);
        let steps = steps(&flow, &[]);
        assert_eq!(steps.len(), 1);
        assert_eq!((steps[0].runs, steps[0].overall_attempt), (4, 0));
        assert_eq!(steps[0].elapsed, Span { min: 300 * MS, max: 300 * MS });
        assert_eq!(end(&steps), dead_letter(Reason::Attempts, "orders.dlt"));
    }

    /// "Non-Blocking Retry": every retry is a publish, none runs in place.
    #[test]
    fn non_blocking_retries_are_published_ten_times() {
        let policy =
            Policy::named("Delayed").with_delayed(exponential_random(10, SECOND, 5 * MINUTE));
        let flow = Flow::new("orders").with_strategy(single("orders")).with_default(policy);
        let steps = steps(&flow, &[]);
        assert_eq!(published(&steps), ["orders.retry"; 10]);
        assert!(steps.iter().all(|step| step.runs == 1));
    }

    /// "Full Retry": three quick attempts, then ten over the topic from 1 s up to 50 s, then DLT.
    #[test]
    fn full_retry_is_in_memory_first_and_then_non_blocking() {
        let policy = Policy::named("ResilientRetry")
            .with_in_memory(in_memory(3, 100 * MS))
            .with_delayed(exponential_random(10, SECOND, 50 * SECOND));
        let flow = Flow::new("orders").with_strategy(single("orders")).with_default(policy);
        let steps = steps(&flow, &[]);
        assert_eq!(steps[0].runs, 4);
        let secs: Vec<_> = shortest_delays(&steps).iter().map(Duration::as_secs).collect();
        assert_eq!(secs, [1, 2, 4, 8, 16, 32, 50, 50, 50, 50]);
        assert_eq!(end(&steps), dead_letter(Reason::Attempts, "orders.dlt"));
    }
}

mod retry_strategies {
    use super::*;

    /// "1. SingleTopicRetry": orders → orders.retry → orders.dlt, five attempts overall.
    #[test]
    fn single_topic_retry_uses_one_topic_for_all_attempts() {
        let flow = Flow::new("orders")
            .with_strategy(single("orders"))
            .with_max_overall_attempts(5)
            .with_default(Policy::default().with_delayed(Delayed::default()));
        let steps = steps(&flow, &[]);
        assert_eq!(published(&steps), ["orders.retry"; 5]);
        let counts: Vec<_> = steps.iter().filter_map(|step| step.attempt_in_tier).collect();
        assert_eq!(counts, [1, 2, 3, 4, 5]);
        assert_eq!(end(&steps), dead_letter(Reason::Overall, "orders.dlt"));
    }

    const LEVELS: [(&str, Duration); 4] = [
        ("10s", Duration::from_secs(10)),
        ("30s", Duration::from_secs(30)),
        ("1m", MINUTE),
        ("5m", Duration::from_mins(5)),
    ];

    /// "2. ExponentialBackoffMultiTopicRetry": a topic for each attempt, each with its delay.
    #[test]
    fn multi_topic_retry_takes_the_next_topic_each_time() {
        let flow = Flow::new("payments")
            .with_strategy(Strategy::Tiers(tiers("payments.retry", &LEVELS)))
            .with_max_overall_attempts(4)
            .with_default(Policy::default().with_delayed(Delayed::default()));
        let steps = steps(&flow, &[]);
        let topics =
            ["payments.retry.10s", "payments.retry.30s", "payments.retry.1m", "payments.retry.5m"];
        assert_eq!(published(&steps), topics);
        assert_eq!(shortest_delays(&steps), LEVELS.map(|(_, delay)| delay));
        assert_eq!(steps.last().unwrap().to.as_deref(), Some("payments.dlt"));
    }

    /// "3. ExponentialBackoffToSingleTopicRetry": delay topics, and after each the one retry topic.
    #[test]
    fn delay_topics_lead_to_the_one_retry_topic() {
        let flow = Flow::new("notifications")
            .with_strategy(Strategy::DelayThenRetry {
                delays: tiers("notifications.delay", &LEVELS),
                retry: "notifications.retry".into(),
            })
            .with_max_overall_attempts(4)
            .with_default(Policy::default().with_delayed(Delayed::default()));
        let steps = steps(&flow, &[]);
        let way: Vec<_> = steps.iter().filter_map(|step| step.to.as_deref()).collect();
        assert_eq!(
            way,
            [
                "notifications.delay.10s",
                "notifications.retry",
                "notifications.delay.30s",
                "notifications.retry",
                "notifications.delay.1m",
                "notifications.retry",
                "notifications.delay.5m",
                "notifications.retry",
                "notifications.dlt",
            ]
        );
        let run_from: Vec<_> =
            steps.iter().filter(|it| it.runs > 0).map(|it| it.from.as_str()).collect();
        assert_eq!(run_from[1..], ["notifications.retry"; 4], "delay topics are never run from");
    }

    /// "4. NoneStrategy": events → (in-memory retries only) → events.dlt.
    #[test]
    fn without_retry_topics_only_in_memory_retries_are_left() {
        let steps = steps(&Flow::new("events"), &[]);
        assert_eq!((steps.len(), steps[0].runs), (1, 4));
        assert_eq!(end(&steps), dead_letter(Reason::Attempts, "events.dlt"));
    }
}

mod policy_configuration {
    use super::*;

    /// The example of "Approach 2", "reusable policy patterns", with its catch-all.
    fn common_errors() -> Rules {
        let concurrency = Policy::named("DatabaseConcurrencyException")
            .with_in_memory(in_memory(3, 100 * MS))
            .with_delayed(exponential_random(10, SECOND, 50 * SECOND));
        let anything = Policy::default().with_in_memory(in_memory(3, 100 * MS));
        Rules::from(vec![
            on_error("DatabaseConcurrencyException", concurrency),
            on_error("ValidationException", Policy::named("Validation")),
            Rule::new(On::any(), anything),
        ])
    }

    fn orders() -> Flow {
        let payment = Policy::named("PaymentException").with_delayed(exponential_random(
            15,
            5 * SECOND,
            10 * MINUTE,
        ));
        Flow::new("orders")
            .with_strategy(single("orders"))
            .with_rules(common_errors().with(on_error("PaymentException", payment)))
    }

    /// "Approach 1: Global Policy Provider": a policy for each exception it inspects.
    #[test]
    fn the_global_provider_decides_where_no_rule_matched() {
        let flow = Flow::new("orders").with_strategy(single("orders"));
        let rate_limit = Policy::named("RateLimit").with_delayed(exponential_random(
            20,
            60 * SECOND,
            30 * MINUTE,
        ));
        let failure = Failure::of_type("api::RateLimitException");
        assert!(flow.needs_provider(&RecordView::default(), &Incident::from(&failure)));
        assert_eq!(decided_by(&flow, &failure, Some(&rate_limit)).as_deref(), Some("RateLimit"));
    }

    /// "Policy Resolution Order": topic's own, then global provider, then the default policy.
    #[test]
    fn the_flows_rules_come_before_the_provider_and_the_provider_before_the_default() {
        let rule = on_error("OrderException", Policy::named("Rule"));
        let flow = Flow::new("orders")
            .with_rules(Rules::default().with(rule))
            .with_default(Policy::named("Default"));
        let provided = Policy::named("Provided");
        let ruled = Failure::of_type("shop::OrderException");
        let other = Failure::of_type("shop::CriticalException");
        assert_eq!(decided_by(&flow, &ruled, Some(&provided)).as_deref(), Some("Rule"));
        assert_eq!(decided_by(&flow, &other, Some(&provided)).as_deref(), Some("Provided"));
        assert_eq!(decided_by(&flow, &other, None).as_deref(), Some("Default"));
        assert!(!flow.needs_provider(&RecordView::default(), &Incident::from(&ruled)));
    }

    /// "Policy Resolution Order", 3: `DefaultPolicy` is three in-memory retries.
    #[test]
    fn the_default_policy_is_three_in_memory_retries_a_tenth_of_a_second_apart() {
        let steps = steps(&Flow::new("orders"), &thrown("shop::Unforeseen"));
        assert_eq!((steps[0].runs, steps[0].elapsed.max), (4, 300 * MS));
        assert_eq!(steps[0].policy.as_deref(), Some("Unforeseen"));
    }

    /// "Combining Policy Provider and Policy Builder": a provider that declines changes nothing.
    #[test]
    fn a_provider_may_decline_and_may_forbid_retries() {
        let flow = Flow::new("orders").with_strategy(single("orders"));
        let failure = Failure::of_type("shop::CriticalException");
        assert_eq!(decided_by(&flow, &failure, None).as_deref(), Some("CriticalException"));
        let state = RetryState::default();
        let delivery =
            Delivery { record: RecordView::default(), state: &state, in_place: InPlace::default() };
        let no_retry = Policy::named("NoRetry");
        let incident = Incident { failure: &failure, asked: None, provided: Some(&no_retry) };
        let verdict = flow.decide(&delivery, &incident, Timestamp::default(), Draw::Seed(1));
        let expected = Action::DeadLetter { topic: flow.dead_letter(), reason: Reason::Policy };
        assert_eq!(verdict.action, expected);
    }

    /// "Approach 2: Topic-Level Policy Builder": a rule behind the shared set's catch-all applies.
    #[test]
    fn a_shared_catch_all_does_not_hide_the_topics_own_rule() {
        let steps = steps(&orders(), &thrown("shop::PaymentException"));
        assert_eq!(steps[0].policy.as_deref(), Some("PaymentException"));
        assert_eq!(published(&steps).len(), 15);
        assert_eq!(steps[0].delay, Span { min: 5 * SECOND, max: 10 * SECOND });
    }

    /// "Approach 2": `dontRetry()` goes directly to the DLT.
    #[test]
    fn a_policy_that_does_not_retry_dead_letters_at_once() {
        let steps = steps(&orders(), &thrown("shop::ValidationException"));
        assert_eq!((steps.len(), steps[0].runs), (1, 1));
        assert_eq!(end(&steps), dead_letter(Reason::Policy, "orders.dlt"));
    }

    /// "Policy Identifiers": each exception type has its own under a catch-all.
    #[test]
    fn a_dynamic_identifier_tells_exceptions_apart() {
        let id = |name: &'static str| decided_by(&orders(), &Failure::of_type(name), None);
        assert_eq!(id("java.io.IOException").as_deref(), Some("IOException"));
        assert_eq!(id("java.sql.SQLException").as_deref(), Some("SQLException"));
    }

    /// "Condition-Based Policies": a predicate over record and failure.
    #[test]
    fn a_condition_may_look_at_everything() {
        let limited = On::predicate(|_, failure| {
            failure.simple_name().as_deref() == Some("HttpException") && failure.status == Some(429)
        });
        let rules = orders().rules().clone().with(Rule::new(limited, Policy::named("RateLimited")));
        let flow = orders().with_rules(rules);
        let mut failure = Failure::of_type("http::HttpException");
        assert_eq!(decided_by(&flow, &failure, None).as_deref(), Some("HttpException"));
        failure.status = Some(429);
        assert_eq!(decided_by(&flow, &failure, None).as_deref(), Some("RateLimited"));
    }
}

mod configuration_reference {
    use super::*;

    /// "InMemoryRetryConfig", "Delay Strategies": fixed.
    #[test]
    fn a_fixed_in_memory_delay_is_the_same_each_time() {
        let config = in_memory(3, 100 * MS);
        assert_eq!([0, 1, 2].map(|n| config.backoff.delay(n, Draw::Seed(3))), [100 * MS; 3]);
        let default = InMemory::default();
        assert_eq!((default.attempts, default.backoff.nominal(2)), (3, 100 * MS));
    }

    /// "InMemoryRetryConfig", custom and linear: `100 * (attempt + 1)` ms, so 100, 200, 300 ms.
    #[test]
    fn a_linear_in_memory_delay_grows_by_its_initial() {
        let expected = [100 * MS, 200 * MS, 300 * MS, 400 * MS, 500 * MS];
        let linear = Backoff::from(Linear::new(100 * MS));
        let custom = Backoff::custom(|attempt, _, _| 100 * MS * (attempt + 1));
        assert_eq!([0, 1, 2, 3, 4].map(|n| linear.delay(n, Draw::Seed(3))), expected);
        assert_eq!([0, 1, 2, 3, 4].map(|n| custom.delay(n, Draw::Seed(3))), expected);
        let five = Policy::default().with_in_memory(InMemory::attempts(5).with_backoff(linear));
        let steps = steps(&Flow::new("orders").with_default(five), &[]);
        assert_eq!((steps[0].runs, steps[0].elapsed.max), (6, 1_500 * MS));
    }

    /// "NonBlockingRetryConfig", "Formula" and "Example Delays":
    /// `min(initialDelay * 2^attempt + random(0, initialDelay), maxDelay)`.
    #[test]
    fn exponential_random_delays_are_those_of_the_example() {
        let backoff = Backoff::from(ExponentialRandom::new(SECOND).with_max(5 * MINUTE));
        for (retried, from, to) in [(0, 1, 2), (1, 2, 3), (2, 4, 5), (3, 8, 9), (8, 256, 257)] {
            assert_eq!(backoff.delay(retried, Draw::Lowest), from * SECOND);
            assert_eq!(backoff.delay(retried, Draw::Highest), to * SECOND);
            for seed in 0..100 {
                let drawn = backoff.delay(retried, Draw::Seed(seed));
                assert!((from * SECOND..=to * SECOND).contains(&drawn), "{drawn:?}");
            }
        }
        for retried in [9, 10, 63, 64, 1_024, u32::MAX] {
            assert_eq!(backoff.delay(retried, Draw::Lowest), 5 * MINUTE, "capped at maxDelay");
        }
    }

    /// "NonBlockingRetryConfig": what is left out is from 1 s to 5 min.
    #[test]
    fn exponential_random_goes_from_one_second_to_five_minutes_by_default() {
        let backoff = Backoff::from(ExponentialRandom::default());
        assert_eq!(backoff.delay(0, Draw::Lowest), SECOND);
        assert_eq!(backoff.delay(30, Draw::Highest), 5 * MINUTE);
    }

    /// "Custom Delay Function": 10 s below 3, a minute below 7, then five minutes; 15 attempts.
    #[test]
    fn a_custom_delay_function_is_asked_with_attempts_from_zero() {
        let backoff = Backoff::custom(|attempt, _, _| match attempt {
            0..3 => 10 * SECOND,
            3..7 => MINUTE,
            _ => 5 * MINUTE,
        });
        let policy =
            Policy::named("Custom").with_delayed(Delayed::attempts(15).with_backoff(backoff));
        let flow = Flow::new("orders").with_strategy(single("orders")).with_default(policy);
        let delays = shortest_delays(&steps(&flow, &[]));
        assert_eq!(delays.len(), 15);
        assert_eq!(delays[..3], [10 * SECOND; 3]);
        assert_eq!(delays[3..7], [MINUTE; 4]);
        assert_eq!(delays[7..], [5 * MINUTE; 8]);
    }

    /// "RetryPolicy Types": what each of the four does with ten attempts of each sort.
    #[test]
    fn the_four_policy_types_differ_in_runs_and_publishes() {
        let none = Policy::named("NoRetry");
        let memory = none.clone().with_in_memory(in_memory(3, 100 * MS));
        let non_blocking = none.clone().with_delayed(exponential_random(10, SECOND, 5 * MINUTE));
        let full = memory.clone().with_delayed(exponential_random(10, SECOND, 50 * SECOND));
        for (policy, runs, publishes) in
            [(none, 1, 0), (memory, 4, 0), (non_blocking, 11, 10), (full, 14, 10)]
        {
            let flow = Flow::new("orders").with_strategy(single("orders")).with_default(policy);
            let steps = steps(&flow, &[]);
            assert_eq!(steps.iter().map(|step| step.runs).sum::<u32>(), runs);
            assert_eq!(published(&steps).len(), publishes);
            assert_eq!(steps.last().unwrap().to.as_deref(), Some("orders.dlt"));
        }
    }
}

mod scenario_1_orders {
    use super::*;

    fn flow() -> Flow {
        let levels = [
            ("10s", 10 * SECOND),
            ("1m", MINUTE),
            ("5m", 5 * MINUTE),
            ("15m", 15 * MINUTE),
            ("30m", 30 * MINUTE),
        ];
        let lock = Policy::named("OptimisticLock").with_in_memory(in_memory(5, 50 * MS));
        let payment = Policy::named("PaymentTimeout")
            .with_in_memory(in_memory(2, 100 * MS))
            .with_delayed(exponential_random(10, 5 * SECOND, 30 * MINUTE));
        Flow::new("orders")
            .with_strategy(Strategy::Tiers(tiers("orders.retry", &levels)))
            .with_max_overall_attempts(5)
            .with_rules(Rules::from(vec![
                on_error("OptimisticLockException", lock),
                on_error("PaymentTimeoutException", payment),
                on_error("OrderValidationException", Policy::default()),
            ]))
    }

    /// "Scenario 1": fast retry for optimistic locking conflicts.
    #[test]
    fn a_lock_conflict_is_tried_five_times_more_in_place() {
        let steps = steps(&flow(), &thrown("OptimisticLockException"));
        assert_eq!((steps.len(), steps[0].runs, steps[0].elapsed.max), (1, 6, 250 * MS));
    }

    /// "Scenario 1": long retry for payment timeouts, each in the first topic that is long enough,
    /// and no more often than five times overall.
    #[test]
    fn a_payment_timeout_backs_off_through_the_topics() {
        let steps = steps(&flow(), &thrown("PaymentTimeoutException"));
        assert_eq!(steps[0].runs, 3);
        let topics = ["10s", "10s", "1m", "1m", "5m"].map(|name| format!("orders.retry.{name}"));
        assert_eq!(published(&steps), topics);
        let secs: Vec<_> = shortest_delays(&steps).iter().map(Duration::as_secs).collect();
        assert_eq!(secs, [5, 10, 20, 40, 80]);
        assert_eq!(end(&steps), dead_letter(Reason::Overall, "orders.dlt"));
    }

    /// "Scenario 1": no retry for invalid orders.
    #[test]
    fn an_invalid_order_is_not_retried() {
        let steps = steps(&flow(), &thrown("OrderValidationException"));
        assert_eq!(steps[0].runs, 1);
        assert_eq!(end(&steps), dead_letter(Reason::Policy, "orders.dlt"));
        assert_eq!(steps[0].policy.as_deref(), Some("OrderValidationException"));
    }
}

mod scenario_2_rate_limits {
    use super::*;

    fn api_status(range: std::ops::RangeInclusive<u16>) -> On {
        On::predicate(move |_, failure| {
            failure.simple_name().as_deref() == Some("ApiException")
                && failure.status.is_some_and(|status| range.contains(&status))
        })
    }

    fn flow() -> Flow {
        let rate_limit = Policy::named("RateLimit").with_delayed(exponential_random(
            20,
            60 * SECOND,
            30 * MINUTE,
        ));
        let by_status = Identifier::from_failure(|failure| {
            let status = failure.status.map_or("null".to_owned(), |it| it.to_string());
            format!("ServerError-{status}")
        });
        let server = Policy::named(by_status)
            .with_in_memory(in_memory(3, 200 * MS))
            .with_delayed(exponential_random(15, 10 * SECOND, 10 * MINUTE));
        Flow::new("api-events")
            .with_strategy(single("api-events"))
            .with_max_overall_attempts(20)
            .with_rules(Rules::from(vec![
                Rule::new(api_status(429..=429), rate_limit),
                Rule::new(api_status(500..=599), server),
                Rule::new(api_status(400..=499), Policy::named("ClientError")),
            ]))
    }

    fn answered(status: u16) -> Failure {
        let mut failure = Failure::of_type("ApiException");
        failure.status = Some(status);
        failure
    }

    /// "Scenario 2": respect rate limits, from a minute to half an hour, twenty times.
    #[test]
    fn a_rate_limit_backs_off_for_up_to_half_an_hour() {
        let steps = steps(&flow(), &[answered(429)]);
        let minutes: Vec<_> = shortest_delays(&steps).iter().map(|it| it.as_secs() / 60).collect();
        assert_eq!(minutes[..6], [1, 2, 4, 8, 16, 30]);
        assert_eq!((minutes.len(), minutes[19]), (20, 30));
        assert_eq!(steps[0].delay, Span { min: MINUTE, max: 2 * MINUTE });
        assert_eq!(steps[0].policy.as_deref(), Some("RateLimit"));
    }

    /// "Scenario 2": server errors are counted by status, first in place, then 15 times.
    #[test]
    fn a_server_error_is_counted_under_its_status() {
        let steps = steps(&flow(), &[answered(503)]);
        assert_eq!(steps[0].policy.as_deref(), Some("ServerError-503"));
        assert_eq!((steps[0].runs, published(&steps).len()), (4, 15));
        assert_eq!(end(&steps), dead_letter(Reason::Attempts, "api-events.dlt"));
    }

    /// "Scenario 2": another status is another identifier, and starts its count again.
    #[test]
    fn another_status_starts_its_own_count() {
        let failures = [answered(503), answered(503), answered(500), answered(500)];
        let steps = steps(&flow(), &failures);
        let counts: Vec<_> =
            steps.iter().map(|it| (it.policy_attempt, it.overall_attempt)).collect();
        assert_eq!(counts[..4], [(1, 1), (2, 2), (1, 3), (2, 4)]);
        assert_eq!([0, 1, 2, 3].map(|at: usize| steps[at].runs), [4, 1, 4, 1]);
    }

    /// "Scenario 2": client errors are not retried, but 429 was declared before them.
    #[test]
    fn a_client_error_is_not_retried() {
        let steps = steps(&flow(), &[answered(404)]);
        assert_eq!(steps[0].policy.as_deref(), Some("ClientError"));
        assert_eq!(end(&steps), dead_letter(Reason::Policy, "api-events.dlt"));
    }
}

mod scenario_3_database {
    use super::*;

    /// The SQL state travels in the message here.
    fn sql_state(failure: &Failure) -> &str {
        failure.message.as_deref().unwrap_or("")
    }

    fn sql_error(state: &'static str) -> Failure {
        Failure::of_type("java.sql.SQLException").with_message(state)
    }

    fn flow() -> Flow {
        let levels = [
            ("1s", SECOND),
            ("5s", 5 * SECOND),
            ("15s", 15 * SECOND),
            ("1m", MINUTE),
            ("5m", 5 * MINUTE),
        ];
        let id = Identifier::from_failure(|failure| match sql_state(failure) {
            "08000" | "08001" | "08003" | "08004" | "08006" => "ConnectionError".into(),
            other => format!("SQLException-{other}"),
        });
        let backoff = Backoff::custom(|attempt, _, _| match attempt {
            0 | 1 => SECOND,
            2 | 3 => 5 * SECOND,
            4 | 5 => 15 * SECOND,
            _ => MINUTE,
        });
        let connection = Policy::named(id)
            .with_in_memory(in_memory(5, 200 * MS))
            .with_delayed(Delayed::attempts(10).with_backoff(backoff));
        let constraint = On::predicate(|_, failure| {
            failure.simple_name().as_deref() == Some("SQLException")
                && sql_state(failure).starts_with("23")
        });
        Flow::new("db-sync")
            .with_strategy(Strategy::DelayThenRetry {
                delays: tiers("db-sync.delay", &levels),
                retry: "db-sync.retry".into(),
            })
            .with_max_overall_attempts(10)
            .with_rules(Rules::from(vec![
                on_error("SQLException", connection),
                Rule::new(constraint, Policy::named("ConstraintViolation")),
            ]))
    }

    /// "Scenario 3": quick in-memory retries, then the custom delays over the delay topics.
    #[test]
    fn a_lost_connection_takes_the_delay_topic_of_its_delay() {
        let steps = steps(&flow(), &[sql_error("08001")]);
        assert_eq!(steps[0].policy.as_deref(), Some("ConnectionError"));
        assert_eq!(steps[0].runs, 6);
        let names = ["1s", "1s", "5s", "5s", "15s", "15s", "1m", "1m", "1m", "1m"];
        assert_eq!(published(&steps), names.map(|name| format!("db-sync.delay.{name}")));
        let relays = steps.iter().filter(|step| step.then == StepEnd::Relay);
        assert!(relays.clone().all(|step| step.to.as_deref() == Some("db-sync.retry")));
        assert_eq!(relays.count(), 10);
        assert_eq!(end(&steps), dead_letter(Reason::Attempts, "db-sync.dlt"));
    }

    /// "Scenario 3": other SQL errors are counted under their own identifier.
    #[test]
    fn other_sql_errors_are_told_apart_by_their_code() {
        let id = decided_by(&flow(), &sql_error("40001"), None);
        assert_eq!(id.as_deref(), Some("SQLException-40001"));
    }

    /// "Scenario 3": no retry for constraint violations, although the rule comes second.
    #[test]
    fn a_constraint_violation_is_not_retried() {
        let steps = steps(&flow(), &[sql_error("23505")]);
        assert_eq!(steps[0].policy.as_deref(), Some("ConstraintViolation"));
        assert_eq!(end(&steps), dead_letter(Reason::Policy, "db-sync.dlt"));
    }
}

mod scenario_4_notifications {
    use super::*;

    fn flow() -> Flow {
        let levels = [
            ("10s", 10 * SECOND),
            ("30s", 30 * SECOND),
            ("1m", MINUTE),
            ("5m", 5 * MINUTE),
            ("15m", 15 * MINUTE),
            ("30m", 30 * MINUTE),
            ("1h", HOUR),
            ("2h", 2 * HOUR),
        ];
        let email = Policy::named("EmailService")
            .with_in_memory(in_memory(3, 100 * MS))
            .with_delayed(exponential_random(8, 10 * SECOND, 2 * HOUR));
        let sms_delays = Backoff::custom(|attempt, _, _| match attempt {
            0 => 30 * SECOND,
            1 => 2 * MINUTE,
            2 => 5 * MINUTE,
            3 => 15 * MINUTE,
            _ => 30 * MINUTE,
        });
        let sms = Policy::named("SmsService")
            .with_in_memory(in_memory(2, 50 * MS))
            .with_delayed(Delayed::attempts(5).with_backoff(sms_delays));
        let push = Policy::named("PushService")
            .with_in_memory(in_memory(5, 200 * MS))
            .with_delayed(exponential_random(10, 5 * SECOND, HOUR));
        Flow::new("notifications")
            .with_strategy(Strategy::Tiers(tiers("notifications.retry", &levels)))
            .with_max_overall_attempts(8)
            .with_rules(Rules::from(vec![
                on_error("EmailServiceException", email),
                on_error("SmsServiceException", sms),
                on_error("PushServiceException", push),
            ]))
    }

    fn topics(steps: &[Step]) -> Vec<&str> {
        let stem = "notifications.retry.";
        published(steps).iter().map(|topic| topic.strip_prefix(stem).unwrap_or(topic)).collect()
    }

    /// "Scenario 4": email, moderate.
    #[test]
    fn email_doubles_from_ten_seconds() {
        let steps = steps(&flow(), &thrown("EmailServiceException"));
        assert_eq!(steps[0].runs, 4);
        assert_eq!(topics(&steps), ["10s", "30s", "1m", "5m", "5m", "15m", "15m", "30m"]);
    }

    /// "Scenario 4": SMS, its own five delays.
    #[test]
    fn sms_takes_its_own_delays() {
        let steps = steps(&flow(), &thrown("SmsServiceException"));
        assert_eq!(steps[0].runs, 3);
        assert_eq!(topics(&steps), ["30s", "5m", "5m", "15m", "30m"]);
        let secs: Vec<_> = shortest_delays(&steps).iter().map(Duration::as_secs).collect();
        assert_eq!(secs, [30, 120, 300, 900, 1_800]);
        assert_eq!(end(&steps), dead_letter(Reason::Attempts, "notifications.dlt"));
    }

    /// "Scenario 4": push, aggressive, and capped at eight by the overall attempts.
    #[test]
    fn push_is_tried_most_and_capped_overall() {
        let steps = steps(&flow(), &thrown("PushServiceException"));
        assert_eq!(steps[0].runs, 6);
        assert_eq!(published(&steps).len(), 8);
        assert_eq!(end(&steps), dead_letter(Reason::Overall, "notifications.dlt"));
    }

    /// "Scenario 4": "Fallback to alternative channels" is another exception, and its policy
    /// starts afresh, runs in place included.
    #[test]
    fn another_channel_starts_afresh() {
        let failures = ["EmailServiceException", "EmailServiceException", "SmsServiceException"];
        let steps = steps(&flow(), &failures.map(Failure::of_type));
        assert_eq!(topics(&steps)[..4], ["10s", "30s", "30s", "5m"]);
        assert_eq!([0, 1, 2, 3].map(|at: usize| steps[at].runs), [4, 1, 3, 1]);
        assert_eq!([1, 2].map(|at: usize| steps[at].policy_attempt), [2, 1]);
    }
}

mod best_practices {
    use super::*;

    /// "How Identifier Changes Affect Retry Counting".
    fn changing() -> Flow {
        Flow::new("orders")
            .with_strategy(single("orders"))
            .with_max_overall_attempts(10)
            .with_rules(Rules::from(vec![
                on_error(
                    "SimpleException",
                    Policy::named("Simple").with_delayed(Delayed::attempts(2)),
                ),
                on_error(
                    "ConcurrencyException",
                    Policy::named("Concurrency").with_delayed(Delayed::attempts(3)),
                ),
            ]))
    }

    fn in_turn(names: &str, times: usize) -> Vec<Failure> {
        let failure = |name| match name {
            'S' => Failure::of_type("SimpleException"),
            _ => Failure::of_type("ConcurrencyException"),
        };
        names.repeat(times).chars().map(failure).collect()
    }

    /// "How Identifier Changes Affect Retry Counting": the walk-through's four attempts. The
    /// document shows the policy's count before the publish and the total after it.
    #[test]
    fn a_change_of_identifier_resets_the_policy_count_and_never_the_total() {
        let steps = steps(&changing(), &in_turn("SCCS", 1));
        let shown: Vec<_> = steps[..4]
            .iter()
            .map(|it| (it.policy.as_deref().unwrap(), it.policy_attempt - 1, it.overall_attempt))
            .collect();
        assert_eq!(
            shown,
            [("Simple", 0, 1), ("Concurrency", 0, 2), ("Concurrency", 1, 3), ("Simple", 0, 4)]
        );
        assert!(steps[..4].iter().all(|it| it.to.as_deref() == Some("orders.retry")));
    }

    /// "How Identifier Changes Affect Retry Counting": "continues until total retry count reaches
    /// maxOverallAttempts (10). Then: Send to DLT regardless of policy-specific retry counts".
    #[test]
    fn exceptions_that_keep_changing_end_after_ten_publishes() {
        let steps = steps(&changing(), &in_turn("SCCS", 8));
        assert_eq!(published(&steps).len(), 10);
        assert_eq!(end(&steps), dead_letter(Reason::Overall, "orders.dlt"));
        assert!(steps.last().unwrap().policy_attempt < 2, "the policy itself had attempts left");
    }

    /// "Why This Design Matters": two times the one, three times the other, again and again.
    #[test]
    fn taking_turns_just_before_exhaustion_is_no_infinite_loop() {
        let steps = steps(&changing(), &in_turn("SSCCC", 8));
        let policy_counts: Vec<_> = steps.iter().map(|it| it.policy_attempt).collect();
        assert_eq!(policy_counts[..10], [1, 2, 1, 2, 3, 1, 2, 1, 2, 3]);
        assert_eq!(steps.len(), 11);
        assert_eq!(end(&steps), dead_letter(Reason::Overall, "orders.dlt"));
    }

    /// "Overall Attempts vs Policy Attempts": a policy alone ends at its own attempts.
    #[test]
    fn one_exception_alone_ends_at_its_policys_attempts() {
        let steps = steps(&changing(), &in_turn("C", 1));
        assert_eq!(published(&steps).len(), 3);
        assert_eq!(end(&steps), dead_letter(Reason::Attempts, "orders.dlt"));
    }

    fn with_database_policy(attempts: u32) -> Flow {
        let database = Policy::named("DbException")
            .with_delayed(Delayed::attempts(attempts).with_backoff(ExponentialRandom::default()));
        Flow::new("orders")
            .with_strategy(single("orders"))
            .with_rules(Rules::default().with(on_error("DatabaseException", database)))
    }

    /// "Example: How Overall Attempts Caps Policy Attempts": 3 of 10.
    #[test]
    fn the_overall_cap_cuts_ten_policy_attempts_to_three() {
        let flow = with_database_policy(10).with_max_overall_attempts(3);
        let steps = steps(&flow, &thrown("DatabaseException"));
        assert_eq!(published(&steps).len(), 3);
        assert_eq!(end(&steps), dead_letter(Reason::Overall, "orders.dlt"));
    }

    /// "Example: How Overall Attempts Caps Policy Attempts", the good one: 15 leave room for 10.
    #[test]
    fn an_overall_cap_above_the_policys_leaves_it_alone() {
        let flow = with_database_policy(10).with_max_overall_attempts(15);
        let steps = steps(&flow, &thrown("DatabaseException"));
        assert_eq!(published(&steps).len(), 10);
        assert_eq!(end(&steps), dead_letter(Reason::Attempts, "orders.dlt"));
    }

    /// "Key Rule": `maxOverallAttempts` should be at least the highest of any policy, which is
    /// what is derived where it is left out.
    #[test]
    fn the_derived_overall_cap_leaves_room_for_every_policy() {
        assert_eq!(with_database_policy(3).max_overall_attempts(), 10);
        assert_eq!(with_database_policy(20).max_overall_attempts(), 20);
        let default = Policy::default().with_delayed(Delayed::attempts(30));
        assert_eq!(with_database_policy(20).with_default(default).max_overall_attempts(), 30);
        let tier = Tier::new("orders.retry", SECOND).with_attempts(40);
        let tiered = with_database_policy(20).with_strategy(Strategy::Tiers(vec![tier]));
        assert_eq!(tiered.max_overall_attempts(), 40);
    }

    /// "How In-Memory and Non-Blocking Attempts Interact": 1 + 3 + 5 = 9 runs, of which five
    /// publishes count.
    #[test]
    fn one_and_three_and_five_are_nine_runs() {
        let payment = Policy::named("Payment")
            .with_in_memory(InMemory::attempts(3))
            .with_delayed(Delayed::attempts(5).with_backoff(ExponentialRandom::default()));
        let flow = Flow::new("payments")
            .with_strategy(single("payments"))
            .with_max_overall_attempts(5)
            .with_rules(Rules::default().with(on_error("PaymentException", payment)));
        let steps = steps(&flow, &thrown("PaymentException"));
        let runs: Vec<_> = steps.iter().map(|step| step.runs).collect();
        assert_eq!(runs, [4, 1, 1, 1, 1, 1]);
        assert_eq!(runs.iter().sum::<u32>(), 9);
        assert_eq!(steps.last().unwrap().overall_attempt, 5);
        assert_eq!(steps.last().unwrap().to.as_deref(), Some("payments.dlt"));
    }

    /// "Best Practice: Set Overall Attempts Generously": 20 + 5.
    #[test]
    fn a_generous_overall_cap_lets_the_highest_policy_run_out_first() {
        let flow = with_database_policy(20).with_max_overall_attempts(25);
        let steps = steps(&flow, &thrown("DatabaseException"));
        assert_eq!(published(&steps).len(), 20);
        assert_eq!(end(&steps), dead_letter(Reason::Attempts, "orders.dlt"));
    }

    /// "3. Use Meaningful Policy Identifiers": `ApiError-${statusCode ?: "unknown"}`.
    #[test]
    fn an_identifier_with_context_says_unknown_where_there_is_none() {
        let id = Identifier::parse("ApiError-{status}").unwrap();
        assert_eq!(id.resolve(&Failure::of_status(502)), "ApiError-502");
        assert_eq!(id.resolve(&Failure::of_kind(Kind::TIMEOUT)), "ApiError-unknown");
    }

    /// "6. Use Reusable Policy Functions": one set for several topics, with rules of their own.
    #[test]
    fn a_set_of_rules_serves_several_flows() {
        let standard = Rules::from(vec![
            on_error("DatabaseException", Policy::named("Database")),
            on_error("ValidationException", Policy::named("Validation")),
        ]);
        let orders = Flow::new("orders").with_rules(standard.clone());
        let gateway = on_error("PaymentGatewayException", Policy::named("Gateway"));
        let payments =
            Flow::new("payments").with_rules(Rules::default().with(gateway).with_all(&standard));
        let database = Failure::of_type("DatabaseException");
        let gateway = Failure::of_type("PaymentGatewayException");
        assert_eq!(decided_by(&orders, &database, None).as_deref(), Some("Database"));
        assert_eq!(decided_by(&payments, &database, None).as_deref(), Some("Database"));
        assert_eq!(decided_by(&payments, &gateway, None).as_deref(), Some("Gateway"));
        let unruled = decided_by(&orders, &gateway, None);
        assert_eq!(unruled.as_deref(), Some("PaymentGatewayException"), "not in the shared set");
    }
}

mod advanced_topics {
    use super::*;

    /// "Custom Delay Functions": business hours, doubled before 9 and after 17 o'clock.
    #[test]
    fn a_delay_may_depend_on_the_time_of_day() {
        let backoff = Backoff::custom(|attempt, _, now| {
            let hour = now.as_millis().div_euclid(3_600_000).rem_euclid(24);
            let base = [MINUTE, 5 * MINUTE, 15 * MINUTE];
            let base = base.get(attempt as usize).copied().unwrap_or(30 * MINUTE);
            if (9..=17).contains(&hour) { base } else { base * 2 }
        });
        let policy =
            Policy::named("Office").with_delayed(Delayed::attempts(10).with_backoff(backoff));
        let flow = Flow::new("orders").with_strategy(single("orders")).with_default(policy);
        let delay_at = |hour: i64, published: u32| {
            let state = RetryState {
                overall: published,
                policy: Some("Office".into()),
                policy_attempts: published,
                ..RetryState::default()
            };
            let record = RecordView::default();
            let delivery = Delivery { record, state: &state, in_place: InPlace::default() };
            let failure = Failure::default();
            let now = Timestamp::from_millis(1_700_006_400_000 + hour * 3_600_000);
            let verdict = flow.decide(&delivery, &Incident::from(&failure), now, Draw::Seed(0));
            match verdict.action {
                Action::Publish { delay, due, .. } => {
                    assert_eq!(due, now.after(delay));
                    delay
                }
                other => panic!("{other:?}"),
            }
        };
        assert_eq!([0, 1, 2, 3].map(|n| delay_at(12, n).as_secs() / 60), [1, 5, 15, 30]);
        assert_eq!([0, 1, 2, 3].map(|n| delay_at(20, n).as_secs() / 60), [2, 10, 30, 60]);
    }

    /// "Custom Delay Functions": the function sees the exception.
    #[test]
    fn a_delay_may_depend_on_the_failure() {
        let backoff = Backoff::custom(|_, failure, _| match failure.status {
            Some(429) => MINUTE,
            _ => SECOND,
        });
        let policy = Policy::named("Api").with_delayed(Delayed::attempts(2).with_backoff(backoff));
        let flow = Flow::new("orders").with_strategy(single("orders")).with_default(policy);
        let steps = steps(&flow, &[429, 503].map(Failure::of_status));
        assert_eq!(shortest_delays(&steps), [MINUTE, SECOND]);
    }

    /// "Custom Retry Policy Provider": the policy is made when it is asked for, and its attempts
    /// fit under a derived overall cap.
    #[test]
    fn a_provided_policy_gets_all_of_its_attempts() {
        let flow = Flow::new("orders").with_strategy(single("orders"));
        let aggressive = Policy::named("aggressive").with_delayed(Delayed::attempts(12));
        let failure = Failure::of_kind(Kind::TIMEOUT);
        let mut publishes = 0;
        let mut state = RetryState::default();
        loop {
            let record = RecordView::default();
            let delivery = Delivery { record, state: &state, in_place: InPlace::default() };
            let incident = Incident { failure: &failure, asked: None, provided: Some(&aggressive) };
            let verdict = flow.decide(&delivery, &incident, Timestamp::default(), Draw::Seed(0));
            if !matches!(verdict.action, Action::Publish { .. }) {
                break;
            }
            publishes += 1;
            let RetryState { overall, policy_attempts, .. } = verdict.state;
            let policy = Some("aggressive".into());
            state = RetryState { overall, policy, policy_attempts, ..RetryState::default() };
        }
        assert_eq!(publishes, 12);
    }
}
