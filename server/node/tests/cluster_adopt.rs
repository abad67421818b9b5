//! A single node becomes the first node of a cluster: real processes, with all of the node's state.

#[path = "../../wasm/tests/hostile/mod.rs"]
mod hostile;
#[path = "support/rule.rs"]
mod rule;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rule::last_one_wins;
use serde_json::{Value, json};
use support::cluster::{Cluster, free_address};
use support::damage::{chunks, flip};
use support::history::until_decided;
use support::receiver::{Receiver, ok};
use support::{Node, eventually, new_id, taken};

/// A directory with a node that runs alone, and the files of the cluster that it turns into.
struct Grown {
    dir: tempfile::TempDir,
    receiver: Receiver,
    peer_port: String,
}

/// The node's responses to its clients.
struct Told {
    /// A row of `kv` with its version, and an older version.
    row: Value,
    older: Value,
    /// Ids, bodies and verdicts.
    committed: (String, Value, Value),
    aborted: (String, Value, Value),
    head: u64,
    log: Vec<Value>,
    only_log: Vec<Value>,
    keys: Value,
    /// The active plugin of each slot.
    slots: Vec<Value>,
}

fn number(value: &Value) -> u64 {
    value.as_str().and_then(|text| text.parse().ok()).expect("a number")
}

fn tribunal(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tribunal")).args(args).output().expect("it runs")
}

fn put_of(store: &str, key: &str, value: u64) -> Value {
    json!({"writes": [{"op": "put", "store": store, "key": key, "value": value}]})
}

fn commit(node: &Node, body: &Value) -> Value {
    let decided = until_decided(&[node], &new_id(), body);
    assert_eq!(decided["status"], "committed", "{decided}");
    decided
}

fn active(node: &Node) -> Vec<Value> {
    let slots = node.get("/v1/admin/plugins").body["slots"].as_array().expect("slots").clone();
    slots.iter().map(|slot| json!([slot["slot"], slot["active"]["name"], slot["active"]["digest"]])).collect()
}

fn members(node: &Node) -> usize {
    let info = node.get("/v1/cluster").body;
    info["nodes"].as_array().expect("nodes").iter().filter(|node| node["stage"] == "member").count()
}

fn offset(node: &Node) -> Option<u64> {
    let consumer = node.get("/v1/consumers/reader");
    (consumer.status == 200).then(|| number(&consumer.body["offsets"][0]["lsn"]))
}

impl Grown {
    fn new() -> Grown {
        let peer_port = free_address().rsplit_once(':').expect("a port").1.to_owned();
        let grown =
            Grown { dir: tempfile::tempdir().expect("a directory"), receiver: Receiver::new(|_, _| ok()), peer_port };
        let config = format!("listen = \"127.0.0.1:0\"\ndata = \"{}\"\n", grown.data().display());
        fs::write(grown.alone(), config).expect("written");
        grown
    }

    fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The configuration of the node while it runs alone.
    fn alone(&self) -> PathBuf {
        self.dir.path().join("alone.toml")
    }

    fn start_alone(&self) -> Result<Node, String> {
        serve(&self.alone())
    }

    fn adopt(&self) -> Output {
        self.adopt_as("grown", &self.peer_port)
    }

    fn adopt_as(&self, name: &str, port: &str) -> Output {
        let (config, out) = (self.alone(), self.dir.path());
        let paths = [&config, out].map(|path| path.to_str().expect("UTF-8"));
        tribunal(&[
            "cluster",
            "adopt",
            "--name",
            name,
            "--host",
            "127.0.0.1",
            "--peer-port",
            port,
            "--config",
            paths[0],
            "--out",
            paths[1],
        ])
    }

    fn refused(&self) -> String {
        let refused = self.adopt();
        assert!(!refused.status.success(), "{refused:?}");
        String::from_utf8_lossy(&refused.stderr).into_owned()
    }
}

fn serve(config: &Path) -> Result<Node, String> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.arg("serve").arg("--config").arg(config);
    Node::spawn(command)
}

/// Gives a node that runs alone every kind of state that it can have.
fn fill(node: &Node, receiver: &Receiver) -> Told {
    for (store, declaration) in [("kv", json!({"adaptor": "kv"})), ("events", json!({}))] {
        let declared = node.put(&format!("/v1/stores/{store}"), &declaration);
        assert!(declared.status < 300, "{}", declared.body);
    }
    for n in 0..300 {
        commit(node, &put_of("kv", &format!("row/{n}"), n));
    }
    (0..20).for_each(|n| _ = commit(node, &put_of("events", &format!("event/{n}"), n)));
    let pushed = node.put_wasm("/v1/admin/plugins/last", &last_one_wins());
    assert_eq!(pushed.status, 201, "{}", pushed.body);
    assert_eq!(node.post("/v1/admin/plugins/last/activate", &json!({})).status, 200);
    let webhook = json!({"kind": "webhook", "url": receiver.url(), "secret": "a secret of the receiver", "after": "0"});
    let registered = node.put("/v1/stores/events/push", &webhook);
    assert!(registered.status < 300, "{}", registered.body);
    eventually("the records to be delivered", || {
        (node.get("/v1/stores/events/push").body["acked_lsn"] == "20").then_some(())
    });
    let set = node.put("/v1/consumers/reader", &json!({"store": "kv", "lsn": "120"}));
    assert!(set.status < 300, "{}", set.body);
    let key = node.post("/v1/admin/keys", &json!({"name": "months-ago", "roles": ["operator"]}));
    assert!(key.status < 300, "{}", key.body);
    let decided = |body: Value, status: &str| {
        let id = new_id();
        let verdict = until_decided(&[node], &id, &body);
        assert_eq!(verdict["status"], status, "{verdict}");
        (id, body, verdict)
    };
    let committed = decided(put_of("kv", "kept", 7), "committed");
    let twice = json!({"writes": [{"op": "insert", "store": "kv", "key": "kept", "value": 8}]});
    let aborted = decided(twice, "aborted");
    assert!(node.contest("by the last").1);
    Told {
        row: node.get("/v1/stores/kv/rows/kept").body,
        older: node.get("/v1/stores/kv/rows/row%2F0").body["version"].clone(),
        committed,
        aborted,
        head: number(&node.get("/v1/stores/kv").body["head_lsn"]),
        log: node.log_of("kv"),
        only_log: node.log_of("events"),
        keys: node.get("/v1/admin/keys").body,
        slots: active(node),
    }
}

/// Checks that a node knows the responses that the single node had sent to its clients. A node that was added later has
/// no records of the epochs before: for their ids it responds that they were decided.
fn check(node: &Node, told: &Told, is_first: bool) {
    assert_eq!(node.get("/v1/stores/kv/rows/kept").body["version"], told.row["version"]);
    assert_eq!(node.get("/v1/stores/kv/rows/kept").body["value"], told.row["value"]);
    assert_eq!(node.get("/v1/stores/kv/rows/row%2F299").body["value"], 299);
    for (id, body, verdict) in [&told.committed, &told.aborted] {
        let path = format!("/v1/txns/{id}");
        // A node that has briefly lost its majority returns an error, and the request is retried.
        for known in [taken(|| node.get(&path)), taken(|| node.post(&format!("{path}/commit"), body))] {
            if is_first {
                assert_eq!((known.status, &known.body["status"]), (200, &verdict["status"]), "{}", known.body);
                assert_eq!(known.body["epoch"], verdict["epoch"], "{}", known.body);
            } else {
                assert_eq!((known.status, &known.body["code"]), (422, &json!("verdict_truncated")), "{}", known.body);
            }
        }
    }
    let other = node.post(&format!("/v1/txns/{}/commit", told.committed.0), &put_of("kv", "kept", 9));
    assert!(other.status >= 400, "another body under the same id: {}", other.body);
    // A current read is still valid, and an older one is stale.
    let update = |version: &Value| {
        json!({
            "reads": [{"store": "kv", "key": "kept", "version": version}],
            "writes": [{"op": "put", "store": "kv", "key": "checked", "value": 1}],
        })
    };
    let stale = until_decided(&[node], &new_id(), &update(&told.older));
    assert_eq!(stale["status"], "aborted", "{stale}");
    commit(node, &update(&told.row["version"]));
    assert_eq!(node.get("/v1/admin/keys").body, told.keys);
    assert_eq!(offset(node), Some(120));
}

#[test]
fn a_node_that_ran_alone_grows_to_three_and_loses_nothing() {
    let grown = Grown::new();
    let node = grown.start_alone().unwrap();
    let told = fill(&node, &grown.receiver);
    assert!(grown.refused().contains("Stop the node first"));
    // It may end in any way: only the log counts.
    node.kill();
    let adopted = grown.adopt();
    assert!(adopted.status.success(), "{}", String::from_utf8_lossy(&adopted.stderr));
    let again = grown.adopt();
    assert!(again.status.success(), "{}", String::from_utf8_lossy(&again.stderr));
    let alone = grown.start_alone().err().expect("it must not start alone");
    assert!(alone.contains("belongs to a member of a cluster"), "{alone}");

    let Grown { dir, receiver, .. } = grown;
    let mut cluster = Cluster::adopted(dir);
    cluster.start_node(1);
    cluster.ready();
    let first = cluster.node(1);
    check(first, &told, true);
    assert_eq!(active(first), told.slots);
    assert!(first.contest("by the last, again").1);
    // Positions continue, and the log is complete.
    assert_eq!(first.log_of("kv")[..told.log.len()], told.log[..]);
    assert_eq!(first.log_of("events"), told.only_log);
    let log: Vec<u64> = first.log_of("kv").iter().map(|record| number(&record["lsn"])).collect();
    assert_eq!(log, (1..=log.len() as u64).collect::<Vec<_>>());
    assert!(log.len() as u64 > told.head);
    commit(first, &put_of("events", "event/20", 20));
    eventually("the webhook to go on", || receiver.seen().contains(&21).then_some(()));
    let again = receiver.posts().iter().flat_map(|post| post.lsns()).filter(|lsn| *lsn == 1).count();
    assert_eq!(again, 1, "it is not delivered again");

    for id in [2, 3] {
        assert_eq!(cluster.add(), id);
        cluster.start_node(id);
        let ready = || cluster.running().all(|node| node.get("/readyz").status == 200).then_some(());
        eventually("the node to take transactions", ready);
    }
    cluster.ready();
    for node in cluster.running() {
        eventually("three members", || (members(node) == 3).then_some(()));
        check(node, &told, std::ptr::eq(node, cluster.node(1)));
        assert!(node.contest(&format!("by the last, on {}", node.url)).1);
    }
    commit(cluster.node(3), &put_of("kv", "from 3", 3));
    cluster.settled();
    let urls: Vec<&str> = cluster.running().map(|node| &*node.url).collect();
    eventually("all nodes to be well", || {
        let status = tribunal(&["cluster", "status", "--url", &urls.join(",")]);
        status.status.success().then_some(())
    });

    cluster.take(1).kill();
    for id in [2, 3] {
        check(cluster.node(id), &told, false);
        assert_eq!(cluster.node(id).get("/v1/stores/kv/rows/from%203").body["value"], 3);
    }
    commit(cluster.node(2), &put_of("events", "event/21", 21));
    eventually("another node to deliver", || receiver.seen().contains(&22).then_some(()));
    cluster.start_node(1);
    cluster.ready();
    cluster.settled();
    assert_eq!(cluster.node(1).log_of("kv")[..told.log.len()], told.log[..], "the first node still has all of it");
    assert_eq!(cluster.node(1).get("/v1/stores/kv/rows/from%203").body["value"], 3);
}

#[test]
fn what_cannot_be_adopted_is_refused_and_nothing_changes() {
    let grown = Grown::new();
    assert!(grown.refused().contains("there is no log in"));
    let node = grown.start_alone().unwrap();
    node.put("/v1/stores/kv", &json!({"adaptor": "kv"}));
    node.put_row("a", 1);
    assert!(node.stop().success());
    // With the files of another cluster in the way.
    let secret = grown.dir.path().join("cluster.secret");
    fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    assert!(grown.refused().contains("holds the files of another cluster"));
    fs::remove_file(&secret).unwrap();
    let alone = fs::read_to_string(grown.alone()).unwrap();
    let with = |secret: &str| {
        let push = format!("[push]\ncredentials = [{{ endpoint = \"db:5432\", user = \"shop\", {secret} }}]\n");
        fs::write(grown.alone(), alone.clone() + &push).unwrap();
    };
    with("password = \"word\"");
    assert!(grown.refused().contains("`push.credentials` of db:5432 contains a password"));
    // A path that is relative to the command's directory, which is not where the node starts later.
    with("password_file = \"Cargo.toml\"");
    // Names and addresses other than its current ones would have no effect.
    assert!(grown.adopt().status.success() && grown.adopt().status.success());
    for other in [grown.adopt_as("other", &grown.peer_port), grown.adopt_as("grown", "7999")] {
        let told = String::from_utf8_lossy(&other.stderr);
        assert!(!other.status.success() && told.contains("the first one of cluster grown, at 127.0.0.1:"), "{told}");
    }
    // It was interrupted before the note: the node continues alone, and the prepared state does not count.
    let copy = grown.dir.path().join("copy");
    assert!(Command::new("cp").arg("-a").arg(grown.data()).arg(&copy).status().unwrap().success());
    fs::remove_file(grown.data().join("member")).unwrap();
    let of_member = fs::read_to_string(grown.dir.path().join("node-1/tribunal.toml")).unwrap();
    let password_file = std::env::current_dir().unwrap().join("Cargo.toml");
    assert!(of_member.contains(&format!("password_file = {password_file:?}")), "{of_member}");
    let refused = serve(&grown.dir.path().join("node-1/tribunal.toml")).err().expect("it must not start");
    assert!(refused.contains("is not adopted") && refused.contains("cluster adopt"), "{refused}");
    fs::remove_dir_all(grown.data()).unwrap();
    let refused = serve(&grown.dir.path().join("node-1/tribunal.toml")).err().expect("it must not start empty");
    assert!(refused.contains("is not adopted"), "{refused}");
    let _ = fs::remove_dir_all(grown.data());
    fs::rename(&copy, grown.data()).unwrap();
    // The directory of a node that ran alone, and the secret of another cluster.
    fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    let refused = serve(&grown.dir.path().join("node-1/tribunal.toml")).err().expect("it must not start");
    assert!(refused.contains("tribunal cluster adopt"), "{refused}");
    fs::write(grown.alone(), of_member).unwrap();
    assert!(grown.refused().contains("has a [cluster]"));
}

/// The salvaged log has a new name, which an embedded store adopts even if nothing is written to it. An added node has
/// the store's rows, but none of the records that prove whose rows they are.
#[test]
fn rows_of_a_salvaged_log_are_on_nodes_that_are_added() {
    let grown = Grown::new();
    let node = grown.start_alone().unwrap();
    node.put("/v1/stores/kv", &json!({"adaptor": "kv"}));
    (0..40).for_each(|n| _ = commit(&node, &put_of("kv", &format!("row/{n}"), n)));
    node.kill();
    let (segment, outcomes) = chunks(&grown.data(), b'O');
    flip(&segment, outcomes[outcomes.len() / 2] + 3);
    let data = grown.data();
    let salvaged = tribunal(&["log", "salvage", "--accept-loss", "--data", data.to_str().expect("UTF-8")]);
    let told = String::from_utf8_lossy(&salvaged.stdout).into_owned();
    assert!(salvaged.status.success() && told.contains("new id"), "{salvaged:?}");
    assert!(grown.adopt().status.success());
    let mut cluster = Cluster::adopted(grown.dir);
    cluster.start_node(1);
    cluster.ready();
    let added = cluster.add();
    cluster.start_node(added);
    cluster.ready();
    for n in 0..40 {
        let row = cluster.node(added).get(&format!("/v1/stores/kv/rows/row%2F{n}"));
        assert_eq!((row.status, &row.body["value"]), (200, &json!(n)), "{}", row.body);
    }
}

/// The command is interrupted after its preparation, and after each later step that another process can see.
#[test]
fn an_interrupted_adoption_is_finished_by_the_next_one() {
    let grown = Grown::new();
    let node = grown.start_alone().unwrap();
    node.put("/v1/stores/kv", &json!({"adaptor": "kv"}));
    node.put_row("a", 1);
    assert!(node.stop().success());
    let (data, before) = (grown.data(), grown.dir.path().join("before"));
    let copy = |from: &Path, to: &Path| {
        let _ = fs::remove_dir_all(to);
        assert!(Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap().success());
    };
    copy(&data, &before);
    // A directory in the place of the note: everything is prepared, and the last step fails.
    fs::create_dir_all(data.join("member.new")).unwrap();
    assert!(grown.refused().contains("cannot write"));
    assert!(data.join("copied").is_dir());
    fs::remove_dir(data.join("member.new")).unwrap();
    let (prepared, files) = (grown.dir.path().join("prepared"), grown.dir.path().join("node-1/tribunal.toml"));
    copy(&data, &prepared);
    let refused = serve(&files).err().expect("it must not start");
    assert!(refused.contains("repeat it"), "{refused}");
    let node = grown.start_alone().unwrap();
    node.put_row("b", 2);
    assert!(node.stop().success());
    // The prepared state is outdated.
    assert!(grown.adopt().status.success());
    let node = serve(&files).unwrap();
    eventually("the node", || (node.get("/readyz").status == 200).then_some(()));
    assert_eq!(node.get("/v1/stores/kv/rows/b").body["value"], 2);
    node.kill();
    // Only the note was written.
    copy(&prepared, &data);
    fs::write(data.join("member"), "tribunal member 1\nnodes 1\nstage member\n").unwrap();
    let node = serve(&files).unwrap();
    eventually("the node", || (node.get("/readyz").status == 200).then_some(()));
    assert_eq!(node.get("/v1/stores/kv/rows/a").body["value"], 1);
    assert!(!data.join("copied").exists());
}
