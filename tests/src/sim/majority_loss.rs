//! A majority is permanently lost with its disks, and an operator lets one node continue alone (decision 100).
//!
//! The command's own code changes the survivor's logs, on the simulated disk. It may be interrupted at any write or
//! sync, and is then repeated, with the mark that the command keeps; the process does not start until the command has
//! finished. Operators then add nodes in place of the lost ones, so that several members must agree again at the end.
//!
//! The survivor has decided as much as any node, as the command requires. So nothing that a client learned about a
//! transaction may be lost, and all invariants of verdicts, epochs and states continue to hold. This module forgets
//! what the survivor may lack, and no more: configuration changes that only the other nodes had, and the last epoch
//! that those nodes knew to be complete without items. Entries that the survivor had without knowing them to be
//! committed count as committed from then on, even if other nodes knew that they were not: clients with a reply to
//! that effect may find their transactions executed. The command lists these.
//!
//! If the survivor's power is cut as well, its disk must still have everything that it has decided; entries in doubt
//! may be gone. No frame outlives the processes at its ends.

use std::collections::BTreeSet;
use std::fmt;

use tribunal_core::row_key::RowKeyer;
use tribunal_log::LogReader;
use tribunal_log::sim::{SimFiles, Survival};
use tribunal_member::{GroupLog, Input, Output};
use tribunal_recover::StoppedNode;
use tribunal_types::{Epoch, GroupId, GroupJoin, NodeId, NodeStage, TxnId};

use crate::scenario::ROW_SECRET;
use crate::sim::faults::{Fault, Faults, Planned};
use crate::sim::happening::Happening;
use crate::sim::machine::{Machine, Process, SimLog};
use crate::sim::world::World;

/// Of every `LOSES_EVERY` seeds with all faults, the one with this remainder loses its majority.
const LOSES_EVERY: u64 = 7;
const LOSES_REMAINDER: u64 = 3;
/// Earliest and latest time of the loss, microseconds.
const LOST_US: (u64, u64) = (300_000, 6_000_000);
/// Delay before the next try if no node can continue alone, microseconds, and the maximum number of tries.
const TRY_AGAIN_US: u64 = 20_000;
const TRIES_MAX: u32 = 200;
/// Survivors whose power is cut too, per mille.
const POWER_CUT_PER_MILLE: u64 = 400;
/// Tries after which the survivor's power stays on: until then, the loss is postponed while a power cut would take a
/// decision from the survivor's disk.
const CUTS_MAX: u32 = 60;
/// Calls of the command that are interrupted, per mille, and the maximum number of disk operations before the
/// interruption.
const INTERRUPTED_PER_MILLE: u64 = 500;
const OPERATIONS_MAX: u64 = 8;
/// Interruptions that come before the command has begun, per mille.
const REPLAY_PER_MILLE: u64 = 200;
/// Maximum number of interrupted calls in a run.
const INTERRUPTIONS_MAX: u64 = 4;
/// Maximum time between two steps of the operator, microseconds.
const OPERATOR_US: u64 = 900_000;

/// Counts of what happened in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MajorityLossReport {
    /// Clusters that lost their majority.
    pub lost: u64,
    /// Survivors whose power was cut.
    pub power_cuts: u64,
    /// Nodes that continued alone.
    pub recovered: u64,
    /// Calls of the command that were interrupted.
    pub interrupted: u64,
    /// Calls that found that an earlier call had begun to change the logs.
    pub repeated: u64,
    /// Transactions that the survivor did not know to be committed.
    pub in_doubt: u64,
    /// Configuration changes that only the lost nodes had.
    pub changes_lost: u64,
    /// Nodes that joined afterwards.
    pub joined: u64,
}

/// State of the loss of the majority.
#[derive(Default)]
pub(super) struct MajorityLoss {
    /// The node that continues alone.
    survivor: Option<u16>,
    /// The command has not finished: the process must not start.
    under_way: bool,
    /// The mark: an earlier call has begun to change the logs.
    again: bool,
    /// Configuration changes that the survivor had applied, and is certain to have.
    applied: u64,
    /// Frames sent before this time are lost, microseconds.
    frames_from_us: u64,
    /// The survivor has applied the removal of all other nodes.
    others_left: bool,
    /// The survivor's power is to be cut.
    cuts_power: bool,
    /// The highest machine number at the time of the loss.
    numbers: Option<u16>,
    /// Number of tries so far.
    tries: u32,
}

impl MajorityLoss {
    /// Returns whether an unfinished command prevents a process from starting.
    pub fn keeps_from_starting(&self, node: u16) -> bool {
        self.under_way && self.survivor == Some(node)
    }

    /// Returns whether a frame was lost with the processes at its ends.
    pub fn lost_frame(&self, sent_us: u64) -> bool {
        sent_us < self.frames_from_us
    }
}

/// Returns whether a disk has everything decided up to an epoch.
fn has_decided(machine: &Machine, disk: &SimFiles, epoch: Epoch) -> bool {
    let opened = machine.open(disk);
    opened.is_ok_and(|opened| {
        let image = opened.recovered.image.as_ref().map(|image| image.epoch);
        opened.writer.has_outcome(epoch) || image >= Some(epoch) || epoch == Epoch(0)
    })
}

impl World {
    /// Draws whether and when the majority is lost.
    pub(super) fn plan_majority_loss(&mut self) {
        let is_drawn = match self.faults {
            Faults::Only(fault) => fault == Fault::MajorityLost,
            Faults::All => self.seed % LOSES_EVERY == LOSES_REMAINDER,
            Faults::OfMembers => false,
        };
        if is_drawn {
            self.majority_loss.cuts_power = self.random.chance(POWER_CUT_PER_MILLE);
            let at_us = 1_000_000 + self.random.between(LOST_US.0, LOST_US.1);
            let planned = Planned { at_us, lasts_us: 0, fault: Fault::MajorityLost, node: 0 };
            self.later(at_us, Happening::Fault(planned));
        }
    }

    /// Returns whether a machine can continue alone without losing any decision: it is a member as far as it knows, the
    /// cluster has other members, and no node has decided more.
    fn can_continue_alone(&self, machine: &Machine) -> bool {
        let Some(process) = &machine.process else { return false };
        // The command refuses the directory of a node that was told of its removal.
        if machine.removed {
            return false;
        }
        let (replica, me) = (process.member.replica(), NodeId(machine.node));
        let members = replica.replicated().members();
        let is_member = |node| members.node(node).is_some_and(|known| known.stage != NodeStage::Left);
        // Its log shows that it has joined once it has decided an epoch as a member.
        let has_joined = |join: GroupJoin| join.first <= replica.resolver().last();
        let joined =
            members.node(me).is_some_and(|me| me.stage == NodeStage::Present && me.joined.is_some_and(has_joined));
        let has_others = members.nodes().any(|known| known.id != me && is_member(known.id));
        let has_voters = process.member.voters().is_some_and(|voters| voters.len() > 1);
        joined && has_others && has_voters && replica.resolver().last() == self.judge.oracle.last
    }

    /// Takes the disks of all machines but one. Postponed until some machine can continue alone.
    pub(super) fn lose_majority(&mut self, planned: Planned) -> Result<(), String> {
        let able = self.machines.iter().filter(|machine| self.can_continue_alone(machine));
        let able = able.map(|machine| machine.node).collect::<Vec<_>>();
        self.majority_loss.tries += 1;
        let tries = self.majority_loss.tries;
        if able.is_empty() {
            if tries < TRIES_MAX {
                self.later(TRY_AGAIN_US, Happening::Fault(planned));
            }
            return Ok(());
        }
        let survivor = self.random.one_of(&able);
        let cuts_power = self.majority_loss.cuts_power && tries < CUTS_MAX;
        let cut = if cuts_power { self.after_a_power_cut(survivor) } else { None };
        let durable = self.durable_control(survivor);
        if cuts_power && cut.is_none() || durable.is_none() {
            self.later(TRY_AGAIN_US, Happening::Fault(planned));
            return Ok(());
        }
        *self.report.faults.entry(Fault::MajorityLost).or_default() += 1;
        if let Some(process) = &self.machine(survivor).process {
            // What it has applied may not be durable on any other machine yet.
            let (reader, agreed) = (process.reader.clone(), process.member.reached(GroupId::CONTROL));
            self.changes.note_control_log_up_to(&reader, agreed)?;
        }
        self.lose_all_but(survivor, cut, durable);
        Ok(())
    }

    /// Returns a machine's disk as it would be after a power cut, if it still had everything decided so far.
    fn after_a_power_cut(&mut self, node: u16) -> Option<SimFiles> {
        let survival = self.random.one_of(&[Survival::None, Survival::All, Survival::Some, Survival::Some]);
        let (disk_seed, look_seed) = (self.random.number(), self.random.number());
        let machine = &self.machines[usize::from(node) - 1];
        // The process that has the disk open does not exist on the copy.
        let disk = machine.disk.copy(disk_seed);
        disk.cut_power();
        disk.power_on(survival);
        has_decided(machine, &disk.copy(look_seed), self.judge.oracle.last).then_some(disk)
    }

    /// Returns the last control entry that is durable on a machine's disk, if everything decided so far is: the command
    /// itself may be interrupted by a power cut.
    fn durable_control(&self, node: u16) -> Option<u64> {
        let machine = &self.machines[usize::from(node) - 1];
        let disk = machine.disk.copy(0);
        disk.cut_power();
        disk.power_on(Survival::None);
        let opened = machine.open(&disk).ok()?;
        let (_, last) = opened.reader.group_bounds(GroupId::CONTROL);
        drop(opened);
        has_decided(machine, &disk, self.judge.oracle.last).then_some(last.index)
    }

    fn lose_all_but(&mut self, survivor: u16, cut: Option<SimFiles>, durable: Option<u64>) {
        let time_us = self.time_us;
        self.trace.note(time_us, format_args!("all disks are lost but that of node {survivor}"));
        self.report.majority_loss.lost += 1;
        self.report.majority_loss.power_cuts += u64::from(cut.is_some());
        let member = self.member(survivor).expect("it can continue alone");
        let applied = member.replica().replicated().index().0;
        // Of what the other nodes agreed on, only what is durable is certain to be on its disk after a power cut.
        let is_certain = cut.is_none() && durable >= Some(member.reached(GroupId::CONTROL));
        let known = if is_certain { member.replica().last_complete() } else { self.judge.oracle.last };
        let applied = if is_certain { applied } else { 0 };
        self.witness.forget_after(known);
        let loss = &mut self.majority_loss;
        (loss.survivor, loss.under_way, loss.applied, loss.frames_from_us) = (Some(survivor), true, applied, time_us);
        self.majority_loss.numbers = Some(self.machines.len() as u16);
        let mut replaced = Vec::new();
        for machine in self.machines.iter_mut().filter(|machine| machine.node != survivor) {
            // A machine lost earlier already has its replacement, or still gets it.
            if !machine.broken && !machine.left && !machine.removed && !self.nodes.is_leaving(machine.node) {
                replaced.push(machine.node);
            }
            machine.cut_power();
            machine.broken = true;
            self.votes.forget(machine.node);
        }
        let machine = self.machine(survivor);
        machine.kill();
        // Only the lost nodes knew of its removal, if it was removed: it is a member again.
        machine.left = false;
        if let Some(disk) = cut {
            machine.disk = disk;
        }
        machine.disk.limit_room(None);
        self.nodes.planned += replaced.len();
        for node in replaced {
            let wait_us = self.random.between(0, 3 * OPERATOR_US);
            self.later(wait_us, Happening::Replace { node });
        }
        self.operator_goes_on();
    }

    fn operator_goes_on(&mut self) {
        let wait_us = self.random.between(10_000, OPERATOR_US);
        self.later(wait_us, Happening::Recover);
    }

    /// The operator runs the command on the survivor, and repeats it if it was interrupted.
    ///
    /// # Errors
    /// If the command refuses, or if something that the survivor had is missing.
    pub(super) fn recover(&mut self) -> Result<(), String> {
        let (founders, seed, time_us) = (self.nodes.founders, self.seed, self.time_us);
        let survivor = self.majority_loss.survivor.ok_or("somebody survives")?;
        let survival = self.random.one_of(&[Survival::None, Survival::All, Survival::Some, Survival::Some]);
        let may_interrupt = self.report.majority_loss.interrupted < INTERRUPTIONS_MAX;
        let after = (may_interrupt && self.random.chance(INTERRUPTED_PER_MILLE))
            .then(|| self.random.between(0, OPERATIONS_MAX));
        let (run, again) = (self.random.number(), self.majority_loss.again);
        let machine = self.machine(survivor);
        if std::mem::take(&mut machine.lost_power) {
            machine.disk.power_on(survival);
        }
        if let Err(error) = machine.start(founders, seed, time_us) {
            self.trace.note(time_us, format_args!("node {survivor} cannot be recovered: {error}"));
            self.machine(survivor).cut_power();
            self.operator_goes_on();
            return Ok(());
        }
        let disk = self.machine(survivor).disk.clone();
        let interrupts_replay = self.random.chance(REPLAY_PER_MILLE);
        if let Some(operations) = after.filter(|_| interrupts_replay) {
            disk.cut_power_after(operations);
        }
        if let Err(error) = self.replay(survivor)? {
            self.machine(survivor).cut_power();
            self.is_interrupted(format_args!("node {survivor} is interrupted before the first change: {error}"));
            return Ok(());
        }
        if let Some(operations) = after.filter(|_| !interrupts_replay) {
            disk.cut_power_after(operations);
        }
        self.report.majority_loss.repeated += u64::from(again);
        let machine = &mut self.machines[usize::from(survivor) - 1];
        let Process { member, log, reader, image, .. } = machine.process.as_mut().ok_or("it runs")?;
        let keyer = RowKeyer::new(ROW_SECRET);
        let stopped = StoppedNode { node: NodeId(survivor), log, reader, image, keyer: &keyer, member, run, again };
        let mut in_doubt = None;
        let recovered = stopped.go_on_alone(|accepted| {
            if !disk.has_power() {
                return Err("the power is off".into());
            }
            in_doubt = Some(accepted.in_doubt.clone());
            Ok(())
        });
        let reader = reader.clone();
        // The mark is written, and logs may have changed.
        self.majority_loss.again |= in_doubt.is_some();
        let may_have_changed = in_doubt.is_some();
        self.note_in_doubt(in_doubt.unwrap_or_default().into_iter().map(|(_, id)| id));
        match recovered {
            Ok(accepted) => {
                let removed = accepted.removed;
                self.trace.note(time_us, format_args!("node {survivor} continues alone, without {removed:?}"));
                self.has_recovered(survivor, &reader)?;
            }
            Err(refused) if !may_have_changed && disk.has_power() => self.is_refused(survivor, &refused)?,
            Err(error) => {
                self.is_interrupted(format_args!("node {survivor} is interrupted: {error}"));
            }
        }
        // After the last sync nothing can be lost any more.
        let machine = self.machine(survivor);
        if after.is_some() {
            machine.cut_power()
        } else {
            machine.kill()
        }
        Ok(())
    }

    /// The command refused, which is right only while the node lacks code: the operator repeats it later.
    fn is_refused(&mut self, survivor: u16, refused: &str) -> Result<(), String> {
        if !self.machine(survivor).lacks_code.get() {
            return Err(format!("node {survivor} cannot continue alone: {refused}"));
        }
        self.trace.note(self.time_us, format_args!("node {survivor} refuses: {refused}"));
        self.operator_goes_on();
        Ok(())
    }

    /// The command was interrupted: the operator repeats it.
    fn is_interrupted(&mut self, what: fmt::Arguments<'_>) {
        self.trace.note(self.time_us, what);
        self.report.majority_loss.interrupted += 1;
        self.operator_goes_on();
    }

    /// Replays the entries on disk that a newly started member knows to be committed, as the server does before
    /// anything else. The inner error is one of the disk.
    fn replay(&mut self, node: u16) -> Result<Result<(), String>, String> {
        let now = self.machines[usize::from(node) - 1].now(self.time_us);
        loop {
            let mut synced = None;
            while let Some(output) = self.machine(node).process.as_mut().and_then(|process| process.member.poll()) {
                match output {
                    Output::Sync { number } => synced = Some(number),
                    // No peer is connected, and no client waits.
                    Output::Send { .. } | Output::Effect(_) | Output::Fresh { .. } | Output::Image { .. } => {}
                    // An entry cannot be read.
                    Output::Failed { reason, .. } if !self.machine(node).disk.has_power() => return Ok(Err(reason)),
                    output => {
                        if let Err(error) = self.carry_out(node, output)? {
                            return Ok(Err(error));
                        }
                    }
                }
            }
            let process = self.machine(node).process.as_mut().ok_or("it runs")?;
            let Some(number) = synced else {
                if process.member.go_on() {
                    continue;
                }
                return Ok(Ok(()));
            };
            if let Err(error) = process.sync() {
                return Ok(Err(error));
            }
            process.member.step(Input::Persisted(number), now).map_err(|refused| refused.to_string())?;
            self.note_durable(node)?;
        }
    }

    /// Clients may find that these transactions were executed, whatever the earlier replies.
    fn note_in_doubt(&mut self, ids: impl Iterator<Item = TxnId>) {
        for id in ids {
            self.report.majority_loss.in_doubt += 1;
            if let Some(at) = self.operation_of(id) {
                self.operations[at].in_doubt = true;
            }
        }
    }

    /// The command has finished: forgets what the survivor lacks, and schedules the start of its process.
    fn has_recovered(&mut self, survivor: u16, reader: &LogReader) -> Result<(), String> {
        self.report.majority_loss.recovered += 1;
        self.majority_loss.under_way = false;
        let (kept, lost) = self.changes.forget_what_is_lost(reader)?;
        self.report.majority_loss.changes_lost += lost;
        let applied = self.majority_loss.applied;
        if kept < applied {
            return Err(format!("node {survivor} had applied {applied} changes, and has {kept} of them"));
        }
        self.witness.forget_stores_after(kept);
        self.invariant_the_command_writes_in_terms_of_its_own(survivor, reader)?;
        let wait_us = self.random.between(10_000, OPERATOR_US);
        self.later(wait_us, Happening::Start { node: survivor });
        Ok(())
    }

    /// No entry that the command has written shares its id with a different entry of another node.
    fn invariant_the_command_writes_in_terms_of_its_own(
        &mut self,
        survivor: u16,
        reader: &LogReader,
    ) -> Result<(), String> {
        let log = SimLog::of(reader);
        for group in reader.groups() {
            let (first, last) = log.bounds(group);
            for index in first.index + 1..=last.index {
                let content = log.entry(group, index).map_err(|error| error.to_string())?;
                let (Some(content), Some(id)) = (content, log.id(group, index)) else { continue };
                self.votes.invariant_an_entry_has_one_content(survivor, group, id, &content)?;
            }
        }
        Ok(())
    }

    /// Notes that the survivor has applied the removal of all other nodes. Nodes that no machine knows of have left,
    /// too, and their numbers are never assigned.
    pub(super) fn others_left(&mut self, teller: u16) -> Result<(), String> {
        if std::mem::replace(&mut self.majority_loss.others_left, true) {
            return Ok(());
        }
        let members = self.member(teller).ok_or("it runs")?.replica().replicated().members();
        let left: BTreeSet<u16> =
            members.nodes().filter(|known| known.stage == NodeStage::Left).map(|known| known.id.0).collect();
        let last = left.last().copied().unwrap_or_default();
        for node in self.machines.len() as u16 + 1..=last {
            let build = self.build(u64::MAX);
            let mut nobody = Machine::new(node, build);
            nobody.broken = true;
            self.machines.push(nobody);
        }
        for node in (1..=last).filter(|node| *node != teller) {
            self.nodes.note_leaving(node);
            self.machine(node).left = true;
        }
        Ok(())
    }

    /// Returns a machine that may run, in place of a lost one.
    pub(super) fn in_place_of(&mut self, node: u16) -> u16 {
        let Some(survivor) = self.majority_loss.survivor else { return node };
        if !self.machine(node).broken {
            return node;
        }
        let whole = self.machines.iter().filter(|machine| !machine.broken).map(|machine| machine.node);
        let whole = whole.collect::<Vec<_>>();
        if whole.is_empty() { survivor } else { self.random.one_of(&whole) }
    }

    /// Returns whether a machine never existed, or was added after the others were lost.
    pub(super) fn is_after_loss(&self, node: u16) -> bool {
        self.majority_loss.numbers.is_some_and(|last| node > last)
    }

    /// Draws a node; after the loss, one that may run.
    pub(super) fn some_node(&mut self) -> u16 {
        let node = self.random.between(1, self.machines.len() as u64) as u16;
        self.in_place_of(node)
    }

    /// Counts a joining group if its node came after the loss of the others.
    pub(super) fn note_joined_after_loss(&mut self, group: GroupId) {
        let is_new = self.machines.get(usize::from(group.node.0) - 1).is_some_and(|machine| !machine.broken);
        self.report.majority_loss.joined += u64::from(self.majority_loss.others_left && is_new);
    }
}
