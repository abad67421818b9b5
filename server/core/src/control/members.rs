//! The members: nodes that were ever admitted, by number, and the groups that joined. A number is never used again.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

use tribunal_types::{Csn, Epoch, GroupJoin, NodeId};

use super::effect::{Applied, Effect, Refusal};

/// Largest node id: a [`Csn`] carries it.
const NODE_MAX: u16 = (1 << Csn::NODE_BITS) - 1;

/// All members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    nodes: BTreeMap<NodeId, String>,
    groups: BTreeMap<NodeId, GroupJoin>,
}

impl Members {
    /// Gives the node of a name its number, from 1.
    pub(super) fn admit(&mut self, name: &str) -> Applied {
        if let Some((node, _)) = self.nodes().find(|(_, known)| *known == name) {
            return Ok(Effect::NodeAdmitted(node));
        }
        let last = self.nodes.last_key_value().map_or(0, |(node, _)| node.0);
        if last >= NODE_MAX {
            return Err(Refusal::TooManyNodes);
        }
        let node = NodeId(last + 1);
        self.nodes.insert(node, name.into());
        Ok(Effect::NodeAdmitted(node))
    }

    /// Lets a group join; `next` is the first epoch that carries the entry, and no group is a member before that.
    pub(super) fn join(&mut self, join: GroupJoin, next: Epoch) -> Applied {
        let join = GroupJoin { first: join.first.max(next), ..join };
        let node = join.group.node;
        match self.groups.get(&node) {
            // Proposed twice: the first one counts.
            Some(known) if known.group == join.group => Ok(Effect::Unchanged),
            Some(_) => Err(Refusal::NodeHasGroup),
            None if !self.nodes.contains_key(&node) => Err(Refusal::NodeNotAdmitted),
            None => {
                self.groups.insert(node, join);
                Ok(Effect::GroupJoined(join))
            }
        }
    }

    /// Returns the nodes, ascending id, with their names.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &str)> {
        self.nodes.iter().map(|(node, name)| (*node, name.as_str()))
    }

    /// Returns the groups that joined, ascending node, each with the first epoch that waits for it.
    pub fn groups(&self) -> impl Iterator<Item = GroupJoin> {
        self.groups.values().copied()
    }

    pub(super) fn image(&self) -> (Vec<(NodeId, String)>, Vec<GroupJoin>) {
        let nodes = self.nodes.iter().map(|(node, name)| (*node, name.clone())).collect();
        (nodes, self.groups().collect())
    }

    pub(super) fn restore(nodes: Vec<(NodeId, String)>, groups: Vec<GroupJoin>) -> Members {
        let groups = groups.into_iter().map(|join| (join.group.node, join)).collect();
        Members { nodes: nodes.into_iter().collect(), groups }
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;

    use tribunal_types::{Epoch, GroupId, Incarnation};

    use super::*;

    fn join(node: u16, incarnation: u32, first: u64) -> GroupJoin {
        let group = GroupId { node: NodeId(node), incarnation: Incarnation(incarnation) };
        GroupJoin { group, first: Epoch(first) }
    }

    #[test]
    fn nodes_are_numbered_in_the_order_of_their_entries() {
        let mut members = Members::default();
        assert_eq!(members.admit("a"), Ok(Effect::NodeAdmitted(NodeId(1))));
        assert_eq!(members.admit("b"), Ok(Effect::NodeAdmitted(NodeId(2))));
        assert_eq!(members.admit("a"), Ok(Effect::NodeAdmitted(NodeId(1))), "proposed twice");
        for n in 3..=NODE_MAX {
            assert_eq!(members.admit(&format!("n{n}")), Ok(Effect::NodeAdmitted(NodeId(n))));
        }
        assert_eq!(members.admit("z"), Err(Refusal::TooManyNodes));
    }

    #[test]
    fn a_node_has_one_group() {
        let mut members = Members::default();
        assert_eq!(members.join(join(1, 7, 5), Epoch(2)), Err(Refusal::NodeNotAdmitted));
        members.admit("a").unwrap();
        assert_eq!(members.join(join(1, 7, 5), Epoch(2)), Ok(Effect::GroupJoined(join(1, 7, 5))));
        assert_eq!(members.join(join(1, 7, 9), Epoch(2)), Ok(Effect::Unchanged));
        assert_eq!(members.groups().collect::<Vec<_>>(), [join(1, 7, 5)]);
        assert_eq!(members.join(join(1, 8, 9), Epoch(2)), Err(Refusal::NodeHasGroup));
    }

    #[test]
    fn a_group_joins_no_earlier_than_its_entry_is_carried() {
        let mut members = Members::default();
        members.admit("a").unwrap();
        assert_eq!(members.join(join(1, 7, 5), Epoch(9)), Ok(Effect::GroupJoined(join(1, 7, 9))));
        assert_eq!(members.groups().collect::<Vec<_>>(), [join(1, 7, 9)]);
    }
}
