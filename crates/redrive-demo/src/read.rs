//! The topics, read whole by a consumer of its own: what is in them, whatever Redrive says.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::history::{Copy, History, Letter, Place, Produced};
use crate::run::DemoError;
use crate::site::Names;

/// How long the broker may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// How long reading may take without a record.
const SILENCE: Duration = Duration::from_secs(20);

/// Reads all topics into the history.
pub(crate) fn read(bootstrap: &str, names: &Names, history: &mut History) -> Result<(), DemoError> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("group.id", "redrive-demo-reader");
    config.set("enable.auto.commit", "false");
    config.set("fetch.wait.max.ms", "10").set("auto.offset.reset", "error");
    let consumer: BaseConsumer = config.create()?;
    let topics = names.read();
    // Where each partition ends. Nobody writes any more, and there are no gaps.
    let mut open: BTreeMap<(usize, i32), i64> = BTreeMap::new();
    let mut list = TopicPartitionList::new();
    for (stop, topic) in topics.iter().enumerate() {
        let metadata = consumer.fetch_metadata(Some(topic), ANSWER)?;
        for partition in metadata.topics().iter().flat_map(|it| it.partitions()) {
            let (start, end) = consumer.fetch_watermarks(topic, partition.id(), ANSWER)?;
            if start > 0 {
                let topic = format!("{topic}/{}", partition.id());
                return Err(DemoError::Dropped { topic, records: start });
            }
            if end > 0 {
                open.insert((stop, partition.id()), end);
                list.add_partition_offset(topic, partition.id(), Offset::Offset(start))?;
            }
        }
    }
    consumer.assign(&list)?;
    let mut heard = Instant::now();
    while !open.is_empty() {
        match consumer.poll(Duration::from_millis(50)) {
            None if heard.elapsed() > SILENCE => {
                let left =
                    open.keys().filter_map(|it| Some(format!("{}/{}", topics.get(it.0)?, it.1)));
                return Err(DemoError::Unread(left.collect::<Vec<_>>().join(", ")));
            }
            None => {}
            Some(Err(error)) => return Err(error.into()),
            Some(Ok(message)) => {
                heard = Instant::now();
                let stop = topics.iter().position(|it| *it == message.topic()).unwrap_or_default();
                take(&message, stop, topics.len() - 1, history);
                let part = (stop, message.partition());
                if open.get(&part).is_some_and(|end| message.offset() + 1 >= *end) {
                    open.remove(&part);
                }
            }
        }
    }
    Ok(())
}

/// Asks what Redrive's group has committed: below that, nothing would ever be read again.
pub(crate) fn committed(
    bootstrap: &str,
    names: &Names,
    partitions: i32,
    history: &mut History,
) -> Result<(), DemoError> {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", bootstrap).set("group.id", &names.group);
    let consumer: BaseConsumer = config.create()?;
    let mut topics = names.read();
    // Nobody reads the dead letters.
    topics.pop();
    let mut list = TopicPartitionList::new();
    for topic in &topics {
        (0..partitions).for_each(|it| _ = list.add_partition(topic, it));
    }
    let list = consumer.committed_offsets(list, ANSWER)?;
    for element in list.elements() {
        let stop = topics.iter().position(|it| *it == element.topic());
        if let (Some(stop), Offset::Offset(offset)) = (stop, element.offset()) {
            history.committed.insert((stop, element.partition()), offset);
        }
    }
    Ok(())
}

fn take(message: &BorrowedMessage<'_>, stop: usize, last: usize, history: &mut History) {
    let bytes = |it: Option<&[u8]>| Bytes::copy_from_slice(it.unwrap_or_default());
    let (key, value) = (bytes(message.key()), bytes(message.payload()));
    let at = message.timestamp().to_millis().unwrap_or(0);
    let place = Place { partition: message.partition(), offset: message.offset() };
    if stop == 0 {
        history.produced.push(Produced { place, key, value, at });
        return;
    }
    let origin = || {
        Some(Place {
            partition: number(message, "redrive-origin-partition")?.try_into().ok()?,
            offset: number(message, "redrive-origin-offset")?,
        })
    };
    let overall = number(message, "redrive-overall-attempts").and_then(|it| it.try_into().ok());
    match (origin(), overall, number(message, "redrive-due")) {
        (Some(origin), Some(overall), Some(due)) if stop < last => {
            let status = number(message, "redrive-status").and_then(|it| it.try_into().ok());
            let topic = stop - 1;
            history.copies.push(Copy { origin, topic, place, overall, due, status, at });
        }
        (Some(origin), ..) if stop == last => {
            let reason = header(message, "redrive-reason").unwrap_or("unknown").to_owned();
            history.letters.push(Letter { origin, key, value, reason, at });
        }
        _ => history.strange += 1,
    }
}

fn header<'a>(message: &'a BorrowedMessage<'_>, name: &str) -> Option<&'a str> {
    let headers = message.headers()?;
    let found = headers.iter().filter(|it| it.key == name).last()?;
    std::str::from_utf8(found.value?).ok()
}

fn number(message: &BorrowedMessage<'_>, name: &str) -> Option<i64> {
    header(message, name)?.parse().ok()
}
