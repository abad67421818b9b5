//! Reads of this node that wait for their index.
//!
//! The raft-rs context of a read must differ from that of any other read that its leader may still remember: the leader
//! would answer the later read with the index of the earlier. So it consists of the node, the start and a number, never
//! of the caller's context.
//!
//! A leader need not be the first to know what is committed (see `durability.rs`), so a read waits for the leader's
//! last entry at the time of its answer: every entry known to any node as committed before the read began is at or
//! below it. raft-rs's answer has the leader's commit index, and commits up to it; the last entry is sent beside it.

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
    /// The caller's context.
    context: u64,
    /// The leader's last entry, if the leader is another node and has reported it.
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

    /// Adds a read; returns its name.
    pub(crate) fn add(&mut self, context: u64) -> Vec<u8> {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, Waiting { context, last: None });
        [&self.name[..], &number.to_le_bytes()].concat()
    }

    /// Notes the last entry in a leader's answer, which it contains beside its commit index.
    pub(crate) fn note_last(&mut self, answer: &Message) {
        let number = answer.entries.first().and_then(|entry| self.number(&entry.data));
        if let Some(waiting) = number.and_then(|number| self.waiting.get_mut(&number)) {
            waiting.last = Some(answer.commit);
        }
    }

    /// Removes the read with this name; returns its context, and the leader's last entry if reported.
    pub(crate) fn take(&mut self, name: &[u8]) -> Option<(u64, Option<u64>)> {
        let waiting = self.waiting.remove(&self.number(name)?)?;
        Some((waiting.context, waiting.last))
    }

    /// Removes all reads; returns their contexts.
    pub(crate) fn take_all(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.waiting).into_values().map(|waiting| waiting.context).collect()
    }

    fn number(&self, name: &[u8]) -> Option<u64> {
        Some(u64::from_le_bytes(name.strip_prefix(&self.name)?.try_into().ok()?))
    }
}
