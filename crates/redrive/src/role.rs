//! Which of its flows' topics a process reads.
//!
//! A role never says which group reads a topic: that is the config's alone. It only says whether this process is a member. So
//! a role needs groups that read nothing else, and where a group would be read by halves it is refused.

use std::fmt;
use std::str::FromStr;

use redrive_core::Flow;
use redrive_core::lane::LaneKind;

use crate::RunError;
use crate::config::{FlowConfig, Ordering};
use crate::engine::plan::{FlowPlan, Role as Stop};

/// What a process does of what its flows need.
///
/// `Main` and `Retry` together are everything. `Relay` is the part of `Retry` that only moves records, and needs no handler.
///
/// | strategy | `Main` reads | `Retry` reads | `Relay` reads |
/// | --- | --- | --- | --- |
/// | none | source | draining topics | nothing |
/// | single, tiers | source | retry and draining topics | nothing |
/// | delay-then-retry | source | delay topics, the retry topic, draining topics | delay topics |
/// | back-to-source | source | the waiting topic, draining topics | the waiting topic |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Everything.
    #[default]
    All,
    /// Source topics.
    Main,
    /// All topics but source topics.
    Retry,
    /// Topics whose records are only moved when they are due.
    Relay,
}

impl Role {
    /// All of them.
    pub const EACH: [Role; 4] = [Role::All, Role::Main, Role::Retry, Role::Relay];

    /// In one word.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::All => "all",
            Role::Main => "main",
            Role::Retry => "retry",
            Role::Relay => "relay",
        }
    }

    /// Whether such a process reads this topic of a flow.
    pub(crate) fn reads(self, flow: &Flow, stop: Stop) -> bool {
        let kind = FlowPlan::lane_kind(flow, stop);
        match self {
            Role::All => true,
            Role::Main => kind == LaneKind::Source,
            Role::Retry => kind != LaneKind::Source,
            Role::Relay => kind == LaneKind::Relay,
        }
    }

    /// Whether such a process reads anything of a flow.
    pub(crate) fn reads_any(self, flow: &FlowConfig) -> bool {
        flow.stops().iter().any(|it| self.reads(&flow.flow, it.role))
    }

    /// Whether such a process runs records of a flow, and not only moves them.
    pub fn needs_handler(self, flow: &FlowConfig) -> bool {
        let is_run = |stop| FlowPlan::lane_kind(&flow.flow, stop) != LaneKind::Relay;
        flow.stops().iter().any(|it| self.reads(&flow.flow, it.role) && is_run(it.role))
    }

    /// Whether these flows can be run in this role: each group is read as a whole, or not at all.
    pub(crate) fn check(self, main: &str, flows: &[FlowConfig]) -> Result<(), RunError> {
        // One owner has all that belongs to an entity.
        let is_split = |flow: &&FlowConfig| {
            flow.ordering == Ordering::Key
                && self != Role::All
                && self.reads_any(flow)
                && flow.stops().iter().any(|it| !self.reads(&flow.flow, it.role))
        };
        if let Some(flow) = flows.iter().find(is_split) {
            return Err(RunError::BadRole(format!(
                "the flow of {source} cannot run in the role `{self}`: with `ordering: key` one member reads a partition of {source} together with the same one of its retry topics; run in the role `all`",
                source = flow.flow.source()
            )));
        }
        let stops =
            || flows.iter().flat_map(|flow| flow.stops().into_iter().map(move |it| (flow, it)));
        let read = stops().filter(|(flow, it)| self.reads(&flow.flow, it.role));
        for (flow, stop) in read {
            let group = group_of(main, flow, stop.role);
            let mut others = stops().filter(|(other, it)| {
                !self.reads(&other.flow, it.role) && group_of(main, other, it.role) == group
            });
            let Some((other_flow, other)) = others.next() else {
                continue;
            };
            // Of the two, the one that can have another group.
            let (flow, movable) = if stop.role == Stop::Source {
                (other_flow, &other.topic)
            } else {
                (flow, &stop.topic)
            };
            let key = if self == Role::Relay && other.role != Stop::Source {
                "`group` for each of its `retry.topics`".to_owned()
            } else {
                "`retry.group`".to_owned()
            };
            return Err(RunError::BadRole(format!(
                "the flow of {source} cannot run in the role `{self}`: the group {group} reads {movable} together with {beside}, so that a member can only do both; set {key} to a group of its own, or run in the role `all`",
                source = flow.flow.source(),
                beside = if *movable == stop.topic { &other.topic } else { &stop.topic },
            )));
        }
        if !flows.iter().any(|it| self.reads_any(it)) {
            let what = match self {
                Role::Relay => "no flow has the strategy `delay-then-retry` or `back-to-source`",
                _ => "no flow has retry topics",
            };
            return Err(RunError::BadRole(format!(
                "there is nothing to do in the role `{self}`: {what}"
            )));
        }
        Ok(())
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A word that is no role.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no role: take all, main, retry or relay")]
pub struct RoleError(String);

impl FromStr for Role {
    type Err = RoleError;

    fn from_str(text: &str) -> Result<Self, RoleError> {
        let found = Role::EACH.into_iter().find(|it| it.as_str() == text);
        found.ok_or_else(|| RoleError(text.to_owned()))
    }
}

/// The group that reads a topic of a flow.
pub(crate) fn group_of(main: &str, flow: &FlowConfig, stop: Stop) -> String {
    let own = match stop {
        Stop::Source => None,
        Stop::Tier(index) => {
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            let tier = flow.tier_groups.get(index).and_then(Option::as_ref);
            tier.or(flow.retry_group.as_ref())
        }
        Stop::Retry => flow.retry_group.as_ref(),
    };
    own.map_or_else(|| main.to_owned(), Clone::clone)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redrive_core::{Strategy, Tier};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn flow(topic: &str, strategy: Strategy) -> FlowConfig {
        FlowConfig::new(Flow::new(topic).with_strategy(strategy))
    }

    fn tiers(topic: &str) -> FlowConfig {
        let tier = |number| Tier::new(format!("{topic}.{number}"), SECOND);
        flow(topic, Strategy::Tiers(vec![tier(1), tier(2)]))
    }

    fn delays(topic: &str) -> FlowConfig {
        let delays = vec![Tier::new(format!("{topic}.delay"), SECOND)];
        flow(topic, Strategy::DelayThenRetry { delays, retry: format!("{topic}.retry").into() })
    }

    fn returns(topic: &str) -> FlowConfig {
        flow(topic, Strategy::BackToSource(Tier::endless(format!("{topic}.wait"))))
    }

    fn apart(flow: FlowConfig) -> FlowConfig {
        FlowConfig { retry_group: Some("g-retry".to_owned()), ..flow }
    }

    fn read(role: Role, flow: &FlowConfig) -> Vec<String> {
        let stops = flow.stops().into_iter().filter(|it| role.reads(&flow.flow, it.role));
        stops.map(|it| it.topic.to_string()).collect()
    }

    fn refusal(role: Role, flows: &[FlowConfig]) -> String {
        role.check("g", flows).unwrap_err().to_string()
    }

    #[test]
    fn main_and_retry_together_read_each_topic_once() {
        for flow in [
            flow("a", Strategy::None).with_draining("old"),
            flow("a", Strategy::Single(Tier::endless("a.retry"))),
            tiers("a").with_draining("old"),
            delays("a"),
            returns("a").with_draining("old"),
        ] {
            let mut both = read(Role::Main, &flow);
            assert_eq!(both, ["a"]);
            both.extend(read(Role::Retry, &flow));
            assert_eq!(both, read(Role::All, &flow));
        }
    }

    #[test]
    fn a_relay_reads_what_is_only_moved_and_needs_no_handler() {
        assert_eq!(read(Role::Relay, &delays("a")), ["a.delay"]);
        assert_eq!(read(Role::Relay, &returns("a").with_draining("old")), ["a.wait"]);
        assert!(read(Role::Relay, &tiers("a")).is_empty());
        assert!(
            !Role::Relay.needs_handler(&delays("a")) && !Role::Relay.needs_handler(&returns("a"))
        );
        // Where the only retry topic is moved back, retrying needs no handler either.
        assert!(!Role::Retry.needs_handler(&returns("a")));
        assert!(Role::Retry.needs_handler(&returns("a").with_draining("old")));
        assert!(Role::Retry.needs_handler(&delays("a")) && Role::Main.needs_handler(&returns("a")));
    }

    #[test]
    fn everything_in_one_group_runs_only_whole() {
        for flow in [tiers("orders"), delays("orders"), returns("orders")] {
            assert!(Role::All.check("g", std::slice::from_ref(&flow)).is_ok());
            for role in [Role::Main, Role::Retry] {
                let refused = refusal(role, std::slice::from_ref(&flow));
                assert!(refused.contains("flow of orders"), "{refused}");
                assert!(refused.contains(&format!("role `{role}`")), "{refused}");
                assert!(refused.contains("`retry.group`"), "{refused}");
            }
        }
    }

    #[test]
    fn a_flow_in_order_runs_only_whole() {
        let flow = tiers("orders").with_order_by(crate::config::Entity::Key);
        assert!(Role::All.check("g", std::slice::from_ref(&flow)).is_ok());
        for role in [Role::Main, Role::Retry] {
            let refused = refusal(role, std::slice::from_ref(&flow));
            assert!(refused.contains("`ordering: key`"), "{refused}");
            assert!(refused.contains("run in the role `all`"), "{refused}");
            assert!(!refused.contains("retry.group"), "{refused}");
        }
        let alone = flow_without_retries().with_order_by(crate::config::Entity::Key);
        assert!(Role::Main.check("g", &[alone]).is_ok());
    }

    #[test]
    fn a_group_of_their_own_sets_retry_topics_free() {
        for flow in [tiers("a"), delays("a"), returns("a")] {
            let flows = [apart(flow), flow_without_retries()];
            assert!(Role::Main.check("g", &flows).is_ok());
            assert!(Role::Retry.check("g", &flows).is_ok());
        }
        let by_tier = FlowConfig {
            tier_groups: vec![Some("g1".to_owned()), Some("g2".to_owned())],
            ..tiers("a")
        };
        assert!(Role::Main.check("g", &[by_tier]).is_ok());
    }

    fn flow_without_retries() -> FlowConfig {
        flow("plain", Strategy::None)
    }

    #[test]
    fn one_tier_in_the_main_group_is_one_too_many() {
        let half = FlowConfig { tier_groups: vec![Some("g1".to_owned()), None], ..tiers("orders") };
        let refused = refusal(Role::Main, std::slice::from_ref(&half));
        assert!(refused.contains("orders.2") && !refused.contains("orders.1 "), "{refused}");
        assert!(refusal(Role::Retry, &[half]).contains("orders.2"));
        let same = FlowConfig { retry_group: Some("g".to_owned()), ..tiers("orders") };
        assert!(refusal(Role::Main, &[same]).contains("`retry.group`"));
    }

    #[test]
    fn the_flow_that_is_in_the_way_is_named() {
        let refused = refusal(Role::Main, &[apart(tiers("a")), tiers("b")]);
        assert!(refused.contains("flow of b") && refused.contains("b.1"), "{refused}");
    }

    #[test]
    fn a_relay_needs_a_group_that_runs_nothing() {
        assert!(Role::Relay.check("g", &[apart(returns("a"))]).is_ok());
        let refused = refusal(Role::Relay, &[apart(delays("orders"))]);
        assert!(refused.contains("orders.delay together with orders.retry"), "{refused}");
        assert!(refused.contains("`group` for each of its `retry.topics`"), "{refused}");
        let own = FlowConfig { tier_groups: vec![Some("g-relay".to_owned())], ..delays("orders") };
        assert!(Role::Relay.check("g", &[apart(own)]).is_ok());
    }

    #[test]
    fn a_role_with_nothing_to_do_is_refused() {
        assert!(refusal(Role::Relay, &[apart(tiers("a"))]).contains("nothing to do"));
        assert!(refusal(Role::Retry, &[flow_without_retries()]).contains("nothing to do"));
    }

    #[test]
    fn roles_come_back_from_their_words() {
        for role in Role::EACH {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert!("Main".parse::<Role>().unwrap_err().to_string().contains("main, retry or relay"));
    }
}
