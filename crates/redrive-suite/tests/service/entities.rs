//! `redrive entities`, as a shell sees it, beside a member that runs.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use redrive_suite::trial::{Trial, until};
use serde_json::{Value, json};

use crate::stand::{Stand, binaries, letters};

/// What a command printed, with its exit code.
struct Printed {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Printed {
    fn json(&self) -> Result<Value> {
        ensure!(self.code == Some(0), "{:?}: {}", self.code, self.err);
        Ok(serde_json::from_str(&self.out)?)
    }
}

fn entities(stand: &Stand<'_>, config: &str, arguments: &[&str]) -> Result<Printed> {
    let file = stand.file("entities.yaml", config)?;
    let mut command = Command::new(binaries()?.join("redrive"));
    let output = command.arg("entities").args(arguments).arg("-c").arg(file).output()?;
    let (out, err) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    Ok(Printed { code: output.status.code(), out, err })
}

/// The order of the requests for an entity's events that were answered well.
fn done(stand: &Stand<'_>, of: &str) -> Vec<String> {
    let ledger = stand.ledger().into_iter().filter(|it| it.status == 200);
    ledger.map(|it| it.name()).filter(|it| it.starts_with(of)).collect()
}

fn only(found: &Value, what: &str) -> Result<Value> {
    let all = found[what].as_array().context("no list")?;
    ensure!(all.len() == 1, "{found:#}");
    Ok(all[0].clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_back_is_listed_and_released() -> Result<()> {
    let trial = Trial::new("entities", 1).await?;
    let stand = Stand::new(&trial)?;
    let Trial { broker, topic, group } = &trial;
    let config = format!(
        r#"
kafka: {{ bootstrap.servers: "{}" }}
group: {group}
flows:
  - topic: {topic}
    handler: {{ http: {{ url: "{}" }} }}
    ordering: key
    retry: {{ strategy: single }}
    policies:
      - {{ on: {{ status: 503 }}, delayed: {{ attempts: 5, backoff: {{ fixed: 1h }} }} }}
      - {{ on: {{ status: 400 }}, then: dead_letter }}
"#,
        broker.address,
        stand.url("/orders")
    );
    let produce = |records: &[(&str, &str, u16)]| {
        let record = |(entity, name, status): &(&str, &str, u16)| {
            let value =
                json!({ "name": name, "answers": [{ "status": status, "body": "because" }] });
            ((*entity).to_owned(), value.to_string())
        };
        let records: Vec<_> = records.iter().map(record).collect();
        broker.produce(topic, 1, &records)
    };
    let redrive = stand.run(&config)?;
    produce(&[
        ("order-1", "1 placed", 200),
        ("order-2", "2 placed", 400),
        ("order-2", "2 paid", 200),
        ("order-2", "2 shipped", 200),
        ("order-3", "3 placed", 503),
        ("order-3", "3 paid", 200),
        ("order-1", "1 paid", 200),
    ])?;
    trial.letters(3).await?;
    trial.records(&trial.retry(), 2).await?;
    until("order-1 is done", || done(&stand, "1").len() == 2).await?;

    let found = entities(&stand, &config, &["list", "--format", "json"])?.json()?;
    let closed = only(&found, "closed")?;
    assert_eq!(
        (&closed["entity"], &closed["followers"]),
        (&json!("order-2"), &json!(2)),
        "{found}"
    );
    assert_eq!((&closed["reason"], &closed["head"]["topic"]), (&json!("policy"), &json!(topic)));
    let blocked = only(&found, "blocked")?;
    assert_eq!((&blocked["entity"], &blocked["followers"]), (&json!("order-3"), &json!(1)));
    assert_eq!(
        (&blocked["attempts"], &blocked["waits_at"]["topic"]),
        (&json!(1), &json!(trial.retry()))
    );
    assert!(blocked["message"].as_str().is_some_and(|it| it.contains("503")), "{blocked}");
    assert_eq!(blocked.get("records"), None, "a list is short");

    let shown =
        entities(&stand, &config, &["show", "--key", "order-3", "--format", "json"])?.json()?;
    let records = only(&shown, "blocked")?["records"].clone();
    let attempts: Vec<_> =
        records.as_array().context("no records")?.iter().map(|it| it["attempts"].clone()).collect();
    assert_eq!((attempts, shown["closed"].clone()), (vec![json!(1), json!(0)], json!([])));
    let text = entities(&stand, &config, &["show", "--key", "order-1"])?;
    assert!(text.code == Some(0) && text.out.contains("it flows"), "{}{}", text.out, text.err);
    let text = entities(&stand, &config, &["list"])?.out;
    assert!(text.contains("1 closed, 1 blocked") && text.contains("2 followers"), "{text}");

    // What is meant has to be said, and has to be closed.
    for (arguments, code, told) in [
        (&["release"][..], 2, "--all"),
        (&["show"], 2, "--key"),
        (&["list", "--topic", "nope"], 2, topic.as_str()),
        (&["release", "--key", "order-3"], 1, "nothing is closed"),
    ] {
        let refused = entities(&stand, &config, arguments)?;
        assert_eq!(refused.code, Some(code), "{arguments:?}: {}", refused.err);
        assert!(
            format!("{}{}", refused.out, refused.err).contains(told),
            "{arguments:?}: {}",
            refused.err
        );
    }
    let id = closed["id"].as_str().context("no id")?;
    let dry = entities(&stand, &config, &["release", "--id", id, "--dry-run"])?;
    assert!(dry.out.contains("order-2 would be opened"), "{}", dry.out);
    let found =
        entities(&stand, &config, &["list", "--key", "order-2", "--format", "json"])?.json()?;
    assert_eq!(found["closed"].as_array().map(Vec::len), Some(1), "a dry run opens nothing");

    let released = entities(&stand, &config, &["release", "--key", "order-2"])?;
    assert!(
        released.code == Some(0) && released.out.contains("order-2 opened"),
        "{}",
        released.out
    );
    until("the member has heard of it", || redrive.log().contains("order-2 of")).await?;
    produce(&[("order-2", "2 returned", 200)])?;
    until("order-2 goes on", || done(&stand, "2") == ["2 returned"]).await?;
    let found = entities(&stand, &config, &["list", "--format", "json"])?.json()?;
    assert_eq!(found["closed"], json!([]));
    assert_eq!(done(&stand, "3"), [""; 0]);
    redrive.stop()?;

    // Read by another client: in their order, each with the record that it follows.
    let letters = letters(&trial)?;
    let head = &closed["head"];
    let head = format!("{topic}/{}/{}", head["partition"], head["offset"]);
    let told: Vec<_> =
        letters.iter().map(|it| (it.name.as_str(), it.header("redrive-follows"))).collect();
    assert_eq!(
        told,
        [("2 placed", None), ("2 paid", Some(head.as_str())), ("2 shipped", Some(head.as_str()))]
    );
    Ok(())
}
