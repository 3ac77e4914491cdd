//! Reading again what was not kept: a second consumer that only reads.
//!
//! Seeking the group's own consumer would throw away what it has read ahead.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::types::RDKafkaErrorCode;

use super::client::{self, Properties, Told};
use super::lifeline::Tethered;
use super::message::Message;
use super::offsets;
use super::queue::Queue;
use crate::engine::inbox::{Inbox, Letter};

/// Ranges that are closer together than this are read in one go.
const NEAR: i64 = 500;
/// How long a range may take.
const LIMIT: Duration = Duration::from_secs(10);

/// What is to be read again.
pub(crate) struct Request {
    pub(crate) lane: u64,
    pub(crate) ticket: u64,
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    pub(crate) ranges: Vec<Range<i64>>,
    pub(crate) inbox: Arc<Inbox>,
}

/// Asks the thread that reads again. It ends when all that ask are gone.
#[derive(Clone)]
pub(crate) struct Rereader(Sender<Request>);

impl Rereader {
    pub(crate) fn start(
        properties: &Properties,
        group: &str,
        told: Told,
    ) -> KafkaResult<(Self, std::io::Result<thread::JoinHandle<()>>)> {
        let config = properties.reader(group);
        let consumer = client::connected(&config, told)?;
        let (sender, requests) = channel();
        let thread = thread::Builder::new().name("redrive-reread".to_owned());
        Ok((Self(sender), thread.spawn(move || run(consumer, &requests))))
    }

    pub(crate) fn ask(&self, request: Request) {
        if let Err(unasked) = self.0.send(request) {
            let Request { lane, ticket, inbox, .. } = unasked.0;
            inbox.send(Letter::Reread { lane, ticket, messages: Vec::new(), end: Some(false) });
        }
    }
}

#[expect(unsafe_code, reason = "the queue must not outlive the client")]
fn run(consumer: BaseConsumer<Told>, requests: &Receiver<Request>) {
    // SAFETY: it is dropped before the consumer, and its messages are waited for.
    let Some(queue) = (unsafe { Queue::new(consumer.client().native_ptr()) }) else {
        return;
    };
    while let Ok(request) = requests.recv() {
        queue.forward(&request.topic, request.partition);
        let mut is_fine = true;
        for group in groups(&request.ranges) {
            is_fine = is_fine && read(&consumer, &queue, &request, group).is_ok();
        }
        if !is_fine {
            consumer.context().lifeline().pull();
        }
        let Request { lane, ticket, inbox, .. } = request;
        inbox.send(Letter::Reread { lane, ticket, messages: Vec::new(), end: Some(is_fine) });
    }
    let until = Instant::now() + Duration::from_secs(2);
    while queue.alive() > 0 && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    if queue.alive() > 0 {
        std::mem::forget(queue);
        std::mem::forget(consumer);
    }
}

/// Ranges that are near each other.
fn groups(ranges: &[Range<i64>]) -> impl Iterator<Item = &[Range<i64>]> {
    ranges.chunk_by(|one, next| next.start - one.end < NEAR)
}

/// Reads ranges that are near each other, and sends what is in them.
fn read(
    consumer: &BaseConsumer<Told>,
    queue: &Queue,
    request: &Request,
    ranges: &[Range<i64>],
) -> Result<(), ()> {
    let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
        return Ok(());
    };
    let at = (&*request.topic, request.partition);
    let assign = |offset: i64| {
        consumer.assign(&offsets::at_offsets([(at.0, at.1, offset)])).map_err(drop)?;
        // It may have been assigned before, and is stopped then first. Whoever answers this has done that.
        consumer.assignment().map(drop).map_err(drop)?;
        queue.forward_again(at.0, at.1);
        Ok(())
    };
    assign(first.start)?;
    let is_wanted = |offset: i64| ranges.iter().any(|it| it.contains(&offset));
    let until = Instant::now() + LIMIT;
    let mut messages = Vec::new();
    while Instant::now() < until {
        queue.read(Duration::from_millis(20), &mut messages);
        // Without this the consumer would hang behind its own callbacks. A record that comes here came before its partition was
        // forwarded again: without it the lane would be told that it is gone, so all are asked for once more.
        while let Some(polled) = consumer.poll(Duration::ZERO) {
            if polled.is_ok() {
                return Err(());
            }
        }
        let mut is_done = false;
        let mut found: Vec<Message> = Vec::new();
        for message in messages.drain(..) {
            match message.error() {
                None => {
                    is_done |= message.offset() >= last.end - 1;
                    if is_wanted(message.offset()) {
                        found.push(message);
                    }
                }
                Some(RDKafkaErrorCode::PartitionEOF) => is_done = true,
                // Deleted since: what is left of it may still be there.
                Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::OffsetOutOfRange) => {
                    let marks = consumer.fetch_watermarks(at.0, at.1, LIMIT).map_err(drop)?;
                    if marks.0 >= last.end {
                        return Ok(());
                    }
                    assign(marks.0.max(first.start))?;
                }
                Some(_) => return Err(()),
            }
        }
        if !found.is_empty() {
            let Request { lane, ticket, inbox, .. } = request;
            inbox.send(Letter::Reread { lane: *lane, ticket: *ticket, messages: found, end: None });
        }
        if is_done {
            return Ok(());
        }
    }
    Err(())
}
