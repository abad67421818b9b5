//! Requests that web pages of other origins send to a node without access control.

mod fake_node;

use fake_node::client::Client;
use fake_node::{FakeNode, Running, start_named, start_with};
use http_body_util::Empty;
use hyper::Request;
use hyper::body::Bytes;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tribunal_http::quota::TenantQuota;
use tribunal_http::{HostNames, RouterOptions, ServerOptions};

const COMMIT: &str = "/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a/commit";
const BODY: &str = r#"{"writes": [{"op": "put", "store": "kv", "key": "k", "value": 1}]}"#;
/// The name in the test client's requests.
const NAME: &str = "x";

async fn code(server: &Running, path: &str, headers: &[(&str, &str)]) -> (u16, String) {
    let headers = [headers, &[("content-type", "application/json")]].concat();
    let reply = Client::connect(server.address).await.call("POST", path, &headers, BODY.as_bytes()).await;
    (reply.status, reply.json()["code"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn pages_of_other_origins_change_nothing() {
    let server = start_named(FakeNode::new(), HostNames::on_loopback(&[NAME.to_owned()])).await;
    let refused = (403, "foreign_page".to_owned());
    for path in [COMMIT, "/v1/cluster/nodes/7/drain", "/v1/stores/kv/push/resume", "/v1/txns/stream"] {
        for page in [("origin", "http://evil.test"), ("sec-fetch-site", "cross-site")] {
            assert_eq!(code(&server, path, &[page]).await, refused, "{path} {page:?}");
        }
    }
    assert_eq!(server.node.begun(), 0);
    assert_eq!(code(&server, COMMIT, &[("origin", "http://x"), ("sec-fetch-site", "same-origin")]).await.0, 200);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_on_loopback_is_called_by_known_names_only() {
    let server = start_named(FakeNode::new(), HostNames::on_loopback(&[])).await;
    let reply = Client::connect(server.address).await.call("POST", COMMIT, &[], BODY.as_bytes()).await;
    assert_eq!((reply.status, &reply.json()["code"]), (403, &"foreign_host".into()));
    assert!(reply.json()["detail"].as_str().unwrap().contains("`http.hosts`"), "the way out");
    assert_eq!(server.node.begun(), 0);
    let socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (mut requests, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let at = format!("127.0.0.1:{}", server.address.port());
    for (authority, expected) in [("evil.test:7420", 403), (&*at, 200)] {
        let request = Request::get(format!("http://{authority}/v1/stores")).body(Empty::<Bytes>::new()).unwrap();
        assert_eq!(requests.send_request(request).await.unwrap().status(), expected, "{authority}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn with_access_control_the_key_decides() {
    let access = Some(TenantQuota { requests_max: 100, bytes_max: 1 << 30 });
    let router = RouterOptions { access, ..RouterOptions::default() };
    let server = start_with(FakeNode::new(), ServerOptions::default(), router).await;
    assert_eq!(code(&server, COMMIT, &[("origin", "http://evil.test")]).await.0, 401);
    server.stop().await.unwrap();
}
