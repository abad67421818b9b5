//! Metrics of the readers of logs: consumers and webhooks.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tribunal_push::PushActivity;
use tribunal_service::WebhookStatus;

use super::kinds::Level;
use super::registered::registered;
use super::stores::{PushStateLabel, StoreLabel};

/// Label of a consumer's metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ConsumerLabel {
    /// The tenant's name.
    pub namespace: String,
    /// The consumer's name.
    pub consumer: String,
    /// The store's name.
    pub store: String,
}

/// The metrics.
pub struct ReaderMetrics {
    /// Records that a consumer has not acknowledged.
    pub consumer_lag_records: Family<ConsumerLabel, Level>,
    /// Age of the oldest of them, seconds.
    pub consumer_lag_seconds: Family<ConsumerLabel, Gauge<f64, AtomicU64>>,
    /// Whether this node has truncated some of them.
    pub consumer_truncated: Family<ConsumerLabel, Level>,
    /// Records that a webhook has not acknowledged, by store.
    webhook_lag_records: Family<StoreLabel, Level>,
    /// Age of the oldest record that a store's webhook has not acknowledged, seconds.
    webhook_lag_seconds: Family<StoreLabel, Gauge<f64, AtomicU64>>,
    /// State of a store's webhook: 1 for its state, 0 for the others.
    webhook_state: Family<PushStateLabel, Level>,
    /// Whether a store's webhook has stopped.
    webhook_stopped: Family<StoreLabel, Level>,
}

impl ReaderMetrics {
    /// Creates and registers the metrics.
    pub(super) fn registered(registry: &mut Registry) -> ReaderMetrics {
        ReaderMetrics {
            consumer_lag_records: registered(
                registry,
                "consumer_lag_records",
                "Records that a consumer has not acknowledged",
            ),
            consumer_lag_seconds: registered(
                registry,
                "consumer_lag_seconds",
                "Age of the oldest record that a consumer has not acknowledged; a lower bound if that was truncated",
            ),
            consumer_truncated: registered(
                registry,
                "consumer_truncated",
                "1 if this node has truncated records that a consumer has not acknowledged",
            ),
            webhook_lag_records: registered(
                registry,
                "webhook_lag_records",
                "Records that a store's webhook has not acknowledged; absent if its position is of another log",
            ),
            webhook_lag_seconds: registered(
                registry,
                "webhook_lag_seconds",
                "Age of the oldest record that a store's webhook has not acknowledged; absent if its position is of another log",
            ),
            webhook_state: registered(
                registry,
                "webhook_state",
                "1 for the state that the deliveries to a store's webhook are in, 0 for the others",
            ),
            webhook_stopped: registered(
                registry,
                "webhook_stopped",
                "1 if the deliveries to a store's webhook have stopped",
            ),
        }
    }

    /// Sets the state of the deliveries to a store's webhook, and their lag if the position is of this log.
    pub fn set_webhook(&self, store: &StoreLabel, status: &WebhookStatus, is_of_log: bool) {
        for known in PushActivity::ALL {
            let StoreLabel { namespace, store } = store.clone();
            let label = PushStateLabel { namespace, store, state: known.name() };
            self.webhook_state.get_or_create(&label).set(u64::from(known.name() == status.state));
        }
        let is_stopped = status.state == PushActivity::Stopped.name();
        self.webhook_stopped.get_or_create(store).set(u64::from(is_stopped));
        if !is_of_log {
            return;
        }
        self.webhook_lag_records.get_or_create(store).set(status.head.0.saturating_sub(status.acked.0));
        self.webhook_lag_seconds.get_or_create(store).set(status.lag_ms as f64 / 1000.0);
    }

    /// Removes the metrics of all webhooks.
    pub fn forget_webhooks(&self) {
        self.webhook_state.clear();
        self.webhook_stopped.clear();
        self.webhook_lag_records.clear();
        self.webhook_lag_seconds.clear();
    }
}
