//! What order per entity asks of a flow, of its topics and of those who read them.

use std::time::Duration;

use redrive_core::Strategy;

use crate::config::{FlowConfig, Ordering};
use crate::engine::plan::Role as Stop;
use crate::kafka::group::Joined;
pub(crate) use crate::kafka::group::Ordered as Needs;
use crate::role::group_of;

/// How often lanes are committed that nothing happens to.
pub(crate) const COMMIT_AGAIN: Duration = Duration::from_mins(10);

/// Why the order cannot be kept in a flow, if that is so. A config that was read from a file has none of these.
pub(crate) fn problem(flow: &FlowConfig, group: &str) -> Option<String> {
    if flow.ordering != Ordering::Key {
        return None;
    }
    let topic = flow.flow.source();
    let told =
        |why: String| Some(format!("the flow of {topic} cannot have `ordering: key`: {why}"));
    let relay = match flow.flow.strategy() {
        Strategy::DelayThenRetry { .. } => Some("delay-then-retry"),
        Strategy::BackToSource(_) => Some("back-to-source"),
        _ => None,
    };
    if let Some(strategy) = relay {
        return told(format!(
            "its strategy is `{strategy}`, where records are moved by a relay; choose `tiers` or `single`"
        ));
    }
    for stop in flow.stops() {
        let own = group_of(group, flow, stop.role);
        if own != group {
            return told(format!(
                "{} is read by the group {own}, but all of an entity's records need one owner; let {group} read it",
                stop.topic
            ));
        }
    }
    None
}

/// What a topic of a flow has to do with lanes of several partitions.
pub(crate) fn joined(flow: &FlowConfig, role: Stop) -> Option<Joined> {
    if flow.ordering != Ordering::Key {
        return None;
    }
    if role != Stop::Source {
        return Some(Joined::Other);
    }
    let others = flow.stops().into_iter().filter(|it| it.role != Stop::Source);
    Some(Joined::Source {
        on_dead_letter: flow.on_dead_letter,
        others: others.map(|it| it.topic).collect(),
    })
}

#[cfg(test)]
mod tests {
    use redrive_core::{Flow, Tier};

    use super::*;
    use crate::config::Entity;

    fn flow(strategy: Strategy) -> FlowConfig {
        FlowConfig::new(Flow::new("orders").with_strategy(strategy)).with_order_by(Entity::Key)
    }

    fn tiers() -> FlowConfig {
        let tier = |number| Tier::new(format!("orders.{number}"), Duration::from_secs(1));
        flow(Strategy::Tiers(vec![tier(1), tier(2)]))
    }

    #[test]
    fn what_breaks_the_order_is_refused_by_name() {
        let refused = |flow: &FlowConfig| problem(flow, "g").unwrap();
        let wait = || Tier::endless("orders.wait");
        let relayed =
            Strategy::DelayThenRetry { delays: vec![wait()], retry: "orders.retry".into() };
        assert!(refused(&flow(relayed)).contains("`delay-then-retry`"));
        assert!(refused(&flow(Strategy::BackToSource(wait()))).contains("`back-to-source`"));
        let apart = FlowConfig { tier_groups: vec![None, Some("other".to_owned())], ..tiers() };
        let told = refused(&apart);
        assert!(told.contains("orders.2 is read by the group other"), "{told}");
        let same = FlowConfig { retry_group: Some("g".to_owned()), ..tiers() };
        for fine in [tiers(), same, flow(Strategy::None), flow(Strategy::Single(wait()))] {
            assert_eq!(problem(&fine, "g"), None);
        }
        let plain = FlowConfig { ordering: Ordering::None, ..apart };
        assert_eq!(problem(&plain, "g"), None);
    }
}
