//! Warnings: what a config says that hardly does what was meant, and what comes of it.

use std::collections::BTreeSet;
use std::time::Duration;

use redrive_core::{
    Backoff, Draw, Flow, HeaderMatch, InMemory, Kind, Match, Policy, Rank, Strategy,
    is_retryable_status, simple_name,
};

use super::build::FoundRule;
use super::duration::format_duration;
use super::problem::{Place, Problems};
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
    shadowed(rules, raw, out);
    rate_limits(flow, rules, out);
    tiers(flow, raw, out);
}

/// "Set Appropriate Timeouts": many quick runs in place waste resources.
fn in_place_runs(raw: Option<&At<RawInMemory>>, in_memory: Option<&InMemory>, out: &mut Problems) {
    const SHORT: Duration = Duration::from_millis(50);
    let (Some(raw), Some(in_memory)) = (raw, in_memory) else {
        return;
    };
    let waits = (0..in_memory.attempts).map(|run| in_memory.backoff.delay(run, Draw::Highest));
    let short = waits.filter(|it| *it < SHORT).count();
    if short >= 10 {
        let message = format!(
            "{short} runs in place with less than 50ms between them burn the service without giving it time to recover"
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
                flow.source()
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
        if let Some(what) = kind.or(error.map(String::as_str)) {
            let message = format!("this retries `{what}`, which fails the same way each time");
            out.warning(
                place,
                message,
                "leave `in_memory` and `delayed` out: it goes to the dead-letter topic at once",
            );
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

/// "Delays too short for rate limiting".
fn rate_limits(flow: &Flow, rules: &[FoundRule<'_>], out: &mut Problems) {
    const LONG: Duration = Duration::from_secs(10);
    for (index, found) in rules.iter().enumerate() {
        let names_429 = |it: &Match| it.statuses.iter().any(|range| range.contains(&429));
        let policy = found.rule.policy();
        let just_429 = Match { statuses: vec![429..=429], ..Match::default() };
        if policy.is_no_retry()
            || !found.rule.on().matches().any(names_429)
            || covered(&just_429, &matches_of(&rules[..index])).is_some()
        {
            continue;
        }
        let longest = longest_wait(flow, policy);
        if longest <= LONG {
            let message = format!(
                "this retries rate limits (429), but never waits longer than {}",
                format_duration(longest)
            );
            let hint =
                "limits are often counted by the minute: use `delayed` with a longer backoff";
            out.warning(found.place, message, hint);
        }
    }
}

fn longest_wait(flow: &Flow, policy: &Policy) -> Duration {
    let longest_of = |backoff: &Backoff, attempts: u32| {
        (0..attempts).map(|it| backoff.delay(it, Draw::Highest)).max().unwrap_or_default()
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

/// Rules that never get their turn, since another one takes all that they match.
fn shadowed(rules: &[FoundRule<'_>], raw: &RawFlow, out: &mut Problems) {
    for (index, found) in rules.iter().enumerate() {
        let earlier = matches_of(&rules[..index]);
        let mut by = None;
        let mut all_covered = true;
        for it in found.rule.on().matches() {
            match covered(it, &earlier) {
                Some(place) => by = Some(place),
                None => all_covered = false,
            }
        }
        if let Some(by) = by.filter(|_| all_covered) {
            let place = found.raw.on.as_ref().map_or(found.place, |it| &it.place);
            let message =
                format!("this policy is never used: {} takes all that it matches", by.path);
            out.warning(place, message, "put it before that one, or take it out");
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

fn matches_of<'r>(rules: &'r [FoundRule<'_>]) -> Vec<(&'r Match, &'r Place)> {
    rules.iter().flat_map(|it| it.rule.on().matches().map(|on| (on, it.place))).collect()
}

/// The place of a rule that, with others before it, takes everything that `it` matches.
fn covered<'p>(it: &Match, earlier: &[(&Match, &'p Place)]) -> Option<&'p Place> {
    let same_rank = earlier.iter().filter(|(other, _)| other.rank() == it.rank());
    let wider = same_rank.filter(|(other, _)| covers_but_for_status(other, it));
    if it.statuses.is_empty() {
        return wider.clone().find(|(other, _)| other.statuses.is_empty()).map(|(_, place)| *place);
    }
    let mut left: BTreeSet<u16> = it.statuses.iter().cloned().flatten().collect();
    for (other, place) in wider {
        left.retain(|it| {
            !other.statuses.is_empty() && !other.statuses.iter().any(|r| r.contains(it))
        });
        if left.is_empty() {
            return Some(place);
        }
    }
    None
}

fn covers_but_for_status(wide: &Match, narrow: &Match) -> bool {
    fn within<T>(narrow: &[T], wide: &[T], fits: impl Fn(&T, &T) -> bool) -> bool {
        wide.is_empty()
            || (!narrow.is_empty()
                && narrow.iter().all(|it| wide.iter().any(|other| fits(it, other))))
    }
    let is_same_error = |it: &String, other: &String| it == other || simple_name(it) == **other;
    let is_same_header = |it: &HeaderMatch, other: &HeaderMatch| {
        it.name == other.name && (other.value.is_none() || it.value == other.value)
    };
    within(&narrow.errors, &wide.errors, is_same_error)
        && within(&narrow.kinds, &wide.kinds, |it, other| it == other)
        && within(&narrow.headers, &wide.headers, is_same_header)
        && wide.retryable.is_none_or(|it| narrow.retryable == Some(it))
}
