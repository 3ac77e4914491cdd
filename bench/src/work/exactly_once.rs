//! (8) As (2), with hops and offsets in one transaction.

use anyhow::Result;

use super::failing::{self, SHARES};
use super::{Case, Work};
use crate::bench::{Bench, Scale};
use crate::measure::Sample;
use crate::topics::Filling;
use crate::turn::Engine;

pub(crate) struct ExactlyOnce;

impl Work for ExactlyOnce {
    fn name(&self) -> &'static str {
        "exactly-once"
    }

    fn title(&self) -> &'static str {
        "Exactly once"
    }

    fn about(&self) -> &'static str {
        "As (2), with hops and offsets in one transaction: Redrive beside itself in (2), in turns that stand together. The others have no exactly-once for retries."
    }

    fn cases(&self) -> Vec<Case> {
        let failing = SHARES.iter().filter(|it| it.1 > 0);
        failing.map(|it| Case::new(it.0, it.0, &[Engine::Redrive])).collect()
    }

    fn fillings(&self, scale: Scale, case: &Case, engine: Engine) -> Vec<Filling> {
        failing::Failing.fillings(scale, case, engine)
    }

    fn turn(&self, bench: &mut Bench, case: &Case, engine: Engine) -> Result<Sample> {
        failing::turn(bench, case, engine, true)
    }
}
