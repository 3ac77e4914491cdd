//! What the handler saw, and what must be true of it.

use std::collections::{BTreeMap, BTreeSet};

use redrive_core::{Failure, Timestamp};

use crate::book::{OrderBook, Start};
use crate::cluster::Partition;
use crate::rng::Rng;
use crate::world::failure;

/// The handler's own book: who ran, who ended, and who may run again.
#[derive(Debug, Default)]
pub struct Ledger {
    produced: u64,
    runs: BTreeMap<u64, u32>,
    done: BTreeSet<u64>,
    dead: BTreeSet<u64>,
    dropped: BTreeSet<u64>,
    aborted: BTreeSet<u64>,
    left_too_long: BTreeSet<u64>,
    forgiven: BTreeSet<u64>,
    started: BTreeSet<(u64, Timestamp)>,
    /// Records whose next stop has them, and whose offsets say so.
    hopped: BTreeSet<(Partition, i64)>,
    /// Who ran in which order.
    pub order: OrderBook,
    /// A promise that was broken.
    pub broken: Option<String>,
}

impl Ledger {
    pub fn produce(&mut self) -> u64 {
        self.produced += 1;
        self.produced
    }

    /// Whether a run of this record succeeds: most do at once, some later, and some never.
    pub fn succeeds(&mut self, id: u64, rng: &mut Rng) -> bool {
        let runs = self.runs.get(&id).copied().unwrap_or(0);
        match id % 10 {
            0 => false,
            1..=3 => runs > 3,
            4 => runs > 1,
            _ => !rng.one_in(20),
        }
    }

    pub fn failure(&mut self, _id: u64, rng: &mut Rng) -> Failure {
        failure(rng)
    }

    pub fn run(&mut self, id: u64, due: Timestamp, clock: Timestamp) {
        *self.runs.entry(id).or_default() += 1;
        self.started.insert((id, due));
        if clock < due {
            self.broken = Some(format!("record {id} runs at {clock}, but is due at {due}"));
        }
        if self.aborted.contains(&id) {
            self.broken = Some(format!("record {id} runs, but its transaction was aborted"));
        }
        if self.has_ended(id) && !self.forgiven.contains(&id) {
            self.broken = Some(format!(
                "record {id} runs again after its end, without a crash or a lost acknowledgement"
            ));
        }
    }

    /// A run of a record of an entity starts, by its lane's owner.
    pub fn start(&mut self, start: Start) {
        let ended = [&self.done, &self.dead, &self.dropped, &self.aborted];
        let broken = self.order.start(start, |id| ended.iter().any(|it| it.contains(&id)));
        self.broken = self.broken.take().or(broken);
    }

    /// An operator sends a dead letter back.
    pub fn redriven(&mut self, id: u64) {
        self.dead.remove(&id);
    }

    /// Whether a record that waited for this time was not started yet.
    pub fn is_first_start(&self, id: u64, due: Timestamp) -> bool {
        due > Timestamp::default() && !self.started.contains(&(id, due))
    }

    pub fn done(&mut self, id: u64) {
        self.done.insert(id);
    }

    pub fn dead_lettered(&mut self, id: u64) {
        self.dead.insert(id);
    }

    pub fn dropped(&mut self, id: u64) {
        self.dropped.insert(id);
    }

    /// Its producer took it back before anybody could read it.
    pub fn aborted(&mut self, id: u64) {
        self.aborted.insert(id);
    }

    /// It was due for so long that retention deleted it: members that cannot keep up lose records, and say so.
    pub fn left_too_long(&mut self, id: u64) {
        self.left_too_long.insert(id);
    }

    /// A record is at its next stop, and its offset says so, in one transaction.
    pub fn hopped(&mut self, at: Partition, offset: i64) {
        self.is_first(at, offset);
        self.hopped.insert((at, offset));
    }

    /// A record that runs or goes to its next stop must not have gone there before.
    pub fn is_first(&mut self, at: Partition, offset: i64) {
        if self.hopped.contains(&(at, offset)) {
            self.broken = Some(format!("{at:?} {offset} went to its next stop before"));
        }
    }

    /// Somebody goes on from a map that says nothing of what is settled from here on.
    pub fn cut(&mut self, at: Partition, high: i64) {
        self.hopped.retain(|it| it.0 != at || it.1 < high);
        self.order.cut(at.1);
    }

    /// Something went wrong that nobody can hide: these may run again.
    pub fn may_run_again(&mut self, ids: impl IntoIterator<Item = u64>) {
        self.forgiven.extend(ids);
    }

    /// Whether every record that was produced has ended.
    pub fn is_complete(&self) -> bool {
        (1..=self.produced).all(|id| self.has_ended(id) || self.left_too_long.contains(&id))
    }

    fn has_ended(&self, id: u64) -> bool {
        [&self.done, &self.dead, &self.dropped, &self.aborted].iter().any(|it| it.contains(&id))
    }

    /// What has not ended.
    pub fn open(&self) -> String {
        let open: Vec<_> = (1..=self.produced).filter(|id| !self.has_ended(*id)).take(10).collect();
        format!("{} produced, without an end: {open:?}", self.produced)
    }
}
