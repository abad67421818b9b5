//! What members send to each other, and its encoding.

use bytes::Bytes;
use tribunal_codec::{EntryId, Malformed, Reader, decode_control, encode_control, put_bytes, put_varint};
use tribunal_raft::{MESSAGE_BYTES_MAX, RaftMessage};
use tribunal_replica::StorageAt;
use tribunal_types::{ControlEntry, ControlIndex, Epoch, GroupId, Incarnation, Lsn, NodeId, StoreId};

/// Bytes of an encoded frame; a longer one is refused before it is read.
pub const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 1;

const RAFT: u8 = 0;
const CONTROL: u8 = 1;
const LEAVING: u8 = 2;
const RELAY: u8 = 3;
const ASK: u8 = 4;
const ENTRIES: u8 = 5;
const STAGE: u8 = 6;
const PUSHED: u8 = 7;
const PUSH_STATES: u8 = 8;
const RESUME_PUSH: u8 = 9;
const REMOVED: u8 = 16;

/// A message of one member to another.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// Of a Raft group.
    Raft(RaftMessage),
    /// A change of configuration, for the leader of the control group to propose.
    Control(Box<ControlEntry>),
    /// The sender is about to stop: offer it no leadership.
    Leaving,
    /// The receiver was removed from the cluster: no group has it any more.
    Removed,
    /// A change of configuration, to pass on to the leader of the control group, which the sender cannot reach.
    Relay(Box<ControlEntry>),
    /// A question for what the receiver has handed out of a group, and hands out soon.
    Ask {
        /// The group.
        group: GroupId,
        /// Index of the last entry that the sender has.
        after: u64,
    },
    /// The answer.
    Entries(PeerEntries),
    /// How far the storages are to which the sender pushes, and how far it has decided.
    Pushed {
        /// The last epoch that it has decided.
        decided: Epoch,
        /// Those of its storages that have reported.
        stores: Vec<StorageAt>,
    },
    /// What the pushes of the sender are doing, for people. Not for the member, which does not know what it says.
    PushStates(Bytes),
    /// An operator wants this store's push to be tried again. Not for the member.
    ResumePush(StoreId),
    /// How far the sender's first start is. Not for the member: what stands before it takes it.
    Stage(Stage),
}

/// How far the first start of a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Its disk has nothing.
    New,
    /// It has met all others, and noted so.
    Prepared,
    /// It takes part, or has taken part.
    Member,
}

/// What a member has handed out of a group, for another one that cannot reach its leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEntries {
    /// The group.
    pub group: GroupId,
    /// Index of the last entry that the sender has handed out.
    pub handed_out: u64,
    /// Entries, in the order of the log and without a gap.
    pub entries: Vec<(EntryId, Bytes)>,
}

impl Frame {
    /// Returns whether it goes over the connection for heartbeats, where nothing large delays it.
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        match self {
            Frame::Raft(message) => message.is_heartbeat(),
            Frame::Pushed { .. } => true,
            _ => false,
        }
    }

    /// Encodes the frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, content) = match self {
            Frame::Raft(message) => (RAFT, message.encode()),
            Frame::Control(entry) => (CONTROL, encode_control(entry)),
            Frame::Leaving => (LEAVING, Vec::new()),
            Frame::Removed => (REMOVED, Vec::new()),
            Frame::Relay(entry) => (RELAY, encode_control(entry)),
            Frame::Ask { group, after } => {
                let mut out = Vec::with_capacity(16);
                put_group(*group, &mut out);
                put_varint(*after, &mut out);
                (ASK, out)
            }
            Frame::Entries(entries) => (ENTRIES, entries.encode()),
            Frame::Pushed { decided, stores } => (PUSHED, encode_pushed(*decided, stores)),
            Frame::PushStates(states) => (PUSH_STATES, states.to_vec()),
            Frame::ResumePush(store) => {
                let mut out = Vec::with_capacity(5);
                put_varint(u64::from(store.0), &mut out);
                (RESUME_PUSH, out)
            }
            Frame::Stage(stage) => (STAGE, vec![*stage as u8]),
        };
        let mut out = Vec::with_capacity(1 + content.len());
        out.push(kind);
        out.extend_from_slice(&content);
        out
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// If the bytes are none, or more than [`FRAME_BYTES_MAX`].
    pub fn decode(bytes: &Bytes) -> Result<Frame, Malformed> {
        let mut reader = Reader::new(bytes);
        if bytes.len() > FRAME_BYTES_MAX {
            return Err(reader.malformed("frame that is too long"));
        }
        match reader.u8("kind of frame")? {
            RAFT => RaftMessage::decode(&bytes.slice(1..)).map(Frame::Raft),
            CONTROL => decode_control(&bytes[1..]).map(|entry| Frame::Control(Box::new(entry))),
            RELAY => decode_control(&bytes[1..]).map(|entry| Frame::Relay(Box::new(entry))),
            ASK => take_ask(&mut reader),
            ENTRIES => PeerEntries::take(&mut reader, bytes).map(Frame::Entries),
            PUSHED => take_pushed(&mut reader),
            PUSH_STATES => Ok(Frame::PushStates(bytes.slice(1..))),
            RESUME_PUSH => {
                let store = StoreId(reader.number("store")?);
                reader.finish("end of the frame").map(|()| Frame::ResumePush(store))
            }
            STAGE => take_stage(&mut reader).map(Frame::Stage),
            REMOVED => reader.finish("end of the frame").map(|()| Frame::Removed),
            LEAVING => reader.finish("end of the frame").map(|()| Frame::Leaving),
            _ => Err(reader.malformed("kind of frame")),
        }
    }
}

fn put_group(group: GroupId, out: &mut Vec<u8>) {
    put_varint(u64::from(group.node.0), out);
    put_varint(u64::from(group.incarnation.0), out);
}

fn take_group(reader: &mut Reader<'_>) -> Result<GroupId, Malformed> {
    Ok(GroupId { node: NodeId(reader.number("node")?), incarnation: Incarnation(reader.number("incarnation")?) })
}

fn take_ask(reader: &mut Reader<'_>) -> Result<Frame, Malformed> {
    let (group, after) = (take_group(reader)?, reader.varint("index")?);
    reader.finish("end of the frame").map(|()| Frame::Ask { group, after })
}

fn encode_pushed(decided: Epoch, stores: &[StorageAt]) -> Vec<u8> {
    let mut out = Vec::with_capacity(16 + 16 * stores.len());
    put_varint(decided.0, &mut out);
    put_varint(stores.len() as u64, &mut out);
    for StorageAt { store, push, acked } in stores {
        put_varint(u64::from(store.0), &mut out);
        put_varint(push.0, &mut out);
        put_varint(acked.0, &mut out);
    }
    out
}

fn take_pushed(reader: &mut Reader<'_>) -> Result<Frame, Malformed> {
    let (decided, count) = (Epoch(reader.varint("epoch")?), reader.count(3, "storages")?);
    let mut stores = Vec::with_capacity(count);
    for _ in 0..count {
        let (store, push) = (StoreId(reader.number("store")?), ControlIndex(reader.varint("push")?));
        stores.push(StorageAt { store, push, acked: Lsn(reader.varint("position")?) });
    }
    reader.finish("end of the frame").map(|()| Frame::Pushed { decided, stores })
}

fn take_stage(reader: &mut Reader<'_>) -> Result<Stage, Malformed> {
    let stage = match reader.u8("stage")? {
        0 => Stage::New,
        1 => Stage::Prepared,
        2 => Stage::Member,
        _ => return Err(reader.malformed("stage")),
    };
    reader.finish("end of the frame").map(|()| stage)
}

impl PeerEntries {
    fn encode(&self) -> Vec<u8> {
        let bytes: usize = self.entries.iter().map(|(_, content)| content.len() + 12).sum();
        let mut out = Vec::with_capacity(32 + bytes);
        put_group(self.group, &mut out);
        put_varint(self.handed_out, &mut out);
        put_varint(self.entries.first().map_or(0, |(id, _)| id.index), &mut out);
        put_varint(self.entries.len() as u64, &mut out);
        for (id, content) in &self.entries {
            put_varint(id.term, &mut out);
            put_bytes(content, &mut out);
        }
        out
    }

    /// Reads what follows the first byte of the frame in `bytes`, whose memory the entries share.
    fn take(reader: &mut Reader<'_>, bytes: &Bytes) -> Result<PeerEntries, Malformed> {
        let (group, handed_out) = (take_group(reader)?, reader.varint("last index")?);
        let (first, count) = (reader.varint("first index")?, reader.count(2, "entries")?);
        let last = first.checked_add(count as u64).ok_or_else(|| reader.malformed("first index"))?;
        let mut entries = Vec::with_capacity(count);
        for index in first..last {
            let id = EntryId { term: reader.varint("term")?, index };
            entries.push((id, bytes.slice_ref(reader.bytes("content")?)));
        }
        reader.finish("end of the frame")?;
        Ok(PeerEntries { group, handed_out, entries })
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::{ControlChange, ProposalId};

    use super::*;

    #[test]
    fn frames_survive_a_round_trip_and_no_cut() {
        let group = GroupId { node: NodeId(1023), incarnation: Incarnation(u32::MAX) };
        let entry = |term, index, content: &'static [u8]| (EntryId { term, index }, Bytes::from_static(content));
        let at = |store, acked| StorageAt { store: StoreId(store), push: ControlIndex(9), acked: Lsn(acked) };
        let entries = vec![entry(3, 70_000, b"x\0"), entry(3, 70_001, b""), entry(9, 70_002, &[7; 300])];
        for frame in [
            Frame::Ask { group, after: u64::MAX },
            Frame::Entries(PeerEntries { group, handed_out: u64::MAX, entries }),
            Frame::Entries(PeerEntries { group, handed_out: 0, entries: Vec::new() }),
            Frame::Pushed { decided: Epoch(1 << 40), stores: vec![at(1, 70_000), at(300, 0)] },
            Frame::Pushed { decided: Epoch(0), stores: Vec::new() },
            Frame::ResumePush(StoreId(u32::MAX)),
        ] {
            let bytes = Bytes::from(frame.encode());
            assert_eq!(Frame::decode(&bytes).as_ref(), Ok(&frame));
            assert!((0..bytes.len()).all(|cut| Frame::decode(&bytes.slice(..cut)).is_err()));
        }
        let past = |first: u64| {
            let mut bytes = vec![ENTRIES, 1, 1, 9];
            put_varint(first, &mut bytes);
            bytes.extend_from_slice(&[2, 1, 0, 1, 0]);
            Frame::decode(&bytes.into())
        };
        assert!(past(u64::MAX - 2).is_ok() && past(u64::MAX - 1).is_err(), "indices would overflow");
    }

    #[test]
    fn a_change_survives_a_round_trip_and_no_cut() {
        let change = ControlChange::RevokeKey { id: "k".into() };
        let frame = Frame::Control(Box::new(ControlEntry { proposal: ProposalId { run: 7, number: 9 }, change }));
        let bytes = Bytes::from(frame.encode());
        assert_eq!(Frame::decode(&bytes), Ok(frame));
        assert!((0..bytes.len()).all(|cut| Frame::decode(&bytes.slice(..cut)).is_err()));
        assert_eq!(Frame::decode(&Frame::Leaving.encode().into()), Ok(Frame::Leaving));
        assert_eq!(Frame::decode(&Frame::Removed.encode().into()), Ok(Frame::Removed));
        assert!(Frame::decode(&Bytes::from_static(&[LEAVING, 0])).is_err());
        assert!(Frame::decode(&Bytes::from_static(&[REMOVED, 0])).is_err());
        assert!(Frame::decode(&Bytes::from_static(&[99, 9])).is_err());
        assert!(Frame::decode(&vec![RAFT; FRAME_BYTES_MAX + 1].into()).is_err());
    }
}
