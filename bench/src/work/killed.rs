//! (7) kill -9 in the middle, twice: what was lost, duplicated, early or out of order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Case, Work};
use crate::bench::{Bench, Running, Scale};
use crate::ledger::{self, Entry, Follower, What};
use crate::measure::Sample;
use crate::task::Task;
use crate::topics::Filling;
use crate::turn::{Engine, Turn};

pub(crate) struct Killed;

pub(crate) const CASE: &str = "killed twice";

const KEYS: u64 = 1000;

/// After how long it is over in which nothing begins and nothing ends: for an engine that is to be killed, and for the one that is to come to the end.
const PATIENCE: (Duration, Duration) = (Duration::from_secs(12), Duration::from_secs(20));

fn filling(scale: Scale) -> Filling {
    let records = if scale.is_quick { 5_000 } else { 60_000 };
    Filling { records, size: 100, keys: KEYS }
}

impl Work for Killed {
    fn name(&self) -> &'static str {
        "killed"
    }

    fn title(&self) -> &'static str {
        "kill -9 in the middle"
    }

    fn about(&self) -> &'static str {
        "60,000 records of 1,000 keys with order per key; a tenth fails once; the handler takes 1 ms. The engine is killed after three and after six tenths of the records and started again at once. Never ended: what has not when nothing has moved for 20 s. Out of order: a run that begins before an earlier record of its key has ended for the first time; that a key begins anew after a kill is no fault. Early: before the delay was over that began with the failure, which a record that has no earlier attempt any more cannot be (Parallel Consumer forgets them when it is killed). Runs since the last commit are duplicated: all engines promise at least once. Delays are of 200 ms to 1 s, in Spring of 200 ms: its retry topic does not hold the rest of a key back, and nothing is out of order there only because its three threads come to the next record of a key later than that. Why records of Parallel Consumer do not end was not looked into; runs behind them count as out of order."
    }

    fn cases(&self) -> Vec<Case> {
        vec![Case::new(CASE, CASE, &[Engine::Ordered, Engine::SpringTuned, Engine::Parallel])]
    }

    fn lasts(&self, _: Scale) -> u64 {
        35
    }

    fn fillings(&self, scale: Scale, _: &Case, _: Engine) -> Vec<Filling> {
        vec![filling(scale)]
    }

    fn turn(&self, bench: &mut Bench, _: &Case, engine: Engine) -> Result<Sample> {
        let filling = filling(bench.scale);
        let task = Task { percent: 10, delay: 200, delay_max: 1000, takes: 1, ..Task::default() };
        let mut turn = bench.next_turn(filling, task)?;
        let ledger = bench.ledger(&turn.name);
        (turn.endless, turn.ledger, turn.ordered) = (true, Some(ledger.clone()), true);
        (turn.concurrency, turn.session) = (64, 3000);
        bench.prepare(engine, &mut turn)?;
        let began = Instant::now();
        let ended = until_over(bench, engine, &turn, &ledger);
        let took = began.elapsed();
        let entries = ledger::read(&ledger);
        bench.clean(&turn)?;
        ended?;
        let delay = |number| match engine {
            // A retry topic of Spring's has one delay.
            Engine::SpringTuned => Duration::from_millis(turn.task.delay),
            _ => turn.task.delay(number),
        };
        let mut sample = judge(&entries?, filling.records, delay);
        sample.set("took", took.as_secs_f64());
        sample.set("records", filling.records as f64);
        Ok(sample)
    }
}

/// Two engines are killed on the way; the third one comes to an end.
fn until_over(bench: &Bench, engine: Engine, turn: &Turn, ledger: &Path) -> Result<()> {
    for share in [3, 6] {
        let running = bench.start(engine, turn)?;
        follow(running, ledger, turn.records * share / 10, PATIENCE.0)?.kill()?;
    }
    let running = bench.start(engine, turn)?;
    follow(running, ledger, turn.records, PATIENCE.1)?.kill()
}

/// Waits until so many records have ended, or until nothing moves any more.
fn follow(
    mut running: Running,
    ledger: &Path,
    records: u64,
    patience: Duration,
) -> Result<Running> {
    let (mut follower, mut ended) = (Follower::new(ledger, 0), BTreeSet::new());
    let mut moved = Instant::now();
    loop {
        let entries = follower.next_entries()?;
        if !entries.is_empty() {
            let done = entries.iter().filter(|it| it.what == What::Done);
            ended.extend(done.map(|it| it.number));
            if ended.len() as u64 >= records {
                return Ok(running);
            }
            moved = Instant::now();
        }
        if moved.elapsed() > patience {
            return Ok(running);
        }
        anyhow::ensure!(running.is_alive()?, "it ended by itself");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// How often each record ended.
fn counts(entries: &[Entry]) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for entry in entries.iter().filter(|it| it.what == What::Done) {
        *counts.entry(entry.number).or_default() += 1;
    }
    counts
}

fn judge(entries: &[Entry], records: u64, delay: impl Fn(u64) -> Duration) -> Sample {
    let ended = counts(entries);
    let mut sample = Sample::default();
    sample.set("lost", (records - ended.len() as u64) as f64);
    sample.set("duplicated", ended.values().map(|it| it - 1).sum::<u64>() as f64);
    ledger::tell_early(&ledger::early(entries, delay), &mut sample);
    sample.set("out_of_order", overtaken(entries) as f64);
    sample
}

/// How many runs began before an earlier record of their key had ended.
fn overtaken(entries: &[Entry]) -> u64 {
    // The next number of each key that has not ended, and those beyond it that have.
    let mut open: BTreeMap<u64, (u64, Vec<u64>)> = BTreeMap::new();
    let mut count = 0;
    for entry in entries {
        let key = entry.number % KEYS;
        let (next, beyond) = open.entry(key).or_insert((key, Vec::new()));
        match entry.what {
            What::Start if entry.number > *next => count += 1,
            What::Done if entry.number >= *next => {
                beyond.push(entry.number);
                while let Some(index) = beyond.iter().position(|it| it == next) {
                    beyond.swap_remove(index);
                    *next += KEYS;
                }
                beyond.retain(|it| it >= next);
            }
            _ => {}
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(what: What, number: u64, late: Option<i64>) -> Entry {
        Entry { number, at: 0, late, attempt: 0, what }
    }

    #[test]
    fn what_went_wrong_is_found() {
        use What::{Done, Start};
        let entries = [
            entry(Start, 0, None),
            // Overtakes 0.
            entry(Start, KEYS, None),
            entry(Done, KEYS, None),
            entry(Done, 0, None),
            entry(Start, 2 * KEYS, Some(-1)),
            entry(Done, 2 * KEYS, None),
            // Runs again, in order.
            entry(Start, KEYS, Some(5)),
            entry(Done, KEYS, None),
        ];
        let sample = judge(&entries, 4, |_| Duration::ZERO);
        let found = ["lost", "duplicated", "early", "out_of_order"].map(|it| sample.get(it));
        assert_eq!(found, [Some(1.0); 4]);
    }
}
