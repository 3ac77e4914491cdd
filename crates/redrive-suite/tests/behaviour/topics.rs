//! Topics are looked at and made, and what differs is told.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use redrive::config::{Config, FlowConfig};
use redrive::topics::{MadeHow, Plan, Status, Topic, Topics};
use redrive::{Consumer, Context, Event, Failure, Record, RunError, Strategy, Tier};
use redrive_suite::own::{OwnBroker, tool};
use redrive_suite::trial::Trial;

use super::single;

const LIMIT: Duration = Duration::from_secs(30);

pub(crate) async fn connect(config: &Config) -> Result<Topics> {
    Ok(Topics::connect(config, LIMIT).await?)
}

fn topic<'a>(plan: &'a Plan, name: &str) -> &'a Topic {
    plan.topics.iter().find(|it| *it.name == *name).unwrap()
}

fn names<'a>(topics: impl IntoIterator<Item = &'a Topic>) -> Vec<String> {
    topics.into_iter().map(|it| it.name.to_string()).collect()
}

/// What Kafka's own tool says of a topic: how many partitions and replicas, and its own settings.
fn described(trial: &Trial, topic: &str) -> Result<(i32, i32, BTreeMap<String, String>)> {
    let text = tool("TopicCommand", &trial.broker.address, &["--describe", "--topic", topic])?;
    let line = text.lines().find(|it| it.contains("PartitionCount")).context("no such topic")?;
    let field = |name: &str| {
        let rest = line.split_once(name)?.1;
        rest.split_whitespace().next()
    };
    let number = |name| field(name).and_then(|it| it.parse().ok()).context("no number");
    let configs = field("Configs:").unwrap_or_default();
    let configs = configs.split(',').filter_map(|it| it.split_once('='));
    let configs = configs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    Ok((number("PartitionCount:")?, number("ReplicationFactor:")?, configs))
}

fn tiers(trial: &Trial, days: u64) -> FlowConfig {
    let tier = |number: u32, delay| Tier::new(format!("{}.{number}", trial.topic), delay);
    let tiers = vec![tier(1, Duration::from_secs(30)), tier(2, Duration::from_hours(days * 24))];
    FlowConfig::new(trial.flow().with_strategy(Strategy::Tiers(tiers)))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_missing_is_made_as_kafkas_own_tool_shows_and_only_once() -> Result<()> {
    let trial = Trial::without_topic(redrive_suite::broker::Broker::from_env()?, "apply");
    let settings = [("max.message.bytes", "2000000"), ("min.insync.replicas", "1")];
    trial.broker.make_topics(&[(&trial.topic, 3)], &settings).await?;
    let config = trial.config(tiers(&trial, 10));
    let topics = connect(&config).await?;
    let plan = topics.plan().await?;
    let state = format!("{}.redrive", trial.group);
    let first = format!("{}.1", trial.topic);
    let made = [first.clone(), format!("{}.2", trial.topic), trial.dead_letters(), state.clone()];
    assert_eq!(names(plan.missing()), made);
    assert!(!plan.is_complete());

    // A trial makes nothing, and says that it could be made.
    let tried = topics.apply(&plan, true, |_| {}).await;
    assert!(tried.iter().all(|it| it.result == Ok(MadeHow::WouldBeMade)), "{tried:?}");
    assert_eq!(names(topics.plan().await?.missing()).len(), 4);

    let mut told = Vec::new();
    let all = topics.apply(&plan, false, |it| told.push(it.topic.to_string())).await;
    assert!(all.iter().all(|it| it.result == Ok(MadeHow::Made)), "{all:?}");
    assert_eq!(told, made);
    // A plan that is old by now does no harm.
    let again = topics.apply(&plan, false, |_| {}).await;
    assert!(again.iter().all(|it| it.result == Ok(MadeHow::WasThere)), "{again:?}");

    let twenty_days = (20u64 * 86_400_000).to_string();
    let month = (30u64 * 86_400_000).to_string();
    for (name, partitions, expected) in [
        (
            first.as_str(),
            3,
            vec![
                ("cleanup.policy", "delete"),
                ("retention.ms", twenty_days.as_str()),
                ("retention.bytes", "-1"),
                ("message.timestamp.type", "LogAppendTime"),
                ("max.message.bytes", "2000000"),
                ("min.insync.replicas", "1"),
            ],
        ),
        (
            &trial.dead_letters(),
            3,
            vec![
                ("cleanup.policy", "delete"),
                ("retention.ms", month.as_str()),
                ("retention.bytes", "-1"),
                ("max.message.bytes", "2000000"),
                ("min.insync.replicas", "1"),
            ],
        ),
        (&state, 1, vec![("cleanup.policy", "compact"), ("min.insync.replicas", "1")]),
    ] {
        let found = described(&trial, name)?;
        assert_eq!((found.0, found.1), (partitions, 1), "{name}");
        // The broker's own settings are shown beside them.
        for (key, value) in expected {
            assert_eq!(found.2.get(key).map(String::as_str), Some(value), "{name}: {key}");
        }
    }
    let plan = topics.plan().await?;
    assert!(plan.is_complete());
    assert_eq!(plan.differences().count(), 0, "{plan:?}");
    assert_eq!(plan.auto_creates, Some(false));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_are_told_by_the_plan_and_at_the_start() -> Result<()> {
    let trial = Trial::new("differs", 3).await?;
    trial.broker.make_topics(&[(&trial.retry(), 1)], &[("retention.ms", "60000")]).await?;
    trial
        .broker
        .make_topics(&[(&trial.dead_letters(), 3)], &[("retention.bytes", "1000000")])
        .await?;
    let config = trial.config(single(&trial));
    let plan = connect(&config).await?.plan().await?;
    let settings = |name: &str| -> Vec<_> {
        topic(&plan, name).differences.iter().map(|it| it.setting).collect()
    };
    let retry = ["partitions", "retention.ms", "message.timestamp.type"];
    assert_eq!(settings(&trial.retry()), retry);
    assert_eq!(settings(&trial.dead_letters()), ["retention.ms", "retention.bytes"]);
    assert!(plan.differences().all(|it| !it.is_refused && !it.fix.is_empty()));

    let member = trial.start(single(&trial), |_: Record, _: Context| async {}).await?;
    let events = member.events();
    for setting in retry {
        let is_it = |it: &&Event| {
            matches!(it, Event::TopicDiffers { topic, difference }
                if **topic == *trial.retry() && difference.starts_with(setting))
        };
        assert!(events.iter().any(|it| is_it(&it)), "{setting}: {events:?}");
    }
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_compacted_retry_topic_is_refused() -> Result<()> {
    let trial = Trial::new("compacted", 1).await?;
    let settings = [("cleanup.policy", "compact")];
    trial.broker.make_topics(&[(&trial.retry(), 1)], &settings).await?;
    let plan = connect(&trial.config(single(&trial))).await?.plan().await?;
    assert!(topic(&plan, &trial.retry()).differences.iter().any(|it| it.is_refused));
    let member = trial.spawn(trial.config(single(&trial)), |_: Record, _: Context| async {});
    let error = member.ended().await?.unwrap_err();
    assert!(matches!(&error, RunError::BadTopic(_)), "{error:?}");
    let told = error.to_string();
    assert!(told.contains(&trial.retry()) && told.contains("cleanup.policy=delete"), "{told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn names_that_differ_in_dots_alone_are_told_of_before_kafka_refuses_them() -> Result<()> {
    let trial = Trial::new("dots", 1).await?;
    let other = trial.dead_letters().replace('.', "_");
    trial.broker.make_topics(&[(&other, 1)], &[]).await?;
    let plan = connect(&trial.config(single(&trial))).await?.plan().await?;
    let letters = topic(&plan, &trial.dead_letters());
    assert!(matches!(&letters.status, Status::Blocked(it) if it.contains(&other)), "{letters:?}");
    // Kafka agrees.
    let refused = trial.broker.make_topics(&[(&trial.dead_letters(), 1)], &[]).await;
    assert!(refused.is_err());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_flows_are_made_at_once() -> Result<()> {
    let trial = Trial::new("many", 1).await?;
    let name = |number: usize| format!("{}-{number}", trial.topic);
    let flows = 100;
    let sources: Vec<_> = (0..flows).map(name).collect();
    let mut config = trial.config(single(&trial));
    config.flows.clear();
    for source in &sources {
        let tier = Tier::endless(format!("{source}.retry"));
        let flow = redrive::Flow::new(source.as_str()).with_strategy(Strategy::Single(tier));
        config = config.with_flow(FlowConfig::new(flow));
    }
    let topics = connect(&config).await?.with_created_sources(1);
    let plan = topics.plan().await?;
    assert_eq!(plan.missing().count(), 3 * flows + 1);
    let made = topics.apply(&plan, false, |_| {}).await;
    let failed: Vec<_> = made.iter().filter(|it| it.result.is_err()).collect();
    assert!(failed.is_empty(), "{failed:?}");
    assert!(topics.plan().await?.is_complete());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_missing_is_not_made_by_asking_for_it() -> Result<()> {
    let own = OwnBroker::start(&["--set", "auto.create.topics.enable=true"])?;
    let trial = Trial::without_topic(own.broker()?, "typo");
    let handler = |_: Record, _: Context| async {};
    let run = |config: Config| {
        Trial::spawn_consumer(Consumer::new(config).with_handler(trial.topic.as_str(), handler))
    };
    let error = run(trial.config(single(&trial))).ended().await?.unwrap_err();
    let told = error.to_string();
    assert!(matches!(error, RunError::MissingTopics(_)), "{error:?}");
    assert!(told.contains("redrive topics apply") && told.contains("--create-topics"), "{told}");
    let plan = connect(&trial.config(single(&trial))).await?.plan().await?;
    assert_eq!((plan.missing().count(), plan.auto_creates), (4, Some(true)));
    let ours = |it: &String| it.starts_with(&trial.topic) || it.starts_with(&trial.group);
    assert_eq!(trial.broker.topics()?.into_iter().filter(ours).count(), 0);

    trial.broker.make_topics(&[(&trial.topic, 1)], &[]).await?;
    let failing = |_: Record, _: Context| async { Err::<(), _>(Failure::of_status(404)) };
    let member = trial.start(single(&trial), failing).await?;
    member.told("that brokers make topics", |it| *it == Event::AutoCreates).await?;
    // Not even by publishing to it: the record waits until somebody makes it.
    trial.broker.delete_topic(&trial.dead_letters()).await?;
    trial.produce(["order"])?;
    member.told("that it is held", |it| matches!(it, Event::PublishFailed { .. })).await?;
    assert!(!trial.broker.topics()?.contains(&trial.dead_letters()));
    trial.broker.make_topics(&[(&trial.dead_letters(), 1)], &[]).await?;
    assert_eq!(trial.letters(1).await?.len(), 1);
    trial.settled(&[&trial.topic]).await?;
    member.stop().await?;
    Ok(())
}
