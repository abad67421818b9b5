//! What the node knows of its own lag behind commits acknowledged on other nodes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tribunal_service::ServiceError;

/// The node's queries for everything acknowledged.
#[derive(Default)]
pub struct CatchUp {
    /// When the node last began to learn the configuration, and the result.
    pub(super) configuration: Mutex<Option<(Instant, Result<(), ServiceError>)>>,
    /// Whether the node has decided everything that was acknowledged before it started, by itself among others. Its
    /// disk does not tell: it may have acknowledged entries that it did not know to be committed when its process ended.
    pub(super) since_start: AtomicBool,
    /// When the node last failed to learn the configuration, unless it has succeeded since. Readable while an attempt
    /// holds the lock of `configuration`.
    pub(super) failed_at: parking_lot::Mutex<Option<Instant>>,
}

/// How long a failure suffices for requests that look for faults.
const FAILURE_COUNTS_FOR: Duration = Duration::from_secs(30);

impl CatchUp {
    /// Returns whether the node has decided everything that was acknowledged before it started.
    pub(crate) fn has_caught_up(&self) -> bool {
        self.since_start.load(Ordering::Acquire)
    }

    /// Returns whether the node has failed to learn the configuration a short while ago.
    pub(crate) fn failed_lately(&self) -> bool {
        self.failed_at.lock().is_some_and(|at| at.elapsed() < FAILURE_COUNTS_FOR)
    }
}
