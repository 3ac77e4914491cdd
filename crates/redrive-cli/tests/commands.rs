//! The commands as a shell sees them: exit codes, standard output and standard error.

#![expect(clippy::unwrap_used, reason = "a run that cannot be started fails the test")]

mod common;

use std::process::Stdio;

use common::{Ran, redrive, run, run_with};
use serde_json::Value;

const SAMPLE: &str = "examples/orders.yaml";
const TWO_FLOWS: &str = "flows: [{ topic: orders }, { topic: refunds }]";

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.out).unwrap()
}

/// The topics that a plan publishes to, in order, and its end.
fn stops(args: &[&str]) -> Vec<String> {
    let ran = run(&[args, &["--format", "json"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    let plan = json(&ran);
    let steps = plan["steps"].as_array().unwrap();
    let stop =
        |step: &Value| step["to"].as_str().unwrap_or(step["then"].as_str().unwrap()).to_owned();
    steps.iter().map(stop).collect()
}

mod exit_codes {
    use super::*;

    #[test]
    fn a_valid_config_is_0_also_with_warnings() {
        let ran = run(&["check", "-c", SAMPLE]);
        assert_eq!(ran.code, Some(0));
        assert!(ran.out.contains("warning") && ran.out.contains("is valid"), "{}", ran.out);
        assert_eq!(run(&["plan", "-c", SAMPLE]).code, Some(0));
    }

    #[test]
    fn a_config_with_problems_is_1_for_every_command() {
        assert_eq!(run(&["check", "-c", "examples/broken.yaml"]).code, Some(1));
        let planned = run(&["plan", "-c", "examples/broken.yaml", "--format", "json"]);
        assert_eq!((planned.code, planned.out.as_str()), (Some(1), ""));
        assert!(planned.err.contains("did you mean `group`?"));
        for command in ["plan", "apply"] {
            let ran = run(&["topics", command, "-c", "examples/broken.yaml"]);
            assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
            let ran = run_with(&["topics", command, "-c", "-"], "flows: [{ topic: a }]");
            assert_eq!((ran.code, ran.out.as_str()), (Some(1), ""), "{}", ran.err);
            assert!(ran.err.contains("bootstrap.servers"), "{}", ran.err);
        }
        let input = r#"{ "RetryPolicy": { "RetryTopics": [] } }"#;
        assert_eq!(run_with(&["convert", "-", "--topic", "orders"], input).code, Some(1));
    }

    #[test]
    fn a_config_that_is_no_yaml_is_1_with_its_place() {
        let ran = run_with(&["check", "-c", "-", "--format", "json"], "flows: [\n  { topic: a\n");
        assert_eq!(ran.code, Some(1));
        assert_eq!(json(&ran)["valid"], false);
        assert!(json(&ran)["problems"][0]["line"].as_u64().unwrap() >= 2);
    }

    #[test]
    fn wrong_use_is_2() {
        for args in [
            &["check", "-c", "no/such/file.yaml"][..],
            &["check", "-c", "examples"],
            &["check", "-c", SAMPLE, "--topic", "banana"],
            &["check", "-c", SAMPLE, "--format", "xml"],
            &["check", "-c", "examples/appsettings.json"],
            &["check", "-c", "examples/appsettings.json", "--topic", "a b"],
            &["plan", "-c", SAMPLE, "--topic", "banana"],
            &["plan", "-c", SAMPLE, "--failure", "503"],
            &["plan", "-c", SAMPLE, "--failure", "status=5xx"],
            &["plan", "-c", SAMPLE, "--failure", "code=503"],
            &["plan", "-c", SAMPLE, "--header", "novalue"],
            &["plan", "-c", "examples/appsettings.json"],
            &["convert", "examples/appsettings.json"],
            &["convert", "examples/appsettings.json", "--topic", "orders", "--group", " "],
            &["convert", SAMPLE, "--topic", "orders"],
            &["topics"],
            &["topics", "plan", "-c", "no/such/file.yaml"],
            &["topics", "plan", "-c", SAMPLE, "--timeout", "5"],
            &["topics", "apply", "-c", SAMPLE, "--create-sources", "0"],
            &["completions", "tcsh"],
            &["banana"],
            &[],
        ] {
            let ran = run(args);
            assert_eq!(ran.code, Some(2), "{args:?}: {}{}", ran.out, ran.err);
            assert_eq!(ran.out, "", "{args:?}");
            assert!(!ran.err.is_empty(), "{args:?}");
        }
        let ran = run_with(&["plan", "-c", "-"], TWO_FLOWS);
        assert_eq!(ran.code, Some(2));
        assert!(ran.err.contains("--topic") && ran.err.contains("orders, refunds"), "{}", ran.err);
    }

    #[test]
    fn bytes_that_are_no_text_are_2() {
        let path = std::env::temp_dir().join(format!("redrive-bytes-{}.yaml", std::process::id()));
        std::fs::write(&path, b"flows: [{ topic: \xff }]").unwrap();
        let ran = run(&["check", "-c", path.to_str().unwrap()]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(ran.code, Some(2));
        assert!(ran.err.contains("not UTF-8"), "{}", ran.err);
    }

    #[test]
    fn a_file_that_is_too_long_is_1() {
        let ran = run_with(&["check", "-c", "-"], &format!("# {}\n", "ю".repeat(1 << 20)));
        assert_eq!(ran.code, Some(1));
        assert!(ran.out.contains("1 MiB"), "{}", ran.out);
    }
}

mod check {
    use super::*;

    #[test]
    fn json_has_the_documented_keys_and_no_others() {
        let ran = run(&["check", "-c", "examples/broken.yaml", "--format", "json"]);
        let report = json(&ran);
        assert_eq!(report.as_object().unwrap().keys().collect::<Vec<_>>(), ["valid", "problems"]);
        for problem in report["problems"].as_array().unwrap() {
            let keys: Vec<_> = problem.as_object().unwrap().keys().collect();
            assert_eq!(keys, ["severity", "path", "message", "hint", "line", "column"]);
        }
        let delay = &report["problems"][1];
        assert_eq!(delay["path"], "flows[0].retry.topics[0].delay");
        assert_eq!((delay["severity"].as_str(), delay["line"].as_u64()), (Some("error"), Some(6)));
    }

    #[test]
    fn several_flows_are_checked_together() {
        let ran = run_with(&["check", "-c", "-"], TWO_FLOWS);
        assert_eq!(ran.code, Some(0));
        assert!(
            ran.out.contains("2 flows") && ran.out.contains("refunds → refunds.dlt"),
            "{}",
            ran.out
        );
    }

    #[test]
    fn the_config_may_be_named_by_the_environment() {
        let ran: Ran = redrive(&["check"]).env("REDRIVE_CONFIG", SAMPLE).output().unwrap().into();
        assert_eq!(ran.code, Some(0));
        let ran = run(&["check"]);
        assert_eq!(ran.code, Some(2));
        assert!(ran.err.contains("redrive.yaml"), "{}", ran.err);
    }

    #[test]
    fn values_of_the_environment_are_never_printed() {
        let config = "kafka: { bootstrap.servers: a, sasl.password: \"${PW}\" }\ngroup: [\"${PW}\"]\n\
                      flows: [{ topic: \"${PW}\", concurrency: \"${PW}\", handler: { http: { url: \"${PW}\" } } }]";
        for format in ["text", "json"] {
            let mut command = redrive(&["check", "-c", "-", "--format", format]);
            command.env("PW", "hunter2 is secret").stdin(Stdio::piped());
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            std::io::Write::write_all(&mut child.stdin.take().unwrap(), config.as_bytes()).unwrap();
            let ran: Ran = child.wait_with_output().unwrap().into();
            assert_eq!(ran.code, Some(1));
            assert!(!ran.out.contains("hunter2") && !ran.err.contains("hunter2"), "{}", ran.out);
        }
    }
}

mod plan {
    use super::*;

    #[test]
    fn the_sample_goes_where_it_should() {
        let plan = |failure: &str| stops(&["plan", "-c", SAMPLE, "--failure", failure]);
        let (s30, m5, h1, end) =
            ("orders.retry.30s", "orders.retry.5m", "orders.retry.1h", "orders.dlt");
        assert_eq!(plan("status=429"), [m5, m5, m5, h1, h1, h1, end]);
        assert_eq!(plan("status=503"), [s30, s30, m5, m5, m5, h1, end]);
        assert_eq!(plan("kind=timeout"), [s30, s30, s30, m5, m5, end]);
        assert_eq!(plan("status=404"), [end]);
    }

    #[test]
    fn a_step_has_the_documented_keys_and_values() {
        let ran = run(&["plan", "-c", SAMPLE, "--failure", "kind=timeout", "--format", "json"]);
        let plan = json(&ran);
        let span = |millis: u64| serde_json::json!({ "min": millis, "max": millis });
        assert_eq!(
            plan["steps"][0],
            serde_json::json!({
                "step": 1, "from": "orders", "policy": "Slow", "runs": 1, "then": "publish",
                "to": "orders.retry.30s", "attempt_in_tier": 1, "policy_attempt": 1,
                "overall_attempt": 1, "delay_ms": span(30_000), "elapsed_ms": span(30_000),
            })
        );
        assert_eq!(
            plan["steps"][5],
            serde_json::json!({
                "step": 6, "from": "orders.retry.5m", "policy": "Slow", "runs": 1,
                "then": "dead_letter", "to": "orders.dlt", "attempt_in_tier": null,
                "policy_attempt": 5, "overall_attempt": 5, "delay_ms": span(0),
                "elapsed_ms": span(690_000),
            })
        );
        let keys: Vec<_> = plan.as_object().unwrap().keys().collect();
        assert_eq!(keys, ["flow", "policy", "steps"]);
    }

    #[test]
    fn a_failure_whose_class_decides_has_no_policy() {
        let config = "flows: [{ topic: orders }]";
        let ran = run_with(
            &["plan", "-c", "-", "--failure", "kind=validation", "--format", "json"],
            config,
        );
        let plan = json(&ran);
        assert_eq!((&plan["policy"], &plan["steps"][0]["policy"]), (&Value::Null, &Value::Null));
        assert_eq!(plan["steps"][0]["to"], "orders.dlt");
    }

    #[test]
    fn a_header_of_the_record_can_choose_the_policy() {
        let config = "flows: [{ topic: orders, policies: [\
            { id: Sync, on: { header: { name: x-kind, value: sync } }, then: drop }] }]";
        let policy = |header: &str| {
            let args = ["plan", "-c", "-", "--header", header, "--format", "json"];
            json(&run_with(&args, config))["policy"].clone()
        };
        assert_eq!(policy("x-kind=sync"), "Sync");
        assert_eq!(policy("x-kind=async"), "default");
    }

    #[test]
    fn any_and_retryable_match_the_failure_that_nothing_names() {
        for on in ["any", "{ retryable: true }"] {
            let config = format!("flows: [{{ topic: t, policies: [{{ id: All, on: {on} }}] }}]");
            let ran = run_with(&["plan", "-c", "-", "--format", "json"], &config);
            assert_eq!(json(&ran)["policy"], "All", "{on}");
        }
    }

    #[test]
    fn a_long_plan_is_folded_for_people_and_whole_for_programs() {
        let config =
            "flows: [{ topic: t, retry: { strategy: single, max_overall_attempts: 500 } }]";
        let text = run_with(&["plan", "-c", "-"], config).out;
        assert!(text.contains("more steps like these") && text.lines().count() < 60, "{text}");
        let mermaid = run_with(&["plan", "-c", "-", "--format", "mermaid"], config).out;
        assert!(mermaid.contains("more steps") && mermaid.lines().count() < 140);
        let whole = json(&run_with(&["plan", "-c", "-", "--format", "json"], config));
        assert_eq!(whole["steps"].as_array().unwrap().len(), 501);
    }

    #[test]
    fn the_longest_waits_there_are_do_not_overflow() {
        let config = "flows: [{ topic: t, retry: { topics: \
            [{ topic: r, delay: 365000d, attempts: 10000 }], retry_after_max: 365000d } }]";
        let ran = run_with(&["plan", "-c", "-", "--format", "json"], config);
        assert_eq!(ran.code, Some(0), "{}", ran.err);
        let plan = json(&ran);
        let steps = plan["steps"].as_array().unwrap();
        assert_eq!(steps.len(), 10_001);
        let elapsed = steps[10_000]["elapsed_ms"]["max"].as_u64().unwrap();
        assert_eq!(elapsed, 300 + 10_000 * 365_000 * 86_400_000);
    }

    #[test]
    fn nothing_but_a_terminal_gets_colours() {
        for format in ["text", "mermaid", "json"] {
            let ran = run(&["plan", "-c", SAMPLE, "--format", format]);
            assert!(!ran.out.contains('\x1b') && !ran.err.contains('\x1b'));
        }
    }

    #[test]
    fn a_reader_that_goes_away_is_no_error() {
        let mut child = redrive(&["plan", "-c", SAMPLE, "--format", "json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

mod convert {
    use super::*;

    #[test]
    fn what_is_converted_plans_the_same() {
        let files = [
            r#"{ "Kafka": { "RetryConfiguration": {} } }"#,
            r#"{ "RetryPolicy": { "Delay": 2000, "RetryAttempts": 3 } }"#,
            r#"{ "RetryTopics": [ { "TopicName": "r", "Delay": "00:00:05", "RetryAttempts": 5 } ] }"#,
        ];
        for file in files {
            let args = ["plan", "-c", "-", "--topic", "orders", "--format", "json"];
            let before = run_with(&args, file).out;
            let yaml = run_with(&["convert", "-", "--topic", "orders"], file).out;
            assert!(yaml.contains("change this one to yours"), "{yaml}");
            let after = run_with(&args, &yaml).out;
            assert!(!before.is_empty());
            assert_eq!(before, after, "{yaml}");
        }
    }

    #[test]
    fn notes_go_to_standard_error() {
        let file = r#"{ "Logging": {}, "RetryPolicy": { "Delay": 1, "RetryAttempts": 1 } }"#;
        let ran = run_with(&["convert", "-", "--topic", "orders", "--group", "billing"], file);
        assert!(ran.err.contains("`Logging`") && !ran.out.contains("Logging"), "{}", ran.err);
        assert!(ran.out.contains("group: billing") && !ran.out.contains("change"), "{}", ran.out);
    }
}
