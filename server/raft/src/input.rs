//! What happens to the groups of a node.

use tribunal_codec::{EntryId, GroupState};
use tribunal_types::{GroupId, NodeId};

use crate::durability::DurableUpTo;
use crate::members::Members;
use crate::message::RaftMessage;

/// A position in a group's log, with the members as of it: what a state image knows of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupPoint {
    /// The last entry that is included; the default before the first.
    pub id: EntryId,
    /// The members.
    pub members: Members,
}

/// A group as a node finds it at its start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredGroup {
    /// The group.
    pub group: GroupId,
    /// Its state in the log; the default of a new group.
    pub state: GroupState,
    /// What the state machine durably includes; with the first members for one that includes nothing.
    pub applied: GroupPoint,
}

/// What happened. Proposals are methods, because they return something.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A peer sent a message. The connection has authenticated it.
    Message {
        /// The peer.
        from: NodeId,
        /// The message.
        message: RaftMessage,
    },
    /// A peer tells how far its logs are durable. The connection has authenticated it.
    Durable {
        /// The peer.
        from: NodeId,
        /// The groups.
        upto: Vec<DurableUpTo>,
    },
    /// A tick of the clock, for all groups.
    Tick,
    /// All that was returned before [`crate::Output::Sync`] with this number, and that one itself, is durable.
    Persisted(u64),
    /// Stand for election although the leader may still send heartbeats.
    TakeOver(GroupId),
    /// Stand for election, if no leader is known to the others.
    Campaign(GroupId),
    /// Give the leadership to a voter.
    TransferLeader {
        /// The group.
        group: GroupId,
        /// The voter.
        to: NodeId,
    },
    /// Ask for the index up to which a read must have applied the group's log. The answer may be lost, and so may the entries up to
    /// the index when the leader or term changes: ask again then.
    ReadIndex {
        /// The group.
        group: GroupId,
        /// Returned with the answer.
        context: u64,
    },
    /// Messages to a node may have been lost.
    Unreachable(NodeId),
    /// Entries up to this one are no longer needed: the state machine includes them durably, and they were handed out.
    Compact {
        /// The group.
        group: GroupId,
        /// Index of the last of them.
        upto: u64,
    },
    /// A durable state image took the place of the state machine. What comes after the point is handed out, again if it
    /// was before; what the image includes is not.
    Install {
        /// The group.
        group: GroupId,
        /// What the image includes of it.
        point: GroupPoint,
    },
}
