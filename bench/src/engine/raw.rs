//! The raw client: what there is to gain and to lose.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rdkafka::bindings as sys;
use rdkafka::client::ClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::{BorrowedMessage, DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, ProducerContext, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::measure::{Sample, Tally, micros};
use crate::task;
use crate::turn::{PARTITIONS, Turn};

/// A consumer of the whole topic, set up as Redrive's.
fn consumer(kafka: &str, turn: &Turn) -> Result<BaseConsumer> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka).set("group.id", turn.group());
    config.set("enable.auto.commit", "false").set("enable.auto.offset.store", "false");
    config.set("fetch.queue.backoff.ms", "1").set("fetch.wait.max.ms", "100");
    config.set("queued.max.messages.kbytes", "4096").set("queued.min.messages", "20000");
    let consumer: BaseConsumer = config.create()?;
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset(&turn.topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&list)?;
    Ok(consumer)
}

/// What counts, and says when it is over.
fn followed(turn: &Turn) -> Arc<Tally> {
    let tally = Arc::new(Tally::new(turn.until(), turn.numbered()));
    tally.follow(|| {});
    tally
}

/// `BaseConsumer::poll`, record by record. Where handlers look at a record's number, it does so, too; but in a loop nothing can hang, so that it
/// passes by the record whose run would.
pub(crate) fn poll(kafka: &str, turn: &Turn) -> Result<Sample> {
    let consumer = consumer(kafka, turn)?;
    let tally = followed(turn);
    let mut bytes = 0;
    while !tally.is_over() {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else {
            continue;
        };
        tally.begin();
        let message = message?;
        if turn.idle {
            bytes += message.payload().map_or(0, <[u8]>::len);
            tally.end(1);
            continue;
        }
        let number = task::number(message.payload()).context("a record without a number")?;
        tally.first();
        if turn.task.stuck != Some(number) {
            tally.end_of(number);
        }
    }
    std::hint::black_box(bytes);
    tally.sample()
}

/// Reading in batches, and nothing else.
#[expect(unsafe_code, reason = "the rdkafka crate does not read in batches")]
pub(crate) fn batch(kafka: &str, turn: &Turn) -> Result<Sample> {
    const BATCH: usize = 1000;
    let consumer = consumer(kafka, turn)?;
    let tally = followed(turn);
    let mut bytes = 0;
    let mut messages = [std::ptr::null_mut::<sys::rd_kafka_message_t>(); BATCH];
    // SAFETY: the queue belongs to the consumer, which outlives it; each message is looked at and destroyed once.
    unsafe {
        let queue = sys::rd_kafka_queue_get_consumer(consumer.client().native_ptr());
        while !tally.is_over() {
            let count = sys::rd_kafka_consume_batch_queue(queue, 10, messages.as_mut_ptr(), BATCH);
            let mut read = 0;
            if count > 0 {
                tally.begin();
            }
            for message in &messages[..usize::try_from(count)?] {
                if (**message).err == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                    bytes += (**message).len;
                    read += 1;
                }
                sys::rd_kafka_message_destroy(*message);
            }
            tally.end(read);
        }
        sys::rd_kafka_queue_destroy(queue);
    }
    std::hint::black_box(bytes);
    tally.sample()
}

/// Counts what is acknowledged.
struct Acks {
    tally: Arc<Tally>,
}

impl ClientContext for Acks {}

impl ProducerContext for Acks {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_ok() {
            self.tally.end(1);
        }
    }
}

/// Each record is produced again, with the headers that Redrive writes for a retry. It has ended when it is acknowledged.
pub(crate) fn pipe(kafka: &str, turn: &Turn) -> Result<Sample> {
    let consumer = consumer(kafka, turn)?;
    let tally = followed(turn);
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka).set("acks", "all").set("enable.idempotence", "true");
    // It lingers as Redrive's producer does. What is in the queue in the end has cost something, and does not count: so there is not to be much of it.
    config.set("linger.ms", "5").set("queue.buffering.max.messages", "20000");
    let producer: ThreadedProducer<_> =
        config.create_with_context(Acks { tally: Arc::clone(&tally) })?;
    let (group, retry) = (turn.group(), turn.retry());
    let delay = i64::try_from(turn.task.delay)?;
    while !tally.is_over() {
        let Some(message) = consumer.poll(Duration::from_millis(100)) else {
            continue;
        };
        tally.begin();
        let message = message?;
        let mut record = BaseRecord::to(&retry)
            .partition(message.partition())
            .headers(headers(&message, &group, delay));
        record.key = message.key();
        record.payload = message.payload();
        let mut result = producer.send(record);
        while let Err((_, record)) = result {
            std::thread::sleep(Duration::from_millis(1));
            result = producer.send(record);
        }
    }
    tally.sample()
}

/// The headers of a first retry, as Redrive writes them.
fn headers(message: &BorrowedMessage<'_>, group: &str, delay: i64) -> OwnedHeaders {
    let now = micros() / 1000;
    let texts = [
        ("redrive-version", "1"),
        ("redrive-group", group),
        ("redrive-origin-topic", message.topic()),
        ("redrive-overall-attempts", "1"),
        ("redrive-policy", "bench"),
        ("redrive-policy-attempts", "1"),
        ("redrive-tier", "0"),
        ("redrive-tier-attempts", "1"),
        ("redrive-hop", "1"),
        ("redrive-error", "NotYet"),
    ];
    let numbers = [
        ("redrive-origin-partition", message.partition().into()),
        ("redrive-origin-offset", message.offset()),
        ("redrive-origin-timestamp", message.timestamp().to_millis().unwrap_or(0)),
        ("redrive-due", now + delay),
        ("redrive-first-failed-at", now),
        ("redrive-failed-at", now),
    ];
    let headers = OwnedHeaders::new_with_capacity(texts.len() + numbers.len());
    let headers = texts
        .iter()
        .fold(headers, |headers, (key, value)| headers.insert(Header { key, value: Some(*value) }));
    numbers.iter().fold(headers, |headers, (key, value)| {
        headers.insert(Header { key, value: Some(&value.to_string()) })
    })
}
