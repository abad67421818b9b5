//! Back-pressure on committed entries: while enough of them wait to be decided, further ones wait in the groups' logs
//! and not in memory.
//!
//! A node that lacks the code of a policy decides nothing, and still votes and writes for the whole time. A returning
//! node has much to decide at once, and must serve its peers meanwhile: the decisions between two inputs are bounded as
//! well.
//!
//! Never held back: the control group, which may bring what the other groups wait for; a group that this node leads,
//! because the other nodes wait for its epochs; a group whose next entry is needed by the next epoch, because otherwise
//! nothing would ever be decided. So at most `undecided_bytes_max` plus the entries delivered in one round wait in
//! memory.

use tribunal_core::executor::ShardExecutor;
use tribunal_core::planted::{Bug, planted};
use tribunal_raft::GroupLog;
use tribunal_replica::{PolicyRunner, Waiters};
use tribunal_types::GroupId;

use crate::member::Member;

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor, L: GroupLog> Member<W, P, E, L> {
    /// Holds back a group that has just delivered an entry, if enough entries wait.
    pub(crate) fn hold_back(&mut self, group: GroupId) {
        if self.is_full() && !self.must_go_on(group) {
            self.raft.hold_back(group, true);
        }
    }

    /// Lets held-back groups deliver more, if they may; returns whether any does. Every input starts with it; a caller
    /// without inputs calls it directly while there is more to decide.
    pub fn go_on(&mut self) -> bool {
        let is_full = self.is_full();
        let may_go_on = |group: &GroupId| !is_full || self.must_go_on(*group);
        let go_on = self.raft.held_back().filter(may_go_on).collect::<Vec<_>>();
        go_on.iter().for_each(|group| self.raft.hold_back(*group, false));
        !go_on.is_empty()
    }

    /// Returns whether any group's entries wait in the log, because many are undecided.
    #[must_use]
    pub fn holds_back(&self) -> bool {
        self.raft.held_back().next().is_some()
    }

    fn is_full(&self) -> bool {
        self.sources.bytes() > self.undecided_bytes_max
    }

    fn must_go_on(&self, group: GroupId) -> bool {
        let epochs = self.replica().epochs();
        let next = epochs.last_complete().next();
        let is_needed = epochs.groups().find(|(id, _)| *id == group).is_none_or(|(_, first)| first <= next);
        group == GroupId::CONTROL
            || self.roles.leader(group) == Some(self.node)
            || is_needed && !planted(Bug::NextEpochHeldBack)
    }
}
