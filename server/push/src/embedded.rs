//! The embedded key-value store: committed rows, journalled and then checkpointed into sorted runs.
//!
//! A push is folded to each row's last state, appended to the journal, synced once, then made visible in memory, all
//! of it at once: readers see whole transactions, durable ones only. When memory is full, its rows become one more
//! run, while pushes go on. A replayed push changes nothing, since it must start exactly at the watermark. A store
//! costs what it holds: an empty one has a directory and a lock, no thread, no cache and no other file.
//!
//! # Raw format
//! What the `kv` adaptor emits, as [`Command::Raw`](tribunal_types::Command::Raw); all integers little-endian:
//!
//! ```text
//! from u64, to u64, rows u32, then per row: kind u8, version u64, key_len u32, key, value_len u32, value
//! ```
//!
//! `from` is the LSN that the store must have applied, i.e. the first record's minus one; `to` is the last record's.
//! The whole command takes effect or nothing of it. `kind` is [`WriteKind`](tribunal_types::WriteKind)'s number; a delete has an empty value, an add has the decimal
//! delta. `from = to = 0` without rows only reads the watermark.
//!
//! The answer, as [`StorageReply::Raw`](tribunal_types::StorageReply::Raw):
//!
//! ```text
//! status u8 (0 ok, 1 moved, 2 fatal, 3 try again), watermark u64 afterwards, then a text in UTF-8 unless ok
//! ```

mod checkpoints;
mod fold;
mod image;
mod journal;
mod raw;
mod recent;
mod runs;
mod scan;
#[cfg(test)]
mod tests;
mod transport;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::{Condvar, Mutex, RwLock};
use tribunal_types::{Digest, LogId, Lsn, Version, Watermark};

use checkpoints::{NoRoom, Work};
use fold::fold;
pub use image::EmbeddedImage;
use image::Images;
use journal::Journal;
use raw::{RawCommand, RawReply};
use recent::{Recent, Stored};
use runs::Runs;
use scan::Merged;
pub use transport::EmbeddedTransport;

/// Bytes of keys and values after which a scan stops early.
pub const SCAN_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Smallest part of the memory that holds rows on their way to a run, bytes.
const RECENT_BYTES_MIN: usize = 8 * 1024 * 1024;
/// Bytes of journal after which a checkpoint is due, whatever memory it takes: they are read at the next start.
const JOURNAL_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Rows of one store, in a directory of its own. Cheap to share by `Arc`; every method may block on the disk.
pub struct EmbeddedStore {
    shared: Arc<Shared>,
    /// Serialises pushes, so that reads of old values and the push made from them fit together.
    journal: Mutex<Journal>,
}

struct Shared {
    dir: PathBuf,
    runs: Runs,
    recent: RwLock<Recent>,
    /// Rows set aside above this size, bytes; as many again may be on their way to a run.
    recent_bytes_max: usize,
    /// Images that are being read.
    images: Images,
    /// Why nothing is acknowledged any more. A failed sync is never tried again.
    broken: Mutex<Option<String>>,
    work: Mutex<Work>,
    work_changed: Condvar,
    stop: AtomicBool,
}

/// Where a push comes from; kept beside its last record, so that the store can be told from another log's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The log.
    pub log: LogId,
    /// Its digest up to the push's last record.
    pub digest: Digest,
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

/// Rows in key order, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPage {
    /// Rows.
    pub rows: Vec<Row>,
    /// Key to continue at, if rows are left in the range.
    pub next: Option<Vec<u8>>,
    /// Last record that the rows reflect.
    pub applied: Lsn,
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
    /// A directory cannot be synced.
    #[error(transparent)]
    Disk(#[from] tribunal_disk::DiskError),
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
}

impl EmbeddedError {
    fn io(path: &Path, error: io::Error) -> Self {
        EmbeddedError::Io { path: path.to_owned(), error }
    }
}

impl EmbeddedStore {
    /// Opens the store in `dir`, creating it on first use. Takes up to `memory_bytes` for rows that are newer than the
    /// last checkpoint, as they come; older ones are read through the kernel's page cache.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn open(dir: &Path, memory_bytes: u64) -> Result<Arc<Self>, EmbeddedError> {
        let new = !dir.exists();
        fs::create_dir_all(dir).map_err(|error| EmbeddedError::io(dir, error))?;
        let (runs, applied) = Runs::open(dir)?;
        let mut recent = Recent::new(applied);
        let journal_dir = dir.join("journal");
        let journal = Journal::open(&journal_dir, |to, command| replay(&mut recent, to, command))
            .map_err(|error| EmbeddedError::io(&journal_dir, error))?;
        tribunal_disk::sync_directory(dir)?;
        if new {
            // What is acknowledged is gone from the log one day: the way to it must last as well.
            dir.ancestors().skip(1).take(2).filter(|dir| dir.is_dir()).try_for_each(tribunal_disk::sync_directory)?;
        }
        let recent_bytes_max = usize::try_from(memory_bytes / 2).unwrap_or(usize::MAX).max(RECENT_BYTES_MIN);
        let shared = Arc::new(Shared {
            dir: dir.to_owned(),
            runs,
            recent: RwLock::new(recent),
            recent_bytes_max,
            images: Images::default(),
            broken: Mutex::new(None),
            work: Mutex::new(Work::default()),
            work_changed: Condvar::new(),
            stop: AtomicBool::new(false),
        });
        Ok(Arc::new(EmbeddedStore { shared, journal: Mutex::new(journal) }))
    }

    /// Removes everything that a closed store has in `dir`, so that its log can fill it again from the beginning.
    ///
    /// # Errors
    /// See [`EmbeddedError`]; a part may be removed already, which a later call completes.
    pub fn erase(dir: &Path) -> Result<(), EmbeddedError> {
        let _lock = runs::lock_directory(dir)?;
        fs::remove_dir_all(dir).map_err(|error| EmbeddedError::io(dir, error))
    }

    /// Returns the last record that is applied and synced.
    #[must_use]
    pub fn applied(&self) -> Lsn {
        self.watermark().lsn
    }

    /// Returns the last record that is applied and synced, and which log it is of.
    #[must_use]
    pub fn watermark(&self) -> Watermark {
        self.shared.recent.read().applied
    }

    /// Returns a row, and the last record that the answer reflects.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn get(&self, key: &[u8]) -> Result<(Option<Row>, Lsn), EmbeddedError> {
        let recent = self.shared.recent.read();
        let stored = self.shared.stored(&recent, key)?;
        Ok((stored.map(|stored| row(key, stored)), recent.applied.lsn))
    }

    /// Returns at most `limit` rows of `start..end` in key order; an empty `end` means to the last row. Stops early
    /// at [`SCAN_BYTES_MAX`].
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn scan(&self, start: &[u8], end: &[u8], limit: usize) -> Result<ScanPage, EmbeddedError> {
        let recent = self.shared.recent.read();
        let mut page = ScanPage { rows: Vec::new(), next: None, applied: recent.applied.lsn };
        if !end.is_empty() && start >= end {
            return Ok(page);
        }
        let mut bytes = 0;
        for pair in Merged::new(&recent, &self.shared.runs, start, end)? {
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

    /// Returns the last record of a command in the raw format; 0 for one that only asks, or that is malformed.
    #[must_use]
    pub fn target(command: &[u8]) -> Lsn {
        let to = command.get(8..16).and_then(|to| to.try_into().ok());
        Lsn(to.map_or(0, u64::from_le_bytes))
    }

    /// Executes a command in the raw format and returns the raw answer. Malformed bytes are answered `fatal`.
    pub fn execute(&self, command: &[u8], origin: Origin) -> Vec<u8> {
        let reply = match RawCommand::parse(command) {
            Err(text) => RawReply::Fatal(text),
            Ok(command) if command.is_query() => self.shared.usable().map_or_else(RawReply::Fatal, |()| RawReply::Ok),
            Ok(command) => self.apply(&command, origin),
        };
        reply.encode(self.applied())
    }

    fn apply(&self, command: &RawCommand<'_>, origin: Origin) -> RawReply {
        let mut journal = self.journal.lock();
        if let Err(text) = self.shared.usable() {
            return RawReply::Fatal(text);
        }
        let at = self.applied();
        if command.from != at {
            return RawReply::Moved(format!("watermark is {at}, the push starts after {}", command.from));
        }
        match self.make_room(&mut journal) {
            Ok(()) => {}
            Err(NoRoom::Busy(text)) => return RawReply::Busy(text),
            Err(NoRoom::Broken(text)) => return RawReply::Fatal(text),
        }
        let stored = |key: &[u8]| self.shared.stored(&self.shared.recent.read(), key).map_err(|e| e.to_string());
        let folded = match fold(command, stored) {
            Ok(folded) => folded,
            Err(text) => {
                return RawReply::Fatal(format!("LSN {}..={}: {text}", command.from.next(), command.to));
            }
        };
        let old = |key: &[u8]| self.shared.stored(&self.shared.recent.read(), key);
        if let Err(error) = self.shared.images.keep(folded.rows.keys().copied(), old) {
            return RawReply::Fatal(error.to_string());
        }
        let to = Watermark { lsn: command.to, log: origin.log, digest: origin.digest };
        if let Err(error) = journal.append(&folded, command.from, &to) {
            return RawReply::Fatal(self.shared.break_down(format!("the journal cannot be written: {error}")));
        }
        self.shared.recent.write().apply(&folded, to);
        RawReply::Ok
    }

    /// Starts a checkpoint when one is due. Waits for the one before if memory is full.
    fn make_room(&self, journal: &mut Journal) -> Result<(), NoRoom> {
        let full = self.shared.recent.read().active_bytes > self.shared.recent_bytes_max;
        let long = journal.bytes() >= JOURNAL_BYTES_MAX && !self.shared.checkpoint_busy();
        if full || long { self.shared.begin_checkpoint(journal) } else { Ok(()) }
    }
}

impl Drop for EmbeddedStore {
    /// Leaves an unfinished checkpoint: the journal is still there and is read at the next start.
    fn drop(&mut self) {
        self.shared.stop_work();
    }
}

impl Shared {
    fn usable(&self) -> Result<(), String> {
        self.broken.lock().clone().map_or(Ok(()), Err)
    }

    fn break_down(&self, text: String) -> String {
        tracing::error!(reason = %text, "embedded store stopped");
        self.broken.lock().get_or_insert(text).clone()
    }

    fn stored(&self, recent: &Recent, key: &[u8]) -> Result<Option<Stored>, EmbeddedError> {
        match recent.get(key) {
            Some(stored) => Ok(stored.cloned()),
            None => self.runs.get(key),
        }
    }
}

fn replay(recent: &mut Recent, to: &Watermark, command: &RawCommand<'_>) -> bool {
    if command.to <= recent.applied.lsn {
        return true;
    }
    let folded = fold(command, |_| Err("a journal holds sums, no adds".to_owned()));
    match folded {
        Ok(folded) if command.from == recent.applied.lsn => {
            recent.apply(&folded, *to);
            true
        }
        _ => false,
    }
}

fn row(key: &[u8], stored: Stored) -> Row {
    Row { key: key.to_vec(), value: stored.value.into_vec(), version: stored.version }
}
