//! Those who read logs: consumers that pull, webhooks that are pushed to.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far a consumer is.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CheckpointRequest {
    /// Whose log.
    #[schema(example = "kv")]
    pub store: String,
    /// Last record that the consumer is done with; 0 is none.
    #[schema(example = "120")]
    pub lsn: String,
}

/// A consumer's position in one store's log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConsumerPosition {
    /// Whose log.
    #[schema(example = "kv")]
    pub store: String,
    /// Last record that the consumer is done with: pull behind it.
    #[schema(example = "120")]
    pub lsn: String,
    /// Last position of the log.
    #[schema(example = "150")]
    pub head_lsn: String,
    /// Records that the consumer is not done with.
    #[schema(example = "30")]
    pub lag_records: String,
    /// Age of the oldest of them, milliseconds; 0 if there is none.
    #[schema(example = "250")]
    pub lag_ms: String,
    /// When the checkpoint was set, milliseconds since 1970.
    #[schema(example = "1795268000000")]
    pub updated_at_ms: String,
}

/// A consumer and its checkpoints.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Consumer {
    /// Its name.
    #[schema(example = "search-index")]
    pub name: String,
    /// One per store that it reads, by the store's name.
    pub checkpoints: Vec<ConsumerPosition>,
}

/// All consumers of the namespace.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ConsumerList {
    /// By name.
    pub consumers: Vec<Consumer>,
}

/// How a store's log is pushed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PushKind {
    /// By HTTP requests to a registered receiver.
    #[default]
    Webhook,
}

/// A receiver to register.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PushRequest {
    /// How it is pushed.
    pub kind: PushKind,
    /// Where to post: `https://` or `http://`, without user information. Addresses of the inside must be allowed by the
    /// operator.
    #[schema(example = "https://receiver.example/hook", max_length = 2048)]
    pub url: String,
    /// What bodies are signed with, 16 to 256 characters. It is never shown again.
    #[schema(min_length = 16, max_length = 256)]
    pub secret: String,
    /// Position behind which to start. If absent: where the last registration of this store stands, or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "0")]
    pub after: Option<String>,
    /// Most records of one request; 500 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 10000)]
    pub records_max: Option<u32>,
    /// Most bytes of keys and values of one request, above which no further record is added; 1 MiB if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 8388608)]
    pub bytes_max: Option<u32>,
    /// How long one request may take, milliseconds; 10000 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 100, maximum = 60000)]
    pub timeout_ms: Option<u32>,
}

/// A registered receiver and where it stands. Its secret is not shown.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PushInfo {
    /// How it is pushed.
    pub kind: PushKind,
    /// The store.
    #[schema(example = "kv")]
    pub store: String,
    /// Where it is posted to.
    #[schema(example = "https://receiver.example/hook")]
    pub url: String,
    /// Most records of one request.
    #[schema(minimum = 1)]
    pub records_max: u32,
    /// Most bytes of keys and values of one request.
    #[schema(minimum = 1)]
    pub bytes_max: u32,
    /// How long one request may take, milliseconds.
    #[schema(minimum = 1)]
    pub timeout_ms: u32,
    /// `connecting`, `pushing`, `idle`, `backing_off` or `stopped`.
    #[schema(example = "idle")]
    pub state: String,
    /// Last record that the receiver acknowledged.
    #[schema(example = "120")]
    pub acked_lsn: String,
    /// Last position of the log.
    #[schema(example = "150")]
    pub head_lsn: String,
    /// Records that are not acknowledged.
    #[schema(example = "30")]
    pub lag_records: String,
    /// How long there has been a lag, milliseconds.
    #[schema(example = "250")]
    pub lag_ms: String,
    /// Attempts that failed since the last progress.
    #[schema(minimum = 0)]
    pub attempts: u32,
    /// Last trouble, until it is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub last_error: Option<String>,
}

/// Body of a request to a receiver.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PushBody {
    /// The store.
    pub store: String,
    /// First record.
    pub first_lsn: String,
    /// Last record.
    pub last_lsn: String,
    /// The records, dense in `lsn`.
    pub records: Vec<crate::LogRecord>,
}
