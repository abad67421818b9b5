//! Single blocking exchanges on a separate connection: readiness, watermarks, and the idle measurement.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::BenchError;
use crate::wire::{read_head, write_get};

const TIMEOUT: Duration = Duration::from_secs(30);

/// One keep-alive connection with at most one request in flight.
#[derive(Debug)]
pub struct Rpc {
    stream: TcpStream,
    host: String,
    inbox: Vec<u8>,
}

impl Rpc {
    /// Connects.
    ///
    /// # Errors
    /// If the address does not listen.
    pub fn connect(addr: SocketAddr) -> Result<Rpc, BenchError> {
        Rpc::connect_as(addr, addr.to_string())
    }

    /// Connects to a server that requires a key, which `host` includes ([`crate::wire::host_with_key`]).
    ///
    /// # Errors
    /// If the address does not listen.
    pub fn connect_as(addr: SocketAddr, host: String) -> Result<Rpc, BenchError> {
        let stream = TcpStream::connect(addr).map_err(BenchError::io(format!("connect to {addr}")))?;
        let set_up = stream.set_nodelay(true).and_then(|()| stream.set_read_timeout(Some(TIMEOUT)));
        set_up.map_err(BenchError::io("set up a connection"))?;
        Ok(Rpc { stream, host, inbox: Vec::new() })
    }

    /// Sends the bytes of one request and returns the reply's status and body.
    ///
    /// # Errors
    /// If the connection breaks or the reply is malformed.
    pub fn exchange(&mut self, request: &[u8]) -> Result<(u16, &[u8]), BenchError> {
        self.stream.write_all(request).map_err(BenchError::io("send a request"))?;
        self.inbox.clear();
        let mut piece = [0_u8; 16 * 1024];
        loop {
            let bytes = self.stream.read(&mut piece).map_err(BenchError::io("read a reply"))?;
            if bytes == 0 {
                return Err(BenchError::Reply("the server closed a connection"));
            }
            self.inbox.extend_from_slice(&piece[..bytes]);
            if let Some(head) = read_head(&self.inbox)?
                && self.inbox.len() >= head.head_len + head.body_len
            {
                return Ok((head.status, &self.inbox[head.head_len..head.head_len + head.body_len]));
            }
        }
    }

    /// Gets a path and returns the reply's status and body.
    ///
    /// # Errors
    /// As for [`Rpc::exchange`].
    pub fn get(&mut self, path: &str) -> Result<(u16, &[u8]), BenchError> {
        let mut request = Vec::new();
        write_get(&mut request, &self.host, path);
        self.exchange(&request)
    }

    /// Gets a JSON document.
    ///
    /// # Errors
    /// As for [`Rpc::exchange`], and if the reply is not 200 with JSON.
    pub fn get_json(&mut self, path: &str) -> Result<serde_json::Value, BenchError> {
        let (status, body) = self.get(path)?;
        let refused = || BenchError::Refused {
            what: path.to_owned(),
            answer: format!("{status} {}", String::from_utf8_lossy(body)),
        };
        if status != 200 {
            return Err(refused());
        }
        serde_json::from_slice(body).map_err(|_| refused())
    }
}
