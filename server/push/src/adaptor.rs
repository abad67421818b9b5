//! The interface to LogAdaptors: pure functions that translate log records into a storage's commands, and interpret its
//! replies.
//!
//! The binary implements [`Adaptor`] with a Wasm module. An adaptor never uses a socket: a
//! [`Transport`](crate::Transport) sends its requests and passes the replies back to it.

use std::sync::Arc;

use tribunal_types::{Ack, Lsn, PushRequest, RecordBatch, RecordId, StorageReply};

/// Translates records into requests, and replies into acknowledgements. Calls may take milliseconds, so they are not
/// made on async threads.
pub trait Adaptor: Send + Sync + 'static {
    /// Builds the request that reads the storage's watermark.
    ///
    /// # Errors
    /// If the adaptor fails.
    fn watermark(&self) -> Result<PushRequest, AdaptorFault>;

    /// Extracts the watermark from the reply to [`Adaptor::watermark`]; 0 if the storage has none yet.
    ///
    /// # Errors
    /// If the reply contains no watermark.
    fn read_watermark(&self, reply: &StorageReply) -> Result<Lsn, AdaptorFault>;

    /// Extracts the record that last moved the storage's watermark from the reply to [`Adaptor::watermark`]; `None` if the
    /// storage does not keep it. Its position is not the watermark's if the watermark was last moved by something that
    /// does not write it: an earlier release, or an operator.
    ///
    /// # Errors
    /// If the adaptor fails.
    fn last_record(&self, _reply: &StorageReply) -> Result<Option<RecordId>, AdaptorFault> {
        Ok(None)
    }

    /// Builds the requests for consecutive records, in order. Together they cover all records.
    ///
    /// # Errors
    /// If the adaptor fails, or cannot express a record.
    fn encode(&self, records: &RecordBatch) -> Result<Vec<PushRequest>, AdaptorFault>;

    /// Returns what to do if the storage has records that the log does not have.
    fn if_ahead(&self) -> &'static str {
        "Or another store fills it: if one has the same adaptor and settings, declare one of the two with a storage of its own \
         first. Empty it, watermark included, and resume the push; or declare the store with another storage"
    }

    /// Returns what to do if the storage needs records from before `oldest`, where the log begins.
    fn if_truncated(&self, oldest: Lsn) -> String {
        format!(
            "Load it from elsewhere with everything up to some LSN n >= {}, then attach the store with loaded_lsn n. In a cluster, \
             the log of another node may begin earlier: then drain this node (`tribunal cluster drain`) and resume the push",
            oldest.0.saturating_sub(1)
        )
    }

    /// Interprets the reply to one of [`Adaptor::encode`]'s requests.
    fn classify(&self, reply: &StorageReply) -> Ack;
}

/// Calls an adaptor on a thread that may block: the call may run for seconds, and wait for other calls to end before it
/// starts.
///
/// # Errors
/// If the call panicked.
pub(crate) async fn off_thread<T: Send + 'static>(
    adaptor: &Arc<dyn Adaptor>,
    call: impl FnOnce(&dyn Adaptor) -> T + Send + 'static,
) -> Result<T, AdaptorFault> {
    let adaptor = Arc::clone(adaptor);
    let called = tokio::task::spawn_blocking(move || call(&*adaptor)).await;
    called.map_err(|error| AdaptorFault::new(format!("its call did not end: {error}")))
}

/// An adaptor trapped, ran out of fuel, returned an invalid result or rejected a record. The same input fails again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("adaptor failed: {text}")]
pub struct AdaptorFault {
    /// Description of the fault.
    pub text: String,
}

impl AdaptorFault {
    /// Creates a fault.
    pub fn new(text: impl Into<String>) -> Self {
        AdaptorFault { text: text.into() }
    }
}
