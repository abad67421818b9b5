//! Malformed and hostile requests: each receives a problem with a code and a pointer per error, and nothing is queued.

mod fake_node;

use fake_node::client::{Client, Reply, post};
use fake_node::start;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tribunal_types::limits::*;
use tribunal_types::{Epoch, Version};

const TXN: &str = "/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a";
const COMMIT: &str = "/v1/txns/0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a/commit";

fn errors(reply: &Reply) -> Vec<(String, String)> {
    let problem = reply.json();
    let word = |error: &Value, name: &str| error[name].as_str().unwrap().to_owned();
    let list = problem["errors"].as_array().cloned().unwrap_or_default();
    list.iter().map(|error| (word(error, "pointer"), word(error, "code"))).collect()
}

/// Posts a commit body and expects exactly these errors.
async fn check(body: &str, status: u16, code: &str, expected: &[(&str, &str)]) {
    let server = start().await;
    let reply = post(server.address, COMMIT, body).await;
    let shown = &body[..body.len().min(200)];
    assert_eq!(reply.status, status, "{shown}: {}", reply.json());
    assert_eq!(reply.header("content-type"), Some("application/problem+json"));
    assert_eq!(reply.json()["code"], code, "{shown}");
    let found = errors(&reply);
    let found: Vec<_> = found.iter().map(|(pointer, code)| (pointer.as_str(), code.as_str())).collect();
    assert_eq!(found, expected, "{shown}");
    let log = Client::connect(server.address).await.get("/v1/log?store=kv").await;
    assert_eq!(log.json()["head_lsn"], "0", "nothing is queued");
    server.stop().await.unwrap();
}

fn write(op: Value) -> String {
    json!({"writes": [op]}).to_string()
}

/// The body of a commit with one error: status, code, and pointer of that error.
type OneError = (Value, u16, &'static str, &'static str);

fn one(body: Value, status: u16, code: &'static str, pointer: &'static str) -> OneError {
    (body, status, code, pointer)
}

fn put(key: &str) -> Value {
    json!({"op": "put", "store": "kv", "key": key, "value": 1})
}

async fn check_each(table: impl IntoIterator<Item = OneError>) {
    for (body, status, code, pointer) in table {
        check(&body.to_string(), status, code, &[(pointer, code)]).await;
    }
}

#[tokio::test]
async fn each_error_in_the_fields_of_a_commit_has_its_code_and_pointer() {
    check_each([
        one(json!([]), 400, "wrong_type", ""),
        one(json!({"wirtes": []}), 400, "unknown_field", "/wirtes"),
        one(json!({"writes": {}}), 400, "wrong_type", "/writes"),
        one(json!({"writes": [7]}), 400, "wrong_type", "/writes/0"),
        one(json!({"isolation": "strongest"}), 400, "unknown_value", "/isolation"),
        one(json!({"priority": 256}), 400, "bad_number", "/priority"),
        one(json!({"priority": -1}), 400, "bad_number", "/priority"),
        one(json!({"priority": 1.5}), 400, "bad_number", "/priority"),
        one(json!({"priority": "1"}), 400, "wrong_type", "/priority"),
        one(json!({"first_attempt_ms": 1}), 400, "wrong_type", "/first_attempt_ms"),
        one(json!({"first_attempt_ms": "281474976710656"}), 400, "bad_number", "/first_attempt_ms"),
        one(json!({"ack": "never"}), 400, "unknown_value", "/ack"),
        one(json!({"epoch": "9223372036854775807"}), 400, "bad_number", "/epoch"),
        one(json!({"snapshots": []}), 400, "wrong_type", "/snapshots"),
        one(json!({"snapshots": "10"}), 400, "wrong_type", "/snapshots"),
        one(json!({"snapshots": {"kv": 10}}), 400, "wrong_type", "/snapshots/kv"),
        one(json!({"snapshots": {"kv": "ten"}}), 400, "bad_number", "/snapshots/kv"),
        one(json!({"snapshots": {"a/b~": "10"}}), 404, "unknown_store", "/snapshots/a~1b~0"),
        one(json!({"snapshots": {"orders/ü": "10"}, "writes": [put("a")]}), 422, "store_not_named", "/writes/0/store"),
        one(json!({"txn_id": "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a"}), 400, "unknown_field", "/txn_id"),
    ])
    .await;
}

#[tokio::test]
async fn each_error_in_a_read_has_its_code_and_pointer() {
    let long_key = "k".repeat(KEY_BYTES_MAX + 1);
    check_each([
        one(
            json!({"isolation": "snapshot", "reads": [{"store": "kv", "key": "a"}]}),
            400,
            "snapshot_required",
            "/snapshots",
        ),
        one(json!({"reads": [{"store": "declared", "key": "a"}]}), 400, "snapshot_required", "/snapshots"),
        one(json!({"reads": [{"store": "nope", "key": "a"}]}), 404, "unknown_store", "/reads/0/store"),
        one(json!({"reads": [{"key": "a"}]}), 400, "missing_field", "/reads/0/store"),
        one(json!({"reads": [{"store": "kv"}]}), 400, "missing_field", "/reads/0/key"),
        one(json!({"reads": [{"store": "kv", "key": ""}]}), 422, "empty_key", "/reads/0/key"),
        one(json!({"reads": [{"store": "kv", "key": 1}]}), 400, "wrong_type", "/reads/0/key"),
        one(json!({"reads": [{"store": "kv", "key": long_key}]}), 413, "key_too_long", "/reads/0/key"),
        one(
            json!({"reads": [{"store": "kv", "key": "a", "key_b64": "YQ=="}]}),
            400,
            "exclusive_fields",
            "/reads/0/key_b64",
        ),
        one(json!({"reads": [{"store": "kv", "key_b64": "?"}]}), 400, "bad_base64", "/reads/0/key_b64"),
        one(json!({"reads": [{"store": "kv", "key": "a", "version": "x"}]}), 400, "bad_number", "/reads/0/version"),
        one(json!({"reads": [{"store": "kv", "key": "a", "version": "0"}]}), 400, "bad_number", "/reads/0/version"),
        one(json!({"reads": [{"store": "kv", "key": "a", "version": 17}]}), 400, "wrong_type", "/reads/0/version"),
        one(json!({"reads": [{"store": "kv", "key": "a", "value": 17}]}), 400, "unknown_field", "/reads/0/value"),
        one(json!({"reads": [{"store": "kv", "key_b64": ""}]}), 422, "empty_key", "/reads/0/key_b64"),
        one(read_at("snapshot", "orders/ü", 11), 422, "read_after_snapshot", "/reads/0/version"),
    ])
    .await;
}

#[tokio::test]
async fn each_error_in_a_range_has_its_code_and_pointer() {
    check_each([
        one(json!({"ranges": [{"store": "kv"}]}), 400, "snapshot_required", "/snapshots"),
        one(
            json!({"snapshots": {"kv": "1"}, "ranges": [{"store": "kv", "start": "b", "end_b64": "YQ=="}]}),
            422,
            "empty_range",
            "/ranges/0/end_b64",
        ),
        one(
            json!({"snapshots": {"kv": "1"}, "ranges": [{"store": "kv", "start": "b", "end": "b"}]}),
            422,
            "empty_range",
            "/ranges/0/end",
        ),
    ])
    .await;
}

#[tokio::test]
async fn a_row_named_twice_has_its_code_and_pointer() {
    check_each([
        one(
            json!({"reads": [{"store": "kv", "key": "a"}, {"store": "kv", "key_b64": "YQ=="}]}),
            422,
            "duplicate_row",
            "/reads/1/key_b64",
        ),
        one(
            json!({"reads": [{"store": "kv", "key_b64": "YQ=="}, {"store": "kv", "key": "a"}]}),
            422,
            "duplicate_row",
            "/reads/1/key",
        ),
        one(
            json!({"writes": [put("a"), {"op": "delete", "store": "kv", "key_b64": "YQ"}]}),
            422,
            "duplicate_row",
            "/writes/1/key_b64",
        ),
        one(json!({"writes": [put("a"), put("b"), put("a")]}), 422, "duplicate_row", "/writes/2/key"),
    ])
    .await;
}

#[tokio::test]
async fn each_error_in_a_write_has_its_code_and_pointer() {
    check_each([
        one(json!({"writes": [{"op": "upsert", "store": "kv", "key": "a"}]}), 400, "unknown_op", "/writes/0/op"),
        one(json!({"writes": [{"store": "kv", "key": "a", "value": 1}]}), 400, "missing_field", "/writes/0/op"),
        one(json!({"writes": [{"op": "put", "store": "kv", "key": "a"}]}), 400, "missing_field", "/writes/0/value"),
        one(
            json!({"writes": [{"op": "delete", "store": "kv", "key": "a", "value": 1}]}),
            400,
            "exclusive_fields",
            "/writes/0/value",
        ),
        one(
            json!({"writes": [{"op": "put", "store": "kv", "key": "a", "value": 1, "value_b64": ""}]}),
            400,
            "exclusive_fields",
            "/writes/0/value_b64",
        ),
        one(
            json!({"writes": [{"op": "put", "store": "kv", "key": "a", "value_b64": "%"}]}),
            400,
            "bad_base64",
            "/writes/0/value_b64",
        ),
    ])
    .await;
}

#[tokio::test]
async fn each_error_in_an_addition_has_its_code_and_pointer() {
    check_each([
        one(
            json!({"writes": [{"op": "add", "store": "kv", "key": "a", "value": "5"}]}),
            422,
            "not_an_integer",
            "/writes/0/value",
        ),
        one(
            json!({"writes": [{"op": "add", "store": "kv", "key": "a", "value": 0.5}]}),
            422,
            "not_an_integer",
            "/writes/0/value",
        ),
        one(
            json!({"writes": [{"op": "add", "store": "orders/ü", "key": "a", "value": 5}]}),
            422,
            "add_unsupported",
            "/writes/0/op",
        ),
        one(
            json!({"snapshots": {"declared": "9"}, "writes": [{"op": "add", "store": "declared", "key": "a", "value": 5}]}),
            422,
            "add_unsupported",
            "/writes/0/op",
        ),
        one(
            json!({"writes": [{"op": "add", "store": "kv", "key": "a", "value": 5, "or": "0"}]}),
            422,
            "not_an_integer",
            "/writes/0/or",
        ),
        one(
            json!({"writes": [{"op": "add", "store": "kv", "key": "a", "value": 5, "or": 9_007_199_254_740_992_i64}]}),
            422,
            "not_an_integer",
            "/writes/0/or",
        ),
        one(
            json!({"writes": [{"op": "put", "store": "kv", "key": "a", "value": 5, "or": 0}]}),
            400,
            "exclusive_fields",
            "/writes/0/or",
        ),
    ])
    .await;
}

/// Returns a commit that read a row at a version of this epoch; its snapshots are of epoch 10.
fn read_at(isolation: &str, store: &str, epoch: u64) -> Value {
    let version = Version::new(Epoch(epoch), 3).unwrap().to_string();
    json!({"isolation": isolation, "snapshots": {store: "10"}, "reads": [{"store": store, "key": "a", "version": version}]})
}

/// Where reads are validated by version, and up to the snapshot, any version is accepted.
#[tokio::test]
async fn only_reads_that_are_not_validated_must_be_of_the_snapshot() {
    for body in [
        read_at("snapshot", "orders/ü", 10),
        read_at("snapshot", "kv", 11),
        read_at("serializable", "orders/ü", 11),
        read_at("repeatable-read", "orders/ü", 11),
    ] {
        let server = start().await;
        let reply = post(server.address, COMMIT, &body.to_string()).await;
        assert_eq!(reply.status, 200, "{body}: {}", reply.json());
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn all_errors_are_reported_at_once() {
    let body = r#"{"isolation":"x","reads":[{"store":"kv","key":"","version":"v"},{"stoer":"kv","key":"a"}],
                   "writes":[{"op":"pot","store":"kv","key":"a"},{"op":"put","store":"nope","key":"b"}]}"#;
    let expected = [
        ("/isolation", "unknown_value"),
        ("/reads/0/key", "empty_key"),
        ("/reads/0/version", "bad_number"),
        ("/reads/1/stoer", "unknown_field"),
        ("/reads/1/store", "missing_field"),
        ("/writes/0/op", "unknown_op"),
        ("/writes/1/store", "unknown_store"),
        ("/writes/1/value", "missing_field"),
    ];
    check(body, 400, "invalid_request", &expected).await;
}

#[tokio::test]
async fn errors_of_parameters_say_where_they_are_all_at_once() {
    let server = start().await;
    let events = [("accept", "text/event-stream"), ("last-event-id", "seven")];
    let no_headers: &[(&str, &str)] = &[];
    for (path, headers, status, expected) in [
        ("/v1/snapshot?store=nope", no_headers, 404, &[("?store", "unknown_store")] as &[_]),
        ("/v1/snapshot?stoer=kv", no_headers, 400, &[("?stoer", "unknown_parameter"), ("?store", "missing_field")]),
        ("/v1/stores/nope", no_headers, 404, &[("{store}", "unknown_store")]),
        ("/v1/stores/%FF/state", no_headers, 400, &[("{store}", "invalid_utf8")]),
        (
            "/v1/stores/nope/rows?limit=0&start=b&end=a",
            no_headers,
            400,
            &[("{store}", "unknown_store"), ("?limit", "bad_number"), ("?end", "empty_range")],
        ),
        ("/v1/log?store=nope&limit=0", no_headers, 400, &[("?limit", "bad_number"), ("?store", "unknown_store")]),
        (
            "/v1/log?store=nope&limit=x",
            &events,
            400,
            &[("?limit", "bad_number"), ("?store", "unknown_store"), ("last-event-id:", "bad_parameter")],
        ),
        ("/v1/txns/7?wait_ms=x", no_headers, 400, &[("{txn_id}", "bad_txn_id"), ("?wait_ms", "bad_number")]),
        ("/v1/consumers/%20", no_headers, 400, &[("{name}", "bad_name")]),
    ] {
        let reply = Client::connect(server.address).await.call("GET", path, headers, b"").await;
        let found = errors(&reply);
        let found: Vec<_> = found.iter().map(|(pointer, code)| (pointer.as_str(), code.as_str())).collect();
        assert_eq!((reply.status, &found[..]), (status, expected), "{path}");
    }
    let deleted = Client::connect(server.address).await.call("DELETE", "/v1/consumers/%20?store=nope", &[], b"").await;
    assert_eq!(
        errors(&deleted),
        [("{name}", "bad_name"), ("?store", "unknown_store")].map(|(p, c)| (p.into(), c.into()))
    );
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_duplicate_field_is_rejected() {
    let body = r#"{"writes":[{"op":"put","op":"delete","store":"kv","key":"a","value":1}]}"#;
    check(body, 400, "duplicate_field", &[("/writes/0/op", "duplicate_field")]).await;
    let body = r#"{"snapshots":{"kv":"1","kv":"2"}}"#;
    check(body, 400, "duplicate_field", &[("/snapshots/kv", "duplicate_field")]).await;
}

#[tokio::test]
async fn broken_syntax_is_located() {
    let server = start().await;
    for (body, line, column) in [
        ("{\n \"writes\": [,]}", 2, 13),
        ("", 1, 1),
        ("{} x", 1, 4),
        ("{\"writes\":[{\"op\":\"put\"", 1, 22),
        ("{\"priority\": 1e999}", 1, 18),
        ("{\"writes\":[{\"op\":\"put\",\"store\":\"kv\",\"key\":\"\\ud800\",\"value\":1}]}", 1, 50),
    ] {
        let reply = post(server.address, COMMIT, body).await;
        let problem = reply.json();
        assert_eq!((reply.status, problem["code"].as_str()), (400, Some("malformed_json")), "{body}");
        assert_eq!((problem["line"].as_u64(), problem["column"].as_u64()), (Some(line), Some(column)), "{body}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn bytes_that_are_not_utf_8_are_rejected() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let headers = [("content-type", "application/json")];
    let reply = client.call("POST", COMMIT, &headers, b"{\"isolation\":\"\xff\"}").await;
    assert_eq!((reply.status, reply.json()["code"].as_str()), (400, Some("invalid_utf8")));
    assert!(reply.json()["detail"].as_str().unwrap().contains("byte 14"));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn nesting_is_bounded() {
    let nested = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
    let body = |n: usize| format!(r#"{{"writes":[{{"op":"put","store":"kv","key":"a","value":{}}}]}}"#, nested(n));
    check(&body(62), 400, "too_deep", &[("/writes/0/value", "too_deep")]).await;
    check(&body(100_000), 400, "too_deep", &[("/writes/0/value", "too_deep")]).await;
    check(&nested(100_000), 400, "wrong_type", &[("", "wrong_type")]).await;
    let unknown = format!("{{\"deep\":{}}}", nested(100_000));
    check(&unknown, 400, "unknown_field", &[("/deep", "unknown_field")]).await;
    let server = start().await;
    let reply = post(server.address, COMMIT, &body(61)).await;
    assert_eq!(reply.status, 200);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn sizes_are_bounded() {
    let put = |n: usize| json!({"op": "put", "store": "kv", "key": format!("k{n}"), "value": 1});
    let many: Vec<_> = (0..=OPS_PER_TXN_MAX).map(put).collect();
    check(&json!({"writes": many}).to_string(), 413, "too_many", &[("", "too_many")]).await;

    let range = |n: usize| json!({"store": "kv", "start": format!("{n:05}")});
    let many: Vec<_> = (0..=RANGES_PER_TXN_MAX).map(range).collect();
    let body = json!({"snapshots": {"kv": "1"}, "ranges": many}).to_string();
    check(&body, 413, "too_many", &[("/ranges/256", "too_many")]).await;

    let long = "v".repeat(VALUE_BYTES_MAX);
    let body = write(json!({"op": "put", "store": "kv", "key": "a", "value": long}));
    check(&body, 413, "value_too_large", &[("/writes/0/value", "value_too_large")]).await;

    let huge = format!("{{\"x\":\"{}\"}}", "x".repeat(BODY_BYTES_MAX));
    check(&huge, 413, "body_too_large", &[]).await;
}

#[tokio::test]
async fn the_stores_of_a_transaction_are_bounded_without_snapshots_too() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let json_type = [("content-type", "application/json")];
    let store = |n: usize| format!("many-{n}");
    for n in 0..=STORES_PER_TXN_MAX {
        let path = format!("/v1/stores/{}", store(n));
        assert_eq!(client.call("PUT", &path, &json_type, b"{}").await.status, 201, "{path}");
    }
    let write = |n: usize| json!({"op": "put", "store": store(n), "key": "a", "value": 1});
    let body = |stores: usize| json!({"writes": (0..stores).map(write).collect::<Vec<_>>()}).to_string();
    let reply = client.post(COMMIT, &body(STORES_PER_TXN_MAX + 1)).await;
    assert_eq!((reply.status, errors(&reply)), (413, vec![(String::new(), "too_many".to_owned())]));
    assert_eq!(client.post(COMMIT, &body(STORES_PER_TXN_MAX)).await.status, 200);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_node_with_a_long_address_needs_a_name() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let address = format!("{}:7421", "n".repeat(NAME_BYTES_MAX));
    let reply = client.post("/v1/cluster/nodes", &json!({"address": address}).to_string()).await;
    assert_eq!((reply.status, errors(&reply)), (400, vec![("/name".to_owned(), "missing_field".to_owned())]));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_body_without_a_length_is_bounded_too() {
    use tokio::io::AsyncWriteExt;
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let head = format!(
        "POST {COMMIT} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    client.socket.write_all(head.as_bytes()).await.unwrap();
    let chunk = [b"100000\r\n".as_slice(), &[b' '; 0x10_0000], b"\r\n"].concat();
    for _ in 0..12 {
        if client.socket.write_all(&chunk).await.is_err() {
            break;
        }
    }
    let reply = client.reply().await.expect("an answer before the end of the body");
    assert_eq!((reply.status, reply.json()["code"].as_str()), (413, Some("body_too_large")));
    server.stop().await.unwrap();
}

#[tokio::test]
async fn ids_are_uuids_of_version_7() {
    let server = start().await;
    for id in ["x", "0193a5b0-7a3e-4c11-8a52-3f0e1d2c4b5a", "0193a5b07a3e7c118a523f0e1d2c4b5a", "%FF"] {
        let reply = post(server.address, &format!("/v1/txns/{id}/commit"), "{}").await;
        assert_eq!((reply.status, reply.json()["code"].as_str()), (400, Some("bad_txn_id")), "{id}");
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn unknown_routes_methods_and_types_are_problems() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let json = ("content-type", "application/json");
    let check = |reply: Reply, status: u16, code: &str| {
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{code}");
        assert_eq!((reply.status, reply.json()["code"].as_str()), (status, Some(code)), "{reply:?}");
        reply
    };
    check(client.get("/nope").await, 404, "unknown_route");
    check(client.get("/v1/txns/x/y/z").await, 404, "unknown_route");
    for (path, way_on) in [
        ("/v1/stores/kv/rows/", "`/v1/stores/kv/rows` lists rows, and `/v1/stores/kv/rows/KEY` is one row"),
        ("/stores/kv", "use `/v1/stores/kv`"),
        ("/v1/v1/stores", "clients and commands add `/v1` themselves"),
        ("/v1/openapi.json", "use `/openapi.json`"),
        ("/v1/store/kv/row/a/b", "use `/v1/stores/kv/rows/a/b`"),
    ] {
        let reply = check(client.get(path).await, 404, "unknown_route");
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(way_on), "{path}: {detail}");
    }
    let reply = check(client.get(COMMIT).await, 405, "method_not_allowed");
    assert_eq!(reply.header("allow"), Some("POST"));
    let reply = check(client.call("DELETE", "/v1/stores/kv", &[], b"").await, 405, "method_not_allowed");
    let mut allowed: Vec<_> = reply.header("allow").unwrap().split(',').map(str::trim).collect();
    allowed.sort_unstable();
    assert_eq!(allowed, ["GET", "HEAD", "PUT"]);
    let detail = reply.json()["detail"].as_str().unwrap().to_owned();
    assert!(detail.contains("cannot be deleted") && detail.contains("Delete its rows"), "{detail}");
    check(client.call("POST", COMMIT, &[], b"{}").await, 415, "unsupported_media_type");
    let plain = [("content-type", "text/plain")];
    check(client.call("POST", COMMIT, &plain, b"{}").await, 415, "unsupported_media_type");
    let latin = [("content-type", "application/json; charset=latin1")];
    let refused = client.call("POST", COMMIT, &latin, b"{}").await;
    assert!(refused.json()["detail"].as_str().is_some_and(|detail| detail.contains("charset")), "{:?}", refused.json());
    check(refused, 415, "unsupported_media_type");
    let packed = [json, ("content-encoding", "gzip")];
    check(client.call("POST", COMMIT, &packed, b"{}").await, 415, "unsupported_media_type");
    check(client.get("/v1/log?store=nope").await, 404, "unknown_store");
    check(client.get("/v1/log").await, 400, "missing_field");
    check(client.get("/v1/log?store=kv&limit=10001").await, 400, "bad_number");
    check(client.get("/v1/log?store=kv&wait_ms=60001").await, 400, "bad_number");
    check(client.get("/v1/log?store=kv&foo=1").await, 400, "unknown_parameter");
    let gone = check(client.get("/v1/log?store=kv&after=666").await, 410, "log_truncated");
    assert_eq!((&gone.json()["oldest"], &gone.json()["nodes"]), (&json!("667"), &json!([2, 3])));
    assert!(gone.json()["detail"].as_str().is_some_and(|detail| detail.contains("pull them from node 2, 3")));
    server.stop().await.unwrap();
}

/// Generated clients write these for an absent value.
#[tokio::test]
async fn null_and_empty_mean_absent() {
    let server = start().await;
    let begun =
        post(server.address, "/v1/txns", r#"{"stores":[],"isolation":null,"session":null,"wait_ms":null}"#).await;
    assert_eq!(begun.status, 201, "{}", begun.json());
    let body = r#"{"isolation":null,"snapshots":{},"priority":null,"ack":null,"epoch":null,
        "reads":[{"store":"kv","key":"a","key_b64":null,"version":null}],
        "writes":[{"op":"delete","store":"kv","key":"b","value":null,"value_b64":null}]}"#;
    let reply = post(server.address, COMMIT, body).await;
    assert_eq!(reply.status, 200, "{}", reply.json());
    server.stop().await.unwrap();
}

/// RFC 7493: values that some intermediary would reject or change.
#[tokio::test]
async fn values_outside_of_i_json_are_rejected() {
    for value in [r#""\ud800""#, r#"["x\udc00"]"#, r#"{"\ud834x":1}"#, "1e400", "[-1e400]", r#""\ud800\ud800""#] {
        let body = format!(r#"{{"writes":[{{"op":"put","store":"kv","key":"a","value":{value}}}]}}"#);
        check(&body, 400, "not_interoperable", &[("/writes/0/value", "not_interoperable")]).await;
    }
    let server = start().await;
    for value in [r#""\ud834\udd1e""#, "1e308", "\"1e400\"", "12345678901234567890123", r#""\\ud800""#] {
        let body = format!(r#"{{"writes":[{{"op":"put","store":"kv","key":"a","value":{value}}}]}}"#);
        let path = format!("/v1/txns/{}/commit", uuid::Uuid::now_v7());
        let reply = post(server.address, &path, &body).await;
        assert_eq!(reply.status, 200, "{value}: {}", reply.json());
    }
    server.stop().await.unwrap();
}

/// An ignored parameter might have mattered: `dry_run=true` must not commit.
#[tokio::test]
async fn unknown_parameters_are_rejected_on_every_route() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    let put = write(json!({"op": "put", "store": "kv", "key": "a", "value": 1}));
    let rows = r#"{"read":[{"key":"a"}]}"#;
    let batch = r#"{"txns":[]}"#;
    for (method, path, body) in [
        ("POST", COMMIT, put.as_str()),
        ("POST", &format!("{TXN}/validate"), &put),
        ("POST", &format!("{TXN}/abort"), ""),
        ("POST", "/v1/txns", "{}"),
        ("POST", "/v1/txns/batch-commit", batch),
        ("POST", "/v1/txns/stream", ""),
        ("POST", "/v1/stores/kv/rows/read", rows),
        ("GET", "/v1/stores/kv/rows/a", ""),
        ("GET", "/v1/stores/kv/rows/read", ""),
        ("GET", "/v1/stores/kv/state", ""),
        ("GET", "/v1/stores/kv", ""),
        ("PUT", "/v1/stores/new", "{}"),
        ("GET", "/v1/stores", ""),
        ("GET", "/v1/consumers", ""),
        ("GET", "/v1/admin/plugins", ""),
        ("GET", "/v1/log", ""),
        ("GET", "/v1/snapshot", ""),
        ("GET", TXN, ""),
    ] {
        let asked = format!("{path}?dry_run=true");
        let reply = client.call(method, &asked, &[("content-type", "application/json")], body.as_bytes()).await;
        assert_eq!(reply.status, 400, "{method} {asked}: {}", reply.json());
        assert_eq!(errors(&reply)[0], ("?dry_run".to_owned(), "unknown_parameter".to_owned()), "{method} {asked}");
    }
    let both = client.post(&format!("{COMMIT}?isolation=snapshot&dry_run"), &put).await;
    assert_eq!(errors(&both).len(), 2, "{}", both.json());
    let log = client.get("/v1/log?store=kv").await;
    assert_eq!(log.json()["head_lsn"], "0", "nothing is committed");
    for probe in ["/healthz?probe=1", "/readyz?verbose", "/metrics?format=text"] {
        assert_ne!(client.get(probe).await.status, 400, "{probe}");
    }
    assert_eq!(client.post(&format!("{COMMIT}?"), &put).await.status, 200, "there is no parameter");
    server.stop().await.unwrap();
}

/// A fence cannot be undone.
#[tokio::test]
async fn only_true_fences() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    for query in ["fence", "fence=", "fence=1", "fence=TRUE", "fence=yes"] {
        let reply = client.get(&format!("{}?{query}", TXN)).await;
        assert_eq!((reply.status, reply.json()["code"].as_str()), (400, Some("bad_parameter")), "{query}");
        assert_eq!(reply.json()["detail"], "?fence: must be true or false", "{query}");
    }
    assert_eq!(client.get(&format!("{}?fence=false", TXN)).await.json()["status"], "unknown");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_malformed_percent_escape_is_rejected() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    for (path, pointer) in [
        ("/v1/stores/%zz", "{store}"),
        ("/v1/stores/kv%/state", "{store}"),
        ("/v1/stores/kv/rows/50%", "{key}"),
        ("/v1/stores/kv/rows/a/b%2", "{key}"),
        ("/v1/consumers/%g0", "{name}"),
        ("/v1/txns/%zz", "{txn_id}"),
        ("/v1/stores/kv/rows?start=%zz", "?start"),
        ("/v1/stores/kv/rows?end=100%", "?end"),
        ("/v1/snapshot?store=kv%", "?store"),
    ] {
        let reply = client.get(path).await;
        assert_eq!(reply.status, 400, "{path}: {}", reply.json());
        assert_eq!(errors(&reply)[0], (pointer.to_owned(), "bad_parameter".to_owned()), "{path}");
        assert!(reply.json()["errors"][0]["detail"].as_str().unwrap().contains("`%25`"), "{path}");
        // A name in braces is for programs; the detail puts it in words for people.
        let (detail, name) = (reply.json()["detail"].as_str().unwrap().to_owned(), pointer.trim_matches(['{', '}']));
        assert!(!detail.contains(['{', '}']), "{path}: {detail}");
        assert!(!pointer.starts_with('{') || detail.contains(&format!("`{name}` in the path")), "{path}: {detail}");
    }
    assert_eq!(client.get("/v1/stores/kv/rows/50%25").await.json()["code"], "row_missing");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn each_bad_line_of_a_batch_is_named() {
    let server = start().await;
    let put =
        |n: usize| format!(r#"{{"txn_id":"{}","writes":[{{"op":"put","store":"kv","key":"k{n}","value":1}}]}}"#, id(n));
    let (first, second) = (put(1), put(2));
    let no_store = put(3).replace("\"kv\"", "\"nope\"");
    let lines: [&[u8]; 6] =
        [first.as_bytes(), b"{\"txn_id\":", b"", b"{\"txn_id\":\"\xff\"}", no_store.as_bytes(), second.as_bytes()];
    let mut client = Client::connect(server.address).await;
    let headers = [("content-type", "application/x-ndjson")];
    let reply = client.call("POST", "/v1/txns/batch-commit", &headers, &lines.join(&b'\n')).await;
    assert_eq!(reply.status, 200);
    let text = String::from_utf8(reply.body).unwrap();
    let items: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let shown: Vec<_> = items
        .iter()
        .map(|item| (item["problem"]["code"].as_str().unwrap_or_default(), item["problem"]["line"].as_u64()))
        .collect();
    let expected =
        [("", None), ("malformed_json", Some(2)), ("invalid_utf8", Some(4)), ("unknown_store", Some(5)), ("", None)];
    assert_eq!(shown, expected);
    assert!(items[1]["problem"]["detail"].as_str().unwrap().ends_with(" at line 2 column 10"), "{}", items[1]);
    assert_eq!((&items[0]["status"], &items[4]["status"]), (&json!("committed"), &json!("committed")));
    server.stop().await.unwrap();
}

fn id(n: usize) -> String {
    format!("0193a5b0-7a3e-7c11-8a52-3f0e1d2c4c{n:02x}")
}

/// Otherwise the client searches its body for a mistake that is in its head.
#[tokio::test]
async fn a_request_that_announces_no_body_is_told_so() {
    let server = start().await;
    for path in [COMMIT, "/v1/txns", "/v1/stores/kv/rows/read"] {
        for (announced, expected) in
            [("", "neither `content-length` nor"), ("content-length: 0\r\n", "the body is empty")]
        {
            let mut client = Client::connect(server.address).await;
            let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{announced}\r\n");
            client.socket.write_all(head.as_bytes()).await.expect("the head is sent");
            let reply = client.reply().await.expect("an answer");
            let problem = reply.json();
            assert_eq!((reply.status, &problem["code"]), (400, &json!("malformed_json")), "{path}: {problem}");
            assert!(problem["detail"].as_str().unwrap().contains(expected), "{path}: {problem}");
        }
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn errors_say_what_to_do() {
    let server = start().await;
    let mut client = Client::connect(server.address).await;
    for (path, body, expected) in [
        (COMMIT, r#"{"reads":[{"store":"kv","key":"\udc00"}]}"#, "half of a surrogate pair"),
        (COMMIT, r#"{"reads":[{"store":"kv","key":"\ud800x"}]}"#, "`key_b64`"),
        (COMMIT, "\u{feff}{}", "begins with a byte order mark"),
        (COMMIT, r#"{"reads":[{"store":"kv","key_b64":"_-8="}]}"#, "RFC 4648, section 4"),
        (COMMIT, r#"{"reads":[{"store":"kv","key_b64":"YR=="}]}"#, "RFC 4648, section 3.5"),
        (COMMIT, r#"{"reads":[{"store":"kv","key_b64":"YQAAA"}]}"#, "group of four characters is incomplete"),
        (COMMIT, r#"{"epoch":"007"}"#, "without sign or leading zeros"),
        (COMMIT, r#"{"reads":[{"store":"kv","key":"a","version":"+7"}]}"#, "without sign or leading zeros"),
        (COMMIT, r#"{"writes":[{"store":"kv","key":"a","value":1}]}"#, "/writes/0/op: is required: insert"),
        ("/v1/txns/batch-commit", "{}", "/txns: is required: the commits"),
        ("/v1/txns", r#"{"ttl_ms":600001}"#, "/ttl_ms: must be between 1 and 600000"),
        ("/v1/txns", r#"{"ttl_ms":0}"#, "/ttl_ms: must be between 1 and 600000"),
        ("/v1/txns", r#"{"stores":[null]}"#, "/stores/0: must be a string, is null"),
        (COMMIT, r#"{"writes":null}"#, "; leave the field out instead"),
    ] {
        let reply = client.post(path, body).await;
        let detail = reply.json()["detail"].as_str().unwrap().to_owned();
        assert!(reply.status == 400 && detail.contains(expected), "{body}: {detail}");
    }
    for (path, body) in [(COMMIT, "null"), ("/v1/txns", r#"{"stores":[null]}"#)] {
        let reply = client.post(path, body).await;
        assert!(!reply.json()["detail"].as_str().unwrap().contains("leave the field out"), "{body}");
    }
    let events = [("accept", "text/event-stream"), ("last-event-id", "seven")];
    let reply = client.call("GET", "/v1/log?store=kv", &events, b"").await;
    assert!(reply.json()["detail"].as_str().unwrap().starts_with("last-event-id: "), "{}", reply.json());
    server.stop().await.unwrap();
}
