//! What resolving an epoch takes and gives.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range as Indices;

use crate::batch::Batch;
use crate::ids::{Digest, Epoch, Lsn, StoreId, TxnIx, Version};
use crate::txn::Isolation;
use crate::verdict::{OpKind, Reason, Stage};

/// The whole input of an epoch: exactly one counted entry of each member group, ascending group.
#[derive(Clone, Debug)]
pub struct EpochInput {
    /// The epoch.
    pub epoch: Epoch,
    /// Replicated time, Unix milliseconds: max(previous, median of the entries' clocks).
    pub epoch_time_ms: u64,
    /// The batches whose items belong to this epoch (groups that sealed it empty contribute none).
    pub batches: Vec<Arc<Batch>>,
}

impl EpochInput {
    /// Returns the number of transactions in all batches.
    #[must_use]
    pub fn txn_count(&self) -> usize {
        self.batches.iter().map(|b| b.txns.len()).sum()
    }

    /// Returns the batch of a transaction and its index there.
    ///
    /// # Panics
    /// If the epoch has no such transaction.
    #[inline]
    #[must_use]
    pub fn locate(&self, ix: TxnIx) -> (&Arc<Batch>, usize) {
        let mut rest = ix.0 as usize;
        for batch in &self.batches {
            if rest < batch.txns.len() {
                return (batch, rest);
            }
            rest -= batch.txns.len();
        }
        panic!("transaction {ix} is not of epoch {}", self.epoch)
    }

    /// Returns where the items of each batch are in the epoch's outcome, in the order of the batches.
    pub fn places(&self) -> impl Iterator<Item = (&Arc<Batch>, ItemPlaces)> {
        self.batches.iter().enumerate().scan(ItemPlaces::default(), |before, (batch, input)| {
            let after = |range: &Indices<usize>, count: usize| range.end..range.end + count;
            *before = ItemPlaces {
                batch,
                txns: after(&before.txns, input.txns.len()),
                early_aborts: after(&before.early_aborts, input.early_aborts.len()),
                fences: after(&before.fences, input.fences.len()),
            };
            Some((input, before.clone()))
        })
    }
}

/// Where a batch's items are among those of its epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemPlaces {
    /// Index of the batch.
    pub batch: usize,
    /// Its transactions in `decisions`, which are numbered like items.
    pub txns: Indices<usize>,
    /// Its early aborts in `early_aborts`.
    pub early_aborts: Indices<usize>,
    /// Its fences in `fences`.
    pub fences: Indices<usize>,
}

/// Where a stored verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VerdictAt {
    /// The epoch that decided it.
    pub epoch: Epoch,
    /// Which item of that epoch: transactions first, then the early aborts of all batches, then their fences.
    pub item: u32,
}

/// What the epoch decided about one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Committed; every row it wrote carries this version.
    Committed {
        /// The version.
        version: Version,
    },
    /// Aborted; its witnesses are `witnesses[first..first + count]` of the outcome.
    Aborted {
        /// Why.
        reason: Reason,
        /// First witness.
        first: u32,
        /// Number of witnesses.
        count: u32,
    },
    /// The id is known with the same body: the stored verdict is the answer.
    Replayed {
        /// Where the stored verdict is (possibly in this very epoch).
        original: VerdictAt,
    },
    /// The id is known with another body.
    BodyMismatch,
    /// The id's time is outside the window around `epoch_time`.
    Expired,
}

/// What defeated a transaction, in indices. `Conflict` is the same in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Which column.
    pub op: OpKind,
    /// Index of the operation within its transaction's own reads, ranges or writes.
    pub index: u32,
    /// Version that is there now, if any. Of a range that had changed before the epoch: position 0 of the epoch in which
    /// its first changed row was last written.
    pub current: Option<Version>,
    /// The winner within this epoch, if there is one.
    pub winner: Option<TxnIx>,
    /// Where it was found.
    pub stage: Stage,
}

/// Position of a committed transaction in one store's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreLsn {
    /// The transaction.
    pub txn: TxnIx,
    /// The store.
    pub store: StoreId,
    /// Its position there.
    pub lsn: Lsn,
}

/// A committed `add` that created its row: in the log it is an insert.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CreatedRow {
    /// The transaction.
    pub txn: TxnIx,
    /// Index of the write within the transaction's own writes.
    pub write: u32,
}

/// Answer to a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceResult {
    /// The id was unknown and can never commit now.
    Fenced,
    /// The id has a verdict.
    Known(VerdictAt),
    /// The id's time is outside the window, and it is no longer known; it cannot be executed either.
    Expired,
}

/// A plugin failed deterministically; its native fallback decided this epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFallback {
    /// `None` for the conflict rule, else the validator of this level.
    pub level: Option<Isolation>,
    /// What happened, in words.
    pub fault: alloc::string::String,
}

/// All that an epoch decided. A pure function of the state before and the epoch's input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochOutcome {
    /// The epoch.
    pub epoch: Epoch,
    /// Replicated time, Unix milliseconds.
    pub epoch_time_ms: u64,
    /// One per transaction, by [`TxnIx`].
    pub decisions: Vec<Decision>,
    /// Witnesses of the aborted.
    pub witnesses: Vec<Witness>,
    /// The committed, in serial order.
    pub order: Vec<TxnIx>,
    /// Log positions, in serial order of the transactions and ascending store within one; dense per store.
    pub lsns: Vec<StoreLsn>,
    /// Adds that created their rows, ascending.
    pub created: Vec<CreatedRow>,
    /// One per early abort, all batches in order: the id's stored verdict (its own, or an earlier one).
    pub early_aborts: Vec<VerdictAt>,
    /// One per fence, all batches in order.
    pub fences: Vec<FenceResult>,
    /// Rows that each batch's import brought (known rows are left alone); empty if no batch has an import.
    pub imported: Vec<u64>,
    /// Snapshots below this one can no longer be judged, from the next epoch on.
    pub floor: Epoch,
    /// Plugins that failed.
    pub fallbacks: Vec<PolicyFallback>,
    /// Digest chained over this outcome.
    pub digest: Digest,
}

impl EpochOutcome {
    /// Bytes of memory that the lists occupy, spare capacity included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        fn of<T>(list: &Vec<T>) -> usize {
            list.capacity() * size_of::<T>()
        }
        let decided = of(&self.decisions) + of(&self.witnesses) + of(&self.order) + of(&self.lsns) + of(&self.created);
        let faults = self.fallbacks.iter().map(|fallback| fallback.fault.capacity()).sum::<usize>();
        decided + of(&self.early_aborts) + of(&self.fences) + of(&self.fallbacks) + faults
    }

    /// Returns the first and last LSN that the epoch gave in each store, ascending store.
    #[must_use]
    pub fn heads(&self) -> Vec<(StoreId, Lsn, Lsn)> {
        let mut heads: Vec<(StoreId, Lsn, Lsn)> = Vec::new();
        for at in &self.lsns {
            match heads.binary_search_by_key(&at.store, |head| head.0) {
                Ok(i) => heads[i].2 = at.lsn,
                Err(i) => heads.insert(i, (at.store, at.lsn, at.lsn)),
            }
        }
        heads
    }
}
