//! Stores: declaration, standing, rows and imported versions.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

/// Who knows whether a row exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreExistence {
    /// Tribunal keeps the newest version of every live row; the default.
    #[default]
    Tracked,
    /// The engine's read set says so.
    Declared,
}

/// Declaration of a store.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StoreDeclaration {
    /// Who knows whether a row exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub existence: Option<StoreExistence>,
    /// The engine reads one snapshot of this store itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub multi_version: Option<bool>,
    /// The storage's watermark moves in the same transaction as the rows; needed by `add`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub transactional: Option<bool>,
    /// LogAdaptor that writes to the storage; absent for a store that is only its log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "redis")]
    pub adaptor: Option<String>,
    /// The adaptor's configuration. No credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object)]
    pub adaptor_config: Option<Box<RawValue>>,
}

/// A store and where it stands.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StoreInfo {
    /// Its name.
    #[schema(example = "kv")]
    pub store: String,
    /// Who knows whether a row exists.
    pub existence: StoreExistence,
    /// The engine reads one snapshot of this store itself.
    pub multi_version: bool,
    /// The storage's watermark moves in the same transaction as the rows.
    pub transactional: bool,
    /// Its LogAdaptor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub adaptor: Option<String>,
    /// The adaptor's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object)]
    pub adaptor_config: Option<Box<RawValue>>,
    /// Last position of its log.
    pub head_lsn: String,
    /// Last position that the storage acknowledged.
    pub acked_lsn: String,
    /// Last epoch that is resolved.
    pub committed: String,
    /// Last epoch that is durable.
    pub durable: String,
    /// Last epoch whose records in this store are all acknowledged.
    pub applied: String,
    /// How its push does.
    pub push: StorePush,
}

/// How a store's push does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorePush {
    /// `log_only`, `running`, `backing_off`, `stopped` or `detached`.
    #[schema(example = "running")]
    pub state: String,
    /// Age of the oldest record that is not acknowledged, milliseconds; 0 while nothing is pushed.
    #[schema(example = "0")]
    pub lag_ms: String,
    /// What the storage last complained about. Of a detached store: why, and the way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_error: Option<String>,
    /// The record that the storage can never take, if the push stopped at one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "120")]
    pub stopped_at_lsn: Option<String>,
    /// What an acknowledgement of the storage is worth, as it says itself: `always` synced first, `everysec`, `none`, or
    /// `unknown`. Absent while there is no storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "always")]
    pub durability: Option<String>,
}

/// A record that a storage is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkipRequest {
    /// The record that the push stopped at.
    #[schema(example = "120")]
    pub lsn: String,
}

/// A record that was not given to a storage, and who decided so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkippedRecord {
    /// The record. It stays in the log.
    #[schema(example = "120")]
    pub lsn: String,
    /// When, milliseconds since 1970.
    #[schema(example = "1808217543843")]
    pub at_ms: String,
    /// Who asked.
    #[schema(example = "anonymous")]
    pub by: String,
    /// What the storage said to the record.
    pub reason: String,
}

/// Records of a store that were skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkipList {
    /// Oldest decision first.
    pub skips: Vec<SkippedRecord>,
}

/// How to go on with a detached store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttachRequest {
    /// The storage was loaded from elsewhere with everything up to this record. Absent: its own watermark counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "120")]
    pub loaded_lsn: Option<String>,
}

/// All stores of the namespace.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StoreList {
    /// By name.
    pub stores: Vec<StoreInfo>,
}

/// Watermarks of a store: committed, then durable, then applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// The store.
    #[schema(example = "kv")]
    pub store: String,
    /// Last epoch that is resolved.
    #[schema(example = "8842")]
    pub committed: String,
    /// Last epoch that is durable.
    #[schema(example = "8842")]
    pub durable: String,
    /// Last epoch whose records in this store are all acknowledged: the snapshot that a Begin gives.
    #[schema(example = "8841")]
    pub applied: String,
}

/// A row of an embedded store. Without `version` there is no such row.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Row {
    /// The row's key, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key: Option<String>,
    /// The row's key in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// The value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = serde_json::Value)]
    pub value: Option<Box<RawValue>>,
    /// The value, if it was posted as `value_b64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value_b64: Option<String>,
    /// The row's version, for the read set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "17")]
    pub version: Option<String>,
    /// Snapshot that this reflects at least: the row may be newer, as its version tells. Absent within [`RowPage`], which
    /// has it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8841")]
    pub applied: Option<String>,
}

/// Rows in key order.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RowPage {
    /// Snapshot that this reflects at least: single rows may be newer, as their versions tell.
    #[schema(example = "8841")]
    pub applied: String,
    /// The rows.
    pub rows: Vec<Row>,
    /// There are further rows before the end of the range: go on from behind the last key.
    pub more: bool,
}

/// An import as bytes: one [`ImportLine`] a line.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub struct ImportLines(pub Vec<u8>);

/// One line of an import: the version of an existing row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportLine {
    /// The row's key, UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key: Option<String>,
    /// The row's key in base64, instead of `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// The row's version; below the current epoch's.
    #[schema(example = "17")]
    pub version: String,
    /// The value is an integer of at most 16 characters, so that `add` may follow. Of a longer one leave it out, and put
    /// the row again before adding to it: a sum that leaves 64 bits could not be refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub integer: Option<bool>,
}

/// Answer to an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportResult {
    /// Versions that were taken in, durably. Rows that the server knew already are left as they are and do not count.
    #[schema(example = "1000")]
    pub accepted: String,
}
