//! Several nodes on one thread, over logs that lose unsynced writes and a network that loses, repeats and reorders
//! messages.

mod bad_messages;
mod cluster;
mod images;
mod member_changes;
mod memory_log;
mod one_node;
mod random_schedule;
mod replica;
mod restarts;
mod simulation;
mod stuck_disk;
mod three_nodes;

use bytes::Bytes;
use tribunal_types::{GroupId, Incarnation, NodeId};

use crate::{Members, RaftMessage, Settings};

/// The group of node 1.
const GROUP: GroupId = GroupId { node: NodeId(1), incarnation: Incarnation(1) };

fn settings(seed: u64) -> Settings {
    Settings { seed, ..Settings::default() }
}

fn voters(nodes: &[u16]) -> Members {
    Members::first(nodes.iter().copied().map(NodeId))
}

fn decoded(bytes: &Bytes) -> RaftMessage {
    RaftMessage::decode(bytes).expect("replicas send what can be decoded")
}

fn text(bytes: &Bytes) -> &str {
    std::str::from_utf8(bytes).expect("proposals of tests are text")
}
