//! A TLS connection that records the cause of its failure and the time of the last arrival: hyper passes on at most a
//! part of the error's text, and nothing about pings.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::tls_errors;

/// The cause of a socket's failure, as text.
pub(crate) type Failure = Arc<Mutex<Option<String>>>;

/// The time of the last arrival.
pub(crate) type ArrivedAt = Arc<Mutex<Instant>>;

/// A socket that records its first error and the time of its last read.
pub(crate) struct Socket<S> {
    inner: S,
    failure: Failure,
    arrived_at: ArrivedAt,
}

impl<S> Socket<S> {
    pub(crate) fn new(inner: S) -> (Socket<S>, Failure) {
        let socket = Socket { inner, failure: Failure::default(), arrived_at: Arc::new(Mutex::new(Instant::now())) };
        let failure = Arc::clone(&socket.failure);
        (socket, failure)
    }

    pub(crate) fn arrived_at(&self) -> ArrivedAt {
        Arc::clone(&self.arrived_at)
    }

    fn noted<T>(&self, result: io::Result<T>) -> Poll<io::Result<T>> {
        if let Err(error) = &result {
            self.failure.lock().get_or_insert_with(|| tls_errors::in_words(error));
        }
        Poll::Ready(result)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = ready!(Pin::new(&mut self.inner).poll_read(cx, buffer));
        if buffer.filled().len() > before {
            *self.arrived_at.lock() = Instant::now();
        }
        self.noted(result)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes));
        self.noted(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = ready!(Pin::new(&mut self.inner).poll_write_vectored(cx, pieces));
        self.noted(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_flush(cx));
        self.noted(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = ready!(Pin::new(&mut self.inner).poll_shutdown(cx));
        self.noted(result)
    }
}
