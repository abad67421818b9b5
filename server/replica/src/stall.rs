//! When a node takes over a group that is being waited for: its leader may be alive and send heartbeats, but write
//! nothing because its disk is stuck (rule 8 of the cluster). Raft itself replaces a silent leader.
//!
//! A node that may be in a minority takes no group over: each attempt raises a term, which disturbs the other nodes
//! when it returns. Leading its own group shows that a majority follows it. The nodes try one at a time, in the order
//! of their numbers after the stuck one: a second candidate would depose the first.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use tribunal_core::executor::ShardExecutor;
use tribunal_types::{ControlIndex, Epoch, GroupId};

use crate::effect::Effect;
use crate::event::Waiters;
use crate::policy_runner::PolicyRunner;
use crate::replica::Replica;

/// How long a node waits for each node that tries before it.
const TURN: Duration = Duration::from_millis(150);

/// A position that does not advance, and since when.
#[derive(Clone, Copy, Debug)]
struct Stall<T> {
    since: Duration,
    at: T,
}

/// Awaited positions that do not advance.
#[derive(Debug, Default)]
pub(crate) struct Stalls {
    epochs: Option<Stall<Epoch>>,
    control: Option<Stall<(ControlIndex, u64)>>,
    /// A group that is to close.
    closing: Option<Stall<GroupId>>,
    /// Groups that this node has tried to take over since the stall began.
    tried: BTreeSet<GroupId>,
}

/// Returns for how long `at` has not advanced; `None` if nothing waits for it.
fn stalled<T: PartialEq>(stall: &mut Option<Stall<T>>, waits: bool, at: T, now: Duration) -> Option<Duration> {
    if !waits {
        *stall = None;
        return None;
    }
    let stall = match stall {
        Some(stall) if stall.at == at => stall,
        stall => stall.insert(Stall { since: now, at }),
    };
    Some(now.saturating_sub(stall.since))
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor> Replica<W, P, E> {
    /// Notes stalled positions, and requests takeovers of groups that have stalled for too long.
    pub(crate) fn watch_stalls(&mut self) {
        let Some(after) = self.settings.take_over_after else { return };
        if self.waits_for_code {
            // No other group is to blame.
            self.stalls = Stalls::default();
            return;
        }
        let now = self.now.monotonic;
        let complete = self.epochs.last_complete();
        let (wanted, misses_control) = (self.wanted(), self.misses_control());
        let at = (self.control, self.controls.agreed());
        let epochs = stalled(&mut self.stalls.epochs, complete < wanted, complete, now);
        let control = stalled(&mut self.stalls.control, misses_control, at, now);
        let is_to_close = |&(group, _): &(GroupId, Epoch)| self.leaves(group) && self.epochs.is_open(group);
        let to_close = self.epochs.groups().find(is_to_close).map(|(group, _)| group);
        let closing = stalled(&mut self.stalls.closing, to_close.is_some(), to_close.unwrap_or_default(), now);
        if epochs.is_none() && control.is_none() && closing.is_none() {
            self.stalls.tried.clear();
        }
        if !self.may_propose() {
            return;
        }
        let mut stuck = Vec::new();
        if let Some(stalled) = epochs.and_then(|stalled| stalled.checked_sub(after)) {
            let missing = self.epochs.groups().filter(|&(group, next)| next <= wanted && group != self.group);
            let others = missing.map(|(group, _)| group).filter(|&group| !self.leading.leads(self.group, group));
            stuck.extend(others.filter(|&group| stalled >= TURN * self.turn(group)));
        }
        if let Some(stalled) = control.and_then(|stalled| stalled.checked_sub(after)) {
            stuck.extend((stalled >= TURN * self.turn(GroupId::CONTROL)).then_some(GroupId::CONTROL));
        }
        if let (Some(group), Some(stalled)) = (to_close, closing.and_then(|stalled| stalled.checked_sub(after))) {
            let is_others = group != self.group && !self.leading.leads(self.group, group);
            stuck.extend((is_others && stalled >= TURN * self.turn(group)).then_some(group));
        }
        let all_tried = after + TURN * self.epochs.members() as u32;
        if epochs.max(control).max(closing) >= Some(after + all_tried) {
            // No node succeeded: start over.
            self.stalls = Stalls::default();
        }
        for group in stuck {
            if self.stalls.tried.insert(group) {
                self.effects.push_back(Effect::TakeOver(group));
            }
        }
    }

    /// Returns how many members try to take a group over before this one.
    fn turn(&self, group: GroupId) -> u32 {
        let members = self.epochs.groups().map(|(member, _)| member).filter(|member| *member != group);
        let own = self.group;
        let first = members.filter(|member| {
            // Members between the group and the own one, in a ring.
            if own > group { *member > group && *member < own } else { *member > group || *member < own }
        });
        first.count() as u32
    }

    /// Returns the last epoch that has to be complete: one with items, or the next one if a control entry can then be
    /// applied.
    pub(crate) fn wanted(&self) -> Epoch {
        let for_control =
            if self.epochs.control() < self.control { self.epochs.last_complete().next() } else { Epoch(0) };
        self.counted_to.max(for_control)
    }

    /// Returns whether a control entry is missing that is known to exist or was proposed here.
    fn misses_control(&self) -> bool {
        self.epochs.control() > self.control || self.controls.waits()
    }
}
