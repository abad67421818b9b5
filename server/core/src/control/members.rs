//! The members: nodes that the cluster began with or that were admitted, by number, and the groups that joined. Numbers
//! are never reused.
//!
//! A node is admitted, which begins its group; its group joins once it has a leader. Later the node may be removed: its
//! group closes by an entry in its own log, the node leaves all groups, and everything but its number is forgotten. The
//! state of the groups is not known here, so a removal is complete when an entry reports it.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_types::limits::{ADDRESS_BYTES_MAX, NAME_BYTES_MAX, NODES_MAX};
use tribunal_types::{ClusterNode, Csn, Epoch, GroupId, GroupJoin, Incarnation, NodeId, NodeStage};

use super::effect::{Applied, Effect};
use super::refusal::{Limit, Refusal};

/// Largest node id that fits into a [`Csn`].
const NODE_MAX: u16 = (1 << Csn::NODE_BITS) - 1;
/// Numbers skipped after a majority was lost: the lost nodes may have assigned them to unknown nodes.
const UNKNOWN_NODES: u16 = 16;

/// All members. A copy shares everything until either one is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    nodes: Arc<BTreeMap<NodeId, ClusterNode>>,
}

impl Members {
    /// Returns the initial members of a cluster of these groups.
    pub(super) fn founded(groups: &[GroupId]) -> Members {
        Self::restore(groups.iter().map(|&group| founder(GroupJoin { group, first: Epoch(1) })).collect())
    }

    /// Returns the only initial member of a cluster.
    pub(super) fn begun_by(group: GroupJoin) -> Members {
        Self::restore([founder(group)].into())
    }

    /// Returns the group of an admitted node.
    #[must_use]
    pub fn group_of(node: NodeId) -> GroupId {
        GroupId { node, incarnation: Incarnation(1) }
    }

    /// Assigns a node its number. Its group begins with the voters of the control group at this entry, including those
    /// being removed: so it has a majority whenever the control group had one. If none of them is known, it begins with
    /// the present members.
    pub(super) fn admit(&mut self, name: &str, address: &str, voters: &[NodeId]) -> Applied {
        if !(1..=NAME_BYTES_MAX).contains(&name.len()) || !(1..=ADDRESS_BYTES_MAX).contains(&address.len()) {
            return Err(Refusal::NodeNameLength);
        }
        if let Some(known) = self.present().find(|known| known.name == name) {
            return if known.address == address {
                Ok(Effect::NodeAdmitted(known.id))
            } else {
                Err(Refusal::NodeNameTaken)
            };
        }
        if self.nodes.values().filter(|node| node.stage != NodeStage::Left).count() >= NODES_MAX {
            return Err(Refusal::LimitReached(Limit::Nodes));
        }
        let last = self.nodes.last_key_value().map_or(0, |(node, _)| node.0);
        if last >= NODE_MAX {
            return Err(Refusal::OutOfNodes);
        }
        let id = NodeId(last + 1);
        let may_vote = |voter: &&NodeId| self.nodes.get(voter).is_some_and(|known| known.stage != NodeStage::Left);
        let mut first_voters = voters.iter().filter(may_vote).copied().collect::<Vec<_>>();
        if first_voters.is_empty() {
            first_voters = self.present().filter(|node| node.joined.is_some()).map(|node| node.id).collect();
        }
        let (name, address) = (name.into(), address.into());
        self.insert(ClusterNode { id, name, address, first_voters, ..ClusterNode::default() });
        Ok(Effect::NodeAdmitted(id))
    }

    /// Binds an admitted node to its data directory.
    pub(super) fn claim(&mut self, node: NodeId, directory: u64) -> Applied {
        let is_admitted = |node: &&ClusterNode| node.stage == NodeStage::Present && !node.name.is_empty();
        let Some(known) = self.nodes.get(&node).filter(is_admitted) else { return Err(Refusal::NodeNotAdmitted) };
        match known.directory {
            Some(claimed) if claimed == directory => Ok(Effect::Unchanged),
            Some(_) => Err(Refusal::NodeClaimed),
            None => {
                self.insert(ClusterNode { directory: Some(directory), ..known.clone() });
                Ok(Effect::NodeClaimed(node))
            }
        }
    }

    /// Lets a group join; `next` is the first epoch that carries the entry, and no group becomes a member before it.
    pub(super) fn join(&mut self, join: GroupJoin, next: Epoch) -> Applied {
        let join = GroupJoin { first: join.first.max(next), ..join };
        let Some(node) = self.nodes.get(&join.group.node).filter(|node| node.stage == NodeStage::Present) else {
            return Err(Refusal::NodeNotAdmitted);
        };
        match node.joined {
            // Proposed twice: the first one counts.
            Some(known) if known.group == join.group => Ok(Effect::Unchanged),
            Some(_) => Err(Refusal::NodeHasGroup),
            None => {
                self.insert(ClusterNode { joined: Some(join), ..node.clone() });
                Ok(Effect::GroupJoined(join))
            }
        }
    }

    /// Begins the removal of a node. At least half of the members that the groups may still have must stay: then the
    /// remaining ones can decide, whatever the order in which the groups lose the others.
    pub(super) fn remove(&mut self, node: NodeId) -> Applied {
        let Some(known) = self.nodes.get(&node) else { return Err(Refusal::NodeUnknown) };
        if known.stage != NodeStage::Present {
            return Ok(Effect::Unchanged);
        }
        if known.joined.is_some() {
            let count = |stage| self.nodes.values().filter(|node| node.stage == stage && node.joined.is_some()).count();
            let (present, leaving) = (count(NodeStage::Present), count(NodeStage::Leaving));
            if present == 1 || 2 * (present - 1) < present + leaving {
                return Err(Refusal::LastMajority);
            }
            if !known.drained && self.serving().all(|other| other == node) {
                return Err(Refusal::LastServing);
            }
        }
        self.insert(ClusterNode { stage: NodeStage::Leaving, ..known.clone() });
        Ok(Effect::NodeLeaves(node))
    }

    /// Drains or resumes a node. Some member must keep taking commits.
    pub(super) fn drain(&mut self, node: NodeId, drained: bool) -> Applied {
        let Some(known) = self.nodes.get(&node) else { return Err(Refusal::NodeUnknown) };
        if known.stage != NodeStage::Present || known.joined.is_none() {
            return Err(Refusal::NodeNotMember);
        }
        if known.drained == drained {
            return Ok(Effect::Unchanged);
        }
        if drained && self.serving().all(|other| other == node) {
            return Err(Refusal::LastServing);
        }
        self.insert(ClusterNode { drained, ..known.clone() });
        Ok(if drained { Effect::NodeDrained(node) } else { Effect::NodeResumed(node) })
    }

    /// Returns the members that take commits.
    fn serving(&self) -> impl Iterator<Item = NodeId> {
        self.present().filter(|node| node.joined.is_some() && !node.drained).map(|node| node.id)
    }

    /// Removes all nodes but one, whatever is in flight, including nodes that the other members may have admitted.
    pub(super) fn leave_alone(&mut self, node: NodeId) -> Applied {
        let Some(known) = self.nodes.get(&node).filter(|known| known.joined.is_some()) else {
            return Err(Refusal::NodeNotMember);
        };
        let stays = ClusterNode { stage: NodeStage::Present, drained: false, ..known.clone() };
        if self.nodes.values().all(|other| other.id == node || other.stage == NodeStage::Left) {
            return Ok(Effect::Unchanged);
        }
        let last = self.nodes.last_key_value().map_or(0, |(node, _)| node.0);
        let unknown = NodeId(last.saturating_add(UNKNOWN_NODES).min(NODE_MAX));
        for known in self.nodes_mut().values_mut() {
            known.stage = NodeStage::Left;
        }
        self.insert(stays);
        self.nodes_mut().entry(unknown).or_insert(ClusterNode {
            id: unknown,
            stage: NodeStage::Left,
            ..ClusterNode::default()
        });
        Ok(Effect::OthersLeft(node))
    }

    /// Notes that no group contains a removed node any more.
    pub(super) fn forget(&mut self, node: NodeId) -> Effect {
        let Some(known) = self.nodes.get(&node).filter(|known| known.stage == NodeStage::Leaving) else {
            return Effect::Unchanged;
        };
        self.insert(ClusterNode { stage: NodeStage::Left, ..known.clone() });
        Effect::NodeLeft(node)
    }

    /// Returns all nodes, including removed ones, in ascending order of id.
    pub fn nodes(&self) -> impl Iterator<Item = &ClusterNode> {
        self.nodes.values()
    }

    /// Returns a node.
    #[must_use]
    pub fn node(&self, node: NodeId) -> Option<&ClusterNode> {
        self.nodes.get(&node)
    }

    /// Returns the nodes that are not being removed, in ascending order of id.
    pub fn present(&self) -> impl Iterator<Item = &ClusterNode> {
        self.nodes().filter(|node| node.stage == NodeStage::Present)
    }

    /// Returns whether a node is being removed or was removed.
    #[must_use]
    pub fn leaves(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.stage != NodeStage::Present)
    }

    /// Returns whether a node is drained.
    #[must_use]
    pub fn is_drained(&self, node: NodeId) -> bool {
        self.nodes.get(&node).is_some_and(|node| node.drained)
    }

    /// Returns the groups that joined, in ascending order of node, each with the first epoch that waits for it. Some
    /// may have closed.
    pub fn groups(&self) -> impl Iterator<Item = GroupJoin> {
        self.nodes.values().filter_map(|node| node.joined)
    }

    fn insert(&mut self, node: ClusterNode) {
        self.nodes_mut().insert(node.id, node);
    }

    fn nodes_mut(&mut self) -> &mut BTreeMap<NodeId, ClusterNode> {
        Arc::make_mut(&mut self.nodes)
    }

    pub(super) fn image(&self) -> Vec<ClusterNode> {
        self.nodes().cloned().collect()
    }

    pub(super) fn restore(nodes: Vec<ClusterNode>) -> Members {
        Members { nodes: Arc::new(nodes.into_iter().map(|node| (node.id, node)).collect()) }
    }
}

fn founder(join: GroupJoin) -> ClusterNode {
    ClusterNode { id: join.group.node, joined: Some(join), ..ClusterNode::default() }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use super::*;

    fn join(node: u16, incarnation: u32, first: u64) -> GroupJoin {
        let group = GroupId { node: NodeId(node), incarnation: Incarnation(incarnation) };
        GroupJoin { group, first: Epoch(first) }
    }

    fn founded(nodes: u16) -> Members {
        Members::founded(&(1..=nodes).map(|node| join(node, 0, 1).group).collect::<Vec<_>>())
    }

    #[test]
    fn nodes_are_numbered_in_the_order_of_their_entries_and_no_number_comes_again() {
        let mut members = Members::default();
        assert_eq!(members.admit("a", "a:1", &[]), Ok(Effect::NodeAdmitted(NodeId(1))));
        assert_eq!(members.admit("b", "b:1", &[]), Ok(Effect::NodeAdmitted(NodeId(2))));
        assert_eq!(members.admit("a", "a:1", &[]), Ok(Effect::NodeAdmitted(NodeId(1))), "proposed twice");
        assert_eq!(members.admit("a", "a:2", &[]), Err(Refusal::NodeNameTaken));
        for n in 3..=NODES_MAX as u16 {
            assert_eq!(members.admit(&format!("n{n}"), "n:1", &[]), Ok(Effect::NodeAdmitted(NodeId(n))));
        }
        assert_eq!(members.admit("z", "z:1", &[]), Err(Refusal::LimitReached(Limit::Nodes)));
        for n in NODES_MAX as u16 + 1..=NODE_MAX {
            let before = NodeId(n - 1);
            assert_eq!(members.remove(before), Ok(Effect::NodeLeaves(before)));
            assert_eq!(members.admit("y", "y:1", &[]), Err(Refusal::LimitReached(Limit::Nodes)), "groups may have it");
            assert_eq!(members.forget(before), Effect::NodeLeft(before));
            assert_eq!(members.admit("y", "y:1", &[]), Ok(Effect::NodeAdmitted(NodeId(n))), "the name is free again");
        }
        members.remove(NodeId(1)).unwrap();
        members.forget(NodeId(1));
        assert_eq!(members.admit("z", "z:1", &[]), Err(Refusal::OutOfNodes));
        assert_eq!(members.admit("", "z:1", &[]), Err(Refusal::NodeNameLength));
        assert_eq!(members.admit("z", &"z".repeat(ADDRESS_BYTES_MAX + 1), &[]), Err(Refusal::NodeNameLength));
    }

    #[test]
    fn a_node_has_one_group() {
        let mut members = Members::default();
        assert_eq!(members.join(join(1, 7, 5), Epoch(2)), Err(Refusal::NodeNotAdmitted));
        members.admit("a", "a:1", &[]).unwrap();
        assert_eq!(members.join(join(1, 7, 5), Epoch(2)), Ok(Effect::GroupJoined(join(1, 7, 5))));
        assert_eq!(members.join(join(1, 7, 9), Epoch(2)), Ok(Effect::Unchanged));
        assert_eq!(members.groups().collect::<Vec<_>>(), [join(1, 7, 5)]);
        assert_eq!(members.join(join(1, 8, 9), Epoch(2)), Err(Refusal::NodeHasGroup));
    }

    #[test]
    fn a_number_belongs_to_the_first_directory_that_claims_it() {
        let mut members = founded(3);
        assert_eq!(members.claim(NodeId(4), 7), Err(Refusal::NodeNotAdmitted));
        assert_eq!(members.claim(NodeId(3), 7), Err(Refusal::NodeNotAdmitted), "the cluster began with it");
        members.admit("d", "d:1", &[]).unwrap();
        assert_eq!(members.claim(NodeId(4), 7), Ok(Effect::NodeClaimed(NodeId(4))));
        assert_eq!(members.claim(NodeId(4), 7), Ok(Effect::Unchanged), "proposed twice");
        assert_eq!(members.claim(NodeId(4), 8), Err(Refusal::NodeClaimed), "a wiped disk");
        assert_eq!(members.node(NodeId(4)).unwrap().directory, Some(7));
        members.remove(NodeId(4)).unwrap();
        assert_eq!(members.claim(NodeId(4), 7), Err(Refusal::NodeNotAdmitted));
    }

    #[test]
    fn a_group_joins_no_earlier_than_its_entry_is_carried() {
        let mut members = Members::default();
        members.admit("a", "a:1", &[]).unwrap();
        assert_eq!(members.join(join(1, 7, 5), Epoch(9)), Ok(Effect::GroupJoined(join(1, 7, 9))));
        assert_eq!(members.groups().collect::<Vec<_>>(), [join(1, 7, 9)]);
    }

    #[test]
    fn a_new_group_has_the_voters_of_its_time_as_first_voters() {
        let mut members = founded(3);
        members.admit("d", "d:1", &[]).unwrap();
        members.remove(NodeId(2)).unwrap();
        members.admit("e", "e:1", &[]).unwrap();
        members.admit("f", "f:1", &[NodeId(1), NodeId(2), NodeId(3), NodeId(4)]).unwrap();
        members.forget(NodeId(2));
        members.admit("g", "g:1", &[NodeId(1), NodeId(2), NodeId(9)]).unwrap();
        members.admit("h", "h:1", &[NodeId(2)]).unwrap();
        let first = |members: &Members, node| members.node(NodeId(node)).unwrap().first_voters.clone();
        assert_eq!(first(&members, 4), [NodeId(1), NodeId(2), NodeId(3)]);
        assert_eq!(first(&members, 5), [NodeId(1), NodeId(3)], "2 leaves, and the group of 4 has not joined");
        assert_eq!(first(&members, 6), [1, 2, 3, 4].map(NodeId), "those of the control group");
        assert_eq!(first(&members, 7), [NodeId(1)], "2 has left, and nobody knows 9");
        assert_eq!(first(&members, 8), [NodeId(1), NodeId(3)]);
        assert_eq!(Members::restore(members.image()), members);
    }

    #[test]
    fn somebody_is_left_that_takes_commits() {
        let (one, two, three) = (NodeId(1), NodeId(2), NodeId(3));
        let mut members = founded(3);
        members.admit("d", "d:1", &[]).unwrap();
        assert_eq!(members.drain(NodeId(4), true), Err(Refusal::NodeNotMember), "it has not joined");
        assert_eq!(members.drain(NodeId(9), true), Err(Refusal::NodeUnknown));
        assert_eq!(members.drain(one, false), Ok(Effect::Unchanged));
        assert_eq!(members.drain(one, true), Ok(Effect::NodeDrained(one)));
        assert_eq!(members.drain(one, true), Ok(Effect::Unchanged), "proposed twice");
        assert!(members.is_drained(one) && !members.is_drained(two));
        assert_eq!(members.drain(two, true), Ok(Effect::NodeDrained(two)));
        assert_eq!(members.drain(three, true), Err(Refusal::LastServing), "4 takes none yet");
        assert_eq!(members.remove(three), Err(Refusal::LastServing));
        assert_eq!(Members::restore(members.image()), members);
        assert_eq!(members.drain(two, false), Ok(Effect::NodeResumed(two)));
        assert_eq!(members.remove(three), Ok(Effect::NodeLeaves(three)));
        assert_eq!(members.drain(three, true), Err(Refusal::NodeNotMember));
        assert_eq!(members.drain(two, true), Err(Refusal::LastServing));
        members.forget(three);
        assert_eq!(members.remove(one), Ok(Effect::NodeLeaves(one)), "it takes none anyway");
    }

    #[test]
    fn one_node_is_left_alone_whatever_is_under_way() {
        let mut members = founded(3);
        assert_eq!(members.leave_alone(NodeId(4)), Err(Refusal::NodeNotMember));
        members.remove(NodeId(3)).unwrap();
        members.admit("d", "d:1", &[]).unwrap();
        members.drain(NodeId(1), true).unwrap();
        assert_eq!(members.leave_alone(NodeId(4)), Err(Refusal::NodeNotMember), "it has not joined");
        assert_eq!(members.leave_alone(NodeId(1)), Ok(Effect::OthersLeft(NodeId(1))));
        assert_eq!(members.leave_alone(NodeId(1)), Ok(Effect::Unchanged));
        assert_eq!(members.present().map(|node| (node.id, node.drained)).collect::<Vec<_>>(), [(NodeId(1), false)]);
        assert_eq!(members.nodes().filter(|node| node.stage == NodeStage::Left).count(), 4);
        assert_eq!(
            members.admit("d", "d:1", &[]),
            Ok(Effect::NodeAdmitted(NodeId(21))),
            "others may have admitted up to 16"
        );
        members.insert(ClusterNode { id: NodeId(NODE_MAX), ..ClusterNode::default() });
        assert_eq!(members.leave_alone(NodeId(1)), Ok(Effect::OthersLeft(NodeId(1))));
        assert_eq!(members.node(NodeId(NODE_MAX)).map(|node| node.stage), Some(NodeStage::Left));
    }

    #[test]
    fn at_least_half_of_those_that_groups_may_have_stay() {
        let removed = |nodes: u16, order: &[u16]| {
            let mut members = founded(nodes);
            order.iter().map(|node| members.remove(NodeId(*node)).is_ok()).collect::<Vec<_>>()
        };
        assert_eq!(removed(1, &[1]), [false], "nobody would be left");
        assert_eq!(removed(2, &[1, 2]), [true, false]);
        assert_eq!(removed(3, &[1, 2, 1]), [true, false, true], "again is no other removal");
        assert_eq!(removed(4, &[1, 2, 3]), [true, true, false]);
        assert_eq!(removed(5, &[1, 2, 3]), [true, true, false]);
        let mut members = founded(3);
        members.remove(NodeId(1)).unwrap();
        assert_eq!(members.remove(NodeId(9)), Err(Refusal::NodeUnknown));
        assert_eq!(members.remove(NodeId(2)), Err(Refusal::LastMajority));
        assert_eq!(members.join(join(1, 0, 9), Epoch(9)), Err(Refusal::NodeNotAdmitted));
        assert_eq!(members.forget(NodeId(1)), Effect::NodeLeft(NodeId(1)));
        assert_eq!(members.forget(NodeId(1)), Effect::Unchanged);
        assert_eq!(members.forget(NodeId(2)), Effect::Unchanged, "nobody removes it");
        assert_eq!(members.remove(NodeId(2)), Ok(Effect::NodeLeaves(NodeId(2))));
        members.forget(NodeId(2));
        assert_eq!(members.remove(NodeId(3)), Err(Refusal::LastMajority));
        // A node that has not joined decides nothing alone, so it may always be removed.
        members.admit("d", "d:1", &[]).unwrap();
        assert_eq!(members.remove(NodeId(4)), Ok(Effect::NodeLeaves(NodeId(4))));
    }
}
