//! A connection to a storage that limits the bytes received per request: announced lengths are not trusted, and an endless
//! reply is not buffered.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Maximum number of bytes received since the last send. Replies to a batch of records take a few kilobytes.
const RECEIVED_BYTES_MAX: usize = 16 * 1024 * 1024;

/// A stream that fails after receiving too many bytes.
pub(crate) struct BoundedStream {
    inner: TcpStream,
    received: usize,
}

impl BoundedStream {
    pub(crate) fn new(inner: TcpStream) -> Self {
        BoundedStream { inner, received: 0 }
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        this.received += buffer.filled().len() - before;
        if this.received > RECEIVED_BYTES_MAX {
            let text = format!("the storage's reply is longer than {RECEIVED_BYTES_MAX} bytes");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.received = 0;
        Pin::new(&mut this.inner).poll_write(cx, bytes)
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
    async fn an_endless_reply_ends_with_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let endless = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let said = vec![b'x'; 1 << 16];
            while socket.write_all(&said).await.is_ok() {}
        });
        let mut stream = BoundedStream::new(TcpStream::connect(address).await.expect("it listens"));
        let mut bytes = vec![0; RECEIVED_BYTES_MAX];
        stream.read_exact(&mut bytes).await.expect("within the limit");
        stream.write_all(b"more").await.expect("it is open");
        stream.read_exact(&mut bytes).await.expect("the limit is per request");
        let cut = stream.read_exact(&mut bytes).await.expect_err("too much");
        assert!(cut.to_string().contains("longer than"), "{cut}");
        drop(stream);
        endless.await.expect("the task ends with its connection");
    }
}
