//! Carries out the outputs of members: writes, syncs, frames.

use tribunal_core::control::Effect as ControlEffect;
use tribunal_log::LogError;
use tribunal_member::{Frame, Input, Member, Output};
use tribunal_replica::{DecidedEpoch, Effect};
use tribunal_types::{EpochInput, GroupId, NodeId};

use crate::sim::happening::Happening;
use crate::sim::machine::Process;
use crate::sim::planted::Planted;
use crate::sim::world::World;
use crate::stand_ins::Numbered;

/// Syncs between two marks, for the planted bug that takes votes from the mark.
const MARK_EVERY_SYNCS: u64 = 16;
/// Inputs, per mille, that are followed by another one before the epochs that they complete are decided.
const BUSY_PERMILLE: u64 = 250;

/// Separates the causes of a failed write: the disk may fail (the inner error), but the log must not refuse the
/// member's record.
fn of_the_disk(node: u16, written: Result<(), LogError>) -> Result<Result<(), String>, String> {
    match written {
        Err(error @ LogError::OutOfOrder { .. }) => Err(format!("the log of node {node} refuses a record: {error}")),
        written => Ok(written.map_err(|error| error.to_string())),
    }
}

impl World {
    /// Passes an input to a machine's member, if it runs, and carries out the outputs.
    pub(super) fn step(&mut self, node: u16, input: Input<Numbered>) -> Result<(), String> {
        let time_us = self.time_us;
        let now = self.machine(node).now(time_us);
        // A busy node decides epochs only after several inputs, at the latest at its next tick.
        let is_busy = !matches!(input, Input::Tick) && self.random.chance(BUSY_PERMILLE);
        let Some(process) = &mut self.machine(node).process else { return Ok(()) };
        // A refused frame changes nothing; a peer can expect no more.
        if let Err(refused) = process.member.step(input, now) {
            self.trace.note(self.time_us, format_args!("node {node} refuses: {refused}"));
        }
        self.note_begun(node);
        let poll = if is_busy { Member::poll_urgent } else { Member::poll };
        while let Some(output) = self.machine(node).process.as_mut().and_then(|process| poll(&mut process.member)) {
            if let Err(error) = self.carry_out(node, output)? {
                self.trace.note(self.time_us, format_args!("node {node} stops: {error}"));
                self.stop_for_good(node);
            }
        }
        if let Some(Process { member, .. }) = &self.machine(node).process {
            let (holds_back, has_backlog) = (member.holds_back(), member.replica().has_backlog());
            self.report.held_back += u64::from(holds_back);
            self.report.backlogs += u64::from(has_backlog);
        }
        self.begin_sync(node);
        Ok(())
    }

    /// Carries out an output. The inner error is one of the disk.
    pub(super) fn carry_out(&mut self, node: u16, output: Output<Numbered>) -> Result<Result<(), String>, String> {
        let time_us = self.time_us;
        match output {
            Output::Effect(effect) => self.effect(node, effect)?,
            Output::Decided { decided, entries } => return self.epoch_decided(node, *decided, &entries),
            Output::Image { image, groups, .. } => return self.image_taken(node, *image, groups),
            Output::Append { group, id, content } => {
                let line =
                    format_args!("node {node} writes entry {} of term {} of group {}", id.index, id.term, group.node);
                self.trace.note(time_us, line);
                self.appended_us = time_us;
                let members = self.member(node).and_then(|member| member.members_of(group));
                if members.is_some_and(|members| members.voters.iter().eq([&NodeId(node)])) {
                    self.votes.forget_what_nobody_was_sent(node, group, id);
                }
                self.votes.invariant_an_entry_has_one_content(node, group, id, &content)?;
                let Some(process) = &mut self.machine(node).process else { return Ok(Ok(())) };
                return Ok(process.log.append_group_entry(group, id, &content).map_err(|error| error.to_string()));
            }
            Output::Copy { group, id, content } => {
                self.report.copies += 1;
                self.votes.invariant_an_entry_has_one_content(node, group, id, &content)?;
                let Some(process) = &mut self.machine(node).process else { return Ok(Ok(())) };
                return of_the_disk(node, process.log.append_group_copy(group, id, &content));
            }
            Output::SetState { group, state } => {
                self.votes.invariant_votes_are_kept(node, group, &state)?;
                let Some(process) = &mut self.machine(node).process else { return Ok(Ok(())) };
                return Ok(process.log.set_group_state(group, &state).map_err(|error| error.to_string()));
            }
            Output::Sync { number } => {
                let early = self.planted_early_ack();
                let machine = self.machine(node);
                let start = machine.starts;
                let Some(process) = &mut machine.process else { return Ok(Ok(())) };
                process.wanted = Some(number);
                if early {
                    self.later(0, Happening::AckedEarly { node, start, number });
                }
            }
            Output::Send { to, frame } => {
                if let Frame::Entries(entries) = &frame {
                    self.report.peer_entries += entries.entries.len() as u64;
                }
                let bytes = bytes::Bytes::from(frame.encode());
                for delay_us in self.network.delays(node, to.0, &mut self.random) {
                    let frame = Happening::Frame { from: node, to: to.0, sent_us: time_us, bytes: bytes.clone() };
                    self.later(delay_us, frame);
                }
            }
            Output::Removed => return self.says_removed(node).map(Ok),
            Output::Fresh { read, epoch } => return self.fresh_read(node, read, epoch).map(Ok),
            Output::NeedsImage { group, at_least, .. } => self.copy_image(node, group, at_least)?,
            Output::Diverged { reason } => return Err(format!("node {node} stops: {reason}")),
            Output::Failed { group, reason } => {
                return Err(format!("node {node} cannot go on with group {}: {reason}", group.node));
            }
        }
        Ok(Ok(()))
    }

    /// Writes an outcome, or compares it with the one that an earlier start of the process wrote.
    fn epoch_decided(
        &mut self,
        node: u16,
        decided: DecidedEpoch<Numbered>,
        entries: &[(GroupId, u64)],
    ) -> Result<Result<(), String>, String> {
        let Some(process) = &mut self.machine(node).process else { return Ok(Ok(())) };
        let (epoch, outcome) = (decided.outcome.epoch, &decided.outcome);
        if process.log.has_outcome(epoch) {
            let stored = process.reader.epoch(epoch).map_err(|error| format!("node {node}: {error}"))?;
            let same = stored.is_some_and(|stored| {
                let groups =
                    |input: &EpochInput| input.batches.iter().map(|b| (b.group, b.proposal())).collect::<Vec<_>>();
                stored.1 == *outcome && groups(&stored.0) == groups(&decided.input)
            });
            if !same {
                return Err(format!("node {node} decides epoch {epoch} again, and otherwise than its log has it"));
            }
            self.report.outcomes_again += 1;
        } else if entries.len() != decided.input.batches.len() {
            return Err(format!("node {node} names {} entries for the batches of epoch {epoch}", entries.len()));
        } else if let Err(error) = of_the_disk(node, process.log.append_epoch(outcome, entries))? {
            return Ok(Err(error));
        }
        self.decided(node, decided).map(Ok)
    }

    fn effect(&mut self, node: u16, effect: Effect<Numbered>) -> Result<(), String> {
        match effect {
            Effect::Answer(waiter, answer, _) => self.answered(node, waiter, answer),
            Effect::ControlApplied(ControlEffect::StoreDeclared { store, .. }) => {
                let member = self.member(node).ok_or("it runs")?;
                let name = member.replica().replicated().stores().store(store).map(|store| store.spec.name.clone());
                self.witness.invariant_a_number_is_given_once(store, &name.unwrap_or_default())
            }
            Effect::ControlApplied(ControlEffect::NodeAdmitted(admitted)) => {
                self.admitted(admitted);
                Ok(())
            }
            Effect::ControlApplied(ControlEffect::NodeLeaves(leaving)) => {
                self.is_leaving(leaving);
                Ok(())
            }
            Effect::ControlApplied(ControlEffect::NodeLeft(left)) => {
                self.has_left(left);
                Ok(())
            }
            Effect::ControlApplied(ControlEffect::OthersLeft(_)) => self.others_left(node),
            Effect::ControlApplied(ControlEffect::GroupJoined(join)) => {
                self.note_begun(node);
                self.invariant_a_group_that_joins_has_a_leader(join)
            }
            Effect::ControlApplied(ControlEffect::PushAssigned(_)) => {
                self.report.assigned += 1;
                Ok(())
            }
            Effect::ControlReply(change, reply) => {
                self.trace.note(self.time_us, format_args!("node {node}: change {} is applied", reply.index.0));
                self.report.changes += 1;
                self.changes.invariant_a_change_is_answered_once(node, change, reply)
            }
            Effect::Stopped => self.stopped(node),
            _ => Ok(()),
        }
    }

    /// Begins a sync if one is requested and none is in flight.
    fn begin_sync(&mut self, node: u16) {
        let lasts_us =
            if self.slow_disks { self.random.between(5_000, 300_000) } else { self.random.between(200, 2_000) };
        // A sync covers the writes before its begin, or those before its end: both happen.
        let at_once = self.random.chance(500);
        let machine = self.machine(node);
        let start = machine.starts;
        let Some(process) = &mut machine.process else { return };
        let (None, Some(number)) = (process.syncing, process.wanted) else { return };
        (process.syncing, process.wanted) = (Some(number), None);
        if at_once && let Err(error) = process.sync() {
            self.trace.note(self.time_us, format_args!("node {node} stops: {error}"));
            return self.stop_for_good(node);
        }
        self.later(lasts_us, Happening::Synced { node, start, number });
    }

    /// Handles the return of a sync.
    pub(super) fn synced(&mut self, node: u16, start: u64, number: u64) -> Result<(), String> {
        let time_us = self.time_us;
        let machine = self.machine(node);
        if machine.starts != start {
            return Ok(());
        }
        if machine.stuck_until > time_us {
            let wait_us = machine.stuck_until - time_us;
            self.later(wait_us, Happening::Synced { node, start, number });
            return Ok(());
        }
        let Some(process) = &mut machine.process else { return Ok(()) };
        process.syncing = None;
        if let Err(error) = process.sync() {
            self.trace.note(time_us, format_args!("node {node} stops: {error}"));
            self.stop_for_good(node);
            return Ok(());
        }
        self.note_durable(node)?;
        self.note_mark(node, number);
        self.step(node, Input::Persisted(number))
    }

    /// Notes the votes that the log's mark would have, which is written now and then.
    fn note_mark(&mut self, node: u16, number: u64) {
        if self.planted == Some(Planted::VoteFromTheMark) && number.is_multiple_of(MARK_EVERY_SYNCS) {
            let machine = self.machine(node);
            machine.votes = Some(machine.durable.clone());
        }
    }

    /// Stops a process whose disk failed. It starts again after the machine was switched off and on.
    pub(super) fn stop_for_good(&mut self, node: u16) {
        self.machine(node).cut_power();
        let wait_us = self.random.between(100_000, 1_000_000);
        self.later(wait_us, Happening::Start { node });
    }
}
