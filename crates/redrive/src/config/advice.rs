//! Warnings: what a config says that hardly does what was meant, and what comes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use redrive_core::{
    Backoff, Draw, Flow, HeaderMatch, InMemory, Kind, Match, Policy, Rank, Strategy,
    is_retryable_status, simple_name,
};

use super::build::FoundRule;
use super::duration::format_duration;
use super::problem::Problems;
use super::raw::{RawDelayed, RawFlow, RawInMemory};
use super::read::At;

pub(super) fn look(flow: &Flow, rules: &[FoundRule<'_>], raw: &RawFlow, out: &mut Problems) {
    for found in rules {
        in_place_runs(found.raw.in_memory.as_ref(), found.rule.policy().in_memory.as_ref(), out);
        overall_cap(flow, raw, found.raw.delayed.as_ref(), out);
        identifier(found, out);
        hopeless_retries(found, out);
    }
    if let Some(default) = &raw.default {
        let policy = flow.default_policy();
        in_place_runs(default.value.in_memory.as_ref(), policy.in_memory.as_ref(), out);
        overall_cap(flow, raw, default.value.delayed.as_ref(), out);
    }
    coverage(flow, rules, raw, out);
    tiers(flow, raw, out);
}

/// "Set Appropriate Timeouts": many quick runs in place waste resources.
fn in_place_runs(raw: Option<&At<RawInMemory>>, in_memory: Option<&InMemory>, out: &mut Problems) {
    const SHORT: Duration = Duration::from_millis(50);
    let (Some(raw), Some(in_memory)) = (raw, in_memory) else {
        return;
    };
    // Whoever has more short waits than this has enough of them.
    let waits =
        (0..in_memory.attempts.min(100)).map(|run| in_memory.backoff.delay(run, Draw::Highest));
    let short = waits.filter(|it| *it < SHORT).count();
    if short >= 10 {
        let message = format!(
            "{short} runs in place or more with less than 50ms between them burn the service without giving it time to recover"
        );
        let hint = "three runs, 100ms apart, catch a blip; use `delayed` for the rest";
        out.warning(&raw.place, message, hint);
    }
}

/// "Set maxOverallAttempts Appropriately": a policy's attempts beyond the cap are never made.
fn overall_cap(flow: &Flow, raw: &RawFlow, delayed: Option<&At<RawDelayed>>, out: &mut Problems) {
    let cap = raw.retry.as_ref().and_then(|it| it.value.max_overall_attempts.as_ref());
    let attempts = delayed.and_then(|it| it.value.attempts.as_ref());
    if let (Some(_), Some(attempts)) = (cap, attempts) {
        let cap = flow.max_overall_attempts();
        if attempts.value.0 > cap {
            let message = format!(
                "`attempts` is {}, but `max_overall_attempts` of the flow {} is {cap}: the record ends after {cap}",
                attempts.value.0,
                name(raw)
            );
            out.warning(
                &attempts.place,
                message,
                "raise `max_overall_attempts`, or lower `attempts`",
            );
        }
    }
}

/// "Use Meaningful Policy Identifiers".
fn identifier(found: &FoundRule<'_>, out: &mut Problems) {
    const EMPTY_WORDS: [&str; 16] = [
        "", "a", "b", "c", "x", "y", "foo", "bar", "test", "tmp", "retry", "policy", "rule",
        "error", "id", "p",
    ];
    let Some(id) = &found.raw.id else {
        return;
    };
    let word =
        id.value.text.trim_end_matches(|it: char| it.is_ascii_digit() || "-_. ".contains(it));
    if EMPTY_WORDS.contains(&word.to_lowercase().as_str()) {
        let message = format!(
            "the identifier {} says nothing: it stands in headers, logs and metrics",
            id.shown
        );
        out.warning(&id.place, message, "name what goes wrong, such as `PaymentTimeout`");
    }
}

/// "Don't Retry Business Errors": what cannot succeed should not be tried again.
fn hopeless_retries(found: &FoundRule<'_>, out: &mut Problems) {
    if found.rule.policy().is_no_retry() {
        return;
    }
    let place = found.raw.on.as_ref().map_or(found.place, |it| &it.place);
    for it in found.rule.on().matches() {
        let kind = it.kinds.iter().find(|it| !it.is_retryable()).map(Kind::as_str);
        let error =
            it.errors.iter().find(|it| simple_name(it).to_lowercase().contains("validation"));
        if let Some(what) = kind.or(error.map(|_| "validation")) {
            let message = format!("this retries {what} errors, which fail the same way each time");
            let hint =
                "leave `in_memory` and `delayed` out: it goes to the dead-letter topic at once";
            out.warning(place, message, hint);
        }
        if it.rank() == Rank::Any && it.retryable == Some(false) {
            let message = "this retries what is not worth a retry by its class, which fails the same way each time";
            out.warning(place, message, "leave `in_memory` and `delayed` out");
        }
        let hopeless = it.statuses.iter().cloned().flatten().find(|it| !is_retryable_status(*it));
        if let Some(status) = hopeless.filter(|_| it.retryable != Some(true)) {
            let message =
                format!("this retries the status {status}, which fails the same way each time");
            let hint = "of the 4xx only 408, 425 and 429 are worth a retry";
            out.warning(place, message, hint);
        }
    }
}

fn longest_wait(flow: &Flow, policy: &Policy) -> Duration {
    // All but lists grow or shrink from the first delay to the last.
    let longest_of = |backoff: &Backoff, attempts: u32| {
        let last = attempts.saturating_sub(1);
        let middle = if let Backoff::List(_) = backoff { 0..last.min(1000) } else { 0..0 };
        let looked_at = middle.chain([0, last]).filter(|_| attempts > 0);
        looked_at.map(|it| backoff.delay(it, Draw::Highest)).max().unwrap_or_default()
    };
    let in_place = policy.in_memory.as_ref().map(|it| longest_of(&it.backoff, it.attempts));
    let delayed = policy.delayed.as_ref().map(|delayed| match &delayed.backoff {
        Some(backoff) => {
            let cap = flow.max_overall_attempts();
            longest_of(backoff, delayed.attempts.unwrap_or(cap).min(cap))
        }
        // A topic without a delay has the default backoff, which reaches minutes.
        None => flow
            .strategy()
            .tiers()
            .iter()
            .map(|it| it.delay.unwrap_or(Duration::MAX))
            .max()
            .unwrap_or_default(),
    });
    in_place.max(delayed).unwrap_or_default()
}

fn tiers(flow: &Flow, raw: &RawFlow, out: &mut Problems) {
    let Some(retry) = &raw.retry else {
        return;
    };
    let topics = retry.value.topics.iter().flat_map(|it| &it.value);
    let delays: Vec<_> = topics.clone().filter_map(|it| it.value.delay.as_ref()).collect();
    if matches!(flow.strategy(), Strategy::Tiers(_) | Strategy::DelayThenRetry { .. }) {
        for pair in delays.windows(2) {
            if pair[1].value < pair[0].value {
                let message = format!(
                    "{} is shorter than the {} of the topic before it: later retries would wait less",
                    format_duration(pair[1].value),
                    format_duration(pair[0].value)
                );
                out.warning(&pair[1].place, message, "put the topics in the order of their delays");
            }
        }
        let sum = flow.strategy().attempts();
        if let Some(cap) = retry.value.max_overall_attempts.as_ref().filter(|it| it.value.0 < sum) {
            let message = format!(
                "`max_overall_attempts` is {}, but the topics take {sum}: the last of them are never reached by walking",
                cap.value.0
            );
            out.warning(&cap.place, message, "raise it, or take the topics out");
        }
    }
    let shortest = flow.strategy().tiers().iter().map(|it| it.delay.unwrap_or_default()).min();
    if let (Some(max), Some(shortest)) = (&retry.value.max_elapsed, shortest)
        && max.value < shortest
    {
        let message = format!(
            "`max_elapsed` is {}, but the shortest delay of a topic is {}: without a backoff nothing is ever retried",
            format_duration(max.value),
            format_duration(shortest)
        );
        out.warning(&max.place, message, "raise it");
    }
}

/// Looks at the rules in their order: which of them never get their turn, and which of them has the rate limits.
fn coverage(flow: &Flow, rules: &[FoundRule<'_>], raw: &RawFlow, out: &mut Problems) {
    let mut covered = Covered::default();
    for (index, found) in rules.iter().enumerate() {
        let place = found.raw.on.as_ref().map_or(found.place, |it| &it.place);
        let by: Option<BTreeSet<_>> = found.rule.on().matches().map(|it| covered.by(it)).try_fold(
            BTreeSet::new(),
            |mut all, by| {
                all.extend(by?);
                Some(all)
            },
        );
        // A flow's own policy before a shared one overrides it, and is meant to.
        let overrides = |by: &BTreeSet<usize>| {
            is_shared(found) && by.iter().filter_map(|it| rules.get(*it)).any(|it| !is_shared(it))
        };
        if let Some(by) = by.filter(|it| !it.is_empty() && !overrides(it)) {
            let paths: Vec<_> = by
                .iter()
                .take(3)
                .filter_map(|it| rules.get(*it))
                .map(|it| it.place.path.as_str())
                .collect();
            let takes = if by.len() == 1 { "takes" } else { "take" };
            let message = format!(
                "in the flow {} this policy is never used: {} {takes} all that it matches",
                name(raw),
                paths.join(" and ")
            );
            out.warning(place, message, "put it before, or take it out");
        }
        if !covered.statuses.contains_key(&429) {
            rate_limit(flow, found, out);
        }
        for it in found.rule.on().matches() {
            covered.add(it, index);
        }
    }
    let takes_all = |it: &Match| it.rank() == Rank::Any && it.retryable != Some(false);
    let any = rules.iter().find(|it| it.rule.on().matches().any(takes_all));
    if let (Some(any), Some(default)) = (any, &raw.default) {
        let message =
            format!("`default` is never used: {} takes every retryable failure", any.place.path);
        out.warning(&default.place, message, "take one of them out");
    }
}

/// Whether the policy is in a set.
fn is_shared(found: &FoundRule<'_>) -> bool {
    found.place.path.starts_with("policy_sets")
}

/// The flow's name, as it is written.
fn name(raw: &RawFlow) -> &str {
    raw.topic.as_ref().map_or("", |it| it.shown.as_str())
}

/// "Delays too short for rate limiting".
fn rate_limit(flow: &Flow, found: &FoundRule<'_>, out: &mut Problems) {
    const LONG: Duration = Duration::from_secs(10);
    let names_429 = |it: &Match| it.statuses.iter().any(|range| range.contains(&429));
    let policy = found.rule.policy();
    if policy.is_no_retry() || !found.rule.on().matches().any(names_429) {
        return;
    }
    let longest = longest_wait(flow, policy);
    if longest <= LONG {
        let message = format!(
            "this retries rate limits (429), but never waits longer than {}",
            format_duration(longest)
        );
        let hint = "limits are often counted by the minute: use `delayed` with a longer backoff";
        out.warning(found.place, message, hint);
    }
}

/// What the rules so far take, and which rule takes it.
#[derive(Default)]
struct Covered {
    any: Option<usize>,
    retryable: [Option<usize>; 2],
    statuses: BTreeMap<u16, usize>,
    errors: BTreeMap<String, usize>,
    kinds: BTreeMap<Kind, usize>,
    headers: Vec<(HeaderMatch, usize)>,
    /// Those with several keys.
    joined: Vec<(Match, usize)>,
}

/// More than this nobody writes by hand.
const MAX_COMPARED: usize = 100;

impl Covered {
    fn add(&mut self, it: &Match, rule: usize) {
        match (it.rank(), it.retryable) {
            (Rank::Any, None) => _ = self.any.get_or_insert(rule),
            (Rank::Any, Some(retryable)) => {
                _ = self.retryable[usize::from(retryable)].get_or_insert(rule)
            }
            _ => {}
        }
        let keys = [
            !it.statuses.is_empty(),
            !it.errors.is_empty(),
            !it.kinds.is_empty(),
            !it.headers.is_empty(),
        ];
        if keys.iter().filter(|it| **it).count() > 1
            || (it.rank() == Rank::Named && it.retryable.is_some())
        {
            if self.joined.len() < MAX_COMPARED {
                self.joined.push((it.clone(), rule));
            }
            return;
        }
        for status in it.statuses.iter().cloned().flatten() {
            self.statuses.entry(status).or_insert(rule);
        }
        for error in &it.errors {
            self.errors.entry(error.clone()).or_insert(rule);
        }
        for kind in &it.kinds {
            self.kinds.entry(kind.clone()).or_insert(rule);
        }
        for header in it.headers.iter().take(MAX_COMPARED.saturating_sub(self.headers.len())) {
            self.headers.push((header.clone(), rule));
        }
    }

    /// The rules that take everything that `it` matches, if they do.
    fn by(&self, it: &Match) -> Option<BTreeSet<usize>> {
        if it.rank() == Rank::Any {
            let both =
                self.retryable[0].zip(self.retryable[1]).map(|(no, yes)| BTreeSet::from([no, yes]));
            let same = it.retryable.and_then(|it| self.retryable[usize::from(it)]);
            return self.any.or(same).map(|it| BTreeSet::from([it])).or(both);
        }
        fn all<T>(
            list: &[T],
            find: impl Fn(&T) -> Option<BTreeSet<usize>>,
        ) -> Option<BTreeSet<usize>> {
            let found: Option<Vec<_>> = list.iter().map(find).collect();
            found.filter(|it| !it.is_empty()).map(|it| it.into_iter().flatten().collect())
        }
        let one = |it: usize| BTreeSet::from([it]);
        let status = |range: &RangeInclusive<u16>| {
            range.clone().map(|it| self.statuses.get(&it).copied()).collect::<Option<BTreeSet<_>>>()
        };
        let error = |it: &String| {
            self.errors.get(it).or_else(|| self.errors.get(&*simple_name(it))).copied().map(one)
        };
        let kind = |it: &Kind| self.kinds.get(it).copied().map(one);
        let header = |it: &HeaderMatch| {
            self.headers.iter().find(|(other, _)| is_wider(other, it)).map(|it| one(it.1))
        };
        all(&it.statuses, status)
            .or_else(|| all(&it.errors, error))
            .or_else(|| all(&it.kinds, kind))
            .or_else(|| all(&it.headers, header))
            .or_else(|| self.joined.iter().find(|(wide, _)| covers(wide, it)).map(|it| one(it.1)))
    }
}

fn is_wider(wide: &HeaderMatch, narrow: &HeaderMatch) -> bool {
    wide.name == narrow.name && (wide.value.is_none() || wide.value == narrow.value)
}

/// Whether one match with several keys takes all that another one does.
fn covers(wide: &Match, narrow: &Match) -> bool {
    fn within<T>(narrow: &[T], wide: &[T], fits: impl Fn(&T, &T) -> bool) -> bool {
        wide.is_empty()
            || (!narrow.is_empty()
                && narrow.iter().all(|it| wide.iter().any(|other| fits(it, other))))
    }
    within(&narrow.errors, &wide.errors, |it, other| it == other || simple_name(it) == **other)
        && within(&narrow.kinds, &wide.kinds, |it, other| it == other)
        && within(&narrow.headers, &wide.headers, |it, other| is_wider(other, it))
        && within(&narrow.statuses, &wide.statuses, |it, other| {
            other.start() <= it.start() && it.end() <= other.end()
        })
        && wide.retryable.is_none_or(|it| narrow.retryable == Some(it))
}
