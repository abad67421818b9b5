//! Stores: declaration, progress, rows and imported versions.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use crate::present::present;

/// Who tracks which rows exist. `tracked`, the default: Tribunal keeps the newest version of every live row. `declared`: the
/// engine; for rows not written recently its read sets are trusted, and `insert`, `update` and `delete` are not checked.
/// `add` is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StoreExistence {
    /// Tribunal keeps the newest version of every live row; the default.
    #[default]
    Tracked,
    /// The engine, by its read sets, inserts included.
    Declared,
}

/// Declaration of a store.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct StoreDeclaration {
    /// Who tracks which rows exist. `declared` is not taken away from a store by leaving it out: declare `tracked`, which is possible
    /// while the store has neither records nor rows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub existence: Option<StoreExistence>,
    /// The engine itself reads this store at the snapshot of Begin (multi-version storage). At level `snapshot`, its reads are not
    /// validated, and one with a later `version` than the snapshot is refused. Not for an embedded store, which has only the newest
    /// version of each row. It is not taken away from a store by leaving it out: declare `false`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub multi_version: Option<bool>,
    /// Has no effect: every adaptor moves its watermark in the same transaction as the rows. Earlier releases required it for `add`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub transactional: Option<bool>,
    /// LogAdaptor that writes to the storage: `kv` for a store embedded in the service; absent for a log-only store, whose
    /// engine keeps the rows itself and reads the log. It is not taken away from a store by leaving it out: see `log_only`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "redis")]
    pub adaptor: Option<String>,
    /// The adaptor's configuration, such as `{"endpoint": "127.0.0.1:6379", "prefix": "kv:"}` for `redis`. No credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object)]
    pub adaptor_config: Option<Box<RawValue>>,
    /// The store has no adaptor. Required to take the adaptor away from a store that has one; a new store without an adaptor is
    /// log-only anyway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub log_only: Option<bool>,
}

/// A store and its progress.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StoreInfo {
    /// Its namespace. Only in responses for operators of the service, which list the stores of several namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "shop")]
    pub namespace: Option<String>,
    /// Its name.
    #[schema(example = "kv")]
    pub store: String,
    /// Who tracks which rows exist.
    pub existence: StoreExistence,
    /// The engine itself reads this store at the snapshot of Begin (multi-version storage).
    pub multi_version: bool,
    /// Always `true`: the adaptor moves its watermark in the same transaction as the rows.
    pub transactional: bool,
    /// Its LogAdaptor; absent for a log-only store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "kv")]
    pub adaptor: Option<String>,
    /// The adaptor's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, value_type = Object)]
    pub adaptor_config: Option<Box<RawValue>>,
    /// Number of rows; absent if the store is `declared`, because only its engine knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "1000")]
    pub rows: Option<String>,
    /// Bytes that an embedded store takes on the disk of the node that answers; absent for other stores.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "65536")]
    pub stored_bytes: Option<String>,
    /// The log that all positions refer to. A salvage or a restored backup may replace it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8f14e45fceea167a5a36dedd4bea2543")]
    pub log: Option<String>,
    /// Last position of its log: every commit up to the epoch `committed` is there or before.
    #[schema(example = "120")]
    pub head_lsn: String,
    /// Last position that the storage acknowledged.
    #[schema(example = "120")]
    pub acked_lsn: String,
    /// Last epoch that has been decided.
    #[schema(example = "8842")]
    pub committed: String,
    /// Last epoch that is durable.
    #[schema(example = "8842")]
    pub durable: String,
    /// Last epoch whose records in this store are all acknowledged.
    #[schema(example = "8841")]
    pub applied: String,
    /// The push to its storage.
    pub push: StorePush,
}

/// What the push to a storage is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StorePushState {
    /// The store has no storage, only its log.
    LogOnly,
    /// Records are pushed as they commit.
    #[default]
    Running,
    /// The last attempt failed; the next one follows after a pause. An embedded store cannot be read meanwhile: the disk has failed
    /// it, and the node opens it again by itself.
    BackingOff,
    /// The storage cannot apply a record (resume or skip it), or cannot be pushed to until it is repaired (resume it).
    Stopped,
    /// The storage was unavailable for too long, and the log is truncated without it: attach it.
    Detached,
    /// Rows of an embedded store are damaged on the node's disk: resume it, which fills it again from the log, if that still has
    /// all records, or from another node.
    Damaged,
}

impl StorePushState {
    /// Returns the name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StorePushState::LogOnly => "log_only",
            StorePushState::Running => "running",
            StorePushState::BackingOff => "backing_off",
            StorePushState::Stopped => "stopped",
            StorePushState::Detached => "detached",
            StorePushState::Damaged => "damaged",
        }
    }
}

/// What a storage guarantees when it acknowledges records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum StorageDurability {
    /// They are on disk.
    Always,
    /// They will be on disk within about a second.
    Everysec,
    /// They are in memory only.
    None,
    /// The storage does not report it.
    #[default]
    Unknown,
}

impl StorageDurability {
    /// Returns the name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            StorageDurability::Always => "always",
            StorageDurability::Everysec => "everysec",
            StorageDurability::None => "none",
            StorageDurability::Unknown => "unknown",
        }
    }
}

/// The push to a store's storage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StorePush {
    /// What the push is doing.
    pub state: StorePushState,
    /// The node of a cluster that pushes. Absent if the store has no storage outside of the nodes, is detached, no node is
    /// named yet, or the node runs alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, example = 2)]
    pub node: Option<u16>,
    /// Age of the oldest record that is not acknowledged, milliseconds; 0 if there is none. If the storage was not reached since
    /// the start of the node, so that its position is unknown: the time since then.
    #[schema(example = "0")]
    pub lag_ms: String,
    /// The storage's last error. For a detached store: why it was detached, and how to attach it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_error: Option<String>,
    /// The record that the storage cannot apply, if the push stopped at one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "120")]
    pub stopped_at_lsn: Option<String>,
    /// What an acknowledgement of the storage guarantees, as the storage reports it. Absent while no storage is connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub durability: Option<StorageDurability>,
}

/// A record to skip.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkipRequest {
    /// The record that the push stopped at.
    #[schema(example = "120")]
    pub lsn: String,
}

/// A record that was skipped, and who decided that.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkippedRecord {
    /// The record. It stays in the log.
    #[schema(example = "120")]
    pub lsn: String,
    /// When, milliseconds since 1970.
    #[schema(example = "1808217543843")]
    pub at_ms: String,
    /// The caller that asked for it.
    #[schema(example = "anonymous")]
    pub by: String,
    /// The storage's error for the record.
    #[schema(example = "value too long for type character varying(40)")]
    pub reason: String,
}

/// Records of a store that were skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SkipList {
    /// Oldest decision first.
    pub skips: Vec<SkippedRecord>,
}

/// How to attach a detached store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttachRequest {
    /// The storage was loaded from elsewhere with everything up to this record. If absent, its own watermark counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "120")]
    pub loaded_lsn: Option<String>,
}

/// The stores of a namespace, or for an operator of the service of several.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct StoreList {
    /// By namespace and name.
    pub stores: Vec<StoreInfo>,
}

/// Watermarks of a store: committed, then durable, then applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Snapshot {
    /// The store.
    #[schema(example = "kv")]
    pub store: String,
    /// Last epoch that has been decided.
    #[schema(example = "8842")]
    pub committed: String,
    /// Last epoch that is durable.
    #[schema(example = "8842")]
    pub durable: String,
    /// Last epoch whose records in this store are all acknowledged: the snapshot that a Begin returns.
    #[schema(example = "8841")]
    pub applied: String,
    /// The log that `head_lsn` refers to. A salvage or a restored backup may replace it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8f14e45fceea167a5a36dedd4bea2543")]
    pub log: Option<String>,
    /// Last position of its log: every commit up to the epoch `committed` is there or before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "120")]
    pub head_lsn: Option<String>,
}

/// A row of an embedded store. Without `version` there is no such row.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Row {
    /// The row's key, if it is UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "acct/1")]
    pub key: Option<String>,
    /// The row's key in base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_b64: Option<String>,
    /// The value.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = json!({"balance": 90}), value_type = serde_json::Value)]
    pub value: Option<Box<RawValue>>,
    /// The value in base64, if it was posted as `value_b64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub value_b64: Option<String>,
    /// The row's version, for the read set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "17")]
    pub version: Option<String>,
    /// The epoch that this reflects: all of its commits, and none of later epochs. Absent in lists, which contain it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8841")]
    pub applied: Option<String>,
    /// Session token: pass it to a later read or Begin that must reflect this epoch or a later one, also on another node. Absent
    /// in lists, which contain it once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "v1-8841")]
    pub session: Option<String>,
}

/// Rows in key order.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RowPage {
    /// The epoch that the rows reflect: all of its commits, and none of later epochs.
    #[schema(example = "8841")]
    pub applied: String,
    /// Session token: pass it to a later read or Begin that must reflect this epoch or a later one, also on another node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "v1-8841")]
    pub session: Option<String>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Whether the range has more rows: continue after the last key. A range of large rows may be cut before its limit.
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
    /// The value is an integer of at most 16 characters, so that `add` may follow. Leave it out for a longer one, and put
    /// the row again before adding to it: a sum that leaves 64 bits could not be refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub integer: Option<bool>,
}

/// Result of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ImportResult {
    /// Versions that were imported, durably. Rows that the server already knew are left unchanged and do not count, and neither do
    /// versions that may be of deleted rows: those from before the store's last deletion, unless they are recent. So import the
    /// rows of a store before any of them is deleted.
    #[schema(example = "1000")]
    pub accepted: String,
}
