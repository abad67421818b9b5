//! Why there is no answer, and the future of one that there may be.

use std::future::Future;
use std::pin::Pin;

use tribunal_types::{LogId, Lsn, StoreId};

/// A future of an answer. Boxed, so that the traits of this crate can be trait objects.
pub type ServiceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ServiceError>> + Send + 'a>>;

/// Why there is no decision, by blame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceError {
    /// The request can never work like this: 422.
    ClientMistake {
        /// Problem code, e.g. `adaptor_unknown`.
        code: &'static str,
        /// JSON pointer into the body; empty for the whole.
        pointer: String,
        /// For people.
        detail: String,
    },
    /// Nothing was taken in; the queues are full: 503.
    Overloaded {
        /// When to come back.
        retry_after_ms: u64,
    },
    /// The tenant has used up what it may: 429.
    QuotaExceeded {
        /// When to come back.
        retry_after_ms: u64,
    },
    /// The tenant has as many rows as it may: 429. Deletes are let in.
    TooManyRows {
        /// Rows of its tracked stores.
        rows: u64,
        /// Rows that the request may add.
        new: u64,
        /// The bound.
        max: u64,
    },
    /// No decision was made, and none will be: 503.
    Unavailable {
        /// For people.
        detail: String,
    },
    /// It was taken in, and its outcome is not known here: 504. The client asks again by id.
    OutcomeUnknown {
        /// For people.
        detail: String,
    },
    /// The same id waits for its verdict: 409.
    InFlight,
    /// The id was used for another body: 422.
    BodyMismatch,
    /// The id's time lies outside the window: 422. It is never executed.
    TxnIdExpired,
    /// The log no longer reaches back that far: 410.
    LogTruncated {
        /// Oldest record that is still kept.
        oldest: Lsn,
    },
    /// The position is of another log than the node's: 410.
    LogReplaced {
        /// The node's log.
        log: LogId,
    },
    /// Only the log had the store's state, and it is truncated: 410.
    StateGone {
        /// Oldest record that is still kept.
        oldest: Lsn,
    },
    /// The store has not applied what the request needs to see: 503.
    StoreLagging {
        /// Which store.
        store: StoreId,
        /// When to come back.
        retry_after_ms: u64,
    },
    /// The store's storage was given up, so no snapshot of it can be had: 503.
    StoreDetached {
        /// Which store.
        store: StoreId,
    },
    /// There is no such thing: 404.
    NotFound {
        /// What, for people.
        what: String,
    },
}
