//! The uncommitted batches that this node has proposed, by the entry that each became.
//!
//! An entry of a given term and index has one content, so when it is committed, the batch itself is passed to the
//! replica instead of a copy that would have to be decoded and hashed again. Bounded by the limit on batches in flight:
//! a batch is dropped when its entry is committed, and when it can no longer be.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tribunal_codec::EntryId;
use tribunal_types::{Batch, GroupId};

/// The batches, by group and ascending entry.
#[derive(Debug, Default)]
pub(crate) struct OwnEntries(BTreeMap<GroupId, VecDeque<(EntryId, Arc<Batch>)>>);

impl OwnEntries {
    /// Notes that a batch was accepted as this entry of its group's log.
    pub(crate) fn proposed(&mut self, id: EntryId, batch: Arc<Batch>) {
        self.0.entry(batch.group).or_default().push_back((id, batch));
    }

    /// Returns the batch that became this entry, if it was proposed here. Batches at earlier indices were replaced.
    pub(crate) fn committed(&mut self, group: GroupId, id: EntryId) -> Option<Arc<Batch>> {
        let proposed = self.0.get_mut(&group)?;
        let mut found = None;
        while let Some((known, batch)) = proposed.pop_front_if(|(known, _)| known.index <= id.index) {
            found = (known == id).then_some(batch);
        }
        found
    }

    /// Notes that a term has begun: uncommitted proposals of earlier terms are lost.
    pub(crate) fn term_begun(&mut self, group: GroupId, term: u64) {
        if let Some(proposed) = self.0.get_mut(&group) {
            proposed.retain(|(known, _)| known.term >= term);
        }
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::{Epoch, NodeId};

    use super::*;

    fn group(node: u16) -> GroupId {
        GroupId { node: NodeId(node), ..GroupId::default() }
    }

    fn id(term: u64, index: u64) -> EntryId {
        EntryId { term, index }
    }

    fn entries(of: &[(u64, u64)]) -> OwnEntries {
        let mut entries = OwnEntries::default();
        for &(term, index) in of {
            entries
                .proposed(id(term, index), Arc::new(Batch { group: group(1), last: Epoch(index), ..Batch::default() }));
        }
        entries
    }

    fn left(entries: &OwnEntries) -> usize {
        entries.0.values().map(VecDeque::len).sum()
    }

    #[test]
    fn a_batch_comes_back_with_its_entry_and_with_no_other() {
        let mut entries = entries(&[(3, 7), (3, 8), (3, 10)]);
        let mut came = |of: u16, term, index| entries.committed(group(of), id(term, index)).map(|batch| batch.last.0);
        assert_eq!((came(2, 3, 7), came(1, 3, 6)), (None, None));
        assert_eq!((came(1, 3, 7), came(1, 3, 7)), (Some(7), None), "once");
        assert_eq!(came(1, 4, 8), None, "another leader's entry has its place");
        assert_eq!(came(1, 3, 10), Some(10));
        assert_eq!(left(&entries), 0);
    }

    #[test]
    fn what_can_no_longer_come_is_dropped() {
        let mut entries = entries(&[(3, 7), (3, 8), (5, 12)]);
        assert!(entries.committed(group(1), id(4, 9)).is_none());
        assert_eq!(left(&entries), 1, "the log is past their indices");
        let mut entries = self::entries(&[(3, 7), (3, 8), (5, 12)]);
        entries.term_begun(group(2), 9);
        assert_eq!(left(&entries), 3);
        entries.term_begun(group(1), 5);
        assert_eq!(left(&entries), 1, "term 5 has begun after them");
        assert_eq!(entries.committed(group(1), id(5, 12)).map(|batch| batch.last), Some(Epoch(12)));
    }
}
