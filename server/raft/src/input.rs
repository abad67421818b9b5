//! Inputs of the groups of a node.

use tribunal_codec::{EntryId, GroupState};
use tribunal_types::{GroupId, NodeId};

use crate::members::Members;
use crate::message::RaftMessage;
use crate::output::DurableUpTo;

/// A position in a group's log, with the members as of it: a group's part of a state image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupPoint {
    /// The last entry included; the default before the first entry.
    pub id: EntryId,
    /// The members.
    pub members: Members,
}

/// The stored state of a group when a node starts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredGroup {
    /// The group.
    pub group: GroupId,
    /// Its state in the log; the default for a new group.
    pub state: GroupState,
    /// The point that the state machine durably includes; with the first members if it includes nothing.
    pub applied: GroupPoint,
}

/// An input. Proposals are methods instead, because they return a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Input {
    /// A message from a peer. The connection has authenticated it.
    Message {
        /// The peer.
        from: NodeId,
        /// The message.
        message: RaftMessage,
    },
    /// A peer's report of how far its logs are durable. The connection has authenticated it.
    Durable {
        /// The peer.
        from: NodeId,
        /// The groups.
        upto: Vec<DurableUpTo>,
    },
    /// A tick of the clock, for all groups.
    Tick,
    /// Everything returned up to and including the [`crate::Output::Sync`] with this number is durable.
    Persisted(u64),
    /// Campaign although the leader may still send heartbeats.
    TakeOver(GroupId),
    /// Campaign, if the other members know of no leader.
    Campaign(GroupId),
    /// Transfer the leadership to a voter.
    TransferLeader {
        /// The group.
        group: GroupId,
        /// The voter.
        to: NodeId,
    },
    /// Request the index up to which a read must have applied the group's log. The answer may be lost, and so may the
    /// entries up to the index when the leader or term changes: then retry.
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
        /// Index of the last compacted entry.
        upto: u64,
    },
    /// A durable state image replaced the state machine. Entries after the point are handed out, again if they were
    /// before; entries included in the image are not.
    Install {
        /// The group.
        group: GroupId,
        /// The group's point in the image.
        point: GroupPoint,
    },
}
