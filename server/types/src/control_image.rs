//! The accumulated state of the control log, as plain data: the part of a state image that holds it.
//!
//! Every list is bounded by the limit of its elements.

use alloc::string::String;
use alloc::vec::Vec;

use crate::access::ApiKey;
use crate::control::{
    AnnouncedComponent, Bounds, Detachment, GroupJoin, PluginActivation, PluginSlot, ProposalId, Skip,
};
use crate::ids::{ControlIndex, Epoch, Lsn, NamespaceId, NodeId};
use crate::reader::{ConsumerOffset, HeldWebhook};
use crate::release::{Generation, Release};
use crate::store::{Pusher, StoreSpec};

/// The state after control entry `index`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlImage {
    /// Last entry included in the state.
    pub index: ControlIndex,
    /// Bounds, if any were set.
    pub bounds: Option<Bounds>,
    /// Stores, ascending id.
    pub stores: Vec<DeclaredStore>,
    /// Tenants other than the initial one, ascending name.
    pub tenants: Vec<(String, NamespaceId)>,
    /// Keys that are not revoked, ascending id.
    pub keys: Vec<HeldKey>,
    /// The most recently revoked keys, oldest first.
    pub revoked: Vec<RevokedKey>,
    /// Slots, ascending.
    pub slots: Vec<SlotImage>,
    /// Nodes that were ever members or admitted, ascending id.
    pub nodes: Vec<ClusterNode>,
    /// The last proposal of each recent run, ascending run.
    pub proposers: Vec<LastProposal>,
    /// Components that were uploaded to a cluster, ascending digest.
    pub components: Vec<AnnouncedComponent>,
    /// Generation that decides epochs.
    pub generation: Generation,
    /// Announced releases, ascending node.
    pub releases: Vec<(NodeId, Release)>,
    /// Offsets of a cluster's consumers, by namespace, name and store.
    pub offsets: Vec<ConsumerOffset>,
    /// Receivers registered in a cluster, ascending store.
    pub webhooks: Vec<HeldWebhook>,
}

/// A node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its number.
    pub id: NodeId,
    /// Its name; empty for an initial node of the cluster.
    pub name: String,
    /// Address at which the other nodes reach it, opaque; empty for an initial node.
    pub address: String,
    /// Its data directory, once it has started; `None` for an initial node.
    pub directory: Option<u64>,
    /// The first voters of its group; empty for an initial node.
    pub first_voters: Vec<NodeId>,
    /// Its group, once joined.
    pub joined: Option<GroupJoin>,
    /// Progress of its removal.
    pub stage: NodeStage,
    /// Whether it is drained.
    pub drained: bool,
}

/// Progress of a node's removal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeStage {
    /// The node stays.
    #[default]
    Present,
    /// The node is being removed: its group may not have closed yet, and groups may still include it.
    Leaving,
    /// No group includes the node any more.
    Left,
}

/// The last applied proposal of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastProposal {
    /// The proposal.
    pub proposal: ProposalId,
    /// Its entry.
    pub index: ControlIndex,
}

/// One store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclaredStore {
    /// Its declaration.
    pub spec: StoreSpec,
    /// The control entry of the declaration alone: skips before it were of another storage.
    pub declared: ControlIndex,
    /// The control entry that last declared or attached it. Acknowledgements from before it are void.
    pub generation: ControlIndex,
    /// Why the log does not wait for it, if detached.
    pub detached: Option<Detachment>,
    /// The member of a cluster that pushes to its storage; `None` until one is named, and on a node that runs alone.
    pub pusher: Option<Pusher>,
    /// End of the log when the present storage was found ahead of it: until the storage returns to this position, its
    /// rows are of another history.
    pub fork: Option<Lsn>,
    /// Records that its storages never received, with the control entries that skip them, oldest first.
    pub skips: Vec<(ControlIndex, Skip)>,
}

impl DeclaredStore {
    /// Returns the name of the present push: the latest control entry that declared or attached the store or named the
    /// node that pushes. Reports of an earlier push are void.
    #[must_use]
    pub fn push(&self) -> ControlIndex {
        self.pusher.map_or(self.generation, |pusher| pusher.since.max(self.generation))
    }

    /// Returns whether its rows are in a storage outside the service.
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.spec.adaptor.is_some() && !self.spec.is_embedded()
    }

    /// Returns the records that are withheld from the present storage.
    pub fn skipped(&self) -> impl Iterator<Item = Lsn> + '_ {
        self.skips.iter().filter(|(index, _)| *index > self.declared).map(|(_, skip)| skip.lsn)
    }
}

/// A key that is not revoked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeldKey {
    /// The key.
    pub key: ApiKey,
    /// The entry that created it.
    pub created: ControlIndex,
    /// Whether that entry created its tenant, too.
    pub founded: bool,
}

/// A revoked key: enough to recognise its use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RevokedKey {
    /// Its public part.
    pub id: String,
    /// Its owner's name for it.
    pub name: String,
    /// SHA-256 of its secret part.
    pub secret_sha256: [u8; 32],
    /// The entry that created it.
    pub created: ControlIndex,
    /// The entry that revoked it.
    pub revoked: ControlIndex,
    /// Whether the entry that created it created its tenant, too.
    pub founded: bool,
}

/// An entry of the control log that fills a slot, or did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotEntry {
    /// Its position.
    pub index: ControlIndex,
    /// Its content.
    pub activation: PluginActivation,
    /// First epoch that it decided; `None` if unknown.
    pub since: Option<Epoch>,
    /// Whether the configuration, not a request, put it there; then another configuration may replace it.
    pub configured: bool,
}

/// An entry of a slot's past.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastEntry {
    /// The entry; `since` is the first epoch that it decided.
    pub entry: SlotEntry,
    /// Last epoch that it decided.
    pub until: Option<Epoch>,
}

/// One slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotImage {
    /// Its name.
    pub slot: PluginSlot,
    /// Active and earlier entries, oldest first; the last one is active.
    pub stack: Vec<SlotEntry>,
    /// The pending entry.
    pub pending: Option<SlotEntry>,
    /// The newest entries of this slot, oldest first.
    pub history: Vec<PastEntry>,
}
