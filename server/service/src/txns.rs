//! Transactions: begin, commit, abort, validate, status.

use tribunal_types::{Csn, Epoch, NamespaceId, StoreId, StoreSnapshot, TxnId, TxnRequest, Verdict};

use crate::{ReadAnswer, ReadQuery, ServiceError, ServiceFuture};

/// What clients ask about transactions.
pub trait TxnApi: Send + Sync {
    /// Returns one snapshot per named store, no newer than what that store has applied. With a session it first
    /// waits, at most `wait_ms`, until the session's writes are visible.
    ///
    /// # Errors
    /// [`ServiceError::StoreLagging`] if a store lies below the floor or the session's writes are not visible in time.
    fn begin(&self, begin: Begin) -> ServiceFuture<'_, Begun>;

    /// Decides a transaction, durably. A read-only one is judged at once and not stored.
    ///
    /// # Errors
    /// No decision was made, or none is known: see [`ServiceError`].
    fn commit(&self, txn: TxnRequest, ack: AckMode, lane: Option<Lane>) -> ServiceFuture<'_, Decided>;

    /// Decides many transactions, answers in their order. One that cannot be decided does not stop the others.
    ///
    /// # Errors
    /// Only if none was looked at, e.g. [`ServiceError::Overloaded`].
    fn commit_many(&self, txns: Vec<TxnRequest>, ack: AckMode)
    -> ServiceFuture<'_, Vec<Result<Decided, ServiceError>>>;

    /// Gives a transaction up. Answers the verdict that stands: `client_abort`, or what had been decided before.
    ///
    /// # Errors
    /// [`ServiceError::TxnIdExpired`], [`ServiceError::Overloaded`], [`ServiceError::OutcomeUnknown`].
    fn abort(&self, namespace: NamespaceId, id: TxnId) -> ServiceFuture<'_, Decided>;

    /// Judges a transaction as if it were committed alone, now; changes nothing.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`].
    fn validate(&self, txn: TxnRequest) -> ServiceFuture<'_, Verdict>;

    /// Tells what became of a transaction.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`], [`ServiceError::OutcomeUnknown`] if a fence did not become durable in time.
    fn status(&self, query: StatusQuery) -> ServiceFuture<'_, TxnStatus>;

    /// Tells when to come back if there is no room now, from how long epochs take and how much waits.
    fn retry_after_ms(&self) -> u64;
}

/// One of the threads that drive connections of their own. Where an answer is awaited, so that answers of one epoch that
/// are awaited on one lane can reach it together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane(pub usize);

/// When a commit is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum AckMode {
    /// As soon as it is durable and final.
    #[default]
    Durable,
    /// When, beyond that, every store it wrote has applied it (bounded by the node's patience).
    Applied,
}

/// What a client's later reads must see: everything up to this epoch. Travels as an opaque token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Session(pub Epoch);

/// A Begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begin {
    /// Tenant.
    pub namespace: NamespaceId,
    /// Stores that the transaction will use; ascending, never empty.
    pub stores: Vec<StoreId>,
    /// What must be visible first.
    pub session: Option<Session>,
    /// How long to wait for that, milliseconds.
    pub wait_ms: u64,
    /// What to read at once, of embedded stores among `stores`.
    pub read: ReadQuery,
}

/// Answer to a Begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// What was to be read, as of the snapshots.
    pub read: ReadAnswer,
    /// One per named store.
    pub snapshots: Vec<StoreSnapshot>,
    /// The epoch that is open now.
    pub epoch: Epoch,
    /// The node's time, of which the id is to be made: not the system's clock, which may be wrong. Unix milliseconds.
    pub time_ms: u64,
}

/// Where a decision's time went, microseconds. Shown as `Server-Timing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// Waiting for the epoch to be sealed.
    pub queue_us: u32,
    /// Writing and syncing the log.
    pub sync_us: u32,
    /// Resolving the epoch.
    pub resolve_us: u32,
    /// Waiting for the stores to apply it; 0 unless that was asked for.
    pub apply_us: u32,
}

/// A transaction's decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The verdict.
    pub verdict: Verdict,
    /// Arrival stamp, if it got one.
    pub csn: Option<Csn>,
    /// The verdict had been stored before: this was a retry.
    pub replayed: bool,
    /// Under [`AckMode::Applied`]: whether every store that it wrote had applied it in time. `None` otherwise.
    pub applied: Option<bool>,
    /// Where the time went.
    pub phases: Phases,
    /// W3C `traceparent` of the span that this request got, if it is traced.
    pub traceparent: Option<String>,
}

/// Question for a transaction's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusQuery {
    /// Tenant.
    pub namespace: NamespaceId,
    /// Which transaction.
    pub id: TxnId,
    /// How long to wait for an outcome, milliseconds.
    pub wait_ms: u64,
    /// Make sure that an id that never arrived can never commit.
    pub fence: bool,
}

/// What became of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnStatus {
    /// It has its verdict. A fenced id is `Aborted` with reason `Fenced`.
    Decided(Decided),
    /// It waits for its verdict.
    InFlight,
    /// It never arrived here, but still may.
    Unknown,
    /// Nothing is known of it any more, and nothing can become of it.
    UnknownExpired,
}
