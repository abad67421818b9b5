//! Outputs of the groups of a node: actions to carry out, and news.

use bytes::Bytes;
use tribunal_codec::{EntryId, GroupState};
use tribunal_types::{GroupId, NodeId};

use crate::members::Members;
use crate::message::RaftMessage;

/// The durable part of a voter's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableUpTo {
    /// The group.
    pub group: GroupId,
    /// The current term, which is also that of the entry.
    pub term: u64,
    /// The entry.
    pub index: u64,
}

/// An action to carry out or a piece of news, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send a message. Everything that must be durable first already is.
    Send {
        /// The receiver.
        to: NodeId,
        /// The message.
        message: RaftMessage,
    },
    /// Report to a node how far this one's logs are durable. The report may be lost.
    Durable {
        /// The receiver.
        to: NodeId,
        /// The groups.
        upto: Vec<DurableUpTo>,
    },
    /// Append an entry to the group's log, replacing the entry at its index and all later ones.
    Append {
        /// The group.
        group: GroupId,
        /// The entry.
        id: EntryId,
        /// Its content, opaque.
        content: Bytes,
    },
    /// Write the group's state to the log.
    SetState {
        /// The group.
        group: GroupId,
        /// The state.
        state: GroupState,
    },
    /// Make everything returned before durable, then step [`crate::Input::Persisted`].
    Sync {
        /// Increases by one, starting from 1.
        number: u64,
    },
    /// An entry of a peer was received and is not committed yet.
    Appended {
        /// The group.
        group: GroupId,
        /// The entry.
        id: EntryId,
        /// The proposal.
        payload: Bytes,
    },
    /// An entry is committed, and durable here. Each entry once, in order.
    Committed {
        /// The group.
        group: GroupId,
        /// The entry.
        id: EntryId,
        /// The proposal.
        payload: Bytes,
    },
    /// The first entry of a term is committed: proposals of earlier terms that were not handed out are lost.
    TermBegun {
        /// The group.
        group: GroupId,
        /// The entry.
        id: EntryId,
        /// Whether this node leads the group in that term.
        leading: bool,
    },
    /// A change of members is committed. Returned for every such entry, even if it changed nothing.
    MembersChanged {
        /// The group.
        group: GroupId,
        /// The entry.
        id: EntryId,
        /// The members from now on.
        members: Members,
    },
    /// The group's leader or term changed.
    Role {
        /// The group.
        group: GroupId,
        /// The leader, if one is known.
        leader: Option<NodeId>,
        /// The term.
        term: u64,
    },
    /// A read may be served once everything up to an index is applied. The last entries up to it may not be committed
    /// yet, and are lost if the leader loses them.
    ReadState {
        /// The group.
        group: GroupId,
        /// The index.
        index: u64,
        /// The caller's context.
        context: u64,
    },
    /// A read gets no index because the leader or term changed. Retry.
    ReadLost {
        /// The group.
        group: GroupId,
        /// The caller's context.
        context: u64,
    },
    /// The entries that this node lacks are compacted. Fetch a state image that includes at least `at_least` from any
    /// live peer, make it durable, and step [`crate::Input::Install`] for all groups.
    NeedsImage {
        /// The group.
        group: GroupId,
        /// Its leader.
        leader: NodeId,
        /// The last entry compacted there.
        at_least: EntryId,
    },
    /// The group's log cannot be read. The group takes part in nothing any more.
    Failed {
        /// The group.
        group: GroupId,
        /// The reason.
        reason: String,
    },
}
