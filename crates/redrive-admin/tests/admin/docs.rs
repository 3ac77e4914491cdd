//! The docs, the dashboard and the alerts speak of metrics that are there.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use redrive_admin::metrics::{FAMILIES, Family, Kind};
use serde_json::Value;

fn doc(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The metric that has samples of this name.
fn family(name: &str) -> Option<&'static Family> {
    FAMILIES.iter().find(|it| match it.kind {
        Kind::Histogram => ["_bucket", "_sum", "_count"]
            .iter()
            .any(|suffix| name.strip_suffix(suffix) == Some(it.name)),
        Kind::Counter | Kind::Gauge => it.name == name,
    })
}

/// Each name of ours in an expression, with the labels that are asked for in braces behind it.
fn names(expression: &str) -> Vec<(String, Vec<String>)> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let mut found = Vec::new();
    let mut rest = expression;
    while let Some(start) = rest.find("redrive_") {
        rest = &rest[start..];
        let end = rest.find(|it| !is_part(it)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        let selected =
            after.strip_prefix('{').and_then(|it| it.split_once('}')).map_or("", |it| it.0);
        let labels = selected
            .split(',')
            .filter_map(|it| it.split(['=', '!', '~']).next())
            .map(|it| it.trim().to_owned())
            .filter(|it| !it.is_empty());
        found.push((name.to_owned(), labels.collect()));
        rest = after;
    }
    found
}

/// The labels in `by (…)` and `without (…)`.
fn grouped(expression: &str) -> Vec<String> {
    let mut found = Vec::new();
    for word in ["by (", "by(", "on (", "on("] {
        for part in expression.split(word).skip(1) {
            let inner = part.split_once(')').unwrap().0;
            found.extend(inner.split(',').map(|it| it.trim().to_owned()));
        }
    }
    found
}

fn check(expression: &str) -> BTreeSet<String> {
    let found = names(expression);
    assert!(!found.is_empty(), "no metric of ours in {expression}");
    let mut known: BTreeSet<&str> = BTreeSet::from(["le", "job", "instance"]);
    let mut used = BTreeSet::new();
    for (name, labels) in found {
        let family = family(&name).unwrap_or_else(|| panic!("there is no {name}, in {expression}"));
        known.extend(family.labels);
        used.insert(family.name.to_owned());
        for label in labels {
            let is_known = family.labels.contains(&label.as_str())
                || ["le", "job", "instance"].contains(&label.as_str());
            assert!(is_known, "{name} has no label {label}, in {expression}");
        }
        if family.kind == Kind::Counter {
            let is_rated =
                ["rate(", "increase("].iter().any(|it| expression.contains(&format!("{it}{name}")));
            assert!(
                is_rated,
                "the counter {name} means something by its rate alone, in {expression}"
            );
        }
    }
    for label in grouped(expression) {
        assert!(known.contains(label.as_str()), "nothing has a label {label}, in {expression}");
    }
    used
}

#[test]
fn the_table_of_metrics_is_what_there_is() {
    let doc = doc("metrics.md");
    let rows: Vec<Vec<&str>> = doc
        .lines()
        .filter(|it| it.starts_with("| `redrive_"))
        .map(|it| it.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let expected: Vec<Vec<String>> = FAMILIES
        .iter()
        .map(|it| {
            let labels: Vec<_> = it.labels.iter().map(|it| format!("`{it}`")).collect();
            vec![
                format!("`{}`", it.name),
                it.kind.as_str().to_owned(),
                labels.join(", "),
                it.help.to_owned(),
            ]
        })
        .collect();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        for row in &expected {
            eprintln!("| {} |", row.join(" | "));
        }
    }
    assert_eq!(rows, expected, "UPDATE_DOCS=1 prints the rows");
}

#[test]
fn names_in_the_text_of_the_docs_exist() {
    for (name, _) in names(&doc("metrics.md")) {
        let is_known = family(&name).is_some() || FAMILIES.iter().any(|it| it.name == name);
        assert!(is_known, "there is no {name}");
    }
}

fn expressions<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key == "expr" => found.push(text),
                    // The one of the data source asks for no metric.
                    Value::String(text) if key == "query" && text != "prometheus" => {
                        found.push(text);
                    }
                    value => expressions(value, found),
                }
            }
        }
        Value::Array(list) => list.iter().for_each(|it| expressions(it, found)),
        _ => {}
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_are_there() {
    let dashboard: Value = serde_json::from_str(&doc("grafana/redrive.json")).unwrap();
    let mut found = Vec::new();
    expressions(&dashboard, &mut found);
    assert!(found.len() > 15, "{}", found.len());
    let used: BTreeSet<_> = found.into_iter().flat_map(check).collect();
    for needed in [
        "redrive_records_total",
        "redrive_dead_letters_total",
        "redrive_lag_records",
        "redrive_retry_lateness_seconds",
    ] {
        assert!(used.contains(needed), "{needed}");
    }
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    // No panel lies on another.
    let place = |it: &Value, key: &str| it["gridPos"][key].as_u64().unwrap();
    for (index, one) in panels.iter().enumerate() {
        for other in &panels[index + 1..] {
            let is_apart = |at: &str, size: &str| {
                place(one, at) + place(one, size) <= place(other, at)
                    || place(other, at) + place(other, size) <= place(one, at)
            };
            assert!(
                is_apart("x", "w") || is_apart("y", "h"),
                "{} and {}",
                one["title"],
                other["title"]
            );
        }
    }
}

#[test]
fn the_alerts_ask_for_metrics_that_are_there() {
    // Each rule is `- alert:`, `expr:`, `for:`, `labels:`, `annotations:`, in this plain form of YAML.
    let text = doc("alerts.yml");
    let mut alerts: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in text.lines().map(str::trim) {
        if let Some(alert) = line.strip_prefix("- alert: ") {
            name = alert.to_owned();
        }
        if let Some(expression) = line.strip_prefix("expr: ") {
            assert!(
                alerts.insert(name.clone(), check(expression)).is_none(),
                "{name} is there twice"
            );
        }
    }
    assert_eq!(text.matches("severity:").count(), alerts.len(), "each alert has a severity");
    assert_eq!(text.matches("summary:").count(), alerts.len(), "each alert has a summary");
    let about = |metric: &str| alerts.values().any(|it| it.contains(metric));
    for needed in [
        "redrive_retries_total",
        "redrive_dead_letters_total",
        "redrive_retry_lateness_seconds",
        "redrive_stopped",
        "redrive_unpublished_records",
    ] {
        assert!(about(needed), "no alert about {needed}");
    }
}

#[test]
fn an_expression_with_a_wrong_name_or_label_is_noticed() {
    let is_refused = |expression: &str| std::panic::catch_unwind(|| check(expression)).is_err();
    assert!(!is_refused("sum by (flow) (rate(redrive_records_total{outcome=\"done\"}[5m]))"));
    assert!(is_refused("sum by (flow) (rate(redrive_record_total[5m]))"));
    assert!(is_refused("rate(redrive_records_total{reason=\"done\"}[5m])"));
    assert!(is_refused("sum by (reason) (rate(redrive_records_total[5m]))"));
    assert!(is_refused("redrive_records_total > 5"));
    assert!(is_refused("redrive_run_duration_seconds > 5"), "a histogram is not a number");
}
