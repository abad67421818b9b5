//! The part of an epoch's decisions that concerns the clients of this node.
//!
//! Every node of a cluster decides the transactions of all nodes. Each counts only those of its own clients, so that
//! the metrics of all nodes sum to the totals of all clients, and commits and aborts of one node refer to the same
//! transactions.

use tribunal_types::{Decision, EpochInput, EpochOutcome, GroupId};

/// Counts of the transactions of one group in an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnTxns {
    /// All of them.
    pub txns: u64,
    /// Committed transactions.
    pub committed: u64,
}

impl OwnTxns {
    /// Counts the transactions of `group`.
    #[must_use]
    pub fn of(group: GroupId, input: &EpochInput, outcome: &EpochOutcome) -> OwnTxns {
        let (mut own, mut first) = (OwnTxns::default(), 0);
        for batch in &input.batches {
            let end = first + batch.txns.len();
            if batch.group.node == group.node {
                outcome.decisions.get(first..end).unwrap_or_default().iter().for_each(|decision| own.count(decision));
            }
            first = end;
        }
        own
    }

    fn count(&mut self, decision: &Decision) {
        self.txns += 1;
        self.committed += u64::from(matches!(decision, Decision::Committed { .. }));
    }
}
