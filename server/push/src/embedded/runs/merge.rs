//! Merges several runs in key order, and chooses the runs that are worth merging.

use super::entry::Entry;
use super::run::Cursor;
use crate::embedded::EmbeddedError;

/// Minimum number of runs to merge: with fewer, rows would be rewritten more often.
const MERGE_RUNS_MIN: usize = 4;
/// A compaction is worthwhile once the newer rows are at least one part in this many of the oldest run's.
const COMPACTED_PART: u64 = 8;

/// Iterates over several runs in key order; the newest run that contains a key wins. Includes deleted rows.
pub(in crate::embedded) struct RunMerge {
    /// Cursors, newest run first.
    cursors: Vec<Cursor>,
    /// The newest of the cursors at the smallest key.
    winner: Option<usize>,
    key: Vec<u8>,
}

impl RunMerge {
    pub(super) fn new(cursors: Vec<Cursor>) -> Self {
        let mut merge = RunMerge { cursors, winner: None, key: Vec::new() };
        merge.find();
        merge
    }

    fn find(&mut self) {
        let keys = self.cursors.iter().enumerate().filter_map(|(i, cursor)| cursor.entry().map(|e| (e.key, i)));
        self.winner = keys.min().map(|(_, i)| i);
    }

    /// Returns the current entry: the one with the smallest remaining key.
    pub(in crate::embedded) fn entry(&self) -> Option<Entry<'_>> {
        self.winner.and_then(|winner| self.cursors[winner].entry())
    }

    /// Moves all cursors past the current key.
    pub(in crate::embedded) fn advance(&mut self) -> Result<(), EmbeddedError> {
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        key.extend_from_slice(self.entry().map_or(&[], |entry| entry.key));
        for cursor in &mut self.cursors {
            if cursor.entry().is_some_and(|entry| entry.key == key) {
                cursor.advance()?;
            }
        }
        self.key = key;
        self.find();
        Ok(())
    }
}

/// Returns how many of the newest runs to merge, or 0. `bytes` are the sizes of all runs, newest first.
///
/// A run is included if it is at most twice as large as all newer ones together. So sizes grow geometrically from the
/// newest to the oldest, and a store of *n* times the memory has about 3 log6 *n* runs.
pub(super) fn worth_merging(bytes: impl IntoIterator<Item = u64>) -> usize {
    let (mut newer, mut count) = (0, 0);
    for bytes in bytes {
        if count > 0 && bytes > 2 * newer {
            break;
        }
        newer += bytes;
        count += 1;
    }
    if count >= MERGE_RUNS_MIN { count } else { 0 }
}

/// Returns whether merging all runs is worthwhile to free room, given the number of rows in the oldest run and of those
/// that are newer.
///
/// Each newer row, deleted ones included, may hide one of the oldest run, so the merge frees up to that part of it. Rows
/// are counted instead of bytes because a deleted row hides a whole row and is itself small.
pub(in crate::embedded) fn worth_compacting(newer: u64, oldest: u64) -> bool {
    newer > 0 && newer.saturating_mul(COMPACTED_PART) >= oldest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_changes_to_many_rows_are_not_worth_a_compaction() {
        for (newer, oldest, worthwhile) in
            [(0, 0, false), (0, 100, false), (1, 0, true), (12, 100, false), (13, 100, true), (u64::MAX, 1, true)]
        {
            assert_eq!(worth_compacting(newer, oldest), worthwhile, "{newer} {oldest}");
        }
    }

    #[test]
    fn runs_stay_few_and_rows_are_rewritten_rarely() {
        let (mut runs, mut rewritten, mut most): (Vec<u64>, u64, usize) = (Vec::new(), 0, 0);
        for _ in 0..1000 {
            runs.insert(0, 1);
            let count = worth_merging(runs.iter().copied());
            if count > 0 {
                let merged = runs.drain(..count).sum();
                rewritten += merged;
                runs.insert(0, merged);
            }
            most = most.max(runs.len());
        }
        assert_eq!(runs.iter().sum::<u64>(), 1000);
        assert!(most <= 12, "{most} runs at most");
        assert!(rewritten <= 1000 * 10, "each row is written {} times", 1 + rewritten / 1000);
    }
}
