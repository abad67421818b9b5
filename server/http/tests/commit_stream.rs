//! Commit streams over real sockets, HTTP/1.1 and HTTP/2: the responses, their order, and the bounds on a client.

mod duplex;
mod fake_node;

use std::collections::BTreeMap;
use std::time::Duration;

use duplex::{BOTH, Duplex, Http, KEY, MOMENT, TIMEOUT, closed, end, eventually, guarded, id, put, put_bytes, refused};
use fake_node::client::{Client, post};
use fake_node::{FakeNode, start, start_beside, start_with};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tribunal_http::quota::TenantQuota;
use tribunal_http::{RouterOptions, ServerOptions};
use tribunal_service::ServiceError;
use tribunal_types::limits::{BODY_BYTES_MAX, STREAM_BYTES_MAX, STREAM_COMMITS_MAX};

fn status_of(line: &Value) -> (&str, &str) {
    (line["status"].as_str().unwrap_or_default(), line["txn_id"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn verdicts_are_those_of_a_batch() {
    let read = |n: usize, version: &str| {
        json!({"txn_id": id(n), "reads": [{"store": "kv", "key": "k1", "version": version}],
            "writes": [{"op": "put", "store": "kv", "key": "k1", "value": 2}]})
    };
    let lines = [
        put(1),
        put(1),
        put_bytes(1, 2),
        format!("{}\n", read(2, "1")),
        format!("{}\n", json!({"txn_id": id(3), "reads": [{"store": "kv", "key": "none"}]})),
        "{\"txn_id\": nonsense}\n".to_owned(),
        format!("{}\n", json!({"txn_id": "x", "writes": []})),
        format!("{}\n", json!({"txn_id": id(4), "writes": [{"op": "put", "store": "nope", "key": "k", "value": 1}]})),
        format!(
            "{}\n",
            json!({"txn_id": id(5), "ack": "applied", "writes": [{"op": "put", "store": "kv", "key": "a", "value": 1}]})
        ),
    ];
    // Fields that depend on when a line was decided are left out.
    let shown = |line: &Value| {
        let mut line = line.clone();
        for field in ["epoch", "csn", "version", "lsn", "session", "applied", "conflicts"] {
            line.as_object_mut().unwrap().remove(field);
        }
        line.to_string()
    };
    let batch = start().await;
    let reply = Client::connect(batch.address)
        .await
        .call("POST", "/v1/txns/batch-commit", &[("content-type", "application/x-ndjson")], lines.concat().as_bytes())
        .await;
    let reply = String::from_utf8(reply.body).unwrap();
    let mut expected: Vec<String> = reply.lines().map(|line| shown(&serde_json::from_str(line).unwrap())).collect();
    expected.sort();
    assert_eq!(expected.len(), lines.len());
    for http in BOTH {
        let server = start().await;
        let mut stream = Duplex::open(http, server.address).await;
        stream.write(lines.concat()).await;
        stream.finish();
        let mut found = stream.rest().await;
        assert_eq!(found.pop(), Some(end("complete", lines.len())), "{http:?}");
        let mut found: Vec<String> = found.iter().map(shown).collect();
        found.sort();
        assert_eq!(found, expected, "{http:?}");
        server.stop().await.unwrap();
    }
    batch.stop().await.unwrap();
}

#[tokio::test]
async fn a_line_is_answered_while_the_request_goes_on() {
    let server = start().await;
    for http in BOTH {
        let mut stream = Duplex::open(http, server.address).await;
        let first = if http == Http::One { 0 } else { 100 };
        for n in first..first + 20 {
            let line = put(n);
            let (begin, rest) = line.split_at(n % line.len());
            if !begin.is_empty() {
                stream.write(begin.to_owned()).await;
            }
            stream.write(rest.to_owned()).await;
            let answer = stream.answer().await.expect("an answer");
            assert_eq!(status_of(&answer), ("committed", id(n).as_str()), "{http:?}");
        }
        assert_eq!(server.node.stops.receiver_count(), 1, "{http:?}");
        stream.finish();
        assert_eq!(stream.rest().await, [end("complete", 20)], "{http:?}");
        assert_eq!(stream.line().await, None);
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_connection_is_free_for_other_requests_after_a_stream() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    for n in 0..3 {
        let body = put(n);
        client.send("POST", "/v1/txns/stream", &[("content-type", "application/x-ndjson")], body.as_bytes()).await;
        let text = read_chunks(&mut client).await;
        assert!(text.contains("committed") && text.contains("\"complete\""), "{text}");
        assert_eq!(client.get("/healthz").await.status, 200);
    }
    server.stop().await.unwrap();
}

/// Reads a chunked response to its end.
async fn read_chunks(client: &mut Client) -> String {
    use tokio::io::AsyncReadExt;
    let mut text = Vec::new();
    while !text.ends_with(b"\r\n0\r\n\r\n") {
        let byte = tokio::time::timeout(TIMEOUT, client.socket.read_u8()).await.expect("in time");
        text.push(byte.unwrap_or_else(|_| panic!("cut: {}", String::from_utf8_lossy(&text))));
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn a_malformed_line_gets_a_problem_with_its_number_and_the_stream_goes_on() {
    let server = start().await;
    for http in BOTH {
        let mut stream = Duplex::open(http, server.address).await;
        let first = if http == Http::One { 0 } else { 100 };
        stream.write(format!("{}\n  \nnonsense\n\r\n{{\"txn_id\":\"{}\"}}\n", put(first).trim(), id(first + 1))).await;
        stream.write(&b"\xff\xfe{}\n"[..]).await;
        stream.write(format!("{}{{\"txn_id\": 7, \"writes\": []}}\n", put(first + 2))).await;
        stream.write("{\"txn_id\": \"half").await;
        stream.finish();
        let found = stream.rest().await;
        let numbers: Vec<_> = found.iter().filter_map(|line| line["problem"]["line"].as_u64()).collect();
        assert_eq!(numbers, [3, 6, 8, 9], "{found:?}");
        let codes: Vec<_> = found.iter().filter_map(|line| line["problem"]["code"].as_str()).collect();
        assert_eq!(codes, ["malformed_json", "invalid_utf8", "wrong_type", "malformed_json"], "{found:?}");
        let decided: Vec<_> =
            found.iter().map(|line| line["status"].as_str()).filter(|s| *s != Some("problem")).collect();
        assert_eq!(decided.len(), 4, "three commits and the end: {found:?}");
        assert_eq!(found.last(), Some(&end("complete", 9)));
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_last_line_needs_no_line_break() {
    let server = start().await;
    let mut stream = Duplex::open(Http::One, server.address).await;
    stream.write(put(1).trim().to_owned()).await;
    stream.finish();
    let found = stream.rest().await;
    assert_eq!((status_of(&found[0]), &found[1]), (("committed", id(1).as_str()), &end("complete", 1)));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_endless_line_ends_the_stream_with_a_problem_and_nobody_else_is_affected() {
    let server = start().await;
    for (http, n) in BOTH.into_iter().zip([1, 11]) {
        let mut other = Duplex::open(http, server.address).await;
        let mut stream = Duplex::open(http, server.address).await;
        stream.write(put(n)).await;
        let piece = "x".repeat(64 * 1024);
        for at in 0..BODY_BYTES_MAX / piece.len() + 4 {
            stream.write(piece.clone()).await;
            if at % 40 == 0 {
                other.write(put(n + 1 + at / 40)).await;
                assert_eq!(other.answer().await.unwrap()["status"], "committed");
            }
        }
        let found = stream.rest().await;
        assert_eq!(status_of(&found[0]), ("committed", id(n).as_str()));
        let last = found.last().unwrap();
        assert_eq!(
            (&last["event"], &last["reason"], &last["lines"]),
            (&json!("end"), &json!("line_too_long"), &json!("1"))
        );
        assert_eq!((&last["problem"]["line"], &last["problem"]["status"]), (&json!(2), &json!(413)), "{http:?}");
        other.finish();
        assert_eq!(other.rest().await.len(), 1);
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_commit_as_large_as_in_a_request_of_its_own_is_decided() {
    let server = start().await;
    for (http, n) in BOTH.into_iter().zip([1, 11]) {
        let mut stream = Duplex::open(http, server.address).await;
        let writes: Vec<Value> = (0..9)
            .map(|n| json!({"op": "put", "store": "kv", "key": format!("big{n}"), "value": "v".repeat(1_000_000)}))
            .collect();
        stream.write(put(n)).await;
        stream.write(format!("{}\n{}", json!({"txn_id": id(n + 1), "writes": writes}), put(n + 2))).await;
        stream.finish();
        let found = stream.rest().await;
        let ids: Vec<_> = found.iter().map(status_of).collect();
        let [a, b, c] = [id(n), id(n + 1), id(n + 2)];
        assert_eq!(ids, [("committed", a.as_str()), ("committed", &b), ("committed", &c), ("", "")], "{http:?}");
    }
    server.stop().await.unwrap();
}

/// Writes lines until the server accepts no more; returns false if it accepts all of them.
async fn flood(stream: &Duplex, lines: impl Iterator<Item = String>) -> bool {
    for line in lines {
        if tokio::time::timeout(MOMENT * 15, stream.write(line)).await.is_err() {
            return true;
        }
    }
    false
}

#[tokio::test]
async fn a_full_window_stops_the_reading_until_commits_are_decided() {
    for http in BOTH {
        let server = start().await;
        server.node.held.send_replace(true);
        let mut stream = Duplex::open(http, server.address).await;
        let lines: String = (0..3000).map(put).collect();
        stream.write(lines).await;
        stream.finish();
        eventually("a full window", || server.node.begun() >= STREAM_COMMITS_MAX).await;
        tokio::time::sleep(MOMENT).await;
        assert_eq!(server.node.begun(), STREAM_COMMITS_MAX, "{http:?}");
        server.node.held.send_replace(false);
        let found = stream.rest().await;
        assert_eq!(found.last(), Some(&end("complete", 3000)));
        let committed: BTreeMap<&str, &Value> =
            found.iter().filter(|line| line["status"] == "committed").map(|line| (status_of(line).1, line)).collect();
        assert_eq!(committed.len(), 3000, "{http:?}");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn large_commits_fill_the_window_by_their_bytes() {
    for http in BOTH {
        let server = start().await;
        server.node.held.send_replace(true);
        let mut stream = Duplex::open(http, server.address).await;
        let bytes = 100_000;
        let lines: String = (0..30).map(|n| put_bytes(n, bytes)).collect();
        stream.write(lines).await;
        stream.finish();
        eventually("a full window", || server.node.begun() >= STREAM_BYTES_MAX / (bytes + 200)).await;
        tokio::time::sleep(MOMENT).await;
        assert_eq!(server.node.begun(), STREAM_BYTES_MAX / (bytes + 200), "{http:?}");
        server.node.held.send_replace(false);
        assert_eq!(stream.rest().await.len(), 31, "{http:?}");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_client_that_never_reads_stops_its_own_commits_and_nobody_elses() {
    for http in BOTH {
        let server = start().await;
        let stream = Duplex::open(http, server.address).await;
        let many = |from: usize| (from..from + 1000).map(put).collect::<String>();
        assert!(flood(&stream, (0..500).map(|n| many(1000 * n))).await, "{http:?}: everything was taken");
        // Until the server reads no more.
        let mut begun = 0;
        while begun != server.node.begun() {
            begun = server.node.begun();
            tokio::time::sleep(MOMENT).await;
        }
        assert!(begun < 400_000, "{http:?}: answers of {begun} commits are on their way to nobody");
        let path = format!("/v1/txns/{}/commit", id(600_000));
        assert_eq!(post(server.address, &path, "{\"writes\":[]}").await.status, 200);
        stream.disconnect();
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn heartbeats_keep_a_quiet_stream_and_a_slow_line_ends_it() {
    let options = ServerOptions {
        header_timeout: Duration::from_secs(2),
        idle_timeout: Duration::from_millis(2400),
        ..ServerOptions::default()
    };
    let router = RouterOptions {
        heartbeat: Duration::from_millis(100),
        body_timeout: Duration::from_secs(8),
        ..RouterOptions::default()
    };
    let server = start_with(FakeNode::new(), options, router).await;
    for (http, n) in BOTH.into_iter().zip([1, 11]) {
        let mut stream = Duplex::open(http, server.address).await;
        for _ in 0..30 {
            assert_eq!(stream.line().await, Some(json!({"event": "heartbeat"})), "{http:?}");
        }
        // A line may arrive slowly within its timeout.
        let line = put(n);
        for piece in line.as_bytes().chunks(line.len() / 4) {
            stream.write(piece.to_vec()).await;
            tokio::time::sleep(Duration::from_millis(150)).await;
        }
        assert_eq!(status_of(&stream.answer().await.unwrap()), ("committed", id(n).as_str()), "{http:?}");
        stream.write("{").await;
        let last = stream.answer().await.expect("an end");
        assert_eq!((&last["reason"], &last["problem"]["line"]), (&json!("body_timeout"), &json!(2)), "{http:?}");
        assert_eq!((&last["problem"]["status"], &last["lines"]), (&json!(408), &json!("1")), "{http:?}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn half_a_line_of_a_client_that_disconnects_is_no_commit() {
    for http in BOTH {
        let server = start().await;
        let stream = Duplex::open(http, server.address).await;
        server.node.held.send_replace(true);
        stream.write(format!("{}{}", put(1), put(2))).await;
        eventually("both commits", || server.node.begun() == 2).await;
        let half = put(3);
        stream.write(half[..half.len() / 2].to_owned()).await;
        stream.disconnect();
        server.node.held.send_replace(false);
        closed(&server).await;
        assert_eq!(server.node.begun(), 2, "{http:?}: half a line is none");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_half_closed_connection_gets_its_verdicts() {
    let server = start().await;
    server.node.held.send_replace(true);
    let mut client = Client::connect(server.address).await;
    let line = put(1);
    let request = format!(
        "POST /v1/txns/stream HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-ndjson\r\n\
         transfer-encoding: chunked\r\n\r\n{:x}\r\n{line}\r\n0\r\n\r\n",
        line.len()
    );
    client.socket.write_all(request.as_bytes()).await.unwrap();
    client.socket.shutdown().await.unwrap();
    eventually("the commit", || server.node.begun() == 1).await;
    tokio::time::sleep(MOMENT).await;
    server.node.held.send_replace(false);
    let text = read_chunks(&mut client).await;
    assert!(text.contains("committed") && text.contains("\"complete\""), "{text}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_revoked_key_ends_its_streams_after_the_verdicts_of_what_was_taken_in() {
    for http in BOTH {
        let server = guarded(TenantQuota { requests_max: 100, bytes_max: 1 << 30 }).await;
        let mut stream = Duplex::open_with(http, server.address, &[KEY]).await;
        let mut quiet = Duplex::open_with(http, server.address, &[KEY]).await;
        server.node.held.send_replace(true);
        stream.write(put(1)).await;
        eventually("the commit", || server.node.begun() == 1).await;
        server.node.principals.lock().unwrap().clear();
        let last = quiet.answer().await.expect("an end");
        assert_eq!((&last["reason"], &last["problem"]["status"]), (&json!("unauthenticated"), &json!(401)), "{http:?}");
        // Each stream checks the key once a second.
        tokio::time::sleep(Duration::from_secs(3)).await;
        stream.write(put(2)).await;
        tokio::time::sleep(MOMENT).await;
        server.node.held.send_replace(false);
        let found = stream.rest().await;
        assert_eq!(status_of(&found[0]), ("committed", id(1).as_str()));
        assert_eq!((&found[1]["reason"], &found[1]["lines"], found.len()), (&json!("unauthenticated"), &json!("1"), 2));
        assert_eq!(server.node.begun(), 1, "{http:?}: nothing is taken in after the revocation");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_stream_without_a_right_to_it_does_not_begin() {
    let server = guarded(TenantQuota { requests_max: 2, bytes_max: 1 << 30 }).await;
    let ndjson = ("content-type", "application/x-ndjson");
    for http in BOTH {
        for (headers, status, code) in [
            (vec![ndjson], 401, "unauthenticated"),
            (vec![ndjson, ("authorization", "Bearer other")], 401, "unauthenticated"),
            (vec![KEY], 415, "unsupported_media_type"),
            (vec![KEY, ("content-type", "application/json")], 415, "unsupported_media_type"),
            (vec![KEY, ndjson, ("content-encoding", "gzip")], 415, "unsupported_media_type"),
        ] {
            let (found, problem) = refused(http, server.address, &headers).await;
            assert_eq!((found, problem["code"].as_str()), (status, Some(code)), "{http:?} {headers:?}");
        }
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_that_stops_ends_streams_after_their_verdicts() {
    for http in BOTH {
        let server = start().await;
        let mut stream = Duplex::open(http, server.address).await;
        let mut quiet = Duplex::open(http, server.address).await;
        server.node.held.send_replace(true);
        stream.write(put(1)).await;
        eventually("the commit", || server.node.begun() == 1).await;
        server.node.stops.send_replace(true);
        assert_eq!(quiet.answer().await, Some(end("stopping", 0)), "{http:?}");
        stream.write(put(2)).await;
        tokio::time::sleep(MOMENT).await;
        server.node.held.send_replace(false);
        let found = stream.rest().await;
        assert_eq!((status_of(&found[0]), &found[1]), (("committed", id(1).as_str()), &end("stopping", 1)), "{http:?}");
        drop((stream, quiet));
        tokio::time::timeout(TIMEOUT, server.stop()).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_node_without_room_refuses_each_line_and_the_stream_goes_on() {
    let server = start().await;
    for (http, n) in BOTH.into_iter().zip([1, 11]) {
        let mut stream = Duplex::open(http, server.address).await;
        *server.node.fail_next.lock().unwrap() = Some(ServiceError::Overloaded { retry_after_ms: 7 });
        stream.write(put(n)).await;
        let answer = stream.answer().await.unwrap();
        assert_eq!(status_of(&answer), ("problem", id(n).as_str()));
        assert_eq!((&answer["problem"]["status"], &answer["problem"]["retry_after_ms"]), (&json!(503), &json!(7)));
        stream.write(put(n)).await;
        assert_eq!(stream.answer().await.unwrap()["status"], "committed", "{http:?}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_long_commit_that_nobody_parses_any_more_gets_a_problem_with_its_line() {
    for http in BOTH {
        let shared = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let (options, router) = (ServerOptions::default(), RouterOptions::default());
        let server = start_beside(FakeNode::new(), options, router, shared.handle().clone()).await;
        shared.shutdown_background();
        let mut stream = Duplex::open(http, server.address).await;
        stream.write(format!("\n{}{}", put_bytes(1, 200_000), put(2))).await;
        stream.finish();
        let found = stream.rest().await;
        let refused = found.iter().find(|line| line["status"] == "problem").expect("a problem");
        let problem = &refused["problem"];
        assert_eq!((&problem["code"], &problem["line"]), (&json!("stopping"), &json!(2)), "{http:?}: {problem}");
        assert_eq!((&problem["status"], &problem["retryable"]), (&json!(503), &json!(true)), "{http:?}");
        assert_eq!((found.len(), found.last()), (3, Some(&end("complete", 3))), "{http:?}");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn garbage_on_one_stream_is_bounded_and_leaves_others_alone() {
    let server = start().await;
    for (http, n) in BOTH.into_iter().zip([1, 101]) {
        let garbage = Duplex::open(http, server.address).await;
        let sending = async { flood(&garbage, std::iter::repeat_n("x\n".repeat(100_000), 200)).await };
        let committing = async {
            let mut stream = Duplex::open(http, server.address).await;
            for n in n..n + 50 {
                stream.write(put(n)).await;
                assert_eq!(stream.answer().await.unwrap()["status"], "committed", "{http:?}");
            }
        };
        let (is_bounded, ()) = tokio::join!(sending, committing);
        // It reads no responses, so most of its lines were never parsed.
        assert!(is_bounded, "{http:?}: everything was taken");
        garbage.disconnect();
    }
    closed(&server).await;
    server.stop().await.unwrap();
}
