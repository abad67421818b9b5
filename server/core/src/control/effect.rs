//! The effect of a control log entry: the reply to its proposer, and the changes that the rest of the node has to
//! follow.

use alloc::string::String;
use alloc::vec::Vec;

use tribunal_types::{
    ApiKey, Bounds, Generation, GroupJoin, Lsn, NamespaceId, NodeId, PluginActivation, RevokedKey, StoreId,
};

use super::refusal::Refusal;

/// The result of an entry: the same on every node that applies it.
pub type Applied = Result<Effect, Refusal>;

/// The result of a reader change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReaderMoved {
    /// The consumer has the offset.
    Offset {
        /// Namespace of the consumer.
        namespace: NamespaceId,
        /// Its name.
        name: String,
        /// The store.
        store: StoreId,
    },
    /// There is no room for another offset; the value is the maximum.
    Full(usize),
    /// The consumer no longer has an offset in these stores; if the list is empty, it had none.
    Forgotten {
        /// Namespace of the consumer.
        namespace: NamespaceId,
        /// Its name.
        name: String,
        /// The stores.
        stores: Vec<StoreId>,
    },
    /// The store's receiver has another watermark.
    Delivered(StoreId),
    /// None: the delivery has ended since.
    Void,
}

/// The effect of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A store is declared: its push starts, replacing the previous one.
    StoreDeclared {
        /// The store.
        store: StoreId,
        /// Whether it did not exist before.
        created: bool,
    },
    /// The store was already declared exactly this way.
    StoreKnown(StoreId),
    /// The store is no longer pushed to.
    PushDetached(StoreId),
    /// The store's push starts again.
    PushAttached(StoreId),
    /// Another node pushes to the store from now on.
    PushAssigned(StoreId),
    /// The store's storage was found ahead of the log, or no longer is.
    PushForked(StoreId),
    /// A store's log has a receiver, or a different one: its delivery starts.
    WebhookRegistered(StoreId),
    /// A store's log no longer has a receiver.
    WebhookRemoved(StoreId),
    /// Another node delivers a store's log from now on.
    WebhookAssigned(StoreId),
    /// Offsets and watermarks were moved: the result of each move, in the order of the entry.
    ReadersMoved(Vec<ReaderMoved>),
    /// A record is skipped for a storage.
    RecordSkipped(StoreId, Lsn),
    /// These bounds are in force from the next epoch on.
    BoundsSet(Bounds),
    /// A slot has a new entry.
    PluginActivated {
        /// Its content.
        activation: PluginActivation,
        /// It decides from the next epoch on; otherwise it is pending until its epoch.
        holds: bool,
    },
    /// All members are to fetch, check and compile a component.
    ComponentAnnounced([u8; 32]),
    /// A member has reported the outcome for a component.
    ComponentReported([u8; 32]),
    /// No slot can return to this code.
    PluginForgotten([u8; 32]),
    /// A key is valid from now on.
    KeyCreated {
        /// The key, with the number of its tenant.
        key: ApiKey,
        /// Whether its tenant did not exist before.
        founded: bool,
    },
    /// The same key was created before.
    KeyKnown(ApiKey),
    /// A key is no longer valid.
    KeyRevoked {
        /// Its public part.
        id: String,
        /// A key revoked earlier that is forgotten now, with its entries.
        forgotten: Option<RevokedKey>,
    },
    /// A node has a number, and its group begins.
    NodeAdmitted(NodeId),
    /// A node has its data directory.
    NodeClaimed(NodeId),
    /// A node's release is known, and was not before.
    ReleaseAnnounced(NodeId),
    /// All epochs from the next one on are decided in this generation.
    GenerationSwitched(Generation),
    /// A group is a member from this epoch on.
    GroupJoined(GroupJoin),
    /// A node is being removed: its group is to close.
    NodeLeaves(NodeId),
    /// A node is drained from now on.
    NodeDrained(NodeId),
    /// A node is no longer drained.
    NodeResumed(NodeId),
    /// No group contains the node any more.
    NodeLeft(NodeId),
    /// This node is the only one left; all others have left.
    OthersLeft(NodeId),
    /// An entry is missing that may have changed anything.
    EntryLost,
    /// None: the same proposal was applied before, and its proposer was answered then.
    Repeated,
    /// None: its change is already in place, or its subject no longer exists.
    Unchanged,
}
