//! The report: tables between markers of README.md, and plots beside it. Made from the results, and from nothing else.

use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result};

use crate::results::{Results, Row};
use crate::stats;
use crate::svg::{self, Bar, Group};
use crate::targets::{self, Found, Target, grouped, number, ratio};
use crate::turn::Engine;
use crate::work;
use crate::work::failing::SHARES;
use crate::work::keys::FORMS;
use crate::work::success::{LARGE, SMALL};

/// What stands between which two lines: all at one look, and all in full.
const SUMMARY: [&str; 2] =
    ["<!-- summary: made by bench/run, not by hand -->", "<!-- end of summary -->"];
const RESULTS: [&str; 2] =
    ["<!-- results: made by bench/run, not by hand -->", "<!-- end of results -->"];

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

const COLUMNS: [Column; 22] = [
    Column("CPU s per million", "cpu_per_million", number, Shown::Spread),
    Column("not ended at the end", "open", grouped, Shown::Median),
    Column("peak memory, MiB", "rss", grouped, Shown::Median),
    Column("while they wait, MiB", "rss_waiting", grouped, Shown::Spread),
    Column("after restart, MiB", "rss_restarted", grouped, Shown::Median),
    Column("late p50, ms", "late_p50", number, Shown::Spread),
    Column("p99", LATE_P99, number, Shown::Spread),
    Column("max", "late_max", number, Shown::Most),
    Column("early", "early", grouped, Shown::Most),
    Column("by at most, ms", "early_by", number, Shown::Most),
    Column("of the bound", "of_bound", number, Shown::Median),
    Column("a run took, ms", "run_ms", number, Shown::Median),
    Column("metadata, characters", "metadata", grouped, Shown::Most),
    Column("offsets committed", "commits", grouped, Shown::Median),
    Column("largest of them, bytes", "largest_commit", grouped, Shown::Most),
    Column("first due run, s", "first_due", number, Shown::Spread),
    Column("since the start, s", "first_due_since_start", number, Shown::Spread),
    Column("run again", "again", grouped, Shown::Most),
    Column("never ended", "lost", grouped, Shown::Spread),
    Column("duplicated", "duplicated", grouped, Shown::Spread),
    Column("out of order", "out_of_order", grouped, Shown::Spread),
    Column("run twice", "twice", grouped, Shown::Most),
];

/// What is told of how it was measured.
const CONDITIONS: [Column; 6] = [
    Column("measured, s", "took", number, Shown::Spread),
    Column("records", "records", grouped, Shown::Median),
    Column("late min, ms", "late_min", number, Shown::Least),
    Column("machine late p99, ms", "machine_p99", number, Shown::Spread),
    Column("taken by the host, %", "stolen", number, Shown::Spread),
    Column("broker read from disk, MiB", "from_disk", number, Shown::Spread),
];

/// Of fewer retries than a hundred, the latest in a hundred is just the latest.
const LATE_P99: &str = "late_p99";

/// Work whose speed says nothing.
const UNRATED: [&str; 3] = ["delays", "pending", "killed"];

/// Work whose forms are so different that each has a table.
const APART: [&str; 2] = ["delays", "stuck"];

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
    let placed = placed(&text, SUMMARY, &summary(results))
        .and_then(|text| placed(&text, RESULTS, &details(results)));
    let text = placed.with_context(|| path.display().to_string())?;
    std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))
}

/// Puts a text between its markers.
fn placed(text: &str, [begin, end]: [&str; 2], body: &str) -> Result<String> {
    let missing = || format!("the markers `{begin}` and `{end}` are missing");
    let (before, rest) = text.split_once(begin).with_context(missing)?;
    let (_, after) = rest.split_once(end).with_context(missing)?;
    Ok(format!("{before}{begin}\n\n{body}\n{end}{after}"))
}

/// What most readers want to know.
fn summary(results: &Results) -> String {
    let mut text = String::new();
    let about = |key: &str| results.about(key).unwrap_or("?");
    // Writing to a String does not fail.
    _ = write!(
        text,
        "Measured on {} cores of {}, {}; {}",
        about("cores"),
        about("processor"),
        about("memory"),
        about("java"),
    );
    if let Some(commit) = results.about("commit") {
        _ = write!(text, "; commit {commit}");
    }
    text.push_str(
        ". Medians of the rounds, with the lowest and the highest in brackets. A ratio is taken within each round, so that the median of the ratios \
         is not the ratio of the medians. Counts of what must not happen, and limits that hold always, are those of the worst round.\n\n",
    );
    text.push_str(&peers(results));
    let targets = targets::judge(results);
    let found = || targets.iter().filter_map(|it| it.found.as_ref());
    _ = writeln!(
        text,
        "\n## Targets\n\n{} of {} are met: by the median, or by each round where something must never be.\n",
        found().filter(|it| it.is_met).count(),
        found().count(),
    );
    text.push_str(
        "| work | target | measured | rounds that met it | |\n| --- | --- | --- | --- | --- |\n",
    );
    for Target { work, wanted, found } in &targets {
        let (measured, rounds, verdict) = match found {
            Some(Found { measured, is_met, rounds: (met, all) }) => (
                measured.as_str(),
                format!("{met} of {all}"),
                if *is_met { "met" } else { "**missed**" },
            ),
            None => ("not measured", String::new(), ""),
        };
        _ = writeln!(text, "| ({}) | {wanted} | {measured} | {rounds} | {verdict} |", index(work));
    }
    text
}

/// Redrive beside the Java libraries, at one look.
fn peers(results: &Results) -> String {
    use Engine::{Ordered, Parallel, Redrive, SpringTuned};
    let share = |percent: u64| SHARES.iter().find(|it| it.1 == percent).map_or("", |it| it.0);
    let keys = FORMS.iter().map(|it| it.0).next_back().unwrap_or_default();
    let rows = [
        ("nothing fails, 100 B", "success", SMALL, Redrive),
        ("nothing fails, 100 B, Redrive with order per key", "success", SMALL, Ordered),
        ("nothing fails, 1 KB", "success", LARGE, Redrive),
        ("1 % of first runs fail", "failing", share(1), Redrive),
        ("all first runs fail", "failing", share(100), Redrive),
        ("a handler that waits 10 ms, in order of 10,000 keys", "keys", keys, Ordered),
    ];
    let mut text = "## In short\n\nRedrive\u{2019}s rate and CPU for each record, divided by those of the two Java libraries. A rate above 1 and CPU below 1 speak for Redrive.\n\n\
        | work | rate ÷ Spring Kafka, tuned | CPU ÷ Spring Kafka, tuned | rate ÷ Parallel Consumer | CPU ÷ Parallel Consumer |\n| --- | --- | --- | --- | --- |\n"
        .to_owned();
    for (label, work, case, engine) in rows {
        let Some(ours) = results.row(work, case, engine) else {
            continue;
        };
        let mut cells = vec![label.to_owned()];
        for peer in [SpringTuned, Parallel] {
            // A comparison of slots with threads would be none.
            let is_bounded = (work, peer) == ("keys", SpringTuned);
            let theirs = results.row(work, case, peer).filter(|_| !is_bounded);
            for name in ["rate", "cpu_per_million"] {
                let ratio = theirs.and_then(|it| ratio(ours, it, name));
                cells.push(ratio.map(with_bounds).unwrap_or_default());
            }
        }
        _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

/// The number by which the issue, the targets and the tables know it.
fn index(name: &str) -> usize {
    work::all().iter().position(|it| it.name() == name).map_or(0, |it| it + 1)
}

/// All that was measured, work by work.
fn details(results: &Results) -> String {
    let mut text = String::new();
    for work in work::all() {
        let rows: Vec<_> = results.rows.iter().filter(|it| it.work == work.name()).collect();
        if rows.is_empty() {
            continue;
        }
        let (title, about, rounds) = (work.title(), work.about(), rounds(&rows));
        _ = writeln!(text, "## ({}) {title}\n\n{about} {rounds}.\n", index(work.name()));
        for (name, title, ..) in plots_of(work.name(), results) {
            _ = writeln!(text, "![{title}](plots/{name})\n");
        }
        let is_apart = APART.contains(&work.name());
        for rows in rows.chunk_by(|one, next| !is_apart || one.case == next.case) {
            text.push_str(&table(work.name(), rows, results));
            text.push('\n');
        }
        text.push_str("<details><summary>How it was measured</summary>\n\n");
        text.push_str(&conditions(&rows));
        text.push_str("\n</details>\n\n");
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

/// Those columns of which something was measured.
fn columns<'a>(all: &'a [Column], rows: &[&Row]) -> Vec<&'a Column> {
    let has = |name: &str| {
        rows.iter().any(|it| it.median(name).is_some_and(|it| it != 0.0 || name != "twice"))
    };
    all.iter().filter(|it| has(it.1)).collect()
}

/// Which form an engine did, unless the line above says so.
fn form<'a>(row: &'a Row, last: &mut &'a str) -> String {
    let is_same = row.case == *last;
    *last = &row.case;
    if is_same { String::new() } else { row.case.clone() }
}

fn table(work: &str, rows: &[&Row], results: &Results) -> String {
    let is_rated = !UNRATED.contains(&work);
    let columns = columns(&COLUMNS, rows);
    let has_batch = rows.iter().any(|it| it.engine == Engine::Batch);
    let is_beside = rows.iter().any(|it| !against(results, it, "rate").is_empty());
    let mut heads = vec!["", "engine"];
    if is_rated {
        heads.push("records/s");
    }
    if is_rated && is_beside {
        heads.extend(if work == EXACTLY_ONCE {
            ["÷ (2)", "CPU ÷ (2)"]
        } else {
            ["Redrive ÷ this", "CPU: Redrive ÷ this"]
        });
    }
    heads.extend(columns.iter().map(|it| it.0));
    if has_batch {
        heads.push("CPU over the batch read, ns");
    }
    let mut text = headed(&heads);
    let mut last = "";
    for row in rows {
        let mut cells = vec![form(row, &mut last), row.engine.title().to_owned()];
        if row.samples.is_empty() {
            let why = row.failures.first().map_or("", |it| it.lines().next().unwrap_or_default());
            cells.push(format!("not measured: {why}"));
            cells.resize(heads.len(), String::new());
        } else {
            if is_rated {
                cells.push(spread(row, "rate", grouped).unwrap_or_default());
            }
            if is_rated && is_beside {
                cells.push(against(results, row, "rate"));
                cells.push(against(results, row, "cpu_per_million"));
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

/// What was the same for nobody: how long it took, and what the machine was like meanwhile.
fn conditions(rows: &[&Row]) -> String {
    let columns = columns(&CONDITIONS, rows);
    let mut heads = vec!["", "engine"];
    heads.extend(columns.iter().map(|it| it.0));
    let mut text = headed(&heads);
    let mut last = "";
    for row in rows.iter().filter(|it| !it.samples.is_empty()) {
        let mut cells = vec![form(row, &mut last), row.engine.title().to_owned()];
        cells.extend(columns.iter().map(|column| cell(row, column)));
        _ = writeln!(text, "| {} |", cells.join(" | "));
    }
    text
}

fn headed(heads: &[&str]) -> String {
    format!("| {} |\n|{}\n", heads.join(" | "), " --- |".repeat(heads.len()))
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

/// Work that is compared with the same without exactly-once.
const EXACTLY_ONCE: &str = "exactly-once";

/// A number of Redrive's, divided by that of an engine beside it.
fn against(results: &Results, row: &Row, name: &str) -> String {
    let ours = [Engine::Redrive, Engine::Ordered];
    let ratio = if row.work == EXACTLY_ONCE {
        results.row("failing", &row.case, row.engine).and_then(|it| ratio(row, it, name))
    } else if ours.contains(&row.engine) {
        None
    } else {
        let ours = ours.iter().find_map(|it| results.row(&row.work, &row.case, *it));
        ours.and_then(|it| ratio(it, row, name))
    };
    ratio.map(with_bounds).unwrap_or_default()
}

fn with_bounds((ratio, low, high): (f64, f64, f64)) -> String {
    format!("{} ({}–{})", number(ratio), number(low), number(high))
}

/// Whether a number of a row says what its name does.
fn says_something(row: &Row, name: &str) -> bool {
    name != LATE_P99 || row.median("late_count").is_none_or(|it| it >= 100.0)
}

fn cell(row: &Row, Column(_, name, write, shown): &Column) -> String {
    if !says_something(row, name) {
        return String::new();
    }
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
            &[("late_p50", "lateness p50", "ms", true), (LATE_P99, "lateness p99", "ms", true)]
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
            let rows = results.rows.iter().filter(|it| it.work == work.name());
            for row in rows.filter(|it| says_something(it, name)) {
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
    for Target { work, wanted, found } in targets::judge(results) {
        if let Some(Found { measured, is_met, .. }) = found {
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
        let old = [SUMMARY, RESULTS].map(|[begin, end]| format!("{begin}\nof before\n{end}\n"));
        std::fs::write(&readme, format!("before\n{}between\n{}after\n", old[0], old[1])).unwrap();
        write(&results(), &directory).unwrap();
        // Once more, to see that it does not pile up.
        write(&results(), &directory).unwrap();
        let text = std::fs::read_to_string(&readme).unwrap();
        let plot = std::fs::read_to_string(directory.join("plots/success-rate.svg")).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert!(text.starts_with("before\n") && text.ends_with("after\n"));
        assert!(!text.contains("of before"));
        for marker in [SUMMARY, RESULTS].concat() {
            assert_eq!(text.matches(marker).count(), 1, "{marker}");
        }
        let target = "| (1) | 100 B: ≥ 1.0 × the poll loop | 1.75 × (1.50–2.00) | 2 of 2 | met |";
        assert!(text.contains(target) && text.contains("1 of 1 are met"), "{text}");
        assert!(
            text.contains("plots/success-rate.svg") && text.contains("190,000 (180,000–200,000)")
        );
        assert!(text.contains(" 2 rounds, 2026-01-31.\n"), "{text}");
        assert!(plot.starts_with("<svg") && plot.contains("raw: poll loop"));
    }

    #[test]
    fn a_file_without_markers_is_left_alone() {
        let error = placed("text", SUMMARY, "body").unwrap_err();
        assert!(error.to_string().contains(SUMMARY[0]));
    }

    #[test]
    fn what_was_written_is_read() {
        let results = results();
        assert_eq!(Results::from_json(&results.to_json()).unwrap(), results);
    }
}
