//! Epochs of a log with Raft groups: which group entries each epoch was decided from, and its outcome.
//!
//! The order of a group's entries does not determine which of them count; the fold does. So a record before each
//! outcome names the records of the entries that went into the epoch, and the outcome names that record.
//!
//! An entry handed out by a peer may go in before this node's own log has it. Its content is then in a copy record.

use std::collections::BTreeMap;
use std::sync::Arc;

use tribunal_codec::{EntryId, GroupRecord, batch_head, decode_batch, decode_group_record, proposed_in};
use tribunal_types::{Batch, Epoch, EpochOutcome, GroupId};

use crate::error::LogError;
use crate::frame::Kind;
use crate::group_log::GroupEntry;
use crate::outcomes;
use crate::reader::{LogReader, ReadRecord};
use crate::record::Stored;
use crate::segment_walk::Walk;
use crate::writer::DiskLog;

impl DiskLog {
    /// Appends a committed entry that a peer has handed out, for the epochs decided from it and for
    /// [`LogReader::copied_entries`]. It does not become part of the group's own log; if that log already has it,
    /// nothing is written.
    ///
    /// # Errors
    /// [`LogError::OutOfOrder`] if the group has ended; [`LogError::DurabilityInDoubt`].
    pub fn append_group_copy(&mut self, group: GroupId, id: EntryId, payload: &[u8]) -> Result<(), LogError> {
        let is_here = {
            let index = self.shared.index.read();
            let of_group = index.groups.get(group);
            of_group.is_some_and(|of| of.sequence(id.index).is_some() && of.term(id.index) == Some(id.term))
        };
        if is_here {
            return Ok(());
        }
        self.append_record(&GroupRecord::Copied { group, id, payload })?;
        // No outcome names an entry without items.
        let head = proposed_in(payload).and_then(|proposed| batch_head(proposed).ok());
        if head.is_some_and(|head| head.has_items) {
            self.copies.note(group, id, self.group_records.index);
        }
        Ok(())
    }

    /// Appends an epoch's outcome and the entries that it was decided from: group and index of each, in the order of
    /// the epoch's batches. Durable with the next sync; until then the epoch can be resolved again.
    ///
    /// # Errors
    /// [`LogError::OutOfOrder`] if an entry does not exist, or if the epoch or a later one has an outcome;
    /// [`LogError::DurabilityInDoubt`].
    pub fn append_epoch(&mut self, outcome: &EpochOutcome, entries: &[(GroupId, u64)]) -> Result<(), LogError> {
        let refuse = |reason: String| LogError::OutOfOrder { what: "the outcome", reason };
        if self.has_outcome(outcome.epoch) {
            return Err(refuse(format!("epoch {} or a later one has one", outcome.epoch)));
        }
        let sequences = {
            let index = self.shared.index.read();
            // In place of a copied entry, the log may have an uncommitted one.
            let copied = |group, at| self.copies.sequence(group, at);
            let own = |group, at| index.groups.get(group)?.sequence(at);
            let sequence = |&(group, at): &(GroupId, u64)| copied(group, at).or_else(|| own(group, at));
            entries.iter().map(sequence).collect::<Option<Vec<_>>>()
        };
        let sequences = sequences.ok_or_else(|| refuse(format!("an entry of epoch {} is not there", outcome.epoch)))?;
        let first = sequences.iter().copied().min();
        self.append_record(&GroupRecord::Epoch { epoch: outcome.epoch, entries: sequences })?;
        self.copies.decided(entries);
        let payload = outcomes::payload_of(outcome);
        let appended = self.segments.append(Kind::Outcome, outcome.epoch.0, self.group_records.index, &payload)?;
        self.appended_bytes += appended.bytes;
        let mut index = self.shared.index.write();
        index.starts.push(outcome.epoch, first.unwrap_or(self.group_records.index));
        index.lsns.push(outcome);
        // The bytes of the entries were counted when they were written.
        index.retention.push(outcome.epoch, outcome.epoch_time_ms, appended.bytes);
        Ok(())
    }
}

impl LogReader {
    /// Returns the entries handed out by peers for which `wanted` returns true, by group and index, except truncated
    /// ones. All of them are committed. Reads all records of groups.
    ///
    /// # Errors
    /// [`LogError::Damaged`].
    pub fn copied_entries(
        &self,
        wanted: impl Fn(GroupId, EntryId) -> bool,
    ) -> Result<BTreeMap<(GroupId, u64), GroupEntry>, LogError> {
        let segments = &self.shared.segments;
        let start = segments.files().first().map_or(0, |segment| segment.base);
        let mut found = BTreeMap::new();
        let (Some(first), Some(last)) =
            (segments.first_index_from(Kind::Group, start)?, segments.last_index(Kind::Group))
        else {
            return Ok(found);
        };
        let mut walk = Walk::from(segments, Kind::Group, first);
        while let Some(stored) = walk.next(last)? {
            let record = decode_group_record(&stored.payload).map_err(|malformed| {
                LogError::damaged(&self.shared.dir, format!("record {} of a group: {malformed}", stored.index))
            })?;
            if let GroupRecord::Copied { group, id, payload } = record
                && wanted(group, id)
            {
                found.insert((group, id.index), GroupEntry { id, payload: payload.to_vec() });
            }
        }
        Ok(found)
    }

    /// Returns the entries that an epoch was decided from, listed in the record `names`; `None` if some of them are
    /// truncated.
    pub(crate) fn batches_named(
        &self,
        epoch: Epoch,
        names: u64,
        read: &mut ReadRecord<'_>,
    ) -> Result<Option<Vec<Arc<Batch>>>, LogError> {
        let damaged = |reason: &str| LogError::damaged(&self.shared.dir, format!("epoch {epoch}: {reason}"));
        // Truncated meanwhile.
        let Some(stored) = read(Kind::Group, names)? else { return Ok(None) };
        let record = decode_group_record(&stored.payload).map_err(|error| damaged(&error.to_string()))?;
        let GroupRecord::Epoch { epoch: named, entries } = record else {
            return Err(damaged("its outcome names a record of something else"));
        };
        if named != epoch {
            return Err(damaged("its outcome names the entries of another one"));
        }
        let mut batches = Vec::with_capacity(entries.len());
        for sequence in entries {
            let Some(stored) = read(Kind::Group, sequence)? else { return Ok(None) };
            batches.push(Arc::new(self.batch_in(&stored)?));
        }
        Ok(Some(batches))
    }

    fn batch_in(&self, stored: &Stored) -> Result<Batch, LogError> {
        let damaged = |reason: &dyn std::fmt::Display| {
            LogError::damaged(&self.shared.dir, format!("record {} of a group: {reason}", stored.index))
        };
        let keyer = &self.shared.keyer;
        match decode_group_record(&stored.payload).map_err(|error| damaged(&error))? {
            GroupRecord::Entry { group, payload, .. } | GroupRecord::Copied { group, payload, .. } => {
                let batch = proposed_in(payload).ok_or_else(|| damaged(&"it has no batch"))?;
                let name = |namespace, store, key: &[u8]| keyer.row(namespace, store, key);
                decode_batch(batch, group, &name).map_err(|error| damaged(&error))
            }
            _ => Err(damaged(&"it is no entry")),
        }
    }
}
