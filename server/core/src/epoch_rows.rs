//! The rows that one epoch touches in one shard, each once: what the map knows of it, and who takes part.
//!
//! Small enough to stay in the cache while the epoch resolves, so a hot row costs one probe of the large map however
//! often it is touched. Emptied for each epoch, its memory is kept.

use alloc::vec::Vec;

use tribunal_types::{RowKey, Version};

use crate::map::{NO_SLOT, VersionMap, row_flag};
use crate::prefetch::prefetch;

/// "Not of this shard", "nobody", "not contended".
pub(crate) const NONE: u32 = u32::MAX;

/// A row touched in this epoch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EpochRow {
    pub(crate) key: RowKey,
    /// `Version::bits` in the map; 0 if the row is not known there.
    pub(crate) version: u64,
    /// Where it was found in the map.
    pub(crate) slot: u32,
    /// The last transaction that reads it, with two bits: see [`EpochRow::note_read`].
    reader: u32,
    /// First live participant.
    pub(crate) first: u32,
    /// Number among the shard's contended rows.
    pub(crate) contended: u32,
    /// Access classes of all live participants.
    pub(crate) access: u8,
    /// `row_flag`s in the map.
    pub(crate) flags: u8,
    /// More than one live transaction takes part.
    pub(crate) shared: bool,
}

impl EpochRow {
    /// The row is known and not deleted.
    #[inline(always)]
    pub(crate) fn is_live(&self) -> bool {
        self.flags & (row_flag::KNOWN | row_flag::TOMBSTONE) == row_flag::KNOWN
    }

    #[inline(always)]
    pub(crate) fn is_known(&self) -> bool {
        self.flags & row_flag::KNOWN != 0
    }

    /// The last write, a deletion's included.
    #[inline(always)]
    pub(crate) fn written_at(&self) -> Option<Version> {
        Version::from_bits(self.version)
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
                if self.rows[position as usize].key == key {
                    return position;
                }
            }
            at = (at + 1) & mask;
        }
        let position = self.rows.len() as u32;
        self.index[at] = tag << 32 | u64::from(position + 1);
        let (slot, version, flags) = match map.find(key) {
            Some((slot, entry)) => (slot, entry.version, entry.flags()),
            None => (NO_SLOT, 0, 0),
        };
        self.rows.push(EpochRow {
            key,
            version,
            slot,
            reader: NONE,
            first: NONE,
            contended: NONE,
            access: 0,
            flags,
            shared: false,
        });
        position
    }
}
