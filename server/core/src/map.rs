//! The version map of one shard: row -> newest version, for every row that is known.
//!
//! Open addressing with linear probing in 256 segments that grow one by one, so no growth stops the epoch for long.
//! An entry takes 24 bytes; a segment is at least 53 % and at most 75 % full once it has grown beyond its first few
//! rows, so a tracked row costs 32 to 45 bytes in every fill state. Rows are named by keyed hashes, so a client
//! cannot aim at a probe chain. Never iterated except for images.

use alloc::boxed::Box;
use alloc::vec::Vec;

use tribunal_types::{RowKey, Version};

use crate::prefetch::prefetch;

/// Flags of a known row, in the low byte of an entry's second word.
pub(crate) mod row_flag {
    /// The slot holds a row. Set in every entry that is not empty.
    pub(crate) const KNOWN: u8 = 1;
    /// The row was deleted at its version.
    pub(crate) const TOMBSTONE: u8 = 2;
    /// The row's value is an integer.
    pub(crate) const INTEGER: u8 = 4;
}

/// What the map knows of a row. The last 8 bits of the key are given up for the flags: 120 bits name the row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Entry {
    pub(crate) hi: u64,
    /// 56 bits of the key above 8 bits of flags.
    pub(crate) lo_flags: u64,
    /// `Version::bits` of the newest write, the deletion's for a tombstone.
    pub(crate) version: u64,
}

impl Entry {
    fn new(key: RowKey, version: Version, flags: u8) -> Entry {
        let flags = u64::from(flags | row_flag::KNOWN);
        Entry { hi: key.hi, lo_flags: key.lo & !0xff | flags, version: version.bits() }
    }

    #[inline(always)]
    pub(crate) fn flags(&self) -> u8 {
        self.lo_flags as u8
    }

    #[inline(always)]
    fn is(&self, key: RowKey) -> bool {
        // Flags apart, but for the one that tells an entry from an empty slot.
        const NAME: u64 = !0xff | row_flag::KNOWN as u64;
        self.hi == key.hi && self.lo_flags & NAME == key.lo & !0xff | u64::from(row_flag::KNOWN)
    }

    /// What an epoch knows of a row that the map does not know.
    pub(crate) fn unknown(key: RowKey) -> Entry {
        Entry { hi: key.hi, lo_flags: key.lo & !0xff, version: 0 }
    }

    /// Tells whether the entry, known or not, is of this row.
    #[inline(always)]
    pub(crate) fn names(&self, key: RowKey) -> bool {
        self.hi == key.hi && (self.lo_flags ^ key.lo) < 0x100
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.lo_flags & u64::from(row_flag::KNOWN) == 0
    }

    /// The row's key without its last 8 bits, which nothing here looks at.
    pub(crate) fn key(&self) -> RowKey {
        RowKey { hi: self.hi, lo: self.lo_flags & !0xff }
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, version: Version, flags: u8) {
        self.lo_flags = self.lo_flags & !0xff | u64::from(flags | row_flag::KNOWN);
        self.version = version.bits();
    }
}

/// "No slot known": a hint that never fits.
pub(crate) const NO_SLOT: u32 = u32::MAX;

const SEGMENT_BITS: u32 = 8;
const SEGMENT_SLOTS_MIN: usize = 4;

#[derive(Clone, Debug, Default)]
struct Segment {
    slots: Vec<Entry>,
    rows: usize,
}

impl Segment {
    /// Fastrange over the 32 bits of `lo` behind the segment's: any size will do, not only powers of two.
    #[inline(always)]
    fn home(&self, lo: u64) -> usize {
        let spread = lo >> (64 - SEGMENT_BITS - 32) & 0xffff_ffff;
        ((spread * self.slots.len() as u64) >> 32) as usize
    }

    #[inline(always)]
    fn find(&self, key: RowKey) -> Option<usize> {
        let mut at = self.home(key.lo);
        loop {
            // Behind the last slot the chain goes on at the first; a segment without slots has none there either.
            let entry = match self.slots.get(at) {
                Some(entry) => entry,
                None => {
                    at = 0;
                    self.slots.first()?
                }
            };
            if entry.is(key) {
                return Some(at);
            }
            if entry.is_empty() {
                return None;
            }
            at += 1;
        }
    }

    /// How many slots behind its home an entry of these bits lies at `at`.
    #[inline(always)]
    fn distance(&self, lo: u64, at: usize) -> usize {
        let home = self.home(lo);
        if at >= home { at - home } else { at + self.slots.len() - home }
    }

    /// Adds an entry whose row is not there yet. One that lies nearer to its home makes room (Celis, "Robin Hood
    /// hashing"): hardly any row then lies behind the lines that [`VersionMap::prefetch`] asks for.
    fn place(&mut self, mut entry: Entry) {
        let size = self.slots.len();
        let mut at = self.home(entry.lo_flags);
        let mut distance = 0;
        while !self.slots[at].is_empty() {
            let theirs = self.distance(self.slots[at].lo_flags, at);
            if theirs < distance {
                core::mem::swap(&mut self.slots[at], &mut entry);
                distance = theirs;
            }
            distance += 1;
            at += 1;
            if at == size {
                at = 0;
            }
        }
        self.slots[at] = entry;
    }

    /// Grows by two fifths when three quarters are full.
    fn reserve_one(&mut self) {
        let size = self.slots.len();
        if (self.rows + 1) * 4 <= size * 3 {
            return;
        }
        let grown = (size + size * 2 / 5).max(size + 2).max(SEGMENT_SLOTS_MIN);
        let old = core::mem::replace(&mut self.slots, alloc::vec![Entry::default(); grown]);
        for entry in old {
            if !entry.is_empty() {
                self.place(entry);
            }
        }
    }

    /// Empties a slot and moves the chain behind it up, so no deletion marks are left.
    fn remove_at(&mut self, hole: usize) {
        let size = self.slots.len();
        let distance = |from: usize, to: usize| if to >= from { to - from } else { to + size - from };
        let mut hole = hole;
        let mut at = hole;
        loop {
            at = if at + 1 == size { 0 } else { at + 1 };
            let entry = self.slots[at];
            if entry.is_empty() {
                break;
            }
            if distance(self.home(entry.lo_flags), at) >= distance(hole, at) {
                self.slots[hole] = entry;
                hole = at;
            }
        }
        self.slots[hole] = Entry::default();
        self.rows -= 1;
    }
}

/// Row -> newest version.
#[derive(Clone, Debug)]
pub(crate) struct VersionMap {
    /// As many as an index of [`SEGMENT_BITS`] can name, so no index is out of bounds.
    segments: Box<[Segment; 1 << SEGMENT_BITS]>,
}

impl VersionMap {
    pub(crate) fn new() -> VersionMap {
        VersionMap { segments: Box::new(core::array::from_fn(|_| Segment::default())) }
    }

    #[inline(always)]
    fn segment(&self, lo: u64) -> &Segment {
        &self.segments[usize::from((lo >> (64 - SEGMENT_BITS)) as u8)]
    }

    #[inline(always)]
    fn segment_mut(&mut self, lo: u64) -> &mut Segment {
        &mut self.segments[usize::from((lo >> (64 - SEGMENT_BITS)) as u8)]
    }

    /// Starts loading the row's slot.
    #[inline(always)]
    pub(crate) fn prefetch(&self, key: RowKey) {
        let segment = self.segment(key.lo);
        let home = segment.home(key.lo);
        prefetch(&segment.slots, home);
        // A chain is a few entries long, so it often reaches into the next line.
        prefetch(&segment.slots, home + 3);
    }

    /// Starts loading a row's slot; `hint` is where it was found before.
    #[inline(always)]
    pub(crate) fn prefetch_at(&self, key: RowKey, hint: u32) {
        if hint == NO_SLOT {
            return self.prefetch(key);
        }
        let slots = &self.segment(key.lo).slots;
        prefetch(slots, hint as usize);
    }

    /// Returns a row's slot (within its segment, valid until the next insertion) and what is known of it.
    #[inline(always)]
    pub(crate) fn find(&self, key: RowKey) -> Option<(u32, Entry)> {
        let segment = self.segment(key.lo);
        segment.find(key).map(|at| (at as u32, segment.slots[at]))
    }

    /// Returns a known row for change; `hint` is the slot where it was found.
    #[inline(always)]
    pub(crate) fn at_mut(&mut self, key: RowKey, hint: u32) -> Option<&mut Entry> {
        let segment = self.segment_mut(key.lo);
        let at = match segment.slots.get(hint as usize) {
            Some(entry) if entry.is(key) => hint as usize,
            _ => segment.find(key)?,
        };
        Some(&mut segment.slots[at])
    }

    /// Adds a row that is not known yet.
    pub(crate) fn insert_new(&mut self, key: RowKey, version: Version, flags: u8) {
        let segment = self.segment_mut(key.lo);
        debug_assert!(segment.find(key).is_none(), "a row is inserted once");
        segment.reserve_one();
        segment.place(Entry::new(key, version, flags));
        segment.rows += 1;
    }

    /// Forgets a row if it is known and `goner` says so.
    pub(crate) fn remove_if(&mut self, key: RowKey, goner: impl Fn(&Entry) -> bool) {
        let segment = self.segment_mut(key.lo);
        if let Some(at) = segment.find(key)
            && goner(&segment.slots[at])
        {
            segment.remove_at(at);
        }
    }

    /// Known rows, tombstones included.
    pub(crate) fn rows(&self) -> usize {
        self.segments.iter().map(|s| s.rows).sum()
    }

    /// Bytes of all slots, full and empty.
    pub(crate) fn bytes(&self) -> usize {
        self.segments.iter().map(|s| s.slots.capacity() * size_of::<Entry>()).sum()
    }

    /// All rows, in the order of the slots: only for images, whose order means nothing.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.segments.iter().flat_map(|s| s.slots.iter()).filter(|e| !e.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use tribunal_types::Cen;

    use super::*;

    /// SplitMix64: rows' names are hashes, so the tests' are as well.
    fn key(n: u64) -> RowKey {
        let mix = |n: u64| {
            let z = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        };
        RowKey { hi: mix(2 * n + 1), lo: mix(2 * n + 2) }
    }

    fn version(n: u64) -> Version {
        Version::new(Cen(n + 1), 0).expect("fits")
    }

    #[test]
    fn agrees_with_an_ordered_map_under_insertion_change_and_removal() {
        let mut map = VersionMap::new();
        let mut model = BTreeMap::new();
        for step in 0..60_000_u64 {
            let n = step.wrapping_mul(2_654_435_761) % 9_973;
            match step % 5 {
                0..=2 => {
                    match map.at_mut(key(n), NO_SLOT) {
                        Some(entry) => entry.set(version(step), row_flag::INTEGER),
                        None => map.insert_new(key(n), version(step), row_flag::INTEGER),
                    }
                    model.insert(n, step);
                }
                3 => {
                    map.remove_if(key(n), |_| true);
                    model.remove(&n);
                }
                _ => map.remove_if(key(n), |_| false),
            }
        }
        assert_eq!(map.rows(), model.len());
        for n in 0..9_973 {
            let found = map.find(key(n)).map(|(_, e)| e.version);
            assert_eq!(found, model.get(&n).map(|&step| version(step).bits()), "row {n}");
        }
        assert_eq!(map.entries().count(), model.len());
    }

    #[test]
    fn a_row_costs_at_most_48_bytes_in_every_fill_state() {
        let mut map = VersionMap::new();
        for n in 0..400_000 {
            map.insert_new(key(n), version(n), 0);
            if n >= 50_000 && n % 997 == 0 {
                let per_row = map.bytes() as u64 * 10 / map.rows() as u64;
                assert!(per_row <= 480, "{per_row} tenths of a byte at {n} rows");
            }
        }
    }

    #[test]
    fn a_hint_that_has_moved_is_not_believed() {
        let mut map = VersionMap::new();
        map.insert_new(key(0), version(0), 0);
        let (slot, _) = map.find(key(0)).expect("there");
        for n in 1..5_000 {
            map.insert_new(key(n), version(n), 0);
        }
        assert_eq!(map.at_mut(key(0), slot).map(|e| e.version), Some(version(0).bits()));
        assert!(map.at_mut(key(9_999), slot).is_none());
    }
}
