//! Judging transactions on the state after the last complete epoch without resolving an epoch: read-only commits, dry
//! runs, and transactions that are certain to lose. Changes no state except the sort order of the written keys.

use alloc::sync::Arc;
use alloc::vec::Vec;

use tribunal_types::{
    Batch, Conflict, Csn, Epoch, EpochInput, Generation, Isolation, OpKind, Reason, RowKey, Stage, TxnIx, TxnRequest,
    Verdict, Version, Witness, WriteKind,
};

use crate::planted::{Bug, planted};
use crate::policy::Policies;
use crate::policy::native::NativeValidator;
use crate::resolve::resolver::Resolver;
use crate::resolve::scratch::ShardScratch;
use crate::resolve::txns::{Abort, EpochView, Fate, TxnTable, first_op, needs_history, snapshot_of};
use crate::resolve::{join, validate};
use crate::state::map::NO_SLOT;
use crate::state::map_entry::Entry;
use crate::state::scoped_id::ScopedId;
use crate::verdicts::{blamed, conflict_of};

/// The only transaction of a pretended epoch.
const ONLY: TxnIx = TxnIx(0);

/// Returns an input that pretends the epoch after `complete` contains exactly these transactions.
fn pretend(resolver: &Resolver, complete: Epoch, txns: &[TxnRequest]) -> EpochInput {
    let epoch = complete.next();
    let mut batch = Batch { first: epoch, last: epoch, ..Batch::default() };
    txns.iter().for_each(|txn| batch.push(txn, Csn::default()));
    EpochInput { epoch, epoch_time_ms: resolver.epoch_time_ms, batches: alloc::vec![Arc::new(batch)] }
}

/// Calls `f` with the rows that may make a transaction certain to lose.
fn for_each_judged(txn: &TxnRequest, f: impl FnMut(RowKey)) {
    match txn.isolation {
        Isolation::ReadCommitted => {}
        Isolation::RepeatableRead | Isolation::Serializable => txn.reads.iter().map(|read| read.row).for_each(f),
        Isolation::Snapshot => txn.writes.iter().map(|write| write.row).for_each(f),
    }
}

impl Resolver {
    /// Judges a transaction by its level on the state after epoch `complete`: the verdict of a read-only commit, or
    /// whether a writing transaction would commit alone. Stores nothing; the id plays no part. Epochs after the last
    /// resolved one, up to `complete`, were sealed empty.
    #[must_use]
    pub fn dry_run(&mut self, complete: Epoch, txn: &TxnRequest, policies: &Policies<'_>) -> Verdict {
        self.dry_runs(complete, core::slice::from_ref(txn), policies).pop().expect("one verdict for one transaction")
    }

    /// Judges several transactions, each as if it were alone, in one pretended epoch, which costs far less than one
    /// epoch each. If there is more than one, all must be read-only: writers would conflict with each other.
    #[must_use]
    pub fn dry_runs(&mut self, complete: Epoch, requests: &[TxnRequest], policies: &Policies<'_>) -> Vec<Verdict> {
        debug_assert!(requests.len() == 1 || requests.iter().all(TxnRequest::is_read_only), "writers in one dry run");
        let complete = if planted(Bug::IdleEpochsForgotten) { self.last } else { complete.max(self.last) };
        let input = pretend(self, complete, requests);
        let mut txns = TxnTable::default();
        txns.reset(&input);
        txns.judge_snapshots(&input, &self.stores, self.floor.at(), (policies.needs(), self.generation));
        let mut fates = txns.fates.clone();
        if fates.iter().any(|fate| fate.is_live()) {
            self.judge_rows(&input, &mut txns, policies, &mut fates);
        }
        let verdict = |(index, request)| self.dry_verdict(complete, &input, fates[index], index, request);
        requests.iter().enumerate().map(verdict).collect()
    }

    /// Converts the fate of one transaction of a pretended epoch to a verdict.
    fn dry_verdict(
        &self,
        complete: Epoch,
        input: &EpochInput,
        fate: Fate,
        index: usize,
        request: &TxnRequest,
    ) -> Verdict {
        let Some(Abort { stage, op, reason }) = fate.abort() else { return Verdict::ReadOnly { epoch: complete } };
        let batch = &input.batches[0];
        let op = op.or_else(|| first_op(batch, index, None));
        let witness = op.map(|(op, at)| {
            let witness = self.witness_against(request, op, at, stage);
            if (op, stage) != (OpKind::Range, Stage::Validate) {
                return witness;
            }
            Witness { current: self.range_changed_in(batch, index, at), ..witness }
        });
        let txn = TxnIx(index as u32);
        let witness = witness.map(|witness| blamed(input, txn, reason, &witness));
        let conflicts = witness.and_then(|witness| conflict_of(input, txn, &witness)).into_iter().collect();
        Verdict::Aborted { epoch: complete, reason, conflicts }
    }

    fn judge_rows(&mut self, input: &EpochInput, txns: &mut TxnTable, policies: &Policies<'_>, fates: &mut [Fate]) {
        let (floor, needs, generation) = (self.floor.at(), policies.needs(), self.generation);
        if let Some(oldest) = txns.oldest_range {
            self.shards.iter_mut().for_each(|shard| shard.state.window.prepare(oldest));
        }
        let mut scratches: Vec<ShardScratch> = self.shards.iter().map(|_| ShardScratch::default()).collect();
        for (shard, scratch) in self.shards.iter().zip(&mut scratches) {
            let view = EpochView { input, txns, stores: &self.stores, floor, needs, generation };
            join::join(shard.place, &shard.state, scratch, view);
            join::place(&shard.state, scratch, view);
        }
        let mut all: Vec<&mut ShardScratch> = scratches.iter_mut().collect();
        validate::settle_reads(&mut all, txns, needs);
        for level in Isolation::ALL {
            for scratch in &mut all {
                validate::judge(scratch.level(level), level, policies.validator);
            }
            if all.iter().any(|s| matches!(s.levels[level as usize].answer, Some(Err(_)))) {
                for scratch in &mut all {
                    validate::judge(scratch.level(level), level, &NativeValidator);
                }
            }
        }
        let view = EpochView { input, txns, stores: &self.stores, floor, needs, generation };
        for (shard, scratch) in self.shards.iter().zip(&scratches) {
            validate::collect(shard.place, scratch, view, fates);
        }
    }

    /// Returns why a transaction is certain to lose regardless of the rest of its epoch, so that it can be answered
    /// before sealing. Never judges by rank, existence or an "absent" read, which the epoch could still change.
    #[must_use]
    pub fn find_early_abort(&self, txn: &TxnRequest) -> Option<(Reason, Vec<Conflict>)> {
        let (reason, (op, index)) = self.find_loss(txn)?;
        let witness = self.witness_against(txn, op, index, Stage::Admission);
        let conflicts =
            conflict_of(&pretend(self, self.last, core::slice::from_ref(txn)), ONLY, &witness).into_iter().collect();
        Some((reason, conflicts))
    }

    /// Starts loading the locations of the rows that [`Resolver::find_early_abort`] will read, and the id that
    /// [`Resolver::known`] will look up. For a transaction judged a few transactions later; [`Resolver::prefetch_rows`]
    /// follows halfway.
    pub fn prefetch_tags(&self, txn: &TxnRequest) {
        self.ids.prefetch(&ScopedId { namespace: txn.namespace, id: txn.id });
        for_each_judged(txn, |row| _ = self.shard_of(row).state.map.prefetch_tags(row));
    }

    /// Starts loading the rows whose locations [`Resolver::prefetch_tags`] loaded.
    pub fn prefetch_rows(&self, txn: &TxnRequest) {
        for_each_judged(txn, |row| self.shard_of(row).state.map.prefetch_at(row, NO_SLOT));
    }

    fn find_loss(&self, txn: &TxnRequest) -> Option<(Reason, (OpKind, u32))> {
        if let Some(stale) = txn.snapshots.iter().find(|s| s.at < self.floor.at()) {
            let batch = &pretend(self, self.last, core::slice::from_ref(txn)).batches[0];
            // A transaction whose validator needs history is rejected when its epoch is resolved.
            if self.generation < Generation::THIRD
                || txn.isolation == Isolation::Snapshot
                || needs_history(batch, 0, &self.stores)
            {
                let op = first_op(batch, 0, Some(stale.store)).or_else(|| first_op(batch, 0, None))?;
                return Some((Reason::SnapshotTooOld, op));
            }
        }
        match txn.isolation {
            Isolation::ReadCommitted => None,
            Isolation::RepeatableRead | Isolation::Serializable => {
                let stale = txn.reads.iter().position(|r| self.is_superseded(r.row, r.seen))?;
                Some((Reason::ReadConflict, (OpKind::Read, stale as u32)))
            }
            Isolation::Snapshot => {
                let lost = txn.writes.iter().position(|write| match txn.reads.iter().find(|r| r.row == write.row) {
                    Some(read) => self.is_superseded(write.row, read.seen),
                    None => {
                        let snapshot = snapshot_of(&txn.snapshots, write.store);
                        let newest = self.entry(write.row).and_then(|e| Version::from_bits(e.version));
                        let changed = matches!((newest, snapshot), (Some(v), Some(s)) if v.epoch() > s);
                        changed && write.kind != WriteKind::Add
                    }
                })?;
                Some((Reason::WriteConflict, (OpKind::Write, lost as u32)))
            }
        }
    }

    /// Returns whether the map contains a newer state than the version read.
    fn is_superseded(&self, row: RowKey, seen: Option<Version>) -> bool {
        let newest = self.entry(row).map_or(0, |entry| entry.version);
        seen.is_some_and(|seen| seen.bits() < newest)
    }

    fn entry(&self, row: RowKey) -> Option<Entry> {
        self.shard_of(row).state.map.find(row).map(|(_, entry)| entry)
    }

    fn witness_against(&self, txn: &TxnRequest, op: OpKind, index: u32, stage: Stage) -> Witness {
        let row = match op {
            OpKind::Read => txn.reads.get(index as usize).map(|r| r.row),
            OpKind::Write => txn.writes.get(index as usize).map(|w| w.row),
            OpKind::Range => None,
        };
        let current = row.and_then(|row| self.version_of(row));
        Witness { op, index, current, winner: None, stage }
    }
}
