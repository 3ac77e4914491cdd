//! `redrive run` in front of a flaky service in another language, on Apache Kafka.

#![expect(clippy::unwrap_used, clippy::panic, reason = "what tests share is part of them")]

mod demo;
mod entities;
mod stand;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Result, ensure};
use redrive_suite::broker::{Broker, Sent};
use redrive_suite::own::OwnBroker;
use redrive_suite::trial::{Trial, until};
use serde_json::{Value, json};

use stand::{Entry, Redrive, Shown, Stand, letters};

/// How late a busy machine may be.
const LATE: i64 = 2500;

fn status(status: u16) -> Value {
    json!({ "status": status })
}

/// How long after the answer before it each delivery came, with the topic that it was read from.
fn hops(entries: &[Entry]) -> Vec<(String, i64)> {
    let pairs = entries.iter().zip(entries.iter().skip(1));
    let hops = pairs.filter(|(last, next)| last.attempts() != next.attempts());
    hops.map(|(last, next)| (next.header("redrive-topic").unwrap().to_owned(), next.came - last.at))
        .collect()
}

fn assert_on_time(name: &str, hops: &[(String, i64)], expected: &[(&str, i64)]) {
    println!("{name}: {hops:?}");
    assert_eq!(hops.len(), expected.len(), "{name}: {hops:?}");
    for ((topic, waited), (tier, delay)) in hops.iter().zip(expected) {
        assert!(topic.ends_with(tier), "{name}: {topic} is not {tier}");
        assert!(waited >= delay, "{name}: {waited} ms in {topic}, which is early");
        assert!(*waited < delay + LATE, "{name}: {waited} ms in {topic}, which is late");
    }
}

/// The config of the first issue, with short delays: one record for each way through it.
#[tokio::test(flavor = "multi_thread")]
async fn every_failure_takes_the_way_that_the_config_says() -> Result<()> {
    let trial = Trial::new("orders", 3).await?;
    let stand = Stand::new(&trial)?;
    let limited = json!({ "status": 429, "headers": { "retry-after": "3" } });
    let dated = json!({ "status": 503, "date": 4 });
    let slow = json!({ "status": 200, "wait": 4 });
    let asking = |action: &str, status: u16| json!({ "status": status, "headers": { "redrive-action": action }, "body": "because" });
    let records = [
        ("fine", json!([status(200)])),
        // No rule names a redirect, so that the default walks through all topics.
        ("walks", json!([{ "status": 302, "body": "elsewhere" }])),
        ("limited", json!([limited, status(200)])),
        ("dated", json!([dated, status(204)])),
        ("refused", json!([{ "status": 422, "body": "no such \u{e4}rticle" }])),
        ("slow", json!([slow, slow, status(200)])),
        ("in place", json!([status(500), status(200)])),
        ("asks for a letter", json!([asking("dead_letter", 200)])),
        ("asks for nothing", json!([asking("drop", 500)])),
        ("asks for a retry", json!([asking("retry", 400), status(200)])),
    ];
    for (name, answers) in &records {
        stand.produce(name, answers)?;
    }
    let redrive = stand.run(&stand.config("/orders")?)?;
    let ends = ["fine", "limited", "dated", "slow", "in place", "asks for a retry"];
    until("all others are done", || {
        let ledger = stand.ledger();
        let is_done =
            |name: &&str| ledger.iter().any(|it| it.name() == *name && it.status / 100 == 2);
        ends.iter().all(is_done)
    })
    .await?;
    trial.letters(3).await?;
    redrive.stop()?;

    let ledger = stand.ledger();
    let of = |name: &str| -> Vec<Entry> {
        ledger.iter().filter(|it| it.name() == name).cloned().collect()
    };
    let walked = of("walks");
    let tiers =
        [("30s", 1000), ("30s", 1000), ("30s", 1000), ("5m", 2000), ("5m", 2000), ("1h", 4000)];
    assert_on_time("walks", &hops(&walked), &tiers);
    // Three more runs in place at the first delivery, and one run at each other.
    assert_eq!(walked.len(), 4 + 6);
    assert_on_time("limited", &hops(&of("limited")), &[("1h", 3000)]);
    // A date has whole seconds: the fourth may have begun when it was said.
    assert_on_time("dated", &hops(&of("dated")), &[("1h", 3000)]);
    assert_eq!(of("dated").len(), 2, "a wait as long as that is not for runs in place");
    assert_eq!(of("refused").len(), 1);
    assert_eq!(of("asks for nothing").len(), 1);
    assert_eq!(of("asks for a retry").last().unwrap().status, 200);
    let slow: BTreeSet<_> =
        of("slow").iter().filter_map(|it| it.header("redrive-policy").map(str::to_owned)).collect();
    assert_eq!(slow, BTreeSet::from(["Slow".to_owned()]));

    // What a record is known by stays the same, and is nobody else's.
    let mut keys = BTreeMap::new();
    for entry in &ledger {
        let key = entry.header("idempotency-key").unwrap().to_owned();
        assert_eq!(keys.entry(key).or_insert_with(|| entry.name()), &entry.name());
    }
    assert_eq!(keys.len(), records.len());
    for (index, entry) in walked.iter().enumerate() {
        let is_last = entry.header("redrive-last-attempt") == Some("true");
        assert_eq!(is_last, index == walked.len() - 1, "{index}: {entry:?}");
        let delivery: u32 = entry.header("redrive-delivery").unwrap().parse()?;
        assert_eq!(delivery, entry.attempts() + 1);
    }

    let letters = letters(&trial)?;
    let found = |name: &str| letters.iter().find(|it| it.name == name).unwrap();
    assert_eq!(letters.len(), 3);
    for (name, reason, status, response) in [
        ("walks", "attempts", "302", "elsewhere"),
        ("refused", "policy", "422", "no such ärticle"),
        ("asks for a letter", "handler", "200", "because"),
    ] {
        let letter = found(name);
        assert_eq!(letter.header("redrive-reason"), Some(reason), "{name}");
        assert_eq!(letter.header("redrive-status"), Some(status), "{name}");
        assert_eq!(letter.header("redrive-response"), Some(response), "{name}");
        assert_eq!(letter.header("redrive-origin-topic"), Some(trial.topic.as_str()), "{name}");
    }
    assert_eq!(found("walks").header("redrive-overall-attempts"), Some("6"));
    assert_eq!(found("refused").header("redrive-policy"), Some("ClientError"));
    Ok(())
}

/// Records of all sorts, and how they are to end: true for a dead letter.
fn mixed(stand: &Stand<'_>, count: usize) -> Result<BTreeMap<String, bool>> {
    let mut ends = BTreeMap::new();
    let mut records = Vec::new();
    for id in 0..count {
        let (answers, is_dead) = match id % 10 {
            0 => (json!([status(400)]), true),
            1 => {
                (json!([{ "status": 429, "headers": { "retry-after": "1" } }, status(200)]), false)
            }
            2 | 3 => (json!([status(302), status(302), status(200)]), false),
            4 => (json!([status(503), status(200)]), false),
            _ => (json!([{ "status": 200, "wait": 0.01 }]), false),
        };
        let name = format!("record {id}");
        ends.insert(name.clone(), is_dead);
        records.push((name, answers));
    }
    stand.produce_all(&records)?;
    Ok(ends)
}

/// Waits until every record has ended as it should.
async fn all_end(stand: &Stand<'_>, ends: &BTreeMap<String, bool>) -> Result<()> {
    let done = || -> BTreeSet<String> {
        let ledger = stand.ledger();
        ledger.iter().filter(|it| it.status == 200).map(Entry::name).collect()
    };
    let alive = || ends.iter().filter(|it| !it.1);
    let wanted: BTreeSet<_> = alive().map(|it| it.0.clone()).collect();
    until("all records that can be helped are done", || done() == wanted).await?;
    let dead: BTreeSet<_> = ends.iter().filter(|it| *it.1).map(|it| it.0.clone()).collect();
    stand.trial.letters(dead.len()).await?;
    let letters = letters(stand.trial)?;
    let names: BTreeSet<_> = letters.iter().map(|it| it.name.clone()).collect();
    assert_eq!(names, dead);
    assert!(letters.iter().all(|it| it.header("redrive-reason") == Some("policy")));
    stand.never_early();
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_redrive_is_killed() -> Result<()> {
    const RECORDS: usize = 400;
    let trial = Trial::new("killed", 3).await?;
    let stand = Stand::new(&trial)?;
    // A fast machine does half of them in a second.
    let config = format!("{}\ncommit_interval: 50ms\n", stand.config("/orders")?);
    let ends = mixed(&stand, RECORDS)?;
    for part in 1..=2 {
        let redrive = stand.run(&config)?;
        until("a part of them came", || stand.ledger().len() >= part * RECORDS / 2).await?;
        redrive.kill()?;
    }
    let redrive = stand.run(&config)?;
    all_end(&stand, &ends).await?;
    redrive.stop()?;
    // What had ended before a kill, and was told to Kafka, does not run again: only what was under way does.
    let mut done: BTreeMap<String, usize> = BTreeMap::new();
    for entry in stand.ledger().iter().filter(|it| it.status == 200) {
        *done.entry(entry.name()).or_default() += 1;
    }
    let again = done.values().filter(|it| **it > 1).count();
    ensure!(again < RECORDS / 2, "{again} records were done more than once");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_gone_for_a_while_costs_nothing_but_time() -> Result<()> {
    let own = tokio::task::spawn_blocking(|| OwnBroker::start(&[])).await??;
    let trial = Trial::on(own.broker()?, "outage", 3).await?;
    let stand = Stand::new(&trial)?;
    let ends = mixed(&stand, 300)?;
    let redrive = stand.run(&stand.config("/orders")?)?;
    until("a part of them came", || stand.ledger().len() >= 100).await?;
    let own = tokio::task::spawn_blocking(move || -> Result<_> {
        own.kill()?;
        // The outage itself: 20 s, as long as a broker may take to be replaced.
        std::thread::sleep(Duration::from_secs(20));
        own.restart()?;
        Ok(own)
    })
    .await??;
    all_end(&stand, &ends).await?;
    redrive.stop()?;
    drop(own);
    Ok(())
}

/// With more records at a time than twenty, and with fewer.
#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_address_stops_the_flow_and_dead_letters_nothing() -> Result<()> {
    for concurrency in ["64", "4"] {
        let trial = Trial::new("wrong", 3).await?;
        let stand = Stand::new(&trial)?;
        let names: Vec<_> =
            (0..100).map(|it| (format!("record {it}"), json!([status(200)]))).collect();
        stand.produce_all(&names)?;
        let config = stand
            .config("/wrong")?
            .replace("concurrency: 64", &format!("concurrency: {concurrency}"));
        let redrive = stand.run(&config)?;
        until("the flow stops", || redrive.log().contains("the first 20 records")).await?;
        let log = redrive.log();
        ensure!(log.contains("404 (20 times)") && log.contains("/wrong"), "{log}");
        redrive.stop()?;
        assert!(trial.broker.read(&trial.dead_letters())?.is_empty());
        // With the address put right, all of them are still there.
        let redrive = stand.run(&stand.config("/orders")?)?;
        until("all are done", || {
            let ledger = stand.ledger();
            let done = ledger.iter().filter(|it| it.status == 200).map(Entry::name);
            done.collect::<BTreeSet<_>>().len() == names.len()
        })
        .await?;
        redrive.stop()?;
        assert!(trial.broker.read(&trial.dead_letters())?.is_empty());
    }
    Ok(())
}

/// One record that the service does not know, and never another: it cannot be held for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_record_that_is_not_found_is_dead_lettered_in_the_end() -> Result<()> {
    let trial = Trial::new("unknown", 1).await?;
    let stand = Stand::new(&trial)?;
    stand.produce("unknown", &json!([status(404)]))?;
    let redrive = stand.run(&stand.config("/orders")?)?;
    let letters = trial.letters(1).await?;
    assert_eq!(letters[0].header("redrive-status"), Some("404"));
    redrive.stop()
}

/// The first service never answers. The second one's records do not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_hangs_holds_nobody_else_up() -> Result<()> {
    let (hanging, well) = (Trial::new("hanging", 2).await?, Trial::new("well", 2).await?);
    let stand = Stand::new(&well)?;
    let records: Vec<_> =
        (0..200).map(|it| (format!("record {it}"), json!([status(200)]))).collect();
    Stand::new(&hanging)?.produce_all(&records)?;
    let flow = |topic: &str, path: &str| {
        let url = stand.url(path);
        format!(
            "- {{ topic: {topic}, concurrency: 64, handler: {{ http: {{ url: '{url}', timeout: 1h }} }} }}\n"
        )
    };
    let config = format!(
        "kafka: {{ bootstrap.servers: '{}' }}\ngroup: {}\ndrain: {{ shutdown: 1s, revoke: 1s }}\nflows:\n{}{}",
        well.broker.address,
        well.group,
        flow(&hanging.topic, "/hang"),
        flow(&well.topic, "/orders")
    );
    let redrive = stand.run(&config)?;
    until("the first has all that it takes", || redrive.log().contains("is assigned")).await?;
    stand.produce_all(&records)?;
    until("the second is done", || stand.ledger().len() >= records.len()).await?;
    assert!(stand.ledger().iter().all(|it| it.header("redrive-topic") == Some(&well.topic)));
    redrive.stop()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_way_may_end_when_redrive_is_told_to_stop() -> Result<()> {
    let trial = Trial::new("stopped", 1).await?;
    let stand = Stand::new(&trial)?;
    let config = stand.config("/orders")?.replace("timeout: 1s", "timeout: 10s");
    let redrive = stand.run(&config)?;
    until("it has joined", || redrive.log().contains("is assigned")).await?;
    stand.produce("slow", &json!([{ "status": 200, "wait": 2 }]))?;
    until("it has the record", || stand.is_busy()).await?;
    redrive.stop()?;
    let redrive = stand.run(&config)?;
    stand.produce("next", &json!([status(200)]))?;
    until("the next one came", || stand.ledger().iter().any(|it| it.name() == "next")).await?;
    redrive.stop()?;
    assert_eq!(stand.ledger().iter().filter(|it| it.name() == "slow").count(), 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_that_are_missing_are_told_and_made_when_asked_for() -> Result<()> {
    let trial = Trial::new("missing", 1).await?;
    let stand = Stand::new(&trial)?;
    let config = stand.config("/orders")?;
    let redrive = stand.run_with(&config, &[])?;
    until("it ends", || redrive.has_ended()).await?;
    let log = redrive.log();
    assert_eq!(redrive.code(), Some(3), "{log}");
    ensure!(log.contains("missing") && log.contains(&trial.dead_letters()), "{log}");
    let redrive = stand.run_with(&config, &["--create-topics"])?;
    stand.produce("fine", &json!([status(200)]))?;
    until("it came", || stand.ledger().len() == 1).await?;
    redrive.stop()
}

/// The README's lines, as they stand there; only the port is another, which may be taken.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_readme_shows_works() -> Result<()> {
    let trial = Trial {
        broker: Broker::from_env()?,
        topic: "orders".to_owned(),
        group: "billing".to_owned(),
    };
    let shown = Shown::start(&trial)?;
    until("the topic is there", || trial.broker.bounds("orders").is_ok_and(|it| it.len() == 3))
        .await?;
    trial.produce([r#"{"id":1}"#, r#"{"id":2}"#, "no JSON"])?;
    let letters = trial.letters(1).await?;
    assert_eq!(letters[0].value.as_deref(), Some(&b"no JSON"[..]));
    assert_eq!(letters[0].header("redrive-status"), Some("400"));
    trial.settled(&["orders"]).await?;
    let output = shown.stop()?;
    for order in [r#"{\"id\":1}"#, r#"{\"id\":2}"#] {
        assert!(output.contains(order), "{order} did not come: {output}");
    }
    Ok(())
}

/// The README's library example is a program, and it does what its comments say.
#[tokio::test(flavor = "multi_thread")]
async fn the_library_example_works() -> Result<()> {
    let trial = Trial {
        broker: Broker::from_env()?,
        topic: "payments".to_owned(),
        group: "bank".to_owned(),
    };
    trial.broker.make_topics(&[(&trial.topic, 3)], &[]).await?;
    let example = Redrive::library_example(&trial)?;
    trial.broker.send(&trial.topic, &[Sent::value("order 1"), Sent::default()])?;
    let letters = trial.letters(1).await?;
    assert_eq!(letters[0].value, None);
    assert_eq!(letters[0].header("redrive-error-message"), Some("an order without a value"));
    until("it is billed", || example.log().contains("billed order 1 as bank/payments/0/0/0"))
        .await?;
    trial.settled(&[&trial.topic, "payments.retry"]).await?;
    example.stop()
}

/// Nothing but the names and the port is another than in the files.
#[tokio::test(flavor = "multi_thread")]
async fn the_example_config_and_the_example_services_go_together() -> Result<()> {
    for (program, file) in [("python3", "server.py"), ("node", "server.mjs")] {
        let trial = Trial::new("example", 2).await?;
        let stand = Stand::example(&trial, program, file)?;
        let redrive = stand.run(&stand.example_config("/orders")?)?;
        stand.send(&[r#"{"id":1}"#, r#"{"id":2,"busy":0}"#, "no JSON"])?;
        let letters = trial.letters(1).await?;
        assert_eq!(letters[0].value.as_deref(), Some(&b"no JSON"[..]));
        assert_eq!(letters[0].header("redrive-response"), Some("not JSON"));
        trial.settled(&[&trial.topic]).await?;
        redrive.stop()?;
    }
    Ok(())
}
