//! The one shape of every response that is not a decision: RFC 9457 problem details.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why there is no decision (RFC 9457, `application/problem+json`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`; see `code`.
    #[serde(rename = "type")]
    #[schema(example = "about:blank")]
    pub kind: String,
    /// The status code's phrase.
    #[schema(example = "Bad Request")]
    pub title: String,
    /// HTTP status code.
    #[schema(minimum = 400, maximum = 599, example = 400)]
    pub status: u16,
    /// What is wrong and what to do, for people.
    #[schema(example = "/writes/0/valeu: no such field")]
    pub detail: String,
    /// What is wrong, for programs.
    #[schema(example = "unknown_field")]
    pub code: String,
    /// Whether the same request may succeed later.
    pub retryable: bool,
    /// When to retry, milliseconds from now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0)]
    pub retry_after_ms: Option<u32>,
    /// Every error that was found in the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<ProblemError>,
    /// The line of the body that the problem concerns, from 1. In a stream with more lines than this can hold,
    /// `detail` names it instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, example = 3)]
    pub line: Option<u32>,
    /// Column of malformed JSON in that line, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, example = 17)]
    pub column: Option<u32>,
    /// With `log_truncated`: the oldest position that is retained.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub oldest: Option<String>,
    /// With `log_truncated`, in a cluster: numbers of the other nodes that still have the records after the position, ascending.
    /// `GET /v1/cluster` of a node returns its number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(example = json!([2, 3]))]
    pub nodes: Vec<u16>,
    /// With `log_truncated` and `log_replaced`: the state from which a reader can start over. Absent if the log of a store without
    /// an adaptor is truncated: its rows were only in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "/v1/stores/kv/state")]
    pub state_url: Option<String>,
    /// With `row_missing`: the snapshot that was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub applied: Option<String>,
    /// With `row_missing`: session token, with which later reads reflect that snapshot or a later one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "v1-8841")]
    pub session: Option<String>,
}

/// One error in a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProblemError {
    /// JSON pointer (RFC 6901) into the body; for a parameter, `?limit` in the query, `{store}` in the path, `last-event-id:`
    /// in the headers.
    #[schema(example = "/writes/0/key")]
    pub pointer: String,
    /// What is wrong, for programs.
    #[schema(example = "unknown_field")]
    pub code: String,
    /// What is wrong, for people.
    #[schema(example = "no such field")]
    pub detail: String,
}
