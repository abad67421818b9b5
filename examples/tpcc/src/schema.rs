//! TPC-C's nine tables as one store: the mapping of keys to tables, and of fields to columns.
//!
//! Money is in cents and rates are in ten-thousandths, so that sums are exact. Three counters have separate tables
//! (vertical partitioning, clause 1.4): `w_ytd` and `d_ytd` are only ever added to, so payments to one warehouse do not
//! conflict; and a reader of a district's tax does not conflict with a transaction that takes its next order number.

use serde_json::{Value, json};

/// Districts of a warehouse (clause 1.2).
pub const DISTRICTS: i32 = 10;

/// A table of the store.
pub struct Table {
    /// Prefix of its rows' keys.
    pub prefix: &'static str,
    /// Name.
    pub name: &'static str,
    /// Columns of the key, all integers except `h_id`.
    pub key: &'static [&'static str],
    /// Columns of the value with their types, or the single column of a value that is not an object.
    pub value: Columns,
}

/// Columns of a value.
pub enum Columns {
    /// The value is this column.
    Whole(&'static str, &'static str),
    /// The value's fields are these columns; a type that ends in `?` may be absent.
    Fields(&'static [(&'static str, &'static str)]),
}

/// All tables.
pub const TABLES: &[Table] = &[
    Table {
        prefix: "w/",
        name: "warehouse",
        key: &["w_id"],
        value: Columns::Fields(&[("w_name", "text"), ("w_city", "text"), ("w_tax", "integer")]),
    },
    Table { prefix: "wy/", name: "warehouse_ytd", key: &["w_id"], value: Columns::Whole("w_ytd", "bigint") },
    Table {
        prefix: "d/",
        name: "district",
        key: &["d_w_id", "d_id"],
        value: Columns::Fields(&[("d_name", "text"), ("d_city", "text"), ("d_tax", "integer")]),
    },
    Table { prefix: "dy/", name: "district_ytd", key: &["d_w_id", "d_id"], value: Columns::Whole("d_ytd", "bigint") },
    Table {
        prefix: "dn/",
        name: "district_next",
        key: &["d_w_id", "d_id"],
        value: Columns::Whole("d_next_o_id", "integer"),
    },
    Table {
        prefix: "c/",
        name: "customer",
        key: &["c_w_id", "c_d_id", "c_id"],
        value: Columns::Fields(&[
            ("c_first", "text"),
            ("c_last", "text"),
            ("c_credit", "text"),
            ("c_discount", "integer"),
            ("c_balance", "bigint"),
            ("c_ytd_payment", "bigint"),
            ("c_payment_cnt", "integer"),
            ("c_delivery_cnt", "integer"),
            ("c_data", "text"),
        ]),
    },
    Table {
        prefix: "h/",
        name: "history",
        key: &["h_id"],
        value: Columns::Fields(&[
            ("h_c_w_id", "integer"),
            ("h_c_d_id", "integer"),
            ("h_c_id", "integer"),
            ("h_w_id", "integer"),
            ("h_d_id", "integer"),
            ("h_date", "bigint"),
            ("h_amount", "bigint"),
            ("h_data", "text"),
        ]),
    },
    Table {
        prefix: "o/",
        name: "orders",
        key: &["o_w_id", "o_d_id", "o_id"],
        value: Columns::Fields(&[
            ("o_c_id", "integer"),
            ("o_entry_d", "bigint"),
            ("o_carrier_id", "integer?"),
            ("o_ol_cnt", "integer"),
            ("o_all_local", "boolean"),
        ]),
    },
    Table { prefix: "no/", name: "new_order", key: &["no_w_id", "no_d_id", "no_o_id"], value: Columns::Fields(&[]) },
    Table {
        prefix: "ol/",
        name: "order_line",
        key: &["ol_w_id", "ol_d_id", "ol_o_id", "ol_number"],
        value: Columns::Fields(&[
            ("ol_i_id", "integer"),
            ("ol_supply_w_id", "integer"),
            ("ol_delivery_d", "bigint?"),
            ("ol_quantity", "integer"),
            ("ol_amount", "bigint"),
            ("ol_dist_info", "text"),
        ]),
    },
    Table {
        prefix: "i/",
        name: "item",
        key: &["i_id"],
        value: Columns::Fields(&[("i_name", "text"), ("i_price", "bigint"), ("i_data", "text")]),
    },
    Table {
        prefix: "s/",
        name: "stock",
        key: &["s_w_id", "s_i_id"],
        value: Columns::Fields(&[
            ("s_quantity", "integer"),
            ("s_dist", "text"),
            ("s_ytd", "bigint"),
            ("s_order_cnt", "integer"),
            ("s_remote_cnt", "integer"),
            ("s_data", "text"),
        ]),
    },
];

/// Returns the adaptor's configuration for tables in `schema` of the database at `endpoint`.
#[must_use]
pub fn adaptor_config(endpoint: &str, schema: &str) -> Value {
    let tables: Vec<Value> = TABLES.iter().map(|table| table.mapping(schema)).collect();
    json!({"endpoint": endpoint, "watermark": format!("{schema}.tribunal_watermark"), "tables": tables})
}

impl Table {
    fn mapping(&self, schema: &str) -> Value {
        let key: Vec<Value> = self.key.iter().map(|name| json!({"column": name, "type": key_type(name)})).collect();
        let mut mapping = json!({"table": format!("{schema}.{}", self.name), "prefix": self.prefix, "key": key});
        match self.value {
            Columns::Whole(name, kind) => mapping["value"] = json!({"column": name, "type": kind}),
            Columns::Fields(fields) => {
                let fields = fields.iter().map(|(name, kind)| {
                    json!({"field": name, "type": kind.trim_end_matches('?'), "nullable": kind.ends_with('?')})
                });
                mapping["columns"] = fields.collect();
            }
        }
        mapping
    }

    /// Returns SQL that selects every row as the log contains it: key, version, value as JSON without absent fields.
    #[must_use]
    pub fn as_logged(&self) -> String {
        let key = self.key.join(" || '/' || ");
        let value = match self.value {
            Columns::Whole(name, _) => format!("to_jsonb({name})"),
            Columns::Fields(_) => {
                let others = self.key.iter().map(|name| format!(" - '{name}'")).collect::<String>();
                format!("jsonb_strip_nulls(to_jsonb(t) - 'version'{others})")
            }
        };
        format!("SELECT '{}' || {key}, version, {value}::text FROM {} t", self.prefix, self.name)
    }
}

fn key_type(column: &str) -> &'static str {
    if column == "h_id" { "text" } else { "integer" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_names_every_table_in_its_schema() {
        let config = adaptor_config("postgres://h/d", "one");
        let tables = config["tables"].as_array().expect("tables");
        assert_eq!(tables.len(), 12);
        assert!(tables.iter().all(|table| table["table"].as_str().is_some_and(|name| name.starts_with("one."))));
        let orders = tables.iter().find(|table| table["prefix"] == "o/").expect("orders");
        assert_eq!(orders["columns"][2], json!({"field": "o_carrier_id", "type": "integer", "nullable": true}));
    }
}
