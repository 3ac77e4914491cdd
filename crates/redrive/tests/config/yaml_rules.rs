//! YAML is read by the rules of version 1.2, and variables take the type that is asked for.

use redrive::config::{Config, Kafka, Loaded, Options, Severity, Syntax, parse_duration};

use crate::support::{FROM_ENV, problem, refused, valid, valid_flow, yaml};

/// The group of a config, which takes any text, or the error about it.
fn group(value: &str) -> Result<String, String> {
    let loaded = yaml(&format!("group: {value}\nflows: [{{ topic: orders }}]"));
    match loaded.config {
        Some(config) => Ok(config.group.unwrap()),
        None => Err(loaded.problems[0].message.clone()),
    }
}

fn concurrency(value: &str) -> Option<u32> {
    let loaded = yaml(&format!("flows: [{{ topic: orders, concurrency: {value} }}]"));
    loaded.config.map(|it| it.flows[0].concurrency)
}

#[test]
fn words_that_were_booleans_in_yaml_1_1_are_text() {
    for word in ["on", "off", "yes", "no", "y", "n", "On", "OFF", "Yes"] {
        assert_eq!(group(word).as_deref(), Ok(word));
    }
}

#[test]
fn the_key_on_needs_no_quotes() {
    for key in ["on", "'on'", "\"on\""] {
        valid(&format!("flows: [{{ topic: orders, policies: [{{ {key}: any }}] }}]"));
    }
}

#[test]
fn a_time_is_text_and_not_a_number_in_base_60() {
    assert_eq!(group("00:05:00").as_deref(), Ok("00:05:00"));
    for delay in ["00:05:00", "\"00:05:00\"", "'00:05:00'", "5m", "PT5M", "300s"] {
        let flow = valid_flow(&format!(
            "flows: [{{ topic: orders, retry: {{ topics: [{{ topic: a, delay: {delay} }}] }} }}]"
        ));
        let five_minutes = parse_duration("5m").unwrap();
        assert_eq!(flow.flow.strategy().tiers()[0].delay, Some(five_minutes), "{delay}");
    }
}

#[test]
fn what_is_a_number_boolean_or_nothing_without_quotes_is_text_in_them() {
    for word in [
        "8", "-8", "+8", "1.5", "1e3", "0x1F", "0o17", ".5", ".inf", "-.Inf", ".nan", "true",
        "False", "TRUE", "~", "null", "Null", "NULL",
    ] {
        assert!(group(word).is_err(), "{word}");
        assert_eq!(group(&format!("\"{word}\"")).as_deref(), Ok(word));
        assert_eq!(group(&format!("'{word}'")).as_deref(), Ok(word));
        assert_eq!(group(&format!("!!str {word}")).as_deref(), Ok(word));
    }
    for word in
        ["017x", "0o18", "0b1", "1_000", "0xG", "-0x1F", "1.2.3", "nan", "inf", "tRUE", "--1"]
    {
        assert_eq!(group(word).as_deref(), Ok(word));
    }
}

#[test]
fn a_number_is_not_taken_from_quotes() {
    assert_eq!(concurrency("8"), Some(8));
    assert_eq!(concurrency("+8"), Some(8));
    assert_eq!(concurrency("010"), Some(10), "a leading zero does not make it octal");
    for text in
        ["\"8\"", "'8'", "!!str 8", "8.0", "8.5", "-8", "0", "100001", "~", "eight", "8_0", "[8]"]
    {
        assert_eq!(concurrency(text), None, "{text}");
    }
    refused(
        "flows: [{ topic: orders, concurrency: '8' }]",
        "flows[0].concurrency @1:39",
        &["whole number from 1 to 100000", "`8`", "out of its quotes"],
    );
}

#[test]
fn octal_and_hexadecimal_numbers_are_numbers() {
    assert_eq!(concurrency("0o17"), Some(15));
    assert_eq!(concurrency("0x10"), Some(16));
}

#[test]
fn booleans_may_be_written_in_any_of_three_ways() {
    for word in ["true", "True", "TRUE"] {
        valid(&format!(
            "flows: [{{ topic: orders, policies: [{{ on: {{ retryable: {word} }} }}] }}]"
        ));
    }
}

#[test]
fn the_three_spellings_of_nothing_are_not_text() {
    for nothing in ["~", "null", ""] {
        refused(
            &format!("group: {nothing}\nflows: [{{ topic: orders }}]"),
            &format!("group @1:{}", if nothing.is_empty() { 6 } else { 8 }),
            &["group"],
        );
    }
}

#[test]
fn anchors_and_aliases_stand_for_what_they_name() {
    let config = valid(
        "
        flows:
          - topic: orders
            policies: &shared
              - { id: Busy, on: { status: 503 }, in_memory: &quick { attempts: 2 } }
            default: { in_memory: *quick }
          - topic: payments
            policies: *shared
        ",
    );
    let in_memory = |flow: usize| {
        let rules = config.flows[flow].flow.rules();
        rules.iter().next().unwrap().policy().in_memory.as_ref().unwrap().attempts
    };
    assert_eq!((in_memory(0), in_memory(1)), (2, 2));
    assert_eq!(config.flows[0].flow.default_policy().in_memory.as_ref().unwrap().attempts, 2);
}

#[test]
fn a_problem_behind_an_alias_is_told_with_the_path_where_it_is_used() {
    let loaded = yaml(
        "flows:\n  - { topic: a, policies: &shared [{ on: any, thn: drop }] }\n  - { topic: b, policies: *shared }\n",
    );
    let paths: Vec<_> = loaded.problems.iter().map(|it| it.path.as_str()).collect();
    assert_eq!(paths, ["flows[0].policies[0].thn", "flows[1].policies[0].thn"]);
}

#[test]
fn an_alias_may_stand_for_a_key() {
    valid("{ group: &k topic, flows: [{ *k : orders }] }");
}

#[test]
fn a_key_may_have_an_anchor() {
    let config = valid("{ &g group: billing, flows: [{ topic: *g }] }");
    assert_eq!(&**config.flows[0].flow.source(), "group");
}

#[test]
fn an_alias_without_an_anchor_or_inside_its_own_is_refused() {
    for text in ["flows: *nowhere", "flows: &a [*a]", "flows: &a { b: *a }"] {
        let loaded = yaml(text);
        assert!(loaded.config.is_none());
        assert_eq!(loaded.problems[0].severity, Severity::Error);
        assert!(loaded.problems[0].position.is_some(), "{text}");
    }
}

#[test]
fn a_file_has_one_document() {
    valid("---\nflows: [{ topic: orders }]\n...\n");
    valid("%YAML 1.2\n---\nflows: [{ topic: orders }]\n");
    refused(
        "flows: [{ topic: a }]\n---\nflows: [{ topic: b }]\n",
        " @2:1",
        &["more than one document"],
    );
}

#[test]
fn tags_of_yaml_are_taken_and_others_refused() {
    valid("!!map { flows: !!seq [{ topic: !!str orders }] }");
    refused("flows: [{ topic: !secret orders }]", " @1:18", &["!secret"]);
    refused("flows: !include flows.yaml", " @1:8", &["!include"]);
}

#[test]
fn block_scalars_are_text() {
    assert_eq!(group("|-\n  8\n").as_deref(), Ok("8"));
    assert_eq!(group(">-\n  a\n  b\n").as_deref(), Ok("a b"));
}

#[test]
fn an_empty_file_misses_its_flows() {
    for text in ["", "\n\n", "# nothing\n", "---\n", "~", "{}", "\u{FEFF}"] {
        let problem = problem(text);
        assert_eq!(
            (problem.path.as_str(), problem.severity),
            ("flows", Severity::Error),
            "{text:?}"
        );
    }
}

#[test]
fn line_ends_do_not_change_a_file() {
    let text = "flows:\n  - topic: orders\n    concurency: 8\n";
    for end in ["\n", "\r\n"] {
        refused(&text.replace('\n', end), "flows[0].concurency @3:5", &["concurrency"]);
    }
    valid("\u{FEFF}flows:\r\n  - topic: orders\r\n");
}

#[test]
fn columns_are_counted_in_characters() {
    refused("{ $schema: 'ключ 😀', flow: [] , flows: [{ topic: a }] }", "flow @1:22", &["flows"]);
    let json = "{ \"$schema\": \"ключ 😀\", \"flow\": 1, \"flows\": [{ \"topic\": \"a\" }] }";
    let options = Options { topic: None, group: None, env: &|_| None };
    let loaded: Loaded = Config::load(json, Syntax::Json, &options).unwrap();
    assert_eq!(loaded.problems[0].position.map(|it| it.column), Some(24));
}

#[test]
fn variables_take_the_type_that_is_asked_for() {
    for value in ["'${N}'", "\"${N}\"", "'${NONE:-8}'", "'${EMPTY:-8}'", "'${NONE:-${N}}'"] {
        assert_eq!(concurrency(value), Some(8), "{value}");
    }
    assert_eq!(concurrency("'1${N}'"), Some(18));
    assert_eq!(concurrency("'${TOPIC}'"), None);
    let config = valid(
        r#"
        kafka:
          bootstrap.servers: ${BROKERS:-localhost:9092}
          socket.keepalive.enable: ${YES}
        group: ${TOPIC}-billing
        flows:
          - topic: ${TOPIC}
            concurrency: ${N:-16}
            retry:
              max_elapsed: ${WAIT}
              topics:
                - topic: ${TOPIC}.retry
                  delay: ${NONE:-30s}
                  attempts: ${N}
            policies:
              - on: { retryable: "${YES}", status: "${NONE:-500..599}" }
                then: ${NONE:-drop}
        "#,
    );
    assert_eq!(config.group.as_deref(), Some("orders-billing"));
    let Some(Kafka::Properties(properties)) = &config.kafka else { panic!("properties") };
    assert_eq!(properties[0].1, "localhost:9092");
    assert_eq!(properties[1].1, "true");
    let flow = &config.flows[0];
    assert_eq!((&**flow.flow.source(), flow.concurrency), ("orders", 8));
    assert_eq!(flow.flow.max_elapsed(), Some(parse_duration("90s").unwrap()));
    let tier = &flow.flow.strategy().tiers()[0];
    assert_eq!((&*tier.topic, tier.attempts), ("orders.retry", Some(8)));
}

#[test]
fn a_number_from_the_environment_may_be_text_where_text_is_asked_for() {
    let config = valid("group: ${N}\nflows: [{ topic: \"${N}\" }]");
    assert_eq!(config.group.as_deref(), Some("8"));
    assert_eq!(&**config.flows[0].flow.source(), "8");
}

#[test]
fn a_variable_brings_no_keys_lines_or_types_of_its_own() {
    let env = |name: &str| (name == "EVIL").then(|| "a\nkafka: embedded".to_owned());
    let options = Options { topic: None, group: None, env: &env };
    let text = "group: ${EVIL}\nflows: [{ topic: orders }]";
    let config = Config::load(text, Syntax::Yaml, &options).unwrap().config.unwrap();
    assert_eq!(config.group.as_deref(), Some("a\nkafka: embedded"));
    assert!(config.kafka.is_none());
}

#[test]
fn the_value_of_a_variable_is_not_expanded_again() {
    let env = |name: &str| match name {
        "OUTER" => Some("${INNER}".to_owned()),
        "INNER" => Some(FROM_ENV.to_owned()),
        _ => None,
    };
    let options = Options { topic: None, group: None, env: &env };
    let text = "group: ${OUTER}\nflows: [{ topic: orders }]";
    let config = Config::load(text, Syntax::Yaml, &options).unwrap().config.unwrap();
    assert_eq!(config.group.as_deref(), Some("${INNER}"));
}

#[test]
fn doubled_dollars_stand_for_themselves() {
    assert_eq!(group("$${TOPIC}").as_deref(), Ok("${TOPIC}"));
    assert_eq!(group("$TOPIC").as_deref(), Ok("$TOPIC"));
    assert_eq!(group("a$").as_deref(), Ok("a$"));
}

#[test]
fn keys_are_not_expanded() {
    refused(
        "{ \"${TOPIC}\": 1, flows: [{ topic: a }] }",
        "${TOPIC} @1:3",
        &["unknown key `${TOPIC}`"],
    );
}

#[test]
fn merge_keys_are_no_part_of_yaml_1_2_and_refused() {
    let loaded = yaml("base: &b { topic: orders }\nflows:\n  - <<: *b\n    topic: a\n");
    assert!(loaded.problems.iter().any(|it| it.path == "flows[0].<<"), "{:#?}", loaded.problems);
}
