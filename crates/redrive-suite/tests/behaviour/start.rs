//! Where a group without offsets begins.

use std::collections::BTreeSet;

use anyhow::Result;
use redrive::config::{Config, Start};
use redrive::{Context, Failure, Record, Timestamp};
use redrive_suite::broker::Sent;
use redrive_suite::own::OwnBroker;
use redrive_suite::trial::{Member, Runs, Trial, until};

use super::single;

fn config(trial: &Trial, start: Start) -> Config {
    trial.config(single(trial)).with_start(start)
}

fn spawn(trial: &Trial, config: Config, runs: &Runs) -> Member {
    let noted = runs.clone();
    trial.spawn(config, move |record: Record, context: Context| {
        noted.note(&record, &context);
        async {}
    })
}

/// Starts a consumer with properties, and waits until all partitions of two topics with two each are its own.
async fn start_with(
    trial: &Trial,
    start: Start,
    properties: &[(&str, &str)],
    runs: &Runs,
) -> Result<Member> {
    let config = config(trial, start);
    let config = properties.iter().fold(config, |it, (key, value)| it.with_kafka(*key, *value));
    let member = spawn(trial, config, runs);
    member.until("it has its partitions", |it| it.partitions == 4).await?;
    Ok(member)
}

/// Starts a consumer and waits until all of so many partitions of the source are its own.
async fn start(trial: &Trial, start: Start, partitions: u64, runs: &Runs) -> Result<Member> {
    let member = spawn(trial, config(trial, start), runs);
    // The source's, and as many of the retry topic.
    member.until("it has its partitions", |it| it.partitions >= 2 * partitions).await?;
    Ok(member)
}

fn values(runs: &Runs) -> BTreeSet<String> {
    runs.all().into_iter().map(|it| it.value).collect()
}

fn set(values: &[&str]) -> BTreeSet<String> {
    values.iter().map(|it| (*it).to_owned()).collect()
}

async fn latest(name: &str, properties: &[(&str, &str)]) -> Result<()> {
    let trial = Trial::new(name, 2).await?;
    trial.produce(["old-1", "old-2", "old-3"])?;
    let runs = Runs::default();
    let member = start_with(&trial, Start::Latest, properties, &runs).await?;
    // Where it begins is committed, though nothing was read.
    let committed = trial.broker.committed(&trial.group, &trial.topic, 2)?;
    assert_eq!(committed.iter().map(|it| it.0).collect::<Vec<_>>(), [Some(3), Some(0)]);
    member.stop().await?;

    trial.produce(["while-away"])?;
    let member = start_with(&trial, Start::Latest, properties, &runs).await?;
    trial.produce(["new"])?;
    runs.reach(2).await?;
    trial.settled(&[&trial.topic]).await?;
    member.stop().await?;
    assert_eq!(values(&runs), set(&["while-away", "new"]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn latest_leaves_out_what_was_there_and_nothing_that_comes_later() -> Result<()> {
    latest("latest", &[]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn latest_does_so_with_an_eager_assignor() -> Result<()> {
    latest("latest-eager", &[("partition.assignment.strategy", "range")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn latest_does_so_with_the_newer_protocol() -> Result<()> {
    latest("latest-848", &[("group.protocol", "consumer")]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_begins_with_the_first_record_that_is_not_before_it() -> Result<()> {
    let trial = Trial::new("time", 3).await?;
    let at = |partition, value: &str, millis| Sent {
        partition,
        timestamp: Some(millis),
        ..Sent::value(value)
    };
    // Not so long ago that retention deletes it.
    let noon = redrive_suite::ledger::now() - 3_600_000;
    // Partition 1 has nothing since then, and partition 2 nothing at all.
    let records = [
        at(0, "before", noon - 1),
        at(0, "then", noon),
        at(0, "after", noon + 1),
        at(1, "long ago", noon - 1000),
    ];
    trial.broker.send(&trial.topic, &records)?;
    let runs = Runs::default();
    let time = Start::At(Timestamp::from_millis(noon));
    let member = start(&trial, time, 3, &runs).await?;
    trial.broker.send(&trial.topic, &[at(1, "late", noon - 500), at(2, "new", noon)])?;
    runs.reach(4).await?;
    trial.settled(&[&trial.topic]).await?;
    member.stop().await?;
    assert_eq!(values(&runs), set(&["then", "after", "late", "new"]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_is_added_later_is_read_from_its_beginning() -> Result<()> {
    let trial = Trial::new("added", 1).await?;
    trial.produce(["old"])?;
    let runs = Runs::default();
    start(&trial, Start::Latest, 1, &runs).await?.stop().await?;
    trial.broker.grow(&trial.topic, 2).await?;
    trial.broker.send(&trial.topic, &[Sent { partition: 1, ..Sent::value("first") }])?;
    let member = spawn(&trial, config(&trial, Start::Latest), &runs);
    runs.reach(1).await?;
    trial.settled(&[&trial.topic]).await?;
    member.stop().await?;
    assert_eq!(values(&runs), set(&["first"]));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_start_together_agree_on_where_the_group_begins() -> Result<()> {
    // They all are in the first generation, so that each begins with a part of the partitions.
    let own = OwnBroker::start(&["--set", "group.initial.rebalance.delay.ms=3000"])?;
    let trial = Trial::on(own.broker()?, "together", 6).await?;
    let to = |value: &str| -> Vec<_> {
        (0..6)
            .map(|partition| Sent { partition, ..Sent::value(format!("{value}-{partition}")) })
            .collect()
    };
    trial.broker.send(&trial.topic, &to("old"))?;
    // Made beforehand, so that they do not wait for each other.
    let topics = super::topics::connect(&config(&trial, Start::Latest)).await?;
    topics.apply(&topics.plan().await?, false, |_| {}).await;
    let runs = Runs::default();
    let members: Vec<_> =
        (0..3).map(|_| spawn(&trial, config(&trial, Start::Latest), &runs)).collect();
    until("all partitions are read", || {
        members.iter().map(|it| it.state().partitions).sum::<u64>() == 12
    })
    .await?;
    trial.broker.send(&trial.topic, &to("new"))?;
    runs.reach(6).await?;
    trial.settled(&[&trial.topic]).await?;
    for member in members {
        member.stop().await?;
    }
    let new: Vec<_> = (0..6).map(|it| format!("new-{it}")).collect();
    assert_eq!(values(&runs), new.into_iter().collect());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_topics_begin_with_their_earliest_record() -> Result<()> {
    let trial = Trial::new("retries", 1).await?;
    let topics = super::topics::connect(&config(&trial, Start::Latest)).await?;
    topics.apply(&topics.plan().await?, false, |_| {}).await;
    trial.produce(["skipped"])?;
    let group = trial.group.clone();
    let waiting = Sent::value("waiting")
        .with_header("redrive-version", Some(b"1"))
        .with_header("redrive-group", Some(group.as_bytes()))
        .with_header("redrive-due", Some(b"1"));
    trial.broker.send(&trial.retry(), &[waiting])?;
    let runs = Runs::default();
    let noted = runs.clone();
    let member =
        trial.spawn(config(&trial, Start::Latest), move |record: Record, context: Context| {
            noted.note(&record, &context);
            async { Err::<(), _>(Failure::of_status(404)) }
        });
    trial.letters(1).await?;
    member.stop().await?;
    assert_eq!(values(&runs), set(&["waiting"]));
    Ok(())
}
