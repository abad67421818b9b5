//! Records of Raft groups: their entries, and their state.

use tribunal_types::{Epoch, GroupId, Incarnation, NodeId};

use crate::reader::{Malformed, Reader};
use crate::varint::{put_bytes, put_varint};
use crate::{Kind, put_head, take_head};

/// Identifies an entry of a group: two logs that contain it agree on it and on all entries before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntryId {
    /// Raft term.
    pub term: u64,
    /// Position in the group's log, from 1; 0 before the first entry.
    pub index: u64,
}

/// A node's promises to a group and its progress in it (Raft's hard state).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupState {
    /// Highest term seen by the node.
    pub term: u64,
    /// Raft id of the replica that it voted for in `term`; 0 if it has not voted.
    pub vote: u64,
    /// Last index known to be committed.
    pub commit: u64,
    /// The group's members as of `commit`, encoded by the caller.
    pub members: Vec<u8>,
    /// Last entry that is no longer needed: the older of the retained state images includes it.
    pub compacted: EntryId,
}

/// A record of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupRecord<'a> {
    /// An entry. It replaces the entry at its index and all later ones.
    Entry {
        /// The group.
        group: GroupId,
        /// Its id.
        id: EntryId,
        /// Term of the previous entry.
        term_before: u64,
        /// Its content.
        payload: &'a [u8],
    },
    /// The group's state from here on.
    State {
        /// The group.
        group: GroupId,
        /// The state.
        state: GroupState,
    },
    /// The group has ended: none of its data is needed, and no record of it follows.
    Ended {
        /// The group.
        group: GroupId,
    },
    /// An epoch was decided from these entries. Written before its outcome, for no group; readers use it to find the
    /// epoch's input.
    Epoch {
        /// The epoch.
        epoch: Epoch,
        /// Sequences of the records that contain its entries, in the order of its batches.
        entries: Vec<u64>,
    },
    /// An entry received from a peer before it is in the own log. No promise of Raft depends on it: it is kept for the
    /// epochs that were decided from it.
    Copied {
        /// The group.
        group: GroupId,
        /// Its id.
        id: EntryId,
        /// Its content.
        payload: &'a [u8],
    },
}

impl GroupRecord<'_> {
    /// Returns the group; [`GroupId::CONTROL`] for a record without a group.
    #[must_use]
    pub fn group(&self) -> GroupId {
        match self {
            GroupRecord::Entry { group, .. }
            | GroupRecord::State { group, .. }
            | GroupRecord::Ended { group }
            | GroupRecord::Copied { group, .. } => *group,
            GroupRecord::Epoch { .. } => GroupId::CONTROL,
        }
    }
}

/// Encodes a record.
#[must_use]
pub fn encode_group_record(record: &GroupRecord<'_>) -> Vec<u8> {
    let payload_bytes = match record {
        GroupRecord::Entry { payload, .. } | GroupRecord::Copied { payload, .. } => payload.len(),
        _ => 0,
    };
    let mut out = Vec::with_capacity(payload_bytes + 64);
    put_head(Kind::Group, &mut out);
    let group = record.group();
    put_varint(u64::from(group.node.0), &mut out);
    put_varint(u64::from(group.incarnation.0), &mut out);
    match record {
        GroupRecord::Entry { id, term_before, payload, .. } => {
            out.push(0);
            put_id(*id, &mut out);
            put_varint(*term_before, &mut out);
            put_bytes(payload, &mut out);
        }
        GroupRecord::State { state, .. } => {
            out.push(1);
            put_varint(state.term, &mut out);
            put_varint(state.vote, &mut out);
            put_varint(state.commit, &mut out);
            put_id(state.compacted, &mut out);
            put_bytes(&state.members, &mut out);
        }
        GroupRecord::Ended { .. } => out.push(2),
        GroupRecord::Epoch { epoch, entries } => {
            out.push(3);
            put_varint(epoch.0, &mut out);
            put_varint(entries.len() as u64, &mut out);
            entries.iter().for_each(|sequence| put_varint(*sequence, &mut out));
        }
        GroupRecord::Copied { id, payload, .. } => {
            out.push(4);
            put_id(*id, &mut out);
            put_bytes(payload, &mut out);
        }
    }
    out
}

/// Last byte of the content of a proposed entry, as opposed to one created by Raft itself.
pub const PROPOSED: u8 = 0;

/// Returns the proposal in an entry with this content; `None` if Raft itself created the entry.
#[must_use]
pub fn proposed_in(content: &[u8]) -> Option<&[u8]> {
    content.strip_suffix(&[PROPOSED])
}

pub(crate) fn put_id(id: EntryId, out: &mut Vec<u8>) {
    put_varint(id.term, out);
    put_varint(id.index, out);
}

/// Decodes a record.
///
/// # Errors
/// If the bytes are not a group record.
pub fn decode_group_record(bytes: &[u8]) -> Result<GroupRecord<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    take_head(Kind::Group, &mut reader)?;
    let group =
        GroupId { node: NodeId(reader.number("node")?), incarnation: Incarnation(reader.number("incarnation")?) };
    let record = match reader.u8("kind of group record")? {
        0 => GroupRecord::Entry {
            group,
            id: take_id(&mut reader)?,
            term_before: reader.varint("term before")?,
            payload: reader.bytes("payload")?,
        },
        1 => GroupRecord::State {
            group,
            state: GroupState {
                term: reader.varint("term")?,
                vote: reader.varint("vote")?,
                commit: reader.varint("commit")?,
                compacted: take_id(&mut reader)?,
                members: reader.bytes("members")?.to_vec(),
            },
        },
        2 => GroupRecord::Ended { group },
        3 if group == GroupId::CONTROL => {
            let epoch = Epoch(reader.varint("epoch")?);
            let count = reader.count(1, "entries of an epoch")?;
            let entries = (0..count).map(|_| reader.varint("record of an entry")).collect::<Result<_, _>>()?;
            GroupRecord::Epoch { epoch, entries }
        }
        4 => GroupRecord::Copied { group, id: take_id(&mut reader)?, payload: reader.bytes("payload")? },
        _ => return Err(reader.malformed("kind of group record")),
    };
    reader.finish("end of group record")?;
    Ok(record)
}

pub(crate) fn take_id(reader: &mut Reader<'_>) -> Result<EntryId, Malformed> {
    Ok(EntryId { term: reader.varint("term of entry")?, index: reader.varint("index of entry")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_survive_a_round_trip_and_no_cut() {
        let group = GroupId { node: NodeId(1023), incarnation: Incarnation(u32::MAX) };
        let id = EntryId { term: u64::MAX, index: 300 };
        let state = GroupState { term: 9, vote: 1023, commit: u64::MAX, members: vec![1, 2, 3], compacted: id };
        for record in [
            GroupRecord::Entry { group, id, term_before: 7, payload: &[5; 1000] },
            GroupRecord::Entry { group, id: EntryId::default(), term_before: 0, payload: &[] },
            GroupRecord::State { group, state },
            GroupRecord::State { group, state: GroupState::default() },
            GroupRecord::Ended { group },
            GroupRecord::Ended { group: GroupId::default() },
            GroupRecord::Epoch { epoch: Epoch(u64::MAX), entries: vec![1, 300, u64::MAX] },
            GroupRecord::Epoch { epoch: Epoch(1), entries: Vec::new() },
            GroupRecord::Copied { group, id, payload: &[6; 1000] },
            GroupRecord::Copied { group, id: EntryId::default(), payload: &[] },
        ] {
            let mut bytes = encode_group_record(&record);
            assert_eq!(decode_group_record(&bytes), Ok(record));
            for cut in 0..bytes.len() {
                assert!(decode_group_record(&bytes[..cut]).is_err(), "cut at {cut}");
            }
            bytes.push(0);
            assert!(decode_group_record(&bytes).is_err());
        }
    }
}
