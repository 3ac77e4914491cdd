//! The sample config: it loads as it stands, and means what it says.

use std::time::Duration;

use redrive::config::{
    Config, DeadLetterFormat, Entity, FlowConfig, Handler, Kafka, Loaded, OnDeadLetter, Options,
    Ordering, Severity, Syntax,
};
use redrive::headers::Dialect;
use redrive::{Failure, Kind, RecordView, Span, Step, StepEnd, Strategy, Tier, plan};

use crate::support::{
    assert_same_plans, failures, foreign, json, only_flow, steps, valid, valid_flow, way, yaml,
};

const SAMPLE: &str = include_str!("../../../../examples/orders.yaml");

const SAMPLE_AS_JSON: &str = r#"{
  "kafka": { "bootstrap.servers": "${KAFKA:-localhost:9092}" },
  "group": "billing",
  "flows": [{
    "topic": "orders",
    "handler": { "http": { "url": "http://localhost:8080/orders", "timeout": "10s" } },
    "concurrency": 64,
    "ordering": "none",
    "retry": {
      "strategy": "tiers",
      "max_overall_attempts": 6,
      "topics": [
        { "topic": "orders.retry.30s", "delay": "30s", "attempts": 3 },
        { "topic": "orders.retry.5m", "delay": "00:05:00", "attempts": 2, "group": "billing-5m" },
        { "topic": "orders.retry.1h", "delay": "1h" }
      ]
    },
    "dead_letter": { "topic": "orders.dlt", "format": "raw" },
    "headers": "native",
    "policies": [
      { "id": "RateLimit", "on": { "status": 429 },
        "delayed": { "attempts": 20, "backoff": { "exponential_random": { "initial": "60s", "max": "30m" } } } },
      { "id": "ServerError-{status}", "on": { "status": "500..599" },
        "in_memory": { "attempts": 3, "backoff": { "fixed": "200ms" } },
        "delayed": { "attempts": 15, "backoff": { "exponential": {
          "base": "10s", "multiplier": 2, "jitter": "10%", "min": "1s", "max": "10m" } } } },
      { "id": "Slow", "on": { "kind": "timeout" }, "delayed": { "attempts": 5 } },
      { "id": "ClientError", "on": { "status": "400..499" }, "then": "dead_letter" }
    ],
    "default": {
      "in_memory": { "attempts": 3, "backoff": { "linear": { "initial": "100ms" } } },
      "delayed": {}
    }
  }]
}"#;

const SECOND: Duration = Duration::from_secs(1);

fn config(loaded: Loaded) -> Config {
    loaded.config.unwrap()
}

fn sample() -> FlowConfig {
    only_flow(config(yaml(SAMPLE)))
}

fn timeout() -> Failure {
    Failure::of_kind(Kind::TIMEOUT)
}

fn ends_in_dead_letter(steps: &[Step], topic: &str) -> bool {
    steps.last().is_some_and(|it| {
        matches!(it.then, StepEnd::DeadLetter(_)) && it.to.as_deref() == Some(topic)
    })
}

#[test]
fn the_sample_loads_as_it_stands_and_only_its_low_overall_cap_is_remarked_on() {
    let loaded = yaml(SAMPLE);
    assert!(loaded.config.is_some());
    assert!(loaded.converted.is_none());
    let paths: Vec<_> = loaded.problems.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(
        paths,
        ["flows[0].policies[0].delayed.attempts", "flows[0].policies[1].delayed.attempts"]
    );
    assert!(loaded.problems.iter().all(|it| it.severity == Severity::Warning));
    assert!(loaded.problems[0].message.contains("20"), "{:?}", loaded.problems[0]);
    assert!(loaded.problems[1].message.contains("15"), "{:?}", loaded.problems[1]);
}

#[test]
fn the_sections_outside_the_retries_mean_what_they_say() {
    let config = config(yaml(SAMPLE));
    assert_eq!(config.group.as_deref(), Some("billing"));
    let Some(Kafka::Properties(properties)) = &config.kafka else {
        panic!("properties were expected, not {:?}", config.kafka)
    };
    assert_eq!(properties, &[("bootstrap.servers".to_owned(), "localhost:9092".to_owned())]);
    let flow = config.flow("orders").unwrap();
    let Some(Handler::Http(service)) = &flow.handler else {
        panic!("an HTTP handler was expected, not {:?}", flow.handler)
    };
    assert_eq!(
        (service.url.as_str(), service.timeout),
        ("http://localhost:8080/orders", 10 * SECOND)
    );
    assert_eq!(flow.concurrency, 64);
    assert_eq!(flow.ordering, Ordering::None);
    assert_eq!(flow.dead_letter_format, DeadLetterFormat::Raw);
    assert_eq!(flow.dialect, Dialect::Native);
    assert_eq!(&**flow.flow.dead_letter(), "orders.dlt");
    assert!(config.flow("payments").is_none());
}

#[test]
fn the_broker_is_taken_from_the_environment_where_it_is_set() {
    let env = |name: &str| (name == "KAFKA").then(|| "kafka-1:9092".to_owned());
    let options = Options { topic: None, group: None, env: &env };
    let loaded = Config::load(SAMPLE, Syntax::Yaml, &options).unwrap();
    let Some(Kafka::Properties(properties)) = config(loaded).kafka else {
        panic!("properties were expected")
    };
    assert_eq!(properties, [("bootstrap.servers".to_owned(), "kafka-1:9092".to_owned())]);
}

#[test]
fn the_retry_topics_have_their_delays_attempts_and_groups() {
    let flow = sample();
    let tiers = vec![
        Tier::new("orders.retry.30s", 30 * SECOND).with_attempts(3),
        Tier::new("orders.retry.5m", 300 * SECOND).with_attempts(2),
        Tier::new("orders.retry.1h", 3600 * SECOND).with_attempts(1),
    ];
    assert_eq!(*flow.flow.strategy(), Strategy::Tiers(tiers));
    assert_eq!(flow.tier_groups, [None, Some("billing-5m".to_owned()), None]);
    assert_eq!(flow.retry_group, None);
    assert_eq!(flow.flow.max_overall_attempts(), 6);
    assert_eq!(flow.flow.max_elapsed(), None);
    assert_eq!(flow.flow.retry_after_max(), 3600 * SECOND);
}

#[test]
fn the_sample_as_json_gives_the_same_plans() {
    let from_json = only_flow(config(json(SAMPLE_AS_JSON)));
    let from_yaml = sample();
    assert_same_plans(&from_yaml, &from_json);
    assert_eq!(from_yaml.flow.strategy(), from_json.flow.strategy());
    assert_eq!(from_yaml.tier_groups, from_json.tier_groups);
    assert_eq!(from_yaml.concurrency, from_json.concurrency);
    let messages = |loaded: Loaded| -> Vec<_> {
        loaded.problems.into_iter().map(|it| (it.path, it.message)).collect()
    };
    assert_eq!(messages(yaml(SAMPLE)), messages(json(SAMPLE_AS_JSON)));
}

#[test]
fn json_is_yaml_too() {
    assert_same_plans(&sample(), &only_flow(config(yaml(SAMPLE_AS_JSON))));
}

#[test]
fn a_rate_limit_takes_5m_three_times_then_1h_three_times() {
    let steps = steps(&sample(), &Failure::of_status(429));
    let topics: Vec<_> = steps.iter().map(|it| it.to.as_deref().unwrap()).collect();
    let (m5, h1) = ("orders.retry.5m", "orders.retry.1h");
    assert_eq!(topics, [m5, m5, m5, h1, h1, h1, "orders.dlt"]);
    assert!(ends_in_dead_letter(&steps, "orders.dlt"));
    assert!(steps.iter().all(|it| it.policy.as_deref() == Some("RateLimit") && it.runs == 1));
    // initial × 2^p + random(0, initial), at most 30 minutes
    let bounds: Vec<_> = steps.iter().map(|it| (it.delay.min, it.delay.max)).collect();
    let seconds =
        [(60, 120), (120, 180), (240, 300), (480, 540), (960, 1020), (1800, 1800), (0, 0)];
    assert_eq!(bounds, seconds.map(|(min, max)| (min * SECOND, max * SECOND)));
}

#[test]
fn an_unavailable_service_takes_30s_twice_5m_three_times_and_1h() {
    let steps = steps(&sample(), &Failure::of_status(503));
    let topics: Vec<_> = steps.iter().map(|it| it.to.as_deref().unwrap()).collect();
    let (s30, m5, h1) = ("orders.retry.30s", "orders.retry.5m", "orders.retry.1h");
    assert_eq!(topics, [s30, s30, m5, m5, m5, h1, "orders.dlt"]);
    assert!(ends_in_dead_letter(&steps, "orders.dlt"));
    assert!(steps.iter().all(|it| it.policy.as_deref() == Some("ServerError-503")));
    // One run and three more in place, 200 ms apart, but only where the identifier is new.
    let runs: Vec<_> = steps.iter().map(|it| it.runs).collect();
    assert_eq!(runs, [4, 1, 1, 1, 1, 1, 1]);
    assert_eq!(steps[0].delay, Span { min: 9 * SECOND, max: 11 * SECOND });
    assert_eq!(steps[0].elapsed.max, 11 * SECOND + Duration::from_millis(600));
    assert_eq!(steps[5].delay, Span { min: 288 * SECOND, max: 352 * SECOND });
}

#[test]
fn a_timeout_walks_30s_and_5m_until_its_five_attempts_are_spent() {
    let steps = steps(&sample(), &timeout());
    let topics: Vec<_> = steps.iter().map(|it| it.to.as_deref().unwrap()).collect();
    let (s30, m5) = ("orders.retry.30s", "orders.retry.5m");
    assert_eq!(topics, [s30, s30, s30, m5, m5, "orders.dlt"]);
    let in_tier: Vec<_> = steps.iter().map(|it| it.attempt_in_tier).collect();
    assert_eq!(in_tier, [Some(1), Some(2), Some(3), Some(1), Some(2), None]);
    let last = &steps[5];
    assert_eq!((last.policy_attempt, last.overall_attempt), (5, 5));
    assert_eq!(last.elapsed, Span { min: 690 * SECOND, max: 690 * SECOND });
    assert!(steps.iter().all(|it| it.policy.as_deref() == Some("Slow") && it.runs == 1));
}

#[test]
fn a_client_error_is_dead_lettered_at_once() {
    let steps = steps(&sample(), &Failure::of_status(404));
    assert_eq!(steps.len(), 1);
    assert!(ends_in_dead_letter(&steps, "orders.dlt"));
    assert_eq!((steps[0].policy.as_deref(), steps[0].runs), (Some("ClientError"), 1));
}

#[test]
fn what_no_rule_names_runs_in_place_with_growing_waits_and_then_walks_all_topics() {
    let steps = steps(&sample(), &Failure::default());
    let topics: Vec<_> = steps.iter().map(|it| it.to.as_deref().unwrap()).collect();
    let (s30, m5, h1) = ("orders.retry.30s", "orders.retry.5m", "orders.retry.1h");
    assert_eq!(topics, [s30, s30, s30, m5, m5, h1, "orders.dlt"]);
    assert_eq!(steps[0].runs, 4);
    // 100 + 200 + 300 ms in place, then 30 s
    assert_eq!(steps[0].elapsed.max, Duration::from_millis(30_600));
    assert_eq!(steps[0].policy.as_deref(), Some("default"));
}

#[test]
fn what_is_hopeless_by_its_class_is_dead_lettered_by_no_policy() {
    let steps = steps(&sample(), &Failure::of_kind(Kind::DECODE));
    assert_eq!(steps.len(), 1);
    assert_eq!(steps[0].policy, None);
    assert!(ends_in_dead_letter(&steps, "orders.dlt"));
}

/// "Example Flow" of the tiered retry topics document: six retries, then the error topic.
#[test]
fn the_tiered_documents_example_makes_its_six_retries_and_ends_in_the_error_topic() {
    let loaded = foreign(
        r#"{ "RetryTopics": [
          { "TopicName": "orders.retry.immediate", "Delay": "00:00:30", "RetryAttempts": 3 },
          { "TopicName": "orders.retry.short", "Delay": "00:05:00", "RetryAttempts": 2 },
          { "TopicName": "orders.retry.long", "Delay": "01:00:00", "RetryAttempts": 1 } ] }"#,
    );
    assert_eq!(
        way(&only_flow(config(loaded)), &Failure::default()),
        "orders.retry.immediate +30s, orders.retry.immediate +30s, orders.retry.immediate +30s, \
         orders.retry.short +300s, orders.retry.short +300s, orders.retry.long +3600s, orders.error"
    );
}

/// "Example Retry Timeline" of the time-based document: 5, 10 and 20 s, each ± 10 %.
#[test]
fn the_time_based_documents_defaults_take_between_31_5_and_38_5_seconds() {
    let flow = only_flow(config(foreign(r#"{ "Kafka": { "RetryConfiguration": {} } }"#)));
    let steps = steps(&flow, &Failure::default());
    let bounds: Vec<_> =
        steps.iter().map(|it| (it.delay.min.as_millis(), it.delay.max.as_millis())).collect();
    assert_eq!(bounds, [(4500, 5500), (9000, 11_000), (18_000, 22_000), (0, 0)]);
    let topics: Vec<_> = steps.iter().map(|it| it.to.as_deref().unwrap()).collect();
    assert_eq!(topics, ["orders-retry", "orders-retry", "orders-retry", "orders-dlq"]);
    assert_eq!(steps[3].elapsed.min, Duration::from_millis(31_500));
    assert_eq!(steps[3].elapsed.max, Duration::from_millis(38_500));
    assert!(steps.iter().all(|it| it.runs == 1));
}

/// "Механизм повторной обработки" of the PHP document: `30 * 2^(retry_count-1)`, three attempts,
/// then the message is dropped.
#[test]
fn the_php_documents_example_goes_back_to_its_source_three_times_and_is_dropped() {
    let flow = valid_flow(
        "
        flows:
          - topic: orders
            retry: { strategy: back-to-source, topics: [{ topic: orders.retry }] }
            headers: payload
            policies:
              - id: Unprocessed
                on: { retryable: true }
                delayed: { attempts: 3, backoff: { exponential: { base: 30s } } }
                then: drop
        ",
    );
    assert_eq!(
        way(&flow, &Failure::default()),
        "orders.retry +30s, relay orders, orders.retry +60s, relay orders, \
         orders.retry +120s, relay orders, drop"
    );
    let steps = steps(&flow, &Failure::default());
    assert!(steps.iter().filter(|it| it.then == StepEnd::Relay).all(|it| it.runs == 0));
    assert_eq!(steps.last().unwrap().to, None);
}

#[test]
fn a_change_of_failure_starts_the_new_policys_count_but_keeps_the_tier() {
    let flow = sample();
    let steps = plan(
        &flow.flow,
        RecordView::default(),
        &[timeout(), timeout(), Failure::of_status(503), timeout()],
    );
    let counts: Vec<_> = steps.iter().map(|it| (it.policy_attempt, it.overall_attempt)).collect();
    assert_eq!(counts[..4], [(1, 1), (2, 2), (1, 3), (1, 4)]);
    assert_eq!(steps[2].to.as_deref(), Some("orders.retry.30s"));
    // Three publishes to the first tier, whichever policy caused them, so the walk goes on.
    assert_eq!(steps[3].to.as_deref(), Some("orders.retry.5m"));
}

#[test]
fn every_failure_comes_to_an_end() {
    for failure in failures() {
        let steps = steps(&sample(), &failure);
        assert!(ends_in_dead_letter(&steps, "orders.dlt"), "{failure:?}");
        assert!(steps.len() <= 7, "{failure:?}");
    }
}

#[test]
fn only_flows_and_a_topic_are_needed_and_the_rest_is_derived() {
    let flow = valid_flow("flows: [{ topic: orders }]");
    assert_eq!(&**flow.flow.dead_letter(), "orders.dlt");
    assert_eq!(*flow.flow.strategy(), Strategy::None);
    assert_eq!((flow.concurrency, flow.ordering), (16, Ordering::None));
    assert_eq!(flow.dead_letter_format, DeadLetterFormat::Raw);
    assert_eq!(flow.dialect, Dialect::Native);
    assert!(flow.handler.is_none() && flow.tier_groups.is_empty());
    // The built-in default: three runs in place, 100 ms apart, then the dead-letter topic.
    let steps = steps(&flow, &Failure::default());
    assert_eq!((steps.len(), steps[0].runs), (1, 4));
    assert_eq!(steps[0].elapsed.max, Duration::from_millis(300));
}

#[test]
fn each_strategy_is_spelled_as_the_reference_says() {
    let strategy = |retry: &str| {
        valid_flow(&format!("flows: [{{ topic: orders, retry: {retry} }}]")).flow.strategy().clone()
    };
    let endless = || Tier::endless("orders.retry");
    assert_eq!(strategy("{}"), Strategy::None);
    assert_eq!(strategy("{ strategy: none }"), Strategy::None);
    assert_eq!(strategy("{ strategy: single }"), Strategy::Single(endless()));
    assert_eq!(
        strategy("{ strategy: single, topics: [{ topic: again, delay: 5s, attempts: 4 }] }"),
        Strategy::Single(Tier::endless("again").with_delay(5 * SECOND).with_attempts(4))
    );
    assert_eq!(
        strategy("{ strategy: back-to-source, topics: [{ delay: 5s }] }"),
        Strategy::BackToSource(endless().with_delay(5 * SECOND))
    );
    assert_eq!(
        strategy("{ topics: [{ topic: a, delay: 5s }, { topic: b, delay: 1m, attempts: 2 }] }"),
        Strategy::Tiers(vec![
            Tier::new("a", 5 * SECOND),
            Tier::new("b", 60 * SECOND).with_attempts(2)
        ])
    );
    let delays = vec![Tier::new("a", 5 * SECOND)];
    assert_eq!(
        strategy("{ strategy: delay-then-retry, topics: [{ topic: a, delay: 5s }] }"),
        Strategy::DelayThenRetry { delays: delays.clone(), retry: "orders.retry".into() }
    );
    assert_eq!(
        strategy(
            "{ strategy: delay-then-retry, retry_topic: again, topics: [{ topic: a, delay: 5s }] }"
        ),
        Strategy::DelayThenRetry { delays, retry: "again".into() }
    );
}

#[test]
fn the_caps_stand_beside_the_strategy() {
    let flow = valid_flow(
        "
        flows:
          - topic: orders
            retry: { strategy: single, max_overall_attempts: 3, max_elapsed: 24h, retry_after_max: 5m }
        ",
    );
    assert_eq!(flow.flow.max_overall_attempts(), 3);
    assert_eq!(flow.flow.max_elapsed(), Some(86_400 * SECOND));
    assert_eq!(flow.flow.retry_after_max(), 300 * SECOND);
}

/// The waits of a policy's delayed part on a single topic, least and most, in milliseconds.
fn waits(backoff: &str) -> Vec<(u128, u128)> {
    let flow = valid_flow(&format!(
        "
        flows:
          - topic: orders
            retry: {{ strategy: single }}
            policies: [{{ on: any, delayed: {{ attempts: 4, backoff: {backoff} }} }}]
        "
    ));
    let steps = steps(&flow, &Failure::default());
    let published = steps.iter().filter(|it| it.then == StepEnd::Publish);
    published.map(|it| (it.delay.min.as_millis(), it.delay.max.as_millis())).collect()
}

#[test]
fn each_backoff_is_spelled_as_the_reference_says() {
    let exact = |all: [u128; 4]| all.map(|it| (it, it)).to_vec();
    assert_eq!(waits("{ fixed: 1s }"), exact([1000; 4]));
    assert_eq!(waits("{ linear: { initial: 1s } }"), exact([1000, 2000, 3000, 4000]));
    assert_eq!(waits("{ linear: { initial: 1s, max: 2500ms } }"), exact([1000, 2000, 2500, 2500]));
    assert_eq!(waits("{ exponential: { base: 1s } }"), exact([1000, 2000, 4000, 8000]));
    assert_eq!(
        waits("{ exponential: { base: 1s, multiplier: 3, min: 2s, max: 10s } }"),
        exact([2000, 3000, 9000, 10_000])
    );
    for jitter in ["10%", "0.1", "'10%'"] {
        assert_eq!(
            waits(&format!("{{ exponential: {{ base: 1s, jitter: {jitter} }} }}")),
            [(900, 1100), (1800, 2200), (3600, 4400), (7200, 8800)],
            "{jitter}"
        );
    }
    assert_eq!(
        waits("{ exponential_random: { initial: 1s, max: 8s } }"),
        [(1000, 2000), (2000, 3000), (4000, 5000), (8000, 8000)]
    );
    assert_eq!(waits("{ exponential_random: {} }")[3], (8000, 9000));
    assert_eq!(waits("{ random: { min: 1s, max: 3s } }"), [(1000, 3000); 4]);
    assert_eq!(waits("{ list: [10s, 1m, 5m] }"), exact([10_000, 60_000, 300_000, 300_000]));
}

#[test]
fn in_memory_alone_means_three_runs_100ms_apart() {
    let flow = valid_flow("flows: [{ topic: orders, policies: [{ on: any, in_memory: {} }] }]");
    let steps = steps(&flow, &Failure::default());
    assert_eq!((steps.len(), steps[0].runs), (1, 4));
    assert_eq!(steps[0].elapsed.max, Duration::from_millis(300));
}

/// The identifier that a failure resolves to among these policies.
fn resolved(policies: &str, failure: &Failure) -> Option<String> {
    let flow = valid_flow(&format!("flows: [{{ topic: orders, policies: [{policies}] }}]"));
    steps(&flow, failure)[0].policy.clone()
}

#[test]
fn on_matches_error_status_kind_retryable_and_lists_of_them() {
    let hit = Some("Hit".to_owned());
    let on = |on: &str, failure: &Failure| {
        resolved(&format!("{{ id: Hit, on: {on}, then: drop }}"), failure)
    };
    let payment = Failure::of_type("shop::PaymentTimeout");
    assert_eq!(on("any", &payment), hit);
    assert_eq!(on("{ error: PaymentTimeout }", &payment), hit);
    assert_eq!(on("{ error: 'shop::PaymentTimeout' }", &payment), hit);
    assert_ne!(on("{ error: 'bank::PaymentTimeout' }", &payment), hit);
    assert_eq!(on("{ retryable: true }", &payment), hit);
    assert_ne!(on("{ retryable: false }", &payment), hit);
    assert_eq!(on("{ retryable: false }", &Failure::of_status(404)), hit);
    for (status, is_in) in [(499, false), (500, true), (599, true), (600, false)] {
        assert_eq!(on("{ status: 500..599 }", &Failure::of_status(status)) == hit, is_in);
    }
    for status in [502, 504] {
        assert_eq!(on("{ status: [502, 504] }", &Failure::of_status(status)), hit);
        assert_eq!(on("[{ status: 502 }, { status: 504 }]", &Failure::of_status(status)), hit);
    }
    assert_ne!(on("{ status: [502, 504] }", &Failure::of_status(503)), hit);
    assert_eq!(on("[{ kind: timeout }, any]", &Failure::of_status(503)), hit);
    // Several keys at once: all of them.
    let both = "{ status: 503, kind: timeout }";
    assert_ne!(on(both, &Failure::of_status(503)), hit);
    assert_ne!(on(both, &timeout()), hit);
    let mut timed_out = timeout();
    timed_out.status = Some(503);
    assert_eq!(on(both, &timed_out), hit);
}

#[test]
fn on_matches_headers_of_the_record() {
    use redrive::headers::Header;
    let flow = valid_flow(
        "
        flows:
          - topic: orders
            policies: [{ id: Sync, on: { header: { name: x-kind, value: sync } }, then: drop }]
        ",
    );
    let policy = |value: &'static [u8]| {
        let headers = [Header::new("x-kind", value)];
        let record = RecordView { headers: &headers, ..RecordView::default() };
        plan(&flow.flow, record, &[Failure::default()])[0].policy.clone()
    };
    assert_eq!(policy(b"sync").as_deref(), Some("Sync"));
    assert_eq!(policy(b"async").as_deref(), Some("default"));
}

#[test]
fn identifiers_are_built_from_the_failure() {
    let id = "{ id: '{error}/{kind}/{status}', on: any, then: drop }";
    let mut full = Failure::of_type("shop::PaymentTimeout");
    full.status = Some(503);
    full.kind = Some(Kind::TIMEOUT);
    assert_eq!(resolved(id, &full).as_deref(), Some("PaymentTimeout/timeout/503"));
    assert_eq!(resolved(id, &Failure::default()).as_deref(), Some("unknown/unknown/unknown"));
    let nameless = "{ on: any, then: drop }";
    assert_eq!(resolved(nameless, &full).as_deref(), Some("PaymentTimeout"));
    assert_eq!(resolved(nameless, &Failure::default()).as_deref(), Some("default"));
}

#[test]
fn stop_has_a_short_and_a_long_form() {
    use redrive::Then;
    for (then, expected) in [
        ("dead_letter", Then::DeadLetter),
        ("drop", Then::Drop),
        ("stop", Then::Stop { exit: false }),
        ("{ stop: {} }", Then::Stop { exit: false }),
        ("{ stop: { exit: false } }", Then::Stop { exit: false }),
        ("{ stop: { exit: true } }", Then::Stop { exit: true }),
    ] {
        let flow = valid_flow(&format!(
            "flows: [{{ topic: orders, policies: [{{ on: any, then: {then} }}] }}]"
        ));
        assert_eq!(flow.flow.rules().iter().next().unwrap().policy().then, expected, "{then}");
    }
}

#[test]
fn a_policy_set_stands_where_it_is_used() {
    let loaded = yaml(
        "
        policy_sets:
          common:
            - { id: Busy, on: { status: 503 }, in_memory: { attempts: 2 } }
            - { id: Everything, on: any }
        flows:
          - topic: orders
            policies:
              - { id: OwnBusy, on: { status: 503 } }
              - use: common
          - topic: payments
            policies:
              - use: common
              - { id: Bad, on: { status: 400..499 } }
        ",
    );
    let config = config(loaded);
    let policy = |topic: &str, status: u16| {
        let flow = config.flow(topic).unwrap();
        steps(flow, &Failure::of_status(status))[0].policy.clone().unwrap()
    };
    assert_eq!(policy("orders", 503), "OwnBusy");
    assert_eq!(policy("payments", 503), "Busy");
    // A catch-all in a shared set never hides a flow's own rule.
    assert_eq!(policy("payments", 404), "Bad");
    assert_eq!(policy("payments", 500), "Everything");
}

#[test]
fn kafka_may_be_the_embedded_broker() {
    let config = valid("kafka: embedded\nflows: [{ topic: orders }]");
    assert!(matches!(config.kafka, Some(Kafka::Embedded)));
}

#[test]
fn all_dialects_formats_and_orderings_are_known() {
    for (word, dialect) in [
        ("native", Dialect::Native),
        ("x", Dialect::X),
        ("tiered", Dialect::Tiered),
        ("quafka", Dialect::Quafka),
        ("spring", Dialect::Spring),
        ("payload", Dialect::Payload),
    ] {
        let flow = valid_flow(&format!("flows: [{{ topic: orders, headers: {word} }}]"));
        assert_eq!(flow.dialect, dialect);
    }
    for (word, ordering) in
        [("none", Ordering::None), ("partition", Ordering::Partition), ("key", Ordering::Key)]
    {
        let flow = valid_flow(&format!("flows: [{{ topic: orders, ordering: {word} }}]"));
        assert_eq!(flow.ordering, ordering);
    }
    let flow = valid_flow("flows: [{ topic: orders, ordering: key }]");
    assert_eq!((flow.entity, flow.on_dead_letter), (Entity::Key, OnDeadLetter::Hold));
    let pointer = Entity::Pointer("/order/id".parse().unwrap());
    for (text, entity) in [
        ("key", Entity::Key),
        ("{ header: order-id }", Entity::Header("order-id".to_owned())),
        ("{ pointer: /order/id }", pointer),
    ] {
        let flow = valid_flow(&format!(
            "flows: [{{ topic: orders, ordering: key, entity: {text}, on_dead_letter: release }}]"
        ));
        assert_eq!((flow.entity, flow.on_dead_letter), (entity, OnDeadLetter::Release));
    }
    let flow = valid_flow("flows: [{ topic: orders, dead_letter: { format: envelope } }]");
    assert_eq!(flow.dead_letter_format, DeadLetterFormat::Envelope);
    assert_eq!(&**flow.flow.dead_letter(), "orders.dlt");
}
