//! Rows that do not fit their table, and a database that returns errors: the push stops or waits, and reports the
//! record and the reason; nothing of that record or of later ones is applied.

use serde_json::{Value, json};

use crate::database::{Database, caught_up, in_state, stopped};
use crate::support::{Node, eventually};
use crate::{put, tables, tables_equal_the_log};

fn commit(node: &Node, writes: &[Value]) {
    let verdict = node.commit(&json!({"writes": writes})).body;
    assert_eq!(verdict["status"], "committed", "{verdict}");
}

#[test]
fn a_record_that_does_not_fit_is_named_and_not_skipped() {
    let Some(database) = Database::start() else { return };
    let account = |more: Value| {
        let mut account = json!({"owner": "x", "balance": 1, "open": true});
        let fields = more.as_object().expect("an object").clone();
        account.as_object_mut().expect("an object").extend(fields);
        account
    };
    let nul = "\u{0}";
    let faults = [
        ("acct/n/2", json!({"owner": "x", "open": true}), "field `balance` is missing"),
        ("acct/n/2", account(json!({"colour": "red"})), "field `colour` has no column"),
        ("acct/n/2", account(json!({"balance": "12"})), "a string where the column takes numeric"),
        ("acct/n/2", account(json!({"since": "no time"})), "22007"),
        ("acct/n/2", account(json!({"since": "10:00 today"})), "`today` is another timestamptz"),
        ("acct/n/2", json!(5), "takes the fields of an object"),
        ("acct/n/02", account(json!({})), "no bigint in plain decimal digits"),
        ("acct/n", account(json!({})), "fewer parts than the 2 key columns"),
        ("acct/n/2", account(json!({"owner": nul})), "U+0000"),
        ("doc/nul", json!(nul), "U+0000"),
        ("n/big", json!(9223372036854775808_u64), "is no integer from"),
        ("elsewhere", json!(1), "no table has a prefix"),
    ];
    for (key, value, reason) in faults {
        let dir = tempfile::tempdir().unwrap();
        let node = database.node(dir.path());
        database.sql("DROP TABLE IF EXISTS docs, account, counter, tribunal_watermark");
        database.declare(&node, "shop", &tables());
        commit(&node, &[put("doc/before", json!(1))]);
        commit(&node, &[put("doc/with", json!(1)), put(key, value)]);
        commit(&node, &[put("doc/after", json!(1))]);
        let said = stopped(&node, "shop");
        assert!(said.contains("LSN 2 ") && said.contains(reason), "{key}: {said}");
        // The acknowledgement is reported through the sequencer, the stop is not.
        let status = eventually("the acknowledgement of what fits", || {
            Some(node.get("/v1/stores/shop").body).filter(|status| status["acked_lsn"] == "1")
        });
        assert_eq!(status["head_lsn"], "3", "{status}");
        assert_eq!(database.cell("SELECT string_agg(key, ' ') FROM docs"), "before", "{key}");
        assert_eq!(database.cell("SELECT lsn FROM tribunal_watermark"), "1", "{key}");
    }
}

#[test]
fn a_key_that_no_index_takes_is_explained() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = database.node(dir.path());
    database.declare(&node, "shop", &json!([{"table": "docs"}]));
    // Compressible keys fit, others do not.
    commit(&node, &[put(&"k".repeat(10_000), json!(1))]);
    caught_up(&node, "shop");
    let mut state = 1_u64;
    let key = (0..3000).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'!' + (state >> 33) as u8 % 90)
    });
    let key: String = key.collect();
    commit(&node, &[put(&key, json!(1))]);
    let said = stopped(&node, "shop");
    assert!(said.contains("LSN 2 ") && said.contains("54000") && said.contains("at most 2704 bytes"), "{said}");
}

#[test]
fn adding_the_column_lets_the_record_pass() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = database.node(dir.path());
    let table = |columns: Value| json!([{"table": "account", "prefix": "acct/", "columns": columns}]);
    let narrow = json!([{"field": "owner", "type": "text"}]);
    let wide = json!([{"field": "owner", "type": "text"}, {"field": "limit", "column": "lim", "type": "integer", "nullable": true}]);
    database.declare(&node, "shop", &table(narrow));
    commit(&node, &[put("acct/1", json!({"owner": "a"}))]);
    commit(&node, &[put("acct/2", json!({"owner": "b", "limit": 7}))]);
    let said = stopped(&node, "shop");
    assert!(said.contains("field `limit` has no column"), "{said}");
    database.declare(&node, "shop", &table(wide.clone()));
    let said =
        eventually("the database's own complaint", || Some(stopped(&node, "shop")).filter(|s| s.contains("42703")));
    assert!(said.contains("LSN 2 ") && said.contains("does not fit the store's declaration"), "{said}");
    database.sql("ALTER TABLE account ADD COLUMN lim integer");
    // Repeating the same declaration does not restart the push; restarting the node does.
    node.kill();
    let node = database.node(dir.path());
    caught_up(&node, "shop");
    let rows = database.sql("SELECT key, owner, lim FROM account ORDER BY key");
    let cell = |text: &str| Some(text.to_owned());
    assert_eq!(rows, [vec![cell("1"), cell("a"), None], vec![cell("2"), cell("b"), cell("7")]]);
}

/// A trigger that raises any SQLSTATE that a test writes into the table `trouble`.
const TROUBLE: &str = "CREATE TABLE trouble (state text);
    CREATE FUNCTION in_trouble() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE s text; BEGIN SELECT state INTO s FROM trouble;
    IF s IS NOT NULL THEN RAISE EXCEPTION 'planted' USING ERRCODE = s; END IF; RETURN NULL; END $$;
    CREATE TRIGGER trouble BEFORE INSERT OR DELETE ON docs FOR EACH STATEMENT EXECUTE FUNCTION in_trouble();";

#[test]
fn temporary_errors_are_retried_and_permanent_ones_are_named() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = database.node(dir.path());
    database.declare(&node, "shop", &tables());
    commit(&node, &[put("doc/a", json!(0)), put("n/x", json!(0))]);
    caught_up(&node, "shop");
    database.sql(TROUBLE);
    // A full disk, a deadlock, a serialization failure, a cancelled statement, no more connections.
    for (n, state) in (2..).zip(["53100", "40P01", "40001", "57014", "53300"]) {
        database.sql(&format!("INSERT INTO trouble VALUES ('{state}')"));
        let add = json!({"op": "add", "store": "shop", "key": "n/x", "value": 1});
        commit(&node, &[put("doc/a", json!(n)), add]);
        let said = in_state(&node, "shop", "backing_off");
        assert!(said.contains(state) && said.contains("planted"), "{said}");
        assert!(node.get("/v1/stores/shop").body["push"]["lag_ms"] != "0");
        database.sql("DELETE FROM trouble");
        caught_up(&node, "shop");
        assert_eq!(database.cell("SELECT value FROM docs"), n.to_string());
    }
    tables_equal_the_log(&database, &node);

    database.sql("CREATE UNIQUE INDEX only_one ON docs ((value->>'mail'))");
    commit(&node, &[put("doc/p", json!({"mail": "x@y"}))]);
    commit(&node, &[put("doc/q", json!({"mail": "x@y"}))]);
    let said = stopped(&node, "shop");
    assert!(said.contains("LSN 8 ") && said.contains("23505") && said.contains("only_one"), "{said}");
    database.sql("DROP INDEX only_one");
    node.kill();
    let node = database.node(dir.path());
    caught_up(&node, "shop");
    tables_equal_the_log(&database, &node);

    database.sql("DELETE FROM counter");
    commit(&node, &[json!({"op": "add", "store": "shop", "key": "n/x", "value": 1})]);
    let said = stopped(&node, "shop");
    assert!(said.contains("LSN 9 ") && said.contains("row n/x is missing"), "{said}");
    database.sql("DROP TABLE counter");
    node.kill();
    let node = database.node(dir.path());
    let said = stopped(&node, "shop");
    assert!(said.contains("42P01") && said.contains("bring the table back"), "an empty one would hide a loss: {said}");
    // As documented: without its watermark row, everything is pushed again.
    database.sql("DELETE FROM tribunal_watermark");
    node.kill();
    let node = database.node(dir.path());
    caught_up(&node, "shop");
    tables_equal_the_log(&database, &node);
}

#[test]
fn a_role_that_may_not_create_tables_is_told_what_to_run() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    database.sql(&format!("CREATE ROLE clerk LOGIN PASSWORD '{}'", database.server.password()));
    let node = database.node_as(dir.path(), "clerk");
    database.declare(&node, "shop", &json!([{"table": "ledger"}]));
    let said = stopped(&node, "shop");
    let ddl = said.split_once("on these tables: ").unwrap_or_else(|| panic!("no statements: {said}")).1;
    database.sql(ddl);
    database.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON ledger, tribunal_watermark TO clerk");
    commit(&node, &[json!({"op": "put", "store": "shop", "key": "k", "value": 1})]);
    node.kill();
    let node = database.node_as(dir.path(), "clerk");
    caught_up(&node, "shop");
    assert_eq!(database.cell("SELECT value FROM ledger"), "1");
}
