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

fn filling(scale: Scale, case: &Case) -> Filling {
    if case.label == LARGE { scale.large() } else { scale.small() }
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
            Case::new(
                SMALL,
                SMALL,
                &[Poll, Batch, Redrive, Ordered, Spring, SpringTuned, Parallel],
            ),
            Case::new(LARGE, LARGE, &[Poll, Batch, Redrive, Spring, SpringTuned, Parallel]),
        ]
    }

    fn fillings(&self, scale: Scale, case: &Case, _: Engine) -> Vec<Filling> {
        vec![filling(scale, case)]
    }

    fn turn(&self, bench: &mut Bench, case: &Case, engine: Engine) -> Result<Sample> {
        let turn = bench.next_timed(filling(bench.scale, case), Task::default())?;
        let turn = Turn { idle: true, ..turn };
        Ok(rated(bench.turn(engine, turn)?))
    }
}
