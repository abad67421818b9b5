//! The messages between members, and their encoding.

use bytes::Bytes;
use tribunal_codec::{EntryId, Malformed, Reader, decode_control, encode_control, put_bytes, put_varint};
use tribunal_raft::{DurableUpTo, MESSAGE_BYTES_MAX, RaftMessage};
use tribunal_replica::StorageAt;
use tribunal_types::limits::{PART_BYTES_MAX, PULLED_NAME_BYTES_MAX};
use tribunal_types::{ControlEntry, ControlIndex, Digest, Epoch, GroupId, Incarnation, Lsn, NodeId, StoreId};

/// Maximum length of an encoded frame; a longer one is refused before it is read.
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
const DECIDED: u8 = 10;
const PULL: u8 = 11;
const PART: u8 = 12;
const ABSENT: u8 = 13;
const REMOVED: u8 = 16;
const CLAIM: u8 = 17;
const CLAIMED: u8 = 18;
const DELIVERIES: u8 = 19;
const DURABLE: u8 = 20;
const CLOCK: u8 = 24;

/// A message from one member to another.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// A message of a Raft group.
    Raft(RaftMessage),
    /// How far the sender's logs are durable.
    Durable(Vec<DurableUpTo>),
    /// A configuration change for the leader of the control group to propose.
    Control(Box<ControlEntry>),
    /// The sender is about to stop: offer it no leadership.
    Leaving,
    /// The receiver was removed from the cluster: no group has it as a member any more.
    Removed,
    /// A configuration change to be forwarded to the leader of the control group, which the sender cannot reach.
    Relay(Box<ControlEntry>),
    /// A request for the entries that the receiver has handed out of a group, and will hand out soon.
    Ask {
        /// The group.
        group: GroupId,
        /// Index of the last entry that the sender has.
        after: u64,
    },
    /// The answer to [`Frame::Ask`].
    Entries(PeerEntries),
    /// How far the sender's storages and embedded copies have acknowledged, and how far it has decided.
    Pushed {
        /// The last epoch that the sender has decided.
        decided: Epoch,
        /// The stores that have reported.
        stores: Vec<StorageAt>,
    },
    /// The state of the sender's pushes, for display. Not for the member, which does not interpret it.
    PushStates(Bytes),
    /// The state of the sender's webhook deliveries, for display. Not for the member either.
    Deliveries(Bytes),
    /// An operator's request to retry this store's push. Not for the member.
    ResumePush(StoreId),
    /// The sender's digest of all decided epochs.
    Decided {
        /// Last epoch included in it.
        epoch: Epoch,
        /// The digest.
        digest: Digest,
    },
    /// A request for a part of a named content. Neither it nor the replies are for the member.
    Pull(Pull),
    /// The part, in reply to [`Frame::Pull`].
    Part(Part),
    /// The other reply to [`Frame::Pull`]: there is no such content.
    Absent {
        /// Number from the request.
        transfer: u64,
        /// The reason, as text.
        reason: String,
    },
    /// The stage of the sender's first start. Not for the member: handled before it is reached.
    Stage(Stage),
    /// An admitted node starts for the first time, with the data directory that has drawn this number. Neither it nor
    /// the answer is for the member.
    Claim(u64),
    /// The directory to which its node number is bound; `None` if the receiver is not admitted, as far as the sender
    /// knows.
    Claimed(Option<u64>),
    /// The sender's clock, Unix milliseconds. Not for the member, which has no clock.
    Clock(u64),
}

/// The stage of a node's first start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Its disk is empty.
    New,
    /// It has met all other nodes, and has noted that.
    Prepared,
    /// It takes part, or has taken part.
    Member,
}

/// The entries that a member has handed out of a group, for a node that cannot reach the group's leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerEntries {
    /// The group.
    pub group: GroupId,
    /// Index of the last entry that the sender has handed out.
    pub handed_out: u64,
    /// Entries in log order, without a gap.
    pub entries: Vec<(EntryId, Bytes)>,
}

/// A request for a part of a named content on the receiver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// The sender's number for the transfer.
    pub transfer: u64,
    /// Name of the content.
    pub name: String,
    /// Start of the part; the receiver chooses its length.
    pub offset: u64,
}

/// A part of a named content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Number from the request.
    pub transfer: u64,
    /// Offset from the request.
    pub offset: u64,
    /// Length of the whole content.
    pub total: u64,
    /// The bytes from `offset` on; empty only at the end.
    pub bytes: Bytes,
}

impl Frame {
    /// Returns whether the frame goes over the heartbeat connection, where no large frame delays it.
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        match self {
            Frame::Raft(message) => message.is_heartbeat(),
            Frame::Pushed { .. } | Frame::Decided { .. } | Frame::Clock(_) => true,
            _ => false,
        }
    }

    /// Encodes the frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, content) = match self {
            Frame::Raft(message) => (RAFT, message.encode()),
            Frame::Durable(upto) => (DURABLE, encode_durable(upto)),
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
            Frame::Deliveries(states) => (DELIVERIES, states.to_vec()),
            Frame::ResumePush(store) => {
                let mut out = Vec::with_capacity(5);
                put_varint(u64::from(store.0), &mut out);
                (RESUME_PUSH, out)
            }
            Frame::Decided { epoch, digest } => {
                let mut out = Vec::with_capacity(18);
                put_varint(epoch.0, &mut out);
                out.extend_from_slice(&digest.0.to_le_bytes());
                (DECIDED, out)
            }
            Frame::Pull(Pull { transfer, name, offset }) => {
                let mut out = Vec::with_capacity(name.len() + 24);
                put_varint(*transfer, &mut out);
                put_varint(*offset, &mut out);
                put_bytes(name.as_bytes(), &mut out);
                (PULL, out)
            }
            Frame::Part(Part { transfer, offset, total, bytes }) => {
                let mut out = Vec::with_capacity(bytes.len() + 40);
                [transfer, offset, total].into_iter().for_each(|number| put_varint(*number, &mut out));
                put_bytes(bytes, &mut out);
                (PART, out)
            }
            Frame::Absent { transfer, reason } => {
                let mut out = Vec::with_capacity(reason.len() + 16);
                put_varint(*transfer, &mut out);
                put_bytes(reason.as_bytes(), &mut out);
                (ABSENT, out)
            }
            Frame::Stage(stage) => (STAGE, vec![*stage as u8]),
            Frame::Claim(directory) => (CLAIM, directory.to_le_bytes().to_vec()),
            Frame::Clock(unix_ms) => (CLOCK, unix_ms.to_le_bytes().to_vec()),
            Frame::Claimed(None) => (CLAIMED, Vec::new()),
            Frame::Claimed(Some(directory)) => (CLAIMED, directory.to_le_bytes().to_vec()),
        };
        let mut out = Vec::with_capacity(1 + content.len());
        out.push(kind);
        out.extend_from_slice(&content);
        out
    }

    /// Decodes a frame.
    ///
    /// # Errors
    /// If the bytes are not a frame, or more than [`FRAME_BYTES_MAX`].
    pub fn decode(bytes: &Bytes) -> Result<Frame, Malformed> {
        let mut reader = Reader::new(bytes);
        if bytes.len() > FRAME_BYTES_MAX {
            return Err(reader.malformed("frame that is too long"));
        }
        match reader.u8("kind of frame")? {
            RAFT => RaftMessage::decode(&bytes.slice(1..)).map(Frame::Raft),
            DURABLE => take_durable(&mut reader).map(Frame::Durable),
            CONTROL => decode_control(&bytes[1..]).map(|entry| Frame::Control(Box::new(entry))),
            RELAY => decode_control(&bytes[1..]).map(|entry| Frame::Relay(Box::new(entry))),
            ASK => take_ask(&mut reader),
            ENTRIES => PeerEntries::take(&mut reader, bytes).map(Frame::Entries),
            PUSHED => take_pushed(&mut reader),
            PUSH_STATES => Ok(Frame::PushStates(bytes.slice(1..))),
            DELIVERIES => Ok(Frame::Deliveries(bytes.slice(1..))),
            RESUME_PUSH => {
                let store = StoreId(reader.number("store")?);
                reader.finish("end of the frame").map(|()| Frame::ResumePush(store))
            }
            DECIDED => {
                let (epoch, digest) = (Epoch(reader.varint("epoch")?), Digest(reader.u64_le("digest")?));
                reader.finish("end of the frame").map(|()| Frame::Decided { epoch, digest })
            }
            PULL => take_pull(&mut reader).map(Frame::Pull),
            PART => take_part(&mut reader, bytes).map(Frame::Part),
            ABSENT => {
                let (transfer, reason) = (reader.varint("transfer")?, reader.text("reason")?);
                reader.finish("end of the frame").map(|()| Frame::Absent { transfer, reason })
            }
            STAGE => take_stage(&mut reader).map(Frame::Stage),
            CLAIM => {
                let directory = reader.u64_le("directory")?;
                reader.finish("end of the frame").map(|()| Frame::Claim(directory))
            }
            CLOCK => {
                let unix_ms = reader.u64_le("clock")?;
                reader.finish("end of the frame").map(|()| Frame::Clock(unix_ms))
            }
            CLAIMED if bytes.len() == 1 => Ok(Frame::Claimed(None)),
            CLAIMED => {
                let directory = reader.u64_le("directory")?;
                reader.finish("end of the frame").map(|()| Frame::Claimed(Some(directory)))
            }
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

fn encode_durable(upto: &[DurableUpTo]) -> Vec<u8> {
    let mut out = Vec::with_capacity(4 + 16 * upto.len());
    put_varint(upto.len() as u64, &mut out);
    for DurableUpTo { group, term, index } in upto {
        put_group(*group, &mut out);
        put_varint(*term, &mut out);
        put_varint(*index, &mut out);
    }
    out
}

fn take_durable(reader: &mut Reader<'_>) -> Result<Vec<DurableUpTo>, Malformed> {
    let count = reader.count(4, "groups")?;
    let mut upto = Vec::with_capacity(count);
    for _ in 0..count {
        let group = take_group(reader)?;
        upto.push(DurableUpTo { group, term: reader.varint("term")?, index: reader.varint("index")? });
    }
    reader.finish("end of the frame").map(|()| upto)
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

fn take_pull(reader: &mut Reader<'_>) -> Result<Pull, Malformed> {
    let (transfer, offset) = (reader.varint("transfer")?, reader.varint("offset")?);
    let name = reader.text("name")?;
    reader.finish("end of the frame")?;
    if name.len() > PULLED_NAME_BYTES_MAX { Err(reader.malformed("name")) } else { Ok(Pull { transfer, name, offset }) }
}

/// Reads the rest of the frame in `frame` after its first byte; the part shares the frame's memory.
fn take_part(reader: &mut Reader<'_>, frame: &Bytes) -> Result<Part, Malformed> {
    let [transfer, offset, total] = [reader.varint("transfer")?, reader.varint("offset")?, reader.varint("length")?];
    let bytes = frame.slice_ref(reader.bytes("part")?);
    reader.finish("end of the frame")?;
    let end = offset.checked_add(bytes.len() as u64);
    let is_empty = bytes.is_empty() && offset < total;
    if bytes.len() > PART_BYTES_MAX || is_empty || end.is_none_or(|end| end > total) {
        return Err(reader.malformed("part"));
    }
    Ok(Part { transfer, offset, total, bytes })
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

    /// Reads the rest of the frame in `bytes` after its first byte; the entries share the frame's memory.
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
            Frame::Clock(1_700_000_000_000),
            Frame::Durable(vec![DurableUpTo { group, term: 3, index: u64::MAX }; 2]),
            Frame::Durable(Vec::new()),
            Frame::Ask { group, after: u64::MAX },
            Frame::Entries(PeerEntries { group, handed_out: u64::MAX, entries }),
            Frame::Entries(PeerEntries { group, handed_out: 0, entries: Vec::new() }),
            Frame::Pushed { decided: Epoch(1 << 40), stores: vec![at(1, 70_000), at(300, 0)] },
            Frame::Pushed { decided: Epoch(0), stores: Vec::new() },
            Frame::ResumePush(StoreId(u32::MAX)),
            Frame::Decided { epoch: Epoch(1 << 40), digest: Digest(u64::MAX - 1) },
            Frame::Pull(Pull { transfer: u64::MAX, name: "state/7/listing".into(), offset: 1 << 50 }),
            Frame::Part(Part { transfer: 1, offset: 3, total: 1 << 50, bytes: Bytes::from_static(b"abc") }),
            Frame::Part(Part { transfer: 1, offset: 7, total: 7, bytes: Bytes::new() }),
            Frame::Absent { transfer: 9, reason: "é".into() },
            Frame::Claim(u64::MAX),
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
        let part = |offset, total, bytes| {
            let part = Part { transfer: 1, offset, total, bytes: Bytes::from_static(bytes) };
            Frame::decode(&Frame::Part(part).encode().into())
        };
        assert!(part(4, 6, b"ab").is_ok());
        assert!([part(5, 6, b"ab"), part(u64::MAX, u64::MAX, b"a"), part(5, 6, b"")].iter().all(Result::is_err));
        let named = |len| Frame::Pull(Pull { transfer: 1, name: "x".repeat(len), offset: 0 }).encode();
        assert!(Frame::decode(&named(PULLED_NAME_BYTES_MAX).into()).is_ok());
        assert!(Frame::decode(&named(PULLED_NAME_BYTES_MAX + 1).into()).is_err());
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
        for frame in [Frame::PushStates, Frame::Deliveries] {
            let frame = frame(Bytes::from_static(b"ab"));
            assert_eq!(Frame::decode(&frame.encode().into()), Ok(frame));
        }
        assert_eq!(Frame::decode(&Frame::Removed.encode().into()), Ok(Frame::Removed));
        for claimed in [Frame::Claimed(None), Frame::Claimed(Some(7))] {
            assert_eq!(Frame::decode(&claimed.encode().into()), Ok(claimed));
        }
        assert!(Frame::decode(&Bytes::from_static(&[CLAIMED, 0])).is_err());
        assert!(Frame::decode(&Bytes::from_static(&[LEAVING, 0])).is_err());
        assert!(Frame::decode(&Bytes::from_static(&[REMOVED, 0])).is_err());
        assert!(Frame::decode(&Bytes::from_static(&[99, 9])).is_err());
        assert!(Frame::decode(&vec![RAFT; FRAME_BYTES_MAX + 1].into()).is_err());
    }
}
