//! Logs: pages, states to start over from, consumers and webhooks.

use tribunal_types::{LogId, Lsn, NamespaceId, RecordBatch, StoreId};

use crate::{ServiceFuture, StoredRow};

/// Everything that a reader of logs can ask of a node.
pub trait LogApi: Send + Sync {
    /// Reads a page of a store's committed log, waiting at most `wait_ms` for the first record, or until the node stops.
    ///
    /// # Errors
    /// [`crate::ServiceError::LogTruncated`]; [`crate::ServiceError::LogReplaced`] if the query names another log;
    /// [`crate::ServiceError::ClientMistake`] if `after` is still past the head by then.
    fn log_page(&self, query: LogQuery) -> ServiceFuture<'_, LogPage>;

    /// Returns the state from which a reader can start over whose position the log no longer retains.
    ///
    /// # Errors
    /// [`crate::ServiceError::NotFound`];
    /// [`crate::ServiceError::StateGone`] if only the log had it;
    /// [`crate::ServiceError::Overloaded`] if too many are under way.
    fn state(&self, store: StoreId) -> ServiceFuture<'_, StoreState>;

    /// Sets a consumer's offset, durably, and returns all of its offsets. `log` is the log that the offset is of, if the
    /// consumer knows it.
    ///
    /// # Errors
    /// [`crate::ServiceError::ClientMistake`] if the position is past the head, or there are too many consumers;
    /// [`crate::ServiceError::LogReplaced`] if `log` is another one.
    fn set_checkpoint(
        &self,
        namespace: NamespaceId,
        name: String,
        store: StoreId,
        lsn: Lsn,
        log: Option<LogId>,
    ) -> ServiceFuture<'_, ConsumerStatus>;

    /// Returns the consumers of a namespace by name; with a name that one, or none.
    ///
    /// # Errors
    /// [`crate::ServiceError::Unavailable`].
    fn consumers(&self, namespace: NamespaceId, name: Option<String>) -> ServiceFuture<'_, Vec<ConsumerStatus>>;

    /// Forgets a consumer, or its checkpoint in one store; tells whether there was one.
    ///
    /// # Errors
    /// [`crate::ServiceError::Unavailable`] if that did not become durable.
    fn forget_consumer(&self, namespace: NamespaceId, name: String, store: Option<StoreId>) -> ServiceFuture<'_, bool>;

    /// Registers a receiver of a store's log, durably, and starts its push.
    ///
    /// # Errors
    /// [`crate::ServiceError::ClientMistake`] if its address is not allowed or the position is past the head;
    /// [`crate::ServiceError::LogTruncated`]; [`crate::ServiceError::LogReplaced`] if it resumes at a position of another
    /// log.
    fn register_webhook(&self, store: StoreId, registration: Registration) -> ServiceFuture<'_, WebhookStatus>;

    /// Returns the receiver of a store's log and where its push stands.
    fn webhook(&self, store: StoreId) -> Option<WebhookStatus>;

    /// Ends a push and forgets its receiver; tells whether there was one.
    ///
    /// # Errors
    /// [`crate::ServiceError::Unavailable`] if that did not become durable.
    fn remove_webhook(&self, store: StoreId) -> ServiceFuture<'_, bool>;
}

/// Question for log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// Whose log.
    pub store: StoreId,
    /// Position after which to start.
    pub after: Lsn,
    /// The log that `after` is of, if the reader knows it.
    pub log: Option<LogId>,
    /// Most records to return.
    pub limit: usize,
    /// Most bytes of keys and values to return; at least one record is returned all the same.
    pub bytes_max: usize,
    /// How long to wait for the first record, milliseconds.
    pub wait_ms: u64,
}

/// A page of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPage {
    /// The records, dense, from `after + 1`; none if there is nothing yet.
    pub records: RecordBatch,
    /// The log that all positions are of.
    pub log: LogId,
    /// What to pass as `after` for the following page.
    pub next: Lsn,
    /// Last record of the log.
    pub head: Lsn,
    /// Last record that is durable.
    pub durable_upto: Lsn,
    /// Oldest record that is still kept.
    pub oldest: Lsn,
    /// The node stops: there are no records after these, and none will come from here.
    pub ending: bool,
}

/// A consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStatus {
    /// Its name.
    pub name: String,
    /// The log of this node: positions of any other are void.
    pub log: LogId,
    /// One per store that it reads.
    pub positions: Vec<ConsumerPosition>,
}

/// Where a consumer is in one store's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerPosition {
    /// The store.
    pub store: StoreId,
    /// The log that `lsn` is a position of.
    pub log: LogId,
    /// Last record that it is done with.
    pub lsn: Lsn,
    /// Last record of the log.
    pub head: Lsn,
    /// Age of the oldest record that it is not done with, milliseconds.
    pub lag_ms: u64,
    /// When it said so, milliseconds since 1970.
    pub updated_at_ms: u64,
}

/// A receiver to register.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Registration {
    /// Where to post.
    pub url: String,
    /// What bodies are signed with.
    pub secret: String,
    /// Where to start; `None` resumes at the position of an earlier registration.
    pub after: Option<Lsn>,
    /// Most records of one request.
    pub records_max: u32,
    /// Most bytes of keys and values of one request.
    pub bytes_max: u32,
    /// How long one request may take.
    pub timeout_ms: u32,
}

/// A receiver and where its push stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WebhookStatus {
    /// Where it is posted to.
    pub url: String,
    /// Most records of one request.
    pub records_max: u32,
    /// Most bytes of keys and values of one request.
    pub bytes_max: u32,
    /// How long one request may take.
    pub timeout_ms: u32,
    /// What the push is doing.
    pub state: &'static str,
    /// Last record that the receiver acknowledged.
    pub acked: Lsn,
    /// Last record of the log.
    pub head: Lsn,
    /// How long there has been a lag, milliseconds.
    pub lag_ms: u64,
    /// Attempts that failed since the last progress.
    pub attempts: u32,
    /// Last trouble.
    pub last_error: Option<String>,
}

/// A store's state at a position of its log.
pub enum StoreState {
    /// Its rows at `lsn`, exactly.
    Rows {
        /// Position whose state this is.
        lsn: Lsn,
        /// The rows.
        rows: Box<dyn StateRows>,
    },
    /// Its own storage has it.
    Storage {
        /// The storage is here at least.
        lsn: Lsn,
    },
    /// The log is whole: it begins with the first record.
    Log,
}

/// Rows of a state image, in key order, a page at a time.
pub trait StateRows: Send {
    /// Returns the next rows, none after the last one.
    ///
    /// # Errors
    /// [`crate::ServiceError::Unavailable`] if the image cannot be finished.
    fn next(&mut self) -> ServiceFuture<'_, Vec<StoredRow>>;
}
