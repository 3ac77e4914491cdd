//! The work: one file each. What it is about, who does it, and what is told of it.

pub(crate) mod delays;
pub(crate) mod exactly_once;
pub(crate) mod failing;
pub(crate) mod keys;
pub(crate) mod killed;
pub(crate) mod pending;
pub(crate) mod stuck;
pub(crate) mod success;

use anyhow::Result;

use crate::bench::{Bench, Scale};
use crate::measure::Sample;
use crate::topics::Filling;
use crate::turn::Engine;

/// One kind of work in one form, with those who do it.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    pub(crate) label: &'static str,
    /// What has its turns beside each other, because it is compared: forms with the same word here, of whatever work.
    pub(crate) beside: &'static str,
    pub(crate) engines: Vec<Engine>,
}

impl Case {
    pub(crate) fn new(label: &'static str, beside: &'static str, engines: &[Engine]) -> Self {
        Self { label, beside, engines: engines.to_vec() }
    }
}

/// One kind of work.
pub(crate) trait Work {
    /// As it is called on the command line and in the results.
    fn name(&self) -> &'static str;

    /// For people.
    fn title(&self) -> &'static str;

    /// What is done, for those who read the results.
    fn about(&self) -> &'static str;

    /// Its forms.
    fn cases(&self) -> Vec<Case>;

    /// How many seconds a turn lasts, more or less.
    fn lasts(&self, scale: Scale) -> u64 {
        scale.seconds
    }

    /// What the topics are filled with that an engine reads. That is done before, so that nobody is measured on a machine that is still busy with it.
    fn fillings(&self, scale: Scale, case: &Case, engine: Engine) -> Vec<Filling>;

    /// Does it.
    fn turn(&self, bench: &mut Bench, case: &Case, engine: Engine) -> Result<Sample>;
}

/// All of it, in the order of the issue.
pub(crate) fn all() -> Vec<Box<dyn Work>> {
    vec![
        Box::new(success::Success),
        Box::new(failing::Failing),
        Box::new(delays::Delays),
        Box::new(keys::Keys),
        Box::new(stuck::Stuck),
        Box::new(pending::Pending),
        Box::new(killed::Killed),
        Box::new(exactly_once::ExactlyOnce),
    ]
}

/// The same where records are retried for as long as a measurement takes: rate and CPU are those of the last three quarters, in which all engines retry beside
/// first runs, and what was not retried in time is told.
pub(crate) fn rated_later(sample: Sample) -> Sample {
    let mut sample = rated(sample);
    let get = |name| sample.get(name);
    let open = get("firsts").zip(get("records")).map(|(firsts, ended)| firsts - ended);
    let (rate, cpu) = (get("later_rate"), get("later_cpu_per_million"));
    for (name, value) in [("rate", rate), ("cpu_per_million", cpu), ("open", open)] {
        if let Some(value) = value {
            sample.set(name, value);
        }
    }
    sample
}

/// Adds what follows from the numbers: records a second, and CPU for a million of them. Where records are retried, what counts is how fast the source topic is
/// worked off.
pub(crate) fn rated(mut sample: Sample) -> Sample {
    let get = |name| sample.get(name).filter(|it| *it > 0.0);
    let begun = get("firsts").or(get("records"));
    let later_begun = get("later_firsts").or(get("later_records"));
    let over = |of: Option<f64>, by, times| of.zip(get(by)).map(|(of, by)| of / by * times);
    let found = [
        ("rate", over(begun, "took", 1.0)),
        ("later_rate", over(later_begun, "later_took", 1.0)),
        ("cpu_per_million", over(get("cpu"), "records", 1e6)),
        ("later_cpu_per_million", over(get("later_cpu"), "later_records", 1e6)),
    ];
    for (name, value) in found {
        if let Some(value) = value {
            sample.set(name, value);
        }
    }
    sample
}
