//! What readers of logs ask of the node: the half of [`Service`](crate::Service) that is not about transactions.

use std::future::Future;
use std::pin::Pin;

use tribunal_types::{Epoch, Lsn, NamespaceId, StoreId};

use crate::service::{Answer, StoredRow};

/// Everything that a reader of logs can ask of a node.
pub trait Feeds {
    /// Returns the state from which a reader can start over that fell behind what the log keeps.
    ///
    /// # Errors
    /// [`ServiceError::NotFound`](crate::service::ServiceError::NotFound);
    /// [`ServiceError::StateGone`](crate::service::ServiceError::StateGone) if only the log had it;
    /// [`ServiceError::Overloaded`](crate::service::ServiceError::Overloaded) if too many are under way.
    fn state(&self, store: StoreId) -> Answer<'_, StoreState>;

    /// Sets a consumer's checkpoint, durably, and returns all of its checkpoints.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`](crate::service::ServiceError::ClientMistake) if the position lies behind the head,
    /// or there are too many consumers.
    fn set_checkpoint(
        &self,
        namespace: NamespaceId,
        name: String,
        store: StoreId,
        lsn: Lsn,
    ) -> Answer<'_, ConsumerStatus>;

    /// Returns the consumers of a namespace by name; with a name that one, or none.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`](crate::service::ServiceError::Unavailable).
    fn consumers(&self, namespace: NamespaceId, name: Option<String>) -> Answer<'_, Vec<ConsumerStatus>>;

    /// Forgets a consumer, or its checkpoint in one store; tells whether there was one.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`](crate::service::ServiceError::Unavailable) if that did not become durable.
    fn forget_consumer(&self, namespace: NamespaceId, name: String, store: Option<StoreId>) -> Answer<'_, bool>;

    /// Registers a receiver of a store's log, durably, and starts its push.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`](crate::service::ServiceError::ClientMistake) if its address is not allowed or the
    /// position lies behind the head;
    /// [`ServiceError::LogTruncated`](crate::service::ServiceError::LogTruncated).
    fn register_webhook(&self, store: StoreId, registration: Registration) -> Answer<'_, WebhookStatus>;

    /// Returns the receiver of a store's log and where its push stands.
    fn webhook(&self, store: StoreId) -> Option<WebhookStatus>;

    /// Ends a push and forgets its receiver; tells whether there was one.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`](crate::service::ServiceError::Unavailable) if that did not become durable.
    fn remove_webhook(&self, store: StoreId) -> Answer<'_, bool>;

    /// Returns what happened in the last seconds.
    fn stats(&self) -> Stats;

    /// Returns when the node stops.
    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

/// What happened in the last seconds.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Since the node started, milliseconds.
    pub uptime_ms: u64,
    /// Length of the window, milliseconds.
    pub window_ms: u64,
    /// Last complete epoch.
    pub epoch: Epoch,
    /// Epochs in the window.
    pub epochs: u64,
    /// Transactions committed in the window.
    pub committed: u64,
    /// Retries answered from the id table in the window.
    pub replayed: u64,
    /// Aborts in the window, by reason.
    pub aborts: Vec<(String, u64)>,
    /// Transactions of an epoch.
    pub epoch_txns: Summary,
    /// Where a transaction's time goes.
    pub phases: Vec<Timed>,
    /// Time from a commit to its answer, by what it asked for.
    pub commits: Vec<Timed>,
}

/// Times of one kind, microseconds.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    /// Which time.
    pub name: &'static str,
    /// The times.
    pub us: Summary,
}

/// Values of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Half are not above.
    pub p50: u64,
    /// Nine of ten are not above.
    pub p90: u64,
    /// All but one of a hundred are not above.
    pub p99: u64,
    /// None is above.
    pub max: u64,
}

/// A consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerStatus {
    /// Its name.
    pub name: String,
    /// One per store that it reads.
    pub positions: Vec<ConsumerPosition>,
}

/// Where a consumer is in one store's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConsumerPosition {
    /// The store.
    pub store: StoreId,
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
    /// Where to start; `None` goes on where an earlier registration stands.
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
    /// Returns the next rows, none behind the last one.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`](crate::service::ServiceError::Unavailable) if the image cannot be finished.
    fn next(&mut self) -> Answer<'_, Vec<StoredRow>>;
}
