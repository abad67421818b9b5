//! Progress of the node and of every store, published by the sequencer so that readers need not query it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tokio::sync::watch;
use tribunal_replica::StoreProgress;
use tribunal_types::{Epoch, Lsn, NamespaceId, StoreId};

struct Store {
    progress: StoreProgress,
    /// Until when `applied` counts, if another node reported it.
    known_until: Option<Instant>,
    /// The last announced head, for waiters for records of this store alone.
    head: watch::Sender<Lsn>,
}

impl Store {
    /// Returns the progress that can be relied on now.
    fn at(&self, now: Instant) -> StoreProgress {
        match self.known_until {
            // The storage may have lost data, and the node that pushes to it was unable to report that.
            Some(until) if now >= until => StoreProgress { applied: Epoch(0), reported: false, ..self.progress },
            _ => self.progress,
        }
    }
}

/// Progress of the node.
pub struct Progress {
    last: AtomicU64,
    floor: AtomicU64,
    /// How long an epoch takes from its seal to its verdicts, microseconds, smoothed.
    epoch_us: AtomicU64,
    stores: RwLock<HashMap<StoreId, Store>>,
    /// Rows of the tracked stores of each tenant.
    tenant_rows: RwLock<HashMap<NamespaceId, u64>>,
    changes: watch::Sender<u64>,
    ended: watch::Sender<bool>,
}

impl Progress {
    /// Creates empty progress.
    #[must_use]
    pub fn new() -> Progress {
        Progress {
            last: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            epoch_us: AtomicU64::new(0),
            stores: RwLock::default(),
            tenant_rows: RwLock::default(),
            changes: watch::Sender::new(0),
            ended: watch::Sender::new(false),
        }
    }

    /// Returns the last complete epoch.
    pub fn last(&self) -> Epoch {
        Epoch(self.last.load(Ordering::Acquire))
    }

    /// Returns the oldest snapshot whose history is still retained.
    pub fn floor(&self) -> Epoch {
        Epoch(self.floor.load(Ordering::Acquire))
    }

    /// Records how long an epoch took from seal to verdicts. Called by one thread only.
    pub fn note_epoch_took(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX).min(60_000_000);
        let before = self.epoch_us.load(Ordering::Relaxed);
        let smoothed = if before == 0 { took } else { (7 * before + took) / 8 };
        self.epoch_us.store(smoothed, Ordering::Relaxed);
    }

    /// Returns the smoothed duration of recent epochs.
    pub fn epoch_takes(&self) -> Duration {
        Duration::from_micros(self.epoch_us.load(Ordering::Relaxed))
    }

    /// Returns the progress of a store; `None` if it is not declared.
    pub fn store(&self, store: StoreId) -> Option<StoreProgress> {
        self.stores.read().get(&store).map(|store| store.at(Instant::now()))
    }

    /// Returns the number of rows in a tenant's tracked stores.
    pub fn rows_of(&self, namespace: NamespaceId) -> u64 {
        self.tenant_rows.read().get(&namespace).copied().unwrap_or(0)
    }

    /// Returns the last epoch that is complete in the logs of `stores`, and their heads.
    pub fn heads(&self, stores: &[StoreId]) -> (Epoch, Vec<Lsn>) {
        let known = self.stores.read();
        let now = Instant::now();
        let progress = |store: &StoreId| known.get(store).map_or_else(StoreProgress::default, |store| store.at(now));
        let epoch = stores.iter().map(|store| progress(store).applied).min().unwrap_or_default();
        (epoch, stores.iter().map(|store| progress(store).head).collect())
    }

    /// Returns a receiver that wakes when the store has more records; `None` if it is not declared.
    pub fn follow(&self, store: StoreId) -> Option<watch::Receiver<Lsn>> {
        self.stores.read().get(&store).map(|store| store.head.subscribe())
    }

    /// Announces that nothing will change any more, so that waiting requests are answered.
    pub fn end(&self) {
        self.ended.send_replace(true);
    }

    /// Returns a receiver that becomes true when nothing will change any more.
    pub fn ended(&self) -> watch::Receiver<bool> {
        self.ended.subscribe()
    }

    /// Returns a receiver that wakes on every change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Publishes a complete epoch. Call [`Progress::set_stores`] first, so that no reader that sees the epoch misses
    /// its records.
    pub fn set_epoch(&self, last: Epoch, floor: Epoch) {
        self.floor.store(floor.0, Ordering::Release);
        self.last.store(last.0, Ordering::Release);
    }

    /// Publishes the progress of stores, whose monotonic clock began at `started`.
    pub fn set_stores(&self, progress: impl Iterator<Item = (StoreId, StoreProgress)>, started: Instant) {
        let mut stores = self.stores.write();
        for (store, progress) in progress {
            let known_until = progress.known_until.map(|until| started + until);
            stores
                .entry(store)
                .and_modify(|known| (known.progress, known.known_until) = (progress, known_until))
                .or_insert_with(|| Store { progress, known_until, head: watch::Sender::new(progress.head) });
        }
    }

    /// Publishes the tenants' row counts.
    pub fn set_rows(&self, rows: impl Iterator<Item = (NamespaceId, u64)>) {
        let mut tenants = self.tenant_rows.write();
        tenants.values_mut().for_each(|rows| *rows = 0);
        rows.for_each(|(namespace, rows)| *tenants.entry(namespace).or_default() += rows);
    }

    /// Wakes all waiters for a change.
    pub fn wake(&self) {
        self.changes.send_modify(|n| *n += 1);
        for store in self.stores.read().values().filter(|store| store.head.receiver_count() > 0) {
            let head = store.progress.head;
            store.head.send_if_modified(|announced| std::mem::replace(announced, head) != head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_follower_is_notified_of_its_own_store_only() {
        let progress = Progress::new();
        let at = |head| StoreProgress { head: Lsn(head), ..StoreProgress::default() };
        progress.set_stores([(StoreId(1), at(3)), (StoreId(2), at(0))].into_iter(), Instant::now());
        let follower = progress.follow(StoreId(1)).expect("declared");
        assert!(progress.follow(StoreId(3)).is_none());
        progress.set_stores([(StoreId(2), at(1))].into_iter(), Instant::now());
        progress.wake();
        assert!(!follower.has_changed().expect("open"));
        progress.set_stores([(StoreId(1), at(4))].into_iter(), Instant::now());
        assert!(!follower.has_changed().expect("open"), "announced with the wake only");
        progress.wake();
        assert!(follower.has_changed().expect("open"));
        assert_eq!(*follower.borrow(), Lsn(4));
    }

    #[test]
    fn what_another_node_has_told_counts_for_a_while() {
        let (progress, started) = (Progress::new(), Instant::now());
        let told = |until| StoreProgress {
            applied: Epoch(7),
            acked: Lsn(5),
            reported: true,
            known_until: until,
            ..StoreProgress::default()
        };
        let known = || progress.store(StoreId(1)).map(|store| (store.reported, store.applied.0, store.acked.0));
        for (until, expected) in
            [(None, (true, 7, 5)), (Some(Duration::from_secs(60)), (true, 7, 5)), (Some(Duration::ZERO), (false, 0, 5))]
        {
            progress.set_stores([(StoreId(1), told(until))].into_iter(), started);
            assert_eq!(known(), Some(expected), "{until:?}");
        }
        assert_eq!(progress.heads(&[StoreId(1)]).0, Epoch(0));
    }
}
