//! Clients of a cluster under faults: half of them move money, the other half read lists and append to them. At the
//! end, the responses they received are audited against the logs and the rows of all nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::cluster::Cluster;
use super::list_append::{Ending, Txn};
use super::{Caller, eventually, eventually_within, new_id};

const ACCOUNTS: u64 = 8;
const DEPOSIT: i64 = 100;
const LISTS: u64 = 6;
/// Minimum verdicts of each workload during a fault, and during the time after it.
pub const VERDICTS: u64 = 25;

/// A small generator; nothing depends on its quality.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A commit that a client has posted, and the verdict that it received.
pub struct Posted {
    pub id: String,
    pub verdict: Option<Value>,
    pub list: Option<Txn>,
}

/// The longest time without a commit since the last fault began.
pub struct Pause {
    last: Instant,
    pub longest: Duration,
}

/// State shared by the clients.
pub struct Clients {
    pub urls: Mutex<Vec<String>>,
    /// The level of the bank, and that of the lists.
    levels: [&'static str; 2],
    begun: Instant,
    elements: AtomicU64,
    transfers: AtomicU64,
    appends: AtomicU64,
    pub stop: AtomicBool,
    pub pause: Mutex<Pause>,
    pub posted: Mutex<Vec<Posted>>,
}

impl Clients {
    pub fn url(&self, node: usize) -> String {
        let urls = self.urls.lock().unwrap();
        urls[node % urls.len()].clone()
    }

    /// Counts a commit.
    pub fn committed(&self, of: &AtomicU64) {
        of.fetch_add(1, Ordering::Relaxed);
        let (mut pause, now) = (self.pause.lock().unwrap(), Instant::now());
        pause.longest = pause.longest.max(now - pause.last);
        pause.last = now;
    }

    pub fn now(&self) -> u64 {
        self.begun.elapsed().as_nanos() as u64
    }

    /// Reads rows as of one snapshot; returns the snapshot, and each row's value and version.
    pub fn read(&self, caller: &Caller, node: usize, fresh: bool, keys: &[String]) -> Option<(Value, Vec<Value>)> {
        let rows: Vec<Value> = keys.iter().map(|key| json!({"store": "kv", "key": key})).collect();
        let mut body = json!({"stores": ["kv"], "read": rows});
        if fresh {
            body["consistency"] = json!("fresh");
        }
        let mut begun =
            caller.post(&format!("{}/v1/txns", self.url(node)), &body).ok().filter(|it| it.status == 201)?;
        let rows = begun.body["rows"].as_array().expect("rows").clone();
        assert_eq!(rows.len(), keys.len(), "{}", begun.body);
        Some((begun.body["snapshots"].take(), rows))
    }

    /// Posts a commit until there is a verdict, at one node after the other, always under the same id.
    pub fn commit(&self, caller: &Caller, node: usize, id: &str, body: &Value) -> Option<Value> {
        (0..caller.tries).find_map(|turn| {
            let answer = caller.post(&format!("{}/v1/txns/{id}/commit", self.url(node + turn)), body).ok();
            let verdict = answer.filter(|answer| answer.status == 200).map(|answer| answer.body);
            if verdict.is_none() {
                std::thread::sleep(Duration::from_millis(30));
            }
            verdict
        })
    }

    /// Moves money until told to stop. The balances of each read of all accounts add up.
    pub fn transfer(&self, seed: u64) {
        let (caller, mut dice) = (Caller::new(Duration::from_secs(2)), Dice(seed));
        let accounts: Vec<String> = (0..ACCOUNTS).map(account).collect();
        let mut node = seed as usize;
        while !self.stop.load(Ordering::Relaxed) {
            node += usize::from(dice.below(8) == 0);
            let Some((snapshots, rows)) = self.read(&caller, node, dice.below(4) == 0, &accounts) else {
                node += 1;
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let sum: i64 = rows.iter().map(|row| row["value"].as_i64().expect("an amount")).sum();
            assert_eq!(sum, ACCOUNTS as i64 * DEPOSIT, "money has appeared or vanished: {rows:?}");
            let from = dice.below(ACCOUNTS) as usize;
            let to = (from + 1 + dice.below(ACCOUNTS - 1) as usize) % ACCOUNTS as usize;
            let amount = 1 + dice.below(20) as i64;
            let moved = |at: usize, by: i64| {
                let value = rows[at]["value"].as_i64().expect("an amount") + by;
                json!({"op": "put", "store": "kv", "key": accounts[at], "value": value})
            };
            let read = |at: usize| json!({"store": "kv", "key": accounts[at], "version": rows[at]["version"]});
            let id = new_id();
            let done = json!({"op": "insert", "store": "kv", "key": format!("done/{id}"), "value": amount});
            let body = json!({"isolation": self.levels[0], "snapshots": snapshots, "reads": [read(from), read(to)],
                "writes": [moved(from, -amount), moved(to, amount), done]});
            let verdict = self.commit(&caller, node + usize::from(dice.below(8) == 0), &id, &body);
            if verdict.as_ref().is_some_and(|verdict| verdict["status"] == "committed") {
                self.committed(&self.transfers);
            }
            self.posted.lock().unwrap().push(Posted { id, verdict, list: None });
        }
    }

    /// Reads lists and appends to some of them until told to stop.
    pub fn append(&self, seed: u64) {
        let (caller, mut dice) = (Caller::new(Duration::from_secs(2)), Dice(seed));
        let mut node = seed as usize;
        while !self.stop.load(Ordering::Relaxed) {
            node += usize::from(dice.below(8) == 0);
            let first = dice.below(LISTS);
            let keys: Vec<String> = (0..1 + dice.below(3)).map(|nth| list((first + 2 * nth) % LISTS)).collect();
            let (fresh, asked) = (dice.below(3) == 0, self.now());
            let Some((snapshots, rows)) = self.read(&caller, node, fresh, &keys) else {
                node += 1;
                std::thread::sleep(Duration::from_millis(10));
                continue;
            };
            let appended: Vec<bool> = keys.iter().map(|_| dice.below(2) == 0).collect();
            let at = node + usize::from(dice.below(8) == 0);
            let mut posted = self.post_lists(&caller, at, &snapshots, &keys, &rows, &appended);
            if let Some(txn) = posted.list.as_mut().filter(|txn| txn.appends.is_empty()) {
                // A read-only transaction sees the commits acknowledged by other nodes before its read, if it requested
                // that.
                txn.begun = fresh.then_some(asked);
            }
            if posted.verdict.as_ref().is_some_and(|verdict| verdict["status"] == "committed") {
                self.committed(&self.appends);
            }
            self.posted.lock().unwrap().push(posted);
        }
    }

    /// Posts a transaction that has read lists and appends to some of them.
    pub fn post_lists(
        &self,
        caller: &Caller,
        node: usize,
        snapshots: &Value,
        keys: &[String],
        rows: &[Value],
        appended: &[bool],
    ) -> Posted {
        let id = new_id();
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let mut txn =
            Txn { name: id.clone(), begun: None, ending: Ending::Aborted, reads: Vec::new(), appends: Vec::new() };
        for ((key, row), is_appended) in keys.iter().zip(rows).zip(appended) {
            let mut elements = elements(&row["value"]);
            reads.push(json!({"store": "kv", "key": key, "version": row["version"]}));
            txn.reads.push((key.clone(), elements.clone()));
            if *is_appended {
                let element = self.elements.fetch_add(1, Ordering::Relaxed);
                elements.push(element);
                txn.appends.push((key.clone(), element));
                writes.push(json!({"op": "put", "store": "kv", "key": key, "value": elements}));
            }
        }
        let body = json!({"isolation": self.levels[1], "snapshots": snapshots, "reads": reads, "writes": writes});
        txn.begun = Some(self.now());
        let verdict = self.commit(caller, node, &id, &body);
        if verdict.as_ref().is_some_and(|verdict| verdict["status"] == "committed") {
            txn.ending = Ending::Committed(self.now());
        }
        Posted { id, verdict, list: Some(txn) }
    }
}

pub fn account(number: u64) -> String {
    format!("account/{number}")
}

pub fn list(number: u64) -> String {
    format!("list/{number}")
}

pub fn elements(value: &Value) -> Vec<u64> {
    value.as_array().expect("a list").iter().map(|element| element.as_u64().expect("an element")).collect()
}

/// Writes accounts and empty lists to a cluster, for a bank and for lists at these levels.
pub fn prepare(cluster: &Cluster, bank: &'static str, lists: &'static str) -> Clients {
    let urls = cluster.running().map(|node| node.url.clone()).collect();
    let clients = Clients {
        urls: Mutex::new(urls),
        levels: [bank, lists],
        begun: Instant::now(),
        elements: AtomicU64::new(0),
        transfers: AtomicU64::new(0),
        appends: AtomicU64::new(0),
        stop: AtomicBool::new(false),
        pause: Mutex::new(Pause { last: Instant::now(), longest: Duration::ZERO }),
        posted: Mutex::new(Vec::new()),
    };
    let accounts = (0..ACCOUNTS).map(|n| json!({"op": "put", "store": "kv", "key": account(n), "value": DEPOSIT}));
    let lists = (0..LISTS).map(|n| json!({"op": "put", "store": "kv", "key": list(n), "value": []}));
    let (id, body) = (new_id(), json!({"writes": accounts.chain(lists).collect::<Vec<_>>()}));
    let verdict = eventually("the first rows", || clients.commit(&Caller::new(Duration::from_secs(3)), 0, &id, &body));
    assert_eq!(verdict["status"], "committed", "{verdict}");
    clients.posted.lock().unwrap().push(Posted { id, verdict: Some(verdict), list: None });
    // No client reads before all nodes have them.
    cluster.settled();
    clients
}

/// Waits until both workloads have committed [`VERDICTS`] more transactions.
pub fn progress(clients: &Clients, during: &str) {
    for counter in [&clients.transfers, &clients.appends] {
        let goal = counter.load(Ordering::Relaxed) + VERDICTS;
        let reached = || (counter.load(Ordering::Relaxed) >= goal).then_some(());
        eventually_within(Duration::from_secs(120), &format!("commits {during}"), reached);
    }
}

/// Checks that all nodes have the same log, and that it contains exactly the transactions that clients were told of.
/// Returns all attempts at lists, with verdicts for clients that received none, and the log.
pub fn audit(cluster: &Cluster, clients: Clients) -> (usize, Vec<Txn>, Vec<Value>) {
    cluster.settled();
    let urls: Vec<&str> = cluster.running().map(|node| &*node.url).collect();
    eventually("`cluster status` to say that all is well", || {
        let mut status = Command::new(env!("CARGO_BIN_EXE_tribunal"));
        let said = status.args(["cluster", "status", "--url", &urls.join(",")]).output().expect("it runs");
        said.status.success().then_some(())
    });
    let posted = clients.posted.into_inner().unwrap();
    // First: commits still in flight are decided, or never will be.
    let unknown = posted.iter().filter(|posted| posted.verdict.is_none());
    let fenced: BTreeSet<&str> = unknown
        .filter(|posted| {
            let mut statuses = cluster.running().map(|node| {
                eventually("a final status", || {
                    let answer = node.get(&format!("/v1/txns/{}?fence=true", posted.id));
                    (answer.status == 200).then(|| answer.body["status"] == "committed")
                })
            });
            let first = statuses.next().expect("one runs");
            assert!(statuses.all(|status| status == first), "{}: nodes differ", posted.id);
            first
        })
        .map(|posted| &*posted.id)
        .collect();
    cluster.settled();
    let mut logs: Vec<Vec<Value>> = cluster.running().map(|node| node.log_of("kv")).collect();
    assert!(logs.iter().all(|log| *log == logs[0]), "all nodes have the same log");
    let mut records = BTreeMap::new();
    for (lsn, record) in (1..).zip(&logs[0]) {
        assert_eq!(record["lsn"], lsn.to_string(), "the log is dense");
        assert!(records.insert(record["txn_id"].as_str().expect("an id"), record).is_none(), "twice: {record}");
    }
    let (mut acknowledged, mut lists, mut found) = (0, Vec::new(), 0);
    for Posted { id, verdict, list } in &posted {
        let only_read = list.as_ref().is_some_and(|list| list.appends.is_empty());
        let record = records.get(&**id);
        let is_committed = match verdict {
            Some(verdict) => verdict["status"] == "committed",
            None => fenced.contains(&**id),
        };
        // A read-only transaction is in no log.
        if !only_read {
            assert_eq!(record.is_some(), is_committed, "{id} is lost, or there although it aborted: {verdict:?}");
            found += usize::from(record.is_some());
        }
        if let (Some(record), Some(verdict)) = (record, verdict) {
            assert_eq!(record["version"], verdict["version"], "{id}");
            acknowledged += 1;
        }
        lists.extend(list.clone().map(|mut list| {
            if verdict.is_none() && is_committed {
                list.ending = Ending::CommittedUnseen;
            }
            list
        }));
    }
    assert_eq!(found, records.len(), "nobody posted the others");
    println!(
        "{acknowledged} acknowledged commits, none lost; {} in doubt for their clients at first, {} of them committed",
        posted.iter().filter(|posted| posted.verdict.is_none()).count(),
        fenced.len()
    );
    drop(records);
    (acknowledged, lists, logs.swap_remove(0))
}

/// Checks the rows of all nodes, and returns the lists.
pub fn last_lists(cluster: &Cluster) -> BTreeMap<String, Vec<u64>> {
    let mut all = cluster.running().map(|node| {
        let value = |key: &str| node.get(&format!("/v1/stores/kv/rows/{key}")).body["value"].clone();
        let sum: i64 = (0..ACCOUNTS).map(|n| value(&account(n)).as_i64().expect("an amount")).sum();
        assert_eq!(sum, ACCOUNTS as i64 * DEPOSIT, "the books balance");
        (0..LISTS).map(|n| (list(n), elements(&value(&list(n))))).collect::<BTreeMap<_, _>>()
    });
    let first = all.next().expect("one runs");
    assert!(all.all(|lists| lists == first), "all nodes have the same rows");
    first
}

/// Runs two transactions that read two lists at one snapshot and each append to a different one of them, at different
/// nodes. Returns how many commit.
pub fn skew(clients: &Clients) -> usize {
    let (caller, keys) = (Caller::patient(), [list(0), list(1)]);
    let (snapshots, rows) = eventually("a snapshot", || clients.read(&caller, 0, true, &keys));
    let posted: Vec<Posted> = [[true, false], [false, true]]
        .iter()
        .enumerate()
        .map(|(node, appended)| clients.post_lists(&caller, node, &snapshots, &keys, &rows, appended))
        .collect();
    let committed = |posted: &&Posted| posted.verdict.as_ref().expect("a verdict")["status"] == "committed";
    let count = posted.iter().filter(committed).count();
    clients.posted.lock().unwrap().extend(posted);
    count
}

/// Returns the elements of each list in the order in which they were written, according to the log. A list that was
/// overwritten, at a level that allows it, lacks some of them at the end.
fn orders(log: &[Value]) -> BTreeMap<String, Vec<u64>> {
    let mut orders: BTreeMap<String, Vec<u64>> = (0..LISTS).map(|n| (list(n), Vec::new())).collect();
    for write in log.iter().flat_map(|record| record["writes"].as_array().expect("writes")) {
        if let Some(order) = write["key"].as_str().and_then(|key| orders.get_mut(key)) {
            // Each write contains the list that was read plus one element.
            order.extend(elements(&write["value"]).last());
        }
    }
    orders
}

/// Returns the history as if no transaction had overwritten elements that it had not read: a read list is extended to
/// all elements written up to its last one.
pub fn by_versions(history: Vec<Txn>, log: &[Value]) -> (Vec<Txn>, BTreeMap<String, Vec<u64>>) {
    let orders = orders(log);
    let seen = |(key, list): (String, Vec<u64>)| {
        let order = &orders[&key];
        let upto = list.last().and_then(|last| order.iter().position(|element| element == last));
        match (upto, list.is_empty()) {
            (Some(at), _) => (key, order[..=at].to_vec()),
            // The read list was never committed.
            (None, false) => (key, list),
            (None, true) => (key, Vec::new()),
        }
    };
    let history =
        history.into_iter().map(|txn| Txn { reads: txn.reads.into_iter().map(seen).collect(), ..txn }).collect();
    (history, orders)
}

/// Runs two transactions that append to the version of a list that both have read, one after the other and at different
/// nodes. Returns how many commit.
pub fn lost_update(clients: &Clients) -> usize {
    let (caller, keys) = (Caller::patient(), [list(2)]);
    let (snapshots, rows) = eventually("a snapshot", || clients.read(&caller, 0, true, &keys));
    let post = |node| clients.post_lists(&caller, node, &snapshots, &keys, &rows, &[true]);
    let posted = [post(0), post(1)];
    let committed = |posted: &&Posted| posted.verdict.as_ref().expect("a verdict")["status"] == "committed";
    let count = posted.iter().filter(committed).count();
    clients.posted.lock().unwrap().extend(posted);
    count
}

/// Runs two transactions that find nothing in a range and each insert a row there, at different nodes. Returns how many
/// commit.
pub fn phantoms(clients: &Clients) -> usize {
    let caller = Caller::patient();
    let (snapshots, _) = eventually("a snapshot", || clients.read(&caller, 0, true, &[list(0)]));
    let post = |node: usize| {
        let row = json!({"op": "insert", "store": "kv", "key": format!("range/{node}"), "value": node});
        let range = json!({"store": "kv", "start": "range/", "end": "range0"});
        let body = json!({"isolation": clients.levels[1], "snapshots": snapshots, "ranges": [range], "writes": [row]});
        let id = new_id();
        let verdict = clients.commit(&caller, node, &id, &body);
        Posted { id, verdict, list: None }
    };
    let posted = [post(0), post(1)];
    let committed = |posted: &&Posted| posted.verdict.as_ref().expect("a verdict")["status"] == "committed";
    let count = posted.iter().filter(committed).count();
    clients.posted.lock().unwrap().extend(posted);
    count
}
