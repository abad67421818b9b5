//! Compiled code of uploaded components, as files: `<data>/plugins/compiled/<component>-<engine>.code`, so that a
//! restart need not repeat many seconds of compilation.
//!
//! Invariants: all code here was produced by this node's own compiler, from bytes whose SHA-256 had been checked; no
//! request and no other process supplies any. A file is trusted if it and its folder are owned by this user and
//! writable by no other, if it is the very file that was written (not a copy), and if all of it, including the key, has
//! the SHA-256 that it was written with. Nothing here decides anything: a file that is missing, damaged or in the way
//! costs the time to compile.
//!
//! Layout: magic (8), number of the file on its file system (8, little-endian), SHA-256 (32) of that number, the
//! component's digest, the engine's fingerprint and the code; the code.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use rustix::fs::OFlags;
use sha2::{Digest, Sha256};
use tribunal_wasm::{CodeKey, CodeOrigin, CodeStore};

use crate::plugins::digest::hex;

/// Maximum number of files kept; the least recently used one is evicted first. A language's runtime takes some tens of
/// megabytes.
const FILES_MAX: usize = 16;
/// Maximum size of a file, bytes.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// Magic number of every code file.
const MAGIC: [u8; 8] = *b"TRBCODE\x01";
/// Bytes before the code.
const HEAD_BYTES: usize = 8 + 8 + 32;
const EXTENSION: &str = "code";
const PARTIAL: &str = "partial";

/// Number of compilations, and of loads from a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loads {
    /// Compiled.
    pub compiled: u64,
    /// Taken from a file.
    pub kept: u64,
}

/// The folder, and its counters.
pub struct CompiledFiles {
    folder: PathBuf,
    /// Whether any code is kept.
    enabled: bool,
    compiled: AtomicU64,
    kept: AtomicU64,
}

impl CompiledFiles {
    /// Creates the handle of the folder in a data directory. The folder is created with its first file, and removed if
    /// disabled.
    #[must_use]
    pub fn in_data(data: &Path, enabled: bool) -> CompiledFiles {
        let folder = data.join("plugins").join("compiled");
        if !enabled && let Err(error) = fs::remove_dir_all(&folder) {
            let is_there = error.kind() != io::ErrorKind::NotFound;
            if is_there {
                tracing::warn!(%error, folder = %folder.display(), "unused compiled code cannot be removed");
            }
        }
        CompiledFiles { folder, enabled, compiled: AtomicU64::new(0), kept: AtomicU64::new(0) }
    }

    /// Counts a loaded component.
    pub fn count(&self, origin: CodeOrigin) {
        let counter = match origin {
            CodeOrigin::Compiled => &self.compiled,
            CodeOrigin::Kept => &self.kept,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counters.
    #[must_use]
    pub fn loads(&self) -> Loads {
        Loads { compiled: self.compiled.load(Ordering::Relaxed), kept: self.kept.load(Ordering::Relaxed) }
    }

    /// Removes the code of a deleted component. A file that cannot be removed is evicted later.
    pub fn remove(&self, component: &[u8; 32]) {
        let prefix = format!("{}-", hex(component));
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        for entry in entries.flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }

    fn path(&self, key: &CodeKey) -> PathBuf {
        self.folder.join(format!("{}-{}.{EXTENSION}", hex(&key.component), key.engine))
    }

    fn write(&self, key: &CodeKey, code: &[u8]) -> io::Result<()> {
        if code.len() as u64 > FILE_BYTES_MAX - HEAD_BYTES as u64 {
            return Err(io::Error::other(format!("{} bytes are more than {FILE_BYTES_MAX}", code.len())));
        }
        tribunal_disk::create_private_directories(&self.folder)?;
        check_owned(&open(&self.folder)?.metadata()?)?;
        let path = self.path(key);
        let partial = path.with_extension(PARTIAL);
        let written = write_new(&partial, key, code).and_then(|()| fs::rename(&partial, &path));
        if written.is_err() {
            let _ = fs::remove_file(&partial);
        }
        written?;
        self.make_room(&path)
    }

    /// Removes leftovers of interrupted writes, and superfluous files, but not `newest`.
    fn make_room(&self, newest: &Path) -> io::Result<()> {
        let mut files: Vec<(SystemTime, PathBuf)> = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let path = entry.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(PARTIAL) => fs::remove_file(&path)?,
                Some(EXTENSION) if path != newest => files.push((entry.metadata()?.modified()?, path)),
                _ => {}
            }
        }
        files.sort();
        let surplus = (files.len() + 1).saturating_sub(FILES_MAX);
        files.iter().take(surplus).try_for_each(|(_, path)| fs::remove_file(path))
    }

    fn read(&self, key: &CodeKey) -> io::Result<Vec<u8>> {
        check_owned(&open(&self.folder)?.metadata()?)?;
        let mut file = open(&self.path(key))?;
        let metadata = file.metadata()?;
        check_owned(&metadata)?;
        if !metadata.is_file() || metadata.len() < HEAD_BYTES as u64 || metadata.len() > FILE_BYTES_MAX {
            return Err(io::Error::other("it is not of the size of compiled code"));
        }
        let mut head = [0; HEAD_BYTES];
        file.read_exact(&mut head)?;
        let mut code = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(0));
        (&mut file).take(FILE_BYTES_MAX).read_to_end(&mut code)?;
        if head != head_of(metadata.ino(), key, &code) {
            return Err(io::Error::other("it is damaged, a copy, or of something else"));
        }
        // Mark the file as recently used; on failure it is evicted a little earlier.
        let _ = file.set_modified(SystemTime::now());
        Ok(code)
    }
}

/// Opens a file for reading; does not follow a symbolic link put in its place.
fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::NOFOLLOW.bits().cast_signed()).open(path)
}

/// Checks that only this user can have written a file or folder.
fn check_owned(metadata: &Metadata) -> io::Result<()> {
    let others_write = metadata.mode() & 0o022 != 0;
    if metadata.uid() != rustix::process::geteuid().as_raw() || others_write {
        return Err(io::Error::other("somebody else may write it; make it the node's own, mode 0700"));
    }
    Ok(())
}

/// Writes a new file. It is not synced: its digest reveals a torn file.
fn write_new(path: &Path, key: &CodeKey, code: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(&head_of(file.metadata()?.ino(), key, code))?;
    file.write_all(code)
}

fn head_of(file_number: u64, key: &CodeKey, code: &[u8]) -> [u8; HEAD_BYTES] {
    let number = file_number.to_le_bytes();
    let mut digest = Sha256::new();
    for part in [&number[..], &key.component, &key.engine.0, code] {
        digest.update(part);
    }
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[8..16].copy_from_slice(&number);
    head[16..].copy_from_slice(&digest.finalize());
    head
}

// SAFETY: `find` returns bytes only from a file that only this user could write, under a digest of the whole key and
// all bytes that `write` put before them; `write` is reached through `keep` only. A process acting as this user can
// make the node run anything anyway.
unsafe impl CodeStore for CompiledFiles {
    fn find(&self, key: &CodeKey) -> Option<Vec<u8>> {
        if !self.enabled {
            return None;
        }
        match self.read(key) {
            Ok(code) => Some(code),
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    let file = self.path(key);
                    tracing::warn!(%error, file = %file.display(), "cached code is not used; compiling again");
                }
                None
            }
        }
    }

    fn keep(&self, key: &CodeKey, code: &[u8]) {
        if !self.enabled {
            return;
        }
        if let Err(error) = self.write(key, code) {
            let folder = self.folder.display();
            tracing::warn!(%error, %folder, "compiled code cannot be cached; the next start compiles it again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use tribunal_wasm::Fingerprint;

    use super::*;

    fn key(component: u8, engine: u8) -> CodeKey {
        CodeKey { component: [component; 32], engine: Fingerprint([engine; 32]) }
    }

    fn folder() -> (tempfile::TempDir, CompiledFiles) {
        let data = tempfile::tempdir().expect("a folder");
        let files = CompiledFiles::in_data(data.path(), true);
        (data, files)
    }

    #[test]
    fn code_is_found_under_its_whole_key_and_only_undamaged() {
        let (_data, files) = folder();
        assert_eq!(files.find(&key(1, 1)), None);
        files.keep(&key(1, 1), b"code");
        assert_eq!(files.find(&key(1, 1)).as_deref(), Some(&b"code"[..]));
        assert_eq!((files.find(&key(1, 2)), files.find(&key(2, 1))), (None, None));
        let path = files.path(&key(1, 1));
        let whole = fs::read(&path).expect("reads");
        // In place, so that it stays the same file.
        for cut in 0..whole.len() {
            fs::write(&path, &whole[..cut]).expect("writes");
            assert_eq!(files.find(&key(1, 1)), None, "torn at {cut}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&path, &damaged).expect("writes");
            assert_eq!(files.find(&key(1, 1)), None, "damaged at {at}");
        }
        fs::write(&path, &whole).expect("writes");
        assert!(files.find(&key(1, 1)).is_some());
        // Under the name of another engine or component, it is not found.
        for other in [key(1, 2), key(2, 1)] {
            fs::rename(&path, files.path(&other)).expect("moves");
            assert_eq!(files.find(&other), None);
            fs::rename(files.path(&other), &path).expect("moves");
        }
    }

    #[test]
    fn copies_links_and_files_writable_by_others_are_not_loaded() {
        let (data, files) = folder();
        files.keep(&key(1, 1), b"code");
        let path = files.path(&key(1, 1));
        let away = data.path().join("away");
        fs::rename(&path, &away).expect("moves");
        std::os::unix::fs::symlink(&away, &path).expect("links");
        assert_eq!(files.find(&key(1, 1)), None, "a link");
        fs::remove_file(&path).expect("removes");
        fs::copy(&away, &path).expect("copies");
        assert_eq!(files.find(&key(1, 1)), None, "a copy");
        fs::rename(&away, &path).expect("moves");
        assert!(files.find(&key(1, 1)).is_some(), "the file itself");
        let open_to = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
        open_to(&path, 0o620);
        assert_eq!(files.find(&key(1, 1)), None, "the group may write the file");
        open_to(&path, 0o600);
        open_to(&files.folder, 0o777);
        assert_eq!(files.find(&key(1, 1)), None, "everybody may write the folder");
        files.keep(&key(2, 1), b"code");
        assert!(!files.path(&key(2, 1)).exists(), "nothing is put there either");
        open_to(&files.folder, 0o700);
        assert!(files.find(&key(1, 1)).is_some());
    }

    #[test]
    fn the_folder_stays_small_and_keeps_what_is_needed() {
        let (_data, files) = folder();
        let age = |n, seconds| {
            let file = File::open(files.path(&key(n, 1))).expect("is there");
            let then = SystemTime::now() - std::time::Duration::from_secs(seconds);
            file.set_modified(then).expect("a file's time can be set");
        };
        for n in 0..16 {
            files.keep(&key(n, 1), b"code");
            age(n, 1000 - u64::from(n));
        }
        fs::write(files.folder.join("x.partial"), b"half").expect("writes");
        assert!(files.find(&key(0, 1)).is_some(), "the oldest is needed again");
        files.keep(&key(16, 1), b"code");
        files.keep(&key(17, 1), b"code");
        let count = fs::read_dir(&files.folder).expect("is there").count();
        assert_eq!(count, FILES_MAX, "an interrupted write is swept away, too");
        assert!(files.find(&key(0, 1)).is_some() && files.find(&key(17, 1)).is_some());
        assert_eq!((files.find(&key(1, 1)), files.find(&key(2, 1))), (None, None));
    }

    #[test]
    fn a_folder_that_cannot_be_written_only_costs_time() {
        let data = tempfile::tempdir().expect("a folder");
        fs::write(data.path().join("plugins"), b"in the way").expect("writes");
        let files = CompiledFiles::in_data(data.path(), true);
        files.keep(&key(1, 1), b"code");
        assert_eq!(files.find(&key(1, 1)), None);
    }

    #[test]
    fn a_disabled_cache_finds_nothing() {
        let (data, files) = folder();
        files.keep(&key(1, 1), b"code");
        let none = CompiledFiles::in_data(data.path(), false);
        assert!(!files.folder.exists());
        none.keep(&key(1, 1), b"code");
        assert_eq!(none.find(&key(1, 1)), None);
        assert!(!files.folder.exists());
    }
}
