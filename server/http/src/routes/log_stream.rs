//! A store's log as a stream: NDJSON, or server-sent events.
//!
//! The stream holds a position, never a queue: it reads the log again once the connection has sent the previous output,
//! so a slow reader costs one page of memory, which counts towards its tenant's quota, and lags in the log. If there is
//! no room for a page, the stream waits a while, and then ends. Heartbeats name the log and its head: one is
//! sent first, then at least one in each interval, also between records. The stream ends with an event that names the
//! reason: the limit is reached, the stream was idle for the requested time, the log was truncated past the reader, the
//! quota has no room, the reader's credential is no longer valid, or the node stops.

use std::io;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;
use axum::response::Response;
use futures_util::stream::unfold;
use tokio::time::Instant;
use tribunal_types::{Epoch, Lsn, RecordBatch};

use crate::app::App;
use crate::authz::credential::RECHECK_INTERVAL;
use crate::quota::Reserved;
use crate::request::content_negotiation::Form;
use crate::response::content::streamed;
use crate::response::log_problem::refused;
use crate::response::marks::ChecksCaller;
use crate::response::problem::ProblemResponse;
use crate::response::response_json::{JsonWriter, record};
use crate::response::stream_room::{StreamRoom, chunk, no_room};
use tribunal_service::{LogPage, LogQuery, ServiceError};

/// Bytes of keys and values per read.
const PAGE_BYTES_MAX: usize = 256 * 1024;
/// Records per read.
const PAGE_RECORDS_MAX: usize = 1_000;
/// Bytes that a record, and each of its writes, take as text in addition to their keys and values.
const RECORD_TEXT_BYTES: usize = 384;
const WRITE_TEXT_BYTES: usize = 64;
/// Delay after which a browser reconnects, milliseconds.
const RECONNECT_MS: u64 = 1_000;

/// A client's parameters of a stream.
#[derive(Clone, Debug)]
pub struct StreamQuery {
    /// Start position and bounds of reads.
    pub from: LogQuery,
    /// The store's name.
    pub name: String,
    /// Form of the output.
    pub form: Form,
    /// Records after which the stream ends; `None` for no limit.
    pub records_max: Option<u64>,
    /// Idle time after which the stream ends; `None` for no limit.
    pub idle: Option<Duration>,
    /// Longest time between two heartbeats.
    pub heartbeat: Duration,
}

struct LogStream {
    app: App,
    /// The credential of the request.
    headers: HeaderMap,
    /// When the credential was last found valid.
    admitted_at: Instant,
    query: StreamQuery,
    after: Lsn,
    left: u64,
    /// Start of the current idle time.
    quiet_since: Instant,
    /// When the last heartbeat was written.
    beat_at: Instant,
    room: StreamRoom,
    /// The page that was read before the response began.
    first: Option<Held>,
    ended: bool,
}

/// A page, and the room for it and its text.
struct Held {
    page: LogPage,
    reserved: Reserved,
}

/// Opens the stream.
///
/// # Errors
/// Any error of the first read of the log.
pub async fn open(app: App, parts: &Parts, query: StreamQuery) -> Result<Response, ServiceError> {
    let left = query.records_max.unwrap_or(u64::MAX);
    let (form, after) = (query.form, query.from.after);
    let now = Instant::now();
    let (quiet_since, beat_at, admitted_at) = (now, now, now);
    let room = StreamRoom::of(&app, parts);
    let credentials = parts.headers.get_all(AUTHORIZATION).iter();
    let headers = credentials.map(|credential| (AUTHORIZATION, credential.clone())).collect();
    let (first, ended) = (None, false);
    let mut stream =
        LogStream { app, headers, admitted_at, query, after, left, quiet_since, beat_at, room, first, ended };
    // Without room for the first page, the request is refused at once: clients wait for the head of a response.
    let page = stream.read_page(Duration::ZERO).await?;
    let reserved = stream.room.reserve(all_bytes(&page)).ok_or_else(|| no_room(&stream.app))?;
    stream.first = Some(Held { page, reserved });
    let chunks = unfold(stream, |mut stream| async {
        let chunk = stream.next().await?;
        Some((chunk, stream))
    });
    let mut response = streamed(form, Body::from_stream(chunks));
    response.extensions_mut().insert(ChecksCaller);
    Ok(response)
}

impl LogStream {
    /// Reads the next page once there is room for it and its text.
    async fn page(&self, wait: Duration) -> Result<Held, ServiceError> {
        let page = self.read_page(wait).await?;
        let (records, bytes) = (page.records.records.len(), all_bytes(&page));
        if let Some(reserved) = self.room.reserve(bytes) {
            return Ok(Held { page, reserved });
        }
        // Holds nothing while it waits, and then reads the same records again.
        drop(page);
        let reserved = self.room.wait_for(bytes).await.ok_or_else(|| no_room(&self.app))?;
        Ok(Held { page: self.read(Duration::ZERO, records).await?, reserved })
    }

    async fn read_page(&self, wait: Duration) -> Result<LogPage, ServiceError> {
        self.read(wait, usize::try_from(self.left).unwrap_or(usize::MAX).min(PAGE_RECORDS_MAX)).await
    }

    async fn read(&self, wait: Duration, records_max: usize) -> Result<LogPage, ServiceError> {
        let query = LogQuery {
            after: self.after,
            limit: records_max,
            bytes_max: PAGE_BYTES_MAX,
            // Round a fraction of a millisecond up, or the loop would spin.
            wait_ms: u64::try_from(wait.as_micros().div_ceil(1000)).unwrap_or(u64::MAX),
            ..self.query.from
        };
        self.app.service.log.log_page(query).await
    }

    /// Returns the next bytes to write; `None` at the end.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.ended {
            return None;
        }
        let turn = match self.room.turn().await {
            Ok(turn) => turn,
            Err(unread) => {
                self.ended = true;
                return Some(Err(unread));
            }
        };
        let mut out = Out { form: self.query.form, json: JsonWriter::with_capacity(0) };
        let mut room = None;
        if let Some(Held { page, reserved }) = self.first.take() {
            room = Some(reserved);
            out.json = writer_for(&page);
            if self.query.form == Form::Events {
                out.json.raw_line(format!("retry: {RECONNECT_MS}\n").as_bytes());
            }
            self.beat(&mut out, &page, page.epoch_at_start());
            self.write(&mut out, &page);
        }
        while out.json.is_empty() {
            let held = self.page(self.wait()).await;
            // Check after the wait: a reader must not receive records that arrived after its credential expired.
            if let Err(problem) = self.check_caller() {
                self.fail(&mut out, &problem);
                break;
            }
            match held {
                Ok(Held { page, reserved }) => {
                    room = Some(reserved);
                    out.json = writer_for(&page);
                    self.write(&mut out, &page);
                }
                Err(error) => {
                    let catalog = self.app.service.stores.catalog();
                    self.fail(&mut out, &refused(error, &catalog, self.query.from.store));
                }
            }
        }
        Some(Ok(chunk(out.json.finish(), room, turn)))
    }

    /// Returns how long to wait for records: until the next heartbeat, until the stream has been idle long enough, or
    /// until the next check of the credential.
    fn wait(&self) -> Duration {
        let now = Instant::now();
        let until = |at: Instant| at.duration_since(now);
        let beat = until(self.beat_at + self.query.heartbeat);
        let recheck = self.app.options.access.map(|_| until(self.admitted_at + RECHECK_INTERVAL));
        let idle = self.query.idle.map(|idle| until(self.quiet_since + idle));
        recheck.into_iter().chain(idle).fold(beat, Duration::min)
    }

    fn check_caller(&mut self) -> Result<(), ProblemResponse> {
        if self.admitted_at.elapsed() >= RECHECK_INTERVAL {
            self.app.still_admits(&self.headers)?;
            self.admitted_at = Instant::now();
        }
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.query.idle.is_some_and(|idle| self.quiet_since.elapsed() >= idle)
    }

    /// Writes a heartbeat with the stream's position, and the epoch up to which every commit is there or before.
    fn beat(&mut self, out: &mut Out, page: &LogPage, epoch: Epoch) {
        out.event("heartbeat", (self.after, epoch), page, None);
        self.beat_at = Instant::now();
    }

    fn write(&mut self, out: &mut Out, page: &LogPage) {
        for index in 0..page.records.records.len() {
            out.record(page, index, &self.query.name);
        }
        let count = page.records.records.len();
        self.after = page.next;
        self.left -= count as u64;
        if count > 0 {
            self.quiet_since = Instant::now();
        }
        let reason = match () {
            () if self.left == 0 => "limit",
            () if page.ending => "stopping",
            () if count == 0 && self.is_idle() => "idle",
            () if self.beat_at.elapsed() >= self.query.heartbeat => return self.beat(out, page, page.epoch),
            () => return,
        };
        self.ended = true;
        out.event("end", (self.after, page.epoch), page, Some(reason));
    }

    fn fail(&mut self, out: &mut Out, problem: &ProblemResponse) {
        self.ended = true;
        out.failure(self.after, problem);
    }
}

/// Returns the memory of a page and its text.
fn all_bytes(page: &LogPage) -> usize {
    held_bytes(page) + text_bytes(page)
}

/// Returns the memory of a page; 0 for an empty one, which always has room.
fn held_bytes(page: &LogPage) -> usize {
    let RecordBatch { records, writes, bytes, .. } = &page.records;
    size_of_val(&records[..]) + size_of_val(&writes[..]) + bytes.len()
}

/// Returns about the size of the text of a page's records.
fn text_bytes(page: &LogPage) -> usize {
    let RecordBatch { records, writes, bytes, .. } = &page.records;
    RECORD_TEXT_BYTES * records.len() + WRITE_TEXT_BYTES * writes.len() + bytes.len()
}

/// Returns a writer with room for the text of a page and an event after it.
fn writer_for(page: &LogPage) -> JsonWriter {
    JsonWriter::with_capacity(text_bytes(page) + 512)
}

struct Out {
    form: Form,
    json: JsonWriter,
}

impl Out {
    fn record(&mut self, page: &LogPage, index: usize, store: &str) {
        if self.form == Form::Events {
            let lsn = page.records.records[index].lsn;
            self.json.raw_line(format!("id: {lsn}\ndata: ").as_bytes());
        }
        record(&mut self.json, &page.records, index, store);
        self.end();
    }

    /// Writes an event other than a record. Without an id, so that it does not move a reader's position.
    fn event(&mut self, event: &str, (next, epoch): (Lsn, Epoch), page: &LogPage, reason: Option<&str>) {
        self.begin(event);
        self.json.text_field("log", &page.log.to_string());
        self.json.decimal_field("next", next.0);
        self.json.decimal_field("epoch", epoch.0);
        self.json.decimal_field("head_lsn", page.head.0);
        self.json.decimal_field("durable_upto", page.durable_upto.0);
        self.json.decimal_field("oldest", page.oldest.0);
        if let Some(reason) = reason {
            self.json.text_field("reason", reason);
        }
        self.json.close(b'}');
        self.end();
    }

    fn failure(&mut self, next: Lsn, problem: &ProblemResponse) {
        self.begin("end");
        self.json.decimal_field("next", next.0);
        self.json.text_field("reason", &problem.body.code);
        self.json.name("problem");
        self.json.raw(&serde_json::to_vec(&problem.body).unwrap_or_default());
        self.json.close(b'}');
        self.end();
    }

    fn begin(&mut self, event: &str) {
        if self.form == Form::Events {
            self.json.raw_line(format!("event: {event}\ndata: ").as_bytes());
        }
        self.json.open(b'{');
        self.json.text_field("event", event);
    }

    fn end(&mut self) {
        self.json.end_line();
        if self.form == Form::Events {
            self.json.end_line();
        }
    }
}
