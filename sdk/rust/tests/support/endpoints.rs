//! Endpoints of one service that reply by a script, and clients of them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tribunal_client::{Client, ClientOptions, Error, IsolationLevel, Outcome, PreparedCommit, RetryPolicy};

/// What an endpoint does with a request.
pub enum Reply {
    Json(u16, Value),
    /// A proxy responds in its place, with this content type and text.
    Page(&'static str, &'static str),
    /// The same, with a status.
    Failure(u16, &'static str),
    /// It responds with these lines.
    Lines(Vec<Value>),
    /// It reads the request and closes the connection.
    Lost,
    /// It reads the request and never responds.
    Silent,
    /// It responds late.
    Late(Duration, Box<Reply>),
}

/// A request as it arrived: its path and its body.
pub type Asked = (String, String);

pub struct Endpoint {
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Endpoint {
    /// Starts an endpoint that replies by `script`, which gets the kind of a request, the ids in it and how many requests came
    /// before.
    pub async fn start(script: impl Fn(&str, &[String], usize) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has free ports");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let (script, log) = (Arc::new(script), Arc::clone(&asked));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (script, log) = (Arc::clone(&script), Arc::clone(&log));
                    async move { respond(request, &*script, &log).await }
                });
                tokio::spawn(async move {
                    let http = hyper::server::conn::http1::Builder::new();
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Endpoint { url, asked }
    }

    pub async fn that_commits() -> Self {
        Endpoint::start(|kind, ids, _| works(kind, ids)).await
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no test panics with it").clone()
    }
}

async fn respond(
    request: Request<Incoming>,
    script: &(impl Fn(&str, &[String], usize) -> Reply + Send + Sync),
    log: &Mutex<Vec<Asked>>,
) -> Result<Response<Full<Bytes>>, &'static str> {
    let path = request.uri().to_string();
    let kind = kind_of(&path);
    // A stream is read up to its first line: its end comes only after the replies.
    let mut body = request.into_body();
    let mut text = Vec::new();
    while let Some(Ok(frame)) = body.frame().await {
        text.extend_from_slice(&frame.into_data().unwrap_or_default());
        if kind == "stream" && text.ends_with(b"\n") {
            break;
        }
    }
    let text = String::from_utf8(text).expect("JSON");
    let before = {
        let mut log = log.lock().expect("no test panics with it");
        log.push((path.clone(), text.clone()));
        log.len() - 1
    };
    let mut response = Response::builder();
    let mut reply = script(kind, &ids_of(&path, &text), before);
    if let Reply::Late(wait, late) = reply {
        tokio::time::sleep(wait).await;
        reply = *late;
    }
    let (status, text) = match reply {
        Reply::Json(status, body) => (status, body.to_string()),
        Reply::Lines(lines) => (200, lines.iter().map(|line| format!("{line}\n")).collect()),
        Reply::Page(content_type, text) => {
            if !content_type.is_empty() {
                response = response.header("content-type", content_type);
            }
            (200, text.to_owned())
        }
        Reply::Failure(status, text) => {
            response = response.header("content-type", "text/plain");
            (status, text.to_owned())
        }
        Reply::Lost => return Err("lost"),
        Reply::Silent | Reply::Late(..) => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            return Err("silent");
        }
    };
    Ok(response.status(status).body(Full::new(Bytes::from(text))).expect("a response"))
}

pub fn kind_of(path: &str) -> &'static str {
    match path {
        "/v1/txns" => "begin",
        "/v1/txns/stream" => "stream",
        "/v1/txns/batch-commit" => "batch",
        path if path.ends_with("/commit") => "commit",
        path if path.starts_with("/v1/log") => "log",
        path if path.starts_with("/v1/txns/") => "status",
        _ => "other",
    }
}

/// The ids of the commits of a request: in its lines, or in its path.
fn ids_of(path: &str, body: &str) -> Vec<String> {
    let ids = |line: &str| Some(serde_json::from_str::<Value>(line).ok()?["txn_id"].as_str()?.to_owned());
    let of_path = || path.split(['/', '?']).nth(3).unwrap_or_default().to_owned();
    match kind_of(path) {
        "batch" | "stream" => body.lines().filter_map(ids).collect(),
        _ => vec![of_path()],
    }
}

pub fn committed(id: &str) -> Value {
    json!({ "status": "committed", "txn_id": id, "epoch": "9", "csn": "7", "version": "5", "lsn": { "kv": "3" },
        "session": "s" })
}

pub fn problem(status: u16, code: &str) -> Value {
    json!({ "type": "about:blank", "title": "x", "status": status, "detail": "says so", "code": code,
        "retryable": status >= 500, "errors": [] })
}

pub fn refused(status: u16, code: &str) -> Reply {
    Reply::Json(status, problem(status, code))
}

pub fn works(kind: &str, ids: &[String]) -> Reply {
    match kind {
        "begin" => Reply::Json(
            201,
            json!({ "txn_id": "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a", "snapshots": { "kv": "7" }, "epoch": "8",
                "expires_at": "2026-01-01T00:00:00Z", "session": "s" }),
        ),
        "commit" | "status" => Reply::Json(200, committed(&ids[0])),
        "batch" | "stream" => Reply::Lines(ids.iter().map(|id| committed(id)).collect()),
        _ => Reply::Json(200, json!({ "stores": [] })),
    }
}

/// The times are for a busy machine: what is to happen does not wait for their end.
pub fn options() -> ClientOptions {
    ClientOptions {
        timeout: Duration::from_secs(60),
        resolve_timeout: Duration::from_secs(60),
        endpoint_timeout: Duration::from_secs(30),
        retry: RetryPolicy { attempts_max: 4, ..RetryPolicy::default() },
        ..ClientOptions::default()
    }
}

pub fn client(urls: &[&str], options: ClientOptions) -> Client {
    Client::with_endpoints(urls, options).expect("URLs")
}

pub fn prepared(client: &Client) -> PreparedCommit {
    let mut txn = client.begin_local(IsolationLevel::Serializable);
    txn.add("kv", "n", 1).expect("a number");
    txn.prepare()
}

#[track_caller]
pub fn assert_committed(outcome: Result<Outcome, Error>, prepared: &PreparedCommit) {
    match outcome {
        Ok(Outcome::Committed(committed)) => assert_eq!(committed.txn_id, prepared.txn_id),
        other => panic!("{other:?}"),
    }
}
