//! The version map of one shard: the newest version of every known row.
//!
//! Open addressing with linear probing in 256 segments that grow one by one, so no growth stalls the epoch for long. A
//! byte of tag per slot is kept separately: a row's slot is found in the tags, which are small enough for the caches,
//! and only one entry is loaded from memory instead of the whole probe sequence. An entry takes 24 bytes and its tag
//! one; a segment is at least 59 % and at most 82 % full once it has grown beyond its first few rows, so a tracked row
//! costs 31 to 43 bytes in every fill state. Rows are named by keyed hashes, so a client cannot target a probe chain.
//! Never iterated except for images.

use alloc::boxed::Box;

use tribunal_types::{Epoch, RowKey, Version};

use crate::state::map_copy::MapCopy;
use crate::state::map_entry::Entry;
use crate::state::prefetch::prefetch;

/// No known slot: a hint that never matches.
pub(crate) const NO_SLOT: u32 = u32::MAX;

const SEGMENT_BITS: u32 = 8;
const SEGMENT_SLOTS_MIN: usize = TAGS;

/// Tags compared at once: those in one word.
const TAGS: usize = 8;

/// Returns the tag of a row's slot: bits of the key that select neither segment nor home, and a set lowest bit to
/// distinguish it from 0, the tag of an empty slot.
#[inline(always)]
fn tag_of(lo: u64) -> u8 {
    (lo >> 8) as u8 | 1
}

/// The tags of [`TAGS`] slots, the first in the low byte.
#[derive(Clone, Copy)]
struct Tags(u64);

impl Tags {
    const ONES: u64 = u64::MAX / 0xff;

    /// Returns the high bits of the bytes equal to `tag`; after the first match, possibly also those of other bytes.
    #[inline(always)]
    fn equal(self, tag: u8) -> u64 {
        let differing = self.0 ^ (u64::from(tag) * Self::ONES);
        differing.wrapping_sub(Self::ONES) & !differing & (Self::ONES << 7)
    }
}

/// Returns the position of the first slot in the output of [`Tags::equal`]; [`TAGS`] if there is none.
#[inline(always)]
fn first(equal: u64) -> usize {
    equal.trailing_zeros() as usize / 8
}

#[derive(Clone, Debug, Default)]
struct Segment {
    /// By slot, followed by copies of the first ones, so that a word of tags can be read at any slot.
    tags: Box<[u8]>,
    slots: Box<[Entry]>,
    rows: usize,
}

impl Segment {
    /// Fastrange over the 32 bits of `lo` after the segment's bits: any size works, not only powers of two.
    #[inline(always)]
    fn home(&self, lo: u64) -> usize {
        let spread = lo >> (64 - SEGMENT_BITS - 32) & 0xffff_ffff;
        ((spread * self.slots.len() as u64) >> 32) as usize
    }

    /// Wraps a slot number: after the last slot, the chain continues at the first.
    #[inline(always)]
    fn wrapped(&self, at: usize) -> usize {
        if at >= self.slots.len() { at - self.slots.len() } else { at }
    }

    /// Returns the tags from slot `at` on; a segment without slots reads as empty.
    #[inline(always)]
    fn tags_at(&self, at: usize) -> Tags {
        let word = self.tags.get(at..).and_then(|tags| tags.first_chunk());
        Tags(word.map_or(0, |word| u64::from_le_bytes(*word)))
    }

    /// Returns the slot of the first matching tag: nearly always the row's, if the row is known.
    #[inline(always)]
    fn likely(&self, lo: u64, home: usize) -> usize {
        self.wrapped(home + first(self.tags_at(home).equal(tag_of(lo))))
    }

    #[inline(always)]
    fn find(&self, key: RowKey) -> Option<usize> {
        let mut at = self.home(key.lo);
        loop {
            let tags = self.tags_at(at);
            let mut fitting = tags.equal(tag_of(key.lo));
            while fitting != 0 {
                let slot = self.wrapped(at + first(fitting));
                if self.slots[slot].is(key) {
                    return Some(slot);
                }
                fitting &= fitting - 1;
            }
            if tags.equal(0) != 0 {
                return None;
            }
            at = self.wrapped(at + TAGS);
        }
    }

    /// Fills or empties a slot.
    fn set(&mut self, at: usize, entry: Entry) {
        let tag = if entry.is_empty() { 0 } else { tag_of(entry.lo_flags) };
        self.slots[at] = entry;
        self.tags[at] = tag;
        if at < TAGS - 1 {
            self.tags[self.slots.len() + at] = tag;
        }
    }

    /// Returns the distance from the home of an entry with these bits to slot `at`.
    #[inline(always)]
    fn distance(&self, lo: u64, at: usize) -> usize {
        let home = self.home(lo);
        if at >= home { at - home } else { at + self.slots.len() - home }
    }

    /// Adds an entry whose row is not present yet, displacing entries that are nearer to their home (Celis, "Robin Hood
    /// hashing"): hardly any row's tag is then outside its home's word.
    fn place(&mut self, mut entry: Entry) {
        let mut at = self.home(entry.lo_flags);
        let mut distance = 0;
        loop {
            let there = self.slots[at];
            if there.is_empty() {
                return self.set(at, entry);
            }
            let theirs = self.distance(there.lo_flags, at);
            if theirs < distance {
                self.set(at, entry);
                entry = there;
                distance = theirs;
            }
            distance += 1;
            at = self.wrapped(at + 1);
        }
    }

    /// Grows by three eighths when thirteen sixteenths are full.
    fn reserve_one(&mut self) {
        let size = self.slots.len();
        if (self.rows + 1) * 16 <= size * 13 {
            return;
        }
        let grown = (size + size * 3 / 8).max(SEGMENT_SLOTS_MIN);
        let old = core::mem::replace(&mut self.slots, alloc::vec![Entry::default(); grown].into());
        self.tags = alloc::vec![0; grown + TAGS - 1].into();
        for entry in old {
            if !entry.is_empty() {
                self.place(entry);
            }
        }
    }

    /// Empties a slot and shifts the chain after it back, so that no deletion marks are left.
    fn remove_at(&mut self, hole: usize) {
        let mut hole = hole;
        loop {
            let next = self.wrapped(hole + 1);
            let entry = self.slots[next];
            if entry.is_empty() || self.distance(entry.lo_flags, next) == 0 {
                break;
            }
            self.set(hole, entry);
            hole = next;
        }
        self.set(hole, Entry::default());
        self.rows -= 1;
    }
}

/// The newest version by row.
#[derive(Debug)]
pub(crate) struct VersionMap {
    /// As many as [`SEGMENT_BITS`] bits can index, so no index is out of bounds.
    segments: Box<[Segment; 1 << SEGMENT_BITS]>,
    /// The copy of the rows being made.
    copy: Option<Box<MapCopy>>,
}

/// Returns the number of a row's segment: one byte, so that no index is out of bounds.
#[inline(always)]
fn segment_of(lo: u64) -> usize {
    usize::from((lo >> (64 - SEGMENT_BITS)) as u8)
}

impl VersionMap {
    pub(crate) fn new() -> VersionMap {
        VersionMap { segments: Box::new(core::array::from_fn(|_| Segment::default())), copy: None }
    }

    #[inline(always)]
    fn segment(&self, lo: u64) -> &Segment {
        &self.segments[segment_of(lo)]
    }

    #[inline(always)]
    fn segment_mut(&mut self, lo: u64) -> &mut Segment {
        &mut self.segments[segment_of(lo)]
    }

    /// Returns the slot where the row's tags begin, and starts loading them.
    #[inline(always)]
    pub(crate) fn prefetch_tags(&self, key: RowKey) -> u32 {
        let segment = self.segment(key.lo);
        let home = segment.home(key.lo);
        prefetch(&segment.tags, home);
        home as u32
    }

    /// Returns the most likely slot of the row, if it is known, and starts loading it; `home` is the result of
    /// [`VersionMap::prefetch_tags`].
    #[inline(always)]
    pub(crate) fn prefetch_likely(&self, key: RowKey, home: u32) -> u32 {
        let segment = self.segment(key.lo);
        let slot = segment.likely(key.lo, home as usize);
        prefetch(&segment.slots, slot);
        slot as u32
    }

    /// Starts loading a row's slot; `hint` is its slot when last found.
    #[inline(always)]
    pub(crate) fn prefetch_at(&self, key: RowKey, hint: u32) {
        let segment = self.segment(key.lo);
        let slot = if hint == NO_SLOT { segment.likely(key.lo, segment.home(key.lo)) } else { hint as usize };
        prefetch(&segment.slots, slot);
    }

    /// Returns the same as [`VersionMap::find`], given the result of [`VersionMap::prefetch_likely`].
    #[inline(always)]
    pub(crate) fn find_at(&self, key: RowKey, likely: u32) -> Option<(u32, &Entry)> {
        let segment = self.segment(key.lo);
        match segment.slots.get(likely as usize) {
            Some(entry) if entry.is(key) => Some((likely, entry)),
            _ => segment.find(key).map(|at| (at as u32, &segment.slots[at])),
        }
    }

    /// Returns a row's slot (within its segment, valid until the next insertion) and its entry.
    #[inline(always)]
    pub(crate) fn find(&self, key: RowKey) -> Option<(u32, Entry)> {
        let segment = self.segment(key.lo);
        segment.find(key).map(|at| (at as u32, segment.slots[at]))
    }

    /// Returns a known row for modification; `hint` is its slot when last found.
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

    /// Adds a row that is not known yet, with the version of an early epoch.
    pub(crate) fn import_new(&mut self, key: RowKey, version: Version, flags: u8) {
        self.insert_new(key, version, flags);
        if let Some(copy) = &mut self.copy {
            copy.note_imported(segment_of(key.lo), Entry::unknown(key).key());
        }
    }

    /// Removes a row if it is known and `is_gone` is true for it, and returns its entry.
    pub(crate) fn remove_if(&mut self, key: RowKey, is_gone: impl Fn(&Entry) -> bool) -> Option<Entry> {
        let segment = self.segment_mut(key.lo);
        let at = segment.find(key).filter(|&at| is_gone(&segment.slots[at]))?;
        let entry = segment.slots[at];
        segment.remove_at(at);
        if let Some(copy) = &mut self.copy {
            copy.note_before(segment_of(key.lo), &entry);
        }
        Some(entry)
    }

    /// Notes the previous state of an entry that was changed in place. Must be called for each change.
    #[inline(always)]
    pub(crate) fn changed(&mut self, before: &Entry) {
        if let Some(copy) = &mut self.copy {
            copy.note_before(segment_of(before.lo_flags), before);
        }
    }

    /// Begins to copy the current rows, after epoch `upto`; changes from now on belong to later epochs. Abandons an
    /// unfinished copy.
    pub(crate) fn begin_copy(&mut self, upto: Epoch) {
        self.copy = Some(Box::new(MapCopy::new(upto, self.rows())));
    }

    /// Copies one more segment, and returns the copy after the last one.
    pub(crate) fn step_copy(&mut self) -> Option<MapCopy> {
        let copy = self.copy.as_mut()?;
        let segment = self.segments.get(copy.segments_done())?;
        copy.add_segment(segment.slots.iter().filter(|e| !e.is_empty()));
        if copy.segments_done() < self.segments.len() {
            return None;
        }
        self.copy.take().map(|copy| *copy)
    }

    /// Returns the number of known rows, tombstones included.
    pub(crate) fn rows(&self) -> usize {
        self.segments.iter().map(|s| s.rows).sum()
    }

    /// Returns the bytes of all slots, full and empty.
    pub(crate) fn bytes(&self) -> usize {
        self.segments.iter().map(|s| size_of_val(&*s.slots) + s.tags.len()).sum()
    }

    /// Returns all rows in slot order; only for images, where order has no meaning.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.segments.iter().flat_map(|s| s.slots.iter()).filter(|e| !e.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use alloc::collections::BTreeMap;

    use tribunal_types::Epoch;

    use super::*;
    use crate::state::map_entry::row_flag;

    /// SplitMix64: real row names are hashes, so the tests use hashes as well.
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
        Version::new(Epoch(n + 1), 0).expect("fits")
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
                    let _ = map.remove_if(key(n), |_| true);
                    model.remove(&n);
                }
                _ => assert_eq!(map.remove_if(key(n), |_| false), None),
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
    fn a_stale_hint_is_not_used() {
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
