//! The spans of a request: itself, the phases of its epoch, and the plugins called in them. They are created when the
//! request ends, from timestamps taken anyway.

use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{Link, SpanContext, SpanKind, Status, TraceFlags, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue, SpanId, TraceId};
use opentelemetry_sdk::trace::{
    BatchSpanProcessor, IdGenerator, RandomIdGenerator, SpanData, SpanEvents, SpanLinks, SpanProcessor,
};
use tribunal_service::{Decided, IdTime, Phases, ServiceError};
use tribunal_types::{Epoch, PluginSlot, TxnId, TxnRequest, Verdict};
use uuid::Uuid;

use super::parent::Parent;
use super::sampling::{Sampling, trace_of};
use super::slice_budget::Budget;
use super::slow_log::{SLOW, note};
use super::span_budget::{SpanBudget, SpanCounts};
use crate::commit::epoch_cache::{EpochCache, Timing};
use crate::plugins::plugin_health::CallTimes;

/// Transactions traced although not sampled, because they were slow or aborted: 31 a second.
const LATE_PER_SLICE_MAX: u64 = 2;

type Answer = Result<Decided, ServiceError>;

/// Creates spans and passes them to the exporter.
pub struct Tracing {
    processor: BatchSpanProcessor,
    budget: Arc<SpanBudget>,
    sampling: Sampling,
    late: Budget,
    scope: InstrumentationScope,
    /// The same moment on both clocks.
    base: (Instant, SystemTime),
    cache: Arc<EpochCache>,
}

/// A request that has begun.
struct Request {
    began: Instant,
    parent: Option<Parent>,
    /// Its own span, if it is traced.
    own: Option<Own>,
}

/// A span created here.
#[derive(Clone, Copy)]
struct Own {
    trace: TraceId,
    span: SpanId,
}

/// One span of a trace, about to be exported.
pub(super) struct Piece {
    pub name: &'static str,
    pub kind: SpanKind,
    pub from: Instant,
    pub until: Instant,
    pub attributes: Vec<KeyValue>,
    pub status: Status,
    /// Spans of other traces that it also belongs to.
    pub links: Vec<Parent>,
}

/// A span whose id was created before it ended, because it is sent to other systems.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub trace: TraceId,
    pub span: SpanId,
    pub parent: SpanId,
}

impl Place {
    /// Creates a span below `parent`, or the first one of a new trace.
    pub fn below(parent: Option<Parent>) -> Place {
        let above = parent.map_or(SpanId::INVALID, |parent| parent.span);
        Place { trace: trace_of(parent), span: new_span_id(), parent: above }
    }

    /// Creates a span below this one.
    pub fn child(self) -> Place {
        Place { span: new_span_id(), parent: self.span, ..self }
    }

    /// Returns the header that propagates the trace.
    pub fn traceparent(self) -> String {
        Own { trace: self.trace, span: self.span }.traceparent()
    }
}

impl Own {
    /// Returns the header that propagates the trace.
    fn traceparent(self) -> String {
        format!("00-{}-{}-01", self.trace, self.span)
    }
}

/// Parses a well-formed `traceparent`.
pub(super) fn parent_of(traceparent: &str) -> Option<Parent> {
    let mut fields = traceparent.split('-').skip(1);
    let trace = TraceId::from_hex(fields.next()?).ok().filter(|id| *id != TraceId::INVALID)?;
    let span = SpanId::from_hex(fields.next()?).ok().filter(|id| *id != SpanId::INVALID)?;
    let flags = u8::from_str_radix(fields.next()?, 16).ok()?;
    Some(Parent { trace, span, sampled: flags & 1 == 1 })
}

impl Tracing {
    /// Creates spans for `processor`, bounded by `budget`, for the requests selected by `sampling`.
    #[must_use]
    pub fn new(
        processor: BatchSpanProcessor,
        budget: Arc<SpanBudget>,
        sampling: Sampling,
        cache: Arc<EpochCache>,
    ) -> Tracing {
        let scope = InstrumentationScope::builder("tribunal").with_version(env!("CARGO_PKG_VERSION")).build();
        let base = (Instant::now(), SystemTime::now());
        Tracing { processor, budget, sampling, late: Budget::new(LATE_PER_SLICE_MAX), scope, base, cache }
    }

    /// Decides a transaction and traces it if it is sampled; or late, if it was slow or aborted.
    ///
    /// # Errors
    /// Those of `decide`.
    pub async fn commit<F>(&self, mut txn: TxnRequest, decide: impl FnOnce(TxnRequest) -> F) -> Answer
    where
        F: Future<Output = Answer>,
    {
        let request = self.begin(txn.traceparent.as_deref());
        if let Some(own) = request.own {
            txn.traceparent = Some(own.traceparent());
        }
        let id = txn.id;
        let mut answer = decide(txn).await;
        let own = request.own.or_else(|| self.begin_late(&request, &answer));
        note(id, own.map(|own| own.trace).or(request.parent.map(|parent| parent.trace)), request.began, &answer);
        if let Some(own) = own {
            self.end_commit(&request, own, id, &answer);
            if let Ok(decided) = &mut answer {
                decided.traceparent = Some(own.traceparent());
            }
        }
        answer
    }

    /// Decides many transactions, under one span.
    ///
    /// # Errors
    /// Those of `decide`.
    pub async fn commit_many<F>(
        &self,
        mut txns: Vec<TxnRequest>,
        decide: impl FnOnce(Vec<TxnRequest>) -> F,
    ) -> Result<Vec<Answer>, ServiceError>
    where
        F: Future<Output = Result<Vec<Answer>, ServiceError>>,
    {
        let request = self.begin(txns.first().and_then(|txn| txn.traceparent.as_deref()));
        let Some(own) = request.own else { return decide(txns).await };
        txns.iter_mut().for_each(|txn| txn.traceparent = Some(own.traceparent()));
        let mut answers = decide(txns).await;
        self.end_many(&request, own, &answers);
        for decided in answers.iter_mut().flatten().flatten() {
            decided.traceparent = Some(own.traceparent());
        }
        answers
    }

    fn begin(&self, traceparent: Option<&str>) -> Request {
        let parent = traceparent.and_then(parent_of);
        let own = self.sampling.draw(parent).map(|trace| Own { trace, span: new_span_id() });
        Request { began: Instant::now(), parent, own }
    }

    /// Traces a request late: its log records, if any, carry the caller's `traceparent`.
    fn begin_late(&self, request: &Request, answer: &Answer) -> Option<Own> {
        let aborted = matches!(answer, Ok(Decided { verdict: Verdict::Aborted { .. }, .. }));
        let worth = aborted || answer.as_ref().is_err_and(is_our_blame) || request.began.elapsed() >= SLOW;
        let late = worth && self.sampling.may_be_late(request.parent) && self.late.take();
        late.then(|| Own { trace: trace_of(request.parent), span: new_span_id() })
    }

    fn end_commit(&self, request: &Request, own: Own, id: TxnId, answer: &Answer) {
        let mut attributes = vec![KeyValue::new("tribunal.txn.id", Uuid::from_bytes(id.0).to_string())];
        let mut below = Vec::new();
        match answer {
            Ok(decided) => {
                attributes.push(KeyValue::new("tribunal.verdict", verdict_word(&decided.verdict)));
                attributes.push(KeyValue::new("tribunal.epoch", number(epoch_of(&decided.verdict).0)));
                if let Verdict::Aborted { reason, .. } = &decided.verdict {
                    attributes.push(KeyValue::new("tribunal.abort.reason", reason.to_string()));
                }
                if decided.replayed {
                    attributes.push(KeyValue::new("tribunal.replayed", true));
                }
                below = self.below(request.began, decided);
            }
            Err(error) => attributes.push(KeyValue::new("error.type", error_word(error))),
        }
        let status = answer.as_ref().err().filter(|error| is_our_blame(error)).map(|error| format!("{error:?}"));
        self.end(request, own, "commit", attributes, status, below);
    }

    fn end_many(&self, request: &Request, own: Own, answers: &Result<Vec<Answer>, ServiceError>) {
        let mut attributes = Vec::new();
        let mut below = Vec::new();
        match answers {
            Ok(answers) => {
                let counted = |word: &str| {
                    let is = |decided: &&Decided| verdict_word(&decided.verdict) == word;
                    number(answers.iter().flatten().filter(is).count() as u64)
                };
                attributes.push(KeyValue::new("tribunal.txns", number(answers.len() as u64)));
                attributes.push(KeyValue::new("tribunal.txns.committed", counted("committed")));
                attributes.push(KeyValue::new("tribunal.txns.aborted", counted("aborted")));
                // They went through the log together; the last one is answered last.
                let decided = answers.iter().flatten().rfind(|decided| decided.phases != Phases::default());
                below = decided.map(|decided| self.below(request.began, decided)).unwrap_or_default();
            }
            Err(error) => attributes.push(KeyValue::new("error.type", error_word(error))),
        }
        let status = answers.as_ref().err().filter(|error| is_our_blame(error)).map(|error| format!("{error:?}"));
        self.end(request, own, "batch-commit", attributes, status, below);
    }

    /// Exports a request's span with those below it, or none of them.
    fn end(
        &self,
        request: &Request,
        own: Own,
        name: &'static str,
        attributes: Vec<KeyValue>,
        trouble: Option<String>,
        below: Vec<(Piece, Vec<Piece>)>,
    ) {
        if !self.budget.take(1 + below.iter().map(|(_, calls)| 1 + calls.len()).sum::<usize>()) {
            return;
        }
        for (phase, calls) in below {
            let span = new_span_id();
            calls.into_iter().for_each(|call| self.put(own.trace, new_span_id(), span, call));
            self.put(own.trace, span, own.span, phase);
        }
        let status = trouble.map_or(Status::Unset, Status::error);
        let (from, until) = (request.began, Instant::now());
        let piece = Piece { name, kind: SpanKind::Server, from, until, attributes, status, links: Vec::new() };
        self.put(own.trace, own.span, request.parent.map_or(SpanId::INVALID, |parent| parent.span), piece);
    }

    /// Returns the spans below a request. The phases follow one another without a gap, from the acceptance of the
    /// request; plugins are called while the epoch is resolved. A large batch is resolved while it is synced: then the
    /// resolution is shown last, with its own length, and the sync with what it took in addition.
    fn below(&self, began: Instant, decided: &Decided) -> Vec<(Piece, Vec<Piece>)> {
        let phases = &decided.phases;
        let epoch = self.cache.epoch(epoch_of(&decided.verdict)).filter(|_| !decided.replayed);
        let mut from = began;
        let named = [
            ("epoch.queue", phases.queue_us),
            ("log.sync", phases.sync_us),
            ("epoch.resolve", phases.resolve_us),
            ("store.apply", phases.apply_us),
        ];
        let timed = named.into_iter().filter(|(_, us)| *us > 0);
        timed
            .map(|(name, us)| {
                let until = from + Duration::from_micros(u64::from(us));
                let piece = Piece::internal(name, std::mem::replace(&mut from, until), until);
                let epoch = epoch.as_ref().filter(|_| name == "epoch.resolve");
                let calls = epoch.map(|epoch| plugin_calls(&epoch.timing)).unwrap_or_default();
                (piece, calls)
            })
            .collect()
    }

    /// Exports a span. Its budget must have been taken.
    fn put(&self, trace: TraceId, span: SpanId, parent: SpanId, piece: Piece) {
        let linked = |of: Parent| SpanContext::new(of.trace, of.span, TraceFlags::SAMPLED, true, TraceState::NONE);
        let mut links = SpanLinks::default();
        links.links.extend(piece.links.into_iter().map(|of| Link::with_context(linked(of))));
        self.processor.on_end(SpanData {
            span_context: SpanContext::new(trace, span, TraceFlags::SAMPLED, false, TraceState::NONE),
            parent_span_id: parent,
            parent_span_is_remote: piece.kind == SpanKind::Server && parent != SpanId::INVALID,
            span_kind: piece.kind,
            name: piece.name.into(),
            start_time: self.wall(piece.from),
            end_time: self.wall(piece.until),
            attributes: piece.attributes,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: piece.status,
            instrumentation_scope: self.scope.clone(),
        });
    }

    /// Exports a span and those below it, or none of them.
    pub(super) fn put_tree(&self, parent: Parent, top: Piece, below: Vec<Piece>) {
        if !self.budget.take(1 + below.len()) {
            return;
        }
        let span = new_span_id();
        below.into_iter().for_each(|piece| self.put(parent.trace, new_span_id(), span, piece));
        self.put(parent.trace, span, parent.span, top);
    }

    /// Exports spans with given places, or none of them.
    pub(super) fn put_placed<const N: usize>(&self, spans: [(Place, Piece); N]) {
        if self.budget.take(N) {
            spans.into_iter().for_each(|(at, piece)| self.put(at.trace, at.span, at.parent, piece));
        }
    }

    fn wall(&self, at: Instant) -> SystemTime {
        self.base.1 + at.saturating_duration_since(self.base.0)
    }

    /// Returns the fates of spans so far.
    pub fn counts(&self) -> SpanCounts {
        self.budget.counts()
    }

    /// Sends the remaining spans.
    pub(super) fn stop(&self, timeout: Duration) {
        if let Err(error) = self.processor.shutdown_with_timeout(timeout) {
            tracing::debug!(%error, "the last spans were not exported");
        }
    }
}

impl Piece {
    /// Creates a span within the node.
    pub(super) fn internal(name: &'static str, from: Instant, until: Instant) -> Piece {
        let (attributes, links) = (Vec::new(), Vec::new());
        Piece { name, kind: SpanKind::Internal, from, until, attributes, status: Status::Unset, links }
    }
}

fn plugin_calls(timing: &Timing) -> Vec<Piece> {
    let piece = |(slot, times): &(PluginSlot, CallTimes)| {
        let name = if *slot == PluginSlot::Rule { "plugin.rank" } else { "plugin.validate" };
        let attributes = vec![KeyValue::new("tribunal.plugin.slot", slot.to_string())];
        Piece { attributes, ..Piece::internal(name, times.from, times.until) }
    };
    timing.plugins.iter().map(piece).collect()
}

fn new_span_id() -> SpanId {
    RandomIdGenerator::default().new_span_id()
}

fn number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn epoch_of(verdict: &Verdict) -> Epoch {
    match verdict {
        Verdict::Committed { epoch, .. } | Verdict::ReadOnly { epoch } | Verdict::Aborted { epoch, .. } => *epoch,
    }
}

fn verdict_word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Committed { .. } => "committed",
        Verdict::ReadOnly { .. } => "read_only",
        Verdict::Aborted { .. } => "aborted",
    }
}

/// Returns whether an error is the service's; the others concern only the client and its request.
fn is_our_blame(error: &ServiceError) -> bool {
    use ServiceError as E;
    matches!(error, E::Unavailable { .. } | E::OutcomeUnknown { .. } | E::Overloaded { .. })
}

fn error_word(error: &ServiceError) -> &'static str {
    match error {
        ServiceError::Unavailable { .. } => "unavailable",
        ServiceError::OutcomeUnknown { .. } => "outcome_unknown",
        ServiceError::Overloaded { .. } => "overloaded",
        ServiceError::QuotaExceeded { .. } => "quota_exceeded",
        ServiceError::InFlight => "in_flight",
        ServiceError::BodyMismatch => "body_mismatch",
        ServiceError::TxnIdExpired(IdTime::Forgotten) => "txn_id_forgotten",
        ServiceError::TxnIdExpired(_) => "txn_id_expired",
        _ => "refused",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_continues_from_its_header() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent = parent_of(text).unwrap();
        assert!(parent.sampled);
        assert_eq!(Own { trace: parent.trace, span: parent.span }.traceparent(), text);
        let unsampled = parent_of("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00");
        assert_eq!(unsampled, Some(Parent { sampled: false, ..parent }));
        for none in ["00-00000000000000000000000000000000-00f067aa0ba902b7-01", "", "00-x-y-01"] {
            assert_eq!(parent_of(none), None, "{none}");
        }
    }
}
