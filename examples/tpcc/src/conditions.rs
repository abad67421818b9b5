//! TPC-C's consistency conditions (clause 3.3.2), as SQL over the tables. Each query counts the violations.
//!
//! All twelve hold with NewOrder and Payment alone; the conditions on deliveries hold because nothing is delivered.

use tokio_postgres::Client;

/// A condition and the query that counts its violations.
pub struct Condition {
    /// Clause 3.3.2.N.
    pub number: u32,
    /// Its text.
    pub says: &'static str,
    /// Query that returns one number.
    pub violations: &'static str,
}

/// All conditions. `$delivered` expands to the number of a district's orders that were delivered at the beginning.
pub const CONDITIONS: &[Condition] = &[
    Condition {
        number: 1,
        says: "a warehouse's sales are the sum of its districts'",
        violations: "SELECT count(*) FROM warehouse_ytd w FULL JOIN \
            (SELECT d_w_id, sum(d_ytd) AS total FROM district_ytd GROUP BY 1) d ON d_w_id = w_id \
            WHERE w_ytd IS DISTINCT FROM total",
    },
    Condition {
        number: 2,
        says: "a district's next order number follows its newest order, which is new",
        violations: "SELECT count(*) FROM district_next \
            LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS newest FROM orders GROUP BY 1, 2) o \
            ON o_w_id = d_w_id AND o_d_id = d_id \
            LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS newest_new FROM new_order GROUP BY 1, 2) n \
            ON no_w_id = d_w_id AND no_d_id = d_id \
            WHERE d_next_o_id - 1 IS DISTINCT FROM newest OR newest IS DISTINCT FROM newest_new",
    },
    Condition {
        number: 3,
        says: "a district's new orders are numbered without a gap",
        violations: "SELECT count(*) FROM (SELECT max(no_o_id) - min(no_o_id) + 1 AS span, count(*) AS orders \
            FROM new_order GROUP BY no_w_id, no_d_id) n WHERE span <> orders",
    },
    Condition {
        number: 4,
        says: "a district has as many order lines as its orders say",
        violations: "SELECT count(*) FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS said FROM orders GROUP BY 1, 2) o \
            FULL JOIN (SELECT ol_w_id, ol_d_id, count(*) AS found FROM order_line GROUP BY 1, 2) l \
            ON ol_w_id = o_w_id AND ol_d_id = o_d_id WHERE said IS DISTINCT FROM found",
    },
    Condition {
        number: 5,
        says: "an order has no carrier exactly while it is new",
        violations: "SELECT count(*) FROM orders FULL JOIN new_order \
            ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id \
            WHERE o_id IS NULL OR (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)",
    },
    Condition {
        number: 6,
        says: "an order has as many lines as it says",
        violations: "SELECT count(*) FROM orders FULL JOIN \
            (SELECT ol_w_id, ol_d_id, ol_o_id, count(*) AS found FROM order_line GROUP BY 1, 2, 3) l \
            ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE o_ol_cnt IS DISTINCT FROM found",
    },
    Condition {
        number: 7,
        says: "a line is delivered exactly if its order has a carrier",
        violations: "SELECT count(*) FROM order_line LEFT JOIN orders \
            ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id \
            WHERE (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
    },
    Condition {
        number: 8,
        says: "a warehouse's sales are the sum of its payments",
        violations: "SELECT count(*) FROM warehouse_ytd FULL JOIN \
            (SELECT h_w_id, sum(h_amount) AS paid FROM history GROUP BY 1) h ON h_w_id = w_id \
            WHERE w_ytd IS DISTINCT FROM paid",
    },
    Condition {
        number: 9,
        says: "a district's sales are the sum of its payments",
        violations: "SELECT count(*) FROM district_ytd FULL JOIN \
            (SELECT h_w_id, h_d_id, sum(h_amount) AS paid FROM history GROUP BY 1, 2) h \
            ON h_w_id = d_w_id AND h_d_id = d_id WHERE d_ytd IS DISTINCT FROM paid",
    },
    Condition {
        number: 10,
        says: "a customer's balance is what was delivered less what was paid",
        violations: "SELECT count(*) FROM customer \
            LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered FROM orders JOIN order_line \
            ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL \
            GROUP BY 1, 2, 3) o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id \
            LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history GROUP BY 1, 2, 3) h \
            ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id \
            WHERE c_balance <> coalesce(delivered, 0) - coalesce(paid, 0)",
    },
    Condition {
        number: 11,
        says: "a district has as many orders that are not new as at the beginning",
        violations: "SELECT count(*) FROM (SELECT o_w_id, o_d_id, count(*) AS orders FROM orders GROUP BY 1, 2) o \
            LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS news FROM new_order GROUP BY 1, 2) n \
            ON no_w_id = o_w_id AND no_d_id = o_d_id WHERE orders - coalesce(news, 0) <> $delivered",
    },
    Condition {
        number: 12,
        says: "a customer's balance and payments are what was delivered",
        violations: "SELECT count(*) FROM customer \
            LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered FROM orders JOIN order_line \
            ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id WHERE ol_delivery_d IS NOT NULL \
            GROUP BY 1, 2, 3) o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id \
            WHERE c_balance + c_ytd_payment <> coalesce(delivered, 0)",
    },
];

/// Returns the number of violations of each condition.
///
/// # Errors
/// If PostgreSQL is unreachable.
pub async fn violations(
    postgres: &Client,
    delivered: i32,
) -> Result<Vec<(&'static Condition, i64)>, tokio_postgres::Error> {
    let mut found = Vec::with_capacity(CONDITIONS.len());
    for condition in CONDITIONS {
        let query = condition.violations.replace("$delivered", &delivered.to_string());
        found.push((condition, postgres.query_one(&query, &[]).await?.try_get(0)?));
    }
    Ok(found)
}
