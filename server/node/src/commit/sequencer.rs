//! The one thread that owns the node's deterministic state: it seals batches, resolves epochs and answers.
//!
//! Everything reaches it as a [`Message`], in one queue, or gathers until it is free ([`CommitIntake`]); it performs no I/O
//! itself and never waits for anything but that queue. Invariants:
//! * an epoch is resolved only after its batch is durable, and in the order of epochs;
//! * no request is answered before the epoch's outcome is in the [`EpochCache`];
//! * at most one batch is on its way to the disk, so that every sync carries all that came while it was away.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use tokio::sync::oneshot;
use tribunal_core::id_table::Known;
use tribunal_core::visibility::Delivery;
use tribunal_types::{
    Batch, ControlChange, ControlIndex, Detachment, EarlyAbort, Epoch, EpochInput, FenceItem, FilledBy,
    ImportedVersion, Lsn, NamespaceId, Reason, StoreId, TxnId,
};

use crate::commit::epoch_cache::{ResolvedEpoch, Timing};
use crate::commit::idle_seal::IdleSeal;
use crate::commit::image_capture::{self, ImageCapture};
use crate::commit::log_thread::Job;
use crate::commit::message::{Ended, KnownNow, Message};
use crate::commit::pending::{PendingItems, PendingTxn, refuse};
use crate::commit::progress::StoreProgress;
use crate::commit::replies::{Answer, Commit, ReplyHandle, bytes_of};
use crate::commit::sequencer_state::{SequencerState, Shared};
use crate::commit::shards::BySize;
use crate::commit::store_watch::{StoreWatches, delivery};
use crate::commit::watchers::Watchers;
use crate::config::EpochLength;
use crate::plugins::settings::intent_of;
use crate::stores::catalog::{NewestReport, PushReports};

/// The sequencer's state.
pub struct Sequencer {
    state: SequencerState,
    shared: Shared,
    log: Sender<Job>,
    open: PendingItems,
    sealed: VecDeque<(PendingItems, Instant)>,
    in_flight: HashMap<(NamespaceId, TxnId), (), foldhash::fast::FixedState>,
    watchers: Watchers,
    deferred: VecDeque<Message>,
    /// Empty; its memory is used again.
    taken: Vec<Commit>,
    imports: VecDeque<(Vec<ImportedVersion>, oneshot::Sender<u64>)>,
    controls: VecDeque<oneshot::Sender<()>>,
    durable_controls: VecDeque<(ControlIndex, ControlChange)>,
    control_next: ControlIndex,
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
    pub fn new(state: SequencerState, shared: Shared, log: Sender<Job>) -> Sequencer {
        let mut watches = StoreWatches::default();
        state.registry.stores().for_each(|store| watches.start(store.spec.id, state.resolver.head_lsn(store.spec.id)));
        let sequencer = Sequencer {
            control_next: ControlIndex(state.control.0 + 1),
            image_at: state.resolver.last(),
            state,
            shared,
            log,
            open: PendingItems::default(),
            sealed: VecDeque::new(),
            in_flight: HashMap::default(),
            watchers: Watchers::default(),
            deferred: VecDeque::new(),
            taken: Vec::new(),
            imports: VecDeque::new(),
            controls: VecDeque::new(),
            durable_controls: VecDeque::new(),
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
            let busy = !self.sealed.is_empty() || self.opened_at.is_some();
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
            (EpochLength::Fixed(ms), Some(opened)) if self.sealed.is_empty() => {
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
                let index = self.control_next;
                self.control_next = ControlIndex(index.0 + 1);
                self.controls.push_back(reply);
                let _ = self.log.send(Job::Control(index, change));
            }
            Message::Durable(batch) => self.durable(batch),
            Message::ControlDurable(index, change) => {
                // Batches sealed from now on carry it; epochs sealed before are resolved without it.
                self.state.control = index;
                self.durable_controls.push_back((index, change));
                if self.sealed.is_empty() {
                    self.apply_controls(index, self.state.epochs.last_complete().next());
                }
            }
            Message::PushReported(store, generation, reports) => self.push_reported(store, generation, &reports),
            Message::OverQuota(store, bound) => self.over_quota(store, bound),
            Message::LogFailed(_) | Message::Stop => unreachable!("handled by run"),
        }
    }

    /// Takes over what a push has reported, unless that push is not the store's any more.
    fn push_reported(&mut self, store: StoreId, generation: ControlIndex, reports: &PushReports) {
        let NewestReport { rewound, acked, stopped } = reports.take();
        let Some(declared) = self.state.registry.store(store) else { return };
        if declared.generation != generation || declared.detached.is_some() {
            return;
        }
        if rewound.is_some() || acked.is_some() {
            self.watches.reported(store);
        }
        let embedded = declared.spec.is_embedded();
        if stopped && embedded {
            self.watches.stopped(store);
        }
        rewound.into_iter().for_each(|lsn| self.state.visibility.rewound(store, lsn));
        acked.into_iter().for_each(|lsn| self.state.visibility.acked(store, lsn));
        if acked.is_some() && embedded {
            // What waited for this flush can go now, instead of with the next image.
            let _ = self.log.send(Job::Truncate { below: self.image_at, applied: self.applied() });
        }
        self.publish_stores();
        self.shared.progress.wake();
    }

    /// Proposes to truncate the log without a store that holds back too much of it.
    fn over_quota(&mut self, store: StoreId, bound: Epoch) {
        let Some(declared) = self.state.registry.store(store) else { return };
        let applied = self.state.visibility.applied(store);
        if declared.detached.is_some() || applied >= bound || !self.watches.may_detach(store) {
            return;
        }
        // An embedded store writes to its disk when it is told to, which the same truncation does.
        if declared.spec.is_embedded() && self.watches.is_known(store) {
            return;
        }
        self.watches.detaching(store);
        let acked = self.state.visibility.acked_lsn(store);
        let complaint = (self.state.complaint)(store).map_or(String::new(), |text| format!("; the storage: {text}"));
        let reason = format!("it holds more than {} of the log back{complaint}", self.state.quota);
        let at = self.state.epochs.last_complete();
        let change = ControlChange::DetachPush(Detachment { store, declared: declared.generation, at, acked, reason });
        let (reply, _) = oneshot::channel();
        self.handle(Message::Control(change, reply));
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
        if !self.sealed.is_empty() {
            return;
        }
        let due = match (self.state.epoch_length, self.opened_at) {
            (_, None) => false,
            (EpochLength::Adaptive, Some(_)) => true,
            (EpochLength::Fixed(ms), Some(opened)) => opened.elapsed() >= Duration::from_millis(ms),
        };
        if due {
            self.seal();
        }
    }

    fn seal(&mut self) {
        if self.open.import.is_none()
            && let Some((versions, reply)) = self.imports.pop_front()
        {
            match self.state.batcher.import(&versions) {
                Ok(()) => self.open.import = Some((reply, size_of_val(&*versions))),
                Err(_) => self.imports.push_front((versions, reply)),
            }
        }
        let epoch = self.state.epochs.next_of(self.state.group);
        self.seal_epochs(epoch, epoch);
        for message in std::mem::take(&mut self.deferred) {
            self.handle(message);
        }
        if !self.imports.is_empty() {
            self.opened();
        }
    }

    /// Returns up to which epoch an idle node seals: the one before an activation that waits. `None` if the node is not
    /// idle, or nothing waits.
    fn last_idle_epoch(&self) -> Option<Epoch> {
        let idle = self.sealed.is_empty() && self.opened_at.is_none();
        let from = if idle { self.state.policies.next_activation()? } else { return None };
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
        self.sealed.push_back((std::mem::take(&mut self.open), now));
        self.opened_at = None;
        let _ = self.log.send(Job::Append(batch));
    }

    fn durable(&mut self, batch: Arc<Batch>) {
        let durable_at = Instant::now();
        let (pending, sealed_at) = self.sealed.pop_front().expect("a durable batch was sealed here");
        self.state.epochs.entry(batch);
        // The disk is free again: what has gathered goes first, and is written while this epoch is resolved.
        self.take_queued();
        self.seal_if_due();
        let mut pending = Some(pending);
        let mut next = self.state.epochs.last_complete().next();
        while let Some(input) = self.state.epochs.poll() {
            let pending = pending.take().unwrap_or_default();
            let control = input.batches.iter().map(|batch| batch.control).max().unwrap_or_default();
            self.apply_controls(control, next);
            self.state.policies.advance(input.epoch).iter().for_each(&mut self.state.on_slot);
            next = input.epoch.next();
            self.resolve(input, pending, sealed_at, durable_at);
        }
        self.pass_empty_epochs();
        if self.sealed.is_empty() {
            self.apply_controls(self.state.control, self.state.epochs.last_complete().next());
        }
    }

    /// Takes note of epochs that are complete and have nothing to resolve.
    fn pass_empty_epochs(&mut self) {
        let complete = self.state.epochs.last_complete();
        if complete <= self.state.resolver.last() {
            return;
        }
        self.state.policies.advance(complete.next()).iter().for_each(&mut self.state.on_slot);
        self.state.visibility.note_epoch(complete, &[]);
        self.publish_stores();
        self.publish_epoch();
        self.shared.progress.wake();
    }

    fn resolve(&mut self, input: EpochInput, pending: PendingItems, sealed_at: Instant, durable_at: Instant) {
        let operations = input.batches.iter().map(|b| b.reads.len() + b.writes.len()).sum();
        let executor = BySize { workers: &self.state.workers, operations };
        let outcome = self.state.resolver.resolve(&input, &self.state.policies.policies(), &executor);
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
        self.forget_in_flight(&epoch.input);
        pending.answer(&epoch, &self.state.dispatch, &self.shared.waiting_bytes);
        self.tell_watchers(&epoch);
        let _ = self.log.send(Job::Outcome(epoch));
        self.shared.progress.wake();
        let batches = evicted.into_iter().filter_map(Arc::into_inner).flat_map(ResolvedEpoch::into_batches);
        batches.for_each(|batch| self.state.batcher.recycle(batch));
        if self.image_bytes >= self.state.image_every_bytes && self.image.is_none() {
            self.begin_image();
        }
    }

    fn forget_in_flight(&mut self, input: &EpochInput) {
        for batch in &input.batches {
            let txns = batch.txns.iter().map(|txn| (txn.namespace, txn.id));
            let early_aborts = batch.early_aborts.iter().map(|abort| (abort.namespace, abort.id));
            txns.chain(early_aborts).for_each(|key| {
                self.in_flight.remove(&key);
            });
        }
    }

    /// Applies durable changes of configuration up to K(e), in the order of the control log; `next` is the first epoch
    /// that they count for.
    fn apply_controls(&mut self, upto: ControlIndex, next: Epoch) {
        while self.durable_controls.front().is_some_and(|(index, _)| *index <= upto) {
            let Some((index, change)) = self.durable_controls.pop_front() else { break };
            let changed = self.state.registry.apply(index, &change);
            match &change {
                ControlChange::DeclareStore(spec) => {
                    self.state.resolver.declare_store(spec.clone());
                    self.restart_push(spec.id);
                }
                ControlChange::AttachPush { store } if changed => self.restart_push(*store),
                ControlChange::DetachPush(detachment) if changed => {
                    self.state.visibility.track(detachment.store, Delivery::Detached, Lsn(0));
                    // What it held back may go now.
                    let _ = self.log.send(Job::Truncate { below: self.image_at, applied: self.applied() });
                }
                ControlChange::SetBounds(bounds) => {
                    self.state.resolver.set_bounds(*bounds);
                    self.state.policies.set_faults_max(bounds.plugin_faults_max);
                }
                ControlChange::ActivatePlugin { choice, from } => {
                    let changed = self.state.policies.activate(index, choice, *from, next);
                    if intent_of(choice).by == FilledBy::Faults && !changed.is_empty() {
                        self.shared.metrics.count_rollback(&choice.slot);
                    }
                    changed.iter().for_each(&mut self.state.on_slot);
                }
                ControlChange::ForgetPlugin { digest } => self.state.policies.forget(digest),
                ControlChange::AttachPush { .. } | ControlChange::DetachPush(_) | ControlChange::SkipRecord(_) => {}
                ControlChange::CreateKey(_) | ControlChange::RevokeKey { .. } | ControlChange::Lost => {}
            }
            self.publish_stores();
            (self.state.on_control)(index, &change);
            if let Some(reply) = self.controls.pop_front() {
                let _ = reply.send(());
            }
            self.shared.progress.wake();
        }
    }

    /// Begins to watch a store whose push begins now. It may be another storage than before: its own watermark says
    /// what it holds.
    fn restart_push(&mut self, store: StoreId) {
        let Some(declared) = self.state.registry.store(store) else { return };
        let head = self.state.resolver.head_lsn(store);
        self.state.visibility.track(store, delivery(&declared.spec), head);
        self.state.visibility.rewound(store, Lsn(0));
        self.watches.start(store, head);
    }

    /// Returns what the stores that the log waits for have applied.
    fn applied(&self) -> Vec<(StoreId, Epoch)> {
        let attached = self.state.registry.stores().filter(|store| store.detached.is_none());
        attached.map(|store| (store.spec.id, self.state.visibility.applied(store.spec.id))).collect()
    }

    fn publish_stores(&self) {
        let visibility = &self.state.visibility;
        self.shared.progress.set_stores(self.state.registry.stores().map(|declared| {
            let store = declared.spec.id;
            let head = self.state.resolver.head_lsn(store);
            let pushed = declared.spec.adaptor.is_some() && declared.detached.is_none();
            // Readers of an embedded store apply what it lacks themselves: what it acknowledges is what is on its disk.
            let fresh = pushed && declared.spec.is_embedded();
            let progress = StoreProgress {
                head,
                reported: !pushed || self.watches.is_known(store),
                acked: if fresh { head } else { visibility.acked_lsn(store) },
                applied: if fresh { visibility.last_complete() } else { visibility.applied(store) },
                detached: declared.detached.is_some(),
                rows: self.state.resolver.rows_of(store),
            };
            (store, progress)
        }));
        let rows = self.state.registry.stores();
        let rows = rows.map(|declared| (declared.spec.namespace, self.state.resolver.rows_of(declared.spec.id)));
        self.shared.progress.set_rows(rows);
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
        let (control, slots) = (self.applied_control(), self.state.policies.slots().read().image());
        self.image = Some(ImageCapture::begin(&mut self.state.resolver, control, slots));
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

    /// Returns the last control entry that the resolver's state includes.
    fn applied_control(&self) -> ControlIndex {
        match self.durable_controls.front() {
            Some((next, _)) => ControlIndex(next.0 - 1),
            None => self.state.control,
        }
    }

    /// Finishes the epochs under way, takes an image and ends.
    fn stop(mut self, messages: &Receiver<Message>) -> Ended {
        let mut last = self.state.intake.close();
        self.commit(&mut last);
        loop {
            if self.sealed.is_empty() && self.opened_at.is_some() {
                self.seal();
            }
            if self.sealed.is_empty() {
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
        for pending in self.sealed.drain(..).map(|(pending, _)| pending).chain(std::iter::once(open)) {
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
