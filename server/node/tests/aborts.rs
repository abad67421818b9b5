//! Every abort returned to a client is counted, with the tenant, store, level and stage, and logged with its row.

mod support;

use std::process::Command;

use serde_json::json;
use support::Node;

#[test]
fn aborts_are_counted_by_stage_level_and_store_those_at_admission_too() {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new("env");
    command.args(["TRIBUNAL_LOG=debug", env!("CARGO_BIN_EXE_tribunal"), "dev", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(dir.path());
    let node = Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"));
    let put = |value: u64| json!({"writes": [{"op": "put", "store": "kv", "key": "row-7", "value": value}]});
    let first = node.commit(&put(1)).body["version"].clone();
    assert_eq!(node.commit(&put(2)).status, 200);
    let stale = json!({
        "isolation": "serializable",
        "reads": [{"store": "kv", "key": "row-7", "version": first}],
        "writes": [{"op": "put", "store": "kv", "key": "other", "value": 3}],
    });
    for _ in 0..3 {
        let aborted = node.commit(&stale);
        assert_eq!(aborted.body["reason"], "read_conflict", "{}", aborted.body);
        assert_eq!(aborted.body["conflicts"][0]["stage"], "admission", "{}", aborted.body);
    }
    let id = support::new_id();
    assert_eq!(node.post(&format!("/v1/txns/{id}/abort"), &json!({})).body["reason"], "client_abort");
    // A repeated request returns the same abort.
    node.post(&format!("/v1/txns/{id}/abort"), &json!({}));
    // A fence is an abort as well; a repeated fence is not counted again.
    let fenced = support::new_id();
    for _ in 0..2 {
        assert_eq!(node.get(&format!("/v1/txns/{fenced}?fence=true")).body["reason"], "fenced");
    }
    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    let line = |reason, stage, level, store| {
        format!(
            "tribunal_txns_aborted_total{{reason=\"{reason}\",stage=\"{stage}\",level=\"{level}\",\
             namespace=\"default\",store=\"{store}\"}}"
        )
    };
    let admission = line("read_conflict", "admission", "serializable", "kv");
    assert!(metrics.contains(&format!("{admission} 3\n")), "{metrics}");
    let given_up = line("client_abort", "admission", "", "");
    assert!(metrics.contains(&format!("{given_up} 1\n")), "{metrics}");
    let stood = line("fenced", "identity", "", "");
    assert!(metrics.contains(&format!("{stood} 1\n")), "{metrics}");
    for (reason, count) in [("read_conflict", 3), ("client_abort", 1), ("fenced", 1), ("row_exists", 0)] {
        let by_reason = format!("tribunal_txns_aborted_by_reason_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&by_reason), "{by_reason}: {metrics}");
    }
    node.signal("TERM");
    let (status, log) = node.ended();
    assert!(status.success());
    let logged = log.lines().filter(|line| line.contains("aborted") && line.contains("row-7"));
    assert_eq!(logged.count(), 3, "{log}");
}

#[test]
fn a_range_conflict_names_the_row_and_the_winner() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let write = |op: &str, key: &str| match op {
        "delete" => json!({"writes": [{"op": op, "store": "kv", "key": key}]}),
        _ => json!({"writes": [{"op": op, "store": "kv", "key": key, "value": 1}]}),
    };
    let first = node.commit(&write("put", "a/9")).body;
    let scan = json!({
        "isolation": "serializable",
        "snapshots": {"kv": first["epoch"]},
        "ranges": [{"store": "kv", "start": "a/", "end": "a0"}],
        "writes": [{"op": "put", "store": "kv", "key": "other", "value": 3}],
    });
    let in_range = node.commit(&write("put", "a/5")).body;
    node.commit(&write("put", "b"));
    let aborted = node.commit(&scan).body;
    assert_eq!(aborted["reason"], "range_conflict", "{aborted}");
    let conflict = &aborted["conflicts"][0];
    assert_eq!((&conflict["key"], &conflict["end"], &conflict["row"]), (&json!("a/"), &json!("a0"), &json!("a/5")));
    assert_eq!((&conflict["by_txn"], &conflict["current_version"]), (&in_range["txn_id"], &in_range["version"]));
    // A range to the end of the store omits its end; an empty one would be a key.
    let mut rest = scan.clone();
    rest["ranges"] = json!([{"store": "kv", "start": "a/"}]);
    let unbounded = node.commit(&rest).body["conflicts"][0].clone();
    assert_eq!((&unbounded["op"], &unbounded["key"]), (&json!("range"), &json!("a/")), "{unbounded}");
    assert_eq!((unbounded.get("end"), unbounded.get("end_b64")), (None, None), "{unbounded}");
    // The conflict names the first row of the range and its last writer; a deleted row has no version.
    let deleted = node.commit(&write("delete", "a/5")).body;
    let aborted = node.commit(&scan).body;
    let conflict = &aborted["conflicts"][0];
    assert_eq!((&conflict["row"], &conflict["by_txn"]), (&json!("a/5"), &deleted["txn_id"]), "{aborted}");
    assert_eq!(conflict.get("current_version"), None, "{aborted}");
    // A dry run names them as well.
    let id = support::new_id();
    let dry = node.post(&format!("/v1/txns/{id}/validate"), &scan).body;
    assert_eq!(
        (&dry["conflicts"][0]["row"], &dry["conflicts"][0]["by_txn"]),
        (&json!("a/5"), &deleted["txn_id"]),
        "{dry}"
    );
    node.stop();
}
