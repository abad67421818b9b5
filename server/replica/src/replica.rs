//! The replica: its state, events in and effects out.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use tribunal_core::batcher::Batcher;
use tribunal_core::control::ReplicatedState;
use tribunal_core::epochs::{Epochs, FoldPosition};
use tribunal_core::executor::ShardExecutor;
use tribunal_core::id_table::Known;
use tribunal_core::proposals::Proposals;
use tribunal_core::resolver::Resolver;
use tribunal_core::visibility::Visibility;
use tribunal_types::{
    Batch, BodyHash, ControlIndex, Epoch, GroupId, ImportedVersion, NamespaceId, TxnId, TxnRequest, Verdict,
};

use crate::answer::{Answer, Imported, KnownNow};
use crate::backlog::Backlog;
use crate::control_queue::ControlQueue;
use crate::demand::Demand;
use crate::effect::Effect;
use crate::event::{Commit, Event, Now, Waiters};
use crate::idle_seal::IdleSeal;
use crate::image::ImageCapture;
use crate::items::PendingItems;
use crate::leading::Leading;
use crate::pace::Pace;
use crate::policy_runner::PolicyRunner;
use crate::stall::Stalls;
use crate::store_watch::{StartTruncation, StoreWatches};
use crate::watchers::Watchers;

/// Settings of when a replica acts; they never affect its decisions.
#[derive(Clone, Debug)]
pub struct Settings {
    /// An epoch is sealed this long after its first item; `None`: as soon as the previous batch is durable.
    pub epoch_length: Option<Duration>,
    /// Bytes of decided epochs after which a new image is taken; another is taken at the end. [`u64::MAX`] disables
    /// images.
    pub image_every_bytes: u64,
    /// Bytes charged for an epoch in addition to its items: deciding it again takes time, whatever its content.
    pub epoch_bytes: u64,
    /// How much of the log a store may hold back, as text.
    pub quota: String,
    /// Maximum number of own batches in flight. 1 if only the disk is waited for: each sync then carries everything
    /// that arrived in the meantime.
    pub in_flight_max: usize,
    /// Minimum time between two own batches with items while the earlier one is undecided. Zero if only the disk is
    /// waited for.
    pub pause_min: Duration,
    /// Maximum bytes of a batch, unless it is a single item. Long batches would delay the batches after them on the way
    /// to other nodes.
    pub batch_bytes_max: usize,
    /// A group that other groups wait for is taken over after this duration without progress; `None` if no other node
    /// could lead it. If set, [`Event::Tick`] must come at a steady pace.
    pub take_over_after: Option<Duration>,
}

/// Initial state of a replica, after recovery. `P` runs the plugins, `E` the shards.
pub struct ReplicaStart<P, E> {
    /// The own group.
    pub group: GroupId,
    /// Whether the node leads its own group from the start, because no other node could.
    pub leads: bool,
    /// The resolver, at its last complete epoch.
    pub resolver: Resolver,
    /// The fold of the groups' logs.
    pub epochs: Epochs,
    /// The open batch.
    pub batcher: Batcher,
    /// Progress of the stores.
    pub visibility: Visibility,
    /// The state built from the control log.
    pub replicated: ReplicatedState,
    /// The last durable control entry.
    pub control: ControlIndex,
    /// A random number that distinguishes the proposals of this process from those of others.
    pub run: u64,
    /// The policies in force.
    pub policies: P,
    /// The shards' workers.
    pub executor: E,
    /// Epochs decided again since the last state image, which the next start would also decide again.
    pub replayed: u64,
    /// Settings of when things happen.
    pub settings: Settings,
}

/// A batch that was proposed and is not decided yet.
pub(crate) struct ProposedBatch<W: Waiters> {
    pub(crate) batch: Arc<Batch>,
    pub(crate) items: PendingItems<W>,
    pub(crate) sealed_at: Duration,
    /// When its entry was taken; `None` until it is agreed on.
    pub(crate) durable_at: Option<Duration>,
}

/// Progress of stopping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopping {
    /// No stop was requested.
    No,
    /// Work is in flight.
    Finishing,
    /// No work is left.
    Done,
}

/// The deterministic state of one node and its pending effects.
///
/// Invariants:
/// * an epoch is resolved only once the entries of all members are present, in epoch order and after the control
///   entries that `Epochs` requests before it; control entries are applied at no other time;
/// * at most `in_flight_max` own batches are in flight, each starting where the previous one ends;
/// * every waiter of an item or an import is answered exactly once.
pub struct Replica<W: Waiters, P, E> {
    pub(crate) group: GroupId,
    pub(crate) resolver: Resolver,
    pub(crate) epochs: Epochs,
    pub(crate) batcher: Batcher,
    pub(crate) visibility: Visibility,
    pub(crate) replicated: ReplicatedState,
    pub(crate) policies: P,
    pub(crate) executor: E,
    pub(crate) settings: Settings,
    /// The time of the current event.
    pub(crate) now: Now,
    pub(crate) effects: VecDeque<Effect<W>>,
    /// Whether anything was folded since the fold last had nothing to return.
    pub(crate) folded: bool,
    /// Entries of groups that have not joined yet, in log order.
    pub(crate) early: BTreeMap<GroupId, Vec<Arc<Batch>>>,
    pub(crate) open: PendingItems<W>,
    /// The time since which the open batch has contents to seal, by the monotonic clock.
    pub(crate) opened_at: Option<Duration>,
    pub(crate) proposals: Proposals<ProposedBatch<W>>,
    /// Own batches in flight in the log.
    pub(crate) writing: usize,
    /// Time at which a batch with items was last sealed.
    pub(crate) items_at: Duration,
    pub(crate) pace: Pace,
    /// Time at which all groups were last made to contribute a clock.
    pub(crate) renewed_at: Duration,
    /// Last epoch that a counted entry contributes items to.
    pub(crate) counted_to: Epoch,
    pub(crate) leading: Leading,
    pub(crate) demand: Demand,
    pub(crate) stalls: Stalls,
    /// The last durable control entry.
    pub(crate) control: ControlIndex,
    /// The last control entry carried by a sealed batch.
    pub(crate) sealed_control: ControlIndex,
    /// Position of the fold after the last resolved epoch: an image of that state continues from here.
    pub(crate) resolved_to: FoldPosition,
    /// Ids of own undecided batches, each with its body; `None` for an abort request.
    pub(crate) in_flight: HashMap<(NamespaceId, TxnId), Option<BodyHash>, FixedState>,
    pub(crate) watchers: Watchers<W>,
    /// Items that did not fit into the open batch, which is full as long as there are any.
    pub(crate) backlog: Backlog<W::Item>,
    /// Empty; kept to reuse its memory.
    pub(crate) spare_commits: Vec<Commit<W::Item>>,
    pub(crate) imports: VecDeque<(Vec<ImportedVersion>, W::Import)>,
    pub(crate) controls: ControlQueue<W::Control>,
    pub(crate) idle: IdleSeal,
    pub(crate) image_bytes: u64,
    pub(crate) image_at: Epoch,
    /// The epoch of the newest image; 0 if epochs were replayed after it at the start.
    pub(crate) newest_image: Epoch,
    /// Whether an image begins once the effects of the last epoch are carried out: of the next one, if that image would be
    /// the newest one again.
    pub(crate) image_due: bool,
    /// Whether deciding is suspended because the node lacks the code for it.
    pub(crate) waits_for_code: bool,
    pub(crate) image: Option<ImageCapture>,
    pub(crate) watches: StoreWatches,
    pub(crate) start_truncation: StartTruncation,
    /// When the log is truncated because a store was detached, or a truncation put off; by the monotonic clock.
    pub(crate) truncate_at: Option<Duration>,
    pub(crate) stopping: Stopping,
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor> Replica<W, P, E> {
    /// Starts a replica.
    #[must_use]
    pub fn new(start: ReplicaStart<P, E>, now: Now) -> Self {
        let ReplicaStart {
            group, resolver, epochs, mut batcher, visibility, replicated, control, run, replayed, ..
        } = start;
        batcher.share_epoch(epochs.members());
        batcher.limit_bytes(start.settings.batch_bytes_max);
        let image_bytes = replayed * start.settings.epoch_bytes;
        let newest_image = if replayed == 0 { resolver.last() } else { Epoch(0) };
        let mut watches = StoreWatches::default();
        let stores = replicated.stores().stores();
        let from = epochs.last_complete();
        stores.for_each(|store| watches.start(store.spec.id, resolver.head_lsn(store.spec.id), from, now.monotonic));
        let mut replica = Replica {
            group,
            controls: ControlQueue::new(control, run),
            image_at: resolver.last(),
            proposals: Proposals::new(group),
            sealed_control: epochs.control(),
            resolved_to: epochs.position(),
            demand: Demand::new(epochs.last_complete(), now.monotonic),
            resolver,
            epochs,
            batcher,
            visibility,
            replicated,
            policies: start.policies,
            executor: start.executor,
            settings: start.settings,
            now,
            effects: VecDeque::new(),
            folded: true,
            early: BTreeMap::new(),
            open: PendingItems::default(),
            opened_at: None,
            writing: 0,
            items_at: now.monotonic,
            pace: Pace::default(),
            renewed_at: now.monotonic,
            counted_to: Epoch(0),
            leading: Leading::new(start.leads),
            stalls: Stalls::default(),
            control,
            // Clients choose the ids, but not the seed.
            in_flight: HashMap::with_hasher(FixedState::with_seed(run)),
            watchers: Watchers::default(),
            backlog: Backlog::default(),
            spare_commits: Vec::new(),
            imports: VecDeque::new(),
            idle: IdleSeal::new(now.monotonic),
            image_bytes,
            newest_image,
            image_due: false,
            waits_for_code: false,
            image: None,
            watches,
            start_truncation: StartTruncation::Waits,
            truncate_at: None,
            stopping: Stopping::No,
        };
        // A node without pushes gets no report.
        replica.note_whether_stores_are_known();
        replica
    }

    /// Processes an event. All its effects must be taken with [`Replica::poll`] before the next event, or at least
    /// those that [`Replica::poll_ready`] returns.
    pub fn step(&mut self, event: Event<W>, now: Now) {
        debug_assert!(self.effects.is_empty(), "effects are taken before the next event");
        self.now = now;
        let taken = match self.stopping {
            Stopping::No if self.may_propose() && !self.leaves(self.group) => Some(event),
            Stopping::No => self.refuse(event, Answer::NotTaken, Imported::NotTaken),
            Stopping::Finishing | Stopping::Done => self.refuse(event, Answer::Stopping, Imported::Stopping),
        };
        taken.into_iter().for_each(|event| self.handle(event));
        self.watch_stalls();
    }

    /// Returns the next effect that does not require resolving an epoch; `None` if only [`Replica::poll`] has more.
    /// This lets a caller pass in several events and send the effects that other nodes wait for first.
    pub fn poll_ready(&mut self) -> Option<Effect<W>> {
        self.effects.pop_front()
    }

    /// Returns the next effect; `None` until there is another event. Resolves epochs, one at a time.
    pub fn poll(&mut self) -> Option<Effect<W>> {
        loop {
            let next = self.effects.pop_front();
            if next.is_some() || !(self.advance() || self.finish()) {
                return next;
            }
        }
    }

    /// Returns the own group, which proposes the batches of this node's clients.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Returns whether the own group is a member: it has joined and has not closed.
    #[must_use]
    pub fn is_member(&self) -> bool {
        self.epochs.is_open(self.group)
    }

    pub(crate) fn handle(&mut self, event: Event<W>) {
        match event {
            Event::Commits(commits) => self.commits(commits),
            Event::Abort(namespace, id, waiter) => self.abort(namespace, id, waiter),
            Event::Fence(namespace, id, waiter) => self.fence(namespace, id, waiter),
            Event::Watch(namespace, id, watch) => self.watch(namespace, id, watch),
            Event::Import(versions, waiter) => self.import(versions, waiter),
            Event::Control(change, waiter) => self.propose_control(change, Some(waiter)),
            Event::Entry(batch) => self.entry(batch),
            Event::Appended(last) => self.demanded(last),
            Event::TermBegun { group, leads } => {
                self.term_begun(group, leads);
                self.seal_if_due();
            }
            Event::LeaderLost(group) => self.leader_lost(group),
            Event::NotProposed(batch) => self.not_proposed(&batch),
            Event::ControlEntry(index, entry) => {
                // Batches sealed from now on carry it; an empty batch, if there is no other. Another group's batch may
                // have been waiting for it.
                self.control = index;
                self.controls.durable(index, entry);
                self.folded = true;
            }
            Event::Pushed { store, push, report } => self.push_reported(store, push, report),
            Event::PushesReported { from, stores } => self.pushes_told(from, &stores),
            Event::Propose(change) => self.propose_control(change, None),
            Event::OverQuota { store, bound, complaint, opens_at, needs_all } => {
                self.over_quota(store, bound, complaint, opens_at, needs_all)
            }
            Event::Tick => {
                self.seal_if_due();
                self.seal_idle_if_due();
                self.seal_for_others();
                self.truncate_after_start();
                self.truncate_if_due();
            }
            Event::TakeImage => self.image_due |= self.image.is_none(),
            Event::CopyImage => self.copy_image(),
            Event::TruncationPutOff => self.truncate_later(),
            Event::Stop => {
                self.stopping = Stopping::Finishing;
                // The next start truncates the log.
                self.truncate_at = None;
                self.seal_if_due();
            }
            Event::StopNow => self.stop_now(),
            Event::LogFailed => self.fail(),
        }
    }

    /// Returns the duration after which a [`Event::Tick`] has an effect without any other event; `None` if never.
    #[must_use]
    pub fn wake_in(&self, now: Now) -> Option<Duration> {
        if self.image.is_some() || self.start_truncation == StartTruncation::Due {
            return Some(Duration::ZERO);
        }
        let opened = self.opened_at.filter(|_| self.writing < self.settings.in_flight_max && self.may_propose());
        let due = match (self.settings.epoch_length, opened) {
            (Some(length), Some(opened)) => Some(opened + length),
            (None, Some(_)) => self.paused_until(),
            (_, None) => None,
        };
        let due = due.map(|due| due.saturating_sub(now.monotonic));
        let due = due.or_else(|| self.last_idle_epoch().map(|_| self.idle.due_in(now.monotonic)));
        let truncation = self.truncate_at.map(|at| at.saturating_sub(now.monotonic));
        due.into_iter().chain(truncation).min()
    }

    /// Returns whether new items are sealed later, together with the items after them: the log is busy, or a fixed
    /// length has begun.
    #[must_use]
    pub fn gathers(&self) -> bool {
        self.writing > 0 || self.opened_at.is_some()
    }

    /// Returns whether there may be a complete, undecided epoch: [`Replica::poll`] finds out.
    #[must_use]
    pub fn may_decide(&self) -> bool {
        self.folded
    }

    /// Returns whether an image is being taken: [`Event::CopyImage`] continues it.
    #[must_use]
    pub fn takes_image(&self) -> bool {
        self.image.is_some()
    }

    /// Returns what a commit would get now if it were alone: its verdict, or the answer for an id that is already
    /// known.
    ///
    /// # Errors
    /// The answer for a known id.
    pub fn dry_run(&mut self, txn: &TxnRequest, now: Now) -> Result<Verdict, Answer> {
        if let Some(undecided) = self.undecided(txn) {
            return Err(undecided);
        }
        // A commit would be sealed at the current time, not at the time of the last epoch.
        let time_ms = now.unix_ms().max(self.resolver.epoch_time_ms());
        match self.resolver.known_at(txn.namespace, txn.id, time_ms) {
            Known::At(_, Some(body)) if body != txn.body_hash => return Err(Answer::BodyMismatch),
            Known::At(at, _) => return Err(Answer::Stored(at)),
            Known::OutsideWindow => return Err(Answer::Expired),
            Known::Unknown => {}
        }
        Ok(self.resolver.dry_run(self.epochs.last_complete(), txn, &self.policies.policies()))
    }

    /// Judges read-only transactions on the current state.
    #[must_use]
    pub fn judge(&mut self, txns: &[TxnRequest]) -> Vec<Verdict> {
        self.resolver.dry_runs(self.epochs.last_complete(), txns, &self.policies.policies())
    }

    /// Returns the answer for a transaction whose id is waiting for its epoch; `None` if it is not.
    pub(crate) fn undecided(&self, txn: &TxnRequest) -> Option<Answer> {
        match self.in_flight.get(&(txn.namespace, txn.id))? {
            Some(body) if *body != txn.body_hash => Some(Answer::BodyMismatch),
            _ => Some(Answer::InFlight),
        }
    }

    /// Returns the answer for a transaction whose id was decided or waits for its epoch: it needs no new decision, so a
    /// list that repeats an id gets the stored verdict for each repetition.
    pub(crate) fn answer_to_known(&self, txn: &TxnRequest, known: Known) -> Option<Answer> {
        self.undecided(txn).or_else(|| match known {
            Known::At(_, Some(body)) if body != txn.body_hash => Some(Answer::BodyMismatch),
            Known::At(at, _) => Some(Answer::Stored(at)),
            Known::Unknown | Known::OutsideWindow => None,
        })
    }

    /// Returns the status of an id.
    #[must_use]
    pub fn known(&self, namespace: NamespaceId, id: TxnId) -> KnownNow {
        if self.in_flight.contains_key(&(namespace, id)) {
            return KnownNow::InFlight;
        }
        match self.resolver.known(namespace, id) {
            Known::Unknown => KnownNow::Unknown,
            Known::At(at, _) => KnownNow::At(at),
            // `epoch_time` does not advance while nothing commits: an id ahead of it may well be current.
            Known::OutsideWindow if id.unix_ms() > self.resolver.epoch_time_ms() => KnownNow::Unknown,
            Known::OutsideWindow => KnownNow::Expired,
        }
    }

    /// Returns the first epoch to name when the own group joins: one that no node is waiting for at present.
    #[must_use]
    pub fn joining_epoch(&self) -> Epoch {
        self.demand.ahead().max(self.epochs.last_complete()).next()
    }

    /// Returns the last complete epoch.
    #[must_use]
    pub fn last_complete(&self) -> Epoch {
        self.epochs.last_complete()
    }

    /// Returns whether items wait for a later batch because the open one is full.
    #[must_use]
    pub fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Returns whether deciding is suspended because the node lacks the code for it.
    #[must_use]
    pub fn waits_for_code(&self) -> bool {
        self.waits_for_code
    }

    /// Returns the position of the fold after the last resolved epoch: an image of that state continues from here.
    #[must_use]
    pub fn resolved_to(&self) -> &FoldPosition {
        &self.resolved_to
    }

    /// Returns the fold of the groups' logs.
    #[must_use]
    pub fn epochs(&self) -> &Epochs {
        &self.epochs
    }

    /// Returns the resolver.
    #[must_use]
    pub fn resolver(&self) -> &Resolver {
        &self.resolver
    }

    /// Returns the state built from the control log.
    #[must_use]
    pub fn replicated(&self) -> &ReplicatedState {
        &self.replicated
    }

    /// Returns the policy runner.
    #[must_use]
    pub fn policies(&self) -> &P {
        &self.policies
    }

    /// Takes back the memory of a batch that is no longer needed.
    pub fn recycle(&mut self, batch: Batch) {
        self.batcher.recycle(batch);
    }

    /// Returns an empty vector for the next [`Event::Commits`], reusing the memory of the last one if it was not large.
    #[must_use]
    pub fn spare_commits(&mut self) -> Vec<Commit<W::Item>> {
        core::mem::take(&mut self.spare_commits)
    }

    pub(crate) fn answer(&mut self, waiter: W::Item, answer: Answer, spent: Option<Box<TxnRequest>>) {
        self.effects.push_back(Effect::Answer(waiter, answer, spent));
    }
}
