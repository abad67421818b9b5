//! Repair of a damaged log: keeps the provable part, sets the damaged files aside, reports the losses.
//!
//! The raw bytes of the files are searched for chunks, the chunks are joined into chains, and a complete new log is
//! written next to the damaged one; the two are exchanged at the end. So a salvage that fails, for lack of disk space
//! or power, leaves everything as it was. The new log has a new id: positions after the end of the kept part name other
//! records than before.
//!
//! * Entries are kept from the newest image (or the very first entry) up to the first unreadable one.
//! * Entries of the control log that are unreadable in both copies keep their place and lose their content.
//! * Unreadable outcomes are left out; their epochs are resolved again at the next start.
//! * No epoch of the damaged log is used again: versions stay unique.
//!
//! A member of a cluster is not salvaged: the other members rely on its votes and entries.
//!
//! It works only on the operating system's files: it exchanges directories and links images, which a running log never
//! does.
//!
//! Must never: change the damaged files, count as kept anything that a start would refuse.

mod rebuild;
mod report;
mod search;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use tribunal_core::image;
use tribunal_core::row_key::RowKeyer;
use tribunal_types::{Epoch, GroupId, Lsn, StoreId};

use crate::batches::batch_of;
use crate::control_log;
use crate::error::LogError;
use crate::files::{self, Files, LockGuard, RealFiles};
use crate::frame::{Kind, chain};
use crate::identity::Identity;
use crate::images::ImageWriter;
use crate::mark_file;
use crate::record::Stored;
use crate::truncation;

pub use report::SalvageReport;
use search::Chunks;

/// Checks that the log in `dir` may be salvaged.
///
/// # Errors
/// As for [`salvage`]: the node is running or is a member of a cluster, or the log's identity cannot be read.
pub fn check_salvage(dir: &Path) -> Result<(), LogError> {
    let _lock = RealFiles.lock(dir)?;
    let chunks = Chunks::search(dir, identity_of(dir)?.group)?;
    refuse_member(dir, &chunks, mark_file::load(&RealFiles, dir).ok().flatten().as_ref())
}

/// Rebuilds the log in `dir` from its readable parts. The node must not be running.
///
/// # Errors
/// [`LogError::Locked`]; [`LogError::Io`], also for a member of a cluster; [`LogError::Damaged`] if no copy of its
/// identity can be read, without which rows cannot be recognised: then only a backup helps. After an error the log is
/// as it was.
pub fn salvage(dir: &Path) -> Result<SalvageReport, LogError> {
    carry_out(dir, Change::Exchange)
}

/// Returns what [`salvage`] would keep and lose. The log is not changed. Like [`salvage`], it temporarily needs disk
/// space for a complete new log.
///
/// # Errors
/// As for [`salvage`].
pub fn preview_salvage(dir: &Path) -> Result<SalvageReport, LogError> {
    carry_out(dir, Change::Nothing)
}

/// What becomes of the new log.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    /// It replaces the damaged one.
    Exchange,
    /// It is removed.
    Nothing,
}

impl Change {
    /// Returns the suffix of the path at which the new log is written, next to the damaged one.
    fn place(self) -> &'static str {
        match self {
            Change::Exchange => "salvaged",
            Change::Nothing => "preview",
        }
    }
}

fn carry_out(dir: &Path, change: Change) -> Result<SalvageReport, LogError> {
    if !dir.is_dir() {
        return Err(LogError::Io { reason: format!("there is no log in {}", dir.display()) });
    }
    let lock = RealFiles.lock(dir)?;
    let identity = identity_of(dir)?;
    let chunks = Chunks::search(dir, identity.group)?;
    let mark = mark_file::load(&RealFiles, dir).ok().flatten();
    refuse_member(dir, &chunks, mark.as_ref())?;
    let marked = mark.as_ref().and_then(|mark| mark.groups.iter().find(|m| m.group == identity.group)).copied();
    let newest = ImageWriter::open(&real_files(), dir)?.load_newest().0;
    let image = newest.as_ref().map(|image| image.epoch);
    // No node starts with an image that the resolver cannot read.
    let heads = newest.as_ref().and_then(|image| image::heads(image).ok());
    let keyer = RowKeyer::new(identity.row_secret);
    let kept = entry_chain(&chunks, identity.group, image, &keyer)?;

    let fresh = beside(dir, change.place());
    match change {
        Change::Exchange => keep(dir, &fresh)?,
        // The leftover is never a damaged log: a preview exchanges nothing.
        Change::Nothing => remove(&fresh)?,
    }
    let mut known = Known { dir, chunks: &chunks, keyer: &keyer, identity, image, heads, kept, mark: mark.as_ref() };
    known.drop_undecided_below_image()?;
    let built = known.rebuild(&fresh).and_then(|mut report| {
        report.judge_loss(&known, marked.map(|mark| mark.index))?;
        Ok((RealFiles.lock(&fresh)?, report))
    });
    let (fresh_lock, mut report) = match built {
        Ok(built) => built,
        Err(error) => {
            let _ = remove(&fresh);
            return Err(error);
        }
    };
    if change == Change::Nothing {
        drop(fresh_lock);
        remove(&fresh)?;
        return Ok(report);
    }
    // The leftovers of an interrupted preview.
    remove(&beside(dir, Change::Nothing.place()))?;
    report.set_aside = exchange(dir, &fresh, [lock, fresh_lock])?;
    report.list_lost_transactions(&known)?;
    Ok(report)
}

fn refuse_member(dir: &Path, chunks: &Chunks, mark: Option<&tribunal_codec::Mark>) -> Result<(), LogError> {
    if !is_member(dir, chunks, mark) {
        return Ok(());
    }
    let reason = format!(
        "{} belongs to a member of a cluster, which has voted and acknowledged by what is in it: a salvage could take \
         that back. The cluster continues without it as long as a majority of its nodes runs: remove the node \
         (`tribunal cluster remove`) and add a new one. Keep the directory until then: if the majority is lost for good, \
         `tribunal cluster recover` needs one that can be read",
        dir.display()
    );
    Err(LogError::Io { reason })
}

/// Returns whether any readable chunk belongs to a Raft group, or any file counts records of one.
fn is_member(dir: &Path, chunks: &Chunks, mark: Option<&tribunal_codec::Mark>) -> bool {
    chunks.indices(Kind::Group).next().is_some()
        || mark.is_some_and(|mark| mark.record > 0)
        || truncation::load(&RealFiles, dir).is_ok_and(|truncated| truncated.first_record > 1)
}

/// Returns the disk for parts of a log that are opened on one.
fn real_files() -> Arc<dyn Files> {
    Arc::new(RealFiles)
}

/// Findings of a salvage about the damaged log.
struct Known<'a> {
    dir: &'a Path,
    chunks: &'a Chunks,
    keyer: &'a RowKeyer,
    /// Identity of the damaged log.
    identity: Identity,
    image: Option<Epoch>,
    /// Last position of each store at the image.
    heads: Option<Vec<(StoreId, Lsn)>>,
    kept: Option<Chain>,
    mark: Option<&'a tribunal_codec::Mark>,
}

/// Returns the identity from its file, or from the first page of a control log.
fn identity_of(dir: &Path) -> Result<Identity, LogError> {
    let from_file = Identity::load(&RealFiles, dir);
    if let Ok(Some(identity)) = from_file {
        return Ok(identity);
    }
    for name in control_log::COPIES {
        let bytes = files::read(&RealFiles, &dir.join(name)).ok().flatten();
        if let Some(identity) = bytes.as_deref().and_then(control_log::identity_in) {
            return Ok(identity);
        }
    }
    from_file?;
    Err(LogError::Io { reason: format!("{} has no identity file: no log was created there", dir.display()) })
}

/// A chain of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chain {
    first: u64,
    last: u64,
    /// First epoch after it.
    next: Epoch,
    /// First epoch within it.
    start: Epoch,
}

/// Returns the chain of entries that a node can start from: after the image, or from the very first entry.
fn entry_chain(
    chunks: &Chunks,
    group: GroupId,
    image: Option<Epoch>,
    keyer: &RowKeyer,
) -> Result<Option<Chain>, LogError> {
    let mut open: Option<(Chain, u64)> = None;
    let mut best = None;
    let usable = |chain: &Chain| match image {
        // A log that was salvaged before may begin after an image.
        None => chain.first == 1 && chain.start == Epoch(1),
        Some(epoch) => chain.start <= epoch.next() && chain.next >= epoch.next(),
    };
    for index in chunks.indices(Kind::Entry) {
        let records = chunks.records(Kind::Entry, index)?;
        let follows = |record: &&Stored| open.is_some_and(|(c, hash)| c.last + 1 == index && record.link == hash);
        let Some(stored) = records.iter().find(follows).or_else(|| records.first()) else { continue };
        let Ok(batch) = batch_of(&stored.payload, group, keyer) else { continue };
        if index == 1 && stored.link != 0 {
            continue;
        }
        let hash = chain(stored.link, index, &stored.payload);
        let before = open.filter(|(c, tip)| c.last + 1 == index && *tip == stored.link && c.next == batch.first);
        let longer = match before {
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

/// Replaces the damaged log by the new one; returns the path of the damaged one. The locks keep other processes from
/// opening either meanwhile.
fn exchange(dir: &Path, fresh: &Path, _locks: [LockGuard; 2]) -> Result<PathBuf, LogError> {
    let aside = free_place(dir);
    let failed = |e: std::io::Error| LogError::io("exchange", dir, &e);
    match renameat_with(CWD, fresh, CWD, dir, RenameFlags::EXCHANGE) {
        Ok(()) => fs::rename(fresh, &aside).map_err(failed)?,
        // Some file systems cannot exchange; a crash between these two renames leaves no log, which `open` notices.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS | rustix::io::Errno::OPNOTSUPP) => {
            fs::rename(dir, &aside).map_err(failed)?;
            fs::rename(fresh, dir).map_err(failed)?;
        }
        Err(error) => return Err(failed(error.into())),
    }
    files::sync_path(&RealFiles, dir)?;
    Ok(aside)
}

/// Sets aside the leftover of an earlier attempt at the path of the new log: if that attempt was interrupted right
/// after the exchange, the leftover is the damaged log.
fn keep(dir: &Path, left: &Path) -> Result<(), LogError> {
    if !left.exists() {
        return Ok(());
    }
    fs::rename(left, free_place(dir)).map_err(|error| LogError::io("set aside", left, &error))?;
    files::sync_path(&RealFiles, dir)
}

/// Returns a free path for a damaged log to be set aside at.
fn free_place(dir: &Path) -> PathBuf {
    let free = (1_u32..).map(|n| beside(dir, &format!("damaged-{n}"))).find(|path| !path.exists());
    free.unwrap_or_else(|| beside(dir, "damaged"))
}

/// Returns the directory in which a salvage leaves the new log if it is interrupted before its last step.
#[must_use]
pub fn unfinished_salvage(dir: &Path) -> PathBuf {
    beside(dir, "salvaged")
}

/// Returns the path of a sibling: the log's name, a dot, `suffix`.
pub(crate) fn beside(dir: &Path, suffix: &str) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(".");
    name.push(suffix);
    dir.with_file_name(name)
}

/// Removes the files that this attempt has written.
fn remove(dir: &Path) -> Result<(), LogError> {
    match fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(LogError::io("remove", dir, &error)),
        _ => Ok(()),
    }
}
