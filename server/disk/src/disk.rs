//! One database directory: opening, the one way to make it durable, and the state after a failure.

use std::fs::{self, File, OpenOptions};
use std::mem::ManuallyDrop;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::error::DiskError;
use crate::guard::guarded;
use crate::tree::Tree;

/// Bytes of a sled segment: the largest it takes, so that a page of 16 values and more fits a quarter of it.
const SEGMENT_BYTES: usize = 16 * 1024 * 1024;
/// sled's own minimum for a useful cache.
const CACHE_BYTES_MIN: u64 = 8 * 1024 * 1024;

/// How often and how long sled's own lock is waited for.
const RELEASE_POLL: Duration = Duration::from_millis(2);
const RELEASE_WAIT_MAX: Duration = Duration::from_secs(10);

/// How to open a database.
#[derive(Clone, Copy, Debug)]
pub struct DiskOptions {
    /// Bytes of sled's page cache.
    pub cache_bytes: u64,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self { cache_bytes: 64 * 1024 * 1024 }
    }
}

/// Proof that everything written before a [`Disk::sync`] is on the platter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Durable {
    /// Number of the sync within this process.
    pub sync: u64,
}

/// An open database. Clones share it; the last one closes it.
#[derive(Clone)]
pub struct Disk {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    /// Dropped by hand: after a failure sled's destructor would sync once more, and that must not happen.
    db: ManuallyDrop<sled::Db>,
    /// A handle of our own on the file that sled writes; it sees every write error since it was opened.
    file: File,
    path: PathBuf,
    /// First failure of a write or sync; set once, never cleared.
    failed: OnceLock<String>,
    syncs: AtomicU64,
    /// Modification time of `blobs/` when it was last known to be synced, nanoseconds.
    blobs_changed_ns: AtomicI64,
    /// Held as long as the database is open.
    _lock: File,
}

impl Disk {
    /// Opens the database in `dir`, creating it if the directory holds none.
    ///
    /// # Errors
    /// [`DiskError::Locked`], [`DiskError::Damaged`] with what sled said, or [`DiskError::Io`].
    pub fn open(dir: &Path, options: &DiskOptions) -> Result<Self, DiskError> {
        fs::create_dir_all(dir).map_err(|e| DiskError::io("create", dir, &e))?;
        let lock = lock(dir)?;
        remove_unfinished_snapshots(dir)?;
        let fresh = !dir.join("db").exists();
        let config = sled::Config::new()
            .path(dir)
            .segment_size(SEGMENT_BYTES)
            .cache_capacity(options.cache_bytes.max(CACHE_BYTES_MIN))
            .flush_every_ms(None)
            .mode(sled::Mode::HighThroughput);
        let db = open_sled(&config, dir)?;
        let db = ManuallyDrop::new(db);
        let path = dir.join("db");
        let file = File::open(&path).map_err(|e| DiskError::io("open", &path, &e))?;
        if fresh {
            for name in ["conf", "db"] {
                let path = dir.join(name);
                File::open(&path).and_then(|f| f.sync_all()).map_err(|e| DiskError::io("sync", &path, &e))?;
            }
            sync_directory(&dir.join("blobs"))?;
            sync_directory(dir)?;
            if let Some(parent) = dir.canonicalize().ok().as_deref().and_then(Path::parent) {
                sync_directory(parent)?;
            }
        }
        let inner = Inner {
            db,
            file,
            path: dir.to_owned(),
            failed: OnceLock::new(),
            syncs: AtomicU64::new(0),
            blobs_changed_ns: AtomicI64::new(0),
            _lock: lock,
        };
        inner.blobs_changed_ns.store(inner.blobs_modified_ns()?, Ordering::Relaxed);
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Opens the tree `name`, creating it if it does not exist. Creation is durable with the next [`Disk::sync`].
    ///
    /// # Errors
    /// If the database is damaged or failed before.
    pub fn tree(&self, name: &str) -> Result<Tree, DiskError> {
        self.inner.check()?;
        let tree = guarded(|| self.inner.db.open_tree(name.as_bytes())).map_err(|reason| self.inner.damaged(reason))?;
        Ok(Tree::new(tree, Arc::clone(&self.inner)))
    }

    /// Makes everything written so far durable: sled's buffers to the file, then one `fdatasync` of it.
    ///
    /// # Errors
    /// [`DiskError::DurabilityInDoubt`], from then on for every write and sync.
    pub fn sync(&self) -> Result<Durable, DiskError> {
        self.inner.sync()
    }

    /// Returns the number of `fdatasync` calls on the database file so far.
    #[must_use]
    pub fn fdatasyncs(&self) -> u64 {
        self.inner.syncs.load(Ordering::Relaxed)
    }

    /// Returns the length of the database file, bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inner.file.metadata().map_or(0, |m| m.len())
    }

    /// Returns the database's directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Tells whether a write or sync has failed, and how.
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.inner.failed.get().map(String::as_str)
    }
}

impl Inner {
    pub(crate) fn check(&self) -> Result<(), DiskError> {
        match self.failed.get() {
            None => Ok(()),
            Some(reason) => Err(DiskError::DurabilityInDoubt { reason: reason.clone() }),
        }
    }

    /// Remembers the first failed write or sync.
    pub(crate) fn fail(&self, reason: String) -> DiskError {
        DiskError::DurabilityInDoubt { reason: self.failed.get_or_init(|| reason).clone() }
    }

    pub(crate) fn damaged(&self, reason: String) -> DiskError {
        DiskError::Damaged { path: self.path.clone(), reason }
    }

    fn sync(&self) -> Result<Durable, DiskError> {
        self.check()?;
        guarded(|| self.db.flush()).map_err(|reason| self.fail(format!("flush: {reason}")))?;
        self.sync_blobs()?;
        rustix::fs::fdatasync(&self.file).map_err(|error| self.fail(format!("fdatasync: {error}")))?;
        Ok(Durable { sync: self.syncs.fetch_add(1, Ordering::Relaxed) + 1 })
    }

    fn blobs_modified_ns(&self) -> Result<i64, DiskError> {
        let path = self.path.join("blobs");
        let metadata = fs::metadata(&path).map_err(|e| DiskError::io("look at", &path, &e))?;
        Ok(metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec())
    }

    /// Syncs the files that sled put beside the database, if there are new ones. One `stat` otherwise.
    fn sync_blobs(&self) -> Result<(), DiskError> {
        let modified = self.blobs_modified_ns().map_err(|e| self.fail(e.to_string()))?;
        if modified == self.blobs_changed_ns.load(Ordering::Relaxed) {
            return Ok(());
        }
        let path = self.path.join("blobs");
        let sync_all = || -> std::io::Result<()> {
            for entry in fs::read_dir(&path)? {
                // Garbage collection may remove a file meanwhile; then nothing points at it any more.
                if let Ok(file) = File::open(entry?.path()) {
                    file.sync_all()?;
                }
            }
            File::open(&path)?.sync_all()
        };
        sync_all().map_err(|error| self.fail(format!("sync of {}: {error}", path.display())))?;
        self.blobs_changed_ns.store(modified, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.failed.get().is_some() {
            // Not closed on purpose: sled would sync again and call that a success. The process is about to end.
            return;
        }
        // SAFETY: `db` is dropped here and nowhere else, and `self` is not used afterwards.
        let db = unsafe { ManuallyDrop::take(&mut self.db) };
        // A destructor that panics within another panic would abort; what was promised is durable already.
        let _ = guarded(move || {
            drop(db);
            Ok(())
        });
    }
}

/// Opens sled. A database that this process has just closed is released a moment later, when sled's last deferred job
/// drops the file: its lock is waited for, because ours is held already and no other process can hold it.
fn open_sled(config: &sled::Config, dir: &Path) -> Result<sled::Db, DiskError> {
    let mut waited = Duration::ZERO;
    loop {
        match guarded(|| config.open()) {
            Ok(db) => return Ok(db),
            // The kinds of error are lost in sled's text; this one needs another way out than damage does.
            Err(reason) if reason.contains("No space left on device") => {
                return Err(DiskError::Io { what: "open", path: dir.to_owned(), reason });
            }
            Err(reason) if !reason.contains("could not acquire lock") => {
                return Err(DiskError::Damaged { path: dir.to_owned(), reason });
            }
            Err(_) if waited >= RELEASE_WAIT_MAX => return Err(DiskError::Locked { path: dir.to_owned() }),
            Err(_) => std::thread::sleep(RELEASE_POLL),
        }
        waited += RELEASE_POLL;
    }
}

/// Removes snapshots of the page table that were never finished. sled writes one whenever it opens a database, takes one
/// that was cut short (by a full disk, or a crash) for the newest, and then refuses the database for good. A snapshot only
/// saves time: without it sled reads its file from the start.
fn remove_unfinished_snapshots(dir: &Path) -> Result<(), DiskError> {
    for entry in fs::read_dir(dir).map_err(|e| DiskError::io("read", dir, &e))? {
        let path = entry.map_err(|e| DiskError::io("read", dir, &e))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            fs::remove_file(&path).map_err(|e| DiskError::io("remove", &path, &e))?;
        }
    }
    Ok(())
}

/// Takes the directory's lock, before sled looks at a single byte.
fn lock(dir: &Path) -> Result<File, DiskError> {
    let path = dir.join("lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .map_err(|e| DiskError::io("open", &path, &e))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(DiskError::Locked { path: dir.to_owned() }),
        Err(error) => Err(DiskError::io("lock", path, &error.into())),
    }
}

/// Makes a directory's entries durable.
///
/// # Errors
/// If it cannot be opened or synced.
pub fn sync_directory(path: &Path) -> Result<(), DiskError> {
    File::open(path).and_then(|f| f.sync_all()).map_err(|e| DiskError::io("sync directory", path, &e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{VALUE_BYTES_MAX, WriteBatch};

    struct Dir(PathBuf);
    impl Dir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("tribunal-disk-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }
    }
    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_was_synced_is_there_again_and_each_sync_is_one_fdatasync() {
        let dir = Dir::new("again");
        let disk = Disk::open(&dir.0, &DiskOptions::default()).unwrap();
        let tree = disk.tree("t").unwrap();
        for n in 0..100_u64 {
            tree.put(&n.to_be_bytes(), &[n as u8; 1000]).unwrap();
            assert_eq!(disk.sync().unwrap().sync, n + 1);
        }
        assert_eq!(disk.fdatasyncs(), 100);
        drop((disk, tree));
        let disk = Disk::open(&dir.0, &DiskOptions::default()).unwrap();
        let tree = disk.tree("t").unwrap();
        assert_eq!(tree.scan(..).count(), 100);
        assert_eq!(tree.get(&7_u64.to_be_bytes()).unwrap().unwrap(), vec![7; 1000]);
        assert_eq!(disk.fdatasyncs(), 0, "an idle database syncs nothing");
    }

    #[test]
    fn a_snapshot_that_a_full_disk_cut_short_does_not_damage_the_database() {
        let dir = Dir::new("snapshot");
        let disk = Disk::open(&dir.0, &DiskOptions::default()).unwrap();
        disk.tree("t").unwrap().put(b"k", b"v").unwrap();
        disk.sync().unwrap();
        drop(disk);
        for cut in [&b""[..], b"some bytes of it"] {
            fs::write(dir.0.join("snap.00000000FFFFFFFF.generating"), cut).unwrap();
            let disk = Disk::open(&dir.0, &DiskOptions::default()).unwrap();
            assert_eq!(disk.tree("t").unwrap().get(b"k").unwrap().unwrap(), b"v");
        }
    }

    #[test]
    fn the_second_process_is_turned_away() {
        let dir = Dir::new("lock");
        let disk = Disk::open(&dir.0, &DiskOptions::default()).unwrap();
        assert!(matches!(Disk::open(&dir.0, &DiskOptions::default()), Err(DiskError::Locked { .. })));
        drop(disk);
        // Repeatedly: sled releases its file some time after it is closed.
        for _ in 0..20 {
            let disk = Disk::open(&dir.0, &DiskOptions::default()).unwrap();
            disk.tree("t").unwrap().put(b"k", b"v").unwrap();
            disk.sync().unwrap();
        }
    }

    #[test]
    fn full_pages_of_the_largest_values_make_no_file_beside_the_database() {
        let dir = Dir::new("blobs");
        let disk = Disk::open(&dir.0, &DiskOptions::default()).unwrap();
        let tree = disk.tree("t").unwrap();
        for n in 0..200_u32 {
            tree.put(&n.to_be_bytes(), &vec![n as u8; VALUE_BYTES_MAX]).unwrap();
            if n > 40 {
                tree.delete(&(n - 40).to_be_bytes()).unwrap();
            }
        }
        disk.sync().unwrap();
        assert_eq!(fs::read_dir(dir.0.join("blobs")).unwrap().count(), 0);
        let refused = tree.put(b"k", &vec![0; VALUE_BYTES_MAX + 1]);
        assert!(matches!(refused, Err(DiskError::ValueTooLarge { .. })));
    }

    #[test]
    fn a_write_batch_is_applied_as_a_whole() {
        let dir = Dir::new("batch");
        let disk = Disk::open(&dir.0, &DiskOptions::default()).unwrap();
        let tree = disk.tree("t").unwrap();
        tree.put(b"gone", b"1").unwrap();
        let mut batch = WriteBatch::default();
        batch.put(b"a", b"1").unwrap();
        batch.delete(b"gone");
        tree.apply(batch).unwrap();
        let rows: Vec<_> = tree.scan(..).map(Result::unwrap).collect();
        assert_eq!(rows, [(b"a".to_vec(), b"1".to_vec())]);
        assert_eq!(tree.last().unwrap(), Some((b"a".to_vec(), b"1".to_vec())));
    }

    #[test]
    fn a_file_that_is_no_database_is_an_error_that_names_it() {
        let dir = Dir::new("garbage");
        fs::create_dir_all(&dir.0).unwrap();
        fs::write(dir.0.join("conf"), b"this is not a sled configuration at all").unwrap();
        fs::write(dir.0.join("db"), vec![0xA5; 70_000]).unwrap();
        match Disk::open(&dir.0, &DiskOptions::default()) {
            Err(DiskError::Damaged { path, .. }) => assert_eq!(path, dir.0),
            other => panic!("expected damage, got {:?}", other.map(|d| d.bytes())),
        }
    }
}
