//! How a flow's lanes are, looked at a few times a second.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redrive_core::Timestamp;
use redrive_core::lane::Census;

use super::inbox::LaneKey;
use super::incoming::Incoming;
use super::plan::Role;

/// How often the lanes are looked at.
const EVERY: Duration = Duration::from_millis(250);

/// How a lane is.
#[derive(Clone, Debug)]
pub(crate) struct LaneCensus {
    pub(crate) topic: Arc<str>,
    pub(crate) key: LaneKey,
    pub(crate) role: Role,
    pub(crate) group: usize,
    pub(crate) counted: Census,
    /// How many were read, but not taken by the lane yet.
    pub(crate) backlog: usize,
    /// When the oldest record that is not settled was appended.
    pub(crate) oldest: Option<Timestamp>,
}

/// When to look again.
#[derive(Default)]
pub(super) struct Rhythm(Option<Instant>);

impl Rhythm {
    pub(super) fn is_time(&mut self) -> bool {
        let now = Instant::now();
        let is_time = self.0.is_none_or(|it| now.saturating_duration_since(it) >= EVERY);
        if is_time {
            self.0 = Some(now);
        }
        is_time
    }
}

/// When records of a lane were appended, of a few of them: enough to tell how old the oldest unsettled one is.
#[derive(Default)]
pub(super) struct Ages(VecDeque<(i64, i64)>);

/// How many are kept.
const KEPT: usize = 128;
/// How far apart they are, in milliseconds.
const APART: i64 = 1_000;

impl Ages {
    /// Some records were read.
    pub(super) fn read(&mut self, messages: &[Incoming]) {
        if let Some((offset, at)) = messages.iter().find_map(Incoming::appended) {
            self.note(offset, at);
        }
    }

    fn note(&mut self, offset: i64, at: i64) {
        if self.0.back().is_some_and(|last| offset <= last.0 || (at - last.1).abs() < APART) {
            return;
        }
        self.0.push_back((offset, at));
        if self.0.len() > KEPT {
            // Every other one goes: the first and the last matter most.
            let mut index = 0;
            self.0.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }

    /// When the record at this offset was appended, or one a little before it. None where nothing was read from there on.
    pub(super) fn of(&mut self, offset: i64, position: i64) -> Option<Timestamp> {
        while self.0.get(1).is_some_and(|next| next.0 <= offset) {
            self.0.pop_front();
        }
        if offset >= position {
            return None;
        }
        self.0.front().map(|it| Timestamp::from_millis(it.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_is_told_by_a_sample_at_or_before_it() {
        let mut ages = Ages::default();
        for (offset, at) in [(10, 1_000), (11, 1_001), (20, 5_000), (30, 9_000)] {
            ages.note(offset, at);
        }
        let age = |ages: &mut Ages, offset| ages.of(offset, 40).map(Timestamp::as_millis);
        assert_eq!(age(&mut ages, 5), Some(1_000), "nothing before the first was read");
        assert_eq!(age(&mut ages, 19), Some(1_000));
        assert_eq!(age(&mut ages, 20), Some(5_000));
        assert_eq!(age(&mut ages, 35), Some(9_000));
        assert_eq!(age(&mut ages, 40), None, "everything is settled");
    }

    #[test]
    fn a_day_of_records_takes_little_memory_and_keeps_its_beginning() {
        let mut ages = Ages::default();
        for second in 0..86_400 {
            ages.note(second * 100, second * 1_000);
        }
        assert!(ages.0.len() <= KEPT);
        assert_eq!(ages.of(0, i64::MAX).map(Timestamp::as_millis), Some(0));
    }
}
