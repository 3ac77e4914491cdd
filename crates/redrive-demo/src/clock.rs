//! The wall clock, which due times are told by.

use std::time::{SystemTime, UNIX_EPOCH};

/// Unix time in microseconds.
pub(crate) fn micros() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// Unix time in milliseconds.
pub(crate) fn millis() -> i64 {
    micros() / 1000
}
