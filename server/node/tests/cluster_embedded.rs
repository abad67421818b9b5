//! Copies of an embedded store: every member has one, and a broken copy affects that member only.

mod support;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::cluster::Cluster;
use support::history::{noise, oldest, put, until_decided, until_forgotten};
use support::{eventually, new_id};

/// Truncates as soon as it may.
const CONFIG: &str = "[log]\nretention_hours = 0\nimage_every_bytes = 1048576\n[push]\ndetach_after_bytes = 4194304\n";

/// Makes every flush of a node's copy fail: there is a directory of this name then.
fn obstruct(cluster: &Cluster, id: u16) -> PathBuf {
    let mut stores = std::fs::read_dir(cluster.node_dir(id).join("data/stores")).expect("stores");
    let obstacle = stores.next().expect("the only one").expect("readable").path().join("manifest.new");
    std::fs::create_dir(&obstacle).expect("created");
    obstacle
}

/// Returns the state of the store's push, if the node answers.
fn push(cluster: &Cluster, id: u16) -> Option<Value> {
    let answer = cluster.node(id).try_get("/v1/stores/kv").ok().filter(|answer| answer.status == 200);
    answer.map(|answer| answer.body["push"].clone())
}

fn has_last_rows(cluster: &Cluster, id: u16, written: u64) {
    for number in written - 99..=written {
        let row = cluster.node(id).get(&format!("/v1/stores/kv/rows/row%2F{}", number % 100)).body;
        assert_eq!(row["value"], noise(100_000, number), "row {} at node {id}", number % 100);
    }
}

/// As when all disks are full at once.
#[test]
fn the_log_is_kept_if_no_copy_is_whole() {
    let cluster = Cluster::start_with(3, CONFIG);
    let obstacles: Vec<PathBuf> = (1..=3).map(|id| obstruct(&cluster, id)).collect();
    let (begun, mut written) = (Instant::now(), 0);
    // Longer than what the others have told before counts.
    while written < 1_000 || begun.elapsed() < Duration::from_secs(15) {
        written += 1;
        let (key, value) = (format!("row/{}", written % 100), noise(100_000, written));
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": key, "value": value}]});
        let nodes: Vec<_> = cluster.running().collect();
        assert_eq!(until_decided(&nodes, &new_id(), &body)["status"], "committed");
    }
    for id in 1..=3 {
        assert_eq!(push(&cluster, id).expect("it answers")["state"], "backing_off", "node {id}");
        assert_eq!(oldest(cluster.node(id)), 1, "only the log has the rows, at node {id}");
    }
    obstacles.iter().for_each(|obstacle| std::fs::remove_dir(obstacle).expect("removed"));
    for id in 1..=3 {
        // The nodes open their copies again by themselves; after so many attempts, that takes up to a minute.
        assert_eq!(cluster.node(id).post("/v1/stores/kv/push/resume", &json!({})).status, 200);
        eventually("the copy to be whole", || push(&cluster, id).filter(|push| push["state"] == "running"));
    }
    cluster.settled();
    (1..=3).for_each(|id| has_last_rows(&cluster, id, written));
}

#[test]
fn a_broken_copy_does_not_hold_the_log_of_its_node_and_is_replaced_by_that_of_another() {
    let mut cluster = Cluster::start_with(3, CONFIG);
    let obstacle = obstruct(&cluster, 3);
    let mut written = 0;
    // Of all nodes, so also of the third.
    until_forgotten(&cluster, &mut written);
    let stopped = push(&cluster, 3).expect("it answers");
    assert_eq!(stopped["state"], "stopped", "{stopped}");
    let error = stopped["last_error"].as_str().unwrap_or_default();
    assert!(error.contains("Is a directory") && error.contains("`tribunal store resume` at this node"), "{error}");
    let ready = cluster.node(3).get("/readyz").body;
    assert!(ready["reasons"].to_string().contains("the push to store `kv` is stopped"), "{ready}");
    for id in [1, 2] {
        assert_eq!(push(&cluster, id).expect("it answers")["state"], "running", "node {id}");
        assert!(oldest(cluster.node(id)) > 100);
    }
    let attached = cluster.node(3).post("/v1/stores/kv/push/attach", &json!({}));
    assert_eq!((attached.status, &attached.body["code"]), (422, &json!("not_detached")), "{}", attached.body);
    assert!(
        attached.body["detail"].to_string().contains("`tribunal store resume kv` at this node"),
        "{}",
        attached.body
    );
    std::fs::remove_dir(&obstacle).expect("removed");
    let resumed = cluster.node(3).post("/v1/stores/kv/push/resume", &json!({}));
    assert_eq!(resumed.status, 200, "{}", resumed.body);
    eventually("the copy to be replaced", || push(&cluster, 3).filter(|push| push["state"] == "running"));
    cluster.ready();
    put(cluster.node(3), "after", 1);
    cluster.settled();
    has_last_rows(&cluster, 3, written);
    let node = cluster.take(3);
    node.signal("TERM");
    let (ended, log) = node.ended();
    assert!(ended.success(), "{log}");
    let told = |text: &str| log.lines().any(|line| line.contains(text));
    assert!(told("the log no longer waits for it") && told("it copies the state of another node"), "{log}");
}
