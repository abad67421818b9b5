//! kill -9 of the node, the database, or both, at any moment under load: the tables equal the log.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::json;

use crate::database::{Database, caught_up};
use crate::support::{Node, eventually, new_id};
use crate::{put, tables, tables_equal_the_log};

/// Commits until told to stop, or until the node is down: every kind of change, on rows that collide.
fn load(node: &Node, worker: u64, round: u64, stop: &AtomicBool, committed: &AtomicU64) {
    for n in 0_u64.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let (row, some) = (n * 7 % 23, n % 5 == 0);
        let account = json!({"owner": format!("{worker} of {round}"), "balance": n, "open": some});
        let mut writes = vec![
            put(&format!("doc/{worker}/{row}"), json!({"n": n, "round": round})),
            put(&format!("acct/b{worker}/{row}"), account),
            json!({"op": "add", "store": "shop", "key": "n/all", "value": 1}),
            json!({"op": "add", "store": "shop", "key": format!("n/{worker}"), "value": -3}),
        ];
        if n % 4 == 1 {
            writes[0] = json!({"op": "delete", "store": "shop", "key": format!("doc/{worker}/{}", (n - 1) * 7 % 23)});
        }
        match node.try_post(&format!("/v1/txns/{}/commit", new_id()), &json!({"writes": writes})) {
            Ok(answer) if answer.status == 200 => {
                committed.fetch_add(u64::from(answer.body["status"] == "committed"), Ordering::Relaxed);
            }
            Ok(_) => {}
            Err(_) => return,
        }
    }
}

#[test]
fn either_side_killed_at_any_moment_leaves_tables_that_equal_the_log() {
    let kills = std::env::var("TRIBUNAL_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(18_u64);
    let Some(mut database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = database.node(dir.path());
    database.declare(&node, "shop", &tables());
    let zeros: Vec<_> = ["all", "0", "1", "2"].iter().map(|name| put(&format!("n/{name}"), json!(0))).collect();
    assert_eq!(node.commit(&json!({"writes": zeros})).body["status"], "committed");
    node.kill();
    let committed = AtomicU64::new(0);
    for round in 0..kills {
        let node = database.node(dir.path());
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for worker in 0..3 {
                let (node, stop, committed) = (&node, &stop, &committed);
                scope.spawn(move || load(node, worker, round, stop, committed));
            }
            // Spread the kills over start-up, the first request, and full load.
            std::thread::sleep(Duration::from_millis(round * 53 % 330));
            match round % 3 {
                0 => node.signal("KILL"),
                1 => {
                    database.server.kill();
                    std::thread::sleep(Duration::from_millis(100));
                    database.server.restart().expect("it comes back");
                    std::thread::sleep(Duration::from_millis(150));
                }
                _ => {
                    database.server.kill();
                    std::thread::sleep(Duration::from_millis(50));
                    node.signal("KILL");
                    database.server.restart().expect("it comes back");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
        node.kill();
    }
    let node = database.node(dir.path());
    caught_up(&node, "shop");
    tables_equal_the_log(&database, &node);
    let committed = committed.into_inner();
    println!("{kills} kills, {committed} acknowledged commits, the tables equal the log");
    assert!(committed > kills, "the load must have got through");
    // Every acknowledged commit was counted, whichever process died in between.
    let all: i64 = database.cell("SELECT n FROM counter WHERE key = 'all'").parse().expect("an integer");
    assert!(all >= i64::try_from(committed).expect("few"), "{all} of {committed}");
}

#[test]
fn a_halted_database_is_waited_for_and_written_once() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = database.node(dir.path());
    database.declare(&node, "shop", &tables());
    let zeros: Vec<_> = ["all", "0"].iter().map(|name| put(&format!("n/{name}"), json!(0))).collect();
    assert_eq!(node.commit(&json!({"writes": zeros})).body["status"], "committed");
    caught_up(&node, "shop");
    let (stop, committed) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| load(&node, 0, 0, &stop, &committed));
        for ms in [30, 90, 170] {
            std::thread::sleep(Duration::from_millis(ms));
            database.server.pause(true);
            std::thread::sleep(Duration::from_millis(ms));
            database.server.pause(false);
        }
        eventually("a commit", || (committed.load(Ordering::Relaxed) > 0).then_some(()));
        stop.store(true, Ordering::Relaxed);
    });
    caught_up(&node, "shop");
    tables_equal_the_log(&database, &node);
}
