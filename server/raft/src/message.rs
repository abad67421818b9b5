//! Messages between the replicas of a group, and their encoding.
//!
//! The encoding is our own: protobuf 2.28 recurses without limit over unknown fields, and raft-rs panics on several
//! inputs that no replica sends. Decoding never panics and checks everything that can be checked without the group's
//! state; `admission.rs` checks the rest.

use std::fmt;

use bytes::Bytes;
use raft::CAMPAIGN_TRANSFER;
use raft::eraftpb::{Entry, Message, MessageType};
use tribunal_codec::{EntryId, Malformed, Reader, put_bytes, put_varint};
use tribunal_types::{GroupId, Incarnation, NodeId};

use crate::entry_content;
use crate::settings::{MESSAGE_BYTES_MAX, NODE_MAX, NUMBER_MAX, PAYLOAD_BYTES_MAX};

/// Version of the encoding.
const VERSION: u8 = 1;
/// Bytes of the context of a heartbeat or a read.
pub(crate) const CONTEXT_BYTES_MAX: usize = 32;
/// Message types in the order of their bytes. Local messages, forwarded proposals and forwarded transfers have none.
pub(crate) const TYPES: [MessageType; 12] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgTimeoutNow,
    MessageType::MsgReadIndex,
    MessageType::MsgReadIndexResp,
];
const REJECT: u8 = 1;
const FORCED: u8 = 2;

/// A message from one replica of a group to another.
#[derive(Clone, PartialEq)]
pub struct RaftMessage {
    group: GroupId,
    pub(crate) message: Message,
}

impl RaftMessage {
    pub(crate) fn new(group: GroupId, message: Message) -> Self {
        Self { group, message }
    }

    /// Returns the group.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Returns the sender that the message names.
    #[must_use]
    pub fn from(&self) -> NodeId {
        NodeId(self.message.from as u16)
    }

    /// Returns the receiver that the message names.
    #[must_use]
    pub fn to(&self) -> NodeId {
        NodeId(self.message.to as u16)
    }

    /// Returns whether it is a heartbeat or the response to one: these have their own connection, so that entries do
    /// not delay them.
    #[must_use]
    pub fn is_heartbeat(&self) -> bool {
        matches!(self.message.get_msg_type(), MessageType::MsgHeartbeat | MessageType::MsgHeartbeatResponse)
    }

    /// Returns the approximate encoded size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.message.entries.iter().map(|entry| entry.data.len() + 16).sum::<usize>() + 64
    }

    /// Encodes the message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let message = &self.message;
        let mut out = Vec::with_capacity(self.bytes());
        put_varint(u64::from(self.group.node.0), &mut out);
        put_varint(u64::from(self.group.incarnation.0), &mut out);
        let kind = TYPES.iter().position(|kind| *kind == message.get_msg_type());
        let forced = message.context == CAMPAIGN_TRANSFER;
        let flags = (u8::from(message.reject) * REJECT) | (u8::from(forced) * FORCED);
        out.extend_from_slice(&[VERSION, kind.unwrap_or(TYPES.len()) as u8, flags]);
        let is_snapshot = message.get_msg_type() == MessageType::MsgSnapshot;
        let metadata = message.get_snapshot().get_metadata();
        let (index, log_term) =
            if is_snapshot { (metadata.index, metadata.term) } else { (message.index, message.log_term) };
        for number in [message.from, message.to, message.term, index, log_term] {
            put_varint(number, &mut out);
        }
        for number in [message.commit, message.commit_term, message.reject_hint] {
            put_varint(number, &mut out);
        }
        let is_read = is_read(message.get_msg_type());
        let context = match message.entries.first() {
            Some(entry) if is_read => &entry.data[..],
            _ if forced => &[],
            _ => &message.context[..],
        };
        put_bytes(context, &mut out);
        let entries: &[Entry] = if is_read { &[] } else { &message.entries };
        put_varint(entries.len() as u64, &mut out);
        for entry in entries {
            put_varint(entry.term, &mut out);
            put_bytes(&entry_content::content(entry), &mut out);
        }
        out
    }

    /// Decodes a message. Its entries share the memory of `bytes`.
    ///
    /// # Errors
    /// If the bytes are not a message, or exceed [`MESSAGE_BYTES_MAX`].
    pub fn decode(bytes: &Bytes) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(reader.malformed("message that is too long"));
        }
        let group =
            GroupId { node: NodeId(reader.number("node")?), incarnation: Incarnation(reader.number("incarnation")?) };
        if reader.u8("version of a message")? != VERSION {
            return Err(reader.malformed("version of a message"));
        }
        let kind = TYPES.get(usize::from(reader.u8("kind of message")?)).copied();
        let kind = kind.ok_or_else(|| reader.malformed("kind of message"))?;
        let flags = reader.u8("flags of a message")?;
        let mut message = Message::default();
        message.set_msg_type(kind);
        message.reject = flags & REJECT != 0;
        message.from = node(&mut reader)?;
        message.to = node(&mut reader)?;
        message.term = number(&mut reader, "term")?;
        let index = number(&mut reader, "index")?;
        let log_term = number(&mut reader, "term of the log")?;
        message.commit = number(&mut reader, "commit index")?;
        message.commit_term = number(&mut reader, "term of the commit index")?;
        message.reject_hint = number(&mut reader, "hint of a rejection")?;
        let context = reader.bytes("context")?;
        if context.len() > CONTEXT_BYTES_MAX || flags & !(REJECT | FORCED) != 0 {
            return Err(reader.malformed("context"));
        }
        message.context = if flags & FORCED == 0 { context.to_vec().into() } else { CAMPAIGN_TRANSFER.into() };
        if kind == MessageType::MsgSnapshot {
            let metadata = message.mut_snapshot().mut_metadata();
            (metadata.index, metadata.term) = (index, log_term);
        } else {
            (message.index, message.log_term) = (index, log_term);
        }
        let mut entries = take_entries(EntryId { term: log_term, index }, &mut reader, bytes)?;
        reader.finish("end of a message")?;
        if is_read(kind) {
            if !entries.is_empty() {
                return Err(reader.malformed("entries in a message that has none"));
            }
            entries.push(Entry { data: context.to_vec().into(), ..Entry::default() });
            message.context = Bytes::new();
        }
        check(&message, entries.last().map(|last| last.term), flags & FORCED != 0)
            .map_err(|what| reader.malformed(what))?;
        message.set_entries(entries.into());
        Ok(Self { group, message })
    }
}

fn is_read(kind: MessageType) -> bool {
    matches!(kind, MessageType::MsgReadIndex | MessageType::MsgReadIndexResp)
}

fn number(reader: &mut Reader<'_>, what: &'static str) -> Result<u64, Malformed> {
    let number = reader.varint(what)?;
    if number > NUMBER_MAX { Err(reader.malformed(what)) } else { Ok(number) }
}

fn node(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let node: u16 = reader.number("replica")?;
    if node == 0 || node > NODE_MAX { Err(reader.malformed("replica")) } else { Ok(u64::from(node)) }
}

/// Reads the entries after `before`. Their indices are consecutive, and their terms do not decrease.
fn take_entries(mut before: EntryId, reader: &mut Reader<'_>, bytes: &Bytes) -> Result<Vec<Entry>, Malformed> {
    let mut entries = Vec::new();
    for _ in 0..reader.count(2, "entries")? {
        let term = number(reader, "term of an entry")?;
        if term == 0 || term < before.term {
            return Err(reader.malformed("term of an entry"));
        }
        let content = reader.bytes("entry")?;
        if content.len() > PAYLOAD_BYTES_MAX + 1 {
            return Err(reader.malformed("entry that is too long"));
        }
        before = EntryId { term, index: before.index + 1 };
        let end = reader.position();
        entries.push(entry_content::entry(before, bytes.slice(end - content.len()..end))?);
    }
    Ok(entries)
}

/// Rejects messages that no replica sends.
fn check(message: &Message, last_term: Option<u64>, forced: bool) -> Result<(), &'static str> {
    let kind = message.get_msg_type();
    if (message.term == 0) != (kind == MessageType::MsgReadIndex) {
        return Err("term of a message");
    }
    if last_term.is_some_and(|last| last > message.term) && !is_read(kind) {
        return Err("entry of a later term than its message");
    }
    if last_term.is_some() && kind != MessageType::MsgAppend && !is_read(kind) {
        return Err("entries in a message that has none");
    }
    if forced && kind != MessageType::MsgRequestVote {
        return Err("forced message that is no request for a vote");
    }
    if message.log_term > message.term && !is_read(kind) {
        return Err("term of the log above that of the message");
    }
    match kind {
        // raft-rs takes a missing entry's term for 0: this message would leave a gap.
        MessageType::MsgAppend if (message.index == 0) != (message.log_term == 0) => Err("term of the entry before"),
        MessageType::MsgSnapshot => {
            let metadata = message.get_snapshot().get_metadata();
            let wrong = metadata.index == 0 || metadata.term == 0 || metadata.term > message.term;
            if wrong { Err("entry of a snapshot") } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

impl fmt::Debug for RaftMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Message { msg_type, from, to, term, log_term, index, commit, reject, .. } = &self.message;
        write!(f, "{msg_type:?} {from}->{to} of group {}.{}", self.group.node, self.group.incarnation)?;
        write!(f, ": term {term}, entry {index} of term {log_term}, commit {commit}, {}", self.message.entries.len())?;
        write!(f, " entries{}", if *reject { ", rejected" } else { "" })
    }
}
