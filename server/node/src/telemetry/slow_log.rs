//! Log lines about noteworthy transactions, each with its trace.

use std::time::{Duration, Instant};

use opentelemetry::TraceId;
use tribunal_service::{Decided, ServiceError};
use tribunal_types::{TxnId, Verdict};
use uuid::Uuid;

use super::slice_budget::Budget;

/// A decision that takes longer is slow.
pub const SLOW: Duration = Duration::from_secs(1);
/// Bounds the lines about slow transactions: fifteen a second; a slow disk causes thousands of them.
static SLOW_LINES: Budget = Budget::new(1);

/// Logs a transaction if it was slow (a warning) or aborted (a line at debug level).
pub fn note(id: TxnId, trace: Option<TraceId>, began: Instant, answer: &Result<Decided, ServiceError>) {
    let trace_id = || trace.map(|trace| trace.to_string()).unwrap_or_default();
    let took = began.elapsed();
    if took >= SLOW && SLOW_LINES.take() {
        let (txn, ms) = (Uuid::from_bytes(id.0), took.as_millis() as u64);
        let phases = answer.as_ref().map(|decided| decided.phases).unwrap_or_default();
        tracing::warn!(%txn, trace_id = trace_id(), ms, ?phases, "a transaction was slow");
    }
    // The reason for the abort is in a separate line; this one has the trace.
    if trace.is_some() && matches!(answer, Ok(Decided { verdict: Verdict::Aborted { .. }, .. })) {
        let txn = Uuid::from_bytes(id.0);
        tracing::debug!(%txn, trace_id = trace_id(), "the trace of an aborted transaction");
    }
}
