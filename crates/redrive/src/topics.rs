//! The topics of a config: what they look like, and how they are made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::types::RDKafkaErrorCode;
use redrive_core::Strategy;

use crate::config::{Config, FlowConfig};
use crate::kafka::client::{Properties, Told};
use crate::kafka::offsets;

/// How long brokers may take to answer.
const ANSWER: Duration = Duration::from_secs(15);
const DAY: Duration = Duration::from_hours(24);

/// What a topic is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Source,
    Retry,
    DeadLetter,
    /// A retry topic of an earlier config, which is read and never made.
    Draining,
    State,
}

/// A topic that a config needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    pub(crate) topic: Arc<str>,
    pub(crate) purpose: Purpose,
    /// Whose partitions it has as many of.
    pub(crate) source: Option<Arc<str>>,
    /// The longest that a record waits in it.
    pub(crate) longest: Duration,
}

impl Needed {
    /// Whether the topic is there with as many partitions as its source. One that was just made may not be known in full.
    pub(crate) fn is_whole(&self, found: &BTreeMap<Arc<str>, Facts>) -> bool {
        let source =
            self.source.as_ref().and_then(|it| found.get(it)).map_or(1, |it| it.partitions);
        found.get(&self.topic).is_some_and(|it| it.partitions >= source)
    }
}

/// What a topic looks like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) partitions: i32,
    /// How long it keeps records, if not for ever.
    pub(crate) retention: Option<Duration>,
    pub(crate) is_compacted: bool,
}

/// The topics that a config needs.
pub(crate) fn needed(config: &Config, state_topic: &Arc<str>) -> Vec<Needed> {
    let mut needed: Vec<Needed> = Vec::new();
    for flow in &config.flows {
        let own = of_flow(flow);
        needed.extend(own);
    }
    needed.push(Needed {
        topic: Arc::clone(state_topic),
        purpose: Purpose::State,
        source: None,
        longest: Duration::ZERO,
    });
    // Flows may share a dead-letter topic.
    let mut seen = BTreeSet::new();
    needed.retain(|it| seen.insert(Arc::clone(&it.topic)));
    needed
}

fn of_flow(flow: &FlowConfig) -> Vec<Needed> {
    let source = flow.flow.source();
    let longest = flow.flow.longest_delay();
    let one = |topic: &Arc<str>, purpose| Needed {
        topic: Arc::clone(topic),
        purpose,
        source: (purpose != Purpose::Source).then(|| Arc::clone(source)),
        longest,
    };
    let retry = match flow.flow.strategy() {
        Strategy::DelayThenRetry { retry, .. } => Some(retry),
        _ => None,
    };
    let tiers = flow.flow.strategy().tiers().iter().map(|it| &it.topic);
    std::iter::once(one(source, Purpose::Source))
        .chain(tiers.chain(retry).map(|it| one(it, Purpose::Retry)))
        .chain([one(flow.flow.dead_letter(), Purpose::DeadLetter)])
        .chain(flow.draining.iter().map(|it| one(&Arc::from(it.as_str()), Purpose::Draining)))
        .collect()
}

/// A client that looks at topics and makes them.
pub(crate) struct Admin(AdminClient<Told>);

impl Admin {
    pub(crate) fn new(properties: &Properties, told: Told) -> Result<Self, KafkaError> {
        properties.admin().create_with_context(told).map(Self)
    }

    /// What these topics look like; those that are not there are left out.
    pub(crate) async fn look(
        &self,
        topics: &[Needed],
    ) -> Result<BTreeMap<Arc<str>, Facts>, KafkaError> {
        let metadata = self.0.inner().fetch_metadata(None, ANSWER)?;
        let mut found: BTreeMap<Arc<str>, Facts> = BTreeMap::new();
        for needed in topics {
            let own = metadata.topics().iter().find(|it| it.name() == &*needed.topic);
            if let Some(own) = own.filter(|it| it.error().is_none() && !it.partitions().is_empty())
            {
                let partitions = i32::try_from(own.partitions().len()).unwrap_or(i32::MAX);
                found.insert(Arc::clone(&needed.topic), Facts { partitions, ..Facts::default() });
            }
        }
        let names: Vec<_> = found.keys().cloned().collect();
        if names.is_empty() {
            // Kafka refuses to be asked about nothing.
            return Ok(found);
        }
        let resources: Vec<_> = names.iter().map(|it| ResourceSpecifier::Topic(it)).collect();
        let options = AdminOptions::new().request_timeout(Some(ANSWER));
        let described = self.0.describe_configs(&resources, &options).await?;
        for (topic, described) in names.iter().zip(described) {
            // Without the right to look, the usual settings are taken for granted.
            let (Ok(described), Some(facts)) = (described, found.get_mut(topic)) else {
                continue;
            };
            let value = |name: &str| described.get(name).and_then(|it| it.value.as_deref());
            let millis = value("retention.ms").and_then(|it| it.parse::<u64>().ok());
            facts.retention = millis.map(Duration::from_millis);
            facts.is_compacted = value("cleanup.policy").is_some_and(|it| it.contains("compact"));
        }
        Ok(found)
    }

    /// Makes topics that are missing. One that somebody else made meanwhile is fine.
    pub(crate) async fn make(
        &self,
        missing: &[&Needed],
        found: &BTreeMap<Arc<str>, Facts>,
    ) -> Result<(), KafkaError> {
        let brokers = self.0.inner().fetch_metadata(None, ANSWER)?.brokers().len();
        let replicas = i32::try_from(brokers.clamp(1, 3)).unwrap_or(1);
        let settings: Vec<_> = missing.iter().map(|it| settings(it)).collect();
        let topics: Vec<_> = missing
            .iter()
            .zip(&settings)
            .map(|(needed, settings)| {
                let source = needed.source.as_ref().and_then(|it| found.get(it));
                let partitions = source.map_or(1, |it| it.partitions);
                let topic =
                    NewTopic::new(&needed.topic, partitions, TopicReplication::Fixed(replicas));
                settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value))
            })
            .collect();
        let options =
            AdminOptions::new().request_timeout(Some(ANSWER)).operation_timeout(Some(ANSWER));
        for result in self.0.create_topics(&topics, &options).await? {
            match result {
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((_, code)) => return Err(KafkaError::AdminOp(code)),
            }
        }
        Ok(())
    }
}

/// Topics that these groups have read and that nobody names any more, with the records that they may still have.
///
/// A consumer asks, since librdkafka 2.12 crashes if another client is told that the coordinator has moved.
pub(crate) fn left_behind(
    properties: &Properties,
    told: &Told,
    groups: &BTreeSet<String>,
    is_named: impl Fn(&str) -> bool,
) -> BTreeMap<String, i64> {
    let mut left: BTreeMap<String, i64> = BTreeMap::new();
    for group in groups {
        let consumer: Result<BaseConsumer<Told>, _> =
            properties.reader(group).create_with_context(told.clone());
        let Ok(consumer) = consumer else {
            continue;
        };
        for committed in offsets::all_committed(consumer.client(), group, ANSWER) {
            let offsets::Committed { topic, partition, offset, .. } = committed;
            let Some(offset) = offset.filter(|_| !is_named(&topic)) else {
                continue;
            };
            // A topic that is gone has nothing left.
            let marks = consumer.fetch_watermarks(&topic, partition, ANSWER);
            let records = marks.map_or(0, |(start, end)| end - offset.max(start));
            if records > 0 {
                *left.entry(topic).or_default() += records;
            }
        }
    }
    left
}

/// How a topic is made.
fn settings(needed: &Needed) -> Vec<(&'static str, String)> {
    let millis = |it: Duration| it.as_millis().to_string();
    match needed.purpose {
        Purpose::Source | Purpose::Draining => Vec::new(),
        Purpose::Retry => vec![
            ("cleanup.policy", "delete".to_owned()),
            ("retention.bytes", "-1".to_owned()),
            ("retention.ms", millis((7 * DAY).max(needed.longest.saturating_mul(2)))),
            ("message.timestamp.type", "LogAppendTime".to_owned()),
        ],
        Purpose::DeadLetter => vec![
            ("cleanup.policy", "delete".to_owned()),
            ("retention.bytes", "-1".to_owned()),
            ("retention.ms", millis(30 * DAY)),
        ],
        Purpose::State => vec![("cleanup.policy", "compact".to_owned())],
    }
}

/// The name of a group's state topic. A topic's name cannot have all that a group's can.
pub(crate) fn state_topic(group: &str) -> String {
    let is_allowed = |it: char| it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-');
    let name: String = group.chars().map(|it| if is_allowed(it) { it } else { '_' }).collect();
    let name: String = name.chars().take(240).collect();
    format!("{name}.redrive")
}
