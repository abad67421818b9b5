//! The world `log-adaptor`: translates log records into requests to a storage.

use alloc::vec::Vec;
use core::ops::Range;

pub use crate::bindings::adaptor::exports::tribunal::plugin::adaptor::{
    Ack, Command, HttpCall, HttpReply, Kinds, LogBatch, Reply, Request, RespPipeline, RespValue, SqlError, SqlReply,
    SqlStatement,
};
pub use crate::record_ids::RecordId;
use crate::traces::Traces;
use crate::{Fault, Plugin};

/// Numbers of a row's `kind`.
pub mod kind {
    /// Creates the row.
    pub const INSERT: u8 = 0;
    /// Replaces the value.
    pub const UPDATE: u8 = 1;
    /// Creates the row or replaces its value.
    pub const PUT: u8 = 2;
    /// Removes the row.
    pub const DELETE: u8 = 3;
    /// Adds a decimal delta to an integer.
    pub const ADD: u8 = 4;
}

/// A LogAdaptor.
///
/// Return an error rather than panicking: the operator sees its text. The message of a panic is lost with the instance; the
/// operator sees that the adaptor trapped, and on which record or on which reply of the storage.
pub trait Adaptor: Plugin {
    /// Returns the kinds of writes that the adaptor can encode with its configuration; must always return the same. The
    /// service rejects commits with other kinds of writes to the store, so that it never commits a record that the storage
    /// cannot accept.
    fn takes(&self) -> Kinds;

    /// Builds the request that reads the storage's watermark.
    ///
    /// # Errors
    /// If the plugin fails.
    fn watermark(&self) -> Result<Request, Fault>;

    /// Extracts the watermark from the reply to [`Adaptor::watermark`]; 0 if the storage has none yet.
    ///
    /// # Errors
    /// If the reply contains no watermark; the text should quote the reply. The host then passes the same reply to
    /// [`Adaptor::classify`]. If that returns [`Ack::Retry`], because the storage is starting or overloaded, the host asks again
    /// later; after anything else, the store's push stops with this error.
    fn read_watermark(&self, reply: Reply) -> Result<u64, Fault>;

    /// Extracts the record that moved the watermark last from the reply to [`Adaptor::watermark`], for a storage that keeps
    /// it beside the watermark: the [`RecordId`] of the last record of each request ([`LogBatch::id_of`]), written in the same
    /// transaction. The service then notices a storage that has followed another history of the log, in which another
    /// record has this position. `None` if the storage does not keep it.
    fn last_record(&self, reply: &Reply) -> Option<RecordId> {
        let _ = reply;
        None
    }

    /// Encodes records into requests of whole records, in order.
    ///
    /// # Errors
    /// If the storage cannot accept such records.
    fn encode(&self, batch: LogBatch) -> Result<Vec<Request>, Fault>;

    /// Encodes records together with their trace contexts, for a storage that can store these. Called instead of
    /// [`Adaptor::encode`] if the adaptor is exported `with traces`.
    ///
    /// # Errors
    /// As for [`Adaptor::encode`].
    fn encode_traced(&self, batch: LogBatch, traces: Traces) -> Result<Vec<Request>, Fault> {
        drop(traces);
        self.encode(batch)
    }

    /// Classifies the reply to an encoded request, and a reply to [`Adaptor::watermark`] that [`Adaptor::read_watermark`] has
    /// failed on.
    fn classify(&self, reply: Reply) -> Ack;
}

/// One row of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row<'a> {
    /// A number of [`kind`].
    pub kind: u8,
    /// Version.
    pub version: u64,
    /// Key.
    pub key: &'a [u8],
    /// JSON value, or the decimal delta of an add; empty for a delete.
    pub value: &'a [u8],
}

impl LogBatch {
    /// Returns the indices of the rows of record `record`.
    ///
    /// # Panics
    /// If there is no such record.
    #[must_use]
    pub fn rows_of(&self, record: usize) -> Range<usize> {
        let start = if record == 0 { 0 } else { self.row_ends[record - 1] as usize };
        start..self.row_ends[record] as usize
    }

    /// Returns row `row` of record `record`.
    ///
    /// # Panics
    /// If there is no such row.
    #[must_use]
    pub fn row(&self, record: usize, row: usize) -> Row<'_> {
        let piece = |at: u32, len: u32| &self.bytes[at as usize..][..len as usize];
        Row {
            kind: self.kind[row],
            version: self.version[record],
            key: piece(self.key_at[row], self.key_len[row]),
            value: piece(self.value_at[row], self.value_len[row]),
        }
    }

    /// Splits the batch into consecutive groups of whole records with at most `bytes_max` bytes each; a larger record is a
    /// group of its own. `size` returns the encoded size of a row.
    pub fn groups(&self, bytes_max: usize, size: impl Fn(Row<'_>) -> usize) -> Vec<Range<usize>> {
        let mut groups = Vec::new();
        let (mut start, mut bytes) = (0, 0);
        for record in 0..self.lsn.len() {
            let this: usize = self.rows_of(record).map(|row| size(self.row(record, row))).sum();
            if record > start && bytes + this > bytes_max {
                groups.push(start..record);
                (start, bytes) = (record, 0);
            }
            bytes += this;
        }
        if start < self.lsn.len() {
            groups.push(start..self.lsn.len());
        }
        groups
    }
}

/// Exports a type that implements [`Adaptor`] as this crate's component: `export_adaptor!(Type)`, or
/// `export_adaptor!(Type, with traces)` if it implements [`Adaptor::encode_traced`].
#[macro_export]
macro_rules! export_adaptor {
    ($plugin:ty, with traces) => {
        #[cfg(target_arch = "wasm32")]
        static BEGUN: $crate::traces::Begun = $crate::traces::Begun::new();

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::traces::exports::tribunal::plugin_traces::traces;

            struct Exported;

            impl traces::Guest for Exported {
                fn begin(traceparents: traces::Traceparents) {
                    BEGUN.tell(traceparents.into());
                }
            }

    $crate::bindings::traces::export_traces_interface!(Exported with_types_in $crate::bindings::traces);
        };

        $crate::export_adaptor!(
            $plugin,
            encode | plugin,
            batch | { $crate::Adaptor::encode_traced(plugin, batch, BEGUN.take()) }
        );
    };
    ($plugin:ty) => {
        $crate::export_adaptor!($plugin, encode | plugin, batch | $crate::Adaptor::encode(plugin, batch));
    };
    ($plugin:ty, encode |$instance:ident, $batch:ident| $encode:expr) => {
        #[cfg(target_arch = "wasm32")]
        const _: () = {
            use $crate::bindings::adaptor::exports::tribunal::plugin::adaptor;
            use $crate::bindings::lifecycle::exports::tribunal::plugin::lifecycle;
            use $crate::bindings::record_ids::exports::tribunal::plugin_record_ids::record_ids;

            static INSTANCE: $crate::Instance<$plugin> = $crate::Instance::new();
            static LAST_RECORD: $crate::record_ids::LastRecord = $crate::record_ids::LastRecord::new();
            struct Exported;

            impl lifecycle::Guest for Exported {
                fn describe() -> lifecycle::Description {
                    lifecycle::Description {
                        name: <$plugin as $crate::Plugin>::NAME.into(),
                        version: env!("CARGO_PKG_VERSION").into(),
                        about: <$plugin as $crate::Plugin>::ABOUT.into(),
                    }
                }

                fn init(config: $crate::rule::ConfigText) -> Result<(), $crate::Fault> {
                    INSTANCE.fill(<$plugin as $crate::Plugin>::init(&config)?)
                }
            }

            impl adaptor::Guest for Exported {
                fn takes() -> adaptor::Kinds {
                    match INSTANCE.get() {
                        Ok(plugin) => $crate::Adaptor::takes(plugin),
                        Err(_) => adaptor::Kinds::empty(),
                    }
                }

                fn watermark() -> Result<adaptor::Request, $crate::Fault> {
                    $crate::Adaptor::watermark(INSTANCE.get()?)
                }

                fn read_watermark(reply: adaptor::Reply) -> Result<u64, $crate::Fault> {
                    let plugin = INSTANCE.get()?;
                    LAST_RECORD.set($crate::Adaptor::last_record(plugin, &reply));
                    $crate::Adaptor::read_watermark(plugin, reply)
                }

                fn encode($batch: adaptor::LogBatch) -> Result<$crate::adaptor::Requests, $crate::Fault> {
                    let $instance = INSTANCE.get()?;
                    $encode
                }

                fn classify(reply: adaptor::Reply) -> adaptor::Ack {
                    match INSTANCE.get() {
                        Ok(plugin) => $crate::Adaptor::classify(plugin, reply),
                        Err(fault) => adaptor::Ack::Fatal(fault),
                    }
                }
            }

            impl record_ids::Guest for Exported {
                fn last() -> Option<record_ids::RecordId> {
                    LAST_RECORD.take()
                }
            }

    $crate::bindings::lifecycle::export_lifecycle!(Exported with_types_in $crate::bindings::lifecycle);
    $crate::bindings::adaptor::export_adaptor_interface!(Exported with_types_in $crate::bindings::adaptor);
    $crate::bindings::record_ids::export_record_ids_interface!(Exported with_types_in $crate::bindings::record_ids);
        };
    };
}

/// The result of [`Adaptor::encode`].
#[doc(hidden)]
pub type Requests = Vec<Request>;
