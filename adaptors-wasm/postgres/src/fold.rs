//! Folds the records of one request into one change per row: the last write counts, `add`s are summed.
//!
//! A storage applies a request as a whole or not at all, so no reader can miss the intermediate states.

use std::borrow::Cow;
use std::ops::Range;

use tribunal_plugin_sdk::Fault;
use tribunal_plugin_sdk::adaptor::{LogBatch, Row, kind};

use crate::column::shown;

/// The change of one row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Change<'a> {
    pub key: &'a str,
    pub version: u64,
    pub effect: Effect<'a>,
}

/// The effect of a [`Change`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Effect<'a> {
    /// The row exists with this JSON.
    Put(Cow<'a, str>),
    /// The row does not exist.
    Delete,
    /// The row's integer has grown by this.
    Add(i128),
}

/// Returns the changes of these records, by key.
pub(crate) fn changes(batch: &LogBatch, records: Range<usize>) -> Result<Vec<Change<'_>>, Fault> {
    let (first, last) = (records.start, records.end);
    let from = if first == 0 { 0 } else { batch.row_ends[first - 1] as usize };
    let mut rows = Vec::with_capacity(batch.row_ends[last - 1] as usize - from);
    for record in records {
        rows.extend(batch.rows_of(record).map(|row| batch.row(record, row)));
    }
    // Stable: rows of one key stay in the order of the log.
    rows.sort_by(|a, b| a.key.cmp(b.key));
    rows.chunk_by(|a, b| a.key == b.key).map(change).collect()
}

fn change<'a>(rows: &[Row<'a>]) -> Result<Change<'a>, Fault> {
    let (row, version) = (rows[0], rows[rows.len() - 1].version);
    let key = str::from_utf8(row.key)
        .map_err(|_| format!("row `{}`: its key is not UTF-8, as PostgreSQL's text must be", row.key.escape_ascii()))?;
    let of_row = |reason: String| format!("row `{}`: {reason}", shown(key));
    let effect = rows.iter().try_fold(None, |before, row| folded(before, *row).map(Some)).map_err(of_row)?;
    Ok(Change { key, version, effect: effect.unwrap_or(Effect::Delete) })
}

fn folded<'a>(before: Option<Effect<'a>>, row: Row<'a>) -> Result<Effect<'a>, String> {
    let text = || str::from_utf8(row.value).map_err(|_| "its value is no UTF-8".to_owned());
    match row.kind {
        kind::INSERT | kind::UPDATE | kind::PUT => Ok(Effect::Put(Cow::Borrowed(text()?.trim_ascii()))),
        kind::DELETE => Ok(Effect::Delete),
        kind::ADD => {
            let number = |text: &str| text.parse::<i64>().map(i128::from);
            let delta =
                number(text()?).map_err(|_| format!("`add` of `{}`, which is no integer", text().map_or("", shown)))?;
            match before {
                None => Ok(Effect::Add(delta)),
                Some(Effect::Add(sum)) => Ok(Effect::Add(sum + delta)),
                Some(Effect::Put(value)) => {
                    let sum =
                        number(&value).map_err(|_| format!("`add` to {}, which is no integer", shown(&value)))? + delta;
                    let sum = i64::try_from(sum).map_err(|_| format!("`add` makes {sum}, which exceeds 64 bits"))?;
                    Ok(Effect::Put(Cow::Owned(sum.to_string())))
                }
                Some(Effect::Delete) => Err("`add` to a deleted row".to_owned()),
            }
        }
        other => Err(format!("a change of unknown kind {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fold(rows: &[(u8, &str)]) -> Result<String, Fault> {
        let rows: Vec<Row<'_>> = rows
            .iter()
            .zip(1..)
            .map(|(&(kind, value), version)| Row { kind, version, key: b"k", value: value.as_bytes() })
            .collect();
        change(&rows).map(|change| format!("{:?} {}", change.effect, change.version))
    }

    #[test]
    fn the_last_write_counts_and_adds_are_summed() {
        use kind::{ADD, DELETE, INSERT, PUT, UPDATE};
        assert_eq!(fold(&[(INSERT, "1"), (UPDATE, " {} ")]).as_deref(), Ok("Put(\"{}\") 2"));
        assert_eq!(fold(&[(PUT, "1"), (DELETE, ""), (INSERT, "3"), (ADD, "-5")]).as_deref(), Ok("Put(\"-2\") 4"));
        assert_eq!(fold(&[(ADD, "1"), (ADD, "9223372036854775807")]).as_deref(), Ok("Add(9223372036854775808) 2"));
        assert_eq!(fold(&[(ADD, "1"), (DELETE, "")]).as_deref(), Ok("Delete 2"));
        for (rows, reason) in [
            ([(PUT, "\"x\""), (ADD, "1")], "no integer"),
            ([(PUT, "9223372036854775807"), (ADD, "1")], "exceeds 64 bits"),
            ([(DELETE, ""), (ADD, "1")], "deleted row"),
            ([(PUT, "1"), (ADD, "1.5")], "no integer"),
        ] {
            let said = fold(&rows).expect_err("refused");
            assert!(said.starts_with("row `k`: ") && said.contains(reason), "{said}");
        }
    }
}
