//! Requests as clients send them, through all routes: whatever they say, each gets an answer that is no fault of the
//! server's, and a refusal says what is wrong and where.

use std::cell::RefCell;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Method, Request, StatusCode, Uri, header};
use futures_util::stream::iter;
use http_body_util::BodyExt;
use tower::ServiceExt;
use tribunal_api::{BatchCommitRequest, CommitRequest, Problem};
use tribunal_http::RouterOptions;
use tribunal_http::request::caller::CallerContext;
use tribunal_http::request::json::document;
use tribunal_http::request::plain_commit::plain_commit;
use tribunal_http::request::plain_json::PlainJson;
use tribunal_http::request::txn_body::TxnSeed;
use tribunal_http::response::field_error::Path;
use tribunal_service::StoreApi;
use tribunal_types::TxnId;

#[path = "../../../server/http/tests/fake_node/mod.rs"]
pub(crate) mod fake_node;

use fake_node::FakeNode;

/// The route whose answer is written while its body is read.
const STREAM: &str = "/v1/txns/stream";
/// Requests that one node takes, before a new one stands in.
const REQUESTS_MAX: usize = 256;
/// How long an answer is waited for; some are written for as long as somebody reads.
const TIMEOUT: Duration = Duration::from_millis(20);

struct Stage {
    runtime: tokio::runtime::Runtime,
    router: Router,
    requests: usize,
}

impl Stage {
    fn new() -> Stage {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let router =
            tribunal_http::router(tribunal_service::Service::of(&Arc::new(FakeNode::new())), RouterOptions::default());
        Stage { runtime, router, requests: 0 }
    }
}

thread_local! {
    static STAGE: RefCell<Stage> = RefCell::new(Stage::new());
}

/// Sends one request and tells whether it succeeded: a line `METHOD PATH CONTENT-TYPE`, the rest is the body.
pub fn run(data: &[u8]) -> bool {
    let Some((line, body)) = data.split_at_checked(data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len()))
    else {
        return false;
    };
    let body = body.get(1..).unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (Some(Ok(method)), Some(Ok(uri))) = (words.next().map(Method::from_bytes), words.next().map(Uri::try_from))
    else {
        return false;
    };
    both_readers_agree(body);
    let mut request = Request::builder().method(method).uri(uri.clone());
    if let Some(kind) = words.next() {
        request = request.header(header::CONTENT_TYPE, kind);
    }
    // A stream takes its body in a frame at a time.
    let whole = if uri.path() == STREAM { body.len() / 3 + 1 } else { body.len().max(1) };
    let frames: Vec<_> = body.chunks(whole).map(|frame| Ok::<_, Infallible>(frame.to_vec())).collect();
    let sent = if frames.len() > 1 { Body::from_stream(iter(frames)) } else { Body::from(body.to_vec()) };
    let Ok(request) = request.body(sent) else { return false };
    STAGE.with_borrow_mut(|stage| {
        if stage.requests == REQUESTS_MAX {
            *stage = Stage::new();
        }
        stage.requests += 1;
        let router = stage.router.clone();
        let answered = stage.runtime.block_on(async {
            tokio::time::timeout(TIMEOUT, async {
                let Ok(response) = router.oneshot(request).await;
                let (parts, body) = response.into_parts();
                let body = body.collect().await.expect("an answer can be read").to_bytes();
                (parts, body)
            })
            .await
        });
        let Ok((parts, answer)) = answered else { return false };
        let kind = parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        check(&uri, body, parts.status, kind, &answer);
        parts.status.is_success() && (uri.path() != STREAM || stream_took_all(&answer))
    })
}

/// What the short reader of commits takes, the reader of all of JSON takes as well, and as the same.
fn both_readers_agree(body: &[u8]) {
    let Ok(text) = std::str::from_utf8(body) else { return };
    let (catalog, caller) = (FakeNode::new().catalog(), CallerContext::default());
    for id in [None, Some(TxnId::default())] {
        let seed = TxnSeed { catalog: &catalog, caller: &caller, id, at: Path::Root, bytes_hint: text.len() };
        let mut json = PlainJson::new(text);
        if let Some(plain) = plain_commit(&mut json, &seed).filter(|_| json.is_over()) {
            assert_eq!(Ok(plain), document(text, seed), "{text}");
        }
    }
}

/// Tells whether every line of a stream was a commit.
fn stream_took_all(answer: &[u8]) -> bool {
    let lines = answer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let lines: Vec<serde_json::Value> = lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect();
    let end = lines.last().expect("an end");
    assert_eq!(end["event"], "end", "{end}");
    lines.iter().all(|line| line.get("problem").is_none())
}

fn check(uri: &Uri, body: &[u8], status: StatusCode, kind: &str, answer: &[u8]) {
    // "Not now" is an answer: to a session of an epoch to come, for one. And this node is never ready.
    let later = status == StatusCode::SERVICE_UNAVAILABLE;
    assert!(!status.is_server_error() || later, "{status}: {}", String::from_utf8_lossy(answer));
    if !status.is_success() {
        if uri.path() != "/readyz" {
            refused(status, kind, answer);
        }
        return;
    }
    if kind == "application/json" {
        let parsed = serde_json::from_slice::<serde::de::IgnoredAny>(answer);
        assert!(parsed.is_ok(), "{}", String::from_utf8_lossy(answer));
    }
    // What the server takes is what the specification describes, and it says the same when it is written again.
    if uri.path().ends_with("/batch-commit") && body.trim_ascii().starts_with(b"{\"txns\"") {
        // Items are judged one by one: a bad one does not spoil the others.
        return drop(serde_json::from_slice::<BatchCommitRequest>(body));
    }
    if uri.path().ends_with("/commit") {
        let read: CommitRequest = serde_json::from_slice(body).expect("a body that was taken fits the specification");
        let written = serde_json::to_string(&read).expect("JSON");
        let again: CommitRequest = serde_json::from_str(&written).expect("its own words");
        assert_eq!(serde_json::to_string(&again).expect("JSON"), written);
    }
}

fn refused(status: StatusCode, kind: &str, answer: &[u8]) {
    assert_eq!(kind, "application/problem+json", "{status}");
    let problem: Problem = serde_json::from_slice(answer).expect("a problem");
    assert!(!problem.code.is_empty() && !problem.detail.is_empty(), "{problem:?}");
    for error in problem.errors {
        // Into the body, the query, the path, or a header.
        let place =
            error.pointer.is_empty() || error.pointer.starts_with(['/', '?', '{']) || error.pointer.ends_with(':');
        assert!(place, "{}", error.pointer);
        assert!(!error.code.is_empty() && !error.detail.is_empty(), "{error:?}");
    }
}
