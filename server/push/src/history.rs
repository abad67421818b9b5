//! Compares a storage's history with the log's, at the last record that the storage has applied.
//!
//! A log that was restored from an older copy has the same id and assigns the same positions again. Once it has grown past
//! the storage's watermark, only the record there tells the two histories apart. A storage that does not say which record
//! it applied last, and a log that has truncated it, leave nothing to compare: then the position alone counts.

use std::sync::Arc;

use tribunal_types::{Csn, Lsn, StorageReply, StoreId};

use crate::adaptor::off_thread;
use crate::{Adaptor, AdaptorFault, LogSource, ReadLimit, SourceError};

/// Why two histories could not be compared.
pub(crate) enum Incomparable {
    /// The adaptor failed.
    Adaptor(AdaptorFault),
    /// The log cannot be read now.
    Log(SourceError),
}

/// Returns whether the log's record at `at`, which exists, can be the one that a storage with this watermark has applied
/// last. `reply` is the storage's reply to [`Adaptor::watermark`]. May read the disk.
pub(crate) async fn is_common(
    adaptor: &Arc<dyn Adaptor>,
    source: &dyn LogSource,
    (store, at): (StoreId, Lsn),
    reply: Arc<StorageReply>,
) -> Result<bool, Incomparable> {
    let Some(before) = at.0.checked_sub(1) else { return Ok(true) };
    let read = off_thread(adaptor, move |adaptor| adaptor.last_record(&reply)).await;
    let applied = read.and_then(|read| read).map_err(Incomparable::Adaptor)?;
    let Some(applied) = applied.filter(|record| record.lsn == at && record.csn != Csn(0)) else { return Ok(true) };
    match source.read(store, Lsn(before), ReadLimit { records_max: 1, bytes_max: 1 }).await {
        Ok(batch) => Ok(batch.records.first().is_none_or(|own| own.id() == applied)),
        Err(SourceError::Truncated { .. }) => Ok(true),
        Err(error) => Err(Incomparable::Log(error)),
    }
}
