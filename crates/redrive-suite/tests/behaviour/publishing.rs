//! A record whose next stop does not take it is held, and nothing is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use anyhow::Result;
use redrive::config::FlowConfig;
use redrive::headers::Dialect;
use redrive::{Context, Delayed, Event, Failure, Flow, Policy, Record, Strategy, Tier};
use redrive_suite::broker::{Broker, Sent};
use redrive_suite::own::OwnBroker;
use redrive_suite::trial::{Runs, Trial, until};

use super::{fixed, single};

fn delayed(trial: &Trial) -> Flow {
    let policy = Policy::default().with_delayed(Delayed::attempts(1).with_backoff(fixed(100)));
    trial.flow().with_strategy(Strategy::Single(Tier::endless(trial.retry()))).with_default(policy)
}

/// A topic for records of this size at the most.
async fn small(broker: &Broker, topic: &str, bytes: &str) -> Result<()> {
    broker.make_topics(&[(topic, 1)], &[("max.message.bytes", bytes)]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_held_while_its_dead_letter_topic_is_missing() -> Result<()> {
    let trial = Trial::new("missing", 1).await?;
    let member = trial
        .start(single(&trial), |record: Record, _: Context| async move {
            if record.value() == Some(b"bad") { Err(Failure::of_status(404)) } else { Ok(()) }
        })
        .await?;
    trial.broker.delete_topic(&trial.dead_letters()).await?;
    trial.produce(["bad", "good"])?;
    member.until("the record is held", |state| state.flows[0].unpublished == 1).await?;
    assert!(!member.state().is_ready());
    member.told("the failure", |it| matches!(it, Event::PublishFailed { .. })).await?;
    member.until("others go on", |state| state.flows[0].succeeded == 1).await?;
    assert_eq!(trial.unsettled(&trial.topic)?, 2, "nothing is committed past it");
    trial.broker.make_topics(&[(&trial.dead_letters(), 1)], &[]).await?;
    let letters = trial.letters(1).await?;
    assert_eq!(letters[0].value.as_deref(), Some(&b"bad"[..]));
    member.until("all is well", redrive::State::is_ready).await?;
    trial.settled(&[&trial.topic]).await?;
    assert_eq!(trial.letters(1).await?.len(), 1);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_tells_of_the_failure_is_left_out_where_it_makes_a_record_too_large() -> Result<()> {
    let trial = Trial::new("trimmed", 1).await?;
    small(&trial.broker, &trial.retry(), "2000").await?;
    let runs = Runs::default();
    let noted = runs.clone();
    let member = trial
        .start(delayed(&trial), move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            let failure = Failure::of_status(503).with_message("long ".repeat(500));
            async move { if run.attempt == 0 { Err(failure) } else { Ok(()) } }
        })
        .await?;
    trial.produce(["x".repeat(1000)])?;
    let all = runs.reach(2).await?;
    assert_eq!(all[1].topic, trial.retry());
    let copy = &trial.broker.read(&trial.retry())?[0];
    assert_eq!(copy.header("redrive-error-message"), None);
    assert_eq!(copy.header("redrive-status"), Some("503"));
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    assert!(member.state().is_ready());
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_too_large_for_its_retry_topic_ends_as_a_dead_letter() -> Result<()> {
    let trial = Trial::new("large", 1).await?;
    small(&trial.broker, &trial.retry(), "1000").await?;
    let runs = Runs::default();
    let noted = runs.clone();
    let member = trial
        .start(delayed(&trial), move |record: Record, context: Context| {
            noted.note(&record, &context);
            async { Err::<(), _>(Failure::of_status(503)) }
        })
        .await?;
    let large = "x".repeat(5000);
    trial.produce([&large])?;
    let letters = trial.letters(1).await?;
    assert_eq!(letters[0].header("redrive-reason"), Some("too-large"));
    // And what had gone wrong before.
    assert_eq!(letters[0].header("redrive-status"), Some("503"));
    assert!(letters[0].header("redrive-failed-at").is_some());
    assert_eq!(letters[0].value.as_deref(), Some(large.as_bytes()));
    trial.settled(&[&trial.topic]).await?;
    member.until("all is well", redrive::State::is_ready).await?;
    assert_eq!(runs.count(), 1);
    assert_eq!(member.flow()?.dead_lettered, 1);
    member.stop().await?;
    Ok(())
}

/// What a dialect writes of the failure is left out, too.
#[tokio::test(flavor = "multi_thread")]
async fn what_tells_of_the_failure_in_a_dialect_is_left_out_as_well() -> Result<()> {
    let trial = Trial::new("trimmed-dialect", 1).await?;
    small(&trial.broker, &trial.retry(), "3000").await?;
    let runs = Runs::default();
    let noted = runs.clone();
    let flow = FlowConfig { dialect: Dialect::Spring, ..FlowConfig::new(delayed(&trial)) };
    let member = trial
        .start(flow, move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            let mut failure = Failure::of_status(503);
            failure.detail = Some("at a line ".repeat(300));
            async move { if run.attempt == 0 { Err(failure) } else { Ok(()) } }
        })
        .await?;
    trial.produce(["x".repeat(1000)])?;
    runs.reach(2).await?;
    let copy = &trial.broker.read(&trial.retry())?[0];
    assert_eq!(copy.header("kafka_exception-stacktrace"), None);
    assert!(copy.header("kafka_original-topic").is_some());
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    assert!(trial.broker.read(&trial.dead_letters())?.is_empty());
    member.stop().await?;
    Ok(())
}

/// Brokers refuse a batch as a whole, whichever of its records are too large.
async fn side_by_side(name: &str, batch: Option<&str>) -> Result<()> {
    const RECORDS: usize = 60;
    let trial = Trial::new(name, 1).await?;
    small(&trial.broker, &trial.retry(), "20000").await?;
    let policy = Policy::default().with_delayed(Delayed::attempts(1).with_backoff(fixed(1000)));
    let config = trial.config(delayed(&trial).with_default(policy));
    let config = batch.into_iter().fold(config, |config, it| config.with_kafka("batch.size", it));
    let runs = Runs::default();
    let noted = runs.clone();
    let member = trial
        .start_with(config, move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            async move { if run.attempt == 0 { Err(Failure::of_status(503)) } else { Ok(()) } }
        })
        .await?;
    let small = |it: usize| format!("{it:0>1000}");
    let large = "x".repeat(30_000);
    let values = (0..RECORDS).map(|it| if it == RECORDS / 2 { large.clone() } else { small(it) });
    trial.produce(values)?;
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    let letters = trial.broker.read(&trial.dead_letters())?;
    let sizes: Vec<_> = letters.iter().map(|it| it.value.as_ref().map(Vec::len)).collect();
    assert_eq!(sizes, [Some(large.len())]);
    assert_eq!(letters[0].header("redrive-reason"), Some("too-large"));
    for it in (0..RECORDS).filter(|it| *it != RECORDS / 2) {
        let attempts: Vec<_> = runs.of(&small(it)).iter().map(|it| it.attempt).collect();
        assert_eq!(attempts, [0, 1], "{it}");
    }
    member.until("all is well", redrive::State::is_ready).await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_not_taken_for_too_large_because_of_those_beside_them() -> Result<()> {
    side_by_side("beside", None).await?;
    // As if the limit had been lowered after the start.
    side_by_side("lowered", Some("1000000")).await
}

/// A flow that stopped because nothing takes a large record, and what its handler answers from then on.
async fn too_large_for_all(
    name: &str,
) -> Result<(Trial, redrive_suite::trial::Member, Runs, Arc<AtomicU16>)> {
    let trial = Trial::new(name, 1).await?;
    small(&trial.broker, &trial.retry(), "1000").await?;
    small(&trial.broker, &trial.dead_letters(), "1000").await?;
    let (runs, status) = (Runs::default(), Arc::new(AtomicU16::new(503)));
    let (noted, answer) = (runs.clone(), Arc::clone(&status));
    let member = trial
        .start(delayed(&trial), move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            let status = answer.load(Ordering::SeqCst);
            async move {
                if status == 200 || run.value.len() < 100 {
                    Ok(())
                } else {
                    Err(Failure::of_status(status))
                }
            }
        })
        .await?;
    let records = ["small".to_owned(), "x".repeat(5000), "small too".to_owned()];
    trial.produce(records)?;
    member.until("the flow stopped", |state| state.flows[0].stopped.is_some()).await?;
    let state = member.state();
    assert!(!state.is_ready());
    let why = state.flows[0].stopped.clone().unwrap();
    assert!(why.contains("too large") && why.contains(&trial.dead_letters()), "{why}");
    until("what came before is committed", || trial.unsettled(&trial.topic).unwrap() == 2).await?;
    Ok((trial, member, runs, status))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_nothing_takes_stops_the_flow_and_arrives_once_the_limit_is_raised()
-> Result<()> {
    let (trial, member, _, _) = too_large_for_all("huge").await?;
    // Only the dead-letter topic takes it from now on.
    trial.broker.set(&trial.dead_letters(), &[("max.message.bytes", "100000")]).await?;
    // It may still be refused in the moment before the broker goes by it, which stops the flow again.
    let goes_on = async {
        loop {
            assert!(member.handle.resume(&trial.topic));
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let letters = tokio::select! {
        letters = trial.letters(1) => letters?,
        () = goes_on => unreachable!(),
    };
    assert_eq!(letters[0].value.as_ref().unwrap().len(), 5000);
    assert_eq!(letters[0].header("redrive-reason"), Some("too-large"));
    trial.settled(&[&trial.topic]).await?;
    member.until("all is well", redrive::State::is_ready).await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_is_well_again_when_the_record_that_nothing_took_succeeds() -> Result<()> {
    let (trial, member, runs, status) = too_large_for_all("recovers").await?;
    status.store(200, Ordering::SeqCst);
    assert!(member.handle.resume(&trial.topic));
    trial.settled(&[&trial.topic]).await?;
    member.until("all is well", redrive::State::is_ready).await?;
    assert_eq!(runs.of("small").len(), 1);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_held_while_its_dead_letter_topic_is_forbidden() -> Result<()> {
    let secure = OwnBroker::secure()?;
    let trial = Trial::on(secure.broker()?, "forbidden", 1).await?;
    let letters = trial.dead_letters();
    small(&trial.broker, &letters, "100000").await?;
    let rule = ["--topic", &letters, "--operation", "Write", "--deny-principal", "User:limited"];
    secure.acl(&[&["--add"], &rule[..]].concat())?;
    // Whoever a topic's rules do not name may not even see it.
    let seen =
        ["--topic", &letters, "--operation", "Describe", "--allow-principal", "User:limited"];
    secure.acl(&[&["--add"], &seen[..]].concat())?;
    let config = trial
        .config(single(&trial))
        .with_kafka("bootstrap.servers", secure.get("KAFKA_SASL")?)
        .with_kafka("security.protocol", "SASL_PLAINTEXT")
        .with_kafka("sasl.mechanism", "SCRAM-SHA-256")
        .with_kafka("sasl.username", "limited")
        .with_kafka("sasl.password", "limited-secret");
    let member = trial
        .start_with(config, |_: Record, _: Context| async { Err::<(), _>(Failure::of_status(404)) })
        .await?;
    trial.broker.send(&trial.topic, &[Sent::value("bad")])?;
    member.until("the record is held", |state| state.flows[0].unpublished == 1).await?;
    assert!(!member.state().is_ready());
    assert_eq!(trial.unsettled(&trial.topic)?, 1);
    assert!(trial.broker.read(&letters)?.is_empty());
    secure.acl(&["--remove", "--force", "--topic", &letters])?;
    assert_eq!(trial.letters(1).await?.len(), 1);
    trial.settled(&[&trial.topic]).await?;
    member.until("all is well", redrive::State::is_ready).await?;
    member.stop().await?;
    Ok(())
}
