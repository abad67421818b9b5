//! The limit on the bytes of a tenant's embedded stores in a cluster: every node has its own copies, and counts them.

mod support;

use serde_json::{Value, json};
use support::cluster::Cluster;
use support::keyed::{AUTH, call};
use support::{Node, Response, eventually, new_id, taken};

/// Bound of a tenant: nine rows.
const MAX: u64 = 1_000_000;
/// What a row takes in memory: its key of two characters, its value with its quotation marks, and 14 bytes.
const ROW_BYTES: u64 = 100_018;

/// A cluster of three nodes with the tenant `shop`, which has an embedded store.
struct Tenant {
    cluster: Cluster,
    /// A key of the service's operator, and one of the tenant.
    root: String,
    key: String,
}

impl Tenant {
    fn start() -> Tenant {
        let mut cluster = Cluster::prepare(3);
        for id in cluster.ids() {
            let file = cluster.node_dir(id).join("tribunal.toml");
            let config = std::fs::read_to_string(&file).expect("written");
            let auth = format!("{AUTH}tenant_stored_bytes_max = {MAX}\n[cluster]");
            std::fs::write(&file, config.replacen("[cluster]", &auth, 1)).expect("written");
        }
        cluster.start_all();
        let root = eventually("the key of the first operator", || {
            let token = std::fs::read_to_string(cluster.node_dir(1).join("data/operator.key")).ok()?;
            Some(token.trim().to_owned())
        });
        let new = json!({"name": "all", "namespace": "shop", "roles": ["engine", "store", "operator"]});
        let made = eventually("the tenant's key", || {
            let made = call(cluster.node(1), &root, "POST", "/v1/admin/keys", Some(&new));
            (made.status == 201).then_some(made.body)
        });
        let tenant = Tenant { cluster, root, key: made["key"].as_str().expect("a key").to_owned() };
        let declared = taken(|| tenant.call(1, "PUT", "/v1/stores/kv", Some(&json!({"adaptor": "kv"}))));
        assert_eq!(declared.status, 201, "{}", declared.body);
        (1..=3).for_each(|id| tenant.ready(id));
        tenant
    }

    fn node(&self, id: u16) -> &Node {
        self.cluster.node(id)
    }

    fn call(&self, id: u16, method: &str, path: &str, body: Option<&Value>) -> Response {
        call(self.node(id), &self.key, method, path, body)
    }

    fn ready(&self, id: u16) {
        eventually("a node to be ready", || {
            let is_there = |path: &str| self.call(id, "GET", path, None).status == 200;
            (is_there("/readyz") && is_there("/v1/stores/kv")).then_some(())
        });
    }

    /// Stops a node, which flushes the rows in memory, and starts it again.
    fn restart(&mut self, id: u16) {
        assert!(self.cluster.take(id).stop().success());
        self.cluster.start_node(id);
        self.ready(id);
    }

    /// Writes rows at a node in one transaction.
    fn commit(&self, id: u16, op: &str, keys: &[&str]) -> Response {
        let write = |key: &&str| match op {
            "delete" => json!({"op": op, "store": "kv", "key": key}),
            _ => json!({"op": op, "store": "kv", "key": key, "value": "x".repeat(100_000)}),
        };
        let body = json!({"writes": keys.iter().map(write).collect::<Vec<_>>()});
        let path = format!("/v1/txns/{}/commit", new_id());
        taken(|| self.call(id, "POST", &path, Some(&body)))
    }

    fn committed(&self, id: u16, op: &str, keys: &[&str]) {
        let answer = self.commit(id, op, keys);
        assert_eq!(answer.body["status"], "committed", "node {id}, {op}: {}", answer.body);
    }

    fn refused(&self, id: u16, keys: &[&str]) {
        let answer = self.commit(id, "put", keys);
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (429, &json!("stored_bytes_exceeded")),
            "node {id}: {}",
            answer.body
        );
    }

    /// Returns the bytes of a node's copy with every commit applied.
    fn stored(&self, id: u16) -> u64 {
        self.keys(id);
        let store = self.call(id, "GET", "/v1/stores/kv", None).body;
        store["stored_bytes"].as_str().unwrap_or_else(|| panic!("{store}")).parse().expect("a number")
    }

    /// Returns the keys of the rows that a node has with every commit applied.
    fn keys(&self, id: u16) -> Vec<String> {
        let rows = taken(|| self.call(id, "GET", "/v1/stores/kv/rows?consistency=fresh", None)).body;
        let rows = rows["rows"].as_array().unwrap_or_else(|| panic!("{rows}"));
        rows.iter().map(|row| row["key"].as_str().expect("text").to_owned()).collect()
    }

    /// Waits until all nodes have decided the same epochs.
    fn settled(&self) {
        eventually("all nodes to decide the same", || {
            let states = [1, 2, 3].map(|id| {
                let info = call(self.node(id), &self.root, "GET", "/v1/cluster", None);
                assert_eq!(info.status, 200, "{}", info.body);
                [info.body["epoch"].clone(), info.body["digest"].clone()]
            });
            assert!(states.iter().flatten().all(Value::is_string), "{states:?}");
            (states[0] == states[1] && states[0] == states[2]).then_some(())
        });
    }

    /// Waits until a node has room for `rows` more rows.
    fn has_room(&self, id: u16, rows: u64) {
        eventually("the room of deleted rows", || (self.stored(id) + rows * ROW_BYTES <= MAX).then_some(()));
    }
}

#[test]
fn every_node_refuses_a_tenant_over_its_bound_until_its_copy_is_compacted() {
    let mut tenant = Tenant::start();
    for n in 0..9 {
        tenant.committed(1 + n % 3, "put", &[&format!("k{n}")]);
    }
    for id in 1..=3 {
        assert_eq!(tenant.stored(id), 9 * ROW_BYTES, "node {id}");
        tenant.refused(id, &["no"]);
    }
    // From files, a row that is deleted later still counts.
    for id in 1..=3 {
        tenant.restart(id);
        assert!(tenant.stored(id) >= 9 * ROW_BYTES, "node {id}");
        tenant.refused(id, &["no"]);
    }
    for id in 1..=3 {
        let key = format!("k{}", id - 1);
        tenant.committed(id, "delete", &[&key]);
    }
    for id in 1..=3 {
        tenant.has_room(id, 1);
        let key = format!("a{id}");
        tenant.committed(id, "put", &[&key]);
    }
    for id in 1..=3 {
        assert_eq!(tenant.keys(id), ["a1", "a2", "a3", "k3", "k4", "k5", "k6", "k7", "k8"], "node {id}");
        tenant.refused(id, &["no"]);
    }
    tenant.settled();
}

#[test]
fn a_node_whose_copy_is_not_compacted_yet_refuses_what_others_take_and_decides_the_same() {
    let mut tenant = Tenant::start();
    let first = ["k0", "k1", "k2", "k3"];
    tenant.committed(1, "put", &first);
    // The third node has these versions in a file, so it counts those that replace them as well.
    tenant.restart(3);
    tenant.committed(2, "put", &first);
    let counts = [1, 2, 3].map(|id| tenant.stored(id));
    assert!(counts[..2] == [4 * ROW_BYTES; 2] && counts[2] >= 8 * ROW_BYTES, "{counts:?}");
    tenant.refused(3, &["k4", "k5"]);
    tenant.committed(1, "put", &["k4", "k5"]);
    let expected = ["k0", "k1", "k2", "k3", "k4", "k5"];
    for id in 1..=3 {
        assert_eq!(tenant.keys(id), expected, "node {id}");
    }
    tenant.committed(3, "delete", &["k0"]);
    tenant.settled();
    // It is over the bound now, which makes it compact.
    tenant.has_room(3, 4);
    tenant.committed(3, "put", &["k0", "k6", "k7", "k8"]);
    let expected = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8"];
    for id in 1..=3 {
        assert_eq!(tenant.keys(id), expected, "node {id}");
        tenant.refused(id, &["no"]);
    }
    // Each copy is the same from its files.
    for id in 1..=3 {
        tenant.restart(id);
        assert_eq!(tenant.keys(id), expected, "node {id}");
        tenant.refused(id, &["no"]);
    }
    tenant.settled();
}
