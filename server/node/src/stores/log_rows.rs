//! Counts the rows that a store's log produces. Versions can be imported without their rows: an embedded store is
//! filled from its log, so it would never have them.

use std::collections::HashSet;

use tribunal_core::records::records_after;
use tribunal_push::{EpochSource, SourceError};
use tribunal_types::{EpochInput, EpochOutcome, Lsn, RowKey, StoreId, WriteKind};

/// Returns the number of rows that the records of a store up to `head` produce. Reads the store's whole log.
///
/// # Errors
/// If the log does not have all records, or cannot be read.
pub fn count(log: &impl EpochSource, store: StoreId, head: Lsn) -> Result<u64, SourceError> {
    let mut rows: HashSet<RowKey> = HashSet::new();
    let mut at = Lsn(0);
    while at < head {
        let before = at;
        log.epochs_after(store, before, &mut |input: &EpochInput, outcome: &EpochOutcome| {
            for record in records_after(input, outcome, store, at).take_while(|record| record.lsn <= head) {
                let writes = &record.batch.writes[record.batch.writes_of(record.txn)];
                for write in writes.iter().filter(|write| write.store == store) {
                    match write.kind {
                        WriteKind::Delete => rows.remove(&write.row),
                        _ => rows.insert(write.row),
                    };
                }
                at = record.lsn;
            }
            at < head
        })?;
        if at == before {
            return Err(SourceError::Unavailable(format!("the log has no record after LSN {before}")));
        }
    }
    Ok(rows.len() as u64)
}
