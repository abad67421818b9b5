//! Divides memory among embedded stores: the node has a budget for all of them, and each tenant one for its own.
//!
//! A store gets its part when it is opened, and keeps it until it is closed: a quarter of the remainder, so that the
//! first ones are fast and some is left for the next. Regardless of their number, each store gets the minimum, even if
//! nothing is left; the total exceeds the budget by that much per store.

use std::collections::HashMap;

use tribunal_types::{NamespaceId, StoreId};

/// Budget of all stores of the node, bytes; beyond it, each gets the minimum.
const NODE_BYTES: u64 = 4 << 30;
/// Budget of all stores of a tenant other than the service's own, bytes; beyond it, each gets the minimum.
const TENANT_BYTES: u64 = 1 << 30;
/// Maximum part, bytes. With less, a million uniformly written rows wait for the disk.
const STORE_BYTES_MAX: u64 = 1 << 30;
/// Minimum part, bytes.
const STORE_BYTES_MIN: u64 = 32 << 20;

/// The allocated parts.
#[derive(Debug, Default)]
pub struct EmbeddedMemory {
    parts: HashMap<StoreId, (NamespaceId, u64)>,
}

impl EmbeddedMemory {
    /// Allocates a store's part, which is consumed as rows arrive.
    pub fn give(&mut self, store: StoreId, namespace: NamespaceId) -> u64 {
        self.take_back(store);
        let given = |mine: &dyn Fn(NamespaceId) -> bool| -> u64 {
            self.parts.values().filter(|(of, _)| mine(*of)).map(|(_, bytes)| bytes).sum()
        };
        let quarter = |all: u64, given: u64| all.saturating_sub(given) / 4;
        let mut part = quarter(NODE_BYTES, given(&|_| true));
        if namespace != NamespaceId(0) {
            part = part.min(quarter(TENANT_BYTES, given(&|of| of == namespace)));
        }
        let part = part.clamp(STORE_BYTES_MIN, STORE_BYTES_MAX);
        self.parts.insert(store, (namespace, part));
        part
    }

    /// Releases a store's part.
    pub fn take_back(&mut self, store: StoreId) {
        self.parts.remove(&store);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_store_gets_the_most_and_none_gets_nothing() {
        let mut memory = EmbeddedMemory::default();
        let own = NamespaceId(0);
        assert_eq!(memory.give(StoreId(0), own), STORE_BYTES_MAX);
        assert_eq!(memory.give(StoreId(0), own), STORE_BYTES_MAX, "opened again, it is the first once more");
        let parts: Vec<u64> = (0..1000).map(|store| memory.give(StoreId(store), own)).collect();
        assert!(parts.is_sorted_by(|one, next| one >= next) && parts[999] == STORE_BYTES_MIN);
        let beyond: u64 = parts.iter().filter(|part| **part > STORE_BYTES_MIN).sum();
        assert!(beyond <= NODE_BYTES, "{beyond}");
        for store in 0..1000 {
            memory.take_back(StoreId(store));
        }
        assert_eq!(memory.give(StoreId(1), own), STORE_BYTES_MAX, "what was closed is there again");
    }

    #[test]
    fn a_tenant_with_many_stores_leaves_the_others_theirs() {
        let mut memory = EmbeddedMemory::default();
        let (one, two) = (NamespaceId(1), NamespaceId(2));
        let parts: Vec<u64> = (0..64).map(|store| memory.give(StoreId(store), one)).collect();
        let beyond: u64 = parts.iter().filter(|part| **part > STORE_BYTES_MIN).sum();
        assert!(beyond <= TENANT_BYTES, "{beyond}");
        assert_eq!(
            memory.give(StoreId(64), two),
            parts[0],
            "the first store of another tenant is as fast as its first"
        );
    }
}
