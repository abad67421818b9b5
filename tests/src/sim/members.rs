//! Nodes that are added and removed while the cluster runs, and the invariants of these changes.
//!
//! An operator requests the change at some node. An admitted node starts with an empty disk; a removed node keeps
//! running until it reports its removal, or breaks permanently if a majority remains without it.

use std::collections::{BTreeMap, BTreeSet};

use tribunal_core::control::members::Members;
use tribunal_replica::Event;
use tribunal_types::{ControlChange, GroupId, GroupJoin, NodeId, NodeStage};

use crate::cluster::group;
use crate::sim::faults::Fault;
use crate::sim::happening::{HANDING_OVER_US, Happening, STOPPING_US};
use crate::sim::machine::{Machine, SimMember};
use crate::sim::world::World;
use tribunal_member::{Frame, Input, Members as GroupMembers};

/// Maximum time from a node's admission to its first start, microseconds.
const STARTS_WITHIN_US: u64 = 800_000;
/// Removed nodes that break, per mille.
const BROKEN_PER_MILLE: u64 = 400;
/// Processes stopped because of their node's removal that are started again, per mille.
const STARTED_AGAIN_PER_MILLE: u64 = 300;
/// Time between two steps of an operator who replaces a lost node, microseconds.
const REPLACED_AFTER_US: u64 = 900_000;
/// Time between two attempts of a departed node to connect, microseconds.
const CONNECTS_EVERY_US: u64 = 1_000_000;
/// Time that a process may run without learning of its node's removal, microseconds.
const LEARNS_WITHIN_US: u64 = 5_000_000;

/// The nodes of a run.
#[derive(Default)]
pub(super) struct Nodes {
    /// Number of machines that founded the cluster.
    pub founders: u16,
    /// Number of nodes planned to be added.
    pub planned: usize,
    /// Nodes whose removal some member has applied.
    leaving: BTreeSet<u16>,
    /// Groups whose join some member has applied.
    joined: BTreeSet<GroupId>,
    /// Groups of added nodes that have a committed entry at some member.
    begun: BTreeSet<GroupId>,
    /// Fresh reads that began at a node after its group had closed.
    pub late_reads: BTreeSet<u64>,
}

impl Nodes {
    /// Returns whether some member has applied a node's removal.
    pub(super) fn is_leaving(&self, node: u16) -> bool {
        self.leaving.contains(&node)
    }

    /// Notes a node that was removed together with others.
    pub(super) fn note_leaving(&mut self, node: u16) {
        self.leaving.insert(node);
    }

    /// Returns the nodes of a cluster with this many founders.
    pub(super) fn founded(founders: u16) -> Nodes {
        Nodes { founders, ..Nodes::default() }
    }
}

impl World {
    /// Returns the group of a node.
    pub(super) fn group(&self, node: u16) -> GroupId {
        if node <= self.nodes.founders { group(node) } else { Members::group_of(NodeId(node)) }
    }

    /// Returns the groups of all nodes that ever existed.
    pub(super) fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        (1..=self.machines.len() as u16).map(|node| self.group(node))
    }

    /// Requests the addition or removal of a node at some running node.
    pub(super) fn ask_for_members(&mut self, fault: Fault, node: u16) -> Result<(), String> {
        let change = match fault {
            Fault::AddNode => {
                let name = format!("m{}", self.time_us);
                ControlChange::AdmitNode { address: format!("{name}.example:7402"), name, voters: Vec::new() }
            }
            _ => ControlChange::RemoveNode { node: NodeId(node) },
        };
        let running = self.machines.iter().filter(|machine| machine.process.is_some()).map(|machine| machine.node);
        let running = running.collect::<Vec<_>>();
        if running.is_empty() {
            return Ok(());
        }
        let asked = self.random.one_of(&running);
        let start = self.machine(asked).starts;
        let number = self.changes.ask(asked, start);
        self.step(asked, Input::Replica(Event::Control(change, number)))
    }

    /// Takes a machine's disk if a majority remains without it. The server would refuse to start on an empty disk, so
    /// an operator removes the node and admits another.
    pub(super) fn wipe(&mut self, node: u16) -> Result<(), String> {
        let is_gone = |machine: &Machine| machine.broken || machine.removed || machine.left;
        if is_gone(self.machine(node)) || !self.may_break(node) {
            return Ok(());
        }
        self.trace.note(self.time_us, format_args!("node {node} loses its disk"));
        self.report.members.wiped += 1;
        self.nodes.planned += 1;
        self.machine(node).cut_power();
        self.machine(node).broken = true;
        self.votes.forget(node);
        self.replace(node)
    }

    /// An operator requests the changes that replace a lost node, until both are done.
    pub(super) fn replace(&mut self, node: u16) -> Result<(), String> {
        let running = self.machines.iter().filter(|machine| machine.process.is_some()).map(|machine| machine.node);
        let running = running.collect::<Vec<_>>();
        if running.is_empty() {
            self.later(REPLACED_AFTER_US, Happening::Replace { node });
            return Ok(());
        }
        let asked = self.random.one_of(&running);
        let (name, start) = (format!("r{node}"), self.machine(asked).starts);
        let members = self.member(asked).ok_or("it runs")?.replica().replicated().members();
        // The node admitted in its place may itself be removed: then another is needed.
        let is_admitted = members.present().any(|known| known.name == name);
        let leaves = self.nodes.leaving.contains(&node);
        if is_admitted && leaves {
            return Ok(());
        }
        self.later(REPLACED_AFTER_US, Happening::Replace { node });
        // Either may come first, and either may be refused at the moment.
        let admits = !is_admitted && (leaves || self.random.chance(500));
        let change = if admits {
            ControlChange::AdmitNode { address: format!("{name}.example:7402"), name, voters: Vec::new() }
        } else {
            ControlChange::RemoveNode { node: NodeId(node) }
        };
        let number = self.changes.ask(asked, start);
        self.step(asked, Input::Replica(Event::Control(change, number)))
    }

    /// Adds the machine of a newly admitted node, and schedules its start.
    pub(super) fn admitted(&mut self, node: NodeId) {
        if usize::from(node.0) <= self.machines.len() {
            return;
        }
        let image_every_bytes = self.random.one_of(&[u64::MAX, 8_000, 40_000]);
        let build = self.build(image_every_bytes);
        self.machines.push(Machine::new(node.0, build));
        for other in self.isolated().collect::<Vec<_>>() {
            self.network.cut(node.0, other);
            self.network.cut(other, node.0);
        }
        self.report.members.admitted += 1;
        self.trace.note(self.time_us, format_args!("node {node} is admitted"));
        let wait_us = self.random.between(0, STARTS_WITHIN_US);
        self.later(wait_us, Happening::Start { node: node.0 });
    }

    /// Notes that a node is being removed. In runs with several kinds of faults, its machine often breaks.
    pub(super) fn is_leaving(&mut self, node: NodeId) {
        if !self.nodes.leaving.insert(node.0) {
            return;
        }
        self.report.members.removed += 1;
        self.trace.note(self.time_us, format_args!("node {node} is being removed"));
        if !self.has_one_fault() && self.may_break(node.0) && self.random.chance(BROKEN_PER_MILLE) {
            self.report.members.broken += 1;
            self.trace.note(self.time_us, format_args!("node {node} is broken for good"));
            self.machine(node.0).cut_power();
            self.machine(node.0).broken = true;
        }
    }

    /// Returns whether every group keeps a majority without a machine, whichever of the nodes being added or removed
    /// vote in it: in the worst case all lost nodes vote, and no intact one does.
    fn may_break(&self, node: u16) -> bool {
        let has_joined = |node: u16| node <= self.nodes.founders || self.nodes.joined.contains(&self.group(node));
        let votes = |machine: &Machine| has_joined(machine.node) && !self.nodes.leaving.contains(&machine.node);
        let is_lost = |machine: &Machine| machine.broken || machine.node == node;
        let lost = self.machines.iter().filter(|machine| !machine.left && is_lost(machine)).count();
        let whole = self.machines.iter().filter(|machine| !machine.left && !is_lost(machine) && votes(machine)).count();
        whole > lost && self.groups_survive_without(node)
    }

    /// Returns whether every group keeps a majority without a machine, for the members known to each running process.
    fn groups_survive_without(&self, node: u16) -> bool {
        let whole = |voter: &&NodeId| voter.0 != node && !self.machines[usize::from(voter.0) - 1].broken;
        let survives = |members: &GroupMembers| 2 * members.voters.iter().filter(whole).count() > members.voters.len();
        let running = self.machines.iter().filter_map(|machine| machine.process.as_ref());
        let mut groups =
            running.flat_map(|process| process.member.groups().filter_map(|group| process.member.members_of(group)));
        groups.all(survives)
    }

    /// Notes that a node is no longer in any group.
    pub(super) fn has_left(&mut self, node: NodeId) {
        self.machine(node.0).left = true;
    }

    /// A group joins only after it has had a leader.
    ///
    /// # Errors
    /// If it never had a leader.
    pub(super) fn invariant_a_group_that_joins_has_a_leader(&mut self, join: GroupJoin) -> Result<(), String> {
        if self.nodes.joined.insert(join.group) {
            self.report.members.joined += 1;
            self.note_joined_after_loss(join.group);
            self.trace.note(self.time_us, format_args!("group {} joins at epoch {}", join.group.node, join.first));
        }
        if self.nodes.begun.contains(&join.group) {
            return Ok(());
        }
        Err(format!("group {} joins, and nobody has ever led it", join.group.node))
    }

    /// Notes which new groups have a committed entry.
    pub(super) fn note_begun(&mut self, node: u16) {
        for other in self.nodes.founders + 1..=self.machines.len() as u16 {
            let group = self.group(other);
            if self.member(node).is_some_and(|member| member.reached(group) > 0) {
                self.nodes.begun.insert(group);
            }
        }
    }

    /// The member reported its removal; the operator stops it.
    ///
    /// # Errors
    /// If the node was not removed.
    pub(super) fn says_removed(&mut self, node: u16) -> Result<(), String> {
        if !self.nodes.leaving.contains(&node) {
            return Err(format!("node {node} believes that it was removed"));
        }
        self.trace.note(self.time_us, format_args!("node {node} says that it was removed"));
        self.report.members.told += 1;
        let start = self.machine(node).starts;
        self.machine(node).removed = true;
        self.later(HANDING_OVER_US, Happening::Stop { node, start, now: false });
        self.later(HANDING_OVER_US + STOPPING_US, Happening::Stop { node, start, now: true });
        Ok(())
    }

    /// A departed node connects to the other nodes now and then, and those that know of its removal refuse it. A node
    /// removed before any group had it sends no frames, but connects all the same.
    pub(super) fn connect_again(&mut self, node: u16) -> Result<(), String> {
        let time_us = self.time_us;
        let machine = self.machine(node);
        if !machine.left || time_us - machine.connected_us < CONNECTS_EVERY_US {
            return Ok(());
        }
        machine.connected_us = time_us;
        let knows = |member: &SimMember| {
            let known = member.replica().replicated().members().node(NodeId(node));
            known.is_some_and(|known| known.stage == NodeStage::Left)
        };
        let mut others = (1..=self.machines.len() as u16).filter(|other| *other != node);
        let refuses =
            others.find(|other| self.network.connects(node, *other) && self.member(*other).is_some_and(knows));
        let Some(from) = refuses else { return Ok(()) };
        self.step(node, Input::Frame { from: NodeId(from), frame: Frame::Removed })
    }

    /// Returns whether a stopped process is started again.
    pub(super) fn starts_again(&mut self, node: u16) -> bool {
        !self.machine(node).removed || self.random.chance(STARTED_AGAIN_PER_MILLE)
    }

    /// Returns whether some member has applied the entry that closes a node's group.
    pub(super) fn has_closed(&self, node: u16) -> bool {
        let group = self.group(node);
        self.machines.iter().filter_map(|machine| machine.process.as_ref()).any(|process| {
            let replica = process.member.replica();
            let nodes = replica.replicated().members();
            let joined = nodes.node(NodeId(node)).is_some_and(|node| node.joined.is_some());
            joined && nodes.leaves(NodeId(node)) && !replica.epochs().is_open(group)
        })
    }

    /// A removed node answers no fresh read that began after its group was closed.
    ///
    /// # Errors
    /// If it does.
    pub(super) fn invariant_a_removed_node_answers_no_fresh_reads(
        &mut self,
        node: u16,
        read: u64,
    ) -> Result<(), String> {
        if self.nodes.late_reads.contains(&read) {
            return Err(format!("node {node} was removed, and answers fresh read {read} after its group has closed"));
        }
        Ok(())
    }

    /// Returns the final members, from the process that has applied the most control entries.
    ///
    /// # Errors
    /// If some node has neither joined nor left.
    pub(super) fn members_at_the_end(&self) -> Result<Vec<u16>, String> {
        let running = self.machines.iter().filter_map(|machine| machine.process.as_ref());
        let newest =
            running.max_by_key(|process| process.member.replica().replicated().index()).ok_or("nobody runs")?;
        let nodes = newest.member.replica().replicated().members();
        for node in nodes.nodes() {
            match (node.stage, node.joined) {
                (NodeStage::Leaving, _) => {
                    return Err(format!("node {} is being removed, and never leaves; {}", node.id, self.all_groups()));
                }
                (NodeStage::Present, None) => {
                    return Err(format!("node {} was admitted, and never joins; {}", node.id, self.all_groups()));
                }
                _ => {}
            }
        }
        Ok(nodes.present().map(|node| node.id.0).collect())
    }

    /// Returns the members of each group, as each running process knows them; `L` marks the groups that it leads.
    fn all_groups(&self) -> String {
        let running =
            self.machines.iter().filter_map(|machine| Some((machine.node, &machine.process.as_ref()?.member)));
        let of = |(node, member): (u16, &SimMember)| {
            let groups = member.groups().filter_map(|group| {
                let found = member.members_of(group)?;
                let leads = if member.led().any(|led| led == group) { "L" } else { "" };
                Some(format!("{}.{}{leads}: {found:?}", group.node, group.incarnation.0))
            });
            format!("node {node} has {}", groups.collect::<Vec<_>>().join(", "))
        };
        running.map(of).collect::<Vec<_>>().join("; ")
    }

    /// Every group has exactly the members as voters.
    ///
    /// # Errors
    /// If a group does not.
    pub(super) fn invariant_all_groups_have_the_members(&self, members: &[u16]) -> Result<(), String> {
        let expected: BTreeSet<NodeId> = members.iter().map(|node| NodeId(*node)).collect();
        let of = |member: &SimMember| {
            member.groups().map(|group| (group, member.members_of(group).cloned())).collect::<BTreeMap<_, _>>()
        };
        for &node in members {
            for (group, found) in of(self.member(node).ok_or("it runs")?) {
                let found = found.ok_or("a group has members")?;
                if found.voters != expected || !found.learners.is_empty() || found.is_joint() {
                    let group = (group.node.0, group.incarnation.0);
                    return Err(format!(
                        "node {node} has {found:?} in group {group:?}, and the members are {members:?}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// A running process of a removed node knows of its removal, and takes no commits.
    ///
    /// # Errors
    /// If it does not.
    pub(super) fn invariant_removed_nodes_know_it(&self) -> Result<(), String> {
        for machine in self.machines.iter().filter(|machine| machine.left) {
            let Some(process) = &machine.process else { continue };
            let runs_long = machine.started_us + LEARNS_WITHIN_US < self.time_us;
            if process.member.takes_commits() || runs_long && !process.member.is_removed() {
                return Err(format!("node {} does not know that it was removed", machine.node));
            }
        }
        Ok(())
    }
}
