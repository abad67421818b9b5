//! The seam to the log: where pushed records come from, and what receives their acknowledgements.

use tribunal_types::{Digest, EpochInput, EpochOutcome, LogId, Lsn, RecordBatch, StoreId, Watermark};

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
    /// Returns records after `after`, dense and whole, waiting while there are none. Dropping the future gives the
    /// read up.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn read(&self, store: StoreId, after: Lsn, limit: ReadLimit) -> Pending<'_, Result<RecordBatch, SourceError>>;

    /// Returns the newest record of the store.
    fn head(&self, store: StoreId) -> Lsn;

    /// Returns the oldest record of the store that is kept.
    fn oldest(&self, store: StoreId) -> Lsn;

    /// Returns the log's name.
    fn id(&self) -> LogId;

    /// Returns what the log knows of a record. May read the disk.
    ///
    /// # Errors
    /// [`SourceError::Unavailable`].
    fn point(&self, store: StoreId, lsn: Lsn) -> Result<LogPoint, SourceError>;
}

/// The same records by their epochs, for stores that live beside the log.
pub trait EpochSource: LogSource {
    /// Hands the epoch with the record that follows `after` to `take`; returns false if there is none. May read the disk.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn epoch_after(
        &self,
        store: StoreId,
        after: Lsn,
        take: &mut dyn FnMut(&EpochInput, &EpochOutcome),
    ) -> Result<bool, SourceError>;

    /// Completes when the store has a record after `after`, or the log ends.
    fn changed(&self, store: StoreId, after: Lsn) -> Pending<'_, ()>;
}

/// What a log knows of a record of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPoint {
    /// The record is there; the digest is that of all outcomes up to its epoch.
    Known(Digest),
    /// The position is 0, or the record is truncated: nothing to compare with.
    Unknown,
    /// The log ends before it.
    PastHead,
}

impl LogPoint {
    /// Tells whether what a storage has applied up to `watermark` is what the log `id` holds up to there.
    #[must_use]
    pub fn is_of(self, watermark: &Watermark, id: LogId) -> bool {
        match self {
            LogPoint::Known(digest) => digest == watermark.digest,
            LogPoint::Unknown => watermark.lsn == Lsn(0) || watermark.log == id,
            LogPoint::PastHead => false,
        }
    }
}

/// Why records cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The log no longer holds what the storage needs next.
    #[error("the log begins at LSN {oldest}: the storage lags behind what is kept and must be rebuilt from an image")]
    Truncated {
        /// Oldest record still there.
        oldest: Lsn,
    },
    /// The log cannot be read now.
    #[error("the log cannot be read: {0}")]
    Unavailable(String),
}

/// Receives how far each storage got. Called from the push tasks: must not block.
pub trait AckSink: Send + Sync + 'static {
    /// Everything up to `lsn` is applied in the storage, as durably as the storage acknowledges.
    fn acked(&self, store: StoreId, lsn: Lsn);

    /// The storage came back with less than it had acknowledged: only records up to `lsn` are there.
    fn rewound(&self, store: StoreId, lsn: Lsn);

    /// The storage has applied more than the log, which ends at `fork`. To be remembered: when the log gets further, its
    /// records are others. `None`: the storage is back at the fork or before.
    fn forked(&self, store: StoreId, fork: Option<Lsn>);

    /// Pushing stopped and waits for [`PushHandle::resume`](crate::PushHandle::resume).
    fn failed(&self, store: StoreId, text: &str);

    /// Looks at a batch that is about to be pushed; the returned watch receives how that goes. None by default.
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
