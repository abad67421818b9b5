//! A simulated disk with the guarantees of POSIX and no more, driven by a seed.
//!
//! A write is durable after a sync of its file, a name after a sync of its directory (and of the parent directories).
//! At a power cut, unsynced changes are dropped, kept, torn at a byte or reordered, independently for each file and
//! directory. Disk space can be limited; syncs can fail or get stuck. The same seed and the same calls give the same
//! bytes.
//!
//! Must never: use a thread, a clock or a file; reveal anything that a program could not see.

mod content;
mod faults;
mod names;
mod random;

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::error::{Holder, LogError};
use crate::files::{Files, LockGuard, LogFile, OpenMode};
use content::{Content, Fate};
use faults::Faults;
pub use faults::Omission;
use names::{Entry, Names};
use random::Random;

/// Lengths of segments: short, so that a small history fills several. The largest chunk fits into one.
const SEGMENT_BYTES: RangeInclusive<u64> = 128 * 1024..=256 * 1024;

/// What remains of unsynced changes after a power cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing.
    None,
    /// Everything.
    All,
    /// Independently for each file and directory: nothing, everything, a prefix torn at a byte, or any sectors or
    /// names, later ones without earlier ones.
    Some,
}

/// An operation that changes the disk or makes a change durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operation {
    /// A write to a file.
    Write,
    /// A change of a file's length.
    Allocate,
    /// The creation of a file or a directory.
    Create,
    /// The renaming of a file.
    Rename,
    /// The removal of a file's name.
    Remove,
    /// A sync of a file.
    Sync,
    /// A sync of a directory.
    SyncDir,
}

/// A simulated disk. Clones share the same disk.
#[derive(Clone)]
pub struct SimFiles {
    disk: Arc<Disk>,
}

struct Disk {
    state: Mutex<State>,
    /// Notified when stuck syncs may continue.
    released: Condvar,
    observer: Mutex<Option<Observer>>,
}

type Observer = Box<dyn FnMut(Operation, &Path) + Send>;

#[derive(Clone)]
struct State {
    names: Names,
    files: BTreeMap<u64, File>,
    next_file: u64,
    /// Number of restarts of the process: handles from before the last one are closed.
    starts: u64,
    powered: bool,
    locked: Vec<PathBuf>,
    operations: u64,
    reads: u64,
    faults: Faults,
    random: Random,
}

#[derive(Clone, Default)]
struct File {
    content: Content,
    /// Number of handles opened since the last restart.
    handles: u32,
}

impl SimFiles {
    /// Creates an empty disk. All randomness derives from `seed`.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State {
            names: Names::new(),
            files: BTreeMap::new(),
            next_file: 1,
            starts: 0,
            powered: true,
            locked: Vec::new(),
            operations: 0,
            reads: 0,
            faults: Faults::default(),
            random: Random(seed),
        };
        Self::of(state)
    }

    fn of(state: State) -> Self {
        let (state, released, observer) = (Mutex::new(state), Condvar::new(), Mutex::new(None));
        Self { disk: Arc::new(Disk { state, released, observer }) }
    }

    /// Returns this disk for the log.
    #[must_use]
    pub fn as_files(&self) -> Arc<dyn Files> {
        Arc::new(self.clone())
    }

    /// Returns a copy of this disk in the state after a kill of the process at this moment: unsynced writes are still
    /// in the system's cache. All its randomness derives from `seed`. It has none of this disk's faults.
    #[must_use]
    pub fn copy(&self, seed: u64) -> Self {
        let mut state = self.disk.state.lock().clone();
        (state.random, state.faults) = (Random(seed), Faults::default());
        state.restart();
        Self::of(state)
    }

    /// Kills the process: its handles are closed and its locks released. Its writes stay in the system's cache.
    pub fn kill_process(&self) {
        self.disk.state.lock().restart();
    }

    /// Cuts the power: every call fails until [`SimFiles::power_on`].
    pub fn cut_power(&self) {
        self.disk.state.lock().powered = false;
        self.disk.released.notify_all();
    }

    /// Returns whether calls can succeed.
    #[must_use]
    pub fn has_power(&self) -> bool {
        self.disk.state.lock().check_power().is_ok()
    }

    /// Cuts the power after this many more operations.
    pub fn cut_power_after(&self, operations: u64) {
        let mut state = self.disk.state.lock();
        state.faults.cut_at = Some(state.operations + operations);
    }

    /// Switches the power back on. `survival` determines what remains of unsynced changes.
    pub fn power_on(&self, survival: Survival) {
        let mut state = self.disk.state.lock();
        let State { names, files, random, .. } = &mut *state;
        let fate = |random: &mut Random| match survival {
            Survival::None => Fate::Dropped,
            Survival::All => Fate::Kept,
            Survival::Some => Fate::draw(random),
        };
        names.cut_power(fate, random);
        for file in files.values_mut() {
            let fate = fate(random);
            file.content.cut_power(fate, random);
        }
        state.faults.cut_at = None;
        state.powered = true;
        state.restart();
    }

    /// Returns the number of operations so far.
    #[must_use]
    pub fn operations(&self) -> u64 {
        self.disk.state.lock().operations
    }

    /// Returns the number of reads so far.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.disk.state.lock().reads
    }

    /// Calls `observer` after each operation, with the path of the file or directory.
    pub fn observe(&self, observer: impl FnMut(Operation, &Path) + Send + 'static) {
        *self.disk.observer.lock() = Some(Box::new(observer));
    }

    /// Limits the total size of all files, bytes in whole pages; `None` removes the limit.
    pub fn limit_room(&self, bytes: Option<u64>) {
        self.disk.state.lock().faults.room = bytes;
    }

    /// Makes the next sync of a file whose path contains `part` fail.
    pub fn fail_sync_of(&self, part: &str) {
        self.disk.state.lock().faults.failing = Some(part.to_owned());
    }

    /// Makes syncs of files block until [`SimFiles::release_syncs`], or until the power is cut.
    pub fn stick_syncs(&self) {
        self.disk.state.lock().faults.stuck = true;
    }

    /// Lets stuck syncs continue.
    pub fn release_syncs(&self) {
        self.disk.state.lock().faults.stuck = false;
        self.disk.released.notify_all();
    }

    /// Makes the disk skip calls, as if the log omitted them: a planted bug, for tests that prove that it is noticed.
    pub fn omit(&self, omission: Omission) {
        self.disk.state.lock().faults.omission = Some(omission);
    }

    /// Performs an operation and notifies the observer.
    fn operate<R>(
        &self,
        operation: Operation,
        path: &Path,
        perform: impl FnOnce(&mut State) -> io::Result<R>,
    ) -> io::Result<R> {
        let result = {
            let mut state = self.disk.state.lock();
            state.check_power()?;
            state.operations += 1;
            perform(&mut state)
        };
        if let Some(observer) = self.disk.observer.lock().as_mut() {
            observer(operation, path);
        }
        result
    }
}

impl State {
    fn restart(&mut self) {
        self.starts += 1;
        self.locked.clear();
        self.files.values_mut().for_each(|file| file.handles = 0);
        self.forget_files();
    }

    /// Forgets files without a name and without an open handle.
    fn forget_files(&mut self) {
        let named = self.names.files();
        self.files.retain(|number, file| file.handles > 0 || named.contains(number));
    }

    fn check_power(&mut self) -> io::Result<()> {
        self.powered &= self.faults.cut_at.is_none_or(|cut| self.operations < cut);
        if self.powered { Ok(()) } else { Err(io::Error::other("the power is off")) }
    }

    fn file(&mut self, handle: &Handle) -> io::Result<&mut File> {
        self.check_power()?;
        if handle.start != self.starts {
            return Err(io::Error::other("opened by a process that was killed"));
        }
        self.files.get_mut(&handle.file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Returns the length to which a file that is to reach `len` may grow.
    fn room_up_to(&self, file: u64, len: u64) -> u64 {
        let Some(limit) = self.faults.room else { return len };
        let visible = self.names.visible();
        let others = self
            .files
            .iter()
            .filter(|(number, other)| **number != file && (other.handles > 0 || visible.contains(number)));
        let taken: u64 = others.map(|(_, other)| other.content.cached().room()).sum();
        let own = self.files.get(&file).map_or(0, |own| own.content.cached().len());
        // A file keeps the space that it already has.
        len.min((limit.saturating_sub(taken) / 4096 * 4096).max(own))
    }
}

fn disk_full() -> io::Error {
    rustix::io::Errno::NOSPC.into()
}

impl Files for SimFiles {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Box<dyn LogFile>> {
        let create = mode == OpenMode::Create;
        let file = {
            let mut state = self.disk.state.lock();
            state.check_power()?;
            match state.names.file(path) {
                _ if mode == OpenMode::WriteDirect => return Err(io::ErrorKind::Unsupported.into()),
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound && create => None,
                Err(error) => return Err(error),
            }
        };
        let file = match file {
            Some(file) if create => self.operate(Operation::Allocate, path, |state| {
                state.files.entry(file).or_default().content.set_len(0);
                Ok(file)
            })?,
            Some(file) => file,
            None => self.operate(Operation::Create, path, |state| {
                let file = state.next_file;
                state.names.add(path, file)?;
                state.next_file += 1;
                state.files.insert(file, File::default());
                Ok(file)
            })?,
        };
        let mut state = self.disk.state.lock();
        state.files.entry(file).or_default().handles += 1;
        let start = state.starts;
        drop(state);
        Ok(Box::new(Handle { disk: self.clone(), file, start, path: path.to_owned(), writes: mode != OpenMode::Read }))
    }

    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        let mut state = self.disk.state.lock();
        state.check_power()?;
        let file = state.names.file(path)?;
        let bytes = state.files.entry(file).or_default().content.cached();
        let mut read = vec![0; usize::try_from(bytes.len()).map_err(io::Error::other)?];
        bytes.read(&mut read, 0);
        Ok(read)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<PathBuf>> {
        let mut state = self.disk.state.lock();
        state.check_power()?;
        state.names.list(dir)
    }

    fn create_dirs(&self, dir: &Path) -> io::Result<()> {
        let mut missing = Vec::new();
        for path in dir.ancestors() {
            let entry = self.disk.state.lock().names.find(path);
            match entry {
                None if path.parent().is_some() => missing.push(path),
                Some(Entry::File(_)) => return Err(io::ErrorKind::NotADirectory.into()),
                _ => break,
            }
        }
        let create = |path: &Path| self.operate(Operation::Create, path, |state| state.names.create_dir(path));
        missing.into_iter().rev().try_for_each(create)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.operate(Operation::Rename, to, |state| state.names.rename(from, to))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.operate(Operation::Remove, path, |state| state.names.remove(path))
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.operate(Operation::SyncDir, dir, |state| {
            if !state.faults.omits_sync_of_dir(dir) {
                state.names.sync(dir)?;
            }
            state.forget_files();
            Ok(())
        })
    }

    fn canonical(&self, path: &Path) -> io::Result<PathBuf> {
        Ok(path.to_owned())
    }

    fn lock(&self, dir: &Path) -> Result<LockGuard, LogError> {
        let mut state = self.disk.state.lock();
        let off = state.check_power();
        off.map_err(|e| LogError::io("lock", dir, &e))?;
        if state.locked.iter().any(|locked| locked == dir) {
            return Err(LogError::Locked { path: dir.to_owned(), holder: Holder(None) });
        }
        state.locked.push(dir.to_owned());
        Ok(Box::new(Lock { disk: self.clone(), dir: dir.to_owned(), start: state.starts }))
    }

    fn random(&self, bytes: &mut [u8]) -> Result<(), LogError> {
        let mut state = self.disk.state.lock();
        bytes.fill_with(|| state.random.number() as u8);
        Ok(())
    }

    fn has_threads(&self) -> bool {
        false
    }

    fn segment_bytes(&self) -> RangeInclusive<u64> {
        SEGMENT_BYTES
    }
}

struct Lock {
    disk: SimFiles,
    dir: PathBuf,
    start: u64,
}

impl Drop for Lock {
    fn drop(&mut self) {
        let mut state = self.disk.disk.state.lock();
        if state.starts == self.start {
            state.locked.retain(|locked| *locked != self.dir);
        }
    }
}

/// An open file.
struct Handle {
    disk: SimFiles,
    file: u64,
    start: u64,
    path: PathBuf,
    writes: bool,
}

impl Handle {
    fn operate(&self, operation: Operation, perform: impl FnOnce(&mut State) -> io::Result<()>) -> io::Result<()> {
        if !self.writes {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        self.disk.operate(operation, &self.path, |state| {
            // Fails after a restart.
            state.file(self)?;
            perform(state)
        })
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        let wait = || {
            let mut state = self.disk.disk.state.lock();
            while state.faults.stuck && state.powered && state.starts == self.start {
                self.disk.disk.released.wait(&mut state);
            }
        };
        wait();
        self.disk.operate(Operation::Sync, &self.path, |state| {
            state.file(self)?;
            let State { files, faults, random, .. } = state;
            if faults.fails_sync_of(&self.path) {
                if let Some(file) = files.get_mut(&self.file) {
                    file.content.fail_sync(random);
                }
                return Err(rustix::io::Errno::IO.into());
            }
            for file in faults.synced_by(self.file, &self.path, data_only) {
                if let Some(file) = files.get_mut(&file) {
                    file.content.sync();
                }
            }
            Ok(())
        })
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut state = self.disk.disk.state.lock();
        if state.starts == self.start
            && let Some(file) = state.files.get_mut(&self.file)
        {
            file.handles -= 1;
        }
    }
}

impl LogFile for Handle {
    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.disk.state.lock().file(self)?.content.cached().len())
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.disk.state.lock();
        state.reads += 1;
        Ok(state.file(self)?.content.cached().read(bytes, offset))
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if self.read_at(bytes, offset)? < bytes.len() { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.operate(Operation::Write, |state| {
            let end = state.room_up_to(self.file, offset + bytes.len() as u64);
            let fits = usize::try_from(end.saturating_sub(offset)).map_or(bytes.len(), |room| room.min(bytes.len()));
            state.file(self)?.content.write(&bytes[..fits], offset);
            if fits < bytes.len() { Err(disk_full()) } else { Ok(()) }
        })
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.operate(Operation::Allocate, |state| {
            if state.room_up_to(self.file, len) < len {
                return Err(disk_full());
            }
            let content = &mut state.file(self)?.content;
            content.set_len(content.cached().len().max(len));
            Ok(())
        })
    }

    fn sync_data(&self) -> io::Result<()> {
        self.sync(true)
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync(false)
    }
}
