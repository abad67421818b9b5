//! Reads of embedded stores, several rows and ranges at once.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::store::Row;

/// Rows and ranges to read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReadRequest {
    /// Rows; at least one, or one range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_items = 10000)]
    pub read: Option<Vec<RowRead>>,
    /// Ranges.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, max_items = 256)]
    pub ranges: Option<Vec<RangeRead>>,
}

/// A row to read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RowRead {
    /// The row's store; may be left out where the path names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "kv")]
    pub store: Option<String>,
    /// The row's key, UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct/1")]
    pub key: Option<String>,
    /// The row's key in base64, instead of `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// The version that the caller has. If it is still the row's, the answer says `unchanged` and leaves the value out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "17")]
    pub version: Option<String>,
}

/// A range to read, in the bytewise order of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RangeRead {
    /// The range's store; may be left out where the path names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "kv")]
    pub store: Option<String>,
    /// First key; the beginning of the store if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct/")]
    pub start: Option<String>,
    /// End of the range, exclusive; the end of the store if absent.
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

/// Rows and ranges as of one epoch.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReadResponse {
    /// The epoch that they reflect: all of it, and nothing of later ones.
    #[schema(example = "8841")]
    pub applied: String,
    /// The rows, in the order of the request; absent if it named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub rows: Option<Vec<ReadRow>>,
    /// The ranges, in the order of the request; absent if it named none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ranges: Option<Vec<ReadRange>>,
}

/// A row that was read. Without `version`, there is no such row.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReadRow {
    /// The row's store.
    #[schema(example = "kv")]
    pub store: String,
    /// The row's key, UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct/1")]
    pub key: Option<String>,
    /// The row's key in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// The row's value; absent if there is no row, or it is `unchanged`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!({"balance": 90}), value_type = serde_json::Value)]
    pub value: Option<Box<RawValue>>,
    /// The row's value in base64, if it was written so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value_b64: Option<String>,
    /// The row's version; absent if there is no row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "17")]
    pub version: Option<String>,
    /// True if the row still has the version that the request named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = true)]
    pub unchanged: Option<bool>,
}

/// Rows of a range that was read.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct ReadRange {
    /// The range's store.
    #[schema(example = "kv")]
    pub store: String,
    /// The rows, in key order.
    pub rows: Vec<Row>,
    /// The range has further rows: its limit was reached.
    pub more: bool,
}
