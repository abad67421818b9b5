//! The rows that one epoch touches in one shard, each once, with what the map knows of it.
//!
//! Small enough to stay in the cache while the epoch resolves, so a hot row costs one probe of the large map however
//! often it is touched. Emptied for each epoch, its memory is kept.

use alloc::vec::Vec;

use tribunal_types::{RowKey, Version};

use crate::map::{Entry, NO_SLOT, VersionMap, row_flag};
use crate::prefetch::prefetch;

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

    #[inline(always)]
    fn home(&self, key: RowKey) -> usize {
        key.hi as usize & (self.index.len() - 1)
    }

    #[inline(always)]
    pub(crate) fn prefetch(&self, key: RowKey) {
        prefetch(&self.index, self.home(key));
    }

    /// Returns the row's position, looking it up in the map when it is new.
    #[inline(always)]
    pub(crate) fn position_of(&mut self, key: RowKey, map: &VersionMap) -> u32 {
        let mask = self.index.len() - 1;
        let mut at = self.home(key) & mask;
        let tag = key.lo >> 8 & 0xffff_ffff;
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
        self.index[at] = tag << 32 | u64::from(position + 1);
        let (slot, entry) = map.find(key).unwrap_or_else(|| (NO_SLOT, Entry::unknown(key)));
        self.rows.push(EpochRow { entry, slot, reader: NONE });
        position
    }
}
