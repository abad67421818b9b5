//! The tenant of a connection, by which connections are chosen to be closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tribunal_types::NamespaceId;

/// The tenant of a connection: that of its first authenticated caller, once there is one. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct ConnectionTenant(Arc<AtomicU64>);

impl ConnectionTenant {
    /// Records an authenticated caller.
    pub fn set(&self, namespace: NamespaceId) {
        // 0 is the absence of one.
        let _ = self.0.compare_exchange(0, u64::from(namespace.0) + 1, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Returns the tenant; `None` if no caller has authenticated.
    #[must_use]
    pub fn get(&self) -> Option<NamespaceId> {
        let number = self.0.load(Ordering::Relaxed).checked_sub(1)?;
        u32::try_from(number).ok().map(NamespaceId)
    }
}
