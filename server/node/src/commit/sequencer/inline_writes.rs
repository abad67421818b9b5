//! Writes that the sequencer does on its own thread when it is otherwise idle: a batch and its outcome (decision 77),
//! or the Raft groups' records of a member (decision 110).

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use tribunal_log::LogError;
use tribunal_member::Input;
use tribunal_replica::Event;
use tribunal_types::{Batch, GroupId};

use super::Sequencer;
use crate::commit::epoch_cache::ResolvedEpoch;
use crate::commit::log_job::Job;
use crate::commit::message::Message;

/// Client queries must not wait for a disk: if one arrived within this duration, the log thread writes.
const QUESTIONS_WITHIN: Duration = Duration::from_millis(10);

/// Writes currently allowed inline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Nothing.
    #[default]
    Nothing,
    /// The next batch.
    Batch,
    /// The outcome of that batch.
    Outcome,
    /// Raft group records, and outcomes.
    Rounds,
}

/// An epoch whose outcome is due, with the entries that it was decided from if there are several groups.
type DueOutcome = (Arc<ResolvedEpoch>, Vec<(GroupId, u64)>);

/// Writes that are due on this thread.
#[derive(Default)]
pub(super) struct InlineWrites {
    pub(super) allowed: Allowed,
    pub(super) batch: Option<Arc<Batch>>,
    pub(super) outcomes: Vec<DueOutcome>,
    /// The log thread must update the mark once the log is quiet, and is asleep.
    mark_is_due: bool,
    /// When the batch that was resolved meanwhile counts as durable, by the monotonic clock; zero without one.
    pub(super) durable_at: Duration,
    /// Why durability is in doubt, after a failed write.
    pub(super) failed: Option<String>,
}

impl Sequencer {
    /// Lets the replica seal the due batch, and writes it inline if this thread is otherwise idle.
    pub(super) fn tick(&mut self, messages: &Receiver<Message>) {
        self.inline.allowed = if self.is_free(messages) { Allowed::Batch } else { Allowed::Nothing };
        self.step(Event::Tick);
        if let Some(batch) = self.inline.batch.take() {
            self.inline.allowed = Allowed::Outcome;
            self.write_batch(batch);
        }
        self.end_inline();
    }

    pub(super) fn end_inline(&mut self) {
        self.inline.allowed = Allowed::Nothing;
        self.inline.durable_at = Duration::ZERO;
        if std::mem::take(&mut self.inline.mark_is_due) {
            // After the answers: no client waits for the mark.
            self.log.send(Job::MarkIsDue);
        }
    }

    /// Returns whether nothing waits for this thread.
    pub(super) fn is_free(&self, messages: &Receiver<Message>) -> bool {
        let asked = self.asked_at.is_some_and(|at| at.elapsed() < QUESTIONS_WITHIN);
        !asked && messages.is_empty() && self.questions.is_empty()
    }

    /// Writes and syncs the Raft groups' records if allowed, no job waits for the log and the disk is fast; otherwise
    /// the log thread does. Returns the number of the sync that completed here.
    pub(super) fn write_round(&mut self) -> Option<u64> {
        if self.side.round.is_empty() {
            return None;
        }
        let mut round = std::mem::take(&mut self.side.round);
        let allowed = self.inline.allowed == Allowed::Rounds;
        let written = self.log.try_writer().filter(|writer| allowed && writer.syncs_fast()).map(|mut writer| {
            let mark_was_due = writer.mark_due_since.is_some();
            let records = std::mem::take(&mut round.records);
            let written = writer.append_records(records).and_then(|()| round.sync.map_or(Ok(()), |_| writer.sync()));
            written.map(|()| writer.mark_due_since.is_some() && !mark_was_due)
        });
        match written {
            None => {
                self.log.send(Job::Groups(round));
                None
            }
            Some(Ok(mark_is_due)) => {
                self.inline.mark_is_due |= mark_is_due;
                round.sync
            }
            Some(Err(error)) => {
                self.write_failed(&error);
                None
            }
        }
    }

    /// Reports to the member that this thread has made its records durable. Commits queued meanwhile go into the next
    /// batch at once.
    pub(super) fn persisted_here(&mut self, number: u64) {
        let allowed = std::mem::take(&mut self.inline.allowed);
        self.take_queued();
        self.inline.allowed = allowed;
        let now = self.now();
        let Some(member) = self.decider.member() else { return };
        let refused = member.step(Input::Persisted(number), now);
        debug_assert!(refused.is_ok(), "the number is the member's own");
    }

    /// Writes a batch, unless a job waits for the log or the disk is slow: then the log thread writes it.
    fn write_batch(&mut self, batch: Arc<Batch>) {
        if let Some(durable) = self.append_meanwhile(&batch) {
            return self.resolve_meanwhile(batch, &durable);
        }
        let written = self.log.try_writer().filter(|writer| writer.syncs_fast()).map(|mut writer| {
            let mark_was_due = writer.mark_due_since.is_some();
            writer.append(&batch).map(|()| mark_was_due)
        });
        match written {
            None => self.log.send(Job::Append(batch)),
            Some(Ok(mark_was_due)) => {
                self.inline.mark_is_due |= !mark_was_due;
                self.take_queued();
                self.step(Event::Entry(batch));
            }
            Some(Err(error)) => self.write_failed(&error),
        }
    }

    /// Records the outcomes of epochs after their clients were answered: inline, or on the log thread if a job waits.
    pub(super) fn write_outcomes(&mut self) {
        for (epoch, entries) in std::mem::take(&mut self.inline.outcomes) {
            let written = self.log.try_writer().map(|mut writer| writer.append_outcome(&epoch, &entries));
            match written {
                None => self.log.send(Job::Outcome(epoch, entries)),
                Some(Ok(())) => {}
                Some(Err(error)) => self.write_failed(&error),
            }
        }
    }

    pub(super) fn write_failed(&mut self, error: &LogError) {
        self.inline.failed.get_or_insert_with(|| error.to_string());
        // The log thread ends when it finds that the log has failed.
        self.log.send(Job::MarkIsDue);
    }
}
