//! The JSON Schema: it takes what loads and refuses what is built wrongly.

use redrive::config::{Options, Syntax, schema};
use serde_json::{Value, json};

use crate::support::{env, yaml};

/// A valid config for each thing that a config can say.
const VALID: [&str; 13] = [
    r#"{ "flows": [{ "topic": "orders" }] }"#,
    r#"{ "kafka": "embedded", "group": "billing", "flows": [{ "topic": "orders" }] }"#,
    r#"{ "kafka": { "bootstrap.servers": "b", "linger.ms": 5, "socket.keepalive.enable": true },
         "flows": [{ "topic": "orders", "handler": { "http": { "url": "https://h/x" } } }] }"#,
    r#"{ "flows": [{ "topic": "${TOPIC}", "concurrency": "${N}", "ordering": "${NONE:-key}",
         "retry": { "strategy": "${NONE:-single}", "max_elapsed": "${WAIT}" } }] }"#,
    r#"{ "flows": [{ "topic": "a", "retry": { "topics": [
         { "topic": "b", "delay": "250ms" }, { "topic": "c", "delay": "00:05:00", "attempts": 3 },
         { "topic": "d", "delay": "PT1H30M", "group": "g" }, { "topic": "e", "delay": "1d2h3m4s5ms" } ] } }] }"#,
    r#"{ "flows": [{ "topic": "a", "retry": { "strategy": "delay-then-retry", "retry_topic": "r",
         "group": "g", "max_overall_attempts": 9, "max_elapsed": "24h", "retry_after_max": "1h",
         "topics": [{ "topic": "b", "delay": "P1D" }] } }] }"#,
    r#"{ "policy_sets": { "common": [{ "id": "Busy", "on": { "status": [503, "504", "520..530"] } }] },
         "flows": [{ "topic": "a", "policies": [{ "use": "common" }] }] }"#,
    r#"{ "flows": [{ "topic": "a", "dead_letter": { "topic": "d", "format": "envelope" },
         "headers": "spring", "retry": { "strategy": "single" }, "policies": [
         { "on": [{ "error": ["A", "b::C"] }, { "kind": "timeout", "retryable": true }],
           "in_memory": { "attempts": 2, "backoff": { "linear": { "initial": "100ms", "max": "1s" } } } },
         { "on": { "header": [{ "name": "h" }, { "name": "i", "value": "v" }] },
           "delayed": { "backoff": { "list": ["10s", "1m"] } }, "then": { "stop": { "exit": true } } },
         { "on": "any", "delayed": { "attempts": 5, "backoff": { "random": { "min": "1s", "max": "2s" } } },
           "then": "drop" } ] }] }"#,
    r#"{ "flows": [{ "topic": "a", "retry": { "strategy": "single" }, "default": {
         "in_memory": { "backoff": { "fixed": "0s" } },
         "delayed": { "backoff": { "exponential": { "base": "1s", "multiplier": 1.5, "jitter": 0.1,
           "min": "1s", "max": "1m" } } }, "then": "stop" } }] }"#,
    r#"{ "state_topic": "s", "commit_interval": "500ms", "drain": { "revoke": "0s", "shutdown": "1m" },
         "exactly_once": true, "flows": [{ "topic": "a", "timeout": "1m", "payload_budget": "512KiB",
         "retry": { "strategy": "single", "rate": 100, "draining": ["old.1", "old.2"] }, "breaker": {
         "failures": "50%", "window": "10s", "minimum": 5, "count": "any", "probe": "1s" } }] }"#,
    r#"{ "start": "latest", "flows": [{ "topic": "a", "start": "2026-11-15T09:30:00.5+02:00" },
         { "topic": "b", "start": "earliest" }, { "topic": "c", "start": "${START:-latest}" }] }"#,
    r#"{ "flows": [{ "topic": "a", "payload_budget": 65536, "breaker": {} },
         { "topic": "b", "payload_budget": "65536", "breaker": { "failures": 0.01 } },
         { "topic": "c", "breaker": { "failures": "0.05" } }] }"#,
    r#"{ "flows": [{ "topic": "a", "ordering": "key", "entity": "key", "on_dead_letter": "hold" },
         { "topic": "b", "ordering": "key", "entity": { "header": "order-id" } },
         { "topic": "c", "ordering": "key", "entity": { "pointer": "/a~1b/0" }, "on_dead_letter": "release" }] }"#,
];

/// Configs that are built wrongly, one thing each.
const WRONG: [&str; 50] = [
    "[]",
    "{}",
    r#"{ "flows": {} }"#,
    r#"{ "flows": ["orders"] }"#,
    r#"{ "flows": [{}] }"#,
    r#"{ "flows": [{ "topic": 5 }] }"#,
    r#"{ "flows": [{ "topic": "a b" }] }"#,
    r#"{ "flows": [{ "topic": "" }] }"#,
    r#"{ "flows": [{ "topic": "a" }], "flow": [] }"#,
    r#"{ "flows": [{ "topic": "a" }], "admin": { "listen": ":80" } }"#,
    r#"{ "flows": [{ "topic": "a" }], "group": "" }"#,
    r#"{ "flows": [{ "topic": "a" }], "kafka": "localhost" }"#,
    r#"{ "flows": [{ "topic": "a" }], "kafka": { "group.id": "g" } }"#,
    r#"{ "flows": [{ "topic": "a" }], "kafka": { "debug": ["all"] } }"#,
    r#"{ "flows": [{ "topic": "a", "concurrency": 0 }] }"#,
    r#"{ "flows": [{ "topic": "a", "concurrency": "8" }] }"#,
    r#"{ "flows": [{ "topic": "a", "concurrency": 1.5 }] }"#,
    r#"{ "flows": [{ "topic": "a", "ordering": "keys" }] }"#,
    r#"{ "flows": [{ "topic": "a", "ordering": "key", "entity": "header" }] }"#,
    r#"{ "flows": [{ "topic": "a", "ordering": "key", "entity": { "header": "" } }] }"#,
    r#"{ "flows": [{ "topic": "a", "ordering": "key", "entity": { "pointer": "order.id" } }] }"#,
    r#"{ "flows": [{ "topic": "a", "ordering": "key", "on_dead_letter": "drop" }] }"#,
    r#"{ "flows": [{ "topic": "a", "priority": {} }] }"#,
    r#"{ "flows": [{ "topic": "a", "handler": {} }] }"#,
    r#"{ "flows": [{ "topic": "a", "handler": { "http": { "url": "localhost" } } }] }"#,
    r#"{ "flows": [{ "topic": "a", "retry": { "strategy": "tier" } }] }"#,
    r#"{ "flows": [{ "topic": "a", "retry": { "max_overall_attempts": 10001 } }] }"#,
    r#"{ "flows": [{ "topic": "a", "retry": { "max_elapsed": 30 } }] }"#,
    r#"{ "flows": [{ "topic": "a", "retry": { "max_elapsed": "30" } }] }"#,
    r#"{ "flows": [{ "topic": "a", "retry": { "max_elapsed": "1.5h" } }] }"#,
    r#"{ "flows": [{ "topic": "a", "retry": { "strategy": "single", "topics": [{ "attempts": 0 }] } }] }"#,
    r#"{ "flows": [{ "topic": "a", "policies": [{ "on": {} }] }] }"#,
    r#"{ "flows": [{ "topic": "a", "policies": [{ "on": "all" }] }] }"#,
    r#"{ "flows": [{ "topic": "a", "policies": [{ "on": { "status": 99 } }] }] }"#,
    r#"{ "flows": [{ "topic": "a", "policies": [{ "on": { "status": "5xx" } }] }] }"#,
    r#"{ "flows": [{ "topic": "a", "policies": [{ "on": "any", "then": "ignore" }] }] }"#,
    r#"{ "flows": [{ "topic": "a", "default": { "in_memory": { "backoff": { "fixed": "1s", "list": ["1s"] } } } }] }"#,
    r#"{ "flows": [{ "topic": "a", "default": { "in_memory": { "backoff": { "linear": {} } } } }] }"#,
    r#"{ "flows": [{ "topic": "a" }], "state_topic": "a b" }"#,
    r#"{ "flows": [{ "topic": "a" }], "commit_interval": 5 }"#,
    r#"{ "flows": [{ "topic": "a" }], "drain": "5s" }"#,
    r#"{ "flows": [{ "topic": "a" }], "exactly_once": 1 }"#,
    r#"{ "flows": [{ "topic": "a" }], "start": "2026-11-15" }"#,
    r#"{ "flows": [{ "topic": "a", "start": 1731663000000 }] }"#,
    r#"{ "flows": [{ "topic": "a", "retry": { "rate": 0 } }] }"#,
    r#"{ "flows": [{ "topic": "a", "retry": { "draining": "old" } }] }"#,
    r#"{ "flows": [{ "topic": "a", "breaker": { "failures": 0 } }] }"#,
    r#"{ "flows": [{ "topic": "a", "breaker": { "failures": "0.5%" } }] }"#,
    r#"{ "flows": [{ "topic": "a", "breaker": { "count": "all" } }] }"#,
    r#"{ "flows": [{ "topic": "a", "payload_budget": "64MB" }] }"#,
];

fn validator() -> jsonschema::Validator {
    jsonschema::draft202012::new(&schema()).unwrap()
}

fn loads(text: &str) -> bool {
    let options = Options { topic: None, group: None, env: &env };
    redrive::config::Config::load(text, Syntax::Json, &options).unwrap().config.is_some()
}

fn assert_accepted(config: &Value) {
    let validator = validator();
    let errors: Vec<_> =
        validator.iter_errors(config).map(|it| format!("{it} at {}", it.instance_path())).collect();
    assert_eq!(errors, Vec::<String>::new(), "{config:#}");
}

#[test]
fn the_schema_is_one_itself() {
    let schema = schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert!(jsonschema::meta::is_valid(&schema));
    assert!(jsonschema::draft202012::meta::is_valid(&schema));
}

#[test]
fn the_schema_and_the_reader_accept_the_same_configs() {
    for text in VALID {
        assert!(loads(text), "{text}");
        assert_accepted(&serde_json::from_str(text).unwrap());
    }
}

#[test]
fn the_schema_and_the_reader_refuse_the_same_configs() {
    let validator = validator();
    for text in WRONG {
        assert!(!loads(text), "{text}");
        assert!(!validator.is_valid(&serde_json::from_str(text).unwrap()), "{text}");
    }
}

#[test]
fn the_schema_accepts_the_sample() {
    assert_accepted(&to_json(include_str!("../../../../examples/orders.yaml")));
}

#[test]
fn the_schema_accepts_the_quafka_documents_scenarios() {
    assert_accepted(&to_json(include_str!("quafka_scenarios.yaml")));
}

#[test]
fn every_key_of_the_schema_is_described() {
    let schema = schema();
    for (section, definition) in schema["$defs"].as_object().unwrap() {
        for (key, value) in definition["properties"].as_object().unwrap() {
            let text = value["description"].as_str().unwrap_or_default();
            assert!(!text.is_empty(), "{section}.{key}");
        }
        assert_eq!(definition["additionalProperties"], json!(false), "{section}");
    }
}

#[test]
fn whatever_loads_is_accepted_by_the_schema() {
    let validator = validator();
    for text in [
        r#"{ "flows": [{ "topic": "a", "policies": [{ "on": { "retryable": "true" } }] }] }"#,
        r#"{ "flows": [{ "topic": "a", "policies": [{ "on": "${NONE:-any}" }] }] }"#,
        r#"{ "flows": [{ "topic": "a", "default": { "in_memory": { "backoff": {
             "exponential": { "base": "1s", "multiplier": "2" } } } } }] }"#,
        r#"{ "kafka": { "client.id": null }, "flows": [{ "topic": "a" }] }"#,
    ] {
        let is_valid = validator.is_valid(&serde_json::from_str(text).unwrap());
        assert!(is_valid || !loads(text), "{text}");
    }
}

#[test]
fn what_can_never_load_is_refused_by_the_schema() {
    let validator = validator();
    for text in [
        r#"{ "flows": [] }"#,
        r#"{ "flows": [{ "topic": "." }] }"#,
        r#"{ "flows": [{ "topic": "a", "retry": { "max_elapsed": "PT" } }] }"#,
        r#"{ "flows": [{ "topic": "a", "policies": [{ "then": "drop" }] }] }"#,
        r#"{ "flows": [{ "topic": "a", "policies": [{ "on": "any", "use": "b" }] }] }"#,
    ] {
        assert!(!loads(text), "{text}");
        assert!(!validator.is_valid(&serde_json::from_str(text).unwrap()), "{text}");
    }
}

/// A YAML config as JSON, for files that have neither anchors nor block texts.
fn to_json(text: &str) -> Value {
    use saphyr_parser::{Event, Parser, ScalarStyle};
    fn node<'a>(event: Event<'a>, rest: &mut impl Iterator<Item = Event<'a>>) -> Value {
        match event {
            Event::Scalar(text, ScalarStyle::Plain, ..) => {
                serde_json::from_str(&text).unwrap_or(Value::String(text.into_owned()))
            }
            Event::Scalar(text, ..) => Value::String(text.into_owned()),
            Event::SequenceStart(..) => {
                let mut items = Vec::new();
                loop {
                    match rest.next().unwrap() {
                        Event::SequenceEnd => return Value::Array(items),
                        item => items.push(node(item, rest)),
                    }
                }
            }
            Event::MappingStart(..) => {
                let mut entries = serde_json::Map::new();
                loop {
                    match rest.next().unwrap() {
                        Event::MappingEnd => return Value::Object(entries),
                        Event::Scalar(key, ..) => {
                            let value = rest.next().unwrap();
                            entries.insert(key.into_owned(), node(value, rest));
                        }
                        other => panic!("a key was expected, not {other:?}"),
                    }
                }
            }
            other => panic!("a value was expected, not {other:?}"),
        }
    }
    assert!(yaml(text).config.is_some());
    let mut events = Parser::new_from_str(text).map(|it| it.unwrap().0);
    let start = events.by_ref().find(|it| matches!(it, Event::MappingStart(..))).unwrap();
    node(start, &mut events)
}
