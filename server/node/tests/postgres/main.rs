//! The `postgres` adaptor on a real node and a real PostgreSQL: rows, faults, and either side killed at any moment.

#[path = "../../../../examples/tpcc/src/postgres_server.rs"]
mod postgres_server;
#[path = "../support/mod.rs"]
mod support;

mod cluster;
mod database;
mod faults;
mod histories;
mod kills;
mod sharing;

use serde_json::{Value, json};

use database::{Database, caught_up, in_state, replayed, stopped};
use support::eventually;

/// Returns one table of JSON, one of typed columns, one of counters.
fn tables() -> Value {
    json!([
        {"table": "docs", "prefix": "doc/"},
        {"table": "account", "prefix": "acct/",
         "key": [{"column": "branch", "type": "text"}, {"column": "id", "type": "bigint"}],
         "columns": [{"field": "owner", "type": "text"}, {"field": "balance", "column": "bal", "type": "numeric"},
                     {"field": "open", "type": "boolean"}, {"field": "since", "type": "timestamptz", "nullable": true},
                     {"field": "tags", "type": "jsonb", "nullable": true}]},
        {"table": "counter", "prefix": "n/", "value": {"column": "n", "type": "bigint"}},
    ])
}

fn put(key: &str, value: Value) -> Value {
    json!({"op": "put", "store": "shop", "key": key, "value": value})
}

/// Compares every table with the replayed log: rows, versions, values, nothing else.
fn tables_equal_the_log(database: &Database, node: &support::Node) {
    let log = replayed(node, "shop");
    let text = |cell: &Option<String>| cell.clone().expect("not null");
    let mut found = std::collections::BTreeMap::new();
    for row in database.sql("SELECT key, version, value FROM docs") {
        found.insert(
            format!("doc/{}", text(&row[0])),
            (text(&row[1]), serde_json::from_str(&text(&row[2])).expect("JSON")),
        );
    }
    let accounts = "SELECT branch, id, version, to_jsonb(a) - 'branch' - 'id' - 'version' - 'bal' || \
                    jsonb_build_object('balance', bal) FROM account a";
    for row in database.sql(accounts) {
        let mut value: Value = serde_json::from_str(&text(&row[3])).expect("JSON");
        value.as_object_mut().expect("an object").retain(|_, field| !field.is_null());
        found.insert(format!("acct/{}/{}", text(&row[0]), text(&row[1])), (text(&row[2]), value));
    }
    for row in database.sql("SELECT key, version, n FROM counter") {
        let n = text(&row[2]).parse::<i64>().expect("an integer");
        found.insert(format!("n/{}", text(&row[0])), (text(&row[1]), json!(n)));
    }
    assert_eq!(found.len(), log.len(), "as many rows as the log leaves");
    for (key, row) in &log {
        assert_eq!(found.get(key), Some(row), "{key}");
    }
    let head = node.get("/v1/stores/shop").body["head_lsn"].clone();
    let watermark = database.cell("SELECT lsn FROM tribunal_watermark WHERE store = 'shop'");
    assert_eq!(head, watermark);
}

#[test]
fn rows_arrive_whole_with_their_versions() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = database.node(dir.path());
    database.declare(&node, "shop", &tables());
    let account = json!({"owner": "O'Neill \"x\" \\ {,}", "balance": 12.5, "open": true, "tags": ["a", null]});
    let verdict = node.commit(&json!({"writes": [
        put("doc/a", json!({"x": "ä\n\"'", "deep": [1, {"y": null}], "n": 9007199254740993_i64})),
        put("acct/north/7", account.clone()),
        put("doc/gone", json!(1)),
        put("n/hits", json!(40)),
    ]}));
    assert_eq!(verdict.body["status"], "committed", "{}", verdict.body);
    caught_up(&node, "shop");
    let read = database.sql("SELECT value, version FROM docs WHERE key = 'a'").remove(0);
    assert_eq!(read[1].as_deref(), verdict.body["version"].as_str());
    let since = "2026-01-02T03:04:05+00:00";
    let more = json!({"writes": [
        {"op": "add", "store": "shop", "key": "n/hits", "value": 2},
        {"op": "delete", "store": "shop", "key": "doc/gone"},
        {"op": "insert", "store": "shop", "key": "doc/new/deep", "value": "text"},
        put("acct/south/-3", json!({"owner": "", "balance": -1, "open": false, "since": since})),
    ]});
    assert_eq!(node.commit(&more).body["status"], "committed");
    let add = json!({"writes": [{"op": "add", "store": "shop", "key": "n/hits", "value": -50}]});
    assert_eq!(node.commit(&add).body["status"], "committed");
    caught_up(&node, "shop");
    assert_eq!(database.cell("SELECT n FROM counter WHERE key = 'hits'"), "-8");
    assert_eq!(database.cell("SELECT bal FROM account WHERE id = 7 AND owner LIKE 'O''Neill%'"), "12.5");
    tables_equal_the_log(&database, &node);

    let shown = node.get("/v1/stores/shop").body;
    assert_eq!(shown["push"]["durability"], "always", "{shown}");
    for path in ["/v1/stores", "/v1/stores/shop", "/metrics"] {
        let text = node.get(path).body.to_string();
        assert!(!text.contains(database.server.password()), "{path} shows the password");
    }
}

#[test]
fn one_store_of_json_in_the_short_form() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = database.node(dir.path());
    let config = json!({"endpoint": database.endpoint(), "table": "everything"});
    let declared = node.put("/v1/stores/all", &json!({"adaptor": "postgres", "adaptor_config": config}));
    assert_eq!(declared.status, 201, "{}", declared.body);
    assert_eq!(declared.body["transactional"], true);
    for n in 0..300 {
        let key = format!("k{}", n % 50);
        let op = if n > 50 && n % 7 == 3 { "add" } else { "put" };
        let body = json!({"writes": [{"op": op, "store": "all", "key": key, "value": n}]});
        assert_eq!(node.commit(&body).body["status"], "committed");
    }
    caught_up(&node, "all");
    let log = replayed(&node, "all");
    let rows = database.sql("SELECT key, version, value FROM everything ORDER BY key");
    let found: Vec<_> = rows.into_iter().map(|row| row.into_iter().flatten().collect::<Vec<_>>()).collect();
    let expected: Vec<_> = log.iter().map(|(key, row)| vec![key.clone(), row.0.clone(), row.1.to_string()]).collect();
    assert_eq!(found, expected);
}

#[test]
fn new_tables_start_from_the_beginning_and_old_ones_continue() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = database.node(dir.path());
    let write = |n: u64| {
        let body = json!({"writes": [{"op": "put", "store": "shop", "key": format!("k{n}"), "value": n}]});
        assert_eq!(node.commit(&body).body["status"], "committed");
    };
    let count = |table: &str| database.cell(&format!("SELECT count(*) FROM {table}"));
    database.declare(&node, "shop", &json!([{"table": "first"}]));
    (0..10).for_each(write);
    caught_up(&node, "shop");
    database.declare(&node, "shop", &json!([{"table": "second"}]));
    (10..15).for_each(write);
    eventually("the second table", || (database.sql("SELECT to_regclass('second')")[0][0].is_some()).then_some(()));
    caught_up(&node, "shop");
    eventually("all rows", || (count("second") == "15").then_some(()));
    assert_eq!(count("first"), "10");
    database.declare(&node, "shop", &json!([{"table": "first"}]));
    eventually("the rows in between", || (count("first") == "15").then_some(()));
    caught_up(&node, "shop");
    assert_eq!(count("tribunal_watermark"), "2");
}

#[test]
fn a_watermark_of_another_log_is_not_touched() {
    let Some(database) = Database::start() else { return };
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let write = |node: &support::Node, value: i64| {
        let body = json!({"writes": [put("doc/a", json!(value))]});
        assert_eq!(node.commit(&body).body["status"], "committed");
    };
    let node = database.node(old.path());
    database.declare(&node, "shop", &tables());
    (0..3).for_each(|value| write(&node, value));
    caught_up(&node, "shop");
    node.kill();
    // A new log that soon gets longer than the old one: only the id distinguishes them.
    let node = database.node(new.path());
    assert_eq!(node.put("/v1/stores/shop", &json!({})).status, 201);
    (10..20).for_each(|value| write(&node, value));
    database.declare(&node, "shop", &tables());
    let said = stopped(&node, "shop");
    assert!(said.contains("filled by another log") && said.contains("tribunal_watermark"), "{said}");
    assert_eq!(database.cell("SELECT value FROM docs WHERE key = 'a'"), "2");
    node.kill();
    // The old log is still accepted.
    let node = database.node(old.path());
    write(&node, 4);
    caught_up(&node, "shop");
    assert_eq!(database.cell("SELECT value FROM docs WHERE key = 'a'"), "4");
}

#[test]
fn wrong_credentials_are_visible_and_right_ones_fix_it() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = database.node_with(dir.path(), "guessed");
    let secret = database.endpoint().replace("postgres://", "postgres://tribunal:hush@");
    for (endpoint, reason) in [
        (secret.as_str(), "push.credentials"),
        ("127.0.0.1:5432", "postgres://role@host:port/database"),
        ("postgres://db.example/shop", "names no role"),
    ] {
        let config = json!({"endpoint": endpoint, "table": "docs"});
        let refused = node.put("/v1/stores/shop", &json!({"adaptor": "postgres", "adaptor_config": config}));
        let text = refused.body.to_string();
        assert_eq!(refused.status, 422, "{text}");
        assert!(text.contains(reason) && text.contains("/adaptor_config") && !text.contains("hush"), "{text}");
    }
    database.declare(&node, "shop", &tables());
    let body = json!({"writes": [put("doc/a", json!(1))]});
    assert_eq!(node.commit(&body).body["status"], "committed", "commits do not wait for storages");
    let said = in_state(&node, "shop", "backing_off");
    assert!(said.contains("28P01") && !said.contains("guessed"), "{said}");
    let (status, printed) = {
        node.signal("TERM");
        node.ended()
    };
    assert!(status.success() && !printed.contains("guessed"), "{printed}");

    let node = database.node(dir.path());
    caught_up(&node, "shop");
    assert_eq!(database.cell("SELECT value FROM docs WHERE key = 'a'"), "1");
}
