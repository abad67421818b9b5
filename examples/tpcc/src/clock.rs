//! The engine's own clock, for dates in rows only: no verdict depends on it.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns microseconds since 1970.
#[must_use]
pub fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}
