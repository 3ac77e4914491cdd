//! How clients of Kafka are made, and what they tell.

use std::sync::{Arc, OnceLock};

use rdkafka::ClientConfig;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::types::RDKafkaErrorCode;

use super::lifeline::{self, Lifeline, Tethered};
use crate::event::{Event, Events, Level};

/// An embedded broker answers a fetch of nothing only when the client's patience ends, and lets a group that changes wait for
/// almost the session's timeout.
const EMBEDDED: [(&str, &str); 3] =
    [("fetch.wait.max.ms", "10"), ("session.timeout.ms", "3000"), ("heartbeat.interval.ms", "500")];

/// The properties of all clients, as the config has them.
#[derive(Clone)]
pub(crate) struct Properties {
    given: Arc<[(String, String)]>,
    /// How large batches may be that are produced, where nobody says otherwise.
    batch: i64,
}

/// As librdkafka has it.
const BATCH: i64 = 1_000_000;

impl Properties {
    pub(crate) fn new(properties: &[(String, String)]) -> Self {
        Self { given: properties.into(), batch: BATCH }
    }

    /// The same, but for what clients of an embedded broker should have where nobody says otherwise.
    pub(crate) fn on_embedded(&self) -> Self {
        let hints = EMBEDDED.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        Self { given: hints.chain(self.given.iter().cloned()).collect(), batch: self.batch }
    }

    /// The same with batches that topics take which take so many bytes at the most: a topic refuses a larger one with all records in it.
    /// None if they are as small already.
    pub(crate) fn with_batches_of(&self, bytes: i64) -> Option<Self> {
        let is_given = self.given.iter().any(|it| it.0 == "batch.size");
        let given = Arc::clone(&self.given);
        (bytes < self.batch && !is_given).then(|| Self { given, batch: bytes.max(1) })
    }

    fn client(&self, defaults: &[(&str, &str)], owned: &[(&str, &str)]) -> ClientConfig {
        let mut config = ClientConfig::new();
        for (key, value) in defaults {
            config.set(*key, *value);
        }
        for (key, value) in &*self.given {
            config.set(key, value);
        }
        for (key, value) in owned {
            config.set(*key, *value);
        }
        // Whoever asks for a topic must not make it: not even one whose name has a typo.
        config.set("allow.auto.create.topics", "false");
        config
    }

    /// A member of a group.
    pub(crate) fn member(&self, group: &str) -> ClientConfig {
        let mut config = self.client(
            &[
                // Waits of a second and of half a second, at the wrong time.
                ("fetch.queue.backoff.ms", "1"),
                ("fetch.wait.max.ms", "100"),
                ("queued.max.messages.kbytes", "4096"),
                // Enough for some hundredths of a second; each takes half a kilobyte beside its payload.
                ("queued.min.messages", "20000"),
                ("socket.timeout.ms", "10000"),
                ("partition.assignment.strategy", "cooperative-sticky"),
            ],
            &[
                ("group.id", group),
                ("enable.auto.commit", "false"),
                ("enable.auto.offset.store", "false"),
                ("auto.offset.reset", "error"),
                // An end that is read in a batch counts as a record, and after a rebalance the next one is left out.
                ("enable.partition.eof", "false"),
                ("isolation.level", "read_committed"),
            ],
        );
        if config.get("group.protocol").is_some_and(|it| it.eq_ignore_ascii_case("consumer")) {
            // The broker's business then; librdkafka refuses to be told.
            for key in
                ["partition.assignment.strategy", "session.timeout.ms", "heartbeat.interval.ms"]
            {
                config.remove(key);
            }
        }
        config
    }

    /// A consumer that reads what it is told to, and commits nothing.
    pub(crate) fn reader(&self, group: &str) -> ClientConfig {
        let mut config = self.client(
            &[
                ("fetch.queue.backoff.ms", "1"),
                ("fetch.wait.max.ms", "10"),
                ("socket.timeout.ms", "10000"),
            ],
            &[
                ("group.id", group),
                ("enable.auto.commit", "false"),
                ("enable.auto.offset.store", "false"),
                ("auto.offset.reset", "error"),
                ("enable.partition.eof", "true"),
                ("isolation.level", "read_committed"),
            ],
        );
        for key in ["group.instance.id", "group.protocol", "group.remote.assignor"] {
            config.remove(key);
        }
        config
    }

    /// The producer of hops.
    pub(crate) fn producer(&self) -> ClientConfig {
        self.client(
            &[
                // As Kafka's own producer: a record that waits for its retry does not mind, and a request for each few
                // records that fail costs more CPU than running a hundred others.
                ("linger.ms", "5"),
                ("queue.buffering.max.messages", "1000000"),
                ("batch.size", &self.batch.to_string()),
                // Whether a record is too large is for the topic to say.
                ("message.max.bytes", "1000000000"),
                ("message.timeout.ms", "60000"),
                // A topic that is not there is told of soon, and looked for again with the next try.
                ("topic.metadata.propagation.max.ms", "3000"),
            ],
            &[("acks", "all"), ("enable.idempotence", "true"), ("partitioner", "murmur2_random")],
        )
    }

    /// The producer of hops that are part of transactions.
    pub(crate) fn transactional_producer(&self, name: &str) -> ClientConfig {
        let mut config = self.producer();
        config.set("transactional.id", name);
        // One that is killed holds readers for as long.
        let limit = config.get("transaction.timeout.ms").unwrap_or("10000").to_owned();
        config.set("transaction.timeout.ms", limit.as_str());
        config.set("message.timeout.ms", limit);
        config
    }

    /// What tells this process's transactions from others': the member's own name, where it has one.
    pub(crate) fn transactional_id(&self, group: &str) -> String {
        let own = self.given.iter().find(|it| it.0 == "group.instance.id").map(|it| it.1.clone());
        let own = own.unwrap_or_else(|| {
            let random = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), group);
            format!("{random:016x}")
        });
        format!("{group}.redrive.{own}")
    }

    /// A client that manages topics.
    pub(crate) fn admin(&self) -> ClientConfig {
        self.client(&[], &[])
    }
}

/// A consumer that finds its way back to the brokers.
pub(super) fn connected<C: Tethered + ConsumerContext>(
    config: &ClientConfig,
    context: C,
) -> KafkaResult<BaseConsumer<C>> {
    let consumer: BaseConsumer<C> = config.create_with_context(context)?;
    lifeline::tie(consumer.client(), config);
    Ok(consumer)
}

/// What a client tells goes to the events. What makes it useless is kept.
pub(crate) struct Told {
    events: Events,
    lifeline: Lifeline,
    /// Why nothing will ever work: wrong credentials.
    refused: Arc<OnceLock<String>>,
    /// Why a client can go on no more.
    fatal: Arc<OnceLock<String>>,
}

impl Told {
    pub(crate) fn new(events: Events) -> Self {
        let lifeline = Lifeline::default();
        Self { events, lifeline, refused: Arc::default(), fatal: Arc::default() }
    }

    /// The same for a client that can be made anew, whatever happens to it.
    pub(crate) fn apart(&self) -> Self {
        Self { fatal: Arc::default(), ..self.clone() }
    }

    /// Why a client can go on no more, and the process has to start anew.
    pub(crate) fn fatal(&self) -> Option<&str> {
        self.fatal.get().map(String::as_str)
    }

    /// Why the brokers do not let us in.
    pub(crate) fn refused(&self) -> Option<&str> {
        self.refused.get().map(String::as_str)
    }
}

/// For another client.
impl Clone for Told {
    fn clone(&self) -> Self {
        Self {
            events: self.events.clone(),
            lifeline: Lifeline::default(),
            refused: Arc::clone(&self.refused),
            fatal: Arc::clone(&self.fatal),
        }
    }
}

impl Tethered for Told {
    fn lifeline(&self) -> &Lifeline {
        &self.lifeline
    }
}

impl ConsumerContext for Told {}

impl ClientContext for Told {
    fn error(&self, error: KafkaError, reason: &str) {
        use RDKafkaErrorCode as Code;
        // That a log was read to its end is told to whoever reads it.
        if error.rdkafka_error_code() == Some(Code::PartitionEOF) {
            return;
        }
        if matches!(error.rdkafka_error_code(), Some(Code::Authentication | Code::SSL)) {
            _ = self.refused.set(reason.to_owned());
        }
        if error.rdkafka_error_code() == Some(Code::Fatal) {
            _ = self.fatal.set(reason.to_owned());
        }
        if error.rdkafka_error_code() == Some(Code::AllBrokersDown) {
            self.lifeline.pull();
        }
        self.events.tell(&Event::Client { error: error.to_string(), reason: reason.to_owned() });
    }

    fn log(&self, level: RDKafkaLogLevel, fac: &str, message: &str) {
        // Properties are given to all kinds of clients, and what is wrong is told as an error, too.
        if fac == "CONFWARN" || fac == "FAIL" {
            return;
        }
        let level = match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error
            | RDKafkaLogLevel::Warning => Level::Warning,
            _ => Level::Debug,
        };
        self.events.journal().write_client(level, fac, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_no_larger_than_topics_take_unless_somebody_says_so() {
        let size = |it: &Properties| it.producer().get("batch.size").map(str::to_owned);
        let properties = Properties::new(&[]);
        assert_eq!(size(&properties).as_deref(), Some("1000000"));
        assert!(properties.with_batches_of(1_048_588).is_none(), "they fit already");
        let smaller = properties.with_batches_of(20_000).unwrap();
        assert_eq!(size(&smaller).as_deref(), Some("20000"));
        let given = Properties::new(&[("batch.size".to_owned(), "500000".to_owned())]);
        assert!(given.with_batches_of(20_000).is_none());
        assert_eq!(size(&given).as_deref(), Some("500000"));
    }
}
