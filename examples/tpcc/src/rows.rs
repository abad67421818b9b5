//! Values of the rows that are read and changed, as in their JSON, and the keys of all rows.

use serde::Serialize;

/// A customer.
#[derive(Clone, Debug, Serialize)]
pub struct Customer {
    /// First name.
    pub c_first: String,
    /// Last name.
    pub c_last: String,
    /// `GC` or `BC`.
    pub c_credit: String,
    /// Ten-thousandths.
    pub c_discount: i32,
    /// Cents.
    pub c_balance: i64,
    /// Cents.
    pub c_ytd_payment: i64,
    /// Payments.
    pub c_payment_cnt: i32,
    /// Deliveries.
    pub c_delivery_cnt: i32,
    /// Notes on a customer of bad credit.
    pub c_data: String,
}

/// A payment.
#[derive(Clone, Debug, Serialize)]
pub struct History {
    /// The payer's warehouse.
    pub h_c_w_id: i32,
    /// The payer's district.
    pub h_c_d_id: i32,
    /// The paying customer.
    pub h_c_id: i32,
    /// The payee's warehouse.
    pub h_w_id: i32,
    /// The payee's district.
    pub h_d_id: i32,
    /// Microseconds since 1970.
    pub h_date: i64,
    /// Cents.
    pub h_amount: i64,
    /// Names of both.
    pub h_data: String,
}

/// An order.
#[derive(Clone, Debug, Serialize)]
pub struct Order {
    /// Customer.
    pub o_c_id: i32,
    /// Microseconds since 1970.
    pub o_entry_d: i64,
    /// Absent while the order is new.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub o_carrier_id: Option<i32>,
    /// Lines.
    pub o_ol_cnt: i32,
    /// Whether every line is supplied by the home warehouse.
    pub o_all_local: bool,
}

/// A line of an order.
#[derive(Clone, Debug, Serialize)]
pub struct OrderLine {
    /// Item.
    pub ol_i_id: i32,
    /// Warehouse that supplies it.
    pub ol_supply_w_id: i32,
    /// Microseconds since 1970; absent until it is delivered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ol_delivery_d: Option<i64>,
    /// Pieces.
    pub ol_quantity: i32,
    /// Cents.
    pub ol_amount: i64,
    /// The district's information on the stock.
    pub ol_dist_info: String,
}

/// Stock of an item in a warehouse.
#[derive(Clone, Debug, Serialize)]
pub struct Stock {
    /// Pieces.
    pub s_quantity: i32,
    /// 24 characters for each district.
    pub s_dist: String,
    /// Pieces sold.
    pub s_ytd: i64,
    /// Orders.
    pub s_order_cnt: i32,
    /// Orders from other warehouses.
    pub s_remote_cnt: i32,
    /// Anything.
    pub s_data: String,
}

/// Builds a row's key from its table's prefix and its numbers.
#[must_use]
pub fn key(prefix: &str, numbers: &[i32]) -> String {
    let mut key = prefix.to_owned();
    for (at, number) in numbers.iter().enumerate() {
        if at > 0 {
            key.push('/');
        }
        key.push_str(&number.to_string());
    }
    key
}
