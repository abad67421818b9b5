//! Folds a command's rows to each row's last state, so that a hot row is written once. Adds are summed exactly.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::RandomState;
use tribunal_types::{Version, WriteKind};

use super::raw::{RawCommand, RawRow};
use super::recent::Stored;

/// Last state of every row that a command touches.
pub(super) struct Folded<'a> {
    pub rows: HashMap<&'a [u8], FoldedRow<'a>, RandomState>,
}

/// Version of the last write, and the value, or `None` if the row is gone.
type FoldedRow<'a> = (Version, Option<Cow<'a, [u8]>>);

/// Folds the rows of `command`; `stored` returns what the store holds now, which only adds ask for.
pub(super) fn fold<'a>(
    command: &RawCommand<'a>,
    stored: impl Fn(&[u8]) -> Result<Option<Stored>, String>,
) -> Result<Folded<'a>, String> {
    let rows = HashMap::with_capacity_and_hasher(command.rows.len(), RandomState::default());
    let mut folded = Folded { rows };
    for row in &command.rows {
        let state = match row.kind {
            WriteKind::Insert | WriteKind::Update | WriteKind::Put => Some(Cow::Borrowed(row.value)),
            WriteKind::Delete => None,
            WriteKind::Add => {
                let base = match folded.rows.entry(row.key) {
                    Entry::Occupied(known) => known.remove().1.map(Cow::into_owned),
                    Entry::Vacant(_) => match stored(row.key)? {
                        // Only after damage: rows newer than the watermark. The add is in them.
                        Some(base) if base.version >= row.version => continue,
                        base => base.map(|base| base.value.into_vec()),
                    },
                };
                Some(Cow::Owned(sum(row, base)?.into_bytes()))
            }
        };
        folded.rows.insert(row.key, (row.version, state));
    }
    Ok(folded)
}

fn sum(row: &RawRow<'_>, base: Option<Vec<u8>>) -> Result<String, String> {
    let key = row.key.escape_ascii();
    let base = base.ok_or_else(|| format!("add to the missing row {key}"))?;
    let number = integer(&base).ok_or_else(|| format!("add to row {key}, which holds no 64-bit integer"))?;
    let delta = integer(row.value).ok_or_else(|| format!("add to row {key} of what is no 64-bit integer"))?;
    let sum = number.checked_add(delta).ok_or_else(|| format!("{number} + {delta} overflows row {key}"))?;
    Ok(sum.to_string())
}

fn integer(json: &[u8]) -> Option<i64> {
    std::str::from_utf8(json).ok()?.trim_ascii().parse().ok()
}
