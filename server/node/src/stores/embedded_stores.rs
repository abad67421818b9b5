//! The embedded stores that are open on this node.
//!
//! Opening one may read and check all of its files, so no lock is held meanwhile but the store's own turn: the sequencer, the log thread
//! and readers look here, and must not wait for a disk.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tribunal_push::{ApplyObserver, EmbeddedStore, EpochSource};
use tribunal_types::{StoreId, StoreSpec};

use crate::stores::catalog::Records;
use crate::stores::embedded_files;
use crate::stores::embedded_memory::EmbeddedMemory;
use crate::telemetry::{ApplyTraces, Tracing};

/// How long to wait for readers of a store that is to be opened again.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a store is, once it is open.
#[derive(Default)]
struct Place {
    /// Held by the thread that opens it.
    turn: Arc<Mutex<()>>,
    open: Option<Arc<EmbeddedStore>>,
}

/// The embedded stores of a node.
pub struct EmbeddedStores {
    data: PathBuf,
    records: Records,
    runtime: Handle,
    tracing: Option<Arc<Tracing>>,
    places: Mutex<HashMap<StoreId, Place>>,
    memory: Mutex<EmbeddedMemory>,
}

impl EmbeddedStores {
    /// Prepares them; none is open yet.
    pub fn new(data: PathBuf, records: Records, runtime: Handle, tracing: Option<Arc<Tracing>>) -> EmbeddedStores {
        EmbeddedStores { data, records, runtime, tracing, places: Mutex::default(), memory: Mutex::default() }
    }

    /// Returns the directory of a store.
    pub fn dir(&self, store: StoreId) -> PathBuf {
        self.data.join("stores").join(store.to_string())
    }

    /// Returns a store, if it is open.
    pub fn get(&self, store: StoreId) -> Option<Arc<EmbeddedStore>> {
        self.places.lock().get(&store)?.open.clone()
    }

    /// Returns those that are open.
    pub fn all(&self) -> Vec<(StoreId, Arc<EmbeddedStore>)> {
        let places = self.places.lock();
        places.iter().filter_map(|(id, place)| Some((*id, Arc::clone(place.open.as_ref()?)))).collect()
    }

    /// Opens a store, unless it is open. Waits for the disk, and for another thread that opens it.
    ///
    /// # Errors
    /// In words: what is wrong and what to do about it; also if the store was forgotten meanwhile.
    pub fn open(&self, spec: &StoreSpec) -> Result<Arc<EmbeddedStore>, String> {
        let forgotten = || "the store was declared again while it was being opened".to_owned();
        let turn = Arc::clone(&self.places.lock().entry(spec.id).or_default().turn);
        let _mine = turn.lock();
        let same = |place: &&mut Place| Arc::ptr_eq(&place.turn, &turn);
        match self.places.lock().get_mut(&spec.id).filter(same) {
            Some(Place { open: Some(open), .. }) => return Ok(Arc::clone(open)),
            Some(_) => {}
            None => return Err(forgotten()),
        }
        let open = Arc::new(self.open_files(spec)?);
        match self.places.lock().get_mut(&spec.id).filter(same) {
            Some(place) => place.open = Some(Arc::clone(&open)),
            None => return Err(forgotten()),
        }
        Ok(open)
    }

    fn open_files(&self, spec: &StoreSpec) -> Result<EmbeddedStore, String> {
        let bytes = self.memory.lock().give(spec.id, spec.namespace);
        let source = Arc::new(self.records.clone()) as Arc<dyn EpochSource>;
        let open = embedded_files::open(&self.dir(spec.id), bytes, spec, &source)
            .inspect_err(|_| self.memory.lock().take_back(spec.id))?;
        let traces =
            |tracing| Arc::new(ApplyTraces::new(tracing, spec.id, spec.name.clone())) as Arc<dyn ApplyObserver>;
        Ok(open.observed_by(self.tracing.clone().map(traces)))
    }

    /// Closes a store, so that it is read from the disk again: something may have been repaired there.
    ///
    /// # Errors
    /// In words, if it is read for so long that it stays open.
    pub async fn close(&self, store: StoreId) -> Result<(), String> {
        let Some(turn) = self.places.lock().get(&store).map(|place| Arc::clone(&place.turn)) else { return Ok(()) };
        // If it is being opened, it is closed once it is open.
        let _ = self.runtime.spawn_blocking(move || drop(turn.lock())).await;
        let open = self.places.lock().get_mut(&store).and_then(|place| place.open.take());
        let Some(mut open) = open else { return Ok(()) };
        let begun = tokio::time::Instant::now();
        loop {
            match Arc::try_unwrap(open) {
                Ok(open) => {
                    // Dropping the store waits for its flush.
                    let _ = self.runtime.spawn_blocking(move || drop(open)).await;
                    // One that was opened again meanwhile keeps its new part.
                    if self.get(store).is_none() {
                        self.memory.lock().take_back(store);
                    }
                    return Ok(());
                }
                Err(shared) if begun.elapsed() < CLOSE_TIMEOUT => open = shared,
                Err(shared) => {
                    if let Some(place) = self.places.lock().get_mut(&store) {
                        place.open.get_or_insert(shared);
                    }
                    return Err("the embedded store is being read; try again".into());
                }
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Forgets a store that is no longer embedded; one that is being opened does not count. Returns at once.
    pub fn forget(&self, store: StoreId) {
        let open = self.places.lock().remove(&store).and_then(|place| place.open);
        self.memory.lock().take_back(store);
        if let Some(open) = open {
            // Dropping the last handle waits for its flush.
            self.runtime.spawn_blocking(move || drop(open));
        }
    }

    /// Has a store write what is only in memory to its disk, on threads of its own.
    pub fn flush(&self, store: StoreId) {
        if let Some(open) = self.get(store) {
            self.runtime.spawn_blocking(move || {
                if let Err(error) = open.flush() {
                    tracing::warn!(%store, %error, "an embedded store was not flushed");
                }
            });
        }
    }

    /// Has every store write what is only in memory to its disk, and waits for it.
    pub async fn flush_at_stop(&self) {
        let stores = self.all().into_iter();
        let flushes = stores.map(|(_, store)| self.runtime.spawn_blocking(move || store.flush_at_stop()));
        for flush in flushes.collect::<Vec<_>>() {
            let _ = flush.await;
        }
    }
}
