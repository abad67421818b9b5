//! A log whose `retention_bytes` was lowered while its node was stopped: the start truncates it, without any commit.

mod support;

use std::path::Path;
use std::process::Command;

use serde_json::json;
use support::cluster::Cluster;
use support::history::{noise, oldest, until_decided};
use support::{Node, eventually, new_id};

fn config(retention_bytes: u64, image_every_bytes: u64) -> String {
    format!("[log]\nretention_bytes = {retention_bytes}\nimage_every_bytes = {image_every_bytes}\n")
}

const MIB: u64 = 1 << 20;

/// Starts a lone node with this configuration.
fn start(dir: &Path, log: &str) -> Node {
    let file = dir.join("tribunal.toml");
    let text = format!("listen = \"127.0.0.1:0\"\ndata = {:?}\n{log}", dir.join("data"));
    std::fs::write(&file, text).expect("written");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.args(["serve", "--config"]).arg(file);
    Node::spawn(command).unwrap_or_else(|error| panic!("{error}"))
}

/// Commits this many rows of 150 kB.
fn write(nodes: &[&Node], count: u64) {
    for n in 0..count {
        let key = format!("row/{n}");
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": key, "value": noise(150_000, n)}]});
        assert_eq!(until_decided(nodes, &new_id(), &body)["status"], "committed");
    }
}

fn segments(data: &Path) -> usize {
    std::fs::read_dir(data.join("log/segments")).expect("a log").count()
}

fn until_truncated(node: &Node, data: &Path, segments_before: usize) {
    eventually("the log to be truncated", || (oldest(node) > 1).then_some(()));
    eventually("segments to be removed", || (segments(data) < segments_before).then_some(()));
}

#[test]
fn a_start_truncates_a_log_that_has_become_too_large() {
    // With images enough; with a single one, another one follows the first commit.
    for (image_every_bytes, commits) in [(MIB, 0), (1024 * MIB, 1)] {
        let dir = tempfile::tempdir().expect("a folder");
        let data = dir.path().join("data");
        let node = start(dir.path(), &config(32 * MIB, image_every_bytes));
        assert_eq!(node.put("/v1/stores/kv", &json!({"adaptor": "kv"})).status, 201);
        write(&[&node], 100);
        assert!(node.stop().success());
        let before = segments(&data);
        // Nothing changes while the limit is as it was.
        let node = start(dir.path(), &config(32 * MIB, image_every_bytes));
        eventually("it is ready", || (node.get("/readyz").status == 200).then_some(()));
        assert_eq!(oldest(&node), 1);
        assert!(node.stop().success());
        assert_eq!(segments(&data), before);

        let node = start(dir.path(), &config(MIB, image_every_bytes));
        write(&[&node], commits);
        until_truncated(&node, &data, before);
        for n in [0, 50, 99] {
            let row = node.get(&format!("/v1/stores/kv/rows/row%2F{n}")).body;
            assert_eq!(row["value"], noise(150_000, n), "row {n}");
        }
        node.signal("KILL");
        drop(node);
        let node = start(dir.path(), &config(MIB, image_every_bytes));
        assert_eq!(node.get("/v1/stores/kv/rows/row%2F7").body["value"], noise(150_000, 7));
    }
}

#[test]
fn a_start_without_a_recent_image_takes_one() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let node = start(dir.path(), &config(1024 * MIB, 1024 * MIB));
    assert_eq!(node.put("/v1/stores/kv", &json!({"adaptor": "kv"})).status, 201);
    write(&[&node], 60);
    assert!(node.stop().success(), "it leaves the first image");
    let node = start(dir.path(), &config(1024 * MIB, 1024 * MIB));
    write(&[&node], 60);
    node.signal("KILL");
    drop(node);
    let before = segments(&data);
    let node = start(dir.path(), &config(MIB, 1024 * MIB));
    until_truncated(&node, &data, before);
    assert_eq!(node.get("/v1/stores/kv/rows/row%2F59").body["value"], noise(150_000, 59));
}

#[test]
fn a_start_truncates_the_log_of_a_member_that_has_become_too_large() {
    let mut cluster = Cluster::start_with(3, &config(1024 * MIB, MIB));
    let nodes: Vec<&Node> = cluster.running().collect();
    // A member also keeps 16 MiB of entries for those that lag.
    write(&nodes, 300);
    cluster.settled();
    assert!(cluster.take(2).stop().success());
    let data = cluster.node_dir(2).join("data");
    let before = segments(&data);
    let file = cluster.node_dir(2).join("tribunal.toml");
    let text = std::fs::read_to_string(&file).expect("a configuration");
    let lowered = text.replace(&format!("retention_bytes = {}", 1024 * MIB), &format!("retention_bytes = {MIB}"));
    assert_ne!(text, lowered);
    std::fs::write(&file, lowered).expect("written");
    cluster.start_node(2);
    cluster.ready();
    // It needs an image of an epoch after its start, whichever node's commit that is.
    write(&[cluster.node(1)], 1);
    until_truncated(cluster.node(2), &data, before);
    assert_eq!([1, 3].map(|id| oldest(cluster.node(id))), [1, 1], "the other nodes keep theirs");
    cluster.settled();
}
