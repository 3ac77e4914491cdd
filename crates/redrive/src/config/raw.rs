//! The config as it is written: sections and keys, before names are derived and contradictions
//! looked for. The comments here are the config reference.

use std::ops::RangeInclusive;
use std::time::Duration;

use redrive_core::headers::Dialect;
use redrive_core::lane::{Counted, OnDeadLetter};
use redrive_core::{
    Backoff, Exponential, ExponentialRandom, HeaderMatch, Identifier, Kind, Linear, Match, On,
    Random, Then, Timestamp,
};
use serde_json::{Value as Json, json};

use super::Start;
use super::admin::{RawAdmin, RawLog};
use super::duration::format_duration;
use super::entity::Entity;
use super::http::{HeaderText, RequestHeaders, Secret, Url};
use super::kafka::Kafka;
use super::node::{Node, Value};
use super::otlp::RawOtlp;
use super::problem::{Path, Place};
use super::read::{
    At, FromNode, Named, Reader, Sections, Topic, is_filled_in, or_variable, section, shown, words,
    words_schema,
};
use super::suggest::nearest;

section! {
    /// The whole file.
    struct RawConfig = "config" {
        /// The JSON Schema, for editors. Redrive does not look at it.
        "$schema" schema: String, optional;
        /// How to reach Kafka: any properties of librdkafka such as `bootstrap.servers`, but for those
        /// that Redrive sets itself; or `embedded` for a broker within the process, whose state ends
        /// with it. Needed to run.
        "kafka" kafka: Kafka, optional;
        /// The consumer group. Needed to run.
        "group" group: String, optional;
        /// Lists of policies that several flows share: `- use: NAME` in a flow's `policies` stands
        /// for the list.
        "policy_sets" policy_sets: Named<At<Vec<At<RawPolicy>>>>, optional;
        /// What is consumed, one entry for each source topic.
        "flows" flows: Vec<At<RawFlow>>, required;
        /// The compacted topic for progress that does not fit the metadata of a commit.
        "state_topic" state_topic: Topic, default("`GROUP.redrive`");
        /// How often progress is committed.
        "commit_interval" commit_interval: CommitInterval, default("`1s`");
        /// How long what is under way may take to end.
        "drain" drain: RawDrain, default("`{ revoke: 5s, shutdown: 25s }`");
        /// Whether a hop and the offset of its record are one transaction.
        "exactly_once" exactly_once: bool, default("`false`");
        /// Where a group without offsets begins on its source topics: `earliest`, `latest`, or a time
        /// such as `2026-11-15T09:30:00Z`. Retry topics always begin with their earliest record.
        "start" start: Start, default("`earliest`");
        /// Health, metrics and commands over HTTP.
        "admin" admin: RawAdmin, default("none");
        /// How the log is written.
        "log" log: RawLog, default("`{ format: text, level: info }`");
        /// Traces over OTLP. `{}` stands for its defaults.
        "otlp" otlp: RawOtlp, default("none");
    }
    later "dangling", "relay";
}

section! {
    /// One source topic with its handler, retry topics, dead-letter topic and policies.
    struct RawFlow = "flow" {
        /// The source topic.
        "topic" topic: Topic, required;
        /// What takes the records. Needed to run.
        "handler" handler: RawHandler, optional;
        /// How long one run may take. Of an HTTP handler its own `timeout` counts, where it has one.
        "timeout" timeout: RunTimeout, default("no limit");
        /// How many records of the flow run at the same time in one process.
        "concurrency" concurrency: Concurrency, default("16");
        /// What runs in order: nothing, the records of one partition, or those of one entity.
        "ordering" ordering: Ordering, default("`none`");
        /// With `ordering: key`: what names the entity whose records run in order. The record's key, a header, or a JSON
        /// pointer into the value. A record without one is not ordered, and order is kept within a partition: all
        /// records of an entity have to be in the same one.
        "entity" entity: Entity, default("`key`");
        /// With `ordering: key`: what becomes of an entity when one of its records goes to the dead-letter topic. `hold`: those
        /// behind it follow it there, until an operator opens the entity again. `release`: those behind it run.
        "on_dead_letter" on_dead_letter: OnDeadLetter, default("`hold`");
        /// The retry topics.
        "retry" retry: RawRetry, default("`{ strategy: none }`");
        /// Where records go that cannot be helped.
        "dead_letter" dead_letter: RawDeadLetter, default("`{ topic: TOPIC.dlt, format: raw }`");
        /// The headers that are written beside Redrive's own, for readers that know another format.
        /// All formats are read.
        "headers" headers: Dialect, default("`native`");
        /// What to do about which failure. The most specific rule wins: error, status, kind and
        /// header before `any` and `retryable`; of equal ones the first.
        "policies" policies: Vec<At<RawPolicy>>, optional;
        /// What to do about a retryable failure that no policy matches.
        "default" default: RawDefault, default("3 runs in place, 100 ms apart, then the retry topics, then the dead-letter topic");
        /// Holds records back while the service behind is down. `{}` stands for its defaults.
        "breaker" breaker: RawBreaker, default("none");
        /// How many bytes of waiting records are kept in memory, for all partitions that this process
        /// has of the flow together: each has the same share, and at least 256 KiB. The others are
        /// read again when they are due. Records that are due or about to be may take three times as much
        /// besides, and those of the source topic that were read and have yet to start as much again.
        "payload_budget" payload_budget: Bytes, default("`64MiB`");
        /// Where a group without offsets begins on the source topic.
        "start" start: Start, default("the config's `start`");
    }
    later "schedule", "priority", "relay";
}

section! {
    /// What takes the records.
    struct RawHandler = "handler" {
        /// A service that gets each record as a POST request.
        "http" http: RawHttp, required;
    }
}

section! {
    /// A service that gets each record as a POST request.
    struct RawHttp = "http" {
        /// Where to.
        "url" url: Url, required;
        /// How long one request may take, with its response.
        "timeout" timeout: RunTimeout, default("the flow's `timeout`, else `30s`");
        /// How long it may take to make a connection, TLS included.
        "connect_timeout" connect_timeout: RunTimeout, default("`5s`");
        /// Headers of every request, such as `{ X-Api-Key: "${API_KEY}" }`. A `content-type` is for records without one.
        "headers" headers: RequestHeaders, optional;
        /// Who we are.
        "auth" auth: RawAuth, optional;
        /// Signs each request, so that the service knows whom it is from.
        "sign" sign: RawSign, optional;
        /// Whom we trust, and how we show who we are.
        "tls" tls: RawTls, default("the system's certificates");
        /// Whether the first KiB of a response goes into the failure's headers. `false` for services whose responses
        /// hold what must not be kept.
        "capture_response" capture_response: bool, default("`true`");
    }
}

section! {
    /// Who we are: one of them.
    struct RawAuth = "auth" {
        /// A token: `authorization: Bearer TOKEN`.
        "bearer" bearer: HeaderText, optional;
        /// A name and a password.
        "basic" basic: RawBasic, optional;
    }
}

section! {
    /// A name and a password.
    struct RawBasic = "basic" {
        /// The name.
        "username" username: String, required;
        /// The password.
        "password" password: Secret, required;
    }
}

section! {
    /// Signs each request, so that the service knows whom it is from.
    struct RawSign = "sign" {
        /// What both sides know, and nobody else.
        "secret" secret: Secret, required;
    }
}

section! {
    /// Certificates for TLS, in PEM files.
    struct RawTls = "tls" {
        /// The certificates that are trusted.
        "ca" ca: String, default("the system's");
        /// Our own certificate, with those that lead to its CA. Needs `key`.
        "cert" cert: String, optional;
        /// The key of our own certificate, without a password.
        "key" key: String, optional;
    }
}

section! {
    /// How long what is under way may take to end. What has not ended then runs again elsewhere.
    struct RawDrain = "drain" {
        /// When partitions go to another member.
        "revoke" revoke: DrainLimit, default("`5s`");
        /// When the process ends.
        "shutdown" shutdown: DrainLimit, default("`25s`");
    }
}

section! {
    /// Holds records back while the service behind is down: one at a time is let through, as a probe,
    /// until one succeeds. What fails meanwhile stays in its place and is not counted.
    struct RawBreaker = "breaker" {
        /// The share of runs that fail at which it opens: `50%` or `0.5`.
        "failures" failures: FailureShare, default("`50%`");
        /// The time whose runs are looked at.
        "window" window: BreakerWindow, default("`30s`");
        /// How many runs there must be in that time.
        "minimum" minimum: MinimumRuns, default("20");
        /// The failures that count: those where trying again could help, or all.
        "count" count: Counted, default("`retryable`");
        /// How long it waits before each probe.
        "probe" probe: ProbeWait, default("`5s`");
    }
}

section! {
    /// How a flow's retry topics are laid out.
    struct RawRetry = "retry" {
        /// `none`: no retry topics. `single`: one, again and again. `tiers`: one after the other.
        /// `delay-then-retry`: delay topics, and after each the one retry topic.
        /// `back-to-source`: one topic where records wait, then the source topic again.
        "strategy" strategy: StrategyName, default("`tiers` where there are `topics`, else `none`");
        /// The retry topics or delay topics, in order; one for `single` and `back-to-source`.
        "topics" topics: Vec<At<RawTier>>, optional;
        /// With `delay-then-retry`: the topic where records run again.
        "retry_topic" retry_topic: Topic, default("`TOPIC.retry`");
        /// The consumer group of all retry topics, where it is not the main one.
        "group" group: String, default("the config's `group`");
        /// How often a record is published because of failures, whatever the policies say.
        "max_overall_attempts" max_overall_attempts: Attempts, default("the largest of 10, any policy's attempts and the sum of the topics' attempts");
        /// A record is retried only if it is due within this time of its first failure.
        "max_elapsed" max_elapsed: Duration, default("no limit");
        /// How long a `Retry-After` may be where the policy's backoff has no maximum.
        "retry_after_max" retry_after_max: Duration, default("`1h`");
        /// How many records of the retry topics are started a second at the most, in one process. It
        /// spreads the catch-up after an outage.
        "rate" rate: Rate, default("no limit");
        /// Retry topics of earlier configs that still have records. They are read until they are taken
        /// out here.
        "draining" draining: Vec<At<Topic>>, optional;
    }
}

section! {
    /// One retry topic or delay topic.
    struct RawTier = "topic" {
        /// Its name. Needed, but for `single` and `back-to-source`.
        "topic" topic: Topic, default("`TOPIC.retry` with `single` and `back-to-source`");
        /// How long a record waits in it where its policy has no backoff. Needed, but for `single`
        /// and `back-to-source`, where the default backoff stands in: from 1 s to 5 min, doubling.
        "delay" delay: Duration, optional;
        /// How often a record is published to it by policies without a backoff.
        "attempts" attempts: TierAttempts, default("1; with `single` and `back-to-source` no limit");
        /// Its consumer group, where it is not the main one.
        "group" group: String, default("the `group` of `retry`, else the config's");
    }
}

section! {
    /// Where records go that cannot be helped.
    struct RawDeadLetter = "dead_letter" {
        /// The topic.
        "topic" topic: Topic, default("`TOPIC.dlt`");
        /// `raw`: key and value as they came, the rest in headers. `envelope`: a JSON object with
        /// everything in it.
        "format" format: DeadLetterFormat, default("`raw`");
    }
}

section! {
    /// What to do about one class of failure. With neither `in_memory` nor `delayed` there is no
    /// retry.
    struct RawPolicy = "policy" {
        /// What attempts are counted under. `{status}`, `{kind}` and `{error}` stand for what the
        /// failure has.
        "id" id: PolicyId, default("the simple name of the failure's error type");
        /// What it is for. Needed, unless it is `use`.
        "on" on: Condition, optional;
        /// More runs in place, before anything is published.
        "in_memory" in_memory: RawInMemory, optional;
        /// Retries over the retry topics.
        "delayed" delayed: RawDelayed, optional;
        /// What happens when the attempts are spent: `dead_letter`, `drop`, `stop`, or
        /// `{ stop: { exit: true } }` to end the process.
        "then" then: Then, default("`dead_letter`");
        /// A policy set that stands here instead.
        "use" set: String, optional;
    }
}

section! {
    /// What to do about a retryable failure that no policy matches.
    struct RawDefault = "default" {
        /// More runs in place, before anything is published.
        "in_memory" in_memory: RawInMemory, optional;
        /// Retries over the retry topics.
        "delayed" delayed: RawDelayed, optional;
        /// What happens when the attempts are spent.
        "then" then: Then, default("`dead_letter`");
    }
}

section! {
    /// More runs in place, within the same delivery.
    struct RawInMemory = "in_memory" {
        /// How many runs more.
        "attempts" attempts: Attempts, default("3");
        /// How long to wait before each.
        "backoff" backoff: Backoff, default("`{ fixed: 100ms }`");
    }
}

section! {
    /// Retries over the retry topics.
    struct RawDelayed = "delayed" {
        /// How many under this policy.
        "attempts" attempts: Attempts, default("no limit of its own");
        /// How long to wait. With it, the first topic whose delay is at least as long is taken.
        "backoff" backoff: Backoff, default("the topics' own delays, one topic after the other");
    }
}

section! {
    /// `initial × n`.
    struct RawLinear = "linear" {
        /// The first delay, and what each next one adds.
        "initial" initial: Duration, required;
        /// The longest delay.
        "max" max: Duration, default("no limit");
    }
}

section! {
    /// `base × multiplier^(n−1)`, then jitter, then `max`, then `min`.
    struct RawExponential = "exponential" {
        /// The first delay.
        "base" base: Duration, required;
        /// What each next one is multiplied by.
        "multiplier" multiplier: Multiplier, default("2");
        /// The share of a delay by which it is spread, up and down: `10%` or `0.1`.
        "jitter" jitter: Jitter, default("0");
        /// The shortest delay.
        "min" min: Duration, default("no limit");
        /// The longest delay.
        "max" max: Duration, default("no limit");
    }
}

section! {
    /// `min(initial × 2^(n−1) + random(0, initial), max)`.
    struct RawExponentialRandom = "exponential_random" {
        /// The first delay.
        "initial" initial: Duration, default("`1s`");
        /// The longest delay.
        "max" max: Duration, default("`5m`");
    }
}

section! {
    /// Anything between two bounds.
    struct RawRandom = "random" {
        /// The shortest delay.
        "min" min: Duration, required;
        /// The longest delay.
        "max" max: Duration, required;
    }
}

section! {
    /// What a policy is for. Several keys must all match, of a list any entry.
    struct RawMatch = "on" {
        /// The failure's error type, by simple name or full path.
        "error" error: OneOrMany<String>, optional;
        /// The HTTP status, or a range of them such as `500..599`.
        "status" status: OneOrMany<Statuses>, optional;
        /// The failure's kind: `timeout`, `connect`, `network`, `unavailable`, `rate-limit`,
        /// `conflict`, `panic`, `decode`, `validation`, `auth`, `business`, or a handler's own.
        "kind" kind: OneOrMany<KindName>, optional;
        /// A header of the record.
        "header" header: OneOrMany<RawHeaderMatch>, optional;
        /// Whether the failure is retryable by its class.
        "retryable" retryable: bool, optional;
    }
}

section! {
    /// A header of the record.
    struct RawHeaderMatch = "header" {
        /// Its name.
        "name" name: String, required;
        /// Its value.
        "value" value: String, default("any value");
    }
}

section! {
    /// The long form of `then: stop`.
    struct RawStop = "stop" {
        /// Whether the process ends instead of halting the flow.
        "exit" exit: bool, default("`false`");
    }
}

words! {
    /// What runs in order.
    pub enum Ordering {
        /// Nothing.
        None = "none",
        /// The records of one partition.
        Partition = "partition",
        /// The records of one entity.
        Key = "key",
    }
}

words! {
    /// How a dead letter is written.
    pub enum DeadLetterFormat {
        /// Key and value as they came.
        Raw = "raw",
        /// A JSON object with everything in it.
        Envelope = "envelope",
    }
}

words! {
    pub(super) enum StrategyName {
        None = "none",
        Single = "single",
        Tiers = "tiers",
        DelayThenRetry = "delay-then-retry",
        BackToSource = "back-to-source",
    }
}

impl FromNode for Dialect {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.word(node, path, &Dialect::ALL.map(|it| (it.as_str(), it)))
    }

    fn schema(_: &mut Sections) -> Json {
        words_schema(&Dialect::ALL.map(Dialect::as_str))
    }

    fn describe() -> String {
        Dialect::ALL.map(|it| format!("`{it}`")).join(", ")
    }
}

impl FromNode for Counted {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        reader.word(node, path, &[("retryable", Counted::Retryable), ("any", Counted::Any)])
    }

    fn schema(_: &mut Sections) -> Json {
        words_schema(&["retryable", "any"])
    }

    fn describe() -> String {
        "`retryable`, `any`".to_owned()
    }
}

/// The most attempts of anything.
pub(super) const MAX_ATTEMPTS: u32 = 10_000;

/// A whole number within bounds that the type knows.
macro_rules! bounded {
    ($(#[$meta:meta])* $name:ident, $range:expr) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name(pub(super) u32);

        impl FromNode for $name {
            fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
                let range: std::ops::RangeInclusive<u32> = $range;
                let range = u64::from(*range.start())..=u64::from(*range.end());
                let number = reader.number(node, path, range)?;
                u32::try_from(number).ok().map($name)
            }

            fn schema(_: &mut Sections) -> Json {
                let range: std::ops::RangeInclusive<u32> = $range;
                or_variable(json!({
                    "type": "integer", "minimum": range.start(), "maximum": range.end(),
                }))
            }

            fn describe() -> String {
                let range: std::ops::RangeInclusive<u32> = $range;
                format!("number from {} to {}", range.start(), range.end())
            }
        }
    };
}

bounded! {
    /// How often a policy tries.
    Attempts, 0..=MAX_ATTEMPTS
}
bounded! {
    /// How often a topic is taken.
    TierAttempts, 1..=MAX_ATTEMPTS
}
bounded! {
    /// How many records run at the same time.
    Concurrency, 1..=100_000
}
bounded! {
    /// How many retries are started a second.
    Rate, 1..=1_000_000
}
bounded! {
    /// How many runs a breaker wants to see.
    MinimumRuns, 1..=1_000_000
}

/// A duration within bounds that the type knows.
macro_rules! bounded_duration {
    ($(#[$meta:meta])* $name:ident, $range:expr) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $name(pub(super) Duration);

        impl FromNode for $name {
            fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
                duration_within(node, path, reader, &$range).map($name)
            }

            fn schema(sections: &mut Sections) -> Json {
                Duration::schema(sections)
            }

            fn describe() -> String {
                let (min, max) = bounds(&$range);
                format!("duration from {min} to {max}")
            }
        }
    };
}

const HOUR: Duration = Duration::from_hours(1);

bounded_duration! {
    /// How often progress is committed.
    CommitInterval, Duration::from_millis(10)..=HOUR
}
bounded_duration! {
    /// How long what is under way may take to end.
    DrainLimit, Duration::ZERO..=HOUR
}
bounded_duration! {
    /// How long one run may take.
    RunTimeout, Duration::from_millis(1)..=24 * HOUR
}
bounded_duration! {
    /// The time whose runs a breaker looks at.
    BreakerWindow, Duration::from_secs(1)..=HOUR
}
bounded_duration! {
    /// How long a breaker waits before each probe.
    ProbeWait, Duration::from_millis(10)..=HOUR
}

fn bounds(range: &RangeInclusive<Duration>) -> (String, String) {
    (format_duration(*range.start()), format_duration(*range.end()))
}

fn duration_within(
    node: &Node,
    path: &Path<'_>,
    reader: &mut Reader<'_>,
    range: &RangeInclusive<Duration>,
) -> Option<Duration> {
    let duration = Duration::read(node, path, reader)?;
    if range.contains(&duration) {
        return Some(duration);
    }
    let (min, max) = bounds(range);
    let message = format!(
        "`{}` should be from {min} to {max}, but is {}",
        path.last_key(),
        shown(node, path)
    );
    reader.error(node, path, message, "write a time within these bounds");
    None
}

impl FromNode for Start {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = reader.scalar(node, path)?.text;
        match text.as_str() {
            "earliest" => return Some(Start::Earliest),
            "latest" => return Some(Start::Latest),
            _ => {}
        }
        if let Some(time) = Timestamp::from_rfc3339(&text) {
            return Some(Start::At(time));
        }
        let value = shown(node, path);
        let is_time = |it: &str| Timestamp::from_rfc3339(it).is_some();
        let (message, hint) = if is_time(&format!("{text}Z")) {
            let hint = format!("add the zone: `{text}Z` for UTC, or `{text}+02:00`");
            (format!("{value} has no zone, so that nobody can say when it is"), hint)
        } else if is_time(&format!("{text}T00:00:00Z")) {
            let hint = format!("add the time of day with its zone: `{text}T00:00:00Z`");
            (format!("{value} is a date, and a day begins at another time in each zone"), hint)
        } else {
            let hint = "write `earliest`, `latest`, or a time such as `2026-11-15T09:30:00Z`";
            (format!("{value} says not where to begin"), hint.to_owned())
        };
        let hint =
            if is_filled_in(node) { "write a time like `2026-11-15T09:30:00Z`" } else { &hint };
        reader.error(node, path, message, hint);
        None
    }

    fn schema(_: &mut Sections) -> Json {
        let time =
            r"^\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}([.,]\d+)?([Zz]|[+-]\d{2}(:?\d{2})?)$|\$\{";
        json!({ "anyOf": [{ "enum": ["earliest", "latest"] }, { "type": "string", "pattern": time }] })
    }

    fn describe() -> String {
        "`earliest`, `latest`, or a time".to_owned()
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes(pub(super) u64);

impl Bytes {
    const MAX: u64 = 1 << 40;
    const UNITS: [(&'static str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];
}

impl FromNode for Bytes {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = reader.scalar(node, path)?.text;
        let unit =
            Bytes::UNITS.iter().find_map(|(unit, size)| Some((text.strip_suffix(unit)?, *size)));
        let (digits, size) = unit.unwrap_or((&text, 1));
        let is_number = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
        if !is_number {
            let message = format!("{} is no number of bytes", shown(node, path));
            reader.error(node, path, message, "write it like `512KiB`, `64MiB`, `1GiB` or `65536`");
            return None;
        }
        let bytes = digits.parse::<u64>().ok().and_then(|it| it.checked_mul(size));
        if let Some(bytes) = bytes.filter(|it| *it <= Bytes::MAX) {
            return Some(Bytes(bytes));
        }
        let message = format!(
            "`{}` should be at most 1024GiB, but is {}",
            path.last_key(),
            shown(node, path)
        );
        reader.error(node, path, message, "write a number within these bounds");
        None
    }

    fn schema(_: &mut Sections) -> Json {
        json!({ "anyOf": [
            { "type": "integer", "minimum": 0, "maximum": Bytes::MAX },
            { "type": "string", "pattern": r"^[0-9]+([KMG]iB)?$|\$\{" },
        ] })
    }

    fn describe() -> String {
        "number of bytes, such as `512KiB`".to_owned()
    }
}

/// A policy's identifier, and the text that it was made from.
#[derive(Clone, Debug)]
pub(super) struct PolicyId {
    pub(super) id: Identifier,
    pub(super) text: String,
}

impl FromNode for PolicyId {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = reader.text(node, path)?;
        if text.len() > Identifier::MAX_BYTES || text.contains(|it: char| it.is_control()) {
            let message = format!(
                "the identifier {} is too long for a header, or has control characters in it",
                shown(node, path)
            );
            reader.error(node, path, message, "use at most 255 bytes of plain text");
            return None;
        }
        match Identifier::parse(&text) {
            Ok(id) => Some(PolicyId { id, text }),
            Err(error) => {
                let reason = if is_filled_in(node) { String::new() } else { format!(": {error}") };
                let message = format!("{} is no identifier{reason}", shown(node, path));
                reader.error(
                    node,
                    path,
                    message,
                    "write it like `RateLimit` or `ServerError-{status}`",
                );
                None
            }
        }
    }

    fn schema(sections: &mut Sections) -> Json {
        String::schema(sections)
    }

    fn describe() -> String {
        "text".to_owned()
    }
}

/// The longest list of one key.
pub(super) const MAX_LIST: usize = 1000;

/// One entry, or a list of them.
#[derive(Clone, Debug)]
pub(super) struct OneOrMany<T>(pub(super) Vec<T>);

impl<T: FromNode> FromNode for OneOrMany<T> {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let Value::List(items) = &node.value else {
            return T::read(node, path, reader).map(|it| OneOrMany(vec![it]));
        };
        if items.is_empty() {
            let message = format!("`{}` has an empty list, which matches nothing", path.last_key());
            reader.error(node, path, message, "give it an entry, or leave the key out");
            return None;
        }
        if items.len() > MAX_LIST {
            let message = format!(
                "`{}` has a list of {} entries, but 1,000 is the limit",
                path.last_key(),
                items.len()
            );
            reader.error(node, path, message, "use ranges, or fewer entries");
            return None;
        }
        Vec::read(node, path, reader).map(OneOrMany)
    }

    fn schema(sections: &mut Sections) -> Json {
        let one = T::schema(sections);
        json!({ "anyOf": [one, { "type": "array", "minItems": 1, "items": one }] })
    }

    fn describe() -> String {
        format!("{}, or a list of them", T::describe())
    }
}

/// One HTTP status, or a range of them.
#[derive(Clone, Debug)]
pub(super) struct Statuses(RangeInclusive<u16>);

impl FromNode for Statuses {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let text = reader.scalar(node, path)?.text;
        let (first, last) = text.split_once("..").unwrap_or((&text, &text));
        let status = |it: &str| {
            let is_status = it.len() == 3 && it.bytes().all(|it| it.is_ascii_digit());
            is_status.then(|| it.parse::<u16>().ok()).flatten().filter(|it| *it >= 100)
        };
        let (message, hint) = match (status(first), status(last)) {
            (Some(first), Some(last)) if first <= last => return Some(Statuses(first..=last)),
            (Some(_), Some(_)) => (
                format!("the range {} ends before it begins", shown(node, path)),
                "put the lower status first".to_owned(),
            ),
            _ => (
                format!("{} is no HTTP status", shown(node, path)),
                "write it like `429`, or a range like `500..599`".to_owned(),
            ),
        };
        reader.error(node, path, message, &hint);
        None
    }

    fn schema(_: &mut Sections) -> Json {
        json!({ "anyOf": [
            { "type": "integer", "minimum": 100, "maximum": 999 },
            { "type": "string", "pattern": r"^[1-9][0-9]{2}(\.\.[1-9][0-9]{2})?$|\$\{" },
        ] })
    }

    fn describe() -> String {
        "status or range".to_owned()
    }
}

/// A failure's kind.
#[derive(Clone, Debug)]
pub(super) struct KindName(Kind);

impl FromNode for KindName {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let name = String::read(node, path, reader)?;
        let kinds = Kind::KNOWN;
        let known = || kinds.iter().map(Kind::as_str);
        if !reader.out.is_full()
            && !known().any(|it| it == name)
            && let Some(near) = nearest(&name, known())
        {
            let message =
                format!("the kind {} is not one that Redrive itself gives", shown(node, path));
            reader.out.warning(
                Place::new(path, node.at),
                message,
                format!("did you mean `{near}`?"),
            );
        }
        Some(KindName(Kind::new(name)))
    }

    fn schema(sections: &mut Sections) -> Json {
        String::schema(sections)
    }

    fn describe() -> String {
        "kind".to_owned()
    }
}

/// What a policy is for: `any`, a map, or a list of both.
#[derive(Clone, Debug)]
pub(super) struct Condition(pub(super) On);

impl FromNode for Condition {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::Scalar(_) => {
                if reader.scalar(node, path)?.text == "any" {
                    return Some(Condition(On::any()));
                }
                let message = format!(
                    "`on` should be `any` or say what it matches, but is {}",
                    shown(node, path)
                );
                reader.error(
                    node,
                    path,
                    message,
                    "write it like `on: { status: 503 }`, `on: { kind: timeout }` or `on: any`",
                );
                None
            }
            Value::List(items) => {
                if items.len() > MAX_LIST {
                    let message = format!(
                        "`on` has a list of {} entries, but 1,000 is the limit",
                        items.len()
                    );
                    reader.error(node, path, message, "use ranges, or fewer entries");
                    return None;
                }
                let errors = reader.out.errors();
                let mut all: Option<On> = None;
                for (index, item) in items.iter().enumerate() {
                    if let Value::List(_) = item.value {
                        let message = "a list inside a list".to_owned();
                        reader.error(
                            item,
                            &path.index(index),
                            message,
                            "one list is enough: any of it",
                        );
                        continue;
                    }
                    if let Some(Condition(on)) = Condition::read(item, &path.index(index), reader) {
                        all = Some(match all {
                            Some(others) => others.or(on),
                            None => on,
                        });
                    }
                }
                if items.is_empty() {
                    let message = "`on` has an empty list, which matches nothing".to_owned();
                    reader.error(node, path, message, "give it an entry, or write `on: any`");
                }
                all.filter(|_| reader.out.errors() == errors).map(Condition)
            }
            Value::Map(entries) => {
                if entries.is_empty() {
                    let message = "`on` is empty".to_owned();
                    reader.error(node, path, message, "say what to match, or write `on: any`");
                    return None;
                }
                let errors = reader.out.errors();
                let raw = RawMatch::read(node, path, reader)?;
                // What is wrong must not match more than was meant.
                (reader.out.errors() == errors).then(|| Condition(On::from(raw.into_match())))
            }
        }
    }

    fn schema(sections: &mut Sections) -> Json {
        let mut map = RawMatch::schema(sections);
        if let Some(map) = map.as_object_mut() {
            map.insert("minProperties".to_owned(), json!(1));
        }
        let any = words_schema(&["any"]);
        let one = json!({ "anyOf": [any, map] });
        json!({ "anyOf": [any, map, { "type": "array", "minItems": 1, "maxItems": MAX_LIST, "items": one }] })
    }

    fn describe() -> String {
        "`any`, [on](#on), or a list of them".to_owned()
    }
}

impl RawMatch {
    fn into_match(self) -> Match {
        fn list<T>(field: Option<At<OneOrMany<T>>>) -> Vec<T> {
            field.map(|it| it.value.0).unwrap_or_default()
        }
        let header = |it: RawHeaderMatch| {
            let value = it.value.map(|it| it.value);
            it.name.map(|name| HeaderMatch { name: name.value, value })
        };
        Match {
            errors: list(self.error),
            statuses: list(self.status).into_iter().map(|it| it.0).collect(),
            kinds: list(self.kind).into_iter().map(|it| it.0).collect(),
            headers: list(self.header).into_iter().filter_map(header).collect(),
            retryable: self.retryable.map(|it| it.value),
        }
    }
}

impl FromNode for Then {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let words = [
            ("dead_letter", Then::DeadLetter),
            ("drop", Then::Drop),
            ("stop", Then::Stop { exit: false }),
        ];
        if let Value::Scalar(_) = node.value {
            return reader.word(node, path, &words);
        }
        let (_, stop) = one_key(node, path, reader, &["stop"])?;
        let stop = RawStop::read(stop, &path.key("stop"), reader)?;
        Some(Then::Stop { exit: stop.exit.is_some_and(|it| it.value) })
    }

    fn schema(sections: &mut Sections) -> Json {
        let long = json!({
            "type": "object",
            "properties": { "stop": RawStop::schema(sections) },
            "required": ["stop"],
            "additionalProperties": false,
        });
        json!({ "anyOf": [words_schema(&["dead_letter", "drop", "stop"]), long] })
    }

    fn describe() -> String {
        "`dead_letter`, `drop`, `stop`, or `{ stop: `[stop](#stop)` }`".to_owned()
    }
}

/// The single key of a map that must have one out of several.
pub(super) fn one_key<'n>(
    node: &'n Node,
    path: &Path<'_>,
    reader: &mut Reader<'_>,
    known: &[&'static str],
) -> Option<(&'static str, &'n Node)> {
    let entries = reader.map(node, path)?;
    let mut found = None;
    for entry in entries {
        match known.iter().find(|it| **it == entry.key) {
            None => reader.unknown_key(entry, path, known, &[]),
            Some(key) if found.is_none() => found = Some((*key, &entry.value)),
            Some(key) => {
                let message =
                    format!("`{key}` stands beside another one: only one of them can count");
                reader.out.error(
                    Place::new(&path.key(key), entry.key_at),
                    message,
                    "keep one of them",
                );
            }
        }
    }
    if entries.is_empty() {
        let message = format!("`{}` is empty", path.last_key());
        reader.error(node, path, message, &format!("give it one of: {}", known.join(", ")));
    }
    found
}

const BACKOFFS: [&str; 6] =
    ["fixed", "linear", "exponential", "exponential_random", "random", "list"];

impl FromNode for Backoff {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let (key, node) = one_key(node, path, reader, &BACKOFFS)?;
        let path = &path.key(key);
        match key {
            "fixed" => Duration::read(node, path, reader).map(Backoff::Fixed),
            "linear" => {
                let raw = RawLinear::read(node, path, reader)?;
                starts_below(
                    raw.initial.as_ref(),
                    raw.max.as_ref().map(|it| it.value),
                    "initial",
                    reader,
                );
                let linear = Linear::new(raw.initial?.value);
                Some(raw.max.map_or(linear, |it| linear.with_max(it.value)).into())
            }
            "exponential" => RawExponential::read(node, path, reader)?.into_backoff(reader),
            "exponential_random" => {
                let raw = RawExponentialRandom::read(node, path, reader)?;
                let max = raw.max.as_ref().map_or(Duration::from_mins(5), |it| it.value);
                starts_below(raw.initial.as_ref(), Some(max), "initial", reader);
                let initial = raw.initial.map(|it| it.value);
                let backoff =
                    initial.map_or_else(ExponentialRandom::default, ExponentialRandom::new);
                Some(raw.max.map_or(backoff, |it| backoff.with_max(it.value)).into())
            }
            "random" => {
                let raw = RawRandom::read(node, path, reader)?;
                in_order(raw.min.as_ref(), raw.max.as_ref(), reader)?;
                Some(Random::between(raw.min?.value, raw.max?.value).into())
            }
            _ => {
                let delays: Vec<Duration> = Vec::read(node, path, reader)?;
                if delays.len() > MAX_LIST {
                    let message =
                        format!("the list has {} delays, but 1,000 is the limit", delays.len());
                    reader.error(
                        node,
                        path,
                        message,
                        "the last one repeats: leave out what is the same",
                    );
                    return None;
                }
                if delays.is_empty() {
                    let hint = "write it like `list: [10s, 1m, 5m]`";
                    reader.error(node, path, "the list of delays is empty".to_owned(), hint);
                    return None;
                }
                Some(Backoff::list(delays))
            }
        }
    }

    fn schema(sections: &mut Sections) -> Json {
        let list = json!({ "type": "array", "minItems": 1, "items": Duration::schema(sections) });
        json!({
            "type": "object",
            "properties": {
                "fixed": Duration::schema(sections),
                "linear": RawLinear::schema(sections),
                "exponential": RawExponential::schema(sections),
                "exponential_random": RawExponentialRandom::schema(sections),
                "random": RawRandom::schema(sections),
                "list": list,
            },
            "minProperties": 1,
            "maxProperties": 1,
            "additionalProperties": false,
        })
    }

    fn describe() -> String {
        "`{ fixed: DURATION }`, `{ linear: `[linear](#linear)` }`, \
         `{ exponential: `[exponential](#exponential)` }`, \
         `{ exponential_random: `[exponential_random](#exponential_random)` }`, \
         `{ random: `[random](#random)` }` or `{ list: [DURATION, …] }`"
            .to_owned()
    }
}

impl RawExponential {
    fn into_backoff(self, reader: &mut Reader<'_>) -> Option<Backoff> {
        in_order(self.min.as_ref(), self.max.as_ref(), reader)?;
        starts_below(self.base.as_ref(), self.max.as_ref().map(|it| it.value), "base", reader);
        let mut backoff = Exponential::new(self.base?.value);
        if let Some(it) = self.multiplier {
            backoff = backoff.with_multiplier(it.value.0);
        }
        if let Some(it) = self.jitter {
            backoff = backoff.with_jitter(it.value.0);
        }
        if let Some(it) = self.min {
            backoff = backoff.with_min(it.value);
        }
        if let Some(it) = self.max {
            backoff = backoff.with_max(it.value);
        }
        Some(backoff.into())
    }
}

fn in_order(
    min: Option<&At<Duration>>,
    max: Option<&At<Duration>>,
    reader: &mut Reader<'_>,
) -> Option<()> {
    match (min, max) {
        (Some(min), Some(max)) if min.value > max.value => {
            let message = format!("`min` is above `max`: {}", compared(min.value, max.value));
            reader.out.error(&min.place, message, "swap them, or raise `max`");
            None
        }
        _ => Some(()),
    }
}

fn starts_below(
    first: Option<&At<Duration>>,
    max: Option<Duration>,
    key: &str,
    reader: &mut Reader<'_>,
) {
    if let (Some(first), Some(max)) = (first, max)
        && first.value > max
    {
        let message = format!(
            "`{key}` is above `max` ({}), so every delay is `max`",
            compared(first.value, max)
        );
        reader.out.warning(&first.place, message, "lower it, raise `max`, or use `fixed`");
    }
}

fn compared(a: Duration, b: Duration) -> String {
    format!("{} is more than {}", format_duration(a), format_duration(b))
}

/// A share, as `10%` or `0.1`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jitter(pub(super) f64);

impl FromNode for Jitter {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        share(node, path, reader).map(Jitter)
    }

    fn schema(_: &mut Sections) -> Json {
        json!({ "anyOf": [
            { "type": "number", "minimum": 0, "maximum": 1 },
            { "type": "string", "pattern": r"^([0-9]{1,2}(\.[0-9]+)?|100(\.0+)?)%$|^(0(\.[0-9]+)?|1(\.0+)?)$|\$\{" },
        ] })
    }

    fn describe() -> String {
        "share".to_owned()
    }
}

fn share(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<f64> {
    let text = reader.scalar(node, path)?.text;
    let share = match text.strip_suffix('%') {
        Some(percent) => decimal(percent).map(|it| it / 100.0),
        None => decimal(&text),
    };
    if let Some(share) = share.filter(|it| *it <= 1.0) {
        return Some(share);
    }
    let message = format!("{} is no share from 0 to 1", shown(node, path));
    let hint = match decimal(&text) {
        Some(number) if number <= 100.0 && !is_filled_in(node) => {
            format!("did you mean `{number}%`?")
        }
        _ => "write it like `10%` or `0.1`".to_owned(),
    };
    reader.error(node, path, message, &hint);
    None
}

/// The share of failures at which a breaker opens. At none it would never close.
#[derive(Clone, Copy, Debug)]
pub(super) struct FailureShare(pub(super) f64);

impl FromNode for FailureShare {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let share = share(node, path, reader)?;
        if share >= 0.01 {
            return Some(FailureShare(share));
        }
        let message = format!(
            "`{}` should be from 1% to 100%, but is {}",
            path.last_key(),
            shown(node, path)
        );
        reader.error(node, path, message, "write it like `50%` or `0.5`");
        None
    }

    fn schema(_: &mut Sections) -> Json {
        json!({ "anyOf": [
            { "type": "number", "minimum": 0.01, "maximum": 1 },
            { "type": "string", "pattern": r"^([1-9][0-9]?(\.[0-9]+)?|100(\.0+)?)%$|^(0\.(0[1-9]|[1-9])[0-9]*|1(\.0+)?)$|\$\{" },
        ] })
    }

    fn describe() -> String {
        "share from `1%`".to_owned()
    }
}

/// A factor above 0.
#[derive(Clone, Copy, Debug)]
pub(super) struct Multiplier(pub(super) f64);

impl FromNode for Multiplier {
    fn read(node: &Node, path: &Path<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let scalar = reader.scalar(node, path)?;
        let number = decimal(&scalar.text).filter(|_| scalar.loose);
        if let Some(number) = number.filter(|it| (0.001..=1000.0).contains(it)) {
            return Some(Multiplier(number));
        }
        let message = format!("{} is no number from 0.001 to 1000", shown(node, path));
        reader.error(node, path, message, "write it like `2` or `1.5`");
        None
    }

    fn schema(_: &mut Sections) -> Json {
        or_variable(json!({ "type": "number", "minimum": 0.001, "maximum": 1000 }))
    }

    fn describe() -> String {
        "number from 0.001 to 1000".to_owned()
    }
}

/// A plain decimal number: digits, and perhaps a point with digits behind it.
pub(super) fn decimal(text: &str) -> Option<f64> {
    let is_decimal = text.starts_with(|it: char| it.is_ascii_digit())
        && text.ends_with(|it: char| it.is_ascii_digit())
        && text.bytes().all(|it| it.is_ascii_digit() || it == b'.');
    is_decimal.then(|| text.parse().ok()).flatten()
}
