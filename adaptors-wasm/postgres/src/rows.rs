//! Changed rows of one table, in columns: each column becomes one bound array.

use tribunal_plugin_sdk::adaptor::SqlStatement;

use crate::array::Array;
use crate::column::{kind, shown};
use crate::fold::{Change, Effect};
use crate::mapping::{Table, Value};
use crate::object::{self, Fields};
use crate::statements;

/// Changes of one table's rows.
pub(crate) struct Rows<'m> {
    table: &'m Table,
    puts: Columns,
    deletes: Columns,
    adds: Columns,
}

/// Columns of rows with the same kind of change.
#[derive(Default)]
struct Columns {
    arrays: Vec<Array>,
}

impl Columns {
    fn of(&mut self, columns: usize) -> &mut [Array] {
        if self.arrays.is_empty() {
            self.arrays.resize_with(columns, Array::default);
        }
        &mut self.arrays
    }

    fn statement(self, text: impl FnOnce() -> String, into: &mut Vec<SqlStatement>) {
        if !self.arrays.is_empty() {
            let params = self.arrays.into_iter().map(|array| Some(array.finish())).collect();
            into.push(SqlStatement { text: text(), params });
        }
    }
}

impl<'m> Rows<'m> {
    pub(crate) fn new(table: &'m Table) -> Self {
        Rows { table, puts: Columns::default(), deletes: Columns::default(), adds: Columns::default() }
    }

    /// Adds a change of a row of this table.
    pub(crate) fn push(&mut self, change: &Change<'_>) -> Result<(), String> {
        let table = self.table;
        let key = &change.key[table.prefix.len()..];
        let (keys, values) = (table.key.len(), table.value.columns().len());
        match &change.effect {
            Effect::Put(json) => {
                let arrays = self.puts.of(keys + values + 1);
                push_key(table, key, arrays)?;
                push_value(&table.value, json, &mut arrays[keys..])?;
                arrays[keys + values].plain(&change.version.to_string());
            }
            Effect::Delete => push_key(table, key, self.deletes.of(keys))?,
            Effect::Add(delta) => {
                if !table.takes_add() {
                    return Err("`add` needs a table whose whole value is one column of integers".to_owned());
                }
                let arrays = self.adds.of(keys + statements::ADD_COLUMNS);
                push_key(table, key, arrays)?;
                arrays[keys].plain(&delta.to_string());
                arrays[keys + 1].plain(&change.version.to_string());
                arrays[keys + 2].quoted(change.key);
            }
        }
        Ok(())
    }

    /// Builds the statements. Deletes come first: they make room under the owner's unique indexes.
    pub(crate) fn finish(self, into: &mut Vec<SqlStatement>) {
        let table = self.table;
        self.deletes.statement(|| statements::delete(table), into);
        self.puts.statement(|| statements::upsert(table), into);
        if let Value::Whole(column) = &table.value {
            self.adds.statement(|| statements::add(table, column), into);
        }
    }
}

fn push_key(table: &Table, key: &str, into: &mut [Array]) -> Result<(), String> {
    let mut parts = key.splitn(table.key.len(), '/');
    for (column, array) in table.key.iter().zip(into) {
        let part = parts.next().ok_or_else(|| {
            format!("its key has fewer parts than the {} key columns of {}", table.key.len(), table.name)
        })?;
        column.kind.key_part(part, array).map_err(|reason| format!("key column {}: {reason}", column.name))?;
    }
    Ok(())
}

fn push_value(value: &Value, json: &str, into: &mut [Array]) -> Result<(), String> {
    let columns = match value {
        Value::Whole(column) => {
            let taken = column.kind.value(json, &mut into[0]);
            return taken.map_err(|reason| format!("column {}: {reason}", column.name));
        }
        Value::Fields(columns) => columns,
    };
    let first = json.as_bytes().first().copied().unwrap_or_default();
    if first != b'{' {
        return Err(format!("its value is {}, its table takes the fields of an object", kind(first)));
    }
    let Fields(mut fields) = object::fields(json)?;
    for (column, array) in columns.iter().zip(into) {
        // Engines write fields in a constant order, so the required field is usually the first one left.
        let found = fields.iter().position(|(name, _)| *name == column.field).map(|at| fields.remove(at).1);
        match found {
            None | Some("null") if column.nullable => array.null(),
            None => {
                return Err(format!("field `{}` is missing, and column {} is not nullable", column.field, column.name));
            }
            Some(json) => {
                let taken = column.kind.value(json, array);
                taken.map_err(|reason| format!("field `{}`, column {}: {reason}", column.field, column.name))?;
            }
        }
    }
    match fields.first() {
        None => Ok(()),
        Some((name, _)) => Err(format!("field `{}` has no column", shown(name))),
    }
}
