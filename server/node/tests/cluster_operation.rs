//! What operators and engine authors meet in a cluster of real processes: what reads include, what errors, metrics and
//! statuses tell.

mod support;

use serde_json::{Value, json};
use support::cluster::Cluster;
use support::{Node, eventually, new_id};

/// Puts a row through one node, which may have to be asked again, and returns the verdict.
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
        // A node whose majority is away for a moment says so, and is asked again.
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
