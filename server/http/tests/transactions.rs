//! Begin, commit, abort, status and log: the wire format.

mod fake_node;

use fake_node::client::Client;
use fake_node::start;
use serde_json::json;

const ID: &str = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a";

fn id(n: u8) -> String {
    format!("0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b{n:02x}")
}

#[tokio::test]
async fn a_commit_a_conflict_and_the_log() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;

    let begun = client.post("/v1/txns", r#"{"stores":["kv"]}"#).await;
    assert_eq!(begun.status, 201);
    assert_eq!(begun.json()["snapshots"], json!({"kv": "10"}));
    assert_eq!(begun.json()["session"], "v1-10");
    assert_eq!((&begun.json()["lsn"], &begun.json()["log"]), (&json!({"kv": "0"}), &json!(fake_node::LOG.to_string())));

    let body = r#"{"snapshots":{"kv":"10"},"reads":[{"store":"kv","key":"acct/9"}],
        "writes":[{"op":"put","store":"kv","key":"acct/1","value":{"bal": 90}},
                  {"op":"delete","store":"kv","key_b64":"/w=="}]}"#;
    let path = format!("/v1/txns/{ID}/commit");
    let headers = [
        ("content-type", "application/json; charset=UTF-8"),
        ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
    ];
    let committed = client.call("POST", &path, &headers, body.as_bytes()).await;
    assert_eq!(committed.status, 200, "{committed:?}");
    assert_eq!(committed.header("txn-status"), Some("committed"));
    assert_eq!(committed.header("server-timing"), Some("queue;dur=0.010, sync;dur=0.120, resolve;dur=0.003"));
    let version = (11_u64 << 20).to_string();
    assert_eq!(
        committed.json(),
        json!({"status": "committed", "txn_id": ID, "epoch": "11", "csn": "11265", "version": version,
               "lsn": {"kv": "1"}, "session": "v1-11"})
    );

    let again = client.post(&path, body).await;
    assert_eq!(again.header("idempotency-replayed"), Some("true"));
    assert_eq!(again.json(), committed.json());

    let other = client.post(&path, r#"{"writes":[{"op":"put","store":"kv","key":"a","value":1}]}"#).await;
    assert_eq!((other.status, other.json()["code"].as_str()), (422, Some("body_mismatch")));

    let stale = r#"{"reads":[{"store":"kv","key":"acct/1","version":"17"}],"writes":[]}"#;
    let aborted = client.post(&format!("/v1/txns/{}/commit", id(1)), stale).await;
    assert_eq!((aborted.status, aborted.header("txn-status")), (200, Some("aborted")));
    assert_eq!(
        aborted.json(),
        json!({"status": "aborted", "txn_id": id(1), "epoch": "12", "csn": "12289", "reason": "read_conflict",
               "retryable": true, "retry_after_ms": 3,
               "conflicts": [{"store": "kv", "key": "acct/1", "op": "read", "stage": "validate",
                              "read_version": "17", "current_version": version}]})
    );

    let page = client.get("/v1/log?store=kv&after=0").await;
    assert_eq!(page.status, 200);
    let mut log = page.json();
    // `answer.rs` tests how it is computed.
    let checksum = log["records"][0].as_object_mut().unwrap().remove("checksum").unwrap();
    assert!(checksum.as_str().is_some_and(|text| text.len() == 8 && u32::from_str_radix(text, 16).is_ok()));
    assert_eq!(
        log,
        json!({"records": [{"lsn": "1", "prev_lsn": "0", "epoch": "11", "csn": "11265", "version": version, "txn_id": ID,
                            "store": "kv",
                            "writes": [{"op": "put", "key": "acct/1", "value": {"bal": 90}},
                                       {"op": "delete", "key_b64": "/w=="}],
                            "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}],
               "log": fake_node::LOG.to_string(), "next": "1", "epoch": "12", "head_lsn": "1", "durable_upto": "1", "oldest": "1"})
    );
    let same = client.get(&format!("/v1/log?store=kv&after=1&log={}", fake_node::LOG)).await;
    assert_eq!((same.status, same.json()["next"].as_str()), (200, Some("1")));
    let replaced = client.get(&format!("/v1/log?store=kv&after=1&log={}", "0".repeat(32))).await;
    assert_eq!((replaced.status, replaced.json()["code"].as_str()), (410, Some("log_replaced")));
    assert_eq!(replaced.json()["state_url"], "/v1/stores/kv/state");
    let bad = client.get("/v1/log?store=kv&log=5").await;
    assert_eq!((bad.status, bad.json()["errors"][0]["pointer"].as_str()), (400, Some("?log")));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn the_service_tells_how_it_is() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    assert_eq!(client.get("/healthz").await.json(), json!({"status": "ok"}));
    let ready = client.get("/readyz").await;
    assert_eq!((ready.status, ready.json()["ready"].as_bool()), (503, Some(false)));
    let metrics = client.get("/metrics").await;
    assert!(String::from_utf8(metrics.body).unwrap().contains("double_up 1"));
    assert_eq!(client.get("/version").await.json()["epoch_mode"], "adaptive");
    server.stop().await.unwrap();
}
