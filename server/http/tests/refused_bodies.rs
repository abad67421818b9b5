//! Requests refused before their body has been read, from clients that write all of it before they read the response.

mod duplex;
mod fake_node;

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use duplex::{KEY, TIMEOUT, guarded, id};
use fake_node::client::{Client, Reply};
use fake_node::{Running, start};
use tokio::io::AsyncWriteExt;
use tribunal_http::quota::TenantQuota;
use tribunal_types::limits::{BODY_BYTES_MAX, LINGER_BYTES_MAX, LINGER_MS};

/// More than the buffers of two sockets can hold.
const WRITTEN_BYTES: usize = 8 << 20;

const JSON: (&str, &str) = ("content-type", "application/json");

/// How the body of a request is delimited.
#[derive(Clone, Copy, Debug)]
enum Framing {
    /// By `content-length`.
    Length(usize),
    /// As chunks, without an end.
    Chunks,
}

fn head(path: &str, key: &str, framing: Framing) -> String {
    let framing = match framing {
        Framing::Length(bytes) => format!("content-length: {bytes}"),
        Framing::Chunks => "transfer-encoding: chunked".to_owned(),
    };
    format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n{framing}\r\n\r\n"
    )
}

/// Writes the head and the entire body, and only then reads.
async fn written_before_read(server: &Running, head: &str, body: &[u8]) -> Reply {
    let mut client = Client::connect(server.address).await;
    client.socket.write_all(head.as_bytes()).await.expect("the head is sent");
    tokio::time::timeout(TIMEOUT, client.socket.write_all(body)).await.expect("in time").expect("the body is sent");
    let reply = tokio::time::timeout(TIMEOUT, client.reply()).await.expect("in time").expect("an answer");
    assert_eq!(reply.header("connection"), Some("close"), "the connection ends, and its client is told");
    let after = tokio::time::timeout(TIMEOUT, client.reply()).await.expect("the connection ends");
    assert!(after.is_none());
    reply
}

fn roomy() -> TenantQuota {
    TenantQuota { requests_max: 100, bytes_max: 1 << 30 }
}

#[tokio::test]
async fn a_wrong_key_is_told_after_a_body_that_nobody_read() {
    let server = guarded(roomy()).await;
    let body = vec![b' '; WRITTEN_BYTES];
    for path in [format!("/v1/txns/{}/commit", id(1)), "/v1/txns/batch-commit".to_owned()] {
        let reply = written_before_read(&server, &head(&path, "unknown", Framing::Length(WRITTEN_BYTES)), &body).await;
        assert_eq!(reply.status, 401, "{path}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_body_above_the_maximum_is_refused_with_an_answer() {
    let server = guarded(roomy()).await;
    let announced = head("/v1/txns/batch-commit", "known", Framing::Length(BODY_BYTES_MAX + 1));
    let reply = written_before_read(&server, &announced, &vec![b' '; WRITTEN_BYTES]).await;
    assert_eq!((reply.status, reply.json()["code"].as_str()), (413, Some("body_too_large")));
    // A length beyond all bounds, which is refused with the head.
    let beyond = head("/v1/txns/batch-commit", "known", Framing::Chunks)
        .replace("transfer-encoding: chunked", "content-length: 99999999999999999999");
    assert_eq!(written_before_read(&server, &beyond, &vec![b' '; WRITTEN_BYTES]).await.status, 413);
    // Without a length, the body is read up to the maximum.
    let chunk = [&b"100000\r\n"[..], &vec![b' '; 1 << 20], b"\r\n"].concat();
    let chunked = head("/v1/txns/batch-commit", "known", Framing::Chunks);
    assert_eq!(written_before_read(&server, &chunked, &chunk.repeat(18)).await.status, 413);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_used_up_quota_is_told_after_a_body_that_nobody_read() {
    let server = guarded(TenantQuota { requests_max: 100, bytes_max: WRITTEN_BYTES }).await;
    server.node.held.send_replace(true);
    let mut waiting = Client::connect(server.address).await;
    let write = r#"{"writes":[{"store":"kv","op":"put","key":"a","value":1}]}"#;
    waiting.send("POST", &format!("/v1/txns/{}/commit", id(1)), &[KEY, JSON], write.as_bytes()).await;
    duplex::eventually("the commit", || server.node.begun() == 1).await;
    let path = format!("/v1/txns/{}/commit", id(2));
    let body = vec![b' '; WRITTEN_BYTES];
    let reply = written_before_read(&server, &head(&path, "known", Framing::Length(WRITTEN_BYTES)), &body).await;
    assert_eq!(reply.status, 429);
    server.node.held.send_replace(false);
    assert_eq!(waiting.reply().await.expect("an answer").status, 200, "the one that waits is untouched");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_answer_without_its_body_read_does_not_close_a_connection_whose_body_has_arrived() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    for _ in 0..3 {
        client.send("POST", "/v1/nowhere", &[JSON], &[b' '; 2000]).await;
        let reply = tokio::time::timeout(TIMEOUT, client.reply()).await.expect("in time").expect("an answer");
        assert_eq!((reply.status, reply.header("connection")), (404, None));
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_client_that_never_stops_sending_is_cut() {
    let server = guarded(roomy()).await;
    // First slower than the bound in bytes, so that the bound in time ends it; then faster.
    for (piece, pause) in [(1000, Duration::from_millis(20)), (1 << 20, Duration::ZERO)] {
        let mut client = Client::connect(server.address).await;
        let endless = head(&format!("/v1/txns/{}/commit", id(1)), "unknown", Framing::Length(usize::MAX >> 1));
        let begun = Instant::now();
        client.socket.write_all(endless.as_bytes()).await.expect("the head is sent");
        let piece = vec![b' '; piece];
        let mut sent = 0;
        let error = loop {
            assert!(begun.elapsed() < TIMEOUT, "not cut after {sent} bytes");
            match client.socket.write_all(&piece).await {
                Ok(()) => sent += piece.len(),
                Err(error) => break error,
            }
            tokio::time::sleep(pause).await;
        };
        assert!(matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe), "{error}");
        // The buffers of the two sockets count as sent, too.
        assert!(sent <= LINGER_BYTES_MAX + (16 << 20), "{sent} bytes");
        if !pause.is_zero() {
            assert!(begun.elapsed() >= Duration::from_millis(LINGER_MS), "cut after {:?}", begun.elapsed());
        }
    }
    server.stop().await.unwrap();
}

/// Over HTTP/2: the response comes at once, and data that a client still sends does not cause a reset, so no client
/// misses the response.
#[tokio::test]
async fn a_refusal_over_http_2_comes_before_its_body_and_resets_nothing() {
    use http_body_util::{BodyExt, StreamBody};
    use hyper::body::{Bytes, Frame};
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let server = guarded(TenantQuota { requests_max: 100, bytes_max: 1 << 20 }).await;
    let socket = tokio::net::TcpStream::connect(server.address).await.unwrap();
    let (requests, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(socket)).await.unwrap();
    tokio::spawn(connection);
    let commit = format!("/v1/txns/{}/commit", id(1));
    for (path, key, length, expected) in [
        (commit.as_str(), "unknown", None, 401),
        ("/v1/txns/batch-commit", "unknown", None, 401),
        ("/v1/txns/batch-commit", "known", Some(BODY_BYTES_MAX + 1), 413),
    ] {
        let (pieces, body) = tokio::sync::mpsc::channel::<Bytes>(1);
        let mut request = hyper::Request::post(format!("http://{}{path}", server.address))
            .header("content-type", "application/json")
            .header("authorization", format!("Bearer {key}"));
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        let body = futures_util::stream::unfold(body, |mut body| async {
            let piece = body.recv().await?;
            Some((Ok::<_, std::io::Error>(Frame::data(piece)), body))
        });
        let body = StreamBody::new(Box::pin(body));
        let sent = requests.clone().send_request(request.body(body).unwrap());
        let response = tokio::time::timeout(TIMEOUT, sent).await.expect("in time").unwrap();
        assert_eq!(response.status(), expected, "{path}");
        let problem = response.into_body().collect().await.expect("all of it").to_bytes();
        assert!(problem.starts_with(b"{"), "{path}");
        for n in 0..8 {
            let piece = pieces.send(Bytes::from(vec![b' '; 4096]));
            let taken = tokio::time::timeout(TIMEOUT, piece).await.expect("in time");
            taken.unwrap_or_else(|_| panic!("{path}: reset before piece {n} of the body"));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    server.stop().await.unwrap();
}
