//! The part of the pushes specific to embedded stores: rows on this node, filled from its log, flushed for it and read.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tribunal_push::{EmbeddedError, EmbeddedStore, LogSource as _, PushActivity, StoreFile};
use tribunal_types::{DeclaredStore, Epoch, Lsn, NamespaceId, StoreId, StoreSpec};

use super::reopening::only_elsewhere;
use super::{Entry, Pushes, State};
use crate::commit::sequencer_state::LaggingPush;

impl Pushes {
    /// Returns the lock that is held while the log is truncated.
    pub fn truncation(&self) -> Arc<Mutex<()>> {
        self.embedded.truncation()
    }

    /// Returns the open embedded stores that the log waits for, each with the first epoch that its disk lacks.
    pub fn awaited(&self) -> Vec<(StoreId, Epoch)> {
        self.embedded.awaited()
    }

    /// Records that the log waits for other members' copies instead of this node's. Does not block.
    pub fn left_out(&self, store: StoreId) {
        self.embedded.left_out(store);
    }

    /// Returns the known state of a push that holds the log back. Does not block.
    pub fn lagging(&self, store: StoreId) -> LaggingPush {
        let entries = self.entries.lock();
        let Some(entry) = entries.get(&store) else { return LaggingPush::default() };
        let opens_at = match &entry.state {
            _ if !entry.store.spec.is_embedded() => None,
            State::Starting => Some(Lsn(0)),
            State::Ahead(_) => Some(self.records.log.head(store)),
            // It applies the records after its last flush.
            State::Running(running) if running.handle.status().activity == PushActivity::Connecting => {
                Some(self.embedded.get(store).and_then(|open| open.applied_at_once()).unwrap_or_default())
            }
            _ => None,
        };
        let needs_all = self.records.oldest(store) == Lsn(1)
            && self.embedded.get(store).is_some_and(|open| open.damage().is_some());
        LaggingPush { complaint: self.state_of(entry).last_error, opens_at, needs_all }
    }

    /// Returns whether only other members have the rows of an embedded store: they are broken here, and this node's log
    /// no longer has the missing records.
    pub(super) fn needs_copy(&self, store: StoreId, damaged: bool) -> bool {
        if self.me.is_none() {
            return false;
        }
        let oldest = self.records.oldest(store);
        if damaged {
            return oldest > Lsn(1);
        }
        match EmbeddedStore::flushed_in(&self.embedded.dir(store)) {
            Ok(flushed) => {
                let is_of_log = || self.records.contains(store, &flushed).unwrap_or(true);
                let cannot_follow = oldest > Lsn(1) && (flushed.lsn.next() < oldest || !is_of_log());
                cannot_follow && self.closed_because(store).is_some()
            }
            Err(EmbeddedError::Damaged(_)) => oldest > Lsn(1),
            // Opening the store reports that.
            Err(_) => false,
        }
    }

    /// Returns the damage noted beside the files of an embedded store.
    pub fn damage_on_disk(&self, store: StoreId) -> Option<String> {
        EmbeddedStore::damage_in(&self.embedded.dir(store))
    }

    /// Returns the last record on disk in a store's files, which it may have from when it was embedded before; 0 without
    /// readable files.
    pub fn flushed_to(&self, store: StoreId) -> Lsn {
        EmbeddedStore::flushed_in(&self.embedded.dir(store)).map_or(Lsn(0), |flushed| flushed.lsn)
    }

    /// Has an embedded store flush its memory to disk, on a separate thread.
    pub fn flush(&self, store: StoreId) {
        self.embedded.flush(store, self.name_of(store));
    }

    /// Has every embedded store flush its memory to disk, and returns the files of each. Waits for the disk.
    ///
    /// # Errors
    /// A description of the failure: a store that is incomplete here must not be copied.
    pub fn flushed_files(&self) -> Result<Vec<(StoreId, Vec<StoreFile>)>, String> {
        let (open, broken, detached) = {
            let entries = self.entries.lock();
            let open = self.embedded.all();
            let detached = entries.values().filter(|entry| entry.store.detached.is_some());
            let detached: HashSet<StoreId> = detached.map(|entry| entry.store.spec.id).collect();
            let is_missing = |entry: &&Entry| {
                let DeclaredStore { spec, detached, .. } = &entry.store;
                spec.is_embedded() && detached.is_none() && open.iter().all(|(id, _)| *id != spec.id)
            };
            let broken = entries.values().find(is_missing).map(|entry| entry.store.spec.name.clone());
            (open, broken, detached)
        };
        if let Some(name) = broken {
            return Err(format!("its copy of the embedded store `{name}` is not open"));
        }
        let flushed = |id: StoreId, store: &EmbeddedStore| match detached.contains(&id) {
            true => store.flushed_files_as_applied(),
            false => store.flushed_files(),
        };
        let files = |(id, store): (StoreId, Arc<EmbeddedStore>)| match flushed(id, &store) {
            Ok(_) if self.damage_on_disk(id).is_some() => {
                Err(format!("its copy of the embedded store `{}` is damaged", self.name_of(id)))
            }
            Ok(files) => Ok((id, files)),
            Err(error) => Err(format!("its copy of the embedded store `{}` cannot be read: {error}", self.name_of(id))),
        };
        open.into_iter().map(files).collect()
    }

    /// Returns the bytes of a store if it is embedded and open.
    pub fn stored_bytes_of_store(&self, store: StoreId) -> Option<u64> {
        self.embedded.get(store).map(|open| open.stored().total())
    }

    /// Returns the bytes of a tenant's embedded stores, and of those that were embedded before.
    pub fn stored_bytes_of(&self, namespace: NamespaceId) -> u64 {
        self.embedded.stored_bytes_of(namespace)
    }

    /// Returns the bytes of all tenants that have such stores.
    pub fn stored_bytes(&self) -> Vec<(NamespaceId, u64)> {
        self.embedded.stored_bytes()
    }

    /// Begins to compact the embedded stores of a tenant; see [`EmbeddedStore::reclaim`].
    pub fn reclaim(&self, namespace: NamespaceId, pause: Duration) {
        self.embedded.reclaim(namespace, pause);
    }

    /// Returns an embedded store.
    pub fn embedded(&self, store: StoreId) -> Option<Arc<EmbeddedStore>> {
        self.embedded.get(store)
    }

    /// Returns whether a store is embedded, and not detached: it is open, or about to be.
    pub fn is_embedded(&self, store: StoreId) -> bool {
        let entries = self.entries.lock();
        entries.get(&store).is_some_and(|entry| entry.store.spec.is_embedded() && entry.store.detached.is_none())
    }

    /// Returns why an embedded store cannot be read here, if so.
    pub fn closed_because(&self, store: StoreId) -> Option<String> {
        let entries = self.entries.lock();
        let entry = entries.get(&store).filter(|entry| entry.store.spec.is_embedded())?;
        match &entry.state {
            State::Broken(reason) => Some(reason.clone()),
            State::OutOfUse => self.state_of(entry).last_error,
            State::Running(running) => {
                let status = running.handle.status();
                status.last_error.filter(|_| status.activity == PushActivity::Stopped)
            }
            _ => None,
        }
    }

    /// Adds the remedy to a store's error if the log cannot repair it.
    pub(super) fn with_way_out(&self, spec: &StoreSpec, error: String) -> String {
        let open = self.embedded.get(spec.id).filter(|_| self.me.is_some());
        if open.is_none_or(|open| open.flushed().next() >= self.records.oldest(spec.id)) {
            return error;
        }
        only_elsewhere(&error)
    }

    /// Ends the task of an embedded store that has stopped, so that its files can be closed. The store is shown as stopped,
    /// for the same reason, until it is started again.
    pub(super) async fn end_stopped(&self, store: StoreId) {
        let task = {
            let mut entries = self.entries.lock();
            let Some(entry) = entries.get_mut(&store) else { return };
            let reason = match &entry.state {
                State::Running(running) if running.handle.status().activity == PushActivity::Stopped => {
                    running.handle.status().last_error.unwrap_or_default()
                }
                _ => return,
            };
            let State::Running(running) = std::mem::replace(&mut entry.state, State::Broken(reason)) else { return };
            let _ = running.stop.send(true);
            running.task
        };
        let _ = task.await;
    }

    pub(super) async fn close_embedded(self: &Arc<Self>, store: StoreId) -> Result<(), String> {
        let this = Arc::clone(self);
        let closed = self.runtime.spawn_blocking(move || this.embedded.close(store)).await;
        closed.map_err(|error| error.to_string())?
    }
}
