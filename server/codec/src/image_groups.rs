//! The position in each Raft group's log up to which a state image has read it, as one column of bytes in the image.
//!
//! A replica that starts from the image, or receives it in place of compacted entries, continues each group after the
//! entry named here, with the members at that entry. A single node has no groups, and an empty list.

use std::collections::BTreeMap;

use tribunal_types::{Csn, GroupId, Incarnation, NodeId};

use crate::group_record::{EntryId, put_id, take_id};
use crate::reader::{Malformed, Reader};
use crate::varint::{put_bytes, put_varint};
use crate::{Kind, put_head, take_head};

/// Position up to which an image has read a group's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupCursor {
    /// Last entry that the image includes.
    pub included: EntryId,
    /// At least every stamp up to that entry: the group's next proposals are above it.
    pub stamp: Csn,
    /// The group's members as of that entry, encoded by the caller.
    pub members: Vec<u8>,
}

/// The cursors of all groups of an image.
pub type GroupCursors = BTreeMap<GroupId, GroupCursor>;

/// Encodes the cursors.
#[must_use]
pub fn encode_group_cursors(cursors: &GroupCursors) -> Vec<u8> {
    let mut out = Vec::with_capacity(8 + 64 * cursors.len());
    put_head(Kind::ImageGroups, &mut out);
    put_varint(cursors.len() as u64, &mut out);
    for (group, GroupCursor { included, stamp, members }) in cursors {
        put_varint(u64::from(group.node.0), &mut out);
        put_varint(u64::from(group.incarnation.0), &mut out);
        put_id(*included, &mut out);
        put_varint(stamp.0, &mut out);
        put_bytes(members, &mut out);
    }
    out
}

/// Decodes the cursors.
///
/// # Errors
/// If the bytes are not such a list, or its groups are not ascending.
pub fn decode_group_cursors(bytes: &[u8]) -> Result<GroupCursors, Malformed> {
    let mut reader = Reader::new(bytes);
    take_head(Kind::ImageGroups, &mut reader)?;
    let mut cursors = GroupCursors::new();
    for _ in 0..reader.count(6, "groups")? {
        let group =
            GroupId { node: NodeId(reader.number("node")?), incarnation: Incarnation(reader.number("incarnation")?) };
        let (included, stamp) = (take_id(&mut reader)?, Csn(reader.varint("stamp")?));
        let cursor = GroupCursor { included, stamp, members: reader.bytes("members")?.to_vec() };
        if cursors.last_key_value().is_some_and(|(last, _)| *last >= group) {
            return Err(reader.malformed("order of groups"));
        }
        cursors.insert(group, cursor);
    }
    reader.finish("end of the groups")?;
    Ok(cursors)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(node: u16, incarnation: u32) -> GroupId {
        GroupId { node: NodeId(node), incarnation: Incarnation(incarnation) }
    }

    fn cursors() -> GroupCursors {
        let cursor =
            |term, index, members| GroupCursor { included: EntryId { term, index }, stamp: Csn(term), members };
        GroupCursors::from([
            (group(0, 1), cursor(9, 700, vec![1, 2, 3])),
            (group(1, 5), GroupCursor::default()),
            (group(1, u32::MAX), cursor(u64::MAX, u64::MAX, vec![7; 300])),
            (group(u16::MAX, 0), cursor(1, 0, Vec::new())),
        ])
    }

    #[test]
    fn cursors_survive_a_round_trip_and_no_cut() {
        for cursors in [GroupCursors::new(), cursors()] {
            let mut bytes = encode_group_cursors(&cursors);
            assert_eq!(decode_group_cursors(&bytes).as_ref(), Ok(&cursors));
            for cut in 0..bytes.len() {
                assert!(decode_group_cursors(&bytes[..cut]).is_err(), "cut at {cut}");
            }
            bytes.push(0);
            assert!(decode_group_cursors(&bytes).is_err());
        }
    }

    #[test]
    fn groups_out_of_order_or_twice_are_rejected() {
        let encoded = |group| encode_group_cursors(&GroupCursors::from([(group, GroupCursor::default())]));
        let joined = |first: GroupId, second: GroupId| {
            let (mut bytes, second) = (encoded(first), encoded(second));
            bytes[2] = 2;
            bytes.extend_from_slice(&second[3..]);
            decode_group_cursors(&bytes)
        };
        assert_eq!(joined(group(1, 2), group(1, 3)).map(|cursors| cursors.len()), Ok(2));
        for second in [group(1, 2), group(1, 1), group(0, 9)] {
            assert!(joined(group(1, 2), second).is_err(), "{second:?} after incarnation 2 of node 1");
        }
    }
}
