//! The stores of Tribunal that the loads run on.

/// Store with the embedded storage, which the push keeps up to date.
pub const PUSHED: &str = "kv";
/// Store with a log only.
pub const LOG_ONLY: &str = "log";
