//! Where the logs end, so that it can be told how far behind one is.
//!
//! While a consumer has caught up, it fetches all the time and knows the end. One that is behind may have stopped fetching,
//! because nobody takes what it has; what it knows is old then, and the brokers are asked, now and then, by a thread of its own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::publish::Publisher;
use crate::engine::FlowState;

/// How often the brokers are asked, and how long they may take for an answer.
const EVERY: Duration = Duration::from_secs(5);
const ANSWER: Duration = Duration::from_secs(1);
/// How often it is looked whether it is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The ends of a group's partitions.
#[derive(Default)]
pub(crate) struct Ends(Mutex<BTreeMap<(Arc<str>, i32), i64>>);

impl Ends {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<(Arc<str>, i32), i64>> {
        self.0.lock()
    }

    /// What was heard last may be older than what was known: logs grow.
    pub(crate) fn note(&self, topic: &Arc<str>, partition: i32, end: i64) {
        let mut ends = self.lock();
        let known = ends.entry((Arc::clone(topic), partition)).or_insert(end);
        *known = (*known).max(end);
    }

    pub(crate) fn forget(&self, topic: &Arc<str>, partition: i32) {
        self.lock().remove(&(Arc::clone(topic), partition));
    }

    pub(crate) fn get(&self, topic: &Arc<str>, partition: i32) -> Option<i64> {
        self.lock().get(&(Arc::clone(topic), partition)).copied()
    }
}

/// Asks for the ends of partitions that are behind, until it is over.
pub(crate) fn ask(
    publisher: &Publisher,
    groups: &[Arc<super::group::Pulse>],
    flows: &[Arc<FlowState>],
    is_over: &AtomicBool,
) {
    let mut asked = Instant::now();
    while !is_over.load(Ordering::Acquire) {
        thread::sleep(LOOK_EVERY);
        if asked.elapsed() < EVERY {
            continue;
        }
        for flow in flows {
            let lanes = flow.census.lock().clone();
            for lane in lanes {
                let Some(ends) = groups.get(lane.group).map(|it| &it.ends) else {
                    continue;
                };
                let is_behind = |end: i64| lane.counted.position < end;
                let partition = lane.key.partition;
                if ends.get(&lane.topic, partition).is_some_and(is_behind)
                    && !is_over.load(Ordering::Acquire)
                    && let Some(end) = publisher.log_end(&lane.topic, partition, ANSWER)
                {
                    ends.note(&lane.topic, partition, end);
                }
            }
        }
        asked = Instant::now();
    }
}
