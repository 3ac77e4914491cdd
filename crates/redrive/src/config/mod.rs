//! The config file: read, checked, and turned into flows.
//!
//! A file goes through four hands: the text becomes a tree of values that know where they stand
//! (`yaml`, `json`, `node`), the tree becomes typed sections (`read`, `raw`), the sections become
//! flows with all names derived (`build`), and what hardly does what was meant is told of
//! (`advice`). None of them stops at the first problem. Files of other libraries are turned into
//! Redrive's own form first (`foreign`).

mod admin;
mod advice;
mod build;
mod duration;
mod entity;
mod env;
mod foreign;
mod http;
mod json;
mod kafka;
mod node;
mod otlp;
mod problem;
mod raw;
mod read;
mod schema;
mod suggest;
mod yaml;

use std::time::Duration;

use redrive_core::headers::Dialect;
use redrive_core::lane::Breaker;
pub use redrive_core::lane::{Counted, OnDeadLetter};
use redrive_core::{Flow, Timestamp};

pub use admin::{Admin, AdminToken, Log, LogFormat, LogLevel};
pub use duration::{DurationError, format_duration, parse_duration};
pub use entity::{Entity, Pointer, PointerError};
pub use env::Lookup;
pub use http::{Auth, HttpConfig, Secret, Tls};
pub use kafka::Kafka;
pub(crate) use kafka::refused as refused_properties;
pub use node::Position;
pub use otlp::Otlp;
pub use problem::{Problem, Severity};
pub use raw::{DeadLetterFormat, Ordering};
pub use schema::{reference, schema};

use node::Node;
use problem::{Path, Place, Problems};
use raw::RawConfig;
use read::{FromNode, Reader};

/// A config that can be used.
#[derive(Clone, Debug)]
pub struct Config {
    /// How to reach Kafka.
    pub kafka: Option<Kafka>,
    /// The consumer group.
    pub group: Option<String>,
    /// What is consumed.
    pub flows: Vec<FlowConfig>,
    /// Where progress goes that does not fit commit metadata, where it is not `{group}.redrive`.
    pub state_topic: Option<String>,
    /// How often progress is committed.
    pub commit_interval: Duration,
    /// How long what is under way may take to end.
    pub drain: Drain,
    /// Whether a hop and the offset of its record are one transaction.
    pub exactly_once: bool,
    /// Where a group without offsets begins on a source topic, where its flow does not say so itself.
    pub start: Start,
    /// Where a running process can be asked how it is.
    pub admin: Option<Admin>,
    /// How the log is written.
    pub log: Log,
    /// Where traces go.
    pub otlp: Option<Otlp>,
}

/// Where a group without offsets begins on a source topic. Retry topics always begin with their earliest record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Start {
    /// With the earliest record.
    #[default]
    Earliest,
    /// With what comes from now on.
    Latest,
    /// With the first record that is not before this time.
    At(Timestamp),
}

/// How long what is under way may take to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// When partitions go to another member.
    pub revoke: Duration,
    /// When the process ends.
    pub shutdown: Duration,
}

/// # Defaults
///
/// 5 s when partitions go, 25 s when the process ends.
impl Default for Drain {
    fn default() -> Self {
        Self { revoke: Duration::from_secs(5), shutdown: Duration::from_secs(25) }
    }
}

/// How often progress is committed, where nothing else is said.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);

/// A source topic and everything about it.
#[derive(Clone, Debug)]
pub struct FlowConfig {
    /// What decides about its failures.
    pub flow: Flow,
    /// What takes its records.
    pub handler: Option<Handler>,
    /// How many of its records run at the same time.
    pub concurrency: u32,
    /// What runs in order.
    pub ordering: Ordering,
    /// What names the entity of a record, where the records of one entity run in order.
    pub entity: Entity,
    /// What becomes of an entity when one of its records is dead-lettered.
    pub on_dead_letter: OnDeadLetter,
    /// How a dead letter is written.
    pub dead_letter_format: DeadLetterFormat,
    /// The headers that are written beside Redrive's own.
    pub dialect: Dialect,
    /// The group of all its retry topics, where it is not the main one.
    pub retry_group: Option<String>,
    /// The group of each retry topic, where it has one of its own.
    pub tier_groups: Vec<Option<String>>,
    /// How long one run may take.
    pub timeout: Option<Duration>,
    /// How many retries are started a second, at the most.
    pub retry_rate: Option<u32>,
    /// Retry topics of earlier configs that have yet to run dry.
    pub draining: Vec<String>,
    /// What holds records back while the service behind is down.
    pub breaker: Option<BreakerConfig>,
    /// How many bytes of waiting records are kept in memory, for all partitions that the process has of the flow together.
    pub payload_budget: u64,
    /// Where a group without offsets begins on its source topic, where it is not where the config says.
    pub start: Option<Start>,
}

/// When records are held back because the service behind is down.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BreakerConfig {
    /// The share of runs that fail at which it opens, above 0 and up to 1.
    pub failures: f64,
    /// The time whose runs are looked at.
    pub window: Duration,
    /// How many runs there must be in that time.
    pub minimum: u32,
    /// The failures that count.
    pub counted: Counted,
    /// How long it waits before each probe.
    pub probe: Duration,
}

/// # Defaults
///
/// Half of at least 20 runs within 30 s, retryable failures alone, and a probe every 5 s.
impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            failures: 0.5,
            window: Duration::from_secs(30),
            minimum: 20,
            counted: Counted::Retryable,
            probe: Duration::from_secs(5),
        }
    }
}

impl From<BreakerConfig> for Breaker {
    fn from(it: BreakerConfig) -> Self {
        Breaker::new(it.failures)
            .with_window(it.window)
            .with_minimum(it.minimum)
            .with_counted(it.counted)
            .with_probe_every(it.probe)
    }
}

/// How many bytes of waiting records are kept, where nothing else is said.
const PAYLOAD_BUDGET: u64 = 64 << 20;

impl FlowConfig {
    /// A flow with the usual settings.
    pub fn new(flow: Flow) -> Self {
        Self {
            flow,
            handler: None,
            concurrency: 16,
            ordering: Ordering::None,
            entity: Entity::Key,
            on_dead_letter: OnDeadLetter::Hold,
            dead_letter_format: DeadLetterFormat::Raw,
            dialect: Dialect::Native,
            retry_group: None,
            tier_groups: Vec::new(),
            timeout: None,
            retry_rate: None,
            draining: Vec::new(),
            breaker: None,
            payload_budget: PAYLOAD_BUDGET,
            start: None,
        }
    }

    /// Begins here on its source topic, if the group has no offsets.
    #[must_use]
    pub fn with_start(mut self, start: Start) -> Self {
        self.start = Some(start);
        self
    }

    /// Lets so many of its records run at the same time.
    #[must_use]
    pub fn with_concurrency(mut self, records: u32) -> Self {
        self.concurrency = records;
        self
    }

    /// Runs the records of each entity in order, across source and retry topics.
    #[must_use]
    pub fn with_order_by(mut self, entity: Entity) -> Self {
        self.ordering = Ordering::Key;
        self.entity = entity;
        self
    }

    /// Says what becomes of an entity when one of its records is dead-lettered.
    #[must_use]
    pub fn with_on_dead_letter(mut self, what: OnDeadLetter) -> Self {
        self.on_dead_letter = what;
        self
    }

    /// Lets one run take so long.
    #[must_use]
    pub fn with_timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Starts at most so many records of its retry topics a second.
    #[must_use]
    pub fn with_retry_rate(mut self, per_second: u32) -> Self {
        self.retry_rate = Some(per_second);
        self
    }

    /// Reads a retry topic of an earlier config, too, which still has records.
    #[must_use]
    pub fn with_draining(mut self, topic: impl Into<String>) -> Self {
        self.draining.push(topic.into());
        self
    }

    /// Holds records back while the service behind is down.
    #[must_use]
    pub fn with_breaker(mut self, breaker: BreakerConfig) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// Keeps so many bytes of waiting records in memory, for all partitions that the process has of the flow together.
    #[must_use]
    pub fn with_payload_budget(mut self, bytes: u64) -> Self {
        self.payload_budget = bytes;
        self
    }
}

/// What takes the records.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Handler {
    /// A service that gets each record as a POST request.
    Http(HttpConfig),
}

/// How a file is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    /// YAML 1.2.
    Yaml,
    /// JSON, with comments and trailing commas allowed.
    Json,
}

impl Syntax {
    /// The syntax of a file by its name's ending, else by how it begins.
    pub fn of(file_name: &str, text: &str) -> Self {
        let ending = file_name.rsplit('.').next().unwrap_or_default().to_ascii_lowercase();
        let is_json = match ending.as_str() {
            "json" | "jsonc" => true,
            "yaml" | "yml" => false,
            _ => node::without_byte_order_mark(text).trim_start().starts_with(['{', '[']),
        };
        if is_json { Syntax::Json } else { Syntax::Yaml }
    }
}

/// What comes from outside the file.
pub struct Options<'a> {
    /// The source topic, for files of other libraries that do not name one.
    pub topic: Option<&'a str>,
    /// The consumer group, for the same files.
    pub group: Option<&'a str>,
    /// Where variables are looked up.
    pub env: Lookup<'a>,
}

/// A file that was read, with all that is wrong with it.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The config, if there is no error among the problems.
    pub config: Option<Config>,
    /// Everything that is wrong with it.
    pub problems: Vec<Problem>,
    /// What the file was in Redrive's own form, if it was another library's.
    pub converted: Option<String>,
}

/// Why a file cannot even be looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is another library's and names no source topic, and none was given.
    TopicNeeded,
    /// The topic that was given cannot be one.
    BadTopic(String),
    /// The group that was given cannot be one.
    BadGroup(String),
}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            LoadError::TopicNeeded => f.write_str(
                "the file names no source topic: give it with --topic, such as --topic orders",
            ),
            LoadError::BadTopic(message) | LoadError::BadGroup(message) => f.write_str(message),
        }
    }
}

impl std::error::Error for LoadError {}

impl Config {
    /// A config without a file.
    ///
    /// ```
    /// use redrive::config::{Config, FlowConfig};
    /// use redrive::{Flow, Strategy, Tier};
    ///
    /// let orders = Flow::new("orders").with_strategy(Strategy::Single(Tier::endless("orders.retry")));
    /// let config = Config::new("billing")
    ///     .with_kafka("bootstrap.servers", "localhost:9092")
    ///     .with_flow(FlowConfig::new(orders));
    /// assert_eq!(config.flows.len(), 1);
    /// ```
    pub fn new(group: impl Into<String>) -> Self {
        Self {
            kafka: None,
            group: Some(group.into()),
            flows: Vec::new(),
            state_topic: None,
            commit_interval: COMMIT_INTERVAL,
            drain: Drain::default(),
            exactly_once: false,
            start: Start::Earliest,
            admin: None,
            log: Log::default(),
            otlp: None,
        }
    }

    /// Begins here on source topics, if the group has no offsets.
    #[must_use]
    pub fn with_start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Sets a property of librdkafka.
    #[must_use]
    pub fn with_kafka(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let mut properties = match self.kafka.take() {
            Some(Kafka::Properties(properties)) => properties,
            Some(Kafka::Embedded) | None => Vec::new(),
        };
        properties.push((key.into(), value.into()));
        self.kafka = Some(Kafka::Properties(properties));
        self
    }

    /// Keeps progress that does not fit commit metadata in this topic.
    #[must_use]
    pub fn with_state_topic(mut self, topic: impl Into<String>) -> Self {
        self.state_topic = Some(topic.into());
        self
    }

    /// Commits progress so often.
    #[must_use]
    pub fn with_commit_interval(mut self, interval: Duration) -> Self {
        self.commit_interval = interval;
        self
    }

    /// Lets what is under way take so long to end.
    #[must_use]
    pub fn with_drain(mut self, drain: Drain) -> Self {
        self.drain = drain;
        self
    }

    /// Makes a hop and the offset of its record one transaction.
    #[must_use]
    pub fn with_exactly_once(mut self) -> Self {
        self.exactly_once = true;
        self
    }

    /// Adds a flow.
    #[must_use]
    pub fn with_flow(mut self, flow: FlowConfig) -> Self {
        self.flows.push(flow);
        self
    }

    /// Reads a config and tells everything that is wrong with it.
    ///
    /// ```
    /// use redrive::config::{Config, Options, Syntax};
    ///
    /// let options = Options { topic: None, group: None, env: &|_| None };
    /// let loaded = Config::load("flows: [{ topic: orders }]", Syntax::Yaml, &options).unwrap();
    /// assert!(loaded.problems.is_empty());
    /// assert_eq!(&**loaded.config.unwrap().flows[0].flow.dead_letter(), "orders.dlt");
    /// ```
    ///
    /// # Errors
    ///
    /// What was given beside the file does not fit it. Problems of the file itself are in
    /// [`Loaded`].
    pub fn load(text: &str, syntax: Syntax, options: &Options<'_>) -> Result<Loaded, LoadError> {
        let mut reader = Reader { env: options.env, out: Problems::default() };
        let Some(node) = parse(text, syntax, &mut reader.out) else {
            return Ok(Loaded { config: None, problems: reader.out.into_list(), converted: None });
        };
        let Some(found) = foreign::detect(&node) else {
            return Ok(read(&node, reader));
        };
        let topic = options.topic.ok_or(LoadError::TopicNeeded)?;
        if let Some(problem) = topic_problem(topic) {
            return Err(LoadError::BadTopic(problem));
        }
        let group = options.group.unwrap_or(topic);
        if group.trim().is_empty() {
            return Err(LoadError::BadGroup("the group's name is empty".to_owned()));
        }
        let converted =
            foreign::convert(&node, &found, topic, group, options.group.is_some(), &mut reader);
        Ok(match converted {
            Some(converted) => converted.load(reader.out),
            None => Loaded { config: None, problems: reader.out.into_list(), converted: None },
        })
    }

    /// The flow of this source topic.
    pub fn flow(&self, topic: &str) -> Option<&FlowConfig> {
        self.flows.iter().find(|it| **it.flow.source() == *topic)
    }
}

/// Why this is no topic's name, and what to do about it.
pub(crate) fn topic_problem(name: &str) -> Option<String> {
    let (message, hint) = read::topic_problem(name, &node::quoted(name))?;
    Some(format!("{message}: {hint}"))
}

fn parse(text: &str, syntax: Syntax, out: &mut Problems) -> Option<Node> {
    let text = node::without_byte_order_mark(text);
    if text.len() > node::MAX_BYTES {
        let message = "the file has more than 1 MiB";
        out.error(Place::default(), message, "1 MiB is the limit: split it into several configs");
        return None;
    }
    match syntax {
        Syntax::Yaml => yaml::parse(text, out),
        Syntax::Json => json::parse(text, out),
    }
}

fn read(node: &Node, mut reader: Reader<'_>) -> Loaded {
    let empty = Node { at: node.at, value: node::Value::Map(Vec::new()) };
    let is_empty = matches!(&node.value, node::Value::Scalar(it) if it.is_null());
    let raw = RawConfig::read(if is_empty { &empty } else { node }, &Path::Root, &mut reader);
    let mut out = reader.out;
    let config = raw.map(|raw| build::build(&raw, &mut out));
    let config = config.filter(|_| !out.has_errors());
    Loaded { config, problems: out.into_list(), converted: None }
}
