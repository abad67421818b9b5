//! A rolling upgrade: machines whose release does not support the newest generation get one that does, one after the other,
//! while the cluster works. The cluster begins in the first generation, as every cluster does, and switches to the newest of the
//! old release first.
//!
//! After the first generation, a different rule ranks transactions. Nodes that do not switch at the same epoch sooner or
//! later decide differently, and the oracle knows which rule is right.

use tribunal_member::Input;
use tribunal_replica::Event;
use tribunal_types::{ControlChange, Generation, GroupId, NodeId, NodeStage, Release};

use crate::sim::generations::{AFTER, BEFORE, NEWER};
use crate::sim::happening::Happening;
use crate::sim::machine::SimMember;
use crate::sim::world::World;

/// Of every `UPGRADES_EVERY` seeds, the one with this remainder upgrades its machines.
const UPGRADES_EVERY: u64 = 4;
const UPGRADES_REMAINDER: u64 = 1;
/// Earliest and latest time of the first upgrade, and minimum and maximum delay to the next one, microseconds.
const BEGINS_US: (u64, u64) = (1_500_000, 4_000_000);
const NEXT_US: (u64, u64) = (300_000, 1_500_000);
/// Maximum downtime of a machine during its upgrade, microseconds.
const AWAY_WITHIN_US: u64 = 500_000;
/// Time between two proposals of a node about releases, microseconds.
const PROPOSES_EVERY_US: u64 = 400_000;

/// Returns the proposal about releases that is due at a node that runs `release`, as in the server.
fn due(member: &SimMember, node: NodeId, release: &Release) -> Option<ControlChange> {
    let replica = member.replica();
    let replicated = replica.replicated();
    if replicated.members().node(node).is_none_or(|known| known.stage != NodeStage::Present) {
        return None;
    }
    if replicated.releases().of(node) != Some(release) {
        return Some(ControlChange::AnnounceRelease { node, release: release.clone() });
    }
    if !member.led().any(|group| group == GroupId::CONTROL) {
        return None;
    }
    let members: Vec<NodeId> = replica.epochs().groups().map(|(group, _)| group.node).collect();
    replicated.releases().next(&members).map(ControlChange::SwitchGeneration)
}

impl World {
    /// Returns whether the machines are upgraded in this run.
    pub(super) fn upgrades(&self) -> bool {
        self.faults.only().is_none() && self.seed % UPGRADES_EVERY == UPGRADES_REMAINDER
    }

    /// Plans the upgrade, if the run has one.
    pub(super) fn plan_upgrades(&mut self) {
        if self.upgrades() {
            self.machines.iter_mut().for_each(|machine| machine.release = BEFORE);
            let begins_us = self.random.between(BEGINS_US.0, BEGINS_US.1);
            self.later(begins_us, Happening::Upgrade { node: 1 });
        }
    }

    /// Installs the new release on a machine, and schedules the next one.
    pub(super) fn upgrade(&mut self, node: u16) {
        if usize::from(node) > self.machines.len() {
            return;
        }
        if self.is_after_loss(node) {
            // The machine never existed, or came with the new release.
            self.later(0, Happening::Upgrade { node: node + 1 });
            self.machine(node).release = AFTER;
            return;
        }
        let (next_us, away_us) =
            (self.random.between(NEXT_US.0, NEXT_US.1), self.random.between(10_000, AWAY_WITHIN_US));
        self.later(next_us, Happening::Upgrade { node: node + 1 });
        self.trace.note(self.time_us, format_args!("node {node} is upgraded"));
        let machine = self.machine(node);
        machine.release = AFTER;
        if machine.process.is_some() {
            machine.kill();
            self.later(away_us, Happening::Start { node });
        }
        self.report.upgrades.0 += 1;
    }

    /// Lets a node announce its release; the leader of the control log proposes the switch once all nodes support it.
    pub(super) fn propose_releases(&mut self, node: u16) -> Result<(), String> {
        let time_us = self.time_us;
        if !self.upgrades() || time_us < self.machine(node).proposed_us + PROPOSES_EVERY_US {
            return Ok(());
        }
        let machine = self.machine(node);
        let (version, engine) = (machine.release.to_string(), String::new());
        let release = Release { version, generations: machine.release, engine };
        let Some(change) = machine.process.as_ref().and_then(|process| due(&process.member, NodeId(node), &release))
        else {
            return Ok(());
        };
        machine.proposed_us = time_us;
        self.trace.note(time_us, format_args!("node {node} proposes {change:?}"));
        self.step(node, Input::Replica(Event::Propose(change)))
    }

    /// A node decides only in a generation that its release supports. Returns the generation.
    ///
    /// # Errors
    /// If its release does not support the generation.
    pub(super) fn invariant_a_node_decides_what_it_can(&self, node: u16) -> Result<Generation, String> {
        let generation = self.member(node).ok_or("it runs")?.replica().replicated().releases().generation();
        let release = self.machines[usize::from(node) - 1].release;
        if !release.contain(generation) {
            return Err(format!("node {node} can decide in {release}, and decides in generation {generation}"));
        }
        Ok(generation)
    }

    /// After an upgrade of all machines, the cluster decides in the new generation.
    pub(super) fn invariant_an_upgrade_ends(&self, members: &[u16]) -> Result<(), String> {
        for &node in members.iter().filter(|_| self.upgrades()) {
            let generation = self.member(node).ok_or("it runs")?.replica().replicated().releases().generation();
            if generation != NEWER {
                return Err(format!("all machines are upgraded, and node {node} is in generation {generation}"));
            }
        }
        Ok(())
    }
}
