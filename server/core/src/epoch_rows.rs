//! The rows that one epoch touches in one shard, each once, with what the map knows of it.
//!
//! Small enough to stay in the cache while the epoch resolves, so a hot row costs one probe of the large map however
//! often it is touched. Emptied for each epoch, its memory is kept.

use alloc::vec::Vec;

use tribunal_types::{RowKey, Version, limits};

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
    /// The last transaction that touches it, above three bits: it reads it, that read is current, it saw a row.
    toucher: u32,
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

    /// Notes that transaction `t` reads the row, whether it saw the newest state, and whether it saw a row at all.
    /// Returns whether another transaction has touched the row before.
    #[inline(always)]
    pub(crate) fn note_read(&mut self, t: u32, current: bool, present: bool) -> bool {
        let shared = self.is_touched_by_other(t);
        self.toucher = t << 3 | 4 | u32::from(current) << 1 | u32::from(present);
        shared
    }

    /// What transaction `t` itself, which touched the row last, read here: (current, present).
    #[inline(always)]
    pub(crate) fn read_by(&self, t: u32) -> Option<(bool, bool)> {
        (self.toucher >> 2 == t << 1 | 1).then_some((self.toucher & 2 != 0, self.toucher & 1 != 0))
    }

    /// Notes that transaction `t` writes the row. Returns whether another one has touched it before.
    #[inline(always)]
    pub(crate) fn note_write(&mut self, t: u32) -> bool {
        let shared = self.is_touched_by_other(t);
        self.toucher = t << 3;
        shared
    }

    #[inline(always)]
    fn is_touched_by_other(&self, t: u32) -> bool {
        self.toucher != NONE && self.toucher >> 3 != t
    }
}

const _: () = assert!(limits::TXNS_PER_EPOCH_MAX < 1 << 29, "a transaction's number fits above three bits");

/// 32 bits of a key, of those that the map looks at.
#[inline(always)]
fn tag_of(key: RowKey) -> u64 {
    key.lo >> 8 & 0xffff_ffff
}

/// Operations that are asked for at a time. A request for memory retires only when its address is translated: next to
/// each other the walks through the page tables overlap, one by one between other work each is waited for.
const GROUP: usize = 8;
/// How many operations ahead a row's slot is asked for. The processor forgets requests beyond some twenty at a time.
const SLOT_LOOKAHEAD: usize = 16;
/// How many operations ahead a row's tags are asked for, which tell the slot.
const TAGS_LOOKAHEAD: usize = 32;

/// How far one column's rows are looked up, and being loaded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    rows: usize,
    slots: usize,
    tags: usize,
}

/// Rows of one epoch by key.
#[derive(Clone, Debug, Default)]
pub(crate) struct EpochRows {
    /// 32 bits of key above the position in `rows`, counted from 1; at most half full.
    index: Vec<u64>,
    pub(crate) rows: Vec<EpochRow>,
    /// A bit for each row that more than one transaction touches, whether they are live in the end or not.
    pub(crate) shared: Vec<u64>,
}

impl EpochRows {
    /// Empties the table and makes room for as many rows.
    pub(crate) fn reset(&mut self, rows_max: usize) {
        let size = (rows_max * 2).next_power_of_two().max(64);
        self.index.clear();
        self.index.resize(size, 0);
        self.rows.clear();
        self.rows.reserve(rows_max);
        self.shared.clear();
    }

    /// Makes room for the rows that are looked up so far in the set of shared ones.
    pub(crate) fn cover_shared(&mut self) {
        self.shared.resize(self.rows.len().div_ceil(64), 0);
    }

    /// Tells whether more than one transaction touches the row at `position`; never of a row of another shard.
    #[inline(always)]
    pub(crate) fn is_shared(&self, position: u32) -> bool {
        self.shared.get(position as usize / 64).is_some_and(|word| word >> (position % 64) & 1 != 0)
    }

    /// Looks up the rows of a column's operations from where `progress` stands up to `end`, and writes their positions,
    /// [`NONE`] for those of other shards. Until then, `positions` hold likely slots of the map.
    ///
    /// Loops that do nothing else: then the processor works on several rows at a time.
    #[inline(always)]
    pub(crate) fn look_up<T>(
        &mut self,
        place: ShardPlace,
        map: &VersionMap,
        (ops, key_of): (&[T], impl Fn(&T) -> RowKey + Copy),
        positions: &mut [u32],
        (progress, end): (&mut Progress, usize),
    ) {
        while progress.rows < end {
            let group = progress.rows..end.min(progress.rows + GROUP);
            let tags = progress.tags..ops.len().min(group.end + TAGS_LOOKAHEAD);
            let slots = progress.slots..ops.len().min(group.end + SLOT_LOOKAHEAD);
            *progress = Progress { rows: group.end, slots: slots.end, tags: tags.end };
            for key in ops[tags].iter().map(key_of) {
                prefetch(&self.index, self.home(key));
                map.prefetch_tags(key);
            }
            for (key, likely) in ops[slots.clone()].iter().map(key_of).zip(&mut positions[slots]) {
                if place.owns(key) {
                    *likely = map.prefetch_likely(key);
                }
            }
            for (key, position) in ops[group.clone()].iter().map(key_of).zip(&mut positions[group]) {
                *position = if place.owns(key) { self.position_of(key, map, *position) } else { NONE };
            }
        }
    }

    #[inline(always)]
    fn home(&self, key: RowKey) -> usize {
        key.hi as usize & (self.index.len() - 1)
    }

    /// Returns the row's position, looking it up in the map when it is new.
    #[inline(always)]
    fn position_of(&mut self, key: RowKey, map: &VersionMap, likely: u32) -> u32 {
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
        self.rows.push(match map.find_at(key, likely) {
            Some((slot, entry)) => EpochRow { entry: *entry, slot, toucher: NONE },
            None => EpochRow { entry: Entry::unknown(key), slot: NO_SLOT, toucher: NONE },
        });
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
        let mut progress = Progress::default();
        rows.look_up(place, &map, (&twice, |key| *key), &mut positions, (&mut progress, twice.len()));
        assert_eq!(rows.rows.len(), keys.len());
        let expected: Vec<u32> = (0..3_000).chain(0..3_000).collect();
        assert_eq!(positions, expected);
    }
}
