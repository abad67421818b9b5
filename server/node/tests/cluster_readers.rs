//! Readers of a cluster's logs: consumers and webhooks belong to all nodes. Real processes are killed, drained and
//! added.

mod support;

use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use support::cluster::Cluster;
use support::history::{noise, oldest, until_decided, until_forgotten};
use support::receiver::{Does, Post, Receiver, ok};
use support::{Node, Response, eventually, new_id, taken};
use tribunal_codec::{Readers, encode_readers};
use tribunal_types::{ConsumerOffset, Lsn, StoreId};

const SECRET: &str = "a secret of the receiver";

/// A receiver that remembers which records it has acknowledged, in which order.
struct Deliveries {
    receiver: Receiver,
    acknowledged: Arc<Acknowledged>,
}

struct Acknowledged {
    /// The records of each post.
    posts: Mutex<Vec<Vec<u64>>>,
    status: AtomicU16,
}

impl Deliveries {
    fn start() -> Deliveries {
        let acknowledged = Arc::new(Acknowledged { posts: Mutex::default(), status: AtomicU16::new(204) });
        let all = Arc::clone(&acknowledged);
        let receiver = Receiver::new(move |_, post| {
            let status = all.status.load(Ordering::Relaxed);
            if status == 204 {
                all.posts.lock().expect("no panic").push(post.lsns());
            }
            Does::Answer(status, "", String::new())
        });
        Deliveries { receiver, acknowledged }
    }

    fn url(&self) -> String {
        self.receiver.url()
    }

    fn answers(&self, status: u16) {
        self.acknowledged.status.store(status, Ordering::Relaxed);
    }

    /// Returns the last record up to which all have come, and checks that they came in order: again perhaps, but none after
    /// one that was missing.
    fn delivered(&self, after: u64) -> u64 {
        let mut last = after;
        for post in self.acknowledged.posts.lock().expect("no panic").iter() {
            assert!(post.windows(2).all(|pair| pair[1] == pair[0] + 1), "{post:?}");
            assert!(post[0] <= last + 1, "{} follows {last}", post[0]);
            last = last.max(*post.last().expect("records"));
        }
        last
    }

    fn count(&self) -> usize {
        self.acknowledged.posts.lock().expect("no panic").len()
    }
}

fn set_offset(node: &Node, name: &str, lsn: u64) -> Response {
    taken(|| try_set_offset(node, name, lsn))
}

fn try_set_offset(node: &Node, name: &str, lsn: u64) -> Response {
    node.put(&format!("/v1/consumers/{name}"), &json!({"store": "kv", "lsn": lsn.to_string()}))
}

fn number(value: &Value) -> Option<u64> {
    value.as_str()?.parse().ok()
}

/// Returns a consumer's offset, as a node knows it.
fn offset(node: &Node, name: &str) -> Option<u64> {
    let consumer = node.get(&format!("/v1/consumers/{name}"));
    if consumer.status == 200 { number(&consumer.body["offsets"][0]["lsn"]) } else { None }
}

/// Waits until all nodes that run know this offset.
fn all_know(cluster: &Cluster, name: &str, expected: Option<u64>) {
    for node in cluster.running() {
        eventually("an offset on every node", || (offset(node, name) == expected).then_some(()));
    }
}

fn head(node: &Node) -> u64 {
    number(&node.get("/v1/stores/kv").body["head_lsn"]).expect("a position")
}

fn commit(nodes: &[&Node], key: &str, value: &Value) {
    let body = json!({"writes": [{"op": "put", "store": "kv", "key": key, "value": value}]});
    assert_eq!(until_decided(nodes, &new_id(), &body)["status"], "committed");
}

fn commit_rows(cluster: &Cluster, count: u64) {
    let nodes: Vec<&Node> = cluster.running().collect();
    (0..count).for_each(|n| commit(&nodes, &format!("row/{n}"), &json!(n)));
}

fn register(node: &Node, store: &str, receiver: &Deliveries, after: Option<u64>) -> Response {
    let mut body = json!({"kind": "webhook", "url": receiver.url(), "secret": SECRET});
    after.into_iter().for_each(|after| body["after"] = json!(after.to_string()));
    taken(|| node.put(&format!("/v1/stores/{store}/push"), &body))
}

fn webhook(node: &Node, store: &str) -> Value {
    node.get(&format!("/v1/stores/{store}/push")).body
}

/// Waits until all nodes that run name the same one that delivers, and returns it. It is none of those that are excluded.
fn deliverer(cluster: &Cluster, store: &str, not: &[u16]) -> u16 {
    eventually("all nodes to name the one that delivers", || {
        let mut named = cluster.running().map(|node| webhook(node, store)["node"].as_u64());
        let first = named.next()??;
        let all = named.all(|node| node == Some(first)) && !not.iter().any(|node| u64::from(*node) == first);
        all.then_some(first as u16)
    })
}

/// Waits until the receiver has everything, and all nodes know it.
fn until_delivered(cluster: &Cluster, receiver: &Deliveries, after: u64) {
    cluster.settled();
    let head = head(cluster.running().next().expect("one runs"));
    eventually("the receiver to have every record", || (receiver.delivered(after) == head).then_some(()));
    for node in cluster.running() {
        eventually("a node to know that everything is delivered", || {
            let shown = webhook(node, "kv");
            assert!(!shown.to_string().contains(SECRET), "{shown}");
            let idle = shown["state"] == "idle" && shown["lag_records"] == "0" && shown.get("last_error").is_none();
            (idle && number(&shown["acked_lsn"]) == Some(head)).then_some(())
        });
    }
}

#[test]
fn an_offset_is_known_to_all_nodes_and_survives_the_one_that_took_it() {
    let mut cluster = Cluster::start(3);
    commit_rows(&cluster, 20);
    let set = set_offset(cluster.node(1), "index", 4);
    assert_eq!((set.status, &set.body["offsets"][0]["lsn"]), (200, &json!("4")), "{}", set.body);
    all_know(&cluster, "index", Some(4));
    for (round, victim) in [2, 1, 3].into_iter().enumerate() {
        let lsn = 10 + round as u64;
        assert_eq!(set_offset(cluster.node(victim), "index", lsn).status, 200);
        cluster.take(victim).kill();
        all_know(&cluster, "index", Some(lsn));
        cluster.start_node(victim);
        cluster.ready();
        all_know(&cluster, "index", Some(lsn));
    }
    let shown = cluster.node(2).get("/v1/consumers/index").body;
    let lag = cluster.node(3).get("/v1/consumers/index").body["offsets"][0]["lag_records"].clone();
    assert_eq!(shown["offsets"][0]["lag_records"], lag);
    assert_eq!(set_offset(cluster.node(3), "index", 6).status, 200, "it may go back");
    // The others may not know it yet, but what they do comes later.
    assert_eq!(set_offset(cluster.node(1), "index", 12).status, 200);
    all_know(&cluster, "index", Some(12));
    let past = set_offset(cluster.node(1), "index", 1_000);
    assert_eq!((past.status, &past.body["code"]), (422, &json!("position_beyond_head")), "{}", past.body);
    assert_eq!(taken(|| cluster.node(2).delete("/v1/consumers/index")).status, 204);
    all_know(&cluster, "index", None);
    assert_eq!(taken(|| cluster.node(3).delete("/v1/consumers/index")).status, 404);
    // Without a majority nothing is acknowledged.
    cluster.take(1).kill();
    cluster.take(2).kill();
    let left = cluster.node(3);
    // Until it knows, a change waits for the others, for as long as this client does.
    eventually("a node to know that it is alone", || (left.get("/readyz").status == 503).then_some(()));
    let refused = try_set_offset(left, "alone", 1);
    assert_eq!(refused.status, 503, "{}", refused.body);
    assert_eq!(offset(left, "index"), None);
    cluster.start_all();
    cluster.ready();
    assert_eq!(set_offset(cluster.node(2), "index", 2).status, 200);
    all_know(&cluster, "index", Some(2));
}

/// Moves one consumer through the log at one node until it is told to stop, and notes the last offset that was acknowledged.
fn move_on(node: &Node, name: &str, stop: &AtomicBool, acknowledged: &AtomicU64) {
    let mut lsn = 0;
    while !stop.load(Ordering::Relaxed) {
        lsn = (lsn + 1).min(40);
        let body = json!({"store": "kv", "lsn": lsn.to_string()});
        let url = format!("{}/v1/consumers/{name}", node.url);
        let put = ureq::put(url).header("content-type", "application/json").send(body.to_string());
        match put {
            Ok(answer) if answer.status() == 200 => acknowledged.store(lsn, Ordering::Relaxed),
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

#[test]
fn no_acknowledged_offset_goes_back_when_nodes_are_killed() {
    let mut cluster = Cluster::start(3);
    commit_rows(&cluster, 40);
    for victim in [3, 1] {
        let stop = AtomicBool::new(false);
        let moved = cluster.ids().flat_map(|id| (0..3).map(move |n| (id, format!("c{id}-{n}-{victim}"))));
        let moved: Vec<_> = moved.map(|(id, name)| (id, name, AtomicU64::new(0))).collect();
        std::thread::scope(|scope| {
            let (cluster, stop) = (&cluster, &stop);
            for (id, name, acknowledged) in &moved {
                scope.spawn(move || move_on(cluster.node(*id), name, stop, acknowledged));
            }
            let all_move = || moved.iter().all(|(_, _, acknowledged)| acknowledged.load(Ordering::Relaxed) > 0);
            eventually("an offset of each consumer", || all_move().then_some(()));
            std::thread::sleep(Duration::from_millis(300));
            cluster.node(victim).signal("KILL");
            std::thread::sleep(Duration::from_millis(2_500));
            stop.store(true, Ordering::Relaxed);
        });
        cluster.take(victim).kill();
        for node in cluster.running() {
            for (_, name, acknowledged) in &moved {
                // One that was not acknowledged may be durable, too.
                let acknowledged = acknowledged.load(Ordering::Relaxed);
                let is_there = || offset(node, name).is_some_and(|lsn| lsn >= acknowledged).then_some(());
                eventually("an acknowledged offset", is_there);
            }
        }
        cluster.start_node(victim);
        cluster.ready();
    }
}

/// Runs `change` while a client commits at each node, and lets them go on for a while.
fn under_load(cluster: &Cluster, change: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for id in cluster.ids() {
            let (node, stop) = (cluster.node(id), &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let body =
                        json!({"writes": [{"op": "put", "store": "kv", "key": format!("load/{id}"), "value": 1}]});
                    let answer = node.try_post(&format!("/v1/txns/{}/commit", new_id()), &body);
                    let pause = if answer.is_ok_and(|answer| answer.status == 200) { 2 } else { 20 };
                    std::thread::sleep(Duration::from_millis(pause));
                }
            });
        }
        change();
        std::thread::sleep(Duration::from_millis(500));
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_webhook_gets_every_record_in_order_whichever_node_delivers() {
    let mut cluster = Cluster::start(3);
    let receiver = Deliveries::start();
    commit_rows(&cluster, 5);
    let registered = register(cluster.node(1), "kv", &receiver, None);
    assert_eq!(registered.status, 200, "{}", registered.body);
    until_delivered(&cluster, &receiver, 0);
    for round in 0..2 {
        let victim = deliverer(&cluster, "kv", &[]);
        under_load(&cluster, || {
            std::thread::sleep(Duration::from_millis(700));
            cluster.node(victim).signal("KILL");
        });
        cluster.take(victim).kill();
        let next = deliverer(&cluster, "kv", &[victim]);
        until_delivered(&cluster, &receiver, 0);
        println!("round {round}: node {next} in place of node {victim}, {} posts", receiver.count());
        cluster.start_node(victim);
        cluster.ready();
        assert_eq!(deliverer(&cluster, "kv", &[]), next, "it stays where it is");
    }
    let drained = deliverer(&cluster, "kv", &[]);
    cluster.change(drained, "drain");
    let next = deliverer(&cluster, "kv", &[drained]);
    commit_rows_at(cluster.node(next), 10);
    until_delivered(&cluster, &receiver, 0);
    cluster.change(drained, "resume");
    let shown = cluster.node(drained).get("/v1/cluster").body["webhooks"].clone();
    assert_eq!(shown, json!([{"namespace": "default", "store": "kv", "node": next}]));
}

fn commit_rows_at(node: &Node, count: u64) {
    (0..count).for_each(|n| commit(&[node], &format!("row/{n}"), &json!(n)));
}

#[test]
fn every_node_shows_the_errors_of_a_webhook_and_changes_or_deletes_it() {
    let cluster = Cluster::start(3);
    let receiver = Deliveries::start();
    receiver.answers(500);
    commit_rows(&cluster, 5);
    assert_eq!(register(cluster.node(2), "kv", &receiver, None).status, 200);
    for node in cluster.running() {
        let failing = eventually("a node to know the error", || {
            let shown = webhook(node, "kv");
            (shown["state"] == "backing_off").then_some(shown)
        });
        assert!(failing["last_error"].as_str().is_some_and(|error| error.contains("answered 500")), "{failing}");
    }
    receiver.answers(204);
    until_delivered(&cluster, &receiver, 0);
    // Registered again at another node, it continues where it was.
    let other = Deliveries::start();
    assert_eq!(register(cluster.node(3), "kv", &other, None).status, 200);
    let before = head(cluster.node(3));
    commit_rows(&cluster, 5);
    eventually("the other receiver to have the new records", || {
        let first = other.acknowledged.posts.lock().expect("no panic").first().map(|post| post[0]);
        // What was delivered last may come again.
        first.filter(|first| *first <= before + 1)?;
        (other.delivered(before) >= before + 5).then_some(())
    });
    let by = deliverer(&cluster, "kv", &[]);
    let elsewhere = cluster.node(cluster.ids().find(|id| *id != by).expect("three nodes"));
    assert_eq!(taken(|| elsewhere.delete("/v1/stores/kv/push")).status, 204);
    for node in cluster.running() {
        eventually("a node to know that it is gone", || (node.get("/v1/stores/kv/push").status == 404).then_some(()));
    }
    assert_eq!(taken(|| elsewhere.delete("/v1/stores/kv/push")).status, 404);
    // What was committed before may still be on its way.
    cluster.settled();
    let last = head(cluster.node(3));
    commit_rows(&cluster, 5);
    std::thread::sleep(Duration::from_millis(500));
    assert!(other.delivered(before) <= last, "nothing is delivered any more");
}

#[test]
fn a_receiver_ahead_of_the_log_is_delivered_nothing_by_any_node_until_it_is_registered_again() {
    let mut cluster = Cluster::start(3);
    let ahead = 15;
    let receiver = Receiver::new(move |_, _| Does::Answer(200, "tribunal-watermark: 15\r\n", String::new()));
    let register = |node: &Node, after: Option<&str>| {
        let mut body = json!({"kind": "webhook", "url": receiver.url(), "secret": SECRET});
        after.into_iter().for_each(|after| body["after"] = json!(after));
        taken(|| node.put("/v1/stores/kv/push", &body))
    };
    assert_eq!(register(cluster.node(1), None).status, 200);
    commit_rows(&cluster, 1);
    let is_stopped = |cluster: &Cluster| {
        for node in cluster.running() {
            let shown = eventually("every node to show the stop", || {
                Some(webhook(node, "kv")).filter(|shown| shown["state"] == "stopped")
            });
            assert!(shown["last_error"].as_str().is_some_and(|error| error.contains("another log")), "{shown}");
        }
    };
    is_stopped(&cluster);
    let posts = receiver.posts().len();
    receiver.becomes(|_, _| ok());
    // From here on, the position of the receiver could be one of this log.
    commit_rows(&cluster, ahead + 5);
    for _ in 0..2 {
        let victim = deliverer(&cluster, "kv", &[]);
        cluster.take(victim).kill();
        deliverer(&cluster, "kv", &[victim]);
        is_stopped(&cluster);
        cluster.start_node(victim);
        cluster.ready();
        is_stopped(&cluster);
    }
    cluster.ids().for_each(|id| cluster.take(id).kill());
    cluster.start_all();
    cluster.ready();
    is_stopped(&cluster);
    assert_eq!(receiver.posts().len(), posts, "nothing was delivered");
    let resumed = register(cluster.node(2), None);
    assert_eq!((resumed.status, &resumed.body["code"]), (410, &json!("log_replaced")), "{}", resumed.body);
    assert_eq!(register(cluster.node(3), Some("0")).status, 200);
    cluster.settled();
    let head = head(cluster.node(1));
    eventually("the receiver to have every record", || {
        let delivered: Vec<u64> = receiver.posts()[posts..].iter().flat_map(Post::lsns).collect();
        (1..=head).all(|lsn| delivered.contains(&lsn)).then_some(())
    });
}

#[test]
fn what_a_node_has_remembered_alone_becomes_the_clusters() {
    let mut cluster = Cluster::start(3);
    commit_rows(&cluster, 5);
    assert_eq!(set_offset(cluster.node(1), "known", 4).status, 200);
    assert!(cluster.take(2).stop().success());
    // A file of an earlier release. Which number the store has is for the control log to tell.
    let offsets = (1..200).flat_map(|store| {
        ["known", "old"].map(|name| ConsumerOffset {
            name: name.into(),
            store: StoreId(store),
            lsn: Lsn(3),
            ..ConsumerOffset::default()
        })
    });
    let bytes = encode_readers(&Readers { offsets: offsets.collect(), webhooks: Vec::new() });
    let file = cluster.node_dir(2).join("data/readers");
    std::fs::write(&file, [&crc32c::crc32c(&bytes).to_le_bytes()[..], &bytes].concat()).expect("written");
    cluster.start_node(2);
    cluster.ready();
    all_know(&cluster, "old", Some(3));
    all_know(&cluster, "known", Some(4));
    eventually("the file to be put aside", || (!file.exists()).then_some(()));
}

/// Writes this many rows of 100 kB.
fn write_much(cluster: &Cluster, written: &mut u64, count: u64) {
    let nodes: Vec<&Node> = cluster.running().collect();
    for _ in 0..count {
        *written += 1;
        commit(&nodes, &format!("row/{}", *written % 100), &json!(noise(100_000, *written)));
    }
}

/// Runs `tribunal log tail` with endpoints of which the first has not the records after this position.
fn tail_continues_at_another_endpoint(cluster: &Cluster, without: u16, after: u64) {
    let tail = |urls: &[&str]| {
        let after = after.to_string();
        let words =
            ["log", "tail", "--store", "kv", "--json", "--after", &after, "--url", &urls.join(",")].map(str::to_owned);
        Command::new(env!("CARGO_BIN_EXE_tribunal")).args(words).output().expect("it runs")
    };
    let (without, with) = (cluster.node(without), cluster.node(1));
    let shown = tail(&[&without.url, &with.url]);
    let (records, told) = (String::from_utf8_lossy(&shown.stdout), String::from_utf8_lossy(&shown.stderr));
    assert!(shown.status.success(), "{told}");
    let lsn = |line: &str| number(&serde_json::from_str::<Value>(line).expect("JSON")["lsn"]);
    let (first, last) = (records.lines().next().and_then(lsn), records.lines().last().and_then(lsn));
    assert_eq!((first, last), (Some(after + 1), Some(head(with))));
    // Without an endpoint that has them, the error says where to start over, and which endpoint was not reached.
    let nobody = "http://127.0.0.1:1";
    let shown = tail(&[&without.url, nobody]);
    let told = String::from_utf8_lossy(&shown.stderr);
    assert!(!shown.status.success() && shown.stdout.is_empty(), "{told}");
    for part in ["log_truncated", "from node 1, 2, 3", "/v1/stores/kv/state", "these did not: http://127.0.0.1:1"] {
        assert!(told.contains(part), "{part}: {told}");
    }
}

#[test]
fn all_nodes_keep_the_log_for_a_reader_and_a_new_one_names_those_that_have_it() {
    let mut cluster = Cluster::start_with(3, "[log]\nretention_hours = 0\nimage_every_bytes = 1048576\n");
    let mut written = 0;
    until_forgotten(&cluster, &mut written);
    cluster.settled();
    let kept = head(cluster.node(1));
    assert_eq!(set_offset(cluster.node(2), "slow", kept).status, 200);
    all_know(&cluster, "slow", Some(kept));
    write_much(&cluster, &mut written, 400);
    cluster.settled();
    cluster.running().for_each(|node| assert!(oldest(node) <= kept + 1, "{} is kept for a reader", oldest(node)));

    let added = cluster.add();
    cluster.start_node(added);
    cluster.ready();
    all_know(&cluster, "slow", Some(kept));
    // Each of the others has to answer in time what it has.
    let refused = eventually("all nodes that have the records to be named", || {
        let refused = cluster.node(added).get(&format!("/v1/log?store=kv&after={kept}&limit=1"));
        ((refused.status, &refused.body["nodes"]) == (410, &json!([1, 2, 3]))).then_some(refused)
    });
    assert!(refused.body["detail"].as_str().is_some_and(|detail| detail.contains("from node 1, 2, 3")));
    let page = cluster.node(3).get(&format!("/v1/log?store=kv&after={kept}&limit=1"));
    assert_eq!(page.body["records"][0]["lsn"], json!((kept + 1).to_string()));
    tail_continues_at_another_endpoint(&cluster, added, kept);

    // The others deliver other webhooks, so this one is the new node's first. It gives it to one that has the records.
    let receiver = Deliveries::start();
    for store in ["a", "b", "c"] {
        let declared = taken(|| cluster.node(1).put(&format!("/v1/stores/{store}"), &json!({})));
        assert!(matches!(declared.status, 200 | 201), "{}", declared.body);
        assert_eq!(register(cluster.node(1), store, &receiver, None).status, 200);
        deliverer(&cluster, store, &[added]);
    }
    assert_eq!(register(cluster.node(1), "kv", &receiver, Some(kept)).status, 200);
    until_delivered(&cluster, &receiver, kept);
    deliverer(&cluster, "kv", &[added]);
    // The log is truncated once no reader needs it.
    assert_eq!(taken(|| cluster.node(added).delete("/v1/consumers/slow")).status, 204);
    assert_eq!(taken(|| cluster.node(added).delete("/v1/stores/kv/push")).status, 204);
    until_forgotten(&cluster, &mut written);
}
