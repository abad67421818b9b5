//! The node itself: identity, readiness, statistics and metrics.

use std::future::Future;
use std::pin::Pin;

use crate::ServiceFuture;
use tribunal_types::{ControlIndex, Digest, Epoch, Generation, GroupId, NamespaceId, NodeId, Release};

/// Operations that inspect the node.
pub trait NodeApi: Send + Sync {
    /// Returns statistics of the most recent seconds.
    fn stats(&self) -> Stats;

    /// Returns statistics of a tenant's transactions in the most recent seconds.
    fn tenant_stats(&self, namespace: NamespaceId) -> TenantStats;

    /// Completes when the node begins to shut down.
    fn ended(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Returns all metrics in the text format of OpenMetrics.
    fn metrics(&self) -> String;

    /// Returns whether the node accepts transactions. Reasons name stores and other nodes only if `in_detail` is set.
    fn readiness(&self, in_detail: bool) -> Readiness;

    /// Returns the identity of the node.
    fn identity(&self) -> VersionInfo;

    /// Returns the cluster as the node sees it.
    fn cluster(&self) -> ClusterView;

    /// Admits a node to the cluster, and returns its number. Repeating a name and address returns the same node.
    ///
    /// # Errors
    /// [`ServiceError`](crate::ServiceError), if it is not admitted.
    fn add_node(&self, name: String, address: String) -> ServiceFuture<'_, NodeId>;

    /// Begins to remove a node from the cluster.
    ///
    /// # Errors
    /// [`ServiceError`](crate::ServiceError), if it is not removed.
    fn remove_node(&self, node: NodeId) -> ServiceFuture<'_, ()>;

    /// Drains a node of the cluster, or lets it resume: a drained node leads nothing and takes no commits.
    ///
    /// # Errors
    /// [`ServiceError`](crate::ServiceError), if nothing is changed.
    fn drain_node(&self, node: NodeId, drained: bool) -> ServiceFuture<'_, ()>;

    /// Returns the digest of all outcomes up to an epoch, if the node decided it recently.
    fn digest_at(&self, epoch: Epoch) -> Option<Digest>;

    /// Returns whether this node may lag the other nodes.
    fn may_lag(&self) -> bool;

    /// Returns whether this node knows everything that was acknowledged before it started.
    fn has_caught_up(&self) -> bool;

    /// Returns whether this node has tried to catch up a short while ago, and could not.
    fn failed_to_catch_up_lately(&self) -> bool {
        false
    }

    /// Waits until this node knows all stores, tenants and keys whose creation was acknowledged on any node before the
    /// call.
    ///
    /// # Errors
    /// [`ServiceError::Unavailable`](crate::ServiceError::Unavailable) if it does not catch up in time.
    fn catch_up(&self) -> ServiceFuture<'_, ()>;
}

/// A cluster as one of its nodes sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// Its name; `None` if the node runs alone.
    pub name: Option<String>,
    /// The node.
    pub node: NodeId,
    /// Whether the node takes transactions.
    pub takes_commits: bool,
    /// Last epoch that it has decided.
    pub epoch: Epoch,
    /// Digest of all outcomes up to that epoch.
    pub digest: Digest,
    /// Last entry of the control log that the node has; 0 if it runs alone.
    pub control: ControlIndex,
    /// The leader of the control log, if it is known.
    pub control_leader: Option<NodeId>,
    /// The generation in which the cluster decides; `None` for a node that runs alone.
    pub generation: Option<Generation>,
    /// The initial nodes of the cluster, ascending.
    pub founders: Vec<NodeId>,
    /// Fingerprints of the authorities that sign the nodes' certificates.
    pub authorities: Vec<String>,
    /// All nodes that were not removed, ascending.
    pub nodes: Vec<NodeView>,
    /// Stores with a storage outside the nodes.
    pub pushes: Vec<PushView>,
    /// Stores whose log is delivered to a webhook.
    pub webhooks: Vec<PushView>,
}

/// A store that one node of a cluster pushes, to its storage or to its webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushView {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub store: String,
    /// The node, once one is named.
    pub node: Option<NodeId>,
}

/// A node's membership of its cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberStage {
    /// It was admitted, and becomes a member once it has started and caught up.
    Joining,
    /// It is a member.
    #[default]
    Member,
    /// It is a member that leads nothing and takes no commits.
    Drained,
    /// It is being removed.
    Leaving,
}

impl MemberStage {
    /// Returns the stage's name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            MemberStage::Joining => "joining",
            MemberStage::Member => "member",
            MemberStage::Drained => "drained",
            MemberStage::Leaving => "leaving",
        }
    }
}

/// A node as seen by another one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeView {
    /// Its number.
    pub node: NodeId,
    /// Address at which the other nodes reach it.
    pub address: Option<String>,
    /// Its membership.
    pub stage: MemberStage,
    /// Whether the two nodes are connected.
    pub connected: bool,
    /// Whether it is a voter of the group of the node that sees it.
    pub votes: bool,
    /// Time since something last arrived from it, milliseconds.
    pub silent_ms: Option<u32>,
    /// The leader of its group, if it is known.
    pub led_by: Option<NodeId>,
    /// Why there is no connection, or another problem of the node, for display.
    pub problem: Option<String>,
    /// Its release, once announced.
    pub release: Option<Release>,
}

/// Whether the node accepts transactions, and if not, why not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Readiness {
    /// Whether the node accepts transactions.
    pub ready: bool,
    /// Why it does not, for display.
    pub reasons: Vec<String>,
}

/// The identity of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionInfo {
    /// Version of the binary.
    pub version: String,
    /// The group that this node leads.
    pub group: GroupId,
    /// The open epoch.
    pub epoch: Epoch,
    /// The seal policy: `adaptive`, or the length of an epoch, e.g. `5ms`.
    pub epoch_mode: String,
}

/// Statistics of the most recent seconds.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The node, in a cluster.
    pub node: Option<NodeId>,
    /// Time since the node started, milliseconds.
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

/// Statistics of a tenant's transactions in the most recent seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantStats {
    /// Time since the node started, milliseconds.
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
