//! Stores with a log that they did not follow: one restored from a backup, a salvaged one, a copy of a data directory in
//! use. An embedded store has exactly the rows of its log afterwards; an external storage is not written to.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use support::redis::Redis;
use support::{Node, eventually};

/// Replays the log of `kv`; returns its rows by key: version and value.
fn replayed(node: &Node) -> BTreeMap<String, (Value, Value)> {
    let mut rows = BTreeMap::new();
    for record in node.log_of("kv") {
        for write in record["writes"].as_array().expect("writes") {
            let key = write["key"].as_str().expect("a key").to_owned();
            rows.insert(key, (record["version"].clone(), write["value"].clone()));
        }
    }
    rows
}

/// Returns the rows of the store after it has applied its whole log.
fn applied(node: &Node) -> BTreeMap<String, (Value, Value)> {
    eventually("the store to be up to date", || {
        let store = node.get("/v1/stores/kv").body;
        (store["acked_lsn"] == store["head_lsn"] && store["push"]["state"] == "running").then_some(())
    });
    let (mut rows, mut start) = (BTreeMap::new(), String::new());
    loop {
        let page = node.get(&format!("/v1/stores/kv/rows?start={start}&limit=1000")).body;
        for row in page["rows"].as_array().unwrap_or_else(|| panic!("{page}")) {
            let key = row["key"].as_str().expect("a key").to_owned();
            rows.insert(key, (row["version"].clone(), row["value"].clone()));
        }
        match page["next"].as_str() {
            Some(next) => next.clone_into(&mut start),
            None => return rows,
        }
    }
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    // A file that vanishes during the copy is an error to `cp`, and intended by some tests.
    let copied = Command::new("cp").arg("-a").args([from, to]).output();
    drop(copied.expect("cp runs"));
}

/// Creates a data directory whose store has applied 20 records, ten more than its log contains.
fn ahead(dir: &Path) {
    let (log, saved) = (dir.join("log"), dir.join("log-saved"));
    for (round, keep) in [(0, true), (1, false)] {
        let node = Node::start(dir);
        (0..10).for_each(|n| drop(node.put_row(&format!("k{round}{n}"), n)));
        assert_eq!(applied(&node).len(), 10 * (round + 1));
        assert!(node.stop().success());
        if keep {
            copy(&log, &saved);
        }
    }
    std::fs::remove_dir_all(&log).expect("removes");
    std::fs::rename(&saved, &log).expect("renames");
}

fn goes_on_as_its_log(dir: &Path) {
    let node = Node::start(dir);
    assert_eq!(applied(&node), replayed(&node));
    // Past the position that the store once had, and through a restart.
    (0..15).for_each(|n| drop(node.put_row(&format!("new{n}"), n)));
    assert_eq!(applied(&node).len(), 25);
    assert!(node.stop().success());
    let node = Node::start(dir);
    node.put_row("last", 1);
    assert_eq!(applied(&node), replayed(&node));
    assert_eq!(applied(&node).len(), 26, "ten of the log, fifteen new ones and the last");
}

#[test]
fn a_store_ahead_of_a_restored_log_is_filled_again() {
    let dir = tempfile::tempdir().expect("a directory");
    ahead(dir.path());
    goes_on_as_its_log(dir.path());
}

#[test]
fn a_store_ahead_of_a_restored_log_is_filled_again_although_the_log_passed_it_unnoticed() {
    let dir = tempfile::tempdir().expect("a directory");
    ahead(dir.path());
    // Commits continue without the store.
    let (store, aside) = (dir.path().join("stores"), dir.path().join("aside"));
    std::fs::rename(&store, &aside).expect("renames");
    let node = Node::start(dir.path());
    (0..15).for_each(|n| drop(node.put_row(&format!("new{n}"), n)));
    assert!(node.stop().success());
    std::fs::remove_dir_all(&store).expect("removes");
    std::fs::rename(&aside, &store).expect("renames");
    let node = Node::start(dir.path());
    assert_eq!(applied(&node), replayed(&node));
    assert_eq!(applied(&node).len(), 25);
}

#[test]
fn a_store_ahead_of_a_salvaged_log_is_filled_again() {
    let dir = tempfile::tempdir().expect("a directory");
    ahead(dir.path());
    // All records still exist, but nothing shows how far the log reached.
    std::fs::remove_file(dir.path().join("log/mark")).expect("removes");
    let salvage = Command::new(env!("CARGO_BIN_EXE_tribunal"))
        .args(["log", "salvage", "--accept-loss", "--data"])
        .arg(dir.path())
        .output()
        .expect("the binary runs");
    assert!(salvage.status.success(), "{}", String::from_utf8_lossy(&salvage.stderr));
    goes_on_as_its_log(dir.path());
}

/// Commits these rows to the store `r`.
fn put_in_redis(node: &Node, keys: impl Iterator<Item = String>) {
    for key in keys {
        let write = json!({"op": "put", "store": "r", "key": key, "value": 1});
        assert_eq!(node.commit(&json!({"writes": [write]})).body["status"], "committed");
    }
}

fn in_redis(node: &Node, lsn: &str) {
    eventually("Redis to have all records", || (node.get("/v1/stores/r").body["acked_lsn"] == lsn).then_some(()));
}

#[test]
fn a_storage_ahead_of_a_restored_log_is_not_written_to_although_the_log_passed_it_unnoticed() {
    let Some(mut redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let (data, saved) = (dir.path().join("data"), dir.path().join("saved"));
    let node = Node::start(&data);
    let config = json!({"endpoint": redis.endpoint(), "prefix": "r/"});
    assert_eq!(node.put("/v1/stores/r", &json!({"adaptor": "redis", "adaptor_config": config})).status, 201);
    put_in_redis(&node, (0..10).map(|n| format!("kept{n}")));
    in_redis(&node, "10");
    assert!(node.stop().success());
    copy(&data, &saved);
    let node = Node::start(&data);
    put_in_redis(&node, (0..10).map(|n| format!("lost{n}")));
    in_redis(&node, "20");
    assert!(node.stop().success());

    // Clients commit to the restored log before its push reaches Redis.
    redis.kill();
    copy(&saved, &data);
    let node = Node::start(&data);
    put_in_redis(&node, (0..15).map(|n| format!("new{n}")));
    assert_eq!(node.get("/v1/stores/r").body["head_lsn"], "25");
    redis.restart();
    let stopped = |node: &Node| {
        let push = eventually("the push to be refused or done", || {
            let store = node.get("/v1/stores/r").body;
            (store["push"]["state"] == "stopped" || store["acked_lsn"] == "25").then(|| store["push"].clone())
        });
        let error = push["last_error"].as_str().unwrap_or_else(|| panic!("pushed to another history: {push}"));
        assert!(error.contains("applied LSN 20") && error.contains("up to LSN 19 in common"), "{error}");
        assert!(error.contains("Empty it, watermark included"), "{error}");
        let rows = ["lost9", "new0", "new14"].map(|key| redis.call(&["EXISTS", &format!("r/{key}")]));
        assert_eq!(rows, ["1", "0", "0"], "nothing was written");
    };
    stopped(&node);
    assert!(node.stop().success());
    let node = Node::start(&data);
    stopped(&node);
    let attached = node.post("/v1/stores/r/push/attach", &json!({}));
    assert_eq!((attached.status, &attached.body["code"]), (422, &json!("storage_refuses")), "{}", attached.body);
    assert!(attached.body.to_string().contains("LSN 20 of another log, or of a part"), "{}", attached.body);
    assert_eq!(redis.call(&["FLUSHALL"]), "OK");
    assert_eq!(node.post("/v1/stores/r/push/resume", &json!({})).status, 200);
    in_redis(&node, "25");
    let rows = ["kept9", "lost0", "new14"].map(|key| redis.call(&["EXISTS", &format!("r/{key}")]));
    assert_eq!(rows, ["1", "0", "1"], "the rows of the log");
}

#[test]
fn a_copy_of_a_data_directory_in_use_starts_with_the_rows_of_its_log_or_not_at_all() {
    let dir = tempfile::tempdir().expect("a directory");
    let data = dir.path().join("data");
    let node = Node::start(&data);
    let done = AtomicBool::new(false);
    let mut started = 0;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 0;
            while !done.load(Ordering::Relaxed) {
                let put = |at: i64| json!({"op": "put", "store": "kv", "key": format!("k{}", at % 700), "value": at});
                let writes: Vec<_> = (0..20).map(|i| put(n + i)).collect();
                assert_eq!(node.commit(&json!({"writes": writes})).status, 200);
                n += 20;
            }
        });
        // As many copies as needed until one has started, and some more.
        for n in 0..100 {
            if n >= 6 && started > 0 {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(150));
            let to = dir.path().join(format!("copy-{n}"));
            copy(&data, &to);
            // The log may refuse a torn copy; then only the copy is wrong.
            let Ok(copied) = Node::try_start(&to, &[]) else { continue };
            started += 1;
            assert_eq!(applied(&copied), replayed(&copied), "copy {n}");
            copied.put_row("new", 1);
            assert_eq!(applied(&copied), replayed(&copied), "copy {n} after another commit");
        }
        done.store(true, Ordering::Relaxed);
        writer.join().expect("all commits are answered");
    });
    assert!(started > 0, "no copy started");
}
