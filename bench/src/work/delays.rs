//! (3) Retries whose delays are mixed in one retry topic: how late they run.

use anyhow::Result;

use super::{Case, Work, rated};
use crate::bench::{Bench, Scale};
use crate::measure::Sample;
use crate::task::Task;
use crate::topics::Filling;
use crate::turn::Engine;

pub(crate) struct Delays;

pub(crate) const MIXED: &str = "1 to 30 s, mixed";
pub(crate) const SAME: &str = "10 s each";

fn filling(scale: Scale, case: &Case) -> Filling {
    let records = match (case.label == MIXED, scale.is_quick) {
        (true, true) => 3_000,
        (true, false) => 100_000,
        (false, _) => 50,
    };
    Filling::new(records, 100)
}

impl Work for Delays {
    fn name(&self) -> &'static str {
        "delays"
    }

    fn title(&self) -> &'static str {
        "Mixed delays in one retry topic"
    }

    fn about(&self) -> &'static str {
        "Records fail once and are retried. In the first form 100,000 of them, each with a delay of its own, all in one retry topic. A retry topic of Spring\u{2019}s has one delay, so it is only in the second form: 50 records that fail one after the other, as fast as they can, and are due 10 s later. Those that failed together are due together, so that the last of them has to wait for the others."
    }

    fn cases(&self) -> Vec<Case> {
        use Engine::{Parallel, Redrive, Spring, SpringTuned};
        // A retry topic of Spring's has one delay. So there is a second form that it can do, too.
        vec![
            Case::new(MIXED, MIXED, &[Redrive, Parallel]),
            Case::new(SAME, SAME, &[Redrive, Spring, SpringTuned]),
        ]
    }

    fn lasts(&self, _: Scale) -> u64 {
        35
    }

    fn fillings(&self, scale: Scale, case: &Case, _: Engine) -> Vec<Filling> {
        vec![filling(scale, case)]
    }

    fn turn(&self, bench: &mut Bench, case: &Case, engine: Engine) -> Result<Sample> {
        let filling = filling(bench.scale, case);
        let (delay, delay_max) = match (case.label == MIXED, bench.scale.is_quick) {
            (true, true) => (200, 3_000),
            (true, false) => (1_000, 30_000),
            (false, true) => (1_000, 1_000),
            (false, false) => (10_000, 10_000),
        };
        let task = Task { percent: 100, delay, delay_max, ..Task::default() };
        let turn = bench.next_turn(filling, task)?;
        let sample = bench.turn(engine, turn)?;
        let retried = sample.get("late_count").unwrap_or(0.0);
        anyhow::ensure!(
            retried >= filling.records as f64,
            "{} retries of {} records are known",
            retried,
            filling.records
        );
        Ok(rated(sample))
    }
}
