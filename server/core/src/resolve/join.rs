//! Join: looks up every read, write and range, and fills the columns that validators judge. The host checks existence
//! here, for every level. Reads only the state after the previous epoch.

use alloc::vec::Vec;

use tribunal_types::{Batch, Isolation, OpKind, Read, Reason, StoreSnapshot, Txn, Version, Write, WriteKind};

use crate::planted::{Bug, planted};
use crate::policy::{group, write_flag};
use crate::resolve::access_class;
use crate::resolve::epoch_rows::{EpochRow, NONE, OwnRead};
use crate::resolve::evidence::{Absences, Interval, LevelEvidence, OwnAbsence, Past, RowNow, Unplaced};
use crate::resolve::scratch::{Creation, ShardScratch};
use crate::resolve::shard::{Shard, ShardState};
use crate::resolve::shard_place::ShardPlace;
use crate::resolve::txns::{BatchBase, EpochView, Fate, is_multi_version, snapshot_of, tells_sums_last};
use crate::state::history::RowState;
use crate::state::sums::{Sum, integer_of};
use crate::state::window::KeyRange;

/// Transactions looked up at a time: few enough that their rows are still in the nearest cache when they are judged.
const CHUNK: usize = 64;

/// Joins all live transactions of the epoch with one shard.
pub(crate) fn run(shard: &mut Shard, view: EpochView<'_>) {
    let Shard { place: at, state, scratch } = shard;
    if let Some(oldest) = view.txns.oldest_range {
        state.window.prepare(oldest);
    }
    join(*at, state, scratch, view);
    prepare(state, scratch, view);
    place(state, scratch, view);
}

/// Looks up the rows and fills the columns; [`place`] completes them.
pub(crate) fn join(place: ShardPlace, state: &ShardState, scratch: &mut ShardScratch, view: EpochView<'_>) {
    open(place, scratch, view);
    for (batch, base) in view.input.batches.iter().zip(&view.txns.bases) {
        let described = scratch.levels.each_ref().map(|level| level.txns.len());
        let mut start = Starts::default();
        let mut named = name(place, scratch, (batch, *base), start, batch.txns.chunks(CHUNK).next());
        for (n, chunk) in batch.txns.chunks(CHUNK).enumerate() {
            // Name the next chunk's rows first, so that they load while the current ones are looked up.
            let rows = scratch.rows.named();
            named = name(place, scratch, (batch, *base), named, batch.txns.chunks(CHUNK).nth(n + 1));
            scratch.rows.look_up(&state.map, rows);
            for (i, txn) in (n * CHUNK..).zip(chunk) {
                if view.txns.fates[base.txn + i].is_live() {
                    let one = OneTxn { batch, base: *base, txn, t: base.txn + i, start };
                    one.join(state, scratch, view);
                }
                start = Starts::after(txn);
            }
        }
        for (level, first) in scratch.levels.iter_mut().zip(described) {
            level.describe(batch, base.txn, first, &view.txns.newest);
        }
    }
    scratch.levels.iter_mut().for_each(LevelEvidence::close);
}

/// Names the rows of the transactions from `start` on, and returns the end of their operations.
fn name(
    place: ShardPlace,
    scratch: &mut ShardScratch,
    (batch, base): (&Batch, BatchBase),
    start: Starts,
    txns: Option<&[Txn]>,
) -> Starts {
    let Some(last) = txns.and_then(<[Txn]>::last) else { return start };
    let end = Starts::after(last);
    let ShardScratch { rows, read_rows, write_rows, .. } = scratch;
    let reads = batch.reads[start.reads..end.reads].iter().map(|read| read.row);
    rows.name(place, reads, &mut read_rows[base.read + start.reads..]);
    let writes = batch.writes[start.writes..end.writes].iter().map(|write| write.row);
    rows.name(place, writes, &mut write_rows[base.write + start.writes..]);
    end
}

/// Sizes the columns of the epoch's operations.
fn open(place: ShardPlace, scratch: &mut ShardScratch, view: EpochView<'_>) {
    let txns = view.txns;
    scratch.rows.reset((txns.reads + txns.writes).div_ceil(place.count as usize));
    // No contents of the last epoch are read: every row is looked up, and the rest is written before use.
    scratch.read_rows.resize(txns.reads, NONE);
    scratch.write_rows.resize(txns.writes, NONE);
    scratch.write_slots.resize(txns.writes, NONE);
    scratch.write_access.resize(txns.writes, 0);
    for ((level, occurs), needs) in scratch.levels.iter_mut().zip(txns.levels).zip(view.needs) {
        let (reads, writes) = if occurs { (txns.reads, txns.writes) } else { (0, 0) };
        level.open(view.input.epoch, reads, writes, needs);
    }
    scratch.rejected.clear();
    scratch.absences.clear();
    scratch.unplaced.clear();
    scratch.own_absences.clear();
    scratch.adds = false;
    scratch.creations.clear();
}

/// Start of a transaction's operations in its batch's columns.
#[derive(Clone, Copy, Default)]
struct Starts {
    snapshots: usize,
    reads: usize,
    ranges: usize,
    writes: usize,
}

impl Starts {
    fn after(txn: &Txn) -> Starts {
        Starts {
            snapshots: txn.snapshots_end as usize,
            reads: txn.reads_end as usize,
            ranges: txn.ranges_end as usize,
            writes: txn.writes_end as usize,
        }
    }
}

/// A transaction being joined.
#[derive(Clone, Copy)]
struct OneTxn<'a> {
    batch: &'a Batch,
    base: BatchBase,
    txn: &'a Txn,
    t: usize,
    start: Starts,
}

impl OneTxn<'_> {
    #[inline(always)]
    fn join(&self, state: &ShardState, scratch: &mut ShardScratch, view: EpochView<'_>) {
        let at_snapshot = self.txn.isolation == Isolation::Snapshot;
        let dated = view.needs[self.txn.isolation as usize] & group::SNAPSHOTS != 0;
        let multi_version = at_snapshot && is_multi_version(self.snapshots(), view.stores);
        self.join_reads(scratch, view);
        let skipped = planted(Bug::IgnoreReadSet) || planted(Bug::OnlySnapshotReadsDated) && !at_snapshot;
        let current_from = if dated && !skipped { self.date_reads(scratch, view, multi_version) } else { 0 };
        self.join_writes(state, scratch, view, multi_version);
        let level = &mut scratch.levels[self.txn.isolation as usize];
        if self.start.ranges < self.txn.ranges_end as usize {
            self.join_ranges(state, &mut level.columns.ranges.changed, view, multi_version);
        }
        level.end_txn(self.t as u32);
        if dated && level.columns.current_from.len() < level.txns.len() {
            level.columns.current_from.push(current_from);
            level.columns.multi_version.push(u8::from(multi_version));
        }
    }

    fn snapshots(&self) -> &[StoreSnapshot] {
        &self.batch.snapshots[self.start.snapshots..self.txn.snapshots_end as usize]
    }

    fn join_reads(&self, scratch: &mut ShardScratch, view: EpochView<'_>) {
        let ShardScratch { rows, read_rows, levels, .. } = scratch;
        let level = &mut levels[self.txn.isolation as usize];
        let (all_seen, all_latest) = (&mut *level.columns.reads.seen, &mut *level.columns.reads.latest);
        let rows = rows.rows.as_mut_slice();
        let mut filled = level.reads;
        let (start, end) = (self.start.reads, self.txn.reads_end as usize);
        let positions = &read_rows[self.base.read + start..self.base.read + end];
        for (read, &position) in self.batch.reads[start..end].iter().zip(positions) {
            // Rows of other shards have no position.
            let Some(row) = rows.get_mut(position as usize) else { continue };
            let seen = read.seen.map_or(0, |v| v.bits());
            let latest = latest_of(read, row, view);
            row.note_read(self.t as u32, seen == latest, seen != 0);
            all_seen[filled] = seen;
            all_latest[filled] = latest;
            filled += 1;
        }
        level.reads = filled;
    }

    /// Returns the first epoch at which all reads that are current now were current, and adds the other reads, which
    /// also have a place in time, to `unplaced`.
    fn date_reads(&self, scratch: &mut ShardScratch, view: EpochView<'_>, multi_version: bool) -> u64 {
        let ShardScratch { rows, read_rows, levels, unplaced, .. } = scratch;
        let at = levels[self.txn.isolation as usize].txns.len() as u32;
        let mut from = 0;
        let (start, end) = (self.start.reads, self.txn.reads_end as usize);
        let positions = &read_rows[self.base.read + start..self.base.read + end];
        for (read, &position) in self.batch.reads[start..end].iter().zip(positions) {
            let Some(row) = rows.rows.get(position as usize) else { continue };
            // The engine of a multi-version store read it at its snapshot.
            if multi_version && view.stores.is_multi_version(read.store) {
                continue;
            }
            match read.seen {
                Some(version) if version.bits() == latest_of(read, row, view) => from = from.max(version.epoch().0),
                None if !row.is_known() => {}
                _ => unplaced.push(Unplaced {
                    level: self.txn.isolation,
                    at,
                    txn: self.t as u32,
                    row: position,
                    seen: read.seen,
                    declared: view.stores.is_declared(read.store),
                }),
            }
        }
        from
    }

    fn join_writes(&self, state: &ShardState, scratch: &mut ShardScratch, view: EpochView<'_>, multi_version: bool) {
        let ShardScratch { rows, write_rows, write_slots, write_access, levels, rejected, own_absences, .. } = scratch;
        let (adds, creations) = (&mut scratch.adds, &mut scratch.creations);
        let at_snapshot = self.txn.isolation == Isolation::Snapshot && !planted(Bug::AbsenceNeverDated);
        let level = &mut levels[self.txn.isolation as usize];
        let rows = rows.rows.as_mut_slice();
        let (start, end) = (self.start.writes, self.txn.writes_end as usize);
        let own = self.base.write + start..self.base.write + end;
        let (slots, classes) = (&mut write_slots[own.clone()], &mut write_access[own.clone()]);
        let ops = self.batch.writes[start..end].iter().zip(&write_rows[own]).zip(slots.iter_mut().zip(classes));
        for (w, ((write, &position), (slot, class))) in ops.enumerate() {
            let Some(row) = rows.get_mut(position as usize) else { continue };
            *slot = row.slot;
            let own = row.read_by(self.t as u32);
            row.note_write(self.t as u32);
            let exists = exists(write, row, own, view);
            *class = access_class::of_write(write.kind, exists, own.was_read());
            if level.fills_writes() {
                let mut flags = self.flags_of(write, row, exists, own);
                if at_snapshot && own.was_read() && !own.is_present() && row.is_deleted() {
                    let deleted = row.entry.version >> Version::POSITION_BITS;
                    if !multi_version {
                        own_absences.push(OwnAbsence { txn: self.t as u32, write: level.writes as u32, deleted });
                    } else if deleted > view.txns.newest[self.t] {
                        flags &= !write_flag::READ_CURRENT;
                    }
                }
                level.add_write(write.kind, flags, row.live_version());
            } else {
                level.writes += 1;
            }
            let mut reason = forbidden(write.kind, exists);
            if write.kind == WriteKind::Add {
                if !exists && write.start_len > 0 {
                    reason = None;
                    *class = access_class::of_creating_add(own.was_read());
                    creations.push(Creation { row: position, txn: self.t as u32, write: w as u32 });
                }
                if reason.is_none() {
                    *adds = true;
                    reason = self.forbidden_add(write, row, exists, state, view);
                }
            }
            if let Some(reason) = reason {
                let (t, op) = (self.t as u32, (OpKind::Write, w as u32));
                let is_last = reason == Reason::AddOverflow && tells_sums_last(view);
                let fate = if is_last { Fate::at_sum(op) } else { Fate::at_join(Some(op), reason) };
                // The first rejection counts; any other rejection takes precedence over an overflowing sum.
                if rejected.last().is_none_or(|(last, earlier)| *last != t || fate < *earlier) {
                    rejected.push((t, fate));
                }
            }
        }
    }

    /// Returns why a row that exists or would be created cannot be added to: its value is not an integer, or is already
    /// too far from zero. The values of a declared store are unknown here, so they accept no adds. Start values are
    /// small, see `sums`.
    fn forbidden_add(
        &self,
        write: &Write,
        row: &EpochRow,
        exists: bool,
        state: &ShardState,
        view: EpochView<'_>,
    ) -> Option<Reason> {
        if exists && !(row.is_live() && row.is_integer()) || view.stores.is_declared(write.store) {
            return Some(Reason::NotANumber);
        }
        let Some(delta) = integer_of(write.value.of(&self.batch.values)) else { return Some(Reason::NotANumber) };
        let known = if row.is_summed() { state.sums.of(write.row) } else { Sum::UNKNOWN };
        let fits = known.headroom().after(delta).is_some() || planted(Bug::AddsNeverOverflow);
        (!fits).then_some(Reason::AddOverflow)
    }

    fn flags_of(&self, write: &Write, row: &EpochRow, exists: bool, own: OwnRead) -> u8 {
        let mut flags = if exists { write_flag::EXISTS } else { 0 };
        if own.was_read() {
            flags |= write_flag::WAS_READ | if own.is_current() { write_flag::READ_CURRENT } else { 0 };
        }
        let changed = matches!(
            (row.written_at(), snapshot_of(self.snapshots(), write.store)),
            (Some(v), Some(s)) if v.epoch() > s
        );
        if changed && !planted(Bug::FirstCommitterIgnored) {
            flags |= write_flag::CHANGED_SINCE_SNAPSHOT;
        }
        flags
    }

    fn join_ranges(&self, state: &ShardState, changed: &mut Vec<u8>, view: EpochView<'_>, multi_version: bool) {
        for range in &self.batch.ranges[self.start.ranges..self.txn.ranges_end as usize] {
            // Without a snapshot of its store, a range could be as old as the floor.
            let snapshot = snapshot_of(self.snapshots(), range.store).unwrap_or(view.floor);
            let keys = KeyRange {
                store: range.store,
                start: range.start.of(&self.batch.keys),
                end: range.end.of(&self.batch.keys),
            };
            // The engine of a multi-version store scanned it at its snapshot; the range may change afterwards.
            let at_snapshot = multi_version && view.stores.is_multi_version(range.store);
            let hit = !at_snapshot && !planted(Bug::SkipRanges) && state.window.changed(&keys, snapshot);
            changed.push(u8::from(hit));
        }
    }
}

/// Returns the version bits of the row's current state, 0 if it is absent.
#[inline(always)]
fn latest_of(read: &Read, row: &EpochRow, view: EpochView<'_>) -> u64 {
    if planted(Bug::IgnoreReadSet) {
        return read.seen.map_or(0, |v| v.bits());
    }
    if row.is_known() { row.live_version() } else { unknown_latest(read, view) }
}

/// Returns the assumed version of a row that the map does not contain: absent, or in a declared store the version that
/// the engine read, if that can be older than the history.
fn unknown_latest(read: &Read, view: EpochView<'_>) -> u64 {
    match read.seen {
        Some(seen) if seen.epoch() <= view.floor && view.stores.is_declared(read.store) => seen.bits(),
        _ => 0,
    }
}

/// Returns whether the written row exists before the epoch.
#[inline(always)]
fn exists(write: &Write, row: &EpochRow, own: OwnRead, view: EpochView<'_>) -> bool {
    if row.is_known() { row.is_live() } else { exists_unknown(write, own, view) }
}

/// Returns whether a row that the map does not contain exists: in a declared store, the engine's read set decides.
fn exists_unknown(write: &Write, own: OwnRead, view: EpochView<'_>) -> bool {
    let claimed =
        if own.was_read() { own.is_present() } else { !matches!(write.kind, WriteKind::Insert | WriteKind::Put) };
    view.stores.is_declared(write.store) && claimed
}

/// Returns why a write is not possible on the state before the epoch.
#[inline(always)]
fn forbidden(kind: WriteKind, exists: bool) -> Option<Reason> {
    /// Kinds that require the row to exist, or to be missing, one bit each: a lookup is cheaper than a branch that
    /// mispredicts.
    const NEED_ROW: u32 = 1 << WriteKind::Update as u32 | 1 << WriteKind::Delete as u32 | 1 << WriteKind::Add as u32;
    const NEED_NONE: u32 = 1 << WriteKind::Insert as u32;
    let (failing, reason) = if exists { (NEED_NONE, Reason::RowExists) } else { (NEED_ROW, Reason::RowMissing) };
    (failing >> kind as u32 & 1 != 0).then_some(reason)
}

fn state_now(row: &EpochRow) -> Option<RowState> {
    let version = row.written_at()?;
    Some(RowState { version, tombstone: !row.is_live() })
}

/// Indexes the parts of the history that [`place`] will search.
fn prepare(state: &mut ShardState, scratch: &ShardScratch, view: EpochView<'_>) {
    for read in &scratch.unplaced {
        let row = &scratch.rows.rows[read.row as usize];
        let since = read.seen.map_or(view.txns.newest[read.txn as usize], |v| v.epoch().0);
        if let Some(now) = state_now(row) {
            state.history.prepare_chain(row.entry.key(), now.version, view.floor.0.max(since));
        }
    }
}

/// Narrows down when the reads of each transaction were current. Multiple absences of one row stay undecided until all
/// shards are joined.
pub(crate) fn place(state: &ShardState, scratch: &mut ShardScratch, view: EpochView<'_>) {
    let ShardScratch { rows, unplaced, absences, levels, .. } = scratch;
    let past = Past { history: &state.history, floor: view.floor };
    for read in unplaced.drain(..) {
        let row = &rows.rows[read.row as usize];
        let now = RowNow { key: row.entry.key(), state: state_now(row), declared: read.declared };
        let found = match read.seen {
            Some(seen) => past.when_present(&now, seen),
            None => {
                let mut intervals = Vec::new();
                past.when_absent(&now, view.txns.newest[read.txn as usize], &mut intervals);
                if intervals.len() > 1 {
                    intervals.reverse();
                    absences.push(Absences { txn: read.txn, intervals });
                    continue;
                }
                intervals.first().copied().unwrap_or(Interval::NEVER)
            }
        };
        let columns = &mut levels[read.level as usize].columns;
        let (from, until) = (&mut columns.current_from[read.at as usize], &mut columns.current_until[read.at as usize]);
        (*from, *until) = ((*from).max(found.from), (*until).min(found.until));
    }
}
