//! What requests must include: the client's own session and its end, and the time that the service waits for it.

#[path = "support/endpoints.rs"]
#[expect(dead_code, reason = "other tests use the other replies")]
mod endpoints;

#[path = "support/scripted.rs"]
#[expect(dead_code, reason = "other tests use the other replies")]
mod scripted;

use std::time::Duration;

use endpoints::{Endpoint, Reply, assert_committed, client, options, prepared, refused, works};
use scripted::Service;
use serde_json::{Value, json};
use tribunal_client::{BeginOptions, ClientOptions, Error, IsolationLevel, KeyRange, ReadOptions, RowRead};

fn committed(epoch: u64) -> scripted::Reply {
    let body = json!({ "status": "committed", "txn_id": "txn-0", "epoch": epoch.to_string(), "version": "9437184",
        "lsn": { "kv": "3" }, "session": format!("token-{epoch}") });
    scripted::Reply::Json(200, body)
}

fn sessions(service: &Service) -> Vec<Value> {
    service.asked("begin").into_iter().map(|(_, _, body)| body["session"].clone()).collect()
}

#[tokio::test]
async fn an_own_token_that_the_service_does_not_know_is_forgotten() {
    let service = Service::start(|kind, before| match (kind, before) {
        ("begin", 0 | 3) => scripted::problem(422, "session_unknown", false),
        ("begin", n) => scripted::begun(n),
        _ => committed(9000),
    })
    .await;
    let client = service.client();
    let mut txn = client.begin_local(IsolationLevel::Serializable);
    txn.put("kv", "a", &1).expect("a number");
    txn.commit().await.expect("a verdict");
    // Refused, sent again without it, and without it from then on.
    for _ in 0..2 {
        client.begin(BeginOptions::stores(["kv"])).await.expect("begins");
    }
    assert_eq!(sessions(&service), [json!("token-9000"), Value::Null, Value::Null]);
    // The caller's own is the caller's to omit.
    let refused = client.begin(BeginOptions::stores(["kv"]).session("mine")).await.err();
    assert!(
        matches!(&refused, Some(Error::ClientMistake(problem)) if problem.code == "session_unknown"),
        "{refused:?}"
    );
    assert_eq!(sessions(&service)[3..], [json!("mine")]);
}

#[tokio::test]
async fn a_verdict_that_was_asked_for_counts_as_an_own_commit() {
    let service = Service::start(|kind, before| match kind {
        "begin" => scripted::begun(before),
        "status" => committed(9),
        _ => committed(12),
    })
    .await;
    let client = service.client();
    client.status("a", false, 0).await.expect("a status");
    client.begin(BeginOptions::stores(["kv"])).await.expect("begins");
    client.abort("b").await.expect("a verdict");
    client.begin(BeginOptions::stores(["kv"])).await.expect("begins");
    assert_eq!(sessions(&service), [json!("token-9"), json!("token-12")]);
}

fn empty(applied: u64) -> Reply {
    let ranges = json!([{ "store": "kv", "rows": [], "more": false }]);
    Reply::Json(200, json!({ "applied": applied.to_string(), "rows": [{ "store": "kv" }], "ranges": ranges }))
}

#[tokio::test]
async fn reads_go_on_after_the_log_has_been_replaced() {
    for reads_rows in [true, false] {
        let first = Endpoint::start(|kind, ids, before| match before {
            0 => works(kind, ids),
            _ => refused(503, "stopping"),
        })
        .await;
        // The commit was of epoch 9.
        let second = Endpoint::start(|_, _, before| match before {
            1 => refused(422, "session_unknown"),
            _ => empty(5),
        })
        .await;
        let client = client(&[&first.url, &second.url], options());
        let commit = prepared(&client);
        assert_committed(client.commit(&commit).await, &commit);
        let applied = if reads_rows {
            client.read_rows("kv", &[RowRead { key: b"n", known: None }]).await.expect("an answer").applied
        } else {
            client.rows("kv", "", "", 10).await.expect("an answer").applied
        };
        assert_eq!(applied.0, 5);
        let body = |(_, body): (String, String)| serde_json::from_str::<Value>(&body).expect("JSON")["session"].clone();
        let asked: Vec<Value> = second.asked().into_iter().map(body).collect();
        assert_eq!(asked, [Value::Null, json!("s"), Value::Null]);
    }
}

#[tokio::test]
async fn an_endpoint_may_wait_for_what_a_request_must_include() {
    // The service waits 5 s by default, which is no failure of its endpoint.
    let slow = |kind: &str, ids: &[String], _| match kind {
        "commit" => works(kind, ids),
        "begin" => Reply::Late(Duration::from_secs(3), Box::new(works(kind, ids))),
        _ => Reply::Late(Duration::from_secs(3), Box::new(empty(9))),
    };
    let (first, second) = (Endpoint::start(slow).await, Endpoint::that_commits().await);
    let options = ClientOptions { endpoint_timeout: Duration::from_secs(2), ..options() };
    let client = client(&[&first.url, &second.url], options);
    let commit = prepared(&client);
    assert_committed(client.commit(&commit).await, &commit);
    client.begin(BeginOptions::stores(["kv"])).await.expect("begins");
    let asked = [RowRead { key: b"n", known: None }];
    client.read_rows_with("kv", &asked, ReadOptions::fresh()).await.expect("rows");
    let session = ReadOptions { session: Some("s".to_owned()), ..ReadOptions::default() };
    client.read_ranges_with("kv", &[KeyRange::new("", "", 10)], session).await.expect("ranges");
    assert_eq!((second.asked().len(), client.endpoint()), (0, first.url.as_str()));
}
