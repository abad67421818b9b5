//! Stores that name the same tables, and one store whose tables change: no two stores fill one table, and no `add`
//! counts twice.

use serde_json::{Value, json};

use crate::database::{Database, caught_up, stopped};
use crate::support::{Node, eventually};

fn commit(node: &Node, store: &str, op: &str, key: &str, value: i64) {
    let body = json!({"writes": [{"op": op, "store": store, "key": key, "value": value}]});
    assert_eq!(node.commit(&body).body["status"], "committed");
}

#[test]
fn a_table_is_filled_by_one_store_only() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = database.node(dir.path());
    let rows = json!([{"table": "tribunal_rows"}]);
    database.declare(&node, "a", &rows);
    (0..5).for_each(|n| commit(&node, "a", "put", "k", n));
    caught_up(&node, "a");
    let all = "SELECT string_agg(key || value, ' ' ORDER BY key) FROM tribunal_rows";
    let config = node.get("/v1/stores/a").body["adaptor_config"].clone();
    let equal = node.put("/v1/stores/b", &json!({"adaptor": "postgres", "adaptor_config": config}));
    assert_eq!((equal.status, &equal.body["code"]), (422, &json!("storage_in_use")), "{}", equal.body);
    // The same table under its full name, or among other tables.
    for tables in [
        json!([{"table": "public.tribunal_rows"}]),
        json!([{"table": "more", "prefix": "x"}, {"table": "tribunal_rows"}]),
    ] {
        database.declare(&node, "b", &tables);
        (0..7).for_each(|n| commit(&node, "b", "put", "k", 100 + n));
        let said = stopped(&node, "b");
        assert!(said.contains("filled by another one") && said.contains("store `a`"), "{said}");
        assert!(said.contains("this store (`b` of log"), "it names both: {said}");
        assert_eq!(database.cell(all), "k4", "{tables}");
        assert_eq!(database.cell("SELECT count(*) FROM tribunal_watermark"), "1", "nothing is left of the attempt");
    }
    assert_eq!(database.sql("SELECT to_regclass('more')")[0][0], None);
    commit(&node, "a", "put", "k", 5);
    caught_up(&node, "a");
    database.declare(&node, "b", &json!([{"table": "own"}]));
    eventually("its own table", || database.sql("SELECT to_regclass('own')")[0][0].clone());
    caught_up(&node, "b");
    assert_eq!((database.cell(all).as_str(), database.cell("SELECT value FROM own").as_str()), ("k5", "106"));
    node.kill();

    // A store of another log has another name.
    let other = tempfile::tempdir().unwrap();
    let node = database.node(other.path());
    database.declare(&node, "c", &rows);
    commit(&node, "c", "put", "k", 1);
    let said = stopped(&node, "c");
    assert!(said.contains("store `a`"), "{said}");
    assert_eq!(database.cell(all), "k5");
}

#[test]
fn a_store_of_the_same_name_in_another_namespace_is_another_store() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = database.node(dir.path());
    database.declare(&node, "a", &json!([{"table": "rows"}]));
    (0..3).for_each(|n| commit(&node, "a", "put", &format!("k{n}"), n));
    caught_up(&node, "a");
    node.kill();
    database.sql("UPDATE tribunal_watermark SET log = log || ' a#99'");
    let node = database.node(dir.path());
    commit(&node, "a", "put", "k0", 7);
    let said = stopped(&node, "a");
    assert!(said.contains("the store `a#99` of this log; this one is `a`"), "{said}");
    assert_eq!(database.cell("SELECT value FROM rows WHERE key = 'k0'"), "0");
    // A watermark row with its table among other tables counts as taken, too.
    database.declare(&node, "a", &json!([{"table": "rows"}, {"table": "more", "prefix": "m/"}]));
    let said = eventually("a refusal", || Some(stopped(&node, "a")).filter(|said| said.contains("another one")));
    assert!(said.contains("row of store `a`, tables \"rows\"") && said.contains(" a#99."), "{said}");
}

#[test]
fn adds_count_once_although_the_tables_change_and_change_back() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let node = database.node(dir.path());
    let counter = || json!({"table": "counter", "value": {"column": "n", "type": "bigint"}});
    let declare = |tables: &[Value]| database.declare(&node, "s", &json!(tables));
    let other = json!({"table": "other", "prefix": "o/"});
    let both = [counter(), other];
    let read = || {
        let lsn = database.cell("SELECT string_agg(tables || ' ' || lsn, '; ') FROM tribunal_watermark");
        (database.cell("SELECT n FROM counter WHERE key = 'c'"), lsn)
    };
    declare(&[counter()]);
    commit(&node, "s", "put", "c", 1);
    (0..9).for_each(|_| commit(&node, "s", "add", "c", 1));
    caught_up(&node, "s");
    assert_eq!(read(), ("10".to_owned(), "\"counter\" 10".to_owned()));
    declare(&both);
    (0..10).for_each(|_| commit(&node, "s", "add", "c", 1));
    let wanted = ("20".to_owned(), "\"counter\",\"other\" 20".to_owned());
    eventually("everything in both tables", || (read() == wanted).then_some(()));
    caught_up(&node, "s");
    declare(&[counter()]);
    (0..10).for_each(|_| commit(&node, "s", "add", "c", 1));
    let wanted = ("30".to_owned(), "\"counter\" 30".to_owned());
    eventually("every `add` once", || (read() == wanted).then_some(()));
    caught_up(&node, "s");
    assert_eq!(read(), wanted);
}
