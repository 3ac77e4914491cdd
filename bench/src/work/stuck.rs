//! (5) What never ends: one run that hangs with everything else behind it, and records that fail whatever is done.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Case, Work, rated, rated_later};
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
        "First: the very first record\u{2019}s run hangs, and everything else is behind it. What the engine committed meanwhile is counted in the broker\u{2019}s own topic: each offset with its metadata, for each partition. Then the same with a million records behind it: once they are done, the engine is stopped and started again (Parallel Consumer, which would wait for that run, is given two seconds for a last commit, and ended), and watched until it has nothing to do. The poll loop has the same handler, passes that record by, commits nothing, and is not started again. A hanging listener of Spring\u{2019}s holds its partition for ever. Second: 1 % of the records fail, fail again after 1 s, and go to the dead-letter topic (Parallel Consumer has none; its handler writes there, and does not wait for the broker\u{2019}s answer, as the others do)."
    }

    fn cases(&self) -> Vec<Case> {
        use Engine::{Parallel, Poll, Redrive, SpringTuned};
        vec![
            // A hanging listener of Spring's holds its partition for ever: there would be no end.
            Case::new(HANGS, HANGS, &[Poll, Redrive, Parallel]),
            Case::new(HOPELESS, HOPELESS, &[Redrive, SpringTuned, Parallel]),
        ]
    }

    fn fillings(&self, scale: Scale, case: &Case, engine: Engine) -> Vec<Filling> {
        let is_restarted = case.label == HANGS && engine != Engine::Poll;
        [scale.small()].into_iter().chain(is_restarted.then(|| behind(scale))).collect()
    }

    fn turn(&self, bench: &mut Bench, case: &Case, engine: Engine) -> Result<Sample> {
        if case.label == HANGS {
            return hangs(bench, engine);
        }
        let task =
            Task { percent: 1, delay: 1000, delay_max: 1000, hopeless: true, ..Task::default() };
        let turn = bench.next_timed(bench.scale.small(), task)?;
        Ok(rated_later(bench.turn(engine, turn)?))
    }
}

/// What is done behind a hanging run before a restart.
fn behind(scale: Scale) -> Filling {
    Filling::new(if scale.is_quick { 10_000 } else { 1_000_001 }, 100)
}

fn hangs(bench: &mut Bench, engine: Engine) -> Result<Sample> {
    let task = Task { stuck: Some(FIRST), ..Task::default() };
    let turn = bench.next_timed(bench.scale.small(), task.clone())?;
    let mut turn = Turn { records: turn.records - 1, session: 6000, ..turn };
    if engine == Engine::Poll {
        return Ok(rated(bench.turn(engine, turn)?));
    }
    bench.prepare(engine, &mut turn)?;
    let measured = bench.start(engine, &turn)?.wait(bench.limit());
    let measured = measured.and_then(|sample| {
        let metadata = topics::longest_metadata(&bench.kafka, &turn.group(), &turn.topic)?;
        Ok((sample, metadata, topics::commits(&bench.kafka, &turn.group())?))
    });
    bench.clean(&turn)?;
    let (sample, metadata, (commits, largest)) = measured?;
    let turn = bench.next_turn(behind(bench.scale), task)?;
    let mut turn = Turn { records: turn.records - 1, session: 6000, ..turn };
    bench.prepare(engine, &mut turn)?;
    let cold = Turn { warm: None, ..turn.clone() };
    let again = bench.start(engine, &cold)?.wait(bench.limit()).and_then(|_| {
        let also = topics::longest_metadata(&bench.kafka, &turn.group(), &turn.topic)?;
        Ok((also.max(metadata), run_again(bench, engine, &turn)?))
    });
    bench.clean(&turn)?;
    let (metadata, again) = again?;
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
