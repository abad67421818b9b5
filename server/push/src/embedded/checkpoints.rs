//! Writes rows from memory into runs, and merges runs, on a thread that exists while there is such work.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::journal::Journal;
use super::runs::Finished;
use super::{EmbeddedError, Shared};

/// How long a push waits for the checkpoint before it.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a store that is being closed waits for its thread. A disk that does not answer must not hold up the end of
/// the process; what was promised is durable already.
const STOP_WAIT_MAX: Duration = Duration::from_secs(5);

/// Hands checkpoints to their thread.
#[derive(Default)]
pub(super) struct Work {
    /// Journal files to remove after the checkpoint that is due.
    due: Option<Vec<PathBuf>>,
    /// From the moment a checkpoint is due until it is done.
    busy: bool,
    /// Whether the thread exists.
    running: bool,
}

/// Why a push finds no room.
pub(super) enum NoRoom {
    /// The disk is slow; the same push may be tried again.
    Busy(String),
    /// The store has stopped.
    Broken(String),
}

impl Shared {
    /// Waits for the checkpoint under way, then begins one of all rows in memory.
    pub(super) fn begin_checkpoint(self: &Arc<Self>, journal: &mut Journal) -> Result<(), NoRoom> {
        let until = Instant::now() + ROOM_WAIT_MAX;
        let mut work = self.work.lock();
        while work.busy {
            if self.work_changed.wait_until(&mut work, until).timed_out() && work.busy {
                let seconds = ROOM_WAIT_MAX.as_secs();
                return Err(NoRoom::Busy(format!("the disk has been writing a checkpoint for {seconds} s")));
            }
        }
        self.usable().map_err(NoRoom::Broken)?;
        let files = journal.turn();
        self.recent.write().freeze();
        work.due = Some(files);
        work.busy = true;
        if !work.running {
            let shared = Arc::clone(self);
            let thread = std::thread::Builder::new().name("checkpoint".to_owned());
            thread
                .spawn(move || shared.work_off())
                .map_err(|error| NoRoom::Broken(self.break_down(format!("no thread for a checkpoint: {error}"))))?;
            work.running = true;
        }
        Ok(())
    }

    /// Tells whether a checkpoint is due or being written.
    pub(super) fn checkpoint_busy(&self) -> bool {
        self.work.lock().busy
    }

    /// Has the thread stop at the next row or two, and waits for it within bounds.
    pub(super) fn stop_work(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let until = Instant::now() + STOP_WAIT_MAX;
        let mut work = self.work.lock();
        while work.running {
            if self.work_changed.wait_until(&mut work, until).timed_out() {
                tracing::error!(dir = %self.dir.display(), "the disk does not answer; a checkpoint is left unfinished");
                return;
            }
        }
        self.runs.unlock();
    }

    /// The thread: ends when nothing is left to do, the store is being closed, or a write failed.
    fn work_off(&self) {
        loop {
            let done = self.checkpoint().and_then(|()| self.runs.merge(&self.stop, || self.checkpoint()));
            let go_on = match done {
                Ok(Finished::Done) => !self.stop.load(Ordering::Relaxed),
                Ok(Finished::Stopped) => false,
                Err(error) => {
                    self.break_down(error.to_string());
                    false
                }
            };
            let mut work = self.work.lock();
            if !go_on || (work.due.is_none() && !self.runs.merge_is_due()) {
                work.running = false;
                work.busy &= self.stop.load(Ordering::Relaxed);
                self.work_changed.notify_all();
                return;
            }
        }
    }

    /// Writes the checkpoint that is due, if one is.
    fn checkpoint(&self) -> Result<(), EmbeddedError> {
        let Some(files) = self.work.lock().due.take() else { return Ok(()) };
        let frozen = self.recent.read().frozen.clone();
        if let Some(frozen) = frozen
            && self.runs.checkpoint(&frozen.0, frozen.1, &self.stop)? == Finished::Stopped
        {
            return Ok(());
        }
        self.recent.write().frozen = None;
        for file in files {
            // One that stays is older than the watermark, so the next start passes over it.
            let _ = fs::remove_file(file);
        }
        self.work.lock().busy = false;
        self.work_changed.notify_all();
        Ok(())
    }
}
