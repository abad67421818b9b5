//! The seam to the log: where pushed records come from, and who hears how far they got.

use tribunal_types::{Lsn, RecordBatch, StoreId};

use crate::Pending;

/// How much one read may return. At least one record is returned, however large it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadLimit {
    /// Records.
    pub records_max: usize,
    /// Bytes of keys and values.
    pub bytes_max: usize,
}

/// Committed records of every store, durable in the log.
pub trait LogSource: Send + Sync + 'static {
    /// Returns records behind `after`, dense and whole, waiting while there are none. Dropping the future gives the
    /// read up.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn read(&self, store: StoreId, after: Lsn, limit: ReadLimit) -> Pending<'_, Result<RecordBatch, SourceError>>;

    /// Returns the newest record of the store.
    fn head(&self, store: StoreId) -> Lsn;
}

/// Why records cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The log no longer holds what the storage needs next.
    #[error("the log begins at LSN {oldest}: the storage fell behind what is kept and must be rebuilt from an image")]
    Truncated {
        /// Oldest record still there.
        oldest: Lsn,
    },
    /// The log cannot be read now.
    #[error("the log cannot be read: {0}")]
    Unavailable(String),
}

/// Hears how far each storage got. Called from the push tasks: must not block.
pub trait AckSink: Send + Sync + 'static {
    /// Everything up to `lsn` is applied in the storage, as durably as the storage acknowledges.
    fn acked(&self, store: StoreId, lsn: Lsn);

    /// The storage came back with less than it had acknowledged: only records up to `lsn` are there.
    fn rewound(&self, store: StoreId, lsn: Lsn);

    /// Pushing stopped and waits for [`PushHandle::resume`](crate::PushHandle::resume).
    fn failed(&self, store: StoreId, text: &str);

    /// Looks at a batch that is about to be pushed; what it returns hears how that goes. Nobody looks unless this says
    /// otherwise.
    fn watch(&self, _batch: &RecordBatch) -> Option<Box<dyn PushWatch>> {
        None
    }
}

/// Watches one batch on its way. Called from the push tasks: must not block.
pub trait PushWatch: Send {
    /// Returns the `traceparent` that HTTP requests of the batch go on with, if they get one of their own.
    fn traceparent(&self) -> Option<String> {
        None
    }

    /// The adaptor has turned it into commands.
    fn encoded(&mut self);

    /// It is in the storage, or there was trouble.
    fn ended(self: Box<Self>, trouble: Option<&str>);
}
