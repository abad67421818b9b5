//! Apply: brings an outcome into one shard's state. Nothing here decides anything.
//!
//! A row's newest version is that of its last writer in the serial order, whatever order the writes come in here:
//! versions rise along that order. The state before the epoch goes into the history once.

use alloc::sync::Arc;

use tribunal_types::{Cen, EpochInput, Version, Write, WriteKind};

use crate::epoch_rows::NONE;
use crate::history::RowState;
use crate::map::{NO_SLOT, row_flag};
use crate::shard::{Shard, ShardState};
use crate::stores::Stores;
use crate::txns::TxnTable;

/// What an epoch changes.
#[derive(Clone, Copy)]
pub(crate) struct Changes<'a> {
    pub(crate) input: &'a EpochInput,
    pub(crate) txns: &'a TxnTable,
    pub(crate) stores: &'a Stores,
    /// By transaction: its version's bits, 0 if it did not commit.
    pub(crate) versions: &'a [u64],
    /// The epoch was joined before, so the rows' slots are known.
    pub(crate) joined: bool,
}

/// How many writes ahead a row's cache line is asked for.
const LOOKAHEAD: usize = 12;

/// Applies the epoch to one shard.
pub(crate) fn run(shard: &mut Shard, changes: Changes<'_>) {
    let Shard { place, state, scratch } = shard;
    let cen = changes.input.cen;
    // Most epochs commit most writes: one allocation of their size rather than many on the way there.
    let writes = changes.txns.writes.div_ceil(place.count as usize);
    state.history.open(cen, writes);
    state.window.open(cen, writes);
    for (batch, base) in changes.input.batches.iter().zip(&changes.txns.bases) {
        let mut shared = false;
        let mut first = 0;
        for (i, txn) in batch.txns.iter().enumerate() {
            let writes = first..txn.writes_end as usize;
            first = writes.end;
            let Some(version) = Version::from_bits(changes.versions[base.txn + i]) else { continue };
            for w in writes {
                let write = &batch.writes[w];
                let slot = if changes.joined {
                    if let Some(ahead) = batch.writes.get(w + LOOKAHEAD) {
                        state.map.prefetch_at(ahead.row, scratch.write_slots[base.write + w + LOOKAHEAD]);
                    }
                    if scratch.write_rows[base.write + w] == NONE {
                        continue;
                    }
                    scratch.write_slots[base.write + w]
                } else {
                    if let Some(ahead) = batch.writes.get(w + LOOKAHEAD) {
                        state.map.prefetch(ahead.row);
                    }
                    if !place.owns(write.row) {
                        continue;
                    }
                    NO_SLOT
                };
                if !shared {
                    state.window.share(cen, &batch.keys);
                    shared = true;
                }
                state.window.note(write.store, write.key);
                put(state, write, slot, version, changes.stores);
            }
        }
    }
    scratch.applied_bytes = state.history.close() + state.window.close();
    let imported = import(shard, changes);
    shard.scratch.imported = imported;
}

/// Writes one row's newest state.
#[inline(always)]
fn put(state: &mut ShardState, write: &Write, slot: u32, version: Version, stores: &Stores) {
    let flags = match write.kind {
        WriteKind::Delete => row_flag::TOMBSTONE,
        // Only an integer can be added to, and stays one.
        WriteKind::Add => row_flag::INTEGER,
        _ if write.integer => row_flag::INTEGER,
        _ => 0,
    };
    let declared = stores.is_declared(write.store);
    if flags == row_flag::TOMBSTONE || declared {
        state.history.expire(write.row, declared);
    }
    let Some(entry) = state.map.at_mut(write.row, slot) else {
        state.map.insert_new(write.row, version, flags);
        return;
    };
    let before = entry.version;
    if before > version.bits() {
        return;
    }
    let was = entry.flags();
    entry.set(version, flags);
    if before >> Version::POSITION_BITS != version.cen().0
        && let Some(before) = Version::from_bits(before)
    {
        let tombstone = was & row_flag::TOMBSTONE != 0;
        state.history.supersede(write.row, RowState { version: before, tombstone });
    }
}

/// Adds rows that nobody knows yet, and returns how many.
fn import(shard: &mut Shard, changes: Changes<'_>) -> u64 {
    let mut imported = 0;
    for row in changes.input.batches.iter().flat_map(|batch| &batch.imports) {
        let usable = row.version.cen() < changes.input.cen && !changes.stores.is_declared(row.store);
        if usable && shard.place.owns(row.row) && shard.state.map.find(row.row).is_none() {
            let flags = if row.integer { row_flag::INTEGER } else { 0 };
            shard.state.map.insert_new(row.row, row.version, flags);
            imported += 1;
        }
    }
    imported
}

/// Bytes of the key arenas that the epoch keeps alive: one per batch with a committed write.
pub(crate) fn arena_bytes(changes: Changes<'_>) -> u64 {
    let committed = |base: usize, batch: &Arc<tribunal_types::Batch>| {
        (0..batch.txns.len()).any(|i| changes.versions[base + i] != 0 && !batch.writes_of(i).is_empty())
    };
    let batches = changes.input.batches.iter().zip(&changes.txns.bases);
    batches.filter(|(batch, base)| committed(base.txn, batch)).map(|(batch, _)| batch.keys.len() as u64).sum()
}

/// Drops what lies at or below the floor.
pub(crate) fn drop_below(shard: &mut Shard, floor: Cen) {
    let ShardState { map, history, window } = &mut shard.state;
    window.drop_below(floor);
    history.drop_below(floor, |key, declared| {
        map.remove_if(key, |entry| {
            let forgettable = declared || entry.flags() & row_flag::TOMBSTONE != 0;
            forgettable && entry.version >> Version::POSITION_BITS <= floor.0
        });
    });
}
