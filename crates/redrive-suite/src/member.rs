//! A member of the group: a process that can be killed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use redrive::config::{Config, Options, Syntax};
use redrive::{Consumer, Context, Event, Failure, Outcome, Record};

use crate::ledger::Ledger;
use crate::work::Task;

/// Runs a member until it is told to stop, with a config of one flow, and writes what it does to the ledger.
///
/// # Errors
///
/// The config cannot be run.
pub async fn run(config: &str, ledger: &Path) -> Result<()> {
    let ledger = Arc::new(Ledger::open(ledger)?);
    let lookup = |name: &str| std::env::var(name).ok();
    let options = Options { topic: None, group: None, env: &lookup };
    let loaded = Config::load(config, Syntax::Yaml, &options)?;
    let Some(config) = loaded.config else {
        anyhow::bail!("the config is wrong: {:?}", loaded.problems);
    };
    let topics: Vec<_> = config.flows.iter().map(|it| it.flow.source().to_string()).collect();
    let told = Arc::clone(&ledger);
    let mut consumer = Consumer::new(config).with_listener(move |event| match event {
        Event::TakenOver { topic, partition, epoch, .. } => told.owns(topic, *partition, *epoch),
        Event::Revoked { topic, partition, .. } => told.gives(topic, *partition),
        _ => {}
    });
    for topic in topics {
        let ledger = Arc::clone(&ledger);
        consumer = consumer.with_handler(topic, move |record: Record, context: Context| {
            handle(Arc::clone(&ledger), record, context)
        });
    }
    // Which part of the work is this process's own, where it is not all.
    if let Ok(role) = std::env::var("REDRIVE_SUITE_ROLE") {
        consumer = consumer.with_role(role.parse()?);
    }
    consumer.handle().stop_on_signals();
    consumer.run().await?;
    Ok(())
}

/// Does what the record asks for.
pub async fn handle(ledger: Arc<Ledger>, record: Record, context: Context) -> Outcome {
    let Some(task) = record.value().and_then(Task::from_value) else {
        return Outcome::Failed(Failure::of_status(422));
    };
    let due = record.header("redrive-due").and_then(|it| std::str::from_utf8(it).ok());
    let due = due.and_then(|it| it.parse().ok()).unwrap_or(0);
    let attempt = u64::from(context.overall_attempts());
    ledger.started(task.id, attempt, due);
    if task.takes > 0 {
        tokio::time::sleep(Duration::from_millis(task.takes)).await;
    }
    if attempt < task.fails {
        ledger.ended(task.id, attempt, false);
        return Outcome::Failed(Failure::of_status(503).with_message("not yet"));
    }
    if task.is_hopeless {
        ledger.ended(task.id, attempt, false);
        return Outcome::Failed(Failure::of_status(404));
    }
    ledger.ended(task.id, attempt, true);
    Outcome::Done
}
