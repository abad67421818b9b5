//! The bytes of a store's rows, for quotas. Known at every moment without a look at the disk.
//!
//! Rows in memory count as much as their entries in a run will, however much memory they take: what counts is the disk.
//! Every version in a run counts, until the runs are merged.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::runs;

/// Bytes that an entry takes besides its key and value.
pub const ENTRY_OVERHEAD_BYTES: usize = runs::entry::HEAD_BYTES;

/// The bytes of one store. Outlives the store: the files are still there.
#[derive(Debug, Default)]
pub struct StoredBytes {
    /// In the files of the runs.
    flushed: AtomicU64,
    /// In memory, not flushed yet.
    recent: AtomicU64,
}

impl StoredBytes {
    /// Creates the count of a store that is not open and has files of `flushed` bytes.
    #[must_use]
    pub fn of_files(flushed: u64) -> StoredBytes {
        StoredBytes { flushed: AtomicU64::new(flushed), recent: AtomicU64::new(0) }
    }

    /// Reads the count of a store that is not open from its manifest in `dir`; 0 if there is none that can be read.
    #[must_use]
    pub fn read(dir: &Path) -> StoredBytes {
        StoredBytes::of_files(runs::bytes_in(dir).unwrap_or(0))
    }

    /// Leaves out the rows that were only in memory. Called when the store is closed: its log has them.
    pub fn closed(&self) {
        self.set_recent(0);
    }

    /// Returns the bytes in files.
    #[must_use]
    pub fn flushed(&self) -> u64 {
        self.flushed.load(Ordering::Relaxed)
    }

    /// Returns all bytes.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.flushed().saturating_add(self.recent.load(Ordering::Relaxed))
    }

    pub(super) fn set_recent(&self, bytes: u64) {
        self.recent.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn set_flushed(&self, bytes: u64) {
        self.flushed.store(bytes, Ordering::Relaxed);
    }
}
