//! A TLS connection that remembers why it failed: hyper passes on a part of the error's text at most.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::tls_errors;

/// Why a socket failed, in words.
pub(crate) type Failure = Arc<Mutex<Option<String>>>;

/// A socket that notes its first error.
pub(crate) struct Socket<S> {
    inner: S,
    failure: Failure,
}

impl<S> Socket<S> {
    pub(crate) fn new(inner: S) -> (Socket<S>, Failure) {
        let failure = Failure::default();
        (Socket { inner, failure: Arc::clone(&failure) }, failure)
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
        let result = ready!(Pin::new(&mut self.inner).poll_read(cx, buffer));
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
