//! The one thread that owns the node's deterministic state: it seals batches, resolves epochs and answers.
//!
//! Everything reaches it as a [`Message`], in one queue, or gathers until it is free ([`Gathered`]); it performs no I/O
//! itself and never waits for anything but that queue. Invariants:
//! * an epoch is resolved only after its batch is durable, and in the order of epochs;
//! * nobody is answered before the epoch's outcome is in the [`EpochCache`];
//! * at most one batch is on its way to the disk, so that every sync carries all that came while it was away.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use tokio::sync::oneshot;
use tribunal_core::batcher::Batcher;
use tribunal_core::epochs::Epochs;
use tribunal_core::id_table::Known;
use tribunal_core::resolver::Resolver;
use tribunal_core::visibility::{Delivery, Visibility};
use tribunal_log::HoldBack;
use tribunal_types::{
    Batch, ControlChange, ControlIndex, Decision, Detachment, EarlyAbort, Epoch, EpochInput, FenceItem, FenceResult,
    GroupId, ImportedVersion, Lsn, NamespaceId, PluginSlot, Reason, StoreId, StoreSpec, TxnId, TxnRequest, Verdict,
    VerdictAt,
};

use crate::commit::commit_queue::Gathered;
use crate::commit::epoch_cache::{EpochCache, ResolvedEpoch, Timing};
use crate::commit::image_capture::{self, Imaging};
use crate::commit::log_thread::Job;
use crate::commit::progress::{Published, StoreProgress};
use crate::commit::replies::{Answer, Answered, Commit, Dispatch, Ticket, bytes_of};
use crate::commit::shards::{BySize, Workers};
use crate::commit::watchers::Watchers;
use crate::config::EpochLength;
use crate::plugins::policies::PolicySet;
use crate::stores::store_registry::Declarations;
use crate::telemetry::metrics::Metrics;

/// What the sequencer hears, beside the commits that gather.
pub enum Message {
    /// Transactions to decide, in this order.
    Commit(Vec<Commit>),
    /// As many transactions have gathered as the sequencer wanted to be woken for.
    Gathered,
    /// A read-only commit or a dry run.
    Judge(Box<TxnRequest>, oneshot::Sender<Verdict>),
    /// A client gives up.
    Abort(NamespaceId, TxnId, Ticket),
    /// Make sure that an id that never arrived never commits.
    Fence(NamespaceId, TxnId, Ticket),
    /// What is known of an id now.
    Status(NamespaceId, TxnId, oneshot::Sender<KnownNow>),
    /// What is known of an id, as soon as that is a verdict.
    Watch(NamespaceId, TxnId, oneshot::Sender<KnownNow>),
    /// Versions of existing rows; the answer is how many were new.
    Import(Vec<ImportedVersion>, oneshot::Sender<u64>),
    /// A change of configuration; answered once it is durable and applied.
    Control(ControlChange, oneshot::Sender<()>),
    /// A batch is durable.
    Durable(Arc<Batch>),
    /// A control entry is durable.
    ControlDurable(ControlIndex, ControlChange),
    /// The log failed: durability is in doubt.
    LogFailed(String),
    /// A storage acknowledged records up to this one, to the push that this control entry started.
    Acked(StoreId, ControlIndex, Lsn),
    /// A storage came back with this watermark.
    Rewound(StoreId, ControlIndex, Lsn),
    /// Without this store, the log could be truncated below this epoch and its quota be kept.
    OverQuota(StoreId, Epoch),
    /// Finish what is under way and end.
    Stop,
}

/// What is known of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KnownNow {
    /// Nothing; it may still arrive.
    Unknown,
    /// It waits for its epoch.
    InFlight,
    /// Its verdict is stored there.
    At(VerdictAt),
    /// Nothing, and it can no longer be executed.
    Expired,
}

/// How the sequencer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Stopped,
    /// Durability is in doubt, for this reason.
    LogFailed(String),
}

/// What the sequencer shares with the rest of the node.
#[derive(Clone)]
pub struct Shared {
    /// Recent epochs.
    pub cache: Arc<EpochCache>,
    /// Progress.
    pub published: Arc<Published>,
    /// Figures.
    pub metrics: Arc<Metrics>,
    /// Bytes of transactions that wait in the queue or in a batch.
    pub waiting_bytes: Arc<AtomicUsize>,
}

/// What carries out a durable control entry's consequences outside the resolver.
pub type OnControl = Box<dyn FnMut(ControlIndex, &ControlChange) + Send>;

/// What the sequencer starts with, after recovery.
pub struct Start {
    /// The group whose log this node leads.
    pub group: GroupId,
    /// The resolver, at its last complete epoch.
    pub resolver: Resolver,
    /// The fold of the groups' logs.
    pub epochs: Epochs,
    /// The open batch.
    pub batcher: Batcher,
    /// Progress of the stores.
    pub visibility: Visibility,
    /// Declared stores.
    pub declared: Declarations,
    /// Last control entry that is applied.
    pub control: ControlIndex,
    /// Policies in force.
    pub policies: PolicySet,
    /// When epochs are sealed.
    pub epoch_length: EpochLength,
    /// Threads for the shards.
    pub workers: Workers,
    /// Bytes of log after which a new image is taken.
    pub image_every_bytes: u64,
    /// Where single commits gather.
    pub gathered: Gathered,
    /// The way of answers.
    pub dispatch: Dispatch,
    /// Where a durable control entry's consequences outside the resolver are carried out (catalog, pushes). Must not
    /// wait for anything.
    pub on_control: OnControl,
    /// Says what a store's storage last complained about.
    pub complaint: Box<dyn Fn(StoreId) -> Option<String> + Send>,
    /// How much of the log a store may hold back.
    pub quota: HoldBack,
    /// Hears of every slot that another plugin fills from now on. Must not wait for anything.
    pub on_slot: Box<dyn FnMut(&PluginSlot) + Send>,
}

/// Who waits for the items of one batch.
#[derive(Default)]
struct Waiters {
    txns: Vec<Waiter>,
    aborts: Vec<Waiter>,
    fences: Vec<(Ticket, TxnId)>,
    import: Option<(oneshot::Sender<u64>, usize)>,
}

/// Who waits for a transaction.
struct Waiter {
    ticket: Ticket,
    /// What it counts for in `waiting_bytes`.
    bytes: usize,
    /// The transaction, copied into the batch; goes back with the answer.
    spent: Option<Box<TxnRequest>>,
}

/// The sequencer's state.
pub struct Sequencer {
    start: Start,
    shared: Shared,
    log: Sender<Job>,
    open: Waiters,
    sealed: VecDeque<(Waiters, Instant)>,
    in_flight: HashMap<(NamespaceId, TxnId), (), foldhash::fast::FixedState>,
    watchers: Watchers,
    deferred: VecDeque<Message>,
    /// Empty; its memory is used again.
    gathered: Vec<Commit>,
    imports: VecDeque<(Vec<ImportedVersion>, oneshot::Sender<u64>)>,
    controls: VecDeque<oneshot::Sender<()>>,
    durable_controls: VecDeque<(ControlIndex, ControlChange)>,
    control_next: ControlIndex,
    opened_at: Option<Instant>,
    image_bytes: u64,
    image_at: Epoch,
    imaging: Option<Imaging>,
    heard: BTreeMap<StoreId, Heard>,
}

/// What was heard of a store's push since it began.
struct Heard {
    since: Instant,
    /// The storage told its watermark.
    watermark: bool,
    /// It was proposed to detach it.
    given_up: bool,
}

impl Heard {
    fn nothing() -> Heard {
        Heard { since: Instant::now(), watermark: false, given_up: false }
    }
}

/// How long a storage may take to tell its watermark, before what it has applied counts as nothing.
const WATERMARK_PATIENCE: Duration = Duration::from_secs(60);

/// While a batch is on its way to the disk, so many commits gather before the sequencer looks at them.
const GATHER: usize = 48;
/// A larger transaction is freed as soon as it is copied into the batch.
const SPENT_BYTES_MAX: usize = 64 * 1024;
/// Messages taken from the queue before the seal is considered again.
const MESSAGES_AT_ONCE: usize = 1024;

impl Sequencer {
    /// Prepares the sequencer and publishes where it stands.
    #[must_use]
    pub fn new(start: Start, shared: Shared, log: Sender<Job>) -> Sequencer {
        let heard = start.declared.stores().map(|store| (store.spec.id, Heard::nothing())).collect();
        let sequencer = Sequencer {
            control_next: ControlIndex(start.control.0 + 1),
            image_at: start.resolver.last(),
            start,
            shared,
            log,
            open: Waiters::default(),
            sealed: VecDeque::new(),
            in_flight: HashMap::default(),
            watchers: Watchers::default(),
            deferred: VecDeque::new(),
            gathered: Vec::new(),
            imports: VecDeque::new(),
            controls: VecDeque::new(),
            durable_controls: VecDeque::new(),
            opened_at: None,
            image_bytes: 0,
            imaging: None,
            heard,
        };
        sequencer.publish_stores();
        sequencer.publish_epoch();
        sequencer
    }

    /// Runs until told to stop, or until the log fails.
    pub fn run(mut self, messages: &Receiver<Message>) -> Ended {
        loop {
            self.go_on_with_image(imaging::SLICE);
            // A batch that is on its way, or a fixed length that has begun, leaves time for more to gather.
            let busy = !self.sealed.is_empty() || self.opened_at.is_some();
            if self.start.gathered.wake_at(if busy { GATHER } else { 1 }) {
                self.take_gathered();
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
            self.take_gathered();
            self.seal_if_due();
        }
    }

    /// Takes in the commits that have gathered.
    fn take_gathered(&mut self) {
        let mut commits = std::mem::take(&mut self.gathered);
        self.start.gathered.take(&mut commits);
        if !commits.is_empty() {
            self.commit(&mut commits);
        }
        self.gathered = commits;
    }

    fn wait_at_most(&self) -> Option<Duration> {
        match (self.start.epoch_length, self.opened_at) {
            _ if self.imaging.is_some() => Some(Duration::ZERO),
            (EpochLength::Fixed(ms), Some(opened)) if self.sealed.is_empty() => {
                Some((opened + Duration::from_millis(ms)).saturating_duration_since(Instant::now()))
            }
            _ => None,
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Commit(mut commits) => self.commit(&mut commits),
            // `run` looks after every message.
            Message::Gathered => {}
            Message::Judge(txn, reply) => {
                self.shared.waiting_bytes.fetch_sub(bytes_of(&txn), Ordering::Relaxed);
                let verdict = self.start.resolver.dry_run(&txn, &self.start.policies.policies());
                let _ = reply.send(verdict);
            }
            Message::Abort(namespace, id, ticket) => self.abort(namespace, id, ticket),
            Message::Fence(namespace, id, ticket) => self.fence(namespace, id, ticket),
            Message::Status(namespace, id, reply) => {
                self.take_gathered();
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
                self.start.control = index;
                self.durable_controls.push_back((index, change));
                if self.sealed.is_empty() {
                    self.apply_controls(index);
                }
            }
            Message::Acked(store, generation, lsn) => self.heard(store, generation, |seen| seen.acked(store, lsn)),
            Message::Rewound(store, generation, lsn) => self.heard(store, generation, |seen| seen.rewound(store, lsn)),
            Message::OverQuota(store, bound) => self.over_quota(store, bound),
            Message::LogFailed(_) | Message::Stop => unreachable!("handled by run"),
        }
    }

    /// Takes over what a push says, unless it is not the store's any more.
    fn heard(&mut self, store: StoreId, generation: ControlIndex, note: impl FnOnce(&mut Visibility)) {
        let Some(declared) = self.start.declared.store(store) else { return };
        if declared.generation != generation || declared.detached.is_some() {
            return;
        }
        if let Some(heard) = self.heard.get_mut(&store) {
            heard.watermark = true;
        }
        note(&mut self.start.visibility);
        self.publish_stores();
        self.shared.published.wake();
    }

    /// Proposes to let the log go on without a store that holds too much of it back.
    fn over_quota(&mut self, store: StoreId, bound: Epoch) {
        let (Some(declared), Some(heard)) = (self.start.declared.store(store), self.heard.get_mut(&store)) else {
            return;
        };
        // A storage that was only just asked for its watermark may well have applied everything.
        let patient = !heard.watermark && heard.since.elapsed() < WATERMARK_PATIENCE;
        if patient || heard.given_up || declared.detached.is_some() || self.start.visibility.applied(store) >= bound {
            return;
        }
        heard.given_up = true;
        let acked = self.start.visibility.acked_lsn(store);
        let complaint = (self.start.complaint)(store).map_or(String::new(), |text| format!("; the storage: {text}"));
        let reason = format!("it holds more than {} of the log back{complaint}", self.start.quota);
        let at = self.start.resolver.last();
        let change = ControlChange::DetachPush(Detachment { store, declared: declared.generation, at, acked, reason });
        let (reply, _) = oneshot::channel();
        self.handle(Message::Control(change, reply));
    }

    fn known(&self, namespace: NamespaceId, id: TxnId) -> KnownNow {
        if self.in_flight.contains_key(&(namespace, id)) {
            return KnownNow::InFlight;
        }
        match self.start.resolver.known(namespace, id) {
            Known::Unknown => KnownNow::Unknown,
            Known::At(at, _) => KnownNow::At(at),
            // `epoch_time` stands still while nothing is committed: an id ahead of it may well be of this minute.
            Known::OutsideWindow if id.unix_ms() > self.start.resolver.epoch_time_ms() => KnownNow::Unknown,
            Known::OutsideWindow => KnownNow::Expired,
        }
    }

    fn watch(&mut self, namespace: NamespaceId, id: TxnId, reply: oneshot::Sender<KnownNow>) {
        self.take_gathered();
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
                    // The client may have gone.
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
        let now_us = unix_micros();
        let mut left = commits.drain(..);
        while let Some(commit) = left.next() {
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
        let Commit { txn, ticket } = commit;
        let key = (txn.namespace, txn.id);
        let bytes = bytes_of(&txn);
        if self.in_flight.contains_key(&key) {
            self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            ticket.answer(Answer::InFlight, Some(txn));
            return None;
        }
        let known = !matches!(self.start.resolver.known(txn.namespace, txn.id), Known::Unknown);
        if !known && let Some((reason, conflicts)) = self.start.resolver.find_early_abort(&txn) {
            let abort =
                EarlyAbort { id: txn.id, body_hash: Some(txn.body_hash), namespace: txn.namespace, reason, conflicts };
            if self.start.batcher.add_early_abort(abort).is_err() {
                return Some(Commit { txn, ticket });
            }
            self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.open.aborts.push(Waiter { ticket, bytes: 0, spent: Some(txn) });
        } else {
            if self.start.batcher.offer(&txn, now_us).is_err() {
                return Some(Commit { txn, ticket });
            }
            let spent = (bytes <= SPENT_BYTES_MAX).then_some(txn);
            self.open.txns.push(Waiter { ticket, bytes, spent });
        }
        self.in_flight.insert(key, ());
        self.opened();
        None
    }

    fn abort(&mut self, namespace: NamespaceId, id: TxnId, ticket: Ticket) {
        // What was asked before comes before.
        self.take_gathered();
        match self.known(namespace, id) {
            KnownNow::InFlight => return ticket.answer(Answer::InFlight, None),
            KnownNow::At(at) => return ticket.answer(Answer::Stored(at), None),
            KnownNow::Expired => return ticket.answer(Answer::Expired, None),
            KnownNow::Unknown => {}
        }
        let abort = EarlyAbort { id, body_hash: None, namespace, reason: Reason::ClientAbort, conflicts: Vec::new() };
        if self.start.batcher.add_early_abort(abort).is_err() {
            self.deferred.push_back(Message::Abort(namespace, id, ticket));
            return;
        }
        self.in_flight.insert((namespace, id), ());
        self.open.aborts.push(Waiter { ticket, bytes: 0, spent: None });
        self.opened();
    }

    fn fence(&mut self, namespace: NamespaceId, id: TxnId, ticket: Ticket) {
        self.take_gathered();
        match self.known(namespace, id) {
            KnownNow::At(at) => return ticket.answer(Answer::Stored(at), None),
            KnownNow::Expired => return ticket.answer(Answer::Expired, None),
            // A fence of an id in flight is decided behind it, in the same epoch or a later one.
            KnownNow::InFlight | KnownNow::Unknown => {}
        }
        if self.start.batcher.fence(FenceItem { id, namespace }).is_err() {
            self.deferred.push_back(Message::Fence(namespace, id, ticket));
            return;
        }
        self.open.fences.push((ticket, id));
        self.opened();
    }

    fn seal_if_due(&mut self) {
        if !self.sealed.is_empty() {
            return;
        }
        let due = match (self.start.epoch_length, self.opened_at) {
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
            match self.start.batcher.import(&versions) {
                Ok(()) => self.open.import = Some((reply, size_of_val(&*versions))),
                Err(_) => self.imports.push_front((versions, reply)),
            }
        }
        let epoch = self.start.epochs.next_of(self.start.group);
        let clock_ms = unix_micros() / 1000;
        let batch = Arc::new(self.start.batcher.seal(epoch, epoch, self.start.control, clock_ms));
        self.image_bytes += (batch.keys.len() + batch.values.len() + 64 * batch.txns.len()) as u64;
        self.sealed.push_back((std::mem::take(&mut self.open), Instant::now()));
        self.opened_at = None;
        let _ = self.log.send(Job::Append(batch));
        for message in std::mem::take(&mut self.deferred) {
            self.handle(message);
        }
        if !self.imports.is_empty() {
            self.opened();
        }
    }

    fn durable(&mut self, batch: Arc<Batch>) {
        let durable_at = Instant::now();
        let (waiters, sealed_at) = self.sealed.pop_front().expect("a durable batch was sealed here");
        self.start.epochs.entry(batch);
        // The disk is free again: what has gathered goes first, and is written while this epoch is resolved.
        self.take_gathered();
        self.seal_if_due();
        let mut waiters = Some(waiters);
        while let Some(input) = self.start.epochs.poll() {
            let waiters = waiters.take().unwrap_or_default();
            let control = input.batches.iter().map(|batch| batch.control).max().unwrap_or_default();
            self.apply_controls(control);
            self.start.policies.advance(input.epoch).iter().for_each(&mut self.start.on_slot);
            self.resolve(input, waiters, sealed_at, durable_at);
        }
        if self.sealed.is_empty() {
            self.apply_controls(self.start.control);
        }
    }

    fn resolve(&mut self, input: EpochInput, waiters: Waiters, sealed_at: Instant, durable_at: Instant) {
        let operations = input.batches.iter().map(|b| b.reads.len() + b.writes.len()).sum();
        let executor = BySize { workers: &self.start.workers, operations };
        let outcome = self.start.resolver.resolve(&input, &self.start.policies.policies(), &executor);
        let timing = Timing::resolved_now(sealed_at, durable_at, self.start.policies.call_times());
        self.shared.metrics.count_epoch(&outcome, durable_at - sealed_at, timing.resolved_at - durable_at);
        self.shared.published.note_epoch_took(timing.resolved_at - timing.sealed_at);
        for fallback in &outcome.fallbacks {
            self.start.policies.fell_back(fallback.level);
        }
        let epoch = Arc::new(ResolvedEpoch::new(input, outcome, timing));
        self.start.visibility.note_epoch(epoch.outcome.epoch, &epoch.last_lsns().collect::<Vec<_>>());
        self.shared.cache.publish(Arc::clone(&epoch));
        self.publish_stores();
        self.publish_epoch();
        // Clients first: waking the log thread and the pushes costs an idle service a noticeable part of its latency.
        self.answer(&epoch, waiters);
        self.tell_watchers(&epoch);
        let _ = self.log.send(Job::Outcome(epoch));
        self.shared.published.wake();
        if self.image_bytes >= self.start.image_every_bytes && self.imaging.is_none() {
            self.begin_image();
        }
    }

    fn answer(&mut self, epoch: &Arc<ResolvedEpoch>, waiters: Waiters) {
        let outcome = &epoch.outcome;
        let decided = |item: u32| Answer::Decided { epoch: Arc::clone(epoch), item };
        for batch in &epoch.input.batches {
            for txn in &batch.txns {
                self.in_flight.remove(&(txn.namespace, txn.id));
            }
            for abort in &batch.early_aborts {
                self.in_flight.remove(&(abort.namespace, abort.id));
            }
        }
        let mut bytes = 0;
        let mut answers = Vec::with_capacity(waiters.txns.len() + waiters.aborts.len());
        for (ix, (waiter, decision)) in waiters.txns.into_iter().zip(&outcome.decisions).enumerate() {
            bytes += waiter.bytes;
            let answer = match *decision {
                Decision::Committed { .. } | Decision::Aborted { .. } => decided(ix as u32),
                Decision::Replayed { original } => Answer::Stored(original),
                Decision::BodyMismatch => Answer::BodyMismatch,
                Decision::Expired => Answer::Expired,
            };
            answers.push((waiter.ticket, Answered { answer, spent: waiter.spent }));
        }
        self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        for (waiter, at) in waiters.aborts.into_iter().zip(&outcome.early_aborts) {
            let answer = if at.epoch == outcome.epoch { decided(at.item) } else { Answer::Stored(*at) };
            answers.push((waiter.ticket, Answered { answer, spent: waiter.spent }));
        }
        self.start.dispatch.answer(answers);
        for ((ticket, _), result) in waiters.fences.into_iter().zip(&outcome.fences) {
            let answer = match *result {
                FenceResult::Fenced => Answer::Fenced,
                FenceResult::Known(at) => Answer::Stored(at),
                FenceResult::Expired => Answer::Expired,
            };
            ticket.answer(answer, None);
        }
        if let Some((reply, bytes)) = waiters.import {
            self.shared.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            let _ = reply.send(outcome.imported);
        }
    }

    /// Applies durable changes of configuration up to K(e), in the order of the control log.
    fn apply_controls(&mut self, upto: ControlIndex) {
        while self.durable_controls.front().is_some_and(|(index, _)| *index <= upto) {
            let Some((index, change)) = self.durable_controls.pop_front() else { break };
            let changed = self.start.declared.apply(index, &change);
            match &change {
                ControlChange::DeclareStore(spec) => {
                    self.start.resolver.declare_store(spec.clone());
                    self.push_anew(spec.id);
                }
                ControlChange::AttachPush { store } if changed => self.push_anew(*store),
                ControlChange::DetachPush(detachment) if changed => {
                    self.start.visibility.track(detachment.store, Delivery::Detached, Lsn(0));
                    // What it held back may go now.
                    let _ = self.log.send(Job::Truncate { below: self.image_at, applied: self.applied() });
                }
                ControlChange::SetBounds(bounds) => self.start.resolver.set_bounds(*bounds),
                ControlChange::ActivatePlugin { choice, from } => {
                    let next = self.start.resolver.last().next();
                    let changed = self.start.policies.activate(index, choice, *from, next);
                    changed.iter().for_each(&mut self.start.on_slot);
                }
                ControlChange::AttachPush { .. } | ControlChange::DetachPush(_) | ControlChange::SkipRecord(_) => {}
                ControlChange::CreateKey(_) | ControlChange::RevokeKey { .. } | ControlChange::Lost => {}
            }
            self.publish_stores();
            (self.start.on_control)(index, &change);
            if let Some(reply) = self.controls.pop_front() {
                let _ = reply.send(());
            }
            self.shared.published.wake();
        }
    }

    /// Begins to watch a store whose push begins now. It may be another storage than before: its own watermark says
    /// what it holds.
    fn push_anew(&mut self, store: StoreId) {
        let Some(declared) = self.start.declared.store(store) else { return };
        self.start.visibility.track(store, delivery(&declared.spec), self.start.resolver.head_lsn(store));
        self.start.visibility.rewound(store, Lsn(0));
        self.heard.insert(store, Heard::nothing());
    }

    /// Returns what the stores that the log waits for have applied.
    fn applied(&self) -> Vec<(StoreId, Epoch)> {
        let attached = self.start.declared.stores().filter(|store| store.detached.is_none());
        attached.map(|store| (store.spec.id, self.start.visibility.applied(store.spec.id))).collect()
    }

    fn publish_stores(&self) {
        let visibility = &self.start.visibility;
        self.shared.published.set_stores(self.start.declared.stores().map(|declared| {
            let store = declared.spec.id;
            let progress = StoreProgress {
                head: self.start.resolver.head_lsn(store),
                acked: visibility.acked_lsn(store),
                applied: visibility.applied(store),
                detached: declared.detached.is_some(),
            };
            (store, progress)
        }));
    }

    fn publish_epoch(&self) {
        let resolver = &self.start.resolver;
        self.shared.published.set_epoch(resolver.last(), resolver.floor());
        let stats = resolver.stats();
        let metrics = &self.shared.metrics;
        metrics.epoch.set(resolver.last().0);
        metrics.floor.set(resolver.floor().0);
        metrics.rows.set(stats.rows);
        metrics.row_bytes.set(stats.row_bytes);
        metrics.history_bytes.set(stats.history_bytes);
        metrics.ids.set(stats.ids);
    }

    fn begin_image(&mut self) {
        self.image_bytes = 0;
        let (control, slots) = (self.applied_control(), self.start.policies.slots().read().image());
        self.imaging = Some(Imaging::begin(&mut self.start.resolver, control, slots));
    }

    /// Copies for some time, the node's last image to its end, and hands the image on when it is whole.
    fn go_on_with_image(&mut self, patience: Duration) {
        let Some(imaging) = &mut self.imaging else { return };
        if let Some(taken) = imaging.go_on(&mut self.start.resolver, patience) {
            self.imaging = None;
            self.image_at = taken.epoch();
            let (image, last) = (Box::new(taken), patience == Duration::MAX);
            let _ = self.log.send(Job::Image { image, applied: self.applied(), last });
        }
    }

    /// Returns the last control entry that the resolver's state includes.
    fn applied_control(&self) -> ControlIndex {
        match self.durable_controls.front() {
            Some((next, _)) => ControlIndex(next.0 - 1),
            None => self.start.control,
        }
    }

    /// Finishes the epochs under way, takes an image and ends.
    fn stop(mut self, messages: &Receiver<Message>) -> Ended {
        let mut last = self.start.gathered.close();
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
                Ok(Message::Abort(_, _, ticket) | Message::Fence(_, _, ticket)) => {
                    ticket.answer(Answer::Stopping, None);
                }
                Ok(Message::LogFailed(reason)) => return self.fail(messages, reason),
                Ok(message @ (Message::Durable(_) | Message::ControlDurable(..))) => self.handle(message),
                Ok(_) => {}
                Err(_) => break,
            }
        }
        if self.start.resolver.last() > self.image_at {
            self.begin_image();
            self.go_on_with_image(Duration::MAX);
        }
        let _ = self.log.send(Job::Stop);
        Ended::Stopped
    }

    /// Tells everybody who waits that the outcome is unknown, and ends.
    fn fail(mut self, messages: &Receiver<Message>, reason: String) -> Ended {
        refuse(self.start.gathered.close(), &Answer::Unknown);
        let open = std::mem::take(&mut self.open);
        for waiters in self.sealed.drain(..).map(|(waiters, _)| waiters).chain(std::iter::once(open)) {
            waiters.txns.into_iter().chain(waiters.aborts).for_each(|w| w.ticket.answer(Answer::Unknown, w.spent));
            waiters.fences.into_iter().for_each(|(ticket, _)| ticket.answer(Answer::Unknown, None));
        }
        for message in self.deferred.drain(..).chain(messages.try_iter()) {
            match message {
                Message::Commit(commits) => refuse(commits, &Answer::Unknown),
                Message::Abort(_, _, ticket) | Message::Fence(_, _, ticket) => ticket.answer(Answer::Unknown, None),
                _ => {}
            }
        }
        Ended::LogFailed(reason)
    }
}

/// Answers commits that are not taken in.
fn refuse(commits: Vec<Commit>, answer: &Answer) {
    commits.into_iter().for_each(|commit| commit.ticket.answer(answer.clone(), Some(commit.txn)));
}

/// Returns who receives a store's records.
#[must_use]
pub fn delivery(spec: &StoreSpec) -> Delivery {
    if spec.adaptor.is_some() { Delivery::Pushed } else { Delivery::LogOnly }
}

/// Reads the clock for arrival stamps and `epoch_time`, which tolerate any error in it.
fn unix_micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}
