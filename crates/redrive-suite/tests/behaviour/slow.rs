//! Handlers may take as long as they like.

use std::time::Duration;

use anyhow::Result;
use redrive::{Context, Event, Record};
use redrive_suite::trial::{Runs, Trial};

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
