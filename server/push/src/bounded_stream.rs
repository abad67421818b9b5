//! A connection to a storage that limits the bytes received per request and in total: announced lengths are not
//! trusted, an endless reply is not buffered, and the replies' data retained by the client library (session parameters,
//! types) does not grow without bound.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Maximum number of bytes received for a request, besides those for its parts. The longest legitimate replies are
/// errors of a few kilobytes. A library keeps up to twenty times as much in memory.
const REQUEST_BYTES_MAX: usize = 256 * 1024;
/// A connection that has received this much is worn: it should be replaced before the next batch.
const WORN_BYTES: usize = 1024 * 1024;
/// Maximum number of bytes that a connection may receive in total. Between two checks whether it is worn there is at
/// most one batch, whose 8192 records may be as many requests, of some 500 bytes each.
const CONNECTION_BYTES_MAX: usize = 8 * 1024 * 1024;

/// The number of bytes that a connection may still receive. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReceiveBudget(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// Limit for the current request.
    request_max: AtomicUsize,
    /// Bytes received since the current request began.
    request: AtomicUsize,
    /// Bytes received since the connection was opened.
    total: AtomicUsize,
}

impl ReceiveBudget {
    /// Begins a request with `parts` parts, each with a reply of up to `part_bytes`.
    pub(crate) fn begin_request(&self, parts: usize, part_bytes: usize) {
        let request_max = REQUEST_BYTES_MAX.saturating_add(parts.saturating_mul(part_bytes));
        self.0.request_max.store(request_max, Ordering::Relaxed);
        self.0.request.store(0, Ordering::Relaxed);
    }

    /// Returns whether the connection should be replaced before the next batch.
    pub(crate) fn is_worn(&self) -> bool {
        self.0.total.load(Ordering::Relaxed) > WORN_BYTES
    }

    /// Returns the error of a connection that has received too much. Client libraries may report only that it broke.
    pub(crate) fn excess(&self) -> Option<String> {
        let request_max = self.0.request_max.load(Ordering::Relaxed);
        if self.0.request.load(Ordering::Relaxed) > request_max {
            Some(format!("the storage's reply is longer than {request_max} bytes"))
        } else if self.0.total.load(Ordering::Relaxed) > CONNECTION_BYTES_MAX {
            Some(format!("the storage's replies to one batch are longer than {CONNECTION_BYTES_MAX} bytes"))
        } else {
            None
        }
    }

    fn receive(&self, bytes: usize) -> io::Result<()> {
        self.0.request.fetch_add(bytes, Ordering::Relaxed);
        self.0.total.fetch_add(bytes, Ordering::Relaxed);
        self.excess().map_or(Ok(()), |text| Err(io::Error::new(io::ErrorKind::InvalidData, text)))
    }
}

/// A stream that fails after receiving too many bytes.
pub(crate) struct BoundedStream {
    inner: TcpStream,
    budget: ReceiveBudget,
}

impl BoundedStream {
    /// Wraps a new connection, whose handshake counts as a request.
    pub(crate) fn new(inner: TcpStream) -> (Self, ReceiveBudget) {
        let budget = ReceiveBudget::default();
        budget.begin_request(0, 0);
        (BoundedStream { inner, budget: budget.clone() }, budget)
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        Poll::Ready(this.budget.receive(buffer.filled().len() - before))
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, bytes)
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
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn an_endless_reply_ends_with_an_error_also_between_writes() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let endless = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let said = vec![b'x'; 1 << 16];
            while socket.write_all(&said).await.is_ok() {}
        });
        let connect = || async { BoundedStream::new(TcpStream::connect(address).await.expect("it listens")) };
        let (mut stream, budget) = connect().await;
        let mut bytes = vec![0; REQUEST_BYTES_MAX];
        stream.read_exact(&mut bytes).await.expect("within the limit");
        budget.begin_request(10, 100);
        stream.read_exact(&mut bytes).await.expect("the limit is per request");
        stream.read_exact(&mut bytes[..1000]).await.expect("and greater for one with many parts");
        stream.write_all(b"part of the same request").await.expect("it is open");
        let cut = stream.read_exact(&mut bytes).await.expect_err("too much");
        assert!(cut.to_string().contains("reply is longer than 263144 bytes"), "{cut}");
        drop(stream);
        endless.await.expect("the task ends with its connection");
    }

    #[test]
    fn a_connection_wears_out_and_ends() {
        let budget = ReceiveBudget::default();
        let mut received = 0;
        let cut = loop {
            assert_eq!(budget.is_worn(), received > WORN_BYTES);
            budget.begin_request(0, 0);
            match budget.receive(REQUEST_BYTES_MAX) {
                Ok(()) => received += REQUEST_BYTES_MAX,
                Err(cut) => break cut,
            }
        };
        assert_eq!(received, CONNECTION_BYTES_MAX);
        assert!(cut.to_string().contains("replies to one batch"), "{cut}");
    }
}
