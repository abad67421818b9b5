//! Raw bytes on a socket: malformed requests, and bytes that follow a request in the same segment.

mod fake_node;

use std::time::Duration;

use fake_node::client::{Client, Reply};
use fake_node::{FakeNode, start, start_with};
use tokio::io::AsyncWriteExt;
use tribunal_http::{RouterOptions, ServerOptions};

const TIMEOUT: Duration = Duration::from_secs(120);
const BODY: &str = r#"{"writes":[{"store":"kv","op":"put","key":"a","value":1}]}"#;

fn commit(last_digit: char) -> String {
    format!(
        "POST /v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5{last_digit}/commit HTTP/1.1\r\nhost: x\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{BODY}",
        BODY.len()
    )
}

async fn next(client: &mut Client) -> Option<Reply> {
    tokio::time::timeout(TIMEOUT, client.reply()).await.expect("the server answers or closes in time")
}

fn assert_problem(reply: Option<Reply>, status: u16, what: &str) {
    let reply = reply.unwrap_or_else(|| panic!("{what}: closed without a response"));
    assert_eq!(reply.status, status, "{what}");
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{what}");
    assert_eq!(reply.json()["status"], status, "{what}");
    assert!(reply.json()["detail"].as_str().is_some_and(|detail| detail.len() > 20), "{what}");
}

#[tokio::test]
async fn a_commit_is_answered_whatever_follows_it_in_the_segment() {
    let server = start().await;
    let ids = "0123456789abcdef".chars();
    let tails = [
        "\r\n",
        "\r",
        "G",
        "GET /healthz HT",
        "GET /healthz HTTP/1.1\r\nhost: x\r\n",
        "\0\0\0\0",
        "garbage\r\n\r\n",
        "}}\r\n",
    ];
    for (id, tail) in ids.zip(tails) {
        let mut client = Client::connect(server.address).await;
        client.socket.write_all(format!("{}{tail}", commit(id)).as_bytes()).await.unwrap();
        let reply = next(&mut client).await.unwrap_or_else(|| panic!("{tail:?}: closed without a response"));
        assert_eq!((reply.status, reply.header("txn-status")), (200, Some("committed")), "{tail:?}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_connection_survives_a_stray_line_break_and_ends_after_garbage() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    client.socket.write_all(format!("{}\r\n{}", commit('0'), commit('1')).as_bytes()).await.unwrap();
    for _ in 0..2 {
        assert_eq!(next(&mut client).await.expect("a response").status, 200);
    }
    client.socket.write_all(b"GET /heal").await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    client.socket.write_all(b"thz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    assert_eq!(next(&mut client).await.expect("a response").status, 200);
    client.socket.write_all(format!("{}\0garbage\r\n\r\n{}", commit('2'), commit('3')).as_bytes()).await.unwrap();
    assert_eq!(next(&mut client).await.expect("a response").header("txn-status"), Some("committed"));
    assert_problem(next(&mut client).await, 400, "garbage");
    assert!(next(&mut client).await.is_none(), "the connection ends");
    assert_eq!(server.node.begun(), 3, "what follows garbage is no request");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_malformed_head_gets_a_problem() {
    let server = start().await;
    for head in [
        "GET /healthz HTTP/1.1\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: x\r\nhost: x\r\n\r\n",
        "GET /healthz HTTP/1.1\nhost: x\n\n",
        "GET /healthz HTTP/1.1\r\nhost: x\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost: x\r\n folded\r\n\r\n",
        "GET /healthz HTTP/1.1\r\nhost : x\r\n\r\n",
        "GET /healthz HTTP/3.0\r\nhost: x\r\n\r\n",
        "GET /heal thz HTTP/1.1\r\nhost: x\r\n\r\n",
        "GET /<> HTTP/1.1\r\nhost: x\r\n\r\n",
        "\u{16}\u{3}\u{1}\u{2}",
        "POST /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        "POST /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /healthz HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST /healthz HTTP/1.1\r\nhost: x\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "POST /healthz HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    ] {
        let mut client = Client::connect(server.address).await;
        client.socket.write_all(head.as_bytes()).await.unwrap();
        assert_problem(next(&mut client).await, 400, head);
        assert!(next(&mut client).await.is_none(), "{head:?}: the connection ends");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_head_that_is_too_long_gets_a_problem_although_it_is_still_being_sent() {
    let server = start().await;
    let filler = "a".repeat(300 * 1024);
    let fields: String = (0..200).map(|index| format!("a{index}: b\r\n")).collect();
    for (head, status) in [
        (format!("GET /{filler} HTTP/1.1\r\nhost: x\r\n\r\n"), 414),
        (format!("GET / HTTP/1.1\r\nhost: x\r\na: {filler}\r\n\r\n"), 431),
        (format!("GET / HTTP/1.1\r\nhost: x\r\n{fields}\r\n"), 431),
    ] {
        let mut client = Client::connect(server.address).await;
        client.socket.write_all(head.as_bytes()).await.unwrap();
        assert_problem(next(&mut client).await, status, &head[..40]);
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_chunked_commit_is_decided_however_its_bytes_arrive() {
    let server = start().await;
    let (first, second) = BODY.split_at(7);
    let text = format!(
        "POST /v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a/commit HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         transfer-encoding: chunked\r\n\r\n{:x}\r\n{first}\r\n{:X};ext\r\n{second}\r\n0\r\n\r\n",
        first.len(),
        second.len()
    );
    for piece in [1, 7, 100, text.len()] {
        let mut client = Client::connect(server.address).await;
        for part in text.as_bytes().chunks(piece) {
            client.socket.write_all(part).await.unwrap();
            client.socket.flush().await.unwrap();
        }
        client.socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
        assert_eq!(next(&mut client).await.expect("a response").header("txn-status"), Some("committed"), "{piece}");
        assert_eq!(next(&mut client).await.expect("a response").status, 200, "{piece}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_half_closed_connection_gets_its_responses() {
    let server = start().await;
    let long_poll = "GET /v1/log?store=kv&wait_ms=300 HTTP/1.1\r\nhost: x\r\n\r\n";
    for requests in
        [vec![commit('0')], vec![long_poll.to_owned()], vec![long_poll.to_owned(), commit('1'), commit('2')]]
    {
        let mut client = Client::connect(server.address).await;
        client.socket.write_all(requests.concat().as_bytes()).await.unwrap();
        client.socket.shutdown().await.unwrap();
        for request in &requests {
            let reply = next(&mut client).await.unwrap_or_else(|| panic!("{request:?}: closed without a response"));
            assert_eq!(reply.status, 200, "{request:?}");
        }
        assert!(next(&mut client).await.is_none(), "the connection ends after the last response");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_long_poll_is_answered_when_its_client_stops_sending() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    // Longer than a half-closed connection is kept open.
    client.socket.write_all(b"GET /v1/log?store=kv&wait_ms=60000 HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    client.socket.shutdown().await.unwrap();
    let reply = next(&mut client).await.expect("a response, with the records that there are");
    assert_eq!((reply.status, reply.json()["records"].as_array().map(Vec::len)), (200, Some(0)));
    assert!(next(&mut client).await.is_none(), "the connection ends");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_half_closed_connection_does_not_wait_for_long() {
    let options = ServerOptions { header_timeout: Duration::from_millis(300), ..ServerOptions::default() };
    let server = start_with(FakeNode::slow(TIMEOUT * 2), options, RouterOptions::default()).await;
    let mut client = Client::connect(server.address).await;
    client.socket.write_all(commit('0').as_bytes()).await.unwrap();
    client.socket.shutdown().await.unwrap();
    assert!(next(&mut client).await.is_none(), "cut before the commit could be decided");
    let mut client = Client::connect(server.address).await;
    client.socket.write_all(&commit('1').as_bytes()[..150]).await.unwrap();
    client.socket.shutdown().await.unwrap();
    let broken = next(&mut client).await;
    assert!(broken.is_none_or(|reply| reply.status == 400), "half a request is none");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_length_beyond_all_bounds_is_a_body_that_is_too_large() {
    let server = start().await;
    for length in ["16777217000", "9223372036854775807", "18446744073709551615", "99999999999999999999999"] {
        let mut client = Client::connect(server.address).await;
        let head =
            commit('0').replace(&format!("content-length: {}", BODY.len()), &format!("content-length: {length}"));
        client.socket.write_all(head.as_bytes()).await.unwrap();
        let reply = next(&mut client).await;
        assert_eq!(
            reply.as_ref().and_then(|reply| reply.json()["code"].as_str().map(str::to_owned)),
            Some("body_too_large".into())
        );
        assert_problem(reply, 413, length);
    }
    server.stop().await.unwrap();
}
