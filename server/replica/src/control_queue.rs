//! Changes of configuration between their proposal and their reply.
//!
//! A proposal is identified by its [`ProposalId`], which matches the reply to it regardless of the order of the
//! entries.

use alloc::collections::{BTreeMap, VecDeque};

use tribunal_types::{ControlChange, ControlEntry, ControlIndex, NodeId, ProposalId};

/// Proposals in flight, each with its waiter `C`, and durable entries that are not applied yet.
#[derive(Debug)]
pub(crate) struct ControlQueue<C> {
    /// Index of the next entry.
    next: ControlIndex,
    /// Id of the last proposal.
    last: ProposalId,
    /// Number of the last own proposal that is durable.
    agreed: u64,
    proposed: BTreeMap<ProposalId, C>,
    durable: VecDeque<(ControlIndex, ControlEntry)>,
}

impl<C> ControlQueue<C> {
    /// Continues a control log that ends with entry `last`. `run` is a random number.
    #[must_use]
    pub(crate) fn new(last: ControlIndex, run: u64) -> Self {
        ControlQueue {
            next: ControlIndex(last.0 + 1),
            last: ProposalId { run, number: 0 },
            agreed: 0,
            proposed: BTreeMap::new(),
            durable: VecDeque::new(),
        }
    }

    /// Proposes a change, for a client or for the replica itself; returns the entry to write.
    pub(crate) fn propose(&mut self, change: ControlChange, waiter: Option<C>) -> (ControlIndex, ControlEntry) {
        let index = self.next;
        self.next = ControlIndex(index.0 + 1);
        self.last.number += 1;
        waiter.into_iter().for_each(|waiter| drop(self.proposed.insert(self.last, waiter)));
        (index, ControlEntry { proposal: self.last, change })
    }

    /// Adds a durable entry.
    pub(crate) fn durable(&mut self, index: ControlIndex, entry: ControlEntry) {
        if entry.proposal.run == self.last.run {
            self.agreed = self.agreed.max(entry.proposal.number);
        }
        self.durable.push_back((index, entry));
    }

    /// Returns the next durable entry, if it is not after `upto`.
    pub(crate) fn pop(&mut self, upto: ControlIndex) -> Option<(ControlIndex, ControlEntry)> {
        self.durable.pop_front_if(|(index, _)| *index <= upto)
    }

    /// Returns whether a durable entry that is not applied yet makes a node the only one.
    pub(crate) fn make_sole(&self, node: NodeId) -> bool {
        self.durable.iter().any(|(_, entry)| entry.change == ControlChange::SoleNode { node })
    }

    /// Returns how many of its own changes are durable.
    pub(crate) fn agreed(&self) -> u64 {
        self.agreed
    }

    /// Returns whether a proposed change is not durable yet.
    pub(crate) fn waits(&self) -> bool {
        self.agreed < self.last.number
    }

    /// Removes and returns the waiter of a proposal, if it was made here.
    pub(crate) fn waiter(&mut self, proposal: ProposalId) -> Option<C> {
        self.proposed.remove(&proposal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change() -> ControlChange {
        ControlChange::RevokeKey { id: "a".into() }
    }

    #[test]
    fn a_waiter_is_found_by_its_proposal_whatever_comes_in_between() {
        let mut queue = ControlQueue::new(ControlIndex(7), 99);
        let (index, first) = queue.propose(change(), Some("first"));
        assert_eq!(index, ControlIndex(8));
        let (_, unheard) = queue.propose(change(), None);
        let (index, third) = queue.propose(change(), Some("third"));
        assert_eq!(index, ControlIndex(10));
        // Another node's entry, one of an earlier run, and all in a different order than they were proposed in.
        assert_eq!(queue.waiter(ProposalId { run: 5, number: 1 }), None);
        assert_eq!(queue.waiter(ProposalId::default()), None);
        assert_eq!(queue.waiter(third.proposal), Some("third"));
        assert_eq!(queue.waiter(unheard.proposal), None);
        assert_eq!(queue.waiter(first.proposal), Some("first"));
        assert_eq!(queue.waiter(first.proposal), None);
    }

    #[test]
    fn entries_are_applied_up_to_what_an_epoch_carries() {
        let mut queue = ControlQueue::<()>::new(ControlIndex(0), 0);
        queue.durable(ControlIndex(1), change().into());
        queue.durable(ControlIndex(2), change().into());
        assert_eq!(queue.pop(ControlIndex(1)).map(|(index, _)| index), Some(ControlIndex(1)));
        assert_eq!(queue.pop(ControlIndex(1)), None);
        assert_eq!(queue.pop(ControlIndex(9)).map(|(index, _)| index), Some(ControlIndex(2)));
    }

    #[test]
    fn a_node_is_about_to_be_the_only_one_until_that_is_applied() {
        let (mut queue, node) = (ControlQueue::<()>::new(ControlIndex(0), 0), NodeId(5));
        queue.durable(ControlIndex(1), ControlChange::RemoveNode { node }.into());
        assert!(!queue.make_sole(node));
        queue.durable(ControlIndex(2), ControlChange::SoleNode { node }.into());
        assert!(queue.make_sole(node) && !queue.make_sole(NodeId(4)));
        assert!(queue.pop(ControlIndex(2)).is_some() && queue.make_sole(node));
        assert!(queue.pop(ControlIndex(2)).is_some() && !queue.make_sole(node));
    }
}
