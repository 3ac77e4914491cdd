//! Who uses an embedded broker: consumers of the same process, and configs as they are for Apache Kafka.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Result;
use redrive::config::{Config, FlowConfig, Kafka};
use redrive::embedded::Broker as Embedded;
use redrive::{
    Backoff, Consumer, Context, Delayed, Event, Failure, Flow, Policy, Record, Strategy, Tier,
};
use redrive_suite::broker::Broker;
use redrive_suite::trial::{Member, Run, Runs, Trial, until};

/// A record fails once and then succeeds; nothing is done.
async fn fails_once(context: Context) -> Result<(), Failure> {
    if context.overall_attempts() == 0 { Err(Failure::of_status(503)) } else { Ok(()) }
}

fn retried(topic: &str) -> Flow {
    let backoff = Backoff::Fixed(Duration::from_millis(50));
    Flow::new(topic)
        .with_strategy(Strategy::Single(Tier::endless(format!("{topic}.retry"))))
        .with_default(Policy::default().with_delayed(Delayed::attempts(3).with_backoff(backoff)))
}

/// The runs of records that each fail once, and that members share which come and go.
async fn shared(trial: &Trial, protocol: &str) -> Result<Vec<Run>> {
    let runs = Runs::default();
    let start = async || -> Result<Member> {
        let noted = runs.clone();
        let handler = move |record: Record, context: Context| {
            noted.note(&record, &context);
            fails_once(context)
        };
        let config = trial.config(retried(&trial.topic)).with_kafka("group.protocol", protocol);
        trial.start_with(config, handler).await
    };
    let values = |ids: std::ops::Range<i32>| -> Vec<_> {
        ids.map(|it| (format!("k{it}"), it.to_string())).collect()
    };
    let one = start().await?;
    trial.broker.produce(&trial.topic, 6, &values(0..100))?;
    let other = start().await?;
    let third = start().await?;
    trial.broker.produce(&trial.topic, 6, &values(100..200))?;
    until("all share the work", || {
        [&one, &other, &third].iter().all(|it| it.state().partitions > 0)
    })
    .await?;
    one.stop().await?;
    trial.broker.produce(&trial.topic, 6, &values(200..300))?;
    runs.reach(600).await?;
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    other.stop().await?;
    third.stop().await?;
    let all = runs.all();
    let each: BTreeSet<_> = all.iter().map(|it| (it.value.clone(), it.attempt)).collect();
    assert_eq!(each.len(), 600, "something is lost");
    assert!(all.iter().all(|it| it.due.is_none_or(|due| it.at >= due)), "something ran early");
    Ok(all)
}

/// Those who share the process with the broker are members of the classic protocol. It refuses their commits while their
/// group changes, so that what they did last may run again.
#[tokio::test(flavor = "multi_thread")]
async fn members_come_and_go_and_nothing_is_lost() -> Result<()> {
    shared(&Trial::on(Broker::embedded()?, "shared", 6).await?, "classic").await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn members_that_know_only_its_address_come_and_go_and_nothing_runs_twice() -> Result<()> {
    let inside = Trial::on(Broker::embedded()?, "outside", 6).await?;
    let state = format!("{}.redrive", inside.group);
    let topics = [(&*inside.retry(), 6), (&*inside.dead_letters(), 6), (&*state, 1)];
    inside.broker.make_topics(&topics, &[]).await?;
    let outside = Trial { broker: Broker::at(inside.broker.address.clone()), ..inside.clone() };
    assert_eq!(shared(&outside, "consumer").await?.len(), 600);
    Ok(())
}

/// The topics of the flow that nobody made, and those that an earlier config left.
#[tokio::test(flavor = "multi_thread")]
async fn all_topics_are_made_with_as_many_partitions_as_their_source() -> Result<()> {
    let broker = Broker::embedded()?;
    broker.make_topics(&[("made", 5)], &[]).await?;
    let (made, mut missing) = (retried("made"), FlowConfig::new(retried("missing")));
    missing.draining.push("missing.old".to_owned());
    let config = Config::new("g").with_flow(FlowConfig::new(made)).with_flow(missing);
    let handler = |_: Record, context: Context| fails_once(context);
    let consumer = Consumer::new(config)
        .with_broker(Arc::clone(broker.embedded.as_ref().unwrap()))
        .with_handler("made", handler)
        .with_handler("missing", handler);
    let member = Trial::spawn_consumer(consumer);
    member.joined().await?;
    for (topic, partitions) in [
        ("made", 5),
        ("made.retry", 5),
        ("made.dlt", 5),
        ("missing", 3),
        ("missing.retry", 3),
        ("missing.dlt", 3),
        ("missing.old", 3),
        ("g.redrive", 1),
    ] {
        assert_eq!(broker.bounds(topic)?.len(), partitions, "{topic}");
    }
    let told = format!("{:?}", member.events());
    assert!(!told.contains("TopicDiffers") && !told.contains("LeftBehind"), "{told}");
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_config_that_asks_for_it_has_a_broker_of_its_own_that_ends_with_the_run() -> Result<()> {
    let config = Config::new("g").with_flow(FlowConfig::new(retried("orders")));
    let config = Config { kafka: Some(Kafka::Embedded), ..config };
    let runs = Runs::default();
    let noted = runs.clone();
    let began = Instant::now();
    let handler = move |record: Record, context: Context| {
        noted.note(&record, &context);
        fails_once(context)
    };
    let member = Trial::spawn_consumer(Consumer::new(config).with_handler("orders", handler));
    member.joined().await?;
    println!("joined after {:?}", began.elapsed());
    let address = member.events().iter().find_map(|it| match it {
        Event::Embedded { address } => Some(address.to_string()),
        _ => None,
    });
    let broker = Broker::at(address.unwrap());
    broker.produce("orders", 3, &[("k".to_owned(), "v".to_owned())])?;
    runs.reach(2).await?;
    member.stop().await?;
    assert!(std::net::TcpStream::connect(&broker.address).is_err(), "it is still there");
    Ok(())
}

/// With many flows, and after a while in which nobody asked for anything.
#[tokio::test(flavor = "multi_thread")]
async fn many_flows_run_side_by_side() -> Result<()> {
    let broker = Arc::new(Embedded::start()?);
    let topics: Vec<_> = (0..30).map(|it| format!("topic-{it}")).collect();
    let mut config = Config::new("many");
    for topic in &topics {
        config = config.with_flow(FlowConfig::new(retried(topic)));
    }
    let runs = Runs::default();
    let mut consumer = Consumer::new(config).with_broker(Arc::clone(&broker));
    for topic in &topics {
        let noted = runs.clone();
        consumer = consumer.with_handler(topic, move |record: Record, context: Context| {
            noted.note(&record, &context);
            fails_once(context)
        });
    }
    let member = Trial::spawn_consumer(consumer);
    member.joined().await?;
    let client = Broker::at(broker.bootstrap());
    let producer = client.producer()?;
    for topic in &topics {
        let values: Vec<_> = (0..6).map(|it| (format!("k{it}"), format!("{topic}/{it}"))).collect();
        Broker::produce_by(&producer, topic, 3, &values)?;
    }
    runs.reach(30 * 6 * 2).await?;
    member.stop().await?;
    Ok(())
}
