//! Records that could run at once, by whose turn it is.

use std::collections::VecDeque;

use super::{Fate, Item};
use crate::time::Timestamp;
use crate::verdict::Reason;

/// Ready records in order of priority, due time and offset, and how much memory their payloads take. Those that an ordered
/// lane sends elsewhere come first: they need no slot, and must not wait for those that do.
///
/// Nearly all come behind those that are there, so that a queue is cheaper than a tree.
#[derive(Debug)]
pub(super) struct Ready<P> {
    items: VecDeque<Item<P>>,
    bytes: usize,
}

impl<P> Ready<P> {
    pub(super) fn new() -> Self {
        Self { items: VecDeque::new(), bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn insert(&mut self, item: Item<P>) {
        self.bytes += item.bytes;
        if self.items.back().is_none_or(|last| turn_of(last) < turn_of(&item)) {
            self.items.push_back(item);
        } else {
            let place = self.items.partition_point(|it| turn_of(it) < turn_of(&item));
            self.items.insert(place, item);
        }
    }

    /// Whose turn it is.
    pub(super) fn first(&self) -> Option<&Item<P>> {
        self.items.front()
    }

    pub(super) fn pop(&mut self) -> Option<Item<P>> {
        let item = self.items.pop_front()?;
        self.bytes -= item.bytes;
        Some(item)
    }

    pub(super) fn offsets(&self) -> impl Iterator<Item = i64> {
        self.items.iter().map(|it| it.offset)
    }

    /// Takes one out, whoever's turn it is.
    pub(super) fn withdraw(&mut self, offset: i64) -> Option<Item<P>> {
        let place = self.items.iter().position(|it| it.offset == offset)?;
        let item = self.items.remove(place)?;
        self.bytes -= item.bytes;
        Some(item)
    }

    /// The one that is due first, whoever's turn it is.
    pub(super) fn first_due(&self) -> Option<(Timestamp, i64)> {
        self.items.iter().map(|it| (it.due, it.offset)).min()
    }
}

fn turn_of<P>(item: &Item<P>) -> (bool, u8, Timestamp, i64) {
    let is_sent =
        matches!(item.fate, Fate::Follow | Fate::Reappend | Fate::DeadLetter(Reason::Follower));
    (!is_sent, item.priority, item.due, item.offset)
}
