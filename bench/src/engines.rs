//! The engines: each reads so many records of a topic.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use parking_lot::Mutex;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::bindings as sys;
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message;
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use redrive::config::{Config, Entity, FlowConfig};
use redrive::{Consumer, Context as RunContext, Flow, Record, Strategy, Tier};

use crate::measure::{Measured, Watch, now};

const PARTITIONS: i32 = 3;

/// What an engine is to do.
pub(crate) struct Work {
    pub(crate) kafka: String,
    pub(crate) topic: String,
    pub(crate) records: u64,
    pub(crate) concurrency: u32,
}

fn client(kafka: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka);
    config
}

/// Makes a topic and fills it.
pub(crate) fn fill(
    kafka: &str,
    topic: &str,
    records: u64,
    size: usize,
    progress: impl Fn(u64),
) -> Result<()> {
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let admin: AdminClient<DefaultClientContext> = client(kafka).create()?;
        let state = format!("{topic}.group.redrive");
        let (letters, retry) = (format!("{topic}.dlt"), format!("{topic}.retry"));
        let topics =
            [(topic, PARTITIONS), (&letters, PARTITIONS), (&retry, PARTITIONS), (&state, 1)]
                .map(|it| NewTopic::new(it.0, it.1, TopicReplication::Fixed(1)));
        for made in admin.create_topics(&topics, &AdminOptions::new()).await? {
            made.map_err(|(topic, code)| anyhow::anyhow!("{topic}: {code}"))?;
        }
        anyhow::Ok(())
    })?;
    let mut config = client(kafka);
    config.set("linger.ms", "20").set("queue.buffering.max.messages", "1000000").set("acks", "1");
    let producer: ThreadedProducer<DefaultProducerContext> = config.create()?;
    let payload = vec![b'x'; size];
    for index in 0..records {
        let partition = i32::try_from(index % 3)?;
        let key = (index % 1000).to_string();
        let mut sent =
            producer.send(BaseRecord::to(topic).partition(partition).key(&key).payload(&payload));
        while let Err((_, record)) = sent {
            std::thread::sleep(Duration::from_millis(1));
            sent = producer.send(record);
        }
        if index % 10_000 == 0 {
            progress(index);
        }
    }
    producer.flush(Duration::from_secs(60))?;
    Ok(())
}

/// A consumer of the whole topic, set up as Redrive's.
fn consumer(work: &Work) -> Result<BaseConsumer> {
    let mut config = client(&work.kafka);
    config.set("group.id", format!("raw-{}", now())).set("enable.auto.commit", "false");
    config.set("enable.auto.offset.store", "false").set("fetch.queue.backoff.ms", "1");
    config.set("fetch.wait.max.ms", "100").set("queued.max.messages.kbytes", "16384");
    Ok(config.create()?)
}

fn assign(consumer: &BaseConsumer, work: &Work) -> Result<()> {
    let mut list = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        list.add_partition_offset(&work.topic, partition, Offset::Beginning)?;
    }
    Ok(consumer.assign(&list)?)
}

/// `BaseConsumer::poll`, record by record.
pub(crate) fn poll(work: &Work) -> Result<Measured> {
    let consumer = consumer(work)?;
    assign(&consumer, work)?;
    let mut watch = None;
    let (mut read, mut bytes) = (0, 0);
    while read < work.records {
        if let Some(message) = consumer.poll(Duration::from_millis(100)) {
            bytes += message?.payload().map_or(0, <[u8]>::len);
            watch.get_or_insert_with(Watch::start);
            read += 1;
        }
    }
    std::hint::black_box(bytes);
    Ok(watch.context("nothing was read")?.stop(read))
}

/// Reading in batches, and nothing else.
#[expect(unsafe_code, reason = "the rdkafka crate does not read in batches")]
pub(crate) fn batch(work: &Work) -> Result<Measured> {
    const BATCH: usize = 1000;
    let consumer = consumer(work)?;
    assign(&consumer, work)?;
    let mut watch = None;
    let (mut read, mut bytes) = (0, 0);
    let mut messages = [std::ptr::null_mut::<sys::rd_kafka_message_t>(); BATCH];
    // SAFETY: the queue belongs to the consumer, which outlives it; each message is looked at and destroyed once.
    unsafe {
        let queue = sys::rd_kafka_queue_get_consumer(consumer.client().native_ptr());
        while read < work.records {
            let count = sys::rd_kafka_consume_batch_queue(queue, 10, messages.as_mut_ptr(), BATCH);
            for message in &messages[..usize::try_from(count)?] {
                if (**message).err == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                    bytes += (**message).len;
                    read += 1;
                }
                sys::rd_kafka_message_destroy(*message);
            }
            if read > 0 {
                watch.get_or_insert_with(Watch::start);
            }
        }
        sys::rd_kafka_queue_destroy(queue);
    }
    std::hint::black_box(bytes);
    Ok(watch.context("nothing was read")?.stop(read))
}

/// Redrive, with a handler that does nothing; with order per key or without.
pub(crate) fn redrive(work: &Work, is_ordered: bool) -> Result<Measured> {
    let retry = Strategy::Single(Tier::endless(format!("{}.retry", work.topic)));
    let mut flow = FlowConfig::new(Flow::new(work.topic.as_str()).with_strategy(retry))
        .with_concurrency(work.concurrency);
    if is_ordered {
        flow = flow.with_order_by(Entity::Key);
    }
    let config = Config::new(format!("{}-{}", work.topic, now()))
        .with_kafka("bootstrap.servers", &work.kafka)
        .with_flow(flow);
    let config = Config { state_topic: Some(format!("{}.group.redrive", work.topic)), ..config };
    let count = Arc::new(AtomicU64::new(0));
    let watch: Arc<Mutex<Option<Watch>>> = Arc::default();
    let measured: Arc<Mutex<Option<Measured>>> = Arc::default();
    let records = work.records;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let (watch, measured_in) = (Arc::clone(&watch), Arc::clone(&measured));
        let consumer = Consumer::new(config);
        let handle = consumer.handle();
        let consumer =
            consumer.with_handler(work.topic.as_str(), move |record: Record, _: RunContext| {
                std::hint::black_box(record.value().map_or(0, <[u8]>::len));
                let done = count.fetch_add(1, Ordering::Relaxed) + 1;
                if done == 1 {
                    *watch.lock() = Some(Watch::start());
                }
                if done == records {
                    let watch = watch.lock();
                    let mut measured = measured_in.lock();
                    *measured = watch.as_ref().map(|it| it.stop(records));
                    handle.stop();
                }
                async {}
            });
        consumer.run().await
    })?;
    let measured = *measured.lock();
    measured.context("nothing was read")
}
