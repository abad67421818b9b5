//! Several nodes on one thread, over logs that lose what was not synced and a network that loses, repeats and reorders.

mod cluster;
mod memory_log;
mod one_node;
mod replica;
mod three_nodes;

use bytes::Bytes;
use tribunal_types::{GroupId, Incarnation, NodeId};

use crate::{Members, Settings};

/// The group of node 1.
const GROUP: GroupId = GroupId { node: NodeId(1), incarnation: Incarnation(1) };

fn settings(seed: u64) -> Settings {
    Settings { seed, ..Settings::default() }
}

fn voters(nodes: &[u16]) -> Members {
    Members::first(nodes.iter().copied().map(NodeId))
}

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).expect("proposals of tests are text")
}
