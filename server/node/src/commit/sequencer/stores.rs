//! What stores have applied: takes their reports, detaches those that hold the log back too long, publishes their progress.

use tokio::sync::oneshot;
use tribunal_types::{ControlChange, ControlIndex, Detachment, Epoch, Lsn, StoreId};

use super::Sequencer;
use crate::commit::log_thread::Job;
use crate::commit::message::Message;
use crate::commit::progress::StoreProgress;
use crate::commit::store_watch::{AfterFlush, delivery};
use crate::stores::catalog::{NewestReport, PushReports};

impl Sequencer {
    /// Takes over what a push has reported, unless that push is not the store's any more.
    pub(super) fn push_reported(&mut self, store: StoreId, generation: ControlIndex, reports: &PushReports) {
        let NewestReport { rewound, acked, stopped } = reports.take();
        let Some(declared) = self.state.replicated.stores().store(store) else { return };
        if declared.generation != generation || declared.detached.is_some() {
            return;
        }
        if rewound.is_some() || acked.is_some() {
            self.watches.reported(store);
        }
        let embedded = declared.spec.is_embedded();
        let before = self.state.visibility.applied(store);
        rewound.into_iter().for_each(|lsn| self.state.visibility.rewound(store, lsn));
        acked.into_iter().for_each(|lsn| self.state.visibility.acked(store, lsn));
        if acked.is_some() && embedded {
            self.flushed(store, before);
        }
        if stopped && embedded {
            self.watches.stopped(store);
        }
        self.publish_stores();
        self.shared.progress.wake();
    }

    /// Has the log truncated if an embedded store that had applied `before` was what it waited for: now, instead of with the
    /// next image.
    fn flushed(&self, store: StoreId, before: Epoch) {
        let job = match AfterFlush::of(before, self.state.visibility.applied(store), self.image_at) {
            AfterFlush::Nothing => return,
            AfterFlush::Flush => Job::Flush(store),
            AfterFlush::Truncate => Job::Truncate { below: self.image_at, applied: self.applied(), ask_stores: false },
        };
        let _ = self.log.send(job);
    }

    /// Proposes to truncate the log without a store that holds back too much of it.
    pub(super) fn over_quota(&mut self, store: StoreId, bound: Epoch) {
        let Some(declared) = self.state.replicated.stores().store(store) else { return };
        let applied = self.state.visibility.applied(store);
        if declared.detached.is_some() || applied >= bound || !self.watches.may_detach(store) {
            return;
        }
        // An embedded store flushes when it is told to, which the same truncation does; unless it is broken.
        if declared.spec.is_embedded() && self.watches.is_known(store) && !self.watches.fails_to_flush(store, applied) {
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

    /// Begins to watch a store whose push begins now. It may be another storage than before: its own watermark says
    /// what it holds.
    pub(super) fn restart_push(&mut self, store: StoreId) {
        let Some(declared) = self.state.replicated.stores().store(store) else { return };
        let head = self.state.resolver.head_lsn(store);
        self.state.visibility.track(store, delivery(&declared.spec), head);
        self.state.visibility.rewound(store, Lsn(0));
        self.watches.start(store, head);
    }

    /// Returns what the stores that the log waits for have applied.
    pub(super) fn applied(&self) -> Vec<(StoreId, Epoch)> {
        let attached = self.state.replicated.stores().stores().filter(|store| store.detached.is_none());
        attached.map(|store| (store.spec.id, self.state.visibility.applied(store.spec.id))).collect()
    }

    pub(super) fn publish_stores(&self) {
        let visibility = &self.state.visibility;
        self.shared.progress.set_stores(self.state.replicated.stores().stores().map(|declared| {
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
        let rows = self.state.replicated.stores().stores();
        let rows = rows.map(|declared| (declared.spec.namespace, self.state.resolver.rows_of(declared.spec.id)));
        self.shared.progress.set_rows(rows);
    }
}
