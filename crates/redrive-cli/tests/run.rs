//! `redrive run`, as far as it goes without a broker. The rest is in redrive-suite.

#![expect(clippy::unwrap_used, reason = "a run that cannot be started fails the test")]

mod common;

use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::{redrive, run, run_with};

/// A config that could be run, if there were a broker.
const WHOLE: &str = "kafka: { bootstrap.servers: '127.0.0.1:1' }\ngroup: g\nflows:\n- topic: a\n  handler: { http: { url: 'http://127.0.0.1:1/' } }\n";

#[test]
fn a_config_that_is_not_there_or_is_wrong_is_told_before_anything_else() {
    let ran = run(&["run", "-c", "no-such-file.yaml"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("cannot read no-such-file.yaml"), "{}", ran.err);
    let ran = run(&["run", "-c", "examples/broken.yaml"]);
    assert_eq!(ran.code, Some(1));
    assert!(ran.err.contains("did you mean `group`?"), "{}", ran.err);
    assert!(ran.out.is_empty());
}

#[test]
fn all_that_is_needed_to_run_is_told_at_once() {
    let ran = run_with(&["run", "-c", "-"], "flows: [{ topic: a }, { topic: b }]");
    assert_eq!(ran.code, Some(1));
    for words in ["`kafka`", "`group`", "the `handler` of 2 flows"] {
        assert!(ran.err.contains(words), "{}", ran.err);
    }
}

#[test]
fn settings_of_another_library_are_to_be_converted_first() {
    let ran = run(&["run", "-c", "examples/appsettings.json"]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.err.contains("redrive convert"), "{}", ran.err);
}

#[test]
fn files_of_certificates_that_cannot_be_read_are_problems_of_the_config() {
    let config =
        WHOLE.replace("http: { url: 'http:", "http: { tls: { ca: none.pem }, url: 'https:");
    let two =
        config.clone() + &config[config.find("- topic").unwrap()..].replace("topic: a", "topic: b");
    let ran = run_with(&["run", "-c", "-"], &two);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    for words in [
        "flows[0].handler.http.tls.ca",
        "flows[1].handler.http.tls.ca",
        "none.pem cannot be read",
        "→ give a file",
    ] {
        assert!(ran.err.contains(words), "{}", ran.err);
    }
}

#[test]
fn what_would_break_the_order_is_told() {
    let config =
        WHOLE.replace("topic: a\n", "topic: a\n  ordering: key\n  retry: { strategy: single }\n");
    for role in ["main", "retry"] {
        let ran = run_with(&["run", "--role", role, "-c", "-"], &config);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        assert!(ran.err.contains("ordering: key"), "{}", ran.err);
    }
}

#[test]
fn what_the_embedded_broker_cannot_do_is_told() {
    let config = format!("exactly_once: true\n{WHOLE}");
    let ran = run_with(&["run", "--embedded", "-c", "-"], &config);
    assert_eq!(ran.code, Some(1), "{}", ran.err);
    assert!(ran.err.contains("`exactly_once: true`"), "{}", ran.err);
    let config = WHOLE.replace("{ bootstrap.servers: '127.0.0.1:1' }", "embedded");
    for command in ["plan", "apply"] {
        let ran = run_with(&["topics", command, "-c", "-"], &config);
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(ran.err.contains("makes all topics when a consumer starts"), "{}", ran.err);
    }
}

#[test]
fn a_broker_is_told_to_make_only_topics_that_there_can_be() {
    for (arguments, code, words) in [
        (&["--topic", "a b"][..], 2, "characters that Kafka does not allow"),
        (&["--topic", "a", "--topic", "a:2"], 2, "the topic a is there already"),
        (&["--topic", "a:0"], 2, "from 1 to 10,000"),
        (&["--topic", "a:many"], 2, "like `orders:6`"),
        (&["--port", "70000"], 2, "70000"),
        (&["--config", "no-such-file.yaml"], 2, "cannot read no-such-file.yaml"),
        (&["--config", "examples/broken.yaml"], 1, "did you mean `group`?"),
    ] {
        let arguments: Vec<_> =
            std::iter::once("broker").chain(arguments.iter().copied()).collect();
        let ran = run(&arguments);
        assert_eq!(ran.code, Some(code), "{arguments:?}: {}", ran.err);
        assert!(ran.err.contains(words), "{arguments:?}: {}", ran.err);
        assert!(ran.out.is_empty());
    }
}

/// It waits for brokers that are away, says so, and can be told to stop meanwhile.
#[test]
fn brokers_that_are_away_are_waited_for_until_it_is_told_to_stop() {
    for signal in ["-TERM", "-INT"] {
        let mut child = redrive(&["run", "-c", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(WHOLE.as_bytes()).unwrap();
        let mut errors = child.stderr.take().unwrap();
        let mut log = Vec::new();
        while !String::from_utf8_lossy(&log).contains("refused") {
            let mut part = [0; 4096];
            let size = errors.read(&mut part).unwrap();
            assert_ne!(size, 0, "it ended: {}", String::from_utf8_lossy(&log));
            log.extend_from_slice(&part[..size]);
        }
        let told = Command::new("kill").args([signal, &child.id().to_string()]).status();
        assert!(told.unwrap().success());
        // Somebody must read what it still has to say.
        let rest = std::thread::spawn(move || {
            let mut rest = String::new();
            errors.read_to_string(&mut rest).unwrap();
            rest
        });
        let limit = Instant::now() + Duration::from_secs(20);
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            if Instant::now() > limit {
                child.kill().unwrap();
                panic!("it does not end: {}", rest.join().unwrap());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(0), "{}", rest.join().unwrap());
    }
}
