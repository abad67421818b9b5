//! The spans of a push, below the commits whose records it carries.

use std::sync::Arc;
use std::time::Instant;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanKind, Status};
use tribunal_core::records::records_after;
use tribunal_push::{ApplyObserver, PushWatch};
use tribunal_types::{EpochInput, EpochOutcome, Lsn, RecordBatch, StoreId};

use super::parent::Parent;
use super::spans::{Piece, Tracing, parent_of};

/// Maximum number of records of one push with separate spans.
const RECORDS_MAX: usize = 16;

/// Traces one batch on its way into a storage.
pub struct PushTraces {
    tracing: Arc<Tracing>,
    store: String,
    /// The parent commits, and their records.
    commits: Vec<(Parent, Lsn)>,
    began: Instant,
    encoded: Option<Instant>,
}

/// Returns the traced commits of a batch, up to [`RECORDS_MAX`].
pub(super) fn parents_of(batch: &RecordBatch) -> impl Iterator<Item = (Parent, Lsn)> {
    let traced = batch.records.iter().filter(|record| record.traceparent.len > 0).filter_map(|record| {
        let text = std::str::from_utf8(record.traceparent.of(&batch.bytes)).ok()?;
        parent_of(text).filter(|parent| parent.sampled).map(|parent| (parent, record.lsn))
    });
    traced.take(RECORDS_MAX)
}

impl PushTraces {
    /// Traces a batch, if a commit of it is traced.
    #[must_use]
    pub fn of(tracing: &Arc<Tracing>, store: &str, batch: &RecordBatch) -> Option<Box<dyn PushWatch>> {
        let commits: Vec<_> = parents_of(batch).collect();
        if commits.is_empty() {
            return None;
        }
        let tracing = Arc::clone(tracing);
        Some(Box::new(PushTraces { tracing, store: store.to_owned(), commits, began: Instant::now(), encoded: None }))
    }
}

impl PushWatch for PushTraces {
    fn encoded(&mut self) {
        self.encoded = Some(Instant::now());
    }

    fn ended(self: Box<Self>, trouble: Option<&str>) {
        let until = Instant::now();
        for (commit, lsn) in &self.commits {
            let encoded = self.encoded.unwrap_or(until);
            let mut below = vec![Piece::internal("plugin.encode", self.began, encoded)];
            if self.encoded.is_some() {
                below.push(Piece { kind: SpanKind::Client, ..Piece::internal("storage.write", encoded, until) });
            }
            let push = Piece {
                attributes: vec![
                    KeyValue::new("tribunal.store", self.store.clone()),
                    KeyValue::new("tribunal.lsn", i64::try_from(lsn.0).unwrap_or(i64::MAX)),
                ],
                status: trouble.map_or(Status::Unset, |text| Status::error(text.to_owned())),
                ..Piece::internal("push", self.began, until)
            };
            self.tracing.put_tree(*commit, push, below);
        }
    }
}

/// Creates the spans of epochs that an embedded store applies.
pub struct ApplyTraces {
    tracing: Arc<Tracing>,
    store: StoreId,
    name: String,
}

impl ApplyTraces {
    /// Creates the tracer of a store.
    #[must_use]
    pub fn new(tracing: Arc<Tracing>, store: StoreId, name: String) -> ApplyTraces {
        ApplyTraces { tracing, store, name }
    }
}

impl ApplyObserver for ApplyTraces {
    fn applied(&self, input: &EpochInput, outcome: &EpochOutcome, after: Lsn, began: Instant) {
        let until = Instant::now();
        let traced = records_after(input, outcome, self.store, after).filter_map(|record| {
            let text = std::str::from_utf8(record.txn().traceparent.of(&record.batch.values)).ok()?;
            parent_of(text).filter(|parent| parent.sampled).map(|parent| (parent, record.lsn))
        });
        for (commit, lsn) in traced.take(RECORDS_MAX) {
            let apply = Piece {
                attributes: vec![
                    KeyValue::new("tribunal.store", self.name.clone()),
                    KeyValue::new("tribunal.lsn", i64::try_from(lsn.0).unwrap_or(i64::MAX)),
                ],
                ..Piece::internal("store.apply", began, until)
            };
            self.tracing.put_tree(commit, apply, Vec::new());
        }
    }
}
