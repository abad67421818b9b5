//! Damaged logs, and copies of a data directory: the commands that the node prints work, and a node starts afterwards.

mod support;

use std::process::Command;

use serde_json::json;
use support::damage::{chunks, flip};
use support::{Node, eventually};

/// Commits rows `from..to` and returns when they are acknowledged.
fn commit(node: &Node, from: u32, to: u32) {
    for n in from..to {
        // Once it is applied, a stopping node writes it to the store's disk as well.
        let writes = json!([{"op": "put", "store": "kv", "key": format!("k{n}"), "value": n}]);
        let body = json!({"writes": writes, "ack": "applied"});
        let answer = node.try_post(&format!("/v1/txns/{}/commit", support::new_id()), &body).expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
}

/// Runs the command that a refused start prints, through a shell, and returns its output.
fn run_as_printed(stderr: &str) -> String {
    assert!(stderr.contains("is damaged"), "{stderr}");
    let command = stderr.split('`').find(|part| part.contains("log salvage ")).unwrap_or_else(|| panic!("{stderr}"));
    let run = |command: &str| {
        let out = Command::new("sh").args(["-c", command]).output().unwrap();
        let [printed, told] = [out.stdout, out.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (out.status.success(), printed, told)
    };
    // The first run reports the loss.
    let (accepted, _, preview) = run(command);
    assert!(!accepted && preview.contains("nothing was changed: repeat the command with --accept-loss"), "{preview}");
    let (done, printed, told) = run(&format!("{command} --accept-loss"));
    assert!(done, "`{command}`: {printed}{told}");
    let lost = printed.lines().find(|line| line.starts_with("lost: ")).expect("the report tells what is lost");
    assert!(preview.contains(lost), "{lost}: {preview}");
    printed
}

#[test]
fn the_log_of_a_running_node_is_not_salvaged() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    commit(&node, 0, 3);
    for flags in [&[] as &[&str], &["--accept-loss"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        let out = command.args(["log", "salvage", "--data"]).arg(dir.path()).args(flags).output().unwrap();
        let printed = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(!out.status.success(), "{flags:?}");
        let holder = format!("in use by process {}: stop that node first", node.pid());
        assert!(printed.contains(&holder), "{flags:?}: {printed}");
    }
    commit(&node, 3, 5);
    assert_eq!(node.log_of("kv").len(), 5);
}

#[test]
fn a_salvage_changes_nothing_if_nothing_is_damaged_and_tells_what_is_otherwise() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    commit(&node, 0, 20);
    let id = |node: &Node| node.get("/v1/log?store=kv&after=0&limit=1").body["log"].clone();
    let before = id(&node);
    node.kill();
    let salvage = |flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        command.args(["log", "salvage", "--data"]).arg(dir.path()).args(flags).output().unwrap()
    };
    for flags in [&[] as &[&str], &["--accept-loss"]] {
        let out = salvage(flags);
        let printed = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && printed.contains("nothing is damaged"), "{flags:?}: {printed}");
    }
    let node = Node::start(dir.path());
    assert_eq!((id(&node), node.log_of("kv").len()), (before, 20));
    node.kill();

    let (segment, entries) = chunks(dir.path(), b'T');
    flip(&segment, entries[entries.len() / 2] + 3);
    let out = salvage(&[]);
    let told = String::from_utf8_lossy(&out.stderr);
    assert!(!out.status.success() && told.contains("is damaged: ") && told.contains("--accept-loss"), "{told}");
    assert!(!dir.path().join("log.damaged-1").exists(), "nothing was accepted");
}

#[test]
fn the_printed_command_salvages_and_the_node_starts() {
    let dir = tempfile::tempdir().unwrap();
    // A name that a shell would split.
    let data = dir.path().join("it's my data");
    let node = Node::start(&data);
    commit(&node, 0, 40);
    // Killed, not stopped: a stopping node writes an image, below which nothing is resolved again.
    node.kill();

    // A bit of an outcome in the middle: nothing is lost, and its epoch is resolved again; so is the last one, whose
    // outcome may not be on disk yet.
    let (segment, outcomes) = chunks(&data, b'O');
    flip(&segment, outcomes[outcomes.len() / 2] + 3);
    let refused = Node::try_start(&data, &[]).err().expect("damage is refused");
    let printed = run_as_printed(&refused);
    assert!(printed.contains("lost: no entry\n") && printed.contains(" to be resolved again"), "{printed}");
    let node = Node::start(&data);
    assert_eq!(node.log_of("kv").len(), 40);
    commit(&node, 40, 50);
    assert_eq!(node.log_of("kv").len(), 50);
    node.stop();
    let node = Node::start(&data);
    assert_eq!(node.log_of("kv").len(), 50);
    commit(&node, 50, 60);
    node.kill();

    // A bit of an entry: the following entries are lost, and the report lists them.
    let (segment, entries) = chunks(&data, b'T');
    flip(&segment, entries[entries.len() - 5] + 3);
    let refused = Node::try_start(&data, &[]).err().expect("damage is refused");
    let printed = run_as_printed(&refused);
    assert!(printed.contains("lost: at least "), "{printed}");
    assert!(printed.contains("lost-transactions lists their "), "{printed}");
    assert!(data.join("log.damaged-2").is_dir());
    let kept = Node::start(&data).log_of("kv").len();
    assert!((50..60).contains(&kept), "{kept}: {printed}");
}

#[test]
fn positions_of_a_log_before_its_salvage_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = Node::start(&data);
    commit(&node, 0, 20);
    let offset = |lsn: &str| json!({"store": "kv", "lsn": lsn});
    assert_eq!(node.put("/v1/consumers/index", &offset("20")).status, 200);
    let first = node.get("/v1/log?store=kv&after=0&limit=1").body;
    let before = first["log"].as_str().expect("the id of the log").to_owned();
    assert_eq!(node.get(&format!("/v1/log?store=kv&after=20&log={before}")).status, 200);
    node.kill();

    // A bit of an entry: the following entries are lost.
    let (segment, entries) = chunks(&data, b'T');
    flip(&segment, entries[entries.len() - 5] + 3);
    run_as_printed(&Node::try_start(&data, &[]).err().expect("damage is refused"));
    let node = Node::start(&data);
    let kept = node.log_of("kv").len();
    assert!(kept < 20, "{kept}");
    // The head passes the offset, so its number alone no longer shows that the records before it were replaced.
    commit(&node, 100, 130);

    let consumer = node.get("/v1/consumers/index").body;
    let now = consumer["log"].as_str().expect("the id of the log").to_owned();
    assert_eq!((&consumer["offsets"][0]["lsn"], &consumer["offsets"][0]["log"]), (&json!("20"), &json!(before)));
    assert_ne!(now, before, "a salvaged log has a new id");
    let late = node.get(&format!("/v1/log?store=kv&after=20&log={before}"));
    assert_eq!((late.status, &late.body["code"]), (410, &json!("log_replaced")), "{}", late.body);
    assert_eq!(late.body["state_url"], "/v1/stores/kv/state");
    let again = json!({"store": "kv", "lsn": "20", "log": before});
    let refused = node.put("/v1/consumers/index", &again);
    assert_eq!((refused.status, &refused.body["code"]), (410, &json!("log_replaced")), "{}", refused.body);
    let tail = Command::new(env!("CARGO_BIN_EXE_tribunal"))
        .args(["log", "tail", "--consumer", "index", "--url", &node.url])
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&tail.stderr);
    assert!(!tail.status.success() && tail.stdout.is_empty() && stderr.contains("another log"), "{stderr}");

    // Restarted from the beginning, it continues to read.
    assert_eq!(node.put("/v1/consumers/index", &json!({"store": "kv", "lsn": "30", "log": now})).status, 200);
    assert_eq!(node.get("/v1/consumers/index").body["offsets"][0]["log"], json!(now));
    assert_eq!(node.get(&format!("/v1/log?store=kv&after=30&log={now}")).status, 200);
    node.stop();
}

#[test]
fn a_cold_copy_is_a_backup() {
    let dir = tempfile::tempdir().unwrap();
    let (data, copy) = (dir.path().join("data"), dir.path().join("copy"));
    let node = Node::start(&data);
    commit(&node, 0, 30);
    node.stop();
    assert!(Command::new("cp").arg("-a").arg(&data).arg(&copy).status().unwrap().success());
    let node = Node::start(&data);
    commit(&node, 30, 40);
    let restored = Node::start(&copy);
    assert_eq!((node.log_of("kv").len(), restored.log_of("kv").len()), (40, 30));
    commit(&restored, 30, 35);
    assert_eq!(restored.log_of("kv").len(), 35);
    for n in [0, 29] {
        assert_eq!(restored.get(&format!("/v1/stores/kv/rows/k{n}")).body["value"], n);
    }
    node.stop();
    restored.stop();
}

#[test]
fn an_embedded_store_survives_the_loss_of_its_records() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    commit(&node, 0, 20);
    // A stopping node writes its rows and an image.
    assert!(node.stop().success());
    let segments = dir.path().join("log/segments");
    std::fs::remove_file(segments.join("log-0000000000000000")).expect("the first segment");
    let refused = Node::try_start(dir.path(), &[]).err().expect("damage is refused");
    run_as_printed(&refused);

    for round in 0..2 {
        let node = Node::start(dir.path());
        for n in 0..20 {
            let row = node.get(&format!("/v1/stores/kv/rows/k{n}"));
            assert_eq!((row.status, &row.body["value"]), (200, &json!(n)), "round {round}: {}", row.body);
        }
        let store = node.get("/v1/stores/kv").body;
        assert_eq!(store["push"]["state"], "running", "round {round}: {store}");
        commit(&node, 0, 20);
        assert!(node.stop().success());
    }
    let stores = std::fs::read_dir(dir.path().join("stores")).expect("stores").map(|entry| entry.unwrap().file_name());
    assert!(stores.into_iter().all(|name| !name.to_string_lossy().contains("aside")), "nothing was rebuilt");
}

#[test]
fn an_embedded_store_with_a_damaged_block_is_rebuilt_once_that_was_read() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    commit(&node, 0, 20);
    assert!(node.stop().success());
    let store = std::fs::read_dir(dir.path().join("stores")).expect("stores").next().expect("kv").unwrap().path();
    let damage = || flip(&store.join("run-0"), 9);

    damage();
    let node = Node::start(dir.path());
    let read = |node: &Node| node.get("/v1/stores/kv/rows/k1");
    let refused = read(&node);
    assert!(refused.status == 503 && refused.body["detail"].to_string().contains("is damaged"), "{}", refused.body);
    assert!((200..300).contains(&node.post("/v1/stores/kv/push/resume", &json!({})).status));
    eventually("the rows to be there again", || (read(&node).body["value"] == 1).then_some(()));
    // Rewritten to the disk.
    assert!(node.stop().success());

    damage();
    let node = Node::start(dir.path());
    assert_eq!(read(&node).status, 503);
    assert!(node.stop().success());
    let node = Node::start(dir.path());
    for n in 0..20 {
        assert_eq!(node.get(&format!("/v1/stores/kv/rows/k{n}")).body["value"], n);
    }
    assert!(node.stop().success());
}
