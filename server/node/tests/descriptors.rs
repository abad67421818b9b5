//! A low limit on open files: unauthenticated connections cannot take the descriptors that the log needs.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use support::keyed::{AUTH, operator, put};
use support::{Node, eventually, new_id};

/// Silent connections are not closed before a test's calls time out, so a call that waits for their places is noticed.
const SILENCE: &str = "[http]\nheader_timeout_ms = 600000\n";

/// Starts a node that requires keys, under a limit on open files.
fn limited(dir: &Path, ulimit: &str) -> Node {
    let config = dir.join("tribunal.toml");
    let text = format!("listen = \"127.0.0.1:0\"\ndata = {:?}\n{SILENCE}{AUTH}", dir.join("data"));
    std::fs::write(&config, text).expect("the directory is ours");
    let mut command = Command::new("bash");
    command.args(["-c", &format!("{ulimit}; exec \"$0\" serve --config \"$1\""), env!("CARGO_BIN_EXE_tribunal")]);
    command.arg(&config);
    Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"))
}

fn declare(node: &Node, key: &str) {
    let body = serde_json::json!({"adaptor": "kv"});
    let declared = support::keyed::call(node, key, "PUT", "/v1/stores/kv", Some(&body));
    assert!(declared.status < 300, "{}", declared.body);
}

#[test]
fn more_silent_connections_than_descriptors_do_not_stop_the_node() {
    let dir = tempfile::tempdir().unwrap();
    let node = limited(dir.path(), "ulimit -n 256");
    let key = operator(dir.path());
    let engine = support::keyed::make_key(&node, &key, "default", &["engine", "operator"]);
    declare(&node, &key);
    assert_eq!(put(&node, &engine, &new_id(), 0).status, 200);
    let address = node.url.trim_start_matches("http://").to_owned();
    let silent: Vec<TcpStream> = (0..600).map(|_| TcpStream::connect(&address).expect("a connection")).collect();
    for value in 1..20 {
        // Each of them on a separate connection, among the silent ones.
        assert_eq!(put(&node, &engine, &new_id(), value).status, 200);
    }
    // Large values: the log needs new segments while the silent connections are still open.
    let fill = "x".repeat(200_000);
    for number in 0..40 {
        let body =
            serde_json::json!({"writes": [{"op": "put", "store": "kv", "key": format!("k{number}"), "value": fill}]});
        let path = format!("/v1/txns/{}/commit", new_id());
        let reply = support::keyed::call(&node, &engine, "POST", &path, Some(&body));
        assert_eq!((reply.status, &reply.body["status"]), (200, &"committed".into()), "{}", reply.body);
    }
    drop(silent);
    assert!(node.stop().success(), "no descriptor was missing");
}

#[test]
fn a_soft_limit_is_raised_to_the_hard_one() {
    let dir = tempfile::tempdir().unwrap();
    let node = limited(dir.path(), "ulimit -Hn 2048; ulimit -Sn 128");
    let address = node.url.trim_start_matches("http://").to_owned();
    let mut clients: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(&address).expect("a connection")).collect();
    for client in &mut clients {
        client.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
        client.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").expect("open");
    }
    for client in &mut clients {
        let mut answer = [0; 12];
        client.read_exact(&mut answer).expect("every one of them is answered");
        assert_eq!(&answer, b"HTTP/1.1 200");
    }
    assert!(node.stop().success());
}

#[test]
fn unauthenticated_connections_that_reconnect_at_once_lock_nobody_out() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("tribunal.toml");
    let data = dir.path().join("data");
    let text = format!("listen = \"127.0.0.1:0\"\ndata = {data:?}\n{SILENCE}connections_max = 200\n{AUTH}");
    std::fs::write(&config, text).expect("the directory is ours");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.arg("serve").arg("--config").arg(&config);
    let node = Node::spawn(command).unwrap_or_else(|stderr| panic!("the node did not start: {stderr}"));
    let key = operator(dir.path());
    let address = node.url.trim_start_matches("http://").to_owned();
    let stop = std::sync::atomic::AtomicBool::new(false);
    let closed = std::sync::atomic::AtomicU64::new(0);
    std::thread::scope(|scope| {
        // The clients together hold twice as many sockets as there are places, and reopen each one that is closed.
        for _ in 0..4 {
            scope.spawn(|| {
                let open = || TcpStream::connect(&address).and_then(|s| s.set_nonblocking(true).map(|()| s));
                let mut sockets: Vec<TcpStream> = (0..100).filter_map(|_| open().ok()).collect();
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    for socket in &mut sockets {
                        let silent = socket.read(&mut [0]).is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
                        if !silent && let Ok(fresh) = open() {
                            *socket = fresh;
                            closed.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                        }
                    }
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
        eventually("the strangers to have every place", || {
            (closed.load(std::sync::atomic::Ordering::Relaxed) > 50).then_some(())
        });
        for _ in 0..50 {
            // On a new connection each time.
            let answer = support::call(&format!("{}/v1/stores", node.url), "GET", Some(&key), None);
            assert_eq!(answer.status, 200, "{}", answer.body);
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert!(node.stop().success());
}
