//! Commit streams on a real process: the verdicts equal those of batches, and no accepted commit is lost, however the
//! stream ends.

mod support;

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use support::keyed::{AUTH, call, make_key, operator, serve};
use support::{Node, eventually, new_id};

/// A stream over HTTP/1.1.
struct Stream {
    socket: TcpStream,
    chunks: BufReader<TcpStream>,
    pending: Vec<u8>,
}

impl Stream {
    fn open(node: &Node, key: Option<&str>) -> Stream {
        let address = node.url.strip_prefix("http://").expect("plain HTTP");
        let mut socket = TcpStream::connect(address).expect("the node listens");
        socket.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        let authorization = key.map_or_else(String::new, |key| format!("authorization: Bearer {key}\r\n"));
        let head = format!(
            "POST /v1/txns/stream HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n{authorization}\
             transfer-encoding: chunked\r\n\r\n"
        );
        socket.write_all(head.as_bytes()).expect("sent");
        let mut chunks = BufReader::new(socket.try_clone().expect("a descriptor"));
        let mut line = String::new();
        chunks.read_line(&mut line).expect("a response");
        assert!(line.starts_with("HTTP/1.1 200"), "{line}");
        while line != "\r\n" {
            line.clear();
            chunks.read_line(&mut line).expect("a head");
        }
        Stream { socket, chunks, pending: Vec::new() }
    }

    fn try_write(&mut self, text: &str) -> std::io::Result<()> {
        self.socket.write_all(format!("{:x}\r\n{text}\r\n", text.len()).as_bytes())
    }

    fn write(&mut self, text: &str) {
        self.try_write(text).expect("the node reads");
    }

    fn send(&mut self, commits: &[Value]) {
        self.write(&commits.iter().map(|commit| format!("{commit}\n")).collect::<String>());
    }

    fn finish(&mut self) {
        self.socket.write_all(b"0\r\n\r\n").expect("the node reads");
    }

    /// Returns the next outcome or end; `None` after the end of the response.
    fn line(&mut self) -> Option<Value> {
        loop {
            if let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.pending.drain(..=end).collect();
                let line: Value = serde_json::from_slice(&line).expect("JSON");
                if line["event"] != "heartbeat" {
                    return Some(line);
                }
                continue;
            }
            let mut size = String::new();
            self.chunks.read_line(&mut size).ok()?;
            let size = usize::from_str_radix(size.trim(), 16).ok()?;
            let mut chunk = vec![0; size + 2];
            self.chunks.read_exact(&mut chunk).ok()?;
            if size == 0 {
                return None;
            }
            self.pending.extend_from_slice(&chunk[..size]);
        }
    }

    fn rest(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.line()).collect()
    }
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn put(id: &str, key: &str) -> Value {
    json!({"txn_id": id, "writes": [{"op": "put", "store": "kv", "key": key, "value": 1}]})
}

/// Commits of every kind; returns their outcomes without the fields that differ between two nodes.
fn of_every_kind(node: &Node, ids: &[String]) -> Vec<String> {
    let version = node.put_row("old", 1)["version"].clone();
    node.put_row("old", 2);
    let [known, taken] = [new_id(), new_id()];
    for id in [&known, &taken] {
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": "t", "value": 1}]});
        assert_eq!(node.post(&format!("/v1/txns/{id}/commit"), &body).body["status"], "committed");
    }
    let write = |op: &str, key: &str, value: Value| json!({"op": op, "store": "kv", "key": key, "value": value});
    let read = json!([{"store": "kv", "key": "old", "version": version}]);
    [
        put(&ids[0], "a"),
        json!({"txn_id": ids[1], "reads": read, "writes": [write("put", "b", json!(1))]}),
        json!({"txn_id": ids[2], "writes": [write("insert", "old", json!(1))]}),
        json!({"txn_id": ids[3], "writes": [write("update", "none", json!(1))]}),
        json!({"txn_id": ids[4], "writes": [write("add", "n", json!(7)), write("put", "c", json!({"x": [1]}))]}),
        json!({"txn_id": ids[5], "reads": read}),
        json!({"txn_id": ids[6], "reads": [{"store": "kv", "key": "none"}]}),
        json!({"txn_id": ids[7], "writes": [{"op": "put", "store": "nope", "key": "k", "value": 1}]}),
        json!({"txn_id": ids[8], "writes": [write("upsert", "k", json!(1))]}),
        json!({"txn_id": ids[9], "ack": "durable", "writes": [write("put", "d", json!(1))]}),
        json!({"txn_id": known, "writes": [write("put", "t", json!(1))]}),
        json!({"txn_id": taken, "writes": [write("put", "t", json!(2))]}),
        json!({"txn_id": "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a", "writes": [write("put", "t", json!(2))]}),
        json!({"writes": []}),
        json!([1]),
    ]
    .map(|commit| format!("{commit}\n"))
    .into()
}

fn shown(line: &Value, ids: &[String]) -> String {
    let place = ids.iter().position(|id| id == text(line, "txn_id"));
    let problem = &line["problem"];
    let keys: Vec<&str> = line["conflicts"].as_array().into_iter().flatten().map(|c| text(c, "key")).collect();
    format!(
        "{place:?} {} {} {} {} {} {keys:?} {} {} {}",
        text(line, "status"),
        line["reason"],
        line["retryable"],
        line["replayed"],
        line["read_only"],
        line["applied"],
        problem["code"],
        problem["errors"],
    )
}

#[test]
fn verdicts_are_those_of_a_batch() {
    let answers = |send: &dyn Fn(&Node, &[String]) -> Vec<Value>| {
        let dir = tempfile::tempdir().unwrap();
        let node = Node::start(dir.path());
        let ids: Vec<String> = (0..10).map(|_| new_id()).collect();
        let lines = of_every_kind(&node, &ids);
        let answers = send(&node, &lines);
        assert_eq!(answers.len(), lines.len());
        let mut shown: Vec<String> = answers.iter().map(|line| shown(line, &ids)).collect();
        shown.sort();
        shown
    };
    let batch = answers(&|node, lines| {
        let agent = ureq::agent();
        let request =
            agent.post(format!("{}/v1/txns/batch-commit", node.url)).header("content-type", "application/x-ndjson");
        let reply = request.send(lines.concat()).expect("a reply").body_mut().read_to_string().expect("text");
        reply.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
    });
    // All at once, and each separately.
    let together = answers(&|node, lines| {
        let mut stream = Stream::open(node, None);
        stream.write(&lines.concat());
        stream.finish();
        let mut found = stream.rest();
        assert_eq!(found.pop(), Some(json!({"event": "end", "reason": "complete", "lines": lines.len().to_string()})));
        found
    });
    let one_by_one = answers(&|node, lines| {
        let mut stream = Stream::open(node, None);
        let answer = |line: &String| {
            stream.write(line);
            stream.line().expect("an answer")
        };
        lines.iter().map(answer).collect()
    });
    assert_eq!(together, batch);
    assert_eq!(one_by_one, batch);
}

#[test]
fn an_id_that_is_in_flight_is_refused_and_the_first_gets_its_verdict() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::try_start(dir.path(), &["--epoch-ms", "200"]).expect("the node starts");
    let mut stream = Stream::open(&node, None);
    let (id, other) = (new_id(), new_id());
    stream.send(&[put(&id, "a"), put(&other, "b"), put(&id, "a")]);
    stream.finish();
    let found = stream.rest();
    let codes: Vec<_> = found.iter().filter(|line| text(line, "txn_id") == id).map(|l| &l["problem"]["code"]).collect();
    assert!(codes.contains(&&json!("in_flight")) && codes.contains(&&Value::Null) && codes.len() == 2, "{found:?}");
    assert_eq!(found.iter().filter(|line| text(line, "status") == "committed").count(), 2, "{found:?}");
}

#[test]
fn a_commit_that_waits_for_its_store_holds_up_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let far = json!({"adaptor": "redis", "adaptor_config": {"endpoint": "127.0.0.1:1"}});
    assert_eq!(node.put("/v1/stores/far", &far).status, 201);
    let mut stream = Stream::open(&node, None);
    let slow = new_id();
    let wait =
        json!({"txn_id": slow, "ack": "applied", "writes": [{"op": "put", "store": "far", "key": "k", "value": 1}]});
    let ids: Vec<String> = (0..50).map(|_| new_id()).collect();
    let commits: Vec<Value> = ids.iter().map(|id| put(id, id)).collect();
    stream.send(&[&[wait], &commits[..25]].concat());
    stream.send(&commits[25..]);
    let found: HashSet<String> =
        (0..50).map(|_| text(&stream.line().expect("an answer"), "txn_id").to_owned()).collect();
    assert_eq!(found, ids.into_iter().collect());
    // It has committed; only its acknowledgement waits.
    assert_eq!(node.get(&format!("/v1/txns/{slow}?wait_ms=5000")).body["status"], "committed");
}

#[test]
fn commits_of_a_client_that_disconnects_are_decided_and_found_by_their_ids() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::try_start(dir.path(), &["--epoch-ms", "100"]).expect("the node starts");
    let mut stream = Stream::open(&node, None);
    let ids: Vec<String> = (0..50).map(|_| new_id()).collect();
    let commits: Vec<Value> = ids[1..].iter().map(|id| put(id, id)).collect();
    // One response shows that the node reads.
    stream.send(&[put(&ids[0], "first")]);
    assert_eq!(stream.line().expect("an answer")["status"], "committed");
    let half = new_id();
    let unfinished = put(&half, "half").to_string();
    let lines: String = commits.iter().map(|commit| format!("{commit}\n")).collect();
    stream.write(&format!("{lines}{}", &unfinished[..unfinished.len() - 1]));
    // The node has read all of them. It would discard unread lines with the connection.
    eventually("the last commit to be taken in", || {
        (node.get(&format!("/v1/txns/{}", ids[49])).body["status"] != "unknown").then_some(())
    });
    stream.socket.shutdown(Shutdown::Both).expect("closed");
    drop(stream);
    for id in &ids {
        eventually("a verdict", || {
            let status = node.get(&format!("/v1/txns/{id}?wait_ms=1000")).body;
            (status["status"] == "committed").then_some(())
        });
    }
    assert_eq!(node.get(&format!("/v1/txns/{half}")).body["status"], "unknown");
    eventually("the stream is closed", || {
        let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
        metrics.contains("\ntribunal_http_commit_streams_open 0\n").then_some(())
    });
}

#[test]
fn a_revoked_key_ends_its_stream() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let kv = json!({"adaptor": "kv"});
    assert_eq!(call(&node, &root, "PUT", "/v1/stores/kv", Some(&kv)).status, 201);
    let key = make_key(&node, &root, "default", &["engine"]);
    let mut stream = Stream::open(&node, Some(&key));
    let mut other = Stream::open(&node, Some(&make_key(&node, &root, "other", &["engine"])));
    let id = new_id();
    stream.send(&[put(&id, "a")]);
    assert_eq!(stream.line().expect("an answer")["status"], "committed");
    let keys = call(&node, &root, "GET", "/v1/admin/keys", None).body;
    let of =
        keys["keys"].as_array().unwrap().iter().find(|key| key["name"] == "of-default").expect("the key")["id"].clone();
    let path = format!("/v1/admin/keys/{}", of.as_str().unwrap());
    assert_eq!(call(&node, &root, "DELETE", &path, None).status, 204);
    let end = stream.line().expect("an end");
    assert_eq!(
        (text(&end, "event"), &end["problem"]["status"], &end["lines"]),
        ("end", &json!(401), &json!("1")),
        "{end}"
    );
    assert_eq!(stream.line(), None);
    other.send(&[put(&new_id(), "b")]);
    let answer = other.line().expect("an answer");
    assert_eq!(answer["problem"]["code"], "unknown_store", "another tenant's stream goes on: {answer}");
}

#[test]
fn a_node_stops_although_clients_leave_their_idle_streams_open() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let mut streams: Vec<Stream> = (0..5).map(|_| Stream::open(&node, None)).collect();
    let id = new_id();
    streams[0].send(&[put(&id, "a")]);
    let verdict = streams[0].line().expect("a verdict");
    assert_eq!(verdict["status"], "committed", "{verdict}");
    // Half a line of the second stream has arrived.
    streams[1].write("{\"txn_id\": ");
    let mut follower = TcpStream::connect(node.url.strip_prefix("http://").expect("plain HTTP")).expect("it listens");
    follower.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
    let request = "GET /v1/log?store=kv&after=0 HTTP/1.1\r\nhost: localhost\r\naccept: application/x-ndjson\r\n\r\n";
    follower.write_all(request.as_bytes()).expect("sent");
    let mut followed = String::new();
    let mut lines = BufReader::new(follower.try_clone().expect("a descriptor"));
    while !followed.contains(&id) {
        lines.read_line(&mut followed).expect("a line");
    }
    // No client ends a request or closes a connection, and the node stops nevertheless.
    node.signal("TERM");
    let (status, log) = node.ended();
    assert!(status.success(), "{log}");
    for (at, stream) in streams.iter_mut().enumerate() {
        let end = stream.line().expect("an end");
        let taken = if at == 0 { "1" } else { "0" };
        assert_eq!((text(&end, "event"), text(&end, "reason")), ("end", "stopping"), "{at}: {end}");
        assert_eq!(text(&end, "lines"), taken, "{at}: {end}");
        assert_eq!(stream.line(), None);
    }
    let _ = lines.read_to_string(&mut followed);
    assert!(followed.contains("\"event\":\"end\"") && followed.contains("\"reason\":\"stopping\""), "{followed}");
    let node = Node::start(dir.path());
    assert_eq!(node.get(&format!("/v1/txns/{id}")).body["version"], verdict["version"]);
}

#[test]
fn a_node_that_stops_tells_what_it_took_in_and_forgets_nothing_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let mut stream = Stream::open(&node, None);
    let mut sender = Stream {
        socket: stream.socket.try_clone().unwrap(),
        chunks: BufReader::new(stream.socket.try_clone().unwrap()),
        pending: Vec::new(),
    };
    let writer = std::thread::spawn(move || {
        let mut sent = Vec::new();
        for n in 0..100_000 {
            let id = new_id();
            if sender.try_write(&format!("{}\n", put(&id, &format!("k{}", n % 100)))).is_err() {
                break;
            }
            sent.push(id);
        }
        sent
    });
    let mut found = vec![stream.line().expect("an answer")];
    node.signal("TERM");
    found.extend(stream.rest());
    let end = found.pop().expect("an end");
    stream.socket.shutdown(Shutdown::Both).expect("closed");
    let sent = writer.join().expect("the writer");
    let (status, log) = node.ended();
    assert!(status.success(), "{log}");
    assert_eq!((text(&end, "event"), text(&end, "reason")), ("end", "stopping"), "{end}");
    let lines: usize = text(&end, "lines").parse().expect("a number");
    let answers: BTreeMap<&str, &Value> = found.iter().map(|line| (text(line, "txn_id"), line)).collect();
    assert_eq!(answers.len(), lines, "one answer for each line that was taken in");
    let node = Node::start(dir.path());
    for id in &sent[..lines] {
        let known = node.get(&format!("/v1/txns/{id}")).body;
        match text(answers[id.as_str()], "status") {
            "committed" => assert_eq!(known["version"], answers[id.as_str()]["version"]),
            "problem" => assert_eq!(known["status"], "unknown", "{}", answers[id.as_str()]),
            other => panic!("{other}"),
        }
    }
    for id in sent[lines..].iter().take(100) {
        assert_eq!(node.get(&format!("/v1/txns/{id}")).body["status"], "unknown", "after the end nothing is taken in");
    }
}

#[test]
fn every_line_counts_in_the_metrics() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let version = node.put_row("row", 1)["version"].clone();
    node.put_row("row", 2);
    let stale = || json!({"txn_id": new_id(), "reads": [{"store": "kv", "key": "row", "version": version}], "writes": [{"op": "put", "store": "kv", "key": "other", "value": 3}]});
    let mut stream = Stream::open(&node, None);
    stream.send(&[stale(), put(&new_id(), "a"), stale(), put(&new_id(), "b"), stale()]);
    stream.finish();
    assert_eq!(stream.rest().len(), 6);
    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    // Among several series: each reason has one from the start.
    let aborted =
        metrics.lines().filter(|line| line.starts_with("tribunal_txns_aborted_total{reason=\"read_conflict\""));
    let aborted: f64 = aborted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum();
    assert!((aborted - 3.0).abs() < f64::EPSILON, "{metrics}");
    let committed = metrics.lines().find(|line| line.starts_with("tribunal_txns_committed_total"));
    assert!(committed.is_some_and(|line| line.ends_with(" 4")), "{metrics}");
    assert!(metrics.contains("\ntribunal_http_commit_streams_opened_total 1\n"), "{metrics}");
}

#[test]
fn many_streams_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    node.put_row("sum", 0);
    let committed: usize = std::thread::scope(|scope| {
        let run = || {
            let mut stream = Stream::open(&node, None);
            for n in 0..30 {
                let add = |id: String| json!({"txn_id": id, "writes": [{"op": "add", "store": "kv", "key": "sum", "value": 1}]});
                stream.send(&(0..=n).map(|_| add(new_id())).collect::<Vec<_>>());
            }
            stream.finish();
            stream.rest().iter().filter(|line| line["status"] == "committed").count()
        };
        let streams: Vec<_> = (0..8).map(|_| scope.spawn(run)).collect();
        streams.into_iter().map(|stream| stream.join().expect("a stream")).sum()
    });
    assert_eq!(committed, 8 * 30 * 31 / 2);
    assert_eq!(node.get("/v1/stores/kv/rows/sum").body["value"], committed);
}

#[test]
fn curl_commits_over_both_versions_of_http() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        let mut curl = Command::new("curl")
            .args([
                "-fsSN",
                "--no-progress-meter",
                "-X",
                "POST",
                "-T",
                ".",
                version,
                "-H",
                "content-type: application/x-ndjson",
            ])
            .arg(format!("{}/v1/txns/stream", node.url))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("curl runs");
        let mut input = curl.stdin.take().expect("piped");
        let mut lines = BufReader::new(curl.stdout.take().expect("piped")).lines();
        for _ in 0..3 {
            let id = new_id();
            writeln!(input, "{}", put(&id, &id)).expect("curl reads");
            let line: Value = serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON");
            assert_eq!((text(&line, "txn_id"), text(&line, "status")), (id.as_str(), "committed"), "{version}");
        }
        drop(input);
        let end: Value = serde_json::from_str(&lines.next().expect("a line").expect("text")).expect("JSON");
        assert_eq!(end, json!({"event": "end", "reason": "complete", "lines": "3"}), "{version}");
        assert!(curl.wait().expect("curl ends").success());
    }
}
