//! Agreed entries wait in the groups' logs, not in memory, while enough of them wait to be decided here.
//!
//! A node that lacks the code of a policy decides nothing, and still votes and writes, for as long as that lasts. One that
//! comes back has much to decide at once, and must look after its peers meanwhile: what it decides between two inputs has a
//! bound as well.
//!
//! Never held back: the control group, which may bring what the others wait for; a group that this node leads, because the others
//! wait for its epochs; a group whose next entry the next epoch needs, or nothing would ever be decided. So no more waits than
//! `undecided_bytes_max` and what one round hands out.

use tribunal_core::executor::ShardExecutor;
use tribunal_core::planted::{Bug, planted};
use tribunal_raft::GroupLog;
use tribunal_replica::{PolicyRunner, Waiters};
use tribunal_types::GroupId;

use crate::member::Member;

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor, L: GroupLog> Member<W, P, E, L> {
    /// Holds a group back that has just handed out an entry, if enough waits.
    pub(crate) fn hold_back(&mut self, group: GroupId) {
        if self.is_full() && !self.must_go_on(group) {
            self.raft.hold_back(group, true);
        }
    }

    /// Lets groups that are held back hand out more, if they may; returns whether any does. Every input begins with it; who has
    /// none while there is more to decide calls it instead.
    pub fn go_on(&mut self) -> bool {
        let is_full = self.is_full();
        let may_go_on = |group: &GroupId| !is_full || self.must_go_on(*group);
        let go_on = self.raft.held_back().filter(may_go_on).collect::<Vec<_>>();
        go_on.iter().for_each(|group| self.raft.hold_back(*group, false));
        !go_on.is_empty()
    }

    /// Returns whether entries of a group wait in the log, because many are not decided.
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
