//! Calls into sled, guarded: damage makes it panic where it should return an error.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `job`; a panic becomes `Err` with its message.
///
/// What sled shares between calls is behind its own locks and atomics; after a panic the caller gives up the database as a
/// whole, so no half-changed state is looked at again.
pub(crate) fn guarded<T>(job: impl FnOnce() -> sled::Result<T>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(job)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(error.to_string()),
        Err(panic) => Err(format!("sled panicked: {}", message_of(panic.as_ref()))),
    }
}

fn message_of(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no message")
}
