//! Stores: declarations, pushes to their storages, rows of embedded ones, versions of existing rows.

use std::sync::Arc;

use tribunal_types::{Epoch, ImportedVersion, Lsn, NamespaceId, Skip, StoreId, StoreSpec};

use crate::{Catalog, ReadAnswer, ReadQuery, ServiceError, ServiceFuture};

/// What engines and operators ask about stores.
pub trait StoreApi: Send + Sync {
    /// Returns the declared stores as of now. Called at least once per request: must be a pointer copy.
    fn catalog(&self) -> Arc<Catalog>;

    /// Creates a store, or changes one of the same name. The id of the given spec is ignored.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if the adaptor is unknown, or a property that cannot change would.
    fn declare_store(&self, spec: StoreSpec) -> ServiceFuture<'_, Declared>;

    /// Returns where a store stands.
    ///
    /// # Errors
    /// [`ServiceError::NotFound`].
    fn store_status(&self, store: StoreId) -> Result<StoreStatus, ServiceError>;

    /// Tries a store's push again now, if it stopped or waits.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if the store is detached.
    fn resume_push(&self, store: StoreId) -> ServiceFuture<'_, ()>;

    /// Passes by the record that a store's push stopped at, and keeps a record of that.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if the push did not stop at this record.
    fn skip_record(&self, request: SkipRequest) -> ServiceFuture<'_, ()>;

    /// Returns the records of a store that were skipped, oldest decision first.
    fn skips(&self, store: StoreId) -> Vec<Skip>;

    /// Pushes to a detached store again, whose storage was loaded with everything up to `loaded` if that is said.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if it is not detached or the log does not go on from there;
    /// [`ServiceError::Unavailable`] if the storage does not answer.
    fn attach_push(&self, store: StoreId, loaded: Option<Lsn>) -> ServiceFuture<'_, ()>;

    /// Reads rows and ranges of embedded stores, all of them as of one epoch, which no commit that was answered is later
    /// than.
    ///
    /// # Errors
    /// [`ServiceError::ClientMistake`] if a store is not embedded, or the rows are more than fit an answer.
    fn read(&self, query: ReadQuery) -> ServiceFuture<'_, ReadAnswer>;

    /// Returns a store's watermarks.
    ///
    /// # Errors
    /// [`ServiceError::NotFound`].
    fn watermarks(&self, store: StoreId) -> Result<Watermarks, ServiceError>;

    /// Takes versions of existing rows into the version map, durably. Known rows are never overwritten.
    ///
    /// # Errors
    /// [`ServiceError::Overloaded`], [`ServiceError::ClientMistake`] if a version is not below the current epoch.
    fn import(&self, namespace: NamespaceId, versions: Vec<ImportedVersion>) -> ServiceFuture<'_, u64>;
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
    /// The log retained too much for the storage, and no longer waits for it.
    Detached,
}

impl PushState {
    /// All states.
    pub const ALL: [PushState; 5] =
        [PushState::LogOnly, PushState::Running, PushState::BackingOff, PushState::Stopped, PushState::Detached];

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
    /// Rows of a tracked store; 0 for a declared one.
    pub rows: u64,
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
