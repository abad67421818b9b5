//! HTTP/1: tracks whether the bytes that a response handed to its connection have reached the socket. hyper takes up to
//! 16 pieces of a body, and drops the body with the last piece, and with it the request's permit. So the end of a body
//! waits until the earlier pieces are in the socket: at most one piece leaves a tenant's quota early.
//!
//! HTTP/2 does not need this: there, hyper polls for a piece only after the previous one was taken.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// Bytes that may be unflushed in a connection when the end of their body is handed out.
const UNFLUSHED_BYTES_MAX: usize = 16 * 1024;

/// Bytes handed to a connection since its last flush. Bodies and the socket are polled in one task, so relaxed ordering
/// suffices.
#[derive(Debug, Default)]
pub(crate) struct Flushes {
    bytes: AtomicUsize,
    /// Whether the end of a body is waiting, or was woken and has not been handed out yet.
    withholds: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Flushes {
    /// Records that a body handed out `bytes`.
    pub fn handed_out(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Records that all bytes are in the socket.
    pub fn flushed(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        if self.withholds.load(Ordering::Relaxed)
            && let Some(waker) = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take()
        {
            waker.wake();
        }
    }

    /// Waits until few bytes remain to be flushed.
    pub fn poll_flushed(&self, cx: &Context<'_>) -> Poll<()> {
        let waits = self.bytes.load(Ordering::Relaxed) > UNFLUSHED_BYTES_MAX;
        self.withholds.store(waits, Ordering::Relaxed);
        if !waits {
            return Poll::Ready(());
        }
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Returns whether the end of a body has yet to be handed out.
    pub fn withhold(&self) -> bool {
        self.withholds.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::time::Duration;

    use axum::body::Body;
    use hyper_util::rt::TokioIo;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::listener::connection::{Activity, WatchedIo};
    use crate::response::kept_body::keeping;
    use crate::response::pieces::in_pieces;

    #[tokio::test]
    async fn a_response_keeps_its_place_until_its_connection_has_written_it() {
        let (mut client, server) = tokio::io::duplex(1024);
        let activity = Arc::new(Activity::new());
        let io = TokioIo::new(WatchedIo::new(server, Arc::clone(&activity)));
        let place = Arc::new(());
        let kept = Arc::clone(&place);
        let service = hyper::service::service_fn(move |_| {
            let working = activity.request_began(false);
            // All of it fits into hyper's buffer.
            let body = keeping(Body::from(vec![7; 100_000]), Arc::clone(&kept));
            let response = hyper::Response::new(in_pieces(body, Some(Arc::clone(activity.flushes()))));
            async {
                drop(working);
                Ok::<_, Infallible>(response)
            }
        });
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(io, service);
        let served = tokio::spawn(connection);
        client.write_all(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n").await.expect("there is room");
        // The client sends nothing more, and still receives the whole response.
        client.shutdown().await.expect("it may");
        tokio::time::sleep(Duration::from_millis(200)).await;
        assert_eq!(Arc::strong_count(&place), 3, "the response waits: it is the service's, its body's and the test's");
        let mut response = Vec::new();
        while !response.ends_with(&[7; 100_000]) {
            let read = client.read_buf(&mut response).await.expect("a connection");
            assert!(read > 0, "the response is cut short after {} bytes", response.len());
        }
        assert_eq!(Arc::strong_count(&place), 2, "its body is gone");
        // The listener ends connections whose client has ended its sending side.
        served.abort();
    }

    #[test]
    fn an_end_waits_until_what_came_before_is_flushed() {
        let (flushes, cx) = (Flushes::default(), Context::from_waker(Waker::noop()));
        flushes.handed_out(UNFLUSHED_BYTES_MAX);
        assert!(flushes.poll_flushed(&cx).is_ready(), "a short response needs no second write");
        flushes.handed_out(1);
        assert!(flushes.poll_flushed(&cx).is_pending());
        flushes.flushed();
        assert!(flushes.withhold(), "it is not handed out yet");
        assert!(flushes.poll_flushed(&cx).is_ready() && !flushes.withhold());
    }
}
