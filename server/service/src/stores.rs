//! Stores: declarations, pushes to their storages, reads of embedded stores, import of versions.

use std::sync::Arc;

use tribunal_types::{Epoch, ImportedVersion, Lsn, NamespaceId, NodeId, Skip, StoreId, StoreSpec};

use crate::{Catalog, Freshness, ReadAnswer, ReadQuery, ServiceError, ServiceFuture};

/// Operations on stores.
pub trait StoreApi: Send + Sync {
    /// Returns the current catalog. Called at least once per request, so it must not cost more than copying a pointer.
    fn catalog(&self) -> Arc<Catalog>;

    /// Returns the name of a namespace, for operators of the service; its number, if it has none.
    fn namespace_name(&self, namespace: NamespaceId) -> String;

    /// Returns whether this node knows a namespace of this name.
    fn has_namespace(&self, name: &str) -> bool;

    /// Creates a store, or changes the one of the same name. The id in `spec` is ignored.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if the adaptor is unknown, or `spec` changes a property that is fixed.
    fn declare_store(&self, spec: StoreSpec) -> ServiceFuture<'_, Declared>;

    /// Returns the state of a store.
    ///
    /// # Errors
    /// [`ServiceError::NotFound`].
    fn store_status(&self, store: StoreId) -> Result<StoreStatus, ServiceError>;

    /// Returns whether a Begin that names no store leaves this one out, so that it does not block the others: the store
    /// is detached, or its own storage has not been reached since the node's start, and its position is not known. Must
    /// not block.
    fn is_out_of_reach(&self, store: StoreId) -> bool;

    /// Resumes a store's push immediately if it has stopped or is backing off.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if the store is detached.
    fn resume_push(&self, store: StoreId) -> ServiceFuture<'_, ()>;

    /// Skips the record that a store's push stopped at, and records the skip in the control log.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if the push did not stop at this record.
    fn skip_record(&self, request: SkipRequest) -> ServiceFuture<'_, ()>;

    /// Returns the skipped records of a store, oldest skip first.
    fn skips(&self, store: StoreId) -> Vec<Skip>;

    /// Reattaches a store that is detached, or whose push has stopped. `loaded` is the position up to which the storage has
    /// been loaded, if it has been.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if the store is neither, or the log no longer has the records after `loaded`;
    /// [`ServiceError::Unavailable`] if the storage does not respond.
    fn attach_push(&self, store: StoreId, loaded: Option<Lsn>) -> ServiceFuture<'_, ()>;

    /// Reads rows and ranges of embedded stores, all at the same epoch. The results include every commit that this node
    /// acknowledged before the call, and everything that `freshness` requires.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if a store is not embedded, or the rows do not fit into a response. If the
    /// required commits are not visible in time: see [`TxnApi::begin`](crate::TxnApi::begin).
    fn read(&self, query: ReadQuery, freshness: Freshness) -> ServiceFuture<'_, ReadAnswer>;

    /// Returns a store's watermarks.
    ///
    /// # Errors
    /// [`ServiceError::NotFound`].
    fn watermarks(&self, store: StoreId) -> Result<Watermarks, ServiceError>;

    /// Imports versions of existing rows into the version map, durably. Rows that it already contains are not changed.
    ///
    /// # Errors
    /// [`ServiceError::Overloaded`]; [`ServiceError::ClientMistake`] if a version is not below the current epoch.
    fn import(&self, namespace: NamespaceId, versions: Vec<ImportedVersion>) -> ServiceFuture<'_, u64>;
}

/// Result of a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// The store as it is now.
    pub spec: StoreSpec,
    /// Whether the store is new.
    pub created: bool,
}

/// State of a store's push.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PushState {
    /// The store has no adaptor: it consists of its log.
    #[default]
    LogOnly,
    /// All records are applied or being sent.
    Running,
    /// The storage failed temporarily; the push retries with increasing delays.
    BackingOff,
    /// The storage rejected a record permanently.
    Stopped,
    /// The storage lagged too far, so the log no longer retains records for it.
    Detached,
    /// Rows of an embedded store are damaged on the disk; it applies records, and the other rows can be read.
    Damaged,
}

impl PushState {
    /// All states.
    pub const ALL: [PushState; 6] = [
        PushState::LogOnly,
        PushState::Running,
        PushState::BackingOff,
        PushState::Stopped,
        PushState::Detached,
        PushState::Damaged,
    ];

    /// Returns the state's name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            PushState::LogOnly => "log_only",
            PushState::Running => "running",
            PushState::BackingOff => "backing_off",
            PushState::Stopped => "stopped",
            PushState::Detached => "detached",
            PushState::Damaged => "damaged",
        }
    }
}

/// State of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Last record that the storage acknowledged as durable.
    pub acked: Lsn,
    /// Number of rows of a tracked store; 0 for a declared one.
    pub rows: u64,
    /// Bytes of an embedded store's rows on the node's disk; `None` for other stores.
    pub stored_bytes: Option<u64>,
    /// Watermarks of the store.
    pub watermarks: Watermarks,
    /// Age of the oldest record that is not acknowledged, milliseconds; 0 if there is none.
    pub lag_ms: u64,
    /// State of the push.
    pub push: PushState,
    /// The node of a cluster that pushes; `None` if no node is named, or needed.
    pub pushed_by: Option<NodeId>,
    /// Last error of the storage; for a detached store, why it is detached and how to reattach it.
    pub last_error: Option<String>,
    /// The record that the push stopped at.
    pub stopped_at: Option<Lsn>,
    /// When the storage makes acknowledged records durable: `always`, `everysec`, `none` or `unknown`.
    pub durability: Option<&'static str>,
}

/// A request to skip a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SkipRequest {
    /// The store.
    pub store: StoreId,
    /// Position of the record.
    pub lsn: Lsn,
    /// Who requests it, for the audit.
    pub by: String,
}

/// Progress of a store (commit and visibility are decoupled, as in LeanXcale).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// Last epoch that is resolved.
    pub committed: Epoch,
    /// Last epoch that is durable.
    pub durable: Epoch,
    /// Last epoch whose records have all been acknowledged by this store.
    pub applied: Epoch,
    /// Last record of its log: every commit up to `committed` is there or before.
    pub head: Lsn,
}
