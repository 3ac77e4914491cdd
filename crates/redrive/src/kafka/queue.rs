//! A queue of one's own that a consumer's partitions are read from, in batches.
//!
//! The consumer's own queue must not be read in batches: the rebalance callback is then not called. So each partition is
//! forwarded to this queue before it is assigned. A partition that is held back is not: librdkafka then keeps what it has
//! fetched of it, and stops fetching when it has enough.

#![expect(unsafe_code, reason = "the rdkafka crate has no queues to be read in batches")]

use std::collections::BTreeSet;
use std::ffi::CString;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rdkafka::bindings as sys;

use super::message::{Alive, Message};

/// How many messages are read at once.
const BATCH: usize = 1000;

pub(crate) struct Queue {
    client: *mut sys::rd_kafka_t,
    raw: NonNull<sys::rd_kafka_queue_t>,
    alive: Alive,
    /// Partitions that are held back, by their topics.
    held_back: Mutex<BTreeSet<(String, i32)>>,
}

// SAFETY: librdkafka's queues may be used from any thread.
unsafe impl Send for Queue {}
// SAFETY: see above.
unsafe impl Sync for Queue {}

impl Queue {
    /// A queue for this client.
    ///
    /// # Safety
    ///
    /// The client outlives the queue and all messages that are read from it: it is not destroyed while
    /// [`Queue::alive`] is not zero.
    pub(super) unsafe fn new(client: *mut sys::rd_kafka_t) -> Option<Self> {
        // SAFETY: the client is alive.
        let raw = NonNull::new(unsafe { sys::rd_kafka_queue_new(client) })?;
        Some(Self { client, raw, alive: Box::leak(Box::default()), held_back: Mutex::default() })
    }

    /// How many messages are alive.
    pub(super) fn alive(&self) -> usize {
        self.alive.load(Ordering::Acquire)
    }

    /// Lets a partition's messages come here. Must be done before it is assigned. What was held back comes now.
    pub(crate) fn forward(&self, topic: &str, partition: i32) {
        let mut held_back = self.held_back();
        held_back.remove(&(topic.to_owned(), partition));
        self.set_forward(topic, partition, self.raw.as_ptr());
    }

    /// Lets a partition's messages stay with it.
    pub(crate) fn hold_back(&self, topic: &str, partition: i32) {
        let mut held_back = self.held_back();
        held_back.insert((topic.to_owned(), partition));
        self.set_forward(topic, partition, ptr::null_mut());
    }

    /// Lets a partition's messages come here again that was assigned anew: librdkafka stops it first, and forgets then where
    /// they should go. One that is held back stays so.
    pub(super) fn forward_again(&self, topic: &str, partition: i32) {
        let held_back = self.held_back();
        if !held_back.contains(&(topic.to_owned(), partition)) {
            self.set_forward(topic, partition, self.raw.as_ptr());
        }
    }

    fn held_back(&self) -> MutexGuard<'_, BTreeSet<(String, i32)>> {
        self.held_back.lock()
    }

    fn set_forward(&self, topic: &str, partition: i32, to: *mut sys::rd_kafka_queue_t) {
        let Ok(topic) = CString::new(topic) else {
            return;
        };
        // SAFETY: client and queues are alive; what is got is given back.
        unsafe {
            let own = sys::rd_kafka_queue_get_partition(self.client, topic.as_ptr(), partition);
            if !own.is_null() {
                sys::rd_kafka_queue_forward(own, to);
                sys::rd_kafka_queue_destroy(own);
            }
        }
    }

    /// Reads what is there, at most a batch; if nothing is there, waits for it.
    ///
    /// A batch call would wait until the batch is full, so that the first message is waited for alone.
    pub(super) fn read(&self, wait: Duration, into: &mut Vec<Message>) {
        self.read_now(into);
        if into.is_empty() && !wait.is_zero() {
            let millis = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
            // SAFETY: the queue is alive; the message is taken over.
            let first = unsafe { sys::rd_kafka_consume_queue(self.raw.as_ptr(), millis) };
            if let Some(first) = NonNull::new(first) {
                self.alive.fetch_add(1, Ordering::Relaxed);
                // SAFETY: librdkafka gave it to us, and the client outlives it.
                into.push(unsafe { Message::from_raw(first, self.alive) });
                self.read_now(into);
            }
        }
    }

    fn read_now(&self, into: &mut Vec<Message>) {
        let mut batch = [ptr::null_mut::<sys::rd_kafka_message_t>(); BATCH];
        // SAFETY: the queue is alive, and there is room for the whole batch.
        let read = unsafe {
            sys::rd_kafka_consume_batch_queue(self.raw.as_ptr(), 0, batch.as_mut_ptr(), BATCH)
        };
        let read = usize::try_from(read).unwrap_or(0);
        self.alive.fetch_add(read, Ordering::Relaxed);
        into.extend(batch.iter().take(read).filter_map(|it| NonNull::new(*it)).map(|it| {
            // SAFETY: librdkafka gave it to us, and the client outlives it.
            unsafe { Message::from_raw(it, self.alive) }
        }));
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: it is ours, and the client is still alive.
        unsafe { sys::rd_kafka_queue_destroy(self.raw.as_ptr()) };
    }
}
