//! When a node takes over a group that others wait for: its leader may be alive, send heartbeats, and write nothing, because
//! its disk is stuck (rule 8 of the cluster). A leader that is silent is replaced by Raft itself.
//!
//! A node that may be in a minority takes nothing over: each attempt raises a term, which disturbs the others when it returns.
//! Leading its own group shows that a majority follows it.

use alloc::vec::Vec;
use core::time::Duration;

use tribunal_core::executor::ShardExecutor;
use tribunal_types::{ControlIndex, Epoch, GroupId};

use crate::effect::Effect;
use crate::event::Waiters;
use crate::policy_runner::PolicyRunner;
use crate::replica::Replica;

/// Since when nothing moves that is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stall {
    since: Duration,
    /// The last complete epoch, and the last control entry that is durable.
    at: (Epoch, ControlIndex),
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor> Replica<W, P, E> {
    /// Returns after which time a group may have to be taken over, if nothing moves until then.
    pub(crate) fn stall_due_in(&self, now: Duration) -> Option<Duration> {
        let after = self.settings.take_over_after?;
        let stall = self.stall.filter(|_| self.leading.own && self.waits_for_others())?;
        Some((stall.since + after).saturating_sub(now))
    }

    /// Notes whether something is waited for that does not move, and asks for a takeover if that takes too long.
    pub(crate) fn watch_stalls(&mut self) {
        let Some(after) = self.settings.take_over_after else { return };
        if !self.waits_for_others() {
            self.stall = None;
            return;
        }
        let at = (self.epochs.last_complete(), self.control);
        let now = self.now.monotonic;
        let stall = match self.stall {
            Some(stall) if stall.at == at => stall,
            _ => Stall { since: now, at },
        };
        self.stall = Some(stall);
        if now.saturating_sub(stall.since) >= after && self.leading.own {
            // Once more, should it fail.
            self.stall = Some(Stall { since: now, at });
            let stuck = self.stuck_groups();
            self.effects.extend(stuck.into_iter().map(Effect::TakeOver));
        }
    }

    /// Returns the last epoch that has to be complete: one that has items, or the next one if that lets a control entry be
    /// applied.
    pub(crate) fn wanted(&self) -> Epoch {
        let for_control =
            if self.epochs.control() < self.control { self.epochs.last_complete().next() } else { Epoch(0) };
        self.demand.upto().max(for_control)
    }

    /// Returns whether an epoch that has to be complete, or a control entry, is not here yet.
    fn waits_for_others(&self) -> bool {
        self.epochs.last_complete() < self.wanted() || self.misses_control()
    }

    /// Returns whether a control entry is missing that is known to exist, or was proposed here.
    fn misses_control(&self) -> bool {
        self.epochs.control() > self.control || self.controls.waits()
    }

    /// Returns the groups that nothing comes from, of those that this node does not lead itself.
    fn stuck_groups(&self) -> Vec<GroupId> {
        let next = self.epochs.last_complete().next();
        let waited_for = self.epochs.last_complete() < self.wanted();
        let stuck = self.epochs.groups().filter(|&(group, at)| waited_for && at <= next && group != self.group);
        let groups = stuck.map(|(group, _)| group).filter(|&group| !self.leading.leads(self.group, group));
        groups.chain(self.misses_control().then_some(GroupId::CONTROL)).collect()
    }
}
