//! Rolling upgrades of a cluster of real processes, and nodes whose engine or clock differs from those of the others.

#[path = "../../wasm/tests/hostile/mod.rs"]
mod hostile;
#[path = "support/rule.rs"]
mod rule;
mod support;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rule::last_one_wins;
use serde_json::{Value, json};
use support::cluster::{Cluster, free_port};
use support::history::{Told, acknowledged, insert, put, until_decided};
use support::{Node, eventually, new_id, taken};
use tribunal_types::Generation;

/// A release that can also decide in the next generation.
const NEW: (&str, &str) = ("TRIBUNAL_PLANTED_RELEASE", "9.0.0,1-4");
/// The next generation.
const NEXT: u32 = Generation::NEWEST.0 + 1;
const _: () = assert!(NEXT == 4, "the newest one in NEW");

/// Starts a node with a different planted release, engine or clock.
fn start_as(cluster: &mut Cluster, id: u16, planted: &[(&str, &str)]) {
    let mut command = cluster.command(id);
    command.envs(planted.iter().copied());
    let node = Node::spawn(command).unwrap_or_else(|stderr| panic!("node {id}: {stderr}"));
    cluster.insert(id, node);
}

/// Commits at one node until told to stop. During an upgrade, no response may be one that SDK clients do not retry.
fn commits(node: &Node, name: &str, told: &Told, stop: &AtomicBool) {
    for n in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (id, key) = (new_id(), format!("{name}-{n}"));
        let answer = node.try_post(&format!("/v1/txns/{id}/commit"), &insert(&key)).ok();
        let verdict = answer.and_then(|answer| {
            assert!(matches!(answer.status, 200 | 503 | 504), "{} {}", answer.status, answer.body);
            (answer.status == 200).then_some(answer.body)
        });
        if verdict.is_none() {
            std::thread::sleep(Duration::from_millis(10));
        }
        told.lock().unwrap().insert(key, (id, verdict));
    }
}

fn upload(cluster: &Cluster) {
    let pushed = taken(|| cluster.node(1).put_wasm("/v1/admin/plugins/last", &last_one_wins()));
    assert!(matches!(pushed.status, 200 | 201), "{}", pushed.body);
}

fn activate(cluster: &Cluster, id: u16) {
    let last = eventually("the activation", || {
        let answer = cluster.node(id).post("/v1/admin/plugins/last/activate", &json!({}));
        (answer.status == 200).then_some(answer.body)
    });
    assert_eq!(last["name"], "last", "{last}");
}

/// Returns a node's report of itself in its view of the cluster.
fn own(cluster: &Cluster, id: u16) -> Value {
    cluster.node(id).get("/v1/cluster").body["nodes"][usize::from(id - 1)].clone()
}

fn generation(cluster: &Cluster, id: u16) -> Value {
    cluster.node(id).get("/v1/cluster").body["generation"].clone()
}

/// Waits until a node reports why it accepts no commits, and returns the reason.
fn unready(cluster: &Cluster, id: u16, expected: &str) -> String {
    eventually(expected, || {
        let readiness = cluster.node(id).get("/readyz");
        let reasons = readiness.body["reasons"].to_string();
        (readiness.status == 503 && reasons.contains(expected)).then_some(reasons)
    })
}

#[test]
fn a_rolling_upgrade_under_load_loses_nothing_and_switches_at_its_end() {
    let mut cluster = Cluster::start(3);
    upload(&cluster);
    activate(&cluster, 2);
    let told = Told::default();
    for id in cluster.ids() {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for other in cluster.ids() {
                let (node, told, stop) = (cluster.node(other), &told, &stop);
                scope.spawn(move || commits(node, &format!("{id}-{other}"), told, stop));
            }
            let others = || acknowledged(&told, |key| !key.starts_with(&format!("{id}-{id}-")));
            let progress = || {
                let goal = others() + 20;
                eventually("commits", || (others() >= goal).then_some(()));
            };
            progress();
            cluster.node(id).signal("TERM");
            std::thread::sleep(Duration::from_millis(1500));
            progress();
            stop.store(true, Ordering::Relaxed);
        });
        let (status, stderr) = cluster.take(id).ended();
        assert!(status.success(), "{stderr}");
        let others: Vec<&Node> = cluster.running().collect();
        assert_eq!(until_decided(&others, &new_id(), &insert(&format!("without/{id}")))["status"], "committed");
        assert_ne!(generation(&cluster, if id == 3 { 1 } else { 3 }), NEXT, "an old node is left, or one is away");
        start_as(&mut cluster, id, &[NEW]);
        cluster.ready();
    }
    for id in cluster.ids() {
        eventually("the switch", || (generation(&cluster, id) == NEXT).then_some(()));
        let own = own(&cluster, id);
        assert_eq!((&own["version"], &own["generations"]), (&json!("9.0.0"), &json!(format!("1-{NEXT}"))), "{own}");
        cluster.ready();
        assert!(cluster.node(id).contest(&format!("after/{id}")).1, "the uploaded rule decides still");
    }
    cluster.settled();
    let logged: Vec<Vec<Value>> = cluster.running().map(|node| node.log_of("kv")).collect();
    assert!(logged.iter().all(|log| *log == logged[0]));
    let acknowledged = acknowledged(&told, |_| true);
    println!("{acknowledged} acknowledged commits");
    assert!(acknowledged > 100);
    for (key, (id, verdict)) in told.lock().unwrap().iter() {
        let node = cluster.node(2);
        let status = eventually("a final status", || {
            let answer = node.get(&format!("/v1/txns/{id}?fence=true"));
            (answer.status == 200).then_some(answer.body)
        });
        if let Some(verdict) = verdict {
            assert_eq!(status["status"], verdict["status"], "{key}");
            assert_eq!(status["version"], verdict["version"], "{key}");
        }
    }

    // There is no way back: an old release refuses to start, and reports why; the other nodes continue without it.
    assert!(cluster.take(3).stop().success());
    let refused = Node::spawn(cluster.command(3)).err().expect("an old release is refused");
    let decides = format!("decides in generation {NEXT}");
    assert!(refused.contains(&decides) && refused.contains("start the newer release"), "{refused}");
    put(cluster.node(1), "meanwhile", 1);
    start_as(&mut cluster, 3, &[NEW]);
    cluster.ready();
    cluster.settled();
    // A simultaneous restart of all nodes continues.
    for id in cluster.ids() {
        cluster.take(id).kill();
    }
    std::thread::scope(|scope| {
        let starts: Vec<_> = cluster
            .ids()
            .map(|id| {
                let mut command = cluster.command(id);
                command.envs([NEW]);
                (id, scope.spawn(|| Node::spawn(command)))
            })
            .collect();
        starts.into_iter().map(|(id, start)| (id, start.join().unwrap())).collect::<Vec<_>>()
    })
    .into_iter()
    .for_each(|(id, node)| cluster.insert(id, node.expect("starts")));
    cluster.ready();
    assert_eq!(generation(&cluster, 1), NEXT);
    assert!(cluster.node(1).contest("at last").1);
    cluster.settled();
}

#[test]
fn a_release_without_the_present_generation_is_refused_by_the_others() {
    let mut cluster = Cluster::start(3);
    put(cluster.node(1), "before", 1);
    cluster.settled();
    for id in cluster.ids() {
        assert!(cluster.take(id).stop().success());
    }
    // A directory from before the switch, without any record of it.
    let (data, before) = (cluster.node_dir(3).join("data"), cluster.node_dir(3).join("before"));
    let copied = Command::new("cp").arg("-r").arg(&data).arg(&before).status().expect("cp runs");
    assert!(copied.success());
    for id in [1, 2, 3] {
        start_as(&mut cluster, id, &[NEW]);
    }
    cluster.ready();
    for id in cluster.ids() {
        eventually("the switch", || (generation(&cluster, id) == NEXT).then_some(()));
    }
    cluster.take(3).kill();
    std::fs::remove_dir_all(&data).expect("it is there");
    std::fs::rename(&before, &data).expect("it is there");
    // The other nodes cannot reach it: their messages would show that it lacks entries which it had acknowledged, and
    // stop it.
    let elsewhere = format!("127.0.0.1:{}", free_port());
    start_as(&mut cluster, 3, &[("TRIBUNAL__CLUSTER__LISTEN", &elsewhere)]);
    let problem = eventually("a refusal", || {
        let nodes = cluster.node(3).get("/v1/cluster").body["nodes"].clone();
        nodes[0]["problem"].as_str().filter(|problem| problem.contains("generation")).map(str::to_owned)
    });
    let (decides, knows) =
        (format!("decides in generation {NEXT}"), format!("generation 1-{} only", Generation::NEWEST));
    assert!(problem.contains(&decides) && problem.contains(&knows), "{problem}");
    assert_eq!(cluster.node(3).commit(&insert("refused")).status, 503);
    for n in 0..20 {
        put(cluster.node(1 + n % 2), &format!("undisturbed/{n}"), 1);
    }
}

#[test]
fn a_node_with_another_engine_decides_nothing_with_an_uploaded_plugin_until_it_has_the_old_one() {
    let mut cluster = Cluster::start(3);
    // Built-in plugins have the same results on all engines.
    assert!(cluster.take(3).stop().success());
    start_as(&mut cluster, 3, &[("TRIBUNAL_PLANTED_ENGINE", "wasm-2")]);
    cluster.ready();
    put(cluster.node(3), "built in", 1);
    cluster.settled();
    eventually("the other engine to be known", || (own(&cluster, 3)["engine"] == "wasm-2").then_some(()));
    upload(&cluster);
    let refused = eventually("all nodes to have the plugin", || {
        let answer = cluster.node(1).post("/v1/admin/plugins/last/activate", &json!({}));
        (answer.status != 503).then_some(answer)
    });
    let detail = refused.body["detail"].as_str().unwrap_or_default();
    assert!(refused.status == 422 && detail.contains("different plugin engines"), "{}", refused.body);
    assert!(cluster.take(3).stop().success());
    cluster.start_node(3);
    cluster.ready();
    activate(&cluster, 1);
    assert!(cluster.node(2).contest("uploaded").1);

    cluster.settled();
    cluster.take(3).kill();
    assert!(cluster.node(1).contest("away").1);
    start_as(&mut cluster, 3, &[("TRIBUNAL_PLANTED_ENGINE", "wasm-2")]);
    let reason = unready(&cluster, 3, "plugin engine");
    assert!(
        reason.contains("wasm-1-") && reason.contains("wasm-2") && reason.contains("Start the release"),
        "{reason}"
    );
    let refused = cluster.node(3).commit(&insert("refused"));
    assert_eq!(refused.status, 503, "{}", refused.body);
    for n in 0..20 {
        put(cluster.node(1 + n % 2), &format!("others/{n}"), 1);
    }
    assert!(cluster.node(2).contest("undisturbed").1);
    cluster.take(3).kill();
    cluster.start_node(3);
    cluster.ready();
    assert!(cluster.node(3).contest("back").1);
    cluster.settled();
}

#[test]
fn a_node_whose_clock_is_a_day_off_takes_no_commits_and_changes_no_answer() {
    let mut cluster = Cluster::start(3);
    put(cluster.node(1), "before", 1);
    for (offset, side) in [("86400", "s fast"), ("-86400", "s slow")] {
        assert!(cluster.take(3).stop().success());
        start_as(&mut cluster, 3, &[("TRIBUNAL_PLANTED_CLOCK", offset)]);
        let reason = unready(&cluster, 3, "the system clock of this node is 86");
        assert!(reason.contains(side) && reason.contains("takes no commits"), "{reason}");
        let refused = cluster.node(3).commit(&insert("refused"));
        assert_eq!(refused.status, 503, "{}", refused.body);
        let begun = cluster.node(3).post("/v1/txns", &json!({"stores": ["kv"]}));
        assert_eq!(begun.status, 503, "{}", begun.body);
        // The other nodes decide, with their own ids and ids of clients whose clocks are right.
        for n in 0..30 {
            let node = cluster.node(1 + n % 2);
            put(node, &format!("{side}/{n}"), 1);
            let begun = eventually("a snapshot", || {
                let begun = node.post("/v1/txns", &json!({"stores": ["kv"]}));
                (begun.status == 201).then_some(begun.body)
            });
            let id = begun["txn_id"].as_str().expect("an id").to_owned();
            let verdict = until_decided(&[node], &id, &insert(&format!("begun/{side}/{n}")));
            assert_eq!(verdict["status"], "committed", "{verdict}");
        }
        cluster.settled();
        let urls: Vec<&str> = cluster.running().map(|node| &*node.url).collect();
        let status = Command::new(env!("CARGO_BIN_EXE_tribunal"))
            .args(["cluster", "status", "--url", &urls.join(",")])
            .output()
            .expect("it runs");
        let shown = String::from_utf8_lossy(&status.stdout).into_owned();
        assert!(status.status.code() == Some(2) && shown.contains("the system clock of this node"), "{shown}");
        assert!(cluster.take(3).stop().success());
        cluster.start_node(3);
        cluster.ready();
        put(cluster.node(3), &format!("right again/{side}"), 1);
    }
    cluster.settled();
}
