//! Where logs end, whether what is there was committed or not: whoever keeps an order must know of all that was published.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;

use super::client::{self, Properties, Told};
use super::lifeline::Tethered;
use super::offsets;

/// How long the brokers may take for an answer, and how long it is until they are asked again.
const ANSWER: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(200);

/// Knows where logs end.
pub(crate) struct Tails {
    consumer: Arc<BaseConsumer<Told>>,
    asks: Mutex<Sender<Ask>>,
}

struct Ask {
    topic: Arc<str>,
    partition: i32,
    tell: Box<dyn FnOnce(i64) + Send>,
}

impl Tails {
    /// Starts the thread that asks. It ends when nobody has this any more.
    pub(crate) fn start(
        properties: &Properties,
        group: &str,
        told: Told,
    ) -> KafkaResult<(Arc<Self>, std::io::Result<thread::JoinHandle<()>>)> {
        let mut config = properties.reader(group);
        config.set("isolation.level", "read_uncommitted");
        let consumer = client::connected(&config, told)?;
        let (asks, asked) = channel();
        let tails = Arc::new(Self { consumer: Arc::new(consumer), asks: Mutex::new(asks) });
        let thread = thread::Builder::new().name("redrive-tails".to_owned());
        let (consumer, wanted) = (Arc::clone(&tails.consumer), Arc::downgrade(&tails));
        let spawned = thread.spawn(move || answer(&consumer, &asked, &wanted));
        Ok((tails, spawned))
    }

    /// The first offset of each partition and the one behind the last, in their order.
    pub(crate) fn bounds(
        &self,
        partitions: &[(&str, i32)],
        limit: Duration,
    ) -> Vec<KafkaResult<(i64, i64)>> {
        let bounds = offsets::watermarks(&self.consumer, partitions, limit);
        if bounds.iter().any(Result::is_err) {
            self.consumer.context().lifeline().pull();
        }
        bounds
    }

    /// Tells the offset behind the last record of a partition, as it is after this call. Brokers that do not answer are asked
    /// again for as long as it takes.
    pub(crate) fn ask(
        &self,
        topic: Arc<str>,
        partition: i32,
        tell: impl FnOnce(i64) + Send + 'static,
    ) {
        // The thread is there for as long as this is.
        _ = self.asks.lock().send(Ask { topic, partition, tell: Box::new(tell) });
    }
}

fn answer(consumer: &BaseConsumer<Told>, asked: &Receiver<Ask>, wanted: &Weak<Tails>) {
    while let Ok(Ask { topic, partition, tell }) = asked.recv() {
        let end = loop {
            match consumer.fetch_watermarks(&topic, partition, ANSWER) {
                Ok((_, end)) => break end,
                Err(_) if wanted.strong_count() == 0 => return,
                Err(_) => {
                    consumer.context().lifeline().pull();
                    thread::sleep(AGAIN);
                }
            }
        };
        tell(end);
    }
}
