//! The embedded key-value store: the state of a store's log, materialized in this process.
//!
//! The log is its journal. Durable epochs are applied to rows in memory, one epoch at a time, and every read first
//! applies the missing epochs. So a read never misses a commit that was acknowledged before it, and a row is written to
//! the disk only twice: in the log, and as part of a sorted run when memory is full or the log is about to be
//! truncated. After a restart, the log is replayed from the last flush. A store's cost is proportional to its content:
//! an empty one consists of a directory and a lock, without threads, caches or other files.

mod apply;
mod arena;
mod files;
mod flush;
mod fold;
mod follower;
mod image;
mod key_order;
mod recent;
mod runs;
mod scan;
mod stored;
mod stored_bytes;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, RwLock, RwLockReadGuard};
use tokio::sync::watch;
use tribunal_disk::sync_directory;
use tribunal_types::{Epoch, EpochInput, EpochOutcome, Lsn, StoreId, Version, Watermark};

use apply::Applier;
pub use files::StoreFile;
use flush::{ROOM_WAIT_MAX, Work};
pub use follower::{Follower, OutOfUse};
pub use image::EmbeddedImage;
use image::Images;
use recent::{Recent, read_sorted};
use runs::Runs;
use scan::Merged;
use stored::Stored;
pub use stored_bytes::{ENTRY_OVERHEAD_BYTES, StoredBytes};

use crate::{EpochSource, SourceError};

/// Maximum size of the keys and values of a scan, unless its first row is larger.
pub const SCAN_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Minimum size of the rows in memory that triggers a flush, bytes.
const RECENT_BYTES_MIN: usize = 8 * 1024 * 1024;

/// The rows of one store, in a separate directory. Shared by `Arc`; every method may block on disk I/O.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    id: StoreId,
    source: Arc<dyn EpochSource>,
    /// Locked while epochs are applied or rows are frozen for a flush.
    applier: Mutex<Applier>,
    /// Records whose rows the operator has skipped.
    skipped: Mutex<BTreeSet<Lsn>>,
    observer: Option<Arc<dyn ApplyObserver>>,
}

/// Observes applied epochs, for tracing.
pub trait ApplyObserver: Send + Sync + 'static {
    /// Called when the records of an epoch after `after` have been applied; the application began at `began`.
    fn applied(&self, input: &EpochInput, outcome: &EpochOutcome, after: Lsn, began: Instant);
}

struct Shared {
    dir: PathBuf,
    runs: Runs,
    recent: RwLock<Recent>,
    stored: Arc<StoredBytes>,
    /// Size of the active rows that triggers a flush, bytes. Rows being flushed may take as much again.
    recent_bytes_max: usize,
    /// Images being read.
    images: Images,
    /// Why the store stopped, if it did. A failed sync is never retried.
    broken: Mutex<Option<Breakdown>>,
    work: Mutex<Work>,
    work_changed: Condvar,
    /// Last record in the runs.
    flushed: watch::Sender<Lsn>,
    stop: AtomicBool,
    /// Damage that a reader has found, since the store was opened or earlier.
    damage: OnceLock<String>,
    /// Whether damage found since the store was opened is noted in the directory.
    damage_noted: AtomicBool,
}

/// Why a store stopped.
#[derive(Clone, Debug)]
struct Breakdown {
    text: String,
    /// Whether its rows are not at fault, so that opening it again may help.
    may_pass: bool,
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

/// File in a store's directory that describes damage found.
const DAMAGED: &str = "damaged";

/// The position that a read reflects: the store's log up to `lsn`, and thus at least all epochs up to `epoch`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAt {
    /// Last record that the read reflects.
    pub lsn: Lsn,
    /// Epoch of that record; 0 if it was applied before the store was opened.
    pub epoch: Epoch,
}

/// Rows in key order, all at the same position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    /// Rows.
    pub rows: Vec<Row>,
    /// Key to continue at if the range has more rows.
    pub next: Option<Vec<u8>>,
    /// Position that the rows reflect.
    pub at: ReadAt,
}

/// Maximum size of one scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLimits {
    /// Number of rows.
    pub rows: usize,
    /// Bytes of their keys and values.
    pub bytes: usize,
}

/// Errors of the embedded store.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The directory is open in another process, or elsewhere in this one.
    #[error("the embedded store in {} is in use; stop the process that has it open", .dir.display())]
    InUse {
        /// The directory.
        dir: PathBuf,
    },
    /// A file cannot be read or written.
    #[error("cannot read or write the embedded store's file {}: {error}", .path.display())]
    Io {
        /// The file, or its directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file's content differs from what this program wrote.
    #[error("the embedded store is damaged ({0})")]
    Damaged(String),
    /// While an image was read, more rows were overwritten than may be retained for it.
    #[error("rows changed faster than the image was read; start over and read faster, or when the write load is lower")]
    ImageOverrun,
    /// The log cannot be read, or no longer has the next record.
    #[error(transparent)]
    Log(#[from] SourceError),
    /// A record cannot be applied.
    #[error("LSN {lsn} cannot be applied: {text}")]
    Poison {
        /// The record.
        lsn: Lsn,
        /// The fault.
        text: String,
    },
    /// Memory is full and the disk is slow. Temporary.
    #[error("a flush has not completed within {seconds} s because the disk is slow; try again later")]
    Busy {
        /// How long the caller has waited.
        seconds: u64,
    },
    /// The store has stopped until an operator repairs it.
    #[error("the embedded store stopped: {0}")]
    Stopped(String),
    /// The disk has failed the store. Its rows are in the log, so it works once it is opened again and the disk works.
    #[error("the embedded store is out of use: {0}")]
    OutOfUse(String),
}

impl EmbeddedError {
    /// Returns whether the store may work once it is opened again, because its disk failed rather than its rows.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        use EmbeddedError::{Busy, InUse, Io, Log, OutOfUse};
        matches!(self, InUse { .. } | Io { .. } | Busy { .. } | OutOfUse(_) | Log(SourceError::Unavailable(_)))
    }

    fn io(path: &Path, error: io::Error) -> Self {
        EmbeddedError::Io { path: path.to_owned(), error }
    }
}

impl EmbeddedStore {
    /// Opens the rows of store `id` in `dir`, which is created on first use. Uses up to `memory_bytes` for rows that are
    /// newer than the last flush, allocated on demand; older rows are read through the kernel's page cache. Does not read
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
        tribunal_disk::create_private_directories(dir).map_err(|error| EmbeddedError::io(dir, error))?;
        let (runs, applied) = Runs::open(dir)?;
        let sync = |dir: &Path| sync_directory(dir).map_err(|error| EmbeddedError::io(dir, error));
        sync(dir)?;
        if new {
            // The log may be truncated after a flush, so the path to the flushed rows must be durable as well.
            dir.ancestors().skip(1).take(2).filter(|dir| dir.is_dir()).try_for_each(sync)?;
        }
        let recent_bytes_max = usize::try_from(memory_bytes / 2).unwrap_or(usize::MAX).max(RECENT_BYTES_MIN);
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            stored: Arc::new(StoredBytes::of_files(runs.bytes())),
            runs,
            recent: RwLock::new(Recent::new(applied)),
            recent_bytes_max,
            images: Images::default(),
            broken: Mutex::new(None),
            work: Mutex::new(Work::default()),
            work_changed: Condvar::new(),
            flushed: watch::Sender::new(applied.lsn),
            stop: AtomicBool::new(false),
            damage: EmbeddedStore::damage_in(dir).map(OnceLock::from).unwrap_or_default(),
            damage_noted: AtomicBool::new(false),
        });
        let (applier, skipped) = (Mutex::default(), Mutex::default());
        Ok(EmbeddedStore { shared, id, source, applier, skipped, observer: None })
    }

    /// Sets an observer of applied epochs.
    #[must_use]
    pub fn observed_by(mut self, observer: Option<Arc<dyn ApplyObserver>>) -> EmbeddedStore {
        self.observer = observer;
        self
    }

    /// Returns the last record that the runs in `dir` reflect. The store may be open.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn flushed_in(dir: &Path) -> Result<Watermark, EmbeddedError> {
        runs::watermark_in(dir)
    }

    /// Returns the damage that a reader has found in `dir` since the store was last rebuilt, if any.
    #[must_use]
    pub fn damage_in(dir: &Path) -> Option<String> {
        match fs::read_to_string(dir.join(DAMAGED)) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => Some(format!("the note about its damage cannot be read: {error}")),
        }
    }

    /// Returns the damage that a reader has found since the store was last rebuilt, if any.
    #[must_use]
    pub fn damage(&self) -> Option<&str> {
        self.shared.damage.get().map(String::as_str)
    }

    /// Sets the files of a closed store in `dir` aside, so that it can be rebuilt from the beginning of its log.
    /// Returns their new path.
    ///
    /// # Errors
    /// See [`EmbeddedError`]. Nothing has changed then.
    pub fn set_aside(dir: &Path) -> Result<PathBuf, EmbeddedError> {
        let _lock = runs::lock_directory(dir)?;
        let beside = |number: u32| {
            let mut name = dir.as_os_str().to_owned();
            name.push(format!(".set-aside-{number}"));
            PathBuf::from(name)
        };
        let aside = (1..).map(beside).find(|path| !path.exists()).expect("some number is free");
        fs::rename(dir, &aside).map_err(|error| EmbeddedError::io(dir, error))?;
        Ok(aside)
    }

    /// Returns the id of the store.
    #[must_use]
    pub fn id(&self) -> StoreId {
        self.id
    }

    /// Returns the count of the bytes that the store's rows take on the disk, or will take there once they are flushed.
    #[must_use]
    pub fn stored(&self) -> &Arc<StoredBytes> {
        &self.shared.stored
    }

    /// Returns the last record that reads reflect.
    #[must_use]
    pub fn applied(&self) -> Lsn {
        self.watermark().lsn
    }

    /// Returns the last record that reads reflect, and the log that it belongs to.
    #[must_use]
    pub fn watermark(&self) -> Watermark {
        self.shared.recent.read().applied
    }

    /// Returns the last record that reads reflect, unless that would block.
    #[must_use]
    pub fn applied_at_once(&self) -> Option<Lsn> {
        self.shared.recent.try_read().map(|recent| recent.applied.lsn)
    }

    /// Returns the last record in the runs. The log up to there is no longer needed.
    #[must_use]
    pub fn flushed(&self) -> Lsn {
        *self.shared.flushed.borrow()
    }

    /// Returns whether [`EmbeddedStore::catch_up`] can apply epochs without waiting for a flush.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    pub(crate) fn watch_flushed(&self) -> watch::Receiver<Lsn> {
        self.shared.flushed.subscribe()
    }

    /// Skips the rows of record `lsn` when it is applied. Returns immediately, even while epochs are being applied.
    pub fn skip(&self, lsn: Lsn) {
        self.skipped.lock().insert(lsn);
    }

    /// Sets the watermark to a record up to which the store was loaded by other means; durable on return. The caller must
    /// have checked that the log continues there.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn set_watermark(&self, to: Watermark) -> Result<(), EmbeddedError> {
        let busy = || EmbeddedError::Busy { seconds: ROOM_WAIT_MAX.as_secs() };
        let applier = self.applier.lock();
        // A flush that begins earlier would not contain the watermark.
        if !self.wait_for_flush() {
            return Err(busy());
        }
        self.shared.recent.write().applied = to;
        self.shared.begin_flush()?;
        drop(applier);
        if self.wait_for_flush() { self.shared.usable() } else { Err(busy()) }
    }

    /// Returns a view of the current rows. No epoch is applied while the view exists, so drop it soon.
    #[must_use]
    pub fn view(&self) -> View<'_> {
        View { recent: self.shared.recent.read(), shared: &self.shared }
    }

    /// Returns a view that also supports scans: the keys are sorted first.
    #[must_use]
    pub fn sorted_view(&self) -> View<'_> {
        View { recent: read_sorted(&self.shared.recent), shared: &self.shared }
    }

    /// Returns views of several stores at the same epoch. `heads` returns the ends of their logs at one epoch, in the
    /// order of `stores`, which must be sorted by id.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn cut<'a>(
        stores: &[&'a EmbeddedStore],
        heads: impl FnOnce() -> Vec<Lsn>,
    ) -> Result<Vec<View<'a>>, EmbeddedError> {
        debug_assert!(stores.is_sorted_by_key(|store| store.id), "all callers must lock stores in the same order");
        let appliers: Vec<_> = stores.iter().map(|store| store.applier.lock()).collect();
        for ((store, applier), head) in stores.iter().zip(&appliers).zip(heads()) {
            store.apply_until(applier, head)?;
        }
        Ok(stores.iter().map(|store| store.sorted_view()).collect())
    }

    /// Returns the current state of a row, and the position that it reflects.
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

/// An immutable view of a store's rows.
pub struct View<'a> {
    recent: RwLockReadGuard<'a, Recent>,
    shared: &'a Shared,
}

impl View<'_> {
    /// Returns the position that the view reflects.
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
            None => self.shared.runs.get(key).map_err(|error| self.shared.note_damage(error))?,
        };
        Ok(stored.map(|stored| row(key, stored)))
    }

    /// Loads rows that are about to be read, if no flush has taken them, into the processor's caches: all at once, where
    /// each read would wait for its own.
    pub fn warm<'k>(&self, keys: impl Iterator<Item = &'k [u8]>) {
        self.recent.active.warm(keys);
    }

    /// Returns a row, or `None` if that would require reading the disk.
    #[must_use]
    pub fn get_in_memory(&self, key: &[u8]) -> Option<Option<Row>> {
        match self.recent.stored(key) {
            Some(stored) => Some(stored.map(|stored| row(key, stored))),
            None => self.shared.runs.is_empty().then_some(None),
        }
    }

    /// Returns at most `limit` rows of `start..end` in key order; an empty `end` means no end. Stops early at
    /// [`SCAN_BYTES_MAX`]. The view must be a sorted one.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<ScanPage, EmbeddedError> {
        self.scan_within(start, end, ScanLimits { rows: limit, bytes: SCAN_BYTES_MAX })
    }

    /// Returns rows of `start..end` in key order; an empty `end` means no end. Stops before the row that would exceed
    /// the byte limit, but never before the first one, so that a reader who continues makes progress. The view must be
    /// a sorted one.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn scan_within(&self, start: &[u8], end: &[u8], max: ScanLimits) -> Result<ScanPage, EmbeddedError> {
        let mut page = ScanPage { rows: Vec::new(), next: None, at: self.at() };
        if !end.is_empty() && start >= end {
            return Ok(page);
        }
        let mut bytes = 0;
        let damage = |error| self.shared.note_damage(error);
        for pair in Merged::new(&self.recent, &self.shared.runs, start, end).map_err(damage)? {
            let (key, stored) = pair.map_err(damage)?;
            bytes += key.len() + stored.value.len();
            if page.rows.len() >= max.rows || !page.rows.is_empty() && bytes > max.bytes {
                page.next = Some(key);
                break;
            }
            page.rows.push(Row { key, value: stored.value.into_vec(), version: stored.version });
        }
        Ok(page)
    }
}

impl Drop for EmbeddedStore {
    /// Abandons an unfinished flush: the log still has its rows.
    fn drop(&mut self) {
        self.shared.stop_work();
    }
}

impl Shared {
    fn usable(&self) -> Result<(), EmbeddedError> {
        self.broken.lock().clone().map_or(Ok(()), |broken| Err(broken.into()))
    }

    fn break_down(&self, broken: Breakdown) -> EmbeddedError {
        tracing::debug!(dir = %self.dir.display(), reason = broken.text, "an embedded store stopped");
        let broken = self.broken.lock().get_or_insert(broken).clone();
        // The store may be idle: nothing else would wake the follower, which reports this.
        self.flushed.send_modify(|_| ());
        broken.into()
    }

    /// Notes a damaged file in the directory, so that the store can be rebuilt once it is opened again.
    fn note_damage(&self, error: EmbeddedError) -> EmbeddedError {
        if let EmbeddedError::Damaged(text) = &error
            && !self.damage_noted.swap(true, Ordering::Relaxed)
        {
            // The log waits for a damaged store, also after a power cut.
            let noted = tribunal_disk::replace(&self.dir.join(DAMAGED), text.as_bytes());
            let noted = noted.err().map(|error| format!("; that could not be noted: {error}"));
            tracing::error!(
                "an embedded store is damaged ({text}); if its log is whole, the store is rebuilt from it at the next start, or by \
                 `tribunal store resume`{}",
                noted.unwrap_or_default()
            );
            self.damage.get_or_init(|| text.clone());
            // Wakes the follower, which reports it.
            self.flushed.send_modify(|_| ());
        }
        error
    }

    /// Returns the current state of a row.
    fn stored(&self, key: &[u8]) -> Result<Option<Stored>, EmbeddedError> {
        let recent = self.recent.read().stored(key);
        recent.map_or_else(|| self.runs.get(key).map_err(|error| self.note_damage(error)), Ok)
    }
}

impl From<Breakdown> for EmbeddedError {
    fn from(Breakdown { text, may_pass }: Breakdown) -> EmbeddedError {
        if may_pass { EmbeddedError::OutOfUse(text) } else { EmbeddedError::Stopped(text) }
    }
}

fn row(key: &[u8], stored: Stored) -> Row {
    Row { key: key.to_vec(), value: stored.value.into_vec(), version: stored.version }
}
