//! The error and the future that all traits of this crate return.

use std::future::Future;
use std::pin::Pin;

use tribunal_types::{LogId, Lsn, NodeId, StoreId};

/// A fallible future. Boxed, so that the traits of this crate can be trait objects.
pub type ServiceFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ServiceError>> + Send + 'a>>;

/// Why a request failed. Each variant maps to one status code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceError {
    /// The request is invalid and can never succeed: 422.
    ClientMistake {
        /// Problem code, e.g. `adaptor_invalid`.
        code: &'static str,
        /// JSON pointer into the body; empty for the whole body.
        pointer: String,
        /// For people.
        detail: String,
    },
    /// The request was not accepted because the queues are full: 503.
    Overloaded {
        /// When to retry.
        retry_after_ms: u64,
    },
    /// The tenant has exhausted its quota: 429.
    QuotaExceeded {
        /// When to retry.
        retry_after_ms: u64,
    },
    /// The tenant has reached its maximum number of rows: 429. Deletes are still accepted.
    TooManyRows {
        /// Rows of the tenant's tracked stores.
        rows: u64,
        /// Rows that the request may add.
        new: u64,
        /// Maximum number of rows.
        max: u64,
    },
    /// The tenant's embedded stores have reached their maximum size: 429. Deletes are still accepted.
    TooManyStoredBytes {
        /// Bytes of the tenant's embedded stores on this node.
        stored: u64,
        /// Bytes that the request may add.
        new: u64,
        /// Maximum number of bytes.
        max: u64,
    },
    /// No decision was made, and none will be: 503.
    Unavailable {
        /// For people.
        detail: String,
    },
    /// The request was accepted, but its outcome is unknown: 504. The client requests the outcome by the transaction's
    /// id.
    OutcomeUnknown {
        /// For people.
        detail: String,
    },
    /// A transaction with the same id is waiting for its verdict: 409.
    InFlight,
    /// The id was used with another body: 422.
    BodyMismatch,
    /// The transaction is not executed, because of the time in its id: 422.
    TxnIdExpired(IdTime),
    /// The log has been truncated past the requested position: 410.
    LogTruncated {
        /// Oldest record that is still available.
        oldest: Lsn,
        /// Other nodes of the cluster that still have the records after the position.
        nodes: Vec<NodeId>,
    },
    /// The position belongs to another log than the node's: 410.
    LogReplaced {
        /// The node's log.
        log: LogId,
    },
    /// The store's state was only in the log, which has been truncated: 410.
    StateGone {
        /// Oldest record that is still available.
        oldest: Lsn,
    },
    /// The store has not yet applied what the request needs to see: 503.
    StoreLagging {
        /// The store.
        store: StoreId,
        /// When to retry.
        retry_after_ms: u64,
    },
    /// The store has not yet applied what the request needs to see, and its push has stopped: 503.
    StoreStopped {
        /// The store.
        store: StoreId,
        /// Why, as the push reports it.
        reason: String,
    },
    /// The store is detached from its storage, so it has no snapshot: 503.
    StoreDetached {
        /// The store.
        store: StoreId,
    },
    /// Something that the request names does not exist: 404.
    NotFound {
        /// What does not exist, for people.
        what: String,
    },
}

/// Relation of the time in a transaction's id, of which no verdict is known, to the time of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdTime {
    /// It is too far ahead: nothing was ever executed under the id.
    Ahead,
    /// It is too long ago. An earlier request with the id may have been executed.
    Past,
    /// It is within the accepted window, but the service has had to forget the ids of that time already. An earlier request
    /// with the id may have been executed.
    Forgotten,
}
