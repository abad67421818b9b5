//! The parts of the sequencer that only a cluster member needs: ticks, peer frames, group records, fresh reads.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;
use tokio::sync::oneshot;
use tribunal_member::{Frame, Input, Refused, Stage};
use tribunal_replica::Event;
use tribunal_types::{ControlChange, Epoch, NodeId, NodeStage};

use super::Sequencer;
use super::inline_writes::Allowed;
use crate::cluster::first_start::{FirstStart, REMOVED};
use crate::cluster::recovery::TICK;
use crate::cluster::state_copy::{Lacks, Lag};
use crate::cluster::{lost_entries, peer_clocks};
use crate::commit::change_under_way::ChangeUnderWay;
use crate::commit::message::Message;
use crate::commit::waiters::Channels;

/// How long a stopping member waits for another node to take over its groups.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(1);
/// How long it waits in total for a majority to decide the epochs in flight.
pub(super) const MAJORITY_TIMEOUT: Duration = Duration::from_secs(5);

/// Ticks between two reports of this node's push states.
const PUSHES_TOLD_EVERY: u64 = 16;
/// Ticks between two reports of this node's clock.
const CLOCK_TOLD_EVERY: u64 = 8;
/// Ticks between two log lines about missing nodes.
const WAITING_TOLD_EVERY: u32 = 1_000;
/// Ticks before the first such line.
const TICKS_BEFORE_IT_IS_TOLD: u32 = 66;
/// Ticks between two claims of a node number.
const CLAIMED_EVERY: u32 = 16;

/// Maximum number of group rounds written on the sequencer's thread before it returns to its messages.
const ROUNDS_HERE_MAX: u32 = 2;

/// Phase of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Other nodes take over the groups that this one leads.
    HandingOver,
    /// The epochs in flight are being decided.
    Finishing,
    /// The stop took too long.
    GivenUp,
}

impl Sequencer {
    /// Passes an input to the member, if the node is one, and carries out the resulting outputs.
    pub(super) fn bring(&mut self, input: Input<Channels>) {
        let now = self.now();
        let Some(member) = self.decider.member() else { return };
        let from = if let Input::Frame { from, .. } = &input { Some(*from) } else { None };
        match (member.step(input, now), from) {
            (Err(refused @ Refused::PastLog { .. }), Some(from)) => {
                self.refuse_lost(&format!("{refused} (found by a message of node {from})"));
            }
            // A leader that should not be one steps down. The node at fault is unknown.
            (Err(refused @ Refused::PastLeader { .. }), Some(_)) => self.refuse(refused.to_string()),
            (Err(refused), Some(from)) if !refused.is_momentary() => self.shared.view.refused.note(from, &refused),
            (Err(refused), from) => tracing::debug!(from = from.map(|from| from.0), %refused, "an input was refused"),
            (Ok(()), _) => {}
        }
        self.follow();
    }

    /// Returns how long until something is due.
    pub(super) fn wake_in(&mut self) -> Option<Duration> {
        let replica = self.decider.replica().wake_in(self.now());
        if self.decider.member().is_none() {
            return replica;
        }
        let tick = TICK.saturating_sub(self.side.ticked_at.elapsed());
        Some(replica.map_or(tick, |replica| replica.min(tick)))
    }

    /// Ticks the member if a tick is due. Missed ticks are not made up for: a node that was paused would depose every
    /// leader.
    pub(super) fn tick_member(&mut self) {
        if self.side.ticked_at.elapsed() >= TICK {
            self.side.ticked_at = Instant::now();
            if self.tell_stage() {
                return;
            }
            self.bring(Input::Tick);
            self.side.ticks += 1;
            self.tell_pushes();
            self.compare_clocks();
            let clock = self.side.apart_ms.map(peer_clocks::problem);
            if let Some(member) = self.decider.member() {
                self.shared.view.follow(member, clock);
                self.tell_availability();
            }
        }
    }

    fn tell_availability(&mut self) {
        match self.side.availability.note(self.shared.view.takes_commits(), Instant::now()) {
            Some(true) => tracing::info!("this node takes transactions"),
            Some(false) => tracing::warn!("this node takes no transactions; `tribunal cluster status` tells why"),
            None => {}
        }
    }

    /// Handles a frame from another node.
    pub(super) fn peer_frame(&mut self, from: NodeId, frame: Frame) {
        let Some(first_start) = self.decider.first_start() else { return };
        let before = first_start.stage();
        if let Frame::Stage(stage) = frame {
            if let Err(reason) = first_start.received(from, stage) {
                self.refuse(reason);
            } else if stage != Stage::Member && first_start.stage() == Stage::Member {
                // Those that wait tell one another at every tick, and answers would be answered without end.
                self.state.outgoing.add(from, &Frame::Stage(Stage::Member));
            }
        } else if let Frame::Claimed(by) = frame {
            if let Some(Err(reason)) = by.map(|directory| first_start.claimed(directory)) {
                self.refuse(reason);
            }
        } else if let Frame::Claim(directory) = frame {
            if before == Stage::Member {
                self.answer_claim(from, directory);
            }
        } else if let Frame::Clock(theirs_ms) = frame {
            self.side.clocks.note(from, theirs_ms, self.state.clock.now_ms(), Instant::now());
        } else if matches!(frame, Frame::PushStates(_) | Frame::Deliveries(_) | Frame::ResumePush(_)) {
            (self.state.on_push_frame)(from, frame);
        } else if before == Stage::Member {
            self.bring(Input::Frame { from, frame });
        }
    }

    /// Records that this node lacks state that only a copy of another member's state provides.
    pub(super) fn note_lag(&mut self, lacks: Lacks) {
        self.side.lag.get_or_insert(Lag { lacks, compacted: BTreeMap::new(), others: BTreeMap::new() });
    }

    /// Returns what this node lacks, if anything. Called at the end: until then its groups may be compacted further,
    /// and the other member's state must include as much.
    pub(super) fn take_lag(&mut self) -> Option<Lag> {
        let lag = self.side.lag.take()?;
        let compacted = self.decider.member().into_iter().flat_map(|member| member.compacted()).collect();
        Some(Lag { compacted, ..lag })
    }

    /// Records that the node must end and copy another member's state, because its rows are broken.
    pub(super) fn copy_state(&mut self, store: String) {
        self.note_lag(Lacks::Rows { store });
    }

    /// Ends the node: it must not take part in its cluster.
    pub(super) fn refuse(&mut self, reason: String) {
        self.side.refused = true;
        self.inline.failed.get_or_insert(reason);
    }

    /// Handles another node's report that this node was removed.
    pub(super) fn removed(&mut self, by: NodeId) {
        let takes_part = |first_start: &mut FirstStart| first_start.stage() == Stage::Member;
        if self.decider.first_start().is_some_and(takes_part) {
            self.bring(Input::Frame { from: by, frame: Frame::Removed });
        } else {
            self.refuse_removed();
        }
    }

    /// Ends the removed node, and records that no process may start with its directory again.
    pub(super) fn refuse_removed(&mut self) {
        let noted = self.decider.first_start().map(|first_start| first_start.note_removed());
        if let Some(Err(reason)) = noted {
            // The next start learns it from the other nodes again.
            tracing::warn!(reason, "that this node was removed is not noted");
        }
        self.refuse(REMOVED.into());
    }

    /// Ends a node that lost acknowledged entries: neither this process nor another one with its directory may vote.
    fn refuse_lost(&mut self, reason: &str) {
        let marked = self.decider.first_start().map(|first_start| lost_entries::mark(first_start.data(), reason));
        if let Some(Err(reason)) = marked {
            // The next start learns it from the other nodes again.
            tracing::error!(reason, "that this node has lost entries is not noted: do not start it again");
        }
        self.refuse(reason.to_owned());
    }

    /// Replies with the directory that a first-starting node's number is bound to, or proposes the binding.
    fn answer_claim(&mut self, from: NodeId, directory: u64) {
        let known = self.replica().replicated().members().node(from);
        let admitted = known.filter(|node| node.stage == NodeStage::Present && !node.name.is_empty());
        let bound = admitted.map(|node| node.directory);
        if bound == Some(None) {
            // The node claims again until this is applied.
            if !self.side.claims.get_mut(&from).is_some_and(ChangeUnderWay::is_under_way) {
                let (proposal, under_way) = ChangeUnderWay::propose(ControlChange::ClaimNode { node: from, directory });
                self.side.claims.insert(from, under_way);
                self.handle(proposal);
            }
        } else {
            self.state.outgoing.add(from, &Frame::Claimed(bound.flatten()));
        }
    }

    /// Periodically claims this node's number for its directory.
    fn claim(&mut self) {
        let Some(first_start) = self.decider.first_start() else { return };
        let Some((directory, asked)) = first_start.claim() else { return };
        if self.side.waited_ticks.is_multiple_of(CLAIMED_EVERY) {
            asked.iter().for_each(|node| self.state.outgoing.add(*node, &Frame::Claim(directory)));
        }
        if self.side.waited_ticks % WAITING_TOLD_EVERY == TICKS_BEFORE_IT_IS_TOLD {
            let names: Vec<String> = asked.iter().map(ToString::to_string).collect();
            tracing::info!(
                asked = names.join(", "),
                "waiting for a majority of the cluster to let this node in; it must have been admitted (`tribunal cluster add`)"
            );
        }
    }

    /// Reports the stage of the first start to the other nodes; returns true if this node does not take part yet.
    fn tell_stage(&mut self) -> bool {
        let Some(first_start) = self.decider.first_start() else { return false };
        let stage = first_start.stage();
        if stage == Stage::Member {
            return false;
        }
        if first_start.claim().is_some() {
            self.claim();
            self.side.waited_ticks += 1;
            return true;
        }
        for other in first_start.others() {
            self.state.outgoing.add(other, &Frame::Stage(stage));
        }
        self.side.waited_ticks += 1;
        let missing = first_start.missing();
        if self.side.waited_ticks % WAITING_TOLD_EVERY == TICKS_BEFORE_IT_IS_TOLD && !missing.is_empty() {
            tracing::info!(
                missing,
                "waiting for all nodes with which the cluster began; a warning tells if one of them refuses this one"
            );
        }
        true
    }

    /// Periodically reports this node's push states to the other nodes.
    fn tell_pushes(&mut self) {
        if !self.side.ticks.is_multiple_of(PUSHES_TOLD_EVERY) {
            return;
        }
        let told = (self.state.push_states)();
        told.iter().for_each(|frame| self.send_to_all(frame));
    }

    fn send_to_all(&mut self, frame: &Frame) {
        // There is no connection to this node itself.
        let nodes: Vec<NodeId> = self.replica().replicated().members().present().map(|node| node.id).collect();
        nodes.into_iter().for_each(|node| self.state.outgoing.add(node, frame));
    }

    /// Periodically reports this node's clock to the other nodes, and compares it with theirs.
    fn compare_clocks(&mut self) {
        let own_ms = self.state.clock.now_ms();
        if self.side.ticks.is_multiple_of(CLOCK_TOLD_EVERY) {
            self.send_to_all(&Frame::Clock(own_ms));
        }
        let epoch_time_ms = self.replica().resolver().epoch_time_ms();
        let state = self.state.clock.check();
        let wall_ahead_ms = if state.lasting { state.offset_ms } else { 0 };
        let now = Instant::now();
        self.shared.view.compared_clocks(self.side.clocks.offsets_ms(now));
        let apart_ms = self.side.clocks.apart_ms(own_ms, wall_ahead_ms, epoch_time_ms, now);
        match (self.side.apart_ms, apart_ms) {
            (None, Some(apart_ms)) => tracing::error!("{}", peer_clocks::problem(apart_ms)),
            (Some(_), None) => tracing::info!("the clock of this node agrees with those of the other nodes again"),
            _ => {}
        }
        self.side.apart_ms = apart_ms;
    }

    /// Advances a stop to its next phase, if it is time.
    pub(super) fn go_on_stopping(&mut self, phase: Phase, elapsed: Duration) -> Phase {
        let leads = self.decider.member().map(|member| !member.leads_nothing());
        match (phase, leads) {
            (Phase::HandingOver, Some(true)) if elapsed < HAND_OVER_TIMEOUT => phase,
            (Phase::HandingOver, _) => {
                self.step(Event::Stop);
                Phase::Finishing
            }
            (Phase::Finishing, Some(_)) if elapsed >= MAJORITY_TIMEOUT => {
                // The other nodes may or may not decide the epochs in flight: clients query by id.
                self.step(Event::StopNow);
                Phase::GivenUp
            }
            _ => phase,
        }
    }

    /// Answers with the last epoch that includes everything acknowledged anywhere before now. Only a member gets the
    /// question: no node is ahead of a single node.
    pub(super) fn read_fresh(&mut self, reply: oneshot::Sender<Option<Epoch>>) {
        self.side.reads.last += 1;
        let read = self.side.reads.last;
        self.side.reads.waiting.insert(read, reply);
        self.bring(Input::Fresh(read));
    }

    pub(super) fn answer_fresh(&mut self, read: u64, epoch: Option<Epoch>) {
        if let Some(reply) = self.side.reads.waiting.remove(&read) {
            let _ = reply.send(epoch);
        }
    }

    /// Carries out the outputs of a member since the last call, beyond the urgent ones: sends frames and log records in
    /// one piece per destination, then decides the complete epochs.
    pub(super) fn settle(&mut self, messages: &Receiver<Message>) {
        if self.decider.member().is_none() {
            return;
        }
        for round in 1.. {
            self.state.outgoing.flush();
            // Write inline unless an epoch may be complete (clients wait for it) or messages are queued (they go
            // first).
            let writes_here = round <= ROUNDS_HERE_MAX && self.is_free(messages) && !self.replica().may_decide();
            self.inline.allowed = if writes_here { Allowed::Rounds } else { Allowed::Nothing };
            if let Some(number) = self.write_round() {
                self.persisted_here(number);
                self.follow();
                self.state.outgoing.flush();
            }
            while let Some(output) = self.decider.poll() {
                self.carry_out(output);
            }
            self.write_outcomes();
            if self.side.round.is_empty() {
                break;
            }
        }
        self.state.outgoing.flush();
        self.end_inline();
    }
}
