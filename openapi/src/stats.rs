//! What the service is doing right now, in figures.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ConsumerInfo, PluginSlot, StoreInfo};

/// Figures of the last seconds, and the progress of stores and readers.
///
/// An operator of the service, or a key with the role `metrics` in the namespace `default`, gets figures of the whole
/// service. Others get those of their own transactions, stores and consumers, and no times or plugins.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Number of the node that answers, in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, example = 2)]
    pub node: Option<u16>,
    /// Time since the node started, milliseconds.
    #[schema(example = "3600000")]
    pub uptime_ms: String,
    /// Length of the window that rates and percentiles cover, milliseconds.
    #[schema(example = "10000")]
    pub window_ms: String,
    /// Last complete epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8842")]
    pub epoch: Option<String>,
    /// Epochs per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = 412.5)]
    pub epochs_per_s: Option<f64>,
    /// Goodput: transactions committed per second, read-only ones included. In a cluster, those of this node's clients.
    #[schema(example = 24500.0)]
    pub committed_per_s: f64,
    /// Transactions aborted per second.
    #[schema(example = 1200.0)]
    pub aborted_per_s: f64,
    /// Retries per second that were answered with the stored verdict.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = 0.5)]
    pub replayed_per_s: Option<f64>,
    /// Share of aborts among all verdicts.
    #[schema(minimum = 0, maximum = 1, example = 0.047)]
    pub abort_share: f64,
    /// Aborts by reason, in the window.
    pub aborts: Vec<AbortCount>,
    /// Transactions per epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub epoch_txns: Option<Distribution>,
    /// Where a transaction's time goes, microseconds: `queue` (in the open batch), `sync` (the log), `resolve`, and
    /// `apply` (push and storage, for commits with `ack: applied`).
    pub phases: Vec<Timing>,
    /// Time from a commit request to its response, microseconds: `durable` and `applied`, by the commit's `ack`.
    pub commits: Vec<Timing>,
    /// Plugin slots: the active plugin, its health and cost.
    pub plugins: Vec<PluginSlot>,
    /// Stores, by name.
    pub stores: Vec<StoreInfo>,
    /// Consumers, by name.
    pub consumers: Vec<ConsumerInfo>,
}

/// Aborts for one reason.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AbortCount {
    /// The reason, as in an outcome.
    #[schema(example = "read_conflict")]
    pub reason: String,
    /// Number of aborts.
    #[schema(example = "17")]
    pub count: String,
}

/// Values of one kind. Percentiles are exact to one eighth; all figures are 0 if there is no value.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Distribution {
    /// Number of values.
    #[schema(example = "1000")]
    pub count: String,
    /// Mean.
    #[schema(example = 120.0)]
    pub mean: f64,
    /// Median.
    #[schema(example = 110.0)]
    pub p50: f64,
    /// 90th percentile.
    #[schema(example = 180.0)]
    pub p90: f64,
    /// 99th percentile.
    #[schema(example = 260.0)]
    pub p99: f64,
    /// Maximum.
    #[schema(example = 900.0)]
    pub max: f64,
}

/// Times of one kind, microseconds.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Timing {
    /// Which time.
    #[schema(example = "sync")]
    pub name: String,
    /// The times.
    pub us: Distribution,
}
