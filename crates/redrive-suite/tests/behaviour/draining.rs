//! Retry topics of an earlier config are finished.

use anyhow::Result;
use redrive::config::FlowConfig;
use redrive::{Context, Delayed, Event, Failure, Policy, Record, Strategy, Tier};
use redrive_suite::trial::{Runs, Trial};

use super::{fixed, single};

#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_retry_topic_that_is_draining_are_finished() -> Result<()> {
    let trial = Trial::new("draining", 2).await?;
    let old = format!("{}.old", trial.topic);
    // Long enough for the first consumer to be told that it is to take no more.
    let policy = Policy::default().with_delayed(Delayed::attempts(3).with_backoff(fixed(5000)));
    let before =
        trial.flow().with_strategy(Strategy::Single(Tier::endless(&*old))).with_default(policy);
    let member = trial
        .start(before, |_: Record, _: Context| async { Err::<(), _>(Failure::of_status(503)) })
        .await?;
    trial.produce(["a", "b", "c"])?;
    trial.records(&old, 3).await?;
    assert!(member.handle.pause(&trial.topic));
    member.stop().await?;
    // Who does not name it any more is told.
    let unaware = trial.start(single(&trial), |_: Record, _: Context| async {}).await?;
    let is_it =
        |it: &Event| matches!(it, Event::LeftBehind { topic, records: 3.. } if **topic == *old);
    unaware.told("records were left behind", is_it).await?;
    unaware.stop().await?;
    let runs = Runs::default();
    let noted = runs.clone();
    let after = FlowConfig { draining: vec![old.clone()], ..FlowConfig::new(single(&trial)) };
    let member = trial
        .start(after, move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            async move {
                if run.topic.ends_with(".old") && run.value == "b" {
                    Err(Failure::of_status(503))
                } else {
                    Ok(())
                }
            }
        })
        .await?;
    trial.settled(&[&trial.topic, &old]).await?;
    runs.reach(4).await?;
    trial.settled(&[&trial.retry()]).await?;
    for value in ["a", "c"] {
        let own = runs.of(value);
        assert_eq!(own.len(), 1);
        assert_eq!((own[0].topic.as_str(), own[0].attempt), (old.as_str(), 1));
        assert!(own[0].due.unwrap() <= own[0].at);
    }
    // What fails there goes on in today's retry topic.
    let last = runs.of("b").pop().unwrap();
    assert_eq!((last.topic, last.attempt), (trial.retry(), 2));
    assert_eq!(trial.broker.read(&old)?.len(), 3);
    member.stop().await?;
    Ok(())
}
