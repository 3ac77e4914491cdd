//! From a failure to what is to be done now.
//!
//! [`Flow::decide`] is a plain function of the record's state, the failure, the time and a seed.
//! It reads in the order in which it decides: what the handler asked for, the policy, runs in
//! place, the publish with its caps, and the policy's end.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backoff::{Backoff, Draw, ExponentialRandom};
use crate::failure::Failure;
use crate::flow::Flow;
use crate::policy::{Policy, Then};
use crate::rule::{RecordView, Rule};
use crate::state::RetryState;
use crate::time::{MAX_DELAY, Timestamp, bounded};

/// A record that was taken from a topic to be run.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    /// The record, as rules see it.
    pub record: RecordView<'a>,
    /// What its headers said.
    pub state: &'a RetryState<'a>,
    /// What happened to it since it was taken.
    pub in_place: InPlace,
}

/// Runs in place of one delivery, so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InPlace {
    /// Runs after the first one.
    pub runs: u32,
    /// When the first run failed.
    pub failed_at: Option<Timestamp>,
}

/// A failed run: what went wrong and what others had to say about it.
#[derive(Clone, Copy, Debug)]
pub struct Incident<'a> {
    /// What went wrong.
    pub failure: &'a Failure,
    /// What the handler itself asked for.
    pub asked: Option<Ask>,
    /// What the global provider answered, if it was asked and did not decline.
    pub provided: Option<&'a Policy>,
}

impl<'a> From<&'a Failure> for Incident<'a> {
    fn from(failure: &'a Failure) -> Self {
        Self { failure, asked: None, provided: None }
    }
}

/// What a handler may ask for. It comes before every policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ask {
    /// Run it again at this time.
    RetryAt(Timestamp),
    /// Run it again as its policy says; where that does not retry, as the flow's default says.
    Retry,
    /// Send it to the dead-letter topic.
    DeadLetter,
    /// Settle it and count it.
    Drop,
    /// Halt the flow, or end the process.
    Stop {
        /// Whether the process ends.
        exit: bool,
    },
}

/// What is to be done with a record whose run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict<'a> {
    /// What the record carries to its next stop. Its policy is the identifier that was resolved,
    /// none where the handler or the failure's class decided. A run in place is no stop: the
    /// delivery goes on with the state that it came with.
    pub state: RetryState<'a>,
    /// What to do.
    pub action: Action<'a>,
}

/// What to do with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action<'a> {
    /// Run it again in place.
    RunAgain {
        /// How long to wait first.
        wait: Duration,
        /// The runs in place with this one.
        in_place: InPlace,
    },
    /// Publish it to a tier.
    Publish {
        /// The tier's topic.
        topic: &'a Arc<str>,
        /// From when on it may run.
        due: Timestamp,
        /// How long that is from now.
        delay: Duration,
    },
    /// Publish it to the dead-letter topic.
    DeadLetter {
        /// That topic.
        topic: &'a Arc<str>,
        /// Why.
        reason: Reason,
    },
    /// Settle it and count it.
    Drop {
        /// Why.
        reason: Reason,
    },
    /// Halt the flow.
    Stop {
        /// Whether the process ends.
        exit: bool,
        /// Why.
        reason: Reason,
    },
}

/// Why a record's retries ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Reason {
    /// The policy's attempts are spent, or the last tier's.
    Attempts,
    /// The cap on publishes overall is reached.
    Overall,
    /// The record would be due too long after its first failure.
    Elapsed,
    /// The failure's class is not retryable.
    NotRetryable,
    /// The policy does not retry.
    Policy,
    /// The record cannot be decoded.
    Undecodable,
    /// A header that decides when it may run cannot be read.
    Header,
    /// The handler asked for it.
    Handler,
    /// The record follows one that was dead-lettered.
    Follower,
    /// The record is too large for its next stop.
    TooLarge,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 10] = [
        Reason::Attempts,
        Reason::Overall,
        Reason::Elapsed,
        Reason::NotRetryable,
        Reason::Policy,
        Reason::Undecodable,
        Reason::Header,
        Reason::Handler,
        Reason::Follower,
        Reason::TooLarge,
    ];

    /// The word that stands in the header.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::Attempts => "attempts",
            Reason::Overall => "overall",
            Reason::Elapsed => "elapsed",
            Reason::NotRetryable => "not-retryable",
            Reason::Policy => "policy",
            Reason::Undecodable => "undecodable",
            Reason::Header => "header",
            Reason::Handler => "handler",
            Reason::Follower => "follower",
            Reason::TooLarge => "too-large",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Flow {
    /// Whether no rule of the flow decides, so that the global provider is to be asked.
    pub fn needs_provider(&self, record: &RecordView<'_>, incident: &Incident<'_>) -> bool {
        incident.asked.is_none() && self.rules().find(record, incident.failure).is_none()
    }

    /// What is to be done about a failed run.
    ///
    /// ```
    /// use std::time::Duration;
    /// use redrive_core::{Action, Delivery, Draw, Failure, Flow, Incident, InPlace, RetryState};
    /// use redrive_core::{Delayed, Policy, RecordView, Strategy, Tier, Timestamp};
    ///
    /// let flow = Flow::new("orders")
    ///     .with_strategy(Strategy::Tiers(vec![Tier::new("orders.retry.30s", Duration::from_secs(30))]))
    ///     .with_default(Policy::named("Anything").with_delayed(Delayed::default()));
    /// let fresh = RetryState::default();
    /// let delivery = Delivery { record: RecordView::default(), state: &fresh, in_place: InPlace::default() };
    /// let failure = Failure::of_status(503);
    /// let now = Timestamp::from_millis(1_000);
    /// let verdict = flow.decide(&delivery, &Incident::from(&failure), now, Draw::Seed(1));
    /// assert!(matches!(verdict.action, Action::Publish { due, .. } if due.as_millis() == 31_000));
    /// assert_eq!(verdict.state.overall, 1);
    /// ```
    pub fn decide<'a>(
        &'a self,
        delivery: &Delivery<'a>,
        incident: &Incident<'a>,
        now: Timestamp,
        draw: Draw,
    ) -> Verdict<'a> {
        let is_retry_asked = incident.asked == Some(Ask::Retry);
        let retry_at = match incident.asked {
            None | Some(Ask::Retry) => None,
            Some(Ask::RetryAt(at)) => Some(at),
            Some(Ask::DeadLetter) => {
                return self.end_unruled(delivery, now, Then::DeadLetter, Reason::Handler);
            }
            Some(Ask::Drop) => return self.end_unruled(delivery, now, Then::Drop, Reason::Handler),
            Some(Ask::Stop { exit }) => {
                return self.end_unruled(delivery, now, Then::Stop { exit }, Reason::Handler);
            }
        };
        let found = self.rules().find(&delivery.record, incident.failure).or(incident.provided);
        let is_retryable = is_retry_asked || retry_at.is_some() || incident.failure.is_retryable();
        let policy = match found.filter(|it| !is_retry_asked || !it.is_no_retry()) {
            Some(policy) => policy,
            None if is_retryable => self.default_policy(),
            None => {
                return self.end_unruled(delivery, now, Then::DeadLetter, Reason::NotRetryable);
            }
        };
        Case { flow: self, delivery: *delivery, failure: incident.failure, policy, retry_at, now }
            .decide(draw)
    }

    /// Whether another failure would be the record's end, as far as that can be known before it happens: if it gets the
    /// same policy as the last one. Of a record that was not published yet, nobody knows which one that is: there it is the
    /// last chance if no policy would retry it.
    ///
    /// A failure that gets another policy may be retried all the same, and one that is not retryable ends a record at any
    /// time.
    pub fn is_last_chance(&self, delivery: &Delivery<'_>, now: Timestamp) -> bool {
        let failure = Failure::default();
        let known = delivery.state.policy.as_deref();
        let policies = || self.rules().iter().map(Rule::policy).chain([self.default_policy()]);
        let is_meant = |it: &&Policy| known.is_none_or(|name| it.id.may_be(name));
        let is_end = |policy: &Policy| {
            let case = Case {
                flow: self,
                delivery: *delivery,
                failure: &failure,
                policy,
                retry_at: None,
                now,
            };
            let id = known.map_or_else(|| policy.id.resolve(&failure), Cow::Borrowed);
            case.in_place_wait(&id, Draw::Lowest).is_none()
                && case.route(&id, Draw::Lowest).is_err()
        };
        if policies().any(|it| is_meant(&it)) {
            policies().filter(is_meant).all(is_end)
        } else {
            is_end(self.default_policy())
        }
    }

    /// The end of a record that no policy decided about.
    fn end_unruled<'a>(
        &'a self,
        delivery: &Delivery<'a>,
        now: Timestamp,
        then: Then,
        reason: Reason,
    ) -> Verdict<'a> {
        let state = RetryState {
            policy: None,
            policy_attempts: 0,
            first_failed_at: Some(delivery.first_failed_at(now)),
            ..delivery.state.clone()
        };
        Verdict { state, action: self.ending(then, reason) }
    }

    fn ending(&self, then: Then, reason: Reason) -> Action<'_> {
        match then {
            Then::DeadLetter => Action::DeadLetter { topic: self.dead_letter(), reason },
            Then::Drop => Action::Drop { reason },
            Then::Stop { exit } => Action::Stop { exit, reason },
        }
    }
}

impl Delivery<'_> {
    fn first_failed_at(&self, now: Timestamp) -> Timestamp {
        self.state.first_failed_at.or(self.in_place.failed_at).unwrap_or(now)
    }
}

/// A failure together with the policy that was found for it.
struct Case<'a> {
    flow: &'a Flow,
    delivery: Delivery<'a>,
    failure: &'a Failure,
    policy: &'a Policy,
    retry_at: Option<Timestamp>,
    now: Timestamp,
}

/// Where a record goes next, and when it is due there.
struct Route<'a> {
    topic: &'a Arc<str>,
    tier: u32,
    delay: Duration,
}

impl<'a> Case<'a> {
    fn decide(&self, draw: Draw) -> Verdict<'a> {
        let id = self.policy.id.resolve(self.failure);
        if let Some(wait) = self.in_place_wait(&id, draw) {
            let in_place = InPlace {
                runs: self.delivery.in_place.runs.saturating_add(1),
                failed_at: Some(self.delivery.in_place.failed_at.unwrap_or(self.now)),
            };
            return Verdict {
                state: self.unmoved(id),
                action: Action::RunAgain { wait, in_place },
            };
        }
        match self.route(&id, draw) {
            Ok(route) => {
                let due = self.now.after(route.delay);
                let action = Action::Publish { topic: route.topic, due, delay: route.delay };
                Verdict { state: self.moved(id, route.tier), action }
            }
            Err(reason) => Verdict {
                state: self.unmoved(id),
                action: self.flow.ending(self.policy.then, reason),
            },
        }
    }

    /// How long to wait for the next run in place, if there is one.
    fn in_place_wait(&self, id: &str, draw: Draw) -> Option<Duration> {
        let in_memory = self.policy.in_memory.as_ref()?;
        let runs = self.delivery.in_place.runs;
        if runs >= in_memory.attempts || self.delivery.state.is_under(id) {
            return None;
        }
        let wait = in_memory.backoff.delay_of(runs, draw, self.failure, self.now);
        let asked = match (self.retry_at, self.failure.retry_after) {
            (Some(at), _) => at.since(self.now).min(MAX_DELAY),
            (None, Some(asked)) if asked > wait => {
                self.within_bounds(asked, Some(&in_memory.backoff))
            }
            (None, _) => return Some(wait),
        };
        // Long waits belong to the retry topics, where there are any.
        (!self.has_delayed_part()).then_some(asked)
    }

    fn has_delayed_part(&self) -> bool {
        let is_wanted = self.policy.delayed.is_some() || self.retry_at.is_some();
        is_wanted && !self.flow.strategy().tiers().is_empty()
    }

    /// The next tier, or why there is none.
    fn route(&self, id: &str, draw: Draw) -> Result<Route<'a>, Reason> {
        let state = self.delivery.state;
        let delayed = self.policy.delayed.as_ref();
        if delayed.is_none() && self.retry_at.is_none() {
            let retries = self.policy.in_memory.as_ref().is_some_and(|it| it.attempts > 0);
            return Err(if retries { Reason::Attempts } else { Reason::Policy });
        }
        let published = state.attempts_under(id);
        let cap = delayed.and_then(|it| it.attempts);
        if cap.is_some_and(|cap| published >= cap) {
            let never = self.policy.is_no_retry();
            return Err(if never { Reason::Policy } else { Reason::Attempts });
        }
        let backoff = delayed.and_then(|it| it.backoff.as_ref());
        let route = self.choose(backoff, published, draw).ok_or(Reason::Attempts)?;
        if state.overall >= self.flow.max_overall_attempts_with(self.policy) {
            return Err(Reason::Overall);
        }
        let due = self.now.after(route.delay);
        let elapsed = due.since(self.delivery.first_failed_at(self.now));
        if self.flow.max_elapsed().is_some_and(|max| elapsed > max) {
            return Err(Reason::Elapsed);
        }
        Ok(route)
    }

    fn choose(&self, backoff: Option<&Backoff>, published: u32, draw: Draw) -> Option<Route<'a>> {
        let state = self.delivery.state;
        let strategy = self.flow.strategy();
        if let Some(at) = self.retry_at {
            let delay = at.since(self.now).min(MAX_DELAY);
            let (tier, chosen) = strategy.tier_for(delay)?;
            return Some(Route { topic: &chosen.topic, tier, delay });
        }
        let asked = self.failure.retry_after.map(|asked| self.within_bounds(asked, backoff));
        let Some(backoff) = backoff else {
            let (tier, chosen) = strategy.walk(state.tier, state.tier_attempts)?;
            let delay = asked.or(chosen.delay.map(bounded)).unwrap_or_else(|| {
                Backoff::from(ExponentialRandom::default()).delay(published, draw)
            });
            return Some(Route { topic: &chosen.topic, tier, delay });
        };
        let nominal = || backoff.nominal_of(published, self.failure, self.now);
        let (tier, chosen) = strategy.tier_for(asked.unwrap_or_else(nominal))?;
        let delay =
            asked.unwrap_or_else(|| backoff.delay_of(published, draw, self.failure, self.now));
        Some(Route { topic: &chosen.topic, tier, delay })
    }

    /// A `Retry-After` within the policy's bounds, else within the flow's.
    fn within_bounds(&self, asked: Duration, backoff: Option<&Backoff>) -> Duration {
        let max = backoff.and_then(Backoff::max).unwrap_or(self.flow.retry_after_max());
        let min = backoff.and_then(Backoff::min).unwrap_or(Duration::ZERO);
        bounded(asked.min(max).max(min))
    }

    /// The state of a record that stays where it is, or ends.
    fn unmoved(&self, id: Cow<'a, str>) -> RetryState<'a> {
        let state = self.delivery.state;
        RetryState {
            overall: state.overall,
            policy_attempts: state.attempts_under(&id),
            policy: Some(id),
            tier: state.tier,
            tier_attempts: state.tier_attempts,
            first_failed_at: Some(self.delivery.first_failed_at(self.now)),
        }
    }

    /// The state of a record that goes to `tier`.
    fn moved(&self, id: Cow<'a, str>, tier: u32) -> RetryState<'a> {
        let mut state = self.unmoved(id);
        state.overall = state.overall.saturating_add(1);
        state.policy_attempts = state.policy_attempts.saturating_add(1);
        let stays = state.tier == Some(tier);
        state.tier_attempts = if stays { state.tier_attempts.saturating_add(1) } else { 1 };
        state.tier = Some(tier);
        state
    }
}
