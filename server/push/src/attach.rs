//! Checks whether a detached storage can be reattached, and advances the watermark of a storage loaded by other means
//! to the position where the log continues.
//!
//! The watermark is advanced as in a push, by applying records, except that these have no rows. So it works with every
//! LogAdaptor, including one that moves its watermark in a transaction of the storage. Nothing is changed before it is
//! certain that the log continues there.

use std::sync::Arc;

use tribunal_types::{Ack, Csn, Epoch, Lsn, RecordBatch, RecordHead, Span, StoreId, TxnId, Version};

use crate::adaptor::off_thread;
use crate::history::{Incomparable, is_common};
use crate::pusher::{EncodeFault, encode};
use crate::{Adaptor, LogSource, SourceError, Transport, TransportError};

/// Maximum number of records per step.
const STEP_RECORDS_MAX: u64 = 8192;

/// A storage to reattach.
pub struct Attachment {
    /// The store.
    pub store: StoreId,
    /// Its LogAdaptor.
    pub adaptor: Arc<dyn Adaptor>,
    /// Connection to the storage.
    pub transport: Arc<dyn Transport>,
    /// The log, to compare the storage's last record with.
    pub source: Arc<dyn LogSource>,
    /// Positions of the log and the storage.
    pub place: AttachPlace,
}

/// The positions that determine where a storage is attached to its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachPlace {
    /// Last record of the log.
    pub head: Lsn,
    /// Oldest record that is still available.
    pub oldest: Lsn,
    /// See [`PushParts::fork`](crate::PushParts::fork).
    pub fork: Option<Lsn>,
    /// Last record that the storage was loaded with by other means, according to the caller.
    pub loaded: Option<Lsn>,
}

impl AttachPlace {
    /// Checks that the log continues at the end of a storage with watermark `at`. Returns the watermark to set.
    ///
    /// # Errors
    /// See [`AttachRefusal`].
    pub fn target(&self, at: Lsn) -> Result<Lsn, AttachRefusal> {
        let AttachPlace { head, oldest, fork, loaded } = *self;
        if at > head || fork.is_some_and(|fork| at > fork) {
            return Err(AttachRefusal::Foreign { at, head });
        }
        let target = match loaded {
            Some(loaded) if loaded < at || loaded > head => {
                return Err(AttachRefusal::LoadedOutside { loaded, at, head });
            }
            Some(loaded) => loaded,
            None => at,
        };
        if target.next() < oldest {
            return Err(AttachRefusal::Truncated { at: target, oldest });
        }
        Ok(target)
    }
}

/// Why a storage cannot be reattached.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachRefusal {
    /// The storage does not respond.
    #[error("the storage does not respond: {0}")]
    Unreachable(TransportError),
    /// The storage returned an error.
    #[error("the storage returned an error: {0}")]
    Refused(String),
    /// The log cannot be read.
    #[error(transparent)]
    Log(SourceError),
    /// The storage has applied records that the log does not have.
    #[error(
        "the storage has applied LSN {at} of another log, or of a part of this one that is lost, or another store's push \
         fills it; this log ends at {head}"
    )]
    Foreign {
        /// Watermark of the storage.
        at: Lsn,
        /// End of the log.
        head: Lsn,
    },
    /// The stated load position is impossible.
    #[error(
        "the storage cannot have been loaded up to LSN {loaded}: its own watermark is LSN {at}, and the log ends at {head}"
    )]
    LoadedOutside {
        /// Position according to the caller.
        loaded: Lsn,
        /// Watermark of the storage.
        at: Lsn,
        /// End of the log.
        head: Lsn,
    },
    /// Records that the storage lacks have been truncated.
    #[error("the storage has applied LSN {at}, and the log begins at LSN {oldest}")]
    Truncated {
        /// Last record that the storage has applied or was loaded with.
        at: Lsn,
        /// Oldest record of the log.
        oldest: Lsn,
    },
}

impl From<TransportError> for AttachRefusal {
    fn from(error: TransportError) -> Self {
        match error {
            // It would not be sent in any attempt.
            TransportError::WrongCommand(text) => AttachRefusal::Refused(text.to_owned()),
            error => AttachRefusal::Unreachable(error),
        }
    }
}

impl Attachment {
    /// Checks that the log continues at the storage's end, and advances the storage's watermark to the loaded position.
    /// Returns the watermark.
    ///
    /// # Errors
    /// See [`AttachRefusal`]. May be retried.
    pub async fn prepare(&self) -> Result<Lsn, AttachRefusal> {
        let question = self.adapt(|adaptor| adaptor.watermark()).await?.map_err(refused)?;
        self.transport.connect().await?;
        let reply = Arc::new(self.transport.send(question.command).await?);
        let told = Arc::clone(&reply);
        let mut at = self.adapt(move |adaptor| adaptor.read_watermark(&told)).await?.map_err(refused)?;
        let target = self.place.target(at)?;
        match is_common(&self.adaptor, &*self.source, (self.store, at), reply).await {
            Ok(true) => {}
            Ok(false) => return Err(AttachRefusal::Foreign { at, head: self.place.head }),
            Err(Incomparable::Adaptor(fault)) => return Err(refused(fault)),
            Err(Incomparable::Log(error)) => return Err(AttachRefusal::Log(error)),
        }
        while at < target {
            if self.transport.is_worn() {
                self.transport.connect().await?;
            }
            at = self.step(at, Lsn(target.0.min(at.0 + STEP_RECORDS_MAX))).await?;
        }
        Ok(at)
    }

    async fn adapt<T: Send + 'static>(
        &self,
        call: impl FnOnce(&dyn Adaptor) -> T + Send + 'static,
    ) -> Result<T, AttachRefusal> {
        off_thread(&self.adaptor, call).await.map_err(refused)
    }

    /// Advances the watermark from `after` to `upto`, with records without rows.
    async fn step(&self, after: Lsn, upto: Lsn) -> Result<Lsn, AttachRefusal> {
        let version = Version::new(Epoch(1), 0).expect("epoch 1 fits");
        let record = |lsn| RecordHead {
            lsn: Lsn(lsn),
            epoch: version.epoch(),
            csn: Csn::default(),
            version,
            txn_id: TxnId::default(),
            writes_end: 0,
            traceparent: Span::default(),
        };
        let records = (after.next().0..=upto.0).map(record).collect();
        let batch = RecordBatch { store: self.store, records, ..RecordBatch::default() };
        let requests = encode(&self.adaptor, batch).await.map_err(|fault| match fault {
            EncodeFault::Panicked(text) | EncodeFault::Refused(text) => AttachRefusal::Refused(text),
        })?;
        for request in requests {
            let reply = self.transport.send(request.command).await?;
            match self.adapt(move |adaptor| adaptor.classify(&reply)).await? {
                Ack::Ok => {}
                Ack::Retry(text) | Ack::Moved(text) | Ack::Fatal(text) => return Err(AttachRefusal::Refused(text)),
            }
        }
        Ok(upto)
    }
}

fn refused(fault: crate::AdaptorFault) -> AttachRefusal {
    AttachRefusal::Refused(fault.text)
}
