//! Source records that run for the first time.
//!
//! Nearly all records succeed at once, and then nobody asks for more than their offset: their payload is with their run, and
//! everything else about them is the same for all. So nothing but the offset is kept, as a bit among those of its neighbours.
//! Only a run that fails brings its record back, which from then on is one of those under way.

use std::ops::Range;

use super::{Active, Fate, InPlace, Item, Lane, LaneKind, Order, Payload, Stage};
use crate::offsets::Runs;
use crate::time::Timestamp;

/// The offsets of plain records that run.
#[derive(Debug)]
pub(super) struct Plain {
    offsets: Runs,
    len: usize,
}

impl Plain {
    pub(super) fn new() -> Self {
        Self { offsets: Runs::new(), len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    fn insert(&mut self, offset: i64) {
        self.len += usize::from(self.offsets.insert(offset));
    }

    pub(super) fn remove(&mut self, offset: i64) -> bool {
        let was_there = self.offsets.remove(offset);
        self.len -= usize::from(was_there);
        was_there
    }

    /// Takes out what is there of a range. Returns those parts.
    pub(super) fn take(&mut self, range: Range<i64>) -> impl Iterator<Item = Range<i64>> + use<> {
        let mut found = self.offsets.within(range.clone());
        // Nearly always it is all of it, or nothing.
        let first = found.next();
        let others: Vec<_> = found.collect();
        if first.is_some() {
            self.offsets.remove_range(range);
        }
        let found = first.into_iter().chain(others);
        self.len -= found.clone().map(|it| length(&it)).sum::<usize>();
        found
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new();
    }
}

/// How many offsets a range has.
pub(super) fn length(range: &Range<i64>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(0)
}

impl<P: Payload, H: Clone> Lane<P, H> {
    /// Whether nothing but the offset of a record has to be kept while it runs.
    pub(super) fn is_plain(&self, item: &Item<P>) -> bool {
        let Item { due, is_dated, priority, fate, .. } = *item;
        self.config.kind == LaneKind::Source
            && self.config.order != Order::Entity
            && (due, is_dated, priority, fate) == (Timestamp::default(), false, 0, Fate::Run)
    }

    /// A plain record runs.
    pub(super) fn keep_offset(&mut self, offset: i64) {
        self.plain.insert(offset);
    }

    /// The payload of a run that did not succeed comes back, before anything is told of that run.
    pub fn given_back(&mut self, offset: i64, payload: P) {
        if self.plain.remove(offset) {
            let item = Item {
                offset,
                due: Timestamp::default(),
                is_dated: false,
                priority: 0,
                appended_at: Timestamp::default(),
                fate: Fate::Run,
                bytes: payload.bytes(),
                payload,
            };
            let (in_place, stage) = (InPlace::default(), Stage::Running);
            self.active.insert(offset, Active { item, in_place, failures: 0, stage });
        } else if let Some(active) = self.active.get_mut(offset).filter(|it| it.stage.is_running())
        {
            active.item.payload = payload;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_of_a_range_is_taken_once() {
        let mut plain = Plain::new();
        [3, 4, 5, 9, 600].into_iter().for_each(|it| plain.insert(it));
        assert_eq!(plain.take(4..10).collect::<Vec<_>>(), [4..6, 9..10]);
        assert_eq!((plain.len(), plain.take(4..10).count()), (2, 0));
        assert_eq!(plain.take(i64::MIN..i64::MAX).collect::<Vec<_>>(), [3..4, 600..601]);
        assert!(plain.is_empty() && !plain.remove(3));
    }
}
