//! The groups that this node leads: its own, unless another node has taken it over, and groups it has taken over
//! itself.
//!
//! For another node's group it seals only empty ranges, up to the epochs that are needed: entries made for another node
//! have no clock and no items (rules 8 and 10 of the cluster).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use tribunal_core::executor::ShardExecutor;
use tribunal_core::planted::{Bug, planted};
use tribunal_types::{Batch, Epoch, GroupId};

use crate::effect::Effect;
use crate::event::Waiters;
use crate::policy_runner::PolicyRunner;
use crate::replica::Replica;

/// The groups that this node leads.
#[derive(Debug)]
pub(crate) struct Leading {
    /// The own group.
    pub(crate) own: bool,
    /// Groups of other nodes, each with the last epoch of the entry that is proposed for it and not agreed on yet.
    others: BTreeMap<GroupId, Option<Epoch>>,
}

impl Leading {
    /// Starts with the own group, or none.
    pub(crate) fn new(own: bool) -> Leading {
        Leading { own, others: BTreeMap::new() }
    }

    /// Returns whether this node leads a group.
    pub(crate) fn leads(&self, own: GroupId, group: GroupId) -> bool {
        if group == own { self.own } else { self.others.contains_key(&group) }
    }

    /// Notes that every proposal for a group up to `last` is either agreed on or never will be.
    pub(crate) fn sealed(&mut self, group: GroupId, last: Epoch) {
        if let Some(proposed) = self.others.get_mut(&group) {
            *proposed = proposed.filter(|proposed| *proposed > last);
        }
    }
}

impl<W: Waiters, P: PolicyRunner, E: ShardExecutor> Replica<W, P, E> {
    /// Returns whether the own group may propose: it has joined, has not closed, and this node leads it.
    pub(crate) fn may_propose(&self) -> bool {
        self.leading.own && self.is_member()
    }

    /// Returns whether a group is to close because its node is being removed. A node that continues alone may have its own
    /// removal in its log, and the end of that removal after it: its group must not close between the two.
    pub(crate) fn leaves(&self, group: GroupId) -> bool {
        let stays = || self.controls.make_sole(group.node) && !planted(Bug::RemovalOutlivesSoleNode);
        self.replicated.members().leaves(group.node) && !stays()
    }

    /// Notes a leader's first entry: all agreed entries of the group's earlier leaders precede it.
    pub(crate) fn term_begun(&mut self, group: GroupId, leads: bool) {
        if group == self.group {
            self.leading.own = leads;
            self.demand.measure(self.now.monotonic);
            self.forget_lost();
        } else if leads {
            self.leading.others.insert(group, None);
            self.seal_for_others();
        } else {
            self.leading.others.remove(&group);
        }
    }

    /// Stops proposing for a group: another node leads it, or will.
    pub(crate) fn leader_lost(&mut self, group: GroupId) {
        self.leading.others.remove(&group);
        if group == self.group {
            self.leading.own = false;
            self.refuse_gathered();
        }
    }

    /// Gives up a proposal that the group's log did not take.
    pub(crate) fn not_proposed(&mut self, batch: &Batch) {
        self.leading.sealed(batch.group, batch.last);
        if batch.group == self.group
            && let Some(proposed) = self.proposals.take(batch)
        {
            self.writing -= 1;
            self.not_taken(proposed);
        }
    }

    /// Proposes empty entries for groups of other nodes that this node leads and that are being waited for, and closes
    /// groups whose nodes are being removed.
    pub(crate) fn seal_for_others(&mut self) {
        let wanted = self.demand.upto().max(self.wanted());
        let members = self.replicated.members();
        for (&group, proposed) in &mut self.leading.others {
            if !self.epochs.is_open(group) || proposed.is_some() {
                continue;
            }
            let (first, closes) = (self.epochs.next_of(group), members.leaves(group.node));
            if first > wanted && !closes {
                continue;
            }
            let last = if closes || first > self.demand.upto() { first } else { self.demand.ahead() };
            *proposed = Some(last);
            let batch = Batch { group, first, last, control: self.control, closes, ..Batch::default() };
            self.effects.push_back(Effect::Append(Arc::new(batch)));
        }
    }

    /// Answers own proposals that are not in the own group's log and can no longer get there.
    fn forget_lost(&mut self) {
        let lost = self.proposals.take_where(|proposed| proposed.durable_at.is_none());
        self.writing -= lost.len();
        lost.into_iter().for_each(|proposed| self.not_taken(proposed));
    }
}
