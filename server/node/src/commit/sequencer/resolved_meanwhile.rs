//! Resolves an epoch while the log thread makes its batch durable, if the sequencer would otherwise only wait (decision
//! 134).
//!
//! Invariant: nothing of the epoch leaves the sequencer before its batch is durable. The first effect that follows from the
//! batch is held, no other event is processed meanwhile, and if the batch may not be durable, the process ends.

use std::sync::Arc;

use crossbeam_channel::Receiver;
use tribunal_member::Output;
use tribunal_replica::{Answer, Effect, Event, Imported};
use tribunal_types::Batch;

use super::Sequencer;
use crate::commit::decider::Decider;
use crate::commit::waiters::Channels;

/// Number of transactions from which on it takes longer to resolve a batch than to switch threads twice.
const TXNS_MIN: usize = 16;

/// Receives nothing once a batch is durable, or why that is in doubt.
pub(super) type Durable = Receiver<Result<(), String>>;

impl Sequencer {
    /// Hands a batch to the log thread if it is worthwhile to resolve it meanwhile. A member resolves nothing before a
    /// majority has it.
    pub(super) fn append_meanwhile(&self, batch: &Arc<Batch>) -> Option<Durable> {
        let is_worthwhile = batch.txns.len() >= TXNS_MIN && matches!(self.decider, Decider::Alone(_));
        is_worthwhile.then(|| self.log.append_awaited(batch)).flatten()
    }

    /// Resolves a batch, and publishes its epoch once it is durable.
    pub(super) fn resolve_meanwhile(&mut self, batch: Arc<Batch>, durable: &Durable) {
        let now = self.now();
        self.decider.step(Event::Entry(batch), now);
        let held = self.first_effect();
        let took = self.started.elapsed() - now.monotonic;
        match durable.recv().unwrap_or_else(|_| Err("the log thread has ended".to_owned())) {
            Ok(()) => {
                // Both ended at the same time: the sync is shown as what it took beyond the resolution.
                self.inline.durable_at = self.started.elapsed() - took;
                held.into_iter().for_each(|output| self.carry_out(output));
                self.follow();
            }
            Err(reason) => {
                held.into_iter().for_each(|output| self.answer_unknown(output));
                while let Some(effect) = self.decider.replica_mut().poll_ready() {
                    self.answer_unknown(Output::Effect(effect));
                }
                self.inline.failed.get_or_insert(reason);
            }
        }
    }

    /// Returns the first effect that depends on the batch: the epoch, or a change that precedes it. The next batch may be
    /// appended at once.
    fn first_effect(&mut self) -> Option<Output<Channels>> {
        while let Some(output) = self.decider.poll_urgent() {
            match output {
                Output::Effect(Effect::Append(_)) => self.carry_out(output),
                output => return Some(output),
            }
        }
        None
    }

    /// Answers the waiters of an effect whose batch may not be durable. A waiter of any other effect is told the same when its
    /// reply is dropped.
    fn answer_unknown(&mut self, output: Output<Channels>) {
        match output {
            Output::Decided { decided, .. } => {
                let Some(own) = decided.own else { return };
                let import = own.items.answer_all(Answer::Unknown, |waiter, answer, spent| {
                    self.carry_out(Output::Effect(Effect::Answer(waiter, answer, spent)));
                });
                if let Some(waiter) = import {
                    self.carry_out(Output::Effect(Effect::Imported(waiter, Imported::Unknown)));
                }
            }
            Output::Effect(Effect::Answer(waiter, _, spent)) => {
                self.carry_out(Output::Effect(Effect::Answer(waiter, Answer::Unknown, spent)));
            }
            _ => {}
        }
    }
}
