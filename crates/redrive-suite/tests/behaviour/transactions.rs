//! Hops and commits in one transaction. All other behaviours are tried with them, too: `EXACTLY_ONCE=1`.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use redrive::config::{Config, FlowConfig};
use redrive::{Backoff, Context, Delayed, Event, Failure, Policy, Random, Record, Strategy, Tier};
use redrive_suite::trial::{Runs, Trial, until};
use redrive_suite::wire::Wired;

use super::single;

fn exactly_once(config: Config) -> Config {
    Config { exactly_once: true, ..config }
}

/// How often each record was published for each attempt, by what readers of committed records see.
fn copies(trial: &Trial, topic: &str) -> Result<BTreeMap<(Vec<u8>, String), usize>> {
    let mut copies = BTreeMap::new();
    for copy in trial.broker.read(topic)? {
        let attempt = copy.header("redrive-overall-attempts").unwrap_or_default().to_owned();
        *copies.entry((copy.value.unwrap_or_default(), attempt)).or_default() += 1;
    }
    Ok(copies)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hop_is_there_when_and_only_when_its_offset_is_committed() -> Result<()> {
    const RECORDS: usize = 300;
    let trial = Trial::new("atomic", 1).await?;
    trial.broker.make_topics(&[(&trial.dead_letters(), 1)], &[]).await?;
    let flow = FlowConfig::new(single(&trial)).with_concurrency(4);
    let member = trial
        .start_with(exactly_once(trial.config(flow)), |_: Record, _: Context| async {
            // A few at a time, so that transactions have some of them each.
            tokio::time::sleep(Duration::from_millis(50)).await;
            Err::<(), _>(Failure::of_status(404))
        })
        .await?;
    trial.produce(0..RECORDS)?;
    let letters = || trial.broker.read(&trial.dead_letters()).unwrap().len();
    let committed =
        || trial.broker.committed(&trial.group, &trial.topic, 1).unwrap()[0].0.unwrap_or(0);
    let mut seen = 0;
    until("all are dead letters", || {
        let before = usize::try_from(committed()).unwrap();
        let there = letters();
        let after = usize::try_from(committed()).unwrap();
        // The commit point may be behind, if records do not end in order; but with the letters comes progress.
        assert!(there >= before, "{before} are committed, but {there} are there");
        assert!(there == 0 || after > 0, "{there} are there, but nothing is committed");
        seen = seen.max(usize::from(0 < there && there < RECORDS));
        there >= RECORDS
    })
    .await?;
    assert_eq!(seen, 1, "all came at once, which shows nothing");
    trial.settled(&[&trial.topic]).await?;
    assert_eq!(letters(), RECORDS);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_that_takes_nothing_holds_its_own_records_and_others_go_on() -> Result<()> {
    let trial = Trial::new("apart", 1).await?;
    let runs = Runs::default();
    let noted = runs.clone();
    let config = exactly_once(trial.config(single(&trial)));
    let member = trial
        .start_with(config, move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            async move {
                match run.value.as_str() {
                    "bad" => Err(Failure::of_status(404)),
                    _ if run.attempt == 0 => Err(Failure::of_status(503)),
                    _ => Ok(()),
                }
            }
        })
        .await?;
    trial.broker.delete_topic(&trial.dead_letters()).await?;
    trial.produce(["bad"])?;
    member.until("the record is held", |state| state.flows[0].unpublished == 1).await?;
    trial.produce(0..50)?;
    member.until("others go on", |state| state.flows[0].succeeded == 50).await?;
    assert!(!member.state().is_ready());
    trial.broker.make_topics(&[(&trial.dead_letters(), 1)], &[]).await?;
    trial.letters(1).await?;
    member.until("all is well", redrive::State::is_ready).await?;
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    assert_eq!(trial.letters(1).await?.len(), 1);
    let copies = copies(&trial, &trial.retry())?;
    assert_eq!((copies.len(), copies.values().sum::<usize>()), (50, 50));
    let events = member.stop().await?;
    assert!(events.iter().any(|it| matches!(it, Event::TransactionAborted { .. })));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_published_twice_though_the_broker_is_out_of_reach_for_a_while() -> Result<()> {
    // It runs on all the time: a single node that ends or is killed forgets markers of transactions (ADR 9).
    const RECORDS: usize = 2000;
    let wired = Wired::start().await?;
    let trial = Trial::on(wired.broker(), "twice", 2).await?;
    let backoff = Backoff::from(Random::between(Duration::from_millis(10), Duration::from_secs(4)));
    let policy = Policy::default().with_delayed(Delayed::attempts(5).with_backoff(backoff));
    let flow = trial
        .flow()
        .with_strategy(Strategy::Single(Tier::endless(trial.retry())))
        .with_default(policy);
    let runs = Runs::default();
    let noted = runs.clone();
    let config = exactly_once(trial.config(flow));
    let member = trial
        .start_with(config, move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            async move {
                tokio::time::sleep(Duration::from_millis(3)).await;
                let id: u32 = run.value.parse().unwrap();
                match (id % 4, run.attempt) {
                    (0, 3) => Err(Failure::of_status(404)),
                    (_, 0..3) => Err(Failure::of_status(503)),
                    _ => Ok(()),
                }
            }
        })
        .await?;
    let values: Vec<_> = (0..RECORDS).map(|it| (format!("k{it}"), it.to_string())).collect();
    trial.broker.produce(&trial.topic, 2, &values)?;
    // A blink; longer than the group waits for a member; and longer than a transaction may be open.
    for (part, away) in [(1, 1), (3, 8), (5, 12)] {
        runs.reach(part * RECORDS / 2).await?;
        wired.cut();
        tokio::time::sleep(Duration::from_secs(away)).await;
        wired.mend();
    }
    trial.letters(RECORDS / 4).await?;
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    let letters = copies(&trial, &trial.dead_letters())?;
    assert_eq!((letters.len(), letters.values().sum::<usize>()), (RECORDS / 4, RECORDS / 4));
    let copies = copies(&trial, &trial.retry())?;
    let twice: Vec<_> = copies.iter().filter(|it| *it.1 > 1).take(5).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert_eq!(copies.len(), 3 * RECORDS);
    member.until("all is well", redrive::State::is_ready).await?;
    member.stop().await?;
    Ok(())
}
