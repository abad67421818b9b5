//! The control log: configuration entries in two files of the same content.
//!
//! Nothing else in the log repeats these entries, so every entry is written twice: a damaged file is repaired from the
//! other one when the log is opened. A file is a page with the log's identity, then chained records in the frames of
//! the segments. An entry counts only once it is durable in both files. Entries are never truncated; entries that no
//! longer have an effect may be left out, and a record in their place names them and the chain hash after them.
//!
//! Must never: repair anything before the whole log has been verified, know what an entry changes.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tribunal_types::GroupId;

use crate::control_compaction::{Record, Skipped, without};
use crate::error::LogError;
use crate::files::{self, Files, LogFile, OpenMode};
use crate::frame::{Kind, MAGIC, Place, Seat, chain, pieces, put_chunk, read_chunk};
use crate::identity::Identity;
use crate::record::{Appended, Stored, Tip};

/// Names of the two files.
pub(crate) const COPIES: [&str; 2] = ["control", "control.copy"];
/// Length of the page with the identity.
pub(crate) const HEADER_BYTES: usize = 4096;

/// The control log, open for appending.
pub(crate) struct ControlLog {
    disk: Arc<dyn Files>,
    files: Vec<Box<dyn LogFile>>,
    paths: [PathBuf; 2],
    identity: Identity,
    /// First free position.
    tail: u64,
    /// Everything below this position is durable in both files.
    durable: u64,
    tip: Tip,
    dirty: bool,
    /// First failure, final.
    failed: Option<String>,
    syncs: u64,
}

/// The content of both files, before any repair.
pub(crate) struct Content {
    /// All records, from index 1 on.
    pub records: Vec<Record>,
    pub tip: Tip,
    /// Faults of files that the other file replaces.
    pub faults: Vec<String>,
    paths: [PathBuf; 2],
    /// The bytes that both files must have.
    bytes: Vec<u8>,
    /// Files with other bytes.
    differ: Vec<PathBuf>,
    identity: Identity,
    disk: Arc<dyn Files>,
}

/// One whole file.
struct Copy {
    records: Vec<Record>,
    tip: Tip,
    bytes: Vec<u8>,
    /// Length up to the end of the last complete record.
    tail: usize,
}

impl ControlLog {
    /// Creates both files without entries, replacing existing ones. Their names are durable once the identity is
    /// stored.
    pub(crate) fn create(disk: &Arc<dyn Files>, dir: &Path, identity: &Identity) -> Result<Self, LogError> {
        let mut header = identity.text().into_bytes();
        header.resize(HEADER_BYTES, 0);
        for name in COPIES {
            files::create(&**disk, &dir.join(name), &header)?;
        }
        Self::open(disk, paths_in(dir), *identity, HEADER_BYTES as u64, Tip::default())
    }

    fn open(
        disk: &Arc<dyn Files>,
        paths: [PathBuf; 2],
        identity: Identity,
        tail: u64,
        tip: Tip,
    ) -> Result<Self, LogError> {
        let mut files = Vec::new();
        for path in &paths {
            files.push(disk.open(path, OpenMode::Write).map_err(|e| LogError::io("open", path, &e))?);
        }
        let disk = Arc::clone(disk);
        // Data written by a killed process may be in the kernel's cache only; the first sync makes it durable.
        Ok(Self { disk, files, paths, identity, tail, durable: 0, tip, dirty: tip.index > 0, failed: None, syncs: 0 })
    }

    /// Returns the end of the chain.
    pub(crate) fn tip(&self) -> Tip {
        self.tip
    }

    /// Returns the total length of both files, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.tail * COPIES.len() as u64
    }

    /// Returns the length of one file, bytes.
    pub(crate) fn bytes_of_one(&self) -> u64 {
        self.tail
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
        let (index, link) = (self.tip.index + 1, self.tip.chain);
        let bytes = self.append_record(Kind::Control, payload)?;
        self.tip = Tip { index, chain: chain(link, index, payload) };
        Ok(Appended { chain: self.tip.chain, bytes: bytes * COPIES.len() as u64 })
    }

    /// Leaves out the entries up to `last`, which existed in another log.
    ///
    /// # Errors
    /// [`LogError::DurabilityInDoubt`].
    pub(crate) fn append_skipped(&mut self, last: u64, chain: u64) -> Result<(), LogError> {
        let skipped = Skipped { first: self.tip.index + 1, last, link: self.tip.chain, chain };
        self.append_record(Kind::Skipped, &skipped.payload())?;
        self.tip = Tip { index: last, chain };
        Ok(())
    }

    /// Writes a record to both files; returns its length in one of them.
    fn append_record(&mut self, kind: Kind, payload: &[u8]) -> Result<u64, LogError> {
        self.check()?;
        let place = Place { kind, group: self.identity.group, index: self.tip.index + 1 };
        let mut bytes = Vec::with_capacity(payload.len() + 64);
        put_record(place, self.tip.chain, payload, self.tail, Some(self.durable), &mut bytes);
        self.dirty = true;
        let written = self.files.iter().try_for_each(|file| file.write_all_at(&bytes, self.tail));
        written.map_err(|e| self.fail("write of the control log", &e))?;
        self.tail += bytes.len() as u64;
        Ok(bytes.len() as u64)
    }

    /// Rewrites both files without the entries `dead`; everything appended is made durable first. One whole file exists
    /// at every moment.
    ///
    /// # Errors
    /// [`LogError::Io`] for example if the disk is full: nothing has changed. [`LogError::DurabilityInDoubt`].
    pub(crate) fn leave_out(&mut self, dead: &BTreeSet<u64>) -> Result<(), LogError> {
        self.sync()?;
        let copies = self.paths.iter().filter_map(|path| Copy::read(&*self.disk, path, &self.identity).ok());
        let Some(copy) = copies.into_iter().find(|copy| copy.tip == self.tip) else {
            return Err(LogError::Io { reason: "neither copy of the control log can be read".into() });
        };
        let mut bytes = copy.bytes[..HEADER_BYTES].to_vec();
        for record in without(&copy.records, dead) {
            let place = Place { kind: record.kind(), group: self.identity.group, index: record.first() };
            put_record(place, record.link(), &record.payload(), bytes.len() as u64, None, &mut bytes);
        }
        // Write both files before the first replaces its original: a full disk is noticed while nothing has changed.
        let mut fresh = Vec::new();
        for path in &self.paths {
            match files::write_aside(&*self.disk, path, &bytes) {
                Ok(file) => fresh.push(file),
                Err(error) => {
                    self.paths.iter().for_each(|path| files::remove_aside(&*self.disk, path));
                    return Err(error);
                }
            }
        }
        for path in self.paths.clone() {
            // The open files may no longer be the ones under these names; only a restart puts that right.
            files::put_aside_in_place(&*self.disk, &path)
                .map_err(|e| self.fail_with(format!("the control log's replacement: {e}")))?;
        }
        (self.files, self.tail, self.durable) = (fresh, bytes.len() as u64, bytes.len() as u64);
        Ok(())
    }

    /// Makes every entry durable; returns whether there was anything to sync.
    ///
    /// # Errors
    /// [`LogError::DurabilityInDoubt`].
    pub(crate) fn sync(&mut self) -> Result<bool, LogError> {
        self.check()?;
        if !self.dirty {
            return Ok(false);
        }
        let synced = self.files.iter().try_for_each(|file| file.sync_data());
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
        self.fail_with(format!("{what}: {error}"))
    }

    fn fail_with(&mut self, reason: String) -> LogError {
        LogError::DurabilityInDoubt { reason: self.failed.get_or_insert(reason).clone() }
    }
}

impl Content {
    /// Reads both files. Writes nothing.
    ///
    /// # Errors
    /// [`LogError::Damaged`] if neither is intact.
    pub(crate) fn read(disk: &Arc<dyn Files>, dir: &Path, identity: &Identity) -> Result<Self, LogError> {
        let paths = paths_in(dir);
        let mut faults = Vec::new();
        let mut copies = Vec::new();
        for path in &paths {
            match Copy::read(&**disk, path, identity) {
                Ok(copy) => copies.push(Some(copy)),
                Err(reason) => {
                    faults.push(format!("{} {reason}", path.display()));
                    copies.push(None);
                }
            }
        }
        let best = (0..copies.len()).rev().max_by_key(|ix| copies[*ix].as_ref().map(|copy| copy.tip.index));
        let Some(Copy { records, tip, mut bytes, tail }) = best.and_then(|ix| copies[ix].take()) else {
            return Err(LogError::damaged(dir, format!("both copies of its control log: {}", faults.join("; "))));
        };
        let torn = bytes.len() > tail;
        bytes.truncate(tail);
        let same = |ix: usize| {
            if Some(ix) == best { !torn } else { copies[ix].as_ref().is_some_and(|copy| copy.bytes == bytes) }
        };
        let differ = (0..paths.len()).filter(|ix| !same(*ix)).map(|ix| paths[ix].clone()).collect();
        Ok(Self { records, tip, faults, bytes, differ, paths, identity: *identity, disk: Arc::clone(disk) })
    }

    /// Returns the entries.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Stored> {
        self.records.iter().filter_map(Record::entry)
    }

    /// Returns whether the chain after entry `index` is `chain`. Within a run of left-out entries any hash is accepted:
    /// the entries were complete when they were left out.
    pub(crate) fn continues(&self, index: u64, chain: u64) -> bool {
        let next = self.records.partition_point(|record| record.last() <= index);
        match self.records.get(next) {
            _ if index == self.tip.index => self.tip.chain == chain,
            Some(next) if next.first() == index + 1 => next.link() == chain,
            Some(Record::Skipped(_)) => true,
            _ => false,
        }
    }

    /// Gives both files the same content, and opens them.
    pub(crate) fn repair(&self) -> Result<ControlLog, LogError> {
        for path in &self.differ {
            files::replace(&*self.disk, path, &self.bytes)?;
        }
        self.paths.iter().for_each(|path| files::remove_aside(&*self.disk, path));
        ControlLog::open(&self.disk, self.paths.clone(), self.identity, self.bytes.len() as u64, self.tip)
    }
}

impl Copy {
    /// Reads a file, except an entry that was being written when the process died.
    fn read(disk: &dyn Files, path: &Path, identity: &Identity) -> Result<Self, String> {
        let bytes = disk.read(path).map_err(|error| format!("cannot be read: {error}"))?;
        match identity_in(&bytes) {
            Some(found) if found == *identity => {}
            Some(_) => return Err("belongs to another log".into()),
            None => return Err("has no readable first page".into()),
        }
        let (mut records, mut tip, mut tail) = (Vec::new(), Tip::default(), HEADER_BYTES);
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
            let another = || format!("has another record at position {at}");
            if place.kind == Kind::Skipped {
                let skipped = Skipped::read(place.index, part.link, chunk.piece).filter(|_| open.is_none());
                let follows = |s: &Skipped| (s.first, s.link) == (tip.index + 1, tip.chain);
                let skipped = skipped.filter(follows).ok_or_else(another)?;
                at += chunk.head.bytes;
                (tip, tail) = (Tip { index: skipped.last, chain: skipped.chain }, at);
                records.push(Record::Skipped(skipped));
                continue;
            }
            let fresh = (Stored { index: tip.index + 1, link: tip.chain, payload: Vec::new() }, 0);
            let (mut stored, number) = open.take().unwrap_or(fresh);
            let fits = part.number > 0 || part.link == stored.link;
            if (place.kind, place.index, part.number) != (Kind::Control, stored.index, number) || !fits {
                return Err(another());
            }
            stored.payload.extend_from_slice(chunk.piece);
            at += chunk.head.bytes;
            if part.number + 1 < part.count {
                open = Some((stored, number + 1));
                continue;
            }
            tip = Tip { index: stored.index, chain: chain(stored.link, stored.index, &stored.payload) };
            tail = at;
            records.push(Record::Entry(stored));
        }
        Ok(Self { records, tip, bytes, tail })
    }
}

/// Appends a record's chunks to `out`; the first one is for `position`. Unless `durable` gives another position, each
/// chunk states that everything before it is durable, which holds for a file that is used only once it is complete.
fn put_record(place: Place, link: u64, payload: &[u8], position: u64, durable: Option<u64>, out: &mut Vec<u8>) {
    let start = out.len();
    for (part, piece) in pieces(link, payload) {
        let position = position + (out.len() - start) as u64;
        put_chunk(place, part, Seat { position, durable: durable.unwrap_or(position) }, piece, out);
    }
}

fn paths_in(dir: &Path) -> [PathBuf; 2] {
    COPIES.map(|name| dir.join(name))
}

/// Returns the identity in the first page of a file.
pub(crate) fn identity_in(bytes: &[u8]) -> Option<Identity> {
    let page = bytes.get(..HEADER_BYTES)?;
    let end = page.iter().position(|byte| *byte == 0).unwrap_or(page.len());
    // The rest of the page must be zeros: any other byte is damage, too.
    let zeros = page[end..].iter().all(|byte| *byte == 0);
    std::str::from_utf8(&page[..end]).ok().filter(|_| zeros).and_then(Identity::parse)
}

/// Returns whether a chunk after `broken` was written when that position was already durable.
fn is_durable_at(bytes: &[u8], broken: usize, group: GroupId) -> bool {
    let mut at = broken;
    while at < bytes.len() {
        if bytes[at] == MAGIC
            && let Ok(chunk) = read_chunk(&bytes[at..], at as u64, group)
        {
            if (at as u64).saturating_sub(chunk.head.durable_distance) > broken as u64 {
                return true;
            }
            at += chunk.head.bytes;
        } else {
            at += 1;
        }
    }
    false
}
