//! Metrics of the transactions of this node's clients.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tribunal_types::{DEFAULT_NAMESPACE, NamespaceId, Reason};

use super::registered::registered;
use crate::telemetry::tenant_counts::TenantCounts;

/// Label of aborts. Inapplicable fields are empty: a transaction given up by its client has no level.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AbortLabel {
    /// The reason's name in the API.
    pub reason: String,
    /// The stage that found it.
    pub stage: String,
    /// The isolation level.
    pub level: String,
    /// The tenant's name.
    pub namespace: String,
    /// The store of the row that caused it.
    pub store: String,
}

/// Label of aborts with the reason only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    /// The reason's name in the API; `plugin` for all codes of plugins.
    pub reason: &'static str,
}

/// The metrics.
pub struct TxnMetrics {
    /// Transactions committed.
    pub committed: Counter,
    /// Aborts returned to clients, including those at admission.
    aborted: Family<AbortLabel, Counter>,
    /// The same by reason only. All reasons exist from the start: a rate misses the increase with which a series
    /// appears, and the series of [`TxnMetrics::aborted`] are unknown before their first abort.
    aborted_by_reason: Family<ReasonLabel, Counter>,
    /// Answers from the id table.
    pub replayed: Counter,
    /// Aborts by reason, for rates.
    pub aborts: Mutex<BTreeMap<String, u64>>,
    /// Commits and aborts by tenant.
    pub tenants: TenantCounts,
}

impl TxnMetrics {
    /// Creates and registers the metrics.
    pub(super) fn registered(registry: &mut Registry) -> TxnMetrics {
        let help = "The same aborts by reason only; each reason is there from the start, so a rate misses none";
        let metrics = TxnMetrics {
            committed: registered(
                registry,
                "txns_committed",
                "Commits of this node's clients, those that only read included",
            ),
            aborted: registered(registry, "txns_aborted", "Aborts of this node's clients, those at admission included"),
            aborted_by_reason: registered(registry, "txns_aborted_by_reason", help),
            replayed: registered(
                registry,
                "txns_replayed",
                "Repeated requests that were answered with the stored verdict",
            ),
            aborts: Mutex::default(),
            tenants: TenantCounts::default(),
        };
        metrics.create_series();
        metrics
    }

    /// Creates the series of every reason, so that a query for a reason finds one before its first abort.
    fn create_series(&self) {
        for reason in (0..=u8::MAX).filter_map(Reason::from_code) {
            drop(self.aborted_by_reason.get_or_create(&ReasonLabel { reason: reason.name() }));
            if matches!(reason, Reason::Plugin(_)) {
                continue;
            }
            let namespace = DEFAULT_NAMESPACE.to_owned();
            let label = AbortLabel { reason: reason.to_string(), namespace, ..AbortLabel::default() };
            drop(self.aborted.get_or_create(&label));
        }
    }

    /// Counts a read-only commit: no epoch contains it.
    pub fn count_read_only(&self, namespace: NamespaceId) {
        self.committed.inc();
        self.tenants.count_commit(namespace);
    }

    /// Counts an abort returned to a client.
    pub fn count_abort(&self, namespace: NamespaceId, reason: Reason, abort: &AbortLabel) {
        self.aborted.get_or_create(abort).inc();
        self.aborted_by_reason.get_or_create(&ReasonLabel { reason: reason.name() }).inc();
        self.tenants.count_abort(namespace, &abort.reason);
        let mut by_reason = self.aborts.lock();
        match by_reason.get_mut(&abort.reason) {
            Some(count) => *count += 1,
            None => drop(by_reason.insert(abort.reason.clone(), 1)),
        }
    }
}
