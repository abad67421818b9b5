//! A batch that is resolved while it is made durable (decision 134): nothing of it is seen before it is durable, and nothing of
//! it is acknowledged if it may not be.

mod support;

#[path = "support/syncs.rs"]
mod syncs;

use std::path::Path;
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use support::{Node, Response, eventually, new_id};
use syncs::{Disk, Syncs};

/// Enough transactions that the node resolves them meanwhile.
const TXNS: usize = 32;
/// Number of looks at a node whose disk has not synced. A node that answered too early would answer during the first.
const LOOKS: usize = 50;

fn start(data: &Path, disk: &Disk) -> Node {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(data);
    disk.give(&mut command);
    Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
}

/// Returns a node with one row, and its disk; `None` without a C compiler.
fn prepared() -> Option<(tempfile::TempDir, Disk, Node)> {
    let Some(disk) = Disk::build() else {
        println!("skipped: no C compiler");
        return None;
    };
    let dir = tempfile::tempdir().expect("a directory");
    let node = start(dir.path(), &disk);
    node.put_row("first", 1);
    Some((dir, disk, node))
}

/// Returns a batch with a new row for each transaction, and their ids.
fn batch() -> (Vec<Value>, Vec<String>) {
    let ids: Vec<String> = (0..TXNS).map(|_| new_id()).collect();
    let put = |row: usize| json!({"op": "put", "store": "kv", "key": format!("row/{row}"), "value": row});
    (ids.iter().enumerate().map(|(row, id)| json!({"txn_id": id, "writes": [put(row)]})).collect(), ids)
}

fn row(node: &Node, row: usize) -> Response {
    node.get(&format!("/v1/stores/kv/rows/row%2F{row}"))
}

/// Returns how many batches the node has written to its log.
fn appended(node: &Node) -> u64 {
    let metrics = node.get("/metrics").body;
    let count =
        metrics.as_str().expect("text").lines().find_map(|line| line.strip_prefix("tribunal_append_seconds_count "));
    count.and_then(|count| count.parse().ok()).expect("a histogram")
}

/// Sends a batch, and returns once it is written but not synced. The response follows on the channel.
fn written<'s>(
    node: &'s Node,
    disk: &Disk,
    scope: &'s std::thread::Scope<'s, '_>,
) -> (mpsc::Receiver<Response>, Vec<String>) {
    let (lines, ids) = batch();
    let before = appended(node);
    disk.set(Syncs::Wait);
    let (answer, answered) = mpsc::channel();
    scope.spawn(move || {
        let _ = answer.send(node.post_lines("/v1/txns/batch-commit", &lines));
    });
    eventually("the batch to be written", || (appended(node) > before).then_some(()));
    let mut is_hidden = true;
    for look in 0..LOOKS {
        is_hidden &= row(node, look % TXNS).status == 404 && answered.recv_timeout(Duration::from_millis(2)).is_err();
    }
    if !is_hidden {
        // Otherwise the request is awaited before the test fails.
        disk.set(Syncs::Succeed);
    }
    assert!(is_hidden, "a batch that may be lost was answered, or its rows were visible");
    (answered, ids)
}

/// Waits for the response to a batch, and returns how many of its lines contain this text.
fn outcomes(answered: &mpsc::Receiver<Response>, text: &str) -> usize {
    let answer = answered.recv().expect("the batch is answered");
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body.as_str().expect("lines").lines().filter(|line| line.contains(text)).count()
}

#[test]
fn nothing_of_a_batch_is_seen_before_it_is_durable() {
    let Some((_dir, disk, node)) = prepared() else { return };
    std::thread::scope(|scope| {
        let (answered, _) = written(&node, &disk, scope);
        disk.set(Syncs::Succeed);
        assert_eq!(outcomes(&answered, "\"committed\""), TXNS);
    });
    (0..TXNS).for_each(|number| assert_eq!(row(&node, number).body["value"], number));
    node.put_row("last", 2);
}

#[test]
fn a_batch_whose_sync_fails_is_of_unknown_outcome_and_the_node_ends() {
    let Some((dir, disk, node)) = prepared() else { return };
    let ids = std::thread::scope(|scope| {
        let (answered, ids) = written(&node, &disk, scope);
        disk.set(Syncs::Fail);
        assert_eq!(outcomes(&answered, "\"outcome_unknown\""), TXNS);
        ids
    });
    let (ended, log) = node.ended();
    assert!(!ended.success() && log.contains("Input/output error"), "{log}");
    // What the disk kept decides, for the rows and for the ids alike.
    disk.set(Syncs::Succeed);
    let node = start(dir.path(), &disk);
    for (number, id) in ids.iter().enumerate() {
        let is_committed = node.get(&format!("/v1/txns/{id}")).body["status"] == "committed";
        assert_eq!(row(&node, number).status == 200, is_committed, "row {number}");
    }
    node.put_row("last", 2);
}
