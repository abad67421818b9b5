//! What the members of a group know of each other's disks.
//!
//! Raft commits an entry of the current term as soon as a majority has it on disk; that the leader counts, and tells the
//! others, is a convention. Here every voter tells every member how far its log is durable, the leader included, and everybody
//! counts. So a follower knows that an entry is committed as early as its leader does, or half a round trip earlier, and
//! the leader does not tell (raft-rs's `skip_bcast_commit`). What is lost on the way the next heartbeat makes up for.
//!
//! It rests on log matching (Ongaro and Ousterhout, In Search of an Understandable Consensus Algorithm, 5.3): whoever has an entry
//! of a term has the log of that term's leader up to it. So a voter tells of its last durable entry only if it is of the
//! current term, and what was told in one term counts in that term only: raft-rs forgets the progress of all members when the term
//! changes.

use raft::StateRole;
use tribunal_types::{GroupId, NodeId};

use crate::group::Group;
use crate::refused::Refused;
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

/// What a group notes of it.
#[derive(Debug)]
pub(crate) struct Durability {
    /// Term and index that were told last.
    told: (u64, u64),
    /// The most that anybody has told of in this term.
    heard: u64,
    /// Last entry that may change the members. The voters of what follows it are not known before it is applied.
    last_change: u64,
}

impl Durability {
    /// Any of the entries that a group starts with may be a change.
    pub(crate) fn starting(last: u64) -> Self {
        Self { told: (0, 0), heard: 0, last_change: last }
    }

    /// An entry that changes the members was appended.
    pub(crate) fn change_appended(&mut self, index: u64) {
        self.last_change = self.last_change.max(index);
    }

    /// The leader or the term is another one.
    pub(crate) fn role_changed(&mut self) {
        self.heard = 0;
    }
}

impl<L: GroupLog> Group<L> {
    /// Returns what is to be told to the other members, and not to the leader, which gets acknowledgements.
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

    /// Notes what another member tells.
    pub(crate) fn durable_at(&mut self, from: NodeId, told: &DurableUpTo) -> Result<(), Refused> {
        let raft = &mut self.node.raft;
        if told.term != raft.term {
            return Err(Refused::Late);
        }
        // A leader relies on acknowledgements, by which it sends as well.
        if raft.state == StateRole::Follower {
            let progress = raft.mut_prs().get_mut(u64::from(from.0)).ok_or(Refused::NotAMember(from))?;
            progress.matched = progress.matched.max(told.index);
            self.durability.heard = self.durability.heard.max(told.index);
        }
        Ok(())
    }

    /// Commits what is durable at a majority.
    pub(crate) fn commit_durable(&mut self) {
        let log = &self.node.raft.raft_log;
        let (committed, last, applied) = (log.committed, log.last_index(), log.applied);
        let is_news = self.durability.heard > committed && last > committed;
        if !is_news || self.node.raft.state != StateRole::Follower || self.durability.last_change > applied {
            return;
        }
        let own = self.durable_of_term().unwrap_or(0);
        let raft = &mut self.node.raft;
        if let Some(progress) = raft.mut_prs().get_mut(u64::from(self.me.0)) {
            progress.matched = own;
        }
        let (durable, _) = raft.mut_prs().maximal_committed_index();
        let term = raft.term;
        raft.raft_log.maybe_commit(durable.min(last), term);
    }
}
