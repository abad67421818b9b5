//! A group's ready output: data to write, send and apply, in an order that survives a crash at any point.
//!
//! A follower's acknowledgements and votes are held until everything before them is durable. A leader's messages are
//! not: its peers write while it writes. Two details that raft-rs leaves to its caller:
//!
//! * A voter that decides alone leads as soon as it campaigns. Its messages to learners are held until its term is
//!   durable: after a crash it could lead the same term again, with different entries.
//! * A heartbeat response vouches for no entry. It is sent at once, unless the term itself is not durable, so that a
//!   slow disk does not look like a dead node. Each one makes the leader send more entries, so a group whose disk lags
//!   too far drops them (`admission.rs`).

use raft::Ready;
use raft::StateRole;
use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use tribunal_codec::EntryId;
use tribunal_types::NodeId;

use crate::entry_content;
use crate::group::{Group, Unpersisted, Written};
use crate::members::Members;
use crate::message::RaftMessage;
use crate::outbox::Outbox;
use crate::output::Output;
use crate::recent_entries::size;
use crate::settings::{COMMITTED_BYTES_PER_ROUND_MAX, UNPERSISTED_ITEM_BYTES};
use crate::storage::GroupLog;

impl<L: GroupLog> Group<L> {
    /// Collects all ready output. Returns whether there is more, because a round's limit was reached.
    pub(crate) fn collect(&mut self, outbox: &mut Outbox) -> bool {
        let mut bytes = self.hand_out_from_log(outbox);
        while !self.stopped && self.node.has_ready() && bytes < COMMITTED_BYTES_PER_ROUND_MAX {
            bytes += self.take_ready(outbox);
        }
        if self.stopped || self.node.has_ready() || self.has_to_hand_out() {
            return !self.stopped;
        }
        // Not earlier: the state may refer to any of the entries.
        if std::mem::take(&mut self.flush) && self.state_changed {
            self.write_state(self.node.raft.raft_log.committed, outbox);
        }
        false
    }

    /// Processes one ready. Returns the bytes handed out.
    fn take_ready(&mut self, outbox: &mut Outbox) -> usize {
        let mut ready = self.node.ready();
        if self.node.store().failure().is_some() {
            self.after_call(outbox);
            return 0;
        }
        self.last_ready = ready.number();
        self.note_unpersisted(&ready, outbox);
        let leads = self.node.raft.state == StateRole::Leader;
        let messages = if leads { ready.take_messages() } else { ready.take_persisted_messages() };
        messages.into_iter().for_each(|message| self.send_when_durable(message, leads, outbox));
        self.write(&mut ready, leads, outbox);
        let (committed, reads) = (ready.take_committed_entries(), ready.take_read_states());
        self.node.advance_append_async(ready);
        if self.unpersisted.is_empty() {
            self.node.on_persist_ready(self.last_ready);
        }
        let last = committed.last().map(|entry| entry.index);
        let bytes = committed.iter().map(size).sum();
        committed.into_iter().for_each(|entry| self.hand_out(entry, outbox));
        if let Some(last) = last {
            self.node.advance_apply_to(last);
            let log = &self.node.raft.raft_log;
            let upto = log.applied.min(log.persisted);
            self.node.mut_store().shrink(upto);
        }
        for read in reads {
            if let Some((context, last)) = self.reads.take(&read.request_ctx) {
                let last = last.unwrap_or_else(|| self.node.raft.raft_log.last_index());
                outbox.push(Output::ReadState { group: self.id, index: read.index.max(last), context });
            }
        }
        self.step_down_if_removed();
        self.state_changed |= self.node.raft.raft_log.committed > self.written.commit;
        self.after_call(outbox);
        bytes
    }

    fn note_unpersisted(&mut self, ready: &Ready, outbox: &mut Outbox) {
        let promised =
            |hard: &raft::eraftpb::HardState| (hard.term, hard.vote) != (self.written.term, self.written.vote);
        let promise = ready.hs().is_some_and(promised);
        let log = !ready.entries().is_empty() || !ready.snapshot().is_empty();
        if log || promise {
            let bytes = ready.entries().iter().map(|entry| entry.data.len() + UNPERSISTED_ITEM_BYTES).sum();
            let (sync, number) = (outbox.number(), ready.number());
            self.unpersisted.push_back(Unpersisted { sync, ready: number, log, promise, bytes });
            self.unpersisted_bytes += bytes;
            outbox.sync();
        }
    }

    fn send_when_durable(&mut self, message: Message, leads: bool, outbox: &mut Outbox) {
        let vouches = !leads && message.get_msg_type() != MessageType::MsgHeartbeatResponse;
        let needs = self.unpersisted.iter().rev().find(|pending| vouches || pending.promise);
        match needs {
            Some(pending) => self.held.push_back((pending.sync, message)),
            None => self.send(message, outbox),
        }
    }

    pub(crate) fn send(&self, mut message: Message, outbox: &mut Outbox) {
        if message.get_msg_type() == MessageType::MsgReadIndexResp {
            message.commit = self.node.raft.raft_log.last_index();
        }
        let to = NodeId(message.to as u16);
        outbox.push(Output::Send { to, message: RaftMessage::new(self.id, message) });
    }

    /// Writes a ready. The state precedes the entries of its term: a log never has an entry of a higher term than its
    /// state.
    fn write(&mut self, ready: &mut Ready, leads: bool, outbox: &mut Outbox) {
        let metadata = ready.snapshot().get_metadata();
        let image = EntryId { term: metadata.term, index: metadata.index };
        let entries = ready.take_entries();
        if image.index > 0 {
            self.node.mut_store().install(image);
            self.members =
                Members::from_conf_state(self.members.as_of, ready.snapshot().get_metadata().get_conf_state());
            let members = self.members.conf_state();
            self.node.mut_store().set_members(members);
            self.write_state(image.index, outbox);
        }
        let raft = &self.node.raft;
        if (raft.term, raft.vote) != (self.written.term, self.written.vote) {
            // The commit index may refer to an entry that is not written yet.
            let before = entries.first().map_or(u64::MAX, |first| first.index - 1);
            let commit = raft.raft_log.committed.min(before).min(self.node.store().last());
            self.write_state(commit.max(self.written.commit), outbox);
        }
        for entry in entries {
            let changes_members = entry.get_entry_type() != EntryType::EntryNormal;
            if changes_members {
                // A node that restarts with a change in its log must know that the previous change is committed.
                // Otherwise it would campaign with the members of two changes ago. So the state comes first: a power
                // cut may leave any prefix of the writes.
                let commit = self.node.raft.raft_log.committed.min(entry.index - 1);
                self.write_state(commit.max(self.written.commit), outbox);
            }
            let id = EntryId { term: entry.term, index: entry.index };
            outbox.push(Output::Append { group: self.id, id, content: entry_content::content(&entry) });
            if !leads && entry.get_entry_type() == EntryType::EntryNormal && !entry.data.is_empty() {
                outbox.push(Output::Appended { group: self.id, id, payload: entry_content::proposed(&entry) });
            }
            self.durability.written(entry.index, changes_members);
            self.node.mut_store().push(entry);
        }
    }

    pub(crate) fn write_state(&mut self, commit: u64, outbox: &mut Outbox) {
        let state = self.state(commit);
        self.written = Written { term: state.term, vote: state.vote, commit };
        self.state_changed = self.node.raft.raft_log.committed > commit;
        outbox.push(Output::SetState { group: self.id, state });
    }

    fn hand_out(&mut self, entry: Entry, outbox: &mut Outbox) {
        if entry.get_entry_type() != EntryType::EntryNormal {
            self.change_members(&entry, outbox);
        }
        // Entries that are held back are read from the log later.
        if entry.index == self.handed + 1 && !self.held_back {
            self.give(&entry, outbox);
        }
    }

    fn has_to_hand_out(&self) -> bool {
        !self.held_back && self.handed < self.node.raft.raft_log.applied
    }

    /// Hands out the entries that were held back, and entries already given to the state machine before a less advanced
    /// state image replaced it.
    fn hand_out_from_log(&mut self, outbox: &mut Outbox) -> usize {
        let mut bytes = 0;
        while self.has_to_hand_out() && bytes < COMMITTED_BYTES_PER_ROUND_MAX {
            let entry = self.node.store().read(self.handed + 1);
            if self.node.store().failure().is_some() {
                self.after_call(outbox);
                return 0;
            }
            bytes += size(&entry);
            self.give(&entry, outbox);
        }
        bytes
    }

    fn give(&mut self, entry: &Entry, outbox: &mut Outbox) {
        let (group, id) = (self.id, EntryId { term: entry.term, index: entry.index });
        self.handed = id.index;
        outbox.push(if entry.get_entry_type() != EntryType::EntryNormal {
            Output::MembersChanged { group, id, members: self.members.clone() }
        } else if entry.data.is_empty() {
            let raft = &self.node.raft;
            Output::TermBegun { group, id, leading: raft.state == StateRole::Leader && raft.term == id.term }
        } else {
            Output::Committed { group, id, payload: entry_content::proposed(entry) }
        });
    }

    /// Applies a change of members. The stored members may be later than the applied entries: these changes were made
    /// before.
    fn change_members(&mut self, entry: &Entry, outbox: &mut Outbox) {
        if entry.index <= self.members.as_of {
            return;
        }
        let change = entry_content::change(&entry.data).ok();
        // A change that does not fit is rejected on every node alike.
        let changed = change.and_then(|change| self.node.apply_conf_change(&change).ok());
        match changed {
            Some(state) => self.members = Members::from_conf_state(entry.index, &state),
            None => self.members.as_of = entry.index,
        }
        let members = self.members.conf_state();
        self.node.mut_store().set_members(members);
        self.write_state(self.node.raft.raft_log.committed, outbox);
        // Nothing waits for it. But while it is not durable, a power cut at all members can leave a majority of the new
        // voters unaware that they are one.
        outbox.sync();
    }

    /// Steps down as a removed leader: raft-rs would keep leading the group, and panic when its next entry is durable.
    fn step_down_if_removed(&mut self) {
        let raft = &mut self.node.raft;
        if raft.state == StateRole::Leader && !raft.promotable() {
            raft.become_follower(raft.term, 0);
        }
    }
}
