//! (5) What never ends: one run that hangs with everything else behind it, and records that fail whatever is done.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Case, Work, rated};
use crate::bench::{Bench, Scale};
use crate::ledger::{self, What};
use crate::measure::Sample;
use crate::task::Task;
use crate::topics::{self, Filling};
use crate::turn::{Engine, Turn};

pub(crate) struct Stuck;

pub(crate) const HANGS: &str = "one run hangs";
pub(crate) const HOPELESS: &str = "1 % fail for good";

/// The record that hangs: the very first.
const FIRST: u64 = 0;

/// A restarted engine is watched for what it runs again until it has had nothing to do for so long: then it has read all there is.
const IDLE: Duration = Duration::from_secs(1);

/// What an engine uses of a processor at the most that has nothing to do.
const IDLE_SHARE: f64 = 0.15;

impl Work for Stuck {
    fn name(&self) -> &'static str {
        "stuck"
    }

    fn title(&self) -> &'static str {
        "What never ends"
    }

    fn about(&self) -> &'static str {
        "First: the very first record\u{2019}s run hangs, and everything else is behind it; then the engine is stopped and started again (Parallel Consumer, which would wait for that run, is given two seconds for a last commit, and ended), and watched until it has nothing to do. What it committed is counted in the broker\u{2019}s own topic: each offset with its metadata, for each partition. The poll loop has the same handler, passes that record by, commits nothing, and is not started again. A hanging listener of Spring\u{2019}s holds its partition for ever. Second: 1 % of the records fail, fail again after 1 s, and go to the dead-letter topic (Parallel Consumer has none; its handler writes there, and does not wait for the broker\u{2019}s answer, as the others do)."
    }

    fn cases(&self) -> Vec<Case> {
        use Engine::{Parallel, Poll, Redrive, SpringTuned};
        vec![
            // A hanging listener of Spring's holds its partition for ever: there would be no end.
            Case::new(HANGS, &[Poll, Redrive, Parallel]),
            Case::new(HOPELESS, &[Redrive, SpringTuned, Parallel]),
        ]
    }

    fn pilot(&self, scale: Scale) -> Option<u64> {
        Some(if scale.is_quick { 10_000 } else { 2_000 })
    }

    fn filling(&self, _: Scale, _: &Case, _: Engine, records: u64) -> Filling {
        Filling::new(records, 100)
    }

    fn turn(&self, bench: &mut Bench, case: &Case, engine: Engine, records: u64) -> Result<Sample> {
        if case.label == HANGS {
            return hangs(bench, engine, records);
        }
        let task =
            Task { percent: 1, delay: 1000, delay_max: 1000, hopeless: true, ..Task::default() };
        let turn = bench.next_turn(Filling::new(records, 100), task)?;
        Ok(rated(bench.turn(engine, turn)?))
    }
}

fn hangs(bench: &mut Bench, engine: Engine, records: u64) -> Result<Sample> {
    let task = Task { stuck: Some(FIRST), ..Task::default() };
    let turn = bench.next_turn(Filling::new(records, 100), task)?;
    let mut turn = Turn { records: records - 1, session: 6000, ..turn };
    if engine == Engine::Poll {
        return Ok(rated(bench.turn(engine, turn)?));
    }
    bench.prepare(engine, &mut turn)?;
    let measured = bench.start(engine, &turn)?.wait(bench.limit());
    let again = measured.and_then(|sample| {
        let metadata = topics::longest_metadata(&bench.kafka, &turn.group(), &turn.topic)?;
        let commits = topics::commits(&bench.kafka, &turn.group())?;
        Ok((sample, metadata, commits, run_again(bench, engine, &turn)?))
    });
    bench.clean(&turn)?;
    let (sample, metadata, (commits, largest), again) = again?;
    let mut sample = rated(sample);
    sample.set("metadata", metadata as f64);
    sample.set("commits", commits as f64);
    sample.set("largest_commit", largest as f64);
    sample.set("again", again as f64);
    Ok(sample)
}

/// Starts it once more and counts what it runs beside the record that hung.
fn run_again(bench: &Bench, engine: Engine, turn: &Turn) -> Result<u64> {
    let ledger = bench.ledger(&turn.name);
    let again = Turn { endless: true, warm: None, ledger: Some(ledger.clone()), ..turn.clone() };
    let mut running = bench.start(engine, &again)?;
    let until = Instant::now() + bench.limit();
    let (mut since, mut used) = (Instant::now(), Duration::ZERO);
    loop {
        let entries = ledger::read(&ledger)?;
        let starts = entries.iter().filter(|it| it.what == What::Start);
        let has_come = starts.clone().any(|it| it.number == FIRST);
        let (passed, cpu) = (since.elapsed(), running.cpu());
        if passed >= IDLE {
            let share = (cpu.saturating_sub(used)).as_secs_f64() / passed.as_secs_f64();
            if has_come && share < IDLE_SHARE {
                running.kill()?;
                _ = std::fs::remove_file(&ledger);
                return Ok(starts.filter(|it| it.number != FIRST).count() as u64);
            }
            (since, used) = (Instant::now(), cpu);
        }
        anyhow::ensure!(running.is_alive()?, "{} ended after its restart", engine.name());
        anyhow::ensure!(Instant::now() < until, "{} does not run what hung", engine.name());
        std::thread::sleep(Duration::from_millis(50));
    }
}
