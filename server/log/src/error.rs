//! What can go wrong with a log, by what to do about it.

use std::path::{Path, PathBuf};

use tribunal_disk::DiskError;

/// Why the log refuses.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// Another process has the log open.
    #[error("{} is in use by another process; stop that one, or name another folder", .path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
    },
    /// Acknowledged entries are missing or unreadable.
    #[error(
        "the log in {dir} is damaged: {reason}. Restore it from a copy, or keep what can be read with \
         `tribunal log salvage {dir}`, which reports what is lost",
        dir = .path.display()
    )]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A write or a sync failed: nobody knows what is on disk. Final.
    #[error("durability in doubt: {reason}. Nothing more is acknowledged; stop, check the disk, start again")]
    DurabilityInDoubt {
        /// What failed.
        reason: String,
    },
    /// A file operation failed before anything was promised.
    #[error("{reason}")]
    Io {
        /// What, where and why.
        reason: String,
    },
    /// The caller appended something that cannot follow. A mistake of this program.
    #[error("{what} cannot follow: {reason}")]
    OutOfOrder {
        /// What was appended.
        what: &'static str,
        /// Why it cannot.
        reason: String,
    },
}

impl LogError {
    pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        LogError::Damaged { path: path.to_owned(), reason: reason.into() }
    }

    pub(crate) fn io(what: &str, path: &Path, error: &std::io::Error) -> Self {
        LogError::Io { reason: format!("{what} {}: {error}", path.display()) }
    }
}

impl From<DiskError> for LogError {
    fn from(error: DiskError) -> Self {
        match error {
            DiskError::Locked { path } => LogError::Locked { path },
            DiskError::Damaged { path, reason } => {
                // The way out names the log's directory, which holds the database's.
                let path = path.parent().map_or(path.clone(), Path::to_owned);
                LogError::Damaged { path, reason }
            }
            DiskError::DurabilityInDoubt { reason } => LogError::DurabilityInDoubt { reason },
            error @ (DiskError::Io { .. } | DiskError::ValueTooLarge { .. }) => {
                LogError::Io { reason: error.to_string() }
            }
        }
    }
}
