//! Which records of a partition are settled, while they come and settle in any order.

use std::collections::{BTreeMap, BTreeSet};

use super::ahead::Ahead;
use super::map::{Block, BlockId, Mark, SettledMap, block_of, stretch_of};
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
    /// The records that were read and are not settled.
    pending: Runs,
    /// What the next commit says, but for its commit point.
    map: SettledMap,
    /// What is in the map's `early`, as far as the due times are known.
    ahead: Ahead,
    /// The blocks of the last commits, by stretch; without one where something has changed.
    blocks: BTreeMap<u64, Option<Block>>,
    /// The stretch that is without one since the last change.
    last_changed: Option<u64>,
    /// The blocks that are in the state topic.
    stored: BTreeSet<BlockId>,
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
            map,
            ahead: Ahead::new(),
            blocks: BTreeMap::new(),
            last_changed: None,
            stored: stored.into_iter().collect(),
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
        if self.is_passed(offset, due) && self.map.open.insert(offset) {
            self.changed(offset);
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
        let listed: Vec<_> = self.map.open.within(gone.clone()).collect();
        for run in listed {
            for stretch in stretch_of(run.start)..=stretch_of(run.end - 1) {
                self.blocks.insert(stretch, None);
            }
        }
        self.map.open.remove_range(gone);
        self.position = offset;
        self.map.high = self.map.high.max(offset);
    }

    /// Tells that a record is settled. Returns false if it was not pending.
    pub fn settle(&mut self, offset: i64, due: Option<Timestamp>) -> bool {
        if !self.pending.remove(offset) {
            return false;
        }
        if self.map.open.remove(offset) {
            self.changed(offset);
        } else if let Some(due) = due {
            self.map.early.insert(offset);
            self.ahead.note(Mark { due, offset });
            self.changed(offset);
        }
        true
    }

    /// Whether the record was read and is not settled.
    pub fn is_pending(&self, offset: i64) -> bool {
        self.pending.contains(offset)
    }

    /// Whether a record that was read is settled, given the due time in its own header.
    pub fn is_settled(&self, offset: i64, due: Option<Timestamp>) -> bool {
        offset < self.position && self.map.is_settled(offset, due)
    }

    /// Forgets where a pending record is. It stays unsettled, and whoever forgets it knows the lowest such offset.
    pub fn fold(&mut self, offset: i64) {
        self.pending.remove(offset);
    }

    /// Remembers a record again.
    pub fn unfold(&mut self, offset: i64) {
        self.pending.insert(offset);
    }

    /// The lowest offset that is not settled, or that was not read yet, folded ones left out.
    pub fn commit_point(&self) -> i64 {
        self.pending.first().unwrap_or(self.position)
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
            if newly_passed && self.pending.contains(it.offset) && self.map.open.insert(it.offset) {
                self.changed(it.offset);
            }
        }
        let mut ahead = std::mem::replace(&mut self.ahead, Ahead::new());
        ahead.pass(to, |offset| {
            if self.map.early.remove(offset) {
                self.changed(offset);
            }
        });
        self.ahead = ahead;
    }

    /// What is to be committed now, within `max_chars` characters of metadata. Nothing that is folded is below `floor`.
    pub fn commit(&mut self, floor: Option<i64>, cluster: &str, max_chars: usize) -> Commit {
        let offset = floor.into_iter().fold(self.commit_point(), i64::min);
        self.map.commit_point = offset;
        self.forget_below(offset);
        self.last_changed = None;
        let (open, early, blocks) = (&self.map.open, &self.map.early, &mut self.blocks);
        let written = self.map.write(cluster, max_chars, |stretch| {
            let slot = blocks.entry(stretch).or_default();
            if slot.is_none() {
                *slot = block_of(stretch, open, early);
            }
            slot.clone()
        });
        let names = written.blocks.iter().map(|it| it.id).collect();
        let is_new = |it: &Block| !self.stored.contains(&it.id);
        let to_store = written.blocks.into_iter().filter(is_new).collect();
        Commit { offset, metadata: written.text, names, to_store, high: written.high }
    }

    /// Tells that a block is in the state topic.
    pub fn stored(&mut self, id: BlockId) {
        self.stored.insert(id);
    }

    /// Tells that a commit that names these blocks was accepted. Returns the blocks that nothing names any more.
    pub fn committed(&mut self, names: &[BlockId]) -> Vec<BlockId> {
        let obsolete: Vec<_> =
            self.stored.iter().filter(|it| !names.contains(it)).copied().collect();
        self.stored.retain(|it| names.contains(it));
        obsolete
    }

    /// Below the commit point everything is settled, so nothing need be said of it.
    fn forget_below(&mut self, offset: i64) {
        self.map.early.remove_range(i64::MIN..offset);
        self.ahead.forget_below(offset);
        self.blocks = self.blocks.split_off(&stretch_of(offset));
    }

    /// Whether a record at this place counts as settled unless it is listed.
    fn is_passed(&self, offset: i64, due: Option<Timestamp>) -> bool {
        due.is_none_or(|due| self.map.mark.is_some_and(|mark| Mark { due, offset } < mark))
    }

    fn changed(&mut self, offset: i64) {
        let stretch = stretch_of(offset);
        if self.last_changed != Some(stretch) {
            self.last_changed = Some(stretch);
            self.blocks.insert(stretch, None);
        }
    }
}
