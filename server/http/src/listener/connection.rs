//! The activity of one connection, by which a silent or slow client is distinguished from a working one.
//!
//! hyper's own header timer also runs while a kept-alive connection is idle, and costs an allocation per request. This
//! module keeps the two cases apart: a head must be complete within `header_timeout` of its first byte (of the start of
//! the connection for the first head), and an idle connection may stay open for `idle_timeout`. Neither applies while a
//! request is being processed.
//!
//! A client may end its sending side after its request and still wait for the response. That looks the same as a
//! disconnect, and hyper would drop the request immediately. So the end is withheld from hyper until the response has
//! been written, but for `header_timeout` at most. A long poll is answered right away with the available records: a
//! disconnected client does not keep its permit, and any other client gets a response.
//!
//! A response that did not wait for the whole body of its request (a wrong key, a body that is too large) ends an
//! HTTP/1 connection. Its client may write the whole body before it reads, and closing a socket over unread bytes
//! resets the connection: the response would be lost. So such a response has `connection: close`, the sending side is
//! shut down after it, and bytes that still arrive are read and dropped, within bounds. For HTTP/2 see
//! [`crate::listener::upload`].

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use axum::http::request::Parts;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::Sleep;
use tribunal_types::limits::{LINGER_BYTES_MAX, LINGER_MS, LINGER_STOPPING_MS};

use super::connection_tenant::ConnectionTenant;
use super::flushes::Flushes;
use super::head_guard::HeadGuard;
use super::http1_head::BadHead;

/// Bytes to read from a socket at once if hyper's buffer is smaller; hyper detects the version in a buffer of 24 bytes.
const READ_BYTES_MIN: usize = 4096;
/// Bytes to read and drop at once.
const DROPPED_BYTES: usize = 16 * 1024;

/// Between requests.
const IDLE: u8 = 0;
/// A head has begun and is incomplete.
const HEAD: u8 = 1;

/// The activity of a connection. Shared by its socket, its requests and its watchdog, which run in the same task or in
/// few; relaxed ordering suffices, since the watchdog checks repeatedly.
#[derive(Debug)]
pub struct Activity {
    base: Instant,
    in_flight: AtomicU32,
    /// Responses that are written while the bodies of their requests are read.
    duplex: AtomicU32,
    phase: AtomicU8,
    since_ms: AtomicU64,
    multiplexed: AtomicBool,
    /// When the client ended its sending side while a request was in flight; 0 if it did not.
    half_closed_ms: AtomicU64,
    /// Notifies waiters of this.
    half_closing: Notify,
    /// Number of requests so far.
    requests: AtomicU64,
    /// The number of the request, from 1, whose body is incomplete; 0 if there is none.
    open_body: AtomicU64,
    /// The fault that ended the connection, and the index of the request that stands in for it.
    bad: OnceLock<(u64, BadHead)>,
    /// The tenant whose caller uses this connection.
    tenant: ConnectionTenant,
    /// Responses that have not been taken.
    responding: AtomicU32,
    evicted: Notify,
    is_evicted: AtomicBool,
    /// Whether the server is stopping.
    stopping: AtomicBool,
    /// Bytes that its responses have handed out, in HTTP/1.
    flushes: Arc<Flushes>,
}

impl Activity {
    /// Starts in the state of waiting for a head.
    #[must_use]
    pub fn new() -> Self {
        Activity {
            base: Instant::now(),
            in_flight: AtomicU32::new(0),
            duplex: AtomicU32::new(0),
            phase: AtomicU8::new(HEAD),
            since_ms: AtomicU64::new(0),
            multiplexed: AtomicBool::new(false),
            half_closed_ms: AtomicU64::new(0),
            half_closing: Notify::new(),
            requests: AtomicU64::new(0),
            open_body: AtomicU64::new(0),
            bad: OnceLock::new(),
            tenant: ConnectionTenant::default(),
            responding: AtomicU32::new(0),
            evicted: Notify::new(),
            is_evicted: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            flushes: Arc::default(),
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.base.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn mark(&self) {
        self.since_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// Records that the client has ended its sending side, but may wait for a response.
    fn half_closed(&self) {
        let now = self.now_ms().max(1);
        if self.half_closed_ms.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.half_closing.notify_waiters();
        }
    }

    /// Completes when the client has ended its sending side while a request is in flight.
    async fn until_half_closed(&self) {
        // Register before the check, so that no notification is missed.
        let closing = self.half_closing.notified();
        if self.half_closed_ms.load(Ordering::Relaxed) == 0 {
            closing.await;
        }
    }

    /// Records a complete head. `multiplexed` connections carry frames between requests, which are not heads.
    pub fn request_began(self: &Arc<Self>, multiplexed: bool) -> Working {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        if multiplexed {
            self.multiplexed.store(true, Ordering::Relaxed);
        }
        Working(Arc::clone(self))
    }

    /// Records a response that is written while the body of its request is read: arriving bytes are not a head, and the
    /// client may end its sending side. The connection counts as idle while no part of the response is written.
    pub fn duplex_began(self: &Arc<Self>) -> DuplexGuard {
        self.duplex.fetch_add(1, Ordering::Relaxed);
        DuplexGuard(Arc::clone(self))
    }

    /// Counts a request. Returns its number, from 1, and the fault, if it stands in for a bad request.
    #[must_use]
    pub fn next_request(&self) -> (u64, Option<BadHead>) {
        let index = self.requests.fetch_add(1, Ordering::Relaxed);
        (index + 1, self.bad.get().filter(|(at, _)| *at == index).map(|(_, bad)| *bad))
    }

    /// Returns whether the connection ends with the response to this request, because the rest of its body has not
    /// arrived.
    #[must_use]
    pub fn ends_with(&self, request: u64) -> bool {
        self.open_body.load(Ordering::Relaxed) == request
    }

    /// Records a response whose body the connection has yet to take.
    pub fn response_began(self: &Arc<Self>) -> Responding {
        self.responding.fetch_add(1, Ordering::Relaxed);
        Responding(Arc::clone(self))
    }

    /// Returns the tenant whose caller uses this connection.
    #[must_use]
    pub fn tenant(&self) -> &ConnectionTenant {
        &self.tenant
    }

    /// Returns how quiet the connection is; `None` if it may not be closed to make room: a request is in flight, or it is
    /// being closed.
    #[must_use]
    pub fn quiet(&self) -> Option<Quiet> {
        let has = |count: &AtomicU32| count.load(Ordering::Relaxed) > 0;
        if has(&self.in_flight) || self.is_evicted.load(Ordering::Relaxed) {
            return None;
        }
        let is_idle = !has(&self.responding) && !has(&self.duplex);
        let since = Duration::from_millis(self.since_ms.load(Ordering::Relaxed));
        Some(Quiet { is_idle, lasts: self.base.elapsed().saturating_sub(since) })
    }

    /// Returns the bytes that its responses have handed out, in HTTP/1.
    pub(crate) fn flushes(&self) -> &Arc<Flushes> {
        &self.flushes
    }

    /// Requests that the connection be closed.
    pub fn evict(&self) {
        self.is_evicted.store(true, Ordering::Relaxed);
        self.evicted.notify_one();
    }

    /// Returns whether an eviction is void, because a request has begun since the connection was chosen. Another one is
    /// chosen then.
    pub fn stays(&self) -> bool {
        let works = self.in_flight.load(Ordering::Relaxed) > 0;
        if works {
            self.is_evicted.store(false, Ordering::Relaxed);
        }
        works
    }

    /// Completes when the connection has to close.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Records that the server is stopping.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
    }

    /// Returns how long to keep reading after the last response from a client that may still be sending.
    fn linger(&self) -> Duration {
        let is_stopping = self.stopping.load(Ordering::Relaxed);
        Duration::from_millis(if is_stopping { LINGER_STOPPING_MS } else { LINGER_MS })
    }

    fn bytes_came(&self) {
        let awaited = self.phase.load(Ordering::Relaxed) == IDLE
            && self.in_flight.load(Ordering::Relaxed) == 0
            && self.duplex.load(Ordering::Relaxed) == 0
            && !self.multiplexed.load(Ordering::Relaxed);
        if awaited {
            self.phase.store(HEAD, Ordering::Relaxed);
            self.mark();
        }
    }

    /// Returns the time left until the connection is cut; `None` while a request is processed. A stranger may idle only
    /// for the time of a head.
    #[must_use]
    pub fn time_left(&self, header_timeout: Duration, idle_timeout: Duration) -> Option<Duration> {
        let half_closed_ms = self.half_closed_ms.load(Ordering::Relaxed);
        if half_closed_ms != 0 {
            let until = Duration::from_millis(half_closed_ms) + header_timeout;
            return Some(until.saturating_sub(self.base.elapsed()));
        }
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let is_short = self.phase.load(Ordering::Relaxed) == HEAD || self.tenant.get().is_none();
        let limit = if is_short { header_timeout.min(idle_timeout) } else { idle_timeout };
        let since = Duration::from_millis(self.since_ms.load(Ordering::Relaxed));
        Some((since + limit).saturating_sub(self.base.elapsed()))
    }
}

impl Default for Activity {
    fn default() -> Self {
        Self::new()
    }
}

/// How quiet a connection is, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Quiet {
    /// Whether it has no response that its client has yet to take.
    pub is_idle: bool,
    /// Time since the last bytes.
    pub lasts: Duration,
}

/// The connection's activity as a long poll needs it, in the extensions of its request.
#[derive(Clone, Debug)]
pub(crate) struct LongPoll(pub Arc<Activity>);

impl LongPoll {
    /// Waits for a result while the client may be connected; `None` if it ends its sending side first.
    pub async fn answer<T>(request: &Parts, answer: impl Future<Output = T>) -> Option<T> {
        let Some(LongPoll(activity)) = request.extensions.get() else { return Some(answer.await) };
        tokio::select! {
            biased;
            answer = answer => Some(answer),
            () = activity.until_half_closed() => None,
        }
    }
}

/// A request in progress, until this is dropped.
#[derive(Debug)]
pub struct Working(Arc<Activity>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.phase.store(IDLE, Ordering::Relaxed);
        self.0.mark();
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response whose body the connection has yet to take, until this is dropped.
#[derive(Debug)]
pub struct Responding(Arc<Activity>);

impl Drop for Responding {
    fn drop(&mut self) {
        self.0.responding.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A response that is written while the body of its request is read, until this is dropped.
#[derive(Debug)]
pub struct DuplexGuard(Arc<Activity>);

impl Drop for DuplexGuard {
    fn drop(&mut self) {
        self.0.mark();
        self.0.duplex.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A socket that reports traffic to its [`Activity`], and passes on only the bytes that its [`HeadGuard`] lets through.
#[derive(Debug)]
pub struct WatchedIo<T> {
    inner: T,
    activity: Arc<Activity>,
    guard: HeadGuard,
    /// Checked bytes that did not fit into hyper's buffer; `later_read` counts those handed over.
    later: Vec<u8>,
    later_read: usize,
    /// Whether bytes of a response may be unsent.
    unflushed: bool,
    /// Set while a refused client may still be sending.
    lingering: Option<Lingering>,
}

/// The end of a connection whose client may still be sending bytes that are not processed.
#[derive(Debug)]
struct Lingering {
    until: Pin<Box<Sleep>>,
    bytes_left: usize,
}

impl<T> WatchedIo<T> {
    /// Wraps a socket.
    pub fn new(inner: T, activity: Arc<Activity>) -> Self {
        let guard = HeadGuard::default();
        WatchedIo { inner, activity, guard, later: Vec::new(), later_read: 0, unflushed: false, lingering: None }
    }

    /// Processes the bytes that were read; returns how many of them may remain in the buffer.
    fn arrived(&mut self, fresh: &[u8]) -> usize {
        self.activity.bytes_came();
        let pass = self.guard.take(fresh, &mut self.later);
        if let Some(bad) = self.guard.bad() {
            let _ = self.activity.bad.set(bad);
        }
        self.activity.open_body.store(self.guard.open_body(), Ordering::Relaxed);
        pass
    }

    /// Returns hyper's view of the end of the client's bytes: pending until the response has been written.
    fn end_of_input(&self) -> Poll<io::Result<()>> {
        let answering = self.unflushed
            || self.activity.in_flight.load(Ordering::Relaxed) > 0
            || self.activity.duplex.load(Ordering::Relaxed) > 0
            || self.activity.flushes.withhold();
        if answering && self.guard.is_between_requests() {
            self.activity.half_closed();
            return Poll::Pending;
        }
        Poll::Ready(Ok(()))
    }

    /// Hands over pending bytes; returns whether there were any.
    fn hand_over(&mut self, buffer: &mut ReadBuf<'_>) -> bool {
        let waiting = &self.later[self.later_read..];
        if waiting.is_empty() {
            return false;
        }
        let part = waiting.len().min(buffer.remaining());
        buffer.put_slice(&waiting[..part]);
        self.later_read += part;
        if self.later_read == self.later.len() {
            self.later = Vec::new();
            self.later_read = 0;
        }
        true
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WatchedIo<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if this.hand_over(buffer) {
                return Poll::Ready(Ok(()));
            }
            if this.guard.is_over() {
                // A refused connection ends with its response; one with malformed chunks ends here.
                return if this.guard.bad().is_some() { Poll::Pending } else { Poll::Ready(Ok(())) };
            }
            if buffer.remaining() < READ_BYTES_MIN {
                let mut bytes = [0; READ_BYTES_MIN];
                let mut read = ReadBuf::new(&mut bytes);
                ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read))?;
                if read.filled().is_empty() {
                    return this.end_of_input();
                }
                let pass = this.arrived(read.filled());
                // Insert before pending bytes, which exist only if nothing passes.
                this.later.splice(0..0, read.filled()[..pass].iter().copied());
                continue;
            }
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
            if buffer.filled().len() == before {
                return this.end_of_input();
            }
            let pass = this.arrived(&buffer.filled()[before..]);
            buffer.set_filled(before + pass);
            if pass > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for WatchedIo<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.unflushed = true;
        let polled = Pin::new(&mut this.inner).poll_write(cx, bytes);
        if polled.is_ready() {
            this.activity.mark();
        }
        polled
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.unflushed = true;
        let polled = Pin::new(&mut this.inner).poll_write_vectored(cx, pieces);
        if polled.is_ready() {
            this.activity.mark();
        }
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.inner).poll_flush(cx);
        this.unflushed &= polled.is_pending();
        if polled.is_ready() {
            this.activity.flushes.flushed();
        }
        polled
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.lingering.is_none() {
            ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
            if !this.guard.is_cut_short() {
                return Poll::Ready(Ok(()));
            }
        }
        let lingering = this.lingering.get_or_insert_with(|| Lingering {
            until: Box::pin(tokio::time::sleep(this.activity.linger())),
            bytes_left: LINGER_BYTES_MAX,
        });
        let mut bytes = [MaybeUninit::uninit(); DROPPED_BYTES];
        while lingering.bytes_left > 0 && lingering.until.as_mut().poll(cx).is_pending() {
            let mut read = ReadBuf::uninit(&mut bytes);
            match ready!(Pin::new(&mut this.inner).poll_read(cx, &mut read)) {
                Ok(()) if !read.filled().is_empty() => {
                    lingering.bytes_left = lingering.bytes_left.saturating_sub(read.filled().len());
                }
                _ => break,
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::NamespaceId;

    use super::*;

    const HEADER: Duration = Duration::from_secs(10);
    const IDLE_FOR: Duration = Duration::from_secs(100);

    #[test]
    fn a_request_in_flight_has_no_time_limit_and_an_idle_connection_a_longer_one_than_a_begun_head() {
        let activity = Arc::new(Activity::new());
        activity.tenant().set(NamespaceId(0));
        assert!(activity.time_left(HEADER, IDLE_FOR).unwrap() <= HEADER);
        let working = activity.request_began(false);
        activity.bytes_came();
        assert_eq!(activity.time_left(HEADER, IDLE_FOR), None);
        drop(working);
        assert!(activity.time_left(HEADER, IDLE_FOR).unwrap() > HEADER);
        activity.bytes_came();
        assert!(activity.time_left(HEADER, IDLE_FOR).unwrap() <= HEADER);
    }

    #[test]
    fn the_body_of_a_duplex_request_is_no_head_and_its_response_may_idle() {
        let activity = Arc::new(Activity::new());
        activity.tenant().set(NamespaceId(0));
        let working = activity.request_began(false);
        let duplex = activity.duplex_began();
        drop(working);
        activity.bytes_came();
        assert!(activity.time_left(HEADER, IDLE_FOR).unwrap() > HEADER);
        drop(duplex);
        activity.bytes_came();
        assert!(activity.time_left(HEADER, IDLE_FOR).unwrap() <= HEADER);
    }

    #[test]
    fn a_half_closed_connection_may_wait_for_its_response_but_not_for_long() {
        let activity = Arc::new(Activity::new());
        let working = activity.request_began(false);
        activity.half_closed();
        assert!(activity.time_left(HEADER, IDLE_FOR).is_some_and(|left| left > HEADER / 2 && left < HEADER * 2));
        drop(working);
        assert!(activity.time_left(HEADER, IDLE_FOR).is_some_and(|left| left < HEADER * 2));
    }

    #[test]
    fn a_connection_lingers_less_while_the_server_stops() {
        let activity = Activity::new();
        assert_eq!(activity.linger(), Duration::from_millis(LINGER_MS));
        activity.stop();
        assert_eq!(activity.linger(), Duration::from_millis(LINGER_STOPPING_MS));
    }

    #[test]
    fn frames_between_requests_are_no_heads() {
        let activity = Arc::new(Activity::new());
        activity.tenant().set(NamespaceId(0));
        drop(activity.request_began(true));
        activity.bytes_came();
        assert!(activity.time_left(HEADER, IDLE_FOR).unwrap() > HEADER);
    }

    #[test]
    fn an_unauthenticated_connection_may_idle_only_as_long_as_a_head_may_take() {
        let activity = Arc::new(Activity::new());
        drop(activity.request_began(false));
        assert!(activity.time_left(HEADER, IDLE_FOR).unwrap() <= HEADER);
    }

    #[test]
    fn a_connection_is_idle_while_it_has_neither_request_nor_response() {
        let activity = Arc::new(Activity::new());
        let is_idle = || activity.quiet().map(|quiet| quiet.is_idle);
        assert_eq!(is_idle(), Some(true));
        let working = activity.request_began(false);
        assert_eq!(is_idle(), None);
        let response = activity.response_began();
        drop(working);
        assert_eq!(is_idle(), Some(false));
        drop(response);
        assert_eq!(is_idle(), Some(true));
        let stream = activity.duplex_began();
        assert_eq!(is_idle(), Some(false));
        drop(stream);
        activity.evict();
        assert_eq!(is_idle(), None, "it is being closed");
        assert!(!activity.stays());
        let request = activity.request_began(false);
        assert!(activity.stays(), "it has begun a request since");
        drop(request);
        assert_eq!(is_idle(), Some(true));
    }
}
