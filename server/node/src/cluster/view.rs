//! The sequencer's published view of the cluster: leaders, and how far this node has decided.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tribunal_core::control::members::Members;
use tribunal_core::control::releases::Releases;
use tribunal_member::OddPeer;
use tribunal_peer::{PeerStatus, Peers};
use tribunal_service::{ClusterView, MemberStage, NodeView};
use tribunal_types::{ClusterNode, ControlIndex, Digest, Epoch, GroupId, NodeId, NodeStage};

use crate::cluster::membership::Membership;
use crate::cluster::node_member::NodeMember;
use crate::cluster::refused_frames::RefusedFrames;
use crate::cluster::roster;
use crate::cluster::transfers::Transfers;

/// Number of epochs whose digest is kept.
const DIGESTS_KEPT: usize = 1024;
/// How long a majority's reply counts: many ticks, and far less than the time until another node takes over.
const SERVES_FOR: Duration = Duration::from_millis(500);

/// The sequencer's knowledge of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// The node takes transactions.
    pub takes_commits: bool,
    /// The node forwards configuration changes: so does a drained node while it knows the leader.
    pub takes_changes: bool,
    /// Leader of each group that has one.
    pub leaders: BTreeMap<GroupId, NodeId>,
    /// Voters of the node's own group: an admitted node becomes one before it is a member.
    pub voters: BTreeSet<NodeId>,
    /// Number of groups that the node leads in a term that has begun, including the control group.
    pub led: usize,
    /// Elections noticed since the start.
    pub elections: u64,
    /// Last control log entry received.
    pub control: ControlIndex,
    /// Last epoch that the log of each group covers.
    pub covered: BTreeMap<GroupId, Epoch>,
    /// By how many entries each other node lags in the groups that this node leads.
    pub lags: BTreeMap<NodeId, u64>,
    /// Why nothing is decided here: the missing code that decides.
    pub lacks: Option<String>,
    /// Why the node's clock is not trusted.
    pub clock: Option<String>,
    /// The nodes, present and former.
    pub members: Members,
    /// Their releases.
    pub releases: Releases,
    /// The nodes whose decisions differ from this one's.
    pub odd: BTreeMap<NodeId, OddPeer>,
}

/// The state of a cluster, as this node sees it.
#[derive(Default)]
pub struct View {
    roles: RwLock<Roles>,
    /// Digests after the last epochs with a transaction, ascending.
    decided: RwLock<VecDeque<(Epoch, Digest)>>,
    /// When a majority last replied.
    served_at: RwLock<Option<Instant>>,
    /// How far the clocks of other nodes are ahead of this node's, milliseconds.
    clock_offsets_ms: RwLock<BTreeMap<NodeId, i64>>,
    /// Refused frames of other nodes.
    pub refused: RefusedFrames,
}

impl View {
    /// Sets the members before the sequencer runs.
    pub fn begin(&self, members: &Members) {
        self.roles.write().members = members.clone();
    }

    /// Records the last decided epoch. Must be called after every epoch with a transaction.
    pub fn decided(&self, epoch: Epoch, digest: Digest) {
        let mut decided = self.decided.write();
        if decided.back().is_some_and(|(last, _)| *last >= epoch) {
            return;
        }
        if decided.len() == DIGESTS_KEPT {
            decided.pop_front();
        }
        decided.push_back((epoch, digest));
    }

    /// Returns the digest of all outcomes up to an epoch, if the epoch is recent.
    #[must_use]
    pub fn digest_at(&self, epoch: Epoch) -> Option<Digest> {
        let decided = self.decided.read();
        if decided.back().is_none_or(|(last, _)| *last < epoch) {
            return None;
        }
        let after = decided.partition_point(|(known, _)| *known <= epoch);
        after.checked_sub(1).map(|at| decided[at].1)
    }

    /// Updates the roles. `clock` is the reason why the node's clock is not trusted.
    pub fn follow(&self, member: &NodeMember, clock: Option<String>) {
        let covered: BTreeMap<GroupId, Epoch> =
            member.replica().epochs().groups().map(|(group, next)| (group, next.prev())).collect();
        let leaders = [GroupId::CONTROL].into_iter().chain(covered.keys().copied());
        let leaders = leaders.filter_map(|group| Some((group, member.leader(group)?))).collect();
        let lacks = member.replica().policies().lacking();
        let decides = member.takes_commits() && lacks.is_none();
        let members = member.replica().replicated().members();
        let has_left = |group: &GroupId| members.node(group.node).is_some_and(|node| node.stage == NodeStage::Left);
        let roles = Roles {
            takes_commits: decides && clock.is_none(),
            takes_changes: decides || member.is_drained() && member.leader(GroupId::CONTROL).is_some(),
            lacks,
            clock,
            leaders,
            voters: member.voters().cloned().unwrap_or_default(),
            led: member.led().filter(|group| !has_left(group)).count(),
            elections: member.elections(),
            control: member.control(),
            covered,
            lags: member.lags(),
            members: members.clone(),
            releases: member.replica().replicated().releases().clone(),
            odd: member.odd_peers().clone(),
        };
        for (node, odd) in &roles.odd {
            if !self.roles.read().odd.contains_key(node) {
                tracing::warn!("{}", has_diverged(*node, odd));
            }
        }
        *self.served_at.write() = roles.takes_commits.then(Instant::now);
        if *self.roles.read() != roles {
            *self.roles.write() = roles;
        }
    }

    /// Records how far the clocks of other nodes are ahead of this node's, milliseconds.
    pub fn compared_clocks(&self, offsets_ms: BTreeMap<NodeId, i64>) {
        *self.clock_offsets_ms.write() = offsets_ms;
    }

    /// Returns how far the clocks of other nodes are ahead of this node's, milliseconds, if reported recently.
    #[must_use]
    pub fn clock_offsets_ms(&self) -> BTreeMap<NodeId, i64> {
        self.clock_offsets_ms.read().clone()
    }

    /// Returns the sequencer's knowledge of the cluster.
    #[must_use]
    pub fn roles(&self) -> Roles {
        self.roles.read().clone()
    }

    /// Returns whether a member takes transactions.
    #[must_use]
    pub fn takes_commits(&self) -> bool {
        self.roles.read().takes_commits
    }

    /// Returns whether this node can decide nothing, regardless of the other nodes: its clock is not trusted, or it
    /// lacks code.
    #[must_use]
    pub fn refuses_transactions(&self) -> bool {
        let roles = self.roles.read();
        roles.clock.is_some() || roles.lacks.is_some()
    }

    /// Returns whether a member takes transactions and has verified so just now: a process that was paused cannot rely
    /// on it before its sequencer has checked again.
    #[must_use]
    pub fn serves_now(&self) -> bool {
        self.served_at.read().is_some_and(|at| at.elapsed() < SERVES_FOR)
    }

    /// Returns whether a member forwards configuration changes.
    #[must_use]
    pub fn takes_changes(&self) -> bool {
        self.roles.read().takes_changes
    }
}

/// A member's cluster.
pub struct Joined {
    /// Its nodes.
    pub membership: Membership,
    /// The connections to them.
    pub peers: Arc<Peers>,
    /// Transfers from and to the other nodes.
    pub transfers: Arc<Transfers>,
}

/// Describes a node that has decided otherwise than this one.
fn has_diverged(node: NodeId, odd: &OddPeer) -> String {
    let OddPeer { epoch, theirs, own } = odd;
    format!(
        "node {node} has another state than this one: digest {theirs} after epoch {epoch}, and here {own}. It stops if a majority \
         has what this node has; see its log"
    )
}

/// Returns the nodes that this node is not connected with, with the reason if known.
pub fn not_connected(peers: &Peers) -> Vec<String> {
    let status = peers.status();
    let missing = status.peers.iter().filter(|(_, peer)| !is_connected(peer));
    let named = missing.map(|(node, peer)| match peer.problem() {
        Some(problem) => format!("{node} ({problem})"),
        None => node.to_string(),
    });
    named.collect()
}

fn is_connected(peer: &PeerStatus) -> bool {
    peer.is_connected() && peer.heartbeat.accepted && peer.bulk.accepted
}

fn stage_of(node: &ClusterNode) -> MemberStage {
    match (node.stage, node.joined) {
        (NodeStage::Present, None) => MemberStage::Joining,
        (NodeStage::Present, Some(_)) if node.drained => MemberStage::Drained,
        (NodeStage::Present, Some(_)) => MemberStage::Member,
        (NodeStage::Leaving | NodeStage::Left, _) => MemberStage::Leaving,
    }
}

/// Assembles the known state of the nodes; `joined` is absent on a single node.
pub fn view_of(view: &View, joined: Option<&Joined>, group: GroupId) -> ClusterView {
    let (epoch, digest) = view.decided.read().back().copied().unwrap_or_default();
    let Some(Joined { membership, peers, .. }) = joined else {
        let (node, led_by) = (group.node, Some(group.node));
        let nodes = vec![NodeView { node, connected: true, led_by, ..NodeView::default() }];
        return ClusterView { node, takes_commits: true, epoch, digest, nodes, ..ClusterView::default() };
    };
    let Roles { takes_commits, leaders, voters, control, odd, lacks, clock, members, releases, .. } = view.roles();
    let status = peers.status();
    let addresses = roster::addresses(membership, &members);
    let own_address = membership.nodes.get(&membership.node);
    let nodes = members.nodes().filter(|known| known.stage != NodeStage::Left).map(|known| {
        let node = &known.id;
        let peer = status.peers.get(node);
        let received_at = peer.and_then(|peer| peer.received_at());
        let silent = received_at.map(|at| Instant::now().saturating_duration_since(at).as_millis());
        NodeView {
            node: *node,
            address: addresses.get(node).or(own_address.filter(|_| *node == membership.node)).cloned(),
            stage: stage_of(known),
            connected: *node == membership.node || peer.is_some_and(is_connected),
            votes: voters.contains(node),
            silent_ms: silent.map(|ms| u32::try_from(ms).unwrap_or(u32::MAX)),
            led_by: leaders.get(&Membership::group_of(*node)).copied(),
            release: releases.of(*node).cloned(),
            problem: match odd.get(node) {
                _ if *node == membership.node => lacks.clone().or(clock.clone()),
                Some(odd) => Some(has_diverged(*node, odd)),
                None if peer.is_none() => {
                    Some(format!("node {} has no address of node {node}: add it to `cluster.nodes`", membership.node))
                }
                None => peer.and_then(|peer| peer.problem().map(str::to_owned)),
            },
        }
    });
    ClusterView {
        name: Some(membership.name.clone()),
        founders: membership.founders.iter().copied().collect(),
        authorities: membership.authorities.clone(),
        node: membership.node,
        takes_commits,
        epoch,
        digest,
        control,
        control_leader: leaders.get(&GroupId::CONTROL).copied(),
        generation: Some(releases.generation()),
        nodes: nodes.collect(),
        pushes: Vec::new(),
        webhooks: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_of_the_last_epochs_are_known() {
        let view = View::default();
        assert_eq!(view.digest_at(Epoch(0)), None);
        for epoch in [4, 7, 7, 9] {
            view.decided(Epoch(epoch), Digest(100 + epoch));
        }
        let at = |epoch| view.digest_at(Epoch(epoch)).map(|digest| digest.0);
        // Epochs without a transaction change nothing; states before the first kept epoch are unknown.
        assert_eq!([3, 4, 6, 7, 8, 9, 10].map(at), [None, Some(104), Some(104), Some(107), Some(107), Some(109), None]);
        (0..DIGESTS_KEPT as u64).for_each(|n| view.decided(Epoch(10 + n), Digest(n)));
        assert_eq!((at(9), at(10)), (None, Some(0)));
    }
}
