//! A strict reader of Prometheus' text format: it takes nothing that the real one or `promtool check metrics` would complain of.

use std::collections::{BTreeMap, BTreeSet};

/// A sample: its labels in their order, and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub name: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

impl Sample {
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|it| it.0 == name).map(|it| it.1.as_str())
    }
}

/// A metric with its samples.
#[derive(Clone, Debug)]
pub struct Metric {
    pub name: String,
    pub kind: String,
    pub help: String,
    pub samples: Vec<Sample>,
}

impl Metric {
    /// The value of the only sample with these labels.
    pub fn value(&self, suffix: &str, labels: &[(&str, &str)]) -> f64 {
        let name = format!("{}{suffix}", self.name);
        let is_meant = |it: &&Sample| {
            it.name == name && labels.iter().all(|(label, value)| it.label(label) == Some(value))
        };
        let found: Vec<_> = self.samples.iter().filter(is_meant).collect();
        match found.as_slice() {
            [one] => one.value,
            other => panic!("{} samples of {name} have {labels:?}", other.len()),
        }
    }
}

/// Reads a page, or panics with what is wrong with it.
pub fn read(page: &str) -> BTreeMap<String, Metric> {
    assert!(page.ends_with('\n'), "the last line has no end");
    let mut metrics: BTreeMap<String, Metric> = BTreeMap::new();
    let mut current: Option<Metric> = None;
    for line in page.lines() {
        assert!(!line.trim().is_empty() && line.trim() == line, "a strange line: {line:?}");
        if let Some(rest) = line.strip_prefix("# HELP ") {
            if let Some(done) = current.take() {
                finish(done, &mut metrics);
            }
            let (name, help) = rest.split_once(' ').unwrap();
            assert!(is_name(name) && !help.is_empty(), "{line}");
            current = Some(Metric {
                name: name.to_owned(),
                kind: String::new(),
                help: help.to_owned(),
                samples: Vec::new(),
            });
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let metric = current.as_mut().unwrap_or_else(|| panic!("no HELP before {line}"));
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(
                metric.name == name && metric.kind.is_empty() && metric.samples.is_empty(),
                "{line}"
            );
            assert!(matches!(kind, "counter" | "gauge" | "histogram"), "{line}");
            metric.kind = kind.to_owned();
        } else {
            assert!(!line.starts_with('#'), "{line}");
            let metric = current.as_mut().unwrap_or_else(|| panic!("no metric before {line}"));
            assert!(!metric.kind.is_empty(), "no TYPE before {line}");
            metric.samples.push(sample(line));
        }
    }
    if let Some(done) = current {
        finish(done, &mut metrics);
    }
    metrics
}

fn finish(metric: Metric, into: &mut BTreeMap<String, Metric>) {
    let name = metric.name.clone();
    assert!(
        !metric.kind.is_empty() && !metric.samples.is_empty(),
        "{name} has no type or no samples"
    );
    assert_eq!(
        metric.kind == "counter",
        name.ends_with("_total"),
        "{name}: counters end in _total, and only they"
    );
    let mut seen = BTreeSet::new();
    for it in &metric.samples {
        let mut labels = it.labels.clone();
        labels.sort();
        assert!(seen.insert((it.name.clone(), labels)), "{name} has the same sample twice: {it:?}");
        if metric.kind == "counter" {
            assert!(it.value >= 0.0, "{it:?}");
        }
        if metric.kind != "histogram" {
            assert!(it.name == name && it.label("le").is_none(), "{it:?}");
        }
    }
    if metric.kind == "histogram" {
        check_histogram(&metric);
    }
    assert!(into.insert(name.clone(), metric).is_none(), "{name} is there twice");
}

fn check_histogram(metric: &Metric) {
    let others = |it: &Sample| -> Vec<(String, String)> {
        it.labels.iter().filter(|it| it.0 != "le").cloned().collect()
    };
    let groups: BTreeSet<_> = metric.samples.iter().map(others).collect();
    for group in groups {
        let of = |suffix: &str| -> Vec<&Sample> {
            let name = format!("{}{suffix}", metric.name);
            metric.samples.iter().filter(|it| it.name == name && others(it) == group).collect()
        };
        let buckets = of("_bucket");
        let bounds: Vec<f64> = buckets
            .iter()
            .map(|it| match it.label("le").unwrap() {
                "+Inf" => f64::INFINITY,
                text => text.parse().unwrap(),
            })
            .collect();
        assert!(bounds.is_sorted_by(|a, b| a < b), "{}: {bounds:?}", metric.name);
        assert_eq!(bounds.last(), Some(&f64::INFINITY), "{}", metric.name);
        assert!(buckets.is_sorted_by(|a, b| a.value <= b.value), "{}: buckets add up", metric.name);
        let (counts, sums) = (of("_count"), of("_sum"));
        assert_eq!((counts.len(), sums.len()), (1, 1), "{}", metric.name);
        assert_eq!(counts[0].value, buckets.last().unwrap().value, "{}", metric.name);
    }
    let known = ["_bucket", "_count", "_sum"].map(|it| format!("{}{it}", metric.name));
    assert!(metric.samples.iter().all(|it| known.contains(&it.name)), "{}", metric.name);
}

fn is_name(text: &str) -> bool {
    text.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_')
        && text.chars().all(|it| it.is_ascii_alphanumeric() || it == '_')
}

fn sample(line: &str) -> Sample {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let (name, mut rest) = line.split_at(end);
    assert!(is_name(name), "{line}");
    let mut labels = Vec::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("{line}"));
            assert!(is_name(label) && !label.starts_with("__"), "{label} in {line}");
            assert!(
                labels.iter().all(|it: &(String, String)| it.0 != label),
                "{label} twice in {line}"
            );
            let (value, after) = value(after, line);
            labels.push((label.to_owned(), value));
            match after.split_at(1) {
                (",", after) => rest = after,
                ("}", after) => {
                    rest = after;
                    break;
                }
                _ => panic!("{line}"),
            }
        }
    }
    let number =
        rest.strip_prefix(' ').unwrap_or_else(|| panic!("no blank before the value: {line}"));
    let value: f64 = number.parse().unwrap_or_else(|_| panic!("{number:?} is no number: {line}"));
    assert!(value.is_finite(), "{line}");
    Sample { name: name.to_owned(), labels, value }
}

/// A label's value up to its closing quote, and what is behind that.
fn value<'a>(text: &'a str, line: &str) -> (String, &'a str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((index, it)) = chars.next() {
        match it {
            '"' => return (value, &text[index + 1..]),
            '\\' => match chars.next().map(|it| it.1) {
                Some('n') => value.push('\n'),
                Some(it @ ('\\' | '"')) => value.push(it),
                other => panic!("a strange escape {other:?} in {line}"),
            },
            it => value.push(it),
        }
    }
    panic!("a quote is missing: {line}")
}
