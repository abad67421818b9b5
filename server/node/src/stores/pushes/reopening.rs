//! Opens an embedded store again after its disk has failed it, until it works.
//!
//! Its rows are in the log, so nothing is lost meanwhile, and a disk that was full or failed for a moment needs no
//! operator. The pauses between attempts grow, because each attempt reads the log from the store's last flush on. A
//! record that cannot be applied, damaged files, and rows that only other nodes have are left to operators.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use tribunal_push::OutOfUse;
use tribunal_service::PushState;
use tribunal_types::{DeclaredStore, StoreId, StoreSpec};

use super::{Entry, Pushes, State, StorePush};
use crate::stores::embedded_files::{self, NotOpen};

/// First pause before a store is opened again.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Maximum pause. A store that has worked for longer begins with the first pause again.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The last failure of an embedded store, and the next attempt.
#[derive(Clone, Debug)]
pub(super) struct Reopening {
    /// The failure.
    pub reason: String,
    /// Attempts since the store last worked for long.
    attempts: u32,
    /// When the store is opened again.
    at: Instant,
}

impl Reopening {
    /// Plans the attempt after a failure.
    fn after(previous: Option<&Reopening>, failure: &OutOfUse, now: Instant) -> Reopening {
        let previous = previous.filter(|_| failure.worked_for < PAUSE_MAX);
        let attempts = previous.map_or(0, |previous| previous.attempts).saturating_add(1);
        let pause = PAUSE_MIN.saturating_mul(1 << (attempts - 1).min(10)).min(PAUSE_MAX);
        Reopening { reason: failure.text.clone(), attempts, at: now + pause }
    }

    fn pause(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// Describes the failure and the next attempt.
    pub(super) fn told(&self) -> String {
        let seconds = self.pause().as_secs() + 1;
        format!("{}; the node opens the store again by itself, next within {seconds} s", self.reason)
    }
}

impl Pushes {
    /// Waits for a store's task; if the disk failed the store, plans to open it again.
    pub(super) async fn reopen_after(
        this: Weak<Pushes>,
        store: StoreId,
        start: u64,
        task: impl Future<Output = Option<OutOfUse>>,
    ) {
        let Some(failure) = task.await else { return };
        let Some(this) = this.upgrade() else { return };
        let mut entries = this.entries.lock();
        let current = entries.get_mut(&store).filter(|entry| entry.start == start);
        if let Some(entry) = current.filter(|entry| matches!(entry.state, State::Running(_))) {
            this.plan_reopening(entry, &failure);
        }
        drop(entries);
        this.settled.send_replace(());
    }

    /// Opens the store of an entry again after a pause.
    pub(super) fn plan_reopening(self: &Arc<Self>, entry: &mut Entry, failure: &OutOfUse) {
        let previous = entry.reopening.as_ref();
        let next = Reopening::after(previous, failure, Instant::now());
        let is_told = failure.worked_for == Duration::ZERO && previous.is_some_and(|last| last.reason == next.reason);
        if !is_told {
            let (namespace, spec) = (self.egress_by_tenant.tenant_name(entry.store.spec.namespace), &entry.store.spec);
            let (reason, pause_s) = (&next.reason, next.pause().as_secs() + 1);
            tracing::error!(
                namespace,
                store = spec.name,
                store_id = spec.id.0,
                reason,
                pause_s,
                "the disk has failed an embedded store; the node opens it again by itself, until it works"
            );
        }
        let (this, store, at) = (Arc::downgrade(self), entry.store.spec.id, next.at);
        entry.state = State::OutOfUse;
        entry.reopening = Some(next);
        self.runtime.spawn(async move {
            tokio::time::sleep_until(at.into()).await;
            if let Some(this) = this.upgrade() {
                this.reopen(store, at).await;
            }
        });
    }

    /// Opens a store again, unless it was resumed, replaced or detached since that was planned for `at`.
    async fn reopen(self: Arc<Self>, store: StoreId, at: Instant) {
        let this = Arc::clone(&self);
        let looked = self.runtime.spawn_blocking(move || this.needs_copy(store, false));
        let needs_copy = looked.await.unwrap_or_default();
        let (declared, start) = {
            let mut entries = self.entries.lock();
            let Some(entry) = entries.get_mut(&store).filter(|entry| entry.is_planned(at)) else { return };
            if needs_copy {
                self.give_up(entry);
                return;
            }
            entry.state = State::Starting;
            (entry.store.clone(), entry.start)
        };
        let closed = self.close_embedded(store).await;
        let runtime = self.runtime.clone();
        let _ = runtime.spawn_blocking(move || self.start_closed(declared, start, closed)).await;
    }

    fn start_closed(self: &Arc<Self>, declared: DeclaredStore, start: u64, closed: Result<(), String>) {
        match closed {
            Ok(()) => self.start(declared, start),
            Err(reason) => self.started(&declared, start, Err(NotOpen { reason, may_pass: true })),
        }
    }

    /// Leaves a store to operators: only other nodes have its rows.
    fn give_up(&self, entry: &mut Entry) {
        let reason = entry.reopening.as_ref().map_or_else(String::new, |last| only_elsewhere(&last.reason));
        let (namespace, spec) = (self.egress_by_tenant.tenant_name(entry.store.spec.namespace), &entry.store.spec);
        tracing::error!(namespace, store = spec.name, store_id = spec.id.0, reason, "an embedded store stopped");
        entry.state = State::Broken(reason);
    }

    /// Returns the state of a store that is out of use until it is opened again.
    pub(super) fn out_of_use(&self, spec: &StoreSpec, reopening: Option<&Reopening>) -> StorePush {
        let Some(reopening) = reopening else { return StorePush::default() };
        let open = self.embedded.get(spec.id).filter(|_| self.me.is_some());
        let is_past = open.is_some_and(|open| open.flushed().next() < self.records.oldest(spec.id));
        let (state, error) = if is_past {
            (PushState::Stopped, only_elsewhere(&reopening.reason))
        } else {
            (PushState::BackingOff, reopening.told())
        };
        StorePush { state, last_error: Some(error), ..StorePush::default() }
    }
}

impl Entry {
    /// Returns whether the store is to be opened again at this time.
    fn is_planned(&self, at: Instant) -> bool {
        matches!(self.state, State::OutOfUse) && self.reopening.as_ref().is_some_and(|planned| planned.at == at)
    }
}

/// Adds the remedy to the error of a store that the log of this node cannot fill.
pub(super) fn only_elsewhere(error: &str) -> String {
    format!("{error}. The log of this node no longer has what its copy lacks: {}", embedded_files::way_out(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pauses_grow_up_to_a_minute_and_begin_again_once_the_store_has_worked_for_one() {
        let now = Instant::now();
        let failed = |seconds| OutOfUse { text: "full".into(), worked_for: Duration::from_secs(seconds) };
        let mut last = None;
        let mut pauses = Vec::new();
        for worked_for in [0, 0, 0, 59, 0, 0, 0, 0, 60, 0] {
            let next = Reopening::after(last.as_ref(), &failed(worked_for), now);
            pauses.push((next.at - now).as_secs());
            last = Some(next);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 1, 2]);
    }
}
