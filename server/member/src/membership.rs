//! Nodes that join and leave while the cluster runs (rules 5, 8 and 9 of the cluster).
//!
//! The control log defines the nodes of the cluster. The membership of the groups follows from it: the leader of each
//! group compares the control log with the group's own members and proposes the next single step, repeatedly until none
//! is left. So no state has to be kept, and a new leader simply continues.
//!
//! * An admitted node is a learner first. It becomes a voter once it has all but a few entries, and a majority of the
//!   voters, itself included, would be reachable.
//! * A group joins when its node leads it and is a voter of all groups.
//! * A node that is being removed votes until its group has closed and, if it is reachable, for a moment longer: so it
//!   learns of the close, answers its waiting clients, and gives its leaderships away. Then it becomes a learner, in
//!   one group after the other, if a majority of the remaining voters is reachable; if it keeps leading, it is deposed.
//!   A group that is about to get another voter gets it first: with fewer voters in between, it would survive the loss
//!   of fewer nodes.
//! * Only a leader that has applied all control entries it knows of changes members. One that lags, because it has just
//!   started or lacks a policy's code, would bring a node back that has left, and wait for its vote (decision 113).
//! * As a learner it continues to decide epochs, because a group that it does not know yet may have begun with it as a
//!   voter. Once it votes in no group, the control log records that it has left, and the groups drop it (decision 113).
//!
//! Must never: let a leader remove itself, take more than one step at a time, add a node that is being removed or left.

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

/// Number of entries that may be missing on a learner when it becomes a voter, and on a node when it is offered the
/// leadership of its group.
pub(crate) const LAG_MAX: u64 = 64;
/// Ticks for which a node stays in the other groups after its own has closed, if it is reachable.
const STAYS_TICKS: u64 = 20;
/// Ticks for which its removal waits for a new voter.
const WAITS_FOR_VOTER_TICKS: u64 = 1_000;
/// Ticks after which it is deposed in groups that it still leads, and ticks between the turns of the deposing nodes.
const DEPOSED_TICKS: (u64, u64) = (40, 8);
/// Ticks after which a change of the control log is proposed again.
const AGAIN_TICKS: u64 = 60;

/// A member's knowledge of joining and leaving, in addition to the control log.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    now: u64,
    /// By node that is being removed: the tick at which its group was first seen closed.
    gone: BTreeMap<NodeId, u64>,
    /// This node has left, according to its own state or to another member.
    told: bool,
    /// The removal was reported to the caller.
    reported: bool,
    /// Nodes that were notified since the last tick.
    answered: BTreeSet<NodeId>,
    /// Ticks at which the node's own join, and the end of each removal, were last proposed.
    joins: Option<u64>,
    forgets: BTreeMap<NodeId, u64>,
}

impl Membership {
    fn is_due(last: Option<u64>, now: u64) -> bool {
        last.is_none_or(|last| now - last >= AGAIN_TICKS)
    }
}

/// Returns the groups of the admitted nodes, with the members with which each began.
pub(crate) fn admitted_groups(nodes: &ClusterNodes) -> BTreeMap<GroupId, Members> {
    let admitted = nodes.nodes().filter(|node| !node.first_voters.is_empty());
    let first = |node: &ClusterNode| Members::first(node.first_voters.iter().copied());
    admitted.map(|node| (ClusterNodes::group_of(node.id), first(node))).collect()
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor, L: GroupLog> Member<W, P, E, L> {
    /// Returns whether this node was removed from the cluster, as far as it knows: it has seen the end of its group, or
    /// received the news from another member. It takes no commits and answers no fresh reads. It must keep running
    /// until [`Output::Removed`](crate::Output::Removed).
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

    /// Returns whether a fresh read may be answered: the own group is a member. After its end this node's knowledge is
    /// stale, because the other nodes have groups that it does not query.
    pub(crate) fn serves_fresh_reads(&self) -> bool {
        (self.replica().is_member() && !self.membership.told) || planted(Bug::RemovedNodeReads)
    }

    /// Returns whether a group should be led by its own node.
    pub(crate) fn goes_home(&self, group: GroupId) -> bool {
        let is_voter = self.raft.members(group).is_some_and(|members| members.voters.contains(&group.node));
        is_voter && !self.nodes().leaves(group.node) && !self.nodes().is_drained(group.node)
    }

    /// Returns whether this node is drained: it should lead no group, and takes no commits.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.nodes().is_drained(self.node)
    }

    /// Returns the voters of a group that can take its leadership, ascending: they are reachable, stay, and are not
    /// drained.
    pub(crate) fn candidates(&self, group: GroupId) -> Vec<NodeId> {
        self.voters_here(group).filter(|node| !self.is_gone(*node) && !self.nodes().is_drained(*node)).collect()
    }

    fn voters_here(&self, group: GroupId) -> impl Iterator<Item = NodeId> + '_ {
        let voters = self.raft.members(group).into_iter().flat_map(|members| &members.voters);
        voters.copied().filter(|node| self.presence.is_here(*node))
    }

    /// Returns the voters to which a leaving node can give a group, ascending.
    pub(crate) fn heirs(&self, group: GroupId) -> Vec<NodeId> {
        let mut heirs = self.candidates(group);
        if heirs.is_empty() {
            // A drained node is better than none. Two removed nodes would pass the group back and forth forever.
            let is_gone = self.is_gone(self.node);
            heirs.extend(self.voters_here(group).filter(|node| !is_gone || !self.is_gone(*node)));
        }
        heirs
    }

    /// Begins the groups of admitted nodes that are not in the log yet.
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

    /// Answers a node that still sends although it has left: it may not know, since no group has it or needs it.
    pub(crate) fn answer_removed(&mut self, node: NodeId) {
        if self.has_left(node) && self.membership.answered.insert(node) {
            self.frames.push_back((node, Frame::Removed));
        }
    }

    /// Returns whether the removal of a node is complete. This node's view of the groups would not suffice: it may not
    /// know of a group that began with the other node as a voter.
    fn has_left(&self, node: NodeId) -> bool {
        let has_left = self.nodes().node(node).is_some_and(|known| known.stage == NodeStage::Left);
        has_left || planted(Bug::EndsBeforeItIsForgotten) && self.is_out(node)
    }

    /// Returns whether a node that is being removed votes in no group, as far as this node knows.
    fn is_out(&self, node: NodeId) -> bool {
        let votes = |members: &Members| members.voters.contains(&node) || members.outgoing.contains(&node);
        self.is_gone(node) && !self.raft.ids().any(|group| self.raft.members(group).is_some_and(votes))
    }

    /// Returns whether this node has applied all control entries that it knows to be committed.
    fn has_applied_control(&self) -> bool {
        self.replica().replicated().index() == self.control()
    }

    /// Returns whether this node leads the control group, has applied all committed control entries, and knows of no
    /// membership change of the group in progress. Then it knows all nodes that are being removed, and every group that
    /// began with a node that is no longer a voter of the control group.
    fn knows_all_groups(&self) -> bool {
        self.roles.leads(GroupId::CONTROL)
            && self.has_applied_control()
            && self.raft.settled_voters(GroupId::CONTROL).is_ok()
    }

    /// Notes that another member reported that this node has left.
    pub(crate) fn told_removed(&mut self) {
        self.membership.told = true;
    }

    /// Returns whether to report now to the caller that this node was removed. Until it has left, its vote may be
    /// needed.
    pub(crate) fn reports_removal(&mut self) -> bool {
        let reports = self.membership.told && !self.membership.reported;
        self.membership.reported |= reports;
        reports
    }

    /// Moves the groups that this node leads one step closer to the control log. Called once per tick.
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
            // If every voter is leaving, one of them has to bring in the nodes that stay.
            if is_leaving && !(self.is_gone(self.node) && self.heirs(group).is_empty()) {
                continue;
            }
            let may_change = match group {
                // Settle the members first: groups begin with the control group's voters, and no node whose removal
                // has begun may become one.
                GroupId::CONTROL => self.knows_all_groups(),
                // Otherwise a leader that decides again after a start would make nodes voters that left long ago.
                _ => self.has_applied_control() || planted(Bug::MembersFromOldControl),
            };
            if let Some(members) = self.next_members(group).filter(|_| may_change) {
                // If refused, it comes at the wrong moment; the next tick proposes the same.
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

    /// Returns the next members of a group that this node leads, if they should change.
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

    /// Returns whether a voter of a group should become a learner now. It must still decide epochs until it has left,
    /// because it begins groups when they are admitted.
    fn goes(&self, node: NodeId) -> bool {
        let Some(since) = self.membership.gone.get(&node).filter(|_| node != self.node) else { return false };
        self.membership.now - since >= STAYS_TICKS || !self.presence.sends(node)
    }

    /// Returns whether a group can decide without a voter: a majority of the others is reachable.
    fn goes_well(&self, present: &Members, node: NodeId) -> bool {
        let others = || present.voters.iter().filter(|other| **other != node);
        let here = others().filter(|other| **other == self.node || self.presence.sends(**other)).count();
        2 * here > others().count()
    }

    /// Returns whether a voter stays until another reachable node that is becoming a voter is one. If
    /// [`goes_well`](Self::goes_well) holds, the wait ends as soon as that node has caught up; if it does not, the wait
    /// is bounded.
    fn waits_for_a_voter(&self, present: &Members, node: NodeId) -> bool {
        let since = self.membership.gone.get(&node).copied().unwrap_or_default();
        if self.membership.now - since >= WAITS_FOR_VOTER_TICKS {
            return false;
        }
        let mut new = self.nodes().present().filter(|node| !present.voters.contains(&node.id));
        new.any(|node| self.presence.sends(node.id))
    }

    /// Returns whether a learner of a group should become a voter now: a learner that falls silent together with
    /// others, while it copies their state, would cost the group its majority.
    fn is_ready(&self, group: GroupId, present: &Members, learner: NodeId) -> bool {
        let voters = || present.voters.iter().chain([&learner]);
        let here = voters().filter(|voter| **voter == self.node || self.presence.sends(**voter)).count();
        !self.nodes().leaves(learner)
            && self.raft.is_caught_up(group, learner, LAG_MAX)
            && self.presence.sends(learner)
            && 2 * here > voters().count()
    }

    /// Takes over groups that a node leads although it was removed: it may never learn of its removal, because its disk
    /// is stuck. The nodes try in turn.
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

    /// Proposes that the own group joins, once this node leads it and is a voter of all groups: before that, epochs
    /// would wait for a group without a leader, or other groups would lack a voter that counts. Groups that never join
    /// are ignored: the group of a node that was admitted before a majority was lost never has a leader.
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

    /// Returns whether a group belongs to a node that was removed before it joined.
    fn never_joins(&self, group: GroupId) -> bool {
        self.nodes().leaves(group.node) && self.nodes().node(group.node).is_some_and(|node| node.joined.is_none())
    }

    /// Proposes that the removal of nodes that vote in no group is complete. No group can begin with them either,
    /// whenever the proposal is committed.
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
