//! The member: passes events to the groups and to the replica, and the effects of each to the other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tribunal_codec::{
    EntryId, GroupCursor, GroupCursors, GroupState, Malformed, batch_head, decode_batch, decode_control, encode_batch,
    encode_control,
};
use tribunal_core::control::Effect as ControlEffect;
use tribunal_core::control::members::Members as ClusterNodes;
use tribunal_core::executor::ShardExecutor;
use tribunal_core::planted::{Bug, planted};
use tribunal_core::row_key::RowKeyer;
use tribunal_raft::{
    BadGroup, GroupLog, GroupPoint, Input as RaftInput, Members, Output as RaftOutput, RaftGroups, Refused, StoredGroup,
};
use tribunal_replica::{CapturedImage, Effect, Event, Now, PolicyRunner, Replica, Waiters};
use tribunal_types::{Batch, ControlChange, ControlEntry, ControlIndex, GroupId, NodeId};

use crate::asking::Asking;
use crate::control_proposals::ControlProposals;
use crate::cursors::{Cursors, Included};
use crate::digests::Digests;
use crate::frame::Frame;
use crate::fresh_reads::FreshReads;
use crate::handing_over::HandingOver;
use crate::homecoming::Homecoming;
use crate::input::Input;
use crate::membership::{LAG_MAX, Membership, admitted_groups};
use crate::output::Output;
use crate::own_entries::OwnEntries;
use crate::positions::{HandedOut, Positions};
use crate::presence::Presence;
use crate::pushers::Pushers;
use crate::roles::Roles;
use crate::serving::Serving;
use crate::sources::Sources;

/// Everything that a member starts with, after its log was opened.
pub struct MemberStart<W: Waiters, P, E, L> {
    /// The node.
    pub node: NodeId,
    /// The group that it normally leads.
    pub group: GroupId,
    /// Its replica, in the state of the last image, with the fold at that point; `leads` is not set.
    pub replica: Replica<W, P, E>,
    /// Last control entry that the replica's state includes.
    pub control: ControlIndex,
    /// The cursor of each group in the state image that the replica has started from; empty without one.
    pub image: GroupCursors,
    /// Names rows; the same on all members, and the same as for client transactions.
    pub keyer: RowKeyer,
    /// Reads the logs of the groups.
    pub log: L,
    /// Timing and seed of elections.
    pub raft: tribunal_raft::Settings,
    /// The groups with which the cluster began, and all others in the log, with the state of each in the log.
    pub groups: Vec<(GroupId, GroupState)>,
    /// The members with which the groups began.
    pub first_members: Members,
    /// Bytes of committed entries that may wait in memory to be decided; beyond that they stay in the log.
    pub undecided_bytes_max: usize,
}

/// One member of a cluster.
///
/// Invariants:
/// * the replica receives entries, terms and control entries only as the groups deliver them, here or at a peer, in the
///   order of each log and exactly once;
/// * it receives the next event when all consequences of the previous one have been returned, except complete epochs
///   that are not decided yet.
pub struct Member<W: Waiters, P, E, L: GroupLog> {
    pub(crate) node: NodeId,
    pub(crate) group: GroupId,
    replica: Replica<W, P, E>,
    pub(crate) raft: RaftGroups<L>,
    keyer: RowKeyer,
    /// Last control entry that the replica has received.
    control: ControlIndex,
    pub(crate) controls: ControlProposals,
    pub(crate) roles: Roles,
    pub(crate) presence: Presence,
    pub(crate) membership: Membership,
    pub(crate) pushers: Pushers,
    pub(crate) digests: Digests,
    homecoming: Homecoming,
    pub(crate) handing_over: HandingOver,
    /// The same, while this node is drained.
    draining: HandingOver,
    fresh: FreshReads,
    pub(crate) own: OwnEntries,
    pub(crate) positions: Positions,
    pub(crate) sources: Sources,
    pub(crate) undecided_bytes_max: usize,
    pub(crate) asking: Asking,
    pub(crate) serving: Serving,
    pub(crate) cursors: Cursors,
    /// Entries of peers to be written before an epoch is decided from them.
    pub(crate) copies: VecDeque<(GroupId, EntryId, Bytes)>,
    /// Fresh reads to answer, each with whether it is fresh.
    read: VecDeque<(u64, bool)>,
    /// Frames to send, besides those of Raft and the answers to peers.
    pub(crate) frames: VecDeque<(NodeId, Frame)>,
    /// Events for the replica.
    pub(crate) events: VecDeque<Event<W>>,
    now: Now,
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor, L: GroupLog> Member<W, P, E, L> {
    /// Starts a member. It campaigns in its own group immediately, and in the control group if it is its only voter.
    ///
    /// # Errors
    /// If the log's records of a group are inconsistent.
    pub fn new(start: MemberStart<W, P, E, L>, now: Now) -> Result<Self, BadGroup> {
        let MemberStart { node, group, replica, control, image, keyer, log, raft, groups, .. } = start;
        let mut raft = RaftGroups::new(node, raft, log);
        let (mut positions, mut cursors) = (Positions::default(), Cursors::default());
        let admitted = admitted_groups(replica.replicated().members());
        let mut groups: BTreeMap<GroupId, GroupState> = groups.into_iter().collect();
        admitted.keys().for_each(|group| _ = groups.entry(*group).or_default());
        for (group, state) in groups {
            let applied = point_in(&image, group, admitted.get(&group).unwrap_or(&start.first_members))?;
            positions.begin(group, applied.id.index);
            raft.add_group(StoredGroup { group, state, applied })?;
        }
        let included = |group| {
            let cursor = image.get(&group).map(|cursor| Included { id: cursor.included, stamp: cursor.stamp });
            cursor.unwrap_or_default()
        };
        cursors.begin_control(control, included(GroupId::CONTROL).id);
        for group in raft.ids().filter(|group| *group != GroupId::CONTROL) {
            cursors.begin(group, included(group));
        }
        for (group, next) in replica.epochs().groups() {
            cursors.join(group, next);
        }
        let alone = raft.members(GroupId::CONTROL).is_some_and(|members| members.voters.iter().eq([&node]));
        let digests = Digests::starting(replica.resolver().last(), replica.resolver().digest());
        let mut member = Member {
            node,
            group,
            replica,
            raft,
            keyer,
            control,
            controls: ControlProposals::default(),
            roles: Roles::new(node),
            presence: Presence::default(),
            membership: Membership::default(),
            pushers: Pushers::default(),
            digests,
            homecoming: Homecoming::default(),
            handing_over: HandingOver::default(),
            draining: HandingOver::default(),
            fresh: FreshReads::default(),
            own: OwnEntries::default(),
            positions,
            sources: Sources::default(),
            undecided_bytes_max: start.undecided_bytes_max,
            cursors,
            asking: Asking::default(),
            serving: Serving::default(),
            copies: VecDeque::new(),
            frames: VecDeque::new(),
            read: VecDeque::new(),
            events: VecDeque::new(),
            now,
        };
        member.tell_raft(RaftInput::Campaign(group));
        if alone {
            member.tell_raft(RaftInput::Campaign(GroupId::CONTROL));
        }
        Ok(member)
    }

    /// Processes an input. The consequences come from [`Member::poll`], and must be drained before the next input; at
    /// the least those from [`Member::poll_urgent`].
    ///
    /// # Errors
    /// [`Refused`] if a frame of a peer was refused; the frame has changed nothing.
    pub fn step(&mut self, input: Input<W>, now: Now) -> Result<(), Refused> {
        self.now = now;
        self.go_on();
        if let Input::Frame { from, .. } = &input {
            if !self.presence.sends(*from) {
                self.greet_with_digest(*from);
            }
            self.presence.received(*from);
        }
        match input {
            Input::Replica(event) => {
                if let Event::Pushed { store, .. } = &event {
                    self.pushers.changed(*store);
                }
                self.events.push_back(event);
            }
            Input::Frame { from, frame: Frame::Raft(message) } => {
                self.answer_removed(from);
                return self.raft.step(RaftInput::Message { from, message });
            }
            Input::Frame { from, frame: Frame::Durable(upto) } => {
                return self.raft.step(RaftInput::Durable { from, upto });
            }
            Input::Frame { frame: Frame::Control(entry), .. } => {
                // The proposer resends it if it is lost.
                return self.propose_control(*entry);
            }
            Input::Frame { from, frame: Frame::Leaving } => {
                self.answer_removed(from);
                self.presence.leaving(from);
            }
            Input::Frame { frame: Frame::Removed, .. } => self.told_removed(),
            Input::Frame { from, frame: Frame::Relay(entry) }
                if self.roles.leader(GroupId::CONTROL) != Some(self.node) =>
            {
                self.relayed(from, entry);
            }
            Input::Frame { frame: Frame::Relay(entry), .. } => return self.propose_control(*entry),
            Input::Frame { from, frame: Frame::Ask { group, after } } => self.asked(group, from, after),
            Input::Frame { from, frame: Frame::Pushed { decided, stores } } => self.pushes_told(from, decided, stores),
            Input::Frame { from, frame: Frame::Decided { epoch, digest } } => self.digest_told(from, epoch, digest),
            // These frames are handled before they reach the member.
            Input::Frame {
                frame:
                    Frame::Claim(_)
                    | Frame::Claimed(_)
                    | Frame::Clock(_)
                    | Frame::Stage(_)
                    | Frame::PushStates(_)
                    | Frame::Deliveries(_)
                    | Frame::ResumePush(_)
                    | Frame::Pull(_)
                    | Frame::Part(_)
                    | Frame::Absent { .. },
                ..
            } => {}
            Input::Frame { from, frame: Frame::Entries(entries) } => self.peer_entries(from, entries),
            Input::Tick => self.tick(),
            Input::Persisted(number) => return self.raft.step(RaftInput::Persisted(number)),
            Input::Unreachable(node) => return self.raft.step(RaftInput::Unreachable(node)),
            Input::Compact { group, upto } => return self.raft.step(RaftInput::Compact { group, upto }),
            Input::HandOver => {
                self.handing_over.begin();
                self.hand_over();
            }
            Input::Fresh(read) if self.fresh.add(read) => self.begin_fresh_reads(),
            Input::Fresh(read) => self.read.push_back((read, false)),
        }
        Ok(())
    }

    /// Returns the next output that does not require deciding an epoch: the outputs that other nodes and the disk wait
    /// for. `None` if only [`Member::poll`] has more. Several inputs may be stepped, each followed by this; the epochs
    /// that they complete are then decided together by [`Member::poll`].
    pub fn poll_urgent(&mut self) -> Option<Output<W>> {
        loop {
            // Must precede the epochs that are decided from them.
            if let Some((group, id, content)) = self.copies.pop_front() {
                return Some(Output::Copy { group, id, content });
            } else if let Some(effect) = self.replica.poll_ready() {
                if let Some(output) = self.effect(effect) {
                    return Some(output);
                }
            } else if let Some(event) = self.events.pop_front() {
                self.replica.step(event, self.now);
            } else {
                let output = self.raft.poll()?;
                if let Some(output) = self.raft_output(output) {
                    return Some(output);
                }
            }
        }
    }

    /// Returns the next output; `None` until the next input.
    pub fn poll(&mut self) -> Option<Output<W>> {
        loop {
            if let Some(output) = self.poll_urgent() {
                return Some(output);
            } else if let Some(effect) = self.replica.poll() {
                if let Some(output) = self.effect(effect) {
                    return Some(output);
                }
            } else if self.ask_new_groups() {
                // The questions are outputs of the groups now.
            } else if self.reports_removal() {
                return Some(Output::Removed);
            } else if let Some((read, is_fresh)) = self.next_read() {
                return Some(Output::Fresh { read, epoch: is_fresh.then(|| self.replica.last_complete()) });
            } else if let Some(reason) = self.settle_digests() {
                return Some(Output::Diverged { reason });
            } else if self.report_pushes() {
                // The reports are frames now.
            } else if let Some((to, frame)) = self.frames.pop_front().or_else(|| self.next_answer()) {
                return Some(Output::Send { to, frame });
            } else if let Some(output) = self.send_control() {
                return Some(output);
            } else {
                return None;
            }
        }
    }

    /// Returns the replica.
    #[must_use]
    pub fn replica(&self) -> &Replica<W, P, E> {
        &self.replica
    }

    /// Returns the replica for calls without effects: memory reuse.
    pub fn replica_mut(&mut self) -> &mut Replica<W, P, E> {
        &mut self.replica
    }

    /// Returns the last control entry that is committed here.
    #[must_use]
    pub fn control(&self) -> ControlIndex {
        self.control
    }

    /// Returns the leader of a group, if this node knows one.
    #[must_use]
    pub fn leader(&self, group: GroupId) -> Option<NodeId> {
        self.roles.leader(group)
    }

    /// Returns all groups on this node, ascending, including closed ones.
    pub fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.raft.ids()
    }

    /// Returns the members of a group, as of its entries that are committed here.
    #[must_use]
    pub fn members_of(&self, group: GroupId) -> Option<&Members> {
        self.raft.members(group)
    }

    /// Returns the index of the last entry of a group that the replica has received.
    #[must_use]
    pub fn reached(&self, group: GroupId) -> u64 {
        self.positions.reached(group)
    }

    /// Returns for each group the last entry that this node has compacted: a state image that replaces this node's own
    /// must include at least as much.
    pub fn compacted(&self) -> impl Iterator<Item = (GroupId, u64)> + '_ {
        self.raft.compacted()
    }

    /// Returns the groups that this node leads.
    pub fn led(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.roles.led()
    }

    /// Returns the number of elections that this node has noticed since its start.
    #[must_use]
    pub fn elections(&self) -> u64 {
        self.roles.elections()
    }

    /// Returns the voters of this node's own group: a majority of them must be reachable for the node to take commits.
    #[must_use]
    pub fn voters(&self) -> Option<&BTreeSet<NodeId>> {
        self.raft.members(self.group).map(|members| &members.voters)
    }

    /// Returns by how many entries each other node lags in the groups that this node leads: the maximum over the
    /// groups.
    #[must_use]
    pub fn lags(&self) -> BTreeMap<NodeId, u64> {
        let mut lags = BTreeMap::new();
        for (node, lag) in self.roles.led().flat_map(|group| self.raft.lags(group)) {
            let most: &mut u64 = lags.entry(node).or_default();
            *most = lag.max(*most);
        }
        lags
    }

    /// Returns whether this node leads no group, so that stopping it interrupts nothing (see [`Input::HandOver`]).
    #[must_use]
    pub fn leads_nothing(&self) -> bool {
        self.roles.led().next().is_none()
    }

    /// Returns whether this node takes commits: it leads its own group, so a majority has followed it recently; the
    /// group is a member; and the node is neither removed nor drained.
    #[must_use]
    pub fn takes_commits(&self) -> bool {
        self.roles.leads(self.group) && self.serves_fresh_reads() && !self.is_drained()
    }

    /// Returns a fresh read that can be answered now that the replica has received all available entries. A replica
    /// that lacks the code of a policy has not decided them: the reads wait for the code, or are given up.
    fn next_read(&mut self) -> Option<(u64, bool)> {
        let decides = !self.replica.waits_for_code() || planted(Bug::FreshWithoutCode);
        let done = if decides { self.fresh.take_done(|group| self.positions.reached(group)) } else { Vec::new() };
        if !done.is_empty() {
            let is_fresh = self.serves_fresh_reads();
            self.read.extend(done.into_iter().map(|read| (read, is_fresh)));
            self.begin_fresh_reads();
        }
        self.read.pop_front()
    }

    fn begin_fresh_reads(&mut self) {
        if self.fresh.begin(asked_groups(&self.replica)) {
            self.ask_for_indices();
        }
    }

    /// Queries groups that have joined since the round of fresh reads began: epochs that were acknowledged before the
    /// round may depend on them here. Returns whether there were any.
    fn ask_new_groups(&mut self) -> bool {
        let asks = self.fresh.note_groups(|| asked_groups(&self.replica));
        if asks {
            self.ask_for_indices();
        }
        asks
    }

    fn ask_for_indices(&mut self) {
        for (group, context) in self.fresh.questions() {
            self.tell_raft(RaftInput::ReadIndex { group, context });
        }
    }

    fn tick(&mut self) {
        self.tell_raft(RaftInput::Tick);
        let (again, given_up) = self.fresh.tick();
        self.read.extend(given_up.into_iter().map(|read| (read, false)));
        if again {
            self.ask_for_indices();
        }
        self.begin_fresh_reads();
        self.controls.tick();
        self.presence.tick();
        self.handing_over.tick();
        self.drain();
        self.serving.tick();
        self.ask_peers();
        self.assign_pushes();
        self.report_digest();
        self.change_members();
        let home = self.group;
        let led = self.roles.led().filter(|group| *group != home && *group != GroupId::CONTROL);
        let led = led.filter(|group| self.goes_home(*group)).collect::<Vec<_>>();
        let has_all = |group: GroupId| self.raft.is_caught_up(group, group.node, LAG_MAX);
        let offered = self.homecoming.tick(led.into_iter(), &self.presence, has_all);
        if self.handing_over.is_leaving() {
            self.hand_over();
        } else {
            offered.into_iter().for_each(|group| self.tell_raft(RaftInput::TransferLeader { group, to: group.node }));
        }
        self.events.push_back(Event::Tick);
    }

    /// Gives leaderships away while this node is drained. It still votes, and leads groups that no other node can lead.
    fn drain(&mut self) {
        if !self.is_drained() {
            self.draining.end();
            return;
        }
        self.draining.begin();
        self.draining.tick();
        for group in self.roles.led().collect::<Vec<_>>() {
            if let Some(to) = self.draining.successor(self.node, group, &self.candidates(group)) {
                self.tell_raft(RaftInput::TransferLeader { group, to });
            }
        }
    }

    /// Gives leaderships away: the node is about to stop.
    fn hand_over(&mut self) {
        if self.handing_over.tells() {
            let members = self.raft.members(GroupId::CONTROL).into_iter().chain(self.raft.members(self.group));
            let others = members.flat_map(|members| &members.voters).filter(|node| **node != self.node);
            let others = others.copied().collect::<BTreeSet<_>>();
            self.frames.extend(others.into_iter().map(|node| (node, Frame::Leaving)));
        }
        for group in self.roles.led().collect::<Vec<_>>() {
            if let Some(to) = self.handing_over.successor(self.node, group, &self.heirs(group)) {
                self.tell_raft(RaftInput::TransferLeader { group, to });
            }
        }
    }

    /// Passes an input to the groups that they may refuse: it comes at the wrong moment, and is repeated.
    pub(crate) fn tell_raft(&mut self, input: RaftInput) {
        let _ = self.raft.step(input);
    }

    /// Carries out the replica's effects on the groups; returns all other effects.
    fn effect(&mut self, effect: Effect<W>) -> Option<Output<W>> {
        match effect {
            Effect::Append(batch) => self.propose(batch),
            Effect::AppendControl(_, entry) => self.controls.add(entry),
            Effect::TakeOver(_) if self.handing_over.is_leaving() => {}
            Effect::TakeOver(group) => self.tell_raft(RaftInput::TakeOver(group)),
            Effect::Decided(decided) => {
                // An image being taken may still need the earlier entries.
                if !self.replica.takes_image() {
                    self.cursors.forget_below(self.replica.resolved_to());
                }
                self.digests.decided(decided.outcome.epoch, decided.outcome.digest);
                let entries = self.sources.take(&decided.input);
                return Some(Output::Decided { decided, entries });
            }
            Effect::Image { image, applied, last } => {
                let groups = self.image_groups(&image);
                return Some(Output::Image { image, groups, applied, last });
            }
            Effect::ControlApplied(ControlEffect::NodeAdmitted(node)) if self.begin_admitted_groups().is_err() => {
                let reason = "the log has entries of it, but no state".into();
                return Some(Output::Failed { group: ClusterNodes::group_of(node), reason });
            }
            Effect::ControlApplied(applied) => {
                if let ControlEffect::GroupJoined(join) = &applied {
                    self.cursors.join(join.group, join.first);
                }
                return Some(Output::Effect(Effect::ControlApplied(applied)));
            }
            effect => return Some(Output::Effect(effect)),
        }
        None
    }

    /// Returns the cursors of the groups in an image, with everything that a member starting from it must know of each
    /// group.
    fn image_groups(&mut self, image: &CapturedImage) -> GroupCursors {
        let nodes = self.replica.replicated().members();
        // The group of a node that was removed before it joined never counts.
        let never_joins =
            |group: GroupId| nodes.node(group.node).is_some_and(|n| n.joined.is_none()) && nodes.leaves(group.node);
        let included = self.cursors.take(image.fold(), image.control(), never_joins);
        let members = |group| self.raft.members(group).map(Members::encode).unwrap_or_default();
        let cursor =
            |(group, Included { id, stamp })| (group, GroupCursor { included: id, stamp, members: members(group) });
        included.into_iter().map(cursor).collect()
    }

    fn propose(&mut self, batch: Arc<Batch>) {
        // A batch for a term that has not begun would be treated as lost when the term begins.
        if !self.roles.leads(batch.group) {
            return self.events.push_back(Event::NotProposed(batch));
        }
        let mut payload = Vec::new();
        encode_batch(&batch, &mut payload);
        let Ok(id) = self.raft.propose(batch.group, payload) else {
            return self.events.push_back(Event::NotProposed(batch));
        };
        if planted(Bug::AckBeforeMajority) {
            self.events.push_back(Event::Entry(Arc::clone(&batch)));
        }
        self.own.proposed(id, batch);
    }

    /// Proposes the next configuration change if this node leads the control group; otherwise returns the output that
    /// sends it to the leader, or to a peer that may reach the leader.
    fn send_control(&mut self) -> Option<Output<W>> {
        let entry = self.controls.due()?.clone();
        let leader = self.roles.leader(GroupId::CONTROL);
        if leader == Some(self.node) {
            self.controls.sent();
            // If refused, it is retried like a lost one.
            let _ = self.propose_control(entry);
            return self.poll();
        }
        let (to, frame) = match leader.filter(|leader| self.presence.sends(*leader)) {
            Some(leader) => (leader, Frame::Control(Box::new(entry))),
            None => (self.controls.relay(&self.reachable_voters(GroupId::CONTROL))?, Frame::Relay(Box::new(entry))),
        };
        self.controls.sent();
        Some(Output::Send { to, frame })
    }

    /// Proposes a configuration change; this node leads the control group. A change that admits a node is completed
    /// with the group's voters.
    fn propose_control(&mut self, mut entry: ControlEntry) -> Result<(), Refused> {
        if let ControlChange::AdmitNode { voters, .. } = &mut entry.change {
            let present = self.raft.settled_voters(GroupId::CONTROL)?;
            *voters = if planted(Bug::NewGroupWithoutLeaving) { Vec::new() } else { present };
        }
        self.raft.propose(GroupId::CONTROL, encode_control(&entry)).map(drop)
    }

    fn raft_output(&mut self, output: RaftOutput) -> Option<Output<W>> {
        let is_known = match self.handed_out(&output) {
            HandedOut::Next => false,
            HandedOut::Known => true,
            HandedOut::Differs(failed) => return Some(failed),
        };
        match output {
            RaftOutput::Send { to, message } => return Some(Output::Send { to, frame: Frame::Raft(message) }),
            RaftOutput::Durable { to, upto } => return Some(Output::Send { to, frame: Frame::Durable(upto) }),
            RaftOutput::Append { group, id, content } => return Some(Output::Append { group, id, content }),
            RaftOutput::SetState { group, state } => return Some(Output::SetState { group, state }),
            RaftOutput::Sync { number } => return Some(Output::Sync { number }),
            RaftOutput::NeedsImage { group, leader, at_least } => {
                return Some(Output::NeedsImage { group, leader, at_least });
            }
            RaftOutput::Failed { group, reason } => return Some(Output::Failed { group, reason }),
            RaftOutput::Appended { group, payload, .. } => self.appended(group, &payload),
            RaftOutput::Committed { .. } if is_known => {}
            RaftOutput::Committed { group, id, payload } => return self.committed(group, id, &payload),
            // Only the own group reports that this node leads; a peer cannot.
            RaftOutput::TermBegun { leading: false, .. } if is_known => {}
            RaftOutput::TermBegun { group, id, leading } => {
                self.cursors.entry(group, id, None);
                self.own.term_begun(group, id.term);
                self.term_begun(group, id.term, leading);
            }
            RaftOutput::Role { group, leader, term } => self.role(group, leader, term),
            RaftOutput::MembersChanged { .. } if is_known => {}
            RaftOutput::MembersChanged { group, id, .. } => self.cursors.entry(group, id, None),
            RaftOutput::ReadState { group, index, context } => self.fresh.answered(group, context, index),
            // It is queried again.
            RaftOutput::ReadLost { .. } => {}
        }
        None
    }

    /// Notes an entry that this node's own log has now, and returns whether the replica has already received it from a
    /// peer. The inner value is the failure to report if that was a different entry.
    fn handed_out(&mut self, output: &RaftOutput) -> HandedOut<Output<W>> {
        let (RaftOutput::Committed { group, id, .. }
        | RaftOutput::TermBegun { group, id, .. }
        | RaftOutput::MembersChanged { group, id, .. }) = output
        else {
            return HandedOut::Next;
        };
        self.serving.handed_out(*group);
        self.positions.handed_out(*group, *id).map(|term| {
            let reason = format!("entry {} is of term {}, and a peer had one of term {term}", id.index, id.term);
            Output::Failed { group: *group, reason }
        })
    }

    /// Lets the replica seal the epochs that a peer's batch waits for, before the batch is committed.
    fn appended(&mut self, group: GroupId, payload: &Bytes) {
        if group != GroupId::CONTROL
            && group != self.group
            && let Ok(head) = batch_head(payload)
            && head.has_items
        {
            self.events.push_back(Event::Appended(head.last));
        }
    }

    fn committed(&mut self, group: GroupId, id: EntryId, payload: &Bytes) -> Option<Output<W>> {
        match self.event_of(group, id, payload) {
            Ok(event) => {
                self.events.push_back(event);
                self.hold_back(group);
            }
            // Every member refuses the same bytes: to skip them would produce a different log.
            Err(malformed) => {
                let reason = format!("entry {} of term {}: {malformed}", id.index, id.term);
                return Some(Output::Failed { group, reason });
            }
        }
        None
    }

    /// Returns the event that the next entry of a group is for the replica.
    pub(crate) fn event_of(&mut self, group: GroupId, id: EntryId, payload: &Bytes) -> Result<Event<W>, Malformed> {
        if group == GroupId::CONTROL {
            return decode_control(payload).map(|entry| self.control_entry(id, entry));
        }
        let batch = if let Some(batch) = self.own.committed(group, id) {
            batch
        } else {
            let keyer = self.keyer;
            Arc::new(decode_batch(payload, group, &|namespace, store, key| keyer.row(namespace, store, key))?)
        };
        self.sources.agreed(&batch, id.index, payload.len());
        self.cursors.entry(group, id, Some(&batch));
        Ok(Event::Entry(batch))
    }

    fn control_entry(&mut self, id: EntryId, entry: ControlEntry) -> Event<W> {
        self.control = ControlIndex(self.control.0 + 1);
        self.cursors.control_entry(self.control, id);
        self.controls.agreed(entry.proposal);
        Event::ControlEntry(self.control, entry)
    }

    fn term_begun(&mut self, group: GroupId, term: u64, leading: bool) {
        let leads = self.roles.begun(group, term, leading);
        if leads && group != self.group {
            self.homecoming.led(group);
        }
        if group == GroupId::CONTROL {
            self.controls.leader_changed();
        } else {
            self.events.push_back(Event::TermBegun { group, leads });
        }
    }

    fn role(&mut self, group: GroupId, leader: Option<NodeId>, term: u64) {
        let lost = self.roles.changed(group, leader, term);
        if planted(Bug::TakeoverWithoutItsNoOp) && leader == Some(self.node) {
            return self.term_begun(group, term, true);
        }
        if self.fresh.leader_changed(group) && leader.is_some() {
            self.ask_for_indices();
        }
        if group == GroupId::CONTROL {
            self.controls.leader_changed();
        } else if lost {
            self.events.push_back(Event::LeaderLost(group));
        }
    }
}

/// Returns the groups that a fresh read queries: those whose entries make up the epochs, and the control group, which
/// defines these.
fn asked_groups<W: Waiters, P: PolicyRunner, E: ShardExecutor>(
    replica: &Replica<W, P, E>,
) -> impl Iterator<Item = GroupId> + '_ {
    [GroupId::CONTROL].into_iter().chain(replica.epochs().groups().map(|(group, _)| group))
}

/// Returns the point at which a group continues after a state image.
fn point_in(image: &GroupCursors, group: GroupId, first_members: &Members) -> Result<GroupPoint, BadGroup> {
    let Some(cursor) = image.get(&group) else {
        return Ok(GroupPoint { members: first_members.clone(), ..GroupPoint::default() });
    };
    let members = Members::decode(&cursor.members).map_err(|malformed| BadGroup::Inconsistent {
        group,
        reason: format!("its members in the state image: {malformed}"),
    })?;
    Ok(GroupPoint { id: cursor.included, members })
}
