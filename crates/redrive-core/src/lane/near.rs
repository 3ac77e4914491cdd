//! Records whose time is near: their payloads are here, or are being read again.

use std::collections::BTreeMap;

use super::Item;
use super::waiting::Key;
use crate::mutation::{self, Mutation};
use crate::time::Timestamp;

/// Records by when they are to be woken, and how much memory their payloads take.
#[derive(Debug)]
pub(super) struct Near<P> {
    entries: BTreeMap<Key, Entry<P>>,
    bytes: usize,
    /// How many payloads are not here.
    awaited: usize,
    /// What is to be asked for. Some may have gone since.
    to_ask: Vec<Key>,
}

#[derive(Debug)]
enum Entry<P> {
    Here(Item<P>),
    ToAsk,
    /// By this ticket. No other one can tell that the record is gone.
    Asked(u64),
}

impl<P> Near<P> {
    pub(super) fn new() -> Self {
        Self { entries: BTreeMap::new(), bytes: 0, awaited: 0, to_ask: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn awaited(&self) -> usize {
        self.awaited
    }

    pub(super) fn first(&self) -> Option<Key> {
        self.entries.first_key_value().map(|it| *it.0)
    }

    pub(super) fn last(&self) -> Option<Key> {
        self.entries.last_key_value().map(|it| *it.0)
    }

    /// The first that is to be woken after then.
    pub(super) fn first_after(&self, then: Timestamp) -> Option<Timestamp> {
        self.entries.range((then, i64::MAX)..).next().map(|it| it.0.0)
    }

    /// Adds a record. Without a payload it is to be asked for.
    pub(super) fn insert(&mut self, key: Key, item: Option<Item<P>>) {
        let entry = match item {
            Some(item) => {
                self.bytes += item.bytes;
                Entry::Here(item)
            }
            None => {
                self.awaited += 1;
                self.to_ask.push(key);
                Entry::ToAsk
            }
        };
        self.entries.insert(key, entry);
    }

    /// Takes the last one out, with its payload if that is here.
    pub(super) fn pop_last(&mut self) -> Option<(Key, Option<Item<P>>)> {
        let (key, entry) = self.entries.pop_last()?;
        let item = entry.item();
        match &item {
            Some(item) => self.bytes -= item.bytes,
            None => self.awaited -= 1,
        }
        Some((key, item))
    }

    /// Those that are to be woken by `until` and are here.
    pub(super) fn due(&self, until: Timestamp) -> Vec<Key> {
        let due = self.entries.range(..=(until, i64::MAX));
        due.filter(|it| matches!(it.1, Entry::Here(_))).map(|it| *it.0).collect()
    }

    /// Takes one out that is here.
    pub(super) fn take(&mut self, key: Key) -> Option<Item<P>> {
        let item = self.entries.remove(&key)?.item()?;
        self.bytes -= item.bytes;
        Some(item)
    }

    pub(super) fn contains(&self, key: Key) -> bool {
        self.entries.contains_key(&key)
    }

    /// Takes one out, with its payload if that is here.
    pub(super) fn withdraw(&mut self, key: Key) -> Option<Option<Item<P>>> {
        let item = self.entries.remove(&key)?.item();
        match &item {
            Some(item) => self.bytes -= item.bytes,
            None => self.awaited -= 1,
        }
        Some(item)
    }

    /// Takes a payload that was read again, whoever asked for it, or gives it back if nobody waits for it here.
    pub(super) fn came(&mut self, key: Key, item: Item<P>) -> Option<Item<P>> {
        match self.entries.get_mut(&key) {
            None => return Some(item),
            Some(Entry::Here(_)) => {}
            Some(entry) => {
                self.awaited -= 1;
                self.bytes += item.bytes;
                *entry = Entry::Here(item);
            }
        }
        None
    }

    /// What is to be asked for by this ticket.
    pub(super) fn ask(&mut self, ticket: u64) -> Vec<Key> {
        let mut keys = std::mem::take(&mut self.to_ask);
        keys.retain(|key| match self.entries.get_mut(key) {
            Some(entry @ Entry::ToAsk) => {
                *entry = Entry::Asked(ticket);
                true
            }
            _ => false,
        });
        keys
    }

    pub(super) fn has_to_ask(&self) -> bool {
        !self.to_ask.is_empty()
    }

    /// What was asked for by this ticket was read to its end. Takes those out that did not come.
    pub(super) fn read(&mut self, ticket: u64, mut keys: Vec<Key>) -> Vec<Key> {
        keys.retain(|key| self.entries.get(key).is_some_and(|it| it.awaits(ticket)));
        for key in &keys {
            self.entries.remove(key);
        }
        self.awaited -= keys.len();
        keys
    }

    /// What was asked for by this ticket could not be read to its end.
    pub(super) fn ask_again(&mut self, ticket: u64, keys: Vec<Key>) {
        for key in keys {
            if let Some(entry) = self.entries.get_mut(&key).filter(|it| it.awaits(ticket)) {
                *entry = Entry::ToAsk;
                self.to_ask.push(key);
            }
        }
    }
}

impl<P> Entry<P> {
    fn item(self) -> Option<Item<P>> {
        match self {
            Entry::Here(item) => Some(item),
            Entry::ToAsk | Entry::Asked(_) => None,
        }
    }

    fn awaits(&self, ticket: u64) -> bool {
        let is_any = mutation::is(Mutation::TrustOldTickets);
        matches!(self, Entry::Asked(it) if *it == ticket || is_any)
    }
}
