//! Serializes changes of a store's webhook: changes of other stores, possibly of other tenants, do not wait for it.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;
use tribunal_types::StoreId;

/// A lock per store. Stores are permanent, and few.
#[derive(Default)]
pub struct StoreLocks(Mutex<HashMap<StoreId, Arc<tokio::sync::Mutex<()>>>>);

impl StoreLocks {
    /// Waits until this store's lock is free, and takes it.
    pub async fn lock(&self, store: StoreId) -> OwnedMutexGuard<()> {
        let lock = Arc::clone(self.0.lock().entry(store).or_default());
        lock.lock_owned().await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn a_store_waits_for_itself_alone() {
        let locks = StoreLocks::default();
        let first = locks.lock(StoreId(1)).await;
        let mut again = pin!(locks.lock(StoreId(1)));
        assert!(again.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        drop(locks.lock(StoreId(2)).await);
        drop(first);
        again.await;
    }
}
