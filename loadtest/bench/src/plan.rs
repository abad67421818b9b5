//! One transaction of a workload.

use crate::key::Row;

/// A transaction's operation on one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Put of a random string.
    Text,
    /// Insert of a random string in a row that no other transaction inserts.
    Insert,
    /// Put of a balance.
    Balance(i64),
    /// Add of one.
    AddOne,
}

/// A read of rows that are adjacent in key order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The first row: a loaded one.
    pub start: Row,
    /// Maximum number of rows.
    pub count: u32,
}

/// One transaction to post.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Rows read, at the versions that the model knows.
    pub reads: Vec<Row>,
    /// Ranges read, before anything is written.
    pub scans: Vec<Scan>,
    /// Rows written.
    pub writes: Vec<(Row, Change)>,
}

impl Plan {
    /// Yields the rows that are inserted.
    pub fn inserts(&self) -> impl Iterator<Item = Row> {
        self.writes.iter().filter(|(_, change)| *change == Change::Insert).map(|(row, _)| *row)
    }
}
