//! From a record to a request's headers and body.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use redrive::{Context, Failure, Kind, Record};

use crate::encode;

/// What a service is told beside the record's own headers.
const TOPIC: HeaderName = HeaderName::from_static("redrive-topic");
const PARTITION: HeaderName = HeaderName::from_static("redrive-partition");
const OFFSET: HeaderName = HeaderName::from_static("redrive-offset");
const TIMESTAMP: HeaderName = HeaderName::from_static("redrive-timestamp");
const KEY: HeaderName = HeaderName::from_static("redrive-key");
const NULL: HeaderName = HeaderName::from_static("redrive-null");
const ORIGIN_TOPIC: HeaderName = HeaderName::from_static("redrive-origin-topic");
const ORIGIN_PARTITION: HeaderName = HeaderName::from_static("redrive-origin-partition");
const ORIGIN_OFFSET: HeaderName = HeaderName::from_static("redrive-origin-offset");
const DELIVERY: HeaderName = HeaderName::from_static("redrive-delivery");
const OVERALL_ATTEMPTS: HeaderName = HeaderName::from_static("redrive-overall-attempts");
const POLICY: HeaderName = HeaderName::from_static("redrive-policy");
const FIRST_FAILED_AT: HeaderName = HeaderName::from_static("redrive-first-failed-at");
const LAST_ATTEMPT: HeaderName = HeaderName::from_static("redrive-last-attempt");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const NULL_HEADER: HeaderName = HeaderName::from_static("redrive-null-header");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// Before the name of each of the record's own headers.
const OWN: &str = "redrive-header-";
/// Before the attributes of a CloudEvent, in Kafka and over HTTP.
const ATTRIBUTE: (&[u8], &str) = (b"ce_", "ce-");

/// The body: the value where it is, and nothing for null.
pub(crate) fn body(record: &Record) -> Bytes {
    match record.value() {
        None | Some([]) => Bytes::new(),
        Some(_) => Bytes::from_owner(Value(record.clone())),
    }
}

struct Value(Record);

impl AsRef<[u8]> for Value {
    fn as_ref(&self) -> &[u8] {
        self.0.value().unwrap_or_default()
    }
}

/// All headers of a request: `fixed` ones first, which the record's may replace.
pub(crate) fn headers(
    fixed: &HeaderMap,
    record: &Record,
    context: &Context,
    idempotency_key: &str,
) -> Result<HeaderMap, TooMuch> {
    let mut all = Headers(fixed.clone());
    all.set(TOPIC, encode::value(record.topic().as_bytes()))?;
    all.set(PARTITION, record.partition().into())?;
    all.set(OFFSET, record.offset().into())?;
    if let Some(time) = record.timestamp() {
        all.set(TIMESTAMP, time.as_millis().into())?;
    }
    if let Some(key) = record.key() {
        all.set(KEY, encode::value(key))?;
    }
    if record.value().is_none() {
        all.set(NULL, HeaderValue::from_static("true"))?;
    }
    let (topic, partition, offset) = context.origin();
    all.set(ORIGIN_TOPIC, encode::value(topic.as_bytes()))?;
    all.set(ORIGIN_PARTITION, partition.into())?;
    all.set(ORIGIN_OFFSET, offset.into())?;
    let attempts = context.overall_attempts();
    all.set(DELIVERY, (u64::from(attempts) + 1).into())?;
    all.set(OVERALL_ATTEMPTS, attempts.into())?;
    if let Some(policy) = context.policy() {
        all.set(POLICY, encode::value(policy.as_bytes()))?;
    }
    if let Some(time) = context.first_failed_at() {
        all.set(FIRST_FAILED_AT, time.as_millis().into())?;
    }
    if context.is_last_attempt() {
        all.set(LAST_ATTEMPT, HeaderValue::from_static("true"))?;
    }
    all.set(IDEMPOTENCY_KEY, encode::value(idempotency_key.as_bytes()))?;
    if record.value().is_none() {
        // There is nothing that it could be the type of, unless the record says so.
        all.0.remove(CONTENT_TYPE);
    }
    // On a record that was retried they are Redrive's, and have just been told; on any other they are somebody else's.
    let is_told = |name: &[u8]| {
        attempts > 0 && std::str::from_utf8(name).is_ok_and(redrive::headers::is_native)
    };
    let mut has_state = false;
    for (name, value) in record.raw_headers().filter(|it| !is_told(it.0)) {
        let Some(value) = value else {
            all.add(NULL_HEADER, encode::name_text(name))?;
            continue;
        };
        all.add(encode::name(OWN, name).ok_or(TooMuch)?, encode::value(value))?;
        if let Some(attribute) = name.strip_prefix(ATTRIBUTE.0).filter(|it| !it.is_empty()) {
            let name = encode::name(ATTRIBUTE.1, attribute).ok_or(TooMuch)?;
            all.set(name, encode::attribute(value))?;
            continue;
        }
        let Some(plain) = encode::as_it_is(value) else {
            continue;
        };
        match name.to_ascii_lowercase().as_slice() {
            b"content-type" => all.set(CONTENT_TYPE, plain)?,
            b"traceparent" => all.set(TRACEPARENT, plain)?,
            b"tracestate" if has_state => all.add(TRACESTATE, plain)?,
            b"tracestate" => {
                has_state = true;
                all.set(TRACESTATE, plain)?;
            }
            _ => {}
        }
    }
    Ok(all.0)
}

struct Headers(HeaderMap);

impl Headers {
    fn set(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), TooMuch> {
        self.0.try_insert(name, value).map(drop).map_err(|_| TooMuch)
    }

    fn add(&mut self, name: HeaderName, value: HeaderValue) -> Result<(), TooMuch> {
        self.0.try_append(name, value).map(drop).map_err(|_| TooMuch)
    }
}

/// A record that no request can carry.
#[derive(Debug)]
pub(crate) struct TooMuch;

impl From<TooMuch> for Failure {
    fn from(_: TooMuch) -> Self {
        let message = "the record has more headers, or longer ones, than a request can carry";
        Failure::of_kind(Kind::VALIDATION).with_message(message)
    }
}
