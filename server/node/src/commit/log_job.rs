//! What the log thread is asked to do.

use std::sync::Arc;

use bytes::Bytes;
use crossbeam_channel::Sender;
use tribunal_codec::{EntryId, GroupCursors, GroupState};
use tribunal_replica::{AppliedTo, CapturedImage};
use tribunal_types::{Batch, ControlEntry, ControlIndex, Epoch, GroupId, StoreId};

use crate::commit::epoch_cache::ResolvedEpoch;

/// Requests to the log thread.
pub enum Job {
    /// Append a sealed batch, sync, report.
    Append(Arc<Batch>),
    /// Append a sealed batch, sync, and report to the sequencer, which waits: nothing, or why durability is in doubt.
    AppendAwaited(Arc<Batch>, Sender<Result<(), String>>),
    /// Record an epoch's outcome; durable with the next batch. For an epoch of several groups, includes the entries
    /// that it was decided from: group and index.
    Outcome(Arc<ResolvedEpoch>, Vec<(GroupId, u64)>),
    /// Append the Raft groups' records; sync them together with the other waiting writes, and report.
    Groups(GroupWrites),
    /// Append a control entry, sync, report.
    Control(ControlIndex, ControlEntry),
    /// Store a state image beside the log, then drop epochs no longer needed.
    Image {
        /// The state.
        image: Box<CapturedImage>,
        /// How far the image has read the Raft groups of a member.
        groups: GroupCursors,
        /// Applied epochs of the stores that the log waits for.
        applied: Vec<AppliedTo>,
        /// The node is stopping: this image must be written even if another one is in progress.
        last: bool,
    },
    /// A state image that has read the Raft groups this far is durable.
    ImageStored(GroupCursors),
    /// Drop epochs, as far as retention allows.
    Truncate {
        /// Epochs below this one.
        below: Epoch,
        /// But only as far as these stores have applied.
        applied: Vec<AppliedTo>,
        /// Why now.
        occasion: Occasion,
    },
    /// Have an embedded store flush its rows.
    Flush(StoreId),
    /// The sequencer has written: the mark is due once the log is quiet.
    MarkIsDue,
    /// Finish and end.
    Stop,
}

/// Why the log is truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// The node has started. If the log is too large, and only a new state image would let it shrink, one is requested.
    Start,
    /// A state image was stored. Lagging embedded stores are to flush, and stores that exceed their quota are reported:
    /// once per image is enough.
    Image,
    /// A store no longer holds the log back, or the Raft groups were compacted.
    Stores,
}

/// The Raft groups' records of one round.
#[derive(Default)]
pub struct GroupWrites {
    /// Records, in order.
    pub records: Vec<GroupWrite>,
    /// Number of the sync that a waiter needs, if any.
    pub sync: Option<u64>,
}

impl GroupWrites {
    /// Returns whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.sync.is_none()
    }

    /// Returns whether the next epoch may be decided from unwritten copies.
    #[must_use]
    pub fn have_copies(&self) -> bool {
        self.records.iter().any(|record| matches!(record, GroupWrite::Copy(..)))
    }
}

/// One record of a Raft group.
pub enum GroupWrite {
    /// An entry.
    Entry(GroupId, EntryId, Bytes),
    /// An entry that a peer has sent.
    Copy(GroupId, EntryId, Bytes),
    /// The group's state.
    State(GroupId, GroupState),
}
