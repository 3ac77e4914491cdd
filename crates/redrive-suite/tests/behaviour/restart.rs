//! A consumer that ends and starts again goes on where it was.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use redrive::config::{Config, Drain, FlowConfig};
use redrive::{Backoff, Context, Delayed, Event, Failure, Policy, Random, Record, Strategy, Tier};
use redrive_suite::trial::{Runs, Trial, until};

use super::single;

/// How often each record ran for each attempt.
fn counted(runs: &Runs) -> BTreeMap<(String, u32), usize> {
    let mut counted = BTreeMap::new();
    for run in runs.all() {
        *counted.entry((run.value, run.attempt)).or_default() += 1;
    }
    counted
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_runs_twice_when_a_consumer_is_stopped_in_the_middle_and_started_again()
-> Result<()> {
    const RECORDS: usize = 2000;
    const PARTITIONS: i32 = 2;
    let trial = Trial::new("restart", PARTITIONS).await?;
    let runs = Runs::default();
    let start = async || {
        let backoff =
            Backoff::from(Random::between(Duration::from_millis(10), Duration::from_secs(6)));
        let policy = Policy::default().with_delayed(Delayed::attempts(1).with_backoff(backoff));
        let strategy = Strategy::Single(Tier::endless(trial.retry()));
        let noted = runs.clone();
        let flow = FlowConfig::new(trial.flow().with_strategy(strategy).with_default(policy));
        trial
            .start(flow.with_concurrency(64), move |record: Record, context: Context| {
                let run = noted.note(&record, &context);
                async move { if run.attempt == 0 { Err(Failure::of_status(503)) } else { Ok(()) } }
            })
            .await
    };
    let values: Vec<_> = (0..RECORDS).map(|it| (format!("k{it}"), it.to_string())).collect();
    trial.broker.produce(&trial.topic, PARTITIONS, &values)?;
    let mut events = Vec::new();
    let member = start().await?;
    // Half of them wait, scattered over the log.
    runs.reach(RECORDS + RECORDS / 3).await?;
    events.extend(member.stop().await?);
    for topic in [trial.topic.clone(), trial.retry()] {
        for (offset, metadata) in trial.broker.committed(&trial.group, &topic, PARTITIONS)? {
            assert!(offset.is_some() && !metadata.is_empty(), "{topic} has no map");
            assert!(metadata.encode_utf16().count() <= 4096, "{}", metadata.len());
        }
    }
    assert!(trial.unsettled(&trial.retry())? > 0, "it was stopped too late to show anything");
    let member = start().await?;
    runs.reach(2 * RECORDS).await?;
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    events.extend(member.stop().await?);
    let counted = counted(&runs);
    assert_eq!(counted.len(), 2 * RECORDS);
    let twice: Vec<_> = counted.iter().filter(|it| *it.1 > 1).take(5).collect();
    assert!(twice.is_empty(), "{twice:?}");
    for run in runs.all() {
        assert!(run.due.is_none_or(|due| due <= run.at), "it ran early: {run:?}");
    }
    let refused =
        events.iter().find(|it| matches!(it, Event::MapRefused { .. } | Event::MapCut(_)));
    assert!(refused.is_none(), "{refused:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_the_commit_goes_to_the_state_topic_and_nothing_settled_runs_twice()
-> Result<()> {
    // A lane has 4096 records under way at the most, so that about one in 16 is held: by chance, so that no encoding helps.
    const RECORDS: usize = 60_000;
    let is_held = |it: usize| it.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 60 == 0;
    let trial = Trial::new("overflow", 1).await?;
    let (runs, is_released) = (Runs::default(), Arc::new(AtomicBool::new(false)));
    let config = |trial: &Trial| Config {
        drain: Drain { revoke: Duration::from_secs(1), shutdown: Duration::from_secs(1) },
        ..trial.config(FlowConfig::new(single(trial)).with_concurrency(10_000))
    };
    let handler = |runs: &Runs, is_released: &Arc<AtomicBool>| {
        let (noted, is_released) = (runs.clone(), Arc::clone(is_released));
        move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            let is_released = Arc::clone(&is_released);
            async move {
                if is_held(run.value.parse().unwrap()) {
                    while !is_released.load(Ordering::Relaxed) {
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                }
            }
        }
    };
    let held = (0..RECORDS).filter(|it| is_held(*it)).count();
    let values: Vec<_> = (0..RECORDS).map(|it| (String::new(), it.to_string())).collect();
    trial.broker.produce(&trial.topic, 1, &values)?;
    let member = trial.start_with(config(&trial), handler(&runs, &is_released)).await?;
    runs.reach(RECORDS).await?;
    member
        .until("all others are settled", |state| {
            state.flows[0].succeeded == (RECORDS - held) as u64
        })
        .await?;
    let state_topic = format!("{}.redrive", trial.group);
    until("blocks are stored", || !trial.broker.read(&state_topic).unwrap().is_empty()).await?;
    let events = member.stop().await?;
    let cut = events.iter().find(|it| matches!(it, Event::MapCut(_) | Event::CommitFailed { .. }));
    assert!(cut.is_none(), "{cut:?}");
    let (_, metadata) = trial.broker.committed(&trial.group, &trial.topic, 1)?.remove(0);
    assert!(metadata.encode_utf16().count() <= 4096);
    // Those of the first consumer end now, and nobody listens to them.
    is_released.store(true, Ordering::Relaxed);
    let again = Runs::default();
    let member = trial.start_with(config(&trial), handler(&again, &is_released)).await?;
    trial.settled(&[&trial.topic]).await?;
    let settled: Vec<_> =
        again.all().into_iter().filter(|it| !is_held(it.value.parse().unwrap())).collect();
    assert!(settled.is_empty(), "{} settled records ran again", settled.len());
    assert_eq!(again.count(), held);
    let events = member.stop().await?;
    let refused = events.iter().find(|it| matches!(it, Event::MapRefused { .. }));
    assert!(refused.is_none(), "{refused:?}");
    Ok(())
}
