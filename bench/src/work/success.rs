//! (1) Everything succeeds: what an engine costs where nothing goes wrong.

use anyhow::Result;

use super::{Case, Work, rated};
use crate::bench::{Bench, Scale};
use crate::measure::Sample;
use crate::task::Task;
use crate::topics::Filling;
use crate::turn::{Engine, Turn};

pub(crate) struct Success;

pub(crate) const SMALL: &str = "100 B";
pub(crate) const LARGE: &str = "1 KB";

/// So that the broker's machine can keep a topic in memory, beside those of the other work.
const MOST_BYTES: u64 = 8_000_000_000;

fn size(case: &Case) -> usize {
    if case.label == LARGE { 1000 } else { 100 }
}

impl Work for Success {
    fn name(&self) -> &'static str {
        "success"
    }

    fn title(&self) -> &'static str {
        "Everything succeeds"
    }

    fn about(&self) -> &'static str {
        "A handler that does nothing. What an engine costs where nothing goes wrong."
    }

    fn cases(&self) -> Vec<Case> {
        use Engine::{Batch, Ordered, Parallel, Poll, Redrive, Spring, SpringTuned};
        vec![
            Case::new(SMALL, &[Poll, Batch, Redrive, Ordered, Spring, SpringTuned, Parallel]),
            Case::new(LARGE, &[Poll, Batch, Redrive, Spring, SpringTuned, Parallel]),
        ]
    }

    fn pilot(&self, _: Scale) -> Option<u64> {
        Some(20_000)
    }

    fn most(&self, case: &Case) -> u64 {
        MOST_BYTES / size(case) as u64
    }

    fn filling(&self, _: Scale, case: &Case, _: Engine, records: u64) -> Filling {
        Filling::new(records, size(case))
    }

    /// One topic for all, of which each reads as much as it needs.
    fn fill(&self, bench: &mut Bench, case: &Case, engine: Engine, records: u64) -> Result<String> {
        bench.topic_of_at_least(self.filling(bench.scale, case, engine, records))
    }

    fn turn(&self, bench: &mut Bench, case: &Case, engine: Engine, records: u64) -> Result<Sample> {
        let topic = self.fill(bench, case, engine, records)?;
        let turn = bench.next_turn_on(&topic, records, Task::default());
        let turn = Turn { idle: true, ..turn };
        Ok(rated(bench.turn(engine, turn)?))
    }
}
