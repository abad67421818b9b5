//! The write set of one transaction: several operations on one row become one, as the API requires.

use serde_json::value::RawValue;
use tribunal_api::WriteOp;

use crate::{Error, wire};

/// The merged operation on a row.
#[derive(Clone, Debug)]
pub(crate) struct PendingWrite {
    pub op: WriteOp,
    /// Absent for a delete.
    pub value: Option<Box<RawValue>>,
    /// For an add: the start value if the row is missing.
    pub or: Option<i64>,
}

impl PendingWrite {
    /// Returns the value of a row after an add.
    pub(crate) fn added_to(&self, row: Option<&RawValue>) -> Result<Box<RawValue>, Error> {
        match (row, self.or) {
            (None, Some(or)) => sum(Some(&wire::raw(&or)?), self.value.as_deref()),
            _ => sum(row, self.value.as_deref()),
        }
    }
}

/// The transaction's knowledge of the row before its writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Present,
    Absent,
    Unread,
}

/// Merges an operation into the preceding one; `None` if they cancel out.
pub(crate) fn merge(before: PendingWrite, next: PendingWrite, row: Known) -> Result<Option<PendingWrite>, Error> {
    use WriteOp::{Add, Delete, Insert, Put, Update};
    let op = match (before.op, next.op) {
        (Insert | Update | Put | Add, Insert) => return misuse("inserts a row that it wrote before"),
        (Delete, Add) if next.or.is_some() => {
            return Ok(Some(PendingWrite { op: Update, value: Some(next.added_to(None)?), or: None }));
        }
        (Delete, Update | Delete | Add) => return misuse("changes a row that it deleted before"),
        (Insert | Put, Delete) if row == Known::Absent => return Ok(None),
        (Add, Delete) if before.or.is_some() && row == Known::Absent => return Ok(None),
        (Add, Delete) if before.or.is_some() && row == Known::Unread => {
            return misuse("adds to and deletes a row that it has not read; read the row first");
        }
        (Insert, Delete) => return misuse("inserts and deletes a row that it has not read; read the row first"),
        (Put, Delete) if row == Known::Unread => {
            return misuse("puts and deletes a row that it has not read; read the row first");
        }
        (Put | Update | Add, Delete) => Delete,
        (Insert, Put | Update) => Insert,
        (Put, Put | Update) => Put,
        (Add, Put | Update) if before.or.is_some() => Put,
        (Update | Add, Put | Update) | (Delete, Insert | Put) => Update,
        (_, Add) => {
            let value = sum(before.value.as_deref(), next.value.as_deref())?;
            return Ok(Some(PendingWrite { op: before.op, value: Some(value), or: before.or }));
        }
    };
    Ok(Some(PendingWrite { op, value: next.value, or: None }))
}

fn misuse<T>(what: &str) -> Result<T, Error> {
    Err(Error::misuse(format!("the transaction {what}")))
}

/// Adds two JSON integers exactly.
pub(crate) fn sum(left: Option<&RawValue>, right: Option<&RawValue>) -> Result<Box<RawValue>, Error> {
    let number = |value: Option<&RawValue>| value.and_then(|value| value.get().parse::<i64>().ok());
    let (left, right) = number(left)
        .zip(number(right))
        .ok_or_else(|| Error::misuse("add needs a row whose value is an integer of 64 bits"))?;
    wire::raw(&left.checked_add(right).ok_or_else(|| Error::misuse("the sum of these adds does not fit into 64 bits"))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use WriteOp::{Add, Delete, Insert, Put, Update};

    fn write((op, or): (WriteOp, Option<i64>), value: i64) -> PendingWrite {
        PendingWrite { op, value: (op != Delete).then(|| wire::raw(&value).expect("a number")), or }
    }

    /// Applies an operation to a row as a storage does; `None` if it aborts.
    fn apply(row: Option<i64>, write: &PendingWrite) -> Option<Option<i64>> {
        let value = write.value.as_ref().map(|value| value.get().parse::<i64>().expect("a number"));
        match write.op {
            Insert => row.is_none().then_some(value),
            Put => Some(value),
            Update => row.is_some().then_some(value),
            Delete => row.is_some().then_some(None),
            Add => row.or(write.or).map(|row| value.map(|value| row + value)),
        }
    }

    #[test]
    fn a_merged_operation_has_the_effect_of_both() {
        let all = || [Insert, Update, Put, Delete, Add].map(|op| (op, None)).into_iter().chain([(Add, Some(5))]);
        for first in all() {
            for second in all() {
                for row in [None, Some(10)] {
                    let known = if row.is_some() { Known::Present } else { Known::Absent };
                    let one_by_one = apply(row, &write(first, 3)).and_then(|row| apply(row, &write(second, 4)));
                    match merge(write(first, 3), write(second, 4), known) {
                        Ok(Some(merged)) => {
                            // The merged operation may check existence later than the single ones, but a commit never
                            // has another result.
                            if let Some(expected) = one_by_one {
                                assert_eq!(apply(row, &merged), Some(expected), "{first:?} {second:?} {row:?}");
                            }
                        }
                        Ok(None) => assert_eq!(one_by_one, Some(row), "{first:?} {second:?} {row:?}"),
                        Err(_) => assert_eq!(one_by_one, None, "{first:?} {second:?} {row:?}"),
                    }
                }
            }
        }
    }
}
