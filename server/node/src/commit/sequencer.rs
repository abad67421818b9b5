//! The single thread that owns the replica: feeds it events with the current time, and carries out its outputs.
//!
//! Events arrive as a [`Message`] in one queue; single commits are batched until the sequencer is free
//! ([`CommitQueue`](crate::commit::commit_queue::CommitQueue)). The sequencer blocks on the queue only, and on the disk only while the queue is empty
//! ([`InlineWrites`]). The replica determines all decisions and their order.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError};
use tribunal_member::Input;
use tribunal_replica::{Event, Now};

use crate::commit::decider::{Decider, NodeReplica};
use crate::commit::log_job::Job;
use crate::commit::log_queue::LogQueue;
use crate::commit::message::{Ended, Message};
use crate::commit::replies::Answer;
use crate::commit::sequencer_state::{LaggingPush, SequencerState, Shared};
use crate::commit::waiters::{Channels, Commit, ItemWaiter};
use inline_writes::InlineWrites;
use member::{MAJORITY_TIMEOUT, Phase};
use member_side::MemberSide;
pub(super) use questions::{JUDGING_WORK_MAX, judging_work};
use questions::{Question, Questions};

mod availability;
mod effects;
mod inline_writes;
mod member;
mod member_side;
mod questions;
mod resolved_meanwhile;

/// The sequencer's state.
pub struct Sequencer {
    decider: Decider,
    state: SequencerState,
    shared: Shared,
    log: LogQueue,
    /// Origin of the monotonic clock.
    started: Instant,
    /// The replica has finished.
    stopped: bool,
    /// When the last query between commits was answered, if ever.
    asked_at: Option<Instant>,
    /// When it was last logged that ids are forgotten early, if ever.
    forgetting_logged_at: Cell<Option<Instant>>,
    inline: InlineWrites,
    side: MemberSide,
    questions: Questions,
    /// Empty; its allocation is reused.
    spare: Vec<Commit>,
}

/// How a message ends the sequencer.
enum Ending {
    Stop,
    Failed(String),
}

/// Number of commits that queue before the sequencer takes them while a batch is in flight to the disk.
const GATHER: usize = 48;
/// Maximum number of messages taken from the queue before the seal is considered again.
const MESSAGES_AT_ONCE: usize = 1024;
/// Maximum time spent on messages before that: some cost far more than others.
const MESSAGES_WITHIN: Duration = Duration::from_millis(2);
/// Maximum time the sequencer copies the image before it returns to its messages.
const IMAGE_SLICE: Duration = Duration::from_millis(1);

impl Sequencer {
    /// Creates the sequencer and publishes its progress. The decider's monotonic clock began at `started`.
    #[must_use]
    pub fn new(
        decider: impl FnOnce(Now) -> Decider,
        started: Instant,
        state: SequencerState,
        shared: Shared,
        log: LogQueue,
    ) -> Sequencer {
        let now = Now { monotonic: started.elapsed(), unix_us: state.clock.now_us() };
        let sequencer = Sequencer {
            decider: decider(now),
            state,
            shared,
            log,
            started,
            side: MemberSide::new(started),
            stopped: false,
            asked_at: None,
            forgetting_logged_at: Cell::default(),
            inline: InlineWrites::default(),
            questions: Questions::default(),
            spare: Vec::new(),
        };
        sequencer.publish_stores();
        sequencer.publish_epoch();
        sequencer
    }

    /// Runs until stopped, or until the log fails.
    pub fn run(mut self, messages: &Receiver<Message>) -> Ended {
        loop {
            self.copy_image();
            // While a batch is in flight, or a fixed epoch length is running, let more commits queue.
            let has_commits = self.state.intake.wake_at(if self.replica().gathers() { GATHER } else { 1 });
            if !has_commits && let ControlFlow::Break(ended) = self.take_messages(messages) {
                return match ended {
                    Ending::Stop => self.stop(messages),
                    Ending::Failed(reason) => self.fail(messages, reason),
                };
            }
            self.answer_questions();
            self.take_queued();
            self.tick(messages);
            self.tick_member();
            self.settle(messages);
            if let Some(reason) = self.inline.failed.take() {
                return self.fail(messages, reason);
            }
        }
    }

    /// Waits for messages, unless questions wait, and processes those that have arrived; breaks at one that ends the sequencer.
    fn take_messages(&mut self, messages: &Receiver<Message>) -> ControlFlow<Ending> {
        let wake_in = if self.questions.is_empty() { self.wake_in() } else { Some(Duration::ZERO) };
        let first = match wake_in {
            None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(wait) => messages.recv_timeout(wait),
        };
        let mut next = match first {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(Ending::Stop),
        };
        let (begun, mut taken) = (Instant::now(), 0);
        while let Some(message) = next.take() {
            match message {
                Message::Stop => return ControlFlow::Break(Ending::Stop),
                Message::CopyState { store } => {
                    self.copy_state(store);
                    return ControlFlow::Break(Ending::Stop);
                }
                Message::LogFailed(reason) => return ControlFlow::Break(Ending::Failed(reason)),
                message => self.handle(message),
            }
            taken += 1;
            if taken < MESSAGES_AT_ONCE && begun.elapsed() < MESSAGES_WITHIN {
                next = messages.try_recv().ok();
            }
        }
        ControlFlow::Continue(())
    }

    /// Returns the current time. An untrusted clock yields no Unix time, so the node's entries carry none either.
    fn now(&self) -> Now {
        let unix_us = if self.side.apart_ms.is_some() { 0 } else { self.state.clock.now_us() };
        Now { monotonic: self.started.elapsed(), unix_us }
    }

    /// Passes an event to the replica, and carries out the resulting outputs.
    fn step(&mut self, event: Event<Channels>) {
        let now = self.now();
        self.decider.step(event, now);
        self.follow();
    }

    /// Carries out the outputs of the last input; for a member, only the urgent ones: [`Sequencer::settle`] does the
    /// rest.
    fn follow(&mut self) {
        while let Some(output) = self.decider.poll_urgent() {
            self.carry_out(output);
        }
        self.write_outcomes();
    }

    fn replica(&self) -> &NodeReplica {
        self.decider.replica()
    }

    /// Takes the queued commits.
    fn take_queued(&mut self) {
        let mut commits = std::mem::take(&mut self.spare);
        self.state.intake.take(&mut commits);
        if commits.is_empty() {
            self.spare = commits;
        } else {
            self.step(Event::Commits(commits));
            self.spare = self.decider.replica_mut().spare_commits();
        }
    }

    fn copy_image(&mut self) {
        let begun = Instant::now();
        while self.replica().takes_image() && begun.elapsed() < IMAGE_SLICE {
            self.step(Event::CopyImage);
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Commit(commits) => self.step(Event::Commits(commits)),
            // `run` takes the queued commits after every batch of messages.
            Message::CommitsQueued => {}
            Message::Judge(txns, reply) => self.questions.add(Question::judge(txns, reply)),
            Message::DryRun(txn, reply) => self.questions.add(Question::dry_run(txn, reply)),
            Message::Abort(namespace, id, handle) => {
                self.take_queued();
                self.step(Event::Abort(namespace, id, ItemWaiter::for_id(handle)));
            }
            Message::Fence(namespace, id, handle) => {
                self.take_queued();
                self.step(Event::Fence(namespace, id, ItemWaiter::for_id(handle)));
            }
            Message::Status(ids, reply) => {
                self.asked_at = Some(Instant::now());
                self.take_queued();
                let replica = self.replica();
                let _ = reply.send(ids.into_iter().map(|(namespace, id)| replica.known(namespace, id)).collect());
            }
            Message::Watch(namespace, id, reply) => {
                self.take_queued();
                self.step(Event::Watch(namespace, id, reply));
            }
            Message::Import(versions, waiter) => self.step(Event::Import(versions, waiter)),
            Message::Control(change, reply) => self.step(Event::Control(change, reply)),
            Message::Durable(batch) => {
                // Take the queued commits first, so that they go into the next batch at once.
                self.take_queued();
                self.step(Event::Entry(batch));
            }
            Message::ControlDurable(index, entry) => self.step(Event::ControlEntry(index, entry)),
            Message::Persisted(number) => self.bring(Input::Persisted(number)),
            Message::Peer(received, frame) => self.peer_frame(received.from, *frame),
            Message::Unreachable(node) => self.bring(Input::Unreachable(node)),
            Message::Removed(by) => self.removed(by),
            Message::Fresh(reply) => self.read_fresh(reply),
            Message::PushReported(store, push, reports) => {
                self.step(Event::Pushed { store, push, report: reports.take() });
            }
            Message::OverQuota(store, bound) => {
                let LaggingPush { complaint, opens_at, needs_all } = (self.state.lagging)(store);
                self.step(Event::OverQuota { store, bound, complaint, opens_at, needs_all });
            }
            Message::TakeImage => self.step(Event::TakeImage),
            Message::TruncationPutOff => self.step(Event::TruncationPutOff),
            Message::Compact(groups) => {
                groups.into_iter().for_each(|(group, upto)| self.bring(Input::Compact { group, upto }));
            }
            Message::LogFailed(_) | Message::CopyState { .. } | Message::Stop => unreachable!("handled by run"),
        }
    }

    /// Finishes the epochs in flight, takes an image and ends.
    fn stop(mut self, messages: &Receiver<Message>) -> Ended {
        let last = self.state.intake.close();
        self.step(Event::Commits(last));
        let mut phase = Phase::HandingOver;
        self.bring(Input::HandOver);
        let begun = Instant::now();
        loop {
            while !self.questions.is_empty() {
                self.answer_questions();
            }
            phase = self.go_on_stopping(phase, begun.elapsed());
            self.settle(messages);
            if let Some(reason) = self.inline.failed.take() {
                return self.fail(messages, reason);
            }
            if self.stopped {
                break;
            }
            let wait = self.wake_in().unwrap_or(MAJORITY_TIMEOUT);
            match messages.recv_timeout(wait) {
                Ok(Message::LogFailed(reason)) => return self.fail(messages, reason),
                Ok(Message::Stop | Message::CopyState { .. }) | Err(RecvTimeoutError::Timeout) => {}
                Ok(message) => self.handle(message),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.tick_member();
        }
        // Groups write their commit positions at ticks: the next start begins there.
        self.bring(Input::Tick);
        self.settle(messages);
        self.log.send(Job::Stop);
        self.take_lag().map_or(Ended::Stopped, Ended::Lags)
    }

    /// Answers every waiter that the outcome is unknown, and ends.
    fn fail(mut self, messages: &Receiver<Message>, mut reason: String) -> Ended {
        self.step(Event::LogFailed);
        let mut commits = self.state.intake.close();
        for message in messages.try_iter() {
            match message {
                Message::Commit(more) => commits.extend(more),
                // The cause of a failure that was noticed by its effect.
                Message::LogFailed(cause) if !self.side.refused => reason = cause,
                Message::Abort(_, _, handle) | Message::Fence(_, _, handle) => handle.answer(Answer::Unknown, None),
                _ => {}
            }
        }
        commits.into_iter().for_each(|commit| commit.waiter.handle.answer(Answer::Unknown, Some(commit.txn)));
        // If the log has failed, its thread ends without running this job.
        self.log.send(Job::Stop);
        if self.side.refused {
            return Ended::Refused(reason);
        }
        match self.take_lag() {
            // The log is intact, and so is everything else.
            Some(lag) => Ended::Lags(lag),
            None => Ended::LogFailed(reason),
        }
    }
}

/// Converts an answer that belongs to no epoch into one for clients.
fn without_epoch(answer: tribunal_replica::Answer) -> Answer {
    answer.in_epoch(|()| unreachable!("an epoch's decisions come with the epoch"))
}
