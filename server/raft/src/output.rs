//! What is to be done for the groups of a node, and what has become known.

use bytes::Bytes;
use tribunal_codec::{EntryId, GroupState};
use tribunal_types::{GroupId, NodeId};

use crate::durability::DurableUpTo;
use crate::members::Members;
use crate::message::RaftMessage;

/// What is to be done, or has become known, in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// Send a message. All that must be durable before is.
    Send {
        /// The receiver.
        to: NodeId,
        /// The message.
        message: RaftMessage,
    },
    /// Tell a node how far this one's logs are durable. It may be lost.
    Durable {
        /// The receiver.
        to: NodeId,
        /// The groups.
        upto: Vec<DurableUpTo>,
    },
    /// Append an entry to the group's log, in the place of the one of its index and all after it.
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
    /// Make everything durable that was returned before, then step [`crate::Input::Persisted`].
    Sync {
        /// Rises by one from 1 on.
        number: u64,
    },
    /// An entry of a peer was received and is not committed yet.
    Appended {
        /// The group.
        group: GroupId,
        /// The entry.
        id: EntryId,
        /// What was proposed.
        payload: Bytes,
    },
    /// An entry is committed, and durable here. Each one once, in order.
    Committed {
        /// The group.
        group: GroupId,
        /// The entry.
        id: EntryId,
        /// What was proposed.
        payload: Bytes,
    },
    /// The first entry of a term is committed: what was proposed in earlier terms and was not handed out is lost.
    TermBegun {
        /// The group.
        group: GroupId,
        /// The entry.
        id: EntryId,
        /// Whether this node leads the group in that term.
        leading: bool,
    },
    /// A change of members is committed. Comes for every such entry, also if it changed nothing.
    MembersChanged {
        /// The group.
        group: GroupId,
        /// The entry.
        id: EntryId,
        /// The members from now on.
        members: Members,
    },
    /// The group's leader or term is another one.
    Role {
        /// The group.
        group: GroupId,
        /// The leader, if one is known.
        leader: Option<NodeId>,
        /// The term.
        term: u64,
    },
    /// A read may be served when everything up to an index is applied. The last entries up to it may not be committed yet, and are lost
    /// if the leader loses them.
    ReadState {
        /// The group.
        group: GroupId,
        /// The index.
        index: u64,
        /// As it was given.
        context: u64,
    },
    /// A read gets no index: the leader or term changed. Ask again.
    ReadLost {
        /// The group.
        group: GroupId,
        /// As it was given.
        context: u64,
    },
    /// The entries that this node misses are compacted. Get a state image that includes at least `at_least` from any
    /// live peer, make it durable, and step [`crate::Input::Install`] for all groups.
    NeedsImage {
        /// The group.
        group: GroupId,
        /// Its leader.
        leader: NodeId,
        /// The last entry that is compacted there.
        at_least: EntryId,
    },
    /// The group's log cannot be read. The group takes part in nothing any more.
    Failed {
        /// The group.
        group: GroupId,
        /// Why.
        reason: String,
    },
}
