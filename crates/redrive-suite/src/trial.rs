//! One behaviour, tried: topics and a group of its own, and consumers in this process.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use redrive::config::{Config, FlowConfig};
use redrive::{
    Consumer, ConsumerHandle, Context, Event, Flow, FlowStatus, Handler, Record, RunError, State,
};
use tokio::task::JoinHandle;

use crate::broker::{Broker, Found, Sent};
use crate::ledger;

/// How long anything may take that should happen at once. The machine may be busy, or stand still for a while.
pub const SOON: Duration = Duration::from_secs(90);

/// How often a condition is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The topics and the group of one test.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Where they are.
    pub broker: Broker,
    /// The source topic.
    pub topic: String,
    /// The group.
    pub group: String,
}

impl Trial {
    /// Makes a source topic on the environment's broker.
    ///
    /// # Errors
    ///
    /// There is no broker, or it does not make the topic.
    pub async fn new(name: &str, partitions: i32) -> Result<Self> {
        Self::on(Broker::from_env()?, name, partitions).await
    }

    /// Makes a source topic on this broker.
    ///
    /// # Errors
    ///
    /// It does not make the topic.
    pub async fn on(broker: Broker, name: &str, partitions: i32) -> Result<Self> {
        let trial = Self::without_topic(broker, name);
        trial.broker.make_topics(&[(&trial.topic, partitions)], &[]).await?;
        Ok(trial)
    }

    /// Only makes up names.
    pub fn without_topic(broker: Broker, name: &str) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        if std::env::var_os("RUST_LOG").is_some() {
            let filter = tracing_subscriber::EnvFilter::from_default_env();
            _ = tracing_subscriber::fmt()
                .with_env_filter(filter)
                .with_writer(std::io::stderr)
                .try_init();
        }
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let id = format!("{}-{}-{count}", ledger::now() % 1_000_000_000, std::process::id());
        Self { broker, topic: format!("{name}-{id}"), group: format!("{name}-group-{id}") }
    }

    /// The retry topic, where there is one.
    pub fn retry(&self) -> String {
        format!("{}.retry", self.topic)
    }

    /// The dead-letter topic.
    pub fn dead_letters(&self) -> String {
        format!("{}.dlt", self.topic)
    }

    /// A flow of the source topic.
    pub fn flow(&self) -> Flow {
        Flow::new(self.topic.as_str())
    }

    /// A config with this flow, that notices soon when somebody is gone and commits often.
    pub fn config(&self, flow: impl Into<Flows>) -> Config {
        let config = Config::new(self.group.as_str())
            .with_kafka("bootstrap.servers", self.broker.address.as_str())
            .with_kafka("session.timeout.ms", "6000")
            .with_kafka("heartbeat.interval.ms", "500")
            .with_flow(flow.into().0);
        let exactly_once = std::env::var_os("EXACTLY_ONCE").is_some();
        Config { commit_interval: Duration::from_millis(100), exactly_once, ..config }
    }

    /// The same without transactions, whose markers take offsets of their own.
    pub fn plain_config(&self, flow: impl Into<Flows>) -> Config {
        Config { exactly_once: false, ..self.config(flow) }
    }

    /// Starts a consumer with this flow, and waits until it has joined.
    ///
    /// # Errors
    ///
    /// It does not join.
    pub async fn start(&self, flow: impl Into<Flows>, handler: impl Handler) -> Result<Member> {
        self.start_with(self.config(flow), handler).await
    }

    /// Starts a consumer with this config, and waits until it has joined.
    ///
    /// # Errors
    ///
    /// It does not join.
    pub async fn start_with(&self, config: Config, handler: impl Handler) -> Result<Member> {
        let member = self.spawn(config, handler);
        member.joined().await?;
        Ok(member)
    }

    /// Starts a consumer with this config. Topics that are missing are made, but for the source.
    pub fn spawn(&self, config: Config, handler: impl Handler) -> Member {
        let mut consumer = Consumer::new(config).with_handler(self.topic.as_str(), handler);
        if let Some(broker) = &self.broker.embedded {
            consumer = consumer.with_broker(Arc::clone(broker));
        }
        Self::spawn_consumer(consumer.with_created_topics())
    }

    /// Starts a consumer as it is.
    pub fn spawn_consumer(consumer: Consumer) -> Member {
        let events: Arc<Mutex<Vec<Event>>> = Arc::default();
        let told = Arc::clone(&events);
        let consumer = consumer.with_listener(move |event| told.lock().push(event.clone()));
        let (handle, error) = (consumer.handle(), Arc::<Mutex<String>>::default());
        let noted = Arc::clone(&error);
        let task = tokio::spawn(async move {
            let result = consumer.run().await;
            *noted.lock() = format!("it ended: {result:?}");
            result
        });
        Member { handle, events, end: error, task }
    }

    /// Produces values to partition 0 of the source topic.
    ///
    /// # Errors
    ///
    /// They are not acknowledged.
    pub fn produce(&self, values: impl IntoIterator<Item = impl Display>) -> Result<()> {
        let records: Vec<_> = values.into_iter().map(|it| Sent::value(it.to_string())).collect();
        self.broker.send(&self.topic, &records)
    }

    /// Waits until the dead-letter topic has so many records, and gives them.
    ///
    /// # Errors
    ///
    /// It does not get them.
    pub async fn letters(&self, count: usize) -> Result<Vec<Found>> {
        self.records(&self.dead_letters(), count).await
    }

    /// Waits until a topic has so many records, and gives them.
    ///
    /// # Errors
    ///
    /// It does not get them.
    pub async fn records(&self, topic: &str, count: usize) -> Result<Vec<Found>> {
        let limit = Instant::now() + SOON;
        loop {
            // It may not be there yet.
            let found = self.broker.read(topic).unwrap_or_default();
            if found.len() >= count {
                return Ok(found);
            }
            if Instant::now() > limit {
                bail!("{topic} has {} of {count} records", found.len());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// How many records of a topic are below the end and not below the group's commit point.
    ///
    /// # Errors
    ///
    /// The broker does not answer.
    pub fn unsettled(&self, topic: &str) -> Result<i64> {
        let bounds = self.broker.bounds(topic)?;
        let committed = self.broker.committed(&self.group, topic, i32::try_from(bounds.len())?)?;
        let left =
            bounds.iter().zip(&committed).map(|(bounds, it)| bounds.1 - it.0.unwrap_or(bounds.0));
        Ok(left.sum())
    }

    /// Waits until everything in these topics is settled and committed.
    ///
    /// # Errors
    ///
    /// It is not, in time.
    pub async fn settled(&self, topics: &[&str]) -> Result<()> {
        let limit = Instant::now() + SOON;
        for topic in topics {
            loop {
                // Brokers that were away may be known again and not yet answer everything.
                let left = self.unsettled(topic);
                if matches!(left, Ok(0)) {
                    break;
                }
                if Instant::now() > limit {
                    bail!("{topic} has {} records that are not settled", left?);
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
        Ok(())
    }
}

/// A flow, with settings or without.
pub struct Flows(FlowConfig);

impl From<Flow> for Flows {
    fn from(flow: Flow) -> Self {
        Self(FlowConfig::new(flow))
    }
}

impl From<FlowConfig> for Flows {
    fn from(flow: FlowConfig) -> Self {
        Self(flow)
    }
}

/// A consumer that runs.
pub struct Member {
    /// What stops it and looks at it.
    pub handle: ConsumerHandle,
    events: Arc<Mutex<Vec<Event>>>,
    end: Arc<Mutex<String>>,
    task: JoinHandle<Result<(), RunError>>,
}

impl Member {
    /// Waits until it was assigned its partitions.
    ///
    /// # Errors
    ///
    /// It was not, in time.
    pub async fn joined(&self) -> Result<()> {
        self.until("the consumer joined", |state| state.is_joined).await
    }

    /// How it is.
    pub fn state(&self) -> State {
        self.handle.state()
    }

    /// How its flow is.
    ///
    /// # Errors
    ///
    /// It does not run yet.
    pub fn flow(&self) -> Result<FlowStatus> {
        self.state().flows.into_iter().next().context("the consumer does not run")
    }

    /// What it told so far.
    pub fn events(&self) -> Vec<Event> {
        self.events.lock().clone()
    }

    /// Waits until its state is such.
    ///
    /// # Errors
    ///
    /// It is not, in time, or it ended.
    pub async fn until(&self, what: &str, is_so: impl Fn(&State) -> bool) -> Result<()> {
        let looked = until(what, || self.task.is_finished() || is_so(&self.state())).await;
        if looked.is_err() || !is_so(&self.state()) {
            let state = self.state();
            bail!("never came: {what}; {state:?}\n{}", self.story());
        }
        Ok(())
    }

    /// Waits until it has told such an event.
    ///
    /// # Errors
    ///
    /// It has not, in time.
    pub async fn told(&self, what: &str, is_it: impl Fn(&Event) -> bool) -> Result<()> {
        let told = until(what, || self.events.lock().iter().any(&is_it)).await;
        told.with_context(|| self.story())
    }

    /// What it told last, and how it ended if it did.
    pub fn story(&self) -> String {
        let events = self.events();
        let last = events.get(events.len().saturating_sub(30)..).unwrap_or_default();
        let told: String = last.iter().map(|it| format!("\n  {it}")).collect();
        format!("it told:{told}\n{}", self.end.lock())
    }

    /// Lets it end, and waits for that.
    ///
    /// # Errors
    ///
    /// It does not end, or not well.
    pub async fn stop(self) -> Result<Vec<Event>> {
        self.handle.stop();
        let events = Arc::clone(&self.events);
        self.ended().await??;
        Ok(events.lock().clone())
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    ///
    /// It does not end.
    pub async fn ended(self) -> Result<Result<(), RunError>> {
        let ended = tokio::time::timeout(SOON, self.task).await;
        Ok(ended.context("the consumer does not end")??)
    }
}

/// Waits until something is so.
///
/// # Errors
///
/// It is not, in time.
pub async fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let limit = Instant::now() + SOON;
    while !is_so() {
        if Instant::now() > limit {
            bail!("never came: {what}");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// A run of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The record's value, as text.
    pub value: String,
    /// Where it was read.
    pub topic: String,
    /// Where it was read.
    pub partition: i32,
    /// How often it was published because of failures.
    pub attempt: u32,
    /// How often it was run before, within this delivery.
    pub in_place: u32,
    /// When it was due, in milliseconds, where it was retried.
    pub due: Option<i64>,
    /// When it ran.
    pub at: i64,
}

/// All runs of a handler.
#[derive(Clone, Debug, Default)]
pub struct Runs(Arc<Mutex<Vec<Run>>>);

impl Runs {
    /// Notes a run.
    pub fn note(&self, record: &Record, context: &Context) -> Run {
        let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
        let due = record.header("redrive-due").and_then(|it| text(it).parse().ok());
        let run = Run {
            value: record.value().map(text).unwrap_or_default(),
            topic: record.topic().to_owned(),
            partition: record.partition(),
            attempt: context.overall_attempts(),
            in_place: context.runs_in_place(),
            due,
            at: ledger::now(),
        };
        self.0.lock().push(run.clone());
        run
    }

    /// All of them, in their order.
    pub fn all(&self) -> Vec<Run> {
        self.0.lock().clone()
    }

    /// How many there were.
    pub fn count(&self) -> usize {
        self.0.lock().len()
    }

    /// Those of the record with this value.
    pub fn of(&self, value: &str) -> Vec<Run> {
        self.0.lock().iter().filter(|it| it.value == value).cloned().collect()
    }

    /// Waits until there were so many.
    ///
    /// # Errors
    ///
    /// There were not, in time.
    pub async fn reach(&self, count: usize) -> Result<Vec<Run>> {
        let reached = until(&format!("{count} runs"), || self.count() >= count).await;
        reached.with_context(|| format!("there were {}", self.count()))?;
        Ok(self.all())
    }
}
