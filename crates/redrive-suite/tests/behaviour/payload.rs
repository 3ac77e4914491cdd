//! Key, value and foreign headers arrive everywhere as they left.

use std::sync::{Arc, Mutex};

use anyhow::Result;
use redrive::{Context, Failure, Record};
use redrive_suite::broker::{Found, Sent};
use redrive_suite::trial::Trial;

use super::single;

type Headers = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// The headers that are not Redrive's.
fn foreign(found: &Found) -> Headers {
    found.headers.iter().filter(|it| !it.0.starts_with(b"redrive-")).cloned().collect()
}

/// Sends records through a retry topic to the dead-letter topic, and compares what arrives at both, partition and time
/// included.
async fn arrive_unchanged(name: &str, records: Vec<Sent>) -> Result<()> {
    let trial = Trial::new(name, 3).await?;
    let seen: Arc<Mutex<Vec<(Record, i32)>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let member = trial
        .start(single(&trial), move |record: Record, context: Context| {
            noted.lock().unwrap().push((record.clone(), context.origin().1));
            let status = if context.overall_attempts() == 0 { 503 } else { 404 };
            async move { Err::<(), _>(Failure::of_status(status)) }
        })
        .await?;
    trial.broker.send(&trial.topic, &records)?;
    let sources = trial.broker.read(&trial.topic)?;
    trial.letters(records.len()).await?;
    for topic in [trial.retry(), trial.dead_letters()] {
        let found = trial.records(&topic, records.len()).await?;
        assert_eq!(found.len(), records.len(), "{topic}");
        for copy in &found {
            let offset = copy.header("redrive-origin-offset").unwrap().parse::<i64>()?;
            let source =
                sources.iter().find(|it| (it.partition, it.offset) == (copy.partition, offset));
            let source = source.expect("a copy is in the partition of its source");
            assert_eq!((&copy.key, &copy.value), (&source.key, &source.value), "{topic}");
            assert_eq!(foreign(copy), source.headers, "{topic}");
            assert_eq!(copy.header("redrive-origin-topic"), Some(&*trial.topic));
            assert_eq!(
                copy.header("redrive-origin-partition"),
                Some(&*source.partition.to_string())
            );
            let timestamp = source.timestamp.unwrap().to_string();
            assert_eq!(copy.header("redrive-origin-timestamp"), Some(&*timestamp));
        }
    }
    // Handlers see the same, at each stop.
    for (record, partition) in seen.lock().unwrap().drain(..) {
        let source = sources.iter().find(|it| {
            it.partition == partition
                && it.value.as_deref() == record.value()
                && it.key.as_deref() == record.key()
                && it.timestamp == record.timestamp().map(redrive::Timestamp::as_millis)
        });
        assert!(source.is_some(), "{record:?} is none of those that were sent");
    }
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn null_and_empty_keys_and_values_stay_what_they_are() -> Result<()> {
    let bytes = |it: &[u8]| Some(it.to_vec());
    let sent = |partition, key, value| Sent { partition, key, value, ..Sent::default() };
    let records = vec![
        sent(0, None, bytes(b"no key")),
        sent(1, bytes(b"tombstone"), None),
        sent(2, None, None),
        sent(0, bytes(b""), bytes(b"")),
        sent(1, bytes(b"empty value"), bytes(b"")),
        sent(2, bytes(&[0, 0xFF, 0xC3, 0x28]), bytes(&[0xFE, 0, 1, 2, 0x80, b'\n'])),
    ];
    arrive_unchanged("nulls", records).await
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_headers_keep_their_order_their_duplicates_and_their_bytes() -> Result<()> {
    let record = Sent { partition: 1, key: Some(b"k".to_vec()), ..Sent::value("v") }
        .with_header("trace", Some(b"1"))
        .with_header("z", None)
        .with_header("trace", Some(b"2"))
        .with_header("a", Some(b""))
        .with_header("binary", Some(&[0, 0xFF, 0x80]))
        .with_header("trace", Some(b"1"))
        .with_header("Redrive-Looks-Like", Some(b"ours"))
        .with_header("x-retry-attempt", Some(b"7"))
        .with_header("", Some(b"no name"));
    arrive_unchanged("headers", vec![record]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_whose_name_is_not_utf_8_arrives_byte_for_byte() -> Result<()> {
    let record = Sent { partition: 2, ..Sent::value("v") }
        .with_header(b"caf\xE9", Some(b"latin"))
        .with_header("plain", Some(b"1"))
        .with_header([0xFF, 0xFE], None)
        .with_header(b"caf\xE9", Some(b"again"));
    arrive_unchanged("names", vec![record]).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_of_production_travels_in_a_header_and_a_hop_has_its_own() -> Result<()> {
    // An hour: what is older than the topic keeps would be gone before it is read.
    let long_ago = redrive_suite::ledger::now() - 3_600_000;
    let records = vec![Sent { timestamp: Some(long_ago), ..Sent::value("old") }];
    arrive_unchanged("times", records).await?;
    let trial = Trial::new("hop-time", 1).await?;
    let member = trial
        .start(single(&trial), move |record: Record, _: Context| async move {
            assert_eq!(record.timestamp().unwrap().as_millis(), long_ago);
            Err::<(), _>(Failure::of_status(404))
        })
        .await?;
    trial.broker.send(&trial.topic, &[Sent { timestamp: Some(long_ago), ..Sent::value("old") }])?;
    let letters = trial.letters(1).await?;
    assert_eq!(letters[0].header("redrive-reason"), Some("not-retryable"));
    assert!(letters[0].timestamp.unwrap() > long_ago, "retention goes by it");
    member.stop().await?;
    Ok(())
}
