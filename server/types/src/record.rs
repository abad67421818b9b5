//! Records of one store's committed log, in flat columns: the output of LogPull and the input of LogAdaptors.

use alloc::vec::Vec;
use core::ops::Range as Indices;

use crate::ids::{Csn, Epoch, Lsn, StoreId, TxnId, Version};
use crate::txn::{Span, WriteKind};

/// Head of one record: one committed transaction's rows in one store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHead {
    /// Dense position.
    pub lsn: Lsn,
    /// Epoch.
    pub epoch: Epoch,
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

impl RecordHead {
    /// Returns what identifies the record in every history of its log.
    #[must_use]
    pub fn id(&self) -> RecordId {
        RecordId { lsn: self.lsn, csn: self.csn, txn_id: self.txn_id }
    }
}

/// A record of one history of a log. A log that was restored from an older copy assigns positions again: to other
/// transactions, or to the same ones at other times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordId {
    /// Position.
    pub lsn: Lsn,
    /// Arrival stamp; 0 for a record without rows with which attaching a storage has moved its watermark.
    pub csn: Csn,
    /// The transaction.
    pub txn_id: TxnId,
}

/// One row of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordWrite {
    /// Operation on the row.
    pub kind: WriteKind,
    /// Key, in `bytes`.
    pub key: Span,
    /// JSON value (decimal delta of an add), in `bytes`; empty for a delete.
    pub value: Span,
}

/// Maximum size of one read of records. At least one record is read, however large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimit {
    /// Number of records.
    pub records_max: usize,
    /// Size of keys and values, bytes.
    pub bytes_max: usize,
}

impl ReadLimit {
    /// Reads everything.
    pub const NONE: ReadLimit = ReadLimit { records_max: usize::MAX, bytes_max: usize::MAX };

    /// Returns whether a read that has these records may read more.
    #[must_use]
    pub fn has_room(self, read: &RecordBatch) -> bool {
        read.records.len() < self.records_max && read.bytes.len() < self.bytes_max
    }
}

/// Consecutive records of one store: dense in LSN, and only whole transactions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecordBatch {
    /// The store.
    pub store: StoreId,
    /// Heads, in ascending LSN order without gaps.
    pub records: Vec<RecordHead>,
    /// Rows of all records.
    pub writes: Vec<RecordWrite>,
    /// Arena of keys, values and traceparents.
    pub bytes: Vec<u8>,
}

impl RecordBatch {
    /// Returns the indices of the rows of record `record` (an index, not an LSN).
    #[must_use]
    pub fn writes_of(&self, record: usize) -> Indices<usize> {
        let start = if record == 0 { 0 } else { self.records[record - 1].writes_end as usize };
        start..self.records[record].writes_end as usize
    }

    /// Returns the first and last positions; `None` if there are no records.
    #[must_use]
    pub fn bounds(&self) -> Option<(Lsn, Lsn)> {
        Some((self.records.first()?.lsn, self.records.last()?.lsn))
    }

    /// Removes the rows of the records that `which` selects. The records remain, so that the log is still dense.
    pub fn empty(&mut self, which: impl Fn(Lsn) -> bool) {
        let mut kept = Vec::with_capacity(self.writes.len());
        let mut start = 0;
        for record in &mut self.records {
            let writes = start..record.writes_end as usize;
            start = writes.end;
            if !which(record.lsn) {
                kept.extend_from_slice(&self.writes[writes]);
            }
            record.writes_end = kept.len() as u32;
        }
        self.writes = kept;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_record_keeps_its_position() {
        let write = |key| RecordWrite { kind: WriteKind::Put, key: Span { at: key, len: 1 }, value: Span::default() };
        let record = |lsn, writes_end| RecordHead {
            lsn: Lsn(lsn),
            epoch: Epoch(1),
            csn: Csn::default(),
            version: Version::new(Epoch(1), 0).expect("fits"),
            txn_id: TxnId::default(),
            writes_end,
            traceparent: Span::default(),
        };
        let mut batch = RecordBatch {
            records: alloc::vec![record(5, 2), record(6, 3), record(7, 5)],
            writes: (0..5).map(write).collect(),
            ..RecordBatch::default()
        };
        batch.empty(|lsn| lsn == Lsn(6));
        let keys = |record| batch.writes[batch.writes_of(record)].iter().map(|w| w.key.at).collect::<Vec<_>>();
        assert_eq!((keys(0), keys(1), keys(2)), (alloc::vec![0, 1], alloc::vec![], alloc::vec![3, 4]));
        assert_eq!(batch.bounds(), Some((Lsn(5), Lsn(7))));
    }
}
