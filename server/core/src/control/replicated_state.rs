//! The single fold of the control log, for the running node, recovery and followers.
//!
//! An entry's effect depends on the entries before it and on the epoch that carries it ([`Moment`]), and on nothing
//! else: no clock, no randomness, no hash map order, no belief of the proposer. Everything that must be unique is
//! numbered here. All of it is in a state image, so a node continues from the image and the entries after it.
//!
//! It must never be changed except by an entry or the advance of epochs, nor grow beyond the limits of its parts.

use alloc::vec::Vec;

use tribunal_types::{
    Bounds, ControlChange, ControlEntry, ControlImage, ControlIndex, Epoch, FilledBy, GroupId, NodeId,
    PluginActivation, PluginSlot, StoreId,
};

use super::components::Components;
use super::effect::{Applied, Effect};
use super::keys::KeyTable;
use super::members::Members;
use super::proposers::Proposers;
use super::readers::ReaderTable;
use super::refusal::Refusal;
use super::releases::Releases;
use super::slots::{SlotEffect, Slots};
use super::stores::StoreTable;

/// The moment at which an entry is applied.
#[derive(Clone, Copy)]
pub struct Moment<'a> {
    /// First epoch that carries the entry.
    pub next: Epoch,
    /// Returns whether a store has records or rows of earlier epochs, so that its existence rule cannot change.
    pub is_existence_fixed: &'a dyn Fn(StoreId) -> bool,
    /// The members that seal the epoch, and those that are to join.
    pub members: &'a [NodeId],
}

/// The state built from the control log. Copying is cheap.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReplicatedState {
    index: ControlIndex,
    bounds: Option<Bounds>,
    stores: StoreTable,
    keys: KeyTable,
    pub(super) slots: Slots,
    pub(super) members: Members,
    proposers: Proposers,
    pub(super) components: Components,
    releases: Releases,
    readers: ReaderTable,
}

impl ReplicatedState {
    /// Returns the initial state of a cluster of these groups.
    #[must_use]
    pub fn founded(groups: &[GroupId]) -> ReplicatedState {
        ReplicatedState { members: Members::founded(groups), ..ReplicatedState::default() }
    }

    /// Applies the next entry. Indices may be missing: compacted entries have no effect. Neither does the repetition of
    /// an applied proposal.
    ///
    /// # Errors
    /// If the entry is refused; then it changed nothing.
    ///
    /// # Panics
    /// If the entry was applied before.
    pub fn apply(&mut self, index: ControlIndex, entry: &ControlEntry, moment: Moment<'_>) -> Applied {
        assert!(index > self.index, "control entry {} is applied after {}", index.0, self.index.0);
        self.index = index;
        if !self.proposers.is_new(entry.proposal, index) {
            return Ok(Effect::Repeated);
        }
        match &entry.change {
            ControlChange::DeclareStore(spec) => self.stores.declare(index, spec, moment.is_existence_fixed),
            ControlChange::DetachPush(detachment) => Ok(self.stores.detach(detachment)),
            ControlChange::AttachPush { store } => Ok(self.stores.attach(index, *store)),
            ControlChange::AssignPush { store, replaces, node } => {
                Ok(self.stores.assign(index, *store, *replaces, *node))
            }
            ControlChange::ForkPush { store, generation, fork } => Ok(self.stores.fork(*store, *generation, *fork)),
            ControlChange::RegisterWebhook { webhook, .. } if self.stores.store(webhook.store).is_none() => {
                Err(Refusal::StoreUnknown)
            }
            ControlChange::RegisterWebhook { webhook, resumes } => Ok(self.readers.register(index, webhook, *resumes)),
            ControlChange::RemoveWebhook { store } => Ok(self.readers.remove(*store)),
            ControlChange::AssignWebhook { store, replaces, node } => {
                Ok(self.readers.assign(index, *store, *replaces, *node))
            }
            ControlChange::MoveReaders(moves) => Ok(self.readers.change(moves)),
            ControlChange::SkipRecord(skip) => self.stores.skip(index, skip),
            ControlChange::SetBounds(bounds) if self.bounds == Some(*bounds) => Ok(Effect::Unchanged),
            ControlChange::SetBounds(bounds) => {
                self.bounds = Some(*bounds);
                Ok(Effect::BoundsSet(*bounds))
            }
            ControlChange::ActivatePlugin(activation) => self.activate(index, activation, moment),
            ControlChange::AnnounceComponent(component) => self.components.announce(index, component),
            ControlChange::ReportComponent { digest, node, report } => {
                Ok(self.components.report(digest, *node, report))
            }
            ControlChange::ForgetPlugin { digest } => self.forget_plugin(*digest),
            ControlChange::CreateKey(key) => self.keys.create(index, key),
            ControlChange::RevokeKey { id } => Ok(self.keys.revoke(index, id)),
            ControlChange::AdmitNode { name, address, voters } => self.members.admit(name, address, voters),
            ControlChange::ClaimNode { node, directory } => self.members.claim(*node, *directory),
            ControlChange::JoinGroup(join) => self.members.join(*join, moment.next),
            ControlChange::RemoveNode { node } => self.members.remove(*node),
            ControlChange::DrainNode { node, drained } => self.members.drain(*node, *drained),
            ControlChange::ForgetNode { node } => {
                let effect = self.members.forget(*node);
                if effect == Effect::NodeLeft(*node) {
                    self.releases.forget(*node);
                }
                Ok(effect)
            }
            ControlChange::AnnounceRelease { node, .. } if self.members.node(*node).is_none() => {
                Err(Refusal::NodeUnknown)
            }
            ControlChange::AnnounceRelease { node, release } => self.releases.announce(*node, release),
            ControlChange::SwitchGeneration(generation) => {
                // A single node announces nothing: it proposes only what its own release supports.
                let is_alone = self.members.nodes().next().is_none();
                self.releases.switch(*generation, if is_alone { &[] } else { moment.members })
            }
            ControlChange::SoleNode { node } => self.members.leave_alone(*node),
            ControlChange::Lost => Ok(Effect::EntryLost),
        }
    }

    fn activate(&mut self, index: ControlIndex, activation: &PluginActivation, moment: Moment<'_>) -> Applied {
        self.check_ready(activation, moment.members)?;
        let holds = match self.slots.apply(index, activation, moment.next) {
            SlotEffect::Void => return Ok(Effect::Unchanged),
            SlotEffect::Holds => true,
            SlotEffect::Pending => false,
        };
        Ok(Effect::PluginActivated { activation: activation.clone(), holds })
    }

    fn forget_plugin(&mut self, digest: [u8; 32]) -> Applied {
        // Another node may have activated it since this was proposed.
        if self.components.get(&digest).is_some() && !self.slots.users_of(&digest).is_empty() {
            return Err(Refusal::PluginInUse);
        }
        self.components.forget(&digest);
        self.slots.forget(&digest);
        Ok(Effect::PluginForgotten(digest))
    }

    /// Checks that every member can run the plugin of an activation. A plugin that a slot returns to ran on all of
    /// them, if they still have the same engine.
    fn check_ready(&self, activation: &PluginActivation, members: &[NodeId]) -> Result<(), Refusal> {
        let PluginActivation { choice, by, .. } = activation;
        if !choice.announced {
            return Ok(());
        }
        let waited_for = if *by == FilledBy::Request { members } else { &[] };
        if !self.components.is_ready(&choice.digest, waited_for) {
            return Err(Refusal::PluginNotReady);
        }
        let decides = !matches!(choice.slot, PluginSlot::Adaptor(_));
        if decides && !self.components.is_for_engine(&choice.digest, members, &choice.host) {
            return Err(Refusal::EnginesDiffer);
        }
        Ok(())
    }

    /// Puts every activation for epoch `next` in force. Returns the slots that changed.
    pub fn advance(&mut self, next: Epoch) -> Vec<PluginSlot> {
        self.slots.advance(next)
    }

    /// Returns the last applied entry.
    #[must_use]
    pub fn index(&self) -> ControlIndex {
        self.index
    }

    /// Returns the bounds, if any were set.
    #[must_use]
    pub fn bounds(&self) -> Option<Bounds> {
        self.bounds
    }

    /// Returns the stores.
    #[must_use]
    pub fn stores(&self) -> &StoreTable {
        &self.stores
    }

    /// Forgets the keys that were created by these entries: the log has left the entries out since, and with them the
    /// keys' revocations.
    pub fn forget_keys_created(&mut self, by: impl Fn(ControlIndex) -> bool) {
        self.keys.forget_created(by);
    }

    /// Returns keys and tenants.
    #[must_use]
    pub fn keys(&self) -> &KeyTable {
        &self.keys
    }

    /// Returns the slots.
    #[must_use]
    pub fn slots(&self) -> &Slots {
        &self.slots
    }

    /// Returns the components uploaded to a cluster.
    #[must_use]
    pub fn components(&self) -> &Components {
        &self.components
    }

    /// Returns the nodes' releases, and the generation in which epochs are decided.
    #[must_use]
    pub fn releases(&self) -> &Releases {
        &self.releases
    }

    /// Returns the readers of logs.
    #[must_use]
    pub fn readers(&self) -> &ReaderTable {
        &self.readers
    }

    /// Returns the members.
    #[must_use]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Returns the whole state, for a state image.
    #[must_use]
    pub fn image(&self) -> ControlImage {
        let (tenants, keys, revoked) = self.keys.image();
        let (offsets, webhooks) = self.readers.image();
        ControlImage {
            index: self.index,
            bounds: self.bounds,
            stores: self.stores.image(),
            tenants,
            keys,
            revoked,
            slots: self.slots.image(),
            nodes: self.members.image(),
            proposers: self.proposers.image(),
            components: self.components.iter().cloned().collect(),
            generation: self.releases.generation(),
            releases: self.releases.image(),
            offsets,
            webhooks,
        }
    }

    /// Restores the state from an image.
    #[must_use]
    pub fn restore(image: ControlImage) -> ReplicatedState {
        let ControlImage { index, bounds, stores, tenants, keys, revoked, slots, nodes, proposers, .. } = image;
        let ControlImage { components, generation, releases, offsets, webhooks, .. } = image;
        ReplicatedState {
            index,
            bounds,
            stores: StoreTable::restore(stores),
            keys: KeyTable::restore(tenants, keys, revoked),
            slots: Slots::restore(slots),
            members: Members::restore(nodes),
            proposers: Proposers::restore(proposers),
            components: Components::restore(components),
            releases: Releases::restore(generation, releases),
            readers: ReaderTable::restore(offsets, webhooks),
        }
    }
}
