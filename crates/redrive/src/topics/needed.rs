//! The topics that a config needs.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redrive_core::Strategy;

use crate::config::{Config, FlowConfig, Ordering};

/// What a topic is there for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Purpose {
    /// Where a flow's records come from. Redrive makes it only when it is told to.
    Source,
    /// Where records wait, or run again.
    Retry,
    /// Where records go that cannot be helped.
    DeadLetter,
    /// A retry topic of an earlier config, which is read and never made.
    Draining,
    /// Where progress goes that does not fit the metadata of a commit.
    State,
}

impl Purpose {
    /// In one word or two.
    pub fn as_str(self) -> &'static str {
        match self {
            Purpose::Source => "source",
            Purpose::Retry => "retry",
            Purpose::DeadLetter => "dead letter",
            Purpose::Draining => "draining",
            Purpose::State => "state",
        }
    }
}

impl fmt::Display for Purpose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A topic that a config needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Needed {
    pub(crate) topic: Arc<str>,
    pub(crate) purpose: Purpose,
    /// The flows that use it, by their source topics: several may share a dead-letter topic, and all have the state topic.
    pub(crate) sources: Vec<Arc<str>>,
    /// The longest that a record waits in it.
    pub(crate) longest: Duration,
    /// Whether its partitions are read together with the same ones of its source.
    pub(crate) is_joined: bool,
}

/// The topics that a config needs, each once.
pub(crate) fn needed(config: &Config, state_topic: &Arc<str>) -> Vec<Needed> {
    let mut needed: Vec<Needed> = Vec::new();
    for own in config.flows.iter().flat_map(of_flow) {
        match needed.iter_mut().find(|it| it.topic == own.topic) {
            Some(shared) => {
                shared.sources.extend(own.sources);
                shared.longest = shared.longest.max(own.longest);
            }
            None => needed.push(own),
        }
    }
    needed.push(Needed {
        topic: Arc::clone(state_topic),
        purpose: Purpose::State,
        sources: config.flows.iter().map(|it| Arc::clone(it.flow.source())).collect(),
        longest: Duration::ZERO,
        is_joined: false,
    });
    needed
}

fn of_flow(flow: &FlowConfig) -> Vec<Needed> {
    let source = flow.flow.source();
    let longest = flow.flow.longest_delay();
    let one = |topic: &Arc<str>, purpose| Needed {
        topic: Arc::clone(topic),
        purpose,
        sources: vec![Arc::clone(source)],
        longest,
        is_joined: flow.ordering == Ordering::Key
            && matches!(purpose, Purpose::Retry | Purpose::Draining),
    };
    let retry = match flow.flow.strategy() {
        Strategy::DelayThenRetry { retry, .. } => Some(retry),
        _ => None,
    };
    let tiers = flow.flow.strategy().tiers().iter().map(|it| &it.topic);
    std::iter::once(one(source, Purpose::Source))
        .chain(tiers.chain(retry).map(|it| one(it, Purpose::Retry)))
        .chain([one(flow.flow.dead_letter(), Purpose::DeadLetter)])
        .chain(flow.draining.iter().map(|it| one(&Arc::from(it.as_str()), Purpose::Draining)))
        .collect()
}

/// The state topic of a config: the one that it names, or the one that follows from its group.
pub(crate) fn state_topic_of(config: &Config, group: &str) -> Arc<str> {
    config.state_topic.clone().unwrap_or_else(|| state_topic(group)).into()
}

/// The name of a group's state topic. A topic's name cannot have all that a group's can.
pub(crate) fn state_topic(group: &str) -> String {
    let name: String = group.chars().map(|it| if is_allowed(it) { it } else { '_' }).collect();
    let name: String = name.chars().take(240).collect();
    format!("{name}.redrive")
}

/// Whether the name of the state topic leaves out something of the group's, so that another group may have the same.
pub(crate) fn is_state_topic_ambiguous(group: &str) -> bool {
    state_topic(group) != format!("{group}.redrive")
}

fn is_allowed(it: char) -> bool {
    it.is_ascii_alphanumeric() || matches!(it, '.' | '_' | '-')
}

#[cfg(test)]
mod tests {
    use redrive_core::{Flow, Tier};

    use super::*;

    #[test]
    fn a_dead_letter_topic_that_flows_share_is_there_once_and_serves_all() {
        let flow = |topic: &str, delay: u64| {
            let tier = Tier::new(format!("{topic}.1"), Duration::from_hours(delay));
            let flow = Flow::new(topic).with_strategy(Strategy::Tiers(vec![tier]));
            FlowConfig::new(flow.with_dead_letter("graveyard"))
        };
        let config = Config::new("g").with_flow(flow("a", 2)).with_flow(flow("b", 5));
        let needed = needed(&config, &state_topic_of(&config, "g"));
        let names: Vec<_> = needed.iter().map(|it| &*it.topic).collect();
        assert_eq!(names, ["a", "a.1", "graveyard", "b", "b.1", "g.redrive"]);
        let shared = &needed[2];
        assert_eq!(shared.sources, [Arc::from("a"), Arc::from("b")]);
        assert_eq!(shared.longest, Duration::from_hours(5));
        assert_eq!(needed[5].sources.len(), 2);
    }

    #[test]
    fn a_state_topic_is_a_topics_name() {
        assert_eq!(state_topic("billing"), "billing.redrive");
        assert_eq!(state_topic("billing/eu west"), "billing_eu_west.redrive");
        assert!(state_topic(&"ü".repeat(300)).len() <= 249);
        assert!(!is_state_topic_ambiguous("billing.v2_a-b"));
        assert!(is_state_topic_ambiguous("billing/eu"));
        assert!(is_state_topic_ambiguous(&"a".repeat(241)));
    }
}
