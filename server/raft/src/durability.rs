//! How the members of a group track each other's durable logs.
//!
//! Raft commits an entry of the current term as soon as it is durable on a majority; it is only a convention that the
//! leader counts and informs the others. Here every voter, the leader included, reports to the other members how far
//! its log is durable, and every member counts. So a follower knows that an entry is committed as early as its leader
//! does, or half a round trip earlier, and the leader does not announce it (raft-rs's `skip_bcast_commit`). Heartbeats
//! make up for lost reports.
//!
//! This relies on log matching (Ongaro and Ousterhout, In Search of an Understandable Consensus Algorithm, 5.3): a node
//! that has an entry of a term has the log of that term's leader up to it. So a voter reports its last durable entry
//! only if it belongs to the current term, and a report counts only in its own term: raft-rs forgets the progress of
//! all members when the term changes. No member counts past its own durable log, because only there does it know which
//! entries change the members.

use raft::StateRole;
use tribunal_types::NodeId;

use crate::group::Group;
use crate::output::DurableUpTo;
use crate::storage::GroupLog;

/// A group's state between reports.
#[derive(Debug)]
pub(crate) struct Durability {
    /// Term and index last reported.
    told: (u64, u64),
    /// The highest index reported by any member, in any term: there may be something to commit below it.
    highest_told: u64,
    /// Last written entry that may change the members. The voters for the entries after it are unknown until it is
    /// applied.
    last_change: u64,
}

impl Durability {
    /// Starts with all present entries as possible changes of members.
    pub(crate) fn starting(last: u64) -> Self {
        Self { told: (0, 0), highest_told: 0, last_change: last }
    }

    /// Notes a written entry, which replaces the entry at its index and all later ones.
    pub(crate) fn written(&mut self, index: u64, changes_members: bool) {
        self.last_change = if changes_members { index } else { self.last_change.min(index - 1) };
    }
}

impl<L: GroupLog> Group<L> {
    /// Returns the newly durable position, and its receivers: all other members except the leader, which gets
    /// acknowledgements.
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

    /// Returns the last durable entry, if it belongs to the current term.
    fn durable_of_term(&self) -> Option<u64> {
        let log = &self.node.raft.raft_log;
        (log.term(log.persisted).ok() == Some(self.node.raft.term)).then_some(log.persisted)
    }

    /// Notes another member's report. A report of another term is useless.
    pub(crate) fn durable_at(&mut self, from: NodeId, told: &DurableUpTo) {
        let raft = &mut self.node.raft;
        // A leader relies on acknowledgements, which also drive its sends.
        if told.term == raft.term
            && raft.state == StateRole::Follower
            && let Some(progress) = raft.mut_prs().get_mut(u64::from(from.0))
        {
            progress.matched = progress.matched.max(told.index);
            self.durability.highest_told = self.durability.highest_told.max(told.index);
        }
    }

    /// Commits entries that are durable here and on a majority.
    pub(crate) fn commit_durable(&mut self) {
        let log = &self.node.raft.raft_log;
        let is_news = log.persisted.min(self.durability.highest_told) > log.committed;
        // A state image may come with the members of entries that are not here yet: other voters agreed on earlier
        // entries.
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
