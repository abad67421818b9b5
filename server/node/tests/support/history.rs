//! The responses that clients of a cluster received, and the check that all of them are true afterwards.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::{Node, Response, eventually, new_id};

pub fn insert(key: &str) -> Value {
    json!({"writes": [{"op": "insert", "store": "kv", "key": format!("{key}/L"), "value": 1},
                      {"op": "insert", "store": "kv", "key": format!("{key}/R"), "value": 1}]})
}

/// Posts a commit until there is a verdict, at one node after the other, always under the same id.
pub fn until_decided(nodes: &[&Node], id: &str, body: &Value) -> Value {
    let mut turn = 0;
    eventually("a verdict", || {
        turn += 1;
        let answer = nodes[turn % nodes.len()].try_post(&format!("/v1/txns/{id}/commit"), body).ok()?;
        assert!(!matches!(answer.status, 400 | 415 | 422), "it will never be decided: {}", answer.body);
        (answer.status == 200).then_some(answer.body)
    })
}

/// Puts a row through one node, with retries: its log may just be returning to it.
pub fn put(node: &Node, key: &str, value: i64) {
    let body = json!({"writes": [{"op": "put", "store": "kv", "key": key, "value": value}]});
    assert_eq!(until_decided(&[node], &new_id(), &body)["status"], "committed");
}

/// Halts the other nodes and posts a commit, which then reaches no majority; returns when the node has accepted it. If
/// the node misses the other nodes before it receives the commit, it refuses the commit: the other nodes are then
/// resumed for a while, and it is posted again.
pub fn taken_in_alone<'scope>(
    scope: &'scope Scope<'scope, '_>,
    node: &'scope Node,
    others: &[&Node],
    id: &'scope str,
    body: &'scope Value,
) -> ScopedJoinHandle<'scope, Result<Response, ureq::Error>> {
    eventually("the commit to be taken in", || {
        eventually("the node to be ready", || (node.get("/readyz").status == 200).then_some(()));
        others.iter().for_each(|other| other.signal("STOP"));
        let commit = scope.spawn(move || node.try_post(&format!("/v1/txns/{id}/commit"), body));
        let is_taken_in = eventually("the commit to be taken in or refused", || {
            let is_taken_in = node.get(&format!("/v1/txns/{id}")).body["status"] == "in_flight";
            (is_taken_in || commit.is_finished()).then_some(is_taken_in)
        });
        if !is_taken_in {
            others.iter().for_each(|other| other.signal("CONT"));
        }
        is_taken_in.then_some(commit)
    })
}

/// The verdicts that clients received, with their ids, by the key that each commit inserts.
pub type Told = Mutex<BTreeMap<String, (String, Option<Value>)>>;

/// Counts the acknowledged commits whose keys count.
pub fn acknowledged(told: &Told, counts: impl Fn(&str) -> bool) -> usize {
    let told = told.lock().unwrap();
    told.iter().filter(|(key, (_, verdict))| verdict.is_some() && counts(key)).count()
}

/// Commits at one node until told to stop.
pub fn load(node: &Node, name: &str, told: &Told, stop: &AtomicBool) {
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (id, key) = (new_id(), format!("{name}-{n}"));
        let answer = node.try_post(&format!("/v1/txns/{id}/commit"), &insert(&key)).ok();
        let verdict = answer.filter(|answer| answer.status == 200).map(|answer| answer.body);
        if verdict.is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        told.lock().unwrap().insert(key, (id, verdict));
    }
}

/// Checks that all nodes have the same log, that it contains every acknowledged commit, and that the ids' statuses
/// match it.
pub fn check(cluster: &Cluster, told: &Told) -> usize {
    cluster.settled();
    let logs: Vec<Vec<Value>> = cluster.running().map(|node| node.log_of("kv")).collect();
    assert!(logs.iter().all(|log| *log == logs[0]), "all nodes have the same log");
    let mut keys = BTreeMap::new();
    for (lsn, record) in (1..).zip(&logs[0]) {
        assert_eq!(record["lsn"], lsn.to_string(), "the log is dense");
        let writes = record["writes"].as_array().expect("writes");
        assert_eq!(writes.len(), 2, "both rows or none: {record}");
        let key = writes[0]["key"].as_str().expect("a key").trim_end_matches("/L").to_owned();
        assert!(keys.insert(key, record).is_none(), "committed twice: {record}");
    }
    for (key, (id, verdict)) in told.lock().unwrap().iter() {
        match verdict {
            Some(verdict) => {
                let record = keys.get(key).unwrap_or_else(|| panic!("acknowledged {key} is lost"));
                assert_eq!(record["version"], verdict["version"]);
            }
            None => {
                for node in cluster.running() {
                    // A node whose log is just returning to it is queried again.
                    let status = eventually("a final status", || {
                        let answer = node.get(&format!("/v1/txns/{id}?fence=true"));
                        (answer.status == 200).then_some(answer.body)
                    });
                    assert_eq!(status["status"] == "committed", keys.contains_key(key), "{status}");
                }
            }
        }
    }
    acknowledged(told, |_| true)
}

/// Returns incompressible text.
pub fn noise(bytes: usize, seed: u64) -> String {
    let mut state = seed;
    let digits = (0..bytes.div_ceil(16)).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        format!("{:016x}", state.rotate_left(17))
    });
    digits.collect()
}

/// Returns the oldest log position that a node still has.
pub fn oldest(node: &Node) -> u64 {
    let page = node.get("/v1/log?store=kv&after=0&limit=1");
    let at = if page.status == 410 { &page.body["oldest"] } else { &page.body["records"][0]["lsn"] };
    at.as_str().and_then(|lsn| lsn.parse().ok()).unwrap_or_else(|| panic!("{}", page.body))
}

/// Writes 100 rows of 100 kB in turn until the running nodes retain neither an entry that existed at the beginning nor
/// an image from that time.
pub fn until_forgotten(cluster: &Cluster, written: &mut u64) {
    let nodes: Vec<&Node> = cluster.running().collect();
    let begun = *written;
    // Each log allocates segments in sizes that double up to 64 MiB, so this number of rows is enough for several of
    // them.
    loop {
        assert!(*written < begun + 6_000, "the logs are not compacted");
        for _ in 0..25 {
            *written += 1;
            let (key, value) = (format!("row/{}", *written % 100), noise(100_000, *written));
            let body = json!({"writes": [{"op": "put", "store": "kv", "key": key, "value": value}]});
            assert_eq!(until_decided(&nodes, &new_id(), &body)["status"], "committed");
        }
        if nodes.iter().all(|node| oldest(node) > begun + 100) {
            return;
        }
    }
}
