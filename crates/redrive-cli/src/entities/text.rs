//! Entities as people read them.

use std::fmt::Write;
use std::time::SystemTime;

use redrive::Timestamp;
use redrive::entities::{BlockedEntity, ClosedEntity, WaitingRecord};

use super::Found;
use crate::output::{BOLD, CYAN, DIM, GREEN, RED, YELLOW, plural, styled};

/// How many records of an entity are shown.
const SHOWN: usize = 50;

pub fn list(found: &Found) -> String {
    let mut text = String::new();
    for it in &found.closed {
        closed(&mut text, it, found.followers.get(&it.head).copied());
    }
    for it in &found.blocked {
        blocked(&mut text, it);
    }
    let is_any = !text.is_empty();
    let _ = writeln!(
        text,
        "{}{} closed, {} blocked",
        if is_any { "\n" } else { "" },
        found.closed.len(),
        found.blocked.len()
    );
    if !found.closed.is_empty() {
        text.push_str(
            "closed ones go on after `redrive entities release`, blocked ones by themselves\n",
        );
    }
    text
}

pub fn show(found: &Found) -> String {
    let mut text = String::new();
    for it in &found.closed {
        closed(&mut text, it, found.followers.get(&it.head).copied());
    }
    for it in &found.blocked {
        blocked(&mut text, it);
        for (index, record) in it.records.iter().take(SHOWN).enumerate() {
            let _ = writeln!(text, "  {}", waiting(record, index));
        }
        if let Some(more) = it.records.len().checked_sub(SHOWN).filter(|it| *it > 0) {
            let _ = writeln!(
                text,
                "  {}",
                styled(DIM, format!("… and {} more", plural(more, "record")))
            );
        }
    }
    if text.is_empty() {
        text.push_str("it flows: nothing of it is closed, and nothing waits in a retry topic\n");
    }
    text
}

pub fn released(entities: &[ClosedEntity], is_dry_run: bool) -> String {
    let mut text = String::new();
    let done = if is_dry_run { "would be opened" } else { "opened" };
    for it in entities {
        let _ = writeln!(
            text,
            "{} {done}; its head was {}",
            name(it.entity.as_deref(), &it.id),
            it.head
        );
    }
    if entities.is_empty() {
        text.push_str("nothing is closed that could be released\n");
    }
    text
}

fn name(entity: Option<&str>, id: &str) -> String {
    match entity {
        Some(entity) => styled(BOLD, entity.escape_debug()),
        None => styled(BOLD, id),
    }
}

fn closed(text: &mut String, it: &ClosedEntity, followers: Option<u64>) {
    let _ = writeln!(
        text,
        "{} {} {}",
        styled(RED, "closed "),
        name(it.entity.as_deref(), &it.id),
        styled(DIM, format!("id {}", it.id)),
    );
    let _ = writeln!(
        text,
        "  for {}, by {}: {}",
        age(it.since),
        styled(CYAN, &it.head),
        why(it.error.as_deref(), it.message.as_deref(), it.reason.as_deref()),
    );
    if let Some(followers) = followers {
        let count = usize::try_from(followers).unwrap_or(usize::MAX);
        let _ = writeln!(text, "  {} in the dead-letter topic", behind(count));
    }
}

fn blocked(text: &mut String, it: &BlockedEntity) {
    let _ = writeln!(
        text,
        "{} {} {}",
        styled(YELLOW, "blocked"),
        name(it.entity.as_deref(), &it.id),
        styled(DIM, format!("id {}", it.id)),
    );
    let Some(head) = it.records.first() else {
        return;
    };
    let place = format!("{}/{}/{}", it.topic, it.partition, head.origin);
    let since = head.since.map(|it| format!("for {}, ", age(it))).unwrap_or_default();
    let _ = writeln!(
        text,
        "  {since}by {}: {}",
        styled(CYAN, place),
        why(head.error.as_deref(), head.message.as_deref(), None),
    );
    let _ = writeln!(
        text,
        "  waits in {}, {}; {} behind it",
        head.at.topic,
        when(head),
        behind(it.records.len().saturating_sub(1)),
    );
}

fn behind(followers: usize) -> String {
    if followers == 0 { "none".to_owned() } else { plural(followers, "follower") }
}

fn waiting(record: &WaitingRecord, index: usize) -> String {
    let attempts = match record.attempts {
        0 => "not run yet".to_owned(),
        attempts => format!("failed {}", plural(usize::try_from(attempts).unwrap_or(0), "time")),
    };
    let turn = if index == 0 { styled(GREEN, "head    ") } else { styled(DIM, "follower") };
    format!("{turn} origin {} at {}, {attempts}, {}", record.origin, record.at, when(record))
}

fn when(record: &WaitingRecord) -> String {
    match record.due {
        None => "due at once".to_owned(),
        Some(due) if due > now() => format!("due in {}", rough(due.since(now()).as_secs())),
        Some(due) => format!("due for {}", rough(now().since(due).as_secs())),
    }
}

fn why(error: Option<&str>, message: Option<&str>, reason: Option<&str>) -> String {
    let parts = [error, message, reason];
    let told: Vec<_> =
        parts.into_iter().flatten().map(|it| it.escape_debug().to_string()).collect();
    if told.is_empty() { "nobody knows why".to_owned() } else { told.join(", ") }
}

fn age(since: Timestamp) -> String {
    rough(now().since(since).as_secs())
}

/// A time in its largest unit.
fn rough(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7_199 => format!("{} min", seconds / 60),
        7_200..=172_799 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

fn now() -> Timestamp {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
}
