//! kill -9 at any moment: afterwards every acknowledged commit is complete, and no other commit is partial.

mod support;

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use support::{Node, eventually, new_id, noise};

/// A commit of two rows, which must appear together or not at all.
struct Sent {
    id: String,
    pair: String,
    acknowledged: Option<Value>,
}

/// Commits pairs of rows whose values are a number and `more` bytes, until the node is down.
fn load(node: &Node, worker: usize, round: usize, more: usize, sent: &Mutex<Vec<Sent>>, stop: &AtomicBool) {
    for n in 0.. {
        let (id, pair) = (new_id(), format!("{round}-{worker}-{n}"));
        let value = if more == 0 { json!(n) } else { noise(n, more) };
        let write = |side: &str| json!({"op": "insert", "store": "kv", "key": format!("{pair}{side}"), "value": value});
        let answer = node.try_post(&format!("/v1/txns/{id}/commit"), &json!({"writes": [write("L"), write("R")]}));
        let committed = answer.ok().filter(|a| a.status == 200 && a.body["status"] == "committed");
        let died = committed.is_none();
        sent.lock().unwrap().push(Sent { id, pair, acknowledged: committed.map(|a| a.body) });
        if died || stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn check(node: &Node, sent: &[Sent]) {
    let log = node.log_of("kv");
    let mut lsn = 0;
    let mut pairs = std::collections::HashMap::new();
    for record in &log {
        lsn += 1;
        assert_eq!(record["lsn"], lsn.to_string(), "the log is dense");
        let writes = record["writes"].as_array().expect("writes");
        assert_eq!(writes.len(), 2, "both rows or none: {record}");
        let key = writes[0]["key"].as_str().expect("key");
        let other = writes[1]["key"].as_str().expect("key");
        assert_eq!(key.trim_end_matches(['L', 'R']), other.trim_end_matches(['L', 'R']));
        let first = pairs.insert(key.trim_end_matches(['L', 'R']).to_owned(), record.clone());
        assert!(first.is_none(), "{key} was committed twice");
    }
    for sent in sent {
        if let Some(verdict) = &sent.acknowledged {
            let record = pairs.get(&sent.pair).unwrap_or_else(|| panic!("acknowledged {} is lost", sent.pair));
            assert_eq!(record["version"], verdict["version"]);
        }
    }
    // A client that lost its response queries the status by id, and gets the log's verdict.
    for sent in sent.iter().filter(|sent| sent.acknowledged.is_none()) {
        let status = node.get(&format!("/v1/txns/{}?fence=true", sent.id)).body;
        let in_log = pairs.contains_key(&sent.pair);
        assert_eq!(status["status"] == "committed", in_log, "{status}");
    }
    let (head, last) = (lsn.to_string(), log.last());
    if let Some(last) = last {
        eventually("the embedded store to hold the last record", || {
            let status = node.get("/v1/stores/kv").body;
            (status["acked_lsn"] == head || status["acked"] == head).then_some(())
        });
        let key = last["writes"][0]["key"].as_str().expect("key");
        let row = node.get(&format!("/v1/stores/kv/rows/{key}"));
        assert_eq!(row.body["version"], last["version"]);
    }
}

/// Kills the node repeatedly under load, each time soon after `ready` has returned.
fn kill_and_check(dir: &Path, kills: usize, more: usize, start: impl Fn(&Path) -> Node, ready: impl Fn()) {
    let mut all: Vec<Sent> = Vec::new();
    for round in 0..kills {
        let node = start(dir);
        let (sent, stop) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (node, sent, stop) = (&node, &sent, &stop);
                scope.spawn(move || load(node, worker, round, more, sent, stop));
            }
            ready();
            // Spread the kills over start-up, first commits and full load.
            std::thread::sleep(Duration::from_millis((round as u64 * 37) % 160));
            node.signal("KILL");
            stop.store(true, Ordering::Relaxed);
        });
        node.kill();
        let new = sent.into_inner().unwrap();
        let node = start(dir);
        all.extend(new);
        check(&node, &all);
        node.kill();
    }
    let acknowledged = all.iter().filter(|sent| sent.acknowledged.is_some()).count();
    println!("{kills} kills, {acknowledged} acknowledged commits, none lost");
    assert!(acknowledged > kills, "the load must have got through");
}

#[test]
fn kill_9_loses_no_acknowledged_commit() {
    let kills = std::env::var("TRIBUNAL_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(20);
    let dir = tempfile::tempdir().unwrap();
    kill_and_check(dir.path(), kills, 0, Node::start, || {});
}

#[test]
fn kill_9_while_images_are_taken_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let start = |dir: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(dir);
        // The minimum setting: about forty commits.
        command.env("TRIBUNAL__LOG__IMAGE_EVERY_BYTES", (1 << 20).to_string());
        Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
    };
    // From the second start on, each starts from an image.
    let ready = || eventually("an image", || (images(dir.path()) > 0).then_some(()));
    kill_and_check(dir.path(), 8, 12_000, start, ready);
}

/// Counts the state images below a directory whose files may change meanwhile.
fn images(dir: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(dir) else { return 0 };
    let count = |path: &Path| match path.file_name().and_then(|name| name.to_str()) {
        _ if path.is_dir() => images(path),
        Some(name) => usize::from(name.starts_with("image-") && !name.ends_with(".new")),
        None => 0,
    };
    entries.flatten().map(|entry| count(&entry.path())).sum()
}
