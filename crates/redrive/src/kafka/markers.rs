//! Closed entities in the state topic: a marker for each head in the dead-letter topic that others follow.
//!
//! A marker's key has all that a lane goes by: source topic, partition, entity, head and epoch. Its value tells people what it is
//! about. It is deleted by a null value, and all of them are in partition 0, so that they have one order.

use std::sync::Arc;

use redrive_core::Timestamp;
use redrive_core::lane::{EntityId, Identity, Marker};
use serde_json::{Value, json};

use super::message::RawHeader;
use super::publish::{At, Outgoing, Publisher, Receipt, Unpublished};
use super::state::StateTopic;
use crate::engine::envelope::base64;
use crate::engine::inbox::{Inbox, Letter};

/// The partition of the state topic that has the markers.
pub(crate) const PARTITION: i32 = 0;

/// How long texts of a marker are at the most, in bytes.
const MAX_NAME: usize = 1024;
const MAX_TEXT: usize = 1024;

/// What people may want to know of a closed entity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Note {
    /// Its name, where that is text.
    pub(crate) entity: Option<String>,
    /// Its name as base64, where it is not.
    pub(crate) entity_base64: Option<String>,
    /// Since when it is closed.
    pub(crate) since: Timestamp,
    /// Why its head was dead-lettered.
    pub(crate) reason: Option<String>,
    /// The head's last failure.
    pub(crate) error: Option<String>,
    pub(crate) message: Option<String>,
}

impl Note {
    pub(crate) fn new(name: Option<&[u8]>, since: Timestamp) -> Self {
        let text = name.map(std::str::from_utf8);
        Self {
            entity: text.and_then(Result::ok).map(|it| cut(it, MAX_NAME).to_owned()),
            entity_base64: name
                .filter(|_| text.is_some_and(|it| it.is_err()))
                .map(|it| base64(it.get(..MAX_NAME).unwrap_or(it))),
            since,
            ..Self::default()
        }
    }

    /// Takes what the dead letter's headers say of the failure.
    pub(crate) fn read_headers(&mut self, headers: &[RawHeader<'_>]) {
        let text = |name: &str| {
            let found = headers.iter().rfind(|it| it.0 == name.as_bytes())?;
            let value = String::from_utf8_lossy(found.1?);
            Some(cut(&value, MAX_TEXT).to_owned())
        };
        self.reason = text("redrive-reason");
        self.error = text("redrive-error");
        self.message = text("redrive-error-message");
    }

    /// The entity's name, as far as it can be shown.
    pub(crate) fn shown(&self) -> Option<Arc<str>> {
        self.entity.as_deref().or(self.entity_base64.as_deref()).map(Arc::from)
    }

    fn write(&self, (topic, partition): (&str, i32), head: Identity) -> Vec<u8> {
        let mut value = json!({
            "entity": self.entity,
            "head": { "topic": topic, "partition": partition, "offset": head.origin },
            "since": self.since.as_millis(),
            "reason": self.reason,
            "error": self.error,
            "message": self.message,
        });
        if let (Some(name), Some(map)) = (&self.entity_base64, value.as_object_mut()) {
            map.insert("entity_base64".to_owned(), Value::from(name.as_str()));
        }
        value.to_string().into_bytes()
    }

    /// What a marker's value says. Whatever cannot be read is left out: the key alone counts.
    pub(crate) fn read(value: &[u8]) -> Self {
        let value: Value = serde_json::from_slice(value).unwrap_or_default();
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        Self {
            entity: text("entity"),
            entity_base64: text("entity_base64"),
            since: Timestamp::from_millis(value.get("since").and_then(Value::as_i64).unwrap_or(0)),
            reason: text("reason"),
            error: text("error"),
            message: text("message"),
        }
    }
}

/// An entity without a name, by its hash.
pub(crate) fn shown(entity: EntityId) -> Arc<str> {
    format!("{entity:?}").into()
}

fn cut(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or(text)
}

/// The key of a lane's marker.
pub(crate) fn write_key((topic, partition): (&str, i32), marker: Marker) -> String {
    let Marker { entity, head, epoch } = marker;
    let epoch = epoch.map(|it| it.to_string()).unwrap_or_default();
    format!("closed/{topic}/{partition}/{entity:?}/{}-{}/{epoch}", head.origin, head.redriven)
}

/// The lane and its marker, if the key is one of a marker.
pub(crate) fn read_key(key: &str) -> Option<(&str, i32, Marker)> {
    let mut parts = key.strip_prefix("closed/")?.split('/');
    let (topic, partition) = (parts.next()?, parts.next()?.parse().ok()?);
    let is_hex = |it: &&str| it.len() == 32 && it.bytes().all(|it| it.is_ascii_hexdigit());
    let entity = parts.next().filter(is_hex)?;
    let entity = EntityId::from_bytes(u128::from_str_radix(entity, 16).ok()?.to_be_bytes());
    let (origin, redriven) = parts.next()?.split_once('-')?;
    let head = Identity { origin: origin.parse().ok()?, redriven: redriven.parse().ok()? };
    let epoch = match parts.next()? {
        "" => None,
        epoch => Some(epoch.parse().ok()?),
    };
    let marker = Marker { entity, head, epoch };
    parts.next().is_none().then_some((topic, partition, marker))
}

impl StateTopic {
    /// Writes a lane's marker, or deletes it where there is no note. What becomes of that is told to the lane.
    pub(crate) fn mark(
        &self,
        publisher: &Publisher,
        at: (&str, i32),
        marker: Marker,
        note: Option<&Note>,
        lane: u64,
        inbox: &Arc<Inbox>,
    ) {
        let receipt =
            Arc::new(Marked { inbox: Arc::clone(inbox), marker, is_there: note.is_some() });
        self.write_marker(publisher, at, marker, note, receipt, lane);
    }

    /// The record that writes a marker or deletes it.
    pub(crate) fn marker(
        &self,
        at: (&str, i32),
        marker: Marker,
        note: Option<&Note>,
    ) -> Arc<Outgoing> {
        let value = note.map(|it| it.write(at, marker.head));
        self.outgoing(write_key(at, marker), value, Some(PARTITION))
    }

    /// The same for whoever wants to know.
    pub(crate) fn write_marker(
        &self,
        publisher: &Publisher,
        at: (&str, i32),
        marker: Marker,
        note: Option<&Note>,
        receipt: Arc<dyn Receipt>,
        lane: u64,
    ) {
        let outgoing = self.marker(at, marker, note);
        if let Err(code) = publisher.publish(None, outgoing, Arc::clone(&receipt), (lane, 0)) {
            receipt.published((lane, 0), Err(Unpublished::Refused(code)));
        }
    }
}

struct Marked {
    inbox: Arc<Inbox>,
    marker: Marker,
    is_there: bool,
}

impl Receipt for Marked {
    fn published(&self, (lane, _): (u64, i64), result: Result<At, Unpublished>) {
        let result = result.map_err(|it| match it {
            Unpublished::Refused(code) => code.to_string(),
            Unpublished::Aborted => "it was aborted".to_owned(),
        });
        let Marked { marker, is_there, .. } = *self;
        self.inbox.send(Letter::Marked { lane, marker, is_there, result });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(epoch: Option<u64>) -> Marker {
        let head = Identity { origin: 812, redriven: 2 };
        Marker { entity: EntityId::of(b"order-7"), head, epoch }
    }

    #[test]
    fn keys_come_back() {
        for epoch in [None, Some(0), Some(u64::MAX)] {
            let key = write_key(("orders.v1_x", 12), marker(epoch));
            assert_eq!(read_key(&key), Some(("orders.v1_x", 12, marker(epoch))), "{key}");
        }
        let key = write_key(("orders", 3), marker(Some(9)));
        assert!(key.starts_with("closed/orders/3/") && key.ends_with("/812-2/9"), "{key}");
        for other in [
            "",
            "closed/",
            "map/orders/1/2/3",
            "closed/orders/1/abc/1-0/",
            "closed/orders/x/00000000000000000000000000000000/1-0/",
            "closed/orders/1/00000000000000000000000000000000/1/",
            "closed/orders/1/00000000000000000000000000000000/1-0",
            "closed/orders/1/00000000000000000000000000000000/1-0/x",
            "closed/orders/1/00000000000000000000000000000000/1-0/1/",
            "closed/orders/1/+0000000000000000000000000000000/1-0/",
        ] {
            assert_eq!(read_key(other), None, "{other}");
        }
    }

    #[test]
    fn notes_come_back_and_are_never_long() {
        let mut note = Note::new(Some(b"order-7"), Timestamp::from_millis(1_700_000_000_000));
        let long = "ü".repeat(100_000);
        note.read_headers(&[
            (b"redrive-reason", Some(b"not-retryable")),
            (b"redrive-error", Some(b"CardDeclined")),
            (b"redrive-error-message", Some(long.as_bytes())),
        ]);
        let written = note.write(("orders", 3), marker(None).head);
        assert!(written.len() < 2000, "{}", written.len());
        assert_eq!(Note::read(&written), note);
        let value: Value = serde_json::from_slice(&written).unwrap();
        assert_eq!(value["head"], json!({ "topic": "orders", "partition": 3, "offset": 812 }));
        assert_eq!(value["since"], json!(1_700_000_000_000_i64));
        assert!(value.get("entity_base64").is_none());
        let bytes = Note::new(Some(&[0xFF, 0xFE]), Timestamp::default());
        assert_eq!((bytes.entity.as_deref(), bytes.entity_base64.as_deref()), (None, Some("//4=")));
        assert_eq!(Note::read(&bytes.write(("orders", 3), marker(None).head)), bytes);
        assert!(
            Note::new(Some(long.as_bytes()), Timestamp::default()).shown().unwrap().len()
                <= MAX_NAME
        );
        assert_eq!(Note::new(None, Timestamp::default()).shown(), None);
        assert_eq!(Note::read(b"no JSON"), Note::default());
    }
}
