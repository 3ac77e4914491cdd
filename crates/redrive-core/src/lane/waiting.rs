//! Records that wait for their time, in bounded memory.
//!
//! A waiting record costs sixteen bytes: when it is to be woken, and its offset. Payloads are kept within a budget, which
//! counts what it takes to keep them as well, those of the nearest records first; what is not kept is read again shortly before its time. When there are too many
//! entries, the farthest are folded: of all records from a certain time on only the range of offsets is kept, which is
//! scanned again before that time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::Range;

use super::piece::Piece;
use super::{Item, Payload};
use crate::time::{MAX_TIMESTAMP, Timestamp};

/// When a record is to be woken, and which one it is.
pub(super) type Key = (Timestamp, i64);

/// Waiting records of one partition.
#[derive(Debug)]
pub(super) struct Waiting<P> {
    far: BinaryHeap<Reverse<Key>>,
    /// What of it was taken out again, and is skipped. Never the first.
    withdrawn: BTreeSet<Key>,
    kept: BTreeMap<Key, Item<P>>,
    kept_bytes: usize,
    /// How large a payload usually is, of those that came lately.
    usual_bytes: usize,
    /// By time, each up to the one behind it. No entry of `far` is at or beyond the first.
    folds: Vec<Fold>,
    scan: Option<Scan>,
    index_limit: usize,
    byte_budget: usize,
    /// What is to be woken by then may take this much: it would have to be read again at once.
    soon: (Timestamp, usize),
}

/// All records from a certain place in the order of waking on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fold {
    from: Key,
    first: i64,
    last: i64,
}

/// A fold that is being read again, in order of offset.
#[derive(Clone, Debug)]
struct Scan {
    fold: Fold,
    /// Up to, but not including.
    until: Key,
    next: i64,
    /// What of it was asked for.
    asked: Option<Piece>,
}

/// More folds than this are joined.
const MAX_FOLDS: usize = 32;

/// How many bytes it takes to keep a payload: beside itself its item and its key, in a tree that is about half full where records
/// come in order.
fn cost<P>(item: &Item<P>) -> usize {
    entry_cost::<P>(item.bytes)
}

fn entry_cost<P>(bytes: usize) -> usize {
    bytes.saturating_add(2 * size_of::<(Key, Item<P>)>())
}

impl<P: Payload> Waiting<P> {
    pub(super) fn new(index_limit: usize, byte_budget: usize) -> Self {
        Self {
            far: BinaryHeap::new(),
            withdrawn: BTreeSet::new(),
            kept: BTreeMap::new(),
            kept_bytes: 0,
            usual_bytes: 0,
            folds: Vec::new(),
            scan: None,
            index_limit: index_limit.max(2),
            byte_budget,
            soon: (Timestamp::default(), byte_budget),
        }
    }

    /// Sets how many bytes of payloads are kept from now on.
    pub(super) fn set_byte_budget(&mut self, bytes: usize) {
        self.byte_budget = bytes;
        self.trim();
    }

    /// What is to be woken by then may take so many bytes from now on, and all else no more than that either.
    pub(super) fn make_way(&mut self, until: Timestamp, bytes: usize) {
        self.soon = (until, bytes);
        self.trim();
    }

    /// How many bytes may be kept, as long as this is the farthest.
    fn budget(&self, farthest: Key) -> usize {
        let (until, bytes) = self.soon;
        if farthest.0 <= until { bytes } else { bytes.min(self.byte_budget) }
    }

    /// How long a record may have to wait so that its payload is kept, if it is of the usual size.
    pub(super) fn horizon(&self) -> Timestamp {
        let (until, bytes) = self.soon;
        let last = self.kept.last_key_value().map_or(Timestamp::default(), |(last, _)| last.0);
        let taken = self.kept_bytes.saturating_add(entry_cost::<P>(self.usual_bytes));
        let kept = match taken {
            _ if taken > bytes => last,
            _ if taken > self.byte_budget => last.max(until),
            _ => MAX_TIMESTAMP,
        };
        self.folds.first().map_or(kept, |fold| kept.min(fold.from.0))
    }

    /// Lets a record wait, with or without its payload. Returns the offsets that were folded away for it, itself perhaps
    /// among them.
    pub(super) fn insert(&mut self, key: Key, item: Option<Item<P>>) -> Vec<i64> {
        if let Some(item) = &item {
            let before = self.usual_bytes.saturating_mul(31);
            self.usual_bytes = before.saturating_add(item.bytes).div_ceil(32);
        }
        if self.folds.first().is_some_and(|fold| key >= fold.from) {
            self.fold_one(key);
            return vec![key.1];
        }
        if self.withdrawn.is_empty() || !self.withdrawn.remove(&key) {
            self.far.push(Reverse(key));
        }
        if let Some(item) = item {
            self.keep(key, item);
        }
        if self.far.len() > self.index_limit { self.fold() } else { Vec::new() }
    }

    fn keep(&mut self, key: Key, mut item: Item<P>) {
        // What would be dropped at once need not be made fit for keeping.
        let is_full = self.kept_bytes + cost(&item) > self.budget(key);
        if is_full && self.kept.last_key_value().is_none_or(|(last, _)| *last < key) {
            return;
        }
        item.payload = item.payload.kept();
        self.kept_bytes += cost(&item);
        self.kept.insert(key, item);
        self.trim();
    }

    /// Drops payloads until they fit, the farthest first.
    fn trim(&mut self) {
        while let Some((last, _)) = self.kept.last_key_value()
            && self.kept_bytes > self.budget(*last)
            && let Some((_, item)) = self.kept.pop_last()
        {
            self.kept_bytes -= cost(&item);
        }
    }

    /// The first that is to be woken by `until` and is not folded.
    pub(super) fn peek(&self, until: Timestamp) -> Option<Key> {
        self.far.peek().map(|it| it.0).filter(|it| it.0 <= until)
    }

    /// Takes the first record that is not folded, with its payload if that was kept.
    pub(super) fn pop(&mut self) -> Option<(Key, Option<Item<P>>)> {
        let Reverse(key) = self.far.pop()?;
        self.skip_withdrawn();
        let item = self.unkeep(key);
        Some((key, item))
    }

    /// Takes a record out that is not folded, whenever it is to be woken, and returns its payload if that was kept.
    pub(super) fn withdraw(&mut self, key: Key) -> Option<Item<P>> {
        self.withdrawn.insert(key);
        self.skip_withdrawn();
        self.unkeep(key)
    }

    fn skip_withdrawn(&mut self) {
        while !self.withdrawn.is_empty()
            && let Some(Reverse(first)) = self.far.peek()
            && self.withdrawn.remove(first)
        {
            self.far.pop();
        }
    }

    fn unkeep(&mut self, key: Key) -> Option<Item<P>> {
        let item = self.kept.remove(&key)?;
        self.kept_bytes -= cost(&item);
        Some(item)
    }

    /// Takes records out that an ordered lane folds away.
    pub(super) fn forget(&mut self, folded: &BTreeSet<Key>) {
        self.far.retain(|it| !folded.contains(&it.0) && !self.withdrawn.contains(&it.0));
        self.withdrawn.clear();
        for key in folded {
            self.unkeep(*key);
        }
    }

    /// The first that waits, folds and scans included.
    pub(super) fn first(&self) -> Option<Key> {
        let far = self.far.peek().map(|it| it.0);
        let fold = self.folds.first().map(|it| it.from);
        let scan = self.scan.as_ref().map(|it| it.fold.from);
        [far, fold, scan].into_iter().flatten().min()
    }

    /// Whether nothing waits, is folded or is being scanned.
    pub(super) fn is_empty(&self) -> bool {
        self.far.is_empty() && self.folds.is_empty() && self.scan.is_none()
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.far.len() - self.withdrawn.len()
    }

    /// How many bytes it takes to keep the payloads.
    pub(super) fn bytes(&self) -> usize {
        self.kept_bytes
    }

    /// How many bytes a payload that was not kept will probably take.
    pub(super) fn usual_bytes(&self) -> usize {
        self.usual_bytes
    }

    /// The nearest three quarters stay; the rest is folded. A fold is opened again when half is left, so that something has run
    /// between two scans of the same records.
    fn fold(&mut self) -> Vec<i64> {
        let mut keys: Vec<Key> = std::mem::take(&mut self.far).into_iter().map(|it| it.0).collect();
        let most = keys.len() * 3 / 4;
        keys.select_nth_unstable(most);
        let folded = keys.split_off(most);
        self.far = keys.into_iter().map(Reverse).collect();
        let from = folded.iter().copied().min().unwrap_or((Timestamp::default(), 0));
        for key in &folded {
            let item = self.kept.remove(key);
            self.kept_bytes -= item.as_ref().map_or(0, cost);
        }
        let offsets = || folded.iter().map(|it| it.1);
        if let (Some(first), Some(last)) = (offsets().min(), offsets().max()) {
            self.folds.insert(0, Fold { from, first, last });
        }
        // What a scan has yet to find and is due from then on belongs to the new fold.
        if let Some(scan) = self.scan.as_mut().filter(|it| it.until > from) {
            scan.until = from.max(scan.fold.from);
            let (first, last) = (scan.next, scan.fold.last);
            if let Some(fold) = self.folds.first_mut().filter(|_| first <= last) {
                fold.first = fold.first.min(first);
                fold.last = fold.last.max(last);
            }
        }
        self.join_folds();
        folded.into_iter().map(|it| it.1).collect()
    }

    fn fold_one(&mut self, key: Key) {
        if let Some(fold) = self.folds.iter_mut().rev().find(|it| it.from <= key) {
            fold.first = fold.first.min(key.1);
            fold.last = fold.last.max(key.1);
        }
    }

    fn join_folds(&mut self) {
        while self.folds.len() > MAX_FOLDS {
            if let Some(last) = self.folds.pop()
                && let Some(before) = self.folds.last_mut()
            {
                before.first = before.first.min(last.first);
                before.last = before.last.max(last.last);
            }
        }
    }

    /// The next offsets to be read again, if a fold is to be opened by `until` or one is being scanned.
    pub(super) fn next_scan(&mut self, until: Timestamp) -> Option<Range<i64>> {
        let has_room = self.far.len() <= self.index_limit / 2;
        if self.scan.is_none()
            && has_room
            && self.folds.first().is_some_and(|it| it.from.0 <= until)
        {
            let fold = self.folds.remove(0);
            let until = self
                .folds
                .first()
                .map_or((Timestamp::from_millis(i64::MAX), i64::MAX), |it| it.from);
            self.scan = Some(Scan { fold, until, next: fold.first, asked: None });
        }
        let scan = self.scan.as_mut().filter(|it| it.asked.is_none())?;
        let piece = scan.asked.insert(Piece::from(scan.next, scan.fold.last));
        Some(piece.range())
    }

    /// Whether a record that was read again belongs to the fold that is being scanned.
    pub(super) fn is_scanned(&self, key: Key) -> bool {
        self.scan.as_ref().is_some_and(|it| {
            (it.next..=it.fold.last).contains(&key.1) && (it.fold.from..it.until).contains(&key)
        })
    }

    /// Tells that a record was read again.
    pub(super) fn came(&mut self, offset: i64) {
        if let Some(piece) = self.scan.as_mut().and_then(|it| it.asked.as_mut()) {
            piece.came(offset);
        }
    }

    /// Tells that a piece of a scan was read to its end, or that it must be asked for again. Returns the piece if it was read.
    pub(super) fn scanned(&mut self, range: &Range<i64>, is_whole: bool) -> Option<Piece> {
        let scan = self.scan.as_mut()?;
        let piece = scan.asked.take_if(|it| it.range() == *range)?;
        if is_whole {
            scan.next = range.end;
            if scan.next > scan.fold.last || scan.until <= scan.fold.from {
                self.scan = None;
            }
        }
        Some(piece).filter(|_| is_whole)
    }
}
