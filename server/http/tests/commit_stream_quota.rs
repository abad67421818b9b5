//! How much of its tenant's quota a commit stream uses, and for how long.

mod duplex;
mod fake_node;

use std::time::Duration;

use duplex::{BOTH, Duplex, Http, KEY, closed, end, eventually, guarded, put, put_bytes, refused};
use fake_node::Running;
use fake_node::client::Client;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tribunal_http::quota::TenantQuota;
use tribunal_types::limits::{BODY_BYTES_MAX, STREAM_BYTES_MAX};

/// Room for a stream and one long commit in it.
const LEAST: TenantQuota = TenantQuota { requests_max: 2, bytes_max: STREAM_BYTES_MAX + BODY_BYTES_MAX };

/// Waits until the stream of a client that broke its connection has ended; over HTTP/1.1 it may first wait for its
/// verdicts.
async fn gone(http: Http, server: &Running) {
    if http == Http::Two {
        closed(server).await;
    }
}

/// Returns whether there is room for a request of unknown length.
async fn has_room(server: &Running) -> bool {
    let mut client = Client::connect(server.address).await;
    let request = "POST /v1/stores/kv/push/resume HTTP/1.1\r\nhost: x\r\nauthorization: Bearer known\r\n\
        transfer-encoding: chunked\r\n\r\n0\r\n\r\n";
    client.socket.write_all(request.as_bytes()).await.expect("sent");
    client.reply().await.expect("an answer").status != 429
}

async fn room(server: &Running) {
    let begun = std::time::Instant::now();
    while !has_room(server).await {
        assert!(begun.elapsed() < duplex::TIMEOUT, "the place was never given back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_stream_takes_one_place_and_the_room_of_its_window() {
    let server = guarded(TenantQuota { requests_max: 2, bytes_max: 3 * STREAM_BYTES_MAX }).await;
    for http in BOTH {
        let mut stream = Duplex::open_with(http, server.address, &[KEY]).await;
        let other = Duplex::open_with(http, server.address, &[KEY]).await;
        let ndjson = ("content-type", "application/x-ndjson");
        let (status, problem) = refused(http, server.address, &[ndjson, KEY]).await;
        assert_eq!((status, &problem["code"]), (429, &json!("quota_exceeded")), "{http:?}");
        // A longer line needs more room than is left.
        stream.write(put(1)).await;
        assert_eq!(stream.answer().await.unwrap()["status"], "committed");
        stream.write("x".repeat(2 * STREAM_BYTES_MAX)).await;
        let last = stream.answer().await.expect("an end");
        assert_eq!((&last["reason"], &last["problem"]["line"]), (&json!("quota_exceeded"), &json!(2)), "{http:?}");
        assert_eq!(last["problem"]["retryable"], true);
        drop((stream, other));
        closed(&server).await;
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_stream_that_has_ended_gives_its_place_back_at_once() {
    let server = guarded(TenantQuota { requests_max: 1, ..LEAST }).await;
    for (http, n) in BOTH.into_iter().zip([1, 11]) {
        for n in n..n + 3 {
            let mut stream = Duplex::open_with(http, server.address, &[KEY]).await;
            stream.write(put(n)).await;
            stream.finish();
            assert_eq!(stream.rest().await.last(), Some(&end("complete", 1)), "{http:?}");
        }
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_abandoned_stream_keeps_its_place_until_its_commits_are_decided() {
    for http in BOTH {
        let server = guarded(TenantQuota { requests_max: 1, ..LEAST }).await;
        server.node.held.send_replace(true);
        let stream = Duplex::open_with(http, server.address, &[KEY]).await;
        stream.write(put(1)).await;
        eventually("the commit", || server.node.begun() == 1).await;
        stream.disconnect();
        gone(http, &server).await;
        // Longer than the node tells callers to wait.
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!has_room(&server).await, "{http:?}: the commit is undecided");
        server.node.held.send_replace(false);
        room(&server).await;
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn the_room_of_a_long_commit_stays_taken_while_the_commit_is_undecided() {
    for (http, pieces) in [(Http::One, 2), (Http::One, 4), (Http::Two, 2), (Http::Two, 4)] {
        let server = guarded(LEAST).await;
        server.node.held.send_replace(true);
        let stream = Duplex::open_with(http, server.address, &[KEY]).await;
        let put =
            |n| json!({"op": "put", "store": "kv", "key": format!("k{n}"), "value": "v".repeat(STREAM_BYTES_MAX / 2)});
        let writes: Vec<_> = (0..pieces).map(put).collect();
        stream.write(format!("{}\n", json!({"txn_id": duplex::id(1), "writes": writes}))).await;
        eventually("the commit", || server.node.begun() == 1).await;
        stream.disconnect();
        gone(http, &server).await;
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!has_room(&server).await, "{http:?}: the commit is undecided");
        server.node.held.send_replace(false);
        room(&server).await;
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_long_blank_line_takes_room_only_while_it_arrives() {
    for http in BOTH {
        let server = guarded(LEAST).await;
        let mut stream = Duplex::open_with(http, server.address, &[KEY]).await;
        stream.write(format!("{}\n{}", " ".repeat(2 * STREAM_BYTES_MAX), put_bytes(1, 10))).await;
        assert_eq!(stream.answer().await.unwrap()["status"], "committed", "{http:?}");
        assert!(has_room(&server).await, "{http:?}: the line is over");
        stream.finish();
        stream.rest().await;
        server.stop().await.unwrap();
    }
}
