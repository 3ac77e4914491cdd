//! Groups that share topics leave each other's records alone.

use anyhow::Result;
use redrive::{Context, Delayed, Failure, Policy, Record, Strategy, Tier};
use redrive_suite::trial::{Runs, Trial};

use super::fixed;

#[tokio::test(flavor = "multi_thread")]
async fn groups_that_share_a_retry_topic_run_their_own_records_only() -> Result<()> {
    const RECORDS: usize = 20;
    let one = Trial::new("shared", 2).await?;
    let other = Trial { group: format!("{}-other", one.group), ..one.clone() };
    let mut members = Vec::new();
    for trial in [&one, &other] {
        let policy = Policy::default().with_delayed(Delayed::attempts(1).with_backoff(fixed(300)));
        let strategy = Strategy::Single(Tier::endless(trial.retry()));
        let runs = Runs::default();
        let noted = runs.clone();
        let handler = move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            let group = record.header("redrive-group").map(<[u8]>::to_vec);
            async move {
                if run.attempt == 0 {
                    return Err(Failure::of_status(503).with_message("not yet"));
                }
                let key = context.idempotency_key();
                assert!(key.starts_with(&String::from_utf8(group.unwrap()).unwrap()));
                Ok(())
            }
        };
        let flow = trial.flow().with_strategy(strategy).with_default(policy);
        members.push((trial, trial.start(flow, handler).await?, runs));
    }
    one.produce(0..RECORDS)?;
    for (trial, member, runs) in &members {
        runs.reach(2 * RECORDS).await?;
        trial.settled(&[&trial.topic, &trial.retry()]).await?;
        let flow = member.flow()?;
        assert_eq!(flow.foreign, RECORDS as u64);
        assert_eq!((flow.runs, flow.succeeded), (2 * RECORDS as u64, RECORDS as u64));
        assert_eq!(runs.count(), 2 * RECORDS);
    }
    assert_eq!(one.broker.read(&one.retry())?.len(), 2 * RECORDS);
    for (_, member, _) in members {
        member.stop().await?;
    }
    Ok(())
}
