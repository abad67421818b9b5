//! What a replica wants done.

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

/// What a replica wants done, in this order. What it refers to is the state of the replica at the moment when
/// [`Replica::poll`](crate::Replica::poll) returns it.
pub enum Effect<W: Waiters> {
    /// Propose this batch as the next entry of its group's log: the own group's, or that of a group that this node has taken
    /// over.
    Append(Arc<Batch>),
    /// Become the leader of a group, although its leader may be alive: it makes no progress.
    TakeOver(GroupId),
    /// Propose this entry of the control log.
    AppendControl(ControlIndex, ControlEntry),
    /// An epoch is decided: publish it, answer its items, put its outcome into the log. It is answered to nobody before it
    /// can be read.
    Decided(Box<DecidedEpoch<W>>),
    /// Answer an item without an epoch of its own; a transaction that is not needed any more goes back with the answer.
    Answer(W::Item, Answer, Option<Box<TxnRequest>>),
    /// Answer an import.
    Imported(W::Import, Imported),
    /// Tell what is known of an id.
    Known(W::Watch, KnownNow),
    /// An entry of the control log was applied and did this.
    ControlApplied(ControlEffect),
    /// Answer a change of configuration.
    ControlReply(W::Control, ControlReply),
    /// The slots have changed.
    SlotsChanged,
    /// Another plugin fills this slot from now on.
    SlotFilled(PluginSlot),
    /// The plugin in this slot has failed too often in a row: the one of this activation, not of a later one.
    SlotFailing(PluginSlot, ControlIndex),
    /// The stores or the last complete epoch have moved.
    Progress,
    /// Drop epochs of the log.
    Truncate {
        /// Epochs below this one.
        below: Epoch,
        /// But only as far as these stores have applied them.
        applied: Vec<(StoreId, Epoch)>,
    },
    /// Have an embedded store flush.
    Flush(StoreId),
    /// The log no longer waits for this node's copy of an embedded store; in words, what it held back and why.
    LeftOut(StoreId, String),
    /// An embedded store's copy that is broken here holds the log back, and no other member is known to have on its disk what the log
    /// could drop: the log is kept; the same words.
    OnlyInLog(StoreId, String),
    /// Store an image, then drop what the log no longer needs.
    Image {
        /// The state.
        image: Box<CapturedImage>,
        /// What the stores that the log waits for have applied.
        applied: Vec<(StoreId, Epoch)>,
        /// The node stops: this one must be written even if another is under way.
        last: bool,
    },
    /// Everything that was under way is done, and nothing new will be taken.
    Stopped,
}

/// A decided epoch.
pub struct DecidedEpoch<W: Waiters> {
    /// What went in.
    pub input: EpochInput,
    /// What came out.
    pub outcome: EpochOutcome,
    /// First and last LSN by store, ascending store.
    pub heads: Vec<(StoreId, Lsn, Lsn)>,
    /// The own group's batch in it, if this replica proposed it.
    pub own: Option<OwnBatch<W>>,
}

/// A decided batch that somebody waits for.
pub struct OwnBatch<W: Waiters> {
    /// Who waits.
    pub items: PendingItems<W>,
    /// Where the answers are.
    pub places: ItemPlaces,
    /// When it was sealed, by the monotonic clock.
    pub sealed_at: Duration,
    /// When it was durable, by the monotonic clock.
    pub durable_at: Duration,
}
