//! The control log: entries of configuration in two files of the same content.
//!
//! They are few, are never truncated, and nothing else in the log repeats what they hold, so every entry is written
//! twice: a file that is damaged is repaired from the other when the log is opened. A file is a page with the log's
//! identity, then chained records in the frames of the segments. An entry is durable in both files before it counts.
//!
//! Must never: repair anything before the whole log has been verified, know what an entry changes.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tribunal_types::GroupId;

use crate::error::LogError;
use crate::files;
use crate::frame::{Kind, MAGIC, Place, Seat, chain, pieces, put_chunk, read_chunk};
use crate::identity::Identity;
use crate::record::{Appended, Stored, Tip};

/// Names of the two files.
pub(crate) const COPIES: [&str; 2] = ["control", "control.copy"];
/// Length of the page with the identity.
pub(crate) const HEADER_BYTES: usize = 4096;

/// The control log, open for appending.
pub(crate) struct ControlLog {
    files: Vec<File>,
    group: GroupId,
    /// First free position.
    tail: u64,
    /// Everything below is durable in both files.
    durable: u64,
    tip: Tip,
    dirty: bool,
    /// First failure, final.
    failed: Option<String>,
    syncs: u64,
}

/// What the files hold, before anything is repaired.
pub(crate) struct Content {
    /// All entries, from index 1 on.
    pub entries: Vec<Stored>,
    pub tip: Tip,
    /// What is wrong with files that the other one replaces.
    pub faults: Vec<String>,
    paths: [PathBuf; 2],
    /// Bytes that both files must have.
    bytes: Vec<u8>,
    /// Files that have others.
    differ: Vec<PathBuf>,
    group: GroupId,
}

/// One file, whole.
struct Copy {
    entries: Vec<Stored>,
    tip: Tip,
    bytes: Vec<u8>,
    /// Length up to the last whole entry.
    tail: usize,
}

impl ControlLog {
    /// Creates both files without an entry, replacing what is there.
    pub(crate) fn create(dir: &Path, identity: &Identity) -> Result<Self, LogError> {
        let mut header = identity.text().into_bytes();
        header.resize(HEADER_BYTES, 0);
        for name in COPIES {
            files::replace(&dir.join(name), &header)?;
        }
        Self::open(&paths_in(dir), identity.group, HEADER_BYTES as u64, Tip::default())
    }

    fn open(paths: &[PathBuf; 2], group: GroupId, tail: u64, tip: Tip) -> Result<Self, LogError> {
        let mut files = Vec::new();
        for path in paths {
            let file = OpenOptions::new().write(true).mode(0o600).open(path);
            files.push(file.map_err(|e| LogError::io("open", path, &e))?);
        }
        // What a killed process left may be in the kernel's cache only; the first sync makes it durable.
        Ok(Self { files, group, tail, durable: 0, tip, dirty: tip.index > 0, failed: None, syncs: 0 })
    }

    /// Returns the end of the chain.
    pub(crate) fn tip(&self) -> Tip {
        self.tip
    }

    /// Returns the length of both files, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.tail * COPIES.len() as u64
    }

    /// Returns the number of `fdatasync` calls so far.
    pub(crate) fn fdatasyncs(&self) -> u64 {
        self.syncs
    }

    /// Appends an entry.
    ///
    /// # Errors
    /// [`LogError::DurabilityInDoubt`].
    pub(crate) fn append(&mut self, payload: &[u8]) -> Result<Appended, LogError> {
        self.check()?;
        let (index, link) = (self.tip.index + 1, self.tip.chain);
        let mut bytes = Vec::with_capacity(payload.len() + 64);
        for (part, piece) in pieces(link, payload) {
            let seat = Seat { position: self.tail + bytes.len() as u64, durable: self.durable };
            put_chunk(Place { kind: Kind::Control, group: self.group, index }, part, seat, piece, &mut bytes);
        }
        self.dirty = true;
        let written = self.files.iter().try_for_each(|file| file.write_all_at(&bytes, self.tail));
        written.map_err(|e| self.fail("write of the control log", &e))?;
        self.tail += bytes.len() as u64;
        self.tip = Tip { index, chain: chain(link, index, payload) };
        Ok(Appended { chain: self.tip.chain, bytes: (bytes.len() * COPIES.len()) as u64 })
    }

    /// Makes every entry durable; returns whether there was something to do.
    ///
    /// # Errors
    /// [`LogError::DurabilityInDoubt`].
    pub(crate) fn sync(&mut self) -> Result<bool, LogError> {
        self.check()?;
        if !self.dirty {
            return Ok(false);
        }
        let synced = self.files.iter().try_for_each(|file| rustix::fs::fdatasync(file).map_err(io::Error::from));
        synced.map_err(|e| self.fail("fdatasync of the control log", &e))?;
        self.syncs += COPIES.len() as u64;
        (self.durable, self.dirty) = (self.tail, false);
        Ok(true)
    }

    pub(crate) fn check(&self) -> Result<(), LogError> {
        match &self.failed {
            None => Ok(()),
            Some(reason) => Err(LogError::DurabilityInDoubt { reason: reason.clone() }),
        }
    }

    fn fail(&mut self, what: &str, error: &io::Error) -> LogError {
        LogError::DurabilityInDoubt { reason: self.failed.get_or_insert_with(|| format!("{what}: {error}")).clone() }
    }
}

impl Content {
    /// Reads both files. Writes nothing.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if neither is whole.
    pub(crate) fn read(dir: &Path, identity: &Identity) -> Result<Self, LogError> {
        let paths = paths_in(dir);
        let mut faults = Vec::new();
        let mut copies = Vec::new();
        for path in &paths {
            match Copy::read(path, identity) {
                Ok(copy) => copies.push(Some(copy)),
                Err(reason) => {
                    faults.push(format!("{} {reason}", path.display()));
                    copies.push(None);
                }
            }
        }
        let best = (0..copies.len()).rev().max_by_key(|ix| copies[*ix].as_ref().map(|copy| copy.tip.index));
        let Some(Copy { entries, tip, mut bytes, tail }) = best.and_then(|ix| copies[ix].take()) else {
            return Err(LogError::damaged(dir, format!("both copies of its control log: {}", faults.join("; "))));
        };
        let torn = bytes.len() > tail;
        bytes.truncate(tail);
        let same = |ix: usize| {
            if Some(ix) == best { !torn } else { copies[ix].as_ref().is_some_and(|copy| copy.bytes == bytes) }
        };
        let differ = (0..paths.len()).filter(|ix| !same(*ix)).map(|ix| paths[ix].clone()).collect();
        Ok(Self { entries, tip, faults, bytes, differ, paths, group: identity.group })
    }

    /// Brings both files to the same content, and opens them.
    pub(crate) fn repair(&self) -> Result<ControlLog, LogError> {
        for path in &self.differ {
            files::replace(path, &self.bytes)?;
        }
        ControlLog::open(&self.paths, self.group, self.bytes.len() as u64, self.tip)
    }
}

impl Copy {
    /// Reads a file; an entry that was being written when the process died is left out.
    fn read(path: &Path, identity: &Identity) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("cannot be read: {error}"))?;
        match identity_in(&bytes) {
            Some(found) if found == *identity => {}
            Some(_) => return Err("belongs to another log".into()),
            None => return Err("has no readable first page".into()),
        }
        let (mut entries, mut tip, mut tail) = (Vec::new(), Tip::default(), HEADER_BYTES);
        // The entry whose chunks are being read, and the number of its next chunk.
        let mut open: Option<(Stored, u32)> = None;
        let mut at = HEADER_BYTES;
        while at < bytes.len() {
            let chunk = match read_chunk(&bytes[at..], at as u64, identity.group) {
                Ok(chunk) => chunk,
                Err(reason) if is_durable_at(&bytes, at, identity.group) => {
                    return Err(format!("is damaged at position {at}: {reason}"));
                }
                Err(_) => break,
            };
            let (place, part) = (chunk.head.place, chunk.head.part);
            let fresh = (Stored { index: tip.index + 1, link: tip.chain, payload: Vec::new() }, 0);
            let (mut stored, number) = open.take().unwrap_or(fresh);
            let fits = part.number > 0 || part.link == stored.link;
            if (place.kind, place.index, part.number) != (Kind::Control, stored.index, number) || !fits {
                return Err(format!("has another record at position {at}"));
            }
            stored.payload.extend_from_slice(chunk.piece);
            at += chunk.head.bytes;
            if part.number + 1 < part.count {
                open = Some((stored, number + 1));
                continue;
            }
            tip = Tip { index: stored.index, chain: chain(stored.link, stored.index, &stored.payload) };
            tail = at;
            entries.push(stored);
        }
        Ok(Self { entries, tip, bytes, tail })
    }
}

fn paths_in(dir: &Path) -> [PathBuf; 2] {
    COPIES.map(|name| dir.join(name))
}

/// Returns the identity in the first page of a file.
pub(crate) fn identity_in(bytes: &[u8]) -> Option<Identity> {
    let page = bytes.get(..HEADER_BYTES)?;
    let end = page.iter().position(|byte| *byte == 0).unwrap_or(page.len());
    // Zeros up to the end of the page: any other byte there is damage, too.
    let zeros = page[end..].iter().all(|byte| *byte == 0);
    std::str::from_utf8(&page[..end]).ok().filter(|_| zeros).and_then(Identity::parse)
}

/// Tells whether a chunk after `broken` was written when that position was durable already.
fn is_durable_at(bytes: &[u8], broken: usize, group: GroupId) -> bool {
    let mut at = broken;
    while at < bytes.len() {
        if bytes[at] == MAGIC
            && let Ok(chunk) = read_chunk(&bytes[at..], at as u64, group)
        {
            if (at as u64).saturating_sub(chunk.head.behind) > broken as u64 {
                return true;
            }
            at += chunk.head.bytes;
        } else {
            at += 1;
        }
    }
    false
}
