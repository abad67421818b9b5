//! Input and output of the resolution of an epoch.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range as Indices;

use crate::batch::Batch;
use crate::ids::{Digest, Epoch, Lsn, StoreId, TxnIx, Version};
use crate::txn::Isolation;
use crate::verdict::{OpKind, Reason, Stage};

/// The complete input of an epoch: exactly one counted entry per member group, in ascending group order.
#[derive(Clone, Debug)]
pub struct EpochInput {
    /// The epoch.
    pub epoch: Epoch,
    /// Replicated time, Unix milliseconds: max(previous, median of the entries' clocks).
    pub epoch_time_ms: u64,
    /// The batches whose items belong to this epoch (a group that sealed it empty contributes none).
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

    /// Returns the places of each batch's items in the epoch's outcome, in the order of the batches.
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

/// The places of a batch's items among those of its epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ItemPlaces {
    /// Index of the batch.
    pub batch: usize,
    /// Its transactions in `decisions`, which have the same numbers as items.
    pub txns: Indices<usize>,
    /// Its early aborts in `early_aborts`.
    pub early_aborts: Indices<usize>,
    /// Its fences in `fences`.
    pub fences: Indices<usize>,
}

/// Location of a stored verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VerdictAt {
    /// The epoch that decided it.
    pub epoch: Epoch,
    /// Index of the item in that epoch: transactions first, then the early aborts of all batches, then their fences.
    pub item: u32,
}

/// The epoch's decision on one transaction.
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
    /// The id is known with the same body: the stored verdict is the reply.
    Replayed {
        /// Location of the stored verdict (possibly in this very epoch).
        original: VerdictAt,
    },
    /// The id is known with another body.
    BodyMismatch,
    /// The id's time is outside the window around `epoch_time`.
    Expired,
}

/// The cause of an abort, as indices. `Conflict` is its expanded form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Column of the operation.
    pub op: OpKind,
    /// Index of the operation within its transaction's own reads, ranges or writes.
    pub index: u32,
    /// Current version of the row, if any. For a range that changed before the epoch: position 0 of the epoch of the
    /// last write to its first changed row.
    pub current: Option<Version>,
    /// The winner within this epoch, if any.
    pub winner: Option<TxnIx>,
    /// The stage that found it.
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
    /// The id was unknown, and can never commit from now on.
    Fenced,
    /// The id has a verdict.
    Known(VerdictAt),
    /// The id's time is outside the window, and the id is no longer known; it cannot be executed either.
    Expired,
}

/// A deterministic failure of a plugin, whose native fallback decided this epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFallback {
    /// The validator's level; `None` for the conflict rule.
    pub level: Option<Isolation>,
    /// The fault, as text.
    pub fault: alloc::string::String,
}

/// All decisions of an epoch. A pure function of the preceding state and the epoch's input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochOutcome {
    /// The epoch.
    pub epoch: Epoch,
    /// Replicated time, Unix milliseconds.
    pub epoch_time_ms: u64,
    /// One decision per transaction, by [`TxnIx`].
    pub decisions: Vec<Decision>,
    /// Witnesses of the aborted transactions.
    pub witnesses: Vec<Witness>,
    /// The committed transactions, in serial order.
    pub order: Vec<TxnIx>,
    /// Log positions, in serial order of the transactions, ascending store within one; dense per store.
    pub lsns: Vec<StoreLsn>,
    /// Adds that created their rows, in ascending order.
    pub created: Vec<CreatedRow>,
    /// The id's stored verdict (this abort's or an earlier one) per early abort, all batches in order.
    pub early_aborts: Vec<VerdictAt>,
    /// One result per fence, all batches in order.
    pub fences: Vec<FenceResult>,
    /// Rows added by each batch's import (known rows are unchanged); empty if no batch has an import.
    pub imported: Vec<u64>,
    /// Oldest snapshot whose history is retained from the next epoch on.
    pub floor: Epoch,
    /// Plugins that failed.
    pub fallbacks: Vec<PolicyFallback>,
    /// Digest chained over this outcome.
    pub digest: Digest,
}

impl EpochOutcome {
    /// Returns the bytes of memory that the lists occupy, including spare capacity.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        fn of<T>(list: &Vec<T>) -> usize {
            list.capacity() * size_of::<T>()
        }
        let decided = of(&self.decisions) + of(&self.witnesses) + of(&self.order) + of(&self.lsns) + of(&self.created);
        let faults = self.fallbacks.iter().map(|fallback| fallback.fault.capacity()).sum::<usize>();
        decided + of(&self.early_aborts) + of(&self.fences) + of(&self.fallbacks) + faults
    }

    /// Returns the first and last LSN that the epoch assigned in each store, ascending store.
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
