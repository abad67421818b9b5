//! A stream of commits: a request whose body is written while its response is read, over HTTP/1.1 or HTTP/2.

#![expect(dead_code, reason = "each test file uses its part")]

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http2::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tribunal_http::quota::TenantQuota;
use tribunal_http::{RouterOptions, ServerOptions};
use tribunal_service::Principal;
use tribunal_types::{NamespaceId, Roles};

use crate::fake_node::{FakeNode, Running, start_with};

/// Long enough for a loaded machine.
pub const TIMEOUT: Duration = Duration::from_secs(120);

/// Time in which a forbidden event would happen.
pub const MOMENT: Duration = Duration::from_millis(200);

/// The header of a caller known to a [`guarded`] server.
pub const KEY: (&str, &str) = ("authorization", "Bearer known");

/// Starts a server that requires a key.
pub async fn guarded(quota: TenantQuota) -> Running {
    let node = FakeNode::new();
    let (namespace_name, name) = ("default".to_owned(), "engine".to_owned());
    let principal = Principal { namespace: NamespaceId(0), namespace_name, roles: Roles::ALL, name };
    node.principals.lock().unwrap().insert("known".into(), Arc::new(principal));
    let router = RouterOptions { access: Some(quota), ..RouterOptions::default() };
    start_with(node, ServerOptions::default(), router).await
}

/// Returns the id of a transaction.
pub fn id(n: usize) -> String {
    format!("0193a5b0-7a3e-7c11-8a52-3f0e1d{n:06x}")
}

/// Returns a commit.
pub fn put(n: usize) -> String {
    put_bytes(n, 1)
}

/// Returns a commit whose line has about this many bytes.
pub fn put_bytes(n: usize, bytes: usize) -> String {
    let value = "v".repeat(bytes);
    let write = json!({"op": "put", "store": "kv", "key": format!("k{n}"), "value": value});
    format!("{}\n", json!({"txn_id": id(n), "writes": [write]}))
}

/// Returns the event at the end of a stream.
pub fn end(reason: &str, lines: usize) -> Value {
    json!({"event": "end", "reason": reason, "lines": lines.to_string()})
}

/// Waits until a condition is true.
pub async fn eventually(what: &str, mut check: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !check() {
        assert!(begun.elapsed() < TIMEOUT, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until no stream is open: each open stream watches for the node's stop.
pub async fn closed(server: &Running) {
    eventually("a stream without a client is open", || server.node.stops.receiver_count() == 0).await;
}

type Frames = Pin<Box<dyn futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;

/// The protocol of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Http {
    One,
    Two,
}

pub const BOTH: [Http; 2] = [Http::One, Http::Two];

/// An open request.
pub struct Duplex {
    /// Frames of the request's body; dropped at its end.
    sender: Option<mpsc::Sender<Bytes>>,
    response: Incoming,
    pending: Vec<u8>,
    /// The connection itself, to be broken.
    socket: std::net::TcpStream,
}

async fn connected(address: SocketAddr) -> (TokioIo<TcpStream>, std::net::TcpStream) {
    let socket = TcpStream::connect(address).await.unwrap().into_std().unwrap();
    let end = socket.try_clone().unwrap();
    (TokioIo::new(TcpStream::from_std(socket).unwrap()), end)
}

fn request(address: SocketAddr, headers: &[(&str, &str)]) -> (mpsc::Sender<Bytes>, Request<StreamBody<Frames>>) {
    // Nothing is buffered before the server reads.
    let (sender, frames) = mpsc::channel::<Bytes>(1);
    let frames = futures_util::stream::unfold(frames, |mut frames| async {
        let bytes = frames.recv().await?;
        Some((Ok(Frame::data(bytes)), frames))
    });
    let mut request = Request::post(format!("http://{address}/v1/txns/stream")).header("host", "x");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    (sender, request.body(StreamBody::new(Box::pin(frames) as Frames)).unwrap())
}

async fn opened(
    http: Http,
    address: SocketAddr,
    headers: &[(&str, &str)],
) -> (mpsc::Sender<Bytes>, Response<Incoming>, std::net::TcpStream) {
    let (socket, end) = connected(address).await;
    let (sender, request) = request(address, headers);
    let response = match http {
        Http::One => {
            let (mut requests, connection) = hyper::client::conn::http1::handshake(socket).await.unwrap();
            tokio::spawn(connection);
            requests.send_request(request).await.unwrap()
        }
        Http::Two => {
            let made = hyper::client::conn::http2::handshake(TokioExecutor::new(), socket).await;
            let (mut requests, connection) = made.unwrap();
            tokio::spawn(connection);
            requests.send_request(request).await.unwrap()
        }
    };
    (sender, response, end)
}

/// An HTTP/2 connection.
pub struct Connection {
    requests: SendRequest<StreamBody<Frames>>,
    address: SocketAddr,
    socket: std::net::TcpStream,
}

impl Connection {
    /// Connects a client that accepts at most `window` bytes of a response before it reads them.
    pub async fn open(address: SocketAddr, window: u32) -> Connection {
        let (io, socket) = connected(address).await;
        let mut builder = hyper::client::conn::http2::Builder::new(TokioExecutor::new());
        let (requests, connection) = builder.initial_stream_window_size(window).handshake(io).await.unwrap();
        tokio::spawn(connection);
        Connection { requests, address, socket }
    }

    /// Opens a commit stream; returns the status if it is refused.
    pub async fn stream(&self, headers: &[(&str, &str)]) -> Result<Duplex, u16> {
        let headers = [&[("content-type", "application/x-ndjson")], headers].concat();
        let (sender, request) = request(self.address, &headers);
        let response = self.requests.clone().send_request(request).await.unwrap();
        if response.status() != 200 {
            return Err(response.status().as_u16());
        }
        let socket = self.socket.try_clone().unwrap();
        Ok(Duplex { sender: Some(sender), response: response.into_body(), pending: Vec::new(), socket })
    }

    /// Commits by a separate request; returns the status.
    pub async fn commit(&self, n: usize, bytes: usize) -> u16 {
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": "k", "value": "v".repeat(bytes)}]});
        let body = futures_util::stream::iter([Ok(Frame::data(Bytes::from(body.to_string())))]);
        let request = Request::post(format!("http://{}/v1/txns/{}/commit", self.address, id(n)))
            .header("content-type", "application/json")
            .body(StreamBody::new(Box::pin(body) as Frames))
            .unwrap();
        let response = self.requests.clone().send_request(request).await.unwrap();
        let status = response.status().as_u16();
        response.into_body().collect().await.unwrap();
        status
    }
}

/// Opens a stream that is refused; returns the status and the problem.
pub async fn refused(http: Http, address: SocketAddr, headers: &[(&str, &str)]) -> (u16, Value) {
    let (_sender, response, _) = opened(http, address, headers).await;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap())
}

impl Duplex {
    /// Opens a commit stream.
    pub async fn open(http: Http, address: SocketAddr) -> Duplex {
        Duplex::open_with(http, address, &[]).await
    }

    /// Opens a commit stream with additional headers.
    pub async fn open_with(http: Http, address: SocketAddr, headers: &[(&str, &str)]) -> Duplex {
        let headers = [&[("content-type", "application/x-ndjson")], headers].concat();
        let (sender, response, socket) = opened(http, address, &headers).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"application/x-ndjson".parse().unwrap())
        );
        Duplex { sender: Some(sender), response: response.into_body(), pending: Vec::new(), socket }
    }

    /// Writes text; waits until the connection accepts it. Returns `false` if it accepts no more.
    pub async fn write(&self, text: impl Into<Bytes>) -> bool {
        self.sender.as_ref().expect("the request goes on").send(text.into()).await.is_ok()
    }

    /// Returns whether the connection accepts text at once.
    pub fn write_now(&self, text: impl Into<Bytes>) -> bool {
        self.sender.as_ref().expect("the request goes on").try_send(text.into()).is_ok()
    }

    /// Ends the request.
    pub fn finish(&mut self) {
        self.sender = None;
    }

    /// Returns the next line of the response; `None` at its end.
    pub async fn line(&mut self) -> Option<Value> {
        tokio::time::timeout(TIMEOUT, self.next_line()).await.expect("a line or the end")
    }

    /// Returns the next line that is not a heartbeat.
    pub async fn answer(&mut self) -> Option<Value> {
        loop {
            let line = self.line().await?;
            if line["event"] != "heartbeat" {
                return Some(line);
            }
        }
    }

    /// Returns all lines to the end, without heartbeats.
    pub async fn rest(&mut self) -> Vec<Value> {
        let mut lines = Vec::new();
        while let Some(line) = self.answer().await {
            lines.push(line);
        }
        lines
    }

    async fn next_line(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                return Some(serde_json::from_slice(&line).expect("JSON"));
            }
            let frame = self.response.frame().await?.ok()?;
            self.pending.extend_from_slice(&frame.into_data().unwrap_or_default());
        }
    }

    /// Breaks the connection.
    pub fn disconnect(self) {
        self.socket.shutdown(std::net::Shutdown::Both).unwrap();
    }
}
