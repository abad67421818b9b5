//! Rows as they are read.

use serde_json::Value;

use crate::{Epoch, Error, Version, wire};

/// A row as it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Key.
    pub key: Vec<u8>,
    /// Value.
    pub value: Value,
    /// Version; `None` for a row that the transaction itself wrote without reading it.
    pub version: Option<Version>,
}

/// Rows in key order.
#[derive(Clone, Debug, PartialEq)]
pub struct RowPage {
    /// Snapshot that the rows reflect.
    pub applied: Epoch,
    /// The rows.
    pub rows: Vec<Row>,
    /// Whether the range has more rows.
    pub more: bool,
}

pub(crate) fn row_of(row: tribunal_api::Row) -> Result<Row, Error> {
    let value = wire::value_of(row.value, row.value_b64)?;
    Ok(Row {
        key: wire::key_of(row.key, row.key_b64)?.ok_or_else(|| Error::misbehaved("a row without a key"))?,
        value: value.as_deref().map_or(Ok(Value::Null), wire::parsed)?,
        version: row.version.as_deref().map(wire::version).transpose()?,
    })
}
