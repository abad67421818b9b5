//! The files of a store, for a copy of it in another node's data directory: the runs as of one flush, and their
//! manifest.
//!
//! A store that is opened on such a copy continues after the last flushed record, as after a restart.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A file of a store. Its content never changes, and stays readable after the store has replaced the file.
#[derive(Debug)]
pub struct StoreFile {
    /// Its name within the store's directory.
    pub name: String,
    /// Its length, bytes.
    pub bytes: u64,
    content: Content,
}

#[derive(Debug)]
enum Content {
    Open(File),
    InMemory(Vec<u8>),
}

impl StoreFile {
    pub(super) fn of_file(name: &str, file: File, bytes: u64) -> StoreFile {
        StoreFile { name: name.to_owned(), bytes, content: Content::Open(file) }
    }

    pub(super) fn of_bytes(name: &str, bytes: Vec<u8>) -> StoreFile {
        StoreFile { name: name.to_owned(), bytes: bytes.len() as u64, content: Content::InMemory(bytes) }
    }

    /// Fills `part` with the bytes from `offset` on.
    ///
    /// # Errors
    /// The disk's error; [`io::ErrorKind::UnexpectedEof`] if the file is too short.
    pub fn read_exact_at(&self, part: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.content {
            Content::Open(file) => file.read_exact_at(part, offset),
            Content::InMemory(bytes) => {
                let from = usize::try_from(offset).ok().and_then(|at| bytes.get(at..)?.get(..part.len()));
                part.copy_from_slice(from.ok_or(io::ErrorKind::UnexpectedEof)?);
                Ok(())
            }
        }
    }
}
