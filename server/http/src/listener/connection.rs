//! What one connection is doing, so that a silent or dribbling client can be told from a working one.
//!
//! hyper's own header timer runs while a kept-alive connection idles, and costs an allocation a request. This keeps
//! the two apart: a head must be whole within `header_timeout` of its first byte (of the connection's first byte for
//! the first one), an idle connection may stay for `idle_timeout`. While a request is being worked on, neither counts.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Between requests.
const IDLE: u8 = 0;
/// A head has begun and is not whole.
const HEAD: u8 = 1;

/// What a connection is doing. Shared by its socket, its requests and its watchdog, which run in one task or nearly;
/// relaxed order is enough, the watchdog looks again soon.
#[derive(Debug)]
pub struct Activity {
    base: Instant,
    in_flight: AtomicU32,
    phase: AtomicU8,
    since_ms: AtomicU64,
    multiplexed: AtomicBool,
}

impl Activity {
    /// Starts with a head that is awaited.
    #[must_use]
    pub fn new() -> Self {
        Activity {
            base: Instant::now(),
            in_flight: AtomicU32::new(0),
            phase: AtomicU8::new(HEAD),
            since_ms: AtomicU64::new(0),
            multiplexed: AtomicBool::new(false),
        }
    }

    fn mark(&self) {
        let ms = u64::try_from(self.base.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.since_ms.store(ms, Ordering::Relaxed);
    }

    /// Notes a whole head. `multiplexed` connections send frames between requests, which are no heads.
    pub fn request_began(self: &Arc<Self>, multiplexed: bool) -> Working {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        if multiplexed {
            self.multiplexed.store(true, Ordering::Relaxed);
        }
        Working(Arc::clone(self))
    }

    fn bytes_came(&self) {
        let awaited = self.phase.load(Ordering::Relaxed) == IDLE
            && self.in_flight.load(Ordering::Relaxed) == 0
            && !self.multiplexed.load(Ordering::Relaxed);
        if awaited {
            self.phase.store(HEAD, Ordering::Relaxed);
            self.mark();
        }
    }

    /// Returns how long the connection may go on like this; `None` while it works.
    #[must_use]
    pub fn patience(&self, header_timeout: Duration, idle_timeout: Duration) -> Option<Duration> {
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            return None;
        }
        let limit = if self.phase.load(Ordering::Relaxed) == HEAD { header_timeout } else { idle_timeout };
        let since = Duration::from_millis(self.since_ms.load(Ordering::Relaxed));
        Some((since + limit).saturating_sub(self.base.elapsed()))
    }
}

impl Default for Activity {
    fn default() -> Self {
        Self::new()
    }
}

/// A request that is being worked on, until this is dropped.
#[derive(Debug)]
pub struct Working(Arc<Activity>);

impl Drop for Working {
    fn drop(&mut self) {
        self.0.phase.store(IDLE, Ordering::Relaxed);
        self.0.mark();
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A socket that tells its [`Activity`] when bytes move.
#[derive(Debug)]
pub struct WatchedIo<T> {
    /// The socket.
    pub inner: T,
    /// What to tell.
    pub activity: Arc<Activity>,
}

impl<T: AsyncRead + Unpin> AsyncRead for WatchedIo<T> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let polled = Pin::new(&mut this.inner).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            this.activity.bytes_came();
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WatchedIo<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
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
        Pin::new(&mut self.get_mut().inner).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Duration = Duration::from_secs(10);
    const IDLE_FOR: Duration = Duration::from_secs(100);

    #[test]
    fn a_working_connection_has_all_patience_and_an_idle_one_more_than_a_begun_head() {
        let activity = Arc::new(Activity::new());
        assert!(activity.patience(HEADER, IDLE_FOR).unwrap() <= HEADER);
        let working = activity.request_began(false);
        activity.bytes_came();
        assert_eq!(activity.patience(HEADER, IDLE_FOR), None);
        drop(working);
        assert!(activity.patience(HEADER, IDLE_FOR).unwrap() > HEADER);
        activity.bytes_came();
        assert!(activity.patience(HEADER, IDLE_FOR).unwrap() <= HEADER);
    }

    #[test]
    fn frames_between_requests_are_no_heads() {
        let activity = Arc::new(Activity::new());
        drop(activity.request_began(true));
        activity.bytes_came();
        assert!(activity.patience(HEADER, IDLE_FOR).unwrap() > HEADER);
    }
}
