//! A flow as large as real ones are, and a record on one of its retry topics.

use std::time::Duration;

use redrive_core::headers::{Dialect, Failed, Header, Place, ReadContext, Stamp, Stop};
use redrive_core::{
    Backoff, Delayed, Exponential, ExponentialRandom, Failure, Flow, Identifier, InMemory, Kind,
    Linear, On, Origin, Policy, RetryState, Rule, Rules, Strategy, Tier, Timestamp,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// The time of the failure.
pub const NOW: Timestamp = Timestamp::from_millis(1_700_000_060_250);

/// Three tiers and four rules, one of them with an identifier made from the failure.
pub fn flow() -> Flow {
    let rate_limit = Policy::named("RateLimit").with_delayed(
        Delayed::attempts(20)
            .with_backoff(ExponentialRandom::new(60 * SECOND).with_max(30 * MINUTE)),
    );
    let backoff =
        Exponential::new(10 * SECOND).with_jitter(0.1).with_min(SECOND).with_max(10 * MINUTE);
    let by_status = Identifier::parse("ServerError-{status}").unwrap();
    let server_error = Policy::named(by_status)
        .with_in_memory(
            InMemory::attempts(3).with_backoff(Backoff::Fixed(Duration::from_millis(200))),
        )
        .with_delayed(Delayed::attempts(15).with_backoff(backoff));
    let slow = Policy::named("Slow").with_delayed(Delayed::attempts(5));
    let in_place = InMemory::attempts(3).with_backoff(Linear::new(Duration::from_millis(100)));
    Flow::new("orders")
        .with_max_overall_attempts(6)
        .with_strategy(Strategy::Tiers(vec![
            Tier::new("orders.retry.30s", 30 * SECOND).with_attempts(3),
            Tier::new("orders.retry.5m", 5 * MINUTE).with_attempts(2),
            Tier::new("orders.retry.1h", 60 * MINUTE),
        ]))
        .with_rules(Rules::from(vec![
            Rule::new(On::status(429), rate_limit),
            Rule::new(On::statuses(500..=599), server_error),
            Rule::new(On::kind(Kind::TIMEOUT), slow),
            Rule::new(On::statuses(400..=499), Policy::named("ClientError")),
        ]))
        .with_default(Policy::default().with_in_memory(in_place).with_delayed(Delayed::default()))
}

/// What the record carries after its first hop under `policy`, three foreign headers included.
pub fn headers(policy: &'static str) -> Vec<Header<'static>> {
    [
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        ("content-type", "application/json"),
        ("tenant", "blue"),
        ("redrive-version", "1"),
        ("redrive-group", "billing"),
        ("redrive-origin-topic", "orders"),
        ("redrive-origin-partition", "17"),
        ("redrive-origin-offset", "123456789"),
        ("redrive-origin-timestamp", "1700000000000"),
        ("redrive-due", "1700000060000"),
        ("redrive-overall-attempts", "1"),
        ("redrive-policy", policy),
        ("redrive-policy-attempts", "1"),
        ("redrive-tier", "0"),
        ("redrive-tier-attempts", "1"),
        ("redrive-hop", "1"),
        ("redrive-first-failed-at", "1700000030000"),
        ("redrive-failed-at", "1700000030000"),
        ("redrive-error", "billing::UpstreamError"),
        ("redrive-error-message", "upstream answered 503 Service Unavailable"),
        ("redrive-status", "503"),
    ]
    .map(|(name, value)| Header::new(name, value.as_bytes()))
    .to_vec()
}

/// How the first tier is read.
pub fn context() -> ReadContext<'static> {
    ReadContext {
        group: "billing",
        place: Place::Tier { index: 0, delay: Some(30 * SECOND) },
        dialect: Dialect::Native,
        timestamp: Timestamp::from_millis(1_700_000_030_000),
    }
}

/// What the hop to the next tier writes.
pub fn stamp<'a>(state: &'a RetryState<'a>, failure: &'a Failure, due: Timestamp) -> Stamp<'a> {
    Stamp {
        group: "billing",
        origin: Origin { topic: "orders", partition: 17, offset: 123_456_789 },
        produced_at: Some(Timestamp::from_millis(1_700_000_000_000)),
        from: ("orders.retry.30s", 17, 4_711),
        state,
        hop: 2,
        epoch: None,
        redriven: 0,
        failure: Some(Failed { failure, at: NOW }),
        stop: Stop::Tier { due, delay: Some(30 * SECOND), forward_to: None },
        now: NOW,
    }
}
