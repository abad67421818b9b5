//! Log streams and store states: the wire format.

mod fake_node;

use std::time::Duration;

use fake_node::client::{Client, Reply};
use fake_node::{FakeNode, Running, start, start_with};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tribunal_http::{RouterOptions, ServerOptions};

const NDJSON: (&str, &str) = ("accept", "application/x-ndjson");
const EVENTS: (&str, &str) = ("accept", "text/event-stream");

async fn put(server: &Running, n: u8) {
    let path = format!("/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b{n:02x}/commit");
    let body = format!(r#"{{"writes":[{{"op":"put","store":"kv","key":"k{n}","value":{n}}}]}}"#);
    let reply = fake_node::client::post(server.address, &path, &body).await;
    assert_eq!(reply.json()["status"], "committed");
}

/// Opens a stream and returns its head and the socket.
async fn open(server: &Running, path: &str, headers: &[(&str, &str)]) -> (String, tokio::net::TcpStream) {
    let mut client = Client::connect(server.address).await;
    client.send("GET", path, headers, b"").await;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.socket.read_u8().await.expect("a head"));
    }
    (String::from_utf8(head).unwrap().to_ascii_lowercase(), client.socket)
}

/// Reads chunks of the body until `enough`, or to its end; returns them without their framing.
async fn read(socket: &mut tokio::net::TcpStream, enough: impl Fn(&str) -> bool) -> String {
    let mut text = String::new();
    while !enough(&text) {
        let mut size = Vec::new();
        while !size.ends_with(b"\r\n") {
            size.push(socket.read_u8().await.expect("a chunk"));
        }
        let size = usize::from_str_radix(std::str::from_utf8(&size).unwrap().trim(), 16).unwrap();
        let mut chunk = vec![0; size + 2];
        socket.read_exact(&mut chunk).await.expect("a whole chunk");
        if size == 0 {
            break;
        }
        text.push_str(std::str::from_utf8(&chunk[..size]).unwrap());
    }
    text
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("no JSON: {line}"))).collect()
}

#[tokio::test]
async fn ndjson_has_one_record_per_line_and_a_reason_at_the_end() {
    let server = start().await;
    for n in 1..=5 {
        put(&server, n).await;
    }
    let (head, mut socket) =
        open(&server, "/v1/log?store=kv&after=1&limit=3", &[NDJSON, ("accept-encoding", "gzip")]).await;
    assert!(head.contains("content-type: application/x-ndjson"), "{head}");
    assert!(head.contains("cache-control: no-store") && !head.contains("content-encoding"), "{head}");
    let found = lines(&read(&mut socket, |_| false).await);
    let lsns: Vec<_> = found.iter().filter_map(|line| line["lsn"].as_str()).collect();
    assert_eq!(lsns, ["2", "3", "4"]);
    let log = fake_node::LOG.to_string();
    let event = json!({"event": "heartbeat", "log": log, "next": "1", "epoch": "11", "head_lsn": "5", "durable_upto": "5",
                       "oldest": "1"});
    assert_eq!(found[0], event, "the log and its head come before the records");
    assert_eq!(found[1]["writes"], json!([{"op": "put", "key": "k2", "value": 2}]));
    let end = json!({"event": "end", "log": log, "next": "4", "epoch": "13", "head_lsn": "5", "durable_upto": "5", "oldest": "1",
                     "reason": "limit"});
    assert_eq!((&found[4], found.len()), (&end, 5));

    let (_, mut socket) = open(&server, "/v1/log?store=kv&after=4&wait_ms=0", &[NDJSON]).await;
    let found = lines(&read(&mut socket, |_| false).await);
    assert_eq!((found[1]["lsn"].as_str(), found[2]["reason"].as_str(), found.len()), (Some("5"), Some("idle"), 3));
    assert_eq!((found[0]["epoch"].as_str(), found[2]["epoch"].as_str()), (Some("14"), Some("15")), "with the records");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn heartbeats_come_between_records_as_well() {
    let server = start().await;
    put(&server, 1).await;
    let (_, mut socket) = open(&server, "/v1/log?store=kv&heartbeat_ms=100", &[NDJSON]).await;
    let mut text = String::new();
    // Records arrive more often than heartbeats are due, so the stream is never quiet.
    for n in 2..=20 {
        put(&server, n).await;
        text += &read(&mut socket, |more| more.contains(&format!("\"k{n}\""))).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut lsn = json!("0");
    let mut heads = Vec::new();
    for line in lines(&text) {
        if line["event"] == "heartbeat" {
            assert_eq!(line["next"], lsn, "it follows the records that it counts");
            // Each record is of the epoch 10 + LSN.
            let number = |field: &str| line[field].as_str().unwrap().parse::<u64>().unwrap();
            assert!(number("epoch") <= 10 + number("next"), "{line}");
            heads.push(line["head_lsn"].as_str().map(str::to_owned));
        } else {
            lsn = line["lsn"].clone();
        }
    }
    assert_eq!(heads[0].as_deref(), Some("1"), "one comes first");
    assert!(heads.len() >= 2 && heads.last() != heads.first(), "{heads:?}");
    drop(socket);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_quiet_stream_sends_heartbeats_and_continues_with_new_records() {
    let router = RouterOptions { heartbeat: Duration::from_millis(100), ..RouterOptions::default() };
    let server = start_with(FakeNode::new(), ServerOptions::default(), router).await;
    put(&server, 1).await;
    let (_, mut socket) = open(&server, "/v1/log?store=kv&after=1&heartbeat_ms=60000", &[NDJSON]).await;
    let beats = read(&mut socket, |text| text.lines().count() >= 3).await;
    assert!(lines(&beats).iter().all(|line| line["event"] == "heartbeat" && line["next"] == "1"), "{beats}");
    put(&server, 2).await;
    let more = read(&mut socket, |text| text.contains("\"lsn\"")).await;
    let record = lines(&more).into_iter().find(|line| line["event"].is_null()).unwrap();
    assert_eq!((&record["lsn"], &record["prev_lsn"]), (&json!("2"), &json!("1")));
    drop(socket);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn events_carry_their_lsn_and_resume_after_the_last_one() {
    let server = start().await;
    for n in 1..=4 {
        put(&server, n).await;
    }
    let (head, mut socket) = open(&server, "/v1/log?store=kv&limit=2", &[EVENTS]).await;
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    let text = read(&mut socket, |_| false).await;
    assert!(text.starts_with("retry: 1000\nevent: heartbeat\ndata: {"), "{text}");
    let blocks: Vec<_> = text.trim_end().split("\n\n").collect();
    assert_eq!(blocks.len(), 4, "{text}");
    assert!(blocks[1].starts_with("id: 1\ndata: {\"lsn\":\"1\","), "{text}");
    assert!(blocks[2].starts_with("id: 2\ndata: {") && blocks[3].starts_with("event: end\ndata: {"), "{text}");
    let data = |block: &str| block.split("data: ").nth(1).unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&data(blocks[2])).unwrap()["writes"][0]["key"], "k2");

    let resumed = [EVENTS, ("last-event-id", "3")];
    let (_, mut socket) = open(&server, "/v1/log?store=kv&after=0&wait_ms=0", &resumed).await;
    let text = read(&mut socket, |_| false).await;
    assert!(text.contains("\n\nid: 4\n") && !text.contains("id: 3"), "{text}");
    let from_start = [EVENTS, ("last-event-id", "")];
    let (_, mut socket) = open(&server, "/v1/log?store=kv&limit=1", &from_start).await;
    assert!(read(&mut socket, |_| false).await.contains("id: 1\n"));
    server.stop().await.unwrap();
}

async fn refused(server: &Running, path: &str, headers: &[(&str, &str)]) -> (u16, String, Reply) {
    let reply = Client::connect(server.address).await.call("GET", path, headers, b"").await;
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{path}");
    (reply.status, reply.json()["code"].as_str().unwrap().to_owned(), reply)
}

#[tokio::test]
async fn invalid_requests_are_rejected_before_a_stream_begins() {
    let server = start().await;
    for (path, headers, status, code) in [
        ("/v1/log?store=kv", vec![("accept", "text/html")], 406, "not_acceptable"),
        ("/v1/log?store=nope", vec![NDJSON], 404, "unknown_store"),
        ("/v1/log", vec![EVENTS], 400, "missing_field"),
        ("/v1/log?store=kv&after=x", vec![NDJSON], 400, "bad_number"),
        ("/v1/log?store=kv&after=18446744073709551616", vec![NDJSON], 400, "bad_number"),
        ("/v1/log?store=kv&heartbeat_ms=99", vec![NDJSON], 400, "bad_number"),
        ("/v1/log?store=kv&heartbeat_ms=60001", vec![NDJSON], 400, "bad_number"),
        ("/v1/log?store=kv&limit=0x1", vec![EVENTS], 400, "bad_number"),
        ("/v1/log?store=kv", vec![EVENTS, ("last-event-id", "seven")], 400, "bad_parameter"),
        ("/v1/log?store=kv", vec![EVENTS, ("last-event-id", "-1")], 400, "bad_parameter"),
        ("/v1/log?store=kv", vec![EVENTS, ("last-event-id", "99999999999999999999999")], 400, "bad_parameter"),
        ("/v1/log?store=kv&after=666", vec![NDJSON], 410, "log_truncated"),
        ("/v1/log?store=kv", vec![EVENTS, ("last-event-id", "666")], 410, "log_truncated"),
        ("/v1/stores/kv/state", vec![("accept", "application/json")], 406, "not_acceptable"),
        ("/v1/stores/nope/state", vec![], 404, "unknown_store"),
        ("/v1/stores/declared/state", vec![], 410, "state_gone"),
    ] {
        let (found, name, _) = refused(&server, path, &headers).await;
        assert_eq!((found, name.as_str()), (status, code), "{path} {headers:?}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_truncated_log_names_where_to_start_over() {
    let server = start().await;
    for accept in ["application/json", "application/x-ndjson", "text/event-stream"] {
        let path = "/v1/log?store=orders%2F%C3%BC&after=666";
        let (_, _, reply) = refused(&server, path, &[("accept", accept)]).await;
        let problem = reply.json();
        assert_eq!((&problem["oldest"], &problem["retryable"]), (&json!("667"), &json!(false)));
        let url = problem["state_url"].as_str().unwrap();
        assert_eq!(url, "/v1/stores/orders%2F%C3%BC/state");
        assert_eq!(reply.header("link"), Some(format!("<{url}>; rel=\"alternate\"").as_str()));
        let (head, mut socket) = open(&server, url, &[]).await;
        assert!(head.starts_with("http/1.1 200"), "{head}");
        let found = lines(&read(&mut socket, |_| false).await);
        assert_eq!((&found[0]["kind"], &found[0]["lsn"]), (&json!("storage"), &json!("0")));
        assert_eq!(found[1], json!({"event": "end", "rows": "0"}));
        // A store without an adaptor has no state once its log is truncated.
        let (_, _, reply) = refused(&server, "/v1/log?store=declared&after=666", &[("accept", accept)]).await;
        let problem = reply.json();
        assert!(problem.get("state_url").is_none() && reply.header("link").is_none(), "{problem}");
        assert!(problem["detail"].as_str().unwrap().ends_with("has no other state"), "{problem}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_state_image_has_a_head_rows_and_an_end() {
    let server = start().await;
    for n in 1..=3 {
        put(&server, n).await;
    }
    let (_, mut socket) = open(&server, "/v1/stores/kv/state", &[NDJSON]).await;
    let found = lines(&read(&mut socket, |_| false).await);
    assert_eq!(
        (&found[0]["event"], &found[0]["kind"], &found[0]["lsn"]),
        (&json!("state"), &json!("rows"), &json!("3"))
    );
    assert_eq!(found[0]["log"], fake_node::LOG.to_string());
    assert_eq!((&found[1]["key"], &found[1]["value"]), (&json!("k1"), &json!(1)));
    assert!(found[1]["version"].is_string());
    assert_eq!(found.last().unwrap(), &json!({"event": "end", "rows": "3"}));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn statistics_are_answered_once_or_again_and_again() {
    let server = start().await;
    let stats = Client::connect(server.address).await.get("/v1/stats").await.json();
    assert_eq!(
        (&stats["committed_per_s"], &stats["aborted_per_s"], &stats["abort_share"]),
        (&json!(3.0), &json!(1.0), &json!(0.25))
    );
    assert_eq!(stats["aborts"], json!([{"reason": "read_conflict", "count": "2"}]));
    assert_eq!((&stats["phases"][0]["name"], &stats["phases"][0]["us"]["p99"]), (&json!("sync"), &json!(3.0)));
    assert_eq!(stats["stores"].as_array().unwrap().len(), 3);
    let (head, mut socket) = open(&server, "/v1/stats?interval_ms=100", &[EVENTS]).await;
    assert!(head.contains("content-type: text/event-stream"), "{head}");
    let text = read(&mut socket, |text| text.matches("data: ").count() >= 3).await;
    let event = text.split("\n\n").next().unwrap().strip_prefix("data: ").unwrap();
    assert_eq!(serde_json::from_str::<Value>(event).unwrap()["committed_per_s"], 3.0);
    drop(socket);
    for (path, headers, status, code) in [
        ("/v1/stats", vec![NDJSON], 406, "not_acceptable"),
        ("/v1/stats?interval_ms=99", vec![EVENTS], 400, "bad_number"),
        ("/v1/stats?often=1", vec![], 400, "unknown_parameter"),
    ] {
        let (found, name, _) = refused(&server, path, &headers).await;
        assert_eq!((found, name.as_str()), (status, code), "{path}");
    }
    server.stop().await.unwrap();
}
