//! The nodes of a cluster, and their addresses.
//!
//! The control log lists the nodes, with the address of each added one. The configuration gives the founders'
//! addresses; its addresses of other nodes override the control log, so that a node can move.

use std::collections::{BTreeMap, BTreeSet};

use tribunal_core::control::Effect;
use tribunal_core::control::members::Members;
use tribunal_peer::Peers;
use tribunal_types::{NodeId, NodeStage};

use crate::cluster::membership::Membership;

/// Returns the addresses of the other nodes, including those being removed and those known only from the configuration:
/// a new node knows no others.
#[must_use]
pub fn addresses(membership: &Membership, members: &Members) -> BTreeMap<NodeId, String> {
    let admitted = members.nodes().filter(|node| !node.address.is_empty());
    let mut addresses: BTreeMap<_, _> = admitted.map(|node| (node.id, node.address.clone())).collect();
    addresses.extend(membership.nodes.iter().map(|(node, address)| (*node, address.clone())));
    let former = former(members);
    addresses.retain(|node, _| *node != membership.node && !former.contains(node));
    addresses
}

/// Returns the removed nodes.
#[must_use]
pub fn former(members: &Members) -> BTreeSet<NodeId> {
    members.nodes().filter(|node| node.stage == NodeStage::Left).map(|node| node.id).collect()
}

/// Connects this node with the other known nodes, and sets the removed ones, which are notified when they connect.
pub fn connect(peers: &Peers, membership: &Membership, members: &Members) {
    if let Err(reason) = peers.set_peers(addresses(membership, members)) {
        tracing::error!(reason, "the connections to the other nodes cannot be changed");
    }
    peers.set_former(former(members));
}

/// Applies the effect of a control entry to the connections.
pub fn follow(peers: &Peers, membership: &Membership, members: &Members, effect: &Effect) {
    match effect {
        Effect::NodeAdmitted(node) => {
            tracing::info!(added = node.0, "a node was admitted");
            connect(peers, membership, members);
        }
        Effect::GenerationSwitched(generation) => {
            tracing::info!(
                generation = generation.0,
                "the cluster has switched to another generation: there is no way back to older releases"
            );
            peers.set_generation(*generation);
        }
        Effect::GroupJoined(join) => tracing::info!(added = join.group.node.0, "a node has become a member"),
        Effect::NodeDrained(node) => tracing::info!(drained = node.0, "a node is drained"),
        Effect::NodeResumed(node) => tracing::info!(resumed = node.0, "a node is no longer drained"),
        Effect::NodeLeaves(node) => tracing::info!(leaves = node.0, "a node is being removed"),
        Effect::NodeLeft(node) => {
            tracing::info!(removed = node.0, "a node was removed");
            connect(peers, membership, members);
        }
        Effect::OthersLeft(node) => {
            tracing::warn!(
                left = node.0,
                "this is the only node now: all others were removed by `tribunal cluster recover`"
            );
            connect(peers, membership, members);
        }
        _ => {}
    }
}
