//! The orders come in: an ordinary producer, at an even pace.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Message};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};

use crate::board::SharedBoard;
use crate::clock;
use crate::history::Place;
use crate::orders::Orders;

/// How many records may be under way before it waits: a demo on a slow machine takes longer instead of choking.
const UNDER_WAY: usize = 300;
/// How often it is looked at how many are due.
const TICK: Duration = Duration::from_millis(10);

/// How long the last records may take.
const FLUSH: Duration = Duration::from_secs(10);

/// What the broker has acknowledged.
pub(crate) struct Acknowledged {
    board: SharedBoard,
    sent: Mutex<BTreeMap<Place, u32>>,
    refused: OnceLock<String>,
}

impl ClientContext for Acknowledged {}

impl ProducerContext for Acknowledged {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, number: usize) {
        match result {
            Ok(message) => {
                let place = Place { partition: message.partition(), offset: message.offset() };
                let number = u32::try_from(number).unwrap_or(u32::MAX);
                self.sent.lock().insert(place, number);
                self.board.lock().produced(clock::millis());
            }
            Err((error, _)) => _ = self.refused.set(format!("order {number}: {error}")),
        }
    }
}

/// The producer.
pub(crate) struct Producer(ThreadedProducer<Acknowledged>);

impl Producer {
    pub(crate) fn new(bootstrap: &str, board: SharedBoard) -> Result<Self, KafkaError> {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", bootstrap).set("acks", "all").set("linger.ms", "5");
        config.set("message.timeout.ms", "20000");
        let (sent, refused) = (Mutex::default(), OnceLock::new());
        Ok(Self(config.create_with_context(Acknowledged { board, sent, refused })?))
    }

    /// Produces all orders within this time. They may be on their way still when it returns.
    pub(crate) async fn produce(
        &self,
        orders: &Orders,
        topic: &str,
        partitions: i32,
        within: Duration,
    ) -> Result<(), KafkaError> {
        let (start, count) = (Instant::now(), u32::try_from(orders.len()).unwrap_or(u32::MAX));
        let every = within / count.max(1);
        let mut tick = tokio::time::interval(TICK);
        for number in 0..count {
            while start.elapsed() < every * number || self.is_behind() {
                tick.tick().await;
            }
            let partition = i32::try_from(number).unwrap_or(0) % partitions;
            let value = orders.value(number);
            loop {
                let record = BaseRecord::with_opaque_to(topic, number as usize)
                    .key(orders.customer(number))
                    .payload(&value)
                    .partition(partition);
                match self.0.send(record) {
                    Ok(()) => break,
                    Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), _)) => {
                        _ = tick.tick().await
                    }
                    Err((error, _)) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Whether the service has enough to do.
    fn is_behind(&self) -> bool {
        self.0.context().board.lock().under_way() > UNDER_WAY
    }

    /// Why the broker did not take a record.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.0.context().refused.get().map(String::as_str)
    }

    /// What was acknowledged: the orders' numbers by their places. What is on its way is waited for.
    pub(crate) fn sent(&self) -> BTreeMap<Place, u32> {
        // What does not arrive was not acknowledged, and nobody counts on it.
        _ = self.0.flush(FLUSH);
        self.0.context().sent.lock().clone()
    }
}
