//! The one thread that owns the node's deterministic state: it seals batches, resolves epochs and answers.
//!
//! Everything reaches it as a [`Message`], in one queue, or gathers until it is free ([`CommitIntake`]); it performs no I/O
//! itself and never waits for anything but that queue. Invariants:
//! * an epoch is resolved only once the batches of all members are durable, in the order of epochs, and with the control
//!   entries that `Epochs` requests before it: none is applied at any other time;
//! * no request is answered before the epoch's outcome is in the [`EpochCache`];
//! * at most one batch is on its way to the disk, so that every sync carries all that came while it was away.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use tokio::sync::oneshot;
use tribunal_core::epochs::{FoldPosition, Folded, Step};
use tribunal_core::id_table::Known;
use tribunal_core::proposals::Proposals;
use tribunal_types::{
    Batch, ControlIndex, EarlyAbort, Epoch, EpochInput, FenceItem, ImportedVersion, NamespaceId, Reason, TxnId,
    TxnRequest, Verdict,
};

use crate::commit::control_queue::ControlQueue;
use crate::commit::epoch_cache::{ResolvedEpoch, Timing};
use crate::commit::idle_seal::IdleSeal;
use crate::commit::image_capture::{self, ImageCapture};
use crate::commit::log_thread::Job;
use crate::commit::message::{Ended, KnownNow, Message};
use crate::commit::pending::{Imported, PendingItems, PendingTxn, ProposedBatch, refuse};
use crate::commit::replies::{Answer, Commit, ReplyHandle, bytes_of};
use crate::commit::sequencer_state::{SequencerState, Shared};
use crate::commit::shards::BySize;
use crate::commit::store_watch::StoreWatches;
use crate::commit::watchers::Watchers;
use crate::config::EpochLength;

mod controls;
mod stores;

/// The sequencer's state.
pub struct Sequencer {
    state: SequencerState,
    shared: Shared,
    log: Sender<Job>,
    open: PendingItems,
    proposals: Proposals<ProposedBatch>,
    /// Batches on their way to the disk.
    writing: usize,
    /// The last control entry that a sealed batch carries.
    sealed_control: ControlIndex,
    /// Where the fold was after the last epoch that was resolved: what an image of that state continues from.
    resolved_to: FoldPosition,
    in_flight: HashMap<(NamespaceId, TxnId), (), foldhash::fast::FixedState>,
    watchers: Watchers,
    deferred: VecDeque<Message>,
    /// Empty; its memory is used again.
    taken: Vec<Commit>,
    imports: VecDeque<(Vec<ImportedVersion>, oneshot::Sender<Imported>)>,
    controls: ControlQueue,
    opened_at: Option<Instant>,
    idle: IdleSeal,
    image_bytes: u64,
    image_at: Epoch,
    image: Option<ImageCapture>,
    watches: StoreWatches,
}

/// While a batch is on its way to the disk, so many commits gather before the sequencer looks at them.
const GATHER: usize = 48;
/// How many commits before its turn a commit's rows are loaded, and where they are: of 1 to 8 the fastest
/// (`cargo bench -p tribunal-core --bench resolve -- --admit 2`).
const ROWS_AHEAD: usize = 2;
const TAGS_AHEAD: usize = 2 * ROWS_AHEAD;
/// A larger transaction is freed as soon as it is copied into the batch.
const SPENT_BYTES_MAX: usize = 64 * 1024;
/// Messages taken from the queue before the seal is considered again.
const MESSAGES_AT_ONCE: usize = 1024;

impl Sequencer {
    /// Prepares the sequencer and publishes its progress.
    #[must_use]
    pub fn new(mut state: SequencerState, shared: Shared, log: Sender<Job>) -> Sequencer {
        state.batcher.share_epoch(state.epochs.members());
        let mut watches = StoreWatches::default();
        let stores = state.replicated.stores().stores();
        stores.for_each(|store| watches.start(store.spec.id, state.resolver.head_lsn(store.spec.id)));
        let sequencer = Sequencer {
            controls: ControlQueue::new(state.control, state.run),
            image_at: state.resolver.last(),
            proposals: Proposals::new(state.group),
            writing: 0,
            sealed_control: state.epochs.control(),
            resolved_to: state.epochs.position(),
            state,
            shared,
            log,
            open: PendingItems::default(),
            in_flight: HashMap::default(),
            watchers: Watchers::default(),
            deferred: VecDeque::new(),
            taken: Vec::new(),
            imports: VecDeque::new(),
            opened_at: None,
            idle: IdleSeal::new(),
            image_bytes: 0,
            image: None,
            watches,
        };
        sequencer.publish_stores();
        sequencer.publish_epoch();
        sequencer
    }

    /// Runs until it is stopped, or until the log fails.
    pub fn run(mut self, messages: &Receiver<Message>) -> Ended {
        loop {
            self.continue_image(image_capture::SLICE);
            // A batch that is on its way, or a fixed length that has begun, leaves time for more to gather.
            let busy = self.writing > 0 || self.opened_at.is_some();
            if self.state.intake.wake_at(if busy { GATHER } else { 1 }) {
                self.take_queued();
                self.seal_if_due();
                continue;
            }
            let first = match self.wait_at_most() {
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(wait) => messages.recv_timeout(wait),
            };
            let mut next = match first {
                Ok(message) => Some(message),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return self.stop(messages),
            };
            let mut taken = 0;
            while let Some(message) = next.take() {
                match message {
                    Message::Stop => return self.stop(messages),
                    Message::LogFailed(reason) => return self.fail(messages, reason),
                    message => self.handle(message),
                }
                taken += 1;
                if taken < MESSAGES_AT_ONCE {
                    next = messages.try_recv().ok();
                }
            }
            self.take_queued();
            self.seal_if_due();
            self.seal_idle_if_due();
        }
    }

    /// Takes in the commits that have gathered.
    fn take_queued(&mut self) {
        let mut commits = std::mem::take(&mut self.taken);
        self.state.intake.take(&mut commits);
        if !commits.is_empty() {
            self.commit(&mut commits);
        }
        self.taken = commits;
    }

    fn wait_at_most(&self) -> Option<Duration> {
        match (self.state.epoch_length, self.opened_at) {
            _ if self.image.is_some() => Some(Duration::ZERO),
            (EpochLength::Fixed(ms), Some(opened)) if self.writing == 0 => {
                Some((opened + Duration::from_millis(ms)).saturating_duration_since(Instant::now()))
            }
            _ => self.last_idle_epoch().map(|_| self.idle.due_in()),
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Commit(mut commits) => self.commit(&mut commits),
            // `run` looks after every message.
            Message::CommitsQueued => {}
            Message::Judge(txns, reply) => {
                self.shared.waiting_bytes.fetch_sub(txns.iter().map(bytes_of).sum(), Ordering::Relaxed);
                let complete = self.state.epochs.last_complete();
                let verdicts = self.state.resolver.dry_runs(complete, &txns, &self.state.policies.policies());
                let _ = reply.send(verdicts);
            }
            Message::DryRun(txn, reply) => {
                self.shared.waiting_bytes.fetch_sub(bytes_of(&txn), Ordering::Relaxed);
                let _ = reply.send(self.dry_run(&txn));
            }
            Message::Abort(namespace, id, handle) => self.abort(namespace, id, handle),
            Message::Fence(namespace, id, handle) => self.fence(namespace, id, handle),
            Message::Status(namespace, id, reply) => {
                self.take_queued();
                let _ = reply.send(self.known(namespace, id));
            }
            Message::Watch(namespace, id, reply) => self.watch(namespace, id, reply),
            Message::Import(versions, reply) => {
                self.imports.push_back((versions, reply));
                self.opened();
            }
            Message::Control(change, reply) => {
                let (index, entry) = self.controls.propose(change, reply);
                let _ = self.log.send(Job::Control(index, entry));
            }
            Message::Durable(batch) => self.durable(batch),
            Message::ControlDurable(index, entry) => {
                // Batches sealed from now on carry it, an empty one if there is nothing else. What another group's batch
                // carried may have waited for it.
                self.state.control = index;
                self.controls.durable(index, entry);
                self.advance();
            }
            Message::PushReported(store, generation, reports) => self.push_reported(store, generation, &reports),
            Message::OverQuota(store, bound) => self.over_quota(store, bound),
            Message::LogFailed(_) | Message::Stop => unreachable!("handled by run"),
        }
    }

    /// Returns what a commit would get now if it were alone: its verdict, or the answer for an id that is known.
    fn dry_run(&mut self, txn: &TxnRequest) -> Result<Verdict, Answer> {
        // Earlier requests first.
        self.take_queued();
        if self.in_flight.contains_key(&(txn.namespace, txn.id)) {
            return Err(Answer::InFlight);
        }
        // A commit would be sealed now, and not at the time of the last epoch.
        let time_ms = self.state.clock.now_ms().max(self.state.resolver.epoch_time_ms());
        match self.state.resolver.known_at(txn.namespace, txn.id, time_ms) {
            Known::At(_, Some(body)) if body != txn.body_hash => return Err(Answer::BodyMismatch),
            Known::At(at, _) => return Err(Answer::Stored(at)),
            Known::OutsideWindow => return Err(Answer::Expired),
            Known::Unknown => {}
        }
        let complete = self.state.epochs.last_complete();
        Ok(self.state.resolver.dry_run(complete, txn, &self.state.policies.policies()))
    }

    fn known(&self, namespace: NamespaceId, id: TxnId) -> KnownNow {
        if self.in_flight.contains_key(&(namespace, id)) {
            return KnownNow::InFlight;
        }
        match self.state.resolver.known(namespace, id) {
            Known::Unknown => KnownNow::Unknown,
            Known::At(at, _) => KnownNow::At(at),
            // `epoch_time` does not advance while nothing is committed: an id ahead of it may well be of this minute.
            Known::OutsideWindow if id.unix_ms() > self.state.resolver.epoch_time_ms() => KnownNow::Unknown,
            Known::OutsideWindow => KnownNow::Expired,
        }
    }

    fn watch(&mut self, namespace: NamespaceId, id: TxnId, reply: oneshot::Sender<KnownNow>) {
        self.take_queued();
        let known = self.known(namespace, id);
        let reply = match known {
            KnownNow::At(_) | KnownNow::Expired => Some(reply),
            KnownNow::InFlight | KnownNow::Unknown => self.watchers.add(namespace, id, reply),
        };
        if let Some(reply) = reply {
            let _ = reply.send(known);
        }
    }

    /// Tells those who wait for an id of this epoch.
    fn tell_watchers(&mut self, epoch: &ResolvedEpoch) {
        if self.watchers.is_empty() {
            return;
        }
        for batch in &epoch.input.batches {
            let txns = batch.txns.iter().map(|txn| (txn.namespace, txn.id));
            let early_aborts = batch.early_aborts.iter().map(|abort| (abort.namespace, abort.id));
            let fences = batch.fences.iter().map(|fence| (fence.namespace, fence.id));
            for (namespace, id) in txns.chain(early_aborts).chain(fences) {
                for reply in self.watchers.take(namespace, id) {
                    // The client may have disconnected.
                    let _ = reply.send(self.known(namespace, id));
                }
            }
        }
    }

    fn opened(&mut self) {
        self.opened_at.get_or_insert_with(Instant::now);
    }

    /// Takes transactions in; leaves `commits` empty.
    fn commit(&mut self, commits: &mut Vec<Commit>) {
        let now_us = self.state.clock.now_us();
        let mut left = commits.drain(..);
        // Looked up one after the other, each row would be waited for.
        let first = left.as_slice();
        first.iter().take(TAGS_AHEAD).for_each(|commit| self.state.resolver.prefetch_tags(&commit.txn));
        first.iter().take(ROWS_AHEAD).for_each(|commit| self.state.resolver.prefetch_rows(&commit.txn));
        while let Some(commit) = left.next() {
            if let Some(later) = left.as_slice().get(TAGS_AHEAD - 1) {
                self.state.resolver.prefetch_tags(&later.txn);
            }
            if let Some(soon) = left.as_slice().get(ROWS_AHEAD - 1) {
                self.state.resolver.prefetch_rows(&soon.txn);
            }
            if let Some(commit) = self.offer(commit, now_us) {
                // The open batch is full: the rest waits for the next one.
                let rest = std::iter::once(commit).chain(left).collect();
                self.deferred.push_back(Message::Commit(rest));
                return;
            }
        }
    }

    /// Puts a transaction into the open batch; gives it back if that is full.
    fn offer(&mut self, commit: Commit, now_us: u64) -> Option<Commit> {
        let Commit { txn, handle } = commit;
        let key = (txn.namespace, txn.id);
        let bytes = bytes_of(&txn);
        if self.in_flight.contains_key(&key) {
            self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            handle.answer(Answer::InFlight, Some(txn));
            return None;
        }
        let known = !matches!(self.state.resolver.known(txn.namespace, txn.id), Known::Unknown);
        if !known && let Some((reason, conflicts)) = self.state.resolver.find_early_abort(&txn) {
            let abort =
                EarlyAbort { id: txn.id, body_hash: Some(txn.body_hash), namespace: txn.namespace, reason, conflicts };
            if self.state.batcher.add_early_abort(abort).is_err() {
                return Some(Commit { txn, handle });
            }
            self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.open.aborts.push(PendingTxn { handle, bytes: 0, spent: Some(txn) });
        } else {
            if self.state.batcher.offer(&txn, now_us).is_err() {
                return Some(Commit { txn, handle });
            }
            let spent = (bytes <= SPENT_BYTES_MAX).then_some(txn);
            self.open.txns.push(PendingTxn { handle, bytes, spent });
        }
        self.in_flight.insert(key, ());
        self.opened();
        None
    }

    fn abort(&mut self, namespace: NamespaceId, id: TxnId, handle: ReplyHandle) {
        // Earlier requests first.
        self.take_queued();
        match self.known(namespace, id) {
            KnownNow::InFlight => return handle.answer(Answer::InFlight, None),
            KnownNow::At(at) => return handle.answer(Answer::Stored(at), None),
            KnownNow::Expired => return handle.answer(Answer::Expired, None),
            KnownNow::Unknown => {}
        }
        let abort = EarlyAbort { id, body_hash: None, namespace, reason: Reason::ClientAbort, conflicts: Vec::new() };
        if self.state.batcher.add_early_abort(abort).is_err() {
            self.deferred.push_back(Message::Abort(namespace, id, handle));
            return;
        }
        self.in_flight.insert((namespace, id), ());
        self.open.aborts.push(PendingTxn { handle, bytes: 0, spent: None });
        self.opened();
    }

    fn fence(&mut self, namespace: NamespaceId, id: TxnId, handle: ReplyHandle) {
        self.take_queued();
        match self.known(namespace, id) {
            KnownNow::At(at) => return handle.answer(Answer::Stored(at), None),
            KnownNow::Expired => return handle.answer(Answer::Expired, None),
            // A fence of an id in flight is decided after it, in the same epoch or a later one.
            KnownNow::InFlight | KnownNow::Unknown => {}
        }
        if self.state.batcher.fence(FenceItem { id, namespace }).is_err() {
            self.deferred.push_back(Message::Fence(namespace, id, handle));
            return;
        }
        self.open.fences.push(handle);
        self.opened();
    }

    fn seal_if_due(&mut self) {
        if self.writing > 0 {
            return;
        }
        let due = match (self.state.epoch_length, self.opened_at) {
            // A change of configuration is applied at the end of the next epoch, so an idle node seals one for it.
            (_, None) => self.sealed_control < self.state.control,
            (EpochLength::Adaptive, Some(_)) => true,
            (EpochLength::Fixed(ms), Some(opened)) => opened.elapsed() >= Duration::from_millis(ms),
        };
        if due {
            self.seal();
        }
    }

    fn seal(&mut self) {
        self.take_import();
        let epoch = self.state.epochs.next_of(self.state.group);
        self.seal_epochs(epoch, epoch);
        // Before the transactions that wait: they may fill every batch.
        self.take_import();
        for message in std::mem::take(&mut self.deferred) {
            self.handle(message);
        }
        if self.open.import.is_some() || !self.imports.is_empty() {
            self.opened();
        }
    }

    /// Puts the next import into the open batch, unless that has one or is full.
    fn take_import(&mut self) {
        if self.open.import.is_none()
            && let Some((versions, reply)) = self.imports.pop_front()
        {
            match self.state.batcher.import(&versions) {
                Ok(()) => self.open.import = Some((reply, size_of_val(&*versions))),
                Err(_) => self.imports.push_front((versions, reply)),
            }
        }
    }

    /// Returns up to which epoch an idle node seals: the one before an activation that waits. `None` if the node is not
    /// idle, or nothing waits.
    fn last_idle_epoch(&self) -> Option<Epoch> {
        let idle = self.writing == 0 && self.opened_at.is_none();
        let from = if idle { self.state.replicated.slots().next_activation()? } else { return None };
        IdleSeal::last_before(self.state.epochs.next_of(self.state.group), from)
    }

    /// Seals empty epochs on an idle node, as one range, so that an activation that waits for its epoch takes effect.
    fn seal_idle_if_due(&mut self) {
        if !self.idle.due_in().is_zero() {
            return;
        }
        if let Some(last) = self.last_idle_epoch() {
            self.seal_epochs(self.state.epochs.next_of(self.state.group), last);
        }
    }

    /// Seals these epochs; everything that waits belongs to the last one.
    fn seal_epochs(&mut self, first: Epoch, last: Epoch) {
        let clock_ms = self.state.clock.now_ms();
        let batch = Arc::new(self.state.batcher.seal(first, last, self.state.control, clock_ms));
        self.image_bytes += (batch.keys.len() + batch.values.len() + 64 * batch.txns.len()) as u64;
        let now = Instant::now();
        self.idle.sealed(now);
        let items = std::mem::take(&mut self.open);
        self.proposals.add(&batch, ProposedBatch { items, sealed_at: now, durable_at: None });
        self.writing += 1;
        self.sealed_control = self.state.control;
        self.opened_at = None;
        let _ = self.log.send(Job::Append(batch));
    }

    fn durable(&mut self, batch: Arc<Batch>) {
        self.writing -= 1;
        if let Some(proposed) = self.proposals.get_mut(&batch) {
            proposed.durable_at = Some(Instant::now());
        }
        match self.state.epochs.entry(Arc::clone(&batch)) {
            // Nobody waits for it, and no epoch hands it out.
            Folded::Counted if batch.is_empty() => drop(self.proposals.take(&batch)),
            Folded::Counted => {}
            // A group's own entries are never early: it proposes only once it has joined.
            Folded::Void | Folded::Early => self.not_taken(&batch),
        }
        // The disk is free again: what has gathered goes first, and is written while this epoch is resolved.
        self.take_queued();
        self.seal_if_due();
        self.advance();
    }

    /// Tells the waiters of a void batch that nothing of it exists.
    fn not_taken(&mut self, batch: &Batch) {
        // It may have been the one to carry what is not applied yet.
        self.sealed_control = self.state.epochs.control();
        let Some(proposed) = self.proposals.take(batch) else { return };
        self.forget_in_flight(batch);
        proposed.items.not_taken(&self.shared.waiting_bytes);
    }

    /// Applies and resolves whatever is complete.
    fn advance(&mut self) {
        while let Some(step) = self.state.epochs.poll() {
            match step {
                Step::Control { upto, .. } if upto > self.state.control => return self.note_complete(),
                Step::Control { upto, next } => {
                    // What waited for an epoch before these entries count has held since then.
                    self.advance_slots(next.prev());
                    self.apply_controls(upto, next);
                    self.state.epochs.applied(upto);
                }
                Step::Epoch { input, .. } => {
                    self.advance_slots(input.epoch);
                    self.resolve(input);
                }
            }
        }
        self.state.batcher.share_epoch(self.state.epochs.members());
        let next = self.state.epochs.last_complete().next();
        self.advance_slots(next);
        self.note_complete();
    }

    /// Publishes epochs that are complete and have nothing to resolve.
    fn note_complete(&mut self) {
        let complete = self.state.epochs.last_complete();
        if complete <= self.state.resolver.last() {
            return;
        }
        self.state.visibility.note_epoch(complete, &[]);
        self.publish_stores();
        self.publish_epoch();
        self.shared.progress.wake();
    }

    fn resolve(&mut self, input: EpochInput) {
        let operations = input.batches.iter().map(|b| b.reads.len() + b.writes.len()).sum();
        let executor = BySize { workers: &self.state.workers, operations };
        let outcome = self.state.resolver.resolve(&input, &self.state.policies.policies(), &executor);
        let own =
            self.proposals.take_decided(&input).map(|(batch, places, proposed)| (Arc::clone(batch), places, proposed));
        let now = Instant::now();
        let (sealed_at, durable_at) = own
            .as_ref()
            .map_or((now, now), |(_, _, proposed)| (proposed.sealed_at, proposed.durable_at.unwrap_or(now)));
        let timing = Timing::resolved_now(sealed_at, durable_at, self.state.policies.call_times());
        self.shared.metrics.count_epoch(&outcome, durable_at - sealed_at, timing.resolved_at - durable_at);
        self.shared.progress.note_epoch_took(timing.resolved_at - timing.sealed_at);
        for fallback in &outcome.fallbacks {
            self.state.policies.fell_back(fallback.level);
        }
        for slot in self.state.policies.count_faults(&outcome) {
            (self.state.on_faults)(slot);
        }
        let epoch = Arc::new(ResolvedEpoch::new(input, outcome, timing));
        self.state.visibility.note_epoch(epoch.outcome.epoch, &epoch.last_lsns().collect::<Vec<_>>());
        let evicted = self.shared.cache.publish(Arc::clone(&epoch));
        self.publish_stores();
        self.publish_epoch();
        // Clients first: waking the log thread and the pushes costs an idle service a noticeable part of its latency.
        if let Some((batch, places, proposed)) = own {
            self.forget_in_flight(&batch);
            proposed.items.answer(&epoch, places, &self.state.dispatch, &self.shared.waiting_bytes);
        }
        self.tell_watchers(&epoch);
        let _ = self.log.send(Job::Outcome(epoch));
        self.shared.progress.wake();
        let batches = evicted.into_iter().filter_map(Arc::into_inner).flat_map(ResolvedEpoch::into_batches);
        batches.for_each(|batch| self.state.batcher.recycle(batch));
        self.resolved_to = self.state.epochs.position();
        if self.image_bytes >= self.state.image_every_bytes && self.image.is_none() {
            self.begin_image();
        }
    }

    /// Forgets the ids of an own batch. The same id may be in another group's, and wait here for a later epoch.
    fn forget_in_flight(&mut self, batch: &Batch) {
        let txns = batch.txns.iter().map(|txn| (txn.namespace, txn.id));
        let early_aborts = batch.early_aborts.iter().map(|abort| (abort.namespace, abort.id));
        txns.chain(early_aborts).for_each(|key| {
            self.in_flight.remove(&key);
        });
    }

    fn publish_epoch(&self) {
        let resolver = &self.state.resolver;
        let complete = self.state.epochs.last_complete();
        self.shared.progress.set_epoch(complete, resolver.floor());
        let stats = resolver.stats();
        let metrics = &self.shared.metrics;
        metrics.epoch.set(complete.0);
        metrics.floor.set(resolver.floor().0);
        metrics.rows.set(stats.rows);
        metrics.row_bytes.set(stats.row_bytes);
        metrics.history_bytes.set(stats.history_bytes);
        metrics.ids.set(stats.ids);
    }

    fn begin_image(&mut self) {
        self.image_bytes = 0;
        let control = self.state.replicated.clone();
        self.image = Some(ImageCapture::begin(&mut self.state.resolver, control, &self.resolved_to));
    }

    /// Copies for some time, the node's last image to its end, and hands the image on when it is whole.
    fn continue_image(&mut self, budget: Duration) {
        let Some(capture) = &mut self.image else { return };
        if let Some(taken) = capture.step(&mut self.state.resolver, budget) {
            self.image = None;
            self.image_at = taken.epoch();
            let (image, last) = (Box::new(taken), budget == Duration::MAX);
            let _ = self.log.send(Job::Image { image, applied: self.applied(), last });
        }
    }

    /// Finishes the epochs under way, takes an image and ends.
    fn stop(mut self, messages: &Receiver<Message>) -> Ended {
        let mut last = self.state.intake.close();
        self.commit(&mut last);
        loop {
            if self.writing == 0 && self.opened_at.is_some() {
                self.seal();
            }
            if self.writing == 0 {
                break;
            }
            match messages.recv() {
                Ok(Message::Commit(commits)) => refuse(commits, &Answer::Stopping),
                Ok(Message::Abort(_, _, handle) | Message::Fence(_, _, handle)) => {
                    handle.answer(Answer::Stopping, None);
                }
                Ok(Message::LogFailed(reason)) => return self.fail(messages, reason),
                Ok(message @ (Message::Durable(_) | Message::ControlDurable(..))) => self.handle(message),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        if self.state.resolver.last() > self.image_at {
            self.begin_image();
            self.continue_image(Duration::MAX);
        }
        let _ = self.log.send(Job::Stop);
        Ended::Stopped
    }

    /// Tells everybody who waits that the outcome is unknown, and ends.
    fn fail(mut self, messages: &Receiver<Message>, reason: String) -> Ended {
        refuse(self.state.intake.close(), &Answer::Unknown);
        let open = std::mem::take(&mut self.open);
        for pending in self.proposals.take_all().into_iter().map(|proposed| proposed.items).chain([open]) {
            pending.fail();
        }
        for message in self.deferred.drain(..).chain(messages.try_iter()) {
            match message {
                Message::Commit(commits) => refuse(commits, &Answer::Unknown),
                Message::Abort(_, _, handle) | Message::Fence(_, _, handle) => handle.answer(Answer::Unknown, None),
                _ => {}
            }
        }
        Ended::LogFailed(reason)
    }
}
