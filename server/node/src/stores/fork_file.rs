//! Remembers that a storage was found ahead of its log, and where the log ended: it was restored from a backup, or is a
//! copy. As soon as the log is past that position, nothing else distinguishes the storage from one that is up to date, and the
//! records in between would never be pushed to it.
//!
//! One line, `<generation> <LSN>`; another declaration or an attachment of the store makes it void.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tribunal_disk::{replace, sync_directory};
use tribunal_types::{ControlIndex, Lsn, StoreId};

/// The file of one store.
#[derive(Clone, Debug)]
pub struct ForkFile(PathBuf);

impl ForkFile {
    /// Names the file of a store below the data directory.
    #[must_use]
    pub fn new(data: &Path, store: StoreId) -> ForkFile {
        ForkFile(data.join("stores").join(format!("{store}.fork")))
    }

    /// Returns where the log ended when the storage of this declaration was found ahead of it.
    #[must_use]
    pub fn read(&self, generation: ControlIndex) -> Option<Lsn> {
        let text = fs::read_to_string(&self.0).ok()?;
        let (of, lsn) = text.trim_end().split_once(' ')?;
        if of != generation.0.to_string() {
            return None;
        }
        lsn.parse().ok().map(Lsn)
    }

    /// Replaces or removes the line; durable unless the disk fails, and then the push has stopped all the same.
    pub fn write(&self, generation: ControlIndex, fork: Option<Lsn>) {
        let Some(dir) = self.0.parent() else { return };
        let write = || -> std::io::Result<()> {
            match fork {
                Some(fork) => {
                    fs::create_dir_all(dir)?;
                    replace(&self.0, format!("{} {fork}\n", generation.0).as_bytes())
                }
                None => match fs::remove_file(&self.0) {
                    Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                    _ => sync_directory(dir),
                },
            }
        };
        if let Err(error) = write() {
            tracing::error!(path = %self.0.display(), %error, "cannot record that a storage is ahead of its log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fork_is_of_one_declaration() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = ForkFile::new(dir.path(), StoreId(3));
        assert_eq!(file.read(ControlIndex(4)), None);
        file.write(ControlIndex(4), Some(Lsn(20)));
        assert_eq!((file.read(ControlIndex(4)), file.read(ControlIndex(5))), (Some(Lsn(20)), None));
        file.write(ControlIndex(4), None);
        assert_eq!(file.read(ControlIndex(4)), None);
    }
}
