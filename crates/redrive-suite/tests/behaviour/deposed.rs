//! Members that lost their partitions and do not know it yet.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use redrive::{Context, Record, RunError};
use redrive_suite::ledger;
use redrive_suite::rng::Rng;
use redrive_suite::trial::{Runs, Trial, until};
use redrive_suite::work::Task;

use super::single;

/// A member in a process of its own, which ends with this.
struct Process(Child);

impl Process {
    fn start(config: &PathBuf, ledger: PathBuf) -> Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_redrive-suite"));
        command.arg("member").arg("--config").arg(config).arg("--ledger").arg(ledger);
        Ok(Self(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?))
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let status = Command::new("kill").arg(signal).arg(self.0.id().to_string()).status()?;
        ensure!(status.success(), "the member is gone");
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_no_progress_undone_by_a_member_that_slept_through_its_session()
-> Result<()> {
    slept("asleep", false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_member_has_published_is_seen_when_it_slept_through_its_session()
-> Result<()> {
    slept("asleep-once", true).await
}

async fn slept(name: &str, exactly_once: bool) -> Result<()> {
    const RECORDS: usize = 1500;
    const PARTITIONS: i32 = 4;
    let trial = Trial::new(name, PARTITIONS).await?;
    let (retry, letters) = (trial.retry(), trial.dead_letters());
    trial.broker.make_topics(&[(&retry, PARTITIONS), (&letters, PARTITIONS)], &[]).await?;
    let state = format!("{}.redrive", trial.group);
    trial.broker.make_topics(&[(&state, 1)], &[("cleanup.policy", "compact")]).await?;
    let directory = std::env::temp_dir().join(&trial.group);
    std::fs::create_dir_all(&directory)?;
    let config = directory.join("config.yaml");
    let text = format!(
        "kafka: {{ bootstrap.servers: '{}', session.timeout.ms: 2000, heartbeat.interval.ms: 300 }}\n\
         group: {}\nexactly_once: {exactly_once}\nflows:\n  - topic: {}\n    retry: {{ strategy: single, topics: [{{ topic: {retry} }}] }}\n    \
         default: {{ delayed: {{ backoff: {{ random: {{ min: 50ms, max: 3s }} }} }} }}\n",
        trial.broker.address, trial.group, trial.topic
    );
    std::fs::write(&config, text)?;
    let mut rng = Rng::new(7);
    let tasks: Vec<_> = (0..RECORDS as u64).map(|id| Task::random(id, 40, &mut rng)).collect();
    let values: Vec<_> = tasks.iter().map(|it| (format!("k{}", it.id), it.to_value())).collect();
    let (first, rest) = values.split_at(RECORDS / 2);
    trial.broker.produce(&trial.topic, PARTITIONS, first)?;
    let sleeper = Process::start(&config, directory.join("1.ledger"))?;
    let _other = Process::start(&config, directory.join("2.ledger"))?;
    let progress = || -> Vec<i64> {
        let topics = [&trial.topic, &retry].into_iter();
        let committed =
            topics.flat_map(|it| trial.broker.committed(&trial.group, it, PARTITIONS).unwrap());
        committed.map(|it| it.0.unwrap_or(0)).collect()
    };
    let goes_back = |before: &[i64], after: &[i64]| {
        before.iter().zip(after).any(|(before, after)| after < before)
    };
    until("both have begun", || ledger::read(&directory).unwrap().len() > RECORDS / 4).await?;
    sleeper.signal("-STOP")?;
    trial.broker.produce(&trial.topic, PARTITIONS, rest)?;
    // The other one takes over and settles everything there is.
    let ended = || -> usize {
        let mut ended: BTreeSet<u64> = ledger::read(&directory)
            .unwrap()
            .into_iter()
            .filter(|it| it.1.done > 0)
            .map(|it| it.0)
            .collect();
        let letters = trial.broker.read(&letters).unwrap();
        ended.extend(
            letters.iter().filter_map(|it| Task::from_value(it.value.as_deref()?)).map(|it| it.id),
        );
        ended.len()
    };
    until("everything has ended", || ended() == RECORDS).await?;
    trial.settled(&[&trial.topic, &retry]).await?;
    let before = progress();
    sleeper.signal("-CONT")?;
    // It is back when it runs what came later, and whatever it still had to commit it has tried by then.
    let is_back = || {
        let ledger = std::fs::read_to_string(directory.join("1.ledger")).unwrap();
        let starts = ledger.lines().filter_map(|it| it.strip_prefix("start "));
        let mut ids = starts.filter_map(|it| it.split(' ').next()?.parse::<usize>().ok());
        ids.any(|id| id >= RECORDS)
    };
    let mut count = RECORDS;
    until("it is back", || {
        let more = (count..count + 20)
            .map(|id| Task { id: id as u64, fails: 0, is_hopeless: false, takes: 0 })
            .map(|it| (format!("k{}", it.id), it.to_value()));
        trial.broker.produce(&trial.topic, PARTITIONS, &more.collect::<Vec<_>>()).unwrap();
        count += 20;
        let now = progress();
        assert!(!goes_back(&before, &now), "{before:?} {now:?}");
        is_back()
    })
    .await?;
    until("what came later is done", || ended() == count).await?;
    trial.settled(&[&trial.topic, &retry]).await?;
    let after = progress();
    assert!(!goes_back(&before, &after), "{before:?} {after:?}");
    let lives = ledger::read(&directory)?;
    assert!(lives.values().all(|it| it.early <= 0));
    if exactly_once {
        let mut copies = BTreeSet::new();
        for topic in [&retry, &letters] {
            for copy in trial.broker.read(topic)? {
                let attempt = copy.header("redrive-overall-attempts").map(str::to_owned);
                let task = copy.value.as_deref().and_then(Task::from_value).map(|it| it.id);
                assert!(copies.insert((topic, task, attempt)), "{copy:?} is there twice");
            }
        }
    }
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_instance_was_taken_over_does_no_harm() -> Result<()> {
    let trial = Trial::new("fenced", 1).await?;
    let is_released = Arc::new(AtomicBool::new(false));
    let config = || trial.config(single(&trial)).with_kafka("group.instance.id", "one");
    let (old, new) = (Runs::default(), Runs::default());
    let (noted, released) = (old.clone(), Arc::clone(&is_released));
    let first = trial
        .start_with(config(), move |record: Record, context: Context| {
            noted.note(&record, &context);
            let released = Arc::clone(&released);
            async move {
                while !released.load(Ordering::Relaxed) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        })
        .await?;
    trial.produce(0..5)?;
    old.reach(5).await?;
    let noted = new.clone();
    let second = trial
        .start_with(config(), move |record: Record, context: Context| {
            noted.note(&record, &context);
            async {}
        })
        .await?;
    // None of them was settled, so that the new owner runs them all.
    new.reach(5).await?;
    trial.settled(&[&trial.topic]).await?;
    is_released.store(true, Ordering::Relaxed);
    trial.produce(5..10)?;
    new.reach(10).await?;
    trial.settled(&[&trial.topic]).await?;
    let committed = trial.broker.committed(&trial.group, &trial.topic, 1)?;
    assert_eq!(committed[0].0, Some(10));
    // The old one knows that it can go on no more, and ends by itself.
    let began = Instant::now();
    let error = first.ended().await?.unwrap_err();
    assert!(matches!(&error, RunError::Fatal(it) if it.contains("fenced")), "{error:?}");
    assert!(began.elapsed() < Duration::from_secs(10), "it took {:?}", began.elapsed());
    assert_eq!(trial.unsettled(&trial.topic)?, 0);
    second.stop().await?;
    Ok(())
}
