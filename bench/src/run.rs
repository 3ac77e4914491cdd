//! Rounds: every engine has its turn at everything, again and again, because machines are noisy.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use indicatif::{DecimalBytes, ProgressBar, ProgressStyle};

use crate::bench::{Bench, Scale};
use crate::measure::Sample;
use crate::results::Results;
use crate::topics::Filling;
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
}

/// One engine at one form of one work.
struct Planned {
    work: usize,
    case: Case,
    engine: Engine,
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
                    plan.push(Planned { work: index, case: case.clone(), engine });
                }
            }
        }
    }
    let fillings = |it: &Planned| works[it.work].fillings(order.scale, &it.case, it.engine);
    let topics: BTreeSet<Filling> = plan.iter().flat_map(fillings).collect();
    let mut results = Results { about: about(order), rows: Vec::new() };
    bar.set_length((plan.len() * order.rounds) as u64);
    if !order.scale.is_quick {
        let start = |it: &Planned| if it.engine.is_jvm() { 9 } else { 4 };
        let turn = |it: &Planned| works[it.work].lasts(order.scale) + start(it);
        let seconds = order.rounds as u64 * plan.iter().map(turn).sum::<u64>();
        let (turns, rounds) = (plan.len(), order.rounds);
        let minutes = seconds / 60 + 2;
        let bytes: u64 = topics.iter().map(Filling::bytes).sum();
        eprintln!(
            "about {minutes} minutes for {turns} turns in {rounds} rounds; topics of {}",
            DecimalBytes(bytes)
        );
    }
    for filling in topics {
        bench.topic(filling)?;
    }
    for round in 0..order.rounds {
        let mut last = None;
        for index in turns(&plan, round) {
            let planned = &plan[index];
            let work = &works[planned.work];
            let (name, label, engine) = (work.name(), planned.case.label, planned.engine);
            let round = round + 1;
            bar.set_message(format!("round {round}: {name}, {label}: {}", engine.title()));
            let read = fillings(planned);
            if last.as_ref() != Some(&read) {
                read.iter().for_each(|it| bench.bring_back(*it));
                last = Some(read);
            }
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
    results.sort_by(|row| {
        let is_it = |it: &&Planned| {
            works[it.work].name() == row.work
                && it.case.label == row.case
                && it.engine == row.engine
        };
        plan.iter().position(|it| is_it(&it))
    });
    bar.finish_and_clear();
    if let Err(error) = bench.end() {
        eprintln!("bench: what was read is not deleted: {error:#}");
    }
    Ok(results)
}

/// Whose turn it is, one after the other. What is compared stands together, and another one of it begins in each round: to be the first is not the
/// same as to come after somebody who has read the same records.
fn turns(plan: &[Planned], round: usize) -> Vec<usize> {
    let mut groups: Vec<(&str, Vec<usize>)> = Vec::new();
    for (index, planned) in plan.iter().enumerate() {
        match groups.iter_mut().find(|it| it.0 == planned.case.beside) {
            Some(group) => group.1.push(index),
            None => groups.push((planned.case.beside, vec![index])),
        }
    }
    groups
        .into_iter()
        .flat_map(|(_, mut group)| {
            let first = round % group.len();
            group.rotate_left(first);
            // Else each would always come after the same one.
            if round % 2 == 1 {
                group[1..].reverse();
            }
            group
        })
        .collect()
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

/// Does a turn, and says what the machine did meanwhile.
fn measured(bench: &mut Bench, work: &dyn Work, planned: &Planned) -> Result<Sample> {
    let witness = Witness::begin();
    let turned = work.turn(bench, &planned.case, planned.engine);
    // It ends where the turn failed, too.
    let seen = witness.end();
    let mut sample = turned?;
    sample.0.extend(seen.0);
    Ok(sample)
}

/// What the machine is like.
fn about(order: &Order) -> Vec<(String, String)> {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find_map(|it| it.strip_prefix(name));
        line.map(|it| it.trim_start_matches([' ', '\t', ':']).to_owned()).unwrap_or_default()
    };
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let said = |command: &str, args: &[&str]| {
        let output = std::process::Command::new(command).args(args).output();
        let text = output.map(|it| String::from_utf8_lossy(&it.stdout).into_owned());
        text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
    };
    let commit = said("git", &["describe", "--always", "--dirty", "--abbrev=10"]);
    let mut about = vec![
        ("processor".to_owned(), field(&read("/proc/cpuinfo"), "model name")),
        ("cores".to_owned(), cores.to_string()),
        ("memory".to_owned(), field(&read("/proc/meminfo"), "MemTotal")),
        ("java".to_owned(), said("java", &["--version"])),
        ("date".to_owned(), said("date", &["-I"])),
        ("rounds".to_owned(), order.rounds.to_string()),
        ("seconds".to_owned(), order.scale.seconds.to_string()),
    ];
    if !commit.is_empty() {
        about.push(("commit".to_owned(), commit));
    }
    about
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_one_begins_in_each_round() {
        let planned =
            |work, beside, engine| Planned { work, case: Case::new("x", beside, &[]), engine };
        let plan = [
            planned(0, "reads", Engine::Poll),
            planned(0, "reads", Engine::Batch),
            planned(1, "waits", Engine::Redrive),
            // Of other work, and compared with the first.
            planned(2, "reads", Engine::Redrive),
        ];
        assert_eq!(turns(&plan, 0), [0, 1, 3, 2]);
        assert_eq!(turns(&plan, 1), [1, 0, 3, 2]);
        assert_eq!(turns(&plan, 2), [3, 0, 1, 2]);
    }
}
