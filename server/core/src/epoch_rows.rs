//! The rows that one epoch touches in one shard, each once, with what the map knows of it.
//!
//! Small enough to stay in the cache while the epoch resolves, so a hot row costs one probe of the large map however
//! often it is touched. Emptied for each epoch, its memory is kept.

use alloc::vec::Vec;
use core::ops::Range;

use tribunal_types::{RowKey, Version};

use crate::map::{Entry, NO_SLOT, VersionMap, row_flag};
use crate::prefetch::prefetch;
use crate::shard::ShardPlace;

/// "Not of this shard", "nobody", "not contended".
pub(crate) const NONE: u32 = u32::MAX;

/// A row touched in this epoch: 32 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochRow {
    /// What the map knows.
    pub(crate) entry: Entry,
    /// Where it was found in the map.
    pub(crate) slot: u32,
    /// The last transaction that reads it, with two bits: see [`EpochRow::note_read`].
    reader: u32,
}

impl EpochRow {
    /// The row is known and not deleted.
    #[inline(always)]
    pub(crate) fn is_live(&self) -> bool {
        self.entry.flags() & (row_flag::KNOWN | row_flag::TOMBSTONE) == row_flag::KNOWN
    }

    #[inline(always)]
    pub(crate) fn is_known(&self) -> bool {
        self.entry.flags() & row_flag::KNOWN != 0
    }

    /// The row's value is an integer, if it is live.
    #[inline(always)]
    pub(crate) fn is_integer(&self) -> bool {
        self.entry.flags() & row_flag::INTEGER != 0
    }

    /// The last write, a deletion's included; `None` if the row is not known.
    #[inline(always)]
    pub(crate) fn written_at(&self) -> Option<Version> {
        Version::from_bits(self.entry.version)
    }

    /// Version bits of a row that is there, 0 if it is not.
    #[inline(always)]
    pub(crate) fn live_version(&self) -> u64 {
        if self.is_live() { self.entry.version } else { 0 }
    }

    /// Notes that transaction `t` reads the row: whether it saw the newest state, and whether it saw a row at all.
    #[inline(always)]
    pub(crate) fn note_read(&mut self, t: u32, current: bool, present: bool) {
        self.reader = t << 2 | u32::from(current) << 1 | u32::from(present);
    }

    /// What transaction `t` itself read here: (current, present).
    #[inline(always)]
    pub(crate) fn read_by(&self, t: u32) -> Option<(bool, bool)> {
        (self.reader >> 2 == t).then_some((self.reader & 2 != 0, self.reader & 1 != 0))
    }
}

/// 32 bits of a key, of those that the map looks at.
#[inline(always)]
fn tag_of(key: RowKey) -> u64 {
    key.lo >> 8 & 0xffff_ffff
}

/// How many operations ahead a row's cache lines are asked for.
const LOOKAHEAD: usize = 12;

/// Rows of one epoch by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct EpochRows {
    /// 32 bits of key above the position in `rows`, counted from 1; at most half full.
    index: Vec<u64>,
    pub(crate) rows: Vec<EpochRow>,
}

impl EpochRows {
    /// Empties the table and makes room for as many rows.
    pub(crate) fn reset(&mut self, rows_max: usize) {
        let size = (rows_max * 2).next_power_of_two().max(64);
        self.index.clear();
        self.index.resize(size, 0);
        self.rows.clear();
        self.rows.reserve(rows_max);
    }

    /// Looks up the rows of `ops[which]`, of which this shard owns some, and writes their positions.
    #[inline(always)]
    pub(crate) fn look_up<T>(
        &mut self,
        place: ShardPlace,
        map: &VersionMap,
        ops: &[T],
        which: Range<usize>,
        key_of: impl Fn(&T) -> RowKey,
        positions: &mut [u32],
    ) {
        let ahead = ops.get(which.start + LOOKAHEAD..).unwrap_or(&[]);
        let mut ahead = ahead.iter();
        let own = &ops[which.clone()];
        for (op, position) in own.iter().zip(&mut positions[which]) {
            if let Some(next) = ahead.next() {
                let next = key_of(next);
                if place.owns(next) {
                    self.prefetch(next);
                    map.prefetch(next);
                }
            }
            let key = key_of(op);
            if place.owns(key) {
                *position = self.position_of(key, map);
            }
        }
    }

    #[inline(always)]
    fn home(&self, key: RowKey) -> usize {
        key.hi as usize & (self.index.len() - 1)
    }

    #[inline(always)]
    fn prefetch(&self, key: RowKey) {
        prefetch(&self.index, self.home(key));
    }

    /// Returns the row's position, looking it up in the map when it is new.
    #[inline(always)]
    fn position_of(&mut self, key: RowKey, map: &VersionMap) -> u32 {
        let mask = self.index.len() - 1;
        let mut at = self.home(key) & mask;
        let tag = tag_of(key);
        loop {
            let word = self.index[at];
            if word == 0 {
                break;
            }
            if word >> 32 == tag {
                let position = word as u32 - 1;
                if self.rows[position as usize].entry.names(key) {
                    return position;
                }
            }
            at = (at + 1) & mask;
        }
        let position = self.rows.len() as u32;
        if self.rows.len() * 2 >= self.index.len() {
            at = self.grow(key);
        }
        self.index[at] = tag << 32 | u64::from(position + 1);
        let (slot, entry) = map.find(key).unwrap_or_else(|| (NO_SLOT, Entry::unknown(key)));
        self.rows.push(EpochRow { entry, slot, reader: NONE });
        position
    }

    /// Doubles the index, which happens when a shard has more than its share, and returns the place for `key`.
    #[cold]
    fn grow(&mut self, key: RowKey) -> usize {
        let size = self.index.len() * 2;
        self.index.clear();
        self.index.resize(size, 0);
        for position in 0..self.rows.len() {
            let row = self.rows[position].entry.key();
            let at = self.vacancy(row);
            self.index[at] = tag_of(row) << 32 | (position as u64 + 1);
        }
        self.vacancy(key)
    }

    fn vacancy(&self, key: RowKey) -> usize {
        let mask = self.index.len() - 1;
        let mut at = self.home(key);
        while self.index[at] != 0 {
            at = (at + 1) & mask;
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_one_position_however_small_the_table_was_thought() {
        let keys: Vec<RowKey> = (0..3_000_u64)
            .map(|n| RowKey { hi: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), lo: n.wrapping_mul(0xd6e8_feb8_6659_fd93) })
            .collect();
        let twice: Vec<RowKey> = keys.iter().chain(&keys).copied().collect();
        let map = VersionMap::new();
        let mut rows = EpochRows::default();
        rows.reset(1);
        let mut positions = alloc::vec![NONE; twice.len()];
        let place = ShardPlace { index: 0, count: 1 };
        rows.look_up(place, &map, &twice, 0..twice.len(), |key| *key, &mut positions);
        assert_eq!(rows.rows.len(), keys.len());
        let expected: Vec<u32> = (0..3_000).chain(0..3_000).collect();
        assert_eq!(positions, expected);
    }
}
