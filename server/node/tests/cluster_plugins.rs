//! Uploaded plugins in a cluster of real processes: every node fetches each plugin that one node accepts, and nothing
//! is activated before all of them have it.

#[path = "../../wasm/tests/hostile/mod.rs"]
mod hostile;
#[path = "support/rule.rs"]
mod rule;
mod support;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rule::last_one_wins;
use serde_json::{Value, json};
use support::cluster::Cluster;
use support::{Node, Response, eventually, taken};

/// Uploads a rule.
fn push(node: &Node) {
    let pushed = taken(|| node.put_wasm("/v1/admin/plugins/last", &last_one_wins()));
    assert!(matches!(pushed.status, 200 | 201), "{}", pushed.body);
}

fn activate(node: &Node) -> Response {
    node.post("/v1/admin/plugins/last/activate", &json!({}))
}

/// Tells whether the rule decides on a node: of two transactions that contend, the later one wins.
fn decides(node: &Node, key: &str) -> bool {
    eventually("a verdict", || (node.get("/readyz").status == 200).then_some(()));
    node.contest(key).1
}

fn versions(node: &Node) -> usize {
    node.get("/v1/admin/plugins/last").body["versions"].as_array().map_or(0, Vec::len)
}

/// The file of the component on a node.
fn component_file(cluster: &Cluster, id: u16) -> PathBuf {
    let folder = fs::read_dir(cluster.node_dir(id).join("data/plugins")).expect("is there");
    let mut files = folder.map(|entry| entry.expect("can be read").path());
    files.find(|path| path.extension().is_some_and(|extension| extension == "wasm")).expect("one component")
}

#[test]
fn a_plugin_that_one_node_takes_decides_on_all_and_goes_from_all() {
    let cluster = Cluster::start(3);
    let [one, two, three] = [1, 2, 3].map(|id| cluster.node(id));
    assert!(!decides(three, "before"));
    push(one);
    // A node may need longer to compile it than a request waits.
    let activated = taken(|| activate(two));
    assert_eq!(activated.status, 200, "{}", activated.body);
    for (node, key) in [(three, "on 3"), (one, "on 1"), (two, "on 2")] {
        assert!(decides(node, key), "{key}");
        assert_eq!(versions(node), 1);
    }
    cluster.settled();
    let in_use = taken(|| two.delete("/v1/admin/plugins/last"));
    assert_eq!((in_use.status, &in_use.body["code"]), (422, &json!("plugin_in_use")), "{}", in_use.body);
    let back = taken(|| three.post("/v1/admin/plugins/last/rollback", &json!({"slot": "rule"})));
    assert_eq!(back.status, 200, "{}", back.body);
    assert!(!decides(one, "after"));
    assert_eq!(taken(|| two.delete("/v1/admin/plugins/last")).status, 200);
    for node in cluster.running() {
        eventually("the deletion to arrive", || (versions(node) == 0).then_some(()));
        assert_eq!(taken(|| activate(node)).status, 404);
    }
    cluster.settled();
}

#[test]
fn a_plugin_that_is_deactivated_on_one_node_leaves_its_slot_on_all_and_on_one_that_was_away() {
    let mut cluster = Cluster::start(3);
    push(cluster.node(1));
    let deactivate = |node: &Node, body: &Value| taken(|| node.post("/v1/admin/plugins/last/deactivate", body));
    let unused = deactivate(cluster.node(2), &json!({}));
    assert_eq!((unused.status, &unused.body["code"]), (422, &json!("not_active")), "{}", unused.body);
    let activated = taken(|| activate(cluster.node(2)));
    assert_eq!(activated.status, 200, "{}", activated.body);
    assert!(decides(cluster.node(3), "on"));
    // Two nodes are asked at once, and one node is away.
    cluster.take(1).kill();
    let both = std::thread::scope(|scope| {
        let asked = [2, 3].map(|id| {
            let node = cluster.node(id);
            scope.spawn(|| deactivate(node, &json!({})).status)
        });
        asked.map(|asked| asked.join().expect("an answer"))
    });
    assert!(both.contains(&200), "{both:?}");
    assert!(!decides(cluster.node(2), "off on 2") && !decides(cluster.node(3), "off on 3"));
    cluster.start_node(1);
    cluster.ready();
    assert!(!decides(cluster.node(1), "off on 1"));
    cluster.settled();
    assert_eq!(taken(|| cluster.node(1).delete("/v1/admin/plugins/last")).status, 200, "no slot has it");
}

#[test]
fn nothing_is_activated_before_every_node_has_it_and_a_node_fetches_what_it_lacks() {
    let mut cluster = Cluster::start(3);
    cluster.take(3).kill();
    push(cluster.node(1));
    eventually("only node 3 to lack it", || {
        let refused = activate(cluster.node(2));
        assert_eq!(refused.status, 503, "{}", refused.body);
        let detail = refused.body["detail"].as_str()?;
        (detail.contains("node 3") && !detail.contains("node 1") && !detail.contains("node 2")).then_some(())
    });
    assert!(!decides(cluster.node(1), "refused"), "nothing has changed");
    cluster.start_node(3);
    cluster.ready();
    // A node that hangs keeps nobody from an answer.
    cluster.node(2).signal("STOP");
    let urls = format!("{},{}", cluster.node(2).url, cluster.node(1).url);
    eventually("an answer that there is none", || {
        let mut absent = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        let absent = absent.args(["plugin", "activate", "absent", "--url", &urls]).output().expect("it runs");
        assert!(!absent.status.success());
        // The log of the hanging node may have to change its leader first.
        String::from_utf8_lossy(&absent.stderr).contains("tribunal plugin ls").then_some(())
    });
    cluster.node(2).signal("CONT");
    cluster.ready();
    let activated = eventually("node 3 to have it", || Some(activate(cluster.node(2))).filter(|it| it.status == 200));
    assert_eq!(activated.body["name"], "last", "{}", activated.body);
    assert!(decides(cluster.node(3), "activated"));

    // Only its file is gone: the others decide meanwhile, and the node must not without it.
    let file = component_file(&cluster, 2);
    // Not killed: alone, it knows that the activation was agreed on only if it has noted that, which it does at ticks and
    // when it stops.
    assert!(cluster.take(2).stop().success());
    fs::remove_file(&file).expect("it is there");
    fs::remove_dir_all(cluster.node_dir(2).join("data/plugins/compiled")).expect("code is kept");
    assert!(decides(cluster.node(1), "away"));
    [1, 3].into_iter().for_each(|id| cluster.take(id).kill());
    cluster.start_node(2);
    let own = |cluster: &Cluster| -> Value { cluster.node(2).get("/v1/cluster").body["nodes"][1].clone() };
    eventually("the node to say what it lacks", || {
        own(&cluster)["problem"].as_str().filter(|problem| problem.contains("lacks `last`")).map(str::to_owned)
    });
    cluster.start_all();
    cluster.ready();
    eventually("the node to fetch the component", || file.exists().then_some(()));
    eventually("the node to lack nothing", || own(&cluster)["problem"].is_null().then_some(()));
    assert!(decides(cluster.node(2), "fetched"));
    cluster.settled();
}

#[test]
fn a_node_that_lacks_the_code_that_decides_does_not_go_on_alone_until_it_has_it() {
    let mut cluster = Cluster::start(3);
    push(cluster.node(1));
    let activated = taken(|| activate(cluster.node(2)));
    assert_eq!(activated.status, 200, "{}", activated.body);
    assert!(decides(cluster.node(1), "before"));
    cluster.settled();
    // It notes what was agreed on when it stops.
    assert!(cluster.take(2).stop().success());
    [1, 3].into_iter().for_each(|id| cluster.take(id).kill());
    let file = component_file(&cluster, 2);
    fs::remove_file(&file).expect("it is there");
    fs::remove_dir_all(cluster.node_dir(2).join("data/plugins/compiled")).expect("code is kept");
    let in_doubt = cluster.node_dir(2).join("data/in-doubt.txt");
    for _ in 0..2 {
        let (success, refused) = cluster.recover(2, &["--accept-loss"]);
        assert!(!success, "{refused}");
        assert!(refused.contains("node 2 lacks the code of a plugin") && refused.contains("`plugins`"), "{refused}");
        assert!(!in_doubt.exists(), "nothing was accepted");
    }
    fs::copy(component_file(&cluster, 1), &file).expect("the other node has it");
    let (success, accepted) = cluster.recover(2, &["--accept-loss"]);
    assert!(success && accepted.contains("Removed: node 1, 3"), "{accepted}");
    cluster.start_node(2);
    cluster.ready();
    assert!(decides(cluster.node(2), "alone"), "with the rule");
}
