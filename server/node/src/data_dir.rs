//! The places in a node's data directory.

use std::path::{Path, PathBuf};

/// Returns the log's directory within a data directory.
#[must_use]
pub fn log_dir(data: &Path) -> PathBuf {
    data.join("log")
}
