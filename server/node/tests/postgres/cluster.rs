//! A cluster that pushes to one PostgreSQL: the pushing node is killed, or paused (as far as the other nodes know,
//! within a transaction), and the tables equal the log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::database::{Database, caught_up};
use crate::postgres_server::ROLE;
use crate::support::cluster::Cluster;
use crate::support::{Node, eventually, new_id};
use crate::{put, tables, tables_equal_the_log};

fn load(node: &Node, worker: u16, stop: &AtomicBool) {
    for n in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let writes = json!([
            put(&format!("doc/{worker}/{}", n % 40), json!({"n": n})),
            {"op": "add", "store": "shop", "key": "n/all", "value": 1},
            {"op": "add", "store": "shop", "key": format!("n/{worker}"), "value": -3},
        ]);
        let answer = node.try_post(&format!("/v1/txns/{}/commit", new_id()), &json!({"writes": writes}));
        if !answer.is_ok_and(|answer| answer.status == 200) {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Waits until all running nodes name the same pushing node, other than the excluded one, and returns it.
fn pusher(cluster: &Cluster, not: u64) -> u64 {
    eventually("all nodes to name the one that pushes", || {
        let mut named = cluster.running().map(|node| node.get("/v1/stores/shop").body["push"]["node"].as_u64());
        let first = named.next()??;
        (named.all(|node| node == Some(first)) && first != not).then_some(first)
    })
}

#[test]
fn a_killed_and_a_paused_node_leave_tables_that_equal_the_log() {
    let Some(database) = Database::start() else { return };
    let (address, password) = (database.server.address(), database.server.password());
    let credentials =
        format!("[[push.credentials]]\nendpoint = \"{address}\"\nuser = \"{ROLE}\"\npassword = \"{password}\"\n");
    let mut cluster = Cluster::start_with(3, &credentials);
    database.declare(cluster.node(3), "shop", &tables());
    let zeros: Vec<_> = ["all", "1", "2", "3"].iter().map(|name| put(&format!("n/{name}"), json!(0))).collect();
    eventually("the counters", || {
        let answer = cluster.node(1).commit(&json!({"writes": zeros}));
        (answer.body["status"] == "committed").then_some(())
    });
    for (round, signal) in ["STOP", "KILL", "STOP"].into_iter().enumerate() {
        let victim = pusher(&cluster, 0) as u16;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for id in cluster.ids() {
                let (node, stop) = (cluster.node(id), &stop);
                scope.spawn(move || load(node, id, stop));
            }
            std::thread::sleep(Duration::from_millis(800));
            cluster.node(victim).signal(signal);
            let other = cluster.ids().find(|id| *id != victim).expect("three nodes");
            eventually("another node to take over", || {
                let named = cluster.node(other).get("/v1/stores/shop").body["push"]["node"].as_u64();
                named.is_some_and(|node| node != u64::from(victim)).then_some(())
            });
            if signal == "STOP" {
                cluster.node(victim).signal("CONT");
            }
            std::thread::sleep(Duration::from_millis(300));
            stop.store(true, Ordering::Relaxed);
        });
        if signal == "KILL" {
            cluster.take(victim).kill();
            cluster.start_node(victim);
            cluster.ready();
        }
        let next = pusher(&cluster, u64::from(victim));
        cluster.settled();
        for node in cluster.running() {
            caught_up(node, "shop");
        }
        tables_equal_the_log(&database, cluster.node(1));
        println!("round {round}: node {next} in place of node {victim}");
    }
}
