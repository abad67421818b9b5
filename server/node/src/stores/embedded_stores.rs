//! The embedded stores that are open on this node.
//!
//! Opening a store may read and check all of its files, so no lock is held meanwhile except the store's own turn: the
//! sequencer, the log thread and readers access this, and must not wait for a disk.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::runtime::Handle;
use tribunal_log::Located;
use tribunal_push::{ApplyObserver, EmbeddedStore, EpochSource, StoredBytes};
use tribunal_types::{Epoch, Lsn, NamespaceId, StoreId, StoreSpec};

use crate::stores::catalog::Records;
use crate::stores::embedded_files::{self, NotOpen, Opened};
use crate::stores::embedded_memory::EmbeddedMemory;
use crate::telemetry::{ApplyTraces, Tracing};

/// How long to wait for readers of a store that is to be reopened.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Poll interval for the end of these readers.
const READERS_POLL: Duration = Duration::from_millis(5);

/// A store that is declared embedded.
#[derive(Default)]
struct Place {
    /// Held by the thread that opens or closes it.
    turn: Arc<Mutex<()>>,
    open: Option<Arc<EmbeddedStore>>,
    /// The log is not truncated past its last flush, whatever it reported before it was opened.
    awaited: bool,
}

/// The embedded stores of a node.
pub struct EmbeddedStores {
    data: PathBuf,
    records: Records,
    runtime: Handle,
    tracing: Option<Arc<Tracing>>,
    /// Held while the log is truncated.
    truncation: Arc<Mutex<()>>,
    places: Arc<Mutex<Places>>,
    stored: Arc<StoredByTenant>,
}

/// The bytes of each tenant's stores that are embedded, or were: their files are still there. At most
/// `STORES_PER_TENANT_MAX` counts of a tenant are added up. Changed with the places locked.
#[derive(Default)]
struct StoredByTenant(RwLock<HashMap<NamespaceId, HashMap<StoreId, Arc<StoredBytes>>>>);

impl StoredByTenant {
    fn set(&self, store: StoreId, namespace: NamespaceId, bytes: Arc<StoredBytes>) {
        self.0.write().entry(namespace).or_default().insert(store, bytes);
    }
}

/// The stores by id. Invariant: a store has a part of the memory only while it has a place.
#[derive(Default)]
struct Places {
    by_store: HashMap<StoreId, Place>,
    memory: EmbeddedMemory,
}

impl Places {
    /// Returns the place of a store, unless it was forgotten since `turn` was taken from it.
    fn of(&mut self, store: StoreId, turn: &Arc<Mutex<()>>) -> Option<&mut Place> {
        self.by_store.get_mut(&store).filter(|place| Arc::ptr_eq(&place.turn, turn))
    }
}

impl EmbeddedStores {
    /// Creates the set; no store is open yet.
    pub fn new(data: PathBuf, records: Records, runtime: Handle, tracing: Option<Arc<Tracing>>) -> EmbeddedStores {
        EmbeddedStores {
            data,
            records,
            runtime,
            tracing,
            truncation: Arc::default(),
            places: Arc::default(),
            stored: Arc::default(),
        }
    }

    /// Returns the lock that is held while the log is truncated.
    pub fn truncation(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.truncation)
    }

    /// Returns the stores that the log waits for, each with the first epoch that its disk lacks: an open one since its
    /// last flush, a damaged one everything, as long as the log can still fill it. May read the disk.
    pub fn awaited(&self) -> Vec<(StoreId, Epoch)> {
        let awaited: Vec<(StoreId, Option<Arc<EmbeddedStore>>)> = {
            let places = self.places.lock();
            let awaited = places.by_store.iter().filter(|(_, place)| place.awaited);
            awaited.map(|(id, place)| (*id, place.open.clone())).collect()
        };
        let has = |(store, open): (StoreId, Option<Arc<EmbeddedStore>>)| match open {
            Some(open) if open.damage().is_none() => Some((store, open.flushed())),
            // It is closed for a moment, to be rebuilt.
            None if EmbeddedStore::damage_in(&self.dir(store)).is_none() => None,
            _ => Some((store, Lsn(0))),
        };
        // Only the log is consulted, which finds a record without a scan: an epoch that it does not contain yet cannot be
        // truncated.
        let lacked = |(store, has)| match self.records.log.locate(store, has) {
            Ok(Located::Epoch(epoch)) => Some((store, epoch)),
            Ok(Located::Head | Located::Truncated { .. }) | Err(_) => None,
        };
        awaited.into_iter().filter_map(has).filter_map(lacked).collect()
    }

    /// Returns why an open store is damaged, and what repairs it.
    pub fn damage_of(&self, store: StoreId) -> Option<String> {
        let open = self.get(store)?;
        Some(embedded_files::damage_told(open.damage()?, self.records.oldest(store), self.records.member.is_some()))
    }

    /// Records that the log waits for other members' copies instead of this one, whatever it needs.
    pub fn left_out(&self, store: StoreId) {
        if let Some(place) = self.places.lock().by_store.get_mut(&store) {
            place.awaited = false;
        }
    }

    /// Returns the directory of a store.
    pub fn dir(&self, store: StoreId) -> PathBuf {
        self.data.join("stores").join(store.to_string())
    }

    /// Returns a store, if it is open.
    pub fn get(&self, store: StoreId) -> Option<Arc<EmbeddedStore>> {
        self.places.lock().by_store.get(&store)?.open.clone()
    }

    /// Returns the open stores.
    pub fn all(&self) -> Vec<(StoreId, Arc<EmbeddedStore>)> {
        let places = self.places.lock();
        places.by_store.iter().filter_map(|(id, place)| Some((*id, Arc::clone(place.open.as_ref()?)))).collect()
    }

    /// Records that a store is declared embedded: from now on it may be opened.
    pub fn expect(&self, store: StoreId) {
        self.places.lock().by_store.entry(store).or_default();
    }

    /// Opens a store, unless it is open. Waits for the disk, and for any thread that is opening or closing it.
    ///
    /// # Errors
    /// See [`NotOpen`]; also if the store is no longer embedded.
    pub fn open(&self, spec: &StoreSpec) -> Result<Arc<EmbeddedStore>, NotOpen> {
        let forgotten = || NotOpen::from("the store was declared again while it was being opened".to_owned());
        let turn = self.places.lock().by_store.get(&spec.id).map(|place| Arc::clone(&place.turn));
        let turn = turn.ok_or_else(forgotten)?;
        let _mine = turn.lock();
        let bytes = {
            let mut places = self.places.lock();
            if let Some(open) = &places.of(spec.id, &turn).ok_or_else(forgotten)?.open {
                return Ok(Arc::clone(open));
            }
            places.memory.give(spec.id, spec.namespace)
        };
        let opened = self.open_files(spec, bytes);
        let mut places = self.places.lock();
        let place = places.of(spec.id, &turn).ok_or_else(forgotten)?;
        match opened {
            Ok((open, _not_truncated)) => {
                place.awaited = true;
                self.stored.set(spec.id, spec.namespace, Arc::clone(open.stored()));
                Ok(Arc::clone(place.open.insert(Arc::new(open))))
            }
            Err(reason) => {
                places.memory.take_back(spec.id);
                self.stored.set(spec.id, spec.namespace, Arc::new(StoredBytes::read(&self.dir(spec.id))));
                Err(reason)
            }
        }
    }

    fn open_files(&self, spec: &StoreSpec, bytes: u64) -> Result<(EmbeddedStore, MutexGuard<'_, ()>), NotOpen> {
        let source = Arc::new(self.records.clone()) as Arc<dyn EpochSource>;
        let is_member = self.records.member.is_some();
        let Opened { store, not_truncated } =
            embedded_files::open(&self.dir(spec.id), bytes, spec, &source, &self.truncation, is_member)?;
        let traces =
            |tracing| Arc::new(ApplyTraces::new(tracing, spec.id, spec.name.clone())) as Arc<dyn ApplyObserver>;
        Ok((store.observed_by(self.tracing.clone().map(traces)), not_truncated))
    }

    /// Closes a store, so that it is read from disk again: something may have been repaired there. Waits for its
    /// readers and its flush; callers that open it meanwhile wait as well.
    ///
    /// # Errors
    /// If readers keep it open for too long.
    pub fn close(&self, store: StoreId) -> Result<(), String> {
        let turn = self.places.lock().by_store.get(&store).map(|place| Arc::clone(&place.turn));
        let Some(turn) = turn else { return Ok(()) };
        let _mine = turn.lock();
        let open = self.places.lock().of(store, &turn).and_then(|place| place.open.take());
        let Some(mut open) = open else { return Ok(()) };
        let begun = Instant::now();
        loop {
            match Arc::try_unwrap(open) {
                Ok(open) => {
                    // Dropping waits for its flush.
                    let files = Arc::clone(open.stored());
                    drop(open);
                    files.closed();
                    let mut places = self.places.lock();
                    if places.of(store, &turn).is_some() {
                        places.memory.take_back(store);
                    }
                    return Ok(());
                }
                Err(shared) if begun.elapsed() < CLOSE_TIMEOUT => open = shared,
                Err(shared) => {
                    if let Some(place) = self.places.lock().of(store, &turn) {
                        place.open = Some(shared);
                    }
                    return Err("the embedded store is being read; try again".into());
                }
            }
            std::thread::sleep(READERS_POLL);
        }
    }

    /// Forgets a store that is not embedded, or no longer, even while it is being opened. Returns immediately. Its files
    /// remain, and count.
    pub fn forget(&self, spec: &StoreSpec) {
        let (store, namespace) = (spec.id, spec.namespace);
        let open = {
            let mut places = self.places.lock();
            places.memory.take_back(store);
            places.by_store.remove(&store).and_then(|place| place.open)
        };
        let (dir, places, stored) = (self.dir(store), Arc::clone(&self.places), Arc::clone(&self.stored));
        self.runtime.spawn_blocking(move || {
            // Dropping the last handle waits for its flush.
            drop(open);
            if !dir.exists() {
                return;
            }
            let files = Arc::new(StoredBytes::read(&dir));
            let places = places.lock();
            // It may have been declared again, and then counts once it is open.
            if !places.by_store.contains_key(&store) {
                stored.set(store, namespace, files);
            }
        });
    }

    /// Returns the bytes of a tenant's stores.
    pub fn stored_bytes_of(&self, namespace: NamespaceId) -> u64 {
        let stored = self.stored.0.read();
        stored.get(&namespace).map_or(0, |stores| stores.values().map(|bytes| bytes.total()).sum())
    }

    /// Returns the bytes of the stores of all tenants that have any.
    pub fn stored_bytes(&self) -> Vec<(NamespaceId, u64)> {
        let total = |stores: &HashMap<StoreId, Arc<StoredBytes>>| stores.values().map(|bytes| bytes.total()).sum();
        self.stored.0.read().iter().map(|(namespace, stores)| (*namespace, total(stores))).collect()
    }

    /// Begins to compact a tenant's open stores; see [`EmbeddedStore::reclaim`]. May wait for the disk.
    pub fn reclaim(&self, namespace: NamespaceId, pause: Duration) {
        let stores: Vec<StoreId> =
            self.stored.0.read().get(&namespace).into_iter().flat_map(HashMap::keys).copied().collect();
        for open in stores.into_iter().filter_map(|store| self.get(store)) {
            if let Err(error) = open.reclaim(pause) {
                tracing::debug!(store_id = open.id().0, %error, "an embedded store was not compacted");
            }
        }
    }

    /// Has a store flush its memory to disk, on a separate thread. `name` is for log lines.
    pub fn flush(&self, store: StoreId, name: String) {
        if let Some(open) = self.get(store) {
            self.runtime.spawn_blocking(move || {
                // A store that is out of use has been reported.
                if let Err(error) = open.flush()
                    && !error.may_pass()
                {
                    tracing::warn!(store = name, store_id = store.0, %error, "an embedded store was not flushed");
                }
            });
        }
    }

    /// Has every store flush its memory to disk, and waits for it.
    pub async fn flush_at_stop(&self) {
        let stores = self.all().into_iter();
        let flushes = stores.map(|(_, store)| self.runtime.spawn_blocking(move || store.flush_at_stop()));
        for flush in flushes.collect::<Vec<_>>() {
            let _ = flush.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use tempfile::TempDir;
    use tribunal_log::{DurableLog, LogOptions};
    use tribunal_push::SourceError;
    use tribunal_types::{Batch, Decision, EpochInput, EpochOutcome, NamespaceId, StoreLsn, TxnIx, Version};

    use super::*;
    use crate::commit::epoch_cache::{EpochCache, ResolvedEpoch, Timing};
    use crate::commit::progress::Progress;

    const STORE: StoreId = StoreId(1);

    /// Creates the stores of a node in `dir` with an empty log, and the writer that keeps the log open.
    fn stores(dir: &TempDir) -> (Arc<EmbeddedStores>, tribunal_log::DiskLog) {
        let log = tribunal_log::open(&dir.path().join("log"), &LogOptions::default()).expect("a new log");
        let records = Records {
            cache: Arc::new(EpochCache::new(1 << 20)),
            log: log.reader,
            progress: Arc::new(Progress::new()),
            member: None,
        };
        let stores = EmbeddedStores::new(dir.path().to_owned(), records, Handle::current(), None);
        (Arc::new(stores), log.writer)
    }

    fn spec() -> StoreSpec {
        StoreSpec { id: STORE, name: "s".into(), adaptor: Some("kv".into()), ..StoreSpec::default() }
    }

    #[tokio::test]
    async fn a_store_opens_after_the_one_before_has_closed() {
        let dir = TempDir::new().expect("a directory");
        let (stores, _log) = stores(&dir);
        stores.expect(STORE);
        let reader = stores.open(&spec()).expect("opens");
        assert!(Arc::ptr_eq(&reader, &stores.open(&spec()).expect("is open")));
        let closes = thread::spawn({
            let stores = Arc::clone(&stores);
            move || stores.close(STORE)
        });
        while stores.get(STORE).is_some() {
            thread::yield_now();
        }
        let opens = thread::spawn({
            let stores = Arc::clone(&stores);
            move || stores.open(&spec()).map(drop)
        });
        // The reader owned the directory's lock until now: the next opener has to wait for it.
        drop(reader);
        assert_eq!(closes.join().expect("ends"), Ok(()));
        assert_eq!(opens.join().expect("ends"), Ok(()));
        assert!(stores.get(STORE).is_some());
    }

    #[tokio::test]
    async fn a_store_that_is_filled_again_keeps_the_log_from_being_truncated_until_its_disk_has_all_of_it() {
        let dir = TempDir::new().expect("a directory");
        let (stores, mut log) = stores(&dir);
        let group = log.group();
        for epoch in 1..=3 {
            let batch = Batch { group, first: Epoch(epoch), last: Epoch(epoch), ..Batch::default() };
            log.append(&batch).expect("appended");
            let lsns =
                if epoch == 2 { vec![StoreLsn { store: STORE, txn: TxnIx(0), lsn: Lsn(1) }] } else { Vec::new() };
            log.append_outcome(&EpochOutcome { epoch: Epoch(epoch), lsns, ..EpochOutcome::default() })
                .expect("appended");
        }
        stores.expect(STORE);
        drop(stores.open(&spec()).expect("opens"));
        assert_eq!(
            stores.awaited(),
            [(STORE, Epoch(2))],
            "its first record is of that epoch, and is in memory at best"
        );
        assert_eq!(stores.close(STORE), Ok(()));
        assert_eq!(stores.awaited(), []);
        std::fs::write(stores.dir(STORE).join("damaged"), "a planted damage").expect("writes");
        assert_eq!(stores.awaited(), [(STORE, Epoch(2))], "it is closed to be rebuilt");
        let truncation = stores.truncation();
        let truncates = truncation.lock();
        let opens = thread::spawn({
            let stores = Arc::clone(&stores);
            move || stores.open(&spec()).map(drop)
        });
        thread::sleep(Duration::from_millis(50));
        assert!(!opens.is_finished() && stores.dir(STORE).join("damaged").exists(), "its log is being truncated");
        drop(truncates);
        assert_eq!(opens.join().expect("ends"), Ok(()));
        assert_eq!(stores.awaited(), [(STORE, Epoch(2))], "it lacks everything");
        assert!(truncation.try_lock().is_some(), "what it needs is known now");
        assert_eq!(stores.close(STORE), Ok(()));
        assert_eq!(stores.awaited(), []);
    }

    #[tokio::test]
    async fn a_record_that_is_only_in_memory_does_not_fill_a_store() {
        let dir = TempDir::new().expect("a directory");
        let (stores, mut log) = stores(&dir);
        for n in 1..=4 {
            let version = Version::new(Epoch(n), 0).expect("a version");
            let outcome = EpochOutcome {
                epoch: Epoch(n),
                decisions: vec![Decision::Committed { version }],
                lsns: vec![StoreLsn { store: STORE, txn: TxnIx(0), lsn: Lsn(n) }],
                ..EpochOutcome::default()
            };
            let now = Instant::now();
            let input = EpochInput { epoch: Epoch(n), epoch_time_ms: 0, batches: Vec::new() };
            let (heads, timing) = (outcome.heads(), Timing::resolved_now(now, now, Vec::new()));
            let _ = stores.records.cache.publish(Arc::new(ResolvedEpoch::new(input, outcome, heads, timing)));
        }
        assert!(log.continue_after(Epoch(3), &[(STORE, Lsn(3))]).expect("continues"));
        let taken = |after| {
            let mut taken = Vec::new();
            let read = stores.records.epochs_after(STORE, Lsn(after), &mut |_, outcome| {
                taken.push(outcome.epoch.0);
                true
            });
            read.map(|()| taken)
        };
        assert!(matches!(taken(0), Err(SourceError::Truncated { oldest: Lsn(4) })), "memory has it, the log does not");
        assert_eq!(taken(3).expect("the log begins there"), [4]);
    }

    #[tokio::test]
    async fn a_store_that_is_forgotten_is_not_opened_and_has_no_memory() {
        let dir = TempDir::new().expect("a directory");
        let (stores, _log) = stores(&dir);
        assert!(stores.open(&spec()).is_err(), "it was not declared");
        stores.expect(STORE);
        let first = stores.places.lock().memory.give(StoreId(7), NamespaceId(0));
        stores.places.lock().memory.take_back(StoreId(7));
        drop(stores.open(&spec()).expect("opens"));
        stores.forget(&spec());
        assert!(stores.open(&spec()).is_err() && stores.get(STORE).is_none());
        assert_eq!(stores.places.lock().memory.give(StoreId(7), NamespaceId(0)), first, "all of it is there again");
    }
}
