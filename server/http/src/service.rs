//! What the HTTP surface needs from the node behind it: one object-safe trait, its questions and its answers.
//!
//! Owns no behaviour. Nothing here knows JSON, HTTP or a plugin; the binary implements [`Service`], the tests of
//! this crate implement it with a double that only serves to check the mapping to HTTP.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use tribunal_types::{
    ApiKey, Csn, Epoch, GroupId, ImportedVersion, Lsn, NamespaceId, RecordBatch, Roles, RowKey, Skip, StoreId,
    StoreSnapshot, StoreSpec, TxnId, TxnRequest, Verdict, Version,
};

use crate::access::Principal;
use crate::feeds::Feeds;
use crate::plugin_service::Plugins;

/// A future of an answer. Boxed, so that [`Service`] can be a trait object.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, ServiceError>> + Send + 'a>>;

/// Names a row: the keyed 128-bit hash that the resolver uses. A closure over the cluster's secret, so that this
/// crate never sees it.
pub type RowNamer = Arc<dyn Fn(NamespaceId, StoreId, &[u8]) -> RowKey + Send + Sync>;

/// Everything that a request can ask of a node; what readers of logs ask is in [`Feeds`].
pub trait Service: Feeds + Send + Sync + 'static {
    /// Returns the declared stores as of now. Called at least once per request: must be a pointer copy.
    fn catalog(&self) -> Arc<Catalog>;

    /// Returns one snapshot per named store, no newer than what that store has applied. With a session it first
    /// waits, at most `wait_ms`, until the session's writes are visible.
    ///
    /// # Errors
    /// [`ServiceError::StoreLagging`] if a store lies below the floor or the session's writes are not visible in time.
    fn begin(&self, begin: Begin) -> Answer<'_, Begun>;

    /// Decides a transaction, durably. A read-only one is judged at once and not stored.
    ///
    /// # Errors
    /// No decision was made, or none is known: see [`ServiceError`].
    fn commit(&self, txn: TxnRequest, ack: AckMode) -> Answer<'_, Decided>;

    /// Decides many transactions, answers in their order. One that cannot be decided does not stop the others.
    ///
    /// # Errors
    /// Only if none was looked at, e.g. [`ServiceError::Overloaded`].
    fn commit_many(&self, txns: Vec<TxnRequest>, ack: AckMode) -> Answer<'_, Vec<Result<Decided, ServiceError>>>;

    /// Gives a transaction up. Answers the verdict that stands: `client_abort`, or what had been decided before.
    ///
    /// # Errors
    /// [`ServiceError::TxnIdExpired`], [`ServiceError::Overloaded`], [`ServiceError::OutcomeUnknown`].
    fn abort(&self, namespace: NamespaceId, id: TxnId) -> Answer<'_, Decided>;

    /// Judges a transaction as if it were committed alone, now; changes nothing.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`].
    fn validate(&self, txn: TxnRequest) -> Answer<'_, Verdict>;

    /// Tells what became of a transaction.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`], [`ServiceError::OutcomeUnknown`] if a fence did not become durable in time.
    fn status(&self, query: StatusQuery) -> Answer<'_, TxnStatus>;

    /// Reads a page of a store's committed log, waiting at most `wait_ms` for the first record, or until the node stops.
    ///
    /// # Errors
    /// [`ServiceError::LogTruncated`]; [`ServiceError::ClientMistake`] if `after` still lies above the head by then.
    fn log_page(&self, query: LogQuery) -> Answer<'_, LogPage>;

    /// Creates a store, or changes one of the same name. The id of the given spec is ignored.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if the adaptor is unknown, or a property that cannot change would.
    fn declare_store(&self, spec: StoreSpec) -> Answer<'_, Declared>;

    /// Returns where a store stands.
    ///
    /// # Errors
    /// [`ServiceError::NotFound`].
    fn store_status(&self, store: StoreId) -> Result<StoreStatus, ServiceError>;

    /// Tries a store's push again now, if it stopped or waits.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if the store is detached.
    fn resume_push(&self, store: StoreId) -> Answer<'_, ()>;

    /// Passes by the record that a store's push stopped at, and keeps a record of that.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if the push did not stop at this record.
    fn skip_record(&self, request: SkipRequest) -> Answer<'_, ()>;

    /// Returns the records of a store that were skipped, oldest decision first.
    fn skips(&self, store: StoreId) -> Vec<Skip>;

    /// Pushes to a detached store again, whose storage was loaded with everything up to `loaded` if that is said.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if it is not detached or the log does not go on from there;
    /// [`ServiceError::Unavailable`] if the storage does not answer.
    fn attach_push(&self, store: StoreId, loaded: Option<Lsn>) -> Answer<'_, ()>;

    /// Reads one row of an embedded store.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if the store is not embedded.
    fn row(&self, store: StoreId, key: Vec<u8>) -> Answer<'_, RowAnswer>;

    /// Reads rows of an embedded store in key order.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if the store is not embedded.
    fn rows(&self, query: RowsQuery) -> Answer<'_, RowsAnswer>;

    /// Returns a store's watermarks.
    ///
    /// # Errors
    /// [`ServiceError::NotFound`].
    fn watermarks(&self, store: StoreId) -> Result<Watermarks, ServiceError>;

    /// Takes versions of existing rows into the version map, durably. Known rows are never overwritten.
    ///
    /// # Errors
    /// [`ServiceError::Overloaded`], [`ServiceError::ClientMistake`] if a version is not below the current epoch.
    fn import(&self, namespace: NamespaceId, versions: Vec<ImportedVersion>) -> Answer<'_, u64>;

    /// Returns what there is to ask about plugins.
    fn plugins(&self) -> &dyn Plugins;

    /// Tells whom a bearer token belongs to. Called for every request: must not wait.
    ///
    /// # Errors
    /// Why it is nobody's, in words.
    fn authenticate(&self, token: &str) -> Result<Arc<Principal>, String>;

    /// Makes a key, durably; answers it and what its owner sends.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if there are too many.
    fn create_key(&self, key: NewKey) -> Answer<'_, (ApiKey, String)>;

    /// Returns all keys in force, by namespace and name.
    fn keys(&self) -> Vec<ApiKey>;

    /// Takes a key back, durably.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`].
    fn revoke_key(&self, id: String) -> Answer<'_, ()>;

    /// Tells when to come back if there is no room now, from how long epochs take and how much waits.
    fn retry_after_ms(&self) -> u64;

    /// Returns all metrics in the Prometheus text format.
    fn metrics(&self) -> String;

    /// Tells whether new transactions are taken.
    fn readiness(&self) -> Readiness;

    /// Tells what runs here.
    fn identity(&self) -> VersionInfo;
}

/// The declared stores at one moment. Immutable: a change makes a new one.
#[derive(Clone)]
pub struct Catalog {
    names: HashMap<NamespaceId, HashMap<String, Arc<StoreSpec>>>,
    ids: HashMap<StoreId, Arc<StoreSpec>>,
    rows: RowNamer,
}

impl Catalog {
    /// Builds a catalog. Of two specs with one name in one namespace the last one stands.
    #[must_use]
    pub fn new(specs: impl IntoIterator<Item = StoreSpec>, rows: RowNamer) -> Self {
        let mut catalog = Catalog { names: HashMap::new(), ids: HashMap::new(), rows };
        for spec in specs {
            let spec = Arc::new(spec);
            catalog.names.entry(spec.namespace).or_default().insert(spec.name.clone(), Arc::clone(&spec));
            catalog.ids.insert(spec.id, spec);
        }
        catalog
    }

    /// Finds a store by its name.
    #[must_use]
    pub fn store(&self, namespace: NamespaceId, name: &str) -> Option<&Arc<StoreSpec>> {
        self.names.get(&namespace)?.get(name)
    }

    /// Finds a store by its number.
    #[must_use]
    pub fn by_id(&self, id: StoreId) -> Option<&Arc<StoreSpec>> {
        self.ids.get(&id)
    }

    /// Returns the stores of a namespace by name.
    #[must_use]
    pub fn list(&self, namespace: NamespaceId) -> Vec<Arc<StoreSpec>> {
        let mut specs: Vec<_> =
            self.names.get(&namespace).into_iter().flat_map(HashMap::values).map(Arc::clone).collect();
        specs.sort_by(|a, b| a.name.cmp(&b.name));
        specs
    }

    /// Returns how many stores a namespace has.
    #[must_use]
    pub fn count(&self, namespace: NamespaceId) -> usize {
        self.names.get(&namespace).map_or(0, HashMap::len)
    }

    /// Returns how many stores there are.
    #[must_use]
    pub fn total(&self) -> usize {
        self.ids.len()
    }

    /// Names a row.
    #[must_use]
    pub fn row(&self, namespace: NamespaceId, store: StoreId, key: &[u8]) -> RowKey {
        (self.rows)(namespace, store, key)
    }
}

impl std::fmt::Debug for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Catalog").field("stores", &self.ids).finish_non_exhaustive()
    }
}

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
}

/// Answer to a Begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Begun {
    /// One per named store.
    pub snapshots: Vec<StoreSnapshot>,
    /// The epoch that is open now.
    pub epoch: Epoch,
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

/// Question for log records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// Whose log.
    pub store: StoreId,
    /// Position behind which to start.
    pub after: Lsn,
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
    /// What to pass as `after` for the following page.
    pub next: Lsn,
    /// Last record of the log.
    pub head: Lsn,
    /// Last record that is durable.
    pub durable_upto: Lsn,
    /// Oldest record that is still kept.
    pub oldest: Lsn,
    /// The node stops: there are no records behind these, and none will come from here.
    pub ending: bool,
}

/// Answer to a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The store as it stands.
    pub spec: StoreSpec,
    /// It did not exist before.
    pub created: bool,
}

/// What a store's push is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PushState {
    /// There is no adaptor: the log alone is the store.
    #[default]
    LogOnly,
    /// Everything is applied, or being sent.
    Running,
    /// The storage failed; it is being tried again, ever less often.
    BackingOff,
    /// The storage said that this never works.
    Stopped,
    /// The storage held too much of the log back, which goes on without it.
    Detached,
}

impl PushState {
    /// Returns the state's name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PushState::LogOnly => "log_only",
            PushState::Running => "running",
            PushState::BackingOff => "backing_off",
            PushState::Stopped => "stopped",
            PushState::Detached => "detached",
        }
    }
}

/// Where a store stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Last record of its log.
    pub head: Lsn,
    /// Last record that the storage acknowledged as durable.
    pub acked: Lsn,
    /// Its watermarks.
    pub watermarks: Watermarks,
    /// Age of the oldest record that is not acknowledged, milliseconds; 0 if there is none.
    pub lag_ms: u64,
    /// What the push is doing.
    pub push: PushState,
    /// What the storage last complained about; why it is detached, and the way out.
    pub last_error: Option<String>,
    /// The record that the storage can never take, if the push stopped at one.
    pub stopped_at: Option<Lsn>,
    /// What an acknowledgement of the storage is worth: `always`, `everysec`, `none` or `unknown`.
    pub durability: Option<&'static str>,
}

/// A key to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// What its owner calls it.
    pub name: String,
    /// Name of its tenant, which there is from then on.
    pub namespace: String,
    /// What it may do.
    pub roles: Roles,
}

/// A record to pass by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipRequest {
    /// Whose record.
    pub store: StoreId,
    /// Which one.
    pub lsn: Lsn,
    /// Who asks, for the audit.
    pub by: String,
}

/// How far a store is (LeanXcale's decoupling of commit and visibility).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Last epoch that is resolved.
    pub committed: Epoch,
    /// Last epoch that is durable.
    pub durable: Epoch,
    /// Last epoch whose records in this store are all acknowledged.
    pub applied: Epoch,
}

/// A row of an embedded store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    /// Its key.
    pub key: Vec<u8>,
    /// Its value, JSON text.
    pub value: Vec<u8>,
    /// Its version.
    pub version: Version,
}

/// One row, or its absence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowAnswer {
    /// The snapshot that this reflects.
    pub applied: Epoch,
    /// The row, if it exists.
    pub row: Option<StoredRow>,
}

/// Question for rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowsQuery {
    /// Which store.
    pub store: StoreId,
    /// First key; empty starts at the beginning.
    pub start: Vec<u8>,
    /// Key behind the last one; empty goes to the end.
    pub end: Vec<u8>,
    /// Most rows to return.
    pub limit: usize,
}

/// Rows in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowsAnswer {
    /// The snapshot that this reflects.
    pub applied: Epoch,
    /// The rows.
    pub rows: Vec<StoredRow>,
    /// There are further rows before the end of the range.
    pub more: bool,
}

/// Whether new transactions are taken, and if not, why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// They are.
    pub ready: bool,
    /// Reasons why not, for people.
    pub reasons: Vec<String>,
}

/// What runs here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionInfo {
    /// Version of the binary.
    pub version: String,
    /// The group that this node leads.
    pub group: GroupId,
    /// The epoch that is open now.
    pub epoch: Epoch,
    /// How epochs are sealed: `adaptive` or the length, e.g. `5ms`.
    pub epoch_mode: String,
}

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
