//! What a member wants done.

use bytes::Bytes;
use tribunal_codec::{EntryId, GroupCursors, GroupState};
use tribunal_replica::{CapturedImage, DecidedEpoch, Effect, Waiters};
use tribunal_types::{Epoch, GroupId, NodeId, StoreId};

use crate::frame::Frame;

/// What a member wants done, in this order.
pub enum Output<W: Waiters> {
    /// Of its replica; never a proposal or a takeover, which are the member's own affair, nor a decided epoch or an image.
    Effect(Effect<W>),
    /// An epoch is decided: what [`Effect::Decided`] asks for. After a start, epochs come again whose outcome is in the log.
    Decided {
        /// The epoch.
        decided: Box<DecidedEpoch<W>>,
        /// Group and index of the entry that each of its batches is, in their order.
        entries: Vec<(GroupId, u64)>,
    },
    /// Store an image: what [`Effect::Image`] asks for.
    Image {
        /// The state.
        image: Box<CapturedImage>,
        /// How far it has read the groups.
        groups: GroupCursors,
        /// What the stores that the log waits for have applied.
        applied: Vec<(StoreId, Epoch)>,
        /// The node stops.
        last: bool,
    },
    /// Write an entry of a group into the log.
    Append {
        /// The group.
        group: GroupId,
        /// Its name.
        id: EntryId,
        /// Its content.
        content: Bytes,
    },
    /// Write an entry that a peer has handed out beside the group's log, before the next outcome: epochs may be decided from
    /// it. Nothing waits until it is durable.
    Copy {
        /// The group.
        group: GroupId,
        /// Its name.
        id: EntryId,
        /// Its content, as in the group's log.
        content: Bytes,
    },
    /// Write a group's state into the log.
    SetState {
        /// The group.
        group: GroupId,
        /// The state.
        state: GroupState,
    },
    /// Make everything before it durable, then step [`Input::Persisted`](crate::Input::Persisted).
    Sync {
        /// Ascending.
        number: u64,
    },
    /// Send a frame. It may be lost.
    Send {
        /// To this node.
        to: NodeId,
        /// The frame.
        frame: Frame,
    },
    /// Answer a fresh read.
    Fresh {
        /// As it was given.
        read: u64,
        /// The last complete epoch: it includes all that was acknowledged before the read began. `None` if that cannot
        /// be found out, because no majority answers or too many reads wait.
        epoch: Option<Epoch>,
    },
    /// The node has been away for too long: entries that it needs are no longer there. It needs a state image that
    /// includes the group at least up to this entry.
    NeedsImage {
        /// The group.
        group: GroupId,
        /// The node that leads it.
        leader: NodeId,
        /// The last entry that is compacted there.
        at_least: EntryId,
    },
    /// The member has decided otherwise than the others, or nobody can tell who has not: it must not go on.
    Diverged {
        /// In words, with what to do.
        reason: String,
    },
    /// This node was removed from the cluster: no group has it any more, or needs its vote. It is to be stopped, and never to
    /// be started again.
    Removed,
    /// An entry of the log, or what a majority agreed on, cannot be read: the member must not go on.
    Failed {
        /// The group.
        group: GroupId,
        /// Why.
        reason: String,
    },
}
