//! The topics of a config: what is there, what is missing and what differs, and how they are made.
//!
//! `redrive topics` and a consumer that starts go the same way: `needed` says what a config needs, a `Cluster` what is there,
//! `plan` what follows from both. Topics are never deleted, shrunk or changed.

mod access;
mod admin;
mod counts;
pub(crate) mod embedded;
mod left;
mod needed;
mod plan;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;

use crate::RunError;
use crate::config::{Config, Kafka, refused_properties};
use crate::event::{Event, Events};
use crate::kafka::client::{Properties, Told};

pub use access::{Access, NeededTo, Resource};
pub(crate) use admin::Admin;
pub(crate) use counts::Counts;
pub(crate) use embedded::Overflow;
pub(crate) use left::left_behind;
pub use needed::Purpose;
pub(crate) use needed::{Needed, is_state_topic_ambiguous, needed, state_topic, state_topic_of};
pub use plan::{Difference, Status, Target, Topic};
pub(crate) use plan::{Facts, Seen};

/// How long topics that were made may take to be known everywhere, and others to be known in full, and how often that is
/// looked at.
const MADE_WITHIN: Duration = Duration::from_secs(15);
const WHOLE_WITHIN: Duration = Duration::from_millis(500);
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long brokers are waited for before it is asked whether there is any hope.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// Where topics are: brokers, or something that stands in for them.
pub(crate) trait Cluster {
    /// What is there of these topics, and what the brokers are like.
    fn look(&self, wanted: &[Arc<str>]) -> impl Future<Output = Result<Seen, KafkaError>> + Send;

    /// How many partitions these topics have; those that are not there are left out.
    fn partitions(
        &self,
        wanted: &[Arc<str>],
    ) -> impl Future<Output = Result<BTreeMap<Arc<str>, i32>, KafkaError>> + Send;

    /// Makes topics, or only tries whether they could be made. Each is told of as soon as it is known what became of it.
    fn make(
        &self,
        topics: &[(Arc<str>, Target)],
        is_trial: bool,
        tell: impl FnMut(&Made) + Send,
    ) -> impl Future<Output = Vec<Made>> + Send;
}

/// What became of a topic that was to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Made {
    /// Its name.
    pub topic: Arc<str>,
    /// Whether it is there now, or why not.
    pub result: Result<MadeHow, String>,
}

/// How it came about that a topic is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MadeHow {
    /// It was made.
    Made,
    /// Somebody else was faster.
    WasThere,
    /// It would be made, but was not asked for in earnest.
    WouldBeMade,
}

/// How the topics of a config are.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Plan {
    /// The consumer group.
    pub group: String,
    /// Where the brokers are, as the config says.
    pub bootstrap: String,
    /// How many brokers are up.
    pub brokers: usize,
    /// Whether they make topics by themselves that somebody asks for. None if they do not say.
    pub auto_creates: Option<bool>,
    /// The topics.
    pub topics: Vec<Topic>,
    /// What must be allowed, where brokers ask.
    pub access: Vec<Access>,
}

impl Plan {
    /// The topics that are not there, or cannot be seen.
    pub fn missing(&self) -> impl Iterator<Item = &Topic> {
        self.topics.iter().filter(|it| !matches!(it.status, Status::Present { .. }))
    }

    /// Everything that differs.
    pub fn differences(&self) -> impl Iterator<Item = &Difference> {
        self.topics.iter().flat_map(|it| &it.differences)
    }

    /// Whether a consumer could run with the topics as they are.
    pub fn is_complete(&self) -> bool {
        self.missing().next().is_none() && !self.differences().any(|it| it.is_refused)
    }
}

/// The topics of a config on its brokers.
///
/// ```no_run
/// use std::time::Duration;
/// use redrive::config::{Config, FlowConfig};
/// use redrive::topics::Topics;
///
/// # async fn example() -> Result<(), redrive::RunError> {
/// let config = Config::new("billing")
///     .with_kafka("bootstrap.servers", "localhost:9092")
///     .with_flow(FlowConfig::new(redrive::Flow::new("orders")));
/// let topics = Topics::connect(&config, Duration::from_secs(10)).await?;
/// let plan = topics.plan().await?;
/// for made in topics.apply(&plan, false, |_| {}).await {
///     println!("{}: {:?}", made.topic, made.result);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Topics {
    job: Job<Admin>,
    group: String,
    access: Vec<Access>,
}

impl Topics {
    /// Looks for the config's brokers.
    ///
    /// # Errors
    ///
    /// The config does not say where they are, they do not let us in, or none answers within the limit.
    pub async fn connect(config: &Config, within: Duration) -> Result<Self, RunError> {
        let Reached { properties, group, told } = reach(config, within).await?;
        let state_topic = state_topic_of(config, &group);
        let needed = needed(config, &state_topic);
        let access = access::access(config, &group, &needed);
        let admin = Admin::new(&properties, told)?;
        Ok(Self { job: Job::new(admin, needed, bootstrap(config)), group, access })
    }

    /// Lets source topics that are missing be made, too, with so many partitions.
    #[must_use]
    pub fn with_created_sources(mut self, partitions: i32) -> Self {
        self.job = self.job.with_created_sources(partitions);
        self
    }

    /// Looks at the topics.
    ///
    /// # Errors
    ///
    /// The brokers do not answer.
    pub async fn plan(&self) -> Result<Plan, RunError> {
        let (topics, seen) = self.job.plan().await?;
        Ok(Plan {
            group: self.group.clone(),
            bootstrap: self.job.bootstrap.clone(),
            brokers: seen.brokers,
            auto_creates: seen.auto_creates,
            topics,
            access: self.access.clone(),
        })
    }

    /// Makes the topics that the plan says are missing, and waits until they are known. With `is_trial` the brokers are only
    /// asked whether they would.
    /// What went wrong is told with each, and what could be made is made all the same.
    pub async fn apply(
        &self,
        plan: &Plan,
        is_trial: bool,
        tell: impl FnMut(&Made) + Send,
    ) -> Vec<Made> {
        self.job.apply(&plan.topics, is_trial, tell).await
    }
}

/// A config's brokers, which have answered.
pub(crate) struct Reached {
    pub(crate) properties: Properties,
    pub(crate) group: String,
    pub(crate) told: Told,
}

/// Looks for a config's brokers, until one answers or the limit is over.
pub(crate) async fn reach(config: &Config, within: Duration) -> Result<Reached, RunError> {
    let properties = properties_of(config)?;
    let group = config.group.clone().ok_or(RunError::NoGroup)?;
    let last: Arc<Mutex<String>> = Arc::default();
    let heard = Arc::clone(&last);
    let told = Told::new(Events::to(move |event| {
        if let Event::Client { reason, .. } = event {
            *heard.lock() = reason.clone();
        }
    }));
    let consumer: Arc<BaseConsumer<Told>> =
        Arc::new(properties.reader(&group).create_with_context(told.clone())?);
    let bootstrap = bootstrap(config);
    let until = Instant::now() + within;
    loop {
        let asked = Arc::clone(&consumer);
        let cluster = tokio::task::spawn_blocking(move || {
            let cluster = asked.client().fetch_cluster_id(ASK_AGAIN);
            // Whoever does not poll never hears what went wrong.
            while asked.poll(Duration::ZERO).is_some() {}
            cluster
        });
        let cluster = cluster.await.ok().flatten();
        if cluster.is_some() {
            break;
        }
        if let Some(reason) = told.refused() {
            return Err(RunError::Refused(reason.to_owned()));
        }
        if Instant::now() > until {
            let last = last.lock().clone();
            return Err(RunError::NoAnswer { bootstrap, within, last });
        }
    }
    // It blocks when it goes.
    tokio::task::spawn_blocking(move || drop(consumer));
    Ok(Reached { properties, group, told })
}

/// The properties of a config, if they can be used.
pub(crate) fn properties_of(config: &Config) -> Result<Properties, RunError> {
    let Some(Kafka::Properties(properties)) = &config.kafka else {
        return Err(match config.kafka {
            Some(_) => RunError::Unsupported(
                "`kafka: embedded` has no brokers to ask: the embedded broker makes all topics when a consumer starts, and forgets them when it ends".to_owned(),
            ),
            None => RunError::NoKafka,
        });
    };
    // Before a client is made, which would show values that it refuses.
    let refused = refused_properties(properties);
    if !refused.is_empty() {
        return Err(RunError::BadProperties(refused));
    }
    Ok(Properties::new(properties))
}

/// Where the brokers are, as the config says.
pub(crate) fn bootstrap(config: &Config) -> String {
    let Some(Kafka::Properties(properties)) = &config.kafka else {
        return String::new();
    };
    let is_it = |key: &str| key == "bootstrap.servers" || key == "metadata.broker.list";
    properties.iter().rfind(|it| is_it(&it.0)).map(|it| it.1.clone()).unwrap_or_default()
}

/// What is to be done about the topics of a config, wherever they are.
pub(crate) struct Job<C> {
    cluster: C,
    needed: Vec<Needed>,
    bootstrap: String,
    source_partitions: Option<i32>,
}

impl<C: Cluster> Job<C> {
    pub(crate) fn new(cluster: C, needed: Vec<Needed>, bootstrap: String) -> Self {
        Self { cluster, needed, bootstrap, source_partitions: None }
    }

    /// Lets source topics that are missing be made, too, with so many partitions.
    pub(crate) fn with_created_sources(mut self, partitions: i32) -> Self {
        self.source_partitions = Some(partitions);
        self
    }

    async fn plan(&self) -> Result<(Vec<Topic>, Seen), KafkaError> {
        let names: Vec<_> = self.needed.iter().map(|it| Arc::clone(&it.topic)).collect();
        let seen = self.cluster.look(&names).await?;
        let wishes =
            plan::Wishes { source_partitions: self.source_partitions, brokers: &self.bootstrap };
        Ok((plan::topics(&self.needed, &seen, wishes), seen))
    }

    async fn apply(
        &self,
        topics: &[Topic],
        is_trial: bool,
        tell: impl FnMut(&Made) + Send,
    ) -> Vec<Made> {
        let missing: Vec<_> = topics
            .iter()
            .filter_map(|it| match &it.status {
                Status::Missing(target) => Some((Arc::clone(&it.name), target.clone())),
                _ => None,
            })
            .collect();
        let mut made = self.cluster.make(&missing, is_trial, tell).await;
        if is_trial {
            return made;
        }
        let wanted: BTreeMap<Arc<str>, i32> = made
            .iter()
            .filter(|it| it.result == Ok(MadeHow::Made))
            .filter_map(|made| {
                let target = missing.iter().find(|it| it.0 == made.topic)?;
                Some((Arc::clone(&made.topic), target.1.partitions))
            })
            .collect();
        let all: Vec<_> = wanted.keys().cloned().collect();
        // What was made is told, though nobody answers any more.
        let unknown = self.until_whole(wanted, MADE_WITHIN).await.unwrap_or(all);
        for made in made.iter_mut().filter(|it| unknown.contains(&it.topic)) {
            let why = "it was made, but the brokers do not know it in full yet: look again";
            made.result = Err(why.to_owned());
        }
        made
    }

    /// Waits until topics have so many partitions, and gives those that do not though none got known within the limit. One
    /// that was just made takes a moment to get around among the brokers.
    async fn until_whole(
        &self,
        mut wanted: BTreeMap<Arc<str>, i32>,
        within: Duration,
    ) -> Result<Vec<Arc<str>>, KafkaError> {
        let mut until = Instant::now() + within;
        while !wanted.is_empty() {
            let names: Vec<_> = wanted.keys().cloned().collect();
            let found = self.cluster.partitions(&names).await?;
            wanted.retain(|topic, least| found.get(topic).is_none_or(|it| it < least));
            // While some of them get known the brokers are busy, not stuck.
            if wanted.len() < names.len() {
                until = Instant::now() + within;
            }
            if wanted.is_empty() || Instant::now() > until {
                break;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
        Ok(wanted.into_keys().collect())
    }

    /// What a consumer needs to know before it starts. Topics that are missing are made, if that is asked for.
    ///
    /// # Errors
    ///
    /// Topics are missing, or cannot be used as they are.
    pub(crate) async fn prepare(&self, makes_topics: bool) -> Result<Prepared, RunError> {
        let (mut topics, mut seen) = self.plan().await?;
        let is_makeable = |it: &Topic| matches!(it.status, Status::Missing(_));
        if makes_topics && topics.iter().any(is_makeable) && !has_no_source(&topics) {
            for made in self.apply(&topics, false, |_| {}).await {
                if let Err(error) = made.result {
                    let topic = made.topic;
                    return Err(RunError::BadTopic(format!("{topic} could not be made: {error}")));
                }
            }
            (topics, seen) = self.plan().await?;
        }
        // Others may have been made just now by somebody else; those that have fewer partitions by design are few.
        let partial = self.partial(&seen);
        if !partial.is_empty() {
            self.until_whole(partial, WHOLE_WITHIN).await?;
            (topics, seen) = self.plan().await?;
        }
        refuse(&topics, makes_topics)?;
        Ok(Prepared { topics, seen })
    }

    /// Topics that have fewer partitions than their sources or are not there, though these are, with how many they should
    /// have.
    fn partial(&self, seen: &Seen) -> BTreeMap<Arc<str>, i32> {
        let partitions = |it: &Arc<str>| seen.topics.get(it).map_or(0, |it| it.partitions);
        let least = |it: &Needed| match it.purpose {
            Purpose::State | Purpose::Source => 1,
            _ => it.sources.iter().map(&partitions).max().unwrap_or(1).max(1),
        };
        let topics = self.needed.iter().map(|it| (Arc::clone(&it.topic), least(it)));
        topics.filter(|(topic, least)| partitions(topic) < *least).collect()
    }
}

/// What is known of topics before a consumer starts.
pub(crate) struct Prepared {
    pub(crate) topics: Vec<Topic>,
    pub(crate) seen: Seen,
}

/// Whether a source is missing that is for somebody else to make.
fn has_no_source(topics: &[Topic]) -> bool {
    let is_had = |it: &Topic| matches!(it.status, Status::Present { .. } | Status::Missing(_));
    topics.iter().any(|it| it.purpose == Purpose::Source && !is_had(it))
}

/// Whether a consumer can run with topics that are like this.
fn refuse(topics: &[Topic], makes_topics: bool) -> Result<(), RunError> {
    let mut missing = Vec::new();
    for topic in topics {
        let name = &topic.name;
        match (&topic.status, topic.purpose) {
            (Status::Present { .. }, _) => {}
            (Status::Hidden, _) => {
                return Err(RunError::BadTopic(format!(
                    "the brokers do not let us look at {name}: allow what `redrive topics plan` lists"
                )));
            }
            (_, Purpose::Draining) => {
                return Err(RunError::BadTopic(format!(
                    "the draining topic {name} is not there: take it out of `draining`"
                )));
            }
            (Status::Blocked(why), purpose)
                if makes_topics && purpose != Purpose::Source && !has_no_source(topics) =>
            {
                return Err(RunError::BadTopic(format!("{name} could not be made: {why}")));
            }
            // Only the sources are for somebody else to make.
            (_, purpose) if makes_topics && purpose != Purpose::Source && has_no_source(topics) => {
            }
            (Status::Missing(_) | Status::Blocked(_), _) => missing.push(name.to_string()),
        }
    }
    if !missing.is_empty() {
        return Err(RunError::MissingTopics(missing));
    }
    for topic in topics {
        if let Some(it) = topic.differences.iter().find(|it| it.is_refused) {
            let (purpose, name) = (topic.purpose, &topic.name);
            return Err(RunError::BadTopic(format!(
                "the {purpose} topic {name} cannot be used: {it}"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::plan::compared;
    use super::*;

    /// Brokers that make what is asked for, but for some.
    #[derive(Default)]
    struct Fake {
        topics: Mutex<BTreeMap<Arc<str>, Facts>>,
        refused: BTreeSet<&'static str>,
        made: Mutex<Vec<String>>,
    }

    impl Cluster for Fake {
        async fn look(&self, wanted: &[Arc<str>]) -> Result<Seen, KafkaError> {
            let mut topics = self.topics.lock().clone();
            topics.retain(|it, _| wanted.contains(it));
            let names = topics.keys().map(|it| (compared(it), it.to_string())).collect();
            Ok(Seen { brokers: 1, topics, names, ..Seen::default() })
        }

        async fn partitions(
            &self,
            wanted: &[Arc<str>],
        ) -> Result<BTreeMap<Arc<str>, i32>, KafkaError> {
            let topics = self.look(wanted).await?.topics;
            Ok(topics.into_iter().map(|(topic, facts)| (topic, facts.partitions)).collect())
        }

        async fn make(
            &self,
            topics: &[(Arc<str>, Target)],
            is_trial: bool,
            mut tell: impl FnMut(&Made) + Send,
        ) -> Vec<Made> {
            let one = |(topic, target): &(Arc<str>, Target)| {
                let result = if self.refused.contains(&**topic) {
                    Err("denied".to_owned())
                } else if is_trial {
                    Ok(MadeHow::WouldBeMade)
                } else {
                    let facts = Facts { partitions: target.partitions, ..Facts::default() };
                    self.topics.lock().insert(Arc::clone(topic), facts);
                    self.made.lock().push(topic.to_string());
                    Ok(MadeHow::Made)
                };
                let made = Made { topic: Arc::clone(topic), result };
                tell(&made);
                made
            };
            topics.iter().map(one).collect()
        }
    }

    fn job(there: &[(&str, i32)], refused: &[&'static str]) -> Job<Fake> {
        let facts = |partitions| Facts { partitions, replication: 1, settings: None };
        let topics = there.iter().map(|(name, count)| (Arc::from(*name), facts(*count)));
        let fake = Fake {
            topics: Mutex::new(topics.collect()),
            refused: refused.iter().copied().collect(),
            ..Fake::default()
        };
        let tier = redrive_core::Tier::endless("orders.retry");
        let flow =
            redrive_core::Flow::new("orders").with_strategy(redrive_core::Strategy::Single(tier));
        let config = Config::new("g").with_flow(crate::config::FlowConfig::new(flow));
        Job::new(fake, needed(&config, &"g.redrive".into()), "b:9092".to_owned())
    }

    #[tokio::test]
    async fn topics_are_made_once() {
        let job = job(&[("orders", 4)], &[]);
        let prepared = job.prepare(true).await.unwrap();
        let partitions = |topic: &str| prepared.seen.topics.get(topic).unwrap().partitions;
        assert_eq!((partitions("orders.retry"), partitions("orders.dlt")), (4, 4));
        assert_eq!(partitions("g.redrive"), 1);
        job.prepare(true).await.unwrap();
        let (topics, _) = job.plan().await.unwrap();
        assert_eq!(job.apply(&topics, false, |_| {}).await, []);
        assert_eq!(*job.cluster.made.lock(), ["orders.retry", "orders.dlt", "g.redrive"]);
    }

    #[tokio::test]
    async fn what_one_refusal_leaves_is_made_all_the_same() {
        let job = job(&[("orders", 2)], &["orders.dlt"]);
        let (topics, _) = job.plan().await.unwrap();
        let mut told = Vec::new();
        let made = job.apply(&topics, false, |it| told.push(it.topic.to_string())).await;
        let results: Vec<_> = made.iter().map(|it| it.result.is_ok()).collect();
        assert_eq!(results, [true, false, true]);
        assert_eq!(told, ["orders.retry", "orders.dlt", "g.redrive"]);
        let error = job.prepare(true).await.err().unwrap().to_string();
        assert!(error.contains("orders.dlt could not be made: denied"), "{error}");
    }

    #[tokio::test]
    async fn topics_that_grow_are_noticed() {
        use crate::engine::Partitions;
        let job = job(&[("orders", 2)], &[]);
        let counts =
            Counts::new(BTreeMap::from([(Arc::from("orders"), 2), (Arc::from("gone"), 1)]));
        assert!(counts.has("orders", 1) && !counts.has("orders", 2) && !counts.has("other", 0));
        job.cluster.topics.lock().get_mut("orders").unwrap().partitions = 3;
        counts.look_again(&job.cluster).await;
        assert!(counts.has("orders", 2) && counts.has("gone", 0));
    }

    #[tokio::test]
    async fn a_trial_makes_nothing() {
        let job = job(&[("orders", 2)], &[]);
        let (topics, _) = job.plan().await.unwrap();
        let made = job.apply(&topics, true, |_| {}).await;
        assert!(made.iter().all(|it| it.result == Ok(MadeHow::WouldBeMade)));
        assert_eq!(made.len(), 3);
        assert!(job.cluster.made.lock().is_empty());
    }

    #[tokio::test]
    async fn without_its_source_nothing_is_made_and_the_source_alone_is_asked_for() {
        let job = job(&[], &[]);
        let error = job.prepare(true).await.err().unwrap();
        assert!(matches!(&error, RunError::MissingTopics(it) if *it == ["orders"]), "{error:?}");
        assert!(job.cluster.made.lock().is_empty());
        let error = job.prepare(false).await.err().unwrap();
        let all = ["orders", "orders.retry", "orders.dlt", "g.redrive"];
        assert!(matches!(&error, RunError::MissingTopics(it) if *it == all), "{error:?}");
        let told = error.to_string();
        assert!(
            told.contains("redrive topics apply") && told.contains("--create-topics"),
            "{told}"
        );
    }
}
