//! The rows in memory: those newer than the runs. The log makes them durable.
//!
//! Keys and values are stored in an arena, rows in one list, and a hash table finds a row by its key with one or two
//! cache misses: a new row needs no separate allocation. The order of keys is computed only when a scan or a flush
//! needs it, and only for rows added since; in an ordered tree, every write would pay for it.

use std::hash::BuildHasher;
use std::sync::{Arc, OnceLock};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use tribunal_types::{Epoch, Version, Watermark};

use super::arena::{Arena, Piece};
use super::key_order::KeyOrder;
use super::runs::entry::HEAD_BYTES as ENTRY_HEAD_BYTES;
use super::stored::Stored;

/// The state of a row in a layer; `None` if it was deleted.
pub(super) type Known<'a> = Option<(Version, &'a [u8])>;

/// Number of rows whose memory is loaded at the same time: about as many loads as a processor has in flight.
const WARMED_AT_ONCE: usize = 16;

/// A row.
struct Entry {
    key: Piece,
    value: Piece,
    /// `None` if the row was deleted.
    version: Option<Version>,
}

/// Rows by key, including deleted ones.
#[derive(Default)]
pub(super) struct Rows {
    hasher: RandomState,
    index: HashTable<u32>,
    entries: Vec<Entry>,
    arena: Arena,
    order: KeyOrder,
    /// Size of the rows once they are entries of a run, bytes.
    entry_bytes: u64,
    /// Number of deleted rows.
    deleted: u64,
}

impl Rows {
    /// Returns the number of rows, including deleted ones.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the memory that the rows use, bytes, without reserved capacity.
    pub(super) fn bytes(&self) -> usize {
        self.arena.bytes() + self.entries.len() * ROW_OVERHEAD_BYTES
    }

    /// Returns the bytes that the rows will take in a run, without its index and filter.
    pub(super) fn entry_bytes(&self) -> u64 {
        self.entry_bytes
    }

    fn find(&self, key: &[u8], hash: u64) -> Option<u32> {
        self.index.find(hash, |&id| self.arena.get(self.entries[id as usize].key) == key).copied()
    }

    /// Loads the memory of rows that are about to be set or read into the processor's caches. A lookup is a chain of four
    /// loads, each of which needs the result of the one before; the chains of several rows overlap.
    pub(super) fn warm<'k>(&self, mut keys: impl Iterator<Item = &'k [u8]>) {
        let mut loaded = 0;
        loop {
            let mut ids = [None; WARMED_AT_ONCE];
            let mut count = 0;
            for (id, key) in ids.iter_mut().zip(&mut keys) {
                // The first candidate; whether it has the key is not known before its key is loaded.
                *id = self.index.find(self.hasher.hash_one(key), |_| true).copied();
                count += 1;
            }
            if count == 0 {
                break;
            }
            let entry = |id: Option<u32>| id.map(|id| &self.entries[id as usize]);
            let pieces = ids.map(|id| entry(id).map_or_else(Default::default, |entry| [entry.key, entry.value]));
            for piece in pieces.as_flattened() {
                let bytes = self.arena.get(*piece);
                loaded += bytes.first().copied().map_or(0, usize::from);
                loaded += bytes.last().copied().map_or(0, usize::from);
            }
        }
        std::hint::black_box(loaded);
    }

    fn known(&self, id: u32) -> Known<'_> {
        let entry = &self.entries[id as usize];
        entry.version.map(|version| (version, self.arena.get(entry.value)))
    }

    /// Returns the state of a row; `None` if this layer does not contain it.
    pub(super) fn get(&self, key: &[u8]) -> Option<Known<'_>> {
        self.find(key, self.hasher.hash_one(key)).map(|id| self.known(id))
    }

    /// Sets the state of a row.
    pub(super) fn put(&mut self, key: &[u8], row: Known<'_>) {
        let hash = self.hasher.hash_one(key);
        let (version, value) = row.map_or((None, &[][..]), |(version, value)| (Some(version), value));
        if let Some(id) = self.find(key, hash) {
            let entry = &mut self.entries[id as usize];
            self.entry_bytes = self.entry_bytes + value.len() as u64 - entry.value.len() as u64;
            self.deleted = self.deleted + u64::from(version.is_none()) - u64::from(entry.version.is_none());
            entry.version = version;
            entry.value = self.arena.replace(entry.value, value);
            return;
        }
        let id = u32::try_from(self.entries.len()).expect("memory is bounded far below this many rows");
        let entry = Entry { key: self.arena.push(key), value: self.arena.push(value), version };
        self.entries.push(entry);
        self.entry_bytes += (ENTRY_HEAD_BYTES + key.len() + value.len()) as u64;
        self.deleted += u64::from(version.is_none());
        let Rows { hasher, index, entries, arena, .. } = self;
        index.insert_unique(hash, id, |&id| hasher.hash_one(arena.get(entries[id as usize].key)));
    }

    /// Returns whether all rows are sorted, so that [`Rows::range`] misses none.
    fn is_sorted(&self) -> bool {
        self.order.len() == self.entries.len()
    }

    /// Sorts the rows that were added since the last call.
    pub(super) fn sort(&mut self) {
        let Rows { entries, arena, order, .. } = self;
        order.extend(entries.len(), |id| arena.get(entries[id as usize].key));
    }

    /// Returns the order of all keys.
    fn whole_order(&self) -> KeyOrder {
        let mut order = self.order.clone();
        order.extend(self.entries.len(), |id| self.arena.get(self.entries[id as usize].key));
        order
    }

    /// Returns the rows of `start..end` in key order; an empty `end` means no end. The rows must be sorted.
    pub(super) fn range<'a>(
        &'a self,
        start: &[u8],
        end: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], Known<'a>)> + use<'a> {
        debug_assert!(self.is_sorted(), "scans sort first");
        self.range_of(&self.order, start, end)
    }

    fn range_of<'a>(
        &'a self,
        order: &'a KeyOrder,
        start: &[u8],
        end: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], Known<'a>)> + use<'a> {
        let key = |id: u32| self.arena.get(self.entries[id as usize].key);
        order.range(start, end, key).map(move |id| (key(id), self.known(id)))
    }
}

/// Rows frozen for a flush. They no longer change. Their order is computed on first use, so that freezing is cheap.
pub(super) struct Frozen {
    rows: Rows,
    order: OnceLock<KeyOrder>,
    /// Last record among them.
    pub watermark: Watermark,
}

impl Frozen {
    /// Returns the number of rows, including deleted ones.
    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the rows of `start..end` in key order; an empty `end` means no end.
    pub(super) fn range<'a>(
        &'a self,
        start: &[u8],
        end: &[u8],
    ) -> impl Iterator<Item = (&'a [u8], Known<'a>)> + use<'a> {
        self.rows.range_of(self.order.get_or_init(|| self.rows.whole_order()), start, end)
    }
}

/// Overhead of a row: an entry in the list, one in the hash table with its share of free entries, and one in the order.
const ROW_OVERHEAD_BYTES: usize = size_of::<Entry>() + 4 * 8 / 7 + 4 + 4;

/// The rows newer than the runs.
pub(super) struct Recent {
    /// The newest rows.
    pub active: Rows,
    /// Rows that are being flushed: older than `active`, newer than the runs.
    pub frozen: Option<Arc<Frozen>>,
    /// Last record applied.
    pub applied: Watermark,
    /// Epoch of that record; 0 until a record is applied after the store was opened.
    pub epoch: Epoch,
}

impl Recent {
    pub(super) fn new(applied: Watermark) -> Self {
        Recent { active: Rows::default(), frozen: None, applied, epoch: Epoch(0) }
    }

    /// Returns the number of rows in memory, including deleted ones.
    pub(super) fn len(&self) -> u64 {
        (self.active.len() + self.frozen.as_ref().map_or(0, |frozen| frozen.len())) as u64
    }

    /// Returns the number of deleted rows in memory.
    pub(super) fn deleted(&self) -> u64 {
        self.active.deleted + self.frozen.as_ref().map_or(0, |frozen| frozen.rows.deleted)
    }

    /// Returns the bytes that the rows in memory will take in runs.
    pub(super) fn entry_bytes(&self) -> u64 {
        self.active.entry_bytes() + self.frozen.as_ref().map_or(0, |frozen| frozen.rows.entry_bytes())
    }

    /// Returns the state of a row; `None` if it is not in memory.
    pub(super) fn get(&self, key: &[u8]) -> Option<Known<'_>> {
        let frozen = || self.frozen.as_ref().and_then(|frozen| frozen.rows.get(key));
        self.active.get(key).or_else(frozen)
    }

    /// Returns a copy of a row: `Some(None)` if it was deleted, `None` if it is not in memory.
    pub(super) fn stored(&self, key: &[u8]) -> Option<Option<Stored>> {
        self.get(key).map(|known| known.map(Stored::of))
    }

    /// Freezes the active rows for a flush.
    pub(super) fn freeze(&mut self) {
        let rows = std::mem::take(&mut self.active);
        self.frozen = Some(Arc::new(Frozen { rows, order: OnceLock::new(), watermark: self.applied }));
    }
}

/// Locks `recent` for a scan, with its rows sorted.
pub(super) fn read_sorted(recent: &RwLock<Recent>) -> RwLockReadGuard<'_, Recent> {
    let guard = recent.read();
    if guard.active.is_sorted() {
        return guard;
    }
    drop(guard);
    let mut guard = recent.write();
    guard.active.sort();
    RwLockWriteGuard::downgrade(guard)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn rows_agree_with_an_ordered_map_whenever_they_get_sorted() {
        let (mut rows, mut model) = (Rows::default(), BTreeMap::new());
        let mut random = 1u64;
        for n in 0..20_000u32 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let key = format!("a-common-start/{}", (random >> 33) % 3_000).into_bytes();
            let value = vec![n as u8; (random >> 50) as usize % 40];
            let version = Version::new(Epoch(u64::from(n) + 1), 0).expect("fits");
            let row = (!(random >> 20).is_multiple_of(5)).then_some((version, &value[..]));
            rows.put(&key, row);
            model.insert(key.clone(), row.map(|(version, value)| (version, value.to_vec())));
            assert_eq!(rows.get(&key), Some(row));
            if (random >> 8).is_multiple_of(97) {
                rows.sort();
                let (start, end) = (&b"a-common-start/1"[..], &b"a-common-start/2"[..]);
                let found: Vec<_> = rows.range(start, end).map(|(key, row)| (key.to_vec(), row)).collect();
                let expected: Vec<_> = model
                    .range(start.to_vec()..end.to_vec())
                    .map(|(key, row)| (key.clone(), row.as_ref().map(|(version, value)| (*version, &value[..]))))
                    .collect();
                assert_eq!(found, expected);
            }
        }
        // Any number of keys, those of deleted and of absent rows included.
        for count in [0, 1, WARMED_AT_ONCE, WARMED_AT_ONCE + 1, model.len()] {
            rows.warm(model.keys().map(Vec::as_slice).take(count).chain([&b"absent"[..]]));
        }
        assert_eq!(rows.len(), model.len());
        let bytes = |(key, row): (&Vec<u8>, &Option<(Version, Vec<u8>)>)| {
            ENTRY_HEAD_BYTES + key.len() + row.as_ref().map_or(0, |(_, value)| value.len())
        };
        assert_eq!(rows.deleted, model.values().filter(|row| row.is_none()).count() as u64);
        assert_eq!(rows.entry_bytes(), model.iter().map(bytes).sum::<usize>() as u64);
        assert_eq!(rows.get(b"a-common-start"), None);
    }
}
