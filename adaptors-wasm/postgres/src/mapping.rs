//! The store's configuration: the mapping of rows to tables, and of JSON fields to columns.

use serde::Deserialize;
use serde::de::IgnoredAny;
use tribunal_plugin_sdk::{Fault, config};

use crate::column::Type;

/// The table of a configuration that names none.
const TABLE: &str = "tribunal_rows";
/// Maximum tables of one store.
const TABLES_MAX: usize = 64;
/// Maximum columns of one table.
const COLUMNS_MAX: usize = 256;
/// Maximum bytes of a name; PostgreSQL truncates longer ones.
const NAME_BYTES_MAX: usize = 63;

/// The validated configuration.
#[derive(Debug)]
pub(crate) struct Mapping {
    /// Longest prefix first.
    pub tables: Vec<Table>,
    /// Quoted name of the watermark table.
    pub watermark: String,
    /// Names of all tables, sorted: the tables that the watermark covers.
    pub table_names: String,
    /// The store.
    pub store: String,
    /// The log that fills the tables.
    pub log: String,
    /// Name and number of a store outside the first namespace: names are unique within a namespace, numbers within the
    /// log.
    pub owner: Option<String>,
}

impl Mapping {
    /// Returns the value of the column `log` in the watermark's row.
    pub(crate) fn mark(&self) -> String {
        self.owner.as_ref().map_or_else(|| self.log.clone(), |owner| format!("{} {owner}", self.log))
    }
}

/// One table.
#[derive(Debug)]
pub(crate) struct Table {
    /// Prefix of its rows' keys.
    pub prefix: String,
    /// Quoted name.
    pub name: String,
    /// Columns of the key, in its order.
    pub key: Vec<Column>,
    /// Columns of the value.
    pub value: Value,
    /// Quoted name of the row version column.
    pub version: String,
}

impl Table {
    /// Returns whether `add` applies to the table's rows: the whole value is one integer column.
    pub(crate) fn takes_add(&self) -> bool {
        matches!(&self.value, Value::Whole(column) if column.kind.takes_add())
    }
}

/// How a value is stored in columns.
#[derive(Debug)]
pub(crate) enum Value {
    /// The whole value in one column.
    Whole(Column),
    /// An object, each field in one column.
    Fields(Vec<Column>),
}

/// A column.
#[derive(Debug)]
pub(crate) struct Column {
    /// Field of the value.
    pub field: String,
    /// Quoted name.
    pub name: String,
    pub kind: Type,
    pub nullable: bool,
}

impl Value {
    pub(crate) fn columns(&self) -> &[Column] {
        match self {
            Value::Whole(column) => std::slice::from_ref(column),
            Value::Fields(columns) => columns,
        }
    }
}

/// The configuration as written. The host reads `endpoint` and adds `store`, `store_id` and `log`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, rename = "endpoint")]
    _endpoint: IgnoredAny,
    #[serde(default)]
    store: String,
    #[serde(default)]
    store_id: Option<u64>,
    #[serde(default)]
    log: String,
    table: Option<String>,
    tables: Option<Vec<WrittenTable>>,
    watermark: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTable {
    table: String,
    #[serde(default)]
    prefix: String,
    key: Option<Vec<WrittenKey>>,
    value: Option<WrittenWhole>,
    columns: Option<Vec<WrittenField>>,
    version: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKey {
    column: String,
    #[serde(rename = "type")]
    kind: Type,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenWhole {
    column: String,
    #[serde(rename = "type")]
    kind: Type,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenField {
    field: String,
    column: Option<String>,
    #[serde(rename = "type")]
    kind: Type,
    #[serde(default)]
    nullable: bool,
}

impl Mapping {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        let written: Written = config::parse(text)?;
        let tables = match (written.table, written.tables) {
            (Some(_), Some(_)) => return Err(wrong("`table` and `tables` exclude each other")),
            (Some(table), None) => vec![json_table(table)],
            (None, Some(tables)) => tables,
            (None, None) => vec![json_table(TABLE.to_owned())],
        };
        if tables.is_empty() || tables.len() > TABLES_MAX {
            return Err(wrong(&format!("`tables` must name 1 to {TABLES_MAX} tables")));
        }
        let mut tables = tables.into_iter().map(Table::of).collect::<Result<Vec<_>, _>>()?;
        tables.sort_by(|a, b| b.prefix.len().cmp(&a.prefix.len()).then_with(|| a.prefix.cmp(&b.prefix)));
        let mut names: Vec<&str> = tables.iter().map(|table| table.name.as_str()).collect();
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(wrong("a table is named twice: rows of two prefixes would meet"));
        }
        if tables.windows(2).any(|pair| pair[0].prefix == pair[1].prefix) {
            return Err(wrong("two tables have the same `prefix`"));
        }
        let table_names = names.join(",");
        let watermark = quoted_table(written.watermark.as_deref().unwrap_or("tribunal_watermark"))?;
        if tables.iter().any(|table| table.name == watermark) {
            return Err(wrong("the table of watermarks cannot hold rows"));
        }
        let owner = written.store_id.map(|number| format!("{}#{number}", written.store));
        Ok(Mapping { tables, watermark, table_names, store: written.store, log: written.log, owner })
    }
}

/// Returns the table of the short form: key, value as JSON, version.
fn json_table(table: String) -> WrittenTable {
    WrittenTable { table, prefix: String::new(), key: None, value: None, columns: None, version: None }
}

impl Table {
    fn of(written: WrittenTable) -> Result<Self, Fault> {
        let name = quoted_table(&written.table)?;
        let column = |field: String, column: &str, kind, nullable| {
            Ok::<_, Fault>(Column { field, name: quoted(column)?, kind, nullable })
        };
        let key = match written.key {
            None => vec![column(String::new(), "key", Type::Text, false)?],
            Some(parts) if parts.is_empty() => return Err(wrong(&format!("{name}: `key` names no column"))),
            Some(parts) => parts
                .into_iter()
                .map(|part| column(String::new(), &part.column, part.kind, false))
                .collect::<Result<_, _>>()?,
        };
        if let Some(part) = key.iter().find(|part| !part.kind.is_key()) {
            return Err(wrong(&format!("{name}: a key column is text or an integer, not {}", part.kind.sql())));
        }
        let value = match (written.value, written.columns) {
            (Some(_), Some(_)) => return Err(wrong(&format!("{name}: `value` and `columns` exclude each other"))),
            (None, None) => Value::Whole(column(String::new(), "value", Type::Jsonb, false)?),
            (Some(whole), None) => Value::Whole(column(String::new(), &whole.column, whole.kind, false)?),
            (None, Some(fields)) => {
                let fields = fields.into_iter().map(|f| {
                    let name = f.column.unwrap_or_else(|| f.field.clone());
                    column(f.field, &name, f.kind, f.nullable)
                });
                Value::Fields(fields.collect::<Result<_, _>>()?)
            }
        };
        let version = quoted(written.version.as_deref().unwrap_or("version"))?;
        let table = Table { prefix: written.prefix, name, key, value, version };
        table.check()?;
        Ok(table)
    }

    fn check(&self) -> Result<(), Fault> {
        let columns = || self.key.iter().chain(self.value.columns());
        let mut names: Vec<&str> = columns().map(|column| column.name.as_str()).collect();
        names.push(&self.version);
        names.sort_unstable();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(wrong(&format!("{}: a column is named twice", self.name)));
        }
        if names.len() > COLUMNS_MAX {
            return Err(wrong(&format!("{}: more than {COLUMNS_MAX} columns", self.name)));
        }
        let mut fields: Vec<&str> = match &self.value {
            Value::Whole(_) => Vec::new(),
            Value::Fields(columns) => columns.iter().map(|column| column.field.as_str()).collect(),
        };
        fields.sort_unstable();
        if fields.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(wrong(&format!("{}: a field has two columns", self.name)));
        }
        Ok(())
    }
}

/// Quotes the name of a table, `table` or `schema.table`.
fn quoted_table(name: &str) -> Result<String, Fault> {
    match name.split_once('.') {
        None => quoted(name),
        Some((schema, table)) => Ok(format!("{}.{}", quoted(schema)?, quoted(table)?)),
    }
}

/// Quotes a name. Only plain names are accepted, so that no text of a configuration can end the quotes.
fn quoted(name: &str) -> Result<String, Fault> {
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if starts && name.len() <= NAME_BYTES_MAX && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Ok(format!("\"{name}\""));
    }
    Err(wrong(&format!(
        "`{}` is no name: letters, digits and `_`, not a digit first, at most {NAME_BYTES_MAX} bytes",
        crate::column::shown(name)
    )))
}

fn wrong(text: &str) -> Fault {
    format!("configuration: {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_form_is_one_table_of_json() {
        let mapping = Mapping::parse(r#"{"endpoint": "postgres://h/d", "table": "shop.rows"}"#).expect("a mapping");
        let table = &mapping.tables[0];
        assert_eq!((table.name.as_str(), table.key[0].name.as_str()), (r#""shop"."rows""#, r#""key""#));
        assert!(matches!(&table.value, Value::Whole(column) if column.kind == Type::Jsonb));
    }

    #[test]
    fn the_longest_prefix_comes_first_and_invalid_mappings_are_rejected() {
        let tables =
            r#"{"tables": [{"table": "a", "prefix": "a/"}, {"table": "b", "prefix": "a/b/"}, {"table": "c"}]}"#;
        let mapping = Mapping::parse(tables).expect("a mapping");
        assert_eq!(mapping.tables.iter().map(|t| t.prefix.as_str()).collect::<Vec<_>>(), ["a/b/", "a/", ""]);
        for (text, reason) in [
            (r#"{"table": "a", "tables": []}"#, "exclude each other"),
            (r#"{"table": "a\"; DROP TABLE b; --"}"#, "is no name"),
            (r#"{"table": "tribunal_watermark"}"#, "cannot hold rows"),
            (r#"{"tables": [{"table": "a"}, {"table": "a", "prefix": "x"}]}"#, "named twice"),
            (r#"{"tables": [{"table": "a"}, {"table": "b"}]}"#, "the same `prefix`"),
            (r#"{"tables": [{"table": "a", "key": []}]}"#, "names no column"),
            (r#"{"tables": [{"table": "a", "key": [{"column": "k", "type": "jsonb"}]}]}"#, "text or an integer"),
            (r#"{"tables": [{"table": "a", "value": {"column": "key", "type": "text"}}]}"#, "a column is named twice"),
            (r#"{"tables": [{"table": "a", "columns": [{"field": "f", "type": "money"}]}]}"#, "unknown variant"),
            (r#"{"tables": [{"table": "a", "colums": []}]}"#, "unknown field"),
        ] {
            let said = Mapping::parse(text).expect_err(text);
            assert!(said.contains(reason), "{text}: {said}");
        }
    }
}
