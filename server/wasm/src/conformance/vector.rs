//! The input that a check failed on, column by column, so that authors can reproduce the failure. Independent of any text
//! format.

use tribunal_core::policy::{TxnColumns, ValidatorColumns};
use tribunal_types::{RecordBatch, Version};

/// Maximum number of transactions or records of an input that is shown; a larger one would not be readable.
const ITEMS_MAX: usize = 64;

/// A column of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// One number, the same for all items.
    Number(u64),
    /// A number for each item or operation.
    Numbers(Vec<u64>),
    /// A text for each record or row.
    Texts(Vec<String>),
}

/// An input of the kit, with the names of `plugins/wit`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vector {
    /// Names and values.
    pub columns: Vec<(&'static str, Column)>,
}

/// Returns bytes as text. Keys and values of the log are UTF-8; the kit also has others.
fn shown(bytes: &[u8]) -> String {
    str::from_utf8(bytes).map_or_else(|_| bytes.escape_ascii().to_string(), str::to_owned)
}

fn wide<T: Copy + Into<u64>>(values: &[T]) -> Column {
    Column::Numbers(values.iter().map(|&value| value.into()).collect())
}

impl Vector {
    /// Adds a column about how the check used this input.
    #[must_use]
    pub(super) fn and(mut self, name: &'static str, values: impl IntoIterator<Item = u64>) -> Vector {
        if !self.columns.is_empty() {
            self.columns.push((name, Column::Numbers(values.into_iter().collect())));
        }
        self
    }

    /// Describes the input of a rule; empty if it is too large.
    #[must_use]
    pub fn of_txns(txns: &TxnColumns) -> Vector {
        if txns.csn.len() > ITEMS_MAX {
            return Vector::default();
        }
        let TxnColumns { csn, epoch, start, origin, priority, reads, writes, first_attempt } = txns;
        Vector {
            columns: vec![
                ("count", Column::Number(csn.len() as u64)),
                ("epoch", Column::Number(*epoch)),
                ("csn", wide(csn)),
                ("start", wide(start)),
                ("origin", wide(origin)),
                ("priority", wide(priority)),
                ("reads", wide(reads)),
                ("writes", wide(writes)),
                ("first-attempt", wide(first_attempt)),
            ],
        }
    }

    /// Describes the input of a validator; empty if it is too large.
    #[must_use]
    pub fn of_evidence(evidence: &ValidatorColumns) -> Vector {
        if evidence.len() > ITEMS_MAX {
            return Vector::default();
        }
        let TxnColumns { csn, epoch, start, origin, priority, reads, writes, first_attempt } = &evidence.txns;
        let epochs = |versions: &[u64]| {
            Column::Numbers(versions.iter().map(|version| version >> Version::POSITION_BITS).collect())
        };
        Vector {
            columns: vec![
                ("count", Column::Number(evidence.len() as u64)),
                ("epoch", Column::Number(*epoch)),
                ("txns.csn", wide(csn)),
                ("txns.start", wide(start)),
                ("txns.origin", wide(origin)),
                ("txns.priority", wide(priority)),
                ("txns.reads", wide(reads)),
                ("txns.writes", wide(writes)),
                ("txns.first-attempt", wide(first_attempt)),
                ("snapshots.named", wide(&evidence.snapshot)),
                ("snapshots.current-from", wide(&evidence.current_from)),
                ("snapshots.current-until", wide(&evidence.current_until)),
                ("snapshots.multi-version", wide(&evidence.multi_version)),
                ("reads.ends", wide(&evidence.reads.ends)),
                ("reads.seen", wide(&evidence.reads.seen)),
                ("reads.latest", wide(&evidence.reads.latest)),
                ("ranges.ends", wide(&evidence.ranges.ends)),
                ("ranges.changed", wide(&evidence.ranges.changed)),
                ("writes.ends", wide(&evidence.writes.ends)),
                ("writes.kind", wide(&evidence.writes.kind)),
                ("writes.flags", wide(&evidence.writes.flags)),
                ("writes.latest", wide(&evidence.writes.latest)),
                ("epochs.seen", epochs(&evidence.reads.seen)),
                ("epochs.latest", epochs(&evidence.reads.latest)),
                ("epochs.written", epochs(&evidence.writes.latest)),
            ],
        }
    }

    /// Describes the input of an adaptor for a store of this name; empty if it is too large.
    #[must_use]
    pub fn of_records(store: &str, records: &RecordBatch) -> Vector {
        if records.records.len() > ITEMS_MAX {
            return Vector::default();
        }
        let heads = &records.records;
        let numbers = |of: &dyn Fn(&tribunal_types::RecordHead) -> u64| Column::Numbers(heads.iter().map(of).collect());
        let texts = |of: fn(&tribunal_types::RecordWrite) -> tribunal_types::Span| {
            Column::Texts(records.writes.iter().map(|row| shown(of(row).of(&records.bytes))).collect())
        };
        let of_heads =
            |of: &dyn Fn(&tribunal_types::RecordHead) -> String| Column::Texts(heads.iter().map(of).collect());
        Vector {
            columns: vec![
                ("store", Column::Texts(vec![store.to_owned()])),
                ("lsn", numbers(&|head| head.lsn.0)),
                ("epoch", numbers(&|head| head.epoch.0)),
                ("csn", numbers(&|head| head.csn.0)),
                ("version", numbers(&|head| head.version.bits())),
                ("txn-ids", of_heads(&|head| head.txn_id.to_string())),
                ("traceparents", of_heads(&|head| shown(head.traceparent.of(&records.bytes)))),
                ("row-ends", numbers(&|head| u64::from(head.writes_end))),
                ("kind", Column::Numbers(records.writes.iter().map(|row| row.kind as u64).collect())),
                ("keys", texts(|row| row.key)),
                ("values", texts(|row| row.value)),
            ],
        }
    }
}
