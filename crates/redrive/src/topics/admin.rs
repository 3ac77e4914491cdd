//! The brokers, asked about topics and told to make some.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, ConfigSource, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;

use super::plan::{Facts, Seen, Setting, Target, compared};
use super::{Cluster, Made, MadeHow};
use crate::embedded;
use crate::kafka::client::{Properties, Told};
use crate::kafka::lifeline::{self, Tethered};

/// How long brokers may take to answer.
const ANSWER: Duration = Duration::from_secs(15);
/// How many topics are asked about or made in one request.
const AT_ONCE: usize = 50;
/// How many topics are asked about one by one, or at the same time.
const SIDE_BY_SIDE: usize = 8;

/// A client that looks at topics and makes them.
#[derive(Clone)]
pub(crate) struct Admin(Arc<AdminClient<Told>>);

impl Admin {
    pub(crate) fn new(properties: &Properties, told: Told) -> Result<Self, KafkaError> {
        let config = properties.admin();
        let client: AdminClient<Told> = config.create_with_context(told)?;
        lifeline::tie(client.inner(), &config);
        Ok(Self(Arc::new(client)))
    }

    /// What blocks goes where it holds up nobody.
    async fn ask<T: Send + 'static>(
        &self,
        ask: impl FnOnce(&AdminClient<Told>) -> Result<T, KafkaError> + Send + 'static,
    ) -> Result<T, KafkaError> {
        let client = Arc::clone(&self.0);
        let asked = tokio::task::spawn_blocking(move || {
            let answer = ask(&client);
            if answer.is_err() {
                client.inner().context().lifeline().pull();
            }
            answer
        });
        asked.await.unwrap_or(Err(KafkaError::Canceled))
    }

    /// The settings of topics, where they may be looked at.
    async fn add_settings(&self, topics: &mut BTreeMap<Arc<str>, Facts>) -> Result<(), KafkaError> {
        let names: Vec<_> = topics.keys().cloned().collect();
        // Kafka refuses to be asked about nothing, and there are no chunks of nothing.
        for names in names.chunks(AT_ONCE) {
            let resources: Vec<_> = names.iter().map(|it| ResourceSpecifier::Topic(it)).collect();
            let described = self.0.describe_configs(&resources, &options()).await?;
            for (topic, described) in names.iter().zip(described) {
                if let (Ok(described), Some(facts)) = (described, topics.get_mut(topic)) {
                    facts.settings = Some(settings(described));
                }
            }
        }
        Ok(())
    }

    /// Where the logs of these partitions begin. Those that nobody tells are left out.
    pub(super) async fn log_starts(&self, of: Vec<(Arc<str>, i32)>) -> Vec<((Arc<str>, i32), i64)> {
        let asked = self.ask(move |client| {
            let start = |at: &(Arc<str>, i32)| {
                Some(client.inner().fetch_watermarks(&at.0, at.1, ANSWER).ok()?.0)
            };
            Ok(of.into_iter().filter_map(|at| start(&at).map(|it| (at, it))).collect())
        });
        asked.await.unwrap_or_default()
    }

    /// Whether it is an embedded broker, in this process or another: it has no admin API, and would not even answer.
    async fn is_embedded(&self) -> bool {
        let id = self.ask(|client| Ok(client.inner().fetch_cluster_id(ANSWER))).await;
        id.ok().flatten().is_some_and(|it| embedded::is_embedded(&it))
    }

    /// Whether a broker makes topics by itself. None if it does not say.
    async fn auto_creates(&self, broker: i32) -> Option<bool> {
        let resource = [ResourceSpecifier::Broker(broker)];
        let described = self.0.describe_configs(&resource, &options()).await.ok()?;
        let described = described.into_iter().next()?.ok()?;
        let value = described.get("auto.create.topics.enable")?.value.as_deref()?;
        value.parse().ok()
    }
}

fn options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(ANSWER))
}

fn settings(described: ConfigResource) -> BTreeMap<String, Setting> {
    let entries = described.entries.into_iter();
    entries
        .filter_map(|it| {
            let is_own = matches!(it.source, ConfigSource::DynamicTopic);
            Some((it.name, Setting { value: it.value?, is_own }))
        })
        .collect()
}

impl Cluster for Admin {
    async fn look(&self, wanted: &[Arc<str>]) -> Result<Seen, KafkaError> {
        let names: BTreeSet<Arc<str>> = wanted.iter().cloned().collect();
        let (mut seen, broker) = self.ask(move |it| look(it, &names)).await?;
        if self.is_embedded().await {
            return Ok(seen);
        }
        self.add_settings(&mut seen.topics).await?;
        if let Some(broker) = broker {
            seen.auto_creates = self.auto_creates(broker).await;
        }
        Ok(seen)
    }

    async fn partitions(&self, wanted: &[Arc<str>]) -> Result<BTreeMap<Arc<str>, i32>, KafkaError> {
        let wanted: BTreeSet<Arc<str>> = wanted.iter().cloned().collect();
        self.ask(move |client| {
            let mut found = BTreeMap::new();
            let mut add = |asked: Option<&str>| {
                let metadata = client.inner().fetch_metadata(asked, ANSWER)?;
                for topic in metadata.topics().iter().filter(|it| it.error().is_none()) {
                    if let Some(name) = wanted.get(topic.name()) {
                        let count = i32::try_from(topic.partitions().len()).unwrap_or(i32::MAX);
                        found.insert(Arc::clone(name), count);
                    }
                }
                Ok::<_, KafkaError>(())
            };
            // One by one the answers are small, but hundreds of questions take longer than one about all that is there.
            if wanted.len() <= SIDE_BY_SIDE {
                wanted.iter().try_for_each(|it| add(Some(it)))?;
            } else {
                add(None)?;
            }
            Ok(found)
        })
        .await
    }

    async fn make(
        &self,
        topics: &[(Arc<str>, Target)],
        is_trial: bool,
        mut tell: impl FnMut(&Made) + Send,
    ) -> Vec<Made> {
        let mut all = Vec::new();
        if !topics.is_empty() && self.is_embedded().await {
            let why = "an embedded broker makes topics only by itself: start it with `redrive broker --topic NAME:PARTITIONS`, or with this config by `--config`";
            for (topic, _) in topics {
                let made = Made { topic: Arc::clone(topic), result: Err(why.to_owned()) };
                tell(&made);
                all.push(made);
            }
            return all;
        }
        let options = options().operation_timeout(Some(ANSWER)).validate_only(is_trial);
        for topics in topics.chunks(AT_ONCE) {
            let new: Vec<_> = topics.iter().map(|(name, target)| new_topic(name, target)).collect();
            let mut results: BTreeMap<String, Result<MadeHow, String>> = BTreeMap::new();
            let failure = match self.0.create_topics(&new, &options).await {
                Ok(made) => {
                    results.extend(made.into_iter().map(|it| match it {
                        Ok(topic) if is_trial => (topic, Ok(MadeHow::WouldBeMade)),
                        Ok(topic) => (topic, Ok(MadeHow::Made)),
                        Err((topic, RDKafkaErrorCode::TopicAlreadyExists)) => {
                            (topic, Ok(MadeHow::WasThere))
                        }
                        Err((topic, code)) => {
                            let why = refusal(&topic, code);
                            (topic, Err(why))
                        }
                    }));
                    "the brokers said nothing about it".to_owned()
                }
                Err(error) => error.to_string(),
            };
            for (topic, _) in topics {
                let result = results.remove(&**topic).unwrap_or_else(|| Err(failure.clone()));
                let made = Made { topic: Arc::clone(topic), result };
                tell(&made);
                all.push(made);
            }
        }
        all
    }
}

fn new_topic<'a>(name: &'a str, target: &'a Target) -> NewTopic<'a> {
    let replication = TopicReplication::Fixed(target.replication);
    let topic = NewTopic::new(name, target.partitions, replication);
    target.settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value))
}

/// Why a topic was not made, and what to do about it.
fn refusal(topic: &str, code: RDKafkaErrorCode) -> String {
    use RDKafkaErrorCode as Code;
    let fix = match code {
        Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
            format!("allow Create on the topic {topic}, or on the cluster")
        }
        Code::PolicyViolation => {
            "the brokers have a policy for new topics: make it by hand as that says".to_owned()
        }
        Code::InvalidReplicationFactor => {
            "too few brokers are up: try again when all of them are".to_owned()
        }
        Code::InvalidTopic => {
            "its name clashes with another topic's, or cannot be one: choose another".to_owned()
        }
        Code::InvalidConfig => {
            "the brokers do not take its settings: make it by hand with those that they take"
                .to_owned()
        }
        _ => "try again: what was made stays".to_owned(),
    };
    format!("{code}: {fix}")
}

/// The topics, without their settings, and a broker.
fn look(
    client: &AdminClient<Told>,
    wanted: &BTreeSet<Arc<str>>,
) -> Result<(Seen, Option<i32>), KafkaError> {
    let metadata = client.inner().fetch_metadata(None, ANSWER)?;
    let mut seen = Seen { brokers: metadata.brokers().len(), ..Seen::default() };
    for topic in metadata.topics() {
        seen.names.insert(compared(topic.name()), topic.name().to_owned());
        let name = wanted.get(topic.name());
        let is_there = topic.error().is_none() && !topic.partitions().is_empty();
        if let Some(name) = name.filter(|_| is_there) {
            let count = |it: usize| i32::try_from(it).unwrap_or(i32::MAX);
            let replicas = topic.partitions().iter().map(|it| it.replicas().len()).min();
            let facts = Facts {
                partitions: count(topic.partitions().len()),
                replication: count(replicas.unwrap_or(0)),
                settings: None,
            };
            seen.topics.insert(Arc::clone(name), facts);
        }
    }
    let missing: Vec<_> = wanted.iter().filter(|it| !seen.topics.contains_key(*it)).collect();
    seen.hidden = hidden(client, &missing);
    Ok((seen, metadata.brokers().first().map(|it| it.id())))
}

/// Which of these may not be looked at: of all topics Kafka lists only those that may, and only who asks by name is told.
fn hidden(client: &AdminClient<Told>, missing: &[&Arc<str>]) -> BTreeSet<Arc<str>> {
    let is_hidden = |topic: &Arc<str>| {
        let Ok(metadata) = client.inner().fetch_metadata(Some(topic), ANSWER) else {
            return false;
        };
        let denied = RDKafkaErrorCode::TopicAuthorizationFailed;
        let errors = metadata.topics().iter().filter_map(|it| it.error());
        errors.map(RDKafkaErrorCode::from).any(|it| it == denied)
    };
    let size = missing.len().div_ceil(SIDE_BY_SIDE).max(1);
    std::thread::scope(|scope| {
        let ask = |part: &[&Arc<str>]| -> Vec<Arc<str>> {
            part.iter().filter(|it| is_hidden(it)).map(|it| Arc::clone(it)).collect()
        };
        let parts: Vec<_> =
            missing.chunks(size).map(|part| scope.spawn(move || ask(part))).collect();
        parts.into_iter().flat_map(|it| it.join().unwrap_or_default()).collect()
    })
}
