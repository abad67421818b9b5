//! The id table: which transaction ids have a verdict, and where it is stored.
//!
//! Bucketed by the second in the id (a UUIDv7, see `id_bucket`), so that a whole second is forgotten at once. An id
//! outside the window around `epoch_time`, or older than the forgotten ones, is rejected and never executed, so the
//! table is finite and a forgotten id cannot run again. Ids are scoped by namespace. Never iterated except for images.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::ops::Range;

use tribunal_types::{BodyHash, Epoch, TxnId, VerdictAt};

use crate::state::id_bucket::{ID_BYTES, IdBucket, IdEntry};
use crate::state::scoped_id::ScopedId;

/// The status of an id in the id table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Never decided; it may still be executed.
    Unknown,
    /// Decided: position of its verdict, and the body it was decided for (`None` if it came without one).
    At(VerdictAt, Option<BodyHash>),
    /// Not known, and too old or too far ahead to be executed.
    OutsideWindow,
}

/// Returns the entry to search for in the id's bucket: the id without a verdict.
#[inline]
fn wanted(id: &ScopedId) -> IdEntry {
    IdEntry::new(id, None, VerdictAt { epoch: Epoch(0), item: 0 })
}

/// Bounds of the id table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdLimits {
    pub(crate) window_ms: u64,
    pub(crate) age_ms: u64,
    pub(crate) bytes_max: u64,
}

/// All decided ids that are still readable.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdTable {
    buckets: Vec<IdBucket>,
    /// Index in `buckets` by second.
    seconds: BTreeMap<u64, u32>,
    /// Indexes of emptied buckets.
    vacant: Vec<u32>,
    /// Second and bucket looked up last: most ids have the same second.
    last: (u64, u32),
    count: u64,
    /// Ids below this time in milliseconds may have been forgotten.
    floor_ms: u64,
    /// The copy of the ids being made.
    copy: Option<IdCopy>,
}

/// A copy of the ids as of one moment, made in slices. New entries are only appended to their second.
#[derive(Clone, Debug, Default)]
struct IdCopy {
    /// Seconds not yet copied, ascending, each with the positions still to be copied.
    left: VecDeque<(u64, Range<usize>)>,
    entries: Vec<IdEntry>,
}

impl IdCopy {
    /// Copies at most `max` ids of the oldest remaining second, whose bucket this is.
    fn add(&mut self, bucket: &IdBucket, max: usize) {
        let Some((_, missing)) = self.left.front_mut() else { return };
        let slice = missing.start..missing.end.min(missing.start.saturating_add(max));
        missing.start = slice.end;
        bucket.copy(slice, &mut self.entries);
        if missing.start == missing.end {
            self.left.pop_front();
        }
    }
}

const NO_BUCKET: u32 = u32::MAX;
/// Maximum number of ids copied per step.
const COPIED_AT_ONCE: usize = 1 << 14;
/// Maximum number of emptied buckets that keep their memory for later seconds.
const VACANT_KEPT_MAX: usize = 2;

impl IdTable {
    pub(crate) fn new() -> IdTable {
        IdTable { last: (0, NO_BUCKET), ..IdTable::default() }
    }

    #[inline]
    fn bucket(&self, second: u64) -> Option<&IdBucket> {
        let ix =
            if self.last.0 == second && self.last.1 != NO_BUCKET { self.last.1 } else { *self.seconds.get(&second)? };
        Some(&self.buckets[ix as usize])
    }

    #[inline]
    fn bucket_mut(&mut self, second: u64, seed: u64) -> &mut IdBucket {
        if self.last.0 != second || self.last.1 == NO_BUCKET {
            self.last = (second, self.open(second, seed));
        }
        &mut self.buckets[self.last.1 as usize]
    }

    #[cold]
    fn open(&mut self, second: u64, seed: u64) -> u32 {
        let IdTable { buckets, seconds, vacant, .. } = self;
        // Seconds tend to have similar numbers of ids.
        let likely = buckets.get(self.last.1 as usize).map_or(0, IdBucket::len);
        *seconds.entry(second).or_insert_with(|| {
            let ix = vacant.pop().unwrap_or_else(|| {
                buckets.push(IdBucket::default());
                buckets.len() as u32 - 1
            });
            buckets[ix as usize].open(seed, likely);
            ix
        })
    }

    /// Starts loading the data that [`IdTable::find`] will need.
    #[inline]
    pub(crate) fn prefetch(&self, id: &ScopedId) {
        if let Some(bucket) = self.bucket(id.second()) {
            bucket.prefetch(&wanted(id));
        }
    }

    /// Returns the position of the id's verdict, and its body.
    #[inline]
    pub(crate) fn find(&self, id: &ScopedId) -> Option<(VerdictAt, Option<BodyHash>)> {
        self.bucket(id.second())?.find(&wanted(id)).map(|entry| (entry.at(), entry.body()))
    }

    /// Returns whether an unknown id must not be executed because of its time: outside the window, or possibly
    /// forgotten.
    #[inline]
    pub(crate) fn is_outside(&self, id: TxnId, epoch_time_ms: u64, limits: &IdLimits) -> bool {
        let ms = id.unix_ms();
        ms < self.floor_ms || ms.abs_diff(epoch_time_ms) > limits.window_ms
    }

    /// Adds an id unless it is known. `seed` keys a new second's index and has no effect on any answer.
    pub(crate) fn insert(&mut self, id: &ScopedId, body: Option<BodyHash>, at: VerdictAt, seed: u64) {
        self.find_or_insert(id, body, at, seed);
    }

    /// Returns the verdict of a known id, or adds it like [`IdTable::insert`].
    #[inline]
    pub(crate) fn find_or_insert(
        &mut self,
        id: &ScopedId,
        body: Option<BodyHash>,
        at: VerdictAt,
        seed: u64,
    ) -> Option<(VerdictAt, Option<BodyHash>)> {
        let found = self.bucket_mut(id.second(), seed).find_or_insert(IdEntry::new(id, body, at));
        let found = found.map(|entry| (entry.at(), entry.body()));
        self.count += u64::from(found.is_none());
        found
    }

    /// Forgets seconds that are too old, then the oldest ones until the rest fits.
    pub(crate) fn expire(&mut self, epoch_time_ms: u64, limits: &IdLimits) {
        while let Some((&second, &ix)) = self.seconds.first_key_value() {
            let end = (second + 1) * 1000;
            let too_old = end + limits.age_ms <= epoch_time_ms;
            if !too_old && self.bytes() <= limits.bytes_max {
                break;
            }
            self.seconds.pop_first();
            let bucket = &mut self.buckets[ix as usize];
            self.count -= bucket.len() as u64;
            if let Some(copy) = &mut self.copy
                && copy.left.front().is_some_and(|(oldest, _)| *oldest == second)
            {
                copy.add(bucket, usize::MAX);
            }
            if self.vacant.len() < VACANT_KEPT_MAX {
                bucket.clear();
            } else {
                *bucket = IdBucket::default();
            }
            self.vacant.push(ix);
            self.last = (0, NO_BUCKET);
            self.floor_ms = self.floor_ms.max(end);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.count * ID_BYTES
    }

    pub(crate) fn floor_ms(&self) -> u64 {
        self.floor_ms
    }

    pub(crate) fn set_floor_ms(&mut self, floor_ms: u64) {
        self.floor_ms = floor_ms;
    }

    /// Begins to copy the current ids. Abandons an unfinished copy.
    pub(crate) fn begin_copy(&mut self) {
        let left = self.seconds.iter().map(|(&second, &ix)| (second, 0..self.buckets[ix as usize].len()));
        let left = left.filter(|(_, missing)| !missing.is_empty()).collect();
        self.copy = Some(IdCopy { left, entries: Vec::with_capacity(self.count as usize) });
    }

    /// Copies some more ids, and returns the copy after the last ones.
    pub(crate) fn step_copy(&mut self) -> Option<Vec<IdEntry>> {
        let copy = self.copy.as_mut()?;
        if let Some(&(second, _)) = copy.left.front() {
            let bucket = &self.buckets[self.seconds[&second] as usize];
            copy.add(bucket, COPIED_AT_ONCE);
        }
        if copy.left.is_empty() { self.copy.take().map(|copy| copy.entries) } else { None }
    }

    /// Returns all entries by ascending second, then in order of arrival, for images.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &IdEntry> {
        self.seconds.values().flat_map(|&ix| self.buckets[ix as usize].iter())
    }
}

#[cfg(test)]
mod tests {
    use tribunal_types::NamespaceId;

    use super::*;

    const LIMITS: IdLimits = IdLimits { window_ms: 10_000, age_ms: 60_000, bytes_max: 100 * ID_BYTES };

    fn id(ms: u64, n: u64) -> ScopedId {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(ms << 16 | 0x7000).to_be_bytes());
        bytes[8..].copy_from_slice(&(1 << 63 | n).to_be_bytes());
        ScopedId { namespace: NamespaceId(1), id: TxnId(bytes) }
    }

    fn at(item: u32) -> VerdictAt {
        VerdictAt { epoch: Epoch(3), item }
    }

    #[test]
    fn only_stored_ids_are_found() {
        let mut table = IdTable::new();
        for n in 0..500 {
            table.insert(&id(n * 100, n), Some(BodyHash(n)), at(n as u32), 7);
        }
        for n in 0..500 {
            assert_eq!(table.find(&id(n * 100, n)), Some((at(n as u32), Some(BodyHash(n)))));
            assert_eq!(table.find(&id(n * 100, n + 1)), None);
            let foreign = ScopedId { namespace: NamespaceId(2), ..id(n * 100, n) };
            assert_eq!(table.find(&foreign), None, "ids are scoped by namespace");
        }
        let filed: Vec<_> = table.entries().map(IdEntry::scoped).collect();
        assert_eq!(filed[7], id(700, 7));
    }

    #[test]
    fn an_id_is_stored_once() {
        let (mut table, mut twice) = (IdTable::new(), IdTable::new());
        for n in 0..500 {
            let id = id(n % 7 * 1000, n % 210);
            let known = twice.find(&id);
            if known.is_none() {
                twice.insert(&id, Some(BodyHash(n)), at(n as u32), 7);
            }
            assert_eq!(table.find_or_insert(&id, Some(BodyHash(n)), at(n as u32), 7), known);
        }
        assert!(table.count() < 500, "some came twice");
        assert_eq!(table.count(), twice.count());
        assert!(table.entries().eq(twice.entries()));
    }

    #[test]
    fn a_full_table_drops_its_oldest_second_and_rejects_ids_from_it() {
        let mut table = IdTable::new();
        for n in 0..120 {
            table.insert(&id(20_000 + n / 60 * 1000, n), None, at(0), 1);
        }
        table.expire(21_000, &LIMITS);
        assert_eq!((table.count(), table.floor_ms()), (60, 21_000));
        assert_eq!(table.find(&id(20_000, 0)), None);
        assert!(table.is_outside(id(20_999, 0).id, 21_000, &LIMITS), "forgotten");
        assert!(!table.is_outside(id(21_000, 500).id, 21_000, &LIMITS));
        assert!(table.is_outside(id(31_001, 0).id, 21_000, &LIMITS), "too far ahead");
    }

    #[test]
    fn old_seconds_are_removed_over_time() {
        let mut table = IdTable::new();
        table.insert(&id(1_000, 0), None, at(0), 1);
        table.insert(&id(9_000, 0), None, at(1), 1);
        table.expire(62_000, &LIMITS);
        assert_eq!(table.count(), 1);
        assert_eq!(table.find(&id(9_000, 0)), Some((at(1), None)));
    }
}
