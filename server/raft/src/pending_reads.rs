//! Reads of this node that wait for their index.
//!
//! What raft-rs carries for a read must be unlike that of any other that its leader may still know: it would answer the
//! later one with the index of the earlier. So it is the node, the start and a number, never what the caller gave.

use std::collections::BTreeMap;

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
    contexts: BTreeMap<u64, u64>,
}

impl PendingReads {
    pub(crate) fn new(node: NodeId, start: u64) -> Self {
        let mut name = [0; NAME_BYTES];
        name[..8].copy_from_slice(&u64::from(node.0).to_le_bytes());
        name[8..].copy_from_slice(&start.to_le_bytes());
        Self { name, next: 0, contexts: BTreeMap::new() }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.contexts.len() >= READS_PENDING_MAX
    }

    /// Adds a read; returns what names it.
    pub(crate) fn add(&mut self, context: u64) -> Vec<u8> {
        let number = self.next;
        self.next += 1;
        self.contexts.insert(number, context);
        [&self.name[..], &number.to_le_bytes()].concat()
    }

    /// Removes the read of this name; returns its context.
    pub(crate) fn take(&mut self, name: &[u8]) -> Option<u64> {
        let number = name.strip_prefix(&self.name)?;
        self.contexts.remove(&u64::from_le_bytes(number.try_into().ok()?))
    }

    /// Removes all; returns their contexts.
    pub(crate) fn take_all(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.contexts).into_values().collect()
    }
}
