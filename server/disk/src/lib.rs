//! Durable files: synced directories, small files replaced as a whole, and background threads that write.
//!
//! Must never: retry a sync, leave a half-written file under its final name, interpret file content.

mod background;

pub use background::give_way;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Makes a directory's entries durable.
///
/// # Errors
/// The system's error; it is then unknown which entries are durable.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Creates a directory and those above it, if they are missing. Only their owner may use them.
///
/// # Errors
/// The system's error.
pub fn create_private_directories(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Replaces or creates a file, durably and atomically: after a failure or a crash it has either the old content or the
/// new. Only its owner may read it.
///
/// # Errors
/// The system's error; the file has its old content, unless only the sync of the directory failed.
pub fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    replace_with_mode(path, bytes, 0o600)
}

/// As [`replace`], with these permissions, as far as the process's mask allows them.
///
/// # Errors
/// As [`replace`].
pub fn replace_with_mode(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let aside = path.with_file_name(name);
    let write = || {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(mode).open(&aside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&aside, path)
    };
    if let Err(error) = write() {
        let _ = fs::remove_file(&aside);
        return Err(error);
    }
    path.parent().map_or(Ok(()), sync_directory)
}

/// Removes a file durably, if it exists.
///
/// # Errors
/// The system's error; the file may exist again after a crash.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // A missing file may have been removed by an attempt that failed to sync.
        _ => {}
    }
    path.parent().map_or(Ok(()), sync_directory)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let above = std::env::temp_dir().join(format!("tribunal-disk-{}", std::process::id()));
        let dir = above.join("files");
        create_private_directories(&dir).unwrap();
        for dir in [&above, &dir] {
            assert_eq!(fs::metadata(dir).unwrap().permissions().mode() & 0o777, 0o700);
        }
        let path = dir.join("state");
        replace(&path, b"one").unwrap();
        replace(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(), 0o600);
        replace_with_mode(&path, b"two", 0o400).unwrap();
        assert_eq!(mode(), 0o400, "that of the new file");
        // A directory at the path of the file makes the rename fail.
        let taken = dir.join("taken");
        fs::create_dir_all(taken.join("by a directory")).unwrap();
        assert!(replace(&taken, b"three").is_err());
        let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "nothing is left beside: {left:?}");
        assert!(sync_directory(&dir.join("missing")).is_err());
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert!(!path.exists() && remove(&taken).is_err(), "a directory is not removed");
        fs::remove_dir_all(&above).unwrap();
    }
}
