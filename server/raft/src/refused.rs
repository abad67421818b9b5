//! The reasons why an input changed nothing.

use tribunal_types::{GroupId, NodeId};

/// The reason why an input was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No such group.
    #[error("group {}.{} is not on this node", .0.node, .0.incarnation)]
    UnknownGroup(GroupId),
    /// The group stopped.
    #[error("the group stopped because its log cannot be read")]
    Stopped,
    /// The message names a sender other than its connection's peer, or a receiver other than this node.
    #[error("the message names node {0}, which is not the one at that end of the connection")]
    Forged(NodeId),
    /// The sender or the receiver is not a member of the group.
    #[error("node {0} is no member of the group")]
    NotAMember(NodeId),
    /// The node does not lead the group.
    #[error("node {0} does not lead the group")]
    NotLeader(NodeId),
    /// The node leads the group already.
    #[error("this node leads the group already")]
    AlreadyLeader,
    /// The node is not a voter.
    #[error("node {0} is no voter of the group")]
    NotAVoter(NodeId),
    /// No leader is known, or it is too new to answer reads.
    #[error("the group has no leader that can answer")]
    NoLeader,
    /// The leadership is being transferred.
    #[error("the leadership is being transferred")]
    Transferring,
    /// Too many bytes of proposals are not committed yet.
    #[error("too much is not committed yet")]
    TooMuchUncommitted,
    /// The proposal is longer than the limit.
    #[error("a proposal of {0} bytes is too long")]
    TooLong(usize),
    /// A change of members is not finished, or may not be.
    #[error("another change of members may not be finished")]
    MembersChanging,
    /// The requested members are invalid, or are already the group's members.
    #[error("these members: {0}")]
    BadMembers(&'static str),
    /// Earlier writes must become durable first.
    #[error("what was written before is not durable yet")]
    WritesPending,
    /// The message vouches for entries that are not in the log: a replica has lost entries that it acknowledged.
    #[error(
        "entry {index} is past the last one, {last}: this node has lost entries that it had acknowledged, as after the restore of a backup; remove it with `tribunal cluster remove`, and add a new one"
    )]
    PastLog {
        /// The entry.
        index: u64,
        /// The last entry.
        last: u64,
    },
    /// The message vouches for entries that this node lacks although it leads: this node, or a replica that voted for
    /// it, has lost entries that it acknowledged.
    #[error(
        "node {from} has agreed on entry {index}, which is past the last one here, {last}, although this node leads: this node, or one that voted for it, has lost entries that it had acknowledged, as after the restore of a backup"
    )]
    PastLeader {
        /// The node that has the entry.
        from: NodeId,
        /// The entry.
        index: u64,
        /// The last entry here.
        last: u64,
    },
    /// The message's term cannot have been reached by elections since this node's own term.
    #[error("term {term} is impossible: this node is in term {own}")]
    TermTooFar {
        /// Term of the message.
        term: u64,
        /// Term of this node.
        own: u64,
    },
    /// Too many reads wait.
    #[error("too many reads wait for their index")]
    TooManyReads,
    /// The entry to compact was not handed out yet.
    #[error("entry {0} was not handed out yet")]
    NotApplied(u64),
    /// The image ends before the last entry compacted here.
    #[error("the image ends with entry {0}, after which entries are compacted here")]
    Compacted(u64),
    /// No such number was returned.
    #[error("number {0} was not returned yet")]
    UnknownNumber(u64),
    /// The message no longer has any effect.
    #[error("the message is late")]
    Late,
}

impl Refused {
    /// Returns whether a message or a proposal was refused only because of its timing: it is retried if necessary.
    /// Nothing is wrong then.
    #[must_use]
    pub fn is_momentary(&self) -> bool {
        match self {
            Refused::NotLeader(_)
            | Refused::AlreadyLeader
            | Refused::NoLeader
            | Refused::Transferring
            | Refused::TooMuchUncommitted
            | Refused::MembersChanging
            | Refused::WritesPending
            | Refused::TooManyReads
            // The sender may learn of a new group first.
            | Refused::UnknownGroup(_)
            | Refused::Late => true,
            Refused::Stopped
            | Refused::Forged(_)
            | Refused::NotAMember(_)
            | Refused::NotAVoter(_)
            | Refused::TooLong(_)
            | Refused::BadMembers(_)
            | Refused::PastLog { .. }
            | Refused::PastLeader { .. }
            | Refused::TermTooFar { .. }
            | Refused::NotApplied(_)
            | Refused::Compacted(_)
            | Refused::UnknownNumber(_) => false,
        }
    }
}

/// The reason why a group cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadGroup {
    /// It exists already.
    #[error("group {}.{} is there already", .0.node, .0.incarnation)]
    Twice(GroupId),
    /// Its stored state is inconsistent.
    #[error("the state of group {}.{} does not fit its log: {reason}", .group.node, .group.incarnation)]
    Inconsistent {
        /// The group.
        group: GroupId,
        /// The inconsistency.
        reason: String,
    },
}
