//! Metrics by tenant.

use std::sync::atomic::Ordering;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::kinds::Level;
use super::registered::registered;

/// Label of a tenant's metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct NamespaceLabel {
    /// The tenant's name.
    pub namespace: String,
}

/// The metrics.
pub struct TenantMetrics {
    /// Commits of a tenant.
    committed: Family<NamespaceLabel, Counter>,
    /// Rows in a tenant's tracked stores.
    pub rows: Family<NamespaceLabel, Level>,
    /// Bound on them.
    pub rows_max: Family<NamespaceLabel, Level>,
    /// Bytes of a tenant's embedded stores.
    pub stored_bytes: Family<NamespaceLabel, Level>,
    /// Bound on them.
    pub stored_bytes_max: Family<NamespaceLabel, Level>,
}

impl TenantMetrics {
    /// Creates and registers the metrics.
    pub(super) fn registered(registry: &mut Registry) -> TenantMetrics {
        TenantMetrics {
            committed: registered(registry, "tenant_txns_committed", "Commits of this node's clients, by namespace"),
            rows: registered(registry, "tenant_rows", "Rows in the tracked stores of a namespace"),
            rows_max: registered(
                registry,
                "tenant_rows_max",
                "Limit on the rows in the tracked stores of a namespace; absent if it has none",
            ),
            stored_bytes: registered(
                registry,
                "tenant_stored_bytes",
                "Bytes that the embedded stores of a namespace take on the disk of this node",
            ),
            stored_bytes_max: registered(
                registry,
                "tenant_stored_bytes_max",
                "Limit on the bytes of the embedded stores of a namespace; absent if it has none",
            ),
        }
    }

    /// Sets the number of a tenant's committed transactions.
    pub fn set_committed(&self, tenant: &NamespaceLabel, committed: u64) {
        self.committed.get_or_create(tenant).inner().store(committed, Ordering::Relaxed);
    }
}
