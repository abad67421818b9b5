//! Which nodes a cluster has, and where they are.
//!
//! The control log says which there are, and the address of each that was added. The configuration says where those are with
//! which the cluster began; what it says of others counts more than the control log, so that a node can move.

use std::collections::{BTreeMap, BTreeSet};

use tribunal_core::control::Effect;
use tribunal_core::control::members::Members;
use tribunal_peer::Peers;
use tribunal_types::{NodeId, NodeStage};

use crate::cluster::membership::Membership;

/// Returns where the other nodes are, those included that are being removed, and those of which only the configuration knows:
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

/// Returns the nodes that were removed.
#[must_use]
pub fn former(members: &Members) -> BTreeSet<NodeId> {
    members.nodes().filter(|node| node.stage == NodeStage::Left).map(|node| node.id).collect()
}

/// Connects this node with the others, as far as it knows them, and tells those that were removed.
pub fn connect(peers: &Peers, membership: &Membership, members: &Members) {
    if let Err(reason) = peers.set_peers(addresses(membership, members)) {
        tracing::error!(reason, "the connections to the other nodes cannot be changed");
    }
    peers.set_former(former(members));
}

/// Carries out what a control entry means for the connections.
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
