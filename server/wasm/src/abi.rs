//! The types of `plugins/wit` in the form that wasmtime lowers and lifts. Columns are borrowed: each is copied into an
//! instance's memory once, as one block.

use wasmtime::component::{ComponentType, Lift, Lower, flags};

/// `lifecycle.description`
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct Description {
    pub name: String,
    pub version: String,
    pub about: String,
}

// `rule.columns`
flags! {
    RuleColumns {
        #[component(name = "csn")]
        const CSN;
        #[component(name = "start")]
        const START;
        #[component(name = "origin")]
        const ORIGIN;
        #[component(name = "priority")]
        const PRIORITY;
        #[component(name = "reads")]
        const READS;
        #[component(name = "writes")]
        const WRITES;
        #[component(name = "first-attempt")]
        const FIRST_ATTEMPT;
    }
}

/// `rule.txns`
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct RuleTxns<'a> {
    pub count: u32,
    pub epoch: u64,
    pub csn: &'a [u64],
    pub start: &'a [u64],
    pub origin: &'a [u64],
    pub priority: &'a [u8],
    pub reads: &'a [u32],
    pub writes: &'a [u32],
    #[component(name = "first-attempt")]
    pub first_attempt: &'a [u64],
}

/// `rule.ranks`
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct Ranks {
    pub hi: Vec<u64>,
    pub lo: Vec<u64>,
}

// `validator.groups`
flags! {
    Groups {
        #[component(name = "txns")]
        const TXNS;
        #[component(name = "snapshots")]
        const SNAPSHOTS;
        #[component(name = "reads")]
        const READS;
        #[component(name = "ranges")]
        const RANGES;
        #[component(name = "writes")]
        const WRITES;
        #[component(name = "epochs")]
        const EPOCHS;
    }
}

/// `validator.txns`
#[derive(Default, ComponentType, Lower)]
#[component(record)]
pub(crate) struct ValidatorTxns<'a> {
    pub csn: &'a [u64],
    pub start: &'a [u64],
    pub origin: &'a [u64],
    pub priority: &'a [u8],
    pub reads: &'a [u32],
    pub writes: &'a [u32],
    #[component(name = "first-attempt")]
    pub first_attempt: &'a [u64],
}

/// `validator.snapshots`
#[derive(Default, ComponentType, Lower)]
#[component(record)]
pub(crate) struct Snapshots<'a> {
    pub named: &'a [u64],
    #[component(name = "current-from")]
    pub current_from: &'a [u64],
    #[component(name = "current-until")]
    pub current_until: &'a [u64],
    #[component(name = "multi-version")]
    pub multi_version: &'a [u8],
}

/// `validator.reads`
#[derive(Default, ComponentType, Lower)]
#[component(record)]
pub(crate) struct Reads<'a> {
    pub ends: &'a [u32],
    pub seen: &'a [u64],
    pub latest: &'a [u64],
}

/// `validator.ranges`
#[derive(Default, ComponentType, Lower)]
#[component(record)]
pub(crate) struct Ranges<'a> {
    pub ends: &'a [u32],
    pub changed: &'a [u8],
}

/// `validator.writes`
#[derive(Default, ComponentType, Lower)]
#[component(record)]
pub(crate) struct Writes<'a> {
    pub ends: &'a [u32],
    pub kind: &'a [u8],
    pub flags: &'a [u8],
    pub latest: &'a [u64],
}

/// `validator.epochs`
#[derive(Default, ComponentType, Lower)]
#[component(record)]
pub(crate) struct Epochs<'a> {
    pub seen: &'a [u64],
    pub latest: &'a [u64],
    pub written: &'a [u64],
}

/// `validator.evidence`
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct Evidence<'a> {
    pub count: u32,
    pub epoch: u64,
    pub txns: ValidatorTxns<'a>,
    pub snapshots: Snapshots<'a>,
    pub reads: Reads<'a>,
    pub ranges: Ranges<'a>,
    pub writes: Writes<'a>,
    pub epochs: Epochs<'a>,
}

/// `validator.validation`
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct Validation {
    pub code: Vec<u8>,
    pub witness: Vec<u32>,
}

// `adaptor.kinds`
flags! {
    Kinds {
        #[component(name = "insert")]
        const INSERT;
        #[component(name = "update")]
        const UPDATE;
        #[component(name = "put")]
        const PUT;
        #[component(name = "delete")]
        const DELETE;
        #[component(name = "add")]
        const ADD;
    }
}

/// `adaptor.log-batch`
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct LogBatch<'a> {
    pub store: &'a str,
    pub lsn: &'a [u64],
    pub epoch: &'a [u64],
    pub csn: &'a [u64],
    pub version: &'a [u64],
    #[component(name = "txn-ids")]
    pub txn_ids: &'a [u8],
    #[component(name = "row-ends")]
    pub row_ends: &'a [u32],
    pub kind: &'a [u8],
    #[component(name = "key-at")]
    pub key_at: &'a [u32],
    #[component(name = "key-len")]
    pub key_len: &'a [u32],
    #[component(name = "value-at")]
    pub value_at: &'a [u32],
    #[component(name = "value-len")]
    pub value_len: &'a [u32],
    pub bytes: &'a [u8],
}

/// `record-ids.record-id`
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct RecordId {
    pub lsn: u64,
    pub csn: u64,
    #[component(name = "txn-id")]
    pub txn_id: Vec<u8>,
}

/// `traces.traceparents`
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct Traceparents<'a> {
    pub ends: &'a [u32],
    pub bytes: &'a [u8],
}

/// `adaptor.resp-pipeline`
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct RespPipeline {
    pub args: Vec<u8>,
    #[component(name = "arg-ends")]
    pub arg_ends: Vec<u32>,
    #[component(name = "command-ends")]
    pub command_ends: Vec<u32>,
}

/// `adaptor.sql-statement`
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct SqlStatement {
    pub text: String,
    pub params: Vec<Option<Vec<u8>>>,
}

/// `adaptor.http-call`
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct HttpCall {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// `adaptor.command`
#[derive(ComponentType, Lift)]
#[component(variant)]
pub(crate) enum Command {
    #[component(name = "resp")]
    Resp(RespPipeline),
    #[component(name = "sql")]
    Sql(Vec<SqlStatement>),
    #[component(name = "http")]
    Http(HttpCall),
    #[component(name = "raw")]
    Raw(Vec<u8>),
}

/// `adaptor.request`
#[derive(ComponentType, Lift)]
#[component(record)]
pub(crate) struct Request {
    pub first: u64,
    pub last: u64,
    #[component(name = "idempotency-key")]
    pub idempotency_key: String,
    pub command: Command,
}

/// `adaptor.resp-value`
#[derive(ComponentType, Lower)]
#[component(variant)]
pub(crate) enum RespValue<'a> {
    #[component(name = "nil")]
    Nil,
    #[component(name = "int")]
    Int(i64),
    #[component(name = "text")]
    Text(&'a [u8]),
    #[component(name = "error")]
    Error(&'a str),
}

/// `adaptor.sql-error`
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct SqlError<'a> {
    pub state: &'a str,
    pub message: &'a str,
}

/// `adaptor.sql-reply`
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct SqlReply<'a> {
    pub affected: u64,
    pub cell: Option<&'a str>,
    pub error: Option<SqlError<'a>>,
}

/// `adaptor.http-reply`
#[derive(ComponentType, Lower)]
#[component(record)]
pub(crate) struct HttpReply<'a> {
    pub status: u16,
    pub body: &'a [u8],
}

/// `adaptor.reply`
#[derive(ComponentType, Lower)]
#[component(variant)]
pub(crate) enum Reply<'a> {
    #[component(name = "resp")]
    Resp(Vec<RespValue<'a>>),
    #[component(name = "sql")]
    Sql(SqlReply<'a>),
    #[component(name = "http")]
    Http(HttpReply<'a>),
    #[component(name = "raw")]
    Raw(&'a [u8]),
}

/// `adaptor.ack`
#[derive(ComponentType, Lift)]
#[component(variant)]
pub(crate) enum Ack {
    #[component(name = "ok")]
    Ok,
    #[component(name = "retry")]
    Retry(String),
    #[component(name = "moved")]
    Moved(String),
    #[component(name = "fatal")]
    Fatal(String),
}
