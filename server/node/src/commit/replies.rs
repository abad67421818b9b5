//! Waiters for the items of an epoch, their answers, and the delivery of an epoch's answers to their tasks.
//!
//! Memory returns to the thread that allocated it: a spent transaction travels with its answer, because freeing on
//! another thread costs both threads. Answers also travel together: [`Dispatch`] wakes one task per lane, which wakes
//! the other tasks there.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};
use tribunal_service::Lane;
use tribunal_types::TxnRequest;

use crate::commit::epoch_cache::ResolvedEpoch;

/// An answer, and the memory allocated for its item.
#[derive(Debug)]
pub struct Answered {
    /// The answer.
    pub answer: Answer,
    /// The transaction, spent.
    pub spent: Option<Box<TxnRequest>>,
}

/// The outcome of an item; the waiting task reads the details from the epoch.
pub type Answer = tribunal_replica::Answer<Arc<ResolvedEpoch>>;

/// Collects the answers of one request with many transactions.
pub struct Many {
    state: Mutex<ManyState>,
}

struct ManyState {
    answers: Vec<Answer>,
    spent: Spent,
    missing: usize,
    done: Option<oneshot::Sender<AnsweredMany>>,
}

/// Transactions on their way back.
type Spent = Vec<Box<TxnRequest>>;

/// The answers of one request with many transactions, and the memory allocated for it.
pub struct AnsweredMany {
    /// The answers, in the order of the request.
    pub answers: Vec<Answer>,
    /// The transactions, spent.
    pub spent: Spent,
}

impl Many {
    /// Creates a collector for `count` transactions, which answers on `done`.
    #[must_use]
    pub fn new(count: usize, done: oneshot::Sender<AnsweredMany>) -> Arc<Many> {
        let answers = vec![Answer::Unknown; count];
        let state = ManyState { answers, spent: Vec::with_capacity(count), missing: count, done: Some(done) };
        Arc::new(Many { state: Mutex::new(state) })
    }

    fn put(&self, slot: usize, answer: Answer, spent: Option<Box<TxnRequest>>) {
        let mut state = self.state.lock();
        state.answers[slot] = answer;
        state.spent.extend(spent);
        state.missing -= 1;
        if state.missing == 0 {
            let (answers, spent) = (std::mem::take(&mut state.answers), std::mem::take(&mut state.spent));
            if let Some(done) = state.done.take() {
                // The client may have disconnected; its verdict is stored all the same.
                let _ = done.send(AnsweredMany { answers, spent });
            }
        }
    }
}

/// The waiter for one answer, and its lane, if it runs on one.
pub struct ReplySender {
    reply: oneshot::Sender<Answered>,
    lane: Option<Lane>,
}

impl ReplySender {
    /// Creates a sender to `lane`, or to the shared threads, and the receiver.
    #[must_use]
    pub fn on(lane: Option<Lane>) -> (ReplySender, oneshot::Receiver<Answered>) {
        let (reply, answer) = oneshot::channel();
        (ReplySender { reply, lane }, answer)
    }

    fn answer(self, answered: Answered) {
        // The client may have disconnected.
        let _ = self.reply.send(answered);
    }
}

/// One waiting item.
pub enum ReplyHandle {
    /// A separate request.
    Single(ReplySender),
    /// One item of a request with many.
    Part(Arc<Many>, usize),
}

impl ReplyHandle {
    /// Answers immediately.
    pub fn answer(self, answer: Answer, spent: Option<Box<TxnRequest>>) {
        match self {
            ReplyHandle::Single(sender) => sender.answer(Answered { answer, spent }),
            ReplyHandle::Part(many, slot) => many.put(slot, answer, spent),
        }
    }
}

/// Up to this many answers are delivered one by one.
const SINGLY_MAX: usize = 2;

/// An answer and its recipient.
type Reply = (ReplySender, Answered);

/// Delivers an epoch's answers to the waiting requests. Holds no more answers than there are requests in flight.
#[derive(Clone)]
pub struct Dispatch {
    /// One per lane, and one for the shared threads.
    lanes: Vec<mpsc::UnboundedSender<Vec<Reply>>>,
}

impl Dispatch {
    /// Starts the tasks that wake the others: one on every lane, and one on `shared`.
    #[must_use]
    pub fn start(lanes: &[Handle], shared: &Handle) -> Dispatch {
        let start = |runtime: &Handle| {
            let (sender, mut epochs) = mpsc::unbounded_channel::<Vec<Reply>>();
            runtime.spawn(async move {
                while let Some(replies) = epochs.recv().await {
                    singly(replies);
                }
            });
            sender
        };
        Dispatch { lanes: lanes.iter().chain([shared]).map(start).collect() }
    }

    /// Delivers answers that belong together.
    pub fn answer(&self, answers: Vec<(ReplyHandle, Answered)>) {
        let mut lanes: Vec<Vec<Reply>> = self.lanes.iter().map(|_| Vec::new()).collect();
        let shared = lanes.len() - 1;
        for (handle, answered) in answers {
            match handle {
                ReplyHandle::Single(sender) => {
                    let lane = sender.lane.map(|lane| lane.0).filter(|lane| *lane < shared).unwrap_or(shared);
                    lanes[lane].push((sender, answered));
                }
                ReplyHandle::Part(many, slot) => many.put(slot, answered.answer, answered.spent),
            }
        }
        for (replies, lane) in lanes.into_iter().zip(&self.lanes) {
            if replies.len() <= SINGLY_MAX {
                singly(replies);
            } else if let Err(mpsc::error::SendError(replies)) = lane.send(replies) {
                singly(replies);
            }
        }
    }
}

fn singly(replies: Vec<Reply>) {
    replies.into_iter().for_each(|(sender, answered)| sender.answer(answered));
}
