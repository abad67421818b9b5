//! One node's open batch: assigns arrival stamps, enforces the limits, and returns the sealed batch for the log.
//!
//! It never decides *when* to seal (the shell does, by clocks and syncs) and never judges a transaction. Invariants:
//! stamps rise strictly over the lifetime of a group, however the node's clock jumps; a rejected item leaves the batch
//! unchanged.

use alloc::vec::Vec;
use core::fmt;
use core::mem::{replace, size_of, take};

use tribunal_types::limits::{BATCH_BYTES_MAX, TXNS_PER_BATCH_MAX, TXNS_PER_EPOCH_MAX};
use tribunal_types::{
    Batch, ControlIndex, Csn, EarlyAbort, Epoch, FenceItem, GroupId, ImportedVersion, Read, StoreSnapshot, Txn,
    TxnRequest, Write,
};

/// The open batch has no room for the item: seal it, then offer the item to the next one. Every item within the request
/// limits fits into an empty batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchFull;

impl fmt::Display for BatchFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the open batch is full")
    }
}

impl core::error::Error for BatchFull {}

/// Stamps above this value are reached only by counting, never from a clock: a clock that is wrong by centuries still
/// leaves 2^53 microseconds to count.
const CLOCK_US_MAX: u64 = 1 << 53;

/// Batches whose memory is kept for reuse.
const SPARES_MAX: usize = 4;
/// Memory that a batch may occupy however little it contains, in bytes.
const SPARE_BYTES_MIN: usize = 64 * 1024;
/// The memory of a larger batch is freed, in bytes: after a burst, most of it would never be used again.
const SPARE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The open batch of one node.
#[derive(Debug)]
pub struct Batcher {
    group: GroupId,
    last_csn: Csn,
    open: Batch,
    bytes: usize,
    /// Maximum number of items of one kind per batch.
    items_max: usize,
    bytes_max: usize,
    /// Empty batches with the memory of decided ones: fresh memory costs a page fault per page in every epoch.
    spares: Vec<Batch>,
}

impl Batcher {
    /// Starts an empty batch; `last_csn` is above every stamp in the node's log, including its uncommitted suffix.
    #[must_use]
    pub fn new(group: GroupId, last_csn: Csn) -> Self {
        let items_max = TXNS_PER_BATCH_MAX;
        Batcher {
            group,
            last_csn,
            open: Batch::default(),
            bytes: 0,
            items_max,
            bytes_max: BATCH_BYTES_MAX,
            spares: Vec::new(),
        }
    }

    /// Shares an epoch among `members` members, so that the sum of their batches fits into it.
    pub fn share_epoch(&mut self, members: usize) {
        self.items_max = TXNS_PER_BATCH_MAX.min(TXNS_PER_EPOCH_MAX / members.max(1));
    }

    /// Limits batches to `bytes_max` bytes, or one longer item.
    pub fn limit_bytes(&mut self, bytes_max: usize) {
        self.bytes_max = bytes_max.min(BATCH_BYTES_MAX);
    }

    /// Adds a transaction and stamps it with max(last + 1 us, `now_us`). Returns its index in the batch.
    ///
    /// # Errors
    /// [`BatchFull`]
    pub fn offer(&mut self, txn: &TxnRequest, now_us: u64) -> Result<u32, BatchFull> {
        let bytes = size_of::<Txn>()
            + txn.snapshots.len() * size_of::<StoreSnapshot>()
            + txn.reads.len() * size_of::<Read>()
            + txn.ranges.len() * size_of::<tribunal_types::Range>()
            + txn.writes.len() * size_of::<Write>()
            + txn.keys.len()
            + txn.values.len()
            + txn.traceparent.as_ref().map_or(0, |t| t.len());
        self.reserve(self.open.txns.len(), bytes)?;
        let csn = self.stamp(now_us);
        self.open.push(txn, csn);
        Ok(index(self.open.txns.len()))
    }

    /// Adds a verdict that needed no resolution. Returns its index among the batch's early aborts.
    ///
    /// # Errors
    /// [`BatchFull`]
    pub fn add_early_abort(&mut self, abort: EarlyAbort) -> Result<u32, BatchFull> {
        self.reserve(self.open.early_aborts.len(), abort.memory_bytes())?;
        self.open.early_aborts.push(abort);
        Ok(index(self.open.early_aborts.len()))
    }

    /// Adds a fence. Returns its index among the batch's fences.
    ///
    /// # Errors
    /// [`BatchFull`]
    pub fn fence(&mut self, fence: FenceItem) -> Result<u32, BatchFull> {
        self.reserve(self.open.fences.len(), size_of::<FenceItem>())?;
        self.open.fences.push(fence);
        Ok(index(self.open.fences.len()))
    }

    /// Adds imported versions, all or none.
    ///
    /// # Errors
    /// [`BatchFull`]
    pub fn import(&mut self, versions: &[ImportedVersion]) -> Result<(), BatchFull> {
        self.reserve(0, size_of_val(versions))?;
        self.open.imports.extend_from_slice(versions);
        Ok(())
    }

    /// Returns whether the batch is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the number of pending transactions.
    #[must_use]
    pub fn txn_count(&self) -> usize {
        self.open.txns.len()
    }

    /// Returns the bytes of the pending items: columns, keys and values.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns how many bytes of items fit in addition.
    #[must_use]
    pub fn room(&self) -> usize {
        self.bytes_max.saturating_sub(self.bytes)
    }

    /// Returns the last stamp assigned.
    #[must_use]
    pub fn last_csn(&self) -> Csn {
        self.last_csn
    }

    /// Seals epochs `first..=last` with all pending items, and leaves an empty open batch.
    ///
    /// # Panics
    /// If `last` is before `first`.
    pub fn seal(&mut self, first: Epoch, last: Epoch, control: ControlIndex, clock_ms: u64) -> Batch {
        assert!(first <= last, "a batch seals at least one epoch");
        let bytes = take(&mut self.bytes);
        let next = self.spare_for(bytes);
        let batch = replace(&mut self.open, next);
        let stamp_us = if batch.txns.is_empty() { self.stamp(clock_ms.saturating_mul(1000)).micros() } else { 0 };
        Batch { group: self.group, first, last, control, clock_ms, stamp_us, ..batch }
    }

    /// Assigns only stamps above this one from now on: an earlier run of the node has assigned it.
    pub fn raise(&mut self, stamp: Csn) {
        self.last_csn = self.last_csn.max(stamp);
    }

    /// Assigns the next stamp.
    fn stamp(&mut self, now_us: u64) -> Csn {
        self.last_csn = Csn::new((self.last_csn.micros() + 1).max(now_us.min(CLOCK_US_MAX)), self.group.node);
        self.last_csn
    }

    /// Takes back the memory of a batch that is no longer needed, unless it is large.
    pub fn recycle(&mut self, batch: Batch) {
        let spare = batch.emptied();
        if spare.memory_bytes() > SPARE_BYTES_MAX {
            return;
        }
        if self.spares.len() == SPARES_MAX {
            self.spares.remove(0);
        }
        self.spares.push(spare);
    }

    /// Returns an empty batch, with memory for about `bytes` bytes if a spare fits, the smallest if several do. A much
    /// larger one would waste memory for as long as its epoch is remembered.
    fn spare_for(&mut self, bytes: usize) -> Batch {
        let fits = |spare: &Batch| (bytes..=SPARE_BYTES_MIN.max(4 * bytes)).contains(&spare.memory_bytes());
        let fitting = (0..self.spares.len()).filter(|at| fits(&self.spares[*at]));
        let smallest = fitting.min_by_key(|at| self.spares[*at].memory_bytes());
        smallest.map_or_else(Batch::default, |at| self.spares.remove(at))
    }

    /// Counts `bytes` if one more item fits after `items` of its kind.
    fn reserve(&mut self, items: usize, bytes: usize) -> Result<(), BatchFull> {
        let too_long = self.bytes > 0 && self.bytes + bytes > self.bytes_max;
        if items >= self.items_max || too_long || self.bytes + bytes > BATCH_BYTES_MAX {
            return Err(BatchFull);
        }
        self.bytes += bytes;
        Ok(())
    }
}

/// Returns the index of the item just pushed.
fn index(len: usize) -> u32 {
    (len - 1) as u32
}

#[cfg(test)]
mod tests {
    use tribunal_types::{Conflict, NamespaceId, NodeId, OpKind, Reason, RowKey, Stage, StoreId, TxnId, Version};

    use super::*;

    fn group() -> GroupId {
        GroupId { node: NodeId(5), ..GroupId::default() }
    }

    #[test]
    fn stamps_increase_strictly_however_the_clock_jumps() {
        let mut batcher = Batcher::new(group(), Csn::new(1_000, NodeId(9)));
        let txn = TxnRequest::default();
        for now in [0, 2_000, 2_000, 1_500, 3_000, u64::MAX, 4_000] {
            batcher.offer(&txn, now).unwrap();
        }
        let batch = batcher.seal(Epoch(1), Epoch(1), ControlIndex(0), 0);
        let micros: alloc::vec::Vec<u64> = batch.txns.iter().map(|t| t.csn.micros()).collect();
        assert_eq!(micros, [1_001, 2_000, 2_001, 2_002, 3_000, CLOCK_US_MAX, CLOCK_US_MAX + 1]);
        assert!(batch.txns.iter().all(|t| t.csn.0 & 1023 == 5), "stamps carry the node");
        batcher.offer(&txn, 0).unwrap();
        assert_eq!(batcher.last_csn().micros(), CLOCK_US_MAX + 2, "and continue in the next batch");
    }

    #[test]
    fn every_proposal_has_a_stamp_of_its_own() {
        let mut batcher = Batcher::new(group(), Csn(0));
        let mut seal = |txns: usize, clock_ms| {
            (0..txns).for_each(|_| _ = batcher.offer(&TxnRequest::default(), 7_000).unwrap());
            batcher.seal(Epoch(1), Epoch(1), ControlIndex(0), clock_ms)
        };
        let sealed = [seal(0, 5), seal(2, 5), seal(0, 5), seal(0, 9), seal(1, 0), seal(0, u64::MAX)];
        let micros = sealed.each_ref().map(|batch| batch.proposal().micros());
        assert_eq!(micros, [5_000, 7_001, 7_002, 9_000, 9_001, CLOCK_US_MAX]);
        assert!(sealed.iter().all(|batch| batch.proposal().0 & 1023 == 5), "stamps carry the node");
    }

    #[test]
    fn sealing_moves_everything_and_leaves_an_empty_batch() {
        let mut batcher = Batcher::new(group(), Csn(0));
        assert!(batcher.is_empty());
        assert_eq!(batcher.offer(&TxnRequest::default(), 1), Ok(0));
        assert_eq!(batcher.offer(&TxnRequest::default(), 1), Ok(1));
        let fence = FenceItem { id: TxnId([1; 16]), namespace: NamespaceId(0) };
        assert_eq!(batcher.fence(fence), Ok(0));
        let abort = EarlyAbort {
            id: TxnId([2; 16]),
            body_hash: None,
            namespace: NamespaceId(0),
            reason: Reason::ClientAbort,
            conflicts: alloc::vec![],
        };
        assert_eq!(batcher.add_early_abort(abort), Ok(0));
        let version = Version::from_bits(1).unwrap();
        let import = ImportedVersion { row: RowKey::default(), store: StoreId(1), version, integer: false };
        batcher.import(&[import, import]).unwrap();
        assert_eq!(batcher.txn_count(), 2);
        assert!(batcher.bytes() > 0 && !batcher.is_empty());

        let batch = batcher.seal(Epoch(3), Epoch(5), ControlIndex(2), 77);
        assert_eq!((batch.first, batch.last, batch.control, batch.clock_ms), (Epoch(3), Epoch(5), ControlIndex(2), 77));
        assert_eq!((batch.txns.len(), batch.fences.len(), batch.early_aborts.len(), batch.imports.len()), (2, 1, 1, 2));
        assert_eq!(batch.group, group());
        assert!(batcher.is_empty());
        assert_eq!((batcher.txn_count(), batcher.bytes()), (0, 0));
    }

    #[test]
    fn a_batch_gets_the_memory_of_an_earlier_one_of_its_size_and_nothing_else_of_it() {
        let mut batcher = Batcher::new(group(), Csn(0));
        let txn = |bytes| TxnRequest { values: alloc::vec![7; bytes], ..TxnRequest::default() };
        let sealed = |batcher: &mut Batcher, bytes| {
            batcher.offer(&txn(bytes), 0).unwrap();
            batcher.seal(Epoch(1), Epoch(1), ControlIndex(0), 5)
        };
        let large = sealed(&mut batcher, 1 << 20);
        let memory = large.memory_bytes();
        batcher.recycle(large);
        let small = sealed(&mut batcher, 100);
        assert!(small.memory_bytes() < SPARE_BYTES_MIN);
        // The batch opened since then is small as well; the one after a large batch is not.
        sealed(&mut batcher, 1 << 20);
        assert!(batcher.is_empty());
        assert_eq!(batcher.open.memory_bytes(), memory);
        let again = sealed(&mut batcher, 10);
        assert_eq!((again.txns.len(), again.values.len(), again.first), (1, 10, Epoch(1)));
    }

    /// Returns an empty batch with `bytes` of memory.
    fn spare(bytes: usize) -> Batch {
        Batch { values: Vec::with_capacity(bytes), ..Batch::default() }
    }

    #[test]
    fn a_burst_of_large_batches_leaves_little_memory_reserved() {
        let mut batcher = Batcher::new(group(), Csn(0));
        (0..20).for_each(|_| batcher.recycle(spare(SPARE_BYTES_MAX + 1)));
        assert_eq!(batcher.spares.len(), 0, "too large to be kept");
        (0..20).for_each(|n| batcher.recycle(spare(SPARE_BYTES_MAX - n)));
        let kept: usize = batcher.spares.iter().map(Batch::memory_bytes).sum();
        assert!(batcher.spares.len() == SPARES_MAX && kept <= SPARES_MAX * SPARE_BYTES_MAX, "{kept} bytes");
        // The batches after the burst displace it.
        (0..SPARES_MAX).for_each(|_| batcher.recycle(spare(1_000)));
        let kept: usize = batcher.spares.iter().map(Batch::memory_bytes).sum();
        assert_eq!(kept, SPARES_MAX * 1_000);
    }

    #[test]
    fn a_batch_gets_the_smallest_spare_that_fits() {
        let mut batcher = Batcher::new(group(), Csn(0));
        [60_000, 5_000, 900, 20_000].into_iter().for_each(|bytes| batcher.recycle(spare(bytes)));
        let taken: Vec<usize> =
            [1_000, 1_000, 30_000, 1_000].map(|bytes| batcher.spare_for(bytes).memory_bytes()).into();
        assert_eq!(taken, [5_000, 20_000, 60_000, 0]);
    }

    #[test]
    fn an_early_abort_counts_with_the_keys_of_its_conflicts() {
        let conflict = Conflict {
            store: StoreId(1),
            key: alloc::vec![0; 1_000],
            end: Some(alloc::vec![0; 2_000]),
            op: OpKind::Range,
            read_version: None,
            row: None,
            current_version: None,
            by_txn: None,
            changed_in: None,
            stage: Stage::Admission,
        };
        let conflicts = alloc::vec![conflict; 10];
        let abort = EarlyAbort {
            id: TxnId([2; 16]),
            body_hash: None,
            namespace: NamespaceId(0),
            reason: Reason::ReadConflict,
            conflicts,
        };
        let mut batcher = Batcher::new(group(), Csn(0));
        batcher.add_early_abort(abort).unwrap();
        let counted = batcher.bytes();
        assert!(counted > 30_000, "{counted}");
        let sealed = batcher.seal(Epoch(1), Epoch(1), ControlIndex(0), 0);
        assert!(sealed.memory_bytes() >= counted, "a sealed batch counts no less: {}", sealed.memory_bytes());
    }

    #[test]
    fn a_full_batch_rejects_a_transaction_and_is_unchanged() {
        let mut batcher = Batcher::new(group(), Csn(0));
        let big = TxnRequest { values: alloc::vec![0; BATCH_BYTES_MAX / 4], ..TxnRequest::default() };
        for _ in 0..3 {
            batcher.offer(&big, 0).unwrap();
        }
        let (bytes, last) = (batcher.bytes(), batcher.last_csn());
        assert_eq!(batcher.offer(&big, 0), Err(BatchFull));
        assert_eq!((batcher.bytes(), batcher.last_csn(), batcher.txn_count()), (bytes, last, 3));
        batcher.offer(&TxnRequest::default(), 0).unwrap();
        batcher.seal(Epoch(1), Epoch(1), ControlIndex(0), 0);
        batcher.offer(&big, 0).unwrap();
    }

    #[test]
    fn a_batch_has_a_length_or_one_item_that_is_longer() {
        let mut batcher = Batcher::new(group(), Csn(0));
        batcher.limit_bytes(10_000);
        let txn = |bytes| TxnRequest { values: alloc::vec![0; bytes], ..TxnRequest::default() };
        assert_eq!(batcher.offer(&txn(50_000), 0), Ok(0));
        assert_eq!(batcher.offer(&txn(0), 0), Err(BatchFull));
        batcher.seal(Epoch(1), Epoch(1), ControlIndex(0), 0);
        assert_eq!((batcher.offer(&txn(4_000), 0), batcher.offer(&txn(4_000), 0)), (Ok(0), Ok(1)));
        assert_eq!(batcher.offer(&txn(4_000), 0), Err(BatchFull));
    }

    #[test]
    fn members_share_the_transactions_of_an_epoch() {
        let mut batcher = Batcher::new(group(), Csn(0));
        for members in [1, 8, 9, 100, 1023] {
            batcher.share_epoch(members);
            let mut taken = 0;
            while batcher.offer(&TxnRequest::default(), 0).is_ok() {
                taken += 1;
            }
            assert!(taken > 0 && taken * members <= TXNS_PER_EPOCH_MAX, "{members}: {taken}");
            assert_eq!(taken, TXNS_PER_BATCH_MAX.min(TXNS_PER_EPOCH_MAX / members));
            batcher.seal(Epoch(1), Epoch(1), ControlIndex(0), 0);
        }
    }

    #[test]
    fn the_number_of_transactions_is_limited() {
        let mut batcher = Batcher::new(group(), Csn(0));
        for _ in 0..TXNS_PER_BATCH_MAX {
            batcher.offer(&TxnRequest::default(), 0).unwrap();
        }
        assert_eq!(batcher.offer(&TxnRequest::default(), 0), Err(BatchFull));
    }
}
