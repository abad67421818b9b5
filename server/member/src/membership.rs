//! Nodes that join and leave while the cluster runs (rules 5, 8 and 9 of the cluster).
//!
//! The control log says which nodes there are. What the groups make of it follows from that and from each group's own
//! members: the leader of a group compares the two and proposes the next single step, again and again until there is none
//! left. So nothing has to be remembered anywhere, and another leader simply goes on.
//!
//! * A node that was admitted is a learner first, and a voter once it has all entries but a few, and most of the voters, itself
//!   included, would be there.
//! * A group joins when its node leads it, and is a voter of all groups.
//! * A node that is being removed votes until its group has closed and, if it is there, for a moment longer: so it learns
//!   of the close, answers those who wait, and gives its leaderships away. Then it becomes a learner, of one group after the
//!   other, if most of the others are there; one that leads on nevertheless is deposed. A group that is about to get another voter
//!   gets it first: with fewer voters in between, it would survive the loss of fewer nodes.
//! * As a learner it decides epochs as before, because a group that it does not know yet may have begun with it. Once it votes in no
//!   group, the control log says that it has left, and the groups drop it (decision 113).
//!
//! Must never: let a leader remove itself, take more than one step at a time, add a node that is being removed.

use std::collections::{BTreeMap, BTreeSet};

use tribunal_core::control::members::Members as ClusterNodes;
use tribunal_core::executor::ShardExecutor;
use tribunal_core::planted::{Bug, planted};
use tribunal_raft::{BadGroup, GroupLog, GroupPoint, Input as RaftInput, Members, StoredGroup};
use tribunal_replica::{Event, PolicyRunner, Waiters};
use tribunal_types::{ClusterNode, ControlChange, GroupId, GroupJoin, NodeId, NodeStage};

use crate::cursors::Included;
use crate::frame::Frame;
use crate::member::Member;

/// Entries that a learner may lack when it becomes a voter, and a node when it is offered the leadership of its group.
pub(crate) const LAG_MAX: u64 = 64;
/// Ticks for which a node whose group has closed stays in the other groups, if it is there.
const STAYS_TICKS: u64 = 20;
/// Ticks for which its removal waits for a new voter.
const WAITS_FOR_VOTER_TICKS: u64 = 1_000;
/// Ticks after which it is deposed where it still leads, and between the turns of those who do that.
const DEPOSED_TICKS: (u64, u64) = (40, 8);
/// Ticks after which a change of the control log is proposed again.
const AGAIN_TICKS: u64 = 60;

/// What a member knows of joining and leaving beside the control log.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    now: u64,
    /// By node that is being removed: when it was first seen that its group has closed.
    gone: BTreeMap<NodeId, u64>,
    /// This node has left: it has seen that itself, or another member has told it.
    told: bool,
    /// The caller was told.
    reported: bool,
    /// Nodes that were told since the last tick.
    answered: BTreeSet<NodeId>,
    /// When the node's own join, and when the end of a removal was last proposed.
    joins: Option<u64>,
    forgets: BTreeMap<NodeId, u64>,
}

impl Membership {
    fn is_due(last: Option<u64>, now: u64) -> bool {
        last.is_none_or(|last| now - last >= AGAIN_TICKS)
    }
}

/// Returns the groups of the nodes that were admitted, with the members with which each began.
pub(crate) fn admitted_groups(nodes: &ClusterNodes) -> BTreeMap<GroupId, Members> {
    let admitted = nodes.nodes().filter(|node| !node.first_voters.is_empty());
    let first = |node: &ClusterNode| Members::first(node.first_voters.iter().copied());
    admitted.map(|node| (ClusterNodes::group_of(node.id), first(node))).collect()
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor, L: GroupLog> Member<W, P, E, L> {
    /// Returns whether this node was removed from the cluster, as far as it knows: it has seen the end of its group, or was
    /// told. It takes no commits and answers no fresh reads. It must go on until [`Output::Removed`](crate::Output::Removed).
    #[must_use]
    pub fn is_removed(&self) -> bool {
        self.membership.told || self.is_gone(self.node)
    }

    /// Returns whether a node is being removed, and its group has closed or never joined.
    fn is_gone(&self, node: NodeId) -> bool {
        self.nodes().node(node).is_some_and(|known| {
            let is_open = |join: GroupJoin| self.replica().epochs().has(join.group);
            known.stage != NodeStage::Present && !known.joined.is_some_and(is_open)
        })
    }

    fn nodes(&self) -> &ClusterNodes {
        self.replica().replicated().members()
    }

    /// Returns whether a fresh read may be answered: the own group is a member. What it knows after its end is old, for
    /// others have groups that it does not ask.
    pub(crate) fn serves_fresh_reads(&self) -> bool {
        (self.replica().is_member() && !self.membership.told) || planted(Bug::RemovedNodeReads)
    }

    /// Returns whether a group is to be led by its node.
    pub(crate) fn goes_home(&self, group: GroupId) -> bool {
        let is_voter = self.raft.members(group).is_some_and(|members| members.voters.contains(&group.node));
        is_voter && !self.nodes().leaves(group.node) && !self.nodes().is_drained(group.node)
    }

    /// Returns whether this node is drained: it is to lead nothing, and takes no commits.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.nodes().is_drained(self.node)
    }

    /// Returns the voters of a group that can take its leadership, ascending: they are there, stay, and are not drained.
    pub(crate) fn candidates(&self, group: GroupId) -> Vec<NodeId> {
        self.voters_here(group).filter(|node| !self.is_gone(*node) && !self.nodes().is_drained(*node)).collect()
    }

    fn voters_here(&self, group: GroupId) -> impl Iterator<Item = NodeId> + '_ {
        let voters = self.raft.members(group).into_iter().flat_map(|members| &members.voters);
        voters.copied().filter(|node| self.presence.is_here(*node))
    }

    /// Returns the voters to which a node that leaves can give a group, ascending.
    pub(crate) fn heirs(&self, group: GroupId) -> Vec<NodeId> {
        let mut heirs = self.candidates(group);
        if heirs.is_empty() {
            // Better one that is drained than none. Two that were removed would give the group to each other without end.
            let is_gone = self.is_gone(self.node);
            heirs.extend(self.voters_here(group).filter(|node| !is_gone || !self.is_gone(*node)));
        }
        heirs
    }

    /// Begins the groups of nodes that were admitted, unless the log had them.
    pub(crate) fn begin_admitted_groups(&mut self) -> Result<(), BadGroup> {
        let is_new = |(group, _): &(GroupId, Members)| self.raft.members(*group).is_none();
        let new = admitted_groups(self.nodes()).into_iter().filter(is_new).collect::<Vec<_>>();
        new.into_iter().try_for_each(|(group, members)| self.begin_group(group, members))
    }

    fn begin_group(&mut self, group: GroupId, members: Members) -> Result<(), BadGroup> {
        let applied = GroupPoint { members, ..GroupPoint::default() };
        self.positions.begin(group, 0);
        self.cursors.begin(group, Included::default());
        self.raft.add_group(StoredGroup { group, applied, ..StoredGroup::default() })
    }

    /// A node sends: it may not know that it has left, so that no group has it or needs it.
    pub(crate) fn answer_removed(&mut self, node: NodeId) {
        if self.has_left(node) && self.membership.answered.insert(node) {
            self.frames.push_back((node, Frame::Removed));
        }
    }

    /// Returns whether the removal of a node is complete. What this node sees of the groups would not do: it may not know of one
    /// that began with the other as a voter.
    fn has_left(&self, node: NodeId) -> bool {
        let has_left = self.nodes().node(node).is_some_and(|known| known.stage == NodeStage::Left);
        has_left || planted(Bug::EndsBeforeItIsForgotten) && self.is_out(node)
    }

    /// Returns whether a node that is being removed votes in no group, as far as is known here.
    fn is_out(&self, node: NodeId) -> bool {
        let votes = |members: &Members| members.voters.contains(&node) || members.outgoing.contains(&node);
        self.is_gone(node) && !self.raft.ids().any(|group| self.raft.members(group).is_some_and(votes))
    }

    /// Returns whether this node leads the control group, has applied all that was agreed on there, and knows of no change of its
    /// members that is under way. Then it knows who is being removed, and every group that began with a node which
    /// the control group has no more.
    fn knows_all_groups(&self) -> bool {
        self.roles.leads(GroupId::CONTROL)
            && self.replica().replicated().index() == self.control()
            && self.raft.settled_voters(GroupId::CONTROL).is_ok()
    }

    /// Another member has told that this node has left.
    pub(crate) fn told_removed(&mut self) {
        self.membership.told = true;
    }

    /// Returns whether to tell the caller now that this node was removed. Before it has left, its vote may be needed.
    pub(crate) fn reports_removal(&mut self) -> bool {
        let reports = self.membership.told && !self.membership.reported;
        self.membership.reported |= reports;
        reports
    }

    /// Brings the groups that this node leads one step nearer to what the control log says. Once a tick.
    pub(crate) fn change_members(&mut self) {
        self.membership.now += 1;
        self.membership.answered.clear();
        self.membership.told |= self.has_left(self.node);
        if self.is_removed() {
            self.handing_over.begin();
        }
        let gone = self.nodes().nodes().map(|node| node.id).filter(|node| self.is_gone(*node)).collect::<Vec<_>>();
        let now = self.membership.now;
        gone.iter().for_each(|node| _ = self.membership.gone.entry(*node).or_insert(now));
        let is_leaving = self.handing_over.is_leaving();
        for group in self.roles.led().collect::<Vec<_>>() {
            // Where every voter leaves, one of them has to bring in those that stay.
            if is_leaving && !(self.is_gone(self.node) && self.heirs(group).is_empty()) {
                continue;
            }
            // Nobody is added to the control group any more whose removal has begun: groups begin with its voters.
            let may_change = group != GroupId::CONTROL || self.knows_all_groups();
            if let Some(members) = self.next_members(group).filter(|_| may_change) {
                // If it is refused, it is not the moment, and the next tick comes to the same.
                let _ = self.raft.propose_members(group, &members);
            }
        }
        if is_leaving {
            return;
        }
        self.depose(&gone);
        self.propose_join();
        self.propose_forgetting(&gone);
    }

    /// Returns the next members of a group that this node leads, if they are to change.
    fn next_members(&self, group: GroupId) -> Option<Members> {
        let present = self.raft.members(group).filter(|members| !members.is_joint())?;
        let mut next = present.clone();
        if let Some(node) = present.learners.iter().find(|node| self.has_left(**node)) {
            next.learners.remove(node);
        } else if let Some(node) =
            present.voters.iter().find(|node| self.goes(**node) && self.goes_well(present, **node))
            && !self.waits_for_a_voter(present, *node)
        {
            next.voters.remove(node);
            next.learners.insert(*node);
        } else if let Some(node) = present.learners.iter().find(|node| self.is_ready(group, present, **node)) {
            next.learners.remove(node);
            next.voters.insert(*node);
        } else {
            let new = self.nodes().present().find(|node| !present.contains(node.id))?;
            next.learners.insert(new.id);
        }
        Some(next)
    }

    /// Returns whether a voter of a group is to be a learner now: it has to go on deciding epochs until it has left, because it
    /// begins groups when they are admitted.
    fn goes(&self, node: NodeId) -> bool {
        let Some(since) = self.membership.gone.get(&node).filter(|_| node != self.node) else { return false };
        self.membership.now - since >= STAYS_TICKS || !self.presence.sends(node)
    }

    /// Returns whether a group decides without a voter: most of the others are there.
    fn goes_well(&self, present: &Members, node: NodeId) -> bool {
        let others = || present.voters.iter().filter(|other| **other != node);
        let here = others().filter(|other| **other == self.node || self.presence.sends(**other)).count();
        2 * here > others().count()
    }

    /// Returns whether a voter stays until another node that is there, and on its way to be a voter, is one. Where
    /// [`goes_well`](Self::goes_well) holds, that is as soon as it has caught up; if it does not, nobody waits for it for long.
    fn waits_for_a_voter(&self, present: &Members, node: NodeId) -> bool {
        let since = self.membership.gone.get(&node).copied().unwrap_or_default();
        if self.membership.now - since >= WAITS_FOR_VOTER_TICKS {
            return false;
        }
        let mut new = self.nodes().present().filter(|node| !present.voters.contains(&node.id));
        new.any(|node| self.presence.sends(node.id))
    }

    /// Returns whether a learner of a group is to become a voter now: one that falls silent with the others, while it copies
    /// their state, would cost the group its majority.
    fn is_ready(&self, group: GroupId, present: &Members, learner: NodeId) -> bool {
        let voters = || present.voters.iter().chain([&learner]);
        let here = voters().filter(|voter| **voter == self.node || self.presence.sends(**voter)).count();
        !self.nodes().leaves(learner)
            && self.raft.is_caught_up(group, learner, LAG_MAX)
            && self.presence.sends(learner)
            && 2 * here > voters().count()
    }

    /// Takes groups over that a node leads although it was removed: it may never learn that it was, because its disk is
    /// stuck. One node after the other tries.
    fn depose(&mut self, gone: &[NodeId]) {
        let now = self.membership.now;
        for group in self.raft.ids().collect::<Vec<_>>() {
            let Some(leader) = self.roles.leader(group).filter(|leader| gone.contains(leader)) else { continue };
            let voters = self.raft.members(group).into_iter().flat_map(|members| &members.voters);
            let before = voters.filter(|voter| **voter < self.node && !gone.contains(voter)).count() as u64;
            let since = self.membership.gone.get(&leader).map_or(0, |since| now - since);
            let (first, turn) = DEPOSED_TICKS;
            if since.checked_sub(first + before * turn).is_some_and(|ticks| ticks.is_multiple_of(AGAIN_TICKS)) {
                self.tell_raft(RaftInput::TakeOver(group));
            }
        }
    }

    /// Proposes that the own group joins, once this node leads it and is a voter of all groups: before that, epochs would
    /// wait for a group that nobody leads, or others would lack a voter that counts. Groups that never join need none: that of a
    /// node that was admitted before a majority was lost has no leader ever.
    fn propose_join(&mut self) {
        let is_new = self.nodes().node(self.node).is_some_and(|node| node.joined.is_none());
        let is_voter = |group| self.raft.members(group).is_some_and(|members| members.voters.contains(&self.node));
        let is_ready = self.roles.leads(self.group)
            && self.raft.ids().filter(|group| !self.never_joins(*group)).all(is_voter)
            || planted(Bug::JoinsWithoutLeader);
        if !is_new || !is_ready || !Membership::is_due(self.membership.joins, self.membership.now) {
            return;
        }
        self.membership.joins = Some(self.membership.now);
        let join = GroupJoin { group: self.group, first: self.replica().joining_epoch() };
        self.events.push_back(Event::Propose(ControlChange::JoinGroup(join)));
    }

    /// Returns whether a group is that of a node that was removed before it joined.
    fn never_joins(&self, group: GroupId) -> bool {
        self.nodes().leaves(group.node) && self.nodes().node(group.node).is_some_and(|node| node.joined.is_none())
    }

    /// Proposes that removals are complete of nodes that vote in no group. No group can begin with them either, whenever this is
    /// agreed on.
    fn propose_forgetting(&mut self, gone: &[NodeId]) {
        if !self.knows_all_groups() {
            return;
        }
        let now = self.membership.now;
        for &node in gone {
            let leaves = self.nodes().node(node).is_some_and(|known| known.stage == NodeStage::Leaving);
            if leaves && self.is_out(node) && Membership::is_due(self.membership.forgets.get(&node).copied(), now) {
                self.membership.forgets.insert(node, now);
                self.events.push_back(Event::Propose(ControlChange::ForgetNode { node }));
            }
        }
    }
}
