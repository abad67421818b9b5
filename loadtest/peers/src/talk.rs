//! Sequential blocking exchanges on a separate connection: for loading rows and for handshakes.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use tribunal_bench::error::BenchError;

const TIMEOUT: Duration = Duration::from_secs(120);

/// A connection with at most one request in flight.
pub struct Talk {
    stream: TcpStream,
    inbox: Vec<u8>,
}

impl Talk {
    /// Connects.
    ///
    /// # Errors
    /// If the address does not listen.
    pub fn connect(addr: SocketAddr) -> Result<Talk, BenchError> {
        let stream = TcpStream::connect(addr).map_err(BenchError::io(format!("connect to {addr}")))?;
        let set_up = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(TIMEOUT)));
        set_up.map_err(BenchError::io("set up a connection"))?;
        Ok(Talk { stream, inbox: Vec::new() })
    }

    /// Sends a request and returns the reply, whose end `end` determines.
    ///
    /// # Errors
    /// If the connection breaks, or `end` rejects the reply.
    pub fn exchange(
        &mut self,
        request: &[u8],
        end: impl Fn(&[u8]) -> Result<Option<usize>, BenchError>,
    ) -> Result<Vec<u8>, BenchError> {
        self.stream.write_all(request).map_err(BenchError::io("send a request"))?;
        let mut piece = [0_u8; 16 * 1024];
        loop {
            if let Some(end) = end(&self.inbox)? {
                return Ok(self.inbox.drain(..end).collect());
            }
            let bytes = self.stream.read(&mut piece).map_err(BenchError::io("read a reply"))?;
            if bytes == 0 {
                return Err(BenchError::Reply("the peer closed a connection"));
            }
            self.inbox.extend_from_slice(&piece[..bytes]);
        }
    }

    /// Returns the connection, which has no unread bytes.
    #[must_use]
    pub fn into_stream(self) -> TcpStream {
        self.stream
    }
}
