//! Opening: creation, verification, recovery. Nothing is written to a log that does not verify.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tribunal_codec::{GroupMark, Mark, decode_control};
use tribunal_core::row_key::RowKeyer;
use tribunal_disk::{Disk, DiskOptions};
use tribunal_types::{ControlChange, ControlIndex, Csn, Epoch, GroupId, LogId, Lsn, NodeId, StateImage};

use crate::batches::head_of;
use crate::error::LogError;
use crate::frame::{Kind, chain};
use crate::identity::Identity;
use crate::images::ImageWriter;
use crate::lsn_index::spans_of;
use crate::mark_file::{self, Marker};
use crate::outcomes;
use crate::reader::{Index, LogReader, Shared};
use crate::recent::Recent;
use crate::retention::{Limits, Undecided};
use crate::segment_scan::{End, scan};
use crate::segment_writer::SegmentWriter;
use crate::segments::Segments;
use crate::tree_records::{Records, Stored, Tip};
use crate::truncation;
use crate::writer::DiskLog;

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
    pub writer: DiskLog,
    /// Reads it.
    pub reader: LogReader,
    /// What was found.
    pub recovered: Recovered,
}

/// What the log held when it was opened.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Name of the log.
    pub id: LogId,
    /// Group of the log: node and incarnation.
    pub group: GroupId,
    /// Key of the row hashes.
    pub row_secret: [u8; 16],
    /// The control log.
    pub control: Vec<(ControlIndex, ControlChange)>,
    /// The newest state image that can be read.
    pub image: Option<StateImage>,
    /// First epoch without an entry.
    pub next: Epoch,
    /// Above every stamp in the log, the suffix that was never acknowledged included.
    pub last_csn: Csn,
    /// Whether the log was created just now.
    pub created: bool,
    /// What is worth a warning: images that could not be read.
    pub warnings: Vec<String>,
}

/// What a log consists of beside its identity, mark and images.
pub(crate) struct Parts {
    pub segments: Arc<Segments>,
    pub disk: Disk,
    pub control: Records,
    pub meta: tribunal_disk::Tree,
}

impl Parts {
    pub(crate) fn open(dir: &Path, cache_bytes: u64, group: GroupId) -> Result<Self, LogError> {
        let segments = Arc::new(Segments::open(dir, group)?);
        let disk = Disk::open(&dir.join("db"), &DiskOptions { cache_bytes })?;
        let control = Records::new(disk.tree("control")?, Kind::Control, group, dir);
        Ok(Self { segments, control, meta: disk.tree("meta")?, disk })
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
    let parts = Parts::open(dir, options.cache_bytes, identity.group)?;
    let images = ImageWriter::open(dir)?;
    let (image, mut warnings) = images.load_newest();
    let found = verify(dir, &parts, &mark, identity.group)?;
    if image.is_none() && found.index.first_entry > 1 {
        warnings.push("no state image covers the truncated entries".into());
        return Err(LogError::damaged(dir, warnings.join("; ")));
    }
    let keyer = RowKeyer::new(identity.row_secret);
    let next = found.next.max(image.as_ref().map_or(Epoch(1), |image| image.epoch.next()));
    let shared = Arc::new(Shared {
        dir: dir.to_owned(),
        id: identity.id,
        keyer,
        segments: Arc::clone(&parts.segments),
        index: RwLock::new(found.index),
        recent: Mutex::new(Recent::new(options.recent_bytes)),
    });
    let writer = DiskLog {
        shared: Arc::clone(&shared),
        segments: SegmentWriter::start(parts.segments, found.end.position, found.end.torn)?,
        disk: parts.disk,
        control: parts.control,
        meta: parts.meta,
        images,
        marker: Marker::start(dir, mark.sequence)?,
        limits: Limits { age_ms: options.retention_ms, bytes: options.retention_bytes },
        group: identity.group,
        tip: found.tip,
        control_tip: found.control_tip,
        next,
        undecided: found.undecided,
        // What a killed process left may be in the kernel's cache only; the first sync makes it durable.
        dirty: found.tip.index > 0,
        disk_dirty: found.repaired || found.control_tip.index > 0,
        appended_bytes: 0,
    };
    let recovered = Recovered {
        id: identity.id,
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
    let parts = Parts::open(dir, options.cache_bytes, identity.group)?;
    if !parts.segments.files().is_empty() || parts.disk.tree("control")?.first()?.is_some() {
        return Err(LogError::damaged(dir, "its identity file is missing"));
    }
    parts.disk.sync()?;
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
    next: Epoch,
    last_csn: Csn,
    index: Index,
    undecided: Undecided,
    /// Remains of a write that was never acknowledged were removed.
    repaired: bool,
    end: End,
}

fn verify(dir: &Path, parts: &Parts, mark: &Mark, group: GroupId) -> Result<Found, LogError> {
    let marked = mark.groups.iter().find(|m| m.group == group).copied();
    let marked = marked.ok_or_else(|| LogError::damaged(dir, "its mark is that of another log"))?;
    let mut control = Vec::new();
    let control_tip = parts.control.verify(1, |stored| {
        let change = decode_control(&stored.payload)
            .map_err(|e| LogError::damaged(dir, format!("control entry {}: {e}", stored.index)))?;
        control.push((ControlIndex(stored.index), change));
        Ok(())
    })?;
    let control_tip = control_tip.unwrap_or(Tip { index: 0, chain: 0 });
    let marked_chain = |index| Ok::<_, LogError>(parts.control.read(index + 1)?.map(|stored| stored.link));
    check_tip(dir, "control log", control_tip, (mark.control_index, mark.control_chain), marked_chain)?;

    let mut replay = Replay {
        dir,
        parts,
        index: Index::default(),
        undecided: Undecided::default(),
        tip: None,
        next: Epoch(1),
        last_csn: Csn(0),
    };
    let truncated = truncation::load(&parts.meta, dir)?;
    for (store, lsn) in &truncated.positions {
        replay.index.lsns.set_truncated(*store, *lsn);
    }
    let end = scan(&parts.segments, |kind, position, stored| replay.record(kind, position, &stored))?;
    let Replay { mut index, undecided, tip, next, last_csn, .. } = replay;
    index.first_entry = index.first_entry.max(1);
    if index.first_entry > truncated.first_entry.max(1) {
        let reason = format!("its first entry is {}, but {} must be there", index.first_entry, truncated.first_entry);
        return Err(LogError::damaged(dir, reason));
    }
    let tip = tip.unwrap_or(Tip { index: 0, chain: 0 });
    let marked_chain =
        |index| Ok::<_, LogError>(parts.segments.read(Kind::Entry, index + 1)?.map(|stored| stored.link));
    check_tip(dir, "log", tip, (marked.index, marked.chain), marked_chain)?;
    let repaired = remove_remains(&parts.control, control_tip)?;
    Ok(Found { tip, control_tip, control, next, last_csn, index, undecided, repaired, end })
}

/// What the records of the segments add up to.
struct Replay<'a> {
    dir: &'a Path,
    parts: &'a Parts,
    index: Index,
    undecided: Undecided,
    tip: Option<Tip>,
    next: Epoch,
    last_csn: Csn,
}

impl Replay<'_> {
    fn record(&mut self, kind: Kind, position: u64, stored: &Stored) -> Result<(), LogError> {
        self.parts.segments.note(kind, stored.index, position);
        if kind == Kind::Outcome { self.outcome(stored) } else { self.entry(stored) }
    }

    fn entry(&mut self, stored: &Stored) -> Result<(), LogError> {
        let damaged = |reason: String| LogError::damaged(self.dir, format!("entry {}: {reason}", stored.index));
        let fits = match self.tip {
            Some(tip) => tip.index + 1 == stored.index && tip.chain == stored.link,
            None => stored.index != 1 || stored.link == 0,
        };
        if !fits {
            return Err(damaged("the chain is broken before it".into()));
        }
        let head = head_of(&stored.payload, self.parts.segments.group).map_err(|e| damaged(e.to_string()))?;
        if self.tip.is_some() && head.first != self.next {
            return Err(damaged(format!("it seals from epoch {}, the next was {}", head.first, self.next)));
        }
        if self.tip.is_none() {
            self.index.first_entry = stored.index;
            self.index.oldest = head.first;
        }
        self.tip = Some(Tip { index: stored.index, chain: chain(stored.link, stored.index, &stored.payload) });
        self.next = head.last.next();
        self.last_csn = self.last_csn.max(head.last_csn);
        self.index.runs.push(head.last, stored.index);
        self.undecided.push(head.last, stored.payload.len() as u64);
        Ok(())
    }

    fn outcome(&mut self, stored: &Stored) -> Result<(), LogError> {
        let stored = outcomes::outcome_of(stored, self.dir)?;
        let outcome = &stored.outcome;
        if self.tip.is_some() && stored.entry >= self.index.first_entry {
            self.index.lsns.push(outcome);
            let bytes = self.undecided.take(outcome.epoch);
            self.index.retention.push(outcome.epoch, outcome.epoch_time_ms, bytes);
        } else {
            // Its entry lay in a segment that is gone.
            for (store, span) in spans_of(outcome) {
                self.index.lsns.set_truncated(store, Lsn(span.first.0 + span.count - 1));
            }
        }
        Ok(())
    }
}

/// Compares where a chain ends with its mark. `link_behind` tells the chain hash behind an entry by the link of the next.
fn check_tip(
    dir: &Path,
    what: &str,
    tip: Tip,
    (marked, marked_chain): (u64, u64),
    link_behind: impl Fn(u64) -> Result<Option<u64>, LogError>,
) -> Result<(), LogError> {
    if tip.index < marked {
        let reason = format!("the {what} ends with entry {}, but entry {marked} was acknowledged", tip.index);
        return Err(LogError::damaged(dir, reason));
    }
    let chain = if tip.index == marked { Some(tip.chain) } else { link_behind(marked)? };
    if chain != Some(marked_chain) {
        let reason = format!("the {what} is not the one that its mark was set on (entry {marked})");
        return Err(LogError::damaged(dir, reason));
    }
    Ok(())
}

/// Removes chunks above the last whole entry.
fn remove_remains(records: &Records, tip: Tip) -> Result<bool, LogError> {
    let torn = records.last_index()?.is_some_and(|last| last > tip.index);
    if torn {
        records.remove_above(tip.index)?;
    }
    Ok(torn)
}
