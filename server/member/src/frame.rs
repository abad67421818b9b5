//! What members send to each other, and its encoding.

use bytes::Bytes;
use tribunal_codec::{Malformed, Reader, decode_control, encode_control};
use tribunal_raft::{MESSAGE_BYTES_MAX, RaftMessage};
use tribunal_types::ControlEntry;

/// Bytes of an encoded frame; a longer one is refused before it is read.
pub const FRAME_BYTES_MAX: usize = MESSAGE_BYTES_MAX + 1;

const RAFT: u8 = 0;
const CONTROL: u8 = 1;
const LEAVING: u8 = 2;

/// A message of one member to another.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// Of a Raft group.
    Raft(RaftMessage),
    /// A change of configuration, for the leader of the control group to propose.
    Control(Box<ControlEntry>),
    /// The sender is about to stop: offer it no leadership.
    Leaving,
}

impl Frame {
    /// Returns whether it goes over the connection for heartbeats, where nothing large delays it.
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        matches!(self, Frame::Raft(message) if message.is_heartbeat())
    }

    /// Encodes the frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (kind, content) = match self {
            Frame::Raft(message) => (RAFT, message.encode()),
            Frame::Control(entry) => (CONTROL, encode_control(entry)),
            Frame::Leaving => (LEAVING, Vec::new()),
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
            LEAVING => reader.finish("end of the frame").map(|()| Frame::Leaving),
            _ => Err(reader.malformed("kind of frame")),
        }
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::{ControlChange, ProposalId};

    use super::*;

    #[test]
    fn a_change_survives_a_round_trip_and_no_cut() {
        let change = ControlChange::RevokeKey { id: "k".into() };
        let frame = Frame::Control(Box::new(ControlEntry { proposal: ProposalId { run: 7, number: 9 }, change }));
        let bytes = Bytes::from(frame.encode());
        assert_eq!(Frame::decode(&bytes), Ok(frame));
        assert!((0..bytes.len()).all(|cut| Frame::decode(&bytes.slice(..cut)).is_err()));
        assert_eq!(Frame::decode(&Frame::Leaving.encode().into()), Ok(Frame::Leaving));
        assert!(Frame::decode(&Bytes::from_static(&[LEAVING, 0])).is_err());
        assert!(Frame::decode(&Bytes::from_static(&[9, 9])).is_err());
        assert!(Frame::decode(&vec![RAFT; FRAME_BYTES_MAX + 1].into()).is_err());
    }
}
