//! Which stops a record makes, by how the retry topics are laid out.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use redrive::{Context, Delayed, Failure, Flow, Policy, Record, Strategy, Tier};
use redrive_suite::broker::Sent;
use redrive_suite::trial::{Member, Run, Runs, Trial};

use super::fixed;

/// Starts a handler that fails this often, each time over a topic.
async fn failing(trial: &Trial, flow: Flow, times: u32) -> Result<(Member, Runs)> {
    let runs = Runs::default();
    let noted = runs.clone();
    let flow = flow.with_default(Policy::default().with_delayed(Delayed::default()));
    let member = trial
        .start(flow, move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            async move { if run.attempt < times { Err(Failure::of_status(503)) } else { Ok(()) } }
        })
        .await?;
    Ok((member, runs))
}

fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// The topics that it ran from. None of the runs was early.
fn stops(runs: &[Run]) -> Vec<&str> {
    for run in runs {
        assert!(run.due.is_none_or(|due| due <= run.at), "it ran early: {run:?}");
    }
    runs.iter().map(|it| it.topic.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_retry_topics_a_record_goes_from_the_source_to_the_dead_letter_topic() -> Result<()>
{
    let trial = Trial::new("none", 1).await?;
    let (member, runs) = failing(&trial, trial.flow(), u32::MAX).await?;
    trial.produce(["order"])?;
    let letters = trial.letters(1).await?;
    assert_eq!(letters[0].header("redrive-overall-attempts"), Some("0"));
    assert_eq!(stops(&runs.all()), [&trial.topic]);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_retry_topic_is_taken_again_and_again() -> Result<()> {
    let trial = Trial::new("single", 1).await?;
    let retry = trial.retry();
    let flow = trial
        .flow()
        .with_strategy(Strategy::Single(Tier::endless(&*retry).with_delay(millis(100))));
    let (member, runs) = failing(&trial, flow.with_max_overall_attempts(3), u32::MAX).await?;
    trial.produce(["order"])?;
    let letters = trial.letters(1).await?;
    assert_eq!(letters[0].header("redrive-reason"), Some("overall"));
    assert_eq!(stops(&runs.all()), [&trial.topic, &retry, &retry, &retry]);
    trial.settled(&[&trial.topic, &retry]).await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tiers_are_walked_with_their_delays_and_attempts() -> Result<()> {
    let trial = Trial::new("tiers", 1).await?;
    let (first, second) = (format!("{}.retry.1", trial.topic), format!("{}.retry.2", trial.topic));
    let tiers =
        vec![Tier::new(&*first, millis(100)).with_attempts(2), Tier::new(&*second, millis(300))];
    let flow = trial.flow().with_strategy(Strategy::Tiers(tiers));
    let (member, runs) = failing(&trial, flow, u32::MAX).await?;
    trial.produce(["order"])?;
    let letters = trial.letters(1).await?;
    let all = runs.all();
    assert_eq!(stops(&all), [&trial.topic, &first, &first, &second]);
    assert!(all[1].at - all[0].at >= 100 && all[3].at - all[2].at >= 300, "{all:?}");
    assert_eq!(letters[0].header("redrive-overall-attempts"), Some("3"));
    trial.settled(&[&trial.topic, &first, &second]).await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_with_a_backoff_takes_the_tier_that_is_long_enough() -> Result<()> {
    let trial = Trial::new("fitting", 1).await?;
    let topics: Vec<_> = (0..3).map(|it| format!("{}.retry.{it}", trial.topic)).collect();
    let tiers =
        topics.iter().zip([50, 300, 5000]).map(|(it, delay)| Tier::new(&**it, millis(delay)));
    let policy = Policy::default().with_delayed(Delayed::attempts(1).with_backoff(fixed(200)));
    let flow = trial.flow().with_strategy(Strategy::Tiers(tiers.collect())).with_default(policy);
    let runs = Runs::default();
    let noted = runs.clone();
    let member = trial
        .start(flow, move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            async move { if run.attempt == 0 { Err(Failure::of_status(503)) } else { Ok(()) } }
        })
        .await?;
    trial.produce(["order"])?;
    let all = runs.reach(2).await?;
    assert_eq!(stops(&all), [&trial.topic, &topics[1]]);
    let waited = all[1].due.unwrap() - all[0].at;
    assert!((200..300).contains(&waited), "due after {waited} ms, not after the policy's 200");
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn records_wait_in_delay_topics_and_run_from_the_retry_topic() -> Result<()> {
    let trial = Trial::new("delays", 1).await?;
    let retry = trial.retry();
    let delays: Vec<_> = (1..=2).map(|it| format!("{}.delay.{it}", trial.topic)).collect();
    let tiers = delays.iter().zip([100, 300]).map(|(it, delay)| Tier::new(&**it, millis(delay)));
    let strategy =
        Strategy::DelayThenRetry { delays: tiers.collect(), retry: Arc::from(retry.as_str()) };
    let (member, runs) = failing(&trial, trial.flow().with_strategy(strategy), u32::MAX).await?;
    trial.produce(["order"])?;
    let letters = trial.letters(1).await?;
    let all = runs.all();
    assert_eq!(stops(&all), [&trial.topic, &retry, &retry]);
    assert!(all[1].at - all[0].at >= 100 && all[2].at - all[1].at >= 300, "{all:?}");
    assert_eq!(
        letters[0].header("redrive-overall-attempts"),
        Some("2"),
        "relay moves do not count"
    );
    for topic in &delays {
        assert_eq!(trial.broker.read(topic)?.len(), 1, "{topic}");
    }
    assert_eq!(trial.broker.read(&retry)?.len(), 2);
    trial.settled(&[&trial.topic, &retry, &delays[0], &delays[1]]).await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn records_wait_in_the_retry_topic_and_run_from_the_source_again() -> Result<()> {
    let trial = Trial::new("back", 1).await?;
    let tier = Tier::endless(trial.retry()).with_delay(millis(150));
    let flow =
        trial.flow().with_strategy(Strategy::BackToSource(tier)).with_max_overall_attempts(2);
    let (member, runs) = failing(&trial, flow, u32::MAX).await?;
    trial.produce(["order"])?;
    let letters = trial.letters(1).await?;
    let all = runs.all();
    assert_eq!(stops(&all), [&trial.topic, &trial.topic, &trial.topic]);
    assert_eq!(all.iter().map(|it| it.attempt).collect::<Vec<_>>(), [0, 1, 2]);
    assert!(all[1].at - all[0].at >= 150, "{all:?}");
    assert_eq!(letters[0].header("redrive-origin-offset"), Some("0"));
    assert_eq!(trial.broker.read(&trial.topic)?.len(), 3);
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    member.stop().await?;
    Ok(())
}

/// A record of each partition runs twice, in the end where it came from, though it waited in a topic that has but one.
async fn comes_home(trial: &Trial, waits_in: &str, strategy: Strategy) -> Result<()> {
    trial.broker.make_topics(&[(waits_in, 1)], &[]).await?;
    let (member, runs) = failing(trial, trial.flow().with_strategy(strategy), 1).await?;
    let sent = (0..3).map(|it| Sent {
        partition: it,
        key: Some(b"the same".to_vec()),
        ..Sent::value(it.to_string())
    });
    trial.broker.send(&trial.topic, &sent.collect::<Vec<_>>())?;
    runs.reach(6).await?;
    trial.settled(&[&trial.topic, waits_in]).await?;
    for partition in 0..3 {
        let own = runs.of(&partition.to_string());
        let seen: Vec<_> = own.iter().map(|it| (it.partition, it.attempt)).collect();
        assert_eq!(seen, [(partition, 0), (partition, 1)]);
    }
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn records_come_back_to_the_partition_of_the_source_that_they_left() -> Result<()> {
    let trial = Trial::new("back-home", 3).await?;
    let tier = Tier::endless(trial.retry()).with_delay(millis(100));
    comes_home(&trial, &trial.retry(), Strategy::BackToSource(tier)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_delay_topic_go_to_the_partition_of_the_retry_topic_they_belong_to()
-> Result<()> {
    let trial = Trial::new("delay-home", 3).await?;
    let delay = format!("{}.delay", trial.topic);
    let delays = vec![Tier::new(&*delay, millis(100))];
    let strategy = Strategy::DelayThenRetry { delays, retry: trial.retry().into() };
    comes_home(&trial, &delay, strategy).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_moves_records_to_its_own_target_whatever_their_headers_name() -> Result<()> {
    let trial = Trial::new("relay", 1).await?;
    let (other, delay) = (format!("{}.other", trial.topic), format!("{}.delay", trial.topic));
    trial.broker.make_topics(&[(&other, 1)], &[]).await?;
    let tiers = vec![Tier::new(&*delay, millis(100))];
    let strategy = Strategy::DelayThenRetry { delays: tiers, retry: trial.retry().into() };
    let (member, runs) = failing(&trial, trial.flow().with_strategy(strategy), 0).await?;
    let due = (redrive_suite::ledger::now() + 100).to_string();
    let forged = Sent::value("forged")
        .with_header("redrive-version", Some(b"1"))
        .with_header("redrive-group", Some(trial.group.as_bytes()))
        .with_header("redrive-due", Some(due.as_bytes()))
        .with_header("X-ForwardingTopic", Some(other.as_bytes()))
        .with_header("x-original-topic", Some(other.as_bytes()));
    trial.broker.send(&delay, &[forged])?;
    let all = runs.reach(1).await?;
    assert_eq!(stops(&all), [&trial.retry()]);
    trial.settled(&[&delay, &trial.retry()]).await?;
    assert!(trial.broker.read(&other)?.is_empty());
    member.stop().await?;
    Ok(())
}
