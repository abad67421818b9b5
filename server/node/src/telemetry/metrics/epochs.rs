//! Metrics of the epochs that this node decides.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::kinds::{Level, seconds};
use super::registered::{registered, registered_as};
use crate::telemetry::histogram::QuantileHistogram;

/// The metrics.
pub struct EpochMetrics {
    /// Epochs resolved.
    pub resolved: Counter,
    /// Transactions in an epoch.
    pub txns: Histogram,
    /// The same, for percentiles.
    pub txns_counts: QuantileHistogram,
    /// Time to resolve an epoch.
    pub resolve_seconds: Histogram,
    /// Last complete epoch.
    pub last: Level,
    /// Oldest snapshot whose history is still retained.
    pub floor: Level,
    /// Rows in the version map, including tombstones.
    pub rows: Level,
    /// Bytes of the version map.
    pub row_bytes: Level,
    /// Bytes of history and range window.
    pub history_bytes: Level,
    /// Ids in the status table.
    pub ids: Level,
}

impl EpochMetrics {
    /// Creates and registers the metrics.
    pub(super) fn registered(registry: &mut Registry) -> EpochMetrics {
        let txns = Histogram::new(exponential_buckets(1.0, 2.0, 17));
        EpochMetrics {
            resolved: registered(registry, "epochs", "Epochs resolved"),
            txns: registered_as(txns, registry, "epoch_txns", "Transactions in an epoch"),
            txns_counts: QuantileHistogram::of_numbers(),
            resolve_seconds: registered_as(seconds(), registry, "resolve_seconds", "Time to resolve an epoch"),
            last: registered(registry, "epoch", "Last complete epoch"),
            floor: registered(registry, "floor", "Oldest snapshot whose history is still retained"),
            rows: registered(registry, "rows", "Rows in the version map"),
            row_bytes: registered(registry, "row_bytes", "Bytes of the version map"),
            history_bytes: registered(registry, "history_bytes", "Bytes of history and range window"),
            ids: registered(registry, "ids", "Transaction ids whose verdict is stored"),
        }
    }
}
