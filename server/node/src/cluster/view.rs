//! What the sequencer tells of the cluster to those who ask: who leads what, and how far this node has decided.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::RwLock;
use tribunal_peer::Peers;
use tribunal_service::{ClusterView, NodeView};
use tribunal_types::{Digest, Epoch, GroupId, NodeId};

use crate::cluster::membership::Membership;
use crate::cluster::recovery::NodeMember;

/// What the sequencer knows; it changes seldom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// The node takes transactions.
    pub takes_commits: bool,
    /// Leader of each group that has one.
    pub leaders: BTreeMap<GroupId, NodeId>,
}

/// The state of a cluster, as this node sees it.
#[derive(Default)]
pub struct View {
    roles: RwLock<Roles>,
    decided: RwLock<(Epoch, Digest)>,
}

impl View {
    /// Notes how far the node has decided.
    pub fn decided(&self, epoch: Epoch, digest: Digest) {
        *self.decided.write() = (epoch, digest);
    }

    /// Notes who leads what.
    pub fn follow(&self, member: &NodeMember) {
        let groups = member.replica().epochs().groups().map(|(group, _)| group);
        let leaders = [GroupId::CONTROL].into_iter().chain(groups);
        let leaders = leaders.filter_map(|group| Some((group, member.leader(group)?))).collect();
        let roles = Roles { takes_commits: member.takes_commits(), leaders };
        if *self.roles.read() != roles {
            *self.roles.write() = roles;
        }
    }

    /// Returns whether a member takes transactions.
    #[must_use]
    pub fn takes_commits(&self) -> bool {
        self.roles.read().takes_commits
    }
}

/// The cluster of a node that is a member of one.
pub struct Joined {
    /// Its nodes.
    pub membership: Membership,
    /// The connections to them.
    pub peers: Arc<Peers>,
}

/// Puts together what is known of the nodes; `joined` is absent on a node that runs alone.
pub fn view_of(view: &View, joined: Option<&Joined>, group: GroupId) -> ClusterView {
    let (epoch, digest) = *view.decided.read();
    let Some(Joined { membership, peers }) = joined else {
        let (node, led_by) = (group.node, Some(group.node));
        let nodes = vec![NodeView { node, connected: true, led_by, ..NodeView::default() }];
        return ClusterView { node, takes_commits: true, epoch, digest, nodes, ..ClusterView::default() };
    };
    let Roles { takes_commits, leaders } = view.roles.read().clone();
    let status = peers.status();
    let nodes = membership.nodes.iter().map(|(node, address)| {
        let peer = status.peers.get(node);
        let received_at = peer.and_then(|peer| peer.received_at());
        let silent = received_at.map(|at| Instant::now().saturating_duration_since(at).as_millis());
        NodeView {
            node: *node,
            address: Some(address.clone()),
            connected: peer.is_none_or(|peer| peer.is_connected() && peer.heartbeat.accepted && peer.bulk.accepted),
            silent_ms: silent.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX)),
            led_by: leaders.get(&Membership::group_of(*node)).copied(),
            problem: peer.and_then(|peer| peer.problem().map(str::to_owned)),
        }
    });
    ClusterView {
        name: Some(membership.name.clone()),
        node: membership.node,
        takes_commits,
        epoch,
        digest,
        control_leader: leaders.get(&GroupId::CONTROL).copied(),
        nodes: nodes.collect(),
        pushes: Vec::new(),
    }
}
