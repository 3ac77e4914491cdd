//! What a principal must be allowed to do, where brokers ask.
//!
//! An idempotent producer needs nothing on the cluster since Kafka 2.8: to write to any topic is enough there. Older brokers
//! want `IdempotentWrite` on the cluster, too.

use std::sync::Arc;

use redrive_core::Strategy;

use super::needed::{Needed, Purpose};
use crate::config::{Config, FlowConfig};

/// What the transactional ids of a group's members begin with.
pub(crate) fn transactional_prefix(group: &str) -> String {
    format!("{group}.redrive.")
}

/// Something that a principal must be allowed to do.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Access {
    /// With what.
    pub resource: Resource,
    /// Its name, or what it begins with.
    pub name: String,
    /// Whether the name is only the beginning.
    pub is_prefix: bool,
    /// To do what, as Kafka calls it.
    pub operations: Vec<&'static str>,
    /// When it is needed.
    pub needed_to: NeededTo,
}

/// What Kafka guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Resource {
    /// A topic.
    Topic,
    /// A consumer group.
    Group,
    /// The ids of transactional producers.
    TransactionalId,
}

/// When access is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum NeededTo {
    /// For consuming.
    Run,
    /// For making topics.
    Apply,
}

/// Everything that must be allowed: first to run, then to make topics.
pub(crate) fn access(config: &Config, group: &str, needed: &[Needed]) -> Vec<Access> {
    let mut all = Vec::new();
    let mut groups = vec![group.to_owned()];
    for own in config.flows.iter().flat_map(groups_of) {
        if !groups.contains(own) {
            groups.push(own.clone());
        }
    }
    let run = |resource, name: String, operations: &[&'static str]| Access {
        resource,
        name,
        is_prefix: resource == Resource::TransactionalId,
        operations: operations.to_vec(),
        needed_to: NeededTo::Run,
    };
    all.extend(groups.iter().map(|it| run(Resource::Group, it.clone(), &["Read"])));
    for group in groups.iter().filter(|_| config.exactly_once) {
        let prefix = transactional_prefix(group);
        all.push(run(Resource::TransactionalId, prefix, &["Describe", "Write"]));
    }
    let is_returned_to = |topic: &Arc<str>| {
        let flow = config.flow(topic);
        flow.is_some_and(|it| matches!(it.flow.strategy(), Strategy::BackToSource(_)))
    };
    for it in needed {
        let operations: &[_] = match it.purpose {
            Purpose::Source if is_returned_to(&it.topic) => &["Read", "Write", "DescribeConfigs"],
            Purpose::Source => &["Read", "DescribeConfigs"],
            // A draining topic is written to when a record has to be appended again.
            Purpose::Retry | Purpose::Draining | Purpose::State => {
                &["Read", "Write", "DescribeConfigs"]
            }
            Purpose::DeadLetter => &["Write", "DescribeConfigs"],
        };
        all.push(run(Resource::Topic, it.topic.to_string(), operations));
    }
    let is_made = |it: &&Needed| !matches!(it.purpose, Purpose::Source | Purpose::Draining);
    all.extend(needed.iter().filter(is_made).map(|it| Access {
        needed_to: NeededTo::Apply,
        ..run(Resource::Topic, it.topic.to_string(), &["Create"])
    }));
    all
}

fn groups_of(flow: &FlowConfig) -> impl Iterator<Item = &String> {
    flow.retry_group.iter().chain(flow.tier_groups.iter().flatten())
}

#[cfg(test)]
mod tests {
    use redrive_core::{Flow, Tier};

    use super::super::needed::{needed, state_topic_of};
    use super::*;

    fn all(config: &Config) -> Vec<String> {
        let needed = needed(config, &state_topic_of(config, "g"));
        let all = access(config, "g", &needed);
        all.iter()
            .map(|it| {
                let star = if it.is_prefix { "*" } else { "" };
                let operations = it.operations.join("+");
                format!("{:?} {:?} {}{star} {operations}", it.needed_to, it.resource, it.name)
            })
            .collect()
    }

    #[test]
    fn every_topic_and_group_is_listed_with_what_is_done_to_it() {
        let tier = Tier::endless("a.retry");
        let flow = FlowConfig {
            retry_group: Some("g-retry".to_owned()),
            ..FlowConfig::new(Flow::new("a").with_strategy(Strategy::Single(tier)))
        }
        .with_draining("a.old");
        let config = Config::new("g").with_flow(flow).with_exactly_once();
        assert_eq!(
            all(&config),
            [
                "Run Group g Read",
                "Run Group g-retry Read",
                "Run TransactionalId g.redrive.* Describe+Write",
                "Run TransactionalId g-retry.redrive.* Describe+Write",
                "Run Topic a Read+DescribeConfigs",
                "Run Topic a.retry Read+Write+DescribeConfigs",
                "Run Topic a.dlt Write+DescribeConfigs",
                "Run Topic a.old Read+Write+DescribeConfigs",
                "Run Topic g.redrive Read+Write+DescribeConfigs",
                "Apply Topic a.retry Create",
                "Apply Topic a.dlt Create",
                "Apply Topic g.redrive Create",
            ]
        );
    }

    #[test]
    fn a_source_that_records_go_back_to_is_written_to() {
        let flow = Flow::new("a").with_strategy(Strategy::BackToSource(Tier::endless("a.wait")));
        let config = Config::new("g").with_flow(FlowConfig::new(flow));
        let all = all(&config);
        assert!(all.contains(&"Run Topic a Read+Write+DescribeConfigs".to_owned()), "{all:?}");
        assert!(!all.iter().any(|it| it.contains("TransactionalId")), "{all:?}");
    }
}
