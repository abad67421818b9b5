//! A batch: one group's contribution to a range of epochs, and the unit of the durable log.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Range as Indices;

use crate::ids::{BodyHash, ControlIndex, Csn, Epoch, GroupId, NamespaceId, RowKey, StoreId, TxnId, Version};
use crate::txn::{Isolation, Range, Read, Span, StoreSnapshot, TxnRequest, Write};
use crate::verdict::{Conflict, Reason};

/// A transaction's header within a [`Batch`]. Its operations are in the batch's columns, from the previous
/// header's `*_end` up to its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Txn {
    /// Idempotency key.
    pub id: TxnId,
    /// Tells a retry from a different body under the same id.
    pub body_hash: BodyHash,
    /// Arrival stamp; strictly increasing within a batch and across the batches of a group.
    pub csn: Csn,
    /// Epoch at Begin, if the transaction began on this service.
    pub start: Option<Epoch>,
    /// When the client first attempted this work, Unix milliseconds; at most the time in `id`, and equal to it if the
    /// client sent none. Only rules read it.
    pub first_attempt_ms: u64,
    /// Hash of the API key or client id.
    pub origin: u64,
    /// Tenant.
    pub namespace: NamespaceId,
    /// Isolation level.
    pub isolation: Isolation,
    /// 0 to 255; only rules read it.
    pub priority: u8,
    /// End of its snapshots.
    pub snapshots_end: u32,
    /// End of its reads.
    pub reads_end: u32,
    /// End of its ranges.
    pub ranges_end: u32,
    /// End of its writes.
    pub writes_end: u32,
    /// W3C `traceparent`, in the value arena; empty if none.
    pub traceparent: Span,
}

/// An abort that needed no resolution: requested by the client, or of a transaction that is certain to lose. It travels
/// with the batch and is answered once the batch is durable, so that a retry on any node gets the same answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EarlyAbort {
    /// The transaction.
    pub id: TxnId,
    /// Its body; `None` for a client abort, which has none.
    pub body_hash: Option<BodyHash>,
    /// Tenant.
    pub namespace: NamespaceId,
    /// Why it aborts.
    pub reason: Reason,
    /// The operations that lost, and the winners.
    pub conflicts: Vec<Conflict>,
}

impl EarlyAbort {
    /// Returns the bytes of memory that the abort occupies, including its conflicts.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<EarlyAbort>() + self.conflicts.iter().map(Conflict::memory_bytes).sum::<usize>()
    }
}

/// A request to rule out an id: if it is still unknown after this epoch's transactions, it can never commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FenceItem {
    /// The id to fence.
    pub id: TxnId,
    /// Tenant that requested the fence.
    pub namespace: NamespaceId,
}

/// Version of an existing row, from a bulk import. Takes effect after its epoch's transactions, unless the row is known
/// by then. Its version must be of an earlier epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImportedVersion {
    /// The row.
    pub row: RowKey,
    /// Its store.
    pub store: StoreId,
    /// Its version.
    pub version: Version,
    /// Whether the row's value is an integer of at most 16 characters, so that an `add` may follow.
    pub integer: bool,
}

/// One group's contribution to epochs `first..=last`. All items belong to `last`; the epochs before it are sealed
/// empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// The group that proposed the batch.
    pub group: GroupId,
    /// First epoch that the batch seals.
    pub first: Epoch,
    /// Last epoch that the batch seals, and the epoch of its items.
    pub last: Epoch,
    /// Last control entry that the proposer knew to be durable. No epoch after `first` is resolved without it.
    pub control: ControlIndex,
    /// The proposer's clock, Unix milliseconds, used only for `epoch_time`. 0 if another node wrote the entry for the
    /// group: its clock has no vote.
    pub clock_ms: u64,
    /// For a batch without transactions: microseconds of a stamp that its group gives to nothing else. 0 if nothing
    /// waits for the batch. See [`Batch::proposal`].
    pub stamp_us: u64,
    /// Whether the group ends with `last`: it is not a member of later epochs.
    pub closes: bool,
    /// Transactions, in ascending CSN order.
    pub txns: Vec<Txn>,
    /// Snapshots of all transactions.
    pub snapshots: Vec<StoreSnapshot>,
    /// Reads of all transactions.
    pub reads: Vec<Read>,
    /// Ranges of all transactions.
    pub ranges: Vec<Range>,
    /// Writes of all transactions.
    pub writes: Vec<Write>,
    /// Arena of keys, separate from the values because the range window keeps it alive.
    pub keys: Arc<Vec<u8>>,
    /// Arena of values.
    pub values: Vec<u8>,
    /// Aborts decided without resolution.
    pub early_aborts: Vec<EarlyAbort>,
    /// Fences.
    pub fences: Vec<FenceItem>,
    /// Imported versions.
    pub imports: Vec<ImportedVersion>,
}

impl Batch {
    /// Returns the bytes of memory that the columns, arenas and conflicts of early aborts occupy, including spare
    /// capacity.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        fn of<T>(column: &Vec<T>) -> usize {
            column.capacity() * size_of::<T>()
        }
        let columns = of(&self.txns) + of(&self.snapshots) + of(&self.reads) + of(&self.ranges) + of(&self.writes);
        let spare_aborts = (self.early_aborts.capacity() - self.early_aborts.len()) * size_of::<EarlyAbort>();
        let aborts = spare_aborts + self.early_aborts.iter().map(EarlyAbort::memory_bytes).sum::<usize>();
        let rare = aborts + of(&self.fences) + of(&self.imports);
        columns + rare + self.keys.capacity() + self.values.capacity()
    }

    /// Returns an empty batch that reuses this one's memory.
    #[must_use]
    pub fn emptied(mut self) -> Batch {
        self.txns.clear();
        self.snapshots.clear();
        self.reads.clear();
        self.ranges.clear();
        self.writes.clear();
        self.values.clear();
        self.early_aborts.clear();
        self.fences.clear();
        self.imports.clear();
        match Arc::get_mut(&mut self.keys) {
            Some(keys) => keys.clear(),
            None => self.keys = Arc::default(),
        }
        Batch {
            txns: self.txns,
            snapshots: self.snapshots,
            reads: self.reads,
            ranges: self.ranges,
            writes: self.writes,
            keys: self.keys,
            values: self.values,
            early_aborts: self.early_aborts,
            fences: self.fences,
            imports: self.imports,
            ..Batch::default()
        }
    }

    /// Appends a transaction with the stamp `csn`.
    ///
    /// # Panics
    /// If an arena or a column would exceed 2^32 items, or the key arena is already shared (a sealed batch).
    pub fn push(&mut self, request: &TxnRequest, csn: Csn) {
        let keys = Arc::get_mut(&mut self.keys).expect("an open batch owns its keys");
        let key_base = u32::try_from(keys.len()).expect("keys below 4 GiB");
        let value_base = u32::try_from(self.values.len()).expect("values below 4 GiB");
        let moved = |span: Span, base: u32| Span { at: span.at + base, len: span.len };
        keys.extend_from_slice(&request.keys);
        self.values.extend_from_slice(&request.values);
        self.snapshots.extend_from_slice(&request.snapshots);
        self.reads.extend(request.reads.iter().map(|r| Read { key: moved(r.key, key_base), ..*r }));
        self.ranges.extend(request.ranges.iter().map(|r| Range {
            start: moved(r.start, key_base),
            end: moved(r.end, key_base),
            ..*r
        }));
        self.writes.extend(request.writes.iter().map(|w| Write {
            key: moved(w.key, key_base),
            value: moved(w.value, value_base),
            ..*w
        }));
        let traceparent =
            request.traceparent.as_ref().map_or(Span::default(), |t| Span::push(&mut self.values, t.as_bytes()));
        let end = |len: usize| u32::try_from(len).expect("column below 2^32");
        self.txns.push(Txn {
            id: request.id,
            body_hash: request.body_hash,
            csn,
            start: request.start,
            first_attempt_ms: request.first_attempt_ms.map_or(request.id.unix_ms(), |ms| ms.min(request.id.unix_ms())),
            origin: request.origin,
            namespace: request.namespace,
            isolation: request.isolation,
            priority: request.priority,
            snapshots_end: end(self.snapshots.len()),
            reads_end: end(self.reads.len()),
            ranges_end: end(self.ranges.len()),
            writes_end: end(self.writes.len()),
            traceparent,
        });
    }

    /// Returns the name of the proposal, under which its waiters are registered: the stamp of its last transaction, or
    /// `stamp_us` without transactions. No group gives a stamp twice, so two proposals for one epoch have different
    /// names.
    #[must_use]
    pub fn proposal(&self) -> Csn {
        self.txns.last().map_or(Csn::new(self.stamp_us, self.group.node), |txn| txn.csn)
    }

    /// Returns whether the batch only seals epochs and has no items.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.txns.is_empty() && self.early_aborts.is_empty() && self.fences.is_empty() && self.imports.is_empty()
    }

    #[inline]
    fn span(&self, txn: usize, end: impl Fn(&Txn) -> u32) -> Indices<usize> {
        let start = if txn == 0 { 0 } else { end(&self.txns[txn - 1]) as usize };
        start..end(&self.txns[txn]) as usize
    }

    /// Returns the indices of the snapshots of transaction `txn` (an index within this batch).
    #[inline]
    #[must_use]
    pub fn snapshots_of(&self, txn: usize) -> Indices<usize> {
        self.span(txn, |t| t.snapshots_end)
    }

    /// Returns the indices of the reads of transaction `txn`.
    #[inline]
    #[must_use]
    pub fn reads_of(&self, txn: usize) -> Indices<usize> {
        self.span(txn, |t| t.reads_end)
    }

    /// Returns the indices of the ranges of transaction `txn`.
    #[inline]
    #[must_use]
    pub fn ranges_of(&self, txn: usize) -> Indices<usize> {
        self.span(txn, |t| t.ranges_end)
    }

    /// Returns the indices of the writes of transaction `txn`.
    #[inline]
    #[must_use]
    pub fn writes_of(&self, txn: usize) -> Indices<usize> {
        self.span(txn, |t| t.writes_end)
    }

    /// Returns the `traceparent` of transaction `txn`, if it has one.
    #[must_use]
    pub fn traceparent_of(&self, txn: usize) -> Option<String> {
        let span = self.txns[txn].traceparent;
        if span.len == 0 {
            return None;
        }
        String::from_utf8(span.of(&self.values).to_vec()).ok()
    }
}
