//! Transactions to judge without a decision: read-only ones, and dry runs.
//!
//! They wait here instead of in the queue of messages: judging them takes milliseconds if they have many ranges or rows, and
//! everything else on this thread, such as commits that have become durable, must not wait for all of them. Tenants take
//! turns (decision 127). Bounded by the admission of bytes in `service.rs`.

use std::time::Instant;

use tokio::sync::oneshot;
use tribunal_replica::{TakesTurns, Turns};
use tribunal_types::{NamespaceId, TxnRequest, Verdict};

use super::{MESSAGES_WITHIN, Sequencer, without_epoch};
use crate::commit::replies::Answer;

/// Maximum number of operations that are judged at once, a few milliseconds of work: commits wait meanwhile.
pub(in crate::commit) const JUDGING_WORK_MAX: usize = 2048;
/// Number of operations that a range counts for: every shard searches it in all of its runs above the snapshot.
const RANGE_WORK: usize = 32;

/// Returns the cost of judging a transaction, in operations.
pub(in crate::commit) fn judging_work(txn: &TxnRequest) -> usize {
    1 + txn.reads.len() + txn.writes.len() + RANGE_WORK * txn.ranges.len()
}

/// Questions of all tenants.
pub(super) type Questions = Turns<Question>;

/// One tenant's transactions, and where to send their verdicts.
pub(super) struct Question {
    namespace: NamespaceId,
    work: usize,
    kind: Kind,
}

enum Kind {
    Judge(Vec<TxnRequest>, oneshot::Sender<Vec<Verdict>>),
    DryRun(Box<TxnRequest>, oneshot::Sender<Result<Verdict, Answer>>),
}

impl Question {
    pub(super) fn judge(txns: Vec<TxnRequest>, reply: oneshot::Sender<Vec<Verdict>>) -> Question {
        let namespace = txns.first().map_or(NamespaceId(0), |txn| txn.namespace);
        let work = txns.iter().map(judging_work).sum();
        Question { namespace, work, kind: Kind::Judge(txns, reply) }
    }

    pub(super) fn dry_run(txn: Box<TxnRequest>, reply: oneshot::Sender<Result<Verdict, Answer>>) -> Question {
        Question { namespace: txn.namespace, work: judging_work(&txn), kind: Kind::DryRun(txn, reply) }
    }
}

impl TakesTurns for Question {
    const TURN: usize = JUDGING_WORK_MAX;

    fn namespace(&self) -> NamespaceId {
        self.namespace
    }

    fn cost(&self) -> usize {
        self.work
    }
}

impl Sequencer {
    /// Answers questions until none waits, or the time for them is over.
    pub(super) fn answer_questions(&mut self) {
        let begun = Instant::now();
        while let Some(question) = self.questions.take() {
            self.answer_question(question);
            let now = Instant::now();
            self.asked_at = Some(now);
            if now.duration_since(begun) >= MESSAGES_WITHIN {
                break;
            }
        }
    }

    /// Nothing may judge in place of a plugin that is not loaded. Without a reply, the caller reports the reason.
    fn answer_question(&mut self, question: Question) {
        match question.kind {
            Kind::Judge(txns, reply) => {
                self.shared.waiting.release_all(&txns);
                if !self.replica().waits_for_code() {
                    let _ = reply.send(self.decider.replica_mut().judge(&txns));
                }
            }
            Kind::DryRun(txn, reply) => {
                self.shared.waiting.release_all([&*txn]);
                // Earlier requests first.
                self.take_queued();
                if !self.replica().waits_for_code() {
                    let now = self.now();
                    let verdict = self.decider.replica_mut().dry_run(&txn, now);
                    let _ = reply.send(verdict.map_err(without_epoch));
                }
            }
        }
    }
}
