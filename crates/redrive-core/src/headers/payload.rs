//! The dialect `payload`: `process_at`, `retry_count` and `created_at` at the top of a JSON value.
//!
//! Only the bytes of `process_at` and `retry_count` are ever changed; everything else in the value,
//! its white space included, stays as it is. So this does not parse and print JSON: it finds where
//! the fields are, and does not mind what is in the others.

use std::ops::Range;

use super::number::{self, Field};
use super::{Dialect, Due, Found, Input};
use crate::state::RetryState;
use crate::time::Timestamp;

const PROCESS_AT: &str = "process_at";
const RETRY_COUNT: &str = "retry_count";
const CREATED_AT: &str = "created_at";

pub(super) fn read<'a>(input: &Input<'_, 'a>) -> Option<Found<'a>> {
    let value = input.value?;
    let mut process_at = Field::Absent;
    let mut retry_count = Field::Absent;
    let mut created_at = Field::Absent;
    scan(value, |key, at| {
        let text = &value[at];
        if text == b"null" {
            return;
        }
        if is_key(key, PROCESS_AT) {
            process_at.add(seconds(text));
        } else if is_key(key, RETRY_COUNT) {
            retry_count.add(number::count(text));
        } else if is_key(key, CREATED_AT) {
            created_at.add(seconds(text));
        }
    })?;
    let is_ours = input.context.dialect == Dialect::Payload;
    let found = [!process_at.is_absent(), !retry_count.is_absent()];
    // Where nobody asked for it, one alone is more likely the business's own field.
    if found == [false, false] || (!is_ours && found != [true, true]) {
        return None;
    }
    let overall = retry_count.get().unwrap_or(0);
    Some(Found {
        state: RetryState {
            overall,
            policy_attempts: overall,
            tier_attempts: overall,
            ..RetryState::default()
        },
        due: Due::from_field(process_at, PROCESS_AT),
        produced_at: created_at.get(),
        unreadable: (retry_count == Field::Unreadable).then_some(RETRY_COUNT),
        ..Found::default()
    })
}

/// The value with a new time and count, or nothing where it is no JSON object.
pub(super) fn rewrite(value: &[u8], due: Timestamp, retry_count: u32) -> Option<Vec<u8>> {
    let due = number::to_seconds(due).to_string();
    let count = retry_count.to_string();
    let mut changes: Vec<(Range<usize>, &str)> = Vec::new();
    let mut seen = [false; 2];
    let end = scan(value, |key, at| {
        if is_key(key, PROCESS_AT) {
            changes.push((at, &due));
            seen[0] = true;
        } else if is_key(key, RETRY_COUNT) {
            changes.push((at, &count));
            seen[1] = true;
        }
    })?;
    let mut out = Vec::with_capacity(value.len() + 64);
    let mut from = 0;
    for (at, text) in changes {
        out.extend_from_slice(&value[from..at.start]);
        out.extend_from_slice(text.as_bytes());
        from = at.end;
    }
    out.extend_from_slice(&value[from..end.last_field]);
    let mut first = end.is_empty;
    for (key, text, seen) in [(PROCESS_AT, &due, seen[0]), (RETRY_COUNT, &count, seen[1])] {
        if !seen {
            let comma = if first { "" } else { "," };
            out.extend_from_slice(format!("{comma}\"{key}\":{text}").as_bytes());
            first = false;
        }
    }
    out.extend_from_slice(&value[end.last_field..]);
    Some(out)
}

/// Whole seconds, or a fraction rounded up.
fn seconds(text: &[u8]) -> Option<Timestamp> {
    if let Some(time) = number::seconds(text) {
        return Some(time);
    }
    let is_number = text.first().is_some_and(|it| it.is_ascii_digit());
    let number = std::str::from_utf8(text).ok().filter(|_| is_number)?.parse().ok()?;
    number::fractional_seconds(number)
}

/// Where the object's last field ends.
struct End {
    last_field: usize,
    is_empty: bool,
}

/// Shows each field at the top of a JSON object: its key as it is written and where its value is.
fn scan(json: &[u8], mut show: impl FnMut(&[u8], Range<usize>)) -> Option<End> {
    let mut at = skip_space(json, 0);
    at = expect(json, at, b'{')?;
    let opened = at;
    at = skip_space(json, at);
    if json.get(at) == Some(&b'}') {
        return (skip_space(json, at + 1) == json.len())
            .then_some(End { last_field: opened, is_empty: true });
    }
    loop {
        let key_start = at;
        at = skip_string(json, at)?;
        let key = &json[key_start + 1..at - 1];
        at = expect(json, skip_space(json, at), b':')?;
        let value_start = skip_space(json, at);
        at = skip_value(json, value_start)?;
        show(key, value_start..at);
        let last_field = at;
        at = skip_space(json, at);
        match json.get(at)? {
            b',' => at = skip_space(json, at + 1),
            b'}' => {
                let ends = skip_space(json, at + 1) == json.len();
                return ends.then_some(End { last_field, is_empty: false });
            }
            _ => return None,
        }
    }
}

fn skip_space(json: &[u8], at: usize) -> usize {
    let is_space = |byte: &&u8| matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
    at + json.get(at..).unwrap_or_default().iter().take_while(is_space).count()
}

fn expect(json: &[u8], at: usize, byte: u8) -> Option<usize> {
    (json.get(at) == Some(&byte)).then_some(at + 1)
}

fn skip_string(json: &[u8], at: usize) -> Option<usize> {
    let mut at = expect(json, at, b'"')?;
    loop {
        match json.get(at)? {
            b'"' => return Some(at + 1),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn skip_value(json: &[u8], start: usize) -> Option<usize> {
    match json.get(start)? {
        b'"' => skip_string(json, start),
        b'{' | b'[' => {
            let (mut at, mut depth) = (start, 0usize);
            loop {
                match json.get(at)? {
                    b'"' => {
                        at = skip_string(json, at)?;
                        continue;
                    }
                    b'{' | b'[' => depth += 1,
                    b'}' | b']' if depth == 1 => return Some(at + 1),
                    b'}' | b']' => depth -= 1,
                    _ => {}
                }
                at += 1;
            }
        }
        _ => {
            let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-.".contains(byte);
            let length = json[start..].iter().take_while(is_part).count();
            (length > 0).then_some(start + length)
        }
    }
}

/// Whether a key, as it is written, says `name`. A letter may be written as `\u0070`.
fn is_key(written: &[u8], name: &str) -> bool {
    if !written.contains(&b'\\') {
        return written == name.as_bytes();
    }
    let mut rest = written;
    for expected in name.bytes() {
        let (byte, after) = match rest {
            [b'\\', b'u', b'0', b'0', high, low, after @ ..] => {
                let digits = [*high, *low];
                let hex = std::str::from_utf8(&digits).ok();
                (hex.and_then(|it| u8::from_str_radix(it, 16).ok()), after)
            }
            [byte, after @ ..] => (Some(*byte), after),
            [] => return false,
        };
        if byte != Some(expected) {
            return false;
        }
        rest = after;
    }
    rest.is_empty()
}
