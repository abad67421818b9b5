//! What stores have applied: takes their reports, detaches those that hold the log back too long, tells their progress.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use tribunal_core::executor::ShardExecutor;
use tribunal_types::{
    ControlChange, ControlIndex, DeclaredStore, Detachment, Epoch, Lsn, NamespaceId, NodeId, StoreId,
};

use crate::effect::Effect;
use crate::event::{PushReport, StorageAt, Waiters};
use crate::policy_runner::PolicyRunner;
use crate::replica::Replica;
use crate::store_watch::{AfterFlush, delivery};

/// Progress of one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreProgress {
    /// Newest record of its log.
    pub head: Lsn,
    /// Newest record that the storage has acknowledged as durable.
    pub acked: Lsn,
    /// Snapshot that the storage holds.
    pub applied: Epoch,
    /// `acked` and `applied` are what the storage has reported since the push was started. Until it has, both are 0
    /// and mean nothing.
    pub reported: bool,
    /// `applied` is what another node has told, and counts up to this time of the monotonic clock.
    pub known_until: Option<Duration>,
    /// Nothing is pushed to the storage any more, so nothing more will be applied.
    pub detached: bool,
    /// Its rows, if it is tracked.
    pub rows: u64,
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor> Replica<W, P, E> {
    /// Takes over what a push has reported, unless that push is not the store's any more.
    pub(crate) fn push_reported(&mut self, store: StoreId, generation: ControlIndex, report: PushReport) {
        let PushReport { opened, rewound, acked, damaged, stopped } = report;
        let Some(declared) = self.replicated.stores().store(store) else { return };
        if declared.push() != generation || declared.detached.is_some() {
            return;
        }
        if opened {
            self.watches.opened(store);
            // What was reported before may be void: it may have been rebuilt, and perhaps not to its end.
            self.visibility.rewound(store, Lsn(0));
        }
        if rewound.is_some() || acked.is_some() {
            self.watches.reported(store);
        }
        if damaged {
            self.watches.damaged(store);
        }
        let embedded = declared.spec.is_embedded();
        let before = self.visibility.applied(store);
        rewound.into_iter().for_each(|lsn| self.visibility.rewound(store, lsn));
        acked.into_iter().for_each(|lsn| self.visibility.acked(store, lsn));
        if acked.is_some() && embedded {
            self.flushed(store, before);
        }
        if stopped && embedded {
            self.watches.stopped(store);
        }
        self.effects.push_back(Effect::Progress);
    }

    /// Takes over what another member has told of storages to which it pushes, unless another node does by now, and of its copies
    /// of embedded stores.
    pub(crate) fn pushes_told(&mut self, from: NodeId, stores: &[StorageAt]) {
        let now = self.now.monotonic;
        for &StorageAt { store, push, acked } in stores {
            let Some(declared) = self.replicated.stores().store(store) else { continue };
            if declared.push() != push || declared.detached.is_some() || from == self.group.node {
                continue;
            }
            // What only a member has that leaves is about to be nowhere.
            let is_leaving = self.replicated.members().leaves(from);
            if declared.spec.is_embedded() && !is_leaving {
                self.watches.copy_told(store, from, acked, now);
                if self.watches.left_out(store).is_some() {
                    self.watches.leave_out(store, self.visibility.applied_with(store, acked));
                }
            } else if declared.is_external() && declared.pusher.is_some_and(|pusher| pusher.node == from) {
                self.watches.told(store, now);
                self.visibility.told(store, acked);
            }
        }
        self.effects.push_back(Effect::Progress);
    }

    /// Returns how far the storages are to which `node`, this one, pushes, as they have reported here, and its copies of
    /// embedded stores on their disk. A copy that is broken, damaged or still being opened is left out.
    pub fn pushed_by(&self, node: NodeId) -> impl Iterator<Item = StorageAt> {
        let pushes = move |store: &&DeclaredStore| {
            let is_pusher = store.pusher.is_some_and(|pusher| pusher.node == node);
            store.detached.is_none() && (store.spec.is_embedded() || store.is_external() && is_pusher)
        };
        let own = self.replicated.stores().stores().filter(pushes);
        own.filter(|store| self.watches.is_whole(store.spec.id)).map(|store| StorageAt {
            store: store.spec.id,
            push: store.push(),
            acked: self.visibility.acked_lsn(store.spec.id),
        })
    }

    /// Has the log truncated if an embedded store that had applied `before` was what it waited for: now, instead of with the
    /// next image.
    fn flushed(&mut self, store: StoreId, before: Epoch) {
        let effect = match AfterFlush::of(before, self.visibility.applied(store), self.image_at) {
            AfterFlush::Nothing => return,
            AfterFlush::Flush => Effect::Flush(store),
            AfterFlush::Truncate => Effect::Truncate { below: self.image_at, applied: self.applied() },
        };
        self.effects.push_back(effect);
    }

    /// Proposes to truncate the log without a store that holds back too much of it. Of a storage, only the node
    /// proposes it that pushes to it: the others know less. Of an embedded store, every member has a copy, and nothing is
    /// proposed: instead of the one that is broken here, this node's log waits for the others. What none of them has on its disk,
    /// only the log has, and it is kept.
    pub(crate) fn over_quota(
        &mut self,
        store: StoreId,
        bound: Epoch,
        complaint: Option<String>,
        opens_at: Option<Lsn>,
    ) {
        let now = self.now.monotonic;
        let Some(declared) = self.replicated.stores().store(store) else { return };
        let applied = self.visibility.applied(store);
        let is_elsewhere = declared.pusher.is_some_and(|pusher| pusher.node != self.group.node);
        if declared.detached.is_some() || is_elsewhere || applied >= bound {
            return;
        }
        let embedded = declared.spec.is_embedded();
        let declared = declared.generation;
        let may_detach = if embedded {
            self.watches.has_opened_or_failed(store, opens_at, now)
        } else {
            self.watches.exceeds(store, bound)
        };
        // An embedded store flushes when it is told to, which the same truncation does; unless it is broken.
        let may_flush = || embedded && self.watches.is_known(store);
        if !may_detach || may_flush() && !self.watches.fails_to_flush(store, applied, now) {
            return;
        }
        let acked = self.visibility.acked_lsn(store);
        let complaint = complaint.map_or(String::new(), |text| format!("; the storage: {text}"));
        let reason = format!("it holds more than {} of the log back{complaint}", self.settings.quota);
        let members = self.replicated.members();
        if embedded && members.present().nth(1).is_some() {
            let best = self.watches.best_copy(store, now, |node| !members.leaves(node));
            let best = best.map_or(Epoch(0), |lsn| self.visibility.applied_with(store, lsn));
            if best < bound {
                self.effects.push_back(Effect::OnlyInLog(store, reason));
            } else if self.watches.leave_out(store, best) {
                self.effects.push_back(Effect::LeftOut(store, reason));
            }
            return;
        }
        self.watches.detaching(store);
        let at = self.epochs.last_complete();
        self.propose_control(ControlChange::DetachPush(Detachment { store, declared, at, acked, reason }), None);
    }

    /// Begins to watch a store whose push begins now. It may be another storage than before: its own watermark says
    /// what it holds.
    pub(crate) fn restart_push(&mut self, store: StoreId) {
        let Some(declared) = self.replicated.stores().store(store) else { return };
        let head = self.resolver.head_lsn(store);
        self.visibility.track(store, delivery(&declared.spec), head);
        self.visibility.rewound(store, Lsn(0));
        self.watches.start(store, head, self.epochs.last_complete(), self.now.monotonic);
    }

    /// Returns what the stores that the log waits for have applied: of an embedded store whose copy is broken here, what others
    /// have.
    pub fn applied(&self) -> Vec<(StoreId, Epoch)> {
        let attached = self.replicated.stores().stores().filter(|store| store.detached.is_none());
        let applied = |store| self.watches.left_out(store).unwrap_or_else(|| self.visibility.applied(store));
        attached.map(|store| (store.spec.id, applied(store.spec.id))).collect()
    }

    /// Returns the progress of every store.
    pub fn stores(&self) -> impl Iterator<Item = (StoreId, StoreProgress)> {
        self.replicated.stores().stores().map(|declared| {
            let store = declared.spec.id;
            let head = self.resolver.head_lsn(store);
            let pushed = declared.spec.adaptor.is_some() && declared.detached.is_none();
            // Readers of an embedded store apply what it lacks themselves: what it acknowledges is what is on its disk. One that is
            // broken is not read.
            let fresh = pushed && declared.spec.is_embedded() && self.watches.is_known(store);
            let progress = StoreProgress {
                head,
                reported: !pushed || self.watches.is_known(store),
                known_until: if pushed { self.watches.known_until(store) } else { None },
                acked: if fresh { head } else { self.visibility.acked_lsn(store) },
                applied: if fresh { self.visibility.last_complete() } else { self.visibility.applied(store) },
                detached: declared.detached.is_some(),
                rows: self.resolver.rows_of(store),
            };
            (store, progress)
        })
    }

    /// Returns the rows of every store, with its tenant.
    pub fn rows(&self) -> impl Iterator<Item = (NamespaceId, u64)> {
        let stores = self.replicated.stores().stores();
        stores.map(|declared| (declared.spec.namespace, self.resolver.rows_of(declared.spec.id)))
    }
}
