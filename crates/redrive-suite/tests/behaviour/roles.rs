//! Main, retry and relay in consumers of their own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Result;
use redrive::config::{Config, FlowConfig};
use redrive::{
    Consumer, Context, Delayed, Event, Failure, Policy, Record, Role, RunError, Strategy, Tier,
};
use redrive_suite::ledger;
use redrive_suite::trial::{Member, Runs, Trial, until};
use redrive_suite::work::Task;

use super::{fixed, single};

fn apart(trial: &Trial, flow: redrive::Flow) -> FlowConfig {
    FlowConfig { retry_group: Some(retry_group(trial)), ..FlowConfig::new(flow) }
}

fn retry_group(trial: &Trial) -> String {
    format!("{}-retry", trial.group)
}

/// A consumer in a role, whose handler fails a record until it was retried so many times.
fn start(trial: &Trial, config: &Config, role: Role, fails: u32, runs: &Runs) -> Member {
    let noted = runs.clone();
    let handler = move |record: Record, context: Context| {
        let run = noted.note(&record, &context);
        async move { if run.attempt < fails { Err(Failure::of_status(503)) } else { Ok(()) } }
    };
    let consumer = Consumer::new(config.clone()).with_handler(trial.topic.as_str(), handler);
    Trial::spawn_consumer(consumer.with_created_topics().with_role(role))
}

fn topics(runs: &Runs) -> BTreeSet<String> {
    runs.all().into_iter().map(|it| it.topic).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn main_and_retry_share_the_work_and_nothing_else() -> Result<()> {
    let trial = Trial::new("roles", 2).await?;
    let config = trial.config(apart(&trial, single(&trial)));
    let (main_runs, retry_runs) = (Runs::default(), Runs::default());
    let main = start(&trial, &config, Role::Main, 2, &main_runs);
    main.joined().await?;
    let retry = start(&trial, &config, Role::Retry, 2, &retry_runs);
    retry.joined().await?;
    let values: Vec<_> = (0..20).map(|it| it.to_string()).collect();
    trial.produce(&values)?;
    until("all retries", || retry_runs.all().iter().filter(|it| it.attempt == 2).count() == 20)
        .await?;
    trial.settled(&[&trial.topic]).await?;
    assert_eq!(topics(&main_runs), BTreeSet::from([trial.topic.clone()]));
    assert_eq!(topics(&retry_runs), BTreeSet::from([trial.retry()]));
    // Each group has offsets of its own topics alone.
    let committed = |group: &str, topic: &str| -> Result<bool> {
        Ok(trial.broker.committed(group, topic, 2)?.iter().any(|it| it.0.is_some()))
    };
    until("the retries are committed", || {
        committed(&retry_group(&trial), &trial.retry()).unwrap_or(false)
    })
    .await?;
    assert!(!committed(&trial.group, &trial.retry())?);
    assert!(!committed(&retry_group(&trial), &trial.topic)?);
    for member in [main, retry] {
        let events = member.stop().await?;
        let left = events.iter().find(|it| matches!(it, Event::LeftBehind { .. }));
        assert!(left.is_none(), "{left:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_relay_moves_records_without_a_handler() -> Result<()> {
    let trial = Trial::new("relay", 1).await?;
    let delay = format!("{}.delay", trial.topic);
    let flow = trial
        .flow()
        .with_strategy(Strategy::DelayThenRetry {
            delays: vec![Tier::new(delay.as_str(), Duration::from_millis(300)).with_attempts(5)],
            retry: trial.retry().into(),
        })
        .with_default(Policy::default().with_delayed(Delayed::attempts(3)));
    let config = trial.config(FlowConfig {
        tier_groups: vec![Some(format!("{}-relay", trial.group))],
        ..apart(&trial, flow)
    });
    let relay = Consumer::new(config.clone()).with_created_topics().with_role(Role::Relay);
    let relay = Trial::spawn_consumer(relay);
    relay.joined().await?;
    let runs = Runs::default();
    let main = start(&trial, &config, Role::Main, 2, &runs);
    main.joined().await?;
    trial.produce(["a", "b"])?;
    trial.records(&trial.retry(), 2).await?;
    // Nobody runs them yet: a relay only moves.
    assert_eq!(topics(&runs), BTreeSet::from([trial.topic.clone()]));
    assert_eq!(relay.flow()?.runs, 0);
    let retry = start(&trial, &config, Role::Retry, 2, &runs);
    until("both are done", || runs.all().iter().filter(|it| it.attempt == 2).count() == 2).await?;
    for member in [main, relay, retry] {
        member.stop().await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_back_to_the_source_needs_a_handler_only_there() -> Result<()> {
    let trial = Trial::new("returned", 1).await?;
    let policy = Policy::default().with_delayed(Delayed::attempts(3).with_backoff(fixed(200)));
    let flow = trial
        .flow()
        .with_strategy(Strategy::BackToSource(Tier::endless(trial.retry())))
        .with_default(policy);
    let config = trial.config(apart(&trial, flow));
    let runs = Runs::default();
    let main = start(&trial, &config, Role::Main, 2, &runs);
    let retry = Consumer::new(config.clone()).with_created_topics().with_role(Role::Retry);
    let retry = Trial::spawn_consumer(retry);
    main.joined().await?;
    retry.joined().await?;
    trial.produce(["a"])?;
    runs.reach(3).await?;
    assert_eq!(topics(&runs), BTreeSet::from([trial.topic.clone()]));
    main.stop().await?;
    retry.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_without_a_group_of_its_own_is_refused_with_the_key_to_set() -> Result<()> {
    let trial = Trial::new("norole", 1).await?;
    let member = start(&trial, &trial.config(single(&trial)), Role::Main, 0, &Runs::default());
    let error = member.ended().await?.unwrap_err();
    assert!(matches!(&error, RunError::BadRole(_)), "{error:?}");
    let told = error.to_string();
    for words in [trial.topic.as_str(), "`retry.group`", "role `main`"] {
        assert!(told.contains(words), "{told}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_flows_that_are_asked_for_run_and_the_others_topics_are_not_left_behind()
-> Result<()> {
    let trial = Trial::new("flows", 1).await?;
    let other = Trial::new("other", 1).await?;
    let config = trial.config(single(&trial)).with_flow(FlowConfig::new(single(&other)));
    let (runs, others) = (Runs::default(), Runs::default());
    let consumer = |noted: Runs| {
        let handler = move |record: Record, context: Context| {
            noted.note(&record, &context);
            async {}
        };
        let consumer =
            Consumer::new(config.clone()).with_handler(trial.topic.as_str(), handler.clone());
        consumer.with_handler(other.topic.as_str(), handler).with_created_topics()
    };
    let both = Trial::spawn_consumer(consumer(others.clone()));
    both.joined().await?;
    other.produce(["x"])?;
    others.reach(1).await?;
    both.stop().await?;
    other.produce(["y"])?;
    trial.produce(["a"])?;
    let member = Trial::spawn_consumer(consumer(runs.clone()).with_flows([trial.topic.as_str()]));
    runs.reach(1).await?;
    trial.settled(&[&trial.topic]).await?;
    assert_eq!(topics(&runs), BTreeSet::from([trial.topic.clone()]));
    assert_eq!(member.state().flows.len(), 1);
    let events = member.stop().await?;
    assert!(!events.iter().any(|it| matches!(it, Event::LeftBehind { .. })), "{events:?}");

    let unknown = Trial::spawn_consumer(consumer(runs).with_flows(["nobody"]));
    let told = unknown.ended().await?.unwrap_err().to_string();
    assert!(told.contains("`nobody`") && told.contains(&trial.topic), "{told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn flows_that_run_apart_share_a_group() -> Result<()> {
    for protocol in ["classic", "consumer"] {
        let trials = [Trial::new("apart-a", 3).await?, Trial::new("apart-b", 3).await?];
        let config = trials[0]
            .config(single(&trials[0]))
            .with_flow(FlowConfig::new(single(&trials[1])))
            .with_kafka("group.protocol", protocol);
        let runs = [Runs::default(), Runs::default()];
        let mut members = Vec::new();
        for (trial, runs) in trials.iter().zip(&runs) {
            let noted = runs.clone();
            let handler = move |record: Record, context: Context| {
                let run = noted.note(&record, &context);
                async move { if run.attempt == 0 { Err(Failure::of_status(503)) } else { Ok(()) } }
            };
            let consumer =
                Consumer::new(config.clone()).with_handler(trial.topic.as_str(), handler);
            let consumer = consumer.with_created_topics().with_flows([trial.topic.as_str()]);
            members.push(Trial::spawn_consumer(consumer));
        }
        for member in &members {
            member.until("it has its flow's partitions", |it| it.partitions == 6).await?;
        }
        for (trial, runs) in trials.iter().zip(&runs) {
            let values: Vec<_> = (0..9).map(|it| (it.to_string(), it.to_string())).collect();
            trial.broker.produce(&trial.topic, 3, &values)?;
            let is_done = || runs.all().iter().filter(|it| it.attempt == 1).count() == 9;
            until("all are done", is_done).await?;
            assert_eq!(topics(runs), BTreeSet::from([trial.topic.clone(), trial.retry()]));
        }
        for member in members {
            member.stop().await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_settled_before_retries_got_a_group_of_their_own_does_not_run_again() -> Result<()>
{
    let trial = Trial::new("moved", 1).await?;
    let before = Runs::default();
    let member = start(&trial, &trial.config(single(&trial)), Role::All, 1, &before);
    trial.produce(["a", "b", "c"])?;
    until("all are done", || before.all().iter().filter(|it| it.attempt == 1).count() == 3).await?;
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    member.stop().await?;

    let after = Runs::default();
    let config = trial.config(apart(&trial, single(&trial)));
    let member = start(&trial, &config, Role::All, 1, &after);
    trial.produce(["d"])?;
    until("the new one is done", || after.all().iter().any(|it| it.attempt == 1)).await?;
    member.stop().await?;
    let values: BTreeSet<_> = after.all().into_iter().map(|it| it.value).collect();
    assert_eq!(values, BTreeSet::from(["d".to_owned()]));
    Ok(())
}

/// Members of one role in processes that can be killed.
struct Processes {
    directory: PathBuf,
    running: Vec<(&'static str, Child)>,
    started: u32,
}

impl Processes {
    fn start(&mut self, role: &'static str) -> Result<()> {
        self.started += 1;
        let file = |kind: &str| self.directory.join(format!("{role}-{}.{kind}", self.started));
        let child = Command::new(Path::new(env!("CARGO_BIN_EXE_redrive-suite")))
            .arg("member")
            .arg("--config")
            .arg(self.directory.join("config.yaml"))
            .arg("--ledger")
            .arg(file("ledger"))
            .env("REDRIVE_SUITE_ROLE", role)
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(file("log"))?)
            .spawn()?;
        self.running.push((role, child));
        Ok(())
    }

    /// Kills the first member, and starts another in its role.
    fn kill_first(&mut self) -> Result<()> {
        let (role, mut child) = self.running.remove(0);
        child.kill()?;
        child.wait()?;
        self.start(role)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in &mut self.running {
            _ = child.kill();
            _ = child.wait();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_of_each_role_that_are_killed_lose_nothing() -> Result<()> {
    let trial = Trial::new("killed", 4).await?;
    let directory = std::env::temp_dir().join(&trial.topic);
    std::fs::create_dir_all(&directory)?;
    let (broker, group, topic) = (&trial.broker.address, &trial.group, &trial.topic);
    let config = format!(
        "kafka: {{ bootstrap.servers: \"{broker}\", session.timeout.ms: 6000, heartbeat.interval.ms: 500 }}\ngroup: {group}\ncommit_interval: 100ms\nflows:\n- topic: {topic}\n  retry: {{ strategy: single, group: {group}-retry }}\n  default: {{ delayed: {{ attempts: 5, backoff: {{ fixed: 300ms }} }} }}\n"
    );
    std::fs::write(directory.join("config.yaml"), &config)?;
    let loaded = super::topics::connect(&trial.config(apart(&trial, single(&trial)))).await?;
    loaded.apply(&loaded.plan().await?, false, |_| {}).await;
    let mut processes = Processes { directory: directory.clone(), running: Vec::new(), started: 0 };
    for role in ["main", "retry", "main", "retry"] {
        processes.start(role)?;
    }
    let count = 400;
    let task = |id| Task { id, fails: id % 3, is_hopeless: false, takes: 0 };
    let values: Vec<_> = (0..count).map(|id| (format!("k{id}"), task(id).to_value())).collect();
    let ended = || -> usize {
        let lives = ledger::read(&directory).unwrap_or_default();
        lives.values().filter(|it| it.done > 0).count()
    };
    for (round, part) in values.chunks(100).enumerate() {
        trial.broker.produce(topic, 4, part)?;
        let least = round * 60;
        until("some are done", || ended() >= least).await?;
        processes.kill_first()?;
    }
    until("all are done", || ended() as u64 == count).await?;
    drop(processes);
    // Each role ran what is its own, and no record before its time.
    for entry in std::fs::read_dir(&directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !name.ends_with(".ledger") {
            continue;
        }
        for line in std::fs::read_to_string(&path)?.lines().filter(|it| it.starts_with("start")) {
            let attempt: u64 = line.split(' ').nth(2).unwrap().parse()?;
            assert_eq!(attempt == 0, name.starts_with("main"), "{name}: {line}");
        }
    }
    assert!(ledger::read(&directory)?.values().all(|it| it.early <= 0));
    std::fs::remove_dir_all(&directory)?;
    Ok(())
}
