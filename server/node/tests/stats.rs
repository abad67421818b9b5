//! Statistics of a real process: phases, aborts, lag.

mod support;

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::{Node, eventually};

/// Runs a new node, commits at it, and returns it with statistics that cover all of that: statistics are of the last
/// few seconds, so a run that takes longer is repeated.
fn counted(commits: impl Fn(&Node)) -> (tempfile::TempDir, Node, Value) {
    for _ in 0..20 {
        let dir = tempfile::tempdir().unwrap();
        let (begun, node) = (Instant::now(), Node::start(dir.path()));
        commits(&node);
        let stats = node.get("/v1/stats").body;
        if begun.elapsed() < Duration::from_secs(5) {
            return (dir, node, stats);
        }
    }
    panic!("some commits take longer than the seconds that statistics are of");
}

fn timing(stats: &Value, list: &str, name: &str) -> Value {
    let all = stats[list].as_array().expect("timings");
    all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("no {name}: {stats}"))["us"].clone()
}

fn number(value: &Value) -> u64 {
    value.as_str().expect("a decimal string").parse().expect("a number")
}

#[test]
fn both_acknowledgements_are_broken_down_by_phase() {
    let (_dir, node, stats) = counted(|node| {
        let commit = |ack: &str, key: &str| {
            let body = json!({"ack": ack, "writes": [{"op": "put", "store": "kv", "key": key, "value": 1}]});
            assert_eq!(node.commit(&body).body["status"], "committed");
        };
        (0..10).for_each(|n| commit("durable", &format!("d{n}")));
        (0..5).for_each(|n| commit("applied", &format!("a{n}")));
        let insert = json!({"writes": [{"op": "insert", "store": "kv", "key": "d0", "value": 1}]});
        assert_eq!(node.commit(&insert).body["reason"], "row_exists");
        assert_eq!(node.put("/v1/consumers/slow", &json!({"store": "kv", "lsn": "3"})).status, 200);
    });

    for phase in ["queue", "sync", "resolve"] {
        assert_eq!(number(&timing(&stats, "phases", phase)["count"]), 16, "{phase}: {stats}");
    }
    assert_eq!(number(&timing(&stats, "phases", "apply")["count"]), 5);
    assert_eq!(number(&timing(&stats, "commits", "durable")["count"]), 11);
    let applied = timing(&stats, "commits", "applied");
    assert_eq!(number(&applied["count"]), 5);
    let at = |name: &str| applied[name].as_f64().expect("a number");
    assert!(at("p50") > 0.0 && at("p50") <= at("p90") && at("p90") <= at("p99") && at("p99") <= at("max"), "{applied}");
    assert!(stats["committed_per_s"].as_f64() > Some(0.0) && stats["epochs_per_s"].as_f64() > Some(0.0), "{stats}");
    assert_eq!(stats["aborts"], json!([{"reason": "row_exists", "count": "1"}]));
    assert!((stats["abort_share"].as_f64().expect("a share") - 1.0 / 16.0).abs() < 1e-9, "{stats}");
    assert!(stats["epoch_txns"]["max"].as_f64() >= Some(1.0), "{stats}");
    assert_eq!((&stats["stores"][0]["store"], &stats["stores"][0]["head_lsn"]), (&json!("kv"), &json!("15")));
    assert_eq!(stats["consumers"][0]["offsets"][0]["lag_records"], "12");
    let slots: Vec<_> = stats["plugins"].as_array().expect("slots").iter().map(|one| one["slot"].clone()).collect();
    assert!(slots.len() >= 5 && slots.contains(&json!("rule")), "{slots:?}");

    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    for line in [
        "tribunal_commit_phase_seconds_count{phase=\"queue\"} 16",
        "tribunal_commit_phase_seconds_count{phase=\"apply\"} 5",
        "tribunal_commit_seconds_count{ack=\"durable\"} 11",
        "tribunal_commit_seconds_count{ack=\"applied\"} 5",
    ] {
        assert!(metrics.contains(line), "{line} is missing:\n{metrics}");
    }
}

/// Verdicts on read-only transactions count like others, and so do their aborts.
#[test]
fn commits_that_only_read_are_counted() {
    let (_dir, node, stats) = counted(|node| {
        let version = node.put_row("k", 1)["version"].clone();
        let read = json!({"reads": [{"store": "kv", "key": "k", "version": version}]});
        (0..3).for_each(|_| assert_eq!(node.commit(&read).body["status"], "committed"));
        node.put_row("k", 2);
        assert_eq!(node.commit(&read).body["reason"], "read_conflict");
    });
    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    for line in ["tribunal_txns_committed_total 5", "tribunal_tenant_txns_committed_total{namespace=\"default\"} 5"] {
        assert!(metrics.contains(line), "{line} is missing:\n{metrics}");
    }
    assert!((stats["abort_share"].as_f64().expect("a share") - 1.0 / 6.0).abs() < 1e-9, "{stats}");
}

#[test]
fn rates_are_of_the_last_seconds() {
    let (_dir, node, stats) = counted(|node| assert_eq!(node.put_row("k", 1)["status"], "committed"));
    assert!(stats["committed_per_s"].as_f64() > Some(0.0), "{stats}");
    let quiet = eventually("a window without commits", || {
        let stats = node.get("/v1/stats").body;
        (stats["committed_per_s"].as_f64() == Some(0.0)).then_some(stats)
    });
    assert!(number(&quiet["window_ms"]) >= 5_000, "{quiet}");
    assert_eq!(timing(&quiet, "phases", "sync")["count"], "0");
}

#[test]
fn figures_name_the_build_and_refusals_and_start_at_zero() {
    let dir = tempfile::tempdir().unwrap();
    let before = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let node = Node::start(dir.path());
    let metrics = || node.get("/metrics").body.as_str().expect("text").to_owned();
    let figure = |line: &str| -> Option<f64> {
        metrics().lines().find_map(|known| known.strip_prefix(line)?.strip_prefix(' ')?.parse().ok())
    };
    let of = |reason: &str, stage: &str, level: &str| {
        let labels =
            format!("reason=\"{reason}\",stage=\"{stage}\",level=\"{level}\",namespace=\"default\",store=\"\"");
        figure(&format!("tribunal_txns_aborted_total{{{labels}}}"))
    };
    for reason in
        ["read_conflict", "write_conflict", "range_conflict", "row_exists", "snapshot_too_old", "add_overflow"]
    {
        assert_eq!(of(reason, "", ""), Some(0.0), "{reason}");
    }
    for reason in ["read_conflict", "row_exists", "client_abort", "fenced", "plugin"] {
        let by_reason = figure(&format!("tribunal_txns_aborted_by_reason_total{{reason=\"{reason}\"}}"));
        assert_eq!(by_reason, Some(0.0), "{reason}");
    }
    let build = format!("tribunal_build_info{{version=\"{}\",commit=\"", env!("CARGO_PKG_VERSION"));
    let text = metrics();
    assert!(text.lines().any(|line| line.starts_with(&build) && line.ends_with("\"} 1")), "{text}");
    let started = figure("process_start_time_seconds").expect("a start");
    assert!(started >= before.floor() && started < before + 120.0, "{started} {before}");

    let problem =
        |class: &str, code: &str| figure(&format!("tribunal_http_problems_total{{class=\"{class}\",code=\"{code}\"}}"));
    assert_eq!(problem("4xx", "unknown_store"), None);
    (0..3).for_each(|_| assert_eq!(node.get("/v1/stores/none").status, 404));
    assert_eq!(node.commit(&json!({"writes": 7})).status, 400, "on the way of commits, too");
    assert_eq!((problem("4xx", "unknown_store"), problem("4xx", "wrong_type")), (Some(3.0), Some(1.0)));
    assert_eq!(figure("tribunal_http_responses_total{class=\"4xx\"}"), Some(4.0));
}

#[test]
fn a_standalone_node_has_no_figures_of_a_cluster() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let metrics = node.get("/metrics").body;
    let metrics = metrics.as_str().expect("text");
    assert!(!metrics.contains("tribunal_cluster_") && !metrics.contains("tribunal_peer_"), "{metrics}");
    assert!(metrics.contains("\ntribunal_fresh_reads_total 0\n"), "{metrics}");
}
