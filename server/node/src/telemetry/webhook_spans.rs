//! The spans of a post to a webhook. It carries the records of several commits but can continue only one trace: theirs,
//! if all traced commits share it, otherwise a new trace that links to the recorded ones.

use std::sync::Arc;
use std::time::Instant;

use opentelemetry::trace::{SpanKind, Status};
use opentelemetry::{KeyValue, TraceId};
use tribunal_push::PushWatch;
use tribunal_types::RecordBatch;

use super::parent::Parent;
use super::push_spans::parents_of;
use super::spans::{Piece, Place, Tracing, parent_of};

/// Traces one batch on its way to a receiver.
pub struct PostTraces {
    tracing: Arc<Tracing>,
    attributes: Vec<KeyValue>,
    links: Vec<Parent>,
    push: Place,
    post: Place,
    began: Instant,
    encoded: Option<Instant>,
}

/// Returns the commit above a batch's span, if there is one for the whole batch, and the other commits that it links
/// to; `None` if no commit is recorded.
fn above(batch: &RecordBatch) -> Option<(Option<Parent>, Vec<Parent>)> {
    let mut commits: Vec<Parent> = parents_of(batch).map(|(parent, _)| parent).collect();
    let first = *commits.first()?;
    let sole = is_all_of(batch, first.trace).then_some(first);
    commits.sort_unstable_by_key(|commit| (commit.trace.to_bytes(), commit.span.to_bytes()));
    commits.dedup();
    commits.retain(|commit| Some(*commit) != sole);
    Some((sole, commits))
}

/// Returns whether all traced records belong to this trace. Unrecorded traces count: the batch carries their records as
/// well.
fn is_all_of(batch: &RecordBatch, trace: TraceId) -> bool {
    batch.records.iter().filter(|record| record.traceparent.len > 0).all(|record| {
        let text = std::str::from_utf8(record.traceparent.of(&batch.bytes)).ok();
        text.and_then(parent_of).is_some_and(|parent| parent.trace == trace)
    })
}

impl PostTraces {
    /// Traces a batch, if a commit of it is traced.
    #[must_use]
    pub fn of(tracing: &Arc<Tracing>, store: &str, batch: &RecordBatch) -> Option<Box<dyn PushWatch>> {
        let (sole, links) = above(batch)?;
        let (first, _) = batch.bounds()?;
        let push = Place::below(sole);
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        Some(Box::new(PostTraces {
            tracing: Arc::clone(tracing),
            attributes: vec![
                KeyValue::new("tribunal.store", store.to_owned()),
                KeyValue::new("tribunal.lsn", number(first.0)),
                KeyValue::new("tribunal.records", number(batch.records.len() as u64)),
            ],
            links,
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

#[cfg(test)]
mod tests {
    use super::*;
    use tribunal_types::{Csn, Epoch, Lsn, RecordHead, Span, TxnId, Version};

    fn batch(traceparents: &[&str]) -> RecordBatch {
        let mut batch = RecordBatch::default();
        for text in traceparents {
            let traceparent = Span::push(&mut batch.bytes, text.as_bytes());
            batch.records.push(RecordHead {
                lsn: Lsn(1),
                epoch: Epoch(1),
                csn: Csn::default(),
                version: Version::new(Epoch(1), 0).expect("fits"),
                txn_id: TxnId::default(),
                writes_end: 0,
                traceparent,
            });
        }
        batch
    }

    #[test]
    fn a_post_is_a_child_of_a_commit_only_if_all_share_its_trace() {
        let text = |trace: u8, span: u8, flags: u8| format!("00-{trace:032x}-{span:016x}-{flags:02x}");
        let (one, same, two) = (text(1, 1, 1), text(1, 2, 1), text(2, 1, 1));
        let (quiet_one, quiet_two) = (text(1, 3, 0), text(2, 3, 0));
        let of = |text: &str| parent_of(text).expect("well-formed");
        let above = |traceparents: &[&str]| above(&batch(traceparents));
        assert_eq!(above(&["", &quiet_one]), None, "none is recorded");
        assert_eq!(above(&[&one, "", &one, &quiet_one]), Some((Some(of(&one)), vec![])));
        assert_eq!(above(&[&same, &one]), Some((Some(of(&same)), vec![of(&one)])), "two commits of one trace");
        assert_eq!(above(&[&one, &quiet_two]), Some((None, vec![of(&one)])), "the other's records are in it as well");
        assert_eq!(above(&[&two, &one, &two]), Some((None, vec![of(&one), of(&two)])), "each is linked once");
        let late = [vec![one.as_str(); 100], vec![two.as_str()]].concat();
        assert_eq!(above(&late), Some((None, vec![of(&one)])), "all records are looked at");
    }
}
