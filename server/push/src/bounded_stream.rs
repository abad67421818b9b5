//! A connection to a storage that hears no more than so many bytes for what it asked: what a storage announces is not
//! believed, and what it says without end is not kept.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Bytes heard since something was last said. Answers to a batch of records are some kilobytes.
const HEARD_BYTES_MAX: usize = 16 * 1024 * 1024;

/// See the file's head.
pub(crate) struct BoundedStream {
    inner: TcpStream,
    heard: usize,
}

impl BoundedStream {
    pub(crate) fn new(inner: TcpStream) -> Self {
        BoundedStream { inner, heard: 0 }
    }
}

impl AsyncRead for BoundedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buffer))?;
        this.heard += buffer.filled().len() - before;
        if this.heard > HEARD_BYTES_MAX {
            let text = format!("the storage answered more than {HEARD_BYTES_MAX} bytes");
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, text)));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for BoundedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.heard = 0;
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
    async fn a_storage_that_does_not_stop_is_cut() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("its address");
        let endless = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("a connection");
            let said = vec![b'x'; 1 << 16];
            while socket.write_all(&said).await.is_ok() {}
        });
        let mut stream = BoundedStream::new(TcpStream::connect(address).await.expect("it listens"));
        let mut bytes = vec![0; HEARD_BYTES_MAX];
        stream.read_exact(&mut bytes).await.expect("as much as is allowed");
        stream.write_all(b"more").await.expect("it is open");
        stream.read_exact(&mut bytes).await.expect("as much again for another question");
        let cut = stream.read_exact(&mut bytes).await.expect_err("too much");
        assert!(cut.to_string().contains("more than"), "{cut}");
        drop(stream);
        endless.await.expect("it ends with its connection");
    }
}
