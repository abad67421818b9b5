//! Records that a storage was found to have followed another history than its log, and the last record that both can have
//! in common: the log was restored from a backup, or is a copy. Once the log is past the storage's position, perhaps nothing
//! else distinguishes the storage from an up-to-date one, and the records in between would never be pushed to it.
//!
//! One line, `<generation> <LSN>`; a new declaration or attachment of the store voids it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use tribunal_disk::{remove, replace};
use tribunal_types::{ControlIndex, Lsn, StoreId};

/// The file of one store.
#[derive(Clone, Debug)]
pub struct ForkFile(PathBuf);

impl ForkFile {
    /// Returns the file of a store below the data directory.
    #[must_use]
    pub fn new(data: &Path, store: StoreId) -> ForkFile {
        ForkFile(data.join("stores").join(format!("{store}.fork")))
    }

    /// Returns the last record that the storage of this declaration can have in common with the log, if it was found to
    /// have others.
    ///
    /// # Errors
    /// If the file exists and cannot be read: the storage may be one that was ahead.
    pub fn read(&self, generation: ControlIndex) -> Result<Option<Lsn>, String> {
        let text = match fs::read_to_string(&self.0) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.unreadable(&error.to_string())),
        };
        let line = text.trim_end().split_once(' ');
        let numbers = line.and_then(|(of, lsn)| Some((of.parse().ok()?, lsn.parse().ok()?)));
        let (of, lsn) = numbers.ok_or_else(|| self.unreadable("it is not a declaration and an LSN"))?;
        Ok((ControlIndex(of) == generation).then_some(Lsn(lsn)))
    }

    fn unreadable(&self, why: &str) -> String {
        format!(
            "{} cannot be read ({why}); it says up to which LSN the storage can have followed this log. Repair it; or remove it \
             if the storage has nothing that the log does not have",
            self.0.display()
        )
    }

    /// Replaces or removes the line; durable unless the disk fails, in which case the push has stopped all the same.
    pub fn write(&self, generation: ControlIndex, fork: Option<Lsn>) {
        let Some(dir) = self.0.parent() else { return };
        let write = || -> std::io::Result<()> {
            match fork {
                Some(fork) => {
                    tribunal_disk::create_private_directories(dir)?;
                    replace(&self.0, format!("{} {fork}\n", generation.0).as_bytes())
                }
                None => remove(&self.0),
            }
        };
        if let Err(error) = write() {
            tracing::error!(path = %self.0.display(), %error, "cannot record that a storage has followed another history");
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
        assert_eq!(file.read(ControlIndex(4)), Ok(None));
        file.write(ControlIndex(4), Some(Lsn(20)));
        assert_eq!((file.read(ControlIndex(4)), file.read(ControlIndex(5))), (Ok(Some(Lsn(20))), Ok(None)));
        file.write(ControlIndex(4), None);
        assert_eq!(file.read(ControlIndex(4)), Ok(None));
    }

    #[test]
    fn a_file_that_cannot_be_read_does_not_count_as_none() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = ForkFile::new(dir.path(), StoreId(3));
        file.write(ControlIndex(4), Some(Lsn(20)));
        for damaged in ["", "4", "4 x", "\u{fffd} 20"] {
            fs::write(&file.0, damaged).expect("written");
            let refused = file.read(ControlIndex(4)).expect_err("it is no line");
            assert!(refused.contains("3.fork") && refused.contains("remove"), "{refused}");
        }
        fs::remove_file(&file.0).expect("removed");
        fs::create_dir(&file.0).expect("created");
        assert!(file.read(ControlIndex(4)).is_err(), "it is there, and cannot be read");
    }
}
