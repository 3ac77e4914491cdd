//! What is there, what is missing and what differs: decided from what the brokers told, without asking them anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::needed::{Needed, Purpose};
use crate::config::format_duration;

/// How long topics are kept at least: retry topics, and dead letters.
const KEPT: Duration = Duration::from_hours(7 * 24);
const DEAD_LETTERS_KEPT: Duration = Duration::from_hours(30 * 24);
/// How many replicas a topic gets where there are so many brokers.
const REPLICAS: i32 = 3;

/// What a topic looks like.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    pub(crate) partitions: i32,
    /// Of the partition that has the fewest.
    pub(crate) replication: i32,
    /// None where they may not be looked at.
    pub(crate) settings: Option<BTreeMap<String, Setting>>,
}

/// A setting of a topic, and whether the topic has it itself rather than from its brokers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) value: String,
    pub(crate) is_own: bool,
}

impl Facts {
    fn setting(&self, name: &str) -> Option<&Setting> {
        self.settings.as_ref()?.get(name)
    }

    fn number(&self, name: &str) -> Option<i64> {
        self.setting(name)?.value.parse().ok()
    }

    /// How large a batch of records may be.
    pub(crate) fn largest_batch(&self) -> Option<i64> {
        self.number("max.message.bytes")
    }

    /// How long it keeps records, if not for ever.
    pub(crate) fn retention(&self) -> Option<Duration> {
        self.number("retention.ms").and_then(|it| u64::try_from(it).ok()).map(Duration::from_millis)
    }
}

/// What the brokers told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen {
    /// How many brokers are up.
    pub(crate) brokers: usize,
    /// Whether they make topics by themselves that somebody asks for. None if they do not say.
    pub(crate) auto_creates: Option<bool>,
    /// The topics that were asked for and are there.
    pub(crate) topics: BTreeMap<Arc<str>, Facts>,
    /// Those that may not be looked at.
    pub(crate) hidden: BTreeSet<Arc<str>>,
    /// The names of all topics, by how Kafka compares them.
    pub(crate) names: BTreeMap<String, String>,
}

/// Kafka refuses names that differ in nothing else.
pub(crate) fn compared(name: &str) -> String {
    name.replace('.', "_")
}

/// A topic that a config needs, and how it is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// What it is there for.
    pub purpose: Purpose,
    /// The flows that use it, by their source topics.
    pub flows: Vec<Arc<str>>,
    /// Whether it is there.
    pub status: Status,
    /// Where it is not as it should be.
    pub differences: Vec<Difference>,
}

/// Whether a topic is there.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    /// It is.
    Present {
        /// How many partitions it has.
        partitions: i32,
        /// How many replicas these have at least.
        replication: i32,
    },
    /// It is not, and would be made like this.
    Missing(Target),
    /// It is not, and cannot be made: why, and what to do about it.
    Blocked(String),
    /// Nobody knows: it may not be looked at.
    Hidden,
}

/// How a topic is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Target {
    /// How many partitions it gets.
    pub partitions: i32,
    /// How many replicas they get.
    pub replication: i32,
    /// Its settings.
    pub settings: Vec<(&'static str, String)>,
    /// What could not be had.
    pub notes: Vec<String>,
}

/// Something about a topic that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Difference {
    /// What differs: a setting of the topic, `partitions` or `replication`.
    pub setting: &'static str,
    /// What it is.
    pub is: String,
    /// What it should be.
    pub should: String,
    /// What comes of it.
    pub meaning: String,
    /// What to do about it.
    pub fix: String,
    /// Whether a consumer refuses to run with it.
    pub is_refused: bool,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { setting, is, should, meaning, fix, .. } = self;
        write!(f, "{setting} is {is} and should be {should}: {meaning}; {fix}")
    }
}

/// What is asked for beside the config.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wishes<'a> {
    /// How many partitions a source topic gets that is missing. None leaves it missing.
    pub(crate) source_partitions: Option<i32>,
    /// How the brokers are reached, for commands that are shown.
    pub(crate) brokers: &'a str,
}

/// How all topics are.
pub(crate) fn topics(needed: &[Needed], seen: &Seen, wishes: Wishes<'_>) -> Vec<Topic> {
    let mut names = seen.names.clone();
    let mut topics = Vec::with_capacity(needed.len());
    for it in needed {
        let (status, differences) = match seen.topics.get(&it.topic) {
            Some(facts) => {
                let Facts { partitions, replication, .. } = *facts;
                let differences = Differences::of(it, facts, seen, wishes.brokers);
                (Status::Present { partitions, replication }, differences)
            }
            None if seen.hidden.contains(&it.topic) => (Status::Hidden, Vec::new()),
            None => {
                let clash = names.insert(compared(&it.topic), it.topic.to_string());
                let status = match clash.filter(|other| **other != *it.topic) {
                    Some(other) => Status::Blocked(format!(
                        "Kafka takes it for the same as {other}: give it a name that differs in more than `.` and `_`"
                    )),
                    None => missing(it, seen, wishes.source_partitions),
                };
                (status, Vec::new())
            }
        };
        topics.push(Topic {
            name: Arc::clone(&it.topic),
            purpose: it.purpose,
            flows: it.sources.clone(),
            status,
            differences,
        });
    }
    topics
}

/// What becomes of a topic that is missing.
fn missing(needed: &Needed, seen: &Seen, source_partitions: Option<i32>) -> Status {
    let sources = Sources::of(needed, seen);
    let is_missing = |it: &&Arc<str>| !seen.topics.contains_key(*it) && source_partitions.is_none();
    let partitions = match needed.purpose {
        Purpose::State => 1,
        Purpose::Draining => {
            let fix = "a draining topic is only read: take it out of `draining`";
            return Status::Blocked(fix.to_owned());
        }
        Purpose::Source => match source_partitions {
            Some(partitions) => partitions,
            None => {
                return Status::Blocked(
                    "a source topic is its producers': make it, or have it made with `redrive topics apply --create-sources PARTITIONS`".to_owned(),
                );
            }
        },
        Purpose::Retry | Purpose::DeadLetter => match needed.sources.iter().find(is_missing) {
            Some(source) => {
                let fix = "its partitions follow from its source topic";
                return Status::Blocked(format!("{fix} {source}, which is not there"));
            }
            None => {
                let count = |it: &Arc<str>| {
                    seen.topics.get(it).map_or(source_partitions.unwrap_or(1), |it| it.partitions)
                };
                needed.sources.iter().map(count).max().unwrap_or(1).max(1)
            }
        },
    };
    let brokers = i32::try_from(seen.brokers).unwrap_or(i32::MAX).max(1);
    let wanted = REPLICAS.max(sources.replication);
    let replication = wanted.min(brokers);
    let mut target = Target { partitions, replication, settings: Vec::new(), notes: Vec::new() };
    if replication < wanted {
        let brokers =
            if brokers == 1 { "1 broker is".to_owned() } else { format!("{brokers} brokers are") };
        target.notes.push(format!("replication {wanted} would be safer, but only {brokers} up"));
    }
    target.settings = settings(needed);
    if needed.purpose != Purpose::Source {
        copy_settings(needed, &sources, &mut target);
    }
    Status::Missing(target)
}

/// The settings that follow from what a topic is for.
fn settings(needed: &Needed) -> Vec<(&'static str, String)> {
    match needed.purpose {
        Purpose::Source | Purpose::Draining => Vec::new(),
        Purpose::Retry => vec![
            ("cleanup.policy", "delete".to_owned()),
            ("retention.ms", millis(retention(needed))),
            ("retention.bytes", "-1".to_owned()),
            ("message.timestamp.type", "LogAppendTime".to_owned()),
        ],
        Purpose::DeadLetter => vec![
            ("cleanup.policy", "delete".to_owned()),
            ("retention.ms", millis(DEAD_LETTERS_KEPT)),
            ("retention.bytes", "-1".to_owned()),
        ],
        Purpose::State => vec![("cleanup.policy", "compact".to_owned())],
    }
}

/// Takes over what the source topics have of their own. What they have from the brokers the new topic has, too.
fn copy_settings(needed: &Needed, sources: &Sources, target: &mut Target) {
    if let Some((bytes, true)) =
        sources.max_message_bytes.filter(|_| needed.purpose != Purpose::State)
    {
        target.settings.push(("max.message.bytes", bytes.to_string()));
    }
    if let Some((replicas, is_own)) = sources.min_insync_replicas {
        let possible = i64::from(target.replication);
        if is_own || replicas > possible {
            target.settings.push(("min.insync.replicas", replicas.min(possible).to_string()));
        }
        if replicas > possible {
            target.notes.push(format!(
                "min.insync.replicas is {replicas} on the source, but can be no more than the replication"
            ));
        }
    }
    if sources.is_hidden {
        target.notes.push(
            "the source's settings may not be looked at, so that max.message.bytes and min.insync.replicas are the brokers' own: allow DescribeConfigs on it".to_owned(),
        );
    }
}

/// How long a retry topic keeps records.
fn retention(needed: &Needed) -> Duration {
    KEPT.max(needed.longest.saturating_mul(2))
}

/// For Kafka, which has a signed number of 64 bits.
fn millis(duration: Duration) -> String {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX).to_string()
}

/// What the source topics of a topic have in common: the most of each.
#[derive(Debug, Default)]
struct Sources {
    partitions: i32,
    replication: i32,
    /// With whether a source has it of its own.
    max_message_bytes: Option<(i64, bool)>,
    min_insync_replicas: Option<(i64, bool)>,
    /// Whether the settings of one may not be looked at.
    is_hidden: bool,
}

impl Sources {
    fn of(needed: &Needed, seen: &Seen) -> Self {
        let mut sources = Self::default();
        for facts in needed.sources.iter().filter_map(|it| seen.topics.get(it)) {
            let most = |so_far: Option<(i64, bool)>, name: &str| {
                let own = facts.setting(name).is_some_and(|it| it.is_own);
                let Some(number) = facts.number(name) else {
                    return so_far;
                };
                Some(so_far.map_or((number, own), |it| (it.0.max(number), it.1 || own)))
            };
            sources.max_message_bytes = most(sources.max_message_bytes, "max.message.bytes");
            sources.min_insync_replicas = most(sources.min_insync_replicas, "min.insync.replicas");
            sources.partitions = sources.partitions.max(facts.partitions);
            sources.replication = sources.replication.max(facts.replication);
            sources.is_hidden |= facts.settings.is_none();
        }
        sources
    }
}

/// Collects where a topic is not as it should be.
struct Differences<'a> {
    topic: &'a str,
    facts: &'a Facts,
    brokers: &'a str,
    found: Vec<Difference>,
}

impl<'a> Differences<'a> {
    fn of(needed: &'a Needed, facts: &'a Facts, seen: &Seen, brokers: &'a str) -> Vec<Difference> {
        let sources = Sources::of(needed, seen);
        // Of the brokers that are shown, one is enough.
        let brokers = brokers.split(',').next().map(str::trim).filter(|it| !it.is_empty());
        let topic = &*needed.topic;
        let mut all =
            Self { topic, facts, brokers: brokers.unwrap_or("BROKER"), found: Vec::new() };
        if needed.is_joined {
            all.same_partitions(needed, &sources);
        }
        match needed.purpose {
            Purpose::Source => {}
            Purpose::Draining => all.cleanup(
                "delete",
                "of records that wait with the same key only the last one is kept",
                false,
            ),
            Purpose::Retry => {
                if !needed.is_joined {
                    all.partitions(&sources);
                }
                all.cleanup(
                    "delete",
                    "of records that wait with the same key only the last one is kept, and records without a key are refused",
                    true,
                );
                all.retry_retention(needed);
                all.retention_bytes("the oldest records are deleted when a partition has more, whether they have run or not");
                all.timestamps();
                all.copied(&sources);
                all.replication(&sources);
            }
            Purpose::DeadLetter => {
                all.partitions(&sources);
                all.cleanup(
                    "delete",
                    "of dead letters with the same key only the last one is kept, and records without a key are refused, which holds them back for good",
                    false,
                );
                all.dead_letter_retention();
                all.retention_bytes(
                    "the oldest dead letters are deleted when a partition has more",
                );
                all.copied(&sources);
                all.replication(&sources);
            }
            Purpose::State => {
                all.cleanup(
                    "compact",
                    "progress that is older than the topic keeps is forgotten, and what was settled runs again",
                    false,
                );
                all.in_sync(&sources);
                all.replication(&sources);
            }
        }
        all.found
    }

    fn tell(
        &mut self,
        setting: &'static str,
        is: String,
        should: String,
        meaning: String,
        fix: String,
    ) {
        self.found.push(Difference { setting, is, should, meaning, fix, is_refused: false });
    }

    fn set(&self, setting: &str, value: &str) -> String {
        let Self { topic, brokers, .. } = self;
        format!(
            "kafka-configs.sh --bootstrap-server {brokers} --alter --entity-type topics --entity-name {topic} --add-config {setting}={value}"
        )
    }

    fn partitions(&mut self, sources: &Sources) {
        let (is, should) = (self.facts.partitions, sources.partitions);
        if is < should {
            let Self { topic, brokers, .. } = self;
            let fix = format!(
                "kafka-topics.sh --bootstrap-server {brokers} --alter --topic {topic} --partitions {should}"
            );
            let meaning = format!(
                "records of source partitions from {is} on go to whichever partition their key gives, and fewer members can share the work"
            );
            self.tell("partitions", is.to_string(), should.to_string(), meaning, fix);
        }
    }

    /// Where the order counts, each partition of the source needs the same one of this topic, and nobody reads those beyond.
    fn same_partitions(&mut self, needed: &Needed, sources: &Sources) {
        let (is, should) = (self.facts.partitions, sources.partitions);
        if is == should || should == 0 {
            return;
        }
        let source = needed.sources.first().map_or("SOURCE", |it| &**it);
        let (topic, count) = if is < should { (self.topic, should) } else { (source, is) };
        let fix = format!(
            "kafka-topics.sh --bootstrap-server {} --alter --topic {topic} --partitions {count}",
            self.brokers
        );
        let meaning = format!(
            "with `ordering: key` a record stays in its partition, and one of {source} is read together with the same one of its retry topics"
        );
        self.tell("partitions", is.to_string(), should.to_string(), meaning, fix);
        if let Some(last) = self.found.last_mut() {
            last.is_refused = true;
        }
    }

    fn cleanup(&mut self, should: &'static str, meaning: &str, is_refused: bool) {
        let Some(is) = self.facts.setting("cleanup.policy").map(|it| it.value.clone()) else {
            return;
        };
        let mut parts: Vec<_> = is.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
        parts.sort_unstable();
        if parts != [should] {
            // Nothing is ever deleted where there is no policy at all.
            let is_refused = is_refused && parts.contains(&"compact");
            let meaning = if parts.is_empty() { "records are kept for ever" } else { meaning };
            let fix = self.set("cleanup.policy", should);
            self.tell("cleanup.policy", is, should.to_owned(), meaning.to_owned(), fix);
            if let Some(last) = self.found.last_mut() {
                last.is_refused = is_refused;
            }
        }
    }

    fn retry_retention(&mut self, needed: &Needed) {
        let Some(is) = self.facts.retention() else {
            return;
        };
        let least = needed.longest.saturating_mul(2);
        if is >= least {
            return;
        }
        let wait = format_duration(needed.longest);
        // That is when the runtime appends a record anew before its time.
        let meaning = if needed.longest > is / 4 * 3 {
            format!(
                "a record waits up to {wait}: it is appended again on the way, but is lost if no member runs for a quarter of the retention"
            )
        } else {
            format!(
                "a record waits up to {wait}, and is lost if no member runs for the rest of the retention"
            )
        };
        let should = retention(needed);
        let fix = self.set("retention.ms", &millis(should));
        self.tell("retention.ms", told(is), told(should), meaning, fix);
    }

    fn dead_letter_retention(&mut self) {
        let Some(is) = self.facts.retention().filter(|it| *it < DEAD_LETTERS_KEPT) else {
            return;
        };
        let meaning = "dead letters are deleted then, whether anybody has looked at them or not";
        let fix = self.set("retention.ms", &millis(DEAD_LETTERS_KEPT));
        self.tell("retention.ms", told(is), told(DEAD_LETTERS_KEPT), meaning.to_owned(), fix);
    }

    fn retention_bytes(&mut self, meaning: &str) {
        if let Some(is) = self.facts.number("retention.bytes").filter(|it| *it >= 0) {
            let fix = self.set("retention.bytes", "-1");
            self.tell("retention.bytes", is.to_string(), "-1".to_owned(), meaning.to_owned(), fix);
        }
    }

    fn timestamps(&mut self) {
        let setting = "message.timestamp.type";
        let Some(is) = self.facts.setting(setting).map(|it| it.value.clone()) else {
            return;
        };
        if is != "LogAppendTime" {
            let meaning = "retention goes by the clocks of those who publish: one that is slow has its records deleted early";
            let fix = self.set(setting, "LogAppendTime");
            self.tell(setting, is, "LogAppendTime".to_owned(), meaning.to_owned(), fix);
        }
    }

    fn copied(&mut self, sources: &Sources) {
        let setting = "max.message.bytes";
        if let (Some(is), Some((should, _))) =
            (self.facts.number(setting), sources.max_message_bytes)
            && is < should
        {
            let meaning = "a record that just fits the source does not fit here: it loses headers, or stops the flow if that does not help";
            let fix = self.set(setting, &should.to_string());
            self.tell(setting, is.to_string(), should.to_string(), meaning.to_owned(), fix);
        }
        self.in_sync(sources);
    }

    fn in_sync(&mut self, sources: &Sources) {
        let setting = "min.insync.replicas";
        let Some(is) = self.facts.number(setting) else {
            return;
        };
        let possible = i64::from(self.facts.replication);
        if is > possible {
            let meaning = "there are never so many replicas: nothing can be published to it";
            let fix = self.set(setting, &possible.to_string());
            let should = format!("{possible} at the most");
            self.tell(setting, is.to_string(), should, meaning.to_owned(), fix);
            return;
        }
        let should = sources.min_insync_replicas.map_or(is, |it| it.0.min(possible));
        if is < should {
            let meaning = "a record counts as safe here with fewer copies than on the source, and can be lost with them";
            let fix = self.set(setting, &should.to_string());
            self.tell(setting, is.to_string(), should.to_string(), meaning.to_owned(), fix);
        }
    }

    fn replication(&mut self, sources: &Sources) {
        let (is, should) = (self.facts.replication, sources.replication);
        if is < should {
            let meaning = "what is in it is lost sooner than what is on the source".to_owned();
            let fix =
                "give its partitions more replicas with kafka-reassign-partitions.sh".to_owned();
            self.tell("replication", is.to_string(), should.to_string(), meaning, fix);
        }
    }
}

/// As Kafka has it and as people read it.
fn told(duration: Duration) -> String {
    format!("{} ({})", millis(duration), format_duration(duration))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needed(topic: &str, purpose: Purpose, sources: &[&str]) -> Needed {
        Needed {
            topic: topic.into(),
            purpose,
            sources: sources.iter().map(|it| Arc::from(*it)).collect(),
            longest: Duration::from_hours(1),
            is_joined: false,
        }
    }

    /// A topic with these settings; those that begin with `=` it has from the brokers.
    fn facts(partitions: i32, replication: i32, settings: &[(&str, &str)]) -> Facts {
        let usual = [
            ("cleanup.policy", "=delete"),
            ("retention.ms", "=604800000"),
            ("retention.bytes", "=-1"),
            ("message.timestamp.type", "=CreateTime"),
            ("max.message.bytes", "=1048588"),
            ("min.insync.replicas", "=1"),
        ];
        let one = |(key, value): &(&str, &str)| {
            let (value, is_own) = value.strip_prefix('=').map_or((*value, true), |it| (it, false));
            ((*key).to_owned(), Setting { value: value.to_owned(), is_own })
        };
        let settings = usual.iter().chain(settings).map(one).collect();
        Facts { partitions, replication, settings: Some(settings) }
    }

    fn seen(brokers: usize, topics: &[(&str, Facts)]) -> Seen {
        Seen {
            brokers,
            topics: topics.iter().map(|(name, facts)| (Arc::from(*name), facts.clone())).collect(),
            names: topics.iter().map(|it| (compared(it.0), it.0.to_owned())).collect(),
            ..Seen::default()
        }
    }

    fn planned(needed: &[Needed], seen: &Seen) -> Vec<Topic> {
        topics(needed, seen, Wishes { source_partitions: None, brokers: "b1:9092,b2:9092" })
    }

    fn target(needed: Needed, seen: &Seen) -> Target {
        match planned(&[needed], seen).remove(0).status {
            Status::Missing(target) => target,
            other => panic!("{other:?}"),
        }
    }

    fn setting(target: &Target, name: &str) -> Option<String> {
        target.settings.iter().find(|it| it.0 == name).map(|it| it.1.clone())
    }

    fn retry() -> Needed {
        needed("orders.retry", Purpose::Retry, &["orders"])
    }

    /// A retry topic as it should be, but for these settings.
    fn made(settings: &[(&str, &str)]) -> Facts {
        let mut all = vec![("message.timestamp.type", "LogAppendTime")];
        all.extend(settings);
        facts(3, 3, &all)
    }

    fn differences(purpose: Purpose, source: Facts, own: Facts) -> Vec<Difference> {
        let seen = seen(3, &[("orders", source), ("orders.x", own)]);
        planned(&[needed("orders.x", purpose, &["orders"])], &seen).remove(0).differences
    }

    #[track_caller]
    fn differs(purpose: Purpose, own: Facts, setting: &str, words: &[&str]) {
        let found = differences(purpose, facts(3, 3, &[]), own);
        let names: Vec<_> = found.iter().map(|it| it.setting).collect();
        assert_eq!(names, [setting]);
        for word in words {
            assert!(found[0].to_string().contains(word), "{word} is not in: {}", found[0]);
        }
    }

    #[test]
    fn a_retry_topic_is_like_its_source_and_keeps_records_for_a_week() {
        let source =
            facts(12, 3, &[("max.message.bytes", "5000000"), ("min.insync.replicas", "2")]);
        let target = target(retry(), &seen(5, &[("orders", source)]));
        assert_eq!((target.partitions, target.replication), (12, 3));
        for (name, value) in [
            ("cleanup.policy", "delete"),
            ("retention.ms", "604800000"),
            ("retention.bytes", "-1"),
            ("message.timestamp.type", "LogAppendTime"),
            ("max.message.bytes", "5000000"),
            ("min.insync.replicas", "2"),
        ] {
            assert_eq!(setting(&target, name).as_deref(), Some(value), "{name}");
        }
        assert_eq!(target.notes, [""; 0]);
    }

    #[test]
    fn retention_is_twice_the_longest_delay_where_that_is_longer() {
        let seen = seen(3, &[("orders", facts(1, 1, &[]))]);
        let of = |longest| setting(&target(Needed { longest, ..retry() }, &seen), "retention.ms");
        let days = |days: u64| Duration::from_hours(days * 24);
        let week = Some("604800000".to_owned());
        assert_eq!(of(Duration::from_millis(1)), week);
        assert_eq!(of(days(7) / 2), week);
        assert_eq!(of(days(7) / 2 + Duration::from_millis(1)), Some("604800002".to_owned()));
        assert_eq!(of(days(365)), Some((365u64 * 2 * 86_400_000).to_string()));
        assert_eq!(of(Duration::MAX), Some(i64::MAX.to_string()));
    }

    #[test]
    fn dead_letters_are_kept_for_a_month_and_the_state_topic_is_compacted() {
        let seen = seen(3, &[("orders", facts(6, 3, &[("min.insync.replicas", "2")]))]);
        let letters = target(needed("orders.dlt", Purpose::DeadLetter, &["orders"]), &seen);
        assert_eq!(letters.partitions, 6);
        assert_eq!(setting(&letters, "retention.ms").as_deref(), Some("2592000000"));
        assert_eq!(setting(&letters, "cleanup.policy").as_deref(), Some("delete"));
        let state = target(needed("g.redrive", Purpose::State, &["orders"]), &seen);
        assert_eq!((state.partitions, state.replication), (1, 3));
        assert_eq!(setting(&state, "cleanup.policy").as_deref(), Some("compact"));
        assert_eq!(setting(&state, "min.insync.replicas").as_deref(), Some("2"));
        assert_eq!(setting(&state, "retention.ms"), None);
    }

    #[test]
    fn replication_is_three_if_there_are_brokers_and_no_less_than_the_sources() {
        let of = |brokers, source| {
            let seen = seen(brokers, &[("orders", facts(1, source, &[]))]);
            target(retry(), &seen).replication
        };
        assert_eq!(of(1, 1), 1);
        assert_eq!(of(2, 1), 2);
        assert_eq!(of(5, 1), 3);
        assert_eq!(of(5, 4), 4);
        // A broker is away.
        assert_eq!(of(2, 3), 2);
        assert_eq!(of(0, 0), 1);
    }

    #[test]
    fn in_sync_replicas_are_never_more_than_there_are() {
        for is_own in ["3", "=3"] {
            let source = facts(1, 3, &[("min.insync.replicas", is_own)]);
            let target = target(retry(), &seen(2, &[("orders", source)]));
            assert_eq!(setting(&target, "min.insync.replicas").as_deref(), Some("2"));
            assert_eq!(target.notes.len(), 2, "{:?}", target.notes);
        }
    }

    #[test]
    fn what_the_source_has_from_its_brokers_is_left_to_them() {
        let target = target(retry(), &seen(3, &[("orders", facts(1, 3, &[]))]));
        assert_eq!(setting(&target, "max.message.bytes"), None);
        assert_eq!(setting(&target, "min.insync.replicas"), None);
    }

    #[test]
    fn settings_that_may_not_be_looked_at_are_told_of() {
        let source = Facts { settings: None, ..facts(4, 3, &[]) };
        let target = target(retry(), &seen(3, &[("orders", source)]));
        assert_eq!(target.partitions, 4);
        assert!(target.notes[0].contains("DescribeConfigs"), "{:?}", target.notes);
    }

    #[test]
    fn a_shared_dead_letter_topic_has_room_for_all_its_sources() {
        let seen =
            seen(3, &[("a", facts(2, 1, &[("max.message.bytes", "10")])), ("b", facts(9, 3, &[]))]);
        let target = target(needed("dlt", Purpose::DeadLetter, &["a", "b"]), &seen);
        assert_eq!((target.partitions, target.replication), (9, 3));
        assert_eq!(setting(&target, "max.message.bytes").as_deref(), Some("1048588"));
    }

    #[test]
    fn nothing_is_made_for_a_source_that_is_missing() {
        let all = [needed("orders", Purpose::Source, &["orders"]), retry()];
        let topics = planned(&all, &seen(3, &[]));
        let blocked = |it: &Topic| match &it.status {
            Status::Blocked(why) => why.clone(),
            other => panic!("{other:?}"),
        };
        assert!(blocked(&topics[0]).contains("--create-sources"));
        assert!(blocked(&topics[1]).contains("orders, which is not there"));
        let wishes = Wishes { source_partitions: Some(6), brokers: "" };
        for topic in super::topics(&all, &seen(3, &[]), wishes) {
            assert!(
                matches!(&topic.status, Status::Missing(it) if it.partitions == 6),
                "{topic:?}"
            );
        }
    }

    #[test]
    fn a_draining_topic_is_never_made() {
        let seen = seen(3, &[("orders", facts(1, 1, &[]))]);
        let topics = planned(&[needed("old", Purpose::Draining, &["orders"])], &seen);
        assert!(matches!(&topics[0].status, Status::Blocked(it) if it.contains("`draining`")));
    }

    #[test]
    fn names_that_kafka_takes_for_the_same_are_told_of_before_it_refuses_them() {
        let there = seen(3, &[("orders", facts(1, 1, &[])), ("orders_retry", facts(1, 1, &[]))]);
        let topics = planned(&[retry()], &there);
        assert!(matches!(&topics[0].status, Status::Blocked(it) if it.contains("orders_retry")));
        let both = [retry(), needed("orders_retry", Purpose::DeadLetter, &["orders"])];
        let topics = planned(&both, &seen(3, &[("orders", facts(1, 1, &[]))]));
        assert!(matches!(topics[0].status, Status::Missing(_)));
        assert!(matches!(&topics[1].status, Status::Blocked(it) if it.contains("orders.retry")));
    }

    #[test]
    fn a_topic_that_may_not_be_looked_at_is_not_missing() {
        let mut seen = seen(3, &[("orders", facts(1, 1, &[]))]);
        seen.hidden.insert("orders.retry".into());
        assert_eq!(planned(&[retry()], &seen)[0].status, Status::Hidden);
    }

    #[test]
    fn topics_as_they_are_made_do_not_differ() {
        let source = facts(3, 3, &[("max.message.bytes", "99"), ("min.insync.replicas", "2")]);
        let there = seen(3, &[("orders", source.clone())]);
        for purpose in [Purpose::Retry, Purpose::DeadLetter, Purpose::State] {
            let target = target(needed("orders.x", purpose, &["orders"]), &there);
            let settings: Vec<_> = target.settings.iter().map(|it| (it.0, it.1.as_str())).collect();
            let own = facts(target.partitions, target.replication, &settings);
            assert_eq!(differences(purpose, source.clone(), own), [], "{purpose}");
        }
        // More is fine.
        let own = Facts { partitions: 9, replication: 5, ..made(&[("retention.ms", "-1")]) };
        assert_eq!(differences(Purpose::Retry, facts(3, 3, &[]), own), []);
    }

    #[test]
    fn each_difference_says_what_it_means_and_what_to_do() {
        use Purpose::{DeadLetter, Retry, State};
        let few = Facts { partitions: 1, ..made(&[]) };
        differs(
            Retry,
            few,
            "partitions",
            &["kafka-topics.sh", "b1:9092 ", "--partitions 3", "orders.x"],
        );
        let words = ["compact,delete", "--add-config cleanup.policy=delete", "same key"];
        differs(Retry, made(&[("cleanup.policy", "compact,delete")]), "cleanup.policy", &words);
        let words = ["retention.ms=604800000", "60000 (1m)", "1h"];
        differs(Retry, made(&[("retention.ms", "60000")]), "retention.ms", &words);
        differs(
            Retry,
            made(&[("retention.bytes", "1000")]),
            "retention.bytes",
            &["whether they have run"],
        );
        let words = ["clocks", "message.timestamp.type=LogAppendTime"];
        differs(
            Retry,
            made(&[("message.timestamp.type", "CreateTime")]),
            "message.timestamp.type",
            &words,
        );
        let words = ["max.message.bytes=1048588", "does not fit"];
        differs(Retry, made(&[("max.message.bytes", "1000")]), "max.message.bytes", &words);
        differs(Retry, Facts { replication: 1, ..made(&[]) }, "replication", &["reassign"]);
        differs(DeadLetter, facts(3, 3, &[]), "retention.ms", &["30d", "dead letters are deleted"]);
        let month = ("retention.ms", "2592000000");
        let own = facts(3, 3, &[month, ("cleanup.policy", "compact")]);
        differs(DeadLetter, own, "cleanup.policy", &["without a key are refused"]);
        differs(
            State,
            facts(1, 3, &[]),
            "cleanup.policy",
            &["runs again", "cleanup.policy=compact"],
        );
    }

    #[test]
    fn where_the_order_counts_other_partition_counts_are_refused() {
        let differences = |purpose, partitions| {
            let needed = Needed { is_joined: true, ..needed("orders.x", purpose, &["orders"]) };
            let own = Facts { partitions, ..made(&[]) };
            let seen = seen(3, &[("orders", facts(3, 3, &[]))]);
            Differences::of(&needed, &own, &seen, "b1:9092")
        };
        for purpose in [Purpose::Retry, Purpose::Draining] {
            assert_eq!(differences(purpose, 3), []);
            for (partitions, fix) in
                [(2, "--topic orders.x --partitions 3"), (6, "--topic orders --partitions 6")]
            {
                let found = differences(purpose, partitions);
                assert!(found.len() == 1 && found[0].is_refused, "{found:?}");
                let told = found[0].to_string();
                assert!(told.contains("`ordering: key`") && told.contains(fix), "{told}");
            }
        }
    }

    #[test]
    fn fewer_copies_than_the_source_asks_for_are_told_of() {
        let source = facts(3, 3, &[("min.insync.replicas", "2")]);
        let found = differences(Purpose::Retry, source.clone(), made(&[]));
        assert_eq!((found[0].setting, found[0].should.as_str()), ("min.insync.replicas", "2"));
        let own = Facts { replication: 2, ..made(&[("min.insync.replicas", "3")]) };
        let found = differences(Purpose::Retry, source, own);
        assert!(found[0].meaning.contains("nothing can be published"), "{found:?}");
    }

    #[test]
    fn only_a_compacted_retry_topic_is_refused() {
        let source = || facts(3, 3, &[]);
        let compacted = made(&[("cleanup.policy", "compact")]);
        assert!(differences(Purpose::Retry, source(), compacted.clone())[0].is_refused);
        let is_refused = |it: &Difference| it.is_refused;
        for purpose in [Purpose::DeadLetter, Purpose::Draining] {
            let found = differences(purpose, source(), compacted.clone());
            assert!(!found.is_empty() && !found.iter().any(is_refused), "{found:?}");
        }
        let bad = facts(1, 1, &[("retention.ms", "1"), ("retention.bytes", "1")]);
        let found = differences(Purpose::Retry, source(), bad);
        assert!(found.len() >= 4 && !found.iter().any(is_refused), "{found:?}");
        // What is never cleaned up keeps everything.
        let kept = made(&[("cleanup.policy", "")]);
        assert!(!differences(Purpose::Retry, source(), kept)[0].is_refused);
    }

    #[test]
    fn settings_that_cannot_be_seen_do_not_differ() {
        let own = Facts { settings: None, ..facts(3, 3, &[]) };
        assert_eq!(differences(Purpose::Retry, facts(3, 3, &[]), own), []);
    }
}
