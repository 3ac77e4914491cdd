//! How far ahead a lane keeps what waits, as whoever reads for it sees it.

use std::sync::atomic::{AtomicI64, Ordering};

use redrive_core::Timestamp;

/// What is due later than this will be dropped and read again, so nobody need copy it. The lane sets it when it has taken something in,
/// and decides in the end: one that is a little old costs a copy, or leaves one to the lane.
#[derive(Debug)]
pub(crate) struct Horizon(AtomicI64);

impl Horizon {
    /// Of a lane that has room.
    pub(crate) fn new() -> Self {
        Self(AtomicI64::new(i64::MAX))
    }

    pub(super) fn set(&self, until: Timestamp) {
        self.0.store(until.as_millis(), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Timestamp {
        Timestamp::from_millis(self.0.load(Ordering::Relaxed))
    }
}
