//! What handlers say that they did, in a file that outlives them.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

/// Where a member writes.
pub struct Ledger(File);

/// The wall clock in milliseconds.
pub fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl Ledger {
    /// Opens a file to be added to.
    ///
    /// # Errors
    ///
    /// The file cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self(file.with_context(|| format!("{} cannot be opened", path.display()))?))
    }

    /// Writes a line at once: what is written is there, even after a kill -9.
    pub fn write(&self, line: &str) {
        let _ = (&self.0).write_all(format!("{line}\n").as_bytes());
    }

    /// A partition was taken over, whose entities' events run in order.
    pub fn owns(&self, topic: &str, partition: i32, epoch: u64) {
        self.write(&format!("own {topic}/{partition} {epoch} {}", now()));
    }

    /// A partition went to somebody else.
    pub fn gives(&self, topic: &str, partition: i32) {
        self.write(&format!("give {topic}/{partition} {}", now()));
    }

    /// A run begins.
    pub fn started(&self, id: u64, attempt: u64, due: i64) {
        self.write(&format!("start {id} {attempt} {due} {}", now()));
    }

    /// A run ends, well or not.
    pub fn ended(&self, id: u64, attempt: u64, is_done: bool) {
        self.write(&format!("{} {id} {attempt} {}", if is_done { "done" } else { "fail" }, now()));
    }
}

/// What a record went through.
#[derive(Clone, Debug, Default)]
pub struct Life {
    /// How often a run of each attempt began.
    pub starts: BTreeMap<u64, u64>,
    /// When the first run began.
    pub first: Option<i64>,
    /// How often it was done.
    pub done: u64,
    /// How many milliseconds before its time it ran, at the worst.
    pub early: i64,
    /// How many milliseconds after its time each retry ran.
    pub late: Vec<i64>,
}

/// Everything that the ledgers of a directory say, by record.
///
/// # Errors
///
/// They cannot be read.
pub fn read(directory: &Path) -> Result<BTreeMap<u64, Life>> {
    let mut lives: BTreeMap<u64, Life> = BTreeMap::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_none_or(|it| it != "ledger") {
            continue;
        }
        for line in BufReader::new(File::open(&path)?).lines() {
            let line = line?;
            let words: Vec<_> = line.split(' ').collect();
            let number = |index: usize| words.get(index).and_then(|it| it.parse::<i64>().ok());
            let id = number(1).and_then(|it| u64::try_from(it).ok());
            let attempt = number(2).and_then(|it| u64::try_from(it).ok());
            let (Some(id), Some(attempt)) = (id, attempt) else {
                continue;
            };
            let life = lives.entry(id).or_default();
            match (words.first().copied(), number(3), number(4)) {
                (Some("start"), Some(due), Some(at)) => {
                    *life.starts.entry(attempt).or_default() += 1;
                    life.first = Some(life.first.map_or(at, |it| it.min(at)));
                    life.early = life.early.max(due - at);
                    if due > 0 {
                        life.late.push(at - due);
                    }
                }
                (Some("done"), ..) => life.done += 1,
                _ => {}
            }
        }
    }
    Ok(lives)
}
