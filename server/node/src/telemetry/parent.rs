//! The parent of a request's spans, as its caller names it.

use opentelemetry::{SpanId, TraceId};

/// The parent of a request: the content of a `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace: TraceId,
    /// The span in it.
    pub span: SpanId,
    /// Whether it is recorded.
    pub sampled: bool,
}
