//! Nodes are added to a cluster of real processes and removed from it while clients commit.

mod support;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::cluster::Cluster;
use support::history::{Told, acknowledged, check, insert, load, noise, oldest, put, taken_in_alone, until_decided};
use support::{Caller, Node, eventually, eventually_within, new_id, taken};
use tribunal_peer::{Authority, NodeCertificate};
use tribunal_types::NodeId;

const REMOVED: &str = "the cluster has removed this node";

/// Runs a node until it exits by itself; returns its stderr.
fn until_ended(command: Command) -> String {
    Node::spawn(command).map_or_else(|stderr| stderr, |node| node.ended().1)
}

/// Returns the stage of each node, as one of them sees it.
fn stages(node: &Node) -> Vec<(u64, String)> {
    let info = node.get("/v1/cluster").body;
    let nodes = info["nodes"].as_array().expect("nodes");
    let stage = |node: &Value| (node["node"].as_u64().unwrap(), node["stage"].as_str().unwrap().to_owned());
    nodes.iter().map(stage).collect()
}

/// Waits until all running nodes see exactly these members.
fn until_members(cluster: &Cluster, members: &[u64]) {
    let expected: Vec<(u64, String)> = members.iter().map(|node| (*node, "member".to_owned())).collect();
    for node in cluster.running() {
        eventually("the members", || (stages(node) == expected).then_some(()));
    }
}

fn row(node: &Node, key: &str) -> Value {
    node.get(&format!("/v1/stores/kv/rows/{key}")).body["value"].clone()
}

/// Commits through one node.
fn commit(node: &Node, key: &str) {
    assert_eq!(until_decided(&[node], &new_id(), &insert(key))["status"], "committed");
}

/// Runs transactions on all running nodes while `act` runs, and for a while before and after it.
fn under_load<T>(cluster: &Cluster, told: &Told, name: &str, act: impl FnOnce() -> T) -> T {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for (n, node) in cluster.running().enumerate() {
            let (stop, name) = (&stop, format!("{name}-{n}"));
            scope.spawn(move || load(node, &name, told, stop));
        }
        let progress = || {
            let acknowledged = || acknowledged(told, |key| key.starts_with(name));
            let goal = acknowledged() + 30;
            eventually("commits", || (acknowledged() >= goal).then_some(()));
        };
        progress();
        let done = act();
        progress();
        stop.store(true, Ordering::Relaxed);
        done
    })
}

#[test]
fn nodes_are_added_and_removed_under_load_and_nothing_is_lost() {
    let mut cluster = Cluster::start(3);
    let told = Told::default();
    under_load(&cluster, &told, "before", || ());
    let id = cluster.add();
    assert_eq!(id, 4);
    eventually("the node to be shown", || stages(cluster.node(1)).contains(&(4, "joining".into())).then_some(()));
    let command = cluster.command(4);
    let added = under_load(&cluster, &told, "joining", || {
        let added = Node::spawn(command).unwrap_or_else(|stderr| panic!("{stderr}"));
        eventually("the node to take transactions", || (added.get("/readyz").status == 200).then_some(()));
        added
    });
    cluster.insert(4, added);
    until_members(&cluster, &[1, 2, 3, 4]);
    assert_eq!(until_decided(&[cluster.node(4)], &new_id(), &insert("from-4"))["status"], "committed");
    // It could not report its own removal.
    let own = &cluster.node(2).url;
    let asked = Command::new(env!("CARGO_BIN_EXE_tribunal")).args(["cluster", "remove", "2", "--url", own]).output();
    let asked = asked.expect("it runs");
    let refused = String::from_utf8_lossy(&asked.stderr);
    assert!(!asked.status.success() && refused.contains("name another node with --url"), "{refused}");
    assert_eq!(stages(cluster.node(1)).len(), 4, "nothing has begun");
    assert!(stages(cluster.node(1)).iter().all(|(_, stage)| stage == "member"), "nothing has begun");
    // A node that accepts transactions, and may lead the configuration changes.
    under_load(&cluster, &told, "leaving", || cluster.remove(2));
    let (status, stderr) = cluster.take(2).ended();
    assert!(status.success() && stderr.contains(REMOVED), "a removal is no failure: {status} {stderr}");
    // Its directory notes the removal.
    let again = cluster.command(2).output().expect("it ends");
    let stderr = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.success() && stderr.contains(REMOVED), "it would be restarted: {} {stderr}", again.status);
    until_members(&cluster, &[1, 3, 4]);
    let metrics = || cluster.node(1).get("/metrics").body.as_str().expect("text").to_owned();
    eventually("node 1 to be connected to node 4", || {
        metrics().contains("tribunal_peer_connected{peer=\"4\"} 1").then_some(())
    });
    let metrics = metrics();
    assert!(!metrics.contains("peer=\"2\""), "a node that was removed is not missing: {metrics}");
    // A broken node. From then on, a majority of the three others decides.
    cluster.take(3).kill();
    under_load(&cluster, &told, "broken", || cluster.remove(3));
    until_members(&cluster, &[1, 4]);
    assert!(check(&cluster, &told) > 100);
    for node in cluster.running() {
        assert_eq!(row(node, "from-4%2FL"), 1);
    }
    // It was down, so the nodes that removed it notify it.
    let late = until_ended(cluster.command(3));
    assert!(late.contains(REMOVED), "{late}");
    // All of them stop, and continue unchanged.
    for id in [1, 4] {
        assert!(cluster.take(id).stop().success());
    }
    for id in [1, 4] {
        cluster.start_node(id);
    }
    cluster.ready();
    put(cluster.node(4), "after", 5);
    cluster.settled();
}

#[test]
fn a_node_is_added_whose_entries_are_gone_and_copies_the_state_of_another() {
    let mut cluster = Cluster::start_with(3, "[log]\nretention_hours = 0\nimage_every_bytes = 1048576\n");
    let mut written = 0;
    eventually_within(Duration::from_secs(600), "the logs of all nodes to be truncated", || {
        for _ in 0..25 {
            written += 1;
            let (key, value) = (format!("row/{}", written % 100), noise(100_000, written));
            let body = json!({"writes": [{"op": "put", "store": "kv", "key": key, "value": value}]});
            let nodes: Vec<&Node> = cluster.running().collect();
            assert_eq!(until_decided(&nodes, &new_id(), &body)["status"], "committed");
        }
        cluster.running().all(|node| oldest(node) > 1).then_some(())
    });
    let id = cluster.add();
    cluster.start_node(id);
    until_members(&cluster, &[1, 2, 3, 4]);
    cluster.ready();
    cluster.settled();
    assert!(oldest(cluster.node(id)) > 1, "it has not the older records");
    for number in written - 99..=written {
        assert_eq!(row(cluster.node(id), &format!("row%2F{}", number % 100)), noise(100_000, number));
    }
    // It is a full member: with another one down, the cluster continues.
    cluster.take(1).kill();
    put(cluster.node(id), "after", 1);
    cluster.take(2).kill();
    cluster.start_node(1);
    put(cluster.node(id), "after", 2);
    cluster.settled();
}

#[test]
fn a_node_that_is_added_over_https_starts_with_the_configuration_as_written() {
    let cluster = Cluster::prepare(1);
    let (dir, file) = (cluster.dir(), cluster.node_dir(1).join("tribunal.toml"));
    let text = |file: &std::path::Path| std::fs::read_to_string(file).expect("written");
    let plain = text(&file);
    let (certificate_pem, key_pem) = (text(&dir.join("authority.pem")), text(&dir.join("authority.key")));
    let authority = Authority::restore("test", &NodeCertificate { certificate_pem, key_pem }).expect("an authority");
    let api = authority.node_certificate(NodeId(1), &["127.0.0.1".to_owned()]).expect("a certificate");
    let (cert_file, key_file) = (dir.join("api.pem"), dir.join("api.key"));
    std::fs::write(&cert_file, api.certificate_pem).expect("written");
    std::fs::write(&key_file, api.key_pem).expect("written");
    let tls = format!("[tls]\ncert_file = {cert_file:?}\nkey_file = {key_file:?}\n");
    std::fs::write(&file, plain.clone() + &tls).expect("written");
    let one = Node::spawn(cluster.command(1)).unwrap_or_else(|error| panic!("{error}"));
    // Allowed only on the node's own machine.
    std::fs::write(&file, plain).expect("written");
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        command.args(words).arg("--ca-file").arg(dir.join("authority.pem")).env("TRIBUNAL_URL", &one.url);
        command.output().expect("it runs")
    };
    let added = eventually("the cluster to admit a node", || {
        let added = run(&["cluster", "add", "--files", dir.to_str().expect("a path")]);
        added.status.success().then_some(added)
    });
    let told = String::from_utf8_lossy(&added.stdout);
    assert!(told.contains("uses TLS with the certificate of the node") && told.contains("--ca-file"), "{told}");
    let two = Node::spawn(cluster.command(2)).unwrap_or_else(|error| panic!("{error}"));
    assert!(two.url.starts_with("https://"), "{}", two.url);
    let config = text(&cluster.node_dir(2).join("tribunal.toml"));
    let own = config.split("[cluster]").nth(1).and_then(|rest| rest.split("listen = \"").nth(1)).expect("an address");
    let peers = format!("https://{}", own.split('"').next().expect("an address"));
    let refused = run(&["store", "ls", "--url", &peers]);
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && told.contains("the port of a node for other nodes"), "{told}");
    let url = [&*one.url, &*two.url].join(",");
    eventually("both nodes to be well", || run(&["cluster", "status", "--url", &url]).status.success().then_some(()));
}

#[test]
fn a_number_belongs_to_one_directory() {
    let mut cluster = Cluster::start(3);
    let id = cluster.add();
    cluster.start_node(id);
    until_members(&cluster, &[1, 2, 3, 4]);
    cluster.take(id).kill();
    let (data, aside) = (cluster.node_dir(id).join("data"), cluster.dir().join("aside"));
    std::fs::rename(&data, &aside).unwrap();
    let wiped = until_ended(cluster.command(id));
    assert!(wiped.contains("another data directory"), "{wiped}");
    std::fs::remove_dir_all(&data).unwrap();
    std::fs::rename(&aside, &data).unwrap();
    cluster.start_node(id);
    cluster.ready();
    put(cluster.node(id), "row", 1);
}

#[test]
fn a_node_that_starts_before_it_is_admitted_waits_and_says_so() {
    let mut cluster = Cluster::start(3);
    let four = cluster.add();
    cluster.start_node(four);
    until_members(&cluster, &[1, 2, 3, 4]);
    cluster.take(four).kill();
    // The files of a node that was never admitted: made by another cluster's command, for example.
    let authority = tribunal_peer::Authority::restore(
        "test",
        &tribunal_peer::NodeCertificate {
            certificate_pem: std::fs::read_to_string(cluster.dir().join("authority.pem")).unwrap(),
            key_pem: std::fs::read_to_string(cluster.dir().join("authority.key")).unwrap(),
        },
    )
    .unwrap();
    let certificate = authority.node_certificate(tribunal_types::NodeId(5), &[]).unwrap();
    let (from, to) = (cluster.node_dir(4), cluster.node_dir(5));
    std::fs::create_dir(&to).unwrap();
    std::fs::write(to.join("node.pem"), certificate.certificate_pem).unwrap();
    std::fs::write(to.join("node.key"), certificate.key_pem).unwrap();
    let address = support::cluster::free_address();
    let config = std::fs::read_to_string(from.join("tribunal.toml")).unwrap();
    let config: String = config.lines().map(|line| of_fifth(line, &address) + "\n").collect();
    let config = config + &format!("[[cluster.nodes]]\nid = 5\naddress = \"{address}\"\n");
    let api = support::cluster::free_address();
    let config = config.replacen("listen = \"127.0.0.1:0\"", &format!("listen = \"{api}\""), 1);
    std::fs::write(to.join("tribunal.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_tribunal"));
    command.arg("serve").arg("--config").arg(to.join("tribunal.toml"));
    let early = std::thread::spawn(|| Node::spawn(command));
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    eventually("the node to say what it waits for", || {
        let mut answer = agent.get(format!("http://{api}/readyz")).call().ok()?;
        assert_eq!(answer.status().as_u16(), 503);
        let told = answer.body_mut().read_to_string().ok()?;
        // With the reason for which the other nodes refuse it.
        (told.contains("tribunal cluster add") && told.contains("does not have node 5 among its peers")).then_some(())
    });
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(stages(cluster.node(1)).len(), 4);
    let admitted = taken(|| cluster.node(1).post("/v1/cluster/nodes", &json!({"address": address})));
    assert_eq!((admitted.status, &admitted.body["node"]), (201, &json!(5)), "{}", admitted.body);
    let early = early.join().unwrap().unwrap_or_else(|stderr| panic!("{stderr}"));
    eventually("the node to be a member", || (early.get("/readyz").status == 200).then_some(()));
    // A repeated request adds no other node; another address under this name would.
    let add = |node: &Value| taken(|| cluster.node(2).post("/v1/cluster/nodes", node));
    let again = add(&json!({"address": address}));
    assert_eq!((again.status, &again.body["node"]), (201, &json!(5)));
    let other = add(&json!({"address": "127.0.0.1:9", "name": address}));
    assert_eq!((other.status, &other.body["code"]), (422, &json!("node_name_taken")), "{}", other.body);
}

/// Returns a line of node 4's configuration as node 5's contains it.
fn of_fifth(line: &str, address: &str) -> String {
    if line.starts_with("node = ") {
        return "node = 5".into();
    }
    // The first `listen` is that of the API, on any port.
    if line.starts_with("listen = ") && !line.ends_with(":0\"") {
        return format!("listen = \"{address}\"");
    }
    line.replace("node-4", "node-5")
}

#[test]
fn a_node_is_drained_under_load_and_resumes_and_nothing_is_lost() {
    let mut cluster = Cluster::start(3);
    let told = Told::default();
    under_load(&cluster, &told, "drained", || cluster.change(2, "drain"));
    let is_drained = |node: &Node| eventually("2 to be drained", || (stages(node)[1].1 == "drained").then_some(()));
    is_drained(cluster.node(1));
    let own = &cluster.node(1).url;
    let shown = Command::new(env!("CARGO_BIN_EXE_tribunal")).args(["cluster", "status", "--url", own]).output();
    let shown = String::from_utf8_lossy(&shown.expect("it runs").stdout).into_owned();
    assert!(shown.contains(&format!("cluster resume 2 --url {own}")), "{shown}");
    eventually("a refusal that says so", || {
        let refused = cluster.node(2).post(&format!("/v1/txns/{}/commit", new_id()), &insert("at-2"));
        assert_eq!(refused.status, 503, "{}", refused.body);
        refused.body["detail"].as_str().unwrap_or_default().contains("is drained").then_some(())
    });
    // It has the state of the other nodes, and serves reads.
    commit(cluster.node(1), "row");
    let fresh = json!({"read": [{"key": "row/L"}], "consistency": "fresh"});
    eventually("a fresh read", || {
        let read = cluster.node(2).post("/v1/stores/kv/rows/read", &fresh);
        (read.status == 200).then(|| assert_eq!(read.body["rows"][0]["value"], 1))
    });
    // It stays drained after a restart, and it still votes: the cluster keeps its majority while another node is down.
    assert!(cluster.take(2).stop().success());
    cluster.start_node(2);
    cluster.take(3).kill();
    commit(cluster.node(1), "one-is-away");
    is_drained(cluster.node(2));
    // The last node that accepts commits can be neither drained nor removed.
    cluster.start_node(3);
    cluster.change(3, "drain");
    for (method, path) in [("POST", "/v1/cluster/nodes/1/drain"), ("DELETE", "/v1/cluster/nodes/1")] {
        let node = cluster.node(1);
        let refused = taken(|| if method == "POST" { node.post(path, &json!({})) } else { node.delete(path) });
        assert_eq!((refused.status, &refused.body["code"]), (422, &json!("last_serving")), "{}", refused.body);
    }
    // A drained node forwards changes, including one of itself.
    assert_eq!(taken(|| cluster.node(2).post("/v1/cluster/nodes/2/resume", &json!({}))).status, 202);
    cluster.change(3, "resume");
    cluster.ready();
    until_members(&cluster, &[1, 2, 3]);
    under_load(&cluster, &told, "resumed", || ());
    for id in 1..=3 {
        commit(cluster.node(id), &format!("resumed-{id}"));
    }
    assert!(check(&cluster, &told) > 50);
}

#[test]
fn what_cannot_be_added_or_removed_is_refused_with_a_reason() {
    let cluster = Cluster::start(3);
    let node = cluster.node(1);
    for body in [json!({}), json!({"address": "nowhere"}), json!({"address": "a:70000"}), json!({"address": ""})] {
        let refused = node.post("/v1/cluster/nodes", &body);
        assert_eq!(refused.status, 400, "{body}: {}", refused.body);
    }
    for path in ["9", "x", "70000", ""] {
        assert_eq!(node.delete(&format!("/v1/cluster/nodes/{path}")).status, 404, "{path}");
        assert_eq!(node.post(&format!("/v1/cluster/nodes/{path}/drain"), &json!({})).status, 404, "{path}");
    }
    let files = tempfile::tempdir().unwrap();
    let add = |files: &std::path::Path, more: &[&str]| {
        let run = Command::new(env!("CARGO_BIN_EXE_tribunal"))
            .args(["cluster", "add", "--url", &node.url, "--files"])
            .arg(files)
            .args(more)
            .output()
            .unwrap();
        assert!(!run.status.success());
        String::from_utf8(run.stderr).unwrap()
    };
    let address = cluster.node(2).get("/v1/cluster").body["nodes"][0]["address"].clone();
    let refused = taken(|| node.post("/v1/cluster/nodes", &json!({"address": address})));
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("node_address_taken")), "{}", refused.body);
    let nothing = add(files.path(), &[]);
    assert!(nothing.contains("has no authority and secret") && nothing.contains("--files"), "{nothing}");
    // Another authority of the same name: the nodes would refuse the certificate.
    let foreign = tempfile::tempdir().unwrap();
    std::fs::create_dir(foreign.path().join("node-1")).unwrap();
    for file in ["cluster.secret", "node-1/tribunal.toml"] {
        std::fs::copy(cluster.dir().join(file), foreign.path().join(file)).unwrap();
    }
    let authority = Authority::create("test").unwrap();
    std::fs::write(foreign.path().join("authority.pem"), authority.certificate_pem()).unwrap();
    std::fs::write(foreign.path().join("authority.key"), authority.key_pem()).unwrap();
    let other = add(foreign.path(), &[]);
    assert!(
        other.contains("is not the one that the nodes of the cluster trust") && other.contains("--files"),
        "{other}"
    );
    let alone = Node::start(&files.path().join("data"));
    let refused = alone.post("/v1/cluster/nodes", &json!({"address": "a:1"}));
    assert_eq!((refused.status, &refused.body["code"]), (422, &json!("runs_alone")), "{}", refused.body);
    assert_eq!(alone.delete("/v1/cluster/nodes/0").status, 422);
    assert_eq!(stages(node), [1, 2, 3].map(|id| (id, "member".to_owned())), "nothing has changed");
}

/// Returns the content of the files in a directory and below it.
fn files(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

/// Returns the range in which two files differ. A missing part reads as zeros.
fn difference(before: &[u8], after: &[u8]) -> Option<Range<usize>> {
    let differs = |at: &usize| after[*at] != before.get(*at).copied().unwrap_or_default();
    let first = (0..after.len()).find(differs)?;
    Some(first..(0..after.len()).rfind(differs)? + 1)
}

#[test]
fn a_recovery_that_a_power_cut_has_interrupted_is_repeated_before_the_node_starts() {
    const CUTS: usize = 8;
    let mut cluster = Cluster::start(3);
    put(cluster.node(2), "before", 1);
    cluster.settled();
    (1..=3).for_each(|id| cluster.take(id).kill());
    let data = cluster.node_dir(1).join("data");
    let before = files(&data);
    let (success, accepted) = cluster.recover(1, &["--accept-loss"]);
    assert!(success, "{accepted}");
    let after = files(&data);
    let old = |path: &Path| before.get(path).cloned().unwrap_or_default();
    let is_segment = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("log-"));
    let changed = after.iter().filter(|(path, _)| is_segment(path));
    let changed = changed.filter_map(|(path, bytes)| Some((path, bytes, difference(&old(path), bytes)?)));
    let [(segment, bytes, written)] = &changed.collect::<Vec<_>>()[..] else { panic!("it writes one segment") };
    for cut in 0..=CUTS {
        // The writes up to some position have survived.
        after.keys().filter(|path| !before.contains_key(*path)).for_each(|path| _ = std::fs::remove_file(path));
        before.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
        let upto = written.start + written.len() * cut / CUTS;
        let mut survived = old(segment);
        survived.resize(bytes.len(), 0);
        survived[..upto].copy_from_slice(&bytes[..upto]);
        std::fs::write(segment, survived).unwrap();
        std::fs::write(data.join("recover-unfinished"), "").unwrap();
        let refused = until_ended(cluster.command(1));
        assert!(refused.contains("was interrupted") && refused.contains("--accept-loss"), "{refused}");
        let (success, again) = cluster.recover(1, &["--accept-loss"]);
        assert!(success && again.contains("the only member now"), "cut {cut}: {again}");
        cluster.start_node(1);
        cluster.ready();
        until_members(&cluster, &[1]);
        put(cluster.node(1), &format!("after cut {cut}"), 1);
        assert_eq!(row(cluster.node(1), "before"), json!(1));
        cluster.take(1).kill();
    }
}

#[test]
fn no_node_goes_on_alone_while_one_lives_that_was_added_later() {
    let mut cluster = Cluster::start(3);
    let added = cluster.add();
    cluster.start_node(added);
    cluster.ready();
    until_members(&cluster, &[1, 2, 3, u64::from(added)]);
    cluster.settled();
    (1..=3).for_each(|id| cluster.take(id).kill());
    // The configuration of node 1 does not contain it.
    let (success, refused) = cluster.recover(1, &["--accept-loss"]);
    assert!(!success && refused.contains(&format!("node {added} answers at")), "{refused}");
    cluster.take(added).kill();
    let (success, accepted) = cluster.recover(1, &["--accept-loss"]);
    assert!(success && accepted.contains(&format!("Removed: node 2, 3, {added}")), "{accepted}");
}

#[test]
fn one_node_goes_on_alone_after_the_others_were_lost_and_says_what_was_in_doubt() {
    let mut cluster = Cluster::start(3);
    let told = Told::default();
    under_load(&cluster, &told, "before", || ());
    // While a majority is alive, there is nothing to recover.
    assert!(cluster.take(3).stop().success());
    let (success, living) = cluster.recover(3, &["--accept-loss"]);
    assert!(
        !success && living.contains("remove those that are lost instead") && living.contains("answers at"),
        "{living}"
    );
    cluster.start_node(3);
    cluster.ready();
    // Everything acknowledged is on all nodes; then one node accepts a commit that never reaches a majority.
    cluster.settled();
    let (two, three) = (cluster.take(2), cluster.take(3));
    let (id, body) = (new_id(), insert("doubted"));
    let doubted = std::thread::scope(|scope| {
        let commit = taken_in_alone(scope, cluster.node(1), &[&two, &three], &id, &body);
        two.kill();
        three.kill();
        let (success, running) = cluster.recover(1, &["--accept-loss"]);
        assert!(!success && running.contains("Stop the node first"), "{running}");
        cluster.node(1).signal("KILL");
        commit.join().unwrap()
    });
    assert!(doubted.map_or(true, |answer| answer.status != 200), "nobody was told that it committed");
    cluster.take(1);
    let (success, asked) = cluster.recover(1, &[]);
    assert!(!success && asked.contains("are lost") && asked.contains("--accept-loss"), "{asked}");
    let (success, accepted) = cluster.recover(1, &["--accept-loss"]);
    assert!(success && accepted.contains("Removed: node 2, 3"), "{accepted}");
    let listed = std::fs::read_to_string(cluster.node_dir(1).join("data/in-doubt.txt")).unwrap_or_default();
    assert!(listed.contains(&format!("{id} namespace default")), "{accepted} {listed}");
    let (success, again) = cluster.recover(1, &["--accept-loss"]);
    assert!(success || again.contains("already"), "{again}");
    cluster.start_node(1);
    cluster.ready();
    until_members(&cluster, &[1]);
    let verdict = until_decided(&[cluster.node(1)], &id, &body);
    assert_eq!(verdict["status"], "committed", "it is decided as it was sent");
    put(cluster.node(1), "alone", 1);
    // A node that comes back with its old disk exits, and the cluster grows again.
    let back = until_ended(cluster.command(2));
    assert!(back.contains(REMOVED), "{back}");
    for _ in 0..2 {
        let id = cluster.add();
        cluster.start_node(id);
        cluster.ready();
    }
    // Numbers that the lost nodes may have assigned are skipped.
    until_members(&cluster, &[1, 20, 21]);
    cluster.take(1).kill();
    put(cluster.node(20), "alone", 2);
    cluster.start_node(1);
    cluster.ready();
    cluster.settled();
    for node in cluster.running() {
        assert_eq!((row(node, "alone"), row(node, "doubted%2FL")), (json!(2), json!(1)));
        for (key, (_, verdict)) in told.lock().unwrap().iter().filter(|(_, (_, verdict))| verdict.is_some()) {
            assert_eq!(row(node, &format!("{key}%2FL")), 1, "{verdict:?}");
        }
    }
}

/// Returns the longest time between two verdicts of clients at nodes 1 and 3 while `act` runs.
fn longest_pause<T>(cluster: &mut Cluster, act: impl FnOnce(&mut Cluster) -> T) -> (Duration, T) {
    let (stop, decided) = (AtomicBool::new(false), Mutex::new(Vec::new()));
    let urls = [1, 3].map(|id| cluster.node(id).url.clone());
    let (begun, done) = std::thread::scope(|scope| {
        for url in urls.iter().flat_map(|url| [url; 4]) {
            let (stop, decided) = (&stop, &decided);
            scope.spawn(move || {
                let caller = Caller::new(Duration::from_secs(5));
                while !stop.load(Ordering::Relaxed) {
                    let answer = caller.post(&format!("{url}/v1/txns/{}/commit", new_id()), &insert(&new_id()));
                    if answer.is_ok_and(|answer| answer.status == 200) {
                        decided.lock().unwrap().push(Instant::now());
                    }
                }
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        let begun = Instant::now();
        let done = act(cluster);
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
        (begun, done)
    });
    let mut decided = decided.into_inner().unwrap();
    decided.retain(|at| *at >= begun);
    decided.sort_unstable();
    (decided.windows(2).map(|pair| pair[1] - pair[0]).max().expect("commits go on"), done)
}

/// Measures how long no client gets a verdict when nodes are added, drained, resumed and removed under load: `cargo
/// test --release -p tribunal --test cluster_members -- --ignored --nocapture`. `TRIBUNAL_CHANGES` sets the number of
/// changes.
#[test]
#[ignore = "a measurement of some minutes"]
fn how_long_commits_pause_when_members_change() {
    let rounds = std::env::var("TRIBUNAL_CHANGES").ok().and_then(|n| n.parse().ok()).unwrap_or(30_u16);
    let mut cluster = Cluster::start(3);
    let mut pauses = [("added", Vec::new()), ("drained", Vec::new()), ("resumed", Vec::new()), ("removed", Vec::new())];
    for _ in 0..rounds {
        let (added, id) = longest_pause(&mut cluster, |cluster| {
            let id = cluster.add();
            cluster.start_node(id);
            cluster.ready();
            id
        });
        let (drained, ()) = longest_pause(&mut cluster, |cluster| cluster.change(2, "drain"));
        let (resumed, ()) = longest_pause(&mut cluster, |cluster| cluster.change(2, "resume"));
        let (removed, ()) = longest_pause(&mut cluster, |cluster| cluster.remove(id));
        cluster.take(id).ended();
        for ((_, times), pause) in pauses.iter_mut().zip([added, drained, resumed, removed]) {
            times.push(pause.as_millis());
        }
    }
    for (name, times) in &mut pauses {
        times.sort_unstable();
        let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
        println!(
            "pause while a node is {name}, {rounds} times: p50 {} ms, p99 {} ms, max {} ms",
            at(50),
            at(99),
            at(100)
        );
    }
    cluster.settled();
}
