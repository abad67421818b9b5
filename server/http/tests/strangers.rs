//! Connections of strangers and of a tenant that opens too many: how many the service accepts, and how requests end when
//! their key is revoked.

mod fake_node;

use std::sync::Arc;
use std::time::Duration;

use fake_node::client::Client;
use fake_node::{FakeNode, Running, start_with};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tribunal_http::quota::TenantQuota;
use tribunal_http::{RouterOptions, ServerOptions};
use tribunal_service::Principal;
use tribunal_types::{NamespaceId, Roles};

/// Long enough for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(60);
/// No connection is cut for silence before a test times out.
const SILENCE: Duration = Duration::from_secs(600);
/// End of a complete chunked response.
const LAST_CHUNK: &[u8] = b"\r\n0\r\n\r\n";
const KEY: (&str, &str) = ("authorization", "Bearer known");

async fn guarded(connections_max: usize) -> Running {
    let node = FakeNode::new();
    for (token, namespace) in [("known", NamespaceId(0)), ("tenant", NamespaceId(1))] {
        let (namespace_name, name) = (format!("namespace-{}", namespace.0), "someone".to_owned());
        let principal = Principal { namespace, namespace_name, roles: Roles::ALL, name };
        node.principals.lock().unwrap().insert(token.into(), Arc::new(principal));
    }
    let access = Some(TenantQuota { requests_max: 100, bytes_max: 1 << 30 });
    let (header_timeout, idle_timeout) = (SILENCE, SILENCE);
    let options = ServerOptions { connections_max, header_timeout, idle_timeout, ..ServerOptions::default() };
    start_with(node, options, RouterOptions { access, ..RouterOptions::default() }).await
}

#[tokio::test]
async fn silent_connections_without_a_key_make_room_for_new_ones() {
    let server = guarded(8).await;
    let mut known = Client::connect(server.address).await;
    assert_eq!(known.call("GET", "/v1/stores", &[KEY], b"").await.status, 200);
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(Client::connect(server.address).await);
    }
    // A connection with requests but no credentials counts as silent.
    let mut asking = Client::connect(server.address).await;
    assert_eq!(asking.get("/healthz").await.status, 200);
    for _ in 0..20 {
        let mut client = Client::connect(server.address).await;
        let reply =
            tokio::time::timeout(TIMEOUT, client.call("GET", "/v1/stores", &[("authorization", "Bearer bad")], b""));
        assert_eq!(reply.await.expect("a stranger that asks is answered").status, 401);
        silent.push(client);
    }
    let mut other = Client::connect(server.address).await;
    let reply = tokio::time::timeout(TIMEOUT, other.call("GET", "/v1/stores", &[KEY], b"")).await;
    assert_eq!(reply.expect("room is made at once").status, 200);
    assert_eq!(known.call("GET", "/v1/stores", &[KEY], b"").await.status, 200, "a known caller's connection stays");
    drop(silent);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn idle_connections_of_one_tenant_make_room_for_new_ones() {
    const TENANT: (&str, &str) = ("authorization", "Bearer tenant");
    let server = guarded(8).await;
    let mut few = Client::connect(server.address).await;
    assert_eq!(few.call("GET", "/v1/consumers", &[KEY], b"").await.status, 200);
    let mut busy = Client::connect(server.address).await;
    busy.send("GET", "/v1/consumers", &[TENANT], b"").await;
    assert_eq!(busy.reply().await.expect("a response").status, 200);
    busy.send("GET", "/v1/stats?interval_ms=60000", &[TENANT, ("accept", "text/event-stream")], b"").await;
    let mut text = Vec::new();
    while !text.ends_with(b"\n\n\r\n") {
        assert!(busy.socket.read_buf(&mut text).await.expect("bytes") > 0);
    }
    let mut many = Vec::new();
    for _ in 0..20 {
        let mut client = Client::connect(server.address).await;
        let reply = tokio::time::timeout(TIMEOUT, client.call("GET", "/v1/consumers", &[TENANT], b"")).await;
        assert_eq!(reply.expect("its older connections are closed").status, 200);
        many.push(client);
    }
    let mut operator = Client::connect(server.address).await;
    let reply = tokio::time::timeout(TIMEOUT, operator.call("GET", "/v1/stores", &[KEY], b"")).await;
    assert_eq!(reply.expect("room is made").status, 200);
    let mut anonymous = Client::connect(server.address).await;
    let reply = tokio::time::timeout(TIMEOUT, anonymous.get("/healthz")).await;
    assert_eq!(reply.expect("room is made").status, 200);
    assert_eq!(few.call("GET", "/v1/consumers", &[KEY], b"").await.status, 200, "the other tenant's connection stays");
    let cut = tokio::time::timeout(Duration::from_millis(200), busy.socket.read_u8()).await;
    assert!(cut.is_err(), "a stream is not idle");
    server.node.stops.send_replace(true);
    drop((many, busy));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_long_poll_ends_when_its_key_is_revoked() {
    let server = guarded(100).await;
    let mut client = Client::connect(server.address).await;
    client.send("GET", "/v1/log?store=kv&after=0&wait_ms=60000", &[KEY], b"").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    server.node.principals.lock().unwrap().clear();
    let reply = tokio::time::timeout(TIMEOUT, client.reply()).await.expect("before the wait is over");
    assert_eq!(reply.expect("a response").status, 401);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_stream_of_a_log_ends_with_the_reason_when_its_key_is_revoked() {
    for (accept, end) in [("application/x-ndjson", "{\"event\":\"end\""), ("text/event-stream", "event: end")] {
        let server = guarded(100).await;
        let mut client = Client::connect(server.address).await;
        client.send("GET", "/v1/log?store=kv&after=0", &[KEY, ("accept", accept)], b"").await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.node.principals.lock().unwrap().clear();
        let mut bytes = Vec::new();
        let whole = async {
            while !bytes.ends_with(LAST_CHUNK) {
                assert!(client.socket.read_buf(&mut bytes).await.expect("bytes") > 0, "it broke off");
            }
        };
        tokio::time::timeout(TIMEOUT, whole).await.expect("long before the next heartbeat");
        let text = String::from_utf8(bytes).expect("text");
        let last = text.rsplit(end).next().unwrap_or_default();
        assert!(text.starts_with("HTTP/1.1 200") && last.contains("\"reason\":\"unauthenticated\""), "{text}");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_commit_whose_body_ends_after_its_key_was_revoked_is_refused() {
    let server = guarded(100).await;
    let body = r#"{"writes":[{"store":"kv","op":"put","key":"a","value":1}]}"#;
    for path in ["0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a/commit", "batch-commit"] {
        let principal = server.node.principals.lock().unwrap()["known"].clone();
        let mut client = Client::connect(server.address).await;
        let head = format!(
            "POST /v1/txns/{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer known\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        client.socket.write_all(head.as_bytes()).await.unwrap();
        client.socket.write_all(&body.as_bytes()[..9]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        server.node.principals.lock().unwrap().clear();
        client.socket.write_all(&body.as_bytes()[9..]).await.unwrap();
        let reply = tokio::time::timeout(TIMEOUT, client.reply()).await.expect("in time").expect("a response");
        assert_eq!((reply.status, reply.header("www-authenticate")), (401, Some("Bearer")), "{path}");
        assert_eq!(server.node.begun(), 0, "{path}");
        server.node.principals.lock().unwrap().insert("known".into(), principal);
    }
    server.stop().await.unwrap();
}
