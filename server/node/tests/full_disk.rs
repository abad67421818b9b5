//! A full disk: the node stops acknowledging commits, exits with the reason, and has lost nothing afterwards.

mod support;

use std::process::Command;

use serde_json::json;
use support::Node;

#[test]
fn a_full_disk_ends_the_node_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    // A file size limit looks like a quota from inside the process, except for its signal, which must not end the node
    // silently.
    let mut limited = Command::new("bash");
    let run = "ulimit -f 49152; exec \"$0\" dev --listen 127.0.0.1:0 --data \"$1\"";
    limited.args(["-c", run, env!("CARGO_BIN_EXE_tribunal")]).arg(dir.path());
    let node = Node::spawn(limited).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"));
    // Incompressible text, so that the limit is reached soon.
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    let mut value = || -> String {
        (0..90_000)
            .map(|_| {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                char::from(b'!' + (noise % 90) as u8).to_string().replace(['"', '\\'], "x")
            })
            .collect()
    };
    let mut acknowledged = Vec::new();
    for n in 0..2000 {
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": format!("k{n}"), "value": value()}]});
        match node.try_post(&format!("/v1/txns/{}/commit", support::new_id()), &body) {
            Ok(answer) if answer.status == 200 => acknowledged.push((n, answer.body["version"].clone())),
            _ => break,
        }
    }
    assert!(acknowledged.len() > 10, "some commits fit: {}", acknowledged.len());
    let (status, stderr) = node.ended();
    assert!(!status.success());
    assert!(stderr.contains("durability is in doubt"), "{stderr}");

    let node = Node::start(dir.path());
    let log = node.log_of("kv");
    for (n, version) in &acknowledged {
        let record = log.iter().find(|record| record["writes"][0]["key"] == format!("k{n}"));
        assert_eq!(record.map(|r| &r["version"]), Some(version), "acknowledged k{n} is lost");
    }
    assert!(log.len() <= acknowledged.len() + 1, "at most the one commit without an answer is there besides");
}

/// A mounted tmpfs; unmounted on drop.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    /// Returns `None` if this user may not mount.
    fn mount(mebibytes: u32) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={mebibytes}m");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()).output();
        mounted.is_ok_and(|output| output.status.success()).then_some(SmallDisk(dir))
    }

    fn resize(&self, mebibytes: u32) {
        let options = format!("remount,size={mebibytes}m");
        let output = Command::new("mount").args(["-o", &options]).arg(self.0.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
fn a_node_is_not_ready_while_its_disk_is_almost_full() {
    let Some(disk) = SmallDisk::mount(512) else {
        println!("SKIPPED: mounting a small tmpfs needs root");
        return;
    };
    let node = Node::start(&disk.0.path().join("data"));
    support::eventually("it is ready", || (node.get("/readyz").status == 200).then_some(()));
    for _ in 0..2 {
        disk.resize(120);
        let full =
            support::eventually("it is not ready", || Some(node.get("/readyz")).filter(|ready| ready.status == 503));
        assert!(full.body["reasons"].to_string().contains("free some space"), "{}", full.body);
        // Commits need less room than the node would like to have.
        let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
        let free = metrics.lines().find_map(|line| line.strip_prefix("tribunal_data_free_bytes ")?.parse::<f64>().ok());
        let used = 120 - (free.expect("the metric") / 1_048_576.0) as u32;
        disk.resize(used + 20);
        let write = json!({"writes": [{"op": "put", "store": "kv", "key": "k", "value": 1}]});
        let refused = support::eventually("a refusal", || Some(node.commit(&write)).filter(|no| no.status == 503));
        assert!(refused.body["detail"].as_str().is_some_and(|why| why.contains("almost full")), "{}", refused.body);
        let id = support::new_id();
        let batch = node.post("/v1/txns/batch-commit", &json!({"txns": [{"txn_id": id, "writes": write["writes"]}]}));
        assert!(batch.body.to_string().contains("almost full"), "{}", batch.body);
        let read_only = json!({"reads": [{"store": "kv", "key": "absent"}]});
        assert_eq!(node.commit(&read_only).body["status"], "committed", "it writes nothing");
        disk.resize(512);
        support::eventually("it is ready again", || (node.get("/readyz").status == 200).then_some(()));
        support::eventually("a commit", || (node.commit(&write).status == 200).then_some(()));
    }
    node.signal("TERM");
    let (status, log) = node.ended();
    assert!(status.success(), "{log}");
    let count = |text: &str| log.lines().filter(|line| line.contains(text)).count();
    assert_eq!((count("running full"), count("enough free space again")), (2, 2), "{log}");
}

#[test]
fn a_disk_that_runs_full_is_logged_although_nobody_asks() {
    let Some(disk) = SmallDisk::mount(512) else {
        println!("SKIPPED: mounting a small tmpfs needs root");
        return;
    };
    let log = disk.0.path().join("log");
    let mut command = Command::new("bash");
    let run = "exec \"$0\" dev --listen 127.0.0.1:0 --data \"$1/data\" 2>\"$1/log\"";
    command.args(["-c", run, env!("CARGO_BIN_EXE_tribunal")]).arg(disk.0.path());
    let node = Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"));
    // It is ready: the start needs less than the low-space threshold.
    disk.resize(200);
    let logged = || std::fs::read_to_string(&log).unwrap_or_default().contains("running full").then_some(());
    support::eventually("a line in its log", logged);
    assert_eq!(node.get("/readyz").status, 200);
    let line_with = |parts: [&str; 2]| {
        let log = std::fs::read_to_string(&log).unwrap_or_default();
        log.lines().any(|line| parts.iter().all(|part| line.contains(part))).then_some(())
    };
    disk.resize(100);
    support::eventually("why it is not ready", || line_with(["unready_log: the node is not ready", "free some space"]));
    disk.resize(200);
    support::eventually("that it is ready again", || line_with(["INFO", "unready_log: the node is ready"]));
    assert!(node.stop().success());
}

#[test]
fn a_node_whose_data_directory_is_gone_stops_within_bounds() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = Node::start(&data);
    (0..50).for_each(|n| drop(node.put_row(&format!("k{n}"), n)));
    std::fs::remove_dir_all(&data).unwrap();
    let pid = node.pid();
    node.signal("TERM");
    let (ended, end) = std::sync::mpsc::channel();
    std::thread::spawn(move || ended.send(node.ended()));
    if end.recv_timeout(std::time::Duration::from_secs(60)).is_err() {
        let _ = Command::new("kill").args(["-s", "KILL", &pid.to_string()]).status();
        panic!("still there 60 s after it was asked to stop");
    }
}
