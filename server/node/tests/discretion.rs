//! The information that callers get about other tenants, and the limit on a tenant's rows.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::keyed::{AUTH, call, make_key, operator, put, serve};
use support::{Node, Response, eventually, new_id};

const ALL: [&str; 3] = ["engine", "store", "operator"];

fn commit(node: &Node, key: &str, body: &Value) -> Response {
    call(node, key, "POST", &format!("/v1/txns/{}/commit", new_id()), Some(body))
}

/// Returns writes that put these rows of the store `log` blindly, or apply `op` to them.
fn rows(op: &str, numbers: std::ops::Range<u64>) -> Value {
    let write = |number: u64| match op {
        "delete" => json!({"op": op, "store": "log", "key": format!("k{number}")}),
        _ => json!({"op": op, "store": "log", "key": format!("k{number}"), "value": number}),
    };
    json!({"writes": numbers.map(write).collect::<Vec<_>>()})
}

/// Imports lines of versions into the store `log`; returns the whole response.
fn import(node: &Node, key: &str, lines: &str) -> String {
    let mut socket = TcpStream::connect(node.url.trim_start_matches("http://")).expect("it listens");
    let head = format!(
        "POST /v1/stores/log/versions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\
         content-type: application/x-ndjson\r\ncontent-length: {}\r\n\r\n",
        lines.len()
    );
    socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(lines.as_bytes())).expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("text");
    answer
}

fn fields(body: &Value) -> Vec<&str> {
    body.as_object().expect("an object").keys().map(String::as_str).collect()
}

#[test]
fn only_operators_of_the_service_see_its_epoch() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let metrics = make_key(&node, &root, "default", &["metrics"]);
    let engine = make_key(&node, &root, "default", &["engine"]);
    let shop = make_key(&node, &root, "shop", &ALL);
    assert_eq!(fields(&node.get("/version").body), ["version"]);
    for (key, told) in [(&root, true), (&metrics, true), (&engine, false), (&shop, false), (&"x".to_owned(), false)] {
        let answer = call(&node, key, "GET", "/version", None);
        assert_eq!((answer.status, answer.body.get("epoch").is_some()), (200, told), "{}", answer.body);
    }
}

#[test]
fn readiness_names_stores_to_operators_of_the_service_only() {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let shop = make_key(&node, &root, "shop", &ALL);
    // A storage that does not respond has not reported its watermark.
    let dead = json!({"adaptor": "redis", "adaptor_config": {"endpoint": "127.0.0.1:1"}});
    assert_eq!(call(&node, &shop, "PUT", "/v1/stores/secret-name", Some(&dead)).status, 201);
    let row = json!({"writes": [{"op": "put", "store": "secret-name", "key": "k", "value": 1}]});
    assert_eq!(commit(&node, &shop, &row).body["status"], "committed");
    assert!(node.stop().success());
    let node = serve(dir.path(), AUTH);
    let reasons = |key: Option<&str>| {
        let answer = key.map_or_else(|| node.get("/readyz"), |key| call(&node, key, "GET", "/readyz", None));
        answer.body["reasons"].to_string()
    };
    for key in [None, Some(&*shop), Some("x")] {
        let told = reasons(key);
        assert!(told.contains("one store") && !told.contains("secret-name"), "{told}");
    }
    assert!(reasons(Some(&root)).contains("secret-name"), "{}", reasons(Some(&root)));
}

#[test]
fn a_tenants_storage_does_not_make_the_node_unready_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let more = format!("{AUTH}[push.tenants.shop]\nallow = [\"127.0.0.1\"]\n");
    let node = serve(dir.path(), &more);
    let root = operator(dir.path());
    let shop = make_key(&node, &root, "shop", &ALL);
    // It accepts connections and never responds.
    let hangs = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = hangs.local_addr().unwrap().to_string();
    let store = json!({"adaptor": "redis", "adaptor_config": {"endpoint": endpoint}});
    assert_eq!(call(&node, &shop, "PUT", "/v1/stores/far", Some(&store)).status, 201);
    let row = json!({"writes": [{"op": "put", "store": "far", "key": "k", "value": 1}]});
    assert_eq!(commit(&node, &shop, &row).body["status"], "committed");
    assert!(node.stop().success());
    // After a start, the push waits for the first response of its storage.
    let node = serve(dir.path(), &more);
    let ready = call(&node, &root, "GET", "/readyz", None);
    assert_eq!((ready.status, &ready.body["ready"]), (200, &json!(true)), "{}", ready.body);
    assert!(
        ready.body["reasons"].to_string().contains("store `far` of namespace `shop` has not reported"),
        "{}",
        ready.body
    );
    let metrics = call(&node, &root, "GET", "/metrics", None).body;
    assert!(metrics.as_str().unwrap().contains("\ntribunal_ready 1\n"), "{metrics}");
}

#[test]
fn a_tenants_operator_gets_the_statistics_of_its_tenant_and_nothing_else() {
    assert!((0..20).any(|_| statistics_are_those_of_a_tenant()), "commits take longer than statistics look back");
}

/// Returns false, without a check, if the commits took longer than the window of the statistics.
fn statistics_are_those_of_a_tenant() -> bool {
    let dir = tempfile::tempdir().unwrap();
    let node = serve(dir.path(), AUTH);
    let root = operator(dir.path());
    let (shop, bank) = (make_key(&node, &root, "shop", &ALL), make_key(&node, &root, "bank", &ALL));
    let scraper = make_key(&node, &root, "bank", &["metrics"]);
    for key in [&shop, &bank] {
        assert_eq!(call(&node, key, "PUT", "/v1/stores/kv", Some(&json!({"adaptor": "kv"}))).status, 201);
    }
    let begun = Instant::now();
    for value in 0..7 {
        assert_eq!(put(&node, &shop, &new_id(), value).body["status"], "committed");
    }
    assert_eq!(put(&node, &bank, &new_id(), 1).body["status"], "committed");
    let again = json!({"writes": [{"op": "insert", "store": "kv", "key": "k", "value": 1}]});
    assert_eq!(commit(&node, &bank, &again).body["reason"], "row_exists");
    let stats = |key: &str| call(&node, key, "GET", "/v1/stats", None);
    let committed = |stats: &Value| {
        let seconds = stats["window_ms"].as_str().unwrap().parse::<f64>().unwrap() / 1000.0;
        (stats["committed_per_s"].as_f64().unwrap() * seconds).round()
    };
    let [of_bank, of_shop, of_all, of_scraper] = [&bank, &shop, &root, &scraper].map(|key| stats(key).body);
    if begun.elapsed() > Duration::from_secs(5) {
        return false;
    }
    assert_eq!(committed(&of_bank), 1.0, "{of_bank}");
    assert_eq!(of_bank["aborts"], json!([{"reason": "row_exists", "count": "1"}]));
    assert!((of_bank["abort_share"].as_f64().unwrap() - 0.5).abs() < 1e-9, "{of_bank}");
    for hidden in ["epoch", "epochs_per_s", "replayed_per_s", "epoch_txns"] {
        assert!(of_bank.get(hidden).is_none(), "{hidden}: {of_bank}");
    }
    for hidden in ["phases", "commits", "plugins"] {
        assert_eq!(of_bank[hidden], json!([]), "{of_bank}");
    }
    assert_eq!((committed(&of_shop), &of_shop["aborts"]), (7.0, &json!([])), "{of_shop}");
    assert_eq!((committed(&of_all), of_all["epoch"].is_string()), (8.0, true), "{of_all}");
    // A key with the role `metrics` in a tenant reads that tenant's statistics, but not the global metrics.
    assert_eq!(committed(&of_scraper), 1.0);
    assert_eq!(call(&node, &scraper, "GET", "/metrics", None).status, 403);
    let engine = make_key(&node, &root, "bank", &["engine"]);
    assert_eq!(stats(&engine).status, 403);
    let metrics = call(&node, &root, "GET", "/metrics", None).body.as_str().expect("text").to_owned();
    for line in [
        "tribunal_tenant_txns_committed_total{namespace=\"shop\"} 7",
        "tribunal_tenant_txns_committed_total{namespace=\"bank\"} 1",
        "level=\"serializable\",namespace=\"bank\",store=\"kv\"} 1",
        "tribunal_store_rows{namespace=\"shop\",store=\"kv\"} 1",
    ] {
        assert!(metrics.contains(line), "{line} is missing:\n{metrics}");
    }
    true
}

/// A node on which the tenant `shop` has as many rows as it may have: 100, in its store `log`.
struct FullShop {
    node: Node,
    root: String,
    shop: String,
    /// The transaction that wrote the rows, and its verdict.
    id: String,
    full: Value,
}

const ROW_BOUNDS: &str = "tenant_rows_max = 100\n[auth.rows_max]\nbig = 1000\n";

fn full_shop(dir: &Path) -> FullShop {
    let node = serve(dir, &format!("{AUTH}{ROW_BOUNDS}"));
    let root = operator(dir);
    let shop = make_key(&node, &root, "shop", &ALL);
    assert_eq!(call(&node, &shop, "PUT", "/v1/stores/log", Some(&json!({}))).status, 201);
    let id = new_id();
    let full = call(&node, &shop, "POST", &format!("/v1/txns/{id}/commit"), Some(&rows("put", 0..100))).body;
    assert_eq!(full["status"], "committed", "{full}");
    assert_eq!(listed(&node, &shop), "100");
    FullShop { node, root, shop, id, full }
}

/// Returns the number of rows that a tenant's store `log` is listed with.
fn listed(node: &Node, key: &str) -> Value {
    call(node, key, "GET", "/v1/stores/log", None).body["rows"].clone()
}

#[test]
fn rows_of_a_tenant_are_bounded_and_the_refusal_names_the_numbers() {
    let dir = tempfile::tempdir().unwrap();
    let FullShop { node, shop, id, full, .. } = full_shop(dir.path());
    let refused = commit(&node, &shop, &rows("put", 100..101));
    assert_eq!((refused.status, &refused.body["code"]), (429, &json!("rows_exceeded")), "{}", refused.body);
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(
        detail.contains("100 rows") && detail.contains("100 are") && refused.body["retryable"] == false,
        "{detail}"
    );
    assert_eq!(commit(&node, &shop, &rows("insert", 100..101)).status, 429);
    let dry = call(&node, &shop, "POST", &format!("/v1/txns/{}/validate", new_id()), Some(&rows("put", 100..101)));
    assert_eq!((dry.status, &dry.body["code"]), (429, &json!("rows_exceeded")), "{}", dry.body);
    let dry = call(&node, &shop, "POST", &format!("/v1/txns/{id}/validate"), Some(&rows("put", 0..100)));
    assert_eq!(dry.status, 200, "{}", dry.body);
    // A transaction accepted before keeps its verdict, and one that adds no row is accepted.
    let again = call(&node, &shop, "POST", &format!("/v1/txns/{id}/commit"), Some(&rows("put", 0..100)));
    assert_eq!((&again.body["status"], &again.body["version"]), (&full["status"], &full["version"]));
    assert_eq!(commit(&node, &shop, &rows("update", 0..50)).body["status"], "committed");
    let version = commit(&node, &shop, &rows("update", 7..8)).body["version"].clone();
    let read = json!({"reads": [{"store": "log", "key": "k7", "version": version}],
        "writes": [{"op": "put", "store": "log", "key": "k7", "value": 1}]});
    assert_eq!(commit(&node, &shop, &read).body["status"], "committed");
}

#[test]
fn a_batch_is_bounded_one_transaction_after_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let FullShop { node, shop, .. } = full_shop(dir.path());
    assert_eq!(commit(&node, &shop, &rows("delete", 0..2)).body["status"], "committed");
    assert_eq!(listed(&node, &shop), "98");
    let txns = (200..204).map(|number| {
        let mut txn = rows("put", number..number + 1);
        txn["txn_id"] = json!(new_id());
        txn
    });
    let batch = json!({"txns": txns.collect::<Vec<_>>()});
    let answer = call(&node, &shop, "POST", "/v1/txns/batch-commit", Some(&batch)).body;
    let results = answer["results"].as_array().unwrap_or_else(|| panic!("{answer}"));
    let statuses: Vec<_> = results.iter().map(|one| one.to_string().contains("rows_exceeded")).collect();
    assert_eq!(statuses, [false, false, true, true], "{answer}");
    // A delete makes room for a row of its own transaction, but not for the other transactions of its batch.
    let swap = json!({"writes": [{"op": "delete", "store": "log", "key": "k10"},
        {"op": "put", "store": "log", "key": "new", "value": 1}]});
    assert_eq!(commit(&node, &shop, &swap).body["status"], "committed");
    assert_eq!(listed(&node, &shop), "100");
    assert_eq!(commit(&node, &shop, &rows("delete", 11..12)).body["status"], "committed");
    let pair = [rows("delete", 12..13), rows("put", 500..501)].map(|mut txn| {
        txn["txn_id"] = json!(new_id());
        txn
    });
    let answer = call(&node, &shop, "POST", "/v1/txns/batch-commit", Some(&json!({"txns": pair}))).body;
    assert!(answer["results"].as_array().unwrap().iter().all(|one| one["status"] == "committed"), "{answer}");
    assert_eq!(commit(&node, &shop, &rows("put", 501..502)).body["status"], "committed");
    // Versions of existing rows count as rows.
    let lines = "{\"key\":\"v1\",\"version\":\"1\"}\n{\"key\":\"v2\",\"version\":\"1\"}\n";
    let answer = import(&node, &shop, lines);
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("rows_exceeded"), "{answer}");
}

#[test]
fn each_tenant_has_its_bound_which_the_metrics_show() {
    let dir = tempfile::tempdir().unwrap();
    let FullShop { node, root, shop, .. } = full_shop(dir.path());
    let big = make_key(&node, &root, "big", &ALL);
    let own = make_key(&node, &root, "default", &ALL);
    for (key, most) in [(&big, 1000), (&own, 3000)] {
        assert_eq!(call(&node, key, "PUT", "/v1/stores/log", Some(&json!({}))).status, 201);
        assert_eq!(commit(&node, key, &rows("put", 0..most)).body["status"], "committed");
    }
    assert_eq!(commit(&node, &big, &rows("put", 1000..1001)).status, 429);
    assert_eq!(commit(&node, &own, &rows("put", 3000..3001)).status, 200);
    let text = call(&node, &root, "GET", "/metrics", None).body.as_str().expect("text").to_owned();
    let mut figures: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("tribunal_tenant_rows")).collect();
    figures.sort_unstable();
    assert_eq!(
        figures,
        [
            "_max{namespace=\"big\"} 1000",
            "_max{namespace=\"shop\"} 100",
            "{namespace=\"big\"} 1000",
            "{namespace=\"default\"} 3001",
            "{namespace=\"shop\"} 100",
        ]
    );
    // Declared stores keep no rows.
    let declared = json!({"existence": "declared"});
    assert_eq!(call(&node, &shop, "PUT", "/v1/stores/free", Some(&declared)).status, 201);
    let begun = call(&node, &shop, "POST", "/v1/txns", Some(&json!({"stores": ["free"]}))).body;
    let write = |n: u64| json!({"op": "put", "store": "free", "key": format!("f{n}"), "value": n});
    let blind = json!({"snapshots": begun["snapshots"], "writes": (0..300).map(write).collect::<Vec<_>>()});
    assert_eq!(commit(&node, &shop, &blind).body["status"], "committed");
}

/// They are those of the rows, from the image and from the log.
#[test]
fn row_counts_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let FullShop { node, shop, .. } = full_shop(dir.path());
    let more = format!("{AUTH}{ROW_BOUNDS}");
    assert_eq!(commit(&node, &shop, &rows("update", 0..50)).body["status"], "committed");
    assert_eq!(commit(&node, &shop, &rows("delete", 0..2)).body["status"], "committed");
    assert_eq!(commit(&node, &shop, &rows("put", 200..202)).body["status"], "committed");
    let before = listed(&node, &shop);
    assert!(node.stop().success());
    let node = serve(dir.path(), &more);
    assert_eq!(listed(&node, &shop), before);
    assert_eq!(commit(&node, &shop, &rows("delete", 2..10)).body["status"], "committed");
    let fewer = listed(&node, &shop);
    node.kill();
    let node = serve(dir.path(), &more);
    assert_eq!(listed(&node, &shop), fewer);
    assert_eq!(commit(&node, &shop, &rows("put", 300..308)).status, 200);
    assert_eq!(commit(&node, &shop, &rows("put", 400..401)).status, 429);
}

#[test]
fn a_receivers_errors_show_no_resolved_address() {
    let dir = tempfile::tempdir().unwrap();
    let more = format!("{AUTH}\n[push]\nallow = []\n[push.tenants.shop]\nallow = [\"127.0.0.0/8\", \"::1/128\"]\n");
    let node = serve(dir.path(), &more);
    let root = operator(dir.path());
    let (shop, bank) = (make_key(&node, &root, "shop", &ALL), make_key(&node, &root, "bank", &ALL));
    let free = support::cluster::free_port();
    for key in [&shop, &bank] {
        assert_eq!(call(&node, key, "PUT", "/v1/stores/log", Some(&json!({}))).status, 201);
    }
    let hook = json!({"kind": "webhook", "url": format!("http://localhost:{free}/"), "secret": "0123456789abcdef"});
    let hides = |text: &str| !text.contains("127.0.0") && !text.contains("::1");
    // For a forbidden address, the registration is refused without naming the address.
    let refused = call(&node, &bank, "PUT", "/v1/stores/log/push", Some(&hook));
    assert_eq!(refused.status, 422, "{}", refused.body);
    assert!(hides(&refused.body.to_string()), "{}", refused.body);
    // For an allowed address where nothing listens, neither the response nor the status contains it.
    let registered = call(&node, &shop, "PUT", "/v1/stores/log/push", Some(&hook));
    assert_eq!(registered.status, 200, "{}", registered.body);
    assert!(hides(&registered.body.to_string()), "{}", registered.body);
    assert_eq!(commit(&node, &shop, &rows("put", 0..1)).body["status"], "committed");
    let told = eventually("the push has failed", || {
        let state = call(&node, &shop, "GET", "/v1/stores/log/push", None).body;
        state["last_error"].as_str().map(str::to_owned)
    });
    assert!(told.contains("localhost") && hides(&told), "{told}");
    // The same for a storage.
    let dead = json!({"adaptor": "redis", "adaptor_config": {"endpoint": format!("localhost:{free}")}});
    assert_eq!(call(&node, &shop, "PUT", "/v1/stores/dead", Some(&dead)).status, 201);
    let told = eventually("the storage does not answer", || {
        let state = call(&node, &shop, "GET", "/v1/stores/dead", None).body;
        state["push"]["last_error"].as_str().map(str::to_owned)
    });
    assert!(told.contains("localhost") && hides(&told), "{told}");
}
