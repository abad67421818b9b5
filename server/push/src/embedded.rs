//! The embedded key-value store: the state of a store's log, kept in this process.
//!
//! The log is its journal: what is decided and durable is applied to the rows in memory, an epoch at a time, and a read
//! applies what is missing before it looks. So no read is ever behind a commit that was answered, and a row is written to
//! the disk twice: with its epoch, and when memory is full, or the log is to be truncated, as part of a sorted run.
//! After a start the log is read from the last flush on. A store costs what it holds: an empty one has a directory and
//! a lock, no thread, no cache and no other file.

mod apply;
mod arena;
mod flush;
mod fold;
mod follower;
mod image;
mod key_order;
mod recent;
mod runs;
mod scan;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};
use tokio::sync::watch;
use tribunal_disk::sync_directory;
use tribunal_types::{Epoch, EpochInput, EpochOutcome, Lsn, StoreId, Version, Watermark};

use apply::Applier;
use flush::Work;
pub use follower::Follower;
pub use image::EmbeddedImage;
use image::Images;
use recent::{Recent, Stored, read_sorted};
use runs::Runs;
use scan::Merged;

use crate::{EpochSource, SourceError};

/// Bytes of keys and values after which a scan stops early.
pub const SCAN_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Smallest part of the memory that holds rows on their way to a run, bytes.
const RECENT_BYTES_MIN: usize = 8 * 1024 * 1024;

/// Rows of one store, in a directory of its own. Cheap to share by `Arc`; every method may block on the disk.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    id: StoreId,
    source: Arc<dyn EpochSource>,
    /// Held while epochs are applied or rows are set aside.
    applier: Mutex<Applier>,
    observer: Option<Arc<dyn ApplyObserver>>,
}

/// Looks at epochs that were applied, for traces.
pub trait ApplyObserver: Send + Sync + 'static {
    /// The records of this epoch after `after` were applied, which began at `began` and ends now.
    fn applied(&self, input: &EpochInput, outcome: &EpochOutcome, after: Lsn, began: Instant);
}

struct Shared {
    dir: PathBuf,
    runs: Runs,
    recent: RwLock<Recent>,
    /// Rows are flushed above this size, bytes; as many again may be on their way to a run.
    recent_bytes_max: usize,
    /// Images that are being read.
    images: Images,
    /// Why nothing is flushed any more. A failed sync is never tried again.
    broken: Mutex<Option<String>>,
    work: Mutex<Work>,
    work_changed: Condvar,
    /// Last record in the runs.
    flushed: watch::Sender<Lsn>,
    stop: AtomicBool,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Key.
    pub key: Vec<u8>,
    /// JSON value.
    pub value: Vec<u8>,
    /// Version of the transaction that wrote it.
    pub version: Version,
}

/// What a read reflects: the store's log up to `lsn`, and so at least all epochs up to `epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAt {
    /// Last record that the read reflects.
    pub lsn: Lsn,
    /// Epoch of that record; 0 if it was applied before the store was opened.
    pub epoch: Epoch,
}

/// Rows in key order, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    /// Rows.
    pub rows: Vec<Row>,
    /// Key to continue at, if rows are left in the range.
    pub next: Option<Vec<u8>>,
    /// What the rows reflect.
    pub at: ReadAt,
}

/// Why the store cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// Another process, or an opening of this one that has not ended, uses the directory.
    #[error("the embedded store in {} is in use; stop the process that has it open", .dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("the embedded store's files in {}: {error}", .path.display())]
    Io {
        /// The file, or the directory that it is in.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Bytes on disk are not what this program wrote.
    #[error("the embedded store is damaged ({0})")]
    Damaged(String),
    /// More rows were overwritten while an image was read than are kept for it.
    #[error("rows changed faster than the image was read; start again and read faster, or when less is written")]
    ImageOverrun,
    /// The log cannot be read, or no longer has what the store needs next.
    #[error(transparent)]
    Log(#[from] SourceError),
    /// A record cannot be applied.
    #[error("LSN {lsn} cannot be applied: {text}")]
    Poison {
        /// The record.
        lsn: Lsn,
        /// What is wrong with it.
        text: String,
    },
    /// Memory is full and the disk is slow; the same works later.
    #[error("the disk has been writing rows for {seconds} s; try again later")]
    Busy {
        /// How long it was waited for.
        seconds: u64,
    },
    /// A write failed earlier.
    #[error("the embedded store stopped: {0}")]
    Stopped(String),
}

impl EmbeddedError {
    fn io(path: &Path, error: io::Error) -> Self {
        EmbeddedError::Io { path: path.to_owned(), error }
    }
}

impl EmbeddedStore {
    /// Opens the rows of store `id` in `dir`, creating them on first use. Takes up to `memory_bytes` for rows that are
    /// newer than the last flush, as they come; older ones are read through the kernel's page cache. Reads nothing from
    /// the log yet.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn open(
        dir: &Path,
        memory_bytes: u64,
        id: StoreId,
        source: Arc<dyn EpochSource>,
    ) -> Result<EmbeddedStore, EmbeddedError> {
        let new = !dir.exists();
        fs::create_dir_all(dir).map_err(|error| EmbeddedError::io(dir, error))?;
        let (runs, applied) = Runs::open(dir)?;
        let sync = |dir: &Path| sync_directory(dir).map_err(|error| EmbeddedError::io(dir, error));
        sync(dir)?;
        if new {
            // What is flushed may leave the log one day, so the path to it must be durable as well.
            dir.ancestors().skip(1).take(2).filter(|dir| dir.is_dir()).try_for_each(sync)?;
        }
        let recent_bytes_max = usize::try_from(memory_bytes / 2).unwrap_or(usize::MAX).max(RECENT_BYTES_MIN);
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            runs,
            recent: RwLock::new(Recent::new(applied)),
            recent_bytes_max,
            images: Images::default(),
            broken: Mutex::new(None),
            work: Mutex::new(Work::default()),
            work_changed: Condvar::new(),
            flushed: watch::Sender::new(applied.lsn),
            stop: AtomicBool::new(false),
        });
        Ok(EmbeddedStore { shared, id, source, applier: Mutex::default(), observer: None })
    }

    /// Has `observer` look at every epoch that is applied.
    #[must_use]
    pub fn observed_by(mut self, observer: Option<Arc<dyn ApplyObserver>>) -> EmbeddedStore {
        self.observer = observer;
        self
    }

    /// Removes everything that a closed store has in `dir`, so that its log can fill it again from the beginning.
    ///
    /// # Errors
    /// See [`EmbeddedError`]; a part may be removed already, which a later call completes.
    pub fn erase(dir: &Path) -> Result<(), EmbeddedError> {
        let _lock = runs::lock_directory(dir)?;
        fs::remove_dir_all(dir).map_err(|error| EmbeddedError::io(dir, error))
    }

    /// Returns the store.
    #[must_use]
    pub fn id(&self) -> StoreId {
        self.id
    }

    /// Returns the last record that reads reflect.
    #[must_use]
    pub fn applied(&self) -> Lsn {
        self.watermark().lsn
    }

    /// Returns the last record that reads reflect, and which log it is of.
    #[must_use]
    pub fn watermark(&self) -> Watermark {
        self.shared.recent.read().applied
    }

    /// Returns the last record in the runs: the log is not needed up to there.
    #[must_use]
    pub fn flushed(&self) -> Lsn {
        *self.shared.flushed.borrow()
    }

    /// Tells whether [`EmbeddedStore::catch_up`] can apply epochs without waiting for the disk to take older rows.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    pub(crate) fn watch_flushed(&self) -> watch::Receiver<Lsn> {
        self.shared.flushed.subscribe()
    }

    /// Leaves out the rows of record `lsn` from now on, whenever it comes to it.
    pub fn skip(&self, lsn: Lsn) {
        self.applier.lock().skipped.insert(lsn);
    }

    /// Moves the watermark to a record that the store was loaded up to from elsewhere; durable on return. The caller has
    /// checked that the log continues there.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn set_watermark(&self, to: Watermark) -> Result<(), EmbeddedError> {
        let applier = self.applier.lock();
        let settled = self.wait_for_flush();
        self.shared.recent.write().applied = to;
        self.shared.begin_flush()?;
        drop(applier);
        if settled && self.wait_for_flush() { self.shared.usable() } else { Err(EmbeddedError::Busy { seconds: 30 }) }
    }

    /// Holds the rows still for reading, as they are now. Nothing is applied meanwhile, so it is for a moment only.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View { recent: self.shared.recent.read(), shared: &self.shared }
    }

    /// Holds the rows still for scans as well, whose keys are put in order first.
    #[must_use]
    pub fn sorted_view(&self) -> View<'_> {
        View { recent: read_sorted(&self.shared.recent), shared: &self.shared }
    }

    /// Holds several stores still at one cut of the log. `heads` returns the ends of their logs at one epoch, in the order
    /// of `stores`, which ascend by their ids.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn cut<'a>(
        stores: &[&'a EmbeddedStore],
        heads: impl FnOnce() -> Vec<Lsn>,
    ) -> Result<Vec<View<'a>>, EmbeddedError> {
        debug_assert!(stores.is_sorted_by_key(|store| store.id), "two callers lock in one order");
        let mut appliers: Vec<_> = stores.iter().map(|store| store.applier.lock()).collect();
        for ((store, applier), head) in stores.iter().zip(&mut appliers).zip(heads()) {
            store.apply_until(applier, head)?;
        }
        Ok(stores.iter().map(|store| store.sorted_view()).collect())
    }

    /// Returns a row as of now, and what the answer reflects.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn get(&self, key: &[u8]) -> Result<(Option<Row>, ReadAt), EmbeddedError> {
        let view = self.view();
        Ok((view.get(key)?, view.at()))
    }

    /// Returns at most `limit` rows of `start..end` in key order; see [`View::scan`].
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<ScanPage, EmbeddedError> {
        self.sorted_view().scan(start, end, limit)
    }
}

/// Rows that hold still.
pub struct View<'a> {
    recent: RwLockReadGuard<'a, Recent>,
    shared: &'a Shared,
}

impl View<'_> {
    /// Returns what reads of it reflect.
    #[must_use]
    pub fn at(&self) -> ReadAt {
        ReadAt { lsn: self.recent.applied.lsn, epoch: self.recent.epoch }
    }

    /// Returns a row.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn get(&self, key: &[u8]) -> Result<Option<Row>, EmbeddedError> {
        let stored = match self.recent.stored(key) {
            Some(stored) => stored,
            None => self.shared.runs.get(key)?,
        };
        Ok(stored.map(|stored| row(key, stored)))
    }

    /// Returns a row if that takes no look at the disk; `None` if it does.
    #[must_use]
    pub fn get_in_memory(&self, key: &[u8]) -> Option<Option<Row>> {
        match self.recent.stored(key) {
            Some(stored) => Some(stored.map(|stored| row(key, stored))),
            None => self.shared.runs.is_empty().then_some(None),
        }
    }

    /// Returns at most `limit` rows of `start..end` in key order; an empty `end` means to the last row. Stops early
    /// at [`SCAN_BYTES_MAX`]. The view is a sorted one.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<ScanPage, EmbeddedError> {
        let mut page = ScanPage { rows: Vec::new(), next: None, at: self.at() };
        if !end.is_empty() && start >= end {
            return Ok(page);
        }
        let mut bytes = 0;
        for pair in Merged::new(&self.recent, &self.shared.runs, start, end)? {
            let (key, stored) = pair?;
            if page.rows.len() >= limit || bytes > SCAN_BYTES_MAX {
                page.next = Some(key);
                break;
            }
            bytes += key.len() + stored.value.len();
            page.rows.push(Row { key, value: stored.value.into_vec(), version: stored.version });
        }
        Ok(page)
    }
}

impl Drop for EmbeddedStore {
    /// Leaves an unfinished flush: the log still has its rows.
    fn drop(&mut self) {
        self.shared.stop_work();
    }
}

impl Shared {
    fn usable(&self) -> Result<(), EmbeddedError> {
        self.broken.lock().clone().map_or(Ok(()), |text| Err(EmbeddedError::Stopped(text)))
    }

    fn break_down(&self, text: String) -> EmbeddedError {
        tracing::error!(reason = %text, "embedded store stopped");
        EmbeddedError::Stopped(self.broken.lock().get_or_insert(text).clone())
    }

    /// Returns what the store holds of a row.
    fn stored(&self, key: &[u8]) -> Result<Option<Stored>, EmbeddedError> {
        let recent = self.recent.read().stored(key);
        recent.map_or_else(|| self.runs.get(key), Ok)
    }
}

fn row(key: &[u8], stored: Stored) -> Row {
    Row { key: key.to_vec(), value: stored.value.into_vec(), version: stored.version }
}
