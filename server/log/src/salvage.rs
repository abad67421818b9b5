//! The way out of a damaged log: keep what can be proved, set the rest aside, say what is lost.
//!
//! sled is not asked. Chunks are searched in the raw bytes of its file, where each names its place and carries its
//! checksum; chains are built from them anew, and a new database is written. The damaged one stays under another name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tribunal_codec::{GroupMark, Mark, decode_control};
use tribunal_core::row_key::RowKeyer;
use tribunal_disk::VALUE_BYTES_MAX;
use tribunal_types::{Cen, ControlIndex, GroupId, Lsn, StoreId};

use crate::batches::{batch_of, head_of};
use crate::entries::{Stored, Tip};
use crate::error::LogError;
use crate::frame::{Kind, MAGIC, Place, chain, read_chunk};
use crate::identity::Identity;
use crate::images::ImageWriter;
use crate::lsn_index::spans_of;
use crate::mark_file;
use crate::open::Trees;
use crate::outcomes;
use crate::truncation::{self, Truncated};

/// Bytes of the file that are searched at once.
const WINDOW_BYTES: usize = 8 * 1024 * 1024;
/// sled's cache while the new database is written.
const CACHE_BYTES: u64 = 32 * 1024 * 1024;
/// Records between two syncs of the new database.
const RECORDS_PER_SYNC: u64 = 256;

/// What was kept and what was lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SalvageReport {
    /// First and last entry kept; `None` if none was.
    pub entries: Option<(u64, u64)>,
    /// First epoch without an entry now.
    pub next: Cen,
    /// Last entry that the mark knew as acknowledged; `None` if the mark was unreadable.
    pub marked: Option<u64>,
    /// Acknowledged entries that are lost, as far as the mark tells.
    pub lost: u64,
    /// Entries of the control log kept.
    pub control: u64,
    /// Outcomes kept; the others are computed again.
    pub outcomes: u64,
    /// Epoch of the state image that the log starts from.
    pub image: Option<Cen>,
    /// Where the damaged database lies now.
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
    let old = dir.join("db");
    let lock = tribunal_disk::lock_directory(&old)?;
    let marked = mark_file::load(dir).ok().flatten();
    let marked = marked.as_ref().and_then(|mark| mark.groups.iter().find(|m| m.group == identity.group));
    let found = Found::search(&old.join("db"), identity.group)?;
    let image = ImageWriter::open(dir)?.load_newest().0.map(|image| image.cen);
    let control = found.control_chain()?;
    let keyer = RowKeyer::new(identity.row_secret);
    let kept = found.entry_chain(image, ControlIndex(control), &keyer)?;
    drop(lock);
    let set_aside = set_aside(dir, &old)?;
    let mut report = SalvageReport {
        entries: kept.map(|chain| (chain.first, chain.last)),
        next: kept.map_or(image.map_or(Cen(1), Cen::next), |chain| chain.next),
        marked: marked.map(|mark| mark.index),
        lost: marked.map_or(0, |mark| mark.index.saturating_sub(kept.map_or(0, |chain| chain.last))),
        control,
        outcomes: 0,
        image,
        set_aside,
    };
    // The records are read from the damaged file, which is open still and only has another name.
    found.rebuild(dir, identity.group, kept, &mut report)?;
    Ok(report)
}

fn set_aside(dir: &Path, old: &Path) -> Result<PathBuf, LogError> {
    let free = (1..).map(|n| dir.join(format!("db.damaged-{n}"))).find(|path| !path.exists());
    let target = free.unwrap_or_else(|| dir.join("db.damaged"));
    fs::rename(old, &target).map_err(|e| LogError::io("set aside", old, &e))?;
    tribunal_disk::sync_directory(dir)?;
    Ok(target)
}

/// Where a chunk lies in the damaged file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Located {
    at: u64,
    len: usize,
    count: u32,
    link: u64,
}

/// A chain of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chain {
    first: u64,
    last: u64,
    /// First epoch behind it.
    next: Cen,
    /// First epoch within it.
    start: Cen,
}

/// All chunks of a group that the damaged file holds.
struct Found {
    file: File,
    group: GroupId,
    chunks: BTreeMap<(Place, u32), Vec<Located>>,
    dir: PathBuf,
}

impl Found {
    /// Searches the raw bytes; what is no chunk is passed over.
    fn search(path: &Path, group: GroupId) -> Result<Self, LogError> {
        let file = File::open(path).map_err(|e| LogError::io("open", path, &e))?;
        let len = file.metadata().map_err(|e| LogError::io("look at", path, &e))?.len();
        let mut found = Self { file, group, chunks: BTreeMap::new(), dir: path.to_owned() };
        let mut window = vec![0; WINDOW_BYTES + VALUE_BYTES_MAX];
        let mut base = 0;
        while base < len {
            let filled = usize::try_from((len - base).min(window.len() as u64)).unwrap_or(window.len());
            found.file.read_exact_at(&mut window[..filled], base).map_err(|e| LogError::io("read", path, &e))?;
            found.search_window(&window[..filled], base);
            base += WINDOW_BYTES as u64;
        }
        Ok(found)
    }

    fn search_window(&mut self, window: &[u8], base: u64) {
        let mut at = 0;
        while at < window.len().min(WINDOW_BYTES) {
            if window[at] == MAGIC
                && let Ok(chunk) = read_chunk(&window[at..])
            {
                let located = Located { at: base + at as u64, len: chunk.bytes, count: chunk.count, link: chunk.link };
                if chunk.place.group == self.group {
                    self.chunks.entry((chunk.place, chunk.number)).or_default().push(located);
                }
                at += chunk.bytes;
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
            if records.iter().any(|known| known.link == first.link) {
                // sled writes pages again and again; the copies are the same.
                continue;
            }
            let mut payload = self.piece(first)?;
            let mut complete = true;
            for number in 1..first.count {
                let candidates = self.chunks.get(&(place, number)).into_iter().flatten();
                match candidates.filter(|c| c.count == first.count).last() {
                    Some(located) => payload.extend_from_slice(&self.piece(located)?),
                    None => complete = false,
                }
            }
            if complete {
                records.push(Stored { index, link: first.link, payload });
            }
        }
        Ok(records)
    }

    fn piece(&self, located: &Located) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; located.len];
        self.file.read_exact_at(&mut bytes, located.at).map_err(|e| LogError::io("read", &self.dir, &e))?;
        let chunk = read_chunk(&bytes).map_err(|e| LogError::Io { reason: format!("the file changes: {e}") })?;
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
        image: Option<Cen>,
        control: ControlIndex,
        keyer: &RowKeyer,
    ) -> Result<Option<Chain>, LogError> {
        let mut open: Option<(Chain, u64)> = None;
        let mut best = None;
        let usable = |chain: &Chain| match image {
            None => chain.first == 1,
            Some(cen) => chain.start <= cen.next() && chain.next >= cen.next(),
        };
        for index in self.indices(Kind::Entry) {
            let records = self.records(Kind::Entry, index)?;
            let follows = |record: &&Stored| open.is_some_and(|(c, hash)| c.last + 1 == index && record.link == hash);
            let stored = records.iter().find(follows).or_else(|| records.first());
            let Some(stored) = stored else { continue };
            let Ok(batch) = batch_of(&stored.payload, keyer) else { continue };
            if batch.control > control || batch.group != self.group || (index == 1 && stored.link != 0) {
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

    /// Writes a new database and a new mark.
    fn rebuild(
        &self,
        dir: &Path,
        group: GroupId,
        kept: Option<Chain>,
        report: &mut SalvageReport,
    ) -> Result<(), LogError> {
        let trees = Trees::open(dir, CACHE_BYTES, group)?;
        let mut control_tip = Tip { index: 0, chain: 0 };
        for index in 1..=report.control {
            let stored = self.records(Kind::Control, index)?.into_iter().find(|r| r.link == control_tip.chain);
            let Some(stored) = stored else { break };
            let appended = trees.control.append(index, stored.link, &stored.payload)?;
            control_tip = Tip { index, chain: appended.chain };
        }
        let mut tip = Tip { index: 0, chain: 0 };
        let mut ends: BTreeMap<Cen, u64> = BTreeMap::new();
        for index in kept.map_or(1..1, |chain| chain.first..chain.last + 1) {
            let records = self.records(Kind::Entry, index)?;
            let stored = records.iter().find(|r| tip.index > 0 && r.link == tip.chain).or_else(|| records.first());
            let Some(stored) = stored else { break };
            if let Ok((head, _)) = head_of(&stored.payload) {
                ends.insert(head.last, index);
            }
            let appended = trees.entries.append(index, stored.link, &stored.payload)?;
            tip = Tip { index, chain: appended.chain };
            if index % RECORDS_PER_SYNC == 0 {
                trees.disk.sync()?;
            }
        }
        let positions = self.rebuild_outcomes(dir, &trees, &ends, report)?;
        truncation::store(&trees.meta, &Truncated { first_entry: kept.map_or(0, |chain| chain.first), positions })?;
        trees.disk.sync()?;
        let marked = GroupMark { group, index: tip.index, chain: tip.chain, ..GroupMark::default() };
        let mark = Mark {
            sequence: 0,
            control_index: control_tip.index,
            control_chain: control_tip.chain,
            groups: vec![marked],
        };
        mark_file::create(dir, &mark)
    }

    /// Writes the outcomes of kept entries; returns each store's last position before them.
    fn rebuild_outcomes(
        &self,
        dir: &Path,
        trees: &Trees,
        ends: &BTreeMap<Cen, u64>,
        report: &mut SalvageReport,
    ) -> Result<Vec<(StoreId, Lsn)>, LogError> {
        let mut before: BTreeMap<StoreId, Lsn> = BTreeMap::new();
        for (cen, entry) in ends {
            let records = self.records(Kind::Outcome, cen.0)?;
            let Some(stored) = records.iter().find(|record| record.link == *entry) else { continue };
            let Ok(outcome) = outcomes::outcome_of(stored, dir) else { continue };
            trees.outcomes.append(cen.0, *entry, &stored.payload)?;
            for (store, span) in spans_of(&outcome.outcome) {
                before.entry(store).or_insert(Lsn(span.first.0 - 1));
            }
            report.outcomes += 1;
            if report.outcomes.is_multiple_of(RECORDS_PER_SYNC) {
                trees.disk.sync()?;
            }
        }
        Ok(before.into_iter().filter(|(_, lsn)| *lsn > Lsn(0)).collect())
    }
}
