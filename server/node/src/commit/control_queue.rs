//! Changes of configuration between their proposal and their reply.
//!
//! A proposal is named by its [`ProposalId`], and its reply is found by that name, in whatever order entries come back.

use std::collections::{BTreeMap, VecDeque};

use tokio::sync::oneshot;
use tribunal_core::control::{Applied, Refusal};
use tribunal_service::ServiceError;
use tribunal_types::{ControlChange, ControlEntry, ControlIndex, ProposalId};

/// The reply to a proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlReply {
    /// Position of its entry.
    pub index: ControlIndex,
    /// What the entry did.
    pub applied: Applied,
}

/// Proposals under way, and entries that are durable and not applied yet.
pub struct ControlQueue {
    /// Index of the next entry.
    next: ControlIndex,
    /// Name of the last proposal.
    last: ProposalId,
    proposed: BTreeMap<ProposalId, oneshot::Sender<ControlReply>>,
    durable: VecDeque<(ControlIndex, ControlEntry)>,
}

impl ControlQueue {
    /// Continues a control log that ends with entry `last`. `run` is a random number.
    #[must_use]
    pub fn new(last: ControlIndex, run: u64) -> ControlQueue {
        ControlQueue {
            next: ControlIndex(last.0 + 1),
            last: ProposalId { run, number: 0 },
            proposed: BTreeMap::new(),
            durable: VecDeque::new(),
        }
    }

    /// Proposes a change; returns the entry to write.
    pub fn propose(
        &mut self,
        change: ControlChange,
        reply: oneshot::Sender<ControlReply>,
    ) -> (ControlIndex, ControlEntry) {
        let index = self.next;
        self.next = ControlIndex(index.0 + 1);
        self.last.number += 1;
        self.proposed.insert(self.last, reply);
        (index, ControlEntry { proposal: self.last, change })
    }

    /// Takes an entry that is durable.
    pub fn durable(&mut self, index: ControlIndex, entry: ControlEntry) {
        self.durable.push_back((index, entry));
    }

    /// Returns the next durable entry, if it is not after `upto`.
    pub fn pop(&mut self, upto: ControlIndex) -> Option<(ControlIndex, ControlEntry)> {
        self.durable.pop_front_if(|(index, _)| *index <= upto)
    }

    /// Answers a proposal, if it was made here.
    pub fn answer(&mut self, proposal: ProposalId, reply: ControlReply) {
        if let Some(waiting) = self.proposed.remove(&proposal) {
            // Its proposer may have gone away.
            let _ = waiting.send(reply);
        }
    }
}

/// Describes a refusal to the client whose request was refused.
#[must_use]
pub fn refused(refusal: Refusal) -> ServiceError {
    let (code, pointer) = match refusal {
        Refusal::TooManyStores | Refusal::TooManyStoresOfTenant => ("too_many_stores", ""),
        Refusal::ExistenceFixed => ("existence_fixed", "/existence"),
        Refusal::TooManySkips => ("too_many_skips", ""),
        Refusal::TooManyKeys | Refusal::TooManyKeysOfTenant | Refusal::TooManyTenants => ("too_many_keys", ""),
        Refusal::KeyIdTaken
        | Refusal::TooManyNodes
        | Refusal::NodeNotAdmitted
        | Refusal::NodeHasGroup
        | Refusal::OutOfNumbers => return ServiceError::Unavailable { detail: refusal.to_string() },
    };
    ServiceError::ClientMistake { code, pointer: pointer.into(), detail: refusal.to_string() }
}

#[cfg(test)]
mod tests {
    use tribunal_core::control::Effect;

    use super::*;

    fn change() -> ControlChange {
        ControlChange::RevokeKey { id: "a".into() }
    }

    #[test]
    fn a_reply_finds_its_proposal_whatever_comes_in_between() {
        let mut queue = ControlQueue::new(ControlIndex(7), 99);
        let ((first, first_reply), (second, second_reply)) = (oneshot::channel(), oneshot::channel());
        let (index, first) = queue.propose(change(), first);
        assert_eq!(index, ControlIndex(8));
        let (index, second) = queue.propose(change(), second);
        assert_eq!(index, ControlIndex(9));
        let reply = |index| ControlReply { index: ControlIndex(index), applied: Ok(Effect::Unchanged) };
        // Another node's entry, one of an earlier run, and both in another order than they were proposed in.
        queue.answer(ProposalId { run: 5, number: 1 }, reply(8));
        queue.answer(ProposalId::default(), reply(8));
        queue.answer(second.proposal, reply(8));
        queue.answer(first.proposal, reply(9));
        queue.answer(first.proposal, reply(10));
        assert_eq!((first_reply.blocking_recv(), second_reply.blocking_recv()), (Ok(reply(9)), Ok(reply(8))));
    }

    #[test]
    fn entries_are_applied_up_to_what_an_epoch_carries() {
        let mut queue = ControlQueue::new(ControlIndex(0), 0);
        queue.durable(ControlIndex(1), change().into());
        queue.durable(ControlIndex(2), change().into());
        assert_eq!(queue.pop(ControlIndex(1)).map(|(index, _)| index), Some(ControlIndex(1)));
        assert_eq!(queue.pop(ControlIndex(1)), None);
        assert_eq!(queue.pop(ControlIndex(9)).map(|(index, _)| index), Some(ControlIndex(2)));
    }
}
