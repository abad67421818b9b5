//! Reads of embedded stores: any number of rows and ranges in one request.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::consistency::Consistency;
use crate::present::present;
use crate::store::Row;

/// Rows and ranges to read; at least one of either.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadRequest {
    /// Rows to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_items = 10000)]
    pub read: Option<Vec<RowRead>>,
    /// Ranges to read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_items = 256)]
    pub ranges: Option<Vec<RangeRead>>,
    /// Session token of an earlier response: wait until the store has applied what it covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub session: Option<String>,
    /// What the rows must include: `session` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub consistency: Option<Consistency>,
    /// Timeout of the wait for `session`, `consistency` or a store that is being opened, milliseconds; 5000 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 60000, example = 1000)]
    pub wait_ms: Option<u32>,
}

/// A row to read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RowRead {
    /// Store of the row. May be absent if the path names the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "kv")]
    pub store: Option<String>,
    /// Key of the row, UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct/1")]
    pub key: Option<String>,
    /// Key of the row in base64, instead of `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// Version that the caller has cached. If it is still current, the response has `unchanged` instead of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "17")]
    pub version: Option<String>,
}

/// A range to read, in the bytewise order of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RangeRead {
    /// Store of the range. May be absent if the path names the store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "kv")]
    pub store: Option<String>,
    /// First key; the beginning of the store if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct/")]
    pub start: Option<String>,
    /// End of the range, exclusive; the end of the store if absent or empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct0")]
    pub end: Option<String>,
    /// `start` in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub start_b64: Option<String>,
    /// `end` in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub end_b64: Option<String>,
    /// Maximum number of rows; 100 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 10000, example = 100)]
    pub limit: Option<u32>,
}

/// Rows and ranges, all read at the same epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReadResponse {
    /// The epoch that the results reflect: they include all of its commits, and none of later epochs.
    #[schema(example = "8841")]
    pub applied: String,
    /// Session token: pass it to a later read or Begin that must reflect this epoch or a later one, also on another node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "v1-8841")]
    pub session: Option<String>,
    /// The rows, in the order of the request; absent if it has no rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rows: Option<Vec<ReadRow>>,
    /// The ranges, in the order of the request; absent if it has no ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ranges: Option<Vec<ReadRange>>,
}

/// The result of reading a row. Without `version`, the row does not exist.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReadRow {
    /// Store of the row.
    #[schema(example = "kv")]
    pub store: String,
    /// Key of the row, UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct/1")]
    pub key: Option<String>,
    /// Key of the row in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// Value of the row; absent if the row does not exist or is `unchanged`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!({"balance": 90}), value_type = serde_json::Value)]
    pub value: Option<Box<RawValue>>,
    /// Value of the row in base64, if it was written that way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value_b64: Option<String>,
    /// Version of the row; absent if the row does not exist.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "17")]
    pub version: Option<String>,
    /// True if the row still has the version in the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = true)]
    pub unchanged: Option<bool>,
}

/// The result of reading a range.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReadRange {
    /// Store of the range.
    #[schema(example = "kv")]
    pub store: String,
    /// The rows, in key order.
    pub rows: Vec<Row>,
    /// Whether the range has more rows: continue after the last key. A range of large rows may be cut before its limit, also
    /// because of the other ranges of the request; one that has rows has at least one here.
    pub more: bool,
}
