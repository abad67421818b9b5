//! Requests of LogAdaptors to storages, and the replies. An adaptor only makes and reads these values; the host
//! owns sockets, credentials and retries.

use alloc::string::String;
use alloc::vec::Vec;

use crate::ids::{Digest, LogId, Lsn};

/// What a storage keeps beside its rows: how far it followed which log.
///
/// A position alone does not name a record: a salvaged log, or a copy of its files that went another way, has another
/// record under the same [`Lsn`]. The digest tells histories of one log apart, the id logs whose records are truncated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermark {
    /// Last record applied; 0 for a storage that has none yet.
    pub lsn: Lsn,
    /// The log that it is of.
    pub log: LogId,
    /// Digest of the log's outcomes up to the record's epoch.
    pub digest: Digest,
}

/// One request to a storage: the effect of consecutive records, all or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRequest {
    /// First record.
    pub first: Lsn,
    /// Last record.
    pub last: Lsn,
    /// The same for every attempt at the same records.
    pub idempotency_key: String,
    /// What to send.
    pub command: Command,
}

/// A storage's own language.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// RESP commands, sent as one pipeline.
    Resp(RespPipeline),
    /// SQL statements, run in one transaction. It takes effect only if all succeed and the first one returns or affects
    /// a row; if that meets none, the answer is SQLSTATE 02000 (no data).
    Sql(Vec<SqlStatement>),
    /// One HTTP request.
    Http(HttpCall),
    /// Bytes in a format of their own; of the adaptors' transports, none takes them.
    Raw(Vec<u8>),
}

/// RESP commands in flat columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RespPipeline {
    /// All arguments, one after the other.
    pub args: Vec<u8>,
    /// End of each argument in `args`.
    pub arg_ends: Vec<u32>,
    /// End of each command in `arg_ends`.
    pub command_ends: Vec<u32>,
}

/// A statement whose values are bound, never spliced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqlStatement {
    /// Text with the dialect's placeholders.
    pub text: String,
    /// Bound values in the storage's text form; `None` is SQL's null.
    pub params: Vec<Option<Vec<u8>>>,
}

/// A request to the store's configured origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCall {
    /// Method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// Headers; credentials are added by the host.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
}

/// A storage's reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageReply {
    /// One value per RESP command.
    Resp(Vec<RespValue>),
    /// Rows affected by the last statement and its first cell, or the error.
    Sql {
        /// Rows affected.
        affected: u64,
        /// First cell of the first row, as text.
        cell: Option<String>,
        /// SQLSTATE and message.
        error: Option<(String, String)>,
    },
    /// Status and body.
    Http {
        /// Status code.
        status: u16,
        /// Body, cut at 64 KiB.
        body: Vec<u8>,
    },
    /// Bytes from the embedded store.
    Raw(Vec<u8>),
}

/// One RESP value. Arrays do not occur in the answers to what adaptors send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RespValue {
    /// Null.
    Nil,
    /// Integer.
    Int(i64),
    /// Simple or bulk string.
    Text(Vec<u8>),
    /// Error line.
    Error(String),
}

/// What a reply means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ack {
    /// Applied, durably.
    Ok,
    /// Try again later.
    Retry(String),
    /// The storage's watermark is not where this request starts: read it back and resume there.
    Moved(String),
    /// Can never succeed: stop the store's push and report the reason.
    Fatal(String),
}
