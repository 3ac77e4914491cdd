//! What handlers did, in a file that outlives them: an entry of 32 bytes for each thing, written at once.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::measure::{Sample, micros};

const SIZE: usize = 32;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// A run began.
    Start,
    /// It ended well.
    Done,
    /// It failed.
    Fail,
    /// A partition was assigned.
    Assigned,
}

impl What {
    const ALL: [What; 4] = [What::Start, What::Done, What::Fail, What::Assigned];
}

/// One entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) number: u64,
    /// Unix time in microseconds.
    pub(crate) at: i64,
    /// Microseconds beyond the due time, where there is one.
    pub(crate) late: Option<i64>,
    pub(crate) attempt: u32,
    pub(crate) what: What,
}

/// Where an engine writes.
pub(crate) struct Ledger(File);

impl Ledger {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self(file.with_context(|| format!("{} cannot be opened", path.display()))?))
    }

    pub(crate) fn write(&self, what: What, number: u64, attempt: u32, late: Option<i64>) {
        let mut bytes = Vec::with_capacity(SIZE);
        bytes.extend_from_slice(&number.to_be_bytes());
        bytes.extend_from_slice(&micros().to_be_bytes());
        bytes.extend_from_slice(&late.unwrap_or(i64::MIN).to_be_bytes());
        bytes.extend_from_slice(&attempt.to_be_bytes());
        bytes.extend_from_slice(&(what as u32).to_be_bytes());
        // One call, so that entries of two processes do not mix. What cannot be written is missed when they are counted.
        let _ = (&self.0).write_all(&bytes);
    }
}

/// All entries of a file, in the order in which they were written.
pub(crate) fn read(path: &Path) -> Result<Vec<Entry>> {
    Follower::new(path, 0).next_entries()
}

/// Reads a file while it is written, each entry once: to read all of it again and again would take time from who writes it.
pub(crate) struct Follower<'a> {
    path: &'a Path,
    seen: u64,
}

impl<'a> Follower<'a> {
    /// From behind so many entries on.
    pub(crate) fn new(path: &'a Path, seen: u64) -> Self {
        Self { path, seen }
    }

    /// What has come since the last time.
    pub(crate) fn next_entries(&mut self) -> Result<Vec<Entry>> {
        let mut file = match File::open(self.path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            opened => opened?,
        };
        file.seek(SeekFrom::Start(self.seen * SIZE as u64))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let (entries, _) = bytes.as_chunks::<SIZE>();
        self.seen += entries.len() as u64;
        entries.iter().map(|it| entry(it).context("the ledger is broken")).collect()
    }
}

/// The runs that began before their time, each with how much too early it was, in microseconds: before the delay was over that began when the run
/// before them failed, or before the time that the engine itself set. Where a run failed more than once, since an engine was killed, the first time counts.
pub(crate) fn early(entries: &[Entry], delay: impl Fn(u64) -> Duration) -> Vec<i64> {
    let mut failed = HashMap::new();
    for entry in entries.iter().filter(|it| it.what == What::Fail) {
        let first = failed.entry((entry.number, entry.attempt + 1)).or_insert(entry.at);
        *first = entry.at.min(*first);
    }
    let early_by = |it: &Entry| {
        let waits = i64::try_from(delay(it.number).as_micros()).unwrap_or(i64::MAX);
        let failed = failed.get(&(it.number, it.attempt)).copied();
        let seen = failed.map(|at: i64| at.saturating_add(waits) - it.at);
        seen.max(it.late.map(|it| -it)).filter(|it| *it > 0)
    };
    entries.iter().filter(|it| it.what == What::Start).filter_map(early_by).collect()
}

/// Tells how many runs were early, and by how much at the most.
pub(crate) fn tell_early(early: &[i64], sample: &mut Sample) {
    sample.set("early", early.len() as f64);
    if let Some(most) = early.iter().max() {
        sample.set("early_by", *most as f64 / 1000.0);
    }
}

/// How many entries there are.
pub(crate) fn count(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |it| it.len() / SIZE as u64)
}

fn entry(bytes: &[u8; SIZE]) -> Option<Entry> {
    let long = |at: usize| bytes.get(at..)?.first_chunk::<8>().copied();
    let int = |at: usize| bytes.get(at..)?.first_chunk::<4>().copied().map(u32::from_be_bytes);
    let late = i64::from_be_bytes(long(16)?);
    Some(Entry {
        number: u64::from_be_bytes(long(0)?),
        at: i64::from_be_bytes(long(8)?),
        late: (late != i64::MIN).then_some(late),
        attempt: int(24)?,
        what: *What::ALL.get(usize::try_from(int(28)?).ok()?)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_early_by_the_failure_before_it_or_by_what_the_engine_set() {
        let entry = |what, at, attempt, late| Entry { number: 7, at, late, attempt, what };
        let count = |at, late| {
            let entries = [
                entry(What::Start, 0, 0, None),
                entry(What::Fail, 10, 0, None),
                // Once more, since the engine was killed.
                entry(What::Fail, 500, 0, None),
                entry(What::Start, at, 1, late),
            ];
            early(&entries, |_| Duration::from_micros(100))
        };
        assert_eq!([count(108, Some(1)), count(110, Some(0))], [vec![2], vec![]]);
        assert_eq!([count(110, Some(-1)), count(109, None)], [vec![1], vec![1]]);
        assert_eq!(count(110, None).len(), 0);
    }

    #[test]
    fn what_was_written_is_read() {
        let path = std::env::temp_dir().join(format!("bench-ledger-{}", std::process::id()));
        let ledger = Ledger::open(&path).unwrap();
        ledger.write(What::Start, 7, 1, Some(-3));
        ledger.write(What::Assigned, 0, 0, None);
        let mut follower = Follower::new(&path, 1);
        assert_eq!(follower.next_entries().unwrap().len(), 1);
        assert_eq!(follower.next_entries().unwrap().len(), 0);
        let read = read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((read[0].number, read[0].attempt, read[0].late), (7, 1, Some(-3)));
        assert_eq!((read[1].what, read[1].late, read.len()), (What::Assigned, None, 2));
    }
}
