//! The process's Wasm engine, and the LogAdaptors in it as used by the push.

use std::sync::{Arc, OnceLock};

use tribunal_push::{Adaptor, AdaptorFault};
use tribunal_types::{Ack, Command, Lsn, PushRequest, RecordBatch, RecordId, StorageReply, WriteKinds};
use tribunal_wasm::{Fault, PluginEngine, PluginLimits, WasmAdaptor};

use crate::commands::last_line::write_reason;
use crate::plugins::plugin_health::SlotHealth;

/// Returns the engine, which is created on the first call.
///
/// # Errors
/// If this machine cannot run it.
pub fn engine() -> Result<&'static Arc<PluginEngine>, String> {
    static ENGINE: OnceLock<Result<Arc<PluginEngine>, String>> = OnceLock::new();
    let engine = ENGINE.get_or_init(|| {
        // The process aborts, so this is its last line.
        tribunal_wasm::host_failure::set_hook(write_reason);
        PluginEngine::new(PluginLimits::default()).map_err(|error| format!("cannot start the Wasm engine: {error}"))
    });
    engine.as_ref().map_err(Clone::clone)
}

/// A LogAdaptor in Wasm whose calls are counted.
pub struct LogAdaptor {
    adaptor: WasmAdaptor,
    health: Arc<SlotHealth>,
}

/// The language that an adaptor speaks to its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// RESP commands.
    Resp,
    /// SQL statements.
    Sql,
    /// HTTP requests.
    Http,
    /// Bytes in a private format.
    Raw,
}

impl Language {
    /// Returns the error that no transport carries this language to a storage.
    #[must_use]
    pub fn no_transport(self) -> String {
        format!("the adaptor speaks {self:?}, for which this version has no transport; it has Resp and Sql")
    }
}

impl LogAdaptor {
    /// Wraps an adaptor.
    #[must_use]
    pub fn new(adaptor: WasmAdaptor, health: Arc<SlotHealth>) -> LogAdaptor {
        LogAdaptor { adaptor, health }
    }

    /// Returns the kinds of writes that it declares to accept.
    #[must_use]
    pub fn takes(&self) -> WriteKinds {
        self.adaptor.takes()
    }

    /// Returns its language: the one of its watermark query. It determines the transport.
    ///
    /// # Errors
    /// The adaptor failed.
    pub fn language(&self) -> Result<Language, String> {
        let ask = self.adaptor.watermark().map_err(|fault| fault.text)?;
        Ok(match ask.command {
            Command::Resp(_) => Language::Resp,
            Command::Sql(_) => Language::Sql,
            Command::Http(_) => Language::Http,
            Command::Raw(_) => Language::Raw,
        })
    }
}

impl Adaptor for LogAdaptor {
    fn watermark(&self) -> Result<PushRequest, AdaptorFault> {
        self.adaptor.watermark().map_err(said)
    }

    fn read_watermark(&self, reply: &StorageReply) -> Result<Lsn, AdaptorFault> {
        self.adaptor.read_watermark(reply).map_err(said)
    }

    fn last_record(&self, reply: &StorageReply) -> Result<Option<RecordId>, AdaptorFault> {
        self.adaptor.last_record(reply).map_err(said)
    }

    fn encode(&self, records: &RecordBatch) -> Result<Vec<PushRequest>, AdaptorFault> {
        self.health.count(records.records.len(), || self.adaptor.encode_metered(records)).map_err(said)
    }

    fn classify(&self, reply: &StorageReply) -> Ack {
        self.adaptor.classify(reply)
    }
}

fn said(fault: Fault) -> AdaptorFault {
    AdaptorFault::new(fault.text)
}
