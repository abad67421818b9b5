//! Pushes one store's log to its storage until it is stopped: watermark, read, encode, send, classify, acknowledge.
//!
//! At most one batch of records is in memory, so a dead storage only causes lag. After any error, the push resumes at
//! the storage's own watermark; a request that was in flight is never assumed to have failed or succeeded. A record
//! that the storage can never accept stops the push and is named in the status. Only an operator can skip it
//! ([`PushHandle::skip`]): the storage then gets the record without its rows, so that its watermark moves as usual.

use std::collections::BTreeSet;
use std::future::Future;
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;
use tribunal_types::{Ack, Command, Lsn, PushRequest, RecordBatch, StorageReply, StoreId};

use crate::adaptor::off_thread;
use crate::history::{Incomparable, is_common};
use crate::status::{Progress, PushActivity, PushHandle};
use crate::{
    AckSink, Adaptor, AdaptorFault, LogSource, PushWatch, ReadLimit, SourceError, StorageDurability, Transport,
    TransportError,
};

/// Limits and intervals of a push.
#[derive(Clone, Copy, Debug)]
pub struct PushOptions {
    /// Maximum size of a batch. A storage applies a batch as a whole.
    pub limit: ReadLimit,
    /// First delay after an error.
    pub backoff_min: Duration,
    /// Maximum delay after errors.
    pub backoff_max: Duration,
    /// Minimum interval between the starts of two batches of a busy push. Every batch needs an instance of the adaptor and
    /// several thread switches, however small it is.
    pub pace: Duration,
    /// Interval at which an idle push reads the watermark, to notice a storage that has lost records in a restart.
    pub heartbeat: Duration,
}

impl Default for PushOptions {
    fn default() -> Self {
        PushOptions {
            limit: ReadLimit { records_max: 8192, bytes_max: 8 * 1024 * 1024 },
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            pace: Duration::from_millis(5),
            heartbeat: Duration::from_secs(1),
        }
    }
}

/// Header with the trace context of a request.
pub(crate) const TRACE_HEADER: &str = "traceparent";
/// Maximum delay that a storage can request: a mistaken value must not stop its push unnoticed.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(600);
/// A push is busy if its batches have at least this many records.
const BUSY_RECORDS: usize = 32;
/// Number of times in a row that a storage may lose acknowledged records before its push is shown as failing: one that is
/// restarted without what it held loses them once.
const LOSSES_MAX: u32 = 2;
/// Number of reasons of one interruption that are reported at once, and the interval between further ones.
const REASONS_MAX: u32 = 4;
const REASONS_INTERVAL: Duration = Duration::from_secs(60);

/// The parts of a push.
pub struct PushParts {
    /// The store.
    pub store: StoreId,
    /// Its LogAdaptor.
    pub adaptor: Arc<dyn Adaptor>,
    /// Source of the records.
    pub source: Arc<dyn LogSource>,
    /// Connection to the storage.
    pub transport: Arc<dyn Transport>,
    /// Last record that the storage can have in common with the log, if it was found to have others: the end of the log at
    /// that time, or the position before the record that is another one. Until the storage is back at this position, its
    /// rows belong to another history, even if the log has grown past it.
    pub fork: Option<Lsn>,
    /// Receives acknowledgements.
    pub sink: Arc<dyn AckSink>,
    /// Limits and intervals.
    pub options: PushOptions,
}

/// The push of one store; [`Pusher::run`] is its task.
pub struct Pusher {
    parts: PushParts,
    progress: Arc<Mutex<Progress>>,
    resume: Arc<Notify>,
    skips: Arc<Mutex<BTreeSet<Lsn>>>,
    /// Records up to here are pushed one by one, to find the failing record.
    single_until: Lsn,
    /// Maximum number of records of the next batch: below the configured limit while the storage makes no progress with
    /// more.
    records_max: usize,
    /// The interruption that was reported to the sink; `None` while the storage works.
    interrupted: Option<Interruption>,
    /// Number of times that the storage has lost acknowledged records since it last had what it had acknowledged.
    losses: u32,
}

/// An interruption, as last reported.
struct Interruption {
    text: String,
    /// Reports since the storage last worked.
    reports: u32,
    at: Instant,
}

impl Interruption {
    /// Returns whether another reason is reported as well: "connection closed" may come first, and "password authentication
    /// failed" with the next attempt. A receiver may give a new reason each time, so most of those are not.
    fn must_report(&self, text: &str) -> bool {
        self.text != text && (self.reports < REASONS_MAX || self.at.elapsed() >= REASONS_INTERVAL)
    }
}

/// Why pushing was interrupted.
enum Trouble {
    /// Temporary: back off, then reconnect.
    Passing(String),
    /// The storage did not apply these records, perhaps because there are too many at once.
    Unapplied { first: Lsn, last: Lsn, text: String, timed_out: bool },
    /// The storage's watermark is not at the expected position: read it again.
    Moved(String),
    /// These records cannot be pushed.
    Poison { first: Lsn, last: Lsn, text: String },
    /// Requires an operator.
    Stuck(String),
}

impl Trouble {
    fn text(&self) -> &str {
        match self {
            Trouble::Passing(text) | Trouble::Moved(text) | Trouble::Stuck(text) => text,
            Trouble::Unapplied { text, .. } | Trouble::Poison { text, .. } => text,
        }
    }
}

type Pushed<T> = Result<T, Trouble>;

impl Pusher {
    /// Creates the push of a store, and a handle to it.
    #[must_use]
    pub fn new(parts: PushParts) -> (Pusher, PushHandle) {
        let progress = Arc::new(Mutex::new(Progress {
            activity: PushActivity::Connecting,
            acked: None,
            last_error: None,
            poison: None,
            attempts: 0,
            rewinds: 0,
            durable: StorageDurability::Unknown,
            caught_up: Instant::now(),
            fork: parts.fork,
        }));
        let resume = Arc::new(Notify::new());
        let skips = Arc::new(Mutex::default());
        let handle = PushHandle {
            store: parts.store,
            source: Arc::clone(&parts.source),
            progress: Arc::clone(&progress),
            resume: Arc::clone(&resume),
            skips: Arc::clone(&skips),
        };
        let records_max = parts.options.limit.records_max;
        (
            Pusher { parts, progress, resume, skips, single_until: Lsn(0), records_max, interrupted: None, losses: 0 },
            handle,
        )
    }

    /// Pushes until `shutdown` completes. The next start determines from the watermark whether the request in flight
    /// succeeded.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) {
        tokio::select! {
            () = shutdown => {}
            () = self.push_until_dropped() => {}
        }
        self.progress.lock().activity = PushActivity::Ended;
    }

    async fn push_until_dropped(&mut self) {
        loop {
            let Err(trouble) = self.session().await;
            let attempts = {
                let mut progress = self.progress.lock();
                progress.attempts = progress.attempts.saturating_add(1);
                progress.attempts
            };
            let waited = match trouble {
                Trouble::Passing(text) => self.back_off(attempts, text),
                Trouble::Unapplied { first, last, text, timed_out } => {
                    // The same records would fail again if the storage needs more time for them than the timeout.
                    if timed_out || attempts > 1 {
                        self.records_max = usize::try_from((last.0 - first.0).div_ceil(2)).unwrap_or(usize::MAX).max(1);
                    }
                    self.back_off(attempts, text)
                }
                // Resume immediately after the first move. Repeated moves without progress are handled like errors.
                Trouble::Moved(_) if attempts == 1 => continue,
                Trouble::Moved(text) => self.back_off(attempts, text),
                Trouble::Poison { first, last, .. } if first < last => {
                    self.single_until = last;
                    continue;
                }
                Trouble::Poison { first, text, .. } => {
                    self.stop(format!("LSN {first} cannot be pushed: {text}"), Some(first))
                }
                Trouble::Stuck(text) => self.stop(text, None),
            };
            let resumed = self.resume.notified();
            match waited {
                Some(wait) => {
                    let _ = timeout(wait, resumed).await;
                }
                None => resumed.await,
            }
        }
    }

    /// Reports a temporary error. Returns the delay: exponential, half of it random, and at least as long as the
    /// storage has requested.
    fn back_off(&mut self, attempts: u32, text: String) -> Option<Duration> {
        let asked = self.parts.transport.retry_after().unwrap_or_default().min(RETRY_AFTER_MAX);
        let before = self.interrupted.take();
        self.interrupted = Some(match before {
            Some(before) if !before.must_report(&text) => before,
            before => {
                self.parts.sink.interrupted(self.parts.store, &text);
                Interruption {
                    text: text.clone(),
                    reports: before.map_or(0, |before| before.reports) + 1,
                    at: Instant::now(),
                }
            }
        });
        let options = &self.parts.options;
        let step = options.backoff_min.saturating_mul(1 << attempts.saturating_sub(1).min(16));
        let step = step.clamp(Duration::from_millis(1), options.backoff_max.max(Duration::from_millis(1)));
        let half = step / 2;
        let random = RandomState::new().hash_one(attempts);
        tracing::debug!(store = %self.parts.store, attempts, error = %text, "push backs off");
        let mut progress = self.progress.lock();
        progress.activity = PushActivity::BackingOff;
        progress.last_error = Some(text);
        Some((half + half.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64)).max(asked))
    }

    fn stop(&self, text: String, poison: Option<Lsn>) -> Option<Duration> {
        {
            let mut progress = self.progress.lock();
            progress.activity = PushActivity::Stopped;
            progress.last_error = Some(text.clone());
            progress.poison = poison;
        }
        self.parts.sink.failed(self.parts.store, &text);
        None
    }

    /// Pushes over one connection. Only returns with an error.
    async fn session(&mut self) -> Pushed<std::convert::Infallible> {
        {
            let mut progress = self.progress.lock();
            progress.activity = PushActivity::Connecting;
            progress.poison = None;
        }
        let question = self.adapt(|adaptor| adaptor.watermark()).await?.map_err(stuck)?;
        let durable = self.parts.transport.connect().await.map_err(passing)?;
        self.progress.lock().durable = durable;
        let mut at = self.ask_watermark(&question).await?;
        let mut asked = Instant::now();
        loop {
            if self.parts.transport.is_worn() {
                self.parts.transport.connect().await.map_err(passing)?;
                at = self.ask_watermark(&question).await?;
            }
            // Whether the storage keeps what it acknowledges again must show, even if there is always more to push.
            if self.losses > 0 && asked.elapsed() >= self.parts.options.heartbeat {
                self.must_be_at(at, &question).await?;
                asked = Instant::now();
            }
            let records_max = if at < self.single_until { 1 } else { self.records_max };
            let limit = ReadLimit { records_max, ..self.parts.options.limit };
            let idle = self.parts.source.head(self.parts.store) <= at;
            self.reading(idle);
            let read = self.parts.source.read(self.parts.store, at, limit);
            match timeout(self.parts.options.heartbeat, read).await {
                Err(_) => {
                    self.must_be_at(at, &question).await?;
                    self.reading(idle);
                }
                Ok(read) => {
                    let batch = read.map_err(|error| self.unreadable(&error))?;
                    let (began, records) = (Instant::now(), batch.records.len());
                    at = self.push(at, batch, idle).await?;
                    if (BUSY_RECORDS..limit.records_max).contains(&records) {
                        tokio::time::sleep(self.parts.options.pace.saturating_sub(began.elapsed())).await;
                    }
                }
            }
        }
    }

    /// Asks whether the storage has kept what it acknowledged: its watermark is still `at`.
    async fn must_be_at(&mut self, at: Lsn, question: &PushRequest) -> Pushed<()> {
        let now = self.ask_watermark(question).await?;
        if now != at {
            return Err(self.moved(at, now));
        }
        self.losses = 0;
        Ok(())
    }

    /// Returns why the push starts over: the storage was at LSN `at`, and now it is at `now`.
    fn moved(&mut self, at: Lsn, now: Lsn) -> Trouble {
        if now < at {
            self.losses = self.losses.saturating_add(1);
        }
        if self.losses < LOSSES_MAX || now > at {
            return Trouble::Moved(format!("the storage went from LSN {at} to {now}"));
        }
        let losses = self.losses;
        Trouble::Passing(format!(
            "the storage does not keep what it acknowledges: {losses} times in a row, its watermark has fallen back, now from LSN \
             {at} to {now}. The records in between are pushed again each time. Either the storage loses its data, or the adaptor \
             does not write the watermark that it reads"
        ))
    }

    fn reading(&mut self, idle: bool) {
        // Until the storage is known to have kept the records, it has only acknowledged them.
        let idle = idle && self.losses < LOSSES_MAX;
        {
            let mut progress = self.progress.lock();
            progress.activity = if idle { PushActivity::Idle } else { PushActivity::Pushing };
            if idle {
                progress.caught_up = Instant::now();
                progress.attempts = 0;
                progress.last_error = None;
            }
        }
        if idle {
            self.works();
        }
    }

    /// Notifies the sink that the storage works again, if an interruption was reported.
    fn works(&mut self) {
        if self.losses >= LOSSES_MAX {
            return;
        }
        if self.interrupted.take().is_some() {
            self.parts.sink.restored(self.parts.store);
        }
    }

    async fn ask_watermark(&self, question: &PushRequest) -> Pushed<Lsn> {
        let reply = self.parts.transport.send(question.command.clone()).await.map_err(|error| match error {
            TransportError::WrongCommand(text) => Trouble::Stuck(text.to_owned()),
            error => passing(error),
        })?;
        let reply = Arc::new(reply);
        let told = Arc::clone(&reply);
        let read = move |adaptor: &dyn Adaptor| {
            adaptor.read_watermark(&told).map_err(|fault| match adaptor.classify(&told) {
                // A storage that is starting up or overloaded also replies with an error.
                Ack::Retry(text) => Trouble::Passing(text),
                _ => stuck(fault),
            })
        };
        let at = self.adapt(read).await??;
        let (source, store) = (&self.parts.source, self.parts.store);
        if at > source.head(store) {
            // Another node has pushed to it, and this one may lag.
            source.catch_up().await.map_err(|error| self.unreadable(&error))?;
        }
        let common = self.last_common(at, reply).await?;
        self.check_fork(at, common)?;
        let before = {
            let mut progress = self.progress.lock();
            let before = progress.acked.replace(at);
            progress.rewinds += u64::from(before.is_some_and(|before| at < before));
            before
        };
        match before {
            Some(before) if at < before => {
                self.parts.sink.rewound(self.parts.store, at);
            }
            Some(before) if at == before => {}
            Some(_) => self.parts.sink.acked(self.parts.store, at),
            // The first watermark of this storage replaces the known one: acknowledgements of another storage, from
            // before the store was redeclared, do not count.
            None => self.parts.sink.rewound(self.parts.store, at),
        }
        Ok(at)
    }

    /// Returns the last record that a storage at `at` can have in common with the log. Reads the log only if the storage
    /// is at a position to which this push has not moved it.
    async fn last_common(&self, at: Lsn, reply: Arc<StorageReply>) -> Pushed<Lsn> {
        let (source, store) = (&*self.parts.source, self.parts.store);
        let head = source.head(store);
        if at > head || self.progress.lock().acked == Some(at) {
            return Ok(head);
        }
        match is_common(&self.parts.adaptor, source, (store, at), reply).await {
            Ok(true) => Ok(head),
            Ok(false) => Ok(Lsn(at.0.saturating_sub(1))),
            Err(Incomparable::Adaptor(fault)) => Err(stuck(fault)),
            Err(Incomparable::Log(error)) => Err(self.unreadable(&error)),
        }
    }

    /// Rejects a storage that is past the last record that it can have in common with the log, or was past it when its
    /// watermark was last read.
    fn check_fork(&self, at: Lsn, common: Lsn) -> Pushed<()> {
        let before = self.progress.lock().fork;
        let fork = before.unwrap_or(common).min(common);
        let fork = (at > fork).then_some(fork);
        if before != fork {
            self.progress.lock().fork = fork;
            self.parts.sink.forked(self.parts.store, fork);
        }
        fork.map_or(Ok(()), |fork| {
            Err(Trouble::Stuck(format!(
                "the storage has applied LSN {at}, and can have at most the records up to LSN {fork} in common with this log: \
                 the storage followed another log, or a part of this one that is lost. {}",
                self.parts.adaptor.if_ahead()
            )))
        })
    }

    /// Pushes one batch; returns the last acknowledged record.
    async fn push(&mut self, after: Lsn, mut batch: RecordBatch, was_idle: bool) -> Pushed<Lsn> {
        let Some((first, last)) = batch.bounds() else {
            tokio::task::yield_now().await;
            return Ok(after);
        };
        if first != after.next() {
            return Err(Trouble::Stuck(format!("the log returned LSN {first} where {} was expected", after.next())));
        }
        if was_idle {
            self.reading(false);
            self.progress.lock().caught_up = Instant::now();
        }
        let skipped: Vec<Lsn> = self.skips.lock().range(first..=last).copied().collect();
        if !skipped.is_empty() {
            batch.empty(|lsn| skipped.binary_search(&lsn).is_ok());
        }
        let mut watch = self.parts.sink.watch(&batch);
        let pushed = self.transfer(batch, (first, last), &mut watch).await;
        if let Some(watch) = watch {
            watch.ended(pushed.as_ref().err().map(Trouble::text));
        }
        pushed?;
        let most = self.parts.options.limit.records_max;
        self.records_max = (self.records_max + self.records_max / 8 + 1).min(most);
        self.works();
        Ok(last)
    }

    /// Encodes a batch and sends it, command by command.
    async fn transfer(
        &self,
        batch: RecordBatch,
        (first, last): (Lsn, Lsn),
        watch: &mut Option<Box<dyn PushWatch>>,
    ) -> Pushed<()> {
        let mut requests = self.encode(batch, first, last).await?;
        if let Some(watch) = watch {
            watch.encoded();
            watch.traceparent().into_iter().for_each(|own| hand_on(&mut requests, &own));
        }
        for request in requests {
            let (first, last) = (request.first, request.last);
            let reply = self.parts.transport.send(request.command).await.map_err(|error| {
                if let TransportError::WrongCommand(text) = error {
                    // It was not sent, and would not be in any attempt.
                    return Trouble::Poison { first, last, text: text.to_owned() };
                }
                let timed_out = matches!(error, TransportError::Timeout { .. });
                Trouble::Unapplied { first, last, text: error.to_string(), timed_out }
            })?;
            match self.adapt(move |adaptor| adaptor.classify(&reply)).await? {
                Ack::Ok => self.acked(last),
                Ack::Retry(text) => return Err(Trouble::Unapplied { first, last, text, timed_out: false }),
                Ack::Moved(text) => return Err(Trouble::Moved(text)),
                Ack::Fatal(text) => return Err(Trouble::Poison { first, last, text }),
            }
        }
        Ok(())
    }

    /// Calls the adaptor on a blocking thread.
    async fn adapt<T: Send + 'static>(&self, call: impl FnOnce(&dyn Adaptor) -> T + Send + 'static) -> Pushed<T> {
        off_thread(&self.parts.adaptor, call).await.map_err(stuck)
    }

    async fn encode(&self, batch: RecordBatch, first: Lsn, last: Lsn) -> Pushed<Vec<PushRequest>> {
        match encode(&self.parts.adaptor, batch).await {
            Ok(requests) => Ok(requests),
            Err(EncodeFault::Panicked(text)) => Err(Trouble::Stuck(text)),
            Err(EncodeFault::Refused(text)) => Err(Trouble::Poison { first, last, text }),
        }
    }

    fn unreadable(&self, error: &SourceError) -> Trouble {
        match error {
            SourceError::Truncated { oldest } => {
                Trouble::Stuck(format!("{error}. {}", self.parts.adaptor.if_truncated(*oldest)))
            }
            SourceError::Unavailable(_) => Trouble::Passing(error.to_string()),
        }
    }

    fn acked(&self, lsn: Lsn) {
        {
            let mut progress = self.progress.lock();
            progress.acked = Some(lsn);
            if self.losses < LOSSES_MAX {
                progress.attempts = 0;
            }
        }
        self.parts.sink.acked(self.parts.store, lsn);
    }
}

/// Why records could not be turned into requests.
pub(crate) enum EncodeFault {
    /// The adaptor's call panicked or was cancelled.
    Panicked(String),
    /// The adaptor cannot express them.
    Refused(String),
}

/// Builds the requests for a batch with an adaptor, and checks that they cover it.
pub(crate) async fn encode(adaptor: &Arc<dyn Adaptor>, batch: RecordBatch) -> Result<Vec<PushRequest>, EncodeFault> {
    let Some((first, last)) = batch.bounds() else { return Ok(Vec::new()) };
    let adaptor = Arc::clone(adaptor);
    let encoded = tokio::task::spawn_blocking(move || adaptor.encode(&batch)).await;
    let requests = encoded
        .map_err(|e| EncodeFault::Panicked(format!("the adaptor's call failed: {e}")))?
        .map_err(|fault| EncodeFault::Refused(fault.to_string()))?;
    let covered = requests.iter().try_fold(first, |due, request| {
        if request.first == due && request.last >= due {
            ControlFlow::Continue(request.last.next())
        } else {
            ControlFlow::Break(())
        }
    });
    if covered == ControlFlow::Continue(last.next()) {
        Ok(requests)
    } else {
        let text = format!("the adaptor's requests do not cover LSN {first} to {last} without gaps");
        Err(EncodeFault::Refused(text))
    }
}

/// Makes HTTP requests children of the push's span, replacing the adaptor's `traceparent`.
fn hand_on(requests: &mut [PushRequest], traceparent: &str) {
    for request in requests {
        if let Command::Http(call) = &mut request.command {
            call.headers.retain(|(name, _)| !name.eq_ignore_ascii_case(TRACE_HEADER));
            call.headers.push((TRACE_HEADER.to_owned(), traceparent.to_owned()));
        }
    }
}

fn passing(error: impl ToString) -> Trouble {
    Trouble::Passing(error.to_string())
}

fn stuck(fault: AdaptorFault) -> Trouble {
    Trouble::Stuck(fault.to_string())
}
