//! Entities that do not flow: a record of theirs is in the dead-letter topic and those behind it follow, or waits to be retried and those
//! behind it wait with it.

mod reading;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::Timestamp;
use redrive_core::lane::{EntityId, Marker};
use tokio::sync::mpsc;

use crate::RunError;
use crate::config::{Config, FlowConfig, Ordering};
use crate::event::Spot;
use crate::kafka::client::{Properties, Told};
use crate::kafka::markers::shown;
use crate::kafka::publish::{At, Publisher, Receipt, Unpublished};
use crate::kafka::state::StateTopic;
use crate::topics::{self, Reached};
use reading::Reader;
pub use waiting::{BlockedEntity, WaitingRecord};

/// A closed entity. One may be closed more than once, and is open when none of it is left.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClosedEntity {
    /// Its name: as text, or as base64 where it is none. None where nobody knows it any more.
    pub entity: Option<String>,
    /// Whether the name is base64.
    pub is_base64: bool,
    /// Its hash, in hexadecimal digits.
    pub id: String,
    /// Where the record was produced that the others follow.
    pub head: Spot,
    /// Since when it is closed.
    pub since: Timestamp,
    /// Why the record was dead-lettered.
    pub reason: Option<String>,
    /// Its last failure.
    pub error: Option<String>,
    /// What that said.
    pub message: Option<String>,
    /// How often the record was sent back by an operator before.
    pub redriven: u32,
    marker: Marker,
}

/// The hash of an entity's name, in hexadecimal digits.
pub fn id_of(name: &[u8]) -> String {
    shown(EntityId::of(name)).to_string()
}

/// The entities of a config's group.
pub struct Entities {
    group: Arc<str>,
    flows: Vec<FlowConfig>,
    properties: Properties,
    told: Told,
    state_topic: Arc<StateTopic>,
    publisher: Arc<Publisher>,
}

impl Entities {
    /// Looks for the config's brokers.
    ///
    /// # Errors
    ///
    /// The config does not say where they are, they do not let us in, or none answers within the limit.
    pub async fn connect(config: &Config, within: Duration) -> Result<Self, RunError> {
        let Reached { properties, group, told } = topics::reach(config, within).await?;
        let topic = topics::state_topic_of(config, &group);
        let publisher = Arc::new(Publisher::new(&properties, told.clone())?);
        let state_topic =
            Arc::new(StateTopic::new(topic, &group, properties.clone(), told.clone()));
        let ordered = config.flows.iter().filter(|it| it.ordering == Ordering::Key);
        let (group, flows) = (group.into(), ordered.cloned().collect());
        Ok(Self { group, flows, properties, told, state_topic, publisher })
    }

    /// The source topics of flows with an order per entity.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.flows.iter().map(|it| &**it.flow.source())
    }

    /// Entities with a record in a retry topic that is to run, and with those that wait behind it. They are found as a member does that
    /// takes their partitions over: by reading the retry topics, from where the group has committed to their ends. `progress` is told how
    /// many records were read, and of how many at the most.
    ///
    /// What members that run hold in memory and have not published is not among it.
    ///
    /// # Errors
    ///
    /// The brokers do not answer, or a map was written by a newer version.
    pub async fn blocked(
        &self,
        is_meant: impl Fn(&str) -> bool,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<Vec<BlockedEntity>, RunError> {
        let flows = self.flows.iter().filter(|it| is_meant(it.flow.source())).cloned().collect();
        let look = waiting::Look {
            group: Arc::clone(&self.group),
            flows,
            state_topic: Arc::clone(&self.state_topic),
            reader: Reader::new(&self.properties, &self.group, self.told.clone())?,
        };
        let found = tokio::task::spawn_blocking(move || look.run(progress)).await;
        found.map_err(|error| RunError::Fatal(error.to_string()))?
    }

    /// How many records follow each of these into the dead-letter topic, by head. `progress` is told how many dead letters were read, and of
    /// how many.
    ///
    /// # Errors
    ///
    /// The brokers do not answer.
    pub async fn followers(
        &self,
        closed: &[ClosedEntity],
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<BTreeMap<Spot, u64>, RunError> {
        // A head that was sent back and failed again has the followers of both times.
        let mut heads: BTreeMap<Arc<str>, BTreeMap<Spot, u64>> = BTreeMap::new();
        for it in closed {
            let flow = self.flows.iter().find(|flow| **flow.flow.source() == *it.head.topic);
            if let Some(flow) = flow {
                let letters = Arc::clone(flow.flow.dead_letter());
                heads.entry(letters).or_default().insert(it.head.clone(), 0);
            }
        }
        let reader = Reader::new(&self.properties, &self.group, self.told.clone())?;
        let counted = tokio::task::spawn_blocking(move || reader.count(heads, progress)).await;
        counted.map_err(|error| RunError::Fatal(error.to_string()))?
    }

    /// All that are closed now, by topic, partition and entity.
    ///
    /// # Errors
    ///
    /// The state topic cannot be read.
    pub async fn closed(&self) -> Result<Vec<ClosedEntity>, RunError> {
        let state_topic = Arc::clone(&self.state_topic);
        let read = tokio::task::spawn_blocking(move || state_topic.closed()).await;
        let closed = read.map_err(|error| RunError::Fatal(error.to_string()))??;
        let all = closed.into_iter().map(|((topic, partition, marker), note)| ClosedEntity {
            is_base64: note.entity_base64.is_some(),
            entity: note.entity.or(note.entity_base64),
            id: shown(marker.entity).to_string(),
            head: Spot { topic: topic.into(), partition, offset: marker.head.origin },
            since: note.since,
            reason: note.reason,
            error: note.error,
            message: note.message,
            redriven: marker.head.redriven,
            marker,
        });
        Ok(all.collect())
    }

    /// Opens entities. Members that run notice at once; those behind the head that went to the dead-letter topic stay there.
    ///
    /// # Errors
    ///
    /// The state topic did not take all of it.
    pub async fn open(&self, closed: &[ClosedEntity]) -> Result<(), RunError> {
        let (sender, mut results) = mpsc::unbounded_channel();
        let receipt: Arc<dyn Receipt> = Arc::new(Opened(sender));
        for it in closed {
            let at = (&*it.head.topic, it.head.partition);
            let receipt = Arc::clone(&receipt);
            self.state_topic.write_marker(&self.publisher, at, it.marker, None, receipt, 0);
        }
        drop(receipt);
        while let Some(result) = results.recv().await {
            if let Err(Unpublished::Refused(code)) = result {
                let error = rdkafka::error::KafkaError::MessageProduction(code);
                return Err(error.into());
            }
        }
        Ok(())
    }
}

struct Opened(mpsc::UnboundedSender<Result<At, Unpublished>>);

impl Receipt for Opened {
    fn published(&self, _: (u64, i64), result: Result<At, Unpublished>) {
        _ = self.0.send(result);
    }
}
