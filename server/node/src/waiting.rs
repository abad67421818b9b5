//! Who waits for an item of an epoch, and what they get.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tribunal_types::{TxnRequest, VerdictAt, Write};

use crate::epoch_cache::ResolvedEpoch;

/// Returns about how much memory a waiting transaction takes, bytes: its keys and values, and its operations.
#[must_use]
pub fn bytes_of(txn: &TxnRequest) -> usize {
    let operations = txn.reads.len() + txn.ranges.len() + txn.writes.len();
    txn.keys.len() + txn.values.len() + operations * size_of::<Write>() + size_of::<TxnRequest>()
}

/// What became of an item.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Decided in this epoch, as item `item`.
    Decided {
        /// The epoch, from which the waiting task takes the words.
        epoch: Arc<ResolvedEpoch>,
        /// The item (see `VerdictAt`).
        item: u32,
    },
    /// The id was known with the same body: its verdict is stored there.
    Stored(VerdictAt),
    /// The id was known with another body.
    BodyMismatch,
    /// The id lies outside the window.
    Expired,
    /// A transaction with this id waits for its epoch right now.
    InFlight,
    /// The id can never commit: this very request fenced it, or an earlier one did.
    Fenced,
    /// The epoch's batch cannot be made durable, or the node stops. The outcome is unknown until it runs again.
    Unknown,
    /// The node takes nothing new: it is stopping.
    Stopping,
}

/// Collects the answers of one request with many transactions.
pub struct Many {
    state: Mutex<ManyState>,
}

struct ManyState {
    answers: Vec<Answer>,
    missing: usize,
    done: Option<oneshot::Sender<Vec<Answer>>>,
}

impl Many {
    /// Makes a collector for `count` transactions, which answers on `done`.
    #[must_use]
    pub fn new(count: usize, done: oneshot::Sender<Vec<Answer>>) -> Arc<Many> {
        let state = ManyState { answers: vec![Answer::Unknown; count], missing: count, done: Some(done) };
        Arc::new(Many { state: Mutex::new(state) })
    }

    fn put(&self, slot: usize, answer: Answer) {
        let mut state = self.state.lock();
        state.answers[slot] = answer;
        state.missing -= 1;
        if state.missing == 0 {
            let answers = std::mem::take(&mut state.answers);
            if let Some(done) = state.done.take() {
                // The client may have gone; its verdict is stored all the same.
                let _ = done.send(answers);
            }
        }
    }
}

/// One waiting item.
pub enum Ticket {
    /// A request of its own.
    Single(oneshot::Sender<Answer>),
    /// A part of a request with many.
    Part(Arc<Many>, usize),
}

impl Ticket {
    /// Answers.
    pub fn answer(self, answer: Answer) {
        match self {
            Ticket::Single(reply) => {
                let _ = reply.send(answer);
            }
            Ticket::Part(many, slot) => many.put(slot, answer),
        }
    }
}
