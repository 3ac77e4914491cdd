//! The seed document "Time-Based Exponential Backoff Retry Pattern for Kafka": one retry topic, an
//! exponential backoff with jitter and bounds, a dead-letter queue.

use std::time::Duration;

use redrive_core::{
    Backoff, Delayed, Draw, Exponential, Failure, Flow, Policy, Reason, RecordView, Span, Step,
    StepEnd, Strategy, Tier, plan,
};

const MS: Duration = Duration::from_millis(1);

/// `RetryConfiguration` with its defaults: base 5 s, multiplier 2, from 1 s to 5 min, ± 10 %.
fn default_backoff() -> Exponential {
    Exponential::new(5_000 * MS)
        .with_multiplier(2.0)
        .with_jitter(0.1)
        .with_min(1_000 * MS)
        .with_max(300_000 * MS)
}

fn flow(backoff: impl Into<Backoff>, attempts: u32) -> Flow {
    Flow::new("events-topic")
        .with_dead_letter("events-topic-dlq")
        .with_strategy(Strategy::Single(Tier::endless("events-topic-retry")))
        .with_default(
            Policy::default().with_delayed(Delayed::attempts(attempts).with_backoff(backoff)),
        )
}

fn steps(flow: &Flow) -> Vec<Step> {
    plan(flow, RecordView::default(), &[])
}

fn span(min: u32, max: u32) -> Span {
    Span { min: min * MS, max: max * MS }
}

/// "Exponential Backoff Calculation", base: `baseDelay * (multiplier ^ (attempt - 1))`.
#[test]
fn the_base_calculation_multiplies_from_the_second_attempt_on() {
    let plain = Backoff::from(Exponential::new(5_000 * MS).with_multiplier(2.0));
    for (retried, expected) in [(0, 5_000), (1, 10_000), (2, 20_000), (3, 40_000), (9, 2_560_000)] {
        assert_eq!(plain.nominal(retried), expected * MS);
    }
    let third = Backoff::from(Exponential::new(1_000 * MS).with_multiplier(1.5));
    assert_eq!(third.nominal(2), 2_250 * MS);
}

/// "Exponential Backoff Calculation", jitter: `1.0 + (random - 0.5) * 0.2`.
#[test]
fn jitter_moves_a_delay_by_a_tenth_at_most_either_way() {
    let backoff = Backoff::from(default_backoff());
    for (retried, nominal) in [(0, 5_000), (1, 10_000), (2, 20_000)] {
        assert_eq!(backoff.delay(retried, Draw::Lowest), nominal * 9 / 10 * MS);
        assert_eq!(backoff.delay(retried, Draw::Highest), nominal * 11 / 10 * MS);
        let drawn: Vec<_> =
            (0..1_000).map(|seed| backoff.delay(retried, Draw::Seed(seed))).collect();
        let around = nominal * 9 / 10 * MS..=nominal * 11 / 10 * MS;
        assert!(drawn.iter().all(|it| around.contains(it)));
        let above = drawn.iter().filter(|it| **it > nominal * MS).count();
        assert!((400..600).contains(&above), "{above} of 1000 drawn above the middle");
    }
}

/// "Exponential Backoff Calculation", bounds: the maximum after the jitter, the minimum after the
/// maximum.
#[test]
fn bounds_apply_after_the_jitter() {
    let backoff = Backoff::from(default_backoff());
    // 5 s × 2^6 = 320 s: whatever is drawn, 300 s come of it or, at −10 %, 288 s.
    assert_eq!(backoff.delay(6, Draw::Highest), 300_000 * MS);
    assert_eq!(backoff.delay(6, Draw::Lowest), 288_000 * MS);
    assert_eq!(backoff.delay(7, Draw::Lowest), 300_000 * MS);
    let short = Backoff::from(
        Exponential::new(900 * MS).with_jitter(0.1).with_min(1_000 * MS).with_max(300_000 * MS),
    );
    assert_eq!(short.delay(0, Draw::Highest), 1_000 * MS);
    let crossed =
        Backoff::from(Exponential::new(5_000 * MS).with_max(1_000 * MS).with_min(2_000 * MS));
    assert_eq!(crossed.delay(0, Draw::Seed(1)), 2_000 * MS, "the minimum has the last word");
}

/// "Configuration Properties": `MaxRetryDelayMs` 300000 and `MinRetryDelayMs` 1000 hold on every
/// attempt.
#[test]
fn no_delay_leaves_one_second_to_five_minutes() {
    let backoff = Backoff::from(default_backoff());
    for retried in (0..200).chain([1_000, u32::MAX]) {
        for draw in [Draw::Lowest, Draw::Seed(u64::from(retried)), Draw::Highest] {
            let delay = backoff.delay(retried, draw);
            assert!((1_000 * MS..=300_000 * MS).contains(&delay), "{delay:?} at {retried}");
        }
    }
}

/// "Example Retry Timeline": 5, 10 and 20 s, each ± 10 %, and the fourth failure is a dead letter.
/// The sum follows from the formula: 31.5 to 38.5 s, not the "~37s" of the table.
#[test]
fn the_timeline_is_three_retries_and_then_the_dead_letter_queue() {
    let steps = steps(&flow(default_backoff(), 3));
    let delays: Vec<_> = steps.iter().map(|step| step.delay).collect();
    assert_eq!(delays, [span(4_500, 5_500), span(9_000, 11_000), span(18_000, 22_000), span(0, 0)]);
    let elapsed: Vec<_> = steps.iter().map(|step| step.elapsed).collect();
    assert_eq!(elapsed[..2], [span(4_500, 5_500), span(13_500, 16_500)]);
    assert_eq!(elapsed[2..], [span(31_500, 38_500), span(31_500, 38_500)]);
    assert_eq!(steps[3].then, StepEnd::DeadLetter(Reason::Attempts));
}

/// "Topic Structure": original topic, `-retry`, `-dlq`.
#[test]
fn failures_pass_the_one_retry_topic_on_the_way_to_the_queue() {
    let steps = steps(&flow(default_backoff(), 3));
    let from: Vec<_> = steps.iter().map(|step| step.from.as_str()).collect();
    let retry = "events-topic-retry";
    assert_eq!(from, ["events-topic", retry, retry, retry]);
    assert_eq!(steps[3].to.as_deref(), Some("events-topic-dlq"));
}

/// "Key Features": no in-memory delays. "Message Failure Handling": the attempt number rises by
/// one with each retry.
#[test]
fn every_retry_is_one_run_and_one_count() {
    let steps = steps(&flow(default_backoff(), 3));
    let counted: Vec<_> = steps.iter().map(|step| (step.runs, step.overall_attempt)).collect();
    assert_eq!(counted, [(1, 1), (1, 2), (1, 3), (1, 3)]);
}

/// "Configuration Properties": `UseExponentialBackoff: false` is the same `RetryDelayMs` each time.
#[test]
fn without_exponential_backoff_the_delay_stays_the_same() {
    let steps = steps(&flow(Backoff::Fixed(5_000 * MS), 3));
    let delays: Vec<_> = steps.iter().map(|step| step.delay).collect();
    assert_eq!(delays, [span(5_000, 5_000), span(5_000, 5_000), span(5_000, 5_000), span(0, 0)]);
}

/// "Error Handling": failures of the retry consumer go through the same retry logic.
#[test]
fn a_failure_on_the_retry_topic_counts_on_whatever_its_error() {
    let flow = flow(default_backoff(), 3).with_max_overall_attempts(3);
    let failures = ["a::Timeout", "b::Refused", "c::Reset", "d::Closed"].map(Failure::of_type);
    let steps = plan(&flow, RecordView::default(), &failures);
    let overall: Vec<_> = steps.iter().map(|step| step.overall_attempt).collect();
    assert_eq!(overall, [1, 2, 3, 3]);
    assert_eq!(steps[3].then, StepEnd::DeadLetter(Reason::Overall));
}
