//! Records of a store's committed log.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::Problem;
use crate::present::present;
use crate::txn::WriteOp;

/// A page of a store's committed log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogPage {
    /// The records, dense in `lsn`; empty if there is none after `after` yet.
    pub records: Vec<LogRecord>,
    /// The log that all positions refer to. A salvage or a restored backup may replace it; pass it as `log` to detect that.
    #[schema(example = "8f14e45fceea167a5a36dedd4bea2543")]
    pub log: String,
    /// What to pass as `after` for the following page.
    #[schema(example = "120")]
    pub next: String,
    /// Every commit of this epoch and of earlier ones is at `next` or before: a copy that has applied the log up to `next` has
    /// everything that a snapshot of this epoch, or of an earlier one, includes. A lower bound, which may be less than in an earlier
    /// response. Earlier releases do not return it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8842")]
    pub epoch: Option<String>,
    /// Last position of the log.
    #[schema(example = "120")]
    pub head_lsn: String,
    /// Last position that is durable.
    #[schema(example = "120")]
    pub durable_upto: String,
    /// Oldest position that is retained.
    #[schema(example = "1")]
    pub oldest: String,
}

/// One committed transaction's rows in one store.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogRecord {
    /// Dense position, from 1.
    #[schema(example = "120")]
    pub lsn: String,
    /// The previous position: a gap is visible, and a repeat is harmless.
    #[schema(example = "119")]
    pub prev_lsn: String,
    /// The epoch that committed it.
    #[schema(example = "8842")]
    pub epoch: String,
    /// Arrival stamp of the transaction; not the commit order.
    #[schema(example = "1808217543843841024")]
    pub csn: String,
    /// Version of every row in the record.
    #[schema(example = "9271508992")]
    pub version: String,
    /// The transaction.
    #[schema(example = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a")]
    pub txn_id: String,
    /// The store.
    #[schema(example = "kv")]
    pub store: String,
    /// The rows, in the order in which the transaction posted them.
    pub writes: Vec<LogWrite>,
    /// CRC-32C in hex over lsn, epoch, csn, version, txn_id, then op, key and value text of every write, each of them
    /// preceded by its length in bytes as 32 bits, little-endian. A `value_b64` counts as `{"$b64":"..."}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9be3e0a3")]
    pub checksum: Option<String>,
    /// W3C `traceparent` of the commit request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub traceparent: Option<String>,
}

/// One row of a record.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogWrite {
    /// What to do.
    pub op: WriteOp,
    /// The row's key, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct/1")]
    pub key: Option<String>,
    /// The row's key in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// The value as posted; the delta of an `add`; absent for a `delete`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!({"balance": 90}), value_type = serde_json::Value)]
    pub value: Option<Box<RawValue>>,
    /// The value in base64, if it was posted as `value_b64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value_b64: Option<String>,
}

/// The kind of an event in a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LogEventKind {
    /// Names the log, and where the stream and the log's head are. It comes first, and then at regular intervals.
    #[default]
    Heartbeat,
    /// The stream ends.
    End,
}

/// An event between the records of a stream: a heartbeat, or its end. It has a field `event`; records have none.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogEvent {
    /// The kind of event.
    pub event: LogEventKind,
    /// The log that all positions refer to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8f14e45fceea167a5a36dedd4bea2543")]
    pub log: Option<String>,
    /// What to pass as `after` to continue from here.
    #[schema(example = "120")]
    pub next: String,
    /// Every commit of this epoch and of earlier ones is at `next` or before; see `epoch` of a page. Absent if the stream ends with a
    /// problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8842")]
    pub epoch: Option<String>,
    /// Last position of the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "120")]
    pub head_lsn: Option<String>,
    /// Last position that is durable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "120")]
    pub durable_upto: Option<String>,
    /// Oldest position that is retained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1")]
    pub oldest: Option<String>,
    /// Why the stream ends: `limit`, `idle`, `stopping`, or the code of the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "stopping")]
    pub reason: Option<String>,
    /// The problem, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub problem: Option<Problem>,
}

/// Where a store's state is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StateKind {
    /// In the lines that follow.
    Rows,
    /// In the store's own storage, at `lsn` or later.
    Storage,
    /// In the log: it is complete, so start at `lsn`, which is 0.
    Log,
}

/// One line of a state image. The first one has `event: state`, the last one `event: end`; all others are rows.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StateLine {
    /// `state`, `end` or `failed`; absent in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "state")]
    pub event: Option<String>,
    /// In the first line: the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "kv")]
    pub store: Option<String>,
    /// In the first line: where the state is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = StateKind)]
    pub kind: Option<StateKind>,
    /// In the first line: the log that `lsn` is a position of. Pass both to `/v1/log`, which returns 410 if the log has been
    /// replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8f14e45fceea167a5a36dedd4bea2543")]
    pub log: Option<String>,
    /// In the first line: the position of this state. Continue with the log after it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "120")]
    pub lsn: Option<String>,
    /// In the first line: what to do, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub detail: Option<String>,
    /// The row's key, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct/1")]
    pub key: Option<String>,
    /// The row's key in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// The row's value.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!({"balance": 90}), value_type = serde_json::Value)]
    pub value: Option<Box<RawValue>>,
    /// The row's value in base64, if it was posted as `value_b64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value_b64: Option<String>,
    /// The row's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "9271508992")]
    pub version: Option<String>,
    /// In the last line: the number of rows. An image without a last line is incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1000")]
    pub rows: Option<String>,
    /// In a line `failed`, which ends the image: why it is incomplete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub problem: Option<Problem>,
}
