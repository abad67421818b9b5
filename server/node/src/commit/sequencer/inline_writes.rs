//! What the sequencer writes on its own thread: a batch, when nothing else is there to do, and the outcome after it (decision 77).

use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use tribunal_log::LogError;
use tribunal_replica::Event;
use tribunal_types::{Batch, GroupId};

use super::Sequencer;
use crate::commit::epoch_cache::ResolvedEpoch;
use crate::commit::log_thread::Job;
use crate::commit::message::Message;

/// Questions of clients do not wait for a disk: if one has come within this time, the log thread writes.
const QUESTIONS_WITHIN: Duration = Duration::from_millis(10);

/// What is written inline now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Nothing.
    #[default]
    Nothing,
    /// The next batch.
    Batch,
    /// The outcome of that batch.
    Outcome,
}

/// Writes that are due on this thread.
#[derive(Default)]
pub(super) struct InlineWrites {
    pub(super) allowed: Allowed,
    pub(super) batch: Option<Arc<Batch>>,
    /// With the entries that each was decided from, if there are several groups.
    pub(super) outcomes: Vec<(Arc<ResolvedEpoch>, Vec<(GroupId, u64)>)>,
    /// Why durability is in doubt, after a write that failed.
    pub(super) failed: Option<String>,
}

impl Sequencer {
    /// Lets the replica seal what is due, and writes the batch here if nothing else is there to do.
    pub(super) fn tick(&mut self, messages: &Receiver<Message>) {
        let busy = self.was_asked() || !messages.is_empty();
        self.inline.allowed = if busy { Allowed::Nothing } else { Allowed::Batch };
        self.step(Event::Tick);
        if let Some(batch) = self.inline.batch.take() {
            self.inline.allowed = Allowed::Outcome;
            self.write_batch(batch);
        }
        self.inline.allowed = Allowed::Nothing;
    }

    /// Returns whether a client has asked something lately.
    pub(super) fn was_asked(&self) -> bool {
        self.asked_at.is_some_and(|at| at.elapsed() < QUESTIONS_WITHIN)
    }

    /// Writes a batch, unless a job waits for the log or the disk is slow: then the log thread does.
    fn write_batch(&mut self, batch: Arc<Batch>) {
        let written = self.log.try_writer().filter(|writer| writer.syncs_fast()).map(|mut writer| {
            let mark_was_due = writer.mark_due_since.is_some();
            writer.append(&batch).map(|()| mark_was_due)
        });
        match written {
            None => self.log.send(Job::Append(batch)),
            Some(Ok(mark_was_due)) => {
                self.take_queued();
                self.step(Event::Entry(batch));
                if !mark_was_due {
                    // After the answers: nobody waits for the mark.
                    self.log.send(Job::MarkIsDue);
                }
            }
            Some(Err(error)) => self.write_failed(&error),
        }
    }

    /// Notes what epochs decided, after everybody was told: here, or on the log thread if a job waits.
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
        // It ends when it finds that the log has failed.
        self.log.send(Job::MarkIsDue);
    }
}
