//! The effects of a replica.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use tribunal_core::control::Effect as ControlEffect;
use tribunal_types::{
    Batch, ControlEntry, ControlIndex, Epoch, EpochInput, EpochOutcome, GroupId, ItemPlaces, Lsn, PluginSlot, StoreId,
    TxnRequest,
};

use crate::answer::{Answer, ControlReply, Imported, KnownNow};
use crate::event::Waiters;
use crate::image::CapturedImage;
use crate::items::PendingItems;

/// An effect to carry out, in order. It refers to the state of the replica at the moment when
/// [`Replica::poll`](crate::Replica::poll) returns it.
pub enum Effect<W: Waiters> {
    /// Propose this batch as the next entry of its group's log: the own group's, or that of a group this node has taken
    /// over.
    Append(Arc<Batch>),
    /// Become the leader of a group although its leader may be alive: it makes no progress.
    TakeOver(GroupId),
    /// Propose this entry of the control log.
    AppendControl(ControlIndex, ControlEntry),
    /// An epoch is decided: publish it, answer its items, log its outcome. No answer may be sent before the epoch can
    /// be read.
    Decided(Box<DecidedEpoch<W>>),
    /// Answer an item that is not answered by an epoch; a transaction that is no longer needed is returned with it.
    Answer(W::Item, Answer, Option<Box<TxnRequest>>),
    /// Answer an import.
    Imported(W::Import, Imported),
    /// Report the status of an id.
    Known(W::Watch, KnownNow),
    /// An entry of the control log was applied, with this effect.
    ControlApplied(ControlEffect),
    /// Answer a change of configuration.
    ControlReply(W::Control, ControlReply),
    /// The slots have changed.
    SlotsChanged,
    /// A different plugin fills this slot from now on.
    SlotFilled(PluginSlot),
    /// The plugin in this slot has failed too often in a row: the plugin of this activation, not of a later one.
    SlotFailing(PluginSlot, ControlIndex),
    /// The stores or the last complete epoch have advanced.
    Progress,
    /// Drop epochs of the log.
    Truncate {
        /// Epochs below this one.
        below: Epoch,
        /// But only as far as these stores have applied them.
        applied: Vec<AppliedTo>,
        /// Whether this is the truncation that follows a start.
        at_start: bool,
    },
    /// Flush an embedded store.
    Flush(StoreId),
    /// The log no longer waits for this node's copy of an embedded store; the text states how much it held back and
    /// why.
    LeftOut(StoreId, String),
    /// This node's broken copy of an embedded store holds the log back, and no other member is known to have on disk
    /// the part that the log could drop, so the log is kept. The text is the same.
    OnlyInLog(StoreId, String),
    /// Store an image, then truncate the part of the log that is no longer needed.
    Image {
        /// The state.
        image: Box<CapturedImage>,
        /// The applied epochs of the stores that the log waits for.
        applied: Vec<AppliedTo>,
        /// Whether the node is stopping: then this image must be written even if another one is in flight.
        last: bool,
    },
    /// All work in flight is done, and nothing new will be taken.
    Stopped,
}

/// How far a store that the log waits for has applied it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppliedTo {
    /// The store.
    pub store: StoreId,
    /// The control entry that declared or attached it as it is now.
    pub generation: ControlIndex,
    /// The last epoch that it has applied.
    pub epoch: Epoch,
}

/// A decided epoch.
pub struct DecidedEpoch<W: Waiters> {
    /// The epoch's input.
    pub input: EpochInput,
    /// The epoch's outcome.
    pub outcome: EpochOutcome,
    /// First and last LSN by store, in ascending order of store.
    pub heads: Vec<(StoreId, Lsn, Lsn)>,
    /// The own group's batch in it, if this replica proposed it.
    pub own: Option<OwnBatch<W>>,
}

/// A decided batch with waiters.
pub struct OwnBatch<W: Waiters> {
    /// The waiters.
    pub items: PendingItems<W>,
    /// Positions of the answers.
    pub places: ItemPlaces,
    /// Time of sealing, by the monotonic clock.
    pub sealed_at: Duration,
    /// Time at which the replica took its entry, by the monotonic clock.
    pub durable_at: Duration,
}
