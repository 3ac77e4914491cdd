//! Logs lose their beginning: what waits there is saved, and what is lost is told.

use std::sync::Arc;

use anyhow::Result;
use redrive::config::FlowConfig;
use redrive::{Context, Delayed, Event, Failure, Policy, Record, Strategy, Tier};
use redrive_suite::trial::{Runs, Trial};
use tokio::sync::Semaphore;

use super::{fixed, single};

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_waits_longer_than_its_topic_keeps_records_runs_on_time_and_once()
-> Result<()> {
    let trial = Trial::new("retention", 1).await?;
    let settings = [
        ("retention.ms", "4000"),
        ("segment.ms", "500"),
        ("message.timestamp.type", "LogAppendTime"),
    ];
    trial.broker.make_topics(&[(&trial.retry(), 1)], &settings).await?;
    let policy = Policy::default().with_delayed(Delayed::attempts(1).with_backoff(fixed(10_000)));
    let flow = trial
        .flow()
        .with_strategy(Strategy::Single(Tier::endless(trial.retry())))
        .with_default(policy);
    let runs = Runs::default();
    let noted = runs.clone();
    let member = trial
        .start(flow, move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            async move { if run.attempt == 0 { Err(Failure::of_status(503)) } else { Ok(()) } }
        })
        .await?;
    trial.produce(["patient"])?;
    let all = runs.reach(2).await?;
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    let late = all[1].at - all[1].due.unwrap();
    assert!((0..2000).contains(&late), "{late} ms late");
    assert_eq!((runs.count(), all[1].attempt), (2, 1));
    let (start, end) = trial.broker.bounds(&trial.retry())?[0];
    assert!(start > 0, "the first copy is still there, which shows nothing");
    assert!(end > 2, "it was appended again {} times", end - 1);
    let events = member.stop().await?;
    let lost = events.iter().find(|it| matches!(it, Event::Lost { .. }));
    assert!(lost.is_none(), "{lost:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_were_deleted_before_they_were_settled_are_told_as_lost() -> Result<()> {
    let trial = Trial::new("deleted", 1).await?;
    let runs = Runs::default();
    let start = async || {
        let noted = runs.clone();
        trial
            .start(single(&trial), move |record: Record, context: Context| {
                noted.note(&record, &context);
                async {}
            })
            .await
    };
    trial.produce(0..3)?;
    let member = start().await?;
    trial.settled(&[&trial.topic]).await?;
    member.stop().await?;
    trial.produce(3..10)?;
    trial.broker.delete_records(&trial.topic, 0, 7).await?;
    let member = start().await?;
    trial.settled(&[&trial.topic]).await?;
    let is_lost = |it: &Event| matches!(it, Event::Lost { offsets, .. } if *offsets == (3..7));
    member.told("the loss", is_lost).await?;
    let mut ran: Vec<_> = runs.all().into_iter().map(|it| it.value).collect();
    ran.sort_unstable();
    assert_eq!(ran, ["0", "1", "2", "7", "8", "9"]);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn settled_records_that_are_deleted_under_a_running_consumer_are_no_loss() -> Result<()> {
    let trial = Trial::new("cut", 1).await?;
    let runs = Runs::default();
    let noted = runs.clone();
    let member = trial
        .start(single(&trial), move |record: Record, context: Context| {
            noted.note(&record, &context);
            async {}
        })
        .await?;
    trial.produce(0..5)?;
    trial.settled(&[&trial.topic]).await?;
    trial.broker.delete_records(&trial.topic, 0, 5).await?;
    trial.produce(5..8)?;
    trial.settled(&[&trial.topic]).await?;
    assert_eq!(runs.count(), 8);
    let lost = member.stop().await?.into_iter().find(|it| matches!(it, Event::Lost { .. }));
    assert!(lost.is_none(), "{lost:?}");
    Ok(())
}

/// What it has not read yet is deleted under a consumer that is held up: that is told, and it reads on behind it.
#[tokio::test(flavor = "multi_thread")]
async fn records_that_are_deleted_under_a_running_consumer_are_told_and_it_goes_on() -> Result<()> {
    for strategy in ["cooperative-sticky", "range"] {
        let trial = Trial::new("overtaken", 1).await?;
        let (runs, gate) = (Runs::default(), Arc::new(Semaphore::new(0)));
        let (noted, waits) = (runs.clone(), Arc::clone(&gate));
        // It reads ahead as little as can be.
        let mut flow = FlowConfig::new(single(&trial)).with_concurrency(1);
        flow.payload_budget = 1_000_000;
        let config = trial
            .plain_config(flow)
            .with_kafka("partition.assignment.strategy", strategy)
            .with_kafka("queued.min.messages", "1")
            .with_kafka("queued.max.messages.kbytes", "1");
        let member = trial
            .start_with(config, move |record: Record, context: Context| {
                let (noted, waits) = (noted.clone(), Arc::clone(&waits));
                async move {
                    waits.acquire().await.unwrap().forget();
                    noted.note(&record, &context);
                }
            })
            .await?;
        let values: Vec<_> = (0..400).map(|it| format!("{it:03}{}", "x".repeat(100_000))).collect();
        trial.produce(&values)?;
        trial.broker.delete_records(&trial.topic, 0, 395).await?;
        gate.add_permits(values.len());
        trial.settled(&[&trial.topic]).await?;
        let ran: Vec<i64> = runs.all().iter().map(|it| it.value[..3].parse().unwrap()).collect();
        assert!(ran.contains(&399) && ran.len() < 400, "nothing was lost: {ran:?}");
        let mut lost: Vec<i64> = Vec::new();
        for event in member.stop().await? {
            if let Event::Lost { offsets, .. } = event {
                lost.extend(offsets);
            }
        }
        println!("{strategy}: {} ran, {} lost", ran.len(), lost.len());
        assert!(ran.iter().all(|it| !lost.contains(it)), "{ran:?} {lost:?}");
        assert_eq!(ran.len() + lost.len(), 400, "{ran:?} {lost:?}");
    }
    Ok(())
}
