//! Requests counted as in flight for a tenant whose callers disconnect.

mod fake_node;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fake_node::client::Client;
use fake_node::{FakeNode, start_with};
use tokio::io::AsyncWriteExt;
use tribunal_http::quota::TenantQuota;
use tribunal_http::{RouterOptions, ServerOptions};
use tribunal_service::Principal;
use tribunal_types::{NamespaceId, Roles};

const ID: &str = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a";
const BODY: &str = r#"{"writes": [{"op": "put", "store": "kv", "key": "k", "value": 1}]}"#;
/// The retry delay that the node sends to callers.
const COME_BACK: Duration = Duration::from_millis(1500);
const TIMEOUT: Duration = Duration::from_secs(60);

async fn send(client: &mut Client, path: &str, body: &str) {
    let head =
        format!("POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer known\r\ncontent-type: application/json");
    let request = format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    client.socket.write_all(request.as_bytes()).await.expect("sent");
}

#[tokio::test]
async fn the_permit_of_an_abandoned_commit_stays_taken_while_the_commit_may_wait() {
    let node = FakeNode::slow(TIMEOUT);
    let (namespace_name, name) = ("default".to_owned(), "engine".to_owned());
    let principal = Principal { namespace: NamespaceId(0), namespace_name, roles: Roles::ALL, name };
    node.principals.lock().unwrap().insert("known".into(), Arc::new(principal));
    // A connection that the client has closed looks half-closed for this long.
    let options = ServerOptions { header_timeout: Duration::from_secs(1), ..ServerOptions::default() };
    let access = Some(TenantQuota { requests_max: 1, bytes_max: 1 << 20 });
    let server = start_with(node, options, RouterOptions { access, ..RouterOptions::default() }).await;
    let path = format!("/v1/txns/{ID}/commit");
    let mut waiting = Client::connect(server.address).await;
    send(&mut waiting, &path, BODY).await;
    let begun = Instant::now();
    let status = async || {
        let mut other = Client::connect(server.address).await;
        send(&mut other, "/v1/stores/kv/push/resume", "{}").await;
        other.reply().await.expect("an answer").status
    };
    while status().await != 429 {
        assert!(begun.elapsed() < TIMEOUT, "the commit never came");
        // The quota allows one request at a time, so the commit may be the refused one.
        if let Ok(refused) = tokio::time::timeout(Duration::from_millis(50), waiting.reply()).await {
            assert_eq!(refused.expect("an answer").status, 429);
            send(&mut waiting, &path, BODY).await;
        }
    }
    let gone = Instant::now();
    drop(waiting);
    while status().await == 429 {
        assert!(gone.elapsed() < TIMEOUT, "the place was never given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(gone.elapsed() >= COME_BACK, "given back at once, after {:?}", gone.elapsed());
    server.stop().await.unwrap();
}
