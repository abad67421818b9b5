//! Slow, silent, greedy and disconnected clients; and the shutdown of the service.

mod fake_node;

use std::time::Duration;

use fake_node::client::{Client, post};
use fake_node::{FakeNode, start, start_with};
use tokio::io::AsyncWriteExt;
use tribunal_http::{RouterOptions, ServerOptions};

const ID: &str = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a";
/// Long enough for a loaded machine.
const TIMEOUT: Duration = Duration::from_secs(120);

fn impatient() -> ServerOptions {
    ServerOptions {
        header_timeout: Duration::from_secs(2),
        idle_timeout: Duration::from_secs(3),
        ..ServerOptions::default()
    }
}

async fn is_cut(client: &mut Client) -> bool {
    matches!(tokio::time::timeout(TIMEOUT, client.reply()).await, Ok(None))
}

#[tokio::test]
async fn a_client_that_dribbles_its_head_is_disconnected() {
    let server = start_with(FakeNode::new(), impatient(), RouterOptions::default()).await;
    let mut client = Client::connect(server.address).await;
    let dribbled = tokio::time::timeout(TIMEOUT, async {
        for byte in b"GET /healthz HTTP/1.1\r\nx-filler: ".iter().chain(std::iter::repeat(&b'x')) {
            if client.socket.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    assert!(dribbled.await.is_ok(), "the server hangs up");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_silent_client_is_disconnected_at_first_and_between_requests() {
    let server = start_with(FakeNode::new(), impatient(), RouterOptions::default()).await;
    let mut silent = Client::connect(server.address).await;
    assert!(is_cut(&mut silent).await);
    let mut idle = Client::connect(server.address).await;
    assert_eq!(idle.get("/healthz").await.status, 200);
    assert!(is_cut(&mut idle).await);
    let mut half = Client::connect(server.address).await;
    assert_eq!(half.get("/healthz").await.status, 200);
    half.socket.write_all(b"GET /healthz HT").await.unwrap();
    assert!(is_cut(&mut half).await);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_body_that_never_arrives_gets_a_response() {
    let router = RouterOptions { body_timeout: Duration::from_millis(100), ..RouterOptions::default() };
    let server = start_with(FakeNode::new(), ServerOptions::default(), router).await;
    let mut client = Client::connect(server.address).await;
    let head = format!(
        "POST /v1/txns/{ID}/commit HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{{"
    );
    client.socket.write_all(head.as_bytes()).await.unwrap();
    let reply = client.reply().await.unwrap();
    assert_eq!((reply.status, reply.json()["code"].as_str()), (408, Some("body_timeout")));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_request_that_waits_is_not_idle() {
    let server = start_with(FakeNode::new(), impatient(), RouterOptions::default()).await;
    let mut client = Client::connect(server.address).await;
    let reply = client.get("/v1/log?store=kv&wait_ms=4000").await;
    assert_eq!(reply.status, 200);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    for path in ["/healthz", "/nope", "/version", "/readyz"] {
        client.send("GET", path, &[], b"").await;
    }
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(client.reply().await.unwrap().status);
    }
    assert_eq!(statuses, [200, 404, 200, 503]);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn connections_above_the_cap_wait_while_none_is_idle() {
    let options = ServerOptions { connections_max: 1, ..ServerOptions::default() };
    let server = start_with(FakeNode::new(), options, RouterOptions::default()).await;
    let mut first = Client::connect(server.address).await;
    assert_eq!(first.get("/healthz").await.status, 200);
    first.send("GET", "/v1/log?store=kv&wait_ms=60000", &[], b"").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut second = Client::connect(server.address).await;
    second.send("GET", "/healthz", &[], b"").await;
    assert!(tokio::time::timeout(Duration::from_millis(200), second.reply()).await.is_err(), "no turn yet");
    drop(first);
    assert_eq!(tokio::time::timeout(TIMEOUT, second.reply()).await.unwrap().unwrap().status, 200);
    drop(second);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_shutdown_lets_requests_end_and_closes_idle_connections() {
    let node = FakeNode::slow(Duration::from_millis(300));
    let server = start_with(node, ServerOptions::default(), RouterOptions::default()).await;
    let address = server.address;
    let mut idle = Client::connect(address).await;
    assert_eq!(idle.get("/healthz").await.status, 200);
    let busy = tokio::spawn(async move { post(address, &format!("/v1/txns/{ID}/commit"), "{}").await });
    while server.node.begun() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::timeout(TIMEOUT, server.stop()).await.unwrap().unwrap();
    assert_eq!(busy.await.unwrap().status, 200);
    assert!(is_cut(&mut idle).await);
    assert!(tokio::net::TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn a_shutdown_does_not_wait_for_ever() {
    let node = FakeNode::slow(Duration::from_secs(3600));
    let options = ServerOptions { grace: Duration::from_millis(100), ..ServerOptions::default() };
    let server = start_with(node, options, RouterOptions::default()).await;
    let mut client = Client::connect(server.address).await;
    client.send("POST", &format!("/v1/txns/{ID}/commit"), &[("content-type", "application/json")], b"{}").await;
    while server.node.begun() == 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::timeout(TIMEOUT, server.stop()).await.unwrap().unwrap();
    assert!(is_cut(&mut client).await);
}

#[tokio::test]
async fn http_2_with_prior_knowledge_is_served() {
    use http_body_util::{BodyExt, Full};
    use hyper::body::Bytes;
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let server = start().await;
    let socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    let connection = tokio::spawn(connection);
    let request = hyper::Request::post(format!("http://{}/v1/txns/{ID}/commit", server.address))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from_static(b"{}")))
        .unwrap();
    let reply = sender.send_request(request).await.unwrap();
    assert_eq!((reply.status().as_u16(), reply.version()), (200, hyper::Version::HTTP_2));
    let body = reply.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"{\"status\":\"committed\""));
    drop(sender);
    let _ = connection.await.unwrap();
    server.stop().await.unwrap();
}
