//! Transactions: what an engine posts and what it gets back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::problem::Problem;

/// Isolation level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum IsolationLevel {
    /// Sees committed rows only; the read set is not checked.
    ReadCommitted,
    /// Every row read must be unchanged at commit, in the serial order of its own epoch too; ranges are not checked.
    RepeatableRead,
    /// Reads form one snapshot; first committer wins on writes; ranges are unchanged since the snapshot.
    Snapshot,
    /// Strict serializability; the default.
    #[default]
    Serializable,
}

/// When a commit is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    /// As soon as it is durable and final; the default.
    #[default]
    Durable,
    /// When every store that it wrote has applied it, too.
    Applied,
}

/// What a write does to its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WriteOp {
    /// Creates the row; aborts with `row_exists` if it exists.
    Insert,
    /// Replaces the value; aborts with `row_missing` if the row is missing.
    Update,
    /// Creates the row or replaces its value; requires nothing.
    Put,
    /// Removes the row; aborts with `row_missing` if it is missing.
    Delete,
    /// Adds to an integer. Two adds never conflict. Aborts with `row_missing` if the row is missing (insert it to start
    /// at 0), with `not_a_number` if its value is no integer or its store is declared, and with `add_overflow` if the sum
    /// could leave 64 bits. The server knows a sum to within 16 digits, or exactly if the row was last written with more.
    Add,
}

/// A Begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BeginRequest {
    /// Stores that the transaction will use; all of the namespace if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_items = 64)]
    pub stores: Option<Vec<String>>,
    /// Level at which it will commit. Advice only: the commit names it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub isolation: Option<IsolationLevel>,
    /// Token from an earlier commit: wait until its writes are visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub session: Option<String>,
    /// How long to wait for that, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 60000)]
    pub wait_ms: Option<u32>,
    /// How long the transaction means to run, milliseconds. The id expires no later than its window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 600000)]
    pub ttl_ms: Option<u32>,
}

/// Answer to a Begin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BeginResponse {
    /// The transaction's id, a UUIDv7 and its idempotency key.
    #[schema(example = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a")]
    pub txn_id: String,
    /// Snapshot of each named store, to read at and to commit with.
    pub snapshots: BTreeMap<String, String>,
    /// The epoch that is open now; pass it to the commit, for rules that prefer older transactions.
    #[schema(example = "8842")]
    pub epoch: String,
    /// When the id expires: RFC 3339, UTC.
    #[schema(example = "2026-01-02T03:04:05.678Z")]
    pub expires_at: String,
    /// Token of what is visible in these snapshots.
    pub session: String,
}

/// A row that the transaction observed. Without `version` it observed that the row is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Read {
    /// The row's store.
    #[schema(example = "kv")]
    pub store: String,
    /// The row's key, UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key: Option<String>,
    /// The row's key in base64, instead of `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// The version seen; absent if the row was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "17")]
    pub version: Option<String>,
}

/// A key range that the transaction scanned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Range {
    /// The range's store.
    #[schema(example = "kv")]
    pub store: String,
    /// First key; absent starts at the beginning of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct/")]
    pub start: Option<String>,
    /// First key in base64, instead of `start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub start_b64: Option<String>,
    /// Key behind the last one; absent goes to the end of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct0")]
    pub end: Option<String>,
    /// Key behind the last one in base64, instead of `end`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub end_b64: Option<String>,
}

/// A row that the transaction writes.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Write {
    /// What to do.
    pub op: WriteOp,
    /// The row's store.
    #[schema(example = "kv")]
    pub store: String,
    /// The row's key, UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key: Option<String>,
    /// The row's key in base64, instead of `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// The value, any JSON, passed through untouched; an integer for `add`; absent for `delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = serde_json::Value)]
    pub value: Option<Box<RawValue>>,
    /// A binary value in base64, instead of `value`. Kept as the JSON object `{"$b64": ...}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value_b64: Option<String>,
}

/// A commit: what the transaction observed and what it wants to write.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CommitRequest {
    /// Isolation level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub isolation: Option<IsolationLevel>,
    /// Snapshot of each store used, as Begin answered. May be left out by transactions without ranges, without
    /// reads at level `snapshot`, on `tracked` stores only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub snapshots: Option<BTreeMap<String, String>>,
    /// Weight for conflict rules that look at it; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 255)]
    pub priority: Option<u8>,
    /// When to answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ack: Option<Ack>,
    /// `epoch` of the Begin, for rules that prefer older transactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8842")]
    pub epoch: Option<String>,
    /// Rows observed; no row twice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10000)]
    pub reads: Vec<Read>,
    /// Ranges scanned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub ranges: Vec<Range>,
    /// Rows to write; no row twice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10000)]
    pub writes: Vec<Write>,
}

/// A commit within a batch: a commit and its id.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BatchTxn {
    /// The transaction's id, a UUIDv7 and its idempotency key.
    #[schema(example = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a")]
    pub txn_id: String,
    /// Isolation level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub isolation: Option<IsolationLevel>,
    /// Snapshot of each store used, as Begin answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub snapshots: Option<BTreeMap<String, String>>,
    /// Weight for conflict rules that look at it; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 255)]
    pub priority: Option<u8>,
    /// When to answer. The most patient item decides for the whole request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ack: Option<Ack>,
    /// `epoch` of the Begin, for rules that prefer older transactions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8842")]
    pub epoch: Option<String>,
    /// Rows observed; no row twice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10000)]
    pub reads: Vec<Read>,
    /// Ranges scanned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub ranges: Vec<Range>,
    /// Rows to write; no row twice.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10000)]
    pub writes: Vec<Write>,
}

/// Many commits in one request.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BatchCommitRequest {
    /// The commits. Answers keep their order.
    #[schema(max_items = 10000)]
    pub txns: Vec<BatchTxn>,
}

/// Answers of many commits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchCommitResponse {
    /// One per commit, in order.
    pub results: Vec<TxnOutcome>,
}

/// State of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TxnState {
    /// Durable and final.
    Committed,
    /// Final; `reason` and `conflicts` say why.
    Aborted,
    /// Waiting for its verdict.
    InFlight,
    /// Never arrived here, but still may. A fence settles it.
    Unknown,
    /// Nothing is known of it any more, and nothing can become of it.
    UnknownExpired,
    /// Dry run: it would commit now, alone.
    WouldCommit,
    /// Dry run: it would abort now, even alone.
    WouldAbort,
    /// Batches only: there is no decision; `problem` says why.
    Problem,
}

/// What became of a transaction. Which fields are there follows from `status`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TxnOutcome {
    /// What became of it.
    pub status: TxnState,
    /// The transaction; absent only for a batch item without a readable id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a")]
    pub txn_id: Option<String>,
    /// Epoch that decided it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8842")]
    pub epoch: Option<String>,
    /// Arrival stamp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub csn: Option<String>,
    /// Version of every row that it wrote. Versions of one row rise and are never equal; two transactions of one epoch that
    /// share no row may have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub version: Option<String>,
    /// Position of its record in the log of each store that it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub lsn: Option<BTreeMap<String, String>>,
    /// Pass it to a Begin that must see this commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub session: Option<String>,
    /// It wrote nothing, and nothing was stored: asked for by id later, it is `unknown`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub read_only: Option<bool>,
    /// With `ack: applied`: whether every store had applied it in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub applied: Option<bool>,
    /// Why it aborted: `read_conflict`, `write_conflict`, `range_conflict`, `row_exists`, `row_missing`,
    /// `not_a_number`, `add_overflow`, `snapshot_too_old`, `snapshot_from_the_future`, `snapshots_differ`, `order_conflict`,
    /// `lock_lost`, `deadlock`, `client_abort`, `fenced` or `plugin:<code>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "read_conflict")]
    pub reason: Option<String>,
    /// Whether the same work on fresh reads, under a new id, may commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retryable: Option<bool>,
    /// When trying again makes sense, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0)]
    pub retry_after_ms: Option<u32>,
    /// What defeated it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub conflicts: Option<Vec<Conflict>>,
    /// Batches only: why there is no decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub problem: Option<Problem>,
}

/// One reason for an abort, with everything needed to act on it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Conflict {
    /// The store.
    #[schema(example = "kv")]
    pub store: String,
    /// The row's key, or the range's start, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key: Option<String>,
    /// The same in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// The range's end, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub end: Option<String>,
    /// The same in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub end_b64: Option<String>,
    /// Which kind of operation lost: `read`, `range` or `write`.
    #[schema(example = "read")]
    pub op: String,
    /// Station that found it: `admission`, `identity`, `join`, `validate` or `merge`.
    #[schema(example = "validate")]
    pub stage: String,
    /// Version that the transaction had read; absent if it read that the row is absent, or did not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "17")]
    pub read_version: Option<String>,
    /// Version that is there now; absent if the row is, or if the winner is of the same epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "19")]
    pub current_version: Option<String>,
    /// The transaction that won: always if it is of the same epoch, else as long as its epoch is in the server's memory.
    /// Never for a range that had changed before the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by_txn: Option<String>,
}
