//! Maps the positions of a store's records to epochs. Dense for recent epochs; of older epochs one in [`SPARSE_EPOCHS`]
//! is kept, and the gap is walked in the outcomes.

use std::collections::{BTreeMap, VecDeque};

use tribunal_types::{Epoch, EpochOutcome, Lsn, StoreId};

/// Number of a store's recent epochs that are all kept.
const DENSE: usize = 8192;
/// Distance between kept epochs before the recent ones.
pub(crate) const SPARSE_EPOCHS: u64 = 64;

/// A store's records of one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LsnSpan {
    pub epoch: Epoch,
    pub first: Lsn,
    pub count: u64,
}

/// Where to look for a position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// In this epoch.
    At(Epoch),
    /// In an epoch from the first up to, but not including, the second: at most [`SPARSE_EPOCHS`] epochs.
    Between(Epoch, Epoch),
    /// At the head: there is no record yet.
    Head,
    /// It was truncated; the oldest retained position.
    Truncated(Lsn),
}

#[derive(Clone, Debug, Default)]
struct StoreLog {
    spans: VecDeque<LsnSpan>,
    /// Number of `spans` that are already thinned out.
    thinned: usize,
    head: Lsn,
    /// Last position that was truncated.
    truncated: Lsn,
}

/// The records of all stores.
#[derive(Clone, Debug, Default)]
pub(crate) struct LsnIndex {
    stores: BTreeMap<StoreId, StoreLog>,
    /// Epochs below this one are forgotten.
    oldest: Epoch,
}

/// Returns each store's records in an outcome, by ascending store.
pub(crate) fn spans_of(outcome: &EpochOutcome) -> BTreeMap<StoreId, LsnSpan> {
    let mut spans: BTreeMap<StoreId, LsnSpan> = BTreeMap::new();
    for at in &outcome.lsns {
        let span = spans.entry(at.store).or_insert(LsnSpan { epoch: outcome.epoch, first: at.lsn, count: 0 });
        span.count += 1;
    }
    spans
}

impl LsnIndex {
    /// Adds the records that an epoch above all known ones appended to the stores' logs.
    pub(crate) fn push(&mut self, outcome: &EpochOutcome) {
        for (store, span) in spans_of(outcome) {
            let log = self.stores.entry(store).or_default();
            log.head = Lsn(span.first.0 + span.count - 1);
            log.spans.push_back(span);
            if log.spans.len() - log.thinned > 2 * DENSE {
                log.thin();
            }
        }
    }

    /// Notes that a store's records up to `last` are truncated.
    pub(crate) fn set_truncated(&mut self, store: StoreId, last: Lsn) {
        let log = self.stores.entry(store).or_default();
        log.truncated = log.truncated.max(last);
        log.head = log.head.max(last);
    }

    /// Forgets epochs below `epoch`.
    pub(crate) fn remove_below(&mut self, epoch: Epoch) {
        self.oldest = epoch;
        for log in self.stores.values_mut() {
            let gone = log.spans.partition_point(|span| span.epoch < epoch);
            log.spans.drain(..gone);
            log.thinned = log.thinned.saturating_sub(gone);
        }
    }

    /// Returns the location of the first record after `after`.
    pub(crate) fn find(&self, store: StoreId, after: Lsn) -> Found {
        let Some(log) = self.stores.get(&store) else { return Found::Head };
        let wanted = after.next();
        if wanted > log.head {
            return Found::Head;
        }
        if wanted <= log.truncated {
            return Found::Truncated(log.truncated.next());
        }
        let next = log.spans.partition_point(|span| span.first <= wanted);
        let last = next.checked_sub(1).map(|ix| log.spans[ix]);
        if let Some(span) = last
            && wanted.0 < span.first.0 + span.count
        {
            return Found::At(span.epoch);
        }
        // An epoch is thinned out only if it is near a kept one. That one may be forgotten by now.
        let from = last.map_or(self.oldest, |span| span.epoch.next().max(self.oldest));
        let near = Epoch(from.0.saturating_add(SPARSE_EPOCHS));
        Found::Between(from, log.spans.get(next).map_or(near, |span| span.epoch.min(near)))
    }

    /// Returns the last kept span of each store below `epoch`, for the note that outlives its truncation.
    pub(crate) fn last_below(&self, epoch: Epoch) -> Vec<(StoreId, Option<LsnSpan>)> {
        let last = |log: &StoreLog| {
            let next = log.spans.partition_point(|span| span.epoch < epoch);
            next.checked_sub(1).map(|ix| log.spans[ix])
        };
        self.stores.iter().map(|(store, log)| (*store, last(log))).collect()
    }

    /// Returns the oldest retained position, or the next one if none is retained.
    pub(crate) fn oldest(&self, store: StoreId) -> Lsn {
        self.stores.get(&store).map_or(Lsn(1), |log| log.truncated.next())
    }

    /// Returns the last position.
    pub(crate) fn head(&self, store: StoreId) -> Lsn {
        self.stores.get(&store).map_or(Lsn(0), |log| log.head)
    }

    /// Returns the last truncated position of every store that has one.
    pub(crate) fn truncated(&self) -> Vec<(StoreId, Lsn)> {
        self.stores.iter().filter(|(_, log)| log.truncated > Lsn(0)).map(|(id, log)| (*id, log.truncated)).collect()
    }
}

impl StoreLog {
    fn thin(&mut self) {
        let recent = self.spans.split_off(self.thinned + DENSE);
        let dense = self.spans.split_off(self.thinned);
        for span in dense {
            let near = self.spans.back().is_some_and(|kept| span.epoch.0 < kept.epoch.0 + SPARSE_EPOCHS);
            if !near {
                self.spans.push_back(span);
            }
        }
        self.thinned = self.spans.len();
        self.spans.extend(recent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tribunal_types::{StoreLsn, TxnIx};

    fn outcome(epoch: u64, lsns: &[(u32, u64)]) -> EpochOutcome {
        EpochOutcome {
            epoch: Epoch(epoch),
            lsns: lsns
                .iter()
                .map(|(store, lsn)| StoreLsn { txn: TxnIx(0), store: StoreId(*store), lsn: Lsn(*lsn) })
                .collect(),
            ..EpochOutcome::default()
        }
    }

    #[test]
    fn every_position_is_found_however_old() {
        let mut index = LsnIndex::default();
        let epochs = 40_000;
        for epoch in 1..=epochs {
            index.push(&outcome(epoch, &[(1, 2 * epoch - 1), (1, 2 * epoch)]));
        }
        assert!(index.stores[&StoreId(1)].spans.len() < 3 * DENSE, "old epochs are thinned out");
        for after in 0..2 * epochs {
            let epoch = Epoch(after / 2 + 1);
            match index.find(StoreId(1), Lsn(after)) {
                Found::At(at) => assert_eq!(at, epoch),
                Found::Between(from, until) => {
                    assert!(
                        from <= epoch && epoch < until && until.0 - from.0 <= SPARSE_EPOCHS,
                        "{from} {epoch} {until}"
                    );
                }
                other => panic!("{after}: {other:?}"),
            }
        }
        assert_eq!(index.find(StoreId(1), Lsn(2 * epochs)), Found::Head);
        assert_eq!(index.find(StoreId(9), Lsn(0)), Found::Head);
    }

    #[test]
    fn idle_epochs_are_not_searched() {
        // The store writes in five epochs, ten apart, then the log is idle for 100,000 epochs.
        let written: Vec<u64> =
            (0..8_000).flat_map(|burst| (0..5).map(move |n| burst * 100_000 + n * 10 + 1)).collect();
        let mut index = LsnIndex::default();
        for (lsn, &epoch) in (1..).zip(&written) {
            index.push(&outcome(epoch, &[(1, lsn)]));
        }
        for below in [0, 31, 100_011, 5_000_021] {
            index.remove_below(Epoch(below));
            let gone = written.iter().filter(|epoch| **epoch < below).count() as u64;
            index.set_truncated(StoreId(1), Lsn(gone));
            let mut searched = 0;
            for (after, &epoch) in (0..).zip(&written).skip(gone as usize) {
                let (from, until) = match index.find(StoreId(1), Lsn(after)) {
                    Found::At(at) => (at, at.next()),
                    Found::Between(from, until) => (from, until),
                    other => panic!("{after}: {other:?}"),
                };
                assert!((from..until).contains(&Epoch(epoch)), "{after}: {from} {until}, not {epoch}");
                assert!(until.0 - from.0 <= SPARSE_EPOCHS, "{after}: {from} {until}");
                searched += u64::from(until != from.next());
            }
            assert!(searched > 1_000, "{searched}");
        }
    }

    #[test]
    fn truncated_positions_are_told_apart_from_future_ones() {
        let mut index = LsnIndex::default();
        index.push(&outcome(1, &[(1, 1), (2, 1)]));
        index.push(&outcome(2, &[(1, 2)]));
        index.set_truncated(StoreId(1), Lsn(1));
        index.set_truncated(StoreId(2), Lsn(1));
        index.remove_below(Epoch(2));
        assert_eq!(index.find(StoreId(1), Lsn(0)), Found::Truncated(Lsn(2)));
        assert_eq!(index.find(StoreId(1), Lsn(1)), Found::At(Epoch(2)));
        assert_eq!(index.find(StoreId(2), Lsn(0)), Found::Truncated(Lsn(2)));
        assert_eq!(index.find(StoreId(2), Lsn(1)), Found::Head);
        assert_eq!((index.oldest(StoreId(2)), index.head(StoreId(2))), (Lsn(2), Lsn(1)));
    }
}
