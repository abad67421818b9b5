//! Items of one batch with waiting clients, and their answers once its epoch is decided.
//!
//! Invariant: every item is answered exactly once, with a decision or because there will be none.

use alloc::boxed::Box;
use alloc::vec::Vec;

use tribunal_types::{Decision, EpochOutcome, FenceResult, ItemPlaces, TxnRequest, VerdictAt};

use crate::answer::{Answer, Imported};
use crate::event::Waiters;

/// The pending items of one batch, in its order.
pub struct PendingItems<W: Waiters> {
    pub(crate) txns: Vec<PendingTxn<W::Item>>,
    /// Items aborted before their epoch.
    pub(crate) aborts: Vec<PendingTxn<W::Item>>,
    /// Ascending indexes into `aborts` of ids that are outside the window of their epoch: they are not remembered.
    pub(crate) expired: Vec<usize>,
    pub(crate) fences: Vec<W::Item>,
    pub(crate) import: Option<W::Import>,
}

/// A pending transaction.
pub(crate) struct PendingTxn<I> {
    pub(crate) waiter: I,
    /// The transaction, copied into the batch; returned with the answer.
    pub(crate) spent: Option<Box<TxnRequest>>,
}

impl<W: Waiters> Default for PendingItems<W> {
    fn default() -> Self {
        PendingItems { txns: Vec::new(), aborts: Vec::new(), expired: Vec::new(), fences: Vec::new(), import: None }
    }
}

impl<W: Waiters> PendingItems<W> {
    /// Returns the number of items, the import not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.txns.len() + self.aborts.len() + self.fences.len()
    }

    /// Returns whether there is no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Answers every item with the epoch's decision, and returns the import. `places` are the items' positions in the
    /// epoch.
    pub fn answer(
        self,
        outcome: &EpochOutcome,
        places: ItemPlaces,
        mut tell: impl FnMut(W::Item, Answer, Option<Box<TxnRequest>>),
    ) -> Option<(W::Import, Imported)> {
        let ItemPlaces { batch, txns, early_aborts, fences } = places;
        for ((ix, txn), decision) in txns.clone().zip(self.txns).zip(&outcome.decisions[txns]) {
            let answer = match *decision {
                Decision::Committed { .. } | Decision::Aborted { .. } => Answer::Decided { epoch: (), item: ix as u32 },
                Decision::Replayed { original } => Answer::Stored(original),
                Decision::BodyMismatch => Answer::BodyMismatch,
                Decision::Expired => Answer::Expired,
            };
            tell(txn.waiter, answer, txn.spent);
        }
        for ((place, txn), &at) in self.aborts.into_iter().enumerate().zip(&outcome.early_aborts[early_aborts]) {
            let answer = match at {
                // A commit of an id ahead of the window may still arrive in time, so it must not be reported as
                // aborted.
                _ if self.expired.binary_search(&place).is_ok() => Answer::Expired,
                VerdictAt { epoch, item } if epoch == outcome.epoch => Answer::Decided { epoch: (), item },
                at => Answer::Stored(at),
            };
            tell(txn.waiter, answer, txn.spent);
        }
        for (waiter, result) in self.fences.into_iter().zip(&outcome.fences[fences]) {
            let answer = match *result {
                FenceResult::Fenced => Answer::Fenced(outcome.epoch),
                FenceResult::Known(at) => Answer::Stored(at),
                FenceResult::Expired => Answer::Expired,
            };
            tell(waiter, answer, None);
        }
        let imported = Imported::Rows(outcome.imported.get(batch).copied().unwrap_or(0));
        self.import.map(|import| (import, imported))
    }

    /// Gives every item the same answer, and returns the import.
    pub fn answer_all(
        self,
        answer: Answer,
        mut tell: impl FnMut(W::Item, Answer, Option<Box<TxnRequest>>),
    ) -> Option<W::Import> {
        self.txns.into_iter().chain(self.aborts).for_each(|txn| tell(txn.waiter, answer, txn.spent));
        self.fences.into_iter().for_each(|waiter| tell(waiter, answer, None));
        self.import
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::{
        Batch, Csn, EarlyAbort, Epoch, EpochInput, EpochOutcome, FenceItem, GroupId, NodeId, Reason, TxnRequest,
        VerdictAt, Version,
    };

    use super::*;

    struct Named;

    impl Waiters for Named {
        type Item = char;
        type Import = char;
        type Control = ();
        type Watch = ();

        fn has_left((): &()) -> bool {
            false
        }
    }

    /// Returns three groups' batches in one epoch: two transactions, an early abort and a fence each, and an import of
    /// distinct size.
    fn epoch() -> (EpochInput, EpochOutcome) {
        let batch = |node: u16| {
            let mut batch = Batch { group: GroupId { node: NodeId(node), ..GroupId::default() }, ..Batch::default() };
            (0..2).for_each(|n| batch.push(&TxnRequest::default(), Csn::new(n, NodeId(node))));
            let (id, namespace, reason) = (Default::default(), Default::default(), Reason::ClientAbort);
            batch.early_aborts.push(EarlyAbort { id, body_hash: None, namespace, reason, conflicts: Vec::new() });
            batch.fences.push(FenceItem { id, namespace });
            alloc::sync::Arc::new(batch)
        };
        let input = EpochInput { epoch: Epoch(9), epoch_time_ms: 0, batches: (1..=3).map(batch).collect() };
        let committed = |n| Decision::Committed { version: Version::new(Epoch(9), n).expect("fits") };
        let earlier = |item| VerdictAt { epoch: Epoch(9), item };
        let outcome = EpochOutcome {
            epoch: Epoch(9),
            decisions: alloc::vec![
                committed(0),
                committed(1),
                committed(2),
                Decision::Expired,
                committed(4),
                committed(5)
            ],
            early_aborts: alloc::vec![earlier(6), earlier(7), earlier(8)],
            fences: alloc::vec![FenceResult::Fenced, FenceResult::Expired, FenceResult::Fenced],
            imported: alloc::vec![10, 20, 30],
            ..EpochOutcome::default()
        };
        (input, outcome)
    }

    /// Returns the waiters of two transactions, an early abort, a fence and an import.
    fn items() -> PendingItems<Named> {
        let txn = |waiter| PendingTxn { waiter, spent: None };
        let (txns, aborts) = (alloc::vec![txn('a'), txn('b')], alloc::vec![txn('c')]);
        PendingItems { txns, aborts, fences: alloc::vec!['d'], import: Some('e'), ..PendingItems::default() }
    }

    #[test]
    fn items_get_the_answers_of_their_own_batch() {
        let (input, outcome) = epoch();
        let (_, places) = input.places().nth(1).expect("three batches");
        let mut told = Vec::new();
        let imported = items().answer(&outcome, places, |waiter, answer, _| told.push((waiter, answer)));
        let decided = |item| Answer::Decided { epoch: (), item };
        let expected = [('a', decided(2)), ('b', Answer::Expired), ('c', decided(7)), ('d', Answer::Expired)];
        assert_eq!((told.as_slice(), imported), (expected.as_slice(), Some(('e', Imported::Rows(20)))));
    }

    #[test]
    fn all_items_of_a_batch_get_the_same_answer() {
        let mut told = Vec::new();
        let import = items().answer_all(Answer::NotTaken, |waiter, answer, _| told.push((waiter, answer)));
        assert_eq!(told, ['a', 'b', 'c', 'd'].map(|waiter| (waiter, Answer::NotTaken)));
        assert_eq!(import, Some('e'));
    }
}
