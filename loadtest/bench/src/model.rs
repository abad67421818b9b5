//! What the client knows of the rows: the newest version (and, for the bank, balance) it has been told of.
//!
//! Versions come from two places: the `version` of the client's own commits, and `current_version` in conflicts.
//! A reply that arrives late never takes a version back. This is a cache as an engine would keep one, so an abort
//! for a stale read is a real abort: another transaction committed in between, or its reply is still under way.

/// A row's number within the workload.
pub type Row = u32;

/// Newest known state by row.
#[derive(Debug)]
pub struct RowModel {
    versions: Vec<u64>,
    balances: Vec<i64>,
    last_epoch: u64,
}

/// What a transaction says that it has read.
pub trait Versions {
    /// Returns a row's version; `None` if the row is believed absent.
    fn version(&self, row: Row) -> Option<u64>;

    /// Returns the newest epoch that a commit was told to be in: the snapshot that the client may claim.
    fn last_epoch(&self) -> u64;
}

impl Versions for RowModel {
    fn version(&self, row: Row) -> Option<u64> {
        Some(self.versions[row as usize]).filter(|version| *version != 0)
    }

    fn last_epoch(&self) -> u64 {
        self.last_epoch
    }
}

impl RowModel {
    /// Makes a model that knows no version of `rows` rows, each with `balance`.
    #[must_use]
    pub fn new(rows: usize, balance: i64) -> RowModel {
        RowModel { versions: vec![0; rows], balances: vec![balance; rows], last_epoch: 0 }
    }

    /// Returns the balance that belongs to the newest known version.
    #[must_use]
    pub fn balance(&self, row: Row) -> i64 {
        self.balances[row as usize]
    }

    /// Takes in a commit of the client's own.
    pub fn committed(&mut self, epoch: u64, version: u64, writes: &[(Row, i64)]) {
        self.last_epoch = self.last_epoch.max(epoch);
        for (row, balance) in writes {
            let known = &mut self.versions[*row as usize];
            if version > *known {
                *known = version;
                self.balances[*row as usize] = *balance;
            }
        }
    }

    /// Takes in a version that a conflict named. Rows outside the model are not ours and are ignored.
    pub fn conflicting(&mut self, row: usize, version: u64) {
        if let Some(known) = self.versions.get_mut(row) {
            *known = version.max(*known);
        }
    }

    /// Returns the sum of all balances.
    #[must_use]
    pub fn total(&self) -> i64 {
        self.balances.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_reply_reverts_nothing() {
        let mut model = RowModel::new(2, 100);
        assert_eq!(model.version(0), None);
        model.committed(5, 50, &[(0, 90), (1, 110)]);
        model.committed(4, 40, &[(0, 70), (1, 130)]);
        assert_eq!((model.version(0), model.balance(0), model.last_epoch()), (Some(50), 90, 5));
        model.conflicting(1, 45);
        assert_eq!(model.version(1), Some(50));
        model.conflicting(1, 60);
        assert_eq!(model.version(1), Some(60));
        model.conflicting(9, 60);
        assert_eq!(model.total(), 200);
    }
}
