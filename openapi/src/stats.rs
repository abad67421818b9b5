//! What the service is doing right now, in figures.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Consumer, PluginSlot, StoreInfo};

/// Figures of the last seconds, and where stores and readers stand.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Stats {
    /// Since the node started, milliseconds.
    #[schema(example = "3600000")]
    pub uptime_ms: String,
    /// Length of the window that rates and percentiles are of, milliseconds.
    #[schema(example = "10000")]
    pub window_ms: String,
    /// Last complete epoch.
    #[schema(example = "8842")]
    pub epoch: String,
    /// Epochs a second.
    pub epochs_per_s: f64,
    /// Goodput: transactions committed a second.
    pub committed_per_s: f64,
    /// Transactions aborted a second.
    pub aborted_per_s: f64,
    /// Retries a second that were answered with the verdict that stood.
    pub replayed_per_s: f64,
    /// Aborted among the decided.
    #[schema(minimum = 0, maximum = 1)]
    pub abort_share: f64,
    /// Aborts by reason, in the window.
    pub aborts: Vec<AbortCount>,
    /// Transactions of an epoch.
    pub epoch_txns: Distribution,
    /// Where a transaction's time goes, microseconds: `queue` (waiting in the batch), `sync` (the log), `resolve`, and
    /// `apply` (push and storage, of those that asked for `ack: applied`).
    pub phases: Vec<Timing>,
    /// Time from a commit request to its answer, microseconds: `durable` and `applied`, as it asked.
    pub commits: Vec<Timing>,
    /// Plugin slots: what fills them, its health and cost.
    pub plugins: Vec<PluginSlot>,
    /// Stores, by name.
    pub stores: Vec<StoreInfo>,
    /// Consumers, by name.
    pub consumers: Vec<Consumer>,
}

/// Aborts for one reason.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AbortCount {
    /// The reason, as in an outcome.
    #[schema(example = "read_conflict")]
    pub reason: String,
    /// How many.
    #[schema(example = "17")]
    pub count: String,
}

/// Values of one kind; percentiles are right within an eighth, all are 0 if there is no value.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct Distribution {
    /// How many values.
    #[schema(example = "1000")]
    pub count: String,
    /// Their mean.
    pub mean: f64,
    /// Half of them are not above.
    pub p50: f64,
    /// Nine of ten are not above.
    pub p90: f64,
    /// All but one of a hundred are not above.
    pub p99: f64,
    /// None is above.
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
