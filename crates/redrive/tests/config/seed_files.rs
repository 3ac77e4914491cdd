//! The config files of the seeds' own documents: they load unchanged, mean what their documents
//! say, and are the same once converted.

use std::time::Duration;

use redrive::config::{Config, DeadLetterFormat, FlowConfig, LoadError, Loaded, Options, Syntax};
use redrive::headers::Dialect;
use redrive::{Failure, StepEnd, Strategy, Tier};

use crate::support::{
    accepted, assert_same_plans, foreign, only_flow, places, refused_as, steps, the_only, warnings,
    way, yaml,
};

/// "appsettings.json" of the time-based document, as it stands.
const TIME_BASED: &str = r#"{
  "Kafka": {
    "RetryConfiguration": {
      "MaxRetryAttempts": 3,
      "RetryTopicSuffix": "-retry",
      "DeadLetterTopicSuffix": "-dlq",
      "RetryDelayMs": 5000,
      "UseExponentialBackoff": true,
      "BackoffMultiplier": 2.0,
      "MaxRetryDelayMs": 300000,
      "MinRetryDelayMs": 1000,
      "RetryConsumerPollingIntervalMs": 1000
    }
  }
}"#;

/// Every JSON of the tiered document that is a config, as it stands, with the way of a record that
/// fails each time.
const TIERED: [(&str, &str, &str); 9] = [
    (
        "Configuration Structure",
        r#"{
  "RetryPolicy": {
    "RetryTopics": [
      {
        "TopicName": "orders.retry.immediate",
        "Delay": "00:00:30",
        "RetryAttempts": 3,
        "GroupId": "optional-custom-group-id"
      }
    ]
  }
}"#,
        "orders.retry.immediate +30s, orders.retry.immediate +30s, orders.retry.immediate +30s, orders.error",
    ),
    (
        "Example Flow",
        r#"{
  "RetryTopics": [
    {
      "TopicName": "orders.retry.immediate",
      "Delay": "00:00:30",
      "RetryAttempts": 3
    },
    {
      "TopicName": "orders.retry.short",
      "Delay": "00:05:00",
      "RetryAttempts": 2
    },
    {
      "TopicName": "orders.retry.long",
      "Delay": "01:00:00",
      "RetryAttempts": 1
    }
  ]
}"#,
        "orders.retry.immediate +30s, orders.retry.immediate +30s, orders.retry.immediate +30s, orders.retry.short +300s, orders.retry.short +300s, orders.retry.long +3600s, orders.error",
    ),
    (
        "Custom Group IDs",
        r#"{
  "RetryTopics": [
    {
      "TopicName": "orders.retry.immediate",
      "Delay": "00:00:30",
      "RetryAttempts": 3,
      "GroupId": "orders-immediate-retry-group"
    },
    {
      "TopicName": "orders.retry.long",
      "Delay": "01:00:00",
      "RetryAttempts": 1,
      "GroupId": "orders-long-retry-group"
    }
  ]
}"#,
        "orders.retry.immediate +30s, orders.retry.immediate +30s, orders.retry.immediate +30s, orders.retry.long +3600s, orders.error",
    ),
    (
        "Backward Compatibility",
        r#"{
  "RetryPolicy": {
    "Delay": 2000,
    "RetryAttempts": 3
  }
}"#,
        "orders.retry.1 +2s, orders.retry.2 +2s, orders.retry.3 +2s, orders.error",
    ),
    (
        "From Old Format, before",
        r#"{
  "RetryPolicy": {
    "Delay": 5000,
    "RetryAttempts": 3
  }
}"#,
        "orders.retry.1 +5s, orders.retry.2 +5s, orders.retry.3 +5s, orders.error",
    ),
    (
        "From Old Format, after",
        r#"{
  "RetryPolicy": {
    "RetryTopics": [
      {
        "TopicName": "orders.retry.1",
        "Delay": "00:00:05",
        "RetryAttempts": 1
      },
      {
        "TopicName": "orders.retry.2",
        "Delay": "00:00:05",
        "RetryAttempts": 1
      },
      {
        "TopicName": "orders.retry.3",
        "Delay": "00:00:05",
        "RetryAttempts": 1
      }
    ]
  }
}"#,
        "orders.retry.1 +5s, orders.retry.2 +5s, orders.retry.3 +5s, orders.error",
    ),
    (
        "Quick Retry Strategy",
        r#"{
  "RetryTopics": [
    {
      "TopicName": "orders.retry.fast",
      "Delay": "00:00:05",
      "RetryAttempts": 5
    }
  ]
}"#,
        "orders.retry.fast +5s, orders.retry.fast +5s, orders.retry.fast +5s, orders.retry.fast +5s, orders.retry.fast +5s, orders.error",
    ),
    (
        "Gradual Backoff Strategy",
        r#"{
  "RetryTopics": [
    {
      "TopicName": "orders.retry.immediate",
      "Delay": "00:00:30",
      "RetryAttempts": 3
    },
    {
      "TopicName": "orders.retry.short",
      "Delay": "00:05:00",
      "RetryAttempts": 2
    },
    {
      "TopicName": "orders.retry.medium",
      "Delay": "00:30:00",
      "RetryAttempts": 2
    },
    {
      "TopicName": "orders.retry.long",
      "Delay": "02:00:00",
      "RetryAttempts": 1
    }
  ]
}"#,
        "orders.retry.immediate +30s, orders.retry.immediate +30s, orders.retry.immediate +30s, orders.retry.short +300s, orders.retry.short +300s, orders.retry.medium +1800s, orders.retry.medium +1800s, orders.retry.long +7200s, orders.error",
    ),
    (
        "Aggressive Retry Strategy",
        r#"{
  "RetryTopics": [
    {
      "TopicName": "orders.retry.burst",
      "Delay": "00:00:01",
      "RetryAttempts": 10
    },
    {
      "TopicName": "orders.retry.final",
      "Delay": "00:10:00",
      "RetryAttempts": 3
    }
  ]
}"#,
        "orders.retry.burst +1s, orders.retry.burst +1s, orders.retry.burst +1s, orders.retry.burst +1s, orders.retry.burst +1s, orders.retry.burst +1s, orders.retry.burst +1s, orders.retry.burst +1s, orders.retry.burst +1s, orders.retry.burst +1s, orders.retry.final +600s, orders.retry.final +600s, orders.retry.final +600s, orders.error",
    ),
];

fn flow(text: &str) -> FlowConfig {
    only_flow(accepted(foreign(text)))
}

/// The waits of a record that fails each time, least and most, in milliseconds.
fn waits(flow: &FlowConfig) -> Vec<(u128, u128)> {
    let steps = steps(flow, &Failure::default());
    let published = steps.iter().filter(|it| it.then == StepEnd::Publish);
    published.map(|it| (it.delay.min.as_millis(), it.delay.max.as_millis())).collect()
}

/// Loads what the file was converted to, and checks that nothing is different.
fn assert_converts_to_itself(loaded: Loaded) {
    let text = loaded.converted.clone().unwrap();
    let again = yaml(&text);
    assert_eq!(again.problems, [], "{text}");
    assert!(again.converted.is_none());
    let (config, again) = (loaded.config.unwrap(), again.config.unwrap());
    assert_eq!(config.group, again.group);
    let (flow, again) = (only_flow(config), only_flow(again));
    assert_eq!(flow.flow.source(), again.flow.source());
    assert_eq!(flow.flow.dead_letter(), again.flow.dead_letter());
    assert_eq!(flow.flow.strategy(), again.flow.strategy());
    assert_eq!(flow.dialect, again.dialect);
    assert_eq!(flow.dead_letter_format, again.dead_letter_format);
    assert_eq!(
        (flow.retry_group.as_ref(), &flow.tier_groups),
        (again.retry_group.as_ref(), &again.tier_groups)
    );
    assert_same_plans(&flow, &again);
}

#[test]
fn the_time_based_file_becomes_one_topic_with_a_backoff() {
    let loaded = foreign(TIME_BASED);
    let text = loaded.converted.clone().unwrap();
    let config = accepted(loaded);
    assert_eq!(config.group.as_deref(), Some("orders"));
    let flow = only_flow(config);
    assert_eq!(*flow.flow.strategy(), Strategy::Single(Tier::endless("orders-retry")));
    assert_eq!(&**flow.flow.dead_letter(), "orders-dlq");
    assert_eq!(flow.dialect, Dialect::X);
    assert_eq!(flow.dead_letter_format, DeadLetterFormat::Envelope);
    assert_eq!(flow.retry_group.as_deref(), Some("orders-retry"));
    assert_eq!(flow.flow.rules().iter().count(), 0);
    assert_eq!(waits(&flow), [(4500, 5500), (9000, 11_000), (18_000, 22_000)]);
    assert!(flow.flow.default_policy().in_memory.is_none());
    assert!(text.contains("RetryConsumerPollingIntervalMs"), "{text}");
    assert!(text.contains("due time"), "{text}");
}

/// "Configuration Properties" of the time-based document: each has a default.
#[test]
fn each_property_of_the_time_based_file_may_be_left_out() {
    let full = flow(TIME_BASED);
    let section = |text: &str| format!("{{ \"Kafka\": {{ \"RetryConfiguration\": {{{text}}} }} }}");
    assert_same_plans(&full, &flow(&section("")));
    let lines: Vec<_> = TIME_BASED.lines().filter(|it| it.starts_with("      \"")).collect();
    assert_eq!(lines.len(), 9);
    for left_out in 0..lines.len() {
        let rest: Vec<_> =
            lines.iter().enumerate().filter(|it| it.0 != left_out).map(|it| *it.1).collect();
        let text = section(&rest.concat());
        let flow = only_flow(accepted(foreign(&text)));
        assert_same_plans(&full, &flow);
        assert_eq!(flow.flow.strategy(), full.flow.strategy(), "{}", lines[left_out]);
        assert_eq!(flow.flow.dead_letter(), full.flow.dead_letter(), "{}", lines[left_out]);
    }
    let without_polling = foreign(&section("")).converted.unwrap();
    assert!(!without_polling.contains("Polling"), "{without_polling}");
}

#[test]
fn each_property_of_the_time_based_file_has_its_effect() {
    let with =
        |text: &str| flow(&format!("{{ \"Kafka\": {{ \"RetryConfiguration\": {{ {text} }} }} }}"));
    assert_eq!(waits(&with(r#""MaxRetryAttempts": 1"#)), [(4500, 5500)]);
    assert_eq!(waits(&with(r#""MaxRetryAttempts": 0"#)), []);
    assert_eq!(waits(&with(r#""RetryDelayMs": 2000"#))[0], (1800, 2200));
    assert_eq!(waits(&with(r#""BackoffMultiplier": 1.5"#))[1], (6750, 8250));
    assert_eq!(waits(&with(r#""MaxRetryDelayMs": 9500"#))[1], (9000, 9500));
    assert_eq!(waits(&with(r#""MinRetryDelayMs": 6000"#))[0], (6000, 6000));
    let suffixes = with(r#""RetryTopicSuffix": ".again", "DeadLetterTopicSuffix": ".dead""#);
    assert_eq!(*suffixes.flow.strategy(), Strategy::Single(Tier::endless("orders.again")));
    assert_eq!(&**suffixes.flow.dead_letter(), "orders.dead");
    assert_eq!(waits(&with(r#""MaxRetryAttempts": 10000"#)).len(), 10_000);
}

#[test]
fn without_exponential_backoff_the_delay_is_fixed_within_its_bounds_and_has_no_jitter() {
    let with = |text: &str| {
        waits(&flow(&format!(
            "{{ \"Kafka\": {{ \"RetryConfiguration\": {{ \"UseExponentialBackoff\": false{text} }} }} }}"
        )))
    };
    assert_eq!(with(""), [(5000, 5000); 3]);
    assert_eq!(with(r#", "RetryDelayMs": 100"#), [(1000, 1000); 3]);
    assert_eq!(with(r#", "RetryDelayMs": 900000"#), [(300_000, 300_000); 3]);
}

#[test]
fn every_example_of_the_tiered_document_walks_as_it_says() {
    for (title, text, expected) in TIERED {
        let loaded = foreign(text);
        let flow = only_flow(accepted(loaded));
        assert_eq!(way(&flow, &Failure::default()), expected, "{title}");
        assert_eq!(flow.dialect, Dialect::Tiered, "{title}");
        assert_eq!(flow.dead_letter_format, DeadLetterFormat::Raw, "{title}");
        assert_eq!(flow.retry_group, None, "{title}");
        let steps = steps(&flow, &Failure::default());
        assert!(steps.iter().all(|it| it.runs == 1), "no runs in place: {title}");
    }
}

#[test]
fn the_group_of_a_retry_topic_is_kept() {
    let flow = flow(TIERED[2].1);
    let groups = ["orders-immediate-retry-group", "orders-long-retry-group"];
    assert_eq!(flow.tier_groups, groups.map(|it| Some(it.to_owned())));
}

#[test]
fn the_attempts_of_a_retry_topic_are_1_where_they_are_left_out() {
    let flow =
        flow(r#"{ "RetryTopics": [{ "TopicName": "orders.retry.1", "Delay": "00:00:01" }] }"#);
    assert_eq!(
        *flow.flow.strategy(),
        Strategy::Tiers(vec![Tier::new("orders.retry.1", Duration::from_secs(1))])
    );
}

#[test]
fn old_and_new_form_of_the_migration_guide_are_the_same() {
    let (old, new) = (flow(TIERED[4].1), flow(TIERED[5].1));
    assert_eq!(old.flow.strategy(), new.flow.strategy());
    assert_same_plans(&old, &new);
}

#[test]
fn what_is_not_retryable_goes_to_the_error_topic_at_once() {
    assert_eq!(way(&flow(TIERED[1].1), &Failure::of_status(404)), "orders.error");
    assert_eq!(way(&flow(TIME_BASED), &Failure::of_status(404)), "orders-dlq");
}

#[test]
fn every_file_converts_to_a_config_with_the_same_plans() {
    assert_converts_to_itself(foreign(TIME_BASED));
    for (_, text, _) in TIERED {
        assert_converts_to_itself(foreign(text));
    }
    assert_converts_to_itself(foreign(
        r#"{ "RetryConfiguration": { "UseExponentialBackoff": false } }"#,
    ));
    assert_converts_to_itself(foreign(r#"{ "RetryPolicy": { "Delay": 0, "RetryAttempts": 0 } }"#));
    assert_converts_to_itself(foreign(
        r#"{ "RetryPolicy": { "Delay": 1500, "RetryAttempts": 1000 } }"#,
    ));
}

#[test]
fn names_that_yaml_would_take_for_something_else_survive_the_conversion() {
    for name in ["true", "null", "123", "1e3", "0x1F", "0o17", "-a", "_", "on", ".5", "1.0"] {
        let options = Options { topic: Some(name), group: Some(name), env: &|_| None };
        let loaded = Config::load(TIME_BASED, Syntax::Json, &options).unwrap();
        let config = loaded.config.clone().unwrap();
        assert_eq!(config.group.as_deref(), Some(name));
        assert_eq!(&**config.flows[0].flow.source(), name);
        assert_converts_to_itself(loaded);
    }
}

#[test]
fn odd_group_names_survive_the_conversion() {
    for group in [
        "a b",
        "ключ",
        "a: b # c",
        "'",
        "\\\"",
        "${HOME}",
        "$${X}",
        "{a}",
        "*a",
        "- a",
        "a\\u2028b",
        "a\\tb",
        "\\u007f",
        "a\\u0085b",
        "\\ufeffa",
        "\\ud83d\\ude00",
        "\\u0001",
        "%a",
        "@a",
        "\\ue000",
    ] {
        let text = format!(
            r#"{{ "RetryTopics": [{{ "TopicName": "t", "Delay": "00:00:01", "GroupId": "{group}" }}] }}"#
        );
        let env = |_: &str| Some("filled-in".to_owned());
        let options = Options { topic: Some("orders"), group: None, env: &env };
        let loaded = Config::load(&text, Syntax::Json, &options).unwrap();
        assert_eq!(loaded.problems, [], "{group}");
        let expected = serde_json::from_str::<String>(&format!("\"{group}\"")).unwrap();
        let expected = match expected.as_str() {
            "${HOME}" => "filled-in",
            "$${X}" => "${X}",
            other => other,
        };
        let flow = only_flow(loaded.config.clone().unwrap());
        assert_eq!(flow.tier_groups, [Some(expected.to_owned())], "{group}");
        assert_converts_to_itself(loaded);
    }
}

#[test]
fn the_group_is_the_one_that_was_given_or_the_topic_with_a_word_to_change_it() {
    let with = |group| {
        let options = Options { topic: Some("orders"), group, env: &|_| None };
        let loaded = Config::load(TIME_BASED, Syntax::Json, &options).unwrap();
        (loaded.config.unwrap(), loaded.converted.unwrap())
    };
    let (config, text) = with(None);
    assert_eq!(config.group.as_deref(), Some("orders"));
    assert!(text.contains("# The file names no consumer group: change this one"), "{text}");
    let (config, text) = with(Some("billing"));
    assert_eq!(config.group.as_deref(), Some("billing"));
    assert_eq!(config.flows[0].retry_group.as_deref(), Some("billing-retry"));
    assert!(!text.contains("change this one"), "{text}");
}

#[test]
fn dotnet_settings_may_have_comments_trailing_commas_a_byte_order_mark_and_any_case() {
    let text = "\u{FEFF}// how it was\r\n{\r\n  /* the\r\n section */\r\n  \"kafka\": {\r\n    \"RETRYCONFIGURATION\": {\r\n      \"maxRetryAttempts\": \"2\", // as text\r\n      \"useexponentialbackoff\": \"True\",\r\n    },\r\n  },\r\n}\r\n";
    let flow = flow(text);
    assert_eq!(waits(&flow).len(), 2);
}

#[test]
fn other_sections_of_the_settings_are_ignored_with_a_note() {
    let loaded = foreign(
        r#"{
  "Logging": { "LogLevel": { "Default": "Information" } },
  "AllowedHosts": "*",
  "Kafka": {
    "BootstrapServers": "localhost:9092",
    "RetryConfiguration": { "MaxRetryAttempts": 2 },
    "Ssl": null
  }
}"#,
    );
    assert!(loaded.config.is_some());
    assert_eq!(places(&loaded), ["warning Logging @2:3"]);
    let note = &loaded.problems[0].message;
    for section in ["`Logging`", "`AllowedHosts`", "`BootstrapServers`", "`Ssl`"] {
        assert!(note.contains(section), "{note}");
    }
    assert!(loaded.problems.iter().all(|it| it.message.contains("ignored")), "{loaded:#?}");
}

/// A settings file with more sections of other libraries than problems are listed.
fn among_many_sections(section: &str) -> Loaded {
    let others: String = (0..250).map(|it| format!("\"Section{it}\": {{}}, ")).collect();
    foreign(&format!("{{ {others} {section} }}"))
}

#[test]
fn a_settings_file_with_very_many_other_sections_can_be_used() {
    assert!(among_many_sections(r#""RetryConfiguration": {}"#).config.is_some());
}

#[test]
fn a_wrong_value_after_200_notes_is_refused() {
    let loaded = among_many_sections(r#""RetryConfiguration": { "MaxRetryAttempts": -1 }"#);
    assert!(loaded.config.is_none());
}

#[test]
fn an_error_is_listed_however_many_notes_there_are() {
    let topic = r#"{ "TopicName": "a", "Delay": "00:00:01" }"#;
    let loaded = among_many_sections(&format!(r#""RetryTopics": [{topic}, {topic}]"#));
    assert!(loaded.config.is_none());
    assert!(loaded.problems.iter().any(|it| it.path == "RetryTopics[1].TopicName"));
}

#[test]
fn the_missing_source_topic_is_told() {
    for text in [TIME_BASED, TIERED[0].1, TIERED[1].1, TIERED[3].1] {
        let options = Options { topic: None, group: None, env: &|_| None };
        let error = Config::load(text, Syntax::Json, &options).unwrap_err();
        assert_eq!(error, LoadError::TopicNeeded);
        assert!(error.to_string().contains("--topic orders"), "{error}");
    }
}

#[test]
fn a_topic_or_group_that_cannot_be_one_is_told() {
    let load = |topic, group| {
        let options = Options { topic: Some(topic), group, env: &|_| None };
        Config::load(TIME_BASED, Syntax::Json, &options).map(|_| ())
    };
    assert!(matches!(load("a b", None), Err(LoadError::BadTopic(_))));
    assert!(matches!(load("", None), Err(LoadError::BadTopic(_))));
    assert!(matches!(load("orders", Some(" ")), Err(LoadError::BadGroup(_))));
    assert_eq!(load("orders", Some("billing")), Ok(()));
}

#[test]
fn errors_are_told_where_they_are_in_the_file_itself() {
    for (text, at, words) in [
        (
            "{ \"Kafka\": { \"RetryConfiguration\": {\n  \"MaxRetryAttempts\": -1 } } }",
            "Kafka.RetryConfiguration.MaxRetryAttempts @2:23",
            &["MaxRetryAttempts", "whole number from 0 to 10000", "`-1`"][..],
        ),
        (
            "{ \"Kafka\": { \"RetryConfiguration\": {\n  \"RetryDelayMs\": \"5s\" } } }",
            "Kafka.RetryConfiguration.RetryDelayMs @2:19",
            &["milliseconds", "`5s`"],
        ),
        (
            "{ \"Kafka\": { \"RetryConfiguration\": {\n  \"UseExponentialBackoff\": 1 } } }",
            "Kafka.RetryConfiguration.UseExponentialBackoff @2:28",
            &["true or false"],
        ),
        (
            "{ \"Kafka\": { \"RetryConfiguration\": {\n  \"BackoffMultiplier\": 0 } } }",
            "Kafka.RetryConfiguration.BackoffMultiplier @2:24",
            &["0.001 to 1000"],
        ),
        (
            "{ \"Kafka\": { \"RetryConfiguration\": {\n  \"RetryTopicSufix\": \"-r\" } } }",
            "Kafka.RetryConfiguration.RetryTopicSufix @2:3",
            &["unknown key", "did you mean `RetryTopicSuffix`?"],
        ),
        (
            "{ \"Kafka\": { \"RetryConfiguration\": {\n  \"RetryTopicSuffix\": \" retry\" } } }",
            "Kafka.RetryConfiguration.RetryTopicSuffix @2:23",
            &["`orders retry`"],
        ),
        (
            "{ \"Kafka\": { \"RetryConfiguration\": {\n  \"RetryTopicSuffix\": \"\" } } }",
            "Kafka.RetryConfiguration.RetryTopicSuffix @2:23",
            &["`orders` is both"],
        ),
        (
            "{ \"Kafka\": { \"RetryConfiguration\": {\n  \"MinRetryDelayMs\": 2000,\n  \"MaxRetryDelayMs\": 1000 } } }",
            "Kafka.RetryConfiguration.MinRetryDelayMs @2:22",
            &["above", "2s is more than 1s"],
        ),
        (
            "{ \"Kafka\": { \"RetryConfiguration\": {\n  \"RetryDelayMs\": 1, \"retryDelayMs\": 2 } } }",
            "Kafka.RetryConfiguration.retryDelayMs @2:22",
            &["twice"],
        ),
        (
            "{ \"RetryPolicy\": {\n  \"Delay\": 1000 } }",
            "RetryPolicy.RetryAttempts @1:18",
            &["`RetryAttempts` is missing"],
        ),
        (
            "{ \"RetryPolicy\": {\n  \"Delay\": 1000, \"RetryAttempts\": 1001 } }",
            "RetryPolicy.RetryAttempts @2:35",
            &["0 to 1000", "`1001`"],
        ),
        (
            "{ \"RetryTopics\": [\n  { \"Delay\": \"00:00:01\" } ] }",
            "RetryTopics[0].TopicName @2:3",
            &["`TopicName` is missing"],
        ),
        (
            "{ \"RetryTopics\": [\n  { \"TopicName\": \"a\", \"Delay\": 30 } ] }",
            "RetryTopics[0].Delay @2:32",
            &["`30` is a number without a unit"],
        ),
        (
            "{ \"RetryTopics\": [\n  { \"TopicName\": \"a\", \"Delay\": \"00:00:61\" } ] }",
            "RetryTopics[0].Delay @2:32",
            &["`00:00:61` is not a length of time"],
        ),
        (
            "{ \"RetryTopics\": [\n  { \"TopicName\": \"a\", \"Delay\": \"00:00:01\", \"RetryAttempts\": 0 } ] }",
            "RetryTopics[0].RetryAttempts @2:61",
            &["0 attempts"],
        ),
        (
            "{ \"RetryTopics\": [\n  { \"TopicName\": \"a/b\", \"Delay\": \"00:00:01\" } ] }",
            "RetryTopics[0].TopicName @2:18",
            &["`a/b`"],
        ),
        ("{\n  \"RetryTopics\": [] }", "RetryTopics @2:18", &["no topic"]),
        ("{\n  \"RetryTopics\": {} }", "RetryTopics @2:18", &["a list", "a map"]),
        ("{\n  \"RetryPolicy\": 5 }", "RetryPolicy @2:18", &["a map"]),
        (
            "{ \"RetryTopics\": [\n  { \"TopicName\": \"a\", \"Delay\": \"00:00:01\" },\n  { \"TopicName\": \"a\", \"Delay\": \"00:00:01\" } ] }",
            "RetryTopics[1].TopicName @3:18",
            &["`a` is a retry topic of this flow twice"],
        ),
        (
            "{ \"RetryTopics\": [\n  { \"TopicName\": \"orders\", \"Delay\": \"00:00:01\" } ] }",
            "RetryTopics[0].TopicName @2:18",
            &["`orders` is both the source topic and a retry topic"],
        ),
        (
            "{ \"RetryTopics\": [],\n  \"RetryPolicy\": { \"Delay\": 5, \"RetryAttempts\": 1 } }",
            "RetryTopics @1:3",
            &["only one of them can count"],
        ),
    ] {
        let loaded = foreign(text);
        assert!(loaded.config.is_none(), "{text}");
        refused_as(the_only(loaded), at, words);
    }
}

#[test]
fn all_errors_of_such_a_file_are_told_at_once() {
    let loaded = foreign(
        r#"{
  "RetryTopics": [
    { "TopicName": "a b", "Delay": "5", "RetryAttempts": "x" },
    { "Topic": "c", "RetryAttempts": 20000 },
    7
  ]
}"#,
    );
    assert_eq!(
        places(&loaded),
        [
            "error RetryTopics[0].TopicName @3:20",
            "error RetryTopics[0].Delay @3:36",
            "error RetryTopics[0].RetryAttempts @3:58",
            "error RetryTopics[1].TopicName @4:5",
            "error RetryTopics[1].Delay @4:5",
            "error RetryTopics[1].Topic @4:7",
            "error RetryTopics[1].RetryAttempts @4:38",
            "error RetryTopics[2] @5:5",
        ]
    );
}

#[test]
fn warnings_are_told_where_they_are_in_the_file_itself() {
    let loaded = foreign(
        r#"{
  "RetryTopics": [
    { "TopicName": "a", "Delay": "00:05:00" },
    { "TopicName": "b", "Delay": "00:00:05" }
  ]
}"#,
    );
    assert!(loaded.config.is_some());
    assert_eq!(places(&loaded), ["warning RetryTopics[1].Delay @4:34"]);
    let old = r#"{ "RetryPolicy": { "Delay": 5, "RetryTopics": [{ "TopicName": "a", "Delay": "00:05:00" }] } }"#;
    let loaded = foreign(old);
    assert_eq!(places(&loaded), ["warning RetryPolicy.Delay @1:29"]);
    assert_eq!(warnings(&loaded).len(), 1);
}

#[test]
fn two_retry_sections_in_different_places_are_refused() {
    let loaded = foreign(
        r#"{ "RetryPolicy": { "Delay": 5, "RetryAttempts": 1 }, "Kafka": { "RetryConfiguration": {} } }"#,
    );
    assert!(loaded.config.is_none());
}

#[test]
fn messages_name_no_path_that_is_not_in_the_file() {
    let topic = r#"{ "TopicName": "a", "Delay": "00:00:01" }"#;
    let problem = the_only(foreign(&format!(r#"{{ "RetryTopics": [{topic}, {topic}] }}"#)));
    assert!(!problem.message.contains("flows["), "{problem:?}");
}
