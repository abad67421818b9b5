//! One group: raft-rs's state machine with its storage, its pending writes and messages, and all operations on it.
//!
//! `group_ready.rs` collects its output. Invariants: between two calls, the election timeout is ours; nothing from a
//! group that failed to read its log is returned.

use std::collections::VecDeque;

use bytes::Bytes;
use raft::eraftpb::{HardState, Message, MessageType, Snapshot};
use raft::{ProgressState, RawNode, SnapshotStatus, StateRole};
use slog::{Discard, Logger, o};
use tribunal_codec::{EntryId, GroupState};
use tribunal_types::{GroupId, NodeId};

use crate::admission::Admitted;
use crate::durability::Durability;
use crate::election_timeout::ElectionTimeout;
use crate::entry_content;
use crate::input::{GroupPoint, StoredGroup};
use crate::members::Members;
use crate::outbox::Outbox;
use crate::output::Output;
use crate::pending_reads::PendingReads;
use crate::refused::{BadGroup, Refused};
use crate::settings::{PAYLOAD_BYTES_MAX, Settings, UNPERSISTED_ITEM_BYTES};
use crate::storage::{GroupLog, GroupStorage};

/// Writes that are not durable yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unpersisted {
    /// The sync that makes them durable.
    pub sync: u64,
    /// Their raft-rs ready number.
    pub ready: u64,
    /// Whether they include entries or a state image.
    pub log: bool,
    /// Whether they include a term or a vote.
    pub promise: bool,
    /// The bytes charged for their entries.
    pub bytes: usize,
}

/// The part of a group's state last returned for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub term: u64,
    pub vote: u64,
    pub commit: u64,
}

/// One group.
pub(crate) struct Group<L: GroupLog> {
    pub id: GroupId,
    pub me: NodeId,
    pub node: RawNode<GroupStorage<L>>,
    pub members: Members,
    pub unpersisted: VecDeque<Unpersisted>,
    /// The sum of their bytes.
    pub unpersisted_bytes: usize,
    /// raft-rs's number of the last ready taken.
    pub last_ready: u64,
    /// Messages that must not be sent before a given sync.
    pub held: VecDeque<(u64, Message)>,
    pub written: Written,
    /// Whether the state differs from the last one returned for writing, in a part that may be written later.
    pub state_changed: bool,
    /// Whether it is to be written now.
    pub flush: bool,
    /// Last entry that the state machine was given or includes.
    pub handed: u64,
    /// Whether the state machine is given no entries for now.
    pub held_back: bool,
    pub reads: PendingReads,
    pub durability: Durability,
    timeout: ElectionTimeout,
    /// Term, leader and role after the last call.
    role: (u64, u64, StateRole),
    image_wanted: Option<EntryId>,
    ticks_to_resend: u16,
    settings: Settings,
    pub stopped: bool,
}

impl<L: GroupLog> Group<L> {
    /// Starts a group from its stored state.
    pub(crate) fn start(me: NodeId, settings: Settings, stored: StoredGroup, log: L) -> Result<Self, BadGroup> {
        let StoredGroup { group: id, mut state, applied } = stored;
        let bad = |reason: String| BadGroup::Inconsistent { group: id, reason };
        let (before, last) = log.bounds(id);
        let (mut compacted, mut last) = (state.compacted.max_index(before), last);
        let known = |index| if index == compacted.index { Some(compacted.term) } else { log.term(id, index) };
        // The image may have become durable before its matching state.
        let image_ahead =
            applied.id.index > last.index || known(applied.id.index).is_some_and(|t| t != applied.id.term);
        if image_ahead {
            (compacted, last, state.compacted) = (applied.id, applied.id, applied.id);
        } else if applied.id.index < compacted.index {
            let (applied, compacted) = (applied.id.index, compacted.index);
            return Err(bad(format!("{applied} is applied, but entries up to {compacted} are compacted")));
        }
        let mut members = applied.members;
        if !state.members.is_empty() {
            let stored = Members::decode(&state.members).map_err(|malformed| bad(malformed.to_string()))?;
            members = if stored.as_of >= members.as_of { stored } else { members };
        }
        members.check().map_err(|what| bad(what.to_owned()))?;
        if last.term > state.term {
            (state.term, state.vote) = (last.term, 0);
        }
        let commit = state.commit.max(applied.id.index);
        if commit > last.index {
            return Err(bad(format!("entries up to {commit} are committed, the last one is {}", last.index)));
        }
        let written = Written { term: state.term, vote: state.vote, commit };
        let mut hard = HardState::default();
        (hard.term, hard.vote, hard.commit) = (state.term, state.vote, commit);
        let storage = GroupStorage::new(id, log, hard, members.conf_state(), (compacted, last.index));
        let logger = Logger::root(Discard, o!());
        let node = RawNode::new(&settings.config(me, applied.id.index), storage, &logger)
            .map_err(|error| bad(error.to_string()))?;
        let mut group = Self {
            id,
            me,
            node,
            state_changed: image_ahead || members != Members::decode(&state.members).unwrap_or_default(),
            flush: true,
            members,
            unpersisted: VecDeque::new(),
            unpersisted_bytes: 0,
            last_ready: 0,
            held: VecDeque::new(),
            written,
            handed: applied.id.index,
            held_back: false,
            reads: PendingReads::new(me, settings.seed),
            durability: Durability::starting(last.index),
            timeout: ElectionTimeout::new(&settings, me, id),
            role: (state.term, 0, StateRole::Follower),
            image_wanted: None,
            ticks_to_resend: settings.election_ticks,
            settings,
            stopped: false,
        };
        group.set_timeout();
        if let Some(reason) = group.node.store().failure() { Err(bad(reason)) } else { Ok(group) }
    }

    /// Returns the state to be written, with this commit index.
    pub(crate) fn state(&self, commit: u64) -> GroupState {
        let raft = &self.node.raft;
        GroupState {
            term: raft.term,
            vote: raft.vote,
            commit,
            members: self.members.encode(),
            compacted: raft.store().compacted(),
        }
    }

    /// Returns the number of entries that each other member lags, as far as known; empty if this node does not lead.
    pub(crate) fn lags(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        let raft = &self.node.raft;
        let last = raft.raft_log.last_index();
        let leads = raft.state == StateRole::Leader;
        let others = raft.prs().iter().filter(move |(id, _)| leads && **id != u64::from(self.me.0));
        others.map(move |(id, progress)| (NodeId(*id as u16), last.saturating_sub(progress.matched)))
    }

    /// Returns whether a member has recently acknowledged all but `entries` entries, as far as this node, the leader,
    /// knows.
    pub(crate) fn is_caught_up(&self, node: NodeId, entries: u64) -> bool {
        let raft = &self.node.raft;
        let last = raft.raft_log.last_index();
        raft.state == StateRole::Leader
            && raft.prs().get(u64::from(node.0)).is_some_and(|progress| {
                // After an image, raft-rs probes the member until there is another entry; a closed group never has one.
                let has_all = progress.matched == last;
                let acknowledges = has_all || progress.state == ProgressState::Replicate;
                let lacks = last - progress.matched.min(last);
                acknowledges && progress.recent_active && progress.matched > 0 && lacks <= entries
            })
    }

    /// Returns whether returned entries or a returned state image are not durable yet.
    pub(crate) fn has_log_pending(&self) -> bool {
        let log = &self.node.raft.raft_log;
        log.persisted != log.last_index() || self.unpersisted.iter().any(|pending| pending.log)
    }

    /// Returns the bytes charged for everything that waits for the disk, and thus 0 once the disk has caught up.
    pub(crate) fn bytes_pending(&self) -> usize {
        self.unpersisted_bytes + self.held.len() * UNPERSISTED_ITEM_BYTES
    }

    /// Does the work required after every call of raft-rs.
    pub(crate) fn after_call(&mut self, outbox: &mut Outbox) {
        if let Some(reason) = self.node.store().failure().filter(|_| !self.stopped) {
            self.stopped = true;
            self.held.clear();
            outbox.push(Output::Failed { group: self.id, reason });
        }
        if self.stopped {
            return;
        }
        let raft = &self.node.raft;
        let (term, leader, state) = (raft.term, raft.leader_id, raft.state);
        if (term, leader) != (self.role.0, self.role.1) {
            let leader = (leader != 0).then_some(NodeId(leader as u16));
            outbox.push(Output::Role { group: self.id, leader, term });
            for context in self.reads.take_all() {
                outbox.push(Output::ReadLost { group: self.id, context });
            }
        }
        if (term, leader, state) != self.role {
            self.role = (term, leader, state);
            self.timeout.draw();
        }
        self.commit_durable();
        self.set_timeout();
    }

    fn set_timeout(&mut self) {
        self.node.raft.set_randomized_election_timeout(self.timeout.ticks());
    }

    pub(crate) fn tick(&mut self, outbox: &mut Outbox) {
        if self.node.raft.state == StateRole::Leader {
            self.resend_snapshots();
        } else if self.check_may_campaign().is_err() {
            return;
        }
        self.node.tick();
        if self.node.raft.state != StateRole::Leader && self.node.raft.election_elapsed == 0 {
            // It has just campaigned: draw another number of ticks for the next time.
            self.timeout.draw();
        }
        self.after_call(outbox);
    }

    /// Resends snapshot messages, which may be lost: raft-rs does not resend them unless their failure is reported.
    /// They have no content that would make this expensive.
    fn resend_snapshots(&mut self) {
        self.ticks_to_resend -= 1;
        if self.ticks_to_resend > 0 {
            return;
        }
        self.ticks_to_resend = self.settings.election_ticks;
        let waiting = self.node.raft.prs().iter().filter(|(_, progress)| progress.state == ProgressState::Snapshot);
        let mut waiting = waiting.map(|(id, _)| *id).collect::<Vec<_>>();
        waiting.sort_unstable();
        waiting.into_iter().for_each(|id| self.node.report_snapshot(id, SnapshotStatus::Failure));
    }

    pub(crate) fn message(&mut self, message: Message, outbox: &mut Outbox) -> Result<(), Refused> {
        match self.admit(&message)? {
            Admitted::Step => {
                let mut message = message;
                if message.get_msg_type() == MessageType::MsgSnapshot {
                    self.commit_announced(&message);
                    let members = self.members.conf_state();
                    message.mut_snapshot().mut_metadata().set_conf_state(members);
                }
                if message.get_msg_type() == MessageType::MsgReadIndexResp {
                    self.reads.note_last(&message);
                }
                self.commit_by_late_rejection(&message);
                // Ignore rejections by raft-rs: it has no use for the message.
                let _ = self.node.step(message);
            }
            Admitted::Image(at_least) => {
                if self.image_wanted.is_none_or(|wanted| wanted.index < at_least.index) {
                    self.image_wanted = Some(at_least);
                    let leader = NodeId(message.from as u16);
                    outbox.push(Output::NeedsImage { group: self.id, leader, at_least });
                }
            }
        }
        self.after_call(outbox);
        Ok(())
    }

    /// Commits the entries announced by a snapshot, which contains only committed ones. If they are present, raft-rs
    /// commits them as well, but not on a node that is not a member as far as it knows: one that is about to learn that
    /// it is.
    fn commit_announced(&mut self, message: &Message) {
        let metadata = message.get_snapshot().get_metadata();
        let raft = &mut self.node.raft;
        if raft.state != StateRole::Leader && raft.raft_log.match_term(metadata.index, metadata.term) {
            raft.raft_log.commit_to(metadata.index);
        }
    }

    /// Commits the entries named by a late vote rejection. A rejection names the committed index, and raft-rs commits
    /// it here as well, but ignores rejections of earlier terms. Without this, no node might ever be elected: a voter
    /// that missed a change of members requests the vote of a node that is no longer a voter, has a longer log, and
    /// never reaches the current term.
    fn commit_by_late_rejection(&mut self, message: &Message) {
        let kind = message.get_msg_type();
        let rejected = message.reject
            && matches!(kind, MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse);
        let raft = &mut self.node.raft;
        let late = message.term < raft.term && raft.state != StateRole::Leader && message.commit_term > 0;
        let commits = rejected && late && raft.raft_log.maybe_commit(message.commit, message.commit_term);
        if commits && matches!(raft.state, StateRole::Candidate | StateRole::PreCandidate) {
            // The voters may be different now.
            raft.become_follower(raft.term, 0);
        }
    }

    pub(crate) fn propose(&mut self, payload: Vec<u8>) -> Result<EntryId, Refused> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Refused::TooLong(payload.len()));
        }
        // raft-rs would forward it.
        self.check_leads()?;
        self.node.propose(Vec::new(), entry_content::proposal(payload)).map_err(|_| Refused::TooMuchUncommitted)?;
        Ok(self.proposed())
    }

    pub(crate) fn propose_members(&mut self, members: &Members) -> Result<EntryId, Refused> {
        self.check_leads()?;
        // raft-rs would append an empty entry instead.
        self.check_settled()?;
        members.check().map_err(Refused::BadMembers)?;
        if members.is_joint() || !members.learners_next.is_empty() {
            return Err(Refused::BadMembers("the joint state is not chosen"));
        }
        if !members.voters.contains(&self.me) {
            return Err(Refused::BadMembers("the leader must stay a voter: transfer the leadership first"));
        }
        let change = members.change_from(&self.members);
        if change.get_changes().is_empty() {
            return Err(Refused::BadMembers("the group has them"));
        }
        self.node.propose_conf_change(Vec::new(), change).map_err(|_| Refused::TooMuchUncommitted)?;
        Ok(self.proposed())
    }

    fn check_settled(&self) -> Result<(), Refused> {
        let changes = self.node.raft.has_pending_conf() || self.members.is_joint();
        if changes { Err(Refused::MembersChanging) } else { Ok(()) }
    }

    /// Returns the voters as of the next entry that this node proposes.
    pub(crate) fn settled_voters(&self) -> Result<Vec<NodeId>, Refused> {
        self.check_leads()?;
        self.check_settled()?;
        Ok(self.members.voters.iter().copied().collect())
    }

    fn check_leads(&self) -> Result<(), Refused> {
        let raft = &self.node.raft;
        if raft.state != StateRole::Leader {
            return Err(Refused::NotLeader(self.me));
        }
        if raft.lead_transferee.is_some() { Err(Refused::Transferring) } else { Ok(()) }
    }

    fn proposed(&self) -> EntryId {
        EntryId { term: self.node.raft.term, index: self.node.raft.raft_log.last_index() }
    }

    fn check_may_stand(&self) -> Result<(), Refused> {
        if self.node.raft.state == StateRole::Leader {
            return Err(Refused::AlreadyLeader);
        }
        if !self.node.raft.promotable() {
            return Err(Refused::NotAVoter(self.me));
        }
        self.check_may_campaign()
    }

    pub(crate) fn campaign(&mut self) -> Result<(), Refused> {
        self.check_may_stand()?;
        // Refused if changes of members are not handed out yet.
        self.node.campaign().map_err(|_| Refused::MembersChanging)
    }

    /// Campaigns as if the leader had requested it: the only election that ignores a leader's heartbeats.
    pub(crate) fn take_over(&mut self) -> Result<(), Refused> {
        self.check_may_stand()?;
        let raft = &mut self.node.raft;
        if raft.state != StateRole::Follower {
            raft.become_follower(raft.term, 0);
        }
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgTimeoutNow);
        self.node.raft.step(message).map_err(|_| Refused::MembersChanging)
    }

    pub(crate) fn transfer_leader(&mut self, to: NodeId) -> Result<(), Refused> {
        if self.node.raft.state != StateRole::Leader {
            return Err(Refused::NotLeader(self.me));
        }
        if to == self.me {
            return Err(Refused::AlreadyLeader);
        }
        if !self.members.voters.contains(&to) {
            return Err(Refused::NotAVoter(to));
        }
        self.node.transfer_leader(u64::from(to.0));
        Ok(())
    }

    pub(crate) fn read_index(&mut self, context: u64) -> Result<(), Refused> {
        // raft-rs silently drops a read that cannot be answered.
        if self.node.raft.state == StateRole::Leader {
            self.check_answers_reads()?;
        } else if self.node.raft.leader_id == 0 {
            return Err(Refused::NoLeader);
        }
        if self.reads.is_full() {
            return Err(Refused::TooManyReads);
        }
        let name = self.reads.add(context);
        self.node.read_index(name);
        Ok(())
    }

    /// Returns handed-out entries after `after`: at least one if there is one, and not much more than `bytes_max`
    /// bytes. Returns none if the first of them is compacted.
    pub(crate) fn handed_out_after(&self, after: u64, bytes_max: usize) -> Vec<(EntryId, Bytes)> {
        let store = self.node.store();
        let (mut entries, mut bytes) = (Vec::new(), 0);
        if self.stopped || after < store.compacted().index {
            return entries;
        }
        for index in after.saturating_add(1)..=self.handed {
            let entry = store.read(index);
            if store.failure().is_some() {
                break;
            }
            let content = entry_content::content(&entry);
            bytes += content.len();
            if bytes > bytes_max && !entries.is_empty() {
                break;
            }
            entries.push((EntryId { term: entry.term, index }, content));
        }
        entries
    }

    pub(crate) fn unreachable(&mut self, node: NodeId) {
        if self.node.raft.state == StateRole::Leader && node != self.me {
            self.node.report_unreachable(u64::from(node.0));
        }
    }

    pub(crate) fn compact(&mut self, upto: u64) -> Result<(), Refused> {
        let raft = &mut self.node.raft;
        if upto > self.handed {
            return Err(Refused::NotApplied(upto));
        }
        // Compaction up to an installed image that is not durable yet happens by itself.
        let upto = upto.min(raft.raft_log.applied);
        if upto <= raft.store().compacted().index {
            return Ok(());
        }
        if let Some(id) = raft.store().id(upto) {
            raft.mut_store().compact(id);
            self.state_changed = true;
        }
        Ok(())
    }

    /// Installs a durable image, which includes the group up to a point, in place of the state machine. Entries after
    /// the point are handed out, again if necessary.
    pub(crate) fn install(&mut self, point: &GroupPoint, outbox: &mut Outbox) -> Result<(), Refused> {
        let GroupPoint { id, members } = point;
        if !members.contains(self.me) || members.check().is_err() {
            return Err(Refused::NotAMember(self.me));
        }
        if id.index < self.node.store().compacted().index {
            return Err(Refused::Compacted(id.index));
        }
        outbox.forget_handed_out(self.id);
        self.handed = id.index;
        self.image_wanted = self.image_wanted.filter(|wanted| wanted.index > id.index);
        let raft = &mut self.node.raft;
        if id.index <= raft.raft_log.committed || raft.raft_log.match_term(id.index, id.term) {
            // Its entries are present, and an image has only committed ones.
            if raft.state != StateRole::Leader {
                raft.raft_log.commit_to(id.index);
            }
            return Ok(());
        }
        if id.term > raft.term || raft.state != StateRole::Follower {
            let (term, leader) = if id.term > raft.term { (id.term, 0) } else { (raft.term, raft.leader_id) };
            raft.become_follower(term, if leader == u64::from(self.me.0) { 0 } else { leader });
        }
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        (metadata.index, metadata.term) = (id.index, id.term);
        metadata.set_conf_state(members.conf_state());
        self.members = members.clone();
        let leader = self.node.raft.leader_id;
        if leader == 0 {
            self.node.raft.restore(snapshot);
            return Ok(());
        }
        // Stepped as a message, so that the leader is notified as soon as it is durable.
        let mut message = Message::default();
        message.set_msg_type(MessageType::MsgSnapshot);
        (message.from, message.to, message.term) = (leader, u64::from(self.me.0), self.node.raft.term);
        message.set_snapshot(snapshot);
        self.node.step(message).map_err(|_| Refused::Late)
    }

    /// Notes that everything up to a sync is durable.
    pub(crate) fn persisted(&mut self, sync: u64, outbox: &mut Outbox) {
        let mut ready = None;
        while self.unpersisted.front().is_some_and(|first| first.sync <= sync) {
            let Some(first) = self.unpersisted.pop_front() else { break };
            self.unpersisted_bytes -= first.bytes;
            ready = Some(first.ready);
        }
        // Readies taken since then without writes are no longer waiting for a sync.
        let Some(ready) = ready.map(|ready| if self.unpersisted.is_empty() { self.last_ready } else { ready }) else {
            return;
        };
        self.node.on_persist_ready(ready);
        let log = &self.node.raft.raft_log;
        let compacted = self.node.store().compacted().index;
        if log.applied < compacted && log.persisted >= compacted {
            self.node.advance_apply_to(compacted);
        }
        while self.held.front().is_some_and(|(needs, _)| *needs <= sync) {
            if let Some((_, message)) = self.held.pop_front() {
                self.send(message, outbox);
            }
        }
        self.after_call(outbox);
    }
}

/// Selects the later of two positions of one log.
trait MaxIndex {
    fn max_index(self, other: Self) -> Self;
}

impl MaxIndex for EntryId {
    fn max_index(self, other: Self) -> Self {
        if other.index > self.index { other } else { self }
    }
}
