//! The seed document "Пример повторной обработки сообщений Kafka по времени": a retry topic from
//! which a relay brings records back to the main topic when they are due.

use std::time::Duration;

use redrive_core::{
    Backoff, Delayed, Draw, Exponential, Flow, Policy, Random, Reason, RecordView, Step, StepEnd,
    Strategy, Then, Tier, plan,
};

const SECOND: Duration = Duration::from_secs(1);

/// The example: 30 s doubled each time, three attempts, then the record is thrown away.
fn policy() -> Policy {
    let backoff = Exponential::new(30 * SECOND);
    Policy::default().with_delayed(Delayed::attempts(3).with_backoff(backoff)).then(Then::Drop)
}

fn flow(policy: Policy) -> Flow {
    Flow::new("messages")
        .with_strategy(Strategy::BackToSource(Tier::endless("messages.retry")))
        .with_default(policy)
}

fn steps(flow: &Flow) -> Vec<Step> {
    plan(flow, RecordView::default(), &[])
}

fn delays(steps: &[Step]) -> Vec<Duration> {
    let published = steps.iter().filter(|step| step.then == StepEnd::Publish);
    published.map(|step| step.delay.max).collect()
}

/// «Механизм повторной обработки», 2: `30 * 2^(retry_count-1)` секунд.
#[test]
fn the_delay_doubles_from_thirty_seconds() {
    let backoff = Backoff::from(Exponential::new(30 * SECOND));
    for (retry_count, secs) in [(1, 30), (2, 60), (3, 120), (4, 240), (11, 30_720)] {
        assert_eq!(backoff.delay(retry_count - 1, Draw::Seed(9)), secs * SECOND);
    }
}

/// «Механизм повторной обработки», 3 и 4: to the retry topic, and back to the main one when due.
#[test]
fn every_retry_goes_over_the_retry_topic_back_to_the_main_one() {
    let steps = steps(&flow(policy()));
    let way: Vec<_> =
        steps.iter().map(|it| (it.from.as_str(), it.to.as_deref(), it.then)).collect();
    let publish = ("messages", Some("messages.retry"), StepEnd::Publish);
    let relay = ("messages.retry", Some("messages"), StepEnd::Relay);
    let dropped = ("messages", None, StepEnd::Drop(Reason::Attempts));
    assert_eq!(way, [publish, relay, publish, relay, publish, relay, dropped]);
    assert_eq!(delays(&steps), [30 * SECOND, 60 * SECOND, 120 * SECOND]);
}

/// «Механизм повторной обработки», 1 и 5: `retry_count` rises with each failure and a record is
/// thrown away after three retries.
#[test]
fn a_record_is_dropped_after_three_retries() {
    let steps = steps(&flow(policy()));
    let counts: Vec<_> = steps.iter().map(|step| step.overall_attempt).collect();
    assert_eq!(counts, [1, 1, 2, 2, 3, 3, 3]);
    let last = steps.last().unwrap();
    assert_eq!((last.then, last.to.as_deref()), (StepEnd::Drop(Reason::Attempts), None));
    assert_eq!(last.elapsed.max, 210 * SECOND);
}

/// «Описание», 3: a relay only moves; it runs nothing, waits for nothing and counts nothing.
#[test]
fn a_relay_hop_neither_runs_nor_counts() {
    let steps = steps(&flow(policy()));
    for (at, step) in steps.iter().enumerate().filter(|(_, it)| it.then == StepEnd::Relay) {
        assert_eq!((step.runs, step.delay.max, step.attempt_in_tier), (0, Duration::ZERO, None));
        assert_eq!(step.overall_attempt, steps[at - 1].overall_attempt);
        assert_eq!(step.policy_attempt, steps[at - 1].policy_attempt);
        assert_eq!(step.elapsed, steps[at - 1].elapsed);
    }
}

/// «Практические рекомендации», 1: topics for levels of retry, such as 1, 5 and 30 minutes.
#[test]
fn levels_of_retry_are_delay_topics_one_after_the_other() {
    let levels = [("retry-1min", 1), ("retry-5min", 5), ("retry-30min", 30)];
    let tiers = levels.map(|(topic, minutes)| Tier::new(topic, Duration::from_mins(minutes)));
    let flow = Flow::new("messages")
        .with_strategy(Strategy::Tiers(tiers.to_vec()))
        .with_default(Policy::default().with_delayed(Delayed::default()));
    let steps = steps(&flow);
    let to: Vec<_> = steps.iter().filter_map(|step| step.to.as_deref()).collect();
    assert_eq!(to, ["retry-1min", "retry-5min", "retry-30min", "messages.dlt"]);
    assert_eq!(delays(&steps), levels.map(|(_, minutes)| Duration::from_mins(minutes)));
}

/// «Практические рекомендации», 2: records that must not be lost go to a dead-letter queue.
#[test]
fn what_must_not_be_lost_ends_in_a_dead_letter_topic() {
    let steps = steps(&flow(policy().then(Then::DeadLetter)).with_dead_letter("messages.dlq"));
    assert_eq!(steps[6].then, StepEnd::DeadLetter(Reason::Attempts));
    assert_eq!(steps[6].to.as_deref(), Some("messages.dlq"));
}

/// «Практические рекомендации», 3: fixed intervals, exponential and random delays.
#[test]
fn delays_may_be_fixed_exponential_or_random() {
    let with = |backoff: Backoff| {
        let policy = Policy::default().with_delayed(Delayed::attempts(2).with_backoff(backoff));
        steps(&flow(policy))[0].delay
    };
    let fixed = with(Backoff::Fixed(45 * SECOND));
    assert_eq!((fixed.min, fixed.max), (45 * SECOND, 45 * SECOND));
    let random = with(Random::between(10 * SECOND, 90 * SECOND).into());
    assert_eq!((random.min, random.max), (10 * SECOND, 90 * SECOND));
    let exponential = with(Exponential::new(30 * SECOND).with_multiplier(3.0).into());
    assert_eq!((exponential.min, exponential.max), (30 * SECOND, 30 * SECOND));
}
