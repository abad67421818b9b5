//! Where single commits gather for the sequencer, so that it is woken once for many of them.
//!
//! A message for each commit would switch threads once a commit, and the disk takes none of them before it is free. So
//! the sequencer says how many it wants to be woken for: one while nothing is on its way to the disk, else enough to be
//! worth it; whatever is there when the disk is free goes into the next batch. Bounded by the admission of bytes in
//! `service.rs`. Once the sequencer has ended nothing is taken in, and whoever still waits hears of it.

use crossbeam_channel::Sender;
use parking_lot::Mutex;
use std::sync::Arc;

use crate::commit::replies::Commit;
use crate::commit::sequencer::Message;

#[derive(Default)]
struct State {
    commits: Vec<Commit>,
    /// Wake the sequencer when so many are there; 0 while it has been woken, or knows.
    wake_at: usize,
    closed: bool,
}

/// The side that adds.
#[derive(Clone)]
pub struct Gathering {
    state: Arc<Mutex<State>>,
    messages: Sender<Message>,
}

/// The sequencer's side. Dropping it closes the gathering.
pub struct Gathered(Arc<Mutex<State>>);

impl Gathering {
    /// Makes both sides; the sequencer is woken through `messages`.
    #[must_use]
    pub fn new(messages: Sender<Message>) -> (Gathering, Gathered) {
        let state = Arc::new(Mutex::new(State::default()));
        (Gathering { state: Arc::clone(&state), messages }, Gathered(state))
    }

    /// Adds a commit; gives it back if the sequencer has ended.
    ///
    /// # Errors
    /// The commit.
    pub fn add(&self, commit: Commit) -> Result<(), Commit> {
        let wake = {
            let mut state = self.state.lock();
            if state.closed {
                return Err(commit);
            }
            state.commits.push(commit);
            let wake = state.wake_at > 0 && state.commits.len() >= state.wake_at;
            if wake {
                state.wake_at = 0;
            }
            wake
        };
        if wake {
            // A sequencer that ended has closed the gathering, or does so now.
            let _ = self.messages.send(Message::Gathered);
        }
        Ok(())
    }
}

impl Gathered {
    /// Swaps what has gathered with `into`, which is empty. Nobody wakes the sequencer from here on, until
    /// [`Gathered::wake_at`].
    pub fn take(&self, into: &mut Vec<Commit>) {
        let mut state = self.0.lock();
        state.wake_at = 0;
        std::mem::swap(&mut state.commits, into);
    }

    /// Asks to be woken once `count` commits are there; tells whether they are already, and then asks for nothing.
    pub fn wake_at(&self, count: usize) -> bool {
        let mut state = self.0.lock();
        let there = state.commits.len() >= count;
        state.wake_at = if there { 0 } else { count };
        there
    }

    /// Takes nothing in from here on; returns what is there.
    #[must_use]
    pub fn close(&self) -> Vec<Commit> {
        let mut state = self.0.lock();
        state.closed = true;
        std::mem::take(&mut state.commits)
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        drop(self.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::replies::{Answered, Ticket, Waiter};
    use tokio::sync::oneshot;
    use tribunal_types::TxnRequest;

    fn commit() -> (Commit, oneshot::Receiver<Answered>) {
        let (waiter, answer) = Waiter::here();
        (Commit { txn: Box::new(TxnRequest::default()), ticket: Ticket::Single(waiter) }, answer)
    }

    #[test]
    fn wakes_once_for_as_many_as_asked() {
        let (messages, inbox) = crossbeam_channel::unbounded();
        let (gathering, gathered) = Gathering::new(messages);
        let mut taken = Vec::new();
        let add = || assert!(gathering.add(commit().0).is_ok());
        add();
        assert!(inbox.is_empty(), "nobody asked");
        assert!(gathered.wake_at(1), "it is there already");
        gathered.take(&mut taken);
        assert_eq!(taken.len(), 1);
        assert!(!gathered.wake_at(3));
        (0..5).for_each(|_| add());
        assert_eq!(inbox.len(), 1, "one message for five");
        taken.clear();
        gathered.take(&mut taken);
        assert_eq!(taken.len(), 5);
    }

    #[test]
    fn whoever_waits_hears_of_the_end() {
        let (messages, _inbox) = crossbeam_channel::unbounded();
        let (gathering, gathered) = Gathering::new(messages);
        let (waiting, mut answer) = commit();
        assert!(gathering.add(waiting).is_ok());
        drop(gathered);
        assert!(answer.try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Closed));
        assert!(gathering.add(commit().0).is_err());
    }
}
