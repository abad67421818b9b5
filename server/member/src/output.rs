//! Outputs of a member.

use bytes::Bytes;
use tribunal_codec::{EntryId, GroupCursors, GroupState};
use tribunal_replica::{AppliedTo, CapturedImage, DecidedEpoch, Effect, Waiters};
use tribunal_types::{Epoch, GroupId, NodeId};

use crate::frame::Frame;

/// An action for the caller to perform, in this order.
pub enum Output<W: Waiters> {
    /// An effect of its replica; never a proposal or a takeover, which the member handles itself, nor a decided epoch
    /// or an image.
    Effect(Effect<W>),
    /// An epoch is decided: see [`Effect::Decided`]. After a start, epochs with an outcome in the log are repeated.
    Decided {
        /// The epoch.
        decided: Box<DecidedEpoch<W>>,
        /// Group and index of the entry of each of its batches, in batch order.
        entries: Vec<(GroupId, u64)>,
    },
    /// Store an image: see [`Effect::Image`].
    Image {
        /// The state.
        image: Box<CapturedImage>,
        /// The groups' cursors in it.
        groups: GroupCursors,
        /// The position applied by each store that the log waits for.
        applied: Vec<AppliedTo>,
        /// Whether this is the last image, because the node stops.
        last: bool,
    },
    /// Append an entry to a group's log.
    Append {
        /// The group.
        group: GroupId,
        /// Its term and index.
        id: EntryId,
        /// Its content.
        content: Bytes,
    },
    /// Write an entry that a peer has handed out next to the group's log, before the next outcome: epochs may be
    /// decided from it. Nothing waits for its durability.
    Copy {
        /// The group.
        group: GroupId,
        /// Its term and index.
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
    /// Make all preceding outputs durable, then step [`Input::Persisted`](crate::Input::Persisted).
    Sync {
        /// Number of the sync, ascending.
        number: u64,
    },
    /// Send a frame. It may be lost.
    Send {
        /// The receiver.
        to: NodeId,
        /// The frame.
        frame: Frame,
    },
    /// Answer a fresh read.
    Fresh {
        /// The number that the read was given.
        read: u64,
        /// The last complete epoch: it includes everything that was acknowledged before the read began. `None` if it
        /// cannot be determined, because no majority answers or too many reads wait.
        epoch: Option<Epoch>,
    },
    /// The node was away for too long: entries that it needs are compacted. It needs a state image that includes the
    /// group at least up to `at_least`.
    NeedsImage {
        /// The group.
        group: GroupId,
        /// The group's leader.
        leader: NodeId,
        /// The last entry that is compacted there.
        at_least: EntryId,
    },
    /// The member has decided differently from the others, or it is unknown which members are right: it must not
    /// continue.
    Diverged {
        /// The reason, as text with instructions.
        reason: String,
    },
    /// This node was removed from the cluster: no group has it as a member any more, or needs its vote. It must be
    /// stopped, and never started again.
    Removed,
    /// An entry of the log, or a committed entry, cannot be read: the member must not continue.
    Failed {
        /// The group.
        group: GroupId,
        /// The reason.
        reason: String,
    },
}
