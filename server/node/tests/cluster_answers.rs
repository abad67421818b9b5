//! What the nodes of a cluster answer about the past: repeats at a drained node, reads after a kill, fences.

mod support;

use serde_json::{Value, json};
use support::cluster::Cluster;
use support::history::until_decided;
use support::{Node, Response, eventually, new_id, taken};

/// Rounds of a kill and a read.
const KILLS: u64 = 6;

fn put(key: &str, value: u64) -> Value {
    json!({"writes": [{"op": "put", "store": "kv", "key": key, "value": value}]})
}

fn number(value: &Value) -> u64 {
    value.as_str().expect("a decimal string").parse().expect("a number")
}

#[test]
fn a_drained_node_answers_what_was_decided_before() {
    let cluster = Cluster::start(3);
    let [one, two] = [1, 2].map(|id| cluster.node(id));
    let (id, body) = (new_id(), put("a", 1));
    let committed = until_decided(&[one], &id, &body);
    cluster.settled();
    cluster.change(2, "drain");
    let commit = |id: &str, body: &Value| two.post(&format!("/v1/txns/{id}/commit"), body);
    // A drained node refuses new transactions, and no others.
    eventually("the node to be drained", || (commit(&new_id(), &put("b", 1)).status == 503).then_some(()));
    let expected = json!([200, "committed", committed["version"]]);
    let shown = |answer: &Response| json!([answer.status, answer.body["status"], answer.body["version"]]);
    assert_eq!(shown(&commit(&id, &body)), expected);
    let other = commit(&id, &put("a", 2));
    assert_eq!((other.status, &other.body["code"]), (422, &json!("body_mismatch")), "{}", other.body);
    let batch = json!({"txns": [{"txn_id": id, "writes": body["writes"]}]});
    let batch = two.post("/v1/txns/batch-commit", &batch);
    let item = &batch.body["results"][0];
    assert_eq!((batch.status, &item["status"], &item["version"]), (200, &json!("committed"), &committed["version"]));
    let aborted = two.post(&format!("/v1/txns/{id}/abort"), &json!({}));
    assert_eq!((aborted.status, &aborted.body["status"]), (200, &json!("committed")), "{}", aborted.body);
    cluster.change(2, "resume");
}

/// A node that is killed may have acknowledged entries that it did not know to be committed. After its restart, it answers
/// no read from before them.
#[test]
fn a_killed_node_serves_no_reads_older_than_what_it_acknowledged() {
    let mut cluster = Cluster::start(3);
    let read = |node: &Node, n: u64| match n % 3 {
        0 => node.get("/v1/stores/kv/rows/mine"),
        1 => node.post("/v1/stores/kv/rows/read", &json!({"read": [{"key": "mine"}]})),
        _ => node.post("/v1/txns", &json!({"read": [{"store": "kv", "key": "mine"}]})),
    };
    for n in 0..KILLS {
        let node = 1 + (n % 3) as u16;
        cluster.ready();
        let mut version = Value::Null;
        for i in 0..20 {
            let verdict = until_decided(&[cluster.node(node)], &new_id(), &put("mine", 100 * n + i));
            version = verdict["version"].clone();
        }
        cluster.take(node).kill();
        cluster.start_node(node);
        let answer = eventually("a read", || {
            let answer = read(cluster.node(node), n);
            matches!(answer.status, 200 | 201).then_some(answer.body)
        });
        let row = answer.get("rows").map_or(&answer, |rows| &rows[0]);
        assert_eq!((&row["version"], &row["value"]), (&version, &json!(100 * n + 19)), "round {n}: {answer}");
    }
}

#[test]
fn the_first_answer_to_a_fence_names_the_epoch_that_decided_it() {
    let cluster = Cluster::start(3);
    std::thread::scope(|scope| {
        for id in cluster.ids() {
            let node = cluster.node(id);
            scope.spawn(move || {
                for _ in 0..60 {
                    let path = format!("/v1/txns/{}", new_id());
                    let fenced = taken(|| node.get(&format!("{path}?fence=true"))).body;
                    let later = taken(|| node.get(&path)).body;
                    let shown = |answer: &Value| (answer["reason"].clone(), number(&answer["epoch"]));
                    assert_eq!(shown(&fenced), shown(&later), "{fenced}, and later {later}");
                    assert_eq!(fenced["reason"], "fenced");
                }
            });
        }
    });
}
