//! What a config says about running: progress, drains, limits, breakers and memory.

use std::time::Duration;

use redrive::Timestamp;
use redrive::config::{BreakerConfig, Counted, Drain, Handler, Start};

use crate::support::{places, refused, valid, valid_flow, warned, yaml};

const SECOND: Duration = Duration::from_secs(1);

/// A flow of the topic `a` with this key in line 3.
fn with(key: &str) -> String {
    format!("flows:\n- topic: a\n  {key}\n")
}

/// The same, and this key at the top of the config in line 3.
fn beside(key: &str) -> String {
    format!("flows:\n- topic: a\n{key}\n")
}

#[test]
fn what_is_not_said_has_a_default() {
    let config = valid("group: g\nflows: [{ topic: a }]");
    assert_eq!(config.state_topic, None);
    assert_eq!(config.commit_interval, SECOND);
    assert_eq!(config.drain, Drain { revoke: 5 * SECOND, shutdown: 25 * SECOND });
    assert!(!config.exactly_once);
    let flow = &config.flows[0];
    assert_eq!((flow.timeout, flow.retry_rate, flow.breaker), (None, None, None));
    assert_eq!(flow.draining, Vec::<String>::new());
    assert_eq!(flow.payload_budget, 64 << 20);
}

#[test]
fn what_is_said_is_meant() {
    let config = valid(
        "group: g\nstate_topic: progress\ncommit_interval: 250ms\ndrain: { shutdown: 1m }\nexactly_once: true\nflows:\n- topic: a\n  timeout: 10s\n  payload_budget: 2MiB\n  retry: { strategy: single, rate: 50, draining: [old.1, old.2] }\n  breaker: { failures: 20%, window: 1m, minimum: 5, count: any, probe: 2s }\n",
    );
    assert_eq!(config.state_topic.as_deref(), Some("progress"));
    assert_eq!(config.commit_interval, Duration::from_millis(250));
    assert_eq!(config.drain, Drain { revoke: 5 * SECOND, shutdown: 60 * SECOND });
    assert!(config.exactly_once);
    let flow = &config.flows[0];
    assert_eq!((flow.timeout, flow.retry_rate), (Some(10 * SECOND), Some(50)));
    assert_eq!(flow.draining, ["old.1", "old.2"]);
    assert_eq!(flow.payload_budget, 2 << 20);
    let breaker = BreakerConfig {
        failures: 0.2,
        window: 60 * SECOND,
        minimum: 5,
        counted: Counted::Any,
        probe: 2 * SECOND,
    };
    assert_eq!(flow.breaker, Some(breaker));
}

#[test]
fn a_group_begins_where_it_is_told_to() {
    let config = valid("flows: [{ topic: a }, { topic: b, start: latest }]");
    assert_eq!(config.start, Start::Earliest);
    assert_eq!((config.flows[0].start, config.flows[1].start), (None, Some(Start::Latest)));
    let at = |millis| Start::At(Timestamp::from_millis(millis));
    for (text, start) in [
        ("earliest", Start::Earliest),
        ("latest", Start::Latest),
        ("2024-02-29T12:00:00Z", at(1_709_208_000_000)),
        ("2024-02-29T13:00:00+01:00", at(1_709_208_000_000)),
        ("\"2024-02-29T12:00:00.250Z\"", at(1_709_208_000_250)),
    ] {
        assert_eq!(valid(&beside(&format!("start: {text}"))).start, start, "{text}");
        assert_eq!(valid_flow(&with(&format!("start: {text}"))).start, Some(start), "{text}");
    }
}

#[test]
fn a_time_that_nobody_can_place_is_refused_with_the_one_that_was_meant() {
    for (text, words) in [
        ("2026-11-15T09:30:00", ["no zone", "`2026-11-15T09:30:00Z`"]),
        ("2026-11-15 09:30:00", ["no zone", "`2026-11-15 09:30:00Z`"]),
        ("2026-11-15", ["is a date", "`2026-11-15T00:00:00Z`"]),
        ("yesterday", ["where to begin", "`latest`"]),
        ("1731663000000", ["where to begin", "a time such as"]),
        ("2026-02-30T00:00:00Z", ["where to begin", "a time such as"]),
        ("Latest", ["where to begin", "`latest`"]),
    ] {
        refused(&beside(&format!("start: {text}")), "start @3:8", &words);
        refused(&with(&format!("start: {text}")), "flows[0].start @3:10", &words);
    }
}

#[test]
fn a_group_whose_state_topic_could_be_anothers_is_warned() {
    warned("group: team/a\nflows: [{ topic: a }]", "group @1:8", &["state topic", "`state_topic`"]);
    valid("group: team/a\nstate_topic: s\nflows: [{ topic: a }]");
}

#[test]
fn an_empty_breaker_is_one_with_its_defaults() {
    assert_eq!(valid_flow(&with("breaker: {}")).breaker, Some(BreakerConfig::default()));
    refused(&with("breaker:"), "flows[0].breaker @3:10", &["`breaker: {}` for its defaults"]);
}

#[test]
fn times_outside_their_bounds_are_refused_and_the_bounds_are_not() {
    for (key, low, min, max, high) in [
        ("commit_interval: ", "9ms", "10ms", "1h", "1h1ms"),
        ("drain: { revoke: ", "-1s", "0s", "1h", "1h1ms"),
        ("drain: { shutdown: ", "-1s", "0s", "1h", "1h1ms"),
    ] {
        let end = if key.contains('{') { " }" } else { "" };
        let path = key.replace(": { ", ".").replace(": ", "");
        let at = format!("{path} @3:{}", key.len() + 1);
        for value in [min, max] {
            valid(&beside(&format!("{key}{value}{end}")));
        }
        let words = if low.starts_with('-') { "length of time" } else { "from 10ms to 1h" };
        refused(&beside(&format!("{key}{low}{end}")), &at, &[words]);
        let shown = format!("`{high}`");
        refused(&beside(&format!("{key}{high}{end}")), &at, &["to 1h, but is", &shown]);
    }
    for (key, low, min, max, high) in [
        ("timeout: ", "0s", "1ms", "24h", "24h1ms"),
        ("breaker: { window: ", "999ms", "1s", "1h", "1h1ms"),
        ("breaker: { probe: ", "9ms", "10ms", "1h", "1h1ms"),
    ] {
        let end = if key.contains('{') { " }" } else { "" };
        let path = key.replace(": { ", ".").replace(": ", "");
        let at = format!("flows[0].{path} @3:{}", key.len() + 3);
        for value in [min, max] {
            valid(&with(&format!("{key}{value}{end}")));
        }
        for value in [low, high] {
            let words = [&format!("should be from {min} to "), &*format!("`{value}`")];
            refused(&with(&format!("{key}{value}{end}")), &at, &words);
        }
    }
}

#[test]
fn numbers_outside_their_bounds_are_refused_and_the_bounds_are_not() {
    for (key, end, path) in [
        ("retry: { strategy: single, rate: ", " }", "retry.rate"),
        ("breaker: { minimum: ", " }", "breaker.minimum"),
    ] {
        let at = format!("flows[0].{path} @3:{}", key.len() + 3);
        for value in ["1", "1000000"] {
            valid(&with(&format!("{key}{value}{end}")));
        }
        for value in ["0", "1000001", "-1", "1.5", "'5'"] {
            refused(&with(&format!("{key}{value}{end}")), &at, &["from 1 to 1000000"]);
        }
    }
}

#[test]
fn the_share_of_a_breaker_is_from_1_to_100_percent() {
    for (value, share) in [("1%", 0.01), ("0.01", 0.01), ("50%", 0.5), ("100%", 1.0), ("1", 1.0)] {
        let flow = valid_flow(&with(&format!("breaker: {{ failures: {value} }}")));
        assert_eq!(flow.breaker.map(|it| it.failures), Some(share), "{value}");
    }
    for (value, words) in [
        ("0", "from 1% to 100%, but is `0`"),
        ("0%", "from 1% to 100%"),
        ("0.9%", "from 1% to 100%"),
        ("5", "did you mean `5%`?"),
        ("101%", "no share"),
        ("half", "no share"),
    ] {
        let text = with(&format!("breaker: {{ failures: {value} }}"));
        refused(&text, "flows[0].breaker.failures @3:24", &[words]);
    }
    refused(
        &with("breaker: { count: all }"),
        "flows[0].breaker.count @3:21",
        &["retryable, any", "`all`"],
    );
}

#[test]
fn bytes_are_written_with_a_unit_or_as_a_number() {
    for (value, bytes) in [
        ("0", 0),
        ("65536", 65_536),
        ("'65536'", 65_536),
        ("512KiB", 512 << 10),
        ("64MiB", 64 << 20),
        ("2GiB", 2 << 30),
        ("1024GiB", 1 << 40),
        ("${N}MiB", 8 << 20),
    ] {
        let flow = valid_flow(&with(&format!("payload_budget: {value}")));
        assert_eq!(flow.payload_budget, bytes, "{value}");
    }
    for (value, words) in [
        ("64MB", "no number of bytes"),
        ("64 MiB", "no number of bytes"),
        ("64mib", "no number of bytes"),
        ("1.5GiB", "no number of bytes"),
        ("-1", "no number of bytes"),
        ("MiB", "no number of bytes"),
        ("lots", "`64MiB`"),
        ("1025GiB", "at most 1024GiB"),
        ("99999999999999999999", "at most 1024GiB"),
        ("99999999999999GiB", "at most 1024GiB"),
    ] {
        let text = with(&format!("payload_budget: {value}"));
        refused(&text, "flows[0].payload_budget @3:19", &[words]);
    }
}

#[test]
fn the_state_topic_is_a_topic_of_its_own() {
    for (text, at, words) in [
        ("flows: [{ topic: a }]\nstate_topic: a\n", "state_topic @2:14", "the source topic"),
        (
            "flows: [{ topic: a }]\nstate_topic: a.dlt\n",
            "state_topic @2:14",
            "the dead-letter topic",
        ),
        (
            "flows: [{ topic: a, retry: { strategy: single } }]\nstate_topic: a.retry\n",
            "state_topic @2:14",
            "a retry topic of a flow, at flows[0].retry.topics",
        ),
        (
            "flows: [{ topic: a, retry: { draining: [b] } }]\nstate_topic: b\n",
            "state_topic @2:14",
            "a draining topic",
        ),
        (
            "flows: [{ topic: g.redrive }]\ngroup: g\n",
            "state_topic @2:8",
            "`g.redrive` (a derived name) is the state topic",
        ),
    ] {
        refused(text, at, &[words, "name of its own"]);
    }
    refused(
        "flows: [{ topic: a }]\nstate_topic: a b\n",
        "state_topic @2:14",
        &["characters that Kafka does not allow"],
    );
    valid("flows: [{ topic: g.redrive }]\ngroup: g\nstate_topic: s\n");
}

#[test]
fn a_draining_topic_is_used_by_nothing_else() {
    for (text, at, words) in [
        (
            "flows:\n- { topic: a, retry: { draining: [a] } }\n",
            "flows[0].retry.draining[0] @2:35",
            "both the source topic and a draining topic",
        ),
        (
            "flows:\n- { topic: a, retry: { strategy: single, draining: [a.retry] } }\n",
            "flows[0].retry.draining[0] @2:53",
            "both a retry topic and a draining topic",
        ),
        (
            "flows:\n- { topic: a, retry: { draining: [a.dlt] } }\n",
            "flows[0].retry.draining[0] @2:35",
            "both the dead-letter topic and a draining topic",
        ),
        (
            "flows:\n- { topic: a, retry: { draining: [b, b] } }\n",
            "flows[0].retry.draining[1] @2:38",
            "twice, first at flows[0].retry.draining[0]",
        ),
        (
            "flows:\n- { topic: a }\n- { topic: b, retry: { draining: [a] } }\n",
            "flows[1].retry.draining[0] @3:35",
            "the source topic of another flow, at flows[0].topic",
        ),
        (
            "flows:\n- { topic: a, retry: { draining: [c] } }\n- { topic: b, retry: { draining: [c] } }\n",
            "flows[1].retry.draining[0] @3:35",
            "a draining topic of another flow, at flows[0].retry.draining[0]",
        ),
    ] {
        refused(text, at, &[words]);
    }
    refused(
        &with("retry: { draining: [a/b] }"),
        "flows[0].retry.draining[0] @3:23",
        &["does not allow"],
    );
}

#[test]
fn of_two_limits_of_a_run_the_handlers_own_counts() {
    let text = "flows:\n- topic: a\n  timeout: 5s\n  handler: { http: { url: 'http://h', timeout: 10s } }\n";
    warned(
        text,
        "flows[0].timeout @3:12",
        &["no effect", "`10s`", "flows[0].handler.http.timeout"],
    );
    let flow = &yaml(text).config.unwrap().flows[0];
    assert_eq!(flow.timeout, None);
    assert!(matches!(flow.handler, Some(Handler::Http(ref it)) if it.timeout == 10 * SECOND));
    let flow = valid_flow(&with("timeout: 5s\n  handler: { http: { url: 'http://h' } }"));
    assert_eq!(flow.timeout, Some(5 * SECOND));
    assert!(matches!(flow.handler, Some(Handler::Http(ref it)) if it.timeout == 5 * SECOND));
}

#[test]
fn a_rate_without_retry_topics_has_no_effect() {
    warned(&with("retry: { rate: 5 }"), "flows[0].retry.rate @3:18", &["no effect"]);
    valid(&with("retry: { rate: 5, draining: [old] }"));
}

#[test]
fn all_problems_of_these_keys_are_told_at_once() {
    let loaded = yaml(
        "state_topic: a\ncommit_interval: 1ms\ndrain: { revoke: 2h, shutdwon: 1s }\nexactly_once: maybe\nflows:\n- topic: a\n  timeout: 0s\n  payload_budget: 1TB\n  retry: { rate: 0, draining: [a] }\n  breaker: { failures: 0, window: 1ms, minimum: 0, count: none, probe: 0s }\n",
    );
    assert!(loaded.config.is_none());
    assert_eq!(
        places(&loaded),
        [
            "error state_topic @1:14",
            "error commit_interval @2:18",
            "error drain.revoke @3:18",
            "error drain.shutdwon @3:22",
            "error exactly_once @4:15",
            "error flows[0].timeout @7:12",
            "error flows[0].payload_budget @8:19",
            "error flows[0].retry.rate @9:18",
            "error flows[0].retry.draining[0] @9:32",
            "error flows[0].breaker.failures @10:24",
            "error flows[0].breaker.window @10:35",
            "error flows[0].breaker.minimum @10:49",
            "error flows[0].breaker.count @10:59",
            "error flows[0].breaker.probe @10:72",
        ]
    );
}

#[test]
fn exactly_once_is_refused_on_the_embedded_broker() {
    refused(
        "kafka: embedded\nexactly_once: true\nflows: [{ topic: a }]",
        "exactly_once @2:15",
        &["the embedded broker's transactions do nothing", "set it to `false`"],
    );
    valid("kafka: embedded\nexactly_once: false\nflows: [{ topic: a }]");
}
