//! Folds a command's rows to each row's last state, so that a hot row is written once. Adds are summed exactly.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

use foldhash::fast::RandomState;
use tribunal_types::{Version, WriteKind};

use super::raw::{RawCommand, RawRow};

/// Last state of every row that a command touches: version and value, or gone.
pub(super) struct Folded<'a> {
    rows: Rows<'a>,
}

type Rows<'a> = HashMap<&'a [u8], Option<(Version, Cow<'a, [u8]>)>, RandomState>;

impl<'a> Folded<'a> {
    pub(super) fn rows(&self) -> impl Iterator<Item = (&'a [u8], Option<(Version, &[u8])>)> {
        self.rows.iter().map(|(key, state)| (*key, state.as_ref().map(|(version, value)| (*version, value.as_ref()))))
    }
}

/// Folds the rows of `command`; `stored` returns the value that the store holds now, which only adds ask for.
pub(super) fn fold<'a>(
    command: &RawCommand<'a>,
    stored: impl Fn(&[u8]) -> Result<Option<Vec<u8>>, String>,
) -> Result<Folded<'a>, String> {
    let mut rows: Rows<'a> = HashMap::with_capacity_and_hasher(command.rows.len(), RandomState::default());
    for row in &command.rows {
        let state = match row.kind {
            WriteKind::Insert | WriteKind::Update | WriteKind::Put => Some((row.version, Cow::Borrowed(row.value))),
            WriteKind::Delete => None,
            WriteKind::Add => {
                let base = match rows.entry(row.key) {
                    Entry::Occupied(known) => known.remove().map(|(_, value)| value.into_owned()),
                    Entry::Vacant(_) => stored(row.key)?,
                };
                Some((row.version, Cow::Owned(sum(row, base)?.into_bytes())))
            }
        };
        rows.insert(row.key, state);
    }
    Ok(Folded { rows })
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
