//! Entities as programs read them.

use redrive::entities::{BlockedEntity, ClosedEntity, WaitingRecord};
use redrive::{Spot, Timestamp};
use serde_json::{Value, json};

use super::Found;

/// What was found; of blocked entities with all records that wait, or without.
pub fn found(found: &Found, with_records: bool) -> String {
    let closed = found.closed.iter().map(|it| closed(it, found.followers.get(&it.head).copied()));
    let blocked = found.blocked.iter().map(|it| blocked(it, with_records));
    let report =
        json!({ "closed": closed.collect::<Value>(), "blocked": blocked.collect::<Value>() });
    format!("{report:#}\n")
}

pub fn released(entities: &[ClosedEntity], is_dry_run: bool) -> String {
    let all = entities.iter().map(|it| closed(it, None)).collect::<Value>();
    let report = json!({ "dry_run": is_dry_run, "released": all });
    format!("{report:#}\n")
}

fn closed(it: &ClosedEntity, followers: Option<u64>) -> Value {
    json!({
        "entity": it.entity,
        "base64": it.is_base64,
        "id": it.id,
        "head": spot(&it.head),
        "redriven": it.redriven,
        "since": time(it.since),
        "followers": followers,
        "reason": it.reason,
        "error": it.error,
        "message": it.message,
    })
}

fn blocked(it: &BlockedEntity, with_records: bool) -> Value {
    let head = it.records.first();
    let mut blocked = json!({
        "entity": it.entity,
        "base64": it.is_base64,
        "id": it.id,
        "head": head.map(|head| json!({ "topic": &*it.topic, "partition": it.partition, "offset": head.origin })),
        "waits_at": head.map(|it| spot(&it.at)),
        "since": head.and_then(|it| it.since).map(time),
        "due": head.and_then(|it| it.due).map(time),
        "attempts": head.map(|it| it.attempts),
        "followers": it.records.len().saturating_sub(1),
        "error": head.and_then(|it| it.error.as_deref()),
        "message": head.and_then(|it| it.message.as_deref()),
    });
    if with_records {
        blocked["records"] = it.records.iter().map(record).collect();
    }
    blocked
}

fn record(it: &WaitingRecord) -> Value {
    json!({
        "origin": it.origin,
        "redriven": it.redriven,
        "at": spot(&it.at),
        "due": it.due.map(time),
        "attempts": it.attempts,
        "since": it.since.map(time),
        "error": it.error,
        "message": it.message,
    })
}

fn spot(it: &Spot) -> Value {
    json!({ "topic": &*it.topic, "partition": it.partition, "offset": it.offset })
}

/// Milliseconds since 1970, as Kafka has it.
fn time(it: Timestamp) -> Value {
    it.as_millis().into()
}
