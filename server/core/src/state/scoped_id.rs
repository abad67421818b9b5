//! The key of the id table.

use tribunal_types::{NamespaceId, TxnId};

/// An id with its namespace: a client names an id within its own namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScopedId {
    pub(crate) namespace: NamespaceId,
    pub(crate) id: TxnId,
}

impl ScopedId {
    /// Returns the second in the id, since the Unix epoch.
    pub(crate) fn second(&self) -> u64 {
        self.id.unix_ms() / 1000
    }
}
