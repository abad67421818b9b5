//! The responses of each endpoint other than commits.

mod fake_node;

use fake_node::client::Client;
use fake_node::{KV, LOG, start, toy_row};
use serde_json::json;
use tribunal_service::{IdTime, ServiceError};
use tribunal_types::{Lsn, NamespaceId, Version, WriteKind};

fn id(n: u8) -> String {
    format!("0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b{n:02x}")
}

fn commit(n: u8) -> String {
    format!("/v1/txns/{}/commit", id(n))
}

#[tokio::test]
async fn begin_names_stores_sessions_and_expiry() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let all = client.post("/v1/txns", "{}").await;
    assert_eq!(all.status, 201);
    let snapshots = json!({"kv": "10", "orders/ü": "10", "declared": "10"});
    assert_eq!(all.json()["snapshots"], snapshots);
    assert_eq!(all.json()["epoch"], "11");
    let minted = all.json()["txn_id"].as_str().unwrap().to_owned();
    assert_eq!(client.post(&format!("/v1/txns/{minted}/commit"), "{}").await.status, 200);

    let lagging = client.post("/v1/txns", r#"{"stores":["kv"],"session":"v1-99"}"#).await;
    assert_eq!((lagging.status, lagging.json()["code"].as_str()), (503, Some("store_lagging")));
    assert_eq!(lagging.header("retry-after"), Some("2"));
    assert_eq!(lagging.json()["retry_after_ms"], 1500);
    assert!(lagging.json()["detail"].as_str().unwrap().starts_with("store kv "));

    let bad = client.post("/v1/txns", r#"{"stores":["kv",7,"no"],"session":"x","ttl_ms":1e9,"isolation":"?"}"#).await;
    let pointers: Vec<_> = bad.json()["errors"].as_array().unwrap().iter().map(|e| e["pointer"].clone()).collect();
    assert_eq!(pointers, ["/stores/1", "/stores/2", "/session", "/ttl_ms", "/isolation"]);
    let no_time = client.post("/v1/txns", r#"{"ttl_ms":0}"#).await;
    assert_eq!((no_time.status, no_time.json()["errors"][0]["pointer"].as_str()), (400, Some("/ttl_ms")));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_lost_reply_is_asked_for_and_fenced() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let path = format!("/v1/txns/{}", id(1));
    let unknown = client.get(&path).await;
    assert_eq!((unknown.status, unknown.header("txn-status")), (200, Some("unknown")));
    assert_eq!(unknown.json(), json!({"status": "unknown", "txn_id": id(1)}));
    let fenced = client.get(&format!("{path}?fence=true&wait_ms=10")).await;
    assert_eq!(fenced.json()["reason"], "fenced");
    assert_eq!(fenced.json()["retryable"], false);

    client.post(&commit(2), r#"{"writes":[{"op":"put","store":"kv","key":"a","value":1}]}"#).await;
    let known = client.get(&format!("/v1/txns/{}", id(2))).await;
    assert_eq!((known.json()["status"].as_str(), known.json()["lsn"]["kv"].as_str()), (Some("committed"), Some("1")));

    let given_up = client.call("POST", &format!("/v1/txns/{}/abort", id(3)), &[], b"").await;
    assert_eq!((given_up.status, given_up.json()["reason"].as_str()), (200, Some("client_abort")));
    let too_late = client.call("POST", &format!("/v1/txns/{}/abort", id(2)), &[], b"").await;
    assert_eq!(too_late.json()["status"], "committed");
    server.stop().await.unwrap();
}

/// An ignored field might have mattered: a client may take `abort` for a commit with other fields.
#[tokio::test]
async fn an_abort_has_no_fields() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let path = format!("/v1/txns/{}/abort", id(1));
    let json_type = [("content-type", "application/json")];
    for (headers, body, status, code, pointer) in [
        (&json_type[..], r#"{"reason":"late"}"#, 400, "unknown_field", "/reason"),
        (&json_type[..], "[]", 400, "wrong_type", ""),
        (&json_type[..], "{", 400, "malformed_json", ""),
        (&[][..], "{}", 415, "unsupported_media_type", ""),
    ] {
        let refused = client.call("POST", &path, headers, body.as_bytes()).await;
        assert_eq!((refused.status, refused.json()["code"].as_str()), (status, Some(code)), "{body}");
        let found = refused.json()["errors"][0]["pointer"].as_str().unwrap_or_default().to_owned();
        assert_eq!(found, pointer, "{body}");
    }
    assert_eq!(client.get(&format!("/v1/txns/{}", id(1))).await.json()["status"], "unknown", "nothing was aborted");
    let aborted = client.call("POST", &path, &json_type, b"{}").await;
    assert_eq!((aborted.status, aborted.json()["reason"].as_str()), (200, Some("client_abort")));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn resuming_a_push_has_no_fields() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let json_type = [("content-type", "application/json")];
    for (headers, body, status, code) in [
        (&json_type[..], r#"{"lsn":"7"}"#, 400, "unknown_field"),
        (&json_type[..], "[]", 400, "wrong_type"),
        (&[][..], "{}", 415, "unsupported_media_type"),
    ] {
        let refused = client.call("POST", "/v1/stores/kv/push/resume", headers, body.as_bytes()).await;
        assert_eq!((refused.status, refused.json()["code"].as_str()), (status, Some(code)), "{body}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_dry_run_changes_nothing() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let path = format!("/v1/txns/{}/validate", id(1));
    let fine = client.post(&path, r#"{"writes":[{"op":"put","store":"kv","key":"a","value":1}]}"#).await;
    assert_eq!(fine.json(), json!({"status": "would_commit", "txn_id": id(1), "epoch": "10"}));
    let stale = client.post(&path, r#"{"reads":[{"store":"kv","key":"a","version":"5"}]}"#).await;
    assert_eq!(stale.json()["status"], "would_abort");
    assert_eq!(client.get("/v1/log?store=kv").await.json()["head_lsn"], "0");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_dry_run_of_a_decided_id_returns_its_verdict() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let body = r#"{"writes":[{"op":"put","store":"kv","key":"a","value":1}]}"#;
    let committed = client.post(&format!("/v1/txns/{}/commit", id(1)), body).await;
    let dry = client.post(&format!("/v1/txns/{}/validate", id(1)), body).await;
    assert_eq!((dry.status, dry.json()), (200, committed.json()));
    assert_eq!((dry.header("txn-status"), dry.header("idempotency-replayed")), (Some("committed"), Some("true")));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_batch_item_that_was_decided_before_is_marked() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let writes = json!([{"op": "put", "store": "kv", "key": "a", "value": 1}]);
    let single = client.post(&format!("/v1/txns/{}/commit", id(1)), &json!({"writes": writes}).to_string()).await;
    let item = |n: u8| json!({"txn_id": id(n), "writes": writes});
    let reply = client.post("/v1/txns/batch-commit", &json!({"txns": [item(1), item(2)]}).to_string()).await;
    let mut expected = single.json();
    expected["replayed"] = json!(true);
    let results = reply.json()["results"].clone();
    assert_eq!(results[0], expected);
    assert_eq!((results[1]["status"].as_str(), results[1].get("replayed")), (Some("committed"), None));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_bad_batch_item_does_not_stop_the_others() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let put =
        |n: u8| json!({"txn_id": id(n), "writes": [{"op": "put", "store": "kv", "key": format!("k{n}"), "value": n}]});
    let bad = json!({"txn_id": id(9), "writes": [{"op": "put", "store": "kv", "key": "x"}]});
    let nameless = json!({"writes": []});
    let body = json!({"txns": [put(1), bad, put(2), nameless, 7]}).to_string();
    let reply = client.post("/v1/txns/batch-commit", &body).await;
    assert_eq!(reply.status, 200);
    let results = reply.json()["results"].clone();
    let words: Vec<_> = results.as_array().unwrap().iter().map(|r| r["status"].as_str().unwrap().to_owned()).collect();
    assert_eq!(words, ["committed", "problem", "committed", "problem", "problem"]);
    assert_eq!(results[0]["txn_id"], id(1));
    assert_eq!(results[1]["txn_id"], id(9));
    assert_eq!(results[1]["problem"]["errors"][0]["pointer"], "/txns/1/writes/0/value");
    assert_eq!(results[2]["lsn"]["kv"], "2");
    assert_eq!(results[3]["problem"]["errors"][0]["pointer"], "/txns/3/txn_id");

    let lines = format!("{}\n\n{{\"txn_id\":\n{}\r\n", put(3), put(4));
    let headers = [("content-type", "application/x-ndjson")];
    let reply = client.call("POST", "/v1/txns/batch-commit", &headers, lines.as_bytes()).await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/x-ndjson")));
    let text = String::from_utf8(reply.body).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!((lines[0]["status"].as_str(), lines[2]["status"].as_str()), (Some("committed"), Some("committed")));
    assert_eq!(
        (lines[1]["problem"]["code"].as_str(), lines[1]["problem"]["line"].as_u64()),
        (Some("malformed_json"), Some(3))
    );

    for (body, code) in
        [("{}", "missing_field"), ("[]", "wrong_type"), (r#"{"txns":1}"#, "wrong_type"), ("{", "malformed_json")]
    {
        let reply = client.post("/v1/txns/batch-commit", body).await;
        assert_eq!((reply.status, reply.json()["code"].as_str()), (400, Some(code)), "{body}");
    }
    let many = format!("{{\"txns\":[{}0]}}", "0,".repeat(tribunal_types::limits::TXNS_PER_REQUEST_MAX));
    assert_eq!(client.post("/v1/txns/batch-commit", &many).await.status, 413);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn keys_and_values_of_every_kind_survive() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let body = r#"{"writes":[
        {"op":"put","store":"kv","key":"a/b c%?#","value":"slash"},
        {"op":"put","store":"kv","key":"q\"uo\\te\u0000\n","value":{"k" : [1, 2.50, null, "\u00e9"]}},
        {"op":"put","store":"kv","key":"ключ🔑","value":null},
        {"op":"put","store":"kv","key_b64":"/wD+","value_b64":"AAH/"}]}"#;
    assert_eq!(client.post(&commit(1), body).await.status, 200);
    let version = (11_u64 << 20).to_string();

    let plain = client.get("/v1/stores/kv/rows/a/b%20c%25%3F%23").await;
    let row = client.get("/v1/stores/kv/rows/a%2Fb%20c%25%3F%23").await;
    assert_eq!(plain.json(), row.json(), "a slash in a key may be written as it is");
    let expected =
        json!({"key": "a/b c%?#", "value": "slash", "version": version, "applied": "11", "session": "v1-11"});
    assert_eq!(row.json(), expected);
    let row = client.get("/v1/stores/kv/rows/q%22uo%5Cte%00%0A").await;
    let text = String::from_utf8(row.body.clone()).unwrap();
    assert!(text.contains(r#""value":{"k" : [1, 2.50, null, "\u00e9"]}"#), "untouched: {text}");
    assert_eq!(row.json()["key"], "q\"uo\\te\0\n");
    let row = client.get("/v1/stores/kv/rows/%D0%BA%D0%BB%D1%8E%D1%87%F0%9F%94%91").await;
    assert_eq!((row.json()["key"].as_str(), row.json()["value"].is_null()), (Some("ключ🔑"), true));
    let row = client.get("/v1/stores/kv/rows/%FF%00%FE").await;
    let expected =
        json!({"key_b64": "/wD+", "value_b64": "AAH/", "version": version, "applied": "11", "session": "v1-11"});
    assert_eq!(row.json(), expected);

    let none = client.get("/v1/stores/kv/rows/none").await;
    assert_eq!((none.status, none.json()["code"].as_str()), (404, Some("row_missing")));
    assert_eq!((&none.json()["applied"], &none.json()["session"]), (&json!("11"), &json!("v1-11")));
    let long = client.get(&format!("/v1/stores/kv/rows/{}", "k".repeat(10_241))).await;
    assert_eq!((long.status, long.json()["code"].as_str()), (414, Some("key_too_long")));
    let other = client.get("/v1/stores/orders%2F%C3%BC/rows/a").await;
    assert_eq!((other.status, other.json()["code"].as_str()), (422, Some("not_embedded")));

    let page = client.get("/v1/stores/kv/rows?start=a&end=r&limit=1").await.json();
    assert_eq!((page["rows"][0]["key"].as_str(), page["more"].as_bool()), (Some("a/b c%?#"), Some(true)));
    let page = client.get("/v1/stores/kv/rows?start=%FF").await.json();
    assert_eq!((page["rows"][0]["key_b64"].as_str(), page["more"].as_bool()), (Some("/wD+"), Some(false)));
    assert_eq!((&page["applied"], &page["session"]), (&json!("11"), &json!("v1-11")));
    // A later read also reflects everything that an earlier one did.
    for path in ["/v1/stores/kv/rows/a%2Fb%20c%25%3F%23", "/v1/stores/kv/rows"] {
        for (query, status) in [
            ("?session=v1-11", 200),
            ("?session=v1-11&wait_ms=0&consistency=fresh", 200),
            ("?consistency=session", 200),
            ("?session=v1-12&wait_ms=0", 503),
            ("?session=11", 400),
            ("?wait_ms=60001", 400),
            ("?consistency=newest", 400),
        ] {
            let reply = client.get(&format!("{path}{query}")).await;
            assert_eq!(reply.status, status, "{path}{query}: {}", reply.json());
        }
    }
    let read = client.post("/v1/stores/kv/rows/read", r#"{"read":[{"key":"none"}],"session":"v1-11"}"#).await.json();
    assert_eq!((&read["applied"], &read["session"]), (&json!("11"), &json!("v1-11")));
    let empty = client.get("/v1/stores/kv/rows?start=b&end=a").await;
    assert_eq!((empty.status, empty.json()["code"].as_str()), (422, Some("empty_range")));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn stores_are_declared_shown_and_listed() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let json_type = [("content-type", "application/json")];
    let body = br#"{"existence":"declared","multi_version":true,"transactional":true,"adaptor":"redis","adaptor_config":{"prefix": "x:"}}"#;
    let made = client.call("PUT", "/v1/stores/cache-1", &json_type, body).await;
    assert_eq!(made.status, 201, "{made:?}");
    let expected = json!({
        "store": "cache-1", "existence": "declared", "multi_version": true, "transactional": true, "adaptor": "redis",
        "adaptor_config": {"prefix": "x:"}, "log": LOG.to_string(), "head_lsn": "3", "acked_lsn": "2", "committed": "0", "durable": "0",
        "applied": "0", "push": {"state": "running", "lag_ms": "5"}});
    assert_eq!(made.json(), expected);
    assert_eq!(client.call("PUT", "/v1/stores/cache-1", &json_type, body).await.status, 200);
    assert_eq!(client.get("/v1/stores/cache-1").await.json(), expected);
    let listed = client.get("/v1/stores").await.json();
    let names: Vec<_> = listed["stores"].as_array().unwrap().iter().map(|s| s["store"].as_str().unwrap()).collect();
    assert_eq!(names, ["cache-1", "declared", "kv", "orders/ü"]);
    let snapshot = client.get("/v1/snapshot?store=kv").await.json();
    let watermarks = json!({"store": "kv", "committed": "10", "durable": "10", "applied": "9", "log": LOG.to_string(),
                          "head_lsn": "0"});
    assert_eq!(snapshot, watermarks);

    for (path, body, status, code) in [
        ("/v1/stores/a%20b", "{}", 400, "bad_name"),
        ("/v1/stores/-a", "{}", 400, "bad_name"),
        ("/v1/stores/a", r#"{"adaptor":"nope"}"#, 422, "adaptor_invalid"),
        ("/v1/stores/a", r#"{"adaptor_config":{}}"#, 400, "missing_field"),
        ("/v1/stores/a", r#"{"adaptor":"redis","adaptor_config":[]}"#, 400, "wrong_type"),
        ("/v1/stores/a", r#"{"existence":"maybe"}"#, 400, "unknown_value"),
        ("/v1/stores/a", r#"{"multi_version":"yes"}"#, 400, "wrong_type"),
        ("/v1/stores/a", r#"{"id":7}"#, 400, "unknown_field"),
        ("/v1/stores/a", r#"{"adaptor":"redis","log_only":true}"#, 400, "exclusive_fields"),
        ("/v1/stores/a", r#"{"log_only":"yes"}"#, 400, "wrong_type"),
        ("/v1/stores/cache-1", "{}", 422, "adaptor_omitted"),
        ("/v1/stores/cache-1", r#"{"existence":"declared","log_only":false}"#, 422, "adaptor_omitted"),
        ("/v1/stores/cache-1", r#"{"multi_version":true}"#, 422, "adaptor_omitted"),
        ("/v1/stores/cache-1", r#"{"adaptor":"redis"}"#, 422, "multi_version_omitted"),
        ("/v1/stores/cache-1", r#"{"log_only":true}"#, 422, "multi_version_omitted"),
        ("/v1/stores/cache-1", r#"{"log_only":true,"multi_version":true}"#, 422, "existence_omitted"),
        ("/v1/stores/declared", "{}", 422, "existence_omitted"),
    ] {
        let reply = client.call("PUT", path, &json_type, body.as_bytes()).await;
        assert_eq!((reply.status, reply.json()["code"].as_str()), (status, Some(code)), "{path} {body}");
    }
    assert_eq!(client.get("/v1/stores/cache-1").await.json(), expected, "a refusal changes nothing");
    let omitted = client.call("PUT", "/v1/stores/cache-1", &json_type, b"{}").await.json();
    let detail = omitted["detail"].as_str().unwrap();
    assert!(detail.contains(r#"`"adaptor": "redis"`"#) && detail.contains(r#"`"log_only": true`"#), "{omitted}");
    let omitted = client.call("PUT", "/v1/stores/cache-1", &json_type, br#"{"log_only":true}"#).await.json();
    let detail = omitted["detail"].as_str().unwrap();
    assert!(
        detail.contains(r#"`"multi_version": true`"#) && detail.contains(r#"`"multi_version": false`"#),
        "{omitted}"
    );
    let omitted = client.call("PUT", "/v1/stores/declared", &json_type, b"{}").await.json();
    assert_eq!(omitted["errors"][0]["pointer"], "/existence", "{omitted}");
    assert!(omitted["detail"].as_str().unwrap().contains(r#"`"existence": "declared"`"#), "{omitted}");
    assert_eq!(client.get("/v1/stores/declared").await.json()["existence"], "declared");
    for (store, body, status) in [
        ("cache-1", r#"{"log_only":true,"multi_version":true,"existence":"declared"}"#, 200),
        ("cache-1", r#"{"multi_version":true,"existence":"tracked"}"#, 200),
        ("cache-1", r#"{"multi_version":false}"#, 200),
        ("cache-1", "{}", 200),
        ("new", "{}", 201),
    ] {
        let reply = client.call("PUT", &format!("/v1/stores/{store}"), &json_type, body.as_bytes()).await;
        assert_eq!((reply.status, reply.json().get("adaptor")), (status, None), "{store} {body}");
    }
    assert_eq!(client.get("/v1/stores/nope").await.status, 404);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn versions_are_imported_whole_or_not_at_all() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let headers = [("content-type", "application/x-ndjson")];
    let path = "/v1/stores/kv/versions";
    let bad =
        b"{\"key\":\"a\",\"version\":\"5\"}\n{\"key\":\"\",\"version\":\"x\"}\n{\"key_b64\":\"YQ==\",\"key\":\"a\"}\n";
    let reply = client.call("POST", path, &headers, bad).await;
    let pointers: Vec<_> = reply.json()["errors"].as_array().unwrap().iter().map(|e| e["pointer"].clone()).collect();
    assert_eq!(
        (reply.status, pointers),
        (400, vec![json!("/1/key"), json!("/1/version"), json!("/2/key_b64"), json!("/2/version")])
    );
    assert!(server.node.imported().is_empty());

    let good = b"{\"key\":\"a\",\"version\":\"5\",\"integer\":true}\n\n{\"key_b64\":\"/w==\",\"version\":\"6\"}";
    let as_bytes = [("content-type", "application/octet-stream")];
    let reply = client.call("POST", path, &as_bytes, good).await;
    assert_eq!((reply.status, reply.json()), (200, json!({"accepted": "2"})));
    let imported = server.node.imported();
    assert_eq!(imported[0].row, toy_row(NamespaceId(0), KV, b"a"));
    assert_eq!((imported[0].version, imported[0].integer), (Version::from_bits(5).unwrap(), true));
    assert_eq!(imported[1].row, toy_row(NamespaceId(0), KV, b"\xff"));

    // The blank line counts as a line. The same key may be written in two ways.
    let twice = b"{\"key\":\"a\",\"version\":\"5\"}\n\n{\"key\":\"b\",\"version\":\"5\"}\n{\"key_b64\":\"YQ==\",\"version\":\"5\"}\n\
        {\"key\":\"a\",\"version\":\"6\"}";
    let reply = client.call("POST", path, &headers, twice).await;
    assert_eq!((reply.status, reply.json()["code"].as_str()), (422, Some("duplicate_row")));
    let found = |n: usize| (reply.json()["errors"][n]["pointer"].clone(), reply.json()["errors"][n]["detail"].clone());
    assert_eq!(found(0), (json!("/3"), json!("lines 1 and 4 have the same row")));
    assert_eq!(found(1), (json!("/4"), json!("lines 4 and 5 have the same row")));
    assert_eq!(server.node.imported().len(), 2, "nothing more was imported");

    let cut = client.call("POST", path, &headers, b"{\"key\":\"a\",\"version\":\"5\"}\n{\"key\":").await;
    assert_eq!((cut.status, cut.json()["line"].as_u64()), (400, Some(2)));
    assert_eq!(client.post(path, "{}").await.status, 415);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn what_the_node_says_becomes_a_status() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let detail = || "x".to_owned();
    let table = [
        (ServiceError::Overloaded { retry_after_ms: 10 }, 503, "overloaded", true),
        (ServiceError::QuotaExceeded { retry_after_ms: 10 }, 429, "quota_exceeded", true),
        (ServiceError::Unavailable { detail: detail() }, 503, "unavailable", true),
        (ServiceError::OutcomeUnknown { detail: detail() }, 504, "outcome_unknown", true),
        (ServiceError::InFlight, 409, "in_flight", true),
        (ServiceError::BodyMismatch, 422, "body_mismatch", false),
        (ServiceError::TxnIdExpired(IdTime::Ahead), 422, "txn_id_expired", false),
        (ServiceError::TxnIdExpired(IdTime::Past), 422, "txn_id_expired", false),
        (ServiceError::TxnIdExpired(IdTime::Forgotten), 422, "txn_id_forgotten", false),
        (ServiceError::LogTruncated { oldest: Lsn(4), nodes: Vec::new() }, 410, "log_truncated", false),
        (ServiceError::StoreLagging { store: KV, retry_after_ms: 1 }, 503, "store_lagging", true),
        (ServiceError::StoreStopped { store: KV, reason: "disk".into() }, 503, "store_lagging", true),
        (ServiceError::NotFound { what: detail() }, 404, "not_found", false),
    ];
    for (error, status, code, retryable) in table {
        *server.node.fail_next.lock().unwrap() = Some(error);
        let reply = client.post(&commit(1), "{}").await;
        assert_eq!((reply.status, reply.json()["code"].as_str()), (status, Some(code)));
        assert_eq!(reply.json()["retryable"], retryable, "{code}");
        assert_eq!(reply.header("retry-after").is_some(), reply.json().get("retry_after_ms").is_some(), "{code}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn documents_need_nothing_from_elsewhere() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let document = client.get("/openapi.json").await;
    assert_eq!(document.json()["openapi"], "3.1.0");
    let example = tribunal_api::examples::TXN_ID;
    assert!(!String::from_utf8(document.body).unwrap().contains(example), "its examples have an id that is valid now");
    assert_eq!(client.get("/openapi-3.0.json").await.json()["openapi"], "3.0.3");
    let page = client.get("/docs").await;
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let text = String::from_utf8(page.body).unwrap();
    assert!(!text.contains("http://") && !text.contains("https://"), "everything is embedded");
    for excluding in ["identity;q=0", "gzip;q=0, *;q=0"] {
        let plain = client.call("GET", "/openapi.json", &[("accept-encoding", excluding)], b"").await;
        assert_eq!((plain.status, plain.header("content-encoding")), (200, None), "{excluding}");
    }
    let packed = client.call("GET", "/openapi.json", &[("accept-encoding", "gzip")], b"").await;
    assert_eq!(packed.header("content-encoding"), Some("gzip"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_body_hash_tells_bodies_apart_and_spellings_not() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let first = r#"{"isolation":"serializable","reads":[{"store":"kv","key":"r"}],"writes":[{"op":"put","store":"kv","key":"a","value":1}]}"#;
    assert_eq!(client.post(&commit(1), first).await.status, 200);
    for same in [
        r#"{ "writes": [ {"value":1,"key":"\u0061","store":"kv","op":"put"} ], "reads":[{"key_b64":"cg==","store":"kv"}] }"#,
        r#"{"ack":"applied","reads":[{"store":"kv","key":"r"}],"writes":[{"op":"put","store":"kv","key":"a","value":1}]}"#,
    ] {
        let reply = client.post(&commit(1), same).await;
        assert_eq!((reply.status, reply.header("idempotency-replayed")), (200, Some("true")), "{same}");
    }
    for other in [
        r#"{"reads":[{"store":"kv","key":"r"}],"writes":[{"op":"put","store":"kv","key":"a","value":2}]}"#,
        r#"{"reads":[{"store":"kv","key":"r","version":"1"}],"writes":[{"op":"put","store":"kv","key":"a","value":1}]}"#,
        r#"{"reads":[{"store":"kv","key":"r"}],"writes":[{"op":"insert","store":"kv","key":"a","value":1}]}"#,
        r#"{"reads":[{"store":"kv","key":"r"}],"priority":7,"writes":[{"op":"put","store":"kv","key":"a","value":1}]}"#,
        r#"{"writes":[{"op":"put","store":"kv","key":"a","value":1}]}"#,
    ] {
        assert_eq!(client.post(&commit(1), other).await.json()["code"], "body_mismatch", "{other}");
    }
    let add = |or: &str| format!(r#"{{"writes":[{{"op":"add","store":"kv","key":"n","value":1{or}}}]}}"#);
    let adds = [add(""), add(r#","or":0"#), add(r#","or":1"#)];
    for (n, first) in (2..).zip(&adds) {
        assert_eq!(client.post(&commit(n), first).await.status, 200, "{first}");
        for other in &adds {
            let reply = client.post(&commit(n), other).await.json();
            let mismatch = reply["code"] == "body_mismatch";
            assert_eq!(mismatch, first != other, "{first} and {other}: {reply}");
        }
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn an_adaptor_without_insert_takes_adds_only_without_or() {
    let server = start().await;
    server.node.take_only("kv", [WriteKind::Put, WriteKind::Add]);
    let mut client = Client::connect(server.address).await;
    let add = |or: &str| format!(r#"{{"writes":[{{"op":"add","store":"kv","key":"n","value":1{or}}}]}}"#);
    assert_eq!(client.post(&commit(1), &add("")).await.status, 200);
    let refused = client.post(&commit(2), &add(r#","or":0"#)).await;
    assert_eq!((refused.status, refused.json()["code"].as_str()), (422, Some("write_not_supported")));
    let error = refused.json()["errors"][0].clone();
    assert_eq!(error["pointer"], "/writes/0/op", "{error}");
    assert!(error.to_string().contains("takes no insert, which an add with `or` may become"), "{error}");
    server.stop().await.unwrap();
}

/// The types of `tribunal-api` and this crate's reader agree.
#[tokio::test]
async fn the_wire_types_fit_the_reader() {
    use tribunal_api::*;
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let text = |t: &str| Some(t.to_owned());
    let write = |op, key: &str, value: Option<&str>| Write {
        op,
        store: "kv".into(),
        key: text(key),
        key_b64: None,
        value: value.map(|v| serde_json::value::RawValue::from_string(v.to_owned()).unwrap()),
        value_b64: None,
        or: None,
    };
    let request = CommitRequest {
        isolation: Some(IsolationLevel::RepeatableRead),
        snapshots: Some([("kv".to_owned(), "10".to_owned())].into()),
        priority: Some(3),
        ack: Some(Ack::Applied),
        epoch: text("11"),
        first_attempt_ms: text("1767225600000"),
        reads: vec![Read { store: "kv".into(), key: text("a"), key_b64: None, version: None }],
        ranges: vec![Range { store: "kv".into(), start: text("b"), end_b64: text("Yw=="), ..Range::default() }],
        writes: vec![
            write(WriteOp::Insert, "i", Some("{}")),
            write(WriteOp::Update, "u", Some("\"x\"")),
            write(WriteOp::Put, "p", Some("1")),
            write(WriteOp::Delete, "d", None),
            write(WriteOp::Add, "n", Some("-5")),
        ],
    };
    let reply = client.post(&commit(1), &serde_json::to_string(&request).unwrap()).await;
    let outcome: TxnOutcome = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!((outcome.status, outcome.applied), (TxnState::Committed, Some(true)));
    let page: LogPage = serde_json::from_slice(&client.get("/v1/log?store=kv").await.body).unwrap();
    assert_eq!(page.records[0].writes[4].value.as_ref().unwrap().get(), "-5");
    let begin = BeginRequest {
        stores: Some(vec!["kv".into()]),
        isolation: Some(IsolationLevel::Snapshot),
        session: text("v1-3"),
        wait_ms: Some(5),
        ttl_ms: Some(1000),
        ..BeginRequest::default()
    };
    let reply = client.post("/v1/txns", &serde_json::to_string(&begin).unwrap()).await;
    serde_json::from_slice::<BeginResponse>(&reply.body).unwrap();
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_error_of_a_webhook_does_not_tell_the_servers_folders() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let json_type = [("content-type", "application/json")];
    let hook = json!({"kind": "webhook", "url": "https://example.org/hook", "secret": "0123456789abcdef"});
    let body = hook.to_string();
    let registered = client.call("PUT", "/v1/stores/kv/push", &json_type, body.as_bytes()).await.json();
    let status = client.get("/v1/stores/kv/push").await.json();
    for told in [&registered, &status] {
        assert_eq!(told["last_error"], "open root.pem: permission denied", "{told}");
    }
}

#[tokio::test]
async fn a_push_is_resumed_skipped_and_attached_by_name() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let resumed = client.post("/v1/stores/kv/push/resume", "").await;
    assert_eq!((resumed.status, resumed.json()["store"].as_str()), (200, Some("kv")));
    assert_eq!(client.post("/v1/stores/no/push/resume", "").await.json()["code"], "unknown_store");

    let skip = "/v1/stores/kv/push/skip";
    let bad = [("{}", "missing_field"), (r#"{"lsn":7}"#, "wrong_type"), (r#"{"lsn":"-7"}"#, "bad_number")];
    for (body, code) in bad.into_iter().chain([(r#"{"lsn":"7","all":true}"#, "unknown_field"), ("{", "malformed_json")])
    {
        let refused = client.post(skip, body).await;
        assert_eq!((refused.status, refused.json()["code"].as_str()), (400, Some(code)), "{body}");
    }
    let named = [("content-type", "application/json"), ("tribunal-client", "ops/jo")];
    assert_eq!(client.call("POST", skip, &named, br#"{"lsn":"7"}"#).await.status, 200);
    let skips = client.get("/v1/stores/kv/push/skips").await.json();
    assert_eq!(skips, json!({"skips": [{"lsn": "7", "at_ms": "7", "by": "ops/jo", "reason": "no"}]}));
    assert_eq!(client.get("/v1/stores/declared/push/skips").await.json(), json!({"skips": []}));

    let attach = "/v1/stores/kv/push/attach";
    assert_eq!(client.post(attach, r#"{"loaded_lsn":"12"}"#).await.status, 200);
    assert_eq!(client.post(attach, r#"{"loaded_lsn":null}"#).await.json()["code"], "wrong_type");
    assert_eq!(client.post(attach, r#"{"loaded_lsn":12}"#).await.json()["code"], "wrong_type");
    let detail = "too far behind".to_owned();
    let refusal = ServiceError::ClientMistake { code: "storage_behind_log", pointer: String::new(), detail };
    *server.node.fail_next.lock().unwrap() = Some(refusal);
    let lagging = client.post(attach, "{}").await;
    assert_eq!((lagging.status, lagging.json()["code"].as_str()), (422, Some("storage_behind_log")));
    server.stop().await.unwrap();
}
