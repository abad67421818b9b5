//! Configuration changes in flight to the leader of the control group.
//!
//! One change is in flight at a time, and it is resent until it is committed, so a node's changes are committed in the
//! order in which they were proposed. A change may be committed twice: the replicated state recognises a duplicate by
//! its number.

use std::collections::VecDeque;

use tribunal_types::{ControlEntry, NodeId, ProposalId};

/// Ticks after which a change is resent.
const AGAIN_TICKS: u32 = 10;

/// The uncommitted changes that this node has proposed.
#[derive(Debug, Default)]
pub(crate) struct ControlProposals {
    waiting: VecDeque<ControlEntry>,
    /// Ticks since the first one was sent; `None` if it is unsent.
    sent: Option<u32>,
    /// Number of relays chosen so far.
    relays: usize,
}

impl ControlProposals {
    pub(crate) fn add(&mut self, entry: ControlEntry) {
        self.waiting.push_back(entry);
    }

    /// Notes that a change is committed.
    pub(crate) fn agreed(&mut self, proposal: ProposalId) {
        if self.waiting.front().is_some_and(|entry| entry.proposal == proposal) {
            self.waiting.pop_front();
            self.sent = None;
        }
    }

    /// Notes that a tick has passed.
    pub(crate) fn tick(&mut self) {
        self.sent = self.sent.map(|ticks| ticks + 1).filter(|ticks| *ticks < AGAIN_TICKS);
    }

    /// Notes a leader change: a sent change may be lost.
    pub(crate) fn leader_changed(&mut self) {
        self.sent = None;
    }

    /// Returns the change to propose or to send now.
    pub(crate) fn due(&self) -> Option<&ControlEntry> {
        if self.sent.is_some() { None } else { self.waiting.front() }
    }

    /// Returns the one of `peers` that should forward the change: another one each time.
    pub(crate) fn relay(&mut self, peers: &[NodeId]) -> Option<NodeId> {
        self.relays = self.relays.wrapping_add(1);
        self.relays.checked_rem(peers.len()).and_then(|at| peers.get(at)).copied()
    }

    /// Notes that the change was proposed or sent.
    pub(crate) fn sent(&mut self) {
        self.sent = Some(0);
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::ControlChange;

    use super::*;

    #[test]
    fn a_change_is_sent_again_until_it_is_agreed_on() {
        let entry = |number| ControlEntry {
            proposal: ProposalId { run: 1, number },
            change: ControlChange::RevokeKey { id: String::new() },
        };
        let mut proposals = ControlProposals::default();
        proposals.add(entry(1));
        proposals.add(entry(2));
        let due = |proposals: &ControlProposals| proposals.due().map(|entry| entry.proposal.number);
        assert_eq!(due(&proposals), Some(1));
        proposals.sent();
        proposals.agreed(entry(2).proposal);
        assert_eq!(due(&proposals), None);
        (0..AGAIN_TICKS).for_each(|_| proposals.tick());
        assert_eq!(due(&proposals), Some(1));
        proposals.sent();
        proposals.leader_changed();
        assert_eq!(due(&proposals), Some(1));
        proposals.agreed(entry(1).proposal);
        assert_eq!(due(&proposals), Some(2));
        let relays: Vec<_> = (0..3).filter_map(|_| proposals.relay(&[NodeId(4), NodeId(5)])).collect();
        assert_eq!((relays, proposals.relay(&[])), (vec![NodeId(5), NodeId(4), NodeId(5)], None), "in turn");
    }
}
