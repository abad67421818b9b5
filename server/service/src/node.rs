//! The node itself: identity, readiness, statistics and metrics.

use std::future::Future;
use std::pin::Pin;

use tribunal_types::{Epoch, GroupId, NamespaceId};

/// Operations that inspect the node.
pub trait NodeApi: Send + Sync {
    /// Returns statistics of the last seconds.
    fn stats(&self) -> Stats;

    /// Returns statistics of a tenant's transactions in the last seconds.
    fn tenant_stats(&self, namespace: NamespaceId) -> TenantStats;

    /// Completes when the node begins to shut down.
    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Returns all metrics in the Prometheus text format.
    fn metrics(&self) -> String;

    /// Returns whether the node accepts transactions. Reasons name stores only if `names_stores` is set.
    fn readiness(&self, names_stores: bool) -> Readiness;

    /// Returns the identity of the node.
    fn identity(&self) -> VersionInfo;
}

/// Whether the node accepts transactions, and if not, why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Whether the node accepts transactions.
    pub ready: bool,
    /// Why it does not, for people.
    pub reasons: Vec<String>,
}

/// The identity of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionInfo {
    /// Version of the binary.
    pub version: String,
    /// The group that this node leads.
    pub group: GroupId,
    /// The epoch that is open now.
    pub epoch: Epoch,
    /// When epochs are sealed: `adaptive`, or their length, e.g. `5ms`.
    pub epoch_mode: String,
}

/// Statistics of the last seconds.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Since the node started, milliseconds.
    pub uptime_ms: u64,
    /// Length of the window, milliseconds.
    pub window_ms: u64,
    /// Last complete epoch.
    pub epoch: Epoch,
    /// Epochs in the window.
    pub epochs: u64,
    /// Transactions committed in the window.
    pub committed: u64,
    /// Retries that were answered from the id table in the window.
    pub replayed: u64,
    /// Aborts in the window, by reason.
    pub aborts: Vec<(String, u64)>,
    /// Number of transactions per epoch.
    pub epoch_txns: Summary,
    /// Time that transactions spent in each phase.
    pub phases: Vec<Timed>,
    /// Latency of commits, by kind of acknowledgement.
    pub commits: Vec<Timed>,
}

/// Statistics of a tenant's transactions in the last seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantStats {
    /// Since the node started, milliseconds.
    pub uptime_ms: u64,
    /// Length of the window, milliseconds.
    pub window_ms: u64,
    /// Transactions committed in the window.
    pub committed: u64,
    /// Aborts in the window, by reason.
    pub aborts: Vec<(String, u64)>,
}

/// A named distribution of durations, microseconds.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    /// Name of the duration.
    pub name: &'static str,
    /// Distribution of its values.
    pub us: Summary,
}

/// Summary of a distribution.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// Number of values.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Median.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// Maximum.
    pub max: u64,
}
