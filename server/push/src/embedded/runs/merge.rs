//! Several runs read as one, in key order, and which of them are worth becoming one.

use super::entry::Entry;
use super::run::Cursor;
use crate::embedded::EmbeddedError;

/// As many runs are merged at least: fewer would write the same rows more often.
const MERGE_RUNS_MIN: usize = 4;

/// Walks several runs; the newest that knows a key decides. Deleted rows are among its entries.
pub(in crate::embedded) struct RunMerge {
    /// Newest first.
    cursors: Vec<Cursor>,
    /// The cursor at the smallest key, the newest of those.
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

    /// Returns the entry with the smallest key that is left.
    pub(in crate::embedded) fn entry(&self) -> Option<Entry<'_>> {
        self.winner.and_then(|winner| self.cursors[winner].entry())
    }

    /// Moves past the present key in all runs.
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

/// Returns how many of the newest runs to merge, given the sizes of all, newest first; 0 for none.
///
/// A run joins if it is at most twice as large as all newer ones together, so that sizes grow geometrically from the
/// newest to the oldest: a store of *n* times the memory has about 3 log6 *n* runs.
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

#[cfg(test)]
mod tests {
    use super::*;

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
