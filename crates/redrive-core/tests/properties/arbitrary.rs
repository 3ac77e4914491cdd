//! Flows, failures and records of all sorts.

use std::time::Duration;

use proptest::collection::vec;
use proptest::option::{of, weighted};
use proptest::prelude::*;
use redrive_core::{
    Backoff, Delayed, Exponential, ExponentialRandom, Failure, Flow, Identifier, InMemory, Kind,
    Linear, Match, On, Policy, Random, Rank, RetryState, Rule, Rules, Strategy as Layout, Then,
    Tier, Timestamp,
};

/// Any length of time at all.
pub fn any_duration() -> BoxedStrategy<Duration> {
    prop_oneof![
        duration(),
        any::<u64>().prop_map(Duration::from_nanos),
        any::<u64>().prop_map(Duration::from_secs),
        Just(Duration::ZERO),
        Just(Duration::MAX),
    ]
    .boxed()
}

/// From nothing to some years, in whole milliseconds.
pub fn duration() -> BoxedStrategy<Duration> {
    prop_oneof![
        4 => (0..5_000u64).prop_map(Duration::from_millis),
        4 => (0..7_200u64).prop_map(Duration::from_secs),
        1 => (0..2_000u64).prop_map(|days| Duration::from_hours(24 * days)),
    ]
    .boxed()
}

/// A backoff of every sort, made of such durations.
pub fn backoff_of(duration: BoxedStrategy<Duration>) -> impl Strategy<Value = Backoff> {
    prop_oneof![
        duration.clone().prop_map(Backoff::Fixed),
        linear_of(duration.clone()).prop_map(Backoff::from),
        exponential_of(duration.clone(), 0.1..4.0).prop_map(Backoff::from),
        (duration.clone(), duration.clone()).prop_map(|(initial, max)| ExponentialRandom::new(
            initial
        )
        .with_max(max)
        .into()),
        (duration.clone(), duration.clone())
            .prop_map(|(one, other)| Random::between(one, other).into()),
        vec(duration.clone(), 0..4).prop_map(Backoff::list),
        duration.prop_map(|step| Backoff::custom(move |retried, failure, _| {
            step.saturating_mul(retried % 5 + u32::from(failure.status.unwrap_or(0) % 3))
        })),
    ]
}

pub fn backoff() -> impl Strategy<Value = Backoff> {
    backoff_of(duration())
}

pub fn linear_of(duration: BoxedStrategy<Duration>) -> impl Strategy<Value = Linear> {
    (duration.clone(), of(duration)).prop_map(|(initial, max)| {
        let linear = Linear::new(initial);
        max.map_or(linear, |max| linear.with_max(max))
    })
}

pub fn exponential_of(
    duration: BoxedStrategy<Duration>,
    multiplier: std::ops::Range<f64>,
) -> impl Strategy<Value = Exponential> {
    let bounds = (of(duration.clone()), of(duration.clone()));
    (duration, multiplier, 0.0..1.0, bounds).prop_map(|(base, multiplier, jitter, (min, max))| {
        let plain = Exponential::new(base).with_multiplier(multiplier).with_jitter(jitter);
        let floored = min.map_or(plain, |min| plain.with_min(min));
        max.map_or(floored, |max| floored.with_max(max))
    })
}

const STATUSES: [u16; 5] = [404, 408, 429, 500, 503];
const ERRORS: [&str; 4] = ["shop::Timeout", "shop::Conflict", "Timeout", "shop::Odd<u8>"];

pub fn kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::KNOWN.to_vec())
}

/// A failure that asks for no waiting time.
pub fn failure() -> impl Strategy<Value = Failure> {
    (
        of(prop::sample::select(ERRORS.to_vec())),
        of(prop::sample::select(STATUSES.to_vec())),
        weighted(0.3, kind()),
        weighted(0.2, any::<bool>()),
    )
        .prop_map(|(error, status, kind, retryable)| {
            let mut failure = error.map_or_else(Failure::default, Failure::of_type);
            failure.status = status;
            failure.kind = kind;
            failure.retryable = retryable;
            failure
        })
}

/// A failure that may ask for a waiting time.
pub fn failure_that_may_ask_to_wait() -> impl Strategy<Value = Failure> {
    (failure(), of(duration())).prop_map(|(mut failure, wait)| {
        failure.retry_after = wait;
        failure
    })
}

pub fn failures() -> impl Strategy<Value = Vec<Failure>> {
    vec(failure(), 1..6)
}

fn identifier() -> impl Strategy<Value = Identifier> {
    prop_oneof![
        Just(Identifier::default()),
        prop::sample::select(vec!["A", "B", "C"]).prop_map(Identifier::from),
        Just(Identifier::from_failure(|failure| format!("S-{}", failure.status.unwrap_or(0)))),
    ]
}

fn then() -> impl Strategy<Value = Then> {
    prop_oneof![
        Just(Then::DeadLetter),
        Just(Then::Drop),
        any::<bool>().prop_map(|exit| Then::Stop { exit }),
    ]
}

pub fn policy() -> impl Strategy<Value = Policy> {
    let in_memory = (0..4u32, backoff())
        .prop_map(|(attempts, backoff)| InMemory::attempts(attempts).with_backoff(backoff));
    let delayed =
        (of(0..7u32), of(backoff())).prop_map(|(attempts, backoff)| Delayed { attempts, backoff });
    (identifier(), of(in_memory), weighted(0.8, delayed), then())
        .prop_map(|(id, in_memory, delayed, then)| Policy { id, in_memory, delayed, then })
}

/// What a rule matches, in one way only, and how specific that is.
pub fn ranked_on() -> impl Strategy<Value = (Rank, On)> {
    prop_oneof![
        Just((Rank::Any, On::any())),
        any::<bool>().prop_map(|retryable| {
            (Rank::Any, Match { retryable: Some(retryable), ..Match::default() }.into())
        }),
        prop::sample::select(vec!["Timeout", "Odd", "shop::Conflict"])
            .prop_map(|name| (Rank::Named, On::error(name))),
        prop::sample::select(STATUSES.to_vec())
            .prop_map(|status| (Rank::Named, On::status(status))),
        Just((Rank::Named, On::statuses(400..=499))),
        kind().prop_map(|kind| (Rank::Named, On::kind(kind))),
        prop::sample::select(STATUSES.to_vec()).prop_map(|status| {
            (Rank::Predicate, On::predicate(move |_, failure| failure.status == Some(status)))
        }),
    ]
}

fn on() -> impl Strategy<Value = On> {
    (ranked_on(), weighted(0.2, ranked_on())).prop_map(|((_, one), other)| match other {
        Some((_, other)) => one.or(other),
        None => one,
    })
}

pub fn rules() -> impl Strategy<Value = Rules> {
    let rule = (on(), policy()).prop_map(|(on, policy)| Rule::new(on, policy));
    vec(rule, 0..5).prop_map(Rules::from)
}

fn tiers() -> impl Strategy<Value = Vec<Tier>> {
    vec((duration(), 1..4u32), 1..5).prop_map(|tiers| {
        let tiers = tiers.into_iter().enumerate();
        tiers
            .map(|(at, (delay, attempts))| {
                Tier::new(format!("tier.{at}"), delay).with_attempts(attempts)
            })
            .collect()
    })
}

fn one_tier() -> impl Strategy<Value = Tier> {
    (of(duration()), of(1..6u32)).prop_map(|(delay, attempts)| Tier {
        delay,
        attempts,
        ..Tier::endless("tier.0")
    })
}

pub fn layout() -> impl Strategy<Value = Layout> {
    prop_oneof![
        1 => Just(Layout::None),
        2 => one_tier().prop_map(Layout::Single),
        4 => tiers().prop_map(Layout::Tiers),
        2 => tiers()
            .prop_map(|delays| Layout::DelayThenRetry { delays, retry: "retry".into() }),
        1 => one_tier().prop_map(Layout::BackToSource),
    ]
}

/// A flow without a cap on time.
pub fn flow() -> impl Strategy<Value = Flow> {
    (layout(), rules(), policy(), of(0..12u32)).prop_map(|(layout, rules, default, overall)| {
        let flow =
            Flow::new("source").with_strategy(layout).with_rules(rules).with_default(default);
        match overall {
            Some(overall) => flow.with_max_overall_attempts(overall),
            None => flow,
        }
    })
}

/// A flow with a cap on time.
pub fn impatient_flow() -> impl Strategy<Value = Flow> {
    (flow(), duration()).prop_map(|(flow, max)| flow.with_max_elapsed(max))
}

/// Any state that headers can bring, however little sense it makes.
pub fn any_state() -> impl Strategy<Value = RetryState<'static>> {
    let policy = of(prop::sample::select(vec!["A", "B", "Timeout", "default", ""]));
    let counts = (any::<u32>(), any::<u32>(), of(any::<u32>()), any::<u32>());
    (policy, counts, of(any::<i64>())).prop_map(|(policy, counts, first)| RetryState {
        overall: counts.0,
        policy: policy.map(Into::into),
        policy_attempts: counts.1,
        tier: counts.2,
        tier_attempts: counts.3,
        first_failed_at: first.map(Timestamp::from_millis),
    })
}

/// A state that a flow may well have left on a record.
pub fn likely_state() -> impl Strategy<Value = RetryState<'static>> {
    let policy = of(prop::sample::select(vec!["A", "B", "C", "Timeout", "default", "S-503"]));
    (policy, 0..12u32, 0..7u32, of((0..4u32, 1..5u32))).prop_map(
        |(policy, overall, policy_attempts, tier)| RetryState {
            overall: overall.max(policy_attempts),
            policy: policy.map(Into::into),
            policy_attempts,
            tier: tier.map(|it| it.0),
            tier_attempts: tier.map_or(0, |it| it.1),
            first_failed_at: None,
        },
    )
}

/// A time in the years 2020 to 2033.
pub fn now() -> impl Strategy<Value = Timestamp> {
    (1_580_000_000_000i64..2_000_000_000_000).prop_map(Timestamp::from_millis)
}
