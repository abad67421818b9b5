//! The spans of a post to a webhook. It carries the records of several commits and can go on with one trace only: with
//! theirs, if they have but one, or with a trace of its own that is linked to all of them.

use std::sync::Arc;
use std::time::Instant;

use opentelemetry::KeyValue;
use opentelemetry::trace::{SpanKind, Status};
use tribunal_push::PushWatch;
use tribunal_types::RecordBatch;

use super::pushed::parents_of;
use super::spans::{Parent, Piece, Place, Tracing};

/// Watches one batch on its way to a receiver.
pub struct PostTraces {
    tracing: Arc<Tracing>,
    attributes: Vec<KeyValue>,
    links: Vec<Parent>,
    push: Place,
    post: Place,
    began: Instant,
    encoded: Option<Instant>,
}

impl PostTraces {
    /// Watches a batch, if a commit of it is traced.
    #[must_use]
    pub fn of(tracing: &Arc<Tracing>, store: &str, batch: &RecordBatch) -> Option<Box<dyn PushWatch>> {
        let mut commits: Vec<Parent> = parents_of(batch).map(|(parent, _)| parent).collect();
        let (first, _) = batch.bounds()?;
        commits.dedup();
        let sole = match commits[..] {
            [] => return None,
            [sole] => Some(sole),
            _ => None,
        };
        let push = Place::below(sole);
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Some(Box::new(PostTraces {
            tracing: Arc::clone(tracing),
            attributes: vec![
                KeyValue::new("tribunal.store", store.to_owned()),
                KeyValue::new("tribunal.lsn", number(first.0)),
                KeyValue::new("tribunal.records", number(batch.records.len() as u64)),
            ],
            links: if sole.is_some() { Vec::new() } else { commits },
            push,
            post: push.child(),
            began: Instant::now(),
            encoded: None,
        }))
    }
}

impl PushWatch for PostTraces {
    fn traceparent(&self) -> Option<String> {
        Some(self.post.traceparent())
    }

    fn encoded(&mut self) {
        self.encoded = Some(Instant::now());
    }

    fn ended(self: Box<Self>, trouble: Option<&str>) {
        let until = Instant::now();
        let status = trouble.map_or(Status::Unset, |text| Status::error(text.to_owned()));
        let posted = Piece {
            kind: SpanKind::Client,
            status: status.clone(),
            ..Piece::internal("webhook.post", self.encoded.unwrap_or(until), until)
        };
        let (attributes, links) = (self.attributes, self.links);
        let pushed = Piece { attributes, links, status, ..Piece::internal("push", self.began, until) };
        self.tracing.put_placed([(self.post, posted), (self.push, pushed)]);
    }
}
