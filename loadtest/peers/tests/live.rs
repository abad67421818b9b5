//! Runs the harness against real servers as briefly as possible: each contender commits, and leaves nothing running.

use std::path::{Path, PathBuf};
use std::process::Command;

const PEERS: &str = env!("CARGO_BIN_EXE_tribunal-peers");

/// Runs `peers` on `loads` and returns the turns as (contender, workload, committed per second, share of aborts).
fn run(peers: &str, loads: &str) -> Vec<(String, String, f64, f64)> {
    let folder = tempfile::tempdir().unwrap();
    // PostgreSQL runs as a separate user and needs access to its folder.
    let open = Command::new("chmod").args(["755"]).arg(folder.path()).status().unwrap();
    assert!(open.success());
    let out = folder.path().join("peers.json");
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let ran = Command::new(PEERS)
        .args(["run", "--peers", peers, "--loads", loads, "--rows", "2000", "--rounds", "1", "--seconds", "0.5"])
        .args(["--warmup", "0.1", "--clients", "8", "--in-flight", "32", "--tribunal"])
        .arg(tribunal())
        .args(etcd().into_iter().flat_map(|etcd| ["--etcd".into(), etcd.into_os_string()]))
        .args(["--data-dir".as_ref(), data.as_os_str(), "--out".as_ref(), out.as_os_str()])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    assert_eq!(std::fs::read_dir(&data).unwrap().count(), 0, "folders of peers are left behind");

    let report = Command::new(PEERS)
        .args(["report", "--from"])
        .arg(&out)
        .arg("--charts")
        .arg(folder.path().join("charts"))
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&report.stdout).contains("| | committed/s |"), "the report has no table");
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(&out).unwrap()).unwrap();
    let turns = document["loads"].as_array().unwrap().iter().flat_map(|load| load["turns"].as_array().unwrap());
    let text = |turn: &serde_json::Value, name: &str| turn[name].as_str().unwrap().to_owned();
    let number = |turn: &serde_json::Value, name: &str| turn[name].as_f64().unwrap();
    turns
        .map(|turn| {
            (text(turn, "peer"), text(turn, "load"), number(turn, "committed_per_s"), number(turn, "aborted_share"))
        })
        .collect()
}

/// Returns the binary that `install.sh` built last.
fn etcd() -> Option<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache")))?;
    let found = std::fs::read_dir(cache.join("tribunal/tools")).ok()?.flatten().map(|entry| entry.path().join("etcd"));
    found.filter(|path| path.is_file()).max_by_key(|path| path.metadata().and_then(|file| file.modified()).ok())
}

fn tribunal() -> PathBuf {
    Path::new(PEERS).with_file_name("tribunal")
}

/// Returns the reason why a test cannot run here, if there is one.
fn missing(what: &[(&str, &Path)]) -> bool {
    let absent = what.iter().find(|(_, path)| !path.exists());
    if let Some((name, path)) = absent {
        println!("SKIPPED: {name} is missing at {}", path.display());
    }
    absent.is_some()
}

#[test]
fn tribunal_and_redis_commit_every_workload() {
    if missing(&[("the server's binary", &tribunal()), ("redis-server", Path::new("/usr/bin/redis-server"))]) {
        return;
    }
    let turns = run("tribunal,tribunal-reads,redis", "zipf,ycsb-b,hot");
    // The hot row is never read over HTTP.
    assert_eq!(turns.len(), 8);
    for (peer, load, committed, aborted) in turns {
        assert!(committed > 0.0, "{peer} commits nothing on {load}");
        assert!(load != "hot" || aborted == 0.0, "{peer} aborts blind adds");
    }
}

/// Every workload of YCSB, those with inserts first, so that the other ones have more rows.
const YCSB: &str = "ycsb-d,ycsb-e,ycsb-a,ycsb-b,ycsb-c,ycsb-f";

/// Checks that each of `peers` commits on every workload of YCSB, and which may abort where.
fn check_ycsb(peers: &str) {
    let turns = run(peers, YCSB);
    assert_eq!(turns.len(), peers.split(',').count() * YCSB.split(',').count());
    for (peer, load, committed, aborted) in turns {
        assert!(committed > 0.0, "{peer} commits nothing on {load}");
        assert!(load != "ycsb-c" || aborted == 0.0, "{peer} aborts reads that nobody disturbs");
        // No client writes a row that another one reads; but PostgreSQL locks pages, not only rows.
        let exact = peer != "postgres" && load == "ycsb-d";
        assert!(!exact || aborted == 0.0, "{peer} aborts {aborted} of the transactions on {load}");
    }
}

#[test]
fn every_kind_of_engine_commits_all_of_ycsb() {
    if missing(&[("the server's binary", &tribunal())]) {
        return;
    }
    check_ycsb("tribunal,tribunal-gathered,tribunal-reads,tribunal-sdk,tribunal-sdk-reads,tribunal-stream");
}

#[test]
fn redis_commits_all_of_ycsb() {
    if missing(&[("redis-server", Path::new("/usr/bin/redis-server"))]) {
        return;
    }
    check_ycsb("redis");
}

#[test]
fn postgres_commits_all_of_ycsb() {
    if missing(&[("PostgreSQL 15", Path::new("/usr/lib/postgresql/15/bin/postgres"))]) {
        return;
    }
    check_ycsb("postgres");
}

#[test]
fn etcd_commits_all_of_ycsb() {
    if etcd().is_none() {
        println!("SKIPPED: loadtest/peers/install.sh has not built etcd");
        return;
    }
    check_ycsb("etcd");
}

#[test]
fn clusters_of_three_commit() {
    if missing(&[("the server's binary", &tribunal())]) {
        return;
    }
    let peers = if etcd().is_some() { "tribunal-three,tribunal-three-at-one,etcd-three" } else { "tribunal-three" };
    let turns = run(peers, "uniform");
    assert_eq!(turns.len(), peers.split(',').count());
    for (peer, _, committed, _) in turns {
        assert!(committed > 0.0, "{peer} commits nothing");
    }
}

#[test]
fn postgres_commits_and_serializes() {
    let server = Path::new("/usr/lib/postgresql/15/bin/postgres");
    if missing(&[("the server's binary", &tribunal()), ("PostgreSQL 15", server)]) {
        return;
    }
    let turns = run("postgres", "zipf,ycsb-a,hot");
    assert_eq!(turns.len(), 3);
    for (_, load, committed, aborted) in turns {
        assert!(committed > 0.0, "nothing commits on {load}");
        // Eight clients on one row of a serializable database cannot all win.
        assert!(load != "hot" || aborted > 0.0, "nobody loses on one row");
    }
}

#[test]
fn batches_commit_without_a_storage() {
    if missing(&[("the server's binary", &tribunal())]) {
        return;
    }
    let turns = run("tribunal-batch", "oracle-uniform");
    assert!(matches!(&turns[..], [(_, _, committed, _)] if *committed > 0.0), "{turns:?}");
}

#[test]
fn an_unknown_workload_is_rejected() {
    let refused =
        Command::new(PEERS).args(["run", "--tribunal", "x", "--out", "x", "--loads", "tpc-e"]).output().unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("there is no workload tpc-e"));
}
