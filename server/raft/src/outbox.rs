//! Outputs that were not polled yet, and the number of the sync that makes them durable.

use std::collections::VecDeque;

use tribunal_types::GroupId;

use crate::output::Output;

/// Outputs of all groups.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Messages that may be sent at once: before the writes, so that peers write at the same time.
    sends: VecDeque<Output>,
    rest: VecDeque<Output>,
    /// Number of the next sync.
    number: u64,
    /// Whether pushed outputs have to become durable.
    sync: bool,
}

impl Outbox {
    pub(crate) fn new() -> Self {
        Self { sends: VecDeque::new(), rest: VecDeque::new(), number: 1, sync: false }
    }

    /// Returns the number of the sync that makes outputs pushed now durable.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Requests a sync after the outputs pushed so far.
    pub(crate) fn sync(&mut self) {
        self.sync = true;
    }

    /// Ends a round: one sync for the writes of all groups.
    pub(crate) fn end_round(&mut self) {
        if std::mem::take(&mut self.sync) {
            self.rest.push_back(Output::Sync { number: self.number });
            self.number += 1;
        }
    }

    pub(crate) fn push(&mut self, output: Output) {
        match output {
            Output::Send { .. } | Output::Durable { .. } => self.sends.push_back(output),
            _ => self.rest.push_back(output),
        }
    }

    /// Drops a group's handed-out entries that were not polled: its state machine was replaced.
    pub(crate) fn forget_handed_out(&mut self, of: GroupId) {
        self.rest.retain(|output| match output {
            Output::Committed { group, .. }
            | Output::TermBegun { group, .. }
            | Output::MembersChanged { group, .. } => *group != of,
            _ => true,
        });
    }

    pub(crate) fn pop(&mut self) -> Option<Output> {
        self.sends.pop_front().or_else(|| self.rest.pop_front())
    }
}
