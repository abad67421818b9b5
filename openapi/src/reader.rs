//! Readers of logs: consumers, which pull, and webhooks, which are pushed to.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A consumer's new offset in one store's log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OffsetRequest {
    /// The store.
    #[schema(example = "kv")]
    pub store: String,
    /// Last record that the consumer has processed; 0 if none.
    #[schema(example = "120")]
    pub lsn: String,
    /// The log that `lsn` is a position of, as in the page it came with; if absent, the current log is assumed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "8f14e45fceea167a5a36dedd4bea2543")]
    pub log: Option<String>,
}

/// A consumer's offset in one store's log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConsumerOffset {
    /// The store.
    #[schema(example = "kv")]
    pub store: String,
    /// The log that `lsn` is a position of. If it is not the `log` of the consumer, `lsn` no longer names the same record.
    #[schema(example = "8f14e45fceea167a5a36dedd4bea2543")]
    pub log: String,
    /// Last record that the consumer has processed; pull the log after it.
    #[schema(example = "120")]
    pub lsn: String,
    /// Last position of the log.
    #[schema(example = "150")]
    pub head_lsn: String,
    /// Records that the consumer has not processed.
    #[schema(example = "30")]
    pub lag_records: String,
    /// Age of the oldest unprocessed record, milliseconds; 0 if there is none.
    #[schema(example = "250")]
    pub lag_ms: String,
    /// Present if the node has truncated records after `lsn`: its log begins at this position, and `lag_ms` is a lower bound. The
    /// consumer pulls them from another node of the cluster that has them, or restarts from the store's state (`GET
    /// /v1/stores/{store}/state`) and stores the state's position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "131")]
    pub truncated_below: Option<String>,
    /// When this offset was stored, milliseconds since 1970. In a cluster, storing the same offset again does not change it.
    #[schema(example = "1795268000000")]
    pub updated_at_ms: String,
}

/// A consumer and its offsets.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConsumerInfo {
    /// Its name.
    #[schema(example = "search-index")]
    pub name: String,
    /// The log of this node; in a cluster, of all nodes.
    #[schema(example = "8f14e45fceea167a5a36dedd4bea2543")]
    pub log: String,
    /// One per store that it reads, in the order of the stores' names.
    pub offsets: Vec<ConsumerOffset>,
}

/// All consumers of the namespace.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConsumerList {
    /// In the order of their names.
    pub consumers: Vec<ConsumerInfo>,
}

/// How records are delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PushKind {
    /// By POST requests to a registered receiver.
    #[default]
    Webhook,
}

/// A receiver to register.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PushRequest {
    /// How records are delivered.
    pub kind: PushKind,
    /// Receiver of the POST requests: `https://` or `http://`, without user information. The operator must allow private
    /// addresses.
    #[schema(example = "https://receiver.example/hook", max_length = 2048)]
    pub url: String,
    /// Key of the signatures, 16 to 256 characters. It is never returned.
    #[schema(example = "at least 16 characters", min_length = 16, max_length = 256)]
    pub secret: String,
    /// Start after this position. If absent: the position of the last registration of this store, or 0. To leave out a record
    /// that the receiver rejects, register it again with the LSN of that record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "0")]
    pub after: Option<String>,
    /// Maximum number of records in one request; 500 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 10000)]
    pub records_max: Option<u32>,
    /// Bytes of keys and values after which no further record is added to a request; 1 MiB if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 8388608)]
    pub bytes_max: Option<u32>,
    /// Timeout of one request, milliseconds; 10000 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 100, maximum = 60000)]
    pub timeout_ms: Option<u32>,
}

/// What the push to a webhook is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookState {
    /// It has not reached the receiver yet.
    #[default]
    Connecting,
    /// Records are being delivered.
    Pushing,
    /// The receiver has acknowledged every record.
    Idle,
    /// The last attempt failed; the next one follows after a pause.
    BackingOff,
    /// The receiver refused; nothing is delivered until the push is resumed, or registered again.
    Stopped,
}

impl WebhookState {
    /// Returns the name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WebhookState::Connecting => "connecting",
            WebhookState::Pushing => "pushing",
            WebhookState::Idle => "idle",
            WebhookState::BackingOff => "backing_off",
            WebhookState::Stopped => "stopped",
        }
    }
}

/// A registered receiver and its progress. Its secret is not returned.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PushInfo {
    /// How records are delivered.
    pub kind: PushKind,
    /// The store.
    #[schema(example = "kv")]
    pub store: String,
    /// The receiver.
    #[schema(example = "https://receiver.example/hook")]
    pub url: String,
    /// Maximum number of records in one request.
    #[schema(minimum = 1, example = 500)]
    pub records_max: u32,
    /// Bytes of keys and values after which no further record is added to a request.
    #[schema(minimum = 1, example = 1048576)]
    pub bytes_max: u32,
    /// Timeout of one request, milliseconds.
    #[schema(minimum = 1, example = 10000)]
    pub timeout_ms: u32,
    /// The node of a cluster that delivers; absent until one is named, and on a node that runs alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, example = 2)]
    pub node: Option<u16>,
    /// What the push is doing.
    pub state: WebhookState,
    /// Last record that the receiver acknowledged.
    #[schema(example = "120")]
    pub acked_lsn: String,
    /// Last position of the log.
    #[schema(example = "150")]
    pub head_lsn: String,
    /// Records that are not acknowledged.
    #[schema(example = "30")]
    pub lag_records: String,
    /// Age of the oldest record that the receiver has not acknowledged, milliseconds; 0 if there is none.
    #[schema(example = "250")]
    pub lag_ms: String,
    /// Failed attempts since the last progress.
    #[schema(minimum = 0, example = 0)]
    pub attempts: u32,
    /// The last error; absent once a request has succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_error: Option<String>,
}

/// Body of a POST request to a receiver.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PushBody {
    /// The store.
    #[schema(example = "kv")]
    pub store: String,
    /// First record.
    #[schema(example = "120")]
    pub first_lsn: String,
    /// Last record.
    #[schema(example = "120")]
    pub last_lsn: String,
    /// The records, dense in `lsn`.
    pub records: Vec<crate::LogRecord>,
}
