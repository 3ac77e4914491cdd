//! A record as handlers see it.

use std::fmt;
use std::sync::Arc;

use redrive_core::Timestamp;
use redrive_core::headers::Header;

use crate::handler::Retried;
use crate::kafka::message::{Message, RawHeader, WholeMessage};
use crate::pack;
use crate::prefetch::prefetch;

/// A Kafka record. Cloning it is cheap.
///
/// Key, value and headers are as they were produced, byte for byte, at whichever stop it was read; a retried record has
/// Redrive's own headers beside its own.
#[derive(Clone)]
pub struct Record(Body);

#[derive(Clone)]
enum Body {
    /// In the memory that it was fetched to, together with its neighbours.
    Fetched(Arc<Fetched>),
    /// In memory of its own.
    Kept(Arc<Kept>),
}

/// There are a million of them in a second, and few that are kept: those are of another size, so that the allocator does not
/// mix them.
struct Fetched {
    message: WholeMessage,
    before: Before,
}

/// What is known of the copies before this one, where it is not the first.
#[derive(Clone, Default)]
pub(crate) struct Before {
    /// When the first was produced.
    pub(crate) produced_at: Option<Timestamp>,
    /// What the headers say, where it is to run: to read them takes as long as a quick run.
    pub(crate) retried: Option<Arc<Retried>>,
}

struct Kept {
    partition: i32,
    offset: i64,
    timestamp: Option<i64>,
    before: Before,
    /// Key, value, the topic's name and the headers, one behind the other.
    bytes: Box<[u8]>,
    key: Option<usize>,
    value: Option<usize>,
    topic: usize,
}

/// Where a record is.
type Place<'a> = (&'a str, i32, i64);

impl Record {
    /// A record that never was in Kafka, for trying out handlers.
    ///
    /// ```
    /// use redrive::Record;
    ///
    /// let record = Record::made_up("orders", 0, 17).with_key("k").with_value("{}").with_header("trace", Some(b"1"));
    /// assert_eq!(record.header("trace"), Some(&b"1"[..]));
    /// ```
    pub fn made_up(topic: &str, partition: i32, offset: i64) -> Self {
        let place = (topic, partition, offset);
        Self::kept(Kept::new(place, None, Before::default(), (None, None), &[]))
    }

    /// The same record with another key.
    #[must_use]
    pub fn with_key(self, key: impl AsRef<[u8]>) -> Self {
        let headers: Vec<_> = self.raw_headers().collect();
        self.changed(Some(key.as_ref()), self.value(), &headers, self.timestamp())
    }

    /// The same record with another value.
    #[must_use]
    pub fn with_value(self, value: impl AsRef<[u8]>) -> Self {
        let headers: Vec<_> = self.raw_headers().collect();
        self.changed(self.key(), Some(value.as_ref()), &headers, self.timestamp())
    }

    /// The same record with a header more.
    #[must_use]
    pub fn with_header(self, name: impl AsRef<[u8]>, value: Option<&[u8]>) -> Self {
        let mut headers: Vec<_> = self.raw_headers().collect();
        headers.push((name.as_ref(), value));
        self.changed(self.key(), self.value(), &headers, self.timestamp())
    }

    /// The same record, produced at another time.
    #[must_use]
    pub fn with_timestamp(self, time: Timestamp) -> Self {
        let headers: Vec<_> = self.raw_headers().collect();
        self.changed(self.key(), self.value(), &headers, Some(time))
    }

    fn changed(
        &self,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: &[RawHeader<'_>],
        time: Option<Timestamp>,
    ) -> Self {
        let place = (self.topic(), self.partition(), self.offset());
        let appended_at = self.appended_at().map(Timestamp::as_millis);
        let before = Before { produced_at: time, retried: None };
        let headers = pack::packed(headers.iter().copied());
        Self::kept(Kept::new(place, appended_at, before, (key, value), &headers))
    }

    fn kept(kept: Kept) -> Self {
        Self(Body::Kept(Arc::new(kept)))
    }

    pub(crate) fn new(message: Message) -> Self {
        Self::retried(WholeMessage::new(message), Before::default())
    }

    /// A copy of a record that was produced before.
    pub(crate) fn retried(message: WholeMessage, before: Before) -> Self {
        Self(Body::Fetched(Arc::new(Fetched { message, before })))
    }

    /// Lets the processor fetch the record from whichever core has it, without waiting for it.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Body::Fetched(fetched) = &self.0 {
            prefetch(Arc::as_ptr(fetched));
        }
    }

    /// A copy of a record that was produced before, in memory of its own, with its headers as [`pack`] has them.
    pub(crate) fn copied(message: &Message, before: Before, headers: &[u8]) -> Self {
        let place = (message.topic(), message.partition(), message.offset());
        let parts = (message.key(), message.value());
        Self::kept(Kept::new(place, message.timestamp(), before, parts, headers))
    }

    /// The same record in memory of its own, so that it can be kept without its neighbours.
    pub(crate) fn into_kept(self) -> Self {
        let Body::Fetched(fetched) = &self.0 else {
            return self;
        };
        let Fetched { message, before } = &**fetched;
        Self::copied(message, before.clone(), &pack::packed(message.headers()))
    }

    fn before(&self) -> &Before {
        match &self.0 {
            Body::Fetched(it) => &it.before,
            Body::Kept(kept) => &kept.before,
        }
    }

    /// What its headers say of earlier attempts, where that was read already.
    pub(crate) fn attempts_before(&self) -> Option<&Arc<Retried>> {
        self.before().retried.as_ref()
    }

    /// The topic that it was read from: the source topic, or a retry topic.
    pub fn topic(&self) -> &str {
        match &self.0 {
            Body::Fetched(it) => it.message.topic(),
            Body::Kept(kept) => kept.topic(),
        }
    }

    /// The partition that it was read from.
    pub fn partition(&self) -> i32 {
        match &self.0 {
            Body::Fetched(it) => it.message.partition(),
            Body::Kept(kept) => kept.partition,
        }
    }

    /// Its offset there.
    pub fn offset(&self) -> i64 {
        match &self.0 {
            Body::Fetched(it) => it.message.offset(),
            Body::Kept(kept) => kept.offset,
        }
    }

    /// When it was produced, at its first stop.
    pub fn timestamp(&self) -> Option<Timestamp> {
        self.before().produced_at.or_else(|| self.appended_at())
    }

    /// The timestamp of this copy.
    pub(crate) fn appended_at(&self) -> Option<Timestamp> {
        let millis = match &self.0 {
            Body::Fetched(it) => it.message.timestamp(),
            Body::Kept(kept) => kept.timestamp,
        };
        millis.map(Timestamp::from_millis)
    }

    /// Its key.
    pub fn key(&self) -> Option<&[u8]> {
        match &self.0 {
            Body::Fetched(it) => it.message.key(),
            Body::Kept(kept) => kept.part(0, kept.key),
        }
    }

    /// Its value. None is a tombstone, which is not the same as an empty value.
    pub fn value(&self) -> Option<&[u8]> {
        match &self.0 {
            Body::Fetched(it) => it.message.value(),
            Body::Kept(kept) => kept.part(kept.key.unwrap_or(0), kept.value),
        }
    }

    /// The value of the last header of this name.
    pub fn header(&self, name: &str) -> Option<&[u8]> {
        self.raw_headers().filter(|it| it.0 == name.as_bytes()).last().and_then(|it| it.1)
    }

    /// Its headers in order, but for those whose names are not UTF-8.
    pub fn headers(&self) -> impl Iterator<Item = Header<'_>> {
        self.raw_headers().filter_map(|(name, value)| {
            Some(Header { name: std::str::from_utf8(name).ok()?, value })
        })
    }

    /// All its headers in order. A name is bytes, as Kafka has it.
    pub fn raw_headers(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let (fetched, kept) = match &self.0 {
            Body::Fetched(it) => (Some(it.message.headers()), None),
            Body::Kept(kept) => (None, Some(kept.headers())),
        };
        fetched.into_iter().flatten().chain(kept.into_iter().flatten())
    }
}

impl Kept {
    fn new(
        (topic, partition, offset): Place<'_>,
        timestamp: Option<i64>,
        before: Before,
        (key, value): (Option<&[u8]>, Option<&[u8]>),
        headers: &[u8],
    ) -> Self {
        let parts = [key.unwrap_or_default(), value.unwrap_or_default(), topic.as_bytes(), headers];
        let mut bytes = Vec::with_capacity(parts.iter().map(|it| it.len()).sum());
        parts.iter().for_each(|it| bytes.extend_from_slice(it));
        let length = |it: Option<&[u8]>| it.map(<[u8]>::len);
        let (key, value, topic) = (length(key), length(value), topic.len());
        let bytes = bytes.into_boxed_slice();
        Self { partition, offset, timestamp, before, bytes, key, value, topic }
    }

    fn part(&self, start: usize, length: Option<usize>) -> Option<&[u8]> {
        self.bytes.get(start..start + length?)
    }

    /// Where the topic's name begins, behind key and value.
    fn body(&self) -> usize {
        self.key.unwrap_or(0) + self.value.unwrap_or(0)
    }

    fn topic(&self) -> &str {
        let name = self.part(self.body(), Some(self.topic)).unwrap_or_default();
        std::str::from_utf8(name).unwrap_or_default()
    }

    fn headers(&self) -> impl Iterator<Item = RawHeader<'_>> {
        pack::unpack(self.bytes.get(self.body() + self.topic..).unwrap_or_default())
    }
}

/// Without what is in it.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic(), self.partition(), self.offset())
    }
}
