//! What this crate's tests share: directories that vanish, raw commands written by hand.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use tribunal_types::{Digest, LogId, WriteKind};

use crate::Origin;

/// A directory removed with its content when dropped.
pub(crate) struct TempDir(PathBuf);

impl TempDir {
    pub(crate) fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let unique = format!("tribunal-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(unique);
        std::fs::create_dir_all(&path).expect("the temporary directory is writable");
        TempDir(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Writes a command in the raw format; every row carries version `to`.
pub(crate) fn raw_command(from: u64, to: u64, rows: &[(WriteKind, &str, &str)]) -> Vec<u8> {
    let count = (rows.len() as u32).to_le_bytes();
    let mut bytes = [&from.to_le_bytes()[..], &to.to_le_bytes(), &count].concat();
    for (kind, key, value) in rows {
        bytes.push(*kind as u8);
        bytes.extend_from_slice(&to.to_le_bytes());
        for piece in [key, value] {
            bytes.extend_from_slice(&(piece.len() as u32).to_le_bytes());
            bytes.extend_from_slice(piece.as_bytes());
        }
    }
    bytes
}

/// Where the commands of tests come from.
pub(crate) const ORIGIN: Origin = Origin { log: LogId([7; 16]), digest: Digest(11) };
