//! The items of one batch that clients wait for, and their replies once its epoch is decided.
//!
//! Invariant: every item is answered exactly once, with a decision or because there will be none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::oneshot;
use tribunal_types::{Decision, FenceResult, ItemPlaces, TxnRequest};

use crate::commit::epoch_cache::ResolvedEpoch;
use crate::commit::replies::{Answer, Answered, Commit, Dispatch, ReplyHandle};

/// The pending items of one batch, in its order.
#[derive(Default)]
pub struct PendingItems {
    /// Its transactions.
    pub txns: Vec<PendingTxn>,
    /// Items that were aborted before their epoch.
    pub aborts: Vec<PendingTxn>,
    /// Its fences.
    pub fences: Vec<ReplyHandle>,
    /// Its import, and what that counts for in `waiting_bytes`.
    pub import: Option<(oneshot::Sender<Imported>, usize)>,
}

/// What became of an import.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Imported {
    /// So many of its rows were new.
    Rows(u64),
    /// Its batch is void: nothing was imported.
    NotTaken,
    /// Its batch cannot be made durable, or the node stops.
    Unknown,
}

/// A pending transaction.
pub struct PendingTxn {
    /// Where its reply goes.
    pub handle: ReplyHandle,
    /// What it counts for in `waiting_bytes`.
    pub bytes: usize,
    /// The transaction, copied into the batch; goes back with the reply.
    pub spent: Option<Box<TxnRequest>>,
}

/// A batch that was proposed and is not decided.
pub struct ProposedBatch {
    /// Who waits for it.
    pub items: PendingItems,
    /// When it was sealed.
    pub sealed_at: Instant,
    /// When it was durable, if it is.
    pub durable_at: Option<Instant>,
}

impl PendingItems {
    /// Answers every item with what `epoch` decided; the batch's items have these places in it.
    pub fn answer(
        self,
        epoch: &Arc<ResolvedEpoch>,
        places: ItemPlaces,
        dispatch: &Dispatch,
        waiting_bytes: &AtomicUsize,
    ) {
        let outcome = &epoch.outcome;
        let ItemPlaces { batch, txns, early_aborts, fences } = places;
        let decided = |item: u32| Answer::Decided { epoch: Arc::clone(epoch), item };
        let mut bytes = 0;
        let mut answers = Vec::with_capacity(self.txns.len() + self.aborts.len());
        for ((ix, txn), decision) in txns.clone().zip(self.txns).zip(&outcome.decisions[txns]) {
            bytes += txn.bytes;
            let answer = match *decision {
                Decision::Committed { .. } | Decision::Aborted { .. } => decided(ix as u32),
                Decision::Replayed { original } => Answer::Stored(original),
                Decision::BodyMismatch => Answer::BodyMismatch,
                Decision::Expired => Answer::Expired,
            };
            answers.push((txn.handle, Answered { answer, spent: txn.spent }));
        }
        waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        for (txn, at) in self.aborts.into_iter().zip(&outcome.early_aborts[early_aborts]) {
            let answer = if at.epoch == outcome.epoch { decided(at.item) } else { Answer::Stored(*at) };
            answers.push((txn.handle, Answered { answer, spent: txn.spent }));
        }
        dispatch.answer(answers);
        for (handle, result) in self.fences.into_iter().zip(&outcome.fences[fences]) {
            let answer = match *result {
                FenceResult::Fenced => Answer::Fenced,
                FenceResult::Known(at) => Answer::Stored(at),
                FenceResult::Expired => Answer::Expired,
            };
            handle.answer(answer, None);
        }
        if let Some((reply, bytes)) = self.import {
            waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            let _ = reply.send(Imported::Rows(outcome.imported.get(batch).copied().unwrap_or(0)));
        }
    }

    /// Answers every item with "not taken": its batch is void, so nothing of it exists.
    pub fn not_taken(self, waiting_bytes: &AtomicUsize) {
        let import = self.import.as_ref().map_or(0, |(_, bytes)| *bytes);
        waiting_bytes.fetch_sub(self.txns.iter().map(|txn| txn.bytes).sum::<usize>() + import, Ordering::Relaxed);
        self.answer_all(&Answer::NotTaken, Imported::NotTaken);
    }

    /// Answers every item with "outcome unknown": durability is in doubt.
    pub fn fail(self) {
        self.answer_all(&Answer::Unknown, Imported::Unknown);
    }

    fn answer_all(self, answer: &Answer, imported: Imported) {
        self.txns.into_iter().chain(self.aborts).for_each(|txn| txn.handle.answer(answer.clone(), txn.spent));
        self.fences.into_iter().for_each(|handle| handle.answer(answer.clone(), None));
        if let Some((reply, _)) = self.import {
            let _ = reply.send(imported);
        }
    }
}

/// Answers commits that are not taken in.
pub fn refuse(commits: Vec<Commit>, answer: &Answer) {
    commits.into_iter().for_each(|commit| commit.handle.answer(answer.clone(), Some(commit.txn)));
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Runtime;
    use tribunal_types::{
        Batch, Csn, EarlyAbort, Epoch, EpochInput, EpochOutcome, FenceItem, GroupId, NodeId, Reason, VerdictAt, Version,
    };

    use super::*;
    use crate::commit::epoch_cache::Timing;
    use crate::commit::replies::ReplySender;

    /// Three groups' batches in one epoch: two transactions, an early abort and a fence each, and an import of its own size.
    fn epoch() -> Arc<ResolvedEpoch> {
        let batch = |node: u16| {
            let mut batch = Batch { group: GroupId { node: NodeId(node), ..GroupId::default() }, ..Batch::default() };
            (0..2).for_each(|n| batch.push(&TxnRequest::default(), Csn::new(n, NodeId(node))));
            let (id, namespace, reason) = (Default::default(), Default::default(), Reason::ClientAbort);
            batch.early_aborts.push(EarlyAbort { id, body_hash: None, namespace, reason, conflicts: Vec::new() });
            batch.fences.push(FenceItem { id, namespace });
            Arc::new(batch)
        };
        let input = EpochInput { epoch: Epoch(9), epoch_time_ms: 0, batches: (1..=3).map(batch).collect() };
        let committed = |n| Decision::Committed { version: Version::new(Epoch(9), n).expect("fits") };
        let earlier = |item| VerdictAt { epoch: Epoch(9), item };
        let outcome = EpochOutcome {
            epoch: Epoch(9),
            decisions: vec![committed(0), committed(1), committed(2), Decision::Expired, committed(4), committed(5)],
            early_aborts: vec![earlier(6), earlier(7), earlier(8)],
            fences: vec![FenceResult::Fenced, FenceResult::Expired, FenceResult::Fenced],
            imported: vec![10, 20, 30],
            ..EpochOutcome::default()
        };
        let now = Instant::now();
        let timing = Timing { sealed_at: now, durable_at: now, resolved_at: now, plugins: Vec::new() };
        Arc::new(ResolvedEpoch::new(input, outcome, timing))
    }

    type Receivers = (Vec<oneshot::Receiver<Answered>>, oneshot::Receiver<Imported>);

    /// Waiters for two transactions, an early abort, a fence and an import.
    fn waiters() -> (PendingItems, Receivers) {
        let mut receivers = Vec::new();
        let mut handle = || {
            let (sender, receiver) = ReplySender::on(None);
            receivers.push(receiver);
            ReplyHandle::Single(sender)
        };
        let mut txn = |bytes| PendingTxn { handle: handle(), bytes, spent: None };
        let (txns, aborts) = (vec![txn(100), txn(10)], vec![txn(0)]);
        let (reply, imported) = oneshot::channel();
        let fences = vec![handle()];
        (PendingItems { txns, aborts, fences, import: Some((reply, 1)) }, (receivers, imported))
    }

    fn told(receivers: Receivers) -> (Vec<Answer>, Imported) {
        let (answers, imported) = receivers;
        let answers = answers.into_iter().map(|answer| answer.blocking_recv().expect("answered").answer);
        (answers.collect(), imported.blocking_recv().expect("answered"))
    }

    #[test]
    fn items_get_the_answers_of_their_own_batch() {
        let runtime = Runtime::new().expect("a runtime");
        let dispatch = Dispatch::start(&[], runtime.handle());
        let waiting_bytes = AtomicUsize::new(111);
        let epoch = epoch();
        let (_, places) = epoch.input.places().nth(1).expect("three batches");
        let (pending, receivers) = waiters();
        pending.answer(&epoch, places, &dispatch, &waiting_bytes);
        let (answers, imported) = told(receivers);
        let [Answer::Decided { item: 2, .. }, Answer::Expired, Answer::Decided { item: 7, .. }, Answer::Expired] =
            answers[..]
        else {
            panic!("{answers:?}")
        };
        assert_eq!((imported, waiting_bytes.into_inner()), (Imported::Rows(20), 0));
    }

    #[test]
    fn items_of_a_void_batch_are_told_that_it_was_not_taken() {
        let waiting_bytes = AtomicUsize::new(111);
        let (pending, receivers) = waiters();
        pending.not_taken(&waiting_bytes);
        let (answers, imported) = told(receivers);
        assert_eq!((answers.len(), imported, waiting_bytes.into_inner()), (4, Imported::NotTaken, 0));
        assert!(answers.iter().all(|answer| matches!(answer, Answer::NotTaken)), "{answers:?}");
    }
}
