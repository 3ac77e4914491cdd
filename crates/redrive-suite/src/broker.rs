//! The broker that is there, looked at without Redrive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rdkafka::admin::{
    AdminClient, AdminOptions, AlterConfig, NewPartitions, NewTopic, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use redrive::embedded::Broker as Embedded;

use crate::raw;

/// How long the broker may take to answer.
const ANSWER: Duration = Duration::from_secs(20);

/// A broker.
#[derive(Clone, Debug)]
pub struct Broker {
    /// Where it is.
    pub address: String,
    /// The broker itself, where it is within this process. It ends with the last that knows it.
    pub embedded: Option<Arc<Embedded>>,
}

/// A record as it stands in a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where.
    pub partition: i32,
    /// Where.
    pub offset: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its timestamp.
    pub timestamp: Option<i64>,
    /// Its headers in their order. A name is bytes, as Kafka has it.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// A record that is to be produced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Where to.
    pub partition: i32,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
    /// Its timestamp, if not now.
    pub timestamp: Option<i64>,
    /// Its headers in their order. A name is bytes, as Kafka has it.
    pub headers: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

impl Sent {
    /// A record of partition 0 with this value.
    pub fn value(value: impl AsRef<[u8]>) -> Self {
        Self { value: Some(value.as_ref().to_vec()), ..Self::default() }
    }

    /// With a header more.
    #[must_use]
    pub fn with_header(mut self, name: impl AsRef<[u8]>, value: Option<&[u8]>) -> Self {
        self.headers.push((name.as_ref().to_vec(), value.map(<[u8]>::to_vec)));
        self
    }
}

impl Found {
    /// The last header of this name, as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().rfind(|it| it.0 == name.as_bytes())?;
        std::str::from_utf8(found.1.as_deref()?).ok()
    }
}

impl Broker {
    /// The broker that the environment names.
    ///
    /// # Errors
    ///
    /// It names none: tests are never skipped because of that.
    pub fn from_env() -> Result<Self> {
        let address = std::env::var("KAFKA");
        let address = address
            .context("no broker: run this by `scripts/kafka with -- COMMAND`, or set KAFKA")?;
        Ok(Self::at(address))
    }

    /// One that listens there.
    pub fn at(address: impl Into<String>) -> Self {
        Self { address: address.into(), embedded: None }
    }

    /// One within this process.
    ///
    /// # Errors
    ///
    /// It does not start.
    pub fn embedded() -> Result<Self> {
        let broker = Arc::new(Embedded::start()?);
        Ok(Self { address: broker.bootstrap().to_owned(), embedded: Some(broker) })
    }

    /// A client's settings.
    pub fn client(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", &self.address);
        config
    }

    fn consumer(&self) -> Result<BaseConsumer> {
        let mut config = self.client();
        config.set("group.id", "redrive-suite").set("enable.auto.commit", "false");
        config.set("enable.partition.eof", "true").set("fetch.wait.max.ms", "10");
        Ok(config.create()?)
    }

    /// Makes topics, with settings, and waits until the broker knows them. An embedded one has no settings.
    ///
    /// # Errors
    ///
    /// The broker does not make them.
    pub async fn make_topics(
        &self,
        topics: &[(&str, i32)],
        settings: &[(&str, &str)],
    ) -> Result<()> {
        if let Some(broker) = &self.embedded {
            for (topic, partitions) in topics {
                broker.make_topic(topic, *partitions)?;
            }
            return Ok(());
        }
        let admin = self.admin()?;
        let made: Vec<_> = topics
            .iter()
            .map(|(name, partitions)| {
                let topic = NewTopic::new(name, *partitions, TopicReplication::Fixed(1));
                settings.iter().fold(topic, |topic, (key, value)| topic.set(key, value))
            })
            .collect();
        let options = AdminOptions::new().operation_timeout(Some(ANSWER));
        for result in admin.create_topics(&made, &options).await? {
            result.map_err(|(topic, code)| anyhow::anyhow!("{topic}: {code}"))?;
        }
        let until = Instant::now() + ANSWER;
        for (topic, _) in topics {
            while !self.has(&admin, topic)? {
                if Instant::now() > until {
                    bail!("{topic} was made, but is not there");
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(())
    }

    fn has(&self, admin: &AdminClient<DefaultClientContext>, topic: &str) -> Result<bool> {
        let metadata = admin.inner().fetch_metadata(Some(topic), ANSWER)?;
        Ok(metadata.topics().iter().any(|it| it.error().is_none() && !it.partitions().is_empty()))
    }

    /// A producer with `acks=all`.
    ///
    /// # Errors
    ///
    /// The client cannot be made.
    pub fn producer(&self) -> Result<ThreadedProducer<DefaultProducerContext>> {
        let mut config = self.client();
        config.set("enable.idempotence", "true").set("linger.ms", "5");
        config.set("queue.buffering.max.messages", "1000000");
        Ok(config.create()?)
    }

    /// Produces values with their keys, each to a partition by its place.
    ///
    /// # Errors
    ///
    /// They are not acknowledged in time.
    pub fn produce(&self, topic: &str, partitions: i32, values: &[(String, String)]) -> Result<()> {
        Self::produce_by(&self.producer()?, topic, partitions, values)
    }

    /// The same by a producer that is there already: a new one takes half a second to get going.
    ///
    /// # Errors
    ///
    /// They are not acknowledged in time.
    pub fn produce_by(
        producer: &ThreadedProducer<DefaultProducerContext>,
        topic: &str,
        partitions: i32,
        values: &[(String, String)],
    ) -> Result<()> {
        let partition = |index: i32| index % partitions;
        let values = (0i32..).zip(values);
        Self::produce_to(
            producer,
            topic,
            values.map(|(index, it)| (partition(index), &it.0, &it.1)),
        )
    }

    /// Produces values with their keys, each to a partition of its own, and waits until they are there.
    ///
    /// # Errors
    ///
    /// They are not acknowledged in time.
    pub fn produce_to<'a>(
        producer: &ThreadedProducer<DefaultProducerContext>,
        topic: &str,
        values: impl IntoIterator<Item = (i32, &'a String, &'a String)>,
    ) -> Result<()> {
        for (partition, key, value) in values {
            let record = BaseRecord::to(topic).key(key).payload(value).partition(partition);
            let mut sent = producer.send(record);
            while let Err((KafkaError::MessageProduction(_), record)) = sent {
                std::thread::sleep(Duration::from_millis(5));
                sent = producer.send(record);
            }
        }
        producer.flush(Duration::from_secs(60))?;
        Ok(())
    }

    /// Produces records as they are, and waits until they are there.
    ///
    /// # Errors
    ///
    /// They are not acknowledged in time.
    pub fn send(&self, topic: &str, records: &[Sent]) -> Result<()> {
        let producer = self.producer()?;
        records.iter().try_for_each(|it| raw::send(&producer, topic, it))?;
        producer.flush(Duration::from_secs(60))?;
        Ok(())
    }

    fn admin(&self) -> Result<AdminClient<DefaultClientContext>> {
        Ok(self.client().create()?)
    }

    /// Deletes a topic.
    ///
    /// # Errors
    ///
    /// The broker does not delete it.
    pub async fn delete_topic(&self, topic: &str) -> Result<()> {
        let options = AdminOptions::new().operation_timeout(Some(ANSWER));
        for result in self.admin()?.delete_topics(&[topic], &options).await? {
            result.map_err(|(topic, code)| anyhow::anyhow!("{topic}: {code}"))?;
        }
        Ok(())
    }

    /// Gives a topic more partitions, and waits until the broker knows them.
    ///
    /// # Errors
    ///
    /// The broker does not make them.
    pub async fn grow(&self, topic: &str, partitions: usize) -> Result<()> {
        let admin = self.admin()?;
        let more = NewPartitions::new(topic, partitions);
        let options = AdminOptions::new().operation_timeout(Some(ANSWER));
        for result in admin.create_partitions([&more], &options).await? {
            result.map_err(|(topic, code)| anyhow::anyhow!("{topic}: {code}"))?;
        }
        let until = Instant::now() + ANSWER;
        while self.bounds(topic)?.len() < partitions {
            if Instant::now() > until {
                bail!("{topic} did not grow");
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// The names of all topics.
    ///
    /// # Errors
    ///
    /// The broker does not answer.
    pub fn topics(&self) -> Result<Vec<String>> {
        let metadata = self.consumer()?.fetch_metadata(None, ANSWER)?;
        Ok(metadata.topics().iter().map(|it| it.name().to_owned()).collect())
    }

    /// Gives a topic these settings instead of those that it has.
    ///
    /// # Errors
    ///
    /// The broker does not take them.
    pub async fn set(&self, topic: &str, settings: &[(&str, &str)]) -> Result<()> {
        let change = AlterConfig::new(ResourceSpecifier::Topic(topic));
        let change = settings.iter().fold(change, |change, (key, value)| change.set(key, value));
        let admin = self.admin()?;
        for result in admin.alter_configs([&change], &AdminOptions::new()).await? {
            result.map_err(|(_, code)| anyhow::anyhow!("{topic}: {code}"))?;
        }
        // The broker learns of it a moment after the controller has taken it.
        let asked = [ResourceSpecifier::Topic(topic)];
        loop {
            let described = admin.describe_configs(&asked, &AdminOptions::new()).await?;
            let described = described.into_iter().flatten().next();
            let has = |key: &str, value: &str| {
                let entry = described.as_ref().and_then(|it| it.get(key));
                entry.and_then(|it| it.value.as_deref()) == Some(value)
            };
            if settings.iter().all(|(key, value)| has(key, value)) {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Deletes the records of a partition below an offset.
    ///
    /// # Errors
    ///
    /// The broker does not delete them.
    pub async fn delete_records(&self, topic: &str, partition: i32, below: i64) -> Result<()> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(below))?;
        self.admin()?.delete_records(&list, &AdminOptions::new()).await?;
        Ok(())
    }

    /// The first offset of each partition of a topic, and the one behind the last.
    ///
    /// # Errors
    ///
    /// The broker does not answer.
    pub fn bounds(&self, topic: &str) -> Result<Vec<(i64, i64)>> {
        let consumer = self.consumer()?;
        let metadata = consumer.fetch_metadata(Some(topic), ANSWER)?;
        let partitions = metadata.topics().iter().flat_map(|it| it.partitions());
        partitions.map(|it| marks(&consumer, topic, it.id())).collect()
    }

    /// Everything that is in a topic now.
    ///
    /// # Errors
    ///
    /// It cannot be read to its end.
    pub fn read(&self, topic: &str) -> Result<Vec<Found>> {
        let consumer = self.consumer()?;
        let metadata = consumer.fetch_metadata(Some(topic), ANSWER)?;
        let mut open: BTreeMap<i32, i64> = BTreeMap::new();
        let mut list = TopicPartitionList::new();
        for partition in metadata.topics().iter().flat_map(|it| it.partitions()) {
            let (start, end) = marks(&consumer, topic, partition.id())?;
            if start < end {
                open.insert(partition.id(), end);
                list.add_partition_offset(topic, partition.id(), Offset::Offset(start))?;
            }
        }
        consumer.assign(&list)?;
        let mut found = Vec::new();
        let until = Instant::now() + Duration::from_secs(60);
        let mut trouble = None;
        while !open.is_empty() {
            if Instant::now() > until {
                bail!("{topic} could not be read to its end: {trouble:?}");
            }
            match consumer.poll(Duration::from_millis(100)) {
                None => {}
                Some(Err(KafkaError::PartitionEOF(partition))) => _ = open.remove(&partition),
                // The client gets over most of them by itself.
                Some(Err(error)) => trouble = Some(error),
                Some(Ok(message)) => found.push(Found {
                    partition: message.partition(),
                    offset: message.offset(),
                    key: message.key().map(<[u8]>::to_vec),
                    value: message.payload().map(<[u8]>::to_vec),
                    timestamp: message.timestamp().to_millis(),
                    headers: raw::headers(&message),
                }),
            }
        }
        Ok(found)
    }

    /// What a group committed for a topic, by partition, with the metadata.
    ///
    /// # Errors
    ///
    /// The broker does not answer.
    pub fn committed(
        &self,
        group: &str,
        topic: &str,
        partitions: i32,
    ) -> Result<Vec<(Option<i64>, String)>> {
        let mut config = self.client();
        config.set("group.id", group);
        let consumer: BaseConsumer = config.create()?;
        let mut list = TopicPartitionList::new();
        for partition in 0..partitions {
            list.add_partition(topic, partition);
        }
        let list = consumer.committed_offsets(list, ANSWER)?;
        let elements = list.elements();
        let offsets = elements.iter().map(|it| {
            let offset = match it.offset() {
                Offset::Offset(offset) => Some(offset),
                _ => None,
            };
            (offset, it.metadata().to_owned())
        });
        Ok(offsets.collect())
    }
}

/// The first offset of a partition and the one behind its last. It may take a moment until there is somebody to ask: a new partition
/// is in the metadata before its leader knows of it, and a broker that stood still leads nothing until it is taken in again.
fn marks(consumer: &BaseConsumer, topic: &str, partition: i32) -> Result<(i64, i64)> {
    let until = Instant::now() + ANSWER;
    loop {
        match consumer.fetch_watermarks(topic, partition, ANSWER) {
            Ok(marks) => return Ok(marks),
            Err(error) if Instant::now() > until => {
                return Err(error).with_context(|| format!("{topic}/{partition}"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}
