//! Requests of LogAdaptors to storages, and the replies. An adaptor only produces and consumes these values; the host
//! owns sockets, credentials and retries.

use alloc::string::String;
use alloc::vec::Vec;

use crate::ids::{Digest, LogId, Lsn};

/// The progress that a storage keeps beside its rows: its position, and the log of that position.
///
/// A position alone does not identify a record: a salvaged log, or a diverged copy of its files, has another record at
/// the same [`Lsn`]. The digest distinguishes histories of one log; the id distinguishes logs whose records are
/// truncated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermark {
    /// Last applied record; 0 for a storage that has none yet.
    pub lsn: Lsn,
    /// The log of that record.
    pub log: LogId,
    /// Digest of the log's outcomes up to the record's epoch.
    pub digest: Digest,
}

/// One request to a storage: the effect of consecutive records, applied atomically.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushRequest {
    /// First record.
    pub first: Lsn,
    /// Last record.
    pub last: Lsn,
    /// Key that is the same for every attempt to apply the same records.
    pub idempotency_key: String,
    /// The request.
    pub command: Command,
}

/// A request in a storage's own protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// RESP commands, sent as one pipeline.
    Resp(RespPipeline),
    /// SQL statements, run in one transaction. It takes effect only if all succeed and the first one returns or affects
    /// a row; otherwise the reply is SQLSTATE 02000 (no data).
    Sql(Vec<SqlStatement>),
    /// One HTTP request.
    Http(HttpCall),
    /// Bytes in a custom format; none of the adaptors' transports accepts them.
    Raw(Vec<u8>),
}

/// RESP commands in flat columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RespPipeline {
    /// All arguments, concatenated.
    pub args: Vec<u8>,
    /// End of each argument in `args`.
    pub arg_ends: Vec<u32>,
    /// End of each command in `arg_ends`.
    pub command_ends: Vec<u32>,
}

/// A statement whose values are bound, never interpolated.
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
    /// Headers; the host adds credentials.
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

/// One RESP value. Replies to adaptors' commands contain no arrays.
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

/// The meaning of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ack {
    /// Applied, durably.
    Ok,
    /// Try again later.
    Retry(String),
    /// The storage's watermark is not at the start of this request: read it back and resume there.
    Moved(String),
    /// The request can never succeed: stop the store's push and report the reason.
    Fatal(String),
}
