//! The way out of a damaged log: keep what can be proved, set the rest aside, say what is lost.
//!
//! Nothing is asked what it holds. Chunks are searched in the raw bytes of the segments and of sled's file, where each names
//! its place and carries its checksum; chains are built from them anew, and new files are written. The damaged ones stay
//! under another name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tribunal_codec::{GroupMark, Mark, decode_control};
use tribunal_core::row_key::RowKeyer;
use tribunal_disk::VALUE_BYTES_MAX;
use tribunal_types::{ControlIndex, Epoch, GroupId, LogId, Lsn, StoreId};

use crate::batches::{batch_of, head_of};
use crate::error::LogError;
use crate::frame::{Kind, MAGIC, Part, Place, chain, read_chunk};
use crate::identity::Identity;
use crate::images::ImageWriter;
use crate::lsn_index::spans_of;
use crate::mark_file;
use crate::open::Parts;
use crate::outcomes;
use crate::segment_writer::SegmentWriter;
use crate::tree_records::{Stored, Tip};
use crate::truncation::{self, Truncated};

/// Bytes of the file that are searched at once.
const WINDOW_BYTES: usize = 8 * 1024 * 1024;
/// sled's cache while the new files are written.
const CACHE_BYTES: u64 = 32 * 1024 * 1024;
/// Records between two syncs of the new segments.
const RECORDS_PER_SYNC: u64 = 256;

/// What was kept and what was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// New name of the log: what followed the old one must be compared with it.
    pub id: LogId,
    /// First and last entry kept; `None` if none was.
    pub entries: Option<(u64, u64)>,
    /// First epoch without an entry now.
    pub next: Epoch,
    /// Last entry that the mark knew as acknowledged; `None` if the mark was unreadable.
    pub marked: Option<u64>,
    /// Acknowledged entries that are lost, as far as the mark tells.
    pub lost: u64,
    /// Entries of the control log kept.
    pub control: u64,
    /// Outcomes kept; the others are computed again.
    pub outcomes: u64,
    /// Epoch of the state image that the log starts from.
    pub image: Option<Epoch>,
    /// Where the damaged files lie now.
    pub set_aside: PathBuf,
}

/// Rebuilds the log in `dir` from what is readable in it. The node must not run.
///
/// # Errors
/// [`LogError::Locked`], [`LogError::Io`]; [`LogError::Damaged`] if its identity is lost, without which rows cannot be
/// recognised: then only a copy helps.
pub fn salvage(dir: &Path) -> Result<SalvageReport, LogError> {
    let identity = Identity::load(dir)?.ok_or_else(|| LogError::Io {
        reason: format!("{} has no identity file: no log was created", dir.display()),
    })?;
    let database = dir.join("db");
    fs::create_dir_all(&database).map_err(|e| LogError::io("create", &database, &e))?;
    let lock = tribunal_disk::lock_directory(&database)?;
    let marked = mark_file::load(dir).ok().flatten();
    let marked = marked.as_ref().and_then(|mark| mark.groups.iter().find(|m| m.group == identity.group));
    let found = Found::search(dir, identity.group)?;
    let image = ImageWriter::open(dir)?.load_newest().0.map(|image| image.epoch);
    let control = found.control_chain()?;
    let keyer = RowKeyer::new(identity.row_secret);
    let kept = found.entry_chain(image, ControlIndex(control), &keyer)?;
    let set_aside = set_aside(dir)?;
    drop(lock);
    let renewed = identity.renewed()?;
    let mut report = SalvageReport {
        id: renewed.id,
        entries: kept.map(|chain| (chain.first, chain.last)),
        next: kept.map_or(image.map_or(Epoch(1), Epoch::next), |chain| chain.next),
        marked: marked.map(|mark| mark.index),
        lost: marked.map_or(0, |mark| mark.index.saturating_sub(kept.map_or(0, |chain| chain.last))),
        control,
        outcomes: 0,
        image,
        set_aside,
    };
    // The records are read from the damaged files, which are open still and only have other names.
    found.rebuild(dir, kept, &mut report)?;
    renewed.store(dir)?;
    Ok(report)
}

fn set_aside(dir: &Path) -> Result<PathBuf, LogError> {
    let free = (1..).map(|n| dir.join(format!("damaged-{n}"))).find(|path| !path.exists());
    let target = free.unwrap_or_else(|| dir.join("damaged"));
    fs::create_dir_all(&target).map_err(|e| LogError::io("create", &target, &e))?;
    for name in ["db", "segments"] {
        let from = dir.join(name);
        if from.exists() {
            fs::rename(&from, target.join(name)).map_err(|e| LogError::io("set aside", &from, &e))?;
        }
    }
    tribunal_disk::sync_directory(&target)?;
    tribunal_disk::sync_directory(dir)?;
    Ok(target)
}

/// Where a chunk lies in the damaged files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Located {
    source: usize,
    at: u64,
    len: usize,
    part: Part,
}

/// A damaged file.
struct Source {
    file: File,
    path: PathBuf,
    /// Position of its first byte; `None` where chunks do not know their position.
    base: Option<u64>,
}

impl Source {
    fn open(path: PathBuf, base: Option<u64>) -> Result<Self, LogError> {
        let file = File::open(&path).map_err(|e| LogError::io("open", &path, &e))?;
        Ok(Self { file, path, base })
    }

    fn position(&self, at: u64) -> u64 {
        self.base.map_or(0, |base| base + at)
    }
}

/// Finds the files that may hold chunks, segments in order.
fn sources(dir: &Path) -> Result<Vec<Source>, LogError> {
    let mut found = Vec::new();
    let segments = dir.join("segments");
    if segments.exists() {
        for entry in fs::read_dir(&segments).map_err(|e| LogError::io("read", &segments, &e))? {
            let entry = entry.map_err(|e| LogError::io("read", &segments, &e))?;
            let name = entry.file_name();
            let base = name.to_str().and_then(|n| n.strip_prefix("log-")).and_then(|n| u64::from_str_radix(n, 16).ok());
            if let Some(base) = base {
                found.push(Source::open(entry.path(), Some(base))?);
            }
        }
    }
    found.sort_by_key(|source| source.base);
    let database = dir.join("db").join("db");
    if database.exists() {
        found.push(Source::open(database, None)?);
    }
    Ok(found)
}

/// A chain of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chain {
    first: u64,
    last: u64,
    /// First epoch behind it.
    next: Epoch,
    /// First epoch within it.
    start: Epoch,
}

/// All chunks of a group that the damaged files hold.
struct Found {
    sources: Vec<Source>,
    group: GroupId,
    chunks: BTreeMap<(Place, u32), Vec<Located>>,
}

impl Found {
    /// Searches the raw bytes; what is no chunk is passed over.
    fn search(dir: &Path, group: GroupId) -> Result<Self, LogError> {
        let mut found = Self { sources: sources(dir)?, group, chunks: BTreeMap::new() };
        let mut window = vec![0; WINDOW_BYTES + VALUE_BYTES_MAX];
        for number in 0..found.sources.len() {
            let source = &found.sources[number];
            let failed = |e: std::io::Error| LogError::io("read", &source.path, &e);
            let len = source.file.metadata().map_err(failed)?.len();
            let mut base = 0;
            while base < len {
                let source = &found.sources[number];
                let filled = usize::try_from((len - base).min(window.len() as u64)).unwrap_or(window.len());
                let read = source.file.read_exact_at(&mut window[..filled], base);
                read.map_err(|e| LogError::io("read", &source.path, &e))?;
                found.search_window(&window[..filled], number, base);
                base += WINDOW_BYTES as u64;
            }
        }
        Ok(found)
    }

    fn search_window(&mut self, window: &[u8], source: usize, base: u64) {
        let mut at = 0;
        while at < window.len().min(WINDOW_BYTES) {
            let offset = base + at as u64;
            if window[at] == MAGIC
                && let Ok(chunk) = read_chunk(&window[at..], self.sources[source].position(offset), self.group)
            {
                let head = chunk.head;
                let located = Located { source, at: offset, len: head.bytes, part: head.part };
                self.chunks.entry((head.place, head.part.number)).or_default().push(located);
                at += head.bytes;
            } else {
                at += 1;
            }
        }
    }

    /// Returns the versions of a record that are complete.
    fn records(&self, kind: Kind, index: u64) -> Result<Vec<Stored>, LogError> {
        let place = Place { kind, group: self.group, index };
        let mut records: Vec<Stored> = Vec::new();
        for first in self.chunks.get(&(place, 0)).into_iter().flatten() {
            if records.iter().any(|known| known.link == first.part.link) {
                // sled writes pages again and again; the copies are the same.
                continue;
            }
            let mut payload = self.piece(first)?;
            let mut complete = true;
            for number in 1..first.part.count {
                let mut candidates = self.chunks.get(&(place, number)).into_iter().flatten();
                match candidates.rfind(|c| c.part.count == first.part.count) {
                    Some(located) => payload.extend_from_slice(&self.piece(located)?),
                    None => complete = false,
                }
            }
            if complete {
                records.push(Stored { index, link: first.part.link, payload });
            }
        }
        Ok(records)
    }

    fn piece(&self, located: &Located) -> Result<Vec<u8>, LogError> {
        let source = &self.sources[located.source];
        let mut bytes = vec![0; located.len];
        source.file.read_exact_at(&mut bytes, located.at).map_err(|e| LogError::io("read", &source.path, &e))?;
        let chunk = read_chunk(&bytes, source.position(located.at), self.group)
            .map_err(|e| LogError::Io { reason: format!("{} changes: {e}", source.path.display()) })?;
        Ok(chunk.piece.to_vec())
    }

    fn indices(&self, kind: Kind) -> impl Iterator<Item = u64> + '_ {
        self.chunks.keys().filter(move |(place, number)| place.kind == kind && *number == 0).map(|(p, _)| p.index)
    }

    /// Returns how far the control log is whole from its start.
    fn control_chain(&self) -> Result<u64, LogError> {
        let mut tip = Tip { index: 0, chain: 0 };
        while let Some(stored) =
            self.records(Kind::Control, tip.index + 1)?.into_iter().find(|record| record.link == tip.chain)
        {
            if decode_control(&stored.payload).is_err() {
                break;
            }
            tip = Tip { index: stored.index, chain: chain(stored.link, stored.index, &stored.payload) };
        }
        Ok(tip.index)
    }

    /// Returns the chain of entries that a node can go on from: from the image, or from the first entry of all.
    fn entry_chain(
        &self,
        image: Option<Epoch>,
        control: ControlIndex,
        keyer: &RowKeyer,
    ) -> Result<Option<Chain>, LogError> {
        let mut open: Option<(Chain, u64)> = None;
        let mut best = None;
        let usable = |chain: &Chain| match image {
            None => chain.first == 1,
            Some(epoch) => chain.start <= epoch.next() && chain.next >= epoch.next(),
        };
        for index in self.indices(Kind::Entry) {
            let records = self.records(Kind::Entry, index)?;
            let follows = |record: &&Stored| open.is_some_and(|(c, hash)| c.last + 1 == index && record.link == hash);
            let stored = records.iter().find(follows).or_else(|| records.first());
            let Some(stored) = stored else { continue };
            let Ok(batch) = batch_of(&stored.payload, self.group, keyer) else { continue };
            if batch.control > control || (index == 1 && stored.link != 0) {
                continue;
            }
            let hash = chain(stored.link, index, &stored.payload);
            let goes_on =
                open.filter(|(c, before)| c.last + 1 == index && *before == stored.link && c.next == batch.first);
            let longer = match goes_on {
                Some((c, _)) => Chain { last: index, next: batch.last.next(), ..c },
                None => Chain { first: index, last: index, next: batch.last.next(), start: batch.first },
            };
            if usable(&longer) {
                best = Some(longer);
            }
            open = Some((longer, hash));
        }
        Ok(best)
    }

    /// Writes new files and a new mark.
    fn rebuild(&self, dir: &Path, kept: Option<Chain>, report: &mut SalvageReport) -> Result<(), LogError> {
        let parts = Parts::open(dir, CACHE_BYTES, self.group)?;
        let mut control_tip = Tip { index: 0, chain: 0 };
        for index in 1..=report.control {
            let stored = self.records(Kind::Control, index)?.into_iter().find(|r| r.link == control_tip.chain);
            let Some(stored) = stored else { break };
            let appended = parts.control.append(index, stored.link, &stored.payload)?;
            control_tip = Tip { index, chain: appended.chain };
        }
        let mut writer = SegmentWriter::start(Arc::clone(&parts.segments), 0, false)?;
        let mut tip = Tip { index: 0, chain: 0 };
        let mut positions = BTreeMap::new();
        for index in kept.map_or(1..1, |chain| chain.first..chain.last + 1) {
            let records = self.records(Kind::Entry, index)?;
            let stored = records.iter().find(|r| tip.index > 0 && r.link == tip.chain).or_else(|| records.first());
            let Some(stored) = stored else { break };
            let appended = writer.append(Kind::Entry, index, stored.link, &stored.payload)?;
            tip = Tip { index, chain: appended.chain };
            self.rebuild_outcome(dir, &mut writer, stored, &mut positions, report)?;
            if index % RECORDS_PER_SYNC == 0 {
                writer.sync()?;
            }
        }
        writer.sync()?;
        let positions = positions.into_iter().filter(|(_, lsn)| *lsn > Lsn(0)).collect();
        truncation::store(&parts.meta, &Truncated { first_entry: kept.map_or(0, |chain| chain.first), positions })?;
        parts.disk.sync()?;
        let marked = GroupMark { group: self.group, index: tip.index, chain: tip.chain, ..GroupMark::default() };
        let mark = Mark {
            sequence: 0,
            control_index: control_tip.index,
            control_chain: control_tip.chain,
            groups: vec![marked],
        };
        mark_file::create(dir, &mark)
    }

    /// Writes the outcome of a kept entry, and notes each store's last position before the first one kept.
    fn rebuild_outcome(
        &self,
        dir: &Path,
        writer: &mut SegmentWriter,
        entry: &Stored,
        before: &mut BTreeMap<StoreId, Lsn>,
        report: &mut SalvageReport,
    ) -> Result<(), LogError> {
        let Ok(head) = head_of(&entry.payload, self.group) else { return Ok(()) };
        let records = self.records(Kind::Outcome, head.last.0)?;
        let Some(stored) = records.iter().find(|record| record.link == entry.index) else { return Ok(()) };
        let Ok(outcome) = outcomes::outcome_of(stored, dir) else { return Ok(()) };
        writer.append(Kind::Outcome, head.last.0, entry.index, &stored.payload)?;
        for (store, span) in spans_of(&outcome.outcome) {
            before.entry(store).or_insert(Lsn(span.first.0 - 1));
        }
        report.outcomes += 1;
        Ok(())
    }
}
