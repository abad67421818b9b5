//! The rows that a store's log produces, and their bytes. An embedded store is filled from its log: rows of which only a
//! version was imported would be missing there, and the others take room on the disk.

use std::collections::HashSet;

use tribunal_core::records::records_after;
use tribunal_push::{ENTRY_OVERHEAD_BYTES, EpochSource, SourceError};
use tribunal_types::{Batch, EpochInput, EpochOutcome, Lsn, RowKey, StoreId, Write, WriteKind};

/// Returns the number of rows that the records of a store up to `head` produce. Reads the store's whole log.
///
/// # Errors
/// If the log does not have all records, or cannot be read.
pub fn count(log: &impl EpochSource, store: StoreId, head: Lsn) -> Result<u64, SourceError> {
    let mut rows: HashSet<RowKey> = HashSet::new();
    each_write(log, store, Lsn(0), head, |_, write| {
        match write.kind {
            WriteKind::Delete => rows.remove(&write.row),
            _ => rows.insert(write.row),
        };
    })?;
    Ok(rows.len() as u64)
}

/// Returns a bound on the bytes that the records of a store after `flushed` and up to `head` add to an embedded store.
/// Reads that part of the store's log.
///
/// # Errors
/// If the log does not have all records, or cannot be read.
pub fn bytes_after(log: &impl EpochSource, store: StoreId, flushed: Lsn, head: Lsn) -> Result<u64, SourceError> {
    let mut bytes = 0;
    each_write(log, store, flushed, head, |batch, write| {
        if write.kind != WriteKind::Delete {
            let (key, value) = (write.key.of(&batch.keys).len(), write.value.of(&batch.values).len());
            bytes += (ENTRY_OVERHEAD_BYTES + key + value) as u64;
        }
    })?;
    Ok(bytes)
}

/// Calls `each` with the writes of a store's records after `after` and up to `head`, and with the batch of each.
fn each_write(
    log: &impl EpochSource,
    store: StoreId,
    after: Lsn,
    head: Lsn,
    mut each: impl FnMut(&Batch, &Write),
) -> Result<(), SourceError> {
    let mut at = after;
    while at < head {
        let before = at;
        log.epochs_after(store, before, &mut |input: &EpochInput, outcome: &EpochOutcome| {
            for record in records_after(input, outcome, store, at).take_while(|record| record.lsn <= head) {
                let writes = &record.batch.writes[record.batch.writes_of(record.txn)];
                writes.iter().filter(|write| write.store == store).for_each(|write| each(record.batch, write));
                at = record.lsn;
            }
            at < head
        })?;
        if at == before {
            return Err(SourceError::Unavailable(format!("the log has no record after LSN {before}")));
        }
    }
    Ok(())
}
