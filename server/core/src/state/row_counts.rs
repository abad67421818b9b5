//! The number of existing rows of each tracked store; only writes, imports and deletions change it. Affects no
//! decision; used for quotas.
//!
//! Each shard counts its own changes. An image contains the sum over all shards, which one shard takes over on restore:
//! so the count of a single shard is meaningless, and may be negative.

use alloc::vec::Vec;

use tribunal_types::StoreId;

/// Rows by store, in ascending order of store; there are few.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowCounts {
    counts: Vec<(StoreId, i64)>,
}

impl RowCounts {
    pub(crate) fn add(&mut self, store: StoreId, rows: i64) {
        match self.position(store) {
            Ok(at) => self.counts[at].1 = self.counts[at].1.saturating_add(rows),
            Err(at) => self.counts.insert(at, (store, rows)),
        }
    }

    fn position(&self, store: StoreId) -> Result<usize, usize> {
        self.counts.binary_search_by_key(&store, |(store, _)| *store)
    }

    pub(crate) fn of(&self, store: StoreId) -> i64 {
        self.position(store).map_or(0, |at| self.counts[at].1)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (StoreId, i64)> {
        self.counts.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_by_store() {
        let mut counts = RowCounts::default();
        for (store, rows) in [(5, 1), (2, -1), (5, 1), (9, 4)] {
            counts.add(StoreId(store), rows);
        }
        assert!(counts.iter().eq([(StoreId(2), -1), (StoreId(5), 2), (StoreId(9), 4)]));
        assert_eq!((counts.of(StoreId(9)), counts.of(StoreId(1))), (4, 0));
    }
}
