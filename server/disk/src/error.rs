//! What can go wrong with a database file, by what to do about it.

use std::io;
use std::path::PathBuf;

/// Why a disk operation failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DiskError {
    /// Another process has the database open.
    #[error("{} is in use by another process; stop that one, or name another folder", .path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// The database cannot be opened or read: the file is damaged or not a database.
    #[error("the database in {} is damaged: {reason}", .path.display())]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// What sled said.
        reason: String,
    },
    /// A file operation failed before anything was promised.
    #[error("{what} {}: {reason}", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// What the system said.
        reason: String,
    },
    /// A write or a sync failed: nobody knows what is on disk. Final; nothing is tried again.
    #[error("durability in doubt, stop and check the disk: {reason}")]
    DurabilityInDoubt {
        /// What failed first.
        reason: String,
    },
    /// A value above [`crate::VALUE_BYTES_MAX`]. The caller must cut it into chunks.
    #[error("a value of {bytes} bytes exceeds {} bytes", crate::VALUE_BYTES_MAX)]
    ValueTooLarge {
        /// Its size.
        bytes: usize,
    },
}

impl DiskError {
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>, error: &io::Error) -> Self {
        DiskError::Io { what, path: path.into(), reason: error.to_string() }
    }
}
