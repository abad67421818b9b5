//! Records of one store's committed log, in flat columns: what LogPull shows and LogAdaptors encode.

use alloc::vec::Vec;
use core::ops::Range as Indices;

use crate::ids::{Cen, Csn, Lsn, StoreId, TxnId, Version};
use crate::txn::{Span, WriteKind};

/// Head of one record: one committed transaction's rows in one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Dense position.
    pub lsn: Lsn,
    /// Epoch.
    pub cen: Cen,
    /// Arrival stamp.
    pub csn: Csn,
    /// Version of every row in the record.
    pub version: Version,
    /// The transaction.
    pub txn_id: TxnId,
    /// End of its writes in the batch's `writes`.
    pub writes_end: u32,
    /// W3C `traceparent`, in `bytes`; empty if none.
    pub traceparent: Span,
}

/// One row of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordWrite {
    /// What to do.
    pub kind: WriteKind,
    /// Key, in `bytes`.
    pub key: Span,
    /// JSON value (decimal delta of an add), in `bytes`; empty for a delete.
    pub value: Span,
}

/// Consecutive records of one store, dense in LSN, whole transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordBatch {
    /// The store.
    pub store: StoreId,
    /// Heads, ascending LSN without a gap.
    pub records: Vec<RecordHead>,
    /// Rows of all records.
    pub writes: Vec<RecordWrite>,
    /// Arena of keys, values and traceparents.
    pub bytes: Vec<u8>,
}

impl RecordBatch {
    /// Returns where the rows of record `record` (an index, not an LSN) lie.
    #[must_use]
    pub fn writes_of(&self, record: usize) -> Indices<usize> {
        let start = if record == 0 { 0 } else { self.records[record - 1].writes_end as usize };
        start..self.records[record].writes_end as usize
    }

    /// Returns the first and the last position; `None` if there is no record.
    #[must_use]
    pub fn bounds(&self) -> Option<(Lsn, Lsn)> {
        Some((self.records.first()?.lsn, self.records.last()?.lsn))
    }
}
