//! A dead letter as one JSON object, for readers that do not look at headers.

use redrive_core::headers::{Stamp, Stop};
use serde_json::{Map, Value, json};

use crate::kafka::publish::Body;
use crate::record::Record;

/// The record and what is known of it. Bytes that are not text are written as base64.
pub(super) fn wrap(record: &Record, stamp: &Stamp<'_>) -> Body {
    let reason = match stamp.stop {
        Stop::DeadLetter { reason, .. } => Some(reason.as_str()),
        Stop::Tier { .. } => None,
    };
    let failure = stamp.failure.map(|it| {
        json!({
            "error": it.failure.error_type,
            "message": it.failure.message,
            "detail": it.failure.detail,
            "kind": it.failure.kind.as_ref().map(|it| it.as_str()),
            "status": it.failure.status,
            "response": it.failure.response,
            "at": it.at.as_millis(),
        })
    });
    let headers: Vec<_> = record
        .raw_headers()
        .map(|(name, value)| json!({ "name": text(Some(name)), "value": text(value) }))
        .collect();
    let (topic, partition, offset) = stamp.from;
    let envelope = json!({
        "reason": reason,
        "group": stamp.group,
        "origin": {
            "topic": stamp.origin.topic,
            "partition": stamp.origin.partition,
            "offset": stamp.origin.offset,
            "timestamp": stamp.produced_at.map(redrive_core::Timestamp::as_millis),
        },
        "from": { "topic": topic, "partition": partition, "offset": offset },
        "attempts": stamp.state.overall,
        "policy": stamp.state.policy,
        "first_failed_at": stamp.state.first_failed_at.map(redrive_core::Timestamp::as_millis),
        "failure": failure,
        "key": text(record.key()),
        "value": text(record.value()),
        "headers": headers,
    });
    Body { key: record.key().map(<[u8]>::to_vec), value: Some(envelope.to_string().into_bytes()) }
}

/// Text as it is; other bytes as `{ "base64": … }`.
fn text(bytes: Option<&[u8]>) -> Value {
    let Some(bytes) = bytes else {
        return Value::Null;
    };
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => Value::Object(Map::from_iter([("base64".to_owned(), base64(bytes).into())])),
    }
}

/// Bytes as text.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| chunk.get(index).copied().map_or(0, u32::from);
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4u32 {
            let index = (bits >> (18 - 6 * digit)) & 63;
            let is_padding = digit as usize > chunk.len();
            text.push(if is_padding { '=' } else { char::from(DIGITS[index as usize]) });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_text_are_base64() {
        let known =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (bytes, text) in known {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
        assert_eq!(text(Some(&[0xFF, 0xFE])), json!({ "base64": "//4=" }));
        assert_eq!(text(Some(b"{}")), json!("{}"));
        assert_eq!(text(None), Value::Null);
    }
}
