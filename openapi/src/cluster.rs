//! The cluster that a node belongs to, as that node sees it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The cluster, as one of its nodes sees it. A node that runs alone has no name, and itself in the list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterInfo {
    /// Name of the cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "orders")]
    pub name: Option<String>,
    /// The node that answers.
    #[schema(minimum = 0, example = 1)]
    pub node: u16,
    /// Whether it takes transactions: a majority of the nodes answers it, and it leads its own log.
    #[schema(example = true)]
    pub takes_commits: bool,
    /// Whether it is ready: `/readyz` returns 200.
    #[schema(example = true)]
    pub ready: bool,
    /// Why it is not ready, or what else is wrong, for people.
    pub reasons: Vec<String>,
    /// Version of its binary.
    #[schema(example = "0.1.0")]
    pub version: String,
    /// Last epoch that it has decided.
    #[schema(example = "8841")]
    pub epoch: String,
    /// Digest of all outcomes up to that epoch: nodes with the same epoch have the same.
    #[schema(example = "9f86d081884c7d65")]
    pub digest: String,
    /// Digest of all outcomes up to the epoch that the request names. Absent if the node has not decided it yet, or if it is
    /// further back than the last 1024 epochs with a transaction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9f86d081884c7d65")]
    pub digest_at: Option<String>,
    /// Last entry of the control log that it has; 0 on a node that runs alone.
    #[schema(example = "12")]
    pub control_index: String,
    /// The node that leads the control log, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, example = 2)]
    pub control_leader: Option<u16>,
    /// Generation in which the cluster decides: rules and formats that all nodes share. It switches automatically once all members
    /// run releases that support the next one. Absent on a node that runs alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, example = 1)]
    pub generation: Option<u32>,
    /// Numbers of the nodes with which the cluster began, ascending: the configuration of an added node contains them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!([1, 2, 3]))]
    pub founders: Vec<u16>,
    /// SHA-256 of the certificates of the authorities that the node trusts to sign nodes' certificates, in hexadecimal digits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!(["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"]))]
    pub authorities: Vec<String>,
    /// All nodes that were not removed, ascending.
    pub nodes: Vec<ClusterNode>,
    /// Stores with a storage outside of the nodes that are not detached, and which node pushes to each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pushes: Vec<ClusterPush>,
    /// Stores whose log is delivered to a webhook, and which node delivers it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub webhooks: Vec<ClusterPush>,
}

/// A store that one node pushes: to its storage outside of the nodes, or to its webhook.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterPush {
    /// Its namespace.
    #[schema(example = "default")]
    pub namespace: String,
    /// Its name.
    #[schema(example = "orders")]
    pub store: String,
    /// The node that pushes; absent until one is named, which takes a moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, example = 2)]
    pub node: Option<u16>,
}

/// The state of a node's membership.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodeStage {
    /// It was admitted, and becomes a member once it has started and caught up.
    Joining,
    /// It is a member.
    #[default]
    Member,
    /// It is a member, and votes, but an operator has drained it: it leads no log, takes no commits and pushes to no storage.
    Drained,
    /// It is being removed.
    Leaving,
}

/// A node to add to a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeRequest {
    /// Where the other nodes reach it: `host:port`.
    #[schema(min_length = 3, max_length = 261, pattern = "^.+:[0-9]{1,5}$", example = "10.1.0.4:7421")]
    pub address: String,
    /// A name for people, unique in the cluster; its address if absent, which must then have at most 64 bytes. A repeated name
    /// and address mean the same node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 64, example = "rack-2")]
    pub name: Option<String>,
}

/// A node that was admitted to a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeAdmitted {
    /// Its number: no other node ever has it.
    #[schema(minimum = 0, example = 4)]
    pub node: u16,
    /// Where the other nodes reach it.
    #[schema(example = "10.1.0.4:7421")]
    pub address: String,
    /// Its name.
    #[schema(example = "rack-2")]
    pub name: String,
}

/// A node of a cluster, as another one sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClusterNode {
    /// Its number.
    #[schema(minimum = 0, example = 2)]
    pub node: u16,
    /// Where the other nodes reach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "10.1.0.2:7421")]
    pub address: Option<String>,
    /// `joining` until it has started and caught up, then `member`; `drained` until it is resumed; `leaving` while it
    /// is being removed.
    #[serde(default)]
    pub stage: NodeStage,
    /// Whether the answering node is connected to it, in both directions; true for itself.
    #[schema(example = true)]
    pub connected: bool,
    /// Time since something last arrived from it, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, example = 40)]
    pub silent_ms: Option<u32>,
    /// The node that leads its log: normally itself, another one while it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, example = 2)]
    pub led_by: Option<u16>,
    /// Version of its binary, as announced by the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "0.1.0")]
    pub version: Option<String>,
    /// Generations in which it can decide: one, or the oldest and the newest one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1-3")]
    pub generations: Option<String>,
    /// Its plugin engine. An uploaded rule or validator is activated only if all members have the same one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "wasm-1-x86_64-5d41402a")]
    pub engine: Option<String>,
    /// Why there is no connection, or what else is wrong with the node, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "10.1.0.2:7421 refuses the connection")]
    pub problem: Option<String>,
}
