//! Commit streams whose clients do not read, or write without end: their commits are decided nevertheless, and the
//! clients are bounded.

mod duplex;
mod fake_node;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use axum::http::Request;
use duplex::{Connection, Duplex, Http, KEY, MOMENT, TIMEOUT, closed, end, eventually, guarded, id, put, put_bytes};
use fake_node::client::Client;
use fake_node::{FakeNode, start, start_with};
use futures_util::StreamExt;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tower::ServiceExt;
use tribunal_http::quota::TenantQuota;
use tribunal_http::{RouterOptions, ServerOptions};
use tribunal_service::Service;

#[tokio::test]
async fn commits_reach_the_node_while_answers_wait_to_be_read() {
    let server = start().await;
    let connection = Connection::open(server.address, 0).await;
    let (short, long) = (connection.stream(&[]).await.unwrap(), connection.stream(&[]).await.unwrap());
    short.write(format!("x\n{}", put(1))).await;
    eventually("the commit", || server.node.begun() == 1).await;
    long.write(format!("{}x\n", put_bytes(2, 200_000))).await;
    eventually("the long commit", || server.node.begun() == 2).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn commits_taken_in_before_a_revocation_are_answered_and_later_ones_are_not_taken_in() {
    let server = guarded(TenantQuota { requests_max: 100, bytes_max: 1 << 30 }).await;
    let connection = Connection::open(server.address, 1).await;
    let mut stream = connection.stream(&[KEY]).await.unwrap();
    // The first response is in flight, the second one waits.
    stream.write("x\n").await;
    tokio::time::sleep(MOMENT).await;
    stream.write(format!("y\n{}", put(1))).await;
    eventually("the commit", || server.node.begun() == 1).await;
    server.node.principals.lock().unwrap().clear();
    stream.write(put(2)).await;
    tokio::time::sleep(Duration::from_millis(1500)).await;
    let found = stream.rest().await;
    assert_eq!((&found[2]["status"], &found[2]["txn_id"]), (&json!("committed"), &json!(id(1))), "{found:?}");
    assert_eq!((&found[3]["reason"], &found[3]["lines"]), (&json!("unauthenticated"), &json!("3")), "{found:?}");
    assert_eq!((server.node.begun(), found.len()), (1, 4));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn commits_that_were_taken_in_are_decided_when_the_connection_breaks() {
    for http in duplex::BOTH {
        let server = start().await;
        server.node.held.send_replace(true);
        let stream = Duplex::open(http, server.address).await;
        stream.write(format!("{}{}{}", put(1), put(2), put_bytes(3, 200_000))).await;
        eventually("the commits", || server.node.begun() == 3).await;
        stream.disconnect();
        // Over HTTP/1.1 the stream waits for its verdicts.
        if http == Http::Two {
            closed(&server).await;
        }
        server.node.held.send_replace(false);
        for n in 1..=3 {
            let mut client = Client::connect(server.address).await;
            let path = format!("/v1/txns/{}", id(n));
            let begun = std::time::Instant::now();
            while client.get(&path).await.json()["status"] != "committed" {
                assert!(begun.elapsed() < TIMEOUT, "{http:?}: commit {n} is undecided");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn an_http_1_connection_whose_client_never_reads_is_cut() {
    let options = ServerOptions { idle_timeout: Duration::from_secs(2), ..ServerOptions::default() };
    let router = RouterOptions { heartbeat: Duration::from_millis(100), ..RouterOptions::default() };
    let server = start_with(FakeNode::new(), options, router).await;
    let mut client = Client::connect(server.address).await;
    let head = "POST /v1/txns/stream HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\n\
        transfer-encoding: chunked\r\n\r\n";
    client.socket.write_all(head.as_bytes()).await.unwrap();
    let cut = async {
        for n in 0.. {
            let line = put(n);
            if client.socket.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes()).await.is_err() {
                return;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, cut).await.expect("the server hangs up");
    closed(&server).await;
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_http_2_stream_whose_client_never_reads_is_cut_and_its_connection_goes_on() {
    let options = ServerOptions { idle_timeout: Duration::from_secs(2), ..ServerOptions::default() };
    let router = RouterOptions { heartbeat: Duration::from_millis(100), ..RouterOptions::default() };
    let server = start_with(FakeNode::new(), options, router).await;
    let connection = Connection::open(server.address, 64).await;
    let stalled = connection.stream(&[]).await.unwrap();
    let begun = std::time::Instant::now();
    for n in 0.. {
        assert!(begun.elapsed() < TIMEOUT, "a stream without a reader is open");
        assert_eq!(connection.commit(n, 1).await, 200);
        if server.node.stops.receiver_count() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    eventually("the client is told", || !stalled.write_now("\n")).await;
    assert_eq!(connection.commit(1_000_000, 1).await, 200);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn stalled_streams_leave_room_for_other_requests_of_their_connection() {
    let server = start().await;
    let connection = Connection::open(server.address, 1 << 20).await;
    server.node.held.send_replace(true);
    let mut streams = Vec::new();
    let refused = loop {
        match connection.stream(&[]).await {
            Err(status) => break Some(status),
            Ok(_) if streams.len() == 8 => break None,
            Ok(stream) => streams.push(stream),
        }
    };
    for (at, stream) in streams.iter().enumerate() {
        // The window holds one megabyte, the connection's buffers the next.
        for n in 0..32 {
            let line = put_bytes(100 * at + n, 100_000);
            if tokio::time::timeout(MOMENT, stream.write(line)).await.is_err() {
                break;
            }
        }
    }
    // One stream window of the connection's window stays free for other requests.
    let begun = server.node.begun();
    let other = tokio::spawn(async move { (connection.commit(10_000, 500_000).await, connection) });
    eventually("the commit of another request", || server.node.begun() > begun).await;
    server.node.held.send_replace(false);
    let (status, connection) = tokio::time::timeout(TIMEOUT, other).await.expect("an answer").unwrap();
    assert_eq!((status, refused, streams.len()), (200, Some(429), 3));
    streams.clear();
    closed(&server).await;
    assert!(connection.stream(&[]).await.is_ok(), "there is room again");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_line_has_its_time_apart_from_the_pauses_of_its_client() {
    let router = RouterOptions {
        heartbeat: Duration::from_millis(300),
        body_timeout: Duration::from_millis(2000),
        ..RouterOptions::default()
    };
    let server = start_with(FakeNode::new(), ServerOptions::default(), router).await;
    let connection = Connection::open(server.address, 1).await;
    let mut stream = connection.stream(&[]).await.unwrap();
    let line = put(1);
    let (begin, rest) = line.split_at(10);
    stream.write(begin.to_owned()).await;
    // The first heartbeat is in flight, the second one waits.
    tokio::time::sleep(Duration::from_secs(3)).await;
    stream.write(rest.to_owned()).await;
    stream.finish();
    let found = stream.rest().await;
    assert_eq!((&found[0]["status"], &found[1]), (&json!("committed"), &end("complete", 1)), "{found:?}");
    server.stop().await.unwrap();
}

/// Counts the wake-ups of a task.
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn blank_lines_are_taken_in_a_part_at_a_time() {
    let node = Arc::new(FakeNode::new());
    let router = tribunal_http::router(Service::of(&node), RouterOptions::default());
    let frames = [Ok::<_, std::convert::Infallible>("\n".repeat(1 << 20)), Ok(put(1))];
    let body = Body::from_stream(futures_util::stream::iter(frames).chain(futures_util::stream::pending()));
    let request = Request::post("/v1/txns/stream").header("content-type", "application/x-ndjson").body(body).unwrap();
    let mut body = router.oneshot(request).await.unwrap().into_body();
    let waker = Arc::new(Wakes(AtomicUsize::new(0))).into();
    let mut turns = 1;
    while Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker)).is_pending() {
        turns += 1;
        tokio::task::yield_now().await;
    }
    assert!(turns > 4, "a megabyte of line breaks took {turns} turns");
}
