//! The report: tables between two markers of README.md, and plots beside it. Made from the results, and from nothing else.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::results::{Results, Row};
use crate::stats;
use crate::svg::{self, Bar, Group};
use crate::targets::{self, Target, grouped, number, ratio};
use crate::turn::Engine;
use crate::work;

const BEGIN: &str = "<!-- results: made by bench/run, not by hand -->";
const END: &str = "<!-- end of results -->";

/// A column: what it is called, what it shows, how it is written, and whether the worst round is shown instead of the median.
struct Column(&'static str, &'static str, fn(f64) -> String, Shown);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Median,
    /// The median with the lowest and the highest round.
    Spread,
    Most,
    Least,
}

const COLUMNS: [Column; 25] = [
    Column("CPU s per million", "cpu_per_million", number, Shown::Spread),
    Column("peak memory, MiB", "rss", grouped, Shown::Median),
    Column("while they wait, MiB", "rss_waiting", grouped, Shown::Median),
    Column("after restart, MiB", "rss_restarted", grouped, Shown::Median),
    Column("late p50, ms", "late_p50", number, Shown::Spread),
    Column("p99", "late_p99", number, Shown::Spread),
    Column("max", "late_max", number, Shown::Most),
    Column("min", "late_min", number, Shown::Least),
    Column("early", "early", grouped, Shown::Most),
    Column("by at most, ms", "early_by", number, Shown::Most),
    Column("of the bound", "of_bound", number, Shown::Median),
    Column("a run took, ms", "run_ms", number, Shown::Median),
    Column("metadata, characters", "metadata", grouped, Shown::Most),
    Column("offsets committed", "commits", grouped, Shown::Median),
    Column("largest of them, bytes", "largest_commit", grouped, Shown::Most),
    Column("first due run, s", "first_due", number, Shown::Median),
    Column("run again", "again", grouped, Shown::Most),
    Column("lost", "lost", grouped, Shown::Most),
    Column("duplicated", "duplicated", grouped, Shown::Spread),
    Column("out of order", "out_of_order", grouped, Shown::Most),
    Column("run twice", "twice", grouped, Shown::Most),
    Column("measured, s", "timed", number, Shown::Median),
    Column("records", "records", grouped, Shown::Median),
    Column("machine late p99, ms", "machine_p99", number, Shown::Median),
    Column("taken by the host, %", "stolen", number, Shown::Median),
];

/// Work whose speed says nothing.
const UNRATED: [&str; 3] = ["delays", "pending", "killed"];

/// Writes the tables into README.md, and the plots beside it.
pub(crate) fn write(results: &Results, directory: &Path) -> Result<()> {
    let path = directory.join("README.md");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("{} cannot be read", path.display()))?;
    let plots = directory.join("plots");
    std::fs::create_dir_all(&plots)?;
    for (name, svg) in all_plots(results) {
        std::fs::write(plots.join(name), svg)?;
    }
    let text = placed(&text, &body(results)).with_context(|| path.display().to_string())?;
    std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))
}

/// Puts a text between the markers.
fn placed(text: &str, body: &str) -> Result<String> {
    let missing = || format!("the markers `{BEGIN}` and `{END}` are missing");
    let (before, rest) = text.split_once(BEGIN).with_context(missing)?;
    let (_, after) = rest.split_once(END).with_context(missing)?;
    Ok(format!("{before}{BEGIN}\n\n{body}\n{END}{after}"))
}

/// Everything between the markers.
fn body(results: &Results) -> String {
    let mut text = String::new();
    let about = |key: &str| results.about(key).unwrap_or("?");
    // Writing to a String does not fail.
    _ = writeln!(
        text,
        "Measured on {} cores of {}, {}; {}. Interleaved rounds; medians, with the lowest and the highest round in brackets.\n",
        about("cores"),
        about("processor"),
        about("memory"),
        about("java"),
    );
    text.push_str("## Targets\n\n| work | target | measured | |\n| --- | --- | --- | --- |\n");
    let works = work::all();
    let index = |name: &str| works.iter().position(|it| it.name() == name).map_or(0, |it| it + 1);
    for Target { work, wanted, measured, is_met } in targets::judge(results) {
        let (measured, verdict) = match &measured {
            Some(measured) => (measured.as_str(), if is_met { "met" } else { "**missed**" }),
            None => ("not measured", ""),
        };
        _ = writeln!(text, "| ({}) | {wanted} | {measured} | {verdict} |", index(work));
    }
    for (index, work) in works.iter().enumerate() {
        let rows: Vec<_> = results.rows.iter().filter(|it| it.work == work.name()).collect();
        if rows.is_empty() {
            continue;
        }
        let (title, about, rounds) = (work.title(), work.about(), rounds(&rows));
        _ = writeln!(text, "\n## ({}) {title}\n\n{about} {rounds}.\n", index + 1);
        for (name, title, ..) in plots_of(work.name(), results) {
            _ = writeln!(text, "![{title}](plots/{name})\n");
        }
        text.push_str(&table(work.name(), &rows, results));
    }
    text
}

/// How often engines had their turn, and when. One that cannot do it has none.
fn rounds(rows: &[&Row]) -> String {
    let counts = rows.iter().map(|it| it.samples.len()).filter(|it| *it > 0);
    let most = counts.clone().max().unwrap_or(0);
    let word = if most == 1 { "round" } else { "rounds" };
    let date = rows.first().map_or("", |it| &it.date);
    match counts.min() {
        Some(least) if least < most => format!("{least} to {most} {word}, {date}"),
        _ => format!("{most} {word}, {date}"),
    }
}

fn table(work: &str, rows: &[&Row], results: &Results) -> String {
    let is_rated = !UNRATED.contains(&work);
    let has = |name: &str| {
        rows.iter().any(|it| it.median(name).is_some_and(|it| it != 0.0 || name != "twice"))
    };
    let columns: Vec<_> = COLUMNS.iter().filter(|it| has(it.1)).collect();
    let has_batch = rows.iter().any(|it| it.engine == Engine::Batch);
    let mut heads = vec!["", "engine"];
    if is_rated {
        heads.extend(["records/s", "Redrive is × as fast"]);
    }
    heads.extend(columns.iter().map(|it| it.0));
    if has_batch {
        heads.push("CPU over the batch read, ns");
    }
    let mut text = format!("| {} |\n|{}\n", heads.join(" | "), " --- |".repeat(heads.len()));
    let mut last = "";
    for row in rows {
        let case = if row.case == last { "" } else { &row.case };
        last = &row.case;
        let mut cells = vec![case.to_owned(), row.engine.title().to_owned()];
        if row.samples.is_empty() {
            let why = row.failures.first().map_or("", |it| it.lines().next().unwrap_or_default());
            cells.push(format!("not measured: {why}"));
            cells.resize(heads.len(), String::new());
        } else {
            if is_rated {
                cells.push(spread(row, "rate", grouped).unwrap_or_default());
                cells.push(against(results, row));
            }
            cells.extend(columns.iter().map(|column| cell(row, column)));
            if has_batch {
                let over = over_batch(results, row).filter(|_| row.engine != Engine::Batch);
                cells.push(over.map(|it| format!("{it:+.0}")).unwrap_or_default());
            }
        }
        _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    for row in rows.iter().filter(|it| !it.samples.is_empty() && !it.failures.is_empty()) {
        let why = row.failures.first().map_or("", |it| it.lines().next().unwrap_or_default());
        let (count, case, engine) = (row.failures.len(), &row.case, row.engine.title());
        _ = writeln!(
            text,
            "\n{case}, {engine}: {count} turns failed and are not in it, the first: {why}"
        );
    }
    text
}

/// How many nanoseconds of CPU a record costs more than by the batch read beside it. Of the last three quarters, where that is known: before, a process
/// touches all of its memory for the first time, and what that costs belongs to no record.
fn over_batch(results: &Results, row: &Row) -> Option<f64> {
    let batch = results.row(&row.work, &row.case, Engine::Batch)?;
    let over = |cpu| Some((row.median(cpu)? - batch.median(cpu)?) * 1000.0);
    over("later_cpu_per_million").or_else(|| over("cpu_per_million"))
}

/// The median with its bounds.
fn spread(row: &Row, name: &str, write: fn(f64) -> String) -> Option<String> {
    let values = row.values(name);
    let (median, (low, high)) = (stats::median(&values)?, stats::bounds(&values)?);
    Some(format!("{} ({}–{})", write(median), write(low), write(high)))
}

/// How fast Redrive is beside it.
fn against(results: &Results, row: &Row) -> String {
    let ours = [Engine::Redrive, Engine::Ordered];
    if ours.contains(&row.engine) {
        return String::new();
    }
    let ours = ours.iter().find_map(|it| results.row(&row.work, &row.case, *it));
    let ratio = ours.and_then(|it| ratio(it, row, "rate"));
    ratio
        .map(|(ratio, low, high)| format!("{} ({}–{})", number(ratio), number(low), number(high)))
        .unwrap_or_default()
}

fn cell(row: &Row, Column(_, name, write, shown): &Column) -> String {
    let value = match shown {
        Shown::Spread => return spread(row, name, *write).unwrap_or_default(),
        Shown::Median => row.median(name),
        Shown::Most => row.most(name),
        Shown::Least => row.least(name),
    };
    value.map(write).unwrap_or_default()
}

/// A plot: its file, its title, what it shows, in which unit, and whether on a logarithmic scale.
type Plot = (String, String, &'static str, &'static str, bool);

fn plots_of(work: &str, results: &Results) -> Vec<Plot> {
    let title =
        work::all().iter().find(|it| it.name() == work).map_or("", |it| it.title()).to_owned();
    let wanted: &[(&str, &str, &str, bool)] = match work {
        "delays" => {
            &[("late_p50", "lateness p50", "ms", true), ("late_p99", "lateness p99", "ms", true)]
        }
        "pending" | "killed" => &[],
        "keys" => &[("rate", "throughput", "records/s", true)],
        _ => &[
            ("rate", "throughput", "records/s", true),
            ("cpu_per_million", "CPU", "s per million records", true),
        ],
    };
    let has =
        |name: &str| results.rows.iter().any(|it| it.work == work && it.median(name).is_some());
    let wanted = wanted.iter().filter(|it| has(it.0));
    let plot = |it: &(&'static str, &str, &'static str, bool)| {
        (
            format!("{work}-{}.svg", it.0.replace('_', "-")),
            format!("{title}: {}", it.1),
            it.0,
            it.2,
            it.3,
        )
    };
    wanted.map(plot).collect()
}

fn all_plots(results: &Results) -> Vec<(String, String)> {
    let mut plots = Vec::new();
    for work in work::all() {
        for (file, title, name, unit, is_logarithmic) in plots_of(work.name(), results) {
            let mut groups: Vec<Group> = Vec::new();
            for row in results.rows.iter().filter(|it| it.work == work.name()) {
                let values = row.values(name);
                let (Some(value), Some((low, high))) =
                    (stats::median(&values), stats::bounds(&values))
                else {
                    continue;
                };
                let is_ours = matches!(row.engine, Engine::Redrive | Engine::Ordered);
                let (label, text) = (row.engine.title().to_owned(), number(value));
                let bar = Bar { label, value, low, high, text, is_ours };
                match groups.last_mut().filter(|it| it.title == row.case) {
                    Some(group) => group.bars.push(bar),
                    None => groups.push(Group { title: row.case.clone(), bars: vec![bar] }),
                }
            }
            plots.push((file, svg::plot(&title, unit, &groups, is_logarithmic)));
        }
    }
    plots
}

/// The rates, for a terminal.
pub(crate) fn rates(results: &Results) -> String {
    let mut text = String::new();
    for row in &results.rows {
        let rate = row.median("rate").map(grouped).unwrap_or_default();
        let cpu = row.median("cpu_per_million").map(|it| it * 1000.0);
        let over = over_batch(results, row);
        let spread = stats::spread(&row.values("cpu_per_million"));
        _ = writeln!(
            text,
            "{:14} {:18} {:22} {rate:>12}/s {:>9} ns CPU{}{}",
            row.work,
            row.case,
            row.engine.title(),
            cpu.map(|it| format!("{it:.0}")).unwrap_or_default(),
            spread.map(|it| format!(" ±{:.0} %", it * 50.0)).unwrap_or_default(),
            over.map(|it| format!(" {it:+.0} over the batch read")).unwrap_or_default(),
        );
    }
    text
}

/// The targets, for a terminal.
pub(crate) fn verdicts(results: &Results) -> String {
    let mut text = String::new();
    for Target { work, wanted, measured, is_met } in targets::judge(results) {
        if let Some(measured) = measured {
            let verdict = if is_met { "met   " } else { "missed" };
            _ = writeln!(text, "{verdict} {work}: {wanted}: {measured}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn results() -> Results {
        let sample = |rate: f64| json!({ "rate": rate, "cpu_per_million": 1.5, "rss": 90.0 });
        let row = |engine: &str, rates: [f64; 2]| {
            json!({ "work": "success", "case": "100 B", "engine": engine,
                "date": "2026-01-31", "samples": rates.map(sample), "failures": [] })
        };
        let value = json!({
            "about": { "cores": "2" },
            "rows": [row("poll", [100_000.0, 120_000.0]), row("redrive", [200_000.0, 180_000.0])],
        });
        Results::from_json(&value).unwrap()
    }

    #[test]
    fn the_report_stands_between_its_markers() {
        let directory = std::env::temp_dir().join(format!("bench-report-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let readme = directory.join("README.md");
        std::fs::write(&readme, format!("before\n{BEGIN}\nold\n{END}\nafter\n")).unwrap();
        write(&results(), &directory).unwrap();
        // Once more, to see that it does not pile up.
        write(&results(), &directory).unwrap();
        let text = std::fs::read_to_string(&readme).unwrap();
        let plot = std::fs::read_to_string(directory.join("plots/success-rate.svg")).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(text.starts_with("before\n") && text.ends_with("after\n") && !text.contains("old"));
        assert_eq!(text.matches(BEGIN).count(), 1);
        assert!(
            text.contains("| (1) | 100 B: ≥ 1.0 × the poll loop | 1.75 × (1.50–2.00) | met |"),
            "{text}"
        );
        assert!(
            text.contains("plots/success-rate.svg") && text.contains("190,000 (180,000–200,000)")
        );
        assert!(text.contains(" 2 rounds, 2026-01-31.\n"), "{text}");
        assert!(plot.starts_with("<svg") && plot.contains("raw: poll loop"));
    }

    #[test]
    fn a_file_without_markers_is_left_alone() {
        let error = placed("text", "body").unwrap_err();
        assert!(error.to_string().contains(BEGIN));
    }

    #[test]
    fn what_was_written_is_read() {
        let results = results();
        assert_eq!(Results::from_json(&results.to_json()).unwrap(), results);
    }
}
