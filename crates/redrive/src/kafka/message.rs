//! A message where librdkafka put it.

#![expect(unsafe_code, reason = "the message is librdkafka's, and so is its memory")]

use std::ffi::{CStr, c_char, c_void};
use std::fmt;
use std::ops::Deref;
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use rdkafka::bindings as sys;
use rdkafka::types::RDKafkaErrorCode;

use crate::prefetch::{prefetch, prefetch_to_read};

/// How many messages of a consumer are alive. The consumer must outlive them. It lives for ever, so that a message need not
/// count references to it.
pub(crate) type Alive = &'static AtomicUsize;

/// A message that was read, in librdkafka's memory. It is given back when this is dropped.
pub(crate) struct Message {
    raw: NonNull<sys::rd_kafka_message_t>,
    alive: Alive,
}

/// A message whose headers can be looked at.
pub(crate) struct WholeMessage {
    message: Message,
    /// librdkafka takes the headers apart at the first look, which must not happen twice at a time.
    headers: OnceLock<Headers>,
}

/// The headers in librdkafka's memory, if there are any.
struct Headers(Option<NonNull<sys::rd_kafka_headers_t>>);

/// A header: its name's bytes, and its value unless that is null.
pub(crate) type RawHeader<'a> = (&'a [u8], Option<&'a [u8]>);

// SAFETY: a message belongs to whoever has it, on any thread; librdkafka's own counters are atomic. What is read through
// a shared reference does not change.
unsafe impl Send for Message {}
// SAFETY: see above.
unsafe impl Sync for Message {}
// SAFETY: the headers belong to the message and do not change once they are taken apart.
unsafe impl Send for Headers {}
// SAFETY: see above.
unsafe impl Sync for Headers {}

impl Headers {
    /// In their order.
    fn iter(&self) -> impl Iterator<Item = RawHeader<'_>> {
        let headers = self.0;
        (0..).map_while(move |index| {
            let headers = headers?;
            let (mut name, mut value, mut size): (*const c_char, *const c_void, usize) =
                (ptr::null(), ptr::null(), 0);
            // SAFETY: the headers belong to the message; librdkafka says where the parts are.
            unsafe {
                let error = sys::rd_kafka_header_get_all(
                    headers.as_ptr(),
                    index,
                    &raw mut name,
                    &raw mut value,
                    &raw mut size,
                );
                (error == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR)
                    .then(|| (CStr::from_ptr(name).to_bytes(), bytes(value, size)))
            }
        })
    }
}

impl WholeMessage {
    pub(crate) fn new(message: Message) -> Self {
        Self { message, headers: OnceLock::new() }
    }

    /// The headers in their order.
    pub(crate) fn headers(&self) -> impl Iterator<Item = RawHeader<'_>> {
        let headers = self.headers.get_or_init(|| {
            let (message, mut headers) = (self.message.raw.as_ptr(), ptr::null_mut());
            // SAFETY: the message is ours; nobody else is in here, because of the lock.
            let error = unsafe { sys::rd_kafka_message_headers(message, &raw mut headers) };
            let is_fine = error == sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
            Headers(NonNull::new(headers).filter(|_| is_fine))
        });
        headers.iter()
    }
}

impl Deref for WholeMessage {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}

impl Message {
    /// Takes a message over from librdkafka. It counts as alive already.
    ///
    /// # Safety
    ///
    /// The pointer comes from one of librdkafka's consume calls and is not used elsewhere, and the consumer it came from
    /// is not destroyed while `alive` is not zero.
    pub(super) unsafe fn from_raw(raw: NonNull<sys::rd_kafka_message_t>, alive: Alive) -> Self {
        Self { raw, alive }
    }

    fn raw(&self) -> &sys::rd_kafka_message_t {
        // SAFETY: the message is ours until it is dropped, and nobody changes it.
        unsafe { self.raw.as_ref() }
    }

    /// Lets the processor fetch it from whichever core has it, without waiting for it.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(self.raw.as_ptr());
    }

    /// The same for all that is looked at where it is given back: librdkafka keeps a message in the midst of something larger.
    #[inline]
    pub(crate) fn prefetch_whole(&self) {
        /// Where that has lines of the cache that are of use, from the message on.
        const LINES: [isize; 5] = [-120, -56, 8, 72, 104];
        for line in LINES {
            prefetch(self.raw.as_ptr().wrapping_byte_offset(line));
        }
    }

    /// The same for what it begins with: its value, which is looked for in the message.
    #[inline]
    pub(crate) fn prefetch_value(&self) {
        prefetch_to_read(self.raw().payload);
    }

    /// What went wrong, if this tells of that and not of a record.
    pub(crate) fn error(&self) -> Option<RDKafkaErrorCode> {
        let error = self.raw().err;
        (error != sys::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR).then(|| error.into())
    }

    /// All about what went wrong.
    pub(crate) fn error_text(&self) -> String {
        String::from_utf8_lossy(self.value().unwrap_or_default()).into_owned()
    }

    /// The topic's object, which is the same for all messages of a topic.
    pub(super) fn topic_object(&self) -> *const sys::rd_kafka_topic_t {
        self.raw().rkt
    }

    pub(crate) fn topic(&self) -> &str {
        if self.raw().rkt.is_null() {
            return "";
        }
        // SAFETY: the message holds on to its topic, whose name ends with a zero and does not change.
        let name = unsafe { CStr::from_ptr(sys::rd_kafka_topic_name(self.raw().rkt)) };
        name.to_str().unwrap_or_default()
    }

    pub(crate) fn partition(&self) -> i32 {
        self.raw().partition
    }

    pub(crate) fn offset(&self) -> i64 {
        self.raw().offset
    }

    /// Its timestamp in milliseconds, if it has one.
    pub(crate) fn timestamp(&self) -> Option<i64> {
        let mut kind = sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message is ours, and librdkafka only reads it.
        let millis = unsafe { sys::rd_kafka_message_timestamp(self.raw.as_ptr(), &raw mut kind) };
        (kind != sys::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE && millis >= 0)
            .then_some(millis)
    }

    pub(crate) fn key(&self) -> Option<&[u8]> {
        // SAFETY: librdkafka says where the key is and how long, and it stays there.
        unsafe { bytes(self.raw().key, self.raw().key_len) }
    }

    pub(crate) fn value(&self) -> Option<&[u8]> {
        // SAFETY: as for the key. Of an error it is the error's text, which nobody takes for a value.
        unsafe { bytes(self.raw().payload, self.raw().len) }
    }
}

/// # Safety
///
/// `length` bytes can be read at `start`, unless that is null, for as long as the caller says.
unsafe fn bytes<'a>(start: *const c_void, length: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!start.is_null()).then(|| unsafe { slice::from_raw_parts(start.cast(), length) })
}

impl Drop for Message {
    fn drop(&mut self) {
        // SAFETY: it was taken over, and nobody can look at it any more.
        unsafe { sys::rd_kafka_message_destroy(self.raw.as_ptr()) };
        self.alive.fetch_sub(1, Ordering::Release);
    }
}

/// Without what is in it.
impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.topic(), self.partition(), self.offset())
    }
}
