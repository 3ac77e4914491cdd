//! Records that a handler does not know what to say of yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Result;
use redrive::config::FlowConfig;
use redrive::{Context, Failure, Handler, Outcome, Record};
use redrive_suite::trial::{Runs, Trial};

use super::single;

/// Holds the record `held` until it is told what to do with it; then it fails in a way that is final.
#[derive(Clone, Default)]
struct Undecided {
    runs: Runs,
    is_decided: Arc<AtomicBool>,
    resumed: Arc<AtomicU32>,
}

impl Handler for Undecided {
    async fn handle(&self, record: Record, context: Context) -> Outcome {
        let run = self.runs.note(&record, &context);
        match run.value.as_str() {
            "held" if self.is_decided.load(Ordering::SeqCst) => {
                Outcome::Failed(Failure::of_status(404))
            }
            "held" => Outcome::Held(Failure::of_status(404), Duration::from_millis(50)),
            _ => Outcome::Done,
        }
    }

    fn resumed(&self) {
        self.resumed.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_held_stays_uncounted_and_is_in_nobodys_way() -> Result<()> {
    let trial = Trial::new("held", 1).await?;
    let handler = Undecided::default();
    let flow = FlowConfig::new(single(&trial)).with_concurrency(1);
    let member = trial.start(flow, handler.clone()).await?;
    trial.produce(["held", "second", "third"])?;
    handler.runs.reach(8).await?;
    assert_eq!((handler.runs.of("second").len(), handler.runs.of("third").len()), (1, 1));
    let held = handler.runs.of("held");
    assert!(held.iter().all(|it| (it.attempt, it.in_place) == (0, 0)), "{held:?}");
    assert!(held.windows(2).all(|it| it[1].at - it[0].at >= 50), "{held:?}");
    let flow = member.flow()?;
    assert_eq!((flow.succeeded, flow.retried, flow.dead_lettered), (2, 0, 0));
    assert_eq!(
        trial.unsettled(&trial.topic)?,
        3,
        "it is not settled, and so holds the commit point"
    );
    handler.is_decided.store(true, Ordering::SeqCst);
    let letters = trial.letters(1).await?;
    assert_eq!(letters[0].header("redrive-reason"), Some("not-retryable"));
    trial.settled(&[&trial.topic]).await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_held_is_still_there_after_a_restart() -> Result<()> {
    let trial = Trial::new("heldagain", 1).await?;
    let handler = Undecided::default();
    let member = trial.start(single(&trial), handler.clone()).await?;
    trial.produce(["held", "second"])?;
    handler.runs.reach(4).await?;
    member.stop().await?;
    assert!(trial.broker.read(&trial.dead_letters())?.is_empty());
    handler.is_decided.store(true, Ordering::SeqCst);
    let member = trial.start(single(&trial), handler.clone()).await?;
    trial.letters(1).await?;
    assert_eq!(handler.runs.of("second").len(), 1, "what was settled does not run again");
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_hears_of_a_flow_that_goes_on() -> Result<()> {
    let trial = Trial::new("goeson", 1).await?;
    let handler = Undecided::default();
    let member = trial.start(single(&trial), handler.clone()).await?;
    assert!(member.handle.pause(&trial.topic));
    member.until("it is paused", |it| it.flows.iter().all(|it| it.is_paused)).await?;
    assert_eq!(handler.resumed.load(Ordering::SeqCst), 0);
    assert!(member.handle.resume(&trial.topic));
    trial.produce(["second"])?;
    handler.runs.reach(1).await?;
    assert_eq!(handler.resumed.load(Ordering::SeqCst), 1);
    member.stop().await?;
    Ok(())
}
