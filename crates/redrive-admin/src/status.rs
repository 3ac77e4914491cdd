//! How a consumer is, in JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use redrive::{FlowReport, FlowStatus, PartitionReport, Report};
use serde_json::{Value, json};

/// The answer to `GET /status`.
pub(crate) fn json(report: &Report) -> Value {
    let state = &report.state;
    let groups = report.groups.iter().map(|it| {
        json!({
            "group": it.group,
            "joined": it.is_joined,
            "partitions": it.partitions,
            "rebalances": it.rebalances,
            "stands_still": it.stands_still,
        })
    });
    let flows = report.flows.iter().zip(&state.flows).map(|(report, status)| flow(report, status));
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "ready": state.is_ready(),
        "ending": state.is_ending,
        "troubles": state.troubles(),
        "partitions": state.partitions,
        "groups": groups.collect::<Vec<_>>(),
        "flows": flows.collect::<Vec<_>>(),
    })
}

fn flow(report: &FlowReport, status: &FlowStatus) -> Value {
    let state = match (&status.stopped, status.is_paused) {
        (Some(_), _) => "stopped",
        (None, true) => "paused",
        (None, false) => "running",
    };
    json!({
        "topic": status.topic,
        "state": state,
        "stopped": status.stopped,
        "breaker_open": status.is_breaker_open,
        "running": status.running,
        "concurrency": report.concurrency,
        "unpublished": status.unpublished,
        "failed_last_minute": status.failed_last_minute,
        "entities": {
            "pending": status.pending_entities,
            "followers": status.followers,
            "closed": status.closed_entities,
        },
        "records": {
            "done": status.succeeded,
            "retried": status.retried,
            "dead_lettered": status.dead_lettered,
            "dropped": status.dropped,
            "relayed": report.relayed,
            "foreign": status.foreign,
        },
        "topics": topics(report),
    })
}

fn topics(report: &FlowReport) -> Vec<Value> {
    let mut topics: BTreeMap<(&str, &str), Vec<&PartitionReport>> = BTreeMap::new();
    for it in &report.partitions {
        topics.entry((&it.tier, &it.topic)).or_default().push(it);
    }
    // The source first, then the tiers by their number.
    let mut topics: Vec<_> = topics.into_iter().collect();
    topics
        .sort_by_key(|((tier, _), _)| (*tier != "source", tier.parse::<u32>().unwrap_or(u32::MAX)));
    let topic = |((tier, name), all): ((&str, &str), Vec<&PartitionReport>)| {
        let sum = |of: fn(&PartitionReport) -> u64| all.iter().map(|it| of(it)).sum::<u64>();
        let worst = |of: fn(&PartitionReport) -> Option<Duration>| {
            all.iter().filter_map(|it| of(it)).max().map(|it| it.as_secs_f64())
        };
        json!({
            "topic": name,
            "tier": tier,
            "partitions": all.len(),
            "lag": sum(|it| it.unread().unwrap_or(0)),
            "uncommitted": sum(|it| it.uncommitted().unwrap_or(0)),
            "waiting": sum(|it| it.waiting),
            "ready": sum(|it| it.ready),
            "oldest_seconds": worst(|it| it.oldest),
            "overdue_seconds": worst(|it| it.overdue),
        })
    };
    topics.into_iter().map(topic).collect()
}
