//! What of the journal is not on the disk yet, and the thread that brings it there soon.
//!
//! A push is a copy of what Tribunal's own log holds durably, so a store that falls back after a power cut only has it
//! pushed again. Syncing each push made commits wait for a second disk write that protects nothing; now the journal is
//! synced at most [`PACE`] after a push, and before anything is dropped from the log ([`Behind::sync`]). Invariant: once
//! `sync` has returned, everything that was appended before the call is durable.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// How long pushes are collected for one sync.
const PACE: Duration = Duration::from_millis(50);

/// Journal files with bytes that may be in the kernel's cache only.
#[derive(Default)]
pub(super) struct Behind {
    state: Mutex<State>,
    changed: Condvar,
    /// One sync at a time: whoever comes second must not return before the first has.
    syncing: Mutex<()>,
}

#[derive(Default)]
struct State {
    files: Vec<Arc<File>>,
    stop: bool,
}

impl Behind {
    /// Notes that bytes were appended to `file`.
    pub(super) fn note(&self, file: &Arc<File>) {
        let mut state = self.state.lock();
        if !state.files.iter().any(|known| Arc::ptr_eq(known, file)) {
            state.files.push(Arc::clone(file));
            self.changed.notify_one();
        }
    }

    /// Makes everything durable that was noted before.
    ///
    /// # Errors
    /// What the system says; what was to be synced is in doubt then, and a further call would not notice.
    pub(super) fn sync(&self) -> io::Result<()> {
        let _one = self.syncing.lock();
        let files = std::mem::take(&mut self.state.lock().files);
        files.iter().try_for_each(|file| file.sync_data())
    }

    /// Syncs behind pushes until [`Behind::stop`], and once more then.
    ///
    /// # Errors
    /// Of the first sync that failed.
    pub(super) fn run(&self) -> io::Result<()> {
        loop {
            let stop = {
                let mut state = self.state.lock();
                while state.files.is_empty() && !state.stop {
                    self.changed.wait(&mut state);
                }
                if !state.stop {
                    // Woken early only to stop.
                    self.changed.wait_while_for(&mut state, |state| !state.stop, PACE);
                }
                state.stop
            };
            self.sync()?;
            if stop {
                return Ok(());
            }
        }
    }

    /// Tells whether nothing is noted.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.state.lock().files.is_empty()
    }

    /// Ends [`Behind::run`].
    pub(super) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }
}
