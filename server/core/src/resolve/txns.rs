//! The facts about the epoch's transactions that every stage of the resolver needs, in columns by
//! [`tribunal_types::TxnIx`].

use alloc::vec::Vec;

use tribunal_types::{
    Batch, Epoch, EpochInput, Generation, Isolation, OpKind, Read, Reason, Stage, StoreId, StoreSnapshot,
};

use crate::planted::{Bug, planted};
use crate::policy::group;
use crate::state::stores::Stores;

/// A transaction's fate so far, in one word so that the findings of shards combine by `min`: not taking part, then
/// aborted at the join, aborted by the validator (each by the first operation to blame), aborted for a sum, and live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fate(u64);

impl Fate {
    /// Takes no part: its id is known or rejected.
    pub(crate) const IDLE: Fate = Fate(0);
    /// Not aborted so far.
    pub(crate) const LIVE: Fate = Fate(u64::MAX);

    const JOIN: u64 = 1 << 62;
    const VALIDATE: u64 = 2 << 62;
    const SUM: u64 = 3 << 62;
    const NO_OP: u64 = 3;

    fn aborted(stage: u64, op: Option<(OpKind, u32)>, reason: Reason) -> Fate {
        let (kind, index) = op.map_or((Self::NO_OP, 0), |(kind, index)| (kind as u64, index));
        Fate(stage | kind << 40 | u64::from(index) << 8 | u64::from(reason.code()))
    }

    /// Returns the fate of a transaction aborted by snapshot bounds or existence.
    pub(crate) fn at_join(op: Option<(OpKind, u32)>, reason: Reason) -> Fate {
        Self::aborted(Self::JOIN, op, reason)
    }

    /// Returns the fate of a transaction aborted by the validator of its level.
    pub(crate) fn at_validate(op: Option<(OpKind, u32)>, reason: Reason) -> Fate {
        Self::aborted(Self::VALIDATE, op, reason)
    }

    /// Returns the fate of a transaction aborted at the join for a sum that could leave 64 bits. It ranks last, so it
    /// is reported only if nothing else is wrong: the same work on fresh reads may add something else.
    pub(crate) fn at_sum(op: (OpKind, u32)) -> Fate {
        Self::aborted(Self::SUM, Some(op), Reason::AddOverflow)
    }

    pub(crate) fn is_live(self) -> bool {
        self == Self::LIVE
    }

    /// Returns the stage, operation and reason of an abort, if any.
    pub(crate) fn abort(self) -> Option<Abort> {
        if self == Self::IDLE || self == Self::LIVE {
            return None;
        }
        let stage = match self.0 >> 62 {
            2 => Stage::Validate,
            _ => Stage::Join,
        };
        let index = (self.0 >> 8) as u32;
        let op = match self.0 >> 40 & 3 {
            0 => Some((OpKind::Read, index)),
            1 => Some((OpKind::Range, index)),
            2 => Some((OpKind::Write, index)),
            _ => None,
        };
        Some(Abort { stage, op, reason: Reason::from_code(self.0 as u8)? })
    }
}

/// An abort before the merge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Abort {
    pub(crate) stage: Stage,
    /// The operation to blame, if one was named.
    pub(crate) op: Option<(OpKind, u32)>,
    pub(crate) reason: Reason,
}

/// Start of a batch's columns within those of the epoch.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BatchBase {
    pub(crate) txn: usize,
    pub(crate) read: usize,
    pub(crate) write: usize,
}

/// The epoch's transactions.
#[derive(Clone, Debug, Default)]
pub(crate) struct TxnTable {
    pub(crate) bases: Vec<BatchBase>,
    pub(crate) txns: usize,
    pub(crate) reads: usize,
    pub(crate) writes: usize,
    pub(crate) fates: Vec<Fate>,
    /// The newest store snapshot; the previous epoch if none is named.
    pub(crate) newest: Vec<u64>,
    /// First and last epoch at which all rows read were current, at levels whose validators need snapshots.
    pub(crate) current_from: Vec<u64>,
    pub(crate) current_until: Vec<u64>,
    /// Levels that occur.
    pub(crate) levels: [bool; 4],
    /// The oldest snapshot that a live transaction's range is checked against; `None` if there is no range.
    pub(crate) oldest_range: Option<Epoch>,
}

impl TxnTable {
    /// Sizes the columns for an epoch and marks all transactions live.
    pub(crate) fn reset(&mut self, input: &EpochInput) {
        self.bases.clear();
        let mut base = BatchBase::default();
        for batch in &input.batches {
            self.bases.push(base);
            base.txn += batch.txns.len();
            base.read += batch.reads.len();
            base.write += batch.writes.len();
        }
        (self.txns, self.reads, self.writes) = (base.txn, base.read, base.write);
        let fill = |column: &mut Vec<u64>, with: u64| {
            column.clear();
            column.resize(base.txn, with);
        };
        self.fates.clear();
        self.fates.resize(base.txn, Fate::LIVE);
        fill(&mut self.newest, input.epoch.0 - 1);
        fill(&mut self.current_from, 0);
        fill(&mut self.current_until, u64::MAX);
        self.levels = [false; 4];
        self.oldest_range = None;
    }

    /// Notes the level and newest snapshot of the live transactions, and aborts transactions whose snapshot is out of
    /// bounds.
    pub(crate) fn judge_snapshots(
        &mut self,
        input: &EpochInput,
        stores: &Stores,
        floor: Epoch,
        (needs, generation): ([u8; 4], Generation),
    ) {
        let reads_are_checked = generation >= Generation::SECOND && !planted(Bug::VersionsUnchecked);
        let any_multi_version = stores.any_multi_version() && !planted(Bug::SplitSnapshots);
        let mut t = 0;
        for batch in &input.batches {
            let mut first = 0;
            let mut ranges = 0;
            for (i, txn) in batch.txns.iter().enumerate() {
                let snapshots = &batch.snapshots[first..txn.snapshots_end as usize];
                first = txn.snapshots_end as usize;
                let has_ranges = txn.ranges_end > ranges;
                ranges = txn.ranges_end;
                if self.fates[t].is_live() {
                    let needs_history = || {
                        let only_current = needs[txn.isolation as usize] & (group::SNAPSHOTS | group::WRITES) == 0;
                        generation < Generation::THIRD || !only_current || needs_history(batch, i, stores)
                    };
                    if let Some((reason, op)) = out_of_bounds(batch, i, snapshots, input.epoch, (floor, needs_history))
                    {
                        self.fates[t] = Fate::at_join(op, reason);
                    } else if any_multi_version
                        && txn.isolation == Isolation::Snapshot
                        && let Some(other) = split_snapshot(snapshots, stores)
                    {
                        let op = first_op(batch, i, Some(other)).or_else(|| first_op(batch, i, None));
                        self.fates[t] = Fate::at_join(op, Reason::SnapshotsDiffer);
                    } else if any_multi_version
                        && reads_are_checked
                        && txn.isolation == Isolation::Snapshot
                        && let Some(read) = read_elsewhere(batch, i, snapshots, stores)
                    {
                        self.fates[t] = Fate::at_join(Some((OpKind::Read, read)), Reason::SnapshotsDiffer);
                    } else {
                        self.levels[txn.isolation as usize] = true;
                        if has_ranges {
                            let oldest = snapshots.iter().map(|s| s.at).min().unwrap_or(floor);
                            self.oldest_range = Some(self.oldest_range.unwrap_or(oldest).min(oldest));
                        }
                        if let Some(newest) = snapshots.iter().map(|s| s.at.0).max() {
                            self.newest[t] = newest;
                        }
                    }
                }
                t += 1;
            }
        }
    }
}

/// Returns whether a transaction has ranges, which are compared with everything written since its snapshot, or a row of a
/// store that keeps only what was written recently. Rows of all other stores are compared by their versions.
pub(crate) fn needs_history(batch: &Batch, txn: usize, stores: &Stores) -> bool {
    let mut reads = batch.reads[batch.reads_of(txn)].iter().map(|read| read.store);
    let mut writes = batch.writes[batch.writes_of(txn)].iter().map(|write| write.store);
    !batch.ranges_of(txn).is_empty()
        || reads.any(|store| stores.is_declared(store))
        || writes.any(|store| stores.is_declared(store))
}

/// Rejects a snapshot that is not complete before `epoch`, or is below the floor although history from it on is needed,
/// and blames the first operation on its store.
fn out_of_bounds(
    batch: &Batch,
    txn: usize,
    snapshots: &[StoreSnapshot],
    epoch: Epoch,
    (floor, needs_history): (Epoch, impl Fn() -> bool),
) -> Option<(Reason, Option<(OpKind, u32)>)> {
    let oldest = snapshots.iter().map(|s| s.at).min()?;
    let any_stale = oldest < floor && needs_history() && !planted(Bug::StaleFloor);
    let bad = snapshots.iter().find(|s| s.at >= epoch || any_stale && s.at < floor)?;
    let reason = if bad.at >= epoch { Reason::SnapshotFromTheFuture } else { Reason::SnapshotTooOld };
    Some((reason, first_op(batch, txn, Some(bad.store)).or_else(|| first_op(batch, txn, None))))
}

/// Returns a multi-version store that was not read at the newest of the snapshots: no database state then contains both
/// its engine's reads and the reads from the other stores.
fn split_snapshot(snapshots: &[StoreSnapshot], stores: &Stores) -> Option<StoreId> {
    let newest = snapshots.iter().map(|s| s.at).max()?;
    snapshots.iter().find(|s| s.at != newest && stores.is_multi_version(s.store)).map(|s| s.store)
}

/// Returns a read of a multi-version store that cannot belong to its snapshot: it has a later version, or a different
/// version from an earlier read of the same row. Such reads would otherwise be trusted.
fn read_elsewhere(batch: &Batch, txn: usize, snapshots: &[StoreSnapshot], stores: &Stores) -> Option<u32> {
    let reads = &batch.reads[batch.reads_of(txn)];
    let own = reads.iter().zip(0..).filter(|(read, _)| stores.is_multi_version(read.store));
    let mut own: Vec<_> = own.map(|(read, at)| (read.row, at, read)).collect();
    let is_later = |read: &Read| {
        let snapshot = snapshot_of(snapshots, read.store);
        matches!((read.seen, snapshot), (Some(version), Some(at)) if version.epoch() > at)
    };
    let later = own.iter().find(|(.., read)| is_later(read)).map(|(_, at, _)| *at);
    own.sort_unstable_by_key(|(row, at, _)| (*row, *at));
    let differ = own.windows(2).filter(|pair| pair[0].0 == pair[1].0 && pair[0].2.seen != pair[1].2.seen);
    differ.map(|pair| pair[1].1).chain(later).min()
}

/// Returns a transaction's first operation, restricted to one store if given.
pub(crate) fn first_op(batch: &Batch, txn: usize, store: Option<StoreId>) -> Option<(OpKind, u32)> {
    let wanted = |s: StoreId| store.is_none_or(|store| store == s);
    let read = batch.reads[batch.reads_of(txn)].iter().position(|r| wanted(r.store));
    let range = || batch.ranges[batch.ranges_of(txn)].iter().position(|r| wanted(r.store));
    let write = || batch.writes[batch.writes_of(txn)].iter().position(|w| wanted(w.store));
    read.map(|i| (OpKind::Read, i as u32))
        .or_else(|| range().map(|i| (OpKind::Range, i as u32)))
        .or_else(|| write().map(|i| (OpKind::Write, i as u32)))
}

/// Returns the snapshot of one store.
#[inline]
pub(crate) fn snapshot_of(snapshots: &[StoreSnapshot], store: StoreId) -> Option<Epoch> {
    snapshots.iter().find(|s| s.store == store).map(|s| s.at)
}

/// Returns whether a transaction names a multi-version store: then all its reads belong to its newest snapshot, which
/// is that store's.
pub(crate) fn is_multi_version(snapshots: &[StoreSnapshot], stores: &Stores) -> bool {
    snapshots.iter().any(|s| stores.is_multi_version(s.store))
}

/// Shared input of the stages while an epoch resolves.
#[derive(Clone, Copy)]
pub(crate) struct EpochView<'a> {
    pub(crate) input: &'a EpochInput,
    pub(crate) txns: &'a TxnTable,
    pub(crate) stores: &'a Stores,
    /// The floor before this epoch.
    pub(crate) floor: Epoch,
    /// Groups of evidence needed, by level.
    pub(crate) needs: [u8; 4],
    /// The generation whose rules decide.
    pub(crate) generation: Generation,
}

/// Returns whether a sum that could leave 64 bits is reported only if no read is stale.
pub(crate) fn tells_sums_last(view: EpochView<'_>) -> bool {
    view.generation >= Generation::SECOND && !planted(Bug::SumsBeforeReads)
}

/// Returns whether a level's transactions have a place in the epoch's serial order, so that their row reads take part
/// in the order test. At repeatable read, ranges do not take part.
#[inline(always)]
pub(crate) fn is_ordered(level: Isolation) -> bool {
    matches!(level, Isolation::Serializable | Isolation::RepeatableRead)
        && !(level == Isolation::RepeatableRead && planted(Bug::UnorderedRepeatableRead))
}

/// Returns whether a level's ranges take part in the order test.
#[inline(always)]
pub(crate) fn is_serializable(level: Isolation) -> bool {
    level == Isolation::Serializable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_stage_and_the_earlier_operation_decide() {
        let join = Fate::at_join(Some((OpKind::Write, 7)), Reason::RowMissing);
        let read = Fate::at_validate(Some((OpKind::Read, 9)), Reason::ReadConflict);
        let write = Fate::at_validate(Some((OpKind::Write, 0)), Reason::WriteConflict);
        let none = Fate::at_validate(None, Reason::Plugin(3));
        let sum = Fate::at_sum((OpKind::Write, 0));
        assert!(Fate::IDLE < join && join < read && read < write && write < none && none < sum && sum < Fate::LIVE);
        assert_eq!(
            write.abort(),
            Some(Abort { stage: Stage::Validate, op: Some((OpKind::Write, 0)), reason: Reason::WriteConflict })
        );
        assert_eq!(
            join.abort(),
            Some(Abort { stage: Stage::Join, op: Some((OpKind::Write, 7)), reason: Reason::RowMissing })
        );
        assert_eq!(
            sum.abort(),
            Some(Abort { stage: Stage::Join, op: Some((OpKind::Write, 0)), reason: Reason::AddOverflow })
        );
        assert_eq!(none.abort(), Some(Abort { stage: Stage::Validate, op: None, reason: Reason::Plugin(3) }));
        assert_eq!(Fate::LIVE.abort(), None);
    }
}
