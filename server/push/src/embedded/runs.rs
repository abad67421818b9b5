//! The rows as of the last flush: immutable sorted runs, and a manifest that lists them.
//!
//! A flush writes the rows that changed since the previous flush as a new run; runs of similar size are then merged.
//! Every file is synced completely before the manifest lists it, and the manifest is replaced atomically. So after a
//! crash at any moment, on a full disk, or in a copy taken while writing, there are either the old rows or the new
//! ones; the next start removes files that the manifest does not list. A read searches runs from the newest to the
//! oldest; filters skip nearly all runs that do not contain the row.
//!
//! Must never: change a file that a manifest lists, or retry a failed sync.

pub(super) mod entry;
mod filter;
mod manifest;
mod merge;
mod run;
mod writer;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use tribunal_types::Watermark;

use super::EmbeddedError;
use super::files::StoreFile;
use super::recent::Frozen;
use super::stored::Stored;
use entry::Entry;
use manifest::Manifest;
pub(super) use merge::RunMerge;
pub(super) use merge::worth_compacting;
use merge::worth_merging;
use run::{Cursor, Run};
use writer::RunWriter;

/// Rows that a merge leaves out before it looks whether it must stop, or rows must be flushed.
const LEFT_OUT_MAX: u32 = 64;

/// The flushed rows of a store, for one writer and any number of readers.
pub(super) struct Runs {
    dir: PathBuf,
    /// Current runs, newest first.
    live: RwLock<Arc<Vec<Arc<Run>>>>,
    /// The manifest on disk.
    manifest: Mutex<Manifest>,
    /// Held while the runs are open: another process that opened them would remove files that it does not know.
    lock: Mutex<Option<DirectoryLock>>,
}

/// How a flush or merge ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finished {
    Done,
    /// The store is being closed; nothing changed.
    Stopped,
}

impl Runs {
    /// Opens the runs in `dir`, which must exist. Returns them with the last record that they reflect. Removes files left
    /// over from a crash or a failed write.
    pub(super) fn open(dir: &Path) -> Result<(Self, Watermark), EmbeddedError> {
        let lock = lock_directory(dir)?;
        let mut manifest = Manifest::load(dir)?;
        let runs = manifest.runs.iter().map(|name| Run::open(dir, *name).map(Arc::new));
        let runs = runs.collect::<Result<Vec<_>, _>>()?;
        let known = |number: u64| manifest.runs.iter().any(|run| run.number == number);
        let mut next = manifest.next;
        for entry in fs::read_dir(dir).map_err(|error| EmbeddedError::io(dir, error))? {
            let path = entry.map_err(|error| EmbeddedError::io(dir, error))?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let number = name.and_then(|name| name.strip_prefix("run-")?.parse::<u64>().ok());
            if let Some(number) = number.filter(|number| !known(*number)) {
                next = next.max(number + 1);
                remove(&path);
            }
        }
        manifest.next = next;
        let watermark = manifest.watermark;
        let live = RwLock::new(Arc::new(runs));
        Ok((
            Runs { dir: dir.to_owned(), live, manifest: Mutex::new(manifest), lock: Mutex::new(Some(lock)) },
            watermark,
        ))
    }

    /// Releases the lock. Called when nothing writes any more.
    pub(super) fn unlock(&self) {
        *self.lock.lock() = None;
    }

    fn runs(&self) -> Arc<Vec<Arc<Run>>> {
        Arc::clone(&self.live.read())
    }

    /// Returns whether there are no runs.
    pub(super) fn is_empty(&self) -> bool {
        self.live.read().is_empty()
    }

    /// Returns a row.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<Stored>, EmbeddedError> {
        for run in self.runs().iter() {
            if let Some(known) = run.get(key)? {
                return Ok(known);
            }
        }
        Ok(None)
    }

    /// Returns all entries from `start` on, in key order.
    pub(super) fn scan(&self, start: &[u8]) -> Result<RunMerge, EmbeddedError> {
        let cursors = self.runs().iter().map(|run| Cursor::new(Arc::clone(run), start)).collect::<Result<_, _>>()?;
        Ok(RunMerge::new(cursors))
    }

    /// Returns the size of the runs' files, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.runs().iter().map(|run| run.name.bytes).sum()
    }

    /// Writes rows as the newest run; they and the watermark are durable on return. Deleted rows are left out if there is
    /// no older run in which they would hide a row.
    pub(super) fn flush(&self, rows: &Frozen, stop: &AtomicBool) -> Result<Finished, EmbeddedError> {
        let watermark = rows.watermark;
        if rows.len() == 0 {
            self.replace(self.runs().to_vec(), watermark)?;
            return Ok(Finished::Done);
        }
        let number = self.next_number();
        let to_the_oldest = self.is_empty();
        let write = || -> io::Result<Option<_>> {
            let mut writer = RunWriter::create(&self.dir, number, rows.len() as u64)?;
            for (key, row) in rows.range(b"", b"").filter(|(_, row)| row.is_some() || !to_the_oldest) {
                let entry = Entry { key, row };
                if writer.push(&entry)? && stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
            }
            Ok(Some(writer))
        };
        let failed = |error| EmbeddedError::io(&self.dir, error);
        let Some(writer) = write().map_err(failed)? else { return Ok(Finished::Stopped) };
        let run = self.finish(writer)?;
        let runs = run.into_iter().chain(self.runs().iter().cloned()).collect();
        self.replace(runs, watermark)?;
        Ok(Finished::Done)
    }

    /// Merges the newest runs if that is worthwhile, or all runs if `all`. Calls `between` from time to time, which may
    /// flush rows.
    pub(super) fn merge(
        &self,
        all: bool,
        stop: &AtomicBool,
        mut between: impl FnMut() -> Result<(), EmbeddedError>,
    ) -> Result<Finished, EmbeddedError> {
        let before = self.runs();
        let worthwhile = || worth_merging(before.iter().map(|run| run.name.bytes));
        let count = if all && before.len() > 1 { before.len() } else { worthwhile() };
        if count == 0 {
            return Ok(Finished::Done);
        }
        let merged = &before[..count];
        // Deleted rows need not be kept in the oldest run: there is no older one in which they would hide a row.
        let to_the_oldest = count == before.len();
        let cursors = merged.iter().map(|run| Cursor::new(Arc::clone(run), b"")).collect::<Result<_, _>>()?;
        let mut merge = RunMerge::new(cursors);
        let failed = |error| EmbeddedError::io(&self.dir, error);
        let rows_max = merged.iter().map(|run| run.rows).sum();
        let mut writer = RunWriter::create(&self.dir, self.next_number(), rows_max).map_err(failed)?;
        let mut left_out = 0_u32;
        while let Some(entry) = merge.entry() {
            let is_kept = entry.row.is_some() || !to_the_oldest;
            left_out += u32::from(!is_kept);
            let written = is_kept && writer.push(&entry).map_err(failed)?;
            if written || left_out == LEFT_OUT_MAX {
                left_out = 0;
                if stop.load(Ordering::Relaxed) {
                    return Ok(Finished::Stopped);
                }
                between()?;
            }
            merge.advance()?;
        }
        let run = self.finish(writer)?;
        let now = self.runs();
        let added = now.len() - before.len();
        let runs = now[..added].iter().cloned().chain(run).chain(before[count..].iter().cloned()).collect();
        let watermark = self.manifest.lock().watermark;
        self.replace(runs, watermark)?;
        for run in merged {
            remove(&run::path_of(&self.dir, run.name.number));
        }
        Ok(Finished::Done)
    }

    /// Completes a run and opens it; removes it if it has no rows.
    fn finish(&self, writer: RunWriter) -> Result<Option<Arc<Run>>, EmbeddedError> {
        if writer.is_empty() {
            return Ok(None);
        }
        let name = writer.finish().map_err(|error| EmbeddedError::io(&self.dir, error))?;
        Run::open(&self.dir, name).map(|run| Some(Arc::new(run)))
    }

    /// Returns the files of the current runs, the manifest last.
    pub(super) fn files(&self) -> Result<Vec<StoreFile>, EmbeddedError> {
        // Under the lock, so that the manifest matches the runs.
        let manifest = self.manifest.lock();
        let runs = self.runs();
        let mut files = runs.iter().map(|run| run.copied()).collect::<Result<Vec<_>, _>>()?;
        files.push(StoreFile::of_bytes(manifest::NAME, manifest.encode()));
        Ok(files)
    }

    /// Returns the last record that the runs reflect.
    pub(super) fn watermark(&self) -> Watermark {
        self.manifest.lock().watermark
    }

    /// Returns whether [`Runs::merge`] has anything to do.
    pub(super) fn merge_is_due(&self) -> bool {
        worth_merging(self.runs().iter().map(|run| run.name.bytes)) > 0
    }

    /// Returns the number of entries in the runs newer than the oldest one, and in that.
    pub(super) fn newer_and_oldest_rows(&self) -> (u64, u64) {
        let runs = self.runs();
        let oldest = runs.last().map_or(0, |run| run.rows);
        (runs.iter().rev().skip(1).map(|run| run.rows).sum(), oldest)
    }

    fn next_number(&self) -> u64 {
        let mut manifest = self.manifest.lock();
        manifest.next += 1;
        manifest.next - 1
    }

    fn replace(&self, runs: Vec<Arc<Run>>, watermark: Watermark) -> Result<(), EmbeddedError> {
        let mut manifest = self.manifest.lock();
        let next = Manifest { watermark, next: manifest.next, runs: runs.iter().map(|run| run.name).collect() };
        next.store(&self.dir).map_err(|error| EmbeddedError::io(&self.dir, error))?;
        *manifest = next;
        *self.live.write() = Arc::new(runs);
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.runs().len()
    }
}

/// Returns the last record that the runs in `dir` reflect.
pub(super) fn watermark_in(dir: &Path) -> Result<Watermark, EmbeddedError> {
    Manifest::load(dir).map(|manifest| manifest.watermark)
}

/// Returns the size of the runs in `dir`, bytes.
pub(super) fn bytes_in(dir: &Path) -> Result<u64, EmbeddedError> {
    Manifest::load(dir).map(|manifest| manifest.runs.iter().map(|run| run.bytes).sum())
}

/// The lock of a store's directory. Unlocked explicitly when dropped: a child process being spawned briefly holds a
/// copy of the descriptor, so closing it would not release the lock.
pub(super) struct DirectoryLock(File);

impl Drop for DirectoryLock {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

/// Locks a store's directory until the returned value is dropped.
pub(super) fn lock_directory(dir: &Path) -> Result<DirectoryLock, EmbeddedError> {
    let path = dir.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(|error| EmbeddedError::io(&path, error))?;
    match file.try_lock() {
        Ok(()) => Ok(DirectoryLock(file)),
        Err(TryLockError::WouldBlock) => Err(EmbeddedError::InUse { dir: dir.to_owned() }),
        Err(TryLockError::Error(error)) => Err(EmbeddedError::io(&path, error)),
    }
}

/// Removes a file that is no longer listed. If that fails, it is removed at the next start.
fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!(path = %path.display(), %error, "an obsolete file of an embedded store cannot be removed");
    }
}
