//! The client's knowledge of the rows: the newest version (and, for the bank, balance) that it has received.
//!
//! Versions come from two sources: the `version` of the client's own commits, and `current_version` in conflicts. A
//! late reply never replaces a version with an older one. This is a cache as an engine would keep it, so an abort for a
//! stale read is a real abort: another transaction committed in between, or its reply is still in flight.

use std::collections::BTreeMap;

use crate::key::{self, Row};
use crate::plan::Scan;

/// Newest known state by row.
#[derive(Debug)]
pub struct RowModel {
    versions: Vec<u64>,
    balances: Vec<i64>,
    /// Versions of inserted rows, in key order.
    inserted: BTreeMap<(Row, Row), u64>,
    last_epoch: u64,
    /// Commits with pending verdicts, by the newest epoch that was known when they were posted.
    under_way: BTreeMap<u64, usize>,
}

/// The versions that a transaction claims to have read.
pub trait Versions {
    /// Returns a row's version; `None` if the row is believed absent.
    fn version(&self, row: Row) -> Option<u64>;

    /// Returns the newest epoch known to have a commit: the snapshot that the client may claim.
    fn last_epoch(&self) -> u64;

    /// Returns the last row that a scan found; `None` if it reached the end of the rows.
    fn last_of(&self, scan: Scan) -> Option<Row>;

    /// Returns the epoch that scans reflect: all of its commits, and perhaps some of later epochs.
    fn scanned_at(&self) -> u64;
}

impl Versions for RowModel {
    fn version(&self, row: Row) -> Option<u64> {
        let version = if key::is_inserted(row) {
            self.inserted.get(&key::order(row)).copied()
        } else {
            Some(self.versions[row as usize])
        };
        version.filter(|version| *version != 0)
    }

    fn last_epoch(&self) -> u64 {
        self.last_epoch
    }

    fn last_of(&self, scan: Scan) -> Option<Row> {
        let (mut next, mut left) = (scan.start, scan.count);
        for (place, nth) in self.inserted.range((scan.start, 0)..).map(|(order, _)| *order) {
            let loaded_before = place + 1 - next;
            if left <= loaded_before {
                break;
            }
            left -= loaded_before + 1;
            if left == 0 {
                return Some(key::inserted(place, nth));
            }
            next = place + 1;
        }
        let last = next + left - 1;
        ((last as usize) < self.versions.len()).then_some(last)
    }

    /// A commit in flight is in a later epoch than the newest one known when it was posted, because every verdict
    /// precedes the requests posted after it. So all commits up to the oldest of these epochs are known.
    fn scanned_at(&self) -> u64 {
        self.under_way.first_key_value().map_or(self.last_epoch, |(epoch, _)| *epoch)
    }
}

impl RowModel {
    /// Creates a model that knows no version of `rows` rows, each with `balance`.
    #[must_use]
    pub fn new(rows: usize, balance: i64) -> RowModel {
        RowModel {
            versions: vec![0; rows],
            balances: vec![balance; rows],
            inserted: BTreeMap::new(),
            last_epoch: 0,
            under_way: BTreeMap::new(),
        }
    }

    /// Returns the balance at the newest known version.
    #[must_use]
    pub fn balance(&self, row: Row) -> i64 {
        self.balances[row as usize]
    }

    /// Records one of the client's own commits.
    pub fn committed(&mut self, epoch: u64, version: u64, writes: &[(Row, i64)]) {
        self.reached(epoch);
        for (row, balance) in writes {
            if key::is_inserted(*row) {
                self.conflicting(*row, version);
                continue;
            }
            let known = &mut self.versions[*row as usize];
            if version > *known {
                *known = version;
                self.balances[*row as usize] = *balance;
            }
        }
    }

    /// Records a version that a conflict named. Rows outside the model are not ours and are ignored.
    pub fn conflicting(&mut self, row: Row, version: u64) {
        let known = if key::is_inserted(row) {
            Some(self.inserted.entry(key::order(row)).or_default())
        } else {
            self.versions.get_mut(row as usize)
        };
        if let Some(known) = known {
            *known = version.max(*known);
        }
    }

    /// Records that an epoch is complete: later commits are in later epochs.
    pub fn reached(&mut self, epoch: u64) {
        self.last_epoch = self.last_epoch.max(epoch);
    }

    /// Records that a commit is posted. Pass the result to [`RowModel::answered`].
    pub fn posted(&mut self) -> u64 {
        *self.under_way.entry(self.last_epoch).or_default() += 1;
        self.last_epoch
    }

    /// Records that a commit's verdict has arrived; call it after its information has been recorded.
    pub fn answered(&mut self, posted: u64) {
        if let Some(count) = self.under_way.get_mut(&posted) {
            *count -= 1;
            if *count == 0 {
                self.under_way.remove(&posted);
            }
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

    #[test]
    fn scans_find_loaded_and_inserted_rows_in_key_order() {
        let mut model = RowModel::new(10, 0);
        let new = [key::inserted(3, 1), key::inserted(3, 2), key::inserted(5, 1), key::inserted(9, 1)];
        for (version, row) in (1..).zip(new) {
            model.committed(version, version, &[(row, 0)]);
        }
        assert_eq!(model.version(new[2]), Some(3));
        assert_eq!(model.version(key::inserted(4, 1)), None);
        let sorted = [2, 3, new[0], new[1], 4, 5, new[2], 6, 7, 8, 9, new[3]];
        for (count, row) in (1..).zip(sorted) {
            assert_eq!(model.last_of(Scan { start: 2, count }), Some(row), "{count} rows");
        }
        assert_eq!(model.last_of(Scan { start: 2, count: 13 }), None);
        assert_eq!(RowModel::new(10, 0).last_of(Scan { start: 2, count: 8 }), Some(9));
        assert_eq!(RowModel::new(10, 0).last_of(Scan { start: 2, count: 9 }), None);
    }

    #[test]
    fn a_scan_reflects_no_epoch_that_a_commit_under_way_may_be_in() {
        let mut model = RowModel::new(1, 0);
        model.reached(4);
        let (slow, fast) = (model.posted(), model.posted());
        model.committed(6, 60, &[(0, 0)]);
        model.answered(fast);
        assert_eq!((model.last_epoch(), model.scanned_at()), (6, 4), "the slow one may be in epoch 5");
        let next = model.posted();
        model.answered(slow);
        assert_eq!(model.scanned_at(), 6);
        model.answered(next);
        model.reached(9);
        assert_eq!(model.scanned_at(), 9);
    }
}
