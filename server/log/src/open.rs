//! Opening a log: creation, verification, recovery. Nothing is written to a log that fails verification.

use std::io::ErrorKind;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use tribunal_codec::{GroupMark, GroupRecord, Mark, decode_control, decode_group_record};
use tribunal_core::row_key::RowKeyer;
use tribunal_types::{ControlEntry, ControlIndex, Csn, Epoch, GroupId, LogId, Lsn, NodeId, StateImage};

use crate::batches::head_of;
use crate::control_compaction::{DeadEntries, Record};
use crate::control_log::{self, ControlLog};
use crate::copies::Copies;
use crate::error::LogError;
use crate::files::{self, Files, RealFiles, name_of};
use crate::former;
use crate::frame::{Kind, chain};
use crate::identity::{ClusterIdentity, Identity};
use crate::images::{self, ImageWriter};
use crate::kept_outcomes;
use crate::lsn_index::spans_of;
use crate::mark_file::{self, Marker};
use crate::outcomes;
use crate::reader::{Index, LogReader, Shared};
use crate::recent::Recent;
use crate::record::{Stored, Tip};
use crate::retention::{Limits, Undecided};
use crate::salvage::unfinished_salvage;
use crate::segment_scan::{End, scan};
use crate::segment_writer::SegmentWriter;
use crate::segments::Segments;
use crate::truncation;
use crate::writer::DiskLog;

/// How to open a log.
#[derive(Clone, Copy, Debug)]
pub struct LogOptions {
    /// Node that a new log is created for; an existing log keeps its own.
    pub node: NodeId,
    /// The cluster that the log's node is a member of, if any; any other log is then refused.
    pub cluster: Option<ClusterIdentity>,
    /// Bytes of decoded epochs kept for readers.
    pub recent_bytes: usize,
    /// Time for which entries are kept even if nothing needs them, milliseconds of replicated time.
    pub retention_ms: u64,
    /// Limit on the bytes kept for [`LogOptions::retention_ms`].
    pub retention_bytes: u64,
    /// Bytes of the log with Raft groups that are kept at least, whatever their age: for lagging members.
    pub kept_for_members_bytes: u64,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            node: NodeId(1),
            cluster: None,
            recent_bytes: 32 * 1024 * 1024,
            retention_ms: 24 * 60 * 60 * 1000,
            retention_bytes: 8 * 1024 * 1024 * 1024,
            kept_for_members_bytes: 16 * 1024 * 1024,
        }
    }
}

/// An open log.
pub struct Opened {
    /// The writer.
    pub writer: DiskLog,
    /// The reader.
    pub reader: LogReader,
    /// The recovered state.
    pub recovered: Recovered,
}

/// The content of the log when it was opened.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Id of the log.
    pub id: LogId,
    /// Group of the log: node and incarnation.
    pub group: GroupId,
    /// Key of the row hashes.
    pub row_secret: [u8; 16],
    /// The control log.
    pub control: Vec<(ControlIndex, ControlEntry)>,
    /// Its entries that were left out because they no longer had an effect, ascending: keys created in one of them are
    /// revoked, even if a state image includes them.
    pub control_left_out: Vec<RangeInclusive<ControlIndex>>,
    /// Last position of the control log; after a salvage there may be no entry at it.
    pub control_last: ControlIndex,
    /// The newest readable state image.
    pub image: Option<StateImage>,
    /// First epoch without an entry.
    pub next: Epoch,
    /// An upper bound of all stamps in the log, including those of its unacknowledged suffix.
    pub last_csn: Csn,
    /// Whether this call created the log.
    pub created: bool,
    /// Warnings: unreadable images, repaired files.
    pub warnings: Vec<String>,
}

/// Opens the log in `dir`, creating it on first use.
///
/// # Errors
/// [`LogError::Damaged`] if acknowledged entries are missing or unreadable; [`LogError::Locked`], [`LogError::Io`]:
/// nothing has changed then, and the next attempt may succeed.
pub fn open(dir: &Path, options: &LogOptions) -> Result<Opened, LogError> {
    open_on(&(Arc::new(RealFiles) as Arc<dyn Files>), dir, options)
}

/// Returns whether a directory contains a log.
///
/// # Errors
/// If that cannot be determined, the log was not written by this release, or its identity file is missing.
pub fn exists(dir: &Path) -> Result<bool, LogError> {
    if Identity::load(&RealFiles, dir)?.is_some() {
        return Ok(true);
    }
    if holds_entries(&RealFiles, dir)? {
        Err(LogError::damaged(dir, "its identity file is missing"))
    } else {
        Ok(false)
    }
}

/// Checks that the log in `dir`, if there is one, is that of this node in this cluster. Reads no more than its identity.
///
/// # Errors
/// If it is another log, or its identity cannot be read.
pub fn check_member(dir: &Path, node: NodeId, cluster: ClusterIdentity) -> Result<(), LogError> {
    Identity::load(&RealFiles, dir)?
        .map_or(Ok(()), |identity| identity.check_member(node, cluster).map_err(|reason| unusable(dir, &reason)))
}

fn unusable(dir: &Path, reason: &str) -> LogError {
    LogError::Io { reason: format!("{} cannot be used: {reason}", dir.display()) }
}

/// Opens the log in `dir` on the given disk, creating it on first use.
///
/// # Errors
/// As [`open`].
pub fn open_on(files: &Arc<dyn Files>, dir: &Path, options: &LogOptions) -> Result<Opened, LogError> {
    let disk = &**files;
    files::create_directory(disk, dir)?;
    let lock = disk.lock(dir)?;
    let (identity, created) = match Identity::load(disk, dir)? {
        Some(identity) => (identity, false),
        None => (create(files, dir, options)?, true),
    };
    if let Some(cluster) = options.cluster {
        identity.check_member(options.node, cluster).map_err(|reason| unusable(dir, &reason))?;
    }
    let found = verify(files, dir, &identity)?;
    let former = former::load(disk, dir)?;
    let image_writer = ImageWriter::open(files, dir)?;
    let (image, mut warnings) = covering_image(dir, &image_writer, &found)?;
    warnings.extend(found.control.faults.iter().map(|fault| format!("{fault}; it was repaired from its copy")));
    // The log is whole; from here on files are changed. The names of files created by a killed process, or of a copy
    // placed here, may be in the system's cache only.
    let within = [dir, &found.segments.dir, image_writer.dir()];
    files::sync_names(disk, dir, if created { &[] } else { &within })?;
    found.segments.remove_truncated()?;
    let control_left_out = found.control.records.iter().filter_map(Record::left_out).collect();
    let control = found.control.repair()?;
    kept_outcomes::remove_if_appended(disk, dir, identity.group, found.segments.last_index(Kind::Outcome))?;
    let next = found.next.max(image.as_ref().map_or(Epoch(1), |image| image.epoch.next()));
    let shared = Arc::new(Shared {
        dir: dir.to_owned(),
        id: identity.id,
        former,
        keyer: RowKeyer::new(identity.row_secret),
        segments: Arc::clone(&found.segments),
        index: RwLock::new(found.index),
        recent: Mutex::new(Recent::new(options.recent_bytes)),
    });
    let mut writer = DiskLog {
        shared: Arc::clone(&shared),
        segments: SegmentWriter::start(found.segments, found.end)?,
        control,
        dead: found.dead,
        images: image_writer,
        marker: Marker::start(disk, dir, found.mark_sequence)?,
        limits: Limits { age_ms: options.retention_ms, bytes: options.retention_bytes },
        for_members: Limits { age_ms: u64::MAX / 2, bytes: options.kept_for_members_bytes },
        group: identity.group,
        tip: found.tip,
        group_records: found.group_records,
        copies: Copies::default(),
        next,
        undecided: found.undecided,
        // Data written by a killed process may be in the kernel's cache only; the first sync makes it durable.
        dirty: found.tip.index > 0 || found.group_records.index > 0,
        appended_bytes: 0,
        _lock: lock,
    };
    match writer.compact_control() {
        Ok(_) => {}
        // The control log is whole, only longer than necessary.
        Err(LogError::Io { reason }) => warnings.push(format!("the control log was not compacted: {reason}")),
        Err(error) => return Err(error),
    }
    let recovered = Recovered {
        id: identity.id,
        group: identity.group,
        row_secret: identity.row_secret,
        control: found.changes,
        control_left_out,
        control_last: ControlIndex(writer.control.tip().index),
        image,
        next,
        last_csn: found.last_csn,
        created,
        warnings,
    };
    Ok(Opened { writer, reader: LogReader { shared }, recovered })
}

/// Loads the newest readable image, with warnings.
fn covering_image(
    dir: &Path,
    images: &ImageWriter,
    found: &Found,
) -> Result<(Option<StateImage>, Vec<String>), LogError> {
    let (image, mut warnings) = images.load_newest();
    let covered = image.as_ref().map_or(Epoch(0), |image| image.epoch);
    if (image.is_none() && found.is_truncated) || covered.next() < found.index.first_epoch {
        warnings.push("no state image covers the truncated entries".into());
        return Err(LogError::damaged(dir, warnings.join("; ")));
    }
    Ok((image, warnings))
}

/// Returns the damage in the log in `dir`, if any: the reason why [`open`] would refuse it. Changes no record.
///
/// # Errors
/// [`LogError::Locked`]; [`LogError::Io`] if files cannot be read.
pub fn find_damage(dir: &Path) -> Result<Option<String>, LogError> {
    let files = Arc::new(RealFiles) as Arc<dyn Files>;
    let _lock = files.lock(dir)?;
    let found = || {
        let missing = || LogError::damaged(dir, "its identity file is missing");
        let identity = Identity::load(&*files, dir)?.ok_or_else(missing)?;
        let found = verify(&files, dir, &identity)?;
        former::load(&*files, dir)?;
        covering_image(dir, &ImageWriter::open(&files, dir)?, &found).map(drop)
    };
    match found() {
        Ok(()) => Ok(None),
        Err(LogError::Damaged { reason, .. }) => Ok(Some(reason)),
        Err(error) => Err(error),
    }
}

/// Creates an empty log. The identity is written last: without it nothing was ever acknowledged here, and the leftovers
/// of an earlier attempt are replaced.
fn create(files: &Arc<dyn Files>, dir: &Path, options: &LogOptions) -> Result<Identity, LogError> {
    let disk = &**files;
    if holds_entries(disk, dir)? {
        return Err(LogError::damaged(dir, "its identity file is missing"));
    }
    let salvaged = unfinished_salvage(dir);
    if files::read(disk, &salvaged.join("identity"))?.is_some() {
        let (dir, salvaged) = (dir.display(), salvaged.display());
        let reason = format!(
            "a salvage of {dir} was interrupted at its last step: rename {salvaged} to {dir}, then start again"
        );
        return Err(LogError::Io { reason });
    }
    let identity = match options.cluster {
        Some(cluster) => Identity::of_member(options.node, cluster),
        None => Identity::draw(disk, options.node)?,
    };
    write_empty(files, dir, &identity)?;
    let group = GroupMark { group: identity.group, ..GroupMark::default() };
    mark_file::create(disk, dir, &Mark { groups: vec![group], ..Mark::default() })?;
    images::create_directory(disk, dir)?;
    identity.store(disk, dir)?;
    Ok(identity)
}

/// Writes the files of a log without entries, except mark and identity.
pub(crate) fn write_empty(
    files: &Arc<dyn Files>,
    dir: &Path,
    identity: &Identity,
) -> Result<(Arc<Segments>, ControlLog), LogError> {
    let segments = Arc::new(Segments::open(files, dir, identity.group, 0)?);
    truncation::create(&**files, dir)?;
    Ok((segments, ControlLog::create(files, dir, identity)?))
}

/// Returns whether a directory without an identity contains more than an unfinished creation leaves.
fn holds_entries(files: &dyn Files, dir: &Path) -> Result<bool, LogError> {
    let segments = dir.join("segments");
    match files.list(&segments) {
        Ok(found) if found.iter().any(|path| name_of(path).starts_with("log-")) => return Ok(true),
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(LogError::io("read", &segments, &error)),
        _ => {}
    }
    for name in control_log::COPIES {
        if let Some(bytes) = files::read(files, &dir.join(name))?
            && bytes.len() > control_log::HEADER_BYTES
        {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Result of the verification.
struct Found {
    segments: Arc<Segments>,
    control: control_log::Content,
    /// The control log, decoded.
    changes: Vec<(ControlIndex, ControlEntry)>,
    /// Entries without an effect.
    dead: DeadEntries,
    mark_sequence: u64,
    tip: Tip,
    group_records: Tip,
    next: Epoch,
    last_csn: Csn,
    index: Index,
    undecided: Undecided,
    end: End,
    is_truncated: bool,
}

/// Reads the whole log. Writes nothing.
fn verify(files: &Arc<dyn Files>, dir: &Path, identity: &Identity) -> Result<Found, LogError> {
    let group = identity.group;
    let mark = mark_file::load(&**files, dir)?.ok_or_else(|| LogError::damaged(dir, "its mark file is missing"))?;
    let marked = mark.groups.iter().find(|m| m.group == group).copied();
    let marked = marked.ok_or_else(|| LogError::damaged(dir, "its mark is that of another log"))?;
    let control = control_log::Content::read(files, dir, identity)?;
    let (changes, dead) = decode_changes(dir, &control)?;
    let marked_control = (mark.control_index, mark.control_chain);
    check_tip(dir, "control log", control.tip, marked_control, |index, chain| Ok(control.continues(index, chain)))?;

    let truncated = truncation::load(&**files, dir)?;
    let segments = Arc::new(Segments::open(files, dir, group, truncated.from)?);
    let mut replay = Replay {
        dir,
        segments: &segments,
        index: Index::default(),
        undecided: Undecided::default(),
        tip: None,
        next: Epoch(1),
        last_csn: Csn(0),
        first_record: 0,
        group_records: None,
        first_of_epoch: 0,
    };
    for (store, lsn) in &truncated.positions {
        replay.index.lsns.set_truncated(*store, *lsn);
    }
    replay.index.first_epoch = truncated.first_epoch;
    let end = scan(&segments, |kind, position, stored| replay.record(kind, position, &stored))?;
    let Replay { mut index, undecided, tip, next, last_csn, first_record, group_records, .. } = replay;
    // A member has truncated all entries from before it became one.
    let all_truncated = truncated.first_entry == marked.index + 1;
    let tip = tip.or_else(|| all_truncated.then_some(Tip { index: marked.index, chain: marked.chain }));
    if index.first_entry == 0 {
        index.first_entry = if all_truncated { truncated.first_entry } else { 1 };
    }
    if index.first_epoch > index.oldest {
        index.remove_below(index.first_epoch);
    }
    let continues = |kind| {
        let segments = &segments;
        move |index, chain| Ok(segments.read(kind, index + 1)?.is_some_and(|stored| stored.link == chain))
    };
    check_first(dir, "entry", index.first_entry, ("it was", truncated.first_entry))?;
    let tip = tip.unwrap_or_default();
    check_tip(dir, "log", tip, (marked.index, marked.chain), continues(Kind::Entry))?;
    check_first(dir, "record of a group", first_record, ("they were", truncated.first_record))?;
    index.groups.check_whole().map_err(|reason| LogError::damaged(dir, reason))?;
    let group_records = group_records.unwrap_or_default();
    let marked_records = (mark.record, mark.record_chain);
    check_tip(dir, "sequence of group records", group_records, marked_records, continues(Kind::Group))?;
    Ok(Found {
        segments,
        control,
        changes,
        dead,
        mark_sequence: mark.sequence,
        tip,
        group_records,
        next,
        last_csn,
        // The first entry of a salvaged log may follow an image.
        is_truncated: index.first_entry > 1 || truncated.from > 0 || index.oldest > Epoch(1),
        index,
        undecided,
        end,
    })
}

/// Decodes the control log. Returns its entries, and those of them without an effect.
fn decode_changes(
    dir: &Path,
    control: &control_log::Content,
) -> Result<(Vec<(ControlIndex, ControlEntry)>, DeadEntries), LogError> {
    let mut changes = Vec::with_capacity(control.records.len());
    let mut dead = DeadEntries::default();
    for stored in control.entries() {
        let entry = decode_control(&stored.payload)
            .map_err(|e| LogError::damaged(dir, format!("control entry {}: {e}", stored.index)))?;
        dead.note(stored.index, &entry.change, stored.payload.len());
        changes.push((ControlIndex(stored.index), entry));
    }
    Ok((changes, dead))
}

/// Checks that nothing is missing before the first entry or record except what was truncated.
fn check_first(dir: &Path, what: &str, first: u64, (were, truncated): (&str, u64)) -> Result<(), LogError> {
    if first <= truncated.max(1) {
        return Ok(());
    }
    let reason = format!("its first {what} is {first}, but {were} truncated to {truncated} only");
    Err(LogError::damaged(dir, reason))
}

/// Accumulates the records of the segments.
struct Replay<'a> {
    dir: &'a Path,
    segments: &'a Segments,
    index: Index,
    undecided: Undecided,
    tip: Option<Tip>,
    next: Epoch,
    last_csn: Csn,
    /// Sequence of the first record of a group, and the end of the chain of group records.
    first_record: u64,
    group_records: Option<Tip>,
    /// Lowest sequence among the entries named by the last epoch record; that record's own sequence if it names none, 0
    /// if there is no such record.
    first_of_epoch: u64,
}

impl Replay<'_> {
    fn record(&mut self, kind: Kind, position: u64, stored: &Stored) -> Result<(), LogError> {
        self.segments.note(kind, stored.index, position);
        match kind {
            Kind::Outcome => self.outcome(stored),
            Kind::Group => self.group_record(stored),
            _ => self.entry(stored),
        }
    }

    fn group_record(&mut self, stored: &Stored) -> Result<(), LogError> {
        let damaged =
            |reason: &str| LogError::damaged(self.dir, format!("record {} of a group: {reason}", stored.index));
        let fits = match self.group_records {
            Some(tip) => tip.index + 1 == stored.index && tip.chain == stored.link,
            None => stored.index != 1 || stored.link == 0,
        };
        if !fits {
            return Err(damaged("the chain is broken before it"));
        }
        let record = decode_group_record(&stored.payload).map_err(|e| damaged(&e.to_string()))?;
        if self.group_records.is_none() {
            self.first_record = stored.index;
        }
        self.group_records =
            Some(Tip { index: stored.index, chain: chain(stored.link, stored.index, &stored.payload) });
        if let GroupRecord::Epoch { entries, .. } = &record {
            self.first_of_epoch = entries.iter().copied().min().unwrap_or(stored.index);
        }
        if self.index.groups.has_ended(record.group()) && !matches!(record, GroupRecord::Ended { .. }) {
            return Err(damaged("its group had ended"));
        }
        self.index.groups.apply(&record, stored.index);
        self.index.retention.add(stored.payload.len() as u64);
        Ok(())
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
        let head = head_of(&stored.payload, self.segments.group).map_err(|e| damaged(e.to_string()))?;
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
        let own_bytes = stored.payload.len() as u64;
        let stored = outcomes::outcome_of(stored, self.dir)?;
        let outcome = &stored.outcome;
        // A member has no entries of its own, except those from before it became a member.
        let is_own = self.index.runs.index_of(outcome.epoch) == Some(stored.entry);
        // The record that names its entries precedes it.
        let has_entries = is_own || self.group_records.is_some() && self.first_of_epoch >= self.first_record;
        let is_whole = has_entries && outcome.epoch >= self.index.first_epoch;
        if is_whole {
            if !is_own {
                self.index.starts.push(outcome.epoch, self.first_of_epoch);
            }
            self.index.lsns.push(outcome);
            let bytes = self.undecided.take(outcome.epoch);
            self.index.retention.push(outcome.epoch, outcome.epoch_time_ms, bytes + own_bytes);
        } else {
            // Its entry was in a segment that has been truncated.
            if self.group_records.is_none() {
                self.index.own_below = outcome.epoch.next();
            }
            if self.tip.is_none() {
                self.index.oldest = outcome.epoch.next();
            }
            for (store, span) in spans_of(outcome) {
                self.index.lsns.set_truncated(store, Lsn(span.first.0 + span.count - 1));
            }
        }
        Ok(())
    }
}

/// Compares the end of a chain with its mark. `continues` tells whether a chain hash is the one after an entry that is
/// not the last.
fn check_tip(
    dir: &Path,
    what: &str,
    tip: Tip,
    (marked, marked_chain): (u64, u64),
    continues: impl Fn(u64, u64) -> Result<bool, LogError>,
) -> Result<(), LogError> {
    if tip.index < marked {
        let reason = format!("the {what} ends with entry {}, but entry {marked} was acknowledged", tip.index);
        return Err(LogError::damaged(dir, reason));
    }
    let holds = if tip.index == marked { tip.chain == marked_chain } else { continues(marked, marked_chain)? };
    if !holds {
        let reason = format!("the {what} is not the one that its mark was set on (entry {marked})");
        return Err(LogError::damaged(dir, reason));
    }
    Ok(())
}
