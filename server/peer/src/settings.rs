//! Settings of a node's connections to its peers, and their validation.

use std::collections::BTreeMap;
use std::time::Duration;

use tribunal_types::{Generations, NodeId};

/// Maximum length of a cluster's name, bytes.
const CLUSTER_BYTES_MAX: usize = 64;
/// Bytes charged for a frame beyond its length, so that empty frames are bounded, too.
pub(crate) const FRAME_COST_BYTES: usize = 64;
/// The default of [`PeerSettings::silent_after`].
pub const SILENT_AFTER: Duration = Duration::from_secs(2);

/// The connection that a frame takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// For small and urgent frames; no large frame delays them.
    Heartbeat,
    /// For everything else.
    Bulk,
}

impl Lane {
    pub(crate) const ALL: [Lane; 2] = [Lane::Heartbeat, Lane::Bulk];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Lane::Heartbeat => "heartbeat",
            Lane::Bulk => "bulk",
        }
    }

    pub(crate) fn of_name(name: &str) -> Option<Lane> {
        Lane::ALL.into_iter().find(|lane| lane.name() == name)
    }
}

/// Settings of a node's connections to its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// This node.
    pub node: NodeId,
    /// Name of the cluster, the same on all of its nodes: 1 to 64 letters, digits, `-`, `_` and `.`.
    pub cluster: String,
    /// Id of the log that all nodes of the cluster share; not compared if empty.
    pub log: String,
    /// Addresses of the other nodes, `host:port`.
    pub peers: BTreeMap<NodeId, String>,
    /// Maximum length of a frame, bytes.
    pub frame_bytes_max: usize,
    /// Bytes that may wait for one peer on one lane, and as many in the other direction until they are processed. Each
    /// frame is charged 64 bytes more than its length.
    pub queue_bytes_max: usize,
    /// How long a peer may be silent on the heartbeat lane; five times as long on the bulk lane, where an answer may be
    /// queued after many other frames.
    pub silent_after: Duration,
    /// The generations in which this node can decide; reported to the other nodes.
    pub generations: Generations,
}

impl PeerSettings {
    pub(crate) fn check(&self) -> Result<(), String> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if self.cluster.is_empty() || self.cluster.len() > CLUSTER_BYTES_MAX || !self.cluster.bytes().all(fits) {
            return Err(format!(
                "`{}` cannot be the name of a cluster: use 1 to {CLUSTER_BYTES_MAX} letters, digits, `-`, `_` and `.`",
                self.cluster.escape_debug(),
            ));
        }
        check_peers(self.node, &self.peers)?;
        let needed = self.frame_bytes_max.saturating_add(FRAME_COST_BYTES);
        if self.queue_bytes_max < needed {
            let has = self.queue_bytes_max;
            return Err(format!(
                "the queues of peers hold {has} bytes, but one frame may need {needed}; raise the former"
            ));
        }
        if u32::try_from(self.queue_bytes_max).is_err() {
            return Err(format!("the queues of peers hold {} bytes; 4 GiB are the limit", self.queue_bytes_max));
        }
        Ok(())
    }
}

/// Checks that a node is not its own peer.
pub(crate) fn check_peers(node: NodeId, peers: &BTreeMap<NodeId, String>) -> Result<(), String> {
    if peers.contains_key(&node) {
        return Err(format!("node {node} is among its own peers; list the other nodes only"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> PeerSettings {
        PeerSettings {
            node: NodeId(1),
            cluster: "a".into(),
            log: String::new(),
            peers: BTreeMap::from([(NodeId(2), "localhost:1".into())]),
            frame_bytes_max: 100,
            queue_bytes_max: 164,
            silent_after: SILENT_AFTER,
            generations: Generations::OWN,
        }
    }

    #[track_caller]
    fn check(settings: &PeerSettings, expected: &str) {
        let refused = settings.check().expect_err("refused");
        assert!(refused.contains(expected), "{refused}");
    }

    #[test]
    fn settings_that_cannot_work_are_refused() {
        assert_eq!(settings().check(), Ok(()));
        for cluster in ["", "a b", "a\n", &"x".repeat(65)] {
            check(&PeerSettings { cluster: cluster.into(), ..settings() }, "cannot be the name of a cluster");
        }
        check(&PeerSettings { node: NodeId(2), ..settings() }, "node 2 is among its own peers");
        check(&PeerSettings { queue_bytes_max: 163, ..settings() }, "hold 163 bytes, but one frame may need 164");
        check(&PeerSettings { queue_bytes_max: usize::MAX, ..settings() }, "4 GiB are the limit");
    }

    #[test]
    fn lanes_are_found_by_their_names() {
        assert!(Lane::ALL.into_iter().all(|lane| Lane::of_name(lane.name()) == Some(lane)));
        assert_eq!(Lane::of_name("express"), None);
    }
}
