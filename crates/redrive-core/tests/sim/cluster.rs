//! A Kafka cluster in memory: logs with gaps, a group's offsets, and a state topic.

use std::collections::BTreeMap;
use std::rc::Rc;

use redrive_core::headers::Header;
use redrive_core::offsets::BlockId;

use crate::rng::Rng;

/// A topic and a partition of it.
pub type Partition = (usize, usize);

/// A record in a log.
#[derive(Debug, PartialEq, Eq)]
pub struct Record {
    /// Who it is, through all its copies.
    pub id: u64,
    pub headers: Vec<(String, Vec<u8>)>,
    pub appended_at: i64,
    pub bytes: usize,
}

impl Record {
    pub fn headers(&self) -> Vec<Header<'_>> {
        self.headers.iter().map(|(name, value)| Header::new(name, value)).collect()
    }
}

#[derive(Debug, Default)]
pub struct Log {
    pub records: BTreeMap<i64, Rc<Record>>,
    /// What retention has deleted, and when.
    pub deleted: BTreeMap<i64, (Rc<Record>, i64)>,
    pub start: i64,
    pub end: i64,
    /// The records of transactions that are open, by where each begins.
    pub open: BTreeMap<i64, Vec<i64>>,
}

impl Log {
    /// The last stable offset: how far readers may go.
    pub fn stable(&self) -> i64 {
        self.open.first_key_value().map_or(self.end, |it| *it.0)
    }
}

/// What the group committed for a partition.
#[derive(Clone, Debug, Default)]
pub struct Committed {
    pub offset: i64,
    pub metadata: String,
    /// From where on the map could not say what is settled.
    pub cut: Option<i64>,
}

#[derive(Debug, Default)]
pub struct Cluster {
    pub logs: BTreeMap<Partition, Log>,
    pub offsets: BTreeMap<Partition, Committed>,
    pub blocks: BTreeMap<(Partition, BlockId), Vec<u8>>,
    /// Who owns a partition: a member and the generation it got it in.
    pub owners: BTreeMap<Partition, (usize, u64)>,
    pub generation: u64,
    /// When records could be read that a transaction had held back, by who they are.
    pub released: BTreeMap<u64, i64>,
}

impl Cluster {
    /// Appends a record, sometimes behind an offset that is never delivered.
    pub fn append(
        &mut self,
        at: Partition,
        id: u64,
        headers: Vec<(String, Vec<u8>)>,
        now: i64,
        rng: &mut Rng,
    ) -> i64 {
        let log = self.logs.entry(at).or_default();
        if rng.one_in(12) {
            log.end += rng.range(1, 3);
        }
        let offset = log.end;
        let bytes = 50 + rng.below(350);
        log.records.insert(offset, Rc::new(Record { id, headers, appended_at: now, bytes }));
        log.end += 1;
        offset
    }

    /// Ends the transaction that begins at `first`. Returns what was taken back.
    pub fn end_transaction(
        &mut self,
        at: Partition,
        first: i64,
        commits: bool,
        now: i64,
    ) -> Vec<Rc<Record>> {
        let log = self.logs.entry(at).or_default();
        let before = log.stable();
        let offsets = log.open.remove(&first).unwrap_or_default();
        // Its marker.
        log.end += 1;
        let aborted = offsets.into_iter().filter(|_| !commits);
        let aborted = aborted.filter_map(|it| log.records.remove(&it)).collect();
        let readable = log.records.range(before..log.stable());
        self.released.extend(readable.map(|it| (it.1.id, now)));
        aborted
    }

    /// Deletes what is older than the topic keeps.
    pub fn retain(&mut self, at: Partition, oldest: i64, now: i64) {
        if let Some(log) = self.logs.get_mut(&at) {
            while let Some((offset, record)) = log.records.first_key_value() {
                if record.appended_at >= oldest {
                    break;
                }
                log.start = offset + 1;
                log.deleted.insert(*offset, (Rc::clone(record), now));
                log.records.pop_first();
            }
        }
    }

    /// Whether the member may still commit for the partition.
    pub fn is_owner(&self, at: Partition, member: usize, generation: u64) -> bool {
        self.owners.get(&at) == Some(&(member, generation))
    }
}
