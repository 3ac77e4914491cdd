//! (4) A handler that takes 10 ms, and order per key: how close an engine comes to what keys and slots allow.

use anyhow::Result;

use super::{Case, Work, rated};
use crate::bench::{Bench, Scale};
use crate::measure::Sample;
use crate::task::Task;
use crate::topics::Filling;
use crate::turn::{Engine, PARTITIONS, Turn};

pub(crate) struct Keys;

pub(crate) const FORMS: [(&str, u64); 3] = [("1 key", 1), ("20 keys", 20), ("10,000 keys", 10_000)];

/// How many records run at the same time, if they are of as many keys.
const SLOTS: u32 = 256;

/// How long a run takes.
const TAKES: u64 = 10;

/// How many records run at the same time. Spring has a thread for each partition, and no more.
fn at_once(engine: Engine, keys: u64) -> u64 {
    let slots = match engine {
        Engine::SpringTuned => PARTITIONS.unsigned_abs(),
        _ => SLOTS,
    };
    keys.min(slots.into())
}

/// As many as the bound allows in the time, and a fifth more where nothing is warmed up, so that the start counts for little.
fn filling(scale: Scale, case: &Case, engine: Engine) -> Filling {
    let keys = FORMS.iter().find(|it| it.0 == case.label).map_or(1, |it| it.1);
    let records = at_once(engine, keys) * 1000 / TAKES * scale.seconds;
    let records = match engine {
        _ if scale.is_quick => 100,
        _ if engine.is_jvm() => records,
        _ => records * 6 / 5,
    };
    Filling { records, size: 100, keys }
}

impl Work for Keys {
    fn name(&self) -> &'static str {
        "keys"
    }

    fn title(&self) -> &'static str {
        "Order per key"
    }

    fn about(&self) -> &'static str {
        "The handler waits for 10 ms; 256 records may run at the same time, if they are of as many keys. The bound is what keys and slots allow, by the time that a run really took. Spring has order per partition and a thread for each of the three partitions, which is its bound."
    }

    fn cases(&self) -> Vec<Case> {
        use Engine::{Ordered, Parallel, SpringTuned};
        let engines = |keys: u64| match keys {
            // Its three threads are its bound, however many keys there are.
            10_000 => vec![Ordered, Parallel, SpringTuned],
            _ => vec![Ordered, Parallel],
        };
        FORMS.iter().map(|it| Case::new(it.0, it.0, &engines(it.1))).collect()
    }

    fn lasts(&self, scale: Scale) -> u64 {
        scale.seconds * 3 / 2
    }

    fn fillings(&self, scale: Scale, case: &Case, engine: Engine) -> Vec<Filling> {
        vec![filling(scale, case, engine)]
    }

    fn turn(&self, bench: &mut Bench, case: &Case, engine: Engine) -> Result<Sample> {
        let filling = filling(bench.scale, case, engine);
        let task = Task { takes: TAKES, ..Task::default() };
        let turn = bench.next_turn(filling, task)?;
        let turn = Turn { ordered: true, concurrency: SLOTS, ..turn };
        let mut sample = rated(bench.turn(engine, turn)?);
        // Sleeping takes a little longer than it is asked to, which is nobody's fault.
        let run = sample.get("busy").unwrap_or(0.0) / sample.get("records").unwrap_or(1.0);
        let bound = at_once(engine, filling.keys) as f64 / run;
        if let Some(rate) = sample.get("rate") {
            sample.set("of_bound", rate / bound);
            sample.set("run_ms", run * 1000.0);
        }
        Ok(sample)
    }
}
