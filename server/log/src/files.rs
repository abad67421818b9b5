//! Files and directories of a log as wholes: the lock, durable directory entries, small files replaced at once.
//!
//! Must never: leave a half-written file under its final name, or use a lock file's content for anything but a message.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use crate::error::{Holder, LogError};

/// Longest content of a lock file that is read: a process id.
const HOLDER_BYTES_MAX: u64 = 20;

/// Keeps other processes away from a log as long as it exists.
#[derive(Debug)]
pub(crate) struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a process that is being spawned has a copy of the descriptor until it becomes another
        // program.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Takes the log's lock, before any other byte of it is read.
///
/// # Errors
/// [`LogError::Locked`] if another process has the log open.
pub(crate) fn lock(dir: &Path) -> Result<Lock, LogError> {
    let path = dir.join("lock");
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
    let mut file = file.map_err(|e| LogError::io("open", &path, &e))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            // Tells others who has the log; the disk may be too full for it.
            let _ = file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
            Ok(Lock { file })
        }
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut text = String::new();
            let holder = (&file).take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok().and_then(|_| text.parse().ok());
            Err(LogError::Locked { path: dir.to_owned(), holder: Holder(holder) })
        }
        Err(error) => Err(LogError::io("lock", &path, &error.into())),
    }
}

/// Fails if another process has the log open.
///
/// # Errors
/// [`LogError::Locked`]; [`LogError::Io`] if that cannot be found out.
pub fn check_unused(dir: &Path) -> Result<(), LogError> {
    lock(dir).map(drop)
}

/// Makes a directory's entries durable.
pub(crate) fn sync_directory(path: &Path) -> Result<(), LogError> {
    tribunal_disk::sync_directory(path).map_err(|e| LogError::io("sync directory", path, &e))
}

/// Makes the entry of `path` in its parent durable.
pub(crate) fn sync_parent(path: &Path) -> Result<(), LogError> {
    let path = path.canonicalize().map_err(|e| LogError::io("find", path, &e))?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Creates a directory durably; one that exists is left as it is.
pub(crate) fn create_directory(path: &Path) -> Result<(), LogError> {
    fs::create_dir_all(path).map_err(|e| LogError::io("create", path, &e))
}

/// Replaces a file, or creates it, durably and as a whole: after a failure or a crash it has the old content or the new.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    write_aside(path, bytes)?;
    put_aside_in_place(path)
}

/// Writes what is to replace a file beside it, durably. A failure leaves nothing; what a crash leaves is never read.
pub(crate) fn write_aside(path: &Path, bytes: &[u8]) -> Result<File, LogError> {
    let aside = aside(path);
    let write = || -> io::Result<File> {
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&aside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        Ok(file)
    };
    write().map_err(|error| {
        remove_aside(path);
        LogError::io("write", path, &error)
    })
}

/// Replaces a file by what [`write_aside`] wrote, durably.
pub(crate) fn put_aside_in_place(path: &Path) -> Result<(), LogError> {
    if let Err(error) = fs::rename(aside(path), path) {
        remove_aside(path);
        return Err(LogError::io("write", path, &error));
    }
    path.parent().map_or(Ok(()), sync_directory)
}

/// Removes what an attempt to replace a file left beside it.
pub(crate) fn remove_aside(path: &Path) {
    let _ = fs::remove_file(aside(path));
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Reads a file; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<Vec<u8>>, LogError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LogError::io("read", path, &error)),
    }
}
