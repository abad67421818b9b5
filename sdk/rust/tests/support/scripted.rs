//! A service that replies by a script, and the replies of such scripts.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tribunal_client::{Client, ClientOptions, RetryPolicy};

/// What the service does with a request.
pub enum Reply {
    /// It responds with this status and body.
    Json(u16, Value),
    /// It responds with these lines.
    Lines(Vec<Value>),
    /// It reads the request and closes the connection.
    Lost,
}

/// A request as it arrived: method, path with query, body.
pub type Asked = (String, String, Value);

pub struct Service {
    pub address: SocketAddr,
    pub asked: Arc<Mutex<Vec<Asked>>>,
    /// Trace contexts of the requests that have one.
    pub traceparents: Arc<Mutex<Vec<String>>>,
}

impl Service {
    /// Starts a service that replies by `answer`, which gets the kind of the request and how many of it came before.
    pub async fn start(answer: impl Fn(&str, usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let address = listener.local_addr().expect("bound");
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let traceparents: Arc<Mutex<Vec<String>>> = Arc::default();
        let (answer, log, traces) = (Arc::new(answer), Arc::clone(&asked), Arc::clone(&traceparents));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, log, traces) = (Arc::clone(&answer), Arc::clone(&log), Arc::clone(&traces));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                    let traceparent = request.headers().get("traceparent").and_then(|text| text.to_str().ok());
                    traces.lock().expect("no test panics with it").extend(traceparent.map(str::to_owned));
                    async move {
                        let (method, path) = (request.method().to_string(), request.uri().to_string());
                        let body = request.into_body().collect().await.expect("the client sends whole bodies");
                        let body = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
                        let kind = kind_of(&method, &path);
                        let before = {
                            let mut log = log.lock().expect("no test panics with it");
                            let before = log.iter().filter(|(m, p, _)| kind_of(m, p) == kind).count();
                            log.push((method, path, body));
                            before
                        };
                        let (status, text) = match answer(kind, before) {
                            Reply::Json(status, body) => (status, body.to_string()),
                            Reply::Lines(lines) => (200, lines.iter().map(|line| format!("{line}\n")).collect()),
                            Reply::Lost => return Err("lost"),
                        };
                        let response = Response::builder().status(status).header("traceparent", "00-server");
                        Ok(response.body(Full::new(Bytes::from(text))).expect("a response"))
                    }
                });
                tokio::spawn(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
            Ok::<(), Infallible>(())
        });
        Service { address, asked, traceparents }
    }

    pub fn client(&self) -> Client {
        self.client_with(ClientOptions::default())
    }

    pub fn client_with(&self, options: ClientOptions) -> Client {
        let options = ClientOptions {
            timeout: Duration::from_secs(60),
            retry: RetryPolicy { attempts_max: 4, ..RetryPolicy::default() },
            ..options
        };
        Client::with_options(&format!("http://{}", self.address), options).expect("a URL")
    }

    pub fn asked(&self, kind: &str) -> Vec<Asked> {
        let asked = self.asked.lock().expect("no test panics with it");
        asked.iter().filter(|(method, path, _)| kind_of(method, path) == kind).cloned().collect()
    }
}

pub fn kind_of(method: &str, path: &str) -> &'static str {
    match (method, path) {
        ("POST", "/v1/txns") => "begin",
        ("POST", "/v1/txns/batch-commit") => "batch",
        ("POST", path) if path.ends_with("/commit") => "commit",
        ("GET", path) if path.starts_with("/v1/txns/") => "status",
        ("GET", path) if path.starts_with("/v1/log") => "log",
        ("POST", path) if path.ends_with("/rows/read") => "rows",
        _ => "other",
    }
}

pub fn begun(number: usize) -> Reply {
    begun_as(&format!("txn-{number}"))
}

pub fn begun_as(id: &str) -> Reply {
    let body = json!({ "txn_id": id, "snapshots": { "kv": "7" }, "epoch": "8",
        "expires_at": "2026-01-01T00:00:00Z", "session": "s" });
    Reply::Json(201, body)
}

pub fn committed() -> Reply {
    let body = json!({ "status": "committed", "txn_id": "txn-0", "epoch": "9", "csn": "77", "version": "9437184",
        "lsn": { "kv": "3" }, "session": "9" });
    Reply::Json(200, body)
}

pub fn aborted(reason: &str, retryable: bool) -> Reply {
    let conflict = json!({ "store": "kv", "key": "a", "op": "read", "stage": "validate", "read_version": "8388608" });
    let body = json!({ "status": "aborted", "txn_id": "txn-0", "epoch": "9", "reason": reason,
        "retryable": retryable, "conflicts": [conflict] });
    Reply::Json(200, body)
}

pub fn problem(status: u16, code: &str, retryable: bool) -> Reply {
    let body = json!({ "type": "about:blank", "title": "x", "status": status, "detail": "says so", "code": code,
        "retryable": retryable, "errors": [{ "pointer": "/writes/0/key", "code": code, "detail": "is wrong" }] });
    Reply::Json(status, body)
}
