//! Checks whether a detached storage can be pushed to again, and brings one that was filled from elsewhere to
//! where the log continues.
//!
//! A storage's watermark is moved as a push moves it: by records, only that these have no rows. So every LogAdaptor can
//! do it, and one that moves its watermark in the storage's own transaction keeps doing so. Moves nothing before it is
//! known that the log continues there.

use std::sync::Arc;

use tribunal_types::{Ack, Csn, Epoch, Lsn, RecordBatch, RecordHead, Span, StoreId, TxnId, Version};

use crate::pusher::{EncodeFault, encode};
use crate::{Adaptor, Transport, TransportError};

/// Records of one step.
const STEP_RECORDS_MAX: u64 = 8192;

/// A storage that may be pushed to again.
pub struct Attachment {
    /// The store.
    pub store: StoreId,
    /// Its LogAdaptor.
    pub adaptor: Arc<dyn Adaptor>,
    /// The way to its storage.
    pub transport: Arc<dyn Transport>,
    /// What the log has, and what is claimed of the storage.
    pub place: AttachPlace,
}

/// Where a storage is to be attached to its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttachPlace {
    /// Last record of the log.
    pub head: Lsn,
    /// Oldest record that is kept.
    pub oldest: Lsn,
    /// See [`PushParts::fork`](crate::PushParts::fork).
    pub fork: Option<Lsn>,
    /// The storage was filled from elsewhere with everything up to this record.
    pub loaded: Option<Lsn>,
}

impl AttachPlace {
    /// Checks that the log continues where the storage is, whose watermark is `at`; returns what to move that to.
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
            return Err(AttachRefusal::Behind { at: target, oldest });
        }
        Ok(target)
    }
}

/// Why a storage cannot be pushed to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachRefusal {
    /// It does not answer.
    #[error("the storage does not answer: {0}")]
    Unreachable(#[from] TransportError),
    /// It answers, but refuses.
    #[error("the storage refuses: {0}")]
    Refused(String),
    /// It has applied more than the log holds.
    #[error(
        "the storage has applied LSN {at} of another log, or of a part of this one that is lost; this one ends at {head}"
    )]
    Foreign {
        /// Its watermark.
        at: Lsn,
        /// The log's end.
        head: Lsn,
    },
    /// The claimed position is not possible.
    #[error(
        "the storage cannot have been loaded up to LSN {loaded}: it holds LSN {at} by its own watermark, and the log ends at {head}"
    )]
    LoadedOutside {
        /// The claim.
        loaded: Lsn,
        /// Its watermark.
        at: Lsn,
        /// The log's end.
        head: Lsn,
    },
    /// Records that it lacks are gone.
    #[error("the storage has applied LSN {at}, and the log begins at LSN {oldest}")]
    Behind {
        /// What it has applied, or was loaded with.
        at: Lsn,
        /// The log's beginning.
        oldest: Lsn,
    },
}

impl Attachment {
    /// Checks that the log continues where the storage is, and moves the storage's watermark to what it was loaded
    /// with. Returns the watermark.
    ///
    /// # Errors
    /// See [`AttachRefusal`]; the same may be asked again.
    pub async fn prepare(&self) -> Result<Lsn, AttachRefusal> {
        let question = self.adaptor.watermark().map_err(refused)?;
        self.transport.connect().await?;
        let reply = self.transport.send(question.command).await?;
        let mut at = match self.adaptor.read_watermark(&reply) {
            Ok(at) => at,
            Err(fault) => return Err(refused(fault)),
        };
        let target = self.place.target(at)?;
        while at < target {
            at = self.step(at, Lsn(target.0.min(at.0 + STEP_RECORDS_MAX))).await?;
        }
        Ok(at)
    }

    /// Moves the watermark from `after` to `upto`, by records without rows.
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
            match self.adaptor.classify(&reply) {
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
