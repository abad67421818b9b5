//! Copies of an embedded store: every member has one, and a broken one is that member's trouble alone.

mod support;

use serde_json::json;
use support::cluster::Cluster;
use support::eventually;
use support::history::{noise, oldest, put, until_forgotten};

#[test]
fn a_broken_copy_does_not_hold_the_log_of_its_node_and_is_replaced_by_that_of_another() {
    let config = "[log]\nretention_hours = 0\nimage_every_bytes = 1048576\n[push]\ndetach_after_bytes = 4194304\n";
    let mut cluster = Cluster::start_with(3, config);
    let mut stores = std::fs::read_dir(cluster.node_dir(3).join("data/stores")).expect("stores");
    let rows = stores.next().expect("the only one").expect("readable").path();
    // A directory of this name makes every flush fail.
    let obstacle = rows.join("manifest.new");
    std::fs::create_dir(&obstacle).expect("created");
    let push = |cluster: &Cluster, id: u16| {
        let answer = cluster.node(id).try_get("/v1/stores/kv").ok().filter(|answer| answer.status == 200);
        answer.map(|answer| answer.body["push"].clone())
    };
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
    std::fs::remove_dir(&obstacle).expect("removed");
    let resumed = cluster.node(3).post("/v1/stores/kv/push/resume", &json!({}));
    assert_eq!(resumed.status, 200, "{}", resumed.body);
    eventually("the copy to be replaced", || push(&cluster, 3).filter(|push| push["state"] == "running"));
    cluster.ready();
    put(cluster.node(3), "after", 1);
    cluster.settled();
    for number in written - 99..=written {
        let row = cluster.node(3).get(&format!("/v1/stores/kv/rows/row%2F{}", number % 100)).body;
        assert_eq!(row["value"], noise(100_000, number), "row {}", number % 100);
    }
    let node = cluster.take(3);
    node.signal("TERM");
    let (ended, log) = node.ended();
    assert!(ended.success(), "{log}");
    let told = |text: &str| log.lines().any(|line| line.contains(text));
    assert!(told("the log no longer waits for it") && told("it copies the state of another node"), "{log}");
}
