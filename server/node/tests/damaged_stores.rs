//! Embedded stores whose files on the disk are damaged: the log of a node that runs alone waits for them, and repairs
//! them as long as it has all of their records.

mod support;

use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use support::damage::flip;
use support::history::oldest;
use support::{Node, eventually, noise};

const ROWS: u64 = 30;

/// Starts a node whose log retains this number of bytes.
fn serve(dir: &Path, retention: u64) -> Node {
    let config = dir.join("tribunal.toml");
    let text = format!(
        "listen = \"127.0.0.1:0\"\ndata = {:?}\n[log]\nretention_bytes = {retention}\nimage_every_bytes = 1048576\n",
        dir.join("data")
    );
    std::fs::write(&config, text).expect("the directory is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.arg("serve").arg("--config").arg(&config);
    Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
}

fn put(node: &Node, key: &str, value: Value) {
    let answer = node.commit(&json!({"writes": [{"op": "put", "store": "kv", "key": key, "value": value}]}));
    assert_eq!(answer.body["status"], "committed", "{}", answer.body);
}

/// Declares the store and fills it.
fn fill(node: &Node) {
    assert_eq!(node.put("/v1/stores/kv", &json!({"adaptor": "kv"})).status, 201);
    (0..ROWS).for_each(|n| put(node, &format!("row/{n}"), noise(n, 60_000)));
}

fn write_more(node: &Node) {
    (0..10).for_each(|n| put(node, &format!("more/{n}"), noise(n, 200_000)));
}

/// Flips a bit in the middle of each large file of the store.
fn damage(dir: &Path) {
    let store = std::fs::read_dir(dir.join("data/stores")).expect("stores").next().expect("one").expect("readable");
    let runs = std::fs::read_dir(store.path()).expect("files").map(|file| file.expect("readable"));
    let large = runs.filter(|run| run.metadata().expect("readable").len() > 100_000);
    let large: Vec<_> = large.map(|run| run.path()).collect();
    assert!(!large.is_empty(), "the rows are on the disk");
    large.iter().for_each(|run| flip(run, run.metadata().expect("readable").len() as usize / 2));
}

/// Reads all rows, and waits until the damage is shown wherever an operator looks. Returns its description.
fn find_damage(node: &Node) -> String {
    let read = node.get("/v1/stores/kv/state").body.to_string();
    assert!(read.contains("failed") && read.contains("damaged"), "{read}");
    shown_damage(node)
}

fn shown_damage(node: &Node) -> String {
    let push = eventually("the damage to be shown", || {
        let push = node.get("/v1/stores/kv").body["push"].clone();
        (push["state"] == "damaged").then_some(push)
    });
    let ready = node.get("/readyz");
    assert_eq!(ready.status, 200, "commits continue: {}", ready.body);
    let reasons = ready.body["reasons"].to_string();
    assert!(reasons.contains("the embedded store `kv` is damaged"), "{reasons}");
    let metrics = node.get("/metrics").body;
    let state = |state, value| {
        let line = format!("tribunal_store_push_state{{namespace=\"default\",store=\"kv\",state=\"{state}\"}} {value}");
        metrics.as_str().expect("text").contains(&line)
    };
    assert!(state("damaged", 1) && state("running", 0), "{metrics}");
    push["last_error"].as_str().expect("a reason").to_owned()
}

fn resume(node: &Node) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.args(["store", "resume", "kv", "--url", &node.url]).output().expect("it runs")
}

fn has_all_rows(node: &Node) {
    for n in 0..ROWS {
        assert_eq!(node.get(&format!("/v1/stores/kv/rows/row%2F{n}")).body["value"], noise(n, 60_000), "row {n}");
    }
}

#[test]
fn the_log_waits_for_a_damaged_store_and_repairs_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = serve(dir.path(), 1 << 30);
    fill(&node);
    assert!(node.stop().success());
    damage(dir.path());
    let node = serve(dir.path(), 1 << 20);
    let told = find_damage(&node);
    assert!(told.contains("`tribunal store resume` fills the store"), "{told}");
    (0..15).for_each(|_| write_more(&node));
    assert_eq!(oldest(&node), 1, "only the log has the damaged rows");
    let resumed = resume(&node);
    let told = String::from_utf8_lossy(&resumed.stdout);
    assert!(resumed.status.success() && told.contains("kv: running"), "{told} {resumed:?}");
    has_all_rows(&node);
    assert_eq!(node.get("/readyz").body["reasons"], json!([]));
    // It no longer waits.
    eventually("the log to be truncated", || {
        write_more(&node);
        (oldest(&node) > 1).then_some(())
    });
    has_all_rows(&node);
}

#[test]
fn a_damaged_store_whose_log_is_truncated_is_shown_as_such_and_says_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let node = serve(dir.path(), 1 << 20);
    fill(&node);
    eventually("the log to be truncated", || {
        write_more(&node);
        (oldest(&node) > ROWS).then_some(())
    });
    assert!(node.stop().success());
    damage(dir.path());
    let node = serve(dir.path(), 1 << 20);
    let check = |node: &Node, told: &str| {
        let begins = format!("The log begins at LSN {}", oldest(node));
        assert!(told.contains(&begins) && told.contains("from one backup"), "{begins}: {told}");
    };
    check(&node, &find_damage(&node));
    let refused = resume(&node);
    assert!(!refused.status.success(), "{refused:?}");
    check(&node, &String::from_utf8_lossy(&refused.stderr));
    assert!(node.stop().success());
    let node = serve(dir.path(), 1 << 20);
    check(&node, &shown_damage(&node));
    put(&node, "after", json!(1));
    let read = node.get("/v1/stores/kv/rows/after").body;
    assert_eq!(read["value"], 1, "intact rows can be read: {read}");
}
