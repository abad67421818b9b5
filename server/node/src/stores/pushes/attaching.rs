//! Stores that are attached, as far as the log must not be truncated past what they need.

use std::sync::Arc;

use tribunal_types::StoreId;

use super::Pushes;
use crate::commit::log_thread::Attached;

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
    /// Begins to attach a store. Call this before comparing the store's position with the log. Waits for a truncation in
    /// progress.
    pub fn attaching(self: &Arc<Self>, store: StoreId) -> Attaching {
        let truncation = self.truncation();
        let _none_in_progress = truncation.lock();
        self.attaching.lock().push(store);
        Attaching { pushes: Arc::clone(self), store }
    }

    /// Returns the stores that are being filled, or are being attached. A store without an adaptor needs nothing of the log.
    pub fn attached(&self) -> Vec<Attached> {
        // First: a store leaves this list after it is attached.
        let attaching = self.attaching.lock().clone();
        let entries = self.entries.lock();
        let declared = entries.values().map(|entry| &entry.store);
        let filled = declared.filter(|store| store.detached.is_none() && store.spec.adaptor.is_some());
        let filled = filled.map(|store| Attached { store: store.spec.id, generation: Some(store.generation) });
        filled.chain(attaching.into_iter().map(|store| Attached { store, generation: None })).collect()
    }
}
