//! Redrive, as a service would embed it.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use anyhow::Result;
use redrive::config::{Config, Drain, Entity, FlowConfig};
use redrive::{
    Backoff, Consumer, Context, Delayed, Event, Failure, Flow, Handler, Outcome, Policy, Record,
    Strategy, Tier, Timestamp,
};

use super::nap::Naps;
use crate::ledger::{Ledger, What};
use crate::measure::{Sample, Tally, micros};
use crate::task::{self, Task};
use crate::turn::Turn;

fn config(kafka: &str, turn: &Turn) -> Config {
    let delay = Backoff::Fixed(Duration::from_millis(turn.task.delay));
    let policy = Policy::named("bench").with_delayed(Delayed::attempts(1).with_backoff(delay));
    let flow = Flow::new(turn.topic.as_str())
        .with_strategy(Strategy::Single(Tier::endless(turn.retry())))
        .with_dead_letter(turn.dead())
        .with_default(policy);
    let mut flow = FlowConfig::new(flow).with_concurrency(turn.concurrency);
    if turn.ordered {
        flow = flow.with_order_by(Entity::Key);
    }
    let mut config = Config::new(turn.group())
        .with_kafka("bootstrap.servers", kafka)
        .with_kafka("session.timeout.ms", turn.session.to_string())
        .with_kafka("heartbeat.interval.ms", (turn.session / 10).to_string())
        .with_state_topic(turn.state())
        .with_flow(flow);
    if turn.exactly_once {
        config = config.with_exactly_once();
    }
    if turn.task.stuck.is_some() {
        // A run that never ends is not waited for.
        config = config.with_drain(Drain { shutdown: Duration::from_secs(1), ..Drain::default() });
    }
    config
}

/// Does the turn: until all records have ended, or until it is told to stop.
pub(crate) fn run(kafka: &str, turn: &Turn) -> Result<Sample> {
    let tally = Arc::new(Tally::new(turn.until(), turn.numbered()));
    let ledger = turn.ledger.as_deref().map(Ledger::open).transpose()?.map(Arc::new);
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let mut consumer = Consumer::new(config(kafka, turn)).with_created_topics();
        let handle = consumer.handle();
        handle.stop_on_signals();
        tally.follow(move || handle.stop());
        if let Some(ledger) = ledger.clone() {
            consumer = consumer.with_listener(move |event| {
                if let Event::Assigned { .. } = event {
                    ledger.write(What::Assigned, 0, 0, None);
                }
            });
        }
        let tally = Arc::clone(&tally);
        let consumer = if turn.idle {
            consumer.with_handler(turn.topic.as_str(), move |record: Record, _: Context| {
                std::hint::black_box(record.value().map_or(0, <[u8]>::len));
                tally.begin();
                tally.end(1);
                async {}
            })
        } else {
            let naps =
                (turn.task.takes > 0).then(|| Naps::new(Duration::from_millis(turn.task.takes)));
            let task = turn.task.clone();
            // Where there are few, and no ledger.
            let is_noted = turn.task.percent == 100 && turn.window == 0 && ledger.is_none();
            let noted = if is_noted { turn.records } else { 0 };
            let failed = (0..noted).map(|_| AtomicI64::new(0)).collect();
            let service = Service { task, tally, ledger, naps, failed };
            consumer.with_handler(turn.topic.as_str(), service)
        };
        consumer.run().await
    })?;
    if turn.endless {
        tally.finish();
    }
    tally.sample()
}

/// What the records are for.
struct Service {
    task: Task,
    tally: Arc<Tally>,
    ledger: Option<Arc<Ledger>>,
    naps: Option<Naps>,
    /// When each record failed, in microseconds.
    failed: Vec<AtomicI64>,
}

impl Handler for Service {
    async fn handle(&self, record: Record, context: Context) -> Outcome {
        self.tally.begin();
        let Some(number) = task::number(record.value()) else {
            return Outcome::stop(Failure::of_type("Unnumbered"));
        };
        let attempt = context.overall_attempts();
        let due = || self.waits_until(number).or_else(|| due(&record));
        let late = if attempt > 0 { due().map(|it| micros() - it) } else { None };
        self.write(What::Start, number, attempt, late);
        if let Some(late) = late {
            self.tally.late(late);
        }
        if attempt == 0 {
            self.tally.first();
        }
        if self.task.stuck == Some(number) {
            return std::future::pending().await;
        }
        if let Some(naps) = &self.naps {
            self.tally.busy(naps.nap().await);
        }
        let fails = self.task.fails(number, attempt);
        self.write(if fails { What::Fail } else { What::Done }, number, attempt, None);
        if self.task.is_end(number, attempt) {
            self.tally.end_of(number);
        }
        if !fails {
            return Outcome::Done;
        }
        let now = micros();
        if let Some(at) = self.failed_at(number) {
            at.store(now, Ordering::Relaxed);
        }
        let failure = Failure::of_type("NotYet");
        if self.task.is_mixed() && attempt == 0 {
            // Rounded up, as Redrive rounds its own.
            let due = Timestamp::from_millis((now + 999) / 1000);
            return Outcome::retry_at(failure, due.after(self.task.delay(number)));
        }
        Outcome::Failed(failure)
    }
}

impl Service {
    fn failed_at(&self, number: u64) -> Option<&AtomicI64> {
        self.failed.get(usize::try_from(number).ok()?)
    }

    /// When a record that failed may run again, to the microsecond: by the moment and the delay, whatever the engine made of it.
    fn waits_until(&self, number: u64) -> Option<i64> {
        let delay = i64::try_from(self.task.delay(number).as_micros()).ok()?;
        Some(self.failed_at(number)?.load(Ordering::Relaxed) + delay)
    }

    fn write(&self, what: What, number: u64, attempt: u32, late: Option<i64>) {
        if let Some(ledger) = &self.ledger {
            ledger.write(what, number, attempt, late);
        }
    }
}

/// When a retried record may run, in microseconds.
fn due(record: &Record) -> Option<i64> {
    let text = std::str::from_utf8(record.header("redrive-due")?).ok()?;
    Some(text.parse::<i64>().ok()? * 1000)
}
