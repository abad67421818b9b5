//! Reads a store's committed log, record by record, from an offset that the caller keeps.
//!
//! Everything that outlasts a call is in the reader: the stream, the request that opens it, and the wait before another
//! request. So a caller may drop the future of a call at any point, however often, and the next call continues there.

use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tribunal_types::{Epoch, LogId, Lsn};

use crate::line_stream::{LineStream, NotOpened};
use crate::log_record::{LogEvent, LogLine};
use crate::{Client, Error, LogRecord, RetryPolicy, wire};

/// How long a reader waits for a record by default, in milliseconds.
const WAIT_MS: u32 = 10_000;
/// How long a follower tries to reach the service by default, in milliseconds.
const RECONNECT_MS: u32 = 300_000;
/// Maximum time that the service waits for a record, in milliseconds.
const STREAM_WAIT_MS_MAX: u32 = 60_000;
/// Interval of heartbeats to request from the service, which may choose a shorter one.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Shortest wait: enough to find a line that is already in the socket.
const POLL: Duration = Duration::from_millis(5);
/// The waits of a follower that has reached the service before.
const RECONNECTING: RetryPolicy =
    RetryPolicy { attempts_max: u32::MAX, wait_min: Duration::from_millis(20), wait_max: Duration::from_secs(2) };

/// Reads a store's log in order, from a stream that [`LogReader::next`] or [`LogReader::follow`] opens, and reopens if
/// the connection is lost. Store [`LogReader::offset`] and [`LogReader::log_id`] together with the results of your
/// processing. To resume, pass the offset to [`Client::log`] and the id to [`LogReader::of_log`]. The stream belongs to
/// the tokio runtime on which it was opened, and ends when the reader is dropped.
///
/// ```no_run
/// # async fn example(client: tribunal_client::Client) -> Result<(), tribunal_client::Error> {
/// use std::time::Duration;
/// use tribunal_client::Lsn;
///
/// let mut log = client.log("kv", Lsn(0));
/// let mut save = tokio::time::interval(Duration::from_secs(1));
/// loop {
///     tokio::select! {
///         // Dropped whenever the other branch is ready, which loses no record.
///         record = log.follow() => println!("{:?}", record?.writes),
///         _ = save.tick() => println!("save {} of {:?}", log.offset(), log.log_id()),
///     }
/// }
/// # }
/// ```
pub struct LogReader {
    client: Client,
    store: String,
    limit: Option<usize>,
    wait_ms: u32,
    reconnect_ms: u32,
    after: Lsn,
    log: Option<LogId>,
    head: Lsn,
    epoch: Epoch,
    stream: Option<Stream>,
    opening: Option<Opening>,
    /// When the next stream may be requested, after a failure.
    due: Option<Instant>,
    /// How often `follow` has failed since the last record.
    failed: u32,
    /// For how long `follow` has tried to reach the service since the last line. The time between two calls does not
    /// count.
    tried: Duration,
    /// Whether the service has ever answered: until then, the address may be wrong.
    reached: bool,
}

/// An open stream.
struct Stream {
    lines: LineStream<LogLine>,
    /// How long the service waits for a record before it ends the stream, in milliseconds.
    wait_ms: u32,
}

/// A request for a stream. It is a task of its own, so that dropping the future of a call does not repeat it.
struct Opening {
    /// Aborted when dropped.
    task: JoinSet<(Result<LineStream<LogLine>, NotOpened>, Duration)>,
    wait_ms: u32,
}

/// One call of `next` or `follow`.
struct Call {
    begun: Instant,
    /// How long to wait for a record.
    wait_ms: u32,
    /// The end of `next`; `None` for `follow`, which waits for as long as it takes.
    deadline: Option<Instant>,
    /// Whether the call itself has requested the stream, and whether it would have waited longer than a stream can.
    opened: bool,
    capped: bool,
}

/// The effect of a line of the stream.
enum Step {
    Record(LogRecord),
    /// A heartbeat, a stream that was opened, or the end of one after which another one is opened.
    Further,
    /// The stream's wait has passed without a record.
    Idle,
    /// The wait of the call has passed without a record, and the stream remains open.
    Late,
}

/// Why no line has arrived.
struct Lost {
    error: Error,
    /// Duration of the request that failed; zero if an open stream was lost.
    took: Duration,
}

/// Why an open stream has ended.
struct Ended {
    error: Error,
    /// Whether its endpoint may have failed, so that others come first. A tenant at its quota is no fault of the endpoint.
    is_fault: bool,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Ended { is_fault: matches!(error, Error::Unavailable { .. }), error }
    }
}

impl Call {
    fn left_ms(&self) -> u32 {
        if self.deadline.is_none() {
            return self.wait_ms;
        }
        let waited = u32::try_from(self.begun.elapsed().as_millis()).unwrap_or(u32::MAX);
        self.wait_ms.saturating_sub(waited)
    }
}

impl LogReader {
    pub(crate) fn new(client: Client, store: &str, after: Lsn) -> Self {
        LogReader {
            client,
            store: store.to_owned(),
            limit: None,
            wait_ms: WAIT_MS,
            reconnect_ms: RECONNECT_MS,
            after,
            log: None,
            head: Lsn(0),
            epoch: Epoch(0),
            stream: None,
            opening: None,
            due: None,
            failed: 0,
            tried: Duration::ZERO,
            reached: false,
        }
    }

    /// Sets the log that the offset belongs to. If the service's log has been salvaged or replaced since, reads fail
    /// with the code `log_replaced`.
    #[must_use]
    pub fn of_log(mut self, log: LogId) -> Self {
        self.log = Some(log);
        self
    }

    /// Sets the maximum number of records in one response, at most 10,000; unlimited by default.
    #[must_use]
    pub fn page_records_max(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Sets how long [`LogReader::next`] waits for a record, in milliseconds; 10 s by default. While a stream is open
    /// that was opened with a longer wait, `next` only returns records that arrive within this time: 0 returns only
    /// those already there.
    #[must_use]
    pub fn wait_ms(mut self, wait_ms: u32) -> Self {
        self.wait_ms = wait_ms;
        self
    }

    /// Sets how long [`LogReader::follow`] tries to reach the service before it returns the last error, in
    /// milliseconds; 5 minutes by default. The first attempt has the client's `timeout` in any case; with 0, it is the
    /// only one.
    #[must_use]
    pub fn reconnect_ms(mut self, reconnect_ms: u32) -> Self {
        self.reconnect_ms = reconnect_ms;
        self
    }

    /// Returns the next record; `None` if none arrives in time. Retries while the service is unavailable, within the
    /// client's [`RetryPolicy`], for at most the wait and the client's `timeout`. Cancel safe: dropping the future
    /// loses no record and returns none twice.
    ///
    /// # Errors
    /// [`Error::ClientMistake`] with code `log_truncated` if the offset is too old at every endpoint that answers,
    /// `position_beyond_head` if the log does not reach it, or `log_replaced` if it belongs to another log: start again from
    /// [`Client::state`]. See [`Error`].
    pub async fn next(&mut self) -> Result<Option<LogRecord>, Error> {
        let begun = Instant::now();
        let deadline = Some(begun + Duration::from_millis(self.wait_ms.into()) + self.client.timeout());
        let mut call = Call { begun, wait_ms: self.wait_ms, deadline, opened: false, capped: false };
        let mut failed = 0;
        loop {
            match self.step(&mut call).await {
                Ok(Step::Record(record)) => return Ok(Some(record)),
                Ok(Step::Late) => return Ok(None),
                Ok(Step::Idle) if call.opened && !call.capped => return Ok(None),
                // The stream had ended before this call, or this call waits longer: records may have been added since.
                Ok(Step::Further | Step::Idle) => {}
                Err(Lost { error, .. }) => {
                    failed += 1;
                    let Error::Unavailable { retry_after, .. } = &error else { return Err(error) };
                    let wait = self.client.retry().wait(failed, *retry_after);
                    let due = wait.map(|wait| Instant::now() + wait);
                    let Some(due) = due.filter(|due| Some(*due) < call.deadline) else { return Err(error) };
                    self.due = Some(due);
                }
            }
        }
    }

    /// Returns the next record, however long that takes: a follower outlives restarts of the service. It reconnects,
    /// with waits of at most 2 s, until no endpoint could be reached for [`LogReader::reconnect_ms`], and then returns
    /// the last error; the next call tries for as long again. A reader that has never reached an endpoint ends after
    /// the attempts of the client's [`RetryPolicy`], because the address may be wrong; any response of the service
    /// counts as reached, even a 503. Other errors, such as refusals with status 401, 404 or 410, are returned at once.
    ///
    /// Cancel safe, also while it reconnects: dropping the future loses no record and returns none twice. To end a
    /// follower, drop the future, for example in `tokio::select!`, or the task.
    ///
    /// # Errors
    /// As for [`LogReader::next`].
    pub async fn follow(&mut self) -> Result<LogRecord, Error> {
        // A stream that does not wait would be requested all the time.
        let wait_ms = if self.wait_ms == 0 { WAIT_MS } else { self.wait_ms };
        let mut call = Call { begun: Instant::now(), wait_ms, deadline: None, opened: false, capped: false };
        loop {
            match self.step(&mut call).await {
                Ok(Step::Record(record)) => {
                    self.failed = 0;
                    return Ok(record);
                }
                Ok(Step::Further | Step::Idle | Step::Late) => {}
                Err(lost) => {
                    self.failed += 1;
                    self.tried += lost.took;
                    let Some(pause) = self.pause(&lost.error) else {
                        (self.failed, self.tried) = (0, Duration::ZERO);
                        return Err(lost.error);
                    };
                    self.tried += pause;
                    self.due = Some(Instant::now() + pause);
                }
            }
        }
    }

    /// Returns the next record up to position `lsn`, as [`LogReader::follow`] does; `None` once every record up to `lsn` was
    /// returned. Brings a copy of the rows to the snapshot of a transaction, with the position that
    /// [`Transaction::lsn`](crate::Transaction::lsn) returns.
    ///
    /// # Errors
    /// As for [`LogReader::next`].
    pub async fn follow_to(&mut self, lsn: Lsn) -> Result<Option<LogRecord>, Error> {
        if self.after < lsn { self.follow().await.map(Some) } else { Ok(None) }
    }

    /// Returns the wait before a follower's next attempt; `None` if the error is final or no time is left.
    fn pause(&self, error: &Error) -> Option<Duration> {
        let Error::Unavailable { retry_after, .. } = error else { return None };
        let policy = if self.reached { &RECONNECTING } else { self.client.retry() };
        let pause = policy.wait(self.failed, *retry_after)?.min(RECONNECTING.wait_max);
        (self.tried + pause < Duration::from_millis(self.reconnect_ms.into())).then_some(pause)
    }

    /// Ends the stream, if there is one. The next call opens another one, after the last record returned.
    pub fn close(&mut self) {
        (self.stream, self.opening, self.due) = (None, None, None);
    }

    /// Opens the stream, or takes its next line. After an error there is no stream. Cancel safe.
    async fn step(&mut self, call: &mut Call) -> Result<Step, Lost> {
        if let Some(stream) = &mut self.stream {
            let endpoint = stream.lines.endpoint();
            let step = match line(stream, call).await {
                Ok(Some(line)) => {
                    (self.tried, self.reached) = (Duration::ZERO, true);
                    self.take(line)
                }
                Ok(None) => return Ok(Step::Late),
                Err(error) => Err(error.into()),
            };
            return step.map_err(|Ended { error, is_fault }| {
                self.stream = None;
                // The next stream continues after the same record on another endpoint: all endpoints have the same log.
                if is_fault {
                    self.client.connection().failed(endpoint);
                }
                Lost { error, took: Duration::ZERO }
            });
        }
        if let Some(due) = self.due {
            tokio::time::sleep_until(call.deadline.map_or(due, |deadline| deadline.min(due)).into()).await;
            self.due = None;
        }
        if self.opening.is_none() {
            let left_ms = call.left_ms();
            (call.opened, call.capped) = (true, left_ms > STREAM_WAIT_MS_MAX);
            self.opening = Some(self.request(left_ms.min(STREAM_WAIT_MS_MAX), call.deadline));
        }
        let Some(opening) = &mut self.opening else { return Ok(Step::Further) };
        let wait_ms = opening.wait_ms;
        let done = opening.task.join_next().await;
        self.opening = None;
        let ended = || {
            let text = "the runtime that opened the stream has ended".to_owned();
            Lost { error: Error::Unavailable { text, retry_after: None }, took: Duration::ZERO }
        };
        match done.and_then(Result::ok).ok_or_else(ended)? {
            (Ok(lines), _) => {
                self.stream = Some(Stream { lines, wait_ms });
                Ok(Step::Further)
            }
            (Err(NotOpened { error, answered }), took) => {
                self.reached |= answered;
                Err(Lost { error, took })
            }
        }
    }

    /// Requests a stream. The request has the client's timeout, but not more than is left to the call.
    fn request(&self, wait_ms: u32, deadline: Option<Instant>) -> Opening {
        let mut query = format!("store={}&after={}", wire::percent_encoded(self.store.as_bytes()), self.after);
        if let Some(log) = self.log {
            query.push_str(&format!("&log={log}"));
        }
        if let Some(limit) = self.limit {
            query.push_str(&format!("&limit={limit}"));
        }
        let path = format!("/v1/log?{query}&wait_ms={wait_ms}&heartbeat_ms={}", HEARTBEAT.as_millis());
        let left = match deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            // The time to reconnect begins with the first failure.
            None if self.tried.is_zero() => Duration::MAX,
            None => Duration::from_millis(self.reconnect_ms.into()).saturating_sub(self.tried),
        };
        let timeout = self.client.timeout().min(left.max(POLL));
        let silence_max = (self.client.timeout() / self.endpoints()).min(HEARTBEAT * 3 / 2) + HEARTBEAT;
        let (client, mut task) = (self.client.clone(), JoinSet::new());
        task.spawn(async move {
            let begun = Instant::now();
            let opened = LineStream::open(&client, &path, timeout, silence_max).await;
            (opened, begun.elapsed())
        });
        Opening { task, wait_ms }
    }

    /// Returns the number of endpoints.
    fn endpoints(&self) -> u32 {
        u32::try_from(self.client.connection().endpoints().urls().len()).unwrap_or(u32::MAX)
    }

    fn take(&mut self, line: LogLine) -> Result<Step, Ended> {
        match line {
            LogLine::Record(record) => {
                let record = LogRecord::of(record)?;
                let due = self.after.next();
                if record.lsn != due {
                    let text = format!("log record {} where {due} was expected", record.lsn);
                    return Err(Error::misbehaved(text).into());
                }
                self.after = record.lsn;
                self.head = self.head.max(record.lsn);
                // Further records of its own epoch may follow.
                self.epoch = self.epoch.max(record.epoch.prev());
                Ok(Step::Record(record))
            }
            LogLine::Event(event) => self.take_event(event),
        }
    }

    fn take_event(&mut self, event: LogEvent) -> Result<Step, Ended> {
        if let Some(log) = &event.log {
            self.log = Some(wire::log_id(log)?);
        }
        if let Some(head) = &event.head_lsn {
            self.head = wire::lsn(head)?;
        }
        if let Some(epoch) = &event.epoch {
            self.epoch = self.epoch.max(wire::epoch(epoch)?);
        }
        if event.event != "end" {
            return Ok(Step::Further);
        }
        self.stream = None;
        match (event.problem, event.reason.as_deref()) {
            // Another endpoint may have the records, so the next stream is requested from all of them.
            (Some(problem), _) if problem.code == "log_truncated" && self.endpoints() > 1 => Ok(Step::Further),
            (Some(problem), _) => Err(Ended { is_fault: problem.status >= 500, error: Error::of_problem(problem) }),
            (None, Some("idle")) => Ok(Step::Idle),
            (None, Some("limit")) => Ok(Step::Further),
            (None, reason) => {
                let text = format!("the log stream has ended: {}", reason.unwrap_or("no reason"));
                Err(Error::Unavailable { text, retry_after: None }.into())
            }
        }
    }

    /// Returns the position of the last record returned.
    #[must_use]
    pub fn offset(&self) -> Lsn {
        self.after
    }

    /// Returns the log that the offset belongs to; `None` until the first response, unless it was set.
    #[must_use]
    pub fn log_id(&self) -> Option<LogId> {
        self.log
    }

    /// Returns an epoch up to which every commit was returned: a copy that has applied all records returned has everything
    /// that a snapshot of this epoch includes. Advances with records, and with heartbeats, which a call receives while it
    /// waits: every 5 s. 0 if nothing is known.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Returns whether every arrived record has been returned: a good moment to store the offset.
    #[must_use]
    pub fn is_page_over(&self) -> bool {
        let is_record = |line: &Result<LogLine, Error>| !matches!(line, Ok(LogLine::Event(_)));
        self.stream.as_ref().is_none_or(|stream| !stream.lines.arrived().any(is_record))
    }

    /// Returns the last position of the log as of the last response: at most a few seconds old while records arrive.
    #[must_use]
    pub fn head(&self) -> Lsn {
        self.head
    }
}

/// Returns the next line of a stream; `None` if it does not arrive during the wait of the call. The service enforces
/// the wait that a stream was opened with; a shorter one is enforced here.
async fn line(stream: &mut Stream, call: &Call) -> Result<Option<LogLine>, Error> {
    let Some(deadline) = call.deadline else { return stream.lines.line().await.map(Some) };
    if !call.opened && call.wait_ms < stream.wait_ms {
        let left = Duration::from_millis(call.left_ms().into()).max(POLL);
        return tokio::time::timeout(left, stream.lines.line()).await.ok().transpose();
    }
    match tokio::time::timeout_at(deadline.into(), stream.lines.line()).await {
        Ok(line) => line.map(Some),
        Err(_) => {
            let text = "the log stream did not end its wait in time".to_owned();
            Err(Error::Unavailable { text, retry_after: None })
        }
    }
}
