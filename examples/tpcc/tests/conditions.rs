//! Each consistency condition is checked by its query: violations are planted in a real PostgreSQL, one at a time.

use tribunal_tpcc::conditions::violations;
use tribunal_tpcc::schema::{Columns, TABLES};
use tribunal_tpcc::{Database, PostgresServer, conditions::CONDITIONS};

/// Returns SQL that creates the tables, without types that do not matter here.
fn create() -> String {
    let mut sql = String::new();
    for table in TABLES {
        let keys = table.key.iter().map(|&name| (name, if name == "h_id" { "text" } else { "integer" }));
        let values: Vec<(&str, &str)> = match table.value {
            Columns::Whole(name, kind) => vec![(name, kind)],
            Columns::Fields(fields) => fields.iter().map(|(name, kind)| (*name, kind.trim_end_matches('?'))).collect(),
        };
        let columns: Vec<_> = keys.chain(values).map(|(name, kind)| format!("{name} {kind}")).collect();
        sql += &format!("CREATE TABLE {} ({}, version bigint);", table.name, columns.join(", "));
    }
    sql
}

/// One warehouse, one district, two customers; order 1 delivered, orders 2 and 3 new.
const CONSISTENT: &str = "
    INSERT INTO warehouse_ytd VALUES (1, 30);
    INSERT INTO district_ytd VALUES (1, 1, 30);
    INSERT INTO district_next VALUES (1, 1, 4);
    INSERT INTO customer (c_w_id, c_d_id, c_id, c_balance, c_ytd_payment) VALUES (1, 1, 1, 50 - 10, 10), (1, 1, 2, -20, 20);
    INSERT INTO history (h_id, h_c_w_id, h_c_d_id, h_c_id, h_w_id, h_d_id, h_amount)
        VALUES ('a', 1, 1, 1, 1, 1, 10), ('b', 1, 1, 2, 1, 1, 20);
    INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_carrier_id, o_ol_cnt)
        VALUES (1, 1, 1, 1, 7, 2), (1, 1, 2, 2, NULL, 1), (1, 1, 3, 1, NULL, 1);
    INSERT INTO new_order VALUES (1, 1, 2), (1, 1, 3);
    INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_delivery_d, ol_amount)
        VALUES (1, 1, 1, 1, 5, 20), (1, 1, 1, 2, 5, 30), (1, 1, 2, 1, NULL, 9), (1, 1, 3, 1, NULL, 8);";

/// A statement that plants a violation, and the violated conditions.
const PLANTED: &[(&str, &[u32])] = &[
    ("UPDATE warehouse_ytd SET w_ytd = 31", &[1, 8]),
    ("UPDATE district_ytd SET d_ytd = 29", &[1, 9]),
    ("DELETE FROM district_ytd", &[1, 9]),
    ("UPDATE district_next SET d_next_o_id = 5", &[2]),
    ("DELETE FROM new_order WHERE no_o_id = 3", &[2, 5, 11]),
    ("UPDATE new_order SET no_o_id = 0 WHERE no_o_id = 2", &[3, 5]),
    ("UPDATE orders SET o_ol_cnt = 2 WHERE o_id = 2", &[4, 6]),
    ("UPDATE orders SET o_ol_cnt = 3 - o_ol_cnt WHERE o_id < 3", &[6]),
    ("DELETE FROM order_line WHERE ol_o_id = 3", &[4, 6]),
    ("UPDATE orders SET o_carrier_id = 1 WHERE o_id = 2", &[5, 7]),
    ("UPDATE order_line SET ol_delivery_d = NULL WHERE ol_o_id = 1", &[7, 10, 12]),
    ("UPDATE history SET h_amount = h_amount + 1 WHERE h_id = 'a'", &[8, 9, 10]),
    ("UPDATE history SET h_c_id = 2", &[10]),
    ("UPDATE customer SET c_balance = c_balance - 1, c_ytd_payment = c_ytd_payment + 1 WHERE c_id = 1", &[10]),
    ("UPDATE customer SET c_ytd_payment = 0 WHERE c_id = 2", &[12]),
    ("INSERT INTO orders (o_w_id, o_d_id, o_id, o_carrier_id, o_ol_cnt) VALUES (1, 1, 0, 1, 0)", &[6, 11]),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_condition_detects_its_violation() {
    let server = match PostgresServer::start(&[]) {
        Ok(server) => server,
        Err(text) if text.contains("is not installed") => return println!("SKIPPED: {text}"),
        Err(text) => panic!("{text}"),
    };
    let database: Database = server.url().parse().expect("an address");
    let client = database.connect("public").await.expect("it is up");
    client.batch_execute(&(create() + CONSISTENT)).await.expect("the tables");
    let violated = async || -> Vec<u32> {
        let found = violations(&client, 1).await.expect("the queries");
        found.into_iter().filter(|(_, count)| *count > 0).map(|(condition, _)| condition.number).collect()
    };
    assert_eq!(violated().await, [0_u32; 0]);
    let mut seen = std::collections::BTreeSet::new();
    for (planted, expected) in PLANTED {
        client.batch_execute("BEGIN").await.expect("a transaction");
        client.batch_execute(planted).await.expect(planted);
        assert_eq!(violated().await, *expected, "{planted}");
        client.batch_execute("ROLLBACK").await.expect("undone");
        seen.extend(expected.iter().copied());
    }
    assert_eq!(seen.len(), CONDITIONS.len(), "every condition was violated once");
}
