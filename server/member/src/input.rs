//! Inputs of a member.

use tribunal_replica::{Event, Waiters};
use tribunal_types::{GroupId, NodeId};

use crate::frame::Frame;

/// An event for a member.
pub enum Input<W: Waiters> {
    /// For its replica: events of clients, pushes and timers. Entries and terms come from the groups, never from here.
    Replica(Event<W>),
    /// A frame from another member. Its connection has authenticated the sender.
    Frame {
        /// The sender.
        from: NodeId,
        /// The frame.
        frame: Frame,
    },
    /// One tick interval has passed.
    Tick,
    /// All outputs before [`Output::Sync`](crate::Output::Sync) with this number are durable.
    Persisted(u64),
    /// Messages to this node may be lost.
    Unreachable(NodeId),
    /// The state of a group up to this index is in a durable image on this node: its log may be truncated.
    Compact {
        /// The group.
        group: GroupId,
        /// Index of the last entry that the image includes.
        upto: u64,
    },
    /// Answer once everything that was acknowledged anywhere before now is resolved here.
    Fresh(u64),
    /// The node is about to stop: from now on it gives away the leadership of every group that another node can take,
    /// and the others offer it none. The caller waits until [`Member::leads_nothing`](crate::Member::leads_nothing),
    /// for a bounded time, because without a majority that never happens; then it steps [`Event::Stop`], and
    /// [`Event::StopNow`] if that takes too long.
    HandOver,
}
