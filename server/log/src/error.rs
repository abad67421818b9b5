//! Errors of a log, grouped by the reaction they call for.

use std::fmt;
use std::path::{Path, PathBuf};

/// The id of the process that has a log open, if known. For messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder(pub Option<u32>);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => write!(f, "process {id}"),
            None => f.write_str("another process"),
        }
    }
}

/// Why the log refused an operation.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LogError {
    /// Another process has the log open.
    #[error("{} is in use by {holder}; stop that one, or name another folder", .path.display())]
    Locked {
        /// The directory.
        path: PathBuf,
        /// The process that has it open.
        holder: Holder,
    },
    /// Acknowledged entries are missing or unreadable.
    #[error("the log in {} is damaged: {reason}. Restore it from a backup, or salvage what can be read", .path.display())]
    Damaged {
        /// The directory.
        path: PathBuf,
        /// The damage.
        reason: String,
    },
    /// A write or a sync failed: the disk content is unknown. Final.
    #[error("the log cannot be written: {reason}")]
    DurabilityInDoubt {
        /// The operation that failed.
        reason: String,
    },
    /// A file operation failed before anything was promised.
    #[error("{reason}")]
    Io {
        /// The operation, the file and the cause.
        reason: String,
    },
    /// The caller appended something that does not follow the log's end. A bug in this program.
    #[error("{what} cannot follow: {reason}")]
    OutOfOrder {
        /// The rejected item.
        what: &'static str,
        /// Why it cannot follow.
        reason: String,
    },
}

impl LogError {
    pub(crate) fn damaged(path: &Path, reason: impl Into<String>) -> Self {
        LogError::Damaged { path: path.to_owned(), reason: reason.into() }
    }

    pub(crate) fn io(what: &str, path: &Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind::{FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let way_out = match error.kind() {
            StorageFull | QuotaExceeded => ". Nothing is lost: make room on that disk, then start again",
            FileTooLarge => ". Nothing is lost: raise the limit of file sizes (`ulimit -f`), then start again",
            PermissionDenied | ReadOnlyFilesystem => {
                ". The data directory (`data` in the configuration, or --data) must be writable for the user of this process: \
                 change its owner or its mount, or name another one"
            }
            _ => "",
        };
        LogError::Io { reason: format!("{what} {}: {error}{way_out}", path.display()) }
    }
}
