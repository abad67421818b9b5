//! What the members of a group know of each other's disks.
//!
//! Raft commits an entry of the current term as soon as a majority has it on disk; that the leader counts, and tells the
//! others, is a convention. Here every voter, the leader included, tells the other members how far its log is durable, and everybody
//! counts. So a follower knows that an entry is committed as early as its leader does, or half a round trip earlier, and
//! the leader does not tell (raft-rs's `skip_bcast_commit`). Heartbeats make up for what is lost.
//!
//! It rests on log matching (Ongaro and Ousterhout, In Search of an Understandable Consensus Algorithm, 5.3): a node that has an entry
//! of a term has the log of that term's leader up to it. So a voter tells of its last durable entry only if it is of the
//! current term, and what was told in one term counts in that term only: raft-rs forgets the progress of all members when the term
//! changes. Nobody counts beyond what is durable here: only of that is it known whether it changes the members.

use raft::StateRole;
use tribunal_types::{GroupId, NodeId};

use crate::group::Group;
use crate::storage::GroupLog;

/// How far the log of a voter is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurableUpTo {
    /// The group.
    pub group: GroupId,
    /// The present term, and that of the entry.
    pub term: u64,
    /// The entry.
    pub index: u64,
}

/// What a group remembers between reports.
#[derive(Debug)]
pub(crate) struct Durability {
    /// Term and index that were told last.
    told: (u64, u64),
    /// The highest index that anybody has told, in whatever term: below it there may be something to commit.
    highest_told: u64,
    /// Last written entry that may change the members. The voters of what follows it are not known before it is applied.
    last_change: u64,
}

impl Durability {
    /// Any of the entries that a group starts with may be a change.
    pub(crate) fn starting(last: u64) -> Self {
        Self { told: (0, 0), highest_told: 0, last_change: last }
    }

    /// An entry was written, in the place of the one of its index and all after it.
    pub(crate) fn written(&mut self, index: u64, changes_members: bool) {
        self.last_change = if changes_members { index } else { self.last_change.min(index - 1) };
    }
}

impl<L: GroupLog> Group<L> {
    /// Returns what has become durable, and whom to tell: all other members but the leader, which gets acknowledgements.
    pub(crate) fn durable_news(&mut self) -> Option<(DurableUpTo, Vec<NodeId>)> {
        let (term, index) = (self.node.raft.term, self.durable_of_term()?);
        if self.durability.told == (term, index) || !self.members.is_voter(self.me) {
            return None;
        }
        self.durability.told = (term, index);
        let leader = self.node.raft.leader_id;
        let others = self.members.all().filter(|node| *node != self.me && u64::from(node.0) != leader).collect();
        Some((DurableUpTo { group: self.id, term, index }, others))
    }

    /// The last durable entry, if it is of the present term.
    fn durable_of_term(&self) -> Option<u64> {
        let log = &self.node.raft.raft_log;
        (log.term(log.persisted).ok() == Some(self.node.raft.term)).then_some(log.persisted)
    }

    /// Notes what another member tells. Of another term it is of no use.
    pub(crate) fn durable_at(&mut self, from: NodeId, told: &DurableUpTo) {
        let raft = &mut self.node.raft;
        // A leader relies on acknowledgements, which drive what it sends as well.
        if told.term == raft.term
            && raft.state == StateRole::Follower
            && let Some(progress) = raft.mut_prs().get_mut(u64::from(from.0))
        {
            progress.matched = progress.matched.max(told.index);
            self.durability.highest_told = self.durability.highest_told.max(told.index);
        }
    }

    /// Commits what is durable here and at a majority.
    pub(crate) fn commit_durable(&mut self) {
        let log = &self.node.raft.raft_log;
        let is_news = log.persisted.min(self.durability.highest_told) > log.committed;
        // A state image may come with members of entries that are not here yet: earlier entries were agreed on by others.
        let voters_are_known = self.durability.last_change <= log.applied && self.members.as_of <= log.committed;
        if !is_news || self.node.raft.state != StateRole::Follower || !voters_are_known {
            return;
        }
        let Some(own) = self.durable_of_term() else { return };
        let raft = &mut self.node.raft;
        if let Some(progress) = raft.mut_prs().get_mut(u64::from(self.me.0)) {
            progress.matched = own;
        }
        let (durable, _) = raft.mut_prs().maximal_committed_index();
        let term = raft.term;
        raft.raft_log.maybe_commit(durable.min(own), term);
    }
}
