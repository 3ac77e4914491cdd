//! What becomes of a record, by what its handler says.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Result;
use redrive::config::FlowConfig;
use redrive::{
    Context, Delayed, Event, Failure, On, Outcome, Policy, Record, Rule, Rules, Then, Timestamp,
};
use redrive_suite::ledger;
use redrive_suite::trial::{Runs, Trial, until};

use super::{fixed, single};

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_succeeds_is_settled_and_nothing_else() -> Result<()> {
    let trial = Trial::new("success", 1).await?;
    let runs = Runs::default();
    let noted = runs.clone();
    trial.produce(0..3)?;
    let member = trial
        .start(single(&trial), move |record: Record, context: Context| {
            noted.note(&record, &context);
            async {}
        })
        .await?;
    trial.settled(&[&trial.topic]).await?;
    let flow = member.flow()?;
    assert_eq!((flow.runs, flow.succeeded, flow.retried, flow.dead_lettered), (3, 3, 0, 0));
    assert!(member.state().is_ready());
    assert_eq!(runs.count(), 3);
    assert!(trial.broker.read(&trial.retry())?.is_empty());
    assert!(trial.broker.read(&trial.dead_letters())?.is_empty());
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_record_runs_in_place_then_over_the_retry_topic_and_then_succeeds() -> Result<()>
{
    let trial = Trial::new("full", 1).await?;
    let runs = Runs::default();
    let noted = runs.clone();
    let member = trial
        .start(single(&trial), move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            async move { if run.attempt < 2 { Err(Failure::of_status(503)) } else { Ok(()) } }
        })
        .await?;
    trial.produce(["order"])?;
    let all = runs.reach(5).await?;
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    // One run and two in place, then one for each publish.
    let places: Vec<_> = all.iter().map(|it| (it.attempt, it.in_place)).collect();
    assert_eq!(places, [(0, 0), (0, 1), (0, 2), (1, 0), (2, 0)]);
    assert_eq!(all[2].topic, trial.topic);
    assert_eq!(all[3].topic, trial.retry());
    for run in &all[3..] {
        assert!(run.due.unwrap() <= run.at, "it ran early: {run:?}");
    }
    assert!(all[3].at - all[2].at >= 200, "the wait was too short: {all:?}");
    assert_eq!(runs.count(), 5);
    let flow = member.flow()?;
    assert_eq!((flow.succeeded, flow.retried, flow.dead_lettered), (1, 2, 0));
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_whose_attempts_are_spent_ends_as_a_dead_letter() -> Result<()> {
    let trial = Trial::new("spent", 1).await?;
    let runs = Runs::default();
    let noted = runs.clone();
    let member = trial
        .start(single(&trial), move |record: Record, context: Context| {
            noted.note(&record, &context);
            async { Err::<(), _>(Failure::of_type("app::NoStock").with_message("none left")) }
        })
        .await?;
    trial.produce(["order"])?;
    let letters = trial.letters(1).await?;
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    let letter = &letters[0];
    assert_eq!(letter.header("redrive-reason"), Some("attempts"));
    assert_eq!(letter.header("redrive-overall-attempts"), Some("2"));
    assert_eq!(letter.header("redrive-policy"), Some("NoStock"));
    assert_eq!(letter.header("redrive-error"), Some("app::NoStock"));
    assert_eq!(letter.header("redrive-error-message"), Some("none left"));
    assert_eq!(letter.header("redrive-origin-topic"), Some(&*trial.topic));
    assert_eq!(letter.header("redrive-origin-offset"), Some("0"));
    assert_eq!(letter.header("redrive-group"), Some(&*trial.group));
    assert_eq!(runs.count(), 5);
    assert_eq!(trial.broker.read(&trial.dead_letters())?.len(), 1);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_is_not_retryable_is_a_dead_letter_at_once() -> Result<()> {
    let trial = Trial::new("hopeless", 1).await?;
    let runs = Runs::default();
    let noted = runs.clone();
    let member = trial
        .start(single(&trial), move |record: Record, context: Context| {
            noted.note(&record, &context);
            async { Err::<(), _>(Failure::of_status(422)) }
        })
        .await?;
    trial.produce(["order"])?;
    let letters = trial.letters(1).await?;
    assert_eq!(letters[0].header("redrive-reason"), Some("not-retryable"));
    assert_eq!(letters[0].header("redrive-status"), Some("422"));
    assert_eq!(letters[0].header("redrive-overall-attempts"), Some("0"));
    trial.settled(&[&trial.topic]).await?;
    assert_eq!(runs.count(), 1);
    assert_eq!(member.flow()?.dead_lettered, 1);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_drops_settles_the_record_and_counts_it() -> Result<()> {
    let trial = Trial::new("drop", 1).await?;
    let careless = Policy::named("Metrics").then(Then::Drop);
    let rules = Rules::default().with(Rule::new(On::error("Metrics"), careless));
    let member = trial
        .start(single(&trial).with_rules(rules), |_: Record, _: Context| async {
            Err::<(), _>(Failure::of_type("Metrics"))
        })
        .await?;
    trial.produce(["a", "b"])?;
    trial.settled(&[&trial.topic]).await?;
    let flow = member.flow()?;
    assert_eq!((flow.runs, flow.dropped, flow.dead_lettered), (2, 2, 0));
    assert!(trial.broker.read(&trial.dead_letters())?.is_empty());
    assert!(trial.broker.read(&trial.retry())?.is_empty());
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_ask_for_a_dead_letter_or_a_drop() -> Result<()> {
    let trial = Trial::new("asked", 1).await?;
    let member = trial
        .start(single(&trial), |record: Record, _: Context| async move {
            let failure = Failure::of_status(503).with_message("no");
            if record.value() == Some(b"letter") {
                Outcome::dead_letter(failure)
            } else {
                Outcome::drop(failure)
            }
        })
        .await?;
    trial.produce(["letter", "drop"])?;
    let letters = trial.letters(1).await?;
    trial.settled(&[&trial.topic]).await?;
    assert_eq!(letters[0].value.as_deref(), Some(&b"letter"[..]));
    assert_eq!(letters[0].header("redrive-reason"), Some("handler"));
    let flow = member.flow()?;
    assert_eq!((flow.runs, flow.dropped, flow.dead_lettered), (2, 1, 1));
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_say_when_a_record_is_to_run_again() -> Result<()> {
    let trial = Trial::new("retry-at", 1).await?;
    let (runs, wanted) = (Runs::default(), Arc::new(Mutex::new(0)));
    let (noted, asked) = (runs.clone(), Arc::clone(&wanted));
    let member = trial
        .start(single(&trial), move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            let asked = Arc::clone(&asked);
            async move {
                if run.attempt > 0 {
                    return Outcome::Done;
                }
                let at = ledger::now() + 700;
                *asked.lock().unwrap() = at;
                Outcome::retry_at(Failure::of_status(429), Timestamp::from_millis(at))
            }
        })
        .await?;
    trial.produce(["order"])?;
    let all = runs.reach(2).await?;
    // No run in place came first.
    assert_eq!((all[1].attempt, all[1].in_place), (1, 0));
    let at = *wanted.lock().unwrap();
    assert_eq!(all[1].due, Some(at));
    assert!(all[1].at >= at, "it ran early: {all:?}");
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flow_that_stops_keeps_its_partitions_says_why_and_goes_on_when_it_is_resumed()
-> Result<()> {
    let trial = Trial::new("stop", 2).await?;
    let (runs, is_repaired) = (Runs::default(), Arc::new(AtomicBool::new(false)));
    let (noted, repaired) = (runs.clone(), Arc::clone(&is_repaired));
    let member = trial
        .start(single(&trial), move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            let is_fine = repaired.load(Ordering::SeqCst) || run.value != "bad";
            async move {
                if is_fine {
                    Outcome::Done
                } else {
                    Outcome::stop(Failure::of_type("Broken").with_message("no database"))
                }
            }
        })
        .await?;
    trial.produce(["good", "bad"])?;
    member.until("the flow stopped", |state| state.flows[0].stopped.is_some()).await?;
    let state = member.state();
    assert!(!state.is_ready());
    assert_eq!(state.partitions, 4, "two of the source and two of the retry topic");
    let why = state.flows[0].stopped.clone().unwrap();
    assert!(why.contains("no database") && why.contains(&trial.topic), "{why}");
    // Nothing more is taken, and nothing is committed past the record.
    trial.produce(["later"])?;
    until("what came before is committed", || trial.unsettled(&trial.topic).unwrap() == 2).await?;
    assert!(runs.of("later").is_empty());
    is_repaired.store(true, Ordering::SeqCst);
    assert!(member.handle.resume(&trial.topic));
    trial.settled(&[&trial.topic]).await?;
    assert_eq!((runs.of("bad").len(), runs.of("later").len()), (2, 1));
    assert!(member.state().is_ready());
    assert!(!member.handle.resume("no-such-topic"));
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_flow_can_be_ended_and_begins_with_the_same_record() -> Result<()> {
    let trial = Trial::new("stop-end", 1).await?;
    let member = trial
        .start(single(&trial), |_: Record, _: Context| async {
            Outcome::stop(Failure::of_type("Broken"))
        })
        .await?;
    trial.produce(["bad"])?;
    member.until("the flow stopped", |state| state.flows[0].stopped.is_some()).await?;
    member.stop().await?;
    let runs = Runs::default();
    let noted = runs.clone();
    let member = trial
        .start(single(&trial), move |record: Record, context: Context| {
            noted.note(&record, &context);
            async {}
        })
        .await?;
    runs.reach(1).await?;
    trial.settled(&[&trial.topic]).await?;
    assert_eq!(runs.of("bad").len(), 1);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_stops_with_exit_ends_the_run() -> Result<()> {
    let trial = Trial::new("exit", 1).await?;
    let flow = trial.flow().with_default(Policy::default().then(Then::Stop { exit: true }));
    let member = trial
        .start(flow, |_: Record, _: Context| async {
            Err::<(), _>(Failure::of_status(503).with_message("no database"))
        })
        .await?;
    trial.produce(["bad"])?;
    let ended = member.ended().await?;
    let error = ended.unwrap_err();
    assert!(matches!(&error, redrive::RunError::Stopped(_)), "{error:?}");
    assert!(error.to_string().contains("no database"), "{error}");
    assert_eq!(trial.unsettled(&trial.topic)?, 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_a_failure_of_kind_panic_before_and_after_the_first_await() -> Result<()> {
    let trial = Trial::new("panic", 1).await?;
    let quick =
        Policy::named("Panicked").with_delayed(Delayed::attempts(1).with_backoff(fixed(50)));
    let rules = Rules::default().with(Rule::new(On::kind(redrive::Kind::PANIC), quick));
    let member = trial
        .start(single(&trial).with_rules(rules), |record: Record, context: Context| {
            if record.value() == Some(b"call") && context.overall_attempts() < 5 {
                panic!("in the call");
            }
            async move {
                if record.value() == Some(b"poll") {
                    panic!("at the first poll");
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
                if record.value() == Some(b"later") {
                    panic!("after the first await");
                }
            }
        })
        .await?;
    trial.produce(["call", "poll", "later", "fine"])?;
    let letters = trial.letters(3).await?;
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    for letter in &letters {
        let value = String::from_utf8(letter.value.clone().unwrap())?;
        let message = match value.as_str() {
            "call" => "in the call",
            "poll" => "at the first poll",
            _ => "after the first await",
        };
        assert_eq!(letter.header("redrive-policy"), Some("Panicked"), "{value}");
        assert_eq!(letter.header("redrive-error-message"), Some(message));
        assert_eq!(letter.header("redrive-overall-attempts"), Some("1"), "{value}");
    }
    assert_eq!(letters.len(), 3);
    assert_eq!(member.flow()?.succeeded, 1);
    member.stop().await?;
    Ok(())
}

/// Panics when it is dropped.
struct Grudge;

impl Drop for Grudge {
    #[expect(clippy::panic, reason = "that is what is tried")]
    fn drop(&mut self) {
        panic!("that was not finished");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_panics_when_it_is_given_up_has_failed_all_the_same() -> Result<()> {
    let trial = Trial::new("grudge", 1).await?;
    let flow = FlowConfig::new(trial.flow()).with_timeout(Duration::from_millis(200));
    let member = trial
        .start(flow, |record: Record, _: Context| async move {
            if record.value() == Some(b"hangs") {
                let _grudge = Grudge;
                tokio::time::sleep(Duration::from_secs(3600)).await;
            }
        })
        .await?;
    trial.produce(["hangs", "fine"])?;
    let letters = trial.letters(1).await?;
    assert!(letters[0].header("redrive-error-message").unwrap().contains("200ms"));
    trial.settled(&[&trial.topic]).await?;
    assert_eq!(member.flow()?.running, 0);
    member.stop().await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_takes_longer_than_its_limit_is_a_failure_of_kind_timeout() -> Result<()> {
    let trial = Trial::new("timeout", 1).await?;
    let late = Policy::named("Late").then(Then::DeadLetter);
    let rules = Rules::default().with(Rule::new(On::kind(redrive::Kind::TIMEOUT), late));
    let flow =
        FlowConfig::new(single(&trial).with_rules(rules)).with_timeout(Duration::from_millis(200));
    let member = trial
        .start(flow, |_: Record, _: Context| async {
            tokio::time::sleep(Duration::from_secs(3600)).await;
        })
        .await?;
    trial.produce(["order"])?;
    let letters = trial.letters(1).await?;
    assert_eq!(letters[0].header("redrive-reason"), Some("policy"));
    assert!(letters[0].header("redrive-error-message").unwrap().contains("200ms"));
    let is_late = |event: &Event| matches!(event, Event::DeadLettered { error: Some(it), .. } if it.contains("timeout"));
    member.told("a timeout", is_late).await?;
    trial.settled(&[&trial.topic]).await?;
    member.stop().await?;
    Ok(())
}

/// The class and the rule both say no, but the handler knows better: it goes by the default.
#[tokio::test(flavor = "multi_thread")]
async fn a_handler_may_ask_for_a_retry_without_a_time() -> Result<()> {
    let trial = Trial::new("askretry", 1).await?;
    let rule = Rule::new(On::statuses(400..=499), Policy::named("ClientError"));
    let flow = single(&trial).with_rules(Rules::from(vec![rule]));
    let runs = Runs::default();
    let noted = runs.clone();
    let member = trial
        .start(flow, move |record: Record, context: Context| {
            let run = noted.note(&record, &context);
            async move {
                match run.attempt {
                    0 => Outcome::retry(Failure::of_status(404)),
                    _ => Outcome::Done,
                }
            }
        })
        .await?;
    trial.produce(["order"])?;
    let all = runs.reach(4).await?;
    let places: Vec<_> = all.iter().map(|it| (it.attempt, it.in_place)).collect();
    assert_eq!(places, [(0, 0), (0, 1), (0, 2), (1, 0)]);
    trial.settled(&[&trial.topic, &trial.retry()]).await?;
    assert!(trial.broker.read(&trial.dead_letters())?.is_empty());
    member.stop().await?;
    Ok(())
}

/// Two runs in place and two over the retry topic: only the last of them is the last.
#[tokio::test(flavor = "multi_thread")]
async fn the_last_attempt_is_known_to_the_handler() -> Result<()> {
    let trial = Trial::new("lastone", 1).await?;
    let told = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&told);
    let member = trial
        .start(single(&trial), move |_: Record, context: Context| {
            noted.lock().unwrap().push(context.is_last_attempt());
            async { Err::<(), _>(Failure::of_status(503)) }
        })
        .await?;
    trial.produce(["order"])?;
    trial.letters(1).await?;
    assert_eq!(*told.lock().unwrap(), [false, false, false, false, true]);
    member.stop().await?;
    Ok(())
}
