//! The members of a group, as of one of its entries.
//!
//! A change of several members goes through a joint state, which requires majorities of both the old and the new
//! voters; the leader leaves it automatically.

use std::collections::BTreeSet;

use raft::eraftpb::{ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2, ConfState};
use tribunal_codec::{Malformed, Reader, put_varint};
use tribunal_types::NodeId;

use crate::settings::{MEMBERS_MAX, NODE_MAX};

/// The members of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Index of the entry that established them; 0 for the first members.
    pub as_of: u64,
    /// Nodes whose majority decides.
    pub voters: BTreeSet<NodeId>,
    /// Nodes that receive the log but do not vote.
    pub learners: BTreeSet<NodeId>,
    /// The previous voters, whose majority is also required while they are being replaced; empty otherwise.
    pub outgoing: BTreeSet<NodeId>,
    /// The subset of `outgoing` that becomes learners.
    pub learners_next: BTreeSet<NodeId>,
}

impl Members {
    /// Returns the first members of a new group, all of them voters.
    #[must_use]
    pub fn first(voters: impl IntoIterator<Item = NodeId>) -> Self {
        Self { voters: voters.into_iter().collect(), ..Self::default() }
    }

    /// Returns whether a node is a member, in any role.
    #[must_use]
    pub fn contains(&self, node: NodeId) -> bool {
        self.sets().into_iter().any(|set| set.contains(&node))
    }

    /// Returns whether a node's vote counts.
    pub(crate) fn is_voter(&self, node: NodeId) -> bool {
        self.voters.contains(&node) || self.outgoing.contains(&node)
    }

    /// Returns all members, each once.
    pub(crate) fn all(&self) -> impl Iterator<Item = NodeId> {
        self.sets().into_iter().flatten().copied().collect::<BTreeSet<_>>().into_iter()
    }

    /// Returns whether voters are being replaced.
    #[must_use]
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Returns whether a node decides alone.
    pub(crate) fn decides_alone(&self, node: NodeId) -> bool {
        self.voters.iter().chain(&self.outgoing).all(|voter| *voter == node)
    }

    fn sets(&self) -> [&BTreeSet<NodeId>; 4] {
        [&self.voters, &self.learners, &self.outgoing, &self.learners_next]
    }

    /// Checks the members for errors at which raft-rs would panic.
    pub(crate) fn check(&self) -> Result<(), &'static str> {
        let all = self.sets().into_iter().flatten();
        if all.clone().any(|node| node.0 == 0 || node.0 > NODE_MAX) {
            return Err("a member's number is out of range");
        }
        if all.collect::<BTreeSet<_>>().len() > MEMBERS_MAX {
            return Err("too many members");
        }
        if self.voters.is_empty() {
            return Err("no voters");
        }
        if self.learners.iter().any(|node| self.voters.contains(node) || self.outgoing.contains(node)) {
            return Err("a learner is a voter as well");
        }
        if self.learners_next.iter().any(|node| self.voters.contains(node) || !self.outgoing.contains(node)) {
            return Err("a future learner is not an outgoing voter");
        }
        Ok(())
    }

    /// Encodes the members for a group's state.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_varint(self.as_of, &mut out);
        for set in self.sets() {
            put_varint(set.len() as u64, &mut out);
            set.iter().for_each(|node| put_varint(u64::from(node.0), &mut out));
        }
        out
    }

    /// Decodes the output of [`Members::encode`].
    ///
    /// # Errors
    /// If the bytes are not the members of a group.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let mut members = Self { as_of: reader.varint("index of members")?, ..Self::default() };
        let Self { voters, learners, outgoing, learners_next, .. } = &mut members;
        for set in [voters, learners, outgoing, learners_next] {
            for _ in 0..reader.count(1, "members")? {
                if !set.insert(NodeId(reader.number("member")?)) {
                    return Err(reader.malformed("member that occurs twice"));
                }
            }
        }
        members.check().map_err(|what| reader.malformed(what))?;
        reader.finish("end of members")?;
        Ok(members)
    }

    pub(crate) fn conf_state(&self) -> ConfState {
        let ids = |set: &BTreeSet<NodeId>| set.iter().map(|node| u64::from(node.0)).collect::<Vec<_>>();
        let mut state = ConfState::default();
        state.set_voters(ids(&self.voters));
        state.set_learners(ids(&self.learners));
        state.set_voters_outgoing(ids(&self.outgoing));
        state.set_learners_next(ids(&self.learners_next));
        state.set_auto_leave(self.is_joint());
        state
    }

    pub(crate) fn from_conf_state(as_of: u64, state: &ConfState) -> Self {
        let nodes = |ids: &[u64]| ids.iter().map(|id| NodeId(*id as u16)).collect();
        Self {
            as_of,
            voters: nodes(state.get_voters()),
            learners: nodes(state.get_learners()),
            outgoing: nodes(state.get_voters_outgoing()),
            learners_next: nodes(state.get_learners_next()),
        }
    }

    /// Returns the change that replaces the members `present` with these, neither of them joint.
    pub(crate) fn change_from(&self, present: &Self) -> ConfChangeV2 {
        let single = |kind, node: &NodeId| {
            let mut single = ConfChangeSingle::default();
            single.set_change_type(kind);
            single.node_id = u64::from(node.0);
            single
        };
        let voters = self.voters.difference(&present.voters).map(|node| single(ConfChangeType::AddNode, node));
        let learners =
            self.learners.difference(&present.learners).map(|node| single(ConfChangeType::AddLearnerNode, node));
        let before = present.voters.iter().chain(&present.learners);
        let gone = before.filter(|node| !self.contains(**node)).map(|node| single(ConfChangeType::RemoveNode, node));
        let mut change = ConfChangeV2::default();
        change.set_changes(voters.chain(learners).chain(gone).collect::<Vec<_>>().into());
        change.set_transition(ConfChangeTransition::Auto);
        change
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(nodes: &[u16]) -> BTreeSet<NodeId> {
        nodes.iter().copied().map(NodeId).collect()
    }

    #[test]
    fn members_survive_a_round_trip_and_no_cut() {
        let members = Members {
            as_of: 300,
            voters: set(&[1, 2, 1023]),
            learners: set(&[4]),
            outgoing: set(&[1, 2, 3]),
            learners_next: set(&[3]),
        };
        let bytes = members.encode();
        assert_eq!(Members::decode(&bytes).unwrap(), members);
        assert!((0..bytes.len()).all(|cut| Members::decode(&bytes[..cut]).is_err()));
        assert_eq!(Members::from_conf_state(300, &members.conf_state()), members);
    }

    #[test]
    fn what_raft_would_panic_at_is_rejected() {
        let good = Members::first([NodeId(1), NodeId(2)]);
        good.check().unwrap();
        let with = |change: &dyn Fn(&mut Members)| {
            let mut members = good.clone();
            change(&mut members);
            members.check().unwrap_err()
        };
        assert_eq!(with(&|members| members.voters.clear()), "no voters");
        assert_eq!(with(&|members| members.learners = set(&[1])), "a learner is a voter as well");
        assert_eq!(with(&|members| members.voters = set(&[0])), "a member's number is out of range");
        assert_eq!(with(&|members| members.voters = set(&[1024])), "a member's number is out of range");
        assert_eq!(with(&|members| members.learners_next = set(&[9])), "a future learner is not an outgoing voter");
        assert_eq!(with(&|members| members.voters = (1..=65).map(NodeId).collect()), "too many members");
    }
}
