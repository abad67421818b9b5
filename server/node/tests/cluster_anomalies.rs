//! The anomaly table between two nodes of a real cluster: the first transaction commits at one node, the second at
//! another.
//!
//! `tests/tests/anomalies.rs` runs the same cases in the core, also within one epoch and with every witness. Here, two
//! nodes receive them over HTTP, one after the other and concurrently.

mod support;

use std::thread;

use serde_json::{Value, json};
use support::cluster::Cluster;
use support::history::until_decided;
use support::{Node, eventually, new_id};

const LEVELS: [&str; 4] = ["read-committed", "repeatable-read", "snapshot", "serializable"];
const READ: &str = "read_conflict";
const WRITE: &str = "write_conflict";
const RANGE: &str = "range_conflict";

/// The operations of a transaction on the rows of its case.
struct Does {
    reads: &'static [&'static str],
    /// Whether it scans the rows `r/...`.
    scans: bool,
    writes: &'static [(&'static str, &'static str)],
}

/// Two transactions that begin in the same state.
struct Case {
    name: &'static str,
    first: Does,
    second: Does,
    /// Rows that the second reads again after the first has committed.
    reads_again: &'static [&'static str],
    /// Why the second aborts after the first has committed, at each of [`LEVELS`].
    prevented: [Option<&'static str>; 4],
}

const CASES: [Case; 8] = [
    Case {
        name: "G0",
        first: Does { reads: &[], scans: false, writes: &[("put", "x"), ("put", "y")] },
        second: Does { reads: &[], scans: false, writes: &[("put", "x"), ("put", "y")] },
        reads_again: &[],
        prevented: [None, None, Some(WRITE), None],
    },
    Case {
        name: "G1c",
        first: Does { reads: &["y"], scans: false, writes: &[("put", "x")] },
        second: Does { reads: &["x"], scans: false, writes: &[("put", "y")] },
        reads_again: &[],
        prevented: [None, Some(READ), None, Some(READ)],
    },
    Case {
        name: "PMP",
        first: Does { reads: &[], scans: false, writes: &[("insert", "r/3")] },
        second: Does { reads: &[], scans: true, writes: &[("put", "z")] },
        reads_again: &[],
        prevented: [None, None, Some(RANGE), Some(RANGE)],
    },
    Case {
        name: "P4",
        first: Does { reads: &["x"], scans: false, writes: &[("update", "x")] },
        second: Does { reads: &["x"], scans: false, writes: &[("update", "x")] },
        reads_again: &[],
        prevented: [None, Some(READ), Some(WRITE), Some(READ)],
    },
    Case {
        name: "G-single",
        first: Does { reads: &[], scans: false, writes: &[("put", "x"), ("put", "y")] },
        second: Does { reads: &["x", "y"], scans: false, writes: &[("put", "z")] },
        reads_again: &["y"],
        prevented: [None, Some(READ), Some(READ), Some(READ)],
    },
    Case {
        name: "G2-item",
        first: Does { reads: &["x", "y"], scans: false, writes: &[("update", "x")] },
        second: Does { reads: &["x", "y"], scans: false, writes: &[("update", "y")] },
        reads_again: &[],
        prevented: [None, Some(READ), None, Some(READ)],
    },
    Case {
        name: "G2",
        first: Does { reads: &[], scans: true, writes: &[("insert", "r/3")] },
        second: Does { reads: &[], scans: true, writes: &[("insert", "r/4")] },
        reads_again: &[],
        prevented: [None, None, Some(RANGE), Some(RANGE)],
    },
    Case {
        name: "Fekete",
        first: Does { reads: &[], scans: false, writes: &[("update", "y")] },
        second: Does { reads: &["x", "y"], scans: false, writes: &[("update", "x")] },
        reads_again: &[],
        prevented: [None, Some(READ), None, Some(READ)],
    },
];

/// The rows of one run of a case, all with the same prefix.
struct Rows {
    prefix: String,
}

/// The reads of a transaction, and the node where it commits.
struct Begun<'n> {
    node: &'n Node,
    snapshots: Value,
    reads: Vec<Value>,
}

impl Rows {
    /// Writes the rows x and y.
    fn new(nodes: [&Node; 2], prefix: String) -> Rows {
        let rows = Rows { prefix };
        let writes = json!([rows.write("put", "x", "before"), rows.write("put", "y", "before")]);
        let verdict = until_decided(&[nodes[0]], &new_id(), &json!({"writes": writes}));
        assert_eq!(verdict["status"], "committed");
        rows
    }

    fn key(&self, row: &str) -> String {
        format!("{}/{row}", self.prefix)
    }

    fn write(&self, op: &str, row: &str, value: &str) -> Value {
        json!({"store": "kv", "op": op, "key": self.key(row), "value": value})
    }

    /// Begins a transaction at a node, in the state that all nodes have acknowledged.
    fn begin<'n>(&self, node: &'n Node, rows: &[&str]) -> Begun<'n> {
        let read: Vec<_> = rows.iter().map(|row| json!({"store": "kv", "key": self.key(row)})).collect();
        let mut body = json!({"stores": ["kv"], "consistency": "fresh"});
        if !read.is_empty() {
            body["read"] = read.into();
        }
        let begun = eventually("a snapshot", || {
            let begun = node.post("/v1/txns", &body);
            (begun.status < 300).then_some(begun.body)
        });
        let found = begun["rows"].as_array().into_iter().flatten();
        let reads = rows.iter().zip(found);
        let reads = reads.map(|(row, found)| json!({"store": "kv", "key": self.key(row), "version": found["version"]}));
        Begun { node, snapshots: begun["snapshots"].clone(), reads: reads.collect() }
    }

    /// Commits a transaction that writes its own name.
    fn commit(&self, begun: &Begun<'_>, does: &Does, level: &str, name: &str) -> Value {
        let writes: Vec<_> = does.writes.iter().map(|(op, row)| self.write(op, row, name)).collect();
        let mut body =
            json!({"isolation": level, "snapshots": begun.snapshots, "reads": begun.reads, "writes": writes});
        if does.scans {
            body["ranges"] = json!([{"store": "kv", "start": self.key("r/"), "end": self.key("r0")}]);
        }
        until_decided(&[begun.node], &new_id(), &body)
    }

    /// Returns a row's value on every node.
    fn values(&self, cluster: &Cluster, row: &str) -> Vec<Value> {
        cluster.running().map(|node| self.begin_value(node, row)).collect()
    }

    fn begin_value(&self, node: &Node, row: &str) -> Value {
        let body = json!({"read": [{"key": self.key(row)}], "consistency": "fresh"});
        let found = eventually("a row", || {
            let found = node.post("/v1/stores/kv/rows/read", &body);
            (found.status == 200).then_some(found.body)
        });
        found["rows"][0]["value"].clone()
    }
}

fn is_committed(verdict: &Value) -> bool {
    verdict["status"] == "committed"
}

/// Checks that two nodes agree on rows that every committed transaction wrote together.
fn check_unmixed(cluster: &Cluster, rows: &Rows, winner: Option<&str>) {
    let (x, y) = (rows.values(cluster, "x"), rows.values(cluster, "y"));
    assert_eq!(x, y, "G0: rows of two transactions are mixed");
    assert!(x.iter().all(|value| *value == x[0]), "the nodes differ: {x:?}");
    winner.iter().for_each(|winner| assert_eq!(x[0], *winner));
}

/// With the commits in this order, the second transaction encounters the outcome of the first.
fn one_after_the_other(cluster: &Cluster, nodes: [&Node; 2], case: &Case, at: usize) {
    let (level, name) = (LEVELS[at], case.name);
    let rows = Rows::new(nodes, format!("{name}/{level}/after/{}", nodes[0].url));
    let first = rows.begin(nodes[0], case.first.reads);
    let mut second = rows.begin(nodes[1], case.second.reads);
    let verdict = rows.commit(&first, &case.first, level, "first");
    assert!(is_committed(&verdict), "{name} at {level}: {verdict}");
    for row in case.reads_again {
        let again = rows.begin(nodes[1], &[row]).reads.remove(0);
        assert_eq!(again["version"], verdict["version"], "a fresh read on another node");
        let read = second.reads.iter_mut().find(|read| read["key"] == again["key"]);
        *read.expect("a row of the second") = again;
    }
    let verdict = rows.commit(&second, &case.second, level, "second");
    match case.prevented[at] {
        None => assert!(is_committed(&verdict), "{name} is permitted at {level}: {verdict}"),
        Some(reason) => {
            assert_eq!(verdict["status"], "aborted", "{name} at {level}");
            assert_eq!(verdict["reason"], reason, "{name} at {level}: {verdict}");
        }
    }
    if name == "G0" {
        check_unmixed(cluster, &rows, Some(if is_committed(&verdict) { "second" } else { "first" }));
    }
}

/// With concurrent commits, in one epoch or in two, the anomaly is prevented as well. Either transaction may abort.
fn at_once(cluster: &Cluster, nodes: [&Node; 2], case: &Case, at: usize) {
    let (level, name) = (LEVELS[at], case.name);
    let rows = Rows::new(nodes, format!("{name}/{level}/at once/{}", nodes[0].url));
    let first = rows.begin(nodes[0], case.first.reads);
    let second = rows.begin(nodes[1], case.second.reads);
    let verdicts = thread::scope(|scope| {
        let other = scope.spawn(|| rows.commit(&second, &case.second, level, "second"));
        [rows.commit(&first, &case.first, level, "first"), other.join().expect("no panic")]
    });
    let committed = verdicts.iter().filter(|verdict| is_committed(verdict)).count();
    assert!(committed >= 1, "{name} at {level}: {verdicts:?}");
    if let (2, Some(reason)) = (committed, case.prevented[at]) {
        let epochs =
            verdicts.each_ref().map(|verdict| verdict["epoch"].as_str().and_then(|epoch| epoch.parse::<u64>().ok()));
        let [first, second] = epochs.map(|epoch| epoch.expect("an epoch"));
        // A first transaction that reads nothing may be ordered after the second. Snapshot isolation protects neither
        // ranges within an epoch nor rows that are only read, if all rows are as of one snapshot: nothing is read again
        // here.
        let is_blind = case.first.reads.is_empty() && !case.first.scans;
        let is_before = is_blind && reason != WRITE && second <= first;
        let is_unprotected = level == "snapshot" && (reason == READ || reason == RANGE && second == first);
        let is_permitted = is_before || is_unprotected;
        assert!(is_permitted, "{name} is prevented at {level}: {verdicts:?}");
    }
    if name == "G0" {
        check_unmixed(cluster, &rows, None);
    }
}

/// G1a: no write of an aborted transaction is read on another node.
fn aborted_writes_are_invisible(cluster: &Cluster, nodes: [&Node; 2], level: &str) {
    let rows = Rows::new(nodes, format!("G1a/{level}"));
    let begun = rows.begin(nodes[0], &[]);
    let missing = Does { reads: &[], scans: false, writes: &[("put", "x"), ("update", "missing")] };
    let verdict = rows.commit(&begun, &missing, level, "first");
    assert_eq!((&verdict["status"], &verdict["reason"]), (&json!("aborted"), &json!("row_missing")));
    let begun = rows.begin(nodes[1], &["x"]);
    let reader = Does { reads: &["x"], scans: false, writes: &[("put", "z")] };
    assert!(is_committed(&rows.commit(&begun, &reader, level, "second")));
    assert!(rows.values(cluster, "x").iter().all(|value| value == "before"));
}

/// OTV: a transaction that has read one row of another transaction on one node does not read the other row as it was
/// before.
fn an_observed_transaction_does_not_vanish(nodes: [&Node; 3], level: &str) {
    let rows = Rows::new([nodes[0], nodes[1]], format!("OTV/{level}"));
    let both = Does { reads: &[], scans: false, writes: &[("put", "x"), ("put", "y")] };
    let mut seen = Vec::new();
    for (node, name) in nodes.into_iter().zip(["first", "second"]) {
        assert!(is_committed(&rows.commit(&rows.begin(node, &[]), &both, level, name)));
        seen.push(rows.begin(nodes[2], &["x", "y"]));
    }
    let [of_first, of_second] = &mut seen[..] else { panic!("two") };
    let reader = Does { reads: &["x", "y"], scans: false, writes: &[("put", "z")] };
    of_second.reads[0] = of_first.reads[0].clone();
    let verdict = rows.commit(of_second, &reader, level, "third");
    assert_eq!(is_committed(&verdict), level == "read-committed", "{level}: {verdict}");
}

#[test]
fn two_nodes_prevent_what_each_level_forbids() {
    let cluster = Cluster::start(3);
    let [one, two, three] = [1, 2, 3].map(|id| cluster.node(id));
    for (at, level) in LEVELS.into_iter().enumerate() {
        for case in &CASES {
            for nodes in [[one, two], [three, one]] {
                one_after_the_other(&cluster, nodes, case, at);
                at_once(&cluster, nodes, case, at);
            }
        }
        aborted_writes_are_invisible(&cluster, [two, three], level);
        an_observed_transaction_does_not_vanish([one, two, three], level);
    }
    cluster.settled();
}
