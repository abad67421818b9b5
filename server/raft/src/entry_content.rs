//! The content of an entry in the log and in messages: the proposal, and one byte for its kind.
//!
//! Empty content marks the entry with which a leader begins its term. The byte comes last, so that it can be appended
//! to a proposal without a copy. A change of members is read by this file's own strict reader: protobuf never decodes
//! data from a peer or a disk.

use bytes::Bytes;
use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, Entry, EntryType};
use tribunal_codec::{EntryId, Malformed, PROPOSED, Reader};

use crate::settings::{MEMBERS_MAX, NODE_MAX};

/// The last byte of a change of members.
pub(crate) const MEMBERS: u8 = 1;

/// The kind of an entry, as seen by a state machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A proposal.
    Proposal(Bytes),
    /// A leader begins its term.
    TermBegins,
    /// The members change.
    MembersChange,
}

impl EntryKind {
    /// Parses the content of an entry, as it is in the log and in messages.
    ///
    /// # Errors
    /// If the bytes are not the content of an entry.
    pub fn of(content: &Bytes) -> Result<EntryKind, Malformed> {
        let entry = entry(EntryId::default(), content.clone())?;
        Ok(match entry.get_entry_type() {
            EntryType::EntryNormal if entry.data.is_empty() => EntryKind::TermBegins,
            EntryType::EntryNormal => EntryKind::Proposal(proposed(&entry)),
            _ => EntryKind::MembersChange,
        })
    }
}

/// Returns a proposal as passed to raft-rs.
pub(crate) fn proposal(mut payload: Vec<u8>) -> Vec<u8> {
    payload.push(PROPOSED);
    payload
}

/// Returns the proposal in an entry.
pub(crate) fn proposed(entry: &Entry) -> Bytes {
    entry.data.slice(..entry.data.len().saturating_sub(1))
}

/// Returns an entry's content in the log and in messages.
pub(crate) fn content(entry: &Entry) -> Bytes {
    if entry.get_entry_type() == EntryType::EntryNormal {
        return entry.data.clone();
    }
    let mut bytes = entry.data.to_vec();
    bytes.push(MEMBERS);
    bytes.into()
}

/// Returns the entry with this content.
///
/// # Errors
/// If the bytes are not the content of an entry.
pub(crate) fn entry(id: EntryId, content: Bytes) -> Result<Entry, Malformed> {
    let mut entry = Entry::default();
    (entry.term, entry.index) = (id.term, id.index);
    match content.last() {
        None | Some(&PROPOSED) => entry.data = content,
        Some(&MEMBERS) => {
            entry.set_entry_type(EntryType::EntryConfChangeV2);
            entry.data = content.slice(..content.len() - 1);
            change(&entry.data)?;
        }
        Some(_) => return Err(Malformed { what: "kind of entry", at: content.len() - 1 }),
    }
    Ok(entry)
}

/// Reads a change of members in raft-rs's protobuf encoding.
///
/// # Errors
/// If it is not a change of members, or not one that raft-rs would have written.
pub(crate) fn change(bytes: &[u8]) -> Result<ConfChangeV2, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut change = ConfChangeV2::default();
    let mut singles = Vec::new();
    while reader.remaining() > 0 {
        match reader.u8("field of a change of members")? {
            0x08 => change.set_transition(match reader.varint("transition")? {
                0 => ConfChangeTransition::Auto,
                1 => ConfChangeTransition::Implicit,
                _ => return Err(reader.malformed("transition that is not left automatically")),
            }),
            0x12 if singles.len() < 2 * MEMBERS_MAX => singles.push(single(reader.bytes("change")?)?),
            _ => return Err(reader.malformed("field of a change of members")),
        }
    }
    change.set_changes(singles.into());
    Ok(change)
}

fn single(bytes: &[u8]) -> Result<ConfChangeSingle, Malformed> {
    let mut reader = Reader::new(bytes);
    let mut single = ConfChangeSingle::default();
    while reader.remaining() > 0 {
        match reader.u8("field of a change")? {
            0x08 => single.set_change_type(match reader.varint("kind of change")? {
                0 => ConfChangeType::AddNode,
                1 => ConfChangeType::RemoveNode,
                2 => ConfChangeType::AddLearnerNode,
                _ => return Err(reader.malformed("kind of change")),
            }),
            0x10 => single.node_id = reader.varint("member")?,
            _ => return Err(reader.malformed("field of a change")),
        }
    }
    if single.node_id == 0 || single.node_id > u64::from(NODE_MAX) {
        return Err(reader.malformed("member"));
    }
    Ok(single)
}
