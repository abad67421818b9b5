//! Exchange of group entries between peers: this node requests those of a group whose leader it cannot reach, and
//! serves other nodes in the same situation (rule 18 of the cluster).
//!
//! An entry handed out by a peer is committed and therefore final, and the replica may fold it before this node's own
//! log has it. The group's log belongs to Raft and receives the same entries later, from the leader. A folded entry is
//! written next to it, for readers of the epochs, and in case no other node has it any more. So a node may lag again
//! after a restart, but never takes back a reply: a majority has the entry. A node accepts no entries for a group that
//! it leads, and none past a membership change: that waits for the leader.

use bytes::Bytes;
use tribunal_codec::EntryId;
use tribunal_core::executor::ShardExecutor;
use tribunal_raft::{EntryKind, GroupLog};
use tribunal_replica::{Event, PolicyRunner, Waiters};
use tribunal_types::{ControlEntry, GroupId, NodeId};

use crate::frame::{Frame, PeerEntries};
use crate::member::Member;

/// Bytes of entries per frame, unless the first one is longer.
const ENTRIES_BYTES_MAX: usize = 1024 * 1024;

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor, L: GroupLog> Member<W, P, E, L> {
    /// Queries peers for the entries of groups whose leaders are silent. Called once per tick.
    pub(crate) fn ask_peers(&mut self) {
        for group in self.raft.ids().collect::<Vec<_>>() {
            let leader = self.roles.leader(group);
            let reaches_leader = leader.is_some_and(|leader| leader == self.node || self.presence.sends(leader));
            let peers = self.reachable_voters(group);
            // Entries of a group that is held back need not be fetched.
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

    /// Returns the other voters of a group that have sent something recently.
    pub(crate) fn reachable_voters(&self, group: GroupId) -> Vec<NodeId> {
        let voters = self.raft.members(group).into_iter().flat_map(|members| &members.voters);
        voters.copied().filter(|node| *node != self.node && self.presence.sends(*node)).collect()
    }

    /// Processes a peer's request for the entries after an index.
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

    /// Folds entries that a peer has handed out and that this node lacks. An entry that does not follow is left to the
    /// next request.
    pub(crate) fn peer_entries(&mut self, peer: NodeId, PeerEntries { group, handed_out, entries }: PeerEntries) {
        if self.raft.members(group).is_none() || self.roles.leader(group) == Some(self.node) {
            return;
        }
        self.asking.answered(group, peer);
        let before = self.positions.reached(group);
        for (id, content) in entries {
            let Ok(kind) = EntryKind::of(&content) else { return };
            // Past a membership change, an image would include a change that this node's own Raft group has not
            // applied.
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

    /// Folds the next entry. Returns whether it could be read.
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
            // Membership changes belong to this node's own Raft group, which learns of them from the leader.
            EntryKind::MembersChange => self.cursors.entry(group, id, None),
        }
        // Copy entries that no outcome names, too: the later ones could not be continued from without them.
        self.copies.push_back((group, id, content.clone()));
        self.positions.fetched(group, id);
        true
    }

    /// Forwards a change to the leader of the control group, which its proposer cannot reach.
    pub(crate) fn relayed(&mut self, from: NodeId, entry: Box<ControlEntry>) {
        if let Some(leader) = self.roles.leader(GroupId::CONTROL).filter(|leader| *leader != from) {
            self.frames.push_back((leader, Frame::Control(entry)));
        }
    }
}
