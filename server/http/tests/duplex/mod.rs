//! A request whose body is written while its response is read, over HTTP/1.1 or HTTP/2.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::mpsc;

/// Long enough for a loaded machine.
pub const TIMEOUT: Duration = Duration::from_secs(20);

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
    /// The connection itself, to break it.
    socket: std::net::TcpStream,
}

async fn opened(
    http: Http,
    address: SocketAddr,
    headers: &[(&str, &str)],
) -> (mpsc::Sender<Bytes>, Response<Incoming>, std::net::TcpStream) {
    let socket = TcpStream::connect(address).await.unwrap().into_std().unwrap();
    let end = socket.try_clone().unwrap();
    let socket = TokioIo::new(TcpStream::from_std(socket).unwrap());
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
    let request = request.body(StreamBody::new(Box::pin(frames) as Frames)).unwrap();
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

    /// Opens one with further headers.
    pub async fn open_with(http: Http, address: SocketAddr, headers: &[(&str, &str)]) -> Duplex {
        let headers = [&[("content-type", "application/x-ndjson")], headers].concat();
        let (sender, response, socket) = opened(http, address, &headers).await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["content-type"]),
            (200, &"application/x-ndjson".parse().unwrap())
        );
        Duplex { sender: Some(sender), response: response.into_body(), pending: Vec::new(), socket }
    }

    /// Writes text; waits until the connection takes it. `false` if it takes nothing any more.
    pub async fn write(&self, text: impl Into<Bytes>) -> bool {
        self.sender.as_ref().expect("the request goes on").send(text.into()).await.is_ok()
    }

    /// Tells whether the connection takes text at once.
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

    /// Returns the next line that is no heartbeat.
    pub async fn answer(&mut self) -> Option<Value> {
        loop {
            let line = self.line().await?;
            if line["event"] != "heartbeat" {
                return Some(line);
            }
        }
    }

    /// Returns all lines up to the end, heartbeats left out.
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
