//! The node itself: how it does, and what it is.

use std::future::Future;
use std::pin::Pin;

use tribunal_types::{Epoch, GroupId, NamespaceId};

/// What operators ask about the node.
pub trait NodeApi: Send + Sync {
    /// Returns what happened in the last seconds.
    fn stats(&self) -> Stats;

    /// Returns what a tenant's transactions came to in the last seconds.
    fn tenant_stats(&self, namespace: NamespaceId) -> TenantStats;

    /// Returns when the node stops.
    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Returns all metrics in the Prometheus text format.
    fn metrics(&self) -> String;

    /// Returns whether new transactions are accepted. Reasons name stores only if `names_stores`.
    fn readiness(&self, names_stores: bool) -> Readiness;

    /// Tells what runs here.
    fn identity(&self) -> VersionInfo;
}

/// Whether new transactions are taken, and if not, why.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// They are.
    pub ready: bool,
    /// Reasons why not, for people.
    pub reasons: Vec<String>,
}

/// What runs here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionInfo {
    /// Version of the binary.
    pub version: String,
    /// The group that this node leads.
    pub group: GroupId,
    /// The epoch that is open now.
    pub epoch: Epoch,
    /// How epochs are sealed: `adaptive` or the length, e.g. `5ms`.
    pub epoch_mode: String,
}

/// What happened in the last seconds.
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
    /// Retries answered from the id table in the window.
    pub replayed: u64,
    /// Aborts in the window, by reason.
    pub aborts: Vec<(String, u64)>,
    /// Transactions of an epoch.
    pub epoch_txns: Summary,
    /// Where a transaction's time goes.
    pub phases: Vec<Timed>,
    /// Time from a commit to its answer, by what it asked for.
    pub commits: Vec<Timed>,
}

/// What a tenant's transactions came to in the last seconds.
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

/// Times of one kind, microseconds.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    /// Which time.
    pub name: &'static str,
    /// The times.
    pub us: Summary,
}

/// Values of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    /// How many.
    pub count: u64,
    /// Their mean.
    pub mean: f64,
    /// Half are not above.
    pub p50: u64,
    /// Nine of ten are not above.
    pub p90: u64,
    /// All but one of a hundred are not above.
    pub p99: u64,
    /// None is above.
    pub max: u64,
}
