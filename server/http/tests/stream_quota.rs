//! Memory of streams and long responses whose clients do not read: how much of a quota they use, measured by the size
//! of the requests that still have room beside them.

mod fake_node;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fake_node::client::Client;
use fake_node::{FakeNode, Running, start_with};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tribunal_http::quota::TenantQuota;
use tribunal_http::{RouterOptions, ServerOptions};
use tribunal_service::Principal;
use tribunal_types::{NamespaceId, Roles};

/// Long enough for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const KEY: (&str, &str) = ("authorization", "Bearer known");
const NDJSON: &str = "application/x-ndjson";
/// Bytes of each value in the log.
const VALUE_BYTES: usize = 1_000_000;
/// The quota: a few records.
const QUOTA_BYTES: usize = 5_800_000;

/// Bytes of a response that a client accepts without reading: the head of a state image.
const UNREAD_BYTES: u32 = 1024;

type Requests = SendRequest<Empty<Bytes>>;

/// Starts a node with `records` long records, whose callers share [`QUOTA_BYTES`].
async fn started(guarded: bool, records: usize) -> Running {
    let node = FakeNode::new();
    let (namespace_name, name) = ("default".to_owned(), "engine".to_owned());
    let principal = Principal { namespace: NamespaceId(0), namespace_name, roles: Roles::ALL, name };
    node.principals.lock().unwrap().insert("known".into(), Arc::new(principal));
    let access = guarded.then_some(TenantQuota { requests_max: 1000, bytes_max: QUOTA_BYTES });
    let router = RouterOptions { access, open_bytes_max: QUOTA_BYTES, ..RouterOptions::default() };
    let server = start_with(node, ServerOptions::default(), router).await;
    for n in 0..records {
        commit(&server, n).await;
    }
    server
}

async fn commit(server: &Running, n: usize) {
    let value = "v".repeat(VALUE_BYTES);
    let body = format!(r#"{{"writes": [{{"op": "put", "store": "kv", "key": "k{n}", "value": "{value}"}}]}}"#);
    let path = format!("/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b{n:02x}/commit");
    let headers = [KEY, ("content-type", "application/json")];
    let reply = Client::connect(server.address).await.call("POST", &path, &headers, body.as_bytes()).await;
    assert_eq!(reply.json()["status"], "committed");
}

/// Connects a client that accepts `window` bytes of a response before it reads them.
async fn connect(address: SocketAddr, window: u32) -> Requests {
    let socket = TcpStream::connect(address).await.unwrap();
    let builder = Builder::new(TokioExecutor::new()).initial_stream_window_size(window).clone();
    let (requests, connection) = builder.handshake(TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    requests
}

fn ask(requests: &Requests, address: SocketAddr, path: &str) -> impl Future<Output = Response<Incoming>> + use<> {
    let request = Request::get(format!("http://{address}{path}")).header(KEY.0, KEY.1).header("accept", accepted(path));
    let mut requests = requests.clone();
    async move { requests.send_request(request.body(Empty::new()).unwrap()).await.unwrap() }
}

fn accepted(path: &str) -> &'static str {
    if path.starts_with("/v1/log") || path.ends_with("/state") { NDJSON } else { "application/json" }
}

/// Returns the responses to `count` simultaneous requests, which stay unread.
async fn unread(server: &Running, path: &str, count: usize) -> Vec<Response<Incoming>> {
    let requests = connect(server.address, UNREAD_BYTES).await;
    let asked: Vec<_> = (0..count).map(|_| tokio::spawn(ask(&requests, server.address, path))).collect();
    let mut responses = Vec::new();
    for response in asked {
        responses.push(tokio::time::timeout(TIMEOUT, response).await.expect("a response").unwrap());
    }
    responses
}

/// Returns whether the quota has room for a request with this many bytes.
async fn has_room(server: &Running, bytes: usize) -> bool {
    let mut client = Client::connect(server.address).await;
    let head = format!(
        "POST /v1/stores/kv/push/resume HTTP/1.1\r\nhost: x\r\nauthorization: Bearer known\r\ncontent-length: {bytes}\r\n\r\n"
    );
    client.socket.write_all(head.as_bytes()).await.expect("sent");
    // The body is not needed.
    client.reply().await.expect("an answer").status != 429
}

/// Waits until there is room for `bytes`, and not for `VALUE_BYTES` more.
async fn has_exactly(server: &Running, bytes: usize) {
    let begun = Instant::now();
    while !has_room(server, bytes).await || has_room(server, bytes + VALUE_BYTES).await {
        assert!(begun.elapsed() < TIMEOUT, "there never was room for {bytes} bytes, and only for them");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until nothing is in flight.
async fn has_all(server: &Running) {
    let begun = Instant::now();
    while !has_room(server, QUOTA_BYTES).await {
        assert!(begun.elapsed() < TIMEOUT, "the room was never given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn lines(response: Response<Incoming>) -> Vec<Value> {
    let text = tokio::time::timeout(TIMEOUT, response.into_body().collect()).await.expect("an end");
    let text = String::from_utf8(text.expect("a body").to_bytes().to_vec()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[tokio::test]
async fn streams_that_are_not_read_have_no_more_room_than_the_quota() {
    for guarded in [true, false] {
        for path in ["/v1/log?store=kv", "/v1/log?store=kv&limit=1"] {
            let server = started(guarded, 1).await;
            let responses = unread(&server, path, 20).await;
            let (open, refused): (Vec<_>, Vec<_>) = responses.into_iter().partition(|one| one.status() == 200);
            assert!((1..=QUOTA_BYTES / VALUE_BYTES).contains(&open.len()), "{guarded} {path}: {} are open", open.len());
            for response in refused {
                assert_eq!(response.status(), 429);
                assert_eq!(lines(response).await[0]["code"], "quota_exceeded");
            }
            drop(open);
            let reader = connect(server.address, 1 << 20).await;
            let begun = Instant::now();
            let read = loop {
                let response = ask(&reader, server.address, "/v1/log?store=kv&limit=1").await;
                if response.status() == 200 {
                    break lines(response).await;
                }
                assert!(begun.elapsed() < TIMEOUT, "the room was never given back");
            };
            assert_eq!((&read[1]["lsn"], &read[2]["reason"]), (&"1".into(), &"limit".into()), "{guarded}");
            server.stop().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_stream_has_one_page_at_a_time() {
    let server = started(true, 4).await;
    let log = unread(&server, "/v1/log?store=kv", 1).await;
    has_exactly(&server, QUOTA_BYTES - VALUE_BYTES - 10_000).await;
    drop(log);
    has_all(&server).await;
    let image = unread(&server, "/v1/stores/kv/state", 1).await;
    // Its head was sent, and one row waits.
    has_exactly(&server, QUOTA_BYTES - VALUE_BYTES - 10_000).await;
    drop(image);
    has_all(&server).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_stream_that_finds_no_room_ends_with_the_problem() {
    let server = started(true, 1).await;
    let reader = connect(server.address, 1 << 20).await;
    let waiting = ask(&reader, server.address, "/v1/log?store=kv&after=1").await;
    let held = unread(&server, "/v1/log?store=kv", 4).await;
    assert!(held.iter().all(|response| response.status() == 200));
    has_exactly(&server, QUOTA_BYTES - 4 * VALUE_BYTES - 10_000).await;
    commit(&server, 1).await;
    let read = lines(waiting).await;
    let end = read.last().expect("an end");
    assert_eq!((&end["reason"], &end["next"]), (&"quota_exceeded".into(), &"1".into()));
    assert_eq!(end["problem"]["retryable"], true);
    drop(held);
    let again = ask(&reader, server.address, "/v1/log?store=kv&after=1&limit=1").await;
    assert_eq!(lines(again).await[1]["lsn"], "2");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn responses_that_are_ready_at_once_have_no_more_room_than_the_quota() {
    for guarded in [true, false] {
        let server = started(guarded, 1).await;
        server.node.reads_held.send_replace(true);
        let node = Arc::clone(&server.node);
        let released = tokio::spawn(async move {
            let begun = Instant::now();
            while node.reads_waiting() < 20 {
                assert!(begun.elapsed() < TIMEOUT, "the reads never came");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            node.reads_held.send_replace(false);
        });
        let responses = unread(&server, "/v1/stores/kv/rows", 20).await;
        released.await.unwrap();
        let (held, refused): (Vec<_>, Vec<_>) = responses.into_iter().partition(|one| one.status() == 200);
        assert_eq!(held.len(), QUOTA_BYTES / VALUE_BYTES, "{guarded}");
        for response in refused {
            assert_eq!(lines(response).await[0]["code"], "quota_exceeded");
        }
        drop(held);
        server.stop().await.unwrap();
    }
}
