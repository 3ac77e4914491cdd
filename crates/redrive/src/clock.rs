//! What time it is.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redrive_core::Timestamp;

/// The wall clock, in milliseconds. Before 1970 it is 1970.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// How long it is until then.
pub(crate) fn until(time: Timestamp) -> Duration {
    let then = Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(0));
    then.saturating_sub(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
