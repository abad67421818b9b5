//! A node's cluster: the checked and parsed configuration.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};
use tribunal_log::ClusterIdentity;
use tribunal_member::NODE_MAX;
use tribunal_types::{GroupId, NodeId};

use crate::cluster::identity::{FIRST, identity_of};
use crate::cluster::{authority, kept_log};
use crate::config::Cluster;

/// Minimum length of a cluster's secret in characters.
const SECRET_CHARS_MIN: usize = 32;
/// Maximum length of a cluster's name in bytes.
const NAME_BYTES_MAX: usize = 40;
/// Maximum length of the cluster name that peers exchange, in bytes.
const PEER_NAME_BYTES_MAX: usize = 64;
/// A node's cluster.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Its name.
    pub name: String,
    /// This node.
    pub node: NodeId,
    /// The identity shared by the logs of all nodes.
    pub identity: ClusterIdentity,
    /// Whether the cluster began with the log of a single node.
    pub keeps_log: bool,
    /// Address of each configured node, including this one: `host:port`.
    pub nodes: BTreeMap<NodeId, String>,
    /// The founders of the cluster.
    pub founders: BTreeSet<NodeId>,
    /// Fingerprints of the authorities that sign the nodes' certificates.
    pub authorities: Vec<String>,
}

impl Membership {
    /// Checks the cluster's configuration, and reads the secret.
    ///
    /// # Errors
    /// All faults found.
    pub fn read(config: &Cluster) -> Result<Membership, Vec<String>> {
        let mut faults = Vec::new();
        let mut fault = |text: String| faults.push(format!("configuration: {text}"));
        if !is_name(&config.name) {
            fault(format!("`cluster.name` is {NAME_RULE}"));
        }
        let mut nodes: BTreeMap<NodeId, String> = BTreeMap::new();
        for node in &config.nodes {
            if !(1..=NODE_MAX).contains(&node.id) {
                fault(format!("`cluster.nodes` has a node {}; numbers are 1 to {NODE_MAX}", node.id));
            }
            let port = node.address.rsplit_once(':').and_then(|(host, port)| (!host.is_empty()).then_some(port));
            if port.is_none_or(|port| port.parse::<u16>().is_err()) {
                fault(format!("the address of node {} in `cluster.nodes` is not host:port: {}", node.id, node.address));
            }
            if let Some((other, _)) = nodes.iter().find(|(id, address)| **address == node.address && id.0 != node.id) {
                fault(format!("`cluster.nodes` has {} for nodes {other} and {}", node.address, node.id));
            }
            if nodes.insert(NodeId(node.id), node.address.clone()).is_some() {
                fault(format!("`cluster.nodes` has node {} twice", node.id));
            }
        }
        if !nodes.contains_key(&NodeId(config.node)) {
            fault(format!("`cluster.node` is {}, but `cluster.nodes` has no such node", config.node));
        }
        let mut founders: BTreeSet<NodeId> = config.founders.iter().copied().map(NodeId).collect();
        if let Some(unusable) = founders.iter().find(|founder| !(1..=NODE_MAX).contains(&founder.0)) {
            fault(format!("`cluster.founders` has a node {unusable}; numbers are 1 to {NODE_MAX}"));
        }
        if founders.is_empty() {
            founders.extend(nodes.keys());
        }
        let secret = std::fs::read_to_string(&config.secret_file).unwrap_or_else(|error| {
            fault(format!("`cluster.secret_file`: cannot read {}: {error}", config.secret_file.display()));
            "-".repeat(SECRET_CHARS_MIN)
        });
        let secret = secret.trim();
        if secret.chars().count() < SECRET_CHARS_MIN {
            fault(format!(
                "`cluster.secret_file`: {} has fewer than {SECRET_CHARS_MIN} characters; `openssl rand -hex 32` makes a good secret",
                config.secret_file.display()
            ));
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let kept = kept_log::read(secret)
            .transpose()
            .map_err(|what| vec![format!("configuration: {}: {what}", config.secret_file.display())])?;
        let (keeps_log, identity) = (kept.is_some(), kept.unwrap_or_else(|| identity_of(&config.name, secret)));
        let (name, node) = (config.name.clone(), NodeId(config.node));
        let authorities = authority::fingerprints(&config.authority_file);
        Ok(Membership { name, node, identity, keeps_log, nodes, founders, authorities })
    }

    /// Returns the name that peers must agree on to communicate: the cluster's name with its founders.
    #[must_use]
    pub fn name_with_founders(&self) -> String {
        let nodes: Vec<String> = self.founders.iter().map(ToString::to_string).collect();
        let listed = format!("{}.nodes-{}", self.name, nodes.join("-"));
        if listed.len() <= PEER_NAME_BYTES_MAX {
            return listed;
        }
        let digest = Sha256::digest(listed.as_bytes());
        let digest: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        format!("{}.nodes-{digest}", self.name)
    }

    /// Returns the group that a node leads in normal operation.
    #[must_use]
    pub fn group_of(node: NodeId) -> GroupId {
        GroupId { node, incarnation: FIRST }
    }

    /// Returns whether this node is a founder of the cluster.
    #[must_use]
    pub fn is_founder(&self) -> bool {
        self.founders.contains(&self.node)
    }

    /// Returns whether this node sets a new cluster's configuration: only one may, or the result would depend on a
    /// race.
    #[must_use]
    pub fn seeds(&self) -> bool {
        self.founders.first() == Some(&self.node)
    }
}

/// Rule for the names of clusters.
pub const NAME_RULE: &str = "1 to 40 letters, digits, `-`, `_` or `.`";

/// Returns whether a cluster may have this name.
#[must_use]
pub fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.chars().all(is_plain)
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "-_.".contains(c)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use tribunal_types::LogId;

    use super::*;
    use crate::config::ClusterNode;

    fn cluster(secret_file: PathBuf) -> Cluster {
        let nodes = (1..=3).map(|id| ClusterNode { id, address: format!("10.1.0.{id}:7421") }).collect();
        Cluster {
            name: "orders".into(),
            node: 2,
            listen: "10.1.0.2:7421".parse().unwrap(),
            secret_file,
            cert_file: PathBuf::new(),
            key_file: PathBuf::new(),
            authority_file: PathBuf::new(),
            nodes,
            founders: Vec::new(),
        }
    }

    #[test]
    fn nodes_that_share_name_and_secret_share_an_identity() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        std::fs::write(&one, "0123456789abcdef0123456789abcdef\n").unwrap();
        std::fs::write(&two, "0123456789abcdef0123456789abcdeF").unwrap();
        let identity = |file: &PathBuf, name: &str| {
            Membership::read(&Cluster { name: name.into(), ..cluster(file.clone()) }).unwrap().identity
        };
        assert_eq!(identity(&one, "orders"), identity(&one, "orders"));
        assert!(identity(&one, "orders") != identity(&two, "orders"));
        assert!(identity(&one, "orders") != identity(&one, "other"));
        let member = Membership::read(&cluster(one)).unwrap();
        assert!(!member.seeds() && Membership { node: NodeId(1), ..member.clone() }.seeds());
        assert!(!member.keeps_log);
        // A node added later names the same cluster, whichever other nodes it knows.
        let mut later = cluster(dir.path().join("one"));
        later.nodes.push(ClusterNode { id: 4, address: "10.1.0.4:7421".into() });
        (later.node, later.founders) = (4, vec![3, 1, 2]);
        let later = Membership::read(&later).unwrap();
        assert_eq!(later.name_with_founders(), member.name_with_founders());
        assert!(!later.seeds() && later.nodes.len() == 4);
    }

    #[test]
    fn a_cluster_that_keeps_the_log_of_its_first_node_has_the_identity_of_that_log() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("secret");
        let kept = ClusterIdentity { id: LogId([7; 16]), incarnation: FIRST, row_secret: [8; 16] };
        std::fs::write(&file, kept_log::text(kept)).unwrap();
        let read = |name: &str| Membership::read(&Cluster { name: name.into(), ..cluster(file.clone()) });
        for name in ["orders", "other"] {
            let member = read(name).unwrap();
            assert!(member.keeps_log && member.identity == kept);
        }
        std::fs::write(&file, kept_log::text(kept).replace("07", "17")).unwrap();
        let faults = read("orders").unwrap_err().join("\n");
        assert!(faults.contains("secret") && faults.contains("damaged"), "{faults}");
    }

    #[test]
    fn every_fault_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let short = dir.path().join("short");
        std::fs::write(&short, "too short").unwrap();
        let mut config = cluster(short);
        config.name = "a b".into();
        config.node = 9;
        config.nodes.push(ClusterNode { id: 3, address: "somewhere".into() });
        config.nodes.push(ClusterNode { id: 0, address: ":1".into() });
        config.founders = vec![1024];
        let faults = Membership::read(&config).unwrap_err().join("\n");
        for expected in [
            "`cluster.name`",
            "no such node",
            "node 3 twice",
            "not host:port: somewhere",
            "a node 0",
            "a node 1024",
            "fewer than 32",
        ] {
            assert!(faults.contains(expected), "{expected}: {faults}");
        }
        config.secret_file = dir.path().join("missing");
        assert!(Membership::read(&config).unwrap_err().join("\n").contains("cannot read"));
    }
}
