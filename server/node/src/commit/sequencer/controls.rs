//! Applies control entries: the fold decides what each did, and this carries it out.

use tribunal_core::control::{Effect, Moment};
use tribunal_core::visibility::Delivery;
use tribunal_types::{ControlEntry, ControlIndex, Epoch, FilledBy, Lsn};

use super::Sequencer;
use crate::commit::control_queue::ControlReply;
use crate::commit::log_thread::Job;

impl Sequencer {
    /// Applies durable changes of configuration up to K(e), in the order of the control log; `next` is the first epoch
    /// that they count for.
    pub(super) fn apply_controls(&mut self, upto: ControlIndex, next: Epoch) {
        while let Some((index, ControlEntry { proposal, change })) = self.controls.pop(upto) {
            let resolver = &self.state.resolver;
            let has_records = |store| resolver.head_lsn(store) > Lsn(0);
            let applied = self.state.replicated.apply(index, &change, Moment { next, has_records: &has_records });
            if let Ok(effect) = &applied {
                self.follow(effect);
                // First: a request that finds a store in a view asks for its progress.
                self.publish_stores();
                (self.state.on_control)(&self.state.replicated, effect);
            }
            self.controls.answer(proposal, ControlReply { index, applied });
            self.shared.progress.wake();
        }
    }

    /// Carries out what a control entry did.
    fn follow(&mut self, effect: &Effect) {
        match effect {
            Effect::StoreDeclared { store, .. } => {
                let declared = self.state.replicated.stores().store(*store);
                declared.into_iter().for_each(|store| self.state.resolver.declare_store(store.spec.clone()));
                self.restart_push(*store);
            }
            Effect::PushAttached(store) => self.restart_push(*store),
            Effect::PushDetached(store) => {
                self.state.visibility.track(*store, Delivery::Detached, Lsn(0));
                // What it held back may go now.
                let applied = self.applied();
                let _ = self.log.send(Job::Truncate { below: self.image_at, applied, ask_stores: false });
            }
            Effect::BoundsSet(bounds) => {
                if self.state.resolver.set_bounds(*bounds) {
                    // It was taken of other partitions; the next one comes when it would have.
                    self.image = None;
                }
                self.state.policies.set_faults_max(bounds.plugin_faults_max);
            }
            Effect::PluginActivated { activation, holds } => {
                self.publish_slots();
                self.state.policies.activated(activation, *holds);
                if *holds {
                    if activation.by == FilledBy::Faults {
                        self.shared.metrics.count_rollback(&activation.choice.slot);
                    }
                    (self.state.on_slot)(&activation.choice.slot);
                }
            }
            Effect::PluginForgotten(_) => self.publish_slots(),
            Effect::StoreKnown(_) | Effect::RecordSkipped(..) => {}
            Effect::KeyCreated { .. } | Effect::KeyKnown(_) | Effect::KeyRevoked { .. } => {}
            Effect::NodeAdmitted(_) | Effect::GroupJoined(_) | Effect::EntryLost | Effect::Unchanged => {}
        }
    }

    /// Lets every activation hold whose epoch `next` is.
    pub(super) fn advance_slots(&mut self, next: Epoch) {
        let changed = self.state.replicated.advance(next);
        if changed.is_empty() {
            return;
        }
        self.publish_slots();
        for slot in &changed {
            self.state.policies.install(slot);
            (self.state.on_slot)(slot);
        }
    }

    fn publish_slots(&self) {
        *self.state.slots.write() = self.state.replicated.slots().clone();
    }
}
