//! The client against live servers: commits, conflicts, retries, batches, log readers, and replies lost by a proxy.

mod support;

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;
use support::{Loss, Proxy, Server, profile_folder};
use tribunal_client::{
    Aborted, BeginOptions, Client, ClientOptions, Committed, Error, IsolationLevel, KeyRange, Lsn, Outcome, Row,
    RowRead, RowState, StoredValue, Transaction, TxnStatus, Version, WriteOp,
};

fn committed(outcome: Outcome) -> Committed {
    match outcome {
        Outcome::Committed(committed) => committed,
        Outcome::Aborted(aborted) => panic!("{aborted}"),
    }
}

fn aborted(outcome: Outcome) -> Aborted {
    match outcome {
        Outcome::Committed(committed) => panic!("committed: {committed:?}"),
        Outcome::Aborted(aborted) => *aborted,
    }
}

fn local(client: &Client) -> Transaction {
    client.begin_local(IsolationLevel::Serializable)
}

async fn put(client: &Client, key: &str, value: i64) -> Committed {
    let mut txn = local(client);
    txn.put("kv", key, &value).expect("a number");
    committed(txn.commit().await.expect("a verdict"))
}

fn after(committed: &Committed) -> BeginOptions {
    let session = committed.session.clone().expect("a commit has a session");
    BeginOptions { wait_ms: Some(5_000), ..BeginOptions::stores(["kv"]).session(session) }
}

async fn read(client: &Client, key: &str) -> i64 {
    let read = async |txn: &mut Transaction| txn.get("kv", key).await;
    let (row, _) = client.run(BeginOptions::stores(["kv"]), read).await.expect("a read commits");
    row.and_then(|row| row.value.as_i64()).expect("a number")
}

#[tokio::test]
async fn a_commit_writes_rows_that_later_transactions_read() {
    let Some(server) = Server::start("commit") else { return };
    let client = Client::new(&server.url).expect("a URL");
    let mut won = Committed::default();
    for key in [&b"acct/1"[..], b".", b"..", b"a/../b", b"%2e%2e", "gr\u{fc}n ?&#+".as_bytes(), b"\xff\0"] {
        let mut txn = client.begin(BeginOptions::stores(["kv"])).await.expect("begins");
        assert_eq!(txn.get("kv", key).await.expect("an answer"), None);
        txn.insert("kv", key, &json!({"balance": 100})).expect("a value");
        let own = txn.get("kv", key).await.expect("an answer").expect("own writes are read");
        assert_eq!(own.value["balance"], 100);
        won = committed(txn.commit().await.expect("a verdict"));
        let mut txn = client.begin(after(&won)).await.expect("begins");
        let row = txn.get("kv", key).await.expect("an answer").expect("the row");
        assert_eq!((row.key.as_slice(), row.version), (key, won.version));
        let rows = txn.scan("kv", key, [key, &[0]].concat(), 10).await.expect("an answer");
        assert_eq!(rows, [row]);
    }
    assert_eq!(won.lsn["kv"], Lsn(7));
}

#[tokio::test]
async fn an_abort_names_the_conflicting_row_and_run_repeats_the_work() {
    let Some(server) = Server::start("conflict") else { return };
    let client = Client::new(&server.url).expect("a URL");
    let first = put(&client, "a", 1).await;
    let mut late = local(&client);
    late.observe("kv", "a", first.version);
    late.update("kv", "a", &3).expect("a number");
    let second = put(&client, "a", 2).await;
    let lost = aborted(late.commit().await.expect("a verdict"));
    assert_eq!((lost.reason.as_str(), lost.retryable), ("read_conflict", true));
    let conflict = &lost.conflicts[0];
    assert_eq!((conflict.store.as_str(), conflict.key.as_slice()), ("kv", &b"a"[..]));
    assert_eq!((conflict.read_version, conflict.current_version), (first.version, second.version));

    let mut seen = Vec::new();
    let work = async |txn: &mut Transaction| {
        let value = txn.get("kv", "a").await?.and_then(|row| row.value.as_i64()).expect("a number");
        seen.push(value);
        if seen.len() == 1 {
            // Another client commits first, once.
            put(&client, "a", 10).await;
        }
        txn.put("kv", "a", &(value + 1))
    };
    client.run(after(&second), work).await.expect("commits in the end");
    assert!(seen.len() > 1 && seen[0] == 2, "{seen:?}");
    assert_eq!(read(&client, "a").await, 11);

    let mut attempts = 0;
    let insert = async |txn: &mut Transaction| {
        attempts += 1;
        txn.insert("kv", "a", &1)
    };
    let exists = client.run(BeginOptions::default(), insert).await;
    assert!(matches!(&exists, Err(Error::Aborted(aborted)) if aborted.reason == "row_exists"), "{exists:?}");
    assert_eq!(attempts, 1, "work that reads nothing would write the same again");
}

#[tokio::test]
async fn no_increment_of_many_concurrent_ones_is_lost() {
    let Some(server) = Server::start("increments") else { return };
    let client = Client::new(&server.url).expect("a URL");
    let begun = after(&put(&client, "counter", 0).await);
    let workers: Vec<_> = (0..8)
        .map(|_| {
            let (client, begun) = (client.clone(), begun.clone());
            tokio::spawn(async move {
                for _ in 0..5 {
                    client
                        .run(begun.clone(), async |txn| {
                            let value = txn.get("kv", "counter").await?.and_then(|row| row.value.as_i64());
                            txn.update("kv", "counter", &(value.expect("a number") + 1))?;
                            Ok::<_, Error>(())
                        })
                        .await
                        .expect("commits in the end");
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await.expect("no panic");
    }
    assert_eq!(read(&client, "counter").await, 40);
}

#[tokio::test]
async fn a_batch_returns_the_result_of_each_commit_in_order() {
    let Some(server) = Server::start("batch") else { return };
    let proxy = Proxy::start(&server.url).await;
    let client = Client::new(&proxy.url).expect("a URL");
    let batch = |client: &Client, name: &str| {
        let (mut good, mut blocked, mut lost) = (local(client), local(client), local(client));
        good.insert("kv", name, &1).expect("a number");
        blocked.update("kv", "missing", &1).expect("a number");
        lost.put("nowhere", "a", &1).expect("a number");
        [good.prepare(), blocked.prepare(), lost.prepare()]
    };
    let answers = client.batch(&batch(&client, "a")).await.expect("an answer");
    assert!(matches!(&answers[0], Ok(Outcome::Committed(_))), "{:?}", answers[0]);
    assert!(matches!(&answers[1], Ok(Outcome::Aborted(aborted)) if aborted.reason == "row_missing"), "{answers:?}");
    assert!(matches!(&answers[2], Err(Error::ClientMistake(p)) if p.code == "unknown_store"), "{answers:?}");

    proxy.lose(Loss::Reply, "/batch-commit");
    let answers = client.batch(&batch(&client, "b")[..2]).await.expect("resolved one by one");
    assert!(matches!(&answers[0], Ok(Outcome::Committed(committed)) if committed.replayed), "{answers:?}");
    assert!(matches!(&answers[1], Ok(Outcome::Aborted(aborted)) if aborted.reason == "row_missing"), "{answers:?}");
}

#[tokio::test]
async fn rows_are_read_by_begin_by_get_many_and_with_cached_versions() {
    let Some(server) = Server::start("reads") else { return };
    let client = Client::new(&server.url).expect("a URL");
    let first = put(&client, "a", 1).await;
    let mut null = local(&client);
    null.put("kv", b"\xff", &json!(null)).expect("JSON");
    let null = committed(null.commit().await.expect("a verdict"));

    let begin = BeginOptions::stores(["kv"]).read("kv", [&b"a"[..], b"\xff", b"none"]);
    let mut txn = client.begin(begin.clone()).await.expect("begins");
    let row = txn.get("kv", b"\xff").await.expect("known").expect("a row");
    assert_eq!((row.value, row.version), (json!(null), null.version));
    assert_eq!(txn.get("kv", "none").await.expect("known"), None);
    // This row was read ahead, and `get` never returned it: its change is no conflict.
    let second = put(&client, "a", 2).await;
    txn.put("kv", "b", &1).expect("a number");
    committed(txn.commit().await.expect("a verdict"));

    let mut values = Vec::new();
    let work = async |txn: &mut Transaction| {
        let value = txn.get("kv", "a").await?.and_then(|row| row.value.as_i64());
        values.push(value);
        if values.len() == 1 {
            put(&client, "a", 3).await;
        }
        txn.put("kv", "b", &2)
    };
    client.run(begin, work).await.expect("commits in the end");
    assert_eq!(values, [Some(2), Some(3)], "each attempt gets fresh rows");

    let mut txn = client.begin(BeginOptions::stores(["kv"])).await.expect("begins");
    txn.insert("kv", "own", &5).expect("a number");
    let rows = txn.get_many("kv", &["own", "none", "a"]).await.expect("rows");
    let found: Vec<_> = rows.into_iter().map(|row| row.map(|row| row.value)).collect();
    assert_eq!(found, [Some(json!(5)), None, Some(json!(3))]);
    put(&client, "none", 1).await;
    assert_eq!(
        aborted(txn.commit().await.expect("a verdict")).reason,
        "read_conflict",
        "an absent row is read as well"
    );

    let latest = client.row("kv", "a").await.expect("an answer").expect("a row");
    let ask = |known| [RowRead { key: b"a", known }, RowRead { key: b"nobody", known: None }];
    let found = client.read_rows("kv", &ask(latest.version)).await.expect("rows");
    assert!(found.applied >= second.epoch, "{found:?}");
    assert_eq!(found.rows, [RowState::Unchanged(latest.version.expect("a version")), RowState::Absent]);
    let found = client.read_rows("kv", &ask(first.version)).await.expect("rows");
    assert_eq!(found.rows, [RowState::Found(latest), RowState::Absent]);
}

#[tokio::test]
async fn sessions_whose_requests_gather_read_their_own_writes() {
    let Some(server) = Server::start("own") else { return };
    let client = Client::new(&server.url).expect("a URL");
    let sessions: Vec<_> = (0..64)
        .map(|n| {
            let client = client.clone();
            tokio::spawn(async move {
                let (own, shared) = (format!("own/{n}"), format!("shared/{}", n % 4));
                let begin = BeginOptions::stores(["kv"]).read("kv", [own.as_str()]);
                let mut ids = Vec::new();
                for round in 1..=10 {
                    let mut txn = client.begin(begin.clone()).await.expect("begins");
                    ids.push(txn.id().to_owned());
                    let before = txn.get("kv", &own).await.expect("an answer").and_then(|row| row.value.as_i64());
                    assert_eq!(before, (round > 1).then(|| round - 1), "{own} at Begin");
                    txn.put("kv", &own, &round).expect("a number");
                    txn.put("kv", &shared, &n).expect("a number");
                    let won = committed(txn.commit().await.expect("a verdict"));
                    let row = client.row("kv", &own).await.expect("an answer").expect("a row");
                    assert_eq!((row.value, row.version), (json!(round), won.version), "{own} after its commit");
                    let row = client.row("kv", &shared).await.expect("an answer").expect("a row");
                    assert!(row.version >= won.version, "{shared}: {row:?} after {won:?}");
                }
                ids
            })
        })
        .collect();
    let mut ids = std::collections::BTreeSet::new();
    for session in sessions {
        ids.extend(session.await.expect("no panic"));
    }
    assert_eq!(ids.len(), 640, "each transaction has an id of its own");
}

#[tokio::test]
async fn ranges_are_read_by_begin_and_outside_transactions() {
    let Some(server) = Server::start("ranges") else { return };
    let client = Client::new(&server.url).expect("a URL");
    for (n, key) in ["a/1", "a/2", "a/3", "b/1"].into_iter().enumerate() {
        put(&client, key, n as i64).await;
    }
    let (all, two) = (KeyRange::new("a/", "a0", 10), KeyRange::new("a/", "a0", 2));
    let found = client.read_ranges("kv", &[two.clone(), KeyRange::new("b/", "", 5)]).await.expect("ranges");
    let keys = |rows: &[Row]| rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>();
    assert_eq!((keys(&found.ranges[0].rows), found.ranges[0].more), (vec![b"a/1".to_vec(), b"a/2".to_vec()], true));
    assert_eq!((keys(&found.ranges[1].rows), found.ranges[1].more), (vec![b"b/1".to_vec()], false));

    let begin = BeginOptions::stores(["kv"]).range("kv", all.clone()).range("kv", two);
    let mut unused = client.begin(begin.clone()).await.expect("begins");
    let mut scanned = client.begin(begin.clone()).await.expect("begins");
    let mut part = client.begin(begin).await.expect("begins");
    scanned.put("kv", "a/4", &4).expect("a number");
    let rows = scanned.scan("kv", "a/", "a0", 10).await.expect("rows");
    assert_eq!(keys(&rows), [b"a/1", b"a/2", b"a/3", b"a/4"].map(|key| key.to_vec()), "own writes included");
    assert_eq!(keys(&part.scan("kv", "a/", "a0", 2).await.expect("rows")).len(), 2);
    put(&client, "a/35", 1).await;
    // Only a range that was scanned, and as far as it was, belongs to what a transaction has read.
    for (txn, expected) in [(&mut unused, "commits"), (&mut part, "commits"), (&mut scanned, "range_conflict")] {
        txn.put("kv", "c", &1).expect("a number");
        let end = match client.commit(&txn.prepare()).await.expect("a verdict") {
            Outcome::Committed(_) => "commits".to_owned(),
            Outcome::Aborted(aborted) => aborted.reason,
        };
        assert_eq!(end, expected);
    }
}

#[tokio::test]
async fn the_log_is_read_from_an_offset_and_waits_for_further_records() {
    let Some(server) = Server::start("log") else { return };
    let client = Client::new(&server.url).expect("a URL");
    put(&client, "a", 1).await;
    put(&client, "b", 2).await;
    let mut log = client.log("kv", Lsn(0)).wait_ms(0).page_records_max(1);
    let mut seen = Vec::new();
    while let Some(record) = log.next().await.expect("an answer") {
        seen.extend(record.writes);
    }
    assert_eq!((log.offset(), log.head()), (Lsn(2), Lsn(2)));
    let late = {
        let client = client.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(200)).await;
            put(&client, "c", 3).await
        })
    };
    let mut tail = client.log("kv", log.offset()).wait_ms(60_000);
    seen.extend(tail.next().await.expect("an answer").expect("a record in time").writes);
    late.await.expect("no panic");
    let seen: Vec<_> =
        seen.iter().map(|write| (write.op, &*write.key, write.value.as_ref().map(StoredValue::get))).collect();
    let expected = |key: &'static str, value| (WriteOp::Put, key.as_bytes(), Some(value));
    assert_eq!(seen, [expected("a", "1"), expected("b", "2"), expected("c", "3")]);
}

#[tokio::test]
async fn a_null_in_the_log_is_a_value_and_a_delete_has_none() {
    let Some(server) = Server::start("null") else { return };
    let client = Client::new(&server.url).expect("a URL");
    let mut txn = local(&client);
    txn.put("kv", "a", &json!(null)).expect("JSON");
    committed(txn.commit().await.expect("a verdict"));
    let mut txn = local(&client);
    txn.delete("kv", "a").expect("a write");
    committed(txn.commit().await.expect("a verdict"));
    // The checksum of a record covers the text of its values.
    let mut log = client.log("kv", Lsn(0)).wait_ms(0);
    let mut seen = Vec::new();
    while let Some(record) = log.next().await.expect("a record with a valid checksum") {
        seen.extend(record.writes.into_iter().map(|write| (write.op, write.value.map(|value| value.to_string()))));
    }
    assert_eq!(seen, [(WriteOp::Put, Some("null".to_owned())), (WriteOp::Delete, None)]);
}

#[tokio::test]
async fn lost_replies_are_resolved_by_id_and_lost_requests_fenced() {
    let Some(server) = Server::start("lost") else { return };
    let proxy = Proxy::start(&server.url).await;
    let client = Client::new(&proxy.url).expect("a URL");
    let insert = |key: &str| {
        let mut txn = local(&client);
        txn.insert("kv", key, &1).expect("a number");
        txn.prepare()
    };
    let prepared = insert("reply");
    proxy.lose(Loss::Reply, "/commit");
    let won = committed(client.commit(&prepared).await.expect("a verdict"));
    assert!(won.replayed, "it was asked for");
    let again = committed(client.commit(&prepared).await.expect("a verdict"));
    assert_eq!((again.version, again.lsn, again.replayed), (won.version, won.lsn, true), "the same answer");

    let prepared = insert("request");
    proxy.lose(Loss::Request, "/commit");
    assert_eq!(aborted(client.commit(&prepared).await.expect("a verdict")).reason, "fenced");
    assert_eq!(aborted(client.commit(&prepared).await.expect("a verdict")).reason, "fenced", "late");
    proxy.lose(Loss::Request, "/commit");
    let mut ids = Vec::new();
    let work = async |txn: &mut Transaction| {
        ids.push(txn.id().to_owned());
        txn.insert("kv", "request", &2)
    };
    let ((), won) = client.run(BeginOptions::default(), work).await.expect("commits in the end");
    assert_eq!((ids.len(), ids[1].as_str()), (2, won.txn_id.as_str()), "under a new id");

    let hasty = ClientOptions { timeout: Duration::from_secs(3), ..ClientOptions::default() };
    let hasty = Client::with_options(&proxy.url, hasty).expect("a URL");
    proxy.lose(Loss::Silence, "/commit");
    assert!(committed(hasty.commit(&insert("silence")).await.expect("a verdict")).replayed);
}

#[tokio::test]
async fn an_outcome_that_cannot_be_determined_is_unknown() {
    let Some(server) = Server::start("unknown") else { return };
    let proxy = Proxy::start(&server.url).await;
    let (timeout, resolve_timeout) = (Duration::from_secs(5), Duration::from_secs(1));
    let hasty = ClientOptions { timeout, resolve_timeout, ..ClientOptions::default() };
    let client = Client::with_options(&proxy.url, hasty).expect("a URL");
    let mut txn = local(&client);
    txn.put("kv", "a", &1).expect("a number");
    let id = txn.id().to_owned();
    proxy.lose(Loss::Silence, "/commit");
    let stop_when_lost = async {
        proxy.lost.notified().await;
        proxy.stop();
    };
    let (outcome, ()) = tokio::join!(txn.commit(), stop_when_lost);
    assert!(matches!(&outcome, Err(Error::OutcomeUnknown { txn_id, .. }) if *txn_id == id), "{outcome:?}");
    // Once the service can be reached, the id determines the outcome.
    let status = Client::new(&server.url).expect("a URL").status(&id, true, 5_000).await;
    assert!(matches!(status, Ok(TxnStatus::Decided(_))), "{status:?}");
}

#[test]
fn the_example_runs_and_is_the_one_in_the_readme() {
    let Some(server) = Server::start("example") else { return };
    let example = Command::new(profile_folder().join("examples/transfer"))
        .env("TRIBUNAL_URL", &server.url)
        .stdin(Stdio::null())
        .output()
        .expect("cargo builds examples with the tests");
    let said = String::from_utf8_lossy(&example.stdout);
    assert!(example.status.success() && said.starts_with("moved in epoch "), "{example:?}");
    let (_, code) = include_str!("../examples/transfer.rs").split_once("\n\n").expect("a header");
    assert!(include_str!("../README.md").contains(&format!("```rust\n{code}```")), "README.md has other code");
}

/// Commits on rows of 64 sessions, each its own, checks every verdict, and returns how many were resolved.
async fn sessions(client: &Client, prefix: &'static str, rounds: u64) -> usize {
    let sessions: Vec<_> = (0..64)
        .map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                let (key, mut version, mut replayed) = (format!("{prefix}{number:02}"), None, 0);
                for round in 0..rounds {
                    let mut good = local(&client);
                    good.observe("kv", &key, version);
                    good.put("kv", &key, &round).expect("JSON");
                    let mut bad = local(&client);
                    // It has read a version that never was.
                    bad.observe("kv", &key, Version::from_bits(1));
                    bad.put("kv", &key, &-1).expect("JSON");
                    let ids = [good.id().to_owned(), bad.id().to_owned()];
                    let won = committed(good.commit().await.expect("a verdict"));
                    assert_eq!(won.txn_id, ids[0]);
                    replayed += usize::from(won.replayed);
                    version = won.version;
                    let lost = aborted(bad.commit().await.expect("a verdict"));
                    assert_eq!((lost.txn_id.as_str(), lost.reason.as_str()), (ids[1].as_str(), "read_conflict"));
                }
                replayed
            })
        })
        .collect();
    let mut replayed = 0;
    for session in sessions {
        replayed += session.await.expect("no panic");
    }
    let mut last = client.begin(BeginOptions::stores(["kv"])).await.expect("begins");
    let rows = last.scan("kv", prefix, format!("{prefix}~"), 100).await.expect("the rows");
    assert_eq!(rows.len(), 64);
    assert!(rows.iter().all(|row| row.value == json!(rounds - 1)), "{rows:?}");
    replayed
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_sessions_on_disjoint_rows_get_their_verdicts_in_order() {
    let Some(server) = Server::start("coalesce") else { return };
    let client = Client::new(&server.url).expect("a URL");
    sessions(&client, "all/", 10).await;

    let proxy = Proxy::start(&server.url).await;
    let client = Client::new(&proxy.url).expect("a URL");
    proxy.lose(Loss::Reply, "/batch-commit");
    let replayed = sessions(&client, "lost/", 3).await;
    assert!(replayed > 1, "each commit of the batch is resolved: {replayed}");
    proxy.stop();
}
