//! Stores and keys that another node has just created: a node that does not know them catches up before it rejects
//! them.

mod duplex;
mod fake_node;

use std::sync::Arc;

use duplex::{BOTH, Duplex, id};
use fake_node::client::Client;
use fake_node::{FakeNode, Others, Running, start_with};
use serde_json::{Value, json};
use tribunal_http::quota::TenantQuota;
use tribunal_http::{RouterOptions, ServerOptions};
use tribunal_service::Principal;
use tribunal_types::{NamespaceId, Roles};

fn principal(name: &str) -> Arc<Principal> {
    let namespace_name = format!("{name}-namespace");
    Arc::new(Principal { namespace: NamespaceId(0), namespace_name, roles: Roles::ALL, name: name.to_owned() })
}

/// Starts a node that learns of the store `new` and the key `fresh` when it catches up, if it can.
async fn member(reachable: bool, guarded: bool) -> Running {
    let node = FakeNode::new();
    node.principals.lock().unwrap().insert("known".into(), principal("old"));
    *node.others.lock().unwrap() = Some(Others { reachable, store: "new", key: ("fresh", principal("new")) });
    let access = guarded.then_some(TenantQuota { requests_max: 100, bytes_max: 1 << 30 });
    start_with(node, ServerOptions::default(), RouterOptions { access, ..RouterOptions::default() }).await
}

const JSON: (&str, &str) = ("content-type", "application/json");
const NDJSON: (&str, &str) = ("content-type", "application/x-ndjson");
const ID: &str = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a";

/// Returns requests that name a store: method, path, content type and body.
fn requests(store: &str) -> Vec<(&'static str, String, (&'static str, &'static str), String)> {
    let put = json!({"op": "put", "store": store, "key": "a", "value": 1});
    let line = json!({"txn_id": ID, "writes": [put]});
    let get = |path: String| ("GET", path, JSON, String::new());
    vec![
        get(format!("/v1/stores/{store}")),
        get(format!("/v1/stores/{store}/rows")),
        get(format!("/v1/stores/{store}/push/skips")),
        get(format!("/v1/snapshot?store={store}")),
        get(format!("/v1/log?store={store}&limit=1")),
        ("POST", format!("/v1/stores/{store}/rows/read"), JSON, json!({"read": [{"key": "a"}]}).to_string()),
        ("POST", "/v1/txns".into(), JSON, json!({"stores": [store]}).to_string()),
        ("POST", format!("/v1/txns/{ID}/commit"), JSON, json!({"writes": [put]}).to_string()),
        ("POST", format!("/v1/txns/{ID}/validate"), JSON, json!({"writes": [put]}).to_string()),
        ("POST", "/v1/txns/batch-commit".into(), JSON, json!({"txns": [line]}).to_string()),
        ("POST", "/v1/txns/batch-commit".into(), NDJSON, format!("{line}\n")),
    ]
}

/// Returns the status of a response, or of the problem in it.
fn status(reply: &fake_node::client::Reply) -> u64 {
    let text = String::from_utf8_lossy(&reply.body);
    let first: Value = serde_json::from_str(text.lines().next().unwrap_or_default()).unwrap_or_default();
    let problem = [&first["problem"], &first["results"][0]["problem"]].into_iter().find_map(|p| p["status"].as_u64());
    problem.unwrap_or(u64::from(reply.status))
}

#[tokio::test]
async fn a_store_that_another_node_has_created_is_found() {
    for (method, path, kind, body) in requests("new") {
        let server = member(true, false).await;
        let mut client = Client::connect(server.address).await;
        let reply = client.call(method, &path, &[kind], body.as_bytes()).await;
        assert!(status(&reply) < 300, "{method} {path}: {}", String::from_utf8_lossy(&reply.body));
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_store_that_no_node_has_created_is_refused_for_good() {
    let server = member(true, false).await;
    for (method, path, kind, body) in requests("nobody") {
        let mut client = Client::connect(server.address).await;
        let reply = client.call(method, &path, &[kind], body.as_bytes()).await;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(status(&reply), 404, "{method} {path}: {text}");
        assert!(text.contains("unknown_store") && !text.contains("\"retryable\":true"), "{method} {path}: {text}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_that_cannot_tell_whether_a_store_exists_says_so() {
    let server = member(false, false).await;
    for (method, path, kind, body) in requests("new") {
        let mut client = Client::connect(server.address).await;
        let reply = client.call(method, &path, &[kind], body.as_bytes()).await;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert_eq!(status(&reply), 503, "{method} {path}: {text}");
        assert!(text.contains("no majority") && text.contains("\"retryable\":true"), "{method} {path}: {text}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_stores_of_a_namespace_that_another_node_has_created_can_be_listed() {
    for (name, reachable, expected, code) in [
        ("old-namespace", false, 200, ""),
        ("new-namespace", true, 200, ""),
        ("other-namespace", true, 404, "not_found"),
        ("new-namespace", false, 503, "unavailable"),
    ] {
        let server = member(reachable, false).await;
        let mut client = Client::connect(server.address).await;
        let reply = client.call("GET", &format!("/v1/admin/stores?namespace={name}"), &[JSON], b"").await;
        let text = String::from_utf8_lossy(&reply.body).into_owned();
        assert!(reply.status == expected && text.contains(code), "{name} {reachable}: {} {text}", reply.status);
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_stream_of_commits_finds_such_a_store_and_goes_on_meanwhile() {
    let put = |n: usize, store: &str| {
        let write = json!({"op": "put", "store": store, "key": "a", "value": 1});
        format!("{}\n", json!({"txn_id": id(n), "writes": [write]}))
    };
    for (reachable, new, nobody) in [(true, 200, 404), (false, 503, 503)] {
        for http in BOTH {
            let server = member(reachable, false).await;
            let mut stream = Duplex::open_with(http, server.address, &[]).await;
            stream.write([put(1, "new"), put(2, "kv"), put(3, "nobody")].concat()).await;
            stream.finish();
            let lines = stream.rest().await;
            let status = |n: usize| {
                let line = lines.iter().find(|line| line["txn_id"] == id(n)).expect("an answer");
                if line["status"] == "committed" { 200 } else { line["problem"]["status"].as_u64().expect("a status") }
            };
            assert_eq!([status(1), status(2), status(3)], [new, 200, nobody], "{http:?} {lines:?}");
            server.stop().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_key_that_another_node_has_created_lets_its_owner_in() {
    let commit = format!("/v1/txns/{ID}/commit");
    let body = json!({"writes": [{"op": "put", "store": "kv", "key": "a", "value": 1}]}).to_string();
    for (token, reachable, expected) in [
        ("Bearer fresh", true, 200),
        ("Bearer known", false, 200),
        ("Bearer other", true, 401),
        ("Bearer fresh", false, 503),
    ] {
        // Through the router, and through the fast path of commits.
        for (method, path, body) in [("GET", "/v1/stores", ""), ("POST", &*commit, &*body)] {
            let server = member(reachable, true).await;
            let mut client = Client::connect(server.address).await;
            let headers = [JSON, ("authorization", token)];
            let reply = client.call(method, path, &headers, body.as_bytes()).await;
            assert_eq!(reply.status, expected, "{method} {token} {reachable}");
            // The reason would name the other nodes.
            let text = String::from_utf8_lossy(&reply.body).into_owned();
            assert!(!text.contains("no majority"), "{method} {token}: {text}");
            assert_eq!(text.contains("another node"), expected == 503, "{method} {token}: {text}");
            server.stop().await.unwrap();
        }
    }
}
