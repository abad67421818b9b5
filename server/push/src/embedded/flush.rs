//! Flushes rows from memory to runs, and merges runs, on a thread that exists only while there is such work.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tribunal_types::Lsn;

use super::files::StoreFile;
use super::runs::{Finished, worth_compacting};
use super::{Breakdown, EmbeddedError, EmbeddedStore, Shared};

/// Maximum time that applying an epoch waits for the previous flush when memory is full.
pub(super) const ROOM_WAIT_MAX: Duration = Duration::from_secs(30);
/// Maximum time that closing a store waits for its thread. An unresponsive disk must not delay the exit of the process;
/// every row is in the log.
const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// A merge that may free an eighth of a store waits for this part of the pause between merges.
const WORTHWHILE_SOONER: u32 = 16;

/// State of the flush thread.
#[derive(Default)]
pub(super) struct Work {
    /// Whether frozen rows are waiting for the thread.
    due: bool,
    /// Whether a flush is due or in progress.
    busy: bool,
    /// Whether the thread exists.
    running: bool,
    /// Whether all runs are to be merged.
    compaction_due: bool,
    /// Whether the thread is merging all of them.
    compacting: bool,
    /// When the last compaction ended.
    compacted: Option<Instant>,
}

/// Stops the store if the thread panics: its flush would never end.
struct ReportPanic<'a>(&'a Shared);

impl Drop for ReportPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = "the thread that flushes it panicked".to_owned();
            self.0.break_down(Breakdown { text, may_pass: false });
            *self.0.work.lock() = Work::default();
            self.0.work_changed.notify_all();
        }
    }
}

impl EmbeddedStore {
    /// Flushes everything up to the current end of the log, then returns the files. Waits for the disk.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn flushed_files(&self) -> Result<Vec<StoreFile>, EmbeddedError> {
        let head = self.source.head(self.id);
        self.catch_up()?;
        self.files_flushed_to(head)
    }

    /// Flushes what was applied, then returns the files: those of a detached store, which applies no more, and for which the
    /// log may no longer have the next records. Waits for the disk.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn flushed_files_as_applied(&self) -> Result<Vec<StoreFile>, EmbeddedError> {
        self.files_flushed_to(self.applied())
    }

    fn files_flushed_to(&self, head: Lsn) -> Result<Vec<StoreFile>, EmbeddedError> {
        // A flush in progress may have begun before the last epoch was applied.
        while self.flushed() < head.min(self.applied()) {
            self.flush()?;
            if !self.wait_for_flush() {
                return Err(EmbeddedError::Busy { seconds: ROOM_WAIT_MAX.as_secs() });
            }
            self.shared.usable()?;
        }
        self.shared.runs.files()
    }

    /// Begins to flush all rows in memory, so that the log may be truncated up to them. Does nothing if a flush is in
    /// progress, or if there are no such rows.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn flush(&self) -> Result<(), EmbeddedError> {
        let _no_epoch = self.applier.lock();
        let newer = self.shared.recent.read().applied.lsn > self.flushed();
        if newer { self.shared.begin_flush() } else { Ok(()) }
    }

    /// Begins to flush all rows in memory and to merge all runs into one, which frees the room of deleted and replaced
    /// rows. Does nothing if nothing has changed since the last such merge, if that merge ended less than `pause` ago, a
    /// sixteenth of it if much has changed, or while epochs are being applied. Does not wait for the merge.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn reclaim(&self, pause: Duration) -> Result<(), EmbeddedError> {
        let (newer, oldest) = self.shared.runs.newer_and_oldest_rows();
        let newer = {
            let recent = self.shared.recent.read();
            // Without runs, only the deleted rows themselves are superfluous.
            if self.shared.runs.is_empty() { recent.deleted() } else { newer + recent.len() }
        };
        {
            let work = self.shared.work.lock();
            let pause = if worth_compacting(newer, oldest) { pause / WORTHWHILE_SOONER } else { pause };
            let rested = work.compacted.is_none_or(|at| at.elapsed() >= pause);
            if work.compaction_due || work.compacting || !rested || newer == 0 {
                return Ok(());
            }
        }
        // While epochs are being applied, perhaps waiting for the disk, the next attempt is soon enough.
        let Some(_no_epoch) = self.applier.try_lock() else { return Ok(()) };
        self.shared.work.lock().compaction_due = true;
        self.shared.begin_flush()
    }

    /// Waits for the flush in progress. Returns false if it did not finish in time.
    pub(super) fn wait_for_flush(&self) -> bool {
        self.shared.wait_while_busy(Instant::now() + ROOM_WAIT_MAX)
    }

    /// Flushes the rows in memory before the process ends, so that the next start replays little of the log. Gives up after
    /// a few seconds: the log has all rows.
    pub fn flush_at_stop(&self) {
        match self.flush() {
            Ok(()) if self.shared.wait_while_busy(Instant::now() + STOP_WAIT_MAX) => {}
            Ok(()) => {
                tracing::warn!(dir = %self.shared.dir.display(), "a flush was abandoned because the disk is slow")
            }
            Err(error) => tracing::warn!(%error, "an embedded store was not flushed"),
        }
    }
}

impl Shared {
    /// Begins a flush if the rows in memory are large enough. Waits for the previous flush if they exceed twice that size.
    /// Called with the applier locked.
    pub(super) fn make_room(self: &Arc<Self>) -> Result<(), EmbeddedError> {
        let bytes = self.recent.read().active.bytes();
        if bytes <= self.recent_bytes_max {
            return Ok(());
        }
        if bytes > 2 * self.recent_bytes_max && !self.wait_while_busy(Instant::now() + ROOM_WAIT_MAX) {
            return Err(EmbeddedError::Busy { seconds: ROOM_WAIT_MAX.as_secs() });
        }
        self.begin_flush()
    }

    /// Returns whether epochs can be applied without waiting for a flush.
    pub(super) fn has_room(&self) -> bool {
        self.recent.read().active.bytes() <= 2 * self.recent_bytes_max || !self.work.lock().busy
    }

    /// Waits until the thread has ended.
    #[cfg(test)]
    pub(super) fn wait_until_idle(&self) {
        let mut work = self.work.lock();
        while work.running {
            self.work_changed.wait(&mut work);
        }
    }

    fn wait_while_busy(&self, until: Instant) -> bool {
        let mut work = self.work.lock();
        while work.busy {
            if self.work_changed.wait_until(&mut work, until).timed_out() {
                return !work.busy;
            }
        }
        true
    }

    /// Begins a flush of all rows in memory unless one is in progress. Called with the applier locked.
    pub(super) fn begin_flush(self: &Arc<Self>) -> Result<(), EmbeddedError> {
        let mut work = self.work.lock();
        self.usable()?;
        if work.busy {
            return Ok(());
        }
        self.recent.write().freeze();
        work.due = true;
        work.busy = true;
        if !work.running {
            let shared = Arc::clone(self);
            let thread = std::thread::Builder::new().name("flush".to_owned());
            thread
                .spawn(move || {
                    tribunal_disk::give_way();
                    let _reports = ReportPanic(&shared);
                    shared.work_off();
                })
                .map_err(|error| {
                    let text = format!("cannot start a thread for a flush: {error}");
                    self.break_down(Breakdown { text, may_pass: true })
                })?;
            work.running = true;
        }
        Ok(())
    }

    /// Stops the thread at the next opportunity, and waits for it at most [`STOP_WAIT_MAX`].
    pub(super) fn stop_work(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + STOP_WAIT_MAX;
        let mut work = self.work.lock();
        while work.running {
            if self.work_changed.wait_until(&mut work, until).timed_out() {
                tracing::error!(dir = %self.dir.display(), "a flush was abandoned because the disk does not respond");
                return;
            }
        }
        self.runs.unlock();
    }

    /// The thread's main function. Returns when there is nothing left to do, the store is being closed, or a write failed.
    fn work_off(&self) {
        loop {
            let compacts = {
                let mut work = self.work.lock();
                work.compacting = std::mem::take(&mut work.compaction_due);
                work.compacting
            };
            let merge = || self.runs.merge(compacts, &self.stop, || self.write_frozen());
            let done = self.write_frozen().and_then(|()| merge());
            self.stored.set_flushed(self.runs.bytes());
            let continues = match done {
                Ok(Finished::Done) => !self.stop.load(Ordering::Relaxed),
                Ok(Finished::Stopped) => false,
                Err(error) => {
                    let error = self.note_damage(error);
                    self.break_down(Breakdown { may_pass: error.may_pass(), text: error.to_string() });
                    false
                }
            };
            let mut work = self.work.lock();
            if std::mem::take(&mut work.compacting) {
                work.compacted = Some(Instant::now());
            }
            if !continues || (!work.due && !work.compaction_due && !self.runs.merge_is_due()) {
                work.running = false;
                work.busy &= self.stop.load(Ordering::Relaxed);
                self.work_changed.notify_all();
                return;
            }
        }
    }

    /// Flushes the frozen rows, if there are any.
    fn write_frozen(&self) -> Result<(), EmbeddedError> {
        if !std::mem::take(&mut self.work.lock().due) {
            return Ok(());
        }
        let frozen = self.recent.read().frozen.clone();
        if let Some(frozen) = frozen
            && self.runs.flush(&frozen, &self.stop)? == Finished::Stopped
        {
            return Ok(());
        }
        {
            let mut recent = self.recent.write();
            recent.frozen = None;
            // In this order, no reader counts the rows twice.
            self.stored.set_recent(recent.entry_bytes());
            self.stored.set_flushed(self.runs.bytes());
        }
        self.flushed.send_replace(self.runs.watermark().lsn);
        self.work.lock().busy = false;
        self.work_changed.notify_all();
        Ok(())
    }
}
