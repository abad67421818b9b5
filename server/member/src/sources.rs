//! Tracks which group entries an epoch was decided from, so that readers of the log find its input.
//!
//! The fold determines which of a group's entries count. It delivers batches in the order of the group's log, so
//! entries before a delivered one are void.

use std::collections::{BTreeMap, VecDeque};

use tribunal_types::{Batch, Csn, EpochInput, GroupId};

/// Committed entries with items that are in no decided epoch yet.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    waiting: BTreeMap<GroupId, VecDeque<Waiting>>,
    /// Total bytes of these entries.
    bytes: usize,
}

/// A pending entry.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    proposal: Csn,
    /// Index in the group's log.
    index: u64,
    bytes: usize,
}

impl Sources {
    /// Notes that a batch is entry `index` of its group, with this length.
    pub(crate) fn agreed(&mut self, batch: &Batch, index: u64, bytes: usize) {
        if !batch.is_empty() {
            self.bytes += bytes;
            self.waiting.entry(batch.group).or_default().push_back(Waiting {
                proposal: batch.proposal(),
                index,
                bytes,
            });
        }
    }

    /// Returns the bytes of the entries that wait to be decided.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns group and index of the entry of each of an epoch's batches, in batch order.
    pub(crate) fn take(&mut self, input: &EpochInput) -> Vec<(GroupId, u64)> {
        let found = input.batches.iter().filter_map(|batch| Some((batch.group, self.take_one(batch)?)));
        found.collect()
    }

    fn take_one(&mut self, batch: &Batch) -> Option<u64> {
        let waiting = self.waiting.get_mut(&batch.group)?;
        while let Some(next) = waiting.pop_front() {
            self.bytes -= next.bytes;
            if next.proposal == batch.proposal() {
                return Some(next.index);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tribunal_types::{Epoch, FenceItem, NamespaceId, NodeId, TxnId};

    use super::*;

    fn batch(node: u16, stamp_us: u64) -> Arc<Batch> {
        let group = GroupId { node: NodeId(node), ..GroupId::default() };
        let fences = vec![FenceItem { id: TxnId([9; 16]), namespace: NamespaceId(1) }];
        Arc::new(Batch { group, stamp_us, fences, ..Batch::default() })
    }

    #[test]
    fn an_epoch_has_the_first_entry_of_each_proposal_and_void_ones_are_passed_over() {
        let mut sources = Sources::default();
        let (one, void, two) = (batch(1, 10), batch(1, 20), batch(2, 5));
        for (batch, index) in [(&one, 3), (&two, 4), (&one, 4), (&void, 5)] {
            sources.agreed(batch, index, 100);
        }
        sources.agreed(&Batch { fences: Vec::new(), ..batch(2, 6).as_ref().clone() }, 5, 100);
        let last = batch(1, 30);
        sources.agreed(&last, 6, 100);
        assert_eq!(sources.bytes(), 500, "empty ones wait for nothing");
        let mut take = |batches: &[&Arc<Batch>]| {
            let batches = batches.iter().map(|batch| Arc::clone(batch)).collect();
            sources.take(&EpochInput { epoch: Epoch(1), epoch_time_ms: 1, batches })
        };
        assert_eq!(take(&[&one, &two]), [(one.group, 3), (two.group, 4)]);
        assert_eq!(take(&[&last]), [(last.group, 6)]);
        assert!(sources.waiting.values().all(VecDeque::is_empty));
        assert_eq!(sources.bytes(), 0);
    }
}
