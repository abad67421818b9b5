//! What a scan leaves in the commit, and that it excludes what the level excludes, within an epoch as well.

#[expect(dead_code, reason = "other tests use the proxy")]
mod support;

use support::Server;
use tribunal_client::{BeginOptions, Client, IsolationLevel, Outcome, Transaction};

async fn put(client: &Client, key: &str, value: i64) {
    let mut txn = client.begin_local(IsolationLevel::Serializable);
    txn.put("kv", key, &value).expect("a number");
    let outcome = txn.commit().await.expect("a verdict");
    assert!(matches!(outcome, Outcome::Committed(_)), "{outcome:?}");
}

/// Begins a transaction that has scanned two rows.
async fn scanned(client: &Client, isolation: IsolationLevel, prefix: &str) -> Transaction {
    let options = BeginOptions { isolation, ..BeginOptions::stores(["kv"]) };
    let mut txn = client.begin(options).await.expect("begins");
    let rows = txn.scan("kv", prefix, format!("{prefix}~"), 10).await.expect("rows");
    assert_eq!(rows.len(), 2);
    txn
}

#[tokio::test]
async fn a_scanned_row_is_sent_only_if_its_range_does_not_cover_it() {
    let Some(server) = Server::start("scan-sent") else { return };
    let client = Client::new(&server.url).expect("a URL");
    for (level, reads, end) in [
        (IsolationLevel::ReadCommitted, 2, "committed"),
        (IsolationLevel::RepeatableRead, 2, "read_conflict"),
        (IsolationLevel::Snapshot, 2, "range_conflict"),
        (IsolationLevel::Serializable, 0, "range_conflict"),
    ] {
        put(&client, "r/a", 1).await;
        put(&client, "r/b", 1).await;
        let mut txn = scanned(&client, level, "r/").await;
        let request = txn.prepare().request;
        assert_eq!((request.reads.len(), request.ranges.len()), (reads, 1), "{level:?}");
        put(&client, "r/a", 2).await;
        // Reads of the row do not replace what the scan observed.
        let _ = txn.get("kv", "r/a").await.expect("an answer");
        assert_eq!(txn.prepare().request.reads.len(), reads, "{level:?}");
        txn.put("kv", "elsewhere", &1).expect("a number");
        let found = match txn.commit().await.expect("a verdict") {
            Outcome::Committed(_) => "committed".to_owned(),
            Outcome::Aborted(lost) => lost.reason.to_string(),
        };
        assert_eq!(found, end, "{level:?}");
    }
    // A row that was also read by itself is sent.
    let mut txn = client.begin(BeginOptions::stores(["kv"])).await.expect("begins");
    let _ = txn.get("kv", "r/a").await.expect("an answer");
    let _ = txn.scan("kv", "r/", "r0", 10).await.expect("rows");
    assert_eq!(txn.prepare().request.reads.len(), 1);
}

#[tokio::test]
async fn transactions_that_scanned_the_same_rows_conflict_within_an_epoch() {
    let Some(server) = Server::start("scan-epoch") else { return };
    let client = Client::new(&server.url).expect("a URL");
    // Snapshot allows write skew.
    for (level, skew) in [
        (IsolationLevel::RepeatableRead, false),
        (IsolationLevel::RepeatableRead, true),
        (IsolationLevel::Snapshot, false),
        (IsolationLevel::Serializable, false),
        (IsolationLevel::Serializable, true),
    ] {
        put(&client, "r/a", 1).await;
        put(&client, "r/b", 1).await;
        let mut both = [scanned(&client, level, "r/").await, scanned(&client, level, "r/").await];
        for (txn, key) in both.iter_mut().zip(["r/a", "r/b"]) {
            let written = if skew { txn.put("kv", key, &0) } else { txn.add("kv", "r/a", -1) };
            written.expect("a number");
        }
        let commits = both.map(|txn| txn.prepare());
        let results = client.batch(&commits).await.expect("results");
        let won = results.iter().filter(|result| matches!(result, Ok(Outcome::Committed(_)))).count();
        assert_eq!(won, 1, "{level:?}, skew: {skew}");
    }
}

#[tokio::test]
async fn a_scan_returns_as_many_rows_as_its_limit_if_there_are_as_many() {
    let Some(server) = Server::start("scan-limit") else { return };
    let client = Client::new(&server.url).expect("a URL");
    let keys: Vec<String> = (0..20).map(|n| format!("job/{n:02}")).collect();
    for key in &keys {
        let mut txn = client.begin_local(IsolationLevel::Serializable);
        // Twenty of these are more than the service returns at once.
        txn.put("kv", key, &"x".repeat(900_000)).expect("text");
        assert!(matches!(txn.commit().await.expect("a verdict"), Outcome::Committed(_)));
    }
    let mut txn = client.begin(BeginOptions::stores(["kv"])).await.expect("begins");
    let all = txn.scan("kv", "job/", "job0", 1000).await.expect("rows");
    assert_eq!(
        all.iter().map(|row| &row.key[..]).collect::<Vec<_>>(),
        keys.iter().map(String::as_bytes).collect::<Vec<_>>()
    );
    assert_eq!(txn.prepare().request.ranges.len(), 1, "one range, however many pages");

    // Rows that the transaction has deleted do not count.
    let mut queue = client.begin(BeginOptions::stores(["kv"])).await.expect("begins");
    for key in &keys {
        let next = queue.scan("kv", "job/", "job0", 1).await.expect("rows");
        assert_eq!(next.iter().map(|row| &row.key[..]).collect::<Vec<_>>(), [key.as_bytes()]);
        queue.delete("kv", key).expect("a key");
    }
    assert!(queue.scan("kv", "job/", "job0", 1).await.expect("rows").is_empty());
}
