//! Responses that HTTP/2 clients request and do not read, while they keep their connections alive.

mod fake_node;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use fake_node::client::Client;
use fake_node::{FakeNode, Running, start, start_with};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tribunal_http::quota::TenantQuota;
use tribunal_http::{RouterOptions, ServerOptions};
use tribunal_service::Principal;
use tribunal_types::{NamespaceId, Roles};

/// Long enough for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Unread responses are dropped after this duration.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(5);
const KEY: (&str, &str) = ("authorization", "Bearer known");
/// A record of 200 kB.
const LOG: &str = "/v1/log?store=kv";

type Requests = SendRequest<Empty<Bytes>>;

/// Connects a client that accepts `window` bytes of a response before it reads them, and sends pings all the time.
async fn connect(address: SocketAddr, window: u32) -> Requests {
    let socket = TcpStream::connect(address).await.unwrap();
    let (requests, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(window)
        .keep_alive_interval(Duration::from_millis(50))
        .keep_alive_while_idle(true)
        .handshake(TokioIo::new(socket))
        .await
        .unwrap();
    tokio::spawn(connection);
    requests
}

/// Requests a response and leaves it unread.
async fn ask(requests: &Requests, address: SocketAddr, path: &str) -> Response<Incoming> {
    let request = Request::get(format!("http://{address}{path}")).header(KEY.0, KEY.1).body(Empty::new()).unwrap();
    let response = requests.clone().send_request(request).await.unwrap();
    assert_eq!(response.status(), 200, "{path}");
    response
}

/// Returns `digits` hexadecimal digits, which compression halves at most.
fn incompressible(digits: u64) -> String {
    (0..digits / 16).map(|n| format!("{:016x}", xxhash_rust::xxh3::xxh3_64(&n.to_le_bytes()))).collect()
}

/// Starts a server whose log has something to read.
async fn guarded(quota: TenantQuota) -> Running {
    let node = FakeNode::new();
    let (namespace_name, name) = ("default".to_owned(), "engine".to_owned());
    let principal = Principal { namespace: NamespaceId(0), namespace_name, roles: Roles::ALL, name };
    node.principals.lock().unwrap().insert("known".into(), Arc::new(principal));
    let options = ServerOptions { idle_timeout: UNREAD_TIMEOUT, ..ServerOptions::default() };
    let server = start_with(node, options, RouterOptions { access: Some(quota), ..RouterOptions::default() }).await;
    let value = incompressible(200_000);
    let body = format!(r#"{{"writes": [{{"op": "put", "store": "kv", "key": "k", "value": "{value}"}}]}}"#);
    let commit = "/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a/commit";
    let headers = [KEY, ("content-type", "application/json")];
    let mut client = Client::connect(server.address).await;
    assert_eq!(client.call("POST", commit, &headers, body.as_bytes()).await.status, 200);
    server
}

/// Returns the status of a request with a body of this size, or without one, on another connection.
async fn status(server: &Running, bytes: usize) -> u16 {
    let mut client = Client::connect(server.address).await;
    let body = if bytes == 0 { String::new() } else { format!("{{{}}}", " ".repeat(bytes - 2)) };
    let headers = [KEY, ("content-type", "application/json")];
    client.call("POST", "/v1/stores/kv/push/resume", &headers, body.as_bytes()).await.status
}

async fn eventually_free(server: &Running, bytes: usize, why: &str) {
    let begun = std::time::Instant::now();
    loop {
        let status = status(server, bytes).await;
        if status == 200 {
            return;
        }
        assert!(begun.elapsed() < TIMEOUT, "{why}: {status} for a body of {bytes} bytes");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_unread_answer_counts_as_in_flight_until_it_is_given_up() {
    let (by_requests, by_bytes) = ((1, 1 << 30), (100, 150_000));
    // Its encoder counts, too: without it, there would be room for the request that follows.
    let by_encoder = (100, 250_000 + (512 << 10));
    let cases = [(by_requests, "", 0), (by_bytes, "", 0), (by_encoder, "gzip", 400_000)];
    for ((requests_max, bytes_max), encoding, bytes) in cases {
        let server = guarded(TenantQuota { requests_max, bytes_max }).await;
        let requests = connect(server.address, 1).await;
        let request = Request::get(format!("http://{}{LOG}", server.address))
            .header(KEY.0, KEY.1)
            .header("accept-encoding", encoding)
            .body(Empty::new())
            .unwrap();
        let unread = requests.clone().send_request(request).await.unwrap();
        assert_eq!(unread.headers().contains_key("content-encoding"), !encoding.is_empty());
        assert_eq!(status(&server, bytes).await, 429, "{requests_max} requests, {bytes_max} bytes, {encoding}");
        eventually_free(&server, bytes, "it waits although nothing but pings moves").await;
        assert!(unread.into_body().collect().await.is_err(), "it was given up");
        let on = ask(&requests, server.address, "/v1/stores/kv").await.into_body().collect().await;
        assert!(on.is_ok(), "the connection goes on");
        let reader = connect(server.address, 1 << 20).await;
        let whole = ask(&reader, server.address, LOG).await.into_body().collect().await.unwrap().to_bytes();
        assert!(whole.len() > 200_000);
        eventually_free(&server, bytes, "it counts although it was taken").await;
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn encoders_of_unread_answers_are_as_many_as_their_tenant_has_room_for() {
    let server = guarded(TenantQuota { requests_max: 1000, bytes_max: 20 << 20 }).await;
    let requests = connect(server.address, 1).await;
    let mut unread = Vec::new();
    for _ in 0..15 {
        let request = Request::get(format!("http://{}{LOG}", server.address))
            .header(KEY.0, KEY.1)
            .header("accept-encoding", "zstd")
            .body(Empty::new())
            .unwrap();
        unread.push(requests.clone().send_request(request).await.unwrap());
    }
    assert!(unread.iter().all(|response| response.status() == 200), "there is room for what is not compressed");
    let compressed = unread.iter().filter(|response| response.headers().contains_key("content-encoding")).count();
    // An encoder takes about 4 MiB.
    assert!((1..=4).contains(&compressed), "{compressed} of {} are compressed", unread.len());
    drop(unread);
    let request = || {
        let request = Request::get(format!("http://{}{LOG}", server.address)).header(KEY.0, KEY.1);
        requests.clone().send_request(request.header("accept-encoding", "zstd").body(Empty::new()).unwrap())
    };
    let begun = std::time::Instant::now();
    while !request().await.unwrap().headers().contains_key("content-encoding") {
        assert!(begun.elapsed() < TIMEOUT, "the encoders count although their answers were given up");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    server.stop().await.unwrap();
}

/// Returns this process's resident memory in bytes, if the system reports it.
fn resident_bytes() -> Option<usize> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    statm.split(' ').nth(1)?.parse::<usize>().ok().map(|pages| pages * 4096)
}

#[tokio::test]
async fn documents_that_wait_to_be_read_hold_no_memory_of_their_own() {
    let Some(before) = resident_bytes() else {
        println!("SKIPPED: this system does not tell how much memory a process has");
        return;
    };
    let server = start().await;
    let mut unread = Vec::new();
    for _ in 0..2 {
        let requests = connect(server.address, 1).await;
        for _ in 0..250 {
            unread.push(ask(&requests, server.address, "/openapi.json").await);
        }
        unread.push(ask(&requests, server.address, "/healthz").await);
    }
    let grown = resident_bytes().unwrap_or_default().saturating_sub(before);
    // Each has 300 kB.
    assert!(grown < 60_000_000, "{grown} bytes for {} answers", unread.len());
    server.stop().await.unwrap();
}
