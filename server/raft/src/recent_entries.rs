//! The last entries of a group, in memory: entries that are not in the log yet, and some more for peers that need them.

use std::collections::VecDeque;

use raft::eraftpb::Entry;

/// The entries from some index to the last one.
#[derive(Debug)]
pub(crate) struct RecentEntries {
    /// Index of the first entry; of the next one if there are none.
    first: u64,
    entries: VecDeque<Entry>,
    bytes: usize,
}

impl RecentEntries {
    /// Starts without entries; the next one has index `next`.
    pub(crate) fn new(next: u64) -> Self {
        Self { first: next, entries: VecDeque::new(), bytes: 0 }
    }

    /// Returns the index of the last entry, wherever it is stored.
    pub(crate) fn last(&self) -> u64 {
        self.first + self.entries.len() as u64 - 1
    }

    pub(crate) fn get(&self, index: u64) -> Option<&Entry> {
        self.entries.get(usize::try_from(index.checked_sub(self.first)?).ok()?)
    }

    /// Adds an entry, replacing the entry at its index and all later ones. It must leave no gap.
    pub(crate) fn push(&mut self, entry: Entry) {
        assert!(entry.index <= self.last() + 1, "entry {} would leave a gap after {}", entry.index, self.last());
        while !self.entries.is_empty() && self.last() >= entry.index {
            self.bytes -= self.entries.pop_back().map_or(0, |entry| size(&entry));
        }
        if self.entries.is_empty() {
            self.first = entry.index;
        }
        self.bytes += size(&entry);
        self.entries.push_back(entry);
    }

    /// Drops entries up to `upto`, which are in the log, until the rest takes at most `bytes_max` bytes.
    pub(crate) fn shrink(&mut self, upto: u64, bytes_max: usize) {
        while self.bytes > bytes_max && self.first <= upto {
            let Some(entry) = self.entries.pop_front() else { return };
            self.bytes -= size(&entry);
            self.first += 1;
        }
    }
}

/// Returns the bytes charged for an entry.
pub(crate) fn size(entry: &Entry) -> usize {
    entry.data.len() + 32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        let mut entry = Entry::default();
        (entry.index, entry.term, entry.data) = (index, term, vec![0; 68].into());
        entry
    }

    #[test]
    fn a_suffix_is_replaced_also_below_the_first_one_that_is_kept() {
        let mut recent = RecentEntries::new(5);
        (5..=8).for_each(|index| recent.push(entry(index, 1)));
        recent.push(entry(7, 2));
        assert_eq!((recent.last(), recent.get(7).unwrap().term, recent.get(8)), (7, 2, None));
        recent.push(entry(3, 3));
        assert_eq!((recent.first, recent.last(), recent.get(5)), (3, 3, None));
        assert_eq!(recent.bytes, 100);
    }

    #[test]
    fn only_what_is_in_the_log_is_dropped() {
        let mut recent = RecentEntries::new(1);
        (1..=8).for_each(|index| recent.push(entry(index, 1)));
        recent.shrink(3, 0);
        assert_eq!((recent.first, recent.last(), recent.bytes), (4, 8, 500));
        recent.shrink(8, 200);
        assert_eq!((recent.first, recent.last()), (7, 8));
        recent.shrink(8, 0);
        assert_eq!((recent.first, recent.last(), recent.get(8)), (9, 8, None));
    }
}
