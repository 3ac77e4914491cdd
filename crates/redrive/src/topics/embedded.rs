//! The embedded broker's topics: looked at like any other's, and made without an admin API, which it does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdkafka::error::KafkaError;

use super::plan::{Seen, Target};
use super::{
    Admin, Cluster, Job, Made, MadeHow, Needed, Prepared, Purpose, needed, state_topic_of,
};
use crate::RunError;
use crate::config::Config;
use crate::embedded::{Broker, BrokerError, SOURCE_PARTITIONS};
use crate::event::{Event, Events};
use crate::kafka::client::Told;

/// How often it is looked whether dead letters were dropped.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// A broker within this process.
struct Embedded {
    admin: Admin,
    broker: Arc<Broker>,
}

impl Cluster for Embedded {
    async fn look(&self, wanted: &[Arc<str>]) -> Result<Seen, KafkaError> {
        self.admin.look_without_settings(wanted).await.map(|it| it.0)
    }

    async fn partitions(&self, wanted: &[Arc<str>]) -> Result<BTreeMap<Arc<str>, i32>, KafkaError> {
        self.admin.partitions(wanted).await
    }

    async fn make(
        &self,
        topics: &[(Arc<str>, Target)],
        is_trial: bool,
        mut tell: impl FnMut(&Made) + Send,
    ) -> Vec<Made> {
        let mut make = |topic: &Arc<str>, partitions| {
            let result = if is_trial {
                Ok(MadeHow::WouldBeMade)
            } else {
                match self.broker.make_topic(topic, partitions) {
                    Ok(()) => Ok(MadeHow::Made),
                    // A client that asks for a topic makes it, too.
                    Err(BrokerError::AlreadyThere(_)) => Ok(MadeHow::WasThere),
                    Err(error) => Err(error.to_string()),
                }
            };
            let made = Made { topic: Arc::clone(topic), result };
            tell(&made);
            made
        };
        topics.iter().map(|(topic, target)| make(topic, target.partitions)).collect()
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
        let topics = topics.into_iter().map(|it| (Arc::clone(&it), partitions(&it))).collect();
        Self { admin, events, topics, told: BTreeMap::new(), looked_at: Instant::now() }
    }

    /// Looks, if it is time to.
    pub(crate) async fn look(&mut self) {
        if self.looked_at.elapsed() < LOOK_EVERY {
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
