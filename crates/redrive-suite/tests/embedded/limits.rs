//! A partition keeps 5 MiB: what is dropped before its time is told of, and never passed over in silence.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use redrive::config::{Config, FlowConfig, Kafka};
use redrive::{
    Backoff, Consumer, Context, Delayed, Event, Failure, Outcome, Policy, Record, RunError,
    Strategy, Tier,
};
use redrive_suite::broker::{Broker, Sent};
use redrive_suite::trial::{Member, Run, Runs, Trial, until};
use tokio::sync::Semaphore;

/// Records of 100 kB each.
fn large(ids: std::ops::Range<usize>) -> Vec<Sent> {
    ids.map(|id| Sent::value(format!("{id:06}{}", "x".repeat(100_000)))).collect()
}

/// The offsets that were told to be lost.
fn lost(member: &Member, topic: &str) -> BTreeSet<i64> {
    let lost = |it: &Event| match it {
        Event::Lost { topic: of, offsets, .. } if **of == *topic => Some(offsets.clone()),
        _ => None,
    };
    member.events().iter().filter_map(lost).flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_source_topic_drops_before_it_was_read_is_told() -> Result<()> {
    let trial = Trial::on(Broker::embedded()?, "overflow", 1).await?;
    let (runs, gate) = (Runs::default(), Arc::new(Semaphore::new(0)));
    let (noted, waits) = (runs.clone(), Arc::clone(&gate));
    let mut flow = FlowConfig::new(trial.flow()).with_concurrency(1);
    flow.payload_budget = 1_000_000;
    let member = trial
        .start(flow, move |record: Record, context: Context| {
            let (noted, waits) = (noted.clone(), Arc::clone(&waits));
            async move {
                waits.acquire().await.unwrap().forget();
                noted.note(&record, &context);
                Ok::<(), Failure>(())
            }
        })
        .await?;
    // It stops reading when it has some 20 MB, and the broker has long dropped what comes next.
    trial.broker.send(&trial.topic, &large(0..600))?;
    gate.add_permits(100_000);
    let last = large(600..601);
    trial.broker.send(&trial.topic, &last)?;
    let is_last = |it: &Run| it.value.starts_with("000600");
    until("the last one ran", || runs.all().iter().any(is_last))
        .await
        .with_context(|| member.story())?;
    let ran: BTreeSet<i64> = runs.all().iter().map(|it| it.value[..6].parse().unwrap()).collect();
    let lost = lost(&member, &trial.topic);
    println!("{} ran, {} lost", ran.len(), lost.len());
    assert!(!lost.is_empty(), "nothing was dropped: {}", member.story());
    assert!(ran.is_disjoint(&lost));
    assert_eq!(ran.len() + lost.len(), 601, "{ran:?} {lost:?}");
    member.stop().await?;
    Ok(())
}

/// Records that wait in a retry topic whose payloads are no longer in memory are read again before their time.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_retry_topic_drops_before_its_time_is_told() -> Result<()> {
    // Each partition of the source has enough room, but together they are too much for the one of the retry topic.
    let trial = Trial::on(Broker::embedded()?, "overflow-retry", 7).await?;
    trial.broker.make_topics(&[(&trial.retry(), 1)], &[]).await?;
    let policy = Policy::default()
        .with_delayed(Delayed::attempts(1).with_backoff(Backoff::Fixed(Duration::from_secs(5))));
    let flow = trial
        .flow()
        .with_strategy(Strategy::Single(Tier::endless(trial.retry())))
        .with_default(policy);
    let mut flow = FlowConfig::new(flow);
    flow.payload_budget = 1_000_000;
    let runs = Runs::default();
    let noted = runs.clone();
    let member = trial
        .start(flow, move |record: Record, context: Context| {
            let noted = noted.clone();
            async move {
                if context.overall_attempts() == 0 {
                    return Err(Failure::of_status(503));
                }
                noted.note(&record, &context);
                Ok(())
            }
        })
        .await?;
    let records = (0..).zip(large(0..70)).map(|(id, it)| Sent { partition: id % 7, ..it });
    trial.broker.send(&trial.topic, &records.collect::<Vec<_>>())?;
    until("all are done or lost", || {
        let ran: BTreeSet<_> = runs.all().iter().map(|it| it.value[..6].to_owned()).collect();
        ran.len() + lost(&member, &trial.retry()).len() == 70
    })
    .await
    .with_context(|| member.story())?;
    let lost = lost(&member, &trial.retry()).len();
    println!("{lost} lost");
    assert!((1..70).contains(&lost));
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_that_are_dropped_are_told() -> Result<()> {
    let trial = Trial::on(Broker::embedded()?, "overflow-letters", 1).await?;
    let member = trial
        .start(trial.flow(), |_: Record, _: Context| async {
            Outcome::dead_letter(Failure::of_status(404))
        })
        .await?;
    for start in (0..100).step_by(10) {
        trial.broker.send(&trial.topic, &large(start..start + 10))?;
    }
    let letters = trial.dead_letters();
    let is_it = |it: &Event| matches!(it, Event::Overflowed { topic, .. } if **topic == *letters);
    member.told("that dead letters are dropped", is_it).await?;
    let told = member.events().iter().find(|it| is_it(it)).unwrap().to_string();
    assert!(told.contains("5 MiB") && told.contains(&letters), "{told}");
    member.stop().await?;
    Ok(())
}

fn nothing(config: Config, topic: &str) -> Consumer {
    Consumer::new(config).with_handler(topic, |_: Record, _: Context| async { Outcome::Done })
}

/// Its transactions are answered and do nothing.
#[tokio::test(flavor = "multi_thread")]
async fn exactly_once_is_refused_however_one_comes_by_the_broker() -> Result<()> {
    let trial = Trial::on(Broker::embedded()?, "once", 1).await?;
    let broker = Arc::clone(trial.broker.embedded.as_ref().unwrap());
    let by_address = trial.plain_config(trial.flow()).with_exactly_once();
    let own = Config { kafka: Some(Kafka::Embedded), ..by_address.clone() };
    broker.make_topics(&by_address).await?;
    for consumer in [
        nothing(own, &trial.topic),
        nothing(by_address.clone(), &trial.topic).with_broker(broker),
        nothing(by_address, &trial.topic),
    ] {
        let error = consumer.run().await.unwrap_err();
        assert!(matches!(error, RunError::Unsupported(_)), "{error:?}");
        let told = error.to_string();
        assert!(told.contains("`exactly_once: true`") && told.contains("`false`"), "{told}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_kafka_takes_for_the_same_are_refused() -> Result<()> {
    let flow = |topic: &str| FlowConfig::new(redrive::Flow::new(topic));
    let config = Config::new("g").with_flow(flow("a.b")).with_flow(flow("a_b"));
    let config = Config { kafka: Some(Kafka::Embedded), ..config };
    let consumer =
        nothing(config, "a.b").with_handler("a_b", |_: Record, _: Context| async { Outcome::Done });
    let error = consumer.run().await.unwrap_err().to_string();
    assert!(error.contains("a_b"), "{error}");
    Ok(())
}
