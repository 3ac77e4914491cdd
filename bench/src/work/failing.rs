//! (2) A share of the records fails its first run and is retried after a second.

use anyhow::Result;

use super::{Case, Work, rated_later};
use crate::bench::{Bench, Scale};
use crate::measure::Sample;
use crate::task::Task;
use crate::topics::Filling;
use crate::turn::{Engine, Turn};

pub(crate) struct Failing;

/// The shares, as they are called. Nothing fails in the first: the same handler as in the others, to compare with.
pub(crate) const SHARES: [(&str, u64); 4] = [("0 %", 0), ("1 %", 1), ("10 %", 10), ("100 %", 100)];

/// What a share is compared with: nothing fails beside the smallest.
fn beside(share: u64) -> &'static str {
    SHARES.iter().find(|it| it.1 > 0 && it.1 >= share).map_or("", |it| it.0)
}

impl Work for Failing {
    fn name(&self) -> &'static str {
        "failing"
    }

    fn title(&self) -> &'static str {
        "First runs fail"
    }

    fn about(&self) -> &'static str {
        "A share of the records fails its first run and is retried after 1 s. The rate is that of first runs in the last three quarters of the time, in which retries run beside them; what had not ended when the time was over is told, since an engine that leaves retries for later has more time for first runs. Without any lateness that would be a second\u{2019}s worth. Lateness is that of retries that have begun by then, and CPU that of records that ended in the same three quarters. `0 %` has the same handler and no failures. The raw pipe reads each record and produces it again with the headers that Redrive writes; it never reads them back, which the others do."
    }

    fn cases(&self) -> Vec<Case> {
        use Engine::{Parallel, Pipe, Redrive, Spring, SpringTuned};
        SHARES
            .iter()
            .map(|(label, share)| match share {
                0 => Case::new(label, beside(*share), &[Redrive]),
                100 => Case::new(label, label, &[Pipe, Redrive, Spring, SpringTuned, Parallel]),
                _ => Case::new(label, label, &[Redrive, Spring, SpringTuned, Parallel]),
            })
            .collect()
    }

    fn fillings(&self, scale: Scale, _: &Case, _: Engine) -> Vec<Filling> {
        vec![scale.small()]
    }

    fn turn(&self, bench: &mut Bench, case: &Case, engine: Engine) -> Result<Sample> {
        turn(bench, case, engine, false)
    }
}

/// The turn, with exactly-once or without.
pub(crate) fn turn(
    bench: &mut Bench,
    case: &Case,
    engine: Engine,
    exactly_once: bool,
) -> Result<Sample> {
    let percent = SHARES.iter().find(|it| it.0 == case.label).map_or(0, |it| it.1);
    let task = Task { percent, delay: 1000, delay_max: 1000, ..Task::default() };
    let turn = bench.next_timed(bench.scale.small(), task)?;
    Ok(rated_later(bench.turn(engine, Turn { exactly_once, ..turn })?))
}
