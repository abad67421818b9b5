//! Why an input changed nothing.

use tribunal_types::{GroupId, NodeId};

/// Why an input was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// No such group.
    #[error("group {}.{} is not on this node", .0.node, .0.incarnation)]
    UnknownGroup(GroupId),
    /// The group stopped.
    #[error("the group stopped because its log cannot be read")]
    Stopped,
    /// The message names another sender than the connection it came by, or another receiver than this node.
    #[error("the message names node {0}, which is not the one at that end of the connection")]
    Forged(NodeId),
    /// The sender or the receiver is no member of the group.
    #[error("node {0} is no member of the group")]
    NotAMember(NodeId),
    /// The node does not lead the group.
    #[error("node {0} does not lead the group")]
    NotLeader(NodeId),
    /// The node leads the group already.
    #[error("this node leads the group already")]
    AlreadyLeader,
    /// The node is no voter.
    #[error("node {0} is no voter of the group")]
    NotAVoter(NodeId),
    /// No leader is known, or it is too new to answer reads.
    #[error("the group has no leader that can answer")]
    NoLeader,
    /// The leadership is being transferred.
    #[error("the leadership is being transferred")]
    Transferring,
    /// Too much is not committed yet.
    #[error("too much is not committed yet")]
    TooMuchUncommitted,
    /// The proposal is longer than the limit.
    #[error("a proposal of {0} bytes is too long")]
    TooLong(usize),
    /// A change of members is not finished, or it may not be.
    #[error("another change of members may not be finished")]
    MembersChanging,
    /// The members asked for are none, or the ones the group has.
    #[error("these members: {0}")]
    BadMembers(&'static str),
    /// What was written before must be durable first.
    #[error("what was written before is not durable yet")]
    WritesPending,
    /// The message vouches for what is not in the log: a replica has lost what it acknowledged.
    #[error(
        "entry {index} is past the last one, {last}: this node has lost entries that it had acknowledged, as after the restore of a backup; remove it with `tribunal cluster remove`, and add a new one"
    )]
    PastLog {
        /// The entry.
        index: u64,
        /// The last one.
        last: u64,
    },
    /// The message vouches for what this node lacks although it leads: it was elected by the vote of a replica that has lost what it
    /// acknowledged, or is one.
    #[error(
        "node {from} has agreed on entry {index}, which is past the last one here, {last}, although this node leads: this node, or one that voted for it, has lost entries that it had acknowledged, as after the restore of a backup"
    )]
    PastLeader {
        /// Who has it.
        from: NodeId,
        /// The entry.
        index: u64,
        /// The last one here.
        last: u64,
    },
    /// The message is of a term that no elections since this node's own can have reached.
    #[error("term {term} is impossible: this node is in term {own}")]
    TermTooFar {
        /// Of the message.
        term: u64,
        /// Of this node.
        own: u64,
    },
    /// Too many reads wait.
    #[error("too many reads wait for their index")]
    TooManyReads,
    /// What is to be compacted was not handed out yet.
    #[error("entry {0} was not handed out yet")]
    NotApplied(u64),
    /// The image includes less than what is compacted here.
    #[error("the image ends with entry {0}, after which entries are compacted here")]
    Compacted(u64),
    /// No such number was returned.
    #[error("number {0} was not returned yet")]
    UnknownNumber(u64),
    /// The message has nothing to say at this moment.
    #[error("the message is late")]
    Late,
}

impl Refused {
    /// Returns whether a message or a proposal was refused only because of when it came: it is sent again, if it has to be.
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
            // The sender may know of a new group first.
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

/// Why a group cannot be added.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadGroup {
    /// It is there already.
    #[error("group {}.{} is there already", .0.node, .0.incarnation)]
    Twice(GroupId),
    /// What is stored of it does not fit together.
    #[error("the state of group {}.{} does not fit its log: {reason}", .group.node, .group.incarnation)]
    Inconsistent {
        /// The group.
        group: GroupId,
        /// What does not fit.
        reason: String,
    },
}
