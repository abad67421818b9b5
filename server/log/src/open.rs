//! Opening: creation, verification, recovery. Nothing is written to a log that does not verify.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tribunal_codec::{GroupMark, Mark, decode_control};
use tribunal_core::row_key::RowKeyer;
use tribunal_disk::{Disk, DiskOptions};
use tribunal_types::{Cen, ControlChange, ControlIndex, Csn, GroupId, Lsn, NodeId, StateImage};

use crate::batches::head_of;
use crate::entries::{Records, Tip};
use crate::error::LogError;
use crate::frame::Kind;
use crate::identity::Identity;
use crate::images::ImageWriter;
use crate::lsn_index::spans_of;
use crate::mark_file::{self, Marker};
use crate::outcomes;
use crate::reader::{Index, LogReader, Shared};
use crate::recent::Recent;
use crate::retention::Limits;
use crate::truncation;
use crate::writer::SledLog;

/// How to open a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Node that a new log is created for; an existing log keeps its own.
    pub node: NodeId,
    /// Bytes of sled's page cache.
    pub cache_bytes: u64,
    /// Bytes of decoded epochs kept for readers.
    pub recent_bytes: usize,
    /// Entries are kept for this long even if nothing needs them, milliseconds of replicated time.
    pub retention_ms: u64,
    /// But not beyond this many bytes.
    pub retention_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            node: NodeId(1),
            cache_bytes: 64 * 1024 * 1024,
            recent_bytes: 32 * 1024 * 1024,
            retention_ms: 24 * 60 * 60 * 1000,
            retention_bytes: 8 * 1024 * 1024 * 1024,
        }
    }
}

/// An open log.
pub struct Opened {
    /// Writes it.
    pub writer: SledLog,
    /// Reads it.
    pub reader: LogReader,
    /// What was found.
    pub recovered: Recovered,
}

/// What the log held when it was opened.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Group of the log: node and life.
    pub group: GroupId,
    /// Key of the row hashes.
    pub row_secret: [u8; 16],
    /// The control log.
    pub control: Vec<(ControlIndex, ControlChange)>,
    /// The newest state image that can be read.
    pub image: Option<StateImage>,
    /// First epoch without an entry.
    pub next: Cen,
    /// Above every stamp in the log, the suffix that was never acknowledged included.
    pub last_csn: Csn,
    /// Whether the log was created just now.
    pub created: bool,
    /// What is worth a warning: images that could not be read.
    pub warnings: Vec<String>,
}

/// The trees of a log's database.
pub(crate) struct Trees {
    pub disk: Disk,
    pub entries: Records,
    pub control: Records,
    pub outcomes: Records,
    pub meta: tribunal_disk::Tree,
}

impl Trees {
    pub(crate) fn open(dir: &Path, cache_bytes: u64, group: GroupId) -> Result<Self, LogError> {
        let disk = Disk::open(&dir.join("db"), &DiskOptions { cache_bytes })?;
        let records = |name, kind| Ok::<_, LogError>(Records::new(disk.tree(name)?, kind, group, dir));
        Ok(Self {
            entries: records("entries", Kind::Entry)?,
            control: records("control", Kind::Control)?,
            outcomes: records("outcomes", Kind::Outcome)?,
            meta: disk.tree("meta")?,
            disk,
        })
    }
}

/// Opens the log in `dir`, creating it on first use.
///
/// # Errors
/// [`LogError::Damaged`] if acknowledged entries are missing or unreadable, with the way out; [`LogError::Locked`],
/// [`LogError::Io`].
pub fn open(dir: &Path, options: &LogOptions) -> Result<Opened, LogError> {
    let (identity, created) = match Identity::load(dir)? {
        Some(identity) => (identity, false),
        None => (create(dir, options)?, true),
    };
    let mark = mark_file::load(dir)?.ok_or_else(|| LogError::damaged(dir, "its mark file is missing"))?;
    if !dir.join("db").join("db").exists() {
        return Err(LogError::damaged(dir, "its database file is missing"));
    }
    let trees = Trees::open(dir, options.cache_bytes, identity.group)?;
    let images = ImageWriter::open(dir)?;
    let (image, mut warnings) = images.load_newest();
    let found = verify(dir, &trees, &mark, identity.group, image.as_ref())?;
    if image.is_none() && found.index.first_entry > 1 {
        warnings.push("no state image covers the truncated entries".into());
        return Err(LogError::damaged(dir, warnings.join("; ")));
    }
    let keyer = RowKeyer::new(identity.row_secret);
    let next = found.next.max(image.as_ref().map_or(Cen(1), |image| image.cen.next()));
    let shared = Arc::new(Shared {
        dir: dir.to_owned(),
        disk: trees.disk,
        keyer,
        entries: trees.entries,
        outcomes: trees.outcomes,
        index: RwLock::new(found.index),
        recent: Mutex::new(Recent::new(options.recent_bytes)),
    });
    let writer = SledLog {
        shared: Arc::clone(&shared),
        control: trees.control,
        meta: trees.meta,
        images,
        marker: Marker::start(dir, mark.sequence)?,
        limits: Limits { age_ms: options.retention_ms, bytes: options.retention_bytes },
        group: identity.group,
        tip: found.tip,
        control_tip: found.control_tip,
        next,
        entry_bytes: VecDeque::new(),
        dirty: found.repaired,
        appended_bytes: 0,
    };
    let recovered = Recovered {
        group: identity.group,
        row_secret: identity.row_secret,
        control: found.control,
        image,
        next,
        last_csn: found.last_csn,
        created,
        warnings,
    };
    Ok(Opened { writer, reader: LogReader { shared }, recovered })
}

/// Creates an empty log. The identity is written last: without it nothing was ever acknowledged here.
fn create(dir: &Path, options: &LogOptions) -> Result<Identity, LogError> {
    fs::create_dir_all(dir).map_err(|e| LogError::io("create", dir, &e))?;
    let identity = Identity::draw(options.node)?;
    if dir.join("db").exists() {
        let leftover = Trees::open(dir, options.cache_bytes, identity.group)?;
        if leftover.disk.tree("entries")?.first()?.is_some() || leftover.disk.tree("control")?.first()?.is_some() {
            return Err(LogError::damaged(dir, "its identity file is missing"));
        }
    }
    let trees = Trees::open(dir, options.cache_bytes, identity.group)?;
    trees.disk.sync()?;
    let group = GroupMark { group: identity.group, ..GroupMark::default() };
    mark_file::create(dir, &Mark { groups: vec![group], ..Mark::default() })?;
    identity.store(dir)?;
    if let Some(parent) = dir.canonicalize().ok().as_deref().and_then(Path::parent) {
        tribunal_disk::sync_directory(parent)?;
    }
    Ok(identity)
}

/// What verification found.
struct Found {
    tip: Tip,
    control_tip: Tip,
    control: Vec<(ControlIndex, ControlChange)>,
    next: Cen,
    last_csn: Csn,
    index: Index,
    /// Remains of a write that was never acknowledged were removed.
    repaired: bool,
}

fn verify(
    dir: &Path,
    trees: &Trees,
    mark: &Mark,
    group: GroupId,
    image: Option<&StateImage>,
) -> Result<Found, LogError> {
    let marked = mark.groups.iter().find(|m| m.group == group).copied();
    let marked = marked.ok_or_else(|| LogError::damaged(dir, "its mark is that of another log"))?;
    let mut control = Vec::new();
    let control_tip = trees.control.verify(1, |stored| {
        let change = decode_control(&stored.payload)
            .map_err(|e| LogError::damaged(dir, format!("control entry {}: {e}", stored.index)))?;
        control.push((ControlIndex(stored.index), change));
        Ok(())
    })?;
    let control_tip =
        check_tip(dir, "control log", control_tip, mark.control_index, mark.control_chain, &trees.control)?;

    let mut index = Index { first_entry: trees.entries.first_index()?.unwrap_or(1), ..Index::default() };
    load_outcomes(dir, trees, &mut index)?;
    let from = image.and_then(|image| index.runs.last_below(image.cen.next())).map_or(index.first_entry, |run| run.1);
    let (mut next, mut last_csn) = (Cen(1), Csn(0));
    let tip = trees.entries.verify(from, |stored| {
        let damaged = |reason: String| LogError::damaged(dir, format!("entry {}: {reason}", stored.index));
        let (head, _) = head_of(&stored.payload).map_err(|e| damaged(e.to_string()))?;
        if stored.index != from && head.first != next {
            return Err(damaged(format!("it seals from epoch {}, the next was {next}", head.first)));
        }
        next = head.last.next();
        last_csn = last_csn.max(head.last_csn);
        index.runs.push(head.last, stored.index);
        Ok(())
    })?;
    let tip = check_tip(dir, "log", tip, marked.index, marked.chain, &trees.entries)?;
    let repaired = remove_remains(&trees.entries, tip)? | remove_remains(&trees.control, control_tip)?;
    if last_csn == Csn(0) {
        last_csn = last_stamp_below(dir, trees, from)?;
    }
    Ok(Found { tip, control_tip, control, next, last_csn, index, repaired })
}

/// Compares where a chain ends with its mark.
fn check_tip(
    dir: &Path,
    what: &str,
    tip: Option<Tip>,
    marked: u64,
    marked_chain: u64,
    records: &Records,
) -> Result<Tip, LogError> {
    let tip = tip.unwrap_or(Tip { index: 0, chain: 0 });
    if tip.index < marked {
        let reason = format!("the {what} ends with entry {}, but entry {marked} was acknowledged", tip.index);
        return Err(LogError::damaged(dir, reason));
    }
    // The chain behind the marked entry is the link of the next one, or the end.
    let chain = if tip.index == marked { Some(tip.chain) } else { records.read(marked + 1)?.map(|stored| stored.link) };
    if chain != Some(marked_chain) {
        let reason = format!("the {what} is not the one that its mark was set on (entry {marked})");
        return Err(LogError::damaged(dir, reason));
    }
    Ok(tip)
}

/// Removes chunks above the last whole entry.
fn remove_remains(records: &Records, tip: Tip) -> Result<bool, LogError> {
    let torn = records.last_index()?.is_some_and(|last| last > tip.index);
    if torn {
        records.remove_above(tip.index)?;
    }
    Ok(torn)
}

/// Rebuilds what is derived from outcome records.
fn load_outcomes(dir: &Path, trees: &Trees, index: &mut Index) -> Result<(), LogError> {
    let truncated = truncation::load(&trees.meta, dir)?;
    if index.first_entry > truncated.first_entry.max(1) {
        let reason = format!("its first entry is {}, but {} must be there", index.first_entry, truncated.first_entry);
        return Err(LogError::damaged(dir, reason));
    }
    for (store, lsn) in truncated.positions {
        index.lsns.set_truncated(store, lsn);
    }
    for stored in trees.outcomes.scan(0) {
        let stored = outcomes::outcome_of(&stored?, dir)?;
        let outcome = &stored.outcome;
        if stored.entry < index.first_entry {
            // Its entry is truncated, the outcome was not removed yet.
            for (store, span) in spans_of(outcome) {
                index.lsns.set_truncated(store, Lsn(span.first.0 + span.count - 1));
            }
            index.oldest = outcome.cen.next();
            continue;
        }
        index.runs.push(outcome.cen, stored.entry);
        index.lsns.push(outcome);
        index.retention.push(outcome.cen, outcome.epoch_time_ms, stored.entry_bytes);
    }
    Ok(())
}

/// Walks back to the last entry before `index` that carries a transaction.
fn last_stamp_below(dir: &Path, trees: &Trees, index: u64) -> Result<Csn, LogError> {
    for index in (1..index).rev() {
        let Some(stored) = trees.entries.read(index)? else { break };
        let (head, _) = head_of(&stored.payload).map_err(|e| LogError::damaged(dir, format!("entry {index}: {e}")))?;
        if head.last_csn > Csn(0) {
            return Ok(head.last_csn);
        }
    }
    Ok(Csn(0))
}
