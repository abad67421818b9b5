//! Records of a store's committed log.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::txn::WriteOp;

/// A page of a store's committed log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogPage {
    /// The records, dense in `lsn`; empty if there is nothing behind `after` yet.
    pub records: Vec<LogRecord>,
    /// What to pass as `after` for the following page.
    #[schema(example = "120")]
    pub next: String,
    /// Last position of the log.
    #[schema(example = "120")]
    pub head_lsn: String,
    /// Last position that is durable.
    #[schema(example = "120")]
    pub durable_upto: String,
    /// Oldest position that is still kept.
    #[schema(example = "1")]
    pub oldest: String,
}

/// One committed transaction's rows in one store.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct LogRecord {
    /// Dense position, from 1.
    #[schema(example = "120")]
    pub lsn: String,
    /// The position before it. A gap is visible, a repeat is harmless.
    #[schema(example = "119")]
    pub prev_lsn: String,
    /// Epoch that committed it.
    #[schema(example = "8842")]
    pub cen: String,
    /// Arrival stamp.
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
    /// CRC-32C in hex over lsn, cen, csn, version, txn_id, then op, key and value text of every write, each of them
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
    #[schema(nullable = false)]
    pub key: Option<String>,
    /// The row's key in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// The value as posted; the delta of an `add`; absent for a `delete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = serde_json::Value)]
    pub value: Option<Box<RawValue>>,
    /// The value, if it was posted as `value_b64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value_b64: Option<String>,
}
