//! The disk under a log: exactly the file and directory operations that the log needs.
//!
//! [`RealFiles`] is the operating system. The simulator has its own disk, so the production code is tested against
//! power cuts, torn writes and full disks. Files are trait objects: compared with a system call, the indirect call of a
//! write or a sync costs nothing, and no type of the log needs a type parameter.
//!
//! Must never: leave a half-written file under its final name.

mod real;

use std::io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

pub use real::RealFiles;

use crate::error::LogError;

/// Length of the first segment; each segment is as long as all earlier ones together, up to the maximum.
const SEGMENT_BYTES_MIN: u64 = 2 * 1024 * 1024;
/// Maximum length of a segment.
const SEGMENT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; the file must exist.
    Read,
    /// For reading and writing; the file must exist.
    Write,
    /// For reading and writing; created, or truncated to zero length. Only its owner may read it.
    Create,
    /// For aligned writes that bypass the system's cache. A disk may not support it.
    WriteDirect,
}

/// Locks a log against other processes until it is dropped.
pub type LockGuard = Box<dyn Send + Sync>;

/// A disk, with the guarantees of POSIX: a write is durable after a sync of its file, a file name after a sync of its
/// directory.
pub trait Files: Send + Sync {
    /// Opens a file.
    ///
    /// # Errors
    /// The disk's error.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn LogFile>>;

    /// Reads a whole file.
    ///
    /// # Errors
    /// The disk's error.
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;

    /// Returns the paths of a directory's entries, in any order.
    ///
    /// # Errors
    /// The disk's error.
    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>>;

    /// Creates a directory and its missing parents; an existing directory is left as it is.
    ///
    /// # Errors
    /// The disk's error.
    fn create_dirs(&self, dir: &Path) -> io::Result<()>;

    /// Renames a file within its directory, atomically. An existing file of that name is replaced.
    ///
    /// # Errors
    /// The disk's error.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Open handles to it stay usable.
    ///
    /// # Errors
    /// The disk's error.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// Makes a directory's entries durable.
    ///
    /// # Errors
    /// The disk's error; it is then unknown which entries are durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Returns the absolute path, with links resolved.
    ///
    /// # Errors
    /// The disk's error.
    fn canonical(&self, path: &Path) -> io::Result<PathBuf>;

    /// Takes the lock of the log in `dir`; the caller does so before reading any other byte of it.
    ///
    /// # Errors
    /// [`LogError::Locked`] if another process has the log open; [`LogError::Io`].
    fn lock(&self, dir: &Path) -> Result<LockGuard, LogError>;

    /// Fills `bytes` with random bytes, for names and secrets.
    ///
    /// # Errors
    /// [`LogError::Io`].
    fn random(&self, bytes: &mut [u8]) -> Result<(), LogError>;

    /// Returns whether the log may start threads. Without them the mark is written by
    /// [`DurableLog::idle_mark`](crate::DurableLog::idle_mark) and when the log is closed, and a spare segment is
    /// created on demand.
    fn has_threads(&self) -> bool {
        true
    }

    /// Returns the lengths of the first and of the largest segment, bytes. They must be the same every time a log is
    /// opened.
    fn segment_bytes(&self) -> RangeInclusive<u64> {
        SEGMENT_BYTES_MIN..=SEGMENT_BYTES_MAX
    }
}

/// An open file.
pub trait LogFile: Send + Sync {
    /// Returns the file's length, bytes.
    ///
    /// # Errors
    /// The disk's error.
    fn size(&self) -> io::Result<u64>;

    /// Reads up to `bytes.len()` bytes; returns the number read, 0 at the end.
    ///
    /// # Errors
    /// The disk's error.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Fills `bytes`.
    ///
    /// # Errors
    /// The disk's error; [`io::ErrorKind::UnexpectedEof`] if the file is too short.
    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()>;

    /// Writes all bytes. After an error, any part of them may have been written.
    ///
    /// # Errors
    /// The disk's error.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Reserves space for the first `len` bytes; bytes past the current end read as zeros.
    ///
    /// # Errors
    /// The disk's error; [`io::ErrorKind::Unsupported`] if it cannot reserve.
    fn allocate(&self, len: u64) -> io::Result<()>;

    /// Makes the file's content and length durable (`fdatasync`).
    ///
    /// # Errors
    /// The disk's error; it is then unknown what is durable, and another sync does not reveal it.
    fn sync_data(&self) -> io::Result<()>;

    /// Makes the file's content and all its metadata durable (`fsync`).
    ///
    /// # Errors
    /// As [`LogFile::sync_data`].
    fn sync_all(&self) -> io::Result<()>;
}

/// A file, read or written sequentially from its start.
pub(crate) struct Stream<F> {
    pub file: F,
    at: u64,
}

impl<F> Stream<F> {
    pub(crate) fn new(file: F) -> Self {
        Self { file, at: 0 }
    }
}

impl Read for Stream<Box<dyn LogFile>> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let filled = self.file.read_at(bytes, self.at)?;
        self.at += filled as u64;
        Ok(filled)
    }
}

impl Write for Stream<Box<dyn LogFile>> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_all_at(bytes, self.at)?;
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Fails if another process has the log open.
///
/// # Errors
/// [`LogError::Locked`]; [`LogError::Io`] if the lock cannot be checked.
pub fn check_unused(dir: &Path) -> Result<(), LogError> {
    RealFiles.lock(dir).map(drop)
}

/// Makes a directory's entries durable.
pub(crate) fn sync_directory(files: &dyn Files, path: &Path) -> Result<(), LogError> {
    files.sync_dir(path).map_err(|e| LogError::io("sync directory", path, &e))
}

/// Makes the name of `path` durable, and those of its parent directories: any of them may have been created with it,
/// now or in an interrupted attempt.
pub(crate) fn sync_path(files: &dyn Files, path: &Path) -> Result<(), LogError> {
    sync_names(files, path, &[])
}

/// Does the same as [`sync_path`], and makes the entries of the directories `within` durable. Syncs concurrently if
/// there are threads: a disk commits several name changes at once, and each sync waits for the others anyway.
pub(crate) fn sync_names(files: &dyn Files, path: &Path, within: &[&Path]) -> Result<(), LogError> {
    let path = files.canonical(path).map_err(|e| LogError::io("find", path, &e))?;
    let above: Vec<&Path> = path.ancestors().skip(1).collect();
    let sync = |dir: &Path| match files.sync_dir(dir) {
        // A directory that this process may not open, or that cannot be synced, was not created by it.
        Err(error)
            if matches!(error.kind(), PermissionDenied | InvalidInput | Unsupported)
                && above.get(1..).is_some_and(|higher| higher.contains(&dir)) =>
        {
            Ok(())
        }
        result => result.map_err(|e| LogError::io("sync directory", dir, &e)),
    };
    let dirs = above.iter().chain(within);
    if !files.has_threads() {
        return dirs.copied().try_for_each(sync);
    }
    std::thread::scope(|scope| {
        let start = |dir| (dir, std::thread::Builder::new().spawn_scoped(scope, move || sync(dir)));
        let started: Vec<_> = dirs.copied().map(start).collect();
        started.into_iter().try_for_each(|(dir, thread)| match thread.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(synced)) => synced,
            // The thread could not be started, or it panicked: sync on this one.
            _ => sync(dir),
        })
    })
}

/// Creates a directory; an existing one is left as it is.
pub(crate) fn create_directory(files: &dyn Files, path: &Path) -> Result<(), LogError> {
    files.create_dirs(path).map_err(|e| LogError::io("create", path, &e))
}

/// Returns the paths of a directory's entries, in any order.
pub(crate) fn list(files: &dyn Files, dir: &Path) -> Result<Vec<PathBuf>, LogError> {
    files.list(dir).map_err(|e| LogError::io("read", dir, &e))
}

/// Returns the last part of a path.
pub(crate) fn name_of(path: &Path) -> std::borrow::Cow<'_, str> {
    path.file_name().unwrap_or_default().to_string_lossy()
}

/// Replaces or creates a file, durably and atomically: after a failure or a crash it has either the old content or the
/// new.
pub(crate) fn replace(files: &dyn Files, path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    write_aside(files, path, bytes)?;
    put_aside_in_place(files, path)
}

/// Creates a file whose name the caller makes durable later, together with others of the same directory.
pub(crate) fn create(files: &dyn Files, path: &Path, bytes: &[u8]) -> Result<(), LogError> {
    write_aside(files, path, bytes)?;
    rename_aside(files, path)
}

/// Writes the new content of a file next to it, durably. A failure leaves nothing; a crash may leave a file that is
/// never read.
pub(crate) fn write_aside(files: &dyn Files, path: &Path, bytes: &[u8]) -> Result<Box<dyn LogFile>, LogError> {
    let write = || -> io::Result<Box<dyn LogFile>> {
        let file = files.open(&aside(path), OpenMode::Create)?;
        file.write_all_at(bytes, 0)?;
        file.sync_all()?;
        Ok(file)
    };
    write().map_err(|error| {
        remove_aside(files, path);
        LogError::io("write", path, &error)
    })
}

/// Replaces a file by the one that [`write_aside`] wrote, durably.
pub(crate) fn put_aside_in_place(files: &dyn Files, path: &Path) -> Result<(), LogError> {
    rename_aside(files, path)?;
    path.parent().map_or(Ok(()), |parent| sync_directory(files, parent))
}

fn rename_aside(files: &dyn Files, path: &Path) -> Result<(), LogError> {
    files.rename(&aside(path), path).map_err(|error| {
        remove_aside(files, path);
        LogError::io("write", path, &error)
    })
}

/// Removes the leftover of an attempt to replace a file.
pub(crate) fn remove_aside(files: &dyn Files, path: &Path) {
    let _ = files.remove(&aside(path));
}

fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    path.with_file_name(name)
}

/// Reads a file; `None` if it does not exist.
pub(crate) fn read(files: &dyn Files, path: &Path) -> Result<Option<Vec<u8>>, LogError> {
    match files.read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LogError::io("read", path, &error)),
    }
}
