//! Folds the writes of an epoch that contains adds into the final state of each row. A sum needs the row's previous
//! value, which may be on the disk; the fold reads it before readers are locked out. Sums are exact.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::RandomState;
use tribunal_types::{Lsn, Version, WriteKind};

use super::EmbeddedError;
use super::stored::Stored;

/// A write of a row.
#[derive(Clone, Copy)]
pub(super) struct Change<'a> {
    /// Record of the write.
    pub lsn: Lsn,
    pub version: Version,
    pub kind: WriteKind,
    pub key: &'a [u8],
    pub value: &'a [u8],
}

/// Final state of every row that an epoch wrote.
pub(super) type Folded<'a> = HashMap<&'a [u8], FoldedRow<'a>, RandomState>;

/// Version of the last write, and the value; `None` if the row was deleted.
type FoldedRow<'a> = (Version, Option<Cow<'a, [u8]>>);

/// Folds `changes`. `stored` returns the state of a row before them, and is only called for adds.
pub(super) fn fold<'a>(
    changes: impl Iterator<Item = Change<'a>>,
    stored: impl Fn(&[u8]) -> Result<Option<Stored>, EmbeddedError>,
) -> Result<Folded<'a>, EmbeddedError> {
    let mut rows = Folded::default();
    for change in changes {
        let state = match change.kind {
            WriteKind::Insert | WriteKind::Update | WriteKind::Put => Some(Cow::Borrowed(change.value)),
            WriteKind::Delete => None,
            WriteKind::Add => {
                let base = match rows.entry(change.key) {
                    Entry::Occupied(known) => known.remove().1.map(Cow::into_owned),
                    Entry::Vacant(_) => stored(change.key)?.map(|base| base.value.into_vec()),
                };
                let sum = sum(&change, base);
                Some(Cow::Owned(sum.map_err(|text| EmbeddedError::Poison { lsn: change.lsn, text })?.into_bytes()))
            }
        };
        rows.insert(change.key, (change.version, state));
    }
    Ok(rows)
}

fn sum(change: &Change<'_>, base: Option<Vec<u8>>) -> Result<String, String> {
    let key = change.key.escape_ascii();
    let base = base.ok_or_else(|| format!("add to the missing row {key}"))?;
    let number = integer(&base).ok_or_else(|| format!("add to row {key}, whose value is not a 64-bit integer"))?;
    let delta =
        integer(change.value).ok_or_else(|| format!("add to row {key} of a value that is not a 64-bit integer"))?;
    let sum = number.checked_add(delta).ok_or_else(|| format!("{number} + {delta} overflows row {key}"))?;
    Ok(sum.to_string())
}

fn integer(json: &[u8]) -> Option<i64> {
    std::str::from_utf8(json).ok()?.trim_ascii().parse().ok()
}
