//! Consumers with durable offsets on a real process: lag, bad input, restarts, log retention for consumers.

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use support::cluster::free_address;
use support::{Node, eventually, new_id};

/// How long a service is down: longer than a client tries to read.
const DOWN: Duration = Duration::from_secs(8);

fn set_offset(node: &Node, name: &str, store: &str, lsn: &str) -> support::Response {
    node.put(&format!("/v1/consumers/{name}"), &json!({"store": store, "lsn": lsn}))
}

fn only(consumer: &Value) -> &Value {
    let all = consumer["offsets"].as_array().expect("offsets");
    assert_eq!(all.len(), 1, "{consumer}");
    &all[0]
}

#[test]
fn an_offset_is_durable_and_shows_the_lag() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for n in 0..10 {
        node.put_row(&format!("k{n}"), n);
    }
    let set = set_offset(&node, "index", "kv", "4");
    assert_eq!(set.status, 200, "{}", set.body);
    let at = only(&set.body);
    assert_eq!(
        (&at["store"], &at["lsn"], &at["head_lsn"], &at["lag_records"]),
        (&json!("kv"), &json!("4"), &json!("10"), &json!("6"))
    );
    assert_eq!(set_offset(&node, "other", "kv", "10").status, 200);
    node.kill();

    let node = Node::start(dir.path());
    let shown = node.get("/v1/consumers/index").body;
    assert_eq!((&shown["name"], &only(&shown)["lsn"]), (&json!("index"), &json!("4")), "acknowledged, so durable");
    let older = eventually("a lag that grows", || {
        let lag = only(&node.get("/v1/consumers/index").body)["lag_ms"].as_str()?.parse::<u64>().ok()?;
        (lag > 0).then_some(lag)
    });
    assert!(older > 0);
    assert_eq!(only(&node.get("/v1/consumers/other").body)["lag_ms"], "0", "nothing is left for it");
    let names: Vec<_> = node.get("/v1/consumers").body["consumers"].as_array().expect("a list").clone();
    assert_eq!(names.iter().map(|one| one["name"].as_str().expect("a name")).collect::<Vec<_>>(), ["index", "other"]);
    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    let line = "tribunal_consumer_lag_records{namespace=\"default\",consumer=\"index\",store=\"kv\"} 6";
    assert!(metrics.contains(line), "{metrics}");

    assert_eq!(set_offset(&node, "index", "kv", "2").status, 200, "it may go back");
    assert_eq!(only(&node.get("/v1/consumers/index").body)["lag_records"], "8");
    assert_eq!(node.delete("/v1/consumers/index").status, 204);
    assert_eq!(node.get("/v1/consumers/index").status, 404);
    assert_eq!(node.delete("/v1/consumers/index").body["code"], "unknown_consumer");
    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    assert!(!metrics.contains("consumer=\"index\""), "a deleted consumer has no metrics");
}

#[test]
fn a_consumer_reads_several_stores() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    assert_eq!(node.put("/v1/stores/second", &json!({})).status, 201);
    node.put_row("k", 1);
    assert_eq!(set_offset(&node, "both", "second", "0").status, 200);
    let shown = set_offset(&node, "both", "kv", "1").body;
    let stores: Vec<_> = shown["offsets"].as_array().expect("two").iter().map(|at| at["store"].clone()).collect();
    assert_eq!(stores, ["kv", "second"]);
    assert_eq!(node.delete("/v1/consumers/both?store=second").status, 204);
    assert_eq!(node.delete("/v1/consumers/both?store=second").status, 404);
    assert_eq!(only(&node.get("/v1/consumers/both").body)["store"], "kv");
}

#[test]
fn invalid_offsets_are_rejected_and_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    node.put_row("k", 1);
    let long = "x".repeat(65);
    for (name, body, status, code) in [
        ("ok", json!({"store": "kv", "lsn": "2"}), 422, "position_beyond_head"),
        ("ok", json!({"store": "kv", "lsn": "18446744073709551615"}), 422, "position_beyond_head"),
        ("ok", json!({"store": "kv", "lsn": "18446744073709551616"}), 400, "bad_number"),
        ("ok", json!({"store": "kv", "lsn": "-1"}), 400, "bad_number"),
        ("ok", json!({"store": "kv", "lsn": 1}), 400, "wrong_type"),
        ("ok", json!({"store": "nope", "lsn": "1"}), 404, "unknown_store"),
        ("ok", json!({"store": "kv"}), 400, "missing_field"),
        ("ok", json!({"lsn": "1"}), 400, "missing_field"),
        ("ok", json!({"store": "kv", "lsn": "1", "mode": "x"}), 400, "unknown_field"),
        ("ok", json!([1]), 400, "wrong_type"),
        (".hidden", json!({"store": "kv", "lsn": "1"}), 400, "bad_name"),
        ("a%20b", json!({"store": "kv", "lsn": "1"}), 400, "bad_name"),
        ("a%2Fb", json!({"store": "kv", "lsn": "1"}), 400, "bad_name"),
        ("%C3%BC", json!({"store": "kv", "lsn": "1"}), 400, "bad_name"),
        ("%FF", json!({"store": "kv", "lsn": "1"}), 400, "bad_name"),
        (long.as_str(), json!({"store": "kv", "lsn": "1"}), 400, "bad_name"),
    ] {
        let answer = node.put(&format!("/v1/consumers/{name}"), &body);
        assert_eq!(
            (answer.status, answer.body["code"].as_str()),
            (status, Some(code)),
            "{name} {body}: {}",
            answer.body
        );
    }
    assert_eq!(node.get("/v1/consumers").body, json!({"consumers": []}));
    assert_eq!(node.get("/v1/consumers/never").status, 404);
}

/// Starts a node that retains nothing by age, and up to `bytes` by size.
fn keeping(data: &Path, bytes: u64) -> Node {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command
        .args(["dev", "--listen", "127.0.0.1:0", "--data"])
        .arg(data)
        .env("TRIBUNAL__LOG__RETENTION_HOURS", "0")
        .env("TRIBUNAL__LOG__RETENTION_BYTES", bytes.to_string())
        .env("TRIBUNAL__LOG__IMAGE_EVERY_BYTES", "1048576");
    Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
}

fn grow(node: &Node, records: usize) {
    // The log is compressed, so the values must be incompressible.
    let value: String = (0..6_000).map(|_| new_id()).collect();
    for n in 0..records {
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": format!("k{n}"), "value": value}]});
        assert_eq!(node.commit(&body).body["status"], "committed");
    }
}

fn is_truncated(node: &Node) -> bool {
    node.get("/v1/log?store=kv&after=0&limit=1").status == 410
}

#[test]
fn an_offset_retains_the_log_beyond_its_age_but_not_beyond_its_size() {
    let dir = tempfile::tempdir().unwrap();
    let node = keeping(dir.path(), 1 << 40);
    grow(&node, 1);
    assert_eq!(set_offset(&node, "slow", "kv", "1").status, 200);
    for _ in 0..6 {
        grow(&node, 10);
        assert!(!is_truncated(&node) || node.get("/v1/log?store=kv&after=1&limit=1").status == 200);
    }
    assert_eq!(node.get("/v1/log?store=kv&after=1&limit=1").status, 200, "the consumer finds what it needs");
    assert_eq!(node.delete("/v1/consumers/slow").status, 204);
    eventually("a log that is truncated when nobody needs it", || {
        grow(&node, 10);
        is_truncated(&node).then_some(())
    });
    assert!(node.stop().success());

    let dir = tempfile::tempdir().unwrap();
    let node = keeping(dir.path(), 4 << 20);
    assert_eq!(set_offset(&node, "dead", "kv", "0").status, 200);
    eventually("a log that a dead consumer does not fill the disk with", || {
        grow(&node, 10);
        is_truncated(&node).then_some(())
    });
    let at = only(&node.get("/v1/consumers/dead").body).clone();
    assert_eq!(at["lsn"], "0", "it is still known, and its lag shows");
    let number = |value: &Value| value.as_str().and_then(|text| text.parse::<u64>().ok());
    let oldest = number(&node.get("/v1/log?store=kv&after=0&limit=1").body["oldest"]).expect("it is truncated");
    assert_eq!(number(&at["truncated_below"]), Some(oldest), "{at}");
    let metric = "tribunal_consumer_truncated{namespace=\"default\",consumer=\"dead\",store=\"kv\"}";
    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    assert!(metrics.contains(&format!("{metric} 1\n")), "{metrics}");
    let listed = Command::new(env!("CARGO_BIN_EXE_tribunal")).args(["consumer", "ls", "--url", &node.url]).output();
    let told = String::from_utf8(listed.expect("it runs").stdout).expect("text");
    assert!(told.contains(&format!("records before {oldest} to read")), "{told}");
    // From the state on, it reads the log again.
    assert_eq!(set_offset(&node, "dead", "kv", &oldest.to_string()).status, 200);
    let at = only(&node.get("/v1/consumers/dead").body).clone();
    assert!(at.get("truncated_below").is_none() && number(&at["lag_ms"]).is_some(), "{at}");
    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    assert!(metrics.contains(&format!("{metric} 0\n")), "{metrics}");
}

#[test]
fn the_cli_resumes_at_a_consumers_offset() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for n in 0..5 {
        node.put_row(&format!("k{n}"), n);
    }
    let tribunal = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_tribunal"))
            .args(args)
            .args(["--url", &node.url])
            .stdin(Stdio::null())
            .output()
            .expect("the binary runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("utf-8")
    };
    let lines =
        |text: &str| text.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")).collect::<Vec<_>>();
    let first = lines(&tribunal(&["log", "tail", "--consumer", "cli", "--json"]));
    assert_eq!(
        first.iter().map(|record| record["lsn"].as_str().expect("lsn")).collect::<Vec<_>>(),
        ["1", "2", "3", "4", "5"]
    );
    assert_eq!(tribunal(&["log", "tail", "--consumer", "cli", "--json"]), "", "all is done");
    node.put_row("more", 6);
    let second = lines(&tribunal(&["log", "tail", "--consumer", "cli", "--json"]));
    assert_eq!(second[0]["lsn"], "6");
    let listed = lines(&tribunal(&["consumer", "ls", "--json"]));
    assert_eq!((&listed[0]["name"], &only(&listed[0])["lsn"]), (&json!("cli"), &json!("6")));
    assert!(tribunal(&["consumer", "ls"]).contains("cli "));
    tribunal(&["consumer", "rm", "cli"]);
    assert_eq!(tribunal(&["consumer", "ls", "--json"]), "");
}

/// A service that is down for longer than a read tries.
#[test]
fn a_followed_log_outlives_a_restart_of_the_service() {
    let dir = tempfile::tempdir().expect("a directory");
    let listen = free_address();
    let start = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        command.args(["dev", "--listen", &listen, "--data"]).arg(dir.path());
        Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
    };
    let node = start();
    node.put_row("before", 1);
    let mut tail = Command::new(env!("CARGO_BIN_EXE_tribunal"))
        .args(["log", "tail", "--follow", "--consumer", "follower", "--json", "--url", &node.url])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the binary runs");
    let (told, lines) = std::sync::mpsc::channel();
    let output = tail.stdout.take().expect("it is piped");
    std::thread::spawn(move || {
        BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| told.send(line))
    });
    let next = || -> Value {
        let line = lines.recv_timeout(Duration::from_secs(60)).expect("a line, before the follower ends");
        serde_json::from_str(&line).expect("JSON")
    };
    assert_eq!(next()["lsn"], "1");
    node.kill();
    std::thread::sleep(DOWN);
    let node = start();
    node.put_row("after", 2);
    assert_eq!(next()["lsn"], "2", "each record once");
    // Killed right after the first record, the service may not have its offset yet.
    eventually("its offset", || {
        let listed = node.get("/v1/consumers").body;
        (listed["consumers"][0]["offsets"][0]["lsn"] == "2").then_some(())
    });
    tail.kill().expect("it runs");
    tail.wait().expect("it ended");
}
