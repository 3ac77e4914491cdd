//! The embedded broker's topics, made without an admin API, which it does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::error::KafkaError;

use super::plan::{Facts, Seen, Target, compared};
use super::{
    Admin, Cluster, Job, Made, MadeHow, Needed, Prepared, Purpose, needed, state_topic_of,
};
use crate::RunError;
use crate::config::Config;
use crate::embedded::{Broker, BrokerError, SOURCE_PARTITIONS};
use crate::event::{Event, Events};
use crate::kafka::client::Told;

/// How often it is looked whether dead letters were dropped, and how much less often for each partition that they may be in.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_LATER: Duration = Duration::from_millis(10);

/// A broker within this process.
struct Embedded {
    admin: Admin,
    broker: Arc<Broker>,
}

impl Embedded {
    /// Makes a topic. One that is there was made by a client that asked for it, with as many partitions as the broker likes.
    async fn make_one(&self, topic: &Arc<str>, partitions: i32) -> Result<MadeHow, String> {
        match self.broker.make_topic(topic, partitions) {
            Ok(()) => Ok(MadeHow::Made),
            Err(BrokerError::AlreadyThere(_)) => {
                let found = self.admin.partitions(std::slice::from_ref(topic)).await;
                let found = found.map_err(|it| it.to_string())?;
                let count = found.get(topic).copied().unwrap_or(partitions);
                self.broker.topics().insert(topic.to_string(), count);
                Ok(MadeHow::WasThere)
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The broker knows its topics, and need not be asked about each of them over the wire.
impl Cluster for Embedded {
    async fn look(&self, wanted: &[Arc<str>]) -> Result<Seen, KafkaError> {
        let topics = self.partitions(wanted).await?.into_iter();
        let facts = |partitions| Facts { partitions, replication: 1, settings: None };
        let names = self.broker.topics().keys().map(|it| (compared(it), it.clone())).collect();
        let topics = topics.map(|(topic, partitions)| (topic, facts(partitions))).collect();
        Ok(Seen { brokers: 1, topics, names, ..Seen::default() })
    }

    async fn partitions(&self, wanted: &[Arc<str>]) -> Result<BTreeMap<Arc<str>, i32>, KafkaError> {
        let known = self.broker.topics();
        let count = |it: &Arc<str>| Some((Arc::clone(it), *known.get(&**it)?));
        Ok(wanted.iter().filter_map(count).collect())
    }

    async fn make(
        &self,
        topics: &[(Arc<str>, Target)],
        is_trial: bool,
        mut tell: impl FnMut(&Made) + Send,
    ) -> Vec<Made> {
        let mut all = Vec::new();
        for (topic, target) in topics {
            let result = if is_trial {
                Ok(MadeHow::WouldBeMade)
            } else {
                self.make_one(topic, target.partitions).await
            };
            let made = Made { topic: Arc::clone(topic), result };
            tell(&made);
            all.push(made);
        }
        all
    }
}

/// Makes what is needed and missing on an embedded broker, source topics, too, and says what is there.
pub(crate) async fn prepare(
    admin: &Admin,
    broker: &Arc<Broker>,
    mut needed: Vec<Needed>,
) -> Result<Prepared, RunError> {
    // A broker that had nothing before has nothing to drain, but what is read must be there.
    for topic in needed.iter_mut().filter(|it| it.purpose == Purpose::Draining) {
        topic.purpose = Purpose::Retry;
    }
    let cluster = Embedded { admin: admin.clone(), broker: Arc::clone(broker) };
    let job = Job::new(cluster, needed, broker.bootstrap().to_owned());
    job.with_created_sources(SOURCE_PARTITIONS).prepare(true).await
}

/// Makes all topics of a config on an embedded broker.
pub(crate) async fn make_all(broker: &Arc<Broker>, config: &Config) -> Result<(), RunError> {
    let group = config.group.as_deref().ok_or(RunError::NoGroup)?;
    let needed = needed(config, &state_topic_of(config, group));
    let admin = Admin::new(&broker.properties(), Told::new(Events::default()))?;
    prepare(&admin, broker, needed).await.map(drop)
}

/// Tells of dead letters that the broker drops. Of records that a flow still needs, it is told when they are missed.
pub(crate) struct Overflow {
    admin: Admin,
    events: Events,
    topics: BTreeMap<Arc<str>, i32>,
    /// Where logs began when that was told last.
    told: BTreeMap<(Arc<str>, i32), i64>,
    looked_at: Instant,
    look_every: Duration,
}

impl Overflow {
    pub(crate) fn new(
        admin: Admin,
        events: Events,
        needed: &[Needed],
        partitions: impl Fn(&str) -> i32,
    ) -> Self {
        let is_dead_letter = |it: &&Needed| it.purpose == Purpose::DeadLetter;
        let topics: BTreeSet<_> =
            needed.iter().filter(is_dead_letter).map(|it| Arc::clone(&it.topic)).collect();
        let topics: BTreeMap<_, _> =
            topics.into_iter().map(|it| (Arc::clone(&it), partitions(&it))).collect();
        let count = u32::try_from(topics.values().sum::<i32>()).unwrap_or(0);
        Self {
            admin,
            events,
            topics,
            told: BTreeMap::new(),
            looked_at: Instant::now(),
            look_every: LOOK_EVERY + LOOK_LATER * count,
        }
    }

    /// Looks, if it is time to.
    pub(crate) async fn look(&mut self) {
        if self.looked_at.elapsed() < self.look_every {
            return;
        }
        let all = self.topics.iter().flat_map(|(topic, count)| {
            (0..*count).map(move |partition| (Arc::clone(topic), partition))
        });
        for (at, start) in self.admin.log_starts(all.collect()).await {
            // Again when it has become twice as bad.
            let told = self.told.get(&at).copied().unwrap_or(0);
            if start > told.saturating_mul(2) {
                let (topic, partition) = at.clone();
                self.events.tell(&Event::Overflowed { topic, partition, start });
                self.told.insert(at, start);
            }
        }
        self.looked_at = Instant::now();
    }
}
