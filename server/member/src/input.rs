//! What happens to a member.

use tribunal_replica::{Event, Waiters};
use tribunal_types::{GroupId, NodeId};

use crate::frame::Frame;

/// What happens to a member.
pub enum Input<W: Waiters> {
    /// For its replica: what clients, pushes and timers bring. Entries and terms come from the groups, never from here.
    Replica(Event<W>),
    /// From another member. Its connection has proved who it is.
    Frame {
        /// The sender.
        from: NodeId,
        /// What it sent.
        frame: Frame,
    },
    /// The time between two ticks has passed.
    Tick,
    /// All outputs before [`Output::Sync`](crate::Output::Sync) with this number are durable.
    Persisted(u64),
    /// Messages to this node may be lost.
    Unreachable(NodeId),
    /// The state of a group up to this index is in a durable image of this node: its log may be truncated.
    Compact {
        /// The group.
        group: GroupId,
        /// Index of the last entry that the image includes.
        upto: u64,
    },
    /// Answer when everything that was acknowledged anywhere before now is resolved here.
    Fresh(u64),
    /// The node is about to stop: from now on it gives the leadership of every group away that another node can take,
    /// and the others offer it none. The caller waits until [`Member::leads_nothing`](crate::Member::leads_nothing),
    /// but not for long, then steps [`Event::Stop`], and [`Event::StopNow`] if that takes too long: without a majority
    /// it would never end.
    HandOver,
}
