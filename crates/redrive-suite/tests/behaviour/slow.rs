//! Handlers may take as long as they like.

use std::time::Duration;

use anyhow::Result;
use redrive::config::{Config, Drain};
use redrive::{Context, Event, Record};
use redrive_suite::broker::Sent;
use redrive_suite::trial::{Runs, Trial};
use tokio::sync::watch;

use super::single;

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_slower_than_the_poll_interval_keeps_its_partition_and_runs_once() -> Result<()> {
    let trial = Trial::new("slow", 1).await?;
    let runs = Runs::default();
    let noted = runs.clone();
    let config = trial.config(single(&trial)).with_kafka("max.poll.interval.ms", "6000");
    let member = trial
        .start_with(config, move |record: Record, context: Context| {
            noted.note(&record, &context);
            tokio::time::sleep(Duration::from_secs(8))
        })
        .await?;
    trial.produce(["slow"])?;
    trial.settled(&[&trial.topic]).await?;
    assert_eq!(runs.count(), 1);
    let events = member.stop().await?;
    let revoked = events.iter().position(|it| matches!(it, Event::Revoked { .. }));
    let assigned = events.iter().filter(|it| matches!(it, Event::Assigned { .. })).count();
    assert_eq!(assigned, 2, "the source and the retry topic, once: {events:?}");
    assert!(revoked.is_none_or(|it| it >= assigned), "a rebalance: {events:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_outlasts_its_partition_is_left_behind_and_runs_at_the_next_owner() -> Result<()>
{
    let trial = Trial::new("outlasts", 2).await?;
    let runs = Runs::default();
    let config = Config {
        drain: Drain { revoke: Duration::from_millis(300), ..Drain::default() },
        // Without a retry topic there are two partitions in all, so that one goes.
        ..trial.config(trial.flow())
    };
    let (noted, goes_on) = (runs.clone(), watch::Sender::new(false));
    let waits = goes_on.clone();
    let first = trial
        .start_with(config.clone(), move |record: Record, context: Context| {
            noted.note(&record, &context);
            let mut goes_on = waits.subscribe();
            async move { drop(goes_on.wait_for(|it| *it).await) }
        })
        .await?;
    // One in each partition, whichever goes.
    trial
        .broker
        .send(&trial.topic, &[Sent::value("a"), Sent { partition: 1, ..Sent::value("b") }])?;
    runs.reach(2).await?;
    let noted = runs.clone();
    let second = trial
        .start_with(config, move |record: Record, context: Context| {
            noted.note(&record, &context);
            async {}
        })
        .await?;
    let moved = runs.reach(3).await?.remove(2);
    // It ends where nobody waits for it any more.
    goes_on.send_replace(true);
    trial.settled(&[&trial.topic]).await?;
    assert_eq!(runs.of(&moved.value).len(), 2);
    assert_eq!(runs.count(), 3);
    for member in [first, second] {
        member.stop().await?;
    }
    Ok(())
}
