//! (6) A million records of 1 KB that wait: memory, and a clean stop and restart in the middle of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{Case, Work, rated};
use crate::bench::{Bench, Running, Scale};
use crate::ledger::{self, Entry, Follower, What};
use crate::measure::{Sample, micros};
use crate::task::Task;
use crate::topics::Filling;
use crate::turn::{Engine, Turn};

pub(crate) struct Pending;

pub(crate) const CASE: &str = "1 M × 1 KB";

/// How long they wait before it is looked at how much memory that takes: free memory is kept for some time.
const RESTS: Duration = Duration::from_secs(25);

/// How long the restarted engine is watched after its first retry.
const WATCHED: Duration = Duration::from_secs(3);

fn filling(scale: Scale) -> Filling {
    Filling::new(if scale.is_quick { 10_000 } else { 1_000_000 }, 1000)
}

impl Work for Pending {
    fn name(&self) -> &'static str {
        "pending"
    }

    fn title(&self) -> &'static str {
        "A million records wait"
    }

    fn about(&self) -> &'static str {
        "All records fail once, with delays from 5 s to an hour, so that about 280 a second become due. When all have waited for 25 s, the engine is stopped cleanly and started again; the most memory it had was while it published them. The first due run is counted from when the engine told that partitions were assigned, by which it has read where it was, and from the start of its process. A retry topic of Spring\u{2019}s has one delay; Parallel Consumer keeps what waits in memory alone: after a restart each record fails anew. So they are not in it."
    }

    fn cases(&self) -> Vec<Case> {
        vec![Case::new(CASE, CASE, &[Engine::Redrive])]
    }

    fn lasts(&self, _: Scale) -> u64 {
        80
    }

    fn fillings(&self, scale: Scale, _: &Case, _: Engine) -> Vec<Filling> {
        vec![filling(scale)]
    }

    fn turn(&self, bench: &mut Bench, _: &Case, engine: Engine) -> Result<Sample> {
        let is_quick = bench.scale.is_quick;
        // Spread so that some are due at any time: 280 a second.
        let (delay, delay_max) = if is_quick { (2_000, 40_000) } else { (5_000, 3_600_000) };
        let task = Task { percent: 100, delay, delay_max, ..Task::default() };
        let mut turn = bench.next_turn(filling(bench.scale), task)?;
        let ledger = bench.ledger(&turn.name);
        (turn.endless, turn.ledger) = (true, Some(ledger.clone()));
        bench.prepare(engine, &mut turn)?;
        let measured = both(bench, engine, &turn, &ledger);
        bench.clean(&turn)?;
        measured
    }
}

fn both(bench: &Bench, engine: Engine, turn: &Turn, ledger: &Path) -> Result<Sample> {
    let until = Instant::now() + bench.limit();
    let mut running = bench.start(engine, turn)?;
    let (mut follower, mut firsts) = (Follower::new(ledger, 0), 0);
    watch(&mut running, until, || {
        let entries = follower.next_entries()?;
        let is_first = |it: &&Entry| it.what == What::Fail && it.attempt == 0;
        firsts += entries.iter().filter(is_first).count() as u64;
        Ok(firsts >= turn.records)
    })
    .context("not all records came to wait")?;
    if !bench.scale.is_quick {
        std::thread::sleep(RESTS);
    }
    let waiting = running.memory();
    running.stop()?;
    let mut sample = running.wait(bench.limit())?;
    sample.set("rss_waiting", waiting);
    let before = ledger::count(ledger);

    let started = micros();
    let mut running = bench.start(engine, turn)?;
    let (mut follower, mut came) = (Follower::new(ledger, before), None);
    watch(&mut running, until, || {
        let entries = follower.next_entries()?;
        if entries.iter().any(|it| it.what == What::Start && it.attempt > 0) {
            came.get_or_insert_with(Instant::now);
        }
        Ok(came.is_some_and(|it| it.elapsed() > WATCHED))
    })
    .context("nothing was run after the restart")?;
    running.stop()?;
    let second = running.wait(bench.limit())?;

    let entries = ledger::read(ledger)?;
    let restarted = entries.get(usize::try_from(before)?..).unwrap_or_default();
    let assigned = restarted.iter().find(|it| it.what == What::Assigned);
    let first = restarted.iter().find(|it| it.what == What::Start && it.attempt > 0);
    let (assigned, first) =
        (assigned.context("nothing was assigned")?, first.context("nothing was run")?);
    sample.set("first_due", (first.at - assigned.at) as f64 / 1e6);
    sample.set("first_due_since_start", (first.at - started) as f64 / 1e6);
    let rss = |it: &Sample| it.get("rss").unwrap_or(0.0);
    sample.set("rss_restarted", rss(&second));
    sample.set("again", twice(&entries) as f64);
    ledger::tell_early(&ledger::early(&entries, |it| turn.task.delay(it)), &mut sample);
    sample.set("records", turn.records as f64);
    Ok(rated(sample))
}

/// How many runs there were that there had been before.
fn twice(entries: &[Entry]) -> usize {
    let mut seen = BTreeSet::new();
    let starts = entries.iter().filter(|it| it.what == What::Start);
    starts.filter(|it| !seen.insert((it.number, it.attempt))).count()
}

/// Looks at it now and then, until it is as it should be.
fn watch(
    running: &mut Running,
    until: Instant,
    mut is_over: impl FnMut() -> Result<bool>,
) -> Result<()> {
    while !is_over()? {
        anyhow::ensure!(running.is_alive()?, "it ended by itself");
        anyhow::ensure!(Instant::now() < until, "it took too long");
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
