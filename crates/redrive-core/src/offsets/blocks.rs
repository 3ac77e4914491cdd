//! What does not fit the metadata, in blocks.
//!
//! A block speaks of a stretch of 65,536 offsets as it was when the block was written. What has changed since is listed in
//! the commit's own text, so that a commit costs what changed and most store nothing. When the list grows too long, the
//! stretches with the most changes are written anew, until there is room for as many changes again.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::map::SettledMap;
use super::runs::Runs;
use super::wire::{Writer, bytes_in, hash, to_text};

/// How many offsets a block speaks of.
const STRETCH: i64 = 1 << 16;

/// A stretch with so few runs needs no block: its name would be as long.
const FEW_RUNS: usize = 1;

/// A stretch with more runs gets a block at once when the map does not fit.
const MANY_RUNS: usize = 256;

/// How many bytes a name and a run take in the metadata, roughly.
const NAME_BYTES: usize = 9;
const RUN_BYTES: usize = 4;

/// A piece of a map that did not fit the metadata. It is immutable: its name is a hash of what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// Its name, and what it speaks of.
    pub id: BlockId,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// The name of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId {
    /// Which of the partition's stretches of 65,536 offsets it speaks of.
    pub stretch: u64,
    /// The hash of what it says.
    pub hash: u64,
}

impl BlockId {
    /// The offsets that it speaks of.
    pub(super) fn offsets(self) -> Option<Range<i64>> {
        offsets_of(self.stretch)
    }
}

/// A map that does not fit the metadata: its blocks, and what they do not say.
#[derive(Debug)]
pub(super) struct Blocks {
    /// By stretch.
    written: BTreeMap<u64, Block>,
    /// What is in one of map and blocks, but not in both.
    pub(super) open: Runs,
    pub(super) early: Runs,
}

/// A map as it is committed.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) text: String,
    /// The blocks that it names.
    pub(super) names: Vec<BlockId>,
    /// How far it speaks. Lower than the map's own where even blocks did not suffice.
    pub(super) high: i64,
}

impl Blocks {
    /// Blocks for the parts of a map that take much room.
    pub(super) fn of(map: &SettledMap) -> Self {
        let mut blocks = Self { written: BTreeMap::new(), open: Runs::new(), early: Runs::new() };
        let mut listed = ALL.start;
        for (stretch, _) in stretches([&map.open, &map.early], |runs| runs > MANY_RUNS) {
            if let Some(offsets) = offsets_of(stretch) {
                blocks.list(map, listed..offsets.start);
                blocks.renew(map, stretch);
                listed = offsets.end;
            }
        }
        blocks.list(map, listed..ALL.end);
        blocks
    }

    /// The block that has this name.
    pub(super) fn get(&self, id: BlockId) -> Option<&Block> {
        self.written.get(&id.stretch).filter(|it| it.id == id)
    }

    /// Nothing need be said of what is below the commit point.
    pub(super) fn forget_below(&mut self, offset: i64) {
        self.written = self.written.split_off(&stretch_of(offset));
        self.open.remove_below(offset);
        self.early.remove_below(offset);
    }

    /// The map's text, of at most `max_chars` characters.
    pub(super) fn write(&mut self, map: &SettledMap, cluster: &str, max_chars: usize) -> Written {
        let max_bytes = bytes_in(max_chars);
        let mut high = map.high;
        let mut body = self.body(map, cluster, high, max_bytes);
        if body.is_none() {
            self.make_room(map, cluster, max_bytes);
            body = self.body(map, cluster, high, max_bytes);
        }
        if body.is_none() {
            high = self.cut(map, cluster, max_bytes);
            body = self.body(map, cluster, high, max_bytes);
        }
        if let Some(body) = body {
            return Written { text: to_text(&body), names: self.names(high), high };
        }
        let mut nothing = SettledMap::starting_at(map.commit_point);
        nothing.fence = map.fence;
        let body = nothing.body(cluster, nothing.high, [&Runs::new(); 2], &[], usize::MAX);
        let text = to_text(&body.unwrap_or_default());
        Written { text, names: Vec::new(), high: nothing.high }
    }

    /// What the metadata says up to `high`, if it fits.
    fn body(
        &self,
        map: &SettledMap,
        cluster: &str,
        high: i64,
        max_bytes: usize,
    ) -> Option<Vec<u8>> {
        map.body(cluster, high, [&self.open, &self.early], &self.names(high), max_bytes)
    }

    fn names(&self, high: i64) -> Vec<BlockId> {
        let below = self.written.range(..stretch_of(high.saturating_add(STRETCH - 1)));
        below.map(|it| it.1.id).collect()
    }

    /// Writes stretches anew, those with the most changes first, until what is left takes half of the room beside the names.
    fn make_room(&mut self, map: &SettledMap, cluster: &str, max_bytes: usize) {
        let mut heaviest = stretches([&self.open, &self.early], |_| true);
        heaviest.sort_unstable_by_key(|it| Reverse(it.1));
        let mut left: usize = heaviest.iter().map(|it| it.1).sum();
        for (stretch, runs) in heaviest {
            if runs <= FEW_RUNS && !self.written.contains_key(&stretch) {
                continue;
            }
            let names = max_bytes.min(self.written.len() * NAME_BYTES);
            let aim = names.midpoint(max_bytes);
            if left * RUN_BYTES + names <= aim && self.body(map, cluster, map.high, aim).is_some() {
                return;
            }
            self.renew(map, stretch);
            left -= runs;
        }
    }

    /// Writes the block of a stretch anew, so that nothing of it is left to be said.
    fn renew(&mut self, map: &SettledMap, stretch: u64) {
        let Some(offsets) = offsets_of(stretch) else {
            return;
        };
        self.open.remove_range(offsets.clone());
        self.early.remove_range(offsets.clone());
        let starts = |runs: &Runs| runs.starts(offsets.clone()).map(|it| it.1).sum::<usize>();
        if starts(&map.open) + starts(&map.early) > FEW_RUNS {
            let mut writer = Writer::default();
            for runs in [&map.open, &map.early] {
                writer.runs(offsets.start, runs, offsets.clone(), usize::MAX);
            }
            let id = BlockId { stretch, hash: hash(&writer.0) };
            self.written.insert(stretch, Block { id, bytes: writer.0 });
        } else {
            self.written.remove(&stretch);
            self.list(map, offsets);
        }
    }

    /// Lists what the map says of these offsets, of which no block speaks.
    fn list(&mut self, map: &SettledMap, offsets: Range<i64>) {
        map.open.within(offsets.clone()).for_each(|run| self.open.insert_range(run));
        map.early.within(offsets).for_each(|run| self.early.insert_range(run));
    }

    /// How far the map can speak where it cannot say all: what is settled beyond will run again after a restart.
    fn cut(&self, map: &SettledMap, cluster: &str, max_bytes: usize) -> i64 {
        let start = |stretch| {
            offsets_of(stretch).map_or(map.commit_point, |it| it.start).max(map.commit_point)
        };
        let (mut fits, mut last) = (stretch_of(map.commit_point), stretch_of(map.high));
        while fits < last {
            let middle = last - (last - fits) / 2;
            if self.body(map, cluster, start(middle), max_bytes).is_some() {
                fits = middle;
            } else {
                last = middle - 1;
            }
        }
        start(fits)
    }
}

const ALL: Range<i64> = i64::MIN..i64::MAX;

/// How many runs begin in each stretch, of those where something does, in order.
fn stretches(sets: [&Runs; 2], are_wanted: impl Fn(usize) -> bool) -> Vec<(u64, usize)> {
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for set in sets {
        let chunks = set.starts(ALL).map(|(offset, runs)| (stretch_of(offset), runs));
        let mut chunks = chunks.peekable();
        while let Some((stretch, mut runs)) = chunks.next() {
            while let Some(more) = chunks.next_if(|it| it.0 == stretch) {
                runs += more.1;
            }
            *counts.entry(stretch).or_default() += runs;
        }
    }
    counts.into_iter().filter(|it| it.1 > 0 && are_wanted(it.1)).collect()
}

fn stretch_of(offset: i64) -> u64 {
    offset.max(0).unsigned_abs() / STRETCH.unsigned_abs()
}

fn offsets_of(stretch: u64) -> Option<Range<i64>> {
    let start = i64::try_from(stretch).ok()?.checked_mul(STRETCH)?;
    Some(start..start.checked_add(STRETCH)?)
}
