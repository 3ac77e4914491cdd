//! The events of one entity run in the order in which they were produced, whatever is retried.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use parking_lot::Mutex;
use redrive::config::{Config, Entity, FlowConfig, OnDeadLetter};
use redrive::entities::Entities;
use redrive::{Context, Delayed, Event, Failure, Flow, Policy, Record, RunError, Strategy, Tier};
use redrive_suite::broker::{Found, Sent};
use redrive_suite::trial::{Member, SOON, Trial, until};

use super::fixed;

/// What a handler did, in its order: entity, step, and how it ended.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Did {
    entity: String,
    step: u32,
    is_done: bool,
}

/// What handlers did, of all members together.
#[derive(Clone, Default)]
struct Story(Arc<Mutex<Told>>);

#[derive(Default)]
struct Told {
    did: Vec<Did>,
    /// Entities of which something runs.
    busy: BTreeSet<String>,
    /// What should never be.
    wrong: Vec<String>,
}

/// An event: `entity/step/fails`, where the last is how often it fails, or `x` for one that fails for good.
fn event(entity: &str, step: u32, fails: &str) -> Sent {
    Sent { key: Some(entity.into()), ..Sent::value(format!("{entity}/{step}/{fails}")) }
}

/// An event that succeeds.
fn fine(entity: &str, step: u32) -> Sent {
    event(entity, step, "0")
}

impl Story {
    /// Does what a record asks for.
    async fn handle(self, record: Record, context: Context) -> Result<(), Failure> {
        let value = String::from_utf8_lossy(record.value().unwrap_or_default()).into_owned();
        let parts: Vec<_> = value.split('/').map(str::to_owned).collect();
        let [entity, step, fails] = parts.try_into().expect("an event of ours");
        {
            let mut told = self.0.lock();
            if !entity.is_empty() && !told.busy.insert(entity.clone()) {
                told.wrong.push(format!("{value} ran beside another one"));
            }
        }
        tokio::time::sleep(Duration::from_millis(3)).await;
        let result = match fails.parse::<u32>() {
            Err(_) => Err(Failure::of_status(404).with_message("no such card")),
            Ok(fails) if context.overall_attempts() < fails => Err(Failure::of_status(503)),
            Ok(_) => Ok(()),
        };
        let mut told = self.0.lock();
        told.busy.remove(&entity);
        let step = step.parse().expect("a step");
        told.did.push(Did { entity, step, is_done: result.is_ok() });
        result
    }

    fn handler(&self) -> impl redrive::Handler {
        let story = self.clone();
        move |record: Record, context: Context| story.clone().handle(record, context)
    }

    /// The steps of an entity that are done, in their order.
    fn done(&self, entity: &str) -> Vec<u32> {
        let told = self.0.lock();
        told.did.iter().filter(|it| it.entity == entity && it.is_done).map(|it| it.step).collect()
    }

    /// The same, each where it was done first.
    fn first_done(&self, entity: &str) -> Vec<u32> {
        let mut seen = BTreeSet::new();
        self.done(entity).into_iter().filter(|it| seen.insert(*it)).collect()
    }

    /// The steps of an entity that were run, again and again as they were retried, in their order.
    fn run(&self, entity: &str) -> Vec<u32> {
        let told = self.0.lock();
        told.did.iter().filter(|it| it.entity == entity).map(|it| it.step).collect()
    }

    async fn reaches(&self, entity: &str, steps: &[u32]) -> Result<()> {
        let what = format!("{entity} is at {steps:?}");
        let came = until(&what, || self.done(entity).len() >= steps.len());
        came.await.with_context(|| format!("{:?}", self.0.lock().did))?;
        assert_eq!(self.done(entity), steps);
        self.is_in_order();
        Ok(())
    }

    /// Each entity's events ran one after the other, and never one before those before it.
    fn is_in_order(&self) {
        let told = self.0.lock();
        assert!(told.wrong.is_empty(), "{:?}", told.wrong);
        let mut last: BTreeMap<&str, u32> = BTreeMap::new();
        for did in told.did.iter().filter(|it| !it.entity.is_empty()) {
            let last = last.entry(&did.entity).or_default();
            let all = || told.did.iter().filter(|it| it.entity == did.entity).collect::<Vec<_>>();
            assert!(
                did.step >= *last,
                "{} of {} ran after {last}: {:?}",
                did.step,
                did.entity,
                all()
            );
            *last = did.step;
        }
    }
}

/// Retries over two tiers.
fn tiers(trial: &Trial) -> Flow {
    let tier = |number: u32, delay| {
        Tier::new(format!("{}.{number}", trial.retry()), Duration::from_millis(delay))
    };
    let strategy = Strategy::Tiers(vec![tier(1, 300), tier(2, 500)]);
    trial
        .flow()
        .with_strategy(strategy)
        .with_default(Policy::default().with_delayed(Delayed::default()))
}

fn ordered(flow: Flow) -> FlowConfig {
    FlowConfig::new(flow).with_order_by(Entity::Key)
}

/// Retries over one topic, up to three times.
fn single(trial: &Trial) -> FlowConfig {
    single_after(trial, 400)
}

/// The same, each time after so many milliseconds.
fn single_after(trial: &Trial, millis: u64) -> FlowConfig {
    let policy = Policy::default().with_delayed(Delayed::attempts(3).with_backoff(fixed(millis)));
    let strategy = Strategy::Single(Tier::endless(trial.retry()));
    ordered(trial.flow().with_strategy(strategy).with_default(policy))
}

fn config(trial: &Trial, flow: FlowConfig) -> Config {
    trial.config(flow)
}

async fn start(trial: &Trial, flow: FlowConfig, story: &Story) -> Result<Member> {
    trial.start_with(config(trial, flow), story.handler()).await
}

fn state_topic(trial: &Trial) -> String {
    format!("{}.redrive", trial.group)
}

/// The markers of closed entities.
fn markers(trial: &Trial) -> Result<Vec<Found>> {
    let mut markers: BTreeMap<Vec<u8>, Found> = BTreeMap::new();
    for found in trial.broker.read(&state_topic(trial))? {
        let key = found.key.clone().unwrap_or_default();
        if !key.starts_with(b"closed/") {
            continue;
        }
        if found.value.is_some() {
            markers.insert(key, found);
        } else {
            markers.remove(&key);
        }
    }
    Ok(markers.into_values().collect())
}

/// Opens all entities, as an operator would. Returns their names.
async fn open_all(trial: &Trial) -> Result<Vec<String>> {
    let config = config(trial, single(trial));
    let entities = Entities::connect(&config, SOON).await?;
    let closed = entities.closed().await?;
    entities.open(&closed).await?;
    assert!(entities.closed().await?.is_empty());
    Ok(closed.into_iter().filter_map(|it| it.entity).collect())
}

fn values(found: &[Found]) -> Vec<String> {
    let text = |it: &Found| String::from_utf8_lossy(it.value.as_deref().unwrap()).into_owned();
    found.iter().map(text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn those_behind_a_record_that_is_retried_wait_for_it_and_others_do_not() -> Result<()> {
    let trial = Trial::new("order-head", 1).await?;
    let story = Story::default();
    // Transactions need no epochs.
    let config = trial.plain_config(single(&trial));
    let member = trial.start_with(config, story.handler()).await?;
    let events =
        [event("a", 1, "2"), fine("a", 2), fine("b", 1), fine("a", 3), fine("b", 2), fine("a", 4)];
    trial.broker.send(&trial.topic, &events)?;
    story.reaches("b", &[1, 2]).await?;
    assert_eq!(story.done("a"), [0; 0], "it is retried after 400 ms");
    story.reaches("a", &[1, 2, 3, 4]).await?;
    assert_eq!(story.run("a"), [1, 1, 1, 2, 3, 4], "two failures, and nothing in between");
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    // Those behind it went along unrun, and nothing of that is counted.
    let copies = trial.broker.read(&trial.retry())?;
    let followers: Vec<_> =
        copies.iter().filter(|it| it.header("redrive-status").is_none()).collect();
    assert!(!followers.is_empty(), "{copies:?}");
    for copy in &followers {
        assert_eq!(copy.header("redrive-overall-attempts"), Some("0"));
        assert_eq!(copy.header("redrive-hop"), Some("1"));
        assert_eq!(copy.header("redrive-epoch"), Some("1"));
    }
    let hops: Vec<_> = copies.iter().filter_map(|it| it.header("redrive-hop")).collect();
    assert_eq!(hops.iter().filter(|it| **it == "2").count(), 1, "{hops:?}");
    assert!(trial.broker.read(&trial.dead_letters())?.is_empty());
    member.stop().await?;
    Ok(())
}

/// More events than a lane holds stand behind one whose run hangs. The other entities of the partition go on all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_hangs_holds_back_only_those_behind_it() -> Result<()> {
    const EVENTS: u32 = 3000;
    let trial = Trial::new("order-hang", 1).await?;
    let done: Arc<Mutex<Vec<String>>> = Arc::default();
    let (open, gate) = tokio::sync::watch::channel(false);
    let told = Arc::clone(&done);
    let handler = move |record: Record, _: Context| {
        let (told, mut gate) = (Arc::clone(&told), gate.clone());
        async move {
            let value = String::from_utf8_lossy(record.value().unwrap_or_default()).into_owned();
            if value == "a/0/0" {
                _ = gate.wait_for(|it| *it).await;
            }
            told.lock().push(value);
        }
    };
    let member = trial.start_with(config(&trial, single(&trial)), handler).await?;
    let events: Vec<_> = (0..EVENTS).map(|step| fine("a", step)).chain([fine("b", 0)]).collect();
    trial.broker.send(&trial.topic, &events)?;
    until("b has run", || !done.lock().is_empty()).await?;
    assert_eq!(*done.lock(), ["b/0/0"]);
    open.send(true)?;
    until("a is through", || done.lock().len() > EVENTS as usize).await?;
    let expected: Vec<_> = (0..EVENTS).map(|step| format!("a/{step}/0")).collect();
    assert_eq!(done.lock()[1..], expected);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn order_is_kept_across_tiers() -> Result<()> {
    let trial = Trial::new("order-tiers", 2).await?;
    let story = Story::default();
    let member = start(&trial, ordered(tiers(&trial)), &story).await?;
    let mut events = Vec::new();
    for step in 1..=6 {
        for entity in 0..10 {
            let fails = if (entity + step) % 4 == 0 { "2" } else { "0" };
            events.push(Sent {
                partition: (entity % 2) as i32,
                ..event(&format!("e{entity}"), step, fails)
            });
        }
    }
    trial.broker.send(&trial.topic, &events)?;
    for entity in 0..10 {
        story.reaches(&format!("e{entity}"), &[1, 2, 3, 4, 5, 6]).await?;
    }
    let (first, second) = (format!("{}.1", trial.retry()), format!("{}.2", trial.retry()));
    trial.settled(&[&trial.topic, &first, &second]).await?;
    assert!(!trial.broker.read(&second)?.is_empty());
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn those_behind_a_dead_letter_follow_it_until_an_operator_opens_the_entity() -> Result<()> {
    held("order-hold", false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_is_closed_in_the_transaction_of_its_dead_letter() -> Result<()> {
    held("order-hold-once", true).await
}

async fn held(name: &str, exactly_once: bool) -> Result<()> {
    let trial = Trial::new(name, 1).await?;
    let story = Story::default();
    let start = async || {
        let config = Config { exactly_once, ..trial.plain_config(single(&trial)) };
        trial.start_with(config, story.handler()).await
    };
    let member = start().await?;
    let events = [fine("b", 1), event("a", 1, "x"), fine("a", 2), fine("b", 2), fine("a", 3)];
    trial.broker.send(&trial.topic, &events)?;
    let letters = trial.letters(3).await?;
    assert_eq!(values(&letters), ["a/1/x", "a/2/0", "a/3/0"]);
    let reasons: Vec<_> = letters.iter().map(|it| it.header("redrive-reason").unwrap()).collect();
    assert_eq!(reasons, ["not-retryable", "follower", "follower"]);
    let head = format!("{}/0/1", trial.topic);
    let follows: Vec<_> = letters.iter().map(|it| it.header("redrive-follows")).collect();
    assert_eq!(follows, [None, Some(&*head), Some(&*head)]);
    assert_eq!(letters[1].header("redrive-epoch"), None);
    story.reaches("b", &[1, 2]).await?;
    let closed = |it: &Event| matches!(it, Event::EntityClosed { entity, .. } if entity.as_deref() == Some("a"));
    member.told("the entity is closed", closed).await?;
    member.until("it is counted", |it| it.flows[0].closed_entities == 1).await?;
    let found = markers(&trial)?;
    assert_eq!(found.len(), 1);
    let note: serde_json::Value = serde_json::from_slice(found[0].value.as_deref().unwrap())?;
    assert_eq!(note["entity"], "a");
    assert_eq!(note["head"]["offset"], 1);
    assert_eq!(note["reason"], "not-retryable");
    assert_eq!(note["message"], "no such card");
    // What comes later follows, too; also when somebody else has the lane.
    trial.broker.send(&trial.topic, &[fine("a", 4)])?;
    trial.letters(4).await?;
    member.stop().await?;
    let member = start().await?;
    trial.broker.send(&trial.topic, &[fine("a", 5), fine("b", 3)])?;
    let letters = trial.letters(5).await?;
    assert_eq!(letters[4].header("redrive-follows"), Some(&*head));
    story.reaches("b", &[1, 2, 3]).await?;
    assert_eq!(story.run("a"), [1], "none behind it runs");
    assert_eq!(open_all(&trial).await?, ["a"]);
    let opened = |it: &Event| matches!(it, Event::EntityOpened { .. });
    member.told("the entity is open", opened).await?;
    trial.broker.send(&trial.topic, &[fine("a", 6), fine("a", 7)])?;
    story.reaches("a", &[6, 7]).await?;
    member.until("it is counted", |it| it.flows[0].closed_entities == 0).await?;
    assert_eq!(trial.broker.read(&trial.dead_letters())?.len(), 5);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn those_behind_a_dead_letter_run_where_that_is_asked_for() -> Result<()> {
    let trial = Trial::new("order-release", 1).await?;
    let story = Story::default();
    let flow = single(&trial).with_on_dead_letter(OnDeadLetter::Release);
    let member = start(&trial, flow, &story).await?;
    let events = [event("a", 1, "x"), fine("a", 2), event("a", 3, "9"), fine("a", 4)];
    trial.broker.send(&trial.topic, &events)?;
    story.reaches("a", &[2, 4]).await?;
    assert_eq!(story.run("a"), [1, 2, 3, 3, 3, 3, 4], "its attempts come first");
    assert_eq!(values(&trial.letters(2).await?), ["a/1/x", "a/3/9"]);
    assert!(markers(&trial)?.is_empty());
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn without_retry_topics_those_behind_wait_in_the_source() -> Result<()> {
    let trial = Trial::new("order-none", 1).await?;
    let story = Story::default();
    let member = start(&trial, ordered(trial.flow()), &story).await?;
    let events = [fine("a", 1), fine("a", 2), event("b", 1, "x"), fine("b", 2), fine("a", 3)];
    trial.broker.send(&trial.topic, &events)?;
    story.reaches("a", &[1, 2, 3]).await?;
    assert_eq!(values(&trial.letters(2).await?), ["b/1/x", "b/2/0"]);
    assert_eq!(open_all(&trial).await?, ["b"]);
    member.told("it is open", |it| matches!(it, Event::EntityOpened { .. })).await?;
    trial.broker.send(&trial.topic, &[fine("b", 3)])?;
    story.reaches("b", &[3]).await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_is_named_by_a_header_and_what_has_none_flows() -> Result<()> {
    let trial = Trial::new("order-header", 1).await?;
    let story = Story::default();
    let flow = FlowConfig { entity: Entity::Header("order".to_owned()), ..single(&trial) };
    let member = start(&trial, flow, &story).await?;
    let of = |entity: &str, step, fails: &str| {
        let sent = event(entity, step, fails);
        Sent { key: None, ..sent }.with_header("order", Some(entity.as_bytes()))
    };
    let free = |step: u32, fails: &str| Sent::value(format!("/{step}/{fails}"));
    let events = [of("a", 1, "1"), free(1, "1"), free(2, "0"), of("a", 2, "0"), free(3, "0")];
    trial.broker.send(&trial.topic, &events)?;
    story.reaches("a", &[1, 2]).await?;
    until("those without an entity are done", || story.done("").len() == 3).await?;
    assert_eq!(story.done("")[2], 1, "it was retried, and nobody waited for it");
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_is_named_by_a_pointer_into_the_value() -> Result<()> {
    let trial = Trial::new("order-pointer", 1).await?;
    let pointer = "/order/id".parse().expect("a pointer");
    let flow = FlowConfig { entity: Entity::Pointer(pointer), ..single(&trial) };
    let done: Arc<Mutex<Vec<String>>> = Arc::default();
    let noted = Arc::clone(&done);
    let handler = move |record: Record, context: Context| {
        let value = String::from_utf8_lossy(record.value().unwrap_or_default()).into_owned();
        let noted = Arc::clone(&noted);
        async move {
            if value.contains("fails") && context.overall_attempts() == 0 {
                return Err(Failure::of_status(503));
            }
            noted.lock().push(value);
            Ok(())
        }
    };
    let member = trial.start_with(config(&trial, flow), handler).await?;
    let all = [
        r#"{"order":{"id":7},"step":"fails"}"#,
        r#"{"order":{"id":"7"},"step":2}"#,
        r#"{"order":{"id":8},"step":1}"#,
        r#"{"order":{},"step":"none"}"#,
        "no JSON",
    ];
    trial.produce(all)?;
    until("all are done", || done.lock().len() == all.len()).await?;
    let done = done.lock().clone();
    assert_eq!(done[3..], [all[0].to_owned(), all[1].to_owned()], "{done:?}");
    member.stop().await?;
    Ok(())
}

/// Many events of many entities, with failures here and there.
fn many(entities: u32, steps: u32, partitions: i32) -> Vec<Sent> {
    let mut events = Vec::new();
    for step in 1..=steps {
        for entity in 0..entities {
            let fails = if (entity * 7 + step * 3) % 10 == 0 { "1" } else { "0" };
            let partition = i32::try_from(entity).unwrap() % partitions;
            events.push(Sent { partition, ..event(&format!("e{entity}"), step, fails) });
        }
    }
    events
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_that_is_stopped_in_the_middle_goes_on_in_order() -> Result<()> {
    const ENTITIES: u32 = 40;
    const STEPS: u32 = 20;
    let trial = Trial::new("order-restart", 3).await?;
    let story = Story::default();
    let first = start(&trial, ordered(tiers(&trial)), &story).await?;
    trial.broker.send(&trial.topic, &many(ENTITIES, STEPS, 3))?;
    let count = || story.0.lock().did.len();
    until("it has begun", || count() > 100).await?;
    first.stop().await?;
    let before = count();
    let second = start(&trial, ordered(tiers(&trial)), &story).await?;
    until("it goes on", || count() > before + 100).await?;
    second.stop().await?;
    let third = start(&trial, ordered(tiers(&trial)), &story).await?;
    let steps: Vec<_> = (1..=STEPS).collect();
    for entity in 0..ENTITIES {
        story.reaches(&format!("e{entity}"), &steps).await?;
    }
    let (first, second) = (format!("{}.1", trial.retry()), format!("{}.2", trial.retry()));
    trial.settled(&[&trial.topic, &first, &second]).await?;
    third.stop().await?;
    Ok(())
}

/// Three members that come and go, while events are produced.
async fn rebalanced(name: &str, kafka: &[(&str, &str)], exactly_once: bool) -> Result<()> {
    const ENTITIES: u32 = 60;
    const STEPS: u32 = 25;
    const PARTITIONS: i32 = 6;
    let trial = Trial::new(name, PARTITIONS).await?;
    let story = Story::default();
    let start = async || {
        let config = trial.plain_config(ordered(tiers(&trial)));
        let config = Config { exactly_once, ..config };
        let config = kafka.iter().fold(config, |it, (key, value)| it.with_kafka(*key, *value));
        trial.start_with(config, story.handler()).await
    };
    let first = start().await?;
    let events = many(ENTITIES, STEPS, PARTITIONS);
    let producing = {
        let (broker, topic) = (trial.broker.clone(), trial.topic.clone());
        let pieces: Vec<_> = events.chunks(events.len() / 10 + 1).map(<[_]>::to_vec).collect();
        tokio::task::spawn_blocking(move || -> Result<()> {
            pieces.iter().try_for_each(|it| broker.send(&topic, it))
        })
    };
    let count = || story.0.lock().did.len();
    let goes_on = async || {
        let before = count();
        until("it goes on", || count() > before + 50).await
    };
    goes_on().await?;
    let second = start().await?;
    goes_on().await?;
    let third = start().await?;
    let has_some = |it: &redrive::State| it.partitions > 0;
    for member in [&first, &second, &third] {
        member.until("it has partitions", has_some).await?;
    }
    goes_on().await?;
    let mut told = first.stop().await?;
    goes_on().await?;
    told.extend(second.stop().await?);
    producing.await??;
    let steps: Vec<_> = (1..=STEPS).collect();
    for entity in (0..ENTITIES).map(|it| format!("e{it}")) {
        until(&format!("{entity} is through"), || story.first_done(&entity) == steps).await?;
    }
    let (first, second) = (format!("{}.1", trial.retry()), format!("{}.2", trial.retry()));
    trial.settled(&[&trial.topic, &first, &second]).await?;
    told.extend(third.stop().await?);
    // A broker that does not answer for seconds takes a member for gone: what it has not committed then runs again elsewhere.
    if !told.iter().any(|it| matches!(it, Event::Revoked { is_lost: true, .. })) {
        for entity in (0..ENTITIES).map(|it| format!("e{it}")) {
            story.reaches(&entity, &steps).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn members_come_and_go_and_the_order_is_kept() -> Result<()> {
    rebalanced("order-cooperative", &[], false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_is_kept_where_all_partitions_are_taken_away_at_each_change() -> Result<()> {
    rebalanced("order-eager", &[("partition.assignment.strategy", "range")], false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_is_kept_in_groups_of_the_newer_protocol() -> Result<()> {
    rebalanced("order-848", &[("group.protocol", "consumer")], false).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_order_is_kept_in_transactions() -> Result<()> {
    rebalanced("order-once", &[], true).await
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_with_other_partition_counts_are_refused() -> Result<()> {
    let trial = Trial::new("order-counts", 3).await?;
    trial.broker.make_topics(&[(&trial.retry(), 2)], &[]).await?;
    let member = trial.spawn(config(&trial, single(&trial)), Story::default().handler());
    let error = member.ended().await?.unwrap_err();
    let RunError::BadTopic(told) = &error else {
        panic!("{error:?}");
    };
    assert!(told.contains("`ordering: key`") && told.contains(&trial.topic), "{told}");
    assert!(told.contains(&format!("--topic {} --partitions 3", trial.retry())), "{told}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_a_retry_topic_does_not_have_is_read_when_it_has_it() -> Result<()> {
    let trial = Trial::new("order-grown", 1).await?;
    let story = Story::default();
    let config =
        config(&trial, single(&trial)).with_kafka("topic.metadata.refresh.interval.ms", "500");
    let member = trial.start_with(config, story.handler()).await?;
    trial.broker.grow(&trial.topic, 2).await?;
    let is_it = |it: &Event| matches!(it, Event::Unread { partition: 1, error, .. } if error.contains(&trial.retry()));
    member.told("the retry topic is too small", is_it).await?;
    let second = |step, fails: &str| Sent { partition: 1, ..event("a", step, fails) };
    trial.broker.send(&trial.topic, &[second(1, "1"), second(2, "0"), fine("b", 1)])?;
    story.reaches("b", &[1]).await?;
    assert_eq!(story.run("a"), [0; 0]);
    trial.broker.grow(&trial.retry(), 2).await?;
    story.reaches("a", &[1, 2]).await?;
    member.stop().await?;
    Ok(())
}

/// The events of many orders: placed, paid, reserved, shipped. One payment is tried again, one is declined, and one is tried until
/// it may not be any more.
#[tokio::test(flavor = "multi_thread")]
async fn orders_are_placed_paid_reserved_and_shipped_in_this_order() -> Result<()> {
    const ORDERS: u32 = 50;
    const STEPS: [u32; 4] = [1, 2, 3, 4];
    let trial = Trial::new("order-article", 4).await?;
    let story = Story::default();
    let policy = Policy::default().with_delayed(Delayed::default().with_backoff(fixed(100)));
    let strategy = Strategy::Single(Tier::endless(trial.retry()));
    let flow = trial.flow().with_strategy(strategy).with_default(policy);
    let member = start(&trial, ordered(flow.with_max_overall_attempts(10)), &story).await?;
    let mut events = Vec::new();
    for step in STEPS {
        for order in 0..ORDERS {
            let fails = match (order, step) {
                (7, 2) => "1",
                (11, 2) => "x",
                (13, 3) => "99",
                _ => "0",
            };
            let partition = i32::try_from(order % 4)?;
            events.push(Sent { partition, ..event(&format!("order-{order}"), step, fails) });
        }
    }
    trial.broker.send(&trial.topic, &events)?;
    for order in (0..ORDERS).filter(|it| !matches!(it, 11 | 13)) {
        story.reaches(&format!("order-{order}"), &STEPS).await?;
    }
    let letters = trial.letters(5).await?;
    let of = |order: &str| {
        let of_order: Vec<_> = letters
            .iter()
            .filter(|it| it.key.as_deref() == Some(order.as_bytes()))
            .cloned()
            .collect();
        let reason = |it: &Found| it.header("redrive-reason").unwrap().to_owned();
        values(&of_order).into_iter().zip(of_order.iter().map(reason)).collect::<Vec<_>>()
    };
    let told = |all: &[(&str, &str)]| -> Vec<_> {
        all.iter().map(|it| (it.0.to_owned(), it.1.to_owned())).collect()
    };
    assert_eq!(
        of("order-11"),
        told(&[
            ("order-11/2/x", "not-retryable"),
            ("order-11/3/0", "follower"),
            ("order-11/4/0", "follower")
        ])
    );
    assert_eq!(of("order-13"), told(&[("order-13/3/99", "overall"), ("order-13/4/0", "follower")]));
    assert_eq!(story.run("order-7"), [1, 2, 2, 3, 4]);
    assert_eq!(story.run("order-11"), [1, 2]);
    let tries = [1, 2].into_iter().chain([3; 11]).collect::<Vec<_>>();
    assert_eq!(story.run("order-13"), tries, "the first one and ten more");
    assert_eq!(markers(&trial)?.len(), 2);
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    member.stop().await?;
    Ok(())
}

/// A dead letter as an operator sends it back: to the first retry topic, due now, and once more redriven than before.
fn sent_back(letter: &Found, now: i64) -> Sent {
    const LEFT_OUT: [&str; 6] = [
        "redrive-reason",
        "redrive-follows",
        "redrive-due",
        "redrive-hop",
        "redrive-redriven",
        "redrive-epoch",
    ];
    let is_kept = |name: &[u8]| LEFT_OUT.iter().all(|it| it.as_bytes() != name);
    let headers = letter.headers.iter().filter(|it| is_kept(&it.0)).cloned().collect();
    let (key, value) = (letter.key.clone(), letter.value.clone());
    let redriven =
        letter.header("redrive-redriven").and_then(|it| it.parse().ok()).unwrap_or(0) + 1;
    let sent = Sent { partition: letter.partition, key, value, headers, ..Sent::default() };
    sent.with_header("redrive-due", Some(now.to_string().as_bytes()))
        .with_header("redrive-hop", Some(b"1"))
        .with_header("redrive-redriven", Some(redriven.to_string().as_bytes()))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_entity_that_is_sent_back_runs_from_its_head_on_and_before_what_came_since() -> Result<()>
{
    let trial = Trial::new("order-back", 1).await?;
    let story = Story::default();
    let member = start(&trial, single(&trial), &story).await?;
    // Its attempts are spent after four runs, and the next one succeeds.
    trial.broker.send(&trial.topic, &[event("a", 1, "4"), fine("a", 2), fine("a", 3)])?;
    let letters = trial.letters(3).await?;
    assert_eq!(letters[0].header("redrive-reason"), Some("attempts"));
    let now = redrive_suite::ledger::now();
    let mut back: Vec<_> = letters.iter().map(|it| sent_back(it, now)).collect();
    // That an attempt more was made is what an operator's patience stands for.
    for header in back.iter_mut().take(1).flat_map(|it| &mut it.headers) {
        if header.0 == b"redrive-overall-attempts" {
            header.1 = Some(b"4".to_vec());
        }
    }
    trial.broker.send(&trial.retry(), &back[..1])?;
    // It is closed until all are back, and what comes meanwhile waits.
    trial.broker.send(&trial.topic, &[fine("a", 4), fine("b", 1)])?;
    story.reaches("b", &[1]).await?;
    assert_eq!(story.done("a"), [0; 0]);
    trial.broker.send(&trial.retry(), &back[1..])?;
    assert_eq!(open_all(&trial).await?, ["a"]);
    until("all of it is done", || story.done("a").len() == 4).await?;
    assert_eq!(story.done("a"), [1, 2, 3, 4]);
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    assert_eq!(trial.broker.read(&trial.dead_letters())?.len(), 3);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_nobody_knows_the_origin_of_is_not_taken_for_another_one() -> Result<()> {
    let trial = Trial::new("order-foreign", 1).await?;
    trial.broker.make_topics(&[(&trial.retry(), 1)], &[]).await?;
    // It has the offset of the one in the source, and the same entity. Both fail once.
    let foreign = Sent { key: Some(b"a".to_vec()), ..Sent::value("/7/1") };
    trial.broker.send(&trial.retry(), &[foreign])?;
    trial.broker.send(&trial.topic, &[event("a", 1, "1"), fine("a", 2)])?;
    let story = Story::default();
    let member = start(&trial, single(&trial), &story).await?;
    story.reaches("a", &[1, 2]).await?;
    until("the other one is done", || story.done("") == [7]).await?;
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    let copies = trial.broker.read(&trial.retry())?;
    let origin = |value: &str| {
        let copy = copies.iter().rfind(|it| it.value.as_deref() == Some(value.as_bytes()));
        copy.and_then(|it| it.header("redrive-origin-topic")).map(str::to_owned)
    };
    assert_eq!(origin("/7/1"), Some(trial.retry()));
    assert_eq!(origin("a/1/1"), Some(trial.topic.clone()));
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_is_held_while_nobody_takes_that_its_entity_is_closed() -> Result<()> {
    let trial = Trial::new("order-mark", 1).await?;
    let story = Story::default();
    // Where it is part of a transaction, that is aborted.
    let config = trial.plain_config(single(&trial));
    let member = trial.start_with(config, story.handler()).await?;
    trial.broker.send(&trial.topic, &[fine("b", 1)])?;
    story.reaches("b", &[1]).await?;
    trial.broker.delete_topic(&state_topic(&trial)).await?;
    trial.broker.send(&trial.topic, &[event("a", 1, "x"), fine("a", 2), fine("b", 2)])?;
    member.told("it is tried again", |it| matches!(it, Event::MarkFailed { .. })).await?;
    story.reaches("b", &[1, 2]).await?;
    assert!(trial.broker.read(&trial.dead_letters())?.is_empty());
    trial
        .broker
        .make_topics(&[(&state_topic(&trial), 1)], &[("cleanup.policy", "compact")])
        .await?;
    assert_eq!(values(&trial.letters(2).await?), ["a/1/x", "a/2/0"]);
    assert_eq!(markers(&trial)?.len(), 1);
    assert_eq!(story.run("a"), [1]);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn those_behind_a_record_that_is_gone_from_its_retry_topic_go_on() -> Result<()> {
    let trial = Trial::new("order-lost", 1).await?;
    let story = Story::default();
    // Nothing is kept, so that it has to be read again, two seconds before its time: until then it must be gone, on a slow machine, too.
    let flow = single_after(&trial, 15_000).with_payload_budget(1);
    let member = start(&trial, flow, &story).await?;
    trial.broker.send(&trial.topic, &[event("a", 1, "1"), fine("a", 2), fine("a", 3)])?;
    trial.records(&trial.retry(), 3).await?;
    trial.broker.delete_records(&trial.retry(), 0, 1).await?;
    let is_lost = |it: &Event| matches!(it, Event::Lost { topic, .. } if **topic == trial.retry());
    member.told("it is lost", is_lost).await?;
    until("those behind it are done", || story.done("a").len() == 2).await?;
    assert_eq!(story.done("a"), [2, 3]);
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_was_made_anew_is_begun_again_with_its_retry_topics() -> Result<()> {
    let trial = Trial::new("order-anew", 1).await?;
    let story = Story::default();
    let member = start(&trial, single(&trial), &story).await?;
    let events: Vec<_> = (1..=5).map(|it| fine("a", it)).collect();
    trial.broker.send(&trial.topic, &events)?;
    story.reaches("a", &[1, 2, 3, 4, 5]).await?;
    trial.settled(&[&trial.topic]).await?;
    member.stop().await?;
    trial.broker.delete_topic(&trial.topic).await?;
    until("it is gone", || !trial.broker.topics().unwrap().contains(&trial.topic)).await?;
    trial.broker.make_topics(&[(&trial.topic, 1)], &[]).await?;
    trial.broker.send(&trial.topic, &[event("a", 6, "1"), fine("a", 7)])?;
    let member = start(&trial, single(&trial), &story).await?;
    story.reaches("a", &[1, 2, 3, 4, 5, 6, 7]).await?;
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn those_in_a_topic_that_is_to_run_dry_come_before_what_is_behind_them() -> Result<()> {
    let trial = Trial::new("order-draining", 1).await?;
    let story = Story::default();
    let member = start(&trial, single_after(&trial, 4_000), &story).await?;
    trial.broker.send(&trial.topic, &[event("a", 1, "1"), fine("a", 2)])?;
    trial.records(&trial.retry(), 2).await?;
    member.stop().await?;
    assert_eq!(story.run("a"), [1], "it was stopped too late to show anything");
    let after = ordered(tiers(&trial)).with_draining(trial.retry());
    let member = start(&trial, after, &story).await?;
    trial.broker.send(&trial.topic, &[fine("a", 3), event("b", 1, "1"), fine("b", 2)])?;
    story.reaches("b", &[1, 2]).await?;
    story.reaches("a", &[1, 2, 3]).await?;
    let first = format!("{}.1", trial.retry());
    trial.settled(&[&trial.topic, &trial.retry(), &first]).await?;
    member.stop().await?;
    Ok(())
}
