//! Stores as seen by the HTTP surface: declarations, rows, watermarks, imported versions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, oneshot};
use tribunal_core::control::Effect;
use tribunal_core::control::stores::Declaration;
use tribunal_push::SourceError;
use tribunal_replica::{Imported, StoreProgress};
use tribunal_service::{
    Catalog, Declared, Freshness, PushState, ReadAnswer, ReadQuery, ServiceError, ServiceFuture as Reply, SkipRequest,
    StoreApi, StoreStatus, Watermarks,
};
use tribunal_types::{ControlChange, Existence, ImportedVersion, Lsn, NamespaceId, Skip, StoreId, StoreSpec};

use crate::commit::message::Message;
use crate::commit::refusals::{change_unknown, refused, stopping};
use crate::commit::waiters::ImportWaiter;
use crate::service::{NodeService, agreed};
use crate::stores::log_rows;
use crate::stores::reads::cannot_read;
use crate::stores::shared_storage::Taken;

/// When to retry if a storage has not reported its watermark yet, milliseconds.
const UNREPORTED_RETRY_MS: u64 = 20;
/// How long a start waits for the watermarks of embedded stores.
const EMBEDDED_REPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// Counts of the rows in a log: one at a time, because each keeps the keys of all rows in memory.
static COUNTS: Semaphore = Semaphore::const_new(1);

/// Counts something in the log of a store, on a thread that may block, one count at a time.
///
/// # Errors
/// [`ServiceError::Unavailable`] if the log cannot be read.
async fn counted_in_log(
    spec: &StoreSpec,
    count: impl FnOnce() -> Result<u64, SourceError> + Send + 'static,
) -> Result<u64, ServiceError> {
    let turn = COUNTS.acquire().await;
    // The thread continues if the caller disconnects, and keeps its turn.
    let counted = tokio::task::spawn_blocking(move || {
        let counted = count();
        drop(turn);
        counted
    })
    .await;
    let counted = counted.map_err(|error| error.to_string()).and_then(|count| count.map_err(|e| e.to_string()));
    counted.map_err(|reason| ServiceError::Unavailable {
        detail: format!("the log of '{}' cannot be read to its end: {reason}. Nothing was changed", spec.name),
    })
}

impl NodeService {
    async fn declare(&self, mut spec: StoreSpec) -> Result<Declared, ServiceError> {
        // Compiles the adaptor: before its turn, or one tenant's declarations would hold up all others.
        let checked = tokio::task::block_in_place(|| self.pushes.check(&spec));
        // An existing declaration stays valid even if this release would refuse it.
        let catalog = self.stores.catalog();
        let known = catalog.store(spec.namespace, &spec.name);
        let as_before = known.filter(|known| {
            (&known.adaptor, &known.adaptor_config, known.multi_version)
                == (&spec.adaptor, &spec.adaptor_config, spec.multi_version)
        });
        let keeps_storage = known.is_some_and(|known| {
            (&known.adaptor, &known.adaptor_config) == (&spec.adaptor, &spec.adaptor_config)
                && !self.is_detached(known.id)
        });
        let takes = checked.or_else(|fault| as_before.map(|known| known.takes).ok_or(fault));
        spec.takes = takes.map_err(|(pointer, detail)| ServiceError::ClientMistake {
            code: "adaptor_invalid",
            pointer,
            detail,
        })?;
        // Every adaptor moves its watermark in the storage's transaction.
        spec.transactional = true;
        // Most declarations that would be refused or change nothing need no entry. An entry's effect is decided when it
        // is applied: others may be ahead of it.
        let check = self.stores.check(&spec, &|store| self.head(store) > Lsn(0));
        spec.id = match check.map_err(refused)? {
            Declaration::New => StoreId(0),
            Declaration::Change(id) => {
                self.must_have_its_records(id, &spec)?;
                self.must_have_its_rows(id, &spec).await?;
                self.must_have_room_for_its_records(id, &spec).await?;
                id
            }
            Declaration::Known(id) => return Ok(Declared { spec: StoreSpec { id, ..spec }, created: false }),
        };
        if !keeps_storage {
            self.must_have_own_storage(&spec, "/adaptor_config")?;
        }
        let (applied, taken) = self.declare_agreed(spec.clone(), keeps_storage).await?;
        self.must_have_got_storage(taken, "/adaptor_config")?;
        let created = match applied {
            Effect::StoreDeclared { store, created } => {
                spec.id = store;
                created
            }
            Effect::StoreKnown(store) => {
                spec.id = store;
                false
            }
            effect => unreachable!("a store was to be declared, and the effect is {effect:?}"),
        };
        self.pushes.settled(spec.id).await;
        Ok(Declared { spec, created })
    }

    /// Declares a store. Unless it keeps its storage, detaches it if another store got that first. Runs to completion even
    /// if the client disconnects: half-done, two stores would fill one storage.
    async fn declare_agreed(
        &self,
        spec: StoreSpec,
        keeps_storage: bool,
    ) -> Result<(Effect, Option<Taken>), ServiceError> {
        self.check_takes_changes()?;
        let (messages, claims) = (self.messages.clone(), self.storage_claims());
        let declared = tokio::spawn(async move {
            let effect = agreed(&messages, ControlChange::DeclareStore(spec)).await?.map_err(refused)?;
            let taken = match &effect {
                Effect::StoreDeclared { store, .. } if !keeps_storage => claims.give_up_if_taken(*store).await?,
                _ => None,
            };
            Ok((effect, taken))
        });
        declared.await.unwrap_or_else(|_| Err(change_unknown()))
    }

    /// Refuses to make a store embedded if neither its log nor its former files contain all of its records.
    fn must_have_its_records(&self, store: StoreId, spec: &StoreSpec) -> Result<(), ServiceError> {
        let was_embedded = self.stores.declared(store).is_some_and(|store| store.spec.is_embedded());
        let oldest = self.records.oldest(store);
        let has_all = || tokio::task::block_in_place(|| self.pushes.flushed_to(store).next() >= oldest);
        if was_embedded || !spec.is_embedded() || oldest == Lsn(1) || has_all() {
            return Ok(());
        }
        Err(ServiceError::ClientMistake {
            code: "records_truncated",
            pointer: "/adaptor".into(),
            detail: format!(
                "the log of store '{}' begins at LSN {oldest}: an embedded store is filled from its log, which no longer has the \
                 records before. Declare another store as embedded, and commit the rows to that",
                spec.name
            ),
        })
    }

    /// Refuses to make a store embedded if it has known rows that its log does not contain: their versions were
    /// imported for rows of an engine or a storage. Reads the store's whole log.
    async fn must_have_its_rows(&self, store: StoreId, spec: &StoreSpec) -> Result<(), ServiceError> {
        let was_embedded = self.stores.declared(store).is_some_and(|store| store.spec.is_embedded());
        let progress = self.shared.progress.store(store).unwrap_or_default();
        // Only tracked rows are known, and only those are imported.
        if was_embedded || !spec.is_embedded() || progress.rows == 0 {
            return Ok(());
        }
        if self.records.oldest(store) > Lsn(1) {
            return Ok(());
        }
        let records = self.records.clone();
        let rows = counted_in_log(spec, move || log_rows::count(&records, store, progress.head)).await?;
        let Some(imported) = progress.rows.checked_sub(rows).filter(|imported| *imported > 0) else { return Ok(()) };
        Err(ServiceError::ClientMistake {
            code: "store_has_imported_rows",
            pointer: "/adaptor".into(),
            detail: format!(
                "store '{}' has {imported} row(s) of which only a version was imported: an embedded store is filled from its log, \
                 which does not have them. Declare another store as embedded, and commit the rows to that",
                spec.name
            ),
        })
    }

    /// Refuses to make a store embedded if the records that its files lack may push its tenant over its bound of stored
    /// bytes. Reads that part of the store's log.
    async fn must_have_room_for_its_records(&self, store: StoreId, spec: &StoreSpec) -> Result<(), ServiceError> {
        let was_embedded = self.stores.declared(store).is_some_and(|store| store.spec.is_embedded());
        let Some(max) = self.bound_of(&self.stored_quota, spec.namespace) else { return Ok(()) };
        if was_embedded || !spec.is_embedded() {
            return Ok(());
        }
        let (head, pushes, records) = (self.head(store), Arc::clone(&self.pushes), self.records.clone());
        let count = move || log_rows::bytes_after(&records, store, pushes.flushed_to(store), head);
        let new = counted_in_log(spec, count).await?;
        let stored = self.pushes.stored_bytes_of(spec.namespace);
        if new == 0 || stored.saturating_add(new) <= max {
            return Ok(());
        }
        Err(ServiceError::TooManyStoredBytes { stored, new, max })
    }

    /// Returns a store's declaration.
    pub(crate) fn catalog_entry(&self, store: StoreId) -> Result<Arc<StoreSpec>, ServiceError> {
        let found = self.stores.catalog().by_id(store).cloned();
        found.ok_or_else(|| ServiceError::NotFound { what: "store of this name".into() })
    }

    pub(crate) fn head(&self, store: StoreId) -> Lsn {
        self.shared.progress.store(store).map_or(Lsn(0), |progress| progress.head)
    }

    pub(crate) fn is_detached(&self, store: StoreId) -> bool {
        self.shared.progress.store(store).is_some_and(|progress| progress.detached)
    }

    pub(crate) fn lagging(&self, store: StoreId, retry_after_ms: u64) -> ServiceError {
        if self.stopping.load(Ordering::Relaxed) {
            return stopping();
        }
        if self.is_detached(store) {
            return ServiceError::StoreDetached { store };
        }
        let push = self.pushes.status(store);
        if push.state == PushState::Stopped {
            return ServiceError::StoreStopped { store, reason: push.last_error.unwrap_or_default() };
        }
        if let Some(reason) = self.pushes.closed_because(store) {
            return ServiceError::Unavailable { detail: cannot_read(&reason) };
        }
        ServiceError::StoreLagging { store, retry_after_ms }
    }

    /// Returns a store's progress, if its applied epoch is known: after a start, once the storage has reported it. Until
    /// then nothing can be claimed, and 0 would be a step back.
    pub(crate) fn reported(&self, store: StoreId) -> Result<StoreProgress, ServiceError> {
        match self.shared.progress.store(store) {
            Some(progress) if !progress.reported => Err(self.lagging(store, UNREPORTED_RETRY_MS)),
            progress => Ok(progress.unwrap_or_default()),
        }
    }

    /// Waits until the embedded stores have reported their watermarks, which takes milliseconds, or cannot.
    pub(crate) async fn embedded_reported(&self) {
        let deadline = Instant::now() + EMBEDDED_REPORT_TIMEOUT;
        let mut changes = self.shared.progress.subscribe();
        loop {
            changes.borrow_and_update();
            let waiting = self.stores.all().into_iter().any(|store| {
                store.spec.is_embedded()
                    && self.reported(store.spec.id).is_err()
                    && self.pushes.status(store.spec.id).state == PushState::Running
            });
            if !waiting || Instant::now() >= deadline {
                return;
            }
            // A push that stops changes no progress, so poll again soon.
            let _ = tokio::time::timeout(Duration::from_millis(UNREPORTED_RETRY_MS), changes.changed()).await;
        }
    }

    pub(crate) fn watermarks_of(&self, store: StoreId) -> Result<Watermarks, ServiceError> {
        // Read first: the end of the log must not be older.
        let last = self.shared.progress.last();
        let progress =
            self.shared.progress.store(store).ok_or_else(|| ServiceError::NotFound { what: "the store".into() })?;
        Ok(Watermarks { committed: last, durable: last, applied: progress.applied, head: progress.head })
    }
}

impl StoreApi for NodeService {
    fn catalog(&self) -> Arc<Catalog> {
        self.stores.catalog()
    }

    fn namespace_name(&self, namespace: NamespaceId) -> String {
        self.tenant_name(namespace)
    }

    fn has_namespace(&self, name: &str) -> bool {
        self.access.has_namespace(name)
    }

    fn declare_store(&self, spec: StoreSpec) -> Reply<'_, Declared> {
        Box::pin(self.declare(spec))
    }

    fn store_status(&self, store: StoreId) -> Result<StoreStatus, ServiceError> {
        self.standing(store)
    }

    fn is_out_of_reach(&self, store: StoreId) -> bool {
        let progress = self.shared.progress.store(store).unwrap_or_default();
        let fails = || matches!(self.pushes.status(store).state, PushState::BackingOff | PushState::Stopped);
        progress.detached || (!progress.reported && !self.pushes.is_embedded(store) && fails())
    }

    fn resume_push(&self, store: StoreId) -> Reply<'_, ()> {
        Box::pin(self.resume(store))
    }

    fn skip_record(&self, request: SkipRequest) -> Reply<'_, ()> {
        Box::pin(self.skip(request))
    }

    fn skips(&self, store: StoreId) -> Vec<Skip> {
        self.skips_of(store)
    }

    fn attach_push(&self, store: StoreId, loaded: Option<Lsn>) -> Reply<'_, ()> {
        Box::pin(self.attach(store, loaded))
    }

    fn read(&self, query: ReadQuery, freshness: Freshness) -> Reply<'_, ReadAnswer> {
        Box::pin(async move {
            let asked = Instant::now();
            let mut stores = Vec::new();
            if freshness.fresh || freshness.session.is_some() {
                stores = query.stores();
                stores.iter().try_for_each(|store| self.rows.check(*store, &query))?;
            }
            let deadline = self.until_fresh(&stores, freshness).await?;
            let read = self.rows.read_by(&query, deadline).await?;
            let micros = u64::try_from(asked.elapsed().as_micros()).unwrap_or(u64::MAX);
            self.shared.metrics.phases.read.add(micros, 1);
            Ok(read)
        })
    }

    fn watermarks(&self, store: StoreId) -> Result<Watermarks, ServiceError> {
        self.reported(store)?;
        self.watermarks_of(store)
    }

    fn import(&self, namespace: NamespaceId, versions: Vec<ImportedVersion>) -> Reply<'_, u64> {
        Box::pin(async move {
            let catalog = self.stores.catalog();
            // All versions are of one store.
            let spec = versions.first().and_then(|version| catalog.by_id(version.store));
            if let Some(declared) = spec.filter(|spec| spec.existence == Existence::Declared) {
                return Err(ServiceError::ClientMistake {
                    code: "store_declared",
                    pointer: String::new(),
                    detail: format!(
                        "store '{}' is declared, so the read sets of its engine tell which rows exist; \
                         only tracked stores take imported versions",
                        declared.name
                    ),
                });
            }
            if let Some(embedded) = spec.filter(|spec| spec.is_embedded()) {
                return Err(ServiceError::ClientMistake {
                    code: "store_embedded",
                    pointer: String::new(),
                    detail: format!(
                        "store '{}' is embedded: it has no rows but those of its log, so a version without its row would be \
                         wrong. Commit the rows themselves; versions are imported for rows that an engine or a storage has",
                        embedded.name
                    ),
                });
            }
            let last = self.shared.progress.last();
            if let Some(at) = versions.iter().position(|v| v.version.epoch() > last) {
                return Err(ServiceError::ClientMistake {
                    code: "version_from_the_future",
                    pointer: format!("/{at}/version"),
                    detail: format!(
                        "versions of existing rows must be of epoch {last}, the last complete one, or earlier"
                    ),
                });
            }
            self.check_imported_rows(namespace, versions.len() as u64)?;
            self.admit_writes(namespace, size_of_val(&*versions))?;
            let (reply, imported) = oneshot::channel();
            let waiter = ImportWaiter::new(namespace, &versions, reply);
            self.send(Message::Import(versions, waiter))?;
            match imported.await {
                Ok(Imported::Rows(rows)) => Ok(rows),
                Ok(Imported::NotTaken) => Err(self.not_taken()),
                Ok(Imported::Stopping) => Err(stopping()),
                Ok(Imported::Unknown) | Err(_) => Err(change_unknown()),
            }
        })
    }
}
