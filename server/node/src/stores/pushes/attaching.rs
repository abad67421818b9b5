//! Stores that are attached, as far as the log must not be truncated past what they need.

use std::sync::Arc;

use tribunal_types::StoreId;

use super::Pushes;

/// A store that is being attached: until this is dropped, the log is not truncated as if the store were detached.
pub struct Attaching {
    pushes: Arc<Pushes>,
    store: StoreId,
}

impl Drop for Attaching {
    fn drop(&mut self) {
        let mut attaching = self.pushes.attaching.lock();
        if let Some(at) = attaching.iter().position(|store| *store == self.store) {
            attaching.swap_remove(at);
        }
    }
}

impl Pushes {
    /// Begins to attach a store. Call this before comparing the store's position with the log.
    pub fn attaching(self: &Arc<Self>, store: StoreId) -> Attaching {
        self.attaching.lock().push(store);
        Attaching { pushes: Arc::clone(self), store }
    }

    /// Returns the stores that are attached, or are being attached.
    pub fn attached(&self) -> Vec<StoreId> {
        // First: a store leaves this list after it is attached.
        let mut attached = self.attaching.lock().clone();
        let entries = self.entries.lock();
        attached.extend(entries.values().filter(|entry| entry.store.detached.is_none()).map(|e| e.store.spec.id));
        attached
    }
}
