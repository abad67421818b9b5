//! A database and a log that was restored from a backup: the last record that the database keeps beside its watermark
//! tells whether it has followed the same history.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::database::{Database, caught_up, in_state, stopped};
use crate::support::{Node, eventually};

/// Table of watermarks as created by releases that do not keep the last record.
const FORMER_TABLE: &str = "CREATE TABLE tribunal_watermark (store text NOT NULL, tables text NOT NULL, \
                            log text NOT NULL, lsn bigint NOT NULL, PRIMARY KEY (store, tables))";
const LAST_RECORD: &str = "SELECT last_record FROM tribunal_watermark";

fn commit(node: &Node, keys: impl Iterator<Item = String>) {
    for key in keys {
        let body = json!({"writes": [{"op": "put", "store": "shop", "key": key, "value": 1}]});
        assert_eq!(node.commit(&body).body["status"], "committed");
    }
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    assert!(Command::new("cp").arg("-a").args([from, to]).status().expect("cp runs").success());
}

#[test]
fn a_database_ahead_of_a_restored_log_is_not_written_to_although_the_log_passed_it_unnoticed() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    let (data, saved) = (dir.path().join("data"), dir.path().join("saved"));
    let node = database.node(&data);
    database.declare(&node, "shop", &json!([{"table": "docs"}]));
    commit(&node, (0..10).map(|n| format!("kept{n}")));
    caught_up(&node, "shop");
    assert!(node.stop().success());
    copy(&data, &saved);
    let node = database.node(&data);
    commit(&node, (0..10).map(|n| format!("lost{n}")));
    caught_up(&node, "shop");
    let kept = database.cell(LAST_RECORD);
    assert!(kept.starts_with("20 "), "{kept}");
    assert!(node.stop().success());

    // Clients commit to the restored log before its push may log in.
    copy(&saved, &data);
    let node = database.node_with(&data, "guessed");
    in_state(&node, "shop", "backing_off");
    commit(&node, (0..15).map(|n| format!("new{n}")));
    assert!(node.stop().success());
    let count = "SELECT count(*) || ' ' || count(*) FILTER (WHERE key LIKE 'lost%') FROM docs";
    for _ in 0..2 {
        let node = database.node(&data);
        let error = stopped(&node, "shop");
        assert!(error.contains("applied LSN 20") && error.contains("up to LSN 19 in common"), "{error}");
        assert!(error.contains("Empty it, watermark included"), "{error}");
        assert_eq!((database.cell(count), database.cell(LAST_RECORD)), ("20 10".to_owned(), kept.clone()));
        assert!(node.stop().success());
    }
    database.sql("TRUNCATE docs; DELETE FROM tribunal_watermark");
    let node = database.node(&data);
    caught_up(&node, "shop");
    assert_eq!(database.cell(count), "25 0");
}

/// Creates the watermarks of an earlier release and a table for rows, and the role `clerk`, which owns neither.
fn create_former_tables(database: &Database) {
    database.sql(&format!("CREATE ROLE clerk LOGIN PASSWORD '{}'", database.server.password()));
    database.sql(FORMER_TABLE);
    database
        .sql("CREATE TABLE docs (key text COLLATE \"C\" PRIMARY KEY, value jsonb NOT NULL, version bigint NOT NULL)");
}

#[test]
fn a_role_with_privileges_on_the_other_columns_only_works_without_the_last_record_until_it_gets_them() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    create_former_tables(&database);
    database.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON docs TO clerk");
    let columns = "(store, tables, log, lsn)";
    database.sql(&format!("GRANT SELECT {columns}, INSERT {columns}, UPDATE {columns} ON tribunal_watermark TO clerk"));
    database.sql("GRANT DELETE ON tribunal_watermark TO clerk");
    let mut node = database.node_as(dir.path(), "clerk");
    database.declare(&node, "shop", &json!([{"table": "docs"}]));
    commit(&node, (0..5).map(|n| format!("a{n}")));
    caught_up(&node, "shop");
    // With any one privilege alone as well.
    database.sql("ALTER TABLE tribunal_watermark ADD COLUMN last_record text");
    let grants = ["", "GRANT SELECT (last_record)", "REVOKE SELECT (last_record)", "GRANT UPDATE (last_record)"];
    for (round, grant) in grants.into_iter().enumerate() {
        if let Some((what, _)) = grant.split_once(' ') {
            let whom = if what == "GRANT" { "TO" } else { "FROM" };
            database.sql(&format!("{grant} ON tribunal_watermark {whom} clerk"));
        }
        // With and without a new read of the watermark.
        commit(&node, (0..5).map(|n| format!("b{round}/{n}")));
        caught_up(&node, "shop");
        assert!(node.stop().success());
        node = database.node_as(dir.path(), "clerk");
        commit(&node, (0..5).map(|n| format!("c{round}/{n}")));
        caught_up(&node, "shop");
        assert_eq!(database.sql(LAST_RECORD)[0][0], None, "{grant}");
    }
    database.sql("GRANT SELECT (last_record) ON tribunal_watermark TO clerk");
    commit(&node, (0..5).map(|n| format!("d{n}")));
    caught_up(&node, "shop");
    assert!(database.cell(LAST_RECORD).starts_with("50 "), "{}", database.cell(LAST_RECORD));
    assert!(node.stop().success());
    let node = database.node_as(dir.path(), "clerk");
    commit(&node, (0..5).map(|n| format!("e{n}")));
    caught_up(&node, "shop");
    assert!(database.cell(LAST_RECORD).starts_with("55 "), "{}", database.cell(LAST_RECORD));
    assert_eq!(database.cell("SELECT count(*) FROM docs"), "55");
}

#[test]
fn a_table_of_an_earlier_release_gets_the_column_as_soon_as_possible() {
    let Some(database) = Database::start() else { return };
    let dir = tempfile::tempdir().unwrap();
    create_former_tables(&database);
    database.sql("GRANT SELECT, INSERT, UPDATE, DELETE ON docs, tribunal_watermark TO clerk");
    let columns = "SELECT string_agg(attname, ' ' ORDER BY attnum) FROM pg_attribute \
                   WHERE attrelid = 'tribunal_watermark'::regclass AND attnum > 0";
    // A role that may not add it works without it.
    let node = database.node_as(dir.path(), "clerk");
    database.declare(&node, "shop", &json!([{"table": "docs"}]));
    commit(&node, (0..5).map(|n| format!("a{n}")));
    caught_up(&node, "shop");
    assert_eq!(database.cell(columns), "store tables log lsn");
    assert!(node.stop().success());
    // The owner adds it, and the same connection writes it with the next record.
    let node = database.node(dir.path());
    eventually("the column", || (database.cell(columns) == "store tables log lsn last_record").then_some(()));
    assert_eq!(database.sql(LAST_RECORD)[0][0], None, "it is not known which record moved the watermark");
    commit(&node, (0..5).map(|n| format!("b{n}")));
    caught_up(&node, "shop");
    let kept = database.cell(LAST_RECORD);
    assert!(kept.starts_with("10 "), "{kept}");
    assert!(node.stop().success());
    let node = database.node_as(dir.path(), "clerk");
    commit(&node, (0..5).map(|n| format!("c{n}")));
    caught_up(&node, "shop");
    assert!(database.cell(LAST_RECORD).starts_with("15 "), "the other role writes it as well");
    assert_eq!(database.cell("SELECT count(*) FROM docs"), "15");
}
