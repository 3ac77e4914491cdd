//! A broker that takes less metadata with a commit than others do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use redrive::config::{Config, Drain, Entity, FlowConfig};
use redrive::{Context, Event, Record};
use redrive_suite::own::OwnBroker;
use redrive_suite::trial::{Runs, Trial, until};

use super::single;

#[tokio::test(flavor = "multi_thread")]
async fn a_map_that_is_too_long_for_the_broker_is_said_in_less_and_nothing_runs_twice() -> Result<()>
{
    said_in_less("little-metadata", |it| it).await
}

#[tokio::test(flavor = "multi_thread")]
async fn partitions_that_belong_together_are_committed_again_as_a_whole_with_less() -> Result<()> {
    said_in_less("little-together", |it| it.with_order_by(Entity::Key)).await
}

async fn said_in_less(name: &str, with: impl Fn(FlowConfig) -> FlowConfig) -> Result<()> {
    const RECORDS: usize = 4000;
    // Every other one, by chance: about a bit for each record.
    let is_held = |it: usize| it.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 == 0;
    let limit = ["--set", "offset.metadata.max.bytes=300"];
    let own = tokio::task::spawn_blocking(move || OwnBroker::start(&limit)).await??;
    let trial = Trial::on(own.broker()?, name, 1).await?;
    let (runs, is_released) = (Runs::default(), Arc::new(AtomicBool::new(false)));
    let config = || Config {
        drain: Drain { revoke: Duration::from_secs(1), shutdown: Duration::from_secs(1) },
        ..trial.config(with(FlowConfig::new(single(&trial)).with_concurrency(10_000)))
    };
    let handler = || {
        let (noted, is_released) = (runs.clone(), Arc::clone(&is_released));
        move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            let is_released = Arc::clone(&is_released);
            async move {
                while is_held(run.value.parse().unwrap()) && !is_released.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    let values: Vec<_> = (0..RECORDS).map(|it| (format!("k{it}"), it.to_string())).collect();
    trial.broker.produce(&trial.topic, 1, &values)?;
    let held = (0..RECORDS).filter(|it| is_held(*it)).count();
    let member = trial.start_with(config(), handler()).await?;
    member
        .until("all others are done", |it| it.flows[0].succeeded == (RECORDS - held) as u64)
        .await?;
    member.told("a refusal", |it| matches!(it, Event::CommitFailed { .. })).await?;
    let state = format!("{}.redrive", trial.group);
    let committed = || trial.broker.committed(&trial.group, &trial.topic, 1).unwrap().remove(0).1;
    until("blocks are named", || {
        !trial.broker.read(&state).unwrap().is_empty() && !committed().is_empty()
    })
    .await?;
    let events = member.stop().await?;
    assert!(committed().len() <= 300);
    assert!(!events.iter().any(|it| matches!(it, Event::MapCut(_))));
    is_released.store(true, Ordering::Relaxed);
    let member = trial.start_with(config(), handler()).await?;
    trial.settled(&[&trial.topic]).await?;
    member.stop().await?;
    for id in 0..RECORDS {
        let times = runs.of(&id.to_string()).len();
        assert_eq!(times, if is_held(id) { 2 } else { 1 }, "{id}");
    }
    drop(own);
    Ok(())
}
