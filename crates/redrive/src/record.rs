//! A record as handlers see it.

use std::fmt;
use std::sync::Arc;

use redrive_core::Timestamp;
use redrive_core::headers::Header;

use crate::kafka::message::{Message, RawHeader};
use crate::prefetch::prefetch;

/// A Kafka record. Cloning it is cheap.
///
/// Key, value and headers are as they were produced, byte for byte, at whichever stop it was read; a retried record has
/// Redrive's own headers beside its own.
#[derive(Clone)]
pub struct Record(Arc<Inner>);

struct Inner {
    body: Body,
    /// When it was produced first, where this is not the first copy.
    produced_at: Option<Timestamp>,
}

enum Body {
    /// In the memory that it was fetched to, together with its neighbours.
    Fetched(Message),
    /// In memory of its own.
    Kept(Box<Kept>),
}

struct Kept {
    topic: Arc<str>,
    partition: i32,
    offset: i64,
    timestamp: Option<i64>,
    /// Key, value, and each header's name and value, one after the other.
    bytes: Box<[u8]>,
    key: Option<usize>,
    value: Option<usize>,
    headers: Box<[(usize, Option<usize>)]>,
}

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
        let kept = Kept {
            topic: topic.into(),
            partition,
            offset,
            timestamp: None,
            bytes: Box::default(),
            key: None,
            value: None,
            headers: Box::default(),
        };
        Self(Arc::new(Inner { body: Body::Kept(Box::new(kept)), produced_at: None }))
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
        let timestamp = self.appended_at().map(Timestamp::as_millis);
        let kept = Kept::new(place, timestamp, key, value, headers.iter().copied(), 0);
        Self(Arc::new(Inner { body: Body::Kept(Box::new(kept)), produced_at: time }))
    }

    pub(crate) fn new(message: Message) -> Self {
        Self(Arc::new(Inner { body: Body::Fetched(message), produced_at: None }))
    }

    /// A copy of a record that was produced before.
    pub(crate) fn retried(message: Message, produced_at: Option<Timestamp>) -> Self {
        Self(Arc::new(Inner { body: Body::Fetched(message), produced_at }))
    }

    /// Lets the processor fetch the record from whichever core has it, without waiting for it.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(Arc::as_ptr(&self.0));
    }

    /// The same for what the record points to, once it should have come itself.
    #[inline]
    pub(crate) fn prefetch_body(&self) {
        if let Body::Fetched(message) = &self.0.body {
            message.prefetch();
        }
    }

    /// The same record in memory of its own, so that it can be kept without its neighbours.
    pub(crate) fn into_kept(self) -> Self {
        let Body::Fetched(message) = &self.0.body else {
            return self;
        };
        let place = (message.topic(), message.partition(), message.offset());
        let (key, value) = (message.key(), message.value());
        let size = self.payload_bytes();
        let kept = Kept::new(place, message.timestamp(), key, value, message.headers(), size);
        Self(Arc::new(Inner { body: Body::Kept(Box::new(kept)), produced_at: self.0.produced_at }))
    }

    /// The topic that it was read from: the source topic, or a retry topic.
    pub fn topic(&self) -> &str {
        match &self.0.body {
            Body::Fetched(message) => message.topic(),
            Body::Kept(kept) => &kept.topic,
        }
    }

    /// The partition that it was read from.
    pub fn partition(&self) -> i32 {
        match &self.0.body {
            Body::Fetched(message) => message.partition(),
            Body::Kept(kept) => kept.partition,
        }
    }

    /// Its offset there.
    pub fn offset(&self) -> i64 {
        match &self.0.body {
            Body::Fetched(message) => message.offset(),
            Body::Kept(kept) => kept.offset,
        }
    }

    /// When it was produced, at its first stop.
    pub fn timestamp(&self) -> Option<Timestamp> {
        self.0.produced_at.or_else(|| self.appended_at())
    }

    /// The timestamp of this copy.
    pub(crate) fn appended_at(&self) -> Option<Timestamp> {
        let millis = match &self.0.body {
            Body::Fetched(message) => message.timestamp(),
            Body::Kept(kept) => kept.timestamp,
        };
        millis.map(Timestamp::from_millis)
    }

    /// Its key.
    pub fn key(&self) -> Option<&[u8]> {
        match &self.0.body {
            Body::Fetched(message) => message.key(),
            Body::Kept(kept) => kept.key.and_then(|length| kept.bytes.get(..length)),
        }
    }

    /// Its value. None is a tombstone, which is not the same as an empty value.
    pub fn value(&self) -> Option<&[u8]> {
        match &self.0.body {
            Body::Fetched(message) => message.value(),
            Body::Kept(kept) => {
                let start = kept.key.unwrap_or(0);
                kept.value.and_then(|length| kept.bytes.get(start..start + length))
            }
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
        let (fetched, kept) = match &self.0.body {
            Body::Fetched(message) => (Some(message.headers()), None),
            Body::Kept(kept) => (None, Some(kept.headers())),
        };
        fetched.into_iter().flatten().chain(kept.into_iter().flatten())
    }

    /// How many bytes key, value and headers have.
    pub(crate) fn payload_bytes(&self) -> usize {
        let part = |it: Option<&[u8]>| it.map_or(0, <[u8]>::len);
        let headers = self.raw_headers().map(|it| it.0.len() + part(it.1));
        part(self.key()) + part(self.value()) + headers.sum::<usize>()
    }
}

impl Kept {
    fn new<'a>(
        (topic, partition, offset): (&str, i32, i64),
        timestamp: Option<i64>,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: impl Iterator<Item = RawHeader<'a>>,
        size: usize,
    ) -> Self {
        let mut bytes = Vec::with_capacity(size);
        let mut push = |part: &[u8]| {
            bytes.extend_from_slice(part);
            part.len()
        };
        let (key, value) = (key.map(&mut push), value.map(&mut push));
        let headers = headers.map(|(name, value)| (push(name), value.map(&mut push))).collect();
        let (topic, bytes) = (topic.into(), bytes.into());
        Self { topic, partition, offset, timestamp, bytes, key, value, headers }
    }

    fn headers(&self) -> impl Iterator<Item = RawHeader<'_>> {
        let mut at = self.key.unwrap_or(0) + self.value.unwrap_or(0);
        self.headers.iter().map(move |(name, value)| {
            let mut part = |length: usize| {
                let part = self.bytes.get(at..at + length).unwrap_or_default();
                at += length;
                part
            };
            (part(*name), value.map(&mut part))
        })
    }
}

/// Without what is in it.
impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic(), self.partition(), self.offset())
    }
}
