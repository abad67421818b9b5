//! Entries of a group whose leader this node cannot reach, from a peer that can; and for peers that cannot (rule 18 of
//! the cluster).
//!
//! What a peer has handed out is committed there, so it is final, and the replica may fold it before the own log has
//! it. The group's log is Raft's, which gets the same entries from the leader, later: what is folded is written beside it, for
//! those who read the epochs, and for the case that nobody else has it any more. So a restart may lag again, but never takes
//! back what was told: a majority has it. A node accepts nothing for a group that it leads, and nothing past a change of
//! members: that waits for the leader.

use bytes::Bytes;
use tribunal_codec::EntryId;
use tribunal_core::executor::ShardExecutor;
use tribunal_raft::{EntryKind, GroupLog};
use tribunal_replica::{Event, PolicyRunner, Waiters};
use tribunal_types::{ControlEntry, GroupId, NodeId};

use crate::frame::{Frame, PeerEntries};
use crate::member::Member;

/// Bytes of entries in one frame, unless the first one is longer.
const ENTRIES_BYTES_MAX: usize = 1024 * 1024;

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor, L: GroupLog> Member<W, P, E, L> {
    /// Asks peers for the entries of the groups whose leaders send nothing. Once a tick.
    pub(crate) fn ask_peers(&mut self) {
        for group in self.raft.ids().collect::<Vec<_>>() {
            let leader = self.roles.leader(group);
            let reaches_leader = leader.is_some_and(|leader| leader == self.node || self.presence.sends(leader));
            let peers = self.reachable_voters(group);
            // What is held back need not come from elsewhere.
            let is_held_back = self.raft.held_back().any(|held| held == group);
            if !is_held_back && let Some(peer) = self.asking.tick(group, reaches_leader, &peers) {
                self.ask(group, peer);
            }
        }
    }

    fn ask(&mut self, group: GroupId, peer: NodeId) {
        let after = self.positions.reached(group);
        self.frames.push_back((peer, Frame::Ask { group, after }));
    }

    /// Returns the other voters of a group that have sent something lately.
    pub(crate) fn reachable_voters(&self, group: GroupId) -> Vec<NodeId> {
        let voters = self.raft.members(group).into_iter().flat_map(|members| &members.voters);
        voters.copied().filter(|node| *node != self.node && self.presence.sends(*node)).collect()
    }

    /// A peer asks for what follows an entry.
    pub(crate) fn asked(&mut self, group: GroupId, peer: NodeId, after: u64) {
        let members = self.raft.members(group);
        if members.is_some_and(|members| members.voters.contains(&peer) || members.learners.contains(&peer)) {
            self.serving.asked(group, peer, after);
        }
    }

    /// Returns the next answer to a peer.
    pub(crate) fn next_answer(&mut self) -> Option<(NodeId, Frame)> {
        while let Some((group, peer, after, always)) = self.serving.next() {
            let entries = self.raft.handed_out_after(group, after, ENTRIES_BYTES_MAX);
            if let Some((last, _)) = entries.last() {
                self.serving.sent(group, peer, last.index);
            } else if !always {
                continue;
            }
            let handed_out = self.raft.handed_out(group);
            return Some((peer, Frame::Entries(PeerEntries { group, handed_out, entries })));
        }
        None
    }

    /// Folds what a peer has handed out and this node has not. What does not follow is left for the next question.
    pub(crate) fn peer_entries(&mut self, peer: NodeId, PeerEntries { group, handed_out, entries }: PeerEntries) {
        if self.raft.members(group).is_none() || self.roles.leader(group) == Some(self.node) {
            return;
        }
        self.asking.answered(group, peer);
        let before = self.positions.reached(group);
        for (id, content) in entries {
            let Ok(kind) = EntryKind::of(&content) else { return };
            // Past a change of members, an image would include what the own Raft group has not made of it.
            let may_follow = kind != EntryKind::MembersChange;
            if self.positions.follows(group, id) && !(may_follow && self.peer_entry(group, id, &content, &kind)) {
                return;
            }
        }
        let reached = self.positions.reached(group);
        if (before + 1..handed_out).contains(&reached) {
            self.ask(group, peer);
        }
    }

    /// Folds an entry that follows. Returns whether it could be read.
    fn peer_entry(&mut self, group: GroupId, id: EntryId, content: &Bytes, kind: &EntryKind) -> bool {
        match kind {
            EntryKind::Proposal(payload) => match self.event_of(group, id, payload) {
                Ok(event) => self.events.push_back(event),
                Err(_) => return false,
            },
            EntryKind::TermBegins => {
                self.cursors.entry(group, id, None);
                self.own.term_begun(group, id.term);
                if group == GroupId::CONTROL {
                    self.controls.leader_changed();
                } else {
                    self.events.push_back(Event::TermBegun { group, leads: false });
                }
            }
            // They are the business of the own Raft group, which learns of them from the leader.
            EntryKind::MembersChange => self.cursors.entry(group, id, None),
        }
        // Also one that no outcome names: without it, those after it could not be continued from.
        self.copies.push_back((group, id, content.clone()));
        self.positions.fetched(group, id);
        true
    }

    /// Passes a change on to the leader of the control group, which its proposer cannot reach.
    pub(crate) fn relayed(&mut self, from: NodeId, entry: Box<ControlEntry>) {
        if let Some(leader) = self.roles.leader(GroupId::CONTROL).filter(|leader| *leader != from) {
            self.frames.push_back((leader, Frame::Control(entry)));
        }
    }
}
