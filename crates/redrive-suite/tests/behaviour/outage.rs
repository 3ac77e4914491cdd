//! Brokers that die, or stand still.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Result;
use redrive::config::{Config, Drain};
use redrive::{Backoff, Context, Delayed, Event, Failure, Policy, Random, Record, Strategy, Tier};
use redrive_suite::own::OwnBroker;
use redrive_suite::trial::{Runs, Trial, until};
use redrive_suite::wire::Wired;
use tokio::sync::watch;

use super::single;

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_the_broker_is_killed_and_comes_back() -> Result<()> {
    const RECORDS: usize = 1000;
    let own = tokio::task::spawn_blocking(|| OwnBroker::start(&[])).await??;
    let trial = Trial::on(own.broker()?, "killed", 2).await?;
    let backoff =
        Backoff::from(Random::between(Duration::from_millis(100), Duration::from_secs(8)));
    let policy = Policy::default().with_delayed(Delayed::attempts(3).with_backoff(backoff));
    let flow = trial
        .flow()
        .with_strategy(Strategy::Single(Tier::endless(trial.retry())))
        .with_default(policy);
    let runs = Runs::default();
    let noted = runs.clone();
    // A single node that was killed forgets markers of transactions while it starts (ADR 9).
    let config = trial.plain_config(flow);
    let member = trial
        .start_with(config, move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            async move {
                tokio::time::sleep(Duration::from_millis(2)).await;
                let id: u32 = run.value.parse().unwrap();
                match id % 10 {
                    0 => Err(Failure::of_status(404)),
                    1..=5 if run.attempt == 0 => Err(Failure::of_status(503)),
                    _ => Ok(()),
                }
            }
        })
        .await?;
    let values: Vec<_> = (0..RECORDS).map(|it| (format!("k{it}"), it.to_string())).collect();
    trial.broker.produce(&trial.topic, 2, &values)?;
    // In the middle of the first runs, with retries waiting.
    runs.reach(RECORDS / 2).await?;
    let own = tokio::task::spawn_blocking(move || -> Result<_> {
        own.kill()?;
        own.restart()?;
        Ok(own)
    })
    .await??;
    let done = || -> BTreeSet<String> {
        let is_done = |id: u32, attempt: u32| matches!((id % 10, attempt), (6.., _) | (1..=5, 1..));
        let runs = runs.all().into_iter();
        runs.filter(|it| is_done(it.value.parse().unwrap(), it.attempt))
            .map(|it| it.value)
            .collect()
    };
    until("all others are done", || done().len() == RECORDS / 10 * 9).await?;
    let letters = trial.letters(RECORDS / 10).await?;
    let letters: BTreeSet<_> = letters.into_iter().map(|it| it.value).collect();
    assert_eq!(letters.len(), RECORDS / 10);
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    for run in runs.all() {
        assert!(run.due.is_none_or(|due| due <= run.at), "it ran early: {run:?}");
    }
    member.until("all is well", redrive::State::is_ready).await?;
    member.stop().await?;
    drop(own);
    Ok(())
}

/// A broker that stood still is fenced, and the cluster then has none: what librdkafka makes of that is mended by `kafka/lifeline.rs`.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_had_no_brokers_for_a_while_is_found_again() -> Result<()> {
    let options = ["--set", "broker.session.timeout.ms=2000"];
    let own = tokio::task::spawn_blocking(move || OwnBroker::start(&options)).await??;
    let trial = Trial::on(own.broker()?, "fenced-broker", 3).await?;
    let delay = Duration::from_millis(200);
    let flow =
        trial.flow().with_strategy(Strategy::Single(Tier::endless(trial.retry()))).with_default(
            Policy::default()
                .with_delayed(Delayed::attempts(3).with_backoff(Backoff::Fixed(delay))),
        );
    let runs = Runs::default();
    let members = 3;
    let mut all = Vec::new();
    for _ in 0..members {
        let noted = runs.clone();
        // librdkafka's own way back works sometimes; here it has none.
        let config =
            trial.plain_config(flow.clone()).with_kafka("metadata.recovery.strategy", "none");
        let handler = move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            async move { if run.attempt == 0 { Err(Failure::of_status(503)) } else { Ok(()) } }
        };
        all.push(trial.start_with(config, handler).await?);
    }
    let done = || -> BTreeSet<String> {
        let runs = runs.all().into_iter().filter(|it| it.attempt > 0);
        runs.map(|it| it.value).collect()
    };
    let (mut own, mut sent) = (own, 0);
    for round in 0.. {
        let values: Vec<_> =
            (sent..sent + 50).map(|it| (format!("k{it}"), it.to_string())).collect();
        trial.broker.produce(&trial.topic, 3, &values)?;
        sent += values.len();
        own = tokio::task::spawn_blocking(move || own.stall(Duration::from_secs(4)).map(|()| own))
            .await??;
        until("all are done", || done().len() == sent).await?;
        // Not every time: it may be the first to say that it is there.
        if own.logged("Fencing broker")? >= 3 {
            break;
        }
        assert!(round < 20, "the broker was hardly ever fenced");
    }
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    for member in all {
        member.until("all is well", redrive::State::is_ready).await?;
        member.stop().await?;
    }
    drop(own);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hop_that_no_broker_takes_in_time_is_held_and_goes_when_they_are_back() -> Result<()> {
    let wired = Wired::start().await?;
    let trial = Trial::on(wired.broker(), "timed-out", 1).await?;
    let (runs, goes_on) = (Runs::default(), watch::Sender::new(false));
    let (noted, waits) = (runs.clone(), goes_on.clone());
    let config = trial
        .plain_config(single(&trial))
        .with_kafka("message.timeout.ms", "1000")
        .with_kafka("session.timeout.ms", "45000");
    let member = trial
        .start_with(config, move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            let mut goes_on = waits.subscribe();
            async move {
                drop(goes_on.wait_for(|it| *it).await);
                if run.attempt == 0 { Err(Failure::of_status(503)) } else { Ok(()) }
            }
        })
        .await?;
    trial.produce(["order"])?;
    runs.reach(1).await?;
    wired.cut();
    goes_on.send_replace(true);
    member.told("the failure", |it| matches!(it, Event::PublishFailed { .. })).await?;
    assert!(!member.state().is_ready());
    assert_eq!(member.flow()?.unpublished, 1);
    wired.mend();
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    assert_eq!(runs.all().last().map(|it| it.attempt), Some(1));
    member.until("all is well", redrive::State::is_ready).await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_brokers_are_away_ends_in_time() -> Result<()> {
    let wired = Wired::start().await?;
    let trial = Trial::on(wired.broker(), "ends", 2).await?;
    let drain = Drain { shutdown: Duration::from_secs(1), ..Drain::default() };
    let config = Config { drain, ..trial.config(single(&trial)) };
    let member = trial
        .start_with(
            config.with_kafka("session.timeout.ms", "45000"),
            |_: Record, _: Context| async { Err::<(), _>(Failure::of_status(503)) },
        )
        .await?;
    trial.produce(0..10)?;
    trial.records(&trial.retry(), 10).await?;
    wired.cut();
    let began = Instant::now();
    member.stop().await?;
    // Ten seconds are for the brokers, and the machine may be slow.
    assert!(began.elapsed() < Duration::from_secs(25), "{:?}", began.elapsed());
    Ok(())
}
