//! Apply: applies an outcome to one shard's state. Nothing is decided here.
//!
//! A row's newest version is that of its last writer in the serial order, regardless of the order in which its writes
//! arrive here: versions rise along the serial order. The state before the epoch is added to the history once.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range;

use tribunal_types::{Batch, Epoch, EpochInput, StoreId, Version, Write, WriteKind};

use crate::resolve::scratch::ShardScratch;
use crate::resolve::shard::{Shard, ShardState};
use crate::resolve::shard_place::ShardPlace;
use crate::resolve::txns::TxnTable;
use crate::state::history::{OpenRun, RowState};
use crate::state::map::{NO_SLOT, VersionMap};
use crate::state::map_entry::row_flag;
use crate::state::row_counts::RowCounts;
use crate::state::stores::Stores;
use crate::state::sums::{RowSums, SMALL_TEXT_BYTES, Sum, integer_of};

/// An epoch's changes.
#[derive(Clone, Copy)]
pub(crate) struct Changes<'a> {
    pub(crate) input: &'a EpochInput,
    pub(crate) txns: &'a TxnTable,
    pub(crate) stores: &'a Stores,
    /// By transaction: its version's bits, 0 if it did not commit.
    pub(crate) versions: &'a [u64],
    /// Whether the epoch was joined before, so that the rows' slots are known.
    pub(crate) joined: bool,
    /// The floor before the epoch.
    pub(crate) floor: Epoch,
}

/// How many writes ahead a row's entry is prefetched.
const LOOKAHEAD: usize = 12;

/// Applies the epoch to one shard.
pub(crate) fn run(shard: &mut Shard, changes: Changes<'_>) {
    // Most epochs commit most writes: make one allocation of their size instead of growing step by step.
    let writes = changes.txns.writes.div_ceil(shard.place.count as usize);
    shard.state.history.open(changes.input.epoch, writes);
    shard.state.window.open(changes.input.epoch, writes);
    shard.scratch.deleted.clear();
    if !changes.joined {
        shard.scratch.write_slots.clear();
        shard.scratch.write_slots.resize(changes.txns.writes, NO_SLOT);
    }
    for (batch, &base) in changes.input.batches.iter().zip(&changes.txns.bases) {
        let versions = &changes.versions[base.txn..base.txn + batch.txns.len()];
        if versions.iter().all(|&bits| bits == 0) {
            continue; // its keys need not be kept
        }
        let ShardScratch { write_slots, deleted, .. } = &mut shard.scratch;
        let slots = &write_slots[base.write..base.write + batch.writes.len()];
        apply_batch((&mut shard.state, deleted), shard.place, batch, (versions, slots), changes);
    }
    shard.scratch.applied_bytes = shard.state.history.close() + shard.state.window.close();
    import(shard, changes);
}

/// Applies a batch's committed writes of one shard, given its transactions' versions and its writes' likely slots.
fn apply_batch(
    (state, deleted): (&mut ShardState, &mut Vec<StoreId>),
    place: ShardPlace,
    batch: &Batch,
    (versions, slots): (&[u64], &[u32]),
    changes: Changes<'_>,
) {
    let ShardState { map, history, window, sums, row_counts } = state;
    window.share(changes.input.epoch, &batch.keys);
    let mut keys = window.open_run();
    let mut past = history.open_run();
    let mut rules = StoreRules { stores: changes.stores, last: None };
    let own = |writes: Range<usize>| {
        let pairs = batch.writes[writes.clone()].iter().zip(&slots[writes]);
        pairs.filter(move |(write, _)| place.owns(write.row))
    };
    let (mut first, mut asked) = (0, 0);
    for (txn, &bits) in batch.txns.iter().zip(versions) {
        let writes = first..txn.writes_end as usize;
        first = writes.end;
        let Some(version) = Version::from_bits(bits) else { continue };
        // Prefetch without checking whether the next transactions committed: most did.
        let soon = batch.writes.len().min(writes.end + LOOKAHEAD);
        own(writes.start.max(asked)..soon).for_each(|(write, &slot)| map.prefetch_at(write.row, slot));
        asked = soon;
        for (write, &slot) in own(writes) {
            keys.note(write.store, write.key);
            let declared = rules.is_declared(write.store);
            if write.kind == WriteKind::Delete && !declared && deleted.last() != Some(&write.store) {
                deleted.push(write.store);
            }
            let change = Change { write, version, declared, values: &batch.values };
            put((map, sums, row_counts), &mut past, slot, change);
        }
    }
}

/// Caches the store queried last: adjacent writes mostly belong to one store.
struct StoreRules<'a> {
    stores: &'a Stores,
    last: Option<(StoreId, bool)>,
}

impl StoreRules<'_> {
    #[inline(always)]
    fn is_declared(&mut self, store: StoreId) -> bool {
        match self.last {
            Some((last, declared)) if last == store => declared,
            _ => {
                let declared = self.stores.is_declared(store);
                self.last = Some((store, declared));
                declared
            }
        }
    }
}

/// A committed write.
#[derive(Clone, Copy)]
struct Change<'a> {
    write: &'a Write,
    version: Version,
    declared: bool,
    values: &'a [u8],
}

impl Change<'_> {
    /// Returns the integer that the write adds or leaves; `None` if its text, which no resolver has checked, is not an
    /// integer.
    fn integer(&self) -> Option<i64> {
        integer_of(self.write.value.of(self.values))
    }

    /// Returns the flags of the row that the write leaves.
    #[inline(always)]
    fn flags(&self) -> u8 {
        match self.write.kind {
            WriteKind::Delete => row_flag::TOMBSTONE,
            // Only an integer can be added to, and it stays an integer.
            WriteKind::Add => row_flag::INTEGER | row_flag::SUMMED | row_flag::ADDED,
            _ if !self.write.integer => 0,
            _ if self.write.value.len <= SMALL_TEXT_BYTES => row_flag::INTEGER,
            _ => self.integer().map_or(0, |_| row_flag::INTEGER | row_flag::SUMMED),
        }
    }
}

/// Writes one row's newest state.
#[inline(always)]
fn put(
    (map, sums, row_counts): (&mut VersionMap, &mut RowSums, &mut RowCounts),
    past: &mut OpenRun<'_>,
    slot: u32,
    change: Change<'_>,
) {
    let Change { write, version, declared, .. } = change;
    let flags = change.flags();
    if flags == row_flag::TOMBSTONE || declared {
        past.expire(write.row, declared);
    }
    let Some(entry) = map.at_mut(write.row, slot) else {
        map.insert_new(write.row, version, flags);
        if flags != row_flag::TOMBSTONE && !declared {
            row_counts.add(write.store, 1);
        }
        if flags & row_flag::SUMMED != 0 {
            sum(sums, change, 0);
        }
        return;
    };
    let before = *entry;
    if before.version > version.bits() {
        // Adds of one epoch commute; a write that replaces the row comes after all of them.
        if write.kind == WriteKind::Add && before.flags() & row_flag::ADDED != 0 {
            sum(sums, change, before.flags());
        }
        return;
    }
    entry.set(version, flags);
    map.changed(&before);
    // A single branch covers the cases that most writes skip.
    if (before.flags() | flags) & (row_flag::TOMBSTONE | row_flag::SUMMED) != 0 {
        if (before.flags() ^ flags) & row_flag::TOMBSTONE != 0 && !declared {
            row_counts.add(write.store, if flags == row_flag::TOMBSTONE { -1 } else { 1 });
        }
        if (before.flags() | flags) & row_flag::SUMMED != 0 {
            sum(sums, change, before.flags());
        }
    }
    if before.version >> Version::POSITION_BITS != version.epoch().0
        && let Some(replaced) = Version::from_bits(before.version)
    {
        past.supersede(write.row, RowState { version: replaced, tombstone: before.flags() & row_flag::TOMBSTONE != 0 });
    }
}

/// Updates the record of the row's value after a write, if more is known of the value than that it is small. `before`
/// are the row's previous flags.
#[inline(never)]
fn sum(sums: &mut RowSums, change: Change<'_>, before: u8) {
    let row = change.write.row;
    let (adds, long) = (change.write.kind == WriteKind::Add, change.flags() & row_flag::SUMMED != 0);
    match change.integer() {
        Some(delta) if adds => sums.add(row, delta),
        Some(center) if long => sums.set(row, Sum { center, exact: true }),
        _ if adds => sums.add(row, 0),
        _ if before & row_flag::SUMMED != 0 => sums.remove(row),
        _ => {}
    }
}

/// Adds rows that are not known yet, and counts them by batch. A deleted row is forgotten once the floor has passed it;
/// importing its old version would recreate it, and reads from before the deletion would find it unchanged.
fn import(shard: &mut Shard, changes: Changes<'_>) {
    let Shard { place, state: ShardState { map, row_counts, .. }, scratch } = shard;
    scratch.imported.clear();
    if changes.input.batches.iter().all(|batch| batch.imports.is_empty()) {
        return;
    }
    for batch in &changes.input.batches {
        let mut imported = 0;
        for row in &batch.imports {
            let usable = row.version.epoch() < changes.input.epoch && !changes.stores.is_declared(row.store);
            let usable = usable && !changes.stores.may_be_deleted(row.store, row.version, changes.floor);
            if usable && place.owns(row.row) && map.find(row.row).is_none() {
                let flags = if row.integer { row_flag::INTEGER } else { 0 };
                map.import_new(row.row, row.version, flags);
                row_counts.add(row.store, 1);
                imported += 1;
            }
        }
        scratch.imported.push(imported);
    }
}

/// Returns the bytes of the key arenas that the epoch keeps alive: one per batch with a committed write.
pub(crate) fn arena_bytes(changes: Changes<'_>) -> u64 {
    let committed = |base: usize, batch: &Arc<Batch>| {
        (0..batch.txns.len()).any(|i| changes.versions[base + i] != 0 && !batch.writes_of(i).is_empty())
    };
    let batches = changes.input.batches.iter().zip(&changes.txns.bases);
    batches.filter(|(batch, base)| committed(base.txn, batch)).map(|(batch, _)| batch.keys.len() as u64).sum()
}

/// Drops entries at or below the floor.
pub(crate) fn drop_below(shard: &mut Shard, floor: Epoch) {
    let ShardState { map, history, window, sums, .. } = &mut shard.state;
    window.drop_below(floor);
    history.drop_below(floor, |key, declared| {
        let gone = map.remove_if(key, |entry| {
            let forgettable = declared || entry.flags() & row_flag::TOMBSTONE != 0;
            forgettable && entry.version >> Version::POSITION_BITS <= floor.0
        });
        if gone.is_some_and(|entry| entry.flags() & row_flag::SUMMED != 0) {
            sums.remove(key);
        }
    });
}
