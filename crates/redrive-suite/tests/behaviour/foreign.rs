//! What other clients of Kafka read.

use std::time::Duration;

use anyhow::Result;
use redrive::{Context, Delayed, Failure, Outcome, Policy, Record, Strategy, Tier};
use redrive_suite::broker::Sent;
use redrive_suite::foreign;
use redrive_suite::trial::Trial;
use serde_json::Value;

use super::single;

fn hex(bytes: Option<&[u8]>) -> Value {
    bytes.map_or(Value::Null, |it| {
        it.iter().map(|it| format!("{it:02x}")).collect::<String>().into()
    })
}

/// What was sent to the partition of a record that was read.
fn sent_to<'a>(records: &'a [Sent], found: &Value) -> &'a Sent {
    records.iter().find(|it| found["partition"] == it.partition).unwrap()
}

/// A record that Redrive published is the one that was sent, with Redrive's headers beside its own.
fn same(found: &Value, sent: &Sent, group: &str) {
    assert_eq!(found["key"], hex(sent.key.as_deref()));
    assert_eq!(found["value"], hex(sent.value.as_deref()));
    let headers = found["headers"].as_array().unwrap();
    let is_ours = |it: &&Value| it[0].as_str().unwrap().starts_with("redrive-");
    let foreign: Vec<_> = headers.iter().filter(|it| !is_ours(it)).cloned().collect();
    let own = sent.headers.iter().map(|(name, value)| {
        let name = String::from_utf8(name.clone()).unwrap();
        Value::from(vec![name.into(), hex(value.as_deref())])
    });
    assert_eq!(foreign, own.collect::<Vec<_>>());
    for (name, value) in [("redrive-version", "1"), ("redrive-group", group)] {
        let own = headers.iter().filter(|it| it[0] == name).collect::<Vec<_>>();
        assert_eq!(own.len(), 1, "{name}");
        assert_eq!(own[0][1], hex(Some(value.as_bytes())), "{name}");
    }
}

/// Records of all kinds, one for each of three partitions.
fn of_all_kinds() -> [Sent; 3] {
    let binary = vec![0, 0xFF, 0x80, b'\n'];
    [
        Sent { partition: 2, key: Some(b"key".to_vec()), ..Sent::value("value") }
            .with_header("trace", Some(b"1"))
            .with_header("none", None)
            .with_header("trace", Some(&binary)),
        Sent {
            partition: 1,
            key: Some(binary.clone()),
            value: Some(binary.clone()),
            ..Sent::default()
        },
        Sent { partition: 0, key: Some(b"tombstone".to_vec()), ..Sent::default() },
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn pythons_client_reads_the_same_bytes_on_the_retry_and_the_dead_letter_topic() -> Result<()>
{
    let trial = Trial::new("python", 3).await?;
    let member = trial
        .start(single(&trial), |_: Record, context: Context| async move {
            let status = if context.overall_attempts() == 0 { 503 } else { 404 };
            Err::<(), _>(Failure::of_status(status))
        })
        .await?;
    let records = of_all_kinds();
    trial.broker.send(&trial.topic, &records)?;
    trial.letters(records.len()).await?;
    for topic in [trial.retry(), trial.dead_letters()] {
        let found = foreign::read(&trial.broker.address, &topic)?;
        assert_eq!(found.len(), records.len(), "{topic}");
        for (own, record) in found.iter().map(|it| (it, sent_to(&records, it))) {
            same(own, record, &trial.group);
        }
    }
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pythons_client_reads_the_same_bytes_where_a_relay_brings_them() -> Result<()> {
    let trial = Trial::new("python-relay", 3).await?;
    let delay = format!("{}.delay", trial.topic);
    // A relay brings records to the partition that they came from, whatever it takes them from.
    trial.broker.make_topics(&[(&delay, 1)], &[]).await?;
    let delays = vec![Tier::new(&*delay, Duration::from_millis(100))];
    let strategy = Strategy::DelayThenRetry { delays, retry: trial.retry().into() };
    let policy = Policy::default().with_delayed(Delayed::default());
    let flow = trial.flow().with_strategy(strategy).with_default(policy);
    let member = trial
        .start(flow, |_: Record, context: Context| async move {
            if context.overall_attempts() == 0 { Err(Failure::of_status(503)) } else { Ok(()) }
        })
        .await?;
    let records = of_all_kinds();
    trial.broker.send(&trial.topic, &records)?;
    trial.records(&trial.retry(), records.len()).await?;
    trial.settled(&[&trial.topic, &delay, &trial.retry()]).await?;
    let found = foreign::read(&trial.broker.address, &trial.retry())?;
    assert_eq!(found.len(), records.len());
    for own in &found {
        same(own, sent_to(&records, own), &trial.group);
    }
    assert_eq!(foreign::read(&trial.broker.address, &delay)?.len(), records.len());
    assert!(foreign::read(&trial.broker.address, &trial.dead_letters())?.is_empty());
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn pythons_client_finds_nothing_of_what_is_done_or_dropped() -> Result<()> {
    let trial = Trial::new("python-none", 1).await?;
    let member = trial
        .start(single(&trial), |record: Record, _: Context| async move {
            match record.value() {
                Some(b"drop") => Outcome::drop(Failure::of_status(503)),
                _ => Outcome::Done,
            }
        })
        .await?;
    trial.produce(["done", "drop", "done"])?;
    trial.settled(&[&trial.topic]).await?;
    for topic in [trial.retry(), trial.dead_letters()] {
        assert!(foreign::read(&trial.broker.address, &topic)?.is_empty(), "{topic}");
    }
    assert_eq!(foreign::read(&trial.broker.address, &trial.topic)?.len(), 3);
    member.stop().await?;
    Ok(())
}
