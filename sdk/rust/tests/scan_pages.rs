//! Scans of several pages, against a service that replies by a script: failures between pages, and what a scan leaves to
//! later reads.

#[path = "support/scripted.rs"]
#[expect(dead_code, reason = "other tests use the other replies")]
mod scripted;

use scripted::{Reply, Service, begun, problem};
use serde_json::{Value, json};
use tribunal_client::{BeginOptions, Error};

fn page(keys: &[&str], more: bool) -> Reply {
    let row = |key: &&str| json!({ "key": key, "value": { "of": key }, "version": "8388608" });
    let rows: Vec<Value> = keys.iter().map(row).collect();
    Reply::Json(200, json!({ "applied": "7", "ranges": [{ "store": "kv", "rows": rows, "more": more }] }))
}

#[tokio::test]
async fn a_row_read_after_a_scan_that_failed_is_a_read_of_its_own() {
    let service = Service::start(|kind, before| match (kind, before) {
        ("begin", n) => begun(n),
        ("rows", 0) => page(&["a"], true),
        ("rows", 1) => problem(429, "quota", false),
        _ => {
            let row = json!({ "store": "kv", "key": "a", "value": 1, "version": "8388608" });
            Reply::Json(200, json!({ "applied": "7", "rows": [row] }))
        }
    })
    .await;
    let mut txn = service.client().begin(BeginOptions::stores(["kv"])).await.expect("begins");
    assert!(txn.scan("kv", "", "", 10).await.is_err(), "the second page is refused");
    assert!(txn.is_blind(), "the caller has seen nothing");
    txn.get("kv", "a").await.expect("an answer").expect("a row");
    let request = txn.prepare().request;
    // No range covers it.
    assert_eq!((request.reads.len(), request.ranges.len()), (1, 0), "{request:?}");
}

#[tokio::test]
async fn get_returns_what_a_scan_has_returned() {
    let service = Service::start(|kind, before| match (kind, before) {
        ("begin", n) => begun(n),
        ("rows", 0) => page(&["a"], true),
        ("rows", 1) => page(&["b"], false),
        _ => problem(400, "asked_again", false),
    })
    .await;
    let mut txn = service.client().begin(BeginOptions::stores(["kv"])).await.expect("begins");
    let scanned = txn.scan("kv", "", "", 10).await.expect("rows");
    assert_eq!(scanned.len(), 2);
    for row in &scanned {
        assert_eq!(txn.get("kv", &row.key).await.expect("no request").as_ref(), Some(row));
    }
    let rows = txn.get_many("kv", &["b", "a"]).await.expect("no request");
    assert_eq!(rows, [Some(scanned[1].clone()), Some(scanned[0].clone())]);
    assert_eq!(service.asked("rows").len(), 2);
}

#[tokio::test]
async fn a_scan_is_never_older_than_the_snapshot() {
    let aged = |page: Reply, applied: u64| match page {
        Reply::Json(status, mut body) => {
            body["applied"] = json!(applied.to_string());
            Reply::Json(status, body)
        }
        other => other,
    };
    let service = Service::start(move |kind, before| match (kind, before) {
        ("begin", n) => begun(n),
        // Of a node that lags: the snapshot is 7.
        ("rows", 0 | 2) => aged(page(&[], false), 6),
        ("rows", 1) => page(&["a"], true),
        _ => aged(page(&["b"], false), 8),
    })
    .await;
    let mut txn = service.client().begin(BeginOptions::stores(["kv"])).await.expect("begins");
    let rows = txn.scan("kv", "", "", 10).await.expect("rows");
    assert_eq!(rows.iter().map(|row| &row.key[..]).collect::<Vec<_>>(), [b"a", b"b"]);
    let asked = service.asked("rows");
    assert_eq!(asked.len(), 4);
    assert!(asked.iter().all(|(_, _, body)| body["session"] == "s"), "{asked:?}");
}

#[tokio::test]
async fn a_limit_that_no_page_can_have_is_a_misuse() {
    let service = Service::start(|kind, before| if kind == "begin" { begun(before) } else { page(&[], false) }).await;
    let mut txn = service.client().begin(BeginOptions::stores(["kv"])).await.expect("begins");
    for limit in [0, 10_001, usize::MAX] {
        let refused = txn.scan("kv", "", "", limit).await;
        let Err(Error::Misuse(text)) = &refused else { panic!("{limit}: {refused:?}") };
        assert!(text.contains("10000") && text.contains(&limit.to_string()), "{text}");
    }
    assert!(service.asked("rows").is_empty());
}
