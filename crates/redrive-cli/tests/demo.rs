//! `redrive demo`, from the outside: what it prints, how it ends, and what it refuses.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a run that cannot be started fails the test"
)]
#![expect(dead_code, reason = "not every test file runs the binary in every way")]

mod common;

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use common::{redrive, run};
use serde_json::Value;

/// What the last line of standard output says.
fn summary(out: &str) -> Value {
    serde_json::from_str(out.lines().last().unwrap_or_default()).unwrap()
}

fn number(summary: &Value, key: &str) -> u64 {
    summary[key].as_u64().unwrap_or_else(|| panic!("no {key}: {summary}"))
}

#[test]
fn nothing_is_lost_and_nothing_early_and_the_summary_says_so() {
    let args = [
        "demo",
        "--plain",
        "--summary",
        "json",
        "--records",
        "120",
        "--speed",
        "5",
        "--seed",
        "11",
    ];
    let ran = run(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert_eq!(ran.out.lines().count(), 1, "all else goes to standard error: {}", ran.out);
    let summary = summary(&ran.out);
    assert_eq!(number(&summary, "produced"), 120);
    let ends = ["handled", "dead_lettered", "dropped"].map(|it| number(&summary, it));
    assert_eq!(ends.iter().sum::<u64>(), 120, "{summary}");
    assert!(ends[0] > 80 && ends[1] > 0, "most work, some never do: {summary}");
    for key in ["lost", "early"] {
        assert_eq!(number(&summary, key), 0, "{summary}");
    }
    // On a machine that is very slow an answer may come too late.
    assert!(number(&summary, "run_twice") < 10, "{summary}");
    let late = ["p50", "p99", "max"].map(|it| summary["late_ms"][it].as_f64().unwrap());
    assert!(late[0] > 0.0 && late.is_sorted(), "{summary}");
    let keys: Vec<_> = summary.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(
        keys,
        [
            "produced",
            "handled",
            "dead_lettered",
            "dropped",
            "lost",
            "early",
            "run_twice",
            "late_ms"
        ]
    );
    for words in [
        "embedded broker at 127.0.0.1:",
        "metrics at http://127.0.0.1:",
        "the service goes down",
        "the service is back",
        "nothing was lost, nothing ran early",
        "stop by stop",
        "try next",
    ] {
        assert!(ran.err.contains(words), "{words}: {}", ran.err);
    }
    assert!(!ran.err.contains('\u{1b}'), "no colours and no redraws: {}", ran.err);
}

#[test]
fn without_failures_every_order_is_handled_at_once() {
    let args = ["demo", "--records", "40", "--failure-rate", "0", "--speed", "20"];
    let ran = run(&args);
    assert_eq!(ran.code, Some(0), "{}", ran.err);
    assert!(ran.out.contains("nothing was lost, nothing ran early"), "{}", ran.out);
    assert!(!ran.out.contains("goes down") && !ran.out.contains('\u{1b}'), "{}", ran.out);
    let handled = ran.out.lines().find(|it| it.trim_start().starts_with("handled ")).unwrap();
    assert!(handled.contains(" 40 "), "{handled}");
}

/// Its metrics are there while it runs, and Ctrl-C ends it with a summary.
#[test]
fn it_can_be_cut_short_and_says_so() {
    let mut child = redrive(&["demo", "--plain", "--summary", "json", "--records", "500"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut metrics = String::new();
    for line in lines.by_ref() {
        let line = line.unwrap();
        if let Some((_, url)) = line.split_once("metrics at http://") {
            metrics = url.to_owned();
        }
        // Some records have come to their end, and many have not.
        if line.contains(" produced, ") && !line.contains(" 0 handled") {
            break;
        }
    }
    let (address, path) = metrics.split_once('/').unwrap();
    let page = page(address, path);
    assert!(page.contains("redrive_") && page.contains("orders"), "{page}");
    let told = Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(told.success());
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    let mut out = String::new();
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{rest:#?}");
    assert!(rest.iter().any(|it| it.contains("cut short")), "{rest:#?}");
    let summary = summary(&out);
    let [produced, unfinished, lost, early] =
        ["produced", "unfinished", "lost", "early"].map(|it| number(&summary, it));
    assert!(produced > 0 && produced < 500, "{summary}");
    let ends = ["handled", "dead_lettered", "dropped"].map(|it| number(&summary, it));
    assert_eq!(ends.iter().sum::<u64>() + unfinished, produced, "{summary}");
    assert_eq!((lost, early), (0, 0), "{summary}");
}

fn page(address: &str, path: &str) -> String {
    use std::io::Write;
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    write!(stream, "GET /{path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    page
}

#[test]
fn values_that_cannot_be_are_refused_with_the_rule() {
    let known: [(&[&str], &str); 10] = [
        (&["--records", "0"], "at least 1"),
        (&["--records", "100001"], "--kafka HOST:PORT"),
        (&["--records", "many"], "invalid digit"),
        (&["--records", "1000001", "--kafka", "127.0.0.1:1"], "1000000"),
        (&["--failure-rate", "1.5"], "from 0 to 1"),
        (&["--failure-rate", "often"], "25%"),
        (&["--speed", "0"], "from 0.1 to 20"),
        (&["--speed", "-1"], "from 0.1 to 20"),
        (&["--kafka", "localhost"], "localhost:9092"),
        (&["--keep-topics"], "--kafka"),
    ];
    for (args, words) in known {
        let all: Vec<_> = ["demo"].iter().chain(args).copied().collect();
        let ran = run(&all);
        assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
        assert!(ran.err.contains(words), "{args:?}: {}", ran.err);
        assert!(ran.out.is_empty(), "{args:?}: {}", ran.out);
    }
}

#[test]
fn a_broker_that_is_not_there_is_told() {
    let ran = run(&["demo", "--plain", "--kafka", "127.0.0.1:1"]);
    assert_eq!(ran.code, Some(3), "{}", ran.err);
    assert!(ran.err.contains("127.0.0.1:1"), "{}", ran.err);
}
