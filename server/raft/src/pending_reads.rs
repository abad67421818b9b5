//! Reads of this node that wait for their index.
//!
//! What raft-rs carries for a read must be unlike that of any other that its leader may still know: it would answer the
//! later one with the index of the earlier. So it is the node, the start and a number, never what the caller gave.
//!
//! A leader need not be the first to know what is committed (see `durability.rs`), so a read waits for the last entry that the leader
//! had when it answered: what anybody knew to be committed before the read began is up to there. raft-rs's answer has the
//! leader's commit index, and commits up to it; the last entry travels beside it.

use std::collections::BTreeMap;

use raft::eraftpb::Message;
use tribunal_types::NodeId;

use crate::message::CONTEXT_BYTES_MAX;
use crate::settings::READS_PENDING_MAX;

const NAME_BYTES: usize = 16;
const _: () = assert!(NAME_BYTES + 8 <= CONTEXT_BYTES_MAX);

/// The reads of one group.
#[derive(Debug)]
pub(crate) struct PendingReads {
    name: [u8; NAME_BYTES],
    next: u64,
    waiting: BTreeMap<u64, Waiting>,
}

/// A read.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    /// As the caller gave it.
    context: u64,
    /// The last entry of the leader, if the leader is another node and has told it.
    last: Option<u64>,
}

impl PendingReads {
    pub(crate) fn new(node: NodeId, start: u64) -> Self {
        let mut name = [0; NAME_BYTES];
        name[..8].copy_from_slice(&u64::from(node.0).to_le_bytes());
        name[8..].copy_from_slice(&start.to_le_bytes());
        Self { name, next: 0, waiting: BTreeMap::new() }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= READS_PENDING_MAX
    }

    /// Adds a read; returns what names it.
    pub(crate) fn add(&mut self, context: u64) -> Vec<u8> {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, Waiting { context, last: None });
        [&self.name[..], &number.to_le_bytes()].concat()
    }

    /// Notes what a leader's answer tells beside its commit index.
    pub(crate) fn note_last(&mut self, answer: &Message) {
        let number = answer.entries.first().and_then(|entry| self.number(&entry.data));
        if let Some(waiting) = number.and_then(|number| self.waiting.get_mut(&number)) {
            waiting.last = Some(answer.commit);
        }
    }

    /// Removes the read of this name; returns its context, and the leader's last entry if the leader has told it.
    pub(crate) fn take(&mut self, name: &[u8]) -> Option<(u64, Option<u64>)> {
        let waiting = self.waiting.remove(&self.number(name)?)?;
        Some((waiting.context, waiting.last))
    }

    /// Removes all; returns their contexts.
    pub(crate) fn take_all(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.waiting).into_values().map(|waiting| waiting.context).collect()
    }

    fn number(&self, name: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(name.strip_prefix(&self.name)?.try_into().ok()?))
    }
}
