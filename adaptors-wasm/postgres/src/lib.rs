//! LogAdaptor for PostgreSQL: each request is one transaction that moves the watermark and applies whole records, or
//! does neither.
//!
//! The longest matching prefix of a row's key selects its table; the rest of the key, split at `/`, fills the key
//! columns. The row's value goes into one column as a whole (JSON by default), or into typed columns field by field. A
//! field without a column, a missing field or a value of another type is refused: the store's push stops at that
//! record. Every row carries the version of the transaction that wrote it, so that engines read a row and its version
//! together.
//!
//! | table `tribunal_watermark` | holds |
//! |---|---|
//! | `store`, `tables` | the store, and the tables that this row covers: other tables start from the beginning |
//! | `log` | the log that fills them; for a store outside the first namespace `<log> <store>#<number>` |
//! | `lsn` | the position of the last record applied |
//! | `last_record` | that record, `<LSN> <arrival stamp> <transaction>` |
//!
//! Tables that another log or store fills are not touched. Watermark rows of one store that share a table do not
//! coexist: the tables of the older row may have been filled further since, and `add`s would count twice. So a new row
//! replaces them, and everything is pushed again.
//!
//! Earlier releases move `lsn` without `last_record`: a record at another position is not the last one. The column is absent
//! if the role may not add it to a table that such a release created; then the position alone counts, as it does if the role
//! may not read and update the column.
//!
//! At the first contact, missing tables are created; if the role may not create them, the error contains the
//! statements. Later, a missing table is an error. Invariant: SQL texts consist of names from the configuration, which
//! are plain words; every key and value is a bound parameter.

mod array;
mod column;
mod fold;
mod mapping;
mod object;
mod rows;
mod statements;

use core::ops::Range;

use tribunal_plugin_sdk::adaptor::{Ack, Command, Kinds, LogBatch, RecordId, Reply, Request, Row, SqlError, SqlReply};
use tribunal_plugin_sdk::{Adaptor, Fault, Plugin};

use crate::column::shown;
use crate::mapping::{Mapping, Table};
use crate::rows::Rows;

/// Bytes of rows in one transaction, unless a single record is larger: the work that a crash makes the server repeat.
const REQUEST_BYTES_MAX: usize = 4 * 1024 * 1024;
/// SQLSTATE with which the host reports that the first statement affected no row.
const NO_DATA: &str = "02000";
/// SQLSTATE classes of transient errors: connection, resources (a full disk among them), intervention, system.
const PASSING_CLASSES: [&str; 4] = ["08", "53", "57", "58"];
/// Transient conditions: serialization, deadlock, lock and idle timeouts, a server that is a standby.
const PASSING: [&str; 5] = ["40001", "40P01", "55P03", "25P03", "25006"];

/// The adaptor.
#[derive(Debug)]
pub struct Postgres {
    mapping: Mapping,
}

impl Plugin for Postgres {
    const NAME: &'static str = "postgres";
    const ABOUT: &'static str = "Writes records to tables of PostgreSQL, rows and watermark in one transaction.";

    fn init(text: &str) -> Result<Self, Fault> {
        Mapping::parse(text).map(|mapping| Postgres { mapping })
    }
}

/// Returns the approximate bytes that a row takes in a request.
fn size(row: Row<'_>) -> usize {
    row.key.len() + row.value.len() + 40
}

impl Postgres {
    fn request(&self, batch: &LogBatch, records: Range<usize>) -> Result<Request, Fault> {
        let (first, last) = (batch.lsn[records.start], batch.lsn[records.end - 1]);
        let mut tables: Vec<Option<Rows<'_>>> = self.mapping.tables.iter().map(|_| None).collect();
        for change in fold::changes(batch, records.clone())? {
            let of_row = |reason: String| format!("row `{}`: {reason}", shown(change.key));
            let mut known = self.mapping.tables.iter();
            let at = known.position(|table| change.key.starts_with(&table.prefix));
            let at = at.ok_or_else(|| of_row("no table has a prefix of its key".to_owned()))?;
            let rows = tables[at].get_or_insert_with(|| Rows::new(&self.mapping.tables[at]));
            rows.push(&change).map_err(of_row)?;
        }
        let to = batch.id_of(records.end - 1);
        let mut sql = Vec::from(statements::move_watermark(&self.mapping, first.saturating_sub(1), &to));
        for rows in tables.into_iter().flatten() {
            rows.finish(&mut sql);
        }
        let idempotency_key = format!("{}:{first}-{last}", batch.store);
        Ok(Request { first, last, idempotency_key, command: Command::Sql(sql) })
    }

    /// Returns an error's text, with the remedy where it is known.
    fn said(&self, error: &SqlError) -> String {
        let SqlError { state, message } = error;
        let hint = match state.as_str() {
            "42501" => format!(
                "; the role needs SELECT, INSERT, UPDATE and DELETE on these tables: {}",
                statements::ddl(&self.mapping)
            ),
            "42P01" => format!(
                "; bring the table back, or delete the store's row in {} to have everything pushed again",
                self.mapping.watermark
            ),
            "42703" | "42P10" | "42804" => "; the table does not fit the store's declaration".to_owned(),
            // An index's row is too long. No other limit is known to have this state.
            "54000" => {
                "; PostgreSQL indexes keys of at most 2704 bytes, after compression: write shorter keys, and skip this record"
                    .to_owned()
            }
            _ => String::new(),
        };
        format!("{state}: {message}{hint}")
    }
}

fn sql(reply: Reply) -> Result<SqlReply, Fault> {
    match reply {
        Reply::Sql(reply) => Ok(reply),
        _ => Err("not a reply of an SQL database".into()),
    }
}

/// Splits the result of [`statements::read_watermark`] into the position and the last record, which is empty if it is not kept.
fn position_lines(cell: &str) -> (&str, &str) {
    cell.split_once('\n').unwrap_or((cell, ""))
}

impl Adaptor for Postgres {
    fn takes(&self) -> Kinds {
        if self.mapping.tables.iter().any(Table::takes_add) {
            Kinds::all()
        } else {
            Kinds::all().difference(Kinds::ADD)
        }
    }

    fn watermark(&self) -> Result<Request, Fault> {
        let command = Command::Sql(statements::read_watermark(&self.mapping));
        Ok(Request { first: 0, last: 0, idempotency_key: "watermark".into(), command })
    }

    fn read_watermark(&self, reply: Reply) -> Result<u64, Fault> {
        let SqlReply { cell, error, .. } = sql(reply)?;
        if let Some(error) = error {
            return Err(self.said(&error));
        }
        let cell = cell.ok_or("the watermark's row is gone")?;
        let (cell, _) = position_lines(&cell);
        let Mapping { watermark, log: own, store, .. } = &self.mapping;
        let (own_name, own_mark) = (self.mapping.owner.as_ref().unwrap_or(store), self.mapping.mark());
        let make_own = |tables: &str, mark: &str| {
            format!(
                "UPDATE {watermark} SET log = '{own_mark}' WHERE store = '{store}' AND tables = '{tables}' AND log = '{mark}'"
            )
        };
        if let Some(taken) = cell.strip_prefix(statements::TAKEN) {
            let nameless = taken
                .strip_prefix(&format!("store `{store}`, tables "))
                .and_then(|rest| rest.strip_suffix(&format!(", log and store {own}")))
                .filter(|_| self.mapping.owner.is_some());
            let hint = nameless.map_or(String::new(), |tables| {
                format!(". If an earlier release filled them for this store: {}", make_own(tables, own))
            });
            return Err(format!(
                "tables of this store (`{own_name}` of log {own}) are filled by another one: {watermark} has a row of {taken}. \
                 Name other tables for one of the two; if the other one is given up, empty the tables and delete its row{hint}"
            ));
        }
        let (mark, lsn) = cell.rsplit_once(' ').ok_or("the watermark's row is none")?;
        let (log, owner) = mark.split_once(' ').map_or((mark, None), |(log, owner)| (log, Some(owner)));
        let make_own = make_own(&self.mapping.table_names, mark);
        let is_of_log = log == own;
        let (of_log, salvaged) = if is_of_log {
            ("this log".to_owned(), String::new())
        } else {
            let salvaged = format!("this log is the other one, salvaged, and has lost no record up to LSN {lsn}");
            (format!("another log ({log}; this one is {own})"), salvaged)
        };
        match owner {
            owner if owner == self.mapping.owner.as_deref() && is_of_log => {}
            owner if owner == self.mapping.owner.as_deref() => {
                return Err(format!(
                    "these tables are filled by {of_log}: empty them and delete the store's row in {watermark}, or name other \
                     tables. If {salvaged}: {make_own}"
                ));
            }
            Some(owner) => {
                return Err(format!(
                    "these tables are filled by the store `{owner}` of {of_log}; this one is `{own_name}`: name other tables for \
                     one of the two; if the other one is given up, empty the tables and delete its row in {watermark}"
                ));
            }
            None => {
                let salvaged = if is_of_log { salvaged } else { format!(", and {salvaged}") };
                return Err(format!(
                    "these tables are filled by the store `{store}` of the namespace `default`, of {of_log}, or an earlier release \
                     filled them for this one (`{own_name}`): name other tables for one of the two, or, if the rows are this \
                     store's{salvaged}: {make_own}"
                ));
            }
        }
        lsn.parse().map_err(|_| format!("{watermark} holds {lsn}, which is no position"))
    }

    fn last_record(&self, reply: &Reply) -> Option<RecordId> {
        let Reply::Sql(SqlReply { cell: Some(cell), error: None, .. }) = reply else { return None };
        let (_, record) = position_lines(cell);
        record.parse().ok()
    }

    fn encode(&self, batch: LogBatch) -> Result<Vec<Request>, Fault> {
        batch.groups(REQUEST_BYTES_MAX, size).into_iter().map(|records| self.request(&batch, records)).collect()
    }

    fn classify(&self, reply: Reply) -> Ack {
        let error = match sql(reply) {
            Ok(SqlReply { error: None, .. }) => return Ack::Ok,
            Ok(SqlReply { error: Some(error), .. }) => error,
            Err(fault) => return Ack::Fatal(fault),
        };
        let state = error.state.as_str();
        if state == NO_DATA {
            Ack::Moved("the watermark is elsewhere".to_owned())
        } else if PASSING.contains(&state) || PASSING_CLASSES.iter().any(|class| state.starts_with(class)) {
            Ack::Retry(self.said(&error))
        } else {
            Ack::Fatal(self.said(&error))
        }
    }
}

tribunal_plugin_sdk::export_adaptor!(Postgres);
