//! Reads of embedded stores on a real process: they include every acknowledged commit, and read all rows and stores of
//! a request at one epoch, regardless of concurrent commits.

mod support;

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use support::Node;
use support::redis::Redis;

fn number(value: &Value) -> u64 {
    value.as_str().expect("a decimal string").parse().expect("a number")
}

fn put(store: &str, key: &str, value: u64) -> Value {
    json!({"op": "put", "store": store, "key": key, "value": value})
}

#[test]
fn every_read_after_a_commit_sees_it_without_a_session() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Another client keeps the store busy.
        scope.spawn(|| {
            for n in 0.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                node.commit(&json!({"writes": [put("kv", &format!("other/{}", n % 500), n)]}));
            }
        });
        for n in 0..100 {
            let verdict = node.commit(&json!({"writes": [put("kv", "mine", n)]})).body;
            let row = node.get("/v1/stores/kv/rows/mine").body;
            assert_eq!((&row["value"], &row["version"]), (&json!(n), &verdict["version"]), "read {n}");
            assert!(number(&row["applied"]) >= number(&verdict["epoch"]), "{row}");
            let begun = node.post("/v1/txns", &json!({"stores": ["kv"]})).body;
            assert!(number(&begun["snapshots"]["kv"]) >= number(&verdict["epoch"]), "{begun}");
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(node.stop().success());
    let node = Node::start(dir.path());
    assert_eq!(node.get("/v1/stores/kv/rows/mine").body["value"], 99, "after a restart as well");
    node.commit(&json!({"writes": [put("kv", "mine", 100)]}));
    node.kill();
    let node = Node::start(dir.path());
    assert_eq!(node.get("/v1/stores/kv/rows/mine").body["value"], 100, "and after a crash");
}

#[test]
fn a_read_waits_for_a_store_that_is_being_opened() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for n in 0..30 {
        let declared = node.put("/v1/stores/again", &json!({"adaptor": "kv"}));
        assert!(matches!(declared.status, 200 | 201), "{}", declared.body);
        let (read, expected) = match n % 3 {
            0 => (node.get("/v1/stores/again/rows/a"), 404),
            1 => (node.post("/v1/stores/again/rows/read", &json!({"read": [{"key": "a"}]})), 200),
            _ => (node.post("/v1/txns", &json!({"read": [{"store": "again", "key": "a"}]})), 201),
        };
        assert_eq!(read.status, expected, "read {n}: {}", read.body);
        assert_eq!(node.put("/v1/stores/again", &json!({"log_only": true})).status, 200);
    }
}

#[test]
fn rows_of_one_request_are_of_one_epoch_in_one_store_and_in_several() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    assert_eq!(node.put("/v1/stores/other", &json!({"adaptor": "kv"})).status, 201);
    let write = |n: u64| json!({"writes": [put("kv", "a", n), put("kv", "b", n), put("other", "c", n)]});
    let first = node.commit(&write(0)).body;
    assert_eq!(first["status"], "committed", "{first}");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                node.commit(&write(n));
            }
        });
        for _ in 0..150 {
            let read = json!({"read": [{"key": "a"}, {"key": "nobody"}, {"key": "b"}], "ranges": [{"start": "a", "end": "c"}]});
            let answer = node.post("/v1/stores/kv/rows/read", &read).body;
            let [a, nobody, b] = [&answer["rows"][0], &answer["rows"][1], &answer["rows"][2]];
            assert_eq!((&a["value"], &a["version"]), (&b["value"], &b["version"]), "{answer}");
            assert!(nobody.get("version").is_none() && nobody.get("value").is_none(), "{answer}");
            let range = &answer["ranges"][0];
            assert_eq!(
                (&range["rows"][0]["value"], &range["rows"][1]["value"]),
                (&a["value"], &a["value"]),
                "{answer}"
            );
            assert_eq!(range["more"], false);

            let rows = [("kv", "a"), ("other", "c"), ("kv", "b")];
            let rows: Vec<Value> = rows.iter().map(|(store, key)| json!({"store": store, "key": key})).collect();
            let begun = node.post("/v1/txns", &json!({"stores": ["kv"], "read": rows}));
            assert_eq!(begun.status, 201, "{}", begun.body);
            let found = &begun.body["rows"];
            assert_eq!(
                (&found[0]["value"], &found[2]["value"]),
                (&found[1]["value"], &found[1]["value"]),
                "{}",
                begun.body
            );
            let snapshots = &begun.body["snapshots"];
            assert_eq!(snapshots["kv"], snapshots["other"], "one cut: {}", begun.body);
            // What was read at a snapshot is what the commit expects of it.
            let body = json!({"isolation": "snapshot", "snapshots": snapshots, "reads": [
                {"store": "kv", "key": "a", "version": found[0]["version"]},
                {"store": "other", "key": "c", "version": found[1]["version"]}]});
            let verdict = node.commit(&body).body;
            assert_eq!(verdict["status"], "committed", "{verdict}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_cached_row_is_revalidated_without_its_value() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let old = node.put_row("a", 1)["version"].clone();
    let read = |version: &Value| {
        let read = json!({"read": [{"key": "a", "version": version}]});
        node.post("/v1/stores/kv/rows/read", &read).body["rows"][0].clone()
    };
    let row = read(&old);
    assert_eq!((&row["unchanged"], &row["version"]), (&json!(true), &old), "{row}");
    assert!(row.get("value").is_none(), "{row}");
    let new = node.put_row("a", 2)["version"].clone();
    let row = read(&old);
    assert_eq!((&row["value"], &row["version"]), (&json!(2), &new), "{row}");
    assert!(row.get("unchanged").is_none(), "{row}");
    // The key `read` is a key like any other.
    node.put_row("read", 7);
    assert_eq!(node.get("/v1/stores/kv/rows/read").body["value"], 7);
}

#[test]
fn reads_that_cannot_be_answered_are_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    assert_eq!(node.put("/v1/stores/log", &json!({})).status, 201);
    let refused = |path: &str, body: &Value, status: u16, code: &str, word: &str| {
        let answer = node.post(path, body);
        assert_eq!((answer.status, &answer.body["code"]), (status, &json!(code)), "{}", answer.body);
        assert!(answer.body.to_string().contains(word), "{word}: {}", answer.body);
    };
    let path = "/v1/stores/kv/rows/read";
    let many: Vec<Value> = (0..10_001).map(|n| json!({"key": format!("k{n}")})).collect();
    refused(path, &json!({"read": many}), 413, "too_many", "10000 rows is the limit");
    refused(path, &json!({}), 400, "missing_field", "/read");
    refused(path, &json!({"read": [{}]}), 400, "missing_field", "/read/0/key");
    refused(path, &json!({"read": [{"key": ""}]}), 422, "empty_key", "/read/0/key");
    refused(path, &json!({"read": [{"key_b64": ""}]}), 422, "empty_key", "/read/0/key_b64");
    refused(path, &json!({"read": [{"key": "a", "store": "log"}]}), 404, "unknown_store", "omit it");
    refused(path, &json!({"read": [{"key": "a", "version": "x"}]}), 400, "bad_number", "/read/0/version");
    refused(path, &json!({"ranges": [{"limit": 0}]}), 400, "bad_number", "/ranges/0/limit");
    refused(path, &json!({"ranges": [{"start": "b", "end": "a"}]}), 422, "empty_range", "/ranges/0/end");
    refused(path, &json!({"ranges": [{"start": "b", "end_b64": "YQ"}]}), 422, "empty_range", "/ranges/0/end_b64");
    let with = |field: &str, value: Value| json!({"read": [{"key": "a"}], field: value});
    refused(path, &with("consistency", json!("newest")), 400, "unknown_value", "/consistency");
    refused(path, &with("session", json!("mine")), 400, "bad_session", "/session");
    refused(path, &with("wait_ms", json!(60_001)), 400, "bad_number", "/wait_ms");
    refused("/v1/stores/nobody/rows/read", &json!({"read": [{"key": "a"}]}), 404, "unknown_store", "nobody");
    refused(
        "/v1/stores/log/rows/read",
        &json!({"read": [{"key": "a"}]}),
        422,
        "store_not_embedded",
        "read other stores",
    );
    refused(
        "/v1/stores/log/rows/read",
        &with("consistency", json!("fresh")),
        422,
        "store_not_embedded",
        "read other stores",
    );
    refused("/v1/txns", &json!({"read": [{"key": "a"}]}), 400, "missing_field", "/read/0/store");
    refused(
        "/v1/txns",
        &json!({"read": [{"store": "log", "key": "a"}]}),
        422,
        "store_not_embedded",
        "read other stores",
    );
    // More than an answer holds.
    let large = "x".repeat(1_000_000);
    for n in 0..9 {
        let write = json!({"writes": [{"op": "put", "store": "kv", "key": format!("large/{n}"), "value": large}]});
        assert_eq!(node.commit(&write).body["status"], "committed");
    }
    let rows: Vec<Value> = (0..9).map(|n| json!({"key": format!("large/{n}")})).collect();
    refused(path, &json!({"read": rows}), 422, "read_too_large", "read fewer");
    let some = node.post(path, &json!({"read": rows[..8]}));
    assert_eq!(some.status, 200, "{}", some.body);
    let one_each: Vec<Value> =
        (0..9).map(|n| json!({"start": format!("large/{n}"), "end": format!("large/{n}~")})).collect();
    refused(path, &json!({"ranges": one_each}), 422, "read_too_large", "/ranges/8");
}

#[test]
fn a_store_that_is_not_embedded_is_named_where_the_request_names_it() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    assert_eq!(node.put("/v1/stores/log", &json!({})).status, 201);
    let refused = |answer: support::Response, pointer: &str| {
        assert_eq!((answer.status, &answer.body["code"]), (422, &json!("store_not_embedded")), "{}", answer.body);
        assert_eq!(answer.body["errors"][0]["pointer"], pointer, "{}", answer.body);
    };
    let one = |store: &str| json!({"store": store, "key": "a"});
    let range = |store: &str| json!({"store": store, "start": "a"});
    for (body, pointer) in [
        (json!({"read": [one("kv"), one("log"), one("log")]}), "/read/1/store"),
        (json!({"read": [one("kv")], "ranges": [range("kv"), range("log")]}), "/ranges/1/store"),
    ] {
        refused(node.post("/v1/txns", &body), pointer);
    }
    for path in ["rows/a", "rows?limit=1", "rows/a?consistency=fresh"] {
        refused(node.get(&format!("/v1/stores/log/{path}")), "{store}");
    }
    for body in [json!({"read": [{"key": "a"}]}), json!({"ranges": [{"start": "a"}], "consistency": "fresh"})] {
        refused(node.post("/v1/stores/log/rows/read", &body), "{store}");
    }
}

/// Otherwise a range that can be read alone could not be read beside another one.
#[test]
fn ranges_of_one_request_are_cut_where_they_do_not_fit() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let large = "x".repeat(1_000_000);
    for n in 0..9 {
        let write = json!({"writes": [{"op": "put", "store": "kv", "key": format!("large/{n}"), "value": large}]});
        assert_eq!(node.commit(&write).body["status"], "committed");
    }
    node.put_row("small", 1);
    // The rows and `more` of each range.
    let check = |body: Value, expected: Value| {
        let answer = node.post("/v1/stores/kv/rows/read", &body);
        assert_eq!(answer.status, 200, "{}", answer.body["detail"]);
        let ranges = answer.body["ranges"].as_array().expect("ranges");
        let found = ranges.iter().map(|range| json!([range["rows"].as_array().unwrap().len(), range["more"]]));
        assert_eq!(json!(found.collect::<Vec<_>>()), expected);
    };
    let [all, none, small] =
        [json!({"start": "large/", "end": "large0"}), json!({"start": "z"}), json!({"start": "s"})];
    check(json!({"ranges": [all]}), json!([[8, true]]));
    check(json!({"ranges": [all, none]}), json!([[8, true], [0, false]]));
    check(json!({"ranges": [small, all]}), json!([[1, false], [8, true]]));
    check(json!({"ranges": [all, all]}), json!([[4, true], [4, true]]));
    check(json!({"read": [{"key": "large/0"}], "ranges": [all, small]}), json!([[7, true], [1, false]]));
    check(json!({"ranges": [{"start": "large/8", "end": "large0"}, all]}), json!([[1, false], [7, true]]));
}

/// For example after a backup was restored: nobody will ever decide the epoch that the token names.
/// Nothing is acknowledged elsewhere, so nothing has to be waited for.
#[test]
fn a_fresh_read_of_a_single_node_needs_no_wait() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        // The sequencer is busy with large transactions.
        scope.spawn(|| {
            let reads: Vec<Value> = (0..2_000).map(|n| json!({"store": "kv", "key": format!("row/{n}")})).collect();
            while !done.load(Ordering::Relaxed) {
                let busy = node.commit(&json!({"reads": reads, "writes": [put("kv", "busy", 1)]}));
                assert_eq!(busy.status, 200, "{}", busy.body);
            }
        });
        for n in 0..200 {
            let verdict = node.commit(&json!({"writes": [put("kv", "mine", n)]})).body;
            let row = node.get("/v1/stores/kv/rows/mine?consistency=fresh&wait_ms=0");
            assert_eq!((row.status, &row.body["value"]), (200, &json!(n)), "{}", row.body);
            let begun = node.post("/v1/txns", &json!({"stores": ["kv"], "consistency": "fresh", "wait_ms": 0}));
            assert_eq!(begun.status, 201, "{}", begun.body);
            assert!(number(&begun.body["snapshots"]["kv"]) >= number(&verdict["epoch"]), "{}", begun.body);
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_session_that_is_ahead_of_the_only_node_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let epoch = number(&node.commit(&json!({"writes": [put("kv", "a", 1)]})).body["epoch"]);
    let begin = |epoch: u64| {
        node.post("/v1/txns", &json!({"stores": ["kv"], "session": format!("v1-{epoch}"), "wait_ms": 60_000}))
    };
    let known = begin(epoch);
    assert_eq!(known.status, 201, "{}", known.body);
    let ahead = begin(epoch + 1);
    assert_eq!((ahead.status, &ahead.body["code"]), (422, &json!("session_unknown")), "{}", ahead.body);
    let ahead = node.get(&format!("/v1/stores/kv/rows/a?session=v1-{}", epoch + 1_000_000));
    assert_eq!((ahead.status, &ahead.body["code"]), (422, &json!("session_unknown")), "{}", ahead.body);
    assert_eq!(ahead.body["errors"][0]["pointer"], "?session", "{}", ahead.body);
    // What a read has seen is a session as well.
    for _ in 0..20 {
        let read = node.post("/v1/stores/kv/rows/read", &json!({"read": [{"key": "a"}]})).body;
        let session = read["session"].as_str().expect("a token");
        let next = node.get(&format!("/v1/stores/kv/rows/a?session={session}"));
        assert_eq!(next.status, 200, "{}", next.body);
        assert!(number(&next.body["applied"]) >= number(&read["applied"]), "{read} {}", next.body);
        let begun = node.post("/v1/txns", &json!({"stores": ["kv"], "session": next.body["session"]}));
        assert_eq!(begun.status, 201, "{}", begun.body);
        node.put_row("b", 1);
    }
}

/// At the level `snapshot`, what is read in a store that keeps versions counts as read at the snapshot.
#[test]
fn an_embedded_store_is_not_declared_to_keep_versions() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let refused = node.put("/v1/stores/rows", &json!({"adaptor": "kv", "multi_version": true}));
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("adaptor_invalid")), "{}", refused.body);
    assert!(refused.body.to_string().contains("newest version of each row"), "{}", refused.body);
    assert!(refused.body.to_string().contains("/multi_version"), "{}", refused.body);
    assert_eq!(
        node.put("/v1/stores/own", &json!({"multi_version": true})).status,
        201,
        "the engine's own may keep them"
    );
}

/// A store that keeps versions itself is read at its snapshot, so a transaction with it has one snapshot for all stores:
/// rows that Begin returns must not be newer.
#[test]
fn rows_of_begin_are_not_newer_than_its_snapshots() {
    let Some(redis) = Redis::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let versioned =
        json!({"adaptor": "redis", "adaptor_config": {"endpoint": redis.endpoint()}, "multi_version": true});
    assert_eq!(node.put("/v1/stores/versioned", &versioned).status, 201);
    let write = |n: u64| json!({"writes": [put("kv", "a", n), put("versioned", "a", n)]});
    assert_eq!(node.commit(&write(1)).body["status"], "committed");
    let begin = |wait_ms: u64| {
        let body = json!({"stores": ["versioned"], "read": [{"store": "kv", "key": "a"}], "wait_ms": wait_ms});
        node.post("/v1/txns", &body)
    };
    let of_one_cut = |begun: &Value| {
        let snapshots = &begun["snapshots"];
        assert_eq!(snapshots["kv"], snapshots["versioned"], "{begun}");
        let version = number(&begun["rows"][0]["version"]);
        assert!(version >> 20 <= number(&snapshots["kv"]), "a row of a later epoch: {begun}");
    };
    let begun = begin(60_000);
    assert_eq!((begun.status, &begun.body["rows"][0]["value"]), (201, &json!(1)), "{}", begun.body);
    of_one_cut(&begun.body);
    redis.pause(true);
    assert_eq!(node.commit(&write(2)).body["status"], "committed");
    for wait_ms in [0, 50] {
        let lagging = begin(wait_ms);
        assert_eq!((lagging.status, &lagging.body["code"]), (503, &json!("store_lagging")), "{}", lagging.body);
    }
    redis.pause(false);
    let begun = begin(60_000);
    assert_eq!((begun.status, &begun.body["rows"][0]["value"]), (201, &json!(2)), "{}", begun.body);
    of_one_cut(&begun.body);
}
