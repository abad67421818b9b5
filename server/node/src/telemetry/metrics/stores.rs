//! Metrics by store, and of the pushes into their storages.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tribunal_service::PushState;

use super::kinds::Level;
use super::registered::registered;

/// Label of per-store metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StoreLabel {
    /// The tenant's name: other tenants may have a store of the same name.
    pub namespace: String,
    /// The store's name.
    pub store: String,
}

/// Label of the states of pushes and webhooks.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PushStateLabel {
    /// The tenant's name.
    pub namespace: String,
    /// The store's name.
    pub store: String,
    /// Its name in the API.
    pub state: &'static str,
}

/// The metrics.
pub struct StoreMetrics {
    /// Newest record of a store.
    pub head: Family<StoreLabel, Level>,
    /// Newest acknowledged record of a store.
    pub acked: Family<StoreLabel, Level>,
    /// Rows of a tracked store.
    pub rows: Family<StoreLabel, Level>,
    /// Whether the log is truncated without waiting for a store's storage.
    pub detached: Family<StoreLabel, Level>,
    /// State of a store's push: 1 for its state, 0 for the others.
    push_state: Family<PushStateLabel, Level>,
    /// Age of the oldest record that a store's storage has not acknowledged, seconds.
    push_lag_seconds: Family<StoreLabel, Gauge<f64, AtomicU64>>,
}

impl StoreMetrics {
    /// Creates and registers the metrics.
    pub(super) fn registered(registry: &mut Registry) -> StoreMetrics {
        StoreMetrics {
            head: registered(registry, "store_head_lsn", "Newest record of a store"),
            acked: registered(registry, "store_acked_lsn", "Newest acknowledged record of a store"),
            rows: registered(registry, "store_rows", "Rows of a tracked store"),
            detached: registered(registry, "store_detached", "1 if the log no longer waits for a store's storage"),
            push_state: registered(
                registry,
                "store_push_state",
                "1 for the state that a store's push is in, 0 for the others",
            ),
            push_lag_seconds: registered(
                registry,
                "store_push_lag_seconds",
                "Age of the oldest record that a store's storage has not acknowledged; absent while its position is unknown",
            ),
        }
    }

    /// Sets the state of a store's push, and its lag if the storage's position is known.
    pub fn set_push(&self, store: &StoreLabel, state: PushState, lag_ms: Option<u64>) {
        for known in PushState::ALL {
            let StoreLabel { namespace, store } = store.clone();
            let label = PushStateLabel { namespace, store, state: known.name() };
            self.push_state.get_or_create(&label).set(u64::from(known == state));
        }
        match lag_ms {
            Some(lag_ms) => drop(self.push_lag_seconds.get_or_create(store).set(lag_ms as f64 / 1000.0)),
            None => drop(self.push_lag_seconds.remove(store)),
        }
    }

    /// Removes the metrics of a store's push that another node now runs.
    pub fn forget_push(&self, store: &StoreLabel) {
        for state in PushState::ALL {
            let StoreLabel { namespace, store } = store.clone();
            self.push_state.remove(&PushStateLabel { namespace, store, state: state.name() });
        }
        self.push_lag_seconds.remove(store);
    }
}
