//! From agreed entries to decided epochs.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_core::epochs::{Folded, Step};
use tribunal_core::executor::ShardExecutor;
use tribunal_core::id_table::Known;
use tribunal_core::planted::{Bug, planted};
use tribunal_types::{Batch, EarlyAbort, Epoch, EpochInput, GroupId, PluginSlot};

use crate::answer::{Answer, Imported};
use crate::by_size::BySize;
use crate::effect::{DecidedEpoch, Effect, OwnBatch};
use crate::event::Waiters;
use crate::policy_runner::PolicyRunner;
use crate::replica::{ProposedBatch, Replica};

/// Bytes of a state image per row, and per id.
const ROW_BYTES_IN_IMAGE: u64 = 24;
const ID_BYTES_IN_IMAGE: u64 = 48;

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor> Replica<W, P, E> {
    /// Takes the next entry of a group's log.
    pub(crate) fn entry(&mut self, batch: Arc<Batch>) {
        // An entry may be agreed on twice: the first one counts, and settles the proposal.
        let proposed = self.proposals.get_mut(&batch).filter(|proposed| proposed.durable_at.is_none());
        let is_new = proposed.is_some();
        if batch.group == self.group {
            // Proposed by an earlier run of the node, unless by this one.
            self.batcher.raise(batch.proposal());
        }
        if let Some(proposed) = proposed {
            self.writing -= 1;
            proposed.durable_at = Some(self.now.monotonic);
        }
        match self.early.get_mut(&batch.group) {
            Some(early) => early.push(batch),
            None => self.fold(batch, is_new),
        }
        // The log is free again: seal the queued items first, so that they are written while this epoch is resolved.
        self.seal_if_due();
        self.seal_for_others();
    }

    /// Folds an entry, or keeps it until the control entry that lets its group join is applied. `is_proposal`: the
    /// entry is an own proposal that was not agreed on before.
    fn fold(&mut self, batch: Arc<Batch>, is_proposal: bool) {
        self.folded = true;
        self.leading.sealed(batch.group, batch.last);
        match self.epochs.entry(Arc::clone(&batch)) {
            // The other groups must seal up to its end, or the group would never leave.
            Folded::Counted if batch.closes => {
                drop(batch.is_empty().then(|| self.proposals.take(&batch)));
                self.demanded_by(batch.last);
            }
            // It has no waiters, and no epoch returns it.
            Folded::Counted if batch.is_empty() => drop(self.proposals.take(&batch)),
            Folded::Counted => self.demanded_by(batch.last),
            Folded::Void if is_proposal => {
                self.proposals.take(&batch).into_iter().for_each(|proposed| self.not_taken(proposed));
            }
            Folded::Void => {}
            Folded::Early => self.early.entry(batch.group).or_default().push(batch),
        }
    }

    /// Notes that a counted entry needs all epochs up to this one to be complete.
    fn demanded_by(&mut self, last: Epoch) {
        self.counted_to = self.counted_to.max(last);
        self.demand.note(last, self.now.monotonic);
    }

    /// Folds the entries that a group sent before it joined.
    pub(crate) fn joined(&mut self, group: GroupId) {
        let early = self.early.remove(&group).unwrap_or_default();
        // A group proposes only once it has joined.
        early.into_iter().for_each(|batch| self.fold(batch, false));
    }

    /// Answers the waiters of a void or lost batch: none of its items exist.
    pub(crate) fn not_taken(&mut self, proposed: ProposedBatch<W>) {
        // It may have been the batch that carries the unapplied control entries.
        self.sealed_control = self.epochs.control();
        self.forget_in_flight(&proposed.batch);
        let effects = &mut self.effects;
        let import = proposed.items.answer_all(Answer::NotTaken, |waiter, answer, spent| {
            effects.push_back(Effect::Answer(waiter, answer, spent));
        });
        effects.extend(import.map(|waiter| Effect::Imported(waiter, Imported::NotTaken)));
    }

    /// Applies a control entry or resolves an epoch, whichever is next. Returns whether there may be more.
    pub(crate) fn advance(&mut self) -> bool {
        if self.image_due && self.resolver.last() > self.newest_image {
            self.image_due = false;
            self.begin_image();
        }
        if !self.folded {
            return false;
        }
        self.waits_for_code = !self.policies.is_complete();
        if self.waits_for_code {
            return false;
        }
        match self.epochs.poll() {
            Some(Step::Control { upto, .. }) if upto > self.control => {
                self.folded = false;
                self.note_complete();
            }
            Some(Step::Control { upto, next }) => {
                // Publish the epoch that the entries end first: a client that is notified of a change finds that epoch
                // complete.
                self.note_complete();
                // An activation waiting for an epoch before these entries count has been in force since then.
                self.advance_slots(next.prev());
                if !self.apply_control(upto, next) {
                    self.epochs.applied(upto);
                }
            }
            Some(Step::Epoch { input, .. }) => {
                self.advance_slots(input.epoch);
                self.resolve(input);
            }
            None => {
                self.folded = false;
                self.batcher.share_epoch(self.epochs.members());
                self.advance_slots(self.epochs.last_complete().next());
                self.note_complete();
                self.refuse_gathered();
            }
        }
        true
    }

    /// Publishes epochs that are complete and have nothing to resolve.
    fn note_complete(&mut self) {
        let complete = self.epochs.last_complete();
        if complete > self.resolver.last() {
            self.visibility.note_epoch(complete, &[]);
            self.effects.push_back(Effect::Progress);
        }
    }

    fn resolve(&mut self, mut input: EpochInput) {
        if planted(Bug::TimeFromTheLocalClock) {
            input.epoch_time_ms = self.now.unix_ms();
        }
        let diverges = input.epoch >= Bug::DIVERGING_EPOCH && self.resolver.last() < Bug::DIVERGING_EPOCH;
        if planted(Bug::OneNodeDiverges) && self.group.node == Bug::DIVERGING_NODE && diverges {
            input.epoch_time_ms += 1;
        }
        let items = input.batches.iter().map(|batch| bytes_of(batch)).sum::<u64>();
        self.image_bytes += self.settings.epoch_bytes + items;
        let operations = input.batches.iter().map(|b| b.reads.len() + b.writes.len()).sum();
        let executor = BySize { workers: &self.executor, operations };
        self.policies.epoch_begins();
        let outcome = self.resolver.resolve(&input, &self.policies.policies(), &executor);
        for fallback in &outcome.fallbacks {
            self.policies.fell_back(fallback.level);
        }
        let failing = self.policies.count_faults(&outcome);
        let heads = outcome.heads();
        self.visibility.note_epoch(outcome.epoch, &heads.iter().map(|head| (head.0, head.2)).collect::<Vec<_>>());
        let decided = self.proposals.take_decided(&input);
        let own = decided.map(|(batch, places, proposed)| (Arc::clone(batch), places, proposed));
        let frees = own.is_some();
        let own = own.map(|(batch, places, ProposedBatch { mut items, sealed_at, durable_at, .. })| {
            self.forget_in_flight(&batch);
            let known = |abort: &EarlyAbort| self.resolver.known(abort.namespace, abort.id);
            let aborts = batch.early_aborts.iter().enumerate();
            items.expired = aborts.filter(|(_, abort)| known(abort) == Known::OutsideWindow).map(|(i, _)| i).collect();
            self.pace.decided(self.now.monotonic.saturating_sub(sealed_at));
            OwnBatch { items, places, sealed_at, durable_at: durable_at.unwrap_or(self.now.monotonic) }
        });
        let watches = self.watches_of(&input);
        self.effects.push_back(Effect::Decided(Box::new(DecidedEpoch { input, outcome, heads, own })));
        self.effects.extend(watches);
        // Until the effect is carried out, another activation may become active.
        let active = |slot: &PluginSlot| Some(self.replicated.slots().slot(slot)?.active()?.index);
        let failing =
            failing.into_iter().filter_map(|slot| active(&slot).map(|index| Effect::SlotFailing(slot, index)));
        self.effects.extend(failing);
        if frees {
            // Seal the commits that queued while this batch was in flight.
            self.seal_if_due();
        }
        self.resolved_to = self.epochs.position();
        self.image_due |= self.image.is_none() && self.is_image_due();
    }

    /// Returns whether enough was decided since the last image. The threshold is at least the size of an image, or
    /// images would make up most of the bytes written.
    fn is_image_due(&self) -> bool {
        if self.image_bytes < self.settings.image_every_bytes {
            return false;
        }
        let state = self.resolver.stats();
        let image = state.rows * ROW_BYTES_IN_IMAGE + state.ids * ID_BYTES_IN_IMAGE + state.history_bytes;
        self.image_bytes >= image
    }

    /// Returns the replies for clients waiting for an id in this epoch.
    fn watches_of(&mut self, input: &EpochInput) -> Vec<Effect<W>> {
        let mut told = Vec::new();
        if self.watchers.is_empty() {
            return told;
        }
        for batch in &input.batches {
            let txns = batch.txns.iter().map(|txn| (txn.namespace, txn.id));
            let early_aborts = batch.early_aborts.iter().map(|abort| (abort.namespace, abort.id));
            let fences = batch.fences.iter().map(|fence| (fence.namespace, fence.id));
            for (namespace, id) in txns.chain(early_aborts).chain(fences) {
                for watch in self.watchers.take(namespace, id) {
                    told.push(Effect::Known(watch, self.known(namespace, id)));
                }
            }
        }
        told
    }

    /// Forgets the ids of an own batch. The same id may also be in another group's batch, and wait here for a later
    /// epoch.
    pub(crate) fn forget_in_flight(&mut self, batch: &Batch) {
        let txns = batch.txns.iter().map(|txn| (txn.namespace, txn.id));
        let early_aborts = batch.early_aborts.iter().map(|abort| (abort.namespace, abort.id));
        txns.chain(early_aborts).for_each(|key| {
            self.in_flight.remove(&key);
        });
    }
}

/// Returns the approximate number of log bytes of a batch.
fn bytes_of(batch: &Batch) -> u64 {
    (batch.keys.len() + batch.values.len() + 64 * batch.txns.len()) as u64
}
