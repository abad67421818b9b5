//! The files of the operating system: plain system calls.
//!
//! Must never: retry a sync, buffer, use a lock file's content for anything but a message.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::{Files, LockGuard, LogFile, OpenMode};
use crate::error::{Holder, LogError};

/// Maximum length of a lock file's content, a process id.
const HOLDER_BYTES_MAX: u64 = 20;

/// The operating system's files.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFiles;

impl Files for RealFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn LogFile>> {
        let mut options = OpenOptions::new();
        match mode {
            OpenMode::Read => options.read(true),
            OpenMode::Write => options.read(true).write(true),
            // All of them contain client data, and those of cluster members also the secrets of webhooks.
            OpenMode::Create => options.read(true).write(true).create(true).truncate(true).mode(0o600),
            OpenMode::WriteDirect => options.write(true).custom_flags(OFlags::DIRECT.bits().cast_signed()),
        };
        Ok(Box::new(options.open(path)?))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        fs::read(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect()
    }

    fn create_dirs(&self, dir: &Path) -> io::Result<()> {
        tribunal_disk::create_private_directories(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        tribunal_disk::sync_directory(dir)
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        path.canonicalize()
    }

    fn lock(&self, dir: &Path) -> Result<LockGuard, LogError> {
        let path = dir.join("lock");
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(&path);
        let mut file = file.map_err(|e| LogError::io("open", &path, &e))?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                // Tells other processes which one has the log; the disk may be too full for that.
                let _ = file.set_len(0).and_then(|()| file.write_all(std::process::id().to_string().as_bytes()));
                Ok(Box::new(Locked(file)))
            }
            Err(Errno::WOULDBLOCK) => {
                let mut text = String::new();
                let read = (&file).take(HOLDER_BYTES_MAX).read_to_string(&mut text);
                let holder = read.ok().and_then(|_| text.parse().ok());
                Err(LogError::Locked { path: dir.to_owned(), holder: Holder(holder) })
            }
            Err(error) => Err(LogError::io("lock", &path, &error.into())),
        }
    }

    fn random(&self, bytes: &mut [u8]) -> Result<(), LogError> {
        let source = Path::new("/dev/urandom");
        let read = File::open(source).and_then(|mut file| file.read_exact(bytes));
        read.map_err(|e| LogError::io("read", source, &e))
    }
}

/// A lock file that this process has locked.
struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        // Closing is not enough: a child process holds a copy of the descriptor between fork and exec.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl LogFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, bytes, offset)
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, bytes, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        match rustix::fs::fallocate(self, FallocateFlags::empty(), 0, len) {
            Err(Errno::OPNOTSUPP) => Err(io::ErrorKind::Unsupported.into()),
            result => Ok(result?),
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        File::sync_data(self)
    }

    fn sync_all(&self) -> io::Result<()> {
        File::sync_all(self)
    }
}
