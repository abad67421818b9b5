//! A service that streams a log, or a state image, by a script.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tribunal_client::{Client, ClientOptions, LogReader, Lsn, RetryPolicy};

pub const LOG: &str = "8f14e45fceea167a5a36dedd4bea2543";

/// What the service does on one connection, after it has read the request.
#[derive(Clone)]
pub enum Script {
    /// It streams these pieces, and ends the stream.
    Stream(Vec<String>),
    /// It streams these pieces, and closes the connection without an end.
    Break(Vec<String>),
    /// It streams these pieces, and leaves the stream open.
    Stay(Vec<String>),
    /// It streams these pieces, and those that it is told later, and leaves the stream open.
    Continue(Vec<String>, Later),
    /// It refuses with this problem.
    Refuse(u16, &'static str),
    /// It replies late.
    Late(Duration, Box<Script>),
}

/// Pieces that are streamed once they are there.
pub type Later = Arc<tokio::sync::Mutex<mpsc::UnboundedReceiver<String>>>;

pub struct Service {
    pub url: String,
    /// Heads of the requests.
    asked: Arc<Mutex<Vec<String>>>,
    /// Bytes that were streamed.
    pub written: Arc<AtomicUsize>,
    /// Number of streams that their readers have left.
    pub left: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Service {
    /// Starts a service with a script for each of its connections in turn.
    pub async fn start(scripts: impl IntoIterator<Item = Script>) -> Service {
        Service::start_at("127.0.0.1:0", scripts).await
    }

    /// Starts it at an address, such as that of one that was stopped.
    pub async fn start_at(address: &str, scripts: impl IntoIterator<Item = Script>) -> Service {
        let listener = TcpListener::bind(address).await.expect("the address is free");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let mut scripts: VecDeque<Script> = scripts.into_iter().collect();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (written, left) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let each = (Arc::clone(&asked), Arc::clone(&written), Arc::clone(&left));
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let script = scripts.pop_front().unwrap_or(Script::Refuse(404, "no_script"));
                let (asked, written, left) = each.clone();
                connections.spawn(async move {
                    let head = head_of(&mut stream).await;
                    asked.lock().expect("no test panics with it").push(head);
                    play(stream, script, &written, &left).await;
                });
            }
        });
        Service { url, asked, written, left, task }
    }

    /// Closes its connections, and accepts no more. Returns its address.
    pub async fn stop(self) -> String {
        self.task.abort();
        let _ = self.task.await;
        self.url.trim_start_matches("http://").to_owned()
    }

    pub fn reader(&self, after: u64) -> LogReader {
        self.reader_within(after, Duration::from_secs(20))
    }

    pub fn reader_within(&self, after: u64, timeout: Duration) -> LogReader {
        self.client(3, timeout).log("kv", Lsn(after))
    }

    pub fn client(&self, attempts_max: u32, timeout: Duration) -> Client {
        let retry = RetryPolicy { attempts_max, ..RetryPolicy::default() };
        Client::with_options(&self.url, ClientOptions { timeout, retry, ..ClientOptions::default() }).expect("a URL")
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no test panics with it").clone()
    }
}

async fn head_of(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).expect("a head is text").to_ascii_lowercase()
}

async fn play(mut stream: TcpStream, mut script: Script, written: &AtomicUsize, left: &AtomicUsize) {
    if let Script::Late(wait, then) = script {
        tokio::time::sleep(wait).await;
        script = *then;
    }
    let mut later = None;
    let (pieces, end, stays) = match script {
        Script::Refuse(status, code) => {
            let body = problem(status, code).to_string();
            let length = body.len();
            let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
            let _ = stream.write_all((head + &body).as_bytes()).await;
            return;
        }
        Script::Late(..) => unreachable!("only the script in it is late"),
        Script::Stream(pieces) => (pieces, true, false),
        Script::Break(pieces) => (pieces, false, false),
        Script::Stay(pieces) => (pieces, false, true),
        Script::Continue(pieces, told) => {
            later = Some(told);
            (pieces, false, true)
        }
    };
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n";
    if stream.write_all(head.as_bytes()).await.is_err() {
        return;
    }
    for piece in pieces {
        if write(&mut stream, &piece, written).await.is_err() {
            return;
        }
    }
    if let Some(later) = later {
        while let Some(piece) = later.lock().await.recv().await {
            if write(&mut stream, &piece, written).await.is_err() {
                return;
            }
        }
    }
    if end {
        let _ = stream.write_all(b"0\r\n\r\n").await;
    }
    if stays {
        // Until the reader goes.
        let _ = stream.read_u8().await;
        left.fetch_add(1, Ordering::Relaxed);
    }
}

async fn write(stream: &mut TcpStream, piece: &str, written: &AtomicUsize) -> std::io::Result<()> {
    let chunk = format!("{:x}\r\n{piece}\r\n", piece.len());
    stream.write_all(chunk.as_bytes()).await?;
    written.fetch_add(piece.len(), Ordering::Relaxed);
    // Each piece is a packet of its own.
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok(())
}

pub fn problem(status: u16, code: &str) -> Value {
    json!({ "type": "about:blank", "title": "x", "detail": "x", "status": status, "code": code,
        "retryable": status == 503, "errors": [] })
}

pub fn record(lsn: u64) -> String {
    record_of(lsn, "v\u{e4}lue")
}

pub fn record_of(lsn: u64, value: &str) -> String {
    let (this, before) = (lsn.to_string(), (lsn - 1).to_string());
    let record = json!({ "lsn": this, "prev_lsn": before, "epoch": "9", "csn": "7", "version": "9437184", "txn_id": "t",
        "store": "kv", "writes": [{ "op": "put", "key": "a", "value": value }] });
    format!("{record}\n")
}

pub fn beat(next: u64, head: u64) -> String {
    format!("{}\n", json!({ "event": "heartbeat", "log": LOG, "next": next.to_string(), "head_lsn": head.to_string() }))
}

pub fn end(next: u64, reason: &str) -> String {
    let (next, head) = (next.to_string(), next.to_string());
    format!("{}\n", json!({ "event": "end", "log": LOG, "next": next, "head_lsn": head, "reason": reason }))
}
