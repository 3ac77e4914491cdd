//! A record's whole life is one trace.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use anyhow::Result;
use redrive::{
    Consumer, Context, Delayed, Failure, InMemory, Policy, Record, RunSpan, Strategy, Tier,
};
use redrive_suite::broker::Sent;
use redrive_suite::trial::{Trial, until};

use super::fixed;

const HEADER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

type Spans = Arc<Mutex<Vec<RunSpan>>>;

/// Runs everything until there are so many spans, with a member of its own.
async fn run(trial: &Trial, spans: &Spans, count: usize, succeeds_at: u32) -> Result<()> {
    let told = Arc::clone(spans);
    let policy = Policy::default()
        .with_in_memory(InMemory::attempts(2).with_backoff(fixed(10)))
        .with_delayed(Delayed::attempts(9).with_backoff(fixed(1500)));
    let flow = trial
        .flow()
        .with_strategy(Strategy::Single(Tier::endless(trial.retry())))
        .with_default(policy);
    let consumer = Consumer::new(trial.plain_config(flow))
        .with_handler(trial.topic.as_str(), move |_: Record, context: Context| async move {
            tokio::task::yield_now().await;
            if context.overall_attempts() < succeeds_at {
                Err(Failure::of_type("Busy"))
            } else {
                Ok(())
            }
        })
        .with_created_topics()
        .with_tracer(move |span| told.lock().unwrap().push(span));
    let handle = consumer.handle();
    let task = tokio::spawn(consumer.run());
    until("all spans", || spans.lock().unwrap().len() >= count).await?;
    handle.stop();
    task.await??;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn all_runs_of_a_record_are_one_trace_over_hops_and_members() -> Result<()> {
    let trial = Trial::new("traced", 1).await?;
    let carried = Sent {
        headers: vec![(b"traceparent".to_vec(), Some(HEADER.as_bytes().to_vec()))],
        ..Sent::value("carried")
    };
    let unsampled = HEADER.replace("-01", "-00");
    let unwanted = Sent {
        headers: vec![(b"traceparent".to_vec(), Some(unsampled.into_bytes()))],
        ..Sent::value("unwanted")
    };
    trial.broker.send(&trial.topic, &[Sent::value("plain"), carried, unwanted])?;
    let spans = Spans::default();
    // Two records with three runs each, all in their first place; then another member, and the retry topic.
    run(&trial, &spans, 6, u32::MAX).await?;
    let first = spans.lock().unwrap().len();
    run(&trial, &spans, first + 2, 1).await?;
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    let spans = spans.lock().unwrap().clone();
    let of = |offset: &str| -> Vec<_> {
        let name = format!("{}/{}/0/{offset}/0", trial.group, trial.topic);
        spans.iter().filter(|it| it.record == name).collect()
    };
    let (plain, carried) = (of("0"), of("1"));
    assert!(of("2").is_empty(), "whoever produced it does not want it");
    for (name, runs) in [("plain", &plain), ("carried", &carried)] {
        assert!(
            runs.iter().any(|it| it.topic == trial.topic)
                && runs.iter().any(|it| it.topic == trial.retry()),
            "{name}"
        );
        let traces: BTreeSet<_> = runs.iter().map(|it| it.trace).collect();
        assert_eq!(traces.len(), 1, "{name}");
        assert!(
            runs.iter().any(|it| it.error.is_none())
                && runs.iter().any(|it| it.error.as_deref() == Some("Busy")),
            "{name}"
        );
        assert!(runs.iter().all(|it| it.began <= it.ended), "{name}");
    }
    assert_ne!(plain[0].trace, carried[0].trace);
    assert_eq!(carried[0].trace[..2], [0x4B, 0xF9]);
    let parent = Some(0x00F0_67AA_0BA9_02B7_u64.to_be_bytes());
    assert!(carried.iter().all(|it| it.parent == parent));
    // The first run is the root, and the others are its children.
    let is_first = |it: &&RunSpan| it.overall == 0 && it.in_place == 0;
    let (root, others): (Vec<&RunSpan>, Vec<&RunSpan>) = plain.iter().copied().partition(is_first);
    assert!(!root.is_empty() && root.iter().all(|it| it.parent.is_none()));
    assert!(others.iter().all(|it| it.parent == Some(root[0].id)), "{others:?}");
    Ok(())
}
