//! The limit on the bytes of a tenant's embedded stores: one tenant cannot fill the disk for all others.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};
use support::keyed::{AUTH, call, make_key, operator, serve};
use support::{Node, Response, eventually, new_id};

const ALL: [&str; 3] = ["engine", "store", "operator"];
/// Bound of the tenant `shop`.
const MAX: u64 = 1_000_000;
/// Length of a value, with its quotation marks.
const VALUE_BYTES: u64 = 100_002;
/// What a row takes in memory: its key of two characters, its value, and 14 bytes.
const ROW_BYTES: u64 = VALUE_BYTES + 16;

fn config() -> String {
    format!("{AUTH}tenant_stored_bytes_max = {MAX}\n[auth.stored_bytes_max]\nbig = 2_000_000\n")
}

fn write(op: &str, store: &str, key: &str) -> Value {
    match op {
        "delete" => json!({"op": op, "store": store, "key": key}),
        "add" => json!({"op": op, "store": store, "key": key, "value": 1, "or": 0}),
        _ => json!({"op": op, "store": store, "key": key, "value": "x".repeat(100_000)}),
    }
}

fn commit_as(node: &Node, key: &str, id: &str, writes: &[Value]) -> Response {
    call(node, key, "POST", &format!("/v1/txns/{id}/commit"), Some(&json!({"writes": writes})))
}

fn commit(node: &Node, key: &str, writes: &[Value]) -> Response {
    commit_as(node, key, &new_id(), writes)
}

/// Sends one commit on a stream; returns the whole response.
fn stream(node: &Node, key: &str, commit: &Value) -> String {
    let mut socket = TcpStream::connect(node.url.trim_start_matches("http://")).expect("it listens");
    let line = format!("{commit}\n");
    let head = format!(
        "POST /v1/txns/stream HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\
         content-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n",
        line.len()
    );
    socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(line.as_bytes())).expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("text");
    answer
}

fn is_refused(answer: &Response) -> bool {
    answer.status == 429 && answer.body["code"] == "stored_bytes_exceeded"
}

fn declare(node: &Node, key: &str, store: &str, body: &Value) {
    let answer = call(node, key, "PUT", &format!("/v1/stores/{store}"), Some(body));
    assert!([200, 201].contains(&answer.status), "{}", answer.body);
}

/// Returns the bytes of the store `kv` with every commit applied.
fn stored(node: &Node, key: &str) -> u64 {
    assert_eq!(call(node, key, "GET", "/v1/stores/kv/rows?limit=1", None).status, 200);
    let store = call(node, key, "GET", "/v1/stores/kv", None).body;
    store["stored_bytes"].as_str().unwrap_or_else(|| panic!("{store}")).parse().expect("a number")
}

/// Returns the values of a metric by namespace.
fn metric(node: &Node, root: &str, name: &str) -> Vec<(String, u64)> {
    let text = call(node, root, "GET", "/metrics", None).body.as_str().expect("text").to_owned();
    let samples = text.lines().filter_map(|line| {
        let (namespace, value) = line.strip_prefix(&format!("tribunal_{name}{{namespace=\""))?.split_once("\"} ")?;
        Some((namespace.to_owned(), value.parse().expect("a number")))
    });
    let mut samples: Vec<_> = samples.collect();
    samples.sort();
    samples
}

#[test]
fn a_tenant_at_its_bound_is_refused_and_disturbs_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), &config());
    let root = operator(dir.path());
    let shop = make_key(&node, &root, "shop", &ALL);
    for (store, body) in [("kv", json!({"adaptor": "kv"})), ("log", json!({}))] {
        declare(&node, &shop, store, &body);
    }
    let id = new_id();
    let first = commit_as(&node, &shop, &id, &[write("put", "kv", "k0")]);
    assert_eq!(first.body["status"], "committed", "{}", first.body);
    for n in 1..9 {
        let done = commit(&node, &shop, &[write("put", "kv", &format!("k{n}"))]);
        assert_eq!(done.body["status"], "committed", "{}", done.body);
    }
    assert_eq!(stored(&node, &shop), 9 * ROW_BYTES);

    // Whatever may add bytes is refused, with the numbers.
    let refused = commit(&node, &shop, &[write("put", "kv", "k9")]);
    assert!(is_refused(&refused), "{}", refused.body);
    let detail = refused.body["detail"].as_str().expect("text");
    for number in [9 * ROW_BYTES, ROW_BYTES, MAX] {
        assert!(detail.contains(&number.to_string()) && refused.body["retryable"] == false, "{number}: {detail}");
    }
    for op in ["insert", "update"] {
        assert!(is_refused(&commit(&node, &shop, &[write(op, "kv", "k8")])), "{op}");
    }
    assert!(is_refused(&commit(&node, &shop, &[write("delete", "kv", "k8"), write("put", "kv", "k9")])));
    let validate = |id: &str, key: &str| {
        let body = json!({"writes": [write("put", "kv", key)]});
        call(&node, &shop, "POST", &format!("/v1/txns/{id}/validate"), Some(&body))
    };
    assert!(is_refused(&validate(&new_id(), "k9")));
    // A transaction that was accepted before keeps its verdict.
    let again = commit_as(&node, &shop, &id, &[write("put", "kv", "k0")]);
    assert_eq!((again.status, &again.body["version"]), (200, &first.body["version"]), "{}", again.body);
    assert_eq!(validate(&id, "k0").status, 200);
    // What adds no more than there is room for passes, and so does all that takes no room here.
    assert_eq!(commit(&node, &shop, &[write("add", "kv", "n")]).body["status"], "committed");
    assert_eq!(commit(&node, &shop, &[write("put", "log", "k9")]).body["status"], "committed");
    // A batch: each transaction separately, in order.
    let txns =
        [("put", "kv", "k9"), ("add", "kv", "n"), ("delete", "kv", "k8"), ("put", "log", "a"), ("put", "kv", "b")];
    let txns = txns.map(|(op, store, key)| json!({"txn_id": new_id(), "writes": [write(op, store, key)]}));
    let answer = call(&node, &shop, "POST", "/v1/txns/batch-commit", Some(&json!({"txns": txns}))).body;
    let results = answer["results"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let refused: Vec<_> = results.iter().map(|one| one.to_string().contains("stored_bytes_exceeded")).collect();
    assert_eq!(refused, [true, false, false, false, true], "{answer}");
    // The room of a row that was not flushed yet returns at once.
    stored(&node, &shop);
    assert_eq!(commit(&node, &shop, &[write("put", "kv", "k8")]).body["status"], "committed");
    stored(&node, &shop);
    let streamed = stream(&node, &shop, &json!({"txn_id": new_id(), "writes": [write("put", "kv", "k9")]}));
    assert!(streamed.contains("stored_bytes_exceeded"), "{streamed}");

    // Other tenants have bounds of their own, or none.
    for (namespace, rows) in [("bank", 9), ("big", 19), ("default", 25)] {
        let key = make_key(&node, &root, namespace, &ALL);
        declare(&node, &key, "kv", &json!({"adaptor": "kv"}));
        for n in 0..rows {
            let done = commit(&node, &key, &[write("put", "kv", &format!("k{n}"))]);
            assert_eq!(done.body["status"], "committed", "{namespace}: {}", done.body);
        }
        stored(&node, &key);
        assert_eq!(is_refused(&commit(&node, &key, &[write("put", "kv", "more")])), namespace != "default");
    }
    let bounds: Vec<_> =
        [("bank", MAX), ("big", 2_000_000), ("shop", MAX)].map(|(name, max)| (name.into(), max)).into();
    assert_eq!(metric(&node, &root, "tenant_stored_bytes_max"), bounds);
    let bytes = metric(&node, &root, "tenant_stored_bytes");
    assert_eq!(bytes.iter().map(|(name, _)| &**name).collect::<Vec<_>>(), ["bank", "big", "default", "shop"]);
    assert_eq!(bytes[3].1, stored(&node, &shop));
}

#[test]
fn deleted_rows_make_room_once_they_are_compacted_and_a_restart_keeps_the_count() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), &config());
    let root = operator(dir.path());
    let shop = make_key(&node, &root, "shop", &ALL);
    declare(&node, &shop, "kv", &json!({"adaptor": "kv"}));
    let put = |node: &Node, key: &str| commit(node, &shop, &[write("put", "kv", key)]);
    for n in 0..9 {
        assert_eq!(put(&node, &format!("k{n}")).body["status"], "committed");
    }
    // The rows come from the log.
    node.kill();
    let node = serve(dir.path(), &config());
    assert_eq!(stored(&node, &shop), 9 * ROW_BYTES);
    assert!(is_refused(&put(&node, "k9")));
    // The rows come from the files.
    assert!(node.stop().success());
    let node = serve(dir.path(), &config());
    let full = stored(&node, &shop);
    assert!((9 * ROW_BYTES..9 * ROW_BYTES + 10_000).contains(&full), "{full}");
    assert!(is_refused(&put(&node, "k9")));
    // Nothing has changed, so nothing is compacted.
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(stored(&node, &shop), full);

    let deletes: Vec<Value> = (0..6).map(|n| write("delete", "kv", &format!("k{n}"))).collect();
    assert_eq!(commit(&node, &shop, &deletes).body["status"], "committed");
    eventually("the room of the deleted rows", || (stored(&node, &shop) < 4 * ROW_BYTES).then_some(()));
    for n in 0..6 {
        let row = call(&node, &shop, "GET", &format!("/v1/stores/kv/rows/k{n}"), None);
        assert_eq!(row.status, 404, "{}", row.body);
    }
    for n in 10..16 {
        assert_eq!(put(&node, &n.to_string()).body["status"], "committed");
    }
    stored(&node, &shop);
    assert!(is_refused(&put(&node, "no")));
    assert!(node.stop().success());

    // The rows of a store that is no longer embedded are still on the disk.
    let node = serve(dir.path(), &config());
    declare(&node, &shop, "kv", &json!({"log_only": true}));
    declare(&node, &shop, "other", &json!({"adaptor": "kv"}));
    let other = |node: &Node| commit(node, &shop, &[write("put", "other", "k")]);
    assert!(is_refused(&other(&node)));
    node.kill();
    let node = serve(dir.path(), &config());
    eventually("the files to be counted", || is_refused(&other(&node)).then_some(()));
    assert!(metric(&node, &root, "tenant_stored_bytes")[0].1 >= 9 * ROW_BYTES);
    // Embedded again, it can be emptied.
    declare(&node, &shop, "kv", &json!({"adaptor": "kv"}));
    let deletes: Vec<Value> = (6..9)
        .map(|n| format!("k{n}"))
        .chain((10..16).map(|n| n.to_string()))
        .map(|key| write("delete", "kv", &key))
        .collect();
    assert_eq!(commit(&node, &shop, &deletes).body["status"], "committed");
    eventually("the room of all rows", || (other(&node).body["status"] == "committed").then_some(()));
}

#[test]
fn a_store_that_becomes_embedded_needs_room_for_its_records() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), &config());
    let root = operator(dir.path());
    let shop = make_key(&node, &root, "shop", &ALL);
    let kv = json!({"adaptor": "kv"});
    let embed = |store: &str| call(&node, &shop, "PUT", &format!("/v1/stores/{store}"), Some(&kv));
    let fill = |store: &str, rows: u64| {
        declare(&node, &shop, store, &json!({"log_only": true}));
        for n in 0..rows {
            assert_eq!(commit(&node, &shop, &[write("put", store, &n.to_string())]).body["status"], "committed");
        }
    };
    fill("a", 12);
    let refused = embed("a");
    assert!(is_refused(&refused), "{}", refused.body);
    assert_eq!(call(&node, &shop, "GET", "/v1/stores/a", None).body["adaptor"], Value::Null, "nothing was changed");
    fill("b", 6);
    assert_eq!(embed("b").status, 200);
    fill("c", 6);
    eventually("the rows of b to count", || {
        let store = call(&node, &shop, "GET", "/v1/stores/b", None).body;
        let bytes: u64 = store["stored_bytes"].as_str()?.parse().ok()?;
        (bytes >= 6 * VALUE_BYTES).then_some(())
    });
    assert!(is_refused(&embed("c")));
}
