//! Applied positions of stores: processes their reports, detaches stores that hold the log back too long, and reports
//! progress.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use tribunal_core::executor::ShardExecutor;
use tribunal_types::{
    ControlChange, ControlIndex, DeclaredStore, Detachment, Epoch, Lsn, NamespaceId, NodeId, StoreId,
};

use crate::effect::{AppliedTo, Effect};
use crate::event::{PushReport, StorageAt, Waiters};
use crate::policy_runner::PolicyRunner;
use crate::replica::Replica;
use crate::store_watch::{AfterFlush, StartTruncation, delivery};

/// Time after which a store that was detached counts as detached for good. An operator's attachment of a stopped store is
/// two changes, which the node gives up after 30 s.
const ATTACHED_AGAIN_WITHIN: Duration = Duration::from_secs(35);

/// Progress of one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreProgress {
    /// Newest record of its log.
    pub head: Lsn,
    /// Last complete epoch: all of its records, and those of earlier epochs, are at `head` or before.
    pub complete: Epoch,
    /// Newest record that the storage has acknowledged as durable.
    pub acked: Lsn,
    /// Snapshot that the storage contains.
    pub applied: Epoch,
    /// Whether the storage has reported `acked` and `applied` since the push was started. Until then, both are 0 and
    /// meaningless.
    pub reported: bool,
    /// If another node reported `applied`: the time of the monotonic clock until which that report counts.
    pub known_until: Option<Duration>,
    /// Whether nothing is pushed to the storage any more, so that nothing more will be applied.
    pub detached: bool,
    /// Its rows, if it is tracked.
    pub rows: u64,
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor> Replica<W, P, E> {
    /// Processes a push's report, unless that push is no longer the store's.
    pub(crate) fn push_reported(&mut self, store: StoreId, push: ControlIndex, report: PushReport) {
        let PushReport { opened, rewound, acked, damaged, stopped } = report;
        let Some(declared) = self.replicated.stores().store(store) else { return };
        if declared.push() != push || declared.detached.is_some() {
            return;
        }
        if opened {
            self.watches.opened(store);
            // Earlier reports may be void: the store may have been rebuilt, and perhaps not to its end.
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
        self.note_whether_stores_are_known();
    }

    /// Processes another member's report of the storages it pushes to, except storages that another node pushes to by
    /// now, and of its copies of embedded stores.
    pub(crate) fn pushes_told(&mut self, from: NodeId, stores: &[StorageAt]) {
        let now = self.now.monotonic;
        for &StorageAt { store, push, acked } in stores {
            let Some(declared) = self.replicated.stores().store(store) else { continue };
            if declared.push() != push || declared.detached.is_some() || from == self.group.node {
                continue;
            }
            // Data that only a leaving member has is about to be lost.
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
        self.note_whether_stores_are_known();
    }

    /// Makes the truncation that follows a start due once the positions of all stores that the log waits for are known.
    pub(crate) fn note_whether_stores_are_known(&mut self) {
        if self.start_truncation != StartTruncation::Waits {
            return;
        }
        let mut pushed = self.replicated.stores().stores().filter(|store| store.detached.is_none());
        if pushed.all(|store| store.spec.adaptor.is_none() || self.watches.is_known(store.spec.id)) {
            self.start_truncation = StartTruncation::Due;
        }
    }

    /// Truncates the log once after a start: its limits may be lower than before, and without commits, which a full disk
    /// prevents, no image would lead to a truncation.
    pub(crate) fn truncate_after_start(&mut self) {
        if self.start_truncation == StartTruncation::Due {
            self.start_truncation = StartTruncation::Done;
            let applied = self.applied();
            self.effects.push_back(Effect::Truncate { below: self.image_at, applied, at_start: true });
        }
    }

    /// Makes a truncation due in a while. The part of the log that a detached store held back is not dropped at once: an
    /// operator attaches a stopped store by detaching it first.
    pub(crate) fn truncate_later(&mut self) {
        self.truncate_at = Some(self.now.monotonic + ATTACHED_AGAIN_WITHIN);
    }

    /// Truncates the log once that is due. With commits, the next image does it earlier.
    pub(crate) fn truncate_if_due(&mut self) {
        if self.truncate_at.take_if(|at| *at <= self.now.monotonic).is_some() {
            let applied = self.applied();
            self.effects.push_back(Effect::Truncate { below: self.image_at, applied, at_start: false });
        }
    }

    /// Returns the positions that the storages `node` (this node) pushes to have reported here, and those of its copies
    /// of embedded stores on disk. Leaves out copies that are broken, damaged or still being opened.
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

    /// Truncates the log if it was waiting for an embedded store that had applied `before`: now, instead of with the
    /// next image.
    fn flushed(&mut self, store: StoreId, before: Epoch) {
        let effect = match AfterFlush::of(before, self.visibility.applied(store), self.image_at) {
            AfterFlush::Nothing => return,
            AfterFlush::Flush => Effect::Flush(store),
            AfterFlush::Truncate => Effect::Truncate { below: self.image_at, applied: self.applied(), at_start: false },
        };
        self.effects.push_back(effect);
    }

    /// Proposes to truncate the log without a store that holds back too much of it. For a storage, only the node that
    /// pushes to it proposes this: the other nodes know less. Every member has a copy of an embedded store, so nothing
    /// is proposed for one: this node's log waits for the other members' copies instead of its own broken one. Data
    /// that none of them has on disk exists only in the log, and is kept.
    pub(crate) fn over_quota(
        &mut self,
        store: StoreId,
        bound: Epoch,
        complaint: Option<String>,
        opens_at: Option<Lsn>,
        needs_all: bool,
    ) {
        let now = self.now.monotonic;
        let Some(declared) = self.replicated.stores().store(store) else { return };
        let applied = if needs_all { Epoch(0) } else { self.visibility.applied(store) };
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
        // An embedded store flushes on request, which the same truncation sends; unless it is broken. Nothing that a
        // damaged one flushes shortens its part of the log.
        let may_flush = || embedded && !needs_all && self.watches.is_known(store);
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

    /// Begins to watch a store whose push begins now. The storage may be a different one than before: its own watermark
    /// determines what it contains.
    pub(crate) fn restart_push(&mut self, store: StoreId) {
        let Some(declared) = self.replicated.stores().store(store) else { return };
        let head = self.resolver.head_lsn(store);
        self.visibility.track(store, delivery(&declared.spec), head);
        self.visibility.rewound(store, Lsn(0));
        self.watches.start(store, head, self.epochs.last_complete(), self.now.monotonic);
    }

    /// Returns the applied epochs of the stores that the log waits for; for an embedded store whose copy is broken
    /// here, the other members' applied epoch.
    pub fn applied(&self) -> Vec<AppliedTo> {
        let attached = self.replicated.stores().stores().filter(|store| store.detached.is_none());
        let applied = |store| self.watches.left_out(store).unwrap_or_else(|| self.visibility.applied(store));
        let to = |DeclaredStore { spec, generation, .. }: &DeclaredStore| AppliedTo {
            store: spec.id,
            generation: *generation,
            epoch: applied(spec.id),
        };
        attached.map(to).collect()
    }

    /// Returns the progress of every store.
    pub fn stores(&self) -> impl Iterator<Item = (StoreId, StoreProgress)> {
        self.replicated.stores().stores().map(|declared| {
            let store = declared.spec.id;
            let head = self.resolver.head_lsn(store);
            let pushed = declared.spec.adaptor.is_some() && declared.detached.is_none();
            // Readers of an embedded store apply the missing records themselves: its acknowledged position is the one
            // on disk. A broken store is not read.
            let fresh = pushed && declared.spec.is_embedded() && self.watches.is_known(store);
            let progress = StoreProgress {
                head,
                complete: self.visibility.last_complete(),
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
