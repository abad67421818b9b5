//! The main functions of a real process: verdicts, retries, the log, the embedded store, restarts.

mod support;

use std::process::Command;

use serde_json::{Value, json};
use support::{Node, eventually, new_id};

fn row(node: &Node, key: &str) -> Option<Value> {
    let response = node.get(&format!("/v1/stores/kv/rows/{key}"));
    (response.status == 200).then_some(response.body)
}

#[test]
fn a_commit_reaches_the_log_and_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let verdict = node.put_row("a", 1);
    assert_eq!(verdict["status"], "committed");
    assert_eq!(verdict["lsn"]["kv"], "1");
    let stored = eventually("row a in the embedded store", || row(&node, "a"));
    assert_eq!(stored["value"], 1);
    assert_eq!(stored["version"], verdict["version"]);
    let log = node.log_of("kv");
    assert_eq!(log.len(), 1);
    assert_eq!(log[0]["writes"][0]["key"], "a");
    assert_eq!(log[0]["version"], verdict["version"]);
}

#[test]
fn a_stale_read_names_the_winner() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let first = node.put_row("x", 1)["version"].clone();
    let second = node.put_row("x", 2)["version"].clone();
    let body = json!({"isolation": "serializable",
        "reads": [{"store": "kv", "key": "x", "version": first}],
        "writes": [{"op": "put", "store": "kv", "key": "y", "value": 1}]});
    let verdict = node.commit(&body).body;
    assert_eq!(verdict["status"], "aborted", "{verdict}");
    assert_eq!(verdict["reason"], "read_conflict");
    let conflict = &verdict["conflicts"][0];
    assert_eq!(
        (&conflict["key"], &conflict["read_version"], &conflict["current_version"]),
        (&json!("x"), &first, &second)
    );
    assert!(row(&node, "y").is_none());
}

#[test]
fn a_batch_returns_results_of_reads_and_writes_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let old = node.put_row("x", 1)["version"].clone();
    let new = node.put_row("x", 2)["version"].clone();
    let txn = |body: Value| {
        let mut txn = json!({"txn_id": support::new_id(), "isolation": "serializable"});
        txn.as_object_mut().unwrap().extend(body.as_object().unwrap().clone());
        txn
    };
    let read = |version: &Value| txn(json!({"reads": [{"store": "kv", "key": "x", "version": version}]}));
    let write = |key: &str| txn(json!({"writes": [{"op": "put", "store": "kv", "key": key, "value": 1}]}));
    let txns = [read(&old), write("a"), read(&new), read(&old), write("b"), read(&new)];
    let answer = node.post("/v1/txns/batch-commit", &json!({"txns": txns})).body;
    let results = answer["results"].as_array().unwrap();
    let said: Vec<_> = results.iter().map(|result| (&result["txn_id"], result["status"].as_str().unwrap())).collect();
    let expected = ["aborted", "committed", "committed", "aborted", "committed", "committed"];
    assert_eq!(said, txns.iter().map(|txn| &txn["txn_id"]).zip(expected).collect::<Vec<_>>(), "{answer}");
}

#[test]
fn a_retry_gets_the_same_verdict_and_another_body_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let path = format!("/v1/txns/{}/commit", new_id());
    let body = json!({"writes": [{"op": "insert", "store": "kv", "key": "once", "value": 1}]});
    let first = node.post(&path, &body);
    let again = node.post(&path, &body);
    assert_eq!(first.body["status"], "committed");
    assert_eq!((again.status, &again.body["version"]), (200, &first.body["version"]));
    let other = node.post(&path, &json!({"writes": [{"op": "insert", "store": "kv", "key": "twice", "value": 1}]}));
    assert_eq!(other.status, 422, "{}", other.body);
    assert_eq!(node.log_of("kv").len(), 1);
}

#[test]
fn a_restart_keeps_verdicts_versions_and_rows() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let id = new_id();
    let body = json!({"writes": [{"op": "insert", "store": "kv", "key": "k", "value": "v"}]});
    let before = node.post(&format!("/v1/txns/{id}/commit"), &body).body;
    let log = node.log_of("kv");
    assert!(node.stop().success());

    let node = Node::start(dir.path());
    assert_eq!(node.get(&format!("/v1/txns/{id}")).body["version"], before["version"]);
    let again = node.post(&format!("/v1/txns/{id}/commit"), &body).body;
    assert_eq!(again["version"], before["version"]);
    assert_eq!(node.log_of("kv"), log);
    let verdict = node.commit(&body).body;
    assert_eq!(verdict["reason"], "row_exists", "the version map came back: {verdict}");
    assert_eq!(row(&node, "k").expect("the row is there")["value"], "v");
}

#[test]
fn a_fenced_id_never_commits() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let id = new_id();
    let fenced = node.get(&format!("/v1/txns/{id}?fence=true")).body;
    assert_eq!((&fenced["status"], &fenced["reason"]), (&json!("aborted"), &json!("fenced")), "{fenced}");
    let body = json!({"writes": [{"op": "put", "store": "kv", "key": "k", "value": 1}]});
    let late = node.post(&format!("/v1/txns/{id}/commit"), &body);
    assert_ne!(late.body["status"], "committed", "{}", late.body);
    assert!(node.log_of("kv").is_empty());
}

#[test]
fn a_dry_run_of_a_known_id_answers_as_its_commit_would() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let body = |value: u64| json!({"writes": [{"op": "put", "store": "kv", "key": "k", "value": value}]});
    let (committed, aborted, fenced) = (new_id(), new_id(), new_id());
    assert_eq!(node.post(&format!("/v1/txns/{committed}/commit"), &body(1)).body["status"], "committed");
    assert_eq!(node.post(&format!("/v1/txns/{aborted}/abort"), &json!({})).body["reason"], "client_abort");
    assert_eq!(node.get(&format!("/v1/txns/{fenced}?fence=true")).body["reason"], "fenced");
    // An id of 2001: no transaction with this id is executed any more.
    let expired = "00e3b7f1-7800-7000-8000-000000000001".to_owned();
    let cases = [
        (&committed, body(1), 200, json!("committed")),
        (&committed, body(2), 422, json!("body_mismatch")),
        (&aborted, body(1), 200, json!("client_abort")),
        (&fenced, body(1), 200, json!("fenced")),
        (&expired, body(1), 422, json!("txn_id_expired")),
    ];
    for (id, body, status, expected) in cases {
        let dry = node.post(&format!("/v1/txns/{id}/validate"), &body);
        let commit = node.post(&format!("/v1/txns/{id}/commit"), &body);
        assert_eq!((dry.status, &dry.body), (commit.status, &commit.body), "{id}");
        assert_eq!(dry.status, status, "{}", dry.body);
        let said = ["code", "reason", "status"].into_iter().find_map(|name| dry.body.get(name));
        assert_eq!(said, Some(&expected), "{}", dry.body);
    }
    assert_eq!(node.get(&format!("/v1/txns/{expired}?fence=true")).body["status"], "unknown_expired");
    // An id of 2100: it was not executed either, but is not too old, and a fence would not last.
    let ahead = "03bb2cc3-d800-7000-8000-000000000001";
    assert_eq!(node.get(&format!("/v1/txns/{ahead}")).body["status"], "unknown");
    let refused = node.get(&format!("/v1/txns/{ahead}?fence=true"));
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("txn_id_expired")), "{}", refused.body);
    assert!(refused.body["detail"].as_str().unwrap().contains("after the service's"), "{}", refused.body);
    // Without writes, an id is not stored and makes no difference.
    let read_only = json!({"reads": [{"store": "kv", "key": "none"}]});
    for id in [&committed, &aborted, &fenced] {
        assert_eq!(node.post(&format!("/v1/txns/{id}/validate"), &read_only).body["status"], "would_commit");
    }
    assert_eq!(node.post(&format!("/v1/txns/{}/validate", new_id()), &body(1)).body["status"], "would_commit");
    assert_eq!(node.log_of("kv").len(), 1);
}

#[test]
fn an_id_that_waits_for_its_verdict_is_not_taken_for_one_with_another_body() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let id = new_id();
    let txn = |value: u64| json!({"txn_id": id, "writes": [{"op": "put", "store": "kv", "key": "k", "value": value}]});
    let batch = json!({"txns": [txn(1), txn(1), txn(2)]});
    let said = || {
        let reply = node.post("/v1/txns/batch-commit", &batch).body;
        let results = reply["results"].as_array().expect("a result for each").iter();
        results.map(|one| one["problem"].get("code").unwrap_or(&one["status"]).clone()).collect::<Vec<Value>>()
    };
    assert_eq!(said(), ["committed", "in_flight", "body_mismatch"]);
    // Once it is decided, each repetition has the same answer.
    assert_eq!(said(), ["committed", "committed", "body_mismatch"]);
    assert_eq!(node.log_of("kv").len(), 1);
    let metrics = node.get("/metrics").body.as_str().expect("text").to_owned();
    assert!(metrics.lines().any(|line| line == "tribunal_txns_replayed_total 2"), "{metrics}");
}

#[test]
fn lost_updates_do_not_happen_under_concurrency() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    node.put_row("counter", 0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let mut done = 0;
                while done < 25 {
                    let now = eventually("the counter", || row(&node, "counter"));
                    let next = now["value"].as_i64().unwrap() + 1;
                    let verdict = node
                        .commit(&json!({"reads": [{"store": "kv", "key": "counter", "version": now["version"]}],
                            "writes": [{"op": "put", "store": "kv", "key": "counter", "value": next}]}))
                        .body;
                    done += i32::from(verdict["status"] == "committed");
                }
            });
        }
    });
    let counter = eventually("200 increments", || row(&node, "counter").filter(|row| row["value"] == 200));
    assert_eq!(counter["value"], 200);
}

#[test]
fn a_data_directory_cannot_be_used_twice() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let refusal = Node::try_start(dir.path(), &[]).err().expect("a second node must not start");
    assert!(refusal.contains("in use") || refusal.contains("lock"), "{refusal}");
    node.put_row("still", 1);
}

#[test]
fn a_session_sees_its_own_writes() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let verdict = node.put_row("mine", 7);
    let begin = json!({"stores": ["kv"], "session": verdict["session"], "wait_ms": 10_000});
    let begun = node.post("/v1/txns", &begin);
    assert_eq!(begun.status, 201, "{}", begun.body);
    let number = |value: &Value| value.as_str().expect("a decimal string").parse::<u64>().expect("a number");
    assert!(number(&begun.body["snapshots"]["kv"]) >= number(&verdict["epoch"]), "{}", begun.body);
    assert_eq!(row(&node, "mine").expect("no waiting is needed any more")["value"], 7);
}

#[test]
fn an_applied_commit_is_readable_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    for n in 0..20 {
        let key = format!("k{n}");
        let body = json!({"ack": "applied", "writes": [{"op": "put", "store": "kv", "key": key, "value": n}]});
        let verdict = node.commit(&body).body;
        assert_eq!((&verdict["status"], &verdict["applied"]), (&json!("committed"), &json!(true)), "{verdict}");
        assert_eq!(row(&node, &key).expect("applied means readable")["value"], n);
    }
}

#[test]
fn a_change_of_configuration_ends_one_epoch_of_an_idle_node_and_nothing_else_does() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let number = |value: &Value| value.as_str().expect("a decimal string").parse::<u64>().expect("a number");
    let complete = |node: &Node| number(&node.get("/v1/stores/kv").body["applied"]);
    let before = complete(&node);
    assert_eq!(node.put("/v1/stores/one", &json!({})).status, 201);
    assert_eq!(node.put("/v1/stores/two", &json!({})).status, 201);
    eventually("both epochs", || (complete(&node) == before + 2).then_some(()));
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(complete(&node), before + 2, "an idle node seals nothing");
    node.kill();
    let node = Node::start(dir.path());
    assert_eq!(complete(&node), before + 2, "nothing was left to apply");
    assert_eq!(node.get("/v1/stores/two").status, 200);
    assert_eq!(number(&node.put_row("a", 1)["epoch"]), before + 3);
}

#[test]
fn imported_versions_are_known_and_overwrite_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    assert_eq!(node.put("/v1/stores/rows", &json!({})).status, 201);
    let put = json!({"writes": [{"op": "put", "store": "rows", "key": "known", "value": 1}]});
    let known = node.commit(&put).body["version"].clone();
    let lines = [json!({"key": "old", "version": "5"}), json!({"key": "known", "version": "5"})];
    let imported = node.post_lines("/v1/stores/rows/versions", &lines);
    assert_eq!(imported.status, 200, "{}", imported.body);
    let insert = json!({"writes": [{"op": "insert", "store": "rows", "key": "old", "value": 1}]});
    assert_eq!(node.commit(&insert).body["reason"], "row_exists");
    let read = |key: &str, version: &Value| {
        json!({"reads": [{"store": "rows", "key": key, "version": version}],
            "writes": [{"op": "put", "store": "rows", "key": "seen", "value": key}]})
    };
    assert_eq!(node.commit(&read("old", &json!("5"))).body["status"], "committed");
    assert_eq!(node.commit(&read("known", &known)).body["status"], "committed", "the import left it alone");
    let future = format!("{{\"key\":\"a\",\"version\":\"5\"}}\n\n{{\"key\":\"b\",\"version\":\"{}\"}}\n", i64::MAX);
    let refused = node.post_text("/v1/stores/rows/versions", &future);
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("version_from_the_future")), "{}", refused.body);
    assert_eq!(refused.body["errors"][0]["pointer"], "/2/version", "the blank line counts as a line");
    // The rows of an embedded store are those of its log: a row that only has a version could never be read.
    let embedded = node.post_lines("/v1/stores/kv/versions", &lines);
    assert_eq!((embedded.status, &embedded.body["code"]), (422, &json!("store_embedded")), "{}", embedded.body);
    let declare = || {
        let declared = node.put("/v1/stores/rows", &json!({"adaptor": "kv"}));
        (declared.status, declared.body["code"].clone(), declared.body["detail"].to_string())
    };
    let (status, code, detail) = declare();
    assert_eq!((status, &code), (422, &json!("store_has_imported_rows")), "{detail}");
    assert!(detail.contains("1 row(s) of which only a version"), "{detail}");
    // Once the log contains every row, nothing is missing.
    let put = |key: &str| json!({"writes": [{"op": "put", "store": "rows", "key": key, "value": key}]});
    assert_eq!(node.commit(&put("old")).body["status"], "committed");
    let delete = json!({"writes": [{"op": "delete", "store": "rows", "key": "known"}]});
    assert_eq!(node.commit(&delete).body["status"], "committed");
    assert_eq!(declare().0, 200);
    let rows = eventually("the rows of the log", || {
        let page = node.get("/v1/stores/rows/rows?start=&limit=10");
        (page.status == 200).then_some(page.body["rows"].clone())
    });
    let keys: Vec<_> = rows.as_array().expect("rows").iter().map(|row| row["key"].clone()).collect();
    assert_eq!(keys, [json!("old"), json!("seen")]);
}

#[test]
fn a_redeclared_store_starts_from_the_watermark_of_its_storage() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    assert_eq!(node.put("/v1/stores/other", &json!({})).status, 201);
    let write = json!({"writes": [{"op": "put", "store": "other", "key": "a", "value": 1}]});
    assert_eq!(node.commit(&write).body["status"], "committed");
    // From log-only to an embedded store: everything written so far is pushed to it.
    assert_eq!(node.put("/v1/stores/other", &json!({"adaptor": "kv"})).status, 200);
    let stored = eventually("row a in its new storage", || {
        let answer = node.get("/v1/stores/other/rows/a");
        (answer.status == 200).then_some(answer.body)
    });
    assert_eq!(stored["value"], 1);
    let wrong = node.put("/v1/stores/other", &json!({"adaptor": "papyrus"}));
    assert_eq!(wrong.status, 422, "{}", wrong.body);
}

#[test]
fn a_counter_needs_no_insert() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let add = |n: u64| json!({"writes": [{"op": "add", "store": "kv", "key": "hits", "value": n, "or": 100}]});
    let counts: u64 = 1 + std::thread::scope(|scope| {
        let commit = |n| node.commit(&add(n)).body;
        let adders: Vec<_> = (1..=8).map(|n| scope.spawn(move || (n, commit(n)))).collect();
        let verdicts = adders.into_iter().map(|adder| adder.join().unwrap());
        verdicts
            .map(|(n, verdict)| (verdict["status"] == "committed").then_some(n).expect("adds do not conflict"))
            .sum::<u64>()
    });
    assert_eq!(node.commit(&json!({"writes": [{"op": "add", "store": "kv", "key": "hits", "value": 1}]})).status, 200);
    let stored = eventually("the counter", || row(&node, "hits").filter(|row| row["value"] == 100 + counts));
    let kinds = |node: &Node| {
        let writes = node.log_of("kv").into_iter().map(|record| record["writes"][0].clone());
        writes.map(|write| (write["op"].clone(), write["value"].as_u64().expect("a number"))).collect::<Vec<_>>()
    };
    let log = kinds(&node);
    let created = log.iter().filter(|(op, _)| op == "insert").count();
    assert_eq!((created, &log[0].0, log.len()), (1, &json!("insert"), 9), "{log:?}");
    assert!(log[0].1 > 100 && log[1..].iter().all(|(op, delta)| op == "add" && *delta < 100), "{log:?}");
    let missing = json!({"writes": [{"op": "add", "store": "kv", "key": "none", "value": 1}]});
    assert_eq!(node.commit(&missing).body["reason"], "row_missing");
    node.kill();
    let node = Node::start(dir.path());
    assert_eq!(
        (row(&node, "hits").map(|row| row["value"].clone()), kinds(&node)),
        (Some(stored["value"].clone()), log)
    );
}

#[test]
fn a_repeated_id_that_had_to_be_forgotten_may_have_been_executed() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("tribunal.toml");
    let data = dir.path().join("data");
    let text = format!("listen = \"127.0.0.1:0\"\ndata = {data:?}\n[resolver]\nstatus_bytes_max = 1048576\n");
    std::fs::write(&config, text).unwrap();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    serve.args(["serve", "--config"]).arg(&config);
    let node = Node::spawn(serve).expect("it starts");
    assert_eq!(node.put("/v1/stores/kv", &json!({"adaptor": "kv"})).status, 201);
    let (id, body) = (new_id(), json!({"writes": [{"op": "put", "store": "kv", "key": "first", "value": 1}]}));
    let commit = || node.post(&format!("/v1/txns/{id}/commit"), &body);
    assert_eq!(commit().body["status"], "committed");
    let put = |n: u64| json!({"txn_id": new_id(), "writes": [{"op": "put", "store": "kv", "key": n.to_string(), "value": n}]});
    // 14,563 ids fit, and ids are forgotten by the second.
    eventually("the id is forgotten", || {
        node.post("/v1/txns/batch-commit", &json!({"txns": (0..4_000).map(put).collect::<Vec<_>>()}));
        let repeated = commit();
        (repeated.status == 422).then(|| {
            assert_eq!(
                (repeated.status, &repeated.body["code"]),
                (422, &json!("txn_id_forgotten")),
                "{}",
                repeated.body
            );
            let detail = repeated.body["detail"].as_str().unwrap();
            assert!(
                detail.contains("may have been executed") && detail.contains("resolver.status_bytes_max"),
                "{detail}"
            );
        })
    });
    eventually("the warning", || {
        node.said().contains("more transaction ids than `resolver.status_bytes_max` permits").then_some(())
    });
    eventually("a commit with a new id", || {
        (node.post(&format!("/v1/txns/{}/commit", new_id()), &body).status == 200).then_some(())
    });
}
