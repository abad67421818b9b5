//! The resolver: a pure function of the state after the previous epoch and the epoch's input. Its stages have a file
//! each: identity, join, validate, vote, merge, apply.
//!
//! No I/O, no clock, no thread: shards are reached through a [`ShardExecutor`], policies through [`Policies`]. The
//! outcome depends neither on the number of shards nor on how the transactions are distributed over the groups' batches
//! (except for the middle of the serial order, which is ordered by group).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use tribunal_types::{
    Batch, Bounds, CreatedRow, Decision, Digest, Epoch, EpochInput, EpochOutcome, FenceResult, Generation, Isolation,
    Lsn, NamespaceId, OpKind, RowKey, Stage, StoreId, StoreLsn, StoreSpec, TxnId, TxnIx, VerdictAt, Version, Witness,
    limits,
};

use crate::image::frozen::Frozen;
use crate::planted::{Bug, planted};
use crate::policy::{Policies, group};
use crate::resolve::apply::{self, Changes};
use crate::resolve::executor::ShardExecutor;
use crate::resolve::merge::{Loser, Merged};
use crate::resolve::scratch::{Creation, ShardScratch};
use crate::resolve::shard::Shard;
use crate::resolve::shard_place::ShardPlace;
use crate::resolve::txns::{Abort, EpochView, Fate, TxnTable, first_op, snapshot_of};
use crate::resolve::{join, validate, vote};
use crate::row_key::RowKeyer;
use crate::state::digest;
use crate::state::floor::{EpochMark, Floor};
use crate::state::id_table::{IdLimits, IdTable, Known};
use crate::state::scoped_id::ScopedId;
use crate::state::stores::Stores;
use crate::state::window::KeyRange;

/// Bounds of a resolver. All are replicated settings, because they affect verdicts.
#[derive(Clone, Copy, Debug)]
pub struct ResolverConfig {
    /// Partitions of the version map; at least 1. They affect outcomes only through failing validators: each call gets
    /// one partition's share of an epoch.
    pub shards: u16,
    /// Bytes of history above which the floor rises early.
    pub window_bytes_max: usize,
    /// Age in milliseconds of `epoch_time` at which history is dropped.
    pub floor_age_ms: u64,
    /// Maximum distance of an id's time from `epoch_time`, in milliseconds.
    pub id_window_ms: u64,
    /// Bytes of the id table above which its oldest second is dropped.
    pub status_bytes_max: usize,
    /// Age in milliseconds of `epoch_time` at which ids are dropped.
    pub status_age_ms: u64,
    /// Names rows. A written key belongs to its row's partition, also after a restart from an image.
    pub keyer: RowKeyer,
}

impl Default for ResolverConfig {
    fn default() -> ResolverConfig {
        ResolverConfig {
            shards: 1,
            window_bytes_max: limits::WINDOW_BYTES_MAX,
            floor_age_ms: limits::FLOOR_AGE_MS,
            id_window_ms: limits::ID_WINDOW_MS,
            status_bytes_max: limits::STATUS_BYTES_MAX,
            status_age_ms: limits::STATUS_AGE_MS,
            keyer: RowKeyer::new([0; 16]),
        }
    }
}

/// Sizes, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResolverStats {
    /// Rows in the version map, tombstones included.
    pub rows: u64,
    /// Bytes of the version map and of the row sums.
    pub row_bytes: u64,
    /// Bytes of history and range window above the floor.
    pub history_bytes: u64,
    /// Ids in the id table.
    pub ids: u64,
    /// Bytes charged for the ids.
    pub ids_bytes: u64,
    /// Transactions of the last epoch that contended for a row or range.
    pub contended: u64,
    /// Transactions of the last epoch placed before the uncontended ones.
    pub front: u64,
}

/// The deterministic resolver: the state of all shards, the ids, the stores and the floor.
#[derive(Debug)]
pub struct Resolver {
    pub(crate) config: ResolverConfig,
    pub(crate) shards: Vec<Shard>,
    pub(crate) stores: Stores,
    pub(crate) ids: IdTable,
    pub(crate) floor: Floor,
    pub(crate) last: Epoch,
    pub(crate) epoch_time_ms: u64,
    pub(crate) digest: Digest,
    /// The generation whose rules decide.
    pub(crate) generation: Generation,
    /// The image being taken.
    pub(crate) freezing: Option<Frozen>,
    scratch: Scratch,
}

/// Memory that one epoch fills and the next reuses.
#[derive(Debug, Default)]
struct Scratch {
    txns: TxnTable,
    merged: Merged,
    /// By transaction: its version's bits, 0 if it did not commit.
    versions: Vec<u64>,
    fates: Vec<Fate>,
}

/// How many transactions ahead ids are prefetched, and how many at a time: adjacent prefetches overlap their address
/// translations.
const LOOKAHEAD: usize = 8;

impl Resolver {
    /// Creates the resolver of the empty database.
    #[must_use]
    pub fn new(config: ResolverConfig) -> Resolver {
        let count = u32::from(config.shards.max(1));
        Resolver {
            config,
            shards: (0..count).map(|index| Shard::new(index, count)).collect(),
            stores: Stores::default(),
            ids: IdTable::new(),
            floor: Floor::default(),
            last: Epoch(0),
            epoch_time_ms: 0,
            digest: Digest(0),
            generation: Generation::FIRST,
            freezing: None,
            scratch: Scratch::default(),
        }
    }

    /// Creates a store or changes its rules, effective from the next epoch.
    pub fn declare_store(&mut self, spec: StoreSpec) {
        self.stores.declare(spec);
    }

    /// Changes the bounds, effective from the next epoch, and returns whether the number of partitions changed.
    /// Changing it takes a pass over the whole state and abandons an image being taken, so it is meant for the first
    /// entries of a log.
    pub fn set_bounds(&mut self, bounds: Bounds) -> bool {
        self.config.window_bytes_max = usize::try_from(bounds.window_bytes_max).unwrap_or(usize::MAX);
        self.config.status_bytes_max = usize::try_from(bounds.status_bytes_max).unwrap_or(usize::MAX);
        let shards = bounds.partitions.max(1);
        if usize::from(shards) == self.shards.len() {
            return false;
        }
        let config = ResolverConfig { shards, ..self.config };
        *self = Resolver::restore(config, self.image()).expect("a resolver reads its own image");
        true
    }

    /// Switches to the rules of another generation, effective from the next epoch. There is no way back: an earlier
    /// generation than the current one changes nothing.
    pub fn switch_generation(&mut self, generation: Generation) {
        if self.generation < Generation::SECOND && generation >= Generation::SECOND {
            self.stores.assume_deletions(self.last);
        }
        self.generation = self.generation.max(generation);
    }

    /// Returns the generation whose rules decide.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// Returns whether a store's existence rule can no longer change, because the store has records or imported rows.
    #[must_use]
    pub fn is_existence_fixed(&self, store: StoreId) -> bool {
        self.head_lsn(store) > Lsn(0) || self.generation >= Generation::SECOND && self.rows_of(store) > 0
    }

    /// Resolves the next epoch: decides every item of its input and applies the decisions to the state.
    ///
    /// # Panics
    /// If the epoch is not after the last one.
    pub fn resolve(&mut self, input: &EpochInput, policies: &Policies<'_>, exec: &dyn ShardExecutor) -> EpochOutcome {
        assert!(input.epoch > self.last, "epoch {} is resolved after {}", input.epoch, self.last);
        let mut scratch = core::mem::take(&mut self.scratch);
        let mut outcome =
            EpochOutcome { epoch: input.epoch, epoch_time_ms: input.epoch_time_ms, ..EpochOutcome::default() };
        scratch.txns.reset(input);
        self.identify(input, &mut scratch.txns, &mut outcome);
        scratch.txns.judge_snapshots(input, &self.stores, self.floor.at(), (policies.needs(), self.generation));
        self.contest(input, policies, exec, &mut scratch, &mut outcome);
        self.decide(input, &mut scratch, &mut outcome);
        self.find_created(&scratch.versions, &mut outcome);
        self.number(input, &mut outcome);
        self.apply(input, &scratch.txns, &scratch.versions, true, exec, &mut outcome);
        self.finish(input, &mut outcome, None, exec);
        self.scratch = scratch;
        outcome
    }

    /// Applies a recorded outcome to the state. The record is authoritative, whatever today's policies would decide.
    ///
    /// # Panics
    /// If the epoch is not after the last one, or the record belongs to another input.
    pub fn replay(&mut self, input: &EpochInput, recorded: &EpochOutcome, exec: &dyn ShardExecutor) {
        assert!(input.epoch > self.last, "epoch {} is replayed after {}", input.epoch, self.last);
        assert_eq!(input.txn_count(), recorded.decisions.len(), "the record of epoch {} is of its input", input.epoch);
        let mut scratch = core::mem::take(&mut self.scratch);
        scratch.txns.reset(input);
        scratch.versions.clear();
        scratch.versions.extend(recorded.decisions.iter().map(|decision| match decision {
            Decision::Committed { version } => version.bits(),
            _ => 0,
        }));
        self.note_ids(input, recorded);
        for lsn in &recorded.lsns {
            self.stores.set_head(lsn.store, lsn.lsn);
        }
        let mut replayed = recorded.clone();
        self.apply(input, &scratch.txns, &scratch.versions, false, exec, &mut replayed);
        self.finish(input, &mut replayed, Some(recorded), exec);
        self.scratch = scratch;
    }

    /// Step 0, transactions by CSN: known ids, duplicates within the epoch, and ids outside the window take no part.
    fn identify(&mut self, input: &EpochInput, txns: &mut TxnTable, outcome: &mut EpochOutcome) {
        let limits = self.id_limits();
        // Overwritten for every transaction that takes part.
        outcome.decisions.resize(txns.txns, Decision::Expired);
        let mut cursors = Cursors::new(input);
        while let Some((b, i)) = cursors.next(input) {
            let txn = &input.batches[b].txns[i];
            if i % LOOKAHEAD == 0 {
                let ahead = input.batches[b].txns.iter().skip(i + LOOKAHEAD).take(LOOKAHEAD);
                ahead.for_each(|txn| self.ids.prefetch(&ScopedId { namespace: txn.namespace, id: txn.id }));
            }
            let t = txns.bases[b].txn + i;
            let id = ScopedId { namespace: txn.namespace, id: txn.id };
            let at = VerdictAt { epoch: input.epoch, item: t as u32 };
            let outside = self.ids.is_outside(txn.id, input.epoch_time_ms, &limits);
            let known = if planted(Bug::ReplayExecutes) {
                None
            } else if outside {
                self.ids.find(&id)
            } else {
                self.ids.find_or_insert(&id, Some(txn.body_hash), at, self.digest.0)
            };
            let own = txns.bases[b].txn..txns.bases[b].txn + input.batches[b].txns.len();
            let is_of_another_group = |at: VerdictAt| at.epoch == input.epoch && !own.contains(&(at.item as usize));
            let refused = match known {
                Some((original, _)) if planted(Bug::DuplicateAcrossGroups) && is_of_another_group(original) => continue,
                Some((original, body)) if body.is_none_or(|body| body == txn.body_hash) => {
                    Decision::Replayed { original }
                }
                Some(_) => Decision::BodyMismatch,
                None if outside => Decision::Expired,
                None => {
                    if planted(Bug::ReplayExecutes) {
                        self.ids.insert(&id, Some(txn.body_hash), at, self.digest.0);
                    }
                    continue;
                }
            };
            outcome.decisions[t] = refused;
            txns.fates[t] = Fate::IDLE;
        }
        self.identify_early_aborts(input, txns.txns, outcome);
    }

    /// Early aborts, then fences; both follow the epoch's transactions.
    fn identify_early_aborts(&mut self, input: &EpochInput, txns: usize, outcome: &mut EpochOutcome) {
        let limits = self.id_limits();
        let outside = |ids: &IdTable, id: TxnId| ids.is_outside(id, input.epoch_time_ms, &limits);
        let mut item = txns as u32;
        for abort in input.batches.iter().flat_map(|b| &b.early_aborts) {
            let id = ScopedId { namespace: abort.namespace, id: abort.id };
            let own = VerdictAt { epoch: input.epoch, item };
            item += 1;
            let known = self.ids.find(&id).map(|(at, _)| at);
            // An id that can no longer be executed need not be remembered.
            if known.is_none() && !outside(&self.ids, abort.id) {
                self.ids.insert(&id, abort.body_hash, own, self.digest.0);
            }
            outcome.early_aborts.push(known.unwrap_or(own));
        }
        for fence in input.batches.iter().flat_map(|b| &b.fences) {
            let id = ScopedId { namespace: fence.namespace, id: fence.id };
            let own = VerdictAt { epoch: input.epoch, item };
            item += 1;
            outcome.fences.push(match self.ids.find(&id) {
                Some((at, _)) => FenceResult::Known(at),
                None if outside(&self.ids, fence.id) => FenceResult::Expired,
                None => {
                    self.ids.insert(&id, None, own, self.digest.0);
                    FenceResult::Fenced
                }
            });
        }
    }

    /// Adds the ids that a recorded epoch decided to the id table.
    fn note_ids(&mut self, input: &EpochInput, recorded: &EpochOutcome) {
        let limits = self.id_limits();
        let epoch = input.epoch;
        let seed = self.digest.0;
        let txns = input.batches.iter().flat_map(|b| &b.txns);
        let mut item = 0;
        for (txn, decision) in txns.zip(&recorded.decisions) {
            if matches!(decision, Decision::Committed { .. } | Decision::Aborted { .. }) {
                let id = ScopedId { namespace: txn.namespace, id: txn.id };
                self.ids.insert(&id, Some(txn.body_hash), VerdictAt { epoch, item }, seed);
            }
            item += 1;
        }
        for (abort, &at) in input.batches.iter().flat_map(|b| &b.early_aborts).zip(&recorded.early_aborts) {
            let own = VerdictAt { epoch, item };
            let id = ScopedId { namespace: abort.namespace, id: abort.id };
            if at == own && !self.ids.is_outside(abort.id, input.epoch_time_ms, &limits) {
                self.ids.insert(&id, abort.body_hash, own, seed);
            }
            item += 1;
        }
        for (fence, result) in input.batches.iter().flat_map(|b| &b.fences).zip(&recorded.fences) {
            if *result == FenceResult::Fenced {
                let id = ScopedId { namespace: fence.namespace, id: fence.id };
                self.ids.insert(&id, None, VerdictAt { epoch, item }, seed);
            }
            item += 1;
        }
    }

    /// Steps 1 to 5: join, validate, vote, rank, merge.
    fn contest(
        &mut self,
        input: &EpochInput,
        policies: &Policies<'_>,
        exec: &dyn ShardExecutor,
        scratch: &mut Scratch,
        outcome: &mut EpochOutcome,
    ) {
        let Scratch { txns, merged, fates, .. } = scratch;
        let (stores, floor, needs, generation) = (&self.stores, self.floor.at(), policies.needs(), self.generation);
        let shards = self.shards.as_mut_slice();
        exec.for_each(shards, &|shard| join::run(shard, EpochView { input, txns, stores, floor, needs, generation }));
        if Isolation::ALL
            .into_iter()
            .any(|level| txns.levels[level as usize] && needs[level as usize] & group::SNAPSHOTS != 0)
        {
            let mut scratches: Vec<_> = shards.iter_mut().map(|s| &mut s.scratch).collect();
            validate::settle_reads(&mut scratches, txns, needs);
        }
        validate::run(shards, txns.levels, policies.validator, exec, &mut outcome.fallbacks);
        let view = EpochView { input, txns, stores, floor, needs, generation };
        fates.clear();
        fates.extend_from_slice(&txns.fates);
        shards.iter().for_each(|s| validate::collect(s.place, &s.scratch, view, fates));
        exec.for_each(shards, &|shard| vote::run(shard, view, fates));
        merged.run(shards, view, policies, &mut outcome.fallbacks);
    }

    /// Turns fates and the merge's order into decisions, versions and the serial order.
    fn decide(&mut self, input: &EpochInput, scratch: &mut Scratch, outcome: &mut EpochOutcome) {
        let Scratch { txns, merged, versions, fates } = scratch;
        versions.clear();
        versions.resize(txns.txns, 0);
        let version = |position: usize| {
            let position = u32::try_from(position).ok().and_then(|p| Version::new(input.epoch, p));
            position.expect("positions fit a version: see limits::TXNS_PER_EPOCH_MAX")
        };
        let middle = version(merged.front.len());
        outcome.order.reserve(txns.txns);
        outcome.order.extend(merged.front.iter().rev().map(|&t| TxnIx(t)));
        for t in 0..txns.txns {
            if fates[t].is_live() && !merged.contended[t] {
                outcome.order.push(TxnIx(t as u32));
                outcome.decisions[t] = Decision::Committed { version: middle };
                versions[t] = middle.bits();
            } else if !fates[t].is_live() {
                self.abort(input, t, fates[t], outcome);
            }
        }
        outcome.order.extend(merged.back.iter().map(|&t| TxnIx(t)));
        let back = merged.front.len() + 1;
        let front = merged.front.iter().rev().enumerate();
        for (position, &t) in front.chain(merged.back.iter().enumerate().map(|(i, t)| (back + i, t))) {
            let version = version(position);
            outcome.decisions[t as usize] = Decision::Committed { version };
            versions[t as usize] = version.bits();
        }
        for &Loser { txn, reason, witnesses } in &merged.losers {
            let first = outcome.witnesses.len() as u32;
            outcome.witnesses.extend(witnesses.into_iter().flatten());
            let count = outcome.witnesses.len() as u32 - first;
            outcome.decisions[txn as usize] = Decision::Aborted { reason, first, count };
            if planted(Bug::ApplyLosers) {
                versions[txn as usize] = middle.bits();
            }
        }
    }

    /// Records an abort at join or validation, with the operation to blame.
    fn abort(&self, input: &EpochInput, t: usize, fate: Fate, outcome: &mut EpochOutcome) {
        let Some(Abort { stage, op, reason }) = fate.abort() else { return };
        let (batch, txn) = input.locate(TxnIx(t as u32));
        let first = outcome.witnesses.len() as u32;
        let blamed = op.or_else(|| first_op(batch, txn, None));
        if let Some((op, index)) = blamed {
            let row = match op {
                OpKind::Read => Some(batch.reads[batch.reads_of(txn)][index as usize].row),
                OpKind::Write => Some(batch.writes[batch.writes_of(txn)][index as usize].row),
                OpKind::Range => None,
            };
            let current = match op {
                OpKind::Range if stage == Stage::Validate => self.range_changed_in(batch, txn, index),
                _ => row.and_then(|row| self.version_of(row)),
            };
            outcome.witnesses.push(Witness { op, index, current, winner: None, stage });
        }
        let count = outcome.witnesses.len() as u32 - first;
        outcome.decisions[t] = Decision::Aborted { reason, first, count };
    }

    /// Finds the adds that created their rows: for each row, the committed add that is first in the serial order.
    fn find_created(&self, versions: &[u64], outcome: &mut EpochOutcome) {
        for ShardScratch { creations, .. } in self.shards.iter().map(|shard| &shard.scratch) {
            let mut first: BTreeMap<u32, (u64, CreatedRow)> = BTreeMap::new();
            for &Creation { row, txn, write } in creations {
                let version = versions[txn as usize];
                let own = (version, CreatedRow { txn: TxnIx(txn), write });
                if version != 0 && planted(Bug::EveryAddCreates) {
                    outcome.created.push(own.1);
                } else if version != 0 {
                    first.entry(row).and_modify(|first| *first = own.min(*first)).or_insert(own);
                }
            }
            outcome.created.extend(first.values().map(|(_, created)| *created));
        }
        outcome.created.sort_unstable();
    }

    /// Assigns every committed transaction its position in the log of each store that it writes.
    fn number(&mut self, input: &EpochInput, outcome: &mut EpochOutcome) {
        let EpochOutcome { order, lsns, .. } = outcome;
        lsns.reserve(order.len());
        let mut stores: Vec<StoreId> = Vec::new();
        for &txn in order.iter() {
            let (batch, i) = input.locate(txn);
            let writes = &batch.writes[batch.writes_of(i)];
            let Some(first) = writes.first() else { continue };
            if writes.iter().all(|w| w.store == first.store) {
                lsns.push(StoreLsn { txn, store: first.store, lsn: self.stores.advance(first.store) });
                continue;
            }
            stores.clear();
            stores.extend(writes.iter().map(|w| w.store));
            stores.sort_unstable();
            stores.dedup();
            for &store in &stores {
                lsns.push(StoreLsn { txn, store, lsn: self.stores.advance(store) });
            }
        }
        if planted(Bug::LsnGap)
            && let [.., before, last] = lsns.as_mut_slice()
            && before.store == last.store
        {
            last.lsn = self.stores.advance(last.store);
        }
    }

    /// Step 6, the rows: versions, history and range window of every shard.
    fn apply(
        &mut self,
        input: &EpochInput,
        txns: &TxnTable,
        versions: &[u64],
        joined: bool,
        exec: &dyn ShardExecutor,
        outcome: &mut EpochOutcome,
    ) {
        let changes = Changes { input, txns, stores: &self.stores, versions, joined, floor: self.floor.at() };
        exec.for_each(&mut self.shards, &|shard| apply::run(shard, changes));
        let rows: u64 = self.shards.iter().map(|s| s.scratch.applied_bytes).sum();
        let bytes = rows + apply::arena_bytes(changes);
        outcome.imported.clear();
        for imported in self.shards.iter().map(|s| &s.scratch.imported) {
            outcome.imported.resize(imported.len(), 0);
            outcome.imported.iter_mut().zip(imported).for_each(|(all, rows)| *all += rows);
        }
        self.floor.note(EpochMark { epoch: input.epoch, time_ms: input.epoch_time_ms, bytes });
        if self.generation >= Generation::SECOND {
            let deleted = self.shards.iter().flat_map(|shard| &shard.scratch.deleted);
            deleted.for_each(|store| self.stores.note_deletion(*store, input.epoch));
        }
    }

    /// Raises the floor, expires old ids and chains the digest.
    fn finish(
        &mut self,
        input: &EpochInput,
        outcome: &mut EpochOutcome,
        recorded: Option<&EpochOutcome>,
        exec: &dyn ShardExecutor,
    ) {
        let before = self.floor.at();
        match recorded {
            Some(recorded) => self.floor.rise_to(recorded.floor),
            None => {
                let bytes_max = self.config.window_bytes_max as u64;
                self.floor.rise(input.epoch_time_ms, self.config.floor_age_ms, bytes_max);
            }
        }
        let floor = self.floor.at();
        if floor > before {
            exec.for_each(&mut self.shards, &|shard| apply::drop_below(shard, floor));
        }
        self.ids.expire(input.epoch_time_ms, &self.id_limits());
        outcome.floor = floor;
        outcome.digest = match recorded {
            Some(recorded) => recorded.digest,
            None => digest::chained(self.digest, input, outcome),
        };
        self.digest = outcome.digest;
        self.last = input.epoch;
        self.epoch_time_ms = input.epoch_time_ms;
    }

    pub(crate) fn id_limits(&self) -> IdLimits {
        IdLimits {
            window_ms: self.config.id_window_ms,
            age_ms: self.config.status_age_ms,
            bytes_max: self.config.status_bytes_max as u64,
        }
    }

    /// Returns position 0 of the epoch in which the first changed row of a transaction's range was last written, or
    /// `None` if no row in it was written after the range's snapshot.
    pub(crate) fn range_changed_in(&self, batch: &Batch, txn: usize, range: u32) -> Option<Version> {
        let range = &batch.ranges[batch.ranges_of(txn)][range as usize];
        let snapshot = snapshot_of(&batch.snapshots[batch.snapshots_of(txn)], range.store).unwrap_or(self.floor.at());
        let (start, end) = (range.start.of(&batch.keys), range.end.of(&batch.keys));
        let keys = KeyRange { store: range.store, start, end };
        let changes = self.shards.iter().filter_map(|shard| shard.state.window.first_change(&keys, snapshot));
        let (_, epoch) = changes.min_by(|a, b| a.0.cmp(b.0).then(b.1.cmp(&a.1)))?;
        Version::new(epoch, 0)
    }

    pub(crate) fn shard_of(&self, row: RowKey) -> &Shard {
        let count = self.shards.len() as u32;
        &self.shards[ShardPlace { index: 0, count }.of(row) as usize]
    }

    /// Returns the version of a row that currently exists.
    pub(crate) fn version_of(&self, row: RowKey) -> Option<Version> {
        let (_, entry) = self.shard_of(row).state.map.find(row)?;
        if entry.flags() & crate::state::map_entry::row_flag::TOMBSTONE != 0 {
            return None;
        }
        Version::from_bits(entry.version)
    }

    /// Returns the sum of the rows' versions. Only probes the version map; a baseline for benchmarks.
    #[doc(hidden)]
    #[must_use]
    pub fn probe(&self, rows: &[RowKey]) -> u64 {
        let map = |row: RowKey| &self.shard_of(row).state.map;
        let mut sum = 0_u64;
        let mut likely = alloc::vec![0; rows.len()];
        for at in (0..rows.len()).step_by(LOOKAHEAD) {
            for (&row, likely) in rows.iter().zip(&mut likely).skip(at + 4 * LOOKAHEAD).take(LOOKAHEAD) {
                *likely = map(row).prefetch_tags(row);
            }
            for (&row, likely) in rows.iter().zip(&mut likely).skip(at + 2 * LOOKAHEAD).take(LOOKAHEAD) {
                *likely = map(row).prefetch_likely(row, *likely);
            }
            for (&row, &likely) in rows.iter().zip(&likely).skip(at).take(LOOKAHEAD) {
                sum = sum.wrapping_add(map(row).find_at(row, likely).map_or(0, |(_, entry)| entry.version));
            }
        }
        sum
    }

    /// Returns the status of an id in the id table.
    #[must_use]
    pub fn known(&self, namespace: NamespaceId, id: TxnId) -> Known {
        self.known_at(namespace, id, self.epoch_time_ms)
    }

    /// Returns the status of an id in the id table, as of an epoch with this time.
    #[must_use]
    pub fn known_at(&self, namespace: NamespaceId, id: TxnId, epoch_time_ms: u64) -> Known {
        match self.ids.find(&ScopedId { namespace, id }) {
            Some((at, body)) => Known::At(at, body),
            None if self.ids.is_outside(id, epoch_time_ms, &self.id_limits()) => Known::OutsideWindow,
            None => Known::Unknown,
        }
    }

    /// Returns the last complete epoch.
    #[must_use]
    pub fn last(&self) -> Epoch {
        self.last
    }

    /// Skips epochs without decisions, up to and including `upto`.
    ///
    /// # Panics
    /// If a later epoch was resolved.
    pub fn pass_over(&mut self, upto: Epoch) {
        assert!(upto >= self.last, "epoch {upto} is passed over after {}", self.last);
        self.last = upto;
    }

    /// Returns the oldest snapshot whose history is still retained.
    #[must_use]
    pub fn floor(&self) -> Epoch {
        self.floor.at()
    }

    /// Returns the replicated time of the last epoch, Unix milliseconds.
    #[must_use]
    pub fn epoch_time_ms(&self) -> u64 {
        self.epoch_time_ms
    }

    /// Returns the time from which on ids are remembered, Unix milliseconds.
    #[must_use]
    pub fn ids_from_ms(&self) -> u64 {
        self.ids.floor_ms()
    }

    /// Returns the last position of a store's log; 0 if it is empty.
    #[must_use]
    pub fn head_lsn(&self, store: StoreId) -> Lsn {
        self.stores.head(store)
    }

    /// Returns the last log position of each store with a non-empty log, in ascending order of store.
    pub fn heads(&self) -> impl Iterator<Item = (StoreId, Lsn)> + '_ {
        self.stores.iter().filter(|store| store.head > Lsn(0)).map(|store| (store.id, store.head))
    }

    /// Returns the digest chained over all outcomes.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the number of existing rows of a tracked store; 0 for a declared store, whose rows only its engine
    /// counts.
    #[must_use]
    pub fn rows_of(&self, store: StoreId) -> u64 {
        let rows: i64 = self.shards.iter().map(|shard| shard.state.row_counts.of(store)).sum();
        u64::try_from(rows).unwrap_or(0)
    }

    /// Returns sizes, for metrics.
    #[must_use]
    pub fn stats(&self) -> ResolverStats {
        let sum = |of: &dyn Fn(&Shard) -> usize| self.shards.iter().map(|s| of(s) as u64).sum();
        ResolverStats {
            rows: sum(&|s| s.state.map.rows()),
            row_bytes: sum(&|s| s.state.map.bytes() + s.state.sums.bytes()),
            history_bytes: self.floor.bytes(),
            ids: self.ids.count(),
            ids_bytes: self.ids.bytes(),
            contended: self.scratch.merged.contended_count() as u64,
            front: self.scratch.merged.front.len() as u64,
        }
    }
}

/// Walks the transactions of all batches by CSN. Each batch is already in ascending order.
struct Cursors {
    next: Vec<usize>,
}

impl Cursors {
    fn new(input: &EpochInput) -> Cursors {
        Cursors { next: alloc::vec![0; input.batches.len()] }
    }

    #[inline]
    fn next(&mut self, input: &EpochInput) -> Option<(usize, usize)> {
        if let [batch] = &input.batches[..] {
            let i = self.next[0];
            self.next[0] += 1;
            return (i < batch.txns.len()).then_some((0, i));
        }
        let heads = self.next.iter().zip(&input.batches).enumerate();
        let (b, _) =
            heads.filter_map(|(b, (&i, batch))| Some((b, batch.txns.get(i)?.csn))).min_by_key(|&(_, csn)| csn)?;
        let i = self.next[b];
        self.next[b] += 1;
        Some((b, i))
    }
}
