//! The seam to LogAdaptors: pure functions from log records to a storage's own commands and back.
//!
//! The binary implements [`Adaptor`] over a Wasm module. An adaptor never touches a socket; what it makes is sent by
//! a [`Transport`](crate::Transport), what comes back is read by the adaptor again.

use tribunal_types::{Ack, Lsn, PushRequest, RecordBatch, StorageReply};

/// Turns records into requests, and answers into acknowledgements. Calls may take milliseconds and are made off the
/// async threads.
pub trait Adaptor: Send + Sync + 'static {
    /// Makes the request that reads the storage's watermark.
    ///
    /// # Errors
    /// The adaptor failed.
    fn watermark(&self) -> Result<PushRequest, AdaptorFault>;

    /// Reads the watermark out of the answer to [`Adaptor::watermark`]; 0 for a storage that has none yet.
    ///
    /// # Errors
    /// The answer holds no watermark.
    fn read_watermark(&self, reply: &StorageReply) -> Result<Lsn, AdaptorFault>;

    /// Makes the requests for consecutive records, in order; together they cover all of them.
    ///
    /// # Errors
    /// The adaptor failed, or cannot express a record.
    fn encode(&self, records: &RecordBatch) -> Result<Vec<PushRequest>, AdaptorFault>;

    /// Interprets the reply to one of [`Adaptor::encode`]'s requests.
    fn classify(&self, reply: &StorageReply) -> Ack;
}

/// An adaptor trapped, ran out of fuel, answered nonsense or refused a record. The same input fails again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("adaptor failed: {text}")]
pub struct AdaptorFault {
    /// What happened.
    pub text: String,
}

impl AdaptorFault {
    /// Builds a fault from its description.
    pub fn new(text: impl Into<String>) -> Self {
        AdaptorFault { text: text.into() }
    }
}
