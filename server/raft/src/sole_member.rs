//! How one node becomes the only member of a group whose majority is permanently lost.
//!
//! Raft has no such step: entries that the other members agreed on without this node are given up, and this node's
//! entries that are not known to be agreed on count from now on, because they may have been acknowledged. So it is done
//! once, offline, to a log that is not in use, by entries that Raft would otherwise have needed a majority for.

use bytes::Bytes;
use raft::eraftpb::ConfChangeType;
use tribunal_codec::put_varint;
use tribunal_types::NodeId;

use crate::entry_content::{EntryKind, MEMBERS, change};
use crate::members::Members;

/// The entries that make a node the only member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoleMember {
    /// Their contents, to follow the last entry of the log.
    pub contents: Vec<Bytes>,
    /// The members after them.
    pub members: Members,
}

/// Returns the entries that make `me` the only member of a group. `agreed` are the members as of the last entry known
/// to be agreed on, `rest` the contents of the entries after it, up to index `last`.
///
/// # Errors
/// A text, if an entry cannot be read, or if voters were being replaced.
pub fn sole_member(
    me: NodeId,
    agreed: &Members,
    rest: impl IntoIterator<Item = Bytes>,
    last: u64,
) -> Result<SoleMember, String> {
    let mut members = agreed.clone();
    for content in rest {
        let kind = EntryKind::of(&content).map_err(|malformed| malformed.to_string())?;
        if kind == EntryKind::MembersChange {
            follow(&mut members, &content)?;
        }
    }
    if members.is_joint() {
        return Err("its voters were being replaced when the majority was lost".into());
    }
    let mut contents = Vec::new();
    if !members.voters.contains(&me) {
        contents.push(content(ConfChangeType::AddNode, me));
    }
    let others = members.voters.iter().chain(&members.learners).filter(|node| **node != me);
    contents.extend(others.map(|node| content(ConfChangeType::RemoveNode, *node)));
    if !contents.is_empty() {
        members = Members { as_of: last + contents.len() as u64, ..Members::first([me]) };
    }
    Ok(SoleMember { contents, members })
}

/// Applies a change of one member.
fn follow(members: &mut Members, content: &Bytes) -> Result<(), String> {
    let change = change(&content[..content.len() - 1]).map_err(|malformed| malformed.to_string())?;
    let [single] = change.get_changes() else {
        return Err("several of its members were being changed when the majority was lost".into());
    };
    let node = NodeId(single.node_id as u16);
    members.voters.remove(&node);
    members.learners.remove(&node);
    match single.get_change_type() {
        ConfChangeType::AddNode => _ = members.voters.insert(node),
        ConfChangeType::AddLearnerNode => _ = members.learners.insert(node),
        ConfChangeType::RemoveNode => {}
    }
    Ok(())
}

/// Returns the content of an entry that changes one member, as raft-rs writes it.
fn content(kind: ConfChangeType, node: NodeId) -> Bytes {
    let mut single = vec![0x08, kind as u8, 0x10];
    put_varint(u64::from(node.0), &mut single);
    let mut bytes = vec![0x12, single.len() as u8];
    bytes.extend_from_slice(&single);
    bytes.push(MEMBERS);
    bytes.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(voters: &[u16], learners: &[u16]) -> Members {
        let mut members = Members::first(voters.iter().copied().map(NodeId));
        members.learners = learners.iter().copied().map(NodeId).collect();
        members
    }

    /// Applies the entries as the group does at its next start.
    fn after(agreed: &Members, contents: &[Bytes]) -> Members {
        let mut members = agreed.clone();
        contents.iter().for_each(|content| follow(&mut members, content).unwrap());
        members
    }

    #[test]
    fn a_node_is_left_alone_whatever_was_under_way() {
        let add = content(ConfChangeType::AddNode, NodeId(4));
        let learn = content(ConfChangeType::AddLearnerNode, NodeId(1023));
        let term_begins = Bytes::new();
        for (agreed, rest, count) in [
            (members(&[1, 2, 3], &[]), vec![], 2),
            (members(&[1, 2, 3], &[4]), vec![term_begins, add, learn], 4),
            (members(&[2, 3], &[1]), vec![], 3),
            (members(&[2, 3], &[]), vec![], 3),
            (members(&[1], &[]), vec![], 0),
        ] {
            let alone = sole_member(NodeId(1), &agreed, rest.clone(), 70).unwrap();
            assert_eq!(alone.contents.len(), count);
            let mut members = after(&agreed, &rest.into_iter().filter(|rest| !rest.is_empty()).collect::<Vec<_>>());
            members = after(&members, &alone.contents);
            assert_eq!((&members.voters, &members.learners), (&alone.members.voters, &alone.members.learners));
            assert_eq!((members.voters.len(), members.learners.len()), (1, 0));
            assert_eq!(alone.members.as_of, if count == 0 { 0 } else { 70 + count as u64 });
        }
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        let joint = Members { outgoing: [NodeId(3)].into(), ..members(&[1, 2], &[]) };
        assert!(sole_member(NodeId(1), &joint, [], 9).unwrap_err().contains("being replaced"));
        let damaged = Bytes::from_static(&[0x12, 9, MEMBERS]);
        assert!(sole_member(NodeId(1), &members(&[1, 2], &[]), [damaged], 9).is_err());
    }
}
