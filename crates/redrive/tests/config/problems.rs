//! What is told about a config that is wrong, or that hardly does what was meant: all of it, and
//! each with its place.

use redrive::config::{Severity, Syntax};

use crate::support::{
    FROM_ENV, load, places, problem, refused, told, valid, warned, warnings, yaml,
};

/// A flow of the topic `orders` with two retry topics and these further lines.
fn with_tiers(lines: &str) -> String {
    format!(
        "flows:\n- topic: orders\n  retry: {{ topics: [{{ topic: r1, delay: 30s, attempts: 3 }}, {{ topic: r2, delay: 5m }}] }}\n{lines}"
    )
}

/// A flow of the topic `orders` with this one policy in line 5.
fn with_policy(policy: &str) -> String {
    with_tiers(&format!("  policies:\n  - {policy}\n"))
}

mod reading {
    use super::*;

    #[test]
    fn everything_wrong_with_a_file_is_told_at_once() {
        insta::assert_snapshot!(told(&yaml(include_str!("broken.yaml"))));
    }

    #[test]
    fn unknown_keys_are_refused_with_the_word_that_was_meant() {
        for (text, at, near) in [
            ("flow: []\nflows: [{ topic: a }]", "flow @1:1", "`flows`"),
            (
                "flows:\n- topic: a\n  dead-letter: {}\n",
                "flows[0].dead-letter @3:3",
                "`dead_letter`",
            ),
            ("flows:\n- topic: a\n  polices: []\n", "flows[0].polices @3:3", "`policies`"),
            (
                "flows:\n- { topic: a, retry: { stratgy: none } }",
                "flows[0].retry.stratgy @2:24",
                "`strategy`",
            ),
            (
                "flows:\n- { topic: a, default: { then: { Stop: {} } } }",
                "flows[0].default.then.Stop @2:34",
                "`stop`",
            ),
            (
                "flows:\n- { topic: a, policies: [{ on: { stauts: 503 } }] }",
                "flows[0].policies[0].on.stauts @2:34",
                "`status`",
            ),
            (
                "flows:\n- { topic: a, default: { in_memory: { backoff: { fixd: 1s } } } }",
                "flows[0].default.in_memory.backoff.fixd @2:50",
                "`fixed`",
            ),
        ] {
            refused(text, at, &["unknown key", &format!("did you mean {near}?")]);
        }
        refused(
            "flows: [{ topic: a, banana: 1 }]",
            "flows[0].banana @1:21",
            &["unknown key `banana`", "known here: topic, handler"],
        );
    }

    #[test]
    fn missing_keys_are_told_with_a_path_that_ends_in_them() {
        for (text, at) in [
            ("group: a", "flows @1:1"),
            ("flows:\n- {}", "flows[0].topic @2:3"),
            ("flows:\n- { topic: a, handler: {} }", "flows[0].handler.http @2:24"),
            ("flows:\n- { topic: a, handler: { http: {} } }", "flows[0].handler.http.url @2:32"),
            ("flows:\n- { topic: a, policies: [{ then: drop }] }", "flows[0].policies[0].on @2:26"),
            (
                "flows:\n- { topic: a, retry: { topics: [{ delay: 1s }] } }",
                "flows[0].retry.topics[0].topic @2:33",
            ),
            (
                "flows:\n- { topic: a, retry: { topics: [{ topic: b }] } }",
                "flows[0].retry.topics[0].delay @2:33",
            ),
            (
                "flows:\n- { topic: a, retry: { strategy: delay-then-retry, topics: [{ topic: b }] } }",
                "flows[0].retry.topics[0].delay @2:61",
            ),
            (
                "flows:\n- { topic: a, default: { in_memory: { backoff: { linear: {} } } } }",
                "flows[0].default.in_memory.backoff.linear.initial @2:58",
            ),
            (
                "flows:\n- { topic: a, default: { in_memory: { backoff: { exponential: {} } } } }",
                "flows[0].default.in_memory.backoff.exponential.base @2:63",
            ),
            (
                "flows:\n- { topic: a, default: { in_memory: { backoff: { random: { min: 1s } } } } }",
                "flows[0].default.in_memory.backoff.random.max @2:58",
            ),
            (
                "flows:\n- { topic: a, policies: [{ on: { header: { value: x } } }] }",
                "flows[0].policies[0].on.header.name @2:42",
            ),
        ] {
            refused(text, at, &["is missing"]);
        }
    }

    #[test]
    fn duplicate_keys_are_refused_in_both_formats() {
        let at = "flows[0].topic @3:3";
        refused("flows:\n- topic: a\n  topic: b\n", at, &["twice", "line 2"]);
        let json = "{ \"flows\": [\n{ \"topic\": \"a\",\n  \"topic\": \"b\" } ] }";
        assert_eq!(places(&load(json, Syntax::Json)), [format!("error {at}")]);
        refused(
            "group: a\nflows: [{ topic: a }]\n\"group\": b\n",
            "group @3:1",
            &["twice", "line 1"],
        );
    }

    #[test]
    fn wrong_types_are_refused() {
        for (text, at, words) in [
            ("5", " @1:1", &["should be a map", "a single value"][..]),
            ("[]", " @1:1", &["should be a map", "a list"]),
            ("flows: {}", "flows @1:8", &["should be a list", "a map"]),
            ("flows: orders", "flows @1:8", &["should be a list", "a single value"]),
            ("flows: []", "flows @1:8", &["no flow"]),
            ("flows: [orders]", "flows[0] @1:9", &["should be a map", "a single value"]),
            ("flows: [{ topic: [a] }]", "flows[0].topic @1:18", &["a single value", "a list"]),
            ("flows: [{ topic: 5 }]", "flows[0].topic @1:18", &["text", "`5`", "quotes"]),
            ("flows: [{ topic: true }]", "flows[0].topic @1:18", &["text", "`true`", "quotes"]),
            ("flows: [{ topic: '' }]", "flows[0].topic @1:18", &["empty"]),
            ("group: ' '\nflows: [{ topic: a }]", "group @1:8", &["empty"]),
            (
                "flows: [{ topic: a, concurrency: many }]",
                "flows[0].concurrency @1:34",
                &["whole number", "`many`"],
            ),
            (
                "flows: [{ topic: a, concurrency: 1.5 }]",
                "flows[0].concurrency @1:34",
                &["whole number", "`1.5`"],
            ),
            (
                "flows: [{ topic: a, ordering: keys }]",
                "flows[0].ordering @1:31",
                &["none, partition, key", "`keys`", "did you mean `key`?"],
            ),
            (
                "flows: [{ topic: a, headers: sprung }]",
                "flows[0].headers @1:30",
                &["`sprung`", "did you mean `spring`?"],
            ),
            (
                "flows: [{ topic: a, retry: { strategy: tier } }]",
                "flows[0].retry.strategy @1:40",
                &["`tier`", "did you mean `tiers`?"],
            ),
            (
                "flows: [{ topic: a, default: { then: ignore } }]",
                "flows[0].default.then @1:38",
                &["dead_letter, drop, stop", "`ignore`"],
            ),
            (
                "flows: [{ topic: a, default: { then: { stop: { exit: 1 } } } }]",
                "flows[0].default.then.stop.exit @1:54",
                &["true, false", "`1`"],
            ),
            (
                "flows: [{ topic: a, dead_letter: { format: json } }]",
                "flows[0].dead_letter.format @1:44",
                &["raw, envelope", "`json`"],
            ),
            (
                "flows: [{ topic: a, handler: { http: { url: localhost } } }]",
                "flows[0].handler.http.url @1:45",
                &["`localhost`", "http://"],
            ),
            (
                "flows: [{ topic: a, policies: [{ on: {} }] }]",
                "flows[0].policies[0].on @1:38",
                &["empty", "`on: any`"],
            ),
            (
                "flows: [{ topic: a, policies: [{ on: [] }] }]",
                "flows[0].policies[0].on @1:38",
                &["empty list"],
            ),
            (
                "flows: [{ topic: a, policies: [{ on: { status: [] } }] }]",
                "flows[0].policies[0].on.status @1:48",
                &["empty list"],
            ),
            (
                "flows: [{ topic: a, policies: [{ on: any, id: '' }] }]",
                "flows[0].policies[0].id @1:47",
                &["identifier"],
            ),
            (
                "flows: [{ topic: a, policies: [{ on: any, id: 'a{code}' }] }]",
                "flows[0].policies[0].id @1:47",
                &["`a{code}`", "{status}"],
            ),
        ] {
            refused(text, at, words);
        }
    }

    #[test]
    fn topics_that_kafka_does_not_allow_are_refused() {
        for name in ["a b", "a/b", "ä", ".", "..", "a,b", &"a".repeat(250)] {
            let text = format!("flows: [{{ topic: \"{name}\" }}]");
            let problem = problem(&text);
            assert_eq!(
                (problem.path.as_str(), problem.severity),
                ("flows[0].topic", Severity::Error)
            );
        }
        valid(&format!("flows: [{{ topic: {} }}]", "a".repeat(245)));
    }

    #[test]
    fn derived_names_that_kafka_does_not_allow_are_refused() {
        let text = format!("flows: [{{ topic: {} }}]", "a".repeat(249));
        assert!(yaml(&text).config.is_none());
    }

    #[test]
    fn durations_are_refused_with_the_way_to_write_them() {
        for (value, words) in [
            ("30", &["`30` is a number without a unit", "`30s`", "`30ms`"][..]),
            ("'30'", &["`30` is a number without a unit"]),
            ("0", &["without a unit"]),
            ("1.5h", &["`1.5h` is not a length of time", "`1h30m`"]),
            ("-5s", &["`-5s` is not a length of time"]),
            ("5 m", &["not a length of time"]),
            ("30m1h", &["not a length of time"]),
            ("5:00", &["not a length of time", "`00:05:00`"]),
            ("P1M", &["years or months"]),
            ("P1Y", &["years or months", "`365d`"]),
            ("400000d", &["longer than 1,000 years"]),
            ("soon", &["`soon` is not a length of time"]),
        ] {
            let text = format!(
                "flows: [{{ topic: a, retry: {{ strategy: single, max_elapsed: {value} }} }}]"
            );
            refused(&text, "flows[0].retry.max_elapsed @1:61", words);
        }
    }

    #[test]
    fn statuses_are_refused_with_the_way_to_write_them() {
        for (value, words) in [
            ("99", &["`99` is no HTTP status", "`500..599`"][..]),
            ("1000", &["no HTTP status"]),
            ("5xx", &["`5xx` is no HTTP status"]),
            ("500-599", &["no HTTP status", "`500..599`"]),
            ("500...599", &["no HTTP status"]),
            ("500..", &["no HTTP status"]),
            ("599..500", &["ends before it begins"]),
            ("'500 .. 599'", &["no HTTP status"]),
        ] {
            let text =
                format!("flows: [{{ topic: a, policies: [{{ on: {{ status: {value} }} }}] }}]");
            refused(&text, "flows[0].policies[0].on.status @1:48", words);
        }
        refused(
            "flows: [{ topic: a, policies: [{ on: { status: [429, 5x] } }] }]",
            "flows[0].policies[0].on.status[1] @1:54",
            &["`5x`"],
        );
    }

    #[test]
    fn shares_and_factors_are_refused_outside_their_bounds() {
        let text = |keys: &str| {
            format!(
                "flows: [{{ topic: a, default: {{ in_memory: {{ backoff: {{ exponential: {{ base: 1s, {keys} }} }} }} }} }}]"
            )
        };
        let path = "flows[0].default.in_memory.backoff.exponential";
        for (value, words) in [
            ("10", &["`10` is no share from 0 to 1", "did you mean `10%`?"][..]),
            ("101%", &["`101%` is no share"]),
            ("-0.1", &["`-0.1`"]),
            ("ten", &["`ten`", "`10%`"]),
        ] {
            refused(&text(&format!("jitter: {value}")), &format!("{path}.jitter @1:89"), words);
        }
        for value in ["0", "1001", "-2", "two", ".nan", "1e3"] {
            refused(
                &text(&format!("multiplier: {value}")),
                &format!("{path}.multiplier @1:93"),
                &["0.001 to 1000"],
            );
        }
    }

    #[test]
    fn unset_and_malformed_variables_are_refused() {
        refused(
            "group: ${NOBODY}\nflows: [{ topic: a }]",
            "group @1:8",
            &["`NOBODY` is not set", "${NOBODY:-"],
        );
        for value in ["${", "${}", "${A B}", "${1}", "${A:-${B}", "${A-b}"] {
            let text = format!("group: \"{value}\"\nflows: [{{ topic: a }}]");
            refused(&text, "group @1:8", &["not a variable", "`${NAME}`"]);
        }
        refused(
            "kafka:\n  sasl.password: ${NOBODY}\nflows: [{ topic: a }]",
            "kafka.sasl.password @2:18",
            &["`NOBODY` is not set"],
        );
        refused("group: ${EMPTY}\nflows: [{ topic: a }]", "group @1:8", &["empty"]);
    }

    #[test]
    fn keys_of_later_capabilities_are_refused_as_unknown() {
        for key in ["dangling", "relay"] {
            let text = format!("flows: [{{ topic: a }}]\n{key}: {{ topic: x }}\n");
            refused(&text, &format!("{key} @2:1"), &[&format!("unknown key `{key}`"), "yet"]);
        }
        for key in ["schedule", "priority", "relay"] {
            let text = format!("flows:\n- topic: a\n  {key}: hold\n");
            refused(
                &text,
                &format!("flows[0].{key} @3:3"),
                &[&format!("unknown key `{key}`"), "yet"],
            );
        }
        refused(
            "flows: [{ topic: a, dead_letter: { on_dead_letter: hold } }]",
            "flows[0].dead_letter.on_dead_letter @1:36",
            &["unknown key"],
        );
    }

    #[test]
    fn properties_that_redrive_owns_are_refused_with_the_reason() {
        for (property, reason) in [
            ("group.id", "`group`"),
            ("enable.auto.commit", "commits"),
            ("enable.auto.offset.store", "offset"),
            ("acks", "in-sync"),
            ("request.required.acks", "in-sync"),
            ("enable.idempotence", "idempotent"),
            ("isolation.level", "transactional"),
            ("transactional.id", "transactional"),
            ("partitioner", "partition"),
            ("auto.offset.reset", "earliest"),
            ("auto.commit.enable", "commits"),
            ("auto.commit.interval.ms", "`commit_interval`"),
            ("topic.partitioner", "partition"),
            ("enable.partition.eof", "ends"),
            ("enabled_events", "events"),
            ("log.queue", "logs"),
            ("rebalance_cb", "function"),
        ] {
            refused(
                &format!(
                    "kafka:\n  bootstrap.servers: b\n  {property}: x\nflows: [{{ topic: a }}]"
                ),
                &format!("kafka.{property} @3:3"),
                &[&format!("Redrive sets `{property}` itself"), reason],
            );
        }
    }

    #[test]
    fn a_property_that_librdkafka_does_not_have_is_refused_with_the_one_that_was_meant() {
        for (property, words) in [
            ("bootstrap.server", "did you mean `bootstrap.servers`?"),
            ("sasl.mechansim", "did you mean `sasl.mechanism`?"),
            ("sesion.timeout.ms", "did you mean `session.timeout.ms`?"),
            ("Linger.ms", "did you mean `linger.ms`?"),
            ("max.poll.records", "CONFIGURATION.md"),
            ("some.new.property", "CONFIGURATION.md"),
            ("ut_handle_ProduceResponse", "CONFIGURATION.md"),
        ] {
            refused(
                &format!("kafka:\n  {property}: 5\nflows: [{{ topic: a }}]"),
                &format!("kafka.{property} @2:3"),
                &[&format!("librdkafka has no property `{property}`"), words],
            );
        }
    }

    #[test]
    fn a_value_that_librdkafka_does_not_take_is_refused_with_its_rule() {
        for (property, value, words) in [
            ("linger.ms", "soon", &["whole number from 0 to 900000", "`soon`"][..]),
            ("linger.ms", "900001", &["whole number from 0 to 900000", "`900001`"]),
            ("linger.ms", "-1", &["whole number from 0 to 900000", "`-1`"]),
            ("linger.ms", "''", &["whole number from 0 to 900000"]),
            ("topic.message.timeout.ms", "-1", &["whole number from 0 to"]),
            ("socket.keepalive.enable", "maybe", &["true or false", "`maybe`"]),
            ("compression.type", "zip", &["no `compression.type` that is `zip`"]),
            ("security.protocol", "tls", &["no `security.protocol` that is `tls`"]),
            ("linger.ms", "${SECRET}", &["but is `${SECRET}`"]),
            ("linger.ms", "${SECRET_NUMBER}000000", &["but is `${SECRET_NUMBER}000000`"]),
        ] {
            let column = property.len() + 5;
            refused(
                &format!("kafka:\n  {property}: {value}\nflows: [{{ topic: a }}]"),
                &format!("kafka.{property} @2:{column}"),
                words,
            );
        }
    }

    #[test]
    fn properties_that_librdkafka_takes_are_taken() {
        for property in [
            "bootstrap.servers: b",
            "linger.ms: 5",
            "queued.max.messages.kbytes: 1024",
            "topic.message.timeout.ms: 5",
            "socket.keepalive.enable: true",
            "security.protocol: SASL_SSL",
            "sasl.mechanism: PLAIN",
            "sasl.password: x",
            "compression.type: zstd",
            "client.id: ''",
        ] {
            valid(&format!("kafka: {{ {property} }}\nflows: [{{ topic: a }}]"));
        }
    }

    #[test]
    fn properties_of_java_are_refused_with_what_stands_for_them() {
        for (property, words) in
            [("ssl.truststore.location", "`ssl.ca.location`"), ("sasl.jaas.config", "SASL")]
        {
            refused(
                &format!("kafka:\n  {property}: {FROM_ENV}\nflows: [{{ topic: a }}]"),
                &format!("kafka.{property} @2:3"),
                &["Java's client", words],
            );
        }
    }

    #[test]
    fn properties_that_only_a_program_can_set_are_refused() {
        for property in ["ssl_key", "interceptors", "default_topic_conf"] {
            refused(
                &format!("kafka:\n  {property}: x\nflows: [{{ topic: a }}]"),
                &format!("kafka.{property} @2:3"),
                &["cannot be set in a config"],
            );
        }
    }

    /// It would load whatever the file names.
    #[test]
    fn a_plugin_is_not_loaded_to_see_whether_it_can_be() {
        valid("kafka: { plugin.library.paths: /no/such/library }\nflows: [{ topic: a }]");
    }

    #[test]
    fn all_problems_of_the_properties_are_told_at_once() {
        let loaded = yaml(
            "kafka:\n  bootstrap.server: b\n  linger.ms: x\n  acks: 1\n  topic.acks: 1\n  debug: [a]\nflows: [{ topic: a }]",
        );
        assert_eq!(
            places(&loaded),
            [
                "error kafka.bootstrap.server @2:3",
                "error kafka.linger.ms @3:14",
                "error kafka.acks @4:3",
                "error kafka.topic.acks @5:3",
                "error kafka.debug @6:10",
            ]
        );
    }

    #[test]
    fn a_property_has_a_single_value() {
        refused(
            "kafka: { debug: [a] }\nflows: [{ topic: a }]",
            "kafka.debug @1:17",
            &["a single value"],
        );
        refused(
            "kafka: localhost\nflows: [{ topic: a }]",
            "kafka @1:8",
            &["embedded", "a map of properties"],
        );
    }

    #[test]
    fn a_property_without_a_value_is_refused() {
        for nothing in ["", "~", "null"] {
            let text = format!("kafka:\n  client.id: {nothing}\nflows: [{{ topic: a }}]");
            assert!(yaml(&text).config.is_none(), "{nothing:?}");
        }
    }

    #[test]
    fn a_kind_that_is_nearly_a_known_one_is_a_warning() {
        let text = "flows: [{ topic: a, policies: [{ on: { kind: timeuot } }] }]";
        warned(
            text,
            "flows[0].policies[0].on.kind @1:46",
            &["`timeuot`", "did you mean `timeout`?"],
        );
        valid("flows: [{ topic: a, policies: [{ on: { kind: out-of-stock } }] }]");
    }

    #[test]
    fn only_one_backoff_counts() {
        refused(
            &with_policy(
                "{ on: any, delayed: { backoff: { fixed: 1s, linear: { initial: 1s } } } }",
            ),
            "flows[0].policies[0].delayed.backoff.linear @5:49",
            &["only one"],
        );
        refused(
            &with_policy("{ on: any, delayed: { backoff: {} } }"),
            "flows[0].policies[0].delayed.backoff @5:36",
            &["empty", "fixed, linear"],
        );
        refused(
            &with_policy("{ on: any, delayed: { backoff: { list: [] } } }"),
            "flows[0].policies[0].delayed.backoff.list @5:44",
            &["empty"],
        );
    }

    #[test]
    fn a_file_that_is_no_yaml_or_json_is_told_where() {
        let problem = problem("flows:\n  - topic: [a\n");
        assert!(problem.message.contains("not YAML"), "{problem:?}");
        assert!(problem.position.is_some_and(|it| it.line >= 2), "{problem:?}");
        for (text, line, column) in [
            ("{ \"flows\": [\n  { \"topic\": orders } ] }", 2, 14),
            ("{ \"flows\": [] ", 1, 15),
            ("{ flows: [] }", 1, 3),
            ("{}\n{}", 2, 1),
            ("{ \"a\": 01 }", 1, 8),
            ("{ \"a\": \"\n\" }", 1, 9),
            ("{ \"a\": \"\\ud800\" }", 1, 15),
            ("/* a", 1, 1),
            ("", 1, 1),
        ] {
            let loaded = load(text, Syntax::Json);
            let [problem] = loaded.problems.as_slice() else { panic!("{loaded:#?}") };
            assert!(problem.message.contains("not JSON"), "{problem:?}");
            let at = problem.position.map(|it| (it.line, it.column));
            assert_eq!(at, Some((line, column)), "{text} {problem:?}");
        }
    }

    #[test]
    fn an_error_counts_however_many_warnings_came_before_it() {
        let slips = "  - { on: { kind: timeuot } }\n".repeat(200);
        let loaded =
            yaml(&with_tiers(&format!("  policies:\n{slips}  default: {{ then: nothing }}\n")));
        assert!(loaded.config.is_none());
    }

    #[test]
    fn a_flood_of_problems_is_cut_and_the_rest_counted() {
        let wrong: String = (0..1000)
            .map(|it| format!("  - {{ on: {{ error: E{it} }}, then: nothing }}\n"))
            .collect();
        let loaded = yaml(&with_tiers(&format!("  policies:\n{wrong}")));
        assert!(loaded.config.is_none());
        assert_eq!(loaded.problems.len(), 201);
        assert!(loaded.problems[200].message.contains("800 more problems"));
    }
}

mod contradictions {
    use super::*;

    #[test]
    fn the_same_topic_twice_in_one_flow_is_refused() {
        for (lines, at, words) in [
            (
                "flows:\n- { topic: a, retry: { topics: [{ topic: b, delay: 1s }, { topic: b, delay: 2s }] } }",
                "flows[0].retry.topics[1].topic @2:67",
                &["`b`", "twice"][..],
            ),
            (
                "flows:\n- { topic: a, retry: { topics: [{ topic: a, delay: 1s }] } }",
                "flows[0].retry.topics[0].topic @2:42",
                &["`a`", "the source topic", "a retry topic"],
            ),
            (
                "flows:\n- { topic: a, dead_letter: { topic: a } }",
                "flows[0].dead_letter.topic @2:37",
                &["`a`", "the source topic", "the dead-letter topic"],
            ),
            (
                "flows:\n- { topic: a, retry: { topics: [{ topic: b, delay: 1s }] }, dead_letter: { topic: b } }",
                "flows[0].dead_letter.topic @2:83",
                &["`b`"],
            ),
            (
                "flows:\n- { topic: a, retry: { topics: [{ topic: a.dlt, delay: 1s }] } }",
                "flows[0].dead_letter.topic @2:12",
                &["`a.dlt`"],
            ),
            (
                "flows:\n- { topic: a, retry: { strategy: delay-then-retry, topics: [{ topic: a.retry, delay: 1s }] } }",
                "flows[0].retry.retry_topic @2:22",
                &["`a.retry`"],
            ),
        ] {
            refused(lines, at, words);
        }
    }

    #[test]
    fn topics_that_two_flows_use_are_refused() {
        for (text, at, words) in [
            (
                "flows:\n- { topic: a }\n- { topic: a }",
                "flows[1].topic @3:12",
                &["`a`", "two flows", "flows[0].topic"][..],
            ),
            (
                "flows:\n- { topic: a, retry: { topics: [{ topic: r, delay: 1s }] } }\n- { topic: b, retry: { topics: [{ topic: r, delay: 1s }] } }",
                "flows[1].retry.topics[0].topic @3:42",
                &["`r`", "another flow", "flows[0].retry.topics[0].topic"],
            ),
            (
                "flows:\n- { topic: a, retry: { topics: [{ topic: b, delay: 1s }] } }\n- { topic: b }",
                "flows[1].topic @3:12",
                &["`b`", "loop", "flows[0].retry.topics[0].topic"],
            ),
            (
                "flows:\n- { topic: b }\n- { topic: a, dead_letter: { topic: b } }",
                "flows[1].dead_letter.topic @3:37",
                &["`b`", "loop", "flows[0].topic"],
            ),
            (
                "flows:\n- { topic: a, dead_letter: { topic: r } }\n- { topic: b, retry: { topics: [{ topic: r, delay: 1s }] } }",
                "flows[1].retry.topics[0].topic @3:42",
                &["`r`", "flows[0].dead_letter.topic"],
            ),
        ] {
            refused(text, at, words);
        }
    }

    #[test]
    fn two_flows_may_share_a_dead_letter_topic() {
        valid(
            "flows:\n- { topic: a, dead_letter: { topic: d } }\n- { topic: b, dead_letter: { topic: d } }",
        );
    }

    #[test]
    fn delayed_needs_retry_topics() {
        refused(
            "flows:\n- topic: a\n  policies:\n  - { on: any, delayed: { attempts: 3 } }",
            "flows[0].policies[0].delayed @4:25",
            &["`delayed`", "`none`"],
        );
        refused(
            "flows:\n- topic: a\n  retry: { strategy: none }\n  default: { delayed: {} }",
            "flows[0].default.delayed @4:23",
            &["`delayed`", "`none`"],
        );
        refused(
            "policy_sets: { s: [{ on: any, delayed: {} }] }\nflows:\n- { topic: a, retry: { strategy: single }, policies: [{ use: s }] }\n- topic: b\n  policies: [{ use: s }]",
            "flows[1].policies[0].use @5:21",
            &["policy_sets.s[0].delayed", "`none`"],
        );
    }

    #[test]
    fn an_error_in_retry_is_told_once() {
        for retry in
            ["{ strategy: tiers }", "{ strategy: singel }", "5", "{ strategy: tiers, topics: [] }"]
        {
            let text =
                format!("flows:\n- topic: a\n  retry: {retry}\n  default: {{ delayed: {{}} }}");
            let loaded = yaml(&text);
            assert_eq!(loaded.problems.len(), 1, "{retry}: {:#?}", loaded.problems);
        }
    }

    #[test]
    fn order_per_key_allows_no_group_of_its_own_and_no_relay() {
        let text = |retry: &str| {
            format!("group: g\nflows:\n- topic: a\n  ordering: key\n  retry: {retry}\n")
        };
        refused(
            &text("{ topics: [{ topic: b, delay: 1s, group: other }] }"),
            "flows[0].retry.topics[0].group @5:51",
            &["`ordering: key`", "`other`"],
        );
        refused(
            &text("{ strategy: single, group: other }"),
            "flows[0].retry.group @5:37",
            &["`ordering: key`", "`other`"],
        );
        for strategy in ["delay-then-retry", "back-to-source"] {
            refused(
                &text(&format!("{{ strategy: {strategy}, topics: [{{ topic: b, delay: 1s }}] }}")),
                "flows[0].retry.strategy @5:22",
                &["`ordering: key`", strategy],
            );
        }
        valid(&text("{ topics: [{ topic: b, delay: 1s, group: g }] }"));
        valid(&text("{ topics: [{ topic: b, delay: 1s }] }"));
        valid(&text("{ strategy: none }"));
        valid(&format!("exactly_once: true\n{}", text("{ strategy: single }")));
    }

    #[test]
    fn what_belongs_to_order_per_key_needs_it() {
        for ordering in ["", "  ordering: none\n", "  ordering: partition\n"] {
            for (key, value) in [("entity", "key"), ("on_dead_letter", "release")] {
                let line = if ordering.is_empty() { 3 } else { 4 };
                refused(
                    &format!("flows:\n- topic: a\n{ordering}  {key}: {value}\n"),
                    &format!("flows[0].{key} @{line}:{}", 5 + key.len()),
                    &[&format!("`{key}` is for `ordering: key`"), "add `ordering: key`"],
                );
            }
        }
        // One problem is enough where nobody knows what was meant.
        let loaded = yaml("flows: [{ topic: a, ordering: keys, entity: key }]");
        assert_eq!(loaded.problems.len(), 1, "{:#?}", loaded.problems);
    }

    #[test]
    fn an_entity_that_nothing_names_is_refused() {
        let text =
            |entity: &str| format!("flows:\n- topic: a\n  ordering: key\n  entity: {entity}\n");
        refused(
            &text("header"),
            "flows[0].entity @4:11",
            &["`entity` should be `key`", "`header`", "{ header: NAME }"],
        );
        refused(
            &text("{ header: '' }"),
            "flows[0].entity.header @4:21",
            &["`header` is empty", "the header's name"],
        );
        refused(
            &text("{ pointer: '' }"),
            "flows[0].entity.pointer @4:22",
            &["it is empty", "`/order/id`"],
        );
        refused(
            &text("{ pointer: order.id }"),
            "flows[0].entity.pointer @4:22",
            &["`order.id` is no JSON pointer", "it does not begin with `/`"],
        );
        refused(&text("{ pointer: /a~2 }"), "flows[0].entity.pointer @4:22", &["`~`"]);
        refused(&text("{ path: /a }"), "flows[0].entity.path @4:13", &["unknown key"]);
        refused(&text("{ header: 5 }"), "flows[0].entity.header @4:21", &["text"]);
        refused(&text("{}"), "flows[0].entity @4:11", &["header, pointer"]);
        refused(
            &text("{ header: a, pointer: /b }"),
            "flows[0].entity.pointer @4:24",
            &["only one of them"],
        );
    }

    #[test]
    fn min_above_max_is_refused() {
        for backoff in
            ["exponential: { base: 1s, min: 5s, max: 2s }", "random: { min: 5s, max: 2s }"]
        {
            let loaded = yaml(&with_policy(&format!(
                "{{ on: any, delayed: {{ backoff: {{ {backoff} }} }} }}"
            )));
            let [problem] = loaded.problems.as_slice() else { panic!("{loaded:#?}") };
            assert!(problem.path.ends_with(".min") && problem.severity == Severity::Error);
            assert!(problem.message.contains("5s is more than 2s"), "{problem:?}");
        }
        warned(
            &with_policy(
                "{ on: any, delayed: { backoff: { exponential: { base: 5s, max: 2s } } } }",
            ),
            "flows[0].policies[0].delayed.backoff.exponential.base @5:59",
            &["above `max`", "every delay is `max`"],
        );
    }

    #[test]
    fn the_shape_of_retry_fits_its_strategy() {
        let two = "topics: [{ topic: b, delay: 1s }, { topic: c, delay: 2s }]";
        for (retry, path, words) in [
            (format!("strategy: none, {two}"), "topics", "`none` has no retry topics"),
            (format!("strategy: single, {two}"), "topics", "one topic, but there are 2"),
            (format!("strategy: back-to-source, {two}"), "topics", "one topic, but there are 2"),
            ("strategy: tiers".to_owned(), "topics", "needs topics"),
            ("strategy: delay-then-retry, topics: []".to_owned(), "topics", "needs topics"),
            (
                format!("strategy: tiers, retry_topic: x, {two}"),
                "retry_topic",
                "`delay-then-retry`",
            ),
        ] {
            let problem = problem(&format!("flows: [{{ topic: a, retry: {{ {retry} }} }}]"));
            assert_eq!(problem.path, format!("flows[0].retry.{path}"));
            assert!(problem.message.contains(words), "{problem:?}");
        }
    }

    #[test]
    fn a_policy_set_must_exist_and_stand_alone() {
        refused(
            "policy_sets: { common: [] }\nflows: [{ topic: a, policies: [{ use: comon }] }]",
            "flows[0].policies[0].use @2:39",
            &["`comon`", "did you mean `common`?"],
        );
        refused(
            "flows: [{ topic: a, policies: [{ use: common }] }]",
            "flows[0].policies[0].use @1:39",
            &["`policy_sets`"],
        );
        refused(
            "policy_sets: { s: [{ on: any }] }\nflows: [{ topic: a, policies: [{ use: s, then: drop }] }]",
            "flows[0].policies[0].use @2:39",
            &["other keys beside it"],
        );
    }

    #[test]
    fn use_inside_a_policy_set_is_refused_or_followed() {
        let loaded = yaml(
            "policy_sets: { a: [{ use: b }], b: [{ on: any, then: drop }] }\nflows: [{ topic: t, policies: [{ use: a }] }]",
        );
        let rules = loaded.config.map_or(0, |it| it.flows[0].flow.rules().iter().count());
        assert!(rules == 1 || !loaded.problems.is_empty(), "the policy is gone without a word");
    }

    #[test]
    fn a_policy_set_that_nobody_uses_is_checked_all_the_same() {
        let loaded = yaml("policy_sets: { a: [{ then: drop }] }\nflows: [{ topic: t }]");
        assert_eq!(places(&loaded), ["error policy_sets.a[0].on @1:20"]);
    }
}

mod limits {
    use super::*;

    fn tiers(count: usize, attempts: u32) -> String {
        let topics: String = (0..count)
            .map(|it| format!("    - {{ topic: r{it}, delay: 1s, attempts: {attempts} }}\n"))
            .collect();
        format!("flows:\n- topic: a\n  retry:\n    topics:\n{topics}")
    }

    #[test]
    fn attempts_above_10_000_are_refused() {
        for (policy, path) in [
            ("{ on: any, delayed: { attempts: 10001 } }", "delayed.attempts @5:37"),
            ("{ on: any, in_memory: { attempts: 10001 } }", "in_memory.attempts @5:39"),
        ] {
            refused(
                &with_policy(policy),
                &format!("flows[0].policies[0].{path}"),
                &["0 to 10000", "`10001`"],
            );
        }
        valid(&with_policy("{ on: any, delayed: { attempts: 10000 } }"));
        refused(
            "flows: [{ topic: a, retry: { max_overall_attempts: 99999999999999999999 } }]",
            "flows[0].retry.max_overall_attempts @1:52",
            &["0 to 10000"],
        );
        refused(&tiers(1, 10_001), "flows[0].retry.topics[0].attempts @5:41", &["1 to 10000"]);
        refused(&tiers(1, 0), "flows[0].retry.topics[0].attempts @5:41", &["1 to 10000", "`0`"]);
        valid(&tiers(1, 10_000));
    }

    #[test]
    fn topics_whose_attempts_add_up_beyond_10_000_are_refused() {
        let problem = problem(&tiers(2, 6000));
        assert_eq!(problem.path, "flows[0].retry.topics");
        assert!(problem.message.contains("12000"), "{problem:?}");
    }

    #[test]
    fn more_than_1_000_topics_are_refused() {
        refused(&tiers(1001, 1), "flows[0].retry.topics @5:7", &["1001 topics", "1,000"]);
        valid(&tiers(1000, 1));
    }

    #[test]
    fn deep_nesting_is_refused() {
        let nested = |depth: usize| format!("flows: {}{}", "[".repeat(depth), "]".repeat(depth));
        let deep = problem(&nested(100));
        assert!(deep.message.contains("too deeply"), "{deep:?}");
        let json = format!("{{ \"flows\": {}{} }}", "[".repeat(100), "]".repeat(100));
        let loaded = load(&json, Syntax::Json);
        assert!(loaded.problems[0].message.contains("too deeply"), "{loaded:#?}");
        let shallow = problem(&nested(20));
        assert!(shallow.message.contains("should be a map"), "{shallow:?}");
    }

    #[test]
    fn depth_that_comes_from_aliases_is_refused() {
        let mut text = "a0: &a0 1\n".to_owned();
        for it in 1..20 {
            let (open, close) = ("[".repeat(50), "]".repeat(50));
            text += &format!("a{it}: &a{it} {open}*a{}{close}\n", it - 1);
        }
        let loaded = yaml(&text);
        assert!(loaded.problems.iter().any(|it| it.message.contains("too deeply")), "{loaded:#?}");
    }

    #[test]
    fn alias_bombs_are_refused() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for it in 1..12 {
            let aliases = vec![format!("*a{}", it - 1); 10].join(", ");
            text += &format!("a{it}: &a{it} [{aliases}]\n");
        }
        let bomb = problem(&text);
        assert!(bomb.message.contains("aliases"), "{bomb:?}");
        let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "*a, ".repeat(100));
        let bomb = problem(&text);
        assert!(bomb.message.contains("aliases"), "{bomb:?}");
    }

    #[test]
    fn a_file_with_too_many_values_is_not_blamed_on_aliases() {
        let text = format!("flows: [{}]", "1,".repeat(500_001));
        assert!(!problem(&text).message.contains("aliases"));
    }

    #[test]
    fn a_file_above_1_mib_is_refused() {
        let comment = |bytes: usize| {
            let start = "flows: [{ topic: a }]\n#";
            format!("{start}{}", "x".repeat(bytes - start.len()))
        };
        valid(&comment(1 << 20));
        let problem = problem(&comment((1 << 20) + 1));
        assert!(problem.message.contains("more than 1 MiB"), "{problem:?}");
        let json = format!("{{ \"flows\": [] }}{}", " ".repeat(1 << 20));
        assert!(load(&json, Syntax::Json).problems[0].message.contains("1 MiB"));
    }
}

mod secrets {
    use super::*;

    /// Nothing in what is told shows the value of a variable.
    fn assert_hidden(text: &str) {
        let loaded = yaml(text);
        assert!(!loaded.problems.is_empty(), "a problem was expected of {text}");
        let shown = format!("{:?}", loaded.problems);
        assert!(!shown.contains(FROM_ENV), "{shown}");
    }

    #[test]
    fn what_comes_from_the_environment_is_never_shown() {
        for value in ["${SECRET}", "${SECRET_SPACED}", "x${SECRET_BRACED}"] {
            for text in [
                "flows: [{ topic: a, concurrency: V }]",
                "flows: [{ topic: a, ordering: V }]",
                "flows: [{ topic: a, headers: V }]",
                "flows: [{ topic: a, ordering: key, entity: V }]",
                "flows: [{ topic: a, ordering: key, entity: { pointer: V } }]",
                "flows: [{ topic: a, ordering: key, on_dead_letter: V }]",
                "flows: [{ topic: a, dead_letter: { format: V } }]",
                "flows: [{ topic: a, handler: { http: { url: V } } }]",
                "flows: [{ topic: a, handler: { http: { url: 'http://h', timeout: V } } }]",
                "flows: [{ topic: a, retry: { strategy: V } }]",
                "flows: [{ topic: a, retry: { max_overall_attempts: V } }]",
                "flows: [{ topic: a, retry: { max_elapsed: V } }]",
                "flows: [{ topic: a, policies: [{ use: V }] }]",
                "flows: [{ topic: a, policies: [{ on: V }] }]",
                "flows: [{ topic: a, policies: [{ on: { status: V } }] }]",
                "flows: [{ topic: a, policies: [{ on: { retryable: V } }] }]",
                "flows: [{ topic: a, policies: [{ on: any, then: V }] }]",
                "flows: [{ topic: a, default: { in_memory: { attempts: V } } }]",
                "flows: [{ topic: a, default: { in_memory: { backoff: { fixed: V } } } }]",
                "flows: [{ topic: a, default: { in_memory: { backoff: { exponential: { base: 1s, jitter: V } } } } }]",
                "flows: [{ topic: a, default: { in_memory: { backoff: { exponential: { base: 1s, multiplier: V } } } } }]",
                "commit_interval: V\nflows: [{ topic: a }]",
                "exactly_once: V\nflows: [{ topic: a }]",
                "drain: { revoke: V }\nflows: [{ topic: a }]",
                "flows: [{ topic: a, timeout: V }]",
                "flows: [{ topic: a, payload_budget: V }]",
                "flows: [{ topic: a, retry: { strategy: single, rate: V } }]",
                "flows: [{ topic: a, breaker: { failures: V } }]",
                "flows: [{ topic: a, breaker: { count: V } }]",
                "kafka: { linger.ms: V }\nflows: [{ topic: a }]",
                "kafka: { security.protocol: V }\nflows: [{ topic: a }]",
                "kafka: V\nflows: [{ topic: a }]",
                "group: g\nflows: [{ topic: a, ordering: key, retry: { strategy: single, group: V } }]",
            ] {
                assert_hidden(&text.replace('V', &format!("\"{value}\"")));
            }
        }
    }

    #[test]
    fn names_from_the_environment_are_not_shown_where_they_cannot_be_names() {
        assert_hidden("flows: [{ topic: \"${SECRET_SPACED}\" }]");
        assert_hidden("flows: [{ topic: a, dead_letter: { topic: \"${SECRET_SPACED}\" } }]");
        assert_hidden("flows: [{ topic: a, policies: [{ id: \"${SECRET_BRACED}\", on: any }] }]");
        assert_hidden("flows: [{ topic: a, policies: [{ id: \"{${SECRET}\", on: any }] }]");
    }

    #[test]
    fn numbers_from_the_environment_are_not_shown_in_hints() {
        for text in [
            "flows: [{ topic: a, retry: { strategy: single, max_elapsed: V } }]",
            "flows: [{ topic: a, policies: [{ on: { status: V } }] }]",
            "flows: [{ topic: a, default: { in_memory: { backoff: { exponential: { base: 1s, jitter: V } } } } }]",
        ] {
            let loaded = yaml(&text.replace('V', "\"${SECRET_NUMBER}\""));
            assert!(!format!("{:?}", loaded.problems).contains("77"), "{:?}", loaded.problems);
            assert!(loaded.config.is_none());
        }
    }

    #[test]
    fn names_from_the_environment_are_not_shown_where_they_contradict_each_other() {
        for text in [
            "flows: [{ topic: V }, { topic: V }]",
            "state_topic: V\nflows: [{ topic: V }]",
            "group: V\nflows: [{ topic: \"${SECRET}.redrive\" }]",
            "flows: [{ topic: V, retry: { draining: [V] } }]",
            "flows: [{ topic: V, dead_letter: { topic: V } }]",
            "flows: [{ topic: V, retry: { strategy: single, max_overall_attempts: 1 }, default: { delayed: { attempts: 2 } } }]",
            "flows: [{ topic: a, policies: [{ on: { error: \"validation-${SECRET}\" }, in_memory: {} }] }]",
        ] {
            assert_hidden(&text.replace('V', "\"${SECRET}\""));
        }
    }

    #[test]
    fn values_of_keys_that_sound_like_secrets_are_never_shown() {
        for key in
            ["sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret", "ssl.key.pem"]
        {
            let text = format!("kafka:\n  {key}: \"{FROM_ENV}${{\"\nflows: [{{ topic: a }}]");
            assert_hidden(&text);
            assert_hidden(&format!("kafka:\n  {key}: [{FROM_ENV}]\nflows: [{{ topic: a }}]"));
        }
    }

    #[test]
    fn the_user_in_an_address_is_never_shown() {
        for url in [
            "http://me:s3cr3t@host /x",
            "ftp://me:s3cr3t@host/x",
            "https://s3cr3t@",
            "http://me:s3cr3t@:80/",
        ] {
            assert_hidden(&format!(
                "flows: [{{ topic: a, handler: {{ http: {{ url: '{url}' }} }} }}]"
            ));
        }
    }

    #[test]
    fn the_user_in_a_broken_address_is_never_shown() {
        for url in ["http://me:s3cr3t/x@host y", "http:/me:s3cr3t@host", "me:s3cr3t@host"] {
            assert_hidden(&format!(
                "flows: [{{ topic: a, handler: {{ http: {{ url: '{url}' }} }} }}]"
            ));
        }
    }

    #[test]
    fn a_config_can_be_printed_without_its_secrets() {
        let config = valid(&format!(
            "kafka: {{ sasl.password: {FROM_ENV} }}\nflows: [{{ topic: a, handler: {{ http: {{ url: 'http://me:{FROM_ENV}@host' }} }} }}]"
        ));
        assert!(!format!("{config:?}").contains(FROM_ENV));
    }
}

mod advice {
    use super::*;

    #[test]
    fn an_overall_cap_below_a_policys_attempts_is_told() {
        let text = |rest: &str| {
            format!(
                "flows:\n- topic: a\n  retry: {{ strategy: single, max_overall_attempts: 3 }}\n{rest}"
            )
        };
        warned(
            &text("  policies: [{ on: any, delayed: { attempts: 10 } }]"),
            "flows[0].policies[0].delayed.attempts @4:46",
            &["`attempts` is 10", "`max_overall_attempts`", "ends after 3"],
        );
        warned(
            &text("  default: { delayed: { attempts: 10 } }"),
            "flows[0].default.delayed.attempts @4:35",
            &["ends after 3"],
        );
        valid(&text("  policies: [{ on: any, delayed: { attempts: 3 } }]"));
        valid(&text("  policies: [{ on: any, in_memory: { attempts: 9 } }]"));
    }

    #[test]
    fn an_overall_cap_below_the_topics_is_told() {
        warned(
            "flows:\n- topic: a\n  retry: { max_overall_attempts: 1, topics: [{ topic: b, delay: 1s }, { topic: c, delay: 2s }] }",
            "flows[0].retry.max_overall_attempts @3:34",
            &["the topics take 2"],
        );
    }

    #[test]
    fn a_tier_shorter_than_the_one_before_is_told() {
        warned(
            "flows:\n- topic: a\n  retry:\n    topics:\n    - { topic: b, delay: 5m }\n    - { topic: c, delay: 30s }",
            "flows[0].retry.topics[1].delay @6:26",
            &["30s is shorter than the 5m"],
        );
        valid(
            "flows: [{ topic: a, retry: { topics: [{ topic: b, delay: 5s }, { topic: c, delay: 5s }] } }]",
        );
    }

    #[test]
    fn a_rule_that_another_shadows_is_told() {
        for (wide, narrow) in [
            ("{ status: 500..599  }", "{ status: 503 }"),
            ("{ status: 503       }", "{ status: 503 }"),
            ("{ status: 503       }", "{ status: 503, kind: timeout }"),
            ("{ error: Late       }", "{ error: 'shop::Late' }"),
            ("{ kind: [a, b]      }", "{ kind: b }"),
            ("{ header: {name: h} }", "{ header: { name: h, value: v } }"),
        ] {
            let text =
                format!("flows:\n- topic: a\n  policies: [{{ on: {wide} }}, {{ on: {narrow} }}]");
            let column = text.lines().nth(2).unwrap().rfind("{ on: ").unwrap() + 7;
            let at = format!("flows[0].policies[1].on @3:{column}");
            warned(&text, &at, &["never used", "flows[0].policies[0]"]);
        }
    }

    #[test]
    fn a_rule_that_several_others_shadow_together_is_told() {
        warned(
            "flows:\n- topic: a\n  policies:\n  - on: { status: 500..549 }\n  - on: { status: 540..599 }\n  - on: { status: 500..599 }\n",
            "flows[0].policies[2].on @6:9",
            &["never used"],
        );
        valid(
            "flows:\n- topic: a\n  policies:\n  - on: { status: 500..549 }\n  - on: { status: 551..599 }\n  - on: { status: 500..599 }\n",
        );
    }

    #[test]
    fn a_catch_all_shadows_a_second_one_and_the_default() {
        warned(
            "flows:\n- topic: a\n  policies:\n  - on: any\n  - on: { retryable: true }\n",
            "flows[0].policies[1].on @5:9",
            &["never used"],
        );
        warned(
            "flows:\n- topic: a\n  policies:\n  - on: any\n  default: { then: drop }\n",
            "flows[0].default @5:12",
            &["`default` is never used"],
        );
        // The most specific wins, so what comes after a catch-all is reached.
        valid("flows:\n- topic: a\n  policies:\n  - on: any\n  - on: { status: 503 }\n");
        valid(
            "flows:\n- topic: a\n  policies:\n  - on: { retryable: false }\n  default: { then: drop }\n",
        );
    }

    #[test]
    fn rules_that_others_do_not_cover_are_not_told() {
        for (first, second) in [
            ("{ status: 503, kind: timeout }", "{ status: 503 }"),
            ("{ error: 'shop::Late' }", "{ error: Late }"),
            ("{ status: 503, retryable: true }", "{ status: 503 }"),
            ("{ header: { name: h, value: v } }", "{ header: { name: h } }"),
            ("{ kind: a }", "{ kind: [a, b] }"),
            ("{ status: 500 }", "{ status: [500, 501] }"),
        ] {
            valid(&format!(
                "flows: [{{ topic: a, policies: [{{ on: {first} }}, {{ on: {second} }}] }}]"
            ));
        }
    }

    /// "Set Appropriate Timeouts" of the Quafka document: 20 attempts, 10 ms apart.
    #[test]
    fn ten_or_more_runs_in_place_under_50ms_are_told() {
        for (in_memory, is_told) in [
            ("attempts: 20, backoff: { fixed: 10ms }", true),
            ("attempts: 10, backoff: { fixed: 49ms }", true),
            ("attempts: 10, backoff: { fixed: 50ms }", false),
            ("attempts: 9, backoff: { fixed: 10ms }", false),
            ("attempts: 3, backoff: { fixed: 100ms }", false),
            ("attempts: 20, backoff: { linear: { initial: 10ms } }", false),
        ] {
            let text = format!(
                "flows:\n- topic: a\n  policies: [{{ on: any, in_memory: {{ {in_memory} }} }}]"
            );
            if is_told {
                warned(&text, "flows[0].policies[0].in_memory @3:36", &["runs in place", "50ms"]);
            } else {
                valid(&text);
            }
        }
    }

    /// "Delays too short for rate limiting" of the Quafka document.
    #[test]
    fn a_rate_limit_policy_that_never_waits_longer_than_10_seconds_is_told() {
        for (policy, is_told) in [
            (
                "delayed: { attempts: 10, backoff: { exponential_random: { initial: 100ms, max: 1s } } }",
                true,
            ),
            ("delayed: { backoff: { fixed: 10s } }", true),
            ("delayed: { backoff: { fixed: 11s } }", false),
            ("delayed: { attempts: 3, backoff: { exponential: { base: 1s } } }", true),
            ("delayed: { attempts: 20, backoff: { exponential: { base: 1s } } }", false),
            ("in_memory: {}", true),
            ("in_memory: {}, delayed: {}", false),
            ("delayed: {}", false),
            ("then: drop", false),
        ] {
            let text = with_policy(&format!("{{ on: {{ status: 429 }}, {policy} }}"));
            if is_told {
                warned(&text, "flows[0].policies[0] @5:5", &["429", "never waits longer"]);
            } else {
                valid(&text);
            }
        }
    }

    /// "Use Meaningful Policy Identifiers" of the Quafka document.
    #[test]
    fn identifiers_that_say_nothing_are_told() {
        for id in ["retry1", "retry", "policy-2", "Rule_3", "a", "x1", "42", "error"] {
            let text = format!("flows:\n- topic: a\n  policies: [{{ on: any, id: '{id}' }}]");
            warned(&text, "flows[0].policies[0].id @3:29", &[&format!("`{id}`"), "says nothing"]);
        }
        for id in [
            "DatabaseConcurrencyException",
            "RateLimit",
            "ApiError-{status}",
            "{error}",
            "{kind}",
            "Http2",
        ] {
            valid(&format!("flows: [{{ topic: a, policies: [{{ on: any, id: '{id}' }}] }}]"));
        }
    }

    /// "Don't Retry Business Errors" of the Quafka document.
    #[test]
    fn retries_of_what_fails_the_same_way_each_time_are_told() {
        for on in [
            "{ error: ValidationException }",
            "{ error: 'shop::OrderValidationError' }",
            "{ kind: validation }",
            "{ kind: decode }",
            "{ kind: business }",
            "{ kind: [timeout, auth] }",
            "{ status: 404 }",
            "{ status: 400..407 }",
            "[{ status: 503 }, { status: 409 }]",
        ] {
            let text =
                |rest: &str| format!("flows:\n- topic: a\n  policies: [{{ on: {on}{rest} }}]");
            warned(
                &text(", in_memory: {}"),
                "flows[0].policies[0].on @3:20",
                &["the same way each time"],
            );
            valid(&text(", then: drop"));
        }
        for on in [
            "{ status: [408, 425] }",
            "{ status: 500..599 }",
            "{ kind: timeout }",
            "{ status: 400..499, retryable: true }",
        ] {
            let text = with_policy(&format!("{{ on: {on}, in_memory: {{}}, delayed: {{}} }}"));
            valid(&text);
        }
    }

    #[test]
    fn max_elapsed_below_every_delay_is_told() {
        warned(
            "flows:\n- topic: a\n  retry: { max_elapsed: 5s, topics: [{ topic: b, delay: 10s }] }",
            "flows[0].retry.max_elapsed @3:25",
            &["`max_elapsed` is 5s", "10s"],
        );
    }

    #[test]
    fn a_policy_set_is_told_of_once_however_many_flows_use_it() {
        let loaded = yaml(
            "policy_sets: { s: [{ id: retry1, on: any }] }\nflows:\n- { topic: a, policies: [{ use: s }] }\n- { topic: b, policies: [{ use: s }] }\n",
        );
        assert!(loaded.config.is_some());
        assert_eq!(places(&loaded), ["warning policy_sets.s[0].id @1:26"]);
    }

    /// "Real-World Scenarios" of the Quafka document, with caps that leave room.
    #[test]
    fn the_quafka_documents_scenarios_give_no_warning() {
        let loaded = yaml(include_str!("quafka_scenarios.yaml"));
        assert_eq!(warnings(&loaded), Vec::<&redrive::config::Problem>::new());
        assert_eq!(loaded.config.map(|it| it.flows.len()), Some(4));
    }
}
