//! Following the state topic: what is written there takes effect at once on the lanes that it is about.
//!
//! One thread of the process reads on from the end that was noted when each lane was taken over. It reads again what it has read already where a
//! lane comes that was not there before; who has seen it does not see it twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rdkafka::Message as _;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaResult;
use rdkafka::message::BorrowedMessage;
use rdkafka::types::RDKafkaErrorCode;

use super::client::{self, Properties, Told};
use super::lifeline::Tethered;
use super::markers::{self, Note};
use super::offsets;
use super::tails::Tails;
use crate::engine::inbox::{Inbox, Letter};
use crate::event::{Event, Events};

/// How long a read waits, and so how soon it is noticed that there are other lanes.
const WAIT: Duration = Duration::from_millis(50);
/// How long the brokers may take for an answer, and how long it is until something is tried again.
const ANSWER: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_secs(1);

/// A lane that wants to know.
pub(crate) struct Followed {
    pub(crate) lane: u64,
    /// The source topic.
    pub(crate) topic: Arc<str>,
    pub(crate) partition: i32,
    /// The first retry topic, where there is one.
    pub(crate) first_tier: Option<Arc<str>>,
    pub(crate) inbox: Arc<Inbox>,
    /// Up to where it knows all.
    pub(crate) from: i64,
}

/// Tells lanes what comes in the state topic.
#[derive(Default)]
pub(crate) struct Follower {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    lanes: BTreeMap<u64, Followed>,
    is_over: bool,
}

impl Follower {
    /// Starts the thread that reads.
    pub(crate) fn start(
        topic: Arc<str>,
        properties: &Properties,
        group: &str,
        told: Told,
        events: Events,
        tails: Arc<Tails>,
    ) -> KafkaResult<(Arc<Self>, std::io::Result<thread::JoinHandle<()>>)> {
        let mut config = properties.reader(group);
        // Hardly anything ever comes.
        config.set("fetch.wait.max.ms", "500").set("enable.partition.eof", "false");
        let consumer = client::connected(&config, told)?;
        let follower = Arc::<Self>::default();
        let reading = Reading {
            follower: Arc::clone(&follower),
            consumer,
            topic,
            tails,
            events,
            position: None,
        };
        let thread = thread::Builder::new().name("redrive-follow".to_owned());
        Ok((follower, thread.spawn(move || reading.run())))
    }

    /// From now on this lane is told.
    pub(crate) fn follow(&self, lane: Followed) {
        self.state.lock().lanes.insert(lane.lane, lane);
        self.changed.notify_all();
    }

    /// From now on these lanes are not.
    pub(crate) fn forget(&self, lanes: &[u64]) {
        self.state.lock().lanes.retain(|it, _| !lanes.contains(it));
    }

    /// Nobody is, any more.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
    }
}

struct Reading {
    follower: Arc<Follower>,
    consumer: BaseConsumer<Told>,
    topic: Arc<str>,
    tails: Arc<Tails>,
    events: Events,
    /// Up to where it was read.
    position: Option<i64>,
}

impl Reading {
    fn run(mut self) {
        while let Some(from) = self.wanted() {
            if let Err(error) = self.read(from) {
                self.events.tell(&Event::Unread {
                    topic: Arc::clone(&self.topic),
                    partition: markers::PARTITION,
                    error: error.to_string(),
                });
                self.position = None;
                self.consumer.context().lifeline().pull();
                let mut state = self.follower.state.lock();
                if !state.is_over {
                    self.follower.changed.wait_for(&mut state, AGAIN);
                }
            }
        }
    }

    /// From where on the lanes want to know all. Waits while there are none; None when it is over.
    fn wanted(&mut self) -> Option<i64> {
        let mut state = self.follower.state.lock();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(from) = state.lanes.values().map(|it| it.from).min() {
                return Some(from);
            }
            if self.position.take().is_some() {
                _ = self.consumer.unassign();
            }
            self.follower.changed.wait(&mut state);
        }
    }

    fn read(&mut self, from: i64) -> KafkaResult<()> {
        if self.position.is_none_or(|it| from < it) {
            let at = (&*self.topic, markers::PARTITION);
            // Whoever answers this has stopped reading: what was read ahead from the old position would hide what comes before it.
            self.consumer.unassign()?;
            drop(self.consumer.assignment()?);
            self.consumer.assign(&offsets::at_offsets([(at.0, at.1, from)]))?;
            self.position = Some(from);
        }
        match self.consumer.poll(WAIT) {
            None => Ok(()),
            Some(Ok(message)) => {
                let next = message.offset() + 1;
                self.tell(&message);
                drop(message);
                self.position = Some(next);
                Ok(())
            }
            Some(Err(error)) => {
                use RDKafkaErrorCode as Code;
                let code = error.rdkafka_error_code();
                if matches!(code, Some(Code::AutoOffsetReset | Code::OffsetOutOfRange)) {
                    self.start_over()?;
                }
                Err(error)
            }
        }
    }

    /// The topic does not have what is wanted: it was made anew.
    fn start_over(&self) -> KafkaResult<()> {
        let (start, end) =
            self.consumer.fetch_watermarks(&self.topic, markers::PARTITION, ANSWER)?;
        for lane in self.follower.state.lock().lanes.values_mut() {
            lane.from = if lane.from > end { start } else { lane.from.max(start) };
        }
        Ok(())
    }

    fn tell(&self, message: &BorrowedMessage<'_>) {
        let offset = message.offset();
        let key = message.key().and_then(|it| std::str::from_utf8(it).ok());
        let found = key.and_then(markers::read_key);
        let mut state = self.follower.state.lock();
        for lane in state.lanes.values_mut().filter(|it| it.from <= offset) {
            lane.from = offset + 1;
            let Some((topic, partition, marker)) = found else {
                continue;
            };
            if (topic, partition) != (&*lane.topic, lane.partition) {
                continue;
            }
            let (number, inbox) = (lane.lane, Arc::clone(&lane.inbox));
            match (message.payload(), &lane.first_tier) {
                (Some(value), _) => {
                    let name = Note::read(value).shown();
                    inbox.send(Letter::Marker { lane: number, marker, offset, name });
                }
                (None, None) => {
                    inbox.send(Letter::MarkerDeleted { lane: number, marker, offset, end: 0 });
                }
                // What an operator sent back before is below the end that the topic has now.
                (None, Some(tier)) => {
                    self.tails.ask(Arc::clone(tier), partition, move |end| {
                        inbox.send(Letter::MarkerDeleted { lane: number, marker, offset, end });
                    });
                }
            }
        }
    }
}
