//! Storages of a cluster: one node pushes to each, another node takes over when it is down, and every node knows the
//! storage's progress. A real Redis receives every record once and in log order, whichever node pushes, even if two of
//! them do.

mod support;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use support::cluster::Cluster;
use support::redis::Redis;
use support::{Node, eventually, new_id, taken};

/// Starts three nodes and a storage, and declares it at one of them.
fn start() -> Option<(Cluster, Redis)> {
    let redis = Redis::start()?;
    let cluster = Cluster::start(3);
    let config = json!({"endpoint": redis.endpoint(), "prefix": "r/"});
    let store = json!({"adaptor": "redis", "adaptor_config": config});
    let declared = taken(|| cluster.node(2).put("/v1/stores/r", &store));
    assert!(matches!(declared.status, 200 | 201), "{}", declared.body);
    until_committed(cluster.node(1), &json!([{"op": "insert", "store": "r", "key": "sum", "value": 0}]));
    Some((cluster, redis))
}

fn store(node: &Node) -> Value {
    node.get("/v1/stores/r").body
}

/// Waits until all running nodes name the same pushing node, other than the excluded one, and returns it.
fn pusher(cluster: &Cluster, not: Option<u16>) -> u16 {
    eventually("all nodes to name the one that pushes", || {
        let mut named = cluster.running().map(|node| store(node)["push"]["node"].as_u64());
        let first = named.next()??;
        let all = named.all(|node| node == Some(first)) && not.map(u64::from) != Some(first);
        all.then_some(first as u16)
    })
}

/// Commits until there is a verdict, always under the same id.
fn until_committed(node: &Node, writes: &Value) -> Value {
    let path = format!("/v1/txns/{}/commit", new_id());
    let body = json!({"writes": writes, "ack": "applied"});
    let verdict = eventually("a verdict", || {
        let answer = node.try_post(&path, &body).ok()?;
        (answer.status == 200).then_some(answer.body)
    });
    assert_eq!(verdict["status"], "committed", "{verdict}");
    verdict
}

/// Commits at one node until told to stop: each transaction inserts a row and counts it.
fn load(node: &Node, name: &str, stop: &AtomicBool) {
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let writes = json!([{"op": "insert", "store": "r", "key": format!("{name}/{n}"), "value": n},
                            {"op": "put", "store": "r", "key": format!("last/{}", n % 7), "value": name},
                            {"op": "add", "store": "r", "key": "sum", "value": 1}]);
        let answer = node.try_post(&format!("/v1/txns/{}/commit", new_id()), &json!({"writes": writes}));
        if !answer.is_ok_and(|answer| answer.status == 200) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Runs `change` while clients commit at all nodes, and for a while after it.
fn under_load(cluster: &Cluster, round: &str, change: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for id in cluster.ids() {
            let (node, stop) = (cluster.node(id), &stop);
            scope.spawn(move || load(node, &format!("{round}/{id}"), stop));
        }
        change();
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
    });
}

/// Replays the log: each row as the storage has it.
fn replayed(node: &Node) -> BTreeMap<String, String> {
    let mut rows: BTreeMap<String, (String, Value)> = BTreeMap::new();
    for record in node.log_of("r") {
        let version = record["version"].as_str().expect("a version").to_owned();
        for write in record["writes"].as_array().expect("writes") {
            let key = write["key"].as_str().expect("a key").to_owned();
            let value = match write["op"].as_str() {
                Some("add") => {
                    let before = rows[&key].1.as_i64().expect("an integer");
                    json!(before + write["value"].as_i64().expect("an integer"))
                }
                _ => write["value"].clone(),
            };
            rows.insert(key, (version.clone(), value));
        }
    }
    rows.into_iter().map(|(key, (version, value))| (key, format!("{version} {value}"))).collect()
}

/// Waits until the storage has the whole log and all nodes know it, and checks that it has nothing else.
fn check(cluster: &Cluster, redis: &Redis) -> usize {
    cluster.settled();
    for node in cluster.running() {
        eventually("a node to know that everything is applied", || {
            let store = store(node);
            assert_ne!(store["push"]["state"], "stopped", "{store}");
            let begun = node.post("/v1/txns", &json!({"stores": ["r"]}));
            let applied = begun.status == 201 && store["applied"] == store["committed"];
            (applied && store["acked_lsn"] == store["head_lsn"] && store["push"]["lag_ms"] == "0").then_some(())
        });
    }
    let node = cluster.running().next().expect("one runs");
    let expected = replayed(node);
    assert_eq!(redis.call(&["ZCARD", "#index:r/"]), expected.len().to_string());
    for (key, row) in &expected {
        assert_eq!(redis.call(&["GET", &format!("r/{key}")]), *row, "{key}");
    }
    let head = store(node)["head_lsn"].as_str().expect("a position").to_owned();
    let mark = redis.call(&["GET", "#watermark:r/"]);
    assert_eq!(mark.rsplit(' ').next(), Some(&*head), "{mark}");
    expected.len()
}

/// Returns whether a node's metrics include the state of the store's push.
fn measures_the_push(node: &Node) -> bool {
    let metrics = node.get("/metrics").body;
    let text = metrics.as_str().expect("text");
    text.lines().any(|line| line.starts_with("tribunal_store_push_state{") && line.contains("store=\"r\""))
}

#[test]
fn one_node_pushes_and_all_know_how_far_the_storage_is() {
    let Some((cluster, redis)) = start() else { return };
    let pusher = pusher(&cluster, None);
    for id in cluster.ids() {
        for n in 0..10 {
            // It waits for the storage, whose progress most nodes know only from reports.
            let writes = json!([{"op": "insert", "store": "r", "key": format!("{id}/{n}"), "value": n},
                                {"op": "add", "store": "r", "key": "sum", "value": 1}]);
            assert_eq!(until_committed(cluster.node(id), &writes)["applied"], true);
        }
    }
    assert_eq!(check(&cluster, &redis), 31);
    assert!(redis.call(&["GET", "r/sum"]).ends_with(" 30"));
    for id in cluster.ids() {
        let node = cluster.node(id);
        let begin = json!({"stores": ["r"], "consistency": "fresh", "wait_ms": 5000});
        let begun = taken(|| node.post("/v1/txns", &begin));
        assert_eq!(begun.status, 201, "{}", begun.body);
        let pushes = node.get("/v1/cluster").body["pushes"].clone();
        assert_eq!(pushes, json!([{"namespace": "default", "store": "r", "node": pusher}]));
        assert_eq!(measures_the_push(node), id == pusher, "node {id}");
        // The pushing node reports it from time to time.
        eventually("the storage's durability", || (store(node)["push"]["durability"] == "always").then_some(()));
        assert_eq!(store(node)["push"]["state"], "running");
    }
}

#[test]
fn kill_9_of_the_node_that_pushes_under_load_loses_and_repeats_nothing() {
    let Some((mut cluster, redis)) = start() else { return };
    for round in 0..3 {
        let victim = pusher(&cluster, None);
        under_load(&cluster, &round.to_string(), || {
            std::thread::sleep(Duration::from_millis(700));
            cluster.node(victim).signal("KILL");
        });
        cluster.take(victim).kill();
        let next = pusher(&cluster, Some(victim));
        println!("round {round}: node {next} in place of node {victim}, {} rows", check(&cluster, &redis));
        cluster.start_node(victim);
        cluster.ready();
        // After its restart, it knows the progress only from reports.
        assert_eq!(pusher(&cluster, None), next);
        until_committed(cluster.node(victim), &json!([{"op": "add", "store": "r", "key": "sum", "value": 1}]));
        check(&cluster, &redis);
    }
}

#[test]
fn a_node_that_is_paused_while_it_pushes_and_goes_on_later_changes_nothing() {
    let Some((cluster, redis)) = start() else { return };
    for round in 0..2 {
        let paused = pusher(&cluster, None);
        let others: Vec<u16> = cluster.ids().filter(|id| *id != paused).collect();
        let named = |id: u16| store(cluster.node(id))["push"]["node"].as_u64();
        under_load(&cluster, &round.to_string(), || {
            std::thread::sleep(Duration::from_millis(700));
            cluster.node(paused).signal("STOP");
            eventually("another node to take over", || {
                others.iter().all(|id| named(*id).is_some_and(|node| node != u64::from(paused))).then_some(())
            });
            // Both push from here on, until the paused one learns of the takeover.
            std::thread::sleep(Duration::from_millis(300));
            cluster.node(paused).signal("CONT");
        });
        let next = pusher(&cluster, Some(paused));
        println!("round {round}: node {next} in place of node {paused}, {} rows", check(&cluster, &redis));
    }
}

#[test]
fn a_node_that_stops_as_planned_hands_its_pushes_over() {
    let Some((mut cluster, redis)) = start() else { return };
    let first = pusher(&cluster, None);
    check(&cluster, &redis);
    assert!(cluster.take(first).stop().success());
    let next = pusher(&cluster, Some(first));
    let writes = json!([{"op": "add", "store": "r", "key": "sum", "value": 1}]);
    assert_eq!(until_committed(cluster.node(next), &writes)["applied"], true);
    cluster.start_node(first);
    cluster.ready();
    check(&cluster, &redis);
}

#[test]
fn a_storage_that_lost_its_rows_is_lost_on_all_nodes_and_resumed_at_any() {
    let Some((cluster, redis)) = start() else { return };
    let pusher = pusher(&cluster, None);
    let other = cluster.ids().find(|id| *id != pusher).expect("three nodes");
    let committed = until_committed(cluster.node(other), &json!([{"op": "put", "store": "r", "key": "a", "value": 1}]));
    check(&cluster, &redis);
    // All data is lost at once, and the first record cannot be written again.
    redis.call(&["EVAL", "redis.call('FLUSHALL') return redis.call('SET', '#index:r/', 'x')", "0"]);
    let session = json!({"stores": ["r"], "session": committed["session"]});
    for node in cluster.running() {
        // The stop and the storage's position are reported separately.
        let stopped = eventually("a node to know that the push stopped", || {
            Some(store(node)).filter(|store| store["push"]["state"] == "stopped" && store["acked_lsn"] == "0")
        });
        let push = &stopped["push"];
        assert_eq!((&push["stopped_at_lsn"], &push["node"]), (&json!("1"), &json!(pusher)), "{push}");
        assert!(push["last_error"].as_str().expect("an error").contains("no sorted set"), "{push}");
        eventually("a session to be refused", || {
            let refused = node.post("/v1/txns", &session);
            ((refused.status, &refused.body["code"]) == (503, &json!("store_lagging"))).then_some(())
        });
    }
    redis.call(&["DEL", "#index:r/"]);
    let resumed = taken(|| cluster.node(other).post("/v1/stores/r/push/resume", &json!({})));
    assert_eq!(resumed.status, 200, "{}", resumed.body);
    check_after_stop(&cluster, &redis);
}

/// Waits until no node reports a stopped push, and checks the storage.
fn check_after_stop(cluster: &Cluster, redis: &Redis) {
    for node in cluster.running() {
        eventually("the push to go on", || (store(node)["push"]["state"] == "running").then_some(()));
    }
    check(cluster, redis);
}

#[test]
fn a_storage_ahead_of_the_log_is_refused_by_every_node_that_pushes() {
    let Some((mut cluster, redis)) = start() else { return };
    let first = pusher(&cluster, None);
    check(&cluster, &redis);
    let mark = redis.call(&["GET", "#watermark:r/"]);
    let (log, at) = mark.rsplit_once(' ').expect("a log and a position");
    redis.call(&["SET", "#watermark:r/", &format!("{log} {}", at.parse::<u64>().unwrap() + 5)]);
    let refused = |node: &Node| {
        let store =
            eventually("the push to stop", || Some(store(node)).filter(|store| store["push"]["state"] == "stopped"));
        let error = store["push"]["last_error"].as_str().expect("an error").to_owned();
        assert!(error.contains("in common with this log") && error.contains("Empty it"), "{error}");
    };
    cluster.running().for_each(refused);
    // Once the log has grown past that position, nothing else reveals it.
    for n in 0..10 {
        let body = json!({"writes": [{"op": "insert", "store": "r", "key": format!("more/{n}"), "value": n}]});
        let path = format!("/v1/txns/{}/commit", new_id());
        eventually("a verdict", || (cluster.node(1).post(&path, &body).status == 200).then_some(()));
    }
    cluster.settled();
    cluster.take(first).kill();
    let next = pusher(&cluster, Some(first));
    refused(cluster.node(next));
    // An emptied storage is pushed to from the start.
    redis.call(&["FLUSHALL"]);
    assert_eq!(taken(|| cluster.node(next).post("/v1/stores/r/push/resume", &json!({}))).status, 200);
    check_after_stop(&cluster, &redis);
    assert_eq!(check(&cluster, &redis), 11);
}
