//! Reads of embedded stores: several rows and ranges as of one moment.

use tribunal_types::{Epoch, StoreId, Version};

/// Rows and ranges to read, of any embedded stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadQuery {
    /// Rows.
    pub rows: Vec<RowQuery>,
    /// Ranges.
    pub ranges: Vec<RowsQuery>,
}

impl ReadQuery {
    /// Tells whether nothing is to be read.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.ranges.is_empty()
    }

    /// Returns the stores that are read, ascending.
    #[must_use]
    pub fn stores(&self) -> Vec<StoreId> {
        let rows = self.rows.iter().map(|row| row.store);
        let mut stores: Vec<StoreId> = rows.chain(self.ranges.iter().map(|range| range.store)).collect();
        stores.sort_unstable();
        stores.dedup();
        stores
    }
}

/// A row to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowQuery {
    /// Store.
    pub store: StoreId,
    /// Key.
    pub key: Vec<u8>,
    /// Version that the caller has: if it is still the row's, its value is left out.
    pub known: Option<Version>,
}

/// What range of rows to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowsQuery {
    /// Store.
    pub store: StoreId,
    /// First key.
    pub start: Vec<u8>,
    /// First key that is out of the range; empty means to the last row.
    pub end: Vec<u8>,
    /// Most rows of the answer.
    pub limit: usize,
}

/// A row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    /// Key.
    pub key: Vec<u8>,
    /// JSON value.
    pub value: Vec<u8>,
    /// Version.
    pub version: Version,
}

/// What a row was at the moment of the read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowState {
    /// There was none.
    Absent,
    /// The one that the caller has.
    Unchanged(Version),
    /// Another one.
    Found {
        /// JSON value.
        value: Vec<u8>,
        /// Version.
        version: Version,
    },
}

/// Rows of a range.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangeRows {
    /// The rows, in key order.
    pub rows: Vec<StoredRow>,
    /// The range goes on after them.
    pub more: bool,
}

/// Rows and ranges as of one epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAnswer {
    /// The last epoch that they reflect, all of it, and nothing of later ones.
    pub applied: Epoch,
    /// One for each row, in the order of the query.
    pub rows: Vec<RowState>,
    /// One for each range, in the order of the query.
    pub ranges: Vec<RangeRows>,
}
