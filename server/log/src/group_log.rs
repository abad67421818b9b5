//! The logs of the Raft groups, all in the segments of the one log: written along with everything else, durable with
//! the same sync.
//!
//! An entry may replace an uncommitted one and all entries after it. A group's state (term, vote, commit index,
//! members, compaction) is a record as well, and never in the mark: the mark is written later than the state it would
//! describe.

use std::collections::BTreeMap;
use std::ops::Range;

use tribunal_codec::{EntryId, GroupCursors, GroupRecord, GroupState, decode_group_record, encode_group_record};
use tribunal_types::{Epoch, GroupId};

use crate::error::LogError;
use crate::frame::Kind;
use crate::reader::LogReader;
use crate::record::{Stored, Tip};
use crate::segment_walk::Walk;
use crate::writer::DiskLog;

/// Maximum number of entries read at once, however small.
const ENTRIES_MAX: usize = 16 * 1024;

/// An entry of a group's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupEntry {
    /// Its term and index.
    pub id: EntryId,
    /// Its content.
    pub payload: Vec<u8>,
}

impl DiskLog {
    /// Appends an entry to a group's log. It replaces any entry of the same index, and all entries after it.
    ///
    /// # Errors
    /// [`LogError::OutOfOrder`] if it would leave a gap or replace a committed entry, or if its term is below that of
    /// the preceding entry; [`LogError::DurabilityInDoubt`].
    pub fn append_group_entry(&mut self, group: GroupId, id: EntryId, payload: &[u8]) -> Result<(), LogError> {
        // Nothing else changes the groups, so the check below reads the same state.
        let before = id.index.checked_sub(1).and_then(|before| self.shared.index.read().groups.term(group, before));
        // If the preceding entry is missing, the check refuses this one and gives the reason.
        let term_before = before.unwrap_or_default();
        self.append_record(&GroupRecord::Entry { group, id, term_before, payload })?;
        self.copies.gained(group, id);
        Ok(())
    }

    /// Replaces a group's state. Its promises (a vote, a term) may be sent to other members after the next sync.
    /// Entries up to `compacted` may be truncated from then on; if `compacted` is past the last entry, a state image
    /// replaces all entries.
    ///
    /// # Errors
    /// [`LogError::OutOfOrder`] if the term or the commit index decreases, if the vote of a term changes, or if
    /// uncommitted entries are compacted; [`LogError::DurabilityInDoubt`].
    pub fn set_group_state(&mut self, group: GroupId, state: &GroupState) -> Result<(), LogError> {
        self.append_record(&GroupRecord::State { group, state: state.clone() })
    }

    /// Forgets a group that has ended; does nothing if it is already forgotten. Its records may be truncated after the
    /// next sync. Its name remains: no record of it is accepted any more.
    ///
    /// # Errors
    /// [`LogError::OutOfOrder`] if it has entries that are not compacted; [`LogError::DurabilityInDoubt`].
    pub fn forget_group(&mut self, group: GroupId) -> Result<(), LogError> {
        if self.shared.index.read().groups.has_ended(group) {
            return Ok(());
        }
        self.append_record(&GroupRecord::Ended { group })
    }

    /// Returns for each group the last committed entry that neither an epoch from `below` on nor a reader of one needs:
    /// it may be compacted as soon as state images include it. Groups without such an entry are omitted.
    #[must_use]
    pub fn spare_group_entries(&self, below: Epoch) -> BTreeMap<GroupId, u64> {
        let index = self.shared.index.read();
        let kept = [self.limits, self.for_members].map(|limits| index.retention.keep_from(limits));
        let kept = kept.into_iter().fold(below, Epoch::min);
        let Some(first_needed) = index.starts.first_needed(kept) else { return BTreeMap::new() };
        index.groups.spare_before(first_needed)
    }

    /// Returns whether each of these groups was compacted up to this entry, or has ended.
    #[must_use]
    pub fn are_compacted(&self, upto: &[(GroupId, u64)]) -> bool {
        let index = self.shared.index.read();
        upto.iter().all(|(group, upto)| index.groups.compacted(*group).is_none_or(|compacted| compacted >= *upto))
    }

    pub(crate) fn append_record(&mut self, record: &GroupRecord<'_>) -> Result<(), LogError> {
        let checked = self.shared.index.read().groups.check(record);
        checked.map_err(|reason| LogError::OutOfOrder { what: "the record of a group", reason })?;
        let index = self.group_records.index + 1;
        self.dirty = true;
        let payload = encode_group_record(record);
        let appended = self.segments.append(Kind::Group, index, self.group_records.chain, &payload)?;
        self.group_records = Tip { index, chain: appended.chain };
        self.appended_bytes += appended.bytes;
        let mut known = self.shared.index.write();
        known.groups.apply(record, index);
        known.retention.add(appended.bytes);
        Ok(())
    }

    /// Rewrites the states and ends of groups whose records are below position `cut`. Returns the first record that
    /// stays.
    pub(crate) fn carry_groups(&mut self, cut: u64) -> Result<u64, LogError> {
        let Some(first) = self.shared.segments.first_index_from(Kind::Group, cut)? else {
            // All of them are below the cut.
            let next = self.group_records.index + 1;
            return self.carry_before(next).map(|()| next);
        };
        self.carry_before(first).map(|()| first)
    }

    fn carry_before(&mut self, sequence: u64) -> Result<(), LogError> {
        let carried = self.shared.index.read().groups.carried_before(sequence);
        carried.iter().try_for_each(|record| self.append_record(record))
    }
}

impl LogReader {
    /// Returns the groups that have records here and have not ended, ascending.
    #[must_use]
    pub fn groups(&self) -> Vec<GroupId> {
        self.shared.index.read().groups.ids().collect()
    }

    /// Returns the groups that have ended, ascending.
    #[must_use]
    pub fn ended_groups(&self) -> Vec<GroupId> {
        self.shared.index.read().groups.ended().collect()
    }

    /// Returns whether a group has ended: leftovers of it on other nodes must not be followed here.
    #[must_use]
    pub fn has_group_ended(&self, group: GroupId) -> bool {
        self.shared.index.read().groups.has_ended(group)
    }

    /// Returns a group's state; the default one if it has none.
    #[must_use]
    pub fn group_state(&self, group: GroupId) -> GroupState {
        self.shared.index.read().groups.get(group).map(|group| group.state.clone()).unwrap_or_default()
    }

    /// Returns the entry before a group's first existing entry, and its last entry.
    #[must_use]
    pub fn group_bounds(&self, group: GroupId) -> (EntryId, EntryId) {
        self.shared.index.read().groups.get(group).map(|group| (group.before(), group.last())).unwrap_or_default()
    }

    /// Returns the term of an existing entry of a group, or of the one before the first.
    #[must_use]
    pub fn group_term(&self, group: GroupId, index: u64) -> Option<u64> {
        self.shared.index.read().groups.term(group, index)
    }

    /// Checks that the log continues a state image that has read its groups up to `cursors`: no compacted entry is
    /// missing in the image, and committed entries that both have are the same. The image may be ahead of a group that
    /// has not compacted the entries that it includes.
    ///
    /// # Errors
    /// [`LogError::Damaged`].
    pub fn check_cursors(&self, cursors: &GroupCursors) -> Result<(), LogError> {
        let unread = EntryId::default();
        let damaged = |group: GroupId, reason: String| {
            let of = format!("of the group of node {}, incarnation {}", group.node, group.incarnation);
            LogError::damaged(&self.shared.dir, format!("{of}, {reason}"))
        };
        for group in self.groups() {
            let included = cursors.get(&group).map_or(unread, |cursor| cursor.included);
            let (before, _) = self.group_bounds(group);
            if before.index > included.index {
                let reason = format!(
                    "entries up to {} are compacted, but the state image includes {} only",
                    before.index, included.index
                );
                return Err(damaged(group, reason));
            }
            // An uncommitted entry may differ: the image has the one that a peer handed out in its place.
            let is_committed = included.index <= self.group_state(group).commit;
            let term = self.group_term(group, included.index).filter(|term| is_committed && *term != included.term);
            if let Some(term) = term {
                let EntryId { term: other, index } = included;
                return Err(damaged(group, format!("entry {index} has term {term}, in the state image term {other}")));
            }
        }
        Ok(())
    }

    /// Returns the content of a group's entry; `None` if it does not exist.
    ///
    /// # Errors
    /// [`LogError::Damaged`].
    pub fn group_entry(&self, group: GroupId, index: u64) -> Result<Option<Vec<u8>>, LogError> {
        let sequence = self.shared.index.read().groups.get(group).and_then(|group| group.sequence(index));
        let Some(sequence) = sequence else { return Ok(None) };
        // It may have been truncated between the two reads.
        let Some(stored) = self.shared.segments.read(Kind::Group, sequence)? else { return Ok(None) };
        self.payload_of(group, index, &stored).map(Some)
    }

    /// Returns consecutive entries of a group from the start of `range`, for a lagging member: up to the end of the
    /// range or `bytes_max` bytes in total, but at least one entry, however large. Returns fewer if there are very
    /// many, none if the first one does not exist.
    ///
    /// # Errors
    /// [`LogError::Damaged`].
    pub fn group_entries(
        &self,
        group: GroupId,
        range: Range<u64>,
        bytes_max: usize,
    ) -> Result<Vec<GroupEntry>, LogError> {
        let run = self.shared.index.read().groups.get(group).map(|group| group.run(range, ENTRIES_MAX));
        let mut walk = Walk::over(&self.shared.segments, Kind::Group);
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for (id, sequence) in run.unwrap_or_default() {
            // It may have been truncated meanwhile.
            let Some(stored) = walk.read(sequence)? else { break };
            let payload = self.payload_of(group, id.index, &stored)?;
            bytes += payload.len();
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.push(GroupEntry { id, payload });
        }
        Ok(entries)
    }

    fn payload_of(&self, group: GroupId, index: u64, stored: &Stored) -> Result<Vec<u8>, LogError> {
        match decode_group_record(&stored.payload) {
            Ok(GroupRecord::Entry { group: found, id, payload, .. }) if (found, id.index) == (group, index) => {
                Ok(payload.to_vec())
            }
            _ => {
                let reason = format!("record {} is not entry {index} of a group", stored.index);
                Err(LogError::damaged(&self.shared.dir, reason))
            }
        }
    }
}
