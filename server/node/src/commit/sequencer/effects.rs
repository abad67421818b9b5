//! Carries out the outputs of a replica or member in the order it emits them: publishes, answers, writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tribunal_core::control::Effect as ControlEffect;
use tribunal_member::Output;
use tribunal_replica::{DecidedEpoch, Effect, OwnBatch};
use tribunal_types::limits::ID_WINDOW_MS;
use tribunal_types::{FilledBy, GroupId, StoreId};

use super::inline_writes::Allowed;
use super::{Sequencer, without_epoch};
use crate::cluster::recovery::cannot_go_on;
use crate::cluster::state_copy::Lacks;
use crate::commit::epoch_cache::{ResolvedEpoch, Timing};
use crate::commit::log_job::{GroupWrite, Job, Occasion};
use crate::commit::replies::Answered;
use crate::commit::waiters::{Channels, ItemWaiter};
use crate::commit::waiting_bytes::Releases;
use crate::telemetry::own_txns::OwnTxns;

/// Consequence and remedy for a broken copy of an embedded store that holds the log back.
const LEFT_OUT: &str = "the log no longer waits for it, but for the copies of other nodes: repair its disk, then have this node try \
                        again (`tribunal store resume`). If its log no longer has what the copy lacks, the node restarts with a \
                        copy of another node's state";
const ONLY_IN_LOG: &str = "what it lacks is on no other node's disk as far as is known, so the log is kept: repair its disk before \
                           that of the log is full, then have this node try again (`tribunal store resume`)";

/// Pause between two warnings of one kind.
const FORGETTING_LOGGED_EVERY: Duration = Duration::from_secs(60);

impl Sequencer {
    pub(super) fn carry_out(&mut self, output: Output<Channels>) {
        match output {
            Output::Effect(effect) => self.effect(effect),
            Output::Decided { decided, entries } => self.decided(*decided, entries),
            Output::Image { image, groups, applied, last } => {
                // First write the outcomes of the epochs that the image includes.
                self.write_outcomes();
                self.log.send(Job::Image { image, groups, applied, last });
            }
            Output::Append { group, id, content } => {
                self.side.round.records.push(GroupWrite::Entry(group, id, content))
            }
            Output::Copy { group, id, content } => self.side.round.records.push(GroupWrite::Copy(group, id, content)),
            Output::SetState { group, state } => self.side.round.records.push(GroupWrite::State(group, state)),
            Output::Sync { number } => self.side.round.sync = Some(number),
            Output::Send { to, frame } => self.state.outgoing.add(to, &frame),
            Output::Fresh { read, epoch } => self.answer_fresh(read, epoch),
            Output::NeedsImage { group, leader, at_least } => {
                self.note_lag(Lacks::Entries { group, leader, at_least });
                self.inline.failed.get_or_insert_with(|| cannot_go_on(group, "entries are missing"));
            }
            Output::Diverged { reason } => self.refuse(reason),
            Output::Removed => self.refuse_removed(),
            Output::Failed { group, reason } => {
                self.inline.failed.get_or_insert_with(|| cannot_go_on(group, &reason));
            }
        }
    }

    fn effect(&mut self, effect: Effect<Channels>) {
        match effect {
            Effect::Append(batch) if self.inline.allowed == Allowed::Batch && self.inline.batch.is_none() => {
                self.inline.batch = Some(batch);
            }
            Effect::Append(batch) => self.log.send(Job::Append(batch)),
            Effect::AppendControl(index, entry) => self.log.send(Job::Control(index, entry)),
            Effect::Answer(ItemWaiter { handle, namespace, bytes }, answer, spent) => {
                self.shared.waiting.release(namespace, bytes);
                handle.answer(without_epoch(answer), spent);
            }
            Effect::Imported(waiter, imported) => waiter.answer(imported, &self.shared.waiting),
            Effect::Known(reply, known) => drop(reply.send(known)),
            Effect::ControlApplied(effect) => self.control_applied(&effect),
            // The proposer may have disconnected.
            Effect::ControlReply(reply, answer) => drop(reply.send(answer)),
            Effect::SlotsChanged => *self.state.slots.write() = self.replica().replicated().slots().clone(),
            Effect::SlotFilled(slot) => (self.state.on_slot)(&slot),
            Effect::SlotFailing(slot, entry) => (self.state.on_faults)(slot, entry),
            Effect::Progress => {
                self.publish_stores();
                self.publish_epoch();
                self.shared.progress.wake();
            }
            Effect::Truncate { below, applied, at_start } => {
                let occasion = if at_start { Occasion::Start } else { Occasion::Stores };
                self.log.send(Job::Truncate { below, applied, occasion });
            }
            Effect::Flush(store) => self.log.send(Job::Flush(store)),
            Effect::LeftOut(store, reason) => {
                (self.state.left_out)(store);
                self.tell_of_broken_copy(store, &reason, LEFT_OUT);
            }
            Effect::OnlyInLog(store, reason) => self.tell_of_broken_copy(store, &reason, ONLY_IN_LOG),
            // These arrive as outputs of their own, or not at all.
            Effect::Image { .. } | Effect::Decided(_) | Effect::TakeOver(_) => {}
            Effect::Stopped => self.stopped = true,
        }
    }

    fn tell_of_broken_copy(&self, store: StoreId, held: &str, what_now: &str) {
        let stores = self.replica().replicated().stores();
        let name = stores.store(store).map_or("", |store| &store.spec.name);
        tracing::error!(
            store = name,
            store_id = store.0,
            held,
            "this node's copy of an embedded store is broken, and {what_now}"
        );
    }

    fn decided(&mut self, decided: DecidedEpoch<Channels>, entries: Vec<(GroupId, u64)>) {
        let DecidedEpoch { input, outcome, heads, own } = decided;
        let now = self.started.elapsed();
        let times = |own: &OwnBatch<Channels>| (own.sealed_at, own.durable_at.max(self.inline.durable_at));
        let (sealed_at, durable_at) = own.as_ref().map_or((now, now), times);
        let (sealed_at, durable_at) = (self.started + sealed_at, self.started + durable_at);
        let timing = Timing::resolved_now(sealed_at, durable_at, self.replica().policies().call_times());
        let own_txns = OwnTxns::of(self.replica().group(), &input, &outcome);
        self.shared.metrics.count_epoch(&outcome, own_txns, durable_at - sealed_at, timing.resolved_at - durable_at);
        self.shared.progress.note_epoch_took(timing.resolved_at - timing.sealed_at);
        let epoch = Arc::new(ResolvedEpoch::new(input, outcome, heads, timing));
        let evicted = self.shared.cache.publish(Arc::clone(&epoch));
        self.publish_stores();
        self.publish_epoch();
        // Answer clients first: waking the log thread and the pushes costs an idle service a noticeable part of its
        // latency.
        if let Some(OwnBatch { items, places, .. }) = own {
            let mut releases = Releases::of(&self.shared.waiting);
            let mut answers = Vec::with_capacity(items.len());
            let import = items.answer(&epoch.outcome, places, |waiter, answer, spent| {
                releases.add(waiter.namespace, waiter.bytes);
                let answer = answer.in_epoch(|()| Arc::clone(&epoch));
                answers.push((waiter.handle, Answered { answer, spent }));
            });
            drop(releases);
            self.state.dispatch.answer(answers);
            import.into_iter().for_each(|(waiter, imported)| waiter.answer(imported, &self.shared.waiting));
        }
        if self.side.round.have_copies() {
            // The epoch may have been decided from these copies, so write them before its outcome.
            self.log.send(Job::Groups(std::mem::take(&mut self.side.round)));
        }
        if self.inline.allowed == Allowed::Outcome || self.decider.member().is_some() {
            self.inline.outcomes.push((epoch, entries));
        } else {
            self.log.send(Job::Outcome(epoch, entries));
        }
        self.shared.progress.wake();
        let batches = evicted.into_iter().filter_map(Arc::into_inner).flat_map(ResolvedEpoch::into_batches);
        batches.for_each(|batch| self.decider.replica_mut().recycle(batch));
    }

    fn control_applied(&mut self, effect: &ControlEffect) {
        if let ControlEffect::PluginActivated { activation, holds: true } = effect
            && activation.by == FilledBy::Faults
        {
            self.shared.metrics.plugins.count_rollback(&activation.choice.slot);
        }
        // Publish the stores first: a request that finds a store in a view queries its progress.
        self.publish_stores();
        (self.state.on_control)(self.decider.replica().replicated(), effect);
        self.shared.progress.wake();
    }

    pub(super) fn publish_stores(&self) {
        self.shared.progress.set_stores(self.replica().stores(), self.started);
        self.shared.progress.set_rows(self.replica().rows());
    }

    pub(super) fn publish_epoch(&self) {
        let resolver = self.replica().resolver();
        let complete = self.replica().last_complete();
        self.shared.progress.set_epoch(complete, resolver.floor());
        self.shared.view.decided(resolver.last(), resolver.digest());
        let stats = resolver.stats();
        let metrics = &self.shared.metrics.epochs;
        metrics.last.set(complete.0);
        metrics.floor.set(resolver.floor().0);
        metrics.rows.set(stats.rows);
        metrics.row_bytes.set(stats.row_bytes);
        metrics.history_bytes.set(stats.history_bytes);
        metrics.ids.set(stats.ids);
        self.log_forgetting();
    }

    /// Logs, at most once a minute, that there is no room for ids for as long as clients may repeat them.
    fn log_forgetting(&self) {
        let resolver = self.replica().resolver();
        let remembered_ms = resolver.epoch_time_ms().saturating_sub(resolver.ids_from_ms());
        let logged = self.forgetting_logged_at.get().is_some_and(|at| at.elapsed() < FORGETTING_LOGGED_EVERY);
        if resolver.ids_from_ms() == 0 || remembered_ms >= ID_WINDOW_MS || logged {
            return;
        }
        self.forgetting_logged_at.set(Some(Instant::now()));
        tracing::warn!(
            remembered_s = remembered_ms / 1000,
            "there are more transaction ids than `resolver.status_bytes_max` permits, so not all of the last ten minutes are remembered, \
             and repeated requests with the forgotten ones are refused. Raise it"
        );
    }
}
