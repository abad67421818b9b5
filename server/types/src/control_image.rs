//! What the control log adds up to, as plain data: the part of a state image that holds it.
//!
//! Everything in here is bounded by the limits of what it lists.

use alloc::string::String;
use alloc::vec::Vec;

use crate::access::ApiKey;
use crate::control::{
    AnnouncedComponent, Bounds, ControlIndex, Detachment, GroupJoin, PluginActivation, PluginSlot, ProposalId, Skip,
};
use crate::ids::{Epoch, Lsn, NamespaceId, NodeId};
use crate::reader::{ConsumerOffset, HeldWebhook};
use crate::release::{Generation, Release};
use crate::store::StoreSpec;

/// The state after control entry `index`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ControlImage {
    /// Last entry that it includes.
    pub index: ControlIndex,
    /// Bounds, if any were set.
    pub bounds: Option<Bounds>,
    /// Stores, ascending id.
    pub stores: Vec<DeclaredStore>,
    /// Tenants beside the one that exists from the start, ascending name.
    pub tenants: Vec<(String, NamespaceId)>,
    /// Keys that are not revoked, ascending id.
    pub keys: Vec<HeldKey>,
    /// The keys that were revoked last, oldest first.
    pub revoked: Vec<RevokedKey>,
    /// Slots, ascending.
    pub slots: Vec<SlotImage>,
    /// Nodes that were ever members or admitted, ascending id.
    pub nodes: Vec<ClusterNode>,
    /// The last proposal of each run that proposed lately, ascending run.
    pub proposers: Vec<LastProposal>,
    /// Components that were uploaded to a cluster, ascending digest.
    pub components: Vec<AnnouncedComponent>,
    /// Generation in which epochs are decided.
    pub generation: Generation,
    /// What each node runs that has announced it, ascending node.
    pub releases: Vec<(NodeId, Release)>,
    /// Offsets of a cluster's consumers, by namespace, name and store.
    pub offsets: Vec<ConsumerOffset>,
    /// Receivers that are registered in a cluster, ascending store.
    pub webhooks: Vec<HeldWebhook>,
}

/// A node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterNode {
    /// Its number.
    pub id: NodeId,
    /// Its name; empty for one with which the cluster began.
    pub name: String,
    /// Where the others reach it, opaque; empty for one with which the cluster began.
    pub address: String,
    /// Its data directory, once it has started; none of one with which the cluster began.
    pub directory: Option<u64>,
    /// The first voters of its group; empty for one with which the cluster began.
    pub first_voters: Vec<NodeId>,
    /// Its group, once that has joined.
    pub joined: Option<GroupJoin>,
    /// Whether it is being removed.
    pub stage: NodeStage,
    /// Whether it is drained.
    pub drained: bool,
}

/// How far the removal of a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeStage {
    /// It stays.
    #[default]
    Present,
    /// It is being removed: its group may not have closed, and groups may still have it.
    Leaving,
    /// No group has it any more.
    Left,
}

/// The last proposal of a run that was applied.
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
    /// The control entry of the declaration alone: skips from before it were of another storage.
    pub declared: ControlIndex,
    /// The control entry that declared or attached it last. Acknowledgements from before it are void.
    pub generation: ControlIndex,
    /// Why the log does not wait for it, if it does not.
    pub detached: Option<Detachment>,
    /// The member of a cluster that pushes to its storage; `None` until one is named, and on a node that runs alone.
    pub pusher: Option<Pusher>,
    /// Where the log ended when its present storage was found ahead of it: until the storage is back there, its rows are of
    /// another history.
    pub fork: Option<Lsn>,
    /// Records that its storages never got, with the control entries that skip them, oldest first.
    pub skips: Vec<(ControlIndex, Skip)>,
}

/// The member that pushes to a storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pusher {
    /// The member.
    pub node: NodeId,
    /// The control entry that named it.
    pub since: ControlIndex,
}

impl DeclaredStore {
    /// Returns the name of the present push: the control entry that declared or attached the store last, or named the node
    /// that pushes. What an earlier push reports is void.
    #[must_use]
    pub fn push(&self) -> ControlIndex {
        self.pusher.map_or(self.generation, |pusher| pusher.since.max(self.generation))
    }

    /// Returns whether its rows are in a storage outside of the service.
    #[must_use]
    pub fn is_external(&self) -> bool {
        self.spec.adaptor.is_some() && !self.spec.is_embedded()
    }

    /// Returns the records that the present storage is not given.
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
    /// That entry created its tenant, too.
    pub founded: bool,
}

/// A key that was revoked: enough to recognise its use.
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
    /// The entry that created it created its tenant, too.
    pub founded: bool,
}

/// An entry of the control log that holds, or held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotEntry {
    /// Its position.
    pub index: ControlIndex,
    /// Its content.
    pub activation: PluginActivation,
    /// First epoch that it decided; `None` if that is not known.
    pub since: Option<Epoch>,
    /// Whether the configuration, and not a request, put it there: then another configuration may replace it.
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
    /// What held, oldest first; the last one holds.
    pub stack: Vec<SlotEntry>,
    /// What is pending.
    pub pending: Option<SlotEntry>,
    /// The newest entries of this slot, oldest first.
    pub history: Vec<PastEntry>,
}
