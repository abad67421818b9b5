//! The items of one batch that clients wait for, and their replies once its epoch is decided.
//!
//! Invariant: every item is answered exactly once, with a decision or because there will be none.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::oneshot;
use tribunal_types::{Decision, FenceResult, TxnRequest};

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
    pub import: Option<(oneshot::Sender<u64>, usize)>,
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

impl PendingItems {
    /// Answers every item with what `epoch` decided.
    pub fn answer(self, epoch: &Arc<ResolvedEpoch>, dispatch: &Dispatch, waiting_bytes: &AtomicUsize) {
        let outcome = &epoch.outcome;
        let decided = |item: u32| Answer::Decided { epoch: Arc::clone(epoch), item };
        let mut bytes = 0;
        let mut answers = Vec::with_capacity(self.txns.len() + self.aborts.len());
        for (ix, (txn, decision)) in self.txns.into_iter().zip(&outcome.decisions).enumerate() {
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
        for (txn, at) in self.aborts.into_iter().zip(&outcome.early_aborts) {
            let answer = if at.epoch == outcome.epoch { decided(at.item) } else { Answer::Stored(*at) };
            answers.push((txn.handle, Answered { answer, spent: txn.spent }));
        }
        dispatch.answer(answers);
        for (handle, result) in self.fences.into_iter().zip(&outcome.fences) {
            let answer = match *result {
                FenceResult::Fenced => Answer::Fenced,
                FenceResult::Known(at) => Answer::Stored(at),
                FenceResult::Expired => Answer::Expired,
            };
            handle.answer(answer, None);
        }
        if let Some((reply, bytes)) = self.import {
            waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            let _ = reply.send(outcome.imported);
        }
    }

    /// Answers every item with "outcome unknown": durability is in doubt.
    pub fn fail(self) {
        self.txns.into_iter().chain(self.aborts).for_each(|txn| txn.handle.answer(Answer::Unknown, txn.spent));
        self.fences.into_iter().for_each(|handle| handle.answer(Answer::Unknown, None));
    }
}

/// Answers commits that are not taken in.
pub fn refuse(commits: Vec<Commit>, answer: &Answer) {
    commits.into_iter().for_each(|commit| commit.handle.answer(answer.clone(), Some(commit.txn)));
}
