//! Log streams of a real process: following, resuming, slow readers, shutdown, states to restart from.

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Node, eventually, new_id};

/// Lines of a stream.
struct Lines(std::io::Lines<BufReader<Box<dyn Read + Send>>>);

impl Lines {
    fn open(node: &Node, path: &str, headers: &[(&str, &str)]) -> Lines {
        let agent = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(120))).build().new_agent();
        let mut request = agent.get(format!("{}{path}", node.url));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = request.call().expect("a stream").into_body().into_reader();
        Lines(BufReader::new(Box::new(body) as Box<dyn Read + Send>).lines())
    }

    fn ndjson(node: &Node, path: &str) -> Lines {
        Lines::open(node, path, &[("accept", "application/x-ndjson")])
    }

    fn text(&mut self) -> Option<String> {
        self.0.next().map(|line| line.expect("the stream is whole"))
    }

    fn value(&mut self) -> Option<Value> {
        self.text().map(|line| serde_json::from_str(&line).expect("JSON"))
    }

    /// Returns the next record; skips heartbeats.
    fn record(&mut self) -> Value {
        loop {
            let value = self.value().expect("the stream goes on");
            match value["event"].as_str() {
                None => return value,
                Some("heartbeat") => {}
                Some(_) => panic!("{value}"),
            }
        }
    }
}

fn number(value: &Value) -> u64 {
    value.as_str().expect("a decimal string").parse().expect("a number")
}

#[test]
fn a_follower_gets_every_record_once_and_resumes_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let total = 200;
    std::thread::scope(|scope| {
        let follower = scope.spawn(|| {
            let mut seen = Vec::new();
            // Three connections, one after the other, as if the network broke twice.
            for upto in [50, 120, total] {
                let after = seen.len();
                let mut lines = Lines::ndjson(&node, &format!("/v1/log?store=kv&after={after}"));
                while seen.len() < upto {
                    seen.push(lines.record());
                }
            }
            seen
        });
        for _ in 0..4 {
            scope.spawn(|| (0..total / 4).for_each(|n| drop(node.put_row(&format!("k{n}"), n as i64))));
        }
        let seen = follower.join().expect("the follower");
        let lsns: Vec<_> = seen.iter().map(|record| number(&record["lsn"])).collect();
        assert_eq!(lsns, (1..=total as u64).collect::<Vec<_>>());
        assert_eq!(seen, node.log_of("kv"), "a stream says what the pages say");
    });
}

#[test]
fn events_resume_behind_the_last_id() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for n in 0..6 {
        node.put_row(&format!("k{n}"), n);
    }
    let events = |last: &str| {
        let headers = [("accept", "text/event-stream"), ("last-event-id", last)];
        let mut lines = Lines::open(&node, "/v1/log?store=kv&wait_ms=0", &headers);
        let all: Vec<_> = std::iter::from_fn(|| lines.text()).collect();
        all.iter().filter_map(|line| line.strip_prefix("id: ")?.parse::<u64>().ok()).collect::<Vec<_>>()
    };
    assert_eq!(events(""), [1, 2, 3, 4, 5, 6]);
    assert_eq!(events("4"), [5, 6]);
    assert_eq!(events("6"), [] as [u64; 0]);
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let past = agent.get(format!("{}/v1/log?store=kv", node.url)).header("accept", "text/event-stream");
    let refused = past.header("last-event-id", "7").call().expect("an answer").into_body().read_to_string().unwrap();
    assert!(refused.contains("position_beyond_head") && refused.contains("\"last-event-id:\""), "{refused}");
    let answer = node.get("/v1/log?store=kv&after=7");
    assert_eq!((answer.status, &answer.body["code"]), (422, &json!("position_beyond_head")), "{}", answer.body);
}

/// A pretty-printed value, and one that looks like records and events, were they on lines of their own.
#[test]
fn a_record_is_one_line_whatever_line_breaks_its_values_have() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let values = [
        "{\n  \"balance\": 100,\r\n\t\"of\": [\r1]\n}",
        "[\n{\"lsn\":\"9\",\"writes\":[]}\n,\n\n{\"event\":\"end\",\"next\":\"9\",\"reason\":\"limit\"}\n]",
        "\"a\\nb\"",
    ];
    for (n, value) in values.iter().enumerate() {
        let body = format!("{{\"writes\":[{{\"op\":\"put\",\"store\":\"kv\",\"key\":\"k{n}\",\"value\":{value}}}]}}");
        let url = format!("{}/v1/txns/{}/commit", node.url, new_id());
        let sent = ureq::post(url).content_type("application/json").send(&body).expect("a verdict");
        assert_eq!(sent.status(), 200);
    }
    let meant: Vec<Value> = values.iter().map(|value| serde_json::from_str(value).expect("JSON")).collect();
    let pages = node.log_of("kv");
    let mut lines = Lines::ndjson(&node, "/v1/log?store=kv&wait_ms=0");
    for (record, value) in pages.iter().zip(&meant) {
        let line = lines.record();
        assert_eq!((&line, &line["writes"][0]["value"]), (record, value));
    }
    let rest: Vec<Value> = std::iter::from_fn(|| lines.value()).collect();
    assert!(rest.iter().all(|line| line["writes"].is_null()), "{rest:?}");
    let mut events = Lines::open(&node, "/v1/log?store=kv&wait_ms=0", &[("accept", "text/event-stream")]);
    let data = std::iter::from_fn(|| events.text()).filter_map(|line| Some(line.strip_prefix("data: ")?.to_owned()));
    let data: Vec<Value> = data.map(|text| serde_json::from_str(&text).expect("a whole record")).collect();
    let records: Vec<Value> = data.into_iter().filter(|event| event["writes"].is_array()).collect();
    assert_eq!(records, pages);
    let mut state = Lines::ndjson(&node, "/v1/stores/kv/state");
    let rows: Vec<Value> = std::iter::from_fn(|| state.value()).filter(|line| line["event"].is_null()).collect();
    assert_eq!(rows.iter().map(|row| row["value"].clone()).collect::<Vec<_>>(), meant);
    // Compares each record with its checksum.
    let tail = ["log", "tail", "--json", "--url", &node.url];
    let printed = Command::new(env!("CARGO_BIN_EXE_tribunal")).args(tail).output().expect("runs");
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    assert_eq!(String::from_utf8_lossy(&printed.stdout).lines().count(), 3);
}

#[test]
fn a_log_that_is_on_disk_only_is_streamed_to_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    // Several pages of a stream, each read from the disk.
    let (value, count) = ("x".repeat(64 * 1024), 30);
    for n in 0..count {
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": format!("k{n}"), "value": value}]});
        assert_eq!(node.commit(&body).body["status"], "committed");
    }
    assert!(node.stop().success());
    let node = Node::start(dir.path());
    let mut lines = Lines::ndjson(&node, "/v1/log?store=kv");
    let lsns: Vec<_> = (0..count).map(|_| number(&lines.record()["lsn"])).collect();
    assert_eq!(lsns, (1..=count).collect::<Vec<_>>());
    // The statistics stream also shows a consumer whose position is no longer in memory.
    assert!(node.put("/v1/consumers/late", &json!({"store": "kv", "lsn": "1"})).status < 300);
    let mut figures = Lines::open(&node, "/v1/stats", &[("accept", "text/event-stream")]);
    let shown = std::iter::from_fn(|| figures.text()).find(|line| line.starts_with("data:")).expect("figures");
    assert!(shown.contains("late"), "{shown}");
}

#[test]
fn a_reader_that_does_not_read_blocks_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let mut stalled = Lines::ndjson(&node, "/v1/log?store=kv");
    assert_eq!(stalled.value().expect("a first heartbeat")["event"], "heartbeat");
    let value = "x".repeat(256 * 1024);
    let count = 80;
    for n in 0..count {
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": format!("k{}", n % 4), "value": value}]});
        assert_eq!(node.commit(&body).body["status"], "committed");
    }
    let quick: Vec<_> = {
        let mut lines = Lines::ndjson(&node, &format!("/v1/log?store=kv&limit={count}"));
        (0..count).map(|_| lines.record()).collect()
    };
    let slow: Vec<_> = (0..count).map(|_| stalled.record()).collect();
    assert_eq!(slow, quick, "it lost nothing by being slow");
}

#[test]
fn a_stop_ends_streams_and_long_polls() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    node.put_row("k", 1);
    let start = Instant::now();
    std::thread::scope(|scope| {
        let mut lines = Lines::ndjson(&node, "/v1/log?store=kv");
        lines.record();
        let stream = scope.spawn(move || std::iter::from_fn(|| lines.value()).last());
        let mut events = Lines::open(&node, "/v1/log?store=kv&after=1", &[("accept", "text/event-stream")]);
        assert_eq!(events.text().as_deref(), Some("retry: 1000"));
        let events = scope.spawn(move || std::iter::from_fn(|| events.text()).collect::<Vec<_>>());
        let page = scope.spawn(|| node.get("/v1/log?store=kv&after=1&wait_ms=60000"));
        let status = scope.spawn(|| node.get(&format!("/v1/txns/{}?wait_ms=60000", new_id())));
        // All four exist before the node is stopped: each has a connection.
        eventually("four waiting connections", || {
            let text = node.get("/metrics").body.as_str()?.to_owned();
            let open = text.lines().find_map(|line| line.strip_prefix("tribunal_http_connections_open "))?.to_owned();
            (open.parse::<u64>().ok()? >= 5).then_some(())
        });
        // Their requests follow at once.
        std::thread::sleep(Duration::from_secs(1));
        node.signal("TERM");
        let last = stream.join().unwrap().expect("a last line");
        assert_eq!((&last["event"], &last["reason"], &last["next"]), (&json!("end"), &json!("stopping"), &json!("1")));
        let events = events.join().unwrap();
        assert!(events.contains(&"event: end".to_owned()), "{events:?}");
        let page = page.join().unwrap();
        assert_eq!((page.status, &page.body["records"], &page.body["next"]), (200, &json!([]), &json!("1")));
        let status = status.join().unwrap();
        assert_eq!((status.status, &status.body["status"]), (200, &json!("unknown")));
    });
    let (status, stderr) = node.ended();
    assert!(status.success(), "{stderr}");
    assert!(start.elapsed() < Duration::from_secs(60), "nobody waited for a time-out");
}

#[test]
fn a_waiting_status_request_gets_the_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let id = new_id();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| node.get(&format!("/v1/txns/{id}?wait_ms=60000")).body);
        let fenced = new_id();
        let fence = scope.spawn({
            let (node, fenced) = (&node, fenced.clone());
            move || node.get(&format!("/v1/txns/{fenced}?wait_ms=60000")).body
        });
        std::thread::sleep(Duration::from_millis(50));
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": "k", "value": 1}]});
        let verdict = node.post(&format!("/v1/txns/{id}/commit"), &body).body;
        assert_eq!(waiting.join().unwrap()["version"], verdict["version"]);
        node.get(&format!("/v1/txns/{fenced}?fence=true"));
        assert_eq!(fence.join().unwrap()["reason"], "fenced");
    });
}

fn state_of(node: &Node, store: &str) -> (Value, BTreeMap<String, Value>) {
    let mut lines = Lines::ndjson(node, &format!("/v1/stores/{store}/state"));
    let head = lines.value().expect("a head");
    let mut rows = BTreeMap::new();
    let end = loop {
        let line = lines.value().expect("an end");
        match line["event"].as_str() {
            None => drop(rows.insert(line["key"].as_str().expect("a key").to_owned(), line["value"].clone())),
            Some(_) => break line,
        }
    };
    assert_eq!(end, json!({"event": "end", "rows": rows.len().to_string()}));
    (head, rows)
}

/// Returns the state after the log's records up to `upto`.
fn replayed(records: &[Value], upto: u64) -> BTreeMap<String, Value> {
    let mut rows: BTreeMap<String, Value> = BTreeMap::new();
    for record in records.iter().take_while(|record| number(&record["lsn"]) <= upto) {
        for write in record["writes"].as_array().expect("writes") {
            let key = write["key"].as_str().expect("a key").to_owned();
            match write["op"].as_str().expect("an op") {
                "delete" => drop(rows.remove(&key)),
                "add" => {
                    let sum = rows[&key].as_i64().expect("a number") + write["value"].as_i64().expect("a number");
                    rows.insert(key, json!(sum));
                }
                _ => drop(rows.insert(key, write["value"].clone())),
            }
        }
    }
    rows
}

#[test]
fn a_state_image_equals_the_log_at_its_position_during_commits() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for n in 0..100 {
        node.put_row(&format!("k{n:03}"), n);
    }
    let done = std::sync::atomic::AtomicBool::new(false);
    let images = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for n in 0..120 {
                let key = format!("k{:03}", (n * 37) % 100);
                let write = match n % 3 {
                    0 => json!({"op": "delete", "store": "kv", "key": format!("k{:03}", n % 100)}),
                    1 => json!({"op": "put", "store": "kv", "key": key, "value": n}),
                    _ => json!({"op": "put", "store": "kv", "key": format!("new{n}"), "value": n}),
                };
                node.commit(&json!({"isolation": "read-committed", "writes": [write]}));
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut images = Vec::new();
        while !done.load(std::sync::atomic::Ordering::Relaxed) || images.is_empty() {
            images.push(state_of(&node, "kv"));
        }
        writer.join().expect("the writer");
        images
    });
    let log = node.log_of("kv");
    for (head, rows) in &images {
        let lsn = number(&head["lsn"]);
        assert_eq!(rows, &replayed(&log, lsn), "at {lsn}");
    }
}

#[test]
fn every_kind_of_store_reports_where_its_state_is() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    assert_eq!(node.put("/v1/stores/journal", &json!({})).status, 201);
    let (head, rows) = state_of(&node, "journal");
    assert_eq!((&head["kind"], &head["lsn"], rows.len()), (&json!("log"), &json!("0"), 0));
    let redis = json!({"adaptor": "redis", "adaptor_config": {"endpoint": "127.0.0.1:1"}});
    assert_eq!(node.put("/v1/stores/far", &redis).status, 201);
    let (head, rows) = state_of(&node, "far");
    assert_eq!((&head["kind"], &head["lsn"], rows.len()), (&json!("storage"), &json!("0"), 0));
}

/// Starts a node that retains as little of its log as possible.
fn forgetful(data: &Path) -> Node {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command
        .args(["dev", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .env("TRIBUNAL__LOG__RETENTION_HOURS", "0")
        .env("TRIBUNAL__LOG__RETENTION_BYTES", "1048576")
        .env("TRIBUNAL__LOG__IMAGE_EVERY_BYTES", "1048576");
    Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
}

#[test]
fn a_reader_past_retention_restarts_from_state() {
    let dir = tempfile::tempdir().unwrap();
    let node = forgetful(dir.path());
    // The log is compressed, so the values must be incompressible.
    let value: String = (0..6_000).map(|_| new_id()).collect();
    assert_eq!(node.put("/v1/stores/journal", &json!({})).status, 201);
    let gone = eventually("a truncated log", || {
        for n in 0..8 {
            let write = |store: &str| json!({"op": "put", "store": store, "key": format!("k{n}"), "value": value});
            assert_eq!(node.commit(&json!({"writes": [write("kv"), write("journal")]})).body["status"], "committed");
        }
        let answer = node.get("/v1/log?store=kv&after=0&limit=1");
        (answer.status == 410).then_some(answer.body)
    });
    let url = gone["state_url"].as_str().expect("a way out").to_owned();
    assert_eq!(url, "/v1/stores/kv/state");
    let (head, rows) = state_of(&node, "kv");
    assert_eq!((head["kind"].as_str(), rows.len()), (Some("rows"), 8));
    let text = |name: &str| head[name].as_str().unwrap_or_else(|| panic!("no {name}: {head}"));
    let next = node.get(&format!("/v1/log?store=kv&log={}&after={}&limit=1", text("log"), text("lsn")));
    assert_eq!(next.status, 200, "{}", next.body);
    let state = node.get("/v1/stores/journal/state");
    assert_eq!((state.status, &state.body["code"]), (410, &json!("state_gone")), "{}", state.body);
    let journal = node.get("/v1/log?store=journal&after=0&limit=1");
    assert_eq!((journal.status, &journal.body["code"]), (410, &json!("log_truncated")), "{}", journal.body);
    assert!(journal.body.get("state_url").is_none(), "there is no state to restart from: {}", journal.body);
    assert!(journal.body["detail"].as_str().unwrap().contains("only its log"), "{}", journal.body);
}
