//! Group entries that were copied from a peer before this node's own log has them: which record contains which entry,
//! so that an epoch decided from one can name it.
//!
//! A copy is forgotten when the log gains the entry, when an epoch is decided from it or from a later one of its group,
//! and at a restart: entries that are undecided then are received again. Must never serve as the log of a Raft group.

use std::collections::BTreeMap;

use tribunal_codec::EntryId;
use tribunal_types::GroupId;

/// The copied entries: by group and index, the term of each and the sequence of its record.
#[derive(Debug, Default)]
pub(crate) struct Copies(BTreeMap<(GroupId, u64), (u64, u64)>);

impl Copies {
    /// Notes that the record with this sequence contains a copy of an entry.
    pub(crate) fn note(&mut self, group: GroupId, id: EntryId, sequence: u64) {
        self.0.insert((group, id.index), (id.term, sequence));
    }

    /// Returns the sequence of the record with a copy of this entry.
    pub(crate) fn sequence(&self, group: GroupId, index: u64) -> Option<u64> {
        self.0.get(&(group, index)).map(|(_, sequence)| *sequence)
    }

    /// Notes that the log now contains an entry. An entry of another term at the same index is uncommitted, and will be
    /// replaced.
    pub(crate) fn gained(&mut self, group: GroupId, id: EntryId) {
        if self.0.get(&(group, id.index)).is_some_and(|(term, _)| *term == id.term) {
            self.0.remove(&(group, id.index));
        }
    }

    /// Notes that an epoch was decided from these entries: no later epoch needs them, nor any earlier entry of their
    /// groups.
    pub(crate) fn decided(&mut self, entries: &[(GroupId, u64)]) {
        for (group, index) in entries {
            while let Some(copy) = self.0.range((*group, 0)..=(*group, *index)).next().map(|(copy, _)| *copy) {
                self.0.remove(&copy);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::NodeId;

    use super::*;

    #[test]
    fn a_copy_is_forgotten_when_it_is_decided_or_gained() {
        let [one, two] = [1, 2].map(|node| GroupId { node: NodeId(node), ..GroupId::default() });
        let id = |term, index| EntryId { term, index };
        let mut copies = Copies::default();
        for (group, index, sequence) in [(one, 4, 10), (one, 5, 11), (one, 6, 12), (two, 4, 13), (two, 9, 14)] {
            copies.note(group, id(3, index), sequence);
        }
        assert_eq!((copies.sequence(one, 5), copies.sequence(two, 5)), (Some(11), None));
        copies.decided(&[(one, 5), (two, 3)]);
        assert_eq!((copies.sequence(one, 4), copies.sequence(one, 5), copies.sequence(one, 6)), (None, None, Some(12)));
        copies.gained(two, id(2, 4));
        assert_eq!(copies.sequence(two, 4), Some(13), "the log has another entry there, which is not committed");
        copies.gained(two, id(3, 4));
        copies.gained(two, id(3, 5));
        assert_eq!((copies.sequence(two, 4), copies.sequence(two, 9)), (None, Some(14)));
        copies.decided(&[(one, 7), (two, 9)]);
        assert!(copies.0.is_empty());
    }
}
