//! Writes rows from memory into runs, and merges runs, on a thread that exists while there is such work.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::runs::Finished;
use super::{EmbeddedError, EmbeddedStore, Shared};

/// How long an epoch waits for the flush before it, when memory is full.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a store that is being closed waits for its thread. A disk that does not answer must not hold up the end of
/// the process; every row is in the log.
const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// Hands flushes to their thread.
#[derive(Default)]
pub(super) struct Work {
    /// Rows are set aside and wait for the thread.
    due: bool,
    /// From the moment a flush is due until it is done.
    busy: bool,
    /// Whether the thread exists.
    running: bool,
}

impl EmbeddedStore {
    /// Begins to write all rows that are only in memory to the disk, so that the log may be truncated up to them; does
    /// nothing while that is under way, or if there are none.
    ///
    /// # Errors
    /// See [`EmbeddedError`].
    pub fn flush(&self) -> Result<(), EmbeddedError> {
        let _no_epoch = self.applier.lock();
        let newer = self.shared.recent.read().applied.lsn > self.flushed();
        if newer { self.shared.begin_flush() } else { Ok(()) }
    }

    /// Waits until the flush under way is done; returns whether it is, within the bound.
    pub(super) fn wait_for_flush(&self) -> bool {
        self.shared.wait_while_busy(Instant::now() + ROOM_WAIT_MAX)
    }

    /// Writes what is only in memory to the disk before the process ends, so that the next start reads little of the log.
    /// Gives up after a while: the log has all of it.
    pub fn flush_at_stop(&self) {
        match self.flush() {
            Ok(()) if self.shared.wait_while_busy(Instant::now() + STOP_WAIT_MAX) => {}
            Ok(()) => tracing::warn!(dir = %self.shared.dir.display(), "the disk is slow; a flush is left unfinished"),
            Err(error) => tracing::warn!(%error, "an embedded store was not flushed"),
        }
    }
}

impl Shared {
    /// Begins a flush when one is due. Waits for the one before if memory is full twice over. Called by the applier.
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

    /// Tells whether epochs can be applied without waiting for the disk.
    pub(super) fn has_room(&self) -> bool {
        self.recent.read().active.bytes() <= 2 * self.recent_bytes_max || !self.work.lock().busy
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

    /// Begins a flush of all rows in memory unless one is under way. Called by the applier.
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
                .spawn(move || shared.work_off())
                .map_err(|error| self.break_down(format!("no thread for a flush: {error}")))?;
            work.running = true;
        }
        Ok(())
    }

    /// Has the thread stop at the next row or two, and waits for it within bounds.
    pub(super) fn stop_work(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + STOP_WAIT_MAX;
        let mut work = self.work.lock();
        while work.running {
            if self.work_changed.wait_until(&mut work, until).timed_out() {
                tracing::error!(dir = %self.dir.display(), "the disk does not answer; a flush is left unfinished");
                return;
            }
        }
        self.runs.unlock();
    }

    /// The thread: ends when nothing is left to do, the store is being closed, or a write failed.
    fn work_off(&self) {
        loop {
            let done = self.write_frozen().and_then(|()| self.runs.merge(&self.stop, || self.write_frozen()));
            let go_on = match done {
                Ok(Finished::Done) => !self.stop.load(Ordering::Relaxed),
                Ok(Finished::Stopped) => false,
                Err(error) => {
                    self.break_down(error.to_string());
                    false
                }
            };
            let mut work = self.work.lock();
            if !go_on || (!work.due && !self.runs.merge_is_due()) {
                work.running = false;
                work.busy &= self.stop.load(Ordering::Relaxed);
                self.work_changed.notify_all();
                return;
            }
        }
    }

    /// Writes the rows that are set aside, if any are.
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
        self.recent.write().frozen = None;
        self.flushed.send_replace(self.runs.watermark().lsn);
        self.work.lock().busy = false;
        self.work_changed.notify_all();
        Ok(())
    }
}
