//! Transactions: the requests and responses of Begin, commit and status.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::consistency::Consistency;
use crate::present::present;
use crate::problem::Problem;
use crate::read::{RangeRead, ReadRange, ReadRow, RowRead};

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

/// When a commit is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Ack {
    /// As soon as it is durable and final; the default.
    #[default]
    Durable,
    /// When every store that it wrote has also applied it.
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
    /// Adds to an integer. Two adds never conflict. A missing row is created if `or` is present; otherwise the transaction
    /// aborts with `row_missing`. Aborts with `not_a_number` if the value is not an integer, and with `add_overflow` if the sum
    /// could leave 64 bits. In a declared store, the request is refused with `add_unsupported`. The server knows a sum to within 16 digits, or exactly if the row was last written with more digits.
    Add,
}

impl WriteOp {
    /// Returns the name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            WriteOp::Insert => "insert",
            WriteOp::Update => "update",
            WriteOp::Put => "put",
            WriteOp::Delete => "delete",
            WriteOp::Add => "add",
        }
    }
}

/// A request to begin a transaction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BeginRequest {
    /// Stores that the transaction will use, at most 64; all stores of the namespace if absent or empty, which then may not
    /// be more. A store whose storage is detached, or has not been reached since the node's start, is then left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_items = 64, example = json!(["kv"]))]
    pub stores: Option<Vec<String>>,
    /// Level at which it will commit. A hint: the commit's own level counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub isolation: Option<IsolationLevel>,
    /// Session token of an earlier response: wait until what it covers is visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub session: Option<String>,
    /// What the snapshots must include: `session` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub consistency: Option<Consistency>,
    /// Timeout of the wait for `session`, `consistency` or a store that is being opened, milliseconds. With `read` or `ranges`
    /// and a store that keeps versions (`multi_version`), also of the wait until every store has applied what was read:
    /// without it, such a Begin fails with `store_lagging` if a store lags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 60000, example = 1000)]
    pub wait_ms: Option<u32>,
    /// Expected duration of the transaction, milliseconds; 600000 if absent. Advisory: it only sets `expires_at`, where the
    /// enforced limits are described.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 600000)]
    pub ttl_ms: Option<u32>,
    /// Rows of embedded stores to read at the snapshots. The response has one element in `rows` for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_items = 10000)]
    pub read: Option<Vec<RowRead>>,
    /// Ranges of embedded stores to read at the snapshots. The response has one element in `ranges` for each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_items = 256)]
    pub ranges: Option<Vec<RangeRead>>,
}

/// A transaction that has begun.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BeginResponse {
    /// The transaction's id, a UUIDv7 and its idempotency key.
    #[schema(example = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a")]
    pub txn_id: String,
    /// Snapshot of each store: read at it, and pass it to the commit.
    #[schema(example = json!({"kv": "8841"}))]
    pub snapshots: BTreeMap<String, String>,
    /// For each store, a position of its log: every commit up to the store's snapshot is there or before. An engine that keeps the
    /// rows of a store itself applies the log up to here before it reads them. Earlier releases do not return it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!({"kv": "120"}))]
    pub lsn: Option<BTreeMap<String, String>>,
    /// The log that these positions refer to, as in a page of the log: if an engine has its rows from another log, it must not read
    /// them, because the service's log has been salvaged, restored or replaced since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8f14e45fceea167a5a36dedd4bea2543")]
    pub log: Option<String>,
    /// The epoch that is open now. Pass it to the commit: some conflict rules compare when transactions began.
    #[schema(example = "8842")]
    pub epoch: String,
    /// The time of Begin plus `ttl_ms`: RFC 3339, UTC. Advisory: a commit after it is still decided. Two limits are enforced.
    /// The history that snapshots need is kept for 60 seconds: after that, if other commits were decided meanwhile, a
    /// commit that names them aborts with `snapshot_too_old` if it is at `snapshot`, has ranges, or uses a store of declared
    /// existence; the versions of rows can always be compared. And once the time in the id is more than 10 minutes before or
    /// after the service's, a commit that writes is refused with `txn_id_expired`.
    #[schema(example = "2026-01-02T03:04:05.678Z")]
    pub expires_at: String,
    /// Session token that covers these snapshots.
    #[schema(example = "v1-8842")]
    pub session: String,
    /// The rows of `read`, in the order of the request; absent if it has no `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rows: Option<Vec<ReadRow>>,
    /// The ranges, in the order of the request; absent if it has no `ranges`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ranges: Option<Vec<ReadRange>>,
}

/// A row that the transaction read. Without `version`, the row was absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Read {
    /// The row's store.
    #[schema(example = "kv")]
    pub store: String,
    /// The row's key, UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct/1")]
    pub key: Option<String>,
    /// The row's key in base64, instead of `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// The version read; absent if the row was absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "17")]
    pub version: Option<String>,
}

/// A key range that the transaction scanned. A scan that stopped at a limit reports the range up to its last key and a
/// zero byte (`end` is exclusive), so that only changes of what it has seen count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Range {
    /// The range's store.
    #[schema(example = "kv")]
    pub store: String,
    /// First key; absent for the beginning of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct/")]
    pub start: Option<String>,
    /// First key in base64, instead of `start`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub start_b64: Option<String>,
    /// End of the range, exclusive; absent or empty for the end of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct0")]
    pub end: Option<String>,
    /// End of the range in base64, instead of `end`.
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
    #[schema(nullable = false, example = "acct/1")]
    pub key: Option<String>,
    /// The row's key in base64, instead of `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// The value: any JSON, stored as posted and not interpreted. The whole request may be nested 64 deep, and no number may exceed the
    /// range of a double. If a name occurs twice in an object, both are stored, and readers choose. An integer for `add`;
    /// absent for `delete`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!({"balance": 90}), value_type = serde_json::Value)]
    pub value: Option<Box<RawValue>>,
    /// A binary value in base64, instead of `value`. Stored as the JSON object `{"$b64": ...}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value_b64: Option<String>,
    /// For `add`: the integer to add to if the row is missing. The row is then created, and the log contains an insert of
    /// the sum. Several such adds to one row do not conflict: the first creates it. If absent, the row must exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = "double-int", minimum = -9007199254740991_i64, maximum = 9007199254740991_i64, example = 0)]
    pub or: Option<i64>,
}

/// A commit: the rows and ranges that the transaction has read, and its writes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct CommitRequest {
    /// Isolation level.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub isolation: Option<IsolationLevel>,
    /// Snapshot of each store used, as returned by Begin. Required for ranges, for reads at level `snapshot` and for stores
    /// that are not `tracked`; otherwise it may be absent or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!({"kv": "8841"}))]
    pub snapshots: Option<BTreeMap<String, String>>,
    /// Weight for conflict rules that use it, such as `priority`; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 255)]
    pub priority: Option<u8>,
    /// When to acknowledge the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ack: Option<Ack>,
    /// `epoch` as returned by Begin, for conflict rules that compare when transactions began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8842")]
    pub epoch: Option<String>,
    /// When the client first attempted this work, Unix milliseconds, for rules that let the oldest work win; the same in
    /// every retry, under any id. If absent or later than the time in the transaction's own id, that time is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1767225600000")]
    pub first_attempt_ms: Option<String>,
    /// Rows read, each at most once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10000)]
    pub reads: Vec<Read>,
    /// Ranges scanned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub ranges: Vec<Range>,
    /// Rows to write, each at most once.
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
    /// Snapshot of each store used, as returned by Begin; see `CommitRequest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!({"kv": "8841"}))]
    pub snapshots: Option<BTreeMap<String, String>>,
    /// Weight for conflict rules that use it, such as `priority`; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 255)]
    pub priority: Option<u8>,
    /// When to acknowledge the commit. The response is sent when the last item of the batch is acknowledged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ack: Option<Ack>,
    /// `epoch` as returned by Begin, for conflict rules that compare when transactions began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8842")]
    pub epoch: Option<String>,
    /// When the client first attempted this work, Unix milliseconds, for rules that let the oldest work win; the same in
    /// every retry, under any id. If absent or later than the time in the transaction's own id, that time is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1767225600000")]
    pub first_attempt_ms: Option<String>,
    /// Rows read, each at most once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10000)]
    pub reads: Vec<Read>,
    /// Ranges scanned.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 256)]
    pub ranges: Vec<Range>,
    /// Rows to write, each at most once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(max_items = 10000)]
    pub writes: Vec<Write>,
}

/// Many commits in one request.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct BatchCommitRequest {
    /// The commits. Results keep their order.
    #[schema(max_items = 10000)]
    pub txns: Vec<BatchTxn>,
}

/// Results of many commits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BatchCommitResponse {
    /// One per commit, in order.
    pub results: Vec<TxnOutcome>,
}

/// Why a transaction aborted:
///
/// * `read_conflict`: a row that it read has changed, appeared or disappeared.
/// * `write_conflict`: another transaction wrote the row first.
/// * `range_conflict`: a range that it scanned has changed.
/// * `row_exists`: it inserts a row that exists.
/// * `row_missing`: it updates, deletes or adds to a row that does not exist.
/// * `not_a_number`: it adds to a value that is not an integer.
/// * `add_overflow`: the sum of an add does not fit into 64 bits.
/// * `snapshot_too_old`: the history that its snapshot needs is no longer retained.
/// * `snapshot_from_the_future`: its snapshot is newer than every complete epoch.
/// * `snapshots_differ`: its snapshots of multi-version stores are not one state of the database.
/// * `order_conflict`: it would close a cycle in the serial order of its epoch.
/// * `client_abort`: the client aborted it.
/// * `fenced`: a fence closed its id before it was decided.
/// * `plugin`: an isolation validator rejected it for a reason of its own; see `plugin_code`.
/// * `lock_lost`, `deadlock`: reserved for locks; this release never returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AbortReason {
    /// A row read has changed, appeared or disappeared.
    ReadConflict,
    /// Another transaction wrote the row first.
    WriteConflict,
    /// A scanned range has changed.
    RangeConflict,
    /// An insert of a row that exists.
    RowExists,
    /// An update, delete or add of a row that does not exist.
    RowMissing,
    /// An add to a value that is not an integer.
    NotANumber,
    /// An add whose sum leaves 64 bits.
    AddOverflow,
    /// The history that the snapshot needs is no longer retained.
    SnapshotTooOld,
    /// The snapshot is newer than every complete epoch.
    SnapshotFromTheFuture,
    /// The snapshots of multi-version stores are not one state of the database.
    SnapshotsDiffer,
    /// No position in its epoch's serial order suits the transaction.
    OrderConflict,
    /// A lock was lost. Reserved.
    LockLost,
    /// The transaction was part of a cycle of waiting transactions. Reserved.
    Deadlock,
    /// The client aborted it.
    ClientAbort,
    /// A fence closed the id.
    Fenced,
    /// An isolation validator rejected it for a reason of its own: see `plugin_code`.
    Plugin,
}

impl AbortReason {
    /// Returns the name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AbortReason::ReadConflict => "read_conflict",
            AbortReason::WriteConflict => "write_conflict",
            AbortReason::RangeConflict => "range_conflict",
            AbortReason::RowExists => "row_exists",
            AbortReason::RowMissing => "row_missing",
            AbortReason::NotANumber => "not_a_number",
            AbortReason::AddOverflow => "add_overflow",
            AbortReason::SnapshotTooOld => "snapshot_too_old",
            AbortReason::SnapshotFromTheFuture => "snapshot_from_the_future",
            AbortReason::SnapshotsDiffer => "snapshots_differ",
            AbortReason::OrderConflict => "order_conflict",
            AbortReason::LockLost => "lock_lost",
            AbortReason::Deadlock => "deadlock",
            AbortReason::ClientAbort => "client_abort",
            AbortReason::Fenced => "fenced",
            AbortReason::Plugin => "plugin",
        }
    }
}

/// The kind of operation that lost a conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConflictOp {
    /// A row read.
    #[default]
    Read,
    /// A range scanned.
    Range,
    /// A row written.
    Write,
}

impl ConflictOp {
    /// Returns the name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ConflictOp::Read => "read",
            ConflictOp::Range => "range",
            ConflictOp::Write => "write",
        }
    }
}

/// The stage of the pipeline that found a conflict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ConflictStage {
    /// Before the epoch was sealed.
    Admission,
    /// The check for repeated ids.
    Identity,
    /// The lookup of rows: existence and snapshot bounds.
    Join,
    /// The isolation validator.
    #[default]
    Validate,
    /// The serial order of the epoch.
    Merge,
}

impl ConflictStage {
    /// Returns the name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ConflictStage::Admission => "admission",
            ConflictStage::Identity => "identity",
            ConflictStage::Join => "join",
            ConflictStage::Validate => "validate",
            ConflictStage::Merge => "merge",
        }
    }
}

/// Status of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TxnState {
    /// Durable and final.
    Committed,
    /// Final; see `reason` and `conflicts`.
    Aborted,
    /// Its verdict is pending.
    InFlight,
    /// It has not arrived, but still may: `fence=true` closes the id.
    Unknown,
    /// Too old: its verdict is no longer stored, and it can no longer commit.
    UnknownExpired,
    /// Dry run: alone, it would commit now.
    WouldCommit,
    /// Dry run: even alone, it would abort now.
    WouldAbort,
    /// Batches only: no decision was made; see `problem`.
    Problem,
}

/// Outcome of a transaction. `status` determines which fields are present.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TxnOutcome {
    /// The status.
    pub status: TxnState,
    /// The transaction; absent only for a batch item without a readable id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a")]
    pub txn_id: Option<String>,
    /// The epoch that decided it. A read-only transaction belongs to no epoch: it was judged on the state after this one, and
    /// follows its commits in the serial order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8842")]
    pub epoch: Option<String>,
    /// Arrival stamp: identifies the transaction, and is not the commit order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1808217543843841024")]
    pub csn: Option<String>,
    /// Version of every row that it wrote. Versions of one row rise and are never equal; two transactions of one epoch that
    /// wrote no row in common may have the same version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9271508992")]
    pub version: Option<String>,
    /// Position of its record in the log of each store that it wrote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!({"kv": "120"}))]
    pub lsn: Option<BTreeMap<String, String>>,
    /// Session token: pass it to a Begin that must see this commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "v1-8842")]
    pub session: Option<String>,
    /// Whether it was read-only. Its verdict is not stored, so its status by id is `unknown` afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub read_only: Option<bool>,
    /// With `ack: applied`: whether every store had applied it in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub applied: Option<bool>,
    /// Batches only: whether the request was a retry, and this is the stored outcome. A response to a single commit has the
    /// header `idempotency-replayed` instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub replayed: Option<bool>,
    /// Why it aborted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reason: Option<AbortReason>,
    /// With reason `plugin`: the code that the isolation validator returned. 64 to 127 are final: `retryable` is `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 127)]
    pub plugin_code: Option<u8>,
    /// Whether the same work may commit on fresh reads, under a new id. With `row_exists` and `row_missing`, that requires work
    /// that reads the row and depends on it: an `insert`, `update`, `delete` or `add` that is only repeated fails again until
    /// another transaction has deleted or created the row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retryable: Option<bool>,
    /// When to retry, milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0)]
    pub retry_after_ms: Option<u32>,
    /// The conflicts that caused the abort: as a rule only the first one found, in the order of the request's reads, ranges and
    /// writes. Others may exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub conflicts: Option<Vec<Conflict>>,
    /// Batches only: why no decision was made.
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
    /// The range's end, if it is UTF-8. A range with neither `end` nor `end_b64` extends to the end of the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub end: Option<String>,
    /// The same in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub end_b64: Option<String>,
    /// Of a range: the first row in it that the winner wrote, if its key is UTF-8 and the winner is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub row: Option<String>,
    /// The same in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub row_b64: Option<String>,
    /// The kind of operation that lost.
    pub op: ConflictOp,
    /// The stage that found the conflict.
    pub stage: ConflictStage,
    /// Version that the transaction read; absent if the row was absent or not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "17")]
    pub read_version: Option<String>,
    /// The row's version now; absent if there is no such row, or if the winner is in the same epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "19")]
    pub current_version: Option<String>,
    /// The transaction that won. Always present if it is in the same epoch; otherwise only while its epoch is in the
    /// server's memory, and not if it deleted the row. With reason `plugin`, only if what was read has changed since: the validator may blame an operation
    /// that no other transaction has to do with, and if it blames none, the transaction's first operation is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub by_txn: Option<String>,
}
