//! `redrive demo` on Apache Kafka: what it says of itself is compared with what is in the topics.

use std::collections::BTreeSet;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use redrive_suite::broker::{Broker, Found};
use redrive_suite::foreign::python;
use redrive_suite::trial::until;
use serde_json::Value;

use crate::stand::binaries;

const RECORDS: usize = 150;

fn demo(broker: &Broker, more: &[&str]) -> Result<(Output, Value, String)> {
    let records = RECORDS.to_string();
    let output = Command::new(binaries()?.join("redrive"))
        .args(["demo", "--plain", "--summary", "json", "--records", &records, "--speed", "4"])
        .args(["--kafka", &broker.address])
        .args(more)
        .stdin(Stdio::null())
        .output()?;
    let out = String::from_utf8(output.stdout.clone())?;
    let err = String::from_utf8(output.stderr.clone())?;
    let last = out.lines().last().with_context(|| format!("nothing on standard output: {err}"))?;
    let summary = serde_json::from_str(last)?;
    Ok((output, summary, err))
}

/// The source topic that it says it has made.
fn topic(told: &str) -> Result<String> {
    let words = told.split_whitespace().find(|it| it.starts_with("redrive-demo-"));
    Ok(words.with_context(|| format!("no topic in: {told}"))?.trim_end_matches('*').to_owned())
}

fn origin(found: &Found) -> Option<(i32, i64)> {
    let number = |name: &str| found.header(name)?.parse::<i64>().ok();
    let partition = number("redrive-origin-partition")?.try_into().ok()?;
    Some((partition, number("redrive-origin-offset")?))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_demo_says_is_what_is_in_the_topics() -> Result<()> {
    let broker = Broker::from_env()?;
    let (output, summary, told) = demo(&broker, &["--seed", "3", "--keep-topics"])?;
    assert_eq!(output.status.code(), Some(0), "{told}");
    let number = |key: &str| summary[key].as_u64().and_then(|it| usize::try_from(it).ok());
    let source = topic(&told)?;
    assert!(told.contains(&format!("the topics {source}* are left")), "{told}");

    let produced = broker.read(&source)?;
    assert_eq!(produced.len(), RECORDS);
    assert_eq!(number("produced"), Some(RECORDS));
    let letters = broker.read(&format!("{source}.dlt"))?;
    let dead: BTreeSet<_> = letters.iter().filter_map(origin).collect();
    assert_eq!(dead.len(), letters.len(), "each with its origin, each once");
    assert!(!dead.is_empty() && number("dead_lettered") == Some(dead.len()), "{summary}");
    for letter in &letters {
        let place = origin(letter);
        let same = produced.iter().find(|it| Some((it.partition, it.offset)) == place);
        let same = same.context("a dead letter of nothing")?;
        assert_eq!((&letter.key, &letter.value), (&same.key, &same.value));
    }
    let handled = number("handled").context("no `handled`")?;
    assert_eq!(handled + dead.len() + number("dropped").unwrap_or(0), RECORDS, "{summary}");
    for key in ["lost", "early"] {
        assert_eq!(number(key), Some(0), "{summary}");
    }
    let mut copies = 0;
    for tier in 1..=3 {
        for copy in broker.read(&format!("{source}.retry.{tier}"))? {
            ensure!(copy.header("redrive-due").is_some(), "a copy without a due time");
            copies += 1;
        }
    }
    assert!(copies >= RECORDS / 5, "a quarter of {RECORDS} is retried, but there are {copies}");

    let ours: Vec<_> = broker.topics()?.into_iter().filter(|it| it.starts_with(&source)).collect();
    for topic in &ours {
        broker.delete_topic(topic).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_takes_its_topics_away_again() -> Result<()> {
    let broker = Broker::from_env()?;
    let (output, summary, told) = demo(&broker, &["--seed", "4", "--failure-rate", "10%"])?;
    assert_eq!(output.status.code(), Some(0), "{told}");
    assert_eq!(summary["lost"], 0, "{summary}");
    let source = topic(&told)?;
    assert!(told.contains("are deleted again"), "{told}");
    until("the topics are gone", || {
        broker.topics().is_ok_and(|all| !all.iter().any(|it| it.starts_with(&source)))
    })
    .await
}

/// A terminal that is made smaller and larger meanwhile, and then Ctrl-C.
#[test]
fn the_terminal_is_given_back_as_it_was() -> Result<()> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/service/terminal.py");
    let output = Command::new(python()).arg(script).arg(binaries()?.join("redrive")).output()?;
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}{err}");
    let (taken, given_back) = ("\u{1b}[?1049h", "\u{1b}[?1049l");
    let screen = out.split_once(taken).context("no screen of its own")?.1;
    let (screen, after) = screen.split_once(given_back).context("the screen stays")?;
    assert!(screen.contains("flaky") && screen.contains('●'), "{screen:?}");
    assert!(after.contains("\u{1b}[?25h"), "the cursor stays hidden: {after:?}");
    assert!(after.contains("cut short") && after.contains("nothing was lost"), "{after:?}");
    assert!(out.trim_end().ends_with("as before"), "{out:?}");
    Ok(())
}
