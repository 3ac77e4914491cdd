//! No file does harm: whatever it holds, loading it ends soon, without a panic, and every error
//! says where it is.

use std::time::{Duration, Instant};

use proptest::prelude::*;
use redrive::config::{Config, Loaded, Options, Severity, Syntax};

use crate::support::env;

const SAMPLES: [&str; 4] = [
    include_str!("../../../../examples/orders.yaml"),
    include_str!("quafka_scenarios.yaml"),
    include_str!("broken.yaml"),
    r#"{ "Logging": {}, "Kafka": { "RetryConfiguration": { "MaxRetryAttempts": 3, "RetryDelayMs": 5000,
        "UseExponentialBackoff": true, "BackoffMultiplier": 2.0, "RetryTopicSuffix": "-retry" } },
        "RetryTopics": [{ "TopicName": "orders.retry", "Delay": "00:00:30", "RetryAttempts": 3, "GroupId": "g" }] }"#,
];

/// What means something to YAML, JSON or a config.
const PIECES: [&str; 60] = [
    "[",
    "]",
    "{",
    "}",
    "? ",
    "- ",
    "-",
    ": ",
    ":",
    "\n",
    "\r\n",
    "\r",
    " ",
    "  ",
    "\t",
    "&a ",
    "*a",
    "!t ",
    "!!str ",
    "|\n",
    "|+2\n",
    ">-\n",
    "\"",
    "'",
    "#",
    "---\n",
    "...\n",
    "%YAML 1.2\n",
    "%TAG ! x\n",
    ",",
    "<<: *a",
    "\\",
    "\\u12",
    "@",
    "`",
    "${N}",
    "${",
    "}",
    "${N:-",
    "$${",
    "1",
    "-1",
    "99999999999999999999",
    "1e999",
    "~",
    "null",
    "true",
    "flows:",
    "topic: a\n",
    "on: any",
    "use: common",
    "\u{FEFF}",
    "\u{2028}",
    "\u{85}",
    "\0",
    "😀",
    "é",
    "/*",
    "//",
    "\u{202e}",
];

/// Loads `text` in both formats, and checks what must hold of any file.
fn assert_harmless(text: &str) {
    for syntax in [Syntax::Yaml, Syntax::Json] {
        let options = Options { topic: Some("orders"), group: None, env: &env };
        let loaded = Config::load(text, syntax, &options).unwrap();
        let has_errors = loaded.problems.iter().any(|it| it.severity == Severity::Error);
        assert_eq!(loaded.config.is_none(), has_errors, "{text:?} {:#?}", loaded.problems);
        assert_placed(&loaded);
    }
}

/// Every error has a path or a position, unless it is about the whole file.
fn assert_placed(loaded: &Loaded) {
    for it in &loaded.problems {
        let is_about_all = it.message.contains("1 MiB") || it.message.contains("not listed");
        assert!(!it.message.is_empty());
        assert!(is_about_all || it.position.is_some() || !it.path.is_empty(), "{it:?}");
        let is_short = it.path.len() + it.message.len() < 8_000;
        assert!(is_short, "{} characters", it.path.len() + it.message.len());
        let shown = format!("{}{}{:?}", it.path, it.message, it.hint);
        let is_clean = !shown.contains(|it: char| it.is_control());
        assert!(is_clean, "a terminal would obey this: {shown:?}");
    }
}

/// Checks a text that might take long, and that it does not.
fn assert_quick(name: &str, text: &str) {
    let start = Instant::now();
    assert_harmless(text);
    let took = start.elapsed();
    assert!(took < Duration::from_secs(30), "{name} took {took:?}");
}

fn mutated() -> impl Strategy<Value = String> {
    let change =
        (any::<prop::sample::Index>(), 0..40usize, prop::sample::select(&PIECES[..]), 0..3u8);
    (prop::sample::select(&SAMPLES[..]), prop::collection::vec(change, 1..6)).prop_map(
        |(sample, changes)| {
            let mut text: Vec<char> = sample.chars().collect();
            for (at, length, piece, what) in changes {
                let at = at.index(text.len() + 1);
                let end = (at + length).min(text.len());
                match what {
                    0 => drop(text.drain(at..end)),
                    1 => drop(text.splice(at..at, piece.chars())),
                    _ => drop(text.splice(at..end, piece.chars())),
                }
            }
            text.into_iter().collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_text_is_harmless(text in any::<String>()) {
        assert_harmless(&text);
    }

    #[test]
    fn arbitrary_bytes_are_harmless(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        assert_harmless(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn arbitrary_heaps_of_syntax_are_harmless(
        pieces in prop::collection::vec(prop::sample::select(&PIECES[..]), 0..60)
    ) {
        assert_harmless(&pieces.concat());
    }

    #[test]
    fn changed_configs_are_harmless(text in mutated()) {
        assert_harmless(&text);
    }

    #[test]
    fn any_value_at_any_key_is_harmless(
        key in prop::sample::select(&[
            "topic", "handler", "concurrency", "ordering", "retry", "dead_letter", "headers",
            "policies", "default", "strategy", "topics", "delay", "attempts", "backoff", "on",
            "status", "then", "id", "use", "kafka", "group", "flows", "policy_sets",
        ][..]),
        value in prop_oneof![
            any::<String>().prop_map(|it| format!("{it:?}")),
            any::<i64>().prop_map(|it| it.to_string()),
            any::<f64>().prop_map(|it| it.to_string()),
            prop::sample::select(&["[]", "{}", "~", "[[[]]]", "{ a: { b: c } }", "true", "''"][..])
                .prop_map(str::to_owned),
        ],
    ) {
        for text in [
            format!("{key}: {value}\nflows: [{{ topic: a }}]"),
            format!("flows: [{{ topic: a, {key}: {value} }}]"),
            format!("flows: [{{ topic: a, retry: {{ {key}: {value} }} }}]"),
            format!("flows: [{{ topic: a, retry: {{ topics: [{{ topic: b, {key}: {value} }}] }} }}]"),
            format!("flows: [{{ topic: a, policies: [{{ on: any, {key}: {value} }}] }}]"),
            format!("flows: [{{ topic: a, default: {{ delayed: {{ {key}: {value} }} }} }}]"),
        ] {
            assert_harmless(&text);
        }
    }

    #[test]
    fn any_setting_of_other_libraries_is_harmless(
        key in prop::sample::select(&[
            "MaxRetryAttempts", "RetryTopicSuffix", "DeadLetterTopicSuffix", "RetryDelayMs",
            "UseExponentialBackoff", "BackoffMultiplier", "MaxRetryDelayMs", "MinRetryDelayMs",
            "RetryConsumerPollingIntervalMs", "Delay", "RetryAttempts", "TopicName", "GroupId",
        ][..]),
        value in prop_oneof![
            any::<String>().prop_map(|it| serde_json::Value::from(it).to_string()),
            any::<i64>().prop_map(|it| it.to_string()),
            any::<u64>().prop_map(|it| it.to_string()),
            (0..20_000u32).prop_map(|it| it.to_string()),
            (0.0..2000.0f64).prop_map(|it| it.to_string()),
            prop::sample::select(&["[]", "{}", "null", "true", "1e400", "-0"][..]).prop_map(str::to_owned),
        ],
    ) {
        assert_harmless(&format!(r#"{{ "RetryConfiguration": {{ "{key}": {value} }} }}"#));
        assert_harmless(&format!(r#"{{ "RetryPolicy": {{ "Delay": 5, "RetryAttempts": 2, "{key}": {value} }} }}"#));
        assert_harmless(&format!(
            r#"{{ "RetryTopics": [{{ "TopicName": "t", "Delay": "00:00:01", "{key}": {value} }}] }}"#
        ));
    }
}

fn filled_with(unit: &str) -> String {
    unit.repeat((1 << 20) / unit.len())
}

#[test]
fn a_mebibyte_of_openings_is_quick() {
    for unit in ["[", "{", "? ", "- ", "[{", "{a: ", "-\n", "?\n", "\"", "'", "&a ", "*a ", "!t "] {
        assert_quick(unit, &filled_with(unit));
    }
}

#[test]
fn a_mebibyte_of_white_space_and_comments_is_quick() {
    for unit in
        [" ", "\n", "\r", "\r\n", "\n\r", "\t", "#\n", "//\n", "---\n", "\u{2028}", "\u{85}"]
    {
        assert_quick(&unit.escape_debug().to_string(), &filled_with(unit));
    }
}

#[test]
fn a_mebibyte_of_text_is_quick() {
    for unit in ["a", "a ", "a\n", "😀", "\0", "1", ":", "${", "$${"] {
        assert_quick(&unit.escape_debug().to_string(), &filled_with(unit));
    }
    let long = "a".repeat(1_000_000);
    assert_quick("a long key", &format!("{long}: 1"));
    assert_quick("a long quoted key", &format!("{{\"{long}\": 1}}"));
    assert_quick("a long topic", &format!("flows: [{{ topic: {long} }}]"));
    assert_quick("a long anchor", &format!("&{long} a"));
    assert_quick(
        "a long number",
        &format!("flows: [{{ topic: a, concurrency: {} }}]", "9".repeat(1_000_000)),
    );
    assert_quick(
        "a long time",
        &format!("flows: [{{ topic: a, retry: {{ max_elapsed: {}s }} }}]", "9".repeat(1_000_000)),
    );
}

#[test]
fn long_names_are_cut_in_messages() {
    let long = "a".repeat(100_000);
    assert_quick("a long tag", &format!("!{long} a"));
    assert_quick("a long variable", &format!("flows: [{{ topic: \"${{{long}}}\" }}]"));
}

#[test]
fn nested_variables_are_quick() {
    for unit in ["${N:-", "${N}", "${NONE:-a}", "$${", "${N:-a"] {
        let value = unit.repeat(1_000_000 / unit.len());
        assert_quick(unit, &format!("flows: [{{ topic: \"{value}\" }}]"));
    }
}

#[test]
fn many_anchors_and_aliases_are_quick() {
    let anchors: String = (0..60_000).map(|it| format!("- &a{it} x\n")).collect();
    assert_quick("anchors", &anchors);
    assert_quick("aliases", &format!("- &a x\n{}", "- *a\n".repeat(150_000)));
    let nested: String = (0..60).map(|it| format!("&a{it} [")).collect();
    assert_quick("nested anchors", &format!("{nested}{}", "1,".repeat(9_000)));
}

#[test]
fn nested_anchors_around_a_long_list_are_quick() {
    let nested: String = (0..60).map(|it| format!("&a{it} [")).collect();
    assert_quick("nested anchors", &format!("{nested}{}{}", "1,".repeat(99_000), "]".repeat(60)));
}

#[test]
fn depth_that_comes_from_aliases_does_not_overflow_the_stack() {
    let mut text = "a0: &a0 1\n".to_owned();
    for it in 1..57 {
        text += &format!("a{it}: &a{it} {}*a{}{}\n", "[".repeat(58), it - 1, "]".repeat(58));
    }
    assert_quick("deep aliases", &text);
}

#[test]
fn many_keys_are_quick() {
    let keys: String = (0..49_000).map(|it| format!("k{it}: 1\n")).collect();
    assert_quick("keys", &keys);
    let keys: String = (0..49_000).map(|it| format!("\"k{it}\":1,")).collect();
    assert_quick("JSON keys", &format!("{{{keys}}}"));
}

#[test]
fn many_policies_are_quick() {
    let policies: String =
        (0..19_000).map(|it| format!("  - {{ on: {{ error: E{it} }} }}\n")).collect();
    assert_quick("policies", &format!("flows:\n- topic: a\n  policies:\n{policies}"));
}

#[test]
fn a_policy_set_that_is_used_many_times_is_quick() {
    let set = "{ on: any }, ".repeat(150);
    let uses = "  - use: s\n".repeat(600);
    let text = format!("policy_sets: {{ s: [{set}] }}\nflows:\n- topic: a\n  policies:\n{uses}");
    assert!(text.len() < 10_000);
    assert_quick("uses", &text);
}

#[test]
fn many_ranges_of_statuses_are_quick() {
    let text = format!(
        "flows: [{{ topic: a, policies: [{{ on: {{ status: [{}] }} }}] }}]",
        "100..999,".repeat(90_000)
    );
    assert_quick("statuses", &text);
}

#[test]
fn many_policies_with_many_runs_in_place_are_quick() {
    let in_memory = "{ attempts: 10000, backoff: { exponential: { base: 1s } } }";
    let policies: String = (0..2000)
        .map(|it| format!("  - {{ on: {{ error: E{it} }}, in_memory: {in_memory} }}\n"))
        .collect();
    assert_quick("runs", &format!("flows:\n- topic: a\n  policies:\n{policies}"));
}

#[test]
fn many_kafka_properties_are_quick() {
    let properties: String = (0..20_000).map(|it| format!("  linger.ms{it}: 1\n")).collect();
    assert_quick("properties", &format!("kafka:\n{properties}"));
}

#[test]
fn many_flows_and_topics_are_quick() {
    let flows: String = (0..5_000).map(|it| format!("- topic: t{it}\n")).collect();
    assert_quick("flows", &format!("flows:\n{flows}"));
    assert_quick("equal flows", &format!("flows:\n{}", "- topic: a\n".repeat(5_000)));
    let topics: String =
        (0..5_000).map(|it| format!("    - {{ topic: t{it}, delay: 1s }}\n")).collect();
    assert_quick("topics", &format!("flows:\n- topic: a\n  retry:\n    topics:\n{topics}"));
}
