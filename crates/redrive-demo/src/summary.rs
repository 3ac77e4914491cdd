//! The end of a demo in words: what was promised, and whether it was kept.

use std::collections::BTreeMap;
use std::fmt::Write;

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};

use crate::history::History;
use crate::judge::{Fault, Findings, ms};
use crate::options::Options;
use crate::story::Story;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const RED: Style = AnsiColor::Red.on_default().bold();
const YELLOW: Style = AnsiColor::Yellow.on_default().bold();
const GREEN: Style = AnsiColor::Green.on_default().bold();
const CYAN: Style = AnsiColor::Cyan.on_default();

/// How many broken promises of a kind are shown.
const SHOWN: usize = 10;

fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// What is told in the end.
pub(crate) struct Summary<'a> {
    pub(crate) options: &'a Options,
    pub(crate) history: &'a History,
    pub(crate) findings: &'a Findings,
    pub(crate) is_cut_short: bool,
    pub(crate) story: Option<Story>,
    /// What is left on the broker, where something is.
    pub(crate) left: Option<String>,
}

impl Summary<'_> {
    /// One object, for programs.
    pub(crate) fn json(&self) -> Value {
        let findings = self.findings;
        let late = |share| findings.late(share) as f64 / 1000.0;
        let mut json = json!({
            "produced": findings.produced,
            "handled": findings.handled,
            "dead_lettered": findings.dead_lettered,
            "dropped": findings.dropped,
            "lost": findings.lost.len(),
            "early": findings.early.len(),
            "run_twice": findings.run_twice.len(),
            "late_ms": { "p50": late(0.5), "p99": late(0.99), "max": late(1.0) },
        });
        if self.is_cut_short {
            json["unfinished"] = findings.unfinished.into();
        }
        json
    }

    /// For people.
    pub(crate) fn text(&self) -> String {
        let mut text = String::from("\n");
        self.verdict(&mut text);
        self.counts(&mut text);
        let findings = self.findings;
        faults("lost", &findings.lost, RED, &mut text);
        faults("early", &findings.early, RED, &mut text);
        faults("run twice", &findings.run_twice, YELLOW, &mut text);
        if let Some(story) = &self.story {
            tell(story, &mut text);
        }
        if let Some(left) = &self.left {
            let _ = writeln!(text, "\n  {left}");
        }
        self.next(&mut text);
        text
    }

    fn verdict(&self, text: &mut String) {
        let findings = self.findings;
        let (lost, early) = (findings.lost.len(), findings.early.len());
        let (sign, line) = if lost + early > 0 {
            (styled(RED, "✖"), format!("a promise was broken: {lost} lost, {early} early"))
        } else if self.is_cut_short {
            let line = "cut short; until then nothing was lost, nothing ran early";
            (styled(YELLOW, "■"), line.to_owned())
        } else {
            (styled(GREEN, "✔"), "nothing was lost, nothing ran early".to_owned())
        };
        let _ = writeln!(text, "{sign} {}", styled(BOLD, line));
        let line = "by the service's own ledger and a read of all topics, not by Redrive's word";
        let _ = writeln!(text, "  {}\n", styled(DIM, line));
    }

    fn counts(&self, text: &mut String) {
        let findings = self.findings;
        let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
        for letter in &self.history.letters {
            *reasons.entry(&letter.reason).or_default() += 1;
        }
        let reasons: Vec<_> =
            reasons.iter().map(|(name, count)| format!("{name} {count}")).collect();
        let letters = match reasons.is_empty() {
            true => "in the dead-letter topic".to_owned(),
            false => format!("in the dead-letter topic: {}", reasons.join(", ")),
        };
        let retries = self.history.requests.iter().filter(|it| it.overall > 0).count();
        let early = format!("of {retries} retries, by due times and Retry-After");
        let mut line = |name: &str, count: usize, style: Style, how: &str| {
            let count = styled(style, format!("{count:>7}"));
            let _ = writeln!(text, "  {name:<13}{count}   {}", styled(DIM, how));
        };
        let bad = |count: usize, style: Style| if count == 0 { GREEN } else { style };
        line("produced", findings.produced, BOLD, "read back from the source topic");
        line("handled", findings.handled, BOLD, "the service got the same bytes, and said 200");
        line("dead letters", findings.dead_lettered, BOLD, &letters);
        line("dropped", findings.dropped, BOLD, "the service had asked for that");
        if self.is_cut_short {
            line(
                "unfinished",
                findings.unfinished,
                YELLOW,
                "not committed: they would go on after a restart",
            );
        }
        line(
            "lost",
            findings.lost.len(),
            bad(findings.lost.len(), RED),
            "without one of these ends",
        );
        line("early", findings.early.len(), bad(findings.early.len(), RED), &early);
        let twice = findings.run_twice.len();
        line("run twice", twice, bad(twice, YELLOW), "of an attempt, or after the end");
        if self.history.strange > 0 {
            line("strange", self.history.strange, YELLOW, "they do not say where they are from");
        }
        if findings.late.is_empty() {
            return;
        }
        let [half, most, all] = [0.5, 0.99, 1.0].map(|it| ms(findings.late(it)));
        let late = format!("p50 {half}, p99 {most}, max {all}");
        let how = styled(DIM, "from due to arrival");
        let _ = writeln!(text, "  {:<13}  {}   {how}", "late by", styled(BOLD, late));
    }

    fn next(&self, text: &mut String) {
        let seed = self.options.seed.wrapping_add(1);
        let mut all = vec![
            (
                format!("redrive demo --seed {seed} --failure-rate 60%"),
                "a worse day at the service",
            ),
            ("redrive init --topic orders".to_owned(), "a config to start from"),
            ("redrive plan --failure status=503".to_owned(), "what would happen to a record"),
        ];
        if self.options.kafka.is_none() {
            all.insert(
                1,
                ("redrive demo --kafka localhost:9092".to_owned(), "the same on your broker"),
            );
        }
        let _ = writeln!(text, "\n  {}", styled(BOLD, "try next"));
        for (command, what) in all {
            let command = styled(CYAN, format!("{command:<47}"));
            let _ = writeln!(text, "    {command}{}", styled(DIM, what));
        }
    }
}

fn faults(name: &str, faults: &[Fault], style: Style, text: &mut String) {
    if faults.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n  {}", styled(style, name));
    for fault in faults.iter().take(SHOWN) {
        let order = fault.order.map_or_else(|| "an order".to_owned(), |it| format!("order {it}"));
        let (partition, offset) = (fault.place.partition, fault.place.offset);
        let _ =
            writeln!(text, "    {order} (partition {partition}, offset {offset}): {}", fault.what);
    }
    if faults.len() > SHOWN {
        let _ = writeln!(text, "    … and {} more", faults.len() - SHOWN);
    }
}

fn tell(story: &Story, text: &mut String) {
    let _ = writeln!(text, "\n  {}", styled(BOLD, &story.title));
    for step in &story.steps {
        let style = match step.is_good {
            Some(true) => GREEN,
            Some(false) => YELLOW,
            None => DIM,
        };
        let time = format!("{:>8.3} s", step.at as f64 / 1e6);
        let _ = write!(text, "    {}  {}", styled(DIM, time), styled(style, &step.what));
        if !step.note.is_empty() {
            let _ = write!(text, ", {}", styled(DIM, &step.note));
        }
        text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::judge;
    use crate::judge::tests::good;
    use crate::orders::Orders;
    use crate::site::Names;
    use crate::story::story;

    /// What is printed about a history, without colours.
    fn told(history: &History, is_cut_short: bool) -> (String, Value) {
        let options = Options::default();
        let findings = judge(history, is_cut_short);
        let orders = Orders::new(50, 0.5, 1);
        let summary = Summary {
            options: &options,
            history,
            findings: &findings,
            is_cut_short,
            story: story(history, &orders, &Names::new("orders")),
            left: None,
        };
        (anstream::adapter::strip_str(&summary.text()).to_string(), summary.json())
    }

    #[test]
    fn a_good_end() {
        let (text, json) = told(&good(3, 50), false);
        insta::assert_snapshot!(text);
        insta::assert_snapshot!("a_good_end_as_json", json.to_string());
    }

    #[test]
    fn a_bad_end_names_the_records() {
        let mut history = good(3, 50);
        history.letters.pop();
        let early = history.requests.iter_mut().filter(|it| it.overall == 1).take(12);
        early.for_each(|it| it.arrived -= 20_000);
        let twice = history.requests[0].clone();
        history.requests.push(twice);
        history.strange = 1;
        let (text, json) = told(&history, false);
        insta::assert_snapshot!(text);
        assert_eq!((&json["lost"], &json["early"]), (&1.into(), &12.into()));
    }

    #[test]
    fn an_end_that_was_cut_short() {
        let mut history = good(3, 50);
        history.requests.truncate(60);
        history.letters.clear();
        let (text, json) = told(&history, true);
        insta::assert_snapshot!(text);
        assert!(json["unfinished"].as_u64() > Some(0), "{json}");
    }

    #[test]
    fn no_line_is_too_long_for_the_usual_terminal() {
        for is_cut_short in [false, true] {
            for line in told(&good(3, 50), is_cut_short).0.lines() {
                assert!(line.chars().count() <= 80, "{line}");
            }
        }
    }
}
