//! The rows that one epoch touches in one shard, each once, with their entry in the map.
//!
//! Small enough to stay in the cache while the epoch resolves, so a hot row costs one probe of the large map regardless
//! of how often it is touched. Cleared for each epoch; its memory is kept.

use alloc::vec::Vec;

use tribunal_types::{RowKey, Version, limits};

use crate::resolve::shard_place::ShardPlace;
use crate::state::map::{NO_SLOT, VersionMap};
use crate::state::map_entry::{Entry, row_flag};

/// "Not of this shard", "no transaction", "not contended".
pub(crate) const NONE: u32 = u32::MAX;

/// A row touched in this epoch: 32 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochRow {
    /// The row's entry in the map.
    pub(crate) entry: Entry,
    /// Its slot in the map.
    pub(crate) slot: u32,
    /// The last transaction that touched the row, above the bits of [`touch`].
    toucher: u32,
}

/// Flags of a row's touches, below the number of the last transaction that touched it.
mod touch {
    /// The last transaction saw a row; saw the current state; read the row at all.
    pub(super) const PRESENT: u32 = 1;
    pub(super) const CURRENT: u32 = 2;
    pub(super) const READ: u32 = 4;
    /// Some transaction writes the row; more than one touches it.
    pub(super) const WRITTEN: u32 = 8;
    pub(super) const SHARED: u32 = 16;
    pub(super) const BITS: u32 = 5;
    /// Greater than every transaction.
    pub(super) const NO_TXN: u32 = u32::MAX << BITS;
}

impl EpochRow {
    const UNNAMED: EpochRow =
        EpochRow { entry: Entry { hi: 0, lo_flags: 0, version: 0 }, slot: NO_SLOT, toucher: touch::NO_TXN };

    /// Returns whether the row is known and not deleted.
    #[inline(always)]
    pub(crate) fn is_live(&self) -> bool {
        self.entry.flags() & (row_flag::KNOWN | row_flag::TOMBSTONE) == row_flag::KNOWN
    }

    #[inline(always)]
    pub(crate) fn is_known(&self) -> bool {
        self.entry.flags() & row_flag::KNOWN != 0
    }

    /// Returns whether the row was deleted above the floor and not created since.
    #[inline(always)]
    pub(crate) fn is_deleted(&self) -> bool {
        const BOTH: u8 = row_flag::KNOWN | row_flag::TOMBSTONE;
        self.entry.flags() & BOTH == BOTH
    }

    /// Returns whether the row's value is an integer, if it is live.
    #[inline(always)]
    pub(crate) fn is_integer(&self) -> bool {
        self.entry.flags() & row_flag::INTEGER != 0
    }

    /// Returns whether more is known of the row's value than that it is an integer.
    #[inline(always)]
    pub(crate) fn is_summed(&self) -> bool {
        self.entry.flags() & row_flag::SUMMED != 0
    }

    /// Returns the version of the last write, deletions included; `None` if the row is not known.
    #[inline(always)]
    pub(crate) fn written_at(&self) -> Option<Version> {
        Version::from_bits(self.entry.version)
    }

    /// Returns the version bits of an existing row, 0 if it does not exist.
    #[inline(always)]
    pub(crate) fn live_version(&self) -> u64 {
        if self.is_live() { self.entry.version } else { 0 }
    }

    /// Notes that transaction `t` reads the row, whether it saw the newest state, and whether it saw a row at all.
    #[inline(always)]
    pub(crate) fn note_read(&mut self, t: u32, current: bool, present: bool) {
        let seen = (touch::CURRENT * u32::from(current)) | (touch::PRESENT * u32::from(present));
        self.toucher = self.touched_by(t) | touch::READ | seen;
    }

    /// Returns transaction `t`'s own read of this row, if `t` touched the row last.
    #[inline(always)]
    pub(crate) fn read_by(&self, t: u32) -> OwnRead {
        OwnRead(if self.toucher >> touch::BITS == t { self.toucher } else { 0 })
    }

    /// Notes that transaction `t` writes the row.
    #[inline(always)]
    pub(crate) fn note_write(&mut self, t: u32) {
        self.toucher = self.touched_by(t) | touch::WRITTEN;
    }

    /// Returns the touch word for `t`. Transactions touch rows in ascending order, and [`touch::NO_TXN`] is above all
    /// of them.
    #[inline(always)]
    fn touched_by(&self, t: u32) -> u32 {
        let by_other = u32::from(self.toucher >> touch::BITS < t);
        t << touch::BITS | self.toucher & (touch::WRITTEN | touch::SHARED) | (by_other * touch::SHARED)
    }

    /// Returns whether one transaction writes the row and another touches it, at any level and with any fate: no other
    /// row can be contended.
    #[inline(always)]
    pub(crate) fn may_be_contended(&self) -> bool {
        const BOTH: u32 = touch::WRITTEN | touch::SHARED;
        self.toucher & BOTH == BOTH
    }
}

/// A transaction's own read of a row that it writes, if any.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnRead(u32);

impl OwnRead {
    #[inline(always)]
    pub(crate) fn was_read(self) -> bool {
        self.0 & touch::READ != 0
    }

    /// Returns whether the read saw the newest state.
    #[inline(always)]
    pub(crate) fn is_current(self) -> bool {
        self.0 & touch::CURRENT != 0
    }

    /// Returns whether the read saw a row.
    #[inline(always)]
    pub(crate) fn is_present(self) -> bool {
        self.0 & touch::PRESENT != 0
    }
}

const _: () = assert!(limits::TXNS_PER_EPOCH_MAX < (1 << (u32::BITS - touch::BITS)) - 1, "a transaction's number fits");

/// Rows prefetched at a time. A memory request retires only once its address is translated: adjacent requests overlap
/// their page-table walks; requests spread between other work are waited for one by one.
const GROUP: usize = 8;
/// How many rows ahead a row's slot is prefetched. The processor drops requests beyond some twenty at a time.
const SLOT_LOOKAHEAD: usize = 16;
/// How many rows ahead a row's tags are prefetched, which determine the slot.
const TAGS_LOOKAHEAD: usize = 48;

/// Rows of one epoch by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct EpochRows {
    /// The position in `rows`, counted from 1, below bits of the key; at most half full.
    index: Vec<u32>,
    /// In the order in which they were named; entries from `named` on are meaningless.
    pub(crate) rows: Vec<EpochRow>,
    named: usize,
    /// Number of rows looked up in the map, and of rows whose slots and tags are loading.
    looked_up: usize,
    slots_asked: usize,
    tags_asked: usize,
}

impl EpochRows {
    /// Empties the table and makes room for `rows_max` rows.
    pub(crate) fn reset(&mut self, rows_max: usize) {
        let size = (rows_max * 2).next_power_of_two().max(64);
        self.index.clear();
        self.index.resize(size, 0);
        self.make_room(size / 2);
        (self.named, self.looked_up, self.slots_asked, self.tags_asked) = (0, 0, 0, 0);
    }

    fn make_room(&mut self, rows: usize) {
        self.rows.resize(rows.max(self.rows.len()), EpochRow::UNNAMED);
    }

    /// Returns the number of rows that have a position.
    pub(crate) fn named(&self) -> usize {
        self.named
    }

    /// Returns the rows that have a position.
    pub(crate) fn all(&self) -> &[EpochRow] {
        &self.rows[..self.named]
    }

    /// Assigns each row in `keys` a position, [`NONE`] for rows of other shards. New rows are not looked up yet.
    #[inline(always)]
    pub(crate) fn name(
        &mut self,
        place: ShardPlace,
        keys: impl ExactSizeIterator<Item = RowKey>,
        positions: &mut [u32],
    ) {
        self.reserve(keys.len());
        let (index, rows) = (self.index.as_mut_slice(), self.rows.as_mut_slice());
        let mut named = self.named;
        for (key, position) in keys.zip(positions) {
            *position = if place.owns(key) { position_of(index, rows, &mut named, key) } else { NONE };
        }
        self.named = named;
    }

    /// Looks up all pending rows before position `end` in the map, and prefetches the rows after it.
    ///
    /// The loops do nothing else, so that the processor works on several rows at a time.
    pub(crate) fn look_up(&mut self, map: &VersionMap, end: usize) {
        let rows = &mut self.rows[..self.named];
        while self.looked_up < end {
            let group = self.looked_up..end.min(self.looked_up + GROUP);
            let tags = self.tags_asked..rows.len().min(group.end + TAGS_LOOKAHEAD);
            let slots = self.slots_asked..rows.len().min(group.end + SLOT_LOOKAHEAD);
            (self.looked_up, self.slots_asked, self.tags_asked) = (group.end, slots.end, tags.end);
            for row in &mut rows[tags] {
                row.slot = map.prefetch_tags(row.entry.key());
            }
            for row in &mut rows[slots] {
                row.slot = map.prefetch_likely(row.entry.key(), row.slot);
            }
            for row in &mut rows[group] {
                row.slot = match map.find_at(row.entry.key(), row.slot) {
                    Some((slot, entry)) => {
                        row.entry = *entry;
                        slot
                    }
                    None => NO_SLOT,
                };
            }
        }
    }

    /// Makes room for `more` more rows: a shard may have more than its share of them.
    fn reserve(&mut self, more: usize) {
        let rows_max = self.named + more;
        let size = (rows_max * 2).next_power_of_two();
        if size <= self.index.len() {
            return;
        }
        self.make_room(size / 2);
        self.index.clear();
        self.index.resize(size, 0);
        let mask = size - 1;
        for (position, row) in self.rows[..self.named].iter().enumerate() {
            let key = row.entry.key();
            let mut at = key.hi as usize & mask;
            while self.index[at] != 0 {
                at = (at + 1) & mask;
            }
            self.index[at] = word_of(key, position, mask);
        }
    }
}

/// Returns the index word of a row: the position from 1, at most half of the index's size, which is a power of two, and
/// in the bits above it as much of the key as fits.
#[inline(always)]
fn word_of(key: RowKey, position: usize, mask: usize) -> u32 {
    (key.lo >> 8) as u32 & !mask as u32 | (position as u32 + 1)
}

/// Returns the row's position; a new row is appended after the `named` rows.
#[inline(always)]
fn position_of(index: &mut [u32], rows: &mut [EpochRow], named: &mut usize, key: RowKey) -> u32 {
    let mask = index.len() - 1;
    let mut at = key.hi as usize & mask;
    loop {
        let word = index[at];
        if word == 0 {
            break;
        }
        if (word ^ (key.lo >> 8) as u32) & !mask as u32 == 0 {
            let position = (word & mask as u32) - 1;
            if rows[position as usize].entry.names(key) {
                return position;
            }
        }
        at = (at + 1) & mask;
    }
    let position = *named;
    index[at] = word_of(key, position, mask);
    rows[position] = EpochRow { entry: Entry::unknown(key), ..EpochRow::UNNAMED };
    *named += 1;
    position as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_keeps_its_position_as_the_table_grows() {
        let keys: Vec<RowKey> = (0..3_000_u64)
            .map(|n| RowKey { hi: n.wrapping_mul(0x9e37_79b9_7f4a_7c15), lo: n.wrapping_mul(0xd6e8_feb8_6659_fd93) })
            .collect();
        let twice: Vec<RowKey> = keys.iter().chain(&keys).copied().collect();
        let map = VersionMap::new();
        let mut rows = EpochRows::default();
        rows.reset(1);
        let mut positions = alloc::vec![NONE; twice.len()];
        let place = ShardPlace { index: 0, count: 1 };
        rows.name(place, twice.iter().copied(), &mut positions);
        rows.look_up(&map, keys.len());
        assert_eq!(rows.named(), keys.len());
        let expected: Vec<u32> = (0..3_000).chain(0..3_000).collect();
        assert_eq!(positions, expected);
    }
}
