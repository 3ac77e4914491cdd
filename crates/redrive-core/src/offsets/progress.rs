//! Which records of a partition are settled, while they come and settle in any order.

use std::collections::BTreeSet;
use std::ops::Range;

use super::ahead::Ahead;
use super::blocks::{Block, BlockId, Blocks, Written};
use super::map::{Fence, Mark, SettledMap};
use super::runs::Runs;
use crate::mutation::{self, Mutation};
use crate::time::Timestamp;

/// Progress in one partition.
///
/// Cost: a record that comes or settles costs a look-up among what is pending; a commit costs what changed since the
/// last one, never the distance between the commit point and the tail.
#[derive(Debug)]
pub struct Progress {
    /// The next offset to be read.
    position: i64,
    /// The records that were read and are not settled, but for those that are folded away.
    pending: Runs,
    /// Unsettled records of which nothing but the offset is known.
    folded: Runs,
    /// What the next commit says, but for its commit point.
    map: SettledMap,
    /// What is in the map's `early`, as far as the due times are known.
    ahead: Ahead,
    /// The map's blocks, since it does not fit the metadata.
    blocks: Option<Blocks>,
    /// The blocks that are in the state topic.
    stored: BTreeSet<BlockId>,
    /// What is settled only if the next commit is accepted.
    for_now: ForNow,
}

/// What may have to be taken back.
#[derive(Debug, Default)]
struct ForNow {
    settled: Vec<(i64, Option<Timestamp>)>,
    /// What was in the map's `early` and is below the new commit point.
    early: Runs,
}

/// What is to be committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The commit point.
    pub offset: i64,
    /// The map, as text.
    pub metadata: String,
    /// The blocks that the map names.
    pub names: Vec<BlockId>,
    /// Those of them that must be stored before the commit.
    pub to_store: Vec<Block>,
    /// How far the map speaks. What is settled from here on would run again after a restart.
    pub high: i64,
}

impl Progress {
    /// Goes on from what a map says, and from the blocks of the partition that are in the state topic, whoever stored
    /// them.
    pub fn resume(map: SettledMap, stored: impl IntoIterator<Item = BlockId>) -> Self {
        Self {
            position: map.commit_point,
            pending: Runs::new(),
            folded: Runs::new(),
            map,
            ahead: Ahead::new(),
            blocks: None,
            stored: stored.into_iter().collect(),
            for_now: ForNow::default(),
        }
    }

    /// The next offset to be read.
    pub fn position(&self) -> i64 {
        self.position
    }

    /// Tells that the record at `offset` was read, with the due time in its own header. Offsets that were passed over are
    /// settled: nobody will ever deliver them.
    ///
    /// Returns whether the record is still to be run. One that was read before is not.
    pub fn saw(&mut self, offset: i64, due: Option<Timestamp>) -> bool {
        if offset < self.position {
            return false;
        }
        self.pass(offset);
        self.position = offset + 1;
        // What the map does not speak of yet is not settled.
        if offset < self.map.high && self.map.is_settled(offset, due) {
            if let Some(due) = due.filter(|_| self.map.early.contains(offset)) {
                self.ahead.note(Mark { due, offset });
            }
            return false;
        }
        self.pending.insert(offset);
        if self.is_passed(offset, due) {
            self.open(offset);
        }
        self.map.high = self.map.high.max(self.position);
        true
    }

    /// Tells that nothing below `offset` will be delivered any more.
    pub fn pass(&mut self, offset: i64) {
        if offset <= self.position {
            return;
        }
        // The map may have listed offsets that were deleted since.
        let gone = self.position..offset;
        self.close_range(gone);
        self.position = offset;
        self.map.high = self.map.high.max(offset);
    }

    /// Tells that a record is settled. Returns false if it was not pending.
    pub fn settle(&mut self, offset: i64, due: Option<Timestamp>) -> bool {
        if !self.pending.remove(offset) {
            return false;
        }
        let was_open = self.map.open.remove(offset);
        if was_open && let Some(blocks) = &mut self.blocks {
            blocks.open.toggle(offset);
        }
        // One may be listed as open before the mark has passed it.
        if (!was_open || !self.is_passed(offset, due))
            && let Some(due) = due
        {
            self.ahead.note(Mark { due, offset });
            if self.map.early.insert(offset)
                && let Some(blocks) = &mut self.blocks
            {
                blocks.early.toggle(offset);
            }
        }
        true
    }

    /// Tells that neighbours are settled that have no due time of their own. All of them have to be pending.
    pub fn settle_range(&mut self, range: Range<i64>) {
        self.pending.remove_range(range.clone());
        self.close_range(range);
    }

    /// Lists a pending record as not settled, so that the mark may pass it.
    pub fn keep_open(&mut self, offset: i64) {
        if self.pending.contains(offset) {
            self.open(offset);
        }
    }

    /// Who owned the partition at the last commit, or owns it now.
    pub fn fence(&self) -> Option<Fence> {
        self.map.fence
    }

    /// Sets who owns the partition from the next commit on.
    pub fn set_fence(&mut self, fence: Fence) {
        self.map.fence = Some(fence);
    }

    /// Tells that a record is settled if the next commit is accepted, and else is not.
    pub fn settle_for_now(&mut self, offset: i64, due: Option<Timestamp>) {
        if self.settle(offset, due) {
            self.for_now.settled.push((offset, due));
        }
    }

    /// Tells that what is settled for now is not.
    pub fn take_back(&mut self) {
        let ForNow { settled, early } = std::mem::take(&mut self.for_now);
        if settled.is_empty() {
            return;
        }
        // The commit point goes back: what is above it is to be said again.
        early.iter().for_each(|run| self.map.early.insert_range(run));
        for (offset, due) in settled {
            self.pending.insert(offset);
            if self.is_passed(offset, due) {
                self.map.open.insert(offset);
            } else {
                self.map.early.remove(offset);
            }
        }
        self.blocks = None;
    }

    /// Whether the record was read and is not settled.
    pub fn is_pending(&self, offset: i64) -> bool {
        self.pending.contains(offset)
    }

    /// Whether a record that was read is settled, given the due time in its own header.
    pub fn is_settled(&self, offset: i64, due: Option<Timestamp>) -> bool {
        offset < self.position && self.map.is_settled(offset, due)
    }

    /// A pending record is folded away. It stays unsettled, and is not pending until it is taken up again.
    pub fn fold(&mut self, offset: i64) {
        if self.pending.remove(offset) {
            self.folded.insert(offset);
        }
    }

    /// Takes a record up again. Returns whether it was folded away.
    pub fn unfold(&mut self, offset: i64) -> bool {
        let is_folded = self.folded.remove(offset)
            || (mutation::is(Mutation::ScanSettled) && !self.is_pending(offset));
        if is_folded {
            self.pending.insert(offset);
        }
        is_folded
    }

    /// What is folded away.
    pub fn folded(&self) -> &Runs {
        &self.folded
    }

    /// Records that were folded away are not in the log any more. They count as settled.
    pub fn lose_folded(&mut self, gone: Range<i64>) {
        self.folded.remove_range(gone.clone());
        self.close_range(gone);
    }

    /// The lowest offset that is not settled, or that was not read yet.
    pub fn commit_point(&self) -> i64 {
        let folded = self.folded.first().filter(|_| !mutation::is(Mutation::CommitPastFolded));
        self.pending.first().into_iter().chain(folded).min().unwrap_or(self.position)
    }

    /// Moves the mark on: every record with a due time that comes before it is settled, but for those `running`.
    pub fn advance(&mut self, to: Mark, running: impl IntoIterator<Item = Mark>) {
        // Until everything was read again that the map speaks of, nobody knows what waits there.
        let is_catching_up =
            self.position < self.map.high && !mutation::is(Mutation::AdvanceWhileCatchingUp);
        if is_catching_up || self.map.mark.is_some_and(|mark| to <= mark) {
            return;
        }
        let before = self.map.mark.replace(to);
        for it in running {
            let newly_passed = it < to && before.is_none_or(|before| it >= before);
            if newly_passed && self.pending.contains(it.offset) {
                self.open(it.offset);
            }
        }
        self.ahead.pass(to, |offset| {
            if self.map.early.remove(offset)
                && let Some(blocks) = &mut self.blocks
            {
                blocks.early.toggle(offset);
            }
        });
    }

    /// What is to be committed now, within `max_chars` characters of metadata.
    pub fn commit(&mut self, cluster: &str, max_chars: usize) -> Commit {
        let offset = self.commit_point();
        self.map.commit_point = offset;
        if !self.for_now.settled.is_empty() {
            let early = self.map.early.within(i64::MIN..offset);
            early.for_each(|run| self.for_now.early.insert_range(run));
        }
        self.forget_below(offset);
        if let Some(text) = self.map.write(cluster, max_chars) {
            self.blocks = None;
            let (names, to_store) = (Vec::new(), Vec::new());
            return Commit { offset, metadata: text, names, to_store, high: self.map.high };
        }
        let blocks = self.blocks.get_or_insert_with(|| Blocks::of(&self.map));
        let Written { text, names, high } = blocks.write(&self.map, cluster, max_chars);
        let new = names.iter().filter(|it| !self.stored.contains(it));
        let to_store = new.filter_map(|id| blocks.get(*id).cloned()).collect();
        Commit { offset, metadata: text, names, to_store, high }
    }

    /// Tells that a block is in the state topic.
    pub fn stored(&mut self, id: BlockId) {
        self.stored.insert(id);
    }

    /// Tells that a commit that names these blocks was accepted. Returns the blocks that nothing names any more.
    pub fn committed(&mut self, names: &[BlockId]) -> Vec<BlockId> {
        self.for_now = ForNow::default();
        let named: BTreeSet<_> = names.iter().collect();
        self.stored.extract_if(.., |it| !named.contains(it)).collect()
    }

    fn forget_below(&mut self, offset: i64) {
        self.map.forget_below(offset);
        self.ahead.forget_below(offset);
        if let Some(blocks) = &mut self.blocks {
            blocks.forget_below(offset);
        }
    }

    /// Lists a record that is not settled.
    fn open(&mut self, offset: i64) {
        if self.map.open.insert(offset)
            && let Some(blocks) = &mut self.blocks
        {
            blocks.open.toggle(offset);
        }
    }

    /// Lists none of these any more.
    fn close_range(&mut self, range: Range<i64>) {
        if let Some(blocks) = &mut self.blocks {
            let listed = self.map.open.within(range.clone());
            listed.for_each(|run| blocks.open.toggle_range(run));
        }
        self.map.open.remove_range(range);
    }

    /// Whether a record at this place counts as settled unless it is listed.
    fn is_passed(&self, offset: i64, due: Option<Timestamp>) -> bool {
        due.is_none_or(|due| self.map.mark.is_some_and(|mark| Mark { due, offset } < mark))
    }
}
