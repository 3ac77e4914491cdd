//! Topics of the benchmark: made, filled, deleted.

use std::time::Duration;

use anyhow::Result;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;

use crate::task;
use crate::turn::PARTITIONS;

/// How long the broker may take to answer.
const ANSWER: Duration = Duration::from_secs(60);

/// What a topic is filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Filling {
    pub(crate) records: u64,
    /// Bytes of each value.
    pub(crate) size: usize,
    /// How many keys there are. All records of a key are in one partition.
    pub(crate) keys: u64,
}

impl Filling {
    /// Records of so many bytes with keys that hardly ever repeat.
    pub(crate) fn new(records: u64, size: usize) -> Self {
        Self { records, size, keys: 1_000_000 }
    }

    /// What its values take.
    pub(crate) fn bytes(&self) -> u64 {
        self.records * self.size as u64
    }
}

fn client(kafka: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka);
    config
}

fn admin<T>(
    kafka: &str,
    work: impl AsyncFnOnce(AdminClient<DefaultClientContext>) -> Result<T>,
) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work(client(kafka).create()?))
}

/// Makes topics, and waits until the broker knows them.
pub(crate) fn make(kafka: &str, topics: &[&str]) -> Result<()> {
    admin(kafka, async |admin| {
        let new = topics.iter().map(|it| NewTopic::new(it, PARTITIONS, TopicReplication::Fixed(1)));
        let new: Vec<_> = new.collect();
        for made in admin.create_topics(&new, &AdminOptions::new()).await? {
            made.map_err(|(topic, code)| anyhow::anyhow!("{topic} cannot be made: {code}"))?;
        }
        for topic in topics {
            loop {
                let metadata = admin.inner().fetch_metadata(Some(topic), ANSWER)?;
                let mut found = metadata.topics().iter().filter(|it| it.error().is_none());
                if found.any(|it| !it.partitions().is_empty()) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        Ok(())
    })
}

/// Deletes topics, where they are there.
pub(crate) fn delete(kafka: &str, topics: &[&str]) -> Result<()> {
    admin(kafka, async |admin| {
        for deleted in admin.delete_topics(topics, &AdminOptions::new()).await? {
            match deleted {
                Ok(_) | Err((_, RDKafkaErrorCode::UnknownTopicOrPartition)) => {}
                Err((topic, code)) => anyhow::bail!("{topic} cannot be deleted: {code}"),
            }
        }
        Ok(())
    })
}

/// Makes a topic and fills it, telling how far it is.
pub(crate) fn fill(
    kafka: &str,
    topic: &str,
    filling: Filling,
    progress: impl Fn(u64),
) -> Result<()> {
    make(kafka, &[topic])?;
    let mut config = client(kafka);
    config.set("linger.ms", "20").set("batch.size", "500000").set("acks", "1");
    config.set("queue.buffering.max.messages", "200000");
    let producer: ThreadedProducer<DefaultProducerContext> = config.create()?;
    let mut value = Vec::new();
    for number in 0..filling.records {
        let key = number % filling.keys;
        let partition = i32::try_from(key % PARTITIONS.unsigned_abs() as u64)?;
        let key = key.to_string();
        task::value(number, filling.size, &mut value);
        let record = BaseRecord::to(topic).partition(partition).key(&key).payload(&value);
        let mut sent = producer.send(record);
        while let Err((_, record)) = sent {
            std::thread::sleep(Duration::from_millis(1));
            sent = producer.send(record);
        }
        if number % 10_000 == 0 {
            progress(number);
        }
    }
    producer.flush(Duration::from_secs(120))?;
    let filled = count(kafka, topic)?;
    anyhow::ensure!(
        filled == filling.records,
        "{topic} has {filled} records instead of {}",
        filling.records
    );
    Ok(())
}

/// How many records a topic has.
pub(crate) fn count(kafka: &str, topic: &str) -> Result<u64> {
    let consumer: BaseConsumer = client(kafka).create()?;
    let mut count = 0;
    for partition in 0..PARTITIONS {
        let (first, end) = consumer.fetch_watermarks(topic, partition, ANSWER)?;
        count += u64::try_from(end - first)?;
    }
    Ok(count)
}

/// How many offsets a group has committed, and the bytes of the largest with its metadata: as the broker wrote them down, each time.
pub(crate) fn commits(kafka: &str, group: &str) -> Result<(u64, usize)> {
    const TOPIC: &str = "__consumer_offsets";
    let mut config = client(kafka);
    // A group that is never joined.
    config.set("group.id", "bench").set("enable.partition.eof", "true");
    config.set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create()?;
    let metadata = consumer.fetch_metadata(Some(TOPIC), ANSWER)?;
    let partitions = metadata.topics().first().map_or(&[][..], |it| it.partitions());
    let mut list = rdkafka::TopicPartitionList::new();
    for partition in partitions {
        list.add_partition_offset(TOPIC, partition.id(), rdkafka::Offset::Beginning)?;
    }
    consumer.assign(&list)?;
    let (mut count, mut largest, mut unread) = (0, 0, partitions.len());
    while unread > 0 {
        match consumer.poll(ANSWER) {
            Some(Ok(record)) => {
                let key = record.key().unwrap_or_default();
                if let Some(value) =
                    record.payload().filter(|_| committer(key) == Some(group.as_bytes()))
                {
                    count += 1;
                    largest = largest.max(key.len() + value.len());
                }
            }
            Some(Err(KafkaError::PartitionEOF(_))) => unread -= 1,
            Some(Err(error)) => return Err(error.into()),
            None => anyhow::bail!("{TOPIC} cannot be read to its end"),
        }
    }
    Ok((count, largest))
}

/// Whose offset it is, by the key that the broker gives it; none for what else is there.
fn committer(key: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| key.get(at..)?.first_chunk::<2>().map(|it| u16::from_be_bytes(*it));
    let (version, length) = (number(0)?, usize::from(number(2)?));
    key.get(4..4 + length).filter(|_| version <= 1)
}

/// How many characters of metadata a group committed for a partition of a topic, at the most.
pub(crate) fn longest_metadata(kafka: &str, group: &str, topic: &str) -> Result<usize> {
    let mut config = client(kafka);
    config.set("group.id", group);
    let consumer: BaseConsumer = config.create()?;
    let mut list = rdkafka::TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition(topic, partition);
    }
    let list = consumer.committed_offsets(list, ANSWER)?;
    let lengths = list.elements().into_iter().map(|it| it.metadata().chars().count()).max();
    Ok(lengths.unwrap_or(0))
}
