//! The mark file, and the thread that advances the mark closely after the log.
//!
//! Two slots are written in turn, so that a torn write leaves the other slot intact. The mark of a sync is written
//! after that sync returned, off the commit path, and at most once per [`PACE`]: it lags by that much under load and
//! never leads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tribunal_codec::{MARK_BYTES_MAX, Mark, decode_mark, encode_mark};

use crate::error::LogError;
use crate::files::{self, Files, LogFile, OpenMode};

/// Distance of the slots, bytes: a torn sector never affects both.
const SLOT_BYTES: usize = 4096;
/// How long marks are collected before one is written. Each write costs the disk a sync in addition to those of the
/// commits.
const PACE: Duration = Duration::from_millis(50);

const _: () = assert!(MARK_BYTES_MAX + 8 <= SLOT_BYTES);

/// Returns the path of the mark of a log.
pub(crate) fn path_in(dir: &Path) -> PathBuf {
    dir.join("mark")
}

/// Reads the mark; `None` if there is no file.
///
/// # Errors
/// If neither slot contains a valid mark.
pub(crate) fn load(files: &dyn Files, dir: &Path) -> Result<Option<Mark>, LogError> {
    let Some(bytes) = files::read(files, &path_in(dir))? else { return Ok(None) };
    let slot = |at: usize| bytes.get(at..).and_then(read_slot);
    let newest = slot(0).into_iter().chain(slot(SLOT_BYTES)).max_by_key(|mark| mark.sequence);
    newest.map(Some).ok_or_else(|| LogError::damaged(dir, "its mark file cannot be read"))
}

fn read_slot(bytes: &[u8]) -> Option<Mark> {
    let len = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
    let crc = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    let mark = bytes.get(8..8_usize.checked_add(len)?)?;
    if len > MARK_BYTES_MAX || crc32c::crc32c(mark) != crc {
        return None;
    }
    decode_mark(mark).ok()
}

/// The open mark file.
struct MarkFile {
    file: Box<dyn LogFile>,
    /// Sequence of the mark on disk.
    sequence: u64,
}

impl MarkFile {
    /// Writes `mark` into the older slot and makes it durable.
    fn write(&mut self, mark: &Mark) -> std::io::Result<()> {
        let mark = Mark { sequence: self.sequence + 1, ..mark.clone() };
        let bytes = encode_mark(&mark);
        let mut slot = Vec::with_capacity(SLOT_BYTES);
        slot.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        slot.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        slot.extend_from_slice(&bytes);
        slot.resize(SLOT_BYTES, 0);
        self.file.write_all_at(&slot, (mark.sequence % 2) * SLOT_BYTES as u64)?;
        self.file.sync_data()?;
        self.sequence = mark.sequence;
        Ok(())
    }
}

/// Creates the mark file of a new log with `mark` in both slots. Its name is durable once the identity is stored.
pub(crate) fn create(files: &dyn Files, dir: &Path, mark: &Mark) -> Result<(), LogError> {
    let path = path_in(dir);
    let write = || -> std::io::Result<()> {
        let file = files.open(&path, OpenMode::Create)?;
        let mut file = MarkFile { file, sequence: mark.sequence };
        file.write(mark)?;
        file.write(mark)?;
        file.file.sync_all()
    };
    write().map_err(|e| LogError::io("write", &path, &e))
}

/// Advances the mark after the log.
pub(crate) struct Marker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    wanted: Mutex<Wanted>,
    changed: Condvar,
    file: Mutex<MarkFile>,
    fdatasyncs: AtomicU64,
}

#[derive(Default)]
struct Wanted {
    /// Newest mark that is not on disk yet.
    mark: Option<Mark>,
    failed: Option<String>,
    stop: bool,
}

impl Marker {
    /// Starts the thread, if the disk allows threads. `sequence` is that of the mark on disk.
    pub(crate) fn start(files: &dyn Files, dir: &Path, sequence: u64) -> Result<Self, LogError> {
        let path = path_in(dir);
        let file = files.open(&path, OpenMode::Write).map_err(|e| LogError::io("open", &path, &e))?;
        let shared = Arc::new(Shared {
            wanted: Mutex::new(Wanted::default()),
            changed: Condvar::new(),
            file: Mutex::new(MarkFile { file, sequence }),
            fdatasyncs: AtomicU64::new(0),
        });
        let theirs = Arc::clone(&shared);
        let spawn = || std::thread::Builder::new().name("log-mark".into()).spawn(move || theirs.run());
        let thread = files.has_threads().then(spawn).transpose();
        let thread = thread.map_err(|e| LogError::Io { reason: format!("no thread for the mark: {e}") })?;
        Ok(Self { shared, thread })
    }

    /// Requests that `mark` be written soon.
    pub(crate) fn post(&self, mark: Mark) -> Result<(), LogError> {
        let mut wanted = self.shared.wanted.lock();
        if let Some(reason) = &wanted.failed {
            return Err(LogError::DurabilityInDoubt { reason: reason.clone() });
        }
        wanted.mark = Some(mark);
        self.shared.changed.notify_one();
        Ok(())
    }

    /// Writes the newest mark now if it is not on disk yet.
    pub(crate) fn catch_up(&self) -> Result<(), LogError> {
        self.shared.write_wanted();
        match &self.shared.wanted.lock().failed {
            None => Ok(()),
            Some(reason) => Err(LogError::DurabilityInDoubt { reason: reason.clone() }),
        }
    }

    /// Returns how many times the mark file was synced.
    pub(crate) fn fdatasyncs(&self) -> u64 {
        self.shared.fdatasyncs.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn run(&self) {
        loop {
            {
                let mut wanted = self.wanted.lock();
                while wanted.mark.is_none() && !wanted.stop {
                    self.changed.wait(&mut wanted);
                }
                if wanted.stop {
                    break;
                }
            }
            std::thread::sleep(PACE);
            self.write_wanted();
        }
        self.write_wanted();
    }

    fn write_wanted(&self) {
        // Lock the file first: the thread that takes a mark also writes it, so that an older mark never overwrites it.
        let mut file = self.file.lock();
        let mark = {
            let mut wanted = self.wanted.lock();
            // After a failed sync, a later one may report success without the data.
            if wanted.failed.is_some() {
                return;
            }
            wanted.mark.take()
        };
        let Some(mark) = mark else { return };
        match file.write(&mark) {
            Ok(()) => {
                self.fdatasyncs.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => self.wanted.lock().failed = Some(format!("write of the mark: {error}")),
        }
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        self.shared.wanted.lock().stop = true;
        self.shared.changed.notify_one();
        match self.thread.take() {
            Some(thread) => drop(thread.join()),
            None => self.shared.write_wanted(),
        }
    }
}
