//! One engine's turn: what it is told, as flags that engines in Rust and in Java understand.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use crate::measure::Until;
use crate::task::Task;

/// Partitions of every topic.
pub(crate) const PARTITIONS: i32 = 3;

/// Who does the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Engine {
    /// `BaseConsumer::poll`, record by record.
    Poll,
    /// Reading in batches, and nothing else.
    Batch,
    /// Reading, and producing each record again with the headers of a retry.
    Pipe,
    /// Redrive.
    Redrive,
    /// Redrive with order per key.
    Ordered,
    /// Spring Kafka's retry topics, as they come.
    Spring,
    /// The same, tuned.
    SpringTuned,
    /// Confluent's Parallel Consumer.
    Parallel,
}

impl Engine {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Engine::Poll => "poll",
            Engine::Batch => "batch",
            Engine::Pipe => "pipe",
            Engine::Redrive => "redrive",
            Engine::Ordered => "ordered",
            Engine::Spring => "spring",
            Engine::SpringTuned => "spring-tuned",
            Engine::Parallel => "parallel",
        }
    }

    /// As people know it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Engine::Poll => "raw: poll loop",
            Engine::Batch => "raw: batch read",
            Engine::Pipe => "raw: pipe",
            Engine::Redrive => "Redrive",
            Engine::Ordered => "Redrive, key order",
            Engine::Spring => "Spring Kafka, default",
            Engine::SpringTuned => "Spring Kafka, tuned",
            Engine::Parallel => "Parallel Consumer",
        }
    }

    /// Whether it needs a Java machine.
    pub(crate) fn is_jvm(self) -> bool {
        matches!(self, Engine::Spring | Engine::SpringTuned | Engine::Parallel)
    }
}

/// What an engine is to do.
#[derive(Args, Clone, Debug)]
pub(crate) struct Turn {
    /// The topic, for one engine alone. It has to be filled: see `--fill`.
    #[arg(long, default_value = "", hide = true)]
    pub(crate) topic: String,
    /// After how many seconds it is over, from the first delivery; without any, once all records have ended.
    #[arg(long = "for", default_value_t = 0, hide = true)]
    pub(crate) window: u64,
    /// How many records there are, or are to end.
    #[arg(long, default_value_t = 1_000_000, hide = true)]
    pub(crate) records: u64,
    /// How many may run at the same time.
    #[arg(long, default_value_t = 4096, hide = true)]
    pub(crate) concurrency: u32,
    /// What tells this turn's group and topics from those of others.
    #[arg(long, default_value = "", hide = true)]
    pub(crate) name: String,
    /// A handler that looks at nothing.
    #[arg(long, action = clap::ArgAction::Set, default_value_t = true, hide = true)]
    pub(crate) idle: bool,
    /// Order per key.
    #[arg(long, action = clap::ArgAction::Set, default_value_t = false, hide = true)]
    pub(crate) ordered: bool,
    /// Hops and offsets in one transaction.
    #[arg(long, action = clap::ArgAction::Set, default_value_t = false, hide = true)]
    pub(crate) exactly_once: bool,
    /// Where each run is written down.
    #[arg(long, hide = true)]
    pub(crate) ledger: Option<PathBuf>,
    /// Goes on until it is told to stop, whatever has ended.
    #[arg(long, action = clap::ArgAction::Set, default_value_t = false, hide = true)]
    pub(crate) endless: bool,
    /// After how many milliseconds a member that was killed is missed.
    #[arg(long, default_value_t = 45_000, hide = true)]
    pub(crate) session: u32,
    /// Another topic to warm up with, in the same process.
    #[arg(long, hide = true)]
    pub(crate) warm: Option<String>,
    /// How many records of it.
    #[arg(long, default_value_t = 0, hide = true)]
    pub(crate) warm_records: u64,
    #[command(flatten)]
    pub(crate) task: Task,
}

impl Turn {
    pub(crate) fn new(topic: &str, name: &str, records: u64, task: Task) -> Self {
        Self {
            topic: topic.to_owned(),
            window: 0,
            records,
            concurrency: 4096,
            name: name.to_owned(),
            idle: false,
            ordered: false,
            exactly_once: false,
            ledger: None,
            endless: false,
            session: 45_000,
            warm: None,
            warm_records: 0,
            task,
        }
    }

    /// The turn's own topics: where records are retried, where they end, and where progress is kept.
    pub(crate) fn retry(&self) -> String {
        format!("{}.{}.retry", self.topic, self.name)
    }

    pub(crate) fn dead(&self) -> String {
        format!("{}.{}.dlt", self.topic, self.name)
    }

    pub(crate) fn state(&self) -> String {
        format!("{}.{}.state", self.topic, self.name)
    }

    pub(crate) fn group(&self) -> String {
        format!("{}.{}", self.topic, self.name)
    }

    /// The same work on the topic to warm up with, which may be the one that is measured.
    pub(crate) fn warming(&self) -> Option<Turn> {
        let topic = self.warm.clone()?;
        Some(Turn { topic, name: format!("{}-warm", self.name), warm: None, ..self.clone() })
    }

    /// When it is over.
    pub(crate) fn until(&self) -> Until {
        let time = (self.window > 0).then(|| Duration::from_secs(self.window));
        Until { records: if self.endless { u64::MAX } else { self.records }, time }
    }

    /// How many records there may be, where it is noted which of them have ended: one that hangs comes on top. Where only time counts,
    /// it is not.
    pub(crate) fn numbered(&self) -> Option<u64> {
        (!self.idle && self.window == 0).then_some(self.records + 1)
    }

    /// As flags.
    pub(crate) fn flags(&self) -> Vec<String> {
        let task = &self.task;
        let mut flags = vec![
            ("topic", self.topic.clone()),
            ("records", self.records.to_string()),
            ("for", self.window.to_string()),
            ("concurrency", self.concurrency.to_string()),
            ("name", self.name.clone()),
            ("idle", self.idle.to_string()),
            ("ordered", self.ordered.to_string()),
            ("exactly-once", self.exactly_once.to_string()),
            ("endless", self.endless.to_string()),
            ("session", self.session.to_string()),
            ("warm-records", self.warm_records.to_string()),
            ("percent", task.percent.to_string()),
            ("delay", task.delay.to_string()),
            ("delay-max", task.delay_max.to_string()),
            ("hopeless", task.hopeless.to_string()),
            ("takes", task.takes.to_string()),
        ];
        flags.extend(self.ledger.as_ref().map(|it| ("ledger", it.display().to_string())));
        flags.extend(self.warm.clone().map(|it| ("warm", it)));
        flags.extend(task.stuck.map(|it| ("stuck", it.to_string())));
        flags.into_iter().flat_map(|(key, value)| [format!("--{key}"), value]).collect()
    }
}
