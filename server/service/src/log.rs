//! Logs: pages of records, store states for readers that start over, consumers and webhooks.

use tribunal_types::{Epoch, LogId, Lsn, NamespaceId, NodeId, RecordBatch, StoreId};

use crate::{ServiceFuture, StoredRow};

/// Operations for readers of logs.
pub trait LogApi: Send + Sync {
    /// Reads a page of a store's committed log. Waits at most `wait_ms` for the first record; stops waiting when the
    /// node shuts down.
    ///
    /// # Errors
    /// [`crate::ServiceError::LogTruncated`]; [`crate::ServiceError::LogReplaced`] if the query names another log;
    /// [`crate::ServiceError::ClientMistake`] if `after` is past the head even after waiting.
    fn log_page(&self, query: LogQuery) -> ServiceFuture<'_, LogPage>;

    /// Returns the log to which all positions of this node belong.
    fn log_id(&self) -> LogId;

    /// Returns a store's state, from which a reader can start over if the log no longer retains its position.
    ///
    /// # Errors
    /// [`crate::ServiceError::NotFound`];
    /// [`crate::ServiceError::StateGone`] if the state was only in the log, which has been truncated;
    /// [`crate::ServiceError::Overloaded`] if too many states are being read.
    fn state(&self, store: StoreId) -> ServiceFuture<'_, StoreState>;

    /// Sets a consumer's offset, durably. Returns all of the consumer's offsets. `log` is the log that the offset
    /// belongs to, if the consumer knows it.
    ///
    /// # Errors
    /// [`crate::ServiceError::ClientMistake`] if the position is past the head, or there are too many consumers;
    /// [`crate::ServiceError::LogReplaced`] if `log` is not the node's log.
    fn set_offset(
        &self,
        namespace: NamespaceId,
        name: String,
        store: StoreId,
        lsn: Lsn,
        log: Option<LogId>,
    ) -> ServiceFuture<'_, ConsumerStatus>;

    /// Returns the consumers of a namespace, sorted by name; with `name` only that one.
    ///
    /// # Errors
    /// [`crate::ServiceError::Unavailable`].
    fn consumers(&self, namespace: NamespaceId, name: Option<String>) -> ServiceFuture<'_, Vec<ConsumerStatus>>;

    /// Deletes a consumer, or its offset in one store. Returns whether it existed.
    ///
    /// # Errors
    /// [`crate::ServiceError::Unavailable`] if the deletion did not become durable.
    fn forget_consumer(&self, namespace: NamespaceId, name: String, store: Option<StoreId>) -> ServiceFuture<'_, bool>;

    /// Registers a webhook for a store's log, durably, and starts its push.
    ///
    /// # Errors
    /// [`crate::ServiceError::ClientMistake`] if its address is not allowed or the position is past the head;
    /// [`crate::ServiceError::LogTruncated`]; [`crate::ServiceError::LogReplaced`] if it resumes at a position of
    /// another log.
    fn register_webhook(&self, store: StoreId, registration: Registration) -> ServiceFuture<'_, WebhookStatus>;

    /// Returns the webhook of a store's log and the state of its push.
    fn webhook(&self, store: StoreId) -> Option<WebhookStatus>;

    /// Stops a store's webhook and deletes it. Returns whether it existed.
    ///
    /// # Errors
    /// [`crate::ServiceError::Unavailable`] if the deletion did not become durable.
    fn remove_webhook(&self, store: StoreId) -> ServiceFuture<'_, bool>;
}

/// A query for log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// The store.
    pub store: StoreId,
    /// Position of the last record that is not returned.
    pub after: Lsn,
    /// Where the request names `after`, for errors: `?name` in the query, `name:` in the headers.
    pub after_place: &'static str,
    /// The log that `after` belongs to, if the reader knows it.
    pub log: Option<LogId>,
    /// Maximum number of records to return.
    pub limit: usize,
    /// Maximum size of keys and values to return; the first record is returned whatever its size.
    pub bytes_max: usize,
    /// How long to wait for the first record, milliseconds.
    pub wait_ms: u64,
}

/// A page of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// The records from `after + 1`, without gaps; empty if there are none yet.
    pub records: RecordBatch,
    /// The log that all positions belong to.
    pub log: LogId,
    /// Value of `after` for the next page.
    pub next: Lsn,
    /// Every commit of this epoch and of earlier ones is at `next` or before. A lower bound: later epochs may be, too.
    pub epoch: Epoch,
    /// Last record of the log.
    pub head: Lsn,
    /// Last record that is durable.
    pub durable_upto: Lsn,
    /// Oldest record that is still available.
    pub oldest: Lsn,
    /// Whether the node is shutting down and will return no further records.
    pub ending: bool,
}

impl LogPage {
    /// Returns an epoch as [`LogPage::epoch`] is, for the position that the page starts after.
    #[must_use]
    pub fn epoch_at_start(&self) -> Epoch {
        self.records.records.first().map_or(self.epoch, |first| first.epoch.prev())
    }
}

/// A consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStatus {
    /// Name of the consumer.
    pub name: String,
    /// The node's log; positions in any other log are invalid.
    pub log: LogId,
    /// One position per store that the consumer reads.
    pub positions: Vec<ConsumerPosition>,
}

/// A consumer's position in one store's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerPosition {
    /// The store.
    pub store: StoreId,
    /// The log that `lsn` belongs to.
    pub log: LogId,
    /// Last record that the consumer has processed.
    pub lsn: Lsn,
    /// Last record of the log.
    pub head: Lsn,
    /// Age of the oldest record that the consumer has not processed, milliseconds; a lower bound if that was truncated.
    pub lag_ms: u64,
    /// Where the node's log begins, if it no longer has all records after `lsn`.
    pub truncated_below: Option<Lsn>,
    /// When the position was set, Unix milliseconds.
    pub updated_at_ms: u64,
}

/// A webhook to register.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Registration {
    /// URL that records are posted to.
    pub url: String,
    /// Key that signs the bodies.
    pub secret: String,
    /// Position to start after; `None` resumes at the position of an earlier registration.
    pub after: Option<Lsn>,
    /// Maximum number of records in one request.
    pub records_max: u32,
    /// Maximum size of keys and values in one request.
    pub bytes_max: u32,
    /// Timeout of one request.
    pub timeout_ms: u32,
}

/// A webhook and the state of its push.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookStatus {
    /// The node of a cluster that delivers; `None` until one is named, and on a node that runs alone.
    pub node: Option<NodeId>,
    /// URL that records are posted to.
    pub url: String,
    /// Maximum number of records in one request.
    pub records_max: u32,
    /// Maximum size of keys and values in one request.
    pub bytes_max: u32,
    /// Timeout of one request.
    pub timeout_ms: u32,
    /// State of the push.
    pub state: &'static str,
    /// Last record that the receiver acknowledged.
    pub acked: Lsn,
    /// Last record of the log.
    pub head: Lsn,
    /// Time since the receiver had acknowledged every record, milliseconds; 0 if it has.
    pub lag_ms: u64,
    /// Failed attempts since the last progress.
    pub attempts: u32,
    /// Last error.
    pub last_error: Option<String>,
}

/// A store's state at a position of its log.
pub enum StoreState {
    /// The rows exactly as of `lsn`.
    Rows {
        /// Position in the log.
        lsn: Lsn,
        /// The rows.
        rows: Box<dyn StateRows>,
    },
    /// The state is in the store's own storage.
    Storage {
        /// Lower bound of the storage's position.
        lsn: Lsn,
    },
    /// The log itself: it has not been truncated and begins with the first record.
    Log,
}

/// Rows of a state, in key order, one page at a time.
pub trait StateRows: Send {
    /// Returns the next page of rows; empty after the last one.
    ///
    /// # Errors
    /// [`crate::ServiceError::Unavailable`] if the state can no longer be read.
    fn next(&mut self) -> ServiceFuture<'_, Vec<StoredRow>>;
}
