//! Config files of other libraries, turned into Redrive's own form.
//!
//! Three are known: a `RetryConfiguration` with a time-based exponential backoff, a `RetryPolicy`
//! with a list of retry topics, and its older form with one delay. All are sections of a .NET
//! `appsettings.json`, so keys are found in any case and other sections are left alone.
//!
//! The result is the text of a config, with comments. What is loaded is that text: so the file and
//! what `redrive convert` prints of it cannot differ.

use std::fmt::Write;
use std::time::Duration;

use redrive_core::MAX_DELAY;

use super::duration::format_duration;
use super::node::{Entry, Node, is_plain_text, quoted};
use super::problem::{Path, Place, Problem, Problems};
use super::raw::{MAX_ATTEMPTS, decimal};
use super::read::{FromNode, Reader, shown, topic_problem};
use super::{Loaded, Syntax};

/// The section that was found.
pub(super) struct Found<'n> {
    sort: Sort,
    /// The section around it, if it is not at the top.
    parent: Option<&'n Entry>,
    entry: &'n Entry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    /// One topic and a backoff, in `RetryConfiguration`.
    Timed,
    /// Several topics in `RetryPolicy`, or its older form.
    Policy,
    /// The topics alone.
    Topics,
}

const SECTIONS: [(&str, Sort); 3] = [
    ("RetryConfiguration", Sort::Timed),
    ("RetryPolicy", Sort::Policy),
    ("RetryTopics", Sort::Topics),
];
/// The section that they may stand in.
const PARENT: &str = "Kafka";

/// The foreign section of the file, if it has one and no flows of its own.
pub(super) fn detect(root: &Node) -> Option<Found<'_>> {
    if root.get("flows").is_some() {
        return None;
    }
    if let Some((sort, entry)) = section_of(root) {
        return Some(Found { sort, parent: None, entry });
    }
    let parent = root.get_any_case(PARENT)?;
    let (sort, entry) = section_of(&parent.value)?;
    Some(Found { sort, parent: Some(parent), entry })
}

fn section_of(node: &Node) -> Option<(Sort, &Entry)> {
    SECTIONS.iter().find_map(|(name, sort)| node.get_any_case(name).map(|entry| (*sort, entry)))
}

/// The file in Redrive's own form, with where each part came from.
pub(super) struct Converted {
    yaml: String,
    origins: Vec<(String, Place)>,
}

impl Converted {
    /// Loads the result. Its problems are told where they are in the file itself.
    pub(super) fn load(self, mut out: Problems) -> Loaded {
        let mut reader = Reader { env: &|_| None, out: Problems::default() };
        let Some(node) = super::parse(&self.yaml, Syntax::Yaml, &mut reader.out) else {
            return Loaded {
                config: None,
                problems: reader.out.into_list(),
                converted: Some(self.yaml),
            };
        };
        let loaded = super::read(&node, reader);
        for problem in loaded.problems {
            let place = self.origin(&problem.path);
            let message = self.in_own_words(problem.message);
            out.add(Problem { path: place.path, position: place.position, message, ..problem });
        }
        Loaded { config: loaded.config, problems: out.into_list(), converted: Some(self.yaml) }
    }

    /// A message with the paths of the file itself.
    fn in_own_words(&self, mut message: String) -> String {
        let mut origins: Vec<_> = self.origins.iter().filter(|it| !it.0.is_empty()).collect();
        origins.sort_by_key(|it| std::cmp::Reverse(it.0.len()));
        for (path, place) in origins {
            message = message.replace(path.as_str(), &place.path);
        }
        message
    }

    /// Where the value at a path of the result came from.
    fn origin(&self, path: &str) -> Place {
        let known = self.origins.iter().filter(|(known, _)| path.starts_with(known.as_str()));
        let nearest = known.max_by_key(|(known, _)| known.len());
        nearest.map(|(_, place)| place.clone()).unwrap_or_default()
    }
}

/// Turns the section into a config of its own, or tells what is wrong with it.
pub(super) fn convert(
    root: &Node,
    found: &Found<'_>,
    topic: &str,
    group: &str,
    group_given: bool,
    reader: &mut Reader<'_>,
) -> Option<Converted> {
    let mut draft = Draft { yaml: String::new(), origins: Vec::new() };
    note_ignored(root, found, reader);
    draft.header(found, topic, group, group_given);
    let top = Path::Root;
    let parent = found.parent.map(|it| top.key(&it.key));
    let path = parent.as_ref().unwrap_or(&top).key(&found.entry.key);
    let node = &found.entry.value;
    draft.from("", &path, node);
    match found.sort {
        Sort::Timed => retry_configuration(&mut draft, node, &path, topic, group, reader),
        Sort::Policy => retry_policy(&mut draft, node, &path, topic, reader),
        Sort::Topics => retry_topics(&mut draft, node, &path, topic, reader),
    }?;
    if reader.out.has_errors() {
        return None;
    }
    Some(Converted { yaml: draft.yaml, origins: draft.origins })
}

/// Tells which other sections of the file are left alone.
fn note_ignored(root: &Node, found: &Found<'_>, reader: &mut Reader<'_>) {
    let is_used = |it: &Entry| {
        std::ptr::eq(it, found.entry) || found.parent.is_some_and(|parent| std::ptr::eq(it, parent))
    };
    let top = Path::Root;
    let parent = found.parent.map(|it| top.key(&it.key));
    let inner = found.parent.and_then(|it| it.value.map()).unwrap_or_default();
    let outer = root.map().unwrap_or_default().iter().map(|it| (&top, it));
    let inner = parent.iter().flat_map(|path| inner.iter().map(move |it| (path, it)));
    let mut ignored: Vec<(Place, String)> = Vec::new();
    for (path, entry) in outer.chain(inner).filter(|it| !is_used(it.1)) {
        let place = Place::new(&path.key(&entry.key), entry.key_at);
        let is_section = |key: &str| SECTIONS.iter().any(|it| key.eq_ignore_ascii_case(it.0));
        let is_second = is_section(&entry.key)
            || (entry.key.eq_ignore_ascii_case(PARENT) && section_of(&entry.value).is_some());
        if is_second {
            let message = format!(
                "`{}` has retries, too, beside `{}`: only one of them can count",
                entry.key, found.entry.key
            );
            reader.out.error(place, message, "keep one of them");
        } else {
            ignored.push((place, format!("`{}`", super::problem::show_key(&entry.key))));
        }
    }
    if let Some((place, _)) = ignored.first() {
        let names: Vec<_> = ignored.iter().take(10).map(|it| it.1.as_str()).collect();
        let more = if ignored.len() > 10 { " and others" } else { "" };
        let message = format!("note: not about retries and ignored: {}{more}", names.join(", "));
        reader.out.warning(place, message, "there is nothing to do");
    }
}

/// The text of a config in the making.
struct Draft {
    yaml: String,
    origins: Vec<(String, Place)>,
}

impl Draft {
    fn line(&mut self, text: impl AsRef<str>) {
        self.yaml.push_str(text.as_ref());
        self.yaml.push('\n');
    }

    /// Remembers where the value at a path of the result comes from.
    fn from(&mut self, to: &str, path: &Path<'_>, node: &Node) {
        self.origins.push((to.to_owned(), Place::new(path, node.at)));
    }

    /// The same for the value of a key, if it is there.
    fn key_origin(&mut self, to: String, keys: &Keys<'_, '_>, key: &str) {
        self.origins.extend(keys.place(key).map(|place| (to, place)));
    }

    fn header(&mut self, found: &Found<'_>, topic: &str, group: &str, group_given: bool) {
        let section = found.entry.key.as_str();
        self.line(format!(
            "# Made from `{}` by `redrive convert`.",
            super::problem::show_key(section)
        ));
        if group_given {
            self.line(format!("group: {}", scalar(group)));
        } else {
            self.line("# The file names no consumer group: change this one to yours.");
            self.line(format!("group: {}", scalar(group)));
        }
        self.line("flows:");
        self.line(format!("  - topic: {}", scalar(topic)));
    }
}

/// The section of the time-based backoff: `{topic}-retry` again and again, then `{topic}-dlq`.
fn retry_configuration(
    draft: &mut Draft,
    node: &Node,
    path: &Path<'_>,
    topic: &str,
    group: &str,
    reader: &mut Reader<'_>,
) -> Option<()> {
    let keys = Keys::read(
        node,
        path,
        &[
            "MaxRetryAttempts",
            "RetryTopicSuffix",
            "DeadLetterTopicSuffix",
            "RetryDelayMs",
            "UseExponentialBackoff",
            "BackoffMultiplier",
            "MaxRetryDelayMs",
            "MinRetryDelayMs",
            "RetryConsumerPollingIntervalMs",
        ],
        reader,
    )?;
    let attempts = keys.number("MaxRetryAttempts", MAX_ATTEMPTS.into(), reader).unwrap_or(3);
    let retry_topic = keys.suffixed(topic, "RetryTopicSuffix", "-retry", reader)?;
    let dead_letter = keys.suffixed(topic, "DeadLetterTopicSuffix", "-dlq", reader)?;
    let base = keys.millis("RetryDelayMs", reader).unwrap_or(Duration::from_secs(5));
    let max = keys.millis("MaxRetryDelayMs", reader).unwrap_or(Duration::from_mins(5));
    let min = keys.millis("MinRetryDelayMs", reader).unwrap_or(Duration::from_secs(1));
    let multiplier = keys.multiplier("BackoffMultiplier", reader).unwrap_or(2.0);
    let exponential = keys.flag("UseExponentialBackoff", reader).unwrap_or(true);
    let polling = keys.millis("RetryConsumerPollingIntervalMs", reader);
    if min > max {
        let message = format!(
            "`MinRetryDelayMs` is above `MaxRetryDelayMs`: {} is more than {}",
            format_duration(min),
            format_duration(max)
        );
        let place = keys.place("MinRetryDelayMs").or_else(|| keys.place("MaxRetryDelayMs"));
        reader.out.error(
            place.unwrap_or_default(),
            message,
            "swap them, or raise `MaxRetryDelayMs`",
        );
        return None;
    }

    let retry_group = format!("{group}-retry");
    draft.line("    retry:");
    draft.line("      strategy: single");
    draft.line(format!("      group: {}", scalar(&retry_group)));
    draft.line("      topics:");
    draft.line(format!("        - topic: {}", scalar(&retry_topic)));
    draft.line(format!("    dead_letter: {{ topic: {}, format: envelope }}", scalar(&dead_letter)));
    draft.line("    headers: x                  # x-retry-attempt, x-process-after …");
    draft.line("    default:");
    draft.line("      delayed:");
    draft.line(format!("        attempts: {attempts}"));
    let (base_text, min_text, max_text) =
        (format_duration(base), format_duration(min), format_duration(max));
    if exponential {
        draft.line(format!(
            "        backoff: {{ exponential: {{ base: {base_text}, multiplier: {multiplier}, jitter: 10%, \
             min: {min_text}, max: {max_text} }} }}"
        ));
    } else {
        let fixed = format_duration(base.min(max).max(min));
        draft.line(format!(
            "        backoff: {{ fixed: {fixed} }}   # UseExponentialBackoff: false"
        ));
    }
    if let Some(polling) = polling {
        draft.line(format!(
            "# RetryConsumerPollingIntervalMs ({}) is not needed: every record carries its own due time,",
            format_duration(polling)
        ));
        draft.line("# and runs when that comes.");
    }
    for (key, to) in [
        ("RetryTopicSuffix", "flows[0].retry.topics[0].topic"),
        ("DeadLetterTopicSuffix", "flows[0].dead_letter"),
        ("MaxRetryAttempts", "flows[0].default.delayed.attempts"),
        ("RetryDelayMs", "flows[0].default.delayed.backoff"),
    ] {
        draft.key_origin(to.to_owned(), &keys, key);
    }
    Some(())
}

/// The section of retry topics, in its present and in its older form.
fn retry_policy(
    draft: &mut Draft,
    node: &Node,
    path: &Path<'_>,
    topic: &str,
    reader: &mut Reader<'_>,
) -> Option<()> {
    let keys = Keys::read(node, path, &["RetryTopics", "Delay", "RetryAttempts"], reader)?;
    if let Some(topics) = keys.get("RetryTopics") {
        for old in ["Delay", "RetryAttempts"] {
            if let Some(place) = keys.place(old) {
                let message = format!("`{old}` of the old form has no effect beside `RetryTopics`");
                reader.out.warning(place, message, "take it out");
            }
        }
        return retry_topics(draft, &topics.value, &path.key(&topics.key), topic, reader);
    }
    for key in ["Delay", "RetryAttempts"] {
        if keys.get(key).is_none() {
            reader.missing_key(node.at, path, key);
        }
    }
    let delay = keys.millis("Delay", reader)?;
    let attempts = keys.number("RetryAttempts", 1000, reader)?;
    if attempts == 0 {
        draft.line("    # RetryAttempts: 0, so there is no retry at all.");
        error_topic(draft, topic);
        draft.line("    default: { then: dead_letter }");
        return Some(());
    }
    draft.line("    retry:");
    draft.line("      strategy: tiers");
    draft.line(format!("      # The old form: {attempts} topics of one attempt each."));
    draft.line("      topics:");
    for number in 1..=attempts {
        let name = scalar(&format!("{topic}.retry.{number}"));
        draft.line(format!("        - {{ topic: {name}, delay: {} }}", format_duration(delay)));
    }
    error_topic(draft, topic);
    draft.line("    default: { delayed: {} }    # the topics' own walk, with no runs in place");
    Some(())
}

fn retry_topics(
    draft: &mut Draft,
    node: &Node,
    path: &Path<'_>,
    topic: &str,
    reader: &mut Reader<'_>,
) -> Option<()> {
    let super::node::Value::List(items) = &node.value else {
        let message = format!("`RetryTopics` should be a list, but is {}", node.sort());
        reader.error(node, path, message, "write `[ { \"TopicName\": …, \"Delay\": … } ]`");
        return None;
    };
    if items.is_empty() {
        let message = "`RetryTopics` has no topic in it".to_owned();
        reader.error(node, path, message, "add one, or leave the section out");
        return None;
    }
    draft.line("    retry:");
    draft.line("      strategy: tiers");
    draft.line("      topics:");
    draft.from("flows[0].retry", path, node);
    for (index, item) in items.iter().enumerate() {
        retry_topic(draft, index, item, &path.index(index), reader);
    }
    error_topic(draft, topic);
    draft.line("    default: { delayed: {} }    # the topics' own walk, with no runs in place");
    Some(())
}

fn retry_topic(
    draft: &mut Draft,
    index: usize,
    item: &Node,
    path: &Path<'_>,
    reader: &mut Reader<'_>,
) {
    let known = ["TopicName", "Delay", "RetryAttempts", "GroupId"];
    let Some(keys) = Keys::read(item, path, &known, reader) else {
        return;
    };
    let to = format!("flows[0].retry.topics[{index}]");
    draft.from(&to, path, item);
    for key in ["TopicName", "Delay"] {
        if keys.get(key).is_none() {
            reader.missing_key(item.at, path, key);
        }
    }
    let name = keys.text("TopicName", reader).filter(|name| {
        let shown = keys.shown("TopicName");
        let problem = topic_problem(name, &shown);
        if let Some((message, hint)) = &problem {
            reader.out.error(keys.place("TopicName").unwrap_or_default(), message.as_str(), *hint);
        }
        problem.is_none()
    });
    let delay =
        keys.get("Delay").and_then(|it| Duration::read(&it.value, &path.key(&it.key), reader));
    let attempts = keys
        .get("RetryAttempts")
        .map(|_| keys.number("RetryAttempts", MAX_ATTEMPTS.into(), reader));
    if attempts == Some(Some(0)) {
        let place = keys.place("RetryAttempts").unwrap_or_default();
        reader.out.error(
            place,
            "a retry topic with 0 attempts is never used",
            "take the topic out",
        );
    }
    let group = keys.text("GroupId", reader);
    for (key, field) in [
        ("TopicName", "topic"),
        ("Delay", "delay"),
        ("RetryAttempts", "attempts"),
        ("GroupId", "group"),
    ] {
        draft.key_origin(format!("{to}.{field}"), &keys, key);
    }
    let (Some(name), Some(delay)) = (name, delay) else {
        return;
    };
    let mut line =
        format!("        - {{ topic: {}, delay: {}", scalar(&name), format_duration(delay));
    if let Some(attempts) = attempts.flatten() {
        let _ = write!(line, ", attempts: {attempts}");
    }
    if let Some(group) = group {
        let _ = write!(line, ", group: {}", scalar(&group));
    }
    draft.line(format!("{line} }}"));
}

fn error_topic(draft: &mut Draft, topic: &str) {
    draft.line(format!("    dead_letter: {{ topic: {} }}", scalar(&format!("{topic}.error"))));
    draft.line("    headers: tiered             # retry-topic-index, retry-total-attempts …");
}

/// The keys of a .NET section, found in any case.
struct Keys<'n, 'p> {
    found: Vec<(&'static str, &'n Entry)>,
    path: &'p Path<'p>,
}

impl<'n, 'p> Keys<'n, 'p> {
    fn read(
        node: &'n Node,
        path: &'p Path<'p>,
        known: &[&'static str],
        reader: &mut Reader<'_>,
    ) -> Option<Self> {
        let mut found: Vec<(&'static str, &Entry)> = Vec::new();
        let is_set = |it: &&Entry| !matches!(&it.value.value, super::node::Value::Scalar(it) if it.is_null());
        // As .NET takes it, null is as if the key were not there.
        for entry in reader.map(node, path)?.iter().filter(is_set) {
            match known.iter().find(|it| it.eq_ignore_ascii_case(&entry.key)) {
                None => reader.unknown_key(entry, path, known, &[]),
                Some(key) if found.iter().any(|it| it.0 == *key) => {
                    let place = Place::new(&path.key(&entry.key), entry.key_at);
                    reader.out.error(place, format!("`{key}` is there twice"), "keep one of them");
                }
                Some(key) => found.push((key, entry)),
            }
        }
        Some(Keys { found, path })
    }

    fn get(&self, key: &str) -> Option<&'n Entry> {
        self.found.iter().find(|it| it.0 == key).map(|it| it.1)
    }

    fn place(&self, key: &str) -> Option<Place> {
        self.get(key).map(|it| Place::new(&self.path.key(&it.key), it.value.at))
    }

    fn shown(&self, key: &str) -> String {
        self.get(key).map(|it| shown(&it.value, &self.path.key(&it.key))).unwrap_or_default()
    }

    /// The value as text, whatever it is: .NET takes `"3"` for a number as well.
    fn parsed<T>(
        &self,
        key: &str,
        rule: &str,
        reader: &mut Reader<'_>,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let entry = self.get(key)?;
        let path = self.path.key(&entry.key);
        let text = reader.scalar(&entry.value, &path)?.text;
        let value = parse(&text);
        if value.is_none() {
            let message =
                format!("`{key}` should be {rule}, but is {}", shown(&entry.value, &path));
            reader.error(&entry.value, &path, message, &format!("write {rule}"));
        }
        value
    }

    fn number(&self, key: &str, max: u64, reader: &mut Reader<'_>) -> Option<u64> {
        let rule = format!("a whole number from 0 to {max}");
        self.parsed(key, &rule, reader, |text| whole(text).filter(|it| *it <= max))
    }

    fn millis(&self, key: &str, reader: &mut Reader<'_>) -> Option<Duration> {
        self.parsed(key, "a whole number of milliseconds", reader, |text| {
            whole(text).map(Duration::from_millis).filter(|it| *it <= MAX_DELAY)
        })
    }

    fn multiplier(&self, key: &str, reader: &mut Reader<'_>) -> Option<f64> {
        let rule = "a number from 0.001 to 1000";
        self.parsed(key, rule, reader, |text| {
            decimal(text).filter(|it| (0.001..=1000.0).contains(it))
        })
    }

    fn flag(&self, key: &str, reader: &mut Reader<'_>) -> Option<bool> {
        self.parsed(key, "true or false", reader, |text| text.to_ascii_lowercase().parse().ok())
    }

    fn text(&self, key: &str, reader: &mut Reader<'_>) -> Option<String> {
        let entry = self.get(key)?;
        String::read(&entry.value, &self.path.key(&entry.key), reader)
    }

    /// A topic's name with a suffix, which must give a topic's name.
    fn suffixed(
        &self,
        topic: &str,
        key: &str,
        default: &str,
        reader: &mut Reader<'_>,
    ) -> Option<String> {
        let suffix = match self.get(key) {
            Some(_) => self.parsed(key, "text", reader, |text| Some(text.to_owned()))?,
            None => default.to_owned(),
        };
        let name = format!("{topic}{suffix}");
        match topic_problem(&name, &quoted(&name)) {
            None => Some(name),
            Some((message, hint)) => {
                reader.out.error(self.place(key).unwrap_or_default(), message, hint);
                None
            }
        }
    }
}

fn whole(text: &str) -> Option<u64> {
    (!text.starts_with('+')).then(|| text.parse().ok()).flatten()
}

/// `text` as YAML takes it for text, in quotes where it needs them.
fn scalar(text: &str) -> String {
    let is_safe = |it: char| it.is_ascii_alphanumeric() || "._-".contains(it);
    let is_bare = is_plain_text(text)
        && text.chars().all(is_safe)
        && text.starts_with(|it: char| it.is_ascii_alphanumeric());
    if is_bare {
        return text.to_owned();
    }
    serde_json::Value::String(text.replace("${", "$${")).to_string()
}
