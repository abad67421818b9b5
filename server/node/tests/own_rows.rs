//! An engine that keeps its own rows: every epoch that the service names beside a position of a log is covered there, on
//! one node and on the nodes of a cluster, while transactions commit.

mod support;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use support::cluster::Cluster;
use support::{Node, eventually, taken};

/// Commits of each writer.
const COMMITS: usize = 150;

/// What the service claims: every commit up to `epoch` is at `lsn` or before.
#[derive(Debug)]
struct Claim {
    by: &'static str,
    lsn: u64,
    epoch: u64,
}

impl Claim {
    fn of(by: &'static str, lsn: &Value, epoch: &Value) -> Claim {
        Claim { by, lsn: number(lsn), epoch: number(epoch) }
    }
}

/// The copy of an engine: the records that it has applied.
#[derive(Default)]
struct Copy {
    records: Vec<Value>,
    lsn: u64,
}

impl Copy {
    /// Applies the next page of the log; returns what the page claims.
    fn pull(&mut self, node: &Node, limit: usize) -> Claim {
        let page = node.get(&format!("/v1/log?store=kv&after={}&limit={limit}", self.lsn)).body;
        self.records.extend(page["records"].as_array().expect("records").iter().cloned());
        self.lsn = number(&page["next"]);
        Claim::of("a page", &page["next"], &page["epoch"])
    }

    /// Returns the rows as of an epoch.
    fn rows_at(&self, epoch: u64) -> BTreeMap<String, Value> {
        let included = self.records.iter().filter(|record| number(&record["epoch"]) <= epoch);
        let writes = included.flat_map(|record| record["writes"].as_array().expect("writes"));
        writes.map(|write| (text(&write["key"]), write["value"].clone())).collect()
    }
}

fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{value} is no number"))
}

fn text(value: &Value) -> String {
    value.as_str().expect("a text").to_owned()
}

/// Begins transactions that read all rows, and brings the copy to each snapshot: it must have the same rows.
fn reads(node: &Node, ended: &AtomicBool) -> Vec<Claim> {
    let (mut copy, mut claims) = (Copy::default(), Vec::new());
    loop {
        let last = ended.load(Ordering::SeqCst);
        let begun = node.post("/v1/txns", &json!({"ranges": [{"store": "kv", "limit": 1_000}]})).body;
        let snapshot = number(&begun["snapshots"]["kv"]);
        claims.push(Claim::of("a Begin", &begun["lsn"]["kv"], &begun["snapshots"]["kv"]));
        let mut pages = 0;
        while claims.last().is_none_or(|claim| claim.by == "a Begin" || claim.epoch < snapshot) {
            claims.push(copy.pull(node, 7));
            pages += 1;
            assert!(pages < 10_000, "the copy at {} does not reach snapshot {snapshot}", copy.lsn);
        }
        let rows = begun["ranges"][0]["rows"].as_array().expect("rows");
        let rows: BTreeMap<_, _> = rows.iter().map(|row| (text(&row["key"]), row["value"].clone())).collect();
        assert_eq!(copy.rows_at(snapshot), rows, "at snapshot {snapshot}");
        if last {
            return claims;
        }
    }
}

/// Polls the other answers that name an epoch and a position.
fn polls(node: &Node, ended: &AtomicBool) -> Vec<Claim> {
    let mut claims = Vec::new();
    while !ended.load(Ordering::SeqCst) {
        let page = node.get("/v1/log?store=kv&after=0&limit=10000").body;
        claims.push(Claim::of("a long page", &page["next"], &page["epoch"]));
        let store = node.get("/v1/stores/kv").body;
        claims.push(Claim::of("a store", &store["head_lsn"], &store["committed"]));
        let snapshot = node.get("/v1/snapshot?store=kv").body;
        claims.push(Claim::of("a snapshot", &snapshot["head_lsn"], &snapshot["committed"]));
    }
    claims
}

/// Follows the log until an event claims `upto()`, which is 0 until it is known.
fn follows(node: &Node, upto: impl Fn() -> u64) -> Vec<Claim> {
    let agent = ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(120))).build().new_agent();
    let url = format!("{}/v1/log?store=kv&heartbeat_ms=100", node.url);
    let stream = agent.get(url).header("accept", "application/x-ndjson").call().expect("a stream");
    let mut lines = BufReader::new(stream.into_body().into_reader()).lines();
    let (mut claims, mut lsn) = (Vec::new(), 0);
    loop {
        let line: Value = serde_json::from_str(&lines.next().expect("it goes on").expect("a line")).expect("JSON");
        if line["event"].is_null() {
            lsn = number(&line["lsn"]);
            continue;
        }
        assert_eq!(line["event"], "heartbeat", "{line}");
        assert_eq!(number(&line["next"]), lsn, "it counts the records before it");
        claims.push(Claim::of("a heartbeat", &line["next"], &line["epoch"]));
        let upto = upto();
        if upto > 0 && claims.last().is_some_and(|claim| claim.epoch >= upto) {
            return claims;
        }
    }
}

/// Commits through `writer` while an engine reads through `reader`; then compares what was claimed with the whole log.
fn every_claim_holds(writer: &Node, reader: &Node) {
    assert!(matches!(writer.put("/v1/stores/other", &json!({})).status, 200 | 201));
    eventually("the store", || (reader.get("/v1/stores/other").status == 200).then_some(()));
    let (ended, last) = (AtomicBool::new(false), AtomicU64::new(0));
    let claims: Vec<Claim> = std::thread::scope(|scope| {
        let readers = [scope.spawn(|| reads(reader, &ended)), scope.spawn(|| polls(reader, &ended))];
        let follower = scope.spawn(|| follows(reader, || last.load(Ordering::SeqCst)));
        // Epochs with records of another store only, and epochs with records of both.
        let writers: Vec<_> = (0..3)
            .map(|n| {
                scope.spawn(move || {
                    for i in 0..COMMITS {
                        let store = if n == 0 { "other" } else { "kv" };
                        let write = json!({"op": "put", "store": store, "key": format!("k{}", i % 10), "value": i + n});
                        let verdict = taken(|| writer.commit(&json!({"writes": [write]}))).body;
                        assert_eq!(verdict["status"], "committed", "{verdict}");
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("commits"));
        let write = json!({"op": "put", "store": "other", "key": "last", "value": 1});
        let verdict = taken(|| writer.commit(&json!({"writes": [write]}))).body;
        ended.store(true, Ordering::SeqCst);
        last.store(number(&verdict["epoch"]), Ordering::SeqCst);
        let readers = readers.into_iter().flat_map(|reader| reader.join().expect("claims"));
        readers.collect::<Vec<_>>().into_iter().chain(follower.join().expect("claims")).collect()
    });
    let log: Vec<(u64, u64)> =
        writer.log_of("kv").iter().map(|record| (number(&record["lsn"]), number(&record["epoch"]))).collect();
    assert_eq!(log.len(), 2 * COMMITS);
    for claim in &claims {
        let late = log.iter().find(|(lsn, epoch)| *epoch <= claim.epoch && *lsn > claim.lsn);
        assert_eq!(late, None, "{claim:?}: this record is of the epoch, and after the position");
    }
    for by in ["a page", "a long page", "a heartbeat", "a Begin", "a store", "a snapshot"] {
        let claims: Vec<_> = claims.iter().filter(|claim| claim.by == by).collect();
        assert!(claims.iter().any(|claim| claim.epoch > 0 && claim.lsn < 2 * COMMITS as u64), "{by}: {claims:?}");
    }
}

#[test]
fn an_engine_knows_from_the_log_that_its_copy_covers_a_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    every_claim_holds(&node, &node);
}

#[test]
fn an_engine_that_follows_another_node_knows_it_too() {
    let cluster = Cluster::start(3);
    every_claim_holds(cluster.node(1), cluster.node(2));
    let begun = cluster.node(1).post("/v1/txns", &json!({"stores": ["kv"]})).body;
    let page = cluster.node(2).get("/v1/log?store=kv").body;
    assert!(begun["log"].is_string() && begun["log"] == page["log"], "all nodes have one log: {begun} {page}");
}

#[test]
fn the_log_that_positions_belong_to_is_named_wherever_there_are_some() {
    let dir = tempfile::tempdir().unwrap();
    let node = Node::start(dir.path());
    let log = node.get("/v1/log?store=kv").body["log"].clone();
    assert!(log.is_string(), "{log}");
    let begun = node.post("/v1/txns", &json!({"stores": ["kv"]})).body;
    let [store, snapshot] = ["/v1/stores/kv", "/v1/snapshot?store=kv"].map(|path| node.get(path).body);
    assert_eq!([&begun["log"], &store["log"], &snapshot["log"]], [&log; 3], "{begun} {store} {snapshot}");
}
