//! A plain HTTP/1.1 client over one socket: it shows exactly what is on the wire.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection.
pub struct Client {
    pub socket: TcpStream,
    pending: Vec<u8>,
}

/// A response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {self:?}"))
    }
}

impl Client {
    pub async fn connect(address: SocketAddr) -> Self {
        Client { socket: TcpStream::connect(address).await.unwrap(), pending: Vec::new() }
    }

    pub async fn send(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) {
        let mut request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n", body.len());
        for (name, value) in headers {
            request.push_str(&format!("{name}: {value}\r\n"));
        }
        request.push_str("\r\n");
        let mut bytes = request.into_bytes();
        bytes.extend_from_slice(body);
        // The server may respond and close before it has read everything.
        let _ = self.socket.write_all(&bytes).await;
    }

    /// Reads one response; `None` if the server closed instead.
    pub async fn reply(&mut self) -> Option<Reply> {
        let head_end = loop {
            if let Some(at) = self.pending.windows(4).position(|four| four == b"\r\n\r\n") {
                break at;
            }
            let mut chunk = [0; 65536];
            match self.socket.read(&mut chunk).await {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.pending.extend_from_slice(&chunk[..n]),
            }
        };
        let head = String::from_utf8(self.pending[..head_end].to_vec()).unwrap();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let headers: Vec<(String, String)> = lines
            .map(|line| line.split_once(':').unwrap())
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length = headers
            .iter()
            .find(|(name, _)| name == "content-length")
            .map_or(0, |(_, value)| value.parse::<usize>().unwrap());
        self.pending.drain(..head_end + 4);
        while self.pending.len() < length {
            let mut chunk = [0; 65536];
            match self.socket.read(&mut chunk).await {
                Ok(0) | Err(_) => return None,
                Ok(n) => self.pending.extend_from_slice(&chunk[..n]),
            }
        }
        let body = self.pending.drain(..length).collect();
        Some(Reply { status, headers, body })
    }

    pub async fn call(&mut self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        self.send(method, path, headers, body).await;
        self.reply().await.expect("an answer")
    }

    pub async fn get(&mut self, path: &str) -> Reply {
        self.call("GET", path, &[], b"").await
    }

    pub async fn post(&mut self, path: &str, body: &str) -> Reply {
        self.call("POST", path, &[("content-type", "application/json")], body.as_bytes()).await
    }
}

/// Sends one request on a new connection.
pub async fn post(address: SocketAddr, path: &str, body: &str) -> Reply {
    Client::connect(address).await.post(path, body).await
}
