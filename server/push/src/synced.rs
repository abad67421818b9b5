//! sled with a sync of our own: its `flush` only starts writeback, so the database file is synced behind it.

use std::fs::File;
use std::path::Path;

/// A sled database whose `sync` survives power loss.
pub struct Disk {
    db: sled::Db,
    file: File,
}

/// The disk refused.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {text}")]
pub struct DiskError {
    what: &'static str,
    text: String,
}

impl DiskError {
    fn new(what: &'static str, error: impl ToString) -> Self {
        DiskError { what, text: error.to_string() }
    }
}

impl Disk {
    /// Opens the database in `dir`, creating it on first use.
    ///
    /// # Errors
    /// The directory cannot be written, or holds something else.
    pub fn open(dir: &Path, cache_bytes: u64) -> Result<Self, DiskError> {
        let db = sled::Config::new()
            .path(dir)
            .cache_capacity(cache_bytes)
            .flush_every_ms(None)
            .segment_size(8 * 1024 * 1024)
            .open()
            .map_err(|e| DiskError::new("the database cannot be opened", e))?;
        db.flush().map_err(|e| DiskError::new("the database cannot be written", e))?;
        let file = File::open(dir.join("db")).map_err(|e| DiskError::new("the database file cannot be opened", e))?;
        file.sync_all().map_err(|e| DiskError::new("the database file cannot be synced", e))?;
        File::open(dir).and_then(|d| d.sync_all()).map_err(|e| DiskError::new("the directory cannot be synced", e))?;
        Ok(Disk { db, file })
    }

    /// Returns the database.
    #[must_use]
    pub fn db(&self) -> &sled::Db {
        &self.db
    }

    /// Makes everything written so far durable.
    ///
    /// # Errors
    /// What was written may be lost. Never to be tried again: the kernel reports a lost page once.
    pub fn sync(&self) -> Result<(), DiskError> {
        self.db.flush().map_err(|e| DiskError::new("the database cannot be flushed", e))?;
        self.file.sync_data().map_err(|e| DiskError::new("the database file cannot be synced", e))
    }
}
