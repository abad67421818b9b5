//! Queue of single commits for the sequencer, which is woken once for many of them.
//!
//! A message per commit would switch threads for each, and the disk takes no commit before it is free. So the sequencer
//! sets the number of commits that wakes it: one while nothing is in flight to the disk, otherwise enough to be worth a
//! wakeup; the commits queued when the disk is free go into the next batch. Bounded by the admission of bytes in
//! `service.rs`. Once the sequencer has ended, nothing is accepted, and every pending sender gets an error.

use crossbeam_channel::Sender;
use parking_lot::Mutex;
use std::sync::Arc;

use crate::commit::message::Message;
use crate::commit::waiters::Commit;

#[derive(Default)]
struct State {
    commits: Vec<Commit>,
    /// Number of queued commits that wakes the sequencer; 0 after a wakeup.
    wake_at: usize,
    closed: bool,
}

/// The producing side.
#[derive(Clone)]
pub struct CommitQueue {
    state: Arc<Mutex<State>>,
    messages: Sender<Message>,
}

/// The sequencer's side. Dropping it closes the queue.
pub struct CommitIntake(Arc<Mutex<State>>);

impl CommitQueue {
    /// Creates both sides; the sequencer is woken through `messages`.
    #[must_use]
    pub fn new(messages: Sender<Message>) -> (CommitQueue, CommitIntake) {
        let state = Arc::new(Mutex::new(State::default()));
        (CommitQueue { state: Arc::clone(&state), messages }, CommitIntake(state))
    }

    /// Adds a commit; returns it if the sequencer has ended.
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
            // A sequencer that ended has closed the queue, or is about to.
            let _ = self.messages.send(Message::CommitsQueued);
        }
        Ok(())
    }
}

impl CommitIntake {
    /// Swaps the queued commits with `into`, which is empty. No commit wakes the sequencer from then on, until
    /// [`CommitIntake::wake_at`].
    pub fn take(&self, into: &mut Vec<Commit>) {
        let mut state = self.0.lock();
        state.wake_at = 0;
        std::mem::swap(&mut state.commits, into);
    }

    /// Requests a wakeup once `count` commits are queued; returns whether they already are, and then requests nothing.
    pub fn wake_at(&self, count: usize) -> bool {
        let mut state = self.0.lock();
        let there = state.commits.len() >= count;
        state.wake_at = if there { 0 } else { count };
        there
    }

    /// Closes the queue; returns the queued commits.
    #[must_use]
    pub fn close(&self) -> Vec<Commit> {
        let mut state = self.0.lock();
        state.closed = true;
        std::mem::take(&mut state.commits)
    }
}

impl Drop for CommitIntake {
    fn drop(&mut self) {
        drop(self.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commit::replies::{Answered, ReplyHandle, ReplySender};
    use crate::commit::waiters;
    use tokio::sync::oneshot;

    fn commit() -> (Commit, oneshot::Receiver<Answered>) {
        let (sender, answer) = ReplySender::on(None);
        (waiters::commit(Box::default(), ReplyHandle::Single(sender)), answer)
    }

    #[test]
    fn the_consumer_is_woken_once_for_the_requested_number() {
        let (messages, inbox) = crossbeam_channel::unbounded();
        let (queue, intake) = CommitQueue::new(messages);
        let mut taken = Vec::new();
        let add = || assert!(queue.add(commit().0).is_ok());
        add();
        assert!(inbox.is_empty(), "nobody asked");
        assert!(intake.wake_at(1), "it is there already");
        intake.take(&mut taken);
        assert_eq!(taken.len(), 1);
        assert!(!intake.wake_at(3));
        (0..5).for_each(|_| add());
        assert_eq!(inbox.len(), 1, "one message for five");
        taken.clear();
        intake.take(&mut taken);
        assert_eq!(taken.len(), 5);
    }

    #[test]
    fn waiters_are_woken_at_the_end() {
        let (messages, _inbox) = crossbeam_channel::unbounded();
        let (queue, intake) = CommitQueue::new(messages);
        let (waiting, mut answer) = commit();
        assert!(queue.add(waiting).is_ok());
        drop(intake);
        assert!(answer.try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Closed));
        assert!(queue.add(commit().0).is_err());
    }
}
