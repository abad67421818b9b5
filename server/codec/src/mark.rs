//! The mark: how far the log was durable when somebody last looked. A log that ends below its mark has lost entries
//! that were acknowledged.

use tribunal_types::{GroupId, Incarnation, NodeId};

use crate::reader::{Malformed, Reader};
use crate::varint::put_varint;
use crate::{Kind, put_head, take_head};

/// Groups that one mark can hold.
const GROUPS_MAX: usize = 64;
/// Bytes that an encoded mark never exceeds.
pub const MARK_BYTES_MAX: usize = 3 + 11 + 10 + 18 + GROUPS_MAX * 60;

/// How far one group's log was durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupMark {
    /// The group.
    pub group: GroupId,
    /// Index of its last durable entry; 0 is none.
    pub index: u64,
    /// Chain hash behind that entry.
    pub chain: u64,
    /// Raft term; 0 as long as a group has one member.
    pub term: u64,
    /// Raft vote: node id + 1 of whom this replica voted for in `term`; 0 is none.
    pub vote: u64,
}

/// The content of the mark file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Rises with every write; the higher of two valid slots counts.
    pub sequence: u64,
    /// Last durable entry of the control log.
    pub control_index: u64,
    /// Chain hash behind that entry.
    pub control_chain: u64,
    /// The groups, ascending.
    pub groups: Vec<GroupMark>,
}

/// Encodes a mark.
///
/// # Panics
/// With more groups than a mark can hold.
#[must_use]
pub fn encode_mark(mark: &Mark) -> Vec<u8> {
    assert!(mark.groups.len() <= GROUPS_MAX, "a mark holds {GROUPS_MAX} groups");
    let mut out = Vec::with_capacity(128);
    put_head(Kind::Mark, &mut out);
    put_varint(mark.sequence, &mut out);
    put_varint(mark.control_index, &mut out);
    out.extend_from_slice(&mark.control_chain.to_le_bytes());
    put_varint(mark.groups.len() as u64, &mut out);
    for group in &mark.groups {
        put_varint(u64::from(group.group.node.0), &mut out);
        put_varint(u64::from(group.group.incarnation.0), &mut out);
        put_varint(group.index, &mut out);
        out.extend_from_slice(&group.chain.to_le_bytes());
        put_varint(group.term, &mut out);
        put_varint(group.vote, &mut out);
    }
    out
}

/// Decodes a mark.
///
/// # Errors
/// If the bytes are not one.
pub fn decode_mark(bytes: &[u8]) -> Result<Mark, Malformed> {
    let mut reader = Reader::new(bytes);
    take_head(Kind::Mark, &mut reader)?;
    let sequence = reader.varint("mark sequence")?;
    let control_index = reader.varint("control index")?;
    let control_chain = reader.u64_le("control chain")?;
    let count = reader.count(13, "groups")?;
    let mut groups = Vec::with_capacity(count);
    for _ in 0..count {
        groups.push(GroupMark {
            group: GroupId {
                node: NodeId(reader.number("node")?),
                incarnation: Incarnation(reader.number("incarnation")?),
            },
            index: reader.varint("index")?,
            chain: reader.u64_le("chain")?,
            term: reader.varint("term")?,
            vote: reader.varint("vote")?,
        });
    }
    reader.finish("end of mark")?;
    Ok(Mark { sequence, control_index, control_chain, groups })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_mark_fits_its_bound_and_comes_back() {
        let group = GroupMark {
            group: GroupId { node: NodeId(u16::MAX), incarnation: Incarnation(u32::MAX) },
            index: u64::MAX,
            chain: u64::MAX,
            term: u64::MAX,
            vote: u64::MAX,
        };
        let mark = Mark {
            sequence: u64::MAX,
            control_index: u64::MAX,
            control_chain: u64::MAX,
            groups: vec![group; GROUPS_MAX],
        };
        let bytes = encode_mark(&mark);
        assert!(bytes.len() <= MARK_BYTES_MAX, "{}", bytes.len());
        assert_eq!(decode_mark(&bytes), Ok(mark));
        for cut in 0..bytes.len() {
            assert!(decode_mark(&bytes[..cut]).is_err(), "cut at {cut}");
        }
    }
}
