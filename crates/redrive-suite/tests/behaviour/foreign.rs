//! What other clients of Kafka read.

use anyhow::Result;
use redrive::{Context, Failure, Record};
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
    let binary = vec![0, 0xFF, 0x80, b'\n'];
    let records = [
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
    ];
    trial.broker.send(&trial.topic, &records)?;
    trial.letters(records.len()).await?;
    for topic in [trial.retry(), trial.dead_letters()] {
        let found = foreign::read(&trial.broker.address, &topic)?;
        assert_eq!(found.len(), records.len(), "{topic}");
        for record in &records {
            let own = found.iter().find(|it| it["partition"] == record.partition).unwrap();
            assert_eq!(own["key"], hex(record.key.as_deref()), "{topic}");
            assert_eq!(own["value"], hex(record.value.as_deref()), "{topic}");
            let headers = own["headers"].as_array().unwrap();
            let is_ours = |it: &&Value| it[0].as_str().unwrap().starts_with("redrive-");
            let foreign: Vec<_> = headers.iter().filter(|it| !is_ours(it)).cloned().collect();
            let sent: Vec<_> = record
                .headers
                .iter()
                .map(|(name, value)| {
                    Value::from(vec![
                        String::from_utf8(name.clone()).unwrap().into(),
                        hex(value.as_deref()),
                    ])
                })
                .collect();
            assert_eq!(foreign, sent, "{topic}");
            for (name, value) in [("redrive-version", "1"), ("redrive-group", &*trial.group)] {
                let own = headers.iter().filter(|it| it[0] == name).collect::<Vec<_>>();
                assert_eq!(own.len(), 1, "{name}");
                assert_eq!(own[0][1], hex(Some(value.as_bytes())), "{name}");
            }
        }
    }
    member.stop().await?;
    Ok(())
}
