//! One terminal of the engine: NewOrder (clause 2.4) and Payment (clause 2.5). It reads rows with their versions
//! straight from PostgreSQL, buffers its writes, and commits through Tribunal. It never writes to PostgreSQL.
//!
//! Its reads need neither a snapshot nor a lock: every read is checked by version at commit. These two transactions
//! neither add nor rename customers, so the search by last name needs no range.

use futures_util::future::try_join_all;
use tokio::try_join;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client as Postgres, Row, Statement};
use tribunal_client::{Client, IsolationLevel, Outcome, Transaction, Version};

use crate::clock::now_us;
use crate::random::{Random, Sizes};
use crate::rows::{Customer, History, Order, OrderLine, Stock, key};
use crate::schema::DISTRICTS;

/// Maximum characters of `c_data` retained.
const DATA_CHARS_MAX: usize = 500;

/// Why an attempt could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// PostgreSQL could not be read.
    #[error("PostgreSQL: {0}")]
    Postgres(#[from] tokio_postgres::Error),
    /// Tribunal was unreachable.
    #[error("Tribunal: {0}")]
    Tribunal(#[from] tribunal_client::Error),
    /// A required row is missing.
    #[error("PostgreSQL has no row {0}")]
    Missing(String),
}

/// The result of one attempt.
#[derive(Debug)]
pub enum Attempt {
    /// Tribunal's verdict.
    Verdict(Outcome),
    /// The user rolled back, as in one of a hundred new orders: it names an item that does not exist.
    RolledBack,
}

/// The input of a terminal's transaction, reused for retries after an abort.
#[derive(Clone, Debug)]
pub enum Input {
    /// A customer orders.
    NewOrder {
        /// District of the home warehouse.
        district: i32,
        /// Customer of that district.
        customer: i32,
        /// Item, warehouse that supplies it, and pieces.
        lines: Vec<(i32, i32, i32)>,
    },
    /// A customer pays.
    Payment {
        /// District of the home warehouse.
        district: i32,
        /// Warehouse and district of the customer.
        of: (i32, i32),
        /// The customer.
        customer: Who,
        /// Cents.
        amount: i64,
    },
}

/// How a customer is identified.
#[derive(Clone, Debug)]
pub enum Who {
    /// By number.
    Number(i32),
    /// By last name: the middle one of all customers with this name, ordered by first name.
    LastName(String),
}

/// A terminal with a separate connection.
pub struct Terminal {
    tribunal: Client,
    postgres: Postgres,
    sql: Prepared,
    store: String,
    /// Home warehouse.
    warehouse: i32,
}

struct Prepared {
    warehouse: Statement,
    district: Statement,
    next: Statement,
    customer: Statement,
    named: Statement,
    item: Statement,
    stock: Statement,
}

impl Prepared {
    async fn new(postgres: &Postgres) -> Result<Self, tokio_postgres::Error> {
        const CUSTOMER: &str = "SELECT version, c_first, c_last, c_credit, c_discount, c_balance, c_ytd_payment, \
                                c_payment_cnt, c_delivery_cnt, c_data, c_id FROM customer";
        let customer = format!("{CUSTOMER} WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3");
        let named = format!("{CUSTOMER} WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first, c_id");
        let prepare = |text| postgres.prepare(text);
        let (warehouse, district, next, customer, named, item, stock) = try_join!(
            prepare("SELECT version, w_tax, w_name FROM warehouse WHERE w_id = $1"),
            prepare("SELECT version, d_tax, d_name FROM district WHERE d_w_id = $1 AND d_id = $2"),
            prepare("SELECT version, d_next_o_id FROM district_next WHERE d_w_id = $1 AND d_id = $2"),
            prepare(&customer),
            prepare(&named),
            prepare("SELECT version, i_price FROM item WHERE i_id = $1"),
            prepare(
                "SELECT version, s_quantity, s_dist, s_ytd, s_order_cnt, s_remote_cnt, s_data FROM stock \
                 WHERE s_w_id = $1 AND s_i_id = $2"
            ),
        )?;
        Ok(Prepared { warehouse, district, next, customer, named, item, stock })
    }
}

impl Input {
    /// Draws an input from the mix of the two: 45 new orders to 43 payments.
    pub fn draw(random: &mut Random, sizes: Sizes, home: i32) -> Input {
        let district = random.within(1, DISTRICTS);
        if random.within(1, 88) <= 45 {
            new_order(random, sizes, home, district)
        } else {
            payment(random, sizes, home, district)
        }
    }

    /// Returns the transaction's name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Input::NewOrder { .. } => "NewOrder",
            Input::Payment { .. } => "Payment",
        }
    }
}

fn elsewhere(random: &mut Random, sizes: Sizes, home: i32, percent: i32) -> i32 {
    if sizes.warehouses > 1 && random.percent(percent) {
        (home + random.within(0, sizes.warehouses - 2)) % sizes.warehouses + 1
    } else {
        home
    }
}

fn new_order(random: &mut Random, sizes: Sizes, home: i32, district: i32) -> Input {
    let count = random.within(5, 15);
    let mut lines: Vec<(i32, i32, i32)> =
        (0..count).map(|_| (random.item(sizes), elsewhere(random, sizes, home, 1), random.within(1, 10))).collect();
    if let (true, Some(last)) = (random.percent(1), lines.last_mut()) {
        last.0 = sizes.items + 1;
    }
    Input::NewOrder { district, customer: random.customer(sizes), lines }
}

fn payment(random: &mut Random, sizes: Sizes, home: i32, district: i32) -> Input {
    let warehouse = elsewhere(random, sizes, home, 15);
    let of = if warehouse == home { (home, district) } else { (warehouse, random.within(1, DISTRICTS)) };
    let customer =
        if random.percent(60) { Who::LastName(random.last_name(sizes)) } else { Who::Number(random.customer(sizes)) };
    Input::Payment { district, of, customer, amount: random.within(100, 500_000).into() }
}

impl Terminal {
    /// Creates a terminal of a warehouse.
    ///
    /// # Errors
    /// If PostgreSQL does not have the tables.
    pub async fn new(tribunal: Client, postgres: Postgres, store: &str, warehouse: i32) -> Result<Self, Trouble> {
        let sql = Prepared::new(&postgres).await?;
        Ok(Terminal { tribunal, postgres, sql, store: store.to_owned(), warehouse })
    }

    /// Tries a transaction once, on fresh reads.
    ///
    /// # Errors
    /// See [`Trouble`]; an abort is not an error.
    pub async fn attempt(&self, input: &Input) -> Result<Attempt, Trouble> {
        match input {
            Input::NewOrder { district, customer, lines } => self.new_order(*district, *customer, lines).await,
            Input::Payment { district, of, customer, amount } => {
                self.payment(*district, *of, customer, *amount).await.map(Attempt::Verdict)
            }
        }
    }

    async fn new_order(&self, d: i32, c: i32, lines: &[(i32, i32, i32)]) -> Result<Attempt, Trouble> {
        let w = self.warehouse;
        let mut txn = self.tribunal.begin_local(IsolationLevel::Serializable);
        // All queries at once: one round trip to PostgreSQL.
        let wanted: Vec<[i32; 2]> = lines.iter().map(|&(item, supply, _)| [supply, item]).collect();
        let items = try_join_all(lines.iter().map(|(item, ..)| self.maybe(&self.sql.item, vec![item])));
        let stocks = try_join_all(wanted.iter().map(|[supply, item]| self.maybe(&self.sql.stock, vec![supply, item])));
        let (warehouse, district, next, customer, items, stocks) = try_join!(
            self.row(&self.sql.warehouse, "w/", vec![&w]),
            self.row(&self.sql.district, "d/", vec![&w, &d]),
            self.row(&self.sql.next, "dn/", vec![&w, &d]),
            self.row(&self.sql.customer, "c/", vec![&w, &d, &c]),
            items,
            stocks,
        )?;
        for (prefix, numbers, row) in [
            ("w/", &[w][..], &warehouse),
            ("d/", &[w, d], &district),
            ("dn/", &[w, d], &next),
            ("c/", &[w, d, c], &customer),
        ] {
            self.observe(&mut txn, &key(prefix, numbers), row)?;
        }
        let o: i32 = next.try_get(1)?;
        let tax = i64::from(warehouse.try_get::<_, i32>(1)?) + i64::from(district.try_get::<_, i32>(1)?);
        let discount: i32 = customer.try_get(4)?;
        let mut total = 0;
        for ((number, &(item, supply, quantity)), (found, stock)) in (1..).zip(lines).zip(items.iter().zip(&stocks)) {
            let Some(found) = found else {
                // Dropping the transaction rolls it back.
                return Ok(Attempt::RolledBack);
            };
            let stock_key = key("s/", &[supply, item]);
            let row = stock.as_ref().ok_or_else(|| Trouble::Missing(stock_key.clone()))?;
            self.observe(&mut txn, &key("i/", &[item]), found)?;
            self.observe(&mut txn, &stock_key, row)?;
            // An order may contain an item on two lines; the second line continues from the first.
            let stock = sold(self.own_stock(&txn, &stock_key, row)?, quantity, supply != w);
            let amount = found.try_get::<_, i64>(1)? * i64::from(quantity);
            total += amount;
            let from = 24 * usize::try_from(d - 1).unwrap_or(0);
            let line = OrderLine {
                ol_i_id: item,
                ol_supply_w_id: supply,
                ol_delivery_d: None,
                ol_quantity: quantity,
                ol_amount: amount,
                ol_dist_info: stock.s_dist.get(from..from + 24).unwrap_or_default().to_owned(),
            };
            txn.update(&self.store, &stock_key, &stock)?;
            txn.insert(&self.store, key("ol/", &[w, d, o, number]), &line)?;
        }
        // The price that the terminal shows: with taxes, less the discount.
        let _shown = total * (10_000 + tax) * (10_000 - i64::from(discount)) / 100_000_000;
        let order = Order {
            o_c_id: c,
            o_entry_d: now_us(),
            o_carrier_id: None,
            o_ol_cnt: i32::try_from(lines.len()).unwrap_or(i32::MAX),
            o_all_local: lines.iter().all(|line| line.1 == w),
        };
        txn.update(&self.store, key("dn/", &[w, d]), &(o + 1))?;
        txn.insert(&self.store, key("o/", &[w, d, o]), &order)?;
        txn.insert(&self.store, key("no/", &[w, d, o]), &serde_json::json!({}))?;
        Ok(Attempt::Verdict(txn.commit().await?))
    }

    async fn payment(&self, d: i32, of: (i32, i32), who: &Who, amount: i64) -> Result<Outcome, Trouble> {
        let w = self.warehouse;
        let mut txn = self.tribunal.begin_local(IsolationLevel::Serializable);
        let (warehouse, district, found) = try_join!(
            self.row(&self.sql.warehouse, "w/", vec![&w]),
            self.row(&self.sql.district, "d/", vec![&w, &d]),
            self.customer(of, who),
        )?;
        self.observe(&mut txn, &key("w/", &[w]), &warehouse)?;
        self.observe(&mut txn, &key("d/", &[w, d]), &district)?;
        let mut customer = customer_of(&found)?;
        let c: i32 = found.try_get(10)?;
        let customer_key = key("c/", &[of.0, of.1, c]);
        self.observe(&mut txn, &customer_key, &found)?;
        customer.c_balance -= amount;
        customer.c_ytd_payment += amount;
        customer.c_payment_cnt += 1;
        if customer.c_credit == "BC" {
            let data = format!("{c} {} {} {d} {w} {amount} {}", of.1, of.0, customer.c_data);
            customer.c_data = data.chars().take(DATA_CHARS_MAX).collect();
        }
        let history = History {
            h_c_w_id: of.0,
            h_c_d_id: of.1,
            h_c_id: c,
            h_w_id: w,
            h_d_id: d,
            h_date: now_us(),
            h_amount: amount,
            h_data: format!("{}    {}", warehouse.try_get::<_, &str>(2)?, district.try_get::<_, &str>(2)?),
        };
        txn.update(&self.store, &customer_key, &customer)?;
        // Added, not read: payments to one warehouse do not conflict.
        txn.add(&self.store, key("wy/", &[w]), amount)?;
        txn.add(&self.store, key("dy/", &[w, d]), amount)?;
        let history_key = format!("h/{}", txn.id());
        txn.insert(&self.store, history_key, &history)?;
        Ok(txn.commit().await?)
    }

    async fn customer(&self, of: (i32, i32), who: &Who) -> Result<Row, Trouble> {
        match who {
            Who::Number(c) => self.row(&self.sql.customer, "c/", vec![&of.0, &of.1, c]).await,
            Who::LastName(name) => {
                let params: [&(dyn ToSql + Sync); 3] = [&of.0, &of.1, name];
                let mut found = self.postgres.query(&self.sql.named, &params).await?;
                let missing = || Trouble::Missing(format!("c/{}/{} of name {name}", of.0, of.1));
                // The middle one, rounded up (clause 2.5.2.2).
                let at = found.len().checked_sub(1).ok_or_else(missing)? / 2;
                Ok(found.swap_remove(at))
            }
        }
    }

    async fn maybe(&self, statement: &Statement, key: Vec<&i32>) -> Result<Option<Row>, Trouble> {
        let params: Vec<&(dyn ToSql + Sync)> = key.iter().map(|number| *number as &(dyn ToSql + Sync)).collect();
        Ok(self.postgres.query_opt(statement, &params).await?)
    }

    async fn row(&self, statement: &Statement, prefix: &str, key: Vec<&i32>) -> Result<Row, Trouble> {
        let name = || format!("{prefix}{key:?}");
        self.maybe(statement, key.clone()).await?.ok_or_else(|| Trouble::Missing(name()))
    }

    /// Records a read: the row's version, which the adaptor wrote next to it.
    fn observe(&self, txn: &mut Transaction, key: &str, row: &Row) -> Result<(), Trouble> {
        let bits: i64 = row.try_get(0)?;
        let version = u64::try_from(bits).ok().and_then(Version::from_bits);
        let version = version.ok_or_else(|| Trouble::Missing(format!("{key} with a version; it has {bits}")))?;
        txn.observe(&self.store, key, Some(version));
        Ok(())
    }

    fn own_stock(&self, txn: &Transaction, key: &str, row: &Row) -> Result<Stock, Trouble> {
        let mut stock = Stock {
            s_quantity: row.try_get(1)?,
            s_dist: row.try_get(2)?,
            s_ytd: row.try_get(3)?,
            s_order_cnt: row.try_get(4)?,
            s_remote_cnt: row.try_get(5)?,
            s_data: row.try_get(6)?,
        };
        if let Some(Some(own)) = txn.own_write(&self.store, key)? {
            let number = |field: &str| own[field].as_i64().unwrap_or_default();
            let small = |field: &str| i32::try_from(number(field)).unwrap_or_default();
            stock.s_quantity = small("s_quantity");
            stock.s_ytd = number("s_ytd");
            stock.s_order_cnt = small("s_order_cnt");
            stock.s_remote_cnt = small("s_remote_cnt");
        }
        Ok(stock)
    }
}

fn sold(mut stock: Stock, quantity: i32, remote: bool) -> Stock {
    stock.s_quantity -= quantity;
    if stock.s_quantity < 10 {
        stock.s_quantity += 91;
    }
    stock.s_ytd += i64::from(quantity);
    stock.s_order_cnt += 1;
    stock.s_remote_cnt += i32::from(remote);
    stock
}

fn customer_of(row: &Row) -> Result<Customer, Trouble> {
    Ok(Customer {
        c_first: row.try_get(1)?,
        c_last: row.try_get(2)?,
        c_credit: row.try_get(3)?,
        c_discount: row.try_get(4)?,
        c_balance: row.try_get(5)?,
        c_ytd_payment: row.try_get(6)?,
        c_payment_cnt: row.try_get(7)?,
        c_delivery_cnt: row.try_get(8)?,
        c_data: row.try_get(9)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stock_is_refilled_below_ten() {
        let stock = |s_quantity| Stock {
            s_quantity,
            s_dist: String::new(),
            s_ytd: 0,
            s_order_cnt: 0,
            s_remote_cnt: 0,
            s_data: String::new(),
        };
        assert_eq!(sold(stock(20), 10, false).s_quantity, 10);
        let low = sold(stock(20), 11, true);
        assert_eq!((low.s_quantity, low.s_ytd, low.s_order_cnt, low.s_remote_cnt), (100, 11, 1, 1));
    }

    #[test]
    fn the_mix_is_of_both_and_stays_within_the_database() {
        let sizes = Sizes { warehouses: 3, items: 20, customers: 10 };
        let mut random = Random::new(1);
        let (mut orders, mut invalid, mut remote) = (0, 0, 0);
        for _ in 0..20_000 {
            match Input::draw(&mut random, sizes, 2) {
                Input::NewOrder { district, customer, lines } => {
                    orders += 1;
                    assert!((1..=10).contains(&district) && (1..=10).contains(&customer));
                    assert!((5..=15).contains(&lines.len()));
                    assert!(lines.iter().all(|line| (1..=21).contains(&line.0) && (1..=3).contains(&line.1)));
                    invalid += i32::from(lines.iter().any(|line| line.0 == 21));
                }
                Input::Payment { of, .. } => remote += i32::from(of.0 != 2),
            }
        }
        assert!((9_700..10_800).contains(&orders), "{orders} of 20,000 where 45 of 88 are due");
        assert!((50..200).contains(&invalid) && (1_100..1_900).contains(&remote), "{invalid} {remote}");
    }
}
