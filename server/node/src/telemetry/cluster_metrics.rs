//! Metrics of a cluster member: its connections, its groups, its lag and that of the other nodes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tribunal_peer::{LaneStatus, PeersStatus};
use tribunal_types::{Epoch, GroupId, NodeId};

use crate::cluster::membership::Membership;
use crate::cluster::roster;
use crate::cluster::view::{Roles, View};

type Level = Gauge<u64, AtomicU64>;

/// Label of metrics of another node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct PeerLabel {
    /// Its number.
    pub peer: u32,
}

/// Label of metrics of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LaneLabel {
    /// The number of the node at its other end.
    pub peer: u32,
    /// `heartbeat` or `bulk`.
    pub lane: &'static str,
}

/// Label of metrics of a node's log.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LogOfLabel {
    /// The number of the node whose log it is.
    pub log_of: u32,
}

/// The metrics. A single node has only those of fresh reads.
#[derive(Default)]
pub struct ClusterMetrics {
    /// Queries for commits acknowledged on other nodes.
    pub fresh_reads: Counter,
    /// Queries without a reply in time.
    pub fresh_read_failures: Counter,
    node: Level,
    takes_commits: Level,
    leads_own_log: Level,
    leads_control: Level,
    logs_led: Level,
    elections: Counter,
    control_index: Level,
    covered_epochs: Family<LogOfLabel, Level>,
    peer_connected: Family<PeerLabel, Level>,
    peer_silent_seconds: Family<PeerLabel, Gauge<f64, AtomicU64>>,
    peer_clock_offset_seconds: Family<PeerLabel, Gauge<f64, AtomicU64>>,
    peer_lag_entries: Family<PeerLabel, Level>,
    peer_refused_frames: Family<PeerLabel, Counter>,
    peer_queued_bytes: Family<LaneLabel, Level>,
    peer_sent_bytes: Family<LaneLabel, Counter>,
    peer_sent_frames: Family<LaneLabel, Counter>,
    peer_received_bytes: Family<LaneLabel, Counter>,
    peer_received_frames: Family<LaneLabel, Counter>,
    peer_dropped_frames: Family<LaneLabel, Counter>,
    refused_connections: Counter,
}

impl ClusterMetrics {
    /// Registers the metrics of every node.
    pub fn register_reads(&self, registry: &mut Registry) {
        let (reads, failures) = (self.fresh_reads.clone(), self.fresh_read_failures.clone());
        registry.register("fresh_reads", "Fresh reads: requests to see everything that any node acknowledged", reads);
        registry.register("fresh_read_failures", "Fresh reads that failed or timed out", failures);
    }

    /// Returns whether the node is a member of a cluster: [`ClusterMetrics::set`] was called.
    #[must_use]
    pub fn is_member(&self) -> bool {
        self.node.get() != 0
    }

    /// Registers the metrics of a cluster member.
    pub fn register_member(&self, registry: &mut Registry) {
        registry.register("cluster_node", "Number of this node", self.node.clone());
        let takes = self.takes_commits.clone();
        registry.register("cluster_takes_commits", "1 if the member takes transactions", takes);
        registry.register("cluster_leads_own_log", "1 if the member leads its own log", self.leads_own_log.clone());
        registry.register("cluster_leads_control", "1 if it leads the control log", self.leads_control.clone());
        registry.register("cluster_logs_led", "Logs that the member leads", self.logs_led.clone());
        registry.register("cluster_elections", "Elections that the member has noticed", self.elections.clone());
        let control = self.control_index.clone();
        registry.register("cluster_control_index", "Last entry of the control log that the member has", control);
        let help = "Epochs beyond the last decided one that a node's log covers; one at 0 is waited for";
        registry.register("cluster_covered_epochs", help, self.covered_epochs.clone());
        let connected = self.peer_connected.clone();
        registry.register("peer_connected", "1 if there are connections with the node, both ways", connected);
        let silent = self.peer_silent_seconds.clone();
        registry.register("peer_silent_seconds", "Time since anything arrived from the node", silent);
        let offset = self.peer_clock_offset_seconds.clone();
        let help = "The node's clock minus this one's, as told within 10 s; the delay on the way makes it seem slower";
        registry.register("peer_clock_offset_seconds", help, offset);
        let help = "Entries that the node lacks of a log that this one leads, the most of one log";
        registry.register("peer_lag_entries", help, self.peer_lag_entries.clone());
        let refused = self.peer_refused_frames.clone();
        registry.register("peer_refused_frames", "Frames of the node that were refused", refused);
        let queued = self.peer_queued_bytes.clone();
        registry.register("peer_queued_bytes", "Bytes that wait to be sent to the node", queued);
        let sent = self.peer_sent_bytes.clone();
        registry.register("peer_sent_bytes", "Bytes of frames sent to the node", sent);
        registry.register("peer_sent_frames", "Frames sent to the node", self.peer_sent_frames.clone());
        let received = self.peer_received_bytes.clone();
        registry.register("peer_received_bytes", "Bytes of frames received from the node", received);
        let received = self.peer_received_frames.clone();
        registry.register("peer_received_frames", "Frames received from the node", received);
        let help = "Frames for the node that were dropped: its queue was full, or it was not connected";
        registry.register("peer_dropped_frames", help, self.peer_dropped_frames.clone());
        let refused = self.refused_connections.clone();
        registry.register("peer_refused_connections", "Connections for nodes that were refused", refused);
    }

    /// Updates the metrics from the known state of the cluster.
    pub fn set(&self, membership: &Membership, view: &View, peers: &PeersStatus, decided: Epoch) {
        let roles = view.roles();
        let own = Membership::group_of(membership.node);
        let leads = |group: &GroupId| u64::from(roles.leaders.get(group) == Some(&membership.node));
        self.node.set(u64::from(membership.node.0));
        self.takes_commits.set(u64::from(roles.takes_commits));
        self.leads_own_log.set(leads(&own));
        self.leads_control.set(leads(&GroupId::CONTROL));
        self.set_roles(&roles, decided);
        self.refused_connections.inner().store(peers.refused_count, Ordering::Relaxed);
        let clock_offsets_ms = view.clock_offsets_ms();
        for (node, peer) in &peers.peers {
            let label = PeerLabel { peer: u32::from(node.0) };
            let connected = peer.is_connected() && peer.heartbeat.accepted && peer.bulk.accepted;
            self.peer_connected.get_or_create(&label).set(u64::from(connected));
            if let Some(at) = peer.received_at() {
                let silent = Instant::now().saturating_duration_since(at);
                self.peer_silent_seconds.get_or_create(&label).set(silent.as_secs_f64());
            }
            match clock_offsets_ms.get(node) {
                Some(ms) => {
                    self.peer_clock_offset_seconds.get_or_create(&label).set(*ms as f64 / 1000.0);
                }
                None => {
                    self.peer_clock_offset_seconds.remove(&label);
                }
            }
            let refused = view.refused.count(*node);
            self.peer_refused_frames.get_or_create(&label).inner().store(refused, Ordering::Relaxed);
            self.peer_lag_entries.get_or_create(&label).set(roles.lags.get(node).copied().unwrap_or_default());
            self.set_lane(*node, "heartbeat", &peer.heartbeat);
            self.set_lane(*node, "bulk", &peer.bulk);
        }
        roster::former(&roles.members).into_iter().for_each(|node| self.forget(node));
    }

    /// Removes a node's metrics: a removed node is not missing.
    fn forget(&self, node: NodeId) {
        let label = PeerLabel { peer: u32::from(node.0) };
        self.peer_connected.remove(&label);
        self.peer_silent_seconds.remove(&label);
        self.peer_clock_offset_seconds.remove(&label);
        self.peer_refused_frames.remove(&label);
        self.peer_lag_entries.remove(&label);
        self.covered_epochs.remove(&LogOfLabel { log_of: u32::from(node.0) });
        for lane in ["heartbeat", "bulk"] {
            let label = LaneLabel { peer: u32::from(node.0), lane };
            self.peer_queued_bytes.remove(&label);
            for family in [
                &self.peer_sent_bytes,
                &self.peer_sent_frames,
                &self.peer_received_bytes,
                &self.peer_received_frames,
                &self.peer_dropped_frames,
            ] {
                family.remove(&label);
            }
        }
    }

    fn set_roles(&self, roles: &Roles, decided: Epoch) {
        self.logs_led.set(roles.led as u64);
        self.elections.inner().store(roles.elections, Ordering::Relaxed);
        self.control_index.set(roles.control.0);
        for (group, covered) in &roles.covered {
            let label = LogOfLabel { log_of: u32::from(group.node.0) };
            self.covered_epochs.get_or_create(&label).set(covered.0.saturating_sub(decided.0));
        }
    }

    fn set_lane(&self, peer: NodeId, lane: &'static str, status: &LaneStatus) {
        let label = LaneLabel { peer: u32::from(peer.0), lane };
        self.peer_queued_bytes.get_or_create(&label).set(status.queued_bytes as u64);
        for (family, count) in [
            (&self.peer_sent_bytes, status.sent_bytes),
            (&self.peer_sent_frames, status.sent_frames),
            (&self.peer_received_bytes, status.received_bytes),
            (&self.peer_received_frames, status.received_frames),
            (&self.peer_dropped_frames, status.dropped_count),
        ] {
            family.get_or_create(&label).inner().store(count, Ordering::Relaxed);
        }
    }
}
