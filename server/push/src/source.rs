//! The interface to the log: the source of pushed records, and the sink of their acknowledgements.

use tribunal_types::{Digest, EpochInput, EpochOutcome, LogId, Lsn, ReadLimit, RecordBatch, StoreId, Watermark};

use crate::Pending;

/// The committed records of all stores, durable in the log.
pub trait LogSource: Send + Sync + 'static {
    /// Returns the records after `after`, without gaps; waits until there is one. Dropping the future cancels the read.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn read(&self, store: StoreId, after: Lsn, limit: ReadLimit) -> Pending<'_, Result<RecordBatch, SourceError>>;

    /// Returns the newest record of the store.
    fn head(&self, store: StoreId) -> Lsn;

    /// Returns the oldest record of the store that is still available.
    fn oldest(&self, store: StoreId) -> Lsn;

    /// Completes when the log contains every record that a storage could have had before the call. Completes
    /// immediately, unless other nodes push as well: their logs may be ahead.
    ///
    /// # Errors
    /// [`SourceError::Unavailable`].
    fn catch_up(&self) -> Pending<'_, Result<(), SourceError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Returns the id of the log.
    fn id(&self) -> LogId;

    /// Looks up a position of the store in the log. May read the disk.
    ///
    /// # Errors
    /// [`SourceError::Unavailable`].
    fn point(&self, store: StoreId, lsn: Lsn) -> Result<LogPoint, SourceError>;

    /// Returns whether the storage's state up to `watermark` matches the log up to there. May read the disk.
    ///
    /// # Errors
    /// [`SourceError::Unavailable`].
    fn contains(&self, store: StoreId, watermark: &Watermark) -> Result<bool, SourceError> {
        Ok(self.point(store, watermark.lsn)?.is_of(watermark, self.id()))
    }
}

/// The same records as whole epochs, for stores in the same process as the log.
pub trait EpochSource: LogSource {
    /// Calls `take` with the epoch of the record after `after`, and with the epochs of the following available records,
    /// while it returns true. Never calls it if there is no such record. May read the disk.
    ///
    /// # Errors
    /// See [`SourceError`].
    fn epochs_after(
        &self,
        store: StoreId,
        after: Lsn,
        take: &mut dyn FnMut(&EpochInput, &EpochOutcome) -> bool,
    ) -> Result<(), SourceError>;

    /// Completes when the store has a record after `after`, or the log is closed.
    fn changed(&self, store: StoreId, after: Lsn) -> Pending<'_, ()>;
}

/// The log's content at a position of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogPoint {
    /// The record is available; the digest covers all outcomes up to its epoch.
    Known(Digest),
    /// The position is 0, or the record has been truncated: there is nothing to compare with.
    Unknown,
    /// The log ends before the position.
    PastHead,
}

impl LogPoint {
    /// Returns whether a storage's state up to `watermark` matches the log `id` up to there.
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
    /// The next record has been truncated.
    #[error("records are needed that the log no longer has; it begins at LSN {oldest}")]
    Truncated {
        /// Oldest record that is still available.
        oldest: Lsn,
    },
    /// The log cannot be read now.
    #[error("the log cannot be read: {0}")]
    Unavailable(String),
}

/// Receives the progress of storages. Called from the push tasks, so it must not block.
pub trait AckSink: Send + Sync + 'static {
    /// The storage has acknowledged everything up to `lsn`.
    fn acked(&self, store: StoreId, lsn: Lsn);

    /// The storage has lost acknowledged records: it only has those up to `lsn`.
    fn rewound(&self, store: StoreId, lsn: Lsn);

    /// The storage has records after `fork` that the log does not have. Must be remembered: the log may grow past the
    /// storage's position, and truncate the record that tells them apart. `None`: the storage is no longer past the fork.
    fn forked(&self, store: StoreId, fork: Option<Lsn>);

    /// Pushing stopped and waits for [`PushHandle::resume`](crate::PushHandle::resume).
    fn failed(&self, store: StoreId, text: &str);

    /// An embedded store is out of use until it is [`opened`](Self::opened) again: its disk has failed it.
    fn out_of_use(&self, _store: StoreId) {}

    /// An embedded store has been opened and begins to apply its log: its position on disk is unknown until it is
    /// [`rewound`](Self::rewound).
    fn opened(&self, _store: StoreId) {}

    /// A reader has found a damaged file in an embedded store: other nodes must not rely on this copy.
    fn damaged(&self, _store: StoreId) {}

    /// The storage cannot be pushed to at present, and the push retries. Called once until it is
    /// [`restored`](Self::restored).
    fn interrupted(&self, _store: StoreId, _text: &str) {}

    /// The storage accepts records again, or has all of them. An embedded store whose disk had failed it works again.
    fn restored(&self, _store: StoreId) {}

    /// Called with each batch before it is pushed. The returned watch is notified of its progress. `None` by default.
    fn watch(&self, _batch: &RecordBatch) -> Option<Box<dyn PushWatch>> {
        None
    }
}

/// Observes the push of one batch. Called from the push tasks, so it must not block.
pub trait PushWatch: Send {
    /// Returns the `traceparent` for the batch's HTTP requests, if they get a separate one.
    fn traceparent(&self) -> Option<String> {
        None
    }

    /// The adaptor has encoded the batch.
    fn encoded(&mut self);

    /// The storage has acknowledged the batch, or the push failed with `trouble`.
    fn ended(self: Box<Self>, trouble: Option<&str>);
}
