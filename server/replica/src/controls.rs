//! Applies control entries: the control state determines each entry's effect, and the replica follows it.

use alloc::vec::Vec;

use tribunal_core::control::{Effect as ControlEffect, Moment};
use tribunal_core::executor::ShardExecutor;
use tribunal_core::visibility::Delivery;
use tribunal_types::{ControlChange, ControlIndex, Epoch, Lsn};

use crate::answer::ControlReply;
use crate::effect::Effect;
use crate::event::Waiters;
use crate::policy_runner::PolicyRunner;
use crate::replica::Replica;

/// Log bytes of a control entry, including the entries that carry it.
const CHANGE_BYTES: u64 = 512;
/// Log bytes of one reader change in it.
const READER_MOVE_BYTES: u64 = 64;

/// Estimates the log bytes of a control entry: reader changes are frequent, and images let the log be compacted.
fn bytes_of(change: &ControlChange) -> u64 {
    match change {
        ControlChange::MoveReaders(moves) => CHANGE_BYTES + READER_MOVE_BYTES * moves.len() as u64,
        _ => CHANGE_BYTES,
    }
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor> Replica<W, P, E> {
    pub(crate) fn propose_control(&mut self, change: ControlChange, waiter: Option<W::Control>) {
        let (index, entry) = self.controls.propose(change, waiter);
        self.effects.push_back(Effect::AppendControl(index, entry));
    }

    /// Applies the next change of configuration up to K(e), in control log order; `next` is the first epoch that it
    /// counts for. Returns whether there was one.
    pub(crate) fn apply_control(&mut self, upto: ControlIndex, next: Epoch) -> bool {
        let Some((index, entry)) = self.controls.pop(upto) else { return false };
        self.image_bytes += bytes_of(&entry.change);
        let resolver = &self.resolver;
        let is_existence_fixed = |store| resolver.is_existence_fixed(store);
        let members: Vec<_> = self.epochs.groups().map(|(group, _)| group.node).collect();
        let moment = Moment { next, is_existence_fixed: &is_existence_fixed, members: &members };
        let applied = self.replicated.apply(index, &entry, moment);
        if applied == Ok(ControlEffect::Repeated) {
            // Its waiter has the answer of the first one.
            return true;
        }
        if let Ok(effect) = &applied {
            self.follow(effect);
            self.effects.push_back(Effect::ControlApplied(effect.clone()));
        }
        let waiter = self.controls.waiter(entry.proposal);
        self.effects.extend(waiter.map(|waiter| Effect::ControlReply(waiter, ControlReply { index, applied })));
        true
    }

    /// Follows the effect of a control entry, as far as it concerns the replica.
    fn follow(&mut self, effect: &ControlEffect) {
        match effect {
            ControlEffect::StoreDeclared { store, .. } => {
                let declared = self.replicated.stores().store(*store);
                declared.into_iter().for_each(|store| self.resolver.declare_store(store.spec.clone()));
                self.restart_push(*store);
            }
            ControlEffect::PushAttached(store) | ControlEffect::PushAssigned(store) => self.restart_push(*store),
            ControlEffect::PushDetached(store) => {
                self.visibility.track(*store, Delivery::Detached, Lsn(0));
                self.truncate_later();
            }
            ControlEffect::BoundsSet(bounds) => {
                if self.resolver.set_bounds(*bounds) {
                    // The image has the old partitions; the next one comes when it would have.
                    self.image = None;
                }
                self.policies.set_faults_max(bounds.plugin_faults_max);
            }
            ControlEffect::PluginActivated { activation, holds } => {
                self.effects.push_back(Effect::SlotsChanged);
                self.policies.activated(activation, *holds);
                if *holds {
                    self.effects.push_back(Effect::SlotFilled(activation.choice.slot.clone()));
                }
            }
            ControlEffect::PluginForgotten(_) => self.effects.push_back(Effect::SlotsChanged),
            ControlEffect::GroupJoined(join) => {
                // No change if it has been a member from the start.
                let _ = self.epochs.join(join.group, join.first);
                self.joined(join.group);
            }
            ControlEffect::StoreKnown(_) | ControlEffect::PushForked(_) | ControlEffect::RecordSkipped(..) => {}
            ControlEffect::WebhookRegistered(_) | ControlEffect::WebhookAssigned(_) => {}
            ControlEffect::WebhookRemoved(_) | ControlEffect::ReadersMoved(_) => {}
            ControlEffect::KeyCreated { .. } | ControlEffect::KeyKnown(_) | ControlEffect::KeyRevoked { .. } => {}
            ControlEffect::ComponentAnnounced(_) | ControlEffect::ComponentReported(_) => {}
            // Its group closes at the next tick of the node that leads it.
            ControlEffect::NodeLeaves(_) => {}
            ControlEffect::GenerationSwitched(generation) => {
                self.resolver.switch_generation(*generation);
                self.policies.set_generation(*generation);
            }
            ControlEffect::ReleaseAnnounced(_) => {}
            ControlEffect::NodeAdmitted(_) | ControlEffect::NodeClaimed(_) => {}
            // The groups it leads move to other nodes at its next ticks.
            ControlEffect::NodeDrained(_) | ControlEffect::NodeResumed(_) => {}
            ControlEffect::NodeLeft(_) | ControlEffect::OthersLeft(_) | ControlEffect::EntryLost => {}
            ControlEffect::Repeated | ControlEffect::Unchanged => {}
        }
    }

    /// Puts every activation for epoch `next` in force.
    pub(crate) fn advance_slots(&mut self, next: Epoch) {
        let changed = self.replicated.advance(next);
        if changed.is_empty() {
            return;
        }
        self.effects.push_back(Effect::SlotsChanged);
        for slot in changed {
            self.policies.install(&slot);
            self.effects.push_back(Effect::SlotFilled(slot));
        }
    }
}
