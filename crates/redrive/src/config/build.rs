//! From what is written to what is meant: names are derived, sets put in their places, and
//! contradictions told.

use std::collections::BTreeMap;
use std::sync::Arc;

use redrive_core::headers::Dialect;
use redrive_core::{Delayed, Flow, InMemory, Policy, Rule, Rules, Strategy, Then, Tier};

use super::advice;
use super::http;
use super::kafka::Kafka;
use super::node::quoted;
use super::problem::{Place, Problems, show_key};
use super::raw::{
    MAX_ATTEMPTS, Ordering, RawBreaker, RawConfig, RawDefault, RawDelayed, RawDrain, RawFlow,
    RawInMemory, RawPolicy, RawRetry, RawTier, StrategyName,
};
use super::read::{At, Topic, topic_problem};
use super::suggest::nearest;
use super::{BreakerConfig, COMMIT_INTERVAL, Config, Drain, FlowConfig, Handler, PAYLOAD_BUDGET};
use crate::topics::{is_state_topic_ambiguous, state_topic};

/// The most topics of one flow.
const MAX_TOPICS: usize = 1000;
/// The most policies of one flow, and of all flows together, with sets in their places.
const MAX_POLICIES: (usize, usize) = (1000, 20_000);

/// The config, as far as it can be understood.
pub(super) fn build(raw: &RawConfig, out: &mut Problems) -> Config {
    let RawConfig { schema: _, .. } = raw;
    let mut builder = Builder { raw, uses: Vec::new(), source: Default::default(), rules: 0, out };
    builder.check_sets();
    let no_flows = Vec::new();
    let flows = raw.flows.as_ref().map_or(&no_flows, |it| &it.value);
    if let Some(at) =
        raw.flows.as_ref().filter(|it| it.value.is_empty() && !builder.out.has_errors())
    {
        builder.out.error(&at.place, "there is no flow", "add an entry with a `topic`");
    }
    let flows =
        flows.iter().enumerate().filter_map(|(index, it)| builder.flow(index, it)).collect();
    builder.use_state_topic();
    builder.check_topics();
    builder.check_embedded();
    let kafka = raw.kafka.as_ref().map(|it: &At<Kafka>| it.value.clone());
    let group = builder.group().map(str::to_owned);
    Config {
        kafka,
        group,
        flows,
        state_topic: raw.state_topic.as_ref().map(|it| it.value.0.clone()),
        commit_interval: raw.commit_interval.as_ref().map_or(COMMIT_INTERVAL, |it| it.value.0),
        drain: raw.drain.as_ref().map_or_else(Drain::default, |it| it.value.to_drain()),
        exactly_once: raw.exactly_once.as_ref().is_some_and(|it| it.value),
        start: raw.start.as_ref().map(|it| it.value).unwrap_or_default(),
        admin: raw.admin.as_ref().map(|it| it.value.to_admin()),
        otlp: raw.otlp.as_ref().map(|it| it.value.to_otlp()),
        log: raw.log.as_ref().map(|it| it.value.to_log()).unwrap_or_default(),
    }
}

struct Builder<'a> {
    raw: &'a RawConfig,
    uses: Vec<Use>,
    /// The flow's source topic, and how it is written.
    source: (String, String),
    /// How many rules all flows have together.
    rules: usize,
    out: &'a mut Problems,
}

/// What a flow does with a topic.
struct Use {
    flow: usize,
    role: Role,
    topic: String,
    /// How it is written.
    shown: String,
    place: Place,
    is_derived: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Source,
    Retry,
    DeadLetter,
    Draining,
    State,
}

impl Role {
    fn name(self) -> &'static str {
        match self {
            Role::Source => "the source topic",
            Role::Retry => "a retry topic",
            Role::DeadLetter => "the dead-letter topic",
            Role::Draining => "a draining topic",
            Role::State => "the state topic",
        }
    }
}

/// A rule together with where it is written.
pub(super) struct FoundRule<'a> {
    pub(super) rule: Rule,
    pub(super) raw: &'a RawPolicy,
    pub(super) place: &'a Place,
}

impl<'a> Builder<'a> {
    /// What the embedded broker does not have.
    fn check_embedded(&mut self) {
        let is_embedded =
            self.raw.kafka.as_ref().is_some_and(|it| matches!(it.value, Kafka::Embedded));
        if let Some(at) = self.raw.exactly_once.as_ref().filter(|it| it.value && is_embedded) {
            self.out.error(
                &at.place,
                "`exactly_once` is `true`, but the embedded broker's transactions do nothing",
                "set it to `false`, or name Apache Kafka's brokers under `kafka`",
            );
        }
    }

    fn group(&self) -> Option<&'a str> {
        self.raw.group.as_ref().map(|it| it.value.as_str())
    }

    fn flow(&mut self, index: usize, at: &'a At<RawFlow>) -> Option<FlowConfig> {
        let raw = &at.value;
        let topic = raw.topic.as_ref();
        // Without a name the flow is looked at all the same, for all its problems at once.
        let source = topic.map_or("TOPIC", |it| &it.value.0).to_owned();
        let topic_place = topic.map_or(at.place.below("topic"), |it| it.place.clone());
        if let Some(it) = topic {
            self.use_topic(index, Role::Source, it);
        }
        self.source = (
            source.clone(),
            topic.map_or(source.clone(), |it| it.shown.trim_matches('`').to_owned()),
        );

        let retry = raw.retry.as_ref();
        let strategy = self.strategy(index, &source, at);
        let dead_letter = raw.dead_letter.as_ref().map(|it| &it.value);
        let dead_letter_topic = dead_letter.and_then(|it| it.topic.as_ref());
        let dead_letter_name = match dead_letter_topic {
            Some(it) => {
                self.use_topic(index, Role::DeadLetter, it);
                it.value.0.clone()
            }
            None => {
                let name = format!("{source}.dlt");
                let path = format!("{}.dead_letter.topic", at.place.path);
                self.derive_topic(index, Role::DeadLetter, &name, &Place { path, ..topic_place });
                name
            }
        };

        for it in retry.and_then(|it| it.value.draining.as_ref()).iter().flat_map(|it| &it.value) {
            self.use_topic(index, Role::Draining, it);
        }
        let has_topics = !strategy.tiers().is_empty();
        // Where the topics could not be read, nobody knows whether there are any.
        let may_have_topics = has_topics || self.out.has_error_at(&at.place.below("retry").path);
        let found = self.rules(raw, may_have_topics);
        let mut flow = Flow::new(source)
            .with_dead_letter(dead_letter_name)
            .with_strategy(strategy)
            .with_rules(found.iter().map(|it| it.rule.clone()).collect::<Rules>());
        if let Some(default) = &raw.default {
            if !may_have_topics {
                self.refuse_delayed(default.value.delayed.as_ref());
            }
            flow = flow.with_default(default.value.to_policy());
        }
        if let Some(retry) = retry.map(|it| &it.value) {
            if let Some(it) = &retry.max_overall_attempts {
                flow = flow.with_max_overall_attempts(it.value.0);
            }
            if let Some(it) = &retry.max_elapsed {
                flow = flow.with_max_elapsed(it.value);
            }
            if let Some(it) = &retry.retry_after_max {
                flow = flow.with_retry_after_max(it.value);
            }
        }
        self.check_sum(&flow, at);
        self.check_ordering(at);
        self.check_timeouts(raw);
        self.check_rate(raw, may_have_topics);
        advice::look(&flow, &found, raw, self.out);
        topic?;
        let timeout = raw.timeout.as_ref().map(|it| it.value.0);
        let service = raw.handler.as_ref().and_then(|it| it.value.http.as_ref());
        let http_timeout = service.and_then(|it| it.value.timeout.as_ref()).map(|it| it.value.0);
        Some(FlowConfig {
            flow,
            handler: service.and_then(|it| http::build(it, timeout, self.out)).map(Handler::Http),
            concurrency: raw.concurrency.as_ref().map_or(16, |it| it.value.0),
            ordering: raw.ordering.as_ref().map_or(Ordering::None, |it| it.value),
            entity: raw.entity.as_ref().map(|it| it.value.clone()).unwrap_or_default(),
            on_dead_letter: raw.on_dead_letter.as_ref().map(|it| it.value).unwrap_or_default(),
            dead_letter_format: dead_letter
                .and_then(|it| it.format.as_ref())
                .map_or(super::DeadLetterFormat::Raw, |it| it.value),
            dialect: raw.headers.as_ref().map_or(Dialect::Native, |it| it.value),
            retry_group: retry.and_then(|it| it.value.group.as_ref()).map(|it| it.value.clone()),
            tier_groups: tier_groups(retry.map(|it| &it.value)),
            timeout: timeout.filter(|_| http_timeout.is_none()),
            retry_rate: retry.and_then(|it| it.value.rate.as_ref()).map(|it| it.value.0),
            draining: retry
                .and_then(|it| it.value.draining.as_ref())
                .map(|it| it.value.iter().map(|it| it.value.0.clone()).collect())
                .unwrap_or_default(),
            breaker: raw.breaker.as_ref().map(|it| it.value.to_breaker()),
            payload_budget: raw.payload_budget.as_ref().map_or(PAYLOAD_BUDGET, |it| it.value.0),
            start: raw.start.as_ref().map(|it| it.value),
        })
    }

    fn use_topic(&mut self, flow: usize, role: Role, at: &At<Topic>) {
        let (topic, shown) = (at.value.0.clone(), at.shown.clone());
        let it = Use { flow, role, topic, shown, place: at.place.clone(), is_derived: false };
        self.uses.push(it);
    }

    /// The state topic is no flow's, whether it is named or derived.
    fn use_state_topic(&mut self) {
        let no_flow = usize::MAX;
        match (&self.raw.state_topic, &self.raw.group) {
            (Some(it), _) => self.use_topic(no_flow, Role::State, it),
            (None, Some(group)) if !self.out.has_error_at("state_topic") => {
                let written = group.shown.trim_matches('`');
                if is_state_topic_ambiguous(&group.value) {
                    let message = format!(
                        "the group {} has something that a topic's name cannot have, so that another group may get the same state topic",
                        group.shown
                    );
                    let hint = "name the state topic: `state_topic`";
                    self.out.warning(&group.place, message, hint);
                }
                self.uses.push(Use {
                    flow: no_flow,
                    role: Role::State,
                    topic: state_topic(&group.value),
                    shown: quoted(&format!("{written}.redrive")).into_owned(),
                    place: Place { path: "state_topic".to_owned(), ..group.place.clone() },
                    is_derived: true,
                });
            }
            (None, _) => {}
        }
    }

    /// A name that is not in the file must be one all the same.
    fn derive_topic(&mut self, flow: usize, role: Role, topic: &str, place: &Place) {
        let (source, written) = &self.source;
        let suffix = topic.strip_prefix(source.as_str()).unwrap_or_default();
        let shown = quoted(&format!("{written}{suffix}")).into_owned();
        if let Some((message, hint)) = topic_problem(topic, &shown) {
            let message = format!("{message}; it is derived from the source topic's name");
            let hint = format!("{hint}: give {} a name of its own", role.name());
            self.out.error(place, message, hint);
        }
        let topic = topic.to_owned();
        self.uses.push(Use { flow, role, topic, shown, place: place.clone(), is_derived: true });
    }

    fn strategy(&mut self, flow: usize, source: &str, at: &At<RawFlow>) -> Strategy {
        let Some(retry) = &at.value.retry else {
            return Strategy::None;
        };
        let (place, retry) = (&retry.place, &retry.value);
        let no_topics = Vec::new();
        let topics = retry.topics.as_ref().map_or(&no_topics, |it| &it.value);
        let name = match &retry.strategy {
            Some(it) => it.value,
            None if retry.topics.is_none() => StrategyName::None,
            None => StrategyName::Tiers,
        };
        let topics_place =
            retry.topics.as_ref().map_or(place.below("topics"), |it| it.place.clone());
        if !self.out.has_error_at(&topics_place.path) {
            self.check_shape(name, topics.len(), retry, &topics_place);
        }
        let derived = format!("{source}.retry");
        let mut tiers = Vec::with_capacity(topics.len());
        for tier in topics.iter().take(MAX_TOPICS) {
            let is_one_of_many = matches!(name, StrategyName::Tiers | StrategyName::DelayThenRetry);
            tiers.push(self.tier(flow, tier, is_one_of_many, &derived));
        }
        let mut only = || {
            if tiers.is_empty() {
                self.derive_topic(flow, Role::Retry, &derived, &topics_place);
            }
            tiers.first().cloned().unwrap_or_else(|| Tier::endless(derived.as_str()))
        };
        match name {
            StrategyName::None => Strategy::None,
            StrategyName::Single => Strategy::Single(only()),
            StrategyName::BackToSource => Strategy::BackToSource(only()),
            StrategyName::Tiers => Strategy::Tiers(tiers),
            StrategyName::DelayThenRetry => {
                let retry = match &retry.retry_topic {
                    Some(it) => {
                        self.use_topic(flow, Role::Retry, it);
                        it.value.0.clone()
                    }
                    None => {
                        self.derive_topic(flow, Role::Retry, &derived, &place.below("retry_topic"));
                        derived
                    }
                };
                Strategy::DelayThenRetry { delays: tiers, retry: retry.into() }
            }
        }
    }

    /// Whether the keys of `retry` fit its strategy.
    fn check_shape(&mut self, name: StrategyName, topics: usize, retry: &RawRetry, place: &Place) {
        let strategy = name.as_str();
        match name {
            StrategyName::None if topics > 0 => self.out.error(
                place,
                "the strategy `none` has no retry topics, but there are some",
                "take them out, or choose `tiers`, `single`, `delay-then-retry` or `back-to-source`",
            ),
            StrategyName::Single | StrategyName::BackToSource if topics > 1 => self.out.error(
                place,
                format!("the strategy `{strategy}` has one topic, but there are {topics}"),
                "keep one, or choose `tiers`",
            ),
            StrategyName::Tiers | StrategyName::DelayThenRetry if topics == 0 => self.out.error(
                place,
                format!("the strategy `{strategy}` needs topics, but there are none"),
                "add `topics` with a `topic` and a `delay` each",
            ),
            _ if topics > MAX_TOPICS => self.out.error(
                place,
                format!("there are {topics} topics in one flow, but 1,000 is the limit"),
                "use fewer topics with more `attempts` each",
            ),
            _ => {}
        }
        if let Some(it) =
            retry.retry_topic.as_ref().filter(|_| name != StrategyName::DelayThenRetry)
        {
            self.out.error(
                &it.place,
                format!(
                    "`retry_topic` is for the strategy `delay-then-retry`, but this is `{strategy}`"
                ),
                "take it out, or change the strategy",
            );
        }
        if let Some(it) = retry.group.as_ref().filter(|_| name == StrategyName::None) {
            let message =
                "`group` is for retry topics, but the strategy `none` has none: it has no effect";
            self.out.warning(&it.place, message, "take it out");
        }
    }

    fn tier(&mut self, flow: usize, at: &At<RawTier>, is_one_of_many: bool, derived: &str) -> Tier {
        let raw = &at.value;
        let place = raw.topic.as_ref().map_or(at.place.below("topic"), |it| it.place.clone());
        if is_one_of_many {
            for (key, is_missing) in
                [("topic", raw.topic.is_none()), ("delay", raw.delay.is_none())]
            {
                let told = self.out.has_error_at(&at.place.below(key).path);
                if is_missing && !told {
                    let message = format!("the key `{key}` is missing");
                    self.out.error(
                        at.place.below(key),
                        message,
                        "each of several retry topics needs it",
                    );
                }
            }
        }
        match &raw.topic {
            Some(topic) => self.use_topic(flow, Role::Retry, topic),
            None if is_one_of_many => {}
            None => self.derive_topic(flow, Role::Retry, derived, &place),
        }
        let topic = raw.topic.as_ref().map(|it: &At<Topic>| it.value.0.as_str());
        let attempts = raw.attempts.as_ref().map(|it| it.value.0);
        Tier {
            topic: Arc::from(topic.unwrap_or(derived)),
            delay: raw.delay.as_ref().map(|it| it.value),
            attempts: if is_one_of_many { attempts.or(Some(1)) } else { attempts },
        }
    }

    /// The flow's rules, with sets in their places.
    fn rules(&mut self, raw: &'a RawFlow, has_topics: bool) -> Vec<FoundRule<'a>> {
        let mut found = Vec::new();
        for at in raw.policies.iter().flat_map(|it| &it.value) {
            let Some(set) = &at.value.set else {
                if !has_topics {
                    self.refuse_delayed(at.value.delayed.as_ref());
                }
                found.extend(self.rule(at));
                continue;
            };
            self.check_use(at, set);
            for at in self.set(set) {
                if found.len() > MAX_POLICIES.0 {
                    break;
                }
                if let Some(delayed) = at.value.delayed.as_ref().filter(|_| !has_topics) {
                    let message = format!(
                        "`delayed` at {} needs retry topics, but this flow's strategy is `none`",
                        delayed.place.path
                    );
                    self.out.error(&set.place, message, "add `retry` to the flow");
                }
                found.extend(self.rule(at));
            }
        }
        self.rules += found.len();
        if let Some(policies) = &raw.policies {
            let (in_flow, in_all) = MAX_POLICIES;
            if found.len() > in_flow || self.rules > in_all {
                let message = "there are more than 1,000 policies in a flow, or more than 20,000 in all, with their sets";
                self.out.error(
                    &policies.place,
                    message,
                    "use fewer policies with ranges and lists",
                );
                found.truncate(if self.rules > in_all { 0 } else { in_flow });
            }
        }
        found
    }

    /// Sets are looked at once, whether a flow uses them or not.
    fn check_sets(&mut self) {
        let sets = self.raw.policy_sets.iter().flat_map(|it| &it.value.0);
        for at in sets.flat_map(|it| &it.1.value) {
            match &at.value.set {
                Some(set) => {
                    let message = "a policy set cannot use another one";
                    self.out.error(&set.place, message, "use both sets in the flow");
                }
                None => _ = self.rule(at),
            }
        }
    }

    fn set(&mut self, name: &At<String>) -> &'a [At<RawPolicy>] {
        let sets =
            self.raw.policy_sets.as_ref().map(|it| it.value.0.as_slice()).unwrap_or_default();
        if let Some((_, policies)) = sets.iter().find(|it| it.0 == name.value) {
            return &policies.value;
        }
        let known = || sets.iter().map(|it| it.0.as_str());
        let hint = match nearest(&name.value, known()) {
            Some(it) => format!("did you mean `{it}`?"),
            None if sets.is_empty() => {
                "add it to `policy_sets` at the top of the config".to_owned()
            }
            None => format!("known: {}", known().map(show_key).collect::<Vec<_>>().join(", ")),
        };
        let message = format!("there is no policy set {}", name.shown);
        self.out.error(&name.place, message, hint);
        &[]
    }

    fn check_use(&mut self, at: &At<RawPolicy>, set: &At<String>) {
        let it = &at.value;
        let others = it.id.is_some()
            || it.on.is_some()
            || it.in_memory.is_some()
            || it.delayed.is_some()
            || it.then.is_some();
        if others {
            let message = "`use` stands for a whole policy set, but there are other keys beside it";
            self.out.error(&set.place, message, "give them an entry of their own");
        }
    }

    fn rule(&mut self, at: &'a At<RawPolicy>) -> Option<FoundRule<'a>> {
        let raw = &at.value;
        let Some(on) = &raw.on else {
            let place = at.place.below("on");
            if !self.out.has_error_at(&place.path) && raw.set.is_none() {
                let hint = "say what the policy is for, such as `on: { status: 503 }` or `on: any`";
                self.out.error(place, "the key `on` is missing", hint);
            }
            return None;
        };
        let rule = Rule::new(on.value.0.clone(), raw.to_policy());
        Some(FoundRule { rule, raw, place: &at.place })
    }

    fn refuse_delayed(&mut self, delayed: Option<&At<RawDelayed>>) {
        if let Some(delayed) = delayed {
            let message = "`delayed` needs retry topics, but this flow's strategy is `none`";
            self.out.error(
                &delayed.place,
                message,
                "add `retry` to the flow, or take `delayed` out",
            );
        }
    }

    /// The cap that follows from the tiers has the same limit as one that is written.
    fn check_sum(&mut self, flow: &Flow, at: &At<RawFlow>) {
        let cap = flow.max_overall_attempts();
        if cap > MAX_ATTEMPTS {
            let message = format!("the topics' attempts add up to {cap}, but 10,000 is the limit");
            let hint = "set `max_overall_attempts`, or lower the topics' `attempts`";
            self.out.error(at.place.below("retry").below("topics"), message, hint);
        }
    }

    /// With order per entity a lane is owned whole.
    fn check_ordering(&mut self, at: &At<RawFlow>) {
        let raw = &at.value;
        if raw.ordering.as_ref().is_none_or(|it| it.value != Ordering::Key) {
            // Where that cannot be read, nobody knows.
            if self.out.has_error_at(&at.place.below("ordering").path) {
                return;
            }
            let other = raw.ordering.as_ref().map_or(Ordering::None, |it| it.value).as_str();
            let keys = [
                ("entity", raw.entity.as_ref().map(|it| &it.place)),
                ("on_dead_letter", raw.on_dead_letter.as_ref().map(|it| &it.place)),
            ];
            for (key, place) in keys.into_iter().filter_map(|it| Some((it.0, it.1?))) {
                let message = format!("`{key}` is for `ordering: key`, but this is `{other}`");
                self.out.error(place, message, "add `ordering: key` to the flow, or take it out");
            }
            return;
        }
        let Some(retry) = &raw.retry else {
            return;
        };
        let main = self.group();
        let retry = &retry.value;
        let tiers =
            retry.topics.iter().flat_map(|it| &it.value).filter_map(|it| it.value.group.as_ref());
        for group in retry.group.iter().chain(tiers).filter(|it| Some(it.value.as_str()) != main) {
            let message = format!(
                "`ordering: key` needs one owner for all of an entity's records, but the group {} is another one",
                group.shown
            );
            self.out.error(&group.place, message, "take `group` out, or choose another ordering");
        }
        let relayed = [StrategyName::DelayThenRetry, StrategyName::BackToSource];
        if let Some(it) = retry.strategy.as_ref().filter(|it| relayed.contains(&it.value)) {
            let message = format!(
                "`ordering: key` cannot be kept with the strategy `{}`, where records are moved by a relay",
                it.value.as_str()
            );
            self.out.error(&it.place, message, "choose `tiers` or `single`, or another ordering");
        }
    }

    /// Only one limit of a run can count.
    fn check_timeouts(&mut self, raw: &RawFlow) {
        let http = raw.handler.as_ref().and_then(|it| it.value.http.as_ref());
        let own = http.and_then(|it| it.value.timeout.as_ref());
        if let (Some(timeout), Some(own)) = (&raw.timeout, own) {
            let message = format!(
                "`timeout` has no effect beside the handler's own, which is {} at {}",
                own.shown, own.place.path
            );
            self.out.warning(&timeout.place, message, "keep one of them");
        }
    }

    /// A rate is for records of retry topics.
    fn check_rate(&mut self, raw: &RawFlow, may_have_topics: bool) {
        let Some(retry) = raw.retry.as_ref().map(|it| &it.value) else {
            return;
        };
        if let Some(rate) =
            retry.rate.as_ref().filter(|_| !may_have_topics && retry.draining.is_none())
        {
            let message =
                "`rate` is for retry topics, but the strategy `none` has none: it has no effect";
            self.out.warning(&rate.place, message, "take it out");
        }
    }

    /// Whether topics are used in ways that get in each other's way.
    fn check_topics(&mut self) {
        let mut first: BTreeMap<&str, &Use> = BTreeMap::new();
        for it in &self.uses {
            let Some(other) = first.get(it.topic.as_str()) else {
                first.insert(&it.topic, it);
                continue;
            };
            let topic = &it.shown;
            let derived = if it.is_derived { " (a derived name)" } else { "" };
            let (message, hint) = if it.flow == other.flow && it.role == other.role {
                let message = format!(
                    "{topic} is {} of this flow twice, first at {}",
                    it.role.name(),
                    other.place.path
                );
                (message, "give each its own topic")
            } else if it.flow == other.flow {
                let message = format!(
                    "{topic}{derived} is both {} and {} of one flow",
                    other.role.name(),
                    it.role.name()
                );
                (message, "give each its own topic")
            } else {
                match (other.role, it.role) {
                    (Role::DeadLetter, Role::DeadLetter) => continue,
                    (_, Role::State) => (
                        format!(
                            "{topic}{derived} is the state topic here and {} of a flow, at {}",
                            other.role.name(),
                            other.place.path
                        ),
                        "give the state topic a name of its own: `state_topic`",
                    ),
                    (Role::Draining, _) | (_, Role::Draining) => (
                        format!(
                            "{topic}{derived} is {} here and {} of another flow, at {}",
                            it.role.name(),
                            other.role.name(),
                            other.place.path
                        ),
                        "only a topic that nothing else uses can run dry",
                    ),
                    (Role::Source, Role::Source) => (
                        format!(
                            "{topic} is the source topic of two flows, first at {}",
                            other.place.path
                        ),
                        "put both into one flow, or give one of them a config and group of its own",
                    ),
                    (Role::Source, _) | (_, Role::Source) => (
                        format!(
                            "{topic}{derived} is {} here and {} at {}: records would go round in a loop",
                            it.role.name(),
                            other.role.name(),
                            other.place.path
                        ),
                        "give one of them another topic",
                    ),
                    _ => (
                        format!(
                            "{topic}{derived} is {} here and {} of another flow, at {}",
                            it.role.name(),
                            other.role.name(),
                            other.place.path
                        ),
                        "give each flow its own topic",
                    ),
                }
            };
            self.out.error(&it.place, message, hint);
        }
    }
}

fn tier_groups(retry: Option<&RawRetry>) -> Vec<Option<String>> {
    let topics = retry.and_then(|it| it.topics.as_ref());
    let groups = topics.into_iter().flat_map(|it| &it.value);
    groups.map(|it| it.value.group.as_ref().map(|it| it.value.clone())).collect()
}

impl RawDrain {
    fn to_drain(&self) -> Drain {
        let usual = Drain::default();
        Drain {
            revoke: self.revoke.as_ref().map_or(usual.revoke, |it| it.value.0),
            shutdown: self.shutdown.as_ref().map_or(usual.shutdown, |it| it.value.0),
        }
    }
}

impl RawBreaker {
    fn to_breaker(&self) -> BreakerConfig {
        let usual = BreakerConfig::default();
        BreakerConfig {
            failures: self.failures.as_ref().map_or(usual.failures, |it| it.value.0),
            window: self.window.as_ref().map_or(usual.window, |it| it.value.0),
            minimum: self.minimum.as_ref().map_or(usual.minimum, |it| it.value.0),
            counted: self.count.as_ref().map_or(usual.counted, |it| it.value),
            probe: self.probe.as_ref().map_or(usual.probe, |it| it.value.0),
        }
    }
}

impl RawPolicy {
    fn to_policy(&self) -> Policy {
        Policy {
            id: self.id.as_ref().map(|it| it.value.id.clone()).unwrap_or_default(),
            in_memory: self.in_memory.as_ref().map(|it| it.value.to_in_memory()),
            delayed: self.delayed.as_ref().map(|it| it.value.to_delayed()),
            then: self.then.as_ref().map_or(Then::DeadLetter, |it| it.value),
        }
    }
}

impl RawDefault {
    fn to_policy(&self) -> Policy {
        Policy {
            in_memory: self.in_memory.as_ref().map(|it| it.value.to_in_memory()),
            delayed: self.delayed.as_ref().map(|it| it.value.to_delayed()),
            then: self.then.as_ref().map_or(Then::DeadLetter, |it| it.value),
            ..Policy::default()
        }
    }
}

impl RawInMemory {
    fn to_in_memory(&self) -> InMemory {
        let mut in_memory = InMemory::default();
        if let Some(it) = &self.attempts {
            in_memory.attempts = it.value.0;
        }
        if let Some(it) = &self.backoff {
            in_memory.backoff = it.value.clone();
        }
        in_memory
    }
}

impl RawDelayed {
    fn to_delayed(&self) -> Delayed {
        Delayed {
            attempts: self.attempts.as_ref().map(|it| it.value.0),
            backoff: self.backoff.as_ref().map(|it| it.value.clone()),
        }
    }
}
