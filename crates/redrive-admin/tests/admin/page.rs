//! The page for Prometheus.

use std::collections::BTreeSet;

use redrive::Report;
use redrive_admin::metrics::{FAMILIES, Kind, render};

use crate::prometheus::read;
use crate::sample;

#[test]
fn everything_that_is_counted_is_on_the_page_with_its_labels_and_nothing_else() {
    let page = render(&sample());
    let metrics = read(&page);
    let expected: BTreeSet<_> = FAMILIES.iter().map(|it| it.name.to_owned()).collect();
    assert_eq!(metrics.keys().cloned().collect::<BTreeSet<_>>(), expected);
    for family in FAMILIES {
        let metric = &metrics[family.name];
        assert_eq!(
            (metric.kind.as_str(), metric.help.as_str()),
            (family.kind.as_str(), family.help)
        );
        for sample in &metric.samples {
            let labels: Vec<_> =
                sample.labels.iter().map(|it| it.0.as_str()).filter(|it| *it != "le").collect();
            assert_eq!(labels, family.labels, "{}", family.name);
        }
    }
}

#[test]
fn names_and_kinds_follow_the_customs() {
    for family in FAMILIES {
        assert!(family.name.starts_with("redrive_"), "{}", family.name);
        assert_eq!(
            family.name.ends_with("_total"),
            family.kind == Kind::Counter,
            "{}",
            family.name
        );
        assert!(family.help.ends_with('.'), "{}", family.name);
    }
}

#[test]
fn the_numbers_are_those_of_the_report() {
    let metrics = read(&render(&sample()));
    let of = |name: &str, labels: &[(&str, &str)]| metrics[name].value("", labels);
    assert_eq!(of("redrive_ready", &[]), 1.0);
    assert_eq!(of("redrive_records_total", &[("flow", "orders"), ("outcome", "done")]), 7.0);
    assert_eq!(of("redrive_runs_total", &[("flow", "orders"), ("result", "failed")]), 5.0);
    assert_eq!(of("redrive_failed_last_minute", &[("flow", "refunds")]), 3.0);
    assert_eq!(
        of("redrive_dead_letters_total", &[("flow", "refunds"), ("reason", "too-large")]),
        1.0
    );
    let place = [("flow", "orders"), ("topic", "orders"), ("partition", "1"), ("group", "billing")];
    assert_eq!(
        (of("redrive_lag_records", &place), of("redrive_uncommitted_records", &place)),
        (30.0, 60.0)
    );
    let topic = [("flow", "orders"), ("topic", "orders"), ("tier", "source")];
    // Of both partitions: the sum of what waits, and the age of the oldest.
    assert_eq!(
        (of("redrive_waiting_records", &topic), of("redrive_ready_records", &topic)),
        (10.0, 4.0)
    );
    assert_eq!(of("redrive_oldest_record_age_seconds", &topic), 91.0);
    assert_eq!(of("redrive_overdue_seconds", &topic), 1.25);
}

#[test]
fn names_from_outside_come_back_as_they_are() {
    let metrics = read(&render(&sample()));
    let policies: BTreeSet<_> = metrics["redrive_retries_total"]
        .samples
        .iter()
        .map(|it| it.label("policy").unwrap())
        .collect();
    assert_eq!(policies, BTreeSet::from(["back\\slash \"quoted\"\nline", "größe"]));
}

#[test]
fn buckets_add_up() {
    let metrics = read(&render(&sample()));
    let of = |suffix: &str, labels: &[(&str, &str)]| {
        let labels = [&[("flow", "orders")], labels].concat();
        metrics["redrive_run_duration_seconds"].value(suffix, &labels)
    };
    assert_eq!([of("_bucket", &[("le", "0.001")]), of("_bucket", &[("le", "0.25")])], [4.0, 7.0]);
    assert_eq!([of("_bucket", &[("le", "60")]), of("_bucket", &[("le", "+Inf")])], [7.0, 12.0]);
    assert_eq!([of("_count", &[]), of("_sum", &[])], [12.0, 1.5]);
}

#[test]
fn before_the_brokers_are_there_the_page_says_so() {
    let metrics = read(&render(&Report::default()));
    assert_eq!(metrics["redrive_ready"].value("", &[]), 0.0);
    assert_eq!(metrics.len(), 2);
}

#[test]
fn an_end_that_is_not_known_is_left_out() {
    let mut report = sample();
    report.flows.iter_mut().flat_map(|it| &mut it.partitions).for_each(|it| it.end = None);
    assert!(!read(&render(&report)).contains_key("redrive_lag_records"));
}
