//! The mark: a lower bound of the durable part of the log. A log that ends below its mark has lost acknowledged
//! entries.

use tribunal_types::{GroupId, Incarnation, NodeId};

use crate::reader::{Malformed, Reader};
use crate::varint::put_varint;
use crate::{Kind, put_head, take_head};

/// Maximum number of groups in a mark.
const GROUPS_MAX: usize = 64;
/// Maximum size of an encoded mark.
pub const MARK_BYTES_MAX: usize = 3 + 10 + 18 + 18 + 10 + GROUPS_MAX * 60;

/// The durable part of one group's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupMark {
    /// The group.
    pub group: GroupId,
    /// Index of the last durable entry; 0 if there is none.
    pub index: u64,
    /// Chain hash up to and including that entry.
    pub chain: u64,
}

/// The content of the mark file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Increases with every write. Of two valid copies in the file, the one with the higher sequence counts.
    pub sequence: u64,
    /// Index of the last durable entry of the control log.
    pub control_index: u64,
    /// Chain hash up to and including that entry.
    pub control_chain: u64,
    /// Sequence of the last durable record of a Raft group. Votes are in those records, never in the mark.
    pub record: u64,
    /// Chain hash up to and including that record.
    pub record_chain: u64,
    /// One mark per group, ascending.
    pub groups: Vec<GroupMark>,
}

/// Encodes a mark.
///
/// # Panics
/// If there are more groups than a mark can hold.
#[must_use]
pub fn encode_mark(mark: &Mark) -> Vec<u8> {
    assert!(mark.groups.len() <= GROUPS_MAX, "a mark holds {GROUPS_MAX} groups");
    let mut out = Vec::with_capacity(128);
    put_head(Kind::Mark, &mut out);
    put_varint(mark.sequence, &mut out);
    put_varint(mark.control_index, &mut out);
    out.extend_from_slice(&mark.control_chain.to_le_bytes());
    put_varint(mark.record, &mut out);
    out.extend_from_slice(&mark.record_chain.to_le_bytes());
    put_varint(mark.groups.len() as u64, &mut out);
    for group in &mark.groups {
        put_varint(u64::from(group.group.node.0), &mut out);
        put_varint(u64::from(group.group.incarnation.0), &mut out);
        put_varint(group.index, &mut out);
        out.extend_from_slice(&group.chain.to_le_bytes());
    }
    out
}

/// Decodes a mark.
///
/// # Errors
/// If the bytes are not a mark.
pub fn decode_mark(bytes: &[u8]) -> Result<Mark, Malformed> {
    let mut reader = Reader::new(bytes);
    take_head(Kind::Mark, &mut reader)?;
    let sequence = reader.varint("mark sequence")?;
    let control_index = reader.varint("control index")?;
    let control_chain = reader.u64_le("control chain")?;
    let record = reader.varint("group record")?;
    let record_chain = reader.u64_le("chain of group records")?;
    let count = reader.count(11, "groups")?;
    let mut groups = Vec::with_capacity(count);
    for _ in 0..count {
        groups.push(GroupMark {
            group: GroupId {
                node: NodeId(reader.number("node")?),
                incarnation: Incarnation(reader.number("incarnation")?),
            },
            index: reader.varint("index")?,
            chain: reader.u64_le("chain")?,
        });
    }
    reader.finish("end of mark")?;
    Ok(Mark { sequence, control_index, control_chain, record, record_chain, groups })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_mark_fits_its_bound_and_survives_a_round_trip() {
        let group = GroupMark {
            group: GroupId { node: NodeId(u16::MAX), incarnation: Incarnation(u32::MAX) },
            index: u64::MAX,
            chain: u64::MAX,
        };
        let mark = Mark {
            sequence: u64::MAX,
            control_index: u64::MAX,
            control_chain: u64::MAX,
            record: u64::MAX,
            record_chain: u64::MAX,
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
