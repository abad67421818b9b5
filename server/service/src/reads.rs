//! Reads of embedded stores: any number of rows and ranges, all at the same epoch.

use tribunal_types::{Epoch, StoreId, Version};

use crate::Session;

/// The commits that the snapshots of a Begin, or the rows of a read, must include.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Freshness {
    /// The commits that a session token covers.
    pub session: Option<Session>,
    /// Everything that was acknowledged on any node before the request.
    pub fresh: bool,
    /// How long to wait for that, milliseconds.
    pub wait_ms: u64,
}

/// Rows and ranges to read, of any embedded stores.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadQuery {
    /// The store that the path of the request names, if one does: rows and ranges are all of this store.
    pub path_store: Option<StoreId>,
    /// Rows.
    pub rows: Vec<RowQuery>,
    /// Ranges.
    pub ranges: Vec<RowsQuery>,
}

impl ReadQuery {
    /// Returns whether the query reads nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.ranges.is_empty()
    }

    /// Returns the place at which the request names a store first, for errors: a parameter of the path, or a JSON pointer.
    #[must_use]
    pub fn place_of(&self, store: StoreId) -> String {
        if self.path_store == Some(store) {
            return "{store}".to_owned();
        }
        match self.rows.iter().position(|row| row.store == store) {
            Some(at) => format!("/read/{at}/store"),
            None => {
                let at = self.ranges.iter().position(|range| range.store == store).unwrap_or_default();
                format!("/ranges/{at}/store")
            }
        }
    }

    /// Returns the stores that the query reads, ascending.
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
    /// Version that the caller has cached. If it is still current, the value is not returned.
    pub known: Option<Version>,
}

/// A range of rows to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RowsQuery {
    /// Store.
    pub store: StoreId,
    /// First key.
    pub start: Vec<u8>,
    /// First key after the range; empty for no end.
    pub end: Vec<u8>,
    /// Maximum number of rows to return.
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

/// The result of reading a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowState {
    /// The row does not exist.
    Absent,
    /// The row has the version that the caller has cached.
    Unchanged(Version),
    /// The row exists and differs from what the caller has cached.
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
    /// Whether the range has more rows.
    pub more: bool,
}

/// The results of a query, all at the same epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAnswer {
    /// The epoch that the results reflect: they include all of its commits, and none of later epochs.
    pub applied: Epoch,
    /// One result per row, in the order of the query.
    pub rows: Vec<RowState>,
    /// One result per range, in the order of the query.
    pub ranges: Vec<RangeRows>,
}

impl ReadAnswer {
    /// Returns the bytes of keys and values in it.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let value = |row: &RowState| if let RowState::Found { value, .. } = row { value.len() } else { 0 };
        let of_ranges = self.ranges.iter().flat_map(|range| &range.rows).map(|row| row.key.len() + row.value.len());
        self.rows.iter().map(value).sum::<usize>() + of_ranges.sum::<usize>()
    }
}
