//! Events between the outcomes of a commit stream.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Problem;

/// The kind of an event in a commit stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CommitEventKind {
    /// The stream is alive and has no verdict to send.
    #[default]
    Heartbeat,
    /// The stream ends. Every accepted commit has its outcome before this event.
    End,
}

/// The request of a commit stream as bytes: one `BatchTxn` a line.
#[derive(Clone, Debug, ToSchema)]
#[schema(value_type = String, format = Binary)]
pub struct CommitLines(pub Vec<u8>);

/// An event between the outcomes of a commit stream: a heartbeat, or its end. It has a field `event`; outcomes have none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CommitEvent {
    /// The kind of event.
    pub event: CommitEventKind,
    /// Why the stream ends: `complete` after the end of the request, `stopping`, or the code of the problem.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "complete")]
    pub reason: Option<String>,
    /// Lines that were accepted. Lines sent after them were not processed, and none of them will be committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "2")]
    pub lines: Option<String>,
    /// The problem, if there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub problem: Option<Problem>,
}
