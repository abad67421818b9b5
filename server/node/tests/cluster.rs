//! Clusters of real processes on loopback: every node accepts transactions, and no acknowledged commit is lost.

mod support;

use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::cluster::Cluster;
use support::history::{Told, acknowledged, check, insert, load, noise, oldest, put, until_decided, until_forgotten};
use support::{Node, eventually, eventually_within, new_id};

/// If a start takes longer, the report includes the node's log output.
const SLOW_START: Duration = Duration::from_secs(5);

/// Long, because the rows written meanwhile go to disk several times.
const TRUNCATED_WITHIN: Duration = Duration::from_secs(600);

/// A node's counters cover its own clients, so those of all nodes add up, and the shares are right on each.
#[test]
fn every_node_counts_the_verdicts_of_its_own_clients() {
    let cluster = Cluster::start(3);
    let commit =
        |node: u16, id: &str, key: &str| until_decided(&[cluster.node(node)], id, &insert(key))["status"].clone();
    (0..4).for_each(|n| assert_eq!(commit(1, &new_id(), &format!("one/{n}")), "committed"));
    let repeated = new_id();
    assert_eq!(commit(2, &repeated, "two"), "committed");
    assert_eq!(commit(2, &repeated, "two"), "committed");
    assert_eq!(commit(2, &new_id(), "two"), "aborted");
    // Over the last few seconds.
    let share = cluster.node(2).get("/v1/stats").body["abort_share"].as_f64().expect("a share");
    assert!((share - 0.5).abs() < 1e-9, "{share}");
    cluster.settled();
    let counted = |node: u16, name: &str| -> u64 {
        let metrics = cluster.node(node).get("/metrics").body.as_str().expect("text").to_owned();
        let values = metrics.lines().filter(|line| line.starts_with(name));
        values.map(|line| line.rsplit_once(' ').expect("a value").1.parse::<u64>().expect("a number")).sum()
    };
    for (node, committed, aborted, replayed) in [(1, 4, 0, 0), (2, 1, 1, 1), (3, 0, 0, 0)] {
        assert_eq!(counted(node, "tribunal_txns_committed_total"), committed, "node {node}");
        assert_eq!(counted(node, "tribunal_txns_aborted_total"), aborted, "node {node}");
        // A client retries after a lost response.
        assert!(counted(node, "tribunal_txns_replayed_total") >= replayed, "node {node}");
    }
}

#[test]
fn every_node_takes_transactions_and_all_decide_the_same() {
    let cluster = Cluster::start(3);
    for id in cluster.ids() {
        put(cluster.node(id), &format!("from/{id}"), i64::from(id));
    }
    for id in cluster.ids() {
        // A commit acknowledged by another node is visible here at once, on request.
        eventually("a fresh snapshot", || {
            let begun = cluster.node(id).post("/v1/txns", &json!({"consistency": "fresh", "stores": ["kv"]}));
            (begun.status == 201).then_some(())
        });
        for other in cluster.ids() {
            let row = cluster.node(id).get(&format!("/v1/stores/kv/rows/from/{other}"));
            assert_eq!(row.body["value"], other, "{}", row.body);
        }
    }
    // Two nodes insert the same rows at the same time: one of them wins.
    for round in 0..20 {
        let key = format!("contended/{round}");
        let verdicts: Vec<Value> = std::thread::scope(|scope| {
            let commits: Vec<_> = [1, 2]
                .map(|id| {
                    scope.spawn({
                        let (cluster, key) = (&cluster, &key);
                        move || until_decided(&[cluster.node(id)], &new_id(), &insert(key))
                    })
                })
                .into();
            commits.into_iter().map(|commit| commit.join().unwrap()).collect()
        });
        let won = verdicts.iter().filter(|verdict| verdict["status"] == "committed").count();
        assert_eq!(won, 1, "{verdicts:?}");
    }
    // An id has one verdict, wherever it is queried or sent again.
    let (id, body) = (new_id(), insert("once"));
    let first = until_decided(&[cluster.node(1)], &id, &body);
    for node in cluster.running() {
        let again = until_decided(&[node], &id, &body);
        assert_eq!((&again["version"], &again["status"]), (&first["version"], &json!("committed")), "{again}");
    }
    cluster.settled();
    let logs: Vec<Vec<Value>> = cluster.running().map(|node| node.log_of("kv")).collect();
    assert!(logs[0].len() >= 24 && logs.iter().all(|log| *log == logs[0]));
}

/// A client switches to another node, which has not yet decided the epochs that the client has seen.
#[test]
fn what_a_transaction_has_seen_elsewhere_is_decided_before_it_is_judged() {
    let cluster = Cluster::start(3);
    let (one, other) = (cluster.node(1), cluster.node(2));
    // A node that does not know the other nodes' progress decides nothing and returns an error; the client retries.
    let judged = |path: &str, body: &Value| {
        eventually("a verdict", || {
            let answer = other.post(&format!("/v1/txns/{}/{path}", new_id()), body);
            assert!(matches!(answer.status, 200 | 503), "{}", answer.body);
            (answer.status == 200).then_some(answer.body)
        })
    };
    for round in 0..100 {
        let key = format!("seen/{}", round % 10);
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": key, "value": round}]});
        let written = until_decided(&[one], &new_id(), &body);
        let read = json!({"reads": [{"store": "kv", "key": key, "version": written["version"]}]});
        let verdict = judged("commit", &read);
        assert_eq!(verdict["status"], "committed", "round {round}, by its version: {verdict}");
        until_decided(&[one], &new_id(), &body);
        let begun = one.post("/v1/txns", &json!({"stores": ["kv"], "read": [{"store": "kv", "key": key}]})).body;
        let version = &begun["rows"][0]["version"];
        let read = json!({"snapshots": begun["snapshots"], "reads": [{"store": "kv", "key": key, "version": version}]});
        let verdict = judged("commit", &read);
        assert_eq!(verdict["status"], "committed", "round {round}, by its snapshot: {begun}, {verdict}");
        until_decided(&[one], &new_id(), &insert(&format!("seen/new/{round}")));
        let update =
            json!({"writes": [{"op": "update", "store": "kv", "key": format!("seen/new/{round}/L"), "value": 2}]});
        let verdict = judged("validate", &update);
        assert_eq!(verdict["status"], "would_commit", "round {round}, what was acknowledged counts: {verdict}");
    }
    // A transaction is read in part: the row before it here, its range after it there; the reader is judged here, where
    // the transaction may be unknown.
    for round in 0..50 {
        let (row, range) = (format!("half/{round}/row"), format!("half/{round}/range/"));
        put(one, &row, 1);
        let read = json!({"stores": ["kv"], "consistency": "fresh", "read": [{"store": "kv", "key": row}]});
        let begun = eventually("a fresh snapshot", || {
            let begun = other.post("/v1/txns", &read);
            (begun.status == 201).then_some(begun.body)
        });
        let both = json!({"writes": [{"op": "put", "store": "kv", "key": row, "value": 2},
                                     {"op": "insert", "store": "kv", "key": format!("{range}new"), "value": 2}]});
        until_decided(&[one], &new_id(), &both);
        let version = &begun["rows"][0]["version"];
        let end = format!("{range}~");
        let body = json!({"snapshots": begun["snapshots"], "reads": [{"store": "kv", "key": row, "version": version}],
                          "ranges": [{"store": "kv", "start": range, "end": end}]});
        let verdict = judged("commit", &body);
        assert_eq!(verdict["status"], "aborted", "round {round}: {begun}, {verdict}");
    }
    // No client can have seen the future.
    let read = json!({"snapshots": {"kv": "999999999"}, "reads": [{"store": "kv", "key": "seen/0"}]});
    assert_eq!(judged("commit", &read)["reason"], "snapshot_from_the_future");
}

#[test]
fn kill_9_of_a_node_under_load_loses_nothing() {
    let mut cluster = Cluster::start(3);
    let told = Told::default();
    for round in 0..4_u16 {
        let victim = 1 + round % 3;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for (id, worker) in (1..=3_u16).flat_map(|id| [(id, 0), (id, 1)]) {
                let (node, told, stop) = (cluster.node(id), &told, &stop);
                scope.spawn(move || load(node, &format!("{round}-{id}-{worker}"), told, stop));
            }
            std::thread::sleep(Duration::from_millis(200 + u64::from(round) * 70));
            cluster.node(victim).signal("KILL");
            let others = || acknowledged(&told, |key| !key.starts_with(&format!("{round}-{victim}-")));
            let before = others();
            // The other nodes take over the groups that it led, and decide without it.
            eventually("the others to go on", || (others() > before + 50).then_some(()));
            stop.store(true, Ordering::Relaxed);
        });
        cluster.take(victim).kill();
        cluster.start_node(victim);
        cluster.ready();
        check(&cluster, &told);
    }
    let acknowledged = check(&cluster, &told);
    println!("{acknowledged} acknowledged commits, none lost");
    assert!(acknowledged > 100);
}

#[test]
fn a_minority_decides_nothing_and_says_so() {
    let mut cluster = Cluster::start(3);
    put(cluster.node(1), "before", 1);
    let known = new_id();
    until_decided(&[cluster.node(1)], &known, &insert("known"));
    cluster.settled();
    cluster.take(2).kill();
    cluster.take(3).kill();
    let left = cluster.node(1);
    eventually("the node to notice that it is alone", || {
        let ready = left.get("/readyz");
        (ready.status == 503 && ready.body["reasons"].to_string().contains("majority")).then_some(())
    });
    let refused = left.commit(&insert("alone"));
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert!(refused.body["detail"].as_str().unwrap().contains("majority"), "{}", refused.body);
    // A read-only commit is not decided either: the other nodes may have overwritten its rows. A dry run is no
    // decision.
    let read = json!({"reads": [{"store": "kv", "key": "before"}]});
    let refused = left.commit(&read);
    assert!(refused.status == 503 && refused.body["detail"].to_string().contains("majority"), "{}", refused.body);
    let batch = left.post_lines("/v1/txns/batch-commit", &[json!({"txn_id": new_id(), "reads": read["reads"]})]);
    assert!(batch.body.to_string().contains("majority"), "{}", batch.body);
    // A commit that was decided keeps its verdict; new ones are certainly not decided.
    let known = json!({"txn_id": known, "writes": insert("known")["writes"]});
    let txns: Vec<Value> = (0..100)
        .map(|n| match n {
            40 => known.clone(),
            n => json!({"txn_id": new_id(), "writes": insert(&format!("alone/{n}"))["writes"]}),
        })
        .collect();
    let batch = left.post("/v1/txns/batch-commit", &json!({"txns": txns})).body;
    for (n, result) in batch["results"].as_array().expect("results").iter().enumerate() {
        let (status, code) = (result["status"].as_str(), result["problem"]["code"].as_str());
        let expected = if n == 40 { (Some("committed"), None) } else { (None, Some("unavailable")) };
        assert_eq!((status.filter(|_| n == 40), code), expected, "{n}: {result}");
        assert_eq!(result["txn_id"], txns[n]["txn_id"]);
    }
    let fresh = left.post("/v1/txns", &json!({"stores": ["kv"], "consistency": "fresh", "wait_ms": 300}));
    assert_eq!(fresh.status, 503, "{}", fresh.body);
    assert_eq!(left.get("/v1/stores/kv/rows/before").body["value"], 1, "its storage stays readable");
    let status = left.get("/v1/cluster").body;
    assert_eq!((&status["takes_commits"], &status["nodes"][1]["connected"]), (&json!(false), &json!(false)));
    let problem = || left.get("/v1/cluster").body["nodes"][1]["problem"].as_str().map(str::to_owned);
    eventually("the node to say why it is not connected", problem);
    cluster.start_all();
    cluster.ready();
    put(cluster.node(1), "after", 2);
    cluster.settled();
}

#[test]
fn a_node_that_hangs_is_not_waited_for_and_catches_up() {
    let cluster = Cluster::start(3);
    put(cluster.node(1), "first", 1);
    cluster.node(3).signal("STOP");
    let others = [cluster.node(1), cluster.node(2)];
    let begun = Instant::now();
    for n in 0..50 {
        until_decided(&others, &new_id(), &insert(&format!("without/{n}")));
    }
    println!("50 commits without the node that hangs took {} ms", begun.elapsed().as_millis());
    cluster.node(3).signal("CONT");
    cluster.ready();
    cluster.settled();
    put(cluster.node(3), "last", 1);
    cluster.settled();
}

#[test]
fn a_restart_of_all_nodes_continues() {
    let mut cluster = Cluster::start(3);
    for n in 0..100_u16 {
        put(cluster.node(1 + n % 3), &format!("row/{n}"), i64::from(n));
    }
    let before = cluster.settled();
    let logs = cluster.node(1).log_of("kv");
    for id in cluster.ids() {
        assert!(cluster.take(id).stop().success());
        let images = std::fs::read_dir(cluster.node_dir(id).join("data/log/images")).unwrap();
        assert_eq!(images.count(), 1, "a node that stops leaves an image");
    }
    cluster.start_all();
    cluster.ready();
    let after = cluster.settled();
    let epoch = |state: &Value| state[0].as_str().and_then(|epoch| epoch.parse::<u64>().ok());
    assert!(epoch(&after) >= epoch(&before));
    assert!(cluster.running().all(|node| node.log_of("kv") == logs));
    put(cluster.node(2), "row/7", 1);
    cluster.settled();
}

#[test]
fn logs_are_truncated_and_a_node_that_is_killed_continues_from_its_image() {
    let retained = "[log]\nretention_hours = 0\nimage_every_bytes = 1048576\n";
    let mut cluster = Cluster::start_with(3, retained);
    let mut written = 0;
    let mut write = |nodes: &[&Node]| {
        written += 1;
        let key = format!("row/{}", written % 100);
        let body = json!({"writes": [{"op": "put", "store": "kv", "key": key, "value": noise(100_000, written)}]});
        assert_eq!(until_decided(nodes, &new_id(), &body)["status"], "committed");
        written
    };
    eventually_within(TRUNCATED_WITHIN, "the logs of all nodes to be truncated", || {
        for _ in 0..25 {
            write(&[cluster.node(1), cluster.node(2), cluster.node(3)]);
        }
        cluster.running().all(|node| oldest(node) > 1).then_some(())
    });
    for victim in cluster.ids() {
        cluster.take(victim).kill();
        let left: Vec<&Node> = cluster.running().collect();
        for _ in 0..20 {
            write(&left);
        }
        cluster.start_node(victim);
        cluster.ready();
        cluster.settled();
    }
    for id in cluster.ids() {
        assert!(cluster.take(id).stop().success());
    }
    cluster.start_all();
    cluster.ready();
    let last = write(&[cluster.node(1)]);
    cluster.settled();
    for node in cluster.running() {
        for number in last - 99..=last {
            let row = node.get(&format!("/v1/stores/kv/rows/row%2F{}", number % 100)).body;
            assert_eq!(row["value"], noise(100_000, number), "row {}", number % 100);
        }
    }
}

#[test]
fn a_node_that_was_away_for_too_long_copies_the_state_of_another() {
    let retained = "[log]\nretention_hours = 0\nimage_every_bytes = 1048576\n";
    let mut cluster = Cluster::start_with(3, retained);
    let check = |cluster: &Cluster, written: u64| {
        cluster.ready();
        cluster.settled();
        for node in cluster.running() {
            for number in written - 99..=written {
                let row = node.get(&format!("/v1/stores/kv/rows/row%2F{}", number % 100)).body;
                assert_eq!(row["value"], noise(100_000, number), "row {}", number % 100);
            }
        }
    };
    let mut written = 0;
    // A node that has state and is killed repeatedly while it copies.
    until_forgotten(&cluster, &mut written);
    cluster.take(3).kill();
    until_forgotten(&cluster, &mut written);
    for wait_ms in [60, 150, 300, 500] {
        cluster.start_node(3);
        std::thread::sleep(Duration::from_millis(wait_ms));
        cluster.take(3).kill();
    }
    cluster.start_node(3);
    check(&cluster, written);
    put(cluster.node(3), "after", 1);
    // Older records exist only on the other nodes. The next node to copy needs this node's records as well.
    assert!(oldest(cluster.node(3)) > 100);
    cluster.take(1).kill();
    until_forgotten(&cluster, &mut written);
    assert!(cluster.take(2).stop().success());
    cluster.start_node(1);
    cluster.start_node(2);
    check(&cluster, written);
    put(cluster.node(1), "after", 2);
    cluster.settled();
    assert!(cluster.running().all(|node| node.get("/v1/stores/kv/rows/after").body["value"] == 2));
}

#[test]
fn a_directory_or_a_certificate_of_another_node_or_cluster_is_refused() {
    let mut cluster = Cluster::start(3);
    put(cluster.node(1), "row", 1);
    cluster.settled();
    for id in cluster.ids() {
        cluster.take(id).kill();
    }
    let refused = |command: Command| Node::spawn(command).err().expect("it must not start");
    let file = |id: u16| cluster.node_dir(id).join("tribunal.toml");
    let config = std::fs::read_to_string(file(1)).unwrap();
    let with = |from: &str, to: &str| {
        assert!(config.contains(from), "{from}");
        std::fs::write(file(1), config.replacen(from, to, 1)).unwrap();
        refused(cluster.command(1))
    };
    // The directory of another node, the certificate of another node, another secret, another name.
    let other_data = with("node-1/data", "node-2/data");
    assert!(other_data.contains("the log of node 2, and this is node 1"), "{other_data}");
    let other_certificate = with("node-1/node.pem", "node-2/node.pem");
    assert!(other_certificate.contains("node.key") || other_certificate.contains("key"), "{other_certificate}");
    let other_name = with("name = \"test\"", "name = \"else\"");
    assert!(other_name.contains("another cluster"), "{other_name}");
    let unknown = with("node = 1\n", "node = 9\n");
    assert!(unknown.contains("no such node"), "{unknown}");
    std::fs::write(cluster.dir().join("cluster.secret"), "another secret, of as many characters").unwrap();
    std::fs::write(file(1), &config).unwrap();
    assert!(refused(cluster.command(1)).contains("another cluster"));
    std::fs::write(cluster.dir().join("cluster.secret"), "short").unwrap();
    assert!(refused(cluster.command(1)).contains("fewer than 32 characters"));
    // Nor can a node that runs alone, or a salvage, use its log.
    let data = cluster.node_dir(1).join("data");
    let alone = Node::try_start(&data, &[]).err().expect("it must not start");
    assert!(alone.contains("a member of a cluster"), "{alone}");
    for flags in [&["--data"][..], &["--accept-loss", "--data"]] {
        let mut salvage = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        let refused = salvage.args(["log", "salvage"]).args(flags).arg(&data).output().unwrap();
        let told = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && told.contains("belongs to a member of a cluster"), "{flags:?}: {told}");
    }
}

#[test]
fn a_node_that_lost_its_disk_is_refused_and_comes_back_with_it() {
    let mut cluster = Cluster::start(3);
    put(cluster.node(1), "row", 1);
    cluster.settled();
    cluster.take(2).kill();
    let (data, lost) = (cluster.node_dir(2).join("data"), cluster.node_dir(2).join("lost"));
    std::fs::rename(&data, &lost).unwrap();
    let refused = Node::spawn(cluster.command(2)).err().expect("it must not take part");
    assert!(refused.contains("is empty") && refused.contains("must not return under its number"), "{refused}");
    put(cluster.node(3), "without it", 1);
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&lost, &data).unwrap();
    // The same if only the log is missing, as if its disk were not mounted. The attempt must not change anything.
    let (log, elsewhere) = (data.join("log"), cluster.node_dir(2).join("elsewhere"));
    std::fs::rename(&log, &elsewhere).unwrap();
    for _ in 0..2 {
        let refused = Node::spawn(cluster.command(2)).err().expect("it must not take part");
        assert!(refused.contains("log is empty") && refused.contains("mount that"), "{refused}");
    }
    let _ = std::fs::remove_dir_all(&log);
    std::fs::rename(&elsewhere, &log).unwrap();
    cluster.start_node(2);
    cluster.ready();
    cluster.settled();
    assert_eq!(cluster.node(2).log_of("kv").len(), 2);
}

#[test]
fn other_members_than_the_clusters_are_refused() {
    let mut cluster = Cluster::start(3);
    cluster.take(2).kill();
    let file = cluster.node_dir(2).join("tribunal.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let refused = |cluster: &Cluster, config: String| {
        std::fs::write(&file, config).unwrap();
        Node::spawn(cluster.command(2)).err().expect("it must not start")
    };
    let more = format!("{config}[[cluster.nodes]]\nid = 4\naddress = \"127.0.0.1:1\"\n");
    let why = refused(&cluster, more);
    assert!(why.contains("the nodes 1 2 3 4") && why.contains("founders` to [1, 2, 3]"), "{why}");
    let at = config.find("[[cluster.nodes]]\nid = 3").unwrap();
    assert!(refused(&cluster, config[..at].to_owned()).contains("began with 1 2 3:"));
    std::fs::write(&file, &config).unwrap();
    cluster.start_node(2);
    cluster.ready();
}

#[test]
fn a_node_of_a_new_cluster_says_that_it_waits_for_the_others() {
    let mut cluster = Cluster::prepare(3);
    let (file, address) = (cluster.node_dir(1).join("tribunal.toml"), support::cluster::free_address());
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, config.replacen("listen = \"127.0.0.1:0\"", &format!("listen = \"{address}\""), 1)).unwrap();
    let started = |id: u16| {
        let mut command = cluster.command(id);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap()
    };
    let mut alone = started(1);
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let ready = || agent.get(format!("http://{address}/readyz")).call().ok();
    eventually("the node to say what it waits for", || {
        let mut answer = ready()?;
        assert_eq!(answer.status().as_u16(), 503);
        answer.body_mut().read_to_string().ok()?.contains("all of its nodes must be running").then_some(())
    });
    // A node with another secret is not a member: its log would be a different one.
    let file = cluster.node_dir(2).join("tribunal.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(cluster.dir().join("other.secret"), "another secret, of as many characters").unwrap();
    std::fs::write(&file, config.replacen("cluster.secret", "other.secret", 1)).unwrap();
    let mut mistaken = started(2);
    eventually("the node to say why it is not connected", || {
        let text = ready()?.body_mut().read_to_string().ok()?;
        (text.contains("not connected: 2") && text.contains("have different secrets")).then_some(())
    });
    for node in [&mut alone, &mut mistaken] {
        node.kill().unwrap();
        node.wait().unwrap();
    }
    // It has started a new, empty log.
    std::fs::remove_dir_all(cluster.node_dir(2).join("data")).unwrap();
    std::fs::write(&file, config).unwrap();
    // It continues when the other nodes start.
    cluster.start_all();
    eventually("the node to take part", || (cluster.node(1).get("/readyz").status == 200).then_some(()));
}

#[test]
fn a_cluster_of_one_node_works_and_says_what_does_not() {
    let cluster = Cluster::start(1);
    let node = cluster.node(1);
    // A log-only store works, and so does a cluster of one node.
    assert_eq!(node.put("/v1/stores/pulled", &json!({})).status, 201);
    let write = json!({"op": "insert", "store": "pulled", "key": "a", "value": 1});
    assert_eq!(node.commit(&json!({"writes": [write]})).body["status"], "committed");
    assert_eq!(node.log_of("pulled").len(), 1);
    // Its only node pushes to storages, and reports why one is unreachable.
    let store = json!({"adaptor": "redis", "adaptor_config": {"endpoint": "127.0.0.1:1"}});
    assert_eq!(node.put("/v1/stores/pushed", &store).status, 201);
    eventually("the push to back off", || {
        let push = node.get("/v1/stores/pushed").body["push"].clone();
        let is_tried = push["state"] == "backing_off" && push["last_error"].is_string();
        (is_tried && push["node"] == 1).then_some(())
    });
}

/// Measures how long no client gets a verdict when a node is killed under load: `cargo test --release -p tribunal
/// --test cluster -- --ignored --nocapture`. `TRIBUNAL_KILLS` sets the number of kills.
#[test]
#[ignore = "a measurement of some minutes"]
fn how_long_commits_pause_when_a_node_is_killed() {
    let kills = std::env::var("TRIBUNAL_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_u16);
    let mut cluster = Cluster::start(3);
    let (mut gaps, mut recoveries) = (Vec::new(), Vec::new());
    for round in 0..kills {
        let victim = 1 + round % 3;
        let (stop, decided) = (AtomicBool::new(false), Mutex::new(Vec::new()));
        let killed = std::thread::scope(|scope| {
            for id in cluster.ids().filter(|id| *id != victim).flat_map(|id| [id; 4]) {
                let (node, stop, decided) = (cluster.node(id), &stop, &decided);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let answer = node.try_post(&format!("/v1/txns/{}/commit", new_id()), &insert(&new_id()));
                        if answer.is_ok_and(|answer| answer.status == 200) {
                            decided.lock().unwrap().push(Instant::now());
                        }
                    }
                });
            }
            std::thread::sleep(Duration::from_millis(800));
            cluster.node(victim).signal("KILL");
            let killed = Instant::now();
            std::thread::sleep(Duration::from_secs(2));
            stop.store(true, Ordering::Relaxed);
            killed
        });
        let mut decided = decided.into_inner().unwrap();
        decided.sort_unstable();
        let after = decided.iter().filter(|at| **at >= killed).copied();
        let times: Vec<Instant> = std::iter::once(killed).chain(after).collect();
        let gap = times.windows(2).map(|pair| pair[1] - pair[0]).max().expect("commits go on");
        gaps.push(gap.as_millis());
        cluster.take(victim).kill();
        let begun = Instant::now();
        cluster.start_node(victim);
        cluster.ready();
        recoveries.push(begun.elapsed().as_millis());
        if begun.elapsed() > SLOW_START {
            let slow = cluster.take(victim);
            slow.signal("TERM");
            println!("node {victim} took {} ms after kill {round}:\n{}", begun.elapsed().as_millis(), slow.ended().1);
            cluster.start_node(victim);
            cluster.ready();
        }
    }
    for (name, times) in [("pause", &mut gaps), ("from start to ready", &mut recoveries)] {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
        println!("{name} over {kills} kills: p50 {} ms, p99 {} ms, max {} ms", at(50), at(99), at(100));
    }
    cluster.settled();
}
