//! `POST /v1/txns/stream`: commits for as long as the client sends them, verdicts as they are decided, over one
//! connection.
//!
//! The response body drives everything: it reads the request, one frame at a time, and only while the window has room.
//! So a client that does not read its responses stops its own commits, and a stream holds no more than its window:
//! lines with pending verdicts, one frame, and the responses to them. Invariant: every accepted line is answered before
//! the stream ends, for whatever reason; bytes that the client sends after that are read and dropped for a moment,
//! because closing a connection over unread bytes resets it, and the client might lose the end.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures_util::stream::{FuturesUnordered, unfold};
use futures_util::{FutureExt, StreamExt};
use tokio::runtime::Handle;
use tokio::task::unconstrained;
use tokio::time::Instant;
use tribunal_api::Problem;
use tribunal_service::ServiceError;
use tribunal_types::limits::{
    BODY_BYTES_MAX, LINGER_BYTES_MAX, LINGER_MS, LINGER_STOPPING_MS, STREAM_BYTES_MAX, STREAM_COMMITS_MAX,
};

use crate::app::{App, RouterOptions};
use crate::quota::Permit;
use crate::request::body::{MediaType, SHORT_BYTES, media_type, root_cause};
use crate::request::caller::caller;
use crate::request::commit_line::commit_line;
use crate::request::content_negotiation::Form;
use crate::request::lines::{Line, LineReader};
use crate::response::content::streamed;
use crate::response::marks::Duplex;
use crate::response::problem::ProblemResponse;
use crate::response::response_json::{JsonWriter, item_decision, refused};
use crate::routes::stream_intake::{Answers, Intake, Port, StreamThreads, Submission, is_long};

/// Maximum age of the last check that the caller may commit.
const RECHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of responses above which no further line is processed before they are written.
const ANSWER_BYTES: usize = 64 * 1024;
/// Reason of the end if the node stops.
const STOPPING: &str = "stopping";

/// Commits as a stream: the client sends one `BatchTxn` per line, for as long as it likes, and receives each outcome on the
/// same connection as soon as it is decided; outcomes of lines that arrived together may come together.
///
/// The response begins at once. It has one line for every request line that is not blank: a `TxnOutcome` with the
/// `txn_id`, as in `batchCommit`. A line that is not a commit gets a `TxnOutcome` with `status: problem` whose problem names
/// the line, counted from 1; the stream continues. Outcomes arrive in the order of the decisions, not of the requests: tell
/// them apart by `txn_id`. Lines in flight together may be decided in any order; if a commit must follow another one, send it
/// after the other's verdict. A verdict with `ack: applied` arrives once the commit is applied, and delays no other.
///
/// The client must be able to read the response while it still sends the request. `java.net.http` and `fetch` in browsers
/// cannot; use `batchCommit` there. Cleartext HTTP/2 is by prior knowledge only.
///
/// The window: while 1024 commits, or 1 MiB of them, wait for their verdicts, the server reads no further line, and it reads
/// none while the client does not read the outcomes. A commit may be as long as in a separate request, and then waits alone.
///
/// A connection may have 3 commit streams at a time. A stream counts as one request and 1 MiB in the tenant's quota. A
/// commit above 1 MiB counts as another request and 10 MiB until it is decided; if the quota has no room for it, the
/// stream ends with the problem `quota_exceeded`.
///
/// Lines with a field `event` are `CommitEvent`s: heartbeats while nothing else is written, and the end with its reason. The
/// client ends the stream by ending the request. The server ends it when it stops, when the credential is revoked or
/// expires, when a line is longer than a commit may be, or when the rest of a line does not arrive in time; commits accepted before get
/// their outcomes first. A stream whose client does not read for as long as a connection may idle is closed. When the
/// connection is lost, accepted commits are still decided: get the status of each by its id.
#[utoipa::path(
    post, path = "/v1/txns/stream", operation_id = "commitStream", tag = "transactions",
    params(
        ("tribunal-client" = Option<String>, Header, nullable = false, description = "Name of the client, for rules that are fair between clients"),
        ("traceparent" = Option<String>, Header, nullable = false, description = "W3C trace context of all commits of the stream; stored in the log's records"),
    ),
    request_body(content(
        (String = "application/x-ndjson"),
        (inline(tribunal_api::CommitLines) = "application/octet-stream"),
    ), description = "One `BatchTxn` a line, without an end of its own"),
    responses(
        (status = 200, description = "One `TxnOutcome` a line, as they are decided, and `CommitEvent`s", body = String, content_type = "application/x-ndjson"),
        (status = 401, description = "No valid key or token", body = Problem, content_type = "application/problem+json"),
        (status = 403, description = "The key has no role that commits", body = Problem, content_type = "application/problem+json"),
        (status = 415, description = "Not NDJSON, or compressed", body = Problem, content_type = "application/problem+json"),
        (status = 429, description = "More requests in flight than the quota allows, or more streams of commits on this connection than 3", body = Problem, content_type = "application/problem+json"),
        (status = "default", description = "The stream did not begin; no decision was made", body = Problem, content_type = "application/problem+json"),
    )
)]
pub async fn commit_stream(State(app): State<App>, request: Request) -> Result<Response, ProblemResponse> {
    let (mut parts, body) = request.into_parts();
    media_type(&parts.headers, &[MediaType::NdJson, MediaType::Bytes])?;
    let caller = caller(&parts);
    let threads = parts.extensions.remove::<StreamThreads>();
    let port = Port { service: Arc::clone(&app.service), caller, threads };
    let place = Duplex::default();
    let stream = CommitStream::new(app, place.clone(), parts.headers, port, body);
    let chunks = unfold(stream, |mut stream| async {
        let chunk = stream.next().await?;
        Some((Ok::<_, Infallible>(chunk), stream))
    });
    let mut response = streamed(Form::NdJson, Body::from_stream(chunks));
    response.extensions_mut().insert(place);
    Ok(response)
}

/// Why a stream accepts no more lines.
struct End {
    reason: String,
    problem: Option<ProblemResponse>,
}

struct CommitStream {
    app: App,
    place: Duplex,
    headers: HeaderMap,
    port: Port,
    body: Body,
    body_is_over: bool,
    lines: LineReader,
    /// A line for which the window has no room yet.
    waiting: Option<Line>,
    /// Permit for the bytes of a line larger than the window that has not been accepted yet.
    long: Option<Permit>,
    /// The number of the last accepted line.
    taken: u64,
    undecided: FuturesUnordered<Submission>,
    /// Commits and bytes in the window.
    commits: usize,
    bytes: usize,
    /// The incomplete line, and the time since which its rest is awaited.
    begun: Option<(u64, Instant)>,
    check_at: Instant,
    written_at: Instant,
    node_ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    end: Option<End>,
    end_is_written: bool,
}

impl CommitStream {
    fn new(app: App, place: Duplex, headers: HeaderMap, port: Port, body: Body) -> Self {
        let service = Arc::clone(&app.service);
        let check_at = Instant::now() + check_interval(&app.options);
        CommitStream {
            app,
            place,
            headers,
            port,
            body,
            body_is_over: false,
            lines: LineReader::default(),
            waiting: None,
            long: None,
            taken: 0,
            undecided: FuturesUnordered::new(),
            commits: 0,
            bytes: 0,
            begun: None,
            check_at,
            written_at: Instant::now(),
            node_ended: Box::pin(async move { service.node.ended().await }),
            end: None,
            end_is_written: false,
        }
    }

    /// Returns the next bytes to write; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(end) = self.end.as_ref().filter(|_| self.end_is_written) {
            let linger_ms = if end.reason == STOPPING { LINGER_STOPPING_MS } else { LINGER_MS };
            let _ = tokio::time::timeout(Duration::from_millis(linger_ms), self.drop_the_rest()).await;
            return None;
        }
        let mut out = JsonWriter::with_capacity(4096);
        loop {
            if self.check_at <= Instant::now() {
                self.check(&mut out);
            }
            let more = self.take_in(&mut out);
            self.write_decided(&mut out);
            if self.end.is_some() && self.undecided.is_empty() {
                self.write_end(&mut out);
            }
            if !out.is_empty() {
                self.written_at = Instant::now();
                return Some(Bytes::from(out.finish()));
            }
            tokio::select! {
                biased;
                () = &mut self.node_ended, if self.end.is_none() => self.end(STOPPING, None),
                Some(answers) = self.undecided.next(), if !self.undecided.is_empty() => self.write(answers, &mut out),
                () = tokio::task::yield_now(), if more => {}
                frame = next_frame(&mut self.body), if self.may_read() => self.arrived(frame),
                () = tokio::time::sleep_until(self.check_at) => {}
            }
        }
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.commits == 0 || self.commits < STREAM_COMMITS_MAX && self.bytes + bytes <= STREAM_BYTES_MAX
    }

    fn may_read(&self) -> bool {
        let nothing_waits = self.waiting.is_none() && self.lines.needs_more();
        self.end.is_none() && !self.body_is_over && nothing_waits && self.has_room(self.lines.begun_bytes())
    }

    /// Processes a frame of the body.
    fn arrived(&mut self, frame: Option<Result<Bytes, BoxError>>) {
        match frame {
            Some(Ok(bytes)) => self.lines.push(bytes),
            Some(Err(error)) => {
                let detail = format!("the request broke off after line {}: {}", self.taken, root_cause(&*error));
                let problem = ProblemResponse::new(StatusCode::BAD_REQUEST, "body_incomplete", detail);
                self.fail(problem);
            }
            None => {
                self.body_is_over = true;
                self.waiting = self.lines.last_line();
            }
        }
    }

    /// Accepts lines while the window has room. Returns whether there may be more: one turn parses only as much as is
    /// parsed quickly.
    fn take_in(&mut self, out: &mut JsonWriter) -> bool {
        let catalog = self.app.service.stores.catalog();
        let mut intake = Intake::default();
        let mut parsed_bytes = 0;
        let mut more = false;
        while self.end.is_none() {
            if parsed_bytes >= SHORT_BYTES as usize || out.len() >= ANSWER_BYTES {
                more = true;
                break;
            }
            let Some(line) = self.waiting.take().or_else(|| self.lines.next_line()) else {
                self.check_begun_line();
                if self.body_is_over {
                    self.end("complete", None);
                }
                break;
            };
            let bytes = line.bytes.len();
            if bytes > BODY_BYTES_MAX {
                self.fail(too_long(line.number));
                break;
            }
            if !self.has_room(bytes) {
                self.waiting = Some(line);
                break;
            }
            if !self.reserve(line.number, bytes) {
                break;
            }
            self.taken = line.number;
            let permit = self.long.take();
            // Includes the line break: many empty lines are a long text, too.
            parsed_bytes += bytes + 1;
            if line.is_blank() {
                continue;
            }
            if is_long(&line) {
                self.commits += 1;
                self.bytes += bytes;
                self.undecided.push(self.port.submit_long(line, permit));
                continue;
            }
            match commit_line(&line.bytes, line.number, &catalog, &self.port.caller) {
                Ok(parsed) => {
                    self.commits += 1;
                    self.bytes += bytes;
                    intake.add(parsed, bytes);
                }
                // Another node may just have created the store.
                Err(refusal) if refusal.problem.names_unknown_store() && self.app.service.node.may_lag() => {
                    self.commits += 1;
                    self.bytes += bytes;
                    self.undecided.push(self.port.submit_long(line, permit));
                }
                Err(refusal) => {
                    refused(out, refusal.id, &refusal.problem);
                    out.end_line();
                }
            }
        }
        self.undecided.extend(intake.submissions(&self.port));
        more
    }

    /// Ends the stream if the incomplete line is too long or has no room; `lines` has only its beginning.
    fn check_begun_line(&mut self) {
        let (begun, number) = (self.lines.begun_bytes(), self.lines.taken() + 1);
        if begun > BODY_BYTES_MAX {
            return self.fail(too_long(number));
        }
        let _ = self.reserve(number, begun);
    }

    /// Reserves room for a line larger than the window. Returns false, and ends the stream, if there is none.
    fn reserve(&mut self, number: u64, bytes: usize) -> bool {
        // Without access control, there is no quota of requests.
        if bytes <= STREAM_BYTES_MAX || self.long.is_some() || self.app.options.access.is_none() {
            return true;
        }
        self.long = self.app.tenants.enter(self.port.caller.namespace, BODY_BYTES_MAX);
        if self.long.is_none() {
            let retry_after_ms = self.app.service.txns.retry_after_ms();
            let catalog = self.app.service.stores.catalog();
            let problem = ProblemResponse::of_service(ServiceError::QuotaExceeded { retry_after_ms }, &catalog);
            self.fail(problem.at_line(number));
        }
        self.long.is_some()
    }

    /// Checks the time-dependent conditions: whether the caller is still admitted, whether a line has stopped arriving,
    /// whether a heartbeat is due.
    fn check(&mut self, out: &mut JsonWriter) {
        let now = Instant::now();
        let options = self.app.options;
        let interval = check_interval(&options);
        if now.duration_since(self.check_at) > interval {
            // The client left responses unread, so the server did not read either: the line could not arrive.
            self.begun = None;
        }
        self.check_at = now + interval;
        if self.end.is_none()
            && let Err(problem) = self.app.still_admits(&self.headers)
        {
            self.fail(problem);
        }
        let number = self.lines.taken() + 1;
        let awaited = self.may_read() && self.lines.begun_bytes() > 0;
        self.begun = awaited.then(|| self.begun.filter(|(line, _)| *line == number).unwrap_or((number, now)));
        if self.begun.is_some_and(|(_, since)| now.duration_since(since) >= options.body_timeout) {
            let ms = options.body_timeout.as_millis();
            let detail = format!("line {number} began and was not whole within {ms} ms; write whole lines");
            let problem = ProblemResponse::new(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail).retryable(None);
            self.fail(problem.at_line(number));
        }
        if now.duration_since(self.written_at) >= options.heartbeat {
            out.open(b'{');
            out.text_field("event", "heartbeat");
            out.close(b'}');
            out.end_line();
        }
    }

    /// Writes all available responses: the decisions of one epoch leave in one write. This also hands the accepted
    /// lines to the node before anything is awaited: the body may next be polled when the client reads on, if ever. So
    /// the runtime's budget for this task must not interrupt it halfway.
    fn write_decided(&mut self, out: &mut JsonWriter) {
        while let Some(Some(answers)) = unconstrained(self.undecided.next()).now_or_never() {
            self.write(answers, out);
        }
    }

    fn write(&mut self, answers: Answers, out: &mut JsonWriter) {
        let catalog = self.app.service.stores.catalog();
        self.commits -= answers.items.len();
        self.bytes -= answers.bytes;
        for (id, result) in answers.items {
            match result {
                Ok(decided) => item_decision(out, id, &decided, &catalog),
                Err(problem) => refused(out, id, &problem),
            }
            out.end_line();
        }
    }

    fn fail(&mut self, problem: ProblemResponse) {
        self.end(&problem.body.code.clone(), Some(problem));
    }

    /// Accepts no more lines from here on.
    fn end(&mut self, reason: &str, problem: Option<ProblemResponse>) {
        self.end = Some(End { reason: reason.to_owned(), problem });
    }

    fn write_end(&mut self, out: &mut JsonWriter) {
        let Some(End { reason, problem }) = &self.end else { return };
        out.open(b'{');
        out.text_field("event", "end");
        out.text_field("reason", reason);
        out.decimal_field("lines", self.taken);
        if let Some(problem) = problem {
            out.name("problem");
            out.raw(&serde_json::to_vec(&problem.body).unwrap_or_default());
        }
        out.close(b'}');
        out.end_line();
        self.end_is_written = true;
    }

    async fn drop_the_rest(&mut self) {
        let mut left = LINGER_BYTES_MAX;
        while !self.body_is_over
            && let Some(Ok(bytes)) = next_frame(&mut self.body).await
        {
            let Some(rest) = left.checked_sub(bytes.len()) else { return };
            left = rest;
        }
    }
}

impl Drop for CommitStream {
    /// Lets the remaining accepted commits be decided, while holding the stream's permit for them.
    fn drop(&mut self) {
        let mut undecided = std::mem::take(&mut self.undecided);
        if undecided.is_empty() {
            return;
        }
        if let Ok(runtime) = Handle::try_current() {
            let place = self.place.clone();
            runtime.spawn(async move {
                while undecided.next().await.is_some() {}
                drop(place);
            });
        }
    }
}

fn check_interval(options: &RouterOptions) -> Duration {
    RECHECK_INTERVAL.min(options.heartbeat).min(options.body_timeout)
}

/// Returns the data of the next frame; `None` at the end.
async fn next_frame(body: &mut Body) -> Option<Result<Bytes, BoxError>> {
    let frame = std::future::poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await?;
    // A frame without data contains trailers.
    Some(frame.map(|frame| frame.into_data().unwrap_or_default()).map_err(Into::into))
}

fn too_long(number: u64) -> ProblemResponse {
    let detail = format!(
        "line {number} is longer than {BODY_BYTES_MAX} bytes, the limit of a commit, so the stream ends; end each commit with \
         a line break"
    );
    ProblemResponse::new(StatusCode::PAYLOAD_TOO_LARGE, "line_too_long", detail).at_line(number)
}
