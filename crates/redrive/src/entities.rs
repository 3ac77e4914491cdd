//! Entities that are closed: a record of theirs is in the dead-letter topic, and those behind it follow.

use std::sync::Arc;
use std::time::Duration;

use redrive_core::Timestamp;
use redrive_core::lane::{EntityId, Marker};
use tokio::sync::mpsc;

use crate::RunError;
use crate::config::Config;
use crate::event::Spot;
use crate::kafka::markers::shown;
use crate::kafka::publish::{At, Publisher, Receipt, Unpublished};
use crate::kafka::state::StateTopic;
use crate::topics::{self, Reached};

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
    marker: Marker,
}

impl ClosedEntity {
    /// Whether it is the entity of this name.
    pub fn is_named(&self, name: &[u8]) -> bool {
        self.marker.entity == EntityId::of(name)
    }
}

/// The closed entities of a config's group.
pub struct Entities {
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
        let state_topic = Arc::new(StateTopic::new(topic, &group, properties, told));
        Ok(Self { state_topic, publisher })
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
