//! Rounds: every engine has its turn at everything, again and again, because machines are noisy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};

use crate::bench::{Bench, Scale};
use crate::measure::Sample;
use crate::results::Results;
use crate::turn::Engine;
use crate::witness::Witness;
use crate::work::{self, Case, Work};

/// What is asked for.
pub(crate) struct Order {
    pub(crate) kafka: String,
    pub(crate) jvm: PathBuf,
    pub(crate) scale: Scale,
    pub(crate) rounds: usize,
    /// The work, by name; all of it where there is none.
    pub(crate) works: Vec<String>,
    /// The engines; all where there is none.
    pub(crate) engines: Vec<Engine>,
    /// What was measured before. If that was on as many cores, nobody has to find out how many records are enough.
    pub(crate) before: Option<Results>,
}

/// Some need half a second for each record.
const FEWEST: u64 = 20;

/// One engine at one form of one work, with so many records.
struct Planned {
    work: usize,
    case: Case,
    engine: Engine,
    records: u64,
}

/// Measures everything that is asked for. What is there after each round is written to a file.
pub(crate) fn run(order: &Order, keep: Option<&Path>) -> Result<Results> {
    let works = chosen(&order.works)?;
    let bar = ProgressBar::new(0);
    let style = "{elapsed_precise} [{bar:30}] {pos}/{len} left {eta:>4}  {msg}";
    bar.set_style(ProgressStyle::with_template(style)?);
    bar.enable_steady_tick(Duration::from_millis(200));
    let mut bench = Bench::new(&order.kafka, order.jvm.clone(), order.scale, bar.clone());
    let mut plan = Vec::new();
    for (index, work) in works.iter().enumerate() {
        for case in work.cases() {
            for engine in case.engines.clone() {
                let is_wanted = order.engines.is_empty() || order.engines.contains(&engine);
                if is_wanted && !(order.scale.is_quick && engine.is_jvm()) {
                    plan.push(Planned { work: index, case: case.clone(), engine, records: 0 });
                }
            }
        }
    }
    let pilots = plan.iter().filter(|it| works[it.work].pilot(order.scale).is_some()).count();
    let pilots = if order.scale.is_quick { 0 } else { pilots };
    let mut results = Results { about: about(order), rows: Vec::new() };
    let before = order.before.as_ref().filter(|it| it.is_of_as_many_cores(&results.about));
    bar.set_length((pilots + plan.len() * order.rounds) as u64);
    if !order.scale.is_quick {
        let start = |it: &Planned| if it.engine.is_jvm() { 9 } else { 3 };
        let turn = |it: &Planned| works[it.work].lasts(order.scale) + start(it);
        let seconds = order.rounds as u64 * plan.iter().map(turn).sum::<u64>() + 10 * pilots as u64;
        eprintln!(
            "about {} minutes for {} turns in {} rounds",
            seconds / 60 + 1,
            plan.len(),
            order.rounds
        );
    }
    for planned in &mut plan {
        let work = &works[planned.work];
        bar.set_message(format!(
            "{}, {}: {}",
            work.name(),
            planned.case.label,
            planned.engine.title()
        ));
        let before = before.and_then(|it| it.row(work.name(), planned.case.label, planned.engine));
        let found = match before.and_then(|it| it.most("rate")) {
            Some(rate) if pilots > 0 && work.pilot(order.scale).is_some() => {
                Ok(enough(work.as_ref(), &planned.case, order.scale, rate))
            }
            _ => pilot(&mut bench, work.as_ref(), planned),
        };
        if pilots > 0 && work.pilot(order.scale).is_some() {
            bar.inc(1);
            told(&bar, order.scale);
        }
        match found {
            Ok(records) => planned.records = records,
            Err(error) => fail(&mut results, &bar, work.as_ref(), planned, &error),
        }
    }
    // An engine that could not do a little of it will not do more.
    plan.retain(|it| results.row(works[it.work].name(), it.case.label, it.engine).is_none());
    // The largest first: smaller ones may be a part of it.
    let mut by_size: Vec<_> = plan.iter().collect();
    by_size.sort_by_key(|it| std::cmp::Reverse(it.records));
    for planned in by_size {
        let work = &works[planned.work];
        work.fill(&mut bench, &planned.case, planned.engine, planned.records)?;
    }
    for round in 0..order.rounds {
        for index in turns(&plan, round) {
            let planned = &mut plan[index];
            let work = &works[planned.work];
            let (name, label, engine) = (work.name(), planned.case.label, planned.engine);
            let round = round + 1;
            bar.set_message(format!("round {round}: {name}, {label}: {}", engine.title()));
            match measured(&mut bench, work.as_ref(), planned) {
                Ok(mut sample) => {
                    sample.set("round", round as f64);
                    results.row_mut(name, label, engine).samples.push(sample);
                }
                Err(error) => fail(&mut results, &bar, work.as_ref(), planned, &error),
            }
            bar.inc(1);
            told(&bar, order.scale);
        }
        if let Some(path) = keep {
            results.write(path)?;
        }
    }
    bar.finish_and_clear();
    Ok(results)
}

/// Whose turn it is, one after the other. Who does the same stands together, and another one of them begins in each round: to be the first is not the
/// same as to come after somebody who has read the same records.
fn turns(plan: &[Planned], round: usize) -> Vec<usize> {
    let mut turns = Vec::with_capacity(plan.len());
    let form = |it: &Planned| (it.work, it.case.label);
    for same in plan.chunk_by(|one, next| form(one) == form(next)) {
        let begin = turns.len();
        turns.extend((0..same.len()).map(|it| begin + (round + it) % same.len()));
    }
    turns
}

/// Where nobody can see the bar, a line for each turn.
fn told(bar: &ProgressBar, scale: Scale) {
    if bar.is_hidden() && !scale.is_quick {
        eprintln!("{}/{}: {}", bar.position(), bar.length().unwrap_or(0), bar.message());
    }
}

fn chosen(names: &[String]) -> Result<Vec<Box<dyn Work>>> {
    let all = work::all();
    let known: Vec<_> = all.iter().map(|it| it.name()).collect();
    if let Some(name) = names.iter().find(|it| !known.contains(&it.as_str())) {
        anyhow::bail!("--work {name}: one of {} is expected", known.join(", "));
    }
    let is_chosen = |it: &dyn Work| names.is_empty() || names.iter().any(|name| name == it.name());
    Ok(all.into_iter().filter(|it| is_chosen(it.as_ref())).collect())
}

/// A failed turn is told and written down. The others go on: an hour's work is not thrown away for it.
fn fail(
    results: &mut Results,
    bar: &ProgressBar,
    work: &dyn Work,
    planned: &Planned,
    error: &anyhow::Error,
) {
    let text = format!("{error:#}");
    let (case, engine) = (planned.case.label, planned.engine.title());
    // Where nobody looks at a bar, a line is still worth reading.
    bar.suspend(|| eprintln!("{}, {case}: {engine}: {text}", work.name()));
    results.row_mut(work.name(), planned.case.label, planned.engine).failures.push(text);
}

/// Does a turn. One that was over too soon says nothing, and is done anew with more records.
fn measured(bench: &mut Bench, work: &dyn Work, planned: &mut Planned) -> Result<Sample> {
    loop {
        let topic = work.fill(bench, &planned.case, planned.engine, planned.records)?;
        bench.bring_back(&topic)?;
        let witness = Witness::begin();
        let turned = work.turn(bench, &planned.case, planned.engine, planned.records);
        // It ends where the turn failed, too.
        let seen = witness.end();
        let mut sample = turned?;
        sample.0.extend(seen.0);
        let timed = sample.get("timed").or(sample.get("took")).unwrap_or(0.0);
        sample.set("timed", timed);
        if bench.scale.is_quick || work.pilot(bench.scale).is_none() {
            return Ok(sample);
        }
        let more = lengthened(planned.records, timed, bench.scale.seconds as f64);
        match more.map(|it| it.min(work.most(&planned.case))) {
            Some(more) if more > planned.records => planned.records = more,
            _ => return Ok(sample),
        }
    }
}

/// How many records there should be instead of so many, which took too little time.
fn lengthened(records: u64, timed: f64, seconds: f64) -> Option<u64> {
    let factor = (seconds * 1.2 / timed.max(1e-6)).min(50.0);
    (timed < seconds).then(|| rounded(records as f64 * factor))
}

/// Finds out with a few records how many are enough for a measurement.
fn pilot(bench: &mut Bench, work: &dyn Work, planned: &Planned) -> Result<u64> {
    /// What an engine that takes less time than this says of its speed is not much.
    const SHORT: f64 = 1.0;
    let (scale, case) = (bench.scale, &planned.case);
    let Some(few) = work.pilot(scale) else {
        return Ok(0);
    };
    if scale.is_quick {
        return Ok(few);
    }
    let most = work.most(case);
    // The warm-up of a Java machine tells more than a few records would, of which it may need seconds for each dozen.
    let mut records = if planned.engine.is_jvm() { few.min(FEWEST) } else { few };
    let rate = loop {
        let sample = work.turn(bench, case, planned.engine, records)?;
        let Some(rate) = sample.get("rate") else {
            // It was over before the clock went on.
            anyhow::ensure!(records < most, "{most} records took no time");
            records = (records * 50).min(most);
            continue;
        };
        // Who warmed up with the same work knows it already, if only as fast as one is at first. So that is tried for a while,
        // unless these few were enough: some are slow only at the end of a log.
        if let Some(warm) = sample.get("warm_rate").filter(|it| *it > 0.0) {
            let is_enough = sample.get("took").is_some_and(|it| it >= scale.seconds as f64);
            let tried = rounded(warm * 3.0).min(most);
            if is_enough || records >= tried {
                break rate;
            }
            records = tried;
            continue;
        }
        let wanted = rounded(rate * SHORT * 2.0).min(most);
        if records as f64 >= rate * SHORT || wanted <= records {
            break rate;
        }
        // Engines differ by a factor of a thousand. A cold start says too little, so no step is a large one.
        records = wanted.min(records * 50);
    };
    Ok(enough(work, case, scale, rate))
}

/// How many records are enough at this rate.
fn enough(work: &dyn Work, case: &Case, scale: Scale, rate: f64) -> u64 {
    rounded(rate * scale.seconds as f64).clamp(FEWEST, work.most(case))
}

/// Numbers that differ little are made one, so that engines share topics.
fn rounded(records: f64) -> u64 {
    const STEPS: [f64; 8] = [1.0, 1.25, 1.6, 2.0, 2.5, 3.2, 4.0, 6.3];
    let mut unit = 1.0;
    while unit * 10.0 <= records {
        unit *= 10.0;
    }
    let step = STEPS.iter().map(|it| it * unit).find(|it| *it >= records).unwrap_or(unit * 10.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count")]
    let records = step as u64;
    records
}

/// What the machine is like.
fn about(order: &Order) -> Vec<(String, String)> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|it| it.strip_prefix(name));
        line.map(|it| it.trim_start_matches([' ', '\t', ':']).to_owned()).unwrap_or_default()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let said = |command: &str, arg: &str| {
        let output = std::process::Command::new(command).arg(arg).output();
        let text = output.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
        text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
    };
    vec![
        ("processor".to_owned(), field(&read("/proc/cpuinfo"), "model name")),
        ("cores".to_owned(), cores.to_string()),
        ("memory".to_owned(), field(&read("/proc/meminfo"), "MemTotal")),
        ("java".to_owned(), said("java", "--version")),
        ("date".to_owned(), said("date", "-I")),
        ("rounds".to_owned(), order.rounds.to_string()),
        ("seconds".to_owned(), order.scale.seconds.to_string()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_over_too_soon_gets_more_records() {
        assert_eq!(lengthened(50, 0.0, 10.0), Some(2_500));
        assert_eq!(lengthened(1_000, 4.0, 10.0), Some(3_200));
        assert_eq!(lengthened(1_000, 9.9, 10.0), Some(1_250));
        assert_eq!(lengthened(1_000, 10.0, 10.0), None);
    }

    #[test]
    fn another_one_begins_in_each_round() {
        let plan: Vec<_> =
            [(0, Engine::Poll), (0, Engine::Batch), (0, Engine::Redrive), (1, Engine::Poll)]
                .map(|(work, engine)| Planned {
                    work,
                    case: Case::new("x", &[]),
                    engine,
                    records: 0,
                })
                .into();
        assert_eq!(turns(&plan, 0), [0, 1, 2, 3]);
        assert_eq!(turns(&plan, 1), [1, 2, 0, 3]);
        assert_eq!(turns(&plan, 5), [2, 0, 1, 3]);
    }

    #[test]
    fn numbers_of_records_are_rounded_up() {
        assert_eq!([1.0, 99.0, 101.0, 1_300_000.0].map(rounded), [1, 100, 125, 1_600_000]);
    }
}
