//! What the sequencer lets everybody see without asking it: progress of the node and of every store.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use tokio::sync::watch;
use tribunal_types::{Cen, Lsn, StoreId};

/// Progress of one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreProgress {
    /// Newest record of its log.
    pub head: Lsn,
    /// Newest record that the storage has acknowledged as durable.
    pub acked: Lsn,
    /// Snapshot that the storage holds.
    pub applied: Cen,
    /// Nothing is pushed to the storage any more, so nothing more will be applied.
    pub detached: bool,
}

/// Progress of the node.
pub struct Published {
    last: AtomicU64,
    floor: AtomicU64,
    stores: RwLock<HashMap<StoreId, StoreProgress>>,
    changes: watch::Sender<u64>,
}

impl Published {
    /// Starts with nothing.
    #[must_use]
    pub fn new() -> Published {
        Published {
            last: AtomicU64::new(0),
            floor: AtomicU64::new(0),
            stores: RwLock::default(),
            changes: watch::Sender::new(0),
        }
    }

    /// Returns the last complete epoch.
    pub fn last(&self) -> Cen {
        Cen(self.last.load(Ordering::Acquire))
    }

    /// Returns the oldest snapshot that can still be judged.
    pub fn floor(&self) -> Cen {
        Cen(self.floor.load(Ordering::Acquire))
    }

    /// Returns the progress of a store; `None` if it is not declared.
    pub fn store(&self, store: StoreId) -> Option<StoreProgress> {
        self.stores.read().get(&store).copied()
    }

    /// Returns a receiver that wakes at every change.
    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Publishes a complete epoch. Stores come by [`Published::set_store`] before, so that nobody who sees the epoch
    /// misses its records.
    pub fn set_epoch(&self, last: Cen, floor: Cen) {
        self.floor.store(floor.0, Ordering::Release);
        self.last.store(last.0, Ordering::Release);
    }

    /// Publishes the progress of stores.
    pub fn set_stores(&self, progress: impl Iterator<Item = (StoreId, StoreProgress)>) {
        let mut stores = self.stores.write();
        stores.extend(progress);
    }

    /// Wakes everybody who waits for a change.
    pub fn wake(&self) {
        self.changes.send_modify(|n| *n += 1);
    }
}
