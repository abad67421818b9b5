//! A cluster of real processes as seen by operators and engine authors: the content of reads, errors, metrics and
//! statuses.

mod support;

use std::process::Command;

use serde_json::{Value, json};
use support::cluster::Cluster;
use support::history::{taken_in_alone, until_decided};
use support::keyed;
use support::{Node, eventually, new_id, taken};

/// Keys that are revoked while a node is down.
const REVOKED_WHILE_DOWN: usize = 4;

/// Puts a row through one node, with retries if necessary, and returns the verdict.
fn put(node: &Node, store: &str, key: &str, value: i64) -> Value {
    let (id, body) = (new_id(), json!({"writes": [{"op": "put", "store": store, "key": key, "value": value}]}));
    eventually("a verdict", || {
        let answer = node.try_post(&format!("/v1/txns/{id}/commit"), &body).ok()?;
        (answer.status == 200).then_some(answer.body)
    })
}

#[test]
fn a_read_includes_what_its_session_covers_and_a_fresh_one_what_any_node_acknowledged() {
    let cluster = Cluster::start(3);
    let value = |answer: &Value| answer["rows"][0]["value"].clone();
    for n in 0..60 {
        let (writer, reader) = (cluster.node(1 + n % 3), cluster.node(1 + (n + 1) % 3));
        let verdict = put(writer, "kv", "row", i64::from(n));
        assert_eq!(verdict["status"], "committed", "{verdict}");
        // A node that has briefly lost its majority returns an error, and the request is retried.
        let read = |field: &str, value: &Value| {
            eventually("the row", || {
                let body = json!({"read": [{"key": "row"}], field: value});
                let answer = reader.post("/v1/stores/kv/rows/read", &body);
                (answer.status == 200).then_some(answer.body)
            })
        };
        assert_eq!(value(&read("session", &verdict["session"])), n);
        put(writer, "kv", "row", i64::from(n) + 1000);
        assert_eq!(value(&read("consistency", &json!("fresh"))), n + 1000);
    }
}

#[test]
fn what_one_node_has_created_every_node_knows_at_once() {
    let cluster = Cluster::start(3);
    for n in 0..30_u16 {
        let (creator, user) = (cluster.node(1 + n % 3), cluster.node(1 + (n + 1) % 3));
        let store = format!("store-{n}");
        // Its log may just be returning to the node.
        eventually("the store to be declared", || {
            let declared = creator.put(&format!("/v1/stores/{store}"), &json!({"adaptor": "kv"}));
            (declared.status < 300).then_some(())
        });
        let write = json!({"writes": [{"op": "put", "store": store, "key": "a", "value": n}]});
        let answers = [
            user.get(&format!("/v1/stores/{store}")),
            user.post("/v1/txns", &json!({"stores": [store]})),
            user.commit(&write),
            user.post_lines("/v1/txns/batch-commit", &[json!({"txn_id": new_id(), "writes": write["writes"]})]),
        ];
        for answer in answers {
            // 503 if its own leader changes at this moment, and never a 404.
            assert!(matches!(answer.status, 200 | 201 | 503), "{} {}", answer.status, answer.body);
            assert!(!answer.body.to_string().contains("unknown_store"), "{}", answer.body);
        }
    }
    let unknown = taken(|| cluster.node(2).get("/v1/stores/nobody"));
    assert_eq!((unknown.status, &unknown.body["code"]), (404, &json!("unknown_store")), "{}", unknown.body);
    assert_ne!(unknown.body["retryable"], true, "{}", unknown.body);
}

/// Turns access control on, on all nodes of a cluster that has not started.
fn require_keys(cluster: &Cluster) {
    for id in cluster.ids() {
        let file = cluster.node_dir(id).join("tribunal.toml");
        let config = std::fs::read_to_string(&file).unwrap();
        std::fs::write(&file, config.replacen("[cluster]", "[auth]\nrequired = true\n[cluster]", 1)).unwrap();
    }
}

#[test]
fn a_key_of_one_node_opens_every_other_at_once() {
    let mut cluster = Cluster::prepare(3);
    require_keys(&cluster);
    cluster.start_all();
    let operator = eventually("the key of the first operator", || {
        let token = std::fs::read_to_string(cluster.node_dir(1).join("data/operator.key")).ok()?;
        let answer = keyed::call(cluster.node(1), token.trim(), "GET", "/v1/stores", None);
        (answer.status == 200).then(|| token.trim().to_owned())
    });
    let mut keys = Vec::new();
    for n in 0..20_u16 {
        let (creator, user) = (cluster.node(1 + n % 3), cluster.node(1 + (n + 1) % 3));
        let new = json!({"name": format!("engine-{n}"), "namespace": format!("tenant-{n}"), "roles": ["engine"]});
        let created = eventually("the key to be created", || {
            let created = keyed::call(creator, &operator, "POST", "/v1/admin/keys", Some(&new));
            (created.status == 201).then_some(created.body)
        });
        let token = created["key"].as_str().expect("a token");
        let answer = taken(|| keyed::call(user, token, "GET", "/v1/stores", None));
        assert_eq!(answer.status, 200, "{}", answer.body);
        keys.push((created["id"].as_str().expect("an id").to_owned(), token.to_owned()));
    }
    let unknown = taken(|| keyed::call(cluster.node(3), "trb_nobody_knows", "GET", "/v1/stores", None));
    assert_eq!(unknown.status, 401, "{}", unknown.body);

    // A node that was down when a key was revoked does not admit it once it runs again.
    for (id, token) in &keys[..REVOKED_WHILE_DOWN] {
        cluster.take(3).kill();
        let path = format!("/v1/admin/keys/{id}");
        let revoked = taken(|| keyed::call(cluster.node(1), &operator, "DELETE", &path, None));
        assert_eq!(revoked.status, 204, "{}", revoked.body);
        cluster.start_node(3);
        let answer = taken(|| keyed::call(cluster.node(3), token, "GET", "/v1/stores", None));
        assert_eq!(answer.status, 401, "{}", answer.body);
    }

    // A node that is alone tells only operators which others it misses.
    for id in [2, 3] {
        cluster.take(id).kill();
    }
    let alone = cluster.node(1);
    eventually("the node to miss the others", || {
        let ready = keyed::call(alone, &operator, "GET", "/readyz", None);
        ready.body["reasons"].to_string().contains("not connected: 2, 3").then_some(())
    });
    let unknown = eventually("the node to give up", || {
        let unknown = keyed::call(alone, "trb_nobody_knows", "GET", "/v1/stores", None);
        (unknown.status == 503).then_some(unknown)
    });
    for told in [alone.get("/readyz"), unknown] {
        assert_eq!(told.status, 503, "{}", told.body);
        let text = told.body.to_string();
        assert!(!text.contains("connected") && !text.contains("127.0.0.1"), "{text}");
    }

    // After a restart, it does not ask them again for each request of an operator who looks for the fault.
    cluster.take(1).kill();
    cluster.start_node(1);
    let alone = cluster.node(1);
    let ask = |path: &str| keyed::call(alone, &operator, "GET", path, None);
    let tries = || {
        let text = ask("/metrics").body;
        let mut lines = text.as_str().expect("text").lines();
        let line = lines.find(|line| line.starts_with("tribunal_fresh_read_failures_total ")).expect("it is counted");
        line.to_owned()
    };
    assert_eq!(ask("/v1/cluster").status, 200);
    let before = tries();
    assert!(!before.ends_with(" 0"), "it has tried: {before}");
    for _ in 0..3 {
        assert_eq!(ask("/v1/cluster").status, 200);
    }
    assert_eq!(tries(), before);
}

#[test]
fn the_lowest_remaining_member_writes_a_new_operator_key() {
    let mut cluster = Cluster::prepare(3);
    require_keys(&cluster);
    cluster.start_all();
    let file = cluster.node_dir(1).join("data/operator.key");
    let operator = eventually("the key of the first operator", || {
        let token = std::fs::read_to_string(&file).ok()?;
        let answer = keyed::call(cluster.node(2), token.trim(), "GET", "/v1/stores", None);
        (answer.status == 200).then(|| token.trim().to_owned())
    });
    let urls = [2, 3].map(|id| cluster.node(id).url.clone()).join(",");
    let run = |arguments: &[&str]| {
        let tribunal = Command::new(env!("CARGO_BIN_EXE_tribunal"))
            .args(arguments)
            .args(["--url", &urls, "--api-key-file"])
            .arg(&file)
            .output()
            .expect("it runs");
        assert!(tribunal.status.success(), "{}", String::from_utf8_lossy(&tribunal.stderr));
        String::from_utf8(tribunal.stdout).expect("text")
    };
    // Each node knows its own uses only; the command asks all.
    let new = json!({"name": "engine", "roles": ["engine"]});
    let engine = taken(|| keyed::call(cluster.node(2), &operator, "POST", "/v1/admin/keys", Some(&new))).body;
    let token = engine["key"].as_str().unwrap_or_else(|| panic!("no key: {engine}"));
    assert_eq!(taken(|| keyed::call(cluster.node(3), token, "GET", "/v1/stores", None)).status, 200);
    eventually("its use on node 3", || {
        let listed = run(&["key", "ls", "--json"]);
        let mut keys = listed.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
        keys.find(|key| key["name"] == "engine")?["last_used_ms"].is_string().then_some(())
    });
    run(&["cluster", "remove", "1"]);
    cluster.take(1).kill();
    let keys = taken(|| keyed::call(cluster.node(2), &operator, "GET", "/v1/admin/keys", None)).body;
    let of_operator = keys["keys"].as_array().expect("keys").iter().find(|key| key["name"] == "first-operator");
    let path =
        format!("/v1/admin/keys/{}?force=true", of_operator.expect("the operator's")["id"].as_str().expect("text"));
    assert_eq!(taken(|| keyed::call(cluster.node(2), &operator, "DELETE", &path, None)).status, 204);
    for id in [3, 2] {
        cluster.take(id).kill();
        cluster.start_node(id);
    }
    let renewed = eventually("the new key", || {
        let token = std::fs::read_to_string(cluster.node_dir(2).join("data/operator.key")).ok()?;
        (keyed::call(cluster.node(3), token.trim(), "GET", "/v1/stores", None).status == 200).then_some(token)
    });
    assert_ne!(renewed.trim(), operator);
    assert!(!cluster.node_dir(3).join("data/operator.key").exists(), "one node writes it");
}

#[test]
fn a_session_that_no_node_has_given_is_refused_at_once() {
    let cluster = Cluster::start(3);
    let verdict = put(cluster.node(1), "kv", "a", 1);
    let epoch: u64 = verdict["epoch"].as_str().expect("an epoch").parse().expect("a number");
    for path in ["/v1/txns", "/v1/stores/kv/rows/read"] {
        for made_up in [epoch + 1_000_000, 1 << 40] {
            let read = json!([{"store": "kv", "key": "a"}]);
            let consistency = if made_up == 1 << 40 { "fresh" } else { "session" };
            let session = format!("v1-{made_up}");
            let body = json!({"session": session, "consistency": consistency, "read": read, "wait_ms": 20_000});
            let refused = eventually("an answer", || {
                let answer = cluster.node(2).post(path, &body);
                (answer.status != 503).then_some(answer)
            });
            assert_eq!((refused.status, &refused.body["code"]), (422, &json!("session_unknown")), "{}", refused.body);
        }
    }
}

/// Returns the value of a metric.
fn figure(node: &Node, line: &str) -> f64 {
    let text = support::get(&format!("{}/metrics", node.url)).body;
    let text = text.as_str().expect("text").to_owned();
    let found = text.lines().find_map(|known| known.strip_prefix(line)?.strip_prefix(' ')?.parse::<f64>().ok());
    found.unwrap_or_else(|| panic!("no {line} in {text}"))
}

/// Checks the metrics of node 1 while all three nodes are well.
fn check_figures_of_member_1(one: &Node) {
    for (line, at_least) in [
        ("tribunal_ready", 1.0),
        // The tests' certificates are valid for years.
        ("tribunal_certificate_expires_in_seconds{certificate=\"peers\"}", 1e6),
        ("tribunal_certificate_expires_in_seconds{certificate=\"authority\"}", 1e6),
        ("tribunal_cluster_node", 1.0),
        ("tribunal_cluster_takes_commits", 1.0),
        ("tribunal_cluster_logs_led", 1.0),
        ("tribunal_cluster_control_index", 1.0),
        ("tribunal_peer_connected{peer=\"2\"}", 1.0),
        ("tribunal_peer_sent_bytes_total{peer=\"2\",lane=\"bulk\"}", 1.0),
        ("tribunal_peer_received_frames_total{peer=\"3\",lane=\"heartbeat\"}", 1.0),
        ("tribunal_peer_refused_frames_total{peer=\"2\"}", 0.0),
        ("tribunal_peer_lag_entries{peer=\"3\"}", 0.0),
        // One machine, one clock.
        ("tribunal_peer_clock_offset_seconds{peer=\"2\"}", -5.0),
        ("tribunal_peer_clock_offset_seconds{peer=\"3\"}", -5.0),
        ("tribunal_cluster_covered_epochs{log_of=\"2\"}", 0.0),
        ("tribunal_fresh_read_failures_total", 0.0),
    ] {
        eventually(line, || (figure(one, line) >= at_least).then_some(()));
    }
}

#[test]
fn obstacles_metrics_and_the_status_tell_who_is_missing() {
    let mut cluster = Cluster::start(3);
    put(cluster.node(1), "kv", "a", 1);
    cluster.settled();
    eventually("each node to lead its own log", || {
        let leads = cluster.running().all(|node| figure(node, "tribunal_cluster_leads_own_log") == 1.0);
        leads.then_some(())
    });
    let one = cluster.node(1);
    check_figures_of_member_1(one);
    assert_eq!(one.get("/v1/stats").body["node"], 1);
    let urls = |cluster: &Cluster| cluster.running().map(|node| node.url.clone()).collect::<Vec<_>>().join(",");
    let (all, first) = (urls(&cluster), one.url.clone());
    let report = eventually("all nodes to be well", || {
        let (code, report) = status(&all, &["--json"]);
        (code == Some(0)).then_some(report)
    });
    let report: Value = serde_json::from_str(&report).expect("JSON");
    assert_eq!((&report["digests"], &report["cluster"]), (&json!("equal"), &json!("test")), "{report}");
    assert_eq!(report["nodes"].as_array().map(Vec::len), Some(3));
    let (code, text) = status(&first, &[]);
    assert!(code == Some(2) && text.contains("not asked: node 2, 3; list the URLs of all nodes"), "{text}");

    // A hanging node costs no more than the timeout.
    cluster.node(3).signal("STOP");
    let (code, text) = status(&all, &["--timeout-ms", "300"]);
    let hangs = text.contains("no answer within 300 ms") || text.contains("does not answer");
    assert!(code == Some(2) && hangs, "{text}");
    cluster.node(3).signal("CONT");
    cluster.take(3).kill();
    let second = cluster.take(2);
    second.signal("KILL");
    let log = second.ended().1;
    assert!(!log.is_empty() && log.lines().all(|line| line.starts_with("node 2 ")), "{log}");
    let left = cluster.node(1);
    eventually("the node to notice", || (left.get("/readyz").status == 503).then_some(()));
    eventually("the metrics to say so", || (figure(left, "tribunal_ready") == 0.0).then_some(()));
    eventually("the connections to be noticed", || {
        let connected = |peer: u16| figure(left, &format!("tribunal_peer_connected{{peer=\"{peer}\"}}")) != 0.0;
        (!connected(2) && !connected(3)).then_some(())
    });
    let refused = left.commit(&json!({"writes": [{"op": "put", "store": "kv", "key": "b", "value": 1}]}));
    let detail = refused.body["detail"].as_str().expect("a detail");
    assert!(detail.contains("only 1 of 3, itself included; not connected: 2, 3"), "{detail}");
    // It cannot know whether another node has created it.
    let unknown = left.get("/v1/stores/nobody");
    assert_eq!((unknown.status, &unknown.body["retryable"]), (503, &json!(true)), "{}", unknown.body);
    assert!(figure(left, "tribunal_fresh_read_failures_total") >= 1.0);
    let (code, text) = status(&all, &[]);
    assert!(code == Some(2) && text.contains("does not answer") && text.contains("no majority"), "{text}");
    let (code, text) = status("http://127.0.0.1:1", &[]);
    assert!(code == Some(1) && text.contains("does not answer"), "{text}");
}

#[test]
fn a_status_includes_what_any_node_has_acknowledged() {
    let cluster = Cluster::start(3);
    for n in 0..60_u16 {
        let [at, other] = [n % 3, (n + 1) % 3].map(|node| cluster.node(1 + node));
        let (id, key) = (new_id(), format!("status/{n}"));
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": key, "value": n}]});
        assert_eq!(until_decided(&[at], &id, &body)["status"], "committed");
        // A node that has briefly lost its majority returns an error, and the request is retried.
        let known = eventually("a status", || {
            let known = other.get(&format!("/v1/txns/{id}"));
            (known.status != 503).then_some(known)
        });
        assert_eq!((known.status, &known.body["status"]), (200, &json!("committed")), "{}", known.body);
    }

    let one = cluster.node(1);
    let others = [2, 3].map(|id| cluster.node(id));
    let (id, body) = (new_id(), json!({"writes": [{"op": "put", "store": "kv", "key": "held", "value": 1}]}));
    let path = format!("/v1/txns/{id}");
    cluster.ready();
    std::thread::scope(|scope| {
        let first = taken_in_alone(scope, one, &others, &id, &body);
        eventually("the node to miss the others", || (one.get("/readyz").status == 503).then_some(()));
        // It accepts nothing new, but it has this one.
        let again = one.post(&format!("{path}/commit"), &body);
        assert_eq!((again.status, &again.body["code"]), (409, &json!("in_flight")), "{}", again.body);
        let unknown = one.get(&format!("/v1/txns/{}", new_id()));
        assert_eq!((unknown.status, &unknown.body["retryable"]), (503, &json!(true)), "{}", unknown.body);
        others.iter().for_each(|node| node.signal("CONT"));
        let decided = first.join().expect("no panic").expect("the node answers");
        assert!(matches!(decided.status, 200 | 503 | 504), "{}", decided.body);
    });
    assert_eq!(until_decided(&[one], &id, &body)["status"], "committed");
}

#[test]
fn a_member_that_was_restored_from_an_old_copy_stops_for_good_and_is_replaced() {
    let mut cluster = Cluster::start(3);
    let urls = |cluster: &Cluster| cluster.running().map(|node| node.url.clone()).collect::<Vec<_>>().join(",");
    (0..20).for_each(|n| drop(put(cluster.node(1 + n % 3), "kv", "row", i64::from(n))));
    cluster.settled();
    let data = cluster.node_dir(3).join("data");
    let copy = cluster.node_dir(3).join("copy");
    assert!(cluster.take(3).stop().success());
    let copied = Command::new("cp").arg("-a").args([&data, &copy]).status().expect("cp runs");
    assert!(copied.success());
    cluster.start_node(3);
    cluster.ready();
    // The node acknowledges entries that the copy lacks.
    let ids: Vec<String> = (0..50).map(|_| new_id()).collect();
    for (n, id) in ids.iter().enumerate() {
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": format!("late/{n}"), "value": n}]});
        let decided = until_decided(&[cluster.node(1), cluster.node(2)], id, &body);
        assert_eq!(decided["status"], "committed", "{decided}");
    }
    cluster.settled();
    eventually("all nodes to be well", || (status(&urls(&cluster), &[]).0 == Some(0)).then_some(()));
    assert!(cluster.take(3).stop().success());
    std::fs::remove_dir_all(&data).expect("removed");
    std::fs::rename(&copy, &data).expect("renamed");

    // A leader notifies it, perhaps before it listens.
    let told = match Node::spawn(cluster.command(3)) {
        Ok(node) => {
            let (ended, told) = node.ended();
            assert_eq!(ended.code(), Some(1), "{told}");
            told
        }
        Err(told) => told,
    };
    assert!(told.contains("has lost entries") && told.contains("tribunal cluster remove"), "{told}");
    let again = Node::spawn(cluster.command(3)).err().expect("no process votes with this directory any more");
    assert!(again.contains("must not be started again") && again.contains("has lost entries"), "{again}");
    // The other nodes continue, and nothing acknowledged is lost.
    assert_eq!(put(cluster.node(1), "kv", "after", 1)["status"], "committed");
    for id in &ids {
        let known = eventually("a status", || {
            let known = cluster.node(2).get(&format!("/v1/txns/{id}"));
            (known.status == 200).then_some(known.body)
        });
        assert_eq!(known["status"], "committed", "{known}");
    }
    cluster.remove(3);
    eventually("the others to be well", || (status(&urls(&cluster), &[]).0 == Some(0)).then_some(()));
}

/// Runs `tribunal cluster status`; returns its exit code and output.
fn status(urls: &str, flags: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.args(["cluster", "status", "--url", urls]).args(flags);
    let output = command.env_remove("TRIBUNAL_API_KEY").output().expect("the binary runs");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}
