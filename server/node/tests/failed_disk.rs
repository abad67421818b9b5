//! An embedded store whose disk fails it for a moment: the node opens it again by itself, and no row is lost.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use support::{Node, eventually, noise};

const ROWS: u64 = 20;

/// Starts a node that has its stores flush for every mebibyte of log.
fn serve(dir: &Path) -> Node {
    let config = dir.join("tribunal.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndata = {:?}\n[log]\nretention_hours = 0\nimage_every_bytes = 1048576\n",
        dir.join("data")
    );
    std::fs::write(&config, text).expect("the directory is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.arg("serve").arg("--config").arg(&config);
    Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
}

/// Makes every flush of the only store fail: there is a directory of this name then.
fn obstruct(dir: &Path) -> PathBuf {
    let mut stores = std::fs::read_dir(dir.join("data/stores")).expect("stores");
    let obstacle = stores.next().expect("the only one").expect("readable").path().join("manifest.new");
    std::fs::create_dir(&obstacle).expect("created");
    obstacle
}

fn put(node: &Node, row: u64, number: u64) {
    let write = json!({"op": "put", "store": "kv", "key": format!("row/{row}"), "value": noise(number, 100_000)});
    let answer = node.commit(&json!({"writes": [write]}));
    assert_eq!(answer.body["status"], "committed", "{}", answer.body);
}

fn push(node: &Node) -> Value {
    node.get("/v1/stores/kv").body["push"].clone()
}

/// Writes until the disk has failed the store; returns the number of the last write.
fn write_until_out_of_use(node: &Node, mut number: u64) -> u64 {
    while push(node)["state"] != "backing_off" {
        assert!(number < 2_000, "the store never flushes: {}", push(node));
        number += 1;
        put(node, number % ROWS, number);
    }
    number
}

fn has_all_rows(node: &Node, last: u64) {
    for number in last + 1 - ROWS..=last {
        let row = node.get(&format!("/v1/stores/kv/rows/row%2F{}", number % ROWS)).body;
        assert_eq!(row["value"], noise(number, 100_000), "row {}", number % ROWS);
    }
}

#[test]
fn a_store_whose_disk_failed_for_a_moment_works_again_without_an_operator() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = serve(dir.path());
    assert_eq!(node.put("/v1/stores/kv", &json!({"adaptor": "kv"})).status, 201);
    (1..=ROWS).for_each(|number| put(&node, number % ROWS, number));
    let obstacle = obstruct(dir.path());
    let mut last = write_until_out_of_use(&node, ROWS);
    // Two attempts fail, and the pauses grow.
    for pause in ["within 1 s", "within 2 s", "within 4 s"] {
        eventually(pause, || push(&node)["last_error"].as_str()?.contains(pause).then_some(()));
        let read = eventually("a refused read", || {
            Some(node.get("/v1/stores/kv/rows/row%2F1")).filter(|read| read.status == 503)
        });
        let detail = read.body["detail"].as_str().unwrap_or_default();
        assert!(detail.contains("Is a directory") && detail.contains("opens the store again by itself"), "{detail}");
        assert_eq!((&read.body["code"], &read.body["retryable"]), (&json!("unavailable"), &json!(true)));
        // Commits continue.
        last += 1;
        put(&node, last % ROWS, last);
    }
    let begin = eventually("a refused Begin", || {
        let begin = node.post("/v1/txns", &json!({"read": [{"store": "kv", "key": "row/1"}]}));
        Some(begin).filter(|begin| begin.status == 503)
    });
    assert!(begin.body["detail"].to_string().contains("opens the store again by itself"), "{}", begin.body);
    let ready = node.get("/readyz");
    assert_eq!(ready.status, 200, "{}", ready.body);
    assert!(ready.body["reasons"].to_string().contains("the push to store `kv` is backing_off"), "{}", ready.body);
    let metrics = node.get("/metrics").body;
    let out_of_use = "tribunal_store_push_state{namespace=\"default\",store=\"kv\",state=\"backing_off\"} 1";
    assert!(metrics.as_str().expect("text").contains(out_of_use), "{metrics}");
    std::fs::remove_dir(obstacle).expect("removed");
    eventually("the store to work again", || (push(&node)["state"] == "running").then_some(()));
    has_all_rows(&node, last);
    // It fails once more, and the node stops meanwhile: the next start replays the log.
    let obstacle = obstruct(dir.path());
    last = write_until_out_of_use(&node, last);
    std::fs::remove_dir(obstacle).expect("removed");
    node.signal("TERM");
    let (ended, log) = node.ended();
    assert!(ended.success(), "{log}");
    let count = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    let counts = [count("the disk has failed an embedded store"), count("the embedded store works again")];
    assert!(counts == [2, 1] || counts == [2, 2], "once for each failure, not for each attempt: {log}");
    let node = serve(dir.path());
    has_all_rows(&node, last);
}

/// The node starts although it cannot open the store, and opens it once it can.
#[test]
fn a_store_that_cannot_be_opened_at_the_start_is_opened_later() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = serve(dir.path());
    assert_eq!(node.put("/v1/stores/kv", &json!({"adaptor": "kv"})).status, 201);
    (1..=ROWS).for_each(|number| put(&node, number % ROWS, number));
    assert!(node.stop().success());
    let store = std::fs::read_dir(dir.path().join("data/stores")).expect("stores").next();
    let store = store.expect("the only one").expect("readable").path();
    let aside = store.with_extension("aside");
    std::fs::rename(&store, &aside).expect("renamed");
    std::fs::write(&store, "no directory").expect("written");
    let node = serve(dir.path());
    let out_of_use = eventually("the store to be out of use", || {
        Some(push(&node)).filter(|push| push["state"] == "backing_off" && push["last_error"].is_string())
    });
    assert!(out_of_use["last_error"].to_string().contains("opens the store again by itself"), "{out_of_use}");
    put(&node, 0, ROWS + 1);
    std::fs::remove_file(&store).expect("removed");
    std::fs::rename(&aside, &store).expect("renamed");
    eventually("the store to work", || (push(&node)["state"] == "running").then_some(()));
    assert_eq!(node.get("/v1/stores/kv/rows/row%2F0").body["value"], noise(ROWS + 1, 100_000));
    (1..ROWS).for_each(|row| {
        assert_eq!(node.get(&format!("/v1/stores/kv/rows/row%2F{row}")).body["value"], noise(row, 100_000));
    });
}
