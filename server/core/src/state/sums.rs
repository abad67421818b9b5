//! Bounds of the values that adds modify, so that no add commits whose sum a store could not represent.
//!
//! For an integer, the map records only that it is one. A value written in at most [`SMALL_TEXT_BYTES`] bytes is within
//! [`SMALL`] of zero, which suffices: such a row costs nothing here. A longer value is kept exactly. An add shifts the
//! known value by its delta. So a row has an entry here from its first add, or its first long value, until it is
//! deleted or replaced by a short one. A row created by an add started with a short value.
//!
//! Rows are distributed over buckets shared with images: the first write to a bucket after an image began copies that
//! bucket.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_types::RowKey;
use tribunal_types::limits::ADD_START_MAX;

/// Maximum bytes of an integer's text, including its sign, for which only [`SMALL`] is known.
pub(crate) const SMALL_TEXT_BYTES: u32 = 16;
/// The largest integer with that many bytes.
pub(crate) const SMALL: u64 = 9_999_999_999_999_999;
const _: () = assert!(ADD_START_MAX.unsigned_abs() <= SMALL, "a row that an add creates starts small");

/// Known bounds of an integer's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sum {
    /// The value, or how far adds have shifted it from a small one.
    pub(crate) center: i64,
    /// Whether `center` is the value itself.
    pub(crate) exact: bool,
}

impl Sum {
    /// The bounds of an integer without an entry.
    pub(crate) const UNKNOWN: Sum = Sum { center: 0, exact: false };

    /// Returns how far adds may shift the value.
    pub(crate) fn headroom(self) -> Headroom {
        let spread = if self.exact { 0 } else { SMALL };
        // The extremes are less than 2^64 apart.
        Headroom {
            up: i64::MAX.abs_diff(self.center).saturating_sub(spread),
            down: i64::MIN.abs_diff(self.center).saturating_sub(spread),
        }
    }
}

/// How much may still be added to a row and subtracted from it, in any order: additions and subtractions are counted
/// separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Headroom {
    up: u64,
    down: u64,
}

impl Headroom {
    /// Returns the headroom left after an add; `None` if the sum could leave 64 bits.
    pub(crate) fn after(self, delta: i64) -> Option<Headroom> {
        let amount = delta.unsigned_abs();
        if delta < 0 {
            Some(Headroom { down: self.down.checked_sub(amount)?, ..self })
        } else {
            Some(Headroom { up: self.up.checked_sub(amount)?, ..self })
        }
    }
}

/// Parses a decimal integer. `None` if it is not one or needs more than 64 bits.
pub(crate) fn integer_of(text: &[u8]) -> Option<i64> {
    core::str::from_utf8(text).ok()?.parse().ok()
}

const BUCKETS: usize = 256;
/// Bytes charged for an entry: its key, its sum, and its share of a tree node.
const ENTRY_BYTES: usize = 48;

/// Sums of one shard's rows.
#[derive(Clone, Debug)]
pub(crate) struct RowSums {
    buckets: Vec<Arc<BTreeMap<RowKey, Sum>>>,
    rows: usize,
}

impl Default for RowSums {
    fn default() -> RowSums {
        RowSums { buckets: alloc::vec![Arc::default(); BUCKETS], rows: 0 }
    }
}

/// Clears the last 8 bits of a key, which do not identify the row, see `map`.
fn named(key: RowKey) -> RowKey {
    RowKey { hi: key.hi, lo: key.lo & !0xff }
}

impl RowSums {
    fn bucket_mut(&mut self, key: RowKey) -> &mut BTreeMap<RowKey, Sum> {
        Arc::make_mut(&mut self.buckets[key.hi as usize % BUCKETS])
    }

    /// Returns the known bounds of an integer row.
    pub(crate) fn of(&self, key: RowKey) -> Sum {
        self.buckets[key.hi as usize % BUCKETS].get(&named(key)).copied().unwrap_or(Sum::UNKNOWN)
    }

    /// Notes an add to a row.
    pub(crate) fn add(&mut self, key: RowKey, delta: i64) {
        let mut sum = self.of(key);
        // The resolver never commits a sum that leaves 64 bits, but an outcome in a file may come from elsewhere.
        sum.center = sum.center.saturating_add(delta);
        self.set(key, sum);
    }

    /// Sets the known bounds of a row.
    pub(crate) fn set(&mut self, key: RowKey, sum: Sum) {
        let fresh = self.bucket_mut(key).insert(named(key), sum).is_none();
        self.rows += usize::from(fresh);
    }

    /// Forgets a row.
    pub(crate) fn remove(&mut self, key: RowKey) {
        let known = self.bucket_mut(key).remove(&named(key)).is_some();
        self.rows -= usize::from(known);
    }

    /// Returns the number of rows with an entry.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the bytes charged for them.
    pub(crate) fn bytes(&self) -> usize {
        self.rows * ENTRY_BYTES
    }

    /// Returns all rows, for images.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (RowKey, Sum)> {
        self.buckets.iter().flat_map(|bucket| bucket.iter().map(|(&key, &sum)| (key, sum)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> RowKey {
        RowKey { hi: n, lo: n << 8 }
    }

    #[test]
    fn headroom_ends_where_64_bits_end() {
        let exact = |center| Sum { center, exact: true }.headroom();
        assert_eq!(exact(i64::MAX).after(1), None);
        assert!(exact(i64::MAX).after(0).is_some());
        assert!(exact(i64::MAX).after(i64::MIN).is_some());
        assert_eq!(exact(-2).after(i64::MIN), None);
        assert!(exact(-1).after(i64::MIN + 1).is_some());
        assert!(exact(i64::MIN).after(i64::MAX).is_some_and(|left| left.after(i64::MAX).is_some()));
        let unknown = Sum::UNKNOWN.headroom();
        assert!(unknown.after(i64::MAX - SMALL as i64).is_some_and(|left| left.after(1).is_none()));
        assert!(unknown.after(i64::MIN + SMALL as i64).is_some_and(|left| left.after(-1).is_none()));
    }

    #[test]
    fn additions_and_subtractions_are_counted_separately() {
        let left = Sum { center: i64::MAX - 5, exact: true }.headroom().after(5);
        let left = left.and_then(|left| left.after(-5)).expect("room below");
        assert_eq!(left.after(1), None, "the five that were taken away may come last");
    }

    #[test]
    fn the_longest_short_text_fits_its_field() {
        assert_eq!(SMALL, "9".repeat(SMALL_TEXT_BYTES as usize).parse().expect("a number"));
        assert_eq!(integer_of(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(integer_of(b"9223372036854775808"), None);
        assert_eq!(integer_of(b"\xff"), None);
    }

    #[test]
    fn a_copy_does_not_see_what_follows() {
        let mut sums = RowSums::default();
        sums.add(key(1), 5);
        sums.add(key(2), 7);
        let copy = sums.clone();
        sums.add(key(1), 1);
        sums.remove(key(2));
        sums.remove(key(3));
        assert_eq!((copy.of(key(1)).center, copy.of(key(2)).center, copy.rows()), (5, 7, 2));
        assert_eq!((sums.of(key(1)).center, sums.of(key(2)), sums.rows()), (6, Sum::UNKNOWN, 1));
        assert_eq!(sums.entries().count(), 1);
    }
}
