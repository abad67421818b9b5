//! Obstructed shutdowns: each completes within its time limit, and the next start has lost nothing.

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use support::{Node, eventually};

#[test]
fn a_stop_completes_although_the_data_directory_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let node = Node::start(&data);
    for n in 0..100 {
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": format!("k{n}"), "value": n}]});
        assert_eq!(node.commit(&body).status, 200);
    }
    fs::remove_dir_all(&data).unwrap();
    // The status depends on how much it had to write. Only the exit itself matters.
    let _ = node.stop();
}

#[test]
fn a_terminal_that_closes_stops_the_node_as_sigterm_does() {
    let dir = tempfile::tempdir().unwrap();
    // The tests may have been started with the signal ignored, as by `nohup`.
    let mut command = Command::new("env");
    command.args(["--default-signal=HUP", env!("CARGO_BIN_EXE_tribunal"), "dev", "--listen", "127.0.0.1:0", "--data"]);
    command.arg(dir.path());
    let node = Node::spawn(command).unwrap_or_else(|stderr| panic!("{stderr}"));
    node.put_row("k", 1);
    node.signal("HUP");
    let (status, told) = node.ended();
    assert!(status.success(), "{status}: {told}");
    // The last line distinguishes a clean stop from a process that was killed while stopping.
    let last = told.lines().last().unwrap_or_default();
    assert!(last.ends_with("stopped"), "{told}");
}

#[test]
fn a_member_that_waits_for_the_others_stops_with_success() {
    let cluster = support::cluster::Cluster::prepare(3);
    for signal in ["TERM", "INT"] {
        let mut command = cluster.command(2);
        command.env_remove("TRIBUNAL_LOG").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines().map_while(Result::ok);
        assert!(lines.any(|line| line.contains("waiting")), "it waits for the others");
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().expect("kill runs");
        assert!(sent.success());
        let rest: Vec<String> = lines.collect();
        let status = child.wait().expect("it ends");
        assert_eq!(status.code(), Some(0), "{signal}: {rest:?}");
        assert!(rest.iter().any(|line| line.contains("stopping before the start is complete")), "{rest:?}");
    }
}

#[test]
fn applied_is_never_shown_lower_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let mut version = 0;
    for n in 0..200 {
        let body =
            json!({"ack": "applied", "writes": [{"op": "put", "store": "kv", "key": format!("k{n}"), "value": n}]});
        let answer = node.commit(&body);
        assert_eq!((answer.status, &answer.body["applied"]), (200, &json!(true)), "{}", answer.body);
        version = decimal(&answer.body["epoch"]);
    }
    node.kill();
    let node = Node::start(dir.path());
    eventually("the node to be ready", || (node.get("/readyz").status == 200).then_some(()));
    for _ in 0..50 {
        let row = node.get("/v1/stores/kv/rows/k199");
        assert!(row.status == 503 || decimal(&row.body["applied"]) >= version, "{}", row.body);
        let begun = node.post("/v1/txns", &json!({"stores": ["kv"]}));
        assert!(begun.status == 503 || decimal(&begun.body["snapshots"]["kv"]) >= version, "{}", begun.body);
    }
    assert!(node.stop().success());
}

#[test]
fn a_storage_that_has_not_reported_its_watermark_has_no_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    // Nothing listens there.
    let redis = json!({"adaptor": "redis", "adaptor_config": {"endpoint": "127.0.0.1:9"}});
    let declared = node.put("/v1/stores/away", &redis);
    assert!(declared.status == 200 || declared.status == 201, "{}", declared.body);
    let begin = json!({"stores": ["away"]});
    assert!(node.post("/v1/txns", &begin).status < 300, "its log is empty, so nothing is in doubt");
    assert_eq!(node.commit(&json!({"writes": [{"op": "put", "store": "away", "key": "a", "value": 1}]})).status, 200);
    node.kill();
    let node = Node::start(dir.path());
    let begun = node.post("/v1/txns", &begin);
    assert_eq!(begun.status, 503, "{}", begun.body);
    assert_eq!(node.commit(&json!({"writes": [{"op": "put", "store": "kv", "key": "b", "value": 1}]})).status, 200);
    assert!(node.stop().success());
}

fn decimal(value: &serde_json::Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn a_supervisor_is_told_of_the_start_and_the_stop_and_kept_informed_between() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("the directory is ours");
    socket.set_read_timeout(Some(Duration::from_secs(120))).expect("a timeout");
    let received = || {
        let mut bytes = [0; 256];
        let read = socket.recv(&mut bytes).expect("a report");
        String::from_utf8_lossy(&bytes[..read]).trim_end().to_owned()
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path().join("data"));
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "60000").env_remove("WATCHDOG_PID");
    let node = Node::spawn(command).unwrap_or_else(|stderr| panic!("{stderr}"));
    // Before that, only keep-alives.
    let before: Vec<String> = std::iter::repeat_with(received).take_while(|told| told != "READY=1").collect();
    assert!(before.iter().all(|told| told == "WATCHDOG=1"), "{before:?}");
    assert_eq!(node.get("/readyz").status, 200);
    assert_eq!([received(), received()], ["WATCHDOG=1", "WATCHDOG=1"]);
    node.signal("TERM");
    let after: Vec<String> = std::iter::repeat_with(received).take_while(|told| told != "STOPPING=1").collect();
    assert!(after.iter().all(|told| told == "WATCHDOG=1"), "{after:?}");
    let (status, told) = node.ended();
    assert!(status.success(), "{told}");

    // A supervisor that is gone is no reason to end.
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.args(["dev", "--listen", "127.0.0.1:0", "--data"]).arg(dir.path().join("data"));
    command.env("NOTIFY_SOCKET", dir.path().join("none")).env_remove("WATCHDOG_USEC");
    let node = Node::spawn(command).unwrap_or_else(|stderr| panic!("{stderr}"));
    node.put_row("k", 1);
    node.signal("TERM");
    let (status, told) = node.ended();
    assert!(status.success() && told.contains("NOTIFY_SOCKET"), "{told}");
}
