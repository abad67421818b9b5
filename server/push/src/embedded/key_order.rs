//! The key order of numbered rows: sorted lists of row numbers, each at least twice as long as the next.
//!
//! Rows are added in bulk: the new numbers are sorted, then merged with the lists that are not much longer. So a row
//! takes part in a logarithmic number of merges, however many scans there are.

use std::cmp::Ordering;

/// Row numbers in key order.
#[derive(Clone, Default)]
pub(super) struct KeyOrder {
    /// Sorted lists, longest first.
    lists: Vec<Vec<u32>>,
    len: usize,
}

impl KeyOrder {
    /// Returns the number of rows in the order: those with smaller numbers.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds the rows with numbers below `len`. `key` returns their keys, which must never change.
    pub(super) fn extend<'a>(&mut self, len: usize, key: impl Fn(u32) -> &'a [u8]) {
        if len == self.len {
            return;
        }
        let mut list = sorted(self.len as u32..len as u32, &key);
        while let Some(longer) = self.lists.pop_if(|longer| longer.len() < 2 * list.len()) {
            list = merge(&longer, &list, &key);
        }
        self.lists.push(list);
        self.len = len;
    }

    /// Returns the numbers of the rows in `start..end`; an empty `end` means no end.
    pub(super) fn range<'a, 'k, K: Fn(u32) -> &'k [u8] + Copy + 'a>(
        &'a self,
        start: &[u8],
        end: &[u8],
        key: K,
    ) -> impl Iterator<Item = u32> + use<'a, 'k, K> {
        let part = |list: &'a Vec<u32>| {
            let from = list.partition_point(|&id| key(id) < start);
            let to = if end.is_empty() { list.len() } else { list.partition_point(|&id| key(id) < end).max(from) };
            &list[from..to]
        };
        let mut parts: Vec<&'a [u32]> = self.lists.iter().map(part).filter(|part| !part.is_empty()).collect();
        std::iter::from_fn(move || {
            let heads = parts.iter().enumerate().filter_map(|(i, part)| part.first().map(|&id| (key(id), i)));
            let (_, smallest) = heads.min()?;
            let (&id, rest) = parts[smallest].split_first()?;
            parts[smallest] = rest;
            Some(id)
        })
    }
}

/// Sorts row numbers by their keys. The common prefix of all keys is skipped, and the next eight bytes are compared as one
/// integer, so that most comparisons do not access the keys.
fn sorted<'a>(ids: std::ops::Range<u32>, key: &impl Fn(u32) -> &'a [u8]) -> Vec<u32> {
    let first = key(ids.start);
    let common = ids.clone().fold(first.len(), |common, id| {
        first[..common].iter().zip(key(id)).take_while(|(one, other)| one == other).count()
    });
    let prefix = |id: u32| {
        let rest = &key(id)[common..];
        let mut bytes = [0; 8];
        let len = rest.len().min(8);
        bytes[..len].copy_from_slice(&rest[..len]);
        u64::from_be_bytes(bytes)
    };
    let mut pairs: Vec<(u64, u32)> = ids.map(|id| (prefix(id), id)).collect();
    pairs.sort_unstable_by(|one, other| match one.0.cmp(&other.0) {
        Ordering::Equal => key(one.1)[common..].cmp(&key(other.1)[common..]),
        unequal => unequal,
    });
    pairs.into_iter().map(|(_, id)| id).collect()
}

fn merge<'a>(one: &[u32], other: &[u32], key: &impl Fn(u32) -> &'a [u8]) -> Vec<u32> {
    let mut merged = Vec::with_capacity(one.len() + other.len());
    let (mut one, mut other) = (one, other);
    while let ([a, rest_of_one @ ..], [b, rest_of_other @ ..]) = (one, other) {
        if key(*a) < key(*b) {
            merged.push(*a);
            one = rest_of_one;
        } else {
            merged.push(*b);
            other = rest_of_other;
        }
    }
    merged.extend_from_slice(one);
    merged.extend_from_slice(other);
    merged
}
