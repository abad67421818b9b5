//! The state that each store has applied (LeanXcale: update visibility, separate from commit).
//!
//! A store's applied snapshot is the highest complete epoch whose records there are all acknowledged as durable by the
//! storage; a store without pending records has applied the last complete epoch. Where it cannot be known exactly, the
//! answer errs low, never high: a snapshot newer than the store's contents would let stale reads commit.
//!
//! Memory is bounded: a store that never acknowledges loses precision, not safety. Acknowledged epochs are kept only as
//! far as a storage that lost its newest writes can fall back.

use alloc::collections::{BTreeMap, VecDeque};

use tribunal_types::{Epoch, Lsn, StoreId, StoreSnapshot};

/// Acknowledged epochs kept per store, for rewinding.
const ACKED_EPOCHS_MAX: usize = 1 << 14;
/// Pending epochs kept per store; beyond that, neighbours are merged in pairs.
const PENDING_EPOCHS_MAX: usize = 1 << 16;

/// Destination of a store's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// A storage, which acknowledges them.
    Pushed,
    /// Nowhere: the log is the store, and its records count as applied at once.
    LogOnly,
    /// A storage that is no longer pushed to. Its contents are unknown, so it counts as having applied nothing.
    Detached,
}

/// Last position of one epoch's records in a store's log.
#[derive(Clone, Copy, Debug)]
struct EpochEnd {
    epoch: Epoch,
    last: Lsn,
}

/// One store's epochs with records, oldest first: acknowledged ones, then pending ones.
#[derive(Debug)]
struct StoreEpochs {
    delivery: Delivery,
    /// Epochs whose records end at or below this position are no longer listed.
    forgotten: Lsn,
    ends: VecDeque<EpochEnd>,
    head: Lsn,
    acked: Lsn,
}

impl StoreEpochs {
    fn new(delivery: Delivery, head: Lsn) -> Self {
        let acked = if delivery == Delivery::LogOnly { head } else { Lsn(0) };
        StoreEpochs { delivery, forgotten: head, ends: VecDeque::new(), head, acked }
    }

    fn first_after(&self, lsn: Lsn) -> usize {
        self.ends.partition_point(|end| end.last <= lsn)
    }

    fn first_pending(&self) -> usize {
        self.first_after(self.acked)
    }

    /// Returns the applied epoch of a copy that has everything up to `lsn`, or `None` if nothing is pending there.
    fn applied_with(&self, lsn: Lsn) -> Option<Epoch> {
        if self.delivery == Delivery::Detached || lsn < self.forgotten {
            return Some(Epoch(0));
        }
        self.ends.get(self.first_after(lsn)).map(|end| end.epoch.prev())
    }

    fn note(&mut self, end: EpochEnd) {
        if end.last <= self.head {
            return;
        }
        self.head = end.last;
        if self.delivery == Delivery::LogOnly {
            self.acked = end.last;
            self.forgotten = end.last;
            return;
        }
        if self.delivery == Delivery::Detached {
            self.forgotten = end.last;
            return;
        }
        self.ends.push_back(end);
        if self.ends.len() - self.first_pending() > PENDING_EPOCHS_MAX {
            self.merge_pairs();
        }
    }

    /// Halves the pending list. Two merged epochs count as pending from the earlier epoch to the end of the later one.
    fn merge_pairs(&mut self) {
        let pending = self.ends.split_off(self.first_pending());
        let mut pending = pending.into_iter();
        while let Some(first) = pending.next() {
            let last = pending.next().map_or(first.last, |second| second.last);
            self.ends.push_back(EpochEnd { epoch: first.epoch, last });
        }
    }

    fn set_acked(&mut self, lsn: Lsn) {
        self.acked = lsn;
        let surplus = self.first_pending().saturating_sub(ACKED_EPOCHS_MAX);
        if let Some(end) = self.ends.drain(..surplus).next_back() {
            self.forgotten = self.forgotten.max(end.last);
        }
    }
}

/// Makes the snapshots of one transaction a single database state if one of its stores is multi-version: all are set to
/// the oldest. A multi-version store is read exactly at its snapshot, so two of them at different snapshots could show
/// half of a transaction; and reads from the other stores have to hold at the same moment. The other stores may be read
/// later than their snapshot, and are checked by version.
pub fn make_one_cut(snapshots: &mut [StoreSnapshot], keeps_versions: impl Fn(StoreId) -> bool) {
    if !snapshots.iter().any(|s| keeps_versions(s.store)) {
        return;
    }
    let oldest = snapshots.iter().map(|s| s.at).min().unwrap_or_default();
    snapshots.iter_mut().for_each(|s| s.at = oldest);
}

/// Applied snapshots of all stores.
#[derive(Debug)]
pub struct Visibility {
    last_complete: Epoch,
    stores: BTreeMap<StoreId, StoreEpochs>,
}

impl Visibility {
    /// Starts after epoch `last_complete`.
    #[must_use]
    pub fn new(last_complete: Epoch) -> Self {
        Visibility { last_complete, stores: BTreeMap::new() }
    }

    /// Starts to track a store whose log ends at `head`. A pushed store has applied none of it until it acknowledges
    /// `head` (a restart reads its watermark back first). Changing the delivery of a known store keeps its log;
    /// repeating the same delivery changes nothing.
    pub fn track(&mut self, store: StoreId, delivery: Delivery, head: Lsn) {
        let head = self.stores.get(&store).map_or(head, |known| known.head.max(head));
        if self.stores.get(&store).is_none_or(|known| known.delivery != delivery) {
            let mut fresh = StoreEpochs::new(delivery, head);
            if delivery == Delivery::Detached {
                // For display only: the storage's position when it was detached.
                fresh.acked = self.acked_lsn(store);
            }
            self.stores.insert(store, fresh);
        }
    }

    /// Notes that `epoch` is complete, with its last position in each store it wrote. Epochs come in order; empty ones
    /// may be left out. A store that is not tracked yet counts as pushed, from the start of its log.
    pub fn note_epoch(&mut self, epoch: Epoch, ends: &[(StoreId, Lsn)]) {
        self.last_complete = self.last_complete.max(epoch);
        for &(store, last) in ends {
            let log = self.stores.entry(store).or_insert_with(|| StoreEpochs::new(Delivery::Pushed, Lsn(0)));
            log.note(EpochEnd { epoch, last });
        }
    }

    /// Notes that the storage holds everything up to `lsn` durably. Never moves back; a position past the log's head
    /// counts as the head.
    pub fn acked(&mut self, store: StoreId, lsn: Lsn) {
        if let Some(log) = self.stores.get_mut(&store)
            && log.delivery == Delivery::Pushed
            && lsn > log.acked
        {
            log.set_acked(lsn.min(log.head));
        }
    }

    /// Notes the watermark read back on reconnect: the storage may have lost writes that it once acknowledged.
    pub fn rewound(&mut self, store: StoreId, lsn: Lsn) {
        if let Some(log) = self.stores.get_mut(&store)
            && log.delivery == Delivery::Pushed
        {
            log.set_acked(lsn.min(log.head));
        }
    }

    /// Notes the storage's position as reported by the node that pushes to it. That node may be further in the log:
    /// epochs noted here later, up to that position, count as acknowledged too.
    pub fn told(&mut self, store: StoreId, lsn: Lsn) {
        if let Some(log) = self.stores.get_mut(&store)
            && log.delivery == Delivery::Pushed
        {
            log.set_acked(lsn);
        }
    }

    /// Returns the store's applied snapshot; epoch 0 if the storage is older than all remembered epochs.
    #[must_use]
    pub fn applied(&self, store: StoreId) -> Epoch {
        self.stores.get(&store).and_then(|log| log.applied_with(log.acked)).unwrap_or(self.last_complete)
    }

    /// Returns the snapshot of another copy of the store that has everything up to `lsn`; epoch 0 if that is older than
    /// all remembered epochs.
    #[must_use]
    pub fn applied_with(&self, store: StoreId, lsn: Lsn) -> Epoch {
        self.stores.get(&store).and_then(|log| log.applied_with(lsn)).unwrap_or(self.last_complete)
    }

    /// Returns the last position that the store acknowledged.
    #[must_use]
    pub fn acked_lsn(&self, store: StoreId) -> Lsn {
        self.stores.get(&store).map_or(Lsn(0), |log| log.acked.min(log.head))
    }

    /// Returns the last complete epoch noted.
    #[must_use]
    pub fn last_complete(&self) -> Epoch {
        self.last_complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: StoreId = StoreId(1);
    const OTHER: StoreId = StoreId(2);

    #[test]
    fn applied_is_the_epoch_before_the_first_pending_record() {
        let mut seen = Visibility::new(Epoch(0));
        seen.note_epoch(Epoch(1), &[(S, Lsn(3))]);
        seen.note_epoch(Epoch(2), &[(OTHER, Lsn(1))]);
        seen.note_epoch(Epoch(5), &[(S, Lsn(4)), (OTHER, Lsn(2))]);
        assert_eq!((seen.applied(S), seen.applied(OTHER)), (Epoch(0), Epoch(1)));
        seen.acked(S, Lsn(2));
        assert_eq!(seen.applied(S), Epoch(0), "epoch 1 is not whole");
        seen.acked(S, Lsn(3));
        assert_eq!(seen.applied(S), Epoch(4));
        let copies = [0, 3, 4, 9].map(|lsn| seen.applied_with(S, Lsn(lsn)));
        assert_eq!(copies, [0, 4, 5, 5].map(Epoch), "another copy may be further, or not as far");
        seen.acked(S, Lsn(4));
        assert_eq!(seen.applied(S), Epoch(5), "nothing pending: the last complete epoch");
        seen.note_epoch(Epoch(9), &[]);
        assert_eq!((seen.applied(S), seen.applied(OTHER)), (Epoch(9), Epoch(1)));
        assert_eq!(seen.applied(StoreId(7)), Epoch(9), "a store without a record has nothing pending");
    }

    #[test]
    fn acknowledgements_neither_go_back_nor_beyond_the_head() {
        let mut seen = Visibility::new(Epoch(0));
        seen.note_epoch(Epoch(1), &[(S, Lsn(3))]);
        seen.acked(S, Lsn(99));
        seen.acked(S, Lsn(1));
        assert_eq!((seen.applied(S), seen.acked_lsn(S)), (Epoch(1), Lsn(3)));
        seen.note_epoch(Epoch(2), &[(S, Lsn(4))]);
        assert_eq!(seen.applied(S), Epoch(1), "a boast about the future does not count later");
    }

    #[test]
    fn a_reconnect_takes_the_snapshot_back() {
        let mut seen = Visibility::new(Epoch(0));
        for e in 1..=4 {
            seen.note_epoch(Epoch(e), &[(S, Lsn(e * 10))]);
        }
        seen.acked(S, Lsn(40));
        assert_eq!(seen.applied(S), Epoch(4));
        seen.rewound(S, Lsn(25));
        assert_eq!(seen.applied(S), Epoch(2));
        seen.acked(S, Lsn(40));
        assert_eq!(seen.applied(S), Epoch(4));
    }

    #[test]
    fn what_a_node_that_is_further_tells_counts_for_what_is_noted_later() {
        let mut seen = Visibility::new(Epoch(0));
        seen.note_epoch(Epoch(1), &[(S, Lsn(3))]);
        seen.told(S, Lsn(6));
        assert_eq!((seen.applied(S), seen.acked_lsn(S)), (Epoch(1), Lsn(3)));
        seen.note_epoch(Epoch(2), &[(S, Lsn(5))]);
        assert_eq!((seen.applied(S), seen.acked_lsn(S)), (Epoch(2), Lsn(5)));
        seen.note_epoch(Epoch(3), &[(S, Lsn(7))]);
        assert_eq!((seen.applied(S), seen.acked_lsn(S)), (Epoch(2), Lsn(6)), "epoch 3 is not whole");
        seen.told(S, Lsn(4));
        assert_eq!((seen.applied(S), seen.acked_lsn(S)), (Epoch(1), Lsn(4)), "the storage was lost and is older");
    }

    #[test]
    fn a_rewind_below_the_recorded_history_gives_zero_until_caught_up() {
        let mut seen = Visibility::new(Epoch(0));
        let epochs = ACKED_EPOCHS_MAX as u64 + 10;
        for e in 1..=epochs {
            seen.note_epoch(Epoch(e), &[(S, Lsn(e))]);
            seen.acked(S, Lsn(e));
        }
        seen.rewound(S, Lsn(5));
        assert_eq!(seen.applied(S), Epoch(0));
        seen.acked(S, Lsn(9));
        assert_eq!(seen.applied(S), Epoch(0));
        seen.acked(S, Lsn(10));
        assert_eq!(seen.applied(S), Epoch(10));
        seen.acked(S, Lsn(epochs));
        assert_eq!(seen.applied(S), Epoch(epochs));
    }

    #[test]
    fn a_restart_trusts_only_the_watermark_read_back() {
        let mut seen = Visibility::new(Epoch(50));
        seen.track(S, Delivery::Pushed, Lsn(100));
        assert_eq!(seen.applied(S), Epoch(0));
        seen.note_epoch(Epoch(51), &[(S, Lsn(101))]);
        seen.rewound(S, Lsn(99));
        assert_eq!(seen.applied(S), Epoch(0));
        seen.rewound(S, Lsn(100));
        assert_eq!(seen.applied(S), Epoch(50));
        seen.track(S, Delivery::Pushed, Lsn(0));
        seen.acked(S, Lsn(101));
        assert_eq!(seen.applied(S), Epoch(51));
    }

    #[test]
    fn a_log_only_store_has_always_applied_everything() {
        let mut seen = Visibility::new(Epoch(3));
        seen.track(S, Delivery::LogOnly, Lsn(8));
        assert_eq!(seen.applied(S), Epoch(3));
        seen.note_epoch(Epoch(4), &[(S, Lsn(9))]);
        assert_eq!(seen.applied(S), Epoch(4));
        seen.track(S, Delivery::Pushed, Lsn(0));
        assert_eq!(seen.applied(S), Epoch(0), "an adaptor was added: the storage has to catch up from the start");
        seen.acked(S, Lsn(9));
        assert_eq!(seen.applied(S), Epoch(4));
    }

    #[test]
    fn a_detached_store_shows_nothing_until_it_is_caught_up_again() {
        let mut seen = Visibility::new(Epoch(0));
        for e in 1..=3 {
            seen.note_epoch(Epoch(e), &[(S, Lsn(e))]);
        }
        seen.acked(S, Lsn(2));
        seen.track(S, Delivery::Detached, Lsn(3));
        assert_eq!((seen.applied(S), seen.acked_lsn(S)), (Epoch(0), Lsn(2)));
        seen.acked(S, Lsn(3));
        seen.note_epoch(Epoch(4), &[(S, Lsn(4))]);
        seen.rewound(S, Lsn(4));
        assert_eq!((seen.applied(S), seen.acked_lsn(S)), (Epoch(0), Lsn(2)), "it is not pushed to");
        seen.track(S, Delivery::Pushed, Lsn(0));
        seen.acked(S, Lsn(3));
        assert_eq!(seen.applied(S), Epoch(0));
        seen.acked(S, Lsn(4));
        assert_eq!(seen.applied(S), Epoch(4));
        assert!(seen.stores[&S].ends.is_empty(), "a store that is not pushed to costs nothing");
    }

    #[test]
    fn multi_version_stores_begin_at_one_state() {
        let begun = |keeps_versions: fn(StoreId) -> bool| {
            let mut snapshots =
                [StoreSnapshot { store: S, at: Epoch(7) }, StoreSnapshot { store: OTHER, at: Epoch(9) }];
            make_one_cut(&mut snapshots, keeps_versions);
            snapshots.map(|s| s.at.0)
        };
        assert_eq!(begun(|_| true), [7, 7]);
        assert_eq!(begun(|store| store == S), [7, 7]);
        assert_eq!(begun(|store| store == OTHER), [7, 7], "the others' reads have to hold at its snapshot");
        assert_eq!(begun(|_| false), [7, 9]);
    }

    #[test]
    fn a_store_that_never_acknowledges_loses_precision_not_safety() {
        let mut seen = Visibility::new(Epoch(0));
        let epochs = 4 * PENDING_EPOCHS_MAX as u64;
        for e in 1..=epochs {
            seen.note_epoch(Epoch(e), &[(S, Lsn(e))]);
        }
        assert!(seen.stores[&S].ends.len() <= PENDING_EPOCHS_MAX + 1);
        for acked in (0..=epochs).step_by(997) {
            seen.rewound(S, Lsn(acked));
            assert!(seen.applied(S) <= Epoch(acked));
        }
        seen.acked(S, Lsn(epochs));
        assert_eq!(seen.applied(S), Epoch(epochs));
    }
}
