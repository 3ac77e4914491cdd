//! Where everything arrives that a flow's engine has to know.
//!
//! Letters are put in by poll threads, handlers, the producer and the committer, and taken out all at once.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use redrive_core::lane::Marker;
use redrive_core::offsets::BlockId;

use super::horizon::Horizon;
use super::incoming::Incoming;
use super::machine::{OwnLane, OwnWhole};
use super::run::End;
use crate::handler::Outcome;
use crate::kafka::commit::Refusal;
use crate::kafka::message::Message;
use crate::kafka::publish::{At, Receipt, Unpublished};
use crate::record::Record;

/// A partition of one of the flow's topics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LaneKey {
    /// Which of the flow's topics.
    pub(crate) stop: usize,
    pub(crate) partition: i32,
}

/// Everything that has happened since the last look.
#[derive(Default)]
pub(crate) struct Letters {
    pub(crate) read: Vec<Read>,
    /// How many messages those have.
    messages: usize,
    /// Runs that succeeded, by lane: neighbours that ended one after the other stand together.
    pub(crate) done: Vec<(u64, Range<i64>)>,
    pub(crate) ran: Vec<Ran>,
    pub(crate) published: Vec<Published>,
    pub(crate) others: Vec<Letter>,
}

impl Letters {
    fn is_full(&self) -> bool {
        self.messages >= MOST_MESSAGES
    }

    fn is_empty(&self) -> bool {
        self.read.is_empty()
            && self.done.is_empty()
            && self.ran.is_empty()
            && self.published.is_empty()
            && self.others.is_empty()
    }
}

/// What was read of a partition, in order.
pub(crate) struct Read {
    pub(crate) lane: u64,
    pub(crate) messages: Vec<Incoming>,
    /// Everything below was read, with the messages.
    pub(crate) until: Option<i64>,
    /// Where whoever reads looks how much of it to copy.
    pub(crate) horizon: Option<Arc<Horizon>>,
}

impl Read {
    /// Nothing, but all of it up to there.
    pub(crate) fn until(lane: u64, until: i64) -> Self {
        Self { lane, messages: Vec::new(), until: Some(until), horizon: None }
    }
}

/// How a run ended that did not just succeed.
pub(crate) struct Ran {
    pub(crate) lane: u64,
    pub(crate) offset: i64,
    pub(crate) outcome: Outcome,
    pub(crate) record: Record,
}

/// How many records are let go of together. librdkafka counts references to a record's topic, partition and memory in words that the threads which
/// fetch and read change as well: to take each of these words from another core once for a few records costs less than once for each.
const TOGETHER: usize = 32;

/// Runs that have ended.
#[derive(Default)]
pub(crate) struct Ended {
    done: Vec<(u64, Range<i64>)>,
    ran: Vec<Ran>,
    /// Records of those that succeeded.
    left: Vec<Record>,
}

impl Ended {
    pub(crate) fn push(&mut self, lane: u64, offset: i64, end: End, record: Record) {
        match end {
            None => {
                match self.done.last_mut() {
                    Some((last, run)) if *last == lane && run.end == offset => run.end += 1,
                    _ => self.done.push((lane, offset..offset + 1)),
                }
                self.left.push(record);
                if self.left.len() >= TOGETHER {
                    self.left.clear();
                }
            }
            Some(outcome) => self.ran.push(Ran { lane, offset, outcome: *outcome, record }),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.done.is_empty() && self.ran.is_empty()
    }
}

/// What became of a publish.
pub(crate) struct Published {
    pub(crate) lane: u64,
    pub(crate) offset: i64,
    pub(crate) result: Result<At, Unpublished>,
}

pub(crate) enum Letter {
    /// A partition was assigned.
    Open { lane: u64, key: LaneKey, group: usize, machine: Box<OwnLane> },
    /// Partitions that belong together were assigned, the source's first. That one is held back.
    OpenWhole { parts: Vec<(u64, LaneKey)>, group: usize, machine: Box<OwnWhole> },
    /// Partitions go: what is under way may end.
    Drain { lanes: Vec<u64>, limit: Duration, latch: Latch },
    /// Partitions are gone.
    Lose { lanes: Vec<u64> },
    /// A transaction is about to end that these records' hops are in: their lanes are to commit, by this ticket.
    Close { group: usize, ticket: u64, lanes: Vec<(u64, Vec<i64>)> },
    /// A commit was accepted, or was not.
    Committed { lane: u64, ticket: u64, result: Result<(), Refusal> },
    /// Offsets were read again.
    Reread { lane: u64, ticket: u64, messages: Vec<Message>, end: Option<bool> },
    /// A block is in the state topic, or is not.
    Stored { lane: u64, id: BlockId, is_stored: bool },
    /// A marker that a lane wanted to have in the state topic is there, at this offset, or one that it wanted to be gone is gone,
    /// unless there is an error.
    Marked { lane: u64, marker: Marker, is_there: bool, result: Result<At, String> },
    /// A marker of a lane was read in the state topic.
    Marker { lane: u64, marker: Marker, offset: i64, name: Option<Arc<str>> },
    /// The deletion of a marker of a lane was read in the state topic, at this offset, and its first retry topic ended here after
    /// that.
    MarkerDeleted { lane: u64, marker: Marker, offset: i64, end: i64 },
    /// An ordered lane's source ends here, as it is since the lane asked.
    SourceEnds { lane: u64, end: i64 },
    /// The flow goes on after it stopped.
    Resume,
    /// The flow is to take nothing more, or to go on.
    Pause(bool),
    /// The engine is not needed any more.
    End,
}

/// An engine that is behind gets no more messages than this: they wait with librdkafka, which then fetches no more.
const MOST_MESSAGES: usize = 10_000;

/// An engine's letterbox.
#[derive(Default)]
pub(crate) struct Inbox {
    letters: Mutex<Letters>,
    bell: Condvar,
    /// Rung when messages were taken.
    taken: Condvar,
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock()
    }

    fn put<T>(&self, put: impl FnOnce(&mut Letters) -> T) -> T {
        let mut letters = self.lock();
        let was_empty = letters.is_empty();
        let result = put(&mut letters);
        drop(letters);
        if was_empty {
            self.bell.notify_one();
        }
        result
    }

    pub(crate) fn send(&self, letter: Letter) {
        self.put(|it| it.others.push(letter));
    }

    /// Returns whether there is room for more.
    pub(crate) fn read(&self, read: Read) -> bool {
        self.put(|it| {
            it.messages += read.messages.len();
            it.read.push(read);
            !it.is_full()
        })
    }

    /// Waits until there is room for more messages; false if there is none within the limit.
    pub(crate) fn wait_for_room(&self, limit: Duration) -> bool {
        let mut letters = self.lock();
        self.taken.wait_while_for(&mut letters, |it| it.is_full(), limit);
        !letters.is_full()
    }

    pub(crate) fn ran(&self, ended: Ended) {
        let Ended { done, ran, left } = ended;
        // Before anybody hears of it.
        drop(left);
        self.put(|it| {
            it.done.extend(done);
            it.ran.extend(ran);
        });
    }

    /// Takes everything out, after waiting for something until then.
    pub(crate) fn take(&self, until: Instant, into: &mut Letters) {
        let mut letters = self.lock();
        while letters.is_empty() {
            let Some(wait) = until.checked_duration_since(Instant::now()) else {
                break;
            };
            self.bell.wait_for(&mut letters, wait);
        }
        std::mem::swap(&mut *letters, into);
        drop(letters);
        if std::mem::take(&mut into.messages) > 0 {
            self.taken.notify_all();
        }
    }
}

impl Receipt for Inbox {
    fn published(&self, (lane, offset): (u64, i64), result: Result<At, Unpublished>) {
        self.put(|it| it.published.push(Published { lane, offset, result }));
    }
}

/// Counts down what is waited for.
#[derive(Clone, Default)]
pub(crate) struct Latch(Arc<(Mutex<usize>, Condvar)>);

impl Latch {
    pub(crate) fn of(count: usize) -> Self {
        Self(Arc::new((Mutex::new(count), Condvar::new())))
    }

    pub(crate) fn count_down(&self) {
        let mut left = self.0.0.lock();
        *left = left.saturating_sub(1);
        if *left == 0 {
            self.0.1.notify_all();
        }
    }

    /// Waits until all have come; false if they have not within the limit.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let mut left = self.0.0.lock();
        self.0.1.wait_while_for(&mut left, |left| *left > 0, limit);
        *left == 0
    }
}

#[cfg(test)]
mod tests {
    use redrive_core::Failure;

    use super::*;

    #[test]
    fn records_that_succeeded_are_let_go_of_a_few_at_a_time_and_those_that_failed_are_kept() {
        let mut ended = Ended::default();
        let record = || Record::made_up("orders", 0, 0);
        for offset in 0..100 {
            ended.push(1, offset, None, record());
            assert!(ended.left.len() < TOGETHER);
        }
        ended.push(1, 100, Some(Box::new(Outcome::stop(Failure::of_type("Broken")))), record());
        let inbox = Inbox::default();
        inbox.ran(ended);
        let letters = inbox.lock();
        assert_eq!(letters.done, [(1, 0..100)]);
        assert_eq!(letters.ran.iter().map(|it| it.offset).collect::<Vec<_>>(), [100]);
    }

    #[test]
    fn an_engine_that_is_behind_gets_no_more_until_it_has_taken_what_there_is() {
        let inbox = Inbox::default();
        // Only the count counts.
        inbox.lock().messages = MOST_MESSAGES - 1;
        let read = || Read { lane: 1, messages: Vec::new(), until: None, horizon: None };
        assert!(inbox.read(read()));
        inbox.lock().messages += 1;
        assert!(!inbox.read(read()) && !inbox.wait_for_room(Duration::from_millis(1)));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| inbox.wait_for_room(Duration::from_secs(60)));
            let mut letters = Letters::default();
            inbox.take(Instant::now(), &mut letters);
            assert_eq!(letters.read.len(), 2);
            assert!(waiting.join().unwrap(), "it is told at once");
        });
        assert!(inbox.read(read()));
    }
}
