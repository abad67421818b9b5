//! The initial database (clause 4.3.3), committed through Tribunal like everything else.

use serde::Serialize;
use serde_json::json;
use tribunal_client::{Client, IsolationLevel, Outcome, Transaction};

use crate::clock::now_us;
use crate::random::{Random, Sizes, last_name, name_max};
use crate::rows::{Customer, History, Order, OrderLine, Stock, key};
use crate::schema::DISTRICTS;

/// Rows of one transaction.
const ROWS_PER_TXN: usize = 2_000;
/// Initial payments of each customer, in cents.
const FIRST_PAYMENT: i64 = 1_000;

/// Collects rows and commits them in chunks.
struct Loader<'a> {
    client: &'a Client,
    store: &'a str,
    txn: Transaction,
    pending: usize,
    rows: u64,
}

impl Loader<'_> {
    async fn insert(&mut self, key: String, value: &impl Serialize) -> Result<(), String> {
        self.txn.insert(self.store, key, value).map_err(|e| e.to_string())?;
        self.pending += 1;
        self.rows += 1;
        if self.pending >= ROWS_PER_TXN { self.commit().await } else { Ok(()) }
    }

    async fn commit(&mut self) -> Result<(), String> {
        let next = self.client.begin_local(IsolationLevel::Serializable);
        let txn = std::mem::replace(&mut self.txn, next);
        self.pending = 0;
        if txn.is_read_only() {
            return Ok(());
        }
        match txn.commit().await.map_err(|e| e.to_string())? {
            Outcome::Committed(_) => Ok(()),
            Outcome::Aborted(aborted) => Err(format!("loading: {aborted}")),
        }
    }
}

/// Fills an empty store; returns the number of rows.
///
/// # Errors
/// If Tribunal refuses, for which an empty store gives no reason.
pub async fn load(client: &Client, store: &str, sizes: Sizes) -> Result<u64, String> {
    let txn = client.begin_local(IsolationLevel::Serializable);
    let mut loader = Loader { client, store, txn, pending: 0, rows: 0 };
    let mut random = Random::new(42);
    for i in 1..=sizes.items {
        let item = json!({"i_name": random.text(14, 24), "i_price": random.within(100, 10_000), "i_data": random.text(26, 50)});
        loader.insert(key("i/", &[i]), &item).await?;
    }
    for w in 1..=sizes.warehouses {
        warehouse(&mut loader, &mut random, sizes, w).await?;
    }
    loader.commit().await?;
    Ok(loader.rows)
}

async fn warehouse(loader: &mut Loader<'_>, random: &mut Random, sizes: Sizes, w: i32) -> Result<(), String> {
    let place = json!({"w_name": random.text(6, 10), "w_city": random.text(10, 20), "w_tax": random.within(0, 2_000)});
    loader.insert(key("w/", &[w]), &place).await?;
    let paid = FIRST_PAYMENT * i64::from(sizes.customers);
    loader.insert(key("wy/", &[w]), &(paid * i64::from(DISTRICTS))).await?;
    for i in 1..=sizes.items {
        let stock = Stock {
            s_quantity: random.within(10, 100),
            s_dist: random.text(24 * DISTRICTS, 24 * DISTRICTS),
            s_ytd: 0,
            s_order_cnt: 0,
            s_remote_cnt: 0,
            s_data: random.text(26, 50),
        };
        loader.insert(key("s/", &[w, i]), &stock).await?;
    }
    for d in 1..=DISTRICTS {
        let place =
            json!({"d_name": random.text(6, 10), "d_city": random.text(10, 20), "d_tax": random.within(0, 2_000)});
        loader.insert(key("d/", &[w, d]), &place).await?;
        loader.insert(key("dy/", &[w, d]), &paid).await?;
        loader.insert(key("dn/", &[w, d]), &(sizes.customers + 1)).await?;
        for c in 1..=sizes.customers {
            customer(loader, random, sizes, [w, d, c]).await?;
        }
        orders(loader, random, sizes, w, d).await?;
    }
    Ok(())
}

async fn customer(loader: &mut Loader<'_>, random: &mut Random, sizes: Sizes, at: [i32; 3]) -> Result<(), String> {
    let [w, d, c] = at;
    let customer = Customer {
        c_first: random.text(8, 16),
        c_last: last_name((c - 1) % (name_max(sizes) + 1)),
        c_credit: if random.percent(10) { "BC" } else { "GC" }.to_owned(),
        c_discount: random.within(0, 5_000),
        c_balance: -FIRST_PAYMENT,
        c_ytd_payment: FIRST_PAYMENT,
        c_payment_cnt: 1,
        c_delivery_cnt: 0,
        c_data: random.text(300, 500),
    };
    loader.insert(key("c/", &at), &customer).await?;
    let history = History {
        h_c_w_id: w,
        h_c_d_id: d,
        h_c_id: c,
        h_w_id: w,
        h_d_id: d,
        h_date: now_us(),
        h_amount: FIRST_PAYMENT,
        h_data: random.text(12, 24),
    };
    loader.insert(format!("h/first-{w}-{d}-{c}"), &history).await
}

/// Adds one order per customer, in random order; the newest three tenths are not delivered yet.
async fn orders(loader: &mut Loader<'_>, random: &mut Random, sizes: Sizes, w: i32, d: i32) -> Result<(), String> {
    let mut customers: Vec<i32> = (1..=sizes.customers).collect();
    for at in (1..customers.len()).rev() {
        let other = random.within(0, i32::try_from(at).unwrap_or(0));
        customers.swap(at, usize::try_from(other).unwrap_or(0));
    }
    let delivered_max = sizes.customers - sizes.customers * 3 / 10;
    for (o, customer) in (1..).zip(customers) {
        let is_new = o > delivered_max;
        let now = now_us();
        let lines = random.within(5, 15);
        let order = Order {
            o_c_id: customer,
            o_entry_d: now,
            o_carrier_id: (!is_new).then(|| random.within(1, 10)),
            o_ol_cnt: lines,
            o_all_local: true,
        };
        loader.insert(key("o/", &[w, d, o]), &order).await?;
        if is_new {
            loader.insert(key("no/", &[w, d, o]), &json!({})).await?;
        }
        for number in 1..=lines {
            let line = OrderLine {
                ol_i_id: random.within(1, sizes.items),
                ol_supply_w_id: w,
                ol_delivery_d: (!is_new).then_some(now),
                ol_quantity: 5,
                ol_amount: if is_new { i64::from(random.within(1, 999_999)) } else { 0 },
                ol_dist_info: random.text(24, 24),
            };
            loader.insert(key("ol/", &[w, d, o, number]), &line).await?;
        }
    }
    Ok(())
}
