//! The HTTP API of plugins: requests, responses, and every error of a request.

mod fake_node;

use fake_node::client::{Client, Reply};
use fake_node::start;
use serde_json::json;
use tribunal_types::limits::PLUGIN_BYTES_MAX;

const WASM: (&str, &str) = ("content-type", "application/wasm");

async fn put(client: &mut Client, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
    client.call("PUT", path, headers, body).await
}

#[tokio::test]
async fn the_response_to_an_upload_lists_its_checks() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let path = "/v1/admin/plugins/most-writes?world=conflict-rule&config=%7B%22a%22%3A1%7D";
    let reply = put(&mut client, path, &[WASM], b"abc").await;
    assert_eq!(reply.status, 201, "{}", reply.json());
    let body = reply.json();
    assert_eq!((&body["name"], &body["world"]), (&json!("most-writes"), &json!("conflict-rule")));
    assert_eq!(body["version"]["digest"], "ab".repeat(32));
    assert_eq!(body["version"]["budget_per_item"], u64::MAX.to_string());
    assert_eq!(body["version"]["misses"], json!([{"level": "serializable", "anomaly": "write skew"}]));
    assert_eq!(body["checks"][1], json!({"name": "{\"a\":1}", "cases": 1}), "the configuration arrived");
    let again = put(&mut client, "/v1/admin/plugins/known", &[WASM], b"abc").await;
    assert_eq!(again.status, 200);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn invalid_uploads_get_the_reason() {
    let server = start().await;
    for (path, kind, body, status, code) in [
        ("/v1/admin/plugins/Most_Writes", "application/wasm", "x", 400, "bad_name"),
        ("/v1/admin/plugins/-a", "application/wasm", "x", 400, "bad_name"),
        ("/v1/admin/plugins/a%2F..%2Fb", "application/wasm", "x", 400, "bad_name"),
        ("/v1/admin/plugins/a?config=7", "application/wasm", "x", 400, "wrong_type"),
        ("/v1/admin/plugins/a?config=%7B", "application/wasm", "x", 400, "wrong_type"),
        ("/v1/admin/plugins/a?signature=", "application/wasm", "x", 400, "bad_parameter"),
        ("/v1/admin/plugins/a?signature=abcd", "application/wasm", "x", 400, "bad_parameter"),
        ("/v1/admin/plugins/a?force=1", "application/wasm", "x", 400, "unknown_parameter"),
        ("/v1/admin/plugins/a", "application/json", "{}", 415, "unsupported_media_type"),
        ("/v1/admin/plugins/a", "application/wasm", "", 422, "plugin_refused"),
    ] {
        let mut client = Client::connect(server.address).await;
        let reply = put(&mut client, path, &[("content-type", kind)], body.as_bytes()).await;
        assert_eq!((reply.status, reply.json()["code"].as_str()), (status, Some(code)), "{path}");
    }
    let mut client = Client::connect(server.address).await;
    let long = (PLUGIN_BYTES_MAX + 1).to_string();
    let head = format!(
        "PUT /v1/admin/plugins/a HTTP/1.1\r\nhost: x\r\ncontent-type: application/wasm\r\ncontent-length: {long}\r\n\r\n"
    );
    tokio::io::AsyncWriteExt::write_all(&mut client.socket, head.as_bytes()).await.unwrap();
    assert_eq!(client.reply().await.expect("an answer").status, 413);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn slots_show_health_and_cost() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let list = client.get("/v1/admin/plugins").await.json();
    let slot = &list["slots"][0];
    assert_eq!((&slot["slot"], &slot["since_epoch"]), (&json!("rule"), &json!("4")));
    assert_eq!(slot["health"]["fuel_per_item"], "5");
    assert_eq!(slot["health"]["faults"], json!([{"kind": "trap", "count": "1"}]));
    assert!(slot.get("pending").is_none(), "absent, not null");
    let known = client.get("/v1/admin/plugins/known").await.json();
    assert_eq!(known["slots"].as_array().map(Vec::len), Some(1));
    assert_eq!(client.get("/v1/admin/plugins/idle").await.json()["slots"], json!([]));
    assert_eq!(client.get("/v1/admin/plugins/nobody").await.status, 404);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn activations_name_slot_version_epoch_and_configuration() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let request =
        json!({"slot": "validator:snapshot", "digest": "0F".repeat(32), "at_epoch": "9000", "config": {"a": [1]}});
    let reply = client.post("/v1/admin/plugins/known/activate", &request.to_string()).await;
    assert_eq!(reply.status, 200, "{}", reply.json());
    let body = reply.json();
    assert_eq!((&body["slot"], &body["by"]), (&json!("validator:snapshot"), &json!("activate")));
    assert_eq!((&body["digest"], &body["from_epoch"]), (&json!("0f".repeat(32)), &json!("9000")));
    assert_eq!(body["config"], json!({"a": [1]}));
    let back = client.post("/v1/admin/plugins/known/rollback", r#"{"slot": "adaptor:known"}"#).await.json();
    assert_eq!((&back["slot"], &back["by"]), (&json!("adaptor:known"), &json!("rollback")));
    let removed = client.post("/v1/admin/plugins/known/deactivate", r#"{"slot": "adaptor:known"}"#).await.json();
    assert_eq!((&removed["slot"], &removed["by"]), (&json!("adaptor:known"), &json!("deactivate")));
    let later = json!({"control": "4", "name": "later", "digest": "03".repeat(32), "from_epoch": "70"});
    assert_eq!(removed["replaces"], later);
    let removed =
        client.post("/v1/admin/plugins/known/deactivate", r#"{"slot": "rule", "at_epoch": "8"}"#).await.json();
    assert_eq!((&removed["by"], &removed["from_epoch"]), (&json!("deactivate"), &json!("8")));
    assert!(body.get("replaces").is_none(), "absent, not null");
    assert_eq!(client.post("/v1/admin/plugins/unknown/activate", "{}").await.status, 404);
    for (path, body, code, pointer) in [
        ("activate", r#"{"slot": "rules"}"#, "unknown_value", "/slot"),
        ("activate", r#"{"slot": "validator:strict"}"#, "unknown_value", "/slot"),
        ("activate", r#"{"digest": "abc"}"#, "unknown_value", "/digest"),
        ("activate", r#"{"at_epoch": 9000}"#, "wrong_type", "/at_epoch"),
        ("activate", r#"{"at_epoch": "9223372036854775807"}"#, "bad_number", "/at_epoch"),
        ("activate", r#"{"config": "text"}"#, "wrong_type", "/config"),
        ("rollback", r#"{"digest": "abc"}"#, "unknown_field", "/digest"),
        ("deactivate", r#"{"config": {}}"#, "unknown_field", "/config"),
        ("deactivate", r#"{"slot": "rules"}"#, "unknown_value", "/slot"),
        ("deactivate", r#"{"at_epoch": 9000}"#, "wrong_type", "/at_epoch"),
        ("rollback", "[]", "wrong_type", ""),
    ] {
        let reply = client.post(&format!("/v1/admin/plugins/known/{path}"), body).await;
        let problem = reply.json();
        assert_eq!((reply.status, problem["code"].as_str()), (400, Some(code)), "{body}: {problem}");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{body}");
    }
    server.stop().await.unwrap();
}
