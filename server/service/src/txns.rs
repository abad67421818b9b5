//! Transactions: begin, commit, abort, validate, status.

use tribunal_types::{Csn, Epoch, Lsn, NamespaceId, StoreId, StoreSnapshot, TxnId, TxnRequest, Verdict};

use crate::{Freshness, ReadAnswer, ReadQuery, ServiceError, ServiceFuture};

/// Operations on transactions.
pub trait TxnApi: Send + Sync {
    /// Returns one snapshot per named store, no newer than the store's applied state. First waits until everything that
    /// the request must include is visible.
    ///
    /// # Errors
    /// [`ServiceError::StoreLagging`] if a store is below the floor, or if the required commits are not visible in
    /// time; [`ServiceError::Unavailable`] if the node does not catch up with the other nodes in time.
    fn begin(&self, begin: Begin) -> ServiceFuture<'_, Begun>;

    /// Decides a transaction, durably. A read-only transaction is decided immediately, and its verdict is not stored.
    ///
    /// # Errors
    /// If no decision was made, or if it is unknown: see [`ServiceError`].
    fn commit(&self, txn: TxnRequest, ack: AckMode, lane: Option<Lane>) -> ServiceFuture<'_, Decided>;

    /// Decides many transactions. The results are in the order of the transactions; a failure of one does not affect
    /// the others.
    ///
    /// # Errors
    /// Only if no transaction was processed, e.g. [`ServiceError::Overloaded`].
    fn commit_many(&self, txns: Vec<TxnRequest>, ack: AckMode)
    -> ServiceFuture<'_, Vec<Result<Decided, ServiceError>>>;

    /// Aborts a transaction unless it already has a verdict. Returns its verdict: `client_abort`, or the earlier one.
    ///
    /// # Errors
    /// [`ServiceError::TxnIdExpired`], [`ServiceError::Overloaded`], [`ServiceError::OutcomeUnknown`].
    fn abort(&self, namespace: NamespaceId, id: TxnId) -> ServiceFuture<'_, Decided>;

    /// Returns the result that a commit of the transaction would get now if it were alone. Changes nothing.
    ///
    /// # Errors
    /// Those of a commit whose id is known: [`ServiceError::BodyMismatch`], [`ServiceError::InFlight`],
    /// [`ServiceError::TxnIdExpired`]; [`ServiceError::Unavailable`].
    fn validate(&self, txn: TxnRequest) -> ServiceFuture<'_, DryRun>;

    /// Returns the status of a transaction.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`], [`ServiceError::OutcomeUnknown`] if a fence did not become durable in time.
    fn status(&self, query: StatusQuery) -> ServiceFuture<'_, TxnStatus>;

    /// Returns when to retry if the queues are full, estimated from the duration of epochs and the length of the
    /// queues.
    fn retry_after_ms(&self) -> u64;
}

/// One of the threads that drive connections. A request names the lane that awaits its reply, so that all replies of an
/// epoch for the same lane are delivered together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane(pub usize);

/// Result of a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// The id is new, or the transaction only reads: the verdict that it would get.
    Judged(Verdict),
    /// The id already has a verdict, which a commit would return again.
    Known(Decided),
}

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AckMode {
    /// As soon as it is durable and final.
    #[default]
    Durable,
    /// When every store that it wrote has also applied it, within the node's time limit.
    Applied,
}

/// The epoch up to which a client's later reads must see everything. Clients receive it as an opaque token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Session(pub Epoch);

/// A request to begin a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// Tenant.
    pub namespace: NamespaceId,
    /// Stores that the transaction will use; ascending, never empty.
    pub stores: Vec<StoreId>,
    /// The commits that the snapshots must include.
    pub freshness: Freshness,
    /// Rows and ranges to read at the snapshots, of embedded stores among `stores`.
    pub read: ReadQuery,
}

/// Result of beginning a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// The rows and ranges, as of the snapshots.
    pub read: ReadAnswer,
    /// One snapshot per named store.
    pub snapshots: Vec<StoreSnapshot>,
    /// For each of these stores, in the same order: a position of its log that everything up to its snapshot is at or before.
    pub lsns: Vec<(StoreId, Lsn)>,
    /// The open epoch.
    pub epoch: Epoch,
    /// The time for the transaction's id, Unix milliseconds. Not the system clock, which may be wrong.
    pub time_ms: u64,
}

/// Duration of each phase of a decision, microseconds. Reported as `Server-Timing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Waiting for the epoch to be sealed.
    pub queue_us: u32,
    /// Writing and syncing the log; of a large batch, which is resolved meanwhile, what that took in addition to the
    /// resolution.
    pub sync_us: u32,
    /// Resolving the epoch.
    pub resolve_us: u32,
    /// Waiting for the stores to apply it; 0 unless that was requested.
    pub apply_us: u32,
}

/// A transaction's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The verdict.
    pub verdict: Verdict,
    /// Arrival stamp, if the transaction got one.
    pub csn: Option<Csn>,
    /// Whether the request was a retry and the verdict was already stored.
    pub replayed: bool,
    /// Under [`AckMode::Applied`]: whether every store that it wrote had applied it in time. `None` otherwise.
    pub applied: Option<bool>,
    /// Duration of each phase.
    pub phases: Phases,
    /// W3C `traceparent` of the span of this request, if it is traced.
    pub traceparent: Option<String>,
}

/// A query for the status of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusQuery {
    /// Tenant.
    pub namespace: NamespaceId,
    /// The transaction.
    pub id: TxnId,
    /// How long to wait for its verdict, milliseconds.
    pub wait_ms: u64,
    /// Whether to fence the transaction: if it has not arrived yet, it can no longer commit.
    pub fence: bool,
}

/// Status of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnStatus {
    /// It has a verdict. A fenced transaction is `Aborted` with reason `Fenced`.
    Decided(Decided),
    /// It is waiting for its verdict.
    InFlight,
    /// It has not arrived, but may still do so.
    Unknown,
    /// It is no longer known, and can no longer commit.
    UnknownExpired,
}
