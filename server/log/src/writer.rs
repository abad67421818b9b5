//! The log's only writer.

use std::path::PathBuf;
use std::sync::Arc;

use tribunal_codec::{GroupMark, Mark, encode_control};
use tribunal_types::{
    Batch, ControlEntry, ControlIndex, Epoch, EpochOutcome, GroupId, LogId, Lsn, StateImage, StoreId,
};

use crate::batches;
use crate::control_compaction::DeadEntries;
use crate::control_log::ControlLog;
use crate::copies::Copies;
use crate::error::LogError;
use crate::files::LockGuard;
use crate::frame::Kind;
use crate::images::ImageWriter;
use crate::mark_file::Marker;
use crate::outcomes;
use crate::reader::Shared;
use crate::record::Tip;
use crate::retention::{Limits, Undecided};
use crate::segment_writer::SegmentWriter;
use crate::truncation;

/// A log whose content survives power loss once [`DurableLog::sync`] returns.
pub trait DurableLog: Send {
    /// Appends a group's contribution to its next epochs.
    ///
    /// # Errors
    /// [`LogError::OutOfOrder`] if the batch does not start at the group's next epoch; [`LogError::DurabilityInDoubt`].
    fn append(&mut self, batch: &Batch) -> Result<(), LogError>;

    /// Appends an epoch's outcome. It is durable with the next sync; until then the epoch can be resolved again.
    ///
    /// # Errors
    /// [`LogError::OutOfOrder`] if no entry ends with that epoch, or if that or a later epoch has an outcome;
    /// [`LogError::DurabilityInDoubt`].
    fn append_outcome(&mut self, outcome: &EpochOutcome) -> Result<(), LogError>;

    /// Appends an entry of the control log.
    ///
    /// # Errors
    /// [`LogError::OutOfOrder`] if `index` is not the next one; [`LogError::DurabilityInDoubt`].
    fn append_control(&mut self, index: ControlIndex, entry: &ControlEntry) -> Result<(), LogError>;

    /// Writes a state image durably, and drops all but the newest two.
    ///
    /// # Errors
    /// If it cannot be written; the log is unaffected.
    fn write_image(&mut self, image: &StateImage) -> Result<(), LogError>;

    /// Truncates the log below epoch `below`, as far as images cover it and retention allows. Entries of groups that
    /// are not compacted stay.
    ///
    /// # Errors
    /// [`LogError::DurabilityInDoubt`]; [`LogError::Io`] if files cannot be removed: the log is then valid, only
    /// longer.
    fn truncate(&mut self, below: Epoch) -> Result<(), LogError>;

    /// Makes everything appended durable by one `fdatasync` (two more after control entries); does nothing if nothing
    /// was appended.
    ///
    /// # Errors
    /// [`LogError::DurabilityInDoubt`]: final, never to be retried.
    fn sync(&mut self) -> Result<(), LogError>;

    /// Advances the mark to the last sync now rather than within milliseconds. Free if it is already there.
    ///
    /// # Errors
    /// [`LogError::DurabilityInDoubt`].
    fn idle_mark(&mut self) -> Result<(), LogError>;
}

/// Counters since the log was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// `fdatasync` calls on segment files and the control log.
    pub fdatasyncs: u64,
    /// `fdatasync` calls on the mark file, off the commit path.
    pub mark_fdatasyncs: u64,
    /// Bytes of entries and outcomes written, frames included.
    pub appended_bytes: u64,
    /// Length of the segment files and the control log.
    pub file_bytes: u64,
}

/// How much of the log a consumer without progress may hold back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldBack {
    /// By age, milliseconds of replicated time.
    pub age_ms: u64,
    /// By size, bytes.
    pub bytes: u64,
}

impl std::fmt::Display for HoldBack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} hours or {} bytes", self.age_ms / 3_600_000, self.bytes)
    }
}

/// The log on disk: entries and outcomes in segment files, the control log in separate files.
pub struct DiskLog {
    pub(crate) shared: Arc<Shared>,
    pub(crate) segments: SegmentWriter,
    pub(crate) control: ControlLog,
    /// Entries of the control log that no longer have an effect.
    pub(crate) dead: DeadEntries,
    pub(crate) images: ImageWriter,
    pub(crate) marker: Marker,
    pub(crate) limits: Limits,
    /// The part that lagging members may still need.
    pub(crate) for_members: Limits,
    pub(crate) group: GroupId,
    /// Last entry of the group.
    pub(crate) tip: Tip,
    /// Last record of any Raft group.
    pub(crate) group_records: Tip,
    /// Entries from peers that no epoch has been decided from yet.
    pub(crate) copies: Copies,
    /// First epoch without an entry.
    pub(crate) next: Epoch,
    pub(crate) undecided: Undecided,
    /// The segments have changes since the last sync.
    pub(crate) dirty: bool,
    pub(crate) appended_bytes: u64,
    /// Released last.
    pub(crate) _lock: LockGuard,
}

impl DiskLog {
    /// Returns the log's id.
    #[must_use]
    pub fn id(&self) -> LogId {
        self.shared.id
    }

    /// Returns the group that the log belongs to.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Returns whether the outcome of `epoch`, or of a later epoch, has been appended.
    #[must_use]
    pub fn has_outcome(&self, epoch: Epoch) -> bool {
        self.shared.segments.last_index(Kind::Outcome).is_some_and(|last| epoch.0 <= last)
    }

    /// Returns the last epoch whose outcome has been appended.
    #[must_use]
    pub fn last_outcome(&self) -> Option<Epoch> {
        self.shared.segments.last_index(Kind::Outcome).map(Epoch)
    }

    /// Returns the first epoch without an entry: where the next batch must start.
    #[must_use]
    pub fn next(&self) -> Epoch {
        self.next
    }

    /// Returns a handle that writes images from any thread, concurrently with commits.
    #[must_use]
    pub fn image_writer(&self) -> ImageWriter {
        self.images.clone()
    }

    /// Makes the log continue after another member's state image, taken at the end of epoch `last`, where the stores'
    /// logs end at `heads`. If this log lacks records before that, readers find only those of later epochs. Returns
    /// whether it lacks any.
    ///
    /// # Errors
    /// [`LogError::OutOfOrder`] if the log does not belong to a cluster member, or has an outcome after `last`;
    /// [`LogError::Io`] if the note cannot be written: nothing has changed then.
    pub fn continue_after(&mut self, last: Epoch, heads: &[(StoreId, Lsn)]) -> Result<bool, LogError> {
        if heads.iter().all(|(store, head)| self.shared.index.read().lsns.head(*store) >= *head) {
            return Ok(false);
        }
        let refuse = |reason: String| LogError::OutOfOrder { what: "the state image", reason };
        if self.tip.index > 0 && self.group_records.index == 0 {
            return Err(refuse(
                "it has records that the log lacks, and the log is not one of a cluster's member".into(),
            ));
        }
        if let Some(outcome) = self.last_outcome().filter(|outcome| *outcome > last) {
            return Err(refuse(format!(
                "it is of epoch {last} and has records that the log lacks up to epoch {outcome}"
            )));
        }
        truncation::note_gap(&self.shared, last, heads)?;
        Ok(true)
    }

    /// Returns the counters.
    #[must_use]
    pub fn stats(&self) -> LogStats {
        LogStats {
            fdatasyncs: self.segments.fdatasyncs() + self.control.fdatasyncs(),
            mark_fdatasyncs: self.marker.fdatasyncs(),
            appended_bytes: self.appended_bytes,
            file_bytes: self.shared.segments.bytes() + self.control.bytes(),
        }
    }

    /// Rewrites the control log without the entries that no longer have an effect (keys that were created and revoked),
    /// if they are a large part of it. Returns whether it did.
    ///
    /// # Errors
    /// [`LogError::Io`] if the files cannot be written: nothing has changed, and the attempt is repeated once there are
    /// many more such entries. [`LogError::DurabilityInDoubt`].
    pub fn compact_control(&mut self) -> Result<bool, LogError> {
        if !self.dead.are_many(self.control.bytes_of_one()) {
            return Ok(false);
        }
        self.sync()?;
        // After this, the mark names an entry that stays.
        self.marker.catch_up()?;
        match self.control.leave_out(self.dead.indices()) {
            Ok(()) => self.dead.left_out(self.control.tip().index),
            Err(error) => {
                self.dead.put_off();
                return Err(error);
            }
        }
        Ok(true)
    }

    /// Returns the epoch below which the log could be truncated if it had to keep no more than `quota`.
    #[must_use]
    pub fn held_back_below(&self, quota: HoldBack) -> Epoch {
        let limits = Limits { age_ms: quota.age_ms, bytes: quota.bytes };
        let kept = self.shared.index.read().retention.keep_from(limits);
        self.images.covered().map_or(Epoch(0), |covered| covered.min(kept))
    }

    /// Returns the newest state image's file if another image would let the log be truncated further: it exceeds its size
    /// with epochs that the older of two images does not include, or of which the caller does not know whether it does.
    #[must_use]
    pub fn image_to_follow(&self, is_older_known: bool) -> Option<PathBuf> {
        let by_size = Limits { age_ms: u64::MAX / 2, bytes: self.limits.bytes };
        let (kept, oldest) = {
            let index = self.shared.index.read();
            (index.retention.keep_from(by_size), index.oldest)
        };
        let covered = self.images.covered().filter(|_| is_older_known).unwrap_or_default();
        let (_, path) = self.images.newest().filter(|_| kept > oldest && covered < kept)?;
        Some(path)
    }

    fn mark(&self) -> Mark {
        Mark {
            sequence: 0,
            control_index: self.control.tip().index,
            control_chain: self.control.tip().chain,
            record: self.group_records.index,
            record_chain: self.group_records.chain,
            groups: vec![GroupMark { group: self.group, index: self.tip.index, chain: self.tip.chain }],
        }
    }
}

impl DurableLog for DiskLog {
    fn append(&mut self, batch: &Batch) -> Result<(), LogError> {
        let refuse = |reason: String| LogError::OutOfOrder { what: "the batch", reason };
        if batch.group != self.group {
            return Err(refuse(format!("it is of node {}, the log of {}", batch.group.node, self.group.node)));
        }
        if batch.first != self.next || batch.last < batch.first || batch.last >= Epoch::MAX {
            return Err(refuse(format!("it seals {}..={}, the next is {}", batch.first, batch.last, self.next)));
        }
        let payload = batches::payload_of(batch);
        let index = self.tip.index + 1;
        self.dirty = true;
        let appended = self.segments.append(Kind::Entry, index, self.tip.chain, &payload)?;
        self.tip = Tip { index, chain: appended.chain };
        self.next = batch.last.next();
        self.appended_bytes += appended.bytes;
        self.undecided.push(batch.last, appended.bytes);
        self.shared.index.write().runs.push(batch.last, index);
        Ok(())
    }

    fn append_outcome(&mut self, outcome: &EpochOutcome) -> Result<(), LogError> {
        let entry = self.shared.index.read().runs.index_of(outcome.epoch);
        let entry = entry.ok_or_else(|| LogError::OutOfOrder {
            what: "the outcome",
            reason: format!("no entry ends with epoch {}", outcome.epoch),
        })?;
        let entry_bytes = self.undecided.take(outcome.epoch);
        let payload = outcomes::payload_of(outcome);
        if self.shared.segments.last_index(Kind::Outcome).is_some_and(|last| outcome.epoch.0 <= last) {
            return Err(LogError::OutOfOrder {
                what: "the outcome",
                reason: format!("epoch {} or a later one has one", outcome.epoch),
            });
        }
        self.dirty = true;
        let appended = self.segments.append(Kind::Outcome, outcome.epoch.0, entry, &payload)?;
        self.appended_bytes += appended.bytes;
        let mut index = self.shared.index.write();
        index.lsns.push(outcome);
        index.retention.push(outcome.epoch, outcome.epoch_time_ms, entry_bytes + appended.bytes);
        Ok(())
    }

    fn append_control(&mut self, index: ControlIndex, entry: &ControlEntry) -> Result<(), LogError> {
        let expected = self.control.tip().index + 1;
        if index.0 != expected {
            let reason = format!("it is number {}, the next is {expected}", index.0);
            return Err(LogError::OutOfOrder { what: "the control entry", reason });
        }
        self.segments.check()?;
        let payload = encode_control(entry);
        let appended = self.control.append(&payload)?;
        self.dead.note(index.0, &entry.change, payload.len());
        self.appended_bytes += appended.bytes;
        Ok(())
    }

    fn write_image(&mut self, image: &StateImage) -> Result<(), LogError> {
        // An image ahead of the durable log would survive entries that it includes.
        self.sync()?;
        self.images.write(image)
    }

    fn truncate(&mut self, below: Epoch) -> Result<(), LogError> {
        let Some(covered) = self.images.covered() else { return Ok(()) };
        let keep_from = self.shared.index.read().retention.keep_from(self.limits);
        let below = below.min(covered).min(keep_from);
        let retained = self.segments.tail().saturating_sub(self.limits.bytes);
        let Some(cut) = truncation::cut_for(&self.shared, below, retained)? else { return Ok(()) };
        // Rewrite group states before their old records are removed.
        let first_record = self.carry_groups(cut)?;
        // The mark must never point below what is kept.
        self.sync()?;
        self.marker.catch_up()?;
        // Only what is durably noted as truncated may be removed.
        truncation::note(&self.shared, cut, first_record)?;
        self.shared.segments.remove_below(cut)
    }

    fn sync(&mut self) -> Result<(), LogError> {
        self.segments.check()?;
        let control = self.control.sync()?;
        if !control && !self.dirty {
            return Ok(());
        }
        if self.dirty {
            self.segments.sync()?;
            self.dirty = false;
        }
        self.marker.post(self.mark())
    }

    fn idle_mark(&mut self) -> Result<(), LogError> {
        self.marker.catch_up()
    }
}
